"""What a client's machine does about states of tasks that went elsewhere."""

from __future__ import annotations

import pytest

from task_assignor.runtime.machines.client.leftovers import Leftovers
from task_assignor.runtime.machines.client.task import Job, JobKind
from task_assignor.runtime.machines.client.values import (
    ClientEvent,
    ClientInstruction,
    Connected,
    Disconnected,
    HeartbeatDue,
    JobDone,
    Received,
    RunJob,
    SendToCoordinator,
)
from task_assignor.runtime.machines.protocol import START, Heard, Heartbeat, Hello, Position, Stop, TaskClosed, Welcome
from task_assignor.sdk import TaskId
from tests.runtime.machine import HELLO, A, B, Machine, a_member, assign

DELETE = Job(JobKind.DELETE, A)
LEFT = TaskClosed(A, (Position(1, 1, 5),))


def _beats(machine: Machine, number: int) -> list[ClientInstruction]:
    """What it does at so many heartbeats but tell that it lives."""
    done = []
    for _ in range(number):
        done += machine.handle(HeartbeatDue()) + machine.handle(Received(Heard()))
        machine.validate_state()
    return [
        found for found in done if not (isinstance(found, SendToCoordinator) and isinstance(found.message, Heartbeat))
    ]


def test_what_was_there_when_it_joined_is_deleted_unless_it_is_assigned() -> None:
    machine = a_member(kept_heartbeats=3)
    assert _beats(machine, 3) == []
    assert _beats(machine, 1) == [RunJob(DELETE)]
    assert machine.handle(JobDone(DELETE, TaskClosed(A))) == [SendToCoordinator(TaskClosed(A))]
    assert _beats(machine, 9) == [], "once"
    assigned = a_member(kept_heartbeats=3)
    assigned.handle(Received(assign(1, {A: START}, {})))
    assert _beats(assigned, 9) == []


def test_it_stays_for_ever_where_no_time_is_set() -> None:
    assert _beats(a_member(), 1_000) == []


def test_of_a_task_that_went_elsewhere_it_stays_for_a_while() -> None:
    machine = a_member(kept_heartbeats=3)
    machine.handle(Received(assign(1, {A: START}, {})))
    assert machine.handle(Received(assign(2, {}, {}))) == [RunJob(Job(JobKind.CLOSE, A))]
    assert _beats(machine, 9) == [], "it is not closed yet"
    assert machine.handle(JobDone(Job(JobKind.CLOSE, A), LEFT)) == [SendToCoordinator(LEFT)]
    assert _beats(machine, 3) == []
    machine.handle(Received(assign(3, {A: START}, {})))
    assert _beats(machine, 9) == [], "it is back"


def test_what_could_not_be_deleted_is_told_and_tried_again() -> None:
    machine = a_member(kept_heartbeats=3)
    assert _beats(machine, 4) == [RunJob(DELETE)]
    assert machine.handle(JobDone(DELETE, LEFT)) == [SendToCoordinator(LEFT)]
    assert _beats(machine, 3) == []
    assert _beats(machine, 1) == [RunJob(DELETE)]


def test_a_task_that_comes_back_while_its_state_is_deleted_is_restored() -> None:
    machine = a_member(kept_heartbeats=0)
    assert _beats(machine, 1) == [RunJob(DELETE)]
    position = Position(1, 1, 5)
    machine.handle(Received(assign(1, {A: position}, {})))
    (restore,) = machine.handle(JobDone(DELETE, TaskClosed(A)))
    assert isinstance(restore, RunJob)
    assert restore.job.kind is JobKind.RESTORE
    machine.validate_state()


def test_a_client_that_is_to_stop_deletes_nothing_any_more() -> None:
    machine = a_member(threads=1, kept_heartbeats=3)
    machine.handle(Received(assign(1, {B: START}, {})))
    machine.handle(Received(assign(2, {}, {})))
    assert _beats(machine, 4) == [], "its thread closes another task"
    machine.handle(Received(Stop("the run is over")))
    assert machine.handle(JobDone(Job(JobKind.CLOSE, B), TaskClosed(B)))[0] == RunJob(Job(JobKind.CLOSE, A))


@pytest.mark.parametrize("is_joining", [True, False])
def test_what_is_deleted_while_a_client_joins_is_unsaid(is_joining: bool) -> None:
    """When it looked what it has, it was still there."""
    machine = a_member(kept_heartbeats=0)
    assert _beats(machine, 1) == [RunJob(DELETE)]
    machine.handle(Disconnected("cut"))
    events: list[ClientEvent] = [Connected(HELLO), JobDone(DELETE, TaskClosed(A))]
    said = [told for event in (events if is_joining else events[::-1]) for told in machine.handle(event)]
    assert [found.message for found in said if isinstance(found, SendToCoordinator)] == [HELLO]
    welcomed = machine.handle(Received(Welcome("c-2")))
    assert SendToCoordinator(TaskClosed(A)) in welcomed


def test_a_folder_without_a_state_is_not_told_and_goes_too() -> None:
    machine = Machine(kept_heartbeats=0)
    machine.start()
    (hello,) = machine.handle(Connected(_with_positions({A: ()})))
    assert isinstance(hello, SendToCoordinator)
    assert isinstance(hello.message, Hello)
    assert hello.message.positions == {}
    machine.handle(Received(Welcome("c-1")))
    assert _beats(machine, 1) == [RunJob(DELETE)]


def _with_positions(positions: dict[TaskId, tuple[Position, ...]]) -> Hello:
    return Hello("c", "pid", "run", 1, None, {}, None, "attempt", "host", 1, positions)


def test_they_come_in_order_and_once() -> None:
    left = Leftovers(1)
    left.see([B, A])
    left.beat()
    left.see([A])
    assert (left.take_due(), A in left) == ([], True)
    left.beat()
    assert left.take_due() == [A, B]
    assert (left.take_due(), A in left) == ([], False)
