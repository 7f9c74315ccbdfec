"""Running aggregates by key, without windows: the table of what is known of each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.frames import own, padded, to_frame
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.aggregates import ROWS, Aggregate, Group, to_aggregates
from task_assignor.runtime.processors.columns import (
    check_computable,
    check_same_columns,
    from_frame,
    plain,
    specs_of,
    stores_of,
    to_columns,
)
from task_assignor.runtime.processors.records import BoolArray, Int64Array, both, masked, with_keys
from task_assignor.runtime.processors.table_changes import CHANGE, check_change
from task_assignor.runtime.stores.key_value import KeyValueStoreSpec
from task_assignor.runtime.topics.spec import TopicSpec, check_source
from task_assignor.runtime.topology.bad_records import LeftOut, check_left_out
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import Output, SubTopology

if TYPE_CHECKING:
    import polars as pl


def check_groups(
    where: str, spec: TopicSpec, by: tuple[str, ...], aggregates: Mapping[str, Aggregate], change: str | None = None
) -> Group:
    """The aggregates of groups.

    Raises:
        TopologyException: rows of a group could be in several partitions, names do not fit, or types do not.
    """
    missing = [column for column in by if column not in spec.schema.names]
    if missing:
        raise TopologyException(
            f"{where}: the topic {spec.name!r} has no columns {missing}; it has {spec.schema.names}."
        )
    check_computable(where, [spec.schema.field(column) for column in by])
    if not set(spec.key) <= set(by):
        raise TopologyException(
            f"{where} groups by {list(by)}, but rows of such a group are in several partitions: the topic is partitioned by "
            f"{list(spec.key)}, which must be among them. Maybe write the topic again with another key."
        )
    if change in by:
        raise TopologyException(
            f"{where} groups by {change!r}, which says whether a row comes or goes: it would go from another group than it came to."
        )
    twice = sorted(name for name in aggregates if name in by)
    if twice:
        raise TopologyException(f"{where}: the aggregates {twice} have names of columns that are grouped by.")
    group = Group(spec, aggregates, where, change)
    names = [*by, *(field.name for field in group.state_fields)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyException(
            f"{where} has names twice, or such as it needs for its state ({ROWS}, of a mean m m__sum and m__count, of a sum s over a table s__count, "
            f"and of floats s__inf and s__minus_inf): {twice}. Maybe rename them."
        )
    return group


@attrs.frozen(kw_only=True)
class Aggregation:
    """Running aggregates of the rows of each key (Kafka's KGroupedStream.aggregate).

    The result is a table: after each batch a row for every group that it touched. Which steps in between are seen depends
    on the batches, as with Kafka's caches; the last row of each group does not.

    Args:
        source: source topic.
        aggregates: name in the result -> what is computed: `Aggregate.count()`, `Aggregate.sum("amount")`, and so on.
        by: columns that make a group, the key columns among them; None: the key columns.
        bad_records: what becomes of rows that have a null in one of these.

    Raises:
        TopologyException: an option is not allowed.
    """

    source: str = attrs.field(validator=check_source)
    aggregates: Mapping[str, Aggregate] = attrs.field(converter=to_aggregates)
    by: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    bad_records: LeftOut = "stop"

    def __attrs_post_init__(self) -> None:
        check_left_out(self._where, "bad_records", self.bad_records)
        if not self.aggregates:
            raise TopologyException(f"{self._where} computes nothing. Maybe aggregates={{'rows': Aggregate.count()}}.")

    @property
    def _where(self) -> str:
        return f"The aggregation of {self.source!r}"

    @property
    def change_column(self) -> str | None:
        """Column of 1 and -1: the row is added, or one like it is taken away again; None: all are added."""
        return None

    def sub_topology(self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec) -> SubTopology:
        """The aggregation as a sub-topology with the store `<name>-groups`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
            topics: what the source is like: the store has its columns.

        Raises:
            TopologyException: the topic is missing, or columns do not fit.
        """
        spec = specs_of(self._where, (self.source,), topics)[self.source]
        by = spec.key if self.by is None else self.by
        group = check_groups(self._where, spec, by, self.aggregates, self.change_column)
        keys = pa.schema([plain(spec.schema.field(column)) for column in by])
        with stores_of(self._where):
            store = KeyValueStoreSpec(f"{name}-groups", keys, pa.schema(group.state_fields))
        factory = _Factory(self._where, self, spec, by, store.name)
        return SubTopology(name, (self.source,), factory, (store,), (output,), bad_records=self.bad_records)


@attrs.frozen(kw_only=True)
class TableAggregation(Aggregation):
    """Aggregates of the rows that a table has at the moment, in groups by other columns than its key (Kafka's KGroupedTable.aggregate).

    The result is a table: after each batch a row for every group that it touched. A group that has no row left is gone: all its aggregates
    are null.

    Args:
        source: source topic, with what `TableChanges` gives: partitioned by columns that make a group.
        aggregates: as of an `Aggregation`; of those that can follow when a row is taken away: count, sum, mean, and a fold whose function
            looks at the column `change`. Sums of floats are as exact as adding and subtracting is; NaN and infinite ones go with their rows.
        by: as of an `Aggregation`.
        change: the column of -1 and 1.
        bad_records: as of an `Aggregation`, and of rows with another change.

    Raises:
        TopologyException: an option is not allowed.
    """

    change: str = CHANGE

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_change(self._where, self.change)

    @property
    def change_column(self) -> str | None:
        """The column of -1 and 1."""
        return self.change


@attrs.frozen
class _Factory:
    """Makes the processors of an aggregation, and checks the topic beforehand."""

    where: str
    aggregation: Aggregation
    spec: TopicSpec
    by: tuple[str, ...]
    store: str

    @property
    def shown_as(self) -> str:
        """What its user wrote."""
        return type(self.aggregation).__qualname__

    def __call__(self) -> Processor:
        return _Running(self)

    @property
    def follows(self) -> tuple[str, ...]:
        """Columns that must be the same when a row comes and when it goes."""
        return () if self.aggregation.change_column is None else (*self.by, *self.group.needed)

    @property
    def group(self) -> Group:
        return Group(self.spec, self.aggregation.aggregates, self.where, self.aggregation.change_column)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topic is another one than before."""
        check_same_columns(self.where, {self.spec.name: self.spec}, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:
        """Columns of the result: those that make a group, then the aggregates."""
        return pa.schema(
            [*(plain(topics[self.spec.name].schema.field(column)) for column in self.by), *self.group.fields]
        )


class _Running(Processor):
    """The work of one task."""

    def __init__(self, factory: _Factory) -> None:
        self._factory = factory
        self._by = list(factory.by)
        self._group = factory.group

    def init(self, context: TaskContext) -> None:
        """Take the store."""
        self._store = context.key_value_store(self._factory.store)
        self._schema = self._factory.output_schema(context.topics)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Put what the batch adds to what is known."""
        import polars as pl

        (rows,) = batch.values()
        change = self._factory.aggregation.change_column
        needed = (*self._factory.by, *(() if change is None else (change,)))
        has_key = with_keys(self._factory.spec.name, rows, needed, context)
        rows = masked(rows, both(has_key, self._with_changes(rows, context)))
        if not rows.num_rows:
            return None
        frame = self._group.frame(rows, self._by)
        parts = self._group.unchecked_parts(frame, self._by)
        keys = parts.select(self._by)
        known = to_frame(self._store.lookup(_as_table(keys, self._schema)))
        if self._group.folds:
            parts = self._group.fold(parts, known, rows, numbers_of(keys, frame))
        former = keys.hstack(known).filter(pl.col(ROWS).is_not_null())
        new = self._group.put_together(pl.concat([former, parts], how="diagonal_relaxed"), self._by)
        stored = pa.schema([plain(self._factory.spec.schema.field(column)) for column in self._by])
        left, gone = self._left_and_gone(new)
        self._store.put_table(from_frame(left, pa.schema([*stored, *self._group.state_fields])))
        results = _as_table(self._group.results(left), self._schema)
        if gone.height:
            # What came and went within the batch nobody knows.
            gone = gone.join(former, on=self._by, how="semi")
        if not gone.height:
            return results
        self._store.delete_table(from_frame(gone, stored))
        keys_of_gone = _as_table(gone.select(self._by), self._schema)
        return pa.concat_tables([results, padded(keys_of_gone, self._schema)])

    def _with_changes(self, rows: pa.Table, context: TaskContext) -> BoolArray | None:
        """Which rows come or go, or have been left out already (None: all); others are bad records: a sum of decimals took 2 for 1."""
        change = self._factory.aggregation.change_column
        if change is None:
            return None
        column = rows.column(change)
        is_known: BoolArray = pc.fill_null(pc.equal(pc.abs(column), 1), True).to_numpy()
        places = np.flatnonzero(~is_known)
        found = column.take(pa.array(places)).to_pylist()
        context.leave_out(
            self._factory.spec.name, places, [f"has a {change} of {value}, which must be 1 or -1" for value in found]
        )
        return is_known

    def _left_and_gone(self, groups: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Those that have rows, and those of which all have been taken away.

        Raises:
            ValueError: more than there were.
        """
        import polars as pl

        if self._factory.aggregation.change_column is None:
            return groups, groups.clear()
        short = groups.filter(pl.col(ROWS) < 0)
        if short.height:
            group = short.select(self._by).row(0, named=True)
            raise ValueError(
                f"{self._factory.where}: more rows of the group {group} are taken away than have come. Maybe the source has not all that "
                "TableChanges has given, or its column of 1 and -1 is another one."
            )
        return groups.filter(pl.col(ROWS) > 0), groups.filter(pl.col(ROWS) == 0)


def numbers_of(keys: pl.DataFrame, rows: pl.DataFrame) -> Int64Array:
    """(N,) which of the keys each row has."""
    row, group = own("row"), own("group")
    found = rows.with_row_index(row).join(keys.with_row_index(group), on=keys.columns).sort(row)
    numbers: Int64Array = found.get_column(group).to_numpy().astype(np.int64)
    return numbers


def _as_table(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    names = [name for name in schema.names if name in frame.columns]
    return from_frame(frame, pa.schema([schema.field(name) for name in names]))
