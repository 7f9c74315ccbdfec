"""Spreading standbys over the values of client tags (KIP-708) without changing how many each client has.

Clients with equal tags are of one kind. First copies change kinds, by a flow that frees one copy of every task at a time;
then those that did find clients there. What goes where in the first place is decided in `_copies.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array
from task_assignor.utils._copies_flow import Room, complete
from task_assignor.utils._engine import Pairs
from task_assignor.utils._flow import Arcs, Network, solve
from task_assignor.utils._grants import rank_within

MOST_CELLS: Final = 400_000
"""Pairs of class and kind in one flow; with more, the tag keys with most values play no part."""
NONE: Final = -1


def spread_by_tags(
    values: Int64Array,
    main_owner: Int64Array,
    item: Int32Array | Int64Array,
    owner: Int32Array | Int64Array,
    claims: Pairs,
) -> tuple[Int64Array, Int64Array]:
    """Pairs (item, owner) of copies, sorted, such that items and their copies have more different tag values.

    Each owner keeps its number of copies, and none gets an item that it has. With one copy per item the sum of different
    (key, value) pairs over all items is the greatest possible; with more it is brought up copy by copy until none helps.
    A second call changes nothing. Keys with so many values that the flows would be too large play no part (where nearly
    every owner has a value of its own, holders differ in it anyway).

    Args:
        values: (C, G) number of each owner's value of each tag key; -1: it has none.
        main_owner: (I,) owner of each item itself; -1: nobody.
        item: (N,) items of the copies.
        owner: (N,) owners of the copies.
        claims: who had which item before: of equal copies those stay.
    """
    order = np.lexsort((owner, item))
    item, owner = np.asarray(item, dtype=np.int64)[order], np.asarray(owner, dtype=np.int64)[order]
    keys = np.argsort([len(np.unique(of_key)) for of_key in values.T], kind="stable")
    for used in range(len(keys), 0, -1):
        kind_values, kind_of = np.unique(values[:, keys[:used]], axis=0, return_inverse=True)
        if len(kind_values) < 2 or not len(item):
            break
        found = _spread(kind_values, kind_of.reshape(-1), main_owner, item, owner, claims)
        if found is not None:
            return item, found
    return item, owner


def _spread(
    kind_values: Int64Array,
    kind_of: Int64Array,
    main_owner: Int64Array,
    item: Int64Array,
    owner: Int64Array,
    claims: Pairs,
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
        kinds = np.where(holder >= 0, kind_of[holder], NONE)
        search = _Kinds(kind_values, np.bincount(kind_of), kinds, stays)
        has_changed = search.improve()
        if has_changed is None:
            return None
        placed = _placed(holder, kinds, search.kinds, kind_of) if has_changed else None
        if placed is None:
            return owner
        # In the order of a second call: what that would find is found now.
        owner = placed[row, column]
        owner = owner[np.lexsort((owner, item))]


class _Kinds:
    """Kinds of the owners of each row: column 0 is the item itself, the others are its copies."""

    def __init__(self, values: Int64Array, size: Int64Array, kinds: Int64Array, stays: BoolArray) -> None:
        self.values = values
        self.size = size
        self.kinds = kinds.copy()
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
        target = self._targets(self._flow(gain, allowed, count, current[first]), current, of_class, rows, column)
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

    def _flow(self, gain: Int64Array, allowed: BoolArray, count: Int64Array, current: Int64Array) -> Int64Array:
        """(classes, kinds) copies of each class in each kind: most different values, then fewest changes."""
        classes, kinds = gain.shape
        row, kind = np.nonzero(allowed)
        arcs = Arcs(goals=2)
        arcs.add(
            row, classes + kind, count[row], int(gain.max()) - gain[row, kind], (kind != current[row]).astype(np.int64)
        )
        demand = np.bincount(current, count, kinds).astype(np.int64)
        # A simple cycle enters each kind at most once.
        network = Network(np.concatenate([count, -demand]), arcs, longest_path=2 * kinds + 2, changes=(2 * kinds,))
        flow = np.zeros_like(gain)
        flow[row, kind] = solve(network)
        return flow


def _placed(holder: Int64Array, before: Int64Array, after: Int64Array, kind_of: Int64Array) -> Int64Array | None:
    """Owners for the copies that changed kinds: those that other copies left. None: they do not fit."""
    moved = before != after
    left = np.where(moved, NONE, holder)
    freed = np.bincount(holder[moved], minlength=len(kind_of))
    result = left.copy()
    for kind in np.unique(after[moved]).tolist():
        members = np.flatnonzero(kind_of == kind)
        number = np.full(len(kind_of) + 1, NONE, dtype=np.int64)
        number[members] = np.arange(len(members))
        arriving = moved & (after == kind)
        rows = np.flatnonzero(arriving.any(axis=1))
        need = arriving[rows].sum(axis=1)
        room = Room(freed[members], np.zeros(len(members), dtype=np.int64), 0)
        found = complete(number[left[rows]].astype(np.int32), need, room)
        if found is None:
            return None
        order = np.argsort(found[0], kind="stable")
        row, column = np.nonzero(arriving[rows])
        result[rows[row], column] = members[found[1][order]]
    return result
