"""Copies of very many items: cells of alike owners in place of owners, decision after decision. The path for large sizes.

First who keeps what, then which tag values, then which zones; who of a cell's owners gets a copy is dealt out.
"""

from __future__ import annotations

import itertools

import numpy as np

from task_assignor.engine.claims import most_kept
from task_assignor.engine.copy_deal import deal
from task_assignor.engine.copy_flow import (
    Freed,
    FreedFlow,
    Prices,
    Special,
    TooManyPairsError,
    bit_count,
)
from task_assignor.engine.copy_goals import Rows, copies_of
from task_assignor.engine.flow import InfeasibleFlowError
from task_assignor.engine.items import NOBODY, Pairs, rank_within, sums
from task_assignor.engine.places import min_cost_places
from task_assignor.engine.places_problem import PlacesProblem
from task_assignor.sdk.arrays import distinct_and_numbers, order_by, values_of
from task_assignor.sdk.columns import BoolArray, Int64Array


def place_by_cells(rows: Rows) -> tuple[Int64Array, int | None] | None:
    """(R, H) holders, and a bound of the cost if one is known; None: copies would meet, however they are dealt out."""
    holders = _kept_and_dealt(rows, _kept(rows))
    if holders is None:
        holders = _kept_and_dealt(rows, np.zeros(len(rows.claim_row), dtype=np.bool_))
    if holders is None:
        return None
    holders = _spread_over_tags(rows, holders)
    return _in_cheap_zones(rows, holders)


def _kept(rows: Rows) -> BoolArray:
    """(P,) which claims are kept: most of them; first, of one item and of one owner, the cheap ones of least rank."""
    room, item, owner = rows.problem.room, rows.claim_row, rows.claim_owner
    traffic = rows.prices.costs.at(rows.cost_row[item], rows.zone[owner])
    order = order_by(item, traffic, rows.claim_rank, owner)
    best = order[rank_within(item[order]) < rows.needs[item[order]]]
    best = best[order_by(owner[best], traffic[best], rows.claim_rank[best], item[best])]
    place = rank_within(owner[best])
    more = best[(place >= room.low[owner[best]]) & (place < room.high[owner[best]])]
    kept = np.zeros(len(item), dtype=np.bool_)
    kept[best[place < room.low[owner[best]]]] = True
    kept[more[: int(rows.needs.sum() - room.low.sum())]] = True
    return most_kept(Pairs.of(item, owner), kept, rows.needs, room.low, room.high)


def _kept_and_dealt(rows: Rows, kept: BoolArray) -> Int64Array | None:
    room = rows.problem.room
    holders = rows.table(rows.claim_row[kept], rows.claim_owner[kept])
    number = (holders[:, 1:] >= 0).sum(axis=1)
    used = np.bincount(rows.claim_owner[kept], minlength=rows.owners)
    row = np.repeat(np.arange(len(rows.item)), rows.needs - number)
    one = np.zeros(rows.owners, dtype=np.int64)
    nobody = np.full(len(row), NOBODY, dtype=np.int64)
    left = np.maximum(room.low - used, 0), room.high - used
    return deal(holders, row, np.zeros_like(row), nobody, nobody < 0, one, left)


def _formers(rows: Rows, fixed: Int64Array, row: Int64Array, cell: Int64Array, of_owner: Int64Array) -> Int64Array:
    """(E,) of the owners of the cell one where a copy of the row was and none is now; -1: there is none."""
    asks = np.zeros(len(fixed), dtype=np.bool_)
    asks[row] = True
    asked = np.flatnonzero(asks[rows.claim_row])
    is_open = asked[~(fixed[rows.claim_row[asked]] == rows.claim_owner[asked][:, None]).any(axis=1)]
    if not len(is_open):
        return np.full(len(row), NOBODY, dtype=np.int64)
    cells = int(of_owner.max()) + 1
    keys = rows.claim_row[is_open] * cells + of_owner[rows.claim_owner[is_open]]
    order = order_by(keys, rows.claim_rank[is_open])
    keys, is_open = keys[order], is_open[order]
    wanted = row * cells + cell
    former = values_of(keys, rows.claim_owner[is_open], wanted, NOBODY)
    return np.where(rank_within(wanted) == 0, former, NOBODY)


def _dealt(
    rows: Rows,
    holders: Int64Array,
    copies: tuple[Int64Array, Int64Array],
    cell: Int64Array,
    is_away: BoolArray,
    of_owner: Int64Array,
    room: tuple[Int64Array, Int64Array],
) -> Int64Array | None:
    """The holders after copies, by row and column, have gone to the cells; None: they would meet.

    Those that change cells go where one was before, if they can.
    """
    row, owner, fixed = copies[0], holders[copies], holders.copy()
    moved = np.flatnonzero(of_owner[owner] != cell)
    fixed[row[moved], copies[1][moved]] = NOBODY
    former = owner.copy()
    former[moved] = _formers(rows, fixed, row[moved], cell[moved], of_owner)
    fixed[copies] = NOBODY
    return deal(fixed, row, cell, former, is_away, of_owner, room)


def _spread_over_tags(rows: Rows, holders: Int64Array) -> Int64Array:
    """Free one copy of every item and place these anew by tag values, in turn, until none is missing less."""
    keys = rows.value.shape[1]
    while keys:
        try:
            return _Tags(rows, keys).improved(holders)
        except TooManyPairsError:
            keys -= 1
    return holders


