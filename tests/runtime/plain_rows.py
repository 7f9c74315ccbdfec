"""Rows as Python's values, for plain computations: times are numbers, and equal values look the same however they came about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from task_assignor.runtime import TopicSpec

Row: TypeAlias = dict[str, Any]
_FARTHEST_MS = 2**60
"""What is farther away is no time."""


def _as_number(kind: pa.DataType) -> pa.DataType | None:
    """What a type of times is as a number."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else None


def rows_of(table: pa.Table) -> list[Row]:
    """Times and dates are numbers of their unit."""
    columns = {}
    for field in table.schema:
        column, number = table.column(field.name), _as_number(field.type)
        columns[field.name] = (column if number is None else column.cast(number)).to_pylist()
    return [{name: column[place] for name, column in columns.items()} for place in range(table.num_rows)]


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Such values as a column."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else _as_number(kind) or kind
    return pa.array(values, plain) if plain == kind else pa.array(values, plain).cast(kind)


def ms_of(row: Row, spec: TopicSpec) -> int | None:
    """The time of a row, rounded down to a millisecond; None: it has none, or none that counts."""
    time = None if spec.timestamp is None else row[spec.timestamp]
    if time is None:
        return None
    assert spec.timestamp is not None
    kind = spec.schema.field(spec.timestamp).type
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    time = time * 1000 if unit == "s" else time // {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    return time if -_FARTHEST_MS <= time <= _FARTHEST_MS else None


def from_ms(time_ms: int, spec: TopicSpec) -> int:
    """A bound of a window as a number of the type that the times of its source have; of seconds it is one of milliseconds."""
    assert spec.timestamp is not None
    kind = spec.schema.field(spec.timestamp).type
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    return time_ms * {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[unit]


def canonical(value: Any) -> Any:
    """The same for equal values, and hashable. As keys of groups the zeros of floats are equal, and so is NaN to itself."""
    match value:
        case bool():
            return ("bool", value)
        case float():
            return "nan" if math.isnan(value) else repr(value or 0.0)
        case Decimal():
            return ("decimal", str(value.normalize()))
        case dict():
            return tuple((name, canonical(part)) for name, part in value.items())
        case list():
            return tuple(map(canonical, value))
    return value


def bag(rows: Iterable[Row]) -> Counter[Any]:
    """How often each row is there."""
    return Counter(tuple(sorted((name, canonical(value)) for name, value in row.items())) for row in rows)
