"""Exact joins of two streams by key and time window: inner, left, outer.

A left row and a right row match if their keys are equal and `-before <= time(right) - time(left) <= after`. The result
is the set of all matching pairs, and with `how="left"` or `"outer"` the rows that have no partner, whatever the
micro-batches were.

**When a window is closed.** Each source promises an order: a record is at most `grace` older than the newest record
before it in its partition. A task reads its sources in the order of time (`merging`), so when the newest record of either
is at time S, all future records of a source have time >= S - grace; of a repartition topic S is the time up to which all have
come who write it, whatever the other side has. So a left row can meet no future right row once
`time + after < S - grace(right)`, and a right row no future left row once `time + before < S - grace(left)`. Then a row
without a partner comes out, and not earlier; what is open at the end of a run stays in the store, and comes when a later
run has moved the time. No clock and no batch boundary has a say, so neither pruning nor batches change the result.

**What is kept.** A row is kept as long as it can meet one of the future; and, where rows without a partner come out, as
long as one that it has met may be asked for its partner.

**Records that break the promise** are found by their place in the partition, not by batches, so every run finds the
same ones. `late_records` says what becomes of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import no_rows, taken
from task_assignor.runtime.arrow.times import FARTHEST_MS, NO_TIME
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.columns import (
    SourceColumns,
    as_type,
    origins,
    result_columns,
    specs_of,
    stores_of,
    to_columns,
)
from task_assignor.runtime.processors.matching import Int64Array, TimedRows
from task_assignor.runtime.processors.records import (
    both,
    leave_out_late,
    masked,
    newest_so_far,
    oldest_of,
    valid_keys,
    with_times,
)
from task_assignor.runtime.stores.window import WindowStore, WindowStoreSpec
from task_assignor.runtime.topics.spec import TopicSpec, check_source
from task_assignor.runtime.topology.bad_records import LeftOut, check_left_out
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import Output, SubTopology
from task_assignor.sdk.checks import check_choice, check_fields
from task_assignor.sdk.text import shown

HOWS: Final = ("inner", "left", "outer")
_TIME: Final = {"left": "__time_left", "right": "__time_right"}
_APART_MS: Final = 2 * FARTHEST_MS
"""No two times are farther apart: larger bounds and graces say the same, and sums of them might not fit into 64 bits."""


@attrs.frozen(kw_only=True)
class WindowedJoin:
    """An exact windowed join of two co-partitioned topics.

    Args:
        left: left source topic.
        right: right source topic.
        before_ms: how much older than the left row a matching right row may be, ms.
        after_ms: how much newer it may be, ms. Negative values are allowed as long as `before_ms + after_ms >= 0`.
        how: "inner" (pairs), "left" (and left rows without a partner, when their window is closed) or "outer" (and right
            ones).
        left_grace_ms: by how much records of the left topic may be out of order within a partition, ms; None: any
            order is right, and no right row is ever dropped from the buffer, nor known to have no partner.
        right_grace_ms: the same for the right topic and left rows.
        late_records: what becomes of a record that breaks this promise, and
        bad_records: of one without a time: "stop", "skip" or `DeadLetters`, as `SubTopology` has it.
        late_limit_ms: by how much a late record may break the promise and still be left out, ms; beyond that it is an
            error, since a single time in the far future makes everything after it late. None: no limit.
        left_columns: columns of the left rows in the result, besides the keys; None: all.
        right_columns: the same for right rows.
        suffix: added to the name of a right column that the left side has too.

    The result has the key columns under their left names, then the other left columns, then the other right ones; a row
    without a partner has nulls for the other side. Keys are those of the topics: the i-th key column of the left with the
    i-th of the right. Rows whose key has a null match nothing (counted as `null_key`), so where rows without a partner
    come out they do at once. Times are compared in whole milliseconds.

    Raises:
        TopologyException: the window or an option is not allowed.
    """

    left: str = attrs.field(validator=check_source)
    right: str = attrs.field(validator=check_source)
    before_ms: int
    after_ms: int
    how: str = "inner"
    left_grace_ms: int | None = 0
    right_grace_ms: int | None = 0
    late_records: LeftOut = "stop"
    bad_records: LeftOut = "stop"
    late_limit_ms: int | None = 7 * 24 * 3_600_000
    left_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    right_columns: tuple[str, ...] | None = attrs.field(default=None, converter=to_columns)
    suffix: str = "_right"

    def __attrs_post_init__(self) -> None:
        where = f"The join of {self.left!r} and {self.right!r}"
        if self.left == self.right:
            raise TopologyException(
                f"{where}: a topic cannot be joined with itself. Maybe write it under a second name."
            )
        for name, value in (("before_ms", self.before_ms), ("after_ms", self.after_ms)):
            if type(value) is not int:
                raise TopologyException(f"{where}: {name} ({shown(value)}) must be an int of milliseconds.")
        if self.before_ms + self.after_ms < 0:
            raise TopologyException(
                f"{where}: before_ms ({self.before_ms}) + after_ms ({self.after_ms}) is negative, so nothing can match."
            )
        for name, grace in (
            ("left_grace_ms", self.left_grace_ms),
            ("right_grace_ms", self.right_grace_ms),
            ("late_limit_ms", self.late_limit_ms),
        ):
            if grace is not None and (type(grace) is not int or grace < 0):
                raise TopologyException(f"{where}: {name} ({shown(grace)}) must be an int of at least 0, or None.")
        for name, policy in (("late_records", self.late_records), ("bad_records", self.bad_records)):
            check_left_out(where, name, policy)
        check_fields(self, TopologyException, suffix=str)
        check_choice(f"{where}: how", self.how, HOWS, TopologyException)
        for name, grace, wanted in (
            ("right_grace_ms", self.right_grace_ms, self.how != "inner"),
            ("left_grace_ms", self.left_grace_ms, self.how == "outer"),
        ):
            if wanted and grace is None:
                raise TopologyException(
                    f"{where}: with how={self.how!r} the {name} must not be None: without a limit to the disorder nobody "
                    "knows when a row has no partner."
                )

    def sub_topology(
        self, name: str, output: str | Output, topics: Iterable[TopicSpec] | TopicSpec | None = None
    ) -> SubTopology:
        """The join as a sub-topology with two stores, `<name>-left` and `<name>-right`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
            topics: what both sources are like, as for other processors. Its stores do not need it: it is checked here, that is all.

        Raises:
            TopologyException: the topics cannot be joined so.
        """
        where = f"The join of {self.left!r} and {self.right!r}"
        plan = JoinFactory(self, f"{name}-left", f"{name}-right")
        if topics is not None:
            plan.check_sources(specs_of(where, (self.left, self.right), topics))
        with stores_of(where):
            stores = (
                WindowStoreSpec(plan.left_store, _TIME["left"]),
                WindowStoreSpec(plan.right_store, _TIME["right"]),
            )
        return SubTopology(
            name,
            (self.left, self.right),
            plan,
            stores,
            (output,),
            bad_records=self.bad_records,
            late_records=self.late_records,
        )


@attrs.frozen
class JoinFactory:
    """Makes the processor of a join, and checks the topics beforehand.

    Args:
        join: what is joined.
        left_store: name of the store of left rows.
        right_store: name of the store of right rows.
    """

    join: WindowedJoin
    left_store: str
    right_store: str

    takes_any_order: ClassVar[bool] = True
    """Which of its sources comes first at equal times does not change its result."""

    @property
    def shown_as(self) -> str:
        """What its user wrote."""
        return type(self.join).__qualname__

    @property
    def knows_what_comes(self) -> bool:
        """The graces say how old rows may be that still come out."""
        return None not in (self.join.left_grace_ms, self.join.right_grace_ms)

    @property
    def free_graces(self) -> tuple[str, ...]:
        """The graces that may be others in a later run: as rows without a partner do not come out, it matters only which are forgotten."""
        return ("left_grace_ms", "right_grace_ms") if self.join.how == "inner" else ()

    def __call__(self) -> JoinProcessor:
        """A processor for one task."""
        return JoinProcessor(self)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topics cannot be joined so."""
        _sides(self, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:
        """Columns of the result."""
        left, right = _sides(self, topics)
        return pa.schema([*left.columns.key_fields, *left.columns.value_fields, *right.columns.value_fields])

    def origins(self, topics: Mapping[str, TopicSpec]) -> dict[str, str]:
        """What each column of the result is."""
        left, right = _sides(self, topics)
        return origins(left.columns, right.columns)


@attrs.frozen
class _Side:
    """One source of the join.

    Args:
        columns: what the result takes of it.
        timestamp: its timestamp column.
        time: name of the time column in the store.
        time_is: output column that the time column is at the same time; None: none.
        values: value column in the source -> its name in the store, without the one that is the time column.
        stored: columns of the store, in order.
        grace_ms: promised order.
        store: name of the store.
    """

    columns: SourceColumns
    timestamp: str
    time: str
    time_is: str | None
    values: Mapping[str, str]
    stored: pa.Schema
    grace_ms: int | None
    store: str

    @classmethod
    def of(cls, spec: TopicSpec, columns: SourceColumns, time: str, grace_ms: int | None, store: str) -> _Side:
        assert spec.timestamp is not None
        # A timestamp that is int64 milliseconds already is not stored a second time.
        is_time = spec.timestamp in columns.values and spec.schema.field(spec.timestamp).type == pa.int64()
        time_is = columns.values[spec.timestamp] if is_time else None
        stored = [field for field in columns.value_fields if field.name != time_is]
        return cls(
            columns,
            spec.timestamp,
            time,
            time_is,
            {value: name for value, name in columns.values.items() if name != time_is},
            pa.schema([*columns.key_fields, pa.field(time, pa.int64()), *stored]),
            grace_ms,
            store,
        )

    @property
    def topic(self) -> str:
        return self.columns.topic


def _sides(plan: JoinFactory, topics: Mapping[str, TopicSpec]) -> tuple[_Side, _Side]:
    join = plan.join
    left, right = topics[join.left], topics[join.right]
    where = f"The join of {join.left!r} and {join.right!r}"
    for spec in (left, right):
        if spec.timestamp is None:
            raise TopologyException(f"{where} needs times, but the topic {spec.name!r} has no timestamp column.")
    one, other = result_columns(where, left, right, join.left_columns, join.right_columns, join.suffix)
    for columns, time in ((one, _TIME["left"]), (other, _TIME["right"])):
        if any(field.name == time for field in (*columns.key_fields, *columns.value_fields)):
            raise TopologyException(
                f"{where} needs the name {time!r} for its state, and the topic {columns.topic!r} has it, too. Maybe another "
                "suffix, or other columns."
            )
    return (
        _Side.of(left, one, _TIME["left"], join.left_grace_ms, plan.left_store),
        _Side.of(right, other, _TIME["right"], join.right_grace_ms, plan.right_store),
    )


class JoinProcessor(Processor):
    """The work of one task of a join. Made by `JoinFactory`."""

    def __init__(self, plan: JoinFactory) -> None:
        join = plan.join
        bounds = {name: max(-_APART_MS, min(getattr(join, name), _APART_MS)) for name in ("before_ms", "after_ms")}
        graces = {name: getattr(join, name) for name in ("left_grace_ms", "right_grace_ms")}
        bounds |= {name: min(grace, _APART_MS) for name, grace in graces.items() if grace is not None}
        self._join = attrs.evolve(join, **bounds)
        self._plan = attrs.evolve(plan, join=self._join)

    def init(self, context: TaskContext) -> None:
        """Take stores and columns."""
        self._context = context
        self._left, self._right = _sides(self._plan, context.topics)
        self._left_store = context.window_store(self._left.store)
        self._right_store = context.window_store(self._right.store)
        self._schema = self._plan.output_schema(context.topics)
        self._keys = [field.name for field in self._left.columns.key_fields]

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """New left rows meet all right rows; new right rows meet the left rows that were there before."""
        # A source may have gained columns since the rows of the state were written.
        self._left_store.widen(self._left.stored)
        self._right_store.widen(self._right.stored)
        before = self._times(context)
        closed_before = self._closed_before(before)
        (new_left, lonely_left), (new_right, lonely_right) = (
            self._prepare(side, store, batch[side.topic], time, context)
            for side, store, time in (
                (self._left, self._left_store, before[0]),
                (self._right, self._right_store, before[1]),
            )
        )
        closed_now = self._closed_before(self._times(context))
        old_left, old_right = list(self._views(self._left)), list(self._views(self._right))
        left, right = (
            TimedRows(rows, self._keys, side.time) for rows, side in ((new_left, self._left), (new_right, self._right))
        )
        if len(right):
            self._right_store.append(right.rows, right, is_own=True)
        found: list[pa.Table | None] = []
        if len(left):
            found += [self._pairs(left, others, new_is_left=True) for others in self._views(self._right)]
        if len(right):
            found += [self._pairs(right, others, new_is_left=False) for others in old_left]
        if len(left):
            self._left_store.append(left.rows, left, is_own=True)
        if self._join.how != "inner":
            found += self._alone(self._left, [*old_left, left], lonely_left, closed_before[0], closed_now[0])
        if self._join.how == "outer":
            found += self._alone(self._right, [*old_right, right], lonely_right, closed_before[1], closed_now[1])
        self._expire(*closed_now)
        tables = [rows for rows in found if rows is not None and rows.num_rows]
        return pa.concat_tables(tables) if tables else None

    def to_come(self, column: str) -> int | None:
        """No row that still comes out is older than this, ms; None: it is not known.

        A row that is still read is older than the newest by its grace at most; one that was read is in a pair as long as it can
        meet one of the future.

        Args:
            column: the column of the result that is the time of its rows.
        """
        times = self._times(self._context)
        found = dict[str, int | None]()
        for side, time, closed in zip((self._left, self._right), times, self._closed_before(times), strict=True):
            new = None if time is None or side.grace_ms is None else time - side.grace_ms
            found[side.columns.values.get(side.timestamp, "")] = _older(new, closed)
        return found[column] if column in found else functools.reduce(_older, found.values())

    def _prepare(
        self, side: _Side, store: WindowStore, rows: pa.Table, before: int | None, context: TaskContext
    ) -> tuple[pa.Table, pa.Table]:
        """The rows that take part, and those whose key has a null, with the columns of the store; moves the stream time."""
        if rows.num_rows == 0 and context.time_of_topic(side.topic) is None:
            return no_rows(side.stored), no_rows(side.stored)
        times, keep = with_times(side.topic, rows, side.timestamp, context)
        newest, now = newest_so_far(side.topic, times, before, context)
        if now is not None:
            store.observe(now)
        if side.grace_ms is not None:
            # A record without a time is older than all: it has been left out already.
            known = times if keep is None else np.where(keep, times, newest)
            late = known < np.maximum(oldest_of(newest, side.grace_ms), self._oldest_in_time(side))
            in_time = leave_out_late(side.topic, known, newest, side.grace_ms, self._join.late_limit_ms, context, late)
            keep = both(keep, in_time)
        columns = [
            *side.columns.keys(rows).columns,
            pa.chunked_array([times]),
            *(as_type(rows.column(name), side.stored.field(new).type) for name, new in side.values.items()),
        ]
        table = pa.table(columns, schema=side.stored)
        has_key = valid_keys(rows, side.columns.key)
        if has_key is None:
            return masked(table, keep), no_rows(side.stored)
        context.count("null_key", int((~has_key).sum()))
        return masked(table, both(keep, has_key)), masked(table, both(keep, ~has_key))

    def _oldest_in_time(self, side: _Side) -> int:
        """Some of what rows older than this, ms, would meet is forgotten, though the grace be longer now; `NO_TIME`: nothing is."""
        is_left = side is self._left
        forgotten = (self._right_store if is_left else self._left_store).expired_before
        return NO_TIME if forgotten is None else forgotten + (self._join.before_ms if is_left else self._join.after_ms)

    def _views(self, side: _Side) -> Iterator[TimedRows]:
        """The rows that wait in a store."""
        if side is self._left:
            return self._left_store.views(self._timed_left)
        return self._right_store.views(self._timed_right)

    def _timed_left(self, rows: pa.Table) -> TimedRows:
        return TimedRows(rows, self._keys, self._left.time)

    def _timed_right(self, rows: pa.Table) -> TimedRows:
        return TimedRows(rows, self._keys, self._right.time)

    def _near(self, few: TimedRows, many: TimedRows, *, few_is_left: bool) -> tuple[Int64Array, Int64Array]:
        """The places of those that match."""
        bounds = (self._join.before_ms, self._join.after_ms)
        return few.pairs(many, *(bounds if few_is_left else bounds[::-1]))

    def _pairs(self, new: TimedRows, stored: TimedRows, *, new_is_left: bool) -> pa.Table | None:
        """New rows of one side with stored rows of the other; None: there are no pairs."""
        places = self._near(new, stored, few_is_left=new_is_left)
        if not len(places[0]):
            return None
        one, other = (taken(side.rows, pa.array(found)) for side, found in zip((new, stored), places, strict=True))
        return self._result(one, other) if new_is_left else self._result(other, one)

    def _result(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        """The columns of the result; those of a side that has no rows are null."""
        some = right if left is None else left
        assert some is not None
        columns = [some.column(key) for key in self._keys]
        for side, rows in ((self._left, left), (self._right, right)):
            for field in side.columns.value_fields:
                name = side.time if field.name == side.time_is else field.name
                columns.append(pa.nulls(some.num_rows, field.type) if rows is None else rows.column(name))
        return pa.table(columns, schema=self._schema)

    def _alone(
        self, side: _Side, parts: Sequence[TimedRows], lonely: pa.Table, before: int | None, now: int | None
    ) -> list[pa.Table]:
        """The rows without a partner whose window has been closed by this batch.

        Args:
            side: whose rows.
            parts: its rows of earlier batches, and last those of this one.
            lonely: rows that can have no partner.
            before: what was older than this was closed before the batch, ms; None: nothing.
            now: what is older than this is closed now.
        """
        is_left = side is self._left
        alone = [lonely]
        for part in parts if now is not None else ():
            times = part.rows.column(side.time).to_numpy()
            is_closed = times < now
            if part is not parts[-1] and before is not None:
                # Those of this batch may have been closed when they came: then nobody has looked at them yet.
                is_closed &= times >= before
            if is_closed.any():
                closed = TimedRows(part.rows.filter(pa.array(is_closed)), self._keys, side.time)
                is_alone = np.ones(len(closed), bool)
                for others in self._views(self._right if is_left else self._left):
                    is_alone[self._near(closed, others, few_is_left=is_left)[0]] = False
                alone.append(closed.rows.filter(pa.array(is_alone)))
        return [self._result(*((rows, None) if is_left else (None, rows))) for rows in alone]

    def _times(self, context: TaskContext) -> tuple[int | None, int | None]:
        """Left and right rows of the future are older than this by their grace at most, ms; None: it is not known."""
        times = (self._left_store.stream_time, self._right_store.stream_time)
        both = max((time for time in times if time is not None), default=None)
        sides = zip(times, (self._left, self._right), strict=True)
        left, right = (time if context.is_written_by_many(side.topic) else both for time, side in sides)
        return left, right

    def _closed_before(self, times: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
        """Left and right rows older than these meet no row of the future; None: no such time. See the top of this module."""
        left, right = times
        left_grace, right_grace = self._left.grace_ms, self._right.grace_ms
        return (
            None if right is None or right_grace is None else right - right_grace - self._join.after_ms,
            None if left is None or left_grace is None else left - left_grace - self._join.before_ms,
        )

    def _expire(self, left: int | None, right: int | None) -> None:
        """Forget what no row of the future meets, and no row whose window is open may be asked for."""
        keep_left, keep_right = left, right
        if self._join.how != "inner":
            keep_right = _older(right, None if left is None else left - self._join.before_ms)
        if self._join.how == "outer":
            keep_left = _older(left, None if right is None else right - self._join.after_ms)
        if keep_left is not None:
            self._left_store.expire(keep_left)
        if keep_right is not None:
            self._right_store.expire(keep_right)


def _older(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)
