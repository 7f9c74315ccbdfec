"""Short ways to write down a state or an assignment by hand, for examples and tests. Random ones are made elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.testing.specs import ClientSpec, TaskSpec, state_of

END_OFFSET_SUM: Final = 150_000
"""End offset sum of tasks by default: more than what `acceptable_recovery_lag` is by default, so who has nothing is not caught up."""
_NO_LAGS: Mapping[str, int] = MappingProxyType({})


def a_process_id(number: int) -> ProcessId:
    """The process id with this number in its last digits: `a_process_id(2)` is 00000000-...-000000000002."""
    return ProcessId(uuid.UUID(int=number))


def a_task_id(task: str | TaskId) -> TaskId:
    """The task id, written as `0_1` or given."""
    return task if isinstance(task, TaskId) else TaskId.parse(task)


def a_stateless_task(task: str | TaskId, *, racks: Iterable[str] | None = None) -> TaskSpec:
    """A task without stores that reads one topic.

    Args:
        task: its id, such as `0_1`.
        racks: racks that hold replicas of its partition; None: not known.
    """
    task_id = a_task_id(task)
    return TaskSpec(task_id=task_id, topic_partitions=[_partition(task_id, "in", racks)])


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
    """
    task_id = a_task_id(task)
    return TaskSpec(
        task_id=task_id,
        is_stateful=True,
        state_store_names=[f"store-{task_id.subtopology}"],
        topic_partitions=[
            _partition(task_id, "in", racks),
            _partition(
                task_id,
                "changelog",
                racks if changelog_racks is None else changelog_racks,
                source=False,
                changelog=True,
            ),
        ],
        end_offset_sum=end_offset_sum,
    )


def stateless_tasks(subtopology: int, partitions: int, **same: Any) -> list[TaskSpec]:
    """One `a_stateless_task` for each partition; further arguments hold for all of them."""
    return [a_stateless_task(TaskId(subtopology, partition), **same) for partition in range(partitions)]


def stateful_tasks(subtopology: int, partitions: int, **same: Any) -> list[TaskSpec]:
    """One `a_stateful_task` for each partition; further arguments hold for all of them."""
    return [a_stateful_task(TaskId(subtopology, partition), **same) for partition in range(partitions)]


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
        threads: its capacity; it gets a consumer for each thread.
        rack: `client.rack`.
        tags: `client.tag.*`.
        active: tasks that were active here.
        standby: tasks of which state is here.
        lags: task -> lag in offsets. What is left out is filled in by `a_state`: active tasks are running (-2), standbys
            are caught up (0), all others have their end offset sum. None: the lags of this client are not known.
        generation: generation of what the client says of its previous tasks.
    """
    process_id = number if isinstance(number, ProcessId) else a_process_id(number)
    return ClientSpec(
        process_id=process_id,
        num_processing_threads=threads,
        consumers={f"{process_id}-consumer-{thread}": () for thread in range(threads)},
        rack_id=rack,
        client_tags={} if tags is None else tags,
        previous_active_tasks=map(a_task_id, active),
        previous_standby_tasks=map(a_task_id, standby),
        task_lags=None if lags is None else {a_task_id(task): lag for task, lag in lags.items()},
        generation=generation,
    )


def a_state(
    tasks: Iterable[TaskSpec | str | TaskId],
    clients: Iterable[ClientSpec | int] | int,
    *,
    now_ms: int = 0,
    **configs: Any,
) -> ApplicationState:
    """A state.

    Args:
        tasks: tasks; ids stand for stateful tasks.
        clients: clients; numbers stand for clients that had nothing. A number alone: so many of them, from 1.
        now_ms: time of the rebalance, milliseconds since the epoch.
        **configs: settings, as `AssignmentConfigs` takes them.

    Examples:
        >>> state = a_state(["0_0", "0_1"], [a_client(1, active=["0_0"]), 2], num_standby_replicas=1)
        >>> state
        ApplicationState(2 tasks, 2 clients)
        >>> client = state.kafka_streams_states(compute_task_lags=True)[a_process_id(1)]
        >>> client.previous_active_tasks, client.lag_for(TaskId(0, 0)), client.lag_for(TaskId(0, 1))
        ((TaskId(0_0),), -2, 150000)
    """
    all_tasks = [task if isinstance(task, TaskSpec) else a_stateful_task(task) for task in tasks]
    numbered = range(1, clients + 1) if isinstance(clients, int) else clients
    all_clients = [a_client(client) if isinstance(client, int) else client for client in numbered]
    with_changelog = {task.task_id for task in all_tasks if task.has_changelog}
    return state_of(
        all_tasks,
        [_complete(client, with_changelog) for client in all_clients],
        AssignmentConfigs(**configs),
        now_ms,
    )


def an_assignment(
    state: ApplicationState,
    active: Mapping[int, Iterable[str | TaskId]] | None = None,
    standby: Mapping[int, Iterable[str | TaskId]] | None = None,
) -> TaskAssignment:
    """An assignment that names every client of the state, and those given besides.

    Args:
        state: the state.
        active: number of the client (see `a_process_id`) -> its active tasks.
        standby: number of the client -> its standby tasks.

    Examples:
        >>> an_assignment(a_state(["0_0"], 2), active={1: ["0_0"]}).assignment[0].tasks[TaskId(0, 0)].type.value
        'ACTIVE'
    """
    tasks: dict[ProcessId, list[AssignedTask]] = {client: [] for client in state.columns.clients.process_ids}
    for given, role in ((active, AssignedTask.Type.ACTIVE), (standby, AssignedTask.Type.STANDBY)):
        for number, task_ids in (given or {}).items():
            assigned = [AssignedTask(a_task_id(task), role) for task in task_ids]
            tasks.setdefault(a_process_id(number), []).extend(assigned)
    return TaskAssignment(KafkaStreamsAssignment.of(client, assigned) for client, assigned in tasks.items())


def _partition(
    task: TaskId, topic: str, racks: Iterable[str] | None, source: bool = True, changelog: bool = False
) -> TaskTopicPartition:
    prefix = "" if task.topology_name is None else f"{task.topology_name}-"
    topic_partition = TopicPartition(f"{prefix}{topic}-{task.subtopology}", task.partition)
    return TaskTopicPartition(topic_partition, source, changelog, None if racks is None else frozenset(racks))


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
