"""From objects to columns: `ApplicationStateBuilder` takes tasks and clients in any order and makes an `ApplicationState`."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self, TypeVar

import attrs
import numpy as np

from task_assignor.sdk.arrays import Int64Array, csr_rows, distinct
from task_assignor.sdk.checks import all_of, string_pairs, strings
from task_assignor.sdk.collected import BuiltTasks, Group, GroupOrder, Numbers, TaskLists, TaskTable
from task_assignor.sdk.columns import (
    MISSING,
    NO_RACK,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    not_stateless,
)
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId
from task_assignor.sdk.integers import INT32_MAX, INT64_MAX
from task_assignor.sdk.state import ApplicationState, TaskInfo, TaskTopicPartition, check_given, partitions_of
from task_assignor.sdk.text import shown

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@attrs.frozen(eq=False)
class _Client:
    """What was given for one client, but for its tasks; `consumers` are sorted."""

    process_id: ProcessId
    threads: int
    consumers: tuple[str, ...]
    host_info: HostInfo | None
    rack_id: str | None
    tags: Mapping[str, str]
    has_lags: bool
    generation: int | None


class ApplicationStateBuilder:
    """Collects tasks and clients, in any order, and builds an `ApplicationState`.

    Args:
        configs: the settings; None: Kafka's defaults.
        now_ms: time of the rebalance, milliseconds since the epoch.

    Raises:
        StateException: one of them is something else.

    Examples:
        >>> builder = ApplicationStateBuilder().add_task(TaskId(0, 0)).add_client(ProcessId.parse("0" * 8 + "-0000" * 3 + "-" + "0" * 12))
        >>> builder.build()
        ApplicationState(1 task, 1 client)
    """

    def __init__(self, configs: AssignmentConfigs | None = None, now_ms: int = 0) -> None:
        check_given(configs, now_ms)
        self._configs = configs
        self._now_ms = now_ms
        self._groups: Numbers[Group] = Numbers()
        self._tasks = TaskTable(self._groups)
        self._clients: dict[ProcessId, _Client] = {}
        # In the order of the clients: for each one list of active tasks and one of standbys,
        self._previous = TaskLists(self._groups)
        # for each of its consumers, sorted, one list,
        self._of_consumers = TaskLists(self._groups)
        # for each the tasks that have lags, and these.
        self._with_lags = TaskLists(self._groups)
        self._lags = array("q")

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
            StateException: the task is there already or has a partition twice, a value is of the wrong kind, or a task that
                is not stateful has stores or a changelog.
        """
        if not isinstance(task_id, TaskId):
            raise StateException(f"The task id ({shown(task_id)}) must be a TaskId. Maybe use TaskId.parse(text).")
        if task_id in self._tasks:
            raise StateException(f"The task {task_id} is there twice.")
        if end_offset_sum is not None and not _is_int(end_offset_sum, -3, INT64_MAX):
            raise _no_int(f"The end offset sum of task {task_id}", end_offset_sum, -3, INT64_MAX)
        if not isinstance(is_stateful, bool | np.bool_):
            raise StateException(f"The is_stateful of task {task_id} ({shown(is_stateful)}) must be True or False.")
        stores = strings("state_store_names of task", state_store_names, task_id)
        partitions = partitions_of("topic_partitions of task", topic_partitions, task_id)
        if len(partitions) > 1 and len({each.topic_partition for each in partitions}) < len(partitions):
            twice = Counter(each.topic_partition for each in partitions).most_common(1)[0][0]
            raise StateException(f"The task {task_id} has the partition {twice} twice.")
        if not is_stateful and (stores or any(partition.is_changelog for partition in partitions)):
            raise StateException(f"The task {task_id} {not_stateless(bool(stores))}")
        self._tasks.add(
            task_id,
            bool(is_stateful),
            stores,
            partitions,
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
            rack_id: `client.rack`; empty, as there: none.
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
        if not _is_int(num_processing_threads, 1, INT32_MAX):
            raise _no_int(f"The num_processing_threads {where}", num_processing_threads, 1, INT32_MAX)
        if generation is not None and not _is_int(generation, 0, INT64_MAX):
            raise _no_int(f"The generation {where}", generation, 0, INT64_MAX)
        if host_info is not None and not (isinstance(host_info, HostInfo) and host_info.host):
            # A snapshot with an empty host could not be read again.
            raise StateException(
                f"The host_info {where} ({shown(host_info)}) must be a HostInfo(host, port) whose host is not empty, or None."
            )
        if not isinstance(rack_id, str | None):
            raise StateException(f"The rack_id {where} ({shown(rack_id)}) must be a str or None.")
        of_consumer = {
            name: all_of(f"tasks of consumer {name} {where}", TaskId, tasks)
            for name, tasks in _mapping(f"consumers {where}", {} if consumers is None else consumers, str).items()
        }
        tags = string_pairs(f"client_tags {where}", {} if client_tags is None else client_tags)
        active = all_of(f"previous_active_tasks {where}", TaskId, previous_active_tasks)
        standby = all_of(f"previous_standby_tasks {where}", TaskId, previous_standby_tasks)
        lags = _mapping(f"task_lags {where}", {} if task_lags is None else task_lags, TaskId)
        for task_id, lag in lags.items():
            if not _is_int(lag, -3, INT64_MAX):
                raise _no_int(f"The lag of task {task_id} on client {process_id}", lag, -3, INT64_MAX)
        # Nothing fails from here on.
        names = tuple(sorted(of_consumer))
        self._clients[process_id] = _Client(
            process_id,
            num_processing_threads,
            names,
            host_info,
            rack_id or None,
            tags,
            task_lags is not None,
            generation,
        )
        self._previous.add(active)
        self._previous.add(standby)
        for name in names:
            self._of_consumers.add(of_consumer[name])
        self._with_lags.add(lags)
        self._lags.extend(lags.values())
        return self

    def build(self) -> ApplicationState:
        """The state.

        Raises:
            StateException: a lag is missing or out of range, or for a task that does not exist.
        """
        order = GroupOrder(self._groups)
        tasks = self._tasks.build(order)
        clients = list(self._clients.values())
        by_id = sorted(range(len(clients)), key=lambda number: clients[number].process_id.signed_halves)
        ordered = [clients[number] for number in by_id]
        columns = StateColumns(
            tasks.columns,
            _client_columns(ordered),
            self._previous_columns(order, tasks, by_id),
            self._lag_columns(order, tasks, by_id, ordered),
        )
        return ApplicationState(columns, self._configs, self._now_ms)

    def _previous_columns(self, order: GroupOrder, tasks: BuiltTasks, by_id: list[int]) -> PreviousColumns:
        lists = self._previous.of_row()
        owner = _ranks(by_id)[lists // len(Role)] * len(Role) + lists % len(Role)
        owner, task, gone = _distinct(owner, self._previous.keys(order), tasks, order)
        counts = [len(client.consumers) for client in self._clients.values()]
        of_clients = csr_rows(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), by_id)
        consumer = _ranks(of_clients)[self._of_consumers.of_row()]
        consumer, consumer_task, gone_of_consumer = _distinct(consumer, self._of_consumers.keys(order), tasks, order)
        return PreviousColumns(
            client=owner // len(Role),
            role=owner % len(Role),
            task=task,
            consumer=consumer,
            consumer_task=consumer_task,
            vanished=[(number // len(Role), Role(number % len(Role)), task_id) for number, task_id in gone],
            vanished_of_consumer=gone_of_consumer,
        )

    def _lag_columns(
        self, order: GroupOrder, tasks: BuiltTasks, by_id: list[int], clients: list[_Client]
    ) -> LagColumns:
        client = _ranks(by_id)[self._with_lags.of_row()]
        keys = self._with_lags.keys(order)
        task = tasks.find(keys)
        unknown = np.flatnonzero(task < 0)
        if len(unknown):
            row = int(unknown[np.lexsort((keys[unknown], client[unknown]))[0]])
            raise StateException(
                f"There is a lag on client {clients[int(client[row])].process_id} for task "
                f"{order.task_ids(keys[row : row + 1])[0]}, but no such task."
            )
        rows = np.argsort(client * len(tasks.keys) + task)
        return LagColumns(
            client=client[rows],
            task=task[rows],
            lag=np.array(self._lags, dtype=np.int64)[rows],
            is_computed=np.array([client.has_lags for client in clients], dtype=np.bool_),
        )


def _ranks(order: Sequence[int] | Int64Array) -> Int64Array:
    """(N,) where each number is in `order`, which holds each of 0..N-1 once."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    return ranks


def _distinct(
    owner: Int64Array, keys: Int64Array, tasks: BuiltTasks, order: GroupOrder
) -> tuple[Int64Array, Int64Array, list[tuple[int, TaskId]]]:
    """Distinct sorted pairs: owners and task numbers, and owners with ids of tasks that do not exist."""
    task = tasks.find(keys)
    width = max(len(tasks.keys), 1)
    there = task >= 0
    pairs = distinct(owner[there] * width + task[there])
    gone = sorted(set(zip(owner[~there].tolist(), keys[~there].tolist(), strict=True)))
    task_ids = order.task_ids(np.array([key for _, key in gone], dtype=np.int64))
    return pairs // width, pairs % width, list(zip((number for number, _ in gone), task_ids, strict=True))


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
        consumers=[client.consumers for client in clients],
        generation=[MISSING if client.generation is None else client.generation for client in clients],
    )


def _mapping(what: str, values: Mapping[Key, Value], key: type[Key]) -> dict[Key, Value]:
    """A copy of a mapping, whose keys are all of one kind."""
    if not isinstance(values, Mapping):
        raise StateException(f"The {what} ({shown(values)}) must be a mapping.")
    for found in values:
        if not isinstance(found, key):
            advice = " Maybe use TaskId.parse(text)." if key is TaskId else ""
            raise StateException(
                f"The {what} must be a mapping from {key.__name__}, but one key is {shown(found)}.{advice}"
            )
    return dict(values)


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _no_int(what: str, value: object, low: int, high: int) -> StateException:
    return StateException(f"{what} ({shown(value)}) must be an int from {low} to {high}.")
