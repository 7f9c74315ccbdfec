"""The stores of one task: where each of them is, and their snapshots. Logs are read elsewhere.

All stores of a task go from batch to batch together. They are kept when it is known that their batch counts; until then
the way back is open. After a crash each store may be elsewhere: one in memory is nowhere, one on disk where it was kept.

    <task>/snapshots/<batch>-<generation>.json   what a snapshot is made of
    <task>/stores/<store>/parts/                 files that never change, shared by snapshots
    <task>/stores/<store>/live/                  databases of stores on disk
    <task>/position.json                         where these are, for those who do not open them

That is the state directory. The parts of an active task's snapshots are in the folder of the run, too, for other clients:
see `sharing`. Those here are the same files, which then need not be fetched.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import attrs
import msgspec
import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.encoding import VERSION, Value, decode, encode
from task_assignor.runtime.machines.protocol import KEPT_SNAPSHOTS, START, Position, position_of
from task_assignor.runtime.machines.records import SavedStore, TaskSnapshot
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import (
    DamagedDocumentError,
    LocalStorage,
    Storage,
    as_document,
    corrupt,
    open_document,
    read_document,
)
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.sharing import fetch
from task_assignor.runtime.stores.store import HALF, Store, delete_parts
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
FORMAT_VERSION: Final = 7
"""What a state directory has of another version is not used: before 7 it did not say of which history of a run it is."""
_NOTE: Final = "position.json"
FROM_THE_BEGINNING: Final = b"task_assignor.from_the_beginning"
"""Metadata of changes that hold the whole history of a store: what it has is to be forgotten before."""


class StoreDeclaration(Protocol):
    """What a task must know of a store before there is one."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def logged(self) -> bool:
        """Its changes are kept in a changelog."""

    def create(self, folder: Path | None = None, memory: StoreMemory | None = None) -> Store:
        """The store."""


class StateOwner(Value, frozen=True):
    """Whose state it is: another one's is not used.

    Args:
        application_id: `application.id`.
        run_id: identity of the run folder.
        task: the task, as text.
    """

    application_id: str
    run_id: str
    task: str


class _Described(Value, frozen=True, omit_defaults=True, tag_field=VERSION, tag=FORMAT_VERSION):
    """A snapshot, or where the stores on disk of a task are.

    Args:
        owner: whose state it is.
        position: what it holds.
        stores: of a snapshot: store -> what it is made of.
    """

    owner: StateOwner
    position: Position
    stores: Mapping[str, SavedStore] = msgspec.field(default_factory=dict)


@attrs.frozen
class Snapshot:
    """A snapshot whose parts are in the state directory or, if it is shared, can be fetched.

    Args:
        position: what it holds.
        stores: store -> what it is made of.
        path: its description in the state directory; None: it has none there.
        shared: what it is in the folder of the run; None: it is not there, as far as this client knows.
    """

    position: Position
    stores: Mapping[str, SavedStore]
    path: Path | None = None
    shared: TaskSnapshot | None = None

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"of batch {self.position.batch} in the folder of the run" if self.path is None else str(self.path)


@attrs.frozen
class Rewound:
    """What brought the stores of a task to a state that counts.

    Args:
        origin: "memory", "disk", "snapshot", "shared" or "changelog".
        rows: rows that a snapshot gave.
        fetched_bytes: bytes of it that were not here.
        problem: why the newest snapshot in the folder of the run could not be used; None: it could, or was not wanted.
    """

    origin: str
    rows: int = 0
    fetched_bytes: int = 0
    problem: CorruptLogException | None = None


def list_snapshots(folder: Path, owner: StateOwner) -> list[Snapshot]:
    """The snapshots in the folder of a task, newest first; whether they count is not checked.

    Others' are passed over; one that is damaged goes, as it would with the next snapshot, and is told once only.
    """
    snapshots = []
    for path in (folder / "snapshots").glob("[0-9]*.json"):
        try:
            found = open_document(LocalStorage(path.parent), path.name, _Described)
            if found.owner == owner:
                snapshots.append(Snapshot(found.position, found.stores, path))
        except DamagedDocumentError as error:
            _log.warning("The snapshot %s of task %s is damaged and deleted: %s", path, owner.task, error)
            with suppress(OSError):
                path.unlink()
        except (OSError, ValueError):
            continue
    return _newest_first(snapshots)


