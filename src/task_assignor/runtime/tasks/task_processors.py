"""The processors of a task, side by side: when each is called, and what they give. Files and state are `task`'s."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar, cast

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.arrow.frames import no_rows, taken
from task_assignor.runtime.arrow.merging import Int64Array
from task_assignor.runtime.blame import text_of, text_with_line, traceback_of
from task_assignor.runtime.errors import (
    BadRecordException,
    LateRecordException,
    ProcessorException,
    ProcessorStateException,
    TaskCorruptedException,
    TopicException,
    TopologyException,
)
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.steps import parent_only, step
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topics.writing import fit_to_schema
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.derived import DerivedStream, Known, with_kept_columns
from task_assignor.runtime.topology.processor import NOT_OF_A_RECORD, Processor
from task_assignor.runtime.topology.sub_topology import (
    Repartitioned,
    SubTopology,
    Windows,
    gathers,
    is_ready_made,
    knows_what_comes,
    processor_name,
)
from task_assignor.runtime.topology.topology import ProcessorTopology
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

_log = logger_of(__name__)
T = TypeVar("T")
_Made: TypeAlias = tuple[str, Int64Array, pa.Table]
"""Rows that are made of a topic: see `TaskInput.derived`."""


class TaskProcessors:
    """The processors of a task, one for each sub-topology that it computes.

    Args:
        application_id: `application.id`.
        task: the task.
        topology: what it computes.
        topics: its source topics, by name.
        stores: its stores, by name.

    Attributes:
        stream_time: newest time of all records so far, ms; None: there were none.
    """

    def __init__(
        self,
        application_id: str,
        task: TaskId,
        topology: ProcessorTopology,
        topics: Mapping[str, TopicSpec],
        stores: Mapping[str, Store],
    ) -> None:
        self.stream_time: int | None = None
        self._task = task
        self._schemas = {output.name: output.schema for output in topology.outputs}
        specs, known = dict(topics), dict[int, TopicSpec]()
        self._nodes: list[_Node] = []
        for node in topology.nodes:
            self._nodes.append(_Node(application_id, task, node, topology, specs, known, stores))
            specs |= self._nodes[-1].forwards
        self._current = self._nodes[0]
        read = [topology.derived[name] for node in topology.nodes for name in node.sources if name in topology.derived]
        uses = Counter(id(one) for stream in read for one in stream.lineage)
        self._shared = [stream for stream, count in uses.items() if count > 1]
        """Derived streams whose rows are asked for more than once, by others that are made of them or by several processors."""

    def is_due(self) -> bool:
        """Something may be due by the clock. Asked by the client's own thread, also while a job runs."""
        return any(node.is_due() for node in self._nodes)

    def check(self, batch: TaskInput) -> None:
        """See to it that records of a batch of which there are no rows may be left out.

        Raises:
            BadRecordException: who reads a topic with such is to stop. Names the first of them.
        """
        for node in self._nodes:
            for topic in node.parents if node.context.stops_at_bad_records() else ():
                for record in batch.unreadable.get(topic, ()):
                    partition = self._task.partition
                    raise BadRecordException(
                        f"The record {topic}, partition {partition}, offset {record.offset} {record.error}. Sub-topology {node.node.name!r} "
                        'stops at such. Maybe bad_records="skip", or DeadLetters("name of an output").',
                        topic,
                        partition,
                        record.offset,
                        str(self._task),
                    )

    def run(self, order: TaskOrder, batch: TaskInput) -> tuple[dict[str, pa.Table], dict[str, int]]:
        """Process one batch.

        Args:
            order: what it is.
            batch: its rows, after `check`.

        Returns:
            Output -> its rows, and the counters.

        Raises:
            ProcessorException: a processor raised, or gave something that is no table.
            TaskCorruptedException: a store on disk cannot be read.
            ProcessorStateException: the disk under a store says no.
        """
        try:
            with parent_only():
                return self._run(order, batch)
        except (TaskCorruptedException, ProcessorStateException):
            # No line of the user's is to blame.
            raise
        except BaseException as error:  # `sys.exit`, a panic of a library: whatever ends a processor ends the run
            raise self._named(order, error) from error

    def to_come(self) -> dict[str, int]:
        """Repartition topic that windows write -> no row that they still give is older than this, ms; after `run`."""
        return {name: found for node in self._nodes for name, found in node.to_come().items()}

    def close(self) -> None:
        """They are given up, all of them, also if one cannot be closed, which is told; `run` begins with others."""
        with parent_only():
            for node in self._nodes:
                node.close()

    def _run(self, order: TaskOrder, batch: TaskInput) -> tuple[dict[str, pa.Table], dict[str, int]]:
        outputs: dict[str, pa.Table] = {}
        counters: Counter[str] = Counter()
        known: Known = dict.fromkeys(self._shared)
        # None sees anything of the others but what is forwarded to it, so each has its batch cut by its own schedules.
        for node in self._nodes:
            self._current = node
            tables, forwarded, counts = node.run(order, batch, known)
            batch = attrs.evolve(batch, derived={**batch.derived, **forwarded})
            outputs |= {name: self._fit(name, found) for name, found in tables.items() if any(map(len, found))}
            counters.update(counts)
        self.stream_time = self._current.context.stream_time
        return outputs, dict(counters)

    def _fit(self, output: str, tables: list[pa.Table]) -> pa.Table:
        schema = self._schemas[output]
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

    def _named(self, order: TaskOrder, error: BaseException) -> ProcessorException:
        """What a processor has raised, with its story and, if it is at a record, where that is."""
        story, what = self._story(order, error), (str(self._task), traceback_of(error))
        context = self._current.context
        if isinstance(error, BadRecordException) and error.topic:
            kind = LateRecordException if isinstance(error, LateRecordException) else BadRecordException
            return kind(story, error.topic, error.partition, error.offset, *what)
        if context.record is None or not isinstance(error, Exception) or isinstance(error, _NOT_OF_A_ROW):
            return ProcessorException(story, *what)
        topic, offset = context.record
        return BadRecordException(story, topic, context.partition, offset, *what)

    def _story(self, order: TaskOrder, error: BaseException) -> str:
        node, context = self._current.node, self._current.context
        # Those of the part that failed.
        ranges = "; ".join(
            f"topic {context.root_of(topic)}, partition {context.partition}, offsets {start} to {end - 1}"
            if end > start
            else f"topic {context.root_of(topic)}, partition {context.partition}, no rows"
            for topic, (start, end) in context.offsets.items()
        )
        if context.record is not None:
            topic, offset = context.record
            ranges += f"; at the record {topic}, partition {context.partition}, offset {offset}"
        failed = self._current.failed
        who = f"processor {processor_name(node.processor)}" if failed is None else f"derived stream {failed.name!r}"
        return (
            f"The {who} of sub-topology {node.name!r} failed in task {self._task}, "
            f"batch {order.batch} ({ranges or 'before its rows'}): {text_of(error)}"
        )


