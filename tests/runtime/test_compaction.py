"""Small files of outputs become large ones; who reads sees the same rows in the same order, whenever and whatever is killed."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import (
    BatchesCommitted,
    CommitLog,
    CommitRecord,
    CorruptLogException,
    FileRef,
    Output,
    ProcessorException,
    RebalanceRecord,
    TaskCommit,
    Topology,
    WindowedJoin,
    committed_files,
    output_schema,
    read_output,
)
from task_assignor.runtime.machines.checkpoint import SavedFile, SavedProgress, SavedRepartition
from task_assignor.runtime.machines.output_files import OutputFiles, merged_at
from task_assignor.runtime.machines.records import RoutedFile, Seal
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.layout import APPLICATION, RunDescription, RunLayout
from task_assignor.runtime.run_folder.manifests import Manifests
from task_assignor.runtime.storage import PARQUET, Data, LocalStorage, as_arrow, as_document, as_parquet
from task_assignor.sdk import TaskId
from tests.runtime.support import (
    AFTER_MS,
    BEFORE_MS,
    QUICK,
    Watch,
    application,
    in_order,
    plain_join,
    write_streams,
)

TASKS = (TaskId(0, 0), TaskId(0, 1))


# Which files become one.


def _commit(task: TaskId, batch: int, size: int) -> CommitRecord:
    file = FileRef(f"output/out/{task.partition}/{batch:012d}-00000001.arrow", Seal(1, size, "0"), (("x", "int64"),))
    commit = TaskCommit(task, batch, "c", "p", "m", "a", 1, {}, {"out": file})
    return CommitRecord(batch, "app", 1, 1, 0, {task: commit})


@given(st.lists(st.lists(st.integers(1, 1_000), min_size=1, max_size=12), min_size=1, max_size=12))
def test_few_files_are_left_and_rows_are_copied_seldom(checkpoints: list[list[int]]) -> None:
    """Of any sizes, however many between two checkpoints; nothing is merged beyond the limit."""
    files, batches, copied, limit = OutputFiles(), 0, 0, 2_000
    for number, sizes in enumerate(checkpoints):
        for size in sizes:
            files.take(_commit(TASKS[0], batches, size))
            batches += 1
        for merge in files.merges(number, 7, limit):
            seals = [one.file.seal for one in merge.files]
            whole = Seal(sum(seal.rows for seal in seals), sum(seal.size for seal in seals), "1")
            assert whole.size <= limit
            copied += whole.size
            files.replace(merge, whole, (("x", "int64"),))
            assert merged_at(merge.path) == number
            assert merge.path.endswith("-00000007.arrow")
        left = list(files.of("out"))
        assert [left[0].first, *(one.first for one in left[1:])] == [0, *(one.last + 1 for one in left[:-1])]
        assert left[-1].last == batches - 1
        assert OutputFiles.load(files.saved()).saved() == files.saved()
        total = sum(one.file.seal.size for one in left)
        assert len(left) <= 3 * total / limit + len(sizes) + math.log2(total + 1) + 1
    total = sum(map(sum, checkpoints))
    assert copied <= total * (2 * math.log2(total + 1) + 2)


def test_equal_batches_leave_a_logarithm_of_files() -> None:
    files, most = OutputFiles(), 0
    for batch in range(4_000):
        files.take(_commit(TASKS[0], batch, 10))
        if batch % 10 == 9:
            for merge in files.merges(batch, 1):
                rows, size = (sum(getattr(one.file.seal, name) for one in merge.files) for name in ("rows", "size"))
                files.replace(merge, Seal(rows, size, "1"), ())
            most = max(most, len(list(files.of("out"))))
    assert most <= 9


# In a folder.


class Killed(BaseException):
    """The process is dead."""


class Run:
    """A coordinator of two tasks with one output in a folder, and what readers should see of it.

    Args:
        root: the folder.
        upkeep: how it is kept small.
        ending: of the files.
    """

    def __init__(self, root: Path, upkeep: Upkeep | None = None, ending: str = ".arrow") -> None:
        self.root = root
        self.ending = ending
        self.upkeep = attrs.evolve(upkeep or Upkeep(retention_ms=0), now_ms=lambda: self.now_ms)
        self.storage = LocalStorage(root, is_durable=False)
        description = RunDescription("app", "a run", {}, "topics", {"out": None})
        self.storage.put(APPLICATION, as_document(description))
        self.expected: dict[TaskId, list[int | None]] = {task: [] for task in TASKS}
        self.batches = dict.fromkeys(TASKS, 0)
        self.generation = 0
        self.now_ms = 0
        self.open()

    def open(self) -> None:
        """A coordinator begins, and a generation with it."""
        self.log = CommitLog(self.root, self.upkeep)
        opening = self.log.open_epoch("app", "me", self.now_ms)
        self.epoch, self.number = opening.epoch, opening.number
        self.generation += 1
        rebalance = RebalanceRecord(self.generation, "why", {})
        self._append({}, rebalance)

    def _append(self, tasks: Mapping[TaskId, TaskCommit], rebalance: RebalanceRecord | None = None) -> None:
        record = CommitRecord(
            self.number + 1, "app", self.epoch, self.generation, self.now_ms, tasks, rebalance=rebalance
        )
        self.log.append(record)
        self.number += 1

    def write(self, task: TaskId, rows: pa.Table, generation: int | None = None) -> FileRef:
        """A file of the task's next batch; it does not count."""
        layout = RunLayout(self.root)
        path = layout.output("out", task, self.batches[task], generation or self.generation, self.ending)
        data, seal = (as_parquet if self.ending == PARQUET else as_arrow)(rows)
        self.storage.put(path, data)
        return FileRef(path, seal, tuple((field.name, str(field.type)) for field in rows.schema))

    def commit(
        self,
        *values: int | None,
        tasks: Iterable[TaskId] = TASKS,
        kind: pa.DataType | None = None,
        nullable: bool = True,
    ) -> None:
        """A batch of each task with these values."""
        done: dict[TaskId, TaskCommit] = {}
        for task in tasks:
            array = pa.array(values, pa.int64() if kind is None else None)
            if kind is not None:
                array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
            rows = pa.table({"x": array}, pa.schema([pa.field("x", array.type, nullable)]))
            where = (task, self.batches[task], "c", "p", "m", "a", self.generation)
            done[task] = TaskCommit(*where, {"t": (0, 1)}, {"out": self.write(task, rows)})
        self._append(done)
        for task in done:
            self.batches[task] += 1
            self.expected[task] += values

    def checkpoint(self) -> None:
        """A checkpoint of all records."""
        self.log.write_checkpoint(self.number, SavedProgress())

    def go_on(self, commits: int, every: int) -> None:
        """Some batches, with checkpoints."""
        for number in range(commits):
            self.commit(self.number, -self.number)
            if number % every == every - 1:
                self.checkpoint()

    def check(self) -> None:
        """Readers see what was committed, in its order."""
        found = read_output(self.root, "out").column("x").to_pylist()
        assert found == [value for task in TASKS for value in self.expected[task]]

    @property
    def files(self) -> list[str]:
        """The files of the output, whether they count or not."""
        return sorted(path.relative_to(self.root).as_posix() for path in (self.root / "output").rglob("*.*"))


