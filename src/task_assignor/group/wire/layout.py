"""What a wire format is made of: numbers, texts, lists and tables of fields with versions. One table serves both directions.

No format lives here. Bytes from others are read with care: every count is checked against the bytes that are left
before anything is made, so what a decoder allocates is in proportion to its input, and only `WireFormatException` leaves it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, ItemsView, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import attrs

from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import shown

ANY_VERSION: Final = 2**31 - 1


class WireFormatException(StreamsException, ValueError):
    """Bytes cannot be read as the format that they should be, or a value does not fit into the format."""


def _bytes(data: Any) -> bytes:
    # bytes(3) are three zeros, and bytes([1]) is one byte: neither is what somebody meant.
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    advice = " Maybe bytes.fromhex(...)." if isinstance(data, str) else ""
    raise WireFormatException(f"The value ({shown(data)}) must be bytes.{advice}")


Given = TypeVar("Given")


def value_of(what: str, kind: type[Given], value: Given) -> Given:
    """The value that is to be written.

    Raises:
        WireFormatException: it is of another kind.
    """
    if not isinstance(value, kind):
        raise WireFormatException(f"The {what} ({shown(value)}) must be a {kind.__name__}.")
    return value


def values_of(what: str, kind: type[Given], values: Collection[Given]) -> Collection[Given]:
    """Several values that are to be written.

    Raises:
        WireFormatException: they are no collection, or one is of another kind.
    """
    is_right = isinstance(values, Collection) and not isinstance(values, str | bytes | bytearray | memoryview)
    # Of a million values the types are looked at in milliseconds.
    if not is_right or not (set(map(type, values)) <= {kind} or all(isinstance(value, kind) for value in values)):
        raise WireFormatException(f"The {what} ({shown(values)}) must be a list of {kind.__name__}.")
    return values


def items_of(what: str, key: type[Given], values: Mapping[Given, Any]) -> ItemsView[Given, Any]:
    """The items of a mapping that is to be written.

    Raises:
        WireFormatException: it is none, or a key is of another kind.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, key) for name in values):
        raise WireFormatException(f"The {what} ({shown(values)}) must be a mapping whose keys are {key.__name__}.")
    return values.items()


@attrs.define
class Source:
    """Bytes, and how far they have been read."""

    data: bytes = attrs.field(converter=_bytes)
    position: int = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.position

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes."""
        if size > self.left:
            raise self.cut_off(size, what)
        self.position += size
        return self.data[self.position - size : self.position]

    def cut_off(self, size: int, what: str) -> WireFormatException:
        """The error for bytes that end too early."""
        return WireFormatException(
            f"Cut off: {what} needs {size} bytes at offset {self.position}, {self.left} are left."
        )


class Kind(Protocol):
    """How a value is written and read."""

    @property
    def name(self) -> str:
        """What it is, for messages and docs."""

    def least(self, version: int, /) -> int:
        """No value takes fewer bytes."""

    def write(self, value: Any, version: int, /) -> bytes:
        """The bytes of a value.

        Raises:
            WireFormatException: the value does not fit.
        """

    def read(self, source: Source, version: int, /) -> Any:
        """The next value.

        Raises:
            WireFormatException: the bytes are not such a value.
        """


@lru_cache(maxsize=256)
def _packing(count: int, code: str) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


@attrs.frozen
class Whole:
    """A whole number, big-endian.

    Args:
        name: what it is.
        code: its letter in the module `struct`.
    """

    name: str
    code: str
    packing: struct.Struct = attrs.field(
        init=False, default=attrs.Factory(lambda self: _packing(1, self.code), takes_self=True)
    )
    size: int = attrs.field(init=False, default=attrs.Factory(lambda self: self.packing.size, takes_self=True))

    def least(self, _version: int, /) -> int:
        """Its size."""
        return self.size

    def write(self, value: Any, _version: int, /) -> bytes:
        """Two's complement."""
        try:
            return self.packing.pack(value)
        except (struct.error, TypeError):
            raise WireFormatException(f"{shown(value)} does not fit into an {self.name}.") from None

    def read(self, source: Source, _version: int, /) -> int:
        """Two's complement."""
        start = source.position
        try:
            (number,) = self.packing.unpack_from(source.data, start)
        except struct.error:
            raise source.cut_off(self.size, self.name) from None
        source.position = start + self.size
        return number  # type: ignore[no-any-return]


INT8: Final = Whole("int8", "b")
INT16: Final = Whole("int16", "h")
UINT16: Final = Whole("uint16", "H")
INT32: Final = Whole("int32", "i")
INT64: Final = Whole("int64", "q")


class Uuid:
    """16 bytes."""

    name: Final = "16 bytes"

    def least(self, _version: int, /) -> int:
        """Its size."""
        return 16

    def write(self, value: Any, _version: int, /) -> bytes:
        """Most significant half first."""
        return bytes(value.bytes)

    def read(self, source: Source, _version: int, /) -> uuid.UUID:
        """Most significant half first."""
        return uuid.UUID(bytes=source.take(16, "a uuid"))


