"""The object face of a state: what KIP-924 names, as views that are made from the columns when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs
import numpy as np

from task_assignor.sdk.columns import MISSING, Int64Array, Role, StateColumns
from task_assignor.sdk.configs import INT64_MAX, AssignmentConfigs
from task_assignor.sdk.errors import LagsNotComputedError, StateException, UnknownTaskError
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId, TopicPartition
from task_assignor.sdk.text import shown


def _racks(racks: Iterable[str] | None) -> frozenset[str] | None:
    return None if racks is None else frozenset(racks)


def _rack_order(racks: frozenset[str] | None) -> tuple[bool, list[str]]:
    return racks is not None, sorted(racks or ())


def _strings(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


def _partitions(values: Iterable[TaskTopicPartition]) -> tuple[TaskTopicPartition, ...]:
    return tuple(values)


@attrs.frozen(order=True)
class TaskTopicPartition:
    """A topic partition of a task (KIP-924, `TaskTopicPartition`).

    Args:
        topic_partition: topic and partition.
        is_source: it belongs to a source topic.
        is_changelog: it belongs to a changelog topic; a source topic can be one too.
        rack_ids: racks that hold a replica; None: not known, which is not the same as none.
    """

    topic_partition: TopicPartition
    is_source: bool = True
    is_changelog: bool = False
    rack_ids: frozenset[str] | None = attrs.field(default=None, converter=_racks, order=_rack_order)


@attrs.frozen
class TaskInfo:
    """What is known of a task (KIP-924, `TaskInfo`).

    Args:
        id: the task.
        is_stateful: it has at least one state store, logged or not.
        state_store_names: names of its stores.
        topic_partitions: its source and changelog partitions, in the order given.
    """

    id: TaskId
    is_stateful: bool
    state_store_names: frozenset[str] = attrs.field(default=frozenset(), converter=_strings)
    topic_partitions: tuple[TaskTopicPartition, ...] = attrs.field(default=(), converter=_partitions)

    @property
    def has_changelog(self) -> bool:
        """At least one partition is a changelog: such tasks have lags and get standbys."""
        return any(partition.is_changelog for partition in self.topic_partitions)


class _Tasks(Mapping[TaskId, TaskInfo]):
    """Task id -> `TaskInfo`, in task-id order; each made when it is read."""

    __slots__ = ("_columns",)

    def __init__(self, columns: StateColumns) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns.tasks)

    def __iter__(self) -> Iterator[TaskId]:
        tasks = self._columns.tasks
        return (tasks.task_id(task) for task in range(len(tasks)))

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, TaskId) and self._columns.tasks.find(task_id) >= 0

    def __getitem__(self, task_id: TaskId) -> TaskInfo:
        tasks = self._columns.tasks
        task = tasks.find(task_id)
        if task < 0:
            raise UnknownTaskError(f"The application has no task {task_id}.")
        partitions = []
        rows = tasks.partitions_of(task)
        for row in range(rows.start, rows.stop):
            rack_set = int(tasks.partition_rack_set[row])
            partitions.append(
                TaskTopicPartition(
                    TopicPartition(tasks.topics[int(tasks.partition_topic[row])], int(tasks.partition_number[row])),
                    bool(tasks.partition_is_source[row]),
                    bool(tasks.partition_is_changelog[row]),
                    None if rack_set < 0 else tasks.rack_sets[rack_set],
                )
            )
        return TaskInfo(
            task_id, bool(tasks.is_stateful[task]), tasks.store_sets[int(tasks.store_set[task])], partitions
        )

    def __repr__(self) -> str:
        return f"<{len(self)} tasks>"


class _LagSums(Mapping[TaskId, int]):
    """Task id -> lag of one client, for all tasks that have a changelog."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: StateColumns, row: Int64Array) -> None:
        self._columns = columns
        self._row = row

    def __len__(self) -> int:
        return int((self._row != MISSING).sum())

    def __iter__(self) -> Iterator[TaskId]:
        return (self._columns.tasks.task_id(int(task)) for task in np.flatnonzero(self._row != MISSING))

    def __getitem__(self, task_id: TaskId) -> int:
        task = self._columns.tasks.find(task_id)
        lag = MISSING if task < 0 else int(self._row[task])
        if lag == MISSING:
            raise UnknownTaskError(f"There is no lag for task {task_id}: it is unknown or has no changelog.")
        return lag


