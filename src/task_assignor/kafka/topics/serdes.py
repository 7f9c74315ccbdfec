"""How the values of Kafka records become rows and rows become values: the protocol `Serde`, and JSON."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from task_assignor.runtime.arrow.dictionaries import retyped
from task_assignor.runtime.arrow.frames import fitted, infinities, leaves, no_rows, to_frame
from task_assignor.runtime.stores.encoding import ValueEncoding
from task_assignor.sdk import StreamsException
from task_assignor.sdk.checks import check_kind

_BLOCK_BYTES: Final = 1 << 24
_AT_ONCE_BYTES: Final = 1 << 28
"""Arrow reads less than 2 GiB at once."""
_PER_DAY: Final = {unit: 86_400 * 10**digits for unit, digits in {"s": 0, "ms": 3, "us": 6, "ns": 9}.items()}
_FIRST_DAY: Final = -719_528
_MORE: Final = re.compile(rb'\}\s*,\s*"')
"""Within an object a member after one that is an object; else what no value has."""
_CHECKSUM: Final = struct.Struct(">I")
_LAST_DAY: Final = 2_932_896
"""Days from 1970 to those of the years 0 and 9999: a year has four digits."""


class SerializationException(StreamsException):
    """A value is not what its serde reads, or rows are not what it can write.

    Args:
        message: why.
        index: place of the value among those that were given; -1: it is not about one.
    """

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message, index)
        self.index = index

    def __str__(self) -> str:
        return str(self.args[0])


def to_times(milliseconds: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times of records as a column of that type.

    Raises:
        SerializationException: it cannot hold one; `index` says which.
    """
    times = milliseconds.cast(pa.timestamp("ms", kind.tz)) if pa.types.is_timestamp(kind) else milliseconds
    try:
        return times.cast(kind)
    except pa.ArrowInvalid:
        index = next(place for place in range(len(times)) if not _can_be_cast(times[place : place + 1], kind))
        raise SerializationException(
            f"its time, {milliseconds[index]} ms from 1970, is none that {kind} can hold", index
        ) from None


