"""What all stores have in common. Files are written elsewhere.

A store is rebuilt from a snapshot (`load`) and the changes since (`apply`, batch by batch). All three - live store,
replayed store, snapshot - hold the same rows; a test says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from task_assignor.runtime.errors import StoreException, TopicException
from task_assignor.runtime.topics import check_name


def check_store_name(name: object) -> None:
    """Raise StoreException if it can be no store's name."""
    try:
        check_name("store", name)
    except TopicException as error:
        raise StoreException(str(error)) from None


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

    @abstractmethod
    def snapshot(self) -> pa.Table:
        """Everything the store holds, for `load`."""

    @abstractmethod
    def load(self, snapshot: pa.Table) -> None:
        """Replace what the store holds by a snapshot."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""


def described(schema: pa.Schema) -> str:
    """Columns and types, for messages."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
