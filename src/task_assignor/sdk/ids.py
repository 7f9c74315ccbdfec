"""Names of things: processes, tasks, topic partitions, hosts. Plain ordered values without behaviour of their own."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterable
from functools import total_ordering
from typing import Final

import attrs

from task_assignor.sdk.errors import StateException, TaskIdFormatException
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import shown

MOST_PORT: Final = 65535
_TASK_ID: Final = re.compile(
    r"(?:(?P<topology>.+)__)?(?P<subtopology>\d{1,40})_(?P<partition>\d{1,40})", re.ASCII | re.DOTALL
)
# More than any partition, so that tasks of unnamed topologies have hashes of their own; odd, so that sub-topologies lie apart
# in a dict of any size: 2^32 by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
_HASH_STEP: Final = 0x9E3779B1
_SIGN: Final = 1 << 63
_MASK: Final = (1 << 64) - 1


def java_string_key(text: str) -> bytes:
    """Sort key that orders strings as `java.lang.String.compareTo` does (by UTF-16 code units)."""
    return text.encode("utf-16-be", "surrogatepass")


@total_ordering
@attrs.frozen(eq=False, order=False, repr=False)
class ProcessId:
    """Identity of one KafkaStreams client (KIP-924, Read-only APIs, `ProcessId`).

    Compares like `java.util.UUID`: both 64-bit halves are *signed*, so a UUID whose first hexadecimal digit is 8 or
    more sorts before all others. Every tie that is broken by process id depends on this.

    Args:
        id: the UUID.

    Raises:
        StateException: the id is not a `uuid.UUID`.

    Examples:
        >>> high = ProcessId.parse("80000000-0000-0000-0000-000000000000")
        >>> high < ProcessId.parse("00000000-0000-0000-0000-000000000001")
        True
    """

    id: uuid.UUID = attrs.field()

    @id.validator
    def _check_id(self, _attribute: object, value: object) -> None:
        if not isinstance(value, uuid.UUID):
            raise StateException(
                f"The id of a ProcessId ({shown(value)}) must be a uuid.UUID. Maybe use ProcessId.parse(text)."
            )

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """The process id written as a UUID with dashes, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.

        Raises:
            StateException: the text has another form.
        """
        if isinstance(text, str) and len(text) == 36:
            try:
                parsed = uuid.UUID(text)
            except ValueError:
                pass
            else:
                if str(parsed) == text.lower():
                    return cls(parsed)
        raise StateException(
            f"The process id ({shown(text)}) must be a UUID such as 00000000-0000-0000-0000-000000000001."
        )

    @property
    def signed_halves(self) -> tuple[int, int]:
        """The most and least significant 64 bits as signed integers: the sort key."""
        value = self.id.int
        high, low = value >> 64, value & _MASK
        return (high ^ _SIGN) - _SIGN, (low ^ _SIGN) - _SIGN

    def __eq__(self, other: object) -> bool:
        return self.id.int == other.id.int if isinstance(other, ProcessId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id.int)

    def __lt__(self, other: ProcessId) -> bool:
        return self.signed_halves < other.signed_halves if isinstance(other, ProcessId) else NotImplemented

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"ProcessId({self.id})"


def _no_number(what: str, number: object) -> TaskIdFormatException:
    return TaskIdFormatException(f"The {what} of a TaskId ({shown(number)}) must be an int from 0 to {INT32_MAX}.")


def _none_if_empty(name: str | None) -> str | None:
    return None if isinstance(name, str) and not name else name


@total_ordering
@attrs.frozen(eq=False, order=False, repr=False)
class TaskId:
    """Identity of a task: sub-topology, partition and, with named topologies, the topology's name.

    Order: topology, sub-topology, partition. Tasks of unnamed topologies sort before all named ones, names sort as
    Java strings do. (Kafka refuses to compare the two kinds; we need one order for every input.)

    Args:
        subtopology: number of the sub-topology, 0 to 2^31 - 1.
        partition: number of the partition, 0 to 2^31 - 1.
        topology_name: name of the topology; None or empty: unnamed.

    Raises:
        TaskIdFormatException: a value is of the wrong kind or out of range.

    Examples:
        >>> TaskId.parse("1_3"), str(TaskId(1, 3, "orders"))
        (TaskId(1_3), 'orders__1_3')
    """

    subtopology: int
    partition: int
    topology_name: str | None = attrs.field(default=None, converter=_none_if_empty)

    def __attrs_post_init__(self) -> None:
        # Written out, since a million of them are made.
        if type(self.subtopology) is not int or not 0 <= self.subtopology <= INT32_MAX:
            raise _no_number("subtopology", self.subtopology)
        if type(self.partition) is not int or not 0 <= self.partition <= INT32_MAX:
            raise _no_number("partition", self.partition)
        if self.topology_name is not None and not isinstance(self.topology_name, str):
            raise TaskIdFormatException(
                f"The topology_name of a TaskId ({shown(self.topology_name)}) must be a str or None."
            )

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task id written as `subtopology_partition` or `topology__subtopology_partition`.

        Raises:
            TaskIdFormatException: the text has another form.
        """
        match = _TASK_ID.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise TaskIdFormatException(
                f"The task id ({shown(text)}) must have the form subtopology_partition, such as 0_3, "
                "or topology__subtopology_partition."
            )
        return cls(int(match["subtopology"]), int(match["partition"]), match["topology"])

    @property
    def sort_key(self) -> tuple[bytes, int, int]:
        """Key of the order described above."""
        name = b"" if self.topology_name is None else java_string_key(self.topology_name)
        return name, self.subtopology, self.partition

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskId):
            return NotImplemented
        return (
            self.partition == other.partition
            and self.subtopology == other.subtopology
            and self.topology_name == other.topology_name
        )

    def __hash__(self) -> int:
        # Without a name only ints: the same whatever PYTHONHASHSEED is. Neighbours lie side by side in a dict, where a
        # hash of a tuple would scatter them.
        own = self.subtopology * _HASH_STEP + self.partition
        return own if self.topology_name is None else hash((own, self.topology_name))

    def __lt__(self, other: TaskId) -> bool:
        return self.sort_key < other.sort_key if isinstance(other, TaskId) else NotImplemented

    def __str__(self) -> str:
        prefix = "" if self.topology_name is None else f"{self.topology_name}__"
        return f"{prefix}{self.subtopology}_{self.partition}"

    def __repr__(self) -> str:
        return f"TaskId({self})"