@attrs.frozen
class Blob:
    """A length, then so many units: bytes, or a text.

    Args:
        name: what it is.
        length: the number in front.
        encode: value -> bytes.
        decode: bytes -> value.
        nullable: the length -1 means None.
        unit: bytes per unit of length.
    """

    name: str
    length: Whole
    encode: Callable[[Any], bytes] = _bytes
    decode: Callable[[bytes], Any] = bytes
    nullable: bool = False
    unit: int = 1

    def least(self, _version: int, /) -> int:
        """The size of an empty one."""
        return self.length.packing.size

    def write(self, value: Any, version: int, /) -> bytes:
        """Length and content."""
        if value is None and self.nullable:
            return self.length.write(-1, version)
        try:
            data = self.encode(value)
        except WireFormatException:
            raise
        except (TypeError, AttributeError, ValueError):
            raise WireFormatException(f"{shown(value)} cannot be encoded.") from None
        size = len(data) // self.unit
        try:
            return self.length.write(size, version) + data
        except WireFormatException:
            raise WireFormatException(
                f"{shown(value)} is too long for {self.name}: {size} does not fit into an {self.length.name}."
            ) from None

    def read(self, source: Source, _version: int, /) -> Any:
        """Length and content."""
        start = source.position + self.length.size
        try:
            (count,) = self.length.packing.unpack_from(source.data, source.position)
        except struct.error:
            raise source.cut_off(self.length.size, self.length.name) from None
        size = count * self.unit
        source.position = end = start + size
        if start <= end <= len(source.data):
            return self.decode(source.data[start:end])
        source.position = start
        if count == -1 and self.nullable:
            return None
        if size < 0:
            raise WireFormatException(f"The length of {self.name} is {count} at offset {start}.")
        raise source.cut_off(size, self.name)


def _utf8(text: str) -> bytes:
    return text.encode()


def _from_utf8(data: bytes) -> str:
    # As in Java: what is no UTF-8 becomes a replacement character, and no topic has such a name.
    return data.decode("utf-8", "replace")


def _modified_utf8(text: str) -> bytes:
    # Java's DataOutput.writeUTF: each UTF-16 unit by itself, and the character 0 in two bytes.
    units = text.encode("utf-16-be", "surrogatepass")
    single = text if text.isascii() else "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    return single.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _from_modified_utf8(data: bytes) -> str:
    if data.isascii():
        return data.decode()
    try:
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
    except UnicodeDecodeError:
        raise WireFormatException("A text is not in Java's modified UTF-8.") from None


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _from_utf16(data: bytes) -> str:
    return data.decode("utf-16-be", "replace")


UUID: Final = Uuid()
TEXT: Final = Blob("UTF-8, int16 length", INT16, _utf8, _from_utf8)
NULLABLE_TEXT: Final = Blob("UTF-8 or null, int16 length", INT16, _utf8, _from_utf8, nullable=True)
LONG_TEXT: Final = Blob("UTF-8, int32 length", INT32, _utf8, _from_utf8)
JAVA_TEXT: Final = Blob("Java's modified UTF-8, uint16 length", UINT16, _modified_utf8, _from_modified_utf8)
UTF16_TEXT: Final = Blob("UTF-16, int32 count of units", INT32, _utf16, _from_utf16, unit=2)
NULLABLE_BYTES: Final = Blob("bytes or null, int32 length", INT32, nullable=True)


@attrs.frozen
class Many:
    """A number, then so many elements."""

    element: Kind

    @property
    def name(self) -> str:
        """What it is a list of."""
        return f"list of {self.element.name}"

    def least(self, _version: int, /) -> int:
        """The size of an empty one."""
        return 4

    def write(self, value: Any, version: int, /) -> bytes:
        """Elements in the given order."""
        # A text is a list of letters, and bytes are one of numbers: neither is what somebody meant.
        if not isinstance(value, Collection) or isinstance(value, str | bytes | bytearray | memoryview):
            raise WireFormatException(f"{shown(value)} must be a {self.name}.")
        head = INT32.write(len(value), version)
        if isinstance(self.element, Whole):
            try:
                return head + _packing(len(value), self.element.code).pack(*value)
            except (struct.error, TypeError):
                raise WireFormatException(f"Not all of {shown(value)} fit into an {self.element.name}.") from None
        if not isinstance(self.element, Layout):
            return head + b"".join([self.element.write(each, version) for each in value])
        if (packing := self.element.packing(version)) is not None:
            try:
                return head + b"".join([packing.pack(*each) for each in value])
            except (struct.error, TypeError):
                pass  # Field after field it is said which one does not fit.
        write = self.element.writer(version)
        return head + b"".join([write(each, version) for each in value])

    def read(self, source: Source, version: int, /) -> Sequence[Any]:
        """Elements in the order of the bytes."""
        count = INT32.read(source, version)
        if count < 0 or (count and count * self.element.least(version) > source.left):
            raise WireFormatException(
                f"A list of {count} elements at offset {source.position - 4} does not fit into the {source.left} bytes left."
            )
        if isinstance(self.element, Whole):
            start = source.position
            source.position += count * self.element.size
            return _packing(count, self.element.code).unpack_from(source.data, start)
        if not isinstance(self.element, Layout):
            return [self.element.read(source, version) for _ in range(count)]
        if (packing := self.element.packing(version)) is not None:
            start = source.position
            source.position += count * packing.size
            return list(packing.iter_unpack(memoryview(source.data)[start : source.position]))
        read = self.element.reader(version)
        return [read(source, version) for _ in range(count)]


