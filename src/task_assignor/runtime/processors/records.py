"""Which records take part in a ready-made processor: those with a time and, where it matters, not too late."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.arrow.frames import valid
from task_assignor.runtime.arrow.times import FARTHEST_MS, NO_TIME, times_of
from task_assignor.runtime.errors import LateRecordException
from task_assignor.runtime.topology.context import TaskContext

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


def both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    """Rows that are in both masks; None stands for all rows."""
    return other if one is None else one if other is None else one & other


def masked(rows: pa.Table, mask: BoolArray | None) -> pa.Table:
    """The rows of a mask; None: all."""
    return rows if mask is None else rows.filter(pa.array(mask))


def with_times(topic: str, rows: pa.Table, timestamp: str, context: TaskContext) -> tuple[Int64Array, BoolArray | None]:
    """The times of the rows, and which rows have one (None: all); the others are bad records.

    Raises:
        BadRecordException: one has none, and the setting is to stop.
    """
    times = times_of(rows, timestamp)
    missing = np.flatnonzero(times == NO_TIME)
    if not len(missing):
        return times, None
    column = rows.column(timestamp)
    found = column.take(pa.array(missing)).cast(pa.int64()).to_pylist()
    context.leave_out(
        topic,
        missing,
        [
            f"has no {timestamp}"
            if value is None
            else f"has a {timestamp} of {value} ({column.type}), which is no time"
            for value in found
        ],
    )
    return times, times != NO_TIME


def with_keys(
    topic: str, rows: pa.Table, key: tuple[str, ...], context: TaskContext, among: BoolArray | None = None
) -> BoolArray | None:
    """Which rows have a key without nulls (None: all); the others, if they are `among` those that count, are bad records.

    Raises:
        BadRecordException: one has none, and the setting is to stop.
    """
    has_key = valid_keys(rows, key)
    if has_key is not None:
        names = ", ".join(name for name in key if valid(rows.column(name)) is not None)
        context.leave_out(
            topic, np.flatnonzero(~has_key if among is None else among & ~has_key), f"has a null in its key ({names})"
        )
    return has_key


def valid_keys(rows: pa.Table, key: tuple[str, ...]) -> BoolArray | None:
    """Which rows have a key without nulls; None: all."""
    found: BoolArray | None = None
    for name in key:
        found = both(found, valid(rows.column(name)))
    return found


def newest_so_far(
    topic: str, times: Int64Array, before: int | None, context: TaskContext
) -> tuple[Int64Array, int | None]:
    """(N,) the time of a topic at each row, and that at the end.

    It is the newest time up to there, rows before these and those that a derived stream leaves out included; of a repartition
    topic that up to which all have come who write it.

    Args:
        topic: where they come from.
        times: (N,) their times, ms.
        before: newest time before these, ms; None: there was none.
        context: of the task.

    Returns:
        The times, `NO_TIME` where there is none yet, and the newest; None: there is none.
    """
    start = NO_TIME if before is None else before
    in_topic = context.time_of_topic(topic)
    if in_topic is None:
        in_topic = np.maximum.accumulate(np.append(times, NO_TIME))
    newest: Int64Array = np.maximum(in_topic, start)
    end = int(newest[-1])
    return newest[:-1], None if end == NO_TIME else end


def oldest_of(newest: Int64Array, allowed_ms: int) -> Int64Array:
    """(N,) rows older than this are too late; where nothing is known of the time, none is.

    Args:
        newest: (N,) `newest_so_far`.
        allowed_ms: by how much a row may be older than that.
    """
    allowed_ms = min(allowed_ms, 2 * FARTHEST_MS)  # no two times are farther apart
    oldest: Int64Array = np.maximum(newest, NO_TIME + allowed_ms) - allowed_ms
    return oldest


def leave_out_late(
    topic: str,
    times: Int64Array,
    newest: Int64Array,
    allowed_ms: int,
    limit_ms: int | None,
    context: TaskContext,
    late: BoolArray | None = None,
) -> BoolArray | None:
    """Which rows are not too late; None: all. The setting `late_records` decides what becomes of the others.

    Args:
        topic: where they come from.
        times: (N,) their times, ms.
        newest: (N,) `newest_so_far`.
        allowed_ms: by how much a row may be older than that.
        limit_ms: those older than this and what is allowed are an error whatever the setting is: one time in the far
            future makes all that follow it late. None: no limit.
        context: of the task.
        late: (N,) which rows are too late; None: all that are older than they may be.

    Raises:
        LateRecordException: the setting is to stop, or one is beyond the limit.
    """
    late = times < oldest_of(newest, allowed_ms) if late is None else late
    if not late.any():
        return None
    behind = np.where(newest == NO_TIME, -FARTHEST_MS, newest - times)
    places = np.flatnonzero(late)
    too_far = places[:0] if limit_ms is None else places[behind[places] > allowed_ms + limit_ms]
    stops = context.stops_at_late_records()
    is_of_many = context.is_written_by_many(topic)
    than = "what all tasks that write the topic have come to" if is_of_many else "a record before it"

    def allowed(found: int) -> str:
        fewer = "" if found > allowed_ms else ", but were fewer when its window was closed"
        return f"{allowed_ms} ms are allowed{fewer}"

    if len(too_far) or stops:
        row = int(places[0] if stops else too_far[0])
        offset = context.offset_of(topic, row)
        ahead = np.flatnonzero(times[:row] == newest[row])
        other = (
            f"offset {context.offset_of(topic, int(ahead[0]))}"
            if len(ahead)
            else "a record of another source or an earlier batch"
        )
        newest_is = "" if is_of_many else f"The newest before it is {other}. "
        advice = (
            f"Maybe late_records='skip', with which this run can go on; or, with another run_dir, a grace of {int(behind.max())} ms (what "
            "this batch needs), or the topic sorted by its timestamp"
            if stops
            else "Too much to be left out without a word: maybe that one has a wrong time; else set late_limit_ms"
        )
        whose = context.root_of(topic)
        raise LateRecordException(
            f"The record {whose}, partition {context.partition}, offset {offset} is {int(behind[row])} ms older than {than}; "
            f"{allowed(behind[row])}. {newest_is}{advice}.",
            whose,
            context.partition,
            offset,
        )
    told = [f"is {found} ms older than {than}; {allowed(found)}" for found in behind[places]]
    context.leave_out(topic, places, told, is_late=True)
    return ~late
