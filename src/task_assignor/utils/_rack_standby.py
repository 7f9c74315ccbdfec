"""Rack-aware placement of standbys on columns: cost, bound and gap. How copies are placed is in the `_standby_...` modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.standby_flow import Copies
from task_assignor.engine.standby_search import best_placement
from task_assignor.sdk.arrays import are_in
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC
from task_assignor.sdk.errors import StateException
from task_assignor.utils._classes import (
    AnyIntArray,
    Partitions,
    rack_problem,
    rack_rows,
    strategy_problem,
)
from task_assignor.utils._rack import check_cost, selected_tasks
from task_assignor.utils._rack_costs import small_costs
from task_assignor.utils._standby_cells import ManyCopies, place_many
from task_assignor.utils.result import Skipped, SkipReason

MOST_PAIRS: Final = 4_000_000
"""Up to so many arcs every (task, client) pair gets its own, which is exact; beyond, racks are the places."""


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


def tag_values(columns: StateColumns, tags: Sequence[str]) -> Int64Array:
    """(C, G) number of each client's value of each tag key; -1: the client has no such tag."""
    values = np.full((len(columns.clients), len(tags)), -1, dtype=np.int64)
    for number, key in enumerate(tags):
        given = [client_tags.get(key) for client_tags in columns.clients.client_tags]
        order = {value: place for place, value in enumerate(sorted({value for value in given if value is not None}))}
        values[:, number] = [-1 if value is None else order[value] for value in given]
    return values


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
    and with one standby per task, as long as tasks x clients (three times that with tags) is at most 4 000 000; else cost,
    bound and gap. A second run changes nothing. Both strategies are treated alike, as in Kafka's high availability assignor.

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
    order = np.lexsort((client, task))
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
    values = tag_values(columns, tags)
    given = _Given(columns, partitions, (traffic_cost, non_overlap_cost), values)
    arcs = len(distinct) * len(columns.clients) * (3 if len(tags) else 1)
    place = given.pairs if arcs <= MOST_PAIRS else given.cells
    placed, bound = place(distinct, row.reshape(-1), client[movable], active)
    before, after, moves = given.costs_of(task[movable], client[movable], placed)
    client = client.copy()
    client[movable] = placed
    order = np.lexsort((client, task))
    return StandbyOutcome(task[order].astype(np.int32), client[order].astype(np.int32), before, after, bound, moves)


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


@attrs.frozen(eq=False)
class _Given:
    """What both ways of placing need."""

    columns: StateColumns
    partitions: Partitions
    costs: tuple[int, int]
    tag_value: Int64Array

    @property
    def rack(self) -> Int64Array:
        return self.columns.clients.rack.astype(np.int64)

    def costs_of(self, task: Int64Array, before: Int64Array, after: Int64Array) -> tuple[int, int, int]:
        """(cost before, cost after, moves)."""
        rows = rack_rows(self.columns, task, self.partitions)
        crossings = [int(rows.crossings(rows.row, self.rack[client]).sum()) for client in (before, after)]
        clients = len(self.columns.clients)
        moves = int((~are_in(task * clients + after, task * clients + before)).sum())
        return crossings[0] * self.costs[0], crossings[1] * self.costs[0] + moves * self.costs[1], moves

    def pairs(
        self, tasks: Int64Array, row: Int64Array, client: Int64Array, active: Int64Array
    ) -> tuple[Int64Array, int]:
        """One arc per (task, client) pair."""
        clients = len(self.columns.clients)
        rows = rack_rows(self.columns, tasks, self.partitions)
        racks = np.arange(rows.racks)
        table = rows.crossings(np.repeat(np.arange(len(rows)), rows.racks), np.tile(racks, len(rows)))
        crossings = table.reshape(len(rows), rows.racks)[rows.row][:, self.rack]
        held = np.zeros((len(tasks), clients), dtype=np.bool_)
        held[row, client] = True
        # Each client is met at most once on a simple cycle, by two arcs.
        most = 2 * clients
        small = small_costs(*self.costs, int(rows.partitions.max(initial=1)) * most, most)
        copies = Copies(
            held=held,
            active=active[tasks],
            crossings=crossings,
            costs=self.costs,
            solver_costs=min(self.costs, small, key=max),
            tag_value=self.tag_value,
            needed=np.zeros(len(tasks), dtype=np.int64),
        )
        copies = attrs.evolve(copies, needed=copies.diversity(held))
        found = best_placement(copies)
        # Pairs are sorted by task, then client, as the ones in `row` are by task.
        return np.nonzero(found.held)[1], found.lower_bound

    def cells(
        self, tasks: Int64Array, row: Int64Array, client: Int64Array, active: Int64Array
    ) -> tuple[Int64Array, int]:
        """Racks as places."""
        _, kind = np.unique(self.tag_value, axis=0, return_inverse=True)
        if not self.tag_value.shape[1]:
            kind = np.zeros(len(self.columns.clients), dtype=np.int64)
        copies = ManyCopies(
            task=tasks[row],
            client=client,
            active=active[tasks[row]],
            rack=self.rack,
            kind=kind.reshape(-1),
            rows=rack_rows(self.columns, tasks[row], self.partitions),
            costs=self.costs,
        )
        return place_many(copies)
