"""Checkpoints of a commit log: a run goes on from the newest one and the records after it.

A checkpoint replaces the records up to its number. What they led to is in it, as a state; what they said is kept in the
history, in few files: `history/<first>-<last>.json`, of which neighbours of like length are merged. Records below the
checkpoint before it are deleted, so that there is always a second one to go on from, if one is damaged. The first record
of every epoch stays: that is what a coordinator runs into that was replaced while it slept. What else can be deleted then
is in `retention`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.records import Checkpoint, CommitRecord
from task_assignor.runtime.retention import FOLDERS, obsolete
from task_assignor.runtime.storage import Storage, as_document, open_document
from task_assignor.sdk import StreamsException

_log = logging.getLogger(__name__)
COMMITS: Final = "commits"
CHECKPOINTS: Final = "checkpoints"
HISTORY: Final = "history"
NEW_RUN: Final = "Maybe restore the file from a copy; without it the run needs a new run_dir."


def commit_name(number: int) -> str:
    """Name of a commit record."""
    return f"{COMMITS}/{number:012d}.json"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        storage: folder of the run.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def newest(self) -> Checkpoint:
        """The newest checkpoint that can be read; number -1: there is none.

        A damaged one is passed over, with a warning, if the records that it replaced are still there.

        Raises:
            CommitLogException: it is damaged, and nothing is left to go on from.
        """
        while True:
            numbers = self._numbers()
            problem: Exception | None = None
            for number in reversed(numbers):
                try:
                    checkpoint = self._read(number)
                except FileNotFoundError:
                    break  # replaced meanwhile
                except (OSError, ValueError, KeyError, TypeError) as error:
                    problem = problem or error
                    continue
                if problem is not None:
                    _log.warning("The newest checkpoint is damaged, an older one is used: %s", problem)
                return checkpoint
            else:
                if problem is None:
                    return Checkpoint()
                place = self._storage.locate(_name(numbers[-1]))
                if numbers[0] == numbers[-1] and self._storage.is_there(commit_name(0)):
                    _log.warning(
                        "The only checkpoint is damaged (%s), all records are read instead: %s", place, problem
                    )
                    return Checkpoint()
                raise CommitLogException(f"The checkpoint {place} cannot be read ({problem}). {NEW_RUN}") from problem

    def segment(self, name: str) -> Iterator[CommitRecord]:
        """The records of a file of the history.

        Raises:
            FileNotFoundError: it is not there, maybe not any more.
            CommitLogException: it cannot be read.
        """
        try:
            document = open_document(self._storage, name)
            return iter([CommitRecord.from_json(record) for record in document["records"]])
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError, StreamsException) as error:
            raise CommitLogException(
                f"A file of the history cannot be read: {self._storage.locate(name)} ({error}). {NEW_RUN}"
            ) from error

    def write(self, checkpoint: Checkpoint, replaced: Sequence[CommitRecord]) -> None:
        """Write a checkpoint, then delete what nobody needs any more.

        Args:
            checkpoint: the checkpoint; its history is that of the one before and what this one adds.
            replaced: the records since the one before.

        Raises:
            OSError: the storage says no.
            CommitLogException: the history cannot be read.
        """
        before = self.newest()
        numbers = [record.number for record in replaced]
        assert numbers == list(range(numbers[0], checkpoint.number + 1)), f"records are missing among {numbers}"
        if numbers[0] != before.number + 1:
            _log.warning(
                "No checkpoint is written: the newest one is %d, this one would follow %d. Maybe another coordinator runs "
                "on the same folder, or a checkpoint was damaged; the next run tidies up",
                before.number,
                numbers[0] - 1,
            )
            return
        history = [*before.history]
        records = list(replaced)
        while history and _records_in(history[-1]) <= len(records):
            records[:0] = self.segment(history.pop())
        segment = f"{HISTORY}/{records[0].number:012d}-{records[-1].number:012d}.json"
        self._storage.put(segment, as_document({"records": [record.to_json() for record in records]}))
        checkpoint = attrs.evolve(checkpoint, history=(*history, segment))
        self._storage.put(_name(checkpoint.number), as_document(checkpoint.to_json()))
        self._tidy(before, checkpoint)

    def _tidy(self, before: Checkpoint, now: Checkpoint) -> None:
        """Delete what neither of these two checkpoints needs; what a crash leaves is found the next time.

        Never what is newer: a coordinator that was replaced may wake up here, and all that is newer is the other one's.
        """
        kept = {_name(before.number), _name(now.number), *before.history, *now.history}
        old = [
            name
            for folder in (CHECKPOINTS, HISTORY)
            for name in self._storage.list(folder)
            if name not in kept and _last_record(name) <= now.number
        ]
        for name in self._storage.list(COMMITS):
            number = name.rpartition("/")[2].removesuffix(".json")
            if number.isdecimal() and int(number) <= before.number and not self._opens_an_epoch(name):
                old.append(name)
        files = (name for folder in FOLDERS for name in self._storage.list_below(folder))
        self._storage.delete([*old, *obsolete(files, before, now)])

    def _opens_an_epoch(self, name: str) -> bool:
        return bool(open_document(self._storage, name).get("openedBy"))

    def _read(self, number: int) -> Checkpoint:
        checkpoint = Checkpoint.from_json(open_document(self._storage, _name(number)))
        if checkpoint.number != number:
            raise ValueError(f"it is checkpoint {checkpoint.number}")
        return checkpoint

    def _numbers(self) -> list[int]:
        names = (name.rpartition("/")[2].removesuffix(".json") for name in self._storage.list(CHECKPOINTS))
        return sorted(int(name) for name in names if name.isdecimal())


def _name(number: int) -> str:
    return f"{CHECKPOINTS}/{number:012d}.json"


def _last_record(name: str) -> int:
    """Up to which record a checkpoint or a file of the history goes; of what is neither, far beyond all."""
    number = name.rpartition("/")[2].removesuffix(".json").rpartition("-")[2]
    return int(number) if number.isdecimal() else sys.maxsize


def _records_in(segment: str) -> int:
    first, last = segment.rpartition("/")[2].removesuffix(".json").split("-")
    return int(last) - int(first) + 1
