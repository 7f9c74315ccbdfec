"""The key-value store in memory: rows by key, in a dictionary."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.errors import StoreException
from task_assignor.runtime.stores.store import Store, check_store_name, described
from task_assignor.sdk.text import shown

_DELETED: Final = "__deleted"
_NAN: Final = float("nan")


@attrs.frozen
class KeyValueStoreSpec:
    """Declares a key-value store.

    Args:
        name: name of the store, unique in the topology.
        key: key columns and their types, at least one.
        value: value columns and their types.
        logged: its changes are kept in a changelog, so that another client can rebuild it. Without, it starts empty
            on every client.

    Keys are equal as values are: times with a zone by their instant (they come back in UTC), all NaN as one key, 0.0 and
    -0.0 as one. A key of one column cannot be null, and lists, structs and maps cannot be keys.

    Raises:
        StoreException: something of it is not allowed.
    """

    name: str
    key: pa.Schema
    value: pa.Schema
    logged: bool = True

    def __attrs_post_init__(self) -> None:
        check_store_name(self.name)
        for what, schema in (("key", self.key), ("value", self.value)):
            if not isinstance(schema, pa.Schema):
                raise StoreException(f"The {what} ({schema!r}) of store {self.name} must be a pyarrow.Schema.")
        if not len(self.key):
            raise StoreException(f"The store {self.name} needs at least one key column.")
        for field in self.key:
            if pa.types.is_nested(field.type) or pa.types.is_null(field.type):
                raise StoreException(
                    f"The key column {field.name!r} of store {self.name} has type {field.type}, which cannot be a key: "
                    + (
                        "it has no values. Maybe give its real type."
                        if pa.types.is_null(field.type)
                        else "Python cannot look it up. Maybe make one key column of each part, or a text of it."
                    )
                )
        names = [*self.key.names, *self.value.names, _DELETED]
        if len(set(names)) != len(names):
            raise StoreException(
                f"The store {self.name} has a column name twice: {names[:-1]} ({_DELETED} is reserved)."
            )

    @property
    def fingerprint(self) -> str:
        """Changes when old snapshots and changelogs no longer fit."""
        return f"key-value({described(self.key)} -> {described(self.value)})"

    def create(self) -> KeyValueStore:
        """An empty store."""
        return KeyValueStore(self)


class _WrongZoneError(ValueError):
    """A time has a zone and should not, or the reverse."""


def _canonical(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes one Python value of all values of a type that are the same key; None: they are equal as they are."""
    if pa.types.is_floating(kind):
        return _one_nan
    if pa.types.is_timestamp(kind):
        return _naive if kind.tz is None else _instant
    return None


def _one_nan(value: Any) -> Any:
    # A dictionary finds the very object, though it is not equal to itself.
    return _NAN if value != value else value  # noqa: PLR0124


def _naive(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        raise _WrongZoneError("has a time zone, those of the store have none")
    return value


def _instant(value: Any) -> Any:
    """In UTC: Python compares times of one zone by the clock on the wall, which shows an hour twice in autumn."""
    if not isinstance(value, dt.datetime):
        return value
    if value.tzinfo is None:
        raise _WrongZoneError("has no time zone, those of the store have one")
    return value.astimezone(dt.UTC)


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    has_zone = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp(column.type.unit, "UTC")) if has_zone else column


