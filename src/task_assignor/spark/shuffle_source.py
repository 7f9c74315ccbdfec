"""Rows of a DataFrame into a shuffle, as a Spark data source without pandas; Spark loads it in worker processes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from task_assignor.runtime.machines.encoding import Value
from task_assignor.runtime.storage import (
    as_document,
    open_document,
)
from task_assignor.spark.shuffle import Shuffle, Shuffled


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
        document = Manifest(tuple(m.written for m in written))
        self.shuffle.storage.put(_manifest(self.shuffle), as_document(document))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: the driver removes the folder."""


class Manifest(Value, frozen=True):
    """What the Spark tasks of a job have written."""

    files: tuple[Shuffled, ...]


def read_manifest(shuffle: Shuffle) -> tuple[Shuffled, ...]:
    """What the Spark tasks of a finished job have written."""
    return open_document(shuffle.storage, _manifest(shuffle), Manifest).files


def _manifest(shuffle: Shuffle) -> str:
    return f"{shuffle.folder}/shuffle.json"
