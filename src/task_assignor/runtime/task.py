"""One task on one client: its stores and processor, and the files it reads and writes. What to do when, others decide."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.blame import line_to_blame, text_of, traceback_of
from task_assignor.runtime.client import Restore
from task_assignor.runtime.commits import FileRef, RunLayout, open_committed
from task_assignor.runtime.context import TaskContext
from task_assignor.runtime.errors import CorruptLogException, ProcessorException, TopicException
from task_assignor.runtime.files import open_arrow, read_json, write_arrow, write_json
from task_assignor.runtime.processor import Processor
from task_assignor.runtime.protocol import START, Change, Position, Restored, TaskFailure, TaskOrder, TaskResult
from task_assignor.runtime.storage import DamagedDocumentError, Seal
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.task_input import TaskInput
from task_assignor.runtime.topic_writing import fit_to_schema
from task_assignor.runtime.topics import Topic
from task_assignor.runtime.topology import SubTopology, processor_name
from task_assignor.sdk import StreamsException, TaskId

_log = logging.getLogger(__name__)
SNAPSHOT_VERSION: Final = 2


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
    """

    application_id: str
    run_id: str
    run_dir: Path
    state_dir: Path
    topics: Mapping[str, Topic]
    compression: str | None = None

    @property
    def layout(self) -> RunLayout:
        """Where things are."""
        return RunLayout(self.run_dir)

    def snapshots(self, task: TaskId) -> Path:
        """Folder of the snapshots of a task."""
        return self.state_dir / self.application_id / str(task)


@attrs.frozen
class Snapshot:
    """A snapshot in a state directory.

    Args:
        path: its folder.
        position: what it holds.
        files: store -> what its file is.
    """

    path: Path
    position: Position
    files: Mapping[str, Seal]


def list_snapshots(environment: TaskEnvironment, task: TaskId) -> list[Snapshot]:
    """The snapshots of a task that belong to this run, newest first; whether they count is not checked."""
    folder = environment.snapshots(task)
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            document = read_json(path / "snapshot.json")
            identity = (document["formatVersion"], document["runId"], document["task"])
            if identity == (SNAPSHOT_VERSION, environment.run_id, str(task)):
                position = Position(document["batch"], document["generation"], document["changelogOffset"])
                found.append(Snapshot(path, position, {name: Seal(*seal) for name, seal in document["files"].items()}))
        except DamagedDocumentError as error:
            _log.warning("The snapshot %s of task %s is damaged and not used: %s", path, task, error)
        except (OSError, ValueError, KeyError, TypeError):
            # Half written, or something else: what has no description is no snapshot.
            continue
    return sorted(found, key=lambda snapshot: (snapshot.position.batch, snapshot.position.generation), reverse=True)


def local_positions(environment: TaskEnvironment) -> dict[TaskId, tuple[Position, ...]]:
    """Task -> its snapshots in the state directory, newest first: what a client says when it joins."""
    folder = environment.state_dir / environment.application_id
    positions = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            task = TaskId.parse(path.name)
        except StreamsException:
            continue
        snapshots = list_snapshots(environment, task)
        if snapshots:
            positions[task] = tuple(snapshot.position for snapshot in snapshots)
    return positions


