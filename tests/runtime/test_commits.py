"""The commit log: only what it names exists, and a log that is not whole is refused."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    ClientTasks,
    CommitLog,
    CommitLogException,
    CommitRecord,
    CorruptLogException,
    FileRef,
    ProcessorException,
    RebalanceRecord,
    TaskCommit,
    committed_files,
    output_schema,
    read_output,
    write_topic,
)
from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedProgress
from task_assignor.runtime.run_folder.checkpoints import Checkpoints, Written
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.layout import APPLICATION, RunDescription, RunLayout
from task_assignor.runtime.storage import LocalStorage, as_arrow, as_document
from task_assignor.sdk import TaskId
from tests.runtime.support import application, commit_file, count_topology


class Folder:
    """A run's folder, written by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = RunLayout(root)
        description = RunDescription("app", "a run", {}, "topics", {"out": None})
        self.layout.storage.put(APPLICATION, as_document(description))

    def file(self, partition: int, batch: int, generation: int, rows: pa.Table) -> FileRef:
        """An output file; it does not count yet."""
        name = self.layout.output("out", TaskId(0, partition), batch, generation)
        data, seal = as_arrow(rows)
        self.layout.storage.put(name, data)
        return FileRef(name, seal, tuple((field.name, str(field.type)) for field in rows.schema))

    def record(self, number: int, files: dict[int, FileRef], generation: int = 1, epoch: int = 1) -> CommitRecord:
        """A commit record of those files."""
        tasks = {
            TaskId(0, partition): TaskCommit(
                TaskId(0, partition),
                number,
                "client",
                "process",
                "member",
                "pid 7",
                generation,
                {"topic": (number, number + 1)},
                {"out": file},
                {"store": FileRef(file.path, file.seal)},
                9,
                {"late": 1},
                0.25,
            )
            for partition, file in files.items()
        }
        return CommitRecord(number, "app", epoch, generation, 1_000, tasks)


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
    assert [Path(file).parent.name for file in committed_files(folder.root, "out")] == ["0", "1", "1"]
    assert output_schema(folder.root, "out") == _rows().schema.set(0, pa.field("x", pa.int64()))


def test_the_records_of_no_run_are_an_error(tmp_path: Path) -> None:
    """Who checks them, as docs/guarantees.md does, would check none and be content."""
    log = CommitLog(tmp_path / "rum")
    for read in (log.records, log.rebalances):
        with pytest.raises(CommitLogException, match=r"There is no run in .*/rum: .*application.json is missing"):
            list(read())


def test_a_record_comes_back_as_it_was(folder: Folder) -> None:
    record = folder.record(0, {0: folder.file(0, 0, 1, _rows(1, 2))})
    CommitLog(folder.root).append(record)
    (found,) = CommitLog(folder.root).records()
    assert record == found
    assert (found.rows_in, found.rows_out) == (1, 2)


def test_a_commit_is_made_once(folder: Folder) -> None:
    """A second coordinator on the same folder finds out before anything of it counts."""
    mine, other = CommitLog(folder.root), CommitLog(folder.root)
    other.append(folder.record(0, {0: folder.file(0, 0, 1, _rows(1))}, generation=1))
    with pytest.raises(CommitLogException, match="Commit 0 has been made by somebody else"):
        mine.append(folder.record(0, {0: folder.file(0, 0, 2, _rows(2))}, generation=2))
    assert read_output(folder.root, "out").column("x").to_pylist() == [1]
    assert list(folder.root.rglob("*.tmp")) == []


@pytest.mark.parametrize("commits", range(3, 40, 3))
def test_who_opens_an_epoch_stops_whoever_wrote_before(folder: Folder, commits: int) -> None:
    """A coordinator that was asleep finds its next number taken or its last one gone, whatever was tidied up meanwhile."""
    asleep = CommitLog(folder.root)
    asleep.open_epoch("app", "the first", 0)
    asleep.append(folder.record(1, {0: folder.file(0, 0, 1, _rows(1))}))
    new = CommitLog(folder.root)
    opening = new.open_epoch("app", "the second", 0)
    assert (opening.number, opening.epoch, opening.generation) == (2, 2, 1)
    for number in range(3, commits):
        new.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        if number % 5 == 0:
            new.write_checkpoint(number, SavedProgress())
    newest = new.checkpoint()
    told = (
        r"Commit 2 has been made by somebody else \(the second\)|Commit 2 cannot follow commit 1, which somebody else"
    )
    with pytest.raises(CommitLogException, match=told):
        asleep.append(folder.record(2, {0: folder.file(0, 2, 1, _rows(2))}))
    asleep.write_checkpoint(1, SavedProgress())
    assert CommitLog(folder.root).checkpoint().number == max(newest.number, 1)
    assert [record.number for record in CommitLog(folder.root).records()] == list(range(commits))


