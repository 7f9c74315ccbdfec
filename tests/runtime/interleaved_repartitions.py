"""A run whose tasks write rows for each other, while its coordinators replace each other: each row is read once, and files are there until then."""

from __future__ import annotations

import itertools
from typing import ClassVar, Final

import pyarrow as pa

from task_assignor.runtime import CommitLogException, CorruptLogException
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.records import CommitRecord, RoutedFile, TaskCommit
from task_assignor.runtime.run_folder.layout import RunLayout
from task_assignor.runtime.tasks.repartition import RepartitionLog
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import TaskId
from tests.runtime.interleaved_runs import PARTITIONS, REPLACED, RUN, Coordinator, RunWorld, rows_of

_SPEC: Final = TopicSpec("r", PARTITIONS, pa.schema([("n", pa.int64())]), ("n",))


class RepartitionWorld(RunWorld):
    """A run folder whose output is what one sub-topology read of what another one wrote.

    Args:
        seed: decides everything.
    """

    sources: ClassVar = {**RunWorld.sources, **{TaskId(1, partition): ("r",) for partition in range(PARTITIONS)}}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.log: list[list[int]] = [[] for _ in range(PARTITIONS)]
        """Per partition what tasks have written for others."""
        self.most = self.chance.choice((1, 3, 100))
        """So many rows a batch of a reader has."""

    def _repartitions(self) -> Repartitions:
        return Repartitions({"r": PARTITIONS}, {"r": (None, 0)}, are_awaited=False)

    def _take(self, record: CommitRecord) -> None:
        super()._take(record)
        for commit in (record.tasks[task] for task in sorted(record.tasks)):
            if "t" in commit.offsets:
                for rows, log in zip(_parts(commit.task, commit.batch, commit.generation), self.log, strict=True):
                    log += rows

    def _given(self, commit: TaskCommit) -> list[int]:
        return self.log[commit.task.partition][slice(*commit.offsets.get("r", (0, 0)))]

    def _process(self, coordinator: Coordinator, task: TaskId) -> TaskCommit | None:
        progress, layout = coordinator.progress, RunLayout(RUN)
        where = (task, progress.position(task).batch + 1, coordinator.generation)
        if self.sources[task] == ("t",):
            parts = _parts(*where)
            file = self._write(layout.repartition("r", *where), [*itertools.chain(*parts)])
            offsets = {"t": (where[1], where[1] + 1)}
            return self._done(*where, offsets, {}, {"r": RoutedFile(file, tuple(map(len, parts)))})
        ranges, _ = progress.next_ranges(task, self.most)
        if not ranges:
            return None
        log = RepartitionLog(_SPEC, layout, "a run").holding(progress.pieces(task, ranges)["r"])
        try:
            rows = log.fetch(task.partition, *ranges["r"]).rows
        except CorruptLogException as error:
            if self.records[-1].epoch == coordinator.epoch:
                raise
            raise CommitLogException(REPLACED) from error
        output = self._write(layout.output("out", *where), rows.column("n").to_pylist())
        return self._done(*where, ranges, {"out": output})

    def _check_leftovers(self, coordinator: Coordinator) -> None:
        super()._check_leftovers(coordinator)
        unread = coordinator.progress.saved().repartitions["r"].files
        named = {found.file.path for found in unread if found.file is not None}
        there = set(self.storage.list_below("repartition"))
        assert named <= there, "files that are to be read are gone"
        written = coordinator.log.checkpoint().written
        for folder, _, name in (path.rpartition("/") for path in there - named):
            assert int(name.partition("-")[0]) > written.get(folder, -1), f"{name} in {folder} is left"


def _parts(task: TaskId, batch: int, generation: int) -> list[list[int]]:
    """What a task writes for others in a batch, by partition."""
    rows = rows_of(task, batch, generation)
    return [[row for row in rows if row % PARTITIONS == partition] for partition in range(PARTITIONS)]