class KeyValueStore(Store):
    """Rows by key, in a dictionary. A key is a value, or a tuple of values if there are several key columns."""

    def __init__(self, spec: KeyValueStoreSpec) -> None:
        self._spec = spec
        self._rows: dict[Hashable, tuple[Any, ...]] = {}
        self._changed: dict[Hashable, None] = {}
        """Keys that are there and were set; new ones in the order in which the store has them."""
        self._removed: dict[Hashable, None] = {}
        """Keys that were removed; some may be there again, behind all that were there then."""
        self._single = len(spec.key) == 1
        self._canonical = {
            number: make for number, field in enumerate(spec.key) if (make := _canonical(field.type)) is not None
        }
        """Key column -> makes equal values of equal keys, for those whose values Python compares otherwise."""

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._spec.name

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Hashable) -> bool:
        return self._key(key) in self._rows

    def get(self, key: Hashable) -> dict[str, Any] | None:
        """The value columns of a key, or None.

        Raises:
            StoreException: the key is a time without a zone and those of the store have one, or the reverse.
        """
        row = self._rows.get(self._key(key))
        return None if row is None else dict(zip(self._spec.value.names, row, strict=True))

    def put(self, key: Hashable, values: Mapping[str, Any]) -> None:
        """Set the value columns of a key; columns left out become null.

        Raises:
            StoreException: a column does not exist, or the key is null or a time of the other kind.
        """
        key = self._key(key)
        if self._single and key is None:
            raise self._null_key()
        if not values.keys() <= set(self._spec.value.names):
            unknown = sorted(values.keys() - set(self._spec.value.names))
            raise StoreException(
                f"The store {self.name} has no value columns {unknown}; it has {self._spec.value.names}."
            )
        self._rows[key] = tuple(values.get(name) for name in self._spec.value.names)
        self._changed[key] = None

    def delete(self, key: Hashable) -> None:
        """Remove a key, if it is there."""
        key = self._key(key)
        if self._rows.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._removed[key] = None

    def items(self) -> Iterator[tuple[Hashable, dict[str, Any]]]:
        """All keys with their value columns."""
        names = self._spec.value.names
        return ((key, dict(zip(names, row, strict=True))) for key, row in self._rows.items())

    def put_table(self, rows: pa.Table) -> None:
        """Set many keys; of equal keys the last row wins.

        Args:
            rows: key and value columns, by name; others are ignored.

        Raises:
            StoreException: a column is missing or has another type, or a key is null.
        """
        keys = self._keys_of(rows)
        if self._single and rows.column(self._spec.key.names[0]).null_count:
            raise self._null_key()
        values = zip(*(self._column(rows, field).to_pylist() for field in self._spec.value), strict=True)
        self._rows.update(zip(keys, values if len(self._spec.value) else ((),) * len(keys), strict=True))
        self._changed.update(dict.fromkeys(keys))

    def lookup(self, keys: pa.Table | pa.Array | pa.ChunkedArray) -> pa.Table:
        """The value columns of many keys.

        Args:
            keys: a table with the key columns, by name; or one column, for stores with one key column.

        Returns:
            One row per key, in the order of the keys; null where a key is missing.
        """
        if not isinstance(keys, pa.Table):
            keys = pa.table([keys], names=self._spec.key.names[:1])
        missing = (None,) * len(self._spec.value)
        rows = list(map(self._rows.get, self._keys_of(keys), repeat(missing)))
        return self._to_table(self._spec.value, _columns_of(rows, len(missing)))

    def all(self) -> pa.Table:
        """Everything: key and value columns."""
        return self._rows_table(self._rows)

    def drain_changes(self) -> pa.Table | None:
        """Keys that were removed since the last call, then the last state of those that were set."""
        if not self._changed and not self._removed:
            return None
        missing = (None,) * len(self._spec.value)
        removed = self._rows_table(dict.fromkeys(self._removed, missing))
        changed = self._rows_table({key: self._rows[key] for key in self._changed})
        deleted = pa.array(np.arange(len(removed) + len(changed)) < len(removed))
        self._changed, self._removed = {}, {}
        return pa.concat_tables([removed, changed]).append_column(_DELETED, deleted)

    def apply(self, changes: pa.Table) -> None:
        """Make the changes of one batch, so that the order of the keys is that of the store that made them."""
        deleted = changes.column(_DELETED)
        for key in self._keys_of(changes.filter(deleted)):
            self._rows.pop(key, None)
        changed = changes.filter(pc.invert(deleted))
        keys = self._keys_of(changed)
        self._rows.update(zip(keys, self._values_of(changed, len(keys)), strict=True))

    def snapshot(self) -> pa.Table:
        """Everything, for `load`."""
        return self.all()

    def load(self, snapshot: pa.Table) -> None:
        """Replace everything."""
        keys = self._keys_of(snapshot)
        self._rows = dict(zip(keys, self._values_of(snapshot, len(keys)), strict=True))
        self._changed, self._removed = {}, {}

    def clear(self) -> None:
        """Forget everything."""
        self._rows, self._changed, self._removed = {}, {}, {}

    def _values_of(self, rows: pa.Table, count: int) -> list[tuple[Any, ...]]:
        columns = [self._column(rows, field).to_pylist() for field in self._spec.value]
        return list(zip(*columns, strict=True)) if columns else [()] * count

    def _keys_of(self, rows: pa.Table) -> list[Any]:
        columns = [self._column(rows, field) for field in self._spec.key]
        lists = [_in_utc(column).to_pylist() for column in columns]
        for number, make in self._canonical.items():
            if pa.types.is_floating(columns[number].type):
                lists[number] = list(map(make, lists[number]))
        return lists[0] if self._single else list(zip(*lists, strict=True))

    def _key(self, key: Any) -> Any:
        """The key as it is in the dictionary."""
        width = len(self._spec.key)
        if not self._single and (not isinstance(key, tuple) or len(key) != width):
            raise StoreException(
                f"The key {shown(key)} of store {self.name} must be a tuple of {width} values: {self._spec.key.names}."
            )
        if not self._canonical:
            return key
        parts = [key] if self._single else list(key)
        for number, make in self._canonical.items():
            try:
                parts[number] = make(parts[number])
            except _WrongZoneError as error:
                raise StoreException(
                    f"The key {shown(parts[number])} for {self._spec.key.names[number]!r} of store {self.name} {error}."
                ) from None
        return parts[0] if self._single else tuple(parts)

    def _null_key(self) -> StoreException:
        return StoreException(
            f"The store {self.name} cannot have null as a key ({self._spec.key.names[0]!r}). Maybe leave such records out, "
            "as Kafka Streams does: rows.filter(pc.is_valid(rows.column(...)))."
        )

    def _column(self, rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        if field.name not in rows.schema.names:
            raise StoreException(
                f"Rows for the store {self.name} have no column {field.name!r}; they have {rows.schema.names}."
            )
        column = rows.column(field.name)
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise StoreException(
                f"The column {field.name!r} for the store {self.name} has type {column.type}, "
                f"which cannot be cast to {field.type}: {error}"
            ) from error

    def _rows_table(self, rows: Mapping[Hashable, tuple[Any, ...]]) -> pa.Table:
        keys = [list(rows)] if self._single else _columns_of(list(rows), len(self._spec.key))
        left = self._to_table(self._spec.key, keys)
        right = self._to_table(self._spec.value, _columns_of(list(rows.values()), len(self._spec.value)))
        return pa.table([*left.columns, *right.columns], schema=pa.schema([*self._spec.key, *self._spec.value]))

    def _to_table(self, schema: pa.Schema, columns: list[list[Any]]) -> pa.Table:
        arrays = []
        for field, values in zip(schema, columns, strict=True):
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise StoreException(
                    f"The store {self.name} holds a value in {field.name!r} that is not of type {field.type}: {error}"
                ) from error
        return pa.table(arrays, schema=schema)


def _columns_of(rows: list[Any], count: int) -> list[list[Any]]:
    """Columns of row tuples. Ten times faster than zip(*rows) for many rows: it makes no argument list of them."""
    return [list(map(itemgetter(number), rows)) for number in range(count)]
