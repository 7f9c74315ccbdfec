"""The columns of an output that declares none: a batch may say of them what another one leaves open."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.runtime import output_schema, read_output
from task_assignor.runtime.run_folder.commits import CommitLog, known_type
from tests.runtime.test_commits import Folder


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [
        ("null", "timestamp[us, tz=Europe/Berlin]", "timestamp[us, tz=Europe/Berlin]"),
        ("struct<y: null, z: int64>", "struct<y: list<item: null>, z: null>", "struct<y: list<item: null>, z: int64>"),
        ("struct<y: null, z: null>", "struct<y: decimal128(5, 2), z: int8>", "struct<y: decimal128(5, 2), z: int8>"),
        ("list<item: null not null>", "list<item: int64 not null>", "list<item: int64 not null>"),
        ("struct<null: null, b: bool>", "struct<null: int64, b: null>", "struct<null: int64, b: bool>"),
        ("struct<null: string, b: null>", "struct<null: int64, b: bool>", ""),
        ("struct<null: int64>", "struct<other: int64>", ""),
        ("struct<a: null>", "struct<a: int64, b: int64>", ""),
        ("list<item: null>", "large_list<item: int64>", ""),
    ],
)
def test_what_is_known_of_two_types(one: str, other: str, known: str) -> None:
    assert known_type(one, other) == known_type(other, one) == known


def test_each_of_two_batches_may_know_what_the_other_does_not(tmp_path: Path) -> None:
    """Records with mappings of which each lacks another value were refused: "Columns cannot go or change their types"."""
    folder, rows = Folder(tmp_path), [{"y": None, "z": 1}, {"y": "a", "z": None}]
    log = CommitLog(folder.root)
    log.open_epoch("app", "me", 0)
    for commit, row in enumerate(rows, start=1):
        log.append(folder.record(commit, {0: folder.file(0, commit, 1, pa.table({"x": [row]}))}))
    assert read_output(folder.root, "out").column("x").to_pylist() == rows
    assert output_schema(folder.root, "out") == pa.schema([("x", pa.struct([("y", pa.string()), ("z", pa.int64())]))])
