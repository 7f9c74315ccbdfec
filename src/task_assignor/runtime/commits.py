"""The commit log of a run: which files count, and who made them. Only what is recorded here exists for readers.

A commit is one JSON file, `commits/<number>.json`, that appears whole under a name that nobody else can have taken. It
holds a batch of each task that had one ready: the files of output and changelog with sizes and checksums, the offsets,
client, process, attempt and generation. `rebalances/<generation>.json` says in the same way who was to run what.

Before a record is written, every file that it names must be there as the coordinator sees the folder, and the columns of
an output must be those of the batches before: what could not be read afterwards is not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import CommitLogException, ProcessorException
from task_assignor.runtime.files import local_path, open_arrow, read_json, write_json
from task_assignor.runtime.storage import DamagedDocumentError, Seal
from task_assignor.sdk import StreamsException, TaskId

_log = logging.getLogger(__name__)
FORMAT_VERSION: Final = 3
_TORN: Final = ".torn"


def run_folder(run_dir: str | Path) -> Path:
    """The folder of a run, as a path.

    Raises:
        CommitLogException: it is a URL.
    """
    try:
        return local_path("run_dir", run_dir)
    except ValueError as error:
        raise CommitLogException(str(error)) from None


@attrs.frozen
class RunLayout:
    """Where things are in the folder of a run.

    Args:
        run_dir: the folder.
    """

    run_dir: Path = attrs.field(converter=run_folder)

    @property
    def application(self) -> Path:
        """What application the folder belongs to."""
        return self.run_dir / "application.json"

    @property
    def lock(self) -> Path:
        """Held by the living coordinator."""
        return self.run_dir / "coordinator.lock"

    def commit(self, number: int) -> Path:
        """A commit record."""
        return self.run_dir / "commits" / f"{number:012d}.json"

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

    def file(self, ref: FileRef) -> Path:
        """Where a file of a commit is.

        Raises:
            CommitLogException: not in the folder of the run.
        """
        path = PurePosixPath(ref.path)
        if path.is_absolute() or ".." in path.parts:
            raise CommitLogException(f"A commit names the file {ref.path!r}, which is not in {self.run_dir}.")
        return self.run_dir / path


def _file(batch: int, generation: int) -> str:
    return f"{batch:012d}-{generation:08d}.arrow"


def _to_columns(columns: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in columns)


@attrs.frozen
class FileRef:
    """A file of a commit.

    Args:
        path: relative to the folder of the run.
        seal: its rows, bytes and checksum.
        columns: names and types of its columns.
    """

    path: str
    seal: Seal
    columns: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_to_columns)

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
        )


@attrs.frozen
class CommitRecord:
    """One commit: a batch of each task that had one ready.

    Args:
        number: its number, from 0.
        application_id: `application.id`.
        generation: generation of the group when it was committed.
        committed_at_ms: when, milliseconds since the epoch.
        tasks: what each task did; those that had nothing ready are absent.
    """

    number: int
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
            "number": self.number,
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
            document["number"],
            document["applicationId"],
            document["generation"],
            document["committedAtMs"],
            {commit.task: commit for commit in tasks},
        )


class CommitLog:
    """The commits of a run, read from disk; what was read once is kept.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.layout = RunLayout(run_dir)
        self._records: dict[int, CommitRecord] = {}
        self._columns: dict[str, dict[str, str]] | None = None
        """Output -> column -> type, of all committed batches; None: not looked at yet."""

    @property
    def last(self) -> int:
        """Number of the last commit; -1: none. Looks at the disk.

        Raises:
            CommitLogException: one before it is missing.
        """
        folder = self.layout.commit(0).parent
        names = sorted(entry.name for entry in folder.glob("*.json")) if folder.is_dir() else []
        for number, name in enumerate(names):
            if name != self.layout.commit(number).name:
                raise CommitLogException(
                    f"The commit log {folder} has no commit {number}, but later ones: the next file is {name}. "
                    "Maybe a file was deleted; what was computed after it cannot be trusted."
                )
        return len(names) - 1

    @property
    def last_generation(self) -> int:
        """Generation of the last commit; 0: none.

        Raises:
            CommitLogException: its record cannot be read, or one before it is missing.
        """
        last = self.last
        return 0 if last < 0 else self.record(last).generation

    def record(self, number: int) -> CommitRecord:
        """The record of a commit.

        Raises:
            CommitLogException: there is no such commit, or its record cannot be read.
        """
        found = self._records.get(number)
        if found is None:
            path = self.layout.commit(number)
            try:
                found = CommitRecord.from_json(read_json(path))
                if found.number != number:
                    raise ValueError(f"it is the record of commit {found.number}")
            except FileNotFoundError:
                raise CommitLogException(f"There is no commit {number}: there is no {path}.") from None
            except (OSError, ValueError, KeyError, TypeError, AttributeError, StreamsException) as error:
                raise CommitLogException(
                    f"The commit record {number} cannot be read: {path} ({error}). {self._advice(number, error)}"
                ) from error
            self._records[number] = found
        return found

    def records(self, after: int = -1) -> Iterator[CommitRecord]:
        """All commits after the given one, in order."""
        for number in range(after + 1, self.last + 1):
            yield self.record(number)

    def _advice(self, number: int, error: Exception) -> str:
        if number < self.last:
            return "Maybe restore the file from a copy; without it the run needs a new run_dir."
        if isinstance(error, DamagedDocumentError) and error.is_torn:
            return (
                "It is the last one and was never acknowledged: run the application again, which does its batches anew."
            )
        return (
            "It is the last one. Maybe restore the file from a copy, or delete it and run the application again, which "
            "does its batches anew."
        )

    def set_aside_torn(self) -> None:
        """Rename the last record if its end is missing: it was never acknowledged, so its batches are done anew.

        Only for who owns the folder. A torn record before the last one stays where it is, and reading it is an error.

        Raises:
            CommitLogException: one before the last is missing, or the folder cannot be changed.
        """
        path = self.layout.commit(self.last)
        try:
            read_json(path)
        except FileNotFoundError:
            return
        except DamagedDocumentError as error:
            if not error.is_torn:
                return
            aside = path.with_name(path.name + _TORN)
            try:
                path.replace(aside)
            except OSError as problem:
                raise CommitLogException(f"The torn commit record {path} cannot be set aside: {problem}.") from problem
            _log.warning(
                "The last commit record was cut off while it was being written, by a crash or a full disk. Nobody was told "
                "of it; it is %s now, and its batches are done anew",
                aside,
            )

    def append(self, record: CommitRecord) -> None:
        """Commit: from now on the files count, and no power failure takes them away.

        Raises:
            CommitLogException: the number is taken: another coordinator works on this run; or a file that a
                client says it wrote is not there.
            ProcessorException: an output has other columns than in the batches before, or in another task.
        """
        for commit in record.tasks.values():
            for what, files in (("output", commit.outputs), ("changelog", commit.changelogs)):
                for name, file in files.items():
                    self._check_is_there(commit, f"{what} {name!r}", file)
        columns = self._columns_with(record)
        path = self.layout.commit(record.number)
        try:
            write_json(path, record.to_json(), exclusive=True)
        except FileExistsError:
            raise CommitLogException(
                f"Commit {record.number} has been made by somebody else: {path} exists. "
                "Maybe a second coordinator runs on the same folder; this one stops, its batches do not count."
            ) from None
        self._records[record.number] = record
        self._columns = columns

    def _check_is_there(self, commit: TaskCommit, what: str, file: FileRef) -> None:
        path = self.layout.file(file)
        try:
            size: int | str = path.stat().st_size
        except OSError as error:
            size = "nothing" if isinstance(error, FileNotFoundError) else f"{error}"
        if size != file.seal.size:
            raise CommitLogException(
                f"Batch {commit.batch} of task {commit.task} is not committed: the client {commit.client!r} says that it "
                f"wrote {file.seal.size} bytes of the {what} to {path}, but the coordinator sees {size} there. Maybe the client has "
                "another folder of that name: run_dir must be on storage that the coordinator and all clients share."
            )

    def _columns_with(self, record: CommitRecord) -> dict[str, dict[str, str]]:
        """The columns of all outputs after a record.

        A column of type null (a batch that has only nulls in it) goes with any type.
        """
        if self._columns is None:
            self._columns = {}
            for earlier in self.records():
                self._columns = self._columns_with(earlier)
        known = dict(self._columns)
        for task in sorted(record.tasks):
            for output, file in record.tasks[task].outputs.items():
                now, before = dict(file.columns), known.get(output)
                if before is None:
                    known[output] = now
                    continue
                if now.keys() != before.keys() or any(
                    "null" not in (now[c], before[c]) and now[c] != before[c] for c in now
                ):
                    raise ProcessorException(
                        f"Batch {record.tasks[task].batch} of task {task} is not committed: it gave the output {output!r} the columns "
                        f"{_shown(now)}, but it had {_shown(before)} before. Columns cannot change. Maybe declare them: "
                        f"Output({output!r}, schema), which also casts to them.",
                        str(task),
                    )
                known[output] = {c: now[c] if kind == "null" else kind for c, kind in before.items()}
        return known


