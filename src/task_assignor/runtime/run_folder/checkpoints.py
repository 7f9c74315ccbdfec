"""Checkpoints of a commit log: a run goes on from the newest one and the records after it.

A checkpoint replaces the records up to its number. What they led to is in it, as a state; what they said is kept in the
history, in few files: `history/<first>-<last>.jsonl.gz`, where each is a line, as it was written. Neighbours of like length are
put one behind the other; no line is parsed for that, and a file that is damaged or missing stays in the list alone, so that a
copy can take its place. The oldest go when all are too large. Records below the checkpoint before it are deleted, so that there is always a second one to go on from, if one is
damaged. The first record of an epoch, which a coordinator runs into that was replaced while it slept, stays until the record
before it has gone; then that is what it misses. What else can be deleted is in `retention`.

The files of outputs are listed in the checkpoint, so who reads an output needs no history; small ones are merged when a
checkpoint is written (`compaction`). Those that were merged are named in `replaced/<number>-<ms since the epoch>.json` when
another one follows the checkpoint that replaced them, and deleted when that is long enough ago for all who may have listed
them before: however late it was written, it was there by then.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final

import attrs
import msgspec

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.encoding import NewerFormatError, Value
from task_assignor.runtime.machines.output_files import OutputFiles, files_after, merged_at
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.compaction import Compaction, Upkeep
from task_assignor.runtime.run_folder.retention import FOLDERS, WRITTEN, obsolete, orphans
from task_assignor.runtime.storage import Storage, as_document, open_document, read_document
from task_assignor.runtime.storage.disk import advice_to_read, warn
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
COMMITS: Final = "commits"
CHECKPOINTS: Final = "checkpoints"
HISTORY: Final = "history"
REPLACED: Final = "replaced"
_LIST: Final = re.compile(rf"{REPLACED}/(\d{{12,}})-(\d{{13,}})\.json")
_COMPRESSED: Final = ".jsonl.gz"
_ENDS_AT: Final = re.compile(
    rf"(?:{COMMITS}/|{CHECKPOINTS}/|{HISTORY}/\d{{12,}}-)(\d{{12,}})(?:\.json|{re.escape(_COMPRESSED)})"
)
_LEVEL: Final = 6
_SEGMENTS: Final = 16
"""The files of a full history are about so many, or a few more."""
NEW_RUN: Final = "Maybe restore the file from a copy; without it the run needs a new run_dir."


def commit_name(number: int) -> str:
    """Name of a commit record."""
    return f"{COMMITS}/{number:012d}.json"


def numbers_in(storage: Storage, folder: str) -> list[int]:
    """The numbers of the commit records or checkpoints that are there, ascending."""
    names = (name.rpartition("/")[2].removesuffix(".json") for name in storage.list(folder))
    return sorted(int(name) for name in names if name.isdecimal())


@attrs.frozen
class Written:
    """A record, and the document that it was written as."""

    record: CommitRecord
    document: bytes

    @classmethod
    def of(cls, record: CommitRecord) -> Written:
        """A record that is to be written."""
        return cls(record, as_document(record))


class _Replaced(Value, frozen=True):
    """Files that were merged into others."""

    files: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a run.

    Args:
        storage: folder of the run.
        upkeep: how files of outputs are merged, of the coordinator that writes.
    """

    def __init__(self, storage: Storage, upkeep: Upkeep | None = None) -> None:
        self._storage = storage
        self._upkeep = upkeep or Upkeep()
        self._compaction = Compaction(storage, self._upkeep)
        self._looks_for_orphans = True
        """Somebody has died, or was replaced: files may be there that nothing names."""
        self._listed = -1
        """The checkpoint of which it was written down last what it has replaced."""
        self._merged_by_others: list[str] = []
        """Files that the next checkpoint names as replaced, though none before it has them."""
        self._told: set[str] = set()
        """Files of the history that cannot be read; that was told."""

    def newest(self) -> Checkpoint:
        """The newest checkpoint that can be read; number -1: there is none.

        A damaged one is passed over, with a warning, if the records that it replaced are still there.

        Raises:
            CommitLogException: it is damaged, and nothing is left to go on from; or whole, but may not or cannot be read here.
        """
        while True:
            numbers = numbers_in(self._storage, CHECKPOINTS)
            problem: Exception | None = None
            for number in reversed(numbers):
                try:
                    checkpoint = self._read(number)
                except FileNotFoundError as error:
                    if numbers_in(self._storage, CHECKPOINTS) != numbers:
                        break  # replaced meanwhile
                    # A link that leads nowhere is listed, and not there.
                    problem = problem or error
                    continue
                except (PermissionError, NewerFormatError) as error:
                    raise self._unreadable(number, error) from error
                except (OSError, ValueError) as error:
                    problem = problem or error
                    continue
                if problem is not None:
                    _log.warning("The newest checkpoint cannot be read, an older one is used: %s", problem)
                return checkpoint
            else:
                if problem is None:
                    return Checkpoint()
                place = self._storage.locate(_name(numbers[-1]))
                if numbers[0] == numbers[-1] and self._storage.is_there(commit_name(0)):
                    _log.warning(
                        "The only checkpoint cannot be read (%s), all records are read instead: %s", place, problem
                    )
                    return Checkpoint()
                raise self._unreadable(numbers[-1], problem) from problem

    def segment(self, name: str) -> Iterator[CommitRecord]:
        """The records of a file of the history.

        Raises:
            FileNotFoundError: it is not there, maybe not any more.
            CommitLogException: it cannot be read.
        """
        try:
            lines = gzip.decompress(self._storage.open(name).to_pybytes()).splitlines(keepends=True)
            records = [read_document(line, CommitRecord) for line in lines]
            if [record.number for record in records] != [*_numbers_in(name)]:
                raise ValueError("other records are in it than its name says")
            return iter(records)
        except FileNotFoundError:
            raise
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise CommitLogException(
                f"A file of the history cannot be read: {self._storage.locate(name)} ({error}). {advice_to_read(error, NEW_RUN)}"
            ) from error

    def write(self, checkpoint: Checkpoint, replaced: Sequence[Written]) -> Checkpoint | None:
        """Write a checkpoint, then delete what nobody needs any more.

        Args:
            checkpoint: the checkpoint; its history and its files are those of the one before and what this one adds.
            replaced: the records since the one before.

        Returns:
            The checkpoint as it was written; None: it cannot be, and that was told.

        Raises:
            OSError: the storage says no.
            CommitLogException: no checkpoint can be read.
        """
        before = self.newest()
        numbers = [one.record.number for one in replaced]
        assert numbers == list(range(numbers[0], checkpoint.number + 1)), f"records are missing among {numbers}"
        if lost := range(before.number + 1, numbers[0]):
            # Of a checkpoint that is damaged by now, which may have merged files that nothing names then.
            self._looks_for_orphans = True
            with suppress(FileNotFoundError, ValueError):
                replaced = [*map(self._written, lost), *replaced]
                numbers = [*lost, *numbers]
        if not numbers[0] <= before.number + 1 <= numbers[-1]:
            _log.warning(
                "No checkpoint is written: the newest one is %d, this one would follow %d. Maybe another coordinator runs "
                "on the same folder, or a checkpoint and a commit record were damaged; the next run tidies up",
                before.number,
                numbers[0] - 1,
            )
            return None
        # A coordinator that was replaced may have written one of its last records meanwhile.
        replaced = replaced[before.number + 1 - numbers[0] :]
        records = [one.record for one in replaced]
        now_ms = self._upkeep.now_ms()
        self._list_replaced(before, now_ms)
        files, written = files_after(before, records)
        cuts = [marker.commit for marker in checkpoint.state.markers]
        merged = self._compaction.merge(files, checkpoint.number, checkpoint.epoch, cuts)
        history = [*before.history]
        parts = [gzip.compress(b"".join(one.document for one in replaced), _LEVEL, mtime=0)]
        first, last = records[0].number, records[-1].number
        while history and len(earlier := _numbers_in(history[-1])) <= last - first + 1 and self._may_grow(history[-1]):
            if (part := self._whole(history[-1])) is None:
                break
            parts.insert(0, part)
            first = earlier.start
            history.pop()
        segment = f"{HISTORY}/{first:012d}-{last:012d}{_COMPRESSED}"
        self._storage.put(segment, b"".join(parts))
        checkpoint = msgspec.structs.replace(
            checkpoint,
            history=self._newest_of((*history, segment)),
            outputs=files.saved(),
            replaced=(*merged, *self._merged_by_others),
            written=written,
        )
        self._storage.put(_name(checkpoint.number), as_document(checkpoint))
        self._merged_by_others = []
        try:
            # If none has begun, whoever begins later goes on from this checkpoint. Else the other one may be writing one that follows
            # an older one than `before`, and has files in it that were replaced in this one's past, but not in its own.
            if not self.is_replaced(checkpoint.epoch):
                self._tidy(before, checkpoint, now_ms)
        except OSError as error:
            # It takes up space, and is looked for again with the next checkpoint.
            self._looks_for_orphans = True
            warn(_log, error, "What checkpoint %d has replaced could not be deleted", checkpoint.number)
        return checkpoint

    def is_replaced(self, epoch: int) -> bool:
        """Whether another coordinator has begun since the one of this epoch; True also where nobody can say."""
        numbers = numbers_in(self._storage, COMMITS)
        try:
            return bool(numbers) and self._epoch_of(numbers[-1]) > epoch
        except (FileNotFoundError, ValueError):
            # It has gone for a checkpoint, which was another one's; or it is damaged.
            return True

    def _written(self, number: int) -> Written:
        document = self._storage.open(commit_name(number)).to_pybytes()
        return Written(read_document(document, CommitRecord), document)

    def _epoch_of(self, number: int) -> int:
        return open_document(self._storage, commit_name(number), CommitRecord).epoch

    def _tidy(self, before: Checkpoint, now: Checkpoint, now_ms: int) -> None:
        """Delete what neither of these two checkpoints needs; what a crash leaves is found the next time.

        Never what is newer: a coordinator that is replaced meanwhile may wake up here, and all that is newer is the other one's.
        """
        kept = {_name(before.number), _name(now.number), *before.history, *now.history}
        old = [
            name
            for folder in (CHECKPOINTS, HISTORY)
            for name in self._storage.list(folder)
            if name not in kept and _last_record(name) <= now.number
        ]
        numbers = {number for number in numbers_in(self._storage, COMMITS) if number <= before.number}
        old += (
            commit_name(number) for number in numbers if number - 1 not in numbers or not self._opens_an_epoch(number)
        )
        files = (name for folder in FOLDERS for name in self._storage.list_below(folder))
        self._storage.delete([*old, *obsolete(files, before, now)])
        self._delete_replaced(before, now, now_ms)
        self._delete_orphans(before, now)

    def _list_replaced(self, counts: Checkpoint, now_ms: int) -> None:
        """Write down what a checkpoint has replaced, which counts; another one follows it."""
        # Once, however often the one that follows cannot be written.
        if counts.replaced and counts.number != self._listed:
            self._storage.put(_list_name(counts.number, now_ms), as_document(_Replaced(counts.replaced)))
            self._listed = counts.number

    def _delete_replaced(self, before: Checkpoint, now: Checkpoint, now_ms: int) -> None:
        """Delete files that were replaced so long ago that nobody reads them any more."""
        lists = [*self._lists()]
        for name, number, at_ms in lists:
            if at_ms > now_ms:
                # The clock was ahead by then, maybe by years: from now on it counts from now.
                self._storage.put(_list_name(number, now_ms), self._storage.open(name).to_pybytes())
                self._storage.delete([name])
        due = [
            name
            for name, number, at_ms in lists
            if number <= before.number and at_ms + self._upkeep.retention_ms <= now_ms
        ]
        if due:
            needed = {path for found in (before, now) for path in OutputFiles.load(found.outputs).paths()}
            self._storage.delete([path for path in self._replaced_in(due) if path not in needed])
            self._storage.delete(due)

    def _lists(self) -> Iterator[tuple[str, int, int]]:
        """Of what was written down: the name, the number of the checkpoint, and when."""
        for name in self._storage.list(REPLACED):
            if found := _LIST.fullmatch(name):
                yield name, int(found[1]), int(found[2])

    def _replaced_in(self, lists: Iterable[str]) -> Iterator[str]:
        for name in lists:
            try:
                yield from open_document(self._storage, name, _Replaced).files
            except (OSError, ValueError) as error:
                # What was in it is found as orphans, one day.
                _log.warning("The list %s cannot be read: %s", self._storage.locate(name), error)

    def _delete_orphans(self, before: Checkpoint, now: Checkpoint) -> None:
        """Delete files that nothing names; looked for after somebody may have left some, since all files are listed for it."""
        if before.epoch != now.epoch or before.generation != now.generation:
            self._looks_for_orphans = True
        if self._looks_for_orphans:
            names = (name for folder in WRITTEN for name in self._storage.list_below(folder))
            found = orphans(names, before, now, set(self._replaced_in(name for name, *_ in self._lists())))
            # A checkpoint of who was replaced may have counted until this one's was there: somebody may have listed its files.
            self._merged_by_others = [name for name in found.gone if merged_at(name) is not None]
            self._storage.delete(name for name in found.gone if merged_at(name) is None)
            begun = orphans((name for folder in WRITTEN for name in self._storage.unfinished(folder)), before, now, ())
            others = obsolete((name for folder in FOLDERS for name in self._storage.unfinished(folder)), before, now)
            folders = (COMMITS, CHECKPOINTS, HISTORY, REPLACED)
            ours = (name for folder in folders for name in self._storage.unfinished(folder))
            self._storage.delete_unfinished(
                [*begun.gone, *others, *(name for name in ours if _last_record(name) <= now.number)]
            )
            self._looks_for_orphans = found.is_unsure or begun.is_unsure

    def _opens_an_epoch(self, number: int) -> bool:
        try:
            return bool(open_document(self._storage, commit_name(number), CommitRecord).opened_by)
        except ValueError:
            # A damaged one may; nothing but this asks for it any more.
            return True

    def _may_grow(self, segment: str) -> bool:
        """What is so large that it has to be deleted as a whole one day is not merged any more."""
        return self._size(segment) <= self._upkeep.history_bytes // _SEGMENTS

    def _whole(self, segment: str) -> bytes | None:
        """What is in a file of the history; None: it cannot be read, so it stays listed, alone, and a copy can take its place."""
        try:
            data: bytes = self._storage.open(segment).to_pybytes()
            gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            if segment not in self._told:
                self._told.add(segment)
                kinds: dict[type[Exception], str] = {
                    FileNotFoundError: "is missing",
                    PermissionError: "may not be read",
                }
                what = kinds.get(type(error), "is damaged")
                _log.warning("A file of the history %s: %s (%s)", what, self._storage.locate(segment), error)
            return None
        return data

    def _newest_of(self, history: Sequence[str]) -> tuple[str, ...]:
        """The newest files of the history, as many as there may be; the last one in any case."""
        sizes = list(accumulate(self._size(name) for name in reversed(history)))
        kept = max(bisect_right(sizes, self._upkeep.history_bytes), 1)
        return tuple(history[-kept:])

    def _size(self, segment: str) -> int:
        """The bytes of a file of the history; of one that is missing 0."""
        try:
            return self._storage.size(segment)
        except FileNotFoundError:
            return 0

    def _unreadable(self, number: int, error: Exception) -> CommitLogException:
        place = self._storage.locate(_name(number))
        return CommitLogException(f"The checkpoint {place} cannot be read ({error}). {advice_to_read(error, NEW_RUN)}")

    def _read(self, number: int) -> Checkpoint:
        checkpoint = open_document(self._storage, _name(number), Checkpoint)
        if checkpoint.number != number:
            raise ValueError(f"it is checkpoint {checkpoint.number}")
        return checkpoint


def _name(number: int) -> str:
    return f"{CHECKPOINTS}/{number:012d}.json"


def _list_name(number: int, at_ms: int) -> str:
    return f"{REPLACED}/{number:012d}-{at_ms:013d}.json"


def _last_record(name: str) -> int:
    """Up to which record a commit, a checkpoint, a file of the history or a list of what it has replaced goes; of what is none of these,
    far beyond all.
    """  # noqa: D205
    found = _ENDS_AT.fullmatch(name) or _LIST.fullmatch(name)
    return int(found[1]) if found else sys.maxsize


def _numbers_in(segment: str) -> range:
    first, last = segment.rpartition("/")[2].removesuffix(_COMPRESSED).split("-")
    return range(int(first), int(last) + 1)
