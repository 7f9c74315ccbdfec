"""Items that nearly all cost differently in many cells (racks): their cells first, then who of a cell. The path for large sizes.

A solver's graph has an arc for each cell in which a row costs less than elsewhere; with millions it takes minutes. Which
cell an item goes to is found without a graph (`transport.py`), as if every item that is in the cell of its owner (or of a
claimant) could stay there. Each cell is a problem of its own then, in which little is left to decide.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import NOBODY, Pairs
from task_assignor.engine.places_problem import PlacesProblem
from task_assignor.engine.problem import Problem, RackCosts
from task_assignor.engine.row_costs import RowCosts
from task_assignor.engine.transport import MOST_PLACES, PlaceGains, cheapest_places
from task_assignor.sdk.arrays import distinct, distinct_and_numbers
from task_assignor.sdk.columns import Int64Array

MOST_ENTRIES: Final = 400_000
"""Pairs of row and cell, of which the row costs less there than elsewhere, in one flow: some five seconds' work."""


def racks_come_first(racks: RackCosts) -> bool:
    """Whether so many items cost differently on so few racks."""
    return len(racks.costs.entry_row) > MOST_ENTRIES and racks.costs.cells <= MOST_PLACES


def split_by_rack(problem: Problem, racks: RackCosts, claims: Pairs) -> Problem:
    """The problem that is left when every item has a rack: each rack is a pool, each owner has the most even share.

    The racks are the cheapest for these shares, if a claim is kept on every owner of the claimant's rack.
    """
    low, high = problem.bounds()
    share = even_counts(problem.weight, low, high, len(problem.is_stateful))
    used, pool = distinct_and_numbers(racks.rack)
    number = np.bincount(pool, share).astype(np.int64)
    # One claimant in the rack is enough.
    item, place = np.divmod(distinct(claims.item * len(used) + pool[claims.owner]), len(used))
    kept = item, place, np.full(len(item), racks.move)
    rack = cheapest_places(PlaceGains.of(racks.costs, used, kept), number, number)

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


def cells_come_first(problem: PlacesProblem) -> bool:
    """Whether the problem is large, and places of a cell differ in bounds and owned items alone."""
    return (
        len(problem.costs.entry_row) > MOST_ENTRIES
        and len(problem.cell_hub) <= MOST_PLACES
        and problem.ties_stay
        and problem.item_weight is None
        and problem.place_pool is None
        and problem.place_upper is None
        and not problem.place_cost.any()
        and not len(problem.exception_row)
        and not problem.cell_hub.any()
        and bool((problem.upper >= problem.lower).all())
        and int(problem.lower.sum()) <= len(problem.costs.row) <= int(_upper(problem).sum())
    )


def split_by_cell(problem: PlacesProblem) -> tuple[PlacesProblem, int]:
    """The problem that is left when every item has a cell, and a cost that no placement is below.

    Items whose owner is in the cell save what moving costs if they stay there; all other costs are settled. Where all of
    them can stay, that cost is reached, with the fewest moves.
    """
    cells, cell = distinct_and_numbers(problem.place_cell)
    row, owner, saved = problem.costs.row, problem.item_owner, problem.move_cost - problem.stay_cost
    low, high = (np.bincount(cell, part).astype(np.int64) for part in (problem.lower, _upper(problem)))
    # Of equal costs fewer moves are better. A simple cycle moves at most one item per cell.
    hairs = len(cells) + 2
    owned = np.flatnonzero(owner >= 0)
    stay = owned, cell[owner[owned]], hairs * saved[row[owned]] + 1
    target = cheapest_places(PlaceGains.of(problem.costs.times(hairs), cells, stay), low, high)
    is_near = (owner >= 0) & (cell[owner] == target)
    extra = np.where(owner < 0, 0, np.where(is_near, problem.stay_cost[row], problem.move_cost[row]))
    bound = int((problem.costs.at(row, cells[target]) + extra).sum())
    kinds, kind = distinct_and_numbers(np.where(is_near, saved[row], 0) * len(cells) + target)
    left = PlacesProblem(
        costs=RowCosts.nothing(kind, len(kinds), len(cells)),
        item_owner=np.where(is_near, owner, NOBODY),
        row_hub=kinds % len(cells),
        move_cost=kinds // len(cells),
        cell_hub=np.arange(len(cells)),
        place_cell=cell,
        lower=problem.lower,
        upper=problem.upper,
    )
    return left, bound


def _upper(problem: PlacesProblem) -> Int64Array:
    return np.minimum(problem.upper, len(problem.costs.row))