class _Node:
    """One of the processors, with its context: what it may know of the task."""

    def __init__(
        self,
        application_id: str,
        task: TaskId,
        node: SubTopology,
        topology: ProcessorTopology,
        topics: Mapping[str, TopicSpec],
        known: dict[int, TopicSpec],
        stores: Mapping[str, Store],
    ) -> None:
        self.node = node
        self._derived = {name: topology.derived[name] for name in node.sources if name in topology.derived}
        self._roots = {name: topology.topics_of([name])[0] for name in node.sources if name in topology.parents}
        self._specs = {name: one.specs_of(topics[one.root], known) for name, one in self._derived.items()}
        self.failed: DerivedStream | None = None
        """The one whose functions are called, or have raised."""
        specs = {name: self._specs[name][-1] if name in self._specs else topics[name] for name in node.sources}
        self.forwards = {name: node.spec_of(name, specs) for name in node.forwarded}
        """What it forwards is like."""
        self.context = TaskContext(
            application_id,
            task,
            specs,
            tuple(output.name for output in node.outputs if output.name not in node.dead_letters),
            {store.name: stores[store.name] for store in node.stores},
            node.bad_records,
            node.late_records,
            {output.name: output.schema for output in node.outputs}
            | {name: spec.schema for name, spec in self.forwards.items()},
            self._roots,
            node.forwarded,
        )
        self._processor: Processor | None = None
        # Here, since a standby's is never made. Who reads one store has no others.
        for name, gathered in gathers(node.processor).items():
            if name in stores:
                cast(WindowStore, stores[name]).gather(gathered)

    def parent_of(self, source: str) -> str:
        """What a source is made of by functions, or itself."""
        return self._derived[source].root if source in self._derived else source

    @property
    def parents(self) -> list[str]:
        """What its sources are, or are made of by functions."""
        return [*dict.fromkeys(map(self.parent_of, self.node.sources))]

    def is_due(self) -> bool:
        if self._processor is None:
            return _may_schedule(self.node)
        return bool(self.context.due_by_clock(_elapsed_ms()))

    def run(
        self, order: TaskOrder, batch: TaskInput, known: Known
    ) -> tuple[dict[str, list[pa.Table]], dict[str, _Made], dict[str, int]]:
        """Process its rows of a batch, adds to what is known of derived streams; gives those of its outputs, what it forwards, and its counters."""
        step()
        self.failed = None
        if self._processor is None:
            processor = self.node.processor()
            if not isinstance(processor, Processor):
                raise TopologyException(
                    f"What makes the processor must give a Processor, but gave {shown(processor)}. Maybe it lacks a return statement."
                )
            self.context.renew(_elapsed_ms())
            processor.init(self.context)
            self._processor = processor
        # Where a derived stream has no rows yet, the rows that it is made of stand under its name: they may be bad.
        parents = {name: self.parent_of(name) for name in self.node.sources}
        self.context.stream_time = order.base.stream_time
        self.context.begin(
            order.batch,
            self._own(batch.offsets),
            {name: batch.of(parent)[2] for name, parent in parents.items()},
            {name: batch.offsets_of(parent) for name, parent in parents.items()},
        )
        # Where something is forwarded of them, who forwards leaves them out.
        for topic in self.parents:
            self.context.leave_out_unreadable(topic, batch.unreadable.get(topic, ()))
        if self._roots:
            forwarded = {name: batch.derived[name] for name in self._roots if name not in self._derived}
            made = {name: self._made(one, batch, known) for name, one in self._derived.items()}
            batch = attrs.evolve(batch, derived={**forwarded, **made})
        self.context.punctuate_by_clock(_elapsed_ms(), round(time.time() * 1_000))
        for part in batch.parts(order.base.stream_time, self.context.schedules):
            rows = self._own(part.rows)
            offsets, row_offsets = self._own(part.offsets), self._own(part.row_offsets)
            self.context.turn_to(offsets, rows, row_offsets, part.newest, part.starts, part.times, part.stream_time)
            # A part may have rows of the others' sources only. Rows that are left out move the time, and so do others who write.
            is_told = part.is_last and is_ready_made(self.node.processor) and not part.times.keys().isdisjoint(rows)
            if is_told or any(part.rows[self._roots.get(name, name)].num_rows for name in self.node.sources):
                found = self._processor.process_batch(rows, self.context)
                if found is not None:
                    (self.context.take if is_ready_made(self.node.processor) else self.context.forward)(found)
            self.context.stream_time = part.stream_time
            self.context.punctuate(part.due, part.stream_time)
        self.context.rest()
        tables, counters = self.context.finish()
        forwarded = {name: self._forwarded(name, tables.pop(name, []), batch) for name in self.forwards}
        return tables, forwarded, counters

    def _forwarded(self, output: str, tables: list[pa.Table], batch: TaskInput) -> _Made:
        """What it forwards of a batch."""
        spec, source = self.forwards[output], self.node.forwarded[output]
        topic, places, _ = batch.of(source)
        numbers = self.context.given.made_of(output)
        if not len(numbers):
            return topic, numbers, no_rows(spec.schema)
        kept = batch.rows[topic].select(self.context.topics[source].kept_columns)
        found, start = [], 0
        # Many have been forwarded one by one, and most of them have the same columns.
        for _, alike in groupby((table for table in tables if table.num_rows), key=attrgetter("schema")):
            table = in_one_piece(pa.concat_tables(alike))
            made_of = places[numbers[start : start + table.num_rows]]
            start += table.num_rows
            whose = taken(kept, pa.array(made_of))
            found.append(
                with_kept_columns(table, whose, self.context.topics[source], spec, f"the forwarded output {output!r}")
            )
        # What was forwarded while records were processed stands before what process() has returned.
        order = np.argsort(numbers, kind="stable")
        made = pa.concat_tables(found)
        is_sorted = bool((order[1:] > order[:-1]).all())
        return topic, places[numbers[order]], made if is_sorted else taken(made, pa.array(order))

    def to_come(self) -> dict[str, int]:
        if not knows_what_comes(self.node.processor):
            return {}
        timed = {
            one.name: one.timestamp for one in self.node.outputs if isinstance(one, Repartitioned) and one.timestamp
        }
        processor = cast(Windows, self._processor)
        return {name: time for name, column in timed.items() if (time := processor.to_come(column)) is not None}

    def close(self) -> None:
        self.context.end()
        if self._processor is not None:
            processor, self._processor = self._processor, None
            try:
                processor.close()
            except BaseException:  # noqa: BLE001 - it is gone anyhow, and what is done next does not need it
                told = (processor_name(self.node.processor), self.node.name, self.context.task_id)
                _log.warning("The processor %s of sub-topology %r failed to close in task %s", *told, exc_info=True)

    def _own(self, by_topic: Mapping[str, T]) -> dict[str, T]:
        return {name: by_topic[name if name in by_topic else self._roots[name]] for name in self.node.sources}

    def _made(self, stream: DerivedStream, batch: TaskInput, known: Known) -> _Made:
        """A derived stream of a batch."""
        topic, at, rows = batch.of(stream.root)
        specs = self._specs[stream.name]
        good: Int64Array = np.arange(rows.num_rows)
        self.failed = stream
        try:
            places, made = stream.rows_of(rows, specs, known)
        except _NOT_OF_A_ROW:
            raise
        except Exception as error:
            stops = self.context.stops_at_bad_records()
            failed = dict(islice(_failing(stream, rows, specs, error), 1 if stops else None))
            if not failed:
                raise
            if stops:
                ((row, raised),) = failed.items()
                self.context.stand_at(stream.name, row)
                raise raised from None
            texts = [f"cannot be processed: {text_with_line(raised)}" for raised in failed.values()]
            self.context.leave_out(stream.name, list(failed), texts)
            good = np.delete(good, list(failed))
            places, made = stream.rows_of(taken(rows, pa.array(good)), specs)
        self.failed = None
        return topic, at[good[places]], made


