"""Items that nearly all cost differently in many cells, at places within bounds: cells first, then who of a cell. For large sizes.

The graph of `places.py` has an arc for each cell in which a row costs less than elsewhere; with millions it takes minutes
and gigabytes. Which cell an item goes to is found without it (`transport.py`), as if all that are in their owner's cell
could stay there. That is a lower bound; where no place has more such items than it may hold, it is reached.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.even import even_counts
from task_assignor.engine.items import rank_within
from task_assignor.engine.owners_problem import OwnersProblem
from task_assignor.engine.transport import MOST_PLACES, PlaceGains, cheapest_places
from task_assignor.sdk.arrays import csr_rows, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_ENTRIES: Final = 400_000
"""Pairs of row and cell, of which the row costs less there than elsewhere, in one flow: some five seconds' work."""


def goes_by_cells(problem: OwnersProblem) -> bool:
    """Whether the problem is large, and places of a cell differ in bounds and owned items alone."""
    return (
        len(problem.entry_row) > MOST_ENTRIES
        and len(problem.cell_hub) <= MOST_PLACES
        and problem.ties_stay
        and problem.item_weight is None
        and problem.place_pool is None
        and problem.place_upper is None
        and (problem.place_cost is None or not problem.place_cost.any())
        and not len(problem.exception_row)
        and not problem.cell_hub.any()
        and bool((problem.upper >= problem.lower).all())
        and int(problem.lower.sum()) <= len(problem.item_row) <= int(_upper(problem).sum())
    )


def places_by_cells(problem: OwnersProblem) -> tuple[Int64Array, int, bool]:
    """(N,) place of each item; a cost that no placement is below; whether this one costs that, with the fewest moves."""
    cells, cell = distinct_and_numbers(problem.place_cell)
    row, owner = problem.item_row, problem.item_owner
    low, high = (np.zeros(len(cells), dtype=np.int64) for _ in range(2))
    np.add.at(low, cell, problem.lower)
    np.add.at(high, cell, _upper(problem))
    target = cheapest_places(_gains(problem, cells, cell), low, high)
    is_near = (owner >= 0) & (cell[owner] == target)
    extra = np.where(owner < 0, 0, np.where(is_near, problem.stay_cost[row], problem.move_cost[row]))
    bound = int((problem.cell_costs(row, cells[target]) + extra).sum())
    stays = _staying(problem, cell, target, is_near)
    return _dealt(problem, cell, target, stays), bound, bool((stays == is_near).all())


def _upper(problem: OwnersProblem) -> Int64Array:
    return np.minimum(problem.upper, len(problem.item_row))


def _gains(problem: OwnersProblem, cells: Int64Array, cell: Int64Array) -> PlaceGains:
    """What items gain in cells that are cheaper for them, and in that of their owner. Of equal costs fewer moves are better."""
    items, width = len(problem.item_row), len(cells)
    number = np.full(len(problem.cell_hub), -1, dtype=np.int64)
    number[cells] = np.arange(width)
    # A simple cycle moves at most one item per cell.
    hairs = width + 2
    of_row = offsets_of(problem.entry_row, len(problem.default_cost))
    entry = csr_rows(of_row, problem.item_row)
    item = np.repeat(np.arange(items), np.diff(of_row)[problem.item_row])
    cheaper = hairs * (problem.default_cost[problem.entry_row] - problem.entry_cost)[entry]
    used = number[problem.entry_cell[entry]] >= 0
    owned = np.flatnonzero(problem.item_owner >= 0)
    keys = np.append(
        (item * width + number[problem.entry_cell[entry]])[used], owned * width + cell[problem.item_owner[owned]]
    )
    staying = hairs * (problem.move_cost - problem.stay_cost)[problem.item_row[owned]] + 1
    pairs, place = distinct_and_numbers(keys)
    gains = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(gains, place, np.append(cheaper[used], staying))
    of_item, to = np.divmod(pairs[gains > 0], width)
    return PlaceGains(items, of_item, to, gains[gains > 0])


def _staying(problem: OwnersProblem, cell: Int64Array, target: Int64Array, is_near: BoolArray) -> BoolArray:
    """(N,) which items stay with their owner: of those in its cell as many as fit, and leave others as many as they must get."""
    near = np.flatnonzero(is_near)
    price = (problem.move_cost - problem.stay_cost)[problem.item_row[near]]
    near = near[order_by(problem.item_owner[near], -price)]
    owner = problem.item_owner[near]
    rank = rank_within(owner)
    fits = rank < problem.upper[owner]
    near, owner, rank = near[fits], owner[fits], rank[fits]
    missing = np.maximum(problem.lower - np.bincount(owner, minlength=len(cell)), 0)
    short = np.bincount(cell, missing, len(cell)).astype(np.int64)
    short -= np.bincount(target, minlength=len(cell)) - np.bincount(cell[owner], minlength=len(cell))
    may_leave = np.flatnonzero(rank >= problem.lower[owner])
    price = (problem.move_cost - problem.stay_cost)[problem.item_row[near[may_leave]]]
    may_leave = may_leave[order_by(cell[owner[may_leave]], price)]
    leaving = may_leave[rank_within(cell[owner[may_leave]]) < short[cell[owner[may_leave]]]]
    stays = np.zeros(len(target), dtype=np.bool_)
    stays[near] = True
    stays[near[leaving]] = False
    return stays


def _dealt(problem: OwnersProblem, cell: Int64Array, target: Int64Array, stays: BoolArray) -> Int64Array:
    """(N,) places: who stays stays, the others go to the places of their cells, evenly."""
    staying = np.bincount(problem.item_owner[stays], minlength=len(cell))
    upper, arriving = _upper(problem), np.zeros(len(cell), dtype=np.int64)
    of_cell = np.bincount(target, minlength=len(cell))
    by_cell = order_by(cell)
    for members in np.split(by_cell, np.flatnonzero(np.diff(cell[by_cell])) + 1):
        least = np.maximum(staying[members], problem.lower[members])
        counts = even_counts(np.ones_like(members), least, upper[members], int(of_cell[cell[members[0]]]))
        arriving[members] = counts - staying[members]
    place = problem.item_owner.copy()
    movers = np.flatnonzero(~stays)
    place[movers[order_by(target[movers])]] = np.repeat(by_cell, arriving[by_cell])
    return place
