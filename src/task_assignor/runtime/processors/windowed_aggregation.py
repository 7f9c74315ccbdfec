"""Aggregates over windows of time: tumbling, hopping, sliding, sessions. A window comes out once, when it is closed.

**When a window is closed.** The source promises an order: a record is at most `grace` older than the newest record before
it in its partition; S is the time of that one. (Of a repartition topic S is the time up to which all have come who write it:
each of them promises the order.) A window `[start, end)` is closed as soon as `S >= end + grace`, a sliding one, whose end is part of it, as soon
as `S > end + grace`, a session as soon as `S > last record + gap + grace`: no record that keeps the promise can be part of it any more. Then it comes out. What
is open at the end of a run stays in the store, and comes when a later run has moved the time.

**Records that come too late** are found by their place in the partition, never by batches: those for which one of their
windows was closed before (they still count in the others), and for sessions those that are more than `grace` late.

Each batch adds a row to the store for every group and window that it touches; of sessions for every piece, of sliding windows for
every moment. They are put
together when the window is closed, so a batch costs what it brings, not what there is; and now and then, so that a long window
does not have a row for each batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import no_rows, own, taken, to_frame
from task_assignor.runtime.arrow.times import FARTHEST_MS, NO_TIME
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.aggregates import Aggregate, Group, to_aggregates
from task_assignor.runtime.processors.aggregation import check_groups, numbers_of
from task_assignor.runtime.processors.columns import (
    as_type,
    check_same_columns,
    from_frame,
    plain,
    specs_of,
    stores_of,
    to_columns,
)
from task_assignor.runtime.processors.records import (
    BoolArray,
    Int64Array,
    both,
    leave_out_late,
    masked,
    newest_so_far,
    with_keys,
    with_times,
)
from task_assignor.runtime.processors.windows import SessionWindows, SlidingWindows, TimeWindows, Windows
from task_assignor.runtime.stores.window import WindowStoreSpec
from task_assignor.runtime.topics.spec import TopicSpec, check_source
from task_assignor.runtime.topology.bad_records import LeftOut, check_left_out
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import Output, SubTopology
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.text import shown

if TYPE_CHECKING:
    import polars as pl

START: Final = "window_start"
END: Final = "window_end"
_AT_ONCE: Final = 1 << 20
"""So many rows, each counted once for each of its windows, are put into groups at a time."""
_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_SESSION = own("session")


@attrs.frozen(kw_only=True)
class WindowedAggregation:
    """Aggregates of each key over windows of time; each window comes out once, when it is closed (KIP-825).

    Args:
        source: source topic; it needs a timestamp.
        windows: `TimeWindows`, `SlidingWindows` or `SessionWindows`.
        aggregates: name in the result -> what is computed. Sliding windows and sessions know no `Aggregate.fold`: theirs are put
            together from parts.
        by: columns that make a group, the key columns among them; None: the key columns.
        grace_ms: by how much records may be out of order within a partition, ms.
        late_records: what becomes of records that come too late.
        bad_records: of those without a time, with one whose window has bounds that the type of the timestamp does not have
            (the first and the last of nanoseconds, 1677 and 2262), or with a null in a column that makes a group.
        late_limit_ms: by how much a record may be too late and still be left out, ms; beyond that it is an error, since a
            single time in the far future makes everything after it late. None: no limit.

    The result has the columns that make a group, `window_start` and `window_end` (in the type of the timestamp, whole milliseconds; of a
    session the times of its first and last record, and of a sliding window the last time that is part of it), and the aggregates.

    Raises:
        TopologyException: an option is not allowed.
    """

    source: str = attrs.field(validator=check_source)
    windows: Windows
    aggregates: Mapping[str, Aggregate] = attrs.field(converter=to_aggregates)
    by: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    grace_ms: int = 0
    late_records: LeftOut = "stop"
    bad_records: LeftOut = "stop"
    late_limit_ms: int | None = 7 * 24 * 3_600_000

    def __attrs_post_init__(self) -> None:
        where = self._where
        check_left_out(where, "late_records", self.late_records)
        check_left_out(where, "bad_records", self.bad_records)
        for name, value in (("grace_ms", self.grace_ms), ("late_limit_ms", self.late_limit_ms)):
            if (type(value) is not int or value < 0) and not (value is None and name == "late_limit_ms"):
                raise TopologyException(f"{where}: {name} ({shown(value)}) must be an int of at least 0.")
        if self.grace_ms > FARTHEST_MS:
            raise TopologyException(
                f"{where}: grace_ms ({self.grace_ms}) must be at most {FARTHEST_MS}, which are 36 million years: with more no window "
                "would ever be closed."
            )
        if not isinstance(self.windows, Windows):
            raise TopologyException(
                f"{where}: windows ({shown(self.windows)}) must be TimeWindows, SlidingWindows or SessionWindows."
            )
        if not self.aggregates:
            raise TopologyException(f"{where} computes nothing. Maybe aggregates={{'rows': Aggregate.count()}}.")
        folds = sorted(name for name, found in self.aggregates.items() if found.kind == "fold")
        if folds and not isinstance(self.windows, TimeWindows):
            kind = "sessions" if isinstance(self.windows, SessionWindows) else "sliding windows"
            raise TopologyException(f"{where}: {kind} know no Aggregate.fold ({folds}).")

    @property
    def _where(self) -> str:
        return f"The windowed aggregation of {self.source!r}"

    def sub_topology(self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec) -> SubTopology:
        """The aggregation as a sub-topology with the store `<name>-windows`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
            topics: what the source is like.

        Raises:
            TopologyException: the topic is missing, has no timestamp, or columns do not fit.
        """
        where = self._where
        spec = specs_of(where, (self.source,), topics)[self.source]
        if spec.timestamp is None:
            raise TopologyException(f"{where} needs times, but the topic has no timestamp column.")
        by = spec.key if self.by is None else self.by
        check_groups(where, spec, by, self.aggregates)
        twice = sorted({START, END} & {*by, *self.aggregates})
        if twice:
            raise TopologyException(f"{where}: the names {twice} are those of the window. Maybe rename them.")
        factory = _Factory(where, self, spec, by, f"{name}-windows")
        # Of time windows the start decides when they are forgotten, of sessions and what sliding windows are made of the end.
        time = START if isinstance(self.windows, TimeWindows) else END
        with stores_of(where):
            store = WindowStoreSpec(factory.store, time)
        return SubTopology(
            name,
            (self.source,),
            factory,
            (store,),
            (output,),
            bad_records=self.bad_records,
            late_records=self.late_records,
        )


@attrs.frozen
class _Factory:
    """Makes the processors of a windowed aggregation, and checks the topic beforehand."""

    where: str
    aggregation: WindowedAggregation
    spec: TopicSpec
    by: tuple[str, ...]
    store: str

    knows_what_comes: ClassVar[bool] = True
    """The graces say how old rows may be that still come out."""

    @property
    def shown_as(self) -> str:
        """What its user wrote."""
        return type(self.aggregation).__qualname__

    @property
    def free_graces(self) -> tuple[str, ...]:
        """The graces that may be others in a later run: the store knows which time windows have been closed."""
        return ("grace_ms",) if isinstance(self.aggregation.windows, TimeWindows) else ()

    @property
    def gathers(self) -> Mapping[str, Callable[[pa.Table], pa.Table]]:
        """What puts rows of the store together."""
        return {self.store: self._gathered}

    def _gathered(self, rows: pa.Table) -> pa.Table:
        """A row for each group and window of some rows; these as they are where a sum does not fit: that of all may."""
        group = Group(self.spec, self.aggregation.aggregates, self.where)
        try:
            return from_frame(group.put_together(to_frame(rows), [*self.by, START, END]), rows.schema)
        except OverflowError:
            return rows

    def __call__(self) -> Processor:
        match self.aggregation.windows:
            case TimeWindows() as windows:
                return _InTimeWindows(self, windows)
            case SlidingWindows(difference):
                return _InSlidingWindows(self, difference)
            case SessionWindows(gap):
                return _InSessions(self, gap)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topic is another one than before."""
        check_same_columns(self.where, {self.spec.name: self.spec}, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:
        """Columns of the result: those that make a group, the window, then the aggregates."""
        spec = topics[self.spec.name]
        assert spec.timestamp is not None
        time = _time_type(spec.schema.field(spec.timestamp).type)
        group = Group(spec, self.aggregation.aggregates, self.where)
        keys = (plain(spec.schema.field(column)) for column in self.by)
        return pa.schema([*keys, pa.field(START, time), pa.field(END, time), *group.fields])


class _Windowed(Processor):
    """What all kinds of windows share. The store holds the columns of the group, the window, and states."""

    def __init__(self, factory: _Factory) -> None:
        self._factory = factory
        self._plan = factory.aggregation
        self._by = list(factory.by)
        self._group = Group(factory.spec, factory.aggregation.aggregates, factory.where)

    def init(self, context: TaskContext) -> None:
        """Take the store."""
        spec = context.topics[self._plan.source]
        self._store = context.window_store(self._factory.store)
        self._schema = self._factory.output_schema(context.topics)
        keys = [self._schema.field(column) for column in self._by]
        times = [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        self._stored = pa.schema([*keys, *times, *self._group.state_fields])
        assert spec.timestamp is not None
        self._timestamp = spec.timestamp

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Add what the batch brings, then give what is closed."""
        (rows,) = batch.values()
        topic = self._plan.source
        if not rows.num_rows and context.time_of_topic(topic) is None:
            return None
        before = self._store.stream_time
        times, keep = with_times(topic, rows, self._timestamp, context)
        times, keep = self._with_windows(topic, times, keep, context)
        keep = both(keep, with_keys(topic, rows, self._factory.by, context, among=keep))
        newest, now = newest_so_far(topic, times, before, context)
        if now is not None:
            self._store.observe(now)
        known = times if keep is None else np.where(keep, times, newest)
        in_time = self._leave_out_late(topic, known, newest, context)
        keep = both(keep, in_time)
        if keep is not None:
            rows, times, newest = masked(rows, keep), times[keep], newest[keep]
        if rows.num_rows:
            self._add(rows, times, newest)
        return None if now is None else self._close(before, now)

    def _with_windows(
        self, topic: str, times: Int64Array, keep: BoolArray | None, context: TaskContext
    ) -> tuple[Int64Array, BoolArray | None]:
        """The times, and which rows count; those with a window that ends where their type ends, as 1677 with ns, are bad records."""
        kind = self._schema.field(START).type
        if not pa.types.is_timestamp(kind):
            return times, keep
        limit = INT64_MAX // _PER_MS[kind.unit]
        first, last = self._span(times)
        beyond = ((first < -limit) | (last > limit)) & (times != NO_TIME)
        if not beyond.any():
            return times, keep
        places = np.flatnonzero(beyond)
        context.leave_out(topic, places, [f"is in a window with bounds that {kind} does not have"] * len(places))
        return np.where(beyond, NO_TIME, times), both(keep, ~beyond)

    def to_come(self, column: str) -> int | None:
        """No row that still comes out is older than this, ms; None: it is not known.

        Args:
            column: the column of the result that is the time of its rows.
        """
        now = self._store.stream_time
        return None if now is None else self._to_come(column, now)

    @abstractmethod
    def _to_come(self, column: str, now: int) -> int | None:
        """See `to_come`; `now` is the newest time."""

    @abstractmethod
    def _span(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Where the first window of each record begins, and where its last one ends."""

    @abstractmethod
    def _leave_out_late(
        self, topic: str, times: Int64Array, newest: Int64Array, context: TaskContext
    ) -> BoolArray | None:
        """Which rows may be part of a window; None: all."""

    @abstractmethod
    def _add(self, rows: pa.Table, times: Int64Array, newest: Int64Array) -> None:
        """Add rows to the store."""

    @abstractmethod
    def _close(self, before: int | None, now: int) -> pa.Table | None:
        """Give the windows that were open at one time and are closed at another, and forget them."""

    def _append(self, states: pl.DataFrame) -> None:
        self._store.append(from_frame(states, self._stored), is_own=True)

    def _result(self, states: pl.DataFrame) -> pa.Table | None:
        if not states.height:
            return None
        table = self._group.results(states).select(self._schema.names).to_arrow()
        columns = [
            _from_ms(table.column(field.name), field.type) if field.name in (START, END) else table.column(field.name)
            for field in self._schema
        ]
        return pa.table(
            [as_type(column, field.type) for column, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )


def _time_type(kind: pa.DataType) -> pa.DataType:
    """In which type the bounds of windows are given: they need not be whole seconds."""
    if not pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz)


def _from_ms(times: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("ms", kind.tz)) if pa.types.is_timestamp(kind) else times


class _InTimeWindows(_Windowed):
    """Tumbling and hopping windows."""

    def __init__(self, factory: _Factory, windows: TimeWindows) -> None:
        super().__init__(factory)
        self._size, self._advance = windows.size_ms, windows.advance_ms or windows.size_ms

    def _span(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        oldest_start = ((times - self._size) // self._advance + 1) * self._advance
        return oldest_start, times // self._advance * self._advance + self._size

    def _leave_out_late(
        self, topic: str, times: Int64Array, newest: Int64Array, context: TaskContext
    ) -> BoolArray | None:
        oldest_start, _ = self._span(times)
        late = self._are_closed(oldest_start, newest)
        leave_out_late(topic, times, newest, self._plan.grace_ms, self._plan.late_limit_ms, context, late)
        # They still count in windows that are open.
        return None

    def _are_closed(self, starts: Int64Array, newest: Int64Array) -> BoolArray:
        """Which windows are, when the newest time is that; those that an earlier, shorter grace has closed stay so."""
        closed: BoolArray = starts + self._size + self._plan.grace_ms <= newest
        forgotten = self._store.expired_before
        return closed if forgotten is None else closed | (starts < forgotten)

    def _add(self, rows: pa.Table, times: Int64Array, newest: Int64Array) -> None:
        import polars as pl

        most = max(_AT_ONCE // -(-self._size // self._advance), 1)
        states = None
        for first in range(0, rows.num_rows, most):
            part = slice(first, first + most)
            found = self._states(rows.slice(first, most), times[part], newest[part])
            by = [*self._by, START]
            states = found if states is None else self._group.put_together(pl.concat([states, found]), by)
            # What functions have made so far is looked up in the store.
            if self._group.folds or states.height > _AT_ONCE or part.stop >= rows.num_rows:
                self._append(states.with_columns((pl.col(START) + self._size).alias(END)))
                states = None

    def _states(self, rows: pa.Table, times: Int64Array, newest: Int64Array) -> pl.DataFrame:
        """A state for each group and window that is open."""
        import polars as pl

        newest_start = times // self._advance * self._advance
        numbers, starts = [], []
        for hop in range(-(-self._size // self._advance)):
            start = newest_start - hop * self._advance
            is_open = (start + self._size > times) & ~self._are_closed(start, newest)
            numbers.append(np.flatnonzero(is_open))
            starts.append(start[is_open])
        number, start = np.concatenate(numbers), np.concatenate(starts)
        order = np.argsort(number, kind="stable")
        number, start = number[order], start[order]
        by = [*self._by, START]
        frame = self._group.frame(rows, self._by)[number].with_columns(pl.Series(START, start))
        parts = self._group.parts(frame, by)
        if self._group.folds:
            keys = parts.select(by)
            group = numbers_of(keys, frame)
            parts = self._group.fold(parts, self._known(keys), taken(rows, pa.array(number)), group)
        return parts

    def _known(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The states so far of some groups and windows; null where there are none."""
        stored = self._store.frame
        if stored is None:
            stored = to_frame(no_rows(self._stored))
        by = keys.columns
        states = self._group.put_together(stored.join(keys, on=by, how="semi"), by)
        return keys.with_row_index(own("row")).join(states, on=by, how="left").sort(own("row"))

    def _to_come(self, column: str, now: int) -> int | None:
        # Not what is closed under the grace of now: it comes out with the next rows of the topic.
        first = self._store.expired_before
        if first is None:
            # Former versions did not write it down where there was nothing to forget.
            return None
        # Beside another source nobody is further than what was read.
        return min(first + self._size, now) if column == END else first

    def _close(self, before: int | None, now: int) -> pa.Table | None:  # noqa: ARG002 - what is closed is forgotten
        import polars as pl

        last = now - self._size - self._plan.grace_ms
        stored = self._store.frame
        # Also where there is nothing: what is closed stays so.
        self._store.expire(last + 1)
        if stored is None:
            return None
        closed = stored.filter(pl.col(START) <= last)
        by = [START, *self._by]
        return self._result(self._group.put_together(closed, by, [pl.col(END).first()]).sort(by))


class _InSlidingWindows(_Windowed):
    """Sliding windows. The store has what happened at each moment: its time (as the end), and the first window of which it is part."""

    def __init__(self, factory: _Factory, difference_ms: int) -> None:
        super().__init__(factory)
        self._difference = difference_ms
        self._open = difference_ms + factory.aggregation.grace_ms
        """For so long after its start a window is open."""

    def _span(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        return times - self._difference, times + 1 + self._difference

    def _leave_out_late(
        self, topic: str, times: Int64Array, newest: Int64Array, context: TaskContext
    ) -> BoolArray | None:
        leave_out_late(topic, times, newest, self._plan.grace_ms, self._plan.late_limit_ms, context)
        # They still count in windows that are open.
        return None

    def _add(self, rows: pa.Table, times: Int64Array, newest: Int64Array) -> None:
        import polars as pl

        first = np.maximum(times - self._difference, np.maximum(newest, -FARTHEST_MS) - self._open)
        frame = self._group.frame(rows, self._by).with_columns(pl.Series(START, first), pl.Series(END, times))
        frame = frame.filter(pl.col(START) <= pl.col(END))
        if frame.height:
            self._append(self._group.parts(frame, [*self._by, START, END]))

    def _to_come(self, column: str, now: int) -> int:
        return now - self._open if column == START else now - self._plan.grace_ms

    def _close(self, before: int | None, now: int) -> pa.Table | None:
        import polars as pl

        moments, end = self._store.frame, now - self._open
        # The moment before a window begins says that there is one.
        self._store.expire(end - 1)
        if moments is None:
            return None
        by = [START, *self._by]
        ending = moments.filter(pl.col(END) - pl.col(START) == self._difference)
        beginning = moments.with_columns(pl.col(END) + 1)
        starts = pl.concat([ending.select(by), beginning.select(pl.col(END).alias(START), *self._by)])
        is_closed = pl.col(START) < end
        if before is not None:
            is_closed &= pl.col(START) >= before - self._open
        starts = starts.filter(is_closed).unique().sort(by)
        return self._result(pl.concat([*self._windows(starts, moments)])) if starts.height else None

    def _windows(self, starts: pl.DataFrame, moments: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Of each start and group the window, put together from moments; a few windows at a time."""
        import polars as pl

        keys = starts.select(self._by).unique(maintain_order=True)
        near = moments.join(keys, on=self._by, how="semi")
        end, since, start = (found.to_numpy() for found in (near[END], near[START], starts[START]))
        times = np.unique(end)

        def places(keyed: pl.DataFrame, before: Int64Array) -> Int64Array:
            """By group, then by how many times come before."""
            return numbers_of(keys, keyed) * (len(times) + 1) + before

        place = places(near, np.searchsorted(times, end))
        order = np.argsort(place, kind="stable")
        bounds = (np.searchsorted(times, start), np.searchsorted(times, start + self._difference, side="right"))
        first, stop = (np.searchsorted(place[order], places(starts, bound)) for bound in bounds)
        number = stop - first
        for part in np.split(np.arange(len(start)), np.flatnonzero(np.diff(np.cumsum(number) // _AT_ONCE)) + 1):
            window = np.repeat(part, number[part])
            begin = np.cumsum(number[part]) - number[part]
            row = order[np.arange(len(window)) + np.repeat(first[part] - begin, number[part])]
            is_part = since[row] <= start[window]
            window = window[is_part]
            within = near[row[is_part]].with_columns(
                pl.Series(START, start[window]), pl.Series(END, start[window] + self._difference)
            )
            yield self._group.put_together(within, [START, *self._by], [pl.col(END).first()])


class _InSessions(_Windowed):
    """Sessions. Pieces of a session that are in several batches are put together when it is closed, or before they get too old."""

    def __init__(self, factory: _Factory, gap_ms: int) -> None:
        super().__init__(factory)
        self._gap = gap_ms

    def _span(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        return times, times

    def _leave_out_late(
        self, topic: str, times: Int64Array, newest: Int64Array, context: TaskContext
    ) -> BoolArray | None:
        return leave_out_late(topic, times, newest, self._plan.grace_ms, self._plan.late_limit_ms, context)

    def _add(self, rows: pa.Table, times: Int64Array, newest: Int64Array) -> None:  # noqa: ARG002 - all are in time
        import polars as pl

        frame = self._group.frame(rows, self._by).with_columns(pl.Series(START, times), pl.Series(END, times))
        bounds = [pl.col(START).min(), pl.col(END).max()]
        self._append(self._group.parts(self._in_sessions(frame), [*self._by, _SESSION], bounds))

    def _in_sessions(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows, or pieces, with a number for the session of their group."""
        import polars as pl

        end_before = pl.col(END).cum_max().shift(1).over(self._by)
        is_first = end_before.is_null() | (pl.col(START) - end_before > self._gap)
        ordered = frame.sort([*self._by, START])
        return ordered.with_columns(is_first.alias(_SESSION)).with_columns(
            pl.col(_SESSION).cast(pl.Int64).cum_sum().over(self._by)
        )

    def _to_come(self, column: str, now: int) -> int:
        if column == END:
            return now - self._plan.grace_ms - self._gap
        # What is open goes on, however long ago it began.
        stored, first = self._store.frame, now - self._plan.grace_ms
        return first if stored is None else min(first, int(stored.get_column(START).to_numpy().min()))

    def _close(self, before: int | None, now: int) -> pa.Table | None:
        import polars as pl

        stored = self._store.frame
        if stored is None:
            return None
        closed_now = now - self._plan.grace_ms - self._gap
        by, bounds = [*self._by, _SESSION], [pl.col(START).min(), pl.col(END).max()]
        candidates = stored.join(stored.filter(pl.col(END) < closed_now).select(self._by), on=self._by, how="semi")
        pieces = self._in_sessions(candidates)
        sessions = self._group.put_together(pieces, by, bounds)
        is_open = pl.col(END) >= closed_now
        # The older pieces of an open session become one that is not forgotten; else all that is newer would have to stay. It ends with
        # the session, so that this is not done again before the session is as old.
        older = pieces.filter(~is_open).drop(END).join(sessions.filter(is_open).select(*by, END), on=by)
        if older.height:
            self._append(self._group.put_together(older, by, bounds))
        self._store.expire(closed_now)
        closed = sessions.filter(~is_open)
        if before is not None:
            # What earlier versions have not forgotten came out before.
            closed = closed.filter(pl.col(END) >= before - self._plan.grace_ms - self._gap)
        return self._result(closed.sort([START, *self._by]))
