"""Exchanging items between owners so that their copies can be spread evenly; earlier goals stay as good as they are.

An owner cannot hold a copy of an item that it has itself. Where there are nearly as many copies as owners, it therefore
matters whether an owner's items are ones that have copies. A local search, whose end may be proven to be the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np

from task_assignor.engine.actives.network import Bounds
from task_assignor.engine.actives.problem import Problem, RackCosts
from task_assignor.engine.copies.goals import copy_bounds
from task_assignor.engine.even import even_counts, even_levels, is_more_even
from task_assignor.sdk.arrays import order_by, rows_of
from task_assignor.sdk.columns import Int64Array

MOST_LOOKED_AT: Final = 30_000_000
"""Items that are looked at in all before the search ends: a few seconds at the most."""
MOST_PARTNERS: Final = 8
_FIRST: Final = 1 << 28
"""What the first goal counts for beside the later ones, with room for costs of 34 bits."""
_NO_STATE: Final = 1 << 24
Change = tuple[int, int]
"""An item and its new owner."""


def exchanged(problem: Problem, wanted: Int64Array, owner: Int64Array) -> Int64Array:
    """(N,) owners, changed as long as that makes all items and copies more even.

    Two items change places, or one moves to an owner that may have one more. No change loses more claims (or costs more
    on racks), leaves more items away from their state or further behind, or makes the stateful or all items less even. It
    stops when no change with the emptiest or fullest owner helps.

    Args:
        problem: the items and owners, without pools.
        wanted: (N,) copies wanted of each item.
        owner: (N,) owner of each item.
    """
    return _Exchange(problem, wanted, owner).run()


def are_surely_even(problem: Problem, wanted: Int64Array, owner: Int64Array) -> bool:
    """Whether no other owners, within the bounds of the earlier goals, could make all items and copies more even.

    Args are those of `exchanged`.
    """
    weight, bounds = problem.weight, Bounds.of(problem)
    here = copy_bounds(owner, wanted, len(weight))
    copied = int((here.needs > 0).sum())
    # An owner has every item with copies once at most; how often at least, the number of owners without it says.
    least = np.maximum(bounds.low, copied * (int(here.needs.max(initial=0)) + 2 - len(weight)))
    most = copied + np.minimum(bounds.high, len(owner) - copied)
    low, high = even_levels(weight, least, most, here.total)
    loads = even_counts(weight, *even_levels(weight, here.least, here.most, here.total), here.total)
    return bool(((low <= loads) & (loads <= high)).all())


class _Exchange:
    """The owners as they are, and counts per owner that make every trial cheap."""

    def __init__(self, problem: Problem, wanted: Int64Array, owner: Int64Array) -> None:
        self.problem, self.weight, self.owner = problem, problem.weight, owner.copy()
        owners = len(self.weight)
        bounds = copy_bounds(owner, wanted, owners)
        self.is_copied = bounds.needs > 0
        self.copied = int(self.is_copied.sum())
        self.total = bounds.total
        self.floor, self.ceil = problem.share
        # Rows: all items, stateful items, items that have copies.
        masks = (slice(None), self.problem.is_stateful, self.is_copied)
        self.counts = np.stack([np.bincount(owner[mask], minlength=owners) for mask in masks])
        self.looked_at = 0
        self._costs: _Costs | None = None

    def run(self) -> Int64Array:
        loads = self._loads(self.counts)
        reachable = even_counts(self.weight, self.counts[0], np.full_like(self.counts[0], self.total), self.total)
        while is_more_even(self.weight, reachable, loads):
            better = self._improved(loads)
            if better is None:
                break
            loads = better
        return self.owner

    def _loads(self, counts: Int64Array) -> Int64Array:
        """(C,) items and copies, if copies are spread as evenly as they can be."""
        most = counts[0] + self.copied - counts[2]
        return even_counts(self.weight, counts[0], most, self.total)

    def _improved(self, loads: Int64Array) -> Int64Array | None:
        """Make the first change after which loads are more even, and earlier goals as good as before; None: there is none."""
        for changes in self._candidates(loads):
            counts = self._changed(changes)
            worse = any(is_more_even(self.weight, self.counts[row], counts[row]) for row in (0, 1))
            if worse or self._outside(counts[0]) > self._outside(self.counts[0]):
                continue
            new_loads = self._loads(counts)
            if is_more_even(self.weight, new_loads, loads):
                self.counts = counts
                for item, new in changes:
                    self.owner[item] = new
                return new_loads
        return None

    def _changed(self, changes: Sequence[Change]) -> Int64Array:
        counts = self.counts.copy()
        for item, new in changes:
            rows = [0] + [1] * bool(self.problem.is_stateful[item]) + [2] * bool(self.is_copied[item])
            counts[rows, self.owner[item]] -= 1
            counts[rows, new] += 1
        return counts

    def _outside(self, counts: Int64Array) -> int:
        """Items outside floor and ceil of the shares."""
        return int((np.maximum(self.floor - counts, 0) + np.maximum(counts - self.ceil, 0)).sum())

    def _candidates(self, loads: Int64Array) -> Iterator[tuple[Change, ...]]:
        """Changes that cost nothing between a fuller owner, the giver, and an emptier one, the taker."""
        level = loads / self.weight
        order = np.argsort(level, kind="stable").tolist()
        pairs = [(order[-1], other) for other in order[:MOST_PARTNERS]]
        pairs += [(other, order[0]) for other in order[::-1][:MOST_PARTNERS]]
        for giver, taker in dict.fromkeys(pairs):
            if level[giver] <= level[taker] or self.looked_at > MOST_LOOKED_AT:
                continue
            self.looked_at += len(self.owner)
            given, taken = self._cheapest(giver, taker), self._cheapest(taker, giver)
            for (first, loss), (second, gain) in product(given.values(), taken.values()):
                if self.is_copied[second] and not self.is_copied[first] and loss + gain <= 0:
                    yield (first, taker), (second, giver)
            yield from (((item, taker),) for item, cost in given.values() if cost <= 0)
            yield from (((item, giver),) for item, cost in taken.values() if cost <= 0)

    def _cheapest(self, source: int, target: int) -> dict[tuple[bool, bool], tuple[int, int]]:
        """Per (has copies, stateful): the source's item that goes to the target at least cost, and the cost."""
        if self._costs is None:
            self._costs = _Costs(self.problem)
        items = np.flatnonzero(self.owner == source)
        cost = self._costs.of(items, target) - self._costs.of(items, source)
        found = {}
        for has_copies in (False, True):
            for is_stateful in (True, False):
                rows = np.flatnonzero(
                    (self.is_copied[items] == has_copies) & (self.problem.is_stateful[items] == is_stateful)
                )
                if len(rows):
                    best = int(rows[np.argmin(cost[rows])])
                    found[has_copies, is_stateful] = int(items[best]), int(cost[best])
        return found


