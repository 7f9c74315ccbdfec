"""A task on a client: what can be done with it, and its states with their transitions. Plain values, no clock."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from task_assignor.runtime.errors import InvalidTransitionException
from task_assignor.runtime.machines.protocol import START, Change, Position, TaskOrder
from task_assignor.sdk import TaskId


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
    changes: list[Change] = attrs.field(factory=list)
    """What the committed batches changed, as far as it was told."""
    order: TaskOrder | None = None
    """Is to be answered, or given back."""
    job: Job | None = None
    """What is done with it now."""
    waits_since: int = 0
    """When it was last given something to do, as a number: what came earlier is done earlier."""
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
        self.reported = False

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
    def awaits_commit(self) -> bool:
        """It has just processed a batch that is not committed yet; its state will be right then."""
        return self.order is None and self.position is not None and self.position.batch > self.committed.batch

    @property
    def restore(self) -> Restore:
        """What brings the state to where it is committed."""
        # Batches are counted from 0, so the n-th change is that of batch n.
        position = START if self.position is None else self.position
        at = position.batch
        counts = 0 <= at < len(self.changes) and self.changes[at].position.is_same_try(position)
        first = at + 1 if counts else 0
        return Restore(position if counts else START, tuple(self.changes[first:]), self.committed)

    def validate(self) -> None:
        """Raise AssertionError if something holds that never may."""
        match self.state:
            case TaskState.SUSPENDED | TaskState.CLOSING:
                assert self.order is None, f"{self.task} is {self.state.value} and has an order"
            case TaskState.STANDBY | TaskState.HANDING_OVER:
                assert self.order is None or self.is_processing, f"{self.task} is {self.state.value} and has an order"
        assert self.state is not TaskState.HANDING_OVER or self.is_processing, f"{self.task} has nothing to hand over"
        assert not self.role or all(change.position.batch == batch for batch, change in enumerate(self.changes))
