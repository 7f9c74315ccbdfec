"""A task with its files: what it restores from, and what it must not restore from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    CorruptLogException,
    KeyValueStore,
    KeyValueStoreSpec,
    ProcessorException,
    TaskContext,
    Topic,
    Topology,
    write_topic,
)
from task_assignor.runtime.errors import ProcessorStateException, TaskCorruptedException
from task_assignor.runtime.machines.client.task import Restore
from task_assignor.runtime.machines.protocol import START, Change, Position, Recovery, Restored, TaskOrder, TaskResult
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.storage import LocalStorage, as_document, open_document
from task_assignor.runtime.stores import sharing
from task_assignor.runtime.stores.task_state import TaskState, list_snapshots
from task_assignor.runtime.tasks.state_directory import local_positions
from task_assignor.runtime.tasks.task import StreamTask, TaskEnvironment, share_snapshot
from task_assignor.sdk import TaskId
from tests.runtime.support import count_topology

TASK = TaskId(0, 0)
ROWS = pa.table({"key": [1, 2, 1, 3, 1, 2], "at": [10, 20, 30, 40, 50, 60], "value": list("abcdef")})


class Bench:
    """One task, its topic, what it committed; each batch is one row."""

    def __init__(self, root: Path, *, on_disk: bool = False) -> None:
        self.root = root
        (sub_topology,) = count_topology().sub_topologies
        (store,) = sub_topology.stores
        assert isinstance(store, KeyValueStoreSpec)
        stores = (attrs.evolve(store, on_disk=on_disk),)
        self.topology = Topology([attrs.evolve(sub_topology, stores=stores)])
        self.topic = write_topic(root / "topics", "left", ROWS, partitions=1, key=["key"], timestamp="at")
        self.position = START
        self.recovery = Recovery()

    def environment(self, client: str = "one", **changes: Any) -> TaskEnvironment:
        """What a client has; another name is another state directory."""
        environment = TaskEnvironment(
            "app",
            "run-id",
            self.root / "run",
            self.root / client,
            {"left": Topic.open(self.root / "topics", "left")},
        )
        return attrs.evolve(environment, **changes)

    def task(self, client: str = "one", **changes: Any) -> StreamTask:
        """The task on a client, without state."""
        return StreamTask(TASK, self.topology.of_task(TASK), self.environment(client, **changes))

    def order(self, generation: int = 1) -> TaskOrder:
        """The next batch."""
        batch = self.position.batch + 1
        return TaskOrder(TASK, batch, generation, {"left": (batch, batch + 1)}, self.position)

    def commit(self, result: TaskResult) -> None:
        """Make a result count."""
        self.recovery.add(Change(result.position, result.changelogs))
        self.position = result.position

    def share(self, task: StreamTask, client: str = "one") -> TaskSnapshot:
        """Write a snapshot, also into the folder of the run, and make it count."""
        found = share_snapshot(self.environment(client), TASK, task.snapshot(), self.recovery.newest)
        self.recovery.add_snapshot(found)
        return found

    def shared(self) -> list[Path]:
        """The files of snapshots in the folder of the run."""
        return sorted((self.root / "run" / "snapshots").rglob("*-*"))

    def restore(self, task: StreamTask) -> Restored:
        """Bring a task to where it is committed, as the client's machine wants it."""
        base = task.position if self.recovery.reaches(task.position) else START
        return task.restore(Restore(base, self.recovery.copy(), self.position))

    def run(self, task: StreamTask, batches: int, generation: int = 1) -> None:
        """Process and commit."""
        for _ in range(batches):
            self.restore(task)
            self.commit(task.process(self.order(generation)))


def _totals(task: StreamTask) -> dict[object, int]:
    store = task._state.stores["totals"]
    assert isinstance(store, KeyValueStore)
    return {key: row["count"] for key, row in store.items()}


