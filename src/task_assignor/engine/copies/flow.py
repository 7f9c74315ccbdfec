"""Where freed copies go, by one flow over classes of items and cells of owners: the goals of copies in order.

A cell is one owner, or owners that are alike. Who of the cell gets the copy is decided in `engine/copies/deal.py`, which
copies are freed in `engine/copies/placement.py`.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import NOBODY, rank_within
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import distinct_and_numbers, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

Bits = npt.NDArray[np.uint64]
MOST_PAIRS: Final = 400_000
"""Pairs of class and cell in one flow, about half a second's work."""
WORD: Final = 62
"""Tag values per word of bits."""
_LARGEST: Final = 2**62


def _alike(column: str, value: int) -> Any:
    """A default: that number in every row of that column."""
    return attrs.Factory(lambda self: np.full(len(getattr(self, column)), value), takes_self=True)


@attrs.frozen(eq=False, kw_only=True)
class Cells:
    """Q cells of owners.

    Args:
        of_owner: (C,) cell of each owner.
        zone: (Q,) zone of each cell, which says what copies cost there.
        bits: (Q, W) tag values of its owners, a bit for each.
        value: (Q, G) number of the tag value of each key; different keys have different numbers.
    """

    of_owner: Int64Array
    zone: Int64Array
    bits: Bits
    value: Int64Array

    @property
    def size(self) -> Int64Array:
        """(Q,) number of owners."""
        return np.bincount(self.of_owner, minlength=len(self.zone))


@attrs.frozen(eq=False, kw_only=True)
class Special:
    """Cells in which a copy of an item costs less than elsewhere: where there was one before, or is one now.

    Args:
        cell: (S,) cell; of an item each one once, unless no copy must be told from another.
        is_away: (S,) no copy was there before.
        item: (S,) item; by default one after the other.
        behind: (S,) how many cells of former copies of the item are to be preferred.
        prefer: (S,) of equal ones the smallest stay.
    """

    cell: Int64Array
    is_away: BoolArray
    item: Int64Array = attrs.Factory(lambda self: np.arange(len(self.cell)), takes_self=True)
    behind: Int64Array = _alike("cell", 0)
    prefer: Int64Array = _alike("cell", 0)


@attrs.frozen(eq=False, kw_only=True)
class Freed:
    """R items of which copies are to be placed.

    Args:
        row: (R,) row of the costs.
        special: where a copy costs less.
        present: (R, W) tag values of the other holders, a bit for each.
        wanted: (R,) tag values that are wanted in addition.
        blocked: (R, B) cells in which a holder takes the room of a copy; -1: none.
        supply: (R,) number of copies to place.
        cover_key: (R,) with several copies: the tag key that counts; -1: none.
        is_new: nothing is placed yet: copies of equal items are spread over the owners.
    """

    row: Int64Array
    special: Special
    present: Bits
    wanted: Int64Array
    blocked: Int64Array
    supply: Int64Array = _alike("row", 1)
    cover_key: Int64Array = _alike("row", NOBODY)
    is_new: bool = False


@attrs.frozen(eq=False)
class Prices:
    """What copies cost.

    Args:
        costs: traffic of items by zone: cells are zones.
        zone: (C,) zone of each owner.
        traffic: cost of a unit of it.
        move: cost of a copy where none was before.
        in_flows: two smaller numbers that order all changes on a simple cycle as these two do.
    """

    costs: RowCosts
    zone: Int64Array
    traffic: int
    move: int
    in_flows: tuple[int, int]

    @classmethod
    def nothing(cls, items: int = 0, owners: int = 0) -> Prices:
        """All is free."""
        return cls(RowCosts.nothing(np.zeros(items, dtype=np.int64)), np.zeros(owners, dtype=np.int64), 0, 0, (0, 0))


def bit_count(bits: Bits) -> Int64Array:
    """(...,) number of ones in all words of the last axis."""
    # As `np.bitwise_count`, which NumPy has from 2.0 on: sums of neighbouring groups of 1, 2 and 4 bits, then of bytes.
    pairs = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + ((pairs >> np.uint64(2)) & np.uint64(0x3333333333333333))
    eights = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    # The product's highest byte is the sum of all bytes.
    counts: Int64Array = ((eights * np.uint64(0x0101010101010101)) >> np.uint64(56)).sum(axis=-1).astype(np.int64)
    return counts


class TooManyPairsError(Exception):
    """There are more pairs of class and cell than one flow should have."""


