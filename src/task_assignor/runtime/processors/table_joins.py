"""Exact joins with tables: a stream looks up what a table has at that moment; two tables give a table of their pairs.

A table is a topic of which each key's latest row counts; how, `tables` says. What "at that moment" means does not depend
on batches: it is the order of time over both sources, in whole milliseconds, and of equal times the table's row comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import taken
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.columns import (
    SourceColumns,
    check_same_columns,
    origins,
    result_columns,
    specs_of,
    to_columns,
)
from task_assignor.runtime.processors.records import BoolArray, Int64Array, valid_keys
from task_assignor.runtime.processors.tables import Moments, Updates, table_store, values_at
from task_assignor.runtime.topics.spec import TopicSpec, check_source
from task_assignor.runtime.topology.bad_records import LeftOut, check_left_out
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import Output, SubTopology
from task_assignor.sdk.checks import check_choice, check_fields, check_flag

_LOOKUPS: Final = ("inner", "left")
_PAIRS: Final = ("inner", "left", "outer")


def _check(where: str, one: str, other: str, how: str, hows: tuple[str, ...], bad_records: LeftOut) -> None:
    if one == other:
        raise TopologyException(f"{where}: a topic cannot be joined with itself. Maybe write it under a second name.")
    check_choice(f"{where}: how", how, hows, TopologyException)
    check_left_out(where, "bad_records", bad_records)


@attrs.frozen(kw_only=True)
class StreamTableJoin:
    """Each row of a stream with what a table has for its key at that moment (Kafka's KStream-KTable join).

    Args:
        stream: source topic of the stream.
        table: source topic of the table; the i-th of its key columns with the i-th of the stream.
        how: "inner" (rows without a match are left out) or "left" (they come with nulls).
        table_first: the table is read to its end before any row of the stream: each row sees what the table has at its
            end. Else both are read in the order of time.
        stream_columns: columns of the stream in the result, besides the keys; None: all.
        table_columns: the same for the table.
        suffix: added to the name of a column of the table that the stream has too.
        bad_records: what becomes of rows of the table whose key has a null.

    Rows of the stream whose key has a null match nothing (counted as `null_key`). Times are compared in whole milliseconds; of equal ones
    the table's row comes first.

    Raises:
        TopologyException: an option is not allowed.
    """

    stream: str = attrs.field(validator=check_source)
    table: str = attrs.field(validator=check_source)
    how: str = "inner"
    table_first: bool = False
    stream_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    table_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    suffix: str = "_right"
    bad_records: LeftOut = "stop"

    def __attrs_post_init__(self) -> None:
        check_fields(self, TopologyException, suffix=str)
        _check(self._where, self.stream, self.table, self.how, _LOOKUPS, self.bad_records)
        check_flag("table_first of a StreamTableJoin", self.table_first, error=TopologyException)

    @property
    def _where(self) -> str:
        return f"The join of {self.stream!r} with the table {self.table!r}"

    def sub_topology(self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec) -> SubTopology:
        """The join as a sub-topology with the store `<name>-table`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
            topics: what both sources are like: the store has the columns of the table.

        Raises:
            TopologyException: a topic is missing, or columns do not fit.
        """
        specs = specs_of(self._where, (self.stream, self.table), topics)
        factory = _Factory(self._where, self, specs, (f"{name}-table",))
        _, table = factory.columns
        return SubTopology(
            name,
            # Of equal times the table's row is first.
            (self.table, self.stream),
            factory,
            (table_store(self._where, f"{name}-table", table),),
            (output,),
            tables=(self.table,) if self.table_first else (),
            bad_records=self.bad_records,
        )

    def columns(self, topics: Mapping[str, TopicSpec]) -> tuple[SourceColumns, SourceColumns]:
        """Columns of the stream and of the table in the result."""
        stream, table = topics[self.stream], topics[self.table]
        return result_columns(self._where, stream, table, self.stream_columns, self.table_columns, self.suffix)

    def processor(self, factory: _Factory) -> Processor:
        """The work of one task."""
        return _Lookup(factory, self.how)


@attrs.frozen(kw_only=True)
class TableJoin:
    """The pairs of two tables as a table (Kafka's KTable-KTable join): a row for each update of either side.

    Args:
        left: source topic of the left table.
        right: source topic of the right one; the i-th of its key columns with the i-th of the left.
        how: keys that count: "inner" (in both), "left" (in the left), "outer" (in one of them).
        left_columns: columns of the left in the result, besides the keys; None: all.
        right_columns: the same for the right.
        suffix: added to the name of a right column that the left side has too.
        bad_records: what becomes of rows whose key has a null.

    The result is a table again: of each key the last row counts, and one whose values are all null says that the key is
    gone (so does a pair that has nothing in the columns that are taken). Like Kafka's, it has a row for an update that changes
    nothing.

    Raises:
        TopologyException: an option is not allowed.
    """

    left: str = attrs.field(validator=check_source)
    right: str = attrs.field(validator=check_source)
    how: str = "inner"
    left_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    right_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    suffix: str = "_right"
    bad_records: LeftOut = "stop"

    def __attrs_post_init__(self) -> None:
        check_fields(self, TopologyException, suffix=str)
        _check(self._where, self.left, self.right, self.how, _PAIRS, self.bad_records)

    @property
    def _where(self) -> str:
        return f"The join of the tables {self.left!r} and {self.right!r}"

    def sub_topology(self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec) -> SubTopology:
        """The join as a sub-topology with two stores, `<name>-left` and `<name>-right`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
            topics: what both sources are like: the stores have their columns.

        Raises:
            TopologyException: a topic is missing, or columns do not fit.
        """
        specs = specs_of(self._where, (self.left, self.right), topics)
        names = (f"{name}-left", f"{name}-right")
        factory = _Factory(self._where, self, specs, names)
        stores = [table_store(self._where, store, side) for store, side in zip(names, factory.columns, strict=True)]
        return SubTopology(name, (self.left, self.right), factory, stores, (output,), bad_records=self.bad_records)

    def columns(self, topics: Mapping[str, TopicSpec]) -> tuple[SourceColumns, SourceColumns]:
        """Columns of the left and of the right table in the result."""
        left, right = topics[self.left], topics[self.right]
        return result_columns(self._where, left, right, self.left_columns, self.right_columns, self.suffix)

    def processor(self, factory: _Factory) -> Processor:
        """The work of one task."""
        return _Pairs(factory, self.how)


@attrs.frozen
class _Factory:
    """Makes the processors of a join with tables, and checks the topics beforehand.

    Args:
        where: what is joined, for messages.
        join: the join.
        planned: the topics that the stores were made for.
        stores: names of the stores.
    """

    where: str
    join: StreamTableJoin | TableJoin
    planned: Mapping[str, TopicSpec]
    stores: tuple[str, ...]

    @property
    def shown_as(self) -> str:
        """What its user wrote."""
        return type(self.join).__qualname__

    @property
    def stream(self) -> str | None:
        """The source of whose records each row of the result is made; None: there is none such."""
        return self.join.stream if isinstance(self.join, StreamTableJoin) else None

    @property
    def tables(self) -> tuple[str, ...]:
        """Sources of which each key's newest row counts."""
        return (self.join.table,) if isinstance(self.join, StreamTableJoin) else (self.join.left, self.join.right)

    def __call__(self) -> Processor:
        return self.join.processor(self)

    @property
    def columns(self) -> tuple[SourceColumns, SourceColumns]:
        return self.join.columns(self.planned)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topics cannot be joined so."""
        check_same_columns(self.where, self.planned, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:
        """Columns of the result."""
        one, other = self.join.columns(topics)
        return pa.schema([*one.key_fields, *one.value_fields, *other.value_fields])

    def origins(self, topics: Mapping[str, TopicSpec]) -> dict[str, str]:
        """What each column of the result is."""
        return origins(*self.join.columns(topics))


class _Lookup(Processor):
    """The work of one task of a stream-table join."""

    def __init__(self, factory: _Factory, how: str) -> None:
        self._factory = factory
        self._how = how
        self._stream, self._table = factory.columns
        self._schema = factory.output_schema(factory.planned)

    def init(self, context: TaskContext) -> None:
        """Take the store."""
        self._store = context.key_value_store(self._factory.stores[0])

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Look every row of the stream up as of its place, then bring the table to the end of the batch."""
        context.check_forwards(batch)
        places = context.in_time_order(batch)
        rows = batch[self._stream.topic]
        updates = Updates.of(self._table, batch[self._table.topic], places[self._table.topic], context)
        result = self._joined(rows, places[self._stream.topic], updates, context) if rows.num_rows else None
        updates.write(self._store)
        return result

    def _joined(self, rows: pa.Table, places: Int64Array, updates: Updates, context: TaskContext) -> pa.Table | None:
        keys, values = self._stream.keys(rows), self._stream.value_rows(rows)
        has_key = valid_keys(rows, self._stream.key)
        if has_key is None:
            found, there = values_at(keys, places, updates, self._store)
        else:
            context.count("null_key", int((~has_key).sum()))
            known, are_there = values_at(keys.filter(pa.array(has_key)), places[has_key], updates, self._store)
            found = taken(known, pa.array(np.cumsum(has_key) - 1, mask=~has_key))
            there = np.zeros(len(has_key), bool)
            there[has_key] = are_there
        result = pa.table([*keys.columns, *values.columns, *found.columns], schema=self._schema)
        made_of = np.arange(len(there)) if self._how == "left" else np.flatnonzero(there)
        return context.made(
            result if self._how == "left" else result.filter(pa.array(there)), self._stream.topic, made_of
        )


class _Pairs(Processor):
    """The work of one task of a table-table join."""

    def __init__(self, factory: _Factory, how: str) -> None:
        self._factory = factory
        self._how = how
        self._sides = factory.columns
        self._schema = factory.output_schema(factory.planned)

    def init(self, context: TaskContext) -> None:
        """Take the stores."""
        self._stores = [context.key_value_store(name) for name in self._factory.stores]

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """A row for every update of a key that counts, or did just before."""
        places = context.in_time_order(batch)
        tables = [Updates.of(side, batch[side.topic], places[side.topic], context) for side in self._sides]
        moments = Moments.of(tables, self._stores)
        for table, store in zip(tables, self._stores, strict=True):
            table.write(store)
        now = self._counts(moments.there)
        shown = now | self._counts(moments.before)
        if not shown.any():
            return None
        rows = np.flatnonzero(shown)
        visible = pa.array(rows, mask=~now[rows])
        columns = taken(moments.keys, pa.array(rows)).columns
        columns += [column for values in moments.values for column in taken(values, visible).columns]
        return pa.table(columns, schema=self._schema)

    def _counts(self, there: Sequence[BoolArray]) -> BoolArray:
        left, right = there
        return left & right if self._how == "inner" else left if self._how == "left" else left | right
