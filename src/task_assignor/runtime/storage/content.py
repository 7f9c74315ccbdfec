"""What is in objects, and whether it is still what was written: Arrow files with seals, JSON documents with checksums.

Every Arrow file has a `Seal` - rows, bytes, checksum - that is kept elsewhere, in a document that somebody commits; reading
it without is not possible. JSON documents carry their checksum in themselves. So an object that is missing, cut off,
exchanged or has one wrong bit is an error that names it, never other rows.

The checksum is CRC-32 (zlib's): it finds every error of up to 32 bits in a row and misses one of 4 billion others. It
guards against broken disks and copies, not against people who want to deceive.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from task_assignor.runtime.arrow.dictionaries import combined, reencoded, retyped
from task_assignor.runtime.arrow.frames import no_rows
from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.encoding import decode, encode
from task_assignor.runtime.machines.records import Seal
from task_assignor.runtime.storage.base import Data, Storage
from task_assignor.runtime.storage.disk import advice_to_read

T = TypeVar("T")

_ENVELOPE: Final = re.compile(rb'\{"checksum":"([0-9a-f]{8})",')
PARQUET: Final = ".parquet"
"""How the names of Parquet files end; all others are Arrow's."""
_CHUNK_BYTES: Final = 32 << 20
"""Row groups and record batches of files that are made of many."""
_ADVICE: Final = "or run the application again with a new run_dir, which computes everything anew."


def checksum_of(data: Data) -> str:
    """CRC-32 of some bytes, 8 hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"


def seal_of(rows: int, data: pa.Buffer) -> Seal:
    """The seal of some bytes that hold so many rows."""
    return Seal(rows, data.size, checksum_of(data))


def as_arrow(table: pa.Table, compression: str | None = None) -> tuple[pa.Buffer, Seal]:
    """A table as an Arrow IPC file in memory, and its seal."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    return data, seal_of(int(table.num_rows), data)


def as_parquet(table: pa.Table, compression: str | None = None) -> tuple[pa.Buffer, Seal]:
    """A table as a Parquet file in memory, and its seal."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=compression or "snappy")
    data = sink.getvalue()
    return data, seal_of(int(table.num_rows), data)


def not_in_parquet(schema: pa.Schema) -> str | None:
    """The first column that Parquet does not take or does not give back, and why; None: it has all of them."""
    for field in schema:
        alone = pa.schema([field])
        try:
            pq.read_table(pa.BufferReader(as_parquet(no_rows(alone))[0])).cast(alone)
            if pa.types.is_nested(field.type):
                retyped(field.type, _is_given_back)
        except (pa.ArrowException, OSError) as error:
            # Of what goes wrong in Parquet itself Arrow says that it was the disk.
            return f"{field.name!r} of type {field.type} ({error})"
    return None


def _is_given_back(kind: pa.DataType) -> pa.DataType:
    """The type of what is in a column. Dictionaries in it come back as their values, and Arrow makes them again of texts only.

    Raises:
        pyarrow.ArrowException: it does not come back.
    """
    return pa.nulls(1, kind.value_type).cast(kind).type if pa.types.is_dictionary(kind) else kind


def as_one_file(
    tables: Iterable[pa.Table], schema: pa.Schema, compression: str | None = None, *, is_parquet: bool
) -> tuple[pa.Buffer, Seal]:
    """Many tables of one schema as one file in memory, and its seal; they are held in memory for a moment each.

    Raises:
        pyarrow.ArrowException: they cannot be in one file.
    """
    sink = pa.BufferOutputStream()
    if is_parquet:
        writer = pq.ParquetWriter(sink, schema, compression=compression or "snappy")
    else:
        options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
        writer = pa.ipc.new_file(sink, schema, options=options)
    rows = 0
    with writer:
        # A file of Arrow has one dictionary for each column, so it must be known before anything is written.
        has_dictionaries = not is_parquet and "dictionary<" in str(schema)
        for table in _in_chunks(tables, None if has_dictionaries else _CHUNK_BYTES):
            writer.write_table(table)
            rows += table.num_rows
    data = sink.getvalue()
    return data, seal_of(rows, data)


def _in_chunks(tables: Iterable[pa.Table], least: int | None) -> Iterator[pa.Table]:
    """The same rows in tables of at least so many bytes, but for the last; None: in one."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if least is not None and size >= least:
            yield combined(pa.concat_tables(held))
            held, size = [], 0
    if held:
        whole = pa.concat_tables(held)
        yield reencoded(whole) if least is None else combined(whole)