def _shown(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())


def open_committed(layout: RunLayout, file: FileRef, what: str, name: str, partition: int, batch: int) -> pa.Table:
    """A file of a commit.

    Raises:
        CorruptLogException: it is missing or is not what was committed.
    """
    return open_arrow(layout.file(file), file.seal, what, name, partition, batch)


def read_application(layout: RunLayout) -> dict[str, Any]:
    """The description of the run.

    Raises:
        CommitLogException: it cannot be read.
    """
    try:
        document = read_json(layout.application)
        if document["formatVersion"] != FORMAT_VERSION:
            raise ValueError(f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}")
    except FileNotFoundError:
        raise CommitLogException(f"There is no run in {layout.run_dir}: {layout.application} is missing.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommitLogException(
            f"The description of the run cannot be read: {layout.application} ({error}). Maybe restore the file from a "
            "copy; without it the run needs a new run_dir."
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
        after_commit: the last commit before it; -1: none.
    """

    generation: int
    reason: str
    clients: Mapping[str, tuple[str, ClientTasks]]
    after_commit: int

    def to_json(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "formatVersion": FORMAT_VERSION,
            "generation": self.generation,
            "reason": self.reason,
            "afterCommit": self.after_commit,
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
        return cls(document["generation"], document["reason"], members, document["afterCommit"])


class RebalanceLog:
    """The rebalances of a run, on disk.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.layout = RunLayout(run_dir)

    @property
    def last_generation(self) -> int:
        """The newest generation; 0: none."""
        names = [entry.stem for entry in self.layout.rebalance(0).parent.glob("*.json")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

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
        """All rebalances, oldest first.

        Raises:
            CommitLogException: a record cannot be read.
        """
        for path in sorted(self.layout.rebalance(0).parent.glob("*.json")):
            try:
                yield RebalanceRecord.from_json(read_json(path))
            except (OSError, ValueError, KeyError, TypeError, StreamsException) as error:
                raise CommitLogException(
                    f"The record of a rebalance cannot be read: {path} ({error}). No result depends on what it says. "
                    "Maybe restore the file from a copy; do not delete it, its name makes sure that the number is not used twice."
                ) from error
