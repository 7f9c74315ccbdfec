"""Rack-aware placement of standbys: what the engine is asked, and cost, bound and gap of its answer."""

from __future__ import annotations

import numpy as np

from task_assignor.engine.copies.goals import CopyProblem, Room
from task_assignor.engine.copies.placement import place_copies
from task_assignor.engine.items import Pairs
from task_assignor.sdk import ApplicationState
from task_assignor.sdk.errors import StateException
from task_assignor.utils.given import Assignments, are_selected, inexact_of, placement_of, tag_values
from task_assignor.utils.goals import Goal, inexact_standbys
from task_assignor.utils.placement import Placement
from task_assignor.utils.rack_costs import AnyIntArray, Partitions, usable_costs
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason
from task_assignor.utils.standbys import prices_of


def optimize_standbys(
    application_state: ApplicationState,
    assignments: Assignments,
    tasks: AnyIntArray | None = None,
    *,
    traffic_cost: int | None,
    non_overlap_cost: int | None,
    partitions: Partitions = "changelog",
) -> AssignmentResult:
    """What `optimize_rack_aware_standby_tasks` does, with more to choose (KIP-925).

    Optimal without tags, with one tag key, and with one standby per task, as long as one flow over single clients is not too
    large (`engine/copies/flow.py`): then of the cheapest placements it is one with the fewest moves. Else cost, bound and gap,
    and `inexact` names `STANDBY_STATE`, and `STANDBY_COST` unless the bound is reached.

    Args:
        application_state: tasks, clients and settings.
        assignments: the assignment; it is not changed. Clients may be left out.
        tasks: numbers of the tasks whose standbys may move; None: all.
        traffic_cost: cost of one cross-rack partition; None: not configured.
        non_overlap_cost: cost of moving one standby; None: not configured.
        partitions: which partitions count.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1.
        StateException: a number is no task's, unknown clients or tasks, a task that is active on two clients, or a client
            that has a task twice.
    """
    before = placement_of(application_state, assignments)
    columns, configs = application_state.columns, application_state.assignment_configs
    _check_once(before)
    movable = np.flatnonzero(are_selected(columns, tasks)[before.standby_task])
    distinct, row = np.unique(before.standby_task[movable], return_inverse=True)
    costs = usable_costs(columns, configs, distinct, partitions, (traffic_cost, non_overlap_cost))
    if not isinstance(costs, Skipped) and not len(distinct):
        costs = Skipped(SkipReason.NO_TASKS, "None of the selected tasks has a standby anywhere.")
    if isinstance(costs, Skipped):
        return AssignmentResult(before, skipped=costs, inexact=inexact_of(assignments))
    held = Pairs.of(row.reshape(-1), before.standby_client[movable])
    counts = np.bincount(held.owner, minlength=len(columns.clients))
    prices = prices_of(columns, distinct, costs, partitions)
    found = place_copies(
        CopyProblem(
            main_owner=before.active_owner[distinct].astype(np.int64),
            room=Room(np.bincount(held.item, minlength=len(distinct)), counts, counts),
            claims=held,
            tags=tag_values(columns.clients.client_tags, configs.rack_aware_assignment_tags),
            keeps_tags=True,
            prices=prices,
        )
    )
    traffic_before = int(prices.costs.at(prices.costs.row[held.item], prices.zone[held.owner]).sum())
    # Pairs are sorted by task, then client, as the ones in `held` are by task.
    client = before.standby_client.copy()
    client[movable] = found.owner
    return AssignmentResult(
        Placement.of(columns, before.active_owner, before.standby_task, client, before.deadline_ms),
        cost_before=prices.traffic * traffic_before,
        cost_after=found.cost,
        lower_bound=found.bound,
        # Loads are given, and so is how many tag values there must be.
        inexact=inexact_of(assignments) | inexact_standbys(found.exact) & {Goal.STANDBY_COST, Goal.STANDBY_STATE},
    )


def _check_once(placed: Placement) -> None:
    """Raise if a client has a task twice."""
    task, client = placed.standby_task, placed.standby_client
    is_repeated = (task[1:] == task[:-1]) & (client[1:] == client[:-1])
    twice = np.flatnonzero(np.append(is_repeated, False) | (placed.active_owner[task] == client))
    if len(twice):
        where, columns = int(twice[0]), placed.state
        raise StateException(
            f"Client {columns.clients.process_ids[int(client[where])]} has task "
            f"{columns.tasks.task_id(int(task[where]))} twice, as standby and once more."
        )