def open_arrow(
    storage: Storage,
    name: str,
    seal: Seal,
    what: str,
    topic: str,
    partition: int,
    offset: int,
    columns: Collection[str] | None = None,
) -> pa.Table:
    """A table over an Arrow IPC file (or of a Parquet file: `.parquet`), if the file is still the one that was sealed.

    Args:
        storage: where it is.
        name: its name there.
        seal: what it was when it was written.
        what: what the file is, for the message: "topic", "changelog", "snapshot", ...
        topic: name of the topic (or store) it belongs to.
        partition: its partition.
        offset: its first offset (or batch).
        columns: those that are wanted, as far as the file has them: of Parquet the others are not decoded, and are not there; None: all.

    Raises:
        CorruptLogException: the file is missing, or is not the file that was sealed.
    """
    try:
        data = open_sealed(storage, name, seal)
        if name.endswith(PARQUET):
            wanted = None
            if columns is not None:
                wanted = [name for name in pq.read_schema(pa.BufferReader(data)).names if name in columns]
            return pq.read_table(pa.BufferReader(data), columns=wanted)
        with pa.ipc.open_file(data) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(storage.locate(name), what, topic, partition, offset, error) from error


def open_sealed(storage: Storage, name: str, seal: Seal) -> pa.Buffer:
    """The bytes of an object, if they are those that were sealed.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what was sealed.
    """
    data = storage.open(name)
    check_sealed(data, seal)
    return data


def check_sealed(data: pa.Buffer, seal: Seal) -> None:
    """Raise ValueError if some bytes are not those that were sealed."""
    _check_size(data.size, seal)
    found = checksum_of(data)
    if found != seal.checksum:
        raise ValueError(f"its checksum is {found}, but {seal.checksum} was written")


def check_size(storage: Storage, name: str, seal: Seal, what: str, topic: str, partition: int, offset: int) -> None:
    """Make sure that a file is there and as long as it was; the arguments are those of `open_arrow`.

    Raises:
        CorruptLogException: it is not.
    """
    try:
        _check_size(storage.size(name), seal)
    except (OSError, ValueError) as error:
        raise corrupt(storage.locate(name), what, topic, partition, offset, error) from error


def _check_size(size: int, seal: Seal) -> None:
    if size != seal.size:
        raise ValueError(f"it has {size} bytes, but {seal.size} were written")


def corrupt(place: str, what: str, topic: str, partition: int, offset: int, error: Exception) -> CorruptLogException:
    """The error for a file that cannot be read; `place` is its path or URL, the others are as for `open_arrow`."""
    is_missing = isinstance(error, FileNotFoundError)
    reason = "it is missing" if is_missing else str(error) or type(error).__name__
    why = "Maybe it was cut off, changed or deleted: restore"
    if advice := advice_to_read(error, ""):
        why = f"{advice} Else restore"
    if is_missing and what == "output":
        why = (
            "Maybe it was listed more than output_retention_ms ago, as in a DataFrame that is collected again, and its rows are in a "
            "larger file by now: read the output anew. Else restore"
        )
    anew = _ADVICE if what != "topic" else "or write the topic again."
    return CorruptLogException(
        f"The {what} file of {topic}, partition {partition}, offset {offset} cannot be read: {place} ({reason}). "
        f"{why} the file from a copy, {anew}",
        topic,
        partition,
        offset,
        place,
    )


# Documents.


class DamagedDocumentError(ValueError):
    """A JSON document is not what was written.

    Args:
        message: what is wrong with it.
        is_torn: its end is missing, as after a power failure while it was being written.
    """

    def __init__(self, message: str, *, is_torn: bool) -> None:
        super().__init__(message)
        self.is_torn = is_torn


def as_document(document: object) -> bytes:
    """A value that is an object in JSON (not an empty one), with its checksum."""
    body = encode(document)[1:] + b"\n"
    return b'{"checksum":"%s",%s' % (checksum_of(body).encode(), body)


def open_document(storage: Storage, name: str, kind: type[T]) -> T:
    """What `as_document` made of a value of some type.

    Raises:
        OSError: it cannot be read.
        ValueError: it was cut off or changed (`DamagedDocumentError`), or is something else.
    """
    return read_document(storage.open(name).to_pybytes(), kind)


def read_document(raw: bytes, kind: type[T]) -> T:
    """The same, of bytes that were read."""
    body = _body(raw)
    if body is not None:
        return decode(b"{" + body, kind)
    is_torn = _is_torn(raw)
    has_checksum = _ENVELOPE.match(raw) is not None
    problem = (
        "its end is missing" if is_torn else "its checksum is wrong" if has_checksum else "its checksum is missing"
    )
    raise DamagedDocumentError(problem, is_torn=is_torn)


def _body(raw: bytes) -> bytes | None:
    """What a document has after its checksum; None: it is not what was written."""
    found = _ENVELOPE.match(raw)
    body = raw[found.end() :] if found else b""
    return body if found and checksum_of(body).encode() == found[1] else None


def _is_torn(raw: bytes) -> bool:
    """Whether the end of a document is missing, or blocks of it; a flipped bit is something else, wherever it is."""
    if raw.endswith(b"}\n"):
        # A document has no zero bytes; a file system that lost power gives them for what it had not written yet.
        return raw.count(b"\0") > 1
    return raw.endswith(b"\0") or _body(raw[:-2] + b"}\n") is None