def _snapshots(bench: Bench) -> list[Position]:
    environment = bench.environment()
    return [found.position for found in list_snapshots(environment.state(TASK), environment.owner(TASK))]


@pytest.fixture(params=["in memory", "on disk"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path, on_disk=request.param == "on disk")


def test_a_new_client_reads_the_whole_changelog(bench: Bench) -> None:
    first = bench.task()
    bench.run(first, 4)
    other = bench.task("two")
    restored = bench.restore(other)
    assert (restored.origin, restored.rows, restored.snapshot_rows) == ("changelog", 4, 0)
    assert _totals(other) == _totals(first) == {1: 2, 2: 1, 3: 1}
    bench.commit(other.process(bench.order(2)))
    assert _totals(other) == {1: 3, 2: 1, 3: 1}


def test_a_standby_reads_only_what_is_new(bench: Bench) -> None:
    active, standby = bench.task(), bench.task("two")
    bench.run(active, 3)
    bench.restore(standby)
    bench.run(active, 1)
    restored = bench.restore(standby)
    assert (restored.origin, restored.rows) == ("memory", 1)
    assert _totals(standby) == _totals(active)
    assert (bench.restore(standby).rows, bench.restore(standby).origin) == (0, "memory")


def test_a_snapshot_saves_reading_the_changelog(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 3)
    written = task.snapshot()
    assert task.snapshot() == written, "it is there already"
    bench.run(task, 2)
    assert _snapshots(bench) == [Position(2, 1, 3)]
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows, restored.snapshot_rows) == ("snapshot", 2, 2), "two keys were there"
    assert _totals(again) == _totals(task)
    task.snapshot()
    assert [position.batch for position in _snapshots(bench)] == [4, 2]
    bench.run(task, 1)
    task.snapshot()
    assert [position.batch for position in _snapshots(bench)] == [5, 4], "old ones are removed"


def test_a_snapshot_of_a_try_that_was_not_committed_is_not_used(bench: Bench) -> None:
    """Batch 2 was processed in generation 1, but committed as somebody else's try in generation 2."""
    task = bench.task()
    bench.run(task, 2)
    task.process(bench.order(1))
    task.snapshot()
    other = bench.task("two")
    bench.run(other, 2, generation=2)
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows) == ("changelog", 4)
    assert _totals(again) == _totals(other)
    # The same holds for what is still in memory: the snapshot kept it.
    restored = bench.restore(task)
    assert (restored.origin, restored.rows) == ("changelog", 4)


def test_a_snapshot_that_is_newer_than_the_log_is_not_used(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 1)
    task.process(bench.order())
    task.snapshot()
    assert bench.restore(bench.task()).origin == "changelog"


@pytest.mark.parametrize("change", [{"run_id": "another"}, {"application_id": "another"}])
def test_snapshots_of_another_run_or_application_are_not_used(bench: Bench, change: dict[str, str]) -> None:
    task = bench.task()
    bench.run(task, 2)
    task.snapshot()
    assert not any(local_positions(bench.environment(**change)).values())
    assert bench.restore(bench.task(**change)).origin == "changelog"


