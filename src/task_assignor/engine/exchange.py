"""Exchanging items between owners so that their copies can be spread evenly; earlier goals stay as good as they are.

An owner cannot hold a copy of an item that it has itself. Where there are nearly as many copies as owners, it therefore
matters whether an owner's items are ones that have copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.copies import copy_bounds
from task_assignor.engine.items import Pairs, quotas
from task_assignor.engine.spread import FloatArray, even_counts
from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_LOOKED_AT: Final = 30_000_000
"""Items that are looked at in all before the search ends: a few seconds at the most."""
MOST_PARTNERS: Final = 8
TWO_CHANGES_UP_TO: Final = 2_000
"""Items up to which two changes at a time are tried where one does not help."""
_LOST: Final = 1 << 50
_NO_STATE: Final = 1 << 40
_TINY: Final = 1e-9
Change = tuple[int, int]
"""An item and its new owner."""


@attrs.frozen(eq=False)
class Exchange:
    """What counts when items change places.

    Args:
        is_first_kind: (N,) items that are spread first.
        wanted: (N,) copies wanted of each item.
        weight: (C,) weights of the owners.
        claims: claims that count: to take an item from all its claimants is a loss.
        state: who has state of which item, and how far behind it is.
    """

    is_first_kind: BoolArray
    wanted: Int64Array
    weight: Int64Array
    claims: Pairs
    state: Pairs

    def improve(self, owner: Int64Array) -> Int64Array:
        """(N,) owners, changed as long as that makes all items and copies more even.

        Two items change places, or one moves to an owner that may have one more. No change loses more claims, leaves
        more items away from their state or further behind, or widens the spread of the first kind or of all items. A local search: it
        stops when no change with the emptiest or fullest owner helps (and, of few items, no two changes).
        """
        return _Search(self, owner).run()


class _Search:
    """The owners as they are, and counts per owner that make every trial cheap."""

    def __init__(self, exchange: Exchange, owner: Int64Array) -> None:
        self.exchange = exchange
        self.owner = owner.copy()
        owners = len(exchange.weight)
        bounds = copy_bounds(owner, exchange.wanted, owners)
        self.is_copied = bounds.needs > 0
        self.copied = int(self.is_copied.sum())
        self.total = bounds.total
        self.floor, self.ceil = quotas(exchange.weight, len(owner))
        # Rows: all items, items of the first kind, items that have copies.
        masks = (np.ones_like(self.is_copied), exchange.is_first_kind, self.is_copied)
        self.counts = np.stack([np.bincount(owner[mask], minlength=owners) for mask in masks])
        self.looked_at = 0
        self.claimed = np.zeros(len(owner), dtype=np.bool_)
        self.claimed[exchange.claims.item] = True
        self.claim_keys = np.sort(exchange.claims.owner * len(owner) + exchange.claims.item)
        keys = exchange.state.owner * len(owner) + exchange.state.item
        order = np.argsort(keys, kind="stable")
        self.state_keys, self.state_place = keys[order], exchange.state.places()[order]
        self.has_state = np.zeros(len(owner), dtype=np.bool_)
        self.has_state[exchange.state.item] = True

    def run(self) -> Int64Array:
        level = self._levels(self.counts)
        unlimited = even_counts(
            self.exchange.weight, self.counts[0], np.full_like(self.counts[0], self.total), self.total
        )
        reachable = _spread(unlimited / self.exchange.weight)
        while _spread(level) > reachable + _TINY:
            better = self._first_improvement(level, _spread(level))
            if better is None and len(self.owner) <= TWO_CHANGES_UP_TO:
                better = self._two_changes(level)
            if better is None:
                break
            level = better
        return self.owner

    def _two_changes(self, level: FloatArray) -> FloatArray | None:
        """A change that does not help by itself, and one that helps then; None: there are none."""
        owner, counts = self.owner.copy(), self.counts
        for changes in list(self._allowed(level)):
            self._apply(changes, self._changed(changes))
            better = self._first_improvement(self._levels(self.counts), _spread(level))
            if better is not None:
                return better
            self.owner, self.counts = owner.copy(), counts
        return None

    def _apply(self, changes: Sequence[Change], counts: Int64Array) -> None:
        self.counts = counts
        for item, new in changes:
            self.owner[item] = new

    def _levels(self, counts: Int64Array) -> FloatArray:
        """(C,) items and copies per unit of weight, if copies are spread as evenly as they can be."""
        most = counts[0] + self.copied - counts[2]
        return even_counts(self.exchange.weight, counts[0], most, self.total) / self.exchange.weight

    def _first_improvement(self, level: FloatArray, spread: float) -> FloatArray | None:
        """Make the first change after which the spread is less than `spread`; None: there is none."""
        for changes in self._allowed(level):
            counts = self._changed(changes)
            new_level = self._levels(counts)
            if _spread(new_level) < spread - _TINY:
                self._apply(changes, counts)
                return new_level
        return None

    def _allowed(self, level: FloatArray) -> Iterator[tuple[Change, ...]]:
        """Changes that leave all earlier goals as good as they are."""
        spreads = [_spread(row / self.exchange.weight) for row in self.counts[:2]]
        for changes in self._candidates(level):
            counts = self._changed(changes)
            now = [_spread(row / self.exchange.weight) for row in counts[:2]]
            if self._within_shares(counts) and all(one <= two + _TINY for one, two in zip(now, spreads, strict=True)):
                yield changes

    def _changed(self, changes: Sequence[Change]) -> Int64Array:
        counts = self.counts.copy()
        for item, new in changes:
            rows = [0] + [1] * bool(self.exchange.is_first_kind[item]) + [2] * bool(self.is_copied[item])
            counts[rows, self.owner[item]] -= 1
            counts[rows, new] += 1
        return counts

    def _within_shares(self, counts: Int64Array) -> bool:
        """No owner is further outside floor and ceil of its share than it was."""
        before, after = (
            int((np.maximum(self.floor - all_items, 0) + np.maximum(all_items - self.ceil, 0)).sum())
            for all_items in (self.counts[0], counts[0])
        )
        return after <= before

    def _candidates(self, level: FloatArray) -> Iterator[tuple[Change, ...]]:
        """Changes between a fuller owner, the giver, and an emptier one, the taker, that cost nothing."""
        order = np.argsort(level, kind="stable").tolist()
        pairs = [(order[-1], other) for other in order[:MOST_PARTNERS]]
        pairs += [(other, order[0]) for other in order[::-1][:MOST_PARTNERS]]
        for giver, taker in dict.fromkeys(pairs):
            if level[giver] <= level[taker] + _TINY or self.looked_at > MOST_LOOKED_AT:
                continue
            self.looked_at += len(self.owner)
            given = self._cheapest_by_sort(giver, taker)
            taken = self._cheapest_by_sort(taker, giver)
            for (first, loss), (second, gain) in (
                (one, other)
                for (is_copied, _), one in given.items()
                for (other_is_copied, _), other in taken.items()
                if not is_copied and other_is_copied
            ):
                if loss + gain <= 0:
                    yield (first, taker), (second, giver)
            for item, cost in given.values():
                if cost <= 0:
                    yield ((item, taker),)
            for item, cost in taken.values():
                if cost <= 0:
                    yield ((item, giver),)

    def _cheapest_by_sort(self, source: int, target: int) -> dict[tuple[bool, bool], tuple[int, int]]:
        """Per (has copies, first kind): the source's item that goes to the target at least cost, and the cost."""
        items = np.flatnonzero(self.owner == source)
        cost = self._cost(items, target) - self._cost(items, source)
        found = {}
        for has_copies in (False, True):
            for kind in (True, False):
                rows = np.flatnonzero(
                    (self.is_copied[items] == has_copies) & (self.exchange.is_first_kind[items] == kind)
                )
                if len(rows):
                    best = int(rows[np.argmin(cost[rows])])
                    found[has_copies, kind] = int(items[best]), int(cost[best])
        return found

    def _cost(self, items: Int64Array, owner: int) -> Int64Array:
        """What it costs to have the items at the owner: a lost claim, then the distance from their state."""
        keys = owner * len(self.owner) + items
        kept = _rows(self.claim_keys, keys) >= 0
        rows = _rows(self.state_keys, keys)
        behind = np.full(len(items), _NO_STATE, dtype=np.int64)
        behind[rows >= 0] = self.state_place[rows[rows >= 0]]
        behind[~self.has_state[items] | kept] = 0
        return np.where(self.claimed[items] & ~kept, _LOST, 0) + behind


def _rows(sorted_keys: Int64Array, keys: Int64Array) -> Int64Array:
    """Row of each key; -1: not there."""
    if not len(sorted_keys):
        return np.full(len(keys), -1, dtype=np.int64)
    rows = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    return np.where(sorted_keys[rows] == keys, rows, -1)


def _spread(level: FloatArray) -> float:
    return float(np.ptp(level))
