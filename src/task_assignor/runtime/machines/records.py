"""What a run has done, as its log keeps it: commits, and who was to run what. Plain values and their JSON; no files here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from task_assignor.sdk import TaskId

_TOPIC: Final = "topic://"
FORMAT_VERSION: Final = 6


@attrs.frozen
class Seal:
    """What an Arrow file was when it was written: by this it is known again.

    Args:
        rows: its rows.
        size: its bytes.
        checksum: CRC-32 of its bytes, 8 hexadecimal digits.
    """

    rows: int
    size: int
    checksum: str

    def to_json(self) -> list[Any]:
        """The seal as a list."""
        return [self.rows, self.size, self.checksum]


def _to_columns(columns: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in columns)


@attrs.frozen
class FileRef:
    """Rows of a commit: a file in the folder of the run, or records of a topic elsewhere.

    Args:
        path: relative to the folder of the run; or `topic://<topic>`, and `/<partition>/<first offset>-<offset after the last>`.
        seal: its rows, bytes and checksum; records of a topic have no checksum.
        columns: names and types of its columns; of records of a topic none.
    """

    path: str
    seal: Seal
    columns: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_to_columns)

    @classmethod
    def of_topic(
        cls, topic: str, rows: int, size: int, partition: int | None = None, start: int = 0, end: int = 0
    ) -> FileRef:
        """Records of a topic.

        Args:
            topic: its name.
            rows: the rows that they hold.
            size: bytes of the records.
            partition: the partition that they are in; None: any.
            start: first offset.
            end: offset after the last.
        """
        where = "" if partition is None else f"/{partition}/{start}-{end}"
        return cls(f"{_TOPIC}{topic}{where}", Seal(rows, size, ""))

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

    def to_json(self) -> list[Any]:
        """For the commit record."""
        return [self.path, *self.seal.to_json(), [list(column) for column in self.columns]]

    @classmethod
    def from_json(cls, document: list[Any]) -> FileRef:
        """What `to_json` wrote."""
        path, rows, size, checksum, columns = document
        return cls(path, Seal(rows, size, checksum), columns)


@attrs.frozen
class RoutedFile:
    """A file of rows for a repartition topic: those of partition 0, then those of partition 1, and so on.

    Args:
        file: the file.
        rows: how many rows each partition has.
    """

    file: FileRef
    rows: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """For the commit record."""
        return [self.file.to_json(), list(self.rows)]

    @classmethod
    def from_json(cls, document: list[Any]) -> RoutedFile:
        """What `to_json` wrote."""
        file, rows = document
        return cls(FileRef.from_json(file), tuple(rows))


@attrs.frozen
class Part:
    """A file of a snapshot; it never changes.

    Args:
        name: its name in the folder of the parts.
        seal: what it is known by.
    """

    name: str
    seal: Seal

    def to_json(self) -> list[Any]:
        """The part as a list."""
        return [self.name, *self.seal.to_json()]

    @classmethod
    def from_json(cls, document: list[Any]) -> Part:
        """What `to_json` wrote."""
        name, *seal = document
        if not isinstance(name, str) or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} is no name of a part")
        return cls(name, Seal(*seal))


@attrs.frozen
class SavedStore:
    """A store in a snapshot.

    Args:
        kind: what can load it.
        parts: its parts, in order.
        state: what else it takes, as JSON knows it.
    """

    kind: str
    parts: tuple[Part, ...]
    state: Mapping[str, Any] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For the description of a snapshot."""
        return {"kind": self.kind, "parts": [part.to_json() for part in self.parts], "state": dict(self.state)}

    def check(self, kind: str) -> None:
        """Raise ValueError if something else wrote it."""
        if self.kind != kind:
            raise ValueError(f"it was written by a store of kind {self.kind!r}, and this one is {kind!r}")

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SavedStore:
        """What `to_json` wrote."""
        return cls(document["kind"], tuple(map(Part.from_json, document["parts"])), document["state"])


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


