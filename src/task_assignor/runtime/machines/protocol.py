"""What coordinator and clients say to each other: plain values.

Who says what when is in the two state machines, how it travels in their shells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from task_assignor.runtime.blame import CodeLine
from task_assignor.runtime.machines.encoding import Count, Message, Number, Value
from task_assignor.runtime.machines.records import FileRef, Piece, RoutedFile, TaskCommit, TaskSnapshot
from task_assignor.sdk import HostInfo, TaskId


class Position(Value, frozen=True, array_like=True, eq=False):
    """How far the state of a task is.

    Batch, generation and epoch together name one try: a state is only worth something if just this try was committed.

    Args:
        batch: the last of the task's batches in it; -1: nothing yet.
        generation: the generation under which that batch was processed.
        changelog_offset: rows of the task's changelogs that led there.
        stream_time: newest time of all records that led there, ms; None: there were none. It follows from the batch.
        epoch_ms: when the coordinator began under which that batch was processed, milliseconds since 1970: in a run folder
            that was restored from a copy, batches and generations have the numbers that they had had before.
    """

    batch: Number = -1
    generation: Count = 0
    changelog_offset: Count = 0
    stream_time: int | None = None
    epoch_ms: Count = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Position):
            return NotImplemented
        return self.is_same_try(other) and self.changelog_offset == other.changelog_offset

    def __ne__(self, other: object) -> bool:
        # What msgspec has for its values does not ask `__eq__`.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.batch, self.generation, self.changelog_offset))

    def is_same_try(self, other: Position) -> bool:
        """Both are the same batch of the same generation and epoch."""
        return (self.batch, self.generation, self.epoch_ms) == (other.batch, other.generation, other.epoch_ms)


START = Position()
"""The position of a task that has no state."""


class Change(Value, frozen=True, array_like=True):
    """What one committed batch of a task changed in its stores: one step of a restore.

    Args:
        position: where the state is after it.
        changelogs: store -> file of its changes.
    """

    position: Position
    changelogs: Mapping[str, FileRef] = msgspec.field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.seal.size for file in self.changelogs.values())


KEPT_SNAPSHOTS: Final = 2
"""If the newest is damaged, the one before it and the changes since that one will do."""


def position_of(found: TaskSnapshot | TaskCommit) -> Position:
    """What a snapshot holds, or where a batch has led."""
    return Position(found.batch, found.generation, found.changelog_offset, found.stream_time, found.epoch_ms)


class Recovery(msgspec.Struct, rename="camel"):
    """From what the state of a task is restored: the newest snapshots, and the changes after the oldest of them.

    Args:
        start: where a state with nothing in it is: no batch up to there changed anything.
        snapshots: newest first.
        changes: what each batch changed after the oldest of the snapshots or, as long as there are less than two,
            after the start; one after the other.
    """

    start: Position = START
    snapshots: list[TaskSnapshot] = msgspec.field(default_factory=list)
    changes: list[Change] = msgspec.field(default_factory=list)

    @property
    def floor(self) -> Position:
        """The position before the first change: older states are of no use."""
        return position_of(self.snapshots[-1]) if len(self.snapshots) == KEPT_SNAPSHOTS else self.start

    @property
    def end(self) -> Position:
        """The position after the last change."""
        return self.changes[-1].position if self.changes else self.floor

    @property
    def newest(self) -> TaskSnapshot | None:
        """The newest snapshot."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def unsaved(self) -> list[Change]:
        """The changes after the newest snapshot."""
        newest = self.newest
        return self.after(position_of(newest) if newest else self.floor)

    def add(self, change: Change) -> None:
        """A batch was committed."""
        if change.changelogs or self.changes or self.snapshots:
            self.changes.append(change)
        else:
            self.start = change.position

    def add_snapshot(self, snapshot: TaskSnapshot) -> None:
        """A snapshot was committed: what comes before the one before it is not needed any more."""
        self.snapshots = [snapshot, *self.snapshots][:KEPT_SNAPSHOTS]
        self.changes = [change for change in self.changes if change.position.batch > self.floor.batch]

    def reaches(self, position: Position) -> bool:
        """The changes lead on from there."""
        number = position.batch - self.floor.batch
        if not 0 <= number <= len(self.changes):
            return False
        return (self.changes[number - 1].position if number else self.floor).is_same_try(position)

    def after(self, position: Position) -> list[Change]:
        """The changes after a position that they reach."""
        return self.changes[position.batch - self.floor.batch :]

    def copy(self) -> Recovery:
        """The same; what is added to one is not added to the other."""
        return Recovery(self.start, list(self.snapshots), list(self.changes))

    def validate(self) -> None:
        """Raise AssertionError if something holds that never may."""
        first = self.floor.batch + 1
        assert all(change.position.batch == number for number, change in enumerate(self.changes, start=first))
        assert all(self.reaches(position_of(snapshot)) for snapshot in self.snapshots)


