"""The key-value store: rows by key, in memory or on disk. What it is made of as bytes is in `encoding` and `rows`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.frames import (
    cast_exactly,
    check_holds,
    check_times_of_day,
    exact_array,
    not_a_table,
    padded,
    plain_types,
    to_records,
    valid,
)
from task_assignor.runtime.errors import StoreException
from task_assignor.runtime.machines.records import SavedStore
from task_assignor.runtime.stores.encoding import KeyEncoding, ValueEncoding, has_beginnings, is_key_type, is_value_type
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.memory_rows import MemoryRows
from task_assignor.runtime.stores.recent import Recent
from task_assignor.runtime.stores.rows import Rows
from task_assignor.runtime.stores.store import Store, changed_between, check_store_name, described, with_changelog
from task_assignor.sdk.checks import check_flag
from task_assignor.sdk.text import shown

DELETED: Final = "__deleted"
_BLOCK_ROWS: Final = 1 << 16
"""Rows that are read at a time where all are read."""
_FIRST_ROWS: Final = 1 << 5
"""So many rows are read first, and more and more then, where some are asked for: often only the first one is wanted."""


@attrs.frozen
class KeyValueStoreSpec:
    """Declares a key-value store.

    Args:
        name: name of the store, unique in the topology.
        key: key columns and their types, at least one.
        value: value columns and their types.
        logged: its changes are kept in a changelog, so that another client can rebuild it. Without, it starts empty
            on every client.
        on_disk: its rows are on disk, for state that is larger than memory (Kafka's persistent store; it needs the extra
            `rocksdb`). May be changed between two runs.

    A later version of the application may have more value columns, after those that are there and nullable: rows that were
    written before have null in them.

    Keys are equal as values are: times with a zone by their instant (they come back in UTC), all NaN as one key, 0.0 and
    -0.0 as one. A key of one column cannot be null, and lists, structs and maps cannot be keys. Dictionaries come back with places of
    32 bits, since those of all rows come together.

    Raises:
        StoreException: something of it is not allowed.
    """

    name: str
    key: pa.Schema
    value: pa.Schema
    logged: bool = True
    on_disk: bool = False

    def __attrs_post_init__(self) -> None:
        check_store_name(self.name)
        check_flag("logged of the store", self.logged, self.name, StoreException)
        check_flag("on_disk of the store", self.on_disk, self.name, StoreException)
        for what, schema in (("key", self.key), ("value", self.value)):
            if not isinstance(schema, pa.Schema):
                raise StoreException(f"The {what} ({shown(schema)}) of store {self.name} must be a pyarrow.Schema.")
        if not len(self.key):
            raise StoreException(f"The store {self.name} needs at least one key column.")
        for field in self.key:
            if not is_key_type(field.type):
                raise StoreException(
                    f"The key column {field.name!r} of store {self.name} has type {field.type}, which cannot be a key: "
                    + (
                        "it has no values. Maybe give its real type."
                        if pa.types.is_null(field.type)
                        else "its values have no order. Maybe make one key column of each part, or a text of it."
                    )
                )
        for field in (*self.key, *self.value):
            if not is_value_type(field.type):
                raise StoreException(
                    f"The column {field.name!r} of store {self.name} has type {field.type}, of which Arrow cannot pick rows. "
                    "Maybe give the type that it stands for."
                )
        names = [*self.key.names, *self.value.names, DELETED]
        if len(set(names)) != len(names):
            raise StoreException(
                f"The store {self.name} has a column name twice: {names[:-1]} ({DELETED} is reserved)."
            )

    @property
    def fingerprint(self) -> str:
        """Changes when old snapshots and changelogs no longer fit."""
        return with_changelog(f"key-value({described(self.key)} -> {described(self.value)})", self.logged)

    def has_grown_from(self, fingerprint: str) -> bool:
        """The store had this fingerprint before it gained value columns: nullable ones, after those that it had."""
        fields = list(self.value)
        while fields and fields[-1].nullable:
            fields.pop()
            if attrs.evolve(self, value=pa.schema(fields)).fingerprint == fingerprint:
                return True
        return False

    def create(self, folder: Path | None = None, memory: StoreMemory | None = None) -> KeyValueStore:
        """An empty store, or what is kept in its folder.

        Args:
            folder: where its files are; None: a temporary one, if it needs any.
            memory: what all stores of a process share; None: as if it were the only one.

        Raises:
            MissingExtraException: it shall be on disk, and the extra is not installed.
        """
        if not self.on_disk:
            return KeyValueStore(self, MemoryRows(folder, self.name))
        from task_assignor.runtime.stores.disk import DiskRows

        return KeyValueStore(self, DiskRows(folder, self.name, memory or StoreMemory()))


def _in_utc(column: pa.Array) -> pa.Array:
    """Python compares times of one zone by the clock on the wall, which shows an hour twice in autumn."""
    has_zone = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp(column.type.unit, "UTC")) if has_zone else column


class KeyValueStore(Store):
    """Rows by key, in the order of the keys. A key is a value, or a tuple of values if there are several key columns.

    Keys are in the order of their columns, values ascending; texts and bytes byte by byte, NaN after all numbers, null
    last.
    """

    def __init__(self, spec: KeyValueStoreSpec, rows: Rows) -> None:
        # A dictionary that is declared with places of one byte has room for 127 values, whatever rows there are.
        spec = attrs.evolve(spec, key=plain_types(spec.key), value=plain_types(spec.value))
        self._spec = spec
        self._rows = rows
        """What is kept."""
        self._recent = Recent()
        """What changed since."""
        self._changed: dict[bytes, None] = {}
        """Keys that changed since the changes were drained."""
        self._single = len(spec.key) == 1
        self._keys = KeyEncoding(spec.key)
        self._values = ValueEncoding(spec.value)
        self._names = spec.value.names
        self._never_null = [field.name for field in spec.value if not field.nullable]
        self._schema = pa.schema([*spec.key, *spec.value])
        self._changes = self._schema.append(pa.field(DELETED, pa.bool_()))
        self._zones = [
            (number, field.type.tz is not None)
            for number, field in enumerate(spec.key)
            if pa.types.is_timestamp(field.type)
        ]
        """Key columns that are times, and whether theirs have a zone."""

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._spec.name

    def __len__(self) -> int:
        return self._recent.count(self._rows)

    # One key.

    def __contains__(self, key: Hashable) -> bool:
        return self._get(self._key(key)) is not None

    def get(self, key: Hashable) -> dict[str, Any] | None:
        """The value columns of a key, or None.

        Raises:
            StoreException: the key cannot be one of this store.
        """
        row = self._get(self._key(key))
        return None if row is None else dict(zip(self._names, self._values.decode_one(row), strict=True))

    def put(self, key: Hashable, values: Mapping[str, Any]) -> None:
        """Set the value columns of a key; columns left out become null.

        Raises:
            StoreException: a column does not exist, a value is not of its type, or null where none may be, or the key cannot be one of
                this store.
        """
        encoded = self._key(key)
        if encoded is None:
            raise self._null_key()
        if not isinstance(values, Mapping):
            raise StoreException(
                f"The value {shown(values)} for store {self.name} must be a mapping of its value columns: {self._names}."
            )
        if not values.keys() <= set(self._names):
            unknown = sorted(values.keys() - set(self._names))
            raise StoreException(f"The store {self.name} has no value columns {unknown}; it has {self._names}.")
        for name in self._never_null:
            if values.get(name) is None:
                raise self._no_value(name)
        row = [values.get(name) for name in self._names]
        try:
            value = self._values.encode_one(row)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise self._wrong_value(row) from None
        self._recent.put({encoded: value})
        self._changed[encoded] = None

    def delete(self, key: Hashable) -> None:
        """Remove a key, if it is there."""
        encoded = self._key(key)
        if encoded is not None and self._get(encoded) is not None:
            self._recent.remove([encoded])
            self._changed[encoded] = None

    def _get(self, key: bytes | None) -> bytes | None:
        if key is None:
            return None
        recent = self._recent.rows
        return recent[key] if key in recent else self._rows.get(key)

    # Many keys.

    def put_table(self, rows: pa.Table) -> None:
        """Set many keys; of equal keys the last row wins.

        Args:
            rows: key and value columns, by name; others are ignored.

        Raises:
            StoreException: a column is missing, has another type, or holds bytes that are no text, or a key is null, or a value where none
                may be.
        """
        self._check_is_table(rows)
        own, given = {*self._schema.names}, {*rows.schema.names}
        try:
            check_holds(rows.select([place for place, name in enumerate(rows.schema.names) if name in own]))
        except ValueError as error:
            # Else who reads it later would find it, on every client.
            raise StoreException(f"Of the rows for the store {self.name} {error}.") from error
        keys = self._keys_of(rows)
        if self._single and valid(rows.column(self._spec.key.names[0])) is not None:
            raise self._null_key()
        for name in self._never_null:
            if name in given and valid(rows.column(name)) is not None:
                raise self._no_value(name)
        self._recent.put(dict(zip(keys, self._values_of(rows), strict=True)))
        self._changed.update(dict.fromkeys(keys))

    def delete_table(self, keys: pa.Table) -> None:
        """Remove many keys, those that are there.

        Args:
            keys: the key columns, by name; others are ignored.

        Raises:
            StoreException: a column is missing or has another type.
        """
        self._check_is_table(keys)
        encoded = self._keys_of(keys)
        there = zip(encoded, self._get_many(encoded), strict=True)
        gone = dict.fromkeys(key for key, value in there if value is not None)
        self._recent.remove(gone)
        self._changed.update(gone)

    def lookup(self, keys: pa.Table | pa.Array | pa.ChunkedArray) -> pa.Table:
        """The value columns of many keys.

        Args:
            keys: a table with the key columns, by name; or one column, for stores with one key column.

        Returns:
            One row per key, in the order of the keys; null where a key is missing.

        Raises:
            StoreException: it is neither, or of another type.
        """
        if not isinstance(keys, pa.Table):
            keys = self._table_of_column(keys)
        return self.find(keys)[0]

    def _table_of_column(self, keys: object) -> pa.Table:
        wrong = StoreException(
            f"The keys ({shown(keys)}) to look up in the store {self.name} must be a pyarrow.Table with the key columns, or one "
            "column. Maybe get(key), for one key."
        )
        # Arrow would take a text for its letters.
        if isinstance(keys, str | bytes):
            raise wrong
        try:
            return pa.table([keys], names=self._spec.key.names[:1])
        except (pa.ArrowException, TypeError, ValueError, KeyError):
            raise wrong from None

    def find(self, keys: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """What `lookup` gives, and which of the keys are there: all value columns of a key may be null."""
        if not isinstance(keys, pa.Table):
            raise StoreException(f"The keys ({shown(keys)}) for the store {self.name} must be a pyarrow.Table.")
        rows = self._get_many(self._keys_of(keys))
        return self._value_table(rows), np.fromiter((row is not None for row in rows), np.bool_, len(rows))

    def _get_many(self, keys: list[Any]) -> list[bytes | None]:
        recent = self._recent.rows
        asked = list(dict.fromkeys(key for key in keys if key is not None and key not in recent))
        found: dict[bytes | None, bytes | None] = dict(zip(asked, self._rows.get_many(asked), strict=True))
        return [recent[key] if key in recent else found.get(key) for key in keys]

    # Everything.

    def items(self) -> Iterator[tuple[Hashable, dict[str, Any]]]:
        """All keys with their value columns, in the order of the keys."""
        return self._records(self._blocks())

    def all(self) -> pa.Table:
        """Everything, in the order of the keys: key and value columns."""
        tables = [self._table([key for key, _ in block], [value for _, value in block]) for block in self._blocks()]
        return pa.concat_tables(tables) if tables else self._table([], [])

    def _blocks(self) -> Iterator[list[tuple[bytes, bytes]]]:
        yield from _pieces(self._recent.all(self._rows), _BLOCK_ROWS)

    def _records(self, blocks: Iterable[list[tuple[bytes, bytes]]]) -> Iterator[tuple[Hashable, dict[str, Any]]]:
        for block in blocks:
            found = self._keys.decode([key for key, _ in block])
            for name, column in zip(self._spec.key.names, found, strict=True):
                check_times_of_day(name, column)
            columns = [_in_utc(column).to_pylist() for column in found]
            keys = columns[0] if self._single else zip(*columns, strict=True)
            yield from zip(keys, to_records(self._value_table([value for _, value in block])), strict=True)

    # Neighbours.

    def range(
        self, first: Hashable = None, last: Hashable = None, *, reverse: bool = False
    ) -> Iterator[tuple[Hashable, dict[str, Any]]]:
        """The keys from one to another one, both included, with their value columns, in the order of the keys (KIP-617, KIP-763).

        Args:
            first: the least key; None: from the beginning.
            last: the greatest key; None: to the end. Before `first` there is nothing.
            reverse: against the order.

        Raises:
            StoreException: one of them cannot be a key of this store, or `reverse` is neither True nor False.
        """
        begin = None if first is None else self._key(first)
        end = None if last is None else self._key(last)
        return self._records(self._between(begin or b"", None if end is None else end + b"\0", reverse))

    def prefix_scan(self, prefix: Hashable, *, reverse: bool = False) -> Iterator[tuple[Hashable, dict[str, Any]]]:
        """The keys that begin with something, with their value columns, in the order of the keys (KIP-614).

        Args:
            prefix: the values of the first key columns, as a tuple; or how texts or bytes begin, if they are the only key column.
            reverse: against the order.

        Raises:
            StoreException: no key of this store can begin with it, or `reverse` is neither True nor False.
        """
        begin = self._begin(prefix)
        # What comes next but begins otherwise.
        kept = begin.rstrip(b"\xff")
        end = kept[:-1] + bytes([kept[-1] + 1]) if kept else None
        return self._records(self._between(begin, end, reverse))

    def _between(self, first: bytes, end: bytes | None, reverse: bool) -> Iterator[list[tuple[bytes, bytes]]]:
        check_flag("reverse of the store", reverse, self.name, StoreException)
        return _pieces(self._recent.between(self._rows, first, end, reverse=reverse), _FIRST_ROWS)

    # Changes.

    def drain_changes(self) -> pa.Table | None:
        """The keys that changed since the last call, each with its last state."""
        if not self._changed:
            return None
        keys = list(self._changed)
        try:
            values = [self._recent.rows[key] for key in keys]
        except KeyError:
            raise changed_between(self.name) from None
        self._changed = {}
        deleted = np.fromiter((value is None for value in values), np.bool_, len(values))
        return self._table(keys, values).append_column(DELETED, pa.array(deleted))

    def apply(self, changes: pa.Table) -> None:
        """Make the changes of one batch; columns that came later are null."""
        changes = padded(changes, self._changes)
        changed = changes.filter(pc.invert(changes.column(DELETED)))
        self._recent.put(dict(zip(self._keys_of(changed), self._values_of(changed), strict=True)))
        self._recent.remove(self._keys_of(changes.filter(changes.column(DELETED))))

    @property
    def kept(self) -> str:
        """Name of the kept state; "": it is empty."""
        return self._rows.name

    def keep(self, name: str) -> None:
        """Keep all changes so far."""
        if self._changed:
            raise changed_between(self.name)
        self._rows.write(self._recent.rows, name)
        self._recent = Recent()

    def rollback(self) -> None:
        """Go back to the kept state."""
        self._recent, self._changed = Recent(), {}

    # Snapshots.

    def save(self) -> SavedStore:
        """Write the parts that are not there yet."""
        return self._rows.save()

    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything."""
        self.rollback()
        self._rows.load(saved, name)

    def clear(self) -> None:
        """Forget everything."""
        self.rollback()
        self._rows.clear()

    @property
    def survives(self) -> bool:
        """It is on disk."""
        return self._rows.survives

    def parts_in_use(self) -> set[str]:
        """Names of the parts that the store reads or builds upon."""
        return self._rows.parts_in_use()

    def close(self) -> None:
        """Give back files and memory; what is kept on disk stays."""
        self.rollback()
        self._rows.close()

    # Between rows and bytes.

    def _key(self, key: Any) -> bytes | None:
        """The key as bytes; None: it is null."""
        width = len(self._spec.key)
        if not self._single and (not isinstance(key, tuple) or len(key) != width):
            raise StoreException(
                f"The key {shown(key)} of store {self.name} must be a tuple of {width} values: {self._spec.key.names}."
            )
        return self._encoded((key,) if self._single else key, key)

    def _begin(self, prefix: Any) -> bytes:
        """What keys begin with, as bytes."""
        names = self._spec.key.names
        kind = self._spec.key.field(0).type
        if not self._single:
            if not isinstance(prefix, tuple) or not 0 < len(prefix) < len(names):
                raise StoreException(
                    f"The beginning {shown(prefix)} of keys of store {self.name} must be a tuple of the first of {names}. "
                    "Maybe get(key), for one key."
                )
        elif not has_beginnings(kind) or not isinstance(prefix, str | bytes):
            raise StoreException(
                f"No key of store {self.name} can begin with {shown(prefix)}: {names[0]!r} has type {kind}. Maybe range(first, last)."
            )
        return self._encoded((prefix,) if self._single else prefix, prefix) or b""

    def _encoded(self, parts: Sequence[Any], key: Any) -> bytes | None:
        for number, has_zone in self._zones:
            part = parts[number] if number < len(parts) else None
            if isinstance(part, dt.datetime) and (part.tzinfo is not None) != has_zone:
                raise StoreException(
                    f"The key {shown(part)} for {self._spec.key.names[number]!r} of store {self.name} "
                    f"has {'no' if has_zone else 'a'} time zone, those of the store have {'one' if has_zone else 'none'}."
                )
        try:
            return self._keys.encode_one(parts)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StoreException(
                f"The key {shown(key)} of store {self.name} is not of its type ({described(self._spec.key)}): {error}"
            ) from None

    def _check_is_table(self, rows: object) -> None:
        if not isinstance(rows, pa.Table):
            raise StoreException(not_a_table(f"the store {self.name}", rows))

    def _null_key(self) -> StoreException:
        return StoreException(
            f"The store {self.name} cannot have null as a key ({self._spec.key.names[0]!r}). Maybe leave such records out, "
            "as Kafka Streams does: rows.filter(pc.is_valid(rows.column(...)))."
        )

    def _no_value(self, name: str) -> StoreException:
        return StoreException(f"The column {name!r} of store {self.name} is declared as never null, but is to be null.")

    def _wrong_value(self, row: Sequence[Any]) -> StoreException:
        for field, value in zip(self._spec.value, row, strict=True):
            try:
                exact_array([value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                return StoreException(
                    f"The value {shown(value)} for {field.name!r} of store {self.name} is not of type {field.type}: {error}"
                )
        raise AssertionError(row)

    def _keys_of(self, rows: pa.Table) -> list[Any]:
        encoded: list[Any] = self._keys.encode([self._column(rows, field) for field in self._spec.key]).to_pylist()
        return encoded

    def _values_of(self, rows: pa.Table) -> list[Any]:
        return self._encoded_values([self._column(rows, field) for field in self._spec.value], rows.num_rows)

    def _encoded_values(self, columns: Sequence[pa.ChunkedArray], count: int) -> list[Any]:
        try:
            encoded: list[Any] = self._values.encode(columns, count).to_pylist()
        except pa.ArrowInvalid:
            # Of texts, those in lists included, no more than 2 GiB are in one array.
            if (half := count // 2) == 0:
                raise
            first, rest = ([column[part] for column in columns] for part in (slice(half), slice(half, None)))
            return [*self._encoded_values(first, half), *self._encoded_values(rest, count - half)]
        return encoded

    def _column(self, rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        if (count := len(rows.schema.get_all_field_indices(field.name))) != 1:
            raise StoreException(
                f"Rows for the store {self.name} have {'two columns' if count else 'no column'} {field.name!r}; they have {rows.schema.names}."
            )
        column = rows.column(field.name)
        if column.type == field.type:
            return column
        try:
            return cast_exactly(column, field.type)
        except pa.ArrowException as error:
            raise StoreException(
                f"The column {field.name!r} for the store {self.name} has type {column.type}, "
                f"which cannot be cast to {field.type}: {error}"
            ) from error

    def _value_table(self, values: Sequence[bytes | None]) -> pa.Table:
        nothing = self._values.nothing
        columns = self._values.decode([nothing if value is None else value for value in values])
        return pa.table(columns, schema=self._spec.value)

    def _table(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.Table:
        columns = [*self._keys.decode(keys), *self._value_table(values).columns]
        return pa.table(columns, schema=self._schema)


def _pieces(items: Iterator[tuple[bytes, bytes]], rows: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Rows in pieces: so many first, then more and more."""
    while piece := list(islice(items, rows)):
        yield piece
        rows = min(2 * rows, _BLOCK_ROWS)
