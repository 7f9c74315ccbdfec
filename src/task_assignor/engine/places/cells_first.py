"""Items that nearly all cost differently in many cells (racks): their cells first, then who of a cell. The path for large sizes.

A solver's graph has an arc for each cell in which a row costs less than elsewhere; with millions it takes minutes. Which
cell an item goes to is found without a graph (`transport.py`), as if every item that is in the cell of its owner could stay
there. Each cell is a problem of its own then, in which little is left to decide.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.items import NOBODY, sums
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.engine.places.transport import MOST_PLACES, cheapest_of_few_places
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import distinct_and_numbers

MOST_ENTRIES: Final = 400_000
"""Pairs of row and cell, of which the row costs less there than elsewhere, in one flow: some five seconds' work."""


def differ_too_much(costs: RowCosts) -> bool:
    """Whether so many items cost differently in so few cells."""
    return len(costs.entry_row) > MOST_ENTRIES and costs.cells <= MOST_PLACES


def cells_come_first(problem: PlacesProblem) -> bool:
    """Whether the problem is large and plain."""
    return differ_too_much(problem.costs) and problem.ties_stay and problem.is_plain


def split_by_cell(problem: PlacesProblem) -> tuple[PlacesProblem, int] | None:
    """The problem that is left when every item has a cell, and a cost that no placement is below; None: a graph takes less time.

    Items whose owner is in the cell save what moving costs if they stay there; all other costs are settled. Where all of
    them can stay, that cost is reached, with the fewest moves.
    """
    cells, cell = distinct_and_numbers(problem.place_cell)
    row, owner, upper = problem.costs.row, problem.item_place, np.minimum(problem.upper, len(problem.costs.row))
    by_cell = attrs.evolve(
        problem,
        item_place=np.where(owner < 0, NOBODY, cell[owner]),
        place_cell=cells,
        place_cost=np.zeros_like(cells),
        lower=sums(cell, problem.lower, len(cells)),
        upper=sums(cell, upper, len(cells)),
    )
    target = cheapest_of_few_places(by_cell)
    if target is None:
        return None
    # In Python's integers: of millions of items that cost much the sum is beyond 64 bits.
    bound = sum(by_cell.item_costs(target).tolist())
    is_near = by_cell.item_place == target
    saved = np.where(is_near, (problem.move_cost - problem.stay_cost)[row], 0)
    pairs, pair = distinct_and_numbers(saved * len(cells) + target)
    left = PlacesProblem(
        costs=RowCosts.nothing(pair, len(pairs), len(cells)),
        item_place=np.where(is_near, owner, NOBODY),
        row_hub=pairs % len(cells),
        move_cost=pairs // len(cells),
        cell_hub=np.arange(len(cells)),
        place_cell=cell,
        lower=problem.lower,
        upper=problem.upper,
    )
    return left, bound