class TaskOrder(Value, frozen=True, array_like=True):
    """Process these rows.

    Args:
        task: the task.
        batch: number of the task's micro-batch.
        generation: generation of the order: part of the name of every file that comes of it.
        ranges: source topic -> (first offset, offset after the last) of the rows that may be read.
        base: where the task's state must be before.
        more: source topics that have rows beyond those, or are waited for.
        pieces: source topic -> where its rows are, of those that are repartition topics and have some.
        is_last: no source has rows beyond those now, and nobody is about to write some.
        times: source topic -> (offset, up to which time all who write the topic have come from there on, ms), ascending, of those
            that have such a time.
        since: generation since which the task has been with who is to do it, and nowhere else.
        at_most: so many rows of each source may be read, if there are more than the ranges say when it is begun; 0: those alone.
    """

    task: TaskId
    batch: Count
    generation: Count
    ranges: Mapping[str, tuple[Count, Count]]
    base: Position
    more: frozenset[str] = frozenset()
    pieces: Mapping[str, tuple[Piece, ...]] = msgspec.field(default_factory=dict)
    is_last: bool = False
    times: Mapping[str, tuple[tuple[Count, int], ...]] = msgspec.field(default_factory=dict)
    since: Count = 0
    at_most: Count = 0


class TaskResult(Message, frozen=True):
    """What came of an order.

    Args:
        task: the task.
        batch: number of the task's micro-batch.
        generation: generation of the order.
        offsets: source topic -> (first offset, offset after the last) of the rows that were processed.
        outputs: output -> its file.
        changelogs: store -> its file.
        position: where the task's state is now.
        counters: what the processor counted.
        seconds: time of processing and writing.
        is_found: it was not made now, but had been before, where others than the coordinator make it visible; it may reach
            beyond the order.
        repartitions: repartition topic -> its file.
        attempt: what executed it, if that is not what executes its client.
        seals: source topic -> checksum of the file with the last row that was read of it, or that record of Kafka and its leader epoch.
        is_short: of a source there are rows that cannot be read yet, whoever asks; so maybe none were.
        times: source topic that many tasks write -> up to which time all of these had come, as the order said, ms.
        to_come: repartition topic that windows write -> no row that the task still writes there is older than this, ms.
    """

    task: TaskId
    batch: Count
    generation: Count
    offsets: Mapping[str, tuple[Count, Count]]
    outputs: Mapping[str, FileRef]
    changelogs: Mapping[str, FileRef]
    position: Position
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    is_found: bool = False
    repartitions: Mapping[str, RoutedFile] = msgspec.field(default_factory=dict)
    attempt: str = ""
    seals: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_short: bool = False
    times: Mapping[str, int] = msgspec.field(default_factory=dict)
    to_come: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def files(self) -> list[FileRef]:
        """Everything that was written."""
        routed = (found.file for found in self.repartitions.values())
        return [*self.outputs.values(), *self.changelogs.values(), *routed]


