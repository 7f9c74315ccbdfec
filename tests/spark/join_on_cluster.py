"""A program for tests: a join on a cluster, in the middle of which something happens to an executor. Prints what came of it as JSON.

Arguments: master, folder, launcher, what happens (see `TROUBLE`). Its topics grow until a resident client whose
executor is decommissioned has left: Spark tells of that after a while, when a join of fixed size may be over.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from task_assignor import StreamsConfig
from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    RunEvent,
    RunResult,
    RuntimeOptions,
    StreamsApplication,
    Topology,
    WindowedJoin,
    append_topic,
    write_topic,
)
from task_assignor.runtime.application import Until
from task_assignor.spark import PinnedLauncher, SparkLauncher, read_results, spark_session

ROWS, PINNED_ROWS = 20_000, 60_000
BATCH_ROWS = PIECE_ROWS = 100
SOURCES = {"left": 7919, "right": 104_729}


def rows(source: str, start: int, count: int) -> pa.Table:
    numbers = pl.int_range(start, start + count, eager=True)
    return pl.DataFrame({"key": numbers * SOURCES[source] % 500, "time": numbers, source: numbers}).to_arrow()


def where_it_is(_: object) -> str | None:
    import importlib.util

    found = importlib.util.find_spec("task_assignor")
    return "nowhere" if found is None else found.origin


def executor_process(application: str, executor: str) -> int:
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
        except OSError:
            continue
        is_of_it = "--executor-id" in arguments and application in arguments
        if is_of_it and arguments[arguments.index("--executor-id") + 1] == executor:
            return int(entry.name)
    raise AssertionError(f"there is no executor {executor}")


def worker_of(executor: int) -> int:
    """The process that has started an executor's."""
    return int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1])


TROUBLE: dict[str, Callable[[int], None]] = {
    "kill": lambda executor: os.kill(executor, signal.SIGKILL),
    "terminate": lambda executor: os.kill(executor, signal.SIGTERM),
    "decommission": lambda executor: os.kill(worker_of(executor), signal.SIGPWR),
    "nothing": lambda _: None,
}


def main(master: str, folder: str, launcher: str, trouble: str) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    # Pinned Spark tasks run to ends that are known when they begin.
    grows = trouble == "decommission" and launcher == "resident"
    written = PINNED_ROWS if launcher == "pinned" else ROWS
    for name in SOURCES:
        write_topic(f"{folder}/topics", name, rows(name, 0, written), partitions=4, key=["key"], timestamp="time")
    spark = spark_session(
        master,
        clients=2,
        config={
            "spark.driver.host": "127.0.0.1",
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.decommission.enabled": "true",
        },
    )
    before = spark.sparkContext.parallelize([0], 1).map(where_it_is).collect()
    executors: dict[str, list[str]] = {}
    left: dict[str, str] = {}
    at_work: set[str] = set()
    troubled: list[str] = []
    began = joined_again = 0.0

    def on_event(event: RunEvent) -> None:
        nonlocal began, joined_again, written
        match event:
            case ClientJoined():
                (executor,) = re.findall(r"executor (\S+?),? ", event.attempt)
                executors.setdefault(event.client, []).append(executor)
                if troubled and event.client == "client-1":
                    joined_again = time.monotonic()
            case ClientLeft():
                left[event.client] = event.reason
            case BatchesCommitted():
                at_work.update(event.rows_by_client)
                # Who begins late may have done nothing by then.
                if event.commit >= 20 and "client-1" in at_work and not troubled:
                    troubled.append(executors["client-1"][-1])
                    began = time.monotonic()
                    TROUBLE[trouble](executor_process(str(spark.sparkContext.applicationId), troubled[0]))
                if grows and troubled and not left:
                    for name in SOURCES:
                        append_topic(f"{folder}/topics", name, rows(name, written, PIECE_ROWS))
                    written += PIECE_ROWS

    launchers: dict[str, Callable[[Any], Any]] = {"resident": SparkLauncher, "pinned": PinnedLauncher}
    # Where topics grow one is always a piece ahead of the other.
    grace: int | None = None if grows else 0
    join = WindowedJoin(
        left="left", right="right", before_ms=50, after_ms=50, left_grace_ms=grace, right_grace_ms=grace
    )

    def run(until: Until = "available_now") -> RunResult:
        return StreamsApplication(
            Topology([join.sub_topology("join", output="pairs")]),
            StreamsConfig({"application.id": "cluster", "num.standby.replicas": 1}),
            topics_root=f"{folder}/topics",
            run_dir=f"{folder}/run",
            clients=2,
            launcher=launchers[launcher](spark),
            options=RuntimeOptions(max_batch_rows=BATCH_ROWS, startup_timeout_ms=300_000),
        ).run(on_event=on_event, until=until)

    results = [run(until=lambda _: bool(left))] if grows else []
    results.append(run())
    commits = results[-1].commits
    found = pl.from_arrow(read_results(spark, f"{folder}/run", "pairs").toArrow())
    assert isinstance(found, pl.DataFrame)
    one, other = (pl.scan_ipc(f"{folder}/topics/{name}/*/*.arrow") for name in ("left", "right"))
    window = (pl.col("time_right") - pl.col("time")).is_between(-50, 50)
    expected = one.join(other, on="key").filter(window).select("left", "right").collect()
    after = spark.sparkContext.parallelize([0], 1).map(where_it_is).collect()
    by_executor: Counter[str] = Counter()
    misplaced = []
    owners = {record.generation: record.clients for record in commits.rebalances()}
    for record in commits.records():
        for task, commit in record.tasks.items():
            (executor,) = re.findall(r"executor (\S+),", commit.attempt)
            by_executor[executor] += 1
            if (
                executor not in executors[commit.client]
                or task not in owners[commit.generation][commit.member_id][1].active
            ):
                misplaced.append([str(task), commit.attempt])
    sys.stdout.write(
        json.dumps(
            {
                "equal": expected.sort("left", "right").equals(found.select("left", "right").sort("left", "right")),
                "lost": [lost.client for result in results for lost in result.lost_clients],
                "left": left,
                "troubled": troubled,
                "executors": sorted(by_executor),
                "clients": executors,
                "misplaced": misplaced,
                "restores": [
                    [one.origin, one.rows, one.role] for result in results for one in result.restores if one.batch >= 0
                ],
                "back_after_s": round(joined_again - began, 1) if joined_again else None,
                "refused": sum(len(result.refused_results) for result in results),
                "before": before,
                "after": after,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
