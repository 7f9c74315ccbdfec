"""Copies (standbys) of items: each on owners of its own, as even as can be in total, most of them where they were."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.copies_deal import deal
from task_assignor.engine.copies_flow import Room, complete, most_kept
from task_assignor.engine.grants import Wishes, grant
from task_assignor.engine.items import Pairs, rank_within
from task_assignor.engine.spread import fill_up, narrowest_window
from task_assignor.sdk.columns import Int32Array, Int64Array

NONE: Final = -1


@attrs.frozen(eq=False)
class Copies:
    """The answer: pairs (item, owner), sorted.

    Args:
        item: (N,) item numbers.
        owner: (N,) owner numbers.
        short: (M,) items that have fewer copies than wanted, because there are too few owners.
        low: (C,) with as many copies to `high` of them on each owner all is as even.
        high: (C,) see `low`.
    """

    item: Int32Array
    owner: Int32Array
    short: Int64Array
    low: Int64Array
    high: Int64Array


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
        return Copies(none, none, short, np.zeros_like(weight), np.zeros_like(weight))
    window = narrowest_window(weight, bounds.least, bounds.most, bounds.total)
    low = np.maximum(bounds.least, window.least(weight))
    room = Room(low - bounds.least, window.most(weight, bounds.most) - low, bounds.total - int(low.sum()))
    table = _Table(main_owner, needs)
    claims = claims.where((needs[claims.item] > 0) & (main_owner[claims.item] != claims.owner))
    claims = claims.where(np.lexsort((claims.owner, claims.item, claims.rank)))
    kept = grant(Wishes(claims.item, claims.owner, needs, room.low, room.spare, room.extras))
    table.put(claims.item[kept], claims.owner[kept])
    rest = complete(table.holder, needs - table.filled, room.after(table.counts(len(weight))))
    if rest is None:
        # Perhaps not all that could be kept leaves room for the others.
        preferred = most_kept(table.holder[:, :1], needs, room, claims.item, claims.owner, rank_within(claims.item))
        if preferred is not None:
            table = _Table(main_owner, needs)
            table.put(claims.item[preferred], claims.owner[preferred])
            rest = complete(table.holder, needs - table.filled, room.after(table.counts(len(weight))))
    if rest is None:
        left = room.after(table.counts(len(weight)))
        need = needs - table.filled
        deal(table.holder, 1 + table.filled, need, fill_up(left.low, left.low + left.spare, int(need.sum())))
    else:
        table.put(*rest)
    item, owner = table.pairs()
    count = np.bincount(owner, minlength=len(weight))
    return Copies(item, owner, short, np.minimum(room.low, count), np.maximum(room.low + room.spare, count))


class _Table:
    """`holder[n, 0]` is the main owner of item n, `holder[n, 1:]` are the owners of its copies; -1: none (yet)."""

    def __init__(self, main_owner: Int64Array, needs: Int64Array) -> None:
        self.holder = np.full((len(main_owner), int(needs.max()) + 1), NONE, dtype=np.int32)
        self.holder[:, 0] = main_owner
        self.filled = np.zeros(len(main_owner), dtype=np.int64)

    def put(self, item: Int64Array, owner: Int64Array) -> None:
        """Place copies."""
        self.holder[item, 1 + self.filled[item] + rank_within(item)] = owner
        self.filled += np.bincount(item, minlength=len(self.filled))

    def counts(self, owners: int) -> Int64Array:
        """(C,) copies that each owner has."""
        placed = self.holder[:, 1:]
        return np.bincount(placed[placed >= 0], minlength=owners)

    def pairs(self) -> tuple[Int32Array, Int32Array]:
        """(item, owner) of the copies, sorted by item, then owner."""
        item, column = np.nonzero(self.holder[:, 1:] >= 0)
        owner = self.holder[item, column + 1]
        order = np.lexsort((owner, item))
        return item[order].astype(np.int32), owner[order].astype(np.int32)
