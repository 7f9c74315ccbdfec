"""Items, places, and what each item costs at each place: the question that `engine/places/min_cost.py` answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np

from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import values_of
from task_assignor.sdk.columns import Int64Array

FORBIDDEN: Final = -1


def _zeros(count: Callable[[Any], int]) -> Any:
    """A default: so many zeros."""
    return attrs.Factory(lambda self: np.zeros(count(self), dtype=np.int64), takes_self=True)


@attrs.frozen(eq=False, kw_only=True)
class PlacesProblem:
    """Items, places, and what each item costs at each place. All costs are whole numbers from 0.

    The goals, in order: least cost; fewest items away from their place (or most, see `ties_stay`).

    Args:
        costs: what items cost in cells, by their rows (K).
        item_place: (N,) place that has the item now; -1: none.
        item_weight: (N,) what the item counts for against `lower` and `upper`, equal within a row; None: 1. With weights
            costs are per unit of weight, and what is solved is a relaxation in which items can be split.
        row_hub: (K,) the row's items may go to cells of this hub; by default there is one hub.
        move_cost: (K,) on top, for an item that leaves its place.
        stay_cost: (K,) on top, for an item that stays; at most `move_cost`; by default 0.
        cell_hub: (A,) hub of each cell.
        place_cell: (J,) cell of each place.
        place_cost: (J,) on top, for every item at the place; by default 0.
        place_upper: (J,) most items at a place, with `place_owner`; None: only the owners limit.
        place_owner: (J,) owner of each place; None: each place is an owner of its own.
        lower: (Q,) least number of items of an owner.
        upper: (Q,) most items of an owner.
        ties_stay: the second goal is as few items away from their place as can be; else as many.
        exception_row: (X,) row, with `exception_place` strictly ascending.
        exception_place: (X,) place.
        exception_cost: (X,) cost of the row's items at that place, instead of the cell's and the place's; -1: not there.
    """

    costs: RowCosts
    item_place: Int64Array
    item_weight: Int64Array | None = None
    row_hub: Int64Array = _zeros(lambda self: len(self.costs))
    move_cost: Int64Array
    stay_cost: Int64Array = _zeros(lambda self: len(self.costs))
    cell_hub: Int64Array = _zeros(lambda self: self.costs.cells)
    place_cell: Int64Array
    place_cost: Int64Array = _zeros(lambda self: len(self.place_cell))
    place_upper: Int64Array | None = None
    place_owner: Int64Array | None = None
    lower: Int64Array
    upper: Int64Array
    ties_stay: bool = True
    exception_row: Int64Array = _zeros(lambda _self: 0)
    exception_place: Int64Array = _zeros(lambda _self: 0)
    exception_cost: Int64Array = _zeros(lambda _self: 0)

    @property
    def is_plain(self) -> bool:
        """Whether places of a cell differ in bounds and owned items alone, and the items fit within the bounds."""
        return (
            self.item_weight is None
            and self.place_owner is None
            and not self.place_cost.any()
            and not len(self.exception_row)
            and not self.cell_hub.any()
            and bool((self.upper >= self.lower).all())
            and int(self.lower.sum()) <= len(self.costs.row) <= int(np.minimum(self.upper, len(self.costs.row)).sum())
        )

    def place_costs(self, rows: Int64Array, places: Int64Array) -> Int64Array:
        """Cost of items of the rows at the places, without staying or moving; -1: not allowed there."""
        costs = self.costs.at(rows, self.place_cell[places]) + self.place_cost[places]
        wrong_hub = self.cell_hub[self.place_cell[places]] != self.row_hub[rows]
        costs = np.where(wrong_hub, FORBIDDEN, costs)
        count = len(self.place_cell)
        keys = self.exception_row * count + self.exception_place
        return values_of(keys, self.exception_cost, rows * count + places, costs)

    def item_costs(self, places: Int64Array) -> Int64Array:
        """(N,) cost of each item at its place, with staying and moving; -1: not allowed there."""
        return self.costs_of(np.arange(len(self.costs.row)), places)

    def costs_of(self, items: Int64Array, places: Int64Array) -> Int64Array:
        """The same for some items."""
        rows, now = self.costs.row[items], self.item_place[items]
        costs = self.place_costs(rows, places)
        extra = np.where(now == places, self.stay_cost[rows], np.where(now >= 0, self.move_cost[rows], 0))
        return np.where(costs < 0, FORBIDDEN, costs + extra)
