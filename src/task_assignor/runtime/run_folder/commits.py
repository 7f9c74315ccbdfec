"""The commit log of a run: which files count, and who made them. Only what is recorded here exists for readers.

A commit is one JSON document, `commits/<number>.json`, that appears whole under a name that nobody else can have taken.
It holds a batch of each task that had one ready: the files of output and changelog with sizes and checksums, the offsets,
client, process, attempt and generation; or the assignment that begins with it. What many commits led to is written down
in `checkpoints` now and then, and takes their place.

Who begins to write opens an epoch, by the first free number: a coordinator that was replaced finds its next number taken or,
long after, its last record gone.
Before a record is written, every file that it names must be there as the coordinator sees the folder, and the columns of
an output must be those of the batches before: what could not be read afterwards is not committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from task_assignor.runtime.errors import CommitLogException, ProcessorException
from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedProgress
from task_assignor.runtime.machines.coordinator.progress import KEPT_MARKERS
from task_assignor.runtime.machines.encoding import NewerFormatError
from task_assignor.runtime.machines.output_files import OutputFiles, files_after
from task_assignor.runtime.machines.protocol import Change, Recovery, position_of
from task_assignor.runtime.machines.records import CommitRecord, Marker, RebalanceRecord, Seal
from task_assignor.runtime.run_folder.checkpoints import (
    CHECKPOINTS,
    COMMITS,
    NEW_RUN,
    Checkpoints,
    Written,
    commit_name,
    numbers_in,
)
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.layout import RunLayout, read_application
from task_assignor.runtime.storage import DamagedDocumentError, Storage, open_document
from task_assignor.runtime.storage.disk import advice_to_read, run_dir_errors
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
T = TypeVar("T")

_NULL: Final = "null"
_NULL_TYPE: Final = re.compile(rf"{_NULL}(?=[,> ]|$)")
_REPLACED: Final = "A second coordinator runs on the same folder; this one stops, its batches do not count."


class _Named(NamedTuple):
    """A file that a record names: what it must be; who says so, as the beginning of a sentence; and what of."""

    path: str
    seal: Seal
    whose: str
    what: str


class CommitLog:
    """The commits of a run. Whoever reads it sees what counts; one coordinator at a time writes.

    Args:
        run_dir: folder of the run.
        upkeep: how it is kept small, of the coordinator that writes.
        storage: where its files are; None: in that folder.

    Raises:
        CommitLogException: the folder cannot be one.
    """

    def __init__(self, run_dir: str | Path, upkeep: Upkeep | None = None, storage: Storage | None = None) -> None:
        self.layout = RunLayout(run_dir)
        self._storage = self.layout.storage if storage is None else storage
        self._recent: list[Written] = []
        """The records since the last checkpoint, of the coordinator that writes."""
        self._began: Checkpoint | None = None
        """The checkpoint that its epoch began with, until something is appended."""
        self._checkpoints = Checkpoints(self._storage, upkeep)
        self._columns: dict[str, dict[str, str]] = {}
        """Output -> column -> type, of all commits; of the coordinator that writes."""
        self._given: dict[tuple[str, TaskId], frozenset[str]] = {}
        """Output and task -> the columns of its last file."""

    @property
    def address(self) -> str:
        """Where its files are."""
        return self._storage.address

    # Reading.

    @property
    def last(self) -> int:
        """Number of the last record; -1: none.

        Raises:
            CommitLogException: one before it is missing.
        """
        return self._at_newest(self._tail)[1]

    def records(self) -> Iterator[CommitRecord]:
        """All records, oldest first, as far back as the history goes (`history_bytes`).

        Raises:
            CommitLogException: one is missing or cannot be read, or there is no run.
        """

        def read(checkpoint: Checkpoint) -> list[CommitRecord]:
            history = (record for name in checkpoint.history for record in self._checkpoints.segment(name))
            return [*history, *self.records_after(checkpoint)]

        records = self._at_newest(read)
        if not records:
            # Who looks through none for what is wrong would find nothing.
            read_application(self.layout)
        yield from records

    def output_files(self) -> OutputFiles:
        """The files that hold the rows of outputs.

        Raises:
            CommitLogException: a checkpoint or a record is missing or cannot be read.
        """
        return self.outputs_and_markers()[0]

    def outputs_and_markers(self) -> tuple[OutputFiles, tuple[Marker, ...]]:
        """The files that hold the rows of outputs, and the markers as of which they can be read, oldest first.

        Raises:
            CommitLogException: a checkpoint or a record is missing or cannot be read.
        """

        def read(checkpoint: Checkpoint) -> tuple[OutputFiles, tuple[Marker, ...]]:
            records = list(self.records_after(checkpoint))
            new = (marker for record in records for marker in record.markers)
            return files_after(checkpoint, records)[0], (*checkpoint.state.markers, *new)[-KEPT_MARKERS:]

        return self._at_newest(read)

    def is_replaced(self, epoch: int) -> bool:
        """Whether another coordinator has begun since the one of this epoch; True also where nobody can say."""
        return self._checkpoints.is_replaced(epoch)

    def offsets(self) -> dict[str, dict[int, tuple[int, str]]]:
        """How far all sources are read, whatever becomes of the newest record.

        Returns:
            Source topic -> partition -> the offset up to which its rows count, and the checksum of the file with the row
            before it; "": it is not known.

        Raises:
            CommitLogException: a checkpoint or a record is missing or cannot be read.
        """

        def read(checkpoint: Checkpoint) -> dict[str, dict[int, tuple[int, str]]]:
            found: dict[str, dict[int, tuple[int, str]]] = {}
            for task, saved in checkpoint.state.tasks.items():
                for topic, offset in saved.offsets.items():
                    found.setdefault(topic, {})[task.partition] = offset, saved.seals.get(topic, "")
            for record in list(self.records_after(checkpoint))[:-1]:
                for task, commit in record.tasks.items():
                    for topic, (_, offset) in commit.offsets.items():
                        found.setdefault(topic, {})[task.partition] = offset, commit.seals.get(topic, "")
            return found

        return self._at_newest(read)

    def recoveries(self) -> dict[TaskId, Recovery]:
        """From what the state of each task is restored that has committed anything.

        Raises:
            CommitLogException: a checkpoint or a record is missing or cannot be read.
        """

        def read(checkpoint: Checkpoint) -> dict[TaskId, Recovery]:
            found = {task: saved.recovery.copy() for task, saved in checkpoint.state.tasks.items()}
            for record in self.records_after(checkpoint):
                for task, commit in record.tasks.items():
                    found.setdefault(task, Recovery()).add(Change(position_of(commit), commit.changelogs))
                for task, snapshot in record.snapshots.items():
                    found[task].add_snapshot(snapshot)
            return found

        return self._at_newest(read)

    def columns(self) -> dict[str, dict[str, str]]:
        """Output -> column -> type, as text, of the rows that were given so far; for who owns the folder, before it opens an epoch.

        Raises:
            CommitLogException: a checkpoint or a record is missing or cannot be read.
        """
        self._set_aside_torn()
        self._at_newest(self._load)
        return self._columns

    def _at_newest(self, read: Callable[[Checkpoint], T]) -> T:
        """What is read from the newest checkpoint on; again, if a newer one has replaced what is missing."""
        with run_dir_errors(f"The commits in {self.address} cannot be read"):
            while True:
                checkpoint = self._checkpoints.newest()
                try:
                    return read(checkpoint)
                except (FileNotFoundError, CommitLogException) as error:
                    if self._checkpoints.newest().number != checkpoint.number:
                        continue
                    if isinstance(error, CommitLogException):
                        raise
                    raise CommitLogException(f"The commit log lacks a file: {error}. {NEW_RUN}") from None

    def records_after(self, checkpoint: Checkpoint) -> Iterator[CommitRecord]:
        """The records that follow a checkpoint, oldest first.

        Raises:
            CommitLogException: one is missing or cannot be read.
        """
        first, last = self._tail(checkpoint)
        for number in range(first, last + 1):
            yield self.record(number, is_last=number == last)

    def rebalances(self) -> Iterator[RebalanceRecord]:
        """All assignments, oldest first, as far back as the history goes.

        Raises:
            CommitLogException: a record is missing or cannot be read.
        """
        return (record.rebalance for record in self.records() if record.rebalance is not None)

    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint that can be read; the one of a run that has none is number -1.

        Raises:
            CommitLogException: there is one, but none can be read.
        """
        return self._checkpoints.newest()

    def record(self, number: int, *, is_last: bool = False) -> CommitRecord:
        """A record that is not below a checkpoint.

        Raises:
            CommitLogException: it is not there, or cannot be read.
        """
        name = commit_name(number)
        place = self._storage.locate(name)
        try:
            record = open_document(self._storage, name, CommitRecord)
            if record.number != number:
                raise ValueError(f"it is the record of commit {record.number}")
        except FileNotFoundError:
            raise CommitLogException(f"There is no commit {number}: there is no {place}.") from None
        except (OSError, ValueError) as error:
            raise CommitLogException(
                f"The commit record {number} cannot be read: {place} ({error}). {_advice(error, is_last=is_last)}"
            ) from error
        return record

    def _tail(self, checkpoint: Checkpoint) -> tuple[int, int]:
        """The numbers of the first and the last record after a checkpoint; they are all there."""
        first = checkpoint.number + 1
        numbers = [number for number in numbers_in(self._storage, COMMITS) if number >= first]
        for expected, number in enumerate(numbers, start=first):
            if number != expected:
                raise CommitLogException(
                    f"The commit log {self._storage.locate(COMMITS)} has no commit {expected} "
                    f"({commit_name(expected)}), but later ones: the next "
                    f"is {number}. Maybe a file was deleted; what was computed after it cannot be trusted."
                )
        return first, first + len(numbers) - 1

    # Writing.

    def open_epoch(self, application_id: str, opened_by: str, now_ms: int) -> CommitRecord:
        """Begin to write: whoever wrote before finds the next number taken, and can commit nothing any more.

        A last record whose end is missing was never acknowledged; it is set aside, and its batches are done anew.

        Args:
            application_id: `application.id`.
            opened_by: who the new coordinator is, for messages.
            now_ms: time.

        Returns:
            The record that began the epoch.

        Raises:
            CommitLogException: the log cannot be read, or somebody else began at the same time.
        """
        self._set_aside_torn()
        # Whoever is replaced may still write checkpoints.
        checkpoint = self._at_newest(self._load)
        newest = self._recent[-1].record if self._recent else checkpoint
        last = commit_name(max(newest.number, 0))
        if newest.number >= 0 and not self._storage.is_there(last) and self._checkpoints.newest() == checkpoint:
            raise CommitLogException(
                f"The commit log has a checkpoint of commit {newest.number}, but not the commit: "
                f"{self._storage.locate(last)} is missing. {NEW_RUN}"
            )
        record = CommitRecord(
            newest.number + 1, application_id, newest.epoch + 1, newest.generation, now_ms, opened_by=opened_by
        )
        written = self._put(record)
        if self._checkpoints.newest().number >= record.number:
            # Whoever slept in there until its number, and all that was committed under it, had gone for a checkpoint.
            self._storage.delete([commit_name(record.number)])
            raise self._is_below_a_checkpoint(record.number)
        self._recent.append(written)
        self._began = checkpoint
        return record

    def opened(self) -> tuple[Checkpoint, list[CommitRecord]]:
        """What an epoch begins with, before anything is appended: a checkpoint, and the records from there to its own first one.

        What others have appended since is not in it: who took that for its own past would go on after a coordinator that has
        taken over, under the same generation.
        """
        assert self._began is not None, "no epoch was opened, or something was appended"
        return self._began, [one.record for one in self._recent]

    def _load(self, checkpoint: Checkpoint) -> Checkpoint:
        """What it remembers: the records after a checkpoint, which is given back, and the columns up to the last one."""
        self._recent = [Written.of(record) for record in self.records_after(checkpoint)]
        self._columns = {output: dict(columns) for output, columns in checkpoint.columns.items()}
        files = OutputFiles.load(checkpoint.outputs)
        self._given = {
            (output, found.task): frozenset(name for name, _ in found.file.columns)
            for output in checkpoint.columns
            for found in files.of(output)
        }
        for one in self._recent:
            self._take_columns(one.record, self._columns_with(one.record))
        return checkpoint

    def _set_aside_torn(self) -> None:
        """Rename the last record if its end is missing; earlier ones stay where they are, and reading them is an error."""
        numbers = numbers_in(self._storage, COMMITS)
        name = commit_name(numbers[-1] if numbers else 0)
        try:
            open_document(self._storage, name, dict)
        except OSError:
            # There is none, or who reads it says what is wrong.
            return
        except DamagedDocumentError as error:
            # One of which there is a checkpoint was whole then, and nobody has to read it any more.
            if not error.is_torn or numbers_in(self._storage, CHECKPOINTS)[-1:] >= numbers[-1:]:
                return
            aside = f"{COMMITS}/torn/{name.rpartition('/')[2]}"
            try:
                self._storage.put(aside, self._storage.open(name))
                self._storage.delete([name])
            except OSError as problem:
                raise CommitLogException(
                    f"The torn commit record {self._storage.locate(name)} cannot be set aside: {problem}."
                ) from problem
            _log.warning(
                "The last commit record was cut off while it was being written, by a crash or a full disk. Nobody was told "
                "of it; it is %s now, and its batches are done anew",
                self._storage.locate(aside),
            )

    def append(self, record: CommitRecord) -> None:
        """Commit: from now on the files count, and no power failure takes them away.

        Raises:
            CommitLogException: the number is taken: another coordinator works on this run; or a file that a
                client says it wrote is not there.
            ProcessorException: an output has other columns than in the batches before, or in another task.
        """
        self._check_are_there(record, self._files_of(record))
        columns = self._columns_with(record)
        self._began = None
        self._recent.append(self._put(record))
        self._take_columns(record, columns)

    @staticmethod
    def _files_of(record: CommitRecord) -> Iterator[_Named]:
        """The files that a record names."""
        for commit in record.tasks.values():
            routed = {name: found.file for name, found in commit.repartitions.items()}
            for what, files in (
                ("output", commit.outputs),
                ("changelog", commit.changelogs),
                ("repartition topic", routed),
            ):
                for name, file in files.items():
                    if not file.topic:
                        whose = (
                            f"Batch {commit.batch} of task {commit.task} is not committed: the client {commit.client!r}"
                        )
                        yield _Named(file.path, file.seal, whose, f"{what} {name!r}")
        for task, snapshot in record.snapshots.items():
            for path, (store, seal) in snapshot.files.items():
                whose = f"The snapshot of task {task} after batch {snapshot.batch} is not committed: its client"
                yield _Named(path, seal, whose, f"store {store!r}")

    def _put(self, record: CommitRecord) -> Written:
        name, written = commit_name(record.number), Written.of(record)
        try:
            self._storage.put_if_absent(name, written.document)
        except FileExistsError:
            raise self._made_by_somebody_else(record.number) from None
        except IsADirectoryError:
            raise CommitLogException(
                f"Commit {record.number} cannot be made: {self._storage.locate(name)} is a folder without the file that "
                "belongs into it. Maybe somebody deleted the file; delete the folder too: its batches are done anew."
            ) from None
        try:
            self._check_follows(record.number)
        except CommitLogException:
            self._storage.delete([name])
            raise
        return written

    def _made_by_somebody_else(self, number: int) -> CommitLogException:
        return CommitLogException(
            f"Commit {number} has been made by somebody else{self._who(number)}: "
            f"{self._storage.locate(commit_name(number))} exists. {_REPLACED}"
        )

    def _check_follows(self, number: int) -> None:
        last = commit_name(number - 1)
        if not number or self._storage.is_there(last):
            return
        what = f"Commit {number} cannot follow commit {number - 1}"
        where = f"{self._storage.locate(last)} is not there"
        if self._checkpoints.newest().number < number - 1:
            raise CommitLogException(
                f"{what}: {where}, and no checkpoint has taken its place. Maybe somebody deletes files of the run, or a rule of the "
                f"bucket does. {NEW_RUN}"
            )
        # What its successor wrote under this number has been deleted since, and before that this one's last record.
        raise CommitLogException(f"{what}, which somebody else has replaced by a checkpoint: {where}. {_REPLACED}")

    def _is_below_a_checkpoint(self, number: int) -> CommitLogException:
        return CommitLogException(
            f"Commit {number} begins no epoch: a checkpoint of somebody else has replaced it, in {self._storage.locate(CHECKPOINTS)}. "
            f"{_REPLACED}"
        )

    def _who(self, number: int) -> str:
        try:
            return f" ({self.record(number).opened_by})"
        except CommitLogException:
            return ""

    def write_checkpoint(self, number: int, state: SavedProgress) -> Checkpoint | None:
        """Put a checkpoint in the place of the records up to a number; may run while others are appended.

        Args:
            number: the last record that it replaces.
            state: what the records up to there have led to.

        Returns:
            The checkpoint; None: there is none.

        Raises:
            OSError: the disk says no; all is as it was then, or the next checkpoint will tidy up.
            CommitLogException: an earlier part of the log cannot be read.
        """
        replaced = [one for one in self._recent if one.record.number <= number]
        if not replaced:
            return None
        last = replaced[-1].record
        columns = {output: dict(found) for output, found in self._columns.items()}
        written = self._checkpoints.write(Checkpoint(number, last.epoch, last.generation, (), columns, state), replaced)
        # In place: others are appended meanwhile.
        del self._recent[: len(replaced)]
        return written

    def _check_are_there(self, record: CommitRecord, files: Iterable[_Named]) -> None:
        """All at the same time: a store may take long to answer for each."""
        sizes: dict[str, int] = {}

        def look(file: _Named) -> None:
            try:
                sizes[file.path] = self._storage.size(file.path)
            except ValueError:
                raise CommitLogException(
                    f"A commit names the file {file.path!r}, which is not in {self._storage.address}."
                ) from None
            except FileNotFoundError:
                return

        files = list(files)
        self._storage.for_all(look, files)
        for file in files:
            if (size := sizes.get(file.path)) != file.seal.size:
                # One that was replaced may find that its successor has deleted what does not count any more.
                if self._storage.is_there(commit_name(record.number)):
                    raise self._made_by_somebody_else(record.number)
                self._check_follows(record.number)
                raise CommitLogException(
                    f"{file.whose} says that it wrote {file.seal.size} bytes of the {file.what} to {self._storage.locate(file.path)}, "
                    f"but the coordinator sees {'nothing' if size is None else size} there. Maybe the client has another folder of "
                    "that name: run_dir must be on storage that the coordinator and all clients share."
                )

    def _columns_with(self, record: CommitRecord) -> dict[str, dict[str, str]]:
        """The columns of all outputs after a record.

        A type that is null, or has null in it (a batch of nulls, or of lists without items), goes with any other there. An
        output may gain columns, which other tasks give later, and older rows have null there; a task that has given one goes
        on to give it.
        """
        known = dict(self._columns)
        for task in sorted(record.tasks):
            for output, file in record.tasks[task].outputs.items():
                now = dict(file.columns)
                before = known.get(output, now)
                if file.topic:
                    # Its serde has written them, whatever they are: the last type of each is remembered.
                    known[output] = before | {c: known_type(before.get(c, _NULL), now[c]) or now[c] for c in now}
                    continue
                lost = self._given.get((output, task), frozenset()) - now.keys()
                wider = now if now.keys() > before.keys() else before
                kinds = {c: known_type(before.get(c, _NULL), now.get(c, _NULL)) for c in wider}
                if lost or "" in kinds.values() or not now.keys() <= wider.keys():
                    raise ProcessorException(
                        f"Batch {record.tasks[task].batch} of task {task} is not committed: it gave the output {output!r} the columns "
                        f"{_shown(now)}, but it had {_shown(before)} before. Columns cannot go or change their types; new ones "
                        f"may come. Maybe declare them as they were: Output({output!r}, schema), which also casts to them.",
                        str(task),
                    )
                known[output] = kinds
        return known

    def _take_columns(self, record: CommitRecord, columns: dict[str, dict[str, str]]) -> None:
        """A record counts, and these are the columns after it."""
        self._columns = columns
        for task, commit in record.tasks.items():
            for output, file in commit.outputs.items():
                self._given[output, task] = frozenset(name for name, _ in file.columns)


