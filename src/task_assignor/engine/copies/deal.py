"""Who of a cell's owners gets which copy: those that stay first, then in turn; what meets changes places.

For many items and owners, where a flow over single owners would be too large. Owners of a cell are alike, so it costs
nothing to change places within one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.copies.goals import CopiedItems
from task_assignor.engine.items import NOBODY, rank_within
from task_assignor.sdk.arrays import order_by, values_of
from task_assignor.sdk.columns import BoolArray, Int64Array

SWAP_ROUNDS: Final = 40
"""Rounds in which all copies that meet change places at once; the others do so one by one."""
MOST_ONE_BY_ONE: Final = 2_000
"""With more copies that meet after these rounds, nothing is dealt out."""
FIRST_LOOK: Final = 256
"""So many copies one looks at first for one that fits, then at twice as many."""
GOLDEN: Final = 0x9E3779B1
"""Products with it, modulo 2**32, are in an order that is no order."""


def deal(
    holders: Int64Array,
    item: Int64Array,
    cell: Int64Array,
    former: Int64Array,
    is_away: BoolArray,
    of_owner: Int64Array,
    room: tuple[Int64Array, Int64Array],
) -> Int64Array | None:
    """(R, H) holders with all copies placed, ascending; None: some meet, wherever they go.

    Args:
        holders: (R, H) owners of each item: the main one first; -1 where a copy is open.
        item: (E,) item of each copy to place, ascending; as many of an item as are open.
        cell: (E,) where it goes.
        former: (E,) owner that it had better have, if that is of this cell; -1: none.
        is_away: (E,) the others stay before this one.
        of_owner: (C,) cell of each owner.
        room: (C,) fewest and most of these copies per owner; they fit the numbers of copies that go to the cells.
    """
    owners = _Owners(cell, of_owner, room)
    owner = owners.stayers(former, is_away)
    # Open places of an item are filled from the left.
    places = _open_places(holders, item)
    table = holders.copy()
    table[places] = owner
    rest = np.flatnonzero(owner < 0)
    slots = owners.slots(owner[owner >= 0])
    # Copy after copy of all items, each time in an order that is no order: owner after owner meets each item but once.
    turn = (item[rest] * GOLDEN) % (1 << 32)
    owner[rest[order_by(cell[rest], rank_within(item[rest]), turn)]] = slots
    moved = (places[0] * table.shape[1] + places[1])[rest]
    table[places] = owner
    return ascending(table) if _Swaps(table, moved, of_owner).settle() else None


def formers(
    items: CopiedItems, fixed: Int64Array, item: Int64Array, cell: Int64Array, of_owner: Int64Array
) -> Int64Array:
    """(E,) of the owners of the cell one where a copy of the item was and none is now, for each another; -1: there is none."""
    asks = np.zeros(len(fixed), dtype=np.bool_)
    asks[item] = True
    asked = np.flatnonzero(asks[items.claim_item])
    is_open = asked[~(fixed[items.claim_item[asked]] == items.claim_owner[asked][:, None]).any(axis=1)]
    if not len(is_open):
        return np.full(len(item), NOBODY, dtype=np.int64)
    cells = int(of_owner.max()) + 1
    keys = items.claim_item[is_open] * cells + of_owner[items.claim_owner[is_open]]
    order = order_by(keys, items.claim_rank[is_open])
    keys, is_open, wanted = keys[order], is_open[order], item * cells + cell
    # Of several copies that go to one cell each takes another one.
    keys, wanted = (one * items.owners + rank_within(one) for one in (keys, wanted))
    return values_of(keys, items.claim_owner[is_open], wanted, NOBODY)


def deal_in_cells(
    items: CopiedItems,
    holders: Int64Array,
    copies: tuple[Int64Array, Int64Array],
    cell: Int64Array,
    is_away: BoolArray,
    of_owner: Int64Array,
    room: tuple[Int64Array, Int64Array],
) -> Int64Array | None:
    """The holders after copies, by item and column, have gone to the cells; None: they would meet.

    Those that change cells go where one was before, if they can.
    """
    item, owner, fixed = copies[0], holders[copies], holders.copy()
    moved = np.flatnonzero(of_owner[owner] != cell)
    fixed[item[moved], copies[1][moved]] = NOBODY
    former = owner.copy()
    former[moved] = formers(items, fixed, item[moved], cell[moved], of_owner)
    fixed[copies] = NOBODY
    return deal(fixed, item, cell, former, is_away, of_owner, room)


def ascending(holders: Int64Array) -> Int64Array:
    """The same holders, copies ascending, -1 last."""
    limit = np.iinfo(np.int64).max
    copies = np.sort(np.where(holders[:, 1:] < 0, limit, holders[:, 1:]), axis=1)
    return np.concatenate([holders[:, :1], np.where(copies == limit, NOBODY, copies)], axis=1)


def _open_places(holders: Int64Array, item: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Row and column of each copy to place."""
    number = np.bincount(item, minlength=len(holders))
    is_open = holders < 0
    is_open[:, 0] = False
    is_open &= np.cumsum(is_open, axis=1) <= number[:, None]
    places, column = np.nonzero(is_open)
    return places.astype(np.int64), column.astype(np.int64)


