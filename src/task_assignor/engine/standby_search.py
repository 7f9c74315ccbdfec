"""The cheapest placement of copies that keeps tag diversity: exact where a flow can say it, else a search from several starts."""

from __future__ import annotations

import itertools
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.standby_flow import Copies, Rules, place_copies
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import BoolArray, Int64Array

REPAIR_ROUNDS: Final = 5
"""So often the flow is solved again for the tasks that lost diversity; then all tasks keep the tag values they have."""
SWAP_ROUNDS: Final = 4
"""Rounds over all pairs of clients; Kafka's `STANDBY_OPTIMIZER_MAX_ITERATION`."""
MOST_CLIENTS_FOR_PAIRS: Final = 128
"""With more clients, pairs are too many to be looked at one by one; the flow search has to do."""


@attrs.frozen(eq=False)
class Found:
    """A placement.

    Args:
        held: (U, C) who has which copy.
        lower_bound: no placement that keeps counts and diversity costs less.
    """

    held: BoolArray
    lower_bound: int


def best_placement(copies: Copies) -> Found:
    """Copies on other clients: each client as many as it has now, no task less diverse, cheapest known, fewest moves.

    With no tags, with one tag key, or with one copy per task the result is optimal. With several tag keys and several
    copies no flow can say the rule: a relaxed flow gives the bound (and often the answer), and a search looks for more.
    A second call changes nothing.
    """
    first = _relaxed(copies)
    bound = copies.total(first)[0]
    if _keeps(copies, first):
        return Found(first, bound)
    held = _search(copies, first)
    while copies.total(held)[0] > bound:
        # Seen from the result, moving back is no longer free and diversity may be higher: look again until all is quiet.
        later = attrs.evolve(copies, held=held, needed=copies.diversity(held))
        again = _search(later, _relaxed(later))
        if (again == held).all():
            break
        held = again
    return Found(held, bound)


def _keeps(copies: Copies, held: BoolArray) -> bool:
    return bool((copies.diversity(held) >= copies.needed).all())


def _rules(copies: Copies) -> Rules:
    """Counts, and of the diversity what a flow can say."""
    supply = copies.held.sum(axis=1)
    tasks, keys = len(supply), copies.tag_value.shape[1]
    allowed = copies.allowed
    cover_key, cover_need = np.full(tasks, -1), np.zeros(tasks, dtype=np.int64)
    if keys:
        single = np.flatnonzero(supply == 1)
        nobody = np.zeros((len(single), copies.held.shape[1]), dtype=np.bool_)
        allowed[single] &= _diverse_enough(_rows(copies, single), nobody)
        for key in range(keys):
            others = [_most_distinct(copies, supply, other) for other in range(keys) if other != key]
            has = copies.tag_value[copies.active, key] >= 0
            need = copies.needed - sum(others, np.zeros(tasks, dtype=np.int64)) - (has & (copies.active >= 0))
            better = (need > cover_need) & (supply > 1)
            cover_key[better], cover_need[better] = key, need[better]
    return Rules(
        supply=supply,
        allowed=allowed,
        slots=copies.held.sum(axis=0),
        cover_key=cover_key,
        cover_need=cover_need,
        same_vector=np.zeros(tasks, dtype=np.bool_),
        held=copies.held,
    )


def _most_distinct(copies: Copies, supply: Int64Array, key: int) -> Int64Array:
    """(U,) no placement gives the holders of a task more distinct values of the key."""
    values = copies.tag_value[:, key]
    kinds = len(distinct(values[values >= 0]))
    return np.minimum(kinds, supply + (copies.active >= 0))


def _rows(copies: Copies, tasks: Int64Array) -> Copies:
    return attrs.evolve(
        copies,
        held=copies.held[tasks],
        active=copies.active[tasks],
        crossings=copies.crossings[tasks],
        needed=copies.needed[tasks],
    )


def _diverse_enough(copies: Copies, fixed: BoolArray) -> BoolArray:
    """(U, C) whether the holders are diverse enough with the active owner, the fixed copies and one at the client."""
    holders = copies.with_active(fixed)
    diversity = np.zeros(fixed.shape, dtype=np.int64)
    for key in range(copies.tag_value.shape[1]):
        values = copies.tag_value[:, key]
        present = copies.present(holders, key)
        diversity += present.sum(axis=1)[:, None]
        has = np.flatnonzero(values >= 0)
        diversity[:, has] += ~present[:, values[has]]
    enough: BoolArray = diversity >= copies.needed[:, None]
    return enough


def _relaxed(copies: Copies) -> BoolArray:
    """The cheapest placement by the rules that a flow can say: its cost is a lower bound."""
    return place_copies(copies, _rules(copies))


def _search(copies: Copies, relaxed: BoolArray) -> BoolArray:
    """The best of several starts, each improved until nothing helps; done as soon as one reaches the bound."""
    bound = copies.total(relaxed)[0]
    best = copies.held
    for start in (_repaired(copies, relaxed), None, copies.held):
        if start is None:
            if copies.held.shape[1] > MOST_CLIENTS_FOR_PAIRS:
                continue
            start = swap_pairs(copies, copies.held)
        found = _improved(copies, start, bound)
        if copies.total(found) < copies.total(best):
            best = found
        if copies.total(best)[0] == bound:
            break
    return best


