r"""The network of actives: how many items of which class go to which owner. Goals that look at state are in `state_network.py`.

    lot -> hub -> cell -> place -> owner -> bearer -> sink
      \--------> /       /
       \----------------/    to claimants, as many as the lot's items have claims there

Items of a lot cost the same on every rack, and all or none of them are claimed. A hub leads to all racks of a pool, a cell
is one rack, a place the items of one kind (stateful or not) of an owner. A bearer is the owner itself, or who bears the
loads of several. From the place of stateful items to the owner, and from bearers to the sink, go parallel arcs that get
dearer step by step: that makes loads even. Items that several owners claim are a node of their own on the way from the lot
to these.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.actives.problem import Bearers, Problem, RackCosts
from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.even import Steps, even_counts, order_of_prices, prices_to_add
from task_assignor.engine.flow import Arcs, Network, solve_face
from task_assignor.engine.items import Pairs, sums
from task_assignor.sdk.arrays import are_in, distinct, numbered, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

KINDS: Final = 2


@attrs.frozen(eq=False)
class Nodes:
    """Numbers of the nodes: lots, hubs, cells, places, owners, bearers other than these, sink; then nodes of classes.

    Args:
        kind: (N,) kind of each item; 0: stateful.
        lot: (N,) lot of each item.
        row: (L,) row of the rack costs of each lot.
        is_claimed: (L,) whether the lot's items are claimed.
        hub: (L,) hub of each lot.
        cell: (C, 2) cell of each owner's places.
        first_hub: first node of the hubs; and so on. Places are numbered owner by owner. Without other bearers the owners
            are bearers themselves.
    """

    kind: Int64Array
    lot: Int64Array
    row: Int64Array
    is_claimed: BoolArray
    hub: Int64Array
    cell: Int64Array
    first_hub: int
    first_cell: int
    first_place: int
    first_owner: int
    first_bearer: int
    sink: int

    @classmethod
    def of(cls, problem: Problem, racks: RackCosts) -> Nodes:
        """The nodes of a problem."""
        items, owners = len(problem.is_stateful), len(problem.weight)
        kind = np.where(problem.is_stateful, 0, 1)
        is_claimed = np.zeros(items, dtype=np.int64)
        is_claimed[problem.claims.item] = 1
        item_pool, owner_pool = problem.item_pool, problem.owner_pool
        hubs = KINDS * (1 + max(int(item_pool.max(initial=0)), int(owner_pool.max(initial=0))))
        item_hub = item_pool * KINDS + kind
        lot = numbered((racks.costs.row * hubs + item_hub) * 2 + is_claimed)
        row, hub, claimed = (np.zeros(int(lot.max(initial=-1)) + 1, dtype=np.int64) for _ in range(3))
        row[lot], hub[lot], claimed[lot] = racks.costs.row, item_hub, is_claimed
        cell = (racks.rack * hubs + owner_pool * KINDS)[:, None] + np.arange(KINDS)
        bearers = 0 if problem.bearers is None else len(problem.bearers.weight)
        ends = np.cumsum([len(hub), hubs, hubs * racks.costs.cells, KINDS * owners]).tolist()
        ends += [ends[-1] + (owners if bearers else 0), ends[-1] + owners + bearers]
        return cls(kind, lot, row, claimed > 0, ends[0] + hub, ends[1] + cell, *ends)

    @property
    def first_class(self) -> int:
        """First node of classes."""
        return self.sink + 1

    @property
    def others(self) -> int:
        """Number of nodes that are neither places nor owners nor of classes: a simple path passes between these few."""
        bearers = self.sink - self.first_bearer if self.first_bearer > self.first_owner else 0
        return self.first_place + bearers + 1

    def place(self, owner: Int64Array, kind: Int64Array | int) -> Int64Array:
        """Nodes of places."""
        return self.first_place + KINDS * owner + kind


def _trunk(nodes: Nodes, racks: RackCosts, may_move: BoolArray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(A,) tails, heads and costs of the arcs from lots to places.

    Args:
        nodes: the nodes.
        racks: what items cost.
        may_move: (L,) lots whose items may leave all claimants.
    """
    hubs, costs = nodes.first_cell - nodes.first_hub, racks.costs
    lots = np.flatnonzero(may_move)
    moved = np.where(nodes.is_claimed, racks.move, 0)
    # Arcs of their own to racks that are cheaper than the others.
    position, entry = costs.entries_of(nodes.row[lots])
    is_cheap = costs.saved[entry] > 0
    of_lot, entry = lots[position[is_cheap]], entry[is_cheap]
    cells = distinct(nodes.cell.reshape(-1))
    to_cell = nodes.first_cell + costs.entry_cell[entry] * hubs + nodes.hub[of_lot] - nodes.first_hub
    has_owners = are_in(to_cell, cells)
    of_lot, entry, to_cell = of_lot[has_owners], entry[has_owners], to_cell[has_owners]
    places = nodes.first_place + np.arange(nodes.cell.size)
    of_hub = nodes.first_hub + (cells - nodes.first_cell) % hubs
    by_hub = costs.default[nodes.row[lots]] + moved[lots]
    return (
        np.concatenate([of_lot, lots, of_hub, nodes.cell.reshape(-1)]),
        np.concatenate([to_cell, nodes.hub[lots], cells, places]),
        np.concatenate([costs.entry_cost[entry] + moved[of_lot], by_hub, np.zeros_like(cells), np.zeros_like(places)]),
    )