# To what writes values of attrs field by field it is one thing, which has a text of its own.
del TaskId.__attrs_attrs__


@total_ordering
@attrs.frozen(order=False)
class TopicPartition:
    """A partition of a topic. Ordered by topic, then partition.

    Args:
        topic: name of the topic.
        partition: number of the partition, 0 to 2^31 - 1.

    Raises:
        StateException: a value is of the wrong kind or out of range.
    """

    topic: str
    partition: int

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.topic, str):
            raise StateException(f"The topic of a TopicPartition ({shown(self.topic)}) must be a str.")
        if type(self.partition) is not int or not 0 <= self.partition <= INT32_MAX:
            raise StateException(
                f"The partition of a TopicPartition ({shown(self.partition)}) must be an int from 0 to {INT32_MAX}."
            )

    def __lt__(self, other: TopicPartition) -> bool:
        # Written out, since a million of them are sorted.
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return self.partition < other.partition if self.topic == other.topic else self.topic < other.topic

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.frozen(order=True)
class HostInfo:
    """Where a client answers queries: Kafka's `application.server`.

    Args:
        host: host name or address.
        port: port number; to Kafka that is any int from 0 to 2^31-1.

    Raises:
        StateException: a value is of the wrong kind or out of range.
    """

    host: str
    port: int

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.host, str):
            raise StateException(f"The host of a HostInfo ({shown(self.host)}) must be a str.")
        if type(self.port) is not int or not 0 <= self.port <= INT32_MAX:
            raise StateException(f"The port of a HostInfo ({shown(self.port)}) must be an int from 0 to {INT32_MAX}.")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def ranges(tasks: Iterable[TaskId]) -> str:
    """Task ids, sorted, with runs of partitions written as ranges.

    Examples:
        >>> from task_assignor.sdk import TaskId
        >>> ranges([TaskId(0, 1), TaskId(0, 0), TaskId(0, 2), TaskId(0, 5), TaskId(1, 0, "orders")])
        '0_0..2 0_5 orders__1_0'
    """
    parts = []
    ordered = sorted(tasks, key=lambda task: task.sort_key)
    # Along a run of partitions the difference between partition and position stays the same.
    runs = itertools.groupby(
        enumerate(ordered), lambda item: (item[1].topology_name, item[1].subtopology, item[1].partition - item[0])
    )
    for _, run in runs:
        members = [task for _, task in run]
        last = f"..{members[-1].partition}" if len(members) > 1 else ""
        parts.append(f"{members[0]}{last}")
    return " ".join(parts)
