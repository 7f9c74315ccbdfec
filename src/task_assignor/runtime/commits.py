"""The commit log of a run: which files count, and who made them. Only what is recorded here exists for readers.

A batch is one JSON file, `commits/<batch>.json`, that appears whole under a name that nobody else can have taken. It
names the files of output and changelog, the offsets, and for each task client, process, attempt and generation.
`rebalances/<generation>.json` says in the same way who was to run what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import CommitLogException, CorruptLogException
from task_assignor.runtime.files import open_arrow, write_json
from task_assignor.sdk import StreamsException, TaskId

FORMAT_VERSION: Final = 1


@attrs.frozen
class RunLayout:
    """Where things are in the folder of a run.

    Args:
        run_dir: the folder.
    """

    run_dir: Path = attrs.field(converter=Path)

    @property
    def application(self) -> Path:
        """What application the folder belongs to."""
        return self.run_dir / "application.json"

    @property
    def lock(self) -> Path:
        """Held by the living coordinator."""
        return self.run_dir / "coordinator.lock"

    def commit(self, batch: int) -> Path:
        """The commit record of a batch."""
        return self.run_dir / "commits" / f"{batch:012d}.json"

    def rebalance(self, generation: int) -> Path:
        """The record of a rebalance."""
        return self.run_dir / "rebalances" / f"{generation:08d}.json"

    def output(self, name: str, task: TaskId, batch: int, generation: int) -> Path:
        """Rows that a task gave for an output in a batch."""
        return self.run_dir / "output" / name / str(task.partition) / _file(batch, generation)

    def changelog(self, store: str, task: TaskId, batch: int, generation: int) -> Path:
        """Changes of a task's store in a batch."""
        return self.run_dir / "changelog" / store / str(task.partition) / _file(batch, generation)

    def client(self, name: str) -> Path:
        """State directory of a client, unless it has one of its own."""
        return self.run_dir / "clients" / name


def _file(batch: int, generation: int) -> str:
    return f"{batch:012d}-{generation:08d}.arrow"


@attrs.frozen
class FileRef:
    """A file of a commit.

    Args:
        path: relative to the folder of the run.
        rows: its rows.
    """

    path: str
    rows: int


@attrs.frozen
class TaskCommit:
    """What one task did in one committed batch, and who did it.

    Args:
        task: the task.
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
    """

    task: TaskId
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
        return {
            "client": self.client,
            "processId": self.process_id,
            "memberId": self.member_id,
            "attempt": self.attempt,
            "generation": self.generation,
            "offsets": {topic: list(span) for topic, span in self.offsets.items()},
            "outputs": {name: [file.path, file.rows] for name, file in self.outputs.items()},
            "changelogs": {name: [file.path, file.rows] for name, file in self.changelogs.items()},
            "changelogOffset": self.changelog_offset,
            "counters": dict(self.counters),
            "seconds": round(self.seconds, 6),
        }

    @classmethod
    def from_json(cls, task: str, document: dict[str, Any]) -> TaskCommit:
        """What `to_json` wrote."""
        return cls(
            TaskId.parse(task),
            document["client"],
            document["processId"],
            document["memberId"],
            document["attempt"],
            document["generation"],
            {topic: (start, end) for topic, (start, end) in document["offsets"].items()},
            {name: FileRef(*file) for name, file in document["outputs"].items()},
            {name: FileRef(*file) for name, file in document["changelogs"].items()},
            document["changelogOffset"],
            document["counters"],
            document["seconds"],
        )


@attrs.frozen
class CommitRecord:
    """One committed batch.

    Args:
        batch: its number, from 0.
        application_id: `application.id`.
        generation: generation of the group when it was committed.
        committed_at_ms: when, milliseconds since the epoch.
        tasks: what each task did; tasks without new rows are absent.
    """

    batch: int
    application_id: str
    generation: int
    committed_at_ms: int
    tasks: Mapping[TaskId, TaskCommit]

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
            "batch": self.batch,
            "applicationId": self.application_id,
            "generation": self.generation,
            "committedAtMs": self.committed_at_ms,
            "tasks": {str(task): self.tasks[task].to_json() for task in sorted(self.tasks)},
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> CommitRecord:
        """What `to_json` wrote."""
        if document["formatVersion"] != FORMAT_VERSION:
            raise ValueError(f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}")
        tasks = (TaskCommit.from_json(task, found) for task, found in document["tasks"].items())
        return cls(
            document["batch"],
            document["applicationId"],
            document["generation"],
            document["committedAtMs"],
            {commit.task: commit for commit in tasks},
        )


