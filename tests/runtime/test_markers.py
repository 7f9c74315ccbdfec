"""Markers: cuts over all tasks, as of which outputs can be read, whatever is merged and done afterwards."""

from __future__ import annotations

import queue
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    CommitLog,
    CommitLogException,
    CommitRecord,
    MarkerReached,
    MarkerRefused,
    Rebalanced,
    RunFinished,
    RuntimeOptions,
    append_topic,
    committed_files,
    list_markers,
    read_output,
    write_topic,
)
from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.coordinator.commits import Commits
from task_assignor.runtime.machines.coordinator.markers import Markers
from task_assignor.runtime.machines.coordinator.members import Members
from task_assignor.runtime.machines.coordinator.orders import Orders
from task_assignor.runtime.machines.coordinator.progress import KEPT_MARKERS, Progress
from task_assignor.runtime.machines.coordinator.values import Announce, StoreCommit
from task_assignor.runtime.machines.protocol import Hello, Position, TaskResult
from task_assignor.runtime.machines.records import Marker, TaskCommit
from task_assignor.sdk import ConfigException, TaskId
from tests.runtime.support import QUICK, Watch, application, stream, write_streams
from tests.runtime.test_repartition import counting_topology, expected_counts

MERGING = attrs.evolve(QUICK, max_batch_rows=20, checkpoint_every_commits=2, output_retention_ms=0)


