"""Whole applications with clients as processes of this machine: exactness under faults, takeover, errors."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientJoined,
    ClientLost,
    ClientProgress,
    CommitLog,
    CommitLogException,
    CorruptLogException,
    LocalProcessLauncher,
    Output,
    ProcessorException,
    Rebalanced,
    RunEvent,
    RunFailed,
    RuntimeOptions,
    SubTopology,
    TaskRestored,
    TopicException,
    Topology,
    read_output,
    write_topic,
)
from task_assignor.sdk import StreamsConfig, StreamsException, TaskId
from task_assignor.sdk.text import with_notes
from tests.processes import alive
from tests.runtime.assignors import BrokenAssignor, ForgetfulAssignor, ScatteringAssignor
from tests.runtime.support import (
    QUICK,
    ChangesColumns,
    DiesAtRow,
    FailsAtRow,
    Watch,
    application,
    count_topology,
    held_back,
    in_order,
    join_topology,
    plain_join,
    settings,
    stream,
    write_streams,
)


def _no_child_lives(launcher: LocalProcessLauncher, joined: list[ClientJoined]) -> bool:
    return not launcher.pids and not any(alive(event.pid) for event in joined)


def _batches(run_dir: Path) -> int:
    """Committed batches of all tasks."""
    return sum(len(record.tasks) for record in CommitLog(run_dir).records())


def _check_placement(run_dir: str | Path) -> int:
    """Every committed task was active on the committing client in the generation of its order. Gives the tasks checked."""
    assigned = {record.generation: record.clients for record in CommitLog(run_dir).rebalances()}
    checked = 0
    for record in CommitLog(run_dir).records():
        for task, commit in record.tasks.items():
            client, tasks = assigned[commit.generation][commit.member_id]
            assert client == commit.client
            assert task in tasks.active
            checked += 1
    return checked


def test_join_with_two_clients_equals_the_plain_computation(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=4_000, keys=150)
    launcher = LocalProcessLauncher()
    watch = Watch()
    result = application(tmp_path, join_topology(), launcher=launcher).run(watch)
    expected = plain_join(left, right)
    assert expected.num_rows > 1_000
    assert in_order(expected).equals(in_order(result.table("joined")))
    assert (4_000 + 2_000, expected.num_rows) == (result.rows_in, result.rows_out)
    told = str(result)
    assert told.startswith(f"test: 6,000 rows read, {result.rows_out:,} rows written in ")
    assert told.endswith(f"; {result.batches} batches committed, 1 rebalance. Outputs are in {result.run_dir}.")
    assert _check_placement(result.run_dir) == sum(len(record.tasks) for record in result.commits.records())
    attempts = {commit.attempt for record in result.commits.records() for commit in record.tasks.values()}
    assert {f"pid {event.pid}" for event in watch.of(ClientJoined)} == attempts
    assert _no_child_lives(launcher, watch.of(ClientJoined))


class Killer:
    """Kills clients -9 at random moments, as long as another one lives; each is replaced.

    Args:
        watch: knows who has joined.
        kills: how many.
        seed: of chance.
        mark: a file that is there when all are done, and the run knows it.
    """

    def __init__(self, watch: Watch, kills: int, seed: int, mark: Path) -> None:
        self._watch = watch
        self._kills = kills
        self._mark = mark
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.killed: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while len(self.killed) < self._kills and not self._over.wait(self._chance.uniform(0.0, 0.03)):
            alive = [event.pid for event in self._watch.of(ClientJoined) if event.pid not in self.killed]
            if self._watch.of(BatchesCommitted) and len(alive) >= 2:
                pid = self._chance.choice(alive)
                self.killed.append(pid)
                os.kill(pid, signal.SIGKILL)
        # Some kernels take their time to end a process.
        while len(self._watch.of(ClientLost)) < len(self.killed) and not self._over.wait(0.01):
            pass
        self._mark.touch()


def _join_under_kills(root: Path, rows: int, kills: int, standbys: int) -> None:
    left, right = write_streams(root / "topics", rows=rows, keys=rows // 30)
    launcher = LocalProcessLauncher(start_method="forkserver")
    watch = Watch()
    # One batch may be lost with each of those that are killed.
    options = attrs.evolve(QUICK, max_batch_rows=20, snapshot_changelog_bytes=4_000, max_attempts=kills + 1)
    config = settings(num_standby_replicas=standbys)
    # Half of the batches, at least, are done when all kills are.
    topology = held_back(join_topology(), root / "mark", rows // 160)
    app = application(root, topology, clients=3, launcher=launcher, options=options, config=config)
    with Killer(watch, kills, standbys, root / "mark") as killer:
        # So that they come at many moments.
        watch.on(BatchesCommitted, lambda _: time.sleep(0.03 * (len(killer.killed) < kills)))
        app.run(watch)
    assert len(killer.killed) == kills
    assert in_order(plain_join(left, right)).equals(in_order(read_output(root / "run", "joined")))
    assert len(watch.of(ClientLost)) >= kills
    assert _check_placement(root / "run") > rows * 1.5 // 40
    assert _no_child_lives(launcher, watch.of(ClientJoined))


@pytest.mark.parametrize("standbys", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_join_is_exact_under_random_kills(tmp_path: Path, standbys: int) -> None:
    _join_under_kills(tmp_path, rows=3_000, kills=4, standbys=standbys)


@pytest.mark.slow
@pytest.mark.parametrize("standbys", [0, 1, 2])
def test_join_is_exact_under_two_hundred_random_kills(tmp_path: Path, standbys: int) -> None:
    _join_under_kills(tmp_path, rows=300_000, kills=200, standbys=standbys)


@attrs.frozen
class _Takeover:
    """What was restored for the tasks of a client that was killed.

    Args:
        rows: rows of changelogs.
        snapshot_rows: rows of snapshots.
        missing: rows of changelogs that the other client's standbys had not read, by what it had said last, and what was committed since.
    """

    rows: int
    snapshot_rows: int
    missing: int


def _missing(events: Sequence[RunEvent], owner: str, tasks: Collection[TaskId]) -> int:
    """Rows of the tasks' changelogs that the other client has not read: what it said last, and as many as were read since."""
    rows = 0
    for event in events:
        match event:
            case ClientProgress() if event.client != owner:
                rows = event.standby_lag
            case BatchesCommitted():
                rows += sum(event.rows_by_task.get(task, 0) for task in tasks)
    return rows


