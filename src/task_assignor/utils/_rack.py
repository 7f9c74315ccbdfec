"""Rack-aware placement of active tasks on columns: exact optima by the flow model. Standbys are in `_rack_standby.py`."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from task_assignor.engine.places import NOBODY, OwnersProblem, min_cost_places
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns
from task_assignor.sdk.configs import (
    INT32_MAX,
    RACK_AWARE_ASSIGNMENT_STRATEGIES,
    RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC,
)
from task_assignor.sdk.errors import ConfigException, StateException
from task_assignor.utils._classes import (
    AnyIntArray,
    ClaimSets,
    Partitions,
    RackRows,
    crossings_of,
    grouped,
    rack_problem,
    rack_rows,
    ranges,
    split_rows,
    strategy_problem,
)
from task_assignor.utils.result import Skipped, SkipReason

MOST_CLAIM_ARCS: Final = 500_000
"""With more arcs for tasks that several clients had, only one of these counts: it would take a minute."""
_LARGE_COST: Final = 2**15


@attrs.frozen(eq=False)
class ActiveOutcome:
    """What became of the active tasks.

    Args:
        owner: (T,) client number of each task's active owner; -1: nobody.
        cost_before: trafficCost x cross-rack partitions of the selected tasks before; None: skipped.
        cost_after: the same after, plus nonOverlapCost x moved tasks.
        lower_bound: equal to `cost_after`: the optimum is proven.
        moves: number of tasks that have another owner now.
        skipped: why nothing was done.
    """

    owner: Int32Array
    cost_before: int | None = None
    cost_after: int | None = None
    lower_bound: int | None = None
    moves: int = 0
    skipped: Skipped | None = None


@attrs.frozen(eq=False)
class OwnersOutcome:
    """Owners within bounds.

    Args:
        owner: (N,) client number of each task given.
        cost: trafficCost x cross-rack partitions + nonOverlapCost x tasks that lost their owner; the proven optimum.
        moves: number of tasks that lost their owner; the fewest among the cheapest.
    """

    owner: Int64Array
    cost: int
    moves: int


def check_cost(name: str, cost: object) -> int | None:
    """The cost, if it is None or a whole number from 0 to 2^31 - 1.

    Raises:
        ConfigException: it is not.
    """
    if cost is None:
        return None
    if isinstance(cost, np.integer):
        cost = int(cost)
    if not isinstance(cost, int) or isinstance(cost, bool) or not 0 <= cost <= INT32_MAX:
        raise ConfigException(f"The {name} ({cost!r}) must be an int from 0 to {INT32_MAX}.")
    return cost


def small_costs(traffic_cost: int, non_overlap_cost: int, crossings: int, moves: int) -> tuple[int, int]:
    """Two smaller costs that order all changes as the given ones do.

    For all whole numbers |x| <= crossings and |m| <= moves, `traffic_cost * x + non_overlap_cost * m` has the same sign with
    the result's two numbers: their ratio lies between the same fractions with small numerator and denominator.
    So the optimum stays the optimum, and costs near 2^31 do not leave the range in which the solver is exact.
    """
    if not traffic_cost or not non_overlap_cost:
        return min(traffic_cost, 1), min(non_overlap_cost, 1)
    divisor = int(np.gcd(traffic_cost, non_overlap_cost))
    target_p, target_q = traffic_cost // divisor, non_overlap_cost // divisor
    if target_p <= moves and target_q <= crossings:
        return target_p, target_q
    # Neighbours low < target < high among the fractions p/q with p <= moves and q <= crossings (Stern and Brocot).
    low_p, low_q, high_p, high_q = 0, 1, 1, 0
    while True:
        below = target_p * low_q - low_p * target_q
        above = high_p * target_q - target_p * high_q
        steps = min((below - 1) // above, _room(moves - low_p, high_p), _room(crossings - low_q, high_q))
        low_p, low_q = low_p + steps * high_p, low_q + steps * high_q
        below -= steps * above
        more = min((above - 1) // below, _room(moves - high_p, low_p), _room(crossings - high_q, low_q))
        high_p, high_q = high_p + more * low_p, high_q + more * low_q
        if steps <= 0 and more <= 0:
            return low_p + high_p, low_q + high_q


def _room(left: int, step: int) -> int:
    return INT32_MAX if step == 0 else max(left, 0) // step


def solver_costs(traffic_cost: int, non_overlap_cost: int, rows: RackRows, places: int, cells: int) -> tuple[int, int]:
    """Costs for the solver: as given, unless they are large."""
    if max(traffic_cost, non_overlap_cost) <= _LARGE_COST:
        return traffic_cost, non_overlap_cost
    # On a simple cycle of the residual graph: at most two arcs at each place, cell and hub.
    arcs = 2 * (places + 2 * cells + 1)
    return small_costs(traffic_cost, non_overlap_cost, int(rows.partitions.max(initial=1)) * arcs, arcs)


def rack_costs(rows: RackRows, traffic_cost: int, move_cost: int) -> dict[str, Any]:
    """The arguments of `OwnersProblem` that say what rows cost in racks, and moving."""
    return {
        "item_row": rows.row,
        "default_cost": traffic_cost * rows.partitions,
        "entry_row": rows.entry_row,
        "entry_cell": rows.entry_rack,
        "entry_cost": traffic_cost * (rows.partitions[rows.entry_row] - rows.entry_local),
        "move_cost": np.full(len(rows), move_cost),
        "stay_cost": np.zeros(len(rows), dtype=np.int64),
    }


def optimize_active_columns(
    columns: StateColumns,
    owner: Int32Array,
    selected: AnyIntArray | None = None,
    *,
    traffic_cost: int | None,
    non_overlap_cost: int | None,
    strategy: str,
    partitions: Partitions = "all",
) -> ActiveOutcome:
    """Place active tasks at least trafficCost x cross-rack partitions + nonOverlapCost x moves (KIP-925), exactly.

    `min_traffic` keeps each client's number of the selected tasks. `balance_subtopology` keeps it too, and allows a client
    at most its share of each sub-topology (of each topology), rounded up as Kafka does. Among the cheapest placements one
    with the fewest moves is taken; so a second run changes nothing.

    Args:
        columns: the state.
        owner: (T,) client number of each task's active owner; -1: nobody.
        selected: task numbers that may move; those without owner stay without. None: all.
        traffic_cost: cost of one cross-rack partition; None: not configured.
        non_overlap_cost: cost of moving one task; None: not configured.
        strategy: `none`, `min_traffic` or `balance_subtopology`.
        partitions: which partitions count: `all` (public optimiser), `source` (high availability).

    Returns:
        New owners; with `skipped`, the old ones.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1, or the strategy is unknown.
        StateException: task or client numbers out of range.
    """
    owner = np.array(owner, dtype=np.int32)
    traffic_cost = check_cost("traffic cost", traffic_cost)
    non_overlap_cost = check_cost("non-overlap cost", non_overlap_cost)
    if strategy not in RACK_AWARE_ASSIGNMENT_STRATEGIES:
        raise ConfigException(
            f"The strategy ({strategy!r}) must be one of {', '.join(RACK_AWARE_ASSIGNMENT_STRATEGIES)}."
        )
    tasks = selected_tasks(columns, selected)
    if len(owner) != len(columns.tasks) or (len(owner) and not -1 <= owner.min() <= owner.max() < len(columns.clients)):
        raise StateException(
            f"The owners must be {len(columns.tasks)} client numbers from -1 to {len(columns.clients) - 1}."
        )
    tasks = tasks[owner[tasks] >= 0]
    skipped = strategy_problem(strategy, traffic_cost, non_overlap_cost) or rack_problem(columns, tasks, partitions)
    if skipped is None and not len(tasks):
        skipped = Skipped(SkipReason.NO_TASKS, "None of the selected tasks is active anywhere.")
    if skipped is not None:
        return ActiveOutcome(owner, skipped=skipped)
    assert traffic_cost is not None
    assert non_overlap_cost is not None
    owned_by = owner[tasks].astype(np.int64)
    rows = rack_rows(columns, tasks, partitions)
    before = int(rows.crossings(rows.row, columns.clients.rack[owned_by]).sum())
    solve = _min_traffic if strategy == RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC else _balance_subtopology
    placed = solve(columns, columns.tasks.group[tasks], owned_by, rows, traffic_cost, non_overlap_cost)
    after = int(rows.crossings(rows.row, columns.clients.rack[placed]).sum())
    moves = int((placed != owned_by).sum())
    owner[tasks] = placed
    cost = traffic_cost * after + non_overlap_cost * moves
    return ActiveOutcome(owner, traffic_cost * before, cost, cost, moves)


def selected_tasks(columns: StateColumns, selected: AnyIntArray | None) -> Int64Array:
    """The selected task numbers, distinct and ascending; all tasks if None.

    Raises:
        StateException: a number is no task's.
    """
    if selected is None:
        return np.arange(len(columns.tasks))
    tasks = distinct(np.asarray(selected).reshape(-1))
    if len(tasks) and (tasks.dtype.kind not in "iu" or tasks[0] < 0 or tasks[-1] >= len(columns.tasks)):
        raise StateException(f"The selected tasks must be task numbers from 0 to {len(columns.tasks) - 1}.")
    return tasks.astype(np.int64)


def _min_traffic(
    columns: StateColumns,
    _group: Int32Array,
    owner: Int64Array,
    rows: RackRows,
    traffic_cost: int,
    non_overlap_cost: int,
) -> Int64Array:
    """Swap tasks between racks; who in a rack gets an arriving task does not matter for the cost.

    With counts kept, only the rack of a task matters: a client gives and takes the same number of tasks, and moving a task
    within its rack never helps. So racks are the places, however many clients there are.
    """
    rack = columns.clients.rack.astype(np.int64)
    racks = len(columns.clients.racks)
    traffic, move = solver_costs(traffic_cost, non_overlap_cost, rows, racks, racks)
    counts = np.bincount(rack[owner], minlength=racks)
    problem = OwnersProblem(
        **rack_costs(rows, traffic, move),
        item_owner=rack[owner],
        row_hub=np.zeros(len(rows)),
        cell_hub=np.zeros(racks),
        place_cell=np.arange(racks),
        lower=counts,
        upper=counts,
    )
    target = min_cost_places(problem).place
    moved = np.flatnonzero(target != rack[owner])
    placed = owner.copy()
    # Each client takes as many as it gives, in order: the tasks that arrive in its rack, by number.
    given = np.bincount(owner[moved], minlength=len(rack))
    by_rack = np.argsort(rack, kind="stable")
    placed[moved[np.argsort(target[moved], kind="stable")]] = np.repeat(by_rack, given[by_rack])
    return placed


def _balance_subtopology(
    columns: StateColumns,
    task_group: Int32Array,
    owner: Int64Array,
    rows: RackRows,
    traffic_cost: int,
    non_overlap_cost: int,
) -> Int64Array:
    """Places are the shares of sub-topologies on clients, pools are the clients."""
    rack = columns.clients.rack.astype(np.int64)
    racks = len(columns.clients.racks)
    _, group, group_size = np.unique(task_group, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    groups = len(group_size)
    clients, client = np.unique(owner, return_inverse=True)
    client = client.reshape(-1)
    counts = np.bincount(client)
    # Kafka's arithmetic, in its order, in doubles: ceil(14 * 1.0 / 50 * 25) is 8.
    share = np.ceil((counts * 1.0 / len(owner))[:, None] * group_size[None, :]).astype(np.int64)
    traffic, move = solver_costs(traffic_cost, non_overlap_cost, rows, share.size + len(clients), racks * groups)
    split = grouped(rows, group, groups)
    problem = OwnersProblem(
        **rack_costs(split.rows, traffic, move),
        item_owner=client * groups + group,
        row_hub=split.group,
        cell_hub=split.cell_group,
        place_cell=(rack[clients][:, None] * groups + np.arange(groups)[None, :]).reshape(-1),
        place_upper=share.reshape(-1),
        place_pool=np.repeat(np.arange(len(clients)), groups),
        lower=counts,
        upper=counts,
    )
    return clients[min_cost_places(problem).place // groups]


def min_cost_owners(
    columns: StateColumns,
    tasks: AnyIntArray,
    owner: AnyIntArray,
    *,
    traffic_cost: int,
    non_overlap_cost: int,
    lower: AnyIntArray,
    upper: AnyIntArray,
    partitions: Partitions = "all",
    surplus_cost: AnyIntArray | None = None,
    claims: tuple[Int64Array, Int64Array] | None = None,
) -> OwnersOutcome:
    """Place tasks at least trafficCost x cross-rack partitions + nonOverlapCost x moves, within bounds per client.

    Among the cheapest, the fewest moves; among these, the least surplus cost. Partitions whose racks are not known cost
    nothing anywhere. Every client needs a rack unless `traffic_cost` is 0 (ask `rack_problem` first).

    Args:
        columns: the state.
        tasks: (N,) distinct task numbers, ascending.
        owner: (N,) client that keeps the task for free; -1: nobody, then no move is counted.
        traffic_cost: cost of one cross-rack partition.
        non_overlap_cost: cost of a task that loses its owner.
        lower: (C,) least number of these tasks per client.
        upper: (C,) most of these tasks per client.
        partitions: which partitions count.
        surplus_cost: (C,) cost, as the last goal, of each task of a client above its `lower`.
        claims: (positions in `tasks`, clients) sorted, distinct: tasks with several claims stay for free with any of their
            claimants, not with `owner` alone. With more than `MOST_CLAIM_ARCS` arcs for that only `owner` counts.

    Raises:
        InfeasibleFlowError: the bounds do not fit the number of tasks.
    """
    traffic_cost = check_cost("traffic cost", traffic_cost) or 0
    non_overlap_cost = check_cost("non-overlap cost", non_overlap_cost) or 0
    if traffic_cost:
        rack = columns.clients.rack.astype(np.int64)
        rows = rack_rows(columns, tasks, partitions)
    else:
        rack = np.zeros(len(columns.clients), dtype=np.int64)
        rows = _one_row(len(tasks))
    racks = max(len(columns.clients.racks), 1)
    traffic, move = solver_costs(traffic_cost, non_overlap_cost, rows, len(rack), racks)
    item_owner: Int64Array = np.asarray(owner, dtype=np.int64)
    shared: dict[str, Any] = {}
    if claims is not None:
        rows, item_owner, shared = _shared_rows(rows, item_owner, ClaimSets.of(len(tasks), *claims), traffic, rack)
    problem = OwnersProblem(
        **rack_costs(rows, traffic, move),
        item_owner=item_owner,
        row_hub=np.zeros(len(rows)),
        cell_hub=np.zeros(racks),
        place_cell=rack,
        lower=lower,
        upper=upper,
        surplus_cost=surplus_cost,
        **shared,
    )
    place = min_cost_places(problem).place
    moves = int(problem.is_moved(place).sum())
    crossings = int(crossings_of(columns, np.asarray(tasks), place, partitions).sum()) if traffic_cost else 0
    return OwnersOutcome(place, traffic_cost * crossings + non_overlap_cost * moves, moves)


def _shared_rows(
    rows: RackRows, owner: Int64Array, sets: ClaimSets, traffic: int, rack: Int64Array
) -> tuple[RackRows, Int64Array, dict[str, Any]]:
    """Rows, owners and the arguments of `OwnersProblem` with which tasks with several claims stay with any claimant."""
    if len(sets) < 2:
        return rows, owner, {}
    split, group = split_rows(rows, sets.group, len(sets))
    size = np.diff(sets.offsets)[group]
    if len(split.entry_row) + int(size.sum()) > MOST_CLAIM_ARCS:
        return rows, owner, {}
    row = np.repeat(np.arange(len(split)), size)
    place = sets.owner[ranges(sets.offsets[group], size)]
    return (
        split,
        np.where(sets.group > 0, NOBODY, owner),
        {
            "row_is_shared": group > 0,
            "exception_row": row,
            "exception_place": place,
            "exception_cost": traffic * split.crossings(row, rack[place]),
        },
    )


def _one_row(tasks: int) -> RackRows:
    none = np.zeros(0, dtype=np.int64)
    return RackRows(np.zeros(tasks, dtype=np.int64), np.zeros(min(tasks, 1), dtype=np.int64), none, none, none, 1)
