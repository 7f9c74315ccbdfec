"""A run's disk use is bounded: what no restart and no restore can need is deleted, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import attrs
import msgspec
import pytest

from task_assignor.runtime import BatchesCommitted, ClientSpec, CommitLog, append_topic, committed_files, write_topic
from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.coordinator.members import Member, Members
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.protocol import START, Change, Position, position_of
from task_assignor.runtime.machines.records import (
    FileRef,
    Part,
    SavedStore,
    Seal,
    TaskCommit,
    TaskSnapshot,
    changelog_path,
    part_path,
)
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.retention import Orphans, obsolete, orphans
from task_assignor.sdk import TaskId
from tests.runtime.support import QUICK, Watch, application, count_topology, stream
from tests.runtime.test_compaction import Run

A = TaskId(0, 0)
SOURCES, ENDS = {A: ("t",)}, {"t": [1_000]}


def _commit(batch: int) -> TaskCommit:
    changes = FileRef(changelog_path("s", A, batch, 1), Seal(1, 100, "0"))
    return TaskCommit(A, batch, "c", "p", "m", "a", 1, {"t": (batch, batch + 1)}, {}, {"s": changes}, batch + 1)


def _snapshot(batch: int, parts: dict[str, int]) -> TaskSnapshot:
    """Of parts, each written with the snapshot of a batch."""
    saved = SavedStore("memory", tuple(Part(name, Seal(1, 10, "0")) for name in parts))
    paths = {name: part_path("s", A, written, name) for name, written in parts.items()}
    return TaskSnapshot(A, batch, 1, batch + 1, None, {"s": saved}, paths)


def _progress(batches: int = 0) -> Progress:
    progress = Progress(SOURCES, ENDS)
    for batch in range(batches):
        progress.advance(_commit(batch))
    return progress


def _checkpoint(progress: Progress, number: int) -> Checkpoint:
    return Checkpoint(number, state=progress.saved())


def test_the_two_newest_snapshots_and_the_changes_since_the_older_one_are_kept() -> None:
    progress = _progress(10)
    progress.take_snapshot(_snapshot(3, {"a": 3}))
    assert progress.recovery(A).floor.batch == -1, "the changelog is the older one"
    progress.take_snapshot(_snapshot(6, {"a": 3, "b": 6}))
    recovery = progress.recovery(A)
    assert recovery.floor == position_of(_snapshot(3, {}))
    assert [change.position.batch for change in recovery.changes] == [4, 5, 6, 7, 8, 9]
    assert [change.position.batch for change in recovery.unsaved] == [7, 8, 9]
    progress.take_snapshot(_snapshot(9, {"c": 9}))
    assert [snapshot.batch for snapshot in progress.recovery(A).snapshots] == [9, 6]
    progress.validate()
    again = Progress.after(_checkpoint(progress, 5), [], SOURCES, ENDS)
    assert again.recovery(A) == progress.recovery(A)


def test_lags_are_right_when_the_changes_are_gone_and_restores_read_no_more_than_the_tail() -> None:
    """An old state lags as it would have; nobody reads more rows than came after the newest snapshot."""
    progress = _progress(10)
    old, new = Position(1, 1, 2), Position(8, 1, 9)
    assert [progress.rows_to_read(A, at) for at in (START, old, new)] == [10, 8, 1]
    for batch in (3, 6):
        progress.take_snapshot(_snapshot(batch, {f"{batch}": batch}))
    assert not progress.recovery(A).reaches(old)
    for found in (progress, Progress.after(_checkpoint(progress, 5), [], SOURCES, ENDS)):
        assert [found.lag(A, at) for at in (START, old, msgspec.structs.replace(old, generation=2), new)] == [
            10,
            8,
            10,
            1,
        ]
        assert [found.rows_to_read(A, at) for at in (START, old, new)] == [3, 3, 1]
        assert found.changelog_ends() == {A: 10}


def test_a_state_that_is_all_in_a_snapshot_is_one_that_is_to_be_restored() -> None:
    """Its task stood still while it came, however large it was, and nobody was told that it was being restored."""
    progress, members = _progress(10), Members("run", 1)
    progress.take_snapshot(_snapshot(9, {"a": 9}))
    positions: dict[TaskId, Position] = {}
    members._owners[A] = cast(Member, SimpleNamespace(positions=positions))
    assert members.rows_to_restore(progress) == {A: 0}
    positions[A] = progress.position(A)
    assert members.rows_to_restore(progress) == {}
    assert members.rows_to_restore(_progress()) == {}, "there is none yet"


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (msgspec.structs.replace(_snapshot(4, {}), generation=2), "batch 4 of generation 2 was not committed"),
        (msgspec.structs.replace(_snapshot(4, {}), task=TaskId(7, 7)), "the topology does not have that task"),
        (_snapshot(12, {}), "batch 12 of generation 1 was not committed"),
        (_snapshot(3, {}), "there is one of batch 3"),
        (_snapshot(4, {"a": 1}), "neither new nor of a snapshot that counts"),
        (msgspec.structs.replace(_snapshot(4, {"a": 4}), paths={}), "its file '' is neither new"),
    ],
)
def test_snapshots_that_cannot_count_are_refused(snapshot: TaskSnapshot, reason: str) -> None:
    """Files that only a forgotten snapshot had may be deleted at any moment."""
    progress = _progress(10)
    progress.take_snapshot(_snapshot(2, {"a": 2}))
    progress.take_snapshot(_snapshot(3, {"b": 3}))
    assert reason in progress.why_refuse(snapshot)
    assert progress.why_refuse(_snapshot(4, {"a": 2, "b": 3, "c": 4})) == ""


def test_a_task_without_state_has_nothing_to_be_restored_from() -> None:
    """Its batches are not kept in memory, and not in checkpoints."""
    progress = Progress(SOURCES, ENDS)
    for batch in range(500):
        progress.advance(msgspec.structs.replace(_commit(batch), changelogs={}))
    recovery = progress.recovery(A)
    assert recovery.changes == []
    assert recovery.start == recovery.end == progress.position(A)
    again = Progress.after(_checkpoint(progress, 5), [], SOURCES, ENDS)
    assert again.position(A) == progress.position(A)
    again.advance(_commit(500))
    assert again.recovery(A).changes == [Change(Position(500, 1, 501), _commit(500).changelogs)]


def test_files_below_both_checkpoints_go_and_all_others_stay() -> None:
    progress = _progress(10)
    progress.take_snapshot(_snapshot(3, {"a": 3}))
    progress.take_snapshot(_snapshot(6, {"a": 3, "b": 6}))
    before = _checkpoint(progress, 5)
    progress.take_snapshot(_snapshot(8, {"c": 8}))
    progress.take_snapshot(_snapshot(9, {"d": 9}))
    now = _checkpoint(progress, 9)
    changelogs = [changelog_path("s", A, batch, generation) for batch in range(12) for generation in (1, 2)]
    needed = [part_path("s", A, batch, name) for name, batch in {"a": 3, "b": 6, "c": 8, "d": 9}.items()]
    orphans = [part_path("s", A, batch, "x") for batch in range(12)]
    strange = [
        "changelog/s/0/notes.txt",
        "snapshots/s/1/000000000000-x",
        "changelog/other/0/000000000000-00000001.arrow",
    ]
    gone = set(obsolete([*changelogs, *needed, *orphans, *strange], before, now))
    assert gone == {*changelogs[:8], *orphans[:10]}
    assert not obsolete([*changelogs, *needed], Checkpoint(), before)


def test_what_nothing_names_goes_when_it_cannot_count_any_more_and_is_looked_for_until_then() -> None:
    """All files are listed for that, so it is not done for ever; what somebody writes at the moment is no reason."""
    before, now = Checkpoint(5, generation=2), Checkpoint(9, generation=3, written={"output/o/0": 3, "output/o/1": 7})
    lost = "output/o/0/000000000003-00000002.arrow"
    late = "output/o/0/000000000004-00000002.arrow"
    merged = "output/o/1/000000000000-000000000003-000000000005-00000001.arrow"
    others = "output/o/1/000000000000-000000000003-000000000006-00000001.arrow"
    being_written = ["output/o/0/000000000004-00000003.arrow", "output/o/1/000000000008-00000004.arrow"]
    strange = ["output/o/0/notes.txt", "output/o/2/000000000009-00000003.arrow"]
    named = "repartition/r/0/000000000001-00000001.arrow"
    rest = [*being_written, *strange]
    assert orphans([lost, merged, named, *rest], before, now, {named}) == Orphans([lost, merged], False)
    for unsure in (late, others):
        assert orphans([unsure, *rest], before, now, ()) == Orphans([], True)


def _files(run: Path) -> tuple[int, int]:
    """Number and bytes of the files of snapshots and changelogs."""
    found = [path for of in ("snapshots", "changelog") for path in (run / of).rglob("*") if path.is_file()]
    return len(found), sum(path.stat().st_size for path in found)


def _await_snapshot(run: Path, batch: int) -> None:
    """Until a snapshot is written that is not much older than a batch: how long that takes is chance."""
    deadline = time.monotonic() + 60
    while not any(int(path.name[:12]) > batch - 50 for path in (run / "snapshots").rglob("[0-9]*-*")):
        assert time.monotonic() < deadline, f"no snapshot for batch {batch}"
        time.sleep(0.005)


@pytest.mark.thorough
def test_disk_use_does_not_grow_with_the_batches(tmp_path: Path) -> None:
    """Run after run; each goes on, and a client without any state of its own reads little."""
    options = attrs.evolve(QUICK, max_batch_rows=5, snapshot_changelog_bytes=20_000, checkpoint_every_commits=20)
    rows = stream(2_250, 20, seed=3)
    write_topic(tmp_path / "topics", "left", rows.slice(0, 750), partitions=1, key=["key"], timestamp="at")
    run, used, watch = tmp_path / "run", [], Watch()

    def wait(event: BatchesCommitted) -> None:
        (batch,) = event.batches.values()
        if batch >= 50 and batch % 10 == 0:
            _await_snapshot(run, batch)

    watch.on(BatchesCommitted, wait)
    for number in range(3):
        if number:
            append_topic(tmp_path / "topics", "left", rows.slice(750 * number, 750))
        client = ClientSpec("client", state_dir=str(tmp_path / f"state-{number}"))
        result = application(tmp_path, count_topology(), clients=[client], options=options).run(watch)
        assert (result.rows_in, result.batches) == (750, 150 * (number + 1))
        used.append(_files(run))
        (restore,) = result.restores
        assert restore.origin == ("shared" if number else "new")
        assert restore.rows < 5 * 120, "the tail of the changelog"
    totals = result.table("totals-out").group_by("key").aggregate([("count", "max")])
    expected = rows.group_by("key").aggregate([("at", "count")])
    assert dict(zip(*totals.to_pydict().values(), strict=True)) == dict(
        zip(*expected.to_pydict().values(), strict=True)
    )
    assert max(files for files, _ in used) < 200, f"one a batch would be 450: {used}"
    log = CommitLog(run)
    assert log.checkpoint().number > 400
    assert max(record.number for record in log.records()) == log.last


def test_what_was_replaced_while_the_clock_was_far_ahead_goes_soon_after_it_is_right_again(tmp_path: Path) -> None:
    """It stayed until then, maybe for years, and its files with it."""
    run = Run(tmp_path, Upkeep(retention_ms=1_000))
    right_ms = run.now_ms
    run.now_ms += 10**12
    run.go_on(4, every=4)
    listed = committed_files(tmp_path, "out")
    run.go_on(8, every=4)
    run.now_ms = right_ms
    run.open()
    run.go_on(4, every=4)
    assert all(Path(file).exists() for file in listed), "they are read for as long as ever"
    for _ in range(2):
        run.now_ms += 1_000
        run.go_on(4, every=4)
    assert not any(Path(file).exists() for file in listed)
    assert len(list((tmp_path / "replaced").iterdir())) <= 2
    run.check()


def test_what_a_run_that_was_killed_as_it_began_has_left_goes(tmp_path: Path) -> None:
    """Its description half written stayed for ever."""
    write_topic(tmp_path / "topics", "left", stream(20, 3, seed=1), partitions=1, key=["key"], timestamp="at")
    folder = application(tmp_path, count_topology("left"), clients=1)._folder()
    folder.claim({})
    half = [tmp_path / "run" / f"~application.json-1-2-{number}" for number in (3, 4)]
    half[0].write_bytes(b"{")
    half[1].mkdir()
    (half[1] / "~object").write_bytes(b"{")
    folder.claim({})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["application.json"]
