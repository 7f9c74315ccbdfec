"""What users write: `Processor` and `RecordProcessor`, and the `TaskContext` they are given. Nothing here runs tasks."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.errors import StoreException, TopologyException
from task_assignor.runtime.keys import timestamps_in_ms
from task_assignor.runtime.stores.key_value import KeyValueStore
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.topics import TopicSpec
from task_assignor.sdk import TaskId
from task_assignor.sdk.text import shown

S = TypeVar("S", bound=Store)


class TaskContext:
    """What a processor may know and use of its task.

    Args:
        application_id: `application.id`.
        task_id: the task.
        topics: source topics of the task, by name.
        outputs: names of the outputs of its sub-topology, in the order in which they were declared.
        stores: its stores, by name.

    Attributes:
        batch: number of the micro-batch.
        offsets: source topic -> (first offset, offset after the last) of the micro-batch.
    """

    def __init__(
        self,
        application_id: str,
        task_id: TaskId,
        topics: Mapping[str, TopicSpec],
        outputs: tuple[str, ...],
        stores: Mapping[str, Store],
    ) -> None:
        self.application_id = application_id
        self.task_id = task_id
        self.topics = topics
        self.outputs = outputs
        self.batch = -1
        self.offsets: Mapping[str, tuple[int, int]] = {}
        self._stores = stores
        self._forwarded: list[tuple[str, pa.Table]] = []
        self._counters: dict[str, int] = {}

    @property
    def partition(self) -> int:
        """Partition of all source topics that the task reads."""
        return self.task_id.partition

    def store(self, name: str) -> Store:
        """The store of that name.

        Raises:
            StoreException: the sub-topology declares no such store.
        """
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none"
            raise StoreException(
                f"Task {self.task_id} has no store {name!r}; its sub-topology declares: {known}."
            ) from None

    def key_value_store(self, name: str) -> KeyValueStore:
        """The key-value store of that name; like `store`, with the type that checkers want."""
        return self._typed(name, KeyValueStore)

    def window_store(self, name: str) -> WindowStore:
        """The window store of that name; like `store`, with the type that checkers want."""
        return self._typed(name, WindowStore)

    def _typed(self, name: str, kind: type[S]) -> S:
        store = self.store(name)
        if not isinstance(store, kind):
            raise StoreException(f"The store {name!r} is a {type(store).__name__}, not a {kind.__name__}.")
        return store

    def forward(self, rows: pa.Table, output: str | None = None) -> None:
        """Add rows to an output; several calls in a batch add up.

        Args:
            rows: the rows.
            output: name of the output; None: the only one.

        Raises:
            TopologyException: the sub-topology has no such output, or several and none was named.
        """
        if not isinstance(rows, pa.Table):
            raise TopologyException(f"Rows for an output must be a pyarrow.Table, not {type(rows).__name__}.")
        if output is None:
            if len(self.outputs) != 1:
                raise TopologyException(
                    f"Task {self.task_id} has {len(self.outputs)} outputs ({', '.join(self.outputs) or 'none'}); "
                    "rows for an unnamed output need exactly one. Maybe context.forward(rows, output=NAME)."
                )
            output = self.outputs[0]
        elif output not in self.outputs:
            raise TopologyException(
                f"Task {self.task_id} has no output {output!r}; its outputs: {', '.join(self.outputs) or 'none'}."
            )
        self._forwarded.append((output, rows))

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter; the counters of a batch are part of its commit record.

        Raises:
            TopologyException: the name is no text, or the number is not whole.
        """
        try:
            self._counters[str.__str__(name)] = self._counters.get(name, 0) + operator.index(number)
        except TypeError:
            raise TopologyException(
                f"A counter has a text as name and counts in whole numbers; given were {shown(name)} and {shown(number)}."
            ) from None

    def begin(self, batch: int, offsets: Mapping[str, tuple[int, int]]) -> None:
        """Called by the runtime before each batch."""
        self.batch, self.offsets = batch, offsets
        self._forwarded, self._counters = [], {}

    def finish(self) -> tuple[dict[str, list[pa.Table]], dict[str, int]]:
        """Called by the runtime after each batch: output -> tables, and the counters."""
        tables: dict[str, list[pa.Table]] = {}
        for output, rows in self._forwarded:
            tables.setdefault(output, []).append(rows)
        return tables, self._counters


class Processor(ABC):
    """The work of one task. Each task has its own instance; what must outlast it belongs in stores."""

    def init(self, context: TaskContext) -> None:
        """Called once, when the task's stores are ready and before its first batch. Does nothing by default."""

    @abstractmethod
    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Process the new rows of all sources.

        The same batch may be given again to another instance if a client is lost before the commit: the result must
        depend on rows and stores alone.

        Args:
            batch: source topic -> its new rows in offset order, possibly none.
            context: stores, task, offsets; `context.forward` for several outputs.

        Returns:
            Rows for the only output; None: no rows (or all were forwarded).
        """

    def close(self) -> None:
        """Called when the task leaves this client. Does nothing by default."""


class RecordProcessor(Processor):
    """For logic that is clearer row by row, and a hundred times slower: `process` sees one record at a time.

    The records of a micro-batch come in the order of their times, whatever source they are from; of equal times those of
    the source that the sub-topology names first. Within a source they stay in offset order, as in Kafka Streams: a record
    that is older than the one before it, or has no time, comes as soon as that one has been. So a topic without a
    timestamp column comes first.

    What this does not cover: micro-batches are cut source by source, by rows and not by time, so a record of the next
    batch may be older than one of this batch, and which ones do depends on `max_batch_rows`. Where a lookup must not
    miss, declare what it looks in as `tables` of the sub-topology: they are read to their end first.
    """

    @abstractmethod
    def process(
        self, topic: str, record: Mapping[str, Any], context: TaskContext
    ) -> Iterable[Mapping[str, Any]] | None:
        """Process one record.

        Args:
            topic: where it comes from.
            record: column -> value.
            context: stores, task, offsets.

        Returns:
            Rows for the only output, or None.
        """

    def output_schema(self) -> pa.Schema | None:
        """Schema of the rows that `process` returns; None: taken from the rows of each batch."""
        return None

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Calls `process` for each record."""
        rows: list[Mapping[str, Any]] = []
        for topic, record in _in_order_of_time(batch, context.topics):
            rows.extend(self.process(topic, record, context) or ())
        schema = self.output_schema()
        return pa.Table.from_pylist(rows, schema=schema) if rows else None


def _in_order_of_time(
    batch: Mapping[str, pa.Table], topics: Mapping[str, TopicSpec]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records of all sources with their topics, ordered as `RecordProcessor` says."""
    sources = [(topic, table.to_pylist()) for topic, table in batch.items() if table.num_rows]
    if len(sources) == 1:
        ((topic, records),) = sources
        yield from ((topic, record) for record in records)
        return
    times = [_times_so_far(batch[topic], topics[topic].timestamp) for topic, _ in sources]
    places = [(topic, record) for topic, records in sources for record in records]
    for place in np.argsort(np.concatenate(times), kind="stable").tolist() if places else ():
        yield places[place]


def _times_so_far(table: pa.Table, timestamp: str | None) -> npt.NDArray[np.int64]:
    """(N,) of each record the newest time up to it, ms; before all times while there is none."""
    oldest = np.iinfo(np.int64).min
    if timestamp is None:
        return np.full(table.num_rows, oldest)
    times = pc.fill_null(timestamps_in_ms(table.column(timestamp)), oldest)
    newest: npt.NDArray[np.int64] = np.maximum.accumulate(times.to_numpy())
    return newest
