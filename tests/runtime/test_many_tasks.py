"""What a batch costs the machines does not hang on how many tasks there are: nobody looks at all of them for one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    CommitLog,
    CommitRecord,
    FileRef,
    Processor,
    SubTopology,
    TaskCommit,
    TaskContext,
    Topology,
)
from task_assignor.runtime.machines.client.machine import ClientMachine
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.topic_time import Writers
from task_assignor.runtime.storage import LocalStorage, Seal
from task_assignor.sdk import TaskId
from tests.runtime.simulation import World

BATCHES = 4


class Nothing(Processor):
    """Gives nothing."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Nothing."""


def _calls_of_a_batch(tasks: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Python functions that the machines call in a run without faults, by batch; those that loop over something count each time."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    def profiled(function: Callable[..., Any], profile: Callable[[FrameType, str, object], None] | None) -> Any:
        def call(*given: object) -> object:
            before = sys.getprofile()
            sys.setprofile(profile)
            try:
                return function(*given)
            finally:
                sys.setprofile(before)

        return call

    with monkeypatch.context() as patched:
        for machine in (ClientMachine, Coordinator):
            patched.setattr(machine, "handle", profiled(machine.handle, count))
        # A checkpoint has all tasks in it; there is one now and then, whatever happens.
        patched.setattr(Progress, "saved", profiled(Progress.saved, None))
        world = World(
            0,
            clients=2,
            faults=0,
            partitions=(tasks, 1, 1),
            rows=(BATCHES * 10,),
            checks=0.0,
            restart_coordinator=False,
        )
        world.run(100_000)
    batches = sum(len(record.tasks) for record in world.commits)
    assert batches >= BATCHES * tasks / 2
    return calls / batches


@pytest.mark.thorough
def test_a_batch_costs_as_much_beside_many_tasks_as_beside_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_calls_of_a_batch(tasks, monkeypatch) for tasks in (10, 80))
    assert many < 1.2 * few, f"{few:.0f} and {many:.0f} calls a batch"


def _lines_of(work: Callable[[], object]) -> int:
    """Lines of Python that are run; those that loop over something count each time."""
    run = 0

    def see(_: FrameType, event: str, __: object) -> Any:
        nonlocal run
        run += event == "line"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        work()
    finally:
        sys.settrace(before)
    return run


@pytest.mark.parametrize("what", ["a sub-topology", "the offsets of a topic"])
def test_one_of_many_sub_topologies_is_found_as_quickly_as_one_of_few(what: str) -> None:
    """Each was looked for among all, for each task and topic: with two thousand of them that took minutes."""

    def lines(count: int) -> int:
        topology = Topology([SubTopology(f"s{number}", f"t{number}", Nothing) for number in range(count)])
        tasks = [TaskId(number, 0) for number in range(count)]
        topics = {task: (f"t{task.subtopology}",) for task in tasks}
        progress = Progress(topics, {topic: [1] for (topic,) in topics.values()})

        def find(task: TaskId) -> None:
            if what == "a sub-topology":
                topology.of_task(task)
            else:
                progress.seals(*topics[task])

        find(tasks[0])
        return _lines_of(lambda: find(tasks[-1]))

    assert 0 < lines(400) <= lines(4)


def test_a_topic_is_put_in_the_order_of_many_sources_as_quickly_as_of_few() -> None:
    """All were gone through twice for each: with 1 600 that took twelve seconds."""

    def lines(count: int) -> int:
        sources = [f"t{number}" for number in range(count)]
        subs = [SubTopology(str(number), read, Nothing) for number, read in enumerate((sources, sources[1:]))]
        return _lines_of(lambda: Topology(subs))

    assert lines(80) < 5 * lines(20)


@pytest.mark.parametrize("topics", [1, 2])
def test_a_commit_costs_as_much_for_each_stage_however_many_there_are(topics: int) -> None:
    """For each topic all before it were asked anew, and for these again: 14 stages with two topics between them took a minute, 16 the run."""

    def lines(stages: int) -> int:
        between = [tuple(f"{stage}-{topic}" for topic in range(topics)) for stage in range(stages)]
        writers = {topic: (None, stage) for stage, written in enumerate(between) for topic in written}
        sources = {TaskId(stage, 0): read for stage, read in enumerate([("x",), *between])}
        known = Repartitions(dict.fromkeys(writers, 1), writers, timed=dict.fromkeys(writers, Writers(1)))
        progress = Progress(sources, {"x": [1]}, repartitions=known)
        task = TaskCommit(TaskId(0, 0), 0, "c", "p", "m", "a", 1, {"x": (0, 1)})
        progress.advance(task)
        ran = _lines_of(lambda: progress.publish(CommitRecord(0, "app", 1, 1, 0, {task.task: task})))
        assert not progress.remaining_rows()
        assert {reader.subtopology for reader in progress.take_fed()} == {*range(1, stages + 1)}
        return ran

    assert lines(10) < 3 * lines(5)


def test_the_files_of_a_commit_are_looked_at_together(tmp_path: Path) -> None:
    """A store that takes 30 ms for each look was asked one after the other: 4 s for 64 tasks, in which the coordinator did nothing else."""
    files = {TaskId(0, partition): f"output/out/{partition}/0.arrow" for partition in range(10)}
    together = threading.Barrier(len(files))

    class Slow(LocalStorage):
        def size(self, name: str) -> int:
            if name in files.values():
                together.wait(10)
            return super().size(name)

    storage = Slow(tmp_path)
    storage.put_all(dict.fromkeys(files.values(), b"x"))
    offsets = {"topic": (0, 1)}
    tasks = {
        task: TaskCommit(
            task, 0, "client", "process", "member", "pid 7", 1, offsets, {"out": FileRef(name, Seal(1, 1, "x"))}
        )
        for task, name in files.items()
    }
    CommitLog(tmp_path, storage=storage).append(CommitRecord(0, "app", 1, 1, 1_000, tasks))
    assert CommitLog(tmp_path).last == 0
