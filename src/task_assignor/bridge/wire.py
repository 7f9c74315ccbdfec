"""The messages between the assignor in Java and the one in Python, and nothing of who sends them.

A message is an int32 length, then one byte that says what it is, then its fields, big-endian. A text is an int32 length and
UTF-8; a list is an int32 count and its items. A state travels as columns in the order of `sdk.columns` (tasks and clients
sorted by id), so that neither side touches single tasks. The layout is that of java/taskassignor/Wire.java.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import (
    ApplicationState,
    AssignmentConfigs,
    HostInfo,
    ProcessId,
    Role,
    StreamsException,
    TaskAssignment,
    TaskId,
)
from task_assignor.sdk.assignment import AssignmentColumns
from task_assignor.sdk.columns import (
    MISSING,
    NO_RACK,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    StateColumns,
    TaskColumns,
)
from task_assignor.validation import report_violations

PROTOCOL: Final = 1
HELLO, WELCOME, ASSIGN, ANSWER, ERROR = range(1, 6)
LONGEST_MESSAGE: Final = 1 << 30

Ints = npt.NDArray[np.int64]


class WireException(StreamsException):
    """Bytes that are no message of the bridge, or not the one that is due."""


@attrs.frozen
class Hello:
    """The first message of an application.

    Args:
        protocol: the version of the messages that it speaks.
        assignor: value of its setting `python.task.assignor.class`.
    """

    protocol: int
    assignor: str


@attrs.frozen
class Request:
    """A question.

    Args:
        timeout_ms: milliseconds after which nobody waits for the answer any more.
        state: the state.
        settings: the settings that the assignor declares, as far as the application has them.
        java: what Java decided, to be measured beside the answer; None: Python decides.
    """

    timeout_ms: int
    state: ApplicationState
    settings: Mapping[str, str]
    java: TaskAssignment | None


class _Reader:
    """Takes fields from the front of a message; what would reach beyond its end is an error."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._message):
            raise WireException(
                f"The message of {len(self._message)} bytes is cut short: {length} bytes more are due at {self._at}."
            )
        part = self._message[self._at : end]
        self._at = end
        return part

    def byte(self) -> int:
        return self._take(1)[0]

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def optional(self) -> int | None:
        value = self.int64()
        return None if value == MISSING else value

    def ints(self, count: int) -> Ints:
        return np.frombuffer(self._take(4 * count), dtype=">i4").astype(np.int64)

    def longs(self, count: int) -> Ints:
        return np.frombuffer(self._take(8 * count), dtype=">i8").astype(np.int64)

    def count(self) -> int:
        value = self.int32()
        if value < 0:
            raise WireException(f"A count of {value} cannot be.")
        return value

    def text_or_none(self) -> str | None:
        length = self.int32()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise WireException(f"A text is not UTF-8: {error}.") from None

    def text(self) -> str:
        text = self.text_or_none()
        if text is None:
            raise WireException("A text is missing.")
        return text

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.count())]

    def end(self) -> None:
        if self._at != len(self._message):
            raise WireException(f"The message has {len(self._message) - self._at} bytes too many.")


def read_message(message: bytes) -> Hello | Request:
    """What an application says.

    Raises:
        WireException: nothing that this version understands.
        StreamsException: a state that cannot be.
    """
    reader = _Reader(message)
    kind = reader.byte()
    if kind == HELLO:
        hello = Hello(reader.int32(), reader.text())
        # A later version may say more.
        if hello.protocol == PROTOCOL:
            reader.end()
        return hello
    if kind == ASSIGN:
        try:
            request = _request(reader)
        except StreamsException:
            raise
        except ValueError as error:  # no such role, lists of two lengths
            raise WireException(f"The question cannot be read: {error}.") from None
        reader.end()
        return request
    raise WireException(f"A message of the kind {kind} is not known.")


def _request(reader: _Reader) -> Request:
    timeout_ms, now_ms = reader.int64(), reader.int64()
    configs = AssignmentConfigs(
        acceptable_recovery_lag=reader.int64(),
        max_warmup_replicas=reader.int64(),
        num_standby_replicas=reader.int64(),
        probing_rebalance_interval_ms=reader.int64(),
        rack_aware_assignment_tags=tuple(reader.texts()),
        rack_aware_traffic_cost=reader.optional(),
        rack_aware_non_overlap_cost=reader.optional(),
        rack_aware_assignment_strategy=reader.text(),
    )
    settings = dict(zip(reader.texts(), reader.texts(), strict=True))
    tasks = _tasks(reader)
    clients = _clients(reader)
    columns = StateColumns(tasks, clients, _previous(reader), _lags(reader, len(clients)))
    java = _decision(reader, columns) if reader.byte() else None
    return Request(timeout_ms, ApplicationState(columns, configs, now_ms), settings, java)


