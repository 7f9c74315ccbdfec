"""What is committed and what is still to be read, task by task; and how micro-batches are cut. No members, no files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from task_assignor.runtime.commits import CommitRecord
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.protocol import START, Position
from task_assignor.sdk import TaskId


@attrs.define
class _TaskProgress:
    sources: tuple[str, ...]
    offsets: dict[str, int]
    """Source topic -> next offset to read."""
    position: Position = START
    first_batches: list[int] = attrs.field(factory=list)
    """Batches from which on the task was committed under another generation than before, ascending."""
    generations: list[int] = attrs.field(factory=list)
    """The generations that began there."""

    def generation_of(self, batch: int) -> int:
        number = bisect_right(self.first_batches, batch) - 1
        return self.generations[number] if number >= 0 else -1


class Progress:
    """Offsets, positions and changelog ends of all tasks.

    Args:
        sources: task -> its source topics.
        ends: source topic -> end offset of each partition: how far the run goes.
        tables: topics that a task reads to their end before its others.
    """

    def __init__(
        self,
        sources: Mapping[TaskId, Sequence[str]],
        ends: Mapping[str, Sequence[int]],
        tables: Collection[str] = (),
    ) -> None:
        self._tasks = {
            task: _TaskProgress(tuple(topics), dict.fromkeys(topics, 0)) for task, topics in sorted(sources.items())
        }
        self._ends = {topic: tuple(found) for topic, found in ends.items()}
        self._tables = frozenset(tables)
        self._last_batch = -1

    @classmethod
    def after(
        cls,
        records: Iterable[CommitRecord],
        sources: Mapping[TaskId, Sequence[str]],
        ends: Mapping[str, Sequence[int]],
        tables: Collection[str] = (),
    ) -> Progress:
        """The progress after committed batches: how a coordinator begins.

        Raises:
            CommitLogException: a record does not fit the tasks, the topics, or the record before it.
        """
        progress = cls(sources, ends, tables)
        for record in records:
            progress.advance(record)
        return progress

    @property
    def last_batch(self) -> int:
        """The last committed batch; -1: none."""
        return self._last_batch

    def position(self, task: TaskId) -> Position:
        """Where the state of a task is committed."""
        return self._tasks[task].position

    def counts(self, task: TaskId, position: Position) -> bool:
        """A state at this position is one that was committed, now or earlier; of an unknown task nothing counts."""
        found = self._tasks.get(task)
        if found is None or position.batch > found.position.batch:
            return False
        return position.batch < 0 or found.generation_of(position.batch) == position.generation

    def changelog_ends(self) -> dict[TaskId, int]:
        """Task -> end offset of its changelogs, summed."""
        return {task: found.position.changelog_offset for task, found in self._tasks.items()}

    def lag(self, task: TaskId, position: Position) -> int:
        """Rows of the changelogs that a state at this position has not seen."""
        end = self.position(task).changelog_offset
        return end - position.changelog_offset if self.counts(task, position) else end

    def remaining_rows(self) -> int:
        """Source rows that are not committed yet."""
        return sum(
            self._ends[topic][task.partition] - found.offsets[topic]
            for task, found in self._tasks.items()
            for topic in found.sources
        )

    def next_ranges(self, max_rows: int) -> dict[TaskId, dict[str, tuple[int, int]]]:
        """The next micro-batch: for each task that has rows left, the same share of what is left of each source.

        Equal shares keep the sources of a join at about the same time, so that its buffers stay small. The result
        does not depend on it. Tables come first, alone.

        Args:
            max_rows: at most so many rows of each partition.

        Returns:
            Task -> source topic -> (first offset, offset after the last); empty: all is read.
        """
        ranges = {}
        for task, found in self._tasks.items():
            left = {topic: self._ends[topic][task.partition] - found.offsets[topic] for topic in found.sources}
            if any(left[topic] for topic in left if topic in self._tables):
                left = {topic: rows if topic in self._tables else 0 for topic, rows in left.items()}
            most = max(left.values())
            if most <= 0:
                continue
            take = {topic: rows if most <= max_rows else -(-rows * max_rows // most) for topic, rows in left.items()}
            ranges[task] = {
                topic: (found.offsets[topic], found.offsets[topic] + take[topic]) for topic in found.sources
            }
        return ranges

    def advance(self, record: CommitRecord) -> None:
        """A batch was committed.

        Raises:
            CommitLogException: it does not follow what was committed before.
        """
        if record.batch != self._last_batch + 1:
            raise CommitLogException(f"Batch {record.batch} was committed, but batch {self._last_batch + 1} should be.")
        for task, commit in record.tasks.items():
            found = self._tasks.get(task)
            if found is None:
                raise CommitLogException(
                    f"Batch {record.batch} was committed for task {task}, which the topology does not have. "
                    "Maybe the topology was changed; a changed one needs a new run folder."
                )
            for topic, (start, end) in commit.offsets.items():
                limit = self._ends[topic][task.partition] if topic in found.offsets else -1
                if found.offsets.get(topic) != start or end > limit:
                    raise CommitLogException(
                        f"Batch {record.batch} was committed with offsets {start} to {end} of topic {topic}, partition "
                        f"{task.partition}; the topology and the topics allow {found.offsets.get(topic)} to {limit}. "
                        "Maybe the topic was written again; then the run needs a new folder."
                    )
                found.offsets[topic] = end
            found.position = Position(record.batch, commit.generation, commit.changelog_offset)
            if not found.generations or found.generations[-1] != commit.generation:
                found.first_batches.append(record.batch)
                found.generations.append(commit.generation)
        self._last_batch = record.batch

    def validate(self) -> None:
        """Raise AssertionError if something holds that never may."""
        for task, found in self._tasks.items():
            assert found.position.batch <= self._last_batch
            for topic, offset in found.offsets.items():
                assert 0 <= offset <= self._ends[topic][task.partition], f"{task} is beyond the end of {topic}"
