"""Rack-aware placement of active tasks: exact optima by the flow model. Standbys are in `rack_standbys.py`."""

from __future__ import annotations

import numpy as np

from task_assignor.sdk import ApplicationState
from task_assignor.sdk.arrays import distinct_and_numbers, numbered
from task_assignor.sdk.checks import check_flag
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC
from task_assignor.utils.given import Assignments, are_selected, inexact_of, placement_of
from task_assignor.utils.goals import Goal
from task_assignor.utils.rack_costs import AnyIntArray, Partitions, rack_rows, usable_costs
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason
from task_assignor.utils.subtopologies import Subtopologies


def optimize_actives(
    application_state: ApplicationState,
    assignments: Assignments,
    tasks: AnyIntArray | None = None,
    *,
    traffic_cost: int | None,
    non_overlap_cost: int | None,
    partitions: Partitions = "all",
    ties_stay: bool = True,
) -> AssignmentResult:
    """What `optimize_rack_aware_active_tasks` does, with more to choose (KIP-925).

    With `balance_subtopology` the sub-topologies of each topology count, and shares are rounded up as Kafka does.

    Args:
        application_state: tasks, clients and settings.
        assignments: the assignment; it is not changed. Clients may be left out.
        tasks: numbers of the tasks that may move; those without owner stay without. None: all.
        traffic_cost: cost of one cross-rack partition; None: not configured.
        non_overlap_cost: cost of moving one task; None: not configured.
        partitions: which partitions count: `all` (public optimiser), `source` (high availability).
        ties_stay: of two placements that cost the same, take that with fewer moves; else that with less traffic, which is
            right where the tasks do not run where the assignment has them.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1.
        StateException: a number is no task's, unknown clients or tasks, or a task that is active on two clients.
    """
    check_flag("ties_stay", ties_stay)
    before = placement_of(application_state, assignments)
    columns, configs = application_state.columns, application_state.assignment_configs
    chosen = np.flatnonzero(are_selected(columns, tasks) & (before.active_owner >= 0))
    costs = usable_costs(columns, configs, chosen, partitions, (traffic_cost, non_overlap_cost))
    if not isinstance(costs, Skipped) and not len(chosen):
        costs = Skipped(SkipReason.NO_TASKS, "None of the selected tasks is active anywhere.")
    if isinstance(costs, Skipped):
        return AssignmentResult(before, skipped=costs, inexact=inexact_of(assignments))
    owned_by = before.active_owner[chosen].astype(np.int64)
    rows = rack_rows(columns, chosen, partitions)
    traffic_before = int(rows.at(rows.row, columns.clients.rack[owned_by]).sum())
    # With `min_traffic` numbers are all that counts: as if there were one sub-topology.
    keeps_numbers_alone = configs.rack_aware_assignment_strategy == RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC
    group = np.zeros_like(chosen) if keeps_numbers_alone else numbered(columns.tasks.group[chosen].astype(np.int64))
    clients, client = distinct_and_numbers(owned_by)
    rack = columns.clients.rack[clients].astype(np.int64)
    found, too_many = Subtopologies(rows, group, client, rack, costs, ties_stay or not all(costs)).balanced()
    placed = clients[found]
    traffic_after = int(rows.at(rows.row, columns.clients.rack[placed]).sum())
    cost = costs[0] * traffic_after + costs[1] * int((placed != owned_by).sum())
    owner = before.active_owner.copy()
    owner[chosen] = placed
    return AssignmentResult(
        before.with_owners(owner),
        cost_before=costs[0] * traffic_before,
        cost_after=cost,
        lower_bound=cost - costs[1] * too_many,
        inexact=inexact_of(assignments) | ({Goal.ACTIVE_COST} if too_many else frozenset()),
    )
