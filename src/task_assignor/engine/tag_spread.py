"""Spreading standbys over the values of client tags (KIP-708) as far as that leaves all loads as even as they are.

Clients with equal tags are of one kind. First copies change kinds, by a flow that frees one copy of every task at a time;
then those that did find clients there. What goes where in the first place is decided in `engine/copies.py`.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.copies import Copies
from task_assignor.engine.copies_flow import Room, complete
from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import Pairs, rank_within
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_CELLS: Final = 400_000
"""Pairs of class and kind in one flow; with more, the tag keys with most values play no part."""
NONE: Final = -1


def spread_by_tags(
    values: Int64Array, main_owner: Int64Array, copies: Copies, claims: Pairs
) -> tuple[Int64Array, Int64Array]:
    """Pairs (item, owner) of copies, sorted, such that items and their copies have more different tag values.

    Each owner has from `copies.low` to `copies.high` copies, and none gets an item that it has. With one copy per item the
    sum of different (key, value) pairs over all items is the greatest possible, but where the copies for a kind of owners
    cannot be dealt out to them; with more it is brought up copy by copy until none helps. A second call changes nothing.
    Keys with so many values that the flows would be too large play no part (where nearly every owner has a value of its
    own, holders differ in it anyway).

    Args:
        values: (C, G) number of each owner's value of each tag key; -1: it has none.
        main_owner: (I,) owner of each item itself; -1: nobody.
        copies: the copies, sorted by item, then owner.
        claims: who had which item before: of equal copies those stay.
    """
    item, owner = copies.item.astype(np.int64), copies.owner.astype(np.int64)
    keys = np.argsort([len(distinct(of_key)) for of_key in values.T], kind="stable")
    for used in range(len(keys), 0, -1):
        kind_values, kind_of = np.unique(values[:, keys[:used]], axis=0, return_inverse=True)
        if len(kind_values) < 2 or not len(item):
            break
        owners = _Owners(kind_values, kind_of.reshape(-1), copies.low, copies.high)
        found = _spread(owners, main_owner, item, owner, claims)
        if found is not None:
            return item, found
    return item, owner


@attrs.frozen(eq=False)
class _Owners:
    """The owners by kind.

    Args:
        values: (K, G) tag values of each kind.
        kind_of: (C,) kind of each owner.
        low: (C,) copies that each has at least.
        high: (C,) copies that each has at most.
    """

    values: Int64Array
    kind_of: Int64Array
    low: Int64Array
    high: Int64Array

    def of_kind(self, numbers: Int64Array) -> Int64Array:
        """(K,) sums over the owners of each kind."""
        return np.bincount(self.kind_of, numbers, len(self.values)).astype(np.int64)


def _spread(
    owners: _Owners, main_owner: Int64Array, item: Int64Array, owner: Int64Array, claims: Pairs
) -> Int64Array | None:
    """The owners of the copies, of each item in order; None: too much to look at."""
    rows, row = np.unique(item, return_inverse=True)
    row = row.reshape(-1)
    column = 1 + rank_within(row)
    while True:
        holder = np.full((len(rows), int(column.max()) + 1), NONE, dtype=np.int64)
        holder[:, 0] = main_owner[rows]
        holder[row, column] = owner
        stays = np.zeros(holder.shape, dtype=np.bool_)
        stays[row, column] = claims.have(item, owner)
        counts = np.bincount(owner, minlength=len(owners.kind_of))
        placed = None
        # Where numbers of copies that are possible by kind cannot be dealt out to the owners, all numbers are kept.
        for within in (owners, attrs.evolve(owners, low=counts, high=counts)):
            search = _Kinds(within, np.where(holder >= 0, owners.kind_of[holder], NONE), stays)
            before = search.kinds.copy()
            has_changed = search.improve()
            if has_changed is None:
                return None
            placed = _placed(holder, before, search.kinds, within) if has_changed else None
            if placed is not None or not has_changed:
                break
        if placed is None:
            return owner
        # In the order of a second call: what that would find is found now.
        owner = placed[row, column]
        owner = owner[np.lexsort((owner, item))]


class _Kinds:
    """Kinds of the owners of each row: column 0 is the item itself, the others are its copies."""

    def __init__(self, owners: _Owners, kinds: Int64Array, stays: BoolArray) -> None:
        self.values = owners.values
        self.size = np.bincount(owners.kind_of)
        self.low, self.high = owners.of_kind(owners.low), owners.of_kind(owners.high)
        self.kinds = kinds
        self.stays = stays

    def improve(self) -> bool | None:
        """Make as many changes as help, and say whether there were any; None: there is too much to look at."""
        copies = self.kinds.shape[1] - 1
        has_changed, quiet, turn = False, 0, 0
        while quiet <= copies:
            # The copy that adds least to the others; then the first copy of all rows, the second, and so on.
            number = turn % (copies + 1)
            columns = np.full(len(self.kinds), number) if number else self._least_needed()
            gained = self._free(columns)
            if gained is None:
                return None
            quiet = 0 if gained else quiet + 1
            has_changed |= gained > 0
            turn += 1
        return has_changed

    def _least_needed(self) -> Int64Array:
        """(rows,) column of the copy of each row that adds least tag values; of several the last."""
        columns = range(1, self.kinds.shape[1])
        adds = []
        for column in columns:
            rest = np.delete(self.kinds, column, axis=1)
            gain = np.zeros(len(rest), dtype=np.int64)
            for values in self.values.T:
                mine, known = values[self.kinds[:, column]], np.where(rest >= 0, values[rest], NONE)
                gain += (mine >= 0) & ~(known == mine[:, None]).any(axis=1)
            adds.append(np.where(self.kinds[:, column] >= 0, gain, np.iinfo(np.int64).max))
        last: Int64Array = len(columns) - np.argmin(np.stack(adds[::-1]), axis=0)
        return last

    def _free(self, columns: Int64Array) -> int | None:
        """Free one copy of every row and place all of them anew; by how much that is better. None: too large."""
        every = np.arange(len(self.kinds))
        rows = np.flatnonzero(self.kinds[every, columns] >= 0)
        column = columns[rows]
        current = self.kinds[rows, column]
        others = self.kinds[rows].copy()
        others[np.arange(len(rows)), column] = NONE
        rest = np.sort(others, axis=1)[:, 1:]
        label = current.copy()
        for other in rest.T:
            label = np.unique(label * (len(self.size) + 1) + other + 1, return_inverse=True)[1].reshape(-1)
        _, first, of_class, count = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
        of_class = of_class.reshape(-1)
        if len(first) * len(self.size) > MOST_CELLS:
            return None
        gain = self._gains(rest[first])
        allowed = (rest[first][:, :, None] == np.arange(len(self.size))).sum(axis=1) < self.size
        here = gain[np.arange(len(first)), current[first]]
        if (np.where(allowed, gain, -1).max(axis=1) == here).all():
            return 0
        copies = self.kinds[:, 1:]
        fixed = np.bincount(copies[copies >= 0], minlength=len(self.size)) - np.bincount(
            current, minlength=len(self.size)
        )
        low, high = np.maximum(self.low - fixed, 0), self.high - fixed
        flow = self._flow(gain, allowed, count, current[first], low, high)
        target = self._targets(flow, current, of_class, rows, column)
        gained = int(gain[of_class, target].sum() - here[of_class].sum())
        if gained:
            self.kinds[rows, column] = target
        return gained

    def _targets(
        self, flow: Int64Array, current: Int64Array, of_class: Int64Array, rows: Int64Array, column: Int64Array
    ) -> Int64Array:
        """(N,) kinds of the freed copies: of each class those stay that were there before, then smaller numbers."""
        classes, kinds = flow.shape
        count = np.bincount(of_class)
        order = np.lexsort((rows, ~self.stays[rows, column], of_class))
        of_row = of_class[order]
        rank = np.arange(len(rows)) - (np.cumsum(count) - count)[of_row]
        is_staying = rank < flow[of_row, current[order]]
        target = current.copy()
        moving = flow.copy()
        moving[of_row, current[order]] = 0
        target[order[~is_staying]] = np.repeat(np.tile(np.arange(kinds), classes), moving.reshape(-1))
        return target

    def _gains(self, rest: Int64Array) -> Int64Array:
        """(classes, kinds) number of tag values that a copy of the kind adds to the others."""
        gain = np.zeros((len(rest), len(self.size)), dtype=np.int64)
        for values in self.values.T:
            known = np.where(rest >= 0, values[rest], NONE)
            gain += (values >= 0) & ~(known[:, :, None] == values).any(axis=1)
        return gain

    def _flow(
        self,
        gain: Int64Array,
        allowed: BoolArray,
        count: Int64Array,
        current: Int64Array,
        low: Int64Array,
        high: Int64Array,
    ) -> Int64Array:
        """(classes, kinds) copies of each class in each kind: most different values, then fewest changes."""
        classes, kinds = gain.shape
        row, kind = np.nonzero(allowed)
        arcs = Arcs(goals=2)
        pairs = arcs.add(
            row, classes + kind, count[row], int(gain.max()) - gain[row, kind], (kind != current[row]).astype(np.int64)
        )
        hub = classes + kinds
        arcs.add(classes + np.arange(kinds), hub, high - low)
        # A simple cycle enters each kind, and the hub, at most once.
        network = Network(
            np.concatenate([count, -low, [int(low.sum()) - int(count.sum())]]),
            arcs,
            longest_path=2 * kinds + 4,
            changes=(2 * (kinds + 1),),
        )
        flow = np.zeros_like(gain)
        flow[row, kind] = solve(network)[pairs]
        return flow


def _placed(holder: Int64Array, before: Int64Array, after: Int64Array, owners: _Owners) -> Int64Array | None:
    """Owners for the copies that changed kinds, and for others of their new kinds if need be. None: they do not fit."""
    moved = before != after
    result = np.where(moved, NONE, holder)
    is_copy = np.zeros(holder.shape, dtype=np.bool_)
    is_copy[:, 1:] = after[:, 1:] >= 0
    changed = distinct(np.concatenate([before[moved], after[moved]]))
    for kind in changed.tolist():
        of_kind = is_copy & (after == kind)
        if not (_dealt(result, of_kind & moved, kind, owners) or _dealt(result, of_kind, kind, owners)):
            return None
    return result


def _dealt(result: Int64Array, chosen: BoolArray, kind: int, owners: _Owners) -> bool:
    """Give the chosen copies to owners of the kind, within their numbers; False, and nothing changed: they do not fit."""
    members = np.flatnonzero(owners.kind_of == kind)
    number = np.full(len(owners.kind_of) + 1, NONE, dtype=np.int64)
    number[members] = np.arange(len(members))
    left = np.where(chosen, NONE, result)
    copies = number[left[:, 1:]]
    kept = np.bincount(copies[copies >= 0], minlength=len(members))
    low, high = owners.low[members], owners.high[members]
    rows = np.flatnonzero(chosen.any(axis=1))
    need = chosen[rows].sum(axis=1)
    room = Room(np.maximum(low - kept, 0), high - np.maximum(low, kept), 0)
    extras = int(need.sum()) - int(room.low.sum())
    if extras < 0 or (room.spare < 0).any() or extras > int(room.spare.sum()):
        return False
    found = complete(number[left[rows]].astype(np.int32), need, attrs.evolve(room, extras=extras))
    if found is None:
        return False
    order = np.argsort(found[0], kind="stable")
    row, column = np.nonzero(chosen[rows])
    result[rows[row], column] = members[found[1][order]]
    return True
