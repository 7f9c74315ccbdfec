"""Pinned jobs: each stream task is a Spark task where the assignor put it, with the results of any other run."""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientSpec,
    CommitLog,
    LaunchPlan,
    Processor,
    ProcessorException,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    read_output,
)
from task_assignor.runtime.steps import step
from task_assignor.sdk import ConfigException, TaskId
from task_assignor.spark import PinnedLauncher, SparkSessionError, pinned_tasks
from task_assignor.spark.executors import Executor, live_executors, run_on
from task_assignor.spark.pinned_launcher import _require_executors
from task_assignor.spark.pinned_tasks import PinnedTasks, _SparkJob
from task_assignor.spark.pinned_worker import Misplaced, Pinned, pinned_function
from tests.runtime.support import (
    PATIENCE_S,
    DiesAtRow,
    FailsAtRow,
    Watch,
    in_order,
    join_topology,
    plain_join,
    settings,
    write_streams,
)
from tests.runtime.test_repartition import counting_topology, expected_counts, last_counts
from tests.spark.cluster import free_port
from tests.spark.conftest import CLIENTS

pytestmark = pytest.mark.spark

ATTEMPT = re.compile(r"spark task (\d+) \(stage (\d+), attempt (\d+), executor (\S+), process (\d+)\)")
PATIENT = RuntimeOptions(
    max_batch_rows=200,
    heartbeat_interval_ms=50,
    session_timeout_ms=60_000,
    startup_timeout_ms=600_000,
    validate_state=True,
)


def application(
    spark: SparkSession, root: Path, topology: Topology, *, clients: int = 2, options: RuntimeOptions = PATIENT
) -> StreamsApplication:
    return StreamsApplication(
        topology,
        settings(num_standby_replicas=1),
        topics_root=root / "topics",
        run_dir=root / "run",
        clients=clients,
        launcher=PinnedLauncher(spark),
        options=options,
    )


def attempts(run_dir: Path) -> dict[str, list[tuple[str, ...]]]:
    """Task -> the attempts of Spark tasks that have done its batches: attempt, stage, number, executor, process."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for record in CommitLog(run_dir).records():
        for task, commit in record.tasks.items():
            match = ATTEMPT.fullmatch(commit.attempt)
            assert match is not None
            if match.groups() not in found.setdefault(str(task), []):
                found[str(task)].append(match.groups())
    return found


def jobs_of(spark: SparkSession, stage: int) -> str:
    """What Spark's page calls the job of a stage."""
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = [jobs.apply(number) for number in range(jobs.size())]
    (job,) = (job for job in found if job.stageIds().contains(stage))
    return str(job.description().get())


