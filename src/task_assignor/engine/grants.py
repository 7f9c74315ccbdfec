"""Wishes of items for places: granted in order of preference, then as many as can be. No owners or tasks are known here."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import most_flow
from task_assignor.engine.items import rank_within
from task_assignor.sdk.columns import BoolArray, Int64Array

GREEDY_ROUNDS: Final = 4
"""Rounds in which all wishes are looked at together, before the rest is looked at one by one."""


@attrs.frozen(eq=False)
class Wishes:
    """Pairs of item and place, the most wanted first; each pair once.

    Args:
        item: (W,) item numbers.
        place: (W,) place numbers.
        need: (N,) how many places each item wants at most.
        room: (C,) how many items each place takes.
        spare: (C,) how many more it takes if `extras` allow.
        extras: how many more all places take together.
        group: (N,) group of each item; None: each is alone.
        budget: (G,) how many wishes of a group are granted at most.
    """

    item: Int64Array
    place: Int64Array
    need: Int64Array
    room: Int64Array
    spare: Int64Array | None = None
    extras: int = 0
    group: Int64Array | None = None
    budget: Int64Array | None = None


def grant(wishes: Wishes) -> BoolArray:
    """(W,) which wishes are granted: first in their order, one after the other; then as many as there can be.

    The second step takes no place away from an item (or its group) without giving it another one.
    """
    granted = np.zeros(len(wishes.item), dtype=np.bool_)
    if not len(wishes.item):
        return granted
    state = _Left(wishes)
    state.take(granted, wishes.room.copy())
    if wishes.spare is not None and wishes.extras > 0:
        # Wishes that fit into no room: the extras are one more limit for all of them.
        state.take(granted, wishes.spare.copy(), wishes.extras)
    return _most(wishes, granted, state)


class _Left:
    """What items and groups may still be granted."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.need = wishes.need.copy()
        self.budget = None if wishes.budget is None else wishes.budget.copy()

    def take(self, granted: BoolArray, room: Int64Array, extras: int | None = None) -> None:
        """Grant open wishes in order, within `room` (and `extras` in all)."""
        open_wishes = np.flatnonzero(~granted)
        for _ in range(GREEDY_ROUNDS):
            possible = np.ones(len(open_wishes), dtype=np.bool_)
            for keys, left in self._limits(open_wishes, room):
                possible &= left[keys] > 0
            open_wishes = open_wishes[possible]
            if not len(open_wishes) or extras == 0:
                return
            # Even if all open wishes before it are granted, there is enough left for these: so their turn will come.
            sure = np.ones(len(open_wishes), dtype=np.bool_)
            for keys, left in self._limits(open_wishes, room):
                sure &= rank_within(keys) < left[keys]
            if extras is not None:
                sure &= np.arange(len(open_wishes)) < extras
            chosen = open_wishes[sure]
            granted[chosen] = True
            for keys, left in self._limits(chosen, room):
                np.subtract.at(left, keys, 1)
            extras = None if extras is None else extras - len(chosen)
            open_wishes = open_wishes[~sure]
        self._one_by_one(granted, open_wishes, room, extras)

    def _one_by_one(self, granted: BoolArray, open_wishes: Int64Array, room: Int64Array, extras: int | None) -> None:
        """The same, for wishes that wait for each other in long chains."""
        item = self.wishes.item[open_wishes]
        columns = [item, self.wishes.place[open_wishes], np.zeros_like(item)]
        budget = np.array([len(granted)])
        if self.budget is not None:
            assert self.wishes.group is not None
            columns[2], budget = self.wishes.group[item], self.budget
        need_left, room_left, budget_left = self.need.tolist(), room.tolist(), budget.tolist()
        left = len(open_wishes) if extras is None else extras
        chosen = []
        rows = zip(open_wishes.tolist(), *(column.tolist() for column in columns), strict=True)
        for wish, one, place, group in rows:
            if need_left[one] > 0 and room_left[place] > 0 and budget_left[group] > 0:
                if not left:
                    break
                left -= 1
                need_left[one] -= 1
                room_left[place] -= 1
                budget_left[group] -= 1
                chosen.append(wish)
        granted[chosen] = True
        for keys, limit in self._limits(np.array(chosen, dtype=np.int64), room):
            np.subtract.at(limit, keys, 1)

    def _limits(self, chosen: Int64Array, room: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
        item = self.wishes.item[chosen]
        limits = [(item, self.need), (self.wishes.place[chosen], room)]
        if self.budget is not None:
            assert self.wishes.group is not None
            limits.append((self.wishes.group[item], self.budget))
        return limits


def _most(wishes: Wishes, granted: BoolArray, left: _Left) -> BoolArray:
    """As many wishes as can be granted, starting from those that are."""
    waiting = left.need[wishes.item] > 0
    if left.budget is not None:
        assert wishes.group is not None
        waiting &= left.budget[wishes.group[wishes.item]] > 0
    if not (waiting & ~granted).any():
        return granted
    items, item = np.unique(wishes.item, return_inverse=True)
    places, place = np.unique(wishes.place, return_inverse=True)
    item, place = item.reshape(-1), place.reshape(-1)
    groups, group = (
        (items, np.arange(len(items))) if wishes.group is None else np.unique(wishes.group[items], return_inverse=True)
    )
    group = group.reshape(-1)
    # Nodes: groups, items, places, hub of the extras, source, sink.
    first_item, first_place = len(groups), len(groups) + len(items)
    hub = first_place + len(places)
    source, sink = hub + 1, hub + 2
    used = np.bincount(place[granted], minlength=len(places))
    room = wishes.room[places]
    spare = np.zeros_like(room) if wishes.spare is None else wishes.spare[places]
    given = np.bincount(item[granted], minlength=len(items))
    budget = wishes.need[items] if wishes.budget is None else wishes.budget[groups]
    beyond = np.maximum(used - room, 0)
    parts = [
        (np.full(len(groups), source), np.arange(len(groups)), budget, np.bincount(group, given, len(groups))),
        (group, first_item + np.arange(len(items)), wishes.need[items], given),
        (first_item + item, first_place + place, np.ones(len(item)), granted),
        (first_place + np.arange(len(places)), np.full(len(places), sink), room, used - beyond),
        (first_place + np.arange(len(places)), np.full(len(places), hub), spare, beyond),
        (np.array([hub]), np.array([sink]), np.array([wishes.extras]), np.array([beyond.sum()])),
    ]
    tails, heads, capacities, flows = (np.concatenate(part).astype(np.int64) for part in zip(*parts, strict=True))
    flow = most_flow(tails, heads, capacities, flows, source, sink)
    start = len(groups) + len(items)
    return flow[start : start + len(item)] > 0