class TaskFailure(Message, frozen=True):
    """An order or a restore failed; the run cannot go on.

    Args:
        task: the task.
        kind: "processor", "bad" or "late" (it at a record), "log" (a file cannot be read) or "client" (anything else).
        message: the story, complete.
        traceback: the client's traceback, as text.
        place: for "bad" and "late": topic, partition and offset of the record; for "log": those of the file, and its path.
        line: for "processor", "bad" and "late": the line of the user's code that failed, if there is one.
        floor: for a restore: from which batch on it needed changes; if a newer snapshot has taken their place meanwhile,
            they may be gone.
    """

    task: TaskId
    kind: str
    message: str
    traceback: str = ""
    place: tuple[str, int, int, str] = ("", -1, -1, "")
    line: CodeLine | None = None
    floor: int | None = None


class Restored(Message, frozen=True):
    """What a restore did.

    Args:
        task: the task.
        position: where its state is now.
        rows: rows read from changelogs.
        snapshot_rows: rows read from a snapshot.
        origin: "memory", "disk", "snapshot" (a local one), "shared" (one in the folder of the run) or "changelog".
        seconds: how long it took.
        fetched_bytes: bytes of the snapshot that were not here already.
    """

    task: TaskId
    position: Position
    rows: int = 0
    snapshot_rows: int = 0
    origin: str = "memory"
    seconds: float = 0.0
    fetched_bytes: int = 0


# From a client to the coordinator.


class Hello(Message, frozen=True):
    """A client wants to join.

    Args:
        client: its name.
        process_id: its process id, as text.
        run_id: the run that it was started for.
        threads: its weight.
        rack: its rack, if known.
        tags: its tags.
        host_info: where it answers queries, if it does.
        attempt: what executes it.
        host: where it runs.
        pid: its operating system process.
        positions: task -> the states that it has, in memory or on disk, newest first; some may not count.
    """

    client: str
    process_id: str
    run_id: str
    threads: int
    rack: str | None
    tags: Mapping[str, str]
    host_info: HostInfo | None
    attempt: str
    host: str
    pid: int
    positions: Mapping[TaskId, tuple[Position, ...]]


class Heartbeat(Message, frozen=True):
    """A client lives.

    Args:
        positions: task -> position of its standbys, if they changed.
        rows_in: rows that it has processed since it started.
        restored_rows: rows that it has read from changelogs since it started.
    """

    positions: Mapping[TaskId, Position]
    rows_in: int
    restored_rows: int


class Work(Value, frozen=True, array_like=True):
    """Something that a client does with a task.

    Args:
        kind: "process", "restore", "snapshot", "close", "delete", or "share": a snapshot is written into the folder of the run.
        task: the task.
        steps: how often it has got on since it began.
        doing: what it does now, as a sentence; "": it has just begun, or runs a processor's code.
    """

    kind: str
    task: TaskId
    steps: int = 0
    doing: str = ""


class Running(Message, frozen=True):
    """What is new of what the client does: said before it begins, when it gets on, and when it has ended, if no answer tells that.

    Args:
        works: number, which nothing else that it does ever has -> what it has begun, or has got on with.
        ended: numbers of what it does no more.
    """

    works: Mapping[int, Work]
    ended: tuple[int, ...] = ()


class TaskDone(Message, frozen=True):
    """An order is carried out."""

    result: TaskResult


class TaskFailed(Message, frozen=True):
    """An order or a restore failed."""

    failure: TaskFailure


class TaskReady(Message, frozen=True):
    """After an assignment: the state of a task is up to date for the first time.

    Args:
        restored: what that took.
        role: "active" or "standby".
    """

    restored: Restored
    role: str


class PunctuationDue(Message, frozen=True):
    """An active task has nothing to do, and may have something scheduled by the clock that is due: it wants a batch without rows.

    Args:
        task: the task.
    """

    task: TaskId