class KafkaStreamsState:
    """What is known of one client (KIP-924, `KafkaStreamsState`). Made by `ApplicationState.kafka_streams_states`."""

    __slots__ = ("_client", "_columns", "_lags_visible")

    def __init__(self, columns: StateColumns, client: int, lags_visible: bool) -> None:
        self._columns = columns
        self._client = client
        self._lags_visible = lags_visible

    @property
    def process_id(self) -> ProcessId:
        """Identity of the client."""
        return self._columns.clients.process_ids[self._client]

    @property
    def num_processing_threads(self) -> int:
        """Number of threads: the client's capacity relative to the others."""
        return int(self._columns.clients.num_processing_threads[self._client])

    @property
    def consumer_client_ids(self) -> tuple[str, ...]:
        """The consumers of the client, sorted. As in Kafka's code these are the *member* ids."""
        return self._columns.clients.consumers[self._client]

    @property
    def previous_active_tasks(self) -> tuple[TaskId, ...]:
        """Tasks that were active here before this rebalance, sorted; also those that no longer exist."""
        return self._previous(Role.ACTIVE)

    @property
    def previous_standby_tasks(self) -> tuple[TaskId, ...]:
        """Tasks of which state was here before this rebalance, sorted; also those that no longer exist."""
        return self._previous(Role.STANDBY)

    def _previous(self, role: Role) -> tuple[TaskId, ...]:
        tasks = self._columns.tasks.task_ids(self._columns.previous_tasks(self._client, role).tolist())
        gone = [
            task_id
            for client, kind, task_id in self._columns.previous.vanished
            if (client, kind) == (self._client, role)
        ]
        return tuple(sorted(tasks + gone)) if gone else tuple(tasks)

    def lag_for(self, task: TaskId) -> int:
        """How many offsets the client's state of `task` is behind; the end offset sum if it has none of it.

        Returns:
            Offsets; -2 if this was an active running task here; -3 if the lag could not be computed.

        Raises:
            LagsNotComputedError: lags were not asked for, or could not be had for this client.
            UnknownTaskError: no such task, or the task has no changelog.
        """
        self._check_lags()
        columns = self._columns
        number = columns.tasks.find(task)
        if number >= 0:
            start, stop = int(columns.lag_offsets[self._client]), int(columns.lag_offsets[self._client + 1])
            row = start + int(np.searchsorted(columns.lags.task[start:stop], number))
            if row < stop and columns.lags.task[row] == number:
                return int(columns.lags.lag[row])
            if columns.tasks.has_changelog[number]:
                return int(columns.tasks.end_offset_sum[number])
        raise UnknownTaskError(
            f"There is no lag for task {task} on client {self.process_id}: the task is unknown or has no changelog."
        )

    def prev_tasks_by_lag(self, consumer_client_id: str) -> tuple[TaskId, ...]:
        """Previous stateful tasks of one consumer, by lag, then task id; only tasks that still exist.

        An unknown consumer has none, as in Kafka.

        Raises:
            LagsNotComputedError: lags were not asked for, or could not be had for this client.
        """
        self._check_lags()
        columns = self._columns
        names = columns.clients.consumers[self._client]
        if consumer_client_id not in names:
            return ()
        first = int(np.searchsorted(columns.consumer_client, self._client))
        consumer = first + names.index(consumer_client_id)
        start, stop = np.searchsorted(columns.previous.consumer, [consumer, consumer + 1])
        tasks = columns.previous.consumer_task[start:stop]
        lags = columns.lag_row(self._client)[tasks]
        order = np.lexsort((tasks, lags))
        return tuple(columns.tasks.task_ids(tasks[order].tolist()))

    @property
    def stateful_tasks_to_lag_sums(self) -> Mapping[TaskId, int]:
        """Task id -> lag, as `lag_for` gives it, for all tasks that have a changelog. Made when read.

        Raises:
            LagsNotComputedError: lags were not asked for, or could not be had for this client.
        """
        self._check_lags()
        return _LagSums(self._columns, self._columns.lag_row(self._client))

    def _check_lags(self) -> None:
        if not self._lags_visible:
            raise LagsNotComputedError(
                "Lags were not asked for. Take the states with kafka_streams_states(compute_task_lags=True)."
            )
        if not self._columns.lags.is_computed[self._client]:
            raise LagsNotComputedError(f"The lags of client {self.process_id} are not known (taskLags is null).")

    @property
    def host_info(self) -> HostInfo | None:
        """Where the client answers queries (`application.server`), if set."""
        return self._columns.clients.host_infos[self._client]

    @property
    def client_tags(self) -> Mapping[str, str]:
        """The client's tags (`client.tag.*`), key -> value."""
        return self._columns.clients.client_tags[self._client]

    @property
    def rack_id(self) -> str | None:
        """The client's rack (`client.rack`), if set."""
        rack = int(self._columns.clients.rack[self._client])
        return None if rack < 0 else self._columns.clients.racks[rack]

    def __repr__(self) -> str:
        return f"KafkaStreamsState({self.process_id})"


