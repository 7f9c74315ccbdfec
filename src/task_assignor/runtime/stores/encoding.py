"""Rows as bytes, for stores on disk: keys whose bytes compare as the keys do, and values. Whole columns at a time.

A **key** is written so that the order of the bytes is the order of the keys: numbers and times big-endian with the sign
turned, floats so that NaN comes after all numbers, texts as they are. Equal keys have equal bytes: times with a zone by
their instant, all NaN as one, 0.0 for -0.0. In a key of several columns each begins with 0 (a value) or 1 (null, which
comes last), and a text that is not in the last column ends in two zero bytes, a zero byte in it becoming 0 and 255.

A **value** is the number of its columns, a bitmap of what is there, the columns of fixed width and the lengths of the others,
then those. A store that has gained columns reads older rows by their number: what they lack is null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.dictionaries import decoded, retyped
from task_assignor.runtime.arrow.frames import check_times_of_day, exact_array
from task_assignor.runtime.errors import StoreException

Matrix = npt.NDArray[np.uint8]

_END: Final = b"\0\0"
_ZERO: Final = b"\0"
_ESCAPED_ZERO: Final = b"\0\xff"
_COUNT: Final = struct.Struct("<H")
"""How many columns a row has."""
_LONG_BYTES: Final = 32
"""Byte strings that are longer on average are copied one by one; shorter ones at once, by the place of each byte, which takes
twenty times their memory meanwhile."""

_PIECE_BYTES: Final = 1 << 30
"""So much is decoded at once: texts and bytes of Arrow's usual types end at 2 GiB."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionary encoding, in lists and structs too."""
    return retyped(kind, lambda found: plain_type(found.value_type) if pa.types.is_dictionary(found) else found)


def is_value_type(kind: pa.DataType) -> bool:
    """A column of this type can be kept: Arrow gives it back from the plain one, and takes rows of it."""
    try:
        # None: one row would have to be null, also in what is in a struct and is never null.
        pa.nulls(0, plain_type(kind)).cast(kind).take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:
        return False
    return True


def is_key_type(kind: pa.DataType) -> bool:
    """A column of this type can be a key: its values have an order."""
    kind = plain_type(kind)
    return _is_bytes(kind) or (_width_of(kind) is not None and kind != pa.month_day_nano_interval())


