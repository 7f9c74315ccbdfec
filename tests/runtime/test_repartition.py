"""Sub-topologies that read what others wrote: by another key, exactly once, in offsets that the commit log fixes."""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    CommitLog,
    CommitLogException,
    KeyValueStoreSpec,
    Output,
    Processor,
    Repartitioned,
    RunEvent,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    TopologyException,
    WindowedJoin,
    read_output,
)
from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedProgress
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.encoding import decode, encode
from task_assignor.runtime.machines.records import CommitRecord, FileRef, RoutedFile, Seal, TaskCommit
from task_assignor.runtime.topics.topic import Topic
from task_assignor.sdk import TaskId
from tests.runtime.support import (
    AFTER_MS,
    BEFORE_MS,
    QUICK,
    Watch,
    application,
    join_topology,
    plain_join,
    write_streams,
)

PAIRS = Repartitioned("pairs", key="value_right", partitions=3, timestamp="at")
COUNTS = pa.schema([("value_right", pa.string()), ("count", pa.int64())])


class CountPairs(Processor):
    """A running count of pairs by the value of their right row; gives the new counts."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Add the batch to the counts."""
        rows = batch["pairs"]
        if not rows.num_rows:
            return None
        counts = rows.group_by("value_right").aggregate([("at", "count")])
        store = context.key_value_store("counts")
        known = pc.fill_null(store.lookup(counts.select(["value_right"])).column("count"), 0)
        new = pa.table({"value_right": counts.column("value_right"), "count": pc.add(counts.column("at_count"), known)})
        store.put_table(new)
        return new


def counting_topology(pairs: Repartitioned = PAIRS) -> Topology:
    join = WindowedJoin(
        left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS, left_grace_ms=None, right_grace_ms=None
    )
    store = KeyValueStoreSpec("counts", pa.schema([COUNTS.field(0)]), pa.schema([COUNTS.field(1)]))
    count = SubTopology("count", "pairs", CountPairs, [store], [Output("counts-out", COUNTS)])
    # What reads may come first: tasks are numbered by the order of the declaration, data flows as it must.
    return Topology([count, join.sub_topology("join", output=pairs)])


def last_counts(root: Path) -> dict[str, int]:
    """The last count of each value: the highest, since they only grow."""
    rows = read_output(root / "run", "counts-out").to_pylist()
    found: dict[str, int] = {}
    for row in rows:
        assert row["count"] > found.get(row["value_right"], 0), "rows of a key are counted one after the other"
        found[row["value_right"]] = row["count"]
    return found


def expected_counts(left: pa.Table, right: pa.Table) -> dict[str, int]:
    return dict(Counter(plain_join(left, right).column("value_right").to_pylist()))