def _tasks(reader: _Reader) -> TaskColumns:
    topologies, topics = reader.texts(), reader.texts()
    # A broker's rack of no letters is none.
    stores, racks = ([frozenset(filter(None, reader.texts())) for _ in range(reader.count())] for _ in range(2))
    count = reader.count()
    topology, subtopology, partition, is_stateful, store_set = (reader.ints(count) for _ in range(5))
    end_offset_sum = reader.longs(count)
    partitions = reader.ints(count)
    if (partitions < 0).any():
        raise WireException("A task has fewer than no partitions.")
    rows = reader.ints(4 * int(partitions.sum())).reshape(-1, 4)
    return TaskColumns(
        topology=topology,
        subtopology=subtopology,
        partition=partition,
        is_stateful=is_stateful.astype(np.bool_),
        store_set=store_set,
        end_offset_sum=end_offset_sum,
        partition_offsets=np.concatenate([[0], np.cumsum(partitions)]),
        partition_topic=rows[:, 0],
        partition_number=rows[:, 1],
        partition_is_source=(rows[:, 2] & 1).astype(np.bool_),
        partition_is_changelog=(rows[:, 2] & 2).astype(np.bool_),
        partition_rack_set=rows[:, 3],
        topology_names=topologies,
        store_sets=stores or [frozenset()],
        topics=topics,
        rack_sets=racks,
    )


def _clients(reader: _Reader) -> ClientColumns:
    count = reader.count()
    ids: list[ProcessId] = []
    threads: list[int] = []
    racks: list[str | None] = []
    tags: list[dict[str, str]] = []
    hosts: list[HostInfo | None] = []
    consumers: list[tuple[str, ...]] = []
    for _ in range(count):
        ids.append(ProcessId.parse(reader.text()))
        threads.append(reader.int32())
        racks.append(reader.text_or_none() or None)
        tags.append(dict(zip(reader.texts(), reader.texts(), strict=True)))
        host, port = reader.text_or_none(), reader.int32()
        hosts.append(None if host is None else HostInfo(host, port))
        # Sorted by Java by UTF-16 units, here by code points.
        consumers.append(tuple(sorted(reader.texts())))
    names = sorted({rack for rack in racks if rack is not None})
    # Of many clients each may have a rack of its own, such as its host.
    numbers = {None: NO_RACK} | {name: number for number, name in enumerate(names)}
    return ClientColumns(
        process_ids=ids,
        num_processing_threads=threads,
        rack=[numbers[rack] for rack in racks],
        racks=names,
        client_tags=tags,
        host_infos=hosts,
        consumers=consumers,
    )


def _previous(reader: _Reader) -> PreviousColumns:
    rows, gone = _owners(reader)
    consumer_rows, gone_of_consumer = _owners(reader)
    return PreviousColumns(
        client=rows[:, 0],
        role=rows[:, 1],
        task=rows[:, 2],
        consumer=consumer_rows[:, 0],
        consumer_task=consumer_rows[:, 2],
        vanished=sorted((owner, Role(role), task) for owner, role, task in gone),
        vanished_of_consumer=sorted((owner, task) for owner, _, task in gone_of_consumer),
    )


def _owners(reader: _Reader) -> tuple[Ints, list[tuple[int, int, TaskId]]]:
    """Rows of owner, role and task; the same of tasks that no longer exist."""
    rows = reader.ints(3 * reader.count()).reshape(-1, 3)
    gone = [(reader.int32(), reader.int32(), TaskId.parse(reader.text())) for _ in range(reader.count())]
    return rows, gone


def _lags(reader: _Reader, clients: int) -> LagColumns:
    is_computed = bool(reader.byte())
    counts = reader.ints(clients)
    if (counts < 0).any():
        raise WireException("A client has fewer than no lags.")
    client = np.repeat(np.arange(clients), counts)
    task = reader.ints(int(counts.sum()))
    lag = reader.longs(int(counts.sum()))
    order = np.lexsort((task, client))
    return LagColumns(client=client, task=task[order], lag=lag[order], is_computed=np.full(clients, is_computed))


