"""The shuffle of `write_topic`: Arrow files of each writing Spark task, sorted by topic partition. No Spark in here.

Spark's own shuffle would carry every row into the JVM and out again. Files nobody names in the manifest were left by failed
attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime import partitions_of
from task_assignor.runtime.arrow.dictionaries import combined
from task_assignor.runtime.arrow.frames import fitted, taken
from task_assignor.runtime.machines.records import Seal
from task_assignor.runtime.storage import Storage, check_sealed, corrupt, seal_of, storage_at

CHUNK_ROWS: Final = 1_000_000
CHUNK_BYTES: Final = 256 << 20
"""Rows, or bytes of them, that a writing Spark task holds in memory before it sorts them into partitions, which takes some times as much."""


@attrs.frozen
class Shuffled:
    """What one Spark task has written.

    Args:
        file: begins the names of its files in the folder of the shuffle.
        chunks: per chunk of rows, which is a file of its own, the seal of each topic partition's part of that file.
        starts: where these parts begin in their files.
    """

    file: str
    chunks: tuple[tuple[Seal, ...], ...]
    starts: tuple[tuple[int, ...], ...]


@attrs.frozen
class Shuffle:
    """Where and how rows are sorted into topic partitions. Crosses to the Spark tasks by pickle.

    Args:
        root: folder of the topics, a path or a URL.
        folder: for the files, in the storage of the topics.
        key: key columns.
        partitions: number of topic partitions.
        schema: columns of the files.
    """

    root: str
    folder: str
    key: tuple[str, ...]
    partitions: int
    schema: pa.Schema

    @property
    def storage(self) -> Storage:
        """Where the files are. If they are lost, the topic is written again."""
        return storage_at("folder of the topics", self.root, is_durable=False)

    def write(self, name: str, batches: Iterable[pa.RecordBatch]) -> Shuffled:
        """Write the rows of one Spark task to files whose names begin so."""
        chunks: list[tuple[Seal, ...]] = []
        starts: list[tuple[int, ...]] = []
        for table in self._chunks(batches):
            order, bounds = self._order(table)
            table = combined(taken(table, pa.array(order)))
            sink = pa.BufferOutputStream()
            ends = [0]
            for low, high in pairwise(bounds):
                if high > low:
                    with pa.ipc.new_stream(sink, self.schema) as writer:
                        writer.write_table(table.slice(low, high - low))
                ends.append(sink.tell())
            data = sink.getvalue()
            self.storage.put(self._file(name, len(chunks)), data)
            parts = zip(pairwise(bounds), pairwise(ends), strict=True)
            chunks.append(tuple(seal_of(high - low, data[start:end]) for (low, high), (start, end) in parts))
            starts.append(tuple(ends[:-1]))
        return Shuffled(name, tuple(chunks), tuple(starts))

    def read(self, manifest: Sequence[Shuffled], partition: int) -> Iterator[pa.RecordBatch]:
        """The rows of one topic partition, in the order of the manifest and of the rows in each Spark task.

        Raises:
            CorruptLogException: a file is missing, or is not what was written.
        """
        for written in manifest:
            for number, seals in enumerate(written.chunks):
                if seals[partition].rows:
                    start = written.starts[number][partition]
                    yield from self._part(self._file(written.file, number), start, seals[partition], partition, number)

    def _part(self, name: str, start: int, seal: Seal, partition: int, number: int) -> list[pa.RecordBatch]:
        try:
            data = self.storage.open(name, start, start + seal.size)
            check_sealed(data, seal)
            with pa.ipc.open_stream(data) as reader:
                return list(reader)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(self.storage.locate(name), "topic", self.folder, partition, number, error) from error

    def remove(self) -> None:
        """Delete the files of all Spark tasks."""
        self.storage.delete(list(self.storage.list_below(self.folder)))

    def _file(self, name: str, chunk: int) -> str:
        return f"{self.folder}/{name}-{chunk:06d}.arrow"

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield fitted(pa.Table.from_batches(pending), self.schema)
                pending, rows, size = [], 0, 0
        if rows:
            yield fitted(pa.Table.from_batches(pending), self.schema)

    def _order(self, table: pa.Table) -> tuple[Any, list[int]]:
        """Row numbers sorted by topic partition (stable), and where each partition begins in them."""
        numbers = partitions_of(table, self.key, self.partitions)
        # NumPy sorts 16-bit numbers by radix: ten times faster here than a comparison sort.
        small = numbers.astype(np.uint16) if self.partitions <= np.iinfo(np.uint16).max else numbers
        order = np.argsort(small, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=self.partitions))])
        return order, [int(bound) for bound in bounds]