def test_each_task_is_one_spark_task_with_the_result_of_any_other_run(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more tasks than slots: one follows the other, and keeps its state from its first batch to its last."""
    # Where a commit takes seconds a task has nothing to do for as long, and would give its slot to one that waits.
    monkeypatch.setattr("task_assignor.runtime.shells.client_shell._IDLE_PLACE_MS", 600_000)
    left, right = write_streams(tmp_path / "topics", rows=4_000, keys=50, partitions=5)
    app = application(spark, tmp_path, join_topology())

    result = app.run()

    assert in_order(read_output(tmp_path / "run", "joined")).equals(in_order(plain_join(left, right)))
    assert "has ended" not in caplog.text
    assert result.batches > 10
    found = attempts(tmp_path / "run")
    assert sorted(found) == [f"0_{number}" for number in range(5)]
    assert {len(spark_tasks) for spark_tasks in found.values()} == {1}
    for task, ((_, stage, number, executor, _),) in found.items():
        assert (number, executor) == ("0", "driver")
        assert f"Task {task} (join) of test: client-" in jobs_of(spark, int(stage))
    owners = {record.generation: record.clients for record in CommitLog(tmp_path / "run").rebalances()}
    for record in CommitLog(tmp_path / "run").records():
        for task_id, commit in record.tasks.items():
            assert task_id in owners[commit.generation][commit.member_id][1].active
    # Nothing is left to be done, and it can be asked again.
    assert app.run().rows_in == 0


def test_a_task_goes_on_after_its_last_commit_when_its_spark_task_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = write_streams(tmp_path / "topics", rows=8_000, keys=50, partitions=2)
    watch = Watch()
    killed: list[int] = []

    def kill(event: BatchesCommitted) -> None:
        if not killed and TaskId(0, 1) in event.batches and event.commit > 6:
            (spark_task,) = attempts(tmp_path / "run")["0_1"]
            killed.append(int(spark_task[-1]))
            os.kill(killed[0], signal.SIGKILL)

    watch.on(BatchesCommitted, kill)

    result = application(spark, tmp_path, join_topology()).run(watch)

    assert len(killed) == 1
    assert result.lost_clients == ()
    assert in_order(read_output(tmp_path / "run", "joined")).equals(in_order(plain_join(left, right)))
    found = attempts(tmp_path / "run")
    assert len(found["0_0"]) == 1
    assert len(found["0_1"]) == 2


def test_a_task_that_waits_for_another_gives_its_slot_away(spark: SparkSession, tmp_path: Path) -> None:
    """One slot, and a task that reads what others write: it holds the slot for as long as it has something to do."""
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    application(spark, tmp_path, counting_topology(), clients=1).run()
    assert last_counts(tmp_path) == expected_counts(left, right)


def hold(started: Path, until: Path) -> None:
    """The work of a Spark task of somebody else."""
    (started / str(os.getpid())).touch()
    while not until.exists():
        time.sleep(0.02)


def test_a_task_waits_for_a_slot_that_another_job_holds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    started, release, said = tmp_path / "started", tmp_path / "release", list[str]()
    started.mkdir()
    slots = CLIENTS + 1
    held = spark.sparkContext.parallelize(range(slots), slots)

    def step_and_release(what: str) -> None:
        step(what)
        said.append(what)
        release.touch()

    monkeypatch.setattr("task_assignor.spark.pinned_tasks.step", step_and_release)
    with ThreadPoolExecutor() as pool:
        other = pool.submit(held.foreach, lambda _: hold(started, release))
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(list(started.iterdir())) < slots:
                assert not other.done(), other.result()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            application(spark, tmp_path, join_topology()).run()
        finally:
            release.touch()
    other.result()
    assert said[0].startswith("it waits for a slot of executor driver")
    assert in_order(read_output(tmp_path / "run", "joined")).equals(in_order(plain_join(left, right)))


def test_what_is_defined_in_a_script_travels_by_value(spark: SparkSession, tmp_path: Path) -> None:
    """As with the other launchers: classes of `__main__`, and local ones."""
    left, _ = write_streams(tmp_path / "topics", rows=200, keys=5, partitions=2)

    class Same(Processor):
        def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
            return batch["left"]

    application(spark, tmp_path, Topology([SubTopology("same", "left", Same, [], ["out"])])).run()
    assert in_order(read_output(tmp_path / "run", "out")).equals(in_order(left))


def test_an_error_of_a_processor_ends_the_run_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    topology = Topology([SubTopology("failing", "left", FailsAtRow, [], ["out"])])
    with pytest.raises(ProcessorException, match="delay per mile of a flight of 0 miles") as caught:
        application(spark, tmp_path, topology).run()
    for place in ("FailsAtRow", "topic left, partition", "in FailsAtRow.process_batch: raise ZeroDivisionError"):
        assert place in str(caught.value)


def test_a_processor_that_takes_its_process_with_it_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=2_000, keys=50, partitions=2)
    topology = Topology([SubTopology("dying", "left", DiesAtRow, [], ["out"])])
    with pytest.raises(ClientException, match=r"The Spark task of task 0_\d on executor driver .* has ended: "):
        application(spark, tmp_path, topology).run()


def test_what_spark_runs_elsewhere_does_nothing_there(spark: SparkSession) -> None:
    """Its own work is not even looked at."""
    (here,) = live_executors(spark)
    payload = pickle.dumps(Pinned("7", b"no pickle"))
    assert run_on(spark, here, payload, pinned_function()) == Misplaced("driver")
    assert run_on(spark, Executor("7", "nowhere", 1), payload, pinned_function()) == Misplaced("driver")


@pytest.mark.thorough
def test_a_task_that_spark_runs_elsewhere_is_started_again_and_in_the_end_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is ever done where it does not belong: here, an executor to which Spark never gives anything."""
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    busy = Executor("7", "nowhere", 4)
    (here,) = live_executors(spark)
    monkeypatch.setattr(pinned_tasks, "live_executors", lambda _: [here, busy])
    look = pinned_tasks.PinnedTasks.surroundings

    def look_and_move(tasks: Any) -> Any:
        found = look(tasks)
        options = attrs.evolve(tasks._bootstrap.options, startup_timeout_ms=1_000)
        tasks._executor, tasks._bootstrap = busy, attrs.evolve(tasks._bootstrap, options=options)
        return found

    monkeypatch.setattr(pinned_tasks.PinnedTasks, "surroundings", look_and_move)
    told = (
        r"Task 0_\d .* it belongs on executor 7, where the assignor put it, but Spark has run it on driver \(\d+ time"
    )
    with caplog.at_level("WARNING"), pytest.raises(ClientException, match=told):
        application(spark, tmp_path, join_topology(), clients=1).run()
    assert "Spark ran it on executor driver, so it is tried again" in caplog.text
    assert not (tmp_path / "run" / "output").exists()


def test_a_run_without_an_end_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    app = application(spark, tmp_path, join_topology())
    with pytest.raises(ConfigException, match=r"Pinned Spark tasks are for bounded runs.*SparkLauncher"):
        app.run(until="stopped")


@pytest.mark.parametrize(
    ("least", "master", "is_refused"),
    [(None, "spark://h:1", True), ("2", "spark://h:1", False), (None, "local[4]", False)],
)
def test_executors_that_come_only_for_spark_tasks_that_wait_are_refused(
    least: str | None, master: str, is_refused: bool
) -> None:
    """The run waited for executors, and Spark for Spark tasks."""
    conf = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": least}
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))
    with (
        pytest.raises(SparkSessionError, match=r"minExecutors is 0: .* use resident clients: SparkLauncher\(spark\)")
        if is_refused
        else nullcontext()
    ):
        _require_executors(session)