def test_an_aggregation_by_another_key_after_a_join_is_exact(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    watch = Watch()
    app = application(tmp_path, counting_topology(), clients=2)
    lags = []

    def see(event: RunEvent) -> None:
        watch(event)
        if isinstance(event, BatchesCommitted):
            lags.append((app.metrics.to_json()["records-lag-sum"], event.remaining))

    app.run(see)
    # Rows that nobody has read yet were none, as long as who is to read them was at its first batch.
    assert [lag for lag, remaining in lags if lag != remaining] == []
    assert last_counts(tmp_path) == expected_counts(left, right)
    commits = list(CommitLog(tmp_path / "run").records())
    tasks = {str(task) for record in commits for task in record.tasks}
    assert tasks == {"0_0", "0_1", "0_2", "1_0", "1_1"}
    # Once all have read them, nobody needs the files of the repartition topic any more.
    files = _committed_files(tmp_path)
    assert files
    assert not any((tmp_path / "run" / path).exists() for path in files)
    with pytest.raises(CommitLogException, match="no output 'pairs'; its outputs: counts-out"):
        read_output(tmp_path / "run", "pairs")
    assert app.run().rows_in == 0


def test_offsets_of_a_repartition_topic_follow_commits_and_tasks(tmp_path: Path) -> None:
    """Whoever reads it later, what is at an offset stays: each row is read once, in the order of the commit log."""
    write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    application(tmp_path, counting_topology()).run()
    written, read = [0, 0, 0], [0, 0, 0]
    for record in CommitLog(tmp_path / "run").records():
        for task, commit in record.tasks.items():
            if task.subtopology == 0:
                start, end = commit.offsets["pairs"]
                assert start == read[task.partition]
                assert end <= written[task.partition], "only what is committed is read"
                read[task.partition] = end
        for commit in record.tasks.values():
            for routed in commit.repartitions.values():
                written = [before + rows for before, rows in zip(written, routed.rows, strict=True)]
    assert written == read


def test_it_is_exact_under_kills_and_after_a_stop_in_between(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=3_000, keys=100, partitions=2)
    options = attrs.evolve(QUICK, max_batch_rows=40, snapshot_changelog_bytes=4_000, checkpoint_every_commits=7)

    def app() -> StreamsApplication:
        return application(tmp_path, counting_topology(), clients=2, options=options)

    first = app()
    watch = Watch()
    watch.on(BatchesCommitted, lambda event: first.request_stop("enough") if event.commit > 12 else None)
    assert first.run(watch).stopped == "enough"
    watch = Watch()
    killed: list[int] = []

    def kill(_: BatchesCommitted) -> None:
        if len(watch.of(BatchesCommitted)) in (2, 6):
            killed.append(next(event.pid for event in reversed(watch.of(ClientJoined)) if event.pid not in killed))
            os.kill(killed[-1], signal.SIGKILL)

    watch.on(BatchesCommitted, kill)
    app().run(watch)
    assert len(killed) == 2
    assert last_counts(tmp_path) == expected_counts(left, right)
    # Whoever is killed leaves files behind that do not count; of those that do none is needed any more.
    assert not any((tmp_path / "run" / path).exists() for path in _committed_files(tmp_path))


def _committed_files(root: Path) -> list[str]:
    return [
        routed.file.path
        for record in CommitLog(root / "run").records()
        for commit in record.tasks.values()
        for routed in commit.repartitions.values()
    ]


def test_another_number_of_partitions_is_another_run(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=200, keys=10, partitions=2)
    application(tmp_path, counting_topology(), clients=1).run()
    with pytest.raises(CommitLogException, match="repartition topics, pairs, partitions: was 3, is 4"):
        application(tmp_path, counting_topology(attrs.evolve(PAIRS, partitions=4)), clients=1).run()
    with pytest.raises(CommitLogException, match="order of the sub-topologies"):
        application(tmp_path, join_topology(), clients=1).run()


def test_assignors_see_an_internal_topic_and_the_tasks_of_both(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=200, keys=10, partitions=2)
    specs = {name: Topic.open(tmp_path / "topics", name).spec for name in ("left", "right")}
    tasks = counting_topology().bind("mine", specs)
    assert [str(task) for task in tasks] == ["0_0", "0_1", "0_2", "1_0", "1_1"]
    sources = {
        str(task): sorted(found.topic_partition.topic for found in info.topic_partitions if found.is_source)
        for task, info in tasks.items()
    }
    assert sources["0_2"] == ["mine-pairs-repartition"]
    assert sources["1_0"] == ["left", "right"]


# Declarations.


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: Topology([SubTopology("a", "x", CountPairs, outputs=["y"]), SubTopology("b", "y", CountPairs)]),
            r"reads 'y', which is an output of this topology without a key. Maybe declare .* Repartitioned\('y', schema",
        ),
        (
            lambda: Topology([SubTopology("a", ["x", "pairs"], CountPairs, outputs=[PAIRS])]),
            "The sub-topologies 'a' read what they write themselves",
        ),
        (
            lambda: Topology([SubTopology("a", "x", CountPairs, outputs=[PAIRS])]),
            "Nothing reads the repartition topic 'pairs'",
        ),
    ],
)
def test_a_topology_that_cannot_be_is_refused(build: Any, said: str) -> None:
    with pytest.raises(TopologyException, match=said):
        build()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Of which columns the repartition topic 'pairs' is must be known before the run"),
        ({"schema": pa.schema([("a", pa.int64())])}, "Topic pairs has no column 'value_right'"),
        (
            {"schema": COUNTS.append(pa.field("v", pa.string_view())), "timestamp": None},
            "The column 'v' of topic pairs has type string_view",
        ),
        ({"schema": COUNTS, "timestamp": "at"}, "Topic pairs has no column 'at'"),
        ({"schema": COUNTS, "timestamp": None, "partitions": 0}, r"partitions \(0\) of topic pairs must be an int"),
    ],
)
def test_a_repartition_topic_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write_streams(tmp_path / "topics", rows=200, keys=10)

    def made() -> StreamsApplication:
        pairs = attrs.evolve(PAIRS, **changes)
        counts = SubTopology("a", "left", CountPairs, outputs=[pairs])
        return application(tmp_path, Topology([counts, SubTopology("b", "pairs", CountPairs)]))

    with pytest.raises(TopologyException, match=said):
        made()


