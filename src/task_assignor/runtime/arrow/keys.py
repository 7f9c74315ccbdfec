"""From keys to partitions, as Kafka's default partitioner does it: `murmur2` of the serialised key; no files here.

How a key is serialised (the same bytes as Kafka's own serializers, where Kafka has one):

| type of the column | bytes |
|---|---|
| string | UTF-8 |
| binary | as they are |
| int8, int16, int32, int64 | 1, 2, 4, 8 bytes, big-endian |
| bool | 1 byte, 0 or 1 |
| date32 | days since the epoch as int32 |
| timestamp (any unit) | milliseconds since the epoch as int64, rounded down |

A key of several columns (Kafka has none) is written column by column, each as an int32 length, big-endian, and its
bytes; a null column is length -1 without bytes. A null key of one column counts as an empty key.
Two topics put equal keys into equal partitions only if the types of their key columns are the same in this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.dictionaries import decoded
from task_assignor.runtime.arrow.frames import valid
from task_assignor.runtime.errors import TopicException
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.integers import INT32_MAX, is_whole
from task_assignor.sdk.text import shown

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_BLOCK_ROWS: Final = 1 << 18
"""Rows hashed at a time: the intermediate arrays stay in the processor's cache."""
_FIXED: Final = (
    (pa.types.is_int64, "int64", ">i8"),
    (pa.types.is_int32, "int32", ">i4"),
    (pa.types.is_int16, "int16", ">i2"),
    (pa.types.is_int8, "int8", ">i1"),
    (pa.types.is_boolean, "bool", ">i1"),
    (pa.types.is_date32, "date32", ">i4"),
    (pa.types.is_timestamp, "timestamp", ">i8"),
)


def key_type_name(data_type: pa.DataType) -> str:
    """The row of the table above that a column belongs to: equal names mean equal bytes.

    Raises:
        TopicException: columns of this type cannot be keys.
    """
    if pa.types.is_dictionary(data_type):
        return key_type_name(data_type.value_type)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "string"
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return "binary"
    for matches, name, _ in _FIXED:
        if matches(data_type):
            return name
    if pa.types.is_null(data_type):
        raise TopicException("A column of type null cannot be a key: it has no values. Maybe cast it to its real type.")
    if pa.types.is_fixed_size_binary(getattr(data_type, "storage_type", data_type)):
        raise TopicException(f"A column of type {data_type} cannot be a key as it is. Maybe cast it to binary.")
    raise TopicException(
        f"A column of type {data_type} cannot be a key: its bytes do not decide equality, or Kafka has no such key. "
        "Maybe cast it to string, binary, bool, int8, int16, int32, int64, date32 or timestamp."
    )


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of one key, as a signed int (`org.apache.kafka.common.utils.Utils.murmur2`).

    Examples:
        >>> murmur2(b"21"), murmur2(b"foobar")
        (-973932308, -790332482)

    Raises:
        TopicException: the key is not given as bytes.
    """
    check_kind("key", data, (bytes, bytearray, memoryview), TopicException, " to hash")
    flat = np.frombuffer(data, dtype=np.uint8)
    return int(murmur2_many(flat, np.array([0, len(data)], dtype=np.int64)).astype(np.int32)[0])


def murmur2_many(flat: UInt8Array, offsets: Int64Array) -> UInt32Array:
    """murmur2 of many keys.

    Args:
        flat: the bytes of all keys, one after the other.
        offsets: (N + 1,) key i is `flat[offsets[i]:offsets[i + 1]]`.

    Returns:
        (N,) hashes as unsigned numbers.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(lengths), dtype=np.uint32)
    if len(lengths) == 0:
        return hashes
    if lengths.min() == lengths.max():  # numbers: the keys already are a block
        block = flat[int(offsets[0]) : int(offsets[-1])].reshape(len(lengths), int(lengths[0]))
        for begin in range(0, len(lengths), _BLOCK_ROWS):
            hashes[begin : begin + _BLOCK_ROWS] = _murmur2_equal_lengths(block[begin : begin + _BLOCK_ROWS])
        return hashes
    order = np.argsort(lengths, kind="stable")
    distinct, first = np.unique(lengths[order], return_index=True)
    bounds = np.append(first, len(lengths))
    for number, length in enumerate(distinct.tolist()):
        for begin in range(int(bounds[number]), int(bounds[number + 1]), _BLOCK_ROWS):
            rows = order[begin : min(begin + _BLOCK_ROWS, int(bounds[number + 1]))]
            keys = flat[starts[rows][:, None] + np.arange(length)]
            hashes[rows] = _murmur2_equal_lengths(keys)
    return hashes