class _Clients(Mapping[ProcessId, KafkaStreamsState]):
    """Process id -> `KafkaStreamsState`, in process-id order; each made when it is read."""

    __slots__ = ("_columns", "_lags_visible")

    def __init__(self, columns: StateColumns, lags_visible: bool) -> None:
        self._columns = columns
        self._lags_visible = lags_visible

    def __len__(self) -> int:
        return len(self._columns.clients)

    def __iter__(self) -> Iterator[ProcessId]:
        return iter(self._columns.clients.process_ids)

    def __getitem__(self, process_id: ProcessId) -> KafkaStreamsState:
        client = self._columns.clients.find(process_id)
        if client < 0:
            raise KeyError(process_id)
        return KafkaStreamsState(self._columns, client, self._lags_visible)

    def __repr__(self) -> str:
        return f"<{len(self)} clients>"


class ApplicationState:
    """Everything an assignor decides from (KIP-924, `ApplicationState`). A value: nothing in it changes.

    Args:
        columns: tasks, clients, previous tasks, lags.
        assignment_configs: the settings that matter for assignment.
        now_ms: time of the rebalance, milliseconds since the epoch. An assignor takes the time from here.
    """

    __slots__ = ("_columns", "_configs", "_now_ms")

    def __init__(
        self, columns: StateColumns, assignment_configs: AssignmentConfigs | None = None, now_ms: int = 0
    ) -> None:
        if type(now_ms) is not int or not 0 <= now_ms <= INT64_MAX:
            raise StateException(f"The now_ms ({shown(now_ms)}) must be an int of milliseconds from 0 to 2^63 - 1.")
        self._columns = columns
        self._configs = AssignmentConfigs() if assignment_configs is None else assignment_configs
        self._now_ms = now_ms

    @property
    def columns(self) -> StateColumns:
        """The column face: read-only arrays."""
        return self._columns

    @property
    def now_ms(self) -> int:
        """Time of the rebalance, milliseconds since the epoch."""
        return self._now_ms

    @property
    def assignment_configs(self) -> AssignmentConfigs:
        """The settings that matter for assignment."""
        return self._configs

    @property
    def all_tasks(self) -> Mapping[TaskId, TaskInfo]:
        """All tasks to be assigned, in task-id order. Reading one does not build the others."""
        return _Tasks(self._columns)

    def kafka_streams_states(self, compute_task_lags: bool) -> Mapping[ProcessId, KafkaStreamsState]:
        """All clients, in process-id order.

        Args:
            compute_task_lags: whether the states shall show lags; without, their lag methods raise.
        """
        return _Clients(self._columns, compute_task_lags)

    def __repr__(self) -> str:
        return f"ApplicationState({len(self._columns.tasks)} tasks, {len(self._columns.clients)} clients)"