@attrs.frozen
class TaskSnapshot:
    """The state of a task after a batch, in the folder of the run.

    Args:
        task: the task.
        batch: number of the batch.
        generation: generation under which it was processed.
        changelog_offset: end offset of the task's changelogs after it.
        stream_time: newest time of all records until then, ms; None: none had one.
        stores: store -> what it is made of.
        paths: name of a part -> its file.
    """

    task: TaskId
    batch: int
    generation: int
    changelog_offset: int
    stream_time: int | None
    stores: Mapping[str, SavedStore]
    paths: Mapping[str, str]

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

    def to_json(self) -> dict[str, Any]:
        """For the commit record."""
        return {
            "batch": self.batch,
            "generation": self.generation,
            "changelogOffset": self.changelog_offset,
            "streamTime": self.stream_time,
            "stores": {name: saved.to_json() for name, saved in self.stores.items()},
            "paths": dict(self.paths),
        }

    @classmethod
    def from_json(cls, task: str, document: dict[str, Any]) -> TaskSnapshot:
        """What `to_json` wrote."""
        return cls(
            TaskId.parse(task),
            document["batch"],
            document["generation"],
            document["changelogOffset"],
            document["streamTime"],
            {name: SavedStore.from_json(saved) for name, saved in document["stores"].items()},
            document["paths"],
        )


