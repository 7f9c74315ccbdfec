"""Keys of Kafka records as columns: the bytes of Kafka's own serializers, read. Writing is `runtime.keys`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from task_assignor.kafka.topics.serdes import SerializationException, to_times
from task_assignor.runtime.arrow.dictionaries import encoded
from task_assignor.runtime.arrow.keys import key_type_name

_WIDTHS: Final = {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1, "date32": 4, "timestamp": 8}
_LENGTH: Final = struct.Struct(">i")


def read_keys(keys: Sequence[bytes | None], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """The key columns of records; a record without a key has nulls.

    Args:
        keys: their keys.
        fields: the columns, in the order in which they are serialised.

    Raises:
        SerializationException: a key has not the bytes of these columns, and `index` says which; or a dictionary has no numbers for all of them.
    """
    if len(fields) == 1:
        return [_column(list(keys), fields[0])]
    cells: list[list[bytes | None]] = [[] for _ in fields]
    for index, key in enumerate(keys):
        place = 0
        for column in cells:
            if key is None:
                column.append(None)
                continue
            if place + 4 > len(key):
                raise _wrong(key, fields, index)
            (length,) = _LENGTH.unpack_from(key, place)
            place += 4
            if length < -1 or place + max(length, 0) > len(key):
                raise _wrong(key, fields, index)
            column.append(None if length < 0 else key[place : place + length])
            place += max(length, 0)
        if key is not None and place != len(key):
            raise _wrong(key, fields, index)
    return [_column(column, field) for column, field in zip(cells, fields, strict=True)]


def _column(cells: list[bytes | None], field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        values = _column(cells, field.with_type(field.type.value_type))
        try:
            return encoded(pa.chunked_array([values]), field.type).chunk(0)
        except pa.ArrowInvalid as error:
            raise SerializationException(
                f"the key column {field.name!r} of type {field.type} has no numbers for so many values ({error}). Maybe indices of int32"
            ) from None
    name = key_type_name(field.type)
    if name == "binary":
        return pa.array(cells, pa.binary()).cast(field.type)
    if name == "string":
        try:
            return pa.array(cells, pa.binary()).cast(pa.string()).cast(field.type)
        except pa.ArrowInvalid:
            index = next(place for place, cell in enumerate(cells) if cell is not None and not _is_text(cell))
            raise _wrong(cells[index], [field], index) from None
    width = _WIDTHS[name]
    for index, cell in enumerate(cells):
        if cell is not None and len(cell) != width:
            raise _wrong(cell, [field], index)
    joined = b"".join(bytes(width) if cell is None else cell for cell in cells)
    numbers = np.frombuffer(joined, f">i{width}").astype(f"<i{width}")
    found: Any = pa.array(numbers, mask=np.fromiter((cell is None for cell in cells), np.bool_, len(cells)))
    return to_times(found, field.type) if name == "timestamp" else found.cast(field.type)


def _is_text(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _wrong(key: bytes | None, fields: Sequence[pa.Field], index: int) -> SerializationException:
    wanted = ", ".join(f"{field.name}: {key_type_name(field.type)}" for field in fields)
    shown = "none" if key is None else repr(bytes(key[:100]))
    return SerializationException(f"its key ({shown}) is not of the columns {wanted}", index)
