"""Reading what a run has committed: its outputs as Arrow tables. What is committed is known in `commits`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from task_assignor.runtime.commits import CommitLog, RunLayout, open_committed, read_application
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.records import CommitRecord, FileRef
from task_assignor.sdk import TaskId


def committed_outputs(run_dir: str | Path, output: str) -> Iterator[tuple[CommitRecord, TaskId, FileRef]]:
    """The files of an output that count, by commit, then task.

    Raises:
        CommitLogException: there is no such run or output, or a commit record cannot be read.
    """
    layout = RunLayout(run_dir)
    known = read_application(layout)["outputs"]
    if output not in known:
        raise CommitLogException(
            f"The run in {run_dir} has no output {output!r}; its outputs: {', '.join(sorted(known))}."
        )
    for record in CommitLog(run_dir).records():
        for task in sorted(record.tasks):
            file = record.tasks[task].outputs.get(output)
            if file is not None and file.topic:
                raise CommitLogException(
                    f"The output {output!r} of the run in {run_dir} is the topic {file.topic!r} of "
                    f"{read_application(layout)['topicsRoot']}. Maybe read it from there, with isolation.level=read_committed."
                )
            if file is not None:
                yield record, task, file


def committed_files(run_dir: str | Path, output: str) -> list[str]:
    """Paths or URLs of the Arrow files of an output that count, by commit, then task.

    Raises:
        CommitLogException: there is no such run or output, or a commit record cannot be read.
    """
    storage = RunLayout(run_dir).storage
    return [storage.locate(file.path) for _, _, file in committed_outputs(run_dir, output)]


def output_schema(run_dir: str | Path, output: str) -> pa.Schema | None:
    """The columns of an output: as declared, else those of its committed files; None: neither is there.

    Raises:
        CommitLogException: there is no such run or output, or a commit record cannot be read.
        CorruptLogException: a committed file cannot be read.
    """
    layout = RunLayout(run_dir)
    files = committed_outputs(run_dir, output)
    declared = read_application(layout)["outputs"].get(output)
    if declared is not None:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(declared)))
    # One file for each set of columns: they differ at most in columns that have only nulls in some batches.
    examples = {file.columns: (record, task, file) for record, task, file in files}
    schemas = [
        open_committed(layout, file, "output", output, task.partition, record.tasks[task].batch).schema
        for record, task, file in examples.values()
    ]
    return pa.unify_schemas(schemas) if schemas else None


def read_output(run_dir: str | Path, output: str) -> pa.Table:
    """All committed rows of an output, by commit, then task; uncommitted files are not looked at.

    Raises:
        CommitLogException: there is no such run or output, or a commit record cannot be read.
        CorruptLogException: a committed file is missing or is not what was committed.
    """
    layout = RunLayout(run_dir)
    tables = [
        open_committed(layout, file, "output", output, task.partition, record.tasks[task].batch)
        for record, task, file in committed_outputs(run_dir, output)
    ]
    if not tables:
        schema = output_schema(run_dir, output)
        return pa.table({}) if schema is None else schema.empty_table()
    return pa.concat_tables(tables, promote_options="default")
