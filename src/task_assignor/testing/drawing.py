"""How a random state comes about, whoever rolls the dice: Hypothesis (`strategies.py`) or a seed (`random_states.py`).

A new feature of states joins here, and all property tests meet it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

import attrs

from task_assignor.sdk import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    ConfigException,
    HostInfo,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.sdk.checks import check_flag, whole_number
from task_assignor.sdk.text import shown
from task_assignor.testing.specs import MOST_CONSUMERS, ClientSpec, TaskSpec, state_of
from task_assignor.validation.rows import check_state

Value = TypeVar("Value")

ClientTags: TypeAlias = Mapping[str, Sequence[str | None]]
"""Tag -> what its value is drawn from; None: the client has no such tag."""


class Choices(Protocol):
    """Where the choices come from. What is simplest comes first, for those who look for the simplest case."""

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""

    def element(self, values: Sequence[Value]) -> Value:
        """One of the values."""

    def rarely(self, one_in: int) -> bool:
        """True about once in `one_in` times."""


def checked_tags(client_tags: ClientTags) -> ClientTags:
    """The tags as a dict of tuples.

    Raises:
        ConfigException: not a mapping from strings to lists of strings and None, or there is nothing to draw from.
    """
    expected = "a mapping from tags to the values to draw from (None: no such tag), such as {'gpu': ('yes', None)}"
    if not isinstance(client_tags, Mapping):
        raise ConfigException(f"The client_tags ({shown(client_tags)}) must be {expected}.")
    for tag, values in client_tags.items():
        is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
        if not isinstance(tag, str) or not is_list or not values or not all(isinstance(v, str | None) for v in values):
            raise ConfigException(f"The client_tags must be {expected}, but one is {shown(tag)}: {shown(values)}.")
    # Equal tags are drawn alike, whatever the order of the mapping.
    return {tag: tuple(client_tags[tag]) for tag in sorted(client_tags)}


def checked_topologies(topologies: Sequence[str | None]) -> tuple[str | None, ...]:
    """The names of topologies as a tuple.

    Raises:
        ConfigException: not a list of strings that are not empty and None.
    """
    is_list = isinstance(topologies, Sequence) and not isinstance(topologies, str | bytes)
    if not is_list or not all(name is None or (isinstance(name, str) and name) for name in topologies):
        raise ConfigException(
            f"The topologies ({shown(topologies)}) must be a list of names to draw from (None: an unnamed topology), such as "
            "('orders', None)."
        )
    return tuple(topologies)


def draw_tags(choices: Choices, client_tags: ClientTags) -> dict[str, str]:
    """The tags of one client."""
    drawn = {tag: choices.element(values) for tag, values in client_tags.items()}
    return {tag: value for tag, value in drawn.items() if value is not None}


class ShapeArguments(TypedDict, total=False):
    """The arguments of `StateShape`, for functions that hand them on."""

    max_tasks: int
    max_clients: int
    max_threads: int
    max_standbys: int
    lags_known: bool
    consistent: bool
    racks_known: bool
    client_tags: ClientTags
    topologies: Sequence[str | None]


def _at_least(least: int) -> Callable[[Any, Any, Any], None]:
    def check(_instance: object, attribute: attrs.Attribute[int], value: object) -> None:
        whole_number(attribute.name, value, least)

    return check


def _flag(_instance: object, attribute: attrs.Attribute[bool], value: object) -> None:
    check_flag(attribute.name, value, error=ConfigException)


@attrs.frozen(kw_only=True)
class StateShape:
    """What random states look like.

    Args:
        max_tasks: at most so many tasks; there may be none.
        max_clients: at most so many clients; there is at least one.
        max_threads: threads per client.
        max_standbys: greatest `num_standby_replicas`.
        lags_known: every client's lags are known; False: of some clients they may not be.
        consistent: previous tasks are as a proper assignment leaves them; False: two clients may claim a task, a
            client may have it in both roles, and previous tasks may not exist any more.
        racks_known: every client has a rack, and the racks of every partition are known; False: maybe.
        client_tags: further tags of clients: tag -> what its value is drawn from; None: the client has no such tag.
            `zone` and `cluster`, which clients usually have, can be given other values here.
        topologies: names of topologies, one of which is drawn for every sub-topology; None: an unnamed one. Empty: mostly
            unnamed ones, sometimes `a` and `b`.

    Raises:
        ConfigException: a number is out of range, a flag is neither True nor False, or the client_tags or topologies are of another form.
    """

    max_tasks: int = attrs.field(default=12, validator=_at_least(0))
    max_clients: int = attrs.field(default=6, validator=_at_least(1))
    max_threads: int = attrs.field(default=4, validator=_at_least(1))
    max_standbys: int = attrs.field(default=3, validator=_at_least(0))
    lags_known: bool = attrs.field(default=True, validator=_flag)
    consistent: bool = attrs.field(default=False, validator=_flag)
    racks_known: bool = attrs.field(default=False, validator=_flag)
    client_tags: ClientTags = attrs.field(factory=dict, converter=checked_tags, hash=False)
    topologies: Sequence[str | None] = attrs.field(default=(), converter=checked_topologies)


_KINDS = ("stateless", "one store", "source changelog", "store without changelog", "two stores")
_RACKS = ("r0", "r1", "r2", "r3")
_TAGS: ClientTags = {"zone": ("z0", "z1", "z2"), "cluster": ("c0", "c1")}
_INT64_MAX = 2**63 - 1
_VANISHED = (TaskId(90, 0), TaskId(0, 900), TaskId(0, 0, "gone"))


def draw_state(choices: Choices, shape: StateShape) -> ApplicationState:
    """A random state."""
    configs = draw_configs(choices, shape)
    racks = "known" if shape.racks_known else choices.element(("unknown", "known", "known", "mixed"))
    tasks = _draw_tasks(choices, shape, racks)
    clients = _draw_clients(choices, shape, racks)
    clients = _draw_history(choices, shape, configs, tasks, clients)
    return state_of(tasks, clients, configs, choices.element((0, 1_700_000_000_000)))


def draw_configs(choices: Choices, shape: StateShape) -> AssignmentConfigs:
    """Random settings."""
    return AssignmentConfigs(
        acceptable_recovery_lag=choices.element((10_000, 0, 100, _INT64_MAX)),
        max_warmup_replicas=choices.integer(1, 4),
        num_standby_replicas=choices.integer(0, shape.max_standbys),
        probing_rebalance_interval_ms=choices.element((600_000, 60_000)),
        rack_aware_assignment_tags=choices.element(((), (), ("zone",), ("zone", "cluster"))),
        rack_aware_traffic_cost=choices.element((None, 0, 1, 10)),
        rack_aware_non_overlap_cost=choices.element((None, 0, 1, 10)),
        rack_aware_assignment_strategy=choices.element(("none", "min_traffic", "balance_subtopology")),
    )


def _draw_tasks(choices: Choices, shape: StateShape, racks: str) -> list[TaskSpec]:
    usual = choices.element(((None,), (None,), ("a", "b"), (None, "a")))
    names = shape.topologies or usual
    left = choices.integer(0, shape.max_tasks)
    tasks: list[TaskSpec] = []
    subtopology = 0
    while left:
        kind = choices.element(_KINDS)
        name = choices.element(names)
        count = choices.integer(1, left)
        step = 3 if choices.rarely(8) else 1
        tasks += [
            _draw_task(choices, TaskId(subtopology, partition * step, name), kind, racks) for partition in range(count)
        ]
        left -= count
        subtopology += 1
    return tasks


def _draw_task(choices: Choices, task_id: TaskId, kind: str, racks: str) -> TaskSpec:
    def partition(topic: str, source: bool, changelog: bool) -> TaskTopicPartition:
        known = racks == "known" or (racks == "mixed" and not choices.rarely(6))
        on = _draw_racks(choices, racks == "mixed") if known else None
        return TaskTopicPartition(
            TopicPartition(f"{topic}-{task_id.subtopology}", task_id.partition), source, changelog, on
        )

    stores = {"stateless": 0, "two stores": 2}.get(kind, 1)
    partitions = [partition("in", source=True, changelog=kind == "source changelog")]
    if choices.rarely(4):
        partitions.append(partition("other", source=True, changelog=False))
    if kind in ("one store", "two stores"):
        partitions += [partition(f"changelog-{store}", source=False, changelog=True) for store in range(stores)]
    has_changelog = kind not in ("stateless", "store without changelog")
    return TaskSpec(
        task_id=task_id,
        is_stateful=stores > 0,
        state_store_names=frozenset(f"store-{store}" for store in range(stores)),
        topic_partitions=tuple(partitions),
        end_offset_sum=choices.element((1_000, None, 0, 150_000, UNKNOWN_OFFSET_SUM)) if has_changelog else None,
    )


def _draw_racks(choices: Choices, maybe_none: bool) -> frozenset[str]:
    first = choices.integer(0, len(_RACKS) - 1)
    replicas = choices.integer(0 if maybe_none else 1, 3)
    return frozenset(_RACKS[(first + number) % len(_RACKS)] for number in range(replicas))


def _draw_clients(choices: Choices, shape: StateShape, racks: str) -> list[ClientSpec]:
    any_id = choices.rarely(2)
    equal_threads = 0 if choices.rarely(2) else choices.integer(1, shape.max_threads)
    tags = {**(_TAGS if choices.element((True, True, False)) else {}), **shape.client_tags}
    clients: dict[ProcessId, ClientSpec] = {}
    for number in range(choices.integer(1, shape.max_clients)):
        # The first hexadecimal digit decides the sign of the upper half, and so the order.
        high = choices.integer(0, 2**64 - 1) << 64 if any_id else 0
        process_id = ProcessId(uuid.UUID(int=high + number + 1))
        with_rack = racks == "known" or (racks == "mixed" and not choices.rarely(4))
        clients[process_id] = ClientSpec(
            process_id=process_id,
            num_processing_threads=equal_threads or choices.integer(1, shape.max_threads),
            host_info=HostInfo(f"host-{number}", 8000) if choices.rarely(4) else None,
            rack_id=choices.element(_RACKS) if with_rack else None,
            client_tags=draw_tags(choices, tags),
            generation=choices.integer(0, 5) if choices.rarely(3) else None,
        )
    return list(clients.values())


def _draw_history(
    choices: Choices,
    shape: StateShape,
    configs: AssignmentConfigs,
    tasks: list[TaskSpec],
    clients: list[ClientSpec],
) -> list[ClientSpec]:
    kinds = ("nothing", "settled", "settled", "settled") + (() if shape.consistent else ("anything", "anything"))
    kind = choices.element(kinds)
    active: list[list[TaskId]] = [[] for _ in clients]
    standby: list[list[TaskId]] = [[] for _ in clients]
    if kind == "settled":
        for task in tasks:
            if choices.rarely(10):
                continue  # a new task
            owner = choices.integer(0, len(clients) - 1)
            active[owner].append(task.task_id)
            copies = min(configs.num_standby_replicas, len(clients) - 1) if task.has_changelog else 0
            for copy in range(copies):
                standby[(owner + 1 + copy) % len(clients)].append(task.task_id)
    elif kind == "anything":
        for number in range(len(clients)):
            for task in tasks:
                role = choices.integer(0, 5)
                if role in (3, 5):
                    active[number].append(task.task_id)
                if (role == 4 and task.is_stateful) or (role == 5 and choices.rarely(6)):
                    standby[number].append(task.task_id)
            if choices.rarely(6):
                (active if choices.rarely(2) else standby)[number].append(choices.element(_VANISHED))
    return [
        attrs.evolve(
            client,
            previous_active_tasks=active[number],
            previous_standby_tasks=standby[number],
            consumers=_draw_consumers(choices, client, tasks, {*active[number], *standby[number]}),
            task_lags=_draw_lags(choices, shape, configs, tasks, set(active[number]), set(standby[number])),
        )
        for number, client in enumerate(clients)
    ]


def _draw_consumers(
    choices: Choices, client: ClientSpec, tasks: list[TaskSpec], had: set[TaskId]
) -> dict[str, tuple[TaskId, ...]]:
    count = min(client.num_processing_threads, MOST_CONSUMERS)
    consumers: dict[str, list[TaskId]] = {f"{client.process_id}-{number}": [] for number in range(count)}
    names = list(consumers)
    for task in tasks:
        if task.has_changelog and task.task_id in had:
            consumers[names[choices.integer(0, count - 1)]].append(task.task_id)
    return {name: tuple(tasks) for name, tasks in consumers.items()}


def _draw_lags(
    choices: Choices,
    shape: StateShape,
    configs: AssignmentConfigs,
    tasks: list[TaskSpec],
    active: set[TaskId],
    standby: set[TaskId],
) -> dict[TaskId, int] | None:
    if not shape.lags_known and choices.rarely(5):
        return None
    acceptable = configs.acceptable_recovery_lag
    near = (0, acceptable, min(acceptable + 1, _INT64_MAX), 150_000)
    lags: dict[TaskId, int] = {}
    for task in tasks:
        if not task.has_changelog:
            continue
        if task.task_id in active:
            lags[task.task_id] = choices.element((LATEST_OFFSET, LATEST_OFFSET, LATEST_OFFSET, 0, UNKNOWN_OFFSET_SUM))
        elif task.task_id in standby:
            lags[task.task_id] = choices.element((*near, UNKNOWN_OFFSET_SUM))
        elif task.end_offset_sum is None:
            lags[task.task_id] = choices.element((*near, _INT64_MAX))
    return lags


def draw_assignment(choices: Choices, state: ApplicationState) -> TaskAssignment:
    """A random answer to the state, usually a wrong one."""
    check_state(state)
    process_ids = [*state.columns.clients.process_ids]
    task_ids = state.columns.tasks.task_ids()
    roles = (AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY)
    listed = [process_id for process_id in process_ids if not choices.rarely(12)]
    if choices.rarely(8):
        listed.append(choices.element((*process_ids, ProcessId(uuid.UUID(int=2**127 + 5)))))
    owners = [choices.integer(0, max(len(listed) - 1, 0)) for _ in task_ids]
    assignments = []
    for number, process_id in enumerate(listed):
        tasks = [
            AssignedTask(task_id, roles[0 if owner == number else choices.integer(0, 1)])
            for task_id, owner in zip(task_ids, owners, strict=True)
            if (owner == number and not choices.rarely(20)) or choices.rarely(10)
        ]
        if choices.rarely(12):
            tasks.append(AssignedTask(choices.element(_VANISHED), choices.element(roles)))
        assignments.append(KafkaStreamsAssignment.of(process_id, tasks))
    return TaskAssignment(assignments)
