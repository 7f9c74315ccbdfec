"""Whole items of different weights within capacities: a rounded relaxation is repaired, then improved by moves and swaps.

Which is NP-hard to do best (bin packing), so this gives up optimality; what it costs at least is known from the relaxation.
Where capacities are so tight that the repair finds no way, `engine/packing.py` looks for one.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.owners_problem import FORBIDDEN, NOBODY, OwnersProblem
from task_assignor.engine.packing import MOST_CHOICES, NoPackingError, packed
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import Int64Array

MOST_PAIRS: Final = 4_000_000
"""Beyond so many (task, client) pairs nothing is improved, only repaired."""
MOST_KEPT: Final = 8_000_000
"""The costs of so many (class, client) pairs are kept while placements are repaired."""
MOST_PASSES: Final = 50
MOST_STEPS: Final = 300_000_000
"""Comparisons of costs that improving may take: some seconds in all."""
_VISIT: Final = 1_000
"""To visit a task takes as long as so many comparisons."""
_FEW_ROWS: Final = 8
"""Tasks that have so many times fewer rows are looked at row by row."""
_NEVER: Final = 2**61


@attrs.frozen
class Overload:
    """No placement within the capacities was found.

    Args:
        client: a client outside its capacities.
        load: the weight it would get.
        is_proven: there is none at all.
    """

    client: int
    load: int
    is_proven: bool = False


def place_weights(problem: OwnersProblem, rounded: Int64Array, weight: Int64Array) -> Int64Array | Overload:
    """(N,) client of each task within the capacities, cheap but not known to be cheapest.

    Args:
        problem: true costs of whole tasks, and capacities in units of weight.
        rounded: (N,) where the relaxation has them; -1: nowhere.
        weight: (N,) weights.
    """
    repair = _Repair(problem, rounded.copy(), weight)
    repair.settle()
    repair.repair_upper()
    repair.repair_lower()
    wrong = repair.outside()
    if wrong is not None:
        try:
            if not repair.pack():
                return wrong
        except NoPackingError:
            return attrs.evolve(wrong, is_proven=True)
    if len(weight) * len(problem.upper) <= MOST_PAIRS:
        repair.improve()
    return repair.place


class _Repair:
    def __init__(self, problem: OwnersProblem, place: Int64Array, weight: Int64Array) -> None:
        self.problem, self.place, self.weight = problem, place, weight
        self.clients = len(problem.upper)
        self.load = np.zeros(self.clients, dtype=np.int64)
        placed = np.flatnonzero(place >= 0)
        np.add.at(self.load, place[placed], weight[placed])
        self.steps = 0
        self._rows: dict[int, tuple[Int64Array, Int64Array]] = {}

    def _costs(self, items: Int64Array) -> Int64Array:
        """(n, C) true cost of the items on every client; forbidden: very much."""
        clients = np.tile(np.arange(self.clients), len(items))
        return self._costs_at(np.repeat(items, self.clients), clients).reshape(len(items), self.clients)

    def _costs_at(self, items: Int64Array, clients: Int64Array) -> Int64Array:
        """(n,) true cost of each item on the client beside it."""
        problem = self.problem
        rows, owners = problem.item_row[items], problem.item_owner[items]
        costs = problem.costs(rows, clients)
        extra = np.where(owners == clients, problem.stay_cost[rows], np.where(owners >= 0, problem.move_cost[rows], 0))
        return np.where(costs == FORBIDDEN, _NEVER, costs + extra)

    def _put(self, item: int, client: int) -> None:
        before = int(self.place[item])
        if before >= 0:
            self.load[before] -= self.weight[item]
        self.load[client] += self.weight[item]
        self.place[item] = client

    def settle(self) -> None:
        """Tasks that the relaxation left nowhere, or where they must not be: heaviest first, cheapest client with room."""
        at = self.problem.costs(self.problem.item_row, np.maximum(self.place, 0))
        lost = np.flatnonzero((self.place < 0) | (at == FORBIDDEN))
        for item in lost[np.argsort(-self.weight[lost], kind="stable")].tolist():
            if self.place[item] >= 0:
                self.load[self.place[item]] -= self.weight[item]
                self.place[item] = NOBODY
            target = int(self._cheapest(np.array([item]))[0][0])
            if target == NOBODY:
                allowed = self._costs(np.array([item]))[0] < _NEVER
                target = int(np.argmax(np.where(allowed, self.problem.upper - self.load, -_NEVER)))
            self._put(item, target)

    def repair_upper(self) -> None:
        """Take weight from clients that have too much: by a move if one fits, else by a swap with a lighter task."""
        while True:
            excess = self.load - self.problem.upper
            client = int(np.argmax(excess))
            if excess[client] <= 0:
                return
            if not (self._move_from(client) or self._swap_from(client, int(excess[client]))):
                return

    def _move_from(self, client: int) -> bool:
        items = np.flatnonzero(self.place == client)
        target, cost = self._cheapest(items)
        gain = np.where(target == NOBODY, _NEVER, cost - self._costs_at(items, self.place[items]))
        best = int(np.argmin(gain)) if len(items) else 0
        if not len(items) or gain[best] >= _NEVER // 2:
            return False
        self._put(int(items[best]), int(target[best]))
        return True

    def _cheapest(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(n,) the cheapest client with room for each item (-1: none), and what the item costs there. Ties go by number."""
        problem, room = self.problem, self.problem.upper - self.load
        rows, weight, owner = problem.item_row[items], self.weight[items], problem.item_owner[items]
        rows_there = distinct(rows)
        if len(rows_there) * _FEW_ROWS > len(items):
            costs = np.where(room >= weight[:, None], self._costs(items), _NEVER)
            target, cost = costs.argmin(axis=1), costs.min(axis=1)
            return np.where(cost < _NEVER, target, NOBODY), cost
        target = np.full(len(items), NOBODY, dtype=np.int64)
        cost = np.full(len(items), _NEVER, dtype=np.int64)
        for row in rows_there.tolist():
            costs, order = self._of_row(row)
            chosen = np.flatnonzero(rows == row)
            # In order of cost the first client with enough room is where the most room so far becomes enough.
            first = np.searchsorted(np.maximum.accumulate(room[order]), weight[chosen])
            chosen, first = chosen[first < self.clients], first[first < self.clients]
            target[chosen] = order[first]
            cost[chosen] = costs[order[first]]
        cost += np.where((owner >= 0) & (target != NOBODY), problem.move_cost[rows], 0)
        # Staying may be cheaper than the cost of the client says.
        owned = np.flatnonzero(owner >= 0)
        owned = owned[room[owner[owned]] >= weight[owned]]
        stays = self._costs_at(items[owned], owner[owned])
        better = (stays < cost[owned]) | ((stays == cost[owned]) & (owner[owned] < target[owned]))
        target[owned[better]], cost[owned[better]] = owner[owned[better]], stays[better]
        target[cost >= _NEVER] = NOBODY
        return target, cost

    def _of_row(self, row: int) -> tuple[Int64Array, Int64Array]:
        """(C,) what items of the row cost on each client, without staying or moving, and the clients in that order."""
        found = self._rows.get(row)
        if found is None:
            costs = self.problem.costs(np.full(self.clients, row), np.arange(self.clients))
            costs = np.where(costs == FORBIDDEN, _NEVER, costs)
            found = costs, np.argsort(costs, kind="stable")
            if len(self._rows) * self.clients < MOST_KEPT:
                self._rows[row] = found
        return found

    def _swap_from(self, client: int, excess: int) -> bool:
        """Swap a heavier task of the client with a lighter one whose client has room for the difference."""
        ours, others = np.flatnonzero(self.place == client), np.flatnonzero(self.place != client)
        our_costs, their_cost = self._costs(ours), self._costs_at(others, np.full(len(others), client))
        theirs = self.place[others]
        room = (self.problem.upper - self.load)[theirs]
        stay = self.problem.item_costs(self.place)
        best: tuple[int, int, int] | None = None
        for row, item in enumerate(ours.tolist()):
            heavier = int(self.weight[item]) - self.weight[others]
            cost = our_costs[row, theirs] + their_cost - int(stay[item]) - stay[others]
            fits = (heavier > 0) & (heavier <= room) & (our_costs[row, theirs] < _NEVER) & (their_cost < _NEVER)
            if not fits.any():
                continue
            # As little cost as can be per unit that gets away, units beyond the excess not counted.
            got = np.minimum(heavier, excess)
            price = np.where(fits, np.maximum(cost, 0) / np.maximum(got, 1), np.inf)
            where = int(np.lexsort((-got, price))[0])
            candidate = (int(max(cost[where], 0)) * 1_000 // int(got[where]), item, int(others[where]))
            best = candidate if best is None else min(best, candidate)
        if best is None:
            return False
        _, item, other = best
        target = int(self.place[other])
        self._put(item, target)
        self._put(other, client)
        return True

    def repair_lower(self) -> None:
        """Give weight to clients that have too little, from those that can spare it."""
        while True:
            lack = self.problem.lower - self.load
            client = int(np.argmax(lack))
            if lack[client] <= 0:
                return
            spare = self.load - self.problem.lower
            items = np.flatnonzero(
                (self.weight <= spare[self.place])
                & (self.weight <= self.problem.upper[client] - self.load[client])
                & (self.place != client)
            )
            costs = self._costs_at(items, np.full(len(items), client))
            items, costs = items[costs < _NEVER], costs[costs < _NEVER]
            if not len(items):
                return
            self._put(int(items[np.argmin(costs - self.problem.item_costs(self.place)[items])]), client)

    def outside(self) -> Overload | None:
        """A client outside its capacities."""
        wrong = np.flatnonzero((self.load > self.problem.upper) | (self.load < self.problem.lower))
        return Overload(int(wrong[0]), int(self.load[wrong[0]])) if len(wrong) else None

    def pack(self) -> bool:
        """Let a solver look for a placement within the capacities; say whether it found one.

        Raises:
            NoPackingError: there is none.
        """
        if len(self.place) * self.clients > MOST_CHOICES:
            return False
        costs = self._costs(np.arange(len(self.place)))
        found = packed(costs, costs < _NEVER, self.weight, self.problem.lower, self.problem.upper)
        if found is None:
            return False
        self.place = found
        self.load = np.zeros(self.clients, dtype=np.int64)
        np.add.at(self.load, found, self.weight)
        return True

    def improve(self) -> None:
        """Passes of moves that pay and swaps that pay, until a pass finds none, or the time for it is over."""
        costs = self._costs(np.arange(len(self.place)))
        for _ in range(MOST_PASSES):
            if not (self._moves(costs) | self._swaps(costs)) or self.steps >= MOST_STEPS:
                return

    def _may_take(self, steps: int) -> bool:
        """Count a visit; say whether there is still time for it."""
        self.steps += steps + _VISIT
        return self.steps < MOST_STEPS

    def _own(self, costs: Int64Array) -> Int64Array:
        own: Int64Array = costs[np.arange(len(self.place)), self.place]
        return own

    def _would_gain(self, costs: Int64Array) -> list[int]:
        """Tasks that would be cheaper elsewhere, those that would gain most first."""
        if not costs.size:
            return []
        gain = costs.min(axis=1) - self._own(costs)
        return [item for item in np.argsort(gain, kind="stable").tolist() if gain[item] < 0]

    def _moves(self, costs: Int64Array) -> bool:
        """Each task that would be cheaper elsewhere goes to the cheapest client with room."""
        moved = False
        for item in self._would_gain(costs):
            if not self._may_take(self.clients):
                break
            ours, weight = int(self.place[item]), int(self.weight[item])
            if self.load[ours] - weight < self.problem.lower[ours]:
                continue
            fits = self.problem.upper - self.load >= weight
            target = int(np.argmin(np.where(fits, costs[item], _NEVER)))
            if fits[target] and costs[item, target] < costs[item, ours]:
                self._put(item, target)
                moved = True
        return moved

    def _swaps(self, costs: Int64Array) -> bool:
        """Each task that would be cheaper elsewhere changes places with the one with which that pays most."""
        swapped = False
        own, lower, upper = self._own(costs), self.problem.lower, self.problem.upper
        for item in self._would_gain(costs):
            if not self._may_take(len(self.place)):
                break
            ours, place = int(self.place[item]), self.place
            gain = costs[item, place] - own[item] + costs[:, ours] - own
            change = self.weight - self.weight[item]
            load = self.load[place] - change
            fits = (self.load[ours] + change <= upper[ours]) & (self.load[ours] + change >= lower[ours])
            fits &= (load <= upper[place]) & (load >= lower[place]) & (place != ours)
            gain = np.where(fits, gain, 0)
            other = int(np.argmin(gain))
            if gain[other] < 0:
                target = int(place[other])
                self._put(item, target)
                self._put(other, ours)
                own[item], own[other] = costs[item, target], costs[other, ours]
                swapped = True
        return swapped
