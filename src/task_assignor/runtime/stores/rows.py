"""Where a key-value store has its rows, as bytes: the interface, and rows in memory. Those on disk are in `disk`."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.stores.store import has_part, open_part, write_part

Change = bytes | None
"""New bytes of a row; None: it is removed."""
KIND: Final = "memory"
ALIKE: Final = 4
"""So many parts of like length become one. More: more files to a snapshot. Fewer: a change is written more often."""
_SCHEMA: Final = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])


class Rows(ABC):
    """Rows by key, in the order of the keys' bytes; each state has a name."""

    name: str
    """Name of the state; "": it is empty."""
    survives: ClassVar[bool] = False
    """They are still there when the process has ended."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of some keys."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.get_many([key])[0]

    @abstractmethod
    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows in the order of their keys."""

    @abstractmethod
    def write(self, changes: Mapping[bytes, Change], name: str) -> None:
        """Make some changes and give the state a name: both or, if the disk says no or the process ends, none."""

    @abstractmethod
    def save(self) -> SavedStore:
        """Write the parts that are not there yet."""

    @abstractmethod
    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def parts_in_use(self) -> set[str]:
        """Names of the parts that the next snapshot builds upon."""

    def close(self) -> None:
        """Give back files and memory."""


class MemoryRows(Rows):
    """Rows in a dictionary. A snapshot is one part with all rows and some, ever shorter ones, with what changed since.

    Their number grows as the logarithm of that of the snapshots.

    Args:
        folder: where its parts are; None: a folder of its own, when it needs one.
        store: name of the store, for messages.
    """

    def __init__(self, folder: Path | None, store: str) -> None:
        self.name = ""
        self._given = folder
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._store = store
        self._rows: dict[bytes, bytes] = {}
        self._parts: tuple[Part, ...] = ()
        self._unsaved: dict[bytes, None] = {}
        """Keys that were changed since the parts were written."""

    @property
    def _folder(self) -> Path:
        if self._given is not None:
            return self._given
        self._own = self._own or tempfile.TemporaryDirectory(prefix="task-assignor-")
        return Path(self._own.name)

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

    def write(self, changes: Mapping[bytes, Change], name: str) -> None:
        """Make some changes and give the state a name."""
        self._make(changes)
        self._unsaved.update(dict.fromkeys(changes))
        self.name = name

    def _make(self, changes: Mapping[bytes, Change]) -> None:
        gone = [key for key, value in changes.items() if value is None]
        if gone:
            for key in gone:
                self._rows.pop(key, None)
            changes = {key: value for key, value in changes.items() if value is not None}
        self._rows.update(changes)  # type: ignore[arg-type]  # none of them is None

    def save(self) -> SavedStore:
        """Write all rows, or those that changed if that is less than half of what a snapshot takes then."""
        changed = len(self._unsaved) + sum(part.seal.rows for part in self._parts[1:])
        if (
            not self._parts
            or changed > len(self._rows)
            or not all(has_part(self._folder, part) for part in self._parts)
        ):
            self._parts = (self._write(self._rows),)
        elif self._unsaved:
            self._parts = self._with_unsaved()
        self._unsaved = {}
        return SavedStore(KIND, self._parts)

    def _with_unsaved(self) -> tuple[Part, ...]:
        """The parts and what changed since, which takes the last ones in as long as they are not much longer."""
        changed, kept = dict(self._unsaved), [*self._parts]
        while len(kept) >= ALIKE and sum(part.seal.rows for part in kept[1 - ALIKE :]) <= ALIKE * len(changed):
            try:
                alike = [open_part(self._folder, part, self._store) for part in kept[1 - ALIKE :]]
            except CorruptLogException:
                return (self._write(self._rows),)
            for table in alike:
                changed.update(dict.fromkeys(table.column("key").to_pylist()))
            del kept[1 - ALIKE :]
        return (*kept, self._write({key: self._rows.get(key) for key in changed}))

    def _write(self, changes: Mapping[bytes, Change]) -> Part:
        columns = [pa.array(list(changes), pa.large_binary()), pa.array(list(changes.values()), pa.large_binary())]
        return write_part(self._folder, pa.table(columns, schema=_SCHEMA))

    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything."""
        saved.check(KIND)
        self.clear()
        for part in saved.parts:
            table = open_part(self._folder, part, self._store)
            self._make(dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)))
        self._parts, self.name = saved.parts, name

    def clear(self) -> None:
        """Forget everything."""
        self._rows, self._unsaved, self._parts, self.name = {}, {}, (), ""

    def parts_in_use(self) -> set[str]:
        """Names of the parts that the next snapshot builds upon."""
        return {part.name for part in self._parts}

    def close(self) -> None:
        """Give back files and memory."""
        self.clear()
        if self._own is not None:
            self._own.cleanup()
            self._own = None
