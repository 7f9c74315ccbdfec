"""The object face of a state: what KIP-924 names, as views that are made from the columns when somebody asks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import attrs
import numpy as np

from task_assignor.sdk.arrays import place_of
from task_assignor.sdk.checks import all_of, check_flag, strings
from task_assignor.sdk.columns import MISSING, Role, StateColumns
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.sdk.equality import same_states
from task_assignor.sdk.errors import LagsNotComputedError, StateException, UnknownClientError, UnknownTaskError
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId, TopicPartition
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.text import counted, shown

_sort_key = operator.attrgetter("sort_key")


def _racks(racks: Iterable[str] | None) -> frozenset[str] | None:
    return None if racks is None else strings("rack_ids", racks)


def _rack_order(racks: frozenset[str] | None) -> tuple[bool, list[str]]:
    return racks is not None, sorted(racks or ())


def _store_names(values: Iterable[str]) -> frozenset[str]:
    return strings("state_store_names", values)


def partitions_of(
    what: str, values: Iterable[TaskTopicPartition], owner: object = None
) -> tuple[TaskTopicPartition, ...]:
    """The partitions in the order given; those of a set, which has another one in every process, in their own."""
    found = all_of(what, TaskTopicPartition, values, owner)
    return tuple(sorted(found)) if isinstance(values, AbstractSet) else found


def _partitions(values: Iterable[TaskTopicPartition]) -> tuple[TaskTopicPartition, ...]:
    return partitions_of("topic_partitions", values)


def _named(task_id: object) -> str:
    return str(task_id) if isinstance(task_id, TaskId) else f"{shown(task_id)} (not a TaskId; maybe use TaskId.parse)"


@attrs.frozen(order=True)
class TaskTopicPartition:
    """A topic partition of a task (KIP-924, Read-only APIs, `TaskTopicPartition`).

    Args:
        topic_partition: topic and partition.
        is_source: it belongs to a source topic.
        is_changelog: it belongs to a changelog topic; a source topic can be one too.
        rack_ids: racks that hold a replica; None: not known, which is not the same as none.

    Raises:
        StateException: a value is of the wrong kind, or the topic has no name.
    """

    topic_partition: TopicPartition
    is_source: bool = True
    is_changelog: bool = False
    rack_ids: frozenset[str] | None = attrs.field(default=None, converter=_racks, order=_rack_order)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.topic_partition, TopicPartition):
            raise StateException(
                f"The topic_partition of a TaskTopicPartition ({shown(self.topic_partition)}) must be a "
                "TopicPartition(topic, partition)."
            )
        if not self.topic_partition.topic:
            raise StateException("The topic of a TaskTopicPartition must be a str that is not empty, but is ''.")
        check_flag("is_source of the partition", self.is_source, self.topic_partition)
        check_flag("is_changelog of the partition", self.is_changelog, self.topic_partition)


@attrs.frozen
class TaskInfo:
    """What is known of a task (KIP-924, Read-only APIs, `TaskInfo`).

    Args:
        id: the task.
        is_stateful: it has at least one state store, logged or not.
        state_store_names: names of its stores.
        topic_partitions: its source and changelog partitions, in the order given; of a set in their own.

    Raises:
        StateException: a value is of the wrong kind.
    """

    id: TaskId
    is_stateful: bool
    state_store_names: frozenset[str] = attrs.field(default=frozenset(), converter=_store_names)
    topic_partitions: tuple[TaskTopicPartition, ...] = attrs.field(default=(), converter=_partitions)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.id, TaskId):
            raise StateException(
                f"The id of a TaskInfo ({shown(self.id)}) must be a TaskId. Maybe use TaskId.parse(text)."
            )
        check_flag("is_stateful of task", self.is_stateful, self.id)

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
        task = tasks.find(task_id) if isinstance(task_id, TaskId) else -1
        if task < 0:
            raise UnknownTaskError(f"The application has no task {_named(task_id)}.")
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
    """Task id -> lag of one client, for all tasks that have one. Reading one lag does not make the others."""

    __slots__ = ("_client", "_columns")

    def __init__(self, columns: StateColumns, client: int) -> None:
        self._columns = columns
        self._client = client

    def __len__(self) -> int:
        rows = slice(*self._columns.lag_offsets[self._client : self._client + 2].tolist())
        has_changelog = self._columns.tasks.has_changelog
        return int(has_changelog.sum()) + int((~has_changelog[self._columns.lags.task[rows]]).sum())

    def __iter__(self) -> Iterator[TaskId]:
        row = self._columns.lag_row(self._client)
        return (self._columns.tasks.task_id(task) for task in np.flatnonzero(row != MISSING).tolist())

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, TaskId) and self._columns.lag_of(self._client, task_id) is not None

    def __getitem__(self, task_id: TaskId) -> int:
        lag = self._columns.lag_of(self._client, task_id) if isinstance(task_id, TaskId) else None
        if lag is None:
            raise UnknownTaskError(
                f"There is no lag for task {_named(task_id)} on client "
                f"{self._columns.clients.process_ids[self._client]}: the task is unknown or has no changelog."
            )
        return lag

    def __repr__(self) -> str:
        return f"<lags of {len(self)} tasks>"


class KafkaStreamsState:
    """What is known of one client. Made by `ApplicationState.kafka_streams_states`.

    Source: KIP-924, Read-only APIs, `KafkaStreamsState`.
    """

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
        gone = self._columns.previous.vanished_tasks(self._client, role)
        return tuple(sorted([*tasks, *gone], key=_sort_key)) if gone else tuple(tasks)

    def lag_for(self, task: TaskId) -> int:
        """How many offsets the client's state of `task` is behind; the end offset sum if it has none of it.

        Returns:
            Offsets; -2 if this was an active running task here; -3 if the lag could not be computed.

        Raises:
            LagsNotComputedError: lags were not asked for, or could not be had for this client.
            UnknownTaskError: no such task, or the task has no changelog.
        """
        self._check_lags()
        return _LagSums(self._columns, self._client)[task]

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
        consumer = place_of(columns.consumer_client, self._client) + names.index(consumer_client_id)
        start, stop = (place_of(columns.previous.consumer, each) for each in (consumer, consumer + 1))
        tasks = columns.previous.consumer_task[start:stop]
        lags = columns.lags_on(self._client, tasks)
        order = np.lexsort((tasks, lags))
        return tuple(columns.tasks.task_ids(tasks[order].tolist()))

    @property
    def stateful_tasks_to_lag_sums(self) -> Mapping[TaskId, int]:
        """Task id -> lag, as `lag_for` gives it, for all tasks that have a changelog. Made when read.

        Raises:
            LagsNotComputedError: lags were not asked for, or could not be had for this client.
        """
        self._check_lags()
        return _LagSums(self._columns, self._client)

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

    def __eq__(self, other: object) -> bool:
        # Views: each is made anew when it is asked for.
        if not isinstance(other, KafkaStreamsState):
            return NotImplemented
        return self._columns is other._columns and (self._client, self._lags_visible) == (
            other._client,
            other._lags_visible,
        )

    def __hash__(self) -> int:
        return hash((id(self._columns), self._client, self._lags_visible))

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
            raise UnknownClientError(f"The application has no client {shown(process_id)}.")
        return KafkaStreamsState(self._columns, client, self._lags_visible)

    def __repr__(self) -> str:
        return f"<{len(self)} clients>"


def check_given(assignment_configs: object, now_ms: object) -> None:
    """Raise StateException if a state cannot have such settings, or be of such a time."""
    if type(now_ms) is not int or not 0 <= now_ms <= INT64_MAX:
        raise StateException(f"The now_ms ({shown(now_ms)}) must be an int of milliseconds from 0 to 2^63 - 1.")
    if not isinstance(assignment_configs, AssignmentConfigs | None):
        raise StateException(f"The assignment_configs ({shown(assignment_configs)}) must be AssignmentConfigs.")


class ApplicationState:
    """Everything an assignor decides from (KIP-924, Read-only APIs, `ApplicationState`). A value: nothing in it changes.

    Args:
        columns: tasks, clients, previous tasks, lags.
        assignment_configs: the settings that matter for assignment.
        now_ms: time of the rebalance, milliseconds since the epoch. An assignor takes the time from here.

    Raises:
        StateException: a value is of the wrong kind or out of range.
    """

    __slots__ = ("_columns", "_configs", "_now_ms")

    def __init__(
        self, columns: StateColumns, assignment_configs: AssignmentConfigs | None = None, now_ms: int = 0
    ) -> None:
        check_given(assignment_configs, now_ms)
        if not isinstance(columns, StateColumns):
            raise StateException(
                f"The columns ({shown(columns)}) must be StateColumns. Maybe use an ApplicationStateBuilder."
            )
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

        Raises:
            StateException: it is neither True nor False.
        """
        check_flag("compute_task_lags", compute_task_lags)
        return _Clients(self._columns, compute_task_lags)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ApplicationState):
            return NotImplemented
        return (self._now_ms, self._configs) == (other._now_ms, other._configs) and same_states(
            self._columns, other._columns
        )

    def __hash__(self) -> int:
        return hash((self._now_ms, self._configs, len(self._columns.tasks), self._columns.clients.process_ids))

    def __repr__(self) -> str:
        tasks, clients = counted(len(self._columns.tasks), "task"), counted(len(self._columns.clients), "client")
        return f"ApplicationState({tasks}, {clients})"
