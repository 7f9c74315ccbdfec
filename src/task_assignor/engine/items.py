"""What is allocated and to whom: items, owners, and pairs of them. Nothing is decided here."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import are_in, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

NOBODY: Final = -1


@attrs.frozen(eq=False)
class Pairs:
    """Pairs (item, owner) with a number each.

    Args:
        item: (N,) item numbers.
        owner: (N,) owner numbers.
        rank: (N,) of claims the generation (a greater one is newer), of state how far it is behind (less is better).
    """

    item: Int64Array
    owner: Int64Array
    rank: Int64Array

    def __len__(self) -> int:
        return len(self.item)

    @classmethod
    def of(cls, item: npt.ArrayLike, owner: npt.ArrayLike, rank: npt.ArrayLike | None = None) -> Pairs:
        """Pairs from anything array-like; without ranks all are 0."""
        items = np.asarray(item, dtype=np.int64)
        ranks = np.zeros(len(items), dtype=np.int64) if rank is None else np.asarray(rank, dtype=np.int64)
        return cls(items, np.asarray(owner, dtype=np.int64), ranks)

    def where(self, chosen: npt.NDArray[np.bool_] | Int64Array) -> Pairs:
        """Some of the pairs."""
        # To take rows by number is several times as fast as by a mask.
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return Pairs(self.item[rows], self.owner[rows], self.rank[rows])

    def behind(self) -> Int64Array:
        """(N,) how many of the pairs of the same item have a smaller rank."""
        order = order_by(self.item, self.rank)
        item, rank = self.item[order], self.rank[order]
        is_next = item[1:] != item[:-1]
        behind = np.empty_like(order)
        behind[order] = starts_of(is_next | (rank[1:] != rank[:-1])) - starts_of(is_next)
        return behind

    def newest(self) -> Pairs:
        """Those of the greatest rank of each item, sorted by item, then owner."""
        pairs, keys = self, self.item * (int(self.owner.max(initial=0)) + 1) + self.owner
        if not (keys[1:] > keys[:-1]).all():
            pairs = self.where(order_by(keys))
        if not len(pairs) or pairs.rank.min() == pairs.rank.max():
            return pairs
        newest = np.full(int(pairs.item[-1]) + 1, np.iinfo(np.int64).min)
        np.maximum.at(newest, pairs.item, pairs.rank)
        return pairs.where(pairs.rank == newest[pairs.item])

    def have(self, item: Int64Array, owner: Int64Array) -> BoolArray:
        """(M,) whether each pair of item and owner (-1: nobody) is among these."""
        width = 1 + max(int(self.owner.max(initial=0)), int(owner.max(initial=0)))
        return (owner >= 0) & are_in(item * width + owner, self.item * width + self.owner)


def quotas(weight: Int64Array, items: int) -> tuple[Int64Array, Int64Array]:
    """(C,) floor and ceil of each owner's share of the items by weight: weights are below 2^31, and items fit into memory."""
    scaled, total = weight * items, int(weight.sum())
    return scaled // total, -(-scaled // total)


def sums(keys: Int64Array, values: Int64Array, count: int) -> Int64Array:
    """(count,) sum of the values of each key, in whole numbers."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, keys, values)
    return total


def rank_within(keys: Int64Array) -> Int64Array:
    """(N,) how many equal keys come before, in the order given."""
    if (keys[1:] >= keys[:-1]).all():
        return np.arange(len(keys)) - starts_of(keys[1:] != keys[:-1])
    order = order_by(keys)
    rank = np.empty_like(order)
    rank[order] = rank_within(keys[order])
    return rank


def starts_of(is_next: BoolArray) -> Int64Array:
    """(N,) the first row of each row's run, where each of N - 1 rows says whether the next one begins another run."""
    first = np.append(False, is_next) * np.arange(len(is_next) + 1)
    starts: Int64Array = np.maximum.accumulate(first)
    return starts
