r"""The flow model: which place each item goes to at least cost, with as few moves as possible. Where costs come from is elsewhere.

An item is a task (or one copy of it), a place is where it can be: a client, or a rack, or the share of a sub-topology on
a client. Items of one row cost the same everywhere; items of one row that are at one place are one node of the graph:

    class (row, place) -> row -> cell -> place -> owner
        \-> place                \-> hub -> cell

A cell is a rack (or the share of a sub-topology in a rack): only cells cheaper for a row than its dearest get arcs of
their own, the rest goes through one hub.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from task_assignor.engine.along import along
from task_assignor.engine.flow import Arcs, FlowError, Network, exact_dot, solve
from task_assignor.engine.items import NOBODY, sums
from task_assignor.engine.places.cells_first import cells_come_first, split_by_cell
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.sdk.arrays import are_in, csr_pairs, distinct, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import Int64Array

MOST_ARCS: Final = 40_000_000
"""A larger graph is an error: it would take minutes and gigabytes."""


@attrs.frozen(eq=False)
class Placed:
    """Where the items go.

    Args:
        place: (N,) place of each item. With weights a rounding: limits may be exceeded by parts of items, and an item may
            have none (-1).
        cost: no placement costs less; with weights that of the relaxation.
        is_best: whether the items cost that here, with the fewest moves.
    """

    place: Int64Array
    cost: int
    is_best: bool = True


def min_cost_places(problem: PlacesProblem) -> Placed:
    """The cheapest places, with the fewest moves among the cheapest. Ties go by item number, then place number.

    Where very many items cost differently in many cells, cells are chosen first (`cells_first.py`); that is nearly
    always as good, and `Placed.is_best` says whether it is.

    Raises:
        InfeasibleFlowError: the items do not fit.
        FlowError: more arcs than allowed, or costs too large for exact arithmetic.
    """
    split = split_by_cell(problem) if cells_come_first(problem) else None
    if split is not None:
        left, bound = split
        place = min_cost_places(left).place
        return Placed(place, bound, is_best=bool((place == left.item_place)[left.item_place >= 0].all()))
    graph = _Graph(problem)
    flows = solve(graph.network())
    place = graph.places(flows)
    cost = exact_dot(flows, graph.arcs.columns()[3][0])
    if problem.item_weight is None:
        costs = problem.item_costs(place)
        if (costs < 0).any() or cost != exact_dot(costs, np.ones_like(costs)):
            raise AssertionError("The flow and the places made of it differ in cost: this is a bug.")
    return Placed(place, cost)


class _Graph:
    """The compressed graph of a problem. Nodes: classes, rows, hubs, cells, places, owners, sink."""

    def __init__(self, problem: PlacesProblem) -> None:
        self.problem = problem
        rows, places = len(problem.costs), len(problem.place_cell)
        key = problem.costs.row * (places + 1) + problem.item_place + 1
        keys, self.item_class = distinct_and_numbers(key)
        weight = np.ones(len(key), dtype=np.int64) if problem.item_weight is None else problem.item_weight
        self.weight = weight
        counts = sums(self.item_class, weight, len(keys))
        class_row, class_place = keys // (places + 1), keys % (places + 1) - 1
        classes_of_row = np.bincount(class_row, minlength=rows)
        row_supply = sums(problem.costs.row, weight, rows)
        # A row with one class needs no node of its own; items that nobody has start at their row.
        alone = classes_of_row[class_row] == 1
        at_row = alone | (class_place < 0)
        own_node = np.flatnonzero(~at_row)
        self.node_of_class = node_of_class = class_row.copy()
        node_of_class[own_node] = rows + np.arange(len(own_node))
        self.first_class, self.first_hub = rows, rows + len(own_node)
        self.first_cell = self.first_hub + (int(problem.cell_hub.max(initial=-1)) + 1)
        self.first_place = self.first_cell + len(problem.cell_hub)
        self.first_owner = self.first_place + (places if problem.place_owner is not None else 0)
        self.sink = self.first_owner + len(problem.lower)
        self.supplies = np.zeros(self.sink + 1, dtype=np.int64)
        np.add.at(self.supplies, node_of_class, counts)
        self.supplies[self.first_owner : self.sink] = -problem.lower
        self.supplies[self.sink] = -(int(weight.sum()) - int(problem.lower.sum()))

        # On the arcs out of a row: what all its items pay there because they leave the one place where they are.
        moving = np.zeros(rows, dtype=np.int64)
        only = class_row[alone & (class_place >= 0)]
        moving[only] = 1

        # Goals: cost, moves.
        self.arcs = Arcs(goals=2)
        owned = class_place >= 0
        stay_cost = problem.place_costs(class_row, np.maximum(class_place, 0))
        stays = np.flatnonzero(owned & (stay_cost >= 0))
        self._add(
            node_of_class[stays],
            self.first_place + class_place[stays],
            counts[stays],
            stay_cost[stays] + problem.stay_cost[class_row[stays]],
            int(not problem.ties_stay),
        )
        self._add(
            node_of_class[own_node],
            class_row[own_node],
            counts[own_node],
            problem.move_cost[class_row[own_node]],
            int(problem.ties_stay),
        )
        self._add_rows(np.flatnonzero(row_supply), row_supply, moving)
        self._add_places()
        # A simple cycle changes the number of moves by at most one per class on it, and enters each place at most once.
        self.most_moves = min(len(keys), 2 * places)

    def _add(self, tails: Any, heads: Any, capacities: Any, costs: Any, moves: Any = 0) -> None:
        self.arcs.add(tails, heads, capacities, costs, moves)
        if len(self.arcs) > MOST_ARCS:
            raise FlowError(
                f"The flow model needs more than {MOST_ARCS} arcs. Maybe use fewer classes of tasks, or "
                "fewer exceptions for pairs of class and client."
            )

    def _add_rows(self, used: Int64Array, supply: Int64Array, moving: Int64Array) -> None:
        """Arcs from rows to cells, to the hub, and to single places."""
        problem, costs = self.problem, self.problem.costs
        move, tie = moving * problem.move_cost, moving * problem.ties_stay
        split, whole_row, whole_cell, direct_row, direct_place, direct_cost = _exceptions(problem, used)
        # Cells of a row: entries cheaper than its dearest cell; a row that has an entry for every cell needs no hub arc.
        cells_of_hub = np.bincount(problem.cell_hub, minlength=self.first_cell - self.first_hub)
        dearest = costs.default.copy()
        has_all = np.bincount(costs.entry_row, minlength=len(dearest)) == cells_of_hub[problem.row_hub]
        if has_all.any():
            highest = np.zeros_like(dearest)
            np.maximum.at(highest, costs.entry_row, costs.entry_cost)
            dearest[has_all] = highest[has_all]
        chosen = np.flatnonzero(
            (supply[costs.entry_row] > 0)
            & (costs.entry_cost < dearest[costs.entry_row])
            & ~are_in(costs.entry_row, split)
        )
        by_hub = used[~are_in(used, split)]
        row = np.concatenate([direct_row, costs.entry_row[chosen], whole_row, by_hub])
        to_cells = self.first_cell + np.concatenate([costs.entry_cell[chosen], whole_cell])
        head = np.concatenate([self.first_place + direct_place, to_cells, self.first_hub + problem.row_hub[by_hub]])
        in_cells = np.concatenate([costs.entry_cost[chosen], costs.at(whole_row, whole_cell)])
        cost = np.concatenate([direct_cost, in_cells, dearest[by_hub]])
        self._add(row, head, supply[row], cost + move[row], tie[row])

    def _add_places(self) -> None:
        """Arcs from the hubs to the owners, and on."""
        problem = self.problem
        cells, places = np.arange(len(problem.cell_hub)), np.arange(len(problem.place_cell))
        total = int(self.weight.sum())
        self._add(self.first_hub + problem.cell_hub, self.first_cell + cells, total, 0, 0)
        limit = problem.upper if problem.place_upper is None else problem.place_upper
        self._add(self.first_cell + problem.place_cell, self.first_place + places, limit, problem.place_cost, 0)
        if problem.place_owner is not None:
            self._add(self.first_place + places, self.first_owner + problem.place_owner, limit, 0, 0)
        spare = problem.upper - problem.lower
        owners = np.flatnonzero(spare > 0)
        self._add(self.first_owner + owners, self.sink, spare[owners], 0)

    def network(self) -> Network:
        """The network; between two of its nodes that are neither class nor row there are at most three that are."""
        others = self.sink + 1 - self.first_hub
        return Network(self.supplies, self.arcs, longest_path=4 * (others + 1), changes=(self.most_moves,))

    def places(self, flows: Int64Array) -> Int64Array:
        """One place per item, made of the flow: in item order those that stay come first, then by cell and place."""
        problem, (tail, head, _, _) = self.problem, self.arcs.columns()
        weight = None if problem.item_weight is None else self.weight
        at = self.node_of_class[self.item_class]
        # Along arcs out of classes, rows, hubs, cells.
        bounds = [(self.first_class, self.first_hub), (0, self.first_class)]
        bounds += [(self.first_hub, self.first_cell), (self.first_cell, self.first_place)]
        for low, high in bounds:
            here = (tail >= low) & (tail < high)
            at = along(at, tail[here], head[here], flows[here], weight)
        place: Int64Array = np.maximum(at - self.first_place, NOBODY)
        return place


def _exceptions(
    problem: PlacesProblem, used: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """How exceptions become arcs.

    A cheaper exception is an arc of its own. A dearer one (or a forbidden place) takes the whole cell apart: the row gets
    an arc to every other place of the cell, and arcs to its other cells instead of the hub's.

    Returns:
        Rows that were taken apart; row and cell of the cells that they reach as a whole; row, place, cost of arcs to places.
    """
    live = np.flatnonzero(are_in(problem.exception_row, used))
    row, place, cost = problem.exception_row[live], problem.exception_place[live], problem.exception_cost[live]
    usual = problem.costs.at(row, problem.place_cell[place]) + problem.place_cost[place]
    usual = np.where(problem.cell_hub[problem.place_cell[place]] != problem.row_hub[row], 2**62, usual)
    dearer = (cost < 0) | (cost > usual)
    keep = (cost >= 0) & (cost < usual)
    apart = distinct(row[dearer] * len(problem.cell_hub) + problem.place_cell[place[dearer]])
    apart_row, apart_cell = apart // len(problem.cell_hub), apart % len(problem.cell_hub)
    by_cell = order_by(problem.place_cell)
    of_cell = offsets_of(problem.place_cell, len(problem.cell_hub))
    arcs = int(np.diff(of_cell)[apart_cell].sum())
    rows = distinct(apart_row)
    if arcs + len(rows) * len(problem.cell_hub) > MOST_ARCS:
        raise FlowError(
            f"{len(rows)} classes of tasks have dearer or forbidden clients; taken apart they need more than "
            f"{MOST_ARCS} arcs. Maybe use fewer exceptions, or higher costs for whole racks or clients."
        )
    of_apart, member = csr_pairs(of_cell, apart_cell)
    members, places = apart_row[of_apart], by_cell[member]
    costs = problem.place_costs(members, places)
    fine = costs >= 0
    known = row[keep] * len(problem.place_cell) + place[keep]
    fine &= ~are_in(members * len(problem.place_cell) + places, known)
    cheaper, others = (row[keep], place[keep], cost[keep]), (members[fine], places[fine], costs[fine])
    direct = [np.concatenate(both) for both in zip(cheaper, others, strict=True)]
    # All other cells of the hub, one by one.
    whole_row = np.repeat(rows, len(problem.cell_hub))
    whole_cell = np.tile(np.arange(len(problem.cell_hub)), len(rows))
    fine = problem.cell_hub[whole_cell] == problem.row_hub[whole_row]
    fine &= ~are_in(whole_row * len(problem.cell_hub) + whole_cell, apart)
    order = order_by(direct[0], direct[1])
    row, place, cost = (column[order] for column in direct)
    return rows, whole_row[fine], whole_cell[fine], row, place, cost
