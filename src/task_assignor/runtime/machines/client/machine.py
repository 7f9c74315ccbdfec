"""The client as a state machine: which task has what to do next. Sans-IO: it does nothing itself and reads no clock.

Its shell (`client_shell`) brings events (messages, finished jobs, a lost connection) and carries out instructions
(send, run a job, connect, end). At most `threads` jobs run at a time, at most one per task. Orders (after a snapshot, if
one is due) and restores come in the order in which they were asked for, those of an assignment for active tasks first;
then other snapshots. The states of a task are in `client.task`.

A client may do each task in a place of its own (a Spark task), of which there are as many as threads. There a task holds its
place from its first order to its last, and standbys, which would never end, get none.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from task_assignor.runtime.errors import InvalidTransitionException, Story, brief
from task_assignor.runtime.machines.client.agenda import Agenda
from task_assignor.runtime.machines.client.leftovers import Leftovers
from task_assignor.runtime.machines.client.places import Places
from task_assignor.runtime.machines.client.silence import Silence
from task_assignor.runtime.machines.client.snapshots import SnapshotPlan
from task_assignor.runtime.machines.client.task import (
    ClientTask,
    Job,
    JobKind,
    Share,
    ShareDone,
    SnapshotFailed,
    SnapshotWritten,
    TaskState,
    states_of,
)
from task_assignor.runtime.machines.client.values import (
    Answered,
    ClientEvent,
    ClientInstruction,
    ClientPhase,
    Connect,
    Connected,
    CoordinatorFound,
    Disconnected,
    End,
    HeartbeatDue,
    JobDone,
    JobWaits,
    LeaveRequested,
    NothingYet,
    Outcome,
    Received,
    RunJob,
    SendToCoordinator,
    StartHeartbeats,
    StateLost,
    TakePermit,
)
from task_assignor.runtime.machines.client.works import SHARE, Works
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Committed,
    GivenBack,
    Goodbye,
    Heard,
    Heartbeat,
    Leave,
    Permit,
    Position,
    Process,
    PunctuationDue,
    Refused,
    Restored,
    SnapshotMissed,
    SnapshotTaken,
    Stop,
    TaskClosed,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskReady,
    TaskResult,
    ToClient,
    ToCoordinator,
    Welcome,
)
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.sdk import TaskId

MAX_LOSSES = 3
"""So often in a row a task's state on disk may turn out to be damaged."""
JOBS_OF_A_THREAD = 64
"""So many jobs that a thread has begun may not have ended, all but one of them because they wait for others."""


