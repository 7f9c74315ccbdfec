"""The ready-made processor: an exact inner join of two streams by key and time window; no other joins live here.

A left row and a right row match if their keys are equal and `-before <= time(right) - time(left) <= after`. The result
is the set of all matching pairs, whatever the micro-batches were and whichever source was ahead.

**When a buffered row may go.** Each source promises an order: a record is at most `grace` older than the newest record
before it in its partition. Having read a source up to newest time M, all its future records have time >= M - grace.
So a left row can meet no future right row once `time + after < M(right) - grace(right)`, and a right row no future left
row once `time + before < M(left) - grace(left)`. A side is pruned by the *other* source's time alone; no clock, no
batch boundary and no time of its own has a say, therefore pruning never changes the result.

**Records that break the promise** are found by their place in the partition, not by batches, so every run finds the
same ones. They are an error (default), or left out of the join and counted (`late="drop"`). Only so far, though: one
record with a time in the far future would make all that follow it late. A record that is more than `drop_limit_ms` too
old is an error that names it, and the one that was so far ahead if that is in the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.keys import timestamps_in_ms
from task_assignor.runtime.processor import Processor, TaskContext
from task_assignor.runtime.processors.matching import key_norm, match
from task_assignor.runtime.stores.window import WindowStore, WindowStoreSpec
from task_assignor.runtime.topics import TopicSpec
from task_assignor.runtime.topology import Output, SubTopology
from task_assignor.sdk import StreamsException

if TYPE_CHECKING:
    import polars as pl

_TIME: Final = {"left": "__time_left", "right": "__time_right"}
_FARTHEST_MS: Final = 1 << 60
"""Times farther from 1970 than this (36 million years) are mistakes, and sums of them would not fit into 64 bits."""


class LateRecordException(StreamsException):
    """A record is older than its source promised."""


def _to_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


@attrs.frozen(kw_only=True)
class WindowedJoin:
    """An exact windowed inner join of two co-partitioned topics.

    Args:
        left: left source topic.
        right: right source topic.
        before_ms: how much older than the left row a matching right row may be, ms.
        after_ms: how much newer it may be, ms. Negative values are allowed as long as `before_ms + after_ms >= 0`.
        left_grace_ms: by how much records of the left topic may be out of order within a partition, ms; None: any
            order is right, and no right row is ever dropped from the buffer.
        right_grace_ms: the same for the right topic and left rows.
        late: what to do with a record that breaks this promise: "error", or "drop" (left out and counted as `late`).
        drop_limit_ms: with `late="drop"`: by how much such a record may break it and still be dropped, ms; beyond that it
            is an error, since a single time in the far future makes everything after it late. None: no limit.
        left_columns: columns of the left rows in the result, besides the keys; None: all.
        right_columns: the same for right rows.
        suffix: added to the name of a right column that the left side has too.

    The result has the key columns under their left names, then the other left columns, then the other right ones.
    Keys are those of the topics: the i-th key column of the left with the i-th of the right. Rows whose key has a
    null match nothing (counted as `null_key`). Times are compared in whole milliseconds.

    Raises:
        TopologyException: the window or an option is not allowed.
    """

    left: str
    right: str
    before_ms: int
    after_ms: int
    left_grace_ms: int | None = 0
    right_grace_ms: int | None = 0
    late: str = "error"
    drop_limit_ms: int | None = 7 * 24 * 3_600_000
    left_columns: tuple[str, ...] | None = attrs.field(default=None, converter=_to_columns)
    right_columns: tuple[str, ...] | None = attrs.field(default=None, converter=_to_columns)
    suffix: str = "_right"

    def __attrs_post_init__(self) -> None:
        where = f"The join of {self.left!r} and {self.right!r}"
        if self.left == self.right:
            raise TopologyException(
                f"{where}: a topic cannot be joined with itself. Maybe write it under a second name."
            )
        for name, value in (("before_ms", self.before_ms), ("after_ms", self.after_ms)):
            if type(value) is not int:
                raise TopologyException(f"{where}: {name} ({value!r}) must be an int of milliseconds.")
        if self.before_ms + self.after_ms < 0:
            raise TopologyException(
                f"{where}: before_ms ({self.before_ms}) + after_ms ({self.after_ms}) is negative, so nothing can match."
            )
        for name, grace in (
            ("left_grace_ms", self.left_grace_ms),
            ("right_grace_ms", self.right_grace_ms),
            ("drop_limit_ms", self.drop_limit_ms),
        ):
            if grace is not None and (type(grace) is not int or grace < 0):
                raise TopologyException(f"{where}: {name} ({grace!r}) must be an int of at least 0, or None.")
        if self.late not in ("error", "drop"):
            raise TopologyException(f"{where}: late ({self.late!r}) must be 'error' or 'drop'.")

    def sub_topology(self, name: str, output: str | Output) -> SubTopology:
        """The join as a sub-topology with two stores, `<name>-left` and `<name>-right`.

        Args:
            name: name of the sub-topology.
            output: where the result goes.
        """
        plan = JoinFactory(self, f"{name}-left", f"{name}-right")
        stores = (WindowStoreSpec(plan.left_store, _TIME["left"]), WindowStoreSpec(plan.right_store, _TIME["right"]))
        return SubTopology(name, (self.left, self.right), plan, stores, (output,))


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

    def __call__(self) -> JoinProcessor:
        """A processor for one task."""
        return JoinProcessor(self)

    def check_sources(self, topics: Mapping[str, TopicSpec]) -> None:
        """Raise TopologyException if the topics cannot be joined so."""
        _sides(self, topics)

    def output_schema(self, topics: Mapping[str, TopicSpec]) -> pa.Schema:
        """Columns of the result."""
        left, right = _sides(self, topics)
        return pa.schema([*left.key_fields, *left.value_fields, *right.value_fields])


@attrs.frozen
class _Side:
    """One source of the join.

    Args:
        topic: its topic.
        key: its key columns.
        timestamp: its timestamp column.
        time: name of the time column in the store.
        time_is: output column that the time column is at the same time; None: none.
        key_fields: key columns under the left names and types.
        values: value columns in the source, without the one that is the time column.
        value_fields: all value columns in the output.
        stored: columns of the store, in order.
        grace_ms: promised order.
        store: name of the store.
    """

    topic: str
    key: tuple[str, ...]
    timestamp: str
    time: str
    time_is: str | None
    key_fields: tuple[pa.Field, ...]
    values: tuple[str, ...]
    value_fields: tuple[pa.Field, ...]
    stored: pa.Schema
    grace_ms: int | None
    store: str

    @classmethod
    def of(
        cls,
        spec: TopicSpec,
        time: str,
        key_fields: Sequence[pa.Field],
        values: Sequence[str],
        names: Sequence[str],
        grace_ms: int | None,
        store: str,
    ) -> _Side:
        assert spec.timestamp is not None
        fields = [_plain(spec.schema.field(value)).with_name(name) for value, name in zip(values, names, strict=True)]
        renamed = dict(zip(values, names, strict=True))
        # A timestamp that is int64 milliseconds already is not stored a second time.
        is_time = spec.timestamp in renamed and spec.schema.field(spec.timestamp).type == pa.int64()
        time_is = renamed[spec.timestamp] if is_time else None
        stored = [field for field in fields if field.name != time_is]
        return cls(
            spec.name,
            spec.key,
            spec.timestamp,
            time,
            time_is,
            tuple(key_fields),
            tuple(value for value in values if renamed[value] != time_is),
            tuple(fields),
            pa.schema([*key_fields, pa.field(time, pa.int64()), *stored]),
            grace_ms,
            store,
        )


def _plain(field: pa.Field) -> pa.Field:
    """The field without dictionary encoding, whose codes differ from file to file, and without metadata."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def _sides(plan: JoinFactory, topics: Mapping[str, TopicSpec]) -> tuple[_Side, _Side]:
    join = plan.join
    left, right = topics[join.left], topics[join.right]
    where = f"The join of {join.left!r} and {join.right!r}"
    for spec in (left, right):
        if spec.timestamp is None:
            raise TopologyException(f"{where} needs times, but the topic {spec.name!r} has no timestamp column.")
    key_fields = [_plain(left.schema.field(column)) for column in left.key]
    left_values = _values(where, left, join.left_columns)
    right_values = _values(where, right, join.right_columns)
    taken = {*left.key, *left_values}
    right_names = [value + join.suffix if value in taken else value for value in right_values]
    names = [*left.key, *left_values, *right_names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyException(
            f"{where} has result columns twice: {twice}. Maybe another suffix than {join.suffix!r}."
        )
    return (
        _Side.of(left, _TIME["left"], key_fields, left_values, left_values, join.left_grace_ms, plan.left_store),
        _Side.of(right, _TIME["right"], key_fields, right_values, right_names, join.right_grace_ms, plan.right_store),
    )


def _values(where: str, spec: TopicSpec, columns: tuple[str, ...] | None) -> list[str]:
    if columns is None:
        columns = tuple(spec.schema.names)
    unknown = [column for column in columns if column not in spec.schema.names]
    if unknown:
        raise TopologyException(
            f"{where}: the topic {spec.name!r} has no columns {unknown}; it has {spec.schema.names}."
        )
    return [column for column in dict.fromkeys(columns) if column not in spec.key]


class JoinProcessor(Processor):
    """The work of one task of a join. Made by `JoinFactory`."""

    def __init__(self, plan: JoinFactory) -> None:
        self._plan = plan
        self._join = plan.join

    def init(self, context: TaskContext) -> None:
        """Take stores and columns."""
        self._left, self._right = _sides(self._plan, context.topics)
        self._left_store = context.window_store(self._left.store)
        self._right_store = context.window_store(self._right.store)
        self._schema = self._plan.output_schema(context.topics)
        self._keys = [field.name for field in self._left.key_fields]

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """New left rows meet all right rows; new right rows meet the left rows that were there before."""
        import polars as pl

        new_left = self._prepare(self._left, self._left_store, batch[self._left.topic], context)
        new_right = self._prepare(self._right, self._right_store, batch[self._right.topic], context)
        old_left = self._left_store.frame
        left, right = _frame(new_left), _frame(new_right)
        left_norm, right_norm = (0.0 if frame is None else self._key_norm(frame) for frame in (left, right))
        if right is not None:
            self._right_store.append(new_right, right, right_norm)
        pairs = []
        if left is not None and (all_right := self._right_store.frame) is not None:
            norms = (left_norm, self._right_store.sum_over_chunks(self._key_norm))
            pairs.append(self._match(left, all_right, norms, new_is_left=True))
        if old_left is not None and right is not None:
            norms = (right_norm, self._left_store.sum_over_chunks(self._key_norm))
            pairs.append(self._match(right, old_left, norms, new_is_left=False))
        if left is not None:
            self._left_store.append(new_left, left, left_norm)
        self._expire()
        matched = [frame for frame in pairs if frame.height]
        if not matched:
            return None
        return pl.concat(matched, rechunk=True).to_arrow().cast(self._schema)

    def _prepare(self, side: _Side, store: WindowStore, rows: pa.Table, context: TaskContext) -> pa.Table:
        """The rows that take part, with the columns of the store; moves the stream time."""
        start = context.offsets[side.topic][0]
        try:
            times_column = timestamps_in_ms(rows.column(side.timestamp))
        except pa.ArrowInvalid as error:
            raise LateRecordException(
                f"The records {side.topic}, partition {context.partition}, from offset {start} on have a {side.timestamp} "
                f"that is no time: {error}"
            ) from None
        if rows.num_rows == 0:
            return side.stored.empty_table()
        if times_column.null_count:
            offset = start + int(np.flatnonzero(times_column.is_null().to_numpy())[0])
            raise LateRecordException(
                f"The record {side.topic}, partition {context.partition}, offset {offset} has no {side.timestamp}."
            )
        keep = self._keep(side, store, times_column.to_numpy(), start, context)
        columns = []
        for name, field in zip(side.key, side.key_fields, strict=True):
            column = rows.column(name)
            if column.null_count:
                valid = column.is_valid().to_numpy()
                context.count("null_key", int((~valid).sum()))
                keep = valid if keep is None else keep & valid
            columns.append(column if column.type == field.type else column.cast(field.type))
        columns.append(times_column)
        columns += [
            column if column.type == side.stored.field(position).type else column.cast(side.stored.field(position).type)
            for position, column in enumerate((rows.column(name) for name in side.values), len(columns))
        ]
        table = pa.table(columns, schema=side.stored)
        return table if keep is None else table.filter(pa.array(keep))

    def _keep(
        self, side: _Side, store: WindowStore, times: npt.NDArray[np.int64], start: int, context: TaskContext
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows are not late; None: all. Moves the stream time."""
        before = store.stream_time
        where = f"{side.topic}, partition {context.partition}, offset"
        for row in (int(times.argmin()), int(times.argmax())):
            if not -_FARTHEST_MS <= times[row] <= _FARTHEST_MS:
                raise LateRecordException(
                    f"The record {where} {start + row} has a {side.timestamp} of {int(times[row])} ms, which is no time."
                )
        store.observe(int(times.max()))
        if side.grace_ms is None:
            return None
        newest = np.maximum.accumulate(times)
        if before is not None:
            newest = np.maximum(newest, before)
        behind = newest - times
        late = behind > side.grace_ms
        if not late.any():
            return None
        limit = self._join.drop_limit_ms
        is_dropped = self._join.late == "drop"
        wrong = late if not is_dropped else behind > side.grace_ms + limit if limit is not None else np.zeros_like(late)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            ahead = np.flatnonzero(times[:row] == newest[row])
            other = f"offset {start + int(ahead[0])}" if len(ahead) else "a record of an earlier batch"
            advice = (
                "Too much to be dropped without a word: maybe that one has a wrong time; else set drop_limit_ms."
                if is_dropped
                else f"Maybe a grace of {int(behind.max())} ms (what this batch needs), or late='drop', "
                "or write the topic sorted by its timestamp."
            )
            raise LateRecordException(
                f"The record {where} {start + row} is {int(behind[row])} ms older than a record before it; the "
                f"join allows {side.grace_ms} ms. The newest before it is {other}. {advice}"
            )
        context.count("late", int(late.sum()))
        return ~late

    def _match(
        self, new: pl.DataFrame, stored: pl.DataFrame, norms: tuple[float, float], *, new_is_left: bool
    ) -> pl.DataFrame:
        """New rows of one side with all stored rows of the other."""
        import polars as pl

        sides, bounds = (self._left, self._right), (self._join.before_ms, self._join.after_ms)
        (side, other), (before, after) = (sides, bounds) if new_is_left else (sides[::-1], bounds[::-1])
        pairs = match(new, stored, self._keys, side.time, other.time, before, after, norms)
        columns = [pl.col(key) for key in self._keys]
        columns += [
            pl.col(found.time).alias(field.name) if field.name == found.time_is else pl.col(field.name)
            for found in (self._left, self._right)
            for field in found.value_fields
        ]
        return pairs.select(columns).collect()

    def _key_norm(self, frame: pl.DataFrame) -> float:
        return key_norm(frame, self._keys)

    def _expire(self) -> None:
        """See the top of this module."""
        right_time, left_time = self._right_store.stream_time, self._left_store.stream_time
        if right_time is not None and self._right.grace_ms is not None:
            self._left_store.expire(right_time - self._right.grace_ms - self._join.after_ms)
        if left_time is not None and self._left.grace_ms is not None:
            self._right_store.expire(left_time - self._left.grace_ms - self._join.before_ms)


def _frame(table: pa.Table) -> pl.DataFrame | None:
    if table.num_rows == 0:
        return None
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
