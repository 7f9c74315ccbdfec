"""A storage in a folder of a file system that all who use it share; needs neither hard links nor locks."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from task_assignor.runtime.storage.base import Data, Storage, check_object_name
from task_assignor.runtime.storage.disk import naming
from task_assignor.sdk.text import is_name

CONTENT: Final = "~object"
"""An object that was put if absent is a folder with this one file: to rename a folder onto one that is not empty fails on
every file system, also over a network. A rename of a file replaces, and hard links are not everywhere."""
_TEMPORARY: Final = "~"
"""Begins the names of what is not there yet, or not any more: no object is named so."""
_BEGUN: Final = re.compile(rf"{_TEMPORARY}(.+)-\d+-\d+-\d+")
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
_NO_LOCK: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What network file systems say that have no locks (NFS and Lustre as they may be mounted)."""
_HELD: Final[set[IO[str]]] = set()
"""Files by which this process holds something. Who is forked meanwhile, a worker of a pool maybe, would hold it too, for as long as it lives."""
os.register_at_fork(after_in_child=lambda: [file.close() for file in _HELD])
_TRIES: Final = 20
_OPEN_FILES: Final = 64
"""So many are written and made durable together: a process may have 256 open on macOS, 1 024 on most of Linux."""
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
        self._durable_folders: set[str] = set()
        """Their names cannot be lost any more, nor those of the folders above."""

    def put(self, name: str, data: Data) -> None:  # noqa: D102
        with naming(self.locate(name)):
            os.close(self._replace(name, data, is_synced_first=True))
            self._sync_names([name])

    def put_all(self, objects: Mapping[str, Data]) -> None:  # noqa: D102
        names = [*objects]
        for first in range(0, len(names), _OPEN_FILES):
            self._put_some({name: objects[name] for name in names[first : first + _OPEN_FILES]})

    def _put_some(self, objects: Mapping[str, Data]) -> None:
        written: list[tuple[str, int]] = []
        try:
            for name, data in objects.items():
                with naming(self.locate(name)):
                    written.append((self.locate(name), self._replace(name, data, is_synced_first=False)))
                if not self._is_durable:
                    os.close(written.pop()[1])
            # Nobody looks for the names yet, so they may reach the disk in any order.
            self._sync_names(objects, written)
        finally:
            for _, descriptor in written:
                os.close(descriptor)

    def put_if_absent(self, name: str, data: Data) -> None:  # noqa: D102
        path = self._place(name)
        if os.path.exists(path):  # noqa: PTH110
            # Mostly known before anything is written.
            raise self._exists(name)
        folder = self._temporary(path)
        try:
            with naming(path):
                descriptor = self._write(f"{folder}/{CONTENT}", data)
                try:
                    if self._is_durable:
                        os.fsync(descriptor)
                        _sync_folder(folder)
                finally:
                    os.close(descriptor)
            os.rename(folder, path)  # noqa: PTH104
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise self._exists(name) from None
            raise
        self._sync_names([name])

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:  # noqa: D102
        file = self._file(name)
        try:
            with pa.memory_map(file, "rb") as source:
                data = source.read_buffer()
                return data.slice(start, (data.size if end is None else end) - start)
        except FileNotFoundError:
            raise _error(errno.ENOENT, file) from None

    def size(self, name: str) -> int:  # noqa: D102
        path = self._place(name)
        found = os.stat(path)  # noqa: PTH116
        return (os.stat(f"{path}/{CONTENT}") if stat.S_ISDIR(found.st_mode) else found).st_size  # noqa: PTH116

    def list(self, folder: str = "") -> list[str]:  # noqa: D102
        path = self._place(folder) if folder else self.address
        prefix = f"{folder}/" if folder else ""
        try:
            for _ in range(_TRIES):
                with os.scandir(path) as entries:
                    folders = {entry.name: _is_folder(entry) for entry in entries if is_name(entry.name)}
                # What was deleted while this looked is a folder without its file. The rest is nothing that was ever there
                # at one time: of numbers an old one could be taken for the newest.
                if all(os.path.isdir(f"{path}/{name}") for name, is_folder in folders.items() if is_folder):  # noqa: PTH112
                    break
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            if self.root.exists() and not self.root.is_dir():
                raise
            return []
        return sorted(f"{prefix}{name}{'/' if is_folder else ''}" for name, is_folder in folders.items())

    def delete(self, names: Iterable[str]) -> None:  # noqa: D102
        for name in names:
            path = Path(self._place(name))
            if path.is_dir():
                if not (path / CONTENT).exists():
                    continue
                gone = Path(self._temporary(str(path)))
                # Gone at once for all who look, whatever happens to this process.
                with suppress(FileNotFoundError):
                    path.rename(gone)
                    shutil.rmtree(gone)
            else:
                path.unlink(missing_ok=True)
            self._remove_if_empty(path.parent)

    def list_below(self, folder: str = "") -> Iterator[str]:
        """The names of all objects in a folder and in those below it; a link that leads back up is not followed."""
        return self._list_below(folder, (os.path.realpath(self._place(folder) if folder else self.address),))

    def _list_below(self, folder: str, passed: tuple[str, ...]) -> Iterator[str]:
        for name in self.list(folder):
            if not name.endswith("/"):
                yield name
                continue
            place = self._place(name[:-1])
            if not os.path.islink(place):  # noqa: PTH114
                yield from self._list_below(name[:-1], passed)
                continue
            target = os.path.realpath(place)
            inside = (*passed, os.path.realpath(os.path.dirname(place)))  # noqa: PTH120
            if not any(f"{one}/".startswith(f"{target.rstrip('/')}/") for one in inside):
                yield from self._list_below(name[:-1], (*passed, target))

    def unfinished(self, folder: str) -> Iterator[str]:  # noqa: D102
        for place, folders, files in os.walk(self._place(folder)):
            begun = filter(None, map(_BEGUN.fullmatch, (*folders, *files)))
            yield from (f"{place[len(self.address) + 1 :]}/{found[1]}" for found in begun)

    def delete_unfinished(self, names: Iterable[str]) -> None:  # noqa: D102
        for name in names:
            path = Path(self._place(name))
            for found in path.parent.glob(f"{_TEMPORARY}{path.name}-*"):
                if found.is_dir():
                    shutil.rmtree(found, ignore_errors=True)
                else:
                    found.unlink(missing_ok=True)
            self._remove_if_empty(path.parent)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:  # noqa: D102
        path = Path(self._place(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCK:
                    raise
            _HELD.add(file)
            try:
                yield
            finally:
                _HELD.discard(file)

    # Names. Texts: they are made for every file of every batch, and paths take longer than the disk.

    def _place(self, name: str) -> str:
        check_object_name(name)
        return f"{self.address}/{name}"

    def _file(self, name: str) -> str:
        path = self._place(name)
        try:
            found = os.stat(path)  # noqa: PTH116 - what cannot be looked at is neither
        except (FileNotFoundError, NotADirectoryError):
            return path
        return f"{path}/{CONTENT}" if stat.S_ISDIR(found.st_mode) else path

    def _temporary(self, path: str) -> str:
        """A name beside `path` that nobody else uses."""
        folder, _, last = path.rpartition("/")
        return f"{folder}/{_TEMPORARY}{last[:100]}-{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}"

    def _exists(self, name: str) -> OSError:
        path = Path(self._place(name))
        is_object = not path.is_dir() or (path / CONTENT).exists()
        return _error(errno.EEXIST if is_object else errno.EISDIR, path)

    # Writing.

    def _replace(self, name: str, data: Data, *, is_synced_first: bool) -> int:
        """Put a file in the place of the one that is there; gives its descriptor, which is open."""
        path = self._place(name)
        temporary = self._temporary(path)
        descriptor = self._write(temporary, data)
        try:
            if is_synced_first and self._is_durable:
                os.fsync(descriptor)
            try:
                os.replace(temporary, path)  # noqa: PTH105
            except IsADirectoryError:
                target = Path(self._file(name))
                if not target.exists():
                    raise self._exists(name) from None
                Path(temporary).replace(target)
        except BaseException:
            os.close(descriptor)
            Path(temporary).unlink(missing_ok=True)
            raise
        return descriptor

    def _write(self, path: str, data: Data) -> int:
        """Write a new file, with the folders above it; gives its descriptor. After an error nothing of it is there."""
        for turn in itertools.count():
            try:
                descriptor = os.open(path, _NEW, 0o666)
                break
            except FileNotFoundError:
                # Who deletes the last object of a folder removes the folder, maybe just now, but not again and again.
                if turn == _TRIES:
                    raise
                folder = Path(path).parent
                folder.mkdir(parents=True, exist_ok=True)
                self._durable_folders.discard(str(folder))
        try:
            _require_readable(descriptor, path)
            left = memoryview(data).cast("B")
            while left:
                left = left[os.write(descriptor, left) :]
        except BaseException:
            os.close(descriptor)
            Path(path).unlink(missing_ok=True)
            raise
        return descriptor

    def _remove_if_empty(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            self._durable_folders.discard(str(folder))
            folder = folder.parent

    # Durability.

    def _sync_names(self, names: Iterable[str], files: Sequence[tuple[str, int]] = ()) -> None:
        """Make names durable: those of the objects and those of all folders down to them; and open files with them."""
        if not self._is_durable:
            return
        holding = dict.fromkeys(f"{self.address}/{name}".rpartition("/")[0] for name in names)
        # With a file the disk mostly takes its folder, too, which costs little then: one thread for both.
        folders = [[(folder, None)] for folder in self._folders(holding)]
        pairs = itertools.zip_longest([[file] for file in files], folders)
        self.for_all(self._sync, [[*(file or ()), *(folder or ())] for file, folder in pairs])
        self._durable_folders.update(holding)

    def _folders(self, holding: Iterable[str]) -> Iterable[str]:
        """Those folders, and the ones above that may be new."""
        found = dict.fromkeys(holding)
        for folder in found.keys() - self._durable_folders:
            above = Path(folder).parents
            found.update(dict.fromkeys(str(each) for each in above if self.root in (each, *each.parents)))
            # The root may be new, too.
            found[str(self.root.parent)] = None
        return found

    @staticmethod
    def _sync(places: Iterable[tuple[str, int | None]]) -> None:
        """Wait for open files, with their descriptors, and folders, one after the other."""
        for path, descriptor in places:
            with naming(path):
                if descriptor is None:
                    _sync_folder(path)
                else:
                    os.fsync(descriptor)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no fsync for folders; they keep names by themselves.
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _require_readable(descriptor: int, path: str) -> None:
    """What nobody can read would be counted on and found missing, maybe in weeks.

    Raises:
        PermissionError: the umask of this process takes the right to read from new files.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if not mode & stat.S_IRUSR:
        raise PermissionError(
            errno.EACCES,
            f"New files get the mode {mode:#05o}, so their owner may not read them. Maybe something in this process has set its umask",
            path,
        )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        if entry.is_dir():
            os.stat(f"{entry.path}/{CONTENT}")  # noqa: PTH116
    except FileNotFoundError:
        return True
    except OSError:
        # A link that leads round in a circle, or to where we may not look.
        return False
    return False


def _error(number: int, path: str | Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