def _decision(reader: _Reader, columns: StateColumns) -> TaskAssignment:
    clients = len(columns.clients)
    counts = [reader.ints(clients) for _ in Role]
    deadline_ms = reader.longs(clients)
    client, task, role = [], [], []
    for number, count in zip(Role, counts, strict=True):
        if (count < 0).any():
            raise WireException("A client has fewer than no tasks.")
        client.append(np.repeat(np.arange(clients), count))
        task.append(reader.ints(int(count.sum())))
        role.append(np.full(len(task[-1]), number))
    owner, tasks, roles = (np.concatenate(parts) for parts in (client, task, role))
    order = np.lexsort((tasks, roles, owner))
    return TaskAssignment.of_columns(AssignmentColumns(columns, owner[order], tasks[order], roles[order], deadline_ms))


def text_bytes(text: str) -> bytes:
    """A text as a field of a message; what UTF-8 cannot say, as of a file name that is no text, is written with backslashes."""
    encoded = text.encode(errors="backslashreplace")
    return struct.pack(">i", len(encoded)) + encoded


def error(message: str) -> bytes:
    """The message that says why there is no answer."""
    return bytes([ERROR]) + text_bytes(message)


def error_text(message: bytes) -> str:
    """What an error message says."""
    return _Reader(message[1:]).text()


def welcome_version(message: bytes) -> str:
    """The version of the package that welcomes."""
    reader = _Reader(message[1:])
    reader.int32()
    return reader.text()


def welcome(version: str, keys: Sequence[str]) -> bytes:
    """The answer to hello.

    Args:
        version: of this package.
        keys: settings that the assignor declares: the application sends those that it has.
    """
    return b"".join([bytes([WELCOME]), struct.pack(">i", PROTOCOL), text_bytes(version), _list(keys)])


def _list(texts: Sequence[str]) -> bytes:
    return b"".join([struct.pack(">i", len(texts)), *map(text_bytes, texts)])


def answer(
    state: ApplicationState, assignment: TaskAssignment, measures: Mapping[str, tuple[float, float]] | None = None
) -> bytes:
    """The answer to a question.

    Args:
        state: the state of the question.
        assignment: what the assignor answered.
        measures: name -> the measure of Java's decision and that of this one.

    Raises:
        WireException: the assignment is not valid; the message says what is wrong.
    """
    report = report_violations(state, assignment)
    if report.errors:
        more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
        raise WireException(f"The answer of the assignor is not valid: {report.errors[0].message}{more}")
    columns = state.columns
    counts: list[list[int]] = [[0] * len(columns.clients) for _ in Role]
    deadline_ms = [MISSING] * len(columns.clients)
    parts: list[list[Any]] = [[np.zeros(0, np.int64)] * len(columns.clients) for _ in Role]
    for one in assignment:
        client = columns.clients.find(one.process_id)
        if one.followup_rebalance_deadline_ms is not None:
            deadline_ms[client] = one.followup_rebalance_deadline_ms
        for role in Role:
            parts[role][client] = _numbers(columns, one, role)
            counts[role][client] = len(parts[role][client])
    body = [bytes([ANSWER]), struct.pack(">i", len(columns.clients))]
    body += [np.array(of_role, dtype=">i4").tobytes() for of_role in counts]
    body.append(np.array(deadline_ms, dtype=">i8").tobytes())
    body += [np.concatenate([np.zeros(0, np.int64), *of_role]).astype(">i4").tobytes() for of_role in parts]
    body.append(struct.pack(">i", len(measures or {})))
    body += [text_bytes(name) + struct.pack(">dd", *pair) for name, pair in (measures or {}).items()]
    return b"".join(body)


def _numbers(columns: StateColumns, one: Any, role: Role) -> npt.NDArray[np.integer]:
    """Numbers of the tasks that a client has in a role."""
    view = one.columns
    if view is not None and view[0].state is columns:
        rows = view[0].rows_of(view[1])
        tasks: npt.NDArray[np.integer] = view[0].task[rows][view[0].role[rows] == role]
        return tasks
    return np.array(
        [columns.tasks.find(task.id) for task in one.tasks.values() if task.type.name == role.name], np.int64
    )
