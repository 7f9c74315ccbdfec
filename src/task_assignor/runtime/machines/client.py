"""The client as a state machine: which task has what to do next. Sans-IO: it does nothing itself and reads no clock.

Its shell (`client_shell`) brings events (messages, finished jobs, a lost connection) and carries out instructions
(send, run a job, connect, end). At most `threads` jobs run at a time, at most one per task. Orders (after a snapshot, if
one is due) and restores come in the order in which they were asked for, those of an assignment for active tasks first;
then other snapshots.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Mapping

import attrs

from task_assignor.runtime.errors import InvalidTransitionException, brief
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Change,
    Committed,
    Goodbye,
    Heartbeat,
    Hello,
    Position,
    Process,
    Refused,
    Restored,
    Running,
    Stop,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskOrder,
    TaskReady,
    TaskResult,
    ToClient,
    ToCoordinator,
    Welcome,
)
from task_assignor.sdk import TaskId

STORY_LENGTH = 40
MAX_LOSSES = 3
"""So often in a row a task's state on disk may turn out to be damaged."""
_STEPS = 8


class ClientPhase(enum.Enum):
    """Where a client is in its life."""

    CONNECTING = "connecting"
    """It has no connection; its tasks are kept, but nothing of them counts."""
    JOINING = "joining"
    """It has said hello."""
    MEMBER = "member"
    """It has tasks, or waits for them."""
    STOPPING = "stopping"
    """It writes its last snapshots."""
    ENDED = "ended"
    """It is gone."""


# Events.


@attrs.frozen
class Connected:
    """There is a connection; `hello` says who the client is, but for the states that it has in memory."""

    hello: Hello


@attrs.frozen
class Disconnected:
    """The connection is lost."""

    reason: str


@attrs.frozen
class Received:
    """A message came."""

    message: ToClient


@attrs.frozen
class SnapshotFailed:
    """A snapshot could not be written: the task goes on without it, and another one is tried when the next is due."""


@attrs.frozen
class StateLost:
    """What a store had on disk could not be read any more; the task's stores are empty now, and can be built anew.

    Args:
        failure: what to tell if that happens again and again.
    """

    failure: TaskFailure


Outcome = Restored | TaskResult | TaskFailure | SnapshotFailed | StateLost | None


@attrs.frozen
class JobDone:
    """A job is finished.

    Args:
        job: the job.
        outcome: what came of it; for a snapshot that was written and for closing None.
    """

    job: Job
    outcome: Outcome


@attrs.frozen
class HeartbeatDue:
    """It is time to say that the client lives."""


ClientEvent = Connected | Disconnected | Received | JobDone | HeartbeatDue


# Jobs and instructions.


class JobKind(enum.Enum):
    """What to do with a task."""

    RESTORE = "restore"
    PROCESS = "process"
    SNAPSHOT = "snapshot"
    CLOSE = "close"


@attrs.frozen
class Restore:
    """How a state gets to a committed position.

    Args:
        base: where it is in memory, if that counts; START: nowhere.
        changes: what was committed after the base, in order; the last leads to the target.
        target: the position to reach.
    """

    base: Position
    changes: tuple[Change, ...]
    target: Position


@attrs.frozen
class Job:
    """Work on one task.

    Args:
        kind: what to do.
        task: the task.
        order: for PROCESS: the order.
        restore: for RESTORE: what to restore.
    """

    kind: JobKind
    task: TaskId
    order: TaskOrder | None = None
    restore: Restore | None = None


@attrs.frozen
class RunJob:
    """Run a job, then bring `JobDone`."""

    job: Job


@attrs.frozen
class SendToCoordinator:
    """Send a message; if there is no connection any more, drop it."""

    message: ToCoordinator


@attrs.frozen
class StartHeartbeats:
    """Have it said that this process lives, whatever its own threads do, until `Connect` or `End`."""

    member_id: str