def _advice(error: Exception, *, is_last: bool) -> str:
    if not is_last or isinstance(error, (OSError, NewerFormatError)):
        return advice_to_read(error, NEW_RUN)
    if isinstance(error, DamagedDocumentError) and error.is_torn:
        return "It is the last one and was never acknowledged: run the application again, which does its batches anew."
    return (
        "It is the last one. Maybe restore the file from a copy, or delete it and run the application again, which "
        "does its batches anew."
    )


def known_type(one: str, other: str) -> str:
    """Of two types the one that is known where the other is null, maybe within lists and structs, one here and one there; "": they differ."""
    return _merged(one, other) or ""


def _merged(one: str, other: str) -> str | None:
    if one == other:
        return one
    pairs = enumerate(zip(one, other, strict=False))
    start = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    for vague, exact in ((one, other), (other, one)):
        if _NULL_TYPE.match(vague, start):
            end = _end_of_type(exact, start)
            rest = _merged(vague[start + len(_NULL) :], exact[end:])
            return None if rest is None else exact[:end] + rest
    return None


def _end_of_type(text: str, start: int) -> int:
    depth = 0
    for place, letter in enumerate(text[start:], start):
        if not depth and letter in ",> ":
            return place
        depth += (letter in "<([") - (letter in ">)]")
    return len(text)


def _shown(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())
