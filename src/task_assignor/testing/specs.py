"""Tasks and clients as plain values: what a state is made of and taken apart into. Nicer ways to write them are in `builders.py`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentConfigs,
    HostInfo,
    ProcessId,
    StateException,
    TaskId,
    TaskTopicPartition,
)
from task_assignor.sdk.checks import all_of, check_fields, strings, whole_number
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.state import partitions_of
from task_assignor.sdk.text import shown
from task_assignor.testing.arguments import listed_values
from task_assignor.validation.rows import check_state

MOST_CONSUMERS: Final = 1_000
"""A client has a consumer for each of its threads, but no more than so many."""


def _strings(values: Iterable[str]) -> frozenset[str]:
    return strings("state_store_names", values)


def _partitions(values: Iterable[TaskTopicPartition]) -> tuple[TaskTopicPartition, ...]:
    return partitions_of("topic_partitions", values)


def _task_ids(values: Iterable[TaskId]) -> tuple[TaskId, ...]:
    return all_of("previous tasks", TaskId, values)


@attrs.frozen(kw_only=True)
class TaskSpec:
    """A task, as `ApplicationStateBuilder.add_task` takes it.

    Raises:
        StateException: store names or partitions are no list of these.
    """

    task_id: TaskId
    is_stateful: bool = False
    state_store_names: frozenset[str] = attrs.field(default=frozenset(), converter=_strings)
    topic_partitions: tuple[TaskTopicPartition, ...] = attrs.field(default=(), converter=_partitions)
    end_offset_sum: int | None = None

    def __attrs_post_init__(self) -> None:
        check_fields(self, StateException, task_id=TaskId, is_stateful=bool, end_offset_sum=(int, None))

    @property
    def has_changelog(self) -> bool:
        """At least one partition is a changelog: the task has lags and gets standbys."""
        return any(partition.is_changelog for partition in self.topic_partitions)


@attrs.frozen(kw_only=True)
class ClientSpec:
    """A client, as `ApplicationStateBuilder.add_client` takes it.

    Raises:
        StateException: previous tasks are no list of task ids.
    """

    process_id: ProcessId
    num_processing_threads: int = 1
    consumers: Mapping[str, tuple[TaskId, ...]] = attrs.field(factory=dict)
    host_info: HostInfo | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = attrs.field(factory=dict)
    previous_active_tasks: tuple[TaskId, ...] = attrs.field(default=(), converter=_task_ids)
    previous_standby_tasks: tuple[TaskId, ...] = attrs.field(default=(), converter=_task_ids)
    task_lags: Mapping[TaskId, int] | None = attrs.field(factory=dict)
    generation: int | None = None

    def __attrs_post_init__(self) -> None:
        check_fields(
            self,
            StateException,
            process_id=ProcessId,
            num_processing_threads=int,
            consumers=Mapping,
            host_info=(HostInfo, None),
            rack_id=(str, None),
            client_tags=Mapping,
            task_lags=(Mapping, None),
            generation=(int, None),
        )
        # Who gave a mapping may go on with it; and those of a state cannot be pickled.
        for name in ("consumers", "client_tags", "task_lags"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else dict(given))


def state_of(
    tasks: Iterable[TaskSpec],
    clients: Iterable[ClientSpec],
    configs: AssignmentConfigs | None = None,
    now_ms: int = 0,
) -> ApplicationState:
    """The state that these tasks and clients make; their order plays no part.

    Raises:
        StateException: they make none (something else than specs, a task twice, a lag that is missing, ...).
    """
    builder = ApplicationStateBuilder(configs, now_ms)
    for task in listed_values("tasks", tasks, "TaskSpec"):
        builder.add_task(**_arguments("task", task, TaskSpec))
    for client in listed_values("clients", clients, "ClientSpec"):
        builder.add_client(**_arguments("client", client, ClientSpec))
    return builder.build()


def specs_of(state: ApplicationState) -> tuple[list[TaskSpec], list[ClientSpec]]:
    """What the state is made of, tasks by task id and clients by process id."""
    check_state(state)
    columns = state.columns
    sums = columns.tasks.end_offset_sum.tolist()
    tasks = [
        TaskSpec(
            task_id=info.id,
            is_stateful=info.is_stateful,
            state_store_names=info.state_store_names,
            topic_partitions=info.topic_partitions,
            end_offset_sum=None if sums[number] == MISSING else sums[number],
        )
        for number, info in enumerate(state.all_tasks.values())
    ]
    consumers = _consumers(state)
    clients = []
    for number, (process_id, client) in enumerate(state.kafka_streams_states(compute_task_lags=True).items()):
        rows = slice(int(columns.lag_offsets[number]), int(columns.lag_offsets[number + 1]))
        task_ids = columns.tasks.task_ids(columns.lags.task[rows].tolist())
        lags = dict(zip(task_ids, columns.lags.lag[rows].tolist(), strict=True))
        generation = int(columns.clients.generation[number])
        clients.append(
            ClientSpec(
                process_id=process_id,
                num_processing_threads=client.num_processing_threads,
                consumers={name: tuple(consumers[number, name]) for name in client.consumer_client_ids},
                host_info=client.host_info,
                rack_id=client.rack_id,
                client_tags=client.client_tags,
                previous_active_tasks=client.previous_active_tasks,
                previous_standby_tasks=client.previous_standby_tasks,
                task_lags=lags if columns.lags.is_computed[number] else None,
                generation=None if generation == MISSING else generation,
            )
        )
    return tasks, clients


def shuffled(state: ApplicationState, seed: int) -> ApplicationState:
    """An equal state, built from the same things in another order: tasks, clients, tags, previous tasks, lags.

    Args:
        state: the state.
        seed: which order; equal seeds give equal orders.

    Raises:
        ConfigException: the seed is not an int.
        StateException: the state is not an `ApplicationState`.
    """
    rng = seeded(seed)
    tasks, clients = specs_of(state)
    clients = [
        attrs.evolve(
            client,
            consumers={name: _mixed(rng, client.consumers[name]) for name in _mixed(rng, client.consumers)},
            client_tags={tag: client.client_tags[tag] for tag in _mixed(rng, client.client_tags)},
            previous_active_tasks=_mixed(rng, client.previous_active_tasks),
            previous_standby_tasks=_mixed(rng, client.previous_standby_tasks),
            task_lags=None
            if client.task_lags is None
            else {task_id: client.task_lags[task_id] for task_id in _mixed(rng, client.task_lags)},
        )
        for client in clients
    ]
    return state_of(_mixed(rng, tasks), _mixed(rng, clients), state.assignment_configs, state.now_ms)


def _mixed(rng: random.Random, values: Iterable[Any]) -> tuple[Any, ...]:
    mixed = list(values)
    rng.shuffle(mixed)
    return tuple(mixed)


def seeded(seed: int) -> random.Random:
    """A generator; without a seed it would be another one every time.

    Raises:
        ConfigException: the seed is not an int.
    """
    return random.Random(whole_number("seed", seed, -INT64_MAX, INT64_MAX))


def _arguments(what: str, spec: object, kind: type[TaskSpec | ClientSpec]) -> dict[str, Any]:
    if not isinstance(spec, kind):
        raise StateException(
            f"A {what} of state_of ({shown(spec)}) must be a {kind.__name__}. Maybe use a_state, which takes ids, too."
        )
    # Not attrs.asdict, which would take the values apart as well.
    return {field.name: getattr(spec, field.name) for field in attrs.fields(kind)}


def _consumers(state: ApplicationState) -> dict[tuple[int, str], list[TaskId]]:
    """(client, consumer) -> its previous tasks, sorted; also those that no longer exist."""
    columns = state.columns
    keys = [(number, name) for number, names in enumerate(columns.clients.consumers) for name in names]
    found: dict[tuple[int, str], list[TaskId]] = {key: [] for key in keys}
    pairs = zip(columns.previous.consumer.tolist(), columns.previous.consumer_task.tolist(), strict=True)
    for consumer, task in pairs:
        found[keys[consumer]].append(columns.tasks.task_id(task))
    for consumer, task_id in columns.previous.vanished_of_consumer:
        found[keys[consumer]].append(task_id)
    return {key: sorted(tasks) for key, tasks in found.items()}
