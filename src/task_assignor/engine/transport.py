"""Items to few places that hold given numbers of them, at least cost: shortest paths between the places, no solver.

Every item starts at its cheapest place. While some place holds too many, items go along a shortest path of places to one
that holds too few: what it costs to hand an item from one place to the next is the least that any item there asks. Such a
placement is cheapest among all with its numbers, path after path (successive shortest paths), and items that ask the
same go together. So it takes a few hundred steps for a million items, where a solver's graph has an arc for each choice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from task_assignor.engine.flow import CostRangeError
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int64Array

Costs = Callable[[Int64Array, "Int64Array | slice"], npt.NDArray[np.integer]]
"""(items, places) -> (items, places) whole numbers: what each item costs at each place."""
_CHUNK: Final = 2_000_000
"""So many costs are looked at at once."""
_NO_WAY: Final = 2**60


def cheapest_places(costs: Costs, most_cost: int, numbers: Int64Array) -> Int64Array:
    """(N,) place of each item, the cheapest placement with so many items at each place. Ties go by number.

    Args:
        costs: what items cost at places.
        most_cost: no item costs more, or less than 0.
        numbers: (P,) how many items each place holds; N in all.

    Raises:
        CostRangeError: the costs are too large for exact arithmetic.
    """
    if most_cost * (len(numbers) + 1) >= _NO_WAY:
        raise CostRangeError(
            f"The largest cost ({most_cost}) is too large to be solved exactly with {len(numbers)} places. "
            "Maybe use smaller costs of the same proportions."
        )
    search = _Search(costs, numbers)
    while search.hand_on():
        pass
    return search.place


class _Search:
    """A cheapest placement for the numbers that the places hold at the moment."""

    def __init__(self, costs: Costs, numbers: Int64Array) -> None:
        self._costs = costs
        self._places = len(numbers)
        items = int(numbers.sum())
        self.place = np.zeros(items, dtype=np.int64)
        for part in self._parts(np.arange(items)):
            self.place[part] = costs(part, slice(None)).argmin(axis=1)
        self._excess = np.bincount(self.place, minlength=self._places) - numbers
        by_place = order_by(self.place)
        self._items = np.split(by_place, np.cumsum(np.bincount(self.place, minlength=self._places))[:-1])
        # What the cheapest item asks for going from one place (row) to another (column), and how many ask that.
        self._price = np.full((self._places, self._places), _NO_WAY, dtype=np.int64)
        self._asking = np.zeros((self._places, self._places), dtype=np.int64)
        for place, own in enumerate(self._items):
            self._offer(place, own)

    def _parts(self, items: Int64Array) -> list[Int64Array]:
        size = max(_CHUNK // self._places, 1)
        return [items[start : start + size] for start in range(0, len(items), size)]

    def _asked(self, place: int, items: Int64Array, targets: Int64Array | slice) -> npt.NDArray[np.integer]:
        """(n, targets) what items of the place ask for going elsewhere."""
        here = self._costs(items, np.array([place]))
        return self._costs(items, targets) - here

    def _offer(self, place: int, items: Int64Array, targets: Int64Array | None = None) -> None:
        """Count what these items of the place ask, for going to some places or to all."""
        chosen = np.arange(self._places) if targets is None else targets
        for part in self._parts(items):
            asked = self._asked(place, part, chosen if targets is not None else slice(None))
            least, price = asked.min(axis=0), self._price[place, chosen]
            number = (asked == least).sum(axis=0)
            before = np.where(price <= least, self._asking[place, chosen], 0)
            self._asking[place, chosen] = before + np.where(least <= price, number, 0)
            self._price[place, chosen] = np.minimum(least, price)

    def _withdraw(self, place: int, items: Int64Array) -> None:
        """These items have left the place, of which the list is up to date."""
        for part in self._parts(items):
            asked = self._asked(place, part, slice(None))
            self._asking[place] -= (asked == self._price[place]).sum(axis=0)
        gone = np.flatnonzero(self._asking[place] == 0)
        self._price[place, gone] = _NO_WAY
        self._offer(place, self._items[place], gone)

    def hand_on(self) -> bool:
        """Hand items along a shortest path from a place with too many to one with too few; False: there is none left."""
        if not (self._excess > 0).any():
            return False
        path = self._path()
        going = []
        for place, target in pairwise(path):
            items = self._items[place]
            asked = self._asked(place, items, np.array([target]))[:, 0]
            going.append(items[asked == self._price[place, target]])
        number = min(int(self._excess[path[0]]), -int(self._excess[path[-1]]), *map(len, going))
        going = [items[:number] for items in going]
        for place, items in zip(path, going, strict=False):
            own = self._items[place]
            self._items[place] = own[~np.isin(own, items, assume_unique=True)]
            self._withdraw(place, items)
        for target, items in zip(path[1:], going, strict=True):
            self.place[items] = target
            self._items[target] = np.sort(np.concatenate([self._items[target], items]))
            self._offer(target, items)
        self._excess[path[0]] -= number
        self._excess[path[-1]] += number
        return True

    def _path(self) -> list[int]:
        """The places on a shortest path (Bellman and Ford); there is no negative cycle."""
        distance = np.where(self._excess > 0, 0, _NO_WAY)
        before = np.full(self._places, -1)
        while True:
            ways = distance[:, None] + self._price
            through = ways.argmin(axis=0)
            shorter = ways[through, np.arange(self._places)]
            better = (shorter < distance) & (shorter < _NO_WAY // 2)
            if not better.any():
                break
            distance[better], before[better] = shorter[better], through[better]
        path = [int(np.where(self._excess < 0, distance, _NO_WAY + 1).argmin())]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]
