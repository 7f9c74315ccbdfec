"""Rows of a key-value store in memory: a dictionary, and parts with what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.stores.rows import IN_MEMORY, ON_DISK, Change, Rows, bring_in, changes_in, some_of, take_out
from task_assignor.runtime.stores.store import StoreFolder, has_part, open_part, write_part

ALIKE: Final = 4
"""So many parts of like length become one. More: more files to a snapshot. Fewer: a change is written more often."""
_SCHEMA: Final = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])


class MemoryRows(Rows):
    """Rows in a dictionary. A snapshot is one part with all rows and some, ever shorter ones, with what changed since.

    Their number grows as the logarithm of that of the snapshots.

    Args:
        folder: where its parts are; None: a folder of its own, when it needs one.
        store: name of the store, for messages.
    """

    def __init__(self, folder: Path | None, store: str) -> None:
        self.name = ""
        self._place = StoreFolder(folder)
        self._store = store
        self._rows: dict[bytes, bytes] = {}
        self._order: list[bytes] | None = None
        """The keys in their order, from when somebody asks for some of them."""
        self._readers = 0
        """So many look at some of them, and go on to see what was there when they began."""
        self._parts: tuple[Part, ...] = ()
        self._unsaved: dict[bytes, None] = {}
        """Keys that were changed since the parts were written."""

    def __len__(self) -> int:
        return len(self._rows)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of some keys."""
        return list(map(self._rows.get, keys))

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows in the order of their keys."""
        return iter(sorted(self._rows.items()))

    def between(self, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Some rows in the order of their keys, or against it."""
        if self._order is None:
            self._order = sorted(self._rows)
        rows, order = self._rows, self._order
        self._readers += 1
        try:
            for key in some_of(order, first, end, reverse=reverse):
                yield key, rows[key]
        finally:
            self._readers -= 1

    def write(self, changes: Mapping[bytes, Change], name: str) -> None:
        """Make some changes and give the state a name."""
        self._make(changes)
        # Without parts the next snapshot has all rows, and maybe nobody ever wants one.
        if self._parts:
            self._unsaved.update(dict.fromkeys(changes))
            if len(self._unsaved) > len(self._rows):
                self._parts, self._unsaved = (), {}
        self.name = name

    def _make(self, changes: Mapping[bytes, Change]) -> None:
        if self._readers:
            self._rows, self._order = dict(self._rows), None
        gone = [key for key, value in changes.items() if value is None]
        if gone:
            gone = [key for key in gone if self._rows.pop(key, None) is not None]
            changes = {key: value for key, value in changes.items() if value is not None}
        if self._order is not None:
            take_out(self._order, gone)
            bring_in(self._order, [key for key in changes if key not in self._rows])
        self._rows.update(changes)  # type: ignore[arg-type]  # none of them is None

    def save(self) -> SavedStore:
        """Write all rows, or those that changed if that is less than half of what a snapshot takes then."""
        changed = len(self._unsaved) + sum(part.seal.rows for part in self._parts[1:])
        if (
            not self._parts
            or changed > len(self._rows)
            or not all(has_part(self._place.path, part) for part in self._parts)
        ):
            self._parts = (self._write(self._rows),)
        elif self._unsaved:
            self._parts = self._with_unsaved()
        self._unsaved = {}
        return SavedStore(IN_MEMORY, self._parts)

    def _with_unsaved(self) -> tuple[Part, ...]:
        """The parts and what changed since, which takes the last ones in as long as they are not much longer."""
        changed, kept = dict(self._unsaved), [*self._parts]
        while len(kept) >= ALIKE and sum(part.seal.rows for part in kept[1 - ALIKE :]) <= ALIKE * len(changed):
            try:
                alike = [open_part(self._place.path, part, self._store) for part in kept[1 - ALIKE :]]
            except CorruptLogException:
                return (self._write(self._rows),)
            for table in alike:
                changed.update(dict.fromkeys(table.column("key").to_pylist()))
            del kept[1 - ALIKE :]
        return (*kept, self._write({key: self._rows.get(key) for key in changed}))

    def _write(self, changes: Mapping[bytes, Change]) -> Part:
        columns = [pa.array(list(changes), pa.large_binary()), pa.array(list(changes.values()), pa.large_binary())]
        return write_part(self._place.path, pa.table(columns, schema=_SCHEMA))

    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything, maybe by what was on disk in an earlier run."""
        self.clear()
        if saved.kind == ON_DISK:
            from task_assignor.runtime.stores.disk import rows_of

            self._rows = rows_of(saved, self._place.path, self._store, name)
        else:
            saved.check(IN_MEMORY)
            for changes in changes_in(saved, self._place.path, self._store):
                self._make(changes)
            self._parts = saved.parts
        self.name = name

    def clear(self) -> None:
        """Forget everything."""
        self._rows, self._order, self._unsaved, self._parts, self.name = {}, None, {}, (), ""

    def parts_in_use(self) -> set[str]:
        """Names of the parts that the next snapshot builds upon."""
        return {part.name for part in self._parts}

    def close(self) -> None:
        """Give back files and memory."""
        self.clear()
        self._place.close()