def _takeover(root: Path, standbys: int) -> _Takeover:
    """Kill the owner of task 0_0 in the middle of a run of two clients, when the other one's standbys follow."""
    launcher = LocalProcessLauncher(replace_lost=False, start_method="forkserver")
    watch, mark = Watch(), root / f"mark-{standbys}"
    lost: list[str] = []
    done: dict[TaskId, int] = {}

    def kill_once(event: BatchesCommitted | ClientProgress) -> None:
        done.update(event.batches if isinstance(event, BatchesCommitted) else {})
        for owner, tasks in watch.of(Rebalanced)[0].assignment.items() if watch.of(Rebalanced) else ():
            is_due = TaskId(0, 0) in tasks.active and all(done.get(task, -1) >= 25 for task in tasks.active)
            # How soon standbys follow is a matter of load; that they do is not.
            follows = not standbys or _missing(watch.events, owner, tasks.active) <= 1_000
            if is_due and follows and not lost:
                lost.append(owner)
                os.kill(launcher.pids[owner], signal.SIGKILL)
                mark.touch()

    watch.on(BatchesCommitted, kill_once)
    watch.on(ClientProgress, kill_once)
    options = attrs.evolve(QUICK, max_batch_rows=50, snapshot_changelog_bytes=0)
    # Those that wait leave threads to the standbys.
    config = settings(num_standby_replicas=standbys, num_stream_threads=4)
    run_dir = root / f"run-{standbys}"
    topology = held_back(join_topology(), mark, 26)
    app = application(root, topology, clients=2, launcher=launcher, options=options, config=config, run_dir=run_dir)
    app.run(watch)
    second = watch.of(Rebalanced)[1]
    moved = {task for task, before, _ in second.moved if before == lost[0]}
    assert len(moved) == 2
    restores = [
        event for event in watch.of(TaskRestored) if event.task in moved and event.role == "active" and event.batch >= 0
    ]
    assert {event.task for event in restores} == moved
    missing = _missing(watch.events[: watch.events.index(second)], lost[0], moved)
    return _Takeover(sum(event.rows for event in restores), sum(event.snapshot_rows for event in restores), missing)