def has_beginnings(kind: pa.DataType) -> bool:
    """Keys of this type are texts or bytes."""
    return _is_bytes(plain_type(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    checks = ("is_string", "is_large_string", "is_string_view", "is_binary", "is_large_binary", "is_binary_view")
    return any(getattr(pa.types, check)(kind) for check in checks)


def _width_of(kind: pa.DataType) -> int | None:
    """Bytes of a value; None: they differ."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or _is_bytes(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    bits: int = kind.bit_width
    return bits // 8


def _flat(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """One array of a type, not a slice of something."""
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    if column.type != kind:
        column = column.cast(kind)
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    if isinstance(array, pa.ChunkedArray):
        return pa.nulls(0, kind)
    return array if array.offset == 0 else pa.concat_arrays([array])


def _bytes_of(array: pa.Array, width: int) -> Matrix:
    """(N, width) the values as they are in memory; 0 where there is none."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    data = array.buffers()[1]
    count = len(array)
    if data is None:
        return np.zeros((count, width), np.uint8)
    found = np.frombuffer(data, np.uint8)[array.offset * width : (array.offset + count) * width].reshape(count, width)
    if array.null_count:
        found = np.where(_valid(array)[:, None], found, np.uint8(0))
    return found


def _from_bytes(values: Matrix, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    count = len(values)
    is_missing = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(kind):
        data = np.packbits(values.reshape(-1) != 0, bitorder="little")
    else:
        data = np.ascontiguousarray(values).reshape(-1)
    return pa.Array.from_buffers(kind, count, [is_missing, pa.py_buffer(data)])


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _as_binary(rows: Matrix) -> pa.Array:
    """(N, width) bytes as N byte strings."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    data = pa.py_buffer(np.ascontiguousarray(rows).reshape(-1))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), data])


def _split(rows: pa.Array) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """All bytes, and (N + 1,) where the rows begin."""
    offsets = np.frombuffer(rows.buffers()[1], np.int64)[rows.offset : rows.offset + len(rows) + 1]
    data = rows.buffers()[2]
    return (np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), offsets


def _gather(data: Matrix, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> pa.Array:
    """The byte strings that begin at `starts`."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found: Matrix | bytes
    if offsets[-1] > _LONG_BYTES * len(starts):
        view = data.data
        found = b"".join(
            [view[start:end] for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        )
    else:
        found = data[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(found)])


def _to_type(array: pa.Array, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Byte strings as what they were."""
    if valid is not None and not valid.all():
        array = pc.if_else(pa.array(valid), array, pa.scalar(None, array.type))
    return array.cast(kind) if kind != array.type else array


# Keys.


def _in_order(array: pa.Array, kind: pa.DataType, width: int) -> Matrix:
    """Values of fixed width as bytes that compare as they do."""
    if pa.types.is_floating(kind):
        numbers = _bytes_of(array, width).view(f"<f{width}").reshape(-1)
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers + np.array(0, numbers.dtype))
        bits = numbers.view(f"<u{width}")
        sign = np.array(1, bits.dtype) << np.array(8 * width - 1, bits.dtype)
        bits = np.where(bits & sign != 0, ~bits, bits | sign)
        return np.ascontiguousarray(bits.view(np.uint8).reshape(-1, width)[:, ::-1])
    raw = _bytes_of(array, width)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_boolean(kind):
        return raw
    turned = np.array(raw[:, ::-1], order="C")
    if not pa.types.is_unsigned_integer(kind):
        turned[:, 0] ^= 0x80
    return turned


def _out_of_order(rows: Matrix, kind: pa.DataType, width: int) -> Matrix:
    """What `_in_order` was given."""
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_boolean(kind):
        return rows
    turned = np.array(rows[:, ::-1], order="C")
    if pa.types.is_floating(kind):
        bits = turned.view(f"<u{width}").reshape(-1)
        sign = np.array(1, bits.dtype) << np.array(8 * width - 1, bits.dtype)
        bits = np.where(bits & sign != 0, bits ^ sign, ~bits)
        return np.ascontiguousarray(bits).view(np.uint8).reshape(-1, width)
    if not pa.types.is_unsigned_integer(kind):
        turned[:, -1] ^= 0x80
    return turned


class KeyEncoding:
    """Keys of a schema as bytes in their order.

    Args:
        schema: the key columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kinds = [plain_type(field.type) for field in schema]
        self._widths = [_width_of(kind) for kind in self._kinds]
        self._one = _key_of_one(self._kinds[0])
        """Python's type and the bytes of its values, for keys of one column where that is simple."""

    def encode(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Array:
        """(N,) the keys as bytes; of a single column, null where it is null. Without the last columns, what keys begin with."""
        arrays = [_flat(column, kind) for column, kind in zip(columns, self._kinds, strict=False)]
        if len(self._kinds) == 1:
            (array,) = arrays
            encoded = self._column(array, 0)
            return encoded if not array.null_count else pc.if_else(array.is_valid(), encoded, None)
        parts = []
        for number, array in enumerate(arrays):
            parts += [_as_binary((~_valid(array)).astype(np.uint8)[:, None]), self._column(array, number)]
            if self._widths[number] is None and number < len(self._kinds) - 1:
                parts[-1] = pc.replace_substring(parts[-1], _ZERO, _ESCAPED_ZERO)
                parts.append(pa.scalar(_END, pa.large_binary()))
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))

    def _column(self, array: pa.Array, number: int) -> pa.Array:
        width = self._widths[number]
        if width is not None:
            return _as_binary(_in_order(array, self._kinds[number], width))
        return array.cast(pa.large_binary()).fill_null(b"")

    def encode_one(self, parts: Sequence[Any]) -> bytes | None:
        """One key, or what keys begin with, from Python's values; None: it is a single null.

        Raises:
            pyarrow.ArrowException, TypeError, ValueError, OverflowError: a value is not of its type.
        """
        if len(self._kinds) == 1 and self._one is not None and type(parts[0]) is self._one[0]:
            return self._one[1](parts[0])
        columns = [exact_array([part], kind) for part, kind in zip(parts, self._kinds, strict=False)]
        found: bytes | None = self.encode(columns)[0].as_py()
        return found

    def decode(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The key columns of encoded keys."""
        rows = pa.array(keys, pa.large_binary())
        if len(self._kinds) == 1:
            kind, width = self._kinds[0], self._widths[0]
            if width is None:
                found = _to_type(rows, kind, None)
            else:
                data, offsets = _split(rows)
                fixed = data[offsets[0] : offsets[-1]].reshape(len(keys), width)
                found = _from_bytes(_out_of_order(fixed, kind, width), kind, None)
            return [found.cast(self._schema.field(0).type)]
        return [
            self._back(pa.array(cells, pa.large_binary()), number) for number, cells in enumerate(self._cells(keys))
        ]

    def _cells(self, keys: Sequence[bytes]) -> list[list[bytes]]:
        """Column by column the bytes that are of it, with the leading 0 or 1."""
        columns: list[list[bytes]] = []
        starts = [0] * len(keys)
        for number, width in enumerate(self._widths):
            if width is not None:
                ends = [start + 1 + width for start in starts]
                after = ends
            elif number < len(self._widths) - 1:
                ends = [key.index(_END, start + 1) for key, start in zip(keys, starts, strict=True)]
                after = [end + len(_END) for end in ends]
            else:
                ends = after = [len(key) for key in keys]
            columns.append([key[start:end] for key, start, end in zip(keys, starts, ends, strict=True)])
            starts = after
        return columns

    def _back(self, cells: pa.Array, number: int) -> pa.Array:
        kind, width = self._kinds[number], self._widths[number]
        data, offsets = _split(cells)
        valid = data[offsets[:-1]] == 0 if len(cells) else np.zeros(0, np.bool_)
        if width is None:
            # Arrow's own slice of bytes fails on some lengths.
            rest = _gather(data, offsets[:-1] + 1, np.diff(offsets) - 1)
            if number < len(self._kinds) - 1:
                rest = pc.replace_substring(rest, _ESCAPED_ZERO, _ZERO)
            found = _to_type(rest, kind, valid)
        else:
            fixed = data[offsets[0] : offsets[-1]].reshape(len(cells), 1 + width)[:, 1:]
            found = _from_bytes(_out_of_order(fixed, kind, width), kind, valid)
        return found.cast(self._schema.field(number).type)


def _key_of_one(kind: pa.DataType) -> tuple[type, Callable[[Any], bytes]] | None:
    """The same as whole columns give, without the detour: what works record by record looks up one key at a time."""
    if pa.types.is_signed_integer(kind):
        width = kind.bit_width // 8
        half = 1 << (8 * width - 1)
        return int, lambda value: (value + half).to_bytes(width, "big")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str, str.encode
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes, bytes
    return None


# Values.


class ValueEncoding:
    """Rows of a schema as bytes.

    Args:
        schema: the value columns; those that were gained come last.

    Attributes:
        nothing: a row in which every column is null.

    Raises:
        StoreException: when rows are read that have more columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = schema.types
        self._kinds = [plain_type(kind) for kind in schema.types]
        self._layout = _Layout(self._kinds)
        self._older: dict[int, _Layout] = {}
        """Number of columns -> the layout of rows that were written when there were no more."""
        self.nothing = self._layout.nothing

    def encode(self, columns: Sequence[pa.ChunkedArray | pa.Array], count: int) -> pa.Array:
        """(N,) the rows as bytes."""
        return self._layout.encode(columns, count)

    def encode_one(self, values: Sequence[Any]) -> bytes:
        """One row, from Python's values.

        Raises:
            pyarrow.ArrowException, TypeError, ValueError, OverflowError: a value is not of its type.
        """
        return self._layout.encode_one(values)

    def decode_one(self, row: bytes) -> list[Any]:
        """The values of one row, as Python's."""
        (count,) = _COUNT.unpack_from(row)
        if count == len(self._kinds):
            return self._layout.decode_one(row)
        return self._layout_of(count).decode_one(row) + [None] * (len(self._kinds) - count)

    def decode(self, rows: Sequence[bytes]) -> list[pa.Array | pa.ChunkedArray]:
        """The columns of encoded rows; of very many bytes in pieces."""
        data, offsets = _split(pa.array(rows, pa.large_binary()))
        if data.size > _PIECE_BYTES and len(rows) > 1:
            names = [str(number) for number in range(len(self._kinds))]
            halves = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
            whole: list[pa.Array | pa.ChunkedArray] = pa.concat_tables(
                [pa.table(self.decode(half), names) for half in halves]
            ).columns
            return whole
        counts = data[offsets[:-1, None] + np.arange(_COUNT.size)].view("<u2").reshape(-1) if len(rows) else offsets[:0]
        if (counts == len(self._kinds)).all():
            columns = self._layout.decode(data, offsets)
        else:
            columns = self._decode_each(rows, counts)
        # Of lists of nulls Arrow makes broken ones where it casts them to their own type.
        kinds = zip(columns, self._types, strict=True)
        return [column if column.type == kind else column.cast(kind) for column, kind in kinds]

    def _decode_each(self, rows: Sequence[bytes], counts: npt.NDArray[Any]) -> list[pa.Array]:
        """The same where some rows are older than others: together what has equally many columns."""
        groups = [np.flatnonzero(counts == count) for count in np.unique(counts)]
        pieces = []
        for group in groups:
            older = self._layout_of(int(counts[group[0]]))
            columns = older.decode(*_split(pa.array([rows[row] for row in group.tolist()], pa.large_binary())))
            pieces.append([*columns, *(pa.nulls(len(group), kind) for kind in self._kinds[len(columns) :])])
        order = pa.array(np.argsort(np.concatenate(groups)))
        return [pa.concat_arrays(found).take(order) for found in zip(*pieces, strict=True)]

    def _layout_of(self, count: int) -> _Layout:
        if count > len(self._kinds):
            raise StoreException(
                f"A row has {count} value columns, but the store knows only {len(self._kinds)} of them. Maybe a newer version of "
                "the application wrote it."
            )
        if count not in self._older:
            self._older[count] = _Layout(self._kinds[:count])
        return self._older[count]


class _Layout:
    """Where what is in a row with a number of columns.

    Args:
        kinds: types of its columns, dictionaries as what they stand for.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._kinds = kinds
        self._widths = [_width_of(kind) for kind in kinds]
        self._count = _COUNT.pack(len(kinds))
        self._values = _COUNT.size + (len(kinds) + 7) // 8
        """Where the columns begin, after the bitmap."""
        self._fixed = self._values + sum(4 if width is None else width for width in self._widths)
        self.nothing = self._count + bytes(self._fixed - _COUNT.size)
        self._simple = _SimpleRows.of(kinds)

    def encode(self, columns: Sequence[pa.ChunkedArray | pa.Array], count: int) -> pa.Array:
        fixed = np.zeros((count, self._fixed), np.uint8)
        fixed[:, : _COUNT.size] = np.frombuffer(self._count, np.uint8)
        valid = np.zeros((count, len(self._kinds)), np.bool_)
        others = []
        place = self._values
        for number, (column, kind, width) in enumerate(zip(columns, self._kinds, self._widths, strict=True)):
            array = _flat(column, kind)
            valid[:, number] = _valid(array)
            if width is None:
                found = _cells(array, kind)
                _, offsets = _split(found)
                fixed[:, place : place + 4] = np.diff(offsets).astype("<u4")[:, None].view(np.uint8)
                others.append(found)
                place += 4
            else:
                fixed[:, place : place + width] = _bytes_of(array, width)
                place += width
        if self._kinds:
            fixed[:, _COUNT.size : self._values] = np.packbits(valid, axis=1, bitorder="little")
        rows = _as_binary(fixed)
        return pc.binary_join_element_wise(rows, *others, pa.scalar(b"", pa.large_binary())) if others else rows

    def encode_one(self, values: Sequence[Any]) -> bytes:
        if self._simple is not None and all(
            value is None or type(value) is kind for value, kind in zip(values, self._simple.types, strict=True)
        ):
            return self._simple.encode(values)
        columns = [exact_array([value], kind) for value, kind in zip(values, self._kinds, strict=True)]
        found: bytes = self.encode(columns, 1)[0].as_py()
        return found

    def decode_one(self, row: bytes) -> list[Any]:
        if self._simple is not None:
            return self._simple.decode(row)
        columns = self.decode(*_split(pa.array([row], pa.large_binary())))
        for column in columns:
            check_times_of_day(str(column.type), column)
        return [column[0].as_py() for column in columns]

    def decode(self, data: Matrix, offsets: npt.NDArray[np.int64]) -> list[pa.Array]:
        """The columns of all bytes and where rows begin, dictionaries as what they stand for."""
        fixed = (
            data[offsets[:-1, None] + np.arange(self._fixed)]
            if len(offsets) > 1
            else np.zeros((0, self._fixed), np.uint8)
        )
        valid = np.unpackbits(fixed[:, _COUNT.size : self._values], axis=1, bitorder="little").astype(np.bool_)
        columns = []
        place, starts = self._values, offsets[:-1] + self._fixed
        for number, (kind, width) in enumerate(zip(self._kinds, self._widths, strict=True)):
            if width is None:
                lengths = np.ascontiguousarray(fixed[:, place : place + 4]).view("<u4").reshape(-1).astype(np.int64)
                columns.append(_from_cells(_gather(data, starts, lengths), kind, valid[:, number]))
                starts = starts + lengths
                place += 4
            else:
                columns.append(_from_bytes(fixed[:, place : place + width], kind, valid[:, number]))
                place += width
        return columns


class _SimpleRows:
    """Single rows of integers, doubles, bools, texts and bytes, as `_Layout` writes them, without the detour."""

    _CODES: Final = {
        pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q",
        pa.uint8(): "B", pa.uint16(): "H", pa.uint32(): "I", pa.uint64(): "Q",
    }  # fmt: skip

    def __init__(self, codes: Sequence[str], types: Sequence[type]) -> None:
        self._layout = struct.Struct("<" + "".join(codes))
        self._count = _COUNT.pack(len(types))
        self._values = _COUNT.size + (len(types) + 7) // 8
        self.types = types

    @classmethod
    def of(cls, kinds: Sequence[pa.DataType]) -> _SimpleRows | None:
        """None: a column has another type."""
        codes: list[str] = []
        types: list[type] = []
        found: type
        for kind in kinds:
            if kind in cls._CODES:
                code, found = cls._CODES[kind], int
            elif kind in (pa.float64(), pa.bool_()):
                code, found = ("d", float) if kind == pa.float64() else ("?", bool)
            elif kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
                code, found = "I", str if kind in (pa.string(), pa.large_string()) else bytes
            else:
                return None
            codes.append(code)
            types.append(found)
        return cls(codes, types)

    def encode(self, values: Sequence[Any]) -> bytes:
        bits, fixed, rest = 0, [], []
        for number, (value, kind) in enumerate(zip(values, self.types, strict=True)):
            bits |= (value is not None) << number
            if kind is str or kind is bytes:
                data = b"" if value is None else value.encode() if kind is str else value
                rest.append(data)
                fixed.append(len(data))
            else:
                fixed.append(0 if value is None else value)
        try:
            packed = self._layout.pack(*fixed)
        except struct.error as error:
            raise ValueError(str(error)) from None
        bitmap = bits.to_bytes(self._values - _COUNT.size, "little")
        return b"".join([self._count, bitmap, packed, *rest])

    def decode(self, row: bytes) -> list[Any]:
        bits = int.from_bytes(row[_COUNT.size : self._values], "little")
        values = list(self._layout.unpack_from(row, self._values))
        place = self._values + self._layout.size
        for number, kind in enumerate(self.types):
            if kind is str or kind is bytes:
                data = row[place : place + values[number]]
                place += values[number]
                values[number] = data.decode() if kind is str else data
            if not bits >> number & 1:
                values[number] = None
        return values


def _cells(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values whose widths differ, as byte strings."""
    if _is_bytes(kind):
        return array.cast(pa.large_binary()).fill_null(b"")
    if pa.types.is_null(kind):
        return pa.array([b""] * len(array), pa.large_binary())
    # Lists, structs, maps: each as Arrow itself writes it. Slow, and right for whatever Arrow can hold.
    return pa.array(
        [
            pa.record_batch([pa.concat_arrays([array.slice(row, 1)])], names=["v"]).serialize().to_pybytes()
            if array[row].is_valid
            else b""
            for row in range(len(array))
        ],
        pa.large_binary(),
    )


def _from_cells(cells: pa.Array, kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    if _is_bytes(kind):
        return _to_type(cells, kind, valid)
    if pa.types.is_null(kind):
        return pa.nulls(len(cells))
    schema = pa.schema([pa.field("v", kind)])
    missing = pa.nulls(1, kind)
    read: Callable[[Any], pa.Array] = lambda cell: pa.ipc.read_record_batch(pa.py_buffer(cell), schema).column(0)  # noqa: E731
    found = [read(cell.as_py()) if there else missing for cell, there in zip(cells, valid, strict=True)]
    return pa.concat_arrays(found) if found else pa.nulls(0, kind)
