"""How micro-batches are cut, and what counts as committed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import CommitLogException, CommitRecord, TaskCommit
from task_assignor.runtime.progress import Progress
from task_assignor.runtime.protocol import START, Position
from task_assignor.sdk import TaskId
from tests.budget import examples

A, B = TaskId(0, 0), TaskId(0, 1)
Offsets = dict[str, tuple[int, int]]


def _commit(batch: int, offsets: dict[TaskId, Offsets], generation: int = 1) -> CommitRecord:
    tasks = {
        task: TaskCommit(task, "c", "p", "m", "a", generation, spans, {}, {}, 10 * (batch + 1))
        for task, spans in offsets.items()
    }
    return CommitRecord(batch, "app", generation, 0, tasks)


def _join(left: list[int], right: list[int]) -> Progress:
    return Progress({A: ("left", "right"), B: ("left", "right")}, {"left": left, "right": right})


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.integers(1, 30), st.booleans())
@settings(max_examples=examples(100))
def test_batches_cover_all_rows_once_and_keep_their_size(ends: list[int], most: int, has_table: bool) -> None:
    sources = {A: ("left", "right"), B: ("left", "right")}
    progress = Progress(sources, {"left": ends[:2], "right": ends[2:]}, ("right",) if has_table else ())
    for batch in range(200):
        ranges = progress.next_ranges(most)
        if not ranges:
            break
        for task, spans in ranges.items():
            sizes = {topic: end - start for topic, (start, end) in spans.items()}
            assert 0 < max(sizes.values()) <= most
            if has_table and spans["left"][1] > spans["left"][0]:
                assert spans["right"] == (ends[2:][task.partition],) * 2, "the table is read to its end before"
        progress.advance(_commit(batch, ranges))
        progress.validate()
    assert progress.remaining_rows() == 0


def test_sources_advance_by_the_same_share() -> None:
    """So that the sources of a join stay at about the same time."""
    progress = _join([1_000, 10], [100, 0])
    ranges = progress.next_ranges(100)
    assert ranges == {A: {"left": (0, 100), "right": (0, 10)}, B: {"left": (0, 10), "right": (0, 0)}}


def test_only_committed_tries_count() -> None:
    progress = _join([90, 90], [0, 0])
    for batch, generation in enumerate((1, 1, 3, 3)):
        progress.advance(_commit(batch, {A: {"left": (10 * batch, 10 * batch + 10), "right": (0, 0)}}, generation))
    assert progress.position(A) == Position(3, 3, 40)
    assert [progress.counts(A, Position(batch, 1)) for batch in range(5)] == [True, True, False, False, False]
    assert [progress.counts(A, Position(batch, 3)) for batch in range(5)] == [False, False, True, True, False]
    assert progress.counts(A, START)
    assert not progress.counts(TaskId(7, 7), START)
    assert [progress.lag(A, position) for position in (Position(1, 1, 20), Position(2, 1, 30), START)] == [20, 40, 40]
    assert progress.changelog_ends() == {A: 40, B: 0}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (_commit(1, {A: {"left": (0, 5)}}), "Batch 1 was committed, but batch 0 should be"),
        (_commit(0, {TaskId(3, 3): {"left": (0, 5)}}), "task 3_3, which the topology does not have"),
        (_commit(0, {A: {"left": (2, 5)}}), "offsets 2 to 5 of topic left, partition 0; .* allow 0 to 20"),
        (_commit(0, {A: {"left": (0, 21)}}), "offsets 0 to 21 of topic left, partition 0; .* allow 0 to 20"),
        (_commit(0, {A: {"other": (0, 5)}}), "offsets 0 to 5 of topic other, partition 0"),
    ],
)
def test_a_commit_log_that_does_not_fit_is_refused(record: CommitRecord, message: str) -> None:
    with pytest.raises(CommitLogException, match=message):
        Progress.after([record], {A: ("left",)}, {"left": [20]})
