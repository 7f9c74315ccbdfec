"""Pairs of rows with equal keys and times within a window. What is kept for how long, the joins know.

Rows are put once into buckets by the hashes of their keys, in the order of times within a bucket: about as many buckets as rows. The
partners of a row are in one bucket, next to each other in time: where there are many, a binary search finds the first and the last that
can be one. What a batch costs follows from its rows and from the pairs; a hot key costs its pairs within the window, not all that it has. There are no
threads, and nothing that costs as much for one row as for a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.dictionaries import combined
from task_assignor.runtime.arrow.frames import taken, to_frame

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FEW = 8
"""Up to so many rows of a bucket are looked at one by one."""
_FAR = 1 << 61
"""Wider than any two times are apart, and no sum with a time overflows."""


class _Buckets(NamedTuple):
    """Rows by bucket, then time.

    Args:
        shift: a hash without its lower bits is the number of a bucket.
        starts: (B + 1,) where the rows of each bucket begin.
        order: (N,) the places of the rows.
        times: (N,) their times.
        hashes: (N,) their hashes.
    """

    shift: np.uint64
    starts: Int64Array
    order: Int64Array
    times: Int64Array
    hashes: UInt64Array

    @classmethod
    def of(cls, times: Int64Array, hashes: UInt64Array) -> _Buckets:
        bits = max(len(times).bit_length(), 1)
        shift = np.uint64(64 - bits)
        by_time = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
        buckets = (hashes if by_time is None else hashes[by_time]) >> shift
        # Bucket and place in one number: plain numbers are what is sorted quickest.
        packed = np.sort((buckets << np.uint64(bits)) | np.arange(len(times), dtype=np.uint64))
        order = (packed & np.uint64((1 << bits) - 1)).view(np.int64)
        order = order if by_time is None else by_time[order]
        counts = np.bincount(buckets.view(np.int64), minlength=1 << bits)
        return cls(shift, np.concatenate([[0], np.cumsum(counts)]), order, times[order], hashes[order])


class TimedRows:
    """Rows that are found by key and time.

    Args:
        rows: the rows.
        keys: key columns, without nulls.
        time: time column, int64 without nulls.
    """

    __slots__ = ("_buckets", "_hashes", "_keys", "_skip", "_times", "first", "last", "rows")

    def __init__(self, rows: pa.Table, keys: Sequence[str], time: str) -> None:
        self.rows = combined(rows)
        self._keys = tuple(keys)
        self._times: Int64Array = self.rows.column(time).to_numpy()
        self._hashes = _hashes(self.rows, keys)
        self._buckets: _Buckets | None = None
        self._skip = 0
        """So many rows at the beginning are not there any more."""
        self.first, self.last = (int(self._times.min()), int(self._times.max())) if len(self) else (0, -1)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __getitem__(self, part: slice) -> TimedRows:
        """The rows from a place on; nothing is sorted anew."""
        assert (part.stop, part.step) == (None, None)
        found = object.__new__(TimedRows)
        for name in self.__slots__:
            setattr(found, name, getattr(self, name))
        found.rows, found._skip = self.rows.slice(part.start), self._skip + part.start
        return found

    def pairs(self, others: TimedRows, before: int, after: int) -> tuple[Int64Array, Int64Array]:
        """All pairs with equal keys and `-before <= time(other) - time(row) <= after`.

        Args:
            others: the other rows; their keys have the same types.
            before: how much older the other row may be.
            after: how much newer it may be.

        Returns:
            The places of the rows, and those of the other rows.
        """
        assert not self._skip, "only those among which is looked may have lost rows"
        before, after = min(before, _FAR), min(after, _FAR)
        if not len(self) or not len(others) or self.first - before > others.last or self.last + after < others.first:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if others._buckets is None:
            others._buckets = _Buckets.of(others._times, others._hashes)
        found = others._buckets
        bucket = (self._hashes >> found.shift).view(np.int64)
        low, high = found.starts[bucket], found.starts[bucket + 1]
        crowded = np.flatnonzero(high - low > _FEW)
        if len(crowded):
            times = self._times[crowded]
            low[crowded] = _bisect(found.times, low[crowded], high[crowded], times - before)
            high[crowded] = _bisect(found.times, low[crowded], high[crowded], times + after + 1)
        mine = np.flatnonzero(high > low)
        low, counts = low[mine], (high - low)[mine]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(low - (ends - counts), counts)
        mine, theirs = np.repeat(mine, counts), found.order[places] - others._skip
        same = np.flatnonzero(self._hashes[mine] == found.hashes[places])
        mine, theirs = mine[same], theirs[same]
        distance = found.times[places[same]] - self._times[mine]
        near = (distance >= -before) & (distance <= after) & (theirs >= 0)
        mine, theirs = mine[near], theirs[near]
        if len(mine) and not _is_whole(self.rows, self._keys):
            keys = list(self._keys)
            one, other = (
                taken(self.rows.select(keys), pa.array(mine)),
                taken(others.rows.select(keys), pa.array(theirs)),
            )
            equal = np.logical_and.reduce([_equal(one.column(key), other.column(key)) for key in keys])
            mine, theirs = mine[equal], theirs[equal]
        return mine, theirs


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """(N,) whether these are one key: all NaN are, and 0.0 and -0.0."""
    equal = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    found: npt.NDArray[np.bool_] = equal.to_numpy()
    return found


def _is_whole(rows: pa.Table, keys: Sequence[str]) -> bool:
    """Different keys have different hashes."""
    return len(keys) == 1 and pa.types.is_integer(rows.schema.field(keys[0]).type)


def _hashes(rows: pa.Table, keys: Sequence[str]) -> UInt64Array:
    """(N,) a hash of each key, good in its upper bits."""
    if _is_whole(rows, keys):
        # Much quicker than a general one: upper bits of a product depend on all bits (Knuth), and no two products are equal.
        whole: UInt64Array = rows.column(keys[0]).to_numpy().astype(np.uint64) * _SPREAD
        return whole
    return to_frame(rows.select(list(keys))).hash_rows(seed=0).to_numpy()


def _bisect(times: Int64Array, low: Int64Array, high: Int64Array, bounds: Int64Array) -> Int64Array:
    """(N,) in each of the ranges from `low` to `high`, which are sorted, the first place whose time is not below its bound."""
    low, high = low.copy(), high.copy()
    while len(left := np.flatnonzero(low < high)):
        middle = (low[left] + high[left]) >> 1
        is_below = times[middle] < bounds[left]
        low[left[is_below]] = middle[is_below] + 1
        high[left[~is_below]] = middle[~is_below]
    return low
