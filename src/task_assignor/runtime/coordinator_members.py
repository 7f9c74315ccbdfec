"""What the coordinator knows of a member and of the batch in progress; when they change, the coordinator decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import attrs

from task_assignor.group import ClientAssignment, GroupClient, GroupConsumer
from task_assignor.runtime.blame import remote_note
from task_assignor.runtime.commits import ClientTasks, CommitRecord, TaskCommit
from task_assignor.runtime.errors import ClientException, CorruptLogException, ProcessorException
from task_assignor.runtime.events import ClientJoined, TaskRestored
from task_assignor.runtime.launcher import RuntimeOptions
from task_assignor.runtime.progress import Progress
from task_assignor.runtime.protocol import Heartbeat, Hello, Position, Restored, TaskFailure, TaskOrder, TaskResult
from task_assignor.sdk import ProcessId, StreamsException, TaskId
from task_assignor.sdk.text import counted, named

SNAPSHOTS_MS: Final = 15_000
"""So long clients may write their last snapshots."""
GRACE_MS: Final = 3_000
"""So long a client that is to stop may do something else, or say nothing."""


@attrs.frozen
class RunningJob:
    """A job that a client has begun and not ended.

    Args:
        kind: "process", "restore", "snapshot" or "close".
        number: no other job of the client has it.
        since_ms: when it was heard of.
    """

    kind: str
    number: int
    since_ms: int

    @property
    def is_users(self) -> bool:
        """A processor's code runs in it."""
        return self.kind in ("process", "close")


@attrs.define(eq=False)
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
    heartbeats: int | None = None
    """Connection of its heartbeat process, which can end it."""
    running: dict[TaskId, RunningJob] = attrs.field(factory=dict)
    """Task -> what it does with it now."""

    @property
    def name(self) -> str:
        """Name of the client."""
        return self.hello.client

    def has_joined(self) -> ClientJoined:
        """The event that tells of its coming."""
        hello = self.hello
        restorable = tuple(sorted(self.positions))
        return ClientJoined(
            hello.client, hello.process_id, self.member_id, hello.attempt, hello.host, hello.pid, restorable
        )

    def has_restored(self, what: Restored, role: str) -> TaskRestored:
        """The event that tells that a task is up to date."""
        return TaskRestored(
            self.name,
            what.task,
            role,
            what.rows,
            what.snapshot_rows,
            what.origin,
            what.position.batch,
            what.seconds,
        )

    def take_running(self, jobs: Mapping[TaskId, tuple[str, int]], now_ms: int) -> None:
        """The client has said what runs; what ran before runs since it began."""
        before = self.running
        self.running = {}
        for task, (kind, number) in jobs.items():
            known = before.get(task)
            is_same = known is not None and known.number == number
            self.running[task] = known if known is not None and is_same else RunningJob(kind, number, now_ms)

    def hanging(self, limit_ms: int) -> tuple[int, TaskId] | None:
        """When the oldest job that runs a processor's code will have run for the limit, and its task; None: none runs."""
        return min(
            ((job.since_ms + limit_ms, task) for task, job in self.running.items() if job.is_users), default=None
        )

    def must_stop_by(self, since_ms: int, options: RuntimeOptions) -> int:
        """When a client that was told to stop is not waited for any more.

        Last snapshots are worth waiting for; a processor that does not return, or a silent client, is not.
        """
        by = since_ms + SNAPSHOTS_MS
        # What is still processed is wanted by nobody, however long it takes.
        begun = [
            job.since_ms if job.kind == "process" else max(job.since_ms, since_ms)
            for job in self.running.values()
            if job.kind != "snapshot"
        ]
        if begun:
            return min(by, max(begun) + GRACE_MS)
        return min(by, max(since_ms, self.last_heard_ms) + max(GRACE_MS, 3 * options.heartbeat_interval_ms))

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


