"""Topics written from DataFrames: where Kafka would put the rows, whole or not at all, the same every time."""

from __future__ import annotations

import datetime as dt
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import InheritableThread, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql import types as T  # noqa: N812

from task_assignor.runtime import CorruptLogException, Topic, TopicException
from task_assignor.spark import SparkJobError, read_topic, register_source, write_topic
from task_assignor.spark.columns import arrow_schema
from task_assignor.spark.jobs import fail_fast
from task_assignor.spark.parquet import parquet_row_groups
from task_assignor.spark.shuffle import Shuffle

pytestmark = pytest.mark.spark

# From Kafka's own tests of Utils.murmur2.
KAFKA_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def rows_of(topic: Topic, partition: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = topic.read(partition, 0, topic.end_offset(partition)).to_pylist()
    return rows


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """20 000 rows in 5 Spark partitions; the time runs backwards and has many ties."""
    return spark.range(0, 20_000, 1, 5).select(
        (F.col("id") * 7919 % 1000).alias("key"),
        (F.lit(5_000) - F.floor(F.col("id") / 4)).alias("time"),
        F.col("id").alias("number"),
    )


def test_rows_are_where_kafka_would_put_them(spark: SparkSession, tmp_path: Path) -> None:
    keys = [key for key in KAFKA_HASHES for _ in range(3)]
    frame = spark.createDataFrame([(key, n) for n, key in enumerate(keys)], "key string, n int").repartition(3)

    topic = write_topic(frame, tmp_path, "words", key="key", partitions=7)

    expected = {(key, (value & 0x7FFFFFFF) % 7) for key, value in KAFKA_HASHES.items()}
    assert expected == {(row["key"], p) for p in range(7) for row in rows_of(topic, p)}
    assert len(keys) == sum(topic.end_offsets())


def test_the_order_of_the_dataframe_is_kept_and_the_files_are_the_same_every_time(
    frame: DataFrame, tmp_path: Path
) -> None:
    topic = write_topic(frame, tmp_path / "one", "t", key=["key"], partitions=4, segment_rows=1_500)
    write_topic(frame, tmp_path / "two", "t", key=["key"], partitions=4, segment_rows=1_500)

    for partition in range(4):
        numbers = [row["number"] for row in rows_of(topic, partition)]
        assert sorted(numbers) == numbers
    one, two = (files_of(tmp_path / name) for name in ("one", "two"))
    for files in (one, two):
        for name in [name for name in files if name.startswith("t/versions/")]:
            assert files.pop(name), "it has the topic's id"
    assert sorted(one.values()) == sorted(two.values())
    assert len(one) >= 4 * 3


def test_sorted_by_timestamp_ties_keep_the_order_of_the_dataframe(frame: DataFrame, tmp_path: Path) -> None:
    topic = write_topic(frame, tmp_path, "t", key=["key"], partitions=4, timestamp="time", sort_by_timestamp=True)

    for partition in range(4):
        found = [(row["time"], row["number"]) for row in rows_of(topic, partition)]
        assert sorted(found) == found
    assert sum(topic.end_offsets()) == 20_000


def test_times_within_a_millisecond_are_sorted_too(spark: SparkSession, tmp_path: Path) -> None:
    """They stayed as they came, so an older price of a key was its last one."""
    frame = spark.sql("SELECT 'k' AS key, timestamp_micros(id) AS time, id FROM VALUES (3), (1), (1000), (2) AS t (id)")
    topic = write_topic(frame, tmp_path, "t", key="key", partitions=1, timestamp="time", sort_by_timestamp=True)
    assert [row["id"] for row in rows_of(topic, 0)] == [1, 2, 3, 1000]


def test_a_worker_that_is_killed_leaves_no_row_twice_and_no_file(frame: DataFrame, tmp_path: Path) -> None:
    @F.udf(returnType=T.LongType())
    def die_once(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (Spark reads type hints)
        import os
        import signal

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and number % 4_000 == 3_999:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    write_topic(frame, tmp_path / "calm", "t", key=["key"], partitions=4)
    write_topic(frame.withColumn("number", die_once("number")), tmp_path / "killed", "t", key=["key"], partitions=4)

    expected, found = (Topic.open(tmp_path / name, "t") for name in ("calm", "killed"))
    assert [rows_of(expected, p) for p in range(4)] == [rows_of(found, p) for p in range(4)]
    assert len(files_of(tmp_path / "calm")) == len(files_of(tmp_path / "killed"))


def test_a_job_that_always_fails_ends_soon_says_why_and_leaves_nothing(frame: DataFrame, tmp_path: Path) -> None:
    @F.udf(returnType=T.LongType())
    def fail(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (Spark reads type hints)
        if number == 12_345:
            raise ValueError("number 12345 is not liked here")
        return number

    with pytest.raises(SparkJobError, match=r"^Writing topic t failed: ValueError: number 12345 is not liked here$"):
        write_topic(frame.withColumn("number", fail("number")), tmp_path, "t", key=["key"], partitions=4)

    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_jobs_of_a_topic_and_the_users_group_stays_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a notebook Spark hears nothing of Ctrl-C: the rows of a topic that nobody wanted any more went on to be written."""
    context, place = spark.sparkContext, str(tmp_path / "begun")
    os.mkfifo(place)

    def begin(_: int) -> None:
        Path(place).write_text("begun")
        time.sleep(3_600)

    def run() -> None:
        with suppress(Exception):
            context.parallelize([1], 1).map(begin).count()

    def write() -> None:
        with fail_fast(spark, "Writing topic t"):
            jobs.append(InheritableThread(target=run, daemon=True))
            jobs[0].start()
            assert Path(place).read_text() == "begun"
            raise KeyboardInterrupt

    jobs: list[InheritableThread] = []
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    context.setJobGroup("mine", "my job", interruptOnCancel=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            write()
        jobs[0].join(60)
        assert not jobs[0].is_alive()
        assert [context.getLocalProperty(name) for name in names] == ["mine", "my job", "true"]
    finally:
        for name in names:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": ["nokey"]}, "has no column 'nokey'"),
        ({"key": ["ratio"]}, "double cannot be a key"),
        ({"partitions": 0}, "must be an int of at least 1"),
        ({"sort_by_timestamp": True}, "Maybe add timestamp="),
        ({"sort_by_timestamp": "no"}, r"sort_by_timestamp \('no'\) must be True or False"),
        ({"segment_rows": 0}, "must be an int of at least 1"),
        ({"segment_rows": "many"}, r"segment_rows \('many'\) must be an int of at least 1"),
        ({"key": "number", "racks": ["eu-1"]}, "2 partitions, but racks for 1"),
        ({"key": "nokey"}, "has no column 'nokey'"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_runs(
    frame: DataFrame, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"key": ["key"], "partitions": 2} | arguments

    with pytest.raises(TopicException, match=message):
        write_topic(frame.withColumn("ratio", F.rand(1)), tmp_path, "t", **given)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("value", "kind"), [("interval '1' year", "interval year"), ("array()", "array<void>")])
def test_a_column_that_arrow_does_not_have_is_named(frame: DataFrame, tmp_path: Path, value: str, kind: str) -> None:
    """Spark's own error named the type alone, that of Arrow nothing."""
    with pytest.raises(TopicException, match=f"cannot have the column 'odd': Arrow, .* Spark's type {kind}\\. Maybe"):
        write_topic(frame.withColumn("odd", F.expr(value)), tmp_path, "t", key=["key"], partitions=1)


def test_rows_that_are_no_dataframe_are_named(tmp_path: Path) -> None:
    """In the order of the runtime's write_topic the folder was asked for its session."""
    given: Any = (str(tmp_path), "t", pa.table({"key": [1]}))
    with pytest.raises(
        TopicException, match=r"must be a pyspark.sql.DataFrame, not '.* write_topic\(frame, root, name"
    ):
        write_topic(*given, key=["key"], partitions=1)


def test_reading_gives_back_the_rows_with_partition_and_offset(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    topic = write_topic(frame, tmp_path, "t", key=["key"], partitions=3, segment_rows=2_000)

    found = read_topic(spark, tmp_path, "t", with_offsets=True)
    with pytest.raises(TopicException, match=r"The with_offsets \('no'\) must be True or False"):
        read_topic(spark, tmp_path, "t", with_offsets="no")  # type: ignore[arg-type]

    assert found.dtypes == [
        ("key", "bigint"),
        ("time", "bigint"),
        ("number", "bigint"),
        ("partition", "int"),
        ("offset", "bigint"),
    ]
    expected = [
        (row["key"], row["number"], partition, offset)
        for partition in range(3)
        for offset, row in enumerate(rows_of(topic, partition))
    ]
    assert expected == [(row.key, row.number, row.partition, row.offset) for row in found.collect()]


def test_types_survive_the_way_through_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select 'ü' k, cast(null as int) i, true b, 1.5D d, date'2013-01-01' day, timestamp'2013-01-01 05:15:00' t, "
        "timestamp_ntz'2013-01-01 05:15:00' n, cast(1.25 as decimal(8,2)) m, array(1, 2) a, named_struct('x', 1) s, X'00ff' z, "
        "if(true, null, named_struct('x', 1)) o, array(named_struct('x', 1), null) q"
    )
    assert "not null" in str(arrow_schema(frame.schema).field("o").type)
    write_topic(frame, tmp_path, "t", key=["k"], partitions=2, timestamp="t")

    assert frame.collect() == read_topic(spark, tmp_path, "t").collect()


def test_a_second_session_writes_and_reads_topics_too(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    """Spark looked for what it was to write with in the first one, and said that what reads was there already."""
    write_topic(frame, tmp_path, "of-the-first", key=["key"], partitions=1)
    assert read_topic(spark, tmp_path, "of-the-first").count() == frame.count()
    second = spark.newSession()
    write_topic(second.range(10), tmp_path, "numbers", key=["id"], partitions=2)
    assert read_topic(second, tmp_path, "numbers").count() == 10
    register_source(second)
    assert second.read.format("task_assignor").options(topics_root=str(tmp_path), topic="numbers").load().count() == 10
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession), "two objects of Python may be one of Java"


def test_an_empty_dataframe_makes_an_empty_topic(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    topic = write_topic(frame.where("number < 0"), tmp_path, "t", key=["key"], partitions=2)

    assert topic.end_offsets() == [0, 0]
    assert read_topic(spark, tmp_path, "t").count() == 0


def test_a_file_that_was_cut_off_is_named_before_spark_starts(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    write_topic(frame, tmp_path, "t", key=["key"], partitions=2)
    (path,) = (tmp_path / "t" / "1").iterdir()
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CorruptLogException, match=r"t, partition 1, offset 0 cannot be read: .*arrow"):
        read_topic(spark, tmp_path, "t")


def test_reading_converts_what_spark_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    from task_assignor.runtime import write_topic as write_arrow_topic

    table = pa.table(
        {
            "k": pa.array(["a", "b"]).dictionary_encode(),
            "u": pa.array([1, 2**32 - 1], pa.uint32()),
            "v": pa.array(["x", None], pa.large_string()),
        }
    )
    write_arrow_topic(tmp_path, "t", table, partitions=1, key=["k"])

    assert [tuple(row) for row in read_topic(spark, tmp_path, "t").collect()] == [("a", 1, "x"), ("b", 2**32 - 1, None)]


def test_parquet_files_read_by_arrow_give_the_rows_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    """The same files as a plain scan, which Arrow reads, and behind a limit, which only Spark understands."""
    frame = spark.range(0, 5_000, 1, 4).select(
        (F.col("id") % 97).alias("key"),
        F.col("id").cast("int").alias("number"),
        F.when(F.col("id") % 3 != 0, F.concat(F.lit("text "), "id")).alias("text"),
        (F.col("id") / 7).alias("ratio"),
        F.col("id").cast("timestamp").alias("time"),
        F.expr("date_add(date'1970-01-01', cast(id as int))").alias("day"),
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.parquet(str(tmp_path / "with space%20"))
    scan = spark.read.parquet(str(tmp_path / "with space%20"))

    chosen = scan.select("number", "key", "text", "ratio", "time", "day")
    topics = []
    for name, found, by_arrow in (("arrow", chosen, True), ("spark", chosen.limit(1_000_000), False)):
        assert (parquet_row_groups(found, arrow_schema(found.schema)) is not None) == by_arrow
        topics.append(write_topic(found, tmp_path / name, "t", key=["key"], partitions=3, timestamp="time"))

    for partition in range(3):
        arrow, by_spark = (sorted(rows_of(topic, partition), key=lambda row: row["number"]) for topic in topics)
        assert arrow == by_spark
        numbers = [row["number"] for row in rows_of(topics[0], partition)]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("damage", ["flipped", "torn", "gone"])
def test_rows_damaged_on_their_way_into_a_topic_are_told(tmp_path: Path, damage: str) -> None:
    schema = pa.schema([("key", pa.int64()), ("text", pa.string())])
    shuffle = Shuffle(str(tmp_path), "t/shuffle", ("key",), 3, schema)
    rows = pa.RecordBatch.from_arrays([pa.array(range(90)), pa.array(["text"] * 90)], schema=schema)
    written = shuffle.write("0", [rows])

    def read() -> list[pa.RecordBatch]:
        return [batch for partition in range(3) for batch in shuffle.read([written], partition)]

    assert sum(batch.num_rows for batch in read()) == 90
    (file,) = tmp_path.rglob("*.arrow")
    whole = file.read_bytes()
    file.unlink()
    if damage != "gone":
        at = whole.rindex(b"texttext")
        file.write_bytes(whole[:at] + b"T" + whole[at + 1 :] if damage == "flipped" else whole[:at])
    with pytest.raises(CorruptLogException, match=rf"{file} .*write the topic again"):
        read()


def test_wide_rows_are_sorted_in_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows were held at once: of 4 kB each the worker of one Spark task wanted 20 GB."""
    monkeypatch.setattr("task_assignor.spark.shuffle.CHUNK_BYTES", 1_000)
    schema = pa.schema([("key", pa.int64()), ("text", pa.string())])
    shuffle = Shuffle(str(tmp_path), "shuffle", ("key",), 1, schema)
    rows = pa.table({"key": range(100), "text": ["x" * 100] * 100}, schema)
    written = shuffle.write("a", rows.to_batches(max_chunksize=5))
    assert len(written.chunks) == 10
    assert pa.Table.from_batches(shuffle.read([written], 0)).equals(rows)


def test_files_that_are_named_twice_are_read_twice(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark does it; a DataFrame says of such a file once that it is made of it."""
    spark.range(20).select(F.col("id").alias("key")).coalesce(1).write.parquet(str(tmp_path / "files"))
    (file,) = (tmp_path / "files").glob("*.parquet")
    scan = spark.read.parquet(str(tmp_path / "files"), str(file), str(file))
    assert parquet_row_groups(scan, arrow_schema(scan.schema)) is not None
    topic = write_topic(scan, tmp_path / "topics", "t", key=["key"], partitions=2)
    found = [row["key"] for partition in range(2) for row in rows_of(topic, partition)]
    assert sorted(found) == sorted(row.key for row in scan.collect()) == sorted(3 * list(range(20)))


def test_old_dates_are_those_that_spark_is_told_to_read(spark: SparkSession, tmp_path: Path) -> None:
    """Files of others were read by Arrow whatever the setting: dates before 1582 were others than those of the DataFrame."""
    pq.write_table(pa.table({"key": [1], "day": [dt.date(1500, 1, 1)]}), tmp_path / "file.parquet")
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    scan = spark.read.parquet(str(tmp_path / "file.parquet"))
    spark.conf.set(setting, "LEGACY")
    try:
        topic = write_topic(scan, tmp_path / "topics", "t", key=["key"], partitions=1)
        (row,) = scan.collect()
    finally:
        spark.conf.unset(setting)
    assert [found["day"] for found in rows_of(topic, 0)] == [row.day] != [dt.date(1500, 1, 1)]


@pytest.mark.parametrize("change", ["where number > 3", "rename", "compute", "merge", "partitioned", "int96"])
def test_of_parquet_only_a_plain_scan_is_read_by_arrow(spark: SparkSession, tmp_path: Path, change: str) -> None:
    frame = spark.range(100).select(F.col("id").alias("number"), (F.col("id") % 2).alias("part"))
    if change == "int96":
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        frame = frame.withColumn("time", F.col("number").cast("timestamp"))
    writer = frame.write.partitionBy("part") if change == "partitioned" else frame.write
    writer.parquet(str(tmp_path / "files"))
    scan = spark.read.option("mergeSchema", change == "merge").parquet(str(tmp_path / "files"))
    if change == "merge":
        changed = scan
    else:
        scan = spark.read.parquet(str(tmp_path / "files"))
        changed = {
            "where number > 3": scan.where("number > 3"),
            "rename": scan.withColumnRenamed("number", "n"),
            "compute": scan.withColumn("more", F.col("number") + 1),
        }.get(change, scan)

    assert parquet_row_groups(changed, arrow_schema(changed.schema)) is None
