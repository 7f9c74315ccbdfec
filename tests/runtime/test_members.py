"""What the coordinator knows of a member, and what of it the assignor is told."""

from __future__ import annotations

from task_assignor.runtime.machines.coordinator_members import Member
from task_assignor.runtime.machines.progress import Progress
from task_assignor.runtime.machines.protocol import START, Heartbeat, Hello, Position, Restored
from task_assignor.runtime.machines.records import ClientTasks, FileRef, Seal, TaskCommit, changelog_path
from task_assignor.sdk import ProcessId, TaskId

A, B = TaskId(0, 0), TaskId(0, 1)


def _progress(batches: int) -> Progress:
    progress = Progress({A: ("t",), B: ("t",)}, {"t": [1_000, 1_000]})
    for task in (A, B):
        for batch in range(batches):
            changes = FileRef(changelog_path("s", task, batch, 1), Seal(1, 100, "0"))
            progress.advance(
                TaskCommit(task, batch, "c", "p", "m", "a", 1, {"t": (batch, batch + 1)}, {}, {"s": changes}, batch + 1)
            )
    return progress


def _member() -> Member:
    process_id = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    hello = Hello("c", str(process_id), "run", 1, None, {}, None, "pid 1", "here", 1, {})
    member = Member("c-1", 1, hello, 0, process_id)
    member.take_tasks(ClientTasks(active=(A,), standby=(B,)))
    return member


def test_the_assignor_is_told_how_far_a_standby_is_from_its_first_assignment_on() -> None:
    """It was ready when it was new and empty; that it said so must not hide what it has since."""
    progress, member = _progress(10), _member()
    assert member.for_leader(progress).offset_sums == {A: 0}, "it runs A, but has not restored it"
    member.take_ready(Restored(A, START), "active")
    member.take_ready(Restored(B, START), "standby")
    list(member.take_heartbeat(Heartbeat({B: Position(6, 1, 7)}, 0, 0), progress))
    known = member.for_leader(progress)
    assert known.previous_active == {A}
    assert known.offset_sums == {B: 7}


def test_a_standby_that_becomes_active_is_behind_until_it_says_that_it_is_ready() -> None:
    progress, member = _progress(10), _member()
    member.take_ready(Restored(B, Position(6, 1, 7)), "standby")
    member.take_tasks(ClientTasks(active=(A, B)))
    assert member.for_leader(progress).offset_sums == {A: 0, B: 7}
    member.take_ready(Restored(B, Position(9, 1, 10)), "active")
    assert member.for_leader(progress).offset_sums == {A: 0}