@attrs.frozen
class Connect:
    """Find the coordinator (again), then bring `Connected`; if that fails for too long, end."""


@attrs.frozen
class End:
    """The client is done.

    Args:
        reason: why.
        was_told: it was told to stop, because the run is over; else whoever launched it may start another one.
    """

    reason: str
    was_told: bool


ClientInstruction = RunJob | SendToCoordinator | StartHeartbeats | Connect | End


@attrs.define
class _Task:
    """What the machine knows of a task that has state here."""

    task: TaskId
    role: str = ""
    """"active", "standby" or "": not ours any more."""
    position: Position | None = START
    """Where the state in memory is; None: worth nothing."""
    committed: Position = START
    changes: list[Change] = attrs.field(factory=list)
    """What the committed batches changed, as far as it was told."""
    order: TaskOrder | None = None
    waits_since: int = 0
    """When it was last given something to do, as a number: what came earlier is done earlier."""
    busy: bool = False
    reported: bool = False
    """Its readiness was told since the assignment."""
    snapshot: Position = START
    """What the newest snapshot holds that was written."""
    unsaved_bytes: int = 0
    """Of changelogs, since a snapshot was written or tried; after an assignment at most so many."""
    unsaved_since: int = 0
    """Heartbeats of the client when the last one was written or tried."""
    losses: int = 0
    """How often its state was lost since it last processed a batch."""
    closing: bool = False

    @property
    def is_current(self) -> bool:
        return self.position is not None and self.position.is_same_try(self.committed)

    @property
    def restore(self) -> Restore:
        """What brings the state to where it is committed."""
        # Batches are counted from 0, so the n-th change is that of batch n.
        position = START if self.position is None else self.position
        at = position.batch
        counts = 0 <= at < len(self.changes) and self.changes[at].position.is_same_try(position)
        first = at + 1 if counts else 0
        return Restore(position if counts else START, tuple(self.changes[first:]), self.committed)


