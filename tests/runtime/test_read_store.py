"""What stores hold, read as a table: as committed, while a run goes on and later."""

from __future__ import annotations

import errno
import fcntl
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BatchesCommitted,
    CommitLog,
    CommitLogException,
    CorruptLogException,
    KeyValueStoreSpec,
    Output,
    Processor,
    StoreException,
    StreamsApplication,
    SubTopology,
    TaskContext,
    TimeWindows,
    Topic,
    Topology,
    WindowedAggregation,
    partitions_of,
    write_topic,
)
from task_assignor.runtime.errors import ProcessorStateException
from task_assignor.runtime.machines.protocol import Recovery
from task_assignor.runtime.storage import LocalStorage
from task_assignor.sdk import StreamsException, TaskId
from tests.runtime.support import (
    QUICK,
    CountByKey,
    Watch,
    application,
    in_order,
    join_topology,
    settings,
    stream,
    write_streams,
)

SAVES_OFTEN = attrs.evolve(
    QUICK, max_batch_rows=20, snapshot_changelog_bytes=500, checkpoint_every_commits=3, output_retention_ms=0
)
KEY, TOTALS = pa.schema([("key", pa.int64())]), pa.schema([("count", pa.int64()), ("sum", pa.int64())])


def _totals(rows: pa.Table) -> pa.Table:
    sums = rows.group_by("key").aggregate([("at", "count"), ("at", "sum")])
    return in_order(sums.rename_columns(["key", "count", "sum"]))


def _counting(root: Path, spec: KeyValueStoreSpec | None = None, rows: int = 1_000, **more: Any) -> StreamsApplication:
    """A count, with its topic if it is not there."""
    if not (root / "topics").exists():
        write_topic(root / "topics", "left", stream(rows, 40, seed=1), partitions=4, key=["key"], timestamp="at")
    found = KeyValueStoreSpec("totals", KEY, TOTALS) if spec is None else spec
    sub = SubTopology("count", "left", CountByKey, [found], [Output("totals-out", pa.schema([*KEY, *TOTALS]))])
    return application(root, Topology([sub]), **more)


@pytest.mark.parametrize("on_disk", [False, True])
def test_it_is_what_the_records_say(tmp_path: Path, on_disk: bool) -> None:
    app = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, TOTALS, on_disk=on_disk), options=SAVES_OFTEN)
    app.run()
    rows = stream(1_000, 40, seed=1)
    found = app.read_store("totals")
    assert found.schema == pa.schema([*KEY, *TOTALS])
    assert in_order(found).equals(_totals(rows))
    number = partitions_of(rows, ["key"], 4)
    for partition in range(4):
        part = app.read_store("totals", partition)
        assert in_order(part).equals(_totals(rows.filter(pa.array(number == partition))))
        # In the order of the keys.
        assert part.column("key").to_pylist() == sorted(part.column("key").to_pylist())
    # As `partitions_of` gives them, too.
    assert app.read_store("totals", np.unique(number)).equals(found)
    assert app.read_store("totals", number[0]).equals(app.read_store("totals", int(number[0])))


def test_a_window_store_gives_what_it_has_not_forgotten(tmp_path: Path) -> None:
    left, _ = write_streams(tmp_path / "topics", 400, 20)
    app = application(tmp_path, join_topology())
    app.run()
    (store,) = [store.name for store in join_topology().sub_topologies[0].stores if "left" in store.name]
    found = app.read_store(store)
    kept = {(row["key"], row["value"]) for row in found.to_pylist()}
    assert kept < {(row["key"], row["value"]) for row in left.to_pylist()}
    newest = max(left.column("at").to_pylist())
    assert {row["key"] for row in left.to_pylist() if row["at"] > newest - 20_000} <= {key for key, _ in kept}


def test_of_a_window_store_into_which_nothing_came_there_are_no_columns(tmp_path: Path) -> None:
    for name in ("left", "right"):
        write_topic(
            tmp_path / "topics", name, stream(10, 5, seed=1).slice(0, 0), partitions=4, key=["key"], timestamp="at"
        )
    app = application(tmp_path, join_topology())
    app.run()
    for store in join_topology().sub_topologies[0].stores:
        assert app.read_store(store.name).equals(pa.table({}))


