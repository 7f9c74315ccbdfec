"""The co-partitioned windowed join on a local Spark: streaming with state, and bounded beside Spark SQL.

Two streams of N/2 rows (a key, a time, a value; N/4 keys; one hour), joined where the keys are equal and the times at most
five minutes apart. N is 10 million; `TASK_ASSIGNOR_BENCH_ROWS` chooses another size.
Each case starts a Spark of its own and warms it up, ours and Spark SQL's alike; start-up is not part of the times.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.case import Case, Facts, Goal, Timed, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 8
WINDOW_MS: Final = 300_000
HOUR_MS: Final = 3_600_000
BATCHES: Final = 60
CLIENTS: Final = (1, 2, 4, 8, 16)
TASKS: Final = (10, 100, 1_000)
NEEDS: Final = ("pyspark", "polars", "pyarrow")
STREAMS: Final = ("shown", "clicked")
SQL: Final = f"""
    SELECT {{hint}} l.key, l.time, r.time AS time_right, l.value, r.value AS value_right
    FROM {{left}} l JOIN {{right}} r ON l.key = r.key AND abs(l.time - r.time) <= {WINDOW_MS}
"""


def cases(is_quick: bool) -> list[Case]:
    """Streaming beside Structured Streaming; bounded beside Spark SQL and polars; other numbers of clients and tasks."""
    rows = 40_000 if is_quick else int(os.environ.get("TASK_ASSIGNOR_BENCH_ROWS", "10000000"))
    few = max(rows // 10, 20_000)

    def case(name: str, prepare: Callable[[int], Work], rows: int = rows, **more: Any) -> Case:
        return Case(
            f"spark join/{name}",
            lambda: prepare(rows),
            describe=describe,
            amount=(rows, "rows"),
            needs=NEEDS,
            is_heavy=True,
            limit_s=900,
            **more,
        )

    return [
        case(f"windowed, state and changelog, {BATCHES} batches", streaming, goal=Goal(seconds=rows / 1_000_000)),
        case("the same with a standby per task", streaming_with_standbys),
        case(f"windowed, Structured Streaming, {BATCHES} micro-batches", structured_streaming),
        case("bounded, Spark SQL on bucketed tables", sql_on_buckets),
        case(
            "bounded, ours on topics",
            bounded_on_topics,
            goal=Goal(times_faster=1),
            against="spark join/bounded, Spark SQL on bucketed tables",
        ),
        case("bounded, Spark SQL on Parquet", sql_on_parquet),
        case(
            "bounded, ours on Parquet, write_topic included",
            bounded_on_parquet,
            goal=Goal(times_faster=1),
            against="spark join/bounded, Spark SQL on Parquet",
        ),
        case("bounded, polars alone on Parquet, no Spark", polars_alone),
        *(
            case(
                f"{count} clients, a tenth of the rows",
                partial(streaming, clients=count, partitions=16),
                few,
                series="spark join, clients",
                size=count,
            )
            for count in CLIENTS
        ),
        *(
            case(
                f"{count} tasks, a tenth of the rows",
                partial(streaming, partitions=count, batches=2),
                few,
                series="spark join, tasks",
                size=count,
            )
            for count in TASKS
        ),
    ]


def describe(rows_out: int) -> Facts:
    """The number of joined rows, which must be the same for all."""
    return {"rows out": rows_out}


class _Bench:
    """A Spark session, the two streams as Parquet files, and a folder that goes with the process."""

    def __init__(self, rows: int, clients: int = 2, partitions: int = PARTITIONS) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from task_assignor.spark import spark_session

        logging.getLogger("task_assignor").addHandler(logging.NullHandler())
        self._folder = tempfile.TemporaryDirectory(prefix="task-assignor-bench-")
        self.path = Path(self._folder.name)
        each = rows // 2
        for seed, name in enumerate(STREAMS):
            random = np.random.default_rng(seed)
            (self.path / "raw" / name).mkdir(parents=True)
            times = np.sort(random.integers(0, HOUR_MS, each))
            keys = random.integers(0, max(each // 2, 1), each)
            table = pa.table({"key": keys, "time": times, "value": np.arange(each, dtype=np.int32)})
            for part in range(PARTITIONS):
                low, high = each * part // PARTITIONS, each * (part + 1) // PARTITIONS
                pq.write_table(table.slice(low, high - low), self.path / "raw" / name / f"{part}.parquet")
        self.each = each
        warehouse = {"spark.sql.warehouse.dir": str(self.path / "warehouse"), "spark.driver.memory": "4g"}
        self._clients, self._partitions = clients, partitions
        self.spark: SparkSession = spark_session(clients=clients, app_name="benchmark", config=warehouse)

    def write_topics(self, *, sort: bool) -> None:
        """Both streams as topics."""
        from task_assignor.spark import write_topic

        shutil.rmtree(self.path / "topics", ignore_errors=True)
        for name in STREAMS:
            frame = self.spark.read.parquet(str(self.path / "raw" / name))
            write_topic(
                frame,
                self.path / "topics",
                name,
                key=["key"],
                partitions=self._partitions,
                timestamp="time",
                sort_by_timestamp=sort,
            )

    def join(self, *, batches: int, standbys: int = 0) -> int:
        """Join the topics with our runtime; in a single batch the order of the rows is of no interest."""
        from task_assignor import StreamsConfig
        from task_assignor.runtime import RuntimeOptions, StreamsApplication, Topology, WindowedJoin
        from task_assignor.spark import SparkLauncher

        shutil.rmtree(self.path / "run", ignore_errors=True)
        grace = None if batches == 1 else 0
        left, right = STREAMS
        join = WindowedJoin(
            left=left,
            right=right,
            before_ms=WINDOW_MS,
            after_ms=WINDOW_MS,
            left_grace_ms=grace,
            right_grace_ms=grace,
        )
        result = StreamsApplication(
            Topology([join.sub_topology("join", output="pairs")]),
            StreamsConfig({"application.id": "benchmark", "num.standby.replicas": standbys}),
            topics_root=self.path / "topics",
            run_dir=self.path / "run",
            clients=self._clients,
            launcher=SparkLauncher(self.spark),
            options=RuntimeOptions(max_batch_rows=-(-self.each // self._partitions // batches) + 1_000),
        ).run()
        return result.rows_out

    def write_slices(self) -> None:
        """Both streams as one Parquet file per micro-batch, in the order of time; and a few rows of each to warm up."""
        import pyarrow.parquet as pq

        for name in STREAMS:
            table = pq.read_table(self.path / "raw" / name)
            for folder, rows, files in (("slices", self.each, BATCHES), ("warm", min(self.each, 20_000), 2)):
                (self.path / folder / name).mkdir(parents=True)
                for part in range(files):
                    low, high = rows * part // files, rows * (part + 1) // files
                    path = self.path / folder / name / f"{part:06d}.parquet"
                    pq.write_table(table.slice(low, high - low), path)
                    # Spark reads files in the order of their times.
                    os.utime(path, (part + 1, part + 1))

    def stream(self, folder: str) -> int:
        """The join by Structured Streaming, a file of each stream per micro-batch; gives the rows of the result."""
        from pyspark.sql import functions as f

        out = self.path / f"{folder}-out"
        for gone in (out, self.path / f"{folder}-checkpoint"):
            shutil.rmtree(gone, ignore_errors=True)
        self.spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
        sides = []
        for name in STREAMS:
            source = self.path / folder / name
            schema = self.spark.read.parquet(str(source)).schema
            rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
            # A row is late if it is not newer than the watermark, so that must be behind.
            timed = rows.withColumn("at", f.timestamp_millis("time")).withWatermark("at", "1 second")
            sides.append(timed.alias(name))
        near = f.expr(
            f"shown.key = clicked.key AND clicked.at >= shown.at - INTERVAL {WINDOW_MS} MILLISECONDS "
            f"AND clicked.at <= shown.at + INTERVAL {WINDOW_MS} MILLISECONDS"
        )
        pairs = (
            sides[0]
            .join(sides[1], near)
            .select(
                *("shown.key", "shown.time", "shown.value"),
                f.col("clicked.time").alias("time_right"),
                f.col("clicked.value").alias("value_right"),
            )
        )
        query = (
            pairs.writeStream.format("parquet")
            .option("checkpointLocation", str(self.path / f"{folder}-checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
        return self.spark.read.parquet(str(out)).count()

    def sql(self, left: str, right: str) -> float:
        """Seconds of the better of Spark SQL's two joins; the rows go nowhere, so they cost Spark nothing."""
        times = []
        for hint in ("/*+ MERGE(r) */", "/*+ SHUFFLE_HASH(r) */"):
            begin = time.perf_counter()
            self.spark.sql(SQL.format(hint=hint, left=left, right=right)).write.format("noop").mode("overwrite").save()
            times.append(time.perf_counter() - begin)
        return min(times)

    def count(self, left: str, right: str) -> int:
        """The number of joined rows by Spark SQL."""
        return self.spark.sql(SQL.format(hint="", left=left, right=right)).count()


