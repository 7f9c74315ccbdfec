"""What is in repartition topics: rows that a sub-topology gave for another one to read, by partition. No files here.

A commit of a task that writes to a repartition topic names one file, with the rows of partition 0 first, then those of
partition 1, and so on. Within a partition offsets follow the order of commits, within a commit that of tasks, within a
file that of its rows: so they are fixed by the commit log, whoever reads it. Rows that were read count as gone; a file of
which all rows are gone is needed by nobody any more.

Where results go to topics elsewhere, the rows are records there, and a commit says how far they reach.

The time of a topic, for those who read it, is that up to which all who write it have come: see `topic_time`.

A reader that stands still leaves many files unread, so of each only its name and twelve bytes for each partition are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from task_assignor.runtime.machines.checkpoint import SavedFile, SavedRepartition
from task_assignor.runtime.machines.records import FileRef, Piece, TaskCommit
from task_assignor.runtime.machines.topic_time import NO_TIME, TopicTime, Writers
from task_assignor.sdk import TaskId

SubTopologyId = tuple[str | None, int]
"""Named topology and number of a sub-topology, as in its task ids."""


class _Topic:
    """The files of a topic in the order of their rows, from the first one on that was not read.

    Args:
        partitions: of the topic.
        starts: per partition the offset before the first file; None: 0.
        read: per partition up to where it was read; None: 0.
    """

    def __init__(self, partitions: int, starts: Sequence[int] | None = None, read: Sequence[int] | None = None) -> None:
        self._ends: npt.NDArray[np.int64] = np.zeros((partitions, 8), np.int64)
        """(partitions, N + 1 or more) the offsets before the first file, then those after each."""
        self._places: npt.NDArray[np.int32] = np.zeros((partitions, 8), np.int32)
        """(partitions, N + 1 or more) where the rows of a partition begin in each file; unknown of the first, as there is none."""
        self._times: npt.NDArray[np.int64] = np.full(8, NO_TIME)
        """(N + 1 or more,) the time of the topic there, ms."""
        self._read: npt.NDArray[np.int64] = np.zeros(partitions, np.int64)
        self._ends[:, 0], self._read[:] = starts or 0, read or 0
        self._files: list[FileRef | None] = []
        """None: all of its rows were read, or they are records elsewhere."""
        self._unread: list[int] = []
        """Partitions that have rows in the file which were not read."""

    @property
    def ends(self) -> list[int]:
        found: list[int] = self._ends[:, len(self._files)].tolist()
        return found

    def add(self, file: FileRef | None, rows: Sequence[int]) -> bool:
        """A file more, or records; False: it holds nothing that is to be read."""
        if len(rows) != len(self._read):
            raise ValueError(f"a file has rows for {len(rows)} partitions, the topic has {len(self._read)}")
        if len(self._files) + 1 == self._ends.shape[1]:
            self._make_room()
        before, after = self._ends[:, len(self._files)], self._ends[:, len(self._files) + 1]
        after[:] = before + rows
        self._places[1:, len(self._files) + 1] = np.cumsum(rows[:-1])
        self._times[len(self._files) + 1] = self._times[len(self._files)]
        unread = int(np.count_nonzero(after > np.maximum(before, self._read)))
        self._files.append(file if unread else None)
        self._unread.append(unread)
        return bool(unread)

    def _make_room(self) -> None:
        """Forget the files before the first one that is needed; if these are few, take more room."""
        gone = self._needed_from
        left = len(self._files) + 1 - gone

        def moved(known: npt.NDArray[Any]) -> npt.NDArray[Any]:
            room = np.repeat(known, 2, axis=-1) if 2 * left > known.shape[-1] else known
            room[..., :left] = known[..., gone : gone + left]
            return room

        self._ends, self._places, self._times = moved(self._ends), moved(self._places), moved(self._times)
        del self._files[:gone], self._unread[:gone]

    @property
    def _needed_from(self) -> int:
        return next((place for place, unread in enumerate(self._unread) if unread), len(self._files))

    def come(self, time: int) -> None:
        """All who write it have come up to this time."""
        self._times[len(self._files)] = time

    def times(self, partition: int, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """(offset, time of the topic from there on, ms) wherever that changes, from an offset up to another one, which is included."""
        ends = self._ends[partition, : len(self._files) + 1]
        first = max(int(np.searchsorted(ends, start, "right")) - 1, 0)
        last = int(np.searchsorted(ends, end, "right"))
        offsets, times = ends[first:last], self._times[first:last]
        changes = np.flatnonzero(np.diff(times, prepend=NO_TIME))
        # Of commits without rows of the partition the last one counts.
        return tuple(dict(zip(offsets[changes].tolist(), times[changes].tolist(), strict=True)).items())

    def pieces(self, partition: int, start: int, end: int) -> tuple[Piece, ...]:
        ends = self._ends[partition, : len(self._files) + 1]
        # Those that end after the start and begin before the end.
        first = max(int(np.searchsorted(ends, start, "right")) - 1, 0)
        last = int(np.searchsorted(ends, end))
        found = zip(
            self._files[first:last],
            self._places[partition, first + 1 : last + 1].tolist(),
            ends[first:last].tolist(),
            np.diff(ends[first : last + 1]).tolist(),
            strict=False,
        )
        return tuple(
            Piece(file, place, base, count) for file, place, base, count in found if count and file is not None
        )

    def consume(self, partition: int, end: int) -> Iterator[str]:
        """The partition was read up to an offset; gives the files that nobody needs any more."""
        ends = self._ends[partition, : len(self._files) + 1]
        before, self._read[partition] = int(self._read[partition]), end
        for place in range(int(np.searchsorted(ends, before, "right")), int(np.searchsorted(ends, end, "right"))):
            if ends[place] > ends[place - 1]:
                self._unread[place - 1] -= 1
                file = self._files[place - 1]
                if not self._unread[place - 1] and file is not None:
                    self._files[place - 1] = None
                    yield file.path

    def saved(self, time: TopicTime | None) -> SavedRepartition:
        first = self._needed_from
        ends = self._ends[:, first : len(self._files) + 1]
        files = zip(self._files[first:], np.diff(ends, axis=1).T.tolist(), strict=True)
        return SavedRepartition(
            tuple(ends[:, 0].tolist()),
            tuple(self._read.tolist()),
            tuple(SavedFile(file, tuple(rows)) for file, rows in files),
            () if time is None else time.saved(),
        )

    @classmethod
    def load(cls, saved: SavedRepartition) -> _Topic:
        topic = cls(len(saved.starts), saved.starts, saved.read)
        for found in saved.files:
            topic.add(found.file, found.rows)
        return topic


class Repartitions:
    """The repartition topics of an application.

    Args:
        partitions: topic whose rows are in files of the run -> number of its partitions.
        writers: topic -> the sub-topology that writes it.
        elsewhere: topic whose rows are records elsewhere -> how far each partition reaches.
        timed: topic whose rows have times, as have those that they are made of -> what is known of those who write it.
        are_awaited: who reads them beside other sources waits until those who write them have read everything.
        idle_ms: so long a task that writes one with a time, and has read everything, holds the others back.
        news_every_ms: so often those are told the time of a topic for whom there are no rows in it; None: when all is read.
    """

    def __init__(
        self,
        partitions: Mapping[str, int] | None = None,
        writers: Mapping[str, SubTopologyId] | None = None,
        elsewhere: Mapping[str, Sequence[int]] | None = None,
        timed: Mapping[str, Writers] | None = None,
        *,
        are_awaited: bool = True,
        idle_ms: int = 0,
        news_every_ms: int | None = None,
    ) -> None:
        self.are_awaited = are_awaited
        self.news_every_ms = news_every_ms
        self.writers = dict(writers or {})
        self._elsewhere = frozenset(elsewhere or ())
        self._topics = {topic: _Topic(count) for topic, count in (partitions or {}).items()}
        self._topics |= {topic: _Topic(len(ends), ends) for topic, ends in (elsewhere or {}).items()}
        are_told = are_awaited or news_every_ms is not None
        self._times = {topic: TopicTime(found, idle_ms, are_told=are_told) for topic, found in (timed or {}).items()}
        self._timed_by: dict[SubTopologyId, list[str]] = {}
        for topic in self._times:
            self._timed_by.setdefault(self.writers[topic], []).append(topic)
        self._unwanted: list[str] = []

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def ends(self, topics: Iterable[str] | None = None) -> dict[str, list[int]]:
        """Topic -> end offset of each partition; of all topics, if none are named."""
        return {topic: self._topics[topic].ends for topic in (self._topics if topics is None else topics)}

    def begin(self, now_ms: int) -> None:
        """A run begins."""
        for time in self._times.values():
            time.begin(now_ms)

    def publish(self, commits: Iterable[TaskCommit], now_ms: int) -> dict[str, list[int]]:
        """The rows of a commit can be read.

        Args:
            commits: what its tasks did, in the order of the tasks.
            now_ms: when it was made, ms since the epoch.

        Returns:
            The ends of the topics that have grown.
        """
        grown: dict[str, None] = {}
        for commit in commits:
            for topic, routed in commit.repartitions.items():
                grown[topic] = None
                found = self._topics[topic]
                if topic in self._elsewhere:
                    found.add(None, [max(end - known, 0) for known, end in zip(found.ends, routed.ends, strict=True)])
                elif not found.add(routed.file, routed.rows):
                    self._unwanted.append(routed.file.path)
            for topic in self._timed_by.get((commit.task.topology_name, commit.task.subtopology), ()):
                time, rows = self._times[topic], commit.repartitions.get(topic)
                read = (commit.stream_time, min(commit.times.values(), default=None))
                times = None if rows is None else rows.times
                time.see(commit.task.partition, read, times, commit.to_come.get(topic))
                if commit.rows_in:
                    time.read_rows(commit.task.partition, now_ms)
        return self.ends(grown)

    @property
    def timed(self) -> Collection[str]:
        """The topics that have a time."""
        return self._times.keys()

    def time(self, topic: str) -> int:
        """Up to which time all have come who write a topic, ms."""
        return self._times[topic].now

    def are_held(self, topic: str, now_ms: int) -> npt.NDArray[np.bool_]:
        """(tasks,) for which of those who write a topic that has a time more rows are waited."""
        return self._times[topic].are_held(now_ms)

    def move_time(self, topic: str, are_busy: npt.NDArray[np.bool_]) -> None:
        """See up to which time all have come who write a topic, after commits.

        Args:
            topic: one that has a time.
            are_busy: (tasks,) which of them may give rows of before.
        """
        self._times[topic].move(are_busy)
        self._topics[topic].come(self._times[topic].now)

    def times(self, topic: str, number: int, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """(offset, time of the topic from there on) for rows of a partition of a topic that has a time."""
        return self._topics[topic].times(number, start, end)

    def pieces(self, topic: str, number: int, start: int, end: int) -> tuple[Piece, ...]:
        """Where the rows of a partition with these offsets are; none: elsewhere."""
        return () if topic in self._elsewhere else self._topics[topic].pieces(number, start, end)

    def consume(self, topic: str, number: int, end: int) -> None:
        """The rows of a partition before this offset were read."""
        self._unwanted += self._topics[topic].consume(number, end)

    def take_unwanted(self) -> tuple[str, ...]:
        """The files that nobody needs any more, each once."""
        unwanted, self._unwanted = self._unwanted, []
        return tuple(unwanted)

    # For checkpoints.

    def saved(self) -> dict[str, SavedRepartition]:
        """What can be read, and how much could be read before."""
        return {
            topic: found.saved(self._times.get(topic))
            for topic, found in self._topics.items()
            if topic not in self._elsewhere
        }

    def load(self, saved: Mapping[str, SavedRepartition], read: Mapping[TaskId, tuple[int | None, int | None]]) -> None:
        """Take what was saved, and how far the tasks have read, as `TopicTime.see` wants it."""
        self._topics.update((topic, _Topic.load(found)) for topic, found in saved.items())
        for topic, time in self._times.items():
            if topic in saved:
                time.load(saved[topic].written)
        for task, found in read.items():
            for topic in self._timed_by.get((task.topology_name, task.subtopology), ()):
                self._times[topic].see(task.partition, found, None)