_NOT_OF_A_ROW: Final = (TopologyException, *NOT_OF_A_RECORD)


def _failing(
    stream: DerivedStream, rows: pa.Table, specs: tuple[TopicSpec, ...], error: Exception, first: int = 0
) -> Iterator[tuple[int, Exception]]:
    """Those of rows at which its functions raise, and what: halves of what raises are tried again, down to single rows."""
    if rows.num_rows == 1:
        yield first, error
        return
    middle = rows.num_rows // 2
    for start, part in ((0, rows.slice(0, middle)), (middle, rows.slice(middle))):
        try:
            stream.rows_of(part, specs)
        except _NOT_OF_A_ROW:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever a user's code raises: its record is named
            yield from _failing(stream, part, specs, raised, first + start)


def may_schedule(topology: ProcessorTopology) -> bool:
    """What its processors' `init` ask for is not known before it is called; that they ask for nothing may be."""
    return any(_may_schedule(node) for node in topology.nodes)


def _may_schedule(node: SubTopology) -> bool:
    factory: object = node.processor
    while isinstance(factory, partial):
        factory = factory.func
    if not isinstance(factory, type):
        return not is_ready_made(factory)
    return getattr(factory, "init", None) is not Processor.init and not is_ready_made(factory)


def _elapsed_ms() -> int:
    return round(time.monotonic() * 1_000)
