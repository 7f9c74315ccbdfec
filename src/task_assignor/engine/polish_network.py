"""The network of `engine/polish.py`: items -> cells (kind, rack) -> places (kind, owner) -> owners -> sink.

An item can also go to the places of its claimants, and of owners of its state, directly.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, InfeasibleFlowError, Network, exact_dot, solve
from task_assignor.engine.items import rank_within
from task_assignor.engine.spread import Window
from task_assignor.sdk.arrays import are_in, distinct
from task_assignor.sdk.columns import BoolArray, Int64Array

if TYPE_CHECKING:
    from task_assignor.engine.polish import Polish


@attrs.frozen(eq=False)
class RackCosts:
    """What items cost on racks.

    Args:
        traffic: (N, R) cost of each item on each rack.
        move: cost of an item that is with none of its claimants.
        rack: (C,) rack of each owner.
    """

    traffic: Int64Array
    move: int
    rack: Int64Array


class PolishNetwork:
    """What items cost where, and the flows within windows."""

    def __init__(self, task: Polish) -> None:
        self.task = task
        self.items, self.owners = len(task.is_first_kind), len(task.weight)
        self.kind = np.where(task.is_first_kind, 0, 1)
        costs = task.racks or RackCosts(
            np.zeros((self.items, 1), dtype=np.int64), 1, np.zeros(self.owners, dtype=np.int64)
        )
        self.costs, self.racks = costs, costs.traffic.shape[1]
        self.has_claim = np.zeros(self.items, dtype=np.bool_)
        self.has_claim[task.claim_item] = True
        self.has_state = np.zeros(self.items, dtype=np.bool_)
        self.has_state[task.state_item] = True
        self._claims = task.claim_item * self.owners + task.claim_owner
        self._state = task.state_item * self.owners + task.state_owner
        self.first_cell = self.items
        self.first_place = self.first_cell + 2 * self.racks
        self.first_owner = self.first_place + 2 * self.owners
        self.sink = self.first_owner + self.owners
        self._build()

    def is_kept(self, owner: Int64Array) -> BoolArray:
        """(N,) whether the owner has a claim on the item."""
        return are_in(np.arange(self.items) * self.owners + owner, self._claims)

    def is_with_state(self, owner: Int64Array) -> BoolArray:
        """(N,) whether the owner has state of the item."""
        return are_in(np.arange(self.items) * self.owners + owner, self._state)

    def cost_of(self, owner: Int64Array, lost: BoolArray) -> int:
        """Traffic and lost claims of the owners."""
        traffic = self.costs.traffic[np.arange(self.items), self.costs.rack[owner]]
        return exact_dot(traffic, np.ones_like(traffic)) + self.costs.move * int(lost.sum())

    def _build(self) -> None:
        """All arcs that do not depend on windows."""
        task = self.task
        moved = np.where(self.has_claim, self.costs.move, 0)
        # All claims are to be kept: then there are no other arcs for items that somebody claims.
        may_move = ~self.has_claim | (not task.keep_all_claims)
        free = np.flatnonzero(may_move)
        self.cell_item, self.cell_rack = np.repeat(free, self.racks), np.tile(np.arange(self.racks), len(free))
        with_state = ~are_in(self._state, self._claims) & may_move[task.state_item]
        self.direct_item = np.concatenate([task.claim_item, task.state_item[with_state]])
        self.direct_owner = np.concatenate([task.claim_owner, task.state_owner[with_state]])
        is_move = np.arange(len(self.direct_item)) >= len(task.claim_item)
        direct_rack = self.costs.rack[self.direct_owner]
        place_owner, place_kind = np.repeat(np.arange(self.owners), 2), np.tile([0, 1], self.owners)
        self.tails = np.concatenate(
            [self.cell_item, self.direct_item, self.first_cell + 2 * self.costs.rack[place_owner] + place_kind]
        )
        self.heads = np.concatenate(
            [
                self.first_cell + 2 * self.cell_rack + self.kind[self.cell_item],
                self.first_place + 2 * self.direct_owner + self.kind[self.direct_item],
                self.first_place + 2 * place_owner + place_kind,
            ]
        )
        none = np.zeros(2 * self.owners, dtype=np.int64)
        self.capacities = np.concatenate(
            [np.ones(len(self.tails) - len(none), dtype=np.int64), np.full(len(none), self.items)]
        )
        self.cost = np.concatenate(
            [
                self.costs.traffic[self.cell_item, self.cell_rack] + moved[self.cell_item],
                self.costs.traffic[self.direct_item, direct_rack] + np.where(is_move, moved[self.direct_item], 0),
                none,
            ]
        )
        self.away = np.concatenate(
            [self.has_state[self.cell_item], np.zeros(len(self.direct_item), dtype=np.bool_), none]
        ).astype(np.int64)
        self.behind = np.concatenate(
            [
                np.zeros(len(self.cell_item) + len(task.claim_item), dtype=np.int64),
                task.state_place[with_state],
                none,
            ]
        )

    def _limits(self, first: Window, every: Window) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """(C,) least and most items of the first kind, and of all, that the windows and the shares allow."""
        task, most = self.task, np.full(self.owners, self.items)
        low, high = every.least(task.weight), every.most(task.weight, most)
        if not task.keep_all_claims:
            low, high = np.maximum(low, task.floor), np.minimum(high, task.ceil)
        return first.least(task.weight), np.minimum(first.most(task.weight, most), high), low, high

    def may_fit(self, first: Window, every: Window) -> bool:
        """False if the windows are too narrow whatever the claims."""
        first_low, first_high, low, high = self._limits(first, every)
        return (
            bool((first_low <= first_high).all() and (low <= high).all())
            and int(first_low.sum()) <= int(self.task.is_first_kind.sum()) <= int(first_high.sum())
            and int(low.sum()) <= self.items <= int(high.sum())
        )

    def solve(self, first: Window, every: Window, goals: int) -> Int64Array | None:
        """The flows that are best by the first `goals` of: cost, items away from their state, how far behind.

        Returns:
            Flow of each arc; None: the windows allow none.
        """
        if not self.may_fit(first, every):
            return None
        task = self.task
        first_low, first_high, low, high = self._limits(first, every)
        owner = np.arange(self.owners)
        place, node = self.first_place + 2 * owner, self.first_owner + owner
        # What must flow through an arc in any case is taken out at its start and put in at its end.
        supplies = np.zeros(self.sink + 1, dtype=np.int64)
        supplies[: self.items] = 1
        supplies[place] -= first_low
        supplies[node] += first_low - low
        supplies[self.sink] = int(low.sum()) - self.items
        # To lack an item up to the floor costs 1, to have one above the ceil too. Plus 1 for every item: 0, 1 and 2.
        steps = [low, np.clip(task.floor, low, high), np.clip(task.ceil, low, high), high]
        pieces = [after - before for before, after in itertools.pairwise(steps)]
        tails = [self.tails, place, place + 1, node, node, node]
        heads = [self.heads, node, node, *[np.full(self.owners, self.sink)] * 3]
        capacities = [self.capacities, first_high - first_low, np.full(self.owners, self.items), *pieces]
        outside = np.repeat([0, 0, 0, 1, 2] if task.keep_all_claims else [0] * 5, self.owners)
        none = np.zeros(5 * self.owners, dtype=np.int64)
        costs = [
            np.concatenate([self.cost, outside]),
            np.concatenate([self.away, none]),
            np.concatenate([self.behind, none]),
        ]
        arcs = Arcs(goals=goals)
        arcs.add(np.concatenate(tails), np.concatenate(heads), np.concatenate(capacities), *costs[:goals])
        # A simple cycle enters each cell, place and owner at most once.
        turns = 2 * (2 * self.racks + 3 * self.owners)
        changes = tuple(turns * (int(cost.max(initial=0)) + 1) for cost in costs[1:goals])
        try:
            return solve(Network(supplies, arcs, changes=changes))
        except InfeasibleFlowError:
            return None

    def owners_of(self, flows: Int64Array) -> Int64Array:
        """(N,) owners made of flows; items that go through one cell are dealt out to its places in turn."""
        owner = np.full(self.items, -1, dtype=np.int64)
        cells, direct = len(self.cell_item), len(self.direct_item)
        taken = flows[cells : cells + direct] > 0
        owner[self.direct_item[taken]] = self.direct_owner[taken]
        taken = flows[:cells] > 0
        item, rack = self.cell_item[taken], self.cell_rack[taken]
        places = flows[cells + direct : cells + direct + 2 * self.owners].reshape(self.owners, 2)
        for number in distinct(2 * rack + self.kind[item]).tolist():
            here = np.where(self.costs.rack == number // 2, places[:, number % 2], 0)
            slots = np.repeat(np.arange(self.owners), here)
            slots = slots[np.lexsort((slots, rank_within(slots)))]
            owner[item[2 * rack + self.kind[item] == number]] = slots
        return owner
