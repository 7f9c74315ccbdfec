"""What is in a client's state directory: what it says of it, and when that is deleted."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import attrs
import polars as pl
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    KeyValueStoreSpec,
    Rebalanced,
    StreamsApplication,
    Topology,
    write_topic,
)
from task_assignor.runtime.machines.protocol import Position
from task_assignor.runtime.storage import LocalStorage, as_document, open_document
from task_assignor.runtime.tasks.state_directory import delete_state, local_positions
from task_assignor.runtime.tasks.task import TaskEnvironment
from task_assignor.sdk import TaskId
from tests.runtime.support import PATIENCE_S, QUICK, Watch, application, count_topology
from tests.runtime.test_task import TASK, Bench, _totals

KEPT_MS = 60_000


def test_where_a_store_on_disk_was_left_is_known_without_opening_it(tmp_path: Path) -> None:
    """Also after a kill: nothing is closed here. A batch that nobody has confirmed is not kept."""
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    assert local_positions(bench.environment()) == {TASK: ()}
    bench.run(task, 4)
    assert local_positions(bench.environment()) == {TASK: (Position(2, 1, 3),)}
    task.snapshot()
    bench.run(task, 2)
    assert local_positions(bench.environment()) == {TASK: (Position(4, 1, 5), Position(3, 1, 4))}
    assert local_positions(bench.environment(run_id="another")) == {TASK: ()}
    assert local_positions(bench.environment(application_id="another")) == {}
    task.close()
    assert local_positions(bench.environment())[TASK][0] == Position(4, 1, 5)
    again = bench.task()
    again._state.reset()
    assert [position.batch for position in local_positions(bench.environment())[TASK]] == [3], (
        "it is not there any more"
    )


def test_where_a_store_in_memory_was_is_not_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(bench.task(), 3)
    assert not any(local_positions(bench.environment()).values())
    assert not list((tmp_path / "one").rglob("position.json"))


def test_lists_of_databases_that_were_half_written_go_with_the_next_open(tmp_path: Path) -> None:
    """Each kill in the midst of a snapshot left one for ever."""
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 2)
    task.snapshot()
    task.close()
    (listed,) = tmp_path.rglob("live/*.json")
    gone = listed.with_name("0" * 32)
    gone.mkdir()
    os.utime(gone, (0, 0))
    for name in (listed.name, f"{gone.name}.json"):
        listed.with_name(f"~{name}-1-2-3").write_bytes(b"{")
    bench.task()
    assert {path.name for path in listed.parent.iterdir()} == {listed.name, listed.stem}


def test_a_hint_is_read_without_mapping_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written in place: whoever had it mapped when it became shorter was ended by SIGBUS."""
    bench = Bench(tmp_path, on_disk=True)
    bench.run(bench.task(), 2)
    environment = bench.environment()
    monkeypatch.setattr(pa, "memory_map", None)
    assert [position.batch for position in local_positions(environment)[TASK]] == [0]


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "another", "ahead", "behind", "stores gone"])
def test_a_wrong_hint_is_harmless(tmp_path: Path, damage: str) -> None:
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 2)
    (hint,) = (tmp_path / "one").rglob("position.json")
    older = hint.read_bytes()
    bench.run(task, 3)
    totals, whole = _totals(task), hint.read_bytes()
    task.close()
    document = open_document(LocalStorage(hint.parent), hint.name, dict)
    match damage:
        case "torn" | "empty":
            hint.write_bytes(whole[: len(whole) // 2 if damage == "torn" else 0])
        case "flipped":
            hint.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        case "another":
            hint.write_bytes(as_document({**document, "owner": None}))
        case "ahead":
            hint.write_bytes(as_document({**document, "position": [99, 1, 100, 60]}))
        case "behind":
            hint.write_bytes(older)
        case "stores gone":
            shutil.rmtree(hint.parent / "stores")
    told = {"ahead": [99], "behind": [0], "stores gone": [3]}.get(damage, [])
    assert [position.batch for position in local_positions(bench.environment()).get(TASK, ())] == told
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows) == (("changelog", 5) if damage == "stores gone" else ("disk", 1))
    assert _totals(again) == totals
    again.close()
    assert [position.batch for position in local_positions(bench.environment())[TASK]] == [4]


def test_what_is_no_snapshot_is_passed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.root / "one" / "app" / "0_0" / "rubbish").mkdir(parents=True)
    (bench.root / "one" / "app" / "no-task").mkdir()
    assert local_positions(bench.environment()) == {TASK: ()}


