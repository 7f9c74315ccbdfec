"""In which order a task sees the records of its sources, and how far it may go with what is loaded: arrays, no files.

**The order.** Of the next record of each source the one with the oldest time comes, of equal times that of the source which
is named first; within a source offsets keep their order (Kafka's `PartitionGroup`). That is the same as sorting all records
by (newest time of their source so far, source, offset): a record that is older than one before it in its source, or has no
time, is then at the head while all other sources are at least as new, so it comes at once. The second form needs no loop,
and does not ask what came before: the order of what is left is the rest of the order of all.

**How far.** A source of which more rows may come can bring nothing that belongs before its last loaded row. The first of
these last rows, over all such sources, is the boundary: what belongs up to it is processed, the rest waits for the next
batch. So the sequence of records does not depend on where batches are cut; and the source of the boundary is consumed
as far as it was loaded, so every batch gets somewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
_FIRST: Final = int(np.iinfo(np.int64).min)
_LAST: Final = int(np.iinfo(np.int64).max)


def times_so_far(times: Int64Array) -> Int64Array:
    """(N,) of each record the newest time up to it, in offset order; `times.NO_TIME` is older than all."""
    newest: Int64Array = np.maximum.accumulate(times)
    return newest


def times_at(steps: Sequence[tuple[int, int]], offsets: npt.ArrayLike) -> Int64Array:
    """(N,) the time of a topic at each of its rows, where it is said by offsets.

    Args:
        steps: (offset, time from there on), ascending.
        offsets: (N,) of the rows.
    """
    starts, times = np.array([(_FIRST, _FIRST), *steps], np.int64).T
    found: Int64Array = times[np.searchsorted(starts, offsets, "right") - 1]
    return found


def next_time(newest: Int64Array, count: int, *, has_more: bool) -> int:
    """A source brings nothing that belongs before this time, after so many of its loaded rows.

    Args:
        newest: `times_so_far` of its loaded rows.
        count: so many of them are processed.
        has_more: rows beyond the loaded ones may come, and are waited for.
    """
    if count < len(newest):
        return int(newest[count])
    if has_more:
        return int(newest[-1]) if len(newest) else _FIRST
    return _LAST


def rows_up_to_boundary(newest: Sequence[Int64Array], has_more: Sequence[bool]) -> list[int]:
    """How many of the loaded rows of each source may be processed.

    Args:
        newest: per source `times_so_far` of its loaded rows.
        has_more: per source: rows beyond the loaded ones may come, and are waited for. If such a source has no loaded
            rows, nothing can be processed.

    Returns:
        Per source the number of rows, from the first.
    """
    waiting = [source for source, more in enumerate(has_more) if more]
    if any(len(newest[source]) == 0 for source in waiting):
        return [0] * len(newest)
    if not waiting:
        return [len(rows) for rows in newest]
    time, boundary = min((int(newest[source][-1]), source) for source in waiting)
    return [
        int(np.searchsorted(rows, time, side="right" if source <= boundary else "left"))
        for source, rows in enumerate(newest)
    ]


def merged(
    newest: Sequence[Int64Array], topics: Sequence[int] | None = None, offsets: Sequence[Int64Array] = ()
) -> Int64Array:
    """The order of the records of all sources.

    Args:
        newest: per source `times_so_far` of its rows.
        topics: per source the number of the topic that it is made of, where several are made of one; None: each is one itself.
        offsets: then, per source the offset of each row in its topic.

    Returns:
        (N,) the rows in order, as places in the concatenation of all sources.
    """
    if topics is not None:
        numbers = np.repeat(np.asarray(topics), [len(rows) for rows in newest])
        return np.lexsort((np.concatenate(offsets), numbers, np.concatenate(newest)))
    filled = [rows for rows in newest if len(rows)]
    if len(filled) <= 1:
        return np.arange(sum(map(len, filled)))
    # Runs that are sorted already are what a merge sort likes best.
    return np.argsort(np.concatenate(filled), kind="stable")


def places(
    newest: Sequence[Int64Array], topics: Sequence[int] | None = None, offsets: Sequence[Int64Array] = ()
) -> list[Int64Array]:
    """Per source (N,) the place of each row in the order of all, from 0; arguments as for `merged`."""
    order = merged(newest, topics, offsets)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return np.split(place, np.cumsum([len(rows) for rows in newest])[:-1])


def crossings(newest: Sequence[Int64Array], before: int | None, interval: int) -> list[list[int]]:
    """Where the time of all sources together reaches a new multiple of an interval.

    Args:
        newest: per source `times_so_far` of its rows.
        before: newest time of all earlier rows; None: there were none.
        interval: the interval, at least 1, in the unit of the times.

    Returns:
        Per crossing the number of rows of each source up to the row that crosses, that row included.
    """
    order = merged(newest)
    times = np.concatenate(newest)[order]
    known = times > np.iinfo(np.int64).min
    multiples = times // interval
    start = np.iinfo(np.int64).min if before is None else before // interval
    previous = np.maximum(np.concatenate([[start], multiples[:-1]]), start)
    ends = np.flatnonzero(known & (multiples > previous)) + 1
    sources = np.repeat(np.arange(len(newest)), [len(rows) for rows in newest])[order]
    counts = [np.cumsum(sources == number)[ends - 1] for number in range(len(newest))]
    return np.stack(counts, axis=1).tolist()  # type: ignore[no-any-return]
