"""How micro-batches are cut, and what counts as committed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import CommitLogException, CommitRecord, TaskCommit
from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.encoding import encode
from task_assignor.runtime.machines.protocol import START, Position
from task_assignor.runtime.machines.records import FileRef, Seal, TaskSnapshot
from task_assignor.sdk import TaskId
from tests.budget import examples

A, B = TaskId(0, 0), TaskId(0, 1)
Offsets = dict[str, tuple[int, int]]


CHANGES = {"s": FileRef("changelog/s/0/0.arrow", Seal(10, 100, "0123abcd"))}


def _commit(task: TaskId, batch: int, offsets: Offsets, generation: int = 1) -> TaskCommit:
    return TaskCommit(task, batch, "c", "p", "m", "a", generation, offsets, {}, CHANGES, 10 * (batch + 1))


def _record(number: int, commit: TaskCommit) -> CommitRecord:
    return CommitRecord(number, "app", 1, 1, 0, {commit.task: commit})


def _join(left: list[int], right: list[int]) -> Progress:
    return Progress({A: ("left", "right"), B: ("left", "right")}, {"left": left, "right": right})


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.integers(1, 30), st.booleans())
@settings(max_examples=examples(75))
def test_batches_cover_all_rows_once_and_keep_their_size(ends: list[int], most: int, has_table: bool) -> None:
    sources = {A: ("left", "right"), B: ("left", "right")}
    progress = Progress(sources, {"left": ends[:2], "right": ends[2:]}, ("right",) if has_table else ())
    for task in progress.tasks:
        for batch in range(200):
            spans, more = progress.next_ranges(task, most)
            if not spans:
                break
            sizes = {topic: end - start for topic, (start, end) in spans.items()}
            assert 0 < max(sizes.values()) <= most
            if has_table and spans["left"][1] > spans["left"][0]:
                assert spans["right"] == (ends[2:][task.partition],) * 2, "the table is read to its end before"
            last = {"left": ends[:2], "right": ends[2:]}
            turn = {"right"} if has_table and spans["right"][0] < last["right"][task.partition] else {"left", "right"}
            assert more == {topic for topic in turn if spans[topic][1] < last[topic][task.partition]}
            progress.advance(_commit(task, batch, spans))
            progress.validate()
    assert progress.remaining_rows() == 0


def test_sources_that_have_more_rows_are_named() -> None:
    """What the task takes of them is decided by their times."""
    progress = _join([1_000, 10], [100, 0])
    assert progress.next_ranges(A, 100) == ({"left": (0, 100), "right": (0, 100)}, frozenset({"left"}))
    assert progress.next_ranges(B, 100) == ({"left": (0, 10), "right": (0, 0)}, frozenset())


def test_a_task_may_read_on_before_anybody_has_looked_how_far_its_source_reaches() -> None:
    """A look from before it did says less, and that is not a source that has become shorter."""
    progress = Progress({A: ("left",), B: ("left",)}, {"left": [10, 10]})
    progress.advance(_commit(A, 0, {"left": (0, 25)}), is_new=True)
    progress.validate()
    assert (progress.ends("left"), progress.remaining_rows()) == ([25, 10], 10)
    assert progress.move_ends({"left": [20, 10]}) == []
    assert progress.move_ends({"left": [30, 15]}) == [A, B]
    progress.validate()
    assert progress.next_ranges(A, 100)[0] == {"left": (25, 30)}
    with pytest.raises(CommitLogException, match=r"ends at offset 29, but it had rows up to offset 30"):
        progress.move_ends({"left": [29, 15]})
    with pytest.raises(CommitLogException, match=r"offsets 0 to 25 of topic left, partition 1"):
        # Of a record of the log there is no such thing: where it begins, all is looked at.
        progress.advance(_commit(B, 0, {"left": (0, 25)}))


def test_only_committed_tries_count() -> None:
    progress = _join([90, 90], [0, 0])
    for batch, generation in enumerate((1, 1, 3, 3)):
        progress.advance(_commit(A, batch, {"left": (10 * batch, 10 * batch + 10), "right": (0, 0)}, generation))
    assert progress.position(A) == Position(3, 3, 40)
    assert [progress.counts(A, Position(batch, 1)) for batch in range(5)] == [True, True, False, False, False]
    assert [progress.counts(A, Position(batch, 3)) for batch in range(5)] == [False, False, True, True, False]
    assert progress.counts(A, START)
    assert not progress.counts(TaskId(7, 7), START)
    assert [progress.lag(A, position) for position in (Position(1, 1, 20), Position(2, 1, 30), START)] == [20, 40, 40]
    assert progress.changelog_ends() == {A: 40, B: 0}


def test_generations_that_are_long_over_are_forgotten() -> None:
    """What is known of a task does not grow with the generations that it has seen: a run may be begun again for years."""
    progress = _join([10_000, 0], [0, 0])
    sizes = []
    for batch in range(1_000):
        progress.advance(_commit(A, batch, {"left": (10 * batch, 10 * batch + 10), "right": (0, 0)}, batch + 1))
        if batch % 100 == 99:
            offset = 10 * (batch + 1)
            progress.take_snapshot(TaskSnapshot(A, batch, batch + 1, offset, None, {}, {}))
            sizes.append(len(encode(progress.saved())))
    assert sizes[-1] < 1.2 * sizes[2]
    counting = [batch for batch in range(1_000) if progress.counts(A, Position(batch, batch + 1))]
    assert counting == list(range(799, 1_000)), "all from which changes lead on, and at least the newest 64"
    assert not progress.counts(A, Position(990, 990)), "another try"
    for batch in (1_000, 1_001):
        progress.advance(_commit(A, batch, {"left": (10_000, 10_000), "right": (0, 0)}, batch + 1))
        if batch == 1_000:
            progress.take_snapshot(TaskSnapshot(A, batch, batch + 1, 10_010, None, {}, {}))
    counting = [batch for batch in range(1_002) if progress.counts(A, Position(batch, batch + 1))]
    assert counting == list(range(938, 1_002))
    assert progress.lag(A, Position(938, 939, 9_390)) == 630
    assert progress.lag(A, Position(937, 938, 9_380)) == progress.lag(A, START) == 10_020


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (_record(1, _commit(A, 0, {"left": (0, 5)})), "Commit 1 was made, but commit 0 should be"),
        (_record(0, _commit(A, 1, {"left": (0, 5)})), "Batch 1 of task 0_0 was committed, but batch 0 should be"),
        (_record(0, _commit(TaskId(3, 3), 0, {"left": (0, 5)})), "task 3_3, which the topology does not have"),
        (_record(0, _commit(A, 0, {"left": (2, 5)})), "offsets 2 to 5 of topic left, partition 0; .* allow 0 to 20"),
        (_record(0, _commit(A, 0, {"left": (0, 21)})), "offsets 0 to 21 of topic left, partition 0; .* allow 0 to 20"),
        (_record(0, _commit(A, 0, {"left": (0, -1)})), "offsets 0 to -1 of topic left, partition 0; .* allow 0 to 20"),
        (_record(0, _commit(A, 0, {"other": (0, 5)})), "offsets 0 to 5 of topic other, partition 0"),
    ],
)
def test_a_commit_log_that_does_not_fit_is_refused(record: CommitRecord, message: str) -> None:
    with pytest.raises(CommitLogException, match=message):
        Progress.after(Checkpoint(), [record], {A: ("left",)}, {"left": [20]})
