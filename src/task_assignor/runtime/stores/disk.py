"""Rows on disk, in RocksDB: for state that is larger than memory. What they mean is in `key_value`.

A database is in a folder of its own below `live`; changes and the name of the state they lead to are one write batch, so
after a crash it is found in a state that has a name. It is not synced: after a power failure it is in an older one, whole
all the same.

Its table files never change. A snapshot takes those that the last one has not got, by hard links, and RocksDB's few small
files; a database is made from a snapshot by links, too. So neither copies the state.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from task_assignor.runtime.errors import ProcessorStateException, TaskCorruptedException
from task_assignor.runtime.machines.encoding import Value
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import (
    LocalStorage,
    Seal,
    as_document,
    corrupt,
    open_document,
)
from task_assignor.runtime.storage.disk import naming
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.rows import IN_MEMORY, ON_DISK, Change, Rows, changes_in
from task_assignor.runtime.stores.store import HALF, PARTS, has_part
from task_assignor.sdk import MissingExtraException
from task_assignor.sdk.logs import logger_of

try:
    import rocksdict
except ImportError as error:
    raise MissingExtraException("rocksdb", "A store on disk", error.name or "rocksdict") from error

_log = logger_of(__name__)
LIVE: Final = "live"
_STATE: Final = "state"
"""Column family of name and number of rows: no key of a row can be in its way."""
_NAME: Final = b"name"
_ROWS: Final = b"rows"
_TABLE: Final = ".sst"
_WRITE_BUFFER: Final = 16 << 20
_STATE_BUFFER: Final = 64 << 10
_OPEN_FILES: Final = 256
_TRIES: Final = 5
_REMEMBERED_KEYS: Final = 1 << 20
_READ_BYTES: Final = 1 << 20
_BLOCK: Final = 8 << 10
_KEYS_AT_ONCE: Final = 1 << 10
"""Values that were found hold their blocks, a block each where keys are far apart, whatever the size of the cache."""
_TOLD: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)
_LOG_BYTES: Final = 4 * _WRITE_BUFFER
"""The database's own log may be so large; without a limit the few changes of `_STATE` would hold 0.6 GB of it."""