@pytest.mark.parametrize("ending", [".arrow", PARQUET])
def test_files_do_not_grow_with_the_batches(tmp_path: Path, ending: str) -> None:
    run = Run(tmp_path, ending=ending)
    most = 0
    for _ in range(20):
        run.go_on(16, every=4)
        most = max(most, len(run.files))
        run.check()
        assert {str(tmp_path / name) for name in run.files} >= set(committed_files(tmp_path, "out"))
    assert most < 2 * (3 * 4 + 9), "640 batches"
    assert len(committed_files(tmp_path, "out")) <= 2 * 9
    if ending == PARQUET:
        read = pq.ParquetDataset(committed_files(tmp_path, "out")).read()
        assert read.column("x").to_pylist() == read_output(tmp_path, "out").column("x").to_pylist()


def test_merging_stops_at_the_limit(tmp_path: Path) -> None:
    size = as_arrow(pa.table({"x": [1, 2]}))[1].size
    run = Run(tmp_path, Upkeep(merged_bytes=4 * size, retention_ms=0))
    run.go_on(64, every=4)
    run.check()
    assert max(path.stat().st_size for path in (tmp_path / "output").rglob("*.arrow")) <= 4 * size


def test_columns_that_are_null_in_some_batches_and_dictionaries_can_be_merged(tmp_path: Path) -> None:
    run = Run(tmp_path / "nulls")
    run.commit(None, kind=pa.null())
    run.commit(1)
    run.commit(None, kind=pa.null())
    run.checkpoint()
    run.check()
    assert len(committed_files(tmp_path / "nulls", "out")) == 2
    assert read_output(tmp_path / "nulls", "out").schema == pa.schema([("x", pa.int64())])
    with pytest.raises(ProcessorException, match="Columns cannot go or change"):
        run.commit(1, kind=pa.float64())
    for ending in (".arrow", PARQUET):
        run = Run(tmp_path / f"dictionary{ending}", ending=ending)
        for number in range(4):
            run.commit(number, 9, number, kind=pa.dictionary(pa.int32(), pa.int64()))
        run.checkpoint()
        run.check()
        assert len(committed_files(run.root, "out")) == 2


