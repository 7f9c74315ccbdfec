"""Clients as Spark tasks that hang or raise strange things: as with local processes, through the same heartbeat process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from task_assignor.runtime import (
    ClientException,
    ClientJoined,
    ClientLost,
    ProcessorException,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    Topology,
    write_topic,
)
from task_assignor.spark import SparkLauncher
from tests.processes import alive
from tests.runtime import trouble
from tests.runtime.support import Watch, settings, stream

pytestmark = pytest.mark.spark

ROWS = 1_000


def _application(spark: SparkSession, root: Path, processor: type, **options: Any) -> StreamsApplication:
    rows = stream(ROWS, keys=20, seed=1)
    write_topic(root / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    return StreamsApplication(
        Topology([SubTopology("troubled", "left", processor, [], ["out"])]),
        settings(),
        topics_root=root / "topics",
        run_dir=root / "run",
        clients=2,
        launcher=SparkLauncher(spark),
        options=RuntimeOptions(max_batch_rows=200, heartbeat_interval_ms=50, **options),
    )


@pytest.mark.thorough
def test_holding_pythons_lock_past_the_session_timeout_costs_no_membership(spark: SparkSession, tmp_path: Path) -> None:
    watch = Watch()
    result = _application(spark, tmp_path, trouble.HogsTheLock, session_timeout_ms=3_000).run(watch)
    assert result.table("out").num_rows == ROWS
    assert watch.of(ClientLost) == []


@pytest.mark.thorough
def test_a_processor_that_always_hangs_is_killed_each_time_and_ends_the_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    watch = Watch()
    app = _application(spark, tmp_path, trouble.HangsInC, max_poll_interval_ms=4_000, max_attempts=2)
    with pytest.raises(ClientException, match=r"lost 2 times .* HangsInC has not returned from task 0_0 for 4000 ms"):
        app.run(watch)
    lost = {event.member_id for event in watch.of(ClientLost)}
    pids = [event.pid for event in watch.of(ClientJoined) if event.member_id in lost]
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_what_is_no_exception_ends_the_run_too(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ProcessorException, match=r"SystemExit: no licence") as caught:
        _application(spark, tmp_path, trouble.Exits).run()
    assert f'File "{trouble.__file__}"' in str(caught.value)
    assert "in Exits.trouble: sys.exit" in str(caught.value)


def test_what_a_processor_prints_reaches_the_terminal(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _application(spark, tmp_path, trouble.Prints).run()
    said = ""
    deadline = time.monotonic() + 20
    while "processing 0_0" not in said and time.monotonic() < deadline:
        time.sleep(0.05)
        captured = capfd.readouterr()
        said += captured.out + captured.err
    assert "processing 0_0" in said, os.environ.get("PYTHONUNBUFFERED")


def test_why_a_master_has_ended_the_application_is_shown(spark: SparkSession) -> None:
    """The driver sees only that Spark has stopped, so a run was said to have been stopped by the program itself."""
    jvm: Any = spark.sparkContext._jvm
    package = "org.apache.spark.scheduler"
    shown = {
        name: bool(jvm.org.apache.logging.log4j.LogManager.getLogger(f"{package}.{name}").isErrorEnabled())
        for name in ("TaskSetManager", "cluster.StandaloneSchedulerBackend")
    }
    assert shown == {"TaskSetManager": False, "cluster.StandaloneSchedulerBackend": True}