def noted_position(folder: Path, owner: StateOwner) -> Position | None:
    """Where the stores on disk of a task were kept, as far as it is written down: a hint, which only opening them can prove.

    Args:
        folder: folder of the task in the state directory.
        owner: whose state it must be.

    Returns:
        The position. None: there is no hint, it is damaged or another one's.
    """
    try:
        # Not mapped into memory: it is written in place, and a file that becomes shorter meanwhile ends who has it mapped.
        found = read_document((folder / _NOTE).read_bytes(), _Described)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.debug("It is not known where the stores on disk of task %s are: %s", owner.task, error)
        return None
    return found.position if found.owner == owner else None


def _newest_first(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Of equal ones first those that are here."""
    return sorted(
        snapshots,
        key=lambda found: (found.position.batch, found.position.generation, found.path is not None),
        reverse=True,
    )


def is_from_the_beginning(changes: pa.Table) -> bool:
    """They are all that there ever were, and what they do not name is not there."""
    return FROM_THE_BEGINNING in (changes.schema.metadata or {})


def store_folder(folder: Path, name: str) -> Path:
    """Folder of a store in that of its task."""
    return folder / "stores" / name


class TaskState:
    """The stores of a task.

    Args:
        folder: folder of the task in the state directory.
        owner: whose state it is.
        declarations: the stores.
        memory: what all stores of the process share.
        storage: the folder of the run.

    Attributes:
        stores: the stores, by name.
        logged: names of those with a changelog.
        position: where all stores are.
    """

    def __init__(
        self,
        folder: Path,
        owner: StateOwner,
        declarations: Iterable[StoreDeclaration],
        memory: StoreMemory,
        storage: Storage,
    ) -> None:
        self._folder = folder
        self._storage = storage
        self._owner = owner
        declarations = tuple(declarations)
        self.stores: Mapping[str, Store] = {
            found.name: found.create(self._store_folder(found.name), memory) for found in declarations
        }
        self.logged = tuple(found.name for found in declarations if found.logged)
        for store in self._without_changelog():
            store.clear()
        self.position = self._kept = START
        self._survives = bool(self.logged) and all(self.stores[name].survives for name in self.logged)
        """What is kept is still there when the process has ended."""
        self._noted: Position | None = None
        """What this process wrote down of that."""
        self._saved: Snapshot | None = None
        """The last snapshot."""

    def _store_folder(self, name: str) -> Path:
        return store_folder(self._folder, name)

    # From batch to batch.

    def keep(self) -> None:
        """All stores are at `position`, and that counts.

        Raises:
            OSError: the disk says no.
        """
        self._keep(self.stores.values(), self.position)
        self._are_kept_at(self.position)

    def _are_kept_at(self, position: Position) -> None:
        """All stores are; those on disk will be found there, and this is noted for who does not open them."""
        self._kept = position
        if position == self._noted:
            return
        self._noted = position
        # Neither synced nor put in one go: it costs a hundredth of a batch so, and is held against its checksum.
        with suppress(OSError):
            if self._survives and position.batch >= 0:
                (self._folder / _NOTE).write_bytes(as_document(_Described(self._owner, position)))
            else:
                (self._folder / _NOTE).unlink(missing_ok=True)

    def _keep(self, stores: Iterable[Store], position: Position) -> None:
        name = self._name_of(position)
        for store in stores:
            if store.kept != name:
                step(f"the store {store.name!r} keeps the changes of batch {position.batch}")
                store.keep(name)

    def _name_of(self, position: Position) -> str:
        """What a store calls the state: a database may be left by another run."""
        return encode((FORMAT_VERSION, self._owner.run_id, position)).decode() if position.batch >= 0 else ""

    def _at(self, name: str) -> Position | None:
        """Where a store was kept; None: that was in another run, or written by another version."""
        kept = self.stores[name].kept
        if not kept:
            return START
        try:
            version, run_id, position = decode(kept.encode(), tuple[int, str, Position])
        except ValueError:
            return None  # of another version of the format
        return position if (version, run_id) == (FORMAT_VERSION, self._owner.run_id) else None

    def rollback(self) -> None:
        """Back to where the stores were kept."""
        for store in self.stores.values():
            store.rollback()
        self.position = self._kept

    def is_at(self, position: Position) -> bool:
        """All stores are there, kept or not."""
        if position.batch < 0 and self.position.batch < 0:
            # What a former process left was not held against anything yet.
            for store in self.stores.values():
                if store.kept:
                    store.clear()
        return self.position.is_same_try(position)

    # Restoring.

    def rewind(self, counts: Callable[[Position], bool], shared: Iterable[TaskSnapshot] = ()) -> Rewound:
        """Bring each store to the newest state that counts: as it is, on disk, of a snapshot, or none.

        Args:
            counts: the state was made by tries that were all committed, the changes after it are known, and it is not
                newer than what is wanted.
            shared: snapshots in the folder of the run.
        """
        origin = "memory" if self.position.batch >= 0 else "disk"
        if self.position.batch >= 0 and counts(self.position):
            self.keep()
        self.rollback()
        before = self._kept
        good = {name: at for name in self.logged if (at := self._at(name)) is not None and counts(at)}
        loaded = self._load_newest(good, counts, shared)
        for name in self.logged:
            if good.setdefault(name, START) == START:
                self.stores[name].clear()
        # Those that are ahead take part again when the others have come to where they are.
        least = before if counts(before) else START
        self.position = min(good.values(), key=lambda position: position.batch, default=least)
        self._are_kept_at(self.position)
        if self.position != before:
            for store in self._without_changelog():
                store.clear()
        newest = max((position.batch for position in good.values()), default=-1)
        return loaded if loaded.origin else attrs.evolve(loaded, origin=origin if newest >= 0 else "changelog")

    def _load_newest(
        self, good: dict[str, Position], counts: Callable[[Position], bool], shared: Iterable[TaskSnapshot]
    ) -> Rewound:
        """Load what is newer in a snapshot than what is `good`; an empty origin: nothing was loaded."""
        there = [Snapshot(position_of(found), found.stores, shared=found) for found in shared]
        problem: CorruptLogException | None = None
        for snapshot in _newest_first([*list_snapshots(self._folder, self._owner), *there]):
            position = snapshot.position
            behind = [name for name in self.logged if name not in good or good[name].batch < position.batch]
            if not behind:
                break
            if not counts(position):
                continue
            try:
                fetched = self._fetch(snapshot, behind)
                for name in behind:
                    # What is half loaded is worth nothing.
                    good.pop(name, None)
                    step(f"the store {name!r} is loaded from the snapshot {snapshot.place}")
                    self.stores[name].load(snapshot.stores[name], self._name_of(position))
                    good[name] = position
            except (CorruptLogException, KeyError, TypeError, ValueError) as error:
                _log.warning(
                    "The snapshot %s of task %s cannot be used; another one or the changelog is read instead: %s",
                    snapshot.place,
                    self._owner.task,
                    error,
                )
                if snapshot.path is not None:
                    snapshot.path.unlink(missing_ok=True)
                elif problem is None:
                    problem = self._as_corrupt(snapshot, error)
                continue
            self._saved = snapshot
            rows = sum(len(self.stores[name]) for name in behind)
            return Rewound("snapshot" if snapshot.shared is None else "shared", rows, fetched, problem)
        return Rewound("", problem=problem)

    def _as_corrupt(self, snapshot: Snapshot, error: Exception) -> CorruptLogException:
        if isinstance(error, CorruptLogException):
            return error
        return corrupt(snapshot.place, "snapshot", self._owner.task, -1, snapshot.position.batch, error)

    def _fetch(self, snapshot: Snapshot, names: Iterable[str]) -> int:
        if snapshot.shared is None:
            return 0
        return fetch(self._storage, {name: self._store_folder(name) for name in names}, snapshot.shared, names)

    def lacks(self, name: str, batch: int) -> bool:
        """A store does not have the changes of a batch yet."""
        at = self._at(name)
        return at is None or at.batch < batch

    def begin_at(self, position: Position) -> None:
        """Nothing changed up to this position: so stores that are empty are there."""
        if self.position.batch < position.batch:
            self.apply(position, {})

    def apply(self, position: Position, changes: Mapping[str, Iterable[pa.Table]]) -> int:
        """Make the committed changes of a batch in those stores that lack them.

        Args:
            position: where they lead to.
            changes: store -> what changed, in pieces. All that came before one that is `is_from_the_beginning` is forgotten.

        Returns:
            The number of rows that changed.
        """
        behind = [self.stores[name] for name in self.logged if self.lacks(name, position.batch)]
        try:
            rows = sum(self._make(store, changes.get(store.name, ()), position.batch) for store in behind)
            self._keep(behind, position)
            self._keep(self._without_changelog(), position)
        except BaseException:
            # Some are there, some are not: each knows where it is, and the next try begins with that.
            for store in self.stores.values():
                store.rollback()
            self._begin()
            raise
        self.position = position
        self._are_kept_at(position)
        return rows

    @staticmethod
    def _make(store: Store, changes: Iterable[pa.Table], batch: int) -> int:
        rows, is_whole = 0, False
        for piece in changes:
            step(f"the store {store.name!r} makes the changes of batch {batch}")
            if is_from_the_beginning(piece):
                store.clear()
                is_whole = True
            store.apply(piece)
            rows += piece.num_rows
            if is_whole:
                # There is no way back, and memory may be too small for all of it.
                store.keep(HALF)
        return rows

    def _without_changelog(self) -> list[Store]:
        return [store for name, store in self.stores.items() if name not in self.logged]

    def _begin(self) -> None:
        """The task is nowhere, wherever its stores are."""
        for store in self._without_changelog():
            store.clear()
        self.position = START
        self._are_kept_at(START)

    def reset(self) -> None:
        """Forget everything."""
        for store in self.stores.values():
            store.clear()
        self._begin()

    # Snapshots.

    def save(self) -> Snapshot | None:
        """Write a snapshot into the state directory, and remove what none needs any more. None: there is nothing to write.

        It is not synced: one that a power failure damages is noticed by its checksums, and only saved time.

        Raises:
            OSError: the disk says no; older snapshots are still there.
        """
        position = self.position
        if position.batch < 0 or not self.logged:
            return None
        if self._saved is not None and self._saved.position == position and self._saved.path is not None:
            return self._saved
        self.keep()
        stores = {}
        for name in self.logged:
            step(f"the store {name!r} is saved")
            stores[name] = self.stores[name].save()
        step(f"the snapshot is written into {self._folder}")
        path = self._folder / "snapshots" / f"{position.batch:012d}-{position.generation:08d}.json"
        LocalStorage(path.parent, is_durable=False).put(
            path.name, as_document(_Described(self._owner, position, stores))
        )
        self._saved = Snapshot(position, stores, path)
        self._clean(path)
        return self._saved

    def _clean(self, newest: Path) -> None:
        """Remove older snapshots, those of others, and parts that nothing needs."""
        snapshots = {found.path: found for found in list_snapshots(self._folder, self._owner) if found.path is not None}
        older = sorted(path for path in snapshots if path.name < newest.name)
        for path in newest.parent.iterdir():
            if path not in snapshots or path in older[: 1 - KEPT_SNAPSHOTS]:
                path.unlink(missing_ok=True)
                snapshots.pop(path, None)
        for name, store in self.stores.items():
            folder = self._store_folder(name)
            needed = set(store.parts_in_use())
            for snapshot in snapshots.values():
                needed |= {part.name for part in snapshot.stores[name].parts} if name in snapshot.stores else set()
            delete_parts(folder, needed)
            for path in folder.glob(".*.tmp"):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Give back files and memory; what is kept on disk stays."""
        for store in self.stores.values():
            store.close()