def test_a_column_that_one_batch_says_is_never_null_may_be_null_in_others(tmp_path: Path) -> None:
    """Spark was told the first, and took what is null for something else."""
    run = Run(tmp_path)
    run.commit(1, nullable=False)
    run.commit(None)
    assert output_schema(tmp_path, "out") == pa.schema([("x", pa.int64())])
    run.check()


def test_compressed_files_are_merged_compressed(tmp_path: Path) -> None:
    run = Run(tmp_path, Upkeep("zstd", retention_ms=0))
    for _ in range(2):
        run.commit(*[7] * 50_000, tasks=TASKS[:1])
    run.checkpoint()
    (path,) = committed_files(tmp_path, "out")
    assert Path(path).stat().st_size < 50_000
    run.check()


def test_who_has_listed_files_can_read_them_for_a_while(tmp_path: Path) -> None:
    run = Run(tmp_path, Upkeep(retention_ms=1_000))
    run.go_on(4, every=4)
    listed = []
    for _ in range(4):
        run.go_on(4, every=4)
        run.commit(5)
        listed.append((run.now_ms, committed_files(tmp_path, "out")))
        run.now_ms += 200
    for _ in range(8):
        run.go_on(4, every=4)
        for at_ms, files in listed:
            if run.now_ms < at_ms + 1_000:
                assert all(Path(file).exists() for file in files)
        run.now_ms += 500
    assert not any(Path(file).exists() for file in listed[0][1])
    assert len(list((tmp_path / "replaced").iterdir())) <= 5
    run.check()


def test_a_late_checkpoint_takes_no_files_from_who_has_listed_them_before_it(tmp_path: Path) -> None:
    """How long they stay was counted from the commit that it is of: they went with the next one."""
    run = Run(tmp_path, Upkeep(retention_ms=1_000))
    run.go_on(4, every=5)
    run.now_ms += 5_000
    listed = committed_files(tmp_path, "out")
    for _ in range(2):
        run.checkpoint()
        run.commit(1)
        assert all(Path(file).exists() for file in listed)
    run.now_ms += 1_000
    run.checkpoint()
    assert not any(Path(file).exists() for file in listed)


