"""Items to few places that hold given numbers of them, at least cost: shortest paths between the places, no solver's graph of items.

Every item starts at a cheapest place. While some places hold too many, items go along shortest paths of places to those
that hold too few: what it costs to hand an item from one place to the next is the least that any item there asks. Such a
placement is cheapest among all with its numbers, step after step (a primal-dual method). All shortest paths are used at
once: how many items go along each is a greatest flow between the places, and items that ask the same go together. So it
takes some dozens of steps for a million items, where a solver's graph has an arc for each choice.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import CostRangeError, most_flow
from task_assignor.engine.items import rank_within, sums
from task_assignor.engine.places_problem import PlacesProblem
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import csr_pairs, csr_rows, distinct, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import Int64Array

MOST_PLACES: Final = 1_000
"""With more of them a graph of the items takes less time and memory than what is asked between any two places."""
FEW_PLACES: Final = 32
"""Of more places there must be a pair of row and cell for each two of them: else a graph of the rows takes less time."""
_NO_WAY: Final = 2**60
_AT_ONCE: Final = 100_000
"""Of so many items what they ask is counted at once."""


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


def cheapest_of_few_places(problem: PlacesProblem) -> Int64Array:
    """(N,) the cheapest place of each item, with the fewest moves (or the most, see `ties_stay`), where places are few.

    Args:
        problem: a plain one, which leaves room for all items.
    """
    owned, owner = np.flatnonzero(problem.item_owner >= 0), problem.item_owner
    # A hair more or less for a move decides between equal costs alone, as a simple cycle moves at most one item per place.
    hairs = len(problem.place_cell) + 2
    saved = hairs * (problem.move_cost - problem.stay_cost) + (1 if problem.ties_stay else -1)
    stay = owned, owner[owned], saved[problem.costs.row[owned]]
    gains = PlaceGains.of(problem.costs.times(hairs), problem.place_cell, stay)
    return cheapest_places(gains, problem.lower, np.minimum(problem.upper, gains.items))


def cheapest_places(gains: PlaceGains, low: Int64Array, high: Int64Array) -> Int64Array:
    """(N,) place of each item, the cheapest placement with so many items at each place. Ties go by number.

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
    search = _Transport(gains, low, high)
    while search.hand_on():
        pass
    return search.place


@attrs.frozen(eq=False)
class _Least:
    """What is asked least.

    Args:
        step: (P, P) for going from one place (row) to another: its place among all that is asked.
        count: (P, P) how many items ask that.
        anywhere: (P,) step for going from a place to where nothing is gained.
    """

    step: Int64Array
    count: Int64Array
    anywhere: Int64Array


