"""Copies of very many items: cells of alike owners in place of owners, decision after decision. The path for large sizes.

First who keeps what, then which tag values, then which zones (`engine/copies/zones.py`); who of a cell's owners gets a copy
is dealt out.
"""

from __future__ import annotations

import itertools

import numpy as np

from task_assignor.engine.claims import most_kept
from task_assignor.engine.copies.at_once import AtOnce
from task_assignor.engine.copies.deal import deal, deal_in_cells
from task_assignor.engine.copies.flow import (
    Freed,
    FreedFlow,
    Prices,
    Special,
    TooManyPairsError,
    bit_count,
)
from task_assignor.engine.copies.goals import CopiedItems
from task_assignor.engine.copies.zones import in_cheap_zones
from task_assignor.engine.flow import InfeasibleFlowError
from task_assignor.engine.items import NOBODY, Pairs, rank_within
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import BoolArray, Int64Array


def place_by_cells(items: CopiedItems, at_once: AtOnce | None) -> tuple[Int64Array, int | None] | None:
    """(R, H) holders, and a bound of the cost if one is known; None: copies would meet, however they are dealt out.

    Args:
        items: those that get copies.
        at_once: what one flow found, if it was asked.
    """
    holders = _kept_and_dealt(items, _kept(items))
    if holders is None:
        holders = _kept_and_dealt(items, np.zeros(len(items.claim_item), dtype=np.bool_))
    if holders is None:
        return None
    holders = _spread_over_tags(items, holders)
    return in_cheap_zones(items, holders, at_once)


def _kept(items: CopiedItems) -> BoolArray:
    """(P,) which claims are kept: most of them; first, of one item and of one owner, the cheap ones of least rank."""
    room, item, owner = items.problem.room, items.claim_item, items.claim_owner
    traffic = items.prices.costs.at(items.row[item], items.zone[owner])
    order = order_by(item, traffic, items.claim_rank, owner)
    best = order[rank_within(item[order]) < items.needs[item[order]]]
    best = best[order_by(owner[best], traffic[best], items.claim_rank[best], item[best])]
    place = rank_within(owner[best])
    more = best[(place >= room.low[owner[best]]) & (place < room.high[owner[best]])]
    kept = np.zeros(len(item), dtype=np.bool_)
    kept[best[place < room.low[owner[best]]]] = True
    kept[more[: int(items.needs.sum() - room.low.sum())]] = True
    return most_kept(Pairs.of(item, owner), kept, items.needs, room.low, room.high)


def _kept_and_dealt(items: CopiedItems, kept: BoolArray) -> Int64Array | None:
    room = items.problem.room
    holders = items.table(items.claim_item[kept], items.claim_owner[kept])
    number = (holders[:, 1:] >= 0).sum(axis=1)
    used = np.bincount(items.claim_owner[kept], minlength=items.owners)
    item = np.repeat(np.arange(len(items)), items.needs - number)
    one = np.zeros(items.owners, dtype=np.int64)
    nobody = np.full(len(item), NOBODY, dtype=np.int64)
    left = np.maximum(room.low - used, 0), room.high - used
    return deal(holders, item, np.zeros_like(item), nobody, nobody < 0, one, left)


def _spread_over_tags(items: CopiedItems, holders: Int64Array) -> Int64Array:
    """Free one copy of every item and place these anew by tag values, in turn, until none is missing less."""
    keys = items.value.shape[1]
    while keys:
        try:
            return _Tags(items, keys).improved(holders)
        except TooManyPairsError:
            keys -= 1
    return holders


class _Tags:
    """Turns over cells of owners with equal tags; only the keys with fewest values tell owners apart."""

    def __init__(self, items: CopiedItems, keys: int) -> None:
        self.items = items
        self.cells = items.of_tags(keys)
        self.shown = np.bitwise_or.reduce(self.cells.bits, axis=0)
        self.is_small = self.cells.size <= items.most

    def improved(self, holders: Int64Array) -> Int64Array:
        """See `_spread_over_tags`."""
        turns = itertools.count()
        # In the end once more as a second call would look at it, for which every copy is where one was.
        for self.as_second in (False, True):
            holders = self.items.improved(holders, turns, self._turn, lambda held: (self.items.missing(held),))
        return holders

    def _turn(self, holders: Int64Array, columns: Int64Array) -> Int64Array:
        items, cells, every = self.items, self.cells, np.arange(len(holders))
        fixed, current, room = items.without(holders, columns)
        present = items.present(fixed)
        wanted = np.maximum(items.wanted - bit_count(present), 0)
        present &= self.shown
        claim = np.zeros_like(every) if self.as_second else items.claim_of(every, current)
        held = np.where(fixed >= 0, cells.of_owner[fixed], NOBODY)
        is_away = claim < 0
        freed = Freed(
            row=np.zeros_like(every),
            special=Special(cell=cells.of_owner[current], is_away=is_away),
            present=present,
            wanted=np.minimum(wanted, items.value.shape[1]),
            blocked=np.where((held >= 0) & self.is_small[held], held, NOBODY),
        )
        flow = FreedFlow(freed, cells, Prices.nothing())
        if not flow.may_gain():
            return holders
        least, most = (np.bincount(cells.of_owner, part, len(cells.zone)).astype(np.int64) for part in room)
        try:
            item, cell = flow.pairs(least, most)
        except InfeasibleFlowError:
            return holders
        target = np.empty_like(every)
        target[item] = cell
        dealt = deal_in_cells(items, holders, (every, columns), target, is_away, cells.of_owner, room)
        return holders if dealt is None else dealt
