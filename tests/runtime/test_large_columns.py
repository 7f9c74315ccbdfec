"""What Arrow has no room for in one array, 2 GiB of texts or 2^31 values of lists, is in several. Lists of nulls take no memory."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from task_assignor.runtime import KeyValueStoreSpec
from task_assignor.runtime.arrow.dictionaries import decoded, in_one_piece
from task_assignor.runtime.arrow.frames import taken
from task_assignor.runtime.processors import matching
from task_assignor.runtime.processors.matching import TimedRows
from task_assignor.runtime.storage import content

NULLS = 2**30
LIST = pa.ListArray.from_arrays(pa.array([0, NULLS], pa.int32()), pa.nulls(NULLS))
LARGE = pa.table({"k": [1, 1, 2], "l": pa.chunked_array([LIST] * 3), "t": [5, 6, 7]})


def test_rows_are_in_as_few_pieces_as_arrow_has_room_for() -> None:
    """As outputs and parts of stores are written: "offset overflow while concatenating arrays", whatever was tried again."""
    found = in_one_piece(LARGE)
    assert found.equals(LARGE)
    assert [column.num_chunks for column in found.columns] == [1, 3, 1]
    assert in_one_piece(found[:1]).column("l").num_chunks == 1


def test_files_are_written_of_rows_that_are_in_several_pieces() -> None:
    """The next step of an output failed where the rows had been put together."""
    assert [found.column("l").num_chunks for found in content._in_chunks([LARGE[:2], LARGE[2:]], 1)] == [2, 1]


def test_rows_that_wait_for_a_partner_may_be_large() -> None:
    few = TimedRows(LARGE[1:2], ["k"], "t")
    assert [found.tolist() for found in few.pairs(TimedRows(LARGE, ["k"], "t"), 1, 1)] == [[0, 0], [0, 1]]


def test_a_store_is_given_more_than_one_array_holds() -> None:
    store = KeyValueStoreSpec("s", pa.schema({"t": pa.int64()}), LARGE.schema.remove(2)).create()
    store.put_table(LARGE)
    for time, key in ((5, 1), (7, 2)):
        found = store.lookup(pa.array([time]))
        assert found.column("k").to_pylist() == [key]
        assert len(found.column("l")[0].values) == NULLS


def test_values_of_a_dictionary_are_in_several_arrays() -> None:
    column = pa.chunked_array(
        [pa.array(["abc", None, "d", "abc", "abc"]).dictionary_encode(), pa.array([], pa.string()).dictionary_encode()]
    )
    found = decoded(column, 6)
    assert [chunk.to_pylist() for chunk in found.chunks] == [["abc", None], ["d", "abc"], ["abc"], []]
    numbers = pa.chunked_array([pa.array([5, None, 5]).dictionary_encode()])
    assert decoded(numbers, 6).chunks == [pa.array([5, None, 5])]


def test_keys_of_pairs_may_be_more_than_one_array_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key that many rows have is compared as often as there are pairs."""
    rows = pa.table({"k": ["a" * 50] * 4, "t": [1, 2, 3, 4]})
    monkeypatch.setattr(matching, "taken", partial(taken, at_once=100))
    mine, theirs = TimedRows(rows, ["k"], "t").pairs(TimedRows(rows, ["k"], "t"), 0, 1)
    assert sorted(zip(mine.tolist(), theirs.tolist(), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 3),
        (3, 3),
    ]
