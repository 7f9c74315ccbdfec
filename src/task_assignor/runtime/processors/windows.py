"""Windows of time: which records an aggregate is made of. What becomes of them is said in `windowed_aggregation.py`."""

from __future__ import annotations

from typing import Final

import attrs

from task_assignor.runtime.arrow.times import FARTHEST_MS
from task_assignor.runtime.errors import TopologyException
from task_assignor.sdk.text import shown

_MOST_WINDOWS: Final = 10_000
"""In so many may a record be: a batch takes time for each of its rows in each."""


@attrs.frozen
class TimeWindows:
    """Windows of equal size: `[start, start + size)` for every start that is a multiple of the advance.

    Each record is in size / advance of them, at most 10,000, and takes time for each; a batch that has many is put into its
    windows in slices, so that it takes no more memory.

    Args:
        size_ms: how long they are, ms.
        advance_ms: from start to start, ms, at most the size; None: the size, so that they do not overlap (tumbling).

    Raises:
        TopologyException: a number is not allowed.
    """

    size_ms: int
    advance_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        if type(self.size_ms) is not int or self.size_ms < 1:
            raise TopologyException(f"The size_ms ({shown(self.size_ms)}) of TimeWindows must be an int of at least 1.")
        if self.size_ms > FARTHEST_MS:
            raise TopologyException(f"The size_ms ({self.size_ms}) of TimeWindows must be at most {FARTHEST_MS}.")
        if self.advance_ms is not None and (
            type(self.advance_ms) is not int or not 1 <= self.advance_ms <= self.size_ms
        ):
            raise TopologyException(
                f"The advance_ms ({shown(self.advance_ms)}) of TimeWindows must be an int from 1 to the size ({self.size_ms})."
            )
        if self.advance_ms is not None and self.size_ms / self.advance_ms > _MOST_WINDOWS:
            raise TopologyException(
                f"With the size_ms {self.size_ms} and the advance_ms {self.advance_ms} of TimeWindows each record is in "
                f"{-(-self.size_ms // self.advance_ms):,} windows; at most {_MOST_WINDOWS:,} are possible. Maybe the advance is meant in "
                "seconds: both are in ms."
            )


@attrs.frozen
class SessionWindows:
    """Records of a group that follow each other by at most a gap are one window, from the first to the last of them.

    Args:
        gap_ms: how long nothing may happen in a session, ms.

    Raises:
        TopologyException: the number is not allowed.
    """

    gap_ms: int

    def __attrs_post_init__(self) -> None:
        if type(self.gap_ms) is not int or self.gap_ms < 0:
            raise TopologyException(
                f"The gap_ms ({shown(self.gap_ms)}) of SessionWindows must be an int of at least 0."
            )


@attrs.frozen
class SlidingWindows:
    """For each record of a group the window that ends with it, and the one that begins right after it if there are records in it (KIP-450).

    So there is a window for each choice of records that lie within the difference: `[time - difference, time]` and
    `[time + 1, time + 1 + difference]`, both ends included. Each record is in as many windows as there are moments of its group near it, and takes
    time for each.

    Args:
        time_difference_ms: how far apart records of a window may be, ms.

    Raises:
        TopologyException: the number is not allowed.
    """

    time_difference_ms: int

    def __attrs_post_init__(self) -> None:
        if type(self.time_difference_ms) is not int or not 0 <= self.time_difference_ms <= FARTHEST_MS:
            raise TopologyException(
                f"The time_difference_ms ({shown(self.time_difference_ms)}) of SlidingWindows must be an int from 0 to {FARTHEST_MS}."
            )


Windows = TimeWindows | SessionWindows | SlidingWindows
"""What an aggregation may be over."""
