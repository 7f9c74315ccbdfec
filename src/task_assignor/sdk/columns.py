"""The column face of a state: read-only numpy arrays over task numbers 0..T-1 and client numbers 0..C-1.

Tasks are numbered in `TaskId` order, clients in `ProcessId` order. What is sparse stays sparse. The objects that KIP-924
names are views on these columns (`state.py`); columns are made from objects in `builder.py`.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import (
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    as_frozensets,
    as_tags,
    as_tuple,
    bool_column,
    check_increasing,
    check_kind,
    check_length,
    check_named_rows,
    check_names,
    check_range,
    columns_reduce,
    csr_rows,
    int8_column,
    int32_column,
    int64_column,
    offsets_of,
    place_of,
    read_only,
    rows_of,
)
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId, java_string_key
from task_assignor.sdk.text import shown

__all__ = [
    "LATEST_OFFSET",
    "MISSING",
    "NO_RACK",
    "UNKNOWN_OFFSET_SUM",
    "BoolArray",
    "ClientColumns",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "LagColumns",
    "PreviousColumns",
    "Role",
    "StateColumns",
    "TaskColumns",
    "check_length",
    "check_range",
    "columns_reduce",
    "csr_rows",
    "int8_column",
    "int32_column",
    "int64_column",
    "offsets_of",
]

LATEST_OFFSET: Final = -2
"""Lag of a task that was an active running task on the client (Kafka's `Task.LATEST_OFFSET`)."""
UNKNOWN_OFFSET_SUM: Final = -3
"""Lag that could not be computed (Kafka's `SubscriptionInfo.UNKNOWN_OFFSET_SUM`)."""
MISSING: Final = -(2**63)
"""In int64 columns: no value was given."""
NO_RACK: Final = -1
"""In `ClientColumns.rack`: the client has no rack. In `TaskColumns.partition_rack_set`: racks not known."""


def not_stateless(has_stores: bool) -> str:
    """Why a task with stores, or else with a changelog, cannot be one without state: the end of a sentence about it."""
    what = "state stores" if has_stores else "a changelog partition"
    return (
        f"has {what}, so it must be stateful: a task without state can have no standbys, and its state would be lost."
    )


class Role(enum.IntEnum):
    """What a client is for a task, as a number in columns."""

    ACTIVE = 0
    STANDBY = 1


@attrs.frozen(eq=False)
class TaskColumns:
    """The tasks, T rows in `TaskId` order; their topic partitions, P rows grouped by task (CSR).

    Args:
        topology: (T,) index into `topology_names`; -1: unnamed.
        subtopology: (T,) number of the sub-topology.
        partition: (T,) number of the partition.
        is_stateful: (T,) has at least one store, logged or not (what validation calls stateful).
        store_set: (T,) index into `store_sets`.
        end_offset_sum: (T,) end offsets of the task's changelogs, summed: the lag of a client that has none of its
            state; `MISSING`: not given; -3: could not be computed.
        partition_offsets: (T + 1,) CSR offsets of the topic partitions.
        partition_topic: (P,) index into `topics`.
        partition_number: (P,) number of the partition.
        partition_is_source: (P,) belongs to a source topic.
        partition_is_changelog: (P,) belongs to a changelog topic.
        partition_rack_set: (P,) index into `rack_sets`; -1: racks not known.
        topology_names: names, in order.
        store_sets: distinct sets of store names.
        topics: distinct topic names.
        rack_sets: distinct sets of racks with a replica. An empty set is not the same as unknown.
    """

    topology: Int32Array = attrs.field(converter=int32_column, repr=False)
    subtopology: Int32Array = attrs.field(converter=int32_column, repr=False)
    partition: Int32Array = attrs.field(converter=int32_column, repr=False)
    is_stateful: BoolArray = attrs.field(converter=bool_column, repr=False)
    store_set: Int32Array = attrs.field(converter=int32_column, repr=False)
    end_offset_sum: Int64Array = attrs.field(converter=int64_column, repr=False)
    partition_offsets: Int64Array = attrs.field(converter=int64_column, repr=False)
    partition_topic: Int32Array = attrs.field(converter=int32_column, repr=False)
    partition_number: Int32Array = attrs.field(converter=int32_column, repr=False)
    partition_is_source: BoolArray = attrs.field(converter=bool_column, repr=False)
    partition_is_changelog: BoolArray = attrs.field(converter=bool_column, repr=False)
    partition_rack_set: Int32Array = attrs.field(converter=int32_column, repr=False)
    topology_names: tuple[str, ...] = attrs.field(default=(), converter=as_tuple)
    store_sets: tuple[frozenset[str], ...] = attrs.field(default=(frozenset(),), converter=as_frozensets)
    topics: tuple[str, ...] = attrs.field(default=(), converter=as_tuple)
    rack_sets: tuple[frozenset[str], ...] = attrs.field(default=(), converter=as_frozensets)
    # Derived, see __attrs_post_init__.
    has_changelog: BoolArray = attrs.field(init=False, repr=False)
    """(T,) has at least one changelog partition: who gets standbys, and who has lags."""
    group: Int32Array = attrs.field(init=False, repr=False)
    """(T,) number of the task's (topology, sub-topology), 0..G-1 in order."""
    group_offsets: Int64Array = attrs.field(init=False, repr=False)
    """(G + 1,) CSR offsets of the tasks by `group`."""
    _groups: Mapping[tuple[str | None, int], int] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        count = len(self.topology)
        for name in ("subtopology", "partition", "is_stateful", "store_set", "end_offset_sum"):
            check_length(self, name, count)
        check_length(self, "partition_offsets", count + 1)
        partitions = int(self.partition_offsets[-1])
        for name in (
            "partition_topic",
            "partition_number",
            "partition_is_source",
            "partition_is_changelog",
            "partition_rack_set",
        ):
            check_length(self, name, partitions)
        if self.partition_offsets[0] != 0 or (np.diff(self.partition_offsets) < 0).any():
            raise StateException("The column partition_offsets must start at 0 and never decrease.")
        check_range("topology", self.topology, -1, len(self.topology_names))
        check_range("store_set", self.store_set, 0, len(self.store_sets))
        check_range("partition_topic", self.partition_topic, 0, len(self.topics))
        check_range("partition_rack_set", self.partition_rack_set, -1, len(self.rack_sets))
        check_range("partition_number", self.partition_number, 0, 2**31)
        check_names(self, "topics")
        check_names(self, "topology_names")
        if list(self.topology_names) != sorted(self.topology_names, key=java_string_key):
            raise StateException("The topology_names must be in order.")
        for name in ("subtopology", "partition"):
            column = getattr(self, name)
            if count and int(column.min()) < 0:
                raise StateException(f"The column {name} must not hold negative numbers, but holds {column.min()}.")
        self._index_groups(count)
        has_changelog = np.zeros(count, dtype=np.bool_)
        rows = np.flatnonzero(self.partition_is_changelog)
        has_changelog[np.searchsorted(self.partition_offsets, rows, side="right") - 1] = True
        has_changelog.flags.writeable = False
        object.__setattr__(self, "has_changelog", has_changelog)
        self._check_stateless()

    def _check_stateless(self) -> None:
        has_stores = np.array([bool(names) for names in self.store_sets], dtype=np.bool_)[self.store_set]
        wrong = np.flatnonzero(~self.is_stateful & (has_stores | self.has_changelog))
        if len(wrong):
            task = int(wrong[0])
            raise StateException(f"The task {self.task_id(task)} {not_stateless(bool(has_stores[task]))}")

    def _index_groups(self, count: int) -> None:
        new_group = np.ones(count, dtype=np.bool_)
        if count > 1:
            topology, subtopology, partition = (
                np.diff(column.astype(np.int64)) for column in (self.topology, self.subtopology, self.partition)
            )
            ordered = (topology > 0) | ((topology == 0) & ((subtopology > 0) | ((subtopology == 0) & (partition > 0))))
            if not ordered.all():
                where = int(np.flatnonzero(~ordered)[0])
                first, second = self.task_id(where), self.task_id(where + 1)
                problem = "is there twice" if first == second else f"comes before task {second}"
                raise StateException(
                    f"The tasks must be distinct and in order of their ids, but task {first} {problem}."
                )
            new_group[1:] = (topology != 0) | (subtopology != 0)
        group = read_only(np.cumsum(new_group, dtype=np.int32) - np.int32(1), np.int32)
        starts = np.flatnonzero(new_group)
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "group_offsets", read_only(np.append(starts, count), np.int64))
        names = {
            (self._topology_name(int(self.topology[row])), int(self.subtopology[row])): number
            for number, row in enumerate(starts)
        }
        object.__setattr__(self, "_groups", MappingProxyType(names))

    __reduce__ = columns_reduce

    def _topology_name(self, topology: int) -> str | None:
        return None if topology < 0 else self.topology_names[topology]

    def __len__(self) -> int:
        return len(self.topology)

    def task_id(self, task: int) -> TaskId:
        """The id of task number `task`."""
        return TaskId(
            int(self.subtopology[task]), int(self.partition[task]), self._topology_name(int(self.topology[task]))
        )

    def task_ids(self, tasks: Iterable[int] | None = None) -> list[TaskId]:
        """The ids of the given task numbers, or of all tasks."""
        rows = slice(None) if tasks is None else np.array(list(tasks), dtype=np.int64)
        parts = (self.topology[rows].tolist(), self.subtopology[rows].tolist(), self.partition[rows].tolist())
        # The last one is what -1 finds.
        names = (*self.topology_names, None)
        return [
            TaskId(subtopology, partition, names[topology])
            for topology, subtopology, partition in zip(*parts, strict=True)
        ]

    def find(self, task_id: TaskId) -> int:
        """The number of the task, -1 if there is no such task."""
        group = self._groups.get((task_id.topology_name, task_id.subtopology), -1)
        if group < 0:
            return -1
        start, stop = int(self.group_offsets[group]), int(self.group_offsets[group + 1])
        # Partitions of a sub-topology are nearly always 0, 1, 2, ...: look there first.
        guess = start + task_id.partition
        if guess < stop and self.partition[guess] == task_id.partition:
            return guess
        row = start + place_of(self.partition[start:stop], task_id.partition)
        return row if row < stop and self.partition[row] == task_id.partition else -1

    def partitions_of(self, task: int) -> slice:
        """The rows of the topic partitions of task number `task`."""
        return slice(int(self.partition_offsets[task]), int(self.partition_offsets[task + 1]))

    def task_of_partition(self) -> Int64Array:
        """(P,) task number of every row of the topic partitions."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.partition_offsets))


@attrs.frozen(eq=False)
class ClientColumns:
    """The clients (KafkaStreams processes), C rows in `ProcessId` order.

    Args:
        process_ids: C process ids.
        num_processing_threads: (C,) threads, 1 to 2^31 - 1: the capacity.
        rack: (C,) index into `racks`; -1: no rack.
        racks: distinct racks.
        client_tags: C mappings, key -> value.
        host_infos: C hosts or None.
        consumers: C sorted tuples of member ids.
        generation: (C,) generation of what the client says of its previous tasks (KIP-341, Generation Marker);
            `MISSING`: not given.
    """

    process_ids: tuple[ProcessId, ...] = attrs.field(converter=as_tuple)
    num_processing_threads: Int64Array = attrs.field(converter=int64_column, repr=False)
    rack: Int32Array = attrs.field(converter=int32_column, repr=False)
    racks: tuple[str, ...] = attrs.field(default=(), converter=as_tuple)
    client_tags: tuple[Mapping[str, str], ...] = attrs.field(default=(), converter=as_tags)
    host_infos: tuple[HostInfo | None, ...] = attrs.field(default=(), converter=as_tuple)
    consumers: tuple[tuple[str, ...], ...] = attrs.field(default=(), converter=as_tuple)
    generation: Int64Array = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64), converter=int64_column)
    _numbers: Mapping[ProcessId, int] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        count = len(self.process_ids)
        if not len(self.generation):
            object.__setattr__(self, "generation", read_only(np.full(count, MISSING), np.int64))
        defaults: dict[str, object] = {"client_tags": MappingProxyType({}), "host_infos": None, "consumers": ()}
        for name, default in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, (default,) * count)
        for name in ("num_processing_threads", "rack", "client_tags", "host_infos", "consumers", "generation"):
            check_length(self, name, count)
        check_range("rack", self.rack, -1, len(self.racks))
        check_names(self, "racks")
        check_kind(self, "process_ids", ProcessId)
        check_kind(self, "host_infos", HostInfo | NoneType)
        check_kind(self, "consumers", tuple)
        for process_id, names in zip(self.process_ids, self.consumers, strict=True):
            if any(not first < second for first, second in itertools.pairwise(names)):
                raise StateException(f"The consumers of client {process_id} must be distinct and sorted.")
        for first, second in itertools.pairwise(self.process_ids):
            if not first < second:
                problem = "is there twice" if first == second else f"comes before client {second}"
                raise StateException(
                    f"The clients must be distinct and in order of their process ids, but client {first} {problem}."
                )
        if count and int(self.num_processing_threads.min()) < 1:
            client = int(np.argmin(self.num_processing_threads))
            raise StateException(
                f"The num_processing_threads ({self.num_processing_threads[client]}) of client "
                f"{self.process_ids[client]} must be at least 1."
            )
        check_range("num_processing_threads", self.num_processing_threads, 1, 2**31)
        wrong = np.flatnonzero((self.generation < 0) & (self.generation != MISSING))
        if len(wrong):
            raise StateException(
                f"The generation ({self.generation[wrong[0]]}) of client {self.process_ids[int(wrong[0])]} must be at least 0."
            )
        numbers = {process_id: number for number, process_id in enumerate(self.process_ids)}
        object.__setattr__(self, "_numbers", MappingProxyType(numbers))

    def __len__(self) -> int:
        return len(self.process_ids)

    __reduce__ = columns_reduce

    def find(self, process_id: ProcessId) -> int:
        """The number of the client, -1 if there is no such client."""
        return self._numbers.get(process_id, -1)


@attrs.frozen(eq=False)
class PreviousColumns:
    """Who had which task before: pairs (client, role, task), sorted and distinct. One task may have several owners.

    Args:
        client: (N,) client number.
        role: (N,) `Role` number.
        task: (N,) task number.
        consumer: (M,) number of the consumer, counted over `ClientColumns.consumers` in order.
        consumer_task: (M,) task number; pairs (consumer, task) sorted.
        vanished: (client, role, task id) of tasks that no longer exist, sorted.
        vanished_of_consumer: (consumer, task id) of tasks that no longer exist, sorted.
    """

    client: Int32Array = attrs.field(converter=int32_column, repr=False)
    role: Int8Array = attrs.field(converter=int8_column, repr=False)
    task: Int32Array = attrs.field(converter=int32_column, repr=False)
    consumer: Int32Array = attrs.field(converter=int32_column, repr=False)
    consumer_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    vanished: tuple[tuple[int, Role, TaskId], ...] = attrs.field(default=(), converter=as_tuple)
    vanished_of_consumer: tuple[tuple[int, TaskId], ...] = attrs.field(default=(), converter=as_tuple)

    __reduce__ = columns_reduce

    @classmethod
    def empty(cls) -> PreviousColumns:
        """Nobody had anything."""
        none: list[int] = []
        return cls(client=none, role=none, task=none, consumer=none, consumer_task=none)

    def pairs(self, role: Role) -> tuple[Int32Array, Int32Array]:
        """(client, task) of the given role, sorted by client, then task."""
        chosen = self.role == role
        return self.client[chosen], self.task[chosen]

    def vanished_tasks(self, client: int, role: Role) -> tuple[TaskId, ...]:
        """Tasks that the client had in `role` and that no longer exist, in order."""
        start, stop = (
            bisect.bisect_left(self.vanished, (client, which), key=lambda row: row[:2]) for which in (role, role + 1)
        )
        return tuple(task_id for _, _, task_id in self.vanished[start:stop])


@attrs.frozen(eq=False)
class LagColumns:
    """Lags: pairs (client, task, lag), sorted by client, then task; what is not listed is `end_offset_sum`.

    Args:
        client: (N,) client number.
        task: (N,) task number.
        lag: (N,) offsets; -2: active running task there; -3: could not be computed.
        is_computed: (C,) the client's lags are known at all.
    """

    client: Int32Array = attrs.field(converter=int32_column, repr=False)
    task: Int32Array = attrs.field(converter=int32_column, repr=False)
    lag: Int64Array = attrs.field(converter=int64_column, repr=False)
    is_computed: BoolArray = attrs.field(converter=bool_column, repr=False)

    __reduce__ = columns_reduce

    @classmethod
    def empty(cls, clients: int, is_computed: bool = False) -> LagColumns:
        """No pair for any client; `is_computed`: whether the end offset sums stand for all."""
        none: list[int] = []
        return cls(client=none, task=none, lag=none, is_computed=np.full(clients, is_computed))


@attrs.frozen(eq=False)
class StateColumns:
    """All columns of an `ApplicationState`. Everything is checked once, here.

    Args:
        tasks: the tasks.
        clients: the clients.
        previous: who had which task before.
        lags: how far behind each client is.

    Raises:
        StateException: rows out of order, out of range, duplicate, or a lag that is missing.
    """

    tasks: TaskColumns
    clients: ClientColumns
    previous: PreviousColumns
    lags: LagColumns
    previous_offsets: Int64Array = attrs.field(init=False, repr=False)
    """(C + 1,) CSR offsets of `previous` by client."""
    lag_offsets: Int64Array = attrs.field(init=False, repr=False)
    """(C + 1,) CSR offsets of `lags` by client."""
    consumer_client: Int32Array = attrs.field(init=False, repr=False)
    """(K,) client number of every consumer."""

    def __attrs_post_init__(self) -> None:
        tasks, clients = len(self.tasks), len(self.clients)
        consumer_client = np.repeat(np.arange(clients), [len(names) for names in self.clients.consumers])
        object.__setattr__(self, "consumer_client", read_only(consumer_client, np.int32))
        previous, lags = self.previous, self.lags
        for name in ("role", "task"):
            check_length(previous, name, len(previous.client))
        check_length(previous, "consumer_task", len(previous.consumer))
        for name in ("task", "lag"):
            check_length(lags, name, len(lags.client))
        check_length(lags, "is_computed", clients)
        check_range("previous.client", previous.client, 0, clients)
        check_range("previous.role", previous.role, 0, 2)
        check_range("previous.task", previous.task, 0, tasks)
        check_range("previous.consumer", previous.consumer, 0, len(consumer_client))
        check_range("previous.consumer_task", previous.consumer_task, 0, tasks)
        check_range("lags.client", lags.client, 0, clients)
        check_range("lags.task", lags.task, 0, tasks)
        key = (previous.client.astype(np.int64) * 2 + previous.role) * max(tasks, 1) + previous.task
        check_increasing("previous", key)
        check_increasing(
            "previous.consumer", previous.consumer.astype(np.int64) * max(tasks, 1) + previous.consumer_task
        )
        check_named_rows("previous.vanished", previous.vanished, clients)
        of_consumer = [(number, 0, task_id) for number, task_id in previous.vanished_of_consumer]
        check_named_rows("previous.vanished_of_consumer", of_consumer, len(consumer_client))
        check_increasing("lags", lags.client.astype(np.int64) * max(tasks, 1) + lags.task)
        object.__setattr__(self, "previous_offsets", offsets_of(previous.client, clients))
        object.__setattr__(self, "lag_offsets", offsets_of(lags.client, clients))
        self._check_lags()

    __reduce__ = columns_reduce

    def _check_lags(self) -> None:
        lags = self.lags
        strange = (lags.lag < 0) & (lags.lag != LATEST_OFFSET) & (lags.lag != UNKNOWN_OFFSET_SUM)
        if strange.any():
            row = int(np.argmax(strange))
            raise StateException(
                f"The lag ({lags.lag[row]}) of task {self.tasks.task_id(int(lags.task[row]))} on client "
                f"{self.clients.process_ids[int(lags.client[row])]} must be at least 0, or -2 (active running task) "
                "or -3 (unknown)."
            )
        sums = self.tasks.end_offset_sum
        wrong = (sums != MISSING) & (sums < 0) & (sums != UNKNOWN_OFFSET_SUM)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise StateException(
                f"The end offset sum ({sums[row]}) of task {self.tasks.task_id(row)} must be at least 0, or -3 (unknown)."
            )
        not_computed = ~lags.is_computed
        if not_computed.any() and not_computed[lags.client].any():
            row = int(np.flatnonzero(not_computed[lags.client])[0])
            raise StateException(
                f"Client {self.clients.process_ids[int(lags.client[row])]} has lags, but is marked as having none."
            )
        needed = self.tasks.has_changelog & (sums == MISSING)
        wanted = int(needed.sum())
        if not wanted or not lags.is_computed.any():
            return
        given = np.bincount(lags.client[needed[lags.task]], minlength=len(self.clients))
        short = np.flatnonzero((given < wanted) & lags.is_computed)
        if len(short):
            client = int(short[0])
            rows = slice(int(self.lag_offsets[client]), int(self.lag_offsets[client + 1]))
            needed[lags.task[rows]] = False
            missing = np.flatnonzero(needed)
            raise StateException(
                f"The lag of task {self.tasks.task_id(int(missing[0]))} on client {self.clients.process_ids[client]} is "
                "missing, and the task has no end offset sum to stand for it. Give the lag, or the end offset sum."
            )

    def lag_of(self, client: int, task_id: TaskId) -> int | None:
        """The lag of one task on one client; None if there is no such task, or it has no lag."""
        task = self.tasks.find(task_id)
        if task < 0:
            return None
        # One lag: arrays of one row would take most of the time.
        start, stop = int(self.lag_offsets[client]), int(self.lag_offsets[client + 1])
        row = start + place_of(self.lags.task[start:stop], task)
        if row < stop and self.lags.task[row] == task:
            return int(self.lags.lag[row])
        lag = int(self.tasks.end_offset_sum[task])
        return None if lag == MISSING or not self.tasks.has_changelog[task] else lag

    def lags_on(self, client: int, tasks: npt.NDArray[np.integer]) -> Int64Array:
        """(N,) lags of tasks on one client; `MISSING` where there is none."""
        rows = slice(int(self.lag_offsets[client]), int(self.lag_offsets[client + 1]))
        return self._with_defaults(self.lags.task[rows], self.lags.lag[rows], tasks, tasks)

    def lags_of(self, clients: npt.NDArray[np.integer], tasks: npt.NDArray[np.integer]) -> Int64Array:
        """(N,) lags of pairs of client and task; `MISSING` where there is none, or the client's were not computed."""
        width = max(len(self.tasks), 1)
        known = self.lags.client.astype(np.int64) * width + self.lags.task
        found = self._with_defaults(known, self.lags.lag, np.asarray(clients, dtype=np.int64) * width + tasks, tasks)
        found[~self.lags.is_computed[clients]] = MISSING
        return found

    def _with_defaults(
        self,
        known: npt.NDArray[np.integer],
        lags: Int64Array,
        wanted: npt.NDArray[np.integer],
        tasks: npt.NDArray[np.integer],
    ) -> Int64Array:
        rows = rows_of(known, wanted)
        found = lags[rows] if len(lags) else np.empty_like(rows)
        missing = np.flatnonzero(rows < 0)
        others = tasks[missing]
        found[missing] = np.where(self.tasks.has_changelog[others], self.tasks.end_offset_sum[others], MISSING)
        return found

    def lag_row(self, client: int) -> Int64Array:
        """(T,) lags of one client; `MISSING` for tasks without lags (no changelog and none given)."""
        row = np.where(self.tasks.has_changelog, self.tasks.end_offset_sum, MISSING)
        rows = slice(int(self.lag_offsets[client]), int(self.lag_offsets[client + 1]))
        row[self.lags.task[rows]] = self.lags.lag[rows]
        return row

    def previous_tasks(self, client: int, role: Role) -> Int32Array:
        """Task numbers that the client had in `role`, ascending."""
        rows = slice(int(self.previous_offsets[client]), int(self.previous_offsets[client + 1]))
        tasks: Int32Array = self.previous.task[rows][self.previous.role[rows] == role]
        return tasks


def check_columns(state: object) -> None:
    """Raise `StateException` unless these are the columns of a state."""
    if not isinstance(state, StateColumns):
        advice = " Maybe use its columns." if isinstance(getattr(state, "columns", None), StateColumns) else ""
        raise StateException(f"The state ({shown(state)}) must be StateColumns.{advice}")