class _Owners:
    """Who takes the copies that go to each cell."""

    def __init__(self, cell: Int64Array, of_owner: Int64Array, room: tuple[Int64Array, Int64Array]) -> None:
        self.cell, self.of_owner, (self.low, self.high) = cell, of_owner, room
        self.number = np.bincount(cell, minlength=int(of_owner.max(initial=0)) + 1)

    def stayers(self, former: Int64Array, is_away: BoolArray) -> Int64Array:
        """(E,) owner of each copy that stays; -1: it does not."""
        owner = np.full(len(self.cell), NOBODY, dtype=np.int64)
        stays = np.flatnonzero((former >= 0) & (self.of_owner[former] == self.cell))
        stays = stays[order_by(is_away[stays])]
        rank = rank_within(former[stays])
        sure = rank < self.low[former[stays]]
        owner[stays[sure]] = former[stays[sure]]
        more = stays[~sure & (rank < self.high[former[stays]])]
        more = more[rank_within(self.cell[more]) < self._beyond(self.low)[self.cell[more]]]
        owner[more] = former[more]
        return owner

    def slots(self, used: Int64Array) -> Int64Array:
        """Owners for the other copies, cell after cell, as often as they take one.

        Args:
            used: owners of the copies that stay.
        """
        taken = np.bincount(used, minlength=len(self.low))
        sure = np.maximum(self.low, taken)
        # One more each in turn, as many as the cell has beyond that.
        owner = np.repeat(np.arange(len(sure)), self.high - sure)
        owner = owner[order_by(self.of_owner[owner], rank_within(owner), owner)]
        chosen = owner[rank_within(self.of_owner[owner]) < self._beyond(sure)[self.of_owner[owner]]]
        counts = sure - taken + np.bincount(chosen, minlength=len(sure))
        # The owners with most first: their copies need most items.
        order = order_by(self.of_owner, -counts)
        return np.repeat(order, counts[order])

    def _beyond(self, numbers: Int64Array) -> Int64Array:
        """(Q,) copies of each cell beyond these numbers of its owners."""
        return self.number - np.bincount(self.of_owner, numbers, len(self.number)).astype(np.int64)


