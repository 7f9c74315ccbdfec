"""Arrow files as Spark data sources, both ways: rows into a shuffle, topics and results as DataFrames. No pandas.

Spark loads these classes in worker processes; what a file means is known in `topics` and `results`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from task_assignor.runtime.storage import (
    Seal,
    Storage,
    as_document,
    check_size,
    open_arrow,
    open_document,
    storage_at,
)
from task_assignor.spark.shuffle import Shuffle, Shuffled

BATCH_ROWS: Final = 100_000
"""Rows handed to Spark at a time when reading."""
_UNSIGNED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
}


def encode_schema(schema: pa.Schema) -> str:
    """An Arrow schema as text, for an option of a data source."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """What `encode_schema` made."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class ArrowShuffle(DataSource):
    """Takes the rows of `write_topic` in. Option: `shuffle`, see `encode_shuffle`."""

    @classmethod
    def name(cls) -> str:
        """The name to use as format."""
        return "task-assignor-shuffle"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 (Spark's signature)
        """The writer of one job."""
        root, folder, key, partitions, encoded = json.loads(self.options["shuffle"])
        return _ShuffleWriter(Shuffle(root, folder, tuple(key), partitions, decode_schema(encoded)))


def encode_shuffle(shuffle: Shuffle) -> str:
    """A shuffle as text, for the option of `ArrowShuffle`."""
    return json.dumps([shuffle.root, shuffle.folder, shuffle.key, shuffle.partitions, encode_schema(shuffle.schema)])


@attrs.define
class _Written(WriterCommitMessage):
    spark_partition: int
    written: Shuffled


class _ShuffleWriter(DataSourceArrowWriter):
    def __init__(self, shuffle: Shuffle) -> None:
        self.shuffle = shuffle

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one Spark task."""
        context = TaskContext.get()
        assert context is not None
        written = self.shuffle.write(f"{context.partitionId():06d}-{context.taskAttemptId()}", iterator)
        return _Written(context.partitionId(), written)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the names of the files that count, in the order of the rows in the DataFrame."""
        written = sorted((m for m in messages if isinstance(m, _Written)), key=lambda m: m.spark_partition)
        document = {"files": [attrs.astuple(m.written) for m in written]}
        self.shuffle.storage.put(_manifest(self.shuffle), as_document(document))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: the driver removes the folder."""


def read_manifest(shuffle: Shuffle) -> list[Shuffled]:
    """What the Spark tasks of a finished job have written."""
    entries = open_document(shuffle.storage, _manifest(shuffle))["files"]
    return [Shuffled(file, _tuples(rows), _tuples(ends)) for file, rows, ends in entries]


def _manifest(shuffle: Shuffle) -> str:
    return f"{shuffle.folder}/shuffle.json"


def _tuples(lists: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, lists))


@attrs.frozen
class SealedFile:
    """An Arrow file to read.

    Args:
        root: folder of the topics or of the run, a path or a URL.
        name: its name in there.
        what: what it is, for messages: "topic" or "output".
        topic: name of the topic or output.
        partition: its partition.
        base: offset (or batch) of its first row.
        seal: its rows, bytes and checksum.
    """

    root: str
    name: str
    what: str
    topic: str
    partition: int
    base: int
    seal: Seal

    @property
    def _storage(self) -> Storage:
        return storage_at("folder", self.root)

    def check(self) -> None:
        """Make sure that it is there and as long as it was.

        An error in a Spark task would be tried again and again before anybody sees it.

        Raises:
            CorruptLogException: it is not.
        """
        check_size(self._storage, self.name, self.seal, self.what, self.topic, self.partition, self.base)

    def open(self) -> pa.Table:
        """Its rows.

        Raises:
            CorruptLogException: it is missing, or is not the file that was sealed.
        """
        return open_arrow(self._storage, self.name, self.seal, self.what, self.topic, self.partition, self.base)

    def to_json(self) -> list[Any]:
        """For an option of a data source."""
        return [self.root, self.name, self.what, self.topic, self.partition, self.base, *self.seal.to_json()]

    @classmethod
    def from_json(cls, document: list[Any]) -> SealedFile:
        """What `to_json` wrote."""
        root, name, what, topic, partition, base, *seal = document
        return cls(root, name, what, topic, partition, base, Seal(*seal))


class ArrowFiles(DataSource):
    """Reads Arrow files. Options: `files` (JSON, a list of lists: one list per Spark partition), `schema`, `offsets`."""

    @classmethod
    def name(cls) -> str:
        """The name to use as format."""
        return "task-assignor-files"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 (Spark's signature)
        """The reader of one job."""
        groups = [[SealedFile.from_json(entry) for entry in group] for group in json.loads(self.options["files"])]
        return _FilesReader(groups, self.options["schema"], self.options["offsets"] == "true")


class _FilesReader(DataSourceReader):
    def __init__(self, groups: list[list[SealedFile]], schema: str, offsets: bool) -> None:
        self.groups = groups
        self.schema = schema
        self.offsets = offsets

    def partitions(self) -> Sequence[InputPartition]:
        """One per group of files."""
        return [InputPartition(group) for group in self.groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group of files."""
        schema = decode_schema(self.schema)
        for piece in partition.value:
            table = piece.open()
            if self.offsets:
                offsets = np.arange(piece.base, piece.base + table.num_rows, dtype=np.int64)
                numbers = np.full(table.num_rows, piece.partition, dtype=np.int32)
                table = table.append_column("partition", pa.array(numbers)).append_column("offset", pa.array(offsets))
            yield from table.select(schema.names).cast(schema).to_batches(max_chunksize=BATCH_ROWS)


def frame_of_files(
    spark: SparkSession, groups: Sequence[Sequence[SealedFile]], schema: pa.Schema, *, with_offsets: bool
) -> DataFrame:
    """The rows of Arrow files as a DataFrame.

    Args:
        spark: the session.
        groups: what each Spark partition reads.
        schema: columns of the files.
        with_offsets: add the columns `partition` (int) and `offset` (long).
    """
    fields = [pa.field(field.name, _readable(field.type), field.nullable) for field in schema]
    if with_offsets:
        fields += [pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False)]
    spark_schema = from_arrow_schema(pa.schema(fields))
    entries = [[file.to_json() for file in group] for group in groups]
    spark.dataSource.register(ArrowFiles)
    return (
        spark.read.format(ArrowFiles.name())
        .schema(spark_schema)
        .option("files", json.dumps(entries))
        .option("schema", encode_schema(to_arrow_schema(spark_schema, timezone="UTC")))
        .option("offsets", str(with_offsets).lower())
        .load()
    )


def _readable(data_type: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has: it knows no unsigned numbers, dictionaries and views."""
    if pa.types.is_dictionary(data_type):
        return _readable(data_type.value_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return pa.list_(_readable(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _readable(field.type), field.nullable) for field in data_type])
    if data_type == pa.string_view():
        return pa.string()
    if data_type == pa.binary_view():
        return pa.binary()
    return _UNSIGNED.get(data_type, data_type)