def test_takeover_by_a_standby_replays_only_the_changelogs_tail(tmp_path: Path) -> None:
    """Without a standby everything is read from the changelog; with one at most what it had not yet seen."""
    left, right = write_streams(tmp_path / "topics", rows=8_000, keys=270)
    alone, with_standby = _takeover(tmp_path, standbys=0), _takeover(tmp_path, standbys=1)
    # 26 batches of up to 50 + 50 rows for 2 tasks.
    assert alone.rows > 2_000
    assert with_standby.snapshot_rows == 0
    assert with_standby.rows <= with_standby.missing, "what the standby had read is not read again"
    assert with_standby.rows < alone.rows / 2, "a standby follows"
    expected = in_order(plain_join(left, right))
    for standbys in (0, 1):
        assert expected.equals(in_order(read_output(tmp_path / f"run-{standbys}", "joined")))


def test_a_stopped_client_is_replaced_and_commits_nothing_when_it_goes_on(tmp_path: Path) -> None:
    """SIGSTOP: its lease runs out, its tasks move. SIGCONT: it joins again as a new member; no late file counts."""
    left, right = write_streams(tmp_path / "topics", rows=3_000, keys=100)
    launcher = LocalProcessLauncher(start_method="forkserver")
    watch = Watch()
    stopped: list[ClientJoined] = []
    lost_at: list[int] = []
    mark = tmp_path / "mark"

    def stop(event: BatchesCommitted) -> None:
        if 5 in event.batches.values() and not stopped:
            stopped.append(watch.of(ClientJoined)[-1])
            os.kill(stopped[0].pid, signal.SIGSTOP)

    def go_on(event: ClientLost) -> None:
        if stopped and event.member_id == stopped[0].member_id:
            lost_at.append(watch.of(BatchesCommitted)[-1].commit)
            os.kill(stopped[0].pid, signal.SIGCONT)

    def came_back() -> list[ClientJoined]:
        return [event for event in watch.of(ClientJoined) if event.pid == stopped[0].pid and event != stopped[0]]

    watch.on(BatchesCommitted, stop)
    watch.on(ClientLost, go_on)
    watch.on(ClientJoined, lambda _: mark.touch() if stopped and came_back() else None)
    options = attrs.evolve(QUICK, max_batch_rows=20, session_timeout_ms=3_000)
    topology = held_back(join_topology(), mark, 15)
    application(tmp_path, topology, clients=2, launcher=launcher, options=options).run(watch)
    assert in_order(plain_join(left, right)).equals(in_order(read_output(tmp_path / "run", "joined")))
    old = stopped[0].member_id
    assert [e.reason for e in watch.of(ClientLost) if e.member_id == old] == [
        "no heartbeat for 3000 ms, which is the limit session.timeout.ms"
    ]
    # As the member that it was it commits nothing after the lease ran out; what it had answered before counts in the
    # batch that was being processed.
    after = [record for record in CommitLog(tmp_path / "run").records() if record.number > lost_at[0] + 1]
    assert after
    assert not [record for record in after for commit in record.tasks.values() if commit.member_id == old]
    assert came_back(), "the same process joined a second time"
    assert old not in {event.member_id for event in came_back()}
    assert _check_placement(tmp_path / "run") > 100