def _repaired(copies: Copies, relaxed: BoolArray) -> BoolArray:
    """Tasks that lost diversity keep the tag values of their holders, and the flow is solved again, until none loses."""
    rules = _rules(copies)
    kept = np.zeros(len(copies.needed), dtype=np.bool_)
    held = relaxed
    for turn in itertools.count(1):
        lost = copies.diversity(held) < copies.needed
        if not lost.any():
            break
        # One by one would be better and slower; the search that follows makes up for it.
        kept |= lost if turn < REPAIR_ROUNDS else rules.supply > 0
        held = place_copies(copies, attrs.evolve(rules, same_vector=kept))
    return held


def _improved(copies: Copies, held: BoolArray, bound: int) -> BoolArray:
    """Free one copy of every task at a time and place these by a flow, in turn; then swap pairs; until nothing helps."""
    best = copies.total(held)
    most = int(held.sum(axis=1).max(initial=0))
    quiet, turn = 0, 0
    while quiet < most and best[0] > bound:
        candidate = _one_free(copies, held, turn)
        total = copies.total(candidate)
        quiet += 1
        if total < best:
            held, best, quiet = candidate, total, 0
        turn += 1
        if quiet == most and held.shape[1] <= MOST_CLIENTS_FOR_PAIRS:
            candidate = swap_pairs(copies, held)
            if copies.total(candidate) < best:
                held, best, quiet = candidate, copies.total(candidate), 0
    return held


def _one_free(copies: Copies, held: BoolArray, turn: int) -> BoolArray:
    """The cheapest placement if of each task one copy may move, the `turn`-th by client number, and the others stay."""
    count = held.sum(axis=1)
    has = np.flatnonzero(count)
    rank = np.cumsum(held, axis=1) - 1
    free = held & (rank == np.where(count > 0, turn % np.maximum(count, 1), -1)[:, None])
    fixed = held & ~free
    supply = np.zeros(len(held), dtype=np.int64)
    supply[has] = 1
    rules = Rules(
        supply=supply,
        allowed=copies.allowed & ~fixed & (_diverse_enough(copies, fixed) | free),
        slots=free.sum(axis=0),
        cover_key=np.full(len(held), -1),
        cover_need=np.zeros(len(held), dtype=np.int64),
        same_vector=np.zeros(len(held), dtype=np.bool_),
        held=held,
    )
    placed: BoolArray = fixed | place_copies(copies, rules)
    return placed


def swap_pairs(copies: Copies, held: BoolArray) -> BoolArray:
    """Swap copies between pairs of clients, the best swaps of a pair at once; some rounds over all pairs.

    Source: KIP-925, `RackAwareTaskAssignor.optimizeStandbyTasks`: the local search that Kafka does.
    """
    state = _Swaps(copies, held.copy())
    for _ in range(SWAP_ROUNDS):
        changed = False
        for first in range(held.shape[1]):
            for second in range(first + 1, held.shape[1]):
                changed |= state.swap(first, second)
        if not changed:
            break
    return state.held


class _Swaps:
    """A placement that changes swap by swap, with the number of holders per task, key and value."""

    def __init__(self, copies: Copies, held: BoolArray) -> None:
        self.copies, self.held = copies, held
        self.cost = copies.cost
        holders = copies.with_active(held)
        self.holders: list[Int64Array] = []
        for key in range(copies.tag_value.shape[1]):
            values = copies.tag_value[:, key]
            count = np.zeros((len(held), int(values.max(initial=-1)) + 1), dtype=np.int64)
            for client in np.flatnonzero(values >= 0).tolist():
                count[:, values[client]] += holders[:, client]
            self.holders.append(count)
        self.spare = copies.diversity(held) - copies.needed

    def swap(self, first: int, second: int) -> bool:
        """Swap as many copies as pays; whether any was."""
        give, give_gain = self._movable(first, second)
        take, take_gain = self._movable(second, first)
        pairs = min(len(give), len(take))
        number = int(np.searchsorted(give_gain[:pairs] + take_gain[:pairs], 0))
        if not number:
            return False
        self._move(give[:number], first, second)
        self._move(take[:number], second, first)
        return True

    def _movable(self, source: int, target: int) -> tuple[Int64Array, Int64Array]:
        """Tasks whose copy may go from source to target, cheapest first, and what that costs."""
        tasks = np.flatnonzero(self.held[:, source] & ~self.held[:, target] & (self.copies.active != target))
        tasks = tasks[self._change(tasks, source, target) + self.spare[tasks] >= 0]
        gain = self.cost[tasks, target] - self.cost[tasks, source]
        order = np.argsort(gain, kind="stable")
        return tasks[order], gain[order]

    def _change(self, tasks: Int64Array, source: int, target: int) -> Int64Array:
        """How the diversity of the tasks changes if their copies go from source to target."""
        change = np.zeros(len(tasks), dtype=np.int64)
        for key, count in enumerate(self.holders):
            old, new = self.copies.tag_value[[source, target], key].tolist()
            if old == new:
                continue
            if old >= 0:
                change -= count[tasks, old] == 1
            if new >= 0:
                change += count[tasks, new] == 0
        return change

    def _move(self, tasks: Int64Array, source: int, target: int) -> None:
        self.spare[tasks] += self._change(tasks, source, target)
        self.held[tasks, source] = False
        self.held[tasks, target] = True
        for key, count in enumerate(self.holders):
            old, new = self.copies.tag_value[[source, target], key].tolist()
            if old >= 0:
                count[tasks, old] -= 1
            if new >= 0:
                count[tasks, new] += 1