def test_a_coordinator_that_is_replaced_while_it_begins_does_not_go_on_after_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read on from what the new one had written by then: two went on under one generation, which is in the names of files."""
    write_topic(tmp_path / "topics", "left", pa.table({"key": [1], "at": [1]}), partitions=1, key=["key"])
    really = CommitLog.open_epoch

    def open_and_sleep(self: CommitLog, *who: Any) -> CommitRecord:
        opening = really(self, *who)
        new = CommitLog(self.layout.run_dir)
        number = really(new, "test", "the second", 0).number + 1
        new.append(CommitRecord(number, "test", 2, 1, 0, rebalance=RebalanceRecord(1, "why", {})))
        return opening

    monkeypatch.setattr(CommitLog, "open_epoch", open_and_sleep)
    with pytest.raises(CommitLogException, match=r"Commit 1 has been made by somebody else \(the second\)"):
        application(tmp_path, count_topology(), clients=1).run()
    assert CommitLog(tmp_path / "run").last == 2


def test_who_opens_an_epoch_while_the_one_before_writes_checkpoints_reads_from_the_newest(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records after an older one have gone by then: a new run was told that its folder lacks them."""
    asleep = CommitLog(folder.root)
    asleep.open_epoch("app", "the first", 0)
    for number in range(1, 10):
        asleep.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
    really, due = Checkpoints.newest, [3, 6, 8]

    def newest(self: Checkpoints) -> Checkpoint:
        found = really(self)
        numbers, due[:] = due[:], []
        for number in numbers:
            asleep.write_checkpoint(number, SavedProgress())
        return found

    monkeypatch.setattr(Checkpoints, "newest", newest)
    new = CommitLog(folder.root)
    assert new.open_epoch("app", "the second", 0).number == 10
    checkpoint, records = new.opened()
    assert (checkpoint.number, [record.number for record in records]) == (8, [9, 10])


def test_files_do_not_grow_with_the_number_of_starts(folder: Folder) -> None:
    """Each leaves a record that its predecessor would run into; when nobody can any more it goes."""
    number = -1
    for start in range(60):
        log = CommitLog(folder.root)
        number = log.open_epoch("app", f"start {start}", 0).number
        for _ in range(start % 4):
            number += 1
            log.append(folder.record(number, {}))
        log.write_checkpoint(number, SavedProgress())
    assert len(list((folder.root / "commits").iterdir())) <= 12
    told = [record.opened_by for record in CommitLog(folder.root).records() if record.opened_by]
    assert told == [f"start {start}" for start in range(60)]


def test_the_history_is_bounded_and_so_is_what_is_read_at_once(folder: Folder) -> None:
    """What commits said is kept of the newest; readers of outputs miss nothing."""
    log = CommitLog(folder.root, Upkeep(history_bytes=8_000))
    for number in range(300):
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        if number % 5 == 4:
            log.write_checkpoint(number, SavedProgress())
    sizes = [path.stat().st_size for path in sorted((folder.root / "history").iterdir())]
    assert sum(sizes) <= 8_000 + max(sizes), "one more than counts, which the checkpoint before has"
    assert max(sizes) <= 3 * 8_000 / 16 + 1_000
    numbers = [record.number for record in CommitLog(folder.root).records()]
    assert numbers == list(range(numbers[0], 300))
    assert 10 < len(numbers) < 200
    assert read_output(folder.root, "out").column("x").to_pylist() == list(range(300))


