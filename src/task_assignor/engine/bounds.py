"""Between which loads an owner may be, and where it probably ends."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import Pairs
from task_assignor.engine.problem import Problem
from task_assignor.sdk.columns import Int64Array


@attrs.frozen(eq=False)
class Bounds:
    """Least and most load of each owner, and of stateful items alone, and loads that are probably nearly the best.

    Args:
        low: (2, C) least stateful items, and items.
        high: (2, C) most of them.
        middle: (2, C) between `low` and `high`.
        floor: (C,) share, rounded down.
        ceil: (C,) share, rounded up.
    """

    low: Int64Array
    high: Int64Array
    middle: Int64Array
    floor: Int64Array
    ceil: Int64Array

    @classmethod
    def of(cls, problem: Problem, claims: Pairs) -> Bounds:
        """The bounds of a problem with the claims that count."""
        owners, items = len(problem.weight), len(problem.is_stateful)
        floor, ceil = problem.bounds()
        low, high, least_stateful = floor, ceil, np.zeros(owners, dtype=np.int64)
        if problem.keep_all_claims:
            alone = claims.where(np.bincount(claims.item, minlength=items)[claims.item] == 1)
            low = np.bincount(alone.owner, minlength=owners)
            high = np.maximum(ceil, np.bincount(claims.owner, minlength=owners))
            least_stateful = np.bincount(alone.owner[problem.is_stateful[alone.item]], minlength=owners)
        item_pool, owner_pool = problem.pools()
        pools = int(owner_pool.max(initial=0)) + 1
        total = np.bincount(item_pool, minlength=pools)
        stateful = np.bincount(item_pool[problem.is_stateful], minlength=pools)
        lows = np.stack([np.maximum(least_stateful, low - (total - stateful)[owner_pool]), low])
        highs = np.stack([np.minimum(high, stateful[owner_pool]), high])
        if pools == 1:
            parts = zip(lows, highs, (int(stateful[0]), items), strict=True)
            middle = np.stack([even_counts(problem.weight, *one) for one in parts])
        else:
            # With pools shares are given, and stateful items are probably spread like all.
            part = np.rint(highs[1] * (stateful / np.maximum(total, 1))[owner_pool]).astype(np.int64)
            middle = np.stack([np.clip(part, lows[0], highs[0]), highs[1]])
        return cls(lows, highs, middle, floor, ceil)