class GivenBack(Message, frozen=True):
    """Orders that the client had not begun when their tasks were given to somebody else.

    Args:
        orders: those.
    """

    orders: tuple[TaskOrder, ...]


class TaskClosed(Message, frozen=True):
    """A task that is not the client's any more is closed.

    Args:
        task: the task.
        positions: the states of it that are left on the client's disk, newest first; some may not count.
    """

    task: TaskId
    positions: tuple[Position, ...] = ()


class Leave(Message, frozen=True):
    """The client wants to leave: its tasks shall be given to others, then it shall be told to stop.

    Args:
        reason: why.
    """

    reason: str


class SnapshotTaken(Message, frozen=True):
    """The state of an active task is in the folder of the run.

    Args:
        snapshot: what it is made of.
    """

    snapshot: TaskSnapshot


class SnapshotMissed(Message, frozen=True):
    """A snapshot of an active task could not be written; another one is tried when the next is due.

    Args:
        task: the task.
        reason: why.
    """

    task: TaskId
    reason: str


class Goodbye(Message, frozen=True):
    """The client has stopped as it was told.

    Args:
        left_out: tasks without a snapshot of where they ended, because there was no more time.
    """

    left_out: int = 0


# From a client's heartbeat process to the coordinator.


class Alive(Message, frozen=True):
    """The client's process runs.

    Args:
        member_id: its member id.
    """

    member_id: str


class Gone(Message, frozen=True):
    """The client's process has ended.

    Args:
        member_id: its member id.
    """

    member_id: str


ToCoordinator = (
    Hello
    | Heartbeat
    | Running
    | TaskDone
    | TaskFailed
    | TaskReady
    | PunctuationDue
    | GivenBack
    | TaskClosed
    | Leave
    | SnapshotTaken
    | SnapshotMissed
    | Goodbye
    | Alive
    | Gone
)

# From the coordinator to a client.


class Welcome(Message, frozen=True):
    """The client is a member now.

    Args:
        member_id: its member id; a client that joins again gets another one.
        permit: the newest, as in `Permit`, if there is one.
    """

    member_id: str
    permit: bytes = b""


class Permit(Message, frozen=True):
    """What the client makes counts with this permit alone from now on.

    Args:
        permit: the permit; what it says is known where results are, and not here.
    """

    permit: bytes


class Assign(Message, frozen=True):
    """The tasks of the client from now on.

    Args:
        generation: the generation.
        active: active task -> its committed position.
        standby: standby task -> its committed position.
        recovery: task that the client did not have before -> what it is restored from.
    """

    generation: int
    active: Mapping[TaskId, Position]
    standby: Mapping[TaskId, Position]
    recovery: Mapping[TaskId, Recovery] = msgspec.field(default_factory=dict)


class Process(Message, frozen=True):
    """Carry out orders."""

    orders: tuple[TaskOrder, ...]


class Committed(Message, frozen=True):
    """Batches are visible.

    Args:
        changes: for the client's own tasks, active and standby: what was committed.
        snapshots: for these: snapshots that were committed.
    """

    changes: Mapping[TaskId, Change]
    snapshots: Mapping[TaskId, TaskSnapshot] = msgspec.field(default_factory=dict)


class Heard(Message, frozen=True):
    """A heartbeat has come. It is answered where it arrives, whatever the coordinator itself waits for."""


class Refused(Message, frozen=True):
    """The client is no member (any more).

    Args:
        reason: why.
        may_rejoin: it may say hello again.
    """

    reason: str
    may_rejoin: bool


class Stop(Message, frozen=True):
    """The run is over: write snapshots and end.

    Args:
        reason: why.
        snapshot: whether snapshots are worth writing.
    """

    reason: str
    snapshot: bool = True


class EndProcess(Message, frozen=True):
    """To the heartbeat process: end the client's process, which hangs."""


ToClient = Welcome | Permit | Assign | Process | Committed | Heard | Refused | Stop | EndProcess
