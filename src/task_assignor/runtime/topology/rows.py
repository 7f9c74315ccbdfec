"""Rows that are given as dictionaries, and the tables that they become: nothing is lost on the way, and nothing is cut."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import retyped
from task_assignor.runtime.arrow.frames import exact_array, in_own_memory, is_table, not_a_table, padded, without_numpy
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.machines.encoding import as_unicode
from task_assignor.runtime.topics.writing import fit_to_schema
from task_assignor.sdk.text import counted, failure, shown

Rows: TypeAlias = pa.Table | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Rows as those who write processors may give them: a table, one row as a mapping of columns to values, or several."""
_NEVER_CHANGED: Final = frozenset({int, bool, float, str, bytes, type(None), dt.date, dt.datetime, Decimal})


def to_table(rows: Rows, schema: pa.Schema | None) -> pa.Table:
    """The rows as they are now, in memory that nobody else can change.

    Args:
        rows: the rows.
        schema: of rows that are mappings: their columns, null where a row has none; None: those that Arrow finds.

    Raises:
        TopologyException: they are something else, or a table without any column.
        ValueError: a row has another column, or a value that its column cannot hold as it is; or a table is damaged.
    """
    if isinstance(rows, pa.Table):
        if rows.num_rows and not rows.num_columns:
            # Nothing but columns says in a file how many there are: they would be gone.
            raise TopologyException(
                f"Rows for an output must have columns, but these {counted(rows.num_rows, 'row')} of a table have none: an index of pandas "
                "without a name is no column. Maybe select the columns that are wanted, or return None where there are no rows."
            )
        return in_own_memory(rows)
    found = [rows] if isinstance(rows, Mapping) else rows
    tables = [name for name, value in rows.items() if is_table(value)] if isinstance(rows, Mapping) else []
    if tables:
        raise TopologyException(
            f"Rows for an output must not be tables by name ({shown(tables)}): a mapping is one row. Maybe return the table where there is "
            "one output, or forward each to its own: context.forward(table, output)."
        )
    if not isinstance(found, (list, tuple)) or not all(isinstance(row, Mapping) for row in found):
        or_else = ", or, slower, a mapping of columns to values or a list of such mappings"
        raise TopologyException(not_a_table("an output", rows, or_else))
    found = [kept(row) for row in found]
    if schema is not None:
        return exact_table(found, schema)
    if not found:
        return pa.table({})
    table = inferred(found)
    check_times(found, table.schema)
    return table


def kept(value: Any) -> Any:
    """What a user's code gives, as it is now: it may go on with the same dictionaries and lists, and change them."""
    if type(value) is dict or isinstance(value, Mapping):
        return {name: found if type(found) in _NEVER_CHANGED else kept(found) for name, found in value.items()}
    if isinstance(value, list):
        return [found if type(found) in _NEVER_CHANGED else kept(found) for found in value]
    if isinstance(value, tuple):
        # A map is a list of pairs, an interval a tuple of its own kind: Arrow takes no lists for them.
        found = tuple(one if type(one) in _NEVER_CHANGED else kept(one) for one in value)
        return value if all(map(operator.is_, value, found)) else found
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return [kept(found) for found in value] if value.ndim else kept(value[()])
    return value.copy() if isinstance(value, (np.ndarray, bytearray, set)) else without_numpy(value)


def inferred(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows with the columns that Arrow finds.

    Raises:
        ValueError: of a column it finds none.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    _check_are_texts(names)
    _check_has_columns(names)
    columns = {}
    for name in names:
        try:
            columns[name] = _array_of([row.get(name) for row in rows])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"the column {name!r} of a row has a type only if its output declares it: {failure(error)}"
            ) from error
    return pa.table(columns)


def _array_of(values: list[Any]) -> pa.Array:
    """The values as Arrow has them, but what pandas has for nanoseconds as such: Arrow takes it for microseconds and cuts the rest off."""
    found = pa.array(values)
    kind = retyped(found.type, _in_nanoseconds)
    return pa.array(values, kind) if kind != found.type and any(map(_has_nanoseconds, values)) else found


