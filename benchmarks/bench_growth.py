"""How time and memory grow from a thousand to a million tasks, a hundred tasks per client: the exponent is fitted in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import numpy as np

from benchmarks.against.states import Kind, large_state
from benchmarks.case import Case, Goal, Work
from benchmarks.states import (
    END_OFFSET,
    clients_in_racks,
    replicated_state,
    shuffled_owners,
    source_and_changelog,
)
from task_assignor.builtin_assignors import (
    CostModel,
    FallbackPriorTaskAssignor,
    HighAvailabilityTaskAssignor,
    MinCostTaskAssignor,
    StickyTaskAssignor,
    StreamJoinTaskAssignor,
)
from task_assignor.builtin_assignors.stream_join import STREAM_JOIN_GROUPS
from task_assignor.kafka_order.staging import refine_columns
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentColumns,
    AssignmentConfigs,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
    TaskColumns,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.sdk.columns import LATEST_OFFSET
from task_assignor.utils import (
    Placement,
    PlacementCosts,
    default_standby_task_assignment,
    optimize_actives,
    optimize_standbys,
    place_standbys,
)
from task_assignor.validation import report_violations, validate_task_assignment

SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (200, 400)
TASKS_PER_CLIENT = 100
GOAL = Goal(exponent=1.1)
TRAP_GOAL = Goal(exponent=1.3, seconds=30)


def cases(is_quick: bool = False) -> list[Case]:
    """One case per series and size."""
    series: dict[str, Callable[[int, int], Work]] = {
        "sticky, 1 % of the clients are new": partial(_running, StickyTaskAssignor),
        "stream-join, 1 % of the clients are new": partial(_running, StreamJoinTaskAssignor),
        "fallback-prior, 1 % of the clients are new": partial(_running, FallbackPriorTaskAssignor),
        "min-cost, 1 % of the clients are new": _min_cost,
        "min-cost, tasks of different weights": partial(_running, _Weighted),
        "high availability, all is new": _high_availability_first,
        "high availability, 1 % of the clients are new": partial(_running, HighAvailabilityTaskAssignor),
        "rack-aware, min_traffic": _racks,
        "default standbys": _default_standbys,
        "trap: rack-aware, 200 racks": _many_racks,
        "trap: sticky, 200 racks": partial(_running_in_racks, StickyTaskAssignor),
        "trap: min-cost, 200 racks": partial(_running_in_racks, MinCostTaskAssignor),
        "trap: sticky, ten claims a task": partial(_of_kind, Kind(claims=10)),
        "trap: sticky, ten states a task": partial(_of_kind, Kind(states=10)),
        "trap: sticky, clients of 1 and of 10 000 threads": _uneven_threads,
        "trap: stream-join, 3 join groups per 100 tasks": _many_join_groups,
        "trap: balance_subtopology, 10 tasks per client and sub-topology": _many_subtopologies,
        "trap: staging, two tasks per client, random lags": partial(_random_lags, is_consistent=True),
        "trap: staging, two tasks per client, lags beyond end offsets": partial(_random_lags, is_consistent=False),
        "trap: standbys, five of them, by three tag keys": _tagged_standbys,
        "trap: rack-aware standbys, five of them, uneven threads": _rack_standbys,
        "trap: rack-aware standbys, three of them, three tag keys, 128 clients": _few_clients,
        "validation": _validation,
        "report of violations": _report,
        "state from columns": state_from_columns,
        "state from objects": _state_from_objects,
    }
    return [
        Case(
            name=f"growth/{name}/{size}",
            prepare=partial(make, size, max(size // TASKS_PER_CLIENT, 3)),
            goal=TRAP_GOAL if name.startswith("trap") else GOAL,
            series=name,
            size=size,
        )
        for name, make in series.items()
        for size in (QUICK_SIZES if is_quick else SIZES)
    ]


def running_state(tasks: int, clients: int, standbys: int = 1) -> ApplicationState:
    """A group that runs: one active and one standby per task, dealt at random; the last 1 % of the clients have nothing."""
    return _tables(tasks, clients).state(AssignmentConfigs(num_standby_replicas=standbys))


@attrs.frozen
class Tables:
    """The parts of a state."""

    tasks: TaskColumns
    clients: ClientColumns
    previous: PreviousColumns
    lags: LagColumns

    def state(self, configs: AssignmentConfigs) -> ApplicationState:
        return ApplicationState(StateColumns(self.tasks, self.clients, self.previous, self.lags), configs)


def _tables(tasks: int, clients: int) -> Tables:
    old = clients - max(clients // 100, 1)
    active = shuffled_owners(tasks, old).astype(np.int64)
    standby = (active + 1 + np.arange(tasks) % max(old - 1, 1)) % old
    owner = np.concatenate([active, standby])
    task = np.tile(np.arange(tasks), 2)
    role = np.repeat([int(Role.ACTIVE), int(Role.STANDBY)], tasks)
    rows = np.lexsort((task, role, owner)) if old > 1 else np.arange(tasks)
    client, role, task = owner[rows], role[rows], task[rows]
    by_consumer = np.lexsort((task, client))
    lag = np.where(role == Role.ACTIVE, LATEST_OFFSET, 0)
    return Tables(
        source_and_changelog(np.arange(tasks) * 4 // tasks, np.arange(tasks)),
        clients_in_racks(clients, 1, 3),
        PreviousColumns(
            client=client, role=role, task=task, consumer=client[by_consumer], consumer_task=task[by_consumer]
        ),
        LagColumns(
            client=client[by_consumer],
            task=task[by_consumer],
            lag=lag[by_consumer],
            is_computed=np.ones(clients, dtype=np.bool_),
        ),
    )


def _running(assignor: type[TaskAssignor], tasks: int, clients: int) -> Work:
    state = running_state(tasks, clients)
    return lambda: assignor().assign(state)


def _min_cost(tasks: int, clients: int) -> Work:
    tables = _tables(tasks, clients)
    tables = attrs.evolve(tables, clients=clients_in_racks(clients, 5, 3))
    configs = AssignmentConfigs(num_standby_replicas=1, rack_aware_traffic_cost=10, rack_aware_non_overlap_cost=1)
    state = tables.state(configs)
    return lambda: MinCostTaskAssignor().assign(state)


class _Weighted(MinCostTaskAssignor):
    """Tasks weigh 1 to 100, moving costs, and clients may be 5 % fuller than all are on average."""

    def cost_model(self, application_state: ApplicationState) -> CostModel:  # noqa: ARG002 -- the same for all
        return _WeightedCosts()


class _WeightedCosts(CostModel):
    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        columns = application_state.columns
        tasks, clients = len(columns.tasks), len(columns.clients)
        weight = np.random.default_rng(1).integers(1, 101, tasks)
        most = int(weight.sum()) * 105 // (100 * clients) + 100
        return PlacementCosts(
            task_class=np.arange(tasks) * 4 // tasks, move=np.full(4, 5), weight=weight, upper=np.full(clients, most)
        )


def _high_availability_first(tasks: int, clients: int) -> Work:
    lags = LagColumns.empty(clients, is_computed=True)
    tables = attrs.evolve(_tables(tasks, clients), previous=PreviousColumns.empty(), lags=lags)
    state = tables.state(AssignmentConfigs(num_standby_replicas=1))
    return lambda: HighAvailabilityTaskAssignor().assign(state)


def _racks(tasks: int, clients: int) -> Work:
    state, owner = replicated_state(tasks, clients, racks=5), shuffled_owners(tasks, clients)
    given = Placement.of(state.columns, owner)
    return lambda: optimize_actives(state, given, traffic_cost=10, non_overlap_cost=1)


def _many_racks(tasks: int, clients: int) -> Work:
    state, owner = replicated_state(tasks, clients, racks=200), shuffled_owners(tasks, clients)
    given = Placement.of(state.columns, owner)
    return lambda: optimize_actives(state, given, traffic_cost=10, non_overlap_cost=1)


def _running_in_racks(assignor: type[TaskAssignor], tasks: int, clients: int) -> Work:
    """A group that runs in 200 racks, where nearly no two tasks have their replicas in the same ones."""
    state, tables = replicated_state(tasks, clients, racks=200), _tables(tasks, clients)
    columns = attrs.evolve(state.columns, previous=tables.previous, lags=tables.lags)
    running = ApplicationState(columns, state.assignment_configs)
    return lambda: assignor().assign(running)


def _of_kind(kind: Kind, tasks: int, _clients: int) -> Work:
    state = large_state(tasks, kind)
    return lambda: StickyTaskAssignor().assign(state)


def _uneven_threads(tasks: int, clients: int) -> Work:
    tables = _tables(tasks, clients)
    threads = np.where(np.arange(clients) % 2, 10_000, 1)
    tables = attrs.evolve(tables, clients=attrs.evolve(tables.clients, num_processing_threads=threads))
    state = tables.state(AssignmentConfigs(num_standby_replicas=1))
    return lambda: StickyTaskAssignor().assign(state)


def _many_join_groups(tasks: int, clients: int) -> Work:
    """Two sub-topologies in each group, all of them named in the setting."""
    groups = max(tasks * 3 // 100, 1)
    subtopology = np.arange(tasks) * 2 * groups // tasks
    partition = np.arange(tasks) - np.searchsorted(subtopology, subtopology)
    table = source_and_changelog(subtopology, partition, endings=[f"-{number}" for number in range(2 * groups)])
    state = attrs.evolve(_tables(tasks, clients), tasks=table).state(AssignmentConfigs(num_standby_replicas=1))
    named = {STREAM_JOIN_GROUPS: ";".join(f"{2 * group},{2 * group + 1}" for group in range(groups))}

    def work() -> TaskAssignment:
        assignor = StreamJoinTaskAssignor()
        assignor.configure(named)
        return assignor.assign(state)

    return work


def _many_subtopologies(tasks: int, _clients: int) -> Work:
    clients = groups = tasks // 10
    state = replicated_state(tasks, clients, racks=5, strategy="balance_subtopology", groups=groups)
    given = Placement.of(state.columns, np.arange(tasks) % clients)
    return lambda: optimize_actives(state, given, traffic_cost=10, non_overlap_cost=1)


def _random_lags(tasks: int, _clients: int, *, is_consistent: bool) -> Work:
    """Each task's client and its standby are behind by any amount of what there is; only who lacks nothing is caught up.

    Otherwise by any amount at all, which Kafka never says: where what there is is acceptable, all but they are caught up.
    """
    clients, draws = tasks // 2, np.random.default_rng(3)
    tables = _tables(tasks, clients)
    owner = draws.permutation(np.arange(tasks) % clients).astype(np.int32)
    standby = ((owner + 1 + draws.integers(0, clients - 1, tasks)) % clients).astype(np.int32)
    end_offset_sum = draws.integers(0, 20_000, tasks)
    task, client = np.tile(np.arange(tasks), 2), np.concatenate([owner, standby]).astype(np.int64)
    order = np.lexsort((task, client))
    lags = LagColumns(
        client=client[order],
        task=task[order],
        lag=draws.integers(0, end_offset_sum[task[order]] + 1 if is_consistent else 20_000, 2 * tasks),
        is_computed=np.ones(clients, dtype=np.bool_),
    )
    table = attrs.evolve(tables.tasks, end_offset_sum=end_offset_sum)
    configs = AssignmentConfigs(num_standby_replicas=1, acceptable_recovery_lag=0 if is_consistent else 10_000)
    state = attrs.evolve(tables, tasks=table, lags=lags).state(configs)
    numbers = np.arange(tasks, dtype=np.int32)
    return lambda: refine_columns(state.columns, configs, owner, numbers, standby)


def _default_standbys(tasks: int, clients: int) -> Work:
    state = running_state(tasks, clients)
    actives = AssignmentColumns.of(state.columns, shuffled_owners(tasks, clients)).assignments()
    return lambda: default_standby_task_assignment(state, actives)


def _tagged_standbys(tasks: int, clients: int) -> Work:
    state = _with_tags(replicated_state(tasks, clients, racks=3), standbys=5)
    configs = attrs.evolve(state.assignment_configs, rack_aware_assignment_strategy="none")
    state = ApplicationState(state.columns, configs)
    actives = Placement.of(state.columns, shuffled_owners(tasks, clients))
    return lambda: place_standbys(state, actives)


def _rack_standbys(tasks: int, clients: int) -> Work:
    state = replicated_state(tasks, clients, racks=20)
    threads = np.random.default_rng(2).integers(1, 9, clients)
    columns = attrs.evolve(state.columns, clients=attrs.evolve(state.columns.clients, num_processing_threads=threads))
    configs = attrs.evolve(state.assignment_configs, num_standby_replicas=5)
    actives = Placement.of(columns, shuffled_owners(tasks, clients))
    return lambda: place_standbys(ApplicationState(columns, configs), actives)


def _few_clients(tasks: int, clients: int) -> Work:
    clients = min(clients, 128)
    state = _with_tags(replicated_state(tasks, clients, racks=5), standbys=3)
    owner = shuffled_owners(tasks, clients)
    number = min(3, clients - 1)
    task = np.repeat(np.arange(tasks), number)
    standby = (np.repeat(owner, number) + 1 + np.tile(np.arange(number), tasks)) % clients
    given = Placement.of(state.columns, owner, task, standby)
    return lambda: optimize_standbys(state, given, traffic_cost=10, non_overlap_cost=1)


def _with_tags(state: ApplicationState, standbys: int) -> ApplicationState:
    """The state with three, four and ten values of three tag keys, at random."""
    values = np.random.default_rng(3).integers(0, [3, 4, 10], (len(state.columns.clients), 3))
    tags = [dict(zip(("zone", "kind", "row"), map(str, row), strict=True)) for row in values.tolist()]
    clients = attrs.evolve(state.columns.clients, client_tags=tags)
    configs = attrs.evolve(
        state.assignment_configs, num_standby_replicas=standbys, rack_aware_assignment_tags=("zone", "kind", "row")
    )
    return ApplicationState(attrs.evolve(state.columns, clients=clients), configs)


def _answer(tasks: int, clients: int) -> tuple[ApplicationState, TaskAssignment]:
    state = running_state(tasks, clients)
    owner = shuffled_owners(tasks, clients)
    columns = AssignmentColumns.of(state.columns, owner, np.arange(tasks), (owner + 1) % clients)
    return state, TaskAssignment.of_columns(columns)


def _validation(tasks: int, clients: int) -> Work:
    state, answer = _answer(tasks, clients)
    return lambda: validate_task_assignment(state, answer)


def _report(tasks: int, clients: int) -> Work:
    state, answer = _answer(tasks, clients)
    return lambda: report_violations(state, answer)


def state_from_columns(tasks: int, clients: int) -> Work:
    """Makes a state of the columns of `running_state`, checks included."""
    tables = _tables(tasks, clients)
    task_columns, client_columns, previous, lags = (
        writable_columns(table) for table in (tables.tasks, tables.clients, tables.previous, tables.lags)
    )

    def work() -> ApplicationState:
        made = Tables(
            TaskColumns(**task_columns),
            ClientColumns(**client_columns),
            PreviousColumns(**previous),
            LagColumns(**lags),
        )
        return made.state(AssignmentConfigs(num_standby_replicas=1))

    return work


def writable_columns(table: TaskColumns | ClientColumns | PreviousColumns | LagColumns) -> dict[str, Any]:
    """What the columns were made of: arrays that could be written, as a caller has them."""
    found = {}
    for field in attrs.fields(type(table)):
        if field.init:
            value = getattr(table, field.name)
            found[field.name] = value.copy() if isinstance(value, np.ndarray) else value
    return found


def _state_from_objects(tasks: int, clients: int) -> Work:
    tables = _tables(tasks, clients)
    table, owners, previous = tables.tasks, tables.clients, tables.previous
    ids = table.task_ids()
    offsets = np.searchsorted(previous.client, np.arange(clients + 1)).tolist()
    had = [
        {
            role: [ids[task] for task in previous.task[start:stop][previous.role[start:stop] == role].tolist()]
            for role in Role
        }
        for start, stop in pairwise(offsets)
    ]
    partitions = [
        (
            TaskTopicPartition(TopicPartition(f"topic-{task.subtopology}", task.partition), True, False),
            TaskTopicPartition(
                TopicPartition(f"scale-store-{task.subtopology}-changelog", task.partition), False, True
            ),
        )
        for task in ids
    ]
    stores = [frozenset({f"store-{group}"}) for group in range(4)]
    return lambda: _build(ids, partitions, stores, owners, had)


def _build(
    ids: Sequence[TaskId],
    partitions: Sequence[tuple[TaskTopicPartition, ...]],
    stores: Sequence[frozenset[str]],
    owners: ClientColumns,
    had: Sequence[dict[Role, list[TaskId]]],
) -> ApplicationState:
    builder = ApplicationStateBuilder(AssignmentConfigs(num_standby_replicas=1))
    for task, own in zip(ids, partitions, strict=True):
        builder.add_task(
            task,
            is_stateful=True,
            state_store_names=stores[task.subtopology],
            topic_partitions=own,
            end_offset_sum=END_OFFSET,
        )
    for process_id, consumers, tasks in zip(owners.process_ids, owners.consumers, had, strict=True):
        active, standby = tasks[Role.ACTIVE], tasks[Role.STANDBY]
        builder.add_client(
            process_id,
            consumers={consumers[0]: active + standby},
            rack_id="rack-0",
            previous_active_tasks=active,
            previous_standby_tasks=standby,
            task_lags={**dict.fromkeys(standby, 0), **dict.fromkeys(active, LATEST_OFFSET)},
        )
    return builder.build()
