"""A storage in a folder of a file system that all who use it share; needs neither hard links nor locks."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from task_assignor.runtime.storage.base import Data, Storage, check_object_name

CONTENT: Final = "~object"
"""An object that was put if absent is a folder with this one file: to rename a folder onto one that is not empty fails on
every file system, also over a network. A rename of a file replaces, and hard links are not everywhere."""
_TEMPORARY: Final = "~"
"""Begins the names of what is not there yet, or not any more: no object is named so."""
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
_TRIES: Final = 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class LocalStorage(Storage):
    """Objects as files below a folder.

    Args:
        root: the folder; it is made when the first object comes.
        is_durable: False: for what can be made again, and whose damage is noticed; nothing waits for the disk then.
    """

    def __init__(self, root: str | os.PathLike[str], *, is_durable: bool = True) -> None:
        self.root = Path(root).absolute()
        self.address = str(self.root)
        self._is_durable = is_durable
        self._numbers = itertools.count()
        self._durable_folders: set[Path] = set()
        """Their names cannot be lost any more, nor those of the folders above."""

    def put(self, name: str, data: Data) -> None:  # noqa: D102
        self._replace(name, data, is_synced_first=True)
        self._sync_folders([name])

    def put_all(self, objects: Mapping[str, Data]) -> None:  # noqa: D102
        for name, data in objects.items():
            self._replace(name, data, is_synced_first=False)
        if self._is_durable:
            # Nobody looks for the names yet, so files and folders may reach the disk in any order.
            self.for_all(self._sync_path, [*(str(self._file(name)) for name in objects), *self._folders(objects)])
            self._durable_folders.update(self._path(name).parent for name in objects)

    def put_if_absent(self, name: str, data: Data) -> None:  # noqa: D102
        path = self._path(name)
        if path.exists():
            # Mostly known before anything is written.
            raise self._exists(name)
        folder = self._temporary(path)
        try:
            self._write(folder / CONTENT, data)
            self._sync(folder / CONTENT)
            self._sync(folder)
            folder.rename(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise self._exists(name) from None
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._sync_folders([name])

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:  # noqa: D102
        file = self._file(name)
        try:
            with pa.memory_map(str(file), "rb") as source:
                data = source.read_buffer()
                return data.slice(start, (data.size if end is None else end) - start)
        except FileNotFoundError:
            raise _error(errno.ENOENT, file) from None

    def size(self, name: str) -> int:  # noqa: D102
        return self._file(name).stat().st_size

    def list(self, folder: str = "") -> list[str]:  # noqa: D102
        path = self._path(folder) if folder else self.root
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(path) as entries:
                found = [
                    f"{prefix}{entry.name}{'/' if _is_folder(entry) else ''}"
                    for entry in entries
                    if not entry.name.startswith(_TEMPORARY)
                ]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            if self.root.exists() and not self.root.is_dir():
                raise
            return []
        return sorted(found)

    def delete(self, names: Iterable[str]) -> None:  # noqa: D102
        for name in names:
            path = self._path(name)
            if path.is_dir():
                if not (path / CONTENT).exists():
                    continue
                gone = self._temporary(path)
                # Gone at once for all who look, whatever happens to this process.
                with suppress(FileNotFoundError):
                    path.rename(gone)
                    shutil.rmtree(gone)
            else:
                path.unlink(missing_ok=True)
            self._remove_if_empty(path.parent)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:  # noqa: D102
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    # Names.

    def _path(self, name: str) -> Path:
        check_object_name(name)
        return self.root / name

    def _file(self, name: str) -> Path:
        path = self._path(name)
        return path / CONTENT if path.is_dir() else path

    def _temporary(self, path: Path) -> Path:
        """A name beside `path` that nobody else uses."""
        unique = f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}"
        return path.with_name(f"{_TEMPORARY}{path.name[:100]}-{unique}")

    def _exists(self, name: str) -> OSError:
        path = self._path(name)
        is_object = not path.is_dir() or (path / CONTENT).exists()
        return _error(errno.EEXIST if is_object else errno.EISDIR, path)

    # Writing.

    def _replace(self, name: str, data: Data, *, is_synced_first: bool) -> None:
        path = self._path(name)
        temporary = self._temporary(path)
        try:
            self._write(temporary, data)
            if is_synced_first:
                self._sync(temporary)
            target = self._file(name)
            if target != path and not target.exists():
                raise self._exists(name)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def _write(self, path: Path, data: Data) -> None:
        """Write a new file, with the folders above it."""
        for turn in itertools.count():
            try:
                descriptor = os.open(path, _NEW, 0o666)
                break
            except FileNotFoundError:
                # Who deletes the last object of a folder removes the folder, maybe just now, but not again and again.
                if turn == _TRIES:
                    raise
                path.parent.mkdir(parents=True, exist_ok=True)
                self._durable_folders.discard(path.parent)
        try:
            left = memoryview(data).cast("B")
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)

    def _remove_if_empty(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            self._durable_folders.discard(folder)
            folder = folder.parent

    # Durability.

    def _sync(self, path: Path) -> None:
        if self._is_durable:
            self._sync_path(str(path))

    def _sync_folders(self, names: Iterable[str]) -> None:
        """Make the names durable: those of the objects, and those of all folders down to them."""
        if self._is_durable:
            names = list(names)
            self.for_all(self._sync_path, self._folders(names))
            self._durable_folders.update(self._path(name).parent for name in names)

    def _folders(self, names: Iterable[str]) -> Sequence[str]:
        """The folders that hold the names, and those above that may be new."""
        found: set[Path] = set()
        for parent in {self._path(name).parent for name in names}:
            found.add(parent)
            if parent not in self._durable_folders:
                found.update(folder for folder in parent.parents if self.root in (folder, *folder.parents))
                # The root may be new, too.
                found.add(self.root.parent)
        return sorted(map(str, found))

    def _sync_path(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems have no fsync for folders; they keep names by themselves.
            if error.errno not in _NO_SYNC or not Path(path).is_dir():
                raise
        finally:
            os.close(descriptor)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not Path(entry.path, CONTENT).exists()


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
