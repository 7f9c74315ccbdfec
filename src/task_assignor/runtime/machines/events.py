"""What happened, for people and programs that watch a run: plain values, no behaviour. Protocol messages are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from task_assignor.runtime.machines.encoding import Value
from task_assignor.runtime.machines.records import ClientTasks
from task_assignor.sdk import TaskId


class ClientJoined(Value, frozen=True):
    """A client registered with the coordinator.

    Args:
        client: its name.
        process_id: its process id, as text.
        member_id: the member id it got.
        attempt: what executes it, as the launcher says.
        host: where it runs.
        pid: its operating system process there.
        restorable: tasks of which its state directory has a snapshot.
    """

    client: str
    process_id: str
    member_id: str
    attempt: str
    host: str
    pid: int
    restorable: tuple[TaskId, ...] = ()


class ClientLost(Value, frozen=True):
    """A client is not in the group any more, although nobody told it to leave.

    Args:
        client: its name.
        member_id: its member id, which is now fenced.
        reason: why: connection closed, no heartbeat for so long, replaced.
        waits_ms: no client is there any more, and the run waits so long for one; 0: others are there.
    """

    client: str
    member_id: str
    reason: str
    waits_ms: int = 0


class ClientLeft(Value, frozen=True):
    """A client left as it should: its batches were committed and its tasks given to others before.

    Args:
        client: its name.
        member_id: its member id.
        reason: why it was to leave.
        waits_ms: no client is there any more, and the run waits so long for one; 0: others are there.
    """

    client: str
    member_id: str
    reason: str
    waits_ms: int = 0


class Rebalanced(Value, frozen=True):
    """There is a new generation.

    Args:
        generation: its number.
        reason: why, in one line.
        assignment: client name -> its tasks.
        moved: (task, former client, new client) of active tasks that changed clients; "" where there was none.
        kept: why the former assignment was kept (the assignor asked to try again); "" normally.
        followup_deadline_ms: when the next rebalance begins that a client asked for, ms since the epoch; None: nobody did.
        inexact: codes of goals that the assignor perhaps did not reach exactly, sorted.
        restoring: active task whose state its client has yet to bring up to date -> rows of its changelogs to be read for that; a
            snapshot may have the rest, or all.
        leaving: clients that get nothing, since they are to leave.
    """

    generation: int
    reason: str
    assignment: Mapping[str, ClientTasks]
    moved: tuple[tuple[TaskId, str, str], ...] = ()
    kept: str = ""
    followup_deadline_ms: int | None = None
    inexact: tuple[str, ...] = ()
    restoring: Mapping[TaskId, int] = msgspec.field(default_factory=dict)
    leaving: tuple[str, ...] = ()


class TaskRestored(Value, frozen=True):
    """A client brought the state of a task up to date.

    Args:
        client: its name.
        task: the task.
        role: "active" or "standby".
        rows: rows read from changelogs.
        snapshot_rows: rows read from a snapshot.
        origin: what it started from: "memory", "disk" (stores on disk, where they were left), "snapshot" (a local one),
            "shared" (a snapshot in the folder of the run), "changelog" (nothing) or "new" (nothing to restore).
        batch: the state is that after this batch.
        seconds: how long it took.
        fetched_bytes: bytes of the snapshot that came from the folder of the run.
    """

    client: str
    task: TaskId
    role: str
    rows: int
    snapshot_rows: int
    origin: str
    batch: int
    seconds: float
    fetched_bytes: int = 0


class TaskStalled(Value, frozen=True):
    """A client has not got on with a task for some time; told again after twice that time, until it gets on or is given up.

    Args:
        client: its name.
        task: the task.
        reason: what it is at.
        stalled_ms: for how long.
    """

    client: str
    task: TaskId
    reason: str
    stalled_ms: int


class SnapshotCommitted(Value, frozen=True):
    """The state of a task can be restored from a snapshot in the folder of the run and the changes after it.

    Args:
        commit: number of the commit.
        task: the task.
        batch: the state is that after this batch.
        files: files that it is made of; those that an older one had are not written again.
        size: their bytes.
    """

    commit: int
    task: TaskId
    batch: int
    files: int
    size: int


class SnapshotRefused(Value, frozen=True):
    """A snapshot could not be written, or does not count; another one is tried when the next is due.

    Args:
        client: whose snapshot it was.
        task: the task.
        reason: why.
    """

    client: str
    task: TaskId
    reason: str


class SnapshotsLeftOut(Value, frozen=True):
    """A client ended before it had written a snapshot of each of its tasks: they are restored from older ones, and changes since.

    Args:
        client: its name.
        tasks: how many are without one.
    """

    client: str
    tasks: int


class BatchesCommitted(Value, frozen=True):
    """Batches of some tasks became visible, together.

    Args:
        commit: number of the commit.
        generation: generation of the group.
        batches: task -> number of its batch.
        rows_in: rows read.
        rows_out: rows given to outputs.
        rows_by_client: client name -> rows read.
        seconds: since the oldest of them was ordered.
        remaining: source rows that are still to be read.
        rows_by_task: task -> rows read.
        counters: what the processors counted, all tasks together.
        lags: of these tasks, and of those that read what they wrote: source topic -> rows of its partition that are there and not
            committed.
        found: of those whose results were in Kafka already, task -> rows that they are made of: `rows_in` counts them, `rows_out`
            does not count what was written for them.
    """

    commit: int
    generation: int
    batches: Mapping[TaskId, int]
    rows_in: int
    rows_out: int
    rows_by_client: Mapping[str, int]
    seconds: float
    remaining: int
    rows_by_task: Mapping[TaskId, int] = msgspec.field(default_factory=dict)
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    lags: Mapping[TaskId, Mapping[str, int]] = msgspec.field(default_factory=dict)
    found: Mapping[TaskId, int] = msgspec.field(default_factory=dict)


class MarkerReached(Value, frozen=True):
    """Everything is done that was there when a marker was asked for; outputs can be read as they are now.

    Args:
        name: its name.
        commit: number of the commit.
        offsets: topic -> per partition the offset up to which its rows are in it.
        seconds: since it was asked for.
    """

    name: str
    commit: int
    offsets: Mapping[str, tuple[int, ...]]
    seconds: float


class MarkerRefused(Value, frozen=True):
    """There is no marker, although somebody has asked for one.

    Args:
        name: its name.
        reason: why.
    """

    name: str
    reason: str


class SourcesGrown(Value, frozen=True):
    """Tasks have more to read than before; at the beginning of a run, all of them.

    Args:
        lags: task -> source topic -> rows of its partition that are there and not committed.
    """

    lags: Mapping[TaskId, Mapping[str, int]]


class ClientProgress(Value, frozen=True):
    """A client's heartbeat said something new.

    Args:
        client: its name.
        active: its active tasks.
        standby: its standby tasks.
        rows_in: rows it has processed since it started.
        restored_rows: rows it has read from changelogs since it started, standbys included.
        standby_lag: rows of the changelogs that its standbys have not read yet.
    """

    client: str
    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]
    rows_in: int
    restored_rows: int
    standby_lag: int


class ResultRefused(Value, frozen=True):
    """A late answer of a client that no longer owns the task was thrown away.

    Args:
        client: who sent it.
        task: for which task.
        batch: for which batch.
        generation: under which generation it was ordered.
        reason: why it does not count.
    """

    client: str
    task: TaskId
    batch: int
    generation: int
    reason: str


class RunStopping(Value, frozen=True):
    """Somebody wants the run to end: the batches that are being processed are finished and committed, then it ends.

    Args:
        reason: who, or why.
    """

    reason: str


class RunFinished(Value, frozen=True):
    """All rows are processed and committed.

    Args:
        batches: number of committed batches of all tasks, earlier runs included.
        rows_in: rows read by this run.
        rows_out: rows given to outputs by this run.
        seconds: since the clients were there that the run waits for; the assignor's first decision counts, unlike in
            `RunResult.seconds`.
    """

    batches: int
    rows_in: int
    rows_out: int
    seconds: float


class RunFailed(Value, frozen=True):
    """The run stops; what was committed stays.

    Args:
        message: why, with the traceback of the client where there is one.
    """

    message: str


RunEvent = (
    ClientJoined
    | ClientLost
    | ClientLeft
    | Rebalanced
    | TaskRestored
    | TaskStalled
    | SnapshotCommitted
    | SnapshotRefused
    | SnapshotsLeftOut
    | BatchesCommitted
    | MarkerReached
    | MarkerRefused
    | SourcesGrown
    | ClientProgress
    | ResultRefused
    | RunStopping
    | RunFinished
    | RunFailed
)
