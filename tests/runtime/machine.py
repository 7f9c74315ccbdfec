"""A client's state machine as tests use it: without files, its jobs answered by hand."""

from __future__ import annotations

from task_assignor.runtime import FileRef, Seal
from task_assignor.runtime.machines.client.machine import (
    ClientMachine,
)
from task_assignor.runtime.machines.client.task import (
    Job,
    JobKind,
    Restore,
)
from task_assignor.runtime.machines.client.values import (
    ClientEvent,
    ClientInstruction,
    Connected,
    JobDone,
    Received,
    RunJob,
    SendToCoordinator,
)
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Change,
    Committed,
    Hello,
    Position,
    Process,
    Recovery,
    Running,
    TaskDone,
    TaskOrder,
    TaskResult,
    Welcome,
)
from task_assignor.sdk import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)
CHANGELOGS = {"s": FileRef("changelog/s/0/0.arrow", Seal(1, 100, "00000000"))}
HELLO = Hello("c", "pid", "run", 1, None, {}, None, "attempt", "host", 1, {A: (Position(1, 1, 5),)})


class Machine(ClientMachine):
    """What it says of its jobs is kept apart."""

    def __init__(
        self,
        threads: int = 1,
        snapshot_bytes: int = 0,
        snapshot_heartbeats: int = 0,
        stop_heartbeats: int = 20,
        place_heartbeats: int = 0,
        kept_heartbeats: int | None = None,
    ) -> None:
        super().__init__(
            threads, snapshot_bytes, snapshot_heartbeats, stop_heartbeats, place_heartbeats, kept_heartbeats
        )
        self.told: list[Running] = []

    def handle(self, event: ClientEvent) -> list[ClientInstruction]:
        """As ever, without `Running`."""
        others: list[ClientInstruction] = []
        for instruction in super().handle(event):
            if isinstance(instruction, SendToCoordinator) and isinstance(instruction.message, Running):
                self.told.append(instruction.message)
            else:
                others.append(instruction)
        return others


def a_member(
    threads: int = 1,
    snapshot_bytes: int = 0,
    snapshot_heartbeats: int = 0,
    stop_heartbeats: int = 20,
    place_heartbeats: int = 0,
    kept_heartbeats: int | None = None,
) -> Machine:
    """A client without tasks; the changelogs of a batch have 100 bytes."""
    machine = Machine(threads, snapshot_bytes, snapshot_heartbeats, stop_heartbeats, place_heartbeats, kept_heartbeats)
    machine.start()
    machine.handle(Connected(HELLO))
    machine.handle(Received(Welcome("c-1")))
    return machine


def an_order(task: TaskId, batch: int, generation: int = 1, base: Position = START) -> TaskOrder:
    return TaskOrder(task, batch, generation, {"t": (0, 7)}, base)


def result_of(order: TaskOrder) -> TaskResult:
    reached = Position(order.batch, order.generation, 9)
    return TaskResult(order.task, order.batch, order.generation, order.ranges, {}, {}, reached)


def recovery_to(*positions: Position) -> Recovery:
    """What leads to a position, or to some positions one after the other."""
    recovery = Recovery()
    for batch in range(positions[0].batch):
        recovery.add(Change(Position(batch, positions[0].generation, 0), CHANGELOGS))
    for position in positions:
        if position != START:
            recovery.add(Change(position, CHANGELOGS))
    return recovery


def assign(generation: int, active: dict[TaskId, Position], standby: dict[TaskId, Position]) -> Assign:
    """An assignment to a client that knows nothing of its tasks yet."""
    return Assign(generation, active, standby, {task: recovery_to(at) for task, at in {**active, **standby}.items()})


def committed(positions: dict[TaskId, Position]) -> Committed:
    return Committed({task: Change(position, CHANGELOGS) for task, position in positions.items()})


def restore_to(target: Position, base: Position = START) -> Restore:
    return Restore(base, recovery_to(target) if base == START else recovery_to(base, target), target)


def process(machine: Machine, order: TaskOrder) -> TaskResult:
    """Carry out one order, to the commit."""
    (job,) = machine.handle(Received(Process((order,))))
    result = result_of(order)
    assert job == RunJob(Job(JobKind.PROCESS, order.task, order=order))
    assert machine.handle(JobDone(job.job, result)) == [SendToCoordinator(TaskDone(result))]
    return result