class ClientMachine:
    """The client's decisions. `handle` is the only thing that changes it.

    Args:
        threads: jobs that may run at the same time.
        snapshot_bytes: a task's state is written when its changelogs have grown by so much; 0: never for that.
        snapshot_heartbeats: and after so many heartbeats, if they have grown at all; 0: never for that.
    """

    def __init__(self, threads: int = 1, snapshot_bytes: int = 64 << 20, snapshot_heartbeats: int = 120) -> None:
        self._threads = threads
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_heartbeats = snapshot_heartbeats
        self._heartbeats = 0
        self._phase = ClientPhase.CONNECTING
        self._tasks: dict[TaskId, _Task] = {}
        self._running: dict[TaskId, tuple[str, int]] = {}
        """Task -> kind and number of its job."""
        self._running_told: dict[TaskId, tuple[str, int]] = {}
        self._jobs = 0
        self._given = 0
        self._member_id = ""
        self._generation = 0
        self._rows_in = 0
        self._restored_rows = 0
        self._told: dict[TaskId, Position] = {}
        self._stop_reason = ""
        self._was_told = False
        self._story: deque[tuple[ClientPhase, ClientEvent]] = deque(maxlen=STORY_LENGTH)

    @property
    def phase(self) -> ClientPhase:
        """Where the client is in its life."""
        return self._phase

    @property
    def member_id(self) -> str:
        """Its member id; "": it is no member."""
        return self._member_id

    @property
    def generation(self) -> int:
        """Generation of its tasks."""
        return self._generation

    def roles(self) -> dict[TaskId, str]:
        """Task -> "active" or "standby"."""
        return {task: found.role for task, found in sorted(self._tasks.items()) if found.role}

    def start(self) -> list[ClientInstruction]:
        """The first instructions."""
        return [Connect()]

    def handle(self, event: ClientEvent) -> list[ClientInstruction]:
        """Take one event.

        Returns:
            What the shell shall do, in this order.

        Raises:
            InvalidTransitionException: the event cannot happen in this state; there is a bug.
        """
        self._story.append((self._phase, event))
        if self._phase is ClientPhase.ENDED:
            return []
        instructions = list(self._react(event))
        jobs = list(self._next_jobs())
        if self._running != self._running_told and self._phase in (ClientPhase.MEMBER, ClientPhase.STOPPING):
            self._running_told = dict(self._running)
            instructions.append(SendToCoordinator(Running(dict(self._running))))
        instructions += jobs
        if self._phase is ClientPhase.STOPPING and not self._running:
            self._phase = ClientPhase.ENDED
            instructions += [SendToCoordinator(Goodbye()), End(self._stop_reason, self._was_told)]
        return instructions

    def _react(self, event: ClientEvent) -> Iterator[ClientInstruction]:
        match event:
            case Connected(hello):
                self._expect(event, ClientPhase.CONNECTING)
                self._phase = ClientPhase.JOINING
                yield SendToCoordinator(attrs.evolve(hello, positions=self._positions(hello.positions)))
            case Disconnected():
                yield from self._lose_membership()
            case Received(message):
                yield from self._read(message)
            case JobDone(job, outcome):
                yield from self._finish(job, outcome)
            case HeartbeatDue():
                self._heartbeats += 1
                if self._phase in (ClientPhase.MEMBER, ClientPhase.STOPPING):
                    yield SendToCoordinator(self._heartbeat())

    # Messages.

    def _read(self, message: ToClient) -> Iterator[ClientInstruction]:
        if self._phase is ClientPhase.STOPPING:
            return
        match message:
            case Welcome(member_id):
                self._expect(Received(message), ClientPhase.JOINING)
                self._phase = ClientPhase.MEMBER
                self._member_id = member_id
                yield StartHeartbeats(member_id)
            case Assign():
                self._expect(Received(message), ClientPhase.MEMBER)
                yield from self._take_assignment(message)
            case Process(orders):
                self._expect(Received(message), ClientPhase.MEMBER)
                for order in orders:
                    task = self._tasks.get(order.task)
                    if task is None or task.role != "active":
                        raise self._invalid(f"an order for {order.task}, which is not active here")
                    task.order, task.committed = order, order.base
                    self._wait(task)
            case Committed(changes):
                for task_id, change in changes.items():
                    if task_id in self._tasks:
                        task = self._tasks[task_id]
                        task.committed = change.position
                        task.changes.append(change)
                        task.unsaved_bytes += change.size
                        if task.role == "standby" and not task.waits_since:
                            self._wait(task)
            case Refused(reason, may_rejoin):
                if may_rejoin:
                    yield from self._lose_membership()
                else:
                    yield from self._begin_stop(reason, snapshots=False, was_told=False)
            case Stop(reason, snapshot):
                yield from self._begin_stop(reason, snapshots=snapshot, was_told=True)

    def _take_assignment(self, assign: Assign) -> Iterator[ClientInstruction]:
        self._generation = assign.generation
        for task in self._tasks.values():
            if task.task not in assign.active and task.task not in assign.standby:
                task.role, task.order, task.closing = "", None, True
        for role, positions in (("active", assign.active), ("standby", assign.standby)):
            for task_id, position in sorted(positions.items()):
                task = self._tasks.setdefault(task_id, _Task(task_id))
                if task.role != role:
                    task.role, task.order, task.reported = role, None, False
                task.closing = False
                task.committed = position
                self._wait(task)
                if task_id in assign.changes:
                    task.changes = list(assign.changes[task_id])
                    task.unsaved_bytes = sum(change.size for change in task.changes)
        for task in self._tasks.values():
            yield from self._report(task)

    def _wait(self, task: _Task) -> None:
        self._given += 1
        task.waits_since = self._given

    def _lose_membership(self) -> Iterator[ClientInstruction]:
        """States in memory are kept: after joining again they are held against the commit log like any other."""
        if self._phase is ClientPhase.STOPPING:
            return
        if self._phase is not ClientPhase.CONNECTING:
            self._phase = ClientPhase.CONNECTING
            self._member_id = ""
            self._told = {}
            self._running_told = {}
            for task in self._tasks.values():
                task.role, task.order = "", None
            yield Connect()

    def _begin_stop(self, reason: str, *, snapshots: bool, was_told: bool) -> Iterator[ClientInstruction]:
        self._phase = ClientPhase.STOPPING
        self._was_told = was_told
        self._stop_reason = reason
        for task in self._tasks.values():
            task.order = None
            task.closing = not (snapshots and task.role)
        return iter(())

    # Jobs.

    def _finish(self, job: Job, outcome: Outcome) -> Iterator[ClientInstruction]:
        task = self._tasks.get(job.task)
        if task is None or not task.busy:
            raise self._invalid(f"the end of a {job.kind.value} job of {job.task}, which was not running")
        task.busy = False
        del self._running[job.task]
        match outcome:
            case TaskFailure():
                task.position = None
                # What nobody waits for any more may fail in silence.
                is_wanted = job.kind is not JobKind.PROCESS or task.order == job.order
                if task.role and is_wanted and self._phase is ClientPhase.MEMBER:
                    task.order = None
                    self._running_told.pop(job.task, None)
                    yield SendToCoordinator(TaskFailed(outcome))
            case Restored():
                task.position = outcome.position
                self._restored_rows += outcome.rows
                yield from self._report(task, outcome)
            case StateLost(failure):
                task.position = None
                task.losses += 1
                if task.losses > MAX_LOSSES and task.role and self._phase is ClientPhase.MEMBER:
                    task.order = None
                    self._running_told.pop(job.task, None)
                    yield SendToCoordinator(TaskFailed(failure))
            case TaskResult():
                task.position = outcome.position
                task.losses = 0
                assert job.order is not None
                self._rows_in += sum(end - start for start, end in outcome.offsets.values())
                # An order that was taken back, or given under an older membership, is not answered.
                if task.order == job.order and self._phase is ClientPhase.MEMBER:
                    task.order = None
                    self._running_told.pop(job.task, None)
                    yield SendToCoordinator(TaskDone(outcome))
            case SnapshotFailed():
                self._snapshot_was_tried(task)
                task.closing = task.closing or self._phase is ClientPhase.STOPPING
            case None if job.kind is JobKind.SNAPSHOT:
                task.snapshot = task.position or START
                self._snapshot_was_tried(task)
                if self._phase is ClientPhase.STOPPING:
                    task.closing = True
            case None if task.role and self._phase is not ClientPhase.STOPPING:
                # It came back while it was being closed.
                task.position = START
            case None:
                del self._tasks[job.task]

    def _report(self, task: _Task, restored: Restored | None = None) -> Iterator[ClientInstruction]:
        """Tell once per assignment that a task is ready, and what that took."""
        if task.role and not task.reported and not task.busy and task.is_current:
            task.reported = True
            assert task.position is not None
            yield SendToCoordinator(TaskReady(restored or Restored(task.task, task.position), task.role))

    def _next_jobs(self) -> Iterator[ClientInstruction]:
        while len(self._running) < self._threads:
            job = self._most_urgent()
            if job is None:
                return
            task = self._tasks[job.task]
            task.busy = True
            if job.kind in (JobKind.PROCESS, JobKind.RESTORE):
                task.waits_since = 0
            self._jobs += 1
            self._running[job.task] = (job.kind.value, self._jobs)
            yield RunJob(job)

    def _most_urgent(self) -> Job | None:
        free = [task for _, task in sorted(self._tasks.items()) if not task.busy]
        for task in free:
            if task.closing:
                return Job(JobKind.CLOSE, task.task)
        if self._phase is ClientPhase.STOPPING:
            return self._last_snapshot(free)
        if self._phase is not ClientPhase.MEMBER:
            return None
        # In turn: where there always is another order, standbys would never get theirs.
        for task in sorted(free, key=lambda task: task.waits_since):
            if task.order is not None and task.is_current:
                # A due snapshot comes first: under load there is always another batch, and it would never be written.
                if self._snapshot_is_due(task):
                    return Job(JobKind.SNAPSHOT, task.task)
                return Job(JobKind.PROCESS, task.task, order=task.order)
            if task.role and not task.is_current and not self._awaits_commit(task):
                return Job(JobKind.RESTORE, task.task, restore=task.restore)
        return next((Job(JobKind.SNAPSHOT, task.task) for task in free if self._snapshot_is_due(task)), None)

    @staticmethod
    def _awaits_commit(task: _Task) -> bool:
        """It has just processed a batch that is not committed yet; its state will be right then."""
        return task.order is None and task.position is not None and task.position.batch > task.committed.batch

    def _snapshot_was_tried(self, task: _Task) -> None:
        task.unsaved_bytes, task.unsaved_since = 0, self._heartbeats

    def _snapshot_is_due(self, task: _Task) -> bool:
        if not task.role or not task.is_current or not task.unsaved_bytes:
            return False
        is_large = 0 < self._snapshot_bytes <= task.unsaved_bytes - self._delay_of(task, self._snapshot_bytes)
        waited = self._heartbeats - task.unsaved_since
        is_old = 0 < self._snapshot_heartbeats <= waited - self._delay_of(task, self._snapshot_heartbeats)
        return is_large or is_old

    @staticmethod
    def _delay_of(task: _Task, limit: int) -> int:
        """By how much a task's first snapshot is late, so that not all tasks write theirs at the same time."""
        return task.task.partition % _STEPS * limit // _STEPS if task.snapshot == START else 0

    def _last_snapshot(self, free: list[_Task]) -> Job | None:
        for task in free:
            if task.is_current and task.position != task.snapshot:
                return Job(JobKind.SNAPSHOT, task.task)
            return Job(JobKind.CLOSE, task.task)
        return None

    # Reports.

    def _positions(self, on_disk: Mapping[TaskId, tuple[Position, ...]]) -> dict[TaskId, tuple[Position, ...]]:
        """The states of each task, in memory or on disk, newest first."""
        states = {task: list(found) for task, found in on_disk.items()}
        for task_id, task in self._tasks.items():
            if task.position is not None and task.position.batch >= 0:
                states.setdefault(task_id, []).append(task.position)
        return {
            task: tuple(sorted(set(found), key=lambda position: (position.batch, position.generation), reverse=True))
            for task, found in sorted(states.items())
        }

    def _heartbeat(self) -> Heartbeat:
        positions = {
            task_id: task.position
            for task_id, task in sorted(self._tasks.items())
            if task.role == "standby" and task.position is not None
        }
        changed = {task: position for task, position in positions.items() if self._told.get(task) != position}
        self._told = positions
        return Heartbeat(changed, self._rows_in, self._restored_rows)

    # Checks.

    def validate_state(self) -> None:
        """Raise AssertionError if something holds that never may."""
        assert self._running.keys() == {task.task for task in self._tasks.values() if task.busy}
        assert len(self._running) <= self._threads
        for task in self._tasks.values():
            assert task.role in ("", "active", "standby")
            assert task.order is None or task.role == "active"
            assert not (task.closing and task.role and self._phase is not ClientPhase.STOPPING)
            assert not task.role or all(change.position.batch == batch for batch, change in enumerate(task.changes))
        if self._phase in (ClientPhase.CONNECTING, ClientPhase.JOINING):
            assert not self.roles()

    def _expect(self, event: ClientEvent, phase: ClientPhase) -> None:
        if self._phase is not phase:
            raise self._invalid(brief(event))

    def _invalid(self, what: str) -> InvalidTransitionException:
        story = tuple(f"{phase.value}: {brief(event)}" for phase, event in self._story)
        return InvalidTransitionException("The client", self._phase.value, what, story)