class _Transport:
    """A cheapest placement for the numbers that the places hold at the moment.

    Nodes of the shortest paths are the places, and last one for all of them: a place that may hold more than it is to
    hold so far takes an item from there for nothing, and one that may hold less gives one.
    """

    def __init__(self, gains: PlaceGains, low: Int64Array, high: Int64Array) -> None:
        self._places, self._low, self._high = len(low), low, high
        self._item, self._to = gains.item, gains.place
        # Gains by their place among those that differ; the first is none.
        self._known = distinct(np.append(gains.gain, 0))
        self._gain = np.searchsorted(self._known, gains.gain)
        self._of_item = offsets_of(gains.item, gains.items)
        self._of_place = offsets_of(np.sort(gains.place), self._places)
        self._by_place = order_by(gains.place)
        # What an item of one gain (row) asks for a place of another gain (column): its place among all that is asked.
        asked = self._known[:, None] - self._known
        self._asked = distinct(asked.reshape(-1))
        self._step = np.searchsorted(self._asked, asked)
        self.place, self._here = self._start()
        self._load = np.bincount(self.place, minlength=self._places)
        # How many items each place is to hold.
        self._wanted = np.clip(self._load, low, high)
        # How many items of a place ask how much for going to another place; and to any place, without an entry there.
        self._asking = np.zeros((self._places, self._places, len(self._asked)), dtype=np.int32)
        self._asking_anywhere = np.zeros((self._places, len(self._asked)), dtype=np.int64)
        self._count(np.arange(gains.items), 1)

    def _start(self) -> tuple[Int64Array, Int64Array]:
        """(N,) place of each item where it gains most, of several in turn; (N,) that gain."""
        items = len(self._of_item) - 1
        most = np.zeros(items, dtype=np.int64)
        np.maximum.at(most, self._item, self._gain)
        best = np.flatnonzero(self._gain == most[self._item])
        ties = np.bincount(self._item[best], minlength=items)
        first = np.cumsum(ties) - ties
        place = np.zeros(items, dtype=np.int64)
        some = np.flatnonzero(ties)
        place[some] = self._to[best[first[some] + some % ties[some]]]
        load = np.bincount(place[some], minlength=self._places)
        room = np.maximum([self._low - load, self._high - np.maximum(load, self._low)], 0)
        others = np.flatnonzero(ties == 0)
        place[others] = np.repeat(np.tile(np.arange(self._places), 2), room.reshape(-1))[: len(others)]
        return place, most

    def _count(self, items: Int64Array, sign: int) -> None:
        """Count what items ask (1), or that they no longer ask it (-1)."""
        steps = len(self._asked)
        np.add.at(self._asking_anywhere, (self.place[items], self._step[self._here[items], 0]), sign)
        for start in range(0, len(items), _AT_ONCE):
            part = items[start : start + _AT_ONCE]
            rows = csr_rows(self._of_item, part)
            of_row = self._item[rows]
            pair = self.place[of_row] * self._places + self._to[rows]
            np.add.at(self._asking.reshape(-1), pair * steps + self._step[self._here[of_row], self._gain[rows]], sign)

    def hand_on(self) -> bool:
        """Hand items along shortest paths from places with too many to those with too few; False: there are none left."""
        excess = self._excess()
        too_many = int(np.maximum(excess, 0).sum())
        if not too_many:
            return False
        least = self._least()
        price = self._with_all(
            np.append(self._asked, _NO_WAY)[least.step],
            np.where(self._wanted < self._high, 0, _NO_WAY),
            np.where(self._wanted > self._low, 0, _NO_WAY),
        )
        room = self._with_all(least.count, self._high - self._wanted, self._wanted - self._low)
        distance, before = _distances(price, excess)
        is_tight = (distance[:, None] + price == distance) & (room > 0)
        self._hand_over(_greatest(np.where(is_tight, room, 0), excess), least)
        excess = self._excess()
        if int(np.maximum(excess, 0).sum()) == too_many:
            # Items were counted for several ways each. One item along one path has all that it needs.
            self._hand_over(_one_path(distance, before, excess), least)
        return True

    def _excess(self) -> Int64Array:
        """(P + 1,) by how many items each node has too many."""
        excess = self._load - self._wanted
        return np.append(excess, -excess.sum())

    def _with_all(self, table: Int64Array, to_all: Int64Array, from_all: Int64Array) -> Int64Array:
        """(P + 1, P + 1) what is so between places, with the node for all of them."""
        extended = np.full((self._places + 1, self._places + 1), table[0, 0])
        extended[:-1, :-1], extended[:-1, -1], extended[-1, :-1] = table, to_all, from_all
        return extended

    def _least(self) -> _Least:
        steps, places = len(self._asked), np.arange(self._places)
        first, anywhere = (self._asking > 0).argmax(axis=2), (self._asking_anywhere > 0).argmax(axis=1)
        count = np.take_along_axis(self._asking, first[:, :, None], axis=2)[:, :, 0].astype(np.int64)
        count_anywhere = self._asking_anywhere[places, anywhere]
        first = np.where(count > 0, first, steps)
        anywhere = np.where(count_anywhere > 0, anywhere, steps)
        step = np.minimum(first, anywhere[:, None])
        step[places, places] = steps
        count = np.where(first == step, count, 0)
        count += np.where(anywhere[:, None] == step, count_anywhere[:, None], 0)
        count[places, places] = 0
        return _Least(step, count, anywhere)

    def _hand_over(self, flow: Int64Array, least: _Least) -> None:
        """Hand over as many items as flow, of those that ask least; fewer, where one item was counted for two ways."""
        self._wanted = self._wanted + flow[:-1, -1] - flow[-1, :-1]
        flow = flow[:-1, :-1]
        missing = flow.copy()
        for target in np.flatnonzero(flow.any(axis=0)).tolist():
            rows = self._by_place[self._of_place[target] : self._of_place[target + 1]]
            place = self.place[self._item[rows]]
            asked = self._step[self._here[self._item[rows]], self._gain[rows]]
            chosen = (flow[place, target] > 0) & (asked == least.step[place, target])
            rows, place = rows[chosen], place[chosen]
            chosen = rank_within(place) < flow[place, target]
            missing[:, target] -= np.bincount(place[chosen], minlength=self._places)
            rows = rows[chosen]
            self._move(self._item[rows], np.full(len(rows), target), self._gain[rows])
        # The others gain nothing there, and go anywhere for what they ask.
        missing[least.step != least.anywhere[:, None]] = 0
        wanted = missing.sum(axis=1)
        items = np.flatnonzero((wanted > 0)[self.place])
        items = items[self._step[self._here[items], 0] == least.anywhere[self.place[items]]]
        rank = rank_within(self.place[items])
        chosen = rank < wanted[self.place[items]]
        items, rank = items[chosen], rank[chosen]
        turn = (np.cumsum(wanted) - wanted)[self.place[items]] + rank
        target = np.searchsorted(np.cumsum(missing), turn, side="right") % self._places
        self._move(items, target, np.zeros_like(items))

    def _move(self, items: Int64Array, places: Int64Array, gains: Int64Array) -> None:
        self._count(items, -1)
        self._load -= np.bincount(self.place[items], minlength=self._places)
        self.place[items], self._here[items] = places, gains
        self._load += np.bincount(places, minlength=self._places)
        self._count(items, 1)


def _distances(price: Int64Array, excess: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(P,) shortest distance of each node from any with too many, and the node before it (Bellman and Ford)."""
    distance, nodes = np.where(excess > 0, 0, _NO_WAY), np.arange(len(excess))
    before = np.full(len(excess), -1)
    while True:
        ways = distance[:, None] + price
        through = ways.argmin(axis=0)
        shorter = ways[through, nodes]
        better = (shorter < distance) & (shorter < _NO_WAY // 2)
        if not better.any():
            return distance, before
        distance[better], before[better] = shorter[better], through[better]


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


def _one_path(distance: Int64Array, before: Int64Array, excess: Int64Array) -> Int64Array:
    """(P, P) one item along a shortest path."""
    flow = np.zeros((len(excess), len(excess)), dtype=np.int64)
    node = int(np.where(excess < 0, distance, _NO_WAY + 1).argmin())
    while before[node] >= 0:
        flow[before[node], node] = 1
        node = int(before[node])
    return flow
