"""What is committed and what is still to be read, task by task; and how micro-batches are cut. No members, no files.

A batch counts here as soon as the coordinator has accepted it: it is in the next commit, or the run ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedProgress, SavedTask
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions, SubTopologyId
from task_assignor.runtime.machines.coordinator.topic_news import TopicNews
from task_assignor.runtime.machines.protocol import START, Change, Position, Recovery, position_of
from task_assignor.runtime.machines.records import CommitRecord, Marker, Piece, TaskCommit, TaskSnapshot, part_path
from task_assignor.sdk import TaskId

_KEPT_GENERATIONS: Final = 64
"""So many of a task are known at least: states of their time are worth something, since parts of newer snapshots are in them."""
KEPT_MARKERS: Final = 32
"""So many markers are known, the newest."""


@attrs.define
class _TaskProgress:
    sources: tuple[str, ...]
    offsets: dict[str, int]
    """Source topic -> next offset to read."""
    untouched: set[str]
    """Source topics of which nothing counts yet: where the task began with them is not known, if rows may go at the front."""
    seals: dict[str, str] = attrs.field(factory=dict)
    """Source topic -> checksum of the file with the row before that offset, if it is known."""
    times: dict[str, int] = attrs.field(factory=dict)
    """Source topic that many tasks write -> up to which time all of these had come, as far as the task was told."""
    position: Position = START
    recovery: Recovery = attrs.field(factory=Recovery)
    """From what the state is restored."""
    first_batches: list[int] = attrs.field(factory=list)
    """Batches from which on the task was committed under another generation than before, ascending."""
    generations: list[int] = attrs.field(factory=list)
    """The generations that began there."""

    def generation_of(self, batch: int) -> int:
        number = bisect_right(self.first_batches, batch) - 1
        return self.generations[number] if number >= 0 else -1

    def see_generation(self, commit: TaskCommit) -> None:
        """A batch was committed; of generations that it cannot be restored from the newest are known."""
        if not self.generations or self.generations[-1] != commit.generation:
            self.first_batches.append(commit.batch)
            self.generations.append(commit.generation)
        while len(self.generations) > _KEPT_GENERATIONS and self.first_batches[1] <= self.recovery.floor.batch:
            del self.first_batches[0], self.generations[0]


def _sub_topology(task: TaskId) -> SubTopologyId:
    return task.topology_name, task.subtopology


def _task(of: SubTopologyId, partition: int) -> TaskId:
    topology_name, number = of
    return TaskId(number, partition, topology_name)


class Progress:
    """Offsets, positions and changelog ends of all tasks.

    Args:
        sources: task -> its source topics.
        ends: source topic -> end offset of each partition: how far it reaches by now.
        tables: topics that a task reads to their end before its others.
        starts: source topic -> first offset of each partition that can be read; None: 0.
        repartitions: the sources among them that sub-topologies write; None: there are none.

    Attributes:
        checkpoint: the commit from whose checkpoint the coordinator went on; -1: there was none.
        fed: the tasks that may go on because of what others wrote, or will write no more.
        feeds: topic that a sub-topology writes -> the topics that it reads. Those come first of which one is made by way of others.
    """

    def __init__(
        self,
        sources: Mapping[TaskId, Sequence[str]],
        ends: Mapping[str, Sequence[int]],
        tables: Collection[str] = (),
        starts: Mapping[str, Sequence[int]] | None = None,
        repartitions: Repartitions | None = None,
    ) -> None:
        self._repartitions = repartitions or Repartitions()
        ends = {**ends, **self._repartitions.ends()}
        # Those of the run's own files have no rows yet.
        starts = None if starts is None else {**self._repartitions.ends(), **starts}
        begin = starts or {topic: [0] * len(found) for topic, found in ends.items()}
        self._tasks = {
            task: _TaskProgress(tuple(topics), {topic: begin[topic][task.partition] for topic in topics}, set(topics))
            for task, topics in sorted(sources.items())
        }
        self._ends = {topic: list(found) for topic, found in ends.items()}
        self._seen = {topic: list(found) for topic, found in ends.items()}
        """The same as it was looked at: tasks may have read on since."""
        self._tables = frozenset(tables)
        self.checkpoint = self._last_commit = -1
        self._batches = 0
        self._reader_of = {topic: _sub_topology(task) for task in self._tasks for topic in sources[task]}
        read: dict[SubTopologyId, list[str]] = {}
        for topic, reader in self._reader_of.items():
            read.setdefault(reader, []).append(topic)
        feeds = {topic: read.get(writer, []) for topic, writer in self._repartitions.writers.items()}
        self.feeds = {topic: feeds[topic] for topic in TopologicalSorter(feeds).static_order() if topic in feeds}
        last = {_sub_topology(task): task.partition for task in self._tasks}
        bounds = np.cumsum([0, *(partition + 1 for partition in last.values())])
        self._all_remaining: npt.NDArray[np.int64] = np.zeros(bounds[-1], np.int64)
        self._remaining = dict(zip(last, np.split(self._all_remaining, bounds[1:-1]), strict=False))
        """Sub-topology -> (tasks,) source rows that do not count yet: parts of those of all."""
        for task, found in self._tasks.items():
            for topic, offset in found.offsets.items():
                self._remaining[_sub_topology(task)][task.partition] += self._ends[topic][task.partition] - offset
        self._open_repartitions = set(self._repartitions.ends()) if self._repartitions.are_awaited else set()
        """Repartition topics that get more rows, even if nothing else grows."""
        told = self._repartitions.are_awaited or self._repartitions.news_every_ms is not None
        timed = [topic for topic in self._repartitions.timed if told and topic not in self._tables]
        readers = {topic: len(self._remaining[self._reader_of[topic]]) for topic in timed if topic in self._reader_of}
        self._news = TopicNews(readers, self._repartitions.news_every_ms)
        self._now_ms = 0
        self._markers: tuple[Marker, ...] = ()
        self.fed: set[TaskId] = set()

    @classmethod
    def after(
        cls,
        checkpoint: Checkpoint,
        records: Iterable[CommitRecord],
        sources: Mapping[TaskId, Sequence[str]],
        ends: Mapping[str, Sequence[int]],
        tables: Collection[str] = (),
        starts: Mapping[str, Sequence[int]] | None = None,
        repartitions: Repartitions | None = None,
    ) -> Progress:
        """The progress after a checkpoint and the commits that follow it: how a coordinator begins.

        Raises:
            CommitLogException: a record does not fit the tasks, the topics, or the record before it.
        """
        progress = cls(sources, ends, tables, starts, repartitions)
        progress._load(checkpoint)
        for record in records:
            progress.begin_commit(record.number)
            for task in sorted(record.tasks):
                progress.advance(record.tasks[task])
            for task in sorted(record.snapshots):
                progress.take_snapshot(record.snapshots[task])
            progress.publish(record)
        progress._see_how_far_all_are()
        return progress

    def saved(self) -> SavedProgress:
        """How far every task is, for a checkpoint."""
        tasks = {
            task: SavedTask(
                dict(found.offsets),
                tuple(zip(found.first_batches, found.generations, strict=True)),
                found.recovery.copy(),
                dict(found.seals),
                dict(found.times),
            )
            for task, found in self._tasks.items()
        }
        return SavedProgress(self._batches, self._repartitions.saved(), tasks, self._markers)

    def _load(self, checkpoint: Checkpoint) -> None:
        """Take what was saved."""
        self.checkpoint = self._last_commit = checkpoint.number
        saved = checkpoint.state
        self._batches = saved.batches
        self._markers = saved.markers
        self._repartitions.load(
            saved.repartitions,
            {
                task: (state.recovery.end.stream_time, min(state.times.values(), default=None))
                for task, state in saved.tasks.items()
            },
        )
        self.move_ends(self._repartitions.ends())
        for task, state in saved.tasks.items():
            found = self._tasks.get(task)
            if found is None:
                raise self._unknown(task)
            for topic, offset in state.offsets.items():
                start = found.offsets.get(topic, 0)
                self._advance_offset(
                    f"The checkpoint {checkpoint.number}", task, found, topic, min(start, offset), offset
                )
            found.seals = dict(state.seals)
            found.recovery = state.recovery.copy()
            found.position = found.recovery.end
            if found.position.batch >= 0:
                self._hear(task, found, state.times)
            found.first_batches = [first for first, _ in state.generations]
            found.generations = [generation for _, generation in state.generations]

    @property
    def last_commit(self) -> int:
        """The last commit; -1: none."""
        return self._last_commit

    @property
    def batches(self) -> int:
        """Batches of all tasks that count."""
        return self._batches

    @property
    def tasks(self) -> Collection[TaskId]:
        """All tasks, sorted."""
        return self._tasks.keys()

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The newest markers, oldest first."""
        return self._markers

    @property
    def topics(self) -> Collection[str]:
        """All topics that tasks read."""
        return self._ends.keys()

    @property
    def sources(self) -> list[str]:
        """Those that no sub-topology writes."""
        return [topic for topic in self._ends if topic not in self._repartitions]

    def ends(self, topic: str) -> list[int]:
        """Per partition of a source the offset up to which there are rows."""
        return list(self._ends[topic])

    def offsets(self, topic: str) -> list[int]:
        """Per partition of a source the offset up to which its rows count."""
        return [reader.offsets[topic] for reader in self._readers(topic)]

    def seals(self, topic: str) -> list[str]:
        """Per partition of a source the checksum of the file with the row before that offset; "": it is not known."""
        return [reader.seals.get(topic, "") for reader in self._readers(topic)]

    def _readers(self, topic: str) -> list[_TaskProgress]:
        """The task that reads it, per partition."""
        reader = self._reader_of[topic]
        return [self._tasks[_task(reader, partition)] for partition in range(len(self._ends[topic]))]

    def position(self, task: TaskId) -> Position:
        """Where the state of a task is committed."""
        return self._tasks[task].position

    def counts(self, task: TaskId, position: Position) -> bool:
        """A state at this position is one that was committed, now or earlier; of an unknown task nothing counts.

        Nor does a state that no change leads on from, if it is older than the newest generations: it would count for ever.
        """
        found = self._tasks.get(task)
        if found is None:
            return False
        if position.batch < 0 or position.batch >= found.recovery.floor.batch:
            return position.batch < 0 or found.recovery.reaches(position)
        return found.generation_of(position.batch) == position.generation

    def recovery(self, task: TaskId) -> Recovery:
        """From what the state of a task is restored; a copy."""
        return self._tasks[task].recovery.copy()

    def has_replaced(self, task: TaskId, floor: int | None) -> bool:
        """A newer snapshot has taken the place of changes that a restore from this batch on needed; None: needs none."""
        found = self._tasks.get(task)
        return found is not None and floor is not None and floor < found.recovery.floor.batch

    def changelog_ends(self) -> dict[TaskId, int]:
        """Task -> end offset of its changelogs, summed."""
        return {task: found.position.changelog_offset for task, found in self._tasks.items()}

    def lag(self, task: TaskId, position: Position) -> int:
        """Rows of the changelogs that a state at this position has not seen."""
        end = self.position(task).changelog_offset
        return end - position.changelog_offset if self.counts(task, position) else end

    def rows_to_read(self, task: TaskId, position: Position) -> int:
        """Rows of the changelogs that are read to restore a state at this position: at most those after the newest snapshot."""
        found = self._tasks[task]
        newest = found.recovery.newest
        end = found.position.changelog_offset
        return min(self.lag(task, position), end - (newest.changelog_offset if newest else 0))

    def remaining_rows(self) -> int:
        """Source rows that do not count yet."""
        return int(self._all_remaining.sum())

    @property
    def is_complete(self) -> bool:
        """All rows count, and all have heard how far those are who wrote what they read."""
        return not self.remaining_rows() and not any(map(self.has_news, self._tasks))

    def move_ends(self, ends: Mapping[str, Sequence[int]]) -> list[TaskId]:
        """Sources reach further by now; gives the tasks that have more to read.

        Args:
            ends: source topic -> end offset of each partition.

        Raises:
            CommitLogException: a source has become shorter.
        """
        grown = {(topic, partition) for topic in ends for partition in self._move_end(topic, ends[topic])}
        return sorted({_task(self._reader_of[topic], partition) for topic, partition in grown})

    def _move_end(self, topic: str, ends: Sequence[int]) -> list[int]:
        seen = self._seen[topic]
        moved = [partition for partition, end in enumerate(ends) if end != seen[partition]]
        for partition in moved:
            if ends[partition] < seen[partition]:
                raise CommitLogException(
                    f"The topic {topic}, partition {partition}, ends at offset {ends[partition]}, but it had rows up to offset "
                    f"{seen[partition]} before. Maybe it was written again, or its brokers have lost them, as where a replica without "
                    "them was elected; then the run needs a new folder, and where outputs are topics of Kafka another application.id."
                )
            seen[partition] = ends[partition]
        return [partition for partition in moved if self._reaches(topic, partition, ends[partition])]

    def _reaches(self, topic: str, partition: int, end: int) -> bool:
        """A source has rows up to there, or more; gives whether that is further than was known."""
        further = end - self._ends[topic][partition]
        if further > 0:
            self._remaining[self._reader_of[topic]][partition] += further
            self._ends[topic][partition] = end
        return further > 0

    def publish(self, record: CommitRecord) -> tuple[str, ...]:
        """A commit is made: what its tasks wrote for others can be read.

        Returns:
            The files of repartition topics that nobody needs any more.
        """
        # The clock of who opens an epoch counts: that of the one before may have been ahead, maybe by years.
        self._now_ms = record.committed_at_ms if record.opened_by else max(self._now_ms, record.committed_at_ms)
        if record.opened_by:
            self._repartitions.begin(self._now_ms)
        written = (record.tasks[task] for task in sorted(record.tasks))
        self.fed.update(self.move_ends(self._repartitions.publish(written, self._now_ms)))
        self._markers = (*self._markers, *record.markers)[-KEPT_MARKERS:]
        # One with tasks has all that counts, so nobody is ahead of it.
        if record.tasks and (complete := self._see_how_far_all_are()):
            self.fed.update(task for task, found in self._tasks.items() if complete.intersection(found.sources))
        return self._repartitions.take_unwanted()

    def take_fed(self) -> list[TaskId]:
        """Those that are `fed`, and are so no more."""
        fed, self.fed = self.fed, set()
        return sorted(fed)

    def _see_how_far_all_are(self) -> set[str]:
        """Those who write repartition topics; gives the topics that get no more rows unless sources grow: they have read everything."""
        busy: dict[str, npt.NDArray[np.bool_]] = {}
        complete: set[str] = set()
        for topic, read in self.feeds.items():
            # Which of those that write it have more to read or to hear, or will have, since others write it.
            are_busy: npt.NDArray[np.bool_] = self._remaining[self._repartitions.writers[topic]] > 0
            for found in busy.keys() & read:
                are_busy |= busy[found].any()
                if found in self._news:
                    are_busy |= self._news.are_behind(found, self._repartitions.time(found))
            if topic in self._repartitions.timed:
                are_busy |= self._repartitions.are_held(topic, self._now_ms)
                self._repartitions.move_time(topic, are_busy)
            busy[topic] = are_busy
            if not are_busy.any() and complete.issuperset(self._open_repartitions.intersection(read)):
                complete.add(topic)
        complete &= self._open_repartitions
        self._open_repartitions -= complete
        return complete

    def pieces(self, task: TaskId, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[Piece, ...]]:
        """Where the rows are that a task may read of repartition topics."""
        return {
            topic: self._repartitions.pieces(topic, task.partition, start, end)
            for topic, (start, end) in ranges.items()
            if topic in self._repartitions and end > start
        }

    def times(self, task: TaskId, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[tuple[int, int], ...]]:
        """How far those are who write what a task reads."""
        return {
            topic: self._repartitions.times(topic, task.partition, start, end)
            for topic, (start, end) in ranges.items()
            if topic in self._repartitions.timed and topic not in self._tables
        }

    def has_news(self, task: TaskId) -> bool:
        """A task that has read everything is to be told how far those have come who wrote it: a batch without rows is due.

        So what is closed at the end of a run does not depend on which of them was the last one.
        """
        sources = self._tasks[task].sources
        told = [topic for topic in sources if topic in self._news]
        if not told or self._remaining[_sub_topology(task)][task.partition]:
            return False
        if self._open_repartitions.intersection(sources):
            return False
        return any(self._news.is_due(topic, task.partition, self._repartitions.time(topic)) for topic in told)

    def _hear(self, task: TaskId, found: _TaskProgress, times: Mapping[str, int]) -> None:
        """A batch of a task counts, with which it was told how far those have come who wrote what it reads."""
        found.times.update(times)
        for topic in found.sources:
            if topic in self._news:
                self._news.hear(topic, task.partition, times.get(topic))

    @property
    def next_news_ms(self) -> int | None:
        """When those are to be told of the time of repartition topics for whom there are no rows, ms since the epoch; None: when there is more."""
        return self._news.next_ms(self._times, may_move=any(self._is_held(topic) for topic in self._times))

    def _is_held(self, topic: str) -> bool:
        return bool(self._repartitions.are_held(topic, self._now_ms).any())

    def tell_news(self, now_ms: int) -> None:
        """It is time for that, and nothing waits for a commit: who is to be told is among those who may go on (`take_fed`)."""
        self._now_ms = max(self._now_ms, now_ms)
        self._see_how_far_all_are()
        self._news.announce(self._times, now_ms)
        self.fed.update(filter(self.has_news, self._tasks))

    @property
    def _times(self) -> dict[str, int]:
        return {topic: self._repartitions.time(topic) for topic in self._repartitions.timed}

    def unread(self, task: TaskId) -> dict[str, int]:
        """Source topic -> rows of it that are there and do not count yet."""
        found = self._tasks[task]
        return {topic: self._ends[topic][task.partition] - found.offsets[topic] for topic in found.sources}

    def next_ranges(
        self, task: TaskId, max_rows: int, awaited: Collection[str] = ()
    ) -> tuple[dict[str, tuple[int, int]], frozenset[str]]:
        """What the next micro-batch of a task may read; the task takes of it what nothing comes before in time.

        Tables come first, alone.

        Args:
            task: the task.
            max_rows: at most so many rows of each source.
            awaited: sources that more rows of are waited for, beyond those that are there; besides them, all repartition
                topics whose writers have not read everything.

        Returns:
            Source topic -> (first offset, offset after the last), empty if all is read or something is to be waited for;
            and the sources that have rows beyond those, or are waited for, of the ones whose turn it is.
        """
        if self.has_news(task):
            return self.no_rows(task), frozenset()
        left = self.unread(task)
        awaited = {*awaited, *self._open_repartitions.intersection(left)}
        if any(rows or topic in awaited for topic, rows in left.items() if topic in self._tables):
            left = {topic: rows for topic, rows in left.items() if topic in self._tables}
        if not any(left.values()) or any(not rows and topic in awaited for topic, rows in left.items()):
            return {}, frozenset()
        starts = self._tasks[task].offsets
        ranges = {topic: (start, start + min(left.get(topic, 0), max_rows)) for topic, start in starts.items()}
        return ranges, frozenset(topic for topic, rows in left.items() if rows > max_rows or topic in awaited)

    def no_rows(self, task: TaskId) -> dict[str, tuple[int, int]]:
        """What a micro-batch of a task reads in which something is done that is due by the time alone."""
        return {topic: (offset, offset) for topic, offset in self._tasks[task].offsets.items()}

    def is_last(self, task: TaskId, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Nothing is left for a task behind these rows, and no repartition topic that it reads will get more."""
        ends = {topic: self._ends[topic][task.partition] for topic in self._tasks[task].sources}
        return not self._open_repartitions.intersection(ends) and all(ranges[topic][1] == ends[topic] for topic in ends)

    def begin_commit(self, number: int) -> None:
        """A commit is made, or was made.

        Raises:
            CommitLogException: it does not follow the one before it.
        """
        if number != self._last_commit + 1:
            raise CommitLogException(f"Commit {number} was made, but commit {self._last_commit + 1} should be.")
        self._last_commit = number

    def may_read_on(self, task: TaskId) -> bool:
        """Rows of its sources may be read of which nobody has said here yet that they are there: no order hangs on how far those are."""
        return all(topic not in self._repartitions and topic not in self._tables for topic in self._tasks[task].sources)

    def advance(self, commit: TaskCommit, *, is_new: bool = False) -> None:
        """A batch counts; one that `is_new` was made just now, and may have read on.

        Raises:
            CommitLogException: it does not follow what the task did before.
        """
        task, found = commit.task, self._tasks.get(commit.task)
        if found is None:
            raise self._unknown(task)
        if commit.batch != found.position.batch + 1:
            raise CommitLogException(
                f"Batch {commit.batch} of task {task} was committed, but batch {found.position.batch + 1} should be."
            )
        for topic, (start, end) in commit.offsets.items():
            if is_new and topic not in self._repartitions:
                self._reaches(topic, task.partition, end)
            self._advance_offset(f"Batch {commit.batch} of task {task}", task, found, topic, start, end)
            if start < end or commit.seals.get(topic):
                # Who has read nothing of it may not know what was read before.
                found.seals[topic] = commit.seals.get(topic, "")
        self._batches += 1
        self._hear(task, found, commit.times)
        found.position = position_of(commit)
        found.recovery.add(Change(found.position, commit.changelogs))
        found.see_generation(commit)

    def why_refuse(self, snapshot: TaskSnapshot) -> str:
        """Why a snapshot cannot count; "": it can, whoever wrote it: its task may have gone to somebody else meanwhile.

        Its files are new, or of snapshots that count: others may be deleted by now.
        """
        found = self._tasks.get(snapshot.task)
        if found is None:
            return "the topology does not have that task"
        newest = found.recovery.newest
        if newest is not None and snapshot.batch <= newest.batch:
            return f"there is one of batch {newest.batch}"
        if not found.recovery.reaches(position_of(snapshot)):
            return f"batch {snapshot.batch} of generation {snapshot.generation} was not committed"
        known = {path for one in found.recovery.snapshots for path in one.paths.values()}
        for store, saved in snapshot.stores.items():
            for part in saved.parts:
                path = snapshot.paths.get(part.name, "")
                if path not in known and path != part_path(store, snapshot.task, snapshot.batch, part.name):
                    return f"its file {path!r} is neither new nor of a snapshot that counts"
        return ""

    def take_snapshot(self, snapshot: TaskSnapshot) -> None:
        """A snapshot counts.

        Raises:
            CommitLogException: it cannot.
        """
        problem = self.why_refuse(snapshot)
        if problem:
            raise CommitLogException(f"A snapshot of task {snapshot.task} was committed, but {problem}.")
        self._tasks[snapshot.task].recovery.add_snapshot(snapshot)

    def _advance_offset(self, what: str, task: TaskId, found: _TaskProgress, topic: str, start: int, end: int) -> None:
        known = found.offsets.get(topic)
        limit = self._ends[topic][task.partition] if known is not None else -1
        if known is not None and topic in found.untouched and start < known:
            # When the task began with it, rows were there that are gone by now.
            self._remaining[_sub_topology(task)][task.partition] += known - start
            known = start
        if known is None or known != start or not start <= end <= limit:
            raise CommitLogException(
                f"{what} was committed with offsets {start} to {end} of topic {topic}, partition {task.partition}; the "
                f"topology and the topics allow {known} to {limit}. Maybe the topic was put back from an older copy: put the "
                "run folder back from one of then, too, before anything is appended; else, as where brokers have lost records, the run "
                "needs a new folder, and where outputs are topics of Kafka another application.id."
            )
        found.offsets[topic] = end
        found.untouched.discard(topic)
        self._remaining[_sub_topology(task)][task.partition] -= end - start
        if topic in self._repartitions:
            self._repartitions.consume(topic, task.partition, end)

    @staticmethod
    def _unknown(task: TaskId) -> CommitLogException:
        return CommitLogException(
            f"Batches were committed for task {task}, which the topology does not have. Maybe the topology was changed; a "
            "changed one needs a new run folder."
        )

    def validate(self) -> None:
        """Raise AssertionError if something holds that never may."""
        for task, found in self._tasks.items():
            found.recovery.validate()
            assert found.recovery.end.is_same_try(found.position)
            for topic, offset in found.offsets.items():
                assert 0 <= offset <= self._ends[topic][task.partition], f"{task} is beyond the end of {topic}"
        left = sum(
            self._ends[topic][task.partition] - at for task, x in self._tasks.items() for topic, at in x.offsets.items()
        )
        assert left == self.remaining_rows()
