"""Places of a client's tasks, event by event: where a task holds one from its first batch to its last."""

from __future__ import annotations

import msgspec

from task_assignor.runtime.machines.client.task import (
    Job,
    JobKind,
)
from task_assignor.runtime.machines.client.values import (
    ClientInstruction,
    Connected,
    Disconnected,
    HeartbeatDue,
    JobDone,
    Received,
    RunJob,
    SendToCoordinator,
    StateLost,
)
from task_assignor.runtime.machines.protocol import (
    START,
    Position,
    Process,
    Restored,
    TaskClosed,
    TaskDone,
    TaskFailure,
    TaskReady,
    Welcome,
)
from tests.runtime.machine import (
    HELLO,
    A,
    B,
    a_member,
    an_order,
    assign,
    committed,
    process,
    restore_to,
    result_of,
)


def test_a_task_holds_its_place_from_its_first_order_to_its_last() -> None:
    machine = a_member(place_heartbeats=2)
    machine.handle(Received(assign(1, {A: START, B: START}, {})))
    first, other = an_order(A, 0), an_order(B, 0)
    (job,) = machine.handle(Received(Process((first, other))))
    assert job == RunJob(Job(JobKind.PROCESS, A, order=first))
    # B waits, though A has no order at the moment.
    result = result_of(first)
    assert machine.handle(JobDone(job.job, result)) == [SendToCoordinator(TaskDone(result))]
    last = msgspec.structs.replace(an_order(A, 1, base=result.position), is_last=True)
    (job,) = machine.handle(Received(Process((last,))))
    assert job == RunJob(Job(JobKind.PROCESS, A, order=last))
    told, close = machine.handle(JobDone(job.job, result_of(last)))
    assert (told, close) == (SendToCoordinator(TaskDone(result_of(last))), RunJob(Job(JobKind.CLOSE, A)))
    assert machine.handle(JobDone(close.job, TaskClosed(A))) == [RunJob(Job(JobKind.PROCESS, B, order=other))]  # type: ignore[union-attr]
    machine.validate_state()
    # It is not restored for nothing: only if there is an order again.
    assert machine.handle(Received(committed({A: result_of(last).position}))) == []


def test_an_order_that_was_not_carried_out_to_its_end_keeps_the_place() -> None:
    """Late rows of another source may still come before what is left of it."""
    machine = a_member(place_heartbeats=2)
    machine.handle(Received(assign(1, {A: START}, {})))
    order = msgspec.structs.replace(an_order(A, 0), is_last=True)
    (job,) = machine.handle(Received(Process((order,))))
    assert isinstance(job, RunJob)
    result = msgspec.structs.replace(result_of(order), offsets={"t": (0, 5)})
    assert machine.handle(JobDone(job.job, result)) == [SendToCoordinator(TaskDone(result))]


def test_a_task_without_work_gives_its_place_to_one_that_waits_and_is_restored_later() -> None:
    machine = a_member(place_heartbeats=2)
    machine.handle(Received(assign(1, {A: START, B: START}, {})))
    result = process(machine, an_order(A, 0))
    machine.handle(Received(committed({A: result.position})))

    def beat() -> list[ClientInstruction]:
        return machine.handle(HeartbeatDue())[1:]

    assert (beat(), beat(), beat()) == ([], [], []), "nobody waits"
    order = an_order(B, 0)
    assert machine.handle(Received(Process((order,)))) == []
    assert beat() == [RunJob(Job(JobKind.CLOSE, A))]
    again = msgspec.structs.replace(an_order(A, 1, base=result.position))
    assert machine.handle(Received(Process((again,)))) == []
    assert machine.handle(JobDone(Job(JobKind.CLOSE, A), TaskClosed(A))) == [
        RunJob(Job(JobKind.PROCESS, B, order=order))
    ]
    done = msgspec.structs.replace(result_of(order))
    machine.handle(JobDone(Job(JobKind.PROCESS, B, order=order), done))
    assert [beat(), beat()] == [[], [RunJob(Job(JobKind.CLOSE, B))]]
    (restore,) = machine.handle(JobDone(Job(JobKind.CLOSE, B), TaskClosed(B)))
    assert restore == RunJob(Job(JobKind.RESTORE, A, restore=restore_to(result.position)))


def test_standbys_get_no_place_and_a_lost_place_is_free() -> None:
    machine = a_member(place_heartbeats=2)
    assert machine.handle(Received(assign(1, {A: START}, {B: Position(3, 1, 9)}))) == [
        SendToCoordinator(TaskReady(Restored(A, START), "active"))
    ]
    order = an_order(A, 0)
    (job,) = machine.handle(Received(Process((order,))))
    assert isinstance(job, RunJob)
    (again,) = machine.handle(JobDone(job.job, StateLost(TaskFailure(A, "client", "its place is gone"))))
    assert again == RunJob(Job(JobKind.RESTORE, A, restore=restore_to(START)))
    machine.validate_state()


def test_who_gives_a_place_away_after_joining_again_tells_that_the_state_is_gone() -> None:
    """It had said that it has it, and the assignor would count on that."""
    machine = a_member(place_heartbeats=2)
    machine.handle(Received(assign(1, {A: START}, {})))
    last = msgspec.structs.replace(an_order(A, 0), is_last=True)
    (job,) = machine.handle(Received(Process((last,))))
    assert isinstance(job, RunJob)
    machine.handle(Disconnected("cut"))
    machine.handle(Connected(HELLO))
    assert machine.handle(JobDone(job.job, result_of(last))) == [], "what it has said stays true until it is answered"
    assert machine.handle(Received(Welcome("c-2")))[-1] == RunJob(Job(JobKind.CLOSE, A))
    left = TaskClosed(A, (Position(1, 1, 5),))
    assert machine.handle(JobDone(Job(JobKind.CLOSE, A), left)) == [SendToCoordinator(left)]