@attrs.frozen(eq=False)
class Range:
    """Least and most, and what is probably nearly the best: (C,) each."""

    low: Int64Array
    high: Int64Array
    middle: Int64Array


@attrs.frozen(eq=False)
class Bounds:
    """Least and most load of each owner.

    Args:
        low: (C,) least items.
        high: (C,) most items.
        stateful: by owner, of stateful items alone.
        borne: by bearer, of the items of all its owners.
    """

    low: Int64Array
    high: Int64Array
    stateful: Range
    borne: Range

    @classmethod
    def of(cls, problem: Problem) -> Bounds:
        """The bounds of a problem."""
        owners, items, claims = len(problem.weight), len(problem.is_stateful), problem.claims
        (low, high), least_stateful = problem.share, np.zeros(owners, dtype=np.int64)
        if problem.keep_all_claims:
            alone = claims.where(np.bincount(claims.item, minlength=items)[claims.item] == 1)
            low = np.bincount(alone.owner, minlength=owners)
            high = np.maximum(high, np.bincount(claims.owner, minlength=owners))
            least_stateful = np.bincount(alone.owner[problem.is_stateful[alone.item]], minlength=owners)
        item_pool, owner_pool = problem.item_pool, problem.owner_pool
        pools = int(owner_pool.max(initial=0)) + 1
        total = np.bincount(item_pool, minlength=pools)
        stateful = np.bincount(item_pool[problem.is_stateful], minlength=pools)
        least = np.maximum(least_stateful, low - (total - stateful)[owner_pool])
        most = np.minimum(high, stateful[owner_pool])
        if pools == 1:
            middle = even_counts(problem.weight, least, most, int(stateful[0]))
        else:
            # With pools stateful items are probably spread like all.
            part = np.rint(high * (stateful / np.maximum(total, 1))[owner_pool]).astype(np.int64)
            middle = np.clip(part, least, most)
        return cls(low, high, Range(least, most, middle), _borne(problem, low, high))


def _borne(problem: Problem, low: Int64Array, high: Int64Array) -> Range:
    """The loads of bearers."""
    items, bearers = len(problem.is_stateful), problem.bearers
    if bearers is None:
        return Range(low, high, even_counts(problem.weight, low, high, items))
    least, most = (sums(bearers.of, part, len(bearers.weight)) for part in (low, high))
    fair = (bearers.load.sum() + bearers.size * items) * (bearers.weight / bearers.weight.sum())
    middle = np.rint((fair - bearers.load) / bearers.size).astype(np.int64)
    return Range(least, most, np.clip(middle, least, most))


