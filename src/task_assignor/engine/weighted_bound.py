"""The lower bound where items have weights: a flow in which items can be split, priced per unit of weight."""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import CostRangeError
from task_assignor.engine.owners_problem import OwnersProblem
from task_assignor.engine.places import min_cost_places
from task_assignor.sdk.columns import Int64Array

MOST_SCALE: Final = 10**6
"""Costs per unit of weight are kept to this precision at most; the bound loses the rest."""
MOST_PLACES: Final = 1_000_000
"""Up to so many pairs of owner and weight each pair is a place of its own, with its own cost per unit."""


def relaxed(problem: OwnersProblem, weight: Int64Array) -> tuple[Int64Array, int]:
    """Place items that can be split.

    Args:
        problem: true costs of whole items, and capacities in units of weight.
        weight: (N,) weight of each item, at least 1.

    Returns:
        (owner of each item, rounded, -1: nowhere; lower bound of the cost of whole items)

    Raises:
        InfeasibleFlowError: even split items do not fit.
        CostRangeError: the costs are too large for exact arithmetic.
    """
    distinct, of_item = np.unique(weight, return_inverse=True)
    of_item = of_item.reshape(-1)
    scale = min(math.lcm(*distinct.tolist()) if len(distinct) < 1000 else MOST_SCALE, MOST_SCALE)
    assert problem.place_cost is not None
    has_owner_costs = bool(problem.place_cost.any())
    apart = has_owner_costs and len(distinct) * len(problem.upper) <= MOST_PLACES
    while True:
        per_unit = _Rows.of(problem, distinct, of_item, scale)
        try:
            found = min_cost_places(per_unit.by_weight() if apart else per_unit.together())
            break
        except CostRangeError:
            if scale == 1:
                raise
            scale = max(scale // 10, 1)
    place = np.where(found.place < 0, found.place, found.place // len(distinct)) if apart else found.place
    # Costs were rounded down, and whole items cost a whole number.
    return place, -(-found.cost // scale)


@attrs.frozen(eq=False)
class _Rows:
    """A row for every class and weight, with costs per unit of weight, times `scale`, rounded down."""

    problem: OwnersProblem
    weights: Int64Array
    of_item: Int64Array
    scale: int
    row: Int64Array
    base: Int64Array
    of_row: Int64Array

    @classmethod
    def of(cls, problem: OwnersProblem, weights: Int64Array, of_item: Int64Array, scale: int) -> _Rows:
        pair, row = np.unique(problem.item_row * len(weights) + of_item, return_inverse=True)
        return cls(problem, weights, of_item, scale, row.reshape(-1), pair // len(weights), pair % len(weights))

    def _scaled(self, costs: Int64Array, units: Int64Array) -> Int64Array:
        """The costs x scale / units, rounded down, without overflow."""
        whole, rest = costs // units, costs % units
        return whole * self.scale + rest * self.scale // units

    def together(self) -> OwnersProblem:
        """All weights at the same places. An owner's own cost is that per unit of the heaviest, so the bound stays one."""
        problem, units = self.problem, self.weights[self.of_row]
        size = np.bincount(problem.entry_row, minlength=len(problem.default_cost))
        entry_row = np.repeat(np.arange(len(self.base)), size[self.base])
        first = (np.cumsum(size) - size)[self.base]
        new_first = np.cumsum(size[self.base]) - size[self.base]
        entry = np.arange(len(entry_row)) + (first - new_first)[entry_row]
        exceptions = self._exceptions()
        assert problem.place_cost is not None
        return attrs.evolve(
            problem,
            item_row=self.row,
            item_weight=self.weights[self.of_item],
            default_cost=self._scaled(problem.default_cost[self.base], units),
            row_hub=problem.row_hub[self.base],
            entry_row=entry_row,
            entry_cell=problem.entry_cell[entry],
            entry_cost=self._scaled(problem.entry_cost[entry], units[entry_row]),
            move_cost=self._scaled(problem.move_cost[self.base], units),
            stay_cost=self._scaled(problem.stay_cost[self.base], units),
            place_cost=self._scaled(problem.place_cost, self.weights[-1:]),
            exception_row=exceptions[:, 0],
            exception_place=exceptions[:, 1],
            exception_cost=exceptions[:, 2],
        )

    def by_weight(self) -> OwnersProblem:
        """A place for every owner and weight, so that an owner's own cost is exact per unit."""
        plain, kinds = self.together(), len(self.weights)
        owners = np.arange(len(plain.upper))
        assert self.problem.place_cost is not None
        return attrs.evolve(
            plain,
            item_owner=np.where(plain.item_owner < 0, plain.item_owner, plain.item_owner * kinds + self.of_item),
            row_hub=self.of_row,
            entry_cell=plain.entry_cell * kinds + self.of_row[plain.entry_row],
            cell_hub=np.tile(np.arange(kinds), len(plain.cell_hub)),
            place_cell=(plain.place_cell[:, None] * kinds + np.arange(kinds)).reshape(-1),
            place_cost=self._scaled(np.repeat(self.problem.place_cost, kinds), np.tile(self.weights, len(owners))),
            place_upper=np.repeat(plain.upper, kinds),
            place_pool=np.repeat(owners, kinds),
            exception_place=plain.exception_place * kinds + self.of_row[plain.exception_row],
        )

    def _exceptions(self) -> Int64Array:
        """(X, 3) row, place, cost per unit: every row that a class became has the class's exceptions."""
        of_class: dict[int, list[tuple[int, int]]] = {}
        columns = (self.problem.exception_row, self.problem.exception_place, self.problem.exception_cost)
        for row, place, cost in zip(*(column.tolist() for column in columns), strict=True):
            of_class.setdefault(row, []).append((place, cost))
        found = [
            (number, place, cost)
            for number, row in enumerate(self.base.tolist())
            for place, cost in of_class.get(row, ())
        ]
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        allowed = table[:, 2] >= 0
        table[allowed, 2] = self._scaled(table[allowed, 2], self.weights[self.of_row[table[allowed, 0]]])
        return table
