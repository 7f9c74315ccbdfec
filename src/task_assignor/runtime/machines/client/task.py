"""A task on a client: what can be done with it, and its states with their transitions. Plain values, no clock."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import msgspec

from task_assignor.runtime.errors import InvalidTransitionException
from task_assignor.runtime.machines.encoding import Message, Value
from task_assignor.runtime.machines.protocol import START, Position, Recovery, TaskOrder
from task_assignor.runtime.machines.records import SavedStore, TaskSnapshot
from task_assignor.sdk import TaskId


class JobKind(enum.Enum):
    """What to do with a task."""

    RESTORE = "restore"
    PROCESS = "process"
    SNAPSHOT = "snapshot"
    CLOSE = "close"
    DELETE = "delete"
    """What the state directory has of a task that is not here; its end is a `TaskClosed`, too, with what is left."""

    @property
    def ends(self) -> bool:
        """Nothing of the task is in memory after it."""
        return self in (JobKind.CLOSE, JobKind.DELETE)


class Restore(Value, frozen=True, array_like=True):
    """How a state gets to a committed position.

    Args:
        base: where it is in memory, if the changes lead on from there; START: nowhere.
        recovery: what was committed; its last change leads to the target.
        target: the position to reach.
    """

    base: Position
    recovery: Recovery
    target: Position


class Job(Message, frozen=True):
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


class SnapshotWritten(Message, frozen=True):
    """A snapshot is in the state directory; of a task without state there is none.

    Args:
        position: what it holds.
        stores: what it is made of.
    """

    position: Position
    stores: Mapping[str, SavedStore] = msgspec.field(default_factory=dict)


class SnapshotFailed(Message, frozen=True):
    """A snapshot could not be written: the task goes on without it, and another one is tried when the next is due.

    Args:
        reason: why.
    """

    reason: str


class Share(Message, frozen=True):
    """Write a snapshot of a task into the folder of the run, beside all jobs, then bring `ShareDone`.

    Args:
        task: the task.
        written: the snapshot.
        newest: the newest one that counts: its files are not written again.
    """

    task: TaskId
    written: SnapshotWritten
    newest: TaskSnapshot | None


@attrs.frozen
class ShareDone:
    """A snapshot was written into the folder of the run, or could not be.

    Args:
        task: the task.
        outcome: what it is there.
    """

    task: TaskId
    outcome: TaskSnapshot | SnapshotFailed


class TaskState(enum.Enum):
    """What a task is to the client that has state of it."""

    SUSPENDED = "suspended"
    """The client is no member at the moment: the state is kept, and nothing is done with it."""
    ACTIVE = "active"
    """It is processed here."""
    STANDBY = "standby"
    """A copy of its state is kept here."""
    HANDING_OVER = "handing over"
    """It belongs to somebody else, who goes on from the batch that still runs here."""
    CLOSING = "closing"
    """It is not wanted here any more."""


_MAY_BECOME: Final = {
    TaskState.SUSPENDED: {TaskState.ACTIVE, TaskState.STANDBY, TaskState.CLOSING},
    TaskState.ACTIVE: {TaskState.STANDBY, TaskState.HANDING_OVER, TaskState.SUSPENDED, TaskState.CLOSING},
    TaskState.STANDBY: {TaskState.ACTIVE, TaskState.HANDING_OVER, TaskState.SUSPENDED, TaskState.CLOSING},
    TaskState.HANDING_OVER: {TaskState.ACTIVE, TaskState.STANDBY, TaskState.SUSPENDED, TaskState.CLOSING},
    TaskState.CLOSING: {TaskState.ACTIVE, TaskState.STANDBY},
}
_ROLES: Final = {TaskState.ACTIVE: "active", TaskState.STANDBY: "standby"}


@attrs.define
class ClientTask:
    """What a client's machine knows of a task that has state there."""

    task: TaskId
    state: TaskState = TaskState.SUSPENDED
    """Changed by `become` alone."""
    position: Position | None = START
    """Where the state in memory is; None: worth nothing."""
    committed: Position = START
    recovery: Recovery = attrs.field(factory=Recovery)
    """From what it is restored, as far as it was told."""
    failed_floor: int | None = None
    """A restore that needed changes from this batch on has failed: they may be deleted, and a newer snapshot is told."""
    order: TaskOrder | None = None
    """Is to be answered, or given back."""
    job: Job | None = None
    """What is done with it now."""
    reported: bool = False
    """Its readiness was told since the assignment."""
    snapshot: Position = START
    """What the newest snapshot holds that was written."""
    unsaved_bytes: int = 0
    """Of changelogs, since a snapshot was written or tried; after an assignment at most so many."""
    unsaved_batches: int = 0
    """Committed since then."""
    unsaved_since: int = 0
    """Heartbeats of the client when the last one was written or tried."""
    losses: int = 0
    """How often its state was lost since it last processed a batch."""
    may_end: bool = False
    """Its place, with what it has in memory, is not needed any more."""
    idle_heartbeats: int = 0
    """For so many heartbeats it has had nothing to do in its place."""
    is_left: bool = False
    """Only the state directory has something of it, which is to be deleted."""

    def become(self, state: TaskState) -> None:
        """Change the state: the only place where that happens.

        Raises:
            InvalidTransitionException: there is no way from one to the other; there is a bug.
        """
        if state is self.state:
            return
        if state not in _MAY_BECOME[self.state]:
            raise InvalidTransitionException(f"Task {self.task} on a client", self.state.value, f"{state.value}", ())
        self.state = state
        self.reported = self.is_left = False

    @property
    def role(self) -> str:
        """As which it is assigned: "active", "standby", or "" if it is not."""
        return _ROLES.get(self.state, "")

    @property
    def is_processing(self) -> bool:
        """Its order is being carried out."""
        return self.order is not None and self.job is not None and self.job.order == self.order

    @property
    def is_current(self) -> bool:
        """The state in memory is the committed one."""
        return self.position is not None and self.position.is_same_try(self.committed)

    @property
    def is_unsaved(self) -> bool:
        """The state in memory is the committed one, and no snapshot holds it."""
        return self.is_current and self.position != self.snapshot

    @property
    def wants_restore(self) -> bool:
        """Its state is to be made the committed one, and can be."""
        return bool(self.role) and not self.is_current and not self.awaits_commit and self.can_be_restored

    @property
    def is_closing(self) -> bool:
        """What it has in memory is about to go."""
        return self.state is TaskState.CLOSING or (self.job is not None and self.job.kind.ends)

    @property
    def is_idle(self) -> bool:
        """It could be processed, and there is nothing to do."""
        return self.state is TaskState.ACTIVE and self.order is None and self.job is None and self.is_current

    @property
    def awaits_commit(self) -> bool:
        """It has just processed a batch that is not committed yet; its state will be right then."""
        return self.order is None and self.position is not None and self.position.batch > self.committed.batch

    @property
    def restore(self) -> Restore:
        """What brings the state to where it is committed."""
        position = START if self.position is None else self.position
        base = position if self.recovery.reaches(position) else START
        return Restore(base, self.recovery.copy(), self.committed)

    @property
    def can_be_restored(self) -> bool:
        """It is known what leads to where it is committed, and that is not known to be gone."""
        recovery = self.recovery
        return recovery.end.batch >= self.committed.batch and recovery.floor.batch != self.failed_floor

    def validate(self) -> None:
        """Raise AssertionError if something holds that never may."""
        match self.state:
            case TaskState.SUSPENDED | TaskState.CLOSING:
                assert self.order is None, f"{self.task} is {self.state.value} and has an order"
            case TaskState.STANDBY | TaskState.HANDING_OVER:
                assert self.order is None or self.is_processing, f"{self.task} is {self.state.value} and has an order"
        assert self.state is not TaskState.HANDING_OVER or self.is_processing, f"{self.task} has nothing to hand over"
        if self.role:
            self.recovery.validate()


def states_of(
    tasks: Iterable[ClientTask], on_disk: Mapping[TaskId, tuple[Position, ...]]
) -> dict[TaskId, tuple[Position, ...]]:
    """The states of each task, in memory or on disk, newest first."""
    states = {task: list(found) for task, found in on_disk.items()}
    for task in tasks:
        if task.position is not None and task.position.batch >= 0 and not task.is_closing:
            states.setdefault(task.task, []).append(task.position)
    return {
        task_id: tuple(sorted(set(found), key=lambda position: (position.batch, position.generation), reverse=True))
        for task_id, found in sorted(states.items())
        if found
    }