def test_a_replaced_coordinator_that_wakes_up_while_it_tidies_takes_nothing_from_the_new_one(folder: Folder) -> None:
    asleep = CommitLog(folder.root)
    asleep.open_epoch("app", "the first", 0)
    for number in range(1, 10):
        asleep.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
    asleep.write_checkpoint(4, SavedProgress())
    before = asleep.checkpoint()
    asleep.write_checkpoint(9, SavedProgress())
    now = asleep.checkpoint()
    new = CommitLog(folder.root)
    new.open_epoch("app", "the second", 0)
    for number in range(11, 40):
        new.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        if number % 5 == 0:
            new.write_checkpoint(number, SavedProgress())
    asleep._checkpoints._tidy(before, now, 0)
    assert CommitLog(folder.root).checkpoint().number == 35
    assert [record.number for record in CommitLog(folder.root).records()] == list(range(40))


def test_assignments_are_in_the_log(folder: Folder) -> None:
    log = CommitLog(folder.root)
    tasks = ClientTasks((TaskId(0, 0), TaskId(0, 1)), (TaskId(1, 0),))
    rebalance = RebalanceRecord(4, "why", {"c-1": ("c", tasks)})
    log.append(CommitRecord(0, "app", 1, 4, 0, {}, rebalance))
    assert list(CommitLog(folder.root).rebalances()) == [rebalance]


def _checkpointed(folder: Folder, commits: int, every: int) -> None:
    log = CommitLog(folder.root)
    for number in range(commits):
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        if number % every == every - 1:
            log.write_checkpoint(number, SavedProgress(number + 1))


def test_checkpoints_keep_the_log_small_and_what_it_says(folder: Folder) -> None:
    """Files do not grow with the commits; readers, and who goes on, see what they would have seen without."""
    _checkpointed(folder, 203, every=10)
    log = CommitLog(folder.root)
    assert [record.number for record in log.records()] == list(range(203))
    assert read_output(folder.root, "out").column("x").to_pylist() == list(range(203))
    checkpoint = log.checkpoint()
    assert (checkpoint.number, checkpoint.state, checkpoint.columns) == (
        199,
        SavedProgress(200),
        {"out": {"x": "int64"}},
    )
    assert [record.number for record in log.records_after(checkpoint)] == [200, 201, 202]
    names = {entry: len(list((folder.root / entry).iterdir())) for entry in ("commits", "checkpoints", "history")}
    assert names["checkpoints"] == 2
    assert names["commits"] <= 10 + 3 + 1
    assert names["history"] <= 8
    history = sum(path.stat().st_size for path in (folder.root / "history").iterdir())
    assert history < 200 * 100, "records of 600 bytes and more, compressed"
    assert log.open_epoch("app", "me", 0).number == 203


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_a_file_of_the_history_that_cannot_be_read_stays_listed_alone(
    folder: Folder, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """A copy of it still takes its place. It is told once; the log goes on meanwhile, and outputs need no history.

    Where one was missing no checkpoint was written any more.
    """
    _checkpointed(folder, 20, every=10)
    victim = max((folder.root / "history").iterdir())
    whole = victim.read_bytes()
    if what == "missing":
        victim.unlink()
    else:
        victim.write_bytes(whole[:90] + bytes([whole[90] ^ 1]) + whole[91:])
    log = CommitLog(folder.root)
    for number in range(20, 200):
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        if number % 10 == 9:
            log.write_checkpoint(number, SavedProgress())
            assert log.checkpoint().number == number
    assert caplog.text.count(f"A file of the history is {what}: {victim}") == 1
    with pytest.raises(CommitLogException, match=str(victim)):
        list(CommitLog(folder.root).records())
    assert read_output(folder.root, "out").num_rows == 200
    victim.write_bytes(whole)
    assert [record.number for record in CommitLog(folder.root).records()] == list(range(200))


def test_what_is_committed_while_a_checkpoint_is_written_is_in_the_next_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog(folder.root)
    write, numbers = Checkpoints.write, iter(range(4, 100))

    def write_slowly(self: Checkpoints, checkpoint: Checkpoint, replaced: Sequence[Written]) -> None:
        write(self, checkpoint, replaced)
        number = next(numbers)
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))

    monkeypatch.setattr(Checkpoints, "write", write_slowly)
    for number in range(4):
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
    for number in range(3, 8):
        log.write_checkpoint(number, SavedProgress())
    assert read_output(folder.root, "out").column("x").to_pylist() == list(range(9))


