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


def test_a_batch_costs_as_much_beside_many_tasks_as_beside_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_calls_of_a_batch(tasks, monkeypatch) for tasks in (10, 80))
    assert many < 1.2 * few, f"{few:.0f} and {many:.0f} calls a batch"


@pytest.mark.parametrize("what", ["a sub-topology", "the offsets of a topic"])
def test_one_of_many_sub_topologies_is_found_as_quickly_as_one_of_few(what: str) -> None:
    """Each was looked for among all, for each task and topic: with two thousand of them that took minutes."""

    def lines(count: int) -> int:
        topology = Topology([SubTopology(f"s{number}", f"t{number}", Nothing) for number in range(count)])
        tasks = [TaskId(number, 0) for number in range(count)]
        topics = {task: (f"t{task.subtopology}",) for task in tasks}
        progress = Progress(topics, {topic: [1] for (topic,) in topics.values()})
        run = 0

        def see(_: FrameType, event: str, __: object) -> Any:
            nonlocal run
            run += event == "line"
            return see

        def find(task: TaskId) -> None:
            if what == "a sub-topology":
                topology.of_task(task)
            else:
                progress.seals(*topics[task])

        find(tasks[0])
        before = sys.gettrace()
        sys.settrace(see)
        try:
            find(tasks[-1])
        finally:
            sys.settrace(before)
        return run

    assert 0 < lines(400) <= lines(4)


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
