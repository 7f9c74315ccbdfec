"""Tables of other libraries as Arrow tables: pandas and polars frames, record batches, whatever speaks Arrow's C streams; and back."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.dictionaries import array_of, decoded, encoded, in_one_piece, retyped, value_type_of
from task_assignor.runtime.errors import TopicException
from task_assignor.sdk.text import failure, shown

if TYPE_CHECKING:
    import polars as pl

_EXPECTED = "a pyarrow.Table, a pandas or polars DataFrame, or an iterable of these with equal columns"
_NEVER_CUT: Final[frozenset[type]] = frozenset({int, bool, str, bytes, type(None)})
"""Arrow takes values of these types whole, or not at all."""
_OF_PYTHON: Final = _NEVER_CUT | {float, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
_BOOL8: Final = pa.bool8()
_INDEX_BITS: Final = 32
"""Of the place in a dictionary."""
_NEVER_CUT_IN: Final[Mapping[pa.DataType, frozenset[type]]] = {
    _BOOL8: frozenset(),
    pa.float16(): frozenset(),
    pa.float64(): _NEVER_CUT | {float},
    pa.date32(): _NEVER_CUT | {dt.date},
    pa.timestamp("us"): _NEVER_CUT | {dt.datetime},
}
"""Those of the types that are whole in more types than others, or in fewer; times only without a zone."""


def own(name: str) -> str:
    """What a column of ours is called that stands beside those of users for a while: none of theirs begins so."""
    return f"\x1f{name}"


def padded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of a schema, in its order; those that it lacks are null. Types stay as they are.

    Args:
        table: the table; it has no other columns.
        schema: the columns.
    """
    names = set(table.schema.names)
    if table.schema.names == schema.names:
        return table
    columns = [
        table.column(field.name) if field.name in names else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.table(columns, names=schema.names)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same in the types of the schema, too. Arrow's cast of a table refuses structs that are null and have fields that never are,
    also where their type stays.
    """  # noqa: D205
    columns = zip(padded(table, schema).columns, schema.types, strict=True)
    return pa.table([column if column.type == kind else column.cast(kind) for column, kind in columns], schema=schema)


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table of these columns without rows: of the tensors that numpy's arrays become Arrow's own way makes none."""
    try:
        return schema.empty_table()
    except NotImplementedError:
        return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """(N,) which rows have a value; None: all. A dictionary may have null among its values, of which Arrow says that it is there."""
    if pa.types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
        column = decoded(column)
    return column.is_valid().to_numpy() if column.null_count else None


def in_own_memory(table: pa.Table) -> pa.Table:
    """The same rows where nobody else can change them: of numpy and pandas Arrow takes columns where they are, and sees what is
    written there later.

    Raises:
        ValueError: a column holds bytes that are no text, or places beyond its dictionary: whoever reads it later fails, or crashes.
    """  # noqa: D205
    check_holds(table)
    sink = pa.BufferOutputStream()
    table = with_plain_types(table)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(in_one_piece(table))
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def check_holds(table: pa.Table) -> None:
    """Make sure that all values are of their types.

    Raises:
        ValueError: a column holds bytes that are no text, or places beyond its dictionary.
    """
    for field, column in zip(table.schema, table.columns, strict=True):
        # Numbers and times can be read whatever they are.
        if not pa.types.is_primitive(field.type) and not pa.types.is_decimal(field.type):
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise ValueError(
                    f"the column {field.name!r} holds what is no {field.type}: {failure(error)}. Maybe it was made of memory that "
                    "nobody has checked (from_buffers, view, safe=False)"
                ) from error


def to_frame(table: pa.Table) -> pl.DataFrame:
    """The same rows for polars, without a copy. It knows no zones that are offsets (`+05:30`): their times are in UTC there; and no
    seconds: these are milliseconds, of which polars itself makes other times, without a word, where they do not fit into 64 bits.

    Raises:
        TypeError: polars has no such type.
        pyarrow.ArrowInvalid: so many seconds are no milliseconds.
    """  # noqa: D205
    import polars as pl

    for place, kind in enumerate(table.schema.types):
        if pa.types.is_dictionary(kind) and pa.types.is_nested(kind.value_type):
            # It knows some of them, and says nothing of use about others.
            table = table.set_column(place, table.schema.names[place], decoded(table.column(place)))
    known = pa.schema([field.with_type(retyped(field.type, _known_to_polars)) for field in table.schema])
    if known != table.schema:
        table = fitted(table, known)
    # To a name of no letters it gives another one.
    rows = table.rename_columns([str(place) for place in range(table.num_columns)])
    whole = []
    for place, column in enumerate(rows.columns):
        if pa.types.is_fixed_size_list(column.type) and column.null_count:
            # Of a part of an array it takes all values, and says that there are too many; and it cuts columns where others have chunks.
            whole.append(pl.Series(str(place), column.take(pa.array(np.arange(len(column))))))
            rows = rows.set_column(place, str(place), pa.nulls(len(column)))
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(whole)
    frame.columns = table.schema.names
    return frame


def cast_exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as another type, where that loses nothing but digits of floats: Arrow has its own mind of what may go.

    Raises:
        pyarrow.ArrowException: it does lose something.
    """
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    if pa.types.is_dictionary(kind):
        return encoded(column if column.type == kind.value_type else cast_exactly(column, kind.value_type), kind)
    # One by one: of a whole column Arrow may make fewer chunks.
    found = pa.chunked_array([chunk.cast(kind) for chunk in column.chunks], kind)
    if {True, False} == _zones(column.type) ^ _zones(kind):
        raise pa.ArrowInvalid("times with and without a time zone do not mix")
    if not all(_is_whole(*pair) for pair in zip(column.chunks, found.chunks, strict=True)):
        raise pa.ArrowInvalid("values would change")
    return found


def _is_whole(given: pa.Array, found: pa.Array) -> bool:
    """Whether what Arrow has cast is all there, but for digits of floats; of what texts become it says itself what does not go."""
    kind, types = given.type, pa.types
    if kind == found.type or types.is_null(kind):
        return True
    if types.is_struct(kind) and types.is_struct(found.type):
        # It leaves fields out that the other type does not have.
        fields, places = found.flatten(), [found.type.get_field_index(field.name) for field in kind]
        return all(
            one.null_count == len(one) if place < 0 else _is_whole(one, fields[place])
            for one, place in zip(given.flatten(), places, strict=True)
        )
    if types.is_nested(kind) and types.is_nested(found.type):
        return _is_whole(_items(given), _items(found))
    names = f"{kind} {found.type}"
    if any(name in names for name in ("string", "binary", "extension")):
        return True
    if "float" in names:
        return infinities(pa.chunked_array([found])) == infinities(pa.chunked_array([given]))
    try:
        return bool(found.cast(kind).equals(given))
    except pa.ArrowNotImplementedError:
        return False


def _items(array: pa.Array) -> pa.Array:
    """What is in a list; of a map structs, as polars has them."""
    if not pa.types.is_map(array.type):
        return array.flatten()
    pairs = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))).flatten()
    return pa.StructArray.from_arrays(pairs.flatten(), ["key", "value"])


def are_same(made: pa.ChunkedArray, column: pa.ChunkedArray) -> bool:
    """Whether these are the same values: other libraries give them in types of their own, and dictionaries are never equal to Arrow."""
    column = decoded(column) if pa.types.is_dictionary(column.type) else column
    try:
        return bool(cast_exactly(made, column.type).equals(column))
    except pa.ArrowException:
        return False


def exact_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values as a column of a type, where that loses nothing but digits of floats: Arrow cuts 1.7 to 1 without a word.

    Raises:
        pyarrow.ArrowException, TypeError, ValueError, OverflowError: a value is not of the type, or would change.
    """
    plain = values if _are_never_cut(values, kind) else _for_types(values, kind)
    found = array_of(plain, kind)
    if plain is values or _are_never_cut(plain, kind):
        return found
    for row, value in enumerate(plain):
        if not _is_same(value, kept := found[row].as_py()):
            raise pa.ArrowInvalid(f"{shown(values[row])} would become {shown(kept)}")
    return found


def _are_never_cut(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether their types alone say that Arrow takes them whole or not at all: to compare what it made of each is slow."""
    found = set(map(type, values))
    there = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return (
            found <= {dict, type(None)}
            and {name for value in there for name in value} <= {field.name for field in kind}
            and all(_are_never_cut([value.get(field.name) for value in there], field.type) for field in kind)
        )
    if pa.types.is_map(kind) and found <= {dict, list, type(None)}:
        pairs = [pair for value in there for pair in (value.items() if type(value) is dict else value)]
        if not all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
            return False
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        return _are_never_cut(keys, kind.key_type) and _are_never_cut(items, kind.item_type)
    if pa.types.is_nested(kind):
        is_list = found <= {list, type(None)} and hasattr(kind, "value_type")
        return is_list and _are_never_cut([one for value in there for one in value], kind.value_type)
    if dt.datetime in found and any(type(value) is dt.datetime and value.tzinfo is not None for value in there):
        return False
    return found <= _NEVER_CUT_IN.get(kind, _NEVER_CUT)


def without_numpy(value: Any) -> Any:
    """A value of which Arrow makes something else, or nothing, where numpy or pandas gives it and no type is known."""
    if isinstance(value, np.bool_):
        return bool(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return value
    if np.isnat(value):
        return None
    unit = np.datetime_data(value.dtype)[0]
    if unit == "D" and isinstance(value, np.datetime64):
        day = value.item()
        return day if isinstance(day, dt.date) else value
    return value.astype(f"{value.dtype.kind}8[s]") if unit in ("W", "D", "h", "m") else value


def _for_types(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    as_they_are = _OF_PYTHON if kind != _BOOL8 else frozenset[type]()
    return [value if type(value) in as_they_are else _for_type(value, kind) for value in values]


def _for_type(value: Any, kind: pa.DataType) -> Any:
    """What numpy or pandas gives, as values of Python of which Arrow makes that type: it cuts arrays, and takes no dates and units."""
    types = pa.types
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, Mapping) and types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return {name: _for_type(one, known[name]) if name in known else one for name, one in value.items()}
    if types.is_map(kind) and value is not None:
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_for_type(key, kind.key_type), _for_type(item, kind.item_type)) for key, item in pairs]
    if types.is_dictionary(kind):
        return _for_type(value, kind.value_type)
    is_many = isinstance(value, (Sequence, AbstractSet, np.ndarray)) and not isinstance(value, (str, bytes, bytearray))
    if is_many and hasattr(kind, "value_type"):
        return _for_types(value, kind.value_type)
    value = without_numpy(value)
    if kind == _BOOL8 and isinstance(value, bool):
        return int(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _in_unit(value, kind)
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    if isinstance(value, np.generic) and not isinstance(value, (str, bytes)):
        raise TypeError(f"{shown(value)} is of numpy's type {value.dtype}")
    return value


def _in_unit(value: np.datetime64 | np.timedelta64, kind: pa.DataType) -> int:
    """A time as the number that a type has for it."""
    is_time = isinstance(value, np.datetime64)
    if pa.types.is_date(kind) and is_time:
        unit = "D"
    elif (pa.types.is_timestamp(kind) and is_time and kind.tz is None) or (pa.types.is_duration(kind) and not is_time):
        unit = kind.unit
    else:
        raise TypeError(f"{shown(value)} is {'a time without a zone' if is_time else 'a duration'}")
    if np.datetime_data(value.dtype)[0] == "generic":
        raise TypeError(f"{shown(value)} has no unit")
    found = value.astype(f"{value.dtype.kind}8[{unit}]")
    if found.astype(value.dtype) != value:
        raise pa.ArrowInvalid(f"{shown(value)} would become another time")
    return int(found.astype(np.int64)) * (86_400_000 if kind == pa.date64() else 1)


def _is_same(value: Any, kept: Any) -> bool:
    """What Arrow kept of a value is the whole of it, as far as can be seen."""
    if isinstance(value, str) and isinstance(kept, list):
        return False
    if isinstance(value, dt.datetime) and type(kept) is dt.date:
        return value.replace(tzinfo=None) == dt.datetime.combine(kept, dt.time())
    if isinstance(value, dt.datetime) and isinstance(kept, dt.datetime):
        if value.tzinfo is None or kept.tzinfo is None:
            return value.tzinfo is kept.tzinfo and value == kept
        # Of the hour that a clock shows twice Python takes no time for that of another zone.
        return value.astimezone(dt.UTC) == kept.astimezone(dt.UTC)
    if isinstance(value, Mapping):
        if isinstance(kept, Mapping):
            return value.keys() <= kept.keys() and all(_is_same(value[name], kept[name]) for name in value)
        return _is_same(list(value.items()), kept)
    if isinstance(value, (list, tuple)) and isinstance(kept, (list, tuple)):
        return len(value) == len(kept) and all(map(_is_same, value, kept))
    if isinstance(value, (dt.time, dt.timedelta)) and isinstance(kept, (dt.time, dt.timedelta)):
        return value == kept
    if isinstance(value, numbers.Number) and isinstance(kept, float):
        return math.isinf(kept) == (abs(value) == math.inf)  # type: ignore[arg-type]
    if isinstance(value, numbers.Number):
        return bool(value % 1 == 0 if isinstance(kept, (dt.date, dt.time, dt.timedelta)) else value == kept)  # type: ignore[operator]
    return True


def _zones(kind: pa.DataType) -> set[bool]:
    """Whether the times in it have a zone."""
    found = set()

    def note(leaf: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(leaf):
            found.add(leaf.tz is not None)
        return leaf

    retyped(kind, note)
    return found


def infinities(column: pa.ChunkedArray) -> int:
    """How many there are in the floats of a column."""
    floats = (leaf for leaf in leaves(column) if pa.types.is_floating(leaf.type))
    return sum(pc.sum(pc.is_inf(leaf.cast(pa.float64()))).as_py() or 0 for leaf in floats)


def leaves(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """What is in a column that is no list, map or struct."""
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from leaves(chunk)
    elif pa.types.is_struct(column.type):
        for child in column.flatten():
            yield from leaves(child)
    elif pa.types.is_nested(column.type) and not pa.types.is_union(column.type):
        yield from leaves(_items(column))
    else:
        yield column


def to_records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dictionaries.

    Raises:
        ValueError: Python has no such value.
    """
    for name, column in zip(table.schema.names, table.columns, strict=True):
        check_times_of_day(name, column)
    records: list[dict[str, Any]]
    try:
        records = table.to_pylist()
    except (OverflowError, ValueError):
        for name, column in zip(table.schema.names, table.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError) as error:
                raise ValueError(
                    f"{name!r} has a value that Python has no {column.type} of: {failure(error)}. Maybe a time beyond the years 1 to 9999: "
                    "cast the column to int64, or leave such rows out."
                ) from error
        raise
    return records


def check_times_of_day(name: str, column: pa.ChunkedArray | pa.Array) -> None:
    """See to it that Python can hold the times of day in a column: Arrow cuts what its `time` cannot.

    Raises:
        ValueError: one has nanoseconds.
    """
    if "time64[ns]" not in str(column.type):
        return
    for leaf in leaves(column):
        if leaf.type == pa.time64("ns") and (leaf.drop_null().cast(pa.int64()).to_numpy() % 1_000).any():
            raise ValueError(
                f"{name!r} has a time of day with nanoseconds, which Python's time cannot hold. Maybe cast the column to "
                "time64[us], or to int64."
            )


def taken(table: pa.Table, rows: pa.Array, at_once: int = 1 << 30) -> pa.Table:
    """The rows with these numbers, of however large a table and however often: Arrow's own `take` ends where a column has, or would
    have, 2 GiB of texts; its version 18 gives wrong ones then, and this and 26 wrong lists where these would have 2^31 values, without a word.

    Args:
        table: the table.
        rows: numbers of rows of it; null: a row of nulls.
        at_once: so many bytes are taken as they are.
    """  # noqa: D205
    size = table.nbytes
    if size * len(rows) <= at_once:
        return table.take(rows)
    if size <= at_once:
        with contextlib.suppress(pa.ArrowInvalid):
            found = table.take(rows)
            # Values that are bits have an eighth of a byte each.
            if all(_longest(column) <= at_once // 4 for column in found.columns):
                return found
    wide = fitted(table, pa.schema([field.with_type(retyped(field.type, _wide)) for field in table.schema]))

    def pieces(rows: pa.Array) -> list[pa.Table]:
        found = wide.take(rows)
        if found.nbytes <= at_once or len(rows) == 1:
            return [fitted(found, table.schema)]
        step = -(-len(rows) * at_once // (2 * found.nbytes))
        del found
        return [piece for start in range(0, len(rows), step) for piece in pieces(rows[start : start + step])]

    return pa.concat_tables(pieces(rows))


def _longest(column: pa.ChunkedArray) -> int:
    """The size in bytes of the largest buffer of texts or lists; 0: it has neither."""
    if pa.types.is_primitive(column.type) or pa.types.is_dictionary(column.type):
        return 0
    return max((part.size for chunk in column.chunks for part in chunk.buffers() if part is not None), default=0)


def _wide(kind: pa.DataType) -> pa.DataType:
    """With offsets of 64 bits."""
    if pa.types.is_list(kind):
        return pa.large_list(kind.value_field)
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def _known_to_polars(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        # Older versions panic, newer ones have a type of that name; the values are those of what it stores.
        return retyped(kind.storage_type, _known_to_polars)
    values, types = kind.value_type if pa.types.is_dictionary(kind) else kind, pa.types
    if (
        (types.is_decimal(values) and values.scale < 0)
        or (types.is_fixed_size_binary(values) and not values.byte_width)
        or (types.is_fixed_size_list(values) and not values.list_size)
        or any(
            is_one(values)
            for is_one in (types.is_decimal256, types.is_interval, types.is_list_view, types.is_large_list_view)
        )
    ):
        # At some of them it panics.
        raise TypeError(f"polars has no {values}")
    if types.is_struct(kind):
        # Arrow casts none that is null to fields that never are; older versions cannot concatenate what has dictionaries in it.
        return pa.struct([field.with_nullable(nullable=True) for field in retyped(kind, value_type_of)])
    if types.is_duration(kind):
        return pa.duration("ms") if kind.unit == "s" else kind
    if not types.is_timestamp(kind):
        return kind
    zone = "UTC" if (kind.tz or "").startswith(("+", "-")) else kind.tz
    return pa.timestamp("ms" if kind.unit == "s" else kind.unit, zone)


def as_tables(rows: object, what: str) -> Iterator[pa.Table]:
    """The tables in `rows`, which is one or gives several.

    Args:
        rows: a table of some kind, or an iterable of such.
        what: what they are for, for messages.

    Raises:
        TopicException: they are something else, or cannot be converted.
    """
    if isinstance(rows, pa.RecordBatchReader):
        rows = (pa.Table.from_batches([batch]) for batch in rows)
    if is_table(rows):
        yield _whole(_as_table(rows, what), what)
    elif isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, dict)):
        for number, piece in enumerate(rows):
            if not is_table(piece):
                raise TopicException(
                    f"The rows for {what} must be {_EXPECTED}; item {number} is a {type(piece).__name__}."
                )
            yield _whole(_as_table(piece, what), what)
    else:
        advice = {
            "LazyFrame": " Maybe call collect() first.",
            "dict": " Maybe write pyarrow.table(...) around it.",
        }.get(type(rows).__name__, "")
        if type(rows).__module__.startswith("pyspark."):
            advice = " Maybe use task_assignor.spark.write_topic."
        raise TopicException(f"The rows for {what} must be {_EXPECTED}, not a {type(rows).__name__}.{advice}")


def not_a_table(what: str, rows: object, or_else: str = "") -> str:
    """The message for rows that are no Arrow table.

    Args:
        what: what they are for.
        rows: what was given.
        or_else: what else will do.
    """
    library = type(rows).__module__.partition(".")[0]
    advice = {"polars": " Maybe frame.to_arrow().", "pandas": " Maybe pyarrow.Table.from_pandas(frame)."}.get(
        library, " Maybe pyarrow.Table.from_batches([batch])." if isinstance(rows, pa.RecordBatch) else ""
    )
    return f"Rows for {what} must be a pyarrow.Table{or_else}, not {type(rows).__name__}.{advice}"


def is_table(rows: object) -> bool:
    """Whether these are rows in columns, of whatever library."""
    is_series = type(rows).__name__ == "Series"
    return isinstance(rows, (pa.Table, pa.RecordBatch)) or (hasattr(rows, "__arrow_c_stream__") and not is_series)


def _whole(table: pa.Table, what: str) -> pa.Table:
    try:
        check_holds(table)
    except ValueError as error:
        raise TopicException(f"Of the rows for {what} {error}.") from error
    return table


def _as_table(rows: Any, what: str) -> pa.Table:
    if isinstance(rows, pa.Table):
        return with_plain_types(rows)
    if any("Object" in str(kind) for kind in getattr(rows, "dtypes", ())):
        raise TopicException(
            f"The {type(rows).__name__} for {what} has columns of Python objects, which polars gives to others as their places in "
            "memory. Maybe give each column one type first."
        )
    try:
        if type(rows).__module__.startswith("pandas."):
            # An index with a name is a column to whoever gave it one; one without is a number of rows.
            is_named = any(name is not None for name in rows.index.names)
            table = pa.Table.from_pandas(rows, preserve_index=is_named)
        elif type(rows).__module__.startswith("polars."):
            table = rows.to_arrow()
        else:
            table = pa.table(rows)
        return with_plain_types(fitted(table, pa.schema([field.remove_metadata() for field in table.schema])))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TopicException(
            f"The {type(rows).__name__} for {what} cannot be made an Arrow table: {failure(error)}. Maybe give each "
            "column one type first."
        ) from error


def with_plain_types(table: pa.Table) -> pa.Table:
    """The same rows in types that every file of a log can have, whatever its rows are."""
    plain = plain_types(table.schema)
    return table if plain == table.schema else fitted(table, plain)


def plain_types(schema: pa.Schema) -> pa.Schema:
    """The columns in such types."""
    return pa.schema([field.with_type(retyped(field.type, _plain)) for field in schema], schema.metadata)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without views, which are new to many a reader of files, and to Arrow itself; and a dictionary with room for more: pandas counts in
    one byte how many texts there are, but those of other rows come to them.
    """  # noqa: D205
    if pa.types.is_dictionary(kind) and kind.index_type.bit_width < _INDEX_BITS:
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
    # Types that users declare have no hash.
    views = ((pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary()))
    return next((plain for view, plain in views if kind == view), kind)