@pytest.mark.parametrize("commits", [15, 25])
def test_a_damaged_checkpoint_is_passed_over(folder: Folder, commits: int, caplog: pytest.LogCaptureFixture) -> None:
    _checkpointed(folder, commits, every=10)
    newest = max((folder.root / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-9])
    log = CommitLog(folder.root)
    assert [record.number for record in log.records()] == list(range(commits))
    assert "cannot be read" in caplog.text
    assert log.open_epoch("app", "me", 0).number == commits


def test_a_log_without_a_checkpoint_that_can_be_read_is_told(folder: Folder) -> None:
    _checkpointed(folder, 35, every=10)
    for path in (folder.root / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CommitLogException, match=r"The checkpoint .*0+29\.json cannot be read"):
        list(CommitLog(folder.root).records())
    _checkpointed(Folder(folder.root / "other"), 35, every=10)
    for path in (folder.root / "other" / "history").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CommitLogException, match=r"A file of the history cannot be read: .*json"):
        list(CommitLog(folder.root / "other").records())
    assert read_output(folder.root / "other", "out").num_rows == 35, "outputs are read without the history"


def test_a_log_with_a_gap_is_refused(folder: Folder) -> None:
    log = CommitLog(folder.root)
    for batch in range(3):
        log.append(folder.record(batch, {}))
    shutil.rmtree(commit_file(folder.root, 1).parent)
    with pytest.raises(
        CommitLogException, match=r"has no commit 1 \(commits/000000000001\.json\), but later ones: the next is 2\."
    ):
        list(CommitLog(folder.root).records())