def _can_be_cast(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


class Serde(Protocol):
    """Values of records to rows and back, or keys. It crosses to clients by pickle, and is used by several threads there."""

    def check(self, schema: pa.Schema) -> None:
        """Hold the columns of a source, or of an output that declares them, against what it can read and write.

        Raises:
            SerializationException: it cannot read or write a column.
        """

    def deserialize(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """One row for each value.

        Args:
            values: the values, maybe none at all; none is null.
            schema: the columns that are wanted, in this order.

        Raises:
            SerializationException: a value cannot be read; `index` says which, and `bad_records` what becomes of it. Then the
                others are asked for again.
        """

    def serialize(self, rows: pa.Table) -> Sequence[bytes | None]:
        """One value for each row, which must depend on that row alone: those of several tasks may come together.

        Args:
            rows: the rows, maybe none; a column that is null in all of them may have the type null.

        Returns:
            The values; None: the record has none (a tombstone).

        Raises:
            SerializationException: a column cannot be written.
        """


class JsonSerde:
    """A value is a JSON object, in UTF-8, with a member for each column.

    A member that is missing is null; members that are no columns are passed over. Read and written are bools, integers,
    floats, texts, dates (`"2013-01-31"`), timestamps (`"2013-01-31T05:00:00Z"`, in UTC if nothing else is said), and lists
    and structs of all but dates. An integer column takes no fraction, a text column no number, a float column none that is
    too large for it: such a value is an error. Times with a zone are written in UTC; dates and times outside of the years 0
    to 9999 cannot be. NaN and infinities, which JSON does not have, are written as null.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSerde)

    def __hash__(self) -> int:
        return hash(JsonSerde)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def check(self, schema: pa.Schema) -> None:
        """Hold the columns against what JSON can say."""
        check_kind("schema", schema, pa.Schema, SerializationException)
        for field in schema:
            if not _is_json(field.type):
                is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
                of_record = f", or, if it is the headers of records, headers={field.name!r}" if is_list else ""
                raise SerializationException(
                    f"The column {field.name!r} has type {field.type}, which JSON cannot say. Maybe cast it to a text, a number, "
                    f"a date or a timestamp, or give the topic another serde{of_record}."
                )

    def deserialize(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """One row for each value."""
        check_kind("schema", schema, pa.Schema, SerializationException)
        if not values:
            return no_rows(schema)
        try:
            return _parse(values, schema)
        except (pa.ArrowException, ValueError) as error:
            index = 0 if len(values) == 1 else _first_bad(values, schema)
            told = str(error)
            if index >= 0 and len(values) > 1:
                try:
                    _parse(values[index : index + 1], schema)
                except (pa.ArrowException, ValueError) as one:
                    told = str(one)
            shown = "" if index < 0 else f": {bytes(values[index][:200])!r}"
            raise SerializationException(
                f"it is no JSON object of the topic's columns ({told}){shown}", index
            ) from None

    def serialize(self, rows: pa.Table) -> Sequence[bytes]:
        """One value for each row; a column of which no row of the batch says the type, since all are null or empty, has nulls."""
        check_kind("rows", rows, pa.Table, SerializationException)
        schema = pa.schema([field.with_type(retyped(field.type, _if_unknown)) for field in rows.schema])
        self.check(schema)
        if not rows.num_rows:
            return []
        if schema != rows.schema:
            rows = fitted(rows, schema)
        if not rows.num_columns:
            return [b"{}"] * rows.num_rows
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            _check_years(name, column)
        # A zone's offset has seconds in old times, and JSON has none.
        in_utc = pa.schema([field.with_type(retyped(field.type, _in_utc)) for field in rows.schema])
        if in_utc != rows.schema:
            rows = fitted(rows, in_utc)
        return [text.encode() for text in to_frame(rows).to_struct().struct.json_encode().to_list()]


class RowSerde:
    """A value is a row as key-value stores keep it, with a checksum: exact, of any columns, and for the application itself only.

    The checksum is of the names and types of the columns, too: the row itself does not say which they are.
    """

    def __repr__(self) -> str:
        return "RowSerde()"

    def check(self, schema: pa.Schema) -> None:
        """Any columns will do."""

    def deserialize(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """One row for each value."""
        if not values:
            return no_rows(schema)
        rows, seed = [value[: -_CHECKSUM.size] for value in values], _seed_of(schema)
        wrong = (place for place, row in enumerate(rows) if _with_checksum(row, seed) != values[place])
        if (place := next(wrong, -1)) >= 0:
            raise SerializationException(
                "its checksum is wrong: this application has not written it, or had other columns when it did. Maybe let a version "
                "with those columns read what is left",
                place,
            )
        return pa.table(ValueEncoding(schema).decode(rows), schema=schema)

    def serialize(self, rows: pa.Table) -> Sequence[bytes]:
        """One value for each row."""
        seed, encoded = _seed_of(rows.schema), ValueEncoding(rows.schema).encode(rows.columns, rows.num_rows)
        return [_with_checksum(row, seed) for row in encoded.to_pylist()]


def _seed_of(schema: pa.Schema) -> int:
    return zlib.crc32(repr([(field.name, str(field.type)) for field in schema]).encode())


def _with_checksum(row: bytes, seed: int) -> bytes:
    return row + _CHECKSUM.pack(zlib.crc32(row, seed))


def _is_json(kind: pa.DataType, *, nested: bool = False) -> bool:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_json(kind.value_type, nested=True)
    if types.is_struct(kind):
        return all(_is_json(field.type, nested=True) for field in kind)
    if types.is_date32(kind):
        return not nested
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
    )


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _if_unknown(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind


def _check_years(name: str, column: pa.ChunkedArray) -> None:
    """Hold dates and times against what has four digits for a year.

    Raises:
        SerializationException: one is not within.
    """
    for leaf in leaves(column):
        if pa.types.is_date32(leaf.type):
            numbers, per_day = leaf.cast(pa.int32()), 1
        elif pa.types.is_timestamp(leaf.type):
            numbers, per_day = leaf.cast(pa.int64()), _PER_DAY[leaf.type.unit]
        else:
            continue
        low, high = pc.min_max(numbers).values()
        for number in (low.as_py(), high.as_py()):
            if number is not None and not _FIRST_DAY <= number // per_day <= _LAST_DAY:
                raise SerializationException(
                    f"A row has {number} as {name!r} ({leaf.type}, from 1970 on), and JSON says dates and times of the years 0 "
                    "to 9999 only."
                )


def _parse(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows; a number that does not fit into its float is none."""
    if len(values) > 1 and sum(map(len, values)) > _AT_ONCE_BYTES:
        middle = len(values) // 2
        return pa.concat_tables([_parse(values[:middle], schema), _parse(values[middle:], schema)])
    rows = _objects(values, schema)
    if found := sum(map(infinities, rows.columns)):
        wide = pa.schema([field.with_type(retyped(field.type, _widened)) for field in schema])
        if found > sum(map(infinities, _objects(values, wide).columns)):
            raise ValueError("a number does not fit into a float of 32 bits")
    return rows


def _widened(kind: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_float32(kind) else kind


def _objects(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows; each value is wrapped, so that one that is no object, or several, is an error and moves no other."""
    table = _read_lines(values, b'{"v":%b}', retyped(pa.struct(list(schema)), _read_as))
    # `{"a":1},"b":2` is none, but all is well where it is wrapped so; what is right in both ways is one value.
    if _MORE.search(b"\n".join(values)):
        _read_lines(values, b'{"v":[%b]}', pa.list_(pa.struct([])))
    if table.num_rows != len(values):
        raise ValueError(f"{len(values)} values hold {table.num_rows} objects")
    column = table.column("v")
    if column.null_count:
        raise ValueError("it is null")
    objects = pa.concat_arrays(column.chunks)
    # Arrow takes whatever bytes are between quotes for a text.
    objects.validate(full=True)
    return pa.table(_members(objects, schema), schema=schema)


def _members(objects: pa.StructArray, fields: Iterable[pa.Field], within: str = "") -> list[pa.Array]:
    """Those of objects in the types of the fields. One that is never null may be in objects that are null, and only there.

    Raises:
        ValueError: it is in another one.
    """
    members = []
    for place, field in enumerate(fields):
        member, name = objects.field(place), f"{within}{field.name}"
        if not field.nullable and pc.any(pc.and_(member.is_null(), objects.is_valid())).as_py():
            raise ValueError(f"{name!r}, which is never null, is null or is not there")
        members.append(_typed(member, field.type, name))
    return members


def _typed(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """What Arrow's reader has made of `_read_as` in the type itself."""
    if pa.types.is_struct(kind):
        members = _members(values, kind, f"{name}.")
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=values.is_null()) if members else values
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return values.cast(kind)
    if not kind.value_field.nullable and values.values.null_count:
        raise ValueError(f"a list {name!r}, whose items are never null, has one that is")
    items = _typed(values.values, kind.value_type, f"{name}[]")
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(values.offsets, items, type=kind, mask=values.is_null())


def _read_lines(values: Sequence[bytes], wrapped: bytes, kind: pa.DataType) -> pa.Table:
    """A table with a column of that type: the values, each wrapped as a line of JSON that has it as its member `v`."""
    data = b"\n".join([wrapped % value for value in values])
    return pyarrow.json.read_json(
        io.BytesIO(data),
        pyarrow.json.ReadOptions(use_threads=False, block_size=max(_BLOCK_BYTES, len(data) + 1)),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", kind)]), newlines_in_values=True, unexpected_field_behavior="ignore"
        ),
    )


def _read_as(kind: pa.DataType) -> pa.DataType:
    """What Arrow's reader knows for it, which takes a field that is never null for missing in a struct that is null."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_nullable(True))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_nullable(True) for field in kind])
    return pa.string() if pa.types.is_date32(kind) else kind


def _first_bad(values: Sequence[bytes], schema: pa.Schema) -> int:
    """The first value that cannot be read; -1: each can by itself."""
    low, high = 0, len(values)
    if not _is_bad(values, schema):
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        if _is_bad(values[low:middle], schema):
            high = middle
        else:
            low = middle
    return low if _is_bad(values[low:high], schema) else -1


def _is_bad(values: Sequence[bytes], schema: pa.Schema) -> bool:
    try:
        _parse(values, schema)
    except (pa.ArrowException, ValueError):
        return True
    return False
