"""Spark's source reads topics and outputs that others change meanwhile, in an order that a seed decides; no Spark runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from task_assignor.runtime import CorruptLogException, TopicException
from task_assignor.spark.source import FixedSource, Place, TaskAssignorSource
from tests.runtime.interleaved_remade import RemadeWorld
from tests.runtime.interleaved_runs import RUN, RunWorld
from tests.runtime.interleaved_topics import PARTITIONS, ROOT, TOPIC, TopicWorld
from tests.runtime.interleaving import Interleaving

_DELETED: Final = "were deleted (delete_records)"


class _World(Protocol):
    actors: Interleaving

    def state(self) -> int:
        """The newest state of which somebody was told."""

    def was_there(self, log_id: str, ends: Sequence[int], least: int) -> bool:
        """Whether a state from this one on has had so many rows in each partition."""

    def saw(self, log_id: str, partition: int, start: int, rows: list[int]) -> None:
        """Raise AssertionError if other rows are there."""


class _Reader:
    """What Spark asks for, and what it keeps of the answers.

    Args:
        world: what is read.
        options: those of the source.
    """

    def __init__(self, world: _World, options: Mapping[str, str]) -> None:
        self._world = world
        self._options = {**options, "offsets": "true"}
        self._chance = world.actors.chance

    def query(self) -> None:
        """A DataFrame that is looked at twice."""
        least = self._world.state()
        rows = TaskAssignorSource(self._options)._rows()
        ends = [rows.ends.get(part, 0) for part in self._parts()]
        assert self._world.was_there(rows.log_id, ends, least), "rows of no state"
        fixed = {"since": rows.upto(rows.starts), "upto": rows.upto(rows.ends), "splits": None}
        for _ in range(2):
            self._sleep()
            source = FixedSource({**self._options, **{key: json.dumps(value) for key, value in fixed.items()}})
            reader = source.reader(source.schema())
            self._check(reader, reader.partitions(), rows.starts, rows.upto(rows.ends))

    def stream(self, batches: int) -> None:
        """Batches of which each may be done once more, by a reader that is told how far it and the one before go."""
        begins = self._chance.choice(("earliest", "latest"))
        source = TaskAssignorSource({**self._options, "startingOffsets": begins})
        schema, ends, done = source.schema(), list[Place](), 0
        if "n" not in schema.names:
            return
        reader = source.streamReader(schema)
        for _ in range(batches):
            self._sleep()
            if self._chance.random() < 0.3:
                reader = source.streamReader(schema)
            # Where the first batch begins Spark does not write down.
            start = ends[done - 1] if done else reader.initialOffset()
            if done == len(ends):
                latest = reader.latestOffset(start, object())  # type: ignore[arg-type]
                ends.append(json.loads(json.dumps(latest)))
            starts = start["ends"] if done else ends[0]["starts"]
            self._check(reader, reader.partitions(start, ends[done]), starts, ends[done])
            done += self._chance.random() < 0.7

    def _parts(self) -> list[str]:
        prefix = "" if "topic" in self._options else "0_"
        return [f"{prefix}{partition}" for partition in range(PARTITIONS)]

    def _sleep(self) -> None:
        self._world.actors.point(int(10 ** self._chance.uniform(-1, 3.3)))

    def _check(
        self,
        reader: DataSourceReader | DataSourceStreamReader,
        partitions: Iterable[InputPartition],
        starts: Mapping[str, int],
        end: Place,
    ) -> None:
        """Other processes read what was planned."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        for one in pickle.loads(pickle.dumps(list(partitions))):
            self._sleep()
            for batch in reader.read(one):
                assert isinstance(batch, pa.RecordBatch)
                for row in batch.to_pylist():
                    found[row["partition"]].append((row["offset"], row["n"]))
        for partition, part in enumerate(self._parts()):
            first = starts.get(part, 0)
            assert [offset for offset, _ in found[partition]] == list(range(first, end["ends"].get(part, 0)))
            self._world.saw(end["id"], partition, first, [row for _, row in found[partition]])


class SparkRunWorld(RunWorld):
    """A run folder whose output Spark reads.

    Args:
        seed: decides everything.
    """

    def state(self) -> int:
        """The newest commit of which somebody was told."""
        return self.confirmed

    def was_there(self, log_id: str, ends: Sequence[int], least: int) -> bool:
        """After a commit from this one on."""
        return any(
            [sum(len(self._given(commit)) for commit in self._batches(number, task)) for task in self.sources] == ends
            for number in range(least, len(self.records))
        )

    def saw(self, log_id: str, partition: int, start: int, rows: list[int]) -> None:
        """What tasks gave."""
        task = list(self.sources)[partition]
        known = [row for commit in self._batches(len(self.records), task) for row in self._given(commit)]
        assert rows == known[start : start + len(rows)]

    def _reads(self, often: int) -> None:
        reader = _Reader(self, {"run_dir": RUN, "output": "out"})
        for _ in range(self.chance.randint(1, 5)):
            self._sleep()
            if self.confirmed >= 0:
                self.chance.choice((reader.query, lambda: reader.stream(self.chance.randint(1, often))))()


class SparkTopicWorld(TopicWorld):
    """A topic that Spark reads.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._states: list[list[int]] = []

    def _created(self, name: str) -> None:
        before = self.newest
        super()._created(name)
        self._states += [[len(log) for log in self.log]] * (self.newest - before)

    def state(self) -> int:
        """The oldest version that has all rows of which somebody was told."""
        return next(number for number, ends in enumerate(self._states) if all(map(int.__ge__, ends, self.ends)))

    def was_there(self, log_id: str, ends: Sequence[int], least: int) -> bool:
        """With a version from this one on."""
        return ends in self._states[least:]

    def saw(self, log_id: str, partition: int, start: int, rows: list[int]) -> None:
        """What was appended, also if it is deleted by now."""
        assert rows == self.log[partition][start : start + len(rows)]

    def _reads(self, often: int) -> None:
        reader = _Reader(self, {"topics_root": ROOT, "topic": TOPIC})
        for _ in range(self.chance.randint(1, 5)):
            self.actors.point()
            if not self.is_there:
                continue
            try:
                self.chance.choice((reader.query, lambda: reader.stream(self.chance.randint(1, often))))()
            except TopicException as error:
                if _DELETED not in str(error) or not any(self.deleted):
                    raise


class SparkRemadeWorld(RemadeWorld):
    """A topic that Spark reads, and that somebody writes anew.

    Args:
        seed: decides everything.
    """

    def state(self) -> int:
        """Nobody knows: there may be no topic."""
        return 0

    def was_there(self, log_id: str, ends: Sequence[int], least: int) -> bool:
        """The topic has had these rows, unless they may have gone with the one before."""
        life = self.lives[log_id]
        return all(end <= len(log) for end, log in zip(ends, life.log, strict=True)) or not self._is_safe(life)

    def saw(self, log_id: str, partition: int, start: int, rows: list[int]) -> None:
        """Rows of this topic."""
        self._saw(self.lives[log_id], partition, start, rows)

    def _reads(self, often: int) -> None:
        reader = _Reader(self, {"topics_root": ROOT, "topic": TOPIC})
        for _ in range(self.chance.randint(1, 5)):
            self.actors.point()
            began = self.actors.now
            try:
                self.chance.choice((reader.query, lambda: reader.stream(self.chance.randint(1, often))))()
            except (TopicException, CorruptLogException) as error:
                if not any(self.deleted) and not self._may_fail(None, began):
                    raise AssertionError(f"nothing explains: {error}") from error
