"""Arrow files on disk: written so that they appear whole or not at all, read through memory maps; no meaning of their own."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")


def write_arrow(path: Path, table: pa.Table, compression: str | None = None) -> int:
    """Write a table as an Arrow IPC file under a temporary name, then rename it. Returns its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        size = temporary.stat().st_size
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def write_json(path: Path, document: Any, *, exclusive: bool = False) -> None:
    """Write a JSON document under a temporary name, then give it its own.

    Args:
        path: where it goes.
        document: what to write.
        exclusive: fail if the name is taken, instead of replacing it.

    Raises:
        FileExistsError: `exclusive`, and the name is taken.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        temporary.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
        if exclusive:
            # A hard link is atomic and, unlike a rename, does not replace what is there.
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def open_arrow(path: Path, what: str, topic: str, partition: int, offset: int) -> pa.Table:
    """A table over the memory map of an Arrow IPC file, checked so that reading its values is safe.

    Args:
        path: the file.
        what: what the file is, for the message: "topic", "changelog", "snapshot", ...
        topic: name of the topic (or store) it belongs to.
        partition: its partition.
        offset: its first offset (or batch).

    Raises:
        CorruptLogException: the file is missing or is not a whole Arrow file.
    """
    try:
        with pa.memory_map(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(path, what, topic, partition, offset, error) from error
    return table


def count_rows(path: Path, what: str, topic: str, partition: int, offset: int) -> int:
    """Number of rows of an Arrow IPC file, from its footer and batch headers; the arguments are those of `open_arrow`."""
    try:
        with pa.memory_map(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            return sum(int(reader.get_batch(number).num_rows) for number in range(reader.num_record_batches))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(path, what, topic, partition, offset, error) from error


def _corrupt(path: Path, what: str, topic: str, partition: int, offset: int, error: Exception) -> CorruptLogException:
    reason = "it is missing" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
    return CorruptLogException(
        f"The {what} file of {topic}, partition {partition}, offset {offset} cannot be read: {path} "
        f"({reason}). Maybe it was cut off or changed; write the {what} again or restore the file.",
        topic,
        partition,
        offset,
        str(path),
    )
