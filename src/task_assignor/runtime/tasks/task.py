"""One task on one client: its stores and processor, and the files it reads and writes. What to do when, others decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyarrow as pa

from task_assignor.runtime.blame import line_to_blame, text_of, traceback_of
from task_assignor.runtime.errors import (
    BadRecordException,
    CorruptLogException,
    LateRecordException,
    ProcessorException,
    ProcessorStateException,
    TaskCorruptedException,
)
from task_assignor.runtime.machines.client.task import Restore, SnapshotWritten
from task_assignor.runtime.machines.protocol import (
    Change,
    Position,
    Restored,
    TaskFailure,
    TaskOrder,
    TaskResult,
)
from task_assignor.runtime.machines.records import FileRef, TaskSnapshot
from task_assignor.runtime.run_folder.layout import RunLayout
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import Data
from task_assignor.runtime.storage.disk import advice_on, disk_errors
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.sharing import share
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.task_state import (
    StateOwner,
    TaskState,
    is_from_the_beginning,
    store_folder,
)
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.tasks.repartition import RepartitionLog
from task_assignor.runtime.tasks.results import FolderResults, Found, Results, TaskResults
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.runtime.topics.partitioners import Partitioners
from task_assignor.runtime.topology.sub_topology import Repartitioned
from task_assignor.runtime.topology.topology import ProcessorTopology
from task_assignor.sdk import TaskId


@attrs.frozen(eq=False)
class TaskEnvironment:
    """What the tasks of a client share.

    Args:
        application_id: `application.id`.
        run_id: identity of the run folder.
        run_dir: folder of the run.
        state_dir: folder of the client's snapshots.
        topics: source topics, by name.
        compression: of the files that are written.
        memory: what all stores of the client share.
        put_all: writes the files of a batch, or begins to; None: into the folder of the run, at once.
        results: where results go; None: into the folder of the run.
        epoch_ms: when the coordinator began, milliseconds since the epoch.
    """

    application_id: str
    run_id: str
    run_dir: str | Path
    state_dir: Path
    topics: Mapping[str, Log]
    compression: str | None = None
    memory: StoreMemory = attrs.field(factory=StoreMemory)
    put_all: Callable[[Mapping[str, Data]], None] | None = None
    results: Results | None = None
    epoch_ms: int = 0

    layout: RunLayout = attrs.field(init=False)
    """Where things are."""

    @layout.default
    def _layout(self) -> RunLayout:
        return RunLayout(self.run_dir)

    def state(self, task: TaskId) -> Path:
        """Folder of a task's state."""
        return self.state_dir / self.application_id / str(task)

    def owner(self, task: TaskId) -> StateOwner:
        """Whose state that must be."""
        return StateOwner(self.application_id, self.run_id, str(task))


def share_snapshot(
    environment: TaskEnvironment, task: TaskId, written: SnapshotWritten, newest: TaskSnapshot | None
) -> TaskSnapshot:
    """Write a snapshot into the folder of the run. May run while the task goes on, but not while it writes another one.

    Args:
        environment: where it is.
        task: whose it is.
        written: what the task has written into the state directory.
        newest: the newest snapshot of the task that counts.

    Raises:
        OSError: a file of it cannot be read or written.
    """
    folders = {name: store_folder(environment.state(task), name) for name in written.stores}
    return share(environment.layout.storage, folders, task, written.position, written.stores, newest)


class NothingYetError(Exception):
    """None of the rows of an order can be read yet: a transaction that is open hides them. Nothing was done."""


