"""Between which loads an owner may be, and where it probably ends."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import Pairs, sums
from task_assignor.engine.problem import Problem
from task_assignor.sdk.columns import Int64Array


@attrs.frozen(eq=False)
class Range:
    """Least and most, and what is probably nearly the best: (C,) each."""

    low: Int64Array
    high: Int64Array
    middle: Int64Array


@attrs.frozen(eq=False)
class Bounds:
    """Least and most load of each owner.

    Args:
        low: (C,) least items.
        high: (C,) most items.
        stateful: by owner, of stateful items alone.
        borne: by bearer, of the items of all its owners.
    """

    low: Int64Array
    high: Int64Array
    stateful: Range
    borne: Range

    @classmethod
    def of(cls, problem: Problem, claims: Pairs) -> Bounds:
        """The bounds of a problem with the claims that count."""
        owners, items = len(problem.weight), len(problem.is_stateful)
        (low, high), least_stateful = problem.bounds(), np.zeros(owners, dtype=np.int64)
        if problem.keep_all_claims:
            alone = claims.where(np.bincount(claims.item, minlength=items)[claims.item] == 1)
            low = np.bincount(alone.owner, minlength=owners)
            high = np.maximum(high, np.bincount(claims.owner, minlength=owners))
            least_stateful = np.bincount(alone.owner[problem.is_stateful[alone.item]], minlength=owners)
        item_pool, owner_pool = problem.pools()
        pools = int(owner_pool.max(initial=0)) + 1
        total = np.bincount(item_pool, minlength=pools)
        stateful = np.bincount(item_pool[problem.is_stateful], minlength=pools)
        least = np.maximum(least_stateful, low - (total - stateful)[owner_pool])
        most = np.minimum(high, stateful[owner_pool])
        if pools == 1:
            middle = even_counts(problem.weight, least, most, int(stateful[0]))
        else:
            # With pools stateful items are probably spread like all.
            part = np.rint(high * (stateful / np.maximum(total, 1))[owner_pool]).astype(np.int64)
            middle = np.clip(part, least, most)
        return cls(low, high, Range(least, most, middle), _borne(problem, low, high))


def _borne(problem: Problem, low: Int64Array, high: Int64Array) -> Range:
    """The loads of bearers; with pools but without bearers shares are fixed."""
    items, bearers = len(problem.is_stateful), problem.bearers
    if bearers is None:
        pools = problem.item_pool is not None
        return Range(low, high, high if pools else even_counts(problem.weight, low, high, items))
    least, most = (sums(bearers.of, part, len(bearers.weight)) for part in (low, high))
    fair = (bearers.load.sum() + bearers.size * items) * (bearers.weight / bearers.weight.sum())
    middle = np.rint((fair - bearers.load) / bearers.size).astype(np.int64)
    return Range(least, most, np.clip(middle, least, most))
