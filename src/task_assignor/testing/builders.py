"""Short ways to write down a state or an assignment by hand, for examples and tests. Random ones are made elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypedDict, Unpack

import attrs

from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.sdk.checks import strings, whole_number
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import shown
from task_assignor.testing.arguments import listed_values
from task_assignor.testing.specs import MOST_CONSUMERS, ClientSpec, TaskSpec, state_of
from task_assignor.validation.rows import check_state

END_OFFSET_SUM: Final = 150_000
"""End offset sum of tasks by default: more than what `acceptable_recovery_lag` is by default, so who has nothing is not caught up."""
_NO_LAGS: Mapping[str, int] = MappingProxyType({})


class ConfigArguments(TypedDict, total=False):
    """The arguments of `AssignmentConfigs`, for functions that hand them on."""

    acceptable_recovery_lag: int
    max_warmup_replicas: int
    num_standby_replicas: int
    probing_rebalance_interval_ms: int
    rack_aware_assignment_tags: object  # as AssignmentConfigs, which checks it
    rack_aware_traffic_cost: int | None
    rack_aware_non_overlap_cost: int | None
    rack_aware_assignment_strategy: str


def a_process_id(number: int) -> ProcessId:
    """The process id with this number in its last digits: `a_process_id(2)` is 00000000-...-000000000002.

    Raises:
        StateException: the number is not an int from 0 to 2^128 - 1.
    """
    return ProcessId(uuid.UUID(int=whole_number("number of the client", number, 0, 2**128 - 1, StateException)))


def a_task_id(task: str | TaskId) -> TaskId:
    """The task id, written as `0_1` or given.

    Raises:
        TaskIdFormatException: it is neither.
    """
    return task if isinstance(task, TaskId) else TaskId.parse(task)


def a_stateless_task(task: str | TaskId, *, racks: Iterable[str] | None = None) -> TaskSpec:
    """A task without stores that reads one topic.

    Args:
        task: its id, such as `0_1`.
        racks: racks that hold replicas of its partition; None: not known.

    Raises:
        StateException: the racks are not a list of strings.
        TaskIdFormatException: the task is no task id.
    """
    task_id = a_task_id(task)
    return TaskSpec(task_id=task_id, topic_partitions=[_partition(task_id, "in", _racks("racks", racks, task_id))])


def a_stateful_task(
    task: str | TaskId,
    *,
    racks: Iterable[str] | None = None,
    changelog_racks: Iterable[str] | None = None,
    end_offset_sum: int | None = END_OFFSET_SUM,
) -> TaskSpec:
    """A task with one store that reads one topic and writes one changelog.

    Args:
        task: its id, such as `0_1`.
        racks: racks that hold replicas of its partitions; None: not known.
        changelog_racks: racks of its changelog, if they are others than `racks`.
        end_offset_sum: lag of clients that have none of its state, in offsets.

    Raises:
        StateException: the racks are not a list of strings.
        TaskIdFormatException: the task is no task id.
    """
    task_id = a_task_id(task)
    on = _racks("racks", racks, task_id)
    return TaskSpec(
        task_id=task_id,
        is_stateful=True,
        state_store_names=[f"store-{task_id.subtopology}"],
        topic_partitions=[
            _partition(task_id, "in", on),
            _partition(
                task_id,
                "changelog",
                on if changelog_racks is None else _racks("changelog_racks", changelog_racks, task_id),
                source=False,
                changelog=True,
            ),
        ],
        end_offset_sum=end_offset_sum,
    )


def stateless_tasks(subtopology: int, partitions: int, *, racks: Iterable[str] | None = None) -> list[TaskSpec]:
    """One `a_stateless_task` for each partition; further arguments hold for all of them.

    Raises:
        StateException: `partitions` is not an int from 0, or the racks are not a list of strings.
    """
    task_ids = _partitions_of(subtopology, partitions)
    same = None if racks is None else listed_values("racks", racks, "strings")
    return [a_stateless_task(task_id, racks=same) for task_id in task_ids]


def stateful_tasks(
    subtopology: int,
    partitions: int,
    *,
    racks: Iterable[str] | None = None,
    changelog_racks: Iterable[str] | None = None,
    end_offset_sum: int | None = END_OFFSET_SUM,
) -> list[TaskSpec]:
    """One `a_stateful_task` for each partition; further arguments hold for all of them.

    Raises:
        StateException: `partitions` is not an int from 0, or the racks are not a list of strings.
    """
    task_ids = _partitions_of(subtopology, partitions)
    same = None if racks is None else listed_values("racks", racks, "strings")
    of_changelog = None if changelog_racks is None else listed_values("changelog_racks", changelog_racks, "strings")
    return [
        a_stateful_task(task_id, racks=same, changelog_racks=of_changelog, end_offset_sum=end_offset_sum)
        for task_id in task_ids
    ]


def a_client(
    number: int | ProcessId,
    *,
    threads: int = 1,
    rack: str | None = None,
    tags: Mapping[str, str] | None = None,
    active: Iterable[str | TaskId] = (),
    standby: Iterable[str | TaskId] = (),
    lags: Mapping[str, int] | Mapping[TaskId, int] | None = _NO_LAGS,
    generation: int | None = None,
) -> ClientSpec:
    """A client.

    Args:
        number: its process id, or the number that `a_process_id` takes.
        threads: its capacity; it gets a consumer for each thread, but no more than 1 000.
        rack: `client.rack`.
        tags: `client.tag.*`.
        active: tasks that were active here.
        standby: tasks of which state is here.
        lags: task -> lag in offsets. What is left out is filled in by `a_state`: active tasks are running (-2), standbys
            are caught up (0), all others have their end offset sum. None: the lags of this client are not known.
        generation: generation of what the client says of its previous tasks.

    Raises:
        StateException: the number or the threads are out of range, the tasks are not a list, the lags not a mapping.
        TaskIdFormatException: a text is no task id.
    """
    process_id = process_id_of(number)
    capacity = whole_number(f"threads of client {process_id}", threads, 1, INT32_MAX, StateException)
    if not isinstance(lags, Mapping | None):
        raise StateException(
            f"The lags of client {process_id} ({shown(lags)}) must be a mapping from task ids to ints, or None."
        )
    return ClientSpec(
        process_id=process_id,
        num_processing_threads=capacity,
        consumers={f"{process_id}-consumer-{thread}": () for thread in range(min(capacity, MOST_CONSUMERS))},
        rack_id=rack,
        client_tags={} if tags is None else tags,
        previous_active_tasks=_task_ids(f"active tasks of client {process_id}", active),
        previous_standby_tasks=_task_ids(f"standby tasks of client {process_id}", standby),
        task_lags=None if lags is None else {a_task_id(task): lag for task, lag in lags.items()},
        generation=generation,
    )


def a_state(
    tasks: Iterable[TaskSpec | str | TaskId],
    clients: Iterable[ClientSpec | ProcessId | int] | int,
    *,
    now_ms: int = 0,
    **configs: Unpack[ConfigArguments],
) -> ApplicationState:
    """A state.

    Args:
        tasks: tasks; ids stand for stateful tasks.
        clients: clients; numbers and process ids stand for clients that had nothing. A number alone: so many of them, from 1.
        now_ms: time of the rebalance, milliseconds since the epoch.
        **configs: settings, as `AssignmentConfigs` takes them.

    Raises:
        ConfigException: a setting has a value that is not allowed.
        StateException: tasks or clients are not a list, one is there twice, or a value in one is wrong.
        TaskIdFormatException: a text is no task id.

    Examples:
        >>> state = a_state(["0_0", "0_1"], [a_client(1, active=["0_0"]), 2], num_standby_replicas=1)
        >>> state
        ApplicationState(2 tasks, 2 clients)
        >>> client = state.kafka_streams_states(compute_task_lags=True)[a_process_id(1)]
        >>> client.previous_active_tasks, client.lag_for(TaskId(0, 0)), client.lag_for(TaskId(0, 1))
        ((TaskId(0_0),), -2, 150000)
    """
    all_tasks, all_clients = task_specs(tasks), client_specs(clients)
    with_changelog = {task.task_id for task in all_tasks if task.has_changelog}
    return state_of(
        all_tasks,
        [_complete(client, with_changelog) for client in all_clients],
        AssignmentConfigs(**configs),
        now_ms,
    )


def an_assignment(
    state: ApplicationState,
    active: Mapping[int, Iterable[str | TaskId]] | Mapping[ProcessId, Iterable[str | TaskId]] | None = None,
    standby: Mapping[int, Iterable[str | TaskId]] | Mapping[ProcessId, Iterable[str | TaskId]] | None = None,
) -> TaskAssignment:
    """An assignment that names every client of the state, and those given besides.

    Args:
        state: the state.
        active: process id of the client, or its number (see `a_process_id`) -> its active tasks.
        standby: likewise -> its standby tasks.

    Raises:
        StateException: not a mapping, a number is out of range, tasks are not a list, or one client has a task in both
            roles.
        TaskIdFormatException: a text is no task id.

    Examples:
        >>> an_assignment(a_state(["0_0"], 2), active={1: ["0_0"]}).assignment[0].tasks[TaskId(0, 0)].type.value
        'ACTIVE'
    """
    check_state(state)
    tasks: dict[ProcessId, list[AssignedTask]] = {client: [] for client in state.columns.clients.process_ids}
    for given, role in ((active, AssignedTask.Type.ACTIVE), (standby, AssignedTask.Type.STANDBY)):
        what = f"{role.value.lower()} tasks"
        if not isinstance(given, Mapping | None):
            raise StateException(f"The {what} ({shown(given)}) must be a mapping from clients to lists of task ids.")
        for client, task_ids in (given or {}).items():
            process_id = process_id_of(client)
            assigned = [AssignedTask(task, role) for task in _task_ids(f"{what} of client {process_id}", task_ids)]
            tasks.setdefault(process_id, []).extend(assigned)
    return TaskAssignment(KafkaStreamsAssignment.of(client, assigned) for client, assigned in tasks.items())


def process_id_of(client: ProcessId | int) -> ProcessId:
    """The process id, or the one with this number.

    Raises:
        StateException: it is neither.
    """
    return client if isinstance(client, ProcessId) else a_process_id(client)


def task_specs(tasks: Iterable[TaskSpec | str | TaskId]) -> list[TaskSpec]:
    """The tasks; ids stand for stateful tasks.

    Raises:
        StateException: it is not a list.
        TaskIdFormatException: one is neither a task nor an id.
    """
    values = listed_values("tasks", tasks, "tasks and task ids")
    return [task if isinstance(task, TaskSpec) else a_stateful_task(task) for task in values]


def client_spec(client: ClientSpec | ProcessId | int) -> ClientSpec:
    """The client; numbers and process ids stand for clients that had nothing.

    Raises:
        StateException: it is none of these.
    """
    return client if isinstance(client, ClientSpec) else a_client(client)


def client_specs(clients: Iterable[ClientSpec | ProcessId | int] | int) -> list[ClientSpec]:
    """The clients, each as for `client_spec`. A number alone: so many of them, from 1.

    Raises:
        StateException: not a list, or one is no client.
    """
    if not isinstance(clients, Iterable):
        count = whole_number("number of clients", clients, 0, error=StateException)
        return [a_client(number) for number in range(1, count + 1)]
    return [client_spec(client) for client in listed_values("clients", clients, "clients and numbers")]


def _task_ids(what: str, tasks: Iterable[str | TaskId]) -> list[TaskId]:
    return [a_task_id(task) for task in listed_values(what, tasks, "task ids")]


def _partitions_of(subtopology: int, partitions: int) -> list[TaskId]:
    count = whole_number("partitions", partitions, 0, error=StateException)
    return [TaskId(subtopology, partition) for partition in range(count)]


def _racks(what: str, racks: Iterable[str] | None, task: TaskId) -> frozenset[str] | None:
    return None if racks is None else strings(f"{what} of task", racks, task)


def _partition(
    task: TaskId, topic: str, racks: frozenset[str] | None, source: bool = True, changelog: bool = False
) -> TaskTopicPartition:
    prefix = "" if task.topology_name is None else f"{task.topology_name}-"
    topic_partition = TopicPartition(f"{prefix}{topic}-{task.subtopology}", task.partition)
    return TaskTopicPartition(topic_partition, source, changelog, racks)


def _complete(client: ClientSpec, with_changelog: set[TaskId]) -> ClientSpec:
    """Fill in the lags that follow from the previous tasks, and give these to the consumers in turn."""
    had = sorted({*client.previous_active_tasks, *client.previous_standby_tasks} & with_changelog)
    consumers = dict(client.consumers)
    if consumers and not any(consumers.values()):
        names = sorted(consumers)
        consumers = {name: tuple(had[number :: len(names)]) for number, name in enumerate(names)}
    lags = client.task_lags
    if lags is not None:
        known = dict.fromkeys(client.previous_standby_tasks, 0) | dict.fromkeys(
            client.previous_active_tasks, LATEST_OFFSET
        )
        lags = {task: lag for task, lag in known.items() if task in with_changelog} | dict(lags)
    return attrs.evolve(client, consumers=consumers, task_lags=lags)
