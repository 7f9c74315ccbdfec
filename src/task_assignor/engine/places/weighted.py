"""Whole items of different weights within capacities: what they cost at least, and a placement that is good.

To find the best one is NP-hard (bin packing). A flow in which items can be split gives a bound; rounded to whole items it
is made to fit, then improved by moves and swaps. Where capacities are so tight that nothing fits, `engine/places/packing.py`
looks for a way.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import CostRangeError
from task_assignor.engine.items import NOBODY, sums
from task_assignor.engine.places.min_cost import min_cost_places
from task_assignor.engine.places.packing import MOST_PACKED, NoPackingError, packed
from task_assignor.engine.places.problem import FORBIDDEN, PlacesProblem
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import csr_pairs, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import Int64Array

MOST_IMPROVED: Final = 4_000_000
"""Beyond so many (item, owner) pairs nothing is improved, only made to fit."""
MOST_KEPT: Final = 8_000_000
"""The costs of so many (row, owner) pairs are kept."""
MOST_OWN_PLACES: Final = 1_000_000
"""Up to so many pairs of owner and weight each pair is a place of its own, with its own cost per unit."""
MOST_SCALE: Final = 10**6
"""Costs per unit of weight are kept to this precision at most; the bound loses the rest."""
MOST_STEPS: Final = 300_000_000
"""Comparisons of costs that improving may take: some seconds in all."""
_VISIT: Final = 1_000
"""To visit an item takes as long as so many comparisons."""
_NEVER: Final = 2**61


@attrs.frozen
class Overload:
    """No placement within the capacities was found.

    Args:
        client: an owner outside its capacities.
        load: the weight it would get.
        is_proven: there is none at all.
    """

    client: int
    load: int
    is_proven: bool = False


def relaxed(problem: PlacesProblem, weight: Int64Array) -> tuple[Int64Array, int]:
    """Place items that can be split.

    Args:
        problem: true costs of whole items, and capacities in units of weight.
        weight: (N,) weight of each item, at least 1.

    Returns:
        (owner of each item, rounded, -1: nowhere; lower bound of the cost of whole items)

    Raises:
        InfeasibleFlowError: even split items do not fit.
        CostRangeError: the costs are too large for exact arithmetic.
    """
    weights, of_item = distinct_and_numbers(weight)
    scale = min(math.lcm(*weights.tolist()) if len(weights) < 1000 else MOST_SCALE, MOST_SCALE)
    per_owner = len(weights) if problem.place_cost.any() and len(weights) * len(problem.upper) <= MOST_OWN_PLACES else 1
    while True:
        try:
            found = min_cost_places(_per_unit(problem, weights, of_item, per_owner, scale))
            break
        except CostRangeError:
            if scale == 1:
                raise
            scale = max(scale // 10, 1)
    # Costs were rounded down, and whole items cost a whole number.
    return np.where(found.place == NOBODY, NOBODY, found.place // per_owner), -(-found.cost // scale)


def _per_unit(
    problem: PlacesProblem, weights: Int64Array, of_item: Int64Array, per_owner: int, scale: int
) -> PlacesProblem:
    """A row for every row and weight, with costs per unit of weight, times `scale`, rounded down.

    With as many places per owner as weights there is one for every owner and weight, so that an owner's own cost per unit is
    exact; with one it is that of the heaviest, so that the bound stays one.
    """
    rows, row = distinct_and_numbers(problem.costs.row * len(weights) + of_item)
    base, of_row = rows // len(weights), rows % len(weights)
    units, part, costs = weights[of_row], of_row % per_owner, problem.costs.of_rows(base, row)
    exception_row, exception = csr_pairs(offsets_of(problem.exception_row, len(problem.costs)), base)
    owners = np.repeat(np.arange(len(problem.upper)), per_owner)

    def scaled(costs: Int64Array, units: Int64Array) -> Int64Array:
        # Without overflow.
        return costs // units * scale + costs % units * scale // units

    cost = problem.exception_cost[exception]
    return PlacesProblem(
        costs=RowCosts(
            row,
            scaled(costs.default, units),
            costs.entry_row,
            costs.entry_cell * per_owner + part[costs.entry_row],
            scaled(costs.entry_cost, units[costs.entry_row]),
            costs.cells * per_owner,
        ),
        item_place=np.where(problem.item_place < 0, NOBODY, problem.item_place * per_owner + of_item % per_owner),
        item_weight=weights[of_item],
        row_hub=part,
        move_cost=scaled(problem.move_cost[base], units),
        stay_cost=scaled(problem.stay_cost[base], units),
        cell_hub=np.tile(np.arange(per_owner), len(problem.cell_hub)),
        place_cell=problem.place_cell[owners] * per_owner + np.tile(np.arange(per_owner), len(problem.upper)),
        place_cost=scaled(problem.place_cost[owners], np.tile(weights[-per_owner:], len(problem.upper))),
        place_upper=problem.upper[owners],
        place_owner=owners,
        lower=problem.lower,
        upper=problem.upper,
        exception_row=exception_row,
        exception_place=problem.exception_place[exception] * per_owner + part[exception_row],
        exception_cost=np.where(cost == FORBIDDEN, FORBIDDEN, scaled(cost, units[exception_row])),
    )


def place_weights(problem: PlacesProblem, rounded: Int64Array, weight: Int64Array) -> Int64Array | Overload:
    """(N,) owner of each item within the capacities, cheap but not known to be cheapest.

    Args:
        problem: true costs of whole items, and capacities in units of weight.
        rounded: (N,) where the relaxation has them; -1: nowhere.
        weight: (N,) weights.
    """
    fitting = _Fitting(problem, rounded.copy(), weight)
    fitting.fit()
    if fitting.outside() is not None:
        fitting.spread()
    wrong = fitting.outside()
    if wrong is not None:
        try:
            if not fitting.pack():
                return wrong
        except NoPackingError:
            return attrs.evolve(wrong, is_proven=True)
    if len(weight) * len(problem.upper) <= MOST_IMPROVED:
        fitting.improve()
    return fitting.place


class _Fitting:
    """Items at owners, and how full these are."""

    def __init__(self, problem: PlacesProblem, place: Int64Array, weight: Int64Array) -> None:
        self.problem, self.weight = problem, weight
        self._settle(place)
        self.steps = 0
        self._rows: dict[int, Int64Array] = {}

    def _settle(self, place: Int64Array) -> None:
        self.place = place
        self.load = sums(place[place >= 0], self.weight[place >= 0], len(self.problem.upper))

    def _put(self, item: int, owner: int) -> None:
        before = int(self.place[item])
        if before != NOBODY:
            self.load[before] -= self.weight[item]
        if owner != NOBODY:
            self.load[owner] += self.weight[item]
        self.place[item] = owner

    def _cost(self, item: int) -> Int64Array:
        """(C,) true cost of the item at every owner; where it must not be: very much."""
        problem, row, owner = self.problem, int(self.problem.costs.row[item]), int(self.problem.item_place[item])
        cost = self._rows.get(row)
        if cost is None:
            cost = problem.place_costs(np.full(len(self.load), row), np.arange(len(self.load)))
            cost = np.where(cost == FORBIDDEN, _NEVER, cost)
            if len(self._rows) * len(cost) < MOST_KEPT:
                self._rows[row] = cost
        if owner == NOBODY:
            return cost
        move = int(problem.move_cost[row])
        cost = cost + move
        cost[owner] += int(problem.stay_cost[row]) - move
        return cost

    def fit(self) -> None:
        """Items that are too many for their owners, or nowhere, go to the cheapest owner with room."""
        at = self.problem.place_costs(self.problem.costs.row, np.maximum(self.place, 0))
        self._settle(np.where(at == FORBIDDEN, NOBODY, self.place))
        items = order_by(self.place, self.weight)
        stops = np.searchsorted(self.place[items], np.arange(len(self.load) + 1)).tolist()
        for owner in np.flatnonzero(self.load > self.problem.upper).tolist():
            self._relieve(owner, items[stops[owner] : stops[owner + 1]].tolist())
        self._fill(np.flatnonzero(self.place == NOBODY), by_cost=True)
        self._raise_to_lower()

    def _relieve(self, owner: int, items: list[int]) -> None:
        """Take items from an owner that has too much, as few as will do: they are in order of weight."""
        while (excess := int(self.load[owner] - self.problem.upper[owner])) > 0:
            enough = int(np.searchsorted(self.weight[items], excess))
            self._put(items.pop(min(enough, len(items) - 1)), NOBODY)

    def spread(self) -> None:
        """All items anew, where the most room is: that fits into nearly any capacities."""
        self._settle(np.full_like(self.place, NOBODY))
        self._fill(np.arange(len(self.place)), by_cost=False)
        self._raise_to_lower()

    def _fill(self, items: Int64Array, by_cost: bool) -> None:
        """Each item, heaviest first, goes to the cheapest owner with room, or to that with most of it."""
        for item in items[order_by(-self.weight[items])].tolist():
            cost, room = self._cost(item), self.problem.upper - self.load
            allowed = cost < _NEVER
            if by_cost and (allowed & (room >= self.weight[item])).any():
                room = np.where(room >= self.weight[item], -cost, -_NEVER)
            self._put(item, int(np.argmax(np.where(allowed, room, -2 * _NEVER))))

    def _raise_to_lower(self) -> None:
        """Give weight to owners that have too little, from those that can spare it."""
        problem, lower, upper = self.problem, self.problem.lower, self.problem.upper
        while True:
            lack, spare = lower - self.load, self.load - lower
            owner = int(np.argmax(lack))
            if lack[owner] <= 0:
                return
            room = upper[owner] - self.load[owner]
            items = np.flatnonzero((self.weight <= np.minimum(spare[self.place], room)) & (self.place != owner))
            cost = problem.costs_of(items, np.full(len(items), owner))
            items, cost = items[cost != FORBIDDEN], cost[cost != FORBIDDEN]
            if not len(items):
                return
            # The cheapest first, as long as one can be spared and there is room.
            for item in items[order_by(cost - problem.costs_of(items, self.place[items]))].tolist():
                weight, giver = self.weight[item], self.place[item]
                if self.load[owner] >= lower[owner]:
                    break
                if self.load[giver] - weight >= lower[giver] and self.load[owner] + weight <= upper[owner]:
                    self._put(item, owner)

    def outside(self) -> Overload | None:
        """An owner outside its capacities."""
        wrong = np.flatnonzero((self.load > self.problem.upper) | (self.load < self.problem.lower))
        return Overload(int(wrong[0]), int(self.load[wrong[0]])) if len(wrong) else None

    def _costs(self) -> Int64Array:
        """(N, C) true costs."""
        return np.stack([self._cost(item) for item in range(len(self.place))])

    def pack(self) -> bool:
        """Let a solver look for a placement within the capacities; say whether it found one.

        Raises:
            NoPackingError: there is none.
        """
        if len(self.place) * len(self.load) > MOST_PACKED:
            return False
        costs = self._costs()
        found = packed(costs, costs < _NEVER, self.weight, self.problem.lower, self.problem.upper)
        if found is not None:
            self._settle(found)
        return found is not None

    def improve(self) -> None:
        """Passes of moves that pay and swaps that pay, until a pass finds none, or the time for it is over."""
        costs = self._costs()
        while True:
            gain = costs.min(axis=1) - costs[np.arange(len(self.place)), self.place]
            # Those that would gain most first.
            items = [item for item in np.argsort(gain, kind="stable").tolist() if gain[item] < 0]
            changed = [item for item in items if self._move(item, costs) or self._swap(item, costs)]
            if not changed or self.steps >= MOST_STEPS:
                return

    def _may_take(self, steps: int) -> bool:
        """Count a visit; say whether there is still time for it."""
        self.steps += steps + _VISIT
        return self.steps < MOST_STEPS

    def _move(self, item: int, costs: Int64Array) -> bool:
        """The item goes to the cheapest owner with room, if that pays."""
        ours, weight = int(self.place[item]), int(self.weight[item])
        if self.load[ours] - weight < self.problem.lower[ours] or not self._may_take(len(self.load)):
            return False
        fits = self.problem.upper - self.load >= weight
        target = int(np.argmin(np.where(fits, costs[item], _NEVER)))
        if not fits[target] or costs[item, target] >= costs[item, ours]:
            return False
        self._put(item, target)
        return True

    def _swap(self, item: int, costs: Int64Array) -> bool:
        """The item changes places with the one with which that pays most."""
        if not self._may_take(len(self.place)):
            return False
        ours, place, lower, upper = int(self.place[item]), self.place, self.problem.lower, self.problem.upper
        change = self.weight - self.weight[item]
        load = self.load[place] - change
        fits = (self.load[ours] + change <= upper[ours]) & (self.load[ours] + change >= lower[ours])
        fits &= (load <= upper[place]) & (load >= lower[place]) & (place != ours)
        own = costs[np.arange(len(place)), place]
        gain = np.where(fits, costs[item, place] - own[item] + costs[:, ours] - own, 0)
        other = int(np.argmin(gain))
        if gain[other] >= 0:
            return False
        target = int(place[other])
        self._put(item, target)
        self._put(other, ours)
        return True
