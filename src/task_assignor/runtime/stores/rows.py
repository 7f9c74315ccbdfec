"""Where a key-value store has its rows, as bytes: the interface. Rows in memory are in `memory_rows`, those on disk in `disk`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from task_assignor.runtime.machines.records import SavedStore
from task_assignor.runtime.stores.store import open_part

Change = bytes | None
"""New bytes of a row; None: it is removed."""
IN_MEMORY: Final = "memory"
ON_DISK: Final = "rocksdb"
"""How a store has saved its rows (`SavedStore.kind`)."""
_ROWS_AT_ONCE: Final = 1 << 16
_FEW: Final = 512
"""So many keys find their places one by one (a hundred of a million: 30 ms); more are sorted, or looked for, with all others (four thousand: 0.3 s)."""


def changes_in(saved: SavedStore, folder: Path, store: str) -> Iterator[dict[bytes, Change]]:
    """What leads to the rows that a store in memory has saved, one after the other.

    Raises:
        CorruptLogException: a part is missing or damaged.
    """
    for part in saved.parts:
        for batch in open_part(folder, part, store).to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield dict(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))


def bring_in(order: list[bytes], keys: Collection[bytes]) -> None:
    """Add keys that are not there to those that are, in their order."""
    if len(keys) > _FEW:
        order += keys
        order.sort()  # of what is nearly in order already, which takes little
        return
    for key in keys:
        insort(order, key)


def take_out(order: list[bytes], keys: Collection[bytes]) -> None:
    """Remove keys that are there."""
    if len(keys) > _FEW:
        gone = set(keys)
        order[:] = [key for key in order if key not in gone]
        return
    for key in keys:
        del order[bisect_left(order, key)]


def some_of(order: list[bytes], first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[bytes]:
    """The keys from `first` on and before `end` (None: to the last), or against the order."""
    places = range(bisect_left(order, first), len(order) if end is None else bisect_left(order, end))
    return map(order.__getitem__, reversed(places) if reverse else places)


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
    def between(self, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Rows with keys from `first` on and before `end` (None: to the last) in the order of their keys, or against it."""

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