def test_it_can_be_read_while_a_run_goes_on(tmp_path: Path) -> None:
    """Snapshots take the place of changes meanwhile, and checkpoints that of commits."""
    app, is_over, found, problems = (
        _counting(tmp_path, options=SAVES_OFTEN),
        threading.Event(),
        list[int](),
        list[Any](),
    )
    reader = _counting(tmp_path, options=SAVES_OFTEN)

    def read() -> None:
        try:
            while not is_over.is_set():
                found.append(sum(reader.read_store("totals").column("count").to_pylist()))
        except StreamsException as error:
            problems.append(error)

    thread = threading.Thread(target=read)

    def begin(_: BatchesCommitted) -> None:
        if not thread.ident:
            thread.start()

    watch = Watch()
    watch.on(BatchesCommitted, begin)
    try:
        app.run(watch)
    finally:
        is_over.set()
        thread.join()
    assert not problems
    assert found
    assert found == sorted(found)
    assert all(0 < count <= 1_000 for count in found)
    assert sum(app.read_store("totals").column("count").to_pylist()) == 1_000


def test_what_a_snapshot_has_replaced_meanwhile_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, watch, task = _counting(tmp_path, options=SAVES_OFTEN), Watch(), TaskId(0, 1)
    old = list[dict[TaskId, Recovery]]()

    def look(event: BatchesCommitted) -> None:
        if not old and task in event.batches:
            old.append(CommitLog(tmp_path / "run").recoveries())

    watch.on(BatchesCommitted, look)
    app.run(watch)
    answers = [*old, CommitLog(tmp_path / "run").recoveries()]
    asked = iter(answers)
    monkeypatch.setattr(CommitLog, "recoveries", lambda _: next(asked))
    rows = stream(1_000, 40, seed=1)
    of_task = rows.filter(pa.array(partitions_of(rows, ["key"], 4) == task.partition))
    assert in_order(app.read_store("totals", task.partition)).equals(_totals(of_task))
    assert next(asked, None) is None
    # If what is missing is what counts, that is told.
    monkeypatch.setattr(CommitLog, "recoveries", lambda _: old[0])
    with pytest.raises(CorruptLogException):
        app.read_store("totals", task.partition)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    app = _counting(tmp_path)
    with pytest.raises(CommitLogException, match="no run"):
        app.read_store("totals")
    app.run()
    with pytest.raises(StoreException, match=r"no store 'total'; its stores: totals. Maybe 'totals' is meant."):
        app.read_store("total")
    with pytest.raises(StoreException, match=r"'totals' has no partition 4: it has 4, from 0 to 3."):
        app.read_store("totals", [0, 4])
    with pytest.raises(StoreException, match=r"'totals' has no partition \[1\]"):
        app.read_store("totals", [[1]])  # type: ignore[list-item]
    with pytest.raises(CommitLogException, match=r"belongs to the application 'test', not to 'other'"):
        app.evolve(config=settings(application_id="other")).read_store("totals")
    unlogged = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, TOTALS, logged=False))
    with pytest.raises(StoreException, match=r"'totals' has no changelog \(logged=False\)"):
        unlogged.read_store("totals")
    another = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, pa.schema([("count", pa.int32())])))
    with pytest.raises(CommitLogException, match=r"'totals' is .* but in this run it was .*count: int64"):
        another.read_store("totals")
    new = _counting(tmp_path, KeyValueStoreSpec("others", KEY, TOTALS))
    with pytest.raises(CommitLogException, match="in this run there was none"):
        new.read_store("others")


def test_tasks_that_are_others_by_now_are_not_taken_for_those_of_the_run(tmp_path: Path) -> None:
    """A store was empty, or half of it was missing, where its tasks had other ids or there were less of them."""

    def app(*order: str) -> StreamsApplication:
        counting = _counting(tmp_path)._topology.sub_topologies[0]
        subs = {"count": counting, "idle": SubTopology("idle", "right", _Idle)}
        return application(tmp_path, Topology([subs[name] for name in order]))

    write_topic(tmp_path / "topics", "right", stream(10, 5, seed=1), partitions=4, key=["key"], timestamp="at")
    rows = stream(1_000, 40, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=4, key=["key"], timestamp="at")
    app("count", "idle").run()
    assert app("count", "idle").read_store("totals").num_rows == 40
    with pytest.raises(
        CommitLogException, match=r"had other tasks.*order of the sub-topologies: was \[\"count\", \"idle\"\]"
    ):
        app("idle", "count").read_store("totals")
    with pytest.raises(CommitLogException, match=r"had other tasks.*order of the sub-topologies"):
        _counting(tmp_path).read_store("totals")
    shutil.rmtree(tmp_path / "topics" / "left")
    write_topic(tmp_path / "topics", "left", rows, partitions=2, key=["key"], timestamp="at")
    with pytest.raises(CommitLogException, match=r"had other tasks.*topics, left, partitions: was 4, is 2"):
        app("count", "idle").read_store("totals")