class _Tags:
    """Turns over cells of owners with equal tags; only the keys with fewest values tell owners apart."""

    def __init__(self, rows: Rows, keys: int) -> None:
        self.rows = rows
        self.cells = rows.of_kinds(keys)
        self.shown = np.bitwise_or.reduce(self.cells.bits, axis=0)
        self.is_small = self.cells.size <= rows.most

    def improved(self, holders: Int64Array) -> Int64Array:
        """See `_spread_over_tags`."""
        turns = itertools.count()
        # In the end once more as a second call would look at it, for which every copy is where one was.
        for self.as_second in (False, True):
            holders = self.rows.improved(holders, turns, self._turn, lambda held: (self.rows.missing(held),))
        return holders

    def _turn(self, holders: Int64Array, columns: Int64Array) -> Int64Array:
        rows, cells, every = self.rows, self.cells, np.arange(len(holders))
        fixed, current, room = rows.without(holders, columns)
        present = rows.present(fixed)
        wanted = np.maximum(rows.wanted - bit_count(present), 0)
        present &= self.shown
        claim = np.zeros_like(every) if self.as_second else rows.claim_of(every, current)
        held = np.where(fixed >= 0, cells.of_owner[fixed], NOBODY)
        is_away = claim < 0
        freed = Freed(
            cost_row=np.zeros_like(every),
            special=Special(cell=cells.of_owner[current], is_away=is_away),
            present=present,
            wanted=np.minimum(wanted, rows.value.shape[1]),
            blocked=np.where((held >= 0) & self.is_small[held], held, NOBODY),
        )
        flow = FreedFlow(freed, cells, Prices.nothing())
        if not flow.may_gain():
            return holders
        least, most = (np.bincount(cells.of_owner, part, len(cells.zone)).astype(np.int64) for part in room)
        try:
            row, cell = flow.pairs(least, most)
        except InfeasibleFlowError:
            return holders
        target = np.empty_like(every)
        target[row] = cell
        dealt = _dealt(rows, holders, (every, columns), target, is_away, cells.of_owner, room)
        return holders if dealt is None else dealt


def _in_cheap_zones(rows: Rows, holders: Int64Array) -> tuple[Int64Array, int | None]:
    """Copies change zones among owners of equal tags, as if copies of one item knew nothing of each other."""
    if not (rows.prices.traffic or rows.prices.move):
        return holders, 0
    # If there were places where no copy is any more, to go back there would cost less than the bound thinks.
    row, _, owner = copies_of(holders)
    is_known = int((rows.claim_of(row, owner) >= 0).sum()) == len(rows.claim_row)
    bound = _bound(rows, holders) if is_known else None
    best = rows.total(holders)
    current, as_second = rows, is_known and not best.away and not rows.claim_rank.any()
    while bound is None or best.cost > bound:
        found = _in_cheapest_zones(current, holders)
        if found is not None and current.total(found) < current.total(holders):
            holders, best = found, rows.total(found)
        elif as_second:
            break
        # Seen from the result moving back is no longer free: look again, as a second call would.
        current, as_second = rows.from_there(holders), True
    return holders, bound


def _bound(rows: Rows, holders: Int64Array) -> int:
    """No placement costs less: the cheapest by zones alone."""
    prices, (row, _, owner) = rows.prices, copies_of(holders)
    zone = _cheapest_zones(rows, row, owner, np.arange(rows.owners))
    away = int(((rows.claim_of(row, owner) < 0) | (zone != rows.zone[owner])).sum())
    return int(prices.costs.at(rows.cost_row[row], zone).sum()) * prices.traffic + away * prices.move


def _in_cheapest_zones(rows: Rows, holders: Int64Array) -> Int64Array | None:
    """The cheapest placement in which copies stay with owners of equal tags, dealt out; None: copies would meet."""
    zones, kind, room = rows.prices.costs.cells, rows.of_kinds(rows.value.shape[1]).of_owner, rows.problem.room
    row, column, owner = copies_of(holders)
    cell = kind[owner] * zones
    for one in np.unique(kind[owner]).tolist():
        chosen = np.flatnonzero(kind[owner] == one)
        cell[chosen] += _cheapest_zones(rows, row[chosen], owner[chosen], np.flatnonzero(kind == one))
    is_away = rows.claim_of(row, owner) < 0
    return _dealt(rows, holders, (row, column), cell, is_away, kind * zones + rows.zone, (room.low, room.high))


def _cheapest_zones(rows: Rows, row: Int64Array, owner: Int64Array, members: Int64Array) -> Int64Array:
    """(E,) the cheapest zone of each copy; what the members have together in a zone stays within their room."""
    prices, room = rows.prices, rows.problem.room
    zones, number = distinct_and_numbers(rows.zone[members])
    (traffic, move), is_away = prices.in_flows, rows.claim_of(row, owner) < 0
    pair, of_copy = distinct_and_numbers(rows.cost_row[row] * 2 + is_away)
    problem = PlacesProblem(
        costs=prices.costs.of_rows(pair // 2, of_copy).times(traffic),
        item_owner=np.searchsorted(zones, rows.zone[owner]),
        move_cost=np.full(len(pair), move),
        # What is away pays for that wherever it is.
        stay_cost=pair % 2 * move,
        place_cell=zones,
        lower=sums(number, room.low[members], len(zones)),
        upper=sums(number, room.high[members], len(zones)),
    )
    return zones[min_cost_places(problem).place]