class FreedFlow:
    """The flow. Nodes: classes, cells, the hub of what cells take beyond their least, then what covers tag values.

    Args:
        freed: the copies.
        cells: where they can go.
        prices: what that costs.
        most_pairs: most pairs of class and cell.

    Raises:
        TooManyPairsError: there is too much to look at.
    """

    def __init__(self, freed: Freed, cells: Cells, prices: Prices, most_pairs: int = MOST_PAIRS) -> None:
        self.freed, self.cells = freed, cells
        self.q = len(cells.zone)
        # Items of one class have their holders in the same cells.
        self.classes: int = int(np.count_nonzero(np.bincount(freed.blocked[:, 0] + 1))) if freed.blocked.size else 0
        if self.classes * self.q <= most_pairs:
            self._classify()
            self.classes = len(self.first)
        if self.classes * self.q > most_pairs:
            raise TooManyPairsError
        first = self.first
        self.supply = freed.supply[first]
        size = cells.size
        room = np.broadcast_to(size, (self.classes, self.q)).copy()
        blocked = freed.blocked[first]
        for column in blocked.T:
            known = np.flatnonzero(column >= 0)
            room[known, column[known]] -= 1
        self.capacity = self.count[:, None] * np.clip(room, 0, self.supply[:, None])
        traffic, self.move = prices.in_flows
        self.cost = traffic * prices.costs.table(freed.row[first])[:, cells.zone] + self.move

    def _classify(self) -> None:
        freed, special = self.freed, self.freed.special
        # Of one cell per item it is enough to know how many items of a class have it; of several the item must be known.
        number = np.bincount(special.item, minlength=len(freed.supply))
        is_told = (number > 1) | (freed.supply > 1)
        columns: list[npt.NDArray[np.integer]] = [freed.supply, freed.wanted, freed.row, freed.cover_key]
        columns += list(freed.present.T)
        columns += list(np.sort(freed.blocked, axis=1).T)
        chosen = np.flatnonzero(is_told[special.item])
        chosen = chosen[order_by(special.item[chosen], special.cell[chosen])]
        width = int(special.behind.max(initial=0)) + 1
        told = (special.cell[chosen] * 2 + special.is_away[chosen]) * width + special.behind[chosen]
        classes = Classes.alike(*columns, labels_of_lists(len(number), special.item[chosen], told))
        self.first, self.of_item, self.count = classes.first, classes.of, classes.size
        self.is_told = is_told[self.first]

    def pairs(self, low: Int64Array, high: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Pairs (item, cell) of the freed copies by these goals, in order.

        Most of the tag values that are wanted; least cost; fewest copies where none was before; of several cells of former
        copies the preferred ones; fewest changes; the copies of equal items on many owners. Each cell takes from `low` to
        `high` copies, and of each item no more than it has owners that do not hold it yet.

        Raises:
            InfeasibleFlowError: the bounds cannot be met.
        """
        special = self.freed.special
        of_class = self.of_item[special.item]
        alike = Classes.alike(of_class, special.cell, special.is_away, special.behind)
        first, of_arc = alike.first, alike.of
        number = np.minimum(alike.size, self.capacity[of_class[first], special.cell[first]])
        s_class, s_cell = of_class[first], special.cell[first]
        self.base = self.capacity.copy()
        np.subtract.at(self.base, (s_class, s_cell), number)
        self.base = np.maximum(self.base, 0)
        self.arcs = Arcs(goals=6)
        self.nodes = self.classes + self.q + 1
        short, tail = self._short(), self._tails()
        away, behind = special.is_away[first].astype(np.int64), special.behind[first]
        special_arcs = self.arcs.add(
            tail[s_class, s_cell],
            self.classes + s_cell,
            number,
            short[s_class, s_cell],
            self.cost[s_class, s_cell] - self.move * (1 - away),
            away,
            behind,
        )
        flows = self._solved(short, tail, low, high, int(behind.max(initial=0)))
        base = np.nonzero(self.base)
        every = np.zeros_like(self.base)
        np.add.at(every, base, flows[self.base_arcs])
        if self.freed.is_new:
            every[base] += flows[self.rest_arcs]
        return self._dealt(every, s_class, s_cell, flows[special_arcs], of_arc)

    def may_gain(self) -> bool:
        """Whether there is an item whose copy, in its special cell, has not most of the wanted tag values that it can have."""
        special = self.freed.special
        short, of_class = self._short(), self.of_item[special.item]
        least = np.where(self.capacity > 0, short, short.max(initial=0)).min(axis=1, initial=_LARGEST)
        return bool((short[of_class, special.cell] > least[of_class]).any())

    def _short(self) -> Int64Array:
        """(classes, cells) wanted tag values that are missing if the copy goes there; 0 for classes with several copies."""
        wanted = self.freed.wanted[self.first][:, None]
        gain = np.zeros((self.classes, self.q), dtype=np.int64)
        for word in range(self.freed.present.shape[1]):
            fresh = self.cells.bits[None, :, word] & ~self.freed.present[self.first, word][:, None]
            gain += bit_count(fresh[:, :, None])
        return np.where(self.supply[:, None] == 1, wanted - np.minimum(gain, wanted), 0)

    def _tails(self) -> Int64Array:
        """(classes, cells) the node from which copies go there."""
        tail = np.repeat(np.arange(self.classes)[:, None], self.q, axis=1)
        is_covered = (self.supply > 1) & (self.freed.wanted[self.first] > 0)
        for key in range(self.cells.value.shape[1]):
            self._cover(np.flatnonzero(is_covered & (self.freed.cover_key[self.first] == key)), key, tail)
        return tail

    def _cover(self, chosen: Int64Array, key: int, tail: Int64Array) -> None:
        """The first copy of an item in a value that it has not yet counts; what brings nothing new goes by a detour."""
        if not len(chosen):
            return
        values, of_cell = distinct_and_numbers(self.cells.value[:, key])
        spare = self.nodes + np.arange(len(chosen))
        through = self.nodes + len(chosen) + np.arange(len(chosen) * len(values)).reshape(len(chosen), len(values))
        self.nodes += len(chosen) * (1 + len(values))
        fresh = np.broadcast_to(values >= 0, (len(chosen), len(values))).copy()
        for number, value in enumerate(values.tolist()):
            if value >= 0:
                word, bit = divmod(value, WORD)
                fresh[:, number] &= (self.freed.present[self.first[chosen], word] >> np.uint64(bit)) & np.uint64(1) == 0
        count, wanted = self.count[chosen], np.minimum(self.freed.wanted[self.first[chosen]], self.supply[chosen])
        place, value = np.nonzero(fresh)
        self.arcs.add(chosen[place], through[place, value], count[place])
        self.arcs.add(chosen, spare, count * (self.supply[chosen] - wanted))
        self.arcs.add(chosen, spare, count * wanted, 1)
        self.arcs.add(
            np.repeat(spare, len(values)), through.reshape(-1), np.repeat(count * self.supply[chosen], len(values))
        )
        tail[chosen] = through[:, of_cell]

    def _solved(
        self, short: Int64Array, tail: Int64Array, low: Int64Array, high: Int64Array, behind: int
    ) -> Int64Array:
        base = np.nonzero(self.base)
        capacity = self.base[base]
        ends, cost = (tail[base], self.classes + base[1]), (short[base], self.cost[base], 1, 0, 1)
        if self.freed.is_new:
            # No more of a class on an owner than its part, where that can be.
            part = high * (self.capacity > 0)
            part = -(-part * (self.count * self.supply)[:, None] // np.maximum(part.sum(axis=1), 1)[:, None])
            beyond = np.maximum(capacity - part[base], 0)
            capacity = capacity - beyond
            self.rest_arcs = self.arcs.add(*ends, beyond, *cost, 1)
        self.base_arcs = self.arcs.add(*ends, capacity, *cost)
        hub = self.classes + self.q
        self.arcs.add(self.classes + np.arange(self.q), hub, high - low)
        total = int((self.count * self.supply).sum())
        supplies = np.zeros(self.nodes, dtype=np.int64)
        supplies[: self.classes] = self.count * self.supply
        supplies[self.classes : hub] = -low
        supplies[hub] = int(low.sum()) - total
        # A simple cycle enters each cell and the hub at most once, by arcs of which two have a cost; between two cells
        # a path has the nodes of one class alone.
        turns = 2 * (self.q + 1)
        dearest = int(self.cost.max(initial=0))
        changes = (turns * dearest, turns, turns * behind, turns, turns)
        return solve(Network(supplies, self.arcs, longest_path=6 * (self.q + 2), changes=changes))

    def _dealt(
        self, every: Int64Array, s_class: Int64Array, s_cell: Int64Array, s_flow: Int64Array, of_arc: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """The flow as pairs (item, cell)."""
        special = self.freed.special
        # Items that are alike in all: what goes to their special cells is dealt out with the rest.
        told = self.is_told[s_class]
        np.add.at(every, (s_class[told], s_cell[told]), s_flow[told])
        order = order_by(of_arc, special.prefer, special.item)
        rank = np.empty_like(order)
        rank[order] = rank_within(of_arc[order])
        stays = (rank < s_flow[of_arc]) & ~told[of_arc]
        is_open = np.ones(len(self.of_item), dtype=np.bool_)
        is_open[special.item[stays]] = False
        item, cell = self._in_turn(np.flatnonzero(is_open), every)
        return np.concatenate([special.item[stays], item]), np.concatenate([special.cell[stays], cell])

    def _in_turn(self, items: Int64Array, every: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Each class's copies go round its items, cell after cell: no item gets two in one cell, as long as none need to.

        The items go in steps, so that neighbours are not in the same cell.
        """
        of_class = self.of_item[items]
        size = np.bincount(of_class, minlength=self.classes)
        order = order_by(of_class)
        start = np.cumsum(size) - size
        step = np.maximum(size // np.maximum(every.max(axis=1, initial=0), 1), 1)
        rank = rank_within(of_class[order])
        order = order[order_by(of_class[order], rank % np.repeat(step, size), rank)]
        which, cell = np.nonzero(every)
        key = self.freed.cover_key[self.first[which]]
        value = np.where(key >= 0, self.cells.value[cell, key], 0) if self.cells.value.shape[1] else np.zeros_like(cell)
        by_value = order_by(which, value, cell)
        which, cell = which[by_value], cell[by_value]
        copies = every[which, cell]
        of_copy, cell = np.repeat(which, copies), np.repeat(cell, copies)
        return items[order[start[of_copy] + rank_within(of_copy) % np.maximum(size[of_copy], 1)]], cell