def test_more_slots_than_there_are_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    with pytest.raises(
        SparkSessionError, match=r"has 5 slots, and 7 threads of clients \(num.stream.threads\) need a slot each"
    ):
        application(spark, tmp_path, join_topology(), clients=7).run()


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], "Spark has had no executor for 15 s. Maybe no worker has room for one"),
        ([Executor("0", "here", 1)], "(num.stream.threads: 2 at least), the largest executor has 1"),
    ],
)
def test_clients_for_which_there_is_no_room_are_told(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    there: list[Executor],
    said: str,
) -> None:
    """It was only said that no client had come."""
    monkeypatch.setattr("task_assignor.spark.pinned_launcher.live_executors", lambda _: there)
    monkeypatch.setattr("task_assignor.spark.pinned_launcher.NO_EXECUTOR_S", 0)
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    options = attrs.evolve(PATIENT, startup_timeout_ms=2_000)
    app = application(spark, tmp_path, join_topology(), clients=1, options=options)
    with pytest.raises(ClientException, match="Only 0 of 1 client came"):
        app.evolve(config=settings(num_stream_threads=2)).run()
    assert sum(said in record.message for record in caplog.records) == 1


def test_a_client_that_is_taken_away_before_it_has_a_place_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end was waited for, so it could not be had again in the same run."""
    monkeypatch.setattr("task_assignor.spark.pinned_launcher.live_executors", lambda _: [])
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    app, launcher = application(spark, tmp_path, join_topology()), PinnedLauncher(spark)
    launcher.add(app._bootstrap(ClientSpec("c"), "run", 0, b"", 0))
    assert launcher.exits() == []
    launcher.remove("c")
    for told in (["c"], []):
        launcher._next_look = 0.0
        assert [found.client for found in launcher.exits()] == told


def test_spark_tasks_come_in_at_the_address_that_is_advertised_by_the_port_after_the_coordinator_s(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were told the one that is listened on, which with 0.0.0.0 is each executor's own machine."""
    monkeypatch.setattr("task_assignor.spark.pinned_launcher.live_executors", lambda _: [])
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    options = attrs.evolve(
        PATIENT, bind_host="0.0.0.0", bind_port=(port := free_port()) - 1, advertised_host="driver.example"
    )
    app, launcher = application(spark, tmp_path, join_topology(), options=options), PinnedLauncher(spark)
    launcher.start(LaunchPlan("test", "run", (app._bootstrap(ClientSpec("c"), "run", 0, b"", 0),)))
    assert launcher._door is not None
    assert launcher._door.address == ("driver.example", port)
    launcher.stop(0)


@pytest.mark.usefixtures("no_slots")
def test_a_run_that_waits_for_slots_says_so_and_leaves_no_spark_job_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its jobs, said to be cancelled, were left in Spark's queue, and it took twelve seconds more to end. Who waits was told at the end alone."""
    monkeypatch.setattr("task_assignor.spark.pinned_launcher.NO_EXECUTOR_S", 0)
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    options = attrs.evolve(PATIENT, startup_timeout_ms=1_000)
    with pytest.raises(ClientException, match="other jobs hold them"):
        application(spark, tmp_path, join_topology(), options=options).run()
    active, deadline = spark.sparkContext.statusTracker().getActiveJobsIds, time.monotonic() + PATIENCE_S
    while len(active()) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(active()) == 1
    told = [record.getMessage() for record in caplog.records if "without a slot" in record.getMessage()]
    assert {name for one in told for name in re.findall(r"client-\d", one)} == {"client-1", "client-2"}
    assert all("other jobs hold them" in one for one in told)


