"""Topics written from and read as Spark DataFrames. How the files are laid out belongs to `runtime`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from task_assignor.runtime import Segment, Topic, TopicBuilder, TopicException, TopicSpec
from task_assignor.runtime.arrow.frames import taken
from task_assignor.runtime.arrow.times import order_of_times
from task_assignor.runtime.topics.topic import topics_storage
from task_assignor.sdk.checks import check_flag
from task_assignor.sdk.text import shown
from task_assignor.spark.columns import arrow_schema
from task_assignor.spark.jobs import fail_fast, made_active
from task_assignor.spark.parquet import parquet_row_groups, shuffle_row_groups
from task_assignor.spark.session import require_classic
from task_assignor.spark.shipping import ship_package
from task_assignor.spark.shuffle import Shuffle, Shuffled
from task_assignor.spark.shuffle_source import ArrowShuffle, encode_shuffle, read_manifest
from task_assignor.spark.source import frame_of, rows_of_topic


def write_topic(
    frame: DataFrame,
    root: str | Path,
    name: str,
    *,
    key: Sequence[str],
    partitions: int,
    timestamp: str | None = None,
    racks: Sequence[Iterable[str] | None] | None = None,
    sort_by_timestamp: bool = False,
    segment_rows: int = 1_000_000,
) -> Topic:
    """Write a new topic from a DataFrame, partitioned by Kafka's murmur2 of the key.

    The rows leave the JVM once and are sorted into partitions in Python (a shuffle by Spark would carry them back and
    forth); rows that just lie in Parquet files are read there in the first place. The same DataFrame gives the same files. The topic appears whole or not at all, whatever Spark tasks fail.

    Args:
        frame: the rows; their order within a partition is kept unless they are sorted.
        root: folder of the topics, a path or a URL; every executor must reach it.
        name: name of the topic.
        key: key columns; equal keys share a partition.
        partitions: number of partitions, at least 1.
        timestamp: column with the time of the event (a timestamp, or an integer of milliseconds), or None.
        racks: racks that hold a replica, per partition; None: unknown.
        sort_by_timestamp: sort each partition by the timestamp (rows with equal times keep their order). A partition
            must then fit into the memory of one Python worker.
        segment_rows: at most so many rows per file.

    Raises:
        TopicException: a topic of this name exists, the description does not fit the rows, or `frame` is no DataFrame of Spark.
        SparkJobError: a Spark job failed; nothing is left of the topic.
    """
    if not isinstance(frame, DataFrame):
        raise TopicException(
            f"The rows of a topic written by Spark must be a pyspark.sql.DataFrame, not {shown(frame)}. The order is "
            "write_topic(frame, root, name, ...); other rows are for task_assignor.runtime.write_topic(root, name, rows, ...)."
        )
    if type(segment_rows) is not int or segment_rows < 1:
        raise TopicException(f"The segment_rows ({segment_rows!r}) must be an int of at least 1.")
    check_flag("sort_by_timestamp", sort_by_timestamp, error=TopicException)
    if sort_by_timestamp and timestamp is None:
        raise TopicException(
            f"Topic {name!r} cannot be sorted by timestamp: it has no timestamp column. Maybe add timestamp=..."
        )
    spark = frame.sparkSession
    require_classic(spark)
    ship_package(spark)
    spec = TopicSpec(name, partitions, _arrow_schema(name, frame), key, timestamp, racks)
    builder = TopicBuilder.create(root, spec)
    shuffle = Shuffle(builder.root, builder.scratch, spec.key, partitions, spec.schema)
    try:
        with fail_fast(spark, f"Writing topic {name}"):
            manifest = _shuffle(frame, shuffle)

            def gather(numbers: Iterable[int]) -> Iterable[list[Segment]]:
                for number in numbers:
                    yield _write_partition(builder, shuffle, manifest, number, sort_by_timestamp, segment_rows)

            # A Python task costs more than what it has to do here: one wave of them.
            context = spark.sparkContext
            tasks = min(partitions, context.defaultParallelism)
            written = context.parallelize(range(partitions), tasks).mapPartitions(gather).collect()
            expected = [
                sum(chunk[number].rows for one in manifest for chunk in one.chunks) for number in range(partitions)
            ]
            rows = [sum(segment.seal.rows for segment in segments) for segments in written]
            if rows != expected:
                raise TopicException(f"Topic {name}: {expected} rows came in, {rows} were written. Write it again.")
    except BaseException:
        builder.abort()
        raise
    finally:
        with suppress(OSError):
            shuffle.remove()
    return builder.commit(segment for segments in written for segment in segments)


def _arrow_schema(topic: str, frame: DataFrame) -> pa.Schema:
    fields: list[pa.Field] = []
    for field in frame.schema:
        try:
            fields += arrow_schema(StructType([field]))
        except (PySparkTypeError, ValueError) as error:
            # Of an empty array that has no nulls Arrow says that its type cannot be so.
            raise TopicException(
                f"Topic {topic!r} cannot have the column {field.name!r}: Arrow, in which topics are written, does not have Spark's type "
                f"{field.dataType.simpleString()}. Maybe cast it to another type."
            ) from error
    return pa.schema(fields)


def _shuffle(frame: DataFrame, shuffle: Shuffle) -> Sequence[Shuffled]:
    groups = parquet_row_groups(frame, shuffle.schema)
    if groups is not None:
        return shuffle_row_groups(frame, groups, shuffle)
    with made_active(frame.sparkSession):
        frame.sparkSession.dataSource.register(ArrowShuffle)
        frame.write.format(ArrowShuffle.name()).mode("append").option("shuffle", encode_shuffle(shuffle)).save()
    return read_manifest(shuffle)


def _write_partition(
    builder: TopicBuilder,
    shuffle: Shuffle,
    manifest: Sequence[Shuffled],
    partition: int,
    sort: bool,
    segment_rows: int,
) -> list[Segment]:
    spec = builder.spec
    batches = shuffle.read(manifest, partition)
    if not sort or spec.timestamp is None:
        return _write_in_order(builder, partition, batches, segment_rows)
    table = pa.Table.from_batches(batches, spec.schema)
    order = order_of_times(table.column(spec.timestamp)).argsort(kind="stable")
    table = taken(table, pa.array(order))
    return _write_in_order(builder, partition, table.to_batches(), segment_rows)


def _write_in_order(
    builder: TopicBuilder, partition: int, batches: Iterable[pa.RecordBatch], segment_rows: int
) -> list[Segment]:
    segments: list[Segment] = []
    pending: list[pa.RecordBatch] = []
    rows = 0

    def write(table: pa.Table) -> None:
        segments.append(builder.write(partition, segments[-1].end if segments else 0, table))

    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        while rows >= segment_rows:
            table = pa.Table.from_batches(pending)
            write(table.slice(0, segment_rows))
            pending, rows = table.slice(segment_rows).to_batches(), rows - segment_rows
    if rows:
        write(pa.Table.from_batches(pending))
    return segments


def read_topic(spark: SparkSession, root: str | Path, name: str, *, with_offsets: bool = False) -> DataFrame:
    """The rows that a topic has now, as a DataFrame with one Spark partition per topic partition.

    Args:
        spark: the session.
        root: folder of the topics, a path or a URL; every executor must reach it.
        name: name of the topic.
        with_offsets: add the columns `partition` (int) and `offset` (long).

    Raises:
        TopicException: there is no such topic.
        CorruptLogException: a file of it cannot be read, or offsets are missing.
    """
    require_classic(spark)
    check_flag("with_offsets", with_offsets, error=TopicException)
    options = {"topics_root": topics_storage(root).address, "topic": name}
    return frame_of(spark, rows_of_topic(root, name), options, with_offsets=with_offsets)