def _timed(work: Callable[[], int]) -> Work:
    """The work, called once before to warm everything up."""
    work()
    return work


def streaming(
    rows: int, standbys: int = 0, clients: int = 2, partitions: int = PARTITIONS, batches: int = BATCHES
) -> Work:
    """Many micro-batches; each leaves output, changelog and a commit."""
    bench = _Bench(rows, clients, partitions)
    bench.write_topics(sort=True)
    return _timed(lambda: bench.join(batches=batches, standbys=standbys))


def structured_streaming(rows: int) -> Work:
    """Spark's own join of two streams: as many micro-batches of the same rows, its state store, results as Parquet."""
    bench = _Bench(rows)
    bench.write_slices()
    bench.stream("warm")
    return lambda: bench.stream("slices")


def polars_alone(rows: int) -> Work:
    """All at once, in memory, in one process with all processors."""
    import polars as pl

    bench = _Bench(rows)
    near = (pl.col("time") - pl.col("time_right")).abs() <= WINDOW_MS

    def work() -> int:
        left, right = (pl.scan_parquet(bench.path / "raw" / name / "*.parquet") for name in STREAMS)
        return left.join(right, on="key").filter(near).collect().height

    return _timed(work)


def streaming_with_standbys(rows: int) -> Work:
    """The same, and another client replays every changelog."""
    return streaming(rows, standbys=1)


