"""Placing very many copies of tasks: racks as places, then clients within them; conflicts are swapped away or solved again."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import InfeasibleFlowError
from task_assignor.engine.owners_problem import FORBIDDEN, OwnersProblem
from task_assignor.engine.places import min_cost_places
from task_assignor.sdk.arrays import are_in, distinct
from task_assignor.sdk.columns import Int64Array
from task_assignor.utils._classes import RackRows, grouped
from task_assignor.utils._rack_costs import rack_costs, solver_costs

MOST_ROUNDS: Final = 4
"""So often the flow is solved again for copies that found no client in their rack; then they are exchanged one by one."""
MOST_TRIES: Final = 5_000
"""So many copies of the same rack are asked to change places with one that found no client."""
MOST_OFFERS: Final = 20_000
"""So many copies of all racks are looked at for the cheapest exchange with one that found no client."""


@attrs.frozen(eq=False, kw_only=True)
class ManyCopies:
    """N copies on C clients in racks.

    Args:
        task: (N,) task number of each copy, ascending.
        client: (N,) where it is, ascending for each task.
        active: (N,) client that has the copy's task active; -1: nobody.
        rack: (C,) rack of each client.
        kind: (C,) a copy stays among clients of one kind: those with equal tag values. So no task gets less diverse.
        rows: rows of the copies.
        costs: cost of a cross-rack partition, cost of a copy that is not where it was.
    """

    task: Int64Array
    client: Int64Array
    active: Int64Array
    rack: Int64Array
    kind: Int64Array
    rows: RackRows
    costs: tuple[int, int]

    def cost(self, client: Int64Array) -> tuple[int, int]:
        """(cost, copies that are not where one was) of a placement."""
        clients = len(self.rack)
        moves = int((~are_in(self.task * clients + client, self.task * clients + self.client)).sum())
        return int(self.rows.crossings(self.rows.row, self.rack[client]).sum()) * self.costs[0] + moves * self.costs[
            1
        ], moves


def place_many(copies: ManyCopies) -> tuple[Int64Array, int]:
    """(client of each copy, lower bound of the cost). Counts per client are kept, and so is diversity.

    The bound is the optimum without regard to tags and to copies that meet. Placed is the optimum with copies that keep the
    tag values of their clients; where copies would meet in a rack with too few clients, they stay out of it.
    """
    bound = _bound(copies)
    best, current = copies.client, copies
    while True:
        found = _place(current)
        if found is None:
            break
        # As a second call would see it: by task, then client.
        found = found[np.lexsort((found, copies.task))]
        if current.cost(found) >= current.cost(current.client):
            break
        best = found
        if copies.cost(best)[0] == bound:
            break
        # Seen from the result, moving back is no longer free: look again until all is quiet.
        current = attrs.evolve(current, client=best)
    return best, bound


def _bound(copies: ManyCopies) -> int:
    target = min_cost_places(_problem(copies, copies.rows, copies.rack, np.zeros_like(copies.rows.partitions))).place
    crossings = int(copies.rows.crossings(copies.rows.row, target).sum())
    return crossings * copies.costs[0] + int((target != copies.rack[copies.client]).sum()) * copies.costs[1]


def _problem(copies: ManyCopies, rows: RackRows, cell: Int64Array, hub: Int64Array, groups: int = 1) -> OwnersProblem:
    """Cells of clients are the places, with as many copies as they have now."""
    counts = np.bincount(cell[copies.client], minlength=rows.racks)
    traffic, move = solver_costs(*copies.costs, rows, rows.racks, rows.racks)
    return OwnersProblem(
        **rack_costs(rows, traffic, move),
        item_owner=cell[copies.client],
        row_hub=hub,
        cell_hub=np.tile(np.arange(groups), rows.racks // groups),
        place_cell=np.arange(rows.racks),
        lower=counts,
        upper=counts,
    )


def _place(copies: ManyCopies) -> Int64Array | None:
    """One client per copy; None: some found none."""
    kinds = int(copies.kind.max(initial=0)) + 1
    split = grouped(copies.rows, copies.kind[copies.client], kinds)
    cell = copies.rack * kinds + copies.kind
    problem = _problem(copies, split.rows, cell, split.group, kinds)
    apart: set[tuple[int, int]] = set()
    clients = None
    for _ in range(MOST_ROUNDS):
        try:
            target = min_cost_places(_with_own_arcs(problem, sorted(apart))).place
        except InfeasibleFlowError:
            return None
        clients = _Cells(copies, cell, target)
        homeless = clients.settle()
        if not homeless:
            return clients.client
        apart |= homeless
    assert clients is not None
    homes = all(clients.exchange(item) for item, _ in sorted(homeless))
    return clients.client if homes else None


def _with_own_arcs(problem: OwnersProblem, apart: list[tuple[int, int]]) -> OwnersProblem:
    """The problem with a row of its own for every copy that must not go to a cell."""
    if not apart:
        return problem
    items = sorted({item for item, _ in apart})
    row = {item: len(problem.default_cost) + number for number, item in enumerate(items)}
    item_row = problem.item_row.copy()
    old = problem.item_row[items]
    item_row[items] = [row[item] for item in items]
    size = np.bincount(problem.entry_row, minlength=len(problem.default_cost))
    start = np.cumsum(size) - size
    entries = [np.arange(start[each], start[each] + size[each]) for each in old.tolist()]
    copied = np.concatenate(entries) if entries else np.zeros(0, dtype=np.int64)
    new_row = np.repeat([row[item] for item in items], size[old])
    return attrs.evolve(
        problem,
        item_row=item_row,
        default_cost=np.concatenate([problem.default_cost, problem.default_cost[old]]),
        row_hub=np.concatenate([problem.row_hub, problem.row_hub[old]]),
        move_cost=np.concatenate([problem.move_cost, problem.move_cost[old]]),
        stay_cost=np.concatenate([problem.stay_cost, problem.stay_cost[old]]),
        entry_row=np.concatenate([problem.entry_row, new_row]),
        entry_cell=np.concatenate([problem.entry_cell, problem.entry_cell[copied]]),
        entry_cost=np.concatenate([problem.entry_cost, problem.entry_cost[copied]]),
        exception_row=[row[item] for item, _ in apart],
        exception_place=[cell for _, cell in apart],
        exception_cost=[FORBIDDEN] * len(apart),
    )


class _Cells:
    """Clients for the copies that arrive in each cell: each client takes as many as it gives."""

    def __init__(self, copies: ManyCopies, cell: Int64Array, target: Int64Array) -> None:
        self.copies, self.cell, self.target = copies, cell, target
        self.clients = len(cell)
        moved = np.flatnonzero(target != cell[copies.client])
        given = np.bincount(copies.client[moved], minlength=self.clients)
        by_cell = np.argsort(cell, kind="stable")
        self.arrivals = moved[np.argsort(target[moved], kind="stable")]
        self.client = copies.client.copy()
        self.client[self.arrivals] = np.repeat(by_cell, given[by_cell])
        stays = target == cell[copies.client]
        actives = np.flatnonzero(copies.active >= 0)
        self.blocked = distinct(copies.task[actives] * self.clients + copies.active[actives])
        self.stays = np.flatnonzero(stays)

    def settle(self) -> set[tuple[int, int]]:
        """End conflicts by swaps within cells; (copy, cell) pairs for which that failed."""
        task = self.copies.task
        keys = task * self.clients + self.client
        arrives = np.zeros(len(keys), dtype=np.bool_)
        arrives[self.arrivals] = True
        order = np.lexsort((arrives, keys))
        again = np.zeros(len(keys), dtype=np.bool_)
        again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
        again |= are_in(keys, self.blocked)
        conflicts = np.flatnonzero(again)
        if not len(conflicts):
            return set()
        self.pairs: dict[int, int] = {}
        for key in keys.tolist():
            self.pairs[key] = self.pairs.get(key, 0) + 1
        self.blocked_list = self.blocked.tolist()
        arrivals = _by(self.target[self.arrivals], self.arrivals)
        stayers: dict[int, list[int]] | None = None
        homeless = set()
        for item in conflicts.tolist():
            cell = int(self.target[item])
            if not self._in_conflict(item) or self._swap(item, arrivals.get(cell, [])):
                continue
            if stayers is None:
                stayers = _by(self.target[self.stays], self.stays)
            if not self._swap(item, stayers.get(cell, [])):
                homeless.add((item, cell))
        return homeless

    def _key(self, item: int, client: int) -> int:
        return int(self.copies.task[item]) * self.clients + client

    def _is_blocked(self, key: int) -> bool:
        where = bisect_left(self.blocked_list, key)
        return where < len(self.blocked_list) and self.blocked_list[where] == key

    def _in_conflict(self, item: int) -> bool:
        key = self._key(item, int(self.client[item]))
        return self.pairs[key] > 1 or self._is_blocked(key)

    def _swap(self, item: int, others: list[int]) -> bool:
        """Change clients with the first of the others, from the item's own position on, where both may be then."""
        ours = int(self.client[item])
        start = bisect_left(others, item)
        for step in range(min(len(others), MOST_TRIES)):
            other = others[(start + step) % len(others)]
            theirs = int(self.client[other])
            if theirs == ours or self.copies.task[other] == self.copies.task[item]:
                continue
            new_ours, new_theirs = self._key(item, theirs), self._key(other, ours)
            if self.pairs.get(new_ours, 0) or self.pairs.get(new_theirs, 0):
                continue
            if self._is_blocked(new_ours) or self._is_blocked(new_theirs):
                continue
            self._apply(item, other)
            return True
        return False

    def exchange(self, item: int) -> bool:
        """Change clients with a copy of any rack whose client has the same tag values: the cheapest of many offers."""
        if not self._in_conflict(item):
            return True
        copies, ours = self.copies, int(self.client[item])
        number = len(copies.task)
        offers = (item + 1 + np.arange(min(number - 1, MOST_OFFERS))) % number
        theirs = self.client[offers]
        fits = (copies.kind[theirs] == copies.kind[ours]) & (theirs != ours)
        fits &= copies.task[offers] != copies.task[item]
        same_task = slice(*np.searchsorted(copies.task, [copies.task[item], copies.task[item] + 1]))
        fits &= ~np.isin(theirs, np.append(self.client[same_task], copies.active[item]))
        fits &= ~np.isin(copies.task[offers], copies.task[self.client == ours]) & (copies.active[offers] != ours)
        offers, theirs = offers[fits], theirs[fits]
        if not len(offers):
            return False
        other = int(offers[np.argmin(self._cost_of_exchange(item, ours, offers, theirs))])
        self._apply(item, other)
        return True

    def _cost_of_exchange(self, item: int, ours: int, offers: Int64Array, theirs: Int64Array) -> Int64Array:
        copies, (traffic, move) = self.copies, self.copies.costs
        rows, racks = copies.rows.row[offers], copies.rack[theirs]
        here, mine = np.full_like(rows, copies.rack[ours]), np.full_like(rows, copies.rows.row[item])
        crossings = copies.rows.crossings(mine, racks) + copies.rows.crossings(rows, here)
        crossings -= copies.rows.crossings(rows, racks)
        moves = (
            (theirs != copies.client[item]) * 1 + (copies.client[offers] != ours) - (copies.client[offers] != theirs)
        )
        costs: Int64Array = crossings * traffic + moves * move
        return costs

    def _apply(self, item: int, other: int) -> None:
        ours, theirs = int(self.client[item]), int(self.client[other])
        for key, change in (
            (self._key(item, ours), -1),
            (self._key(other, theirs), -1),
            (self._key(item, theirs), 1),
            (self._key(other, ours), 1),
        ):
            self.pairs[key] = self.pairs.get(key, 0) + change
        self.client[item], self.client[other] = theirs, ours


def _by(keys: Int64Array, items: Int64Array) -> dict[int, list[int]]:
    """Key -> its items, ascending."""
    if not len(items):
        return {}
    order = np.lexsort((items, keys))
    distinct, starts = np.unique(keys[order], return_index=True)
    parts = np.split(items[order], starts[1:])
    return {key: part.tolist() for key, part in zip(distinct.tolist(), parts, strict=True)}
