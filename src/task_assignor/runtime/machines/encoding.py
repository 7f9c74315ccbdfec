"""Values that are kept or that travel: what they have in common, and how they become JSON and back. No files, no sockets."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from task_assignor.sdk import TaskId

T = TypeVar("T")

VERSION: Final = "formatVersion"
"""The tag of values that are documents by themselves."""
Count = Annotated[int, msgspec.Meta(ge=0)]
"""How many, or an offset."""
Number = Annotated[int, msgspec.Meta(ge=-1)]
"""A number that is counted from 0; -1: none."""


class NewerFormatError(ValueError):
    """A value is of a newer version of its format: it is whole, and of use to who can read it."""


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """A value; in JSON an object with its fields in camel case. What a subclass checks holds for what is read, too."""


class Message(Value, frozen=True, array_like=True, tag=True):
    """A value that is known by its name among others; in JSON a list of the name and the fields."""


_parsed = functools.lru_cache(1 << 16)(TaskId.parse)


def _plain(value: Any) -> object:
    """What msgspec does not know as what it knows: task ids as text, kinds of text and numbers (numpy's) as Python's."""
    match value:
        case TaskId():
            return str(value)
        case str():
            return str.__str__(value)
        case float():
            return float(value)
        case _:
            return operator.index(value)


def _special(kind: type, plain: Any) -> Any:
    if kind is not TaskId:
        raise TypeError(f"values of {kind} are not read")
    return _parsed(plain)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: object) -> bytes:
    """A value as JSON. What in a text is no Unicode (in names of files, say) is written as escapes.

    Raises:
        TypeError: something in it is not known.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_as_unicode(msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)))


def fields_of(value: Value) -> dict[str, Any]:
    """What a value says, as JSON has it; names in a mapping are sorted."""
    found: dict[str, Any] = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain)
    return found


def as_unicode(text: str) -> str:
    """The text; what in it is no Unicode, such as half a surrogate pair, is written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _as_unicode(value: Any) -> Any:
    match value:
        case str():
            return as_unicode(value)
        case dict():
            return {_as_unicode(key): _as_unicode(found) for key, found in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_as_unicode(found) for found in value]
        case _:
            return value


def reader_of(kind: Any) -> Callable[[bytes], Any]:
    """What reads values of a type, or of a union of messages; it raises ValueError for what is something else."""
    return msgspec.json.Decoder(kind, dec_hook=_special).decode


@functools.lru_cache
def _reader(kind: Any) -> tuple[Callable[[bytes], Any], str, tuple[int, ...]]:
    """What reads values of a type; of a document the tag that has its version, and the versions: its own, and those of its subclasses."""
    config = getattr(kind, "__struct_config__", None)
    if config is None or not isinstance(config.tag, int):
        return reader_of(kind), "", ()
    kinds = (kind, *kind.__subclasses__())
    # Of values of one type alone msgspec takes those without a tag, too.
    other = msgspec.defstruct("Other", (), tag_field=config.tag_field, tag=-1)
    read = reader_of(functools.reduce(operator.or_, kinds, other))
    return read, config.tag_field, tuple(one.__struct_config__.tag for one in kinds)


def decode(raw: bytes, kind: type[T]) -> T:
    """A value of a type.

    Raises:
        ValueError: it is something else, or of another version of the format (`NewerFormatError`); what, and where in it.
    """
    read, tag, versions = _reader(kind)  # type: ignore[arg-type]  # any type can be hashed
    try:
        found: T = read(raw)
    except msgspec.ValidationError:
        document = msgspec.json.decode(raw)
        if versions and isinstance(document, dict) and (other := document.get(tag)) not in versions:
            told = f"{tag} {other!r} is not {' or '.join(map(str, versions))}"
            if isinstance(other, int) and other > max(versions):
                raise NewerFormatError(f"{told}; a newer task-assignor wrote it") from None
            raise ValueError(told) from None
        raise
    return found