def test_an_executor_that_has_no_address_yet_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients were placed on "executor 0 on ", and it was said so."""

    def told(number: int, address: str | None) -> Any:
        return SimpleNamespace(id=lambda: number, totalCores=lambda: 2, hostPort=lambda: address, activeTasks=lambda: 0)

    executors = [told(0, None), told(1, "here:7")]
    listed = SimpleNamespace(size=lambda: 2, apply=executors.__getitem__)
    scala = SimpleNamespace(statusStore=lambda: SimpleNamespace(executorList=lambda _: listed))
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala), getConf=dict)
    monkeypatch.setattr("task_assignor.spark.executors.is_decommissioned", lambda *_: False)
    assert live_executors(cast(Any, SimpleNamespace(sparkContext=context))) == [Executor("1", "here", 2)]


@pytest.mark.parametrize(("busy", "is_told"), [(1, False), (2, True)])
def test_a_client_waits_for_others_where_its_executor_has_no_free_slot(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, busy: int, is_told: bool
) -> None:
    """On a busy machine it was told where none had others."""
    launcher, executor = PinnedLauncher(spark), Executor("0", "here", 2, busy)
    tasks = SimpleNamespace(wait_for_slot=lambda _: True)
    launcher._clients = cast(Any, {"c": SimpleNamespace(name="c", executor=executor, tasks=tasks)})
    launcher._executors = [executor]
    launcher._tell_who_waits()
    assert ("1 client without a slot for 15 s: c. Spark has 2" in caplog.text) == is_told


def test_a_spark_task_that_has_just_ended_does_not_wait_for_a_slot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had looked around for half a minute was said to have waited, when nobody had heard of its end yet."""
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    bootstrap = application(spark, tmp_path, join_topology())._bootstrap(ClientSpec("c"), "run", 0, b"", 0)
    unused: Any = None
    tasks = PinnedTasks(spark, bootstrap, b"", Executor("0", "here", 1), unused, b"", unused)
    job = object.__new__(_SparkJob)
    job.began, job.group, job._spark, job._has_slot = time.monotonic() - 20, "group", spark, False
    tasks._opening.add(job)
    seen = []
    for running in ([], ["0"], []):
        monkeypatch.setattr(pinned_tasks, "running_executors", lambda *_, running=running: running)
        seen.append(tasks.wait_for_slot(15))
    assert seen == [True, False, False]


def test_the_next_run_goes_on_where_a_stopped_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=8_000, keys=50, partitions=3)
    watch = Watch()
    first = application(spark, tmp_path, join_topology(), options=attrs.evolve(PATIENT, stop_timeout_ms=60_000))
    watch.on(BatchesCommitted, lambda event: event.commit > 4 and first.request_stop("enough"))
    result = first.run(watch)
    assert result.stopped == "enough"
    assert 0 < result.rows_in < 12_000
    rest = application(spark, tmp_path, join_topology()).run()
    assert result.rows_in + rest.rows_in == 12_000
    assert in_order(read_output(tmp_path / "run", "joined")).equals(in_order(plain_join(left, right)))


def test_whatever_ends_the_thread_of_a_client_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of SystemExit nobody was told: the client was gone, and was waited for."""

    def leave(_: object) -> str:
        raise SystemExit("no licence")

    monkeypatch.setattr("task_assignor.spark.pinned_launcher.ClientShell.run", leave)
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    with pytest.raises(ClientException, match="SystemExit: no licence"):
        application(spark, tmp_path, join_topology(), clients=1).run()


def test_who_waits_for_a_spark_task_whose_answers_nobody_reads_any_more_is_woken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was waited for until the client was given up, and nobody said why."""
    asked = threading.Event()

    def receive() -> None:
        assert asked.wait(60)
        raise MemoryError

    def nothing() -> None: ...

    channel: Any = SimpleNamespace(receive=receive, send=lambda _: asked.set(), close=nothing, release=nothing)
    job, work = (cast("Any", None) for _ in range(2))
    with pytest.raises(pinned_tasks._GoneError):
        pinned_tasks._Place(job, channel).ask(work)
    assert "What came from a Spark task cannot be read" in caplog.text