def _murmur2_equal_lengths(keys: UInt8Array) -> UInt32Array:
    """Hashes of an (N, length) block of keys. uint32 wraps around, as Java's int does."""
    count, length = keys.shape
    m = np.uint32(_M)
    h: UInt32Array = np.full(count, np.uint32((_SEED ^ length) & 0xFFFFFFFF), dtype=np.uint32)
    words = length // 4
    if words:
        block = np.ascontiguousarray(keys[:, : 4 * words]).view("<u4")
        for word in range(words):
            k = block[:, word] * m
            k ^= k >> np.uint32(24)
            k *= m
            h *= m
            h ^= k
    rest = length - 4 * words
    if rest:
        for position in range(rest - 1, -1, -1):
            h ^= keys[:, 4 * words + position].astype(np.uint32) << np.uint32(8 * position)
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h


def partitions_of(table: pa.Table | pa.RecordBatch, key: Sequence[str], partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each row: `(murmur2(key) & 0x7fffffff) % partitions`, as in Kafka.

    Args:
        table: rows with the key columns.
        key: names of the key columns, in the order in which they are serialised.
        partitions: number of partitions, at least 1.

    Returns:
        (N,) partition numbers.

    Raises:
        TopicException: a column is missing or cannot be a key, or that is no table or number of partitions.
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise TopicException(f"The table ({shown(table)}) must be a pyarrow.Table or RecordBatch.")
    if not is_whole(partitions) or not 1 <= partitions <= INT32_MAX:
        raise TopicException(f"The partitions ({shown(partitions)}) must be an int from 1 to {INT32_MAX}.")
    if not isinstance(key, Sequence) or not all(isinstance(name, str) for name in key):
        raise TopicException(f"The key ({shown(key)}) must be a list of names of columns.")
    return partitions_of_keys(*serialise_keys(table, key), partitions)


def partitions_of_keys(flat: UInt8Array, offsets: Int64Array, partitions: int) -> npt.NDArray[np.int32]:
    """The same of keys that are serialised already, as `serialise_keys` gives them."""
    hashes = murmur2_many(flat, offsets) & np.uint32(0x7FFFFFFF)
    return (hashes % np.uint32(partitions)).astype(np.int32)


def serialise_keys(table: pa.Table | pa.RecordBatch, key: Sequence[str]) -> tuple[UInt8Array, Int64Array]:
    """The serialised keys of all rows, as the table at the top of this module says.

    Returns:
        The bytes of all keys, and (N + 1,) offsets into them.
    """
    if not key:
        raise TopicException("A topic needs at least one key column. Maybe key=['id'].")
    missing = [name for name in key if name not in table.schema.names]
    if missing:
        raise TopicException(f"The key columns {missing} are not in the table; it has {table.schema.names}.")
    parts = [_serialise_column(table.column(name)) for name in key]
    if len(parts) == 1:
        return parts[0][0], parts[0][1]
    return _concatenate(parts, table.num_rows)


def _serialise_column(column: pa.ChunkedArray | pa.Array) -> tuple[UInt8Array, Int64Array, npt.NDArray[np.bool_]]:
    """(bytes, offsets, is null) of one column."""
    if pa.types.is_dictionary(column.type):
        # Of several with null among their values Arrow does not make one.
        column = decoded(column)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # several chunks remain only if the data is too long for 32-bit offsets
        array = pa.concat_arrays([chunk.cast(_large(chunk.type)) for chunk in array.chunks])
    name = key_type_name(array.type)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    if name in ("string", "binary"):
        array = array.cast(_large(array.type))
        array = array.fill_null("" if name == "string" else b"") if array.null_count else array
        return *_bytes_of(array), nulls
    if name == "timestamp":
        array = timestamps_in_ms(array)
    elif name == "bool":
        array = array.cast(pa.int8())
    elif name == "date32":
        array = array.cast(pa.int32())
    code = next(code for _, known, code in _FIXED if known == name)
    values = array.fill_null(0).to_numpy(zero_copy_only=False) if array.null_count else array.to_numpy()
    fixed = values.astype(code)
    width = fixed.dtype.itemsize
    flat = np.ascontiguousarray(fixed).view(np.uint8).reshape(-1)
    if array.null_count == 0:
        return flat, np.arange(len(values) + 1, dtype=np.int64) * width, nulls
    keep = ~nulls
    flat = flat.reshape(-1, width)[keep].reshape(-1)
    return flat, np.concatenate([[0], np.cumsum(keep * width)]).astype(np.int64), nulls


def _large(data_type: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    return pa.large_string() if is_text else pa.large_binary()


def timestamps_in_ms(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A timestamp column, or one of integers that are milliseconds already, as int64 milliseconds, rounded down.

    Raises:
        TopicException: seconds that are no int64 milliseconds.
    """
    if not pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    per_ms = {"s": None, "ms": 1, "us": 1_000, "ns": 1_000_000}[array.type.unit]
    numbers = array.cast(pa.int64())
    if per_ms is None:
        try:
            return pc.multiply_checked(numbers, 1_000)
        except pa.ArrowInvalid:
            far = pc.max(pc.abs(numbers)).as_py()
            raise TopicException(
                f"A time is {far} s from 1970, which are more milliseconds than 64 bits hold. Maybe it is no number of seconds."
            ) from None
    if per_ms == 1:
        return numbers
    # Arrow divides towards zero; before 1970 that would round up.
    quotient = pc.divide(numbers, per_ms)
    return pc.subtract(quotient, pc.less(numbers, pc.multiply(quotient, per_ms)).cast(pa.int64()))


def _concatenate(
    parts: Sequence[tuple[UInt8Array, Int64Array, npt.NDArray[np.bool_]]], rows: int
) -> tuple[UInt8Array, Int64Array]:
    columns = []
    for data, starts, nulls in parts:
        prefix = np.where(nulls, -1, np.diff(starts)).astype(">i4")
        columns += [_as_bytes(prefix.view(np.uint8), 4 * np.arange(rows + 1)), _as_bytes(data, starts)]
    # Arrow's own, whose memory is that of the keys.
    joined = pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))
    return _bytes_of(joined)


def _as_bytes(flat: UInt8Array, offsets: Int64Array) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(flat))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _bytes_of(array: pa.Array) -> tuple[UInt8Array, Int64Array]:
    """The bytes of an array of large texts or bytes without nulls, and offsets into them."""
    if not len(array):
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    _, starts, data = array.buffers()
    raw = np.frombuffer(starts, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    flat = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return flat[int(raw[0]) : int(raw[-1])], raw - raw[0]


def is_there(values: pa.Table) -> npt.NDArray[np.bool_]:
    """(N,) the row has a value that is not null."""
    found = np.zeros(values.num_rows, dtype=bool)
    for column in values.columns:
        has_value = valid(column)
        if has_value is None:
            return np.ones(values.num_rows, dtype=bool)
        found |= has_value
    return found


def keeps_key(rows: pa.Table, key: Sequence[str], beside: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(N,) the row of a table is no deletion. Of a topic that has nothing but what is beside values that decides."""
    decisive = [name for name in rows.column_names if name not in (*key, *beside)]
    return is_there(rows.select(decisive or [name for name in beside if name in rows.column_names]))
