"""Items that nearly all cost differently on many racks: their racks first, then who of a rack. The path for large sizes."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.actives.problem import Problem, RackCosts
from task_assignor.engine.even import even_counts
from task_assignor.engine.items import Pairs
from task_assignor.engine.places.transport import PlaceGains, cheapest_places
from task_assignor.sdk.arrays import distinct, distinct_and_numbers


def split_by_rack(problem: Problem, racks: RackCosts) -> Problem | None:
    """The problem that is left when every item has a rack: each rack is a pool, each owner has the most even share.

    None: to look at all racks at once takes less time.
    The racks are the cheapest for these shares, if a claim is kept on every owner of the claimant's rack.
    """
    claims, share = problem.claims, even_counts(problem.weight, *problem.share, len(problem.is_stateful))
    used, pool = distinct_and_numbers(racks.rack)
    number = np.bincount(pool, share).astype(np.int64)
    # One claimant in the rack is enough.
    item, place = np.divmod(distinct(claims.item * len(used) + pool[claims.owner]), len(used))
    kept = item, place, np.full(len(item), racks.move)
    rack = cheapest_places(PlaceGains.of(racks.costs, used, kept), number, number)
    if rack is None:
        return None

    def within(pairs: Pairs) -> Pairs:
        return pairs.where(rack[pairs.item] == pool[pairs.owner])

    return attrs.evolve(
        problem,
        claims=within(claims),
        state=within(problem.state),
        share=(share, share),
        racks=None,
        item_pool=rack,
        owner_pool=pool,
    )
