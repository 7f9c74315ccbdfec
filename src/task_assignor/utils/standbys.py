"""`place_standbys`: standbys even in load, apart in tags and racks, where their state is. The engine decides; tasks become its items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from task_assignor.engine.copies.flow import Prices
from task_assignor.engine.copies.goals import CopyProblem, Room
from task_assignor.engine.copies.placement import place_copies
from task_assignor.sdk import ApplicationState, AssignmentConfigs, StateColumns
from task_assignor.sdk.arrays import csr_pairs, offsets_of, order_by
from task_assignor.sdk.checks import check_flag
from task_assignor.sdk.columns import Int32Array, Int64Array
from task_assignor.utils.given import Assignments, inexact_of, numbers_of_groups, placement_of, tag_values
from task_assignor.utils.goals import Goal, inexact_standbys
from task_assignor.utils.history import previous_state_of_units
from task_assignor.utils.placement import Placement
from task_assignor.utils.rack_costs import AnyIntArray, Partitions, costs_in_use, rack_rows, small_costs
from task_assignor.utils.result import AssignmentResult


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
            count as one in loads; the active owner of one of them counts for all, and a standby that would be where its own
            task is active is left out (so with the numbers that `place_joined_actives` takes: each partition of a join group
            needs one of its own). Racks do not count then. None: each task is alone.
        use_racks: whether racks count if the settings say so, and each task is alone.

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
    check_flag("use_racks", use_racks)
    before = placement_of(application_state, assignments)
    columns, configs = application_state.columns, application_state.assignment_configs
    unit = np.arange(len(columns.tasks))
    if together is not None:
        unit = numbers_of_groups(together, len(columns.tasks))
    logged = np.flatnonzero(columns.tasks.has_changelog)
    costs = costs_in_use(columns, configs, logged, "changelog") if use_racks and together is None else None
    found = place_copies(_problem(columns, configs, before.active_owner, unit, costs))
    task, client = found.item, found.owner
    if together is not None:
        task, client = _of_tasks(found.item, found.owner, logged, unit)
        apart = client != before.active_owner[task]
        task, client = task[apart], client[apart]
    after = Placement.of(columns, before.active_owner, task, client, before.deadline_ms)
    inexact = inexact_standbys(found.exact)
    inexact -= frozenset() if configs.rack_aware_assignment_tags else {Goal.STANDBY_TAGS}
    inexact -= {Goal.STANDBY_COST} if costs is None else frozenset()
    return AssignmentResult(
        after,
        cost_after=None if costs is None else found.cost,
        lower_bound=None if costs is None else found.bound,
        shortages=after.shortages(configs.num_standby_replicas),
        inexact=inexact_of(assignments) | inexact,
    )


def _problem(
    columns: StateColumns,
    configs: AssignmentConfigs,
    active_owner: Int32Array,
    unit: Int64Array,
    costs: tuple[int, int] | None,
) -> CopyProblem:
    """What the engine is asked: each unit of tasks is an item."""
    units = int(unit.max(initial=-1)) + 1
    owner = np.full(units, -1, dtype=np.int64)
    owned = np.flatnonzero(active_owner >= 0)
    owner[unit[owned]] = active_owner[owned]
    wanted = np.zeros(units, dtype=np.int64)
    wanted[unit[columns.tasks.has_changelog]] = configs.num_standby_replicas
    return CopyProblem(
        main_owner=owner,
        room=Room.even(owner, wanted, columns.clients.num_processing_threads),
        claims=previous_state_of_units(columns, unit),
        tags=tag_values(columns.clients.client_tags, configs.rack_aware_assignment_tags),
        prices=None if costs is None else prices_of(columns, np.arange(len(unit)), costs),
    )


def _of_tasks(
    item: Int64Array, owner: Int64Array, logged: Int64Array, unit: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """(task, client) of the copies of units: one for each of the unit's tasks that have a changelog; sorted."""
    member = logged[order_by(unit[logged])]
    offsets = offsets_of(unit[member], int(unit.max(initial=-1)) + 1)
    copy, row = csr_pairs(offsets, item)
    task, client = member[row], owner[copy]
    order = order_by(task, client)
    return task[order], client[order]


def prices_of(
    columns: StateColumns, tasks: AnyIntArray, costs: tuple[int, int], partitions: Partitions = "changelog"
) -> Prices:
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
    small = small_costs(*costs, int(rows.default.max(initial=1)) * most, most)
    return Prices(rows, columns.clients.rack.astype(np.int64), *costs, min(costs, small, key=max))