class CommitLog:
    """The committed batches of a run, read from disk; what was read once is kept.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.layout = RunLayout(Path(run_dir))
        self._records: dict[int, CommitRecord] = {}

    @property
    def last_batch(self) -> int:
        """Number of the last committed batch; -1: none. Looks at the disk.

        Raises:
            CommitLogException: a batch before it is missing.
        """
        folder = self.layout.commit(0).parent
        names = sorted(entry.name for entry in folder.glob("*.json")) if folder.is_dir() else []
        for batch, name in enumerate(names):
            if name != self.layout.commit(batch).name:
                raise CommitLogException(
                    f"The commit log {folder} has no batch {batch}, but later ones: the next file is {name}. "
                    "Maybe a file was deleted; what was computed after it cannot be trusted."
                )
        return len(names) - 1

    def record(self, batch: int) -> CommitRecord:
        """The record of a committed batch.

        Raises:
            CommitLogException: the batch is not committed, or its record cannot be read.
        """
        found = self._records.get(batch)
        if found is None:
            path = self.layout.commit(batch)
            try:
                found = CommitRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                raise CommitLogException(f"Batch {batch} is not committed: there is no {path}.") from None
            except (ValueError, KeyError, TypeError, AttributeError, StreamsException) as error:
                raise CommitLogException(
                    f"The commit record of batch {batch} cannot be read: {path} ({error})."
                ) from error
            self._records[batch] = found
        return found

    def records(self, after: int = -1) -> Iterator[CommitRecord]:
        """All committed batches after the given one, in order."""
        for batch in range(after + 1, self.last_batch + 1):
            yield self.record(batch)

    def append(self, record: CommitRecord) -> None:
        """Commit a batch: from now on its files count.

        Raises:
            CommitLogException: the batch is committed already: another coordinator works on this run.
        """
        path = self.layout.commit(record.batch)
        try:
            write_json(path, record.to_json(), exclusive=True)
        except FileExistsError:
            raise CommitLogException(
                f"Batch {record.batch} has been committed by somebody else: {path} exists. "
                "Maybe a second coordinator runs on the same folder; this one stops, its batch does not count."
            ) from None
        self._records[record.batch] = record


def committed_files(run_dir: str | Path, output: str) -> list[Path]:
    """The Arrow files of an output that count, by batch, then task."""
    layout = RunLayout(Path(run_dir))
    return [
        layout.run_dir / record.tasks[task].outputs[output].path
        for record in CommitLog(run_dir).records()
        for task in sorted(record.tasks)
        if output in record.tasks[task].outputs
    ]


def output_schema(run_dir: str | Path, output: str) -> pa.Schema | None:
    """The columns of an output: as declared, else those of its first committed file; None: neither is there."""
    document = _application(RunLayout(Path(run_dir)))
    declared = document.get("outputs", {}).get(output)
    if declared is not None:
        import base64

        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(declared)))
    files = committed_files(run_dir, output)
    if not files:
        return None
    with pa.memory_map(str(files[0]), "rb") as source, pa.ipc.open_file(source) as reader:
        return reader.schema


def read_output(run_dir: str | Path, output: str) -> pa.Table:
    """All committed rows of an output, by batch, then task; uncommitted files are not looked at.

    Raises:
        CommitLogException: there is no such output.
        CorruptLogException: a committed file cannot be read, or has not the rows that were committed.
    """
    layout = RunLayout(Path(run_dir))
    known = _application(layout).get("outputs", {})
    if output not in known:
        raise CommitLogException(
            f"The run in {run_dir} has no output {output!r}; its outputs: {', '.join(sorted(known))}."
        )
    tables = []
    for record in CommitLog(run_dir).records():
        for task in sorted(record.tasks):
            file = record.tasks[task].outputs.get(output)
            if file is not None:
                tables.append(open_committed(layout, file, "output", output, task.partition, record.batch))
    schema = output_schema(run_dir, output)
    if not tables:
        return pa.table({}) if schema is None else schema.empty_table()
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        raise CommitLogException(
            f"The rows of the output {output!r} do not have the same columns in all batches ({error}). "
            f"Maybe declare them: Output({output!r}, schema)."
        ) from error


def open_committed(layout: RunLayout, file: FileRef, what: str, name: str, partition: int, batch: int) -> pa.Table:
    """A file of a commit, checked against the number of rows that were committed.

    Raises:
        CorruptLogException: it cannot be read, or has another number of rows.
    """
    path = layout.run_dir / file.path
    table = open_arrow(path, what, name, partition, batch)
    if table.num_rows != file.rows:
        raise CorruptLogException(
            f"The {what} file of {name}, partition {partition}, batch {batch} has {table.num_rows} rows, but "
            f"{file.rows} were committed: {path}. Maybe it was changed afterwards.",
            name,
            partition,
            batch,
            str(path),
        )
    return table


def _application(layout: RunLayout) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(layout.application.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommitLogException(f"There is no run in {layout.run_dir}: {layout.application} is missing.") from None
    except ValueError as error:
        raise CommitLogException(
            f"The description of the run cannot be read: {layout.application} ({error})."
        ) from error
    return document


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
        after_batch: the last batch that had been committed.
    """

    generation: int
    reason: str
    clients: Mapping[str, tuple[str, ClientTasks]]
    after_batch: int

    def to_json(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "formatVersion": FORMAT_VERSION,
            "generation": self.generation,
            "reason": self.reason,
            "afterBatch": self.after_batch,
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
        return cls(document["generation"], document["reason"], members, document["afterBatch"])


class RebalanceLog:
    """The rebalances of a run, on disk.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.layout = RunLayout(Path(run_dir))

    @property
    def last_generation(self) -> int:
        """The newest generation; 0: none."""
        names = [entry.stem for entry in self.layout.rebalance(0).parent.glob("*.json")]
        return max(map(int, names), default=0)

    def append(self, record: RebalanceRecord) -> None:
        """Claim a generation; from then on no other coordinator can use it.

        Raises:
            CommitLogException: it is taken: another coordinator works on this run.
        """
        path = self.layout.rebalance(record.generation)
        try:
            write_json(path, record.to_json(), exclusive=True)
        except FileExistsError:
            raise CommitLogException(
                f"Generation {record.generation} belongs to somebody else: {path} exists. "
                "Maybe a second coordinator runs on the same folder; this one stops."
            ) from None

    def records(self) -> Iterator[RebalanceRecord]:
        """All rebalances, oldest first."""
        for path in sorted(self.layout.rebalance(0).parent.glob("*.json")):
            yield RebalanceRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
