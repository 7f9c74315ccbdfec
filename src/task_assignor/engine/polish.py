"""Polishing an allocation by flows: all goals at once, exactly, where there are not too many items and owners.

The engine's shares are exact for items with one claim each. Where owners compete for items, where racks cost, and where
many owners have the state of an item, it looks at one thing after the other; here each goal is brought to its optimum
within those before it. The network itself is in `engine/polish_network.py`.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import FlowError
from task_assignor.engine.polish_network import PolishNetwork, RackCosts
from task_assignor.engine.spread import (
    EVERYTHING,
    Window,
    even_counts,
    levels_between,
    smallest_windows,
)
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_ARCS: Final = 50_000
"""With more arcs nothing is polished: it would take seconds."""
MOST_FLOWS: Final = 300
MOST_WORK: Final = 1_000_000
"""Flows that are solved in search of narrower spreads, and arcs in all of them; then the spreads stay as they are."""
_LOST: Final = 2**40
_TINY: Final = 1e-9


@attrs.frozen(eq=False)
class Polish:
    """What is to be polished.

    Args:
        is_first_kind: (N,) items that are spread first.
        weight: (C,) weights of the owners.
        floor: (C,) least items of each owner.
        ceil: (C,) most items of each owner.
        claim_item: (P,) items of the claims that count; pairs are distinct.
        claim_owner: (P,) their owners.
        state_item: (S,) items of which there is state; pairs are distinct.
        state_owner: (S,) who has it.
        state_place: (S,) how many others have it too and are less behind.
        keep_all_claims: items stay with a claimant, even if owners get fewer than `floor` or more than `ceil`.
        racks: what items cost on racks; None: only lost claims count.
    """

    is_first_kind: BoolArray
    weight: Int64Array
    floor: Int64Array
    ceil: Int64Array
    claim_item: Int64Array
    claim_owner: Int64Array
    state_item: Int64Array
    state_owner: Int64Array
    state_place: Int64Array
    keep_all_claims: bool
    racks: RackCosts | None = None

    def improve(self, owner: Int64Array) -> Int64Array:
        """(N,) owners that are best, goal by goal; the given ones unless there are better ones."""
        racks = 1 if self.racks is None else self.racks.traffic.shape[1]
        arcs = len(owner) * racks + len(self.claim_item) + len(self.state_item) + 7 * len(self.weight)
        if not len(owner) or len(self.weight) < 2 or arcs > MOST_ARCS:
            return owner
        try:
            return _Search(self, owner, min(MOST_FLOWS, MOST_WORK // arcs)).run()
        except FlowError:
            # Costs out of the range in which the solver is exact.
            return owner


@attrs.frozen(eq=False)
class Score:
    """How good owners are; less is better, in this order.

    Args:
        cost: lost claims; or what `RackCosts` say; or, if all claims are kept, the items outside the shares.
        first: spread of the first kind per unit of weight.
        every: spread of all items per unit of weight.
        away: items with state that are neither with a claimant nor with their state.
        behind: how many others are less behind, for all items that are with their state and not with a claimant.
    """

    cost: int
    first: float
    every: float
    away: int
    behind: int

    def __lt__(self, other: Score) -> bool:
        return self._compared(other) < 0

    def _compared(self, other: Score) -> float:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        return next((one - two for one, two in pairs if abs(one - two) > _TINY), 0)


class _EnoughError(Exception):
    """So many flows were solved that the search ends."""


class _Search:
    """Looks for the narrowest windows that the least cost allows, and for the best owners within them."""

    def __init__(self, task: Polish, owner: Int64Array, most_flows: int) -> None:
        self.task = task
        self.owner = owner
        self.network = PolishNetwork(task)
        self.items, self.owners = len(owner), len(task.weight)
        self.flows_left = most_flows

    def run(self) -> Int64Array:
        task, before = self.task, self.score(self.owner)
        competing = len(distinct(task.claim_item)) < len(task.claim_item)
        # With one claim on each item at most the engine's answer is the best but for the state.
        is_exact = task.racks is None and not competing
        even = is_exact or self._is_even(before)
        if even and not before.away and not before.behind:
            return self.owner
        answers = [(before, self.owner)]
        windows = [self._windows_of(self.owner)]
        # With equal weights there is one narrowest window; else several may be equally narrow.
        if not even or len(distinct(task.weight)) > 1:
            with contextlib.suppress(_EnoughError):
                windows = self._narrowest()
        for first, every in windows:
            flows = self.network.solve(first, every, goals=3)
            if flows is not None:
                owner = self.network.owners_of(flows)
                answers.append((self.score(owner), owner))
        best = answers[0]
        for answer in answers[1:]:
            best = answer if answer[0] < best[0] else best
        return best[1]

    def score(self, owner: Int64Array) -> Score:
        """How good the owners are."""
        task = self.task
        kept, with_state = self.network.is_kept(owner), self.network.is_with_state(owner)
        counts = np.bincount(owner, minlength=self.owners)
        first = np.bincount(owner[task.is_first_kind], minlength=self.owners)
        lost = self.network.has_claim & ~kept
        if task.keep_all_claims:
            outside = np.maximum(task.floor - counts, 0) + np.maximum(counts - task.ceil, 0)
            cost = int(outside.sum()) + _LOST * int(lost.sum())
        else:
            cost = self.network.cost_of(owner, lost)
        away = self.network.has_state & ~kept & ~with_state
        spreads = (float(np.ptp(first / task.weight)), float(np.ptp(counts / task.weight)))
        here = ~kept[task.state_item] & (owner[task.state_item] == task.state_owner)
        return Score(cost, *spreads, int(away.sum()), int(task.state_place[here].sum()))

    def _windows_of(self, owner: Int64Array) -> tuple[Window, Window]:
        """The windows that the owners fill."""
        task = self.task
        windows = []
        for chosen in (owner[task.is_first_kind], owner):
            levels = np.bincount(chosen, minlength=self.owners) / task.weight
            windows.append(Window(float(levels.min()), float(levels.max())))
        return windows[0], windows[1]

    def _is_even(self, score: Score) -> bool:
        """Whether both spreads are the smallest that there could be without any claims, at a cost of 0."""
        task = self.task
        none, first = np.zeros(self.owners, dtype=np.int64), int(task.is_first_kind.sum())
        if score.cost and (task.keep_all_claims or task.racks is not None):
            return False
        for spread, least, most, total in (
            (score.first, none, np.minimum(task.ceil, first), first),
            (score.every, task.floor, task.ceil, self.items),
        ):
            if spread > float(np.ptp(even_counts(task.weight, least, most, total) / task.weight)) + _TINY:
                return False
        return True

    def _narrowest(self) -> list[tuple[Window, Window]]:
        """The narrowest windows of the first kind, with the narrowest of all items for them, at the least cost."""
        task = self.task
        everything = self._solved(EVERYTHING, EVERYTHING)
        assert everything is not None, "the shares can be filled"
        none, most = np.zeros(self.owners, dtype=np.int64), np.full(self.owners, self.items)
        low, high = (none, most) if task.keep_all_claims else (task.floor, task.ceil)
        firsts = [EVERYTHING]
        if task.is_first_kind.any():
            levels = levels_between(task.weight, none, np.minimum(high, int(task.is_first_kind.sum())))
            firsts = smallest_windows(levels, partial(self._allows, everything, every=EVERYTHING))
        levels = levels_between(task.weight, low, high)
        pairs = []
        for first in firsts:
            pairs += [(first, every) for every in smallest_windows(levels, partial(self._allows, everything, first))]
        width = min(every.high - every.low for _, every in pairs)
        return [pair for pair in pairs if pair[1].high - pair[1].low <= width + _TINY]

    def _allows(self, least: int, first: Window, every: Window) -> bool:
        return self._solved(first, every) == least

    def _solved(self, first: Window, every: Window) -> int | None:
        """The least cost within the windows; None: nothing fits."""
        if not self.network.may_fit(first, every):
            return None
        if not self.flows_left:
            raise _EnoughError
        self.flows_left -= 1
        flows = self.network.solve(first, every, goals=1)
        return None if flows is None else self.score(self.network.owners_of(flows)).cost
