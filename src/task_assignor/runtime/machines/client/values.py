"""What comes into the client's state machine, what comes out of it, and its phases: plain values."""

from __future__ import annotations

import enum

import attrs

from task_assignor.runtime.machines.client.task import Job, Share, ShareDone, SnapshotFailed, SnapshotWritten
from task_assignor.runtime.machines.client.works import Steps
from task_assignor.runtime.machines.encoding import Message
from task_assignor.runtime.machines.protocol import (
    Hello,
    Restored,
    TaskClosed,
    TaskFailure,
    TaskResult,
    ToClient,
    ToCoordinator,
)
from task_assignor.sdk import TaskId


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


class StateLost(Message, frozen=True):
    """What a store had on disk could not be read any more; the task's stores are empty now, and can be built anew.

    Args:
        failure: what to tell if that happens again and again.
    """

    failure: TaskFailure


class NothingYet(Message, frozen=True):
    """None of the rows of an order can be read yet, whoever asks: an open transaction hides them. The order is as good as not begun."""


Outcome = Restored | TaskResult | NothingYet | TaskFailure | SnapshotWritten | SnapshotFailed | StateLost | TaskClosed


@attrs.frozen
class JobWaits:
    """A running job has computed what it has to, and only waits for others from here on: its thread is as good as free."""

    task: TaskId


@attrs.frozen
class JobDone:
    """A job is finished.

    Args:
        job: the job.
        outcome: what came of it.
    """

    job: Job
    outcome: Outcome


@attrs.frozen
class Answered:
    """The answer to an order was sent that had to wait for the disk: `TaskDone`, or `TaskFailed` in its place."""

    task: TaskId


@attrs.frozen
class HeartbeatDue:
    """It is time to say that the client lives, and how far it is with what it does.

    Args:
        steps: how far.
        due: tasks of which something may be due that is scheduled by the clock.
        is_hearing: more of a message has come that is not complete; so long as it is, nothing else can come.
    """

    steps: Steps = attrs.field(factory=dict)
    due: frozenset[TaskId] = frozenset()
    is_hearing: bool = False


@attrs.frozen
class CoordinatorFound:
    """The coordinator answers over another connection."""


@attrs.frozen
class LeaveRequested:
    """Whoever runs the client wants it to end: after its batches, and when its tasks are with others."""

    reason: str


ClientEvent = (
    Connected
    | Disconnected
    | Received
    | JobWaits
    | JobDone
    | ShareDone
    | Answered
    | HeartbeatDue
    | CoordinatorFound
    | LeaveRequested
)


# Instructions.


@attrs.frozen
class RunJob:
    """Run a job, then bring `JobDone`."""

    job: Job


@attrs.frozen
class TakePermit:
    """What tasks make counts with this permit from now on; empty: with none, since this is no member any more.

    Args:
        permit: the permit.
        first: what was ordered in earlier generations does not count with any, however late it is done: this was no member since.
    """

    permit: bytes
    first: int = 0


@attrs.frozen
class SendToCoordinator:
    """Send a message, or drop it without a connection; `TaskDone` when its files are durable, then bring `Answered`."""

    message: ToCoordinator


@attrs.frozen
class StartHeartbeats:
    """Have it said that this process lives, whatever its own threads do, until `Connect` or `End`."""

    member_id: str


@attrs.frozen
class LookForCoordinator:
    """Try whether the coordinator answers over another connection, beside the one that there is; if so, bring `CoordinatorFound`."""


@attrs.frozen
class Connect:
    """Find the coordinator (again), then bring `Connected`; if that fails for too long, end.

    Args:
        unanswered: so many heartbeats in a row were not answered over the connection that there was; 0: that is not why.
    """

    unanswered: int = 0


@attrs.frozen
class End:
    """The client is done.

    Args:
        reason: why.
        was_told: it was told to stop, because the run is over; else whoever launched it may start another one.
    """

    reason: str
    was_told: bool


ClientInstruction = (
    RunJob | Share | TakePermit | SendToCoordinator | StartHeartbeats | LookForCoordinator | Connect | End
)
