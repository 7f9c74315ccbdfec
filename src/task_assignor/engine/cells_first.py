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
from task_assignor.engine.items import NOBODY, Pairs, sums
from task_assignor.engine.places_problem import PlacesProblem
from task_assignor.engine.problem import Problem, RackCosts
from task_assignor.engine.row_costs import RowCosts
from task_assignor.engine.transport import MOST_PLACES, PlaceGains, cheapest_of_few_places, cheapest_places
from task_assignor.sdk.arrays import distinct, distinct_and_numbers

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
    """Whether the problem is large and plain."""
    is_large = len(problem.costs.entry_row) > MOST_ENTRIES and len(problem.cell_hub) <= MOST_PLACES
    return is_large and problem.ties_stay and problem.is_plain


def split_by_cell(problem: PlacesProblem) -> tuple[PlacesProblem, int]:
    """The problem that is left when every item has a cell, and a cost that no placement is below.

    Items whose owner is in the cell save what moving costs if they stay there; all other costs are settled. Where all of
    them can stay, that cost is reached, with the fewest moves.
    """
    cells, cell = distinct_and_numbers(problem.place_cell)
    row, owner, upper = problem.costs.row, problem.item_owner, np.minimum(problem.upper, len(problem.costs.row))
    by_cell = attrs.evolve(
        problem,
        item_owner=np.where(owner < 0, NOBODY, cell[owner]),
        place_cell=cells,
        place_cost=np.zeros_like(cells),
        lower=sums(cell, problem.lower, len(cells)),
        upper=sums(cell, upper, len(cells)),
    )
    target = cheapest_of_few_places(by_cell)
    bound = int(by_cell.item_costs(target).sum())
    is_near = by_cell.item_owner == target
    saved = np.where(is_near, (problem.move_cost - problem.stay_cost)[row], 0)
    kinds, kind = distinct_and_numbers(saved * len(cells) + target)
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
