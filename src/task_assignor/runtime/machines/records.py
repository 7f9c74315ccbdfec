"""What a run has done, as its log keeps it: commits, and who was to run what. Plain values; no files here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from task_assignor.runtime.machines.encoding import VERSION, Count, Value
from task_assignor.sdk import TaskId

_TOPIC: Final = "topic://"
FORMAT_VERSION: Final = 9


class Seal(Value, frozen=True, array_like=True):
    """What an Arrow file was when it was written: by this it is known again.

    Args:
        rows: its rows.
        size: its bytes.
        checksum: CRC-32 of its bytes, 8 hexadecimal digits.
    """

    rows: Count
    size: Count
    checksum: str


class FileRef(Value, frozen=True, array_like=True):
    """Rows of a commit: a file in the folder of the run, or records of a topic elsewhere.

    Args:
        path: relative to the folder of the run; or `topic://<topic>`, and `/<partition>/<first offset>-<offset after the last>`.
        seal: its rows, bytes and checksum; records of a topic have no checksum.
        columns: names and types of its columns; of the changes of a store that are records of a topic none.
    """

    path: str
    seal: Seal
    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_topic(
        cls,
        topic: str,
        rows: int,
        size: int,
        partition: int | None = None,
        start: int = 0,
        end: int = 0,
        columns: tuple[tuple[str, str], ...] = (),
    ) -> FileRef:
        """Records of a topic.

        Args:
            topic: its name.
            rows: the rows that they hold.
            size: bytes of the records.
            partition: the partition that they are in; None: any.
            start: first offset.
            end: offset after the last.
            columns: names and types of the columns of the rows, if somebody wants to know.
        """
        where = "" if partition is None else f"/{partition}/{start}-{end}"
        return cls(f"{_TOPIC}{topic}{where}", Seal(rows, size, ""), columns)

    @property
    def topic(self) -> str:
        """The topic that the records are in; "": it is a file."""
        return self.path.removeprefix(_TOPIC).partition("/")[0] if self.path.startswith(_TOPIC) else ""

    @property
    def offsets(self) -> tuple[int, int]:
        """Of records in one partition of a topic: first offset, offset after the last."""
        start, _, end = self.path.rpartition("/")[2].partition("-")
        return int(start), int(end)

    @property
    def rows(self) -> int:
        """Its rows."""
        return self.seal.rows


class RoutedFile(Value, frozen=True, array_like=True):
    """Rows for a repartition topic: a file with those of partition 0, then those of partition 1, and so on; or records elsewhere.

    Args:
        file: the file, or the records.
        rows: of a file how many rows each partition has.
        ends: of records per partition the offset after the last that the task has ever written there; 0: none.
        times: oldest and newest time of the rows, ms; None: none has one.
    """

    file: FileRef
    rows: tuple[Count, ...]
    ends: tuple[Count, ...] = ()
    times: tuple[int, int] | None = None


class Piece(Value, frozen=True, array_like=True):
    """Rows of one partition of a repartition topic that are together in a file.

    Args:
        file: the file.
        first: the first of them in the file, from 0.
        base: its offset.
        rows: how many.
    """

    file: FileRef
    first: Count
    base: Count
    rows: Count

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.base + self.rows


class Part(Value, frozen=True, array_like=True):
    """A file of a snapshot; it never changes.

    Args:
        name: its name in the folder of the parts.
        seal: what it is known by.
    """

    name: str
    seal: Seal

    def __post_init__(self) -> None:
        if "/" in self.name or self.name.startswith("."):
            raise ValueError(f"{self.name!r} is no name of a part")


class SavedStore(Value, frozen=True):
    """A store in a snapshot.

    Args:
        kind: what can load it.
        parts: its parts, in order.
        state: what else it takes, as JSON knows it.
    """

    kind: str
    parts: tuple[Part, ...]
    state: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def check(self, kind: str) -> None:
        """Raise ValueError if something else wrote it."""
        if self.kind != kind:
            raise ValueError(f"it was written by a store of kind {self.kind!r}, and this one is {kind!r}")


CHANGELOG: Final = "changelog"
SNAPSHOTS: Final = "snapshots"
OUTPUT: Final = "output"
REPARTITION: Final = "repartition"


def changelog_path(store: str, task: TaskId, batch: int, generation: int) -> str:
    """Where the changes of a task's store in a batch are in the folder of the run."""
    return f"{CHANGELOG}/{store}/{task.partition}/{batch:012d}-{generation:08d}.arrow"


def part_path(store: str, task: TaskId, batch: int, name: str) -> str:
    """Where a part of a snapshot of a batch is in the folder of the run; later snapshots may have it, too."""
    return f"{SNAPSHOTS}/{store}/{task.partition}/{batch:012d}-{name}"


