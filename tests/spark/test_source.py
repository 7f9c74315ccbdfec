"""The format `task_assignor`: topics and outputs for Spark SQL and for streams, exactly what is committed."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest
from pyspark.serializers import CPickleSerializer, SpecialLengths
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.python_streaming_source_runner import INITIAL_OFFSET_FUNC_ID

from task_assignor.runtime import (
    CorruptLogException,
    Rebalanced,
    RunResult,
    Topic,
    TopicException,
    append_topic,
    delete_records,
    read_output,
    write_topic,
)
from task_assignor.sdk import ConfigException
from task_assignor.spark import SparkSessionError, read_results, read_topic, register_source
from task_assignor.spark.source import Place, TaskAssignorSource, check_files, rows_of_output, rows_of_topic
from tests.runtime.support import Watch, application, in_order, join_topology, stream, write_streams
from tests.runtime.test_compaction import TASKS, Run

pytestmark = pytest.mark.spark


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"key": list(range(start, end)), "name": [f"n{number}" for number in range(start, end)]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run on local processes: rows of two tasks and more batches."""
    root = tmp_path_factory.mktemp("run")
    write_streams(root / "topics", rows=1_000, keys=50, partitions=2)
    return application(root, join_topology()).run()


def source(spark: SparkSession, **options: object) -> DataFrame:
    register_source(spark)
    reader = spark.read.format("task_assignor")
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def test_an_output_is_read_as_it_was_committed(spark: SparkSession, finished: RunResult) -> None:
    expected = in_order(read_output(finished.run_dir, "joined"))
    frame = source(spark, run_dir=finished.run_dir, output="joined")
    assert frame.rdd.getNumPartitions() == 2
    assert in_order(frame.toArrow()).to_pylist() == expected.to_pylist()
    assert in_order(read_results(spark, finished, "joined").toArrow()).to_pylist() == expected.to_pylist()
    # What nobody committed does not exist.
    stray = next(Path(finished.run_dir).glob("output/joined/*/*.arrow"))
    (stray.parent / f"{'9' * 12}-00000001.arrow").write_bytes(stray.read_bytes())
    assert frame.count() == expected.num_rows


def test_an_output_is_read_as_of_a_marker(spark: SparkSession, tmp_path: Path) -> None:
    rows = [stream(400, keys=20, seed=seed) for seed in (1, 2)]
    for name in ("left", "right"):
        write_topic(tmp_path / "topics", name, rows[0], partitions=2, key=["key"], timestamp="at")
    app = application(tmp_path, join_topology())
    watch = Watch()
    watch.on(Rebalanced, lambda _: app.request_marker("first"))
    app.run(watch)
    expected = in_order(read_output(tmp_path / "run", "joined")).to_pylist()
    for name in ("left", "right"):
        later = rows[1].set_column(1, "at", pc.add(rows[1].column("at"), 600_000))
        append_topic(tmp_path / "topics", name, later)
    application(tmp_path, join_topology()).run()
    assert read_output(tmp_path / "run", "joined").num_rows > len(expected)
    for frame in (
        source(spark, run_dir=tmp_path / "run", output="joined", marker="first"),
        read_results(spark, tmp_path / "run", "joined", "first"),
    ):
        assert in_order(frame.toArrow()).to_pylist() == expected


def test_a_topic_is_read_with_partitions_and_offsets_and_grows(spark: SparkSession, tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "numbers", numbers(0, 1_000), partitions=3, key=["key"], segment_rows=100)
    frame = source(spark, topics_root=tmp_path, topic="numbers", offsets=True)
    rows = frame.orderBy("partition", "offset").collect()
    assert [row.key for row in rows] == [
        key
        for partition in range(3)
        for key in topic.read(partition, 0, topic.end_offset(partition))["key"].to_pylist()
    ]
    assert [row.offset for row in rows if row.partition == 1] == list(range(topic.end_offset(1)))
    append_topic(tmp_path, "numbers", numbers(1_000, 1_200))
    assert source(spark, topics_root=tmp_path, topic="numbers").count() == 1_200


