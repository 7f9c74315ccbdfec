"""Copies (standbys) of items: each on owners of its own, as even as can be in total, most of them where they were."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array
from task_assignor.utils._engine import Pairs
from task_assignor.utils._spread import even_counts

NONE: Final = -1
SWAP_ROUNDS: Final = 48
"""Rounds in which all conflicts are swapped with others at once, before the rest is looked at one by one."""


@attrs.frozen(eq=False)
class Copies:
    """The answer: pairs (item, owner), sorted.

    Args:
        item: (N,) item numbers.
        owner: (N,) owner numbers.
        short: (M,) items that have fewer copies than wanted, because there are too few owners.
    """

    item: Int32Array
    owner: Int32Array
    short: Int64Array


@attrs.frozen(eq=False)
class CopyBounds:
    """How many items and copies owners can hold.

    Args:
        needs: (N,) copies that each item can have.
        least: (C,) the items themselves.
        most: (C,) the items, and a copy of every item that has copies and is elsewhere.
        total: all items and copies.
    """

    needs: Int64Array
    least: Int64Array
    most: Int64Array
    total: int


def copy_bounds(main_owner: Int64Array, wanted: Int64Array, owners: int) -> CopyBounds:
    """The bounds for `wanted` copies of items that are with `main_owner` (-1: nobody)."""
    is_owned = main_owner >= 0
    needs = np.minimum(wanted, owners - is_owned)
    least = np.bincount(main_owner[is_owned], minlength=owners)
    copied_here = np.bincount(main_owner[is_owned & (needs > 0)], minlength=owners)
    most = least + int((needs > 0).sum()) - copied_here
    return CopyBounds(needs, least, most, int(least.sum() + needs.sum()))


def place_copies(main_owner: Int64Array, wanted: Int64Array, weight: Int64Array, claims: Pairs) -> Copies:
    """Place `wanted` copies of every item on distinct owners other than its main owner.

    In this order: as many copies as there can be; the spread of all items and copies per unit of weight is smallest;
    copies stay where they were; copies of neighbouring items land on different owners.

    Args:
        main_owner: (N,) owner of the item itself; -1: nobody.
        wanted: (N,) copies wanted.
        weight: (C,) weights of the owners.
        claims: who had which item or copy before, and how far behind it is (less is better).
    """
    bounds = copy_bounds(main_owner, wanted, len(weight))
    needs = bounds.needs
    short = np.flatnonzero(needs < wanted)
    if not needs.any():
        none = np.zeros(0, dtype=np.int32)
        return Copies(none, none, short)
    demand = bounds.least + np.bincount(claims.owner, minlength=len(weight))
    counts = even_counts(weight, bounds.least, bounds.most, bounds.total, demand) - bounds.least
    table = _Table(main_owner, needs, counts)
    table.keep(claims)
    table.deal()
    return table.copies(short)


class _Table:
    """`holder[n, 0]` is the main owner of item n, `holder[n, 1:]` are the owners of its copies; -1: none (yet)."""

    def __init__(self, main_owner: Int64Array, needs: Int64Array, counts: Int64Array) -> None:
        self.needs = needs
        self.room = counts.copy()
        self.holder = np.full((len(main_owner), int(needs.max()) + 1), NONE, dtype=np.int32)
        self.holder[:, 0] = main_owner
        self.filled = np.zeros(len(main_owner), dtype=np.int64)

    def keep(self, claims: Pairs) -> None:
        """Copies stay where they were, least behind first, within what items need and owners have room for."""
        usable = (self.needs[claims.item] > 0) & (self.holder[claims.item, 0] != claims.owner)
        claims = claims.where(usable)
        claims = claims.where(np.lexsort((claims.owner, claims.item, claims.rank)))
        for _ in range(3):
            # Items first, then owners: each round can only lose claims that a later round can bring back.
            open_claims = (self.filled[claims.item] < self.needs[claims.item]) & (self.room[claims.owner] > 0)
            claims = claims.where(open_claims)
            if not len(claims.item):
                return
            by_item = _rank_within(claims.item) < (self.needs - self.filled)[claims.item]
            chosen = np.flatnonzero(by_item)
            chosen = chosen[_rank_within(claims.owner[chosen]) < self.room[claims.owner[chosen]]]
            self._put(claims.item[chosen], claims.owner[chosen])
            left = np.ones(len(claims.item), dtype=np.bool_)
            left[chosen] = False
            claims = claims.where(left)

    def _put(self, item: Int64Array, owner: Int64Array) -> None:
        column = 1 + self.filled[item] + _rank_within(item)
        self.holder[item, column] = owner
        np.add.at(self.filled, item, 1)
        np.subtract.at(self.room, owner, 1)

    def deal(self) -> None:
        """Deal out the copies that are still missing, then swap those that cannot be where they landed."""
        missing = self.needs - self.filled
        item = np.repeat(np.arange(len(missing)), missing)
        if not len(item):
            return
        column = 1 + self.filled[item] + _rank_within(item)
        slots = np.repeat(np.arange(len(self.room)), self.room)
        order = np.lexsort((slots, _rank_within(slots)))
        owner = slots[order][: len(item)]
        self._swap_all(item, column, owner)

    def _swap_all(self, item: Int64Array, column: Int64Array, owner: Int64Array) -> None:
        """Give every open copy its owner; conflicts change places with copies that can take theirs."""
        self.holder[item, column] = owner
        self.filled = self.needs.copy()
        for number in range(SWAP_ROUNDS):
            bad = np.flatnonzero(self._conflicts(item, column))
            if not len(bad):
                return
            if number % 2 == 0:
                # With each other: those of one owner with those of the owners furthest away.
                bad = bad[np.argsort(self.holder[item[bad], column[bad]], kind="stable")]
                half = len(bad) // 2
                self._swap_pairs(item, column, bad[:half], np.roll(bad[half : 2 * half], number // 2))
            else:
                # With any others, at changing distances.
                others = (bad + (number + 1) * 7919) % len(item)
                free = ~np.isin(others, bad)
                self._swap_pairs(item, column, bad[free], others[free])
        for entry in np.flatnonzero(self._conflicts(item, column)).tolist():
            self._swap_one(int(item[entry]), int(column[entry]))

    def _conflicts(self, item: Int64Array, column: Int64Array) -> BoolArray:
        """Whether the copy's owner holds the item in an earlier column as well."""
        own = self.holder[item, column]
        found = np.zeros(len(item), dtype=np.bool_)
        for other in range(self.holder.shape[1]):
            found |= (self.holder[item, other] == own) & (other != column)
        return found

    def _swap_pairs(self, item: Int64Array, column: Int64Array, first: Int64Array, second: Int64Array) -> None:
        """Swap the owners of pairs of copies where that ends a conflict and makes none. Each copy takes part once."""
        apart = (first != second) & (item[first] != item[second])
        first, second = first[apart], second[apart]
        # A pair counts only if neither of its items takes part in an earlier pair.
        both = np.stack([item[first], item[second]], axis=1).ravel()
        _, seen = np.unique(both, return_index=True)
        is_first = np.zeros(len(both), dtype=np.bool_)
        is_first[seen] = True
        alone = is_first.reshape(-1, 2).all(axis=1)
        first, second = first[alone], second[alone]
        ours, theirs = self.holder[item[first], column[first]], self.holder[item[second], column[second]]
        fits = ~self._holds(item[first], theirs) & ~self._holds(item[second], ours)
        first, second, ours, theirs = first[fits], second[fits], ours[fits], theirs[fits]
        self.holder[item[first], column[first]] = theirs
        self.holder[item[second], column[second]] = ours

    def _holds(self, item: Int64Array, owner: Int32Array) -> BoolArray:
        holds: BoolArray = np.logical_or.reduce(self.holder[item] == owner[:, None], axis=1)
        return holds

    def _swap_one(self, item: int, column: int) -> None:
        """End one conflict: swap with any copy; if none fits, take any owner that does not hold the item."""
        row = self.holder[item]
        owner = int(row[column])
        if int((row == owner).sum()) < 2:
            return
        used = np.zeros(len(self.room), dtype=np.bool_)
        used[row[row >= 0]] = True
        takes = ~(self.holder == owner).any(axis=1)
        candidates = (self.holder[:, 1:] >= 0) & takes[:, None]
        candidates &= ~used[np.maximum(self.holder[:, 1:], 0)]
        where = np.argwhere(candidates)
        if len(where):
            other, their_column = int(where[0, 0]), int(where[0, 1]) + 1
            row[column] = self.holder[other, their_column]
            self.holder[other, their_column] = owner
        else:
            row[column] = int(np.flatnonzero(~used)[0])

    def copies(self, short: Int64Array) -> Copies:
        """The pairs, sorted by item, then owner."""
        item, column = np.nonzero(self.holder[:, 1:] >= 0)
        owner = self.holder[item, column + 1]
        order = np.lexsort((owner, item))
        return Copies(item[order].astype(np.int32), owner[order].astype(np.int32), short)


def _rank_within(keys: Int64Array) -> Int64Array:
    """(N,) how many equal keys come before, in the order given."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - starts
    return rank