@attrs.frozen
class TaskCommit:
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
    """

    task: TaskId
    batch: int
    client: str
    process_id: str
    member_id: str
    attempt: str
    generation: int
    offsets: Mapping[str, tuple[int, int]]
    outputs: Mapping[str, FileRef] = attrs.field(factory=dict)
    changelogs: Mapping[str, FileRef] = attrs.field(factory=dict)
    changelog_offset: int = 0
    counters: Mapping[str, int] = attrs.field(factory=dict)
    seconds: float = 0.0
    stream_time: int | None = None
    repartitions: Mapping[str, RoutedFile] = attrs.field(factory=dict)

    @property
    def rows_in(self) -> int:
        """Rows read."""
        return sum(end - start for start, end in self.offsets.values())

    @property
    def rows_out(self) -> int:
        """Rows given to outputs."""
        return sum(file.rows for file in self.outputs.values())

    def to_json(self) -> dict[str, Any]:
        """For the commit record."""
        routed = {name: found.to_json() for name, found in self.repartitions.items()}
        return {
            "batch": self.batch,
            "client": self.client,
            "processId": self.process_id,
            "memberId": self.member_id,
            "attempt": self.attempt,
            "generation": self.generation,
            "offsets": {topic: list(span) for topic, span in self.offsets.items()},
            "outputs": {name: file.to_json() for name, file in self.outputs.items()},
            "changelogs": {name: file.to_json() for name, file in self.changelogs.items()},
            "changelogOffset": self.changelog_offset,
            "counters": dict(self.counters),
            "seconds": round(self.seconds, 6),
            "streamTime": self.stream_time,
            **({"repartitions": routed} if routed else {}),
        }

    @classmethod
    def from_json(cls, task: str, document: dict[str, Any]) -> TaskCommit:
        """What `to_json` wrote."""
        return cls(
            TaskId.parse(task),
            document["batch"],
            document["client"],
            document["processId"],
            document["memberId"],
            document["attempt"],
            document["generation"],
            {topic: (start, end) for topic, (start, end) in document["offsets"].items()},
            {name: FileRef.from_json(file) for name, file in document["outputs"].items()},
            {name: FileRef.from_json(file) for name, file in document["changelogs"].items()},
            document["changelogOffset"],
            document["counters"],
            document["seconds"],
            document["streamTime"],
            {name: RoutedFile.from_json(routed) for name, routed in document.get("repartitions", {}).items()},
        )


def _sorted(tasks: Iterable[TaskId]) -> tuple[TaskId, ...]:
    return tuple(sorted(tasks))


@attrs.frozen
class ClientTasks:
    """The tasks of one client.

    Args:
        active: tasks it processes, sorted.
        standby: tasks of which it keeps a copy of the state, sorted.
    """

    active: tuple[TaskId, ...] = attrs.field(default=(), converter=_sorted)
    standby: tuple[TaskId, ...] = attrs.field(default=(), converter=_sorted)


@attrs.frozen
class RebalanceRecord:
    """Who was to run what from a generation on.

    Args:
        generation: its number.
        reason: why there was a rebalance.
        clients: member id -> (client name, tasks).
    """

    generation: int
    reason: str
    clients: Mapping[str, tuple[str, ClientTasks]]

    def to_json(self) -> dict[str, Any]:
        """For the commit record."""
        return {
            "generation": self.generation,
            "reason": self.reason,
            "members": {
                member: {
                    "client": name,
                    "active": list(map(str, tasks.active)),
                    "standby": list(map(str, tasks.standby)),
                }
                for member, (name, tasks) in sorted(self.clients.items())
            },
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RebalanceRecord:
        """What `to_json` wrote."""
        members = {
            member: (
                found["client"],
                ClientTasks(map(TaskId.parse, found["active"]), map(TaskId.parse, found["standby"])),
            )
            for member, found in document["members"].items()
        }
        return cls(document["generation"], document["reason"], members)


@attrs.frozen
class CommitRecord:
    """One commit: a batch of each task that had one ready, snapshots that are there, or an assignment.

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
    """

    number: int
    application_id: str
    epoch: int
    generation: int
    committed_at_ms: int
    tasks: Mapping[TaskId, TaskCommit] = attrs.field(factory=dict)
    rebalance: RebalanceRecord | None = None
    opened_by: str = ""
    snapshots: Mapping[TaskId, TaskSnapshot] = attrs.field(factory=dict)

    @property
    def rows_in(self) -> int:
        """Rows read."""
        return sum(task.rows_in for task in self.tasks.values())

    @property
    def rows_out(self) -> int:
        """Rows given to outputs."""
        return sum(task.rows_out for task in self.tasks.values())

    def to_json(self) -> dict[str, Any]:
        """The content of the commit file."""
        return {
            "formatVersion": FORMAT_VERSION,
            "number": self.number,
            "applicationId": self.application_id,
            "epoch": self.epoch,
            "generation": self.generation,
            "committedAtMs": self.committed_at_ms,
            "tasks": {str(task): self.tasks[task].to_json() for task in sorted(self.tasks)},
            **({} if self.rebalance is None else {"rebalance": self.rebalance.to_json()}),
            **({"openedBy": self.opened_by} if self.opened_by else {}),
            **(
                {"snapshots": {str(task): self.snapshots[task].to_json() for task in sorted(self.snapshots)}}
                if self.snapshots
                else {}
            ),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> CommitRecord:
        """What `to_json` wrote."""
        if document["formatVersion"] != FORMAT_VERSION:
            raise ValueError(f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}")
        tasks = (TaskCommit.from_json(task, found) for task, found in document["tasks"].items())
        rebalance = document.get("rebalance")
        snapshots = (TaskSnapshot.from_json(task, found) for task, found in document.get("snapshots", {}).items())
        return cls(
            document["number"],
            document["applicationId"],
            document["epoch"],
            document["generation"],
            document["committedAtMs"],
            {commit.task: commit for commit in tasks},
            None if rebalance is None else RebalanceRecord.from_json(rebalance),
            document.get("openedBy", ""),
            {found.task: found for found in snapshots},
        )


@attrs.frozen
class Checkpoint:
    """What the records up to a number have led to.

    Args:
        number: the last record that it replaces; -1: none.
        epoch: that of the record.
        generation: that of the record.
        history: names of the files that hold what the records said, in order.
        columns: output -> column -> type, so far.
        state: how far every task is.
        at_ms: when the record was committed, milliseconds since the epoch.
        outputs: the files that hold the rows of outputs (`OutputFiles.to_json`).
        replaced: files of outputs that count no more, since their rows are in others; the checkpoint before has them.
        written: folder of outputs or repartition topics -> the last batch of which a file was committed there.
    """

    number: int = -1
    epoch: int = 0
    generation: int = 0
    history: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    state: Mapping[str, Any] = attrs.field(factory=dict)
    at_ms: int = 0
    outputs: Mapping[str, Any] = attrs.field(factory=dict)
    replaced: tuple[str, ...] = ()
    written: Mapping[str, int] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of its file."""
        return {
            "formatVersion": FORMAT_VERSION,
            "number": self.number,
            "epoch": self.epoch,
            "generation": self.generation,
            "history": list(self.history),
            "columns": {output: dict(columns) for output, columns in self.columns.items()},
            "state": dict(self.state),
            "atMs": self.at_ms,
            "outputs": dict(self.outputs),
            "replaced": list(self.replaced),
            "written": dict(self.written),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Checkpoint:
        """What `to_json` wrote."""
        if document["formatVersion"] != FORMAT_VERSION:
            raise ValueError(f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}")
        return cls(
            document["number"],
            document["epoch"],
            document["generation"],
            tuple(document["history"]),
            document["columns"],
            document["state"],
            document["atMs"],
            document["outputs"],
            tuple(document["replaced"]),
            document["written"],
        )