def _unchanged_for(environment: TaskEnvironment, ms: int) -> None:
    """Nothing in the task's folder has changed for so long."""
    at = time.time() - ms / 1000
    for path in (environment.state(TASK), *environment.state(TASK).rglob("*")):
        os.utime(path, (at, at))


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_left_is_deleted_when_it_has_not_changed_for_a_while(tmp_path: Path, on_disk: bool) -> None:
    bench = Bench(tmp_path, on_disk=on_disk)
    task = bench.task()
    bench.run(task, 3)
    task.snapshot()
    task.close()
    environment = bench.environment()
    _unchanged_for(environment, KEPT_MS - 10_000)
    delete_state(environment, TASK, KEPT_MS)
    assert local_positions(environment)[TASK][0] == bench.position
    _unchanged_for(environment, KEPT_MS)
    newest = max(environment.state(TASK).rglob("*.json"))
    newest.touch()
    delete_state(environment, TASK, KEPT_MS)
    assert local_positions(environment)[TASK][0] == bench.position, "a file of it has changed"
    _unchanged_for(environment, KEPT_MS)
    delete_state(environment, TASK, KEPT_MS)
    assert not list((tmp_path / "one" / "app").iterdir())
    assert local_positions(environment) == {}
    again = bench.task()
    assert (bench.restore(again).origin, _totals(again)) == ("changelog", {1: 2, 2: 1})


def test_what_is_half_deleted_is_no_state_and_goes_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed in the middle. A database of which some files are missing might open, as another one."""
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 3)
    task.close()
    environment = bench.environment()
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda path: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            delete_state(environment, TASK, 0)
    assert [path.name for path in (tmp_path / "one" / "app").iterdir()] == ["0_0.deleted"]
    assert local_positions(environment) == {TASK: ()}, "there is something to delete"
    again = bench.task()
    assert bench.restore(again).origin == "changelog"
    again.close()
    delete_state(environment, TASK, KEPT_MS)
    assert [path.name for path in (tmp_path / "one" / "app").iterdir()] == ["0_0"]


def test_what_cannot_be_deleted_stays_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 3)
    task.close()
    monkeypatch.setattr(Path, "rename", lambda *_: _raise(PermissionError(13, "Permission denied")))
    delete_state(bench.environment(), TASK, 0)
    (told,) = caplog.messages
    assert told.startswith(f"What is left of task 0_0 in {tmp_path}/one/app/0_0 could not be deleted: ")
    assert [position.batch for position in local_positions(bench.environment())[TASK]] == [1]


def _raise(error: BaseException) -> None:
    raise error


def test_a_client_deletes_what_it_has_of_a_task_that_went_elsewhere(tmp_path: Path) -> None:
    """While the run goes on, and of no other task; the result is the same."""
    keys = pa.array([number % 40 for number in range(2_000)], pa.int64())
    rows = pa.table({"key": keys, "at": pa.array(range(2_000)), "value": pa.array(map(str, range(2_000)))})
    write_topic(tmp_path / "topics", "left", rows, partitions=3, key=["key"], timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=50, state_cleanup_delay_ms=100, validate_state=True)
    app, watch = application(tmp_path, _topology(), clients=1, options=options), Watch()
    watch.on(BatchesCommitted, lambda _: app.scale(2))
    is_read = threading.Event()
    watch.on(
        BatchesCommitted,
        lambda _: is_read.set() if sum(one.rows_in for one in watch.of(BatchesCommitted)) == 2_000 else None,
    )
    gone: list[tuple[str, TaskId]] = []

    def wait(event: Rebalanced) -> None:
        moved = [(former, task) for task, former, _ in event.moved if former]
        if moved and not gone:
            gone.extend(moved)
            threading.Thread(
                target=_stop_without, args=(app, is_read, [_folder_of(tmp_path, *found) for found in moved])
            ).start()

    watch.on(Rebalanced, wait)
    result = app.run(watch, until="stopped")
    ((former, moved),) = gone
    folder = _folder_of(tmp_path, former, moved)
    assert sorted([moved.partition, *(int(path.name[2:]) for path in folder.parent.iterdir())]) == [0, 1, 2]
    totals = pl.DataFrame(result.table("totals-out")).group_by("key").agg(pl.col("count").max())
    assert totals["count"].to_list() == [50] * 40


def _topology() -> Topology:
    (sub_topology,) = count_topology().sub_topologies
    (store,) = sub_topology.stores
    assert isinstance(store, KeyValueStoreSpec)
    return Topology([attrs.evolve(sub_topology, stores=(attrs.evolve(store, on_disk=True),))])


def _stop_without(app: StreamsApplication, is_read: threading.Event, folders: list[Path]) -> None:
    """End the run when all is read and these folders are gone, or it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    is_read.wait(PATIENCE_S)
    while any(folder.exists() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.01)
    app.request_stop("they are gone")


def _folder_of(root: Path, client: str, task: TaskId) -> Path:
    (folder,) = root.glob(f"run/clients/{client}/*")
    return folder / str(task)
