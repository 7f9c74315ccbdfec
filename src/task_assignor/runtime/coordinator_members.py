"""What the coordinator knows of a member and of the batch in progress; when they change, the coordinator decides."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from task_assignor.group import GroupClient, GroupConsumer
from task_assignor.runtime.commits import ClientTasks, CommitRecord, TaskCommit
from task_assignor.runtime.errors import ClientException, CorruptLogException, ProcessorException
from task_assignor.runtime.progress import Progress
from task_assignor.runtime.protocol import Heartbeat, Hello, Position, TaskFailure, TaskOrder, TaskResult
from task_assignor.sdk import ProcessId, StreamsException, TaskId


@attrs.define
class Member:
    """A client in the group.

    Args:
        member_id: its member id.
        connection: its connection.
        hello: what it said of itself.
        last_heard_ms: when it was last heard of.
        process_id: its process id.
    """

    member_id: str
    connection: int
    hello: Hello
    last_heard_ms: int
    process_id: ProcessId
    tasks: ClientTasks = ClientTasks()
    generation: int = 0
    """Generation of its tasks; 0: it has not been part of a rebalance."""
    consumers: Mapping[str, frozenset[TaskId]] = attrs.field(factory=dict)
    """Consumer -> its tasks, active and standby."""
    positions: dict[TaskId, Position] = attrs.field(factory=dict)
    """Task -> where its state here was when it was last told."""
    last_heartbeat: Heartbeat | None = None

    @property
    def name(self) -> str:
        """Name of the client."""
        return self.hello.client

    def for_leader(self, progress: Progress) -> GroupClient:
        """What the group's leader needs to know of it: states that were never committed are no states."""
        threads = self.hello.threads
        names = [self.member_id] if threads == 1 else [f"{self.member_id}-{number}" for number in range(threads)]
        return GroupClient(
            self.process_id,
            tuple(GroupConsumer(name, self.consumers.get(name, frozenset())) for name in names),
            frozenset(self.tasks.active),
            {
                task: position.changelog_offset
                for task, position in self.positions.items()
                if task not in self.tasks.active and progress.counts(task, position)
            },
            self.hello.rack,
            self.hello.tags,
            self.hello.host_info,
        )


@attrs.define
class Batch:
    """The micro-batch that is being processed. Each task is missing, ordered (from one member) or done.

    Args:
        number: its number.
        started_ms: when it began.
        ranges: task -> source topic -> (first offset, offset after the last).
    """

    number: int
    started_ms: int
    ranges: Mapping[TaskId, Mapping[str, tuple[int, int]]]
    orders: dict[TaskId, tuple[str, TaskOrder]] = attrs.field(factory=dict)
    """Task -> (member id, order) of the one open order."""
    done: dict[TaskId, TaskCommit] = attrs.field(factory=dict)
    losses: int = 0
    """Members that were lost during this batch."""

    @property
    def missing(self) -> list[TaskId]:
        """Tasks without an answer, sorted."""
        return sorted(task for task in self.ranges if task not in self.done)

    def lose(self, member_id: str) -> None:
        """A member left: its open orders are void; what it had answered counts."""
        self.losses += 1
        self.orders = {task: found for task, found in self.orders.items() if found[0] != member_id}

    def why_refuse(self, member_id: str, result: TaskResult) -> str:
        """Why an answer does not count; "": it does."""
        if result.batch != self.number:
            return f"batch {result.batch} is not being processed"
        owner, order = self.orders.get(result.task, ("", None))
        if owner != member_id or order is None:
            return "the task is not ordered from this client any more"
        if order.generation != result.generation:
            return f"it was ordered again in generation {order.generation}"
        return ""

    def take(self, member: Member, result: TaskResult) -> None:
        """The answer to an open order."""
        _, order = self.orders.pop(result.task)
        self.done[result.task] = TaskCommit(
            result.task,
            member.name,
            str(member.process_id),
            member.member_id,
            member.hello.attempt,
            result.generation,
            order.ranges,
            result.outputs,
            result.changelogs,
            result.position.changelog_offset,
            result.counters,
            result.seconds,
        )

    def record(self, application_id: str, generation: int, now_ms: int) -> CommitRecord:
        """The commit record of the batch, all of whose tasks are done."""
        tasks = {task: self.done[task] for task in sorted(self.done)}
        return CommitRecord(self.number, application_id, generation, now_ms, tasks)

    def validate(self, members: Mapping[str, Member], progress: Progress, generation: int) -> None:
        """Raise AssertionError if something holds that never may."""
        assert self.number == progress.last_batch + 1
        assert not set(self.orders) & set(self.done)
        assert set(self.orders) | set(self.done) <= set(self.ranges)
        assert self.missing, "a complete batch was not committed"
        for task, (owner, order) in self.orders.items():
            assert owner in members, f"the open order of {task} is with {owner}, who left"
            assert task in members[owner].tasks.active
            assert order.generation <= generation
            assert order.base == progress.position(task)


def error_of(failure: TaskFailure, client: str) -> StreamsException:
    """The exception that a client's failure becomes in the application."""
    message = f"{failure.message} (on client {client})"
    if failure.kind == "processor":
        return ProcessorException(message, str(failure.task), failure.traceback)
    if failure.kind == "log":
        return CorruptLogException(message, *failure.place)
    return ClientException(f"{message}\n{failure.traceback}" if failure.traceback else message)
