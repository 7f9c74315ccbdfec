"""Streams clients as Spark tasks: they run exactly what the assignor chose, survive kills, and end cleanly."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientJoined,
    CommitLog,
    Processor,
    ProcessorException,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
    committed_files,
    write_topic,
)
from task_assignor.sdk import StreamsConfig, TaskId
from task_assignor.spark import SparkLauncher, SparkSessionError, read_results

pytestmark = pytest.mark.spark

PARTITIONS = 4
CLIENTS = 4
ROWS = 20_000
WINDOW_MS = 50
ATTEMPT = re.compile(r"spark task (\d+) \(stage (\d+), attempt (\d+), executor (\S+), process (\d+)\)")


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics with equal keys; the times rise."""
    root = tmp_path_factory.mktemp("topics")
    for name, step in (("left", 7919), ("right", 104_729)):
        numbers = pl.int_range(ROWS, eager=True)
        table = pl.DataFrame({"key": numbers * step % 500, "time": numbers, name: numbers}).to_arrow()
        write_topic(root, name, table, partitions=PARTITIONS, key=["key"], timestamp="time")
    return root


def config(**settings: object) -> StreamsConfig:
    given = {"application.id": "test", "task.assignor.class": StickyTaskAssignor, "num.standby.replicas": 1}
    return StreamsConfig(given | settings)


def join() -> Topology:
    return Topology(
        [
            WindowedJoin(left="left", right="right", before_ms=WINDOW_MS, after_ms=WINDOW_MS).sub_topology(
                "join", output="pairs"
            )
        ]
    )


def expected_pairs(topics: Path) -> list[tuple[Any, ...]]:
    left, right = (pl.scan_ipc(sorted(topics.glob(f"{name}/*/*.arrow"))) for name in ("left", "right"))
    return (
        left.join(right, on="key", suffix="_right")
        .filter((pl.col("time_right") - pl.col("time")).is_between(-WINDOW_MS, WINDOW_MS))
        .select("left", "right")
        .sort("left", "right")
        .collect()
        .rows()
    )


@attrs.define
class Watcher:
    """Keeps who joined, and kills a client after each of the given commits, or the next with batches in it."""

    kill_after: tuple[int, ...] = ()
    joined: dict[str, ClientJoined] = attrs.field(factory=dict)
    present: dict[str, int] = attrs.field(factory=dict)
    killed: int = 0

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, ClientJoined):
            self.joined[event.member_id] = event
            self.present[event.client] = event.pid
        elif (
            isinstance(event, BatchesCommitted)
            and self.killed < len(self.kill_after)
            and event.commit >= self.kill_after[self.killed]
        ):
            os.kill(self.present[f"client-{self.killed % CLIENTS + 1}"], signal.SIGKILL)
            self.killed += 1


def spark_tasks(spark: SparkSession, stage: int) -> dict[int, tuple[int, int, str]]:
    """What Spark itself recorded of a stage: attempt id -> (partition, number of the attempt, status)."""
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    tasks = store.taskList(stage, 0, 1_000)
    found = (tasks.apply(number) for number in range(tasks.size()))
    return {task.taskId(): (task.index(), task.attempt(), task.status()) for task in found}


def wait_until_idle(spark: SparkSession) -> None:
    """No job is left. Spark's own record of that comes a moment late."""
    deadline = time.monotonic() + 30
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline, "a Spark job is left"
        time.sleep(0.05)


