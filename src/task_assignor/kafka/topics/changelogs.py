"""Changes of a store as records of its changelog topic, which Kafka may compact, and back. Nothing connects here.

Of a key-value store a record is a key with its row, or without a value: it was deleted. Of a window store it is a piece of
the rows that came, with the stream time and expiry, as an Arrow stream; its key is a running number.

Where an application begins anew, since nobody knows any more what it had processed, a record says so: what is before it does not
count. It has a key of its own, so that compaction leaves it there.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.arrow.frames import fitted, no_rows
from task_assignor.runtime.stores.encoding import KeyEncoding, ValueEncoding
from task_assignor.runtime.stores.key_value import DELETED, KeyValueStoreSpec
from task_assignor.runtime.stores.window import WindowStoreSpec
from task_assignor.runtime.topology.sub_topology import StoreSpec

Record = tuple[bytes, bytes | None]
BEGINS_ANEW: Final[Record] = (b"\xfftask-assignor begins anew\xff", b"")
"""No text is such a key, and no row of several key columns."""
_MOST_BYTES: Final = 800_000
"""More has a record of a single row alone, however much the topic takes; of rows that are all of a size it has half as much."""
_TAKEN: Final = 1 << 20
"""So much takes a topic, if nobody has said anything else (`max.message.bytes`)."""
_BESIDE: Final = 200
"""So many bytes has a record beside its value, at most; and a twentieth of it more where it cannot be compressed."""
_NUMBER: Final = struct.Struct(">q")


def of_this_life(records: Sequence[Record]) -> Sequence[Record]:
    """The records without those before which the application has begun anew; the same sequence, if it has not."""
    first = max((place for place, record in enumerate(records, 1) if record == BEGINS_ANEW), default=0)
    return records[first:] if first else records


class ChangelogCodec(Protocol):
    """Changes of one store as records."""

    def encode(self, changes: pa.Table, first: int) -> list[Record]:
        """The records of a batch.

        Args:
            changes: what the store has drained.
            first: greater than that of any batch before by at least the number of its records.
        """

    def decode(self, records: Sequence[Record]) -> pa.Table:
        """What the records of one batch, or of several that follow each other, changed.

        Raises:
            ValueError, pyarrow.ArrowException: they are not such records.
        """


def changelog_codec(store: StoreSpec, taken: Callable[[], int] = lambda: _TAKEN) -> ChangelogCodec:
    """How the changes of a store are kept in its changelog topic.

    Args:
        store: the store.
        taken: says how many bytes the topic takes for a record, when one is to be made of many rows.
    """
    return _KeyValueChanges(store) if isinstance(store, KeyValueStoreSpec) else _WindowChanges(store, taken)


class _KeyValueChanges:
    def __init__(self, store: KeyValueStoreSpec) -> None:
        self._schema = pa.schema([*store.key, *store.value, pa.field(DELETED, pa.bool_())])
        self._names = (store.key.names, store.value.names)
        self._keys = KeyEncoding(store.key)
        self._values = ValueEncoding(store.value)

    def encode(self, changes: pa.Table, first: int) -> list[Record]:  # noqa: ARG002 (part of the protocol)
        keys, values = ([changes.column(name) for name in names] for names in self._names)
        deleted = changes.column(DELETED).to_pylist()
        rows = self._values.encode(values, changes.num_rows).to_pylist()
        return [
            (key, None if gone else row)
            for key, row, gone in zip(self._keys.encode(keys).to_pylist(), rows, deleted, strict=True)
        ]

    def decode(self, records: Sequence[Record]) -> pa.Table:
        last: dict[bytes, bytes | None] = {}
        for key, value in records:
            last.pop(key, None)
            last[key] = value
        if not last:
            return no_rows(self._schema)
        keys = self._keys.decode(list(last))
        values = self._values.decode([self._values.nothing if value is None else value for value in last.values()])
        deleted = np.fromiter((value is None for value in last.values()), np.bool_, len(last))
        return pa.table([*keys, *values, pa.array(deleted)], schema=self._schema)


class _WindowChanges:
    def __init__(self, store: WindowStoreSpec, taken: Callable[[], int]) -> None:
        self._time = store.time
        self._taken = taken

    def encode(self, changes: pa.Table, first: int) -> list[Record]:
        rows, taken = changes.num_rows, self._taken()
        most = min(_MOST_BYTES, taken - taken // 20 - _BESIDE)
        size = max(1, min(rows, rows * most // 2 // max(changes.nbytes, 1)))
        pieces = [changes.slice(start, size) for start in range(0, rows, size)] or [changes]
        streams = itertools.chain.from_iterable(_as_streams(piece, most) for piece in pieces)
        return [(_NUMBER.pack(first + number), stream) for number, stream in enumerate(streams)]

    def decode(self, records: Sequence[Record]) -> pa.Table:
        pieces = [pa.ipc.open_stream(value).read_all() for _, value in records if value is not None]
        if not pieces:
            return pa.schema([(self._time, pa.int64())]).empty_table()
        # It may have gained columns: the newest piece that has most of them has all.
        widest = max((piece.schema for piece in reversed(pieces)), key=len).remove_metadata()
        filled = [fitted(piece, widest) for piece in pieces if piece.num_rows]
        rows = pa.concat_tables(filled) if filled else pieces[-1]
        # Stream time and expiry are those after the last.
        return rows.replace_schema_metadata(pieces[-1].schema.metadata)


def _as_streams(table: pa.Table, most: int) -> list[bytes]:
    """One, or more where its rows are much larger than others."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(in_one_piece(table))
    found: bytes = sink.getvalue().to_pybytes()
    middle = table.num_rows // 2
    if len(found) <= most or not middle:
        return [found]
    return _as_streams(table.slice(0, middle), most) + _as_streams(table.slice(middle), most)
