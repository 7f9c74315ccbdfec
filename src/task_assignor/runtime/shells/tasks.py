"""The tasks of a client as its shell sees them, and those of this process: jobs are carried out, what to do is decided elsewhere."""

from __future__ import annotations

import gc
import importlib
import os
import socket
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

import attrs
import pyarrow as pa

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import TaskCorruptedException, TaskMigratedException
from task_assignor.runtime.machines.client.task import Job, JobKind, Share, SnapshotFailed, SnapshotWritten
from task_assignor.runtime.machines.client.values import NothingYet, Outcome, StateLost
from task_assignor.runtime.machines.protocol import Position, TaskClosed, TaskDone, TaskFailed, TaskResult
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.run_folder.layout import RunLayout
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.places import rack_of, tags_of
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import BackgroundWriter, Data
from task_assignor.runtime.storage.disk import warn
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.tasks.offset_reset import with_reset
from task_assignor.runtime.tasks.repartition import RepartitionLog
from task_assignor.runtime.tasks.state_directory import delete_state, local_positions, positions_on_disk
from task_assignor.runtime.tasks.task import (
    NothingYetError,
    StreamTask,
    TaskEnvironment,
    failure_of,
    share_snapshot,
)
from task_assignor.runtime.tasks.task_processors import may_schedule
from task_assignor.runtime.topology.sub_topology import is_ready_made
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)


@attrs.frozen
class Surroundings:
    """Where tasks are.

    Args:
        rack: its rack, if known.
        tags: its tags.
        host: the machine.
        pid: the operating system process.
        positions: task -> the states on its disk, newest first; some may not count.
    """

    rack: str | None
    tags: Mapping[str, str]
    host: str
    pid: int
    positions: Mapping[TaskId, tuple[Position, ...]]


class Tasks(Protocol):
    """The tasks of a client. Its methods come from several threads, but only one job of a task at a time."""

    def surroundings(self) -> Surroundings:
        """Where they are, asked whenever the client joins."""

    def take_permit(self, permit: bytes, first: int) -> None:
        """What they make counts with this permit from now on, also jobs that run; empty: none counts any more. Returns at once.

        Args:
            permit: the permit.
            first: orders of earlier generations do not count.
        """

    def do(self, job: Job) -> Outcome:
        """Carry out a job, in the calling thread."""

    def is_due(self, task: TaskId) -> bool:
        """Something of an active task may be due that is scheduled by the clock; asked while jobs run."""

    def make_durable(self, result: TaskResult, tell: Callable[[TaskDone | TaskFailed], None]) -> None:
        """Have it told what there is to tell of a result, when no power failure can take its files away; from any thread."""

    def share(self, job: Share) -> TaskSnapshot | SnapshotFailed:
        """Write a snapshot into the folder of the run."""

    def close(self) -> None:
        """End; jobs that hang are left to themselves."""


def prepare_process(bootstrap: ClientBootstrap) -> None:
    """Import what tasks need, before any time is measured."""
    # One task is one thread: several clients share a machine, and polars would start a thread per core in each.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    # At its first conversion pyarrow imports pandas, where that is installed: not while a processor's time is measured.
    pa.scalar(0)
    if any(is_ready_made(found.processor) for found in bootstrap.topology.sub_topologies):
        # They compute with it, and to import it takes as long as many batches.
        importlib.import_module("polars")
    _freeze()


@cache
def _freeze() -> None:
    """What is imported stays for ever: to look through it for garbage again and again stops all of the process's tasks for 60 ms.

    Once: a process of Spark's does one job after the other, and what the former one has left is garbage.
    """
    gc.freeze()


def environment_of(
    bootstrap: ClientBootstrap, put_all: Callable[[Mapping[str, Data]], None] | None = None, who: str = ""
) -> TaskEnvironment:
    """What the tasks of a client share.

    Args:
        bootstrap: what is computed, and where files are.
        put_all: writes the files of a batch; None: at once.
        who: name of what has the tasks; empty: the client.

    Raises:
        TopicException: a topic cannot be opened.
    """
    topics: dict[str, Log] = {
        topic: with_reset(
            bootstrap.topics.open(topic, bootstrap.topic_ids.get(topic), bootstrap.columns.get(topic)),
            bootstrap.options.auto_offset_reset,
        )
        for topic in bootstrap.topology.sources
    }
    specs = bootstrap.topology.specs({name: topic.spec for name, topic in topics.items()})
    for name in bootstrap.topology.repartitions:
        found = bootstrap.topics.open_repartition(
            bootstrap.application_id, bootstrap.topology, name, bootstrap.topic_ids.get(name)
        )
        layout = RunLayout(bootstrap.run_dir)
        topics[name] = RepartitionLog(specs[name], layout, bootstrap.run_id) if found is None else found
    return TaskEnvironment(
        bootstrap.application_id,
        bootstrap.run_id,
        bootstrap.run_dir,
        Path(bootstrap.state_dir),
        topics,
        bootstrap.options.compression,
        StoreMemory(bootstrap.options.state_memory_bytes),
        put_all,
        bootstrap.topics.results(bootstrap.application_id, bootstrap.topology, who or bootstrap.spec.name),
        bootstrap.epoch_ms,
    )