def test_columns_that_are_named_as_positions_are_the_users(tmp_path: Path) -> None:
    """Older rows have null in those that were gained, as everywhere, not where they are."""
    write_topic(tmp_path, "numbers", pa.table({"key": [1, 2]}), partitions=1, key=["key"])
    more = pa.table({"key": [3], "offset": [70], "partition": pa.array([7], pa.int32())})
    append_topic(tmp_path, "numbers", more, add_columns=True)
    options = {"topics_root": str(tmp_path), "topic": "numbers"}
    found = TaskAssignorSource(options)
    reader = found.reader(found.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
    assert [(row["key"], row["offset"], row["partition"]) for row in rows] == [
        (1, None, None),
        (2, None, None),
        (3, 70, 7),
    ]
    with pytest.raises(ConfigException, match=r"columns of these names: \['offset', 'partition'\]"):
        TaskAssignorSource({**options, "offsets": "true"}).schema()
    with pytest.raises(ConfigException, match=r"The option startingOffsets .* is for readStream"):
        TaskAssignorSource({**options, "startingOffsets": "latest"}).reader(found.schema())


@pytest.mark.thorough
def test_a_stream_goes_on_where_its_checkpoint_is(spark: SparkSession, tmp_path: Path) -> None:
    write_topic(tmp_path / "topics", "numbers", numbers(0, 500), partitions=3, key=["key"], segment_rows=40)
    register_source(spark)

    def run(starting: str, name: str) -> list[int]:
        stream = (
            spark.readStream.format("task_assignor")
            .option("topics_root", str(tmp_path / "topics"))
            .option("topic", "numbers")
            .option("startingOffsets", starting)
            .load()
        )
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / name))
        query.awaitTermination(300)
        assert query.exception() is None
        found = spark.read.schema("key long, name string").parquet(str(tmp_path / name))
        return sorted(row.key for row in found.collect())

    assert run("earliest", "all") == list(range(500))
    assert run("latest", "new") == []
    append_topic(tmp_path / "topics", "numbers", numbers(500, 620))
    assert run("earliest", "all") == list(range(620))
    assert run("latest", "new") == list(range(500, 620))


@pytest.mark.thorough
def test_deleted_rows_are_passed_over_by_what_begins_and_told_to_what_wants_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, options = tmp_path / "topics", {"topics_root": str(tmp_path / "topics"), "topic": "numbers"}
    write_topic(root, "numbers", numbers(0, 90), partitions=2, key=["key"], segment_rows=10)
    frame = read_topic(spark, root, "numbers")
    register_source(spark)

    def stream(name: str) -> list[int]:
        rows = spark.readStream.format("task_assignor").options(**options).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / name)).awaitTermination(300)
        return sorted(row.key for row in spark.read.schema("key long").parquet(str(tmp_path / name)).collect())

    assert len(stream("read")) == 90
    ends = Topic.open(root, "numbers").end_offsets()
    delete_records(root, "numbers", {0: 15, 1: ends[1]})
    left = Topic.open(root, "numbers").read(0, 15, ends[0]).column("key").to_pylist()
    assert [row.key for row in source(spark, **options).collect()] == left
    assert [row.offset for row in source(spark, **options, offsets=True).collect()] == list(range(15, ends[0]))
    with pytest.raises(Exception, match="but those from 0 on are wanted: they were deleted"):
        frame.collect()
    assert stream("new") == sorted(left)
    append_topic(root, "numbers", numbers(90, 120))
    assert stream("read") == list(range(120))
    assert stream("new") == sorted([*left, *range(90, 120)])
    append_topic(root, "numbers", numbers(120, 150))
    delete_records(root, "numbers", dict(enumerate(Topic.open(root, "numbers").end_offsets())))
    with pytest.raises(Exception, match="they were deleted"):
        stream("read")


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_begins_where_it_began_when_its_first_batch_is_done_again(tmp_path: Path, starting: str) -> None:
    """Spark writes down only how far it goes: rows that were deleted or came meanwhile were missing without a word."""
    write_topic(tmp_path, "numbers", numbers(0, 30), partitions=1, key=["key"], segment_rows=10)
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers", "startingOffsets": starting})

    def read(end: Place, start: Place | None = None) -> list[int]:
        # As Spark does it, in a process for each start of the query.
        stream = found.streamReader(found.schema())
        parts = stream.partitions(stream.initialOffset() if start is None else start, end)
        return [key for part in parts for batch in stream.read(part) for key in batch.to_pydict()["key"]]  # type: ignore[union-attr]

    stream = found.streamReader(found.schema())
    begin = stream.initialOffset()
    append_topic(tmp_path, "numbers", numbers(30, 40))
    first = stream.latestOffset(begin, object())  # type: ignore[arg-type]
    expected = list(range(0 if starting == "earliest" else 30, 40))
    assert read(first) == expected
    append_topic(tmp_path, "numbers", numbers(40, 50))
    assert read(first) == expected
    second = stream.latestOffset(first, object())  # type: ignore[arg-type]
    assert read(second, first) == list(range(40, 50))
    assert stream.latestOffset(second, object()) == second  # type: ignore[arg-type]
    # Checkpoints of before did not say where they began.
    (old, newer) = ({key: place[key] for key in ("id", "ends")} for place in (first, second))
    assert stream.latestOffset(old, object()) == newer  # type: ignore[arg-type]
    assert read(newer, old) == list(range(40, 50))
    delete_records(tmp_path, "numbers", {0: 35})
    with pytest.raises(TopicException, match=rf"those from {expected[0]} on are wanted: they were deleted"):
        read(first)


