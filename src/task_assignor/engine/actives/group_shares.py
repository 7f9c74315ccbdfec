"""How many items of each of many groups every owner gets, so that loads over all groups are even.

Which items these are is decided in `engine/actives/allocation.py`, with a pool for each group.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.even import Steps
from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import quotas, sums
from task_assignor.sdk.arrays import are_in, csr_pairs, distinct, distinct_and_numbers, offsets_of, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

MOST_CANDIDATES: Final = 500_000
"""Pairs of group and owner that are looked at one by one."""
_FINEST: Final = 2**20
"""Sizes of items are multiples of one part in so many."""


@attrs.frozen(eq=False)
class Wishes:
    """What owners have to do with groups; pairs that are not here have nothing to do with each other.

    Args:
        group: (N,) groups, ascending.
        owner: (N,) owners; each pair once.
        claimed: (N,) items of the group that the owner claims.
        warm: (N,) items that the owner does not claim and of which it has state.
        best: (N,) those of them whose best state it has among all owners that do not claim them.
    """

    group: Int64Array
    owner: Int64Array
    claimed: Int64Array
    warm: Int64Array
    best: Int64Array


@attrs.frozen(eq=False)
class Shares:
    """Numbers of items; pairs of group and owner that are not here are 0.

    Args:
        group: (M,) groups, ascending.
        owner: (M,) owners, ascending within a group.
        items: (M,) items of the group that the owner gets, at least 1.
        is_exact: whether all was looked at together; else loads may be less even than they could be, or claims lost.
    """

    group: Int64Array
    owner: Int64Array
    items: Int64Array
    is_exact: bool


def group_shares(weight: Int64Array, items: Int64Array, load: Int64Array, wishes: Wishes) -> Shares:
    """Floor or ceil of each owner's share of each group by weight.

    Groups of the largest items come first. Among groups of equal items, given the load of what is decided so far and
    of all floors, in this order: the sum of load² / weight is least; most claims are kept; most extras go where the
    state is. In the end owners of smaller number have more.

    A second call with claims on what the first gave returns the same. With more than `MOST_CANDIDATES` pairs of group and
    owner, extras without wish are dealt out in turn, to owners that have most left to take, and a second call may give some of
    them to others.

    Args:
        weight: (C,) weights of the owners, at least 1.
        items: (G,) items of each group, at least 1.
        load: (G,) load of all items of each group.
        wishes: what owners have to do with groups.
    """
    size = sizes(items, load)
    different, of_group = distinct_and_numbers(items)
    floors = np.stack([quotas(weight, one)[0] for one in different.tolist()])
    of_floor, has_some = np.nonzero(floors)
    group, row = csr_pairs(offsets_of(of_floor, len(floors)), of_group)
    parts = [(group, has_some[row], floors[of_floor[row], has_some[row]])]
    base = sums(of_group, size, len(floors)) @ floors
    extra = items - floors.sum(axis=1)[of_group]
    floor = floors[of_group[wishes.group], wishes.owner]
    is_exact = True
    for one in distinct(size[extra > 0])[::-1].tolist():
        groups = np.flatnonzero((size == one) & (extra > 0))
        extras = _Extras(weight, items, wishes, groups, extra[groups], floor, base, one)
        group, owner = extras.solve()
        is_exact &= extras.is_exact
        base += one * np.bincount(owner, minlength=len(base))
        parts.append((group, owner, np.ones_like(group)))
    group, owner, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    keys, pair = distinct_and_numbers(group * len(base) + owner)
    return Shares(keys // len(base), keys % len(base), sums(pair, counts, len(keys)), is_exact)


def sizes(items: Int64Array, load: Int64Array) -> Int64Array:
    """(G,) the load of one item of each group, on average, as multiples of the same fraction.

    Args:
        items: (G,) items of each group, at least 1.
        load: (G,) load of all items of each group.
    """
    part = items // np.gcd(items, load)
    common = 1
    for one in distinct(part).tolist():
        common = min(math.lcm(common, one), _FINEST)
    return np.rint(load / items * common).astype(np.int64)


class _Extras:
    """Extras of equal size: each group gives one to some of its candidates, at most one to each."""

    def __init__(
        self,
        weight: Int64Array,
        items: Int64Array,
        wishes: Wishes,
        groups: Int64Array,
        extras: Int64Array,
        floor: Int64Array,
        base: Int64Array,
        size: int,
    ) -> None:
        self.weight, self.items, self.all_weight = weight, items, int(weight.sum())
        self.groups, self.extras, self.base, self.size = groups, extras, base, size
        self.is_exact = len(groups) * len(base) <= MOST_CANDIDATES
        rows = np.flatnonzero(are_in(wishes.group, groups))
        over = floor[rows] - wishes.claimed[rows]
        lost = (over >= 0).astype(np.int64)
        away = 2 - np.where(over < 0, 2, (over < wishes.warm[rows]).astype(np.int64) + (over < wishes.best[rows]))
        group, owner = np.searchsorted(groups, wishes.group[rows]), wishes.owner[rows]
        chosen = self._is_candidate(group, owner) & (away < 2)
        self.group, self.owner, self.lost, self.away = group[chosen], owner[chosen], lost[chosen], away[chosen]

    def _is_candidate(self, group: Int64Array, owner: Int64Array) -> BoolArray:
        """(N,) whether the owner's share of the group is no whole number."""
        is_candidate: BoolArray = (self.weight[owner] % self.all_weight) * (
            self.items[self.groups[group]] % self.all_weight
        ) % self.all_weight != 0
        return is_candidate

    def solve(self) -> tuple[Int64Array, Int64Array]:
        """(group, owner) of the extras."""
        if self.is_exact:
            owners = len(self.weight)
            group, owner = np.divmod(np.arange(len(self.groups) * owners), owners)
            chosen = self._is_candidate(group, owner)
            group, owner = group[chosen], owner[chosen]
            lost, away = np.ones_like(group), np.full_like(group, 2)
            rows = np.searchsorted(group * owners + owner, self.group * owners + self.owner)
            lost[rows], away[rows] = self.lost, self.away
            self.group, self.owner, self.lost, self.away = group, owner, lost, away
        flow, left = self._flow()
        group, owner = self.group[flow > 0], self.owner[flow > 0]
        more = self._dealt(group, owner, left)
        return self.groups[np.append(group, more[0])], np.append(owner, more[1])

    def _flow(self) -> tuple[Int64Array, Int64Array]:
        """Flow of each pair; and what each owner takes of the groups in common."""
        groups, owners = len(self.groups), len(self.weight)
        hub, sink, none = groups + owners, groups + owners + 1, np.zeros(owners, dtype=np.int64)
        total = int(self.extras.sum())
        most = np.full(owners, groups) if not self.is_exact else np.bincount(self.owner, minlength=owners)
        fair = (self.base.sum() + self.size * total) * (self.weight / self.all_weight)
        taken = np.clip(np.rint((fair - self.base) / self.size), 0, most).astype(np.int64)
        while True:
            steps = Steps.around(taken, none, most)
            prices = steps.prices(self.weight, self.base, self.size)
            arcs = Arcs(goals=4)
            pairs = arcs.add(self.group, groups + self.owner, 1, 0, self.lost, self.away)
            common = slice(0, 0)
            if not self.is_exact:
                # Few of each group, since owners get at most one each of what comes this way.
                few = Steps.around(0 * self.extras, 0 * self.extras, self.extras)
                arcs.add(few.owner, hub, few.end - few.start, 0, 1, 2, few.start + few.end)
                common = arcs.add(hub, groups + np.arange(owners), total)
            last = arcs.add(groups + steps.owner, sink, steps.end - steps.start, prices, 0, 0, steps.owner)
            supplies = np.concatenate([self.extras, none, [0, -total]])
            # A simple path enters groups and owners in turn, and the sink once; of a group it changes two arcs.
            turns = 2 * min(groups, owners) + 4
            changes = turns, 2 * turns, owners + 2 * turns * int(self.extras.max())
            flow = solve(Network(supplies, arcs, 2 * turns, changes))
            taken = np.bincount(steps.owner, flow[last], owners).astype(np.int64)
            if steps.are_exact_at(taken):
                return flow[pairs], flow[common]

    def _dealt(self, group: Int64Array, owner: Int64Array, left: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Extras that no wish decides, group by group: to owners that have most left to take, and do not have one yet."""
        left = left.copy()
        missing = self.extras - np.bincount(group, minlength=len(self.groups))
        order = order_by(group)
        start = np.searchsorted(group[order], np.arange(len(self.groups) + 1)).tolist()
        found = [(group[:0], owner[:0])]
        everyone = np.arange(len(self.weight))
        for one in np.flatnonzero(missing).tolist():
            rank = left * len(left) - everyone
            rank[owner[order[start[one] : start[one + 1]]]] = np.iinfo(np.int64).min
            rank[~self._is_candidate(np.full(1, one), everyone)] = np.iinfo(np.int64).min
            count = int(missing[one])
            chosen = np.argpartition(-(rank + 1), count - 1)[:count]
            left[chosen] -= 1
            found.append((np.full(count, one), chosen))
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])