class TaskSnapshot(Value, frozen=True):
    """The state of a task after a batch, in the folder of the run.

    Args:
        task: the task.
        batch: number of the batch.
        generation: generation under which it was processed.
        changelog_offset: end offset of the task's changelogs after it.
        stream_time: newest time of all records until then, ms; None: none had one.
        stores: store -> what it is made of.
        paths: name of a part -> its file.
        epoch_ms: when the coordinator began under which the batch was processed.
    """

    task: TaskId
    batch: Count
    generation: Count
    changelog_offset: Count
    stream_time: int | None
    stores: Mapping[str, SavedStore]
    paths: Mapping[str, str]
    epoch_ms: Count = 0

    @property
    def files(self) -> dict[str, tuple[str, Seal]]:
        """File -> (its store, its seal).

        Raises:
            KeyError: it is not said where a part is.
        """
        return {
            self.paths[part.name]: (store, part.seal) for store, saved in self.stores.items() for part in saved.parts
        }

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(seal.size for _, seal in self.files.values())


class TaskCommit(Value, frozen=True, omit_defaults=True):
    """What one task did in one committed batch, and who did it.

    Args:
        task: the task.
        batch: number of the task's micro-batch, from 0.
        client: name of the client.
        process_id: its process id, as text.
        member_id: its member id in the group.
        attempt: what executed it, as the launcher says: an operating system process, a Spark task attempt.
        generation: the generation under which it was ordered.
        offsets: source topic -> (first offset, offset after the last).
        outputs: output -> its file.
        changelogs: store -> its file.
        changelog_offset: end offset of the task's changelogs after the batch, summed.
        counters: what the processor counted.
        seconds: time of processing and writing, without restoring.
        stream_time: newest time of all records that the task has read, ms; None: none had one.
        repartitions: repartition topic -> the file of the rows for it.
        epoch_ms: when the coordinator began under which it was processed, milliseconds since the epoch.
        seals: source topic -> checksum of the file with the last row that was read of it, or that record of Kafka and its leader epoch.
        times: source topic that many tasks write -> up to which time all of these had come, as far as it was told, ms.
        to_come: repartition topic that windows write -> no row that the task still writes there is older than this, ms.
    """

    task: TaskId
    batch: Count
    client: str
    process_id: str
    member_id: str
    attempt: str
    generation: Count
    offsets: Mapping[str, tuple[Count, Count]]
    outputs: Mapping[str, FileRef] = msgspec.field(default_factory=dict)
    changelogs: Mapping[str, FileRef] = msgspec.field(default_factory=dict)
    changelog_offset: Count = 0
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    stream_time: int | None = None
    repartitions: Mapping[str, RoutedFile] = msgspec.field(default_factory=dict)
    epoch_ms: Count = 0
    seals: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: Mapping[str, int] = msgspec.field(default_factory=dict)
    to_come: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def rows_in(self) -> int:
        """Rows read."""
        return sum(end - start for start, end in self.offsets.values())

    @property
    def rows_out(self) -> int:
        """Rows given to outputs."""
        return sum(file.rows for file in self.outputs.values())


class ClientTasks(Value, frozen=True):
    """The tasks of one client.

    Args:
        active: tasks it processes, sorted.
        standby: tasks of which it keeps a copy of the state, sorted.
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


class RebalanceRecord(Value, frozen=True):
    """Who was to run what from a generation on.

    Args:
        generation: its number.
        reason: why there was a rebalance.
        clients: member id -> (client name, tasks).
    """

    generation: Count
    reason: str
    clients: Mapping[str, tuple[str, ClientTasks]]


class Marker(Value, frozen=True, array_like=True):
    """A cut over all tasks: all that was in the sources when it was asked for is done by this commit, repartitions included.

    Args:
        name: its name.
        commit: number of the commit.
        asked_at_ms: when it was asked for, milliseconds since the epoch.
        committed_at_ms: when it was reached.
    """

    name: str
    commit: Count
    asked_at_ms: int
    committed_at_ms: int


class CommitRecord(Value, frozen=True, omit_defaults=True, tag_field=VERSION, tag=FORMAT_VERSION):
    """One commit: a batch of each task that had one ready, snapshots that are there, an assignment, or markers.

    Args:
        number: its number, from 0.
        application_id: `application.id`.
        epoch: which coordinator made it, counted from 1.
        generation: generation of the group when it was committed.
        committed_at_ms: when, milliseconds since the epoch.
        tasks: what each task did; those that had nothing ready are absent.
        rebalance: the assignment that began with it.
        opened_by: who the coordinator is, in the first record of its epoch.
        snapshots: states of tasks that can be restored from now on without what led to them.
        markers: those that are reached with it.
    """

    number: Count
    application_id: str
    epoch: Count
    generation: Count
    committed_at_ms: int
    tasks: Mapping[TaskId, TaskCommit] = msgspec.field(default_factory=dict)
    rebalance: RebalanceRecord | None = None
    opened_by: str = ""
    snapshots: Mapping[TaskId, TaskSnapshot] = msgspec.field(default_factory=dict)
    markers: tuple[Marker, ...] = ()

    @property
    def rows_in(self) -> int:
        """Rows read."""
        return sum(task.rows_in for task in self.tasks.values())

    @property
    def rows_out(self) -> int:
        """Rows given to outputs."""
        return sum(task.rows_out for task in self.tasks.values())