class ClientMachine:
    """The client's decisions. `handle` is the only thing that changes it.

    Args:
        threads: jobs that may run at the same time.
        snapshot_bytes: see `SnapshotPlan`.
        snapshot_heartbeats: see there.
        stop_heartbeats: see there (`last_heartbeats`).
        place_heartbeats: see `Places`, of which there are as many as threads; states are in memory then.
        kept_heartbeats: see `Leftovers`.
        silence: how long the coordinator may not answer.
    """

    def __init__(
        self,
        threads: int = 1,
        snapshot_bytes: int = 64 << 20,
        snapshot_heartbeats: int = 120,
        stop_heartbeats: int = 20,
        place_heartbeats: int = 0,
        kept_heartbeats: int | None = None,
        silence: tuple[int, int] = (20, 600),
    ) -> None:
        self._threads = threads
        self._places = Places(threads, place_heartbeats)
        self._snapshots = SnapshotPlan(snapshot_bytes, snapshot_heartbeats, stop_heartbeats)
        self._leftovers = Leftovers(kept_heartbeats)
        self._silence = Silence(*silence)
        self._phase = ClientPhase.CONNECTING
        self._tasks: dict[TaskId, ClientTask] = {}
        self._running: set[TaskId] = set()
        """Tasks with a job."""
        self._waiting: set[TaskId] = set()
        """Those of them whose job only waits."""
        self._works = Works()
        self._agenda = Agenda()
        self._member_id = ""
        self._permit = b""
        self._first = 0
        """Orders of earlier generations were given under an older membership."""
        self._generation = 0
        self._rows_in = 0
        self._restored_rows = 0
        self._told: dict[TaskId, Position] = {}
        self._unsaid: list[TaskClosed] = []
        """States that are gone of which it says when it joins that it has them."""
        self._leaves_because = ""
        self._stop_reason = ""
        self._was_told = False
        self._left_out = 0
        """Tasks that were closed without a last snapshot, because there was no more time."""
        self._story = Story()

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
        phase = self._phase
        self._story.add(phase.value, event)
        if phase is ClientPhase.ENDED:
            return []
        instructions = list(self._react(event))
        if self._phase is not phase:
            self._note_all()
        jobs = list(self._next_jobs())
        if self._phase in (ClientPhase.MEMBER, ClientPhase.STOPPING) and (news := self._works.news()) is not None:
            instructions.append(SendToCoordinator(news))
        instructions += jobs
        if self._phase is ClientPhase.STOPPING and not self._running:
            self._phase = ClientPhase.ENDED
            instructions += [SendToCoordinator(Goodbye(self._left_out)), End(self._stop_reason, self._was_told)]
        return instructions

    def _react(self, event: ClientEvent) -> Iterator[ClientInstruction]:
        match event:
            case Connected() if self._phase is ClientPhase.STOPPING:
                pass  # It was asked to leave meanwhile.
            case Connected(hello):
                self._expect(event, ClientPhase.CONNECTING)
                self._phase = ClientPhase.JOINING
                self._silence.end()
                self._leftovers.see(hello.positions.keys() - self._tasks.keys())
                yield SendToCoordinator(
                    msgspec.structs.replace(hello, positions=states_of(self._tasks.values(), hello.positions))
                )
            case Disconnected():
                yield from self._lose_membership()
            case CoordinatorFound() if self._silence.is_long:
                yield from self._lose_membership()
            case Received(message):
                yield from self._read(message)
            case JobWaits(task_id):
                self._waiting.add(task_id)
            case JobDone(job, outcome):
                yield from self._finish(job, outcome)
                self._note(job.task)
            case ShareDone(task_id, shared):
                yield from self._end_sharing(task_id, shared)
                self._note(task_id)
            case Answered(task_id):
                self._works.answer(task_id)
            case HeartbeatDue(steps, due, is_hearing):
                self._snapshots.beat()
                self._leftovers.beat()
                self._works.get_on(steps)
                if self._phase is ClientPhase.MEMBER:
                    self._places.see_idle(self._tasks.values())
                    self._clean_up()
                self._note_all()
                if self._phase is not ClientPhase.CONNECTING:
                    yield SendToCoordinator(self._heartbeat())
                    yield from () if is_hearing else self._silence.beat()
                    if self._silence.is_over:
                        yield from self._lose_membership()
                if self._phase is ClientPhase.MEMBER:
                    idle = (task for _, task in sorted(self._tasks.items()) if task.task in due and task.is_idle)
                    yield from (SendToCoordinator(PunctuationDue(task.task)) for task in idle)
            case LeaveRequested(reason):
                yield from self._leave(reason)

    # Messages.

    def _read(self, message: ToClient) -> Iterator[ClientInstruction]:
        if self._phase is ClientPhase.STOPPING:
            return
        match message:
            case Welcome(member_id, permit):
                self._expect(Received(message), ClientPhase.JOINING)
                self._phase = ClientPhase.MEMBER
                self._member_id = member_id
                yield StartHeartbeats(member_id)
                if permit:
                    yield from self._take_permit(permit)
                yield from self._unsay()
                if self._leaves_because:
                    yield SendToCoordinator(Leave(self._leaves_because))
            case Permit(permit):
                yield from self._take_permit(permit)
            case Heard():
                self._silence.end()
            case Assign():
                self._expect(Received(message), ClientPhase.MEMBER)
                yield from self._take_assignment(message)
            case Process(orders):
                self._expect(Received(message), ClientPhase.MEMBER)
                for order in orders:
                    task = self._tasks.get(order.task)
                    if task is None or task.state is not TaskState.ACTIVE:
                        raise self._invalid(f"an order for {order.task}, which is not active here")
                    task.order, task.committed = order, order.base
                    self._note(order.task)
            case Committed(changes, snapshots):
                for task_id, change in changes.items():
                    if task_id in self._tasks:
                        task = self._tasks[task_id]
                        task.committed = change.position
                        task.recovery.add(change)
                        self._snapshots.see(task, (change,))
                for task_id, snapshot in snapshots.items():
                    if task_id in self._tasks:
                        self._tasks[task_id].recovery.add_snapshot(snapshot)
                for task_id in (*changes, *snapshots):
                    self._note(task_id)
            case Refused(reason, may_rejoin):
                if may_rejoin:
                    yield from self._lose_membership()
                else:
                    yield from self._begin_stop(reason, snapshots=False, was_told=False)
            case Stop(reason, snapshot):
                yield from self._begin_stop(reason, snapshots=snapshot, was_told=True)

    def _take_permit(self, permit: bytes) -> Iterator[ClientInstruction]:
        if permit != self._permit:
            self._permit = permit
            yield TakePermit(permit, self._first)

    def _take_assignment(self, assign: Assign) -> Iterator[ClientInstruction]:
        self._generation = assign.generation
        returned = [
            task.order
            for task in self._tasks.values()
            if task.order is not None and task.task not in assign.active and not task.is_processing
        ]
        for order in returned:
            self._tasks[order.task].order = None
        if returned:
            yield SendToCoordinator(GivenBack(tuple(returned)))
        for task in self._tasks.values():
            if task.task not in assign.active and task.task not in assign.standby:
                task.become(TaskState.HANDING_OVER if task.is_processing else TaskState.CLOSING)
        for state, positions in ((TaskState.ACTIVE, assign.active), (TaskState.STANDBY, assign.standby)):
            for task_id, position in sorted(positions.items()):
                task = self._tasks.setdefault(task_id, ClientTask(task_id))
                self._leftovers.forget(task_id)
                is_new = task.state is not state
                task.become(state)
                task.committed = position
                if task_id in assign.recovery:
                    task.recovery, task.failed_floor = assign.recovery[task_id].copy(), None
                if task_id in assign.recovery or is_new:
                    task.unsaved_bytes = task.unsaved_batches = 0
                    self._snapshots.see(task, task.recovery.unsaved)
        self._note_all()
        for task in self._tasks.values():
            yield from self._report(task)

    def _note(self, task_id: TaskId) -> None:
        if task_id in self._tasks:
            self._agenda.note(self._tasks[task_id])

    def _note_all(self) -> None:
        for task in self._tasks.values():
            self._agenda.note(task)

    def _lose_membership(self) -> Iterator[ClientInstruction]:
        """States in memory are kept: after joining again they are held against the commit log like any other."""
        if self._phase is ClientPhase.STOPPING:
            return
        if self._leaves_because:
            yield from self._begin_stop(self._leaves_because, snapshots=False, was_told=True)
            return
        if self._phase is not ClientPhase.CONNECTING:
            self._phase = ClientPhase.CONNECTING
            self._member_id = ""
            self._first = self._generation + 1
            yield from self._take_permit(b"")
            self._told = {}
            self._works.leave()
            for task in self._tasks.values():
                task.order = None
                if task.state is not TaskState.CLOSING:
                    task.become(TaskState.SUSPENDED)
            # What goes from now on may have been there when it looks what it has.
            self._unsaid = []
            yield Connect(self._silence.beats if self._silence.is_long else 0)

    def _leave(self, reason: str) -> Iterator[ClientInstruction]:
        """Go on until the coordinator says that the tasks are with others; without it, end at once."""
        if self._leaves_because or self._phase is ClientPhase.STOPPING:
            return
        self._leaves_because = reason
        if self._phase is ClientPhase.MEMBER:
            yield SendToCoordinator(Leave(reason))
        elif self._phase is ClientPhase.CONNECTING:
            yield from self._begin_stop(reason, snapshots=False, was_told=True)

    def _begin_stop(self, reason: str, *, snapshots: bool, was_told: bool) -> Iterator[ClientInstruction]:
        self._phase = ClientPhase.STOPPING
        # Nobody brings another one, and jobs would wait for it.
        yield from self._take_permit(b"")
        self._was_told = was_told
        self._stop_reason = reason
        self._snapshots.begin_end()
        for task in self._tasks.values():
            task.order = None
            if not (snapshots and task.role):
                task.become(TaskState.CLOSING)

    # Jobs.

    def _finish(self, job: Job, outcome: Outcome) -> Iterator[ClientInstruction]:
        task = self._tasks.get(job.task)
        if task is None or task.job is None:
            raise self._invalid(f"the end of a {job.kind.value} job of {job.task}, which was not running")
        task.job = None
        self._running.remove(job.task)
        self._waiting.discard(job.task)
        if job.kind.ends or isinstance(outcome, StateLost):
            self._places.leave(job.task)
        # An order that was given under an older membership is not answered; what nobody waits for may fail in silence.
        is_wanted = self._phase is ClientPhase.MEMBER
        is_answer = is_wanted and task.order is not None and task.order == job.order
        if is_answer and isinstance(outcome, TaskResult):
            self._works.await_disk(job.task)
        else:
            self._works.end(job.kind.value, job.task)
        match outcome:
            case TaskFailure():
                task.position = None
                if job.restore is not None and outcome.kind == "log":
                    # If a newer snapshot was committed meanwhile, its files may be gone.
                    floor = task.failed_floor = job.restore.recovery.floor.batch
                    outcome = msgspec.structs.replace(outcome, floor=floor)
                    is_wanted = is_wanted and task.recovery.floor.batch == floor
                if is_answer or (is_wanted and task.role and job.kind is not JobKind.PROCESS):
                    yield from self._answer(task, TaskFailed(outcome))
            case Restored():
                task.position = outcome.position
                self._restored_rows += outcome.rows
            case StateLost(failure):
                task.position = None
                task.losses += 1
                if task.losses > MAX_LOSSES and is_wanted and task.role:
                    yield from self._answer(task, TaskFailed(failure))
                elif is_answer and task.order is not None and task.state is not TaskState.ACTIVE:
                    yield from self._answer(task, GivenBack((task.order,)))
            case NothingYet():
                if is_answer and task.order is not None:
                    yield from self._answer(task, GivenBack((task.order,)))
            case TaskResult():
                task.position = outcome.position
                task.losses = 0
                assert job.order is not None
                self._rows_in += sum(end - start for start, end in outcome.offsets.values())
                is_all = dict(outcome.offsets) == dict(job.order.ranges)
                task.may_end = self._places.exist and is_all and job.order.is_last
                if is_answer:
                    task.order = None
                    yield SendToCoordinator(TaskDone(outcome))
            case SnapshotFailed(reason):
                self._snapshots.was_tried(task, failed=True)
                if is_wanted and task.state is TaskState.ACTIVE:
                    yield SendToCoordinator(SnapshotMissed(task.task, reason))
            case TaskClosed() if task.state is TaskState.CLOSING:
                del self._tasks[job.task]
                self._agenda.strike([job.task])
                if job.kind is JobKind.CLOSE or outcome.positions:
                    self._leftovers.see([job.task])
                self._unsaid.append(outcome)
                yield from self._unsay()
                return
            case TaskClosed():
                # It came back while it was being closed, or has only given its place away.
                task.position = START
                task.may_end = False
                if is_wanted and not task.role:
                    # It has said when it joined that it has this state.
                    yield SendToCoordinator(outcome)
            case SnapshotWritten():
                task.snapshot = task.position or START
                self._snapshots.was_tried(task)
                if outcome.stores and is_wanted and task.state is TaskState.ACTIVE:
                    self._works.begin(SHARE, task.task)
                    yield Share(task.task, outcome, task.recovery.newest)
        if task.position is None and task.state is TaskState.SUSPENDED:
            # It says when it joins that it has this state.
            self._unsaid.append(TaskClosed(task.task))
            yield from self._unsay()
        is_saved = self._phase is ClientPhase.STOPPING and job.kind is JobKind.SNAPSHOT
        if is_saved or task.state is TaskState.HANDING_OVER:
            task.become(TaskState.CLOSING)
        yield from self._report(task, outcome if isinstance(outcome, Restored) else None)

    def _unsay(self) -> Iterator[ClientInstruction]:
        if self._phase is ClientPhase.MEMBER:
            yield from map(SendToCoordinator, self._unsaid)
            self._unsaid = []

    def _end_sharing(self, task_id: TaskId, shared: TaskSnapshot | SnapshotFailed) -> Iterator[ClientInstruction]:
        self._works.end(SHARE, task_id)
        task = self._tasks.get(task_id)
        if self._phase is not ClientPhase.MEMBER or task is None or task.state is not TaskState.ACTIVE:
            return
        if isinstance(shared, TaskSnapshot):
            yield SendToCoordinator(SnapshotTaken(shared))
        else:
            self._snapshots.was_tried(task, failed=True)
            yield SendToCoordinator(SnapshotMissed(task_id, shared.reason))

    def _answer(self, task: ClientTask, message: ToCoordinator) -> Iterator[ClientInstruction]:
        task.order = None
        if isinstance(message, TaskFailed):
            self._works.answer(task.task)
        yield SendToCoordinator(message)

    def _report(self, task: ClientTask, restored: Restored | None = None) -> Iterator[ClientInstruction]:
        """Tell once per assignment that a task is ready, and what that took."""
        if task.role and not task.reported and task.job is None and task.is_current:
            task.reported = True
            assert task.position is not None
            yield SendToCoordinator(TaskReady(restored or Restored(task.task, task.position), task.role))

    def _next_jobs(self) -> Iterator[ClientInstruction]:
        most = self._threads * JOBS_OF_A_THREAD
        while len(self._running) < min(self._threads + len(self._waiting), most):
            job = self._most_urgent()
            if job is None:
                return
            self._tasks[job.task].job = job
            self._agenda.strike([job.task])
            if not job.kind.ends:
                self._places.take(self._tasks[job.task])
            self._running.add(job.task)
            self._works.begin(job.kind.value, job.task)
            yield RunJob(job)

    def _most_urgent(self) -> Job | None:
        idle: list[TaskId] = []
        # In turn: where there always is another order, standbys would never get theirs. But while an active task waits for its
        # state nobody processes it at all.
        standbys_wait = self._agenda.has_active_to_restore
        found: dict[int, tuple[ClientTask, JobKind]] = {}
        for task in self._agenda:
            kind = self._kind_of_job(task)
            if kind is None:
                idle.append(task.task)
            elif self._may_begin(task, kind):
                is_standby = standbys_wait and task.state is TaskState.STANDBY
                urgency = 2 if kind is JobKind.SNAPSHOT and task.order is None else int(is_standby)
                found.setdefault(urgency, (task, kind))
                if urgency == 0:
                    break
        self._agenda.strike(idle)
        return self._job_of(*found[min(found)]) if found else None

    def _kind_of_job(self, task: ClientTask) -> JobKind | None:
        """What there is to do with a task with which nothing is being done."""
        # What it has said of its states when it joined stays true until it is answered.
        may_end = task.may_end and task.order is None and self._phase is not ClientPhase.JOINING
        if task.state is TaskState.CLOSING or may_end:
            return JobKind.DELETE if task.is_left and self._phase is ClientPhase.MEMBER else JobKind.CLOSE
        if self._phase is ClientPhase.STOPPING:
            return JobKind.SNAPSHOT if task.is_unsaved and self._snapshots.has_time else JobKind.CLOSE
        if self._phase is not ClientPhase.MEMBER:
            return None
        if task.wants_restore:
            return JobKind.RESTORE
        # While a snapshot is shared its files are needed, so no other one is written.
        if (SHARE, task.task) not in self._works and self._snapshots.is_due(task):
            # Before the next batch: under load there is always another one, and it would never be written.
            return JobKind.SNAPSHOT
        return JobKind.PROCESS if task.order is not None and task.is_current else None

    def _job_of(self, task: ClientTask, kind: JobKind) -> Job:
        if kind is JobKind.CLOSE and self._phase is ClientPhase.STOPPING:
            self._left_out += task.is_unsaved and task.state is not TaskState.CLOSING
            task.become(TaskState.CLOSING)
        order = task.order if kind is JobKind.PROCESS else None
        return Job(kind, task.task, order=order, restore=task.restore if kind is JobKind.RESTORE else None)

    def _may_begin(self, task: ClientTask, kind: JobKind) -> bool:
        """It needs no place of its own, or can have one."""
        needs_none = kind.ends or (kind is JobKind.SNAPSHOT and task.order is None)
        return needs_none or self._places.may_work(task)

    def _clean_up(self) -> None:
        """What is left of tasks that did not come back takes up room."""
        for task_id in self._leftovers.take_due():
            self._tasks[task_id] = ClientTask(task_id, TaskState.CLOSING, is_left=True)

    # Reports.

    def _heartbeat(self) -> Heartbeat:
        positions = {
            task_id: task.position
            for task_id, task in sorted(self._tasks.items())
            if task.state is TaskState.STANDBY and task.position is not None
        }
        changed = {task: position for task, position in positions.items() if self._told.get(task) != position}
        self._told = positions
        return Heartbeat(changed, self._rows_in, self._restored_rows)

    # Checks.

    def validate_state(self) -> None:
        """Raise AssertionError if something holds that never may."""
        assert self._running == {task.task for task in self._tasks.values() if task.job is not None}
        assert self._waiting <= self._running
        assert len(self._running - self._waiting) <= self._threads
        self._places.validate(self._tasks.values())
        for task in self._tasks.values():
            task.validate()
            assert task.task not in self._leftovers, f"{task.task} is here, and may be deleted"
            is_seen = task.job is not None or task.task in self._agenda
            assert is_seen or self._kind_of_job(task) is None, f"what there is to do with {task.task} is overlooked"
        self._agenda.validate(self._tasks.values())
        if self._phase in (ClientPhase.CONNECTING, ClientPhase.JOINING):
            assert not self.roles()

    def _expect(self, event: ClientEvent, phase: ClientPhase) -> None:
        if self._phase is not phase:
            raise self._invalid(brief(event))

    def _invalid(self, what: str) -> InvalidTransitionException:
        return InvalidTransitionException("The client", self._phase.value, what, self._story.told())