@pytest.mark.thorough
def test_three_kills_change_nothing_and_every_task_runs_where_the_assignor_put_it(
    spark: SparkSession, topics: Path, tmp_path: Path
) -> None:
    watcher = Watcher(kill_after=(4, 9, 14))
    application = StreamsApplication(
        join(),
        config(),
        topics_root=topics,
        run_dir=tmp_path,
        clients=CLIENTS,
        launcher=SparkLauncher(spark),
        options=RuntimeOptions(max_batch_rows=ROWS // PARTITIONS // 20),
    )

    result = application.run(on_event=watcher)

    assert watcher.killed == 3
    assert len(result.lost_clients) == 3
    found = pl.from_arrow(read_results(spark, result, "pairs").toArrow())
    assert isinstance(found, pl.DataFrame)
    assert expected_pairs(topics) == found.select("left", "right").sort("left", "right").rows()
    wait_until_idle(spark)

    assignments = {record.generation: record.clients for record in CommitLog(tmp_path).rebalances()}
    attempts = [(event.client, ATTEMPT.fullmatch(event.attempt)) for event in watcher.joined.values()]
    stages = {int(match[2]): client for client, match in attempts if match is not None}
    assert sorted(stages.values()) == sorted(spec.name for spec in application.clients), "a job for each client"
    in_spark = {
        attempt: (client, number, status)
        for stage, client in stages.items()
        for attempt, (_, number, status) in spark_tasks(spark, stage).items()
    }
    task_runs = 0
    for record in CommitLog(tmp_path).records():
        for task, commit in record.tasks.items():
            client, tasks = assignments[commit.generation][commit.member_id]
            assert (commit.client, True) == (client, task in tasks.active)
            joined = watcher.joined[commit.member_id]
            assert (joined.client, joined.process_id, joined.attempt) == (
                commit.client,
                commit.process_id,
                commit.attempt,
            )
            match = ATTEMPT.fullmatch(commit.attempt)
            assert match is not None
            assert int(match[5]) == joined.pid
            # Spark's own record: the attempt ran the job of the client.
            ran, number, _ = in_spark[int(match[1])]
            assert (commit.client, number, "driver") == (ran, int(match[3]), match[4])
            task_runs += 1
    assert task_runs >= 20 * PARTITIONS
    failed = {attempt for attempt, (_, _, status) in in_spark.items() if status == "FAILED"}
    killed = {int(ATTEMPT.fullmatch(watcher.joined[lost.member_id].attempt)[1]) for lost in result.lost_clients}  # type: ignore[index]
    assert killed <= failed


class Broken(Processor):
    """Fails in the third batch of one task."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        if context.batch == 2 and context.partition == 1:
            raise ValueError("this one is broken")
        return batch["left"]


def test_a_processor_that_raises_ends_the_run_with_its_place_and_frees_the_slots(
    spark: SparkSession, topics: Path, tmp_path: Path
) -> None:
    topology = Topology([SubTopology("copy", ["left"], Broken, outputs=["copy"])])
    application = StreamsApplication(
        topology,
        config(),
        topics_root=topics,
        run_dir=tmp_path,
        clients=2,
        launcher=SparkLauncher(spark),
        options=RuntimeOptions(max_batch_rows=1_000),
    )

    with pytest.raises(ProcessorException, match=r"this one is broken") as caught:
        application.run()

    for place in ("0_1", "left", "partition 1", "2000", "Broken"):
        assert place in str(caught.value)
    # What was committed before stays, and nothing else is visible.
    committed = list(CommitLog(tmp_path).records())
    assert sum(TaskId(0, 1) in record.tasks for record in committed) == 2
    # Another client may have come to its last batches, which are smaller.
    assert read_results(spark, tmp_path, "copy").count() == sum(record.rows_in for record in committed)
    wait_until_idle(spark)


@pytest.fixture
def unknown_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with a processor that this process finds, and Spark's workers do not."""
    (tmp_path / "only_in_the_driver.py").write_text(
        "from task_assignor.runtime import Processor\n\n\n"
        "class Copy(Processor):\n    def process_batch(self, batch, context):\n        return batch['left']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "only_in_the_driver"
    sys.modules.pop("only_in_the_driver", None)


def test_clients_that_cannot_start_end_the_run_soon_with_the_reason(
    spark: SparkSession, topics: Path, tmp_path: Path, unknown_module: str
) -> None:
    processor = __import__(unknown_module).Copy
    topology = Topology([SubTopology("copy", ["left"], processor, outputs=["copy"])])
    application = StreamsApplication(
        topology, config(), topics_root=topics, run_dir=tmp_path / "run", clients=2, launcher=SparkLauncher(spark)
    )

    with pytest.raises(ClientException, match="No module named 'only_in_the_driver'"):
        application.run()

    wait_until_idle(spark)


def test_a_call_of_java_is_done_before_ctrl_c_comes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """PySpark printed a traceback, and the connection to Java was lost."""
    launcher = SparkLauncher(spark)
    send = ClientServerConnection.send_command
    presses: list[signal.Signals] = []

    def interrupted(connection: ClientServerConnection, command: str) -> Any:
        if presses:
            signal.raise_signal(presses.pop())
        return send(connection, command)

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ClientServerConnection, "send_command", interrupted)
    before = signal.signal(signal.SIGINT, handle)
    try:
        for call in (launcher.capacity, lambda: launcher.coordinator_host):
            presses.append(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                call()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [record.getMessage() for record in caplog.records if "sending command" in record.getMessage()]


def test_more_clients_than_slots_are_refused_before_anything_starts(
    spark: SparkSession, topics: Path, tmp_path: Path
) -> None:
    application = StreamsApplication(
        join(), config(), topics_root=topics, run_dir=tmp_path, clients=9, launcher=SparkLauncher(spark)
    )

    with pytest.raises(SparkSessionError, match=r"9 clients need a slot each .* Use local\[10,1000\]"):
        application.run()


@pytest.mark.usefixtures("no_slots")
def test_clients_that_wait_for_the_slots_of_other_jobs_are_told(
    spark: SparkSession,
    topics: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was said for a minute."""
    monkeypatch.setattr("task_assignor.spark.launcher.NO_EXECUTOR_S", 0)
    monkeypatch.setattr("task_assignor.spark.executors.NO_EXECUTOR_S", 0)
    options = RuntimeOptions(startup_timeout_ms=2_000)
    application = StreamsApplication(
        join(),
        config(),
        topics_root=topics,
        run_dir=tmp_path / "run",
        clients=2,
        launcher=SparkLauncher(spark),
        options=options,
    )
    with pytest.raises(ClientException, match="Only 0 of 2 clients came"):
        application.run()
    (told,) = [record.getMessage() for record in caplog.records if "slot" in record.getMessage()]
    assert re.search(r"2 clients without a slot for 0 s: \S+, \S+\. Spark has 5, and other jobs hold them\.", told)


def test_only_what_is_committed_is_read(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    topology = Topology([SubTopology("copy", ["left"], Copy, outputs=["copy"])])
    StreamsApplication(
        topology, config(), topics_root=topics, run_dir=tmp_path, clients=2, launcher=SparkLauncher(spark)
    ).run()
    committed = committed_files(tmp_path, "copy")
    left_behind = Path(committed[0]).with_name("000000000099-00000001.arrow")
    left_behind.write_bytes(Path(committed[0]).read_bytes())

    found = read_results(spark, tmp_path, "copy")

    assert sorted(row["left"] for row in found.collect()) == list(range(ROWS))


def test_a_run_that_was_stopped_goes_on_when_the_same_application_is_run_again(
    spark: SparkSession, topics: Path, tmp_path: Path
) -> None:
    """As where the cell of a notebook is run again: it was refused, since its launcher had been started before."""
    topology = Topology([SubTopology("copy", ["left"], Copy, outputs=["copy"])])
    application = StreamsApplication(
        topology,
        config(),
        topics_root=topics,
        run_dir=tmp_path,
        clients=2,
        launcher=SparkLauncher(spark),
        options=RuntimeOptions(max_batch_rows=500),
    )

    def stop(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            application.request_stop("enough")

    first = application.run(stop)
    rest = application.run()

    assert (first.stopped, rest.stopped) == ("enough", "")
    assert 0 < first.rows_in < ROWS
    assert first.rows_in + rest.rows_in == ROWS
    assert application.run().rows_in == 0


class Copy(Processor):
    """Gives back what it gets."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """One source, one output."""
        return batch["left"]