class TasksHere:
    """Tasks in this process.

    Args:
        bootstrap: what is computed, and where files are.
        who: name of what has them; empty: the client.

    Raises:
        TopicException: a topic cannot be opened.
    """

    def __init__(self, bootstrap: ClientBootstrap, who: str = "") -> None:
        self._bootstrap = bootstrap
        self._writer = BackgroundWriter(RunLayout(bootstrap.run_dir).storage, bootstrap.spec.capacity + 1)
        self._environment = environment_of(bootstrap, self._writer.put_all, who)
        self._tasks: dict[TaskId, StreamTask] = {}

    def surroundings(self) -> Surroundings:
        """This process, and what is on its disk."""
        spec = self._bootstrap.spec
        return Surroundings(
            rack_of(spec, os.environ, self._bootstrap.options),
            tags_of(spec, os.environ),
            socket.gethostname(),
            os.getpid(),
            local_positions(self._environment),
        )

    def take_permit(self, permit: bytes, first: int) -> None:
        """Where results go they may count with one alone."""
        if self._environment.results is not None:
            self._environment.results.take_permit(permit, first)

    def do(self, job: Job) -> Outcome:
        """Carry out a job; what goes wrong is an outcome too."""
        if job.kind.ends:
            self._close(job.task)
            if job.kind is JobKind.DELETE:
                delete_state(self._environment, job.task, self._bootstrap.options.state_cleanup_delay_ms)
            return TaskClosed(job.task, positions_on_disk(self._environment, job.task))
        try:
            task = self._tasks.get(job.task)
            if task is None:
                step("its stores are opened")
                topology = self._bootstrap.topology.of_task(job.task)
                task = self._tasks.setdefault(job.task, StreamTask(job.task, topology, self._environment))
            if job.kind is JobKind.SNAPSHOT:
                return self._snapshot(task)
            if job.order is not None:
                return task.process(job.order)
            assert job.restore is not None
            return task.restore(job.restore)
        except NothingYetError:
            return NothingYet()
        except TaskCorruptedException as error:
            _log.warning("The state of task %s on disk is damaged and built anew: %s", job.task, error)
            return StateLost(failure_of(job.task, error))
        except TaskMigratedException as error:
            _log.warning("Task %s begins again from what is committed: %s", job.task, error)
            return StateLost(failure_of(job.task, error))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it travels to the application
            _log.debug("Task %s failed", job.task, exc_info=True)
            return failure_of(job.task, error)

    def is_due(self, task: TaskId) -> bool:
        """By its schedules; of a task that was not begun here they are not known."""
        found = self._tasks.get(task)
        return may_schedule(self._bootstrap.topology.of_task(task)) if found is None else found.is_due()

    def make_durable(self, result: TaskResult, tell: Callable[[TaskDone | TaskFailed], None]) -> None:
        """Tell of it when its files are written; why one could not be, travels to the application."""

        def written(error: BaseException | None) -> None:
            tell(TaskDone(result) if error is None else TaskFailed(failure_of(result.task, error)))

        self._writer.when_written([file.path for file in result.files if not file.topic], written)

    def _close(self, task_id: TaskId) -> None:
        task = self._tasks.pop(task_id, None)
        if task is not None:
            try:
                task.close()
            except BaseException:  # noqa: BLE001 - it is gone anyhow
                _log.warning("Task %s failed to close", task_id, exc_info=True)

    @staticmethod
    def _snapshot(task: StreamTask) -> SnapshotWritten | SnapshotFailed:
        try:
            return task.snapshot()
        except OSError as error:
            # A snapshot saves time and space later, nothing more.
            warn(_log, error, "The snapshot of task %s could not be written", task.task)
            return SnapshotFailed(text_of(error))

    def share(self, job: Share) -> TaskSnapshot | SnapshotFailed:
        """Write a snapshot into the folder of the run, while the task goes on."""
        try:
            return share_snapshot(self._environment, job.task, job.written, job.newest)
        except Exception as error:  # noqa: BLE001 - it travels to the application; the task goes on
            warn(_log, error, "The snapshot of task %s could not be written to %s", job.task, self._bootstrap.run_dir)
            return SnapshotFailed(text_of(error))

    def close(self) -> None:
        """End the threads that write."""
        self._writer.close()
