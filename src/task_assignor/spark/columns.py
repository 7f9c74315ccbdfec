"""Columns of topics and outputs as Spark has them, and Spark's as topics have them. What is read and written is known elsewhere."""

from __future__ import annotations

from inspect import signature
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from task_assignor.runtime.arrow.dictionaries import retyped
from task_assignor.sdk import ConfigException

_DIGITS: Final = 38
_NEAREST: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def spark_schema(schema: pa.Schema, *, with_offsets: bool) -> StructType:
    """The columns as Spark has them.

    Raises:
        ConfigException: partition and offset are wanted, and the rows have columns of these names.
    """
    own = sorted({"partition", "offset"}.intersection(schema.names)) if with_offsets else []
    if own:
        raise ConfigException(
            f"Partition and offset cannot be added to rows that have columns of these names: {own}. Maybe read them without."
        )
    fields = []
    for field in schema:
        try:
            nearest_type = retyped(field.type, _nearest)
            from_arrow_type(nearest_type, prefer_timestamp_ntz=True)
        except (PySparkException, ValueError) as error:
            raise ConfigException(
                f"The column {field.name!r} has type {field.type}, which Spark does not have ({error}). Maybe read it with pyarrow, or "
                "write the column in another type."
            ) from error
        fields.append(pa.field(field.name, nearest_type, field.nullable))
    if with_offsets:
        fields += [pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False)]
    # Before Spark 4.2 it has another default.
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; times with a zone are in UTC."""
    # Spark 4.1 has no such argument: there they always are.
    has_zone = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if has_zone else to_arrow_schema(schema)


def columns_not_in(has: StructType, wanted: StructType) -> list[str]:
    """Those of the second that are not columns of the first; what is never null may be taken for what may be, and not the other way."""
    return [described(field) for field in wanted if not any(_holds(field, one) for one in has)]


def described(field: StructField) -> str:
    """A column in words."""
    parts = field.dataType.json()
    inner = any(f'"{key}":false' in parts for key in ("containsNull", "valueContainsNull", "nullable"))
    never = f"{'' if field.nullable else ' not null'}{' with parts not null' if inner else ''}"
    return f"{field.name} {field.dataType.simpleString()}{never}"


def _holds(wanted: StructField, has: StructField) -> bool:
    return wanted.name == has.name and wanted.nullable >= has.nullable and _holds_type(wanted.dataType, has.dataType)


def _holds_type(wanted: DataType, has: DataType) -> bool:
    match wanted, has:
        case ArrayType(), ArrayType():
            return wanted.containsNull >= has.containsNull and _holds_type(wanted.elementType, has.elementType)
        case MapType(), MapType():
            return (
                wanted.valueContainsNull >= has.valueContainsNull
                and _holds_type(wanted.keyType, has.keyType)
                and _holds_type(wanted.valueType, has.valueType)
            )
        case StructType(), StructType():
            return len(wanted) == len(has) and all(map(_holds, wanted, has))
        case _:
            return wanted == has


def _nearest(data_type: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has: it knows no unsigned numbers, dictionaries, views, and decimals of hundreds."""
    if pa.types.is_dictionary(data_type):
        return retyped(data_type.value_type, _nearest)
    if pa.types.is_decimal(data_type):
        digits = data_type.precision - min(data_type.scale, 0)
        if max(digits, data_type.scale) > _DIGITS:
            raise ValueError(f"its decimals have at most {_DIGITS} digits")
        return pa.decimal128(max(digits, data_type.scale), max(data_type.scale, 0))
    return _NEAREST.get(data_type, data_type)
