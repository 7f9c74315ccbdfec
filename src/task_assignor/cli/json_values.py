"""Reads a JSON document value by value; what is wrong is said with its path. The documents of `wire`, `lead` and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import attrs

from task_assignor.sdk import SnapshotException, StreamsException
from task_assignor.sdk.ids import ProcessId, TaskId, TopicPartition
from task_assignor.sdk.integers import INT32_MAX, INT32_MIN
from task_assignor.sdk.json_checks import Bad, check_integer, check_members, parse_process_id, wrong
from task_assignor.sdk.json_text import member_path
from task_assignor.sdk.text import nearest

T = TypeVar("T")
_INT64: Final = 2**63
_NOTHING: Final = object()
_SLIP: Final = 0.8
"""So much alike are a name and a slip of it."""


@attrs.frozen
class JsonValue:
    """A value of a document.

    Args:
        value: what it is; a member that is missing is null.
        path: where it is.
        is_missing: it is a member that is not there.
    """

    value: Any
    path: str = "$"
    is_missing: bool = False

    def __getitem__(self, name: str) -> JsonValue:
        if not isinstance(self.value, dict):
            raise self._error(wrong(self.value, "an object"))
        return JsonValue(self.value.get(name), self.path + member_path("", name), name not in self.value)

    def __iter__(self) -> Iterator[JsonValue]:
        if not isinstance(self.value, list):
            raise self._error(wrong(self.value, "a list"))
        return (JsonValue(item, f"{self.path}[{number}]") for number, item in enumerate(self.value))

    @property
    def is_null(self) -> bool:
        """It is null, or missing."""
        return self.value is None

    def members(self) -> list[tuple[str, JsonValue]]:
        """(name, value) of the members of an object."""
        if not isinstance(self.value, dict):
            raise self._error(wrong(self.value, "an object"))
        return [(name, JsonValue(item, self.path + member_path("", name))) for name, item in self.value.items()]

    def check_names(self, known: frozenset[str]) -> None:
        """An object has no other members."""
        self.checked(lambda: check_members(self.value, known))

    def check_slips(self, known: frozenset[str]) -> None:
        """An object has no member whose name looks like a slip of the pen; others are its owner's."""
        for name, value in self.members():
            close = None if name in known else nearest(name, known, _SLIP)
            if close is not None:
                raise SnapshotException(f"{value.path}: The member is not known. Maybe {close} is meant.")

    def flag(self) -> bool:
        """True or false; null is false."""
        if not (self.value is None or isinstance(self.value, bool)):
            raise self._error(wrong(self.value, "true or false"))
        return bool(self.value)

    def text(self, default: Any = _NOTHING) -> str:
        """A string."""
        value = default if self.value is None and default is not _NOTHING else self.value
        if not isinstance(value, str):
            raise self._error(wrong(value, "a string"))
        return value

    def text_or_none(self) -> str | None:
        """A string or null."""
        return None if self.value is None else self.text()

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple([item.text() for item in self])

    def whole(self, default: int | None = None, low: int = -_INT64, high: int = _INT64 - 1) -> int:
        """A whole number."""
        value = default if self.value is None and default is not None else self.value
        return self.checked(lambda: check_integer(value, low, high))

    def int32(self, default: int | None = None) -> int:
        """A whole number that is an int in Kafka's protocol."""
        return self.whole(default, INT32_MIN, INT32_MAX)

    def bytes_or_none(self) -> bytes | None:
        """Bytes in hexadecimal digits, or null."""
        return None if self.value is None else from_hex(self.text(), self.path)

    def process_id(self) -> ProcessId:
        """A UUID."""
        return self.checked(lambda: parse_process_id(self.value))

    def task(self) -> TaskId:
        """[subtopology, partition, topology name or null]."""
        found = list(self)
        if len(found) not in (2, 3):
            raise self._error(wrong(self.value, "a list of a sub-topology, a partition and perhaps a topology"))
        name = found[2].text_or_none() if len(found) == 3 else None
        return self.checked(lambda: TaskId(found[0].whole(), found[1].whole(), name))

    def partition(self) -> TopicPartition:
        """[topic, partition]."""
        found = list(self)
        if len(found) != 2:
            raise self._error(wrong(self.value, "a list of a topic and a partition"))
        return self.checked(lambda: TopicPartition(found[0].text(), found[1].whole()))

    def partitions(self) -> tuple[TopicPartition, ...]:
        """{topic: [partition, ...]}, or a list of [topic, partition], in the given order."""
        if isinstance(self.value, list):
            return tuple([item.partition() for item in self])
        return tuple(
            [
                number.checked(lambda topic=topic, number=number: TopicPartition(topic, number.whole()))  # type: ignore[misc]
                for topic, numbers in self.members()
                for number in numbers
            ]
        )

    def numbers_by_topic(self) -> dict[str, tuple[int, ...]]:
        """{topic: [partition, ...]}; null: none."""
        if self.value is None:
            return {}
        return {topic: tuple([number.int32() for number in numbers]) for topic, numbers in self.members()}

    def checked(self, make: Callable[[], T]) -> T:
        """What is made of it; what is wrong with it is said with its path."""
        try:
            return make()
        except Bad as error:
            raise self._error(error) from None
        except SnapshotException:
            raise
        except StreamsException as error:
            raise SnapshotException(f"{self.path}: {error}") from None

    def _error(self, error: Bad) -> SnapshotException:
        """Who left a member out did not write null."""
        if self.is_missing:
            error = Bad(error.message.replace(", but is null.", ", but is missing."), error.path)
        return error.at(self.path)


def from_hex(text: str, path: str) -> bytes:
    """The bytes that hexadecimal digits write; spaces are allowed.

    Raises:
        SnapshotException: the text is something else.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise SnapshotException(f"{path}: The value must be pairs of hexadecimal digits.") from None