def test_nothing_but_the_store_is_restored(tmp_path: Path) -> None:
    """Others of the task may be large, or damaged."""
    write_streams(tmp_path / "topics", 400, 20)
    app = application(tmp_path, join_topology(), options=SAVES_OFTEN)
    app.run()
    one, other = [store.name for store in join_topology().sub_topologies[0].stores]
    found = app.read_store(one)
    for folder in ("changelog", "snapshots"):
        shutil.rmtree(tmp_path / "run" / folder / other)
    assert app.read_store(one).equals(found)
    with pytest.raises(CorruptLogException):
        app.read_store(other)


def test_each_store_of_a_task_with_windows_can_be_read(tmp_path: Path) -> None:
    write_topic(tmp_path / "topics", "left", stream(400, 20, seed=1), partitions=4, key=["key"], timestamp="at")
    spec, rows = Topic.open(tmp_path / "topics", "left").spec, {"rows": Aggregate.count()}
    windows = {
        name: WindowedAggregation(source="left", windows=TimeWindows(size), aggregates=rows, grace_ms=10**6)
        for name, size in (("short", 1_000), ("long", 10_000))
    }
    totals = Aggregation(source="left", aggregates=rows).sub_topology("totals", "totals-out", [spec])
    parts = [one.sub_topology(name, f"{name}-out", [spec]) for name, one in windows.items()]
    app = application(tmp_path, Topology([*parts, totals]))
    app.run()
    assert sum(app.read_store("totals-groups").column("rows").to_pylist()) == 400
    for name in windows:
        assert app.read_store(f"{name}-windows").num_rows > 0


def test_of_no_partition_there_are_no_rows_but_the_columns(tmp_path: Path) -> None:
    app = _counting(tmp_path)
    app.run()
    nothing = app.read_store("totals", [])
    assert nothing.num_rows == 0
    assert nothing.schema == app.read_store("totals").schema


def test_it_leaves_nothing_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What readers left that were killed goes, too; that of those who are still at it stays."""
    app = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, TOTALS, on_disk=True), options=SAVES_OFTEN)
    app.run()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("task-assignor-reader-killed", "task-assignor-reader-alive", "task-assignor-of-others"):
        (tmp_path / "temporary" / name / "test").mkdir(parents=True)
        (tmp_path / "temporary" / name / "lock").touch()

    def files() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]}

    before = files()
    with (tmp_path / "temporary/task-assignor-reader-alive/lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert app.read_store("totals").num_rows == 40
    assert files() == before
    left = sorted(path.name for path in (tmp_path / "temporary").iterdir())
    assert left == ["task-assignor-of-others", "task-assignor-reader-alive"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_where_there_is_no_room_for_it_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    app = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, TOTALS, on_disk=on_disk), options=SAVES_OFTEN)
    app.run()
    said = r"'totals' cannot be restored in the folder for temporary files: .*Maybe set TMPDIR to a folder with room"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ProcessorStateException, match=said):
        app.read_store("totals")
    monkeypatch.undo()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalStorage, "put", full)
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(ProcessorStateException, match=said):
        app.read_store("totals")


def test_a_store_that_has_gained_a_column_has_null_there(tmp_path: Path) -> None:
    _counting(tmp_path).run()
    wider = pa.schema([*TOTALS, pa.field("note", pa.string())])
    found = _counting(tmp_path, KeyValueStoreSpec("totals", KEY, wider)).read_store("totals")
    assert found.column("note").null_count == found.num_rows == 40


class _Idle(Processor):
    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Nothing."""


def test_a_store_that_nobody_writes_is_empty(tmp_path: Path) -> None:
    write_topic(tmp_path / "topics", "left", stream(10, 5, seed=1), partitions=2, key=["key"], timestamp="at")
    idle = SubTopology("idle", "left", _Idle, [KeyValueStoreSpec("totals", KEY, TOTALS)])
    app = application(tmp_path, Topology([idle]))
    app.run()
    assert app.read_store("totals").equals(pa.schema([*KEY, *TOTALS]).empty_table())
