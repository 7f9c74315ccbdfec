"""Results of a run as Spark DataFrames. What is committed is known in `runtime`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from task_assignor.runtime import CommitLog, RunResult, output_schema, read_output
from task_assignor.spark.jobs import even_shares
from task_assignor.spark.source import FileSlice, check_rows, frame_of_files


def read_results(spark: SparkSession, run: str | Path | RunResult, output: str) -> DataFrame:
    """The committed rows of an output, as a DataFrame. What is committed later is not in it.

    Args:
        spark: the session.
        run: what came of a run, or its folder; every executor must reach the latter.
        output: name of the output.

    Raises:
        StreamsException: there is no such run or output, or a file of it cannot be read.
    """
    run_dir = (run.run_dir if isinstance(run, RunResult) else Path(run)).absolute()
    schema = output_schema(run_dir, output)
    if schema is None:
        # Nothing declared and nothing committed; an output that is not known is an error here.
        schema = read_output(run_dir, output).schema
    slices = []
    for record in CommitLog(run_dir).records():
        for task in sorted(record.tasks):
            file = record.tasks[task].outputs.get(output)
            if file is not None:
                slices.append(FileSlice(str(run_dir / file.path), output, task.partition, record.batch, file.rows))
    for piece in slices:
        # An error in a Spark task would be tried a thousand times before anybody sees it.
        check_rows(piece)
    groups = even_shares(slices, spark.sparkContext.defaultParallelism, lambda piece: piece.rows)
    return frame_of_files(spark, groups, schema, with_offsets=False)