@attrs.frozen
class Written:
    """Stands for the value of a field that has been written already: one that many records have is written once.

    Args:
        data: its bytes.
    """

    data: bytes


@attrs.frozen
class Field:
    """A line of a layout.

    Args:
        name: what it is called.
        kind: how it is written.
        first: first version that has it.
        last: last version that has it.
        default: its value in versions without it.
        ignorable: False: a version without it can only carry the default.
    """

    name: str
    kind: Kind
    first: int = 0
    last: int = ANY_VERSION
    default: Any = None
    ignorable: bool = True


@attrs.frozen
class Layout:
    """A table of fields; its values are tuples with one item per field, in the order of the table.

    Args:
        name: what it is, for messages.
        fields: the fields in the order of the bytes.
    """

    name: str
    fields: Sequence[Field]
    _ways: dict[int, _Ways] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def least(self, version: int, /) -> int:
        """The sum of its fields."""
        return self._of(version).least

    def write(self, value: Any, version: int, /) -> bytes:
        """Field after field."""
        return self._of(version).write(value, version)

    def read(self, source: Source, version: int, /) -> tuple[Any, ...]:
        """Field after field."""
        return self._of(version).read(source, version)

    def reader(self, version: int) -> Callable[[Source, int], tuple[Any, ...]]:
        """What `read` does for this version: small groups of fields are read a million times."""
        return self._of(version).read

    def writer(self, version: int) -> Callable[[Any, int], bytes]:
        """What `write` does for this version."""
        return self._of(version).write

    def packing(self, version: int) -> struct.Struct | None:
        """The numbers that this version consists of; None: there is something else in it."""
        ways = self._of(version)
        return ways.head if ways.size == len(self.fields) else None

    def _of(self, version: int) -> _Ways:
        if version not in self._ways:
            self._ways[version] = _Ways(self, version)
        return self._ways[version]

    def record(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """The tuple of named values; what is not named has its default."""
        return tuple([values.get(field.name, field.default) for field in self.fields])

    def named(self, record: tuple[Any, ...]) -> dict[str, Any]:
        """Field name -> value."""
        return {field.name: item for field, item in zip(self.fields, record, strict=True)}


class _Ways:
    """How a version of a layout is read and written: the numbers that it begins with at once, then field after field."""

    def __init__(self, layout: Layout, version: int) -> None:
        self._name, self._fields = layout.name, layout.fields
        there = [(field, field.first <= version <= field.last) for field in layout.fields]
        self.least = sum(field.kind.least(version) for field, is_there in there if is_there)
        codes = ""
        for field, is_there in there:
            if not is_there or not isinstance(field.kind, Whole):
                break
            codes += field.kind.code
        self.size, self.head = len(codes), struct.Struct(f">{codes}")
        self._all = [_reader(field, is_there) for field, is_there in there]
        self._rest = self._all[self.size :]

    def read(self, source: Source, version: int) -> tuple[Any, ...]:
        try:
            first = self.head.unpack_from(source.data, source.position)
        except struct.error:
            # One of them is cut off, which says so.
            return tuple([read(source, version) for read in self._all])
        source.position += self.head.size
        return (*first, *[read(source, version) for read in self._rest])

    def write(self, value: Any, version: int) -> bytes:
        try:
            first = self.head.pack(*value[: self.size])
        except (struct.error, TypeError):
            # One of them does not fit, which says so.
            return self._write(value, self._fields, version)
        return first + self._write(value[self.size :], self._fields[self.size :], version)

    def _write(self, value: Any, fields: Sequence[Field], version: int) -> bytes:
        parts = []
        for field, item in zip(fields, value, strict=True):
            if field.first <= version <= field.last:
                parts.append(item.data if isinstance(item, Written) else field.kind.write(item, version))
            elif not field.ignorable and item != field.default:
                raise WireFormatException(
                    f"{self._name} of version {version} cannot carry {field.name} ({shown(item)}); it needs version {field.first}."
                )
        return b"".join(parts)


def _reader(field: Field, is_there: bool) -> Callable[[Source, int], Any]:
    """Reads a field, or what stands for it in a version without it."""
    return field.kind.read if is_there else lambda _source, _version: field.default
