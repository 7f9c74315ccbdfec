"""What rack traffic and moves cost, whether that can be used, and in numbers that can be solved exactly."""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.columns import StateColumns
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_NONE, AssignmentConfigs
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.utils.rack_rows import AnyIntArray, Partitions, rack_problem
from task_assignor.utils.result import Skipped, SkipReason

_LARGE_COST: Final = 2**15


def check_cost(name: str, cost: object) -> int | None:
    """The cost, if it is None or a whole number from 0 to 2^31 - 1.

    Raises:
        ConfigException: it is not.
    """
    return None if cost is None else whole_number(name, cost, 0)


def usable_costs(
    columns: StateColumns,
    configs: AssignmentConfigs,
    tasks: AnyIntArray | None,
    partitions: Partitions,
    costs: tuple[int | None, int | None],
) -> tuple[int, int] | Skipped:
    """The costs of a cross-rack partition and of a move; or why racks do not count: by the settings, or as some are not known.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1.
    """
    traffic, move = check_cost("traffic cost", costs[0]), check_cost("non-overlap cost", costs[1])
    if configs.rack_aware_assignment_strategy == RACK_AWARE_ASSIGNMENT_STRATEGY_NONE:
        return Skipped(SkipReason.STRATEGY_NONE, "The rack.aware.assignment.strategy is none.")
    if traffic is None or move is None:
        key = "traffic_cost" if traffic is None else "non_overlap_cost"
        return Skipped(
            SkipReason.COST_MISSING, f"The rack.aware.assignment.{key} is not configured, and no override is given."
        )
    return rack_problem(columns, tasks, partitions) or (traffic, move)


def costs_in_use(
    columns: StateColumns, configs: AssignmentConfigs, tasks: AnyIntArray | None = None, partitions: Partitions = "all"
) -> tuple[int, int] | None:
    """`usable_costs` as configured; None: racks do not count."""
    costs = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
    found = usable_costs(columns, configs, tasks, partitions, costs)
    return None if isinstance(found, Skipped) else found


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


def solver_costs(traffic_cost: int, non_overlap_cost: int, rows: RowCosts, places: int, cells: int) -> tuple[int, int]:
    """Costs for the solver: as given, unless they are large."""
    if max(traffic_cost, non_overlap_cost) <= _LARGE_COST:
        return traffic_cost, non_overlap_cost
    # On a simple cycle of the residual graph: at most two arcs at each place, cell and hub.
    arcs = 2 * (places + 2 * cells + 1)
    return small_costs(traffic_cost, non_overlap_cost, int(rows.default.max(initial=1)) * arcs, arcs)
