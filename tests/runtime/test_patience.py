"""How long tasks wait for sources that have nothing, and in which order they process what has come meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import CommitLogException
from task_assignor.runtime.arrow.merging import merged, rows_up_to_boundary, times_so_far
from task_assignor.runtime.machines.coordinator.patience import Patience
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.records import TaskCommit
from task_assignor.sdk import TaskId

TASK = TaskId(0, 0)


def _progress(*tables: str, **ends: int) -> Progress:
    return Progress({TASK: tuple(ends)}, {source: [end] for source, end in ends.items()}, tables)


def test_without_idle_time_nothing_is_awaited() -> None:
    for limit in (0, -1):
        patience = Patience(limit)
        assert patience.awaited(TASK, {"left": 3, "right": 0}, 0) == frozenset()
        assert patience.next_deadline_ms is None


def test_a_source_without_rows_is_awaited_from_when_it_was_seen_empty() -> None:
    patience = Patience(100)
    assert patience.awaited(TASK, {"left": 0, "right": 0}, 1_000) == {"left", "right"}
    assert list(patience.take_due(9_999)) == [], "nothing can be done then"
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 1_040) == {"left", "right"}
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 1_050) == {"left", "right"}
    assert list(patience.take_due(1_099)) == []
    assert list(patience.take_due(1_100)) == [TASK]
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 1_100) == {"left"}
    assert patience.next_deadline_ms is None


def test_a_source_that_was_given_up_is_awaited_again_when_it_has_brought_something() -> None:
    patience = Patience(100)
    patience.awaited(TASK, {"left": 3, "right": 0}, 0)
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 5_000) == {"left"}
    assert patience.awaited(TASK, {"left": 3, "right": 2}, 5_001) == {"left", "right"}
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 5_002) == {"left", "right"}
    assert patience.next_deadline_ms == 5_102


def test_a_source_is_awaited_as_long_when_nobody_has_looked_meanwhile() -> None:
    """The driver was stopped: a source whose rows had come by then was passed over, and they were late."""
    patience = Patience(100)
    patience.awaited(TASK, {"left": 3, "right": 0}, 1_000)
    patience.excuse(9_000, 10_040)
    assert not patience.take_due(10_040)
    assert patience.next_deadline_ms == 10_100
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 10_099) == {"left", "right"}
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 10_100) == {"left"}
    patience.excuse(9_000, 20_000)
    assert patience.awaited(TASK, {"left": 3, "right": 0}, 20_000) == {"left"}, "it was given up before"


def test_a_task_reads_nothing_while_a_source_is_awaited_that_has_nothing() -> None:
    progress = _progress(left=5, right=0)
    assert progress.next_ranges(TASK, 10, {"left", "right"}) == ({}, frozenset())
    assert progress.next_ranges(TASK, 10, {"left"}) == ({"left": (0, 5), "right": (0, 0)}, frozenset(["left"]))
    assert progress.next_ranges(TASK, 3) == ({"left": (0, 3), "right": (0, 0)}, frozenset(["left"]))


def test_tables_come_first_and_are_waited_for_alone() -> None:
    progress = _progress("table", stream=5, table=2)
    assert progress.next_ranges(TASK, 10) == ({"stream": (0, 0), "table": (0, 2)}, frozenset())
    assert progress.next_ranges(TASK, 10, {"stream"}) == ({"stream": (0, 0), "table": (0, 2)}, frozenset())
    assert _progress("table", stream=5, table=0).next_ranges(TASK, 10, {"table"}) == ({}, frozenset())


def test_ends_move_on_and_never_back() -> None:
    progress = _progress(left=5, right=0)
    assert progress.move_ends({"left": [5]}) == []
    assert progress.move_ends({"right": [2], "left": [6]}) == [TASK]
    assert (progress.remaining_rows(), progress.unread(TASK)) == (8, {"left": 6, "right": 2})
    progress.validate()
    with pytest.raises(CommitLogException, match="left, partition 0, ends at offset 3, but it had rows up to offset 6"):
        progress.move_ends({"left": [3]})


ROWS = st.lists(st.integers(0, 50), max_size=25)


@given(ROWS, ROWS, st.data())
@pytest.mark.thorough
def test_whoever_waits_long_enough_sees_the_records_in_the_order_of_all(
    left: list[int], right: list[int], data: st.DataObject
) -> None:
    """Sources grow by turns, in pieces of any size; batches are cut anywhere."""
    newest = [times_so_far(np.array(rows, dtype=np.int64)) if rows else np.empty(0, np.int64) for rows in (left, right)]
    progress, patience = _progress(left=0, right=0), Patience(1_000)
    seen: list[int] = []
    there, now = [0, 0], 0
    while True:
        is_over = there == [len(left), len(right)]
        awaited = patience.awaited(TASK, progress.unread(TASK), now)
        ranges, more = progress.next_ranges(TASK, data.draw(st.integers(1, 9)), awaited)
        if ranges:
            spans = [ranges["left"], ranges["right"]]
            loaded = [rows[slice(*span)] for rows, span in zip(newest, spans, strict=True)]
            counts = rows_up_to_boundary(loaded, [source in more for source in ("left", "right")])
            ends = [start + count for (start, _), count in zip(spans, counts, strict=True)]
            places = [np.arange(spans[0][0], ends[0]), np.arange(spans[1][0], ends[1]) + len(left)]
            order = merged([rows[:count] for rows, count in zip(loaded, counts, strict=True)])
            seen += np.concatenate(places)[order].tolist()
            offsets = {"left": (spans[0][0], ends[0]), "right": (spans[1][0], ends[1])}
            progress.advance(TaskCommit(TASK, progress.position(TASK).batch + 1, "c", "p", "m", "a", 1, offsets))
        elif not is_over:
            lengths = (len(left), len(right))
            there = [min(at + data.draw(st.integers(0, 5)), end) for at, end in zip(there, lengths, strict=True)]
            progress.move_ends({"left": [there[0]], "right": [there[1]]})
        elif now:
            break
        else:
            # All has come: from now on nothing is waited for any more.
            now = 1_000
    assert seen == merged(newest).tolist()