# What the coordinator knows of them.

ROUTED = st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=8)


@given(st.lists(ROUTED, max_size=12), st.data())
def test_every_row_is_in_one_piece_and_files_go_when_all_is_read(
    commits: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    known = Repartitions({"r": 3}, {"r": (None, 0)})
    written: list[list[tuple[str, int]]] = [[], [], []]
    read = [0, 0, 0]
    files: set[str] = set()
    gone: list[str] = []

    def look() -> None:
        for partition, rows_there in enumerate(written):
            end = data.draw(st.integers(read[partition], len(rows_there)))
            pieces = known.pieces("r", partition, read[partition], end)
            rows = [
                (piece.file.path, piece.first + row)
                for piece in pieces
                for row in range(piece.rows)
                if read[partition] <= piece.base + row < end
            ]
            assert rows == rows_there[read[partition] : end]
            known.consume("r", partition, end)
            read[partition] = end
        gone.extend(known.take_unwanted())

    for number, tasks in enumerate(commits):
        committed = []
        for task, rows in enumerate(tasks):
            file = FileRef(f"{number}/{task}", Seal(sum(rows), 1, ""))
            files.add(file.path)
            first = 0
            for rows_there, count in zip(written, rows, strict=True):
                rows_there += [(file.path, row) for row in range(first, first + count)]
                first += count
            commit = TaskCommit(
                TaskId(0, task), number, "c", "p", "m", "a", 1, {}, repartitions={"r": RoutedFile(file, rows)}
            )
            committed.append(decode(encode(commit), TaskCommit))
        known.publish(committed, 0)
        assert known.ends() == {"r": [len(rows_there) for rows_there in written]}
        look()
        saved = decode(encode(SavedProgress(0, known.saved())), SavedProgress)
        again = Repartitions({"r": 3}, {"r": (None, 0)})
        again.load(saved.repartitions, {})
        assert again.saved() == known.saved()
        known = again if data.draw(st.booleans()) else known
    wanted = {path for rows_there, at in zip(written, read, strict=True) for path, _ in rows_there[at:]}
    assert sorted(gone) == sorted(files - wanted), "each once"


def test_what_readers_that_stand_still_have_not_read_stays_small() -> None:
    """A checkpoint grows by a name and a count for each partition; files stay until the last partition has read them."""
    partitions, files = 32, 500
    known = Repartitions({"r": partitions}, {"r": (None, 0)})
    for number in range(files):
        file = FileRef(
            f"repartition/r/{number % 4}/{number:012d}-00000001.arrow", Seal(2 * partitions, 4_000, "0123abcd")
        )
        routed = {"r": RoutedFile(file, (2,) * partitions)}
        known.publish([TaskCommit(TaskId(0, 0), number, "c", "p", "m", "a", 1, {}, repartitions=routed)], 0)
    assert len(encode(known.saved())) < files * 250
    for partition in range(1, partitions):
        known.consume("r", partition, 2 * files)
    assert known.take_unwanted() == ()
    assert [piece.file.path[-27:-15] for piece in known.pieces("r", 0, 199, 203)] == [
        f"{number:012d}" for number in (99, 100, 101)
    ]
    known.consume("r", 0, 2 * files - 1)
    assert len(known.take_unwanted()) == files - 1
    assert len(known.saved()["r"].files) == 1
    known.consume("r", 0, 2 * files)
    assert known.take_unwanted() == (file.path,)
    assert known.saved()["r"].files == ()


def test_where_rows_are_is_found_without_a_look_at_those_of_other_partitions() -> None:
    """The rows of all partitions before it were counted anew, for each of the files: with 1 000 tasks on both sides 6 s each round."""
    partitions = 2_000
    known = Repartitions({"r": partitions}, {"r": (None, 0)})
    for number in range(40):
        routed = {"r": RoutedFile(FileRef(f"{number}", Seal(partitions, 4_000, "0123abcd")), (1,) * partitions)}
        known.publish([TaskCommit(TaskId(0, 0), number, "c", "p", "m", "a", 1, {}, repartitions=routed)], 0)
    tracemalloc.start()
    pieces = known.pieces("r", partitions - 1, 0, 40)
    _, taken = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {(piece.first, piece.rows) for piece in pieces} == {(partitions - 1, 1)}
    assert taken < 100 * partitions


def _wrote(task: int, batch: int, read: tuple[int, int], ends: tuple[int, ...]) -> TaskCommit:
    """A task has read rows of `x` and written records elsewhere."""
    routed = RoutedFile(FileRef.of_topic("app-r-repartition", 1, 10), (), ends)
    commit = TaskCommit(TaskId(0, task), batch, "c", "p", "m", "a", 1, {"x": read}, {}, repartitions={"r": routed})
    return decode(encode(commit), TaskCommit)


def test_records_elsewhere_can_be_read_as_far_as_commits_say() -> None:
    """Each task knows how far it has written itself; what was there when the run began counts too, and may have been removed since."""
    reader, writers = TaskId(1, 0), (TaskId(0, 0), TaskId(0, 1))
    sources = {**dict.fromkeys(writers, ("x",)), reader: ("r",), TaskId(1, 1): ("r",)}

    def begun(records: list[CommitRecord], elsewhere: list[int]) -> Progress:
        known = Repartitions(writers={"r": (None, 0)}, elsewhere={"r": elsewhere})
        return Progress.after(Checkpoint(), records, sources, {"x": [9, 9]}, (), {"x": [0, 0], "r": [40, 0]}, known)

    progress = begun([], [50, 0])
    assert progress.next_ranges(reader, 100) == ({"r": (40, 50)}, frozenset({"r"})), (
        "its writers have not read everything"
    )
    records = [
        CommitRecord(0, "app", 1, 1, 0, {writers[0]: _wrote(0, 0, (0, 9), (57, 0))}),
        CommitRecord(1, "app", 1, 1, 0, {writers[1]: _wrote(1, 0, (0, 9), (54, 3))}),
    ]
    for record in records:
        progress.begin_commit(record.number)
        for task in record.tasks.values():
            progress.advance(task)
        assert progress.publish(record) == ()
    assert progress.ends("r") == [57, 3]
    assert progress.take_fed() == [reader, TaskId(1, 1)]
    assert progress.next_ranges(reader, 100) == ({"r": (40, 57)}, frozenset())
    assert progress.pieces(reader, {"r": (40, 57)}) == {"r": ()}
    assert progress.sources == ["x"]
    progress.advance(TaskCommit(reader, 0, "c", "p", "m", "a", 1, {"r": (40, 57)}))
    progress.validate()
    assert not progress.saved().repartitions
    # Who begins again sees the end that brokers tell, a marker of a transaction included.
    assert begun(records, [58, 5]).ends("r") == [58, 5]
    assert begun(records, [52, 0]).ends("r") == [57, 3]
