"""A topic as a table: of each key the latest row, in a key-value store; and what it was at each moment of a batch.

A row whose value columns are all null deletes its key, as a null value does in Kafka: all that the topic has, whichever
a join takes; but its time, and the headers of its record, which Kafka has beside the value, do not keep the key. Rows whose key has a null are bad
records. What comes before what is the order of time over all sources (`merging`), so that a lookup finds what was there
just then, and neither batches nor restarts change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.arrow.frames import fitted, own, taken, to_frame
from task_assignor.runtime.arrow.keys import keeps_key
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.columns import SourceColumns, check_computable, stores_of
from task_assignor.runtime.processors.records import BoolArray, Int64Array, masked, with_keys
from task_assignor.runtime.stores.key_value import KeyValueStore, KeyValueStoreSpec
from task_assignor.runtime.topology.context import TaskContext

_PLACE, _ROW, _ASKED = own("place"), own("row"), own("asked")


def table_store(where: str, name: str, columns: SourceColumns) -> KeyValueStoreSpec:
    """The store of a table.

    Raises:
        TopologyException: it has no value columns, so that nobody could tell whether a key is there; or a key that
            nothing can be computed with; or it cannot be stored.
    """
    check_computable(where, columns.key_fields)
    if not columns.value_fields:
        raise TopologyException(
            f"{where}: the table {columns.topic!r} gives no columns besides its key. Maybe name one that it has."
        )
    with stores_of(where):
        return KeyValueStoreSpec(name, pa.schema(columns.key_fields), pa.schema(columns.value_fields))


@attrs.frozen
class Updates:
    """The rows of a table in a batch, those without a key left out.

    Args:
        keys: their keys.
        values: their values, as far as the join takes them; null where they delete.
        there: (N,) they have a value, and do not delete.
        places: (N,) their places in the order of time.
    """

    keys: pa.Table
    values: pa.Table
    there: BoolArray
    places: Int64Array

    @classmethod
    def of(cls, columns: SourceColumns, rows: pa.Table, places: Int64Array, context: TaskContext) -> Updates:
        """Of a batch's table.

        Raises:
            BadRecordException: a key has a null, and the setting is to stop.
        """
        has_key = with_keys(columns.topic, rows, columns.key, context)
        rows = masked(rows, has_key)
        values = columns.value_rows(rows)
        there = keeps_key(rows, columns.key, context.topics[columns.topic].beside_values)
        if not there.all():
            values = taken(values, pa.array(np.arange(values.num_rows), mask=~there))
        return cls(columns.keys(rows), values, there, places if has_key is None else places[has_key])

    def write(self, store: KeyValueStore) -> None:
        """Bring the store to where the batch ends."""
        if not self.keys.num_rows:
            return
        import polars as pl

        frame = to_frame(self.keys).with_row_index(_ROW)
        last = frame.group_by(self.keys.column_names, maintain_order=True).agg(pl.col(_ROW).last())
        rows = last.get_column(_ROW).to_numpy().astype(np.int64)
        keys, values = taken(self.keys, pa.array(rows)), taken(self.values, pa.array(rows))
        there = self.there[rows]
        if not there.all():
            store.delete_table(keys.filter(pa.array(~there)))
        if there.any():
            both = pa.table([*keys.columns, *values.columns], names=[*keys.column_names, *values.column_names])
            store.put_table(both.filter(pa.array(there)))


def values_at(keys: pa.Table, places: Int64Array, table: Updates, store: KeyValueStore) -> tuple[pa.Table, BoolArray]:
    """What the table has for each key at its place: of this batch's updates the last before it, else what the store has.

    Args:
        keys: (N,) keys without nulls.
        places: (N,) their places in the order of time, ascending.
        table: the table's rows in this batch.
        store: the table before this batch.

    Returns:
        (N,) values, all null where the table has none; and where it has some.
    """
    rows: npt.NDArray[np.int64] = np.full(keys.num_rows, -1)
    if table.keys.num_rows and keys.num_rows:
        rows = _last_before(keys, places, table)
    unknown = np.flatnonzero(rows < 0)
    every, there = _with_stored(table, store, taken(keys, pa.array(unknown)))
    rows[unknown] = table.values.num_rows + np.arange(len(unknown))
    return taken(every, pa.array(rows)), there[rows]


def _with_stored(table: Updates, store: KeyValueStore, keys: pa.Table) -> tuple[pa.Table, BoolArray]:
    """The values of all updates, then those that the store has of some keys; and which are there."""
    stored, there = store.find(keys)
    return pa.concat_tables([table.values, fitted(stored, table.values.schema)]), np.concatenate([table.there, there])


def _last_before(keys: pa.Table, places: Int64Array, table: Updates) -> Int64Array:
    """(N,) the row of the last update before each place; -1: there is none."""
    import polars as pl

    number = pl.int_range(pl.len(), dtype=pl.Int64)
    updates = to_frame(table.keys).with_columns(pl.Series(_PLACE, table.places), number.alias(_ROW))
    lookups = to_frame(keys).with_columns(pl.Series(_PLACE, places), pl.lit(None, pl.Int64).alias(_ROW))
    both = pl.concat(
        [updates.with_columns(pl.lit(False).alias(_ASKED)), lookups.with_columns(pl.lit(True).alias(_ASKED))]
    )
    # Of an update and a row of equal places the update is first, if polars is asked to leave them so.
    known = both.sort(_PLACE, maintain_order=True).with_columns(pl.col(_ROW).forward_fill().over(keys.column_names))
    numbers: Int64Array = known.filter(_ASKED).get_column(_ROW).fill_null(-1).to_numpy(writable=True)
    return numbers


@attrs.frozen
class Moments:
    """Two tables with equal keys, at each of their updates.

    Args:
        keys: (N,) the key of each update, in the order of time.
        values: per table (N,) what it has for that key from then on.
        there: per table (N,) whether it has something for that key from then on.
        before: per table (N,) whether it had something for that key just before.
    """

    keys: pa.Table
    values: Sequence[pa.Table]
    there: Sequence[BoolArray]
    before: Sequence[BoolArray]

    @classmethod
    def of(cls, tables: Sequence[Updates], stores: Sequence[KeyValueStore]) -> Moments:
        """Of all updates of a batch.

        Args:
            tables: the rows of each.
            stores: what each has before the batch.
        """
        import polars as pl

        names = tables[0].keys.column_names
        rows = [f"{_ROW}{number}" for number in range(len(tables))]
        events = []
        for number, table in enumerate(tables):
            numbers = {row: pl.lit(None, pl.Int64) for row in rows}
            numbers[rows[number]] = pl.int_range(table.keys.num_rows, dtype=pl.Int64)
            place = pl.Series(_PLACE, table.places, dtype=pl.Int64)
            events.append(to_frame(table.keys).with_columns(place, **numbers))
        updates = pl.concat(events).sort(_PLACE)
        # Before its first update a key has what the stores have: it is as if that had been written at place -1.
        distinct = updates.select(names).unique(maintain_order=True)
        start = {
            row: pl.int_range(distinct.height, dtype=pl.Int64) + table.keys.num_rows
            for row, table in zip(rows, tables, strict=True)
        }
        first = distinct.with_columns(pl.lit(-1, pl.Int64).alias(_PLACE), **start)
        known = pl.concat([first, updates]).with_columns(pl.col(row).forward_fill().over(names) for row in rows)
        known = known.with_columns(pl.col(row).shift(1).over(names).alias(f"{row}b") for row in rows)
        known = known.filter(pl.col(_PLACE) >= 0)
        keys = distinct.to_arrow().cast(tables[0].keys.schema)
        values, there, before = [], [], []
        for row, table, store in zip(rows, tables, stores, strict=True):
            every, are_there = _with_stored(table, store, keys)
            values.append(taken(every, known.get_column(row).to_arrow()))
            there.append(are_there[known.get_column(row).to_numpy()])
            before.append(are_there[known.get_column(f"{row}b").to_numpy()])
        return cls(known.select(names).to_arrow().cast(tables[0].keys.schema), values, there, before)
