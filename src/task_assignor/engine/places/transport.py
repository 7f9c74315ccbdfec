"""Items to few places that hold given numbers of them, at least cost: shortest paths between the places, no solver's graph of items.

Every item starts at a cheapest place. While some places hold too many, items go along shortest paths of places to those
that hold too few: what it costs to hand an item from one place to the next is the least that any item there asks. Such a
placement is cheapest among all with its numbers, step after step (a primal-dual method). All shortest paths are used at
once: how many items go along each is a greatest flow between the places, and items that ask the same go together. So it
takes some dozens of steps for a million items, where a solver's graph has an arc for each choice. Where nearly all items ask
something else there is a step for each: then the graph is asked after all.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import CostRangeError, most_flow
from task_assignor.engine.items import rank_within, sums
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import csr_pairs, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import Int64Array

MOST_PLACES: Final = 1_000
"""With more of them a graph of the items takes less time and memory than what is asked between any two places."""
FEW_PLACES: Final = 32
"""Of more places there must be a pair of row and cell for each two of them: else a graph of the rows takes less time."""
MOST_STEPS: Final = 200
"""So many take about as long as a graph of the items."""
MOST_IN_GRAPH: Final = 20_000_000
"""Of more entries a graph is too large, however many steps there are."""
_NO_WAY: Final = 2**60


@attrs.frozen(eq=False)
class PlaceGains:
    """At which places items cost less than elsewhere, and how much less.

    Args:
        items: number of items; what each costs elsewhere does not matter, since it is somewhere.
        item: (E,) item of each entry, ascending.
        place: (E,) place; no pair twice.
        gain: (E,) how much less the item costs there, at least 1.
    """

    items: int
    item: Int64Array
    place: Int64Array
    gain: Int64Array

    @classmethod
    def of(
        cls, costs: RowCosts, place_cell: Int64Array, by_item: tuple[Int64Array, Int64Array, Int64Array]
    ) -> PlaceGains:
        """What items gain in cells where they cost less than by default, and by themselves, added up.

        Args:
            costs: what items cost in cells.
            place_cell: (P,) cell of each place.
            by_item: items, places, and what they gain there.
        """
        by_cell = order_by(place_cell)
        entry, member = csr_pairs(offsets_of(place_cell[by_cell], costs.cells), costs.entry_cell)
        of_item, pair = csr_pairs(offsets_of(costs.entry_row[entry], len(costs)), costs.row)
        (item, place, gain), width = by_item, len(place_cell)
        keys = np.concatenate([of_item * width + by_cell[member][pair], item * width + place])
        pairs, number = distinct_and_numbers(keys)
        gains = sums(number, np.concatenate([costs.saved[entry][pair], gain]), len(pairs))
        items, places = np.divmod(pairs[gains > 0], width)
        return cls(len(costs.row), items, places, gains[gains > 0])


def are_few_places(problem: PlacesProblem) -> bool:
    """Whether the problem is plain, and has so few places that no graph is needed."""
    most = min(MOST_PLACES, max(FEW_PLACES, math.isqrt(len(problem.costs.entry_row))))
    return len(problem.place_cell) <= most and problem.is_plain


def cheapest_of_few_places(problem: PlacesProblem) -> Int64Array | None:
    """(N,) the cheapest place of each item, with the fewest moves (or the most, see `ties_stay`), where places are few.

    None: as in `cheapest_places`.

    Args:
        problem: a plain one, which leaves room for all items.
    """
    owned, owner = np.flatnonzero(problem.item_place >= 0), problem.item_place
    # A hair more or less for a move decides between equal costs alone, as a simple cycle moves at most one item per place.
    hairs = len(problem.place_cell) + 2
    saved = hairs * (problem.move_cost - problem.stay_cost) + (1 if problem.ties_stay else -1)
    stay = owned, owner[owned], saved[problem.costs.row[owned]]
    gains = PlaceGains.of(problem.costs.times(hairs), problem.place_cell, stay)
    return cheapest_places(gains, problem.lower, np.minimum(problem.upper, gains.items))


def cheapest_places(gains: PlaceGains, low: Int64Array, high: Int64Array) -> Int64Array | None:
    """(N,) place of each item, the cheapest placement with so many items at each place. Ties go by number.

    None: a graph takes less time.

    Args:
        gains: what items gain at places.
        low: (P,) how many items each place holds at least; N or less in all.
        high: (P,) how many at most; N or more in all.

    Raises:
        CostRangeError: the gains are too large for exact arithmetic.
    """
    most = int(gains.gain.max(initial=0))
    if most * (len(low) + 2) >= _NO_WAY:
        raise CostRangeError(
            f"The largest cost ({most}) is too large to be solved exactly with {len(low)} places. "
            "Maybe use smaller costs of the same proportions."
        )
    search, steps, before = _Transport(gains, low, high), 0, None
    while too_many := search.too_many():
        # Items are counted for several ways each, so that rarely none of them comes to where there are too few.
        is_stuck = too_many == before
        if is_stuck or (steps == MOST_STEPS and len(gains.item) <= MOST_IN_GRAPH):
            return None
        before, steps = too_many, steps + 1
        search.hand_on()
    return search.place


@attrs.frozen(eq=False)
class _Ways:
    """What items ask at least for going from one place to another, and which of them ask no more.

    Args:
        price: (P, P) what is asked for going from one place (row) to another.
        room: (P, P) how many items ask that.
        entry: (W,) entries by which items go for the price.
        elsewhere: (P,) what is asked for going from a place to where nothing is gained.
        item: (V,) items that go for that.
    """

    price: Int64Array
    room: Int64Array
    entry: Int64Array
    elsewhere: Int64Array
    item: Int64Array


class _Transport:
    """A cheapest placement for the numbers that the places hold at the moment.

    Nodes of the shortest paths are the places, and last one for all of them: a place that may hold more than it is to
    hold so far takes an item from there for nothing, and one that may hold less gives one.
    """

    def __init__(self, gains: PlaceGains, low: Int64Array, high: Int64Array) -> None:
        self._gains, self._places, self._low, self._high = gains, len(low), low, high
        self.place, self._here = self._start()
        # How many items each place is to hold.
        self._wanted = np.clip(np.bincount(self.place, minlength=len(low)), low, high)

    def _start(self) -> tuple[Int64Array, Int64Array]:
        """(N,) place of each item where it gains most, of several in turn; (N,) that gain."""
        item, gain = self._gains.item, self._gains.gain
        most = np.zeros(self._gains.items, dtype=np.int64)
        np.maximum.at(most, item, gain)
        best = np.flatnonzero(gain == most[item])
        ties = np.bincount(item[best], minlength=len(most))
        first = np.cumsum(ties) - ties
        place = np.zeros_like(most)
        some = np.flatnonzero(ties)
        place[some] = self._gains.place[best[first[some] + some % ties[some]]]
        load = np.bincount(place[some], minlength=self._places)
        room = np.maximum([self._low - load, self._high - np.maximum(load, self._low)], 0)
        others = np.flatnonzero(ties == 0)
        place[others] = np.repeat(np.tile(np.arange(self._places), 2), room.reshape(-1))[: len(others)]
        return place, most

    def too_many(self) -> int:
        """How many items places have beyond what they are to hold."""
        return int(np.maximum(self._excess(), 0).sum())

    def hand_on(self) -> None:
        """Hand items along all shortest paths from places with too many to those with too few."""
        excess, ways = self._excess(), self._ways()
        price = self._with_all(
            ways.price,
            np.where(self._wanted < self._high, 0, _NO_WAY),
            np.where(self._wanted > self._low, 0, _NO_WAY),
        )
        room = self._with_all(ways.room, self._high - self._wanted, self._wanted - self._low)
        distance = _distances(price, excess)
        flow = _greatest(np.where(distance[:, None] + price == distance, room, 0), excess)
        self._wanted = self._wanted + flow[:-1, -1] - flow[-1, :-1]
        self._hand_over(flow[:-1, :-1], ways)

    def _excess(self) -> Int64Array:
        """(P + 1,) by how many items each node has too many."""
        excess = np.bincount(self.place, minlength=self._places) - self._wanted
        return np.append(excess, -excess.sum())

    def _with_all(self, table: Int64Array, to_all: Int64Array, from_all: Int64Array) -> Int64Array:
        """(P + 1, P + 1) what is so between places, with the node for all of them."""
        extended = np.full((self._places + 1, self._places + 1), table[0, 0])
        extended[:-1, :-1], extended[:-1, -1], extended[-1, :-1] = table, to_all, from_all
        return extended

    def _ways(self) -> _Ways:
        gains, places = self._gains, self._places
        pair = self.place[gains.item] * places + gains.place
        asked = self._here[gains.item] - gains.gain
        least, elsewhere = np.full(places * places, _NO_WAY), np.full(places, _NO_WAY)
        np.minimum.at(least, pair, asked)
        np.minimum.at(elsewhere, self.place, self._here)
        price = np.minimum(least.reshape(places, places), elsewhere[:, None])
        np.fill_diagonal(price, _NO_WAY)
        entry = np.flatnonzero(asked == price.reshape(-1)[pair])
        item = np.flatnonzero(self._here == elsewhere[self.place])
        room = np.bincount(pair[entry], minlength=price.size).reshape(price.shape)
        room += np.where(price == elsewhere[:, None], np.bincount(self.place[item], minlength=places)[:, None], 0)
        return _Ways(price, room, entry, elsewhere, item)

    def _hand_over(self, flow: Int64Array, ways: _Ways) -> None:
        """Hand over as many items as flow, of those that ask least; fewer, where one item was counted for two ways."""
        gains, missing = self._gains, flow.copy()
        entry = ways.entry[flow[self.place[gains.item[ways.entry]], gains.place[ways.entry]] > 0]
        place, target = self.place[gains.item[entry]], gains.place[entry]
        chosen = rank_within(place * self._places + target) < flow[place, target]
        # The first way of each item counts.
        chosen[chosen] &= rank_within(gains.item[entry[chosen]]) == 0
        entry = entry[chosen]
        np.subtract.at(missing, (place[chosen], target[chosen]), 1)
        self._move(gains.item[entry], gains.place[entry], gains.gain[entry])
        # The others gain nothing there, and go anywhere for what they ask.
        missing[ways.price != ways.elsewhere[:, None]] = 0
        wanted = missing.sum(axis=1)
        items = ways.item[self._here[ways.item] == ways.elsewhere[self.place[ways.item]]]
        turn = rank_within(self.place[items])
        is_wanted = turn < wanted[self.place[items]]
        items, turn = items[is_wanted], turn[is_wanted]
        turn += (np.cumsum(wanted) - wanted)[self.place[items]]
        to = np.repeat(np.tile(np.arange(self._places), self._places), missing.reshape(-1))
        self._move(items, to[turn], np.zeros_like(items))

    def _move(self, items: Int64Array, places: Int64Array, gains: Int64Array) -> None:
        self.place[items], self._here[items] = places, gains


def _distances(price: Int64Array, excess: Int64Array) -> Int64Array:
    """(P,) shortest distance of each node from any with too many (Bellman and Ford)."""
    distance = np.where(excess > 0, 0, _NO_WAY)
    while True:
        through = (distance[:, None] + price).min(axis=0)
        better = (through < distance) & (through < _NO_WAY // 2)
        if not better.any():
            return distance
        distance[better] = through[better]


def _greatest(room: Int64Array, excess: Int64Array) -> Int64Array:
    """(P, P) the greatest flow from nodes with too many to those with too few."""
    tail, head = np.nonzero(room)
    many, few = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    source, sink = len(excess), len(excess) + 1
    tails = np.concatenate([tail, np.full(len(many), source), few])
    capacities = np.concatenate([room[tail, head], excess[many], -excess[few]])
    heads = np.concatenate([head, many, np.full(len(few), sink)])
    flows = most_flow(tails, heads, capacities, np.zeros(len(tails), dtype=np.int64), source, sink)
    greatest = np.zeros_like(room)
    greatest[tail, head] = flows[: len(tail)]
    return greatest
