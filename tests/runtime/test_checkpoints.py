"""Checkpoints where something can be read or deleted no more."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from task_assignor.runtime import (
    CommitLog,
    CommitLogException,
    CommitRecord,
)
from task_assignor.runtime.machines.checkpoint import SavedProgress
from task_assignor.runtime.machines.output_files import merged_at
from tests.runtime.simulated_storage import MemoryStorage
from tests.runtime.test_compaction import TASKS, Run


def test_a_damaged_record_that_nobody_needs_any_more_does_not_keep_others_from_being_deleted() -> None:
    """It may have begun an epoch, so it goes one checkpoint after the record before it."""
    storage = MemoryStorage()
    log = CommitLog("run", storage=storage)
    opening = log.open_epoch("app", "somebody", 0)
    left = {}
    for number in range(1, 13):
        log.append(CommitRecord(number, "app", opening.epoch, 0, number))
        if number % 4 == 0:
            log.write_checkpoint(number, SavedProgress())
            left[number] = [int(name[-17:-5]) for name in storage.list("commits")]
        if number == 2:
            storage.damage("commits/000000000002.json", random.Random(0), tears=True)
    assert left == {4: [0, 1, 2, 3, 4], 8: [2, 5, 6, 7, 8], 12: [9, 10, 11, 12]}


def test_a_record_that_somebody_has_deleted_is_not_said_to_be_replaced() -> None:
    """By hand, or by a rule of the bucket: a second coordinator was looked for."""
    storage = MemoryStorage()
    log = CommitLog("run", storage=storage)
    opening = log.open_epoch("app", "somebody", 0)
    for number in (1, 2):
        log.append(CommitRecord(number, "app", opening.epoch, 0, number))
    log.write_checkpoint(1, SavedProgress())
    storage.delete(["commits/000000000002.json"])
    with pytest.raises(
        CommitLogException, match=r"cannot follow commit 2: .* not there, and no checkpoint has taken its"
    ):
        log.append(CommitRecord(3, "app", opening.epoch, 0, 3))


def test_a_checkpoint_counts_where_nothing_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was told that it could not be written, and all records since the beginning were kept in memory."""
    storage = MemoryStorage()
    log = CommitLog("run", storage=storage)
    opening = log.open_epoch("app", "somebody", 0)

    def refuse(_: Iterable[str]) -> None:
        raise PermissionError(errno.EACCES, "no permission to delete")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "delete", refuse)
        for number in range(1, 13):
            log.append(CommitRecord(number, "app", opening.epoch, 0, number))
            if number % 4 == 0:
                written = log.write_checkpoint(number, SavedProgress())
                assert written is not None
                assert log.checkpoint().number == number
        assert not log._recent
    assert [record.getMessage() for record in caplog.records] == [
        f"What checkpoint {number} has replaced could not be deleted: PermissionError: [Errno 13] no permission to delete"
        for number in (4, 8, 12)
    ]
    # A page of Python for each did not say more.
    assert not any(record.exc_info for record in caplog.records)
    log.append(CommitRecord(13, "app", opening.epoch, 0, 13))
    log.write_checkpoint(13, SavedProgress())
    assert [int(name[-17:-5]) for name in storage.list("commits")] == [13]
    assert [record.number for record in CommitLog("run", storage=storage).records()] == list(range(14))


def test_a_link_that_leads_nowhere_is_a_damaged_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was taken for one that had been replaced that moment, and looked for without end."""
    log = CommitLog(tmp_path)
    opening = log.open_epoch("app", "somebody", 0)
    for number in range(1, 9):
        log.append(CommitRecord(number, "app", opening.epoch, 0, number))
        if number % 4 == 0:
            log.write_checkpoint(number, SavedProgress())
    for number in (8, 4):
        place = tmp_path / f"checkpoints/{number:012d}.json"
        place.unlink()
        place.symlink_to("nowhere")
        if number == 8:
            assert log.checkpoint().number == 4
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "The newest checkpoint cannot be read, an older one is used"
    ]
    with pytest.raises(CommitLogException, match=r"000000000008\.json cannot be read .*No such file"):
        log.checkpoint()


def _begin(run: Run, name: str) -> Path:
    """The half of an object, as `LocalStorage` has it until it is whole."""
    folder, _, last = name.rpartition("/")
    (run.root / folder).mkdir(exist_ok=True)
    place = run.root / folder / f"~{last}-4711-140018551092928-3"
    place.write_bytes(b"half")
    return place


def test_what_the_killed_have_begun_to_write_goes_when_it_cannot_count_any_more(tmp_path: Path) -> None:
    """Nobody looked for it: of each kill -9 half a file of an output could stay for ever."""
    run = Run(tmp_path)
    run.go_on(4, every=4)
    lost = _begin(run, f"output/out/{TASKS[0].partition}/{run.batches[TASKS[0]]:012d}-00000001.arrow")
    others = [
        _begin(run, name)
        for name in (
            f"output/out/0/000000000000-000000000003-{run.number + 4:012d}-00000001.arrow",
            f"checkpoints/{run.number + 4:012d}.json",
            f"history/000000000000-{run.number + 4:012d}.jsonl.gz",
            f"replaced/{run.number + 4:012d}-1700000000000.json",
        )
    ]
    commit = run.root / "commits" / f"~{run.number + 1:012d}.json-4711-140018551092928-3"
    commit.mkdir()
    (commit / "~object").write_bytes(b"half")
    run.open()
    now = _begin(run, f"output/out/{TASKS[1].partition}/{run.batches[TASKS[1]]:012d}-{run.generation:08d}.arrow")
    run.checkpoint()
    assert [lost.exists(), now.exists()] == [True, True], "their batches do not count yet"
    run.go_on(12, every=4)
    assert not lost.exists()
    assert not any(other.exists() for other in (*others, commit))
    run.check()


def test_checkpoints_go_on_after_one_that_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None followed it until the next run: records and small files grew as long as this one went on, for months maybe."""
    run = Run(tmp_path)
    run.go_on(8, every=4)
    damaged = run.number
    newest = tmp_path / f"checkpoints/{damaged:012d}.json"
    data = bytearray(newest.read_bytes())
    data[-10] ^= 1
    newest.write_bytes(data)
    run.go_on(4, every=4)
    assert run.log.checkpoint().number == run.number
    run.go_on(16, every=4)
    run.check()
    assert not [name for name in run.files if merged_at(name) == damaged]
    assert len(list((tmp_path / "commits").iterdir())) <= 5
    assert [record.number for record in run.log.records()] == list(range(run.number + 1))
    assert "No checkpoint is written" not in caplog.text


def test_a_record_that_is_damaged_with_its_checkpoint_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.go_on(8, every=4)
    for name in (f"checkpoints/{run.number:012d}.json", f"commits/{run.number - 1:012d}.json/~object"):
        (tmp_path / name).write_bytes(b"{")
    run.go_on(4, every=4)
    assert "No checkpoint is written: the newest one is 5, this one would follow 9. Maybe" in caplog.text
    assert run.log.checkpoint().number == 5
