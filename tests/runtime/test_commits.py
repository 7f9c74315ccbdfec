"""The commit log: only what it names exists, and a log that is not whole is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    ClientTasks,
    CommitLog,
    CommitLogException,
    CommitRecord,
    CorruptLogException,
    FileRef,
    RebalanceLog,
    RebalanceRecord,
    TaskCommit,
    committed_files,
    output_schema,
    read_output,
)
from task_assignor.runtime.commits import RunLayout
from task_assignor.runtime.files import write_arrow, write_json
from task_assignor.sdk import TaskId


class Folder:
    """A run's folder, written by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = RunLayout(root)
        write_json(self.layout.application, {"applicationId": "app", "outputs": {"out": None}})

    def file(self, partition: int, batch: int, generation: int, rows: pa.Table) -> FileRef:
        """An output file; it does not count yet."""
        path = self.layout.output("out", TaskId(0, partition), batch, generation)
        write_arrow(path, rows)
        return FileRef(path.relative_to(self.root).as_posix(), rows.num_rows)

    def record(self, batch: int, files: dict[int, FileRef], generation: int = 1) -> CommitRecord:
        """A commit record of those files."""
        tasks = {
            TaskId(0, partition): TaskCommit(
                TaskId(0, partition),
                "client",
                "process",
                "member",
                "pid 7",
                generation,
                {"topic": (batch, batch + 1)},
                {"out": file},
                {"store": FileRef("x", 3)},
                9,
                {"late": 1},
                0.25,
            )
            for partition, file in files.items()
        }
        return CommitRecord(batch, "app", generation, 1_000, tasks)


def _rows(*values: int) -> pa.Table:
    return pa.table({"x": list(values)})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_readers_see_committed_files_only_in_order(folder: Folder) -> None:
    log = CommitLog(folder.root)
    late = {1: folder.file(1, 0, 1, _rows(3)), 0: folder.file(0, 0, 2, _rows(1, 2))}
    folder.file(0, 0, 1, _rows(666))
    assert committed_files(folder.root, "out") == []
    assert read_output(folder.root, "out").num_rows == 0
    log.append(folder.record(0, late))
    folder.file(0, 1, 1, _rows(667))
    log.append(folder.record(1, {1: folder.file(1, 1, 1, _rows(4))}))
    assert read_output(folder.root, "out").column("x").to_pylist() == [1, 2, 3, 4]
    assert [path.parent.name for path in committed_files(folder.root, "out")] == ["0", "1", "1"]
    assert output_schema(folder.root, "out") == _rows().schema.set(0, pa.field("x", pa.int64()))


def test_a_record_comes_back_as_it_was(folder: Folder) -> None:
    record = folder.record(0, {0: folder.file(0, 0, 1, _rows(1, 2))})
    CommitLog(folder.root).append(record)
    (found,) = CommitLog(folder.root).records()
    assert record == found
    assert (found.rows_in, found.rows_out) == (1, 2)


def test_a_batch_is_committed_once(folder: Folder) -> None:
    """A second coordinator on the same folder finds out before anything of it counts."""
    mine, other = CommitLog(folder.root), CommitLog(folder.root)
    other.append(folder.record(0, {0: folder.file(0, 0, 1, _rows(1))}, generation=1))
    with pytest.raises(CommitLogException, match="Batch 0 has been committed by somebody else"):
        mine.append(folder.record(0, {0: folder.file(0, 0, 2, _rows(2))}, generation=2))
    assert read_output(folder.root, "out").column("x").to_pylist() == [1]
    assert list(folder.root.rglob("*.tmp")) == []


def test_a_generation_belongs_to_one_coordinator(folder: Folder) -> None:
    log = RebalanceLog(folder.root)
    assert log.last_generation == 0
    tasks = ClientTasks([TaskId(0, 1), TaskId(0, 0)], [TaskId(1, 0)])
    record = RebalanceRecord(4, "why", {"c-1": ("c", tasks)}, 7)
    log.append(record)
    assert (log.last_generation, list(log.records())) == (4, [record])
    with pytest.raises(CommitLogException, match="Generation 4 belongs to somebody else"):
        RebalanceLog(folder.root).append(record)


def test_a_log_with_a_gap_is_refused(folder: Folder) -> None:
    log = CommitLog(folder.root)
    for batch in range(3):
        log.append(folder.record(batch, {}))
    folder.layout.commit(1).unlink()
    with pytest.raises(CommitLogException, match=r"has no batch 1, but later ones: the next file is 0+2\.json"):
        list(CommitLog(folder.root).records())


@pytest.mark.parametrize("change", [b"{", b"[]", b'{"formatVersion": 7}'])
def test_a_record_that_cannot_be_read_is_named(folder: Folder, change: bytes) -> None:
    CommitLog(folder.root).append(folder.record(0, {}))
    folder.layout.commit(0).write_bytes(change)
    with pytest.raises(CommitLogException, match=r"commit record of batch 0 cannot be read: .*0+\.json"):
        CommitLog(folder.root).record(0)
    with pytest.raises(CommitLogException, match="Batch 5 is not committed"):
        CommitLog(folder.root).record(5)


def test_a_committed_file_that_changed_is_named(folder: Folder) -> None:
    file = folder.file(0, 0, 1, _rows(1, 2))
    CommitLog(folder.root).append(folder.record(0, {0: file}))
    write_arrow(folder.root / file.path, _rows(1))
    with pytest.raises(CorruptLogException, match="output file of out, partition 0, batch 0 has 1 rows, but 2 were"):
        read_output(folder.root, "out")
    (folder.root / file.path).unlink()
    with pytest.raises(CorruptLogException, match="it is missing"):
        read_output(folder.root, "out")


def test_columns_that_differ_between_batches_are_told_with_advice(folder: Folder) -> None:
    log = CommitLog(folder.root)
    for batch, rows in enumerate((_rows(1), pa.table({"x": ["text"]}))):
        log.append(folder.record(batch, {0: folder.file(0, batch, 1, rows)}))
    with pytest.raises(
        CommitLogException, match=r"do not have the same columns .* Maybe declare them: Output\('out', schema\)"
    ):
        read_output(folder.root, "out")


def test_what_is_no_run_is_told(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(CommitLogException, match="There is no run in"):
        read_output(tmp_path / "elsewhere", "out")
    with pytest.raises(CommitLogException, match="no output 'other'; its outputs: out"):
        read_output(folder.root, "other")
    folder.layout.application.write_text(json.dumps("x")[:-1])
    with pytest.raises(CommitLogException, match="description of the run cannot be read"):
        read_output(folder.root, "out")