def test_states_of_older_versions_are_only_used_from_the_folder_of_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They did not say of which history they are, and their databases call their states otherwise."""
    task = bench.task()
    with monkeypatch.context() as older:
        older.setattr(
            TaskState, "_name_of", lambda _, found: f'["run-id",[{found.batch},1,{found.changelog_offset},0]]'
        )
        for _ in range(2):
            bench.run(task, 2)
            bench.share(task)
        task.close()
    for path in (bench.root / "one").rglob("snapshots/*.json"):
        path.write_bytes(as_document({**open_document(LocalStorage(path.parent), path.name, dict), "formatVersion": 6}))
    for client in ("one", "two"):
        again = bench.task(client)
        restored = bench.restore(again)
        assert (restored.origin, restored.rows, _totals(again)) == ("shared", 0, {1: 2, 2: 1, 3: 1})


@pytest.mark.parametrize("name", ["stores/totals/parts/*", "snapshots/*.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_damaged_snapshot_is_no_snapshot(
    bench: Bench, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = bench.task()
    bench.run(task, 2)
    task.snapshot()
    path = max(bench.environment().state(TASK).glob(name), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    path.unlink()  # a database may have a link to it
    if damage != "missing":
        half = len(whole) // 2
        path.write_bytes(
            whole[:-40] if damage == "cut" else whole[:half] + bytes([whole[half] ^ 8]) + whole[half + 1 :]
        )
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows) == ("changelog", 2)
    assert _totals(again) == _totals(task)
    assert ("damaged" in caplog.text) == ((name, damage) != ("snapshots/*.json", "missing"))
    # The next one is whole again, whatever parts of this one are left.
    again.snapshot()
    third = bench.task()
    assert (bench.restore(third).origin, _totals(third)) == ("snapshot", _totals(task))


def test_if_the_newest_snapshot_is_damaged_the_one_before_will_do(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is told once, however often a client joins before there is another one."""
    task = bench.task()
    for _ in range(3):
        bench.run(task, 1)
        task.snapshot()
    newest = max(bench.environment().state(TASK).glob("snapshots/*.json"))
    newest.write_bytes(newest.read_bytes()[:-9])
    for _ in range(2):
        local_positions(bench.environment())
    again = bench.task()
    restored = bench.restore(again)
    assert ["is damaged and deleted" in line for line in caplog.messages] == [True]
    assert (restored.origin, restored.rows) == ("snapshot", 1)
    assert _totals(again) == _totals(task)


def test_a_store_on_disk_is_opened_where_it_was_left(tmp_path: Path) -> None:
    """Without a snapshot, and after a batch that was committed as somebody else's try."""
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 3)
    # This one is not kept: it is not known yet that it counts.
    task.process(bench.order())
    task.close()
    other = bench.task("two")
    bench.restore(other)
    bench.run(other, 1, generation=2)
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows, restored.snapshot_rows) == ("disk", 1, 0)
    assert _totals(again) == _totals(other)
    # Another run knows nothing of it.
    stranger = bench.task(run_id="another")
    assert _totals(stranger) == {}
    first = TaskOrder(TASK, 0, 1, {"left": (0, 1)}, START)
    stranger.process(first)
    assert _totals(stranger) == {1: 1}
    again.close()
    late = bench.task(run_id="another")
    assert late.restore(Restore(START, Recovery(), START)).position == START
    late.process(first)
    assert _totals(late) == {1: 1}, "what was there is forgotten before the first batch"