def _counts(root: Path, marker: str | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in read_output(root / "run", "counts-out", marker).to_pylist():
        found[row["value_right"]] = max(row["count"], found.get(row["value_right"], 0))
    return found


def test_a_marker_has_all_that_was_there_and_what_others_made_of_it(tmp_path: Path) -> None:
    """While topics grow: of the source, of the repartition topic, of the output; also after merges and in the next run."""
    size, names = 100, ("first", "second")
    left, right = stream(3 * size, 30, seed=1), stream(3 * size, 30, seed=2)
    topics = {"left": left, "right": right}
    for name, rows in topics.items():
        write_topic(tmp_path / "topics", name, rows.slice(0, size), partitions=2, key=["key"], timestamp="at")
    app, watch = application(tmp_path, counting_topology(), options=MERGING), Watch()
    seen: dict[str, pa.Table] = {}

    def ask(_: Rebalanced) -> None:
        if not seen:
            assert app.request_marker("first")

    def go_on(reached: MarkerReached) -> None:
        # The last commit that there is, so that is what everybody sees now.
        seen[reached.name] = read_output(tmp_path / "run", "counts-out")
        assert sum(reached.offsets["left"]) == sum(reached.offsets["right"]) == len(seen) * size
        for name, rows in topics.items():
            append_topic(tmp_path / "topics", name, rows.slice(len(seen) * size, size))
        if len(seen) == 1:
            app.request_marker("first")
            app.request_marker("second")

    read = [0]

    def stop(event: BatchesCommitted) -> None:
        read[0] += sum(rows for task, rows in event.rows_by_task.items() if task.subtopology == 1)
        if read[0] == 6 * size and not event.remaining:
            app.request_stop("all is read")

    watch.on(Rebalanced, ask)
    watch.on(MarkerReached, go_on)
    watch.on(BatchesCommitted, stop)
    app.run(watch, until="stopped")
    assert [(event.name, event.reason) for event in watch.of(MarkerRefused)] == [("first", "there is one of that name")]
    assert application(tmp_path, counting_topology(), options=MERGING).run().rows_in == 0
    assert [marker.name for marker in list_markers(tmp_path / "run")] == [*names]
    for number, name in enumerate(names, start=1):
        there = expected_counts(left.slice(0, number * size), right.slice(0, number * size))
        assert _counts(tmp_path, name) == there
        assert read_output(tmp_path / "run", "counts-out", name).equals(seen[name])
    assert _counts(tmp_path, None) == expected_counts(left, right)
    files, cuts = CommitLog(tmp_path / "run").outputs_and_markers()
    assert any(one.first < one.last for one in files.of("counts-out", cuts[0].commit)), (
        "files were merged below the cut"
    )
    assert len(committed_files(tmp_path / "run", "counts-out", "first")) < len(
        committed_files(tmp_path / "run", "counts-out")
    )


def test_a_marker_of_a_run_to_the_present_ends_has_all_of_it(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=300, keys=20, partitions=2)
    app, watch = application(tmp_path, counting_topology(), options=MERGING), Watch()
    assert not app.request_marker("too early"), "there is no run"
    watch.on(Rebalanced, lambda _: app.request_marker("all"))
    app.run(watch)
    (reached,) = watch.of(MarkerReached)
    assert (reached.name, sum(reached.offsets["left"])) == ("all", 300)
    assert _counts(tmp_path, "all") == _counts(tmp_path, None) == expected_counts(left, right)


def test_a_marker_that_is_not_reached_is_told(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=3_000, keys=20, partitions=2)
    app, watch = application(tmp_path, counting_topology(), options=MERGING), Watch()

    def stop(_: Rebalanced) -> None:
        app.request_marker("late")
        app.request_marker("late")
        app.request_stop("enough")

    watch.on(Rebalanced, stop)
    app.run(watch)
    assert [(event.name, event.reason) for event in watch.of(MarkerRefused)] == [
        ("late", "it is asked for already"),
        ("late", "the run ended before: enough"),
    ]
    with pytest.raises(CommitLogException, match=r"has no marker 'late'; its markers: none\. The newest 32 are kept"):
        read_output(tmp_path / "run", "counts-out", "late")


def test_who_asks_for_a_marker_as_the_run_ends_gets_an_answer(tmp_path: Path) -> None:
    """Whenever it is, until there is no run any more."""
    write_streams(tmp_path / "topics", rows=40, keys=5, partitions=1)
    app, watch = application(tmp_path, counting_topology(), options=QUICK), Watch()
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask_again() -> None:
        asked, is_asked = 0, True
        while is_asked:
            assert answers.get(timeout=60) == f"number {asked}"
            asked += 1
            is_asked = app.request_marker(f"number {asked}")

    with ThreadPoolExecutor() as pool:
        for kind in (MarkerReached, MarkerRefused):
            watch.on(kind, lambda event: answers.put(event.name))
        asking: list[Future[None]] = []

        def begin(_: RunFinished) -> None:
            assert app.request_marker("number 0")
            asking.append(pool.submit(ask_again))

        watch.on(RunFinished, begin)
        app.run(watch)
        asking[0].result(60)
    assert {event.reason for event in watch.of(MarkerRefused)} == {"the run is over"}


def test_who_has_asked_for_a_marker_gets_an_answer_of_a_run_that_breaks_off(tmp_path: Path) -> None:
    """The coordinator's end was not that of a run that stops; found by chaos, where a folder was not shared."""
    write_streams(tmp_path / "topics", rows=40, keys=5, partitions=1)
    app, watch = application(tmp_path, counting_topology(), options=QUICK), Watch()

    def break_off(_: Rebalanced) -> None:
        assert app.request_marker("wanted")
        raise ZeroDivisionError

    watch.on(Rebalanced, break_off)
    with pytest.raises(ZeroDivisionError):
        app.run(watch)
    (refused,) = watch.of(MarkerRefused)
    assert (refused.name, refused.reason) == (
        "wanted",
        "the run broke off; list_markers tells whether it was reached before",
    )


@pytest.mark.parametrize("name", ["", " ", None, 7, "half a pair \ud83d"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: object) -> None:
    write_streams(tmp_path / "topics", rows=30, keys=20, partitions=2)
    app = application(tmp_path, counting_topology())
    told = re.escape(f"The name of a marker ({name!r}) must be a text of UTF-8 that is not empty")
    with pytest.raises(ConfigException, match=told):
        app.request_marker(name)  # type: ignore[arg-type]


def test_the_newest_markers_are_kept(tmp_path: Path) -> None:
    """In the commits and in what a checkpoint says; older ones can be asked for again."""
    task = TaskId(0, 0)
    records = [
        CommitRecord(number, "app", 1, 1, 0, markers=(Marker(f"m{number}", number, 0, 0),))
        for number in range(KEPT_MARKERS + 3)
    ]
    log = CommitLog(tmp_path)
    log.open_epoch("app", "", 0)
    for record in records[1:]:
        log.append(record)
    kept = [f"m{number}" for number in range(3, KEPT_MARKERS + 3)]
    assert [marker.name for marker in log.outputs_and_markers()[1]] == kept
    progress = Progress.after(Checkpoint(), records, {task: ["t"]}, {"t": [5]})
    assert [marker.name for marker in progress.saved().markers] == kept
    log.write_checkpoint(records[-1].number, progress.saved())
    assert [marker.name for marker in log.outputs_and_markers()[1]] == kept
    markers = Markers()
    assert markers.want("m3", progress, 0) == "there is one of that name"
    assert markers.want("m2", progress, 0) == ""


def test_a_marker_waits_for_what_its_topics_have_when_they_were_looked_at() -> None:
    task = TaskId(0, 0)
    progress, markers = Progress({task: ["t"]}, {"t": [5]}), Markers()
    assert markers.want("m", progress, 1_000) == ""
    commit = TaskCommit(task, 0, "c", "p", "c-1", "a", 1, {"t": (0, 5)})
    record = CommitRecord(0, "app", 1, 1, 0, {task: commit})
    progress.begin_commit(0)
    progress.advance(commit)
    markers.see(record)
    assert not markers.take_reached(progress, 2_000), "nobody knows yet what it is to reach"
    progress.move_ends({"t": [6]})
    markers.aim(["m", "of another run"], progress)
    assert not markers.take_reached(progress, 2_000)
    progress.advance(TaskCommit(task, 1, "c", "p", "c-1", "a", 1, {"t": (5, 6)}))
    markers.see(CommitRecord(1, "app", 1, 1, 0, {task: TaskCommit(task, 1, "c", "p", "c-1", "a", 1, {"t": (5, 6)})}))
    (reached,) = markers.take_reached(progress, 2_500).values()
    assert reached == MarkerReached("m", 1, {"t": (6,)}, 1.5)
    assert not markers


def test_a_marker_that_the_last_commit_before_a_failure_reaches_counts_and_is_known_to_the_next_coordinator() -> None:
    """Who fails, or must stop, commits and says nothing else: the marker would be refused, though all of it is done."""
    task, options = TaskId(0, 0), RuntimeOptions()
    opening = CommitRecord(0, "app", 1, 1, 0, opened_by="here")
    progress, orders, members = (
        Progress.after(Checkpoint(), [opening], {task: ["t"]}, {"t": [5]}),
        Orders(),
        Members("run", 1),
    )
    commits = Commits(opening, progress, orders, members, options.checkpoint_every_commits)
    process_id = "00000000-0000-0000-0000-000000000001"
    member = members.add(1, Hello("c", process_id, "run", 1, None, {}, None, "pid 1", "here", 1, {}), progress, 0)
    order = orders.give(member, progress, task, 1, progress.next_ranges(task, 10), 0)
    assert commits.markers.want("m", progress, 0) == ""
    commits.markers.aim(["m"], progress)
    progress.advance(orders.accept(member, TaskResult(task, 0, 1, order.ranges, {}, {}, Position(0, 1, 0))))
    told = list(commits.commit(1, 1_000))
    records = [opening, *(found.record for found in told if isinstance(found, StoreCommit))]
    (reached,) = [
        found.event for found in told if isinstance(found, Announce) and isinstance(found.event, MarkerReached)
    ]
    assert (reached.name, reached.commit, reached.offsets) == ("m", 2, {"t": (5,)})
    after = Progress.after(Checkpoint(), records, {task: ["t"]}, {"t": [5]})
    assert [(marker.name, marker.commit) for marker in after.markers] == [("m", 2)]
    # It was stored, but the coordinator had ended before it could say so; or just before it was stored.
    assert Markers().want("m", after, 0) == "there is one of that name"
    assert Markers().want("m", Progress.after(Checkpoint(), records[:-1], {task: ["t"]}, {"t": [5]}), 0) == ""