def declared_table(
    rows: Sequence[Mapping[str, Any]], output: str, declared: pa.Schema, kept: Collection[str] = ()
) -> pa.Table:
    """The rows with the columns that their output declares; what they lack is null.

    Values that are of another type, as far as Arrow can tell, are cast where nothing is lost: a number of milliseconds is a time.

    Args:
        rows: the rows.
        output: name of the output.
        declared: its columns.
        kept: those of them that all rows may lack, since they stay as they are in what the rows are made of.

    Raises:
        ValueError, TopicException: a row has another column, or a value does not fit, or is lacking where none may be null.
    """
    names, what = {name for row in rows for name in row}, f"the output {output!r}"
    _check_are_texts(names)
    _check_names(names, declared.names)
    schema = pa.schema([field for field in declared if field.name in names or field.name not in kept])
    try:
        return fit_to_schema(exact_table(rows, schema), schema, what)
    except Exception as error:  # noqa: BLE001 - whatever does not fit
        try:
            table = inferred(rows)
            check_times(rows, table.schema)
            found = [table.schema.field(field.name) if field.name in kept else field for field in schema]
            return fit_to_schema(padded(table, schema), pa.schema(found), what)
        except Exception:  # noqa: BLE001 - there is another one that says why
            raise error from None


def check_times(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Of times that differ in kind Arrow takes the first for all: it cuts the others, or takes them for UTC.

    Args:
        rows: the rows.
        schema: what `inferred` has found.

    Raises:
        ValueError: there are such ones.
    """
    _exact_columns(rows, [field for field in schema if _is_of_time(field.type)])


def likely(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """What the columns are up to the first value that does not go with those before it."""
    names = filter(_is_text, dict.fromkeys(name for row in rows for name in row))
    return pa.schema([(name, _type_of_first([row.get(name) for row in rows])) for name in names])


def _type_of_first(values: list[Any]) -> pa.DataType:
    """The type of as many of the values as have one together, from the first on that has one."""
    known = list(
        itertools.dropwhile(lambda value: _type_of([value]) is None, (one for one in values if one is not None))
    )
    longest = bisect.bisect_left(range(1, len(known)), True, key=lambda count: _type_of(known[: count + 1]) is None)
    return _type_of(known[: longest + 1]) or pa.null()


def _type_of(values: list[Any]) -> pa.DataType | None:
    try:
        return _array_of(values).type
    except Exception:  # noqa: BLE001 - whatever Arrow says of values that it does not take
        return None


def _check_has_columns(names: Collection[str]) -> None:
    """Where no row has one there would be no rows, since nothing but columns says how many there are."""
    if not names:
        raise ValueError("a row has no columns. Maybe return [] where there is none, or declare output_schema()")


def _check_are_texts(names: Iterable[object]) -> None:
    """Whatever else a mapping may have as a key, Arrow takes no column of that name."""
    for name in names:
        if not _is_text(name):
            raise ValueError(f"a row has the column {shown(name)}, but names of columns are texts, in Unicode")


def _is_text(name: object) -> bool:
    """Half a surrogate pair, as JSON may have it, is none."""
    return isinstance(name, str) and as_unicode(name) == name


def exact_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as columns of a schema; what they lack is null, and what would be lost is an error."""
    names = {name for row in rows for name in row}
    _check_are_texts(names)
    if rows:
        _check_has_columns(schema.names)
    _check_names(names, schema.names)
    return pa.table(_exact_columns(rows, schema), schema=schema)


def _check_names(names: Collection[str], declared: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(declared)):
        raise ValueError(f"a row has columns {unknown} that are not declared; declared are {declared}")


def _exact_columns(rows: Sequence[Mapping[str, Any]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    columns = []
    for field in fields:
        values = [row.get(field.name) for row in rows]
        is_known = not pa.types.is_null(field.type)
        try:
            columns.append(exact_array(values, field.type) if is_known else pa.array(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"is not of type {field.type}" if is_known else "has a type only if output_schema() declares it"
            raise ValueError(f"the column {field.name!r} of a row {what}: {failure(error)}") from error
    return columns


def _is_of_time(kind: pa.DataType) -> bool:
    return any(name in str(kind) for name in ("date", "time"))


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else kind


def _has_nanoseconds(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nanoseconds, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_nanoseconds, value))
    return hasattr(value, "nanosecond") or hasattr(value, "nanoseconds")
