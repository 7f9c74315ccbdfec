"""Whole items of different weights within tight limits, where nothing else finds a way (OR-Tools' CP-SAT)."""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_PACKED: Final = 4_000
"""Up to so many pairs of task and client the solver is asked."""
MOST_WORK: Final = 0.5
"""Where the solver stops, in its own deterministic unit (one takes some seconds): equal input stops at the same point."""
_MOST_WEIGHT: Final = 2**53


class NoPackingError(Exception):
    """No placement within the capacities exists."""


def packed(
    costs: Int64Array, allowed: BoolArray, weight: Int64Array, lower: Int64Array, upper: Int64Array
) -> Int64Array | None:
    """(N,) clients within the capacities, the cheapest that were found; None: none was found, though there may be some.

    Args:
        costs: (N, C) what each task costs on each client.
        allowed: (N, C) where it may run.
        weight: (N,) weights of the tasks.
        lower: (C,) least weight of each client.
        upper: (C,) most weight of each client.

    Raises:
        NoPackingError: it is proven that there is none.
    """
    total = sum(weight.tolist())
    spread = int(costs[allowed].max(initial=0)) - int(costs[allowed].min(initial=0))
    if allowed.size > MOST_PACKED or total > _MOST_WEIGHT or spread * len(weight) > _MOST_WEIGHT:
        return None
    # Takes as long to import as the rest of the package.
    from ortools.sat.python import cp_model

    model, least = cp_model.CpModel(), int(costs[allowed].min(initial=0))
    chosen: list[dict[int, cp_model.IntVar]] = [{} for _ in weight]
    for task, client in zip(*(rows.tolist() for rows in np.nonzero(allowed)), strict=True):
        chosen[task][client] = model.new_bool_var("")
    for of_task in chosen:
        model.add_exactly_one(of_task.values())
    for client, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        load = sum(int(weight[task]) * of_task[client] for task, of_task in enumerate(chosen) if client in of_task)
        model.add_linear_constraint(load, min(low, total + 1), min(high, total))
    model.minimize(
        sum(
            (int(costs[task, client]) - least) * variable
            for task, of_task in enumerate(chosen)
            for client, variable in of_task.items()
        )
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = MOST_WORK
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        raise NoPackingError
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return np.array(
        [next(client for client, variable in of_task.items() if solver.value(variable)) for of_task in chosen],
        dtype=np.int64,
    )
