"""A job that has nothing to do but to wait for others lets its client's thread begin something else; two processors never run at once for that."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from task_assignor.runtime import (
    Processor,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    read_output,
    write_topic,
)
from task_assignor.runtime.machines.client.machine import JOBS_OF_A_THREAD
from task_assignor.runtime.machines.client.task import Job, JobKind
from task_assignor.runtime.machines.client.values import (
    JobDone,
    JobWaits,
    NothingYet,
    Received,
    RunJob,
    SendToCoordinator,
)
from task_assignor.runtime.machines.protocol import START, Assign, GivenBack, Process, TaskDone
from task_assignor.runtime.steps import Steps, only_waits
from task_assignor.runtime.tasks.results import Made, Results, TaskResults
from task_assignor.runtime.topics.topic import FolderTopics
from task_assignor.sdk import TaskId
from tests.runtime.machine import Machine, a_member, an_order, result_of
from tests.runtime.support import QUICK, settings

TASKS = [TaskId(0, partition) for partition in range(2 * JOBS_OF_A_THREAD)]


def _with_orders() -> tuple[Machine, list[RunJob]]:
    """A client with one thread, active tasks, and an order for each; these are the first ones."""
    machine = a_member()
    machine.handle(Received(Assign(1, dict.fromkeys(TASKS, START), {})))
    jobs = machine.handle(Received(Process(tuple(an_order(task, 0) for task in TASKS))))
    return machine, [job for job in jobs if isinstance(job, RunJob)]


def _of(task: TaskId) -> RunJob:
    return RunJob(Job(JobKind.PROCESS, task, order=an_order(task, 0)))


def test_the_thread_of_a_job_that_only_waits_begins_the_next_one() -> None:
    machine, jobs = _with_orders()
    first, second, third = TASKS[:3]
    assert jobs == [_of(first)]
    assert machine.handle(JobWaits(first)) == [_of(second)]
    assert machine.handle(JobWaits(first)) == [], "that is said already"
    result = result_of(an_order(first, 0))
    # The second one computes.
    assert machine.handle(JobDone(_of(first).job, result)) == [SendToCoordinator(TaskDone(result))]
    assert machine.handle(JobWaits(second)) == [_of(third)]
    machine.validate_state()


def test_no_more_jobs_than_so_many_are_begun_however_many_wait() -> None:
    machine, begun = _with_orders()
    for task in TASKS[:JOBS_OF_A_THREAD]:
        begun += [job for job in machine.handle(JobWaits(task)) if isinstance(job, RunJob)]
        machine.validate_state()
    assert begun == [_of(task) for task in TASKS[:JOBS_OF_A_THREAD]]
    result = result_of(an_order(TASKS[1], 0))
    assert machine.handle(JobDone(_of(TASKS[1]).job, result))[1:] == [_of(TASKS[JOBS_OF_A_THREAD])]


def test_an_order_of_which_nothing_can_be_read_yet_is_given_back() -> None:
    machine, jobs = _with_orders()
    first, second = TASKS[:2]
    assert machine.handle(JobDone(jobs[0].job, NothingYet())) == [
        SendToCoordinator(GivenBack((an_order(first, 0),))),
        _of(second),
    ]
    machine.validate_state()
    assert machine.handle(Received(Process((an_order(first, 0),)))) == [], "it is the last in turn now"


def test_a_work_says_once_it_waits_and_what_is_no_work_says_nothing() -> None:
    steps, told = Steps(), []
    only_waits("nobody asks")
    with steps.of("process", TASKS[0], lambda: told.append(steps.now())):
        only_waits("the others")
    only_waits("nobody asks any more")
    assert told == [{("process", TASKS[0]): (1, "the others")}]


# In a run.

_both = threading.Barrier(2)
"""Each process has its own."""
_processing: list[TaskId] = []


class _Waiting:
    """Files, which are not done with before those of another task are."""

    def __init__(self, files: TaskResults) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write(self, *given: Any) -> Made:
        made = self._files.write(*given)
        only_waits("another task has to come")
        _both.wait(60)
        return made


class _AllWait:
    def of_task(self, task: TaskId, topology: Any, files: TaskResults) -> Any:
        return _Waiting(files)

    def take_permit(self, permit: bytes, first: int) -> None:
        """Whatever is recorded counts."""


class _TopicsThatWait(FolderTopics):
    def results(self, application_id: str, topology: object, who: str) -> Results:  # type: ignore[override]
        return _AllWait()


class _Alone(Processor):
    """Copies, and holds that no other one does so meanwhile."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        _processing.append(context.task_id)
        assert _processing == [context.task_id], _processing
        rows = pa.concat_tables(batch.values())
        _processing.clear()
        return rows


def test_a_client_of_one_thread_processes_one_task_while_the_results_of_another_wait(tmp_path: Path) -> None:
    rows = pa.table({"key": range(100), "n": range(100)})
    write_topic(tmp_path / "topics", "t", rows, partitions=2, key="key")
    app = StreamsApplication(
        Topology([SubTopology("copy", ("t",), _Alone, outputs=("rows",))]),
        settings(),
        topics_root=_TopicsThatWait(str(tmp_path / "topics")),
        run_dir=tmp_path / "run",
        clients=1,
        options=QUICK,
    )
    assert app.run().batches == 2
    assert sorted(read_output(tmp_path / "run", "rows").column("n").to_pylist()) == [*range(100)]
