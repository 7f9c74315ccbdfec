"""The one notion of even: loads within bounds whose sum of load² / weight is least. Exact, in whole numbers.

An owner's load of x costs x² / weight. One more item costs (2x + 1) / weight on top, and a step from x to y items costs
(x + y) / weight per item: ever more, so the steps of an owner are parallel arcs of a flow, and the cheapest are filled
first. Flows of this kind need only the *order* of these prices: the loads that the owners of a flow can have together are
the bases of a polymatroid, where a convex sum is least if no exchange of one item makes it less. Where owners are bound to
each other in more ways than that (by who bears their loads) the prices themselves are added up.
"""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.items import quotas, rank_within
from task_assignor.sdk.arrays import distinct, numbered, order_by
from task_assignor.sdk.columns import Int64Array

_HALF: Final = 32
_AT_ONCE: Final = 4
_MOST_PARTS: Final = 10_000


def order_of_prices(numerator: Int64Array, weight: Int64Array) -> Int64Array:
    """(N,) the number of each fraction numerator / weight among all that differ, from 0; equal fractions have equal numbers.

    Args:
        numerator: (N,) from 0 to 2^62.
        weight: (N,) from 1 to 2^31 - 1.
    """
    if not len(numerator) or int(weight.min()) == int(weight.max()):
        return numbered(numerator)
    # 64 binary digits after the point tell fractions of denominators below 2^31 apart.
    whole, rest = np.divmod(numerator, weight)
    high, rest = np.divmod(rest << _HALF, weight)
    low = (rest << _HALF) // weight
    order = order_by(whole, high, low)
    is_next = np.zeros(len(order), dtype=np.bool_)
    for digits in (whole, high, low):
        is_next[1:] |= digits[order[1:]] != digits[order[:-1]]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(is_next)
    return numbers


def unit_of_prices(weight: Int64Array) -> int | None:
    """One part in so many is a unit in which prices of all these weights are whole numbers; None: it would be too small."""
    unit = 1
    for one in distinct(weight).tolist():
        unit = math.lcm(unit, one)
        if unit > _MOST_PARTS:
            return None
    return unit


