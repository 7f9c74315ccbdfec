"""How many items each owner gets: whole numbers within bounds, as even as they can be per unit of weight.

Which items these are is decided in `engine/actives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import BoolArray, Int64Array

FloatArray = npt.NDArray[np.float64]
MOST_WINDOWS: Final = 512
"""Lower ends of windows that are tried when both ends cannot be best at once (only with unequal weights)."""
MOST_EQUAL_WINDOWS: Final = 16
"""Equally narrow windows of the first kind that are compared by the spread of all items."""
_TINY: Final = 1e-9


@attrs.frozen(eq=False)
class Window:
    """Allowed range of items per unit of weight."""

    low: float
    high: float

    def least(self, weight: Int64Array) -> Int64Array:
        """(C,) the smallest whole numbers that are not below the window."""
        least: Int64Array = np.ceil(np.maximum(self.low, 0.0) * weight - _TINY).astype(np.int64)
        return least

    def most(self, weight: Int64Array, limit: Int64Array) -> Int64Array:
        """(C,) the greatest whole numbers that are not above the window, and not above `limit`."""
        most: Int64Array = np.floor(np.minimum(self.high * weight, 2.0**52) + _TINY).astype(np.int64)
        return np.minimum(most, limit)


EVERYTHING: Final = Window(0.0, np.inf)


def smallest_windows(levels: FloatArray, feasible: Callable[[Window], bool]) -> list[Window]:
    """The narrowest feasible windows between two of the `levels`, highest first.

    Args:
        levels: candidates for both ends, sorted.
        feasible: whether a window allows a solution; a wider window never allows less.

    Returns:
        Equally narrow windows, at least one; `[EVERYTHING]` if not even the widest is feasible.
    """
    if not len(levels) or not feasible(Window(levels[0], levels[-1])):
        return [EVERYTHING]
    high = _first(len(levels), lambda end: feasible(Window(levels[0], levels[end])))
    low = len(levels) - 1 - _first(len(levels), lambda back: feasible(Window(levels[-1 - back], levels[-1])))
    width = np.inf
    found: list[Window] = []
    for start in range(low, max(low - MOST_WINDOWS, -1), -1):
        if levels[high] - levels[start] > width + _TINY:
            break
        first = max(high, start)
        last = int(np.searchsorted(levels, levels[start] + width + _TINY, side="right"))
        if last <= first or not feasible(Window(levels[start], levels[last - 1])):
            continue
        bottom = float(levels[start])
        end = first + _first(last - first, partial(_reaches, feasible, bottom, levels[first:last]))
        window = Window(bottom, float(levels[end]))
        if window.high - window.low < width - _TINY:
            width, found = window.high - window.low, []
        found.append(window)
        if len(found) == MOST_EQUAL_WINDOWS:
            break
    return found


def _reaches(feasible: Callable[[Window], bool], bottom: float, tops: FloatArray, number: int) -> bool:
    return feasible(Window(bottom, float(tops[number])))


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The first number below `count` for which `holds` is true; it holds for the last, and from some number on."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def levels_between(weight: Int64Array, least: Int64Array, most: Int64Array) -> FloatArray:
    """All items per unit of weight that owners between `least` and `most` items can have, sorted."""
    found = []
    for one in distinct(weight):
        of_weight = weight == one
        found.append(np.arange(least[of_weight].min(), most[of_weight].max() + 1) / one)
    return distinct(np.concatenate(found)) if found else np.zeros(0)


def even_counts(
    weight: Int64Array, least: Int64Array, most: Int64Array, total: int, demand: Int64Array | None = None
) -> Int64Array:
    """Whole numbers between `least` and `most` that add up to `total`, with the smallest spread per unit of weight.

    Args:
        weight: (C,) weights, at least 1.
        least: (C,) lower bounds.
        most: (C,) upper bounds; together they must allow `total`.
        total: the sum.
        demand: (C,) among equally even answers, owners with more demand get more; then smaller numbers do.
    """
    if not len(weight):
        return np.zeros(0, dtype=np.int64)
    window = narrowest_window(weight, least, most, total)
    low = np.maximum(least, window.least(weight))
    return fill_up(low, window.most(weight, most), total, demand)


def narrowest_window(weight: Int64Array, least: Int64Array, most: Int64Array, total: int) -> Window:
    """The narrowest window in which whole numbers between `least` and `most` add up to `total`; the highest of several.

    Args:
        weight: (C,) weights, at least 1.
        least: (C,) lower bounds.
        most: (C,) upper bounds; together they must allow `total`.
        total: the sum.
    """

    def most_at(level: float) -> Int64Array:
        return Window(0.0, level).most(weight, most)

    def least_at(level: float) -> Int64Array:
        return np.maximum(least, Window(level, level).least(weight))

    # No window can end below `end`, or begin above `low`.
    highest = float((most / weight).max())
    end = _boundary(lambda level: int(most_at(level).sum()) >= total, highest, 0.0)
    end = max(float((most_at(end) / weight).max()), float((least / weight).max()))
    low = _boundary(lambda level: int(least_at(level).sum()) <= total, 0.0, highest)
    low = min(float((least_at(low) / weight).min()), float((most / weight).min()))
    best = None
    for _ in range(MOST_WINDOWS):
        # The lower end forces some owners above the upper one: it must be lowered until those can have one less.
        counts = least_at(low)
        high = max(end, float((counts / weight).max()))
        if best is None or high - low < best.high - best.low - _TINY:
            best = Window(low, high)
        forced = counts / weight >= high - _TINY
        if high <= end + _TINY or (counts[forced] <= least[forced]).any():
            break
        low = float(((counts[forced] - 1) / weight[forced]).min())
        if end - low >= best.high - best.low:
            break
    assert best is not None
    return best


def _boundary(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """A level at which `holds` is true, next to where it no longer is; it is true at `good`, perhaps at `bad` too."""
    if holds(bad):
        return bad
    for _ in range(100):
        middle = (good + bad) / 2
        if middle in (good, bad):
            break
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _levels_near(weight: Int64Array, least: Int64Array, most: Int64Array, total: int) -> FloatArray:
    """Levels that can matter: between the evenest level and what the bounds force, without the far ones."""
    level = total / max(int(weight.sum()), 1)
    low = min(float((most / weight).min()), level) - 1.0
    high = max(float((least / weight).max()), level) + 1.0
    near_least = np.maximum(least, np.floor(low * weight).astype(np.int64))
    near_most = np.minimum(most, np.ceil(high * weight).astype(np.int64))
    return levels_between(weight, np.minimum(near_least, near_most), np.maximum(near_least, near_most))


def fill_up(low: Int64Array, high: Int64Array, total: int, demand: Int64Array | None = None) -> Int64Array:
    """`low`, raised within `high` until the sum is `total`: first up to the demand, then one by one in turn."""
    counts = low.copy()
    missing = total - int(counts.sum())
    for limit in (high if demand is None else np.clip(demand, low, high), high):
        if missing <= 0:
            break
        room = np.maximum(limit - counts, 0)
        granted = _in_turn(room, missing)
        counts += granted
        missing -= int(granted.sum())
    return counts


def _in_turn(room: Int64Array, total: int) -> Int64Array:
    """At most `total` units dealt out in turn, nobody more than the room, smaller numbers first."""
    if int(room.sum()) <= total:
        return room.copy()
    rounds = _first(int(room.max()) + 1, lambda number: int(np.minimum(room, number).sum()) > total) - 1
    granted = np.minimum(room, rounds)
    rest = total - int(granted.sum())
    granted[np.flatnonzero(room > rounds)[:rest]] += 1
    return granted


@attrs.frozen(eq=False)
class Shares:
    """How many items, and how many of the first kind, each owner gets.

    Args:
        total: (C,) items.
        first_kind: (C,) items of the first kind (stateful tasks) among them.
    """

    total: Int64Array
    first_kind: Int64Array


@attrs.frozen(eq=False)
class ShareProblem:
    """Owners get `floor` items or one more; claims are kept as far as that allows; then the spread is smallest.

    Args:
        weight: (C,) weights (threads).
        floor: (C,) lower bounds.
        may_have_extra: (C,) whether the owner may get one item more.
        extras: how many owners get one item more.
        claimed: (C, 2) claims of the first and the second kind.
        first_kind: number of all items of the first kind.
        demand: (C, 2) items that nobody claims but that had better be here, per kind.
    """

    weight: Int64Array
    floor: Int64Array
    may_have_extra: BoolArray
    extras: int
    claimed: Int64Array
    first_kind: int
    demand: Int64Array

    def solve(self) -> Shares:
        """The shares: most claims kept, then smallest spread of the first kind, then of all items."""
        claims = self.claimed.sum(axis=1)
        gains = self.may_have_extra & (claims > self.floor)
        if int(gains.sum()) >= self.extras:
            must, may = np.zeros_like(gains), gains
        else:
            must, may = gains, self.may_have_extra
        choice = _Choice(self, must, may)
        firsts = self._first_kind_windows(choice)
        levels = distinct(np.concatenate([self.floor / self.weight, (self.floor + may) / self.weight]))
        best: tuple[Window, Window] | None = None
        for first in firsts:
            every = smallest_windows(levels, partial(choice.allows, first))[0]
            if best is None or every.high - every.low < best[1].high - best[1].low - _TINY:
                best = first, every
        assert best is not None, "the widest windows always allow a solution"
        picked = choice.pick(*best)
        assert picked is not None, "both windows were found feasible together"
        return choice.shares(picked, best[0])

    def _first_kind_windows(self, choice: _Choice) -> list[Window]:
        if not self.first_kind:
            return [EVERYTHING]
        least, most = choice.least.min(axis=0), choice.most.max(axis=0)
        near = _levels_near(self.weight, least, most, self.first_kind)
        found = smallest_windows(near, choice.allows)
        return (
            found
            if found[0] is not EVERYTHING
            else smallest_windows(levels_between(self.weight, least, most), choice.allows)
        )


@attrs.frozen(eq=False)
class _Picked:
    """Number of extras to give to each of the four types of owners that are free to have one or not."""

    must: BoolArray
    free: BoolArray
    kind: Int64Array
    counts: dict[int, int]


class _Choice:
    """Who gets an extra item, so that the numbers of the first kind can add up within a window."""

    def __init__(self, problem: ShareProblem, must: BoolArray, may: BoolArray) -> None:
        self.problem = problem
        self.must = must
        self.may = may
        ranges = [_first_kind_range(problem.claimed, problem.floor + extra) for extra in (0, 1)]
        self.least = np.stack([low for low, _ in ranges])
        self.most = np.stack([high for _, high in ranges])

    def bounds(self, window: Window) -> tuple[Int64Array, Int64Array]:
        """(2, C) least and most items of the first kind without and with an extra item, within the window."""
        weight = self.problem.weight
        return np.maximum(self.least, window.least(weight)), window.most(weight, self.most)

    def allows(self, first: Window, every: Window = EVERYTHING) -> bool:
        """Whether the extras can be chosen within both windows."""
        return self.pick(first, every) is not None

    def pick(self, first: Window, every: Window) -> _Picked | None:
        """How to choose the extras within both windows; None if it cannot be done."""
        problem = self.problem
        low, high = self.bounds(first)
        possible = low <= high
        for extra in (0, 1):
            count = problem.floor + extra
            possible[extra] &= (every.least(problem.weight) <= count) & (every.most(problem.weight, count) >= count)
        possible[0] &= ~self.must
        possible[1] &= self.may | self.must
        if not possible.any(axis=0).all():
            return None
        must, free = ~possible[0], possible[0] & possible[1]
        wanted = problem.extras - int(must.sum())
        if not 0 <= wanted <= int(free.sum()):
            return None
        least = int(np.where(must, low[1], low[0]).sum())
        most = int(np.where(must, high[1], high[0]).sum())
        # Of a free owner an extra item raises the least number by 0 or 1, and the greatest by 0 or 1.
        kind = np.where(free, 2 * (low[1] - low[0]) + (high[1] - high[0]), -1)
        number = [int((kind == which).sum()) for which in range(4)]
        only_most = min(number[1], wanted)
        rest = wanted - only_most
        both = np.arange(max(0, rest - number[0] - number[2]), min(number[3], rest) + 1)
        neither = np.minimum(number[0], rest - both)
        only_least = rest - both - neither
        fits = (least + both + only_least <= problem.first_kind) & (most + only_most + both >= problem.first_kind)
        if not fits.any():
            return None
        row = int(np.flatnonzero(fits)[0])
        counts = {0: int(neither[row]), 1: only_most, 2: int(only_least[row]), 3: int(both[row])}
        return _Picked(must, free, kind, counts)

    def shares(self, picked: _Picked, first: Window) -> Shares:
        """The numbers: extras to the owners with the greatest unmet demand, then by number."""
        problem = self.problem
        extra = picked.must.copy()
        unmet = problem.demand.sum(axis=1) + problem.claimed.sum(axis=1) - problem.floor
        for kind, count in picked.counts.items():
            candidates = np.flatnonzero(picked.kind == kind)
            extra[candidates[np.lexsort((candidates, -unmet[candidates]))[:count]]] = True
        low, high = self.bounds(first)
        low, high = np.where(extra, low[1], low[0]), np.where(extra, high[1], high[0])
        demand = problem.claimed[:, 0] + problem.demand[:, 0]
        return Shares(problem.floor + extra, fill_up(low, high, problem.first_kind, demand))


def _first_kind_range(claimed: Int64Array, total: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(C,) least and most items of the first kind among `total` items if as many claims as possible are kept."""
    first, second = claimed[:, 0], claimed[:, 1]
    overfull = first + second >= total
    least = np.where(overfull, np.maximum(0, total - second), first)
    most = np.where(overfull, np.minimum(first, total), total - second)
    return least, most