class Members:
    """The members of the group. Every change of it is a decision of the coordinator.

    Args:
        run_id: identity of the run folder; clients of another one are refused.
        epoch: makes member ids differ from those of an earlier coordinator of the same run.
    """

    def __init__(self, run_id: str, epoch: int) -> None:
        self._run_id = run_id
        self._epoch = epoch
        self._joined = 0
        self._by_id: dict[str, Member] = {}
        self._by_connection: dict[int, Member] = {}
        self._owners: dict[TaskId, Member] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        """All members, by member id."""
        return iter([self._by_id[member_id] for member_id in sorted(self._by_id)])

    def find(self, connection: int) -> Member | None:
        """The member behind a connection."""
        return self._by_connection.get(connection)

    def named(self, client: str) -> Member | None:
        """The member of that client name."""
        return next((member for member in self if member.name == client), None)

    def owner_of(self, task: TaskId) -> Member | None:
        """The task's active owner; None: nobody at the moment."""
        return self._owners.get(task)

    def what_is_wrong_with(self, hello: Hello) -> str:
        """Why a client cannot be a member; "": it can."""
        if hello.run_id != self._run_id:
            return f"the client belongs to another run ({hello.run_id}, not {self._run_id})"
        for member in self:
            if member.hello.process_id == hello.process_id and member.name != hello.client:
                return f"{named('client', member.name)} has the same process id ({hello.process_id})"
        return ""

    def add(self, connection: int, hello: Hello, progress: Progress, now_ms: int) -> Member:
        """A client joins; of its states only those that were committed are believed."""
        self._joined += 1
        member_id = f"{hello.client}-{self._epoch}-{self._joined}"
        member = Member(member_id, connection, hello, now_ms, ProcessId.parse(hello.process_id))
        for task, candidates in hello.positions.items():
            position = next((found for found in candidates if progress.counts(task, found)), None)
            if position is not None:
                member.positions[task] = position
        self._by_id[member_id] = self._by_connection[connection] = member
        return member

    def with_id(self, member_id: str) -> Member | None:
        """The member of that member id."""
        return self._by_id.get(member_id)

    def remove(self, member: Member) -> None:
        """A client leaves; its tasks have no owner until the next assignment."""
        del self._by_id[member.member_id], self._by_connection[member.connection]
        self._owners = {task: owner for task, owner in self._owners.items() if owner is not member}

    def assign(self, assignments: Mapping[ProcessId, ClientAssignment], generation: int) -> None:
        """Everybody's tasks from this generation on; who came too late for the assignment has none."""
        self._owners = {}
        for member in self:
            assignment = assignments.get(member.process_id)
            if assignment is None:
                continue
            member.tasks = ClientTasks(assignment.active, assignment.standby)
            member.consumers = {consumer: tasks.all for consumer, tasks in assignment.consumers.items()}
            member.generation = generation
            self._owners.update(dict.fromkeys(assignment.active, member))

    def nobody_came(self, waited_ms: int, expected: int | None) -> ClientException:
        """Why the run cannot go on: too few clients at its beginning, or (`expected` is None) no one any more."""
        if expected is None:
            return ClientException(f"All clients were lost, and none came back in {waited_ms / 1000:.0f} s.")
        there = ", ".join(member.name for member in self) or "none"
        return ClientException(
            f"Only {len(self)} of {counted(expected, 'client')} came in {waited_ms / 1000:.0f} s (there: {there}). "
            "Maybe fewer slots than clients, or see the clients' own messages."
        )

    def validate(self, tasks: Collection[TaskId], generation: int) -> None:
        """Raise AssertionError if something holds that never may."""
        assert {member.connection: member for member in self} == self._by_connection
        active = [task for member in self for task in member.tasks.active]
        assert len(active) == len(set(active)), "a task has two owners"
        assert set(active) <= set(tasks)
        assert {task: member for member in self for task in member.tasks.active} == self._owners
        names = [member.name for member in self]
        assert len(names) == len(set(names)), "two members have one name"
        for member in self:
            assert not set(member.tasks.active) & set(member.tasks.standby)
            assert member.generation <= generation


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
    losses: Counter[TaskId] = attrs.field(factory=Counter)
    """Task -> how often a member was lost while its answer was awaited."""

    @property
    def missing(self) -> list[TaskId]:
        """Tasks without an answer, sorted."""
        return sorted(task for task in self.ranges if task not in self.done)

    @property
    def is_done(self) -> bool:
        """All tasks have an answer."""
        return len(self.done) == len(self.ranges)

    @property
    def has_orphans(self) -> bool:
        """There are tasks without an answer of which none is awaited: their owner was lost."""
        return len(self.done) + len(self.orders) < len(self.ranges)

    def lose(self, member: Member) -> None:
        """A member left: its open orders are void; what it had answered counts."""
        lost = [task for task, (owner, _) in self.orders.items() if owner == member.member_id]
        # Those that only waited for their turn had no part in it.
        at_work = [task for task in lost if task in member.running and member.running[task].kind == "process"]
        self.losses.update(at_work or lost)
        for task in lost:
            del self.orders[task]

    def poison(self, max_attempts: int) -> str:
        """What seems to take the clients with it that process it; "": nothing does."""
        for task, times in sorted(self.losses.items()):
            if times >= max_attempts:
                rows = "; ".join(
                    f"topic {topic}, partition {task.partition}, offsets {start} to {end - 1}"
                    for topic, (start, end) in self.ranges[task].items()
                    if end > start
                )
                return f"Task {task}, batch {self.number} ({rows}) was lost {counted(times, 'time')} together with its client"
        return ""

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

    def validate(self, members: Members, progress: Progress, generation: int) -> None:
        """Raise AssertionError if something holds that never may."""
        assert self.number == progress.last_batch + 1
        assert not set(self.orders) & set(self.done)
        assert set(self.orders) | set(self.done) <= set(self.ranges)
        assert not self.is_done, "a complete batch was not committed"
        for task, (member_id, order) in self.orders.items():
            owner = members.owner_of(task)
            assert owner is not None, f"the open order of {task} is with {member_id}, who left"
            assert owner.member_id == member_id
            assert order.generation <= generation
            assert order.base == progress.position(task)


def hang_reason(processor: str, task: TaskId, limit_ms: int) -> str:
    """Why a client is given up whose processor does not return."""
    return (
        f"the processor {processor} has not returned from task {task} for {limit_ms} ms, which is the limit "
        "max.poll.interval.ms"
    )


def advice_on_loss(*, hangs: bool) -> str:
    """What to do about a task that takes its clients with it."""
    if hangs:
        return "Maybe it waits for what does not come; else allow for more time or try a smaller max_batch_rows."
    return "Maybe out of memory: try a smaller max_batch_rows."


def error_of(failure: TaskFailure, client: str) -> StreamsException:
    """The exception that a client's failure becomes in the application."""
    where = named("client", client)
    message = f"{failure.message} (on {where})"
    error: StreamsException
    if failure.kind == "processor":
        line = "" if failure.line is None else f"\n  {failure.line}"
        error = ProcessorException(f"{message}{line}", str(failure.task), failure.traceback, failure.line)
    elif failure.kind == "log":
        error = CorruptLogException(message, *failure.place)
    else:
        error = ClientException(message)
    if failure.traceback:
        error.add_note(remote_note(where, failure.traceback))
    return error