def test_what_was_replaced_is_written_down_once_however_often_no_checkpoint_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk there were more and more such lists."""
    run = Run(tmp_path, Upkeep(retention_ms=1_000))
    run.go_on(4, every=4)
    with monkeypatch.context() as patch:
        patch.setattr(run.log._checkpoints._storage, "put_all", Mock(side_effect=OSError("full")))
        for _ in range(3):
            run.now_ms += 100
            run.commit(1)
            run.commit(2)
            with pytest.raises(OSError, match="full"):
                run.checkpoint()
    run.checkpoint()
    assert len(list((tmp_path / "replaced").iterdir())) == 1
    run.check()


def test_who_reads_while_files_go_reads_those_that_took_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.go_on(3, every=9)
    opened, turns = LocalStorage.open, iter(range(100))

    def open_slowly(self: LocalStorage, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        if name.startswith("output/") and next(turns) == 0:
            run.go_on(12, every=3)
        return opened(self, name, start, end)

    monkeypatch.setattr(LocalStorage, "open", open_slowly)
    run.check()


def test_a_damaged_file_stays_as_it_is_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    run = Run(tmp_path)
    for value in range(5):
        run.commit(value, tasks=TASKS[:1])
    damaged = Path(committed_files(tmp_path, "out")[2])
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    run.checkpoint()
    assert [Path(file) == damaged for file in committed_files(tmp_path, "out")] == [False, True, False]
    with pytest.raises(CorruptLogException, match=f"{damaged.name}.*its checksum is"):
        read_output(tmp_path, "out")
    warnings = len(caplog.records)
    assert "checksum" in caplog.text
    run.go_on(8, every=4)
    assert len(caplog.records) == warnings, "it is told once"
    damaged.write_bytes(whole)
    run.check()


# Kills.


@contextmanager
def _killed_at(monkeypatch: pytest.MonkeyPatch, point: int) -> Iterator[list[int]]:
    """The process dies at a write: before it, or when half of it is done. Gives the writes that were begun."""
    begun = [0]

    def dies() -> bool:
        begun[0] += 1
        return begun[0] - 1 == point

    with monkeypatch.context() as patch:
        put, put_all, delete = LocalStorage.put, LocalStorage.put_all, LocalStorage.delete

        def put_or_die(self: LocalStorage, name: str, data: Data) -> None:
            if dies():
                raise Killed
            put(self, name, data)

        def put_all_or_die(self: LocalStorage, objects: Mapping[str, Data]) -> None:
            if dies():
                # Durable only when it returns: one is torn.
                put_all(self, {name: pa.py_buffer(data)[: len(data) // 2] for name, data in objects.items()})
                raise Killed
            put_all(self, objects)

        def delete_or_die(self: LocalStorage, names: Iterable[str]) -> None:
            names = list(names)
            if names and dies():
                delete(self, names[: len(names) // 2])
                raise Killed
            delete(self, names)

        patch.setattr(LocalStorage, "put", put_or_die)
        patch.setattr(LocalStorage, "put_all", put_all_or_die)
        patch.setattr(LocalStorage, "delete", delete_or_die)
        try:
            yield begun
        except Killed:
            begun.append(-1)


def test_a_kill_at_any_write_of_a_checkpoint_changes_no_row_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, was_killed = 0, True
    while was_killed:
        run = Run(tmp_path / str(point))
        run.go_on(8, every=4)
        for value in (1, 2, 3):
            run.commit(value)
        with _killed_at(monkeypatch, point) as begun:
            run.checkpoint()
        was_killed = begun[-1] == -1
        run.check()
        run.open()
        run.check()
        run.go_on(12, every=4)
        run.check()
        # Those that count, and those of the last checkpoints.
        known = {*CommitLog(run.root).checkpoint().replaced}
        counting = {Path(file).relative_to(run.root).as_posix() for file in committed_files(run.root, "out")}
        assert set(run.files) <= counting | known, f"killed at {point}"
        point += 1
    assert point > 6, "merged files, lists, history, checkpoint, deletions"


def test_a_replaced_coordinator_that_merges_takes_nothing_from_the_new_one(tmp_path: Path) -> None:
    """It was asleep, and merges and deletes what it thinks is its own."""
    for asleep_at in range(3):
        run = Run(tmp_path / str(asleep_at))
        run.go_on(6 + asleep_at, every=3)
        asleep, number = run.log, run.number
        run.open()
        if asleep_at == 2:
            run.go_on(7, every=3)
        asleep.write_checkpoint(number, SavedProgress())
        run.check()
        run.go_on(7, every=3)
        run.check()
        assert run.log.checkpoint().number > number, "the new one writes checkpoints all the same"


# What nothing names.


def test_files_that_no_commit_names_are_deleted_and_the_work_of_this_moment_is_not(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go_on(4, every=4)
    lost = [run.write(task, pa.table({"x": [666]}), generation=1).path for task in TASKS]
    run.open()
    now = run.write(TASKS[1], pa.table({"x": [1]})).path
    run.commit(1, tasks=TASKS[:1])
    run.checkpoint()
    assert lost[0] not in run.files, "its batch counts under another generation"
    assert {lost[1], now} <= set(run.files), "its batch does not count yet"
    run.commit(2, tasks=TASKS[1:])
    run.checkpoint()
    assert lost[1] not in run.files
    late = run.log.layout.output("out", TASKS[0], 0, 1_000)
    run.storage.put(late, b"strange")
    mine = {"output/out/0/notes.txt", "output/2024-01-02-report.csv"}
    run.storage.put_all(dict.fromkeys(mine, b"mine"))
    run.go_on(4, every=4)
    assert late in run.files, "nobody has died since"
    run.open()
    run.go_on(4, every=4)
    assert late not in run.files
    assert mine <= set(run.files)
    run.check()


def test_what_others_put_into_the_folder_is_left_alone_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another run, whose files have names like ours, those that were merged were deleted: through a link, or in a copy."""
    other, run = Run(tmp_path / "other"), Run(tmp_path / "run")
    for one in (other, run):
        one.go_on(8, every=4)
    ours = {*run.root.rglob("*")}
    for name in ("replaced", "checkpoints", "history", "commits", "output", "output/out", "output/out/0"):
        folder = run.root / name
        folder.mkdir(exist_ok=True)
        for file in ("notes.txt", "backup-000000000001.json", "2024-01-02-report.csv"):
            (folder / file).write_text("mine")
        for link, target in {"gone": "nowhere", "circle": "circle", "a-file": "notes.txt"}.items():
            (folder / link).symlink_to(target)
        (folder / "000000000001-0000000000000.json").mkdir()
        (folder / "linked").symlink_to(other.root / "output" / "out")
        shutil.copytree(other.root / "output", folder / "copied")
    strange = {*run.root.rglob("*")} - ours
    caplog.set_level(logging.WARNING)
    run.go_on(8, every=4)
    run.open()
    run.go_on(16, every=4)
    assert strange <= {*run.root.rglob("*")}
    run.check()
    other.check()
    assert caplog.text == ""