def test_a_run_goes_on_after_the_last_committed_batch(tmp_path: Path) -> None:
    """Stopped in the middle and run again; the clients have their snapshots and restore almost nothing."""
    left, right = write_streams(tmp_path / "topics", rows=6_000, keys=200)
    watch = Watch()
    first = application(tmp_path, join_topology())
    watch.on(BatchesCommitted, lambda event: first.request_stop("enough") if 3 in event.batches.values() else None)
    stopped = first.run(watch)
    assert 0 < stopped.rows_in < 9_000
    again = application(tmp_path, join_topology()).run()
    assert stopped.rows_in + again.rows_in == 9_000
    assert in_order(plain_join(left, right)).equals(in_order(again.table("joined")))
    assert {event.origin for event in again.restores if event.role == "active"} == {"snapshot"}
    assert sum(event.rows for event in again.restores) == 0
    nothing_left = application(tmp_path, join_topology()).run()
    assert (nothing_left.rows_in, nothing_left.batches) == (0, again.batches)


def test_a_killed_coordinator_leaves_only_whole_batches(tmp_path: Path) -> None:
    """What an interrupted run has written without committing is not seen, and not in the way of the next run."""
    left, right = write_streams(tmp_path / "topics", rows=6_000, keys=200)

    def interrupt(event: BatchesCommitted) -> None:
        if event.commit >= 4:
            raise KeyboardInterrupt

    watch = Watch()
    watch.on(BatchesCommitted, interrupt)
    launcher = LocalProcessLauncher(start_method="forkserver")
    with pytest.raises(KeyboardInterrupt):
        application(tmp_path, join_topology(), launcher=launcher).run(watch)
    assert _no_child_lives(launcher, watch.of(ClientJoined))
    assert CommitLog(tmp_path / "run").last == watch.of(BatchesCommitted)[-1].commit
    result = application(tmp_path, join_topology()).run()
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))
    assert sum(len(record.tasks) for record in result.commits.records()) == result.batches


def test_users_processor_with_a_store_keeps_its_totals_through_kills(tmp_path: Path) -> None:
    rows = stream(6_000, keys=50, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=4, key=["key"], timestamp="at")
    launcher = LocalProcessLauncher(start_method="forkserver")
    watch = Watch()
    killed: set[int] = set()

    def kill(event: BatchesCommitted) -> None:
        due = {5, 12} & set(event.batches.values()) - killed
        killed.update(due)
        if due:
            os.kill(min(launcher.pids.items())[1], signal.SIGKILL)

    watch.on(BatchesCommitted, kill)
    options = attrs.evolve(QUICK, max_batch_rows=50)
    result = application(tmp_path, count_topology(), launcher=launcher, options=options).run(watch)
    last = {row["key"]: (row["count"], row["sum"]) for row in result.table("totals-out").to_pylist()}
    sums = rows.group_by("key").aggregate([("at", "count"), ("at", "sum")]).to_pylist()
    assert {row["key"]: (row["at_count"], row["at_sum"]) for row in sums} == last
    counted = sum(commit.counters["keys"] for record in result.commits.records() for commit in record.tasks.values())
    assert counted == result.rows_out


def test_two_sub_topologies_run_side_by_side(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=100)
    more = stream(1_000, keys=20, seed=3)
    write_topic(tmp_path / "topics", "more", more, partitions=3, key=["key"], timestamp="at")
    topology = Topology([*join_topology().sub_topologies, *count_topology("more").sub_topologies])
    result = application(tmp_path, topology, clients=2).run()
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))
    totals = {row["key"]: row["count"] for row in result.table("totals-out").to_pylist()}
    assert Counter(more.column("key").to_pylist()) == Counter(totals)
    tasks = {task for record in result.commits.records() for task in record.tasks}
    assert {str(task) for task in tasks} == {"0_0", "0_1", "0_2", "0_3", "1_0", "1_1", "1_2"}