def bounded_on_topics(rows: int) -> Work:
    """One batch on topics that are there."""
    bench = _Bench(rows)
    bench.write_topics(sort=False)
    return _timed(lambda: bench.join(batches=1))


def bounded_on_parquet(rows: int) -> Work:
    """Topics are written first."""
    bench = _Bench(rows)

    def work() -> int:
        bench.write_topics(sort=False)
        return bench.join(batches=1)

    return _timed(work)


def _sql_work(bench: _Bench, left: str, right: str) -> Work:
    rows_out = bench.count(left, right)
    bench.sql(left, right)
    return lambda: Timed(bench.sql(left, right), rows_out)


def sql_on_buckets(rows: int) -> Work:
    """Both streams as tables with as many buckets as the topics have partitions."""
    bench = _Bench(rows)
    for name in STREAMS:
        frame = bench.spark.read.parquet(str(bench.path / "raw" / name))
        frame.write.bucketBy(PARTITIONS, "key").saveAsTable(name)
    return _sql_work(bench, *STREAMS)


def sql_on_parquet(rows: int) -> Work:
    """The files as they are."""
    bench = _Bench(rows)
    for name in STREAMS:
        bench.spark.read.parquet(str(bench.path / "raw" / name)).createOrReplaceTempView(name)
    return _sql_work(bench, *STREAMS)
