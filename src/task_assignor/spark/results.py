"""Results of a run as Spark DataFrames. What is committed is known in `runtime`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from task_assignor.runtime import RunResult, output_schema, read_output
from task_assignor.runtime.commits import RunLayout
from task_assignor.runtime.outputs import committed_outputs
from task_assignor.spark.jobs import even_shares
from task_assignor.spark.source import SealedFile, frame_of_files


def read_results(spark: SparkSession, run: str | Path | RunResult, output: str) -> DataFrame:
    """The committed rows of an output, as a DataFrame. What is committed later is not in it.

    Args:
        spark: the session.
        run: what came of a run, or its folder; every executor must reach the latter.
        output: name of the output.

    Raises:
        StreamsException: there is no such run or output, or a file of it cannot be read.
    """
    run_dir = RunLayout(run.run_dir if isinstance(run, RunResult) else run).run_dir
    schema = output_schema(run_dir, output)
    if schema is None:
        # Nothing declared and nothing committed; an output that is not known is an error here.
        schema = read_output(run_dir, output).schema
    files = [
        SealedFile(run_dir, file.path, "output", output, task.partition, record.tasks[task].batch, file.seal)
        for record, task, file in committed_outputs(run_dir, output)
    ]
    for file in files:
        file.check()
    groups = even_shares(files, spark.sparkContext.defaultParallelism, lambda file: file.seal.rows)
    return frame_of_files(spark, groups, schema, with_offsets=False)
