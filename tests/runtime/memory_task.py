"""A task without files: batches are cut as the runtime does it, and it can be lost and brought back from its changelog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from task_assignor.runtime import SubTopology, TopicSpec, Topology
from task_assignor.runtime.arrow.merging import rows_up_to_boundary, times_so_far
from task_assignor.runtime.arrow.times import times_of
from task_assignor.runtime.machines.protocol import START, TaskOrder
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import gathers
from task_assignor.sdk import TaskId


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as a table with these columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


class MemoryTask:
    """Feed it batches, lose it, bring it back.

    Args:
        sub_topology: what it computes.
        topics: its sources.
    """

    def __init__(self, sub_topology: SubTopology, topics: Mapping[str, TopicSpec]) -> None:
        self._sub = sub_topology
        self._topics = {name: topics[name] for name in sub_topology.sources}
        self.changelog: list[list[pa.Table | None]] = []
        self.counters: dict[str, int] = {}
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.read = dict.fromkeys(self._topics, 0)
        self.start()

    def become(self, sub_topology: SubTopology) -> None:
        """Go on as another version of the application."""
        self._sub = sub_topology
        self.start()

    def start(self) -> None:
        """As on another client: empty stores, then the changelog."""
        self._stores: dict[str, Store] = {spec.name: spec.create() for spec in self._sub.stores}
        for name, gathered in gathers(self._sub.processor).items():
            cast(WindowStore, self._stores[name]).gather(gathered)
        for segments in self.changelog:
            for store, segment in zip(self._stores.values(), segments, strict=True):
                if segment is not None:
                    store.apply(segment)
        outputs = tuple(found.name for found in self._sub.outputs if found.name not in self._sub.dead_letters)
        self._context = TaskContext(
            "app", TaskId(0, 3), self._topics, outputs, self._stores, self._sub.bad_records, self._sub.late_records
        )
        self._processor: Processor = self._sub.processor()
        self._processor.init(self._context)

    def process(self, batch: Mapping[str, pa.Table]) -> pa.Table | None:
        """One batch; what the processor returns is also kept in `outputs`, under the name of the first."""
        offsets = {topic: (self.read[topic], self.read[topic] + rows.num_rows) for topic, rows in batch.items()}
        self._context.begin(len(self.changelog), offsets, batch)
        result = self._processor.process_batch({topic: batch[topic] for topic in self._topics}, self._context)
        if result is not None:
            self._context.forward(result)
        self.read = {topic: end for topic, (_, end) in offsets.items()}
        self.changelog.append([store.drain_changes() for store in self._stores.values()])
        outputs, counters = self._context.finish()
        for name, tables in outputs.items():
            self.outputs.setdefault(name, []).extend(row for table in tables for row in table.to_pylist())
        for name, number in counters.items():
            self.counters[name] = self.counters.get(name, 0) + number
        return result

    def run(self, data: st.DataObject, logs: Mapping[str, pa.Table], most: int = 6) -> None:
        """Process whole logs: of each source some rows are loaded, what may be processed is; now and then the task moves."""
        while any(self.read[topic] < logs[topic].num_rows for topic in self._topics):
            self.advance(logs, {topic: data.draw(st.integers(1, most)) for topic in self._topics})
            if data.draw(st.booleans()):
                self.start()

    def advance(self, logs: Mapping[str, pa.Table], most: Mapping[str, int]) -> list[dict[str, Any]]:
        """One batch of whole logs: of each source so many rows are loaded, what may be processed is; what it returned."""
        times = {name: spec.timestamp for name, spec in self._topics.items()}
        loaded = {topic: logs[topic].slice(self.read[topic], most[topic]) for topic in self._topics}
        if any(loaded[topic].num_rows for topic in self._sub.tables):
            loaded = {topic: rows if topic in self._sub.tables else rows.slice(0, 0) for topic, rows in loaded.items()}
            more = [False] * len(loaded)
        else:
            more = [self.read[topic] + rows.num_rows < logs[topic].num_rows for topic, rows in loaded.items()]
        newest = [times_so_far(times_of(rows, times[topic])) for topic, rows in loaded.items()]
        counts = rows_up_to_boundary(newest, more)
        result = self.process(
            {topic: rows.slice(0, n) for (topic, rows), n in zip(loaded.items(), counts, strict=True)}
        )
        return [] if result is None else result.to_pylist()

    def held(self) -> int:
        """Rows in the stores."""
        return sum(map(len, self._stores.values()))


class MemoryChain(MemoryTask):
    """Two sub-topologies, of which the first forwards what the second reads.

    Args:
        first: it reads all topics.
        second: what it gives is what comes out.
        topics: the sources.
    """

    def __init__(self, first: SubTopology, second: SubTopology, topics: Mapping[str, TopicSpec]) -> None:
        self._second = second
        self._what = Topology([first, second]).processor_topologies[0]
        self._stream_time: int | None = None
        super().__init__(first, topics)

    def start(self) -> None:
        """As on another client: empty stores, then the changelog."""
        self._stores = {spec.name: spec.create() for spec in self._what.stores}
        for segments in self.changelog:
            for store, segment in zip(self._stores.values(), segments, strict=True):
                if segment is not None:
                    store.apply(segment)
        self._processors = TaskProcessors("app", TaskId(0, 3), self._what, self._topics, self._stores)

    def process(self, batch: Mapping[str, pa.Table]) -> pa.Table | None:
        """One batch; what the second has given."""
        offsets = {topic: (self.read[topic], self.read[topic] + rows.num_rows) for topic, rows in batch.items()}
        newest = {topic: times_so_far(times_of(rows, self._topics[topic].timestamp)) for topic, rows in batch.items()}
        given = TaskInput(
            batch, newest, self._sub.tables, offsets, {name: range(*each) for name, each in offsets.items()}
        )
        base = msgspec.structs.replace(START, stream_time=self._stream_time)
        outputs, _ = self._processors.run(TaskOrder(TaskId(0, 3), len(self.changelog), 1, offsets, base), given)
        self._stream_time = self._processors.stream_time
        self.read = {topic: end for topic, (_, end) in offsets.items()}
        self.changelog.append([store.drain_changes() for store in self._stores.values()])
        for name, table in outputs.items():
            self.outputs.setdefault(name, []).extend(table.to_pylist())
        return outputs.get(self._second.outputs[0].name)
