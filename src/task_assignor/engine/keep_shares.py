"""Shares if owners keep all that they claim: as close to even as that allows. Shares that come first are in `engine/spread.py`."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np

from task_assignor.engine.spread import (
    EVERYTHING,
    Shares,
    Window,
    fill_up,
    levels_between,
    smallest_windows,
)
from task_assignor.sdk.columns import Int64Array


@attrs.frozen(eq=False)
class _Numbers:
    """Limits within two windows.

    Args:
        first_low: (C,) least items of the first kind.
        first_free: (C,) items of the first kind for which there is room beside what an owner has in any case.
        first_high: (C,) most items of the first kind.
        low: (C,) least items.
        high: (C,) most items.
    """

    first_low: Int64Array
    first_free: Int64Array
    first_high: Int64Array
    low: Int64Array
    high: Int64Array


@attrs.frozen(eq=False)
class KeepProblem:
    """Owners get at least what they claim; the rest goes to those below their floor, and only then up to the ceil.

    Args:
        weight: (C,) weights (threads).
        floor: (C,) share of each owner, rounded down.
        ceil: (C,) the same, rounded up.
        claimed: (C, 2) claims of the first and the second kind.
        items: (2,) number of all items of the first and the second kind.
        demand: (C, 2) items that nobody claims but that had better be here, per kind.
    """

    weight: Int64Array
    floor: Int64Array
    ceil: Int64Array
    claimed: Int64Array
    items: tuple[int, int]
    demand: Int64Array

    def solve(self) -> Shares:
        """The shares: fewest items outside floor and ceil, then smallest spread of the first kind, then of all items."""
        low, high = self._bounds()
        first = smallest_windows(
            levels_between(self.weight, self.claimed[:, 0], high - self.claimed[:, 1]),
            lambda one: self._numbers(low, high, one, EVERYTHING) is not None,
        )
        levels = levels_between(self.weight, low, high)
        pairs = [
            (one, every) for one in first for every in smallest_windows(levels, partial(self._allows, low, high, one))
        ]
        numbers = self._numbers(low, high, *min(pairs, key=lambda pair: (pair[1].high - pair[1].low, -pair[0].low)))
        assert numbers is not None, "both windows were found feasible together"
        return self._shares(numbers)

    def _bounds(self) -> tuple[Int64Array, Int64Array]:
        """(C,) least and most items with which the fewest are outside the shares."""
        kept = self.claimed.sum(axis=1)
        low, high = kept, np.maximum(kept, self.floor)
        if int(high.sum()) < sum(self.items):
            low, high = high, np.maximum(kept, self.ceil)
        return low, high

    def _allows(self, low: Int64Array, high: Int64Array, first: Window, every: Window) -> bool:
        return self._numbers(low, high, first, every) is not None

    def _numbers(self, low: Int64Array, high: Int64Array, first: Window, every: Window) -> _Numbers | None:
        """The limits within the windows; None: the items do not fit."""
        kept_first, kept_second = self.claimed[:, 0], self.claimed[:, 1]
        low, high = np.maximum(low, every.least(self.weight)), every.most(self.weight, high)
        first_low = np.maximum(kept_first, first.least(self.weight))
        first_high = first.most(self.weight, high - kept_second)
        if (low > high).any() or (first_low > first_high).any():
            return None
        # So many of the first kind fit beside the kept ones of the second without more than `low` items.
        first_free = np.clip(low - kept_second, first_low, first_high)
        number, spare = self.items[0], sum(self.items) - int(low.sum())
        beyond = int((first_free + kept_second - low).clip(min=0).sum()) + max(number - int(first_free.sum()), 0)
        fits = int(first_low.sum()) <= number <= int(first_high.sum()) and sum(self.items) <= int(high.sum())
        return _Numbers(first_low, first_free, first_high, low, high) if fits and beyond <= spare else None

    def _shares(self, numbers: _Numbers) -> Shares:
        wanted = self.claimed + self.demand
        number = self.items[0]
        least, most = numbers.first_low, numbers.first_free
        if int(most.sum()) < number:
            least, most = most, numbers.first_high
        first = fill_up(least, most, number, wanted[:, 0])
        low = np.maximum(numbers.low, first + self.claimed[:, 1])
        return Shares(fill_up(low, numbers.high, sum(self.items), wanted.sum(axis=1)), first)
