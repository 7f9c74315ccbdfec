"""A run folder that coordinators write one after the other, while those that were replaced still think it is theirs, and others read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import attrs
import pyarrow as pa

from task_assignor.runtime import CommitLogException, CorruptLogException, list_markers, read_output
from task_assignor.runtime.machines.checkpoint import SavedProgress
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.records import (
    CommitRecord,
    FileRef,
    Marker,
    Part,
    RebalanceRecord,
    RoutedFile,
    SavedStore,
    TaskCommit,
    TaskSnapshot,
    part_path,
)
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.layout import APPLICATION, RunDescription, RunLayout
from task_assignor.runtime.run_folder.manifests import Manifests, manifest_name
from task_assignor.runtime.run_folder.outputs import committed_files, committed_outputs
from task_assignor.runtime.storage import as_arrow, as_document, open_arrow, open_document
from task_assignor.sdk import TaskId
from tests.runtime.interleaving import Actor, World

RUN: Final = "/interleaved"
PARTITIONS: Final = 2
REPLACED: Final = "A second coordinator runs on the same folder"


@attrs.define(eq=False)
class Coordinator:
    """One that has begun, and thinks that the folder is its own.

    Args:
        log: what it commits to.
        progress: how far the tasks are, as it knows.
        epoch: its epoch.
        generation: the generation that it began.
        lists: the lists of files that it keeps.
        asked: what is to be written and deleted beside the commits, in order.
        changed: what writes the lists that have changed, by their names.
    """

    log: CommitLog
    progress: Progress
    epoch: int
    generation: int
    lists: Manifests
    asked: deque[Callable[[], None]] = attrs.field(factory=deque)
    changed: dict[str, Callable[[], None]] = attrs.field(factory=dict)


class RunWorld(World):
    """A run folder and all who use it.

    Args:
        seed: decides everything.
    """

    sources: ClassVar[Mapping[TaskId, Sequence[str]]] = {
        TaskId(0, partition): ("t",) for partition in range(PARTITIONS)
    }
    """What the tasks read."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, RUN)
        chance = self.chance
        # Who is about to write a list may be replaced meanwhile.
        self.storage.sleepy = lambda what, name: 0.3 if what == "put" and name.startswith("manifest") else 0
        self.upkeep = Upkeep(
            merged_bytes=chance.choice((1_000, 1_500, 3_000, 128 << 20)),
            retention_ms=chance.choice((0, 0, 300, 2_000, 1 << 40)),
            history_bytes=chance.choice((1_000, 16 << 20)),
            now_ms=lambda: self.actors.now,
        )
        self.every = chance.choice((1, 2, 3, 8))
        self.late = chance.choice((0.5, 2, 3))
        """How late checkpoints are, as a power of ten."""
        self.records: list[CommitRecord] = []
        """Those that count, by number."""
        self.confirmed = -1
        """The newest of which somebody was told."""

    def _add_actors(self) -> None:
        chance = self.chance
        self.storage.put(APPLICATION, as_document(RunDescription("app", "a run", {}, "topics", {"out": None})))
        often, dies = chance.choice((4, 12, 30)), chance.choice((0, 0, 0.002, 0.01))
        for number in range(chance.randint(1, 4)):
            self._add_coordinator(f"coordinator {number}", often, dies)
        self._add(chance.randint(0, 3), "reader", lambda: self._reads(often))

    # What counts.

    def _created(self, name: str) -> None:
        folder, _, last = name.rpartition("/")
        if folder != "commits" or int(last.removesuffix(".json")) < len(self.records):
            # One that was replaced long ago finds its number free; it is told, and what it wrote is below a checkpoint.
            return
        record = open_document(self.storage, name, CommitRecord)
        assert record.number == len(self.records)
        assert not self.records or record.epoch >= self.records[-1].epoch, "one that was replaced has committed"
        for task, commit in record.tasks.items():
            assert commit.batch == len(self._batches(record.number - 1, task)), "a batch counts twice, or never"
        self._take(record)

    def _take(self, record: CommitRecord) -> None:
        """It counts."""
        self.records.append(record)

    def _batches(self, number: int, task: TaskId) -> list[TaskCommit]:
        """The batches of a task up to a commit."""
        return [record.tasks[task] for record in self.records[: number + 1] if task in record.tasks]

    def _rows_at(self, number: int) -> list[int]:
        """The rows of the output after a commit."""
        return [row for task in self.sources for commit in self._batches(number, task) for row in self._given(commit)]

    def _given(self, commit: TaskCommit) -> list[int]:
        """The rows that a batch gives to the output."""
        return rows_of(commit.task, commit.batch, commit.generation)

    # Coordinators.

    def _add_coordinator(self, name: str, often: int, dies: float) -> None:
        begun: list[Coordinator] = []
        actor = self.actors.add(name, lambda: self._coordinates(begun, often), dies)
        actor.wakes = int(10 ** self.chance.uniform(0, 3))
        before = actor
        for what, work in (("upkeep", self._do_asked), ("lists", self._write_list)):
            lives = partial(self._lives_beside, begun, before, work)
            before = self.actors.add(f"{what} of {name}", lives, dies, actor)

    def _coordinates(self, begun: list[Coordinator], often: int) -> None:
        try:
            begun.append(self._begin())
            for _ in range(self.chance.randint(1, often)):
                self._commit(begun[0])
        except CommitLogException as error:
            if REPLACED not in str(error):
                raise

    def _begin(self) -> Coordinator:
        log = CommitLog(RUN, self.upkeep)
        opening = log.open_epoch("app", "somebody", self.actors.now)
        ends = {"t": [1 << 40] * PARTITIONS}
        progress = Progress.after(*log.opened(), self.sources, ends, repartitions=self._repartitions())
        assert self.records[opening.number].epoch == opening.epoch, "its first record does not count"
        changed: dict[str, Callable[[], None]] = {}
        lists = Manifests(RUN, opening.epoch, ["out"], changed.__setitem__)
        coordinator = Coordinator(log, progress, opening.epoch, opening.generation + 1, lists, changed=changed)
        assert progress.last_commit == opening.number
        self._append(coordinator, {}, rebalance=RebalanceRecord(coordinator.generation, "why", {}))
        return coordinator

    def _repartitions(self) -> Repartitions | None:
        """What the tasks write for each other."""
        return None

    def _commit(self, coordinator: Coordinator) -> None:
        """A batch of some tasks, and maybe snapshots and a marker."""
        chance, progress = self.chance, coordinator.progress
        done = [self._process(coordinator, task) for task in self.sources if chance.random() < 0.8]
        tasks = {commit.task: commit for commit in done if commit is not None}
        snapshots = {
            task: self._save(coordinator, task)
            for task in self.sources
            if chance.random() < 0.2 and progress.position(task).batch >= 0
        }
        snapshots = {task: found for task, found in snapshots.items() if not progress.why_refuse(found)}
        number = progress.last_commit + 1
        markers = (Marker(f"m{number}", number, 0, 0),) if chance.random() < 0.1 else ()
        self._append(coordinator, tasks, snapshots=snapshots, markers=markers)
        if number % self.every == 0:
            coordinator.asked.append(partial(self._write_checkpoint, coordinator, number, progress.saved()))

    def _process(self, coordinator: Coordinator, task: TaskId) -> TaskCommit | None:
        """A batch; None: there is nothing to read."""
        batch = coordinator.progress.position(task).batch + 1
        where = (task, batch, coordinator.generation)
        output = self._write(RunLayout(RUN).output("out", *where), rows_of(*where))
        return self._done(*where, {"t": (batch, batch + 1)}, {"out": output})

    def _done(
        self,
        task: TaskId,
        batch: int,
        generation: int,
        offsets: Mapping[str, tuple[int, int]],
        outputs: Mapping[str, FileRef],
        repartitions: Mapping[str, RoutedFile] | None = None,
    ) -> TaskCommit:
        """What a task has done, with changes of its store."""
        store = _store(task)
        changes = self._write(RunLayout(RUN).changelog(store, task, batch, generation), [batch])
        where = (task, batch, "c", "p", "m", "a", generation, offsets)
        return TaskCommit(*where, outputs, {store: changes}, batch + 1, repartitions=repartitions or {})

    def _write(self, path: str, numbers: Sequence[int]) -> FileRef:
        rows = pa.table({"n": pa.array(numbers, pa.int64())})
        data, seal = as_arrow(rows)
        self.storage.put(path, data)
        return FileRef(path, seal, tuple((field.name, str(field.type)) for field in rows.schema))

    def _save(self, coordinator: Coordinator, task: TaskId) -> TaskSnapshot:
        """A snapshot in two parts, of which one may be that of the one before."""
        position, newest = coordinator.progress.position(task), coordinator.progress.recovery(task).newest
        paths, parts, store = {}, [], _store(task)
        if newest is not None:
            parts.append(newest.stores[store].parts[-1])
            paths[parts[0].name] = newest.paths[parts[0].name]
        name = f"{coordinator.generation:08d}.part"
        path = part_path(store, task, position.batch, name)
        parts.append(Part(name, self._write(path, [position.batch]).seal))
        paths[name] = path
        where = (task, position.batch, position.generation, position.changelog_offset, None)
        return TaskSnapshot(*where, {store: SavedStore("k", tuple(parts))}, paths)

    def _append(
        self,
        coordinator: Coordinator,
        tasks: Mapping[TaskId, TaskCommit],
        rebalance: RebalanceRecord | None = None,
        snapshots: Mapping[TaskId, TaskSnapshot] | None = None,
        markers: tuple[Marker, ...] = (),
    ) -> None:
        progress = coordinator.progress
        number, now_ms = progress.last_commit + 1, self.actors.now
        where = (number, "app", coordinator.epoch, coordinator.generation, now_ms)
        record = CommitRecord(*where, tasks, rebalance, "", snapshots or {}, markers)
        coordinator.log.append(record)
        assert self.records[number] == record, "a commit that was confirmed does not count"
        self.confirmed = max(self.confirmed, number)
        progress.begin_commit(number)
        for commit in tasks.values():
            progress.advance(commit)
        for snapshot in record.snapshots.values():
            progress.take_snapshot(snapshot)
        if unwanted := progress.publish(record):
            coordinator.asked.append(partial(self.storage.delete, unwanted))
        coordinator.lists.take(record)

    def _lives_beside(self, begun: list[Coordinator], before: Actor, work: Callable[[Coordinator], bool]) -> None:
        """A thread of a coordinator: works until another one has ended, and nothing is left to do."""
        is_over = is_idle = False
        while not (is_over and is_idle):
            is_over = before.has_ended
            self.actors.point()
            is_idle = not begun or not work(begun[0])

    def _do_asked(self, coordinator: Coordinator) -> bool:
        if not coordinator.asked:
            return False
        # Some are late, and several wait: also those of a coordinator that is replaced meanwhile.
        begins = self.actors.now + int(10 ** self.chance.uniform(0, self.late))
        while self.actors.now < begins:
            self.actors.point()
        coordinator.asked.popleft()()
        return True

    @staticmethod
    def _write_checkpoint(coordinator: Coordinator, number: int, state: SavedProgress) -> None:
        written = coordinator.log.write_checkpoint(number, state)
        if written is not None:
            coordinator.lists.take_checkpoint(written)

    def _write_list(self, coordinator: Coordinator) -> bool:
        if not coordinator.changed:
            return False
        _, write = coordinator.changed.popitem()
        write()
        return True

    # Readers.

    def _reads(self, often: int) -> None:
        ways = (self._read_output, self._read_marker, self._read_records, self._read_listed, self._read_list_meanwhile)
        for _ in range(2 * self.chance.randint(1, often)):
            self._sleep()
            if self.confirmed >= 0:
                self.chance.choice(ways)()

    def _sleep(self) -> None:
        self.actors.point(int(10 ** self.chance.uniform(-1, 3)))

    def _read_output(self) -> None:
        least = self.confirmed
        self._check_prefix(read_output(RUN, "out"), least)

    def _check_prefix(self, rows: pa.Table, least: int) -> None:
        found = rows.column("n").to_pylist() if rows.num_columns else []
        assert any(found == self._rows_at(number) for number in range(least, len(self.records))), "rows of no commit"

    def _read_marker(self) -> None:
        known = [marker for record in self.records[: self.confirmed + 1] for marker in record.markers]
        found = list_markers(RUN)
        assert list(found)[: len(known)] == known
        if found:
            marker = self.chance.choice(found)
            rows = read_output(RUN, "out", marker.name)
            assert (rows.column("n").to_pylist() if rows.num_columns else []) == self._rows_at(marker.commit)

    def _read_records(self) -> None:
        least = self.confirmed
        found = list(CommitLog(RUN).records())
        assert found == self.records[found[0].number : found[-1].number + 1]
        assert found[-1].number >= least, "records that were confirmed are not read"

    def _read_listed(self) -> None:
        """As another engine does: list files, and read them later."""
        least, began = self.confirmed, self.actors.now
        files = committed_outputs(RUN, "out")
        self._sleep()
        tables = []
        for one in files:
            self.actors.point()
            try:
                tables.append(
                    open_arrow(
                        self.storage, one.file.path, one.file.seal, "output", "out", one.task.partition, one.first
                    )
                )
            except CorruptLogException:
                if self.actors.now - began < self.upkeep.retention_ms:
                    raise
                return
        self._check_prefix(pa.concat_tables(tables) if tables else pa.table({}), least)

    def _list(self) -> list[str]:
        """The files that the list for other engines has."""
        return bytes(self.storage.open(manifest_name("out"))).decode().splitlines()

    def _read_list(self, least: int = 0) -> None:
        """As an engine does that knows nothing of commits."""
        names = [file.removeprefix(f"{RUN}/") for file in self._list()]
        tables = [pa.ipc.open_file(self.storage.open(name)).read_all() for name in names]
        self._check_prefix(pa.concat_tables(tables) if tables else pa.table({}), least)

    def _read_list_meanwhile(self) -> None:
        try:
            self._read_list()
        except FileNotFoundError as error:
            if self.upkeep.retention_ms == 1 << 40 and error.filename != manifest_name("out"):
                raise

    # What must hold.

    def _check(self) -> None:
        if not self.actors.deaths:
            self._read_list(len(self.records) - 1)
        coordinator = self._begin()
        self._check_all(coordinator)
        for _ in range(4 * self.every):
            self._commit(coordinator)
            while self._do_asked(coordinator):
                pass
            last = coordinator.progress.last_commit
            assert last % self.every or coordinator.log.checkpoint().number == last, "no checkpoint is written any more"
        self._check_all(coordinator)
        self._check_leftovers(coordinator)

    def _check_all(self, coordinator: Coordinator) -> None:
        self._write_list(coordinator)
        assert self._list() == committed_files(RUN, "out")
        self._read_output()
        self._read_records()
        self._read_marker()
        for marker in list_markers(RUN):
            rows = read_output(RUN, "out", marker.name)
            assert (rows.column("n").to_pylist() if rows.num_columns else []) == self._rows_at(marker.commit)
        for task in self.sources:
            recovery = coordinator.progress.recovery(task)
            for snapshot in recovery.snapshots:
                for path in snapshot.paths.values():
                    assert path in self.storage.objects, f"{path} of a snapshot is gone"
            for change in recovery.changes:
                for file in change.changelogs.values():
                    assert file.path in self.storage.objects, f"the changes {file.path} are gone"

    def _check_leftovers(self, coordinator: Coordinator) -> None:
        count = {folder: len(self.storage.list(folder)) for folder in ("commits", "checkpoints", "replaced")}
        assert count["checkpoints"] <= 2, count
        assert count["commits"] <= 2 * self.every + 2, count
        if not self.upkeep.retention_ms:
            assert count["replaced"] <= 2, count


def _store(task: TaskId) -> str:
    """A store is of one sub-topology."""
    return f"s{task.subtopology}"


def rows_of(task: TaskId, batch: int, generation: int) -> list[int]:
    """What a task gives in a batch."""
    return [((task.partition * 10_000 + batch) * 1_000 + generation) * 10 + number for number in range(1 + batch % 3)]
