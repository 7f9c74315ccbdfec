"""Which owners get one item more than the floor of their share, decided over many groups of items at once.

Which items these are is decided in `engine/actives.py`, group by group.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.flow import Arcs, CostRangeError, Network, solve
from task_assignor.engine.items import quotas
from task_assignor.sdk.columns import Int64Array

MOST_ARCS: Final = 2_000_000
"""Pairs of group and owner in one flow; with more, groups choose one after the other."""
_DIGITS: Final = 9
"""Decimals to which loads per unit of weight are told apart."""
FloatArray = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Wishes:
    """What owners have to do with groups; pairs that are not here have nothing to do with each other.

    Args:
        group: (N,) groups.
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
class GroupShares:
    """Groups whose items are to be shared.

    Args:
        weight: (C,) weights of the owners, at least 1.
        items: (G,) items of each group.
        size: (G,) load of one item of each group.
        wishes: what owners have to do with groups.
    """

    weight: Int64Array
    items: Int64Array
    size: FloatArray
    wishes: Wishes

    def solve(self) -> list[Int64Array]:
        """Per group the (C,) numbers of items of the owners: floor or ceil of their shares of the group by weight.

        Groups of the largest items come first. Among groups of equal items, given the load of what is decided so far and
        of all floors, in this order: the load per unit of weight is as even as it can be (the sum of load² / weight is
        least); most claims are kept; most extras go where the state is. In the end owners of smaller number have more.

        A second call with claims on what the first gave returns the same. More than `MOST_ARCS` pairs of group and
        owner, or loads that are too many for exact costs, are not looked at together: group after group, extras go to
        the least loaded owners.
        """
        shares, may = [], []
        base = np.zeros(len(self.weight))
        for items, size in zip(self.items.tolist(), self.size.tolist(), strict=True):
            floor, ceil = quotas(self.weight, items)
            shares.append(floor)
            may.append(np.flatnonzero(ceil > floor))
            base += floor * size
        for size in np.unique(self.size)[::-1].tolist():
            groups = np.flatnonzero((self.size == size) & (self.items > [int(share.sum()) for share in shares]))
            if not len(groups):
                continue
            extras = _Extras(
                self.weight,
                base,
                size,
                [may[group] for group in groups.tolist()],
                np.array([int(self.items[group] - shares[group].sum()) for group in groups.tolist()]),
                [self._costs(group, shares[group])[:, may[group]] for group in groups.tolist()],
            )
            for group, chosen in zip(groups.tolist(), extras.solve(), strict=True):
                shares[group][chosen] += 1
                base[chosen] += size
        return shares

    def _costs(self, group: int, floor: Int64Array) -> Int64Array:
        """(2, C) claims that an extra of the owner does not keep, and how far it is from state."""
        wishes = self.wishes
        start, end = np.searchsorted(wishes.group, (group, group + 1)).tolist()
        owner = wishes.owner[start:end]
        claimed = wishes.claimed[start:end]
        over = floor[owner] - claimed
        costs = np.repeat(np.array([[1], [2]]), len(floor), axis=1)
        costs[0, owner] -= over < 0
        costs[1, owner] -= (over < 0) | (over < wishes.warm[start:end])
        costs[1, owner] -= (over < 0) | (over < wishes.best[start:end])
        return costs


@attrs.frozen(eq=False)
class _Extras:
    """Extras of equal size: each group gives at most one to each of its candidates.

    Args:
        weight: (C,) weights of the owners.
        base: (C,) load without these extras.
        size: load of an extra.
        candidates: per group the owners that may have one.
        number: (M,) extras of each group.
        costs: per group the (2, candidates) costs of an extra, claims lost first.
    """

    weight: Int64Array
    base: FloatArray
    size: float
    candidates: list[Int64Array]
    number: Int64Array
    costs: list[Int64Array]

    def solve(self) -> list[Int64Array]:
        """The owners that get an extra, per group."""
        if sum(map(len, self.candidates)) <= MOST_ARCS:
            try:
                return self._together()
            except CostRangeError:
                pass
        return self._in_turn()

    def _levels(self, owner: Int64Array, load: FloatArray, count: Int64Array | int) -> FloatArray:
        """What one more extra adds to load² / weight, in units of the size."""
        return np.round((2 * load[owner] + self.size * (2 * count + 1)) / self.weight[owner], _DIGITS)

    def _together(self) -> list[Int64Array]:
        """By a flow from the groups to the owners, and on by one arc for each extra of an owner, ever dearer.

        Only the order of these costs matters: the numbers of extras that owners can have together are the bases of a
        polymatroid, where a convex sum is least if no exchange of one extra makes it less.
        """
        groups, owners = len(self.number), len(self.weight)
        group = np.repeat(np.arange(groups), [len(found) for found in self.candidates])
        owner, cost = np.concatenate(self.candidates), np.concatenate(self.costs, axis=1)
        most = np.bincount(owner, minlength=owners)
        last = np.repeat(np.arange(owners), most)
        count = np.arange(len(last)) - np.repeat(np.cumsum(most) - most, most)
        rank = np.unique(self._levels(last, self.base, count), return_inverse=True)[1].reshape(-1)
        arcs = Arcs(goals=4)
        given = arcs.add(group, groups + owner, 1, 0, cost[0], cost[1])
        arcs.add(groups + last, groups + owners, 1, rank, 0, 0, last)
        supplies = np.concatenate([self.number, np.zeros(owners, dtype=np.int64), [-int(self.number.sum())]])
        # A simple path enters groups and owners in turn, and the sink once; of a group it changes two arcs.
        turns = min(groups, owners)
        network = Network(supplies, arcs, longest_path=2 * turns + 4, changes=(turns, 2 * turns, owners))
        flow = solve(network)[given]
        return np.split(owner[flow > 0], np.cumsum(self.number)[:-1])

    def _in_turn(self) -> list[Int64Array]:
        """Group by group to the least loaded owners; of equally loaded ones to those that it costs least."""
        load = self.base.copy()
        chosen = []
        for owner, number, costs in zip(self.candidates, self.number.tolist(), self.costs, strict=True):
            order = np.lexsort((owner, costs[1], costs[0], self._levels(owner, load, 0)))
            chosen.append(np.sort(owner[order[:number]]))
            load[chosen[-1]] += self.size
        return chosen