def test_files_of_repartition_topics_that_nobody_deleted_are_deleted(tmp_path: Path) -> None:
    """Those that are to be read stay; those that were read before a crash go, also where the last checkpoint still had them."""
    run = Run(tmp_path)
    paths = []
    for batch in range(4):
        path = run.log.layout.repartition("pairs", TASKS[0], batch, 1)
        data, seal = as_arrow(pa.table({"x": [1]}))
        run.storage.put(path, data)
        routed = {"pairs": RoutedFile(FileRef(path, seal), (1,))}
        commit = TaskCommit(TASKS[0], batch, "c", "p", "m", "a", 1, {}, repartitions=routed)
        run._append({TASKS[0]: commit})
        paths.append((path, FileRef(path, seal)))
    lost = run.log.layout.repartition("pairs", TASKS[0], 2, 7)
    run.storage.put(lost, b"")
    for first, begins in ((2, True), (3, True), (3, False)):
        files = tuple(SavedFile(file, (1,)) for _, file in paths[first:])
        if begins:
            run.open()
        run.log.write_checkpoint(
            run.number, SavedProgress(repartitions={"pairs": SavedRepartition((first,), (first,), files)})
        )
        run._append({})
    left = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "repartition").rglob("*.arrow")}
    assert left == {paths[3][0]}