class _Costs:
    """What it costs to have items at an owner: a lost claim or what racks cost, then the distance from their state."""

    def __init__(self, problem: Problem) -> None:
        items, claims, state = len(problem.is_stateful), problem.claims, problem.state
        self.items, self.racks = items, problem.racks or RackCosts.nothing(items, len(problem.weight))
        self.is_claimed, self.has_state = np.zeros((2, items), dtype=np.bool_)
        self.is_claimed[claims.item] = True
        self.has_state[state.item] = True
        self.claims = np.sort(claims.owner * items + claims.item)
        keys = state.owner * items + state.item
        order = order_by(keys)
        self.state, self.behind = keys[order], state.behind()[order]

    def of(self, items: Int64Array, owner: int) -> Int64Array:
        """(M,) the cost of each of the items at the owner."""
        keys = owner * self.items + items
        kept = rows_of(self.claims, keys) >= 0
        rows = rows_of(self.state, keys)
        behind = np.full(len(items), _NO_STATE, dtype=np.int64)
        behind[rows >= 0] = self.behind[rows[rows >= 0]]
        behind[~self.has_state[items] | kept] = 0
        lost = (self.is_claimed[items] & ~kept).astype(np.int64)
        cost = self.racks.costs.at(self.racks.costs.row[items], self.racks.rack[[owner]])
        # Where racks cost, claims are the last goal; else they are the first one already.
        return (cost + lost * self.racks.move) * _FIRST + 2 * behind + lost
