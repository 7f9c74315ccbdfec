"""The times of records as numbers: milliseconds, and what counts as no time."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.keys import timestamps_in_ms
from task_assignor.runtime.machines import topic_time
from task_assignor.sdk.integers import INT64_MAX

FARTHEST_MS: Final = 1 << 60
"""Times farther from 1970 than this (36 million years) are mistakes, and sums of them would not fit into 64 bits."""
NO_TIME: Final = topic_time.NO_TIME
"""What stands for a null, and for a time too far away to be one."""


def times_of(rows: pa.Table, timestamp: str | None) -> npt.NDArray[np.int64]:
    """(N,) the time of each row, ms since the epoch, rounded down; `NO_TIME` where it has none.

    Args:
        rows: the rows.
        timestamp: their column with the time; None: they have none.
    """
    if timestamp is None:
        return np.full(rows.num_rows, NO_TIME)
    column = rows.column(timestamp)
    if pa.types.is_timestamp(column.type) and column.type.unit == "s":
        # In milliseconds they might not fit into 64 bits.
        seconds = column.cast(pa.int64())
        far = pc.greater_equal(pc.abs(pc.max_element_wise(seconds, -FARTHEST_MS)), FARTHEST_MS // 1_000)
        column = pc.if_else(far, pa.scalar(None, column.type), column)
    column = timestamps_in_ms(column)
    times: npt.NDArray[np.int64] = (pc.fill_null(column, NO_TIME) if column.null_count else column).to_numpy()
    if len(times) and (times.min() < -FARTHEST_MS or times.max() > FARTHEST_MS):
        return np.where((times < -FARTHEST_MS) | (times > FARTHEST_MS), NO_TIME, times)
    return times


def order_of_times(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """(N,) numbers that are in the order of times, also of such within a millisecond; that of null is the greatest.

    Raises:
        TopicException: as `timestamps_in_ms`.
    """
    is_finer = pa.types.is_timestamp(column.type) and column.type.unit in ("us", "ns")
    found = column.cast(pa.int64()) if is_finer else timestamps_in_ms(column)
    return pc.fill_null(found, INT64_MAX).to_numpy()  # type: ignore[no-any-return]
