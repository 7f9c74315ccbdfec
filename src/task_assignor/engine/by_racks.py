"""Items that nearly all cost differently on many racks: their racks first, then who of a rack. The path for large sizes.

A solver's graph has an arc for each rack on which a row costs less than elsewhere; with millions it takes minutes. Which
rack an item goes to is found without a graph (`transport.py`), for given numbers of items; within a rack only claims and
state count, so each rack is a pool of its own.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import Pairs
from task_assignor.engine.problem import Problem, RackCosts
from task_assignor.engine.transport import cheapest_places
from task_assignor.sdk.arrays import csr_rows, distinct_and_numbers, offsets_of, order_by, values_of
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
    costs = _Costs.of(racks, claims, used, len(problem.is_stateful))
    number = np.bincount(pool, share).astype(np.int64)
    rack = cheapest_places(costs, int(racks.default_cost.max(initial=0)) + racks.move, number)

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


@attrs.frozen(eq=False)
class _Costs:
    """What items cost on racks; called as `transport.Costs`.

    Args:
        default: (N,) cost of each item on racks without an entry.
        key: (E,) item x racks + rack, ascending.
        cost: (E,) cost there.
        offsets: (N + 1,) where the entries of each item begin.
        racks: number of racks.
    """

    default: Int64Array
    key: Int64Array
    cost: Int64Array
    offsets: Int64Array
    racks: int

    @classmethod
    def of(cls, racks: RackCosts, claims: Pairs, used: Int64Array, items: int) -> _Costs:
        """The costs on the racks that are used; to leave the racks of all claimants costs a move."""
        place = np.full(racks.racks, -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        of_row = offsets_of(racks.entry_row, len(racks.default_cost))
        entry = csr_rows(of_row, racks.row)
        item = np.concatenate([np.repeat(np.arange(items), np.diff(of_row)[racks.row]), claims.item])
        rack = place[np.concatenate([racks.entry_rack[entry], racks.rack[claims.owner]])]
        key = item * len(used) + rack
        is_claim = np.arange(len(item)) >= len(entry)
        order = order_by(key)
        order = order[rack[order] >= 0]
        known, row = distinct_and_numbers(key[order])
        # A rack with an entry and a claim has the entry's cost, without the move.
        default = racks.default_cost[racks.row]
        cost = default[known // len(used)]
        from_entry = order[~is_claim[order]]
        cost[row[~is_claim[order]]] = racks.entry_cost[entry[from_entry]]
        stays = np.zeros(len(known), dtype=np.bool_)
        stays[row[is_claim[order]]] = True
        move = np.zeros(items, dtype=np.int64)
        move[claims.item] = racks.move
        cost += np.where(stays, 0, move[known // len(used)])
        return cls(default + move, known, cost, offsets_of(known // len(used), items), len(used))

    def __call__(self, items: Int64Array, places: Int64Array | slice) -> npt.NDArray[np.integer]:
        """(items, places) costs."""
        if not isinstance(places, slice):
            wanted = (items[:, None] * self.racks + places).reshape(-1)
            default = np.repeat(self.default[items], len(places))
            return values_of(self.key, self.cost, wanted, default).reshape(len(items), len(places))
        found = np.repeat(self.default[items][:, None], self.racks, axis=1)
        entry = csr_rows(self.offsets, items)
        row = np.repeat(np.arange(len(items)), self.offsets[items + 1] - self.offsets[items])
        found[row, self.key[entry] % self.racks] = self.cost[entry]
        return found
