"""What is in objects: documents and Arrow files know whether they are whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.runtime.storage import (
    DamagedDocumentError,
    LocalStorage,
    Seal,
    as_arrow,
    as_document,
    as_parquet,
    open_arrow,
    open_document,
)

ROWS = pa.table({"key": list(range(40)), "n": list(range(40))})


def test_documents_know_whether_they_are_whole(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, is_durable=False)
    document = {"a": [1, "ü", None], "b": {"c": 1.5}}
    whole = as_document(document)
    storage.put("x", whole)
    assert document == open_document(storage, "x", dict)
    for kept in range(len(whole)):
        storage.put("x", whole[:kept])
        with pytest.raises(DamagedDocumentError) as caught:
            open_document(storage, "x", dict)
        assert caught.value.is_torn
    storage.put("x", b'{"a":1}\n')
    with pytest.raises(DamagedDocumentError, match="its checksum is missing") as caught:
        open_document(storage, "x", dict)
    assert not caught.value.is_torn


def test_a_flipped_bit_is_not_taken_for_a_document_that_was_never_written(tmp_path: Path) -> None:
    """One in the last two bytes was, and one that made a zero of a blank: the last commit was set aside, though it had counted."""
    storage = LocalStorage(tmp_path, is_durable=False)
    whole = as_document({"a": "two words", "b": {"c": 1.5}})
    for bit in range(8 * len(whole)):
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << bit % 8
        storage.put("x", bytes(spoilt))
        with pytest.raises(DamagedDocumentError) as caught:
            open_document(storage, "x", dict)
        assert not caught.value.is_torn, bytes(spoilt)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_that_were_not_written_yet_are_torn(tmp_path: Path, block: int) -> None:
    storage = LocalStorage(tmp_path, is_durable=False)
    whole = as_document({"a": list(range(100))})
    for start in range(0, len(whole), block):
        holed = whole[:start] + bytes(len(whole[start : start + block])) + whole[start + block :]
        storage.put("x", holed)
        with pytest.raises(DamagedDocumentError) as caught:
            open_document(storage, "x", dict)
        # No file system has blocks of one byte, but its last block may have one.
        assert caught.value.is_torn == (block > 1 or start == len(whole) - 1)


def test_a_seal_has_what_a_file_is_known_by(tmp_path: Path) -> None:
    data, seal = as_arrow(ROWS)
    assert seal == Seal(40, data.size, seal.checksum)
    assert as_arrow(ROWS) == (data, seal), "equal rows give equal files"
    assert seal != as_arrow(ROWS.set_column(1, "n", pa.array(range(1, 41))))[1]
    storage = LocalStorage(tmp_path)
    storage.put("x", data)
    assert ROWS.equals(open_arrow(storage, "x", seal, "topic", "t", 0, 0))
    small, packed = as_arrow(ROWS, "zstd")
    storage.put("y", small)
    assert ROWS.equals(open_arrow(storage, "y", packed, "topic", "t", 0, 0))


def test_of_parquet_only_the_columns_that_are_wanted_are_decoded(tmp_path: Path) -> None:
    """Of a file of hundreds of columns all were decoded for the one that was read."""
    storage = LocalStorage(tmp_path)
    table = pa.table({"a": [1, 2], "b.c": ["x", "y"], "d": [{"e": 1}, None]})
    data, seal = as_parquet(table)
    storage.put("x.parquet", data)

    def read(columns: list[str] | None) -> pa.Table:
        return open_arrow(storage, "x.parquet", seal, "output", "o", 0, 0, columns)

    assert read(None).equals(table)
    assert read(["no such", "d", "b.c"]).equals(table.select(["b.c", "d"]))
    assert read([]).shape == (2, 0)