@pytest.mark.parametrize("client", ["one", "two"])
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_store_goes_from_memory_to_disk_and_back(
    tmp_path: Path, on_disk: bool, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when all changes before two snapshots are gone."""
    bench = Bench(tmp_path, on_disk=on_disk)
    task = bench.task()
    for _ in range(2):
        bench.run(task, 2)
        bench.share(task)
    bench.run(task, 1)
    task.close()
    (sub,) = bench.topology.sub_topologies
    (store,) = sub.stores
    assert isinstance(store, KeyValueStoreSpec)
    bench.topology = Topology([attrs.evolve(sub, stores=(attrs.evolve(store, on_disk=not on_disk),))])
    other = bench.task(client)
    restored = bench.restore(other)
    assert (restored.origin, restored.rows) == ("snapshot" if client == "one" else "shared", 1)
    assert _totals(other) == {1: 3, 2: 1, 3: 1}
    bench.run(other, 1)
    bench.share(other, client)
    again = bench.task("three")
    bench.restore(again)
    assert _totals(again) == _totals(other) == {1: 3, 2: 2, 3: 1}
    assert not caplog.records


def test_a_state_directory_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path) -> None:
    """It was a NotADirectoryError of a path that nobody had chosen."""
    (tmp_path / "one").write_bytes(b"no folder")
    with pytest.raises(
        ProcessorStateException, match=rf"kept in {tmp_path}/one/.* Maybe set state\.dir to another folder"
    ):
        Bench(tmp_path, on_disk=True).task()


def test_a_store_on_disk_that_is_damaged_is_empty_and_built_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 4)
    task.snapshot()
    bench.run(task, 1)
    task.close()
    for path in bench.environment().state(TASK).rglob("live/*/*.sst"):
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(bytes(byte ^ 255 if 20 < place < 300 else byte for place, byte in enumerate(whole)))
    again = bench.task()
    for _ in range(2):
        try:
            bench.restore(again)
            result = again.process(bench.order())
            break
        except TaskCorruptedException:
            assert again.position == START
    bench.commit(result)
    assert _totals(again) == {1: 3, 2: 2, 3: 1}


def test_a_damaged_changelog_is_named(bench: Bench) -> None:
    bench.run(bench.task(), 3)
    path = next(
        path for path in (bench.root / "run" / "changelog").rglob("*.arrow") if path.name.startswith("0" * 11 + "1")
    )
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptLogException) as caught:
        bench.restore(bench.task("two"))
    for part in ("changelog file of totals, partition 0, offset 1", str(path)):
        assert part in str(caught.value)


def test_a_missing_changelog_is_named(bench: Bench) -> None:
    bench.run(bench.task(), 2)
    path = min((bench.root / "run" / "changelog").rglob("*.arrow"))
    path.unlink()
    with pytest.raises(CorruptLogException, match=r"changelog file of totals, partition 0, offset 0 .*it is missing"):
        bench.restore(bench.task("two"))


def test_after_a_failure_the_state_is_that_of_the_batch_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    task = bench.task()
    bench.run(task, 2)
    before = _totals(task)
    broken = msgspec.structs.replace(bench.order(), ranges={"left": (2, 4), "right": (0, 0)})

    def fail(context: TaskContext, rows: pa.Table) -> None:
        assert _totals(task) != before
        raise ZeroDivisionError

    monkeypatch.setattr(TaskContext, "forward", fail)
    with pytest.raises(ProcessorException, match=r"task 0_0, batch 2 \(topic left, partition 0, offsets 2 to 3"):
        task.process(broken)
    monkeypatch.undo()
    assert (task.position, _totals(task)) == (bench.position, before)
    assert bench.restore(task).rows == 0
    bench.commit(task.process(bench.order()))
    assert _totals(task) == {1: 2, 2: 1}


def test_a_try_that_was_not_committed_is_taken_back(bench: Bench) -> None:
    """The batch is given again, under another generation: nothing is read for it."""
    task = bench.task()
    bench.run(task, 2)
    task.process(bench.order())
    restored = bench.restore(task)
    assert (restored.origin, restored.rows) == ("memory", 0)
    bench.run(task, 1, generation=2)
    assert _totals(task) == {1: 2, 2: 1}


def test_a_snapshot_that_cannot_be_written_leaves_the_older_one(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 2)
    task.snapshot()
    bench.run(task, 1)
    (bench.environment().state(TASK) / "snapshots" / f"{2:012d}-{1:08d}.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        task.snapshot()
    assert [position.batch for position in _snapshots(bench)] == [1]


# Snapshots in the folder of the run.


@pytest.mark.parametrize("at_once", [1, 64 << 20])
def test_another_client_goes_on_from_a_shared_snapshot_and_the_changes_after_it(
    bench: Bench, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from one that is too large to be written at once."""
    monkeypatch.setattr(sharing, "_AT_ONCE_BYTES", at_once)
    task = bench.task()
    bench.run(task, 2)
    bench.share(task)
    bench.run(task, 1)
    newest = bench.share(task)
    for path in (bench.root / "run" / "changelog").rglob("*.arrow"):
        path.unlink()
    bench.run(task, 2)
    other = bench.task("two")
    restored = bench.restore(other)
    assert (restored.origin, restored.rows, restored.snapshot_rows) == ("shared", 2, 2)
    assert restored.fetched_bytes == newest.size
    assert _totals(other) == _totals(task)
    bench.run(other, 1, generation=2)
    assert _totals(other) == {1: 3, 2: 2, 3: 1}
    # What it fetched is there: another process of this client fetches nothing.
    again = bench.task("two")
    restored = bench.restore(again)
    assert (restored.fetched_bytes, _totals(again)) == (0, _totals(other))


def test_what_is_shared_already_is_not_written_again(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 4)
    first = bench.share(task)
    bench.run(task, 1)
    second = bench.share(task)
    assert len(bench.shared()) == len({*first.paths.values(), *second.paths.values()})
    assert set(first.paths.values()) & set(second.paths.values())
    # Also by a client that has fetched it.
    other = bench.task("two")
    bench.restore(other)
    bench.run(other, 1, generation=2)
    third = bench.share(other, "two")
    assert set(second.paths.values()) & set(third.paths.values())
    again = bench.task("three")
    bench.restore(again)
    assert _totals(again) == _totals(other)


def _damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    path.unlink()  # a database may have a link to it
    half = len(whole) // 2
    if how == "cut" or not whole:
        path.write_bytes(whole[:half])
    elif how == "flipped":
        path.write_bytes(whole[:half] + bytes([whole[half] ^ 8]) + whole[half + 1 :])


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_damage_to_a_shared_snapshot_is_made_good_or_told(
    bench: Bench, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By what this client has, by the snapshot before it; else it is an error that names the file."""
    task = bench.task()
    bench.run(task, 1)
    first = bench.share(task)
    bench.run(task, 3)
    second = bench.share(task)
    files = {path: seal.size for path, (_, seal) in second.files.items() if path not in first.files}
    path = max(files, key=lambda path: files[path])
    _damage(bench.root / "run" / path, how)
    bench.run(task, 1)
    here = bench.restore(bench.task())
    assert here.fetched_bytes == 0
    other = bench.task("two")
    restored = bench.restore(other)
    assert (restored.origin, restored.rows) == ("shared", 4), "one row a batch after the older one"
    assert _totals(other) == _totals(task)
    assert "The snapshot of batch 3 in the folder of the run of task 0_0 cannot be used" in caplog.text
    assert Path(path).name in caplog.text
    for path in first.paths.values():
        _damage(bench.root / "run" / path, how)
    with pytest.raises(CorruptLogException, match=r"The snapshot file of totals, .*new run_dir") as caught:
        bench.restore(bench.task("three"))
    assert caught.value.path in {str(bench.root / "run" / path) for path in second.paths.values()}


def test_a_part_that_is_damaged_here_is_fetched(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 2)
    snapshot = bench.share(task)
    task.close()
    for path in bench.environment().state(TASK).glob("snapshots/*"):
        path.unlink()
    for path in bench.environment().state(TASK).glob("stores/totals/live/*/*"):
        path.unlink()
    parts = sorted(bench.environment().state(TASK).glob("stores/totals/parts/*"))
    for path in parts:
        _damage(path, "flipped")
    again = bench.task()
    restored = bench.restore(again)
    assert (restored.origin, restored.rows, restored.fetched_bytes) == ("shared", 0, snapshot.size)
    assert _totals(again) == {1: 1, 2: 1}


def test_a_part_that_is_damaged_here_is_not_shared(bench: Bench) -> None:
    task = bench.task()
    bench.run(task, 2)
    written = task.snapshot()
    for path in bench.environment().state(TASK).glob("stores/totals/parts/*"):
        _damage(path, "flipped")
    with pytest.raises(OSError, match="The part is damaged: its checksum"):
        share_snapshot(bench.environment(), TASK, written, None)
