"""Which files hold the rows of outputs, and which of them become one file. Plain values; no files here.

A batch of a task gives a small file for each output. Neighbours are merged when a checkpoint is written: as in a
log-structured merge tree (O'Neil et al. 1996) two files become one if the older one is at most twice as large, so each row
is copied a number of times that grows as the logarithm of the rows, and of each task few small files are left. Merging changes neither
the rows of a task nor their order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs

from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedOutputFile, SavedOutputs
from task_assignor.runtime.machines.records import CommitRecord, FileRef, Seal, TaskCommit
from task_assignor.sdk import TaskId

MERGED_BYTES: Final = 128 << 20
"""Files are merged up to about this size."""
_GROWTH: Final = 2
_MERGED: Final = re.compile(r"\d{12,}-\d{12,}-(\d{12,})-\d{8,}\.\w+")


@attrs.frozen
class OutputFile:
    """Rows that a task gave for an output: in one batch, or in several that follow each other.

    Args:
        task: the task.
        first: number of the first batch.
        last: number of the last.
        commit: number of the commit of the last.
        file: the file.
    """

    task: TaskId
    first: int
    last: int
    commit: int
    file: FileRef

    @property
    def folder(self) -> str:
        """Folder of the file."""
        return self.file.path.rpartition("/")[0]


@attrs.frozen
class Merge:
    """Files of one task and one output that become one.

    Args:
        output: the output.
        files: the files, in order.
        path: the file that they become.
    """

    output: str
    files: tuple[OutputFile, ...]
    path: str


class OutputFiles:
    """The files of all outputs that count, in the order of their rows: by task, then batch."""

    def __init__(self) -> None:
        self._files: dict[str, dict[TaskId, list[OutputFile]]] = {}
        self._topics: dict[str, str] = {}

    def take(self, record: CommitRecord) -> None:
        """A record was committed."""
        for task, commit in record.tasks.items():
            for output, file in commit.outputs.items():
                if file.topic:
                    self._topics[output] = file.topic
                else:
                    found = OutputFile(task, commit.batch, commit.batch, record.number, file)
                    self._files.setdefault(output, {}).setdefault(task, []).append(found)

    def topic(self, output: str) -> str:
        """The topic elsewhere that an output is; "": it is files."""
        return self._topics.get(output, "")

    def of(self, output: str, commit: int | None = None) -> Iterator[OutputFile]:
        """The files of an output; as they were after a commit, if one is given that is a marker."""
        found = self._files.get(output, {})
        for task in sorted(found):
            yield from (one for one in found[task] if commit is None or one.commit <= commit)

    def paths(self) -> Iterator[str]:
        """Names of all files."""
        return (file.file.path for output in self._files for file in self.of(output))

    def merges(
        self,
        number: int,
        epoch: int,
        limit: int = MERGED_BYTES,
        but: Collection[str] = frozenset(),
        cuts: Sequence[int] = (),
    ) -> list[Merge]:
        """What is to be merged.

        Args:
            number: number of the checkpoint.
            epoch: who merges: of two coordinators that take each other for gone, each has names of its own.
            limit: at most so many bytes become one file.
            but: files that stay as they are.
            cuts: commits, ascending; no file shall have rows of before and after one.
        """
        return [
            Merge(output, run, _merged_name(run, number, epoch))
            for output, tasks in self._files.items()
            for files in tasks.values()
            for run in _runs(files, limit, but, cuts)
        ]

    def replace(self, merge: Merge, seal: Seal, columns: tuple[tuple[str, str], ...]) -> None:
        """Files were merged.

        Args:
            merge: what was to be done.
            seal: what the new file is.
            columns: names and types of its columns.
        """
        first, last = merge.files[0], merge.files[-1]
        found = self._files[merge.output][first.task]
        start = found.index(first)
        assert found[start : start + len(merge.files)] == list(merge.files), "other files were to be merged"
        assert seal.rows == sum(one.file.rows for one in merge.files), "rows were lost"
        merged = OutputFile(first.task, first.first, last.last, last.commit, FileRef(merge.path, seal, columns))
        found[start : start + len(merge.files)] = [merged]

    # For checkpoints.

    def saved(self) -> SavedOutputs:
        """What `load` takes."""
        kinds: dict[tuple[tuple[str, str], ...], int] = {}

        def listed(one: OutputFile) -> SavedOutputFile:
            file = one.file
            return SavedOutputFile(
                one.first, one.last, one.commit, file.path, file.seal, kinds.setdefault(file.columns, len(kinds))
            )

        files = {
            output: {task: tuple(map(listed, found[task])) for task in sorted(found)}
            for output, found in self._files.items()
        }
        return SavedOutputs(dict(self._topics), files, tuple(kinds))

    @classmethod
    def load(cls, saved: SavedOutputs) -> OutputFiles:
        """What was saved."""
        files = cls()
        files._topics = dict(saved.topics)
        files._files = {
            output: {
                task: [
                    OutputFile(
                        task, one.first, one.last, one.commit, FileRef(one.path, one.seal, saved.columns[one.kind])
                    )
                    for one in found
                ]
                for task, found in tasks.items()
            }
            for output, tasks in saved.files.items()
        }
        return files


def _runs(
    files: Sequence[OutputFile], limit: int, but: Collection[str], cuts: Sequence[int]
) -> Iterator[tuple[OutputFile, ...]]:
    """Neighbours to be merged, newest first."""
    run: list[OutputFile] = []
    size = side = 0  # `side`: so many cuts are before what is in the run
    for one in reversed(files):
        before = one.file.seal.size
        stays = one.file.path in but
        is_across = side != (side := bisect_left(cuts, one.commit))
        if run and (stays or is_across or before > _GROWTH * size or before + size > limit):
            if len(run) > 1:
                yield tuple(reversed(run))
            run, size = [], 0
        if not stays:
            run.append(one)
            size += before
    if len(run) > 1:
        yield tuple(reversed(run))


def _merged_name(files: Sequence[OutputFile], number: int, epoch: int) -> str:
    first, last = files[0], files[-1]
    ending = first.file.path.rpartition(".")[2]
    return f"{first.folder}/{first.first:012d}-{last.last:012d}-{number:012d}-{epoch:08d}.{ending}"


def files_after(before: Checkpoint, records: Iterable[CommitRecord]) -> tuple[OutputFiles, dict[str, int]]:
    """The files of outputs after some records, and the last batch of each folder (`Checkpoint.written`).

    Args:
        before: the checkpoint that they follow.
        records: the records.
    """
    files, written = OutputFiles.load(before.outputs), dict(before.written)
    for record in records:
        files.take(record)
        for commit in record.tasks.values():
            for path in written_by(commit):
                written[path.rpartition("/")[0]] = commit.batch
    return files, written


def written_by(commit: TaskCommit) -> Iterator[str]:
    """The files of outputs and repartition topics of a commit."""
    for file in (*commit.outputs.values(), *(routed.file for routed in commit.repartitions.values())):
        if not file.topic:
            yield file.path


def merged_at(path: str) -> int | None:
    """At which checkpoint a file was merged; None: it is what a task wrote."""
    found = _MERGED.fullmatch(path.rpartition("/")[2])
    return int(found[1]) if found else None
