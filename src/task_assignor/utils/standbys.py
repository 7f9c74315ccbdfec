"""`place_standbys`: standbys even in load, apart in tags and racks, where their state is. The engine decides; tasks become its items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.copies import place_copies
from task_assignor.engine.copy_flow import Prices
from task_assignor.engine.copy_goals import CopyProblem, Room, Traffic
from task_assignor.engine.items import Pairs
from task_assignor.sdk import ApplicationState, AssignmentConfigs, StateColumns
from task_assignor.sdk.arrays import distinct_and_numbers, order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, csr_rows, offsets_of
from task_assignor.utils.given import Assignments, inexact_of, numbers_of_groups, placement_of
from task_assignor.utils.goals import Goal, inexact_standbys
from task_assignor.utils.history import previous_state
from task_assignor.utils.placement import Placement
from task_assignor.utils.rack_costs import small_costs
from task_assignor.utils.rack_rows import AnyIntArray, Partitions, rack_problem, rack_rows, strategy_problem
from task_assignor.utils.result import AssignmentResult

_LAG_BITS: Final = 40


def place_standbys(
    application_state: ApplicationState,
    assignments: Assignments,
    *,
    together: npt.ArrayLike | None = None,
    use_racks: bool = True,
) -> AssignmentResult:
    """Give every task that has a changelog its `num.standby.replicas` standbys.

    The goals, in this order:

    1. all standbys are placed, each on a client of its own, as far as there are clients;
    2. loads are even: of active and standby tasks every client has floor or ceil of its thread-weighted share, as far as
       the active tasks allow; and the sum over the clients of tasks² / threads is least;
    3. with `rack.aware.assignment.tags`: the tasks' holders have most different tag values, added up (KIP-708);
    4. with a rack-aware strategy, both costs set and all racks known (KIP-925): least trafficCost x cross-rack changelog
       partitions + nonOverlapCost x standbys where no state was;
    5. standbys stay where their state is; of several such clients with those with less lag.

    Goals are reached exactly but for tags with several keys and several standbys (those are brought up standby by standby,
    until none helps), and but for large inputs: some ten thousand tasks with tags or racks, if clients are many.
    `AssignmentResult.inexact` names the goals that were perhaps not. Asked again, with its answer as the past, it changes
    nothing.

    Args:
        application_state: tasks, clients, history and settings.
        assignments: the active tasks; standbys in it are replaced. It is not changed. Clients may be left out.
        together: (T,) group number of each task, by task id: tasks of a group have their standbys on the same clients, and
            count as one in loads; the active owner of one of them counts for all. None: each task is alone.
        use_racks: whether racks count if the settings say so.

    Returns:
        A new assignment, with all clients of the state, `cost_after` and `lower_bound` of goal 4, and `shortages`.

    Raises:
        StateException: unknown clients or tasks, a task that is active on two clients, or not one group per task.

    Examples:
        >>> from task_assignor.sdk import ApplicationStateBuilder
        >>> from task_assignor.utils import identity_assignment
        >>> state = ApplicationStateBuilder().build()
        >>> len(place_standbys(state, identity_assignment(state)))
        0
    """
    columns, configs = application_state.columns, application_state.assignment_configs
    before = placement_of(application_state, assignments)
    groups = None if together is None else numbers_of_groups(together, len(columns.tasks))
    found = _pairs(columns, configs, before.active_owner, groups, use_racks)
    after = Placement.of(columns, before.active_owner, found.task, found.client, before.deadline_ms)
    wanted = np.where(columns.tasks.has_changelog, configs.num_standby_replicas, 0)
    missing = wanted - np.bincount(found.task, minlength=len(columns.tasks))
    short = np.flatnonzero(missing)
    shortages = zip(columns.tasks.task_ids(short.tolist()), missing[short].tolist(), strict=True)
    return AssignmentResult(
        after,
        cost_after=found.cost,
        lower_bound=found.bound,
        shortages=shortages,
        inexact=inexact_of(assignments) | found.inexact,
    )


@attrs.frozen(eq=False)
class _Pairs:
    """Where standbys go.

    Args:
        task: (S,) task numbers, pairs sorted by task, then client.
        client: (S,) client numbers.
        cost: trafficCost x cross-rack partitions + nonOverlapCost x standbys where no state was; None: racks do not count.
        bound: no placement with these loads costs less; None: racks do not count.
        inexact: the goals that are perhaps not reached exactly.
    """

    task: Int64Array
    client: Int64Array
    cost: int | None
    bound: int | None
    inexact: frozenset[Goal]


def _pairs(
    columns: StateColumns,
    configs: AssignmentConfigs,
    active_owner: Int32Array,
    together: Int64Array | None,
    use_racks: bool,
) -> _Pairs:
    """What the engine answers; `together` are numbers of groups from 0."""
    tasks = columns.tasks
    unit = np.arange(len(tasks)) if together is None else together
    units = int(unit.max(initial=-1)) + 1
    owner = np.full(units, -1, dtype=np.int64)
    owner[unit] = active_owner
    wanted = np.zeros(units, dtype=np.int64)
    wanted[unit[tasks.has_changelog]] = configs.num_standby_replicas
    logged = np.flatnonzero(tasks.has_changelog)
    costs = _rack_costs(columns, configs, logged) if use_racks and together is None else None
    problem = CopyProblem(
        main_owner=owner,
        room=Room.even(owner, wanted, columns.clients.num_processing_threads),
        claims=_state(columns, unit, units),
        tags=tag_values(columns, configs.rack_aware_assignment_tags),
        traffic=None if costs is None else traffic_of(columns, np.arange(len(tasks)), costs),
    )
    found = place_copies(problem)
    task, client = found.item, found.owner
    if together is not None:
        member = logged[order_by(unit[logged])]
        offsets = offsets_of(unit[member], units)
        task = member[csr_rows(offsets, found.item)]
        client = np.repeat(found.owner, np.diff(offsets)[found.item])
        order = order_by(task, client)
        task, client = task[order], client[order]
    inexact = inexact_standbys(found.exact)
    if not configs.rack_aware_assignment_tags:
        inexact -= {Goal.STANDBY_TAGS}
    if costs is None:
        return _Pairs(task, client, None, None, inexact - {Goal.STANDBY_COST})
    return _Pairs(task, client, found.cost, found.bound, inexact)


def _state(columns: StateColumns, unit: Int64Array, units: int) -> Pairs:
    """Who has state of which unit: of most of its tasks first, then with less lag."""
    state = previous_state(columns)
    if units == len(unit):
        return Pairs(unit[state.item], state.owner, state.rank)
    clients = max(len(columns.clients), 1)
    keys, inverse = distinct_and_numbers(unit[state.item] * clients + state.owner)
    count = np.bincount(inverse, minlength=len(keys))
    # Sums of lags, in units so large that they cannot overflow.
    lag = np.zeros(len(keys), dtype=np.int64)
    np.add.at(lag, inverse, np.minimum(state.rank, (1 << _LAG_BITS) - 1))
    missing = int(count.max(initial=0)) - count
    return Pairs(keys // clients, keys % clients, (missing << _LAG_BITS) + np.minimum(lag, (1 << _LAG_BITS) - 1))


def _rack_costs(columns: StateColumns, configs: AssignmentConfigs, tasks: Int64Array) -> tuple[int, int] | None:
    """(cost of a cross-rack partition, cost of a standby where no state was); None: racks do not count, or are not known."""
    traffic, move = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
    problem = strategy_problem(configs.rack_aware_assignment_strategy, traffic, move)
    if traffic is None or move is None or problem or rack_problem(columns, tasks, "changelog"):
        return None
    return traffic, move


def traffic_of(
    columns: StateColumns, tasks: AnyIntArray, costs: tuple[int, int], partitions: Partitions = "changelog"
) -> Traffic:
    """What copies of the tasks cost on the clients' racks, which all are known.

    Args:
        columns: the state.
        tasks: (N,) task numbers.
        costs: cost of a cross-rack partition, cost of a standby where none was before.
        partitions: which partitions count.
    """
    rows, clients = rack_rows(columns, tasks, partitions), len(columns.clients)
    # Each client is met at most once on a simple cycle, by two arcs.
    most = 2 * (clients + 1)
    small = small_costs(*costs, int(rows.partitions.max(initial=1)) * most, most)
    prices = Prices(rows.table(), *costs, min(costs, small, key=max))
    return Traffic(rows.row, columns.clients.rack.astype(np.int64), prices)


def tag_values(columns: StateColumns, tags: Iterable[str]) -> Int64Array:
    """(C, G) number of each client's value of each tag key; -1: the client has no such tag."""
    keys = tuple(tags)
    values = np.full((len(columns.clients), len(keys)), -1, dtype=np.int64)
    for column, key in enumerate(keys):
        given = [client_tags.get(key) for client_tags in columns.clients.client_tags]
        order = {value: place for place, value in enumerate(sorted({value for value in given if value is not None}))}
        values[:, column] = [-1 if value is None else order[value] for value in given]
    return values
