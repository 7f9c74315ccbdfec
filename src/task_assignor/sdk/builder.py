"""From objects to columns: `ApplicationStateBuilder` takes tasks and clients in any order and makes an `ApplicationState`."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Self, TypeVar

import numpy as np

from task_assignor.sdk.checks import all_of, string_pairs, strings
from task_assignor.sdk.columns import (
    MISSING,
    NO_RACK,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    TaskColumns,
)
from task_assignor.sdk.configs import INT32_MAX, INT64_MAX, AssignmentConfigs
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId, java_string_key
from task_assignor.sdk.state import ApplicationState, TaskInfo, TaskTopicPartition
from task_assignor.sdk.text import shown

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_sort_key = operator.attrgetter("sort_key")


class _Dictionary(Generic[Key]):
    """Distinct values, numbered as they come."""

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}

    def number(self, value: Key) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


class _Client:
    """What was given for one client."""

    __slots__ = (
        "active",
        "consumers",
        "generation",
        "host_info",
        "process_id",
        "rack_id",
        "standby",
        "tags",
        "task_lags",
        "threads",
    )

    process_id: ProcessId
    threads: int
    consumers: dict[str, tuple[TaskId, ...]]
    host_info: HostInfo | None
    rack_id: str | None
    tags: Mapping[str, str]
    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]
    task_lags: dict[TaskId, int] | None
    generation: int | None


class ApplicationStateBuilder:
    """Collects tasks and clients, in any order, and builds an `ApplicationState`.

    Args:
        configs: the settings; None: Kafka's defaults.
        now_ms: time of the rebalance, milliseconds since the epoch.

    Examples:
        >>> builder = ApplicationStateBuilder().add_task(TaskId(0, 0)).add_client(ProcessId.parse("0" * 8 + "-0000" * 3 + "-" + "0" * 12))
        >>> builder.build()
        ApplicationState(1 tasks, 1 clients)
    """

    def __init__(self, configs: AssignmentConfigs | None = None, now_ms: int = 0) -> None:
        self._configs = configs
        self._now_ms = now_ms
        self._tasks: dict[TaskId, tuple[bool, frozenset[str], tuple[TaskTopicPartition, ...], int]] = {}
        self._clients: dict[ProcessId, _Client] = {}
        self._client_of_consumer: dict[str, ProcessId] = {}

    def add_task(
        self,
        task_id: TaskId,
        *,
        is_stateful: bool = False,
        state_store_names: Iterable[str] = (),
        topic_partitions: Iterable[TaskTopicPartition] = (),
        end_offset_sum: int | None = None,
    ) -> Self:
        """Add a task.

        Args:
            task_id: the task.
            is_stateful: it has at least one state store, logged or not.
            state_store_names: names of its stores.
            topic_partitions: its partitions.
            end_offset_sum: end offsets of its changelogs, summed: the lag of clients for which none is given.

        Raises:
            StateException: the task is there already, or a value is of the wrong kind.
        """
        if not isinstance(task_id, TaskId):
            raise StateException(f"The task id ({shown(task_id)}) must be a TaskId. Maybe use TaskId.parse(text).")
        if task_id in self._tasks:
            raise StateException(f"The task {task_id} is there twice.")
        if end_offset_sum is not None:
            _check_int(f"The end offset sum of task {task_id}", end_offset_sum, -3, INT64_MAX)
        if not isinstance(is_stateful, bool | np.bool_):
            raise StateException(f"The is_stateful of task {task_id} ({shown(is_stateful)}) must be True or False.")
        self._tasks[task_id] = (
            bool(is_stateful),
            strings(f"state_store_names of task {task_id}", state_store_names),
            all_of(f"topic_partitions of task {task_id}", TaskTopicPartition, topic_partitions),
            MISSING if end_offset_sum is None else end_offset_sum,
        )
        return self

    def add_task_info(self, info: TaskInfo, end_offset_sum: int | None = None) -> Self:
        """Add a task from its `TaskInfo`."""
        return self.add_task(
            info.id,
            is_stateful=info.is_stateful,
            state_store_names=info.state_store_names,
            topic_partitions=info.topic_partitions,
            end_offset_sum=end_offset_sum,
        )

    def add_client(
        self,
        process_id: ProcessId,
        *,
        num_processing_threads: int = 1,
        consumers: Mapping[str, Iterable[TaskId]] | None = None,
        host_info: HostInfo | None = None,
        rack_id: str | None = None,
        client_tags: Mapping[str, str] | None = None,
        previous_active_tasks: Iterable[TaskId] = (),
        previous_standby_tasks: Iterable[TaskId] = (),
        task_lags: Mapping[TaskId, int] | None = None,
        generation: int | None = None,
    ) -> Self:
        """Add a client.

        Args:
            process_id: identity of the client.
            num_processing_threads: its threads, at least 1.
            consumers: member id -> previous stateful tasks of that consumer.
            host_info: `application.server`.
            rack_id: `client.rack`.
            client_tags: `client.tag.*`.
            previous_active_tasks: tasks that were active here; may name tasks that no longer exist.
            previous_standby_tasks: tasks of which state is here; likewise.
            task_lags: task -> lag in offsets (-2: active running here, -3: unknown); tasks left out have their end
                offset sum. None: the lags of this client are not known.
            generation: generation of what the client says of its previous tasks.

        Raises:
            StateException: the client is there already, or a value is of the wrong kind.
        """
        if not isinstance(process_id, ProcessId):
            raise StateException(
                f"The process id ({shown(process_id)}) must be a ProcessId. Maybe use ProcessId.parse(text)."
            )
        if process_id in self._clients:
            raise StateException(f"The client {process_id} is there twice.")
        where = f"of client {process_id}"
        _check_int(f"The num_processing_threads {where}", num_processing_threads, 1, INT32_MAX)
        if generation is not None:
            _check_int(f"The generation {where}", generation, 0, INT64_MAX)
        if not isinstance(host_info, HostInfo | None):
            raise StateException(f"The host_info {where} ({shown(host_info)}) must be a HostInfo(host, port) or None.")
        if not isinstance(rack_id, str | None):
            raise StateException(f"The rack_id {where} ({shown(rack_id)}) must be a str or None.")
        client = _Client()
        client.process_id = process_id
        client.threads = num_processing_threads
        client.consumers = {
            name: all_of(f"tasks of consumer {name} {where}", TaskId, tasks)
            for name, tasks in _items(f"consumers {where}", consumers, str)
        }
        client.host_info = host_info
        client.rack_id = rack_id
        client.tags = string_pairs(f"client_tags {where}", client_tags or {})
        client.active = all_of(f"previous_active_tasks {where}", TaskId, previous_active_tasks)
        client.standby = all_of(f"previous_standby_tasks {where}", TaskId, previous_standby_tasks)
        client.task_lags = None if task_lags is None else dict(_items(f"task_lags {where}", task_lags, TaskId))
        client.generation = generation
        for consumer in client.consumers:
            other = self._client_of_consumer.setdefault(consumer, process_id)
            if other != process_id:
                raise StateException(f"The consumer {consumer} {where} belongs to client {other} already.")
        self._clients[process_id] = client
        return self

    def build(self) -> ApplicationState:
        """The state.

        Raises:
            StateException: a lag is missing or out of range, or for a task that does not exist.
        """
        task_ids = sorted(self._tasks, key=_sort_key)
        tasks = self._build_tasks(task_ids)
        numbers = {task_id: number for number, task_id in enumerate(task_ids)}
        ordered = sorted(self._clients.values(), key=lambda client: client.process_id.signed_halves)
        columns = StateColumns(
            tasks, _client_columns(ordered), _previous_columns(ordered, numbers), _lag_columns(ordered, numbers)
        )
        return ApplicationState(columns, self._configs, self._now_ms)

    def _build_tasks(self, ordered: list[TaskId]) -> TaskColumns:
        names = sorted({task.topology_name for task in ordered if task.topology_name}, key=java_string_key)
        topology = {name: number for number, name in enumerate(names)}
        stores: _Dictionary[frozenset[str]] = _Dictionary()
        topics: _Dictionary[str] = _Dictionary()
        racks: _Dictionary[frozenset[str]] = _Dictionary()
        store_set, stateful, sums, counts = [], [], [], [0]
        topic, number, source, changelog, rack_set = [], [], [], [], []
        for task_id in ordered:
            is_stateful, store_names, partitions, end_offset_sum = self._tasks[task_id]
            stateful.append(is_stateful)
            store_set.append(stores.number(store_names))
            sums.append(end_offset_sum)
            for partition in partitions:
                topic.append(topics.number(partition.topic_partition.topic))
                number.append(partition.topic_partition.partition)
                source.append(partition.is_source)
                changelog.append(partition.is_changelog)
                rack_set.append(NO_RACK if partition.rack_ids is None else racks.number(partition.rack_ids))
            counts.append(len(topic))
        return TaskColumns(
            topology=[-1 if task.topology_name is None else topology[task.topology_name] for task in ordered],
            subtopology=[task.subtopology for task in ordered],
            partition=[task.partition for task in ordered],
            is_stateful=np.array(stateful, dtype=np.bool_),
            store_set=store_set,
            end_offset_sum=np.array(sums, dtype=np.int64),
            partition_offsets=counts,
            partition_topic=topic,
            partition_number=number,
            partition_is_source=np.array(source, dtype=np.bool_),
            partition_is_changelog=np.array(changelog, dtype=np.bool_),
            partition_rack_set=rack_set,
            topology_names=names,
            store_sets=stores.numbers,
            topics=topics.numbers,
            rack_sets=racks.numbers,
        )


def _client_columns(clients: list[_Client]) -> ClientColumns:
    racks = sorted({client.rack_id for client in clients if client.rack_id is not None})
    rack_number = {rack: number for number, rack in enumerate(racks)}
    return ClientColumns(
        process_ids=[client.process_id for client in clients],
        num_processing_threads=[client.threads for client in clients],
        rack=[NO_RACK if client.rack_id is None else rack_number[client.rack_id] for client in clients],
        racks=racks,
        client_tags=[MappingProxyType(dict(sorted(client.tags.items()))) for client in clients],
        host_infos=[client.host_info for client in clients],
        consumers=[tuple(sorted(client.consumers)) for client in clients],
        generation=[MISSING if client.generation is None else client.generation for client in clients],
    )


def _previous_columns(clients: list[_Client], numbers: dict[TaskId, int]) -> PreviousColumns:
    pairs: list[tuple[int, int, int]] = []
    of_consumer: list[tuple[int, int]] = []
    vanished: list[tuple[int, Role, TaskId]] = []
    vanished_of_consumer: list[tuple[int, TaskId]] = []
    consumer = 0
    for number, client in enumerate(clients):
        for role, tasks in ((Role.ACTIVE, client.active), (Role.STANDBY, client.standby)):
            present, gone = _known(tasks, numbers)
            pairs += [(number, int(role), task) for task in present]
            vanished += [(number, role, task_id) for task_id in gone]
        for name in sorted(client.consumers):
            present, gone = _known(client.consumers[name], numbers)
            of_consumer += [(consumer, task) for task in present]
            vanished_of_consumer += [(consumer, task_id) for task_id in gone]
            consumer += 1
    table = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    consumers = np.array(of_consumer, dtype=np.int64).reshape(-1, 2)
    return PreviousColumns(
        client=table[:, 0].astype(np.int32),
        role=table[:, 1].astype(np.int8),
        task=table[:, 2].astype(np.int32),
        consumer=consumers[:, 0].astype(np.int32),
        consumer_task=consumers[:, 1].astype(np.int32),
        vanished=vanished,
        vanished_of_consumer=vanished_of_consumer,
    )


def _known(tasks: Iterable[TaskId], numbers: dict[TaskId, int]) -> tuple[list[int], list[TaskId]]:
    distinct = set(tasks)
    present = sorted(numbers[task] for task in distinct if task in numbers)
    return present, sorted((task for task in distinct if task not in numbers), key=_sort_key)


def _lag_columns(clients: list[_Client], numbers: dict[TaskId, int]) -> LagColumns:
    client_column: list[int] = []
    task_column: list[int] = []
    lag_column: list[int] = []
    for number, client in enumerate(clients):
        if client.task_lags is None:
            continue
        where = f"on client {client.process_id}"
        rows = []
        for task_id, lag in client.task_lags.items():
            task = numbers.get(task_id, -1)
            if task < 0:
                raise StateException(f"There is a lag {where} for task {task_id}, but no such task.")
            _check_int(f"The lag of task {task_id} {where}", lag, -3, INT64_MAX)
            rows.append((task, lag))
        rows.sort()
        client_column += [number] * len(rows)
        task_column += [task for task, _ in rows]
        lag_column += [lag for _, lag in rows]
    return LagColumns(
        client=client_column,
        task=task_column,
        lag=np.array(lag_column, dtype=np.int64),
        is_computed=np.array([client.task_lags is not None for client in clients], dtype=np.bool_),
    )


def _items(what: str, values: Mapping[Key, Value] | None, key: type[Key]) -> list[tuple[Key, Value]]:
    """The items of a mapping, whose keys are all of one kind; None: nothing."""
    if values is not None and not isinstance(values, Mapping):
        raise StateException(f"The {what} ({shown(values)}) must be a mapping.")
    found = list((values or {}).items())
    all_of(what, key, [one for one, _ in found])
    return found


def _check_int(what: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise StateException(f"{what} ({shown(value)}) must be an int from {low} to {high}.")
