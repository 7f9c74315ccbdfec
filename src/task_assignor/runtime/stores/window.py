"""The window store: rows with a time, kept until they cannot matter any more.

They are in segments: rows that came together, each segment with its range of times. Expiry drops segments whole, and cuts
those that it divides. Beyond a limit the oldest segments are on disk, mapped into memory; the parts of a snapshot are the
same files.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import msgspec
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.arrow.frames import fitted, in_own_memory, no_rows, not_a_table, to_frame
from task_assignor.runtime.errors import StoreException
from task_assignor.runtime.machines.encoding import Value, decode, encode, fields_of
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.segments import Segment, V, View
from task_assignor.runtime.stores.store import (
    Store,
    StoreFolder,
    changed_between,
    check_store_name,
    described,
    has_part,
    open_part,
    with_changelog,
    write_part,
)
from task_assignor.sdk.checks import check_flag
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.text import shown

if TYPE_CHECKING:
    import polars as pl


_METADATA: Final = b"task_assignor.store"
KIND: Final = "window"
MAX_SEGMENTS: Final = 32
"""More segments than this are merged: a read of the store costs something for every one."""
SEGMENT_ROWS: Final = 1 << 20
"""Segments are not merged to more rows than this."""
GATHERED_ROWS: Final = 1 << 22
"""The same of rows that may become fewer: those of as many groups are put together in one piece of memory."""
SMALL_ROWS: Final = 1 << 13
"""Up to so many rows it costs less to copy a segment now and then than to look at one more with every read."""
_GROWTH: Final = 3


@attrs.frozen
class WindowStoreSpec:
    """Declares a window store: rows with a time that are kept until they cannot matter any more.

    Its columns are those of the rows that are appended.

    Args:
        name: name of the store, unique in the topology.
        time: column of int64 milliseconds.
        logged: its changes are kept in a changelog, so that another client can rebuild it.

    Raises:
        StoreException: something of it is not allowed.
    """

    name: str
    time: str
    logged: bool = True

    def __attrs_post_init__(self) -> None:
        check_store_name(self.name)
        if not (isinstance(self.time, str) and self.time):
            raise StoreException(f"The time ({shown(self.time)}) of store {self.name} must be the name of a column.")
        check_flag("logged of the store", self.logged, self.name, StoreException)

    @property
    def fingerprint(self) -> str:
        """Changes when old snapshots and changelogs no longer fit."""
        return with_changelog(f"window({self.time})", self.logged)

    def create(self, folder: Path | None = None, memory: StoreMemory | None = None) -> WindowStore:
        """An empty store.

        Args:
            folder: where its files are; None: a temporary one, if it needs any.
            memory: what all stores of a process share; None: as if it were the only one.
        """
        return WindowStore(self, folder, memory or StoreMemory())


def expiry_of(changes: pa.Table) -> int | None:
    """Rows older than this are forgotten after these changes of a window store, ms; None: none are."""
    return _known_of(changes).expired_before


class _Known(Value, frozen=True):
    """What a store knows beside its rows.

    Args:
        stream_time: newest time of all its rows, ms.
        expired_before: rows older than this were forgotten, ms.
        has_columns: of changes: else they have no rows, and their columns only stand for those that nobody knows yet.
        schema: of a snapshot: its columns as a serialised Arrow schema in base64.
    """

    stream_time: int | None = None
    expired_before: int | None = None
    has_columns: bool = False
    schema: str | None = None


def _known_of(changes: pa.Table) -> _Known:
    return decode((changes.schema.metadata or {}).get(_METADATA, b"{}"), _Known)


class _State(NamedTuple):
    """All that makes a state of the store; a state does not change, the next one is another."""

    segments: tuple[Segment, ...] = ()
    schema: pa.Schema | None = None
    stream_time: int | None = None
    expired_before: int | None = None
    logged: tuple[int | None, int | None] = (None, None)
    """Stream time and expiry that the changelog knows."""


class WindowStore(Store):
    """Rows with a time, in the order in which they came. What was expired stays so, here and on every client."""

    def __init__(self, spec: WindowStoreSpec, folder: Path | None, memory: StoreMemory) -> None:
        self._spec = spec
        self._time = spec.time
        self._place = StoreFolder(folder)
        self._memory = memory
        self._state = self._kept_state = _State()
        self._kept = ""
        self._pending: list[pa.Table] = []
        self._gathered: Callable[[pa.Table], pa.Table] | None = None
        self._unsaved: set[str] = set()
        """Parts that no snapshot has: nobody else needs them."""
        memory.join()

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._spec.name

    def __len__(self) -> int:
        return sum(segment.rows for segment in self._state.segments)

    @property
    def stream_time(self) -> int | None:
        """Newest time seen in the log that feeds the store, ms; None: nothing seen. Part of the state."""
        return self._state.stream_time

    @property
    def expired_before(self) -> int | None:
        """Rows older than this are forgotten, ms; None: none are. Part of the state."""
        return self._state.expired_before

    def append(self, rows: pa.Table, view: View | None = None, *, is_own: bool = False) -> None:
        """Add rows, as they are now; all tables must have equal columns, or more than those before, which have null there then.

        Args:
            rows: the rows.
            view: what the `make` of `views` would make of them, if the caller has: it is kept for reading.
            is_own: nobody can change them: they need not be copied.

        Raises:
            StoreException: no table, other columns than before, or the time column is not int64 milliseconds without nulls.
        """
        if not isinstance(rows, pa.Table):
            raise StoreException(not_a_table(f"the store {self.name}", rows))
        rows = rows if is_own else in_own_memory(rows)
        self._add(rows, view)
        self._forget()
        self._pending.append(rows)

    def gather(self, gathered: Callable[[pa.Table], pa.Table]) -> None:
        """Have rows that are there put together now and then, so that there are not more and more of them.

        Changes are what was appended all the same.

        Args:
            gathered: makes fewer rows of some that came after each other, which mean the same, also when older ones are forgotten.
        """
        self._gathered = gathered

    def widen(self, schema: pa.Schema) -> None:
        """Have these columns from now on; those that are new are null in the rows that are there.

        Args:
            schema: the columns, those of the rows that are there among them; an empty store takes those of its first rows.

        Raises:
            StoreException: some are missing, or have other types.
        """
        known = self._state.schema
        if known is None or known.equals(schema):
            return
        if any(schema.get_field_index(field.name) < 0 or schema.field(field.name) != field for field in known):
            raise StoreException(
                f"The window store {self.name} holds rows of {described(known)}; rows of "
                f"{described(schema)} cannot be added. Only columns that it does not have may be new."
            )
        segments = tuple(segment.padded(schema, self._time) for segment in self._state.segments)
        self._become(schema=schema, segments=segments)

    def observe(self, time_ms: int) -> None:
        """Move the stream time forward; an older time changes nothing.

        Raises:
            StoreException: it is not an int.
        """
        time_ms = self._time_given(time_ms)
        if self.stream_time is None or time_ms > self.stream_time:
            self._become(stream_time=time_ms)

    def expire(self, before_ms: int) -> None:
        """Forget the rows older than `before_ms`, those too that are added later; an older one changes nothing.

        Raises:
            StoreException: it is not an int.
        """
        before_ms = self._time_given(before_ms)
        if self.expired_before is None or before_ms > self.expired_before:
            self._become(expired_before=before_ms)
        self._forget()

    def _time_given(self, time_ms: object) -> int:
        time = plain_int(time_ms)
        if type(time) is not int:
            raise StoreException(
                f"The time ({shown(time_ms)}) for the store {self.name} must be an int of milliseconds since the epoch."
            )
        return time

    def _become(self, **changes: Any) -> None:
        self._state = self._state._replace(**changes)

    def _forget(self) -> None:
        before, segments = self.expired_before, self._state.segments
        if before is not None and any(segment.first < before for segment in segments):
            left = [
                segment if segment.first >= before else segment.since(before, self._time)
                for segment in segments
                if segment.last >= before
            ]
            self._become(segments=tuple(left))

    @property
    def rows(self) -> pa.Table | None:
        """What the store holds; None: nothing, and no columns are known yet."""
        state = self._state
        if not state.segments:
            return None if state.schema is None else no_rows(state.schema)
        return pa.concat_tables([segment.table(self._time) for segment in state.segments])

    @property
    def frame(self) -> pl.DataFrame | None:
        """The same as a polars frame; None: no rows."""
        if not self._state.segments:
            return None
        import polars as pl

        return pl.concat(list(self.views(to_frame)), rechunk=False)

    def views(self, make: Callable[[pa.Table], V]) -> Iterator[V]:
        """What the store holds, in pieces, as somebody wants to see it; what was made of a piece is kept.

        Args:
            make: makes a view of rows, of which `view[n:]` is that of the rows from the n-th on; always the same function.
        """
        # Those of rows on disk are kept as long as there is room.
        segments = self._state.segments
        is_tight = any(segment.is_mapped for segment in segments)
        room = self._memory.window_bytes - sum(segment.resident_bytes for segment in segments) if is_tight else 0
        for segment in segments:
            is_new = segment.is_mapped and segment.resident_bytes == 0
            yield segment.view(make, self._time, keep=not is_new or segment.nbytes <= room)
            room -= segment.nbytes if is_new else 0

    # Changes.

    def drain_changes(self) -> pa.Table | None:
        """The rows appended since the last call, with stream time and expiry in the schema's metadata."""
        known = (self.stream_time, self.expired_before)
        if not self._pending and known == self._state.logged:
            return None
        pending, self._pending = self._pending, []
        self._become(logged=known)
        schema = self._state.schema or pa.schema([(self._time, pa.int64())])
        # Columns may have come in the middle of the batch.
        rows = [table if table.schema == schema else fitted(table, schema) for table in pending]
        return self._with_state(pa.concat_tables(rows) if rows else no_rows(schema))

    def apply(self, changes: pa.Table) -> None:
        """Make the changes of one batch."""
        known = _known_of(changes)
        if changes.num_rows or known.has_columns:
            self._add(changes.replace_schema_metadata(None))
        self._move(known)

    def _move(self, known: _Known) -> None:
        if known.stream_time is not None:
            self.observe(known.stream_time)
        if known.expired_before is not None:
            self.expire(known.expired_before)
        self._become(logged=(self.stream_time, self.expired_before))

    @property
    def kept(self) -> str:
        """Name of the kept state; "": it is empty."""
        return self._kept

    def keep(self, name: str) -> None:
        """Keep all changes so far; what is too much for memory goes to disk."""
        if self._pending:
            raise changed_between(self.name)
        limit = self._memory.window_bytes
        segments = list(self._state.segments)
        resident = sum(segment.resident_bytes for segment in segments)
        is_written = False
        for number, segment in enumerate(segments):
            if resident <= limit:
                break
            resident -= segment.resident_bytes
            if segment.is_mapped:
                segment.forget_view()
            else:
                segments[number] = self._mapped(segment)
                is_written = True
        self._become(segments=tuple(segments))
        self._kept_state, self._kept = self._state, name
        if is_written:
            self._delete_unused()

    def _mapped(self, segment: Segment) -> Segment:
        """The same rows, on disk."""
        part = write_part(self._place.path, in_one_piece(segment.table(self._time)))
        self._unsaved.add(part.name)
        return self._open(part, is_gathered=segment.is_gathered)

    def _open(self, part: Part, *, is_gathered: bool = False) -> Segment:
        table = open_part(self._place.path, part, self.name)
        schema = self._state.schema
        if schema is not None and not table.schema.equals(schema):
            # It is older than columns that were gained.
            table = fitted(table, schema)
        return Segment(table, self._time, part=part, is_mapped=True, is_gathered=is_gathered)

    def rollback(self) -> None:
        """Go back to the kept state."""
        self._state, self._pending = self._kept_state, []

    # Snapshots.

    def save(self) -> SavedStore:
        """Write the segments that are not there yet."""
        state = self._kept_state
        for segment in state.segments:
            if segment.part is None or not has_part(self._place.path, segment.part):
                segment.part = write_part(self._place.path, in_one_piece(segment.table(self._time)))
        schema = state.schema
        columns = None if schema is None else base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
        known = fields_of(_Known(state.stream_time, state.expired_before, schema=columns))
        self._unsaved = set()
        return SavedStore(KIND, tuple(segment.part for segment in state.segments if segment.part is not None), known)

    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything; the segments are read where they are."""
        saved.check(KIND)
        self.clear()
        known = msgspec.convert(saved.state, _Known)
        if known.schema is not None:
            self._become(schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known.schema))))
        self._become(segments=tuple(self._open(part) for part in saved.parts))
        self._move(known)
        self._kept_state, self._kept = self._state, name

    def clear(self) -> None:
        """Forget everything."""
        self._state = self._kept_state = _State()
        self._kept, self._pending = "", []
        self._delete_unused()

    def _delete_unused(self) -> None:
        """Maybe there are never any snapshots, and so nobody else who would; without a changelog this holds for all that is there."""
        used = self.parts_in_use()
        if not self._spec.logged:
            self._place.keep_only(used)
        self._place.delete(self._unsaved - used)
        self._unsaved &= used

    def parts_in_use(self) -> set[str]:
        """Names of the parts that the store reads or builds upon."""
        segments = [*self._state.segments, *self._kept_state.segments]
        return {segment.part.name for segment in segments if segment.part is not None}

    def close(self) -> None:
        """Give back files and memory."""
        self.clear()
        self._memory.leave()
        self._place.close()

    def _add(self, rows: pa.Table, view: View | None = None) -> None:
        schema = self._state.schema
        if schema is None:
            if rows.schema.names.count(self._time) != 1 or rows.schema.field(self._time).type != pa.int64():
                raise StoreException(
                    f"The window store {self.name} needs a column {self._time!r} of int64 milliseconds; "
                    f"the rows have {described(rows.schema)}."
                )
            self._become(schema=rows.schema)
        elif not rows.schema.equals(schema):
            self.widen(rows.schema)
        if rows.column(self._time).null_count:
            raise StoreException(f"The window store {self.name} cannot hold rows without {self._time}.")
        if rows.num_rows:
            segments = self._with(Segment(rows, self._time, view=view))
            full = sum(segment.rows >= self._most_rows // 2 for segment in segments)
            self._become(segments=segments if len(segments) - full <= MAX_SEGMENTS else self._merged(segments))

    @property
    def _most_rows(self) -> int:
        return SEGMENT_ROWS if self._gathered is None else GATHERED_ROWS

    def _with(self, new: Segment) -> tuple[Segment, ...]:
        """All segments, and a new one; small ones that are not much larger than what comes after them become one with it."""
        segments = list(self._state.segments)
        group, size = [new], new.rows
        while segments and not segments[-1].is_mapped and segments[-1].rows <= min(_GROWTH * size, SMALL_ROWS - size):
            group.insert(0, segments.pop())
            size += group[0].rows
        return (*segments, new if len(group) == 1 else self._together(group))

    def _merged(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Neighbours together, up to an eighth of the store, so that a row is copied rarely and old segments still expire."""
        target = min(sum(segment.rows for segment in segments) // 8, self._most_rows)
        groups: list[list[Segment]] = []
        size = 0
        for segment in segments:
            size += segment.rows
            if groups and size <= target:
                groups[-1].append(segment)
            else:
                groups.append([segment])
                size = segment.rows
        return tuple(map(self._gather_group, groups))

    def _gather_group(self, group: Sequence[Segment]) -> Segment:
        if len(group) == 1 and (self._gathered is None or group[0].is_gathered):
            return group[0]
        found = self._together(group)
        if self._gathered is None:
            return found
        rows = self._gathered(found.table(self._time))
        if len(group) == 1 and rows.num_rows == found.rows:
            group[0].is_gathered = True  # and is on disk if it was
            return group[0]
        return Segment(in_one_piece(rows), self._time, is_gathered=True)

    def _together(self, group: Sequence[Segment]) -> Segment:
        tables = [segment.table(self._time) for segment in group]
        return Segment(in_one_piece(pa.concat_tables(tables)), self._time)

    def _with_state(self, table: pa.Table) -> pa.Table:
        known = _Known(self.stream_time, self.expired_before, self._state.schema is not None)
        return table.replace_schema_metadata({_METADATA: encode(known)})
