"""The window store: rows with a time, in memory, kept until they cannot matter any more. Files are written elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.errors import StoreException
from task_assignor.runtime.stores.store import Store, check_store_name, described

if TYPE_CHECKING:
    import polars as pl

_METADATA: Final = b"task_assignor.store"
DEAD_SHARE: Final = 0.5
"""A chunk of a window store is copied once this share of its rows has expired; until then their memory is not freed."""
MAX_CHUNKS: Final = 32
"""More chunks than this are merged: a read of the store costs something for every chunk."""


@attrs.frozen
class WindowStoreSpec:
    """Declares a window store: rows with a time that are kept until they cannot matter any more.

    Its columns are those of the rows that are appended.

    Args:
        name: name of the store, unique in the topology.
        time: column of int64 milliseconds.
        logged: its changes are kept in a changelog, so that another client can rebuild it.
    """

    name: str
    time: str
    logged: bool = True

    def __attrs_post_init__(self) -> None:
        check_store_name(self.name)

    @property
    def fingerprint(self) -> str:
        """Changes when old snapshots and changelogs no longer fit."""
        return f"window({self.time})"

    def create(self) -> WindowStore:
        """An empty store."""
        return WindowStore(self)


class _Chunk:
    """Rows that were appended together, with their range of times. The polars frame is made when somebody reads it."""

    __slots__ = ("_frame", "dead", "first", "is_sorted", "last", "number", "table")

    def __init__(
        self, table: pa.Table, time: str, frame: pl.DataFrame | None = None, number: float | None = None
    ) -> None:
        self.table = table
        times = self.times(time)
        self.first, self.last = int(times.min()), int(times.max())
        self.is_sorted = bool((times[1:] >= times[:-1]).all())
        self.dead = 0
        """Rows before the table that are still in memory."""
        self._frame = frame
        self.number = number
        """What `WindowStore.sum_over_chunks` was told of it."""

    def times(self, time: str) -> npt.NDArray[np.int64]:
        column = self.table.column(time)
        numbers: npt.NDArray[np.int64] = column.to_numpy()
        return numbers

    def since(self, before_ms: int, time: str) -> _Chunk:
        """The rows that are not older; there are some, and some that are."""
        times = self.times(time)
        if not self.is_sorted:
            return _Chunk(self.table.filter(pa.array(times >= before_ms)), time)
        # A slice costs nothing, but keeps all in memory.
        start = int(np.searchsorted(times, before_ms))
        dead = self.dead + start
        if dead >= DEAD_SHARE * (self.dead + len(times)):
            return _Chunk(self.table.take(pa.array(np.arange(start, len(times)))), time)
        chunk = _Chunk(self.table.slice(start), time, None if self._frame is None else self._frame[start:], self.number)
        chunk.dead = dead
        return chunk

    @property
    def frame(self) -> pl.DataFrame:
        if self._frame is None:
            import polars as pl

            frame = pl.from_arrow(self.table)
            assert isinstance(frame, pl.DataFrame)
            self._frame = frame
        return self._frame


class WindowStore(Store):
    """Rows with a time, in the order in which they came. What was expired stays so, here and on every client.

    Attributes:
        stream_time: newest time seen in the log that feeds the store, ms; None: nothing seen. Part of the state.
        expired_before: rows older than this are forgotten, ms; None: none are. Part of the state.
    """

    def __init__(self, spec: WindowStoreSpec) -> None:
        self._spec = spec
        self._chunks: list[_Chunk] = []
        self._pending: list[pa.Table] = []
        self._schema: pa.Schema | None = None
        self._logged: tuple[int | None, int | None] = (None, None)
        """Stream time and expiry that the changelog knows."""
        self.stream_time: int | None = None
        self.expired_before: int | None = None

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._spec.name

    def __len__(self) -> int:
        return sum(chunk.table.num_rows for chunk in self._chunks)

    def append(self, rows: pa.Table, frame: pl.DataFrame | None = None, number: float | None = None) -> None:
        """Add rows; all tables must have equal columns.

        Args:
            rows: the rows.
            frame: the same rows as a polars frame, if the caller has made one: it is kept for reading.
            number: what `sum_over_chunks` would measure of it, if the caller has.

        Raises:
            StoreException: other columns than before, or the time column is not int64 milliseconds without nulls.
        """
        self._add(rows, frame, number)
        self._pending.append(rows)

    def observe(self, time_ms: int) -> None:
        """Move the stream time forward; an older time changes nothing."""
        if self.stream_time is None or time_ms > self.stream_time:
            self.stream_time = time_ms

    def expire(self, before_ms: int) -> None:
        """Forget the rows older than `before_ms`, those too that are added later in this batch; an older one changes nothing."""
        if self.expired_before is None or before_ms > self.expired_before:
            self.expired_before = before_ms
        self._forget()

    def _forget(self) -> None:
        before = self.expired_before
        if before is not None:
            self._chunks = [
                chunk if chunk.first >= before else chunk.since(before, self._spec.time)
                for chunk in self._chunks
                if chunk.last >= before
            ]

    @property
    def rows(self) -> pa.Table | None:
        """What the store holds; None: nothing, and no columns are known yet."""
        if not self._chunks:
            return None if self._schema is None else self._schema.empty_table()
        return pa.concat_tables([chunk.table for chunk in self._chunks])

    @property
    def frame(self) -> pl.DataFrame | None:
        """The same as a polars frame; None: no rows."""
        if not self._chunks:
            return None
        import polars as pl

        return pl.concat([chunk.frame for chunk in self._chunks], rechunk=False)

    def sum_over_chunks(self, measure: Callable[[pl.DataFrame], float]) -> float:
        """The sum of a number over the pieces that the store is made of; each is measured once, before rows of it expire.

        Args:
            measure: the number of a piece; always the same function.
        """
        total = 0.0
        for chunk in self._chunks:
            if chunk.number is None:
                chunk.number = measure(chunk.frame)
            total += chunk.number
        return total

    def drain_changes(self) -> pa.Table | None:
        """The rows appended since the last call, with stream time and expiry in the schema's metadata."""
        # What was appended after `expire` in this batch: a replay knows the end of the batch only.
        self._forget()
        state = (self.stream_time, self.expired_before)
        if not self._pending and state == self._logged:
            return None
        pending, self._pending = self._pending, []
        self._logged = state
        if pending:
            return self._with_state(pa.concat_tables(pending))
        return self._with_state((self._schema or pa.schema([(self._spec.time, pa.int64())])).empty_table())

    def apply(self, changes: pa.Table) -> None:
        """Make the changes of one batch."""
        stream_time, expired_before, has_columns = self._state_of(changes)
        if changes.num_rows or has_columns:
            self._add(changes.replace_schema_metadata(None))
        if stream_time is not None:
            self.observe(stream_time)
        if expired_before is not None:
            self.expire(expired_before)
        self._logged = (self.stream_time, self.expired_before)

    def snapshot(self) -> pa.Table:
        """Everything, for `load`."""
        rows = self.rows
        return self._with_state(pa.schema([(self._spec.time, pa.int64())]).empty_table() if rows is None else rows)

    def load(self, snapshot: pa.Table) -> None:
        """Replace everything."""
        self.clear()
        self.apply(snapshot)

    def clear(self) -> None:
        """Forget everything."""
        self._chunks, self._pending = [], []
        self._schema, self._logged = None, (None, None)
        self.stream_time, self.expired_before = None, None

    def _add(self, rows: pa.Table, frame: pl.DataFrame | None = None, number: float | None = None) -> None:
        if self._schema is None:
            if self._spec.time not in rows.schema.names or rows.schema.field(self._spec.time).type != pa.int64():
                raise StoreException(
                    f"The window store {self.name} needs a column {self._spec.time!r} of int64 milliseconds; "
                    f"the rows have {described(rows.schema)}."
                )
            self._schema = rows.schema
        elif not rows.schema.equals(self._schema):
            raise StoreException(
                f"The window store {self.name} holds rows of {described(self._schema)}; rows of "
                f"{described(rows.schema)} cannot be added."
            )
        if rows.column(self._spec.time).null_count:
            raise StoreException(f"The window store {self.name} cannot hold rows without {self._spec.time}.")
        if rows.num_rows:
            self._chunks.append(_Chunk(rows, self._spec.time, frame, number))
            if len(self._chunks) > MAX_CHUNKS:
                self._merge()

    def _merge(self) -> None:
        """Merge neighbours up to an eighth of the store, so that a row is copied rarely and old chunks still expire."""
        target = len(self) // 8
        groups: list[list[_Chunk]] = []
        size = 0
        for chunk in self._chunks:
            size += chunk.table.num_rows
            if groups and size <= target:
                groups[-1].append(chunk)
            else:
                groups.append([chunk])
                size = chunk.table.num_rows
        self._chunks = [
            group[0]
            if len(group) == 1
            else _Chunk(pa.concat_tables([chunk.table for chunk in group]).combine_chunks(), self._spec.time)
            for group in groups
        ]

    def _with_state(self, table: pa.Table) -> pa.Table:
        state = {
            "streamTime": self.stream_time,
            "expiredBefore": self.expired_before,
            # Else the table has no rows, and its columns only stand for those that nobody knows yet.
            "hasColumns": self._schema is not None,
        }
        return table.replace_schema_metadata({_METADATA: json.dumps(state).encode()})

    @staticmethod
    def _state_of(table: pa.Table) -> tuple[int | None, int | None, bool]:
        state = json.loads((table.schema.metadata or {}).get(_METADATA, b"{}"))
        return state.get("streamTime"), state.get("expiredBefore"), state.get("hasColumns", False)