class _Swaps:
    """Copies that meet another one of their item change places with copies of other items."""

    def __init__(self, table: Int64Array, moved: Int64Array, of_owner: Int64Array) -> None:
        self.table, self.of_owner, self.moved = table, of_owner, moved
        self.width = table.shape[1]

    def settle(self) -> bool:
        """Let copies change places until none meets another; whether that was possible."""
        flat = self.table.reshape(-1)
        bad = self.moved[self._meets(self.moved)]
        if not len(bad):
            return True
        copies = self.table >= 0
        copies[:, 0] = False
        self.every = np.flatnonzero(copies)
        for number in range(SWAP_ROUNDS):
            if number in (0, SWAP_ROUNDS // 2):
                # With those that move first: who was there before had better stay.
                pool = self.moved if not number else self.every
                pool = pool[order_by(self.of_owner[flat[pool]])]
                cells = self.of_owner[flat[pool]]
                start = np.searchsorted(cells, np.arange(int(self.of_owner.max()) + 2))
            own = self.of_owner[flat[bad]]
            size = start[own + 1] - start[own]
            turn = (bad * GOLDEN + number * 7919 * (bad % 31 + 1)) % (1 << 32) % np.maximum(size, 1)
            partner = pool[np.minimum(start[own] + turn, len(pool) - 1)]
            self._swap(bad[size > 0], partner[size > 0])
            bad = bad[self._meets(bad)]
            if not len(bad):
                return True
        # Whoever takes part in a swap may meet nobody then: only these are left.
        if len(bad) > MOST_ONE_BY_ONE:
            return False
        self.by_cell = self.every[order_by(self.of_owner[flat[self.every]])]
        self.start = np.searchsorted(self.of_owner[flat[self.by_cell]], np.arange(int(self.of_owner.max()) + 2))
        return all(self._swap_one(entry) for entry in bad.tolist())

    def _meets(self, entries: Int64Array) -> BoolArray:
        """(E,) whether the copy's owner is the main one, or has an earlier copy."""
        item, column = np.divmod(entries, self.width)
        own = self.table[item, column]
        found = np.zeros(len(entries), dtype=np.bool_)
        for other in range(self.width):
            found |= (self.table[item, other] == own) & (other != column)
        # Of two copies that meet both are named; one swap may be enough.
        return found

    def _swap(self, first: Int64Array, second: Int64Array) -> None:
        """Pairs of copies change places where neither meets another one then. Each item takes part once."""
        items = np.stack([first // self.width, second // self.width], axis=1)
        apart = items[:, 0] != items[:, 1]
        first, second, items = first[apart], second[apart], items[apart]
        _, seen = np.unique(items.reshape(-1), return_index=True)
        is_first = np.zeros(2 * len(items), dtype=np.bool_)
        is_first[seen] = True
        alone = is_first.reshape(-1, 2).all(axis=1)
        first, second, items = first[alone], second[alone], items[alone]
        flat = self.table.reshape(-1)
        ours, theirs = flat[first], flat[second]
        fits = ~(self.table[items[:, 0]] == theirs[:, None]).any(axis=1)
        fits &= ~(self.table[items[:, 1]] == ours[:, None]).any(axis=1)
        flat[first[fits]], flat[second[fits]] = theirs[fits], ours[fits]

    def _swap_one(self, entry: int) -> bool:
        """Change places with the first copy that fits: of the same cell, else of any; whether there was one."""
        if not self._meets(np.array([entry]))[0]:
            return True
        flat, item = self.table.reshape(-1), entry // self.width
        own = int(flat[entry])
        cell = slice(*self.start[self.of_owner[own] : self.of_owner[own] + 2].tolist())
        near = self._first_that_fits(self.by_cell[cell], own, self.table[item])
        other = self._first_that_fits(self.every, own, self.table[item]) if near is None else near
        if other is None:
            return False
        if near is None:
            # Each is in the other's cell now.
            other_cell = self.of_owner[flat[other]]
            there = slice(*self.start[other_cell : other_cell + 2].tolist())
            ours, theirs = (
                np.flatnonzero(self.by_cell[part] == one)[0] for part, one in ((cell, entry), (there, other))
            )
            self.by_cell[cell][ours], self.by_cell[there][theirs] = other, entry
        flat[entry], flat[other] = flat[other], own
        return True

    def _first_that_fits(self, entries: Int64Array, own: int, holders: Int64Array) -> int | None:
        """The first of the copies whose owner does not hold this item, while this owner does not hold theirs."""
        first, size = 0, FIRST_LOOK
        while first < len(entries):
            some = entries[first : first + size]
            fits = ~(self.table.reshape(-1)[some][:, None] == holders).any(axis=1)
            fits &= ~(self.table[some // self.width] == own).any(axis=1)
            if fits.any():
                return int(some[fits.argmax()])
            first, size = first + size, 2 * size
        return None
