"""Files on disk: written whole or not at all, made durable, and checked when they are read; no meaning of their own.

Every Arrow file has a `Seal` - rows, bytes, checksum - that is kept elsewhere, in a file that somebody commits; reading
it without is not possible. JSON documents carry their checksum in themselves. So a file that is missing, cut off,
exchanged or has one wrong bit is an error that names it, never other rows.

The checksum is CRC-32 (zlib's): it finds every error of up to 32 bits in a row and misses one of 4 billion others. It
guards against broken disks and copies, not against people who want to deceive.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.storage import DamagedDocumentError, Seal
from task_assignor.sdk.text import is_url

_ENVELOPE: Final = re.compile(rb'\{"checksum":"([0-9a-f]{8})",')
_ADVICE: Final = "or run the application again with a new run_dir, which computes everything anew."
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
WRITE_BUFFER: Final = 1 << 20
"""Bytes that are gathered before they are written: Arrow writes many small pieces."""
SYNC_THREADS: Final = 32
"""Files synced at the same time. One flush of the disk serves all that wait for one."""


def local_path(what: str, path: str | Path) -> Path:
    """The path, if it is one of a file system.

    Args:
        what: what it is for, for the message.
        path: what the user gave.

    Raises:
        ValueError: it is a URL.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"The {what} ({path!r}) must be the path of a folder.")
    if is_url(text):
        scheme = text.partition(":")[0]
        advice = (
            f"Maybe {'/' + text.partition(':')[2].lstrip('/')!r}."
            if scheme.lower() == "file"
            else "Maybe mount the storage and give the path of the mount."
        )
        raise ValueError(
            f"The {what} ({text!r}) must be the path of a folder, not a URL: {scheme}: is not read. {advice}"
        )
    return Path(text)


def checksum_of(data: pa.Buffer | bytes) -> str:
    """CRC-32 of some bytes, 8 hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")


class _Sink(io.RawIOBase):
    """A file that is written from its beginning to its end, and the checksum of what was written."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.size = 0
        self.checksum = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any, /) -> int:
        left = memoryview(data)
        size = left.nbytes
        self.checksum = zlib.crc32(left, self.checksum)
        self.size += size
        while left:
            left = left[os.write(self._descriptor, left) :]
        return size


def write_arrow(path: Path, table: pa.Table, compression: str | None = None) -> Seal:
    """Write a table as an Arrow IPC file under a temporary name, then rename it. Gives its seal; it is not synced yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    try:
        with temporary.open("wb", buffering=0) as file:
            sink = _Sink(file.fileno())
            with (
                pa.BufferedOutputStream(pa.PythonFile(sink, "w"), WRITE_BUFFER) as buffered,
                pa.ipc.new_file(buffered, table.schema, options=options) as writer,
            ):
                writer.write_table(table)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Seal(int(table.num_rows), sink.size, f"{sink.checksum:08x}")


def write_json(path: Path, document: dict[str, Any], *, exclusive: bool = False, is_durable: bool = True) -> None:
    """Write a JSON document with its checksum under a temporary name, then give it its own.

    Args:
        path: where it goes.
        document: what to write; not empty.
        exclusive: fail if the name is taken, instead of replacing it.
        is_durable: come back when a power failure cannot take it away any more.

    Raises:
        FileExistsError: `exclusive`, and the name is taken.
    """
    body = (json.dumps(document, separators=(",", ":"))[1:] + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            file.write(b'{"checksum":"%s",%s' % (checksum_of(body).encode(), body))
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        if exclusive:
            # A hard link is atomic and, unlike a rename, does not replace what is there.
            os.link(temporary, path)
        else:
            temporary.replace(path)
        if is_durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The document that `write_json` wrote.

    Raises:
        OSError: the file cannot be read.
        DamagedDocumentError: it was cut off or changed.
    """
    raw = path.read_bytes()
    found = _ENVELOPE.match(raw)
    if found and checksum_of(raw[found.end() :]).encode() == found[1]:
        document: dict[str, Any] = json.loads(b"{" + raw[found.end() :])
        return document
    # A document has no zero bytes; a file system that lost power gives them for what it had not written yet.
    is_torn = not raw.endswith(b"}\n") or b"\0" in raw
    problem = "its end is missing" if is_torn else "its checksum is missing" if not found else "its checksum is wrong"
    raise DamagedDocumentError(problem, is_torn=is_torn)


def open_arrow(path: Path, seal: Seal, what: str, topic: str, partition: int, offset: int) -> pa.Table:
    """A table over the memory map of an Arrow IPC file, if the file is still the one that was sealed.

    Args:
        path: the file.
        seal: what it was when it was written.
        what: what the file is, for the message: "topic", "changelog", "snapshot", ...
        topic: name of the topic (or store) it belongs to.
        partition: its partition.
        offset: its first offset (or batch).

    Raises:
        CorruptLogException: the file is missing, or is not the file that was sealed.
    """
    try:
        check_size(path, seal, what, topic, partition, offset)
        with pa.memory_map(str(path), "rb") as source:
            data = source.read_buffer()
        found = checksum_of(data)
        if (data.size, found) != (seal.size, seal.checksum):
            raise ValueError(f"its checksum is {found}, but {seal.checksum} was written")
        with pa.ipc.open_file(data) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(path, what, topic, partition, offset, error) from error


def check_size(path: Path, seal: Seal, what: str, topic: str, partition: int, offset: int) -> None:
    """Make sure that a file is there and as long as it was; the arguments are those of `open_arrow`.

    Raises:
        CorruptLogException: it is not.
    """
    try:
        size = path.stat().st_size
        if size != seal.size:
            raise ValueError(f"it has {size} bytes, but {seal.size} were written")
    except (OSError, ValueError) as error:
        raise corrupt(path, what, topic, partition, offset, error) from error


def corrupt(path: Path, what: str, topic: str, partition: int, offset: int, error: Exception) -> CorruptLogException:
    """The error for a file that cannot be read; the arguments are those of `open_arrow`."""
    reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__
    advice = _ADVICE if what != "topic" else "or write the topic again."
    return CorruptLogException(
        f"The {what} file of {topic}, partition {partition}, offset {offset} cannot be read: {path} ({reason}). "
        f"Maybe it was cut off, changed or deleted: restore the file from a copy, {advice}",
        topic,
        partition,
        offset,
        str(path),
    )


# Durability.


def sync(path: Path) -> None:
    """Come back when a power failure cannot take away what the file or folder holds now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no fsync for folders; they keep names by themselves.
        if error.errno not in _NO_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


class Syncer:
    """Makes files under a folder durable, many at a time.

    Args:
        root: the folder; it is durable itself.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: set[Path] = set()
        self._pool = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")

    def sync(self, files: Iterable[Path]) -> None:
        """Come back when the files and their names are durable.

        All at the same time: nobody looks for the names before this call is over, so their order does not matter.

        Raises:
            OSError: the disk says no.
        """
        files = list(files)
        parents = {file.parent for file in files}
        # Folders above may have been made for these files; once is enough.
        above = {folder for parent in parents - self._known for folder in parent.parents if self._is_inside(folder)}
        list(self._pool.map(sync, [*files, *sorted(parents | above)]))
        self._known |= parents

    def _is_inside(self, folder: Path) -> bool:
        return folder == self._root or self._root in folder.parents

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown(wait=False)
