"""The rack-aware optimiser of standbys on columns: what the engine is asked, and cost, bound and gap of its answer."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from task_assignor.engine.copies import place_copies
from task_assignor.engine.copy_goals import CopyProblem, Room
from task_assignor.engine.items import Pairs
from task_assignor.sdk.arrays import are_in, order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC
from task_assignor.sdk.errors import StateException
from task_assignor.utils.rack_actives import check_cost, selected_tasks
from task_assignor.utils.rack_rows import AnyIntArray, Partitions, rack_problem, strategy_problem
from task_assignor.utils.result import Skipped, SkipReason
from task_assignor.utils.standbys import tag_values, traffic_of


@attrs.frozen(eq=False)
class StandbyOutcome:
    """What became of the standbys.

    Args:
        standby_task: (S,) task numbers, pairs sorted by task, then client.
        standby_client: (S,) client numbers.
        cost_before: trafficCost x cross-rack partitions of the selected standbys before; None: skipped.
        cost_after: the same after, plus nonOverlapCost x standbys that are on another client now.
        lower_bound: no placement that keeps counts and tag diversity costs less.
        moves: number of standbys that are on another client now.
        skipped: why nothing was done.
    """

    standby_task: Int32Array
    standby_client: Int32Array
    cost_before: int | None = None
    cost_after: int | None = None
    lower_bound: int | None = None
    moves: int = 0
    skipped: Skipped | None = None


def optimize_standby_columns(
    columns: StateColumns,
    active_owner: Int32Array,
    standby_task: AnyIntArray,
    standby_client: AnyIntArray,
    *,
    traffic_cost: int | None,
    non_overlap_cost: int | None,
    tags: Sequence[str] = (),
    selected: AnyIntArray | None = None,
    partitions: Partitions = "changelog",
    strategy: str = RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC,
) -> StandbyOutcome:
    """Swap standbys between clients for less trafficCost x cross-rack partitions + nonOverlapCost x moves (KIP-925).

    Each client keeps its number of the selected standbys; none goes to a client that has the task; the holders of a task
    (active and standbys) keep at least as many distinct (tag key, value) pairs. Optimal without tags, with one tag key,
    and with one standby per task, as long as one flow over single clients is not too large (`engine/copy_flow.py`); else
    cost, bound and gap. A second run changes nothing. Both strategies are treated alike, as in Kafka's high availability assignor.

    Args:
        columns: the state.
        active_owner: (T,) client number of each task's active owner; -1: nobody.
        standby_task: (S,) task numbers of the standbys.
        standby_client: (S,) their client numbers.
        traffic_cost: cost of one cross-rack partition; None: not configured.
        non_overlap_cost: cost of moving one standby; None: not configured.
        tags: tag keys whose diversity is kept.
        selected: task numbers whose standbys may move; None: all.
        partitions: which partitions count.
        strategy: `none` skips; the others do the same.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1.
        StateException: a client has a task twice, or numbers out of range.
    """
    task, client = np.asarray(standby_task, dtype=np.int64), np.asarray(standby_client, dtype=np.int64)
    order = order_by(task, client)
    task, client = task[order], client[order]
    traffic_cost = check_cost("traffic cost", traffic_cost)
    non_overlap_cost = check_cost("non-overlap cost", non_overlap_cost)
    active = np.asarray(active_owner, dtype=np.int64)
    _check(columns, active, task, client)
    is_selected = np.zeros(len(columns.tasks), dtype=np.bool_)
    is_selected[selected_tasks(columns, selected)] = True
    skipped = strategy_problem(strategy, traffic_cost, non_overlap_cost)
    if skipped is None:
        movable = is_selected[task]
        distinct, row = np.unique(task[movable], return_inverse=True)
        skipped = rack_problem(columns, distinct, partitions)
        if skipped is None and not len(distinct):
            skipped = Skipped(SkipReason.NO_TASKS, "None of the selected tasks has a standby anywhere.")
    if skipped is not None:
        return StandbyOutcome(task.astype(np.int32), client.astype(np.int32), skipped=skipped)
    assert traffic_cost is not None
    assert non_overlap_cost is not None
    held = Pairs.of(row.reshape(-1), client[movable])
    counts = np.bincount(held.owner, minlength=len(columns.clients))
    traffic = traffic_of(columns, distinct, (traffic_cost, non_overlap_cost), partitions)
    found = place_copies(
        CopyProblem(
            main_owner=active[distinct],
            room=Room(np.bincount(held.item, minlength=len(distinct)), counts, counts),
            claims=held,
            tags=tag_values(columns, tags),
            keeps_tags=True,
            traffic=traffic,
        )
    )
    # Pairs are sorted by task, then client, as the ones in `held` are by task.
    before, after = (
        int(traffic.prices.table[traffic.row[held.item], traffic.zone[owner]].sum())
        for owner in (held.owner, found.owner)
    )
    clients = len(columns.clients)
    moves = int((~are_in(found.item * clients + found.owner, held.item * clients + held.owner)).sum())
    client = client.copy()
    client[movable] = found.owner
    order = order_by(task, client)
    return StandbyOutcome(
        task[order].astype(np.int32),
        client[order].astype(np.int32),
        before * traffic_cost,
        after * traffic_cost + moves * non_overlap_cost,
        found.bound,
        moves,
    )


def _check(columns: StateColumns, active: Int64Array, task: Int64Array, client: Int64Array) -> None:
    clients, tasks = len(columns.clients), len(columns.tasks)
    for name, numbers, low, high in (
        ("task", task, 0, tasks),
        ("client", client, 0, clients),
        ("active owner", active, -1, clients),
    ):
        if len(numbers) and not low <= int(numbers.min()) <= int(numbers.max()) < high:
            raise StateException(f"A {name} number of the standbys is not one from {low} to {high - 1}.")
    if len(active) != tasks or len(task) != len(client):
        raise StateException(f"There must be {tasks} active owners, and as many tasks as clients of standbys.")
    keys = task * clients + client
    twice = np.flatnonzero(np.append(keys[1:] == keys[:-1], False) | (active[task] == client))
    if len(twice):
        where = int(twice[0])
        raise StateException(
            f"Client {columns.clients.process_ids[int(client[where])]} has task "
            f"{columns.tasks.task_id(int(task[where]))} twice, as standby and once more."
        )
