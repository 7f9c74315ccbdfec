"""Exchanging items between owners so that their copies can be spread evenly; earlier goals stay as good as they are.

An owner cannot hold a copy of an item that it has itself. Where there are nearly as many copies as owners, it therefore
matters whether an owner's items are ones that have copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.utils._copies import copy_bounds
from task_assignor.utils._engine import Pairs
from task_assignor.utils._spread import even_counts

MOST_EXCHANGES: Final = 256
MOST_PARTNERS: Final = 8
_LOST: Final = 1 << 50
_NO_STATE: Final = 1 << 40
_TINY: Final = 1e-9


@attrs.frozen(eq=False)
class Exchange:
    """What counts when items are exchanged.

    Args:
        is_first_kind: (N,) items of which the spread must not get wider.
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
        """(N,) owners, exchanged pairwise as long as that makes all items and copies more even.

        No exchange loses more claims, or leaves more items away from their state. A local search: it stops when no
        single exchange with the emptiest or fullest owner helps.
        """
        spread, level = self._levels(owner)
        if spread <= self._reachable(owner) + _TINY:
            return owner
        for _ in range(MOST_EXCHANGES):
            for first, second in self._candidates(owner, level):
                trial = owner.copy()
                trial[first], trial[second] = owner[second], owner[first]
                new_spread, new_level = self._levels(trial)
                if new_spread < spread - _TINY:
                    owner, spread, level = trial, new_spread, new_level
                    break
            else:
                return owner
        return owner

    def _levels(self, owner: Int64Array) -> tuple[float, npt.NDArray[np.float64]]:
        bounds = copy_bounds(owner, self.wanted, len(self.weight))
        counts = even_counts(self.weight, bounds.least, bounds.most, bounds.total)
        level = counts / self.weight
        return float(np.ptp(level)), level

    def _reachable(self, owner: Int64Array) -> float:
        """The spread if every owner could hold any number of copies."""
        bounds = copy_bounds(owner, self.wanted, len(self.weight))
        counts = even_counts(self.weight, bounds.least, np.full_like(bounds.most, bounds.total), bounds.total)
        return float(np.ptp(counts / self.weight))

    def _candidates(self, owner: Int64Array, level: npt.NDArray[np.float64]) -> Iterator[tuple[int, int]]:
        """Pairs (item without copies, item with copies): the first leaves the fuller owner, the second the emptier one."""
        order = np.argsort(level, kind="stable")
        full, empty = int(order[-1]), int(order[0])
        pairs = [(full, int(other)) for other in order[:MOST_PARTNERS]]
        pairs += [(int(other), empty) for other in order[::-1][:MOST_PARTNERS]]
        for giver, taker in dict.fromkeys(pairs):
            if level[giver] <= level[taker] + _TINY:
                continue
            for plain_kind, copied_kind in ((True, True), (False, False), (False, True), (True, False)):
                plain = np.flatnonzero((owner == giver) & (self.is_first_kind == plain_kind) & (self.wanted == 0))
                copied = np.flatnonzero((owner == taker) & (self.is_first_kind == copied_kind) & (self.wanted > 0))
                if not len(plain) or not len(copied):
                    continue
                first, loss = self._cheapest(plain, giver, taker)
                second, gain = self._cheapest(copied, taker, giver)
                if loss + gain <= 0 and self._keeps_first_kind_even(owner, first, second):
                    yield first, second

    def _keeps_first_kind_even(self, owner: Int64Array, first: int, second: int) -> bool:
        """Exchanging the two does not widen the spread of the first kind."""
        change = int(self.is_first_kind[first]) - int(self.is_first_kind[second])
        if not change:
            return True
        counts = np.bincount(owner[self.is_first_kind], minlength=len(self.weight))
        before = float(np.ptp(counts / self.weight))
        counts[owner[first]] -= change
        counts[owner[second]] += change
        return float(np.ptp(counts / self.weight)) <= before + _TINY

    def _cheapest(self, items: Int64Array, source: int, target: int) -> tuple[int, int]:
        """The item that is moved from source to target at least cost, and the cost."""
        cost = self._cost(items, target) - self._cost(items, source)
        best = int(np.argmin(cost))
        return int(items[best]), int(cost[best])

    def _cost(self, items: Int64Array, owner: int) -> Int64Array:
        """What it costs to have the items at the owner: a lost claim, then the distance from their state."""
        kept = np.isin(items, self.claims.item[self.claims.owner == owner])
        lost = np.isin(items, self.claims.item) & ~kept
        behind = np.full(len(items), _NO_STATE, dtype=np.int64)
        here = self.state.owner == owner
        known = self.state.item[here]
        order = np.argsort(known, kind="stable")
        if len(order):
            rows = np.minimum(np.searchsorted(known[order], items), len(order) - 1)
            found = known[order][rows] == items
            behind[found] = np.minimum(self.state.rank[here][order][rows[found]], _NO_STATE)
        behind[~np.isin(items, self.state.item) | kept] = 0
        return np.where(lost, _LOST, 0) + behind
