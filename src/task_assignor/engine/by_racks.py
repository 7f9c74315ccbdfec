"""Items that nearly all cost differently on many racks: their racks first, then who of a rack. The path for large sizes.

A solver's graph has an arc for each rack on which a row costs less than elsewhere; with millions it takes minutes. Which
rack an item goes to is found without a graph (`transport.py`), for given numbers of items; within a rack only claims and
state count, so each rack is a pool of its own.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import Pairs
from task_assignor.engine.problem import Problem, RackCosts
from task_assignor.engine.transport import PlaceGains, cheapest_places
from task_assignor.sdk.arrays import csr_rows, distinct, distinct_and_numbers, offsets_of
from task_assignor.sdk.columns import Int64Array

MOST_ENTRIES: Final = 400_000
"""Pairs of row and rack, of which the row costs less there than elsewhere, in one flow: some five seconds' work."""


def split_by_rack(problem: Problem, racks: RackCosts, claims: Pairs) -> Problem:
    """The problem that is left when every item has a rack: each rack is a pool, each owner has the most even share.

    The racks are the cheapest for these shares, if a claim is kept on every owner of the claimant's rack.
    """
    low, high = problem.bounds()
    share = even_counts(problem.weight, low, high, len(problem.is_stateful))
    used, pool = distinct_and_numbers(racks.rack)
    number = np.bincount(pool, share).astype(np.int64)
    rack = cheapest_places(_gains(racks, claims, used, len(problem.is_stateful)), number, number)

    def within(pairs: Pairs) -> Pairs:
        return pairs.where(rack[pairs.item] == pool[pairs.owner])

    return attrs.evolve(
        problem,
        claims=within(claims),
        state=within(problem.state),
        share=share,
        racks=None,
        item_pool=rack,
        owner_pool=pool,
    )


def _gains(racks: RackCosts, claims: Pairs, used: Int64Array, items: int) -> PlaceGains:
    """What items gain on the racks that are used: where they cost less, and where they need not move."""
    place = np.full(racks.racks, -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    of_row = offsets_of(racks.entry_row, len(racks.default_cost))
    entry = csr_rows(of_row, racks.row)
    entries = np.repeat(np.arange(items), np.diff(of_row)[racks.row])
    cheaper = (racks.default_cost[racks.entry_row] - racks.entry_cost)[entry]
    # One claimant in the rack is enough.
    claimed = distinct(claims.item * len(used) + place[racks.rack[claims.owner]])
    known = place[racks.entry_rack[entry]]
    keys = np.concatenate([(entries * len(used) + known)[known >= 0], claimed])
    gain = np.concatenate([cheaper[known >= 0], np.full(len(claimed), racks.move)])
    pairs, number = distinct_and_numbers(keys)
    gains = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(gains, number, gain)
    item, rack = np.divmod(pairs[gains > 0], len(used))
    return PlaceGains(items, item, rack, gains[gains > 0])