def test_named_topologies_run_side_by_side_and_go_on(tmp_path: Path) -> None:
    """Their tasks have the name in front, in commits, snapshots and messages; a later run finds their state."""
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=100)
    more = stream(1_000, keys=20, seed=3)
    write_topic(tmp_path / "topics", "more", more, partitions=3, key=["key"], timestamp="at")
    joins, counts = join_topology().sub_topologies, count_topology("more").sub_topologies
    topology = Topology(
        [attrs.evolve(sub, topology=name) for name, subs in (("pairs", joins), ("sums", counts)) for sub in subs]
    )
    watch = Watch()
    config = settings(num_standby_replicas=1)
    first = application(tmp_path, topology, clients=2, config=config)
    watch.on(BatchesCommitted, lambda event: first.request_stop("enough"))
    first.run(watch)
    result = application(tmp_path, topology, clients=2, config=config).run()
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))
    totals = {row["key"]: row["count"] for row in result.table("totals-out").to_pylist()}
    assert Counter(more.column("key").to_pylist()) == Counter(totals)
    tasks = {str(task) for record in result.commits.records() for task in record.tasks}
    assert tasks == {*(f"pairs__0_{number}" for number in range(4)), *(f"sums__0_{number}" for number in range(3))}
    assert {event.origin for event in result.restores if event.role == "active"} == {"snapshot"}


def test_clients_with_several_threads(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=4_000, keys=150)
    result = application(tmp_path, join_topology(), clients=2, config=settings(num_stream_threads=2)).run()
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))


def test_a_users_assignor_decides_even_if_it_moves_everything(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=4_000, keys=150)
    config = settings(task_assignor_class=f"{ScatteringAssignor.__module__}.ScatteringAssignor")
    result = application(tmp_path, join_topology(), config=config).run()
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))
    _check_placement(result.run_dir)


def test_the_default_assignor_runs_and_gives_a_replaced_client_tasks_again(tmp_path: Path) -> None:
    """High availability with a standby each: the killed client comes back with its state directory."""
    left, right = write_streams(tmp_path / "topics", rows=3_000, keys=100)
    launcher = LocalProcessLauncher(start_method="forkserver")
    watch = Watch()
    killed: list[str] = []

    mark = tmp_path / "mark"

    def kill_once(event: BatchesCommitted) -> None:
        if 15 in event.batches.values() and not killed:
            killed.append("client-1")
            os.kill(launcher.pids["client-1"], signal.SIGKILL)

    watch.on(BatchesCommitted, kill_once)
    watch.on(ClientJoined, lambda _: mark.touch() if len(watch.of(ClientJoined)) == 4 else None)
    config = StreamsConfig({"application.id": "test", "num.standby.replicas": 1})
    options = attrs.evolve(QUICK, max_batch_rows=20, snapshot_changelog_bytes=1)
    topology = held_back(join_topology(), mark, 20)
    app = application(tmp_path, topology, clients=3, launcher=launcher, config=config, options=options)
    app.run(watch)
    assert in_order(plain_join(left, right)).equals(in_order(read_output(tmp_path / "run", "joined")))
    last = watch.of(Rebalanced)[-1].assignment
    assert last["client-1"].active, "its snapshots made it a fit owner at once"


# Errors: one clear message, nothing partial visible, nobody left behind.


def _fails(app: Any, launcher: LocalProcessLauncher, error: type[StreamsException]) -> str:
    watch = Watch()
    with pytest.raises(error) as caught:
        app.run(watch)
    assert isinstance(caught.value, StreamsException)
    assert [with_notes(caught.value)] == [event.message for event in watch.of(RunFailed)]
    assert _no_child_lives(launcher, watch.of(ClientJoined))
    return str(caught.value)