def _options(memory: StoreMemory, write_buffer: int = _WRITE_BUFFER) -> rocksdict.Options:
    cache, manager = memory.cache()
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(_BLOCK)
    # Indexes and filters of many rows are large, too: they are in the cache, in pieces, like everything else.
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_bloom_filter(10, block_based=False)
    table.set_partition_filters(True)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_top_level_index_and_filter(True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(manager)
    options.set_write_buffer_size(write_buffer)
    options.set_max_total_wal_size(_LOG_BYTES)
    options.set_max_open_files(_OPEN_FILES)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _up_to(end: bytes | None) -> rocksdict.ReadOptions:
    found = rocksdict.ReadOptions()
    if end is not None:
        found.set_iterate_upper_bound(end)
    return found


class _Tables(Value, frozen=True):
    """Which files of a database are parts."""

    tables: Mapping[str, Part]


class DiskRows(Rows):
    """Rows in a database on disk.

    Args:
        folder: where databases and parts are; None: a temporary folder.
        store: name of the store, for messages.
        memory: what all stores of the process share.

    Raises:
        OSError: the disk says no.
    """

    survives = True

    def __init__(self, folder: Path | None, store: str, memory: StoreMemory) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="task-assignor-") if folder is None else None
        self._folder = Path(self._own.name) if self._own is not None else folder or Path()
        self._store = store
        self._options = _options(memory)
        self._state_options = _options(memory, _STATE_BUFFER)
        self._tables: dict[str, Part] = {}
        """File of the database -> the part that it is."""
        self._there: dict[bytes, bool] = {}
        """Whether keys that were looked up are there: what is read is often written then."""
        self._open_any()

    # Databases.

    def _open_any(self) -> None:
        """Open the database that a former process left, or a new one."""
        live = self._folder / LIVE
        found = [path for path in live.iterdir() if path.is_dir()] if live.is_dir() else []
        is_open = False
        for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
            if is_open and not _is_locked(path):
                self._remove(path)
            elif not is_open:
                try:
                    self._open(path)
                    is_open = True
                except BlockingIOError:
                    # Of a process that still lives: a zombie of this client, which nobody listens to any more.
                    continue
                except TaskCorruptedException as error:
                    _log.warning("The database %s of store %s is damaged and not used: %s", path, self._store, error)
                    self._remove(path)
        if not is_open:
            self._open_new()

    def _open_new(self) -> None:
        """Open a new database; another process of the same folder may take it for one that was left, before it is open here."""
        for left in reversed(range(_TRIES)):
            try:
                return self._open(self._folder / LIVE / uuid.uuid4().hex)
            except BlockingIOError:
                if not left:
                    raise
        return None

    def _open(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._errors():
            self._db = rocksdict.Rdict(
                str(path), self._options, {"default": self._options, _STATE: self._state_options}
            )
            state = self._db.get_column_family(_STATE)
            self.name = (state.get(_NAME) or b"").decode()
            self._rows = int(state.get(_ROWS) or b"0")
            state.close()
        self._there = {}
        # Of processes that were killed as they wrote it: only who has the database open does.
        self._lists.delete_unfinished([self._list])
        try:
            self._tables = dict(open_document(self._lists, self._list, _Tables).tables)
        except (OSError, ValueError):
            self._tables = {}

    @property
    def _lists(self) -> LocalStorage:
        """Where it is written down which tables of the databases are parts."""
        return LocalStorage(self._path.parent, is_durable=False)

    @property
    def _list(self) -> str:
        return self._path.with_suffix(".json").name

    def _remember(self, tables: dict[str, Part]) -> None:
        self._tables = tables
        self._lists.put(self._list, as_document(_Tables(tables)))

    @staticmethod
    def _remove(path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        name, lists = path.with_suffix(".json").name, LocalStorage(path.parent, is_durable=False)
        lists.delete([name])
        lists.delete_unfinished([name])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """RocksDB's errors as ours."""
        try:
            yield
        except (TaskCorruptedException, OSError):
            raise
        except Exception as error:
            text = f"The store {self._store} on disk ({self._path}): {error}"
            if _is_of_lock(error):
                raise BlockingIOError(errno.EWOULDBLOCK, text) from error
            if any(sign in str(error) for sign in ("Corruption", "No such file", "does not exist")):
                raise TaskCorruptedException(text) from error
            raise ProcessorStateException(_number_of(error), text) from error

    # Rows.

    def __len__(self) -> int:
        return self._rows

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of some keys."""
        if not keys:
            return []
        # In their order the database finds and takes them in half the time.
        asked = sorted(keys)
        found = dict(zip(asked, self._read(asked), strict=True))
        if len(self._there) < _REMEMBERED_KEYS:
            self._there.update((key, value is not None) for key, value in found.items())
        return [found[key] for key in keys]

    def _read(self, keys: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        with self._errors():
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                some: list[Any] = keys[first : first + _KEYS_AT_ONCE]
                values += self._db.get(some)  # type: ignore[arg-type]  # a list for a list
        return values

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows in the order of their keys."""
        # The database gives what it had when this began, whatever is written meanwhile.
        rows, there = 0, self._rows
        with self._errors():
            for item in self._db.items():
                rows += 1
                yield item  # type: ignore[misc]  # bytes, in raw mode
        if rows != there:
            # Where a block is damaged, the iterator just ends.
            raise TaskCorruptedException(
                f"The store {self._store} on disk ({self._path}) gave {rows} of {there} rows: Corruption."
            )

    def between(self, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Some rows in the order of their keys, or against it."""
        # What it finds is what was there when this began, too.
        with self._errors():
            found = self._db.iter(_up_to(end))
            if not reverse:
                found.seek(first)
            else:
                found.seek_to_last()
            while found.valid() and (key := found.key()) >= first:
                yield key, found.value()
                (found.prev if reverse else found.next)()
            found.status()

    def write(self, changes: Mapping[bytes, Change], name: str) -> None:
        """Make some changes and give the state a name."""
        if not changes and name == self.name:
            return
        there, rows = self._there, self._rows
        keys = sorted(changes)
        unknown = [key for key in keys if key not in there]
        there.update((key, value is not None) for key, value in zip(unknown, self._read(unknown), strict=True))
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in keys:
            value = changes[key]
            if value is not None:
                batch.put(key, value)
                rows += not there[key]
            elif there[key]:
                batch.delete(key)
                rows -= 1
        self._there = {}
        with self._errors():
            state = self._db.get_column_family_handle(_STATE)
            batch.put(_NAME, name.encode(), state)
            batch.put(_ROWS, str(rows).encode(), state)
            self._db.write(batch)
        self._rows, self.name = rows, name

    # Snapshots.

    def save(self) -> SavedStore:
        """Write the parts that are not there yet."""
        copy = self._folder / f".{uuid.uuid4().hex}.tmp"
        tables, files = {}, {}
        try:
            with self._errors():
                step(f"the database of store {self._store!r} in {self._path} is copied")
                self._db.flush()
                rocksdict.Checkpoint(self._db).create_checkpoint(str(copy))
            for path in sorted(copy.iterdir()):
                known = self._tables.get(path.name)
                if known is None or not has_part(self._folder, known):
                    known = self._take(path)
                files[path.name] = known
                if path.suffix == _TABLE:
                    tables[path.name] = known
            self._remember(tables)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        return SavedStore(ON_DISK, tuple(files.values()), {"files": [*files], "rows": self._rows})

    def _take(self, path: Path) -> Part:
        """Make a file a part."""
        step(f"the checksum of {path} is computed")
        name = f"{uuid.uuid4().hex}{path.suffix or '.rocksdb'}"
        target = self._folder / PARTS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        return Part(name, _seal_of(target))

    def load(self, saved: SavedStore, name: str) -> None:
        """Replace everything, maybe by what was in memory in an earlier run."""
        if saved.kind == IN_MEMORY:
            self.clear()
            for changes in changes_in(saved, self._folder, self._store):
                self.write(changes, HALF)
            self.write({}, name)
            return
        saved.check(ON_DISK)
        path = self._folder / LIVE / uuid.uuid4().hex
        half = self._folder / f".{path.name}.tmp"
        half.mkdir(parents=True)
        tables = {}
        try:
            for file, part in zip(saved.state["files"], saved.parts, strict=True):
                source = self._folder / PARTS / part.name
                self._check(source, part)
                if file.endswith(_TABLE):
                    _link(source, half / file)
                    tables[file] = part
                else:
                    # These it will change.
                    shutil.copyfile(source, half / file)
            path.parent.mkdir(exist_ok=True)
            half.rename(path)
        finally:
            shutil.rmtree(half, ignore_errors=True)
        self.drop()
        step(f"the database of store {self._store!r} in {path} is opened")
        try:
            self._open(path)
        except TaskCorruptedException as error:
            raise corrupt(str(path), "snapshot", self._store, -1, -1, error) from error
        if self._rows != saved.state["rows"]:
            raise ValueError(f"it has {self._rows} rows, not {saved.state['rows']}")
        self._remember(tables)
        # What it was called when it was saved, another version may have put in other words.
        self.write({}, name)

    def _check(self, path: Path, part: Part) -> None:
        step(f"the checksum of {path} is computed")
        try:
            found = _seal_of(path)
        except OSError as error:
            raise corrupt(str(path), "snapshot", self._store, -1, -1, error) from error
        if found != part.seal:
            wrong = ValueError(f"it is {found}, but {part.seal} was written")
            raise corrupt(str(path), "snapshot", self._store, -1, -1, wrong)

    def clear(self) -> None:
        """Forget everything."""
        self.drop()
        self._open_new()

    def drop(self) -> None:
        """Close the database and delete it."""
        self._close()
        self._remove(self._path)

    def parts_in_use(self) -> set[str]:
        """Names of the parts that the next snapshot builds upon."""
        return {part.name for part in self._tables.values()}

    def _close(self) -> None:
        with suppress(Exception):  # it says that it is closed, or that its disk is gone
            self._db.close()

    def close(self) -> None:
        """Give back files and memory."""
        self._close()
        if self._own is not None:
            self._own.cleanup()


def rows_of(saved: SavedStore, folder: Path, store: str, name: str) -> dict[bytes, bytes]:
    """The rows that a store on disk has saved, for one in memory; the arguments are those of `DiskRows` and `load`."""
    rows = DiskRows(folder, store, StoreMemory())
    try:
        rows.load(saved, name)
        return dict(rows.items())
    finally:
        rows.drop()


def _is_locked(path: Path) -> bool:
    """A living process has the database open."""
    try:
        rocksdict.Rdict(
            str(path), rocksdict.Options(raw_mode=True), {"default": rocksdict.Options(raw_mode=True)}
        ).close()
    except Exception as error:  # noqa: BLE001 - rocksdict knows no other
        return _is_of_lock(error)
    return False


def _is_of_lock(error: Exception) -> bool:
    return any(sign in str(error) for sign in ("lock hold by", "While lock file"))


def _number_of(error: Exception) -> int:
    """What the operating system said to RocksDB, which gives its words only."""
    return next((number for number in _TOLD if os.strerror(number) in str(error)), errno.EIO)


def _seal_of(path: Path) -> Seal:
    checksum = size = 0
    with naming(str(path)), path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            checksum = zlib.crc32(data, checksum)
            size += len(data)
    return Seal(0, size, f"{checksum:08x}")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # File systems without hard links.
        shutil.copyfile(source, target)