def _with_batches(folder: Folder, batches: int) -> list[Path]:
    log = CommitLog(folder.root)
    for batch in range(batches):
        log.append(folder.record(batch, {0: folder.file(0, batch, 1, _rows(batch))}))
    return [commit_file(folder.root, batch) for batch in range(batches)]


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_torn_last_record_is_explained_and_set_aside(
    folder: Folder, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers say what to do; the next coordinator does it, and the batch can be committed again."""
    last = _with_batches(folder, 3)[-1]
    last.write_bytes(last.read_bytes()[:kept])
    with pytest.raises(
        CommitLogException,
        match=r"record 2 .*0+2\.json \(its end is missing\).*never acknowledged: run the application",
    ):
        read_output(folder.root, "out")
    log = CommitLog(folder.root)
    log._set_aside_torn()
    assert "was cut off while it was being written" in caplog.text
    assert log.last == 1
    assert read_output(folder.root, "out").column("x").to_pylist() == [0, 1]
    log.append(folder.record(2, {0: folder.file(0, 2, 2, _rows(7))}))
    log._set_aside_torn()
    assert read_output(folder.root, "out").column("x").to_pylist() == [0, 1, 7]


def test_a_record_of_zeros_is_torn(folder: Folder) -> None:
    """What file systems leave of a file that was never written out."""
    last = _with_batches(folder, 1)[-1]
    last.write_bytes(bytes(last.stat().st_size))
    log = CommitLog(folder.root)
    log._set_aside_torn()
    assert log.last == -1


def test_a_damaged_record_is_an_error_that_says_what_to_do(folder: Folder) -> None:
    paths = _with_batches(folder, 3)
    for path, advice in ((paths[1], "a new run_dir"), (paths[2], "or delete it and run the application again")):
        whole = path.read_bytes()
        for damaged in (whole.replace(b'"rows', b'"Rows').replace(b"1000", b"1001"), whole[:-9] + b"}}}}}}}}\n"):
            path.write_bytes(damaged)
            log = CommitLog(folder.root)
            log._set_aside_torn()
            with pytest.raises(CommitLogException, match=rf"cannot be read: .*checksum is wrong.*{advice}"):
                list(log.records())
        path.write_bytes(whole)
    paths[1].write_bytes(paths[1].read_bytes()[:-9])
    CommitLog(folder.root)._set_aside_torn()
    with pytest.raises(CommitLogException, match=r"record 1 cannot be read.*its end is missing.*a new run_dir"):
        list(CommitLog(folder.root).records())
    with pytest.raises(CommitLogException, match="There is no commit 5"):
        CommitLog(folder.root).record(5)


def test_every_flipped_bit_of_a_record_is_noticed(folder: Folder) -> None:
    path = _with_batches(folder, 1)[0]
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(CommitLogException, match="cannot be read"):
            CommitLog(folder.root).record(0)


def test_a_committed_file_that_changed_is_named(folder: Folder) -> None:
    file = folder.file(0, 0, 1, _rows(1, 2))
    CommitLog(folder.root).append(folder.record(0, {0: file}))
    path = folder.root / file.path
    whole = path.read_bytes()
    path.write_bytes(as_arrow(_rows(1, 2, *range(100)))[0])
    with pytest.raises(CorruptLogException, match=r"output file of out, partition 0, offset 0 .*bytes, but \d+ were"):
        read_output(folder.root, "out")
    path.write_bytes(as_arrow(_rows(1, 3))[0])
    with pytest.raises(CorruptLogException, match=r"its checksum is .*, but .* was written.*new run_dir"):
        read_output(folder.root, "out")
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(CorruptLogException, match="checksum"):
            read_output(folder.root, "out")
    path.unlink()
    with pytest.raises(
        CorruptLogException, match=r"it is missing\).* output_retention_ms ago.*read the output anew.*new run_dir"
    ):
        read_output(folder.root, "out")


@pytest.mark.parametrize("damage", ["missing", "cut", "elsewhere"])
def test_a_file_that_the_coordinator_does_not_see_is_not_committed(folder: Folder, damage: str) -> None:
    """A run folder that is not shared ended without an error and without rows."""
    file = folder.file(0, 0, 1, _rows(1, 2))
    path = folder.root / file.path
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        file = FileRef("../out.arrow", file.seal, file.columns)
    with pytest.raises(CommitLogException) as caught:
        CommitLog(folder.root).append(folder.record(0, {0: file}))
    expected = "is not in" if damage == "elsewhere" else "on storage that the coordinator and all clients share"
    assert expected in str(caught.value)
    assert CommitLog(folder.root).last == -1


def test_a_file_that_the_disk_does_not_show_is_not_said_to_be_elsewhere(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that run_dir was not on shared storage."""
    record = folder.record(0, {0: folder.file(0, 0, 1, _rows(1, 2))})
    log = CommitLog(folder.root)

    def refuse(self: LocalStorage, name: str) -> int:
        raise OSError(errno.EIO, "Input/output error", self.locate(name))

    monkeypatch.setattr(LocalStorage, "size", refuse)
    with pytest.raises(OSError, match=r"Input/output error: .*\.arrow"):
        log.append(record)
    monkeypatch.undo()
    assert log.last == -1


@pytest.mark.parametrize("commits", [2, 40])
def test_a_replaced_coordinator_whose_files_the_new_one_has_deleted_is_told_that_it_was_replaced(
    folder: Folder, commits: int
) -> None:
    """It said that run_dir was not on shared storage."""
    asleep = CommitLog(folder.root)
    asleep.open_epoch("app", "the first", 0)
    asleep.append(folder.record(1, {}))
    record = folder.record(2, {0: folder.file(0, 2, 1, _rows(2))})
    new = CommitLog(folder.root)
    new.open_epoch("app", "the second", 0)
    for number in range(3, commits):
        new.append(folder.record(number, {}))
        new.write_checkpoint(number, SavedProgress())
    folder.layout.storage.delete([file.path for commit in record.tasks.values() for file in commit.outputs.values()])
    with pytest.raises(CommitLogException, match=r"Commit 2 .* A second coordinator runs on the same folder"):
        asleep.append(record)


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize(
    "other", [pa.table({"x": ["text"]}), pa.table({"y": [1]}), pa.table({"x": ["text"], "y": [1]})]
)
def test_columns_that_change_are_refused_before_the_commit(folder: Folder, other: pa.Table, resumes: bool) -> None:
    log = CommitLog(folder.root)
    log.append(folder.record(0, {0: folder.file(0, 0, 1, pa.table({"x": pa.nulls(1)}))}))
    log.append(folder.record(1, {1: folder.file(1, 1, 1, _rows(1))}))
    if resumes:
        log = CommitLog(folder.root)
    given = ", ".join(f"{field.name}: {field.type}" for field in other.schema)
    with pytest.raises(
        ProcessorException,
        match=rf"Batch 2 of task 0_1 is not committed: it gave the output 'out' the columns {given}, but it had x: int64 before"
        r".* Maybe declare them as they were: Output\('out', schema\)",
    ):
        log.append(folder.record(2, {0: folder.file(0, 2, 1, _rows(5)), 1: folder.file(1, 2, 1, other)}))
    log.append(folder.record(2, {1: folder.file(1, 2, 2, _rows(3))}))
    assert read_output(folder.root, "out").column("x").to_pylist() == [None, 1, 3]
    assert output_schema(folder.root, "out") == pa.schema([("x", pa.int64())])


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize(
    ("vague", "exact", "other"),
    [
        ([], [1], ["text"]),
        ([None], [[1]], [["text"]]),
        ({"null": None, "b": True}, {"null": 1, "b": None}, {"null": "text", "b": None}),
    ],
)
def test_lists_without_items_go_with_any(
    folder: Folder, vague: object, exact: object, other: object, resumes: bool
) -> None:
    """What gave only empty lists at first could never give others, not even when its columns were declared."""
    log = CommitLog(folder.root)
    rows = [pa.table({"x": pa.array([given])}) for given in (vague, exact, vague)]
    rows[1] = rows[1].cast(pa.schema([("x", pa.array([exact, vague]).type)]))
    log.open_epoch("app", "me", 0)
    number = 3
    for commit in (1, 2):
        log.append(folder.record(commit, {0: folder.file(0, commit, 1, rows[commit - 1])}))
    if resumes:
        log.write_checkpoint(2, SavedProgress())
        log = CommitLog(folder.root)
        number = log.open_epoch("app", "me", 0).number + 1
    with pytest.raises(ProcessorException, match="Columns cannot go or change their types"):
        log.append(folder.record(number, {0: folder.file(0, number, 1, pa.table({"x": pa.array([other])}))}))
    log.append(folder.record(number, {0: folder.file(0, number, 2, rows[2])}))
    assert read_output(folder.root, "out").column("x").to_pylist() == [vague, exact, vague]
    assert output_schema(folder.root, "out") == rows[1].schema


@pytest.mark.parametrize("resumes", [False, True])
def test_an_output_gains_columns_and_loses_none(folder: Folder, resumes: bool) -> None:
    """Task by task; older rows have null, and so have those of tasks that do not give it yet."""
    log = CommitLog(folder.root)
    wide = pa.table({"x": [2], "y": ["new"]})
    log.open_epoch("app", "me", 0)
    log.append(folder.record(1, {0: folder.file(0, 1, 1, _rows(1)), 1: folder.file(1, 1, 1, _rows(1))}))
    log.append(folder.record(2, {0: folder.file(0, 2, 1, wide)}))
    log.append(folder.record(3, {1: folder.file(1, 3, 1, _rows(3))}))
    number = 4
    if resumes:
        log.write_checkpoint(3, SavedProgress())
        log = CommitLog(folder.root)
        number = log.open_epoch("app", "me", 0).number + 1
    with pytest.raises(
        ProcessorException, match=r"Batch \d of task 0_0 .* the columns x: int64, but it had x: int64, y: string"
    ):
        log.append(folder.record(number, {0: folder.file(0, number, 1, _rows(4))}))
    with pytest.raises(ProcessorException, match="Columns cannot go or change their types; new ones may come"):
        log.append(folder.record(number, {1: folder.file(1, number, 1, pa.table({"x": [1], "y": [1]}))}))
    log.append(folder.record(number, {1: folder.file(1, number, 2, wide)}))
    log.write_checkpoint(number, SavedProgress())
    found = read_output(folder.root, "out")
    assert found.column("x").to_pylist() == [1, 2, 1, 3, 2]
    assert found.column("y").to_pylist() == [None, "new", None, None, "new"]
    assert output_schema(folder.root, "out") == wide.schema


def test_what_is_no_run_is_told(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(CommitLogException, match="There is no run in"):
        read_output(tmp_path / "elsewhere", "out")
    with pytest.raises(CommitLogException, match="no output 'other'; its outputs: out"):
        read_output(folder.root, "other")
    folder.layout.storage.put(APPLICATION, b'"x')
    with pytest.raises(CommitLogException, match="description of the run cannot be read"):
        read_output(folder.root, "out")