def test_a_processor_that_raises_is_named_with_its_rows(tmp_path: Path) -> None:
    rows = stream(1_000, keys=20, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    topology = Topology([SubTopology("failing", "left", FailsAtRow, [], ["out"])])
    launcher = LocalProcessLauncher(start_method="forkserver")
    message = _fails(application(tmp_path, topology, clients=1, launcher=launcher), launcher, ProcessorException)
    for part in (
        "task 0_0",
        "topic left, partition 0, offsets 600 to 799",
        "FailsAtRow",
        "'failing'",
        "ZeroDivisionError: delay per mile of a flight of 0 miles",
    ):
        assert part in message
    assert read_output(tmp_path / "run", "out").num_rows == 600
    assert _batches(tmp_path / "run") == 3


def test_rows_that_kill_every_client_end_the_run(tmp_path: Path) -> None:
    """A crash of the interpreter, or the out-of-memory killer, is not tried again for ever."""
    rows = stream(1_000, keys=20, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    topology = Topology([SubTopology("deadly", "left", DiesAtRow, [], ["out"])])
    launcher = LocalProcessLauncher(start_method="forkserver")
    options = attrs.evolve(QUICK, max_attempts=3)
    app = application(tmp_path, topology, clients=2, launcher=launcher, options=options)
    message = _fails(app, launcher, ClientException)
    assert "Task 0_0, batch 3 (topic left, partition 0, offsets 600 to 799) was lost 3 times together" in message
    assert "SIGSEGV or SIGABRT is a crash" in message
    assert read_output(tmp_path / "run", "out").num_rows == 600


def test_a_corrupt_topic_file_is_named(tmp_path: Path) -> None:
    rows = stream(1_000, keys=20, seed=1)
    topic = write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at", segment_rows=250)
    path = tmp_path / "topics" / topic.segments(0)[2].name("left")
    whole = path.read_bytes()
    # The footer stays, so that the length of the topic is known; a column's bytes are garbage.
    at = whole.index(b"1-600")
    path.write_bytes(whole[:at] + b"\xff" * 5 + whole[at + 5 :])
    launcher = LocalProcessLauncher(start_method="forkserver")
    app = application(tmp_path, count_topology(), clients=1, launcher=launcher)
    message = _fails(app, launcher, CorruptLogException)
    for part in ("left, partition 0, offset 500", str(path), "Task 0_0"):
        assert part in message
    # Two batches of 200 rows lie before it.
    assert _batches(tmp_path / "run") == 2


def test_a_topic_file_that_was_cut_off_is_named_before_anything_starts(tmp_path: Path) -> None:
    rows = stream(1_000, keys=20, seed=1)
    topic = write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at", segment_rows=250)
    path = tmp_path / "topics" / topic.segments(0)[3].name("left")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptLogException, match=rf"left, partition 0, offset 750 .*{path.name}"):
        application(tmp_path, count_topology(), clients=1).run()


@pytest.mark.parametrize(
    ("assignor", "parts"),
    [(ForgetfulAssignor, ("ForgetfulAssignor", "0_0")), (BrokenAssignor, ("BrokenAssignor", "KeyError", "rack-7"))],
)
def test_an_assignors_wrong_answer_ends_the_run(tmp_path: Path, assignor: type, parts: tuple[str, ...]) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)
    launcher = LocalProcessLauncher(start_method="forkserver")
    config = settings(task_assignor_class=f"{assignor.__module__}.{assignor.__name__}")
    app = application(tmp_path, join_topology(), config=config, launcher=launcher)
    message = _fails(app, launcher, StreamsException)
    for part in parts:
        assert part in message
    assert _batches(tmp_path / "run") == 0


