"""Between which numbers all owners are equally even: what copies may choose from. What is even is said in `engine/even.py`."""

from __future__ import annotations

import numpy as np

from task_assignor.engine.even import even_counts, order_of_prices
from task_assignor.engine.items import quotas
from task_assignor.sdk.columns import Int64Array


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
