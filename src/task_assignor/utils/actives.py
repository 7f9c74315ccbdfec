"""`place_actives`: active tasks stay where they are, within even shares. The engine decides; here tasks become its items."""

from __future__ import annotations

import numpy as np

from task_assignor.engine.actives.allocation import allocate
from task_assignor.engine.actives.exchange import are_surely_even, exchanged
from task_assignor.engine.actives.problem import Problem, RackCosts
from task_assignor.sdk import ApplicationState, AssignmentConfigs, StateColumns
from task_assignor.sdk.checks import check_flag
from task_assignor.utils.given import check_has_clients
from task_assignor.utils.goals import Goal, inexact_actives
from task_assignor.utils.history import previous_actives, previous_state
from task_assignor.utils.placement import Placement
from task_assignor.utils.rack_costs import costs_in_use, rack_rows, solver_costs
from task_assignor.utils.result import AssignmentResult


def place_actives(
    application_state: ApplicationState, *, must_preserve: bool = False, use_racks: bool = True
) -> AssignmentResult:
    """Give every task an active owner; standbys are another step.

    The goals, in this order:

    1. every client has floor or ceil of its thread-weighted share of the tasks;
    2. fewest tasks leave their previous active owner (of several the newest generation counts, KIP-341); with a rack-aware
       strategy, both costs set and all racks known (KIP-925): least trafficCost x cross-rack partitions + nonOverlapCost
       x tasks that leave;
    3. loads are even, of stateful tasks, then of all: the sum over the clients of tasks² / threads is least;
    4. tasks that move go where their state is; of several such clients to those with less lag;
    5. with `num.standby.replicas`: of answers that are equal so far one with which total loads can be even.

    With `must_preserve` goal 2 comes before goal 1, without racks. All goals but the last, a local search, are reached
    exactly, but on inputs of millions; `AssignmentResult.inexact` names those that were perhaps not, the last one
    (`STANDBY_LOADS`) unless it is proven that no loads could be more even.

    Args:
        application_state: tasks, clients, history and settings.
        must_preserve: no task leaves a client that had it.
        use_racks: whether racks count if the settings say so.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: an argument is of another kind.
        TaskAssignmentException: there are tasks but no clients.
    """
    check_has_clients(application_state)
    check_flag("must_preserve", must_preserve)
    check_flag("use_racks", use_racks)
    columns, configs = application_state.columns, application_state.assignment_configs
    problem = Problem(
        columns.tasks.is_stateful,
        columns.clients.num_processing_threads,
        previous_actives(columns),
        previous_state(columns),
        must_preserve,
        racks=_rack_costs(columns, configs) if use_racks and not must_preserve else None,
    )
    found = allocate(problem)
    owner, inexact = found.owner.astype(np.int64), inexact_actives(found.exact)
    wanted = np.where(columns.tasks.has_changelog, configs.num_standby_replicas, 0)
    if wanted.any():
        owner = exchanged(problem, wanted, owner)
        if not are_surely_even(problem, wanted, owner):
            inexact |= {Goal.STANDBY_LOADS}
    return AssignmentResult(Placement.of(columns, owner), inexact=inexact)


def _rack_costs(columns: StateColumns, configs: AssignmentConfigs) -> RackCosts | None:
    """What tasks cost on racks; None: racks do not count by the settings, or are not known."""
    costs = costs_in_use(columns, configs)
    if costs is None:
        return None
    tasks, clients, racks = (len(part) for part in (columns.tasks, columns.clients, columns.clients.racks))
    rows = rack_rows(columns, np.arange(tasks), "all")
    traffic, move = solver_costs(*costs, rows, 2 * clients, racks)
    return RackCosts(rows.times(traffic), move, columns.clients.rack.astype(np.int64))