class StreamTask:
    """A task with its state.

    Args:
        task: its id.
        topology: what it computes.
        environment: what it shares with the client's other tasks.

    Raises:
        ProcessorStateException: the state directory cannot be used.
    """

    def __init__(self, task: TaskId, topology: ProcessorTopology, environment: TaskEnvironment) -> None:
        self.task = task
        self._topology = topology
        self._environment = environment
        folder = environment.state(task)
        with disk_errors(
            ProcessorStateException, f"No state can be kept in {folder}", "Maybe set state.dir to another folder."
        ):
            self._state = TaskState(
                folder, environment.owner(task), topology.stores, environment.memory, environment.layout.storage
            )
        layout = environment.layout
        repartitions = {
            output.name: environment.topics[output.name].spec
            for output in topology.outputs
            if isinstance(output, Repartitioned)
        }
        put_all = environment.put_all or layout.storage.put_all
        parquet = {output.name for output in topology.outputs if output.format == "parquet"}
        files = FolderResults(layout, task, environment.compression, put_all, repartitions, parquet)
        self._results: TaskResults = (
            files if environment.results is None else environment.results.of_task(task, topology, files)
        )
        self._has_failed = False
        """The stores were taken back to where they are, but not what the processors may keep besides."""
        specs = {name: environment.topics[name].spec for name in topology.sources}
        self._partitioners = Partitioners(task.partition, specs)
        self._processors = TaskProcessors(environment.application_id, task, topology, specs, self._state.stores)

    @property
    def position(self) -> Position:
        """Where its state is."""
        return self._state.position

    def store(self, name: str) -> Store:
        """One of its stores."""
        return self._state.stores[name]

    # Restoring.

    def restore(self, wanted: Restore) -> Restored:
        """Bring the state to a committed position: from what is here or the newest usable snapshot, then the changelog's tail.

        Args:
            wanted: where from and where to.

        Returns:
            What it took.

        Raises:
            CorruptLogException: a committed changelog file cannot be read, or no snapshot that it needs.
            TaskCorruptedException: a store on disk cannot be read; it is empty now, and another try begins anew.
        """
        begin = time.perf_counter()
        target, recovery = wanted.target, wanted.recovery
        if self._state.is_at(target) and not self._has_failed:
            self._state.keep()
            return Restored(self.task, target)
        # What a processor may keep besides its stores belongs to another position.
        self._has_failed = False
        self._processors.close()
        if target.batch < 0:
            self._state.reset()
            return Restored(self.task, target)
        with self._whole_or_empty():
            found = self._state.rewind(recovery.reaches, recovery.snapshots)
            assert self.position.batch >= wanted.base.batch, f"{self.task} is at {self.position}, not at {wanted.base}"
            self._state.begin_at(recovery.start)
            if self.position.batch < recovery.floor.batch:
                # The changes before it are deleted.
                assert found.problem is not None, f"{self.task} is at {self.position}, not at {recovery.floor}"
                raise found.problem
            behind, fresh = self.position.batch, set[str]()
            rows = sum(self._replay(change, fresh) for change in recovery.changes if change.position.batch > behind)
        assert self._state.is_at(target), f"{self.task} is at {self.position}, not at {target}"
        seconds = time.perf_counter() - begin
        return Restored(self.task, target, rows, found.rows, found.origin, seconds, found.fetched_bytes)

    def _replay(self, change: Change, fresh: set[str]) -> int:
        """Make the changes of a batch in the stores that lack them; gives the rows read.

        Args:
            change: the batch.
            fresh: the stores with nothing from before that was not read just now; those that become so are added.
        """
        batch = change.position.batch

        def read(name: str, file: FileRef) -> Iterator[pa.Table]:
            step(f"the changes of batch {batch} of store {name!r} are read from {file.path}")
            for piece in self._results.changes(file, name, batch, is_fresh=name in fresh):
                if is_from_the_beginning(piece):
                    fresh.add(name)
                yield piece

        return self._state.apply(change.position, {name: read(name, file) for name, file in change.changelogs.items()})

    @contextmanager
    def _whole_or_empty(self) -> Iterator[None]:
        try:
            yield
        except TaskCorruptedException:
            self._processors.close()
            self._state.reset()
            raise

    # Processing.

    def is_due(self) -> bool:
        """Something may be due by the clock. Asked by the client's own thread, also while a job runs."""
        return self._processors.is_due()

    def process(self, order: TaskOrder) -> TaskResult:
        """Process one micro-batch and write its files; nothing of it is visible to readers yet.

        Args:
            order: what to process; the state must be at `order.base`.

        Raises:
            CorruptLogException: a source file cannot be read.
            NothingYetError: none of the rows can be read yet.
            TaskMigratedException: another owner of the task has taken over.
            ProcessorException: the processor raised, gave something that is no table, or is to stop at a record that cannot be read.
            TaskCorruptedException: a store on disk cannot be read; it is empty now.
        """
        assert self._state.is_at(order.base), f"{self.task} is at {self.position}, the order needs {order.base}"
        begin = time.perf_counter()
        found = self._results.begin(order)
        if found is not None:
            return self._take(order, found)
        step("its sources are read")
        logs = self._logs(order)
        batch = TaskInput.read(order, self._topology.sources, self._topology.tables, logs)
        self._processors.check(batch)
        if batch.is_short and not batch.moves and not self._processors.is_due():
            raise NothingYetError
        self._partitioners.look(batch.rows)
        with self._whole_or_empty():
            # What the last batch changed counts now.
            self._state.keep()
            try:
                outputs, counters = self._processors.run(order, batch)
                if batch.lost:
                    counters["lost_records"] = counters.get("lost_records", 0) + batch.lost
                step("its results are written")
                changes = self._drain_changes()
                stream_time = self._processors.stream_time
                made = self._results.write(order, batch.offsets, outputs, changes, stream_time, counters)
            except BaseException:
                self._results.close()
                self._state.rollback()
                self._has_failed = True
                raise
        offset = order.base.changelog_offset + sum(table.num_rows for table in changes.values())
        self._state.position = self._position_of(order, offset, self._processors.stream_time)
        seconds = time.perf_counter() - begin
        return TaskResult(
            self.task,
            order.batch,
            order.generation,
            batch.offsets,
            made.outputs,
            made.changelogs,
            self.position,
            counters,
            seconds,
            repartitions=made.repartitions,
            seals={name: logs[name].seal_before(self.task.partition, end) for name, (_, end) in batch.offsets.items()},
            is_short=batch.is_short,
            times={topic: int(found[-1]) for topic, found in batch.times.items()},
            to_come=self._processors.to_come(),
        )

    def _take(self, order: TaskOrder, found: Found) -> TaskResult:
        """What was made of the order before becomes the answer to it, and the state goes along."""
        position = self._position_of(order, found.changelog_offset, found.stream_time)
        # What a processor keeps besides its stores belongs to where they were.
        self._processors.close()
        try:
            with self._whole_or_empty():
                self._state.keep()
                self._replay(Change(position, found.made.changelogs), {*found.made.changelogs})
        except BaseException:
            # Who tries again has to find it again.
            self._results.close()
            raise
        return TaskResult(
            self.task,
            order.batch,
            order.generation,
            found.offsets,
            found.made.outputs,
            found.made.changelogs,
            position,
            found.counters,
            is_found=True,
            repartitions=found.made.repartitions,
        )

    def _position_of(self, order: TaskOrder, changelog_offset: int, stream_time: int | None) -> Position:
        return Position(order.batch, order.generation, changelog_offset, stream_time, self._environment.epoch_ms)

    def _logs(self, order: TaskOrder) -> dict[str, Log]:
        """The task's sources with what the order says can be read of them."""
        logs = {name: self._environment.topics[name] for name in self._topology.sources}
        return {
            name: log.holding(order.pieces.get(name, ())) if isinstance(log, RepartitionLog) else log
            for name, log in logs.items()
        }

    def _drain_changes(self) -> dict[str, pa.Table]:
        """What the batch changed, of the stores that have a changelog."""
        changes = {name: store.drain_changes() for name, store in self._state.stores.items()}
        return {name: found for name, found in changes.items() if found is not None and name in self._state.logged}

    # The end.

    def snapshot(self) -> SnapshotWritten:
        """Write the state to the state directory, if there is any, and remove older snapshots.

        Raises:
            OSError: the disk says no; older snapshots are still there.
            TaskCorruptedException: a store on disk cannot be read; it is empty now.
        """
        with self._whole_or_empty():
            saved = self._state.save()
        return SnapshotWritten(self.position) if saved is None else SnapshotWritten(saved.position, saved.stores)

    def close(self) -> None:
        """The task leaves this client; what is on disk stays."""
        try:
            self._processors.close()
        finally:
            self._results.close()
            self._state.close()


def failure_of(task: TaskId, error: BaseException) -> TaskFailure:
    """What the coordinator is told about an exception."""
    if isinstance(error, ProcessorException):
        cause = error if error.__cause__ is None else error.__cause__
        line, kind, place = line_to_blame(cause.__traceback__), "processor", ("", -1, -1, "")
        if isinstance(error, BadRecordException):
            kind = "late" if isinstance(error, LateRecordException) else "bad"
            place = (error.topic, error.partition, error.offset, "")
        return TaskFailure(task, kind, str(error), error.remote_traceback, place, line)
    trace = traceback_of(error)
    if isinstance(error, CorruptLogException):
        place = (error.topic, error.partition, error.offset, error.path)
        return TaskFailure(task, "log", f"Task {task}: {error}", trace, place)
    return TaskFailure(task, "client", f"Task {task} failed with {text_of(error)}{advice_on(error)}", trace)