def prices_to_add(numerator: Int64Array, weight: Int64Array) -> Int64Array:
    """(N,) the fractions numerator / weight less the smallest, so that they can be added up; else their order.

    Args:
        numerator: as for `order_of_prices`.
        weight: as for `order_of_prices`; if `unit_of_prices` has no unit for them the order is all that is given.
    """
    unit = unit_of_prices(weight)
    if unit is None or not len(weight):
        return order_of_prices(numerator, weight)
    prices: Int64Array = numerator * (unit // weight)
    return prices - int(prices.min())


def even_counts(weight: Int64Array, least: Int64Array, most: Int64Array, total: int) -> Int64Array:
    """Whole numbers between `least` and `most` that add up to `total`, with the least sum of number² / weight.

    Args:
        weight: (C,) weights, at least 1.
        least: (C,) lower bounds.
        most: (C,) upper bounds; together they must allow `total`.
        total: the sum. Among equally even answers owners of smaller numbers get more.
    """
    total = min(max(total, int(least.sum())), int(most.sum()))
    counts = _below(weight, least, most, total)
    at_once = _AT_ONCE
    while True:
        # The cheapest steps from here; an owner that takes all that are looked at may want more of them.
        missing = total - int(counts.sum())
        owner = np.repeat(np.arange(len(weight)), np.minimum(most - counts, at_once))
        step = rank_within(owner)
        price = order_of_prices(2 * (counts[owner] + step) + 1, weight[owner])
        taken = np.bincount(owner[order_by(price, owner)[:missing]], minlength=len(weight))
        if int(taken.sum()) == missing and not (taken[most - counts > taken] >= at_once).any():
            return counts + taken
        at_once *= 4


def even_levels(weight: Int64Array, least: Int64Array, most: Int64Array, total: int) -> tuple[Int64Array, Int64Array]:
    """(low, high): `total` items are even if each owner has one of these two numbers, which differ by one at most.

    Even is: as few items as can be beyond floor and ceil of the owners' weighted shares; then the least sum of
    load² / weight.

    Args:
        weight: (C,) weights, at least 1.
        least: (C,) every owner has at least so many.
        most: (C,) and at most so many; together they allow `total`.
        total: number of items.
    """
    if not len(weight):
        return least, least
    low = least
    for limit in (*quotas(weight, total), most):
        top = np.maximum(np.minimum(limit, most), low)
        if int(top.sum()) > total:
            return _ties(weight, low, top, total)
        low = top
    return low, low


def _ties(weight: Int64Array, low: Int64Array, top: Int64Array, total: int) -> tuple[Int64Array, Int64Array]:
    """The most even numbers between `low` and `top` without, and with, what others could have at the same price."""
    counts = even_counts(weight, low, top, total)
    price = order_of_prices(np.concatenate([np.maximum(2 * counts - 1, 0), 2 * counts + 1]), np.tile(weight, 2))
    last, following = np.split(price, 2)
    dearest = int(last[counts > low].max(initial=-1))
    others = (counts < top) & (following == dearest)
    if not others.any():
        return counts, counts
    return counts - ((counts > low) & (last == dearest)), counts + others


def is_more_even(weight: Int64Array, loads: Int64Array, than: Int64Array) -> bool:
    """Whether the sum of load² / weight is less for the loads than for the others. Exactly."""
    rows = np.flatnonzero(loads != than)
    difference = Fraction()
    for one in distinct(weight[rows]).tolist():
        of_weight = rows[weight[rows] == one]
        more = (loads[of_weight] - than[of_weight]).tolist()
        both = (loads[of_weight] + than[of_weight]).tolist()
        difference += Fraction(sum(map(mul, more, both)), one)
    return difference < 0


def _below(weight: Int64Array, least: Int64Array, most: Int64Array, total: int) -> Int64Array:
    """Numbers that are not above the most even ones, and nearly reach them."""

    def filled(level: float) -> Int64Array:
        # The last item of a load x costs (2x - 1) / weight: up to twice the level. Not above 2^52: there whole numbers are exact.
        counts = np.floor(np.minimum(level * weight + 0.5, 2.0**52)).astype(np.int64)
        within: Int64Array = np.minimum(np.maximum(counts, least), most)
        return within

    low, high = 0.0, float((most / weight).max()) + 1.0
    counts = filled(low)
    while total - int(counts.sum()) > len(weight) and low < (middle := (low + high) / 2) < high:
        reached = filled(middle)
        if int(reached.sum()) <= total:
            low, counts = middle, reached
        else:
            high = middle
    return np.maximum(counts - 2, least)


@attrs.frozen(eq=False)
class Steps:
    """Loads of owners in steps: along each the sum of load² / weight is drawn as a straight line.

    Args:
        owner: (S,) owner of each step, ascending.
        start: (S,) load at which it begins; the first one's is the owner's least load.
        end: (S,) load at which it ends.
    """

    owner: Int64Array
    start: Int64Array
    end: Int64Array

    @classmethod
    def around(cls, load: Int64Array, least: Int64Array, most: Int64Array, *corners: Int64Array) -> Steps:
        """Steps from `least` to `most`: single items next to `load`, doubling in width further away.

        Args:
            load: (C,) loads that are probably nearly the best.
            least: (C,) lower bounds.
            most: (C,) upper bounds.
            *corners: (C,) loads at which a step must end.
        """
        offsets = [0]
        while offsets[-1] < int((most - least).max(initial=0)):
            offsets.append(max(2 * offsets[-1], 1))
        around = np.array(sorted({sign * offset for offset in offsets for sign in (-1, 1)}))
        points = np.concatenate(
            [load[:, None] + around, least[:, None], most[:, None], *(c[:, None] for c in corners)], axis=1
        )
        points = np.sort(np.clip(points, least[:, None], most[:, None]), axis=1)
        row, column = np.nonzero(points[:, 1:] > points[:, :-1])
        return cls(row, points[row, column], points[row, column + 1])

    def prices(self, weight: Int64Array, base: Int64Array | int = 0, size: int = 1) -> Int64Array:
        """(S,) order of the prices of one item along each step.

        Args:
            weight: (C,) weights of the owners.
            base: (C,) what owners have beside the steps.
            size: load of one item.
        """
        beside = np.broadcast_to(base, weight.shape)[self.owner]
        return order_of_prices(2 * beside + size * (self.start + self.end), weight[self.owner])

    def are_exact_at(self, load: Int64Array) -> bool:
        """Whether one item more or less than `load` is drawn at its own price for every owner: then it is the best."""
        single = self.end - self.start == 1
        known = np.zeros((2, len(load)), dtype=np.bool_)
        for side, at in enumerate((self.end, self.start)):
            known[side, self.owner[single & (at == load[self.owner])]] = True
        least, most = np.full(len(load), -1), np.full(len(load), -1)
        least[self.owner[::-1]], most[self.owner] = self.start[::-1], self.end
        return bool(((known[0] | (load == least) | (least < 0)) & (known[1] | (load == most) | (most < 0))).all())
