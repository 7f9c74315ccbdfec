"""What the coordinator is told and what it says: phases, events, instructions. Plain values, no decisions."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import attrs

from task_assignor.group import GroupClient, GroupRebalance
from task_assignor.runtime.machines.checkpoint import SavedProgress
from task_assignor.runtime.machines.events import RunEvent
from task_assignor.runtime.machines.protocol import ToClient, ToCoordinator
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.sdk import StreamsException, TaskId


class CoordinatorPhase(enum.Enum):
    """Where a run is."""

    GATHERING = "gathering"
    """It waits for its clients."""
    RUNNING = "running"
    """Batches are processed."""
    STOPPING = "stopping"
    """Clients were told to stop."""
    ENDED = "ended"
    """All clients have gone, or nobody waits for them any more."""


# Events.


@attrs.frozen
class FromClient:
    """A message came over a connection.

    Args:
        connection: which one; numbers are never used twice.
        message: what it says.
        now_ms: time, milliseconds since the epoch.
    """

    connection: int
    message: ToCoordinator
    now_ms: int


@attrs.frozen
class ConnectionLost:
    """A connection is gone."""

    connection: int
    reason: str
    now_ms: int


@attrs.frozen
class Tick:
    """Time has passed; for so long of it the coordinator's process has stood still, and heard nobody."""

    now_ms: int
    still_ms: int = 0


@attrs.frozen
class NothingWaits:
    """No other event waits: what was accepted may be committed. Only wanted while `has_accepted`."""

    now_ms: int


@attrs.frozen
class EndsMoved:
    """Sources have grown.

    Args:
        ends: source topic -> end offset of each partition, of those that have moved.
        now_ms: time.
        markers: markers since which all of them were looked at.
    """

    ends: Mapping[str, Sequence[int]]
    now_ms: int
    markers: tuple[str, ...] = ()


@attrs.frozen
class SourcesFailed:
    """It cannot be seen any more how far the sources reach."""

    error: StreamsException
    now_ms: int


@attrs.frozen
class StopRequested:
    """Somebody wants the run to end before all rows are processed: after the batches that are being processed."""

    reason: str
    now_ms: int


@attrs.frozen
class MarkerWanted:
    """Somebody asks for a cut over all tasks that has everything in it that is there now."""

    name: str
    now_ms: int


@attrs.frozen
class LauncherFailed:
    """Whoever launches the clients has given up."""

    error: StreamsException
    now_ms: int


@attrs.frozen
class PermitRenewed:
    """What clients make counts with another permit from now on, and with no other one.

    Args:
        permit: the permit.
        number: that of the `RenewPermit`; 0: nobody has wanted it.
        now_ms: time.
    """

    permit: bytes
    number: int
    now_ms: int


@attrs.frozen
class PermitFailed:
    """There are no more permits."""

    error: StreamsException
    now_ms: int


@attrs.frozen
class LeaveWanted:
    """A client is to leave the group after its batches: its tasks are given to others, then it is told to stop.

    Args:
        client: its name; nothing happens if there is no such member.
        reason: why.
        now_ms: time.
    """

    client: str
    reason: str
    now_ms: int


@attrs.frozen
class ClientsExpected:
    """The run shall begin as soon as so many clients are there."""

    count: int
    now_ms: int


@attrs.frozen
class AssignorAnswered:
    """The group's leader is done with the question.

    Args:
        outcome: what it says, or why it cannot.
        now_ms: time.
    """

    outcome: GroupRebalance | StreamsException
    now_ms: int


@attrs.frozen
class Abandoned:
    """Whoever runs the coordinator was interrupted: everything ends now, whatever is in progress."""

    now_ms: int


CoordinatorEvent = (
    FromClient
    | ConnectionLost
    | Tick
    | NothingWaits
    | EndsMoved
    | SourcesFailed
    | StopRequested
    | MarkerWanted
    | LauncherFailed
    | PermitRenewed
    | PermitFailed
    | LeaveWanted
    | ClientsExpected
    | AssignorAnswered
    | Abandoned
)

# Instructions.


@attrs.frozen
class SendToClient:
    """Send a message over a connection; if it is gone, drop it."""

    connection: int
    message: ToClient


@attrs.frozen
class CloseConnection:
    """Close a connection, after what was sent over it."""

    connection: int


@attrs.frozen
class AskAssignor:
    """Ask the group's leader, then bring `AssignorAnswered`. It runs somebody else's code, which may take its time.

    Nothing else is asked before it has answered.

    Args:
        clients: the clients of the group.
        end_offset_sums: task -> end offsets of its changelogs, summed.
        now_ms: time that the assignor is told.
    """

    clients: tuple[GroupClient, ...]
    end_offset_sums: Mapping[TaskId, int]
    now_ms: int


@attrs.frozen
class RenewPermit:
    """See to it that nothing counts that is made with the permits so far, then bring `PermitRenewed`.

    Args:
        client: the client that was given up.
        number: what the answer is known by.
    """

    client: str
    number: int


@attrs.frozen
class LookAtSources:
    """Look how far all sources reach, and bring an `EndsMoved` that names the marker."""

    marker: str


@attrs.frozen
class StoreCommit:
    """Commit batches, or an assignment; must succeed before anything that follows."""

    record: CommitRecord


@attrs.frozen
class StoreCheckpoint:
    """Write a checkpoint when there is time for it, unless a newer one is due by then; if it cannot be written, all goes on.

    Args:
        number: the last record that it replaces.
        state: what the records up to there have led to.
    """

    number: int
    state: SavedProgress


@attrs.frozen
class DeleteFiles:
    """Delete files of the run that nobody needs any more, when there is time for it; if one stays, it takes up space."""

    names: tuple[str, ...]


@attrs.frozen
class Announce:
    """Tell those who watch."""

    event: RunEvent


@attrs.frozen
class Finished:
    """The run is over; None: as it should, else why not."""

    error: StreamsException | None


CoordinatorInstruction = (
    SendToClient
    | CloseConnection
    | AskAssignor
    | RenewPermit
    | LookAtSources
    | StoreCommit
    | StoreCheckpoint
    | DeleteFiles
    | Announce
    | Finished
)
