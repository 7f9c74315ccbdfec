"""What the coordinator knows of a member; when that changes, the coordinator decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import attrs

from task_assignor.group import ClientAssignment, GroupClient, GroupConsumer
from task_assignor.runtime.blame import remote_note
from task_assignor.runtime.errors import (
    BadRecordException,
    ClientException,
    CorruptLogException,
    LateRecordException,
    ProcessorException,
)
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.events import ClientJoined, ClientProgress, TaskRestored, TaskStalled
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Change,
    Committed,
    EndProcess,
    Heartbeat,
    Hello,
    Position,
    Restored,
    TaskFailure,
    Work,
)
from task_assignor.runtime.machines.records import ClientTasks, CommitRecord
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.sdk import ProcessId, StreamsException, TaskId
from task_assignor.sdk.text import counted, named

SNAPSHOTS_MS: Final = 15_000
"""So long clients may write their last snapshots; they begin none after `client.snapshots.LAST_MS`."""
GRACE_MS: Final = 3_000
"""So long a client that is to stop may do something else, or say nothing."""
STALLED_MS: Final = 10_000
"""If a client does not get on with a task for so long, that is told; then after twice, four times ... the time."""


@attrs.frozen
class RunningWork:
    """What a client has begun and not ended.

    Args:
        work: what it is, and how far.
        begun_ms: when it was heard of.
        since_ms: when it was last heard that it had got on.
        patience_ms: after so long without that it is told.
    """

    work: Work
    begun_ms: int
    since_ms: int
    patience_ms: int = STALLED_MS

    def why(self, processor: str, waited_ms: int, *, is_mute: bool) -> str:
        """What it is at if it does not get on; `is_mute`: nor does its client say anything but that it lives."""
        task, doing = self.work.task, f": {self.work.doing}" if self.work.doing else ""
        match self.work.kind:
            case "restore":
                return f"the restore of task {task} has not got on for {waited_ms} ms{doing}"
            case "snapshot" | "share":
                where = " into the folder of the run" if self.work.kind == "share" else ""
                return f"the snapshot of task {task}{where} has not got on for {waited_ms} ms{doing}"
            case "delete":
                return f"what is left of task {task} has not been deleted for {waited_ms} ms{doing}"
            case _ if doing and not is_mute:
                return f"the batch of task {task} has not got on for {waited_ms} ms{doing}"
            case _:
                return f"the processor {processor} has not returned from task {task} for {waited_ms} ms"


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
    """Changed by `take_tasks` alone."""
    active: frozenset[TaskId] = frozenset()
    """Those of them that are active."""
    since: Mapping[TaskId, int] = attrs.field(factory=dict)
    """Active task -> generation since which it has been active here without a break."""
    held: frozenset[TaskId] = frozenset()
    """All of them, active and standby."""
    generation: int = 0
    """Generation of its tasks; 0: it has not been part of a rebalance."""
    consumers: Mapping[str, frozenset[TaskId]] = attrs.field(factory=dict)
    """Consumer -> its tasks, active and standby."""
    positions: dict[TaskId, Position] = attrs.field(factory=dict)
    """Task -> where its state here was when it was last told."""
    last_heartbeat: Heartbeat | None = None
    heartbeats: int | None = None
    """Connection of its heartbeat process, which can end it."""
    running: dict[int, RunningWork] = attrs.field(factory=dict)
    """Number -> what it does now."""
    last_told_ms: int = attrs.field(default=attrs.Factory(lambda self: self.last_heard_ms, takes_self=True))
    """When it last said something itself, not its heartbeat process."""
    ready: set[TaskId] = attrs.field(factory=set)
    """Those of its active tasks whose state it has brought up to date."""
    leaves_because: str = ""
    """Why it is to leave; "": it stays."""
    leaves_by_ms: int = 0
    """When its batches are left undone, if it is to leave."""
    stops_since_ms: int | None = None
    """When it was told to stop."""

    @property
    def name(self) -> str:
        """Name of the client."""
        return self.hello.client

    @property
    def has_tasks(self) -> bool:
        """Tasks are assigned to it."""
        return bool(self.tasks.active or self.tasks.standby)

    def has(self, task: TaskId) -> bool:
        """The task is assigned to it, active or standby."""
        return task in self.held

    def take_tasks(self, tasks: ClientTasks) -> None:
        """These are its tasks from now on. What is left of others, it will tell."""
        active, held = self.active, self.held
        self.tasks, self.active = tasks, frozenset(tasks.active)
        self.held = self.active.union(tasks.standby)
        for task in held - self.held:
            self.positions.pop(task, None)
        self.since = {task: since for task, since in self.since.items() if task in self.active}
        self.ready &= self.active & active

    def assign(self, generation: int, known: ClientTasks, progress: Progress) -> Assign:
        """What it is told of its tasks; `known` are those that it had before."""
        tasks = self.tasks
        new = {*tasks.active, *tasks.standby} - {*known.active, *known.standby}
        active, standby = ({task: progress.position(task) for task in of} for of in (tasks.active, tasks.standby))
        return Assign(generation, active, standby, {task: progress.recovery(task) for task in sorted(new)})

    def news_of(self, record: CommitRecord, progress: Progress) -> Committed:
        """Of its tasks, active and standby: what a commit changed, and their snapshots."""
        return Committed(
            {
                task: Change(progress.position(task), commit.changelogs)
                for task, commit in record.tasks.items()
                if task in self.held
            },
            {task: snapshot for task, snapshot in record.snapshots.items() if task in self.held},
        )

    def take_positions(self, task: TaskId, candidates: tuple[Position, ...], progress: Progress) -> None:
        """The client has told what states of a task it has; only one that was committed is believed."""
        self.positions.pop(task, None)
        for position in candidates:
            if progress.counts(task, position):
                self.positions[task] = position
                return

    def why_replaced(self, hello: Hello) -> str:
        """Why it is none any more when a client of its name says hello."""
        return (
            "it has come back over another connection" if self.is_same(hello) else "a newer client has taken its name"
        )

    def is_same(self, hello: Hello) -> bool:
        """The member's own process says hello, once more."""
        mine = self.hello
        return (hello.client, hello.attempt, hello.host, hello.pid) == (mine.client, mine.attempt, mine.host, mine.pid)

    def has_joined(self) -> ClientJoined:
        """The event that tells of its coming."""
        hello = self.hello
        restorable = tuple(sorted(self.positions))
        return ClientJoined(
            hello.client, hello.process_id, self.member_id, hello.attempt, hello.host, hello.pid, restorable
        )

    def take_ready(self, what: Restored, role: str) -> TaskRestored:
        """A task of it is up to date; the event that tells of that. How far a standby is, it goes on to tell."""
        # Of what was taken away meanwhile it tells when that is closed.
        if self.has(what.task):
            self.positions[what.task] = what.position
        if role == "active" and what.task in self.active:
            self.ready.add(what.task)
        return TaskRestored(
            self.name,
            what.task,
            role,
            what.rows,
            what.snapshot_rows,
            what.origin if what.position.batch >= 0 else "new",
            what.position.batch,
            round(what.seconds, 6),
            what.fetched_bytes,
        )

    def take_heartbeat(self, heartbeat: Heartbeat, progress: Progress) -> Iterator[ClientProgress]:
        """The client lives; the event that tells of what is new."""
        self.positions |= {task: found for task, found in heartbeat.positions.items() if self.has(task)}
        if heartbeat != self.last_heartbeat:
            self.last_heartbeat = heartbeat
            lag = sum(progress.lag(task, self.positions.get(task, START)) for task in self.tasks.standby)
            done = (heartbeat.rows_in, heartbeat.restored_rows)
            yield ClientProgress(self.name, self.tasks.active, self.tasks.standby, *done, lag)

    def take_running(self, works: Mapping[int, Work], ended: Iterable[int], now_ms: int) -> None:
        """The client has said what it has begun, has got on with, and does no more."""
        for number in ended:
            self.running.pop(number, None)
        for number, work in works.items():
            known = self.running.get(number)
            if known is None or known.work.steps != work.steps:
                begun_ms = now_ms if known is None else known.begun_ms
                self.running[number] = RunningWork(work, begun_ms, now_ms)
            else:
                self.running[number] = attrs.evolve(known, work=work)

    def take_answer(self, task: TaskId, *, is_done: bool = False) -> None:
        """It has said what came of its job with a task, which has ended therefore; a task with a result is ready."""
        if is_done and task in self.active:
            self.ready.add(task)
        for number, found in [*self.running.items()]:
            if found.work.task == task and found.work.kind != "share":
                del self.running[number]

    def excuse(self, still_ms: int, now_ms: int) -> None:
        """The coordinator has stood still for so long: what was said meanwhile is not heard yet."""
        if still_ms:
            self.last_heard_ms = min(self.last_heard_ms + still_ms, now_ms)
            self.last_told_ms = min(self.last_told_ms + still_ms, now_ms)
            self.leaves_by_ms += still_ms
            self.stops_since_ms = None if self.stops_since_ms is None else min(self.stops_since_ms + still_ms, now_ms)
            self.running = {
                number: attrs.evolve(found, since_ms=min(found.since_ms + still_ms, now_ms))
                for number, found in self.running.items()
            }

    @property
    def oldest(self) -> RunningWork | None:
        """What has stood still for the longest time; None: it does nothing."""
        return min(self.running.values(), key=lambda found: found.since_ms, default=None)

    def hung(self, options: RuntimeOptions, now_ms: int) -> Work | None:
        """What does not get on any more."""
        oldest = self.oldest
        return oldest.work if oldest is not None and now_ms >= oldest.since_ms + options.max_poll_interval_ms else None

    def stalled(self, processors: Mapping[TaskId, str], now_ms: int) -> Iterator[TaskStalled]:
        """What has not got on for so long that it is to be told, the first time or again."""
        for number, found in self.running.items():
            stalled_ms = now_ms - found.since_ms
            if stalled_ms >= found.patience_ms:
                self.running[number] = attrs.evolve(found, patience_ms=2 * stalled_ms)
                yield TaskStalled(self.name, found.work.task, self._why(found, stalled_ms, processors), stalled_ms)

    def _why(self, found: RunningWork, waited_ms: int, processors: Mapping[TaskId, str]) -> str:
        is_mute = self.last_told_ms < found.since_ms + waited_ms // 2
        return found.why(processors.get(found.work.task, ""), waited_ms, is_mute=is_mute)

    def why_silent(self, options: RuntimeOptions, now_ms: int) -> str:
        """Why a client is given up that was not heard of; "": it was."""
        silent = now_ms - self.last_heard_ms > options.session_timeout_ms
        limit = f"{options.session_timeout_ms} ms, which is the limit session.timeout.ms"
        return f"no heartbeat for {limit}" if silent else ""

    def why_hanging(self, options: RuntimeOptions, processors: Mapping[TaskId, str], now_ms: int) -> str:
        """Why a client is given up that lives, but does not get on with a task, or does not stop; "": it does."""
        limit_ms = options.max_poll_interval_ms
        oldest = self.oldest
        if oldest is not None and now_ms >= oldest.since_ms + limit_ms:
            return f"{self._why(oldest, limit_ms, processors)}, which is the limit max.poll.interval.ms"
        if now_ms >= self.must_speak_by(options):
            return f"its process runs, but nothing has come from it for {now_ms - self.last_told_ms} ms (max.poll.interval.ms)"
        if self.stops_since_ms is not None and now_ms >= self.must_stop_by(options):
            return "it does not stop"
        return ""

    def deadlines_ms(self, options: RuntimeOptions) -> list[int]:
        """When it is to be looked at, if it says nothing until then."""
        limit_ms = options.max_poll_interval_ms
        deadlines = [self.last_heard_ms + options.session_timeout_ms + 1]
        deadlines += (found.since_ms + min(found.patience_ms, limit_ms) for found in self.running.values())
        deadlines.append(self.must_speak_by(options))
        if self.stops_since_ms is not None:
            deadlines.append(self.must_stop_by(options))
        elif self.leaves_because and not self.has_tasks:
            deadlines.append(self.leaves_by_ms)
        return deadlines

    def must_speak_by(self, options: RuntimeOptions) -> int:
        """When it has to have said something itself: its process may run, and be cut off or stand still in what is no task."""
        return self.last_told_ms + max(options.max_poll_interval_ms, options.session_timeout_ms)

    def must_stop_by(self, options: RuntimeOptions) -> int:
        """When a client that was told to stop is not waited for any more.

        Last snapshots are worth waiting for; a processor that does not return, or a silent client, is not.
        """
        since_ms = self.last_heard_ms if self.stops_since_ms is None else self.stops_since_ms
        by = since_ms + SNAPSHOTS_MS
        # What is still processed is wanted by nobody, however long it takes.
        begun = [
            found.begun_ms if found.work.kind == "process" else max(found.begun_ms, since_ms)
            for found in self.running.values()
            if found.work.kind not in ("snapshot", "share")
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
            self.active,
            {
                task: position.changelog_offset
                for task, position in self.positions.items()
                if task not in self.ready and progress.counts(task, position)
            }
            | {task: 0 for task in self.tasks.active if task not in self.ready and task not in self.positions},
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
        self._last_gone = ""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        """All members, by member id."""
        return iter([self._by_id[member_id] for member_id in sorted(self._by_id)])

    @property
    def staying(self) -> list[Member]:
        """Those that are not about to leave, by member id."""
        return [member for member in self if not member.leaves_because]

    @property
    def leaving(self) -> list[Member]:
        """Those that are about to leave and were not told to stop yet, by member id."""
        return [member for member in self if member.leaves_because and member.stops_since_ms is None]

    def find(self, connection: int) -> Member | None:
        """The member behind a connection."""
        return self._by_connection.get(connection)

    def named(self, client: str) -> Member | None:
        """The member of that client name."""
        return next((member for member in self if member.name == client), None)

    def owner_of(self, task: TaskId) -> Member | None:
        """The task's active owner; None: nobody at the moment."""
        return self._owners.get(task)

    def what_is_wrong_with(self, hello: Hello, connection: int) -> str:
        """Why a client cannot be a member; "": it can."""
        if hello.run_id != self._run_id:
            return f"the client belongs to another run ({hello.run_id}, not {self._run_id})"
        for member in self:
            if member.is_same(hello) and member.connection > connection:
                # Something between has kept it for long.
                return "the client has come back over another connection since"
            if member.hello.process_id == hello.process_id and member.name != hello.client:
                return f"{named('client', member.name)} has the same process id ({hello.process_id})"
        return ""

    def add(self, connection: int, hello: Hello, progress: Progress, now_ms: int) -> Member:
        """A client joins; of its states only those that were committed are believed."""
        self._joined += 1
        member_id = f"{hello.client}-{self._epoch}-{self._joined}"
        member = Member(member_id, connection, hello, now_ms, ProcessId.parse(hello.process_id))
        for task, candidates in hello.positions.items():
            member.take_positions(task, candidates, progress)
        self._by_id[member_id] = self._by_connection[connection] = member
        return member

    def with_id(self, member_id: str) -> Member | None:
        """The member of that member id."""
        return self._by_id.get(member_id)

    def remove(self, member: Member, reason: str) -> None:
        """A client leaves; its tasks have no owner until the next assignment."""
        self._last_gone = f"{member.name}, {member.leaves_because or reason}"
        del self._by_id[member.member_id], self._by_connection[member.connection]
        self._owners = {task: owner for task, owner in self._owners.items() if owner is not member}

    def assign(
        self, assignments: Mapping[ProcessId, ClientAssignment], generation: int, progress: Progress
    ) -> list[tuple[int, Assign]]:
        """Everybody's tasks from this generation on; who came too late for the assignment, or is to leave, has none."""
        self._owners = {}
        news = []
        for member in self:
            known = member.tasks
            assignment = assignments.get(member.process_id)
            if assignment is None or member.leaves_because:
                member.take_tasks(ClientTasks())
                if member in self.leaving:
                    news.append((member.connection, member.assign(generation, known, progress)))
                continue
            member.take_tasks(ClientTasks(tuple(sorted(assignment.active)), tuple(sorted(assignment.standby))))
            member.consumers = {consumer: tasks.all for consumer, tasks in assignment.consumers.items()}
            member.generation = generation
            member.since = {task: member.since.get(task, generation) for task in assignment.active}
            self._owners.update(dict.fromkeys(assignment.active, member))
            news.append((member.connection, member.assign(generation, known, progress)))
        return news

    def rows_to_restore(self, progress: Progress) -> dict[TaskId, int]:
        """Active task whose owner has another state of it -> rows of its changelogs that it has yet to read; the rest is in a snapshot."""
        positions = {task: owner.positions.get(task, START) for task, owner in sorted(self._owners.items())}
        return {task: progress.rows_to_read(task, at) for task, at in positions.items() if progress.lag(task, at)}

    def news_of(self, record: CommitRecord, progress: Progress) -> list[tuple[int, Committed]]:
        """Whom to tell what of a commit."""
        told = ((member.connection, member.news_of(record, progress)) for member in self)
        return [(connection, news) for connection, news in told if news.changes or news.snapshots]

    def last_words(self) -> list[tuple[int, EndProcess]]:
        """What is told when the coordinator goes without waiting for anybody."""
        return [(member.heartbeats, EndProcess()) for member in self if member.heartbeats is not None]

    def tasks_of(self, member_ids: Collection[str]) -> dict[str, tuple[str, ClientTasks]]:
        """Member id -> name and tasks, of those members."""
        return {member.member_id: (member.name, member.tasks) for member in self if member.member_id in member_ids}

    def take_tasks(self, member: Member) -> None:
        """The tasks of a member have no owner until the next assignment."""
        member.take_tasks(ClientTasks())
        self._owners = {task: owner for task, owner in self._owners.items() if owner is not member}

    def nobody_came(self, waited_ms: int, expected: int | None) -> ClientException:
        """Why the run cannot go on: too few clients at its beginning, or (`expected` is None) no one any more."""
        limit = f"{waited_ms / 1000:.0f} s (startup_timeout_ms"
        gone = f"the last one: {self._last_gone}"
        if expected is None:
            return ClientException(
                f"All clients have gone ({gone}), and none came in {limit}). Maybe see the clients' own messages, and whether their "
                "processes are stopped (SIGSTOP) or their machines asleep. What was committed stays: run the application again."
            )
        there = ", ".join(member.name for member in self) or (f"none any more; {gone}" if self._last_gone else "none")
        fewer = f" With RuntimeOptions(min_clients={len(self)}) it begins with so many." if len(self) else ""
        return ClientException(
            f"Only {len(self)} of {counted(expected, 'client')} came in {limit}; there: {there}). "
            f"Maybe there are fewer slots than clients, or other jobs hold them, or see the clients' own messages.{fewer}"
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


def advice_on_loss(*, hangs: bool) -> str:
    """What to do about a task that takes its clients with it."""
    if hangs:
        return "Maybe it waits for what does not come; else allow for more time or try a smaller max_batch_rows."
    # How a process ends is known only when its connection has been closed for a while.
    return (
        "The warnings before say how its process ended: SIGKILL is mostly for want of memory, try a smaller max_batch_rows; SIGSEGV or "
        "SIGABRT is a crash in a library, or a processor that writes into the memory of its rows. Where they say nothing, its connection "
        "may have ended: see the client's own messages."
    )


def error_of(failure: TaskFailure, client: str) -> StreamsException:
    """The exception that a client's failure becomes in the application."""
    where = named("client", client)
    message = f"{failure.message} (on {where})"
    error: StreamsException
    if failure.kind in ("processor", "bad", "late"):
        line = "" if failure.line is None else f"\n  {failure.line}"
        story, what = f"{message}{line}", (str(failure.task), failure.traceback, failure.line)
        if failure.kind == "processor":
            error = ProcessorException(story, *what)
        else:
            kind = LateRecordException if failure.kind == "late" else BadRecordException
            error = kind(story, *failure.place[:3], *what)
    elif failure.kind == "log":
        error = CorruptLogException(message, *failure.place)
    else:
        error = ClientException(message)
    if failure.traceback:
        error.add_note(remote_note(where, failure.traceback))
    return error
