"""Results of a run as Spark DataFrames. What is committed is known in `runtime`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from task_assignor.runtime import RunResult
from task_assignor.runtime.run_folder.layout import RunLayout
from task_assignor.spark.session import require_classic
from task_assignor.spark.source import frame_of, rows_of_output


def read_results(spark: SparkSession, run: str | Path | RunResult, output: str, marker: str | None = None) -> DataFrame:
    """The committed rows of an output, as a DataFrame. What is committed later is not in it.

    Args:
        spark: the session.
        run: what came of a run, or its folder; every executor must reach the latter.
        output: name of the output.
        marker: name of the marker as of which they are wanted; None: as they are now.

    Raises:
        StreamsException: there is no such run, output or marker, or a file of it cannot be read.
    """
    run_dir = RunLayout(run.run_dir if isinstance(run, RunResult) else run).run_dir
    require_classic(spark)
    splits = spark.sparkContext.defaultParallelism
    options = {"run_dir": run_dir, "output": output, **({} if marker is None else {"marker": marker})}
    return frame_of(spark, rows_of_output(run_dir, output, marker), options, with_offsets=False, splits=splits)
