"""Copies dealt out in turn, then swapped until no item has two on one owner: for many items and many owners.

Swaps leave the number of copies per owner as it is. With few owners, where conflicts are many, `engine/copies_flow.py` is used.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from task_assignor.engine.items import rank_within
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array

NONE: Final = -1
SWAP_ROUNDS: Final = 16
"""Rounds in which all conflicts are swapped with others at once, before the rest is looked at owner by owner."""


def deal(holder: Int32Array, fixed: Int64Array, need: Int64Array, counts: Int64Array) -> None:
    """Fill the open places of items with owners.

    Args:
        holder: (N, H) owners of each item: the first `fixed` are given, the next `need` are filled in here; -1: none.
        fixed: (N,) number of owners that each item has.
        need: (N,) number of owners that it gets.
        counts: (C,) number of copies for each owner; they add up to the needs.
    """
    item = np.repeat(np.arange(len(need)), need)
    column = fixed[item] + rank_within(item)
    slots = np.repeat(np.arange(len(counts)), counts)
    turn = rank_within(slots)
    # Item by item, or one copy of all items after the other (where an owner has copies of nearly all); the owners in turn,
    # from the first one or from a later one (where the items themselves were dealt out in the same way).
    ways = [
        (way, np.lexsort(((slots + shift) % len(counts), turn)))
        for way in (np.arange(len(item)), np.lexsort(((item + column * 7919) % len(need), column)))
        for shift in (0, 1, len(counts) // 3)
    ]
    conflicts = []
    for way, order in ways:
        holder[item[way], column[way]] = slots[order]
        conflicts.append(int(_Deal(holder, item, column, len(counts)).conflicts().sum()))
    way, order = ways[int(np.argmin(conflicts))]
    holder[item[way], column[way]] = slots[order]
    _Deal(holder, item, column, len(counts)).resolve()


class _Deal:
    """Copies that were dealt out: entry e is the copy of item[e] in holder[item[e], column[e]]."""

    def __init__(self, holder: Int32Array, item: Int64Array, column: Int64Array, owners: int) -> None:
        self.holder = holder
        self.item = item
        self.column = column
        self.owners = owners

    def resolve(self) -> None:
        """Swap copies until none is where its item is already."""
        for number in range(SWAP_ROUNDS):
            bad = np.flatnonzero(self.conflicts())
            if not len(bad):
                return
            if number % 2 == 0:
                # With each other: those of one owner with those of the owners furthest away.
                bad = bad[np.argsort(self._owners(bad), kind="stable")]
                half = len(bad) // 2
                self._swap_pairs(bad[:half], np.roll(bad[half : 2 * half], number // 2))
            else:
                # With any others, at changing distances.
                others = (bad + (number + 1) * 7919) % len(self.item)
                free = ~np.isin(others, bad)
                self._swap_pairs(bad[free], others[free])
        bad = np.flatnonzero(self.conflicts())
        owners = self._owners(bad)
        for owner in distinct(owners).tolist():
            self._swap_away(owner, bad[owners == owner])

    def _owners(self, entries: Int64Array) -> Int32Array:
        owners: Int32Array = self.holder[self.item[entries], self.column[entries]]
        return owners

    def conflicts(self) -> BoolArray:
        """Whether the copy's owner holds the item in another place as well: of two copies the later one counts."""
        own = self.holder[self.item, self.column]
        found = np.zeros(len(self.item), dtype=np.bool_)
        for other in range(self.holder.shape[1]):
            found |= (self.holder[self.item, other] == own) & (other < self.column)
        return found

    def _swap_pairs(self, first: Int64Array, second: Int64Array) -> None:
        """Swap the owners of pairs of copies where that ends a conflict and makes none. Each copy takes part once."""
        apart = (first != second) & (self.item[first] != self.item[second])
        first, second = first[apart], second[apart]
        # A pair counts only if neither of its items takes part in an earlier pair.
        both = np.stack([self.item[first], self.item[second]], axis=1).ravel()
        _, seen = np.unique(both, return_index=True)
        is_first = np.zeros(len(both), dtype=np.bool_)
        is_first[seen] = True
        alone = is_first.reshape(-1, 2).all(axis=1)
        first, second = first[alone], second[alone]
        ours, theirs = self._owners(first), self._owners(second)
        fits = ~self._holds(self.item[first], theirs) & ~self._holds(self.item[second], ours)
        first, second = first[fits], second[fits]
        self.holder[self.item[first], self.column[first]] = theirs[fits]
        self.holder[self.item[second], self.column[second]] = ours[fits]

    def _holds(self, item: Int64Array, owner: Int32Array) -> BoolArray:
        holds: BoolArray = (self.holder[item] == owner[:, None]).any(axis=1)
        return holds

    def _swap_away(self, owner: int, conflicts: Int64Array) -> None:
        """End all conflicts at one owner: swap with copies, dealt out or not, of items that the owner does not hold.

        A conflict for which there is none goes to any owner that does not hold the item: then the counts change.
        """
        takers = np.flatnonzero(~(self.holder == owner).any(axis=1) & (self.holder[:, 0] >= 0))
        # Of each owner the copies that could be had; an item can take part once, as the owner holds it then.
        offers: dict[int, deque[tuple[int, int]]] = {}
        for column in range(1, self.holder.shape[1]):
            there = self.holder[takers, column]
            for one in distinct(there[there >= 0]).tolist():
                rows = takers[there == one][: len(conflicts)].tolist()
                offers.setdefault(one, deque()).extend((row, column) for row in rows)
        used: set[int] = set()
        for entry in conflicts.tolist():
            row = self.holder[self.item[entry]]
            if int((row == owner).sum()) < 2:
                continue
            holders = set(row.tolist())
            row[self.column[entry]] = self._offer(owner, holders, offers, used)

    def _offer(self, owner: int, holders: set[int], offers: dict[int, deque[tuple[int, int]]], used: set[int]) -> int:
        """An owner outside `holders` whose copy of another item was handed to `owner`."""
        for other in list(offers):
            if other in holders:
                continue
            queue = offers[other]
            while queue:
                item, column = queue.popleft()
                if item not in used and int(self.holder[item, column]) == other:
                    used.add(item)
                    self.holder[item, column] = owner
                    return other
            del offers[other]
        return next(one for one in range(self.owners) if one not in holders)
