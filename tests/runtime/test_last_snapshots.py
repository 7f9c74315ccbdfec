"""How many batches a client lets pass without a snapshot; and its last ones, when it is to end: as many as there is time for, and it says how
many it leaves out."""

from __future__ import annotations

import pytest

from task_assignor.runtime import SnapshotsLeftOut
from task_assignor.runtime.machines.client.snapshots import MAX_CHANGES, SnapshotPlan
from task_assignor.runtime.machines.client.task import Job, JobKind, SnapshotWritten
from task_assignor.runtime.machines.client.values import End, HeartbeatDue, JobDone, Received, RunJob, SendToCoordinator
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Change,
    Committed,
    Goodbye,
    Position,
    Recovery,
    Restored,
    Stop,
    TaskClosed,
)
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.sdk import TaskId
from tests.runtime.machine import CHANGELOGS, A, B, a_member, an_order, assign, committed, process
from tests.runtime.simulation import World


@pytest.mark.parametrize(("has_changed", "limits"), [(True, (1 << 30, 0)), (False, (1 << 30, 0)), (False, (0, 1))])
def test_many_batches_are_in_a_snapshot_however_many_runs_made_them(has_changed: bool, limits: tuple[int, int]) -> None:
    """A restore goes through them all, and each is remembered: there are not more than `MAX_CHANGES`, nearly."""
    machine = a_member(snapshot_bytes=limits[0], snapshot_heartbeats=limits[1])
    changelogs = CHANGELOGS if has_changed else {}
    at = Position(MAX_CHANGES - 2, 1, 9)
    recovery = Recovery(changes=[Change(Position(0, 1, 9), CHANGELOGS)])
    recovery.add_snapshot(TaskSnapshot(A, 0, 1, 9, None, {}, {}))
    for batch in range(1, at.batch + 1):
        recovery.add(Change(Position(batch, 1, 9), changelogs))
    machine.handle(Received(Assign(1, {A: at}, {}, {A: recovery})))
    assert machine.handle(JobDone(Job(JobKind.RESTORE, A), Restored(A, at, 9)))[-1] != RunJob(Job(JobKind.SNAPSHOT, A))
    for is_due in (False, True):
        reached = process(machine, an_order(A, at.batch + 1, base=at)).position
        told = machine.handle(Received(Committed({A: Change(reached, changelogs)})))
        assert (RunJob(Job(JobKind.SNAPSHOT, A)) in [*told, *machine.handle(HeartbeatDue())]) == is_due
        at = reached


def test_when_there_is_no_more_time_tasks_are_closed_without_a_snapshot() -> None:
    third = TaskId(0, 2)
    machine = a_member(stop_heartbeats=2)
    machine.handle(Received(assign(1, {A: START, B: START, third: START}, {})))
    for task in (A, B):
        result = process(machine, an_order(task, 0))
        machine.handle(Received(committed({task: result.position})))
    instructions = machine.handle(Received(Stop("done")))
    kinds = []
    while not isinstance(instructions[-1], End):
        (job,) = (found.job for found in instructions if isinstance(found, RunJob))
        kinds.append((job.task, job.kind))
        if job.kind is JobKind.SNAPSHOT:
            machine.handle(HeartbeatDue())
            machine.handle(HeartbeatDue())
        is_snapshot = job.kind is JobKind.SNAPSHOT
        instructions = machine.handle(JobDone(job, SnapshotWritten(START) if is_snapshot else TaskClosed(job.task)))
    # The third has done nothing since it was empty.
    assert kinds[0] == (third, JobKind.CLOSE)
    assert kinds[1:] == [(A, JobKind.SNAPSHOT), (A, JobKind.CLOSE), (B, JobKind.CLOSE)]
    assert instructions == [SendToCoordinator(Goodbye(left_out=1)), End("done", was_told=True)]


def test_after_an_error_none_is_wanted_and_none_left_out() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    result = process(machine, an_order(A, 0))
    machine.handle(Received(committed({A: result.position})))
    close = Job(JobKind.CLOSE, A)
    assert machine.handle(Received(Stop("an error", snapshot=False))) == [RunJob(close)]
    assert machine.handle(JobDone(close, TaskClosed(A)))[0] == SendToCoordinator(Goodbye(left_out=0))


@pytest.mark.parametrize("has_time", [True, False])
def test_the_run_tells_how_many_are_left_out(monkeypatch: pytest.MonkeyPatch, has_time: bool) -> None:
    monkeypatch.setattr(SnapshotPlan, "has_time", has_time)
    world = World(0, clients=2, faults=0, partitions=(4, 1, 1), rows=(60,), restart_coordinator=False)
    world.run(100_000)
    assert world.coordinator.phase is CoordinatorPhase.ENDED
    told = [event for event in world.events if isinstance(event, SnapshotsLeftOut)]
    # A state that is in its last snapshot already is not among them, whenever that was written.
    assert (sum(event.tasks for event in told) == 0) is has_time