@attrs.frozen(eq=False)
class Best:
    """A best flow by all goals that do not look at state, and where other flows that are as good may differ.

    Args:
        kept: (P,) of the network's claims, how many items of the class are there.
        may_keep: (P,) whether items of the class may be there.
        may_leave: (K,) whether items of the class may be away from all claimants.
        is_open: (K,) whether that, or with which claimants they are, is open.
        tail: (A,) tails of all other arcs.
        head: (A,) heads.
        capacity: (A,) capacities.
        flow: (A,) flows.
        is_free: (A,) whether the flow may differ.
        supply: supplies of all nodes but lots and classes.
    """

    kept: Int64Array
    may_keep: BoolArray
    may_leave: BoolArray
    is_open: BoolArray
    tail: Int64Array
    head: Int64Array
    capacity: Int64Array
    flow: Int64Array
    is_free: BoolArray
    supply: Int64Array


class ActivesNetwork:
    """The network of a problem, but for its state.

    `classes` are items of one lot with equal claims, `claims` pairs of class and claimant, sorted by class.
    """

    def __init__(self, problem: Problem) -> None:
        items, claims = len(problem.is_stateful), problem.claims
        self.problem = problem
        self.racks = RackCosts.nothing(items, len(problem.weight)) if problem.racks is None else problem.racks
        self.nodes = Nodes.of(problem, self.racks)
        self.bounds = Bounds.of(problem)
        nobody = np.zeros(len(problem.weight), dtype=np.int64)
        itself = Bearers(np.arange(len(problem.weight)), problem.weight, nobody, 1)
        self.bearers = problem.bearers or itself
        self.classes = Classes.alike(self.nodes.lot, labels_of_lists(items, claims.item, claims.owner))
        claims = claims.where(self.classes.first[self.classes.of[claims.item]] == claims.item)
        of_class = self.classes.of[claims.item]
        order = order_by(of_class)
        self.claims = Pairs.of(of_class[order], claims.owner[order])
        claimants = np.bincount(self.claims.item, minlength=len(self.classes))
        self.shared = np.flatnonzero(claimants > 1)
        self.is_shared = claimants[self.claims.item] > 1

    @property
    def choices(self) -> int:
        """Claimants of classes that have several, added up."""
        return int(self.is_shared.sum())

    def solve(self) -> Best:
        """The best flow: fewest items outside the shares, least cost, stateful items even, all items even.

        Where bearers bear several owners' loads, these are even before all else.
        """
        ranges = self.bounds.stateful, self.bounds.borne
        corners = self.problem.share if self.problem.keep_all_claims else ()
        loads = [one.middle for one in ranges]
        while True:
            stateful = Steps.around(loads[0], ranges[0].low, ranges[0].high)
            every = Steps.around(loads[1], ranges[1].low, ranges[1].high, *corners)
            best, loads = self._solve(stateful, every)
            if stateful.are_exact_at(loads[0]) and every.are_exact_at(loads[1]):
                return best

    def _solve(self, stateful: Steps, every: Steps) -> tuple[Best, list[Int64Array]]:
        nodes, bounds, classes, owners = self.nodes, self.bounds, self.classes, len(self.problem.weight)
        arcs = Arcs(goals=4)
        everything = len(nodes.kind) + 1
        lot, kind = nodes.lot[classes.first], nodes.kind[classes.first]
        # Claims: from the lot, as many as there are; by a node of their own, if several owners claim the same items.
        of_class = self.claims.item
        node = np.zeros(len(classes), dtype=np.int64)
        node[self.shared] = nodes.first_class + np.arange(len(self.shared))
        cost = self.racks.costs.at(nodes.row[lot[of_class]], self.racks.rack[self.claims.owner])
        kept = arcs.add(
            np.where(self.is_shared, node[of_class], lot[of_class]),
            nodes.place(self.claims.owner, kind[of_class]),
            np.where(self.is_shared, everything, classes.size[of_class]),
            0,
            cost,
        )
        shared = arcs.add(lot[self.shared], node[self.shared], classes.size[self.shared])
        tail, head, of_trunk = _trunk(nodes, self.racks, ~nodes.is_claimed | (not self.problem.keep_all_claims))
        first = arcs.add(tail, head, everything, 0, of_trunk).start
        prices = self._add_steps(arcs, stateful, every)
        supplies = np.zeros(nodes.first_class + len(self.shared), dtype=np.int64)
        supplies[: nodes.first_hub] = np.bincount(nodes.lot, minlength=nodes.first_hub)
        supplies[nodes.first_owner + np.arange(owners)] = -bounds.low
        supplies[nodes.sink] = int(bounds.low.sum()) - len(nodes.kind)
        # A simple path or cycle meets each node once, and between two places or owners one that is neither.
        turns = min(nodes.others + len(self.shared), nodes.first_class) + 1
        of_costs = 2 * turns * (int(cost.max(initial=0)) + int(of_trunk.max(initial=0)))
        changes = of_costs, min(owners, turns) * (2 + prices[0]), 1 + prices[1]
        flow, is_free = solve_face(Network(supplies, arcs, 4 * turns, changes))
        beyond_lots = np.where(np.arange(len(supplies)) < nodes.first_hub, 0, supplies)[: nodes.first_class]
        best = self._best(arcs, flow, is_free, kept, shared, first, beyond_lots)
        end = len(arcs) - len(every.owner)
        ends = slice(end - len(stateful.owner), end), slice(end, None)
        lows = bounds.stateful.low, bounds.borne.low
        return best, [
            low + np.bincount(one.owner, flow[where], len(low)).astype(np.int64)
            for low, one, where in zip(lows, (stateful, every), ends, strict=True)
        ]

    def _add_steps(self, arcs: Arcs, stateful: Steps, every: Steps) -> tuple[int, int]:
        """Arcs from places to owners, to bearers, and to the sink; returns the dearest prices of both."""
        nodes, bounds, weight, bearers = self.nodes, self.bounds, self.problem.weight, self.bearers
        owners = np.arange(len(weight))
        # Owners that share bearers are bound to each other, so that more than the order of prices counts.
        price = order_of_prices if self.problem.bearers is None else prices_to_add
        of_stateful = 1 + price(stateful.start + stateful.end, weight[stateful.owner])
        of_every = every.prices(bearers.weight, bearers.load, bearers.size)
        arcs.add(nodes.place(owners, 1), nodes.first_owner + owners, len(nodes.kind) + 1)
        sure = np.flatnonzero(bounds.stateful.low)
        arcs.add(nodes.place(sure, 0), nodes.first_owner + sure, bounds.stateful.low[sure])
        outside = last = np.zeros(len(every.owner), dtype=np.int64)
        if self.problem.bearers is not None:
            arcs.add(nodes.first_owner + owners, nodes.first_bearer + bearers.of, bounds.high - bounds.low)
            outside = of_every
        else:
            last = of_every
            if self.problem.keep_all_claims:
                floor, ceil = (share[every.owner] for share in self.problem.share)
                outside = np.where(every.start < floor, 0, np.where(every.start < ceil, 1, 2))
        width = stateful.end - stateful.start
        arcs.add(nodes.place(stateful.owner, 0), nodes.first_owner + stateful.owner, width, 0, 0, of_stateful)
        arcs.add(nodes.first_bearer + every.owner, nodes.sink, every.end - every.start, outside, 0, 0, last)
        return int(of_stateful.max(initial=0)), int(last.max(initial=0))

    def _best(
        self,
        arcs: Arcs,
        flow: Int64Array,
        is_free: BoolArray,
        kept: slice,
        shared: slice,
        first: int,
        supply: Int64Array,
    ) -> Best:
        classes, of_class = self.classes, self.claims.item
        # How many items of each class are with claimants, and whether it could be more or fewer.
        stay = np.bincount(of_class, flow[kept], len(classes)).astype(np.int64)
        may_change = np.zeros(len(classes), dtype=np.bool_)
        may_change[of_class[~self.is_shared]] = is_free[kept][~self.is_shared]
        may_change[self.shared] = is_free[shared]
        may_leave = may_change | (stay < classes.size)
        is_open = may_leave.copy()
        is_open[of_class[self.is_shared & is_free[kept]]] = True
        tail, head, capacity, _ = arcs.columns()
        return Best(
            kept=flow[kept],
            may_keep=(is_free[kept] | ~self.is_shared) & (may_change | (stay > 0))[of_class],
            may_leave=may_leave,
            is_open=is_open,
            tail=tail[first:],
            head=head[first:],
            capacity=capacity[first:],
            flow=flow[first:],
            is_free=is_free[first:],
            supply=supply,
        )
