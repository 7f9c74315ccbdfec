"""What each update of a table takes away, and what it adds: with that, groups of its rows are kept as they are (Kafka's KTable.groupBy).

A group of a table loses a row when another one comes for its key. So the row that was there comes with -1 in a column, and the one that
is there now with 1; by another key they go to the task that has the group, which counts both (`TableAggregation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import taken
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.columns import (
    SourceColumns,
    check_computable,
    check_same_columns,
    columns_of_source,
    origins,
    plain,
    specs_of,
    to_columns,
)
from task_assignor.runtime.processors.records import masked, valid_keys
from task_assignor.runtime.processors.tables import Updates, table_store, values_at
from task_assignor.runtime.topics.spec import TopicSpec, check_source
from task_assignor.runtime.topology.bad_records import LeftOut, check_left_out
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import Output, SubTopology
from task_assignor.sdk.text import shown

CHANGE: Final = "change"


def check_change(where: str, name: object) -> None:
    """Raise TopologyException if there can be no column of this name that says whether a row comes or goes."""
    if not isinstance(name, str):
        raise TopologyException(
            f"{where}: change ({shown(name)}) must be the name of the column of 1 and -1. It is {CHANGE!r} if nothing is said."
        )
    check_computable(where, [pa.field(name, pa.int64())])


@attrs.frozen(kw_only=True)
class TableChanges:
    """Of each update of a table the row that was there for its key, with -1 in a column, and the one that is there now, with 1.

    A deletion gives the first alone, a new key the second. Both have the time of the update, so
    nothing of their groups can be computed with it. Written to a `Repartitioned` output by another
    key they are what a `TableAggregation` needs.

    Args:
        table: source topic of the table.
        columns: its columns in the result, besides key and timestamp; None: all.
        change: name of the column of -1 and 1.
        bad_records: what becomes of rows whose key has a null.

    Raises:
        TopologyException: an option is not allowed.
    """

    table: str = attrs.field(validator=check_source)
    columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    change: str = CHANGE
    bad_records: LeftOut = "stop"

    def __attrs_post_init__(self) -> None:
        check_left_out(self._where, "bad_records", self.bad_records)
        check_change(self._where, self.change)

    @property
    def _where(self) -> str:
        return f"What changes in the table {self.table!r}"

    def sub_topology(self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec) -> SubTopology:
        """The changes as a sub-topology with the store `<name>-table`.

        Args:
            name: name of the sub-topology.
            output: where they go.
            topics: what the source is like: the store has its columns.

        Raises:
            TopologyException: the topic is missing, or columns do not fit.
        """
        spec = specs_of(self._where, (self.table,), topics)[self.table]
        factory = _Factory(self._where, self, spec, f"{name}-table")
        store = table_store(self._where, factory.store, factory.columns)
        return SubTopology(name, (self.table,), factory, (store,), (output,), bad_records=self.bad_records)


@attrs.frozen
class _Factory:
    """Makes the processors of a table's changes, and checks the topic beforehand."""

    where: str
    changes: TableChanges
    spec: TopicSpec
    store: str

    def __attrs_post_init__(self) -> None:
        names = self.output_schema({self.spec.name: self.spec}).names
        if names.count(self.changes.change) > 1:
            raise TopologyException(
                f"{self.where}: the topic has a column {self.changes.change!r}, too. Maybe another name for that of -1 and 1: "
                f"change='{self.changes.change}_of_row'; or, for a run that there is already, the columns that the topic had: columns=[...]."
            )

    @property
    def shown_as(self) -> str:
        """What its user wrote."""
        return type(self.changes).__qualname__

    @property
    def tables(self) -> tuple[str, ...]:
        """Sources of which each key's newest row counts."""
        return (self.changes.table,)

    def __call__(self) -> Processor:
        return _Changes(self)

    @property
    def columns(self) -> SourceColumns:
        """What is kept of the table."""
        found = columns_of_source(self.where, self.spec, self.changes.columns)
        return found.without(self.spec.timestamp)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topic is another one than before."""
        check_same_columns(self.where, {self.spec.name: self.spec}, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:  # noqa: ARG002 (as of all factories)
        """Columns of the result: the key, the values, the timestamp, and the change."""
        time = [] if self.time is None else [plain(self.spec.schema.field(self.time))]
        change = pa.field(self.changes.change, pa.int64())
        return pa.schema([*self.columns.key_fields, *self.columns.value_fields, *time, change])

    def origins(self, topics: Mapping[str, TopicSpec]) -> dict[str, str]:  # noqa: ARG002 (as of all factories)
        """What each column of the result is."""
        time = {} if self.time is None else {self.time: f"{self.time} of {self.spec.name}"}
        return {**origins(self.columns), **time}

    @property
    def of_update(self) -> tuple[str, ...]:
        """Columns of the result that are of the update, not of the row that comes or goes."""
        return () if self.time is None else (self.time,)

    @property
    def time(self) -> str | None:
        """The timestamp, where it is none of the key columns."""
        return None if self.spec.timestamp in self.spec.key else self.spec.timestamp


class _Changes(Processor):
    """The work of one task."""

    def __init__(self, factory: _Factory) -> None:
        self._factory = factory
        self._columns = factory.columns

    def init(self, context: TaskContext) -> None:
        """Take the store."""
        self._store = context.key_value_store(self._factory.store)
        self._schema = self._factory.output_schema(context.topics)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """What each update takes away, then what it adds."""
        (rows,) = batch.values()
        places = context.in_time_order(batch)[self._columns.topic]
        updates = Updates.of(self._columns, rows, places, context)
        # No other update is between one and the place before it.
        former, was_there = values_at(updates.keys, updates.places - 1, updates, self._store)
        updates.write(self._store)
        count = len(was_there)
        is_row = np.column_stack([was_there, updates.there]).ravel()
        if not is_row.any():
            return None
        of_update = np.repeat(np.arange(count), 2)[is_row]
        is_new = np.tile([0, 1], count)[is_row]
        columns = taken(updates.keys, pa.array(of_update)).columns
        columns += taken(pa.concat_tables([former, updates.values]), pa.array(of_update + count * is_new)).columns
        if self._factory.time is not None:
            times = masked(rows, valid_keys(rows, self._columns.key)).column(self._factory.time)
            columns.append(times.take(pa.array(of_update)))
        return pa.table([*columns, pa.array(2 * is_new - 1)], schema=self._schema)
