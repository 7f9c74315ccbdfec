"""Reading what a run has committed: its outputs as Arrow tables. What is committed is known in `commits`.

Rows come by task, within a task in the order in which it gave them: whichever batches were committed together, and whichever
files were merged, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from task_assignor.runtime.arrow.frames import fitted, no_rows
from task_assignor.runtime.errors import CommitLogException, CorruptLogException
from task_assignor.runtime.machines.coordinator.progress import KEPT_MARKERS
from task_assignor.runtime.machines.output_files import OutputFile
from task_assignor.runtime.machines.records import Marker
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.layout import RunLayout, open_committed, read_application
from task_assignor.runtime.topics.topic import Topic
from task_assignor.sdk.text import shown


def list_markers(run_dir: str | Path) -> tuple[Marker, ...]:
    """The markers of a run that outputs can be read by, oldest first; `StreamsApplication.request_marker` asks for one.

    Raises:
        CommitLogException: there is no such run, or a commit record cannot be read.
    """
    read_application(RunLayout(run_dir))
    return CommitLog(run_dir).outputs_and_markers()[1]


def committed_offsets(run_dir: str | Path, topic: str) -> dict[int, int]:
    """How far a run has read a topic: no later run in this folder needs the rows before (`delete_records`).

    Unless the folder is put back from an older copy: then it reads again what came later. What the newest commit record says is
    not in it: a power failure may tear that one, and its batches are done anew then.

    Args:
        run_dir: folder of the run, a path or a URL.
        topic: a topic that it reads.

    Returns:
        Partition -> the offset after the last row that counts, of those that the run has read at all.

    Raises:
        CommitLogException: there is no such run or topic, or a commit record cannot be read.
        TopicException: a topic of files is not where the run last found it, was written anew, or has other rows than those
            that the run has read: rows at these offsets would be ones that it has not.
    """
    run = read_application(RunLayout(run_dir))
    known = run.identity["topics"]
    if topic not in known:
        raise CommitLogException(
            f"The run in {run_dir} reads no topic {shown(topic)}; its topics: {', '.join(sorted(known))}."
        )
    read = dict(sorted(CommitLog(run_dir).offsets().get(topic, {}).items()))
    if run.are_topics_files and any(seal for _, seal in read.values()):
        found = Topic.open(run.topics_root, topic, known[topic]["id"])
        starts, seals = found.start_offsets(), [""] * found.spec.partitions
        for partition, (offset, seal) in read.items():
            starts[partition], seals[partition] = max(offset, starts[partition]), seal
        found.check(starts, seals)
    return {partition: offset for partition, (offset, _) in read.items()}


def committed_outputs(run_dir: str | Path, output: str, marker: str | None = None) -> list[OutputFile]:
    """The files of an output that count, by task, then batch.

    Args:
        run_dir: folder of the run.
        output: the output.
        marker: name of the marker as of which they are wanted; None: as they are now.

    Raises:
        CommitLogException: there is no such run, output or marker, or a commit record cannot be read.
    """
    layout = RunLayout(run_dir)
    known = read_application(layout).outputs
    if output not in known:
        raise CommitLogException(
            f"The run in {run_dir} has no output {output!r}; its outputs: {', '.join(sorted(known))}."
        )
    files, found = CommitLog(run_dir).outputs_and_markers()
    topic = files.topic(output)
    if topic:
        raise CommitLogException(
            f"The output {output!r} of the run in {run_dir} is the topic {topic!r} of "
            f"{read_application(layout).topics_root}. Maybe read it from there, with isolation.level=read_committed."
        )
    if marker is None:
        return list(files.of(output))
    commits = [one.commit for one in found if one.name == marker]
    if not commits:
        names = ", ".join(repr(one.name) for one in found) or "none"
        raise CommitLogException(
            f"The run in {run_dir} has no marker {marker!r}; its markers: {names}. The newest {KEPT_MARKERS} are kept."
        )
    return list(files.of(output, commits[-1]))


def committed_files(run_dir: str | Path, output: str, marker: str | None = None) -> list[str]:
    """Paths or URLs of the files of an output that count, by task, then batch.

    While the run goes on small files are merged into larger ones; those that are listed here stay for `output_retention_ms`.

    Args:
        run_dir: folder of the run.
        output: the output.
        marker: name of the marker as of which they are wanted; None: as they are now.

    Raises:
        CommitLogException: there is no such run, output or marker, or a commit record cannot be read.
    """
    storage = RunLayout(run_dir).storage
    return [storage.locate(found.file.path) for found in committed_outputs(run_dir, output, marker)]


def output_schema(run_dir: str | Path, output: str) -> pa.Schema | None:
    """The columns of an output: as declared, else those of its committed files; None: neither is there.

    Raises:
        CommitLogException: there is no such run or output, or a commit record cannot be read.
        CorruptLogException: a committed file cannot be read.
    """
    while True:
        files = committed_outputs(run_dir, output)
        declared = _declared(run_dir, output)
        if declared is not None:
            return declared
        # One file for each set of columns: they differ in columns that have only nulls in some batches, or that were gained.
        examples = {found.file.columns: found for found in files}
        tables = _open(run_dir, output, list(examples.values()))
        if tables is not None:
            # Whatever one file says: others may have null there, or lack the column.
            columns = pa.unify_schemas([table.schema for table in tables]) if tables else ()
            return pa.schema([column.with_nullable(True) for column in columns]) if tables else None


def _declared(run_dir: str | Path, output: str) -> pa.Schema | None:
    return read_application(RunLayout(run_dir)).declared(output)


def _open(
    run_dir: str | Path, output: str, files: Sequence[OutputFile], marker: str | None = None
) -> list[pa.Table] | None:
    """The tables of some files; None: one was merged with others meanwhile, so that there is another list of files now.

    Raises:
        CorruptLogException: a file cannot be read, and counts.
    """
    layout = RunLayout(run_dir)
    try:
        return [
            open_committed(layout, found.file, "output", output, found.task.partition, found.first) for found in files
        ]
    except CorruptLogException:
        if set(files) <= set(committed_outputs(run_dir, output, marker)):
            raise
        return None


def read_output(run_dir: str | Path, output: str, marker: str | None = None) -> pa.Table:
    """All committed rows of an output, by task, then as the task gave them; uncommitted files are not looked at.

    Args:
        run_dir: folder of the run.
        output: the output.
        marker: name of the marker as of which they are wanted; None: as they are now.

    Raises:
        CommitLogException: there is no such run, output or marker, or a commit record cannot be read.
        CorruptLogException: a committed file is missing or is not what was committed.
    """
    tables = None
    while tables is None:
        tables = _open(run_dir, output, committed_outputs(run_dir, output, marker), marker)
    declared = _declared(run_dir, output)
    if not tables:
        return pa.table({}) if declared is None else no_rows(declared)
    rows = pa.concat_tables(tables, promote_options="default")
    # Columns that it has gained may not be in any file yet; and Parquet has no seconds, for one.
    return rows if declared is None else fitted(rows, declared)