def test_a_folder_has_one_coordinator_one_application_and_one_topology(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=1_000, keys=10)
    watch = Watch()
    problems: list[str] = []

    def second(event: Rebalanced) -> None:
        with pytest.raises(CommitLogException) as caught:
            application(tmp_path, join_topology()).run()
        problems.append(str(caught.value))

    watch.on(Rebalanced, second)
    application(tmp_path, join_topology(), clients=1).run(watch)
    assert f"Another coordinator (process {os.getpid()} on " in problems[0]
    with pytest.raises(CommitLogException, match="belongs to the application 'test', not to 'other'"):
        application(tmp_path, join_topology(), config=settings(application_id="other")).run()
    with pytest.raises(CommitLogException, match=r"cannot go on.*topics, right: is gone; order of the sub-top"):
        application(tmp_path, count_topology()).run()


@pytest.mark.thorough
def test_clients_that_do_not_come_are_an_error(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)

    class Lazy(LocalProcessLauncher):
        def start(self, plan: Any) -> None:
            super().start(attrs.evolve(plan, bootstraps=plan.bootstraps[:1]))

    # On a busy machine not even one comes in time: it is given longer then.
    for seconds in (5, 20, 80):
        launcher = Lazy(start_method="forkserver")
        options = RuntimeOptions(startup_timeout_ms=seconds * 1_000)
        app = application(tmp_path, join_topology(), clients=3, launcher=launcher, options=options)
        message = _fails(app, launcher, ClientException)
        if "Only 0 of" not in message:
            break
    assert f"Only 1 of 3 clients came in {seconds} s" in message
    assert "client-1" in message.partition("min_clients=1")[0] != message, "and how it begins with one"


def test_the_declared_columns_are_there_even_without_rows(tmp_path: Path) -> None:
    empty = stream(0, keys=1, seed=1)
    for name in ("left", "right"):
        write_topic(tmp_path / "topics", name, empty, partitions=2, key=["key"], timestamp="at")
    result = application(tmp_path, join_topology(), clients=1).run()
    assert result.table("joined").schema.names == ["key", "at", "value", "at_right", "value_right"]
    with pytest.raises(CommitLogException, match="no output 'joint'; its outputs: joined"):
        result.table("joint")


def test_outputs_are_cast_to_their_declared_schema(tmp_path: Path) -> None:
    rows = stream(10, keys=2, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    schema = pa.schema([("value", pa.int64())])
    launcher = LocalProcessLauncher(start_method="forkserver")
    topology = Topology([SubTopology("failing", "left", FailsAtRow, [], [Output("out", schema)])])
    app = application(tmp_path, topology, clients=1, launcher=launcher)
    message = _fails(app, launcher, ProcessorException)
    assert "the output 'out' has type string and cannot be cast to int64" in message


def test_columns_that_change_end_the_run_before_they_are_committed(tmp_path: Path) -> None:
    """They were committed, and the whole output could not be read any more."""
    write_topic(tmp_path / "topics", "left", stream(100, keys=9, seed=1), partitions=1, key=["key"], timestamp="at")
    topology = Topology([SubTopology("changing", "left", ChangesColumns, [], ["out"])])
    launcher = LocalProcessLauncher(start_method="forkserver")
    options = attrs.evolve(QUICK, max_batch_rows=10)
    app = application(tmp_path, topology, clients=1, launcher=launcher, options=options)
    message = _fails(app, launcher, ProcessorException)
    assert "Batch 1 of task 0_0 is not committed: it gave the output 'out' the columns column-1: string" in message
    assert "but it had column-0: string before" in message
    assert read_output(tmp_path / "run", "out").num_rows == 10


def test_a_topic_that_is_written_anew_before_the_run_is_told(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)
    app = application(tmp_path, join_topology(), clients=1)
    shutil.rmtree(tmp_path / "topics")
    write_streams(tmp_path / "topics", rows=100, keys=10)
    with pytest.raises(TopicException, match=r"The topic 'left' .* was written anew"):
        app.run()