@pytest.mark.parametrize("moment", ["while it waits", "before it has answered", "in an error"])
def test_a_stream_that_is_stopped_leaves_no_traceback(tmp_path: Path, moment: str) -> None:
    """Spark closes the connection to the stream's process, which printed that as two tracebacks; its errors are still told."""
    write_topic(tmp_path, "numbers", numbers(0, 30), partitions=1, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers"})
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        address = f"{folder}/s"  # those of pytest may be longer than a socket's may be
        server.bind(address)
        server.listen()
        runner = subprocess.Popen(
            [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env=dict(os.environ, PYTHON_WORKER_FACTORY_SOCK_PATH=address),
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = server.accept()
        with connection, connection.makefile("rwb") as stream:

            def tell(*told: int | bytes) -> None:
                for one in told:
                    stream.write(struct.pack(">i", one) if isinstance(one, int) else struct.pack(">i", len(one)) + one)
                stream.flush()

            def hear() -> int:
                (number,) = struct.unpack(">i", stream.read(4))
                return int(number)

            assert hear() == runner.pid
            tell("{}.{}".format(*sys.version_info).encode(), folder.encode(), 0)
            pickled: bytes = CPickleSerializer().dumps(found)  # type: ignore[no-untyped-call]
            tell(pickled, found.schema().json().encode(), 1_000)
            assert hear() == 0
            if moment == "in an error":
                shutil.rmtree(tmp_path / "numbers")
            if moment != "while it waits":
                tell(INITIAL_OFFSET_FUNC_ID)
            if moment == "in an error":
                assert hear() == SpecialLengths.PYTHON_EXCEPTION_THROWN
                assert b"There is no topic 'numbers'" in stream.read(hear())
        assert runner.communicate(timeout=120)[1] == ""


@pytest.mark.skipif(pyspark.__version__.startswith("4.1."), reason="Spark writes down where a stream began since 4.2")
@pytest.mark.thorough
def test_a_stream_whose_first_batch_failed_says_so_if_its_rows_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    write_topic(tmp_path, "numbers", numbers(0, 30), partitions=1, key=["key"], segment_rows=10)
    register_source(spark)
    written: list[int] = []

    def write(rows: DataFrame, _: int) -> None:
        if not written:
            written.append(-1)
            raise OSError("the sink is not there")
        written.extend(row.key for row in rows.collect())

    stream = spark.readStream.format("task_assignor").option("topics_root", str(tmp_path)).option("topic", "numbers")
    writer = stream.load().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="the sink is not there"):
        writer.trigger(availableNow=True).start().awaitTermination(300)
    delete_records(tmp_path, "numbers", {0: 10})
    with pytest.raises(Exception, match="those from 0 on are wanted: they were deleted"):
        writer.trigger(availableNow=True).start().awaitTermination(300)
    assert written == [-1]


def test_rows_that_are_deleted_while_they_are_looked_for_are_not_said_to_be_lost(tmp_path: Path) -> None:
    write_topic(tmp_path, "numbers", numbers(0, 30), partitions=1, key=["key"], segment_rows=10)
    first, second, last = rows_of_topic(tmp_path, "numbers").parts["0"]
    delete_records(tmp_path, "numbers", {0: 15})
    with pytest.raises(TopicException, match=r"no rows before 15 in part 0 .* from 0 on are wanted: they were deleted"):
        check_files([first, second, last])
    with pytest.raises(TopicException, match="they were deleted"):
        list(first.tables())
    (tmp_path / last.name).unlink()
    for look in (lambda: check_files([last]), lambda: list(last.tables())):
        with pytest.raises(CorruptLogException, match="offset 20 cannot be read"):
            look()


@pytest.mark.thorough
def test_a_topic_that_was_written_anew_is_not_taken_for_the_one_that_was_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its rows would be taken for those that have been read, or read as if they were others."""
    root = tmp_path / "topics"
    write_topic(root, "numbers", numbers(0, 50), partitions=2, key=["key"])
    frame = read_topic(spark, root, "numbers")
    register_source(spark)
    stream = spark.readStream.format("task_assignor").option("topics_root", str(root)).option("topic", "numbers").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(300)
    shutil.rmtree(root / "numbers")
    write_topic(root, "numbers", numbers(100, 160), partitions=2, key=["key"])
    query = writer.trigger(availableNow=True).start()
    for read in (lambda: query.awaitTermination(300), frame.collect):
        with pytest.raises(Exception, match=r"The topic 'numbers' in .* has the id .* it was written anew since"):
            read()


def test_types_that_spark_has_under_other_names_are_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "key": [1],
            "half": pa.array(np.array([1.5], np.float16)),
            "day": pa.array([86_400_000], pa.date64()),
            "time": pa.array([61], pa.time32("s")),
            "counts": pa.array([[("a", 2**32 - 1)]], pa.map_(pa.string(), pa.uint32())),
            "point": pa.array([[1, 2**32 - 1]], pa.list_(pa.uint32(), 2)),
            "hundreds": pa.array([Decimal(-99_900)], pa.decimal128(3, -2)),
            "tiny": pa.nulls(1, pa.decimal128(2, 5)),
        }
    )
    write_topic(tmp_path, "t", rows, partitions=1, key=["key"])
    (row,) = source(spark, topics_root=tmp_path, topic="t").collect()
    assert (row.half, row.counts, row.point) == (1.5, {"a": 2**32 - 1}, [1, 2**32 - 1])
    assert (row.day, row.time) == (dt.date(1970, 1, 2), dt.time(0, 1, 1))
    assert (row.hundreds, row.tiny) == (-99_900, None)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1_001], pa.timestamp("ns")), r"The column 'v' of topic t, timestamp\[ns\], has values that Spark's"),
        (
            pa.nulls(1, pa.month_day_nano_interval()),
            "The column 'v' has type month_day_nano_interval, which Spark does not have",
        ),
        (
            pa.array([[Decimal(1)]], pa.list_(pa.decimal256(40))),
            r"'v' has type list<item: decimal256\(40, 0\)>, which Spark does not have \(its decimals have at most 38 digits\)",
        ),
        (pa.array([None], pa.decimal128(30, -9)), r"'v' has type decimal128\(30, -9\), which Spark does not have"),
    ],
)
def test_a_column_that_spark_cannot_have_is_named(tmp_path: Path, column: pa.Array, said: str) -> None:
    write_topic(tmp_path, "t", pa.table({"key": [1], "v": column}), partitions=1, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "t"})

    def read() -> list[object]:
        reader = found.reader(found.schema())
        return [batch for part in reader.partitions() for batch in reader.read(part)]

    with pytest.raises((TopicException, ConfigException), match=said):
        read()


@pytest.mark.parametrize(
    ("strange", "said"),
    [
        (pa.field("nmae", pa.string()), "nmae string"),
        (pa.field("offset", pa.int64()), "offset bigint"),
        (pa.field("name", pa.timestamp("us")), "name timestamp_ntz"),
        (pa.field("name", pa.string(), nullable=False), "name string not null"),
    ],
)
def test_a_schema_of_the_user_that_rows_do_not_have_is_refused(tmp_path: Path, strange: pa.Field, said: str) -> None:
    """What the rows do not have was null, and a number as a time was taken for microseconds, without a word."""
    never_null = pa.schema([pa.field("key", pa.int64(), nullable=False), ("name", pa.string())])
    write_topic(tmp_path, "numbers", numbers(0, 50).cast(never_null), partitions=2, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers"})
    reader = found.reader(from_arrow_schema(pa.schema([("key", pa.int64())])))
    assert [batch.num_columns for part in reader.partitions() for batch in reader.read(part)] == [1, 1]  # type: ignore[union-attr]
    for read in (found.reader, found.streamReader):
        with pytest.raises(
            ConfigException, match=rf"'numbers' in .* has no columns \['{said}'\]; it has \['key bigint not"
        ):
            read(from_arrow_schema(pa.schema([("key", pa.int64()), strange]), prefer_timestamp_ntz=True))


def test_parts_that_may_be_null_are_not_taken_for_what_never_is(tmp_path: Path) -> None:
    """Spark's tasks failed one after the other, as soon as there was a null."""
    never = pa.list_(pa.field("item", pa.int64(), nullable=False))
    maybe = pa.struct([("x", pa.int64())])
    rows = pa.table({"key": [1], "never": pa.array([[1]], never), "maybe": pa.array([{"x": None}], maybe)})
    write_topic(tmp_path, "t", rows, partitions=1, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "t"})
    found.reader(from_arrow_schema(pa.schema([("never", pa.list_(pa.int64())), ("maybe", maybe)])))
    found.reader(from_arrow_schema(pa.schema([("never", never)])))
    wrong = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(ConfigException, match=r"no columns \['maybe struct<x:bigint> with parts not null'\]; it has"):
        found.reader(from_arrow_schema(pa.schema([("maybe", wrong)])))


def test_wide_rows_come_in_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow makes no `string` of more than 2 GiB of `large_string`, of which polars makes all texts: such a file could not be read."""
    monkeypatch.setattr("task_assignor.spark.source.BATCH_BYTES", 1_000)
    monkeypatch.setattr("task_assignor.spark.source._CAST_BYTES", 1_000)
    text = pa.array([f"{number:0100}" for number in range(100)], pa.large_string())
    write_topic(tmp_path, "t", pa.table({"key": range(100), "text": text}), partitions=1, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "t"})
    reader = found.reader(found.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert max(batch.num_rows for batch in batches) <= 10  # type: ignore[union-attr]
    assert [row for batch in batches for row in batch.column("text").to_pylist()] == text.to_pylist()  # type: ignore[union-attr]


def test_a_file_that_is_missing_is_told_before_spark_tries_it_again_and_again(tmp_path: Path) -> None:
    write_topic(tmp_path, "numbers", numbers(0, 50), partitions=2, key=["key"])
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers"})
    stream = found.streamReader(found.schema())
    start, end = stream.initialOffset(), stream.latestOffset()  # type: ignore[call-arg]
    next((tmp_path / "numbers" / "1").iterdir()).unlink()
    for read in (lambda: found.reader(found.schema()), lambda: stream.partitions(start, end)):
        with pytest.raises(CorruptLogException, match=r"numbers, partition 1, offset 0 .* \(it is missing\)"):
            read()


def test_rows_that_are_gone_are_told(tmp_path: Path) -> None:
    write_topic(tmp_path, "numbers", numbers(0, 50), partitions=2, key=["key"])
    rows = rows_of_topic(tmp_path, "numbers")
    seen = rows.upto({**rows.ends, "1": 900})
    for start, end in ((seen, rows.upto(rows.ends)), (rows.upto({}), seen)):
        with pytest.raises(TopicException, match=r"has \d+ rows in part 1 now, but had 900 when it was looked at"):
            rows.between(start, end)


def test_an_output_is_a_stream_too(spark: SparkSession, finished: RunResult, tmp_path: Path) -> None:
    register_source(spark)
    stream = spark.readStream.format("task_assignor").option("run_dir", finished.run_dir).option("output", "joined")
    query = stream.load().writeStream.format("memory").queryName("joined_rows").trigger(availableNow=True).start()
    query.awaitTermination(300)
    expected = in_order(read_output(finished.run_dir, "joined"))
    assert in_order(spark.table("joined_rows").toArrow()).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "name nothing. Expected are the options topics_root and topic, or run_dir and output"),
        ({"topics_root": "x"}, "name nothing"),
        ({"topics_root": "x", "topic": "gone"}, "gone"),
        ({"topics_root": "x", "topic": "y", "marker": "z"}, "name nothing.*of an output marker"),
        ({"run_dir": "x", "output": "y"}, "There is no run in"),
        ({"run_dir": "x", "output": "y", "markers": "z"}, "The option markers .* is not known. Maybe marker is meant"),
        ({"topics_root": "x", "topic": "y", "starting_offsets": "latest"}, "Maybe startingOffsets is meant"),
        (
            {"topics_root": "x", "topic": "y", "startingOffsets": "last"},
            r"The option startingOffsets \('last'\) of format",
        ),
        ({"topics_root": "x", "topic": "y", "maxoffsetspertrigger": 9}, "is one of other sources of Spark"),
        # Passwords of others are not told.
        ({"topic": "x", "password": "y"}, r"\({'topic': 'x'}\) name nothing"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        source(spark, **options)


def test_what_the_format_does_not_do_is_told_with_what_does(spark: SparkSession, tmp_path: Path) -> None:
    """Of a table Spark tells the options when it is made, and none when it is read."""
    write_topic(tmp_path, "t", pa.table({"key": [1]}), partitions=1, key=["key"])
    frame = source(spark, topics_root=tmp_path, topic="t")
    with pytest.raises(Exception, match=r"has no tables: .* Maybe CREATE TEMPORARY VIEW name USING task_assignor"):
        spark.sql(f"CREATE TABLE t USING task_assignor OPTIONS (topics_root '{tmp_path}', topic 't')")
    options = f"OPTIONS (topics_root '{tmp_path}', topic 't')"
    spark.sql(f"CREATE TABLE t (key long) USING task_assignor {options} LOCATION '{tmp_path / 'table'}'")
    with pytest.raises(Exception, match=r"name nothing.* If it is a table: .* Maybe CREATE TEMPORARY VIEW name USING"):
        spark.table("t").collect()
    spark.sql("DROP TABLE t")
    spark.sql(f"CREATE TEMPORARY VIEW a_topic USING task_assignor OPTIONS (topics_root '{tmp_path}', topic 't')")
    assert [row.key for row in spark.table("a_topic").collect()] == [1]
    with pytest.raises(Exception, match=r"is for reading. Maybe task_assignor.spark.write_topic\(frame, root, name"):
        frame.write.format("task_assignor").mode("append").save()


@pytest.mark.parametrize(
    ("option", "choices"), [("offsets", "false or true"), ("startingOffsets", "earliest or latest")]
)
def test_a_wrong_value_of_an_option_is_refused_with_those_that_there_are(
    tmp_path: Path, option: str, choices: str
) -> None:
    """It was called an option that is not known."""
    write_topic(tmp_path, "t", pa.table({"key": [1]}), partitions=1, key=["key"])
    options = {"topics_root": str(tmp_path), "topic": "t"}
    schema = TaskAssignorSource(options).schema()
    with pytest.raises(ConfigException, match=rf"The option {option} \('tru'\) .* must be {choices}"):
        TaskAssignorSource({**options, option: "tru"}).streamReader(schema)


# A session of Spark Connect needs packages that are not ours; what counts is its type.
CONNECT = """
import sys, types
module = types.ModuleType("pyspark.sql.connect.session")
class SparkSession: ...
SparkSession.__module__ = module.__name__
from task_assignor.spark import check_session, read_results, read_topic, register_source
import json
said = []
for call in (lambda s: check_session(s, 1), lambda s: read_topic(s, "x", "y"), register_source, lambda s: read_results(s, "x", "y")):
    try:
        call(SparkSession())
    except Exception as error:
        said.append([type(error).__name__, str(error)])
print(json.dumps(said))
"""


def test_a_session_of_spark_connect_gets_one_clear_error(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CONNECT], cwd=tmp_path, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert len(said) == 4
    assert {kind for kind, _ in said} <= {SparkSessionError.__name__}
    assert {text.split(";")[0] for _, text in said} == {"The session is a Spark Connect session"}


def test_positions_in_an_output_stay_when_its_files_are_merged(tmp_path: Path) -> None:
    """What a stream has read, and what it reads next, is the same whichever files have become one between."""
    run = Run(tmp_path)
    run.commit(1, 2, 3)
    seen: dict[str, int] = {}
    read: dict[str, list[int]] = {str(task): [] for task in TASKS}
    for turn in range(12):
        rows = rows_of_output(tmp_path, "out")
        ends = rows.ends
        if turn % 3 == 1:
            # Merged after the stream was told how far it goes, before it reads.
            run.checkpoint()
            rows = rows_of_output(tmp_path, "out")
        for part, pieces in rows.between(rows.upto(seen), rows.upto(ends)).items():
            for piece in pieces:
                read[part] += [x for _, table in piece.tables() for x in table.column("x").to_pylist()]
        seen = ends
        run.commit(10 * turn, -turn, tasks=TASKS[turn % 2 :])
        if turn % 3 == 2:
            run.checkpoint()
    for task in TASKS:
        assert read[str(task)] == run.expected[task][: seen[str(task)]]
    assert len(rows_of_output(tmp_path, "out").parts[str(TASKS[1])]) < 6


def test_a_stream_of_an_output_without_columns_is_refused(tmp_path: Path) -> None:
    """All of its rows came without any column, for ever."""
    run = Run(tmp_path)
    found = TaskAssignorSource({"run_dir": str(tmp_path), "output": "out"})
    assert found.schema().names == []
    with pytest.raises(ConfigException, match=r"'out' of the run in .* has no columns yet, .* Maybe declare them"):
        found.streamReader(found.schema())
    run.commit(1)
    found.streamReader(found.schema())


def test_a_query_finds_rows_again_whose_files_were_merged_and_deleted_meanwhile(tmp_path: Path) -> None:
    """A DataFrame that was collected twice, and a query that took longer than the files stay, were told that one is missing."""
    run = Run(tmp_path)
    for number in range(5):
        run.commit(number, -number)
    found = TaskAssignorSource({"run_dir": str(tmp_path), "output": "out", "offsets": "true"})
    reader = found.reader(found.schema())
    parts = reader.partitions()
    pieces = [piece for part in parts for piece in part.value]

    def read() -> list[dict[str, int]]:
        batches = [batch for part in parts for batch in reader.read(part)]
        return [row for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]

    before = read()
    assert len(before) == 20
    for number in range(3):
        run.checkpoint()
        run.commit(number)
    assert not any((tmp_path / piece.name).exists() for piece in pieces)
    check_files(pieces)
    assert read() == before
    # What is gone and counts is still told, and so is another run in the same folder.
    counts = rows_of_output(tmp_path, "out").parts[str(TASKS[0])]
    (tmp_path / counts[0].name).unlink()
    with pytest.raises(CorruptLogException, match="it is missing"):
        read()
    with pytest.raises(TopicException, match="it was written anew since"):
        list(attrs.evolve(pieces[0], log_id="another run").tables())
