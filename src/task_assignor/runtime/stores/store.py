"""What all stores have in common: changes, the way back, and snapshots made of sealed parts. Who decides when is elsewhere.

A store goes from one *kept* state to the next. What changes after that can be taken back (`rollback`) until it is kept
under a name of its own (`keep`): the batch it belongs to failed, or somebody else's try was committed. A store on disk
writes changes and name together, so what is found there after a crash is exactly the state of that name.

A store is rebuilt from a snapshot (`load`) and the changes since (`apply`, batch by batch). All three - live store,
replayed store, snapshot - hold the same rows; a test says so.

A **snapshot** is a list of parts, files that never change once they are written. A part that an older snapshot has is not
written again. Parts are in one folder per store; which of them are needed, snapshots and the store itself say.
"""

from __future__ import annotations

import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from task_assignor.runtime.errors import StoreException, TopicException
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import LocalStorage, as_arrow, open_arrow
from task_assignor.runtime.topics.spec import check_name

PARTS: Final = "parts"
"""Folder of the parts in the folder of a store."""
HALF: Final = "half loaded"
"""The name of a state that is none: whoever finds it begins anew."""


class StoreFolder:
    """Where a store has its parts.

    Args:
        given: the folder; None: one of its own, made when it is needed and deleted at the end.
    """

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self._own: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self._given is not None:
            return self._given
        self._own = self._own or tempfile.TemporaryDirectory(prefix="task-assignor-")
        return Path(self._own.name)

    def keep_only(self, names: Collection[str]) -> None:
        """Delete the parts that have other names."""
        if self._given is not None or self._own is not None:
            delete_parts(self.path, names)

    def delete(self, names: Iterable[str]) -> None:
        """Delete parts, those that the disk lets go."""
        for name in names:
            with suppress(OSError):
                (self.path / PARTS / name).unlink()

    def close(self) -> None:
        """Delete a folder of its own."""
        if self._own is not None:
            self._own.cleanup()
            self._own = None


def check_store_name(name: object) -> None:
    """Raise StoreException if it can be no store's name."""
    try:
        check_name("store", name)
    except TopicException as error:
        raise StoreException(str(error)) from None


def changed_between(store: str) -> StoreException:
    """The error for changes that were made where nobody drains them."""
    return StoreException(
        f"The store {store} was changed while nothing was processed. Maybe by a thread of the processor's, or in its close(): a store is "
        "for the thread that calls the processor, until the batch is processed."
    )


class Store(ABC):
    """What the runtime needs of every store."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the store."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows it holds."""

    @abstractmethod
    def drain_changes(self) -> pa.Table | None:
        """The changes since the last call, for the changelog; None: there were none."""

    @abstractmethod
    def apply(self, changes: pa.Table) -> None:
        """Make the changes of one batch, as `drain_changes` gave them; they are not changes of this store's own."""

    @property
    @abstractmethod
    def kept(self) -> str:
        """Name of the kept state; "": it is empty."""

    @abstractmethod
    def keep(self, name: str) -> None:
        """Keep all changes so far, which were drained: the state has this name now, and there is no way back.

        Raises:
            OSError: the disk says no; the state is still the one that was kept before.
            StoreException: some were not drained: no changelog has them.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Go back to the kept state."""

    @abstractmethod
    def save(self) -> SavedStore:
        """Write the parts that are not there yet; what is kept is what is saved.

        Raises:
            OSError: the disk says no.
        """

    @abstractmethod
    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything, and keep it under a name.

        Raises:
            CorruptLogException: a part is missing or damaged; the store is worth nothing until it is cleared or loaded.
            ValueError: another kind of store wrote it; the same holds.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @property
    def survives(self) -> bool:
        """What is kept is still there when the process has ended."""
        return False

    def parts_in_use(self) -> Iterable[str]:
        """Names of the parts that the store reads or builds upon."""
        return ()

    def close(self) -> None:
        """Give back files and memory; what is kept on disk stays."""


def parts_of(folder: Path) -> LocalStorage:
    """Where the parts of a store are, by their names; `folder` is that of the store."""
    return LocalStorage(folder / PARTS, is_durable=False)


def write_part(folder: Path, table: pa.Table) -> Part:
    """Write a table as a part with a name that nobody else has. It is not synced."""
    name = f"{uuid.uuid4().hex}.arrow"
    step(f"{table.num_rows} rows are written into {folder}")
    data, seal = as_arrow(table)
    parts_of(folder).put(name, data)
    return Part(name, seal)


def open_part(folder: Path, part: Part, store: str) -> pa.Table:
    """The table of a part, mapped into memory.

    Raises:
        CorruptLogException: the file is missing, or is not the one that was sealed.
    """
    step(f"the part {part.name} of store {store!r} is read")
    return open_arrow(parts_of(folder), part.name, part.seal, "snapshot", store, -1, -1)


def has_part(folder: Path, part: Part) -> bool:
    """The file of a part is there, as far as its size tells."""
    try:
        return (folder / PARTS / part.name).stat().st_size == part.seal.size
    except OSError:
        return False


def delete_parts(folder: Path, but: Collection[str]) -> None:
    """Delete the parts of a store that have other names, those that the disk lets go."""
    for path in (folder / PARTS).iterdir() if (folder / PARTS).is_dir() else ():
        if path.name not in but:
            with suppress(OSError):
                path.unlink()


def described(schema: pa.Schema) -> str:
    """Columns and types, for messages."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def with_changelog(kind: str, logged: bool) -> str:
    """The fingerprint of a store: what it is, and whether its changes are kept."""
    return kind if logged else f"{kind}, without changelog"