class StreamTask:
    """A task with its state in memory.

    Args:
        task: its id.
        sub_topology: what it computes.
        environment: what it shares with the client's other tasks.

    Attributes:
        position: where the state is; None: a try failed in the middle, the state is worth nothing.
    """

    def __init__(self, task: TaskId, sub_topology: SubTopology, environment: TaskEnvironment) -> None:
        self.task = task
        self.position: Position | None = START
        self._sub_topology = sub_topology
        self._environment = environment
        self._stores: dict[str, Store] = {spec.name: spec.create() for spec in sub_topology.stores}
        self._logged = [spec.name for spec in sub_topology.stores if spec.logged]
        self._processor: Processor | None = None
        self._snapshot_position: Position | None = None
        self._context = TaskContext(
            environment.application_id,
            task,
            {name: environment.topics[name].spec for name in sub_topology.sources},
            tuple(found.name for found in sub_topology.outputs if found.name not in sub_topology.dead_letters),
            self._stores,
            sub_topology.bad_records,
            sub_topology.late_records,
        )

    # Restoring.

    def restore(self, wanted: Restore) -> Restored:
        """Bring the state to a committed position: from memory or the newest usable snapshot, then the changelog's tail.

        Args:
            wanted: where from and where to.

        Returns:
            What it took.

        Raises:
            CorruptLogException: a committed changelog file cannot be read.
        """
        begin = time.perf_counter()
        target = wanted.target
        if self.position is not None and self.position.is_same_try(target):
            return Restored(self.task, target)
        # What a processor may keep besides its stores belongs to another position.
        self.close()
        origin, snapshot_rows = self._start_from(wanted)
        assert self.position is not None
        rows = 0
        for change in wanted.changes:
            if change.position.batch > self.position.batch:
                rows += self._replay(change)
        assert self.position.is_same_try(target), f"{self.task} is at {self.position}, not at {target}"
        return Restored(self.task, target, rows, snapshot_rows, origin, time.perf_counter() - begin)

    def _start_from(self, wanted: Restore) -> tuple[str, int]:
        """Put the best local state into the stores; gives its origin and the rows read for it."""
        if wanted.target.batch < 0:
            self._reset()
            return "new", 0
        committed = {change.position.batch: change.position for change in wanted.changes}
        for snapshot in list_snapshots(self._environment, self.task):
            position = committed.get(snapshot.position.batch)
            # One that is older than what is in memory is not among the changes.
            if position is not None and position.is_same_try(snapshot.position):
                rows = self._load(snapshot)
                if rows is not None:
                    return "snapshot", rows
        if wanted.base.batch >= 0:
            assert self.position is not None
            assert self.position.is_same_try(wanted.base)
            return "memory", 0
        self._reset()
        return "changelog", 0

    def _reset(self) -> None:
        for store in self._stores.values():
            store.clear()
        self.position = START

    def _load(self, snapshot: Snapshot) -> int | None:
        """Rows loaded; None: the snapshot cannot be read, and an older one or the changelog must do."""
        position = snapshot.position
        try:
            tables = {
                name: open_arrow(
                    snapshot.path / f"{name}.arrow",
                    snapshot.files[name],
                    "snapshot",
                    name,
                    self.task.partition,
                    position.batch,
                )
                for name in self._logged
            }
        except (CorruptLogException, KeyError) as error:
            _log.warning(
                "The snapshot %s of task %s is damaged; the changelog is read instead: %s",
                snapshot.path,
                self.task,
                error,
            )
            shutil.rmtree(snapshot.path, ignore_errors=True)
            return None
        self._reset()
        for name, table in tables.items():
            self._stores[name].load(table)
        self.position = self._snapshot_position = position
        return sum(int(table.num_rows) for table in tables.values())

    def _replay(self, change: Change) -> int:
        rows, batch = 0, change.position.batch
        self.position = None
        for name, file in change.changelogs.items():
            table = open_committed(self._environment.layout, file, "changelog", name, self.task.partition, batch)
            self._stores[name].apply(table)
            rows += file.rows
        self.position = change.position
        return rows

    # Processing.

    def process(self, order: TaskOrder) -> TaskResult:
        """Process one micro-batch and write its files; nothing of it is visible to readers yet.

        Args:
            order: what to process; the state must be at `order.base`.

        Raises:
            CorruptLogException: a source file cannot be read.
            ProcessorException: the processor raised, or gave something that is no table.
        """
        assert self.position is not None
        assert self.position.is_same_try(order.base), f"{self.task} is at {self.position}, the order needs {order.base}"
        begin = time.perf_counter()
        batch = TaskInput.read(order, self._sub_topology.sources, self._environment.topics)
        # From here to the end the stores are between two positions.
        self.position = None
        outputs, counters = self._run_processor(order, batch)
        written = {name: self._write_output(name, table, order) for name, table in outputs.items()}
        changelogs = self._write_changelogs(order)
        offset = order.base.changelog_offset + sum(file.rows for file in changelogs.values())
        self.position = Position(order.batch, order.generation, offset, self._context.stream_time)
        seconds = time.perf_counter() - begin
        return TaskResult(
            self.task,
            order.batch,
            order.generation,
            batch.offsets,
            written,
            changelogs,
            self.position,
            counters,
            seconds,
        )

    def _run_processor(self, order: TaskOrder, batch: TaskInput) -> tuple[dict[str, pa.Table], dict[str, int]]:
        context = self._context
        process = os.getpid()
        try:
            if self._processor is None:
                processor = self._sub_topology.processor()
                context.renew(self._now_ms())
                processor.init(context)
                self._processor = processor
            context.begin(order.batch, batch.offsets, batch.rows)
            context.stream_time = order.base.stream_time
            context.punctuate_by_clock(self._now_ms())
            for part in batch.parts(order.base.stream_time, context.schedules):
                context.turn_to(part.offsets, part.rows)
                rows = self._processor.process_batch(part.rows, context)
                if rows is not None:
                    context.forward(rows)
                context.stream_time = part.stream_time
                context.punctuate(part.due, part.stream_time)
            outputs, counters = context.finish()
            fitted = {name: self._fit(name, tables) for name, tables in outputs.items() if any(map(len, tables))}
        except BaseException as error:  # `sys.exit`, a panic of a library: whatever ends a processor ends the run
            raise ProcessorException(self._story(order, error), str(self.task), traceback_of(error)) from error
        finally:
            if os.getpid() != process:
                # The processor has forked and its child has come out here, where it has nothing to do.
                os._exit(1)
        return fitted, counters

    @staticmethod
    def _now_ms() -> int:
        return int(time.time() * 1_000)

    def _fit(self, output: str, tables: list[pa.Table]) -> pa.Table:
        schema = next(found.schema for found in self._sub_topology.outputs if found.name == output)
        tables = [table for table in tables if table.num_rows]
        if schema is not None:
            tables = [fit_to_schema(table, schema, f"the output {output!r}") for table in tables]
        for table in tables:
            if len(set(table.schema.names)) != len(table.schema.names):
                raise TopicException(f"The rows for the output {output!r} have a column twice: {table.schema.names}.")
        try:
            return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
        except pa.ArrowException as error:
            raise TopicException(
                f"The rows for the output {output!r} do not have the same columns ({error}). "
                f"Maybe declare them: Output({output!r}, schema)."
            ) from error

    def _story(self, order: TaskOrder, error: BaseException) -> str:
        # Those of the part that failed.
        ranges = "; ".join(
            f"topic {topic}, partition {self.task.partition}, offsets {start} to {end - 1}"
            if end > start
            else f"topic {topic}, partition {self.task.partition}, no rows"
            for topic, (start, end) in self._context.offsets.items()
        )
        if self._context.record is not None:
            topic, offset = self._context.record
            ranges += f"; at the record {topic}, partition {self.task.partition}, offset {offset}"
        return (
            f"The processor {processor_name(self._sub_topology.processor)} of sub-topology {self._sub_topology.name!r} "
            f"failed in task {self.task}, batch {order.batch} ({ranges}): {text_of(error)}"
        )

    def _write_output(self, name: str, table: pa.Table, order: TaskOrder) -> FileRef:
        path = self._environment.layout.output(name, self.task, order.batch, order.generation)
        return self._write(path, table)

    def _write_changelogs(self, order: TaskOrder) -> dict[str, FileRef]:
        written = {}
        for name, store in self._stores.items():
            changes = store.drain_changes()
            if changes is not None and name in self._logged:
                path = self._environment.layout.changelog(name, self.task, order.batch, order.generation)
                written[name] = self._write(path, changes)
        return written

    def _write(self, path: Path, table: pa.Table) -> FileRef:
        seal = write_arrow(path, table.combine_chunks(), self._environment.compression)
        columns = [(field.name, str(field.type)) for field in table.schema]
        return FileRef(path.relative_to(self._environment.run_dir).as_posix(), seal, columns)

    # Snapshots.

    def snapshot(self) -> bool:
        """Write the state to the state directory and remove older snapshots. False: there was nothing new to write.

        Snapshots are not synced: one that a power failure damages is noticed by its checksum, and only saved time.

        Raises:
            OSError: the disk says no; older snapshots are still there.
        """
        position = self.position
        if position is None or position.batch < 0 or not self._logged or position == self._snapshot_position:
            return False
        folder = self._environment.snapshots(self.task)
        final = folder / f"{position.batch:012d}-{position.generation:08d}"
        temporary = folder / f".{final.name}.{id(self)}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            files = {
                name: write_arrow(temporary / f"{name}.arrow", self._stores[name].snapshot()) for name in self._logged
            }
            write_json(temporary / "snapshot.json", self._describe(position, files), is_durable=False)
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._snapshot_position = position
        for path in folder.iterdir():
            if path.name < final.name:
                shutil.rmtree(path, ignore_errors=True)
        return True

    def _describe(self, position: Position, files: Mapping[str, Seal]) -> dict[str, Any]:
        return {
            "formatVersion": SNAPSHOT_VERSION,
            "applicationId": self._environment.application_id,
            "runId": self._environment.run_id,
            "task": str(self.task),
            "batch": position.batch,
            "generation": position.generation,
            "changelogOffset": position.changelog_offset,
            "files": {name: seal.to_json() for name, seal in files.items()},
        }

    def close(self) -> None:
        """The task leaves this client; its snapshots stay."""
        if self._processor is not None:
            processor, self._processor = self._processor, None
            processor.close()


def failure_of(task: TaskId, error: BaseException) -> TaskFailure:
    """What the coordinator is told about an exception."""
    if isinstance(error, ProcessorException):
        cause = error.__cause__ or error
        return TaskFailure(
            task, "processor", str(error), error.remote_traceback, line=line_to_blame(cause.__traceback__)
        )
    trace = traceback_of(error)
    if isinstance(error, CorruptLogException):
        place = (error.topic, error.partition, error.offset, error.path)
        return TaskFailure(task, "log", f"Task {task}: {error}", trace, place)
    return TaskFailure(task, "client", f"Task {task} failed with {text_of(error)}", trace)