# All together.


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
def test_a_run_merges_while_others_read(tmp_path: Path, file_format: str) -> None:
    """With clients, a stop and another run: exact at the end, and never other rows before."""
    left, right = write_streams(tmp_path / "topics", rows=4_000, keys=100, partitions=2)
    join = WindowedJoin(left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS)
    topology = Topology([join.sub_topology("join", Output("joined", format=file_format))])  # type: ignore[arg-type]
    options = attrs.evolve(QUICK, max_batch_rows=50, checkpoint_every_commits=8, output_retention_ms=1)
    app = application(tmp_path, topology, options=options)
    watch, counts = Watch(), [0]
    rows: list[int] = []

    def look(event: BatchesCommitted) -> None:
        counts[0] += 1
        if counts[0] % 10 == 0:
            rows.append(read_output(tmp_path / "run", "joined").num_rows)
        if counts[0] == 35:
            app.request_stop()

    watch.on(BatchesCommitted, look)
    app.run(watch)
    result = app.run(watch)
    assert in_order(result.table("joined")).equals(in_order(plain_join(left, right)))
    assert rows == sorted(rows)
    files = committed_files(tmp_path / "run", "joined")
    assert len(files) < result.batches / 2
    assert any(merged_at(name) is not None for name in files)
    if file_format == "parquet":
        listed = (tmp_path / "run" / "manifest" / "joined" / "files.txt").read_text().splitlines()
        assert listed == files
        assert in_order(pq.ParquetDataset(listed).read()).equals(in_order(plain_join(left, right)))


def _listed(root: Path) -> list[str]:
    return (root / "manifest" / "out" / "files.txt").read_text().splitlines()


def test_lists_of_parquet_files_follow_merges(tmp_path: Path) -> None:
    run = Run(tmp_path, ending=PARQUET)
    manifests = Manifests(str(tmp_path), run.epoch, ["out"], lambda _, write: write())
    append = run.log.append

    def append_and_tell(record: CommitRecord) -> None:
        append(record)
        manifests.take(record)
        assert _listed(tmp_path) == committed_files(tmp_path, "out")

    run.log.append = append_and_tell  # type: ignore[method-assign]
    for _ in range(3):
        run.commit(1)
        run.commit(2)
        written_checkpoint = run.log.write_checkpoint(run.number, SavedProgress())
        assert written_checkpoint is not None
        manifests.take_checkpoint(written_checkpoint)
        assert _listed(tmp_path) == committed_files(tmp_path, "out")
    assert len(committed_files(tmp_path, "out")) == 2


def test_a_replaced_coordinator_that_wakes_up_leaves_no_list_of_before(tmp_path: Path) -> None:
    """It put its own over that of its successor: rows were missing, and files were named that had been merged and deleted."""
    run = Run(tmp_path, ending=PARQUET)
    run.commit(1)
    asleep: dict[str, Callable[[], None]] = {}
    Manifests(str(tmp_path), run.epoch, ["out"], asleep.__setitem__)
    run.open()
    run.go_on(12, every=4)
    Manifests(str(tmp_path), run.epoch, ["out"], lambda _, write: write())
    for write in asleep.values():
        write()
    assert _listed(tmp_path) == committed_files(tmp_path, "out")
