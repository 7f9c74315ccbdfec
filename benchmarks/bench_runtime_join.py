"""The windowed join with state and changelog on local processes: throughput, and the time of a takeover.

The data are those of the figures in `recorded.json` for Structured Streaming: two streams over one hour of event time,
half as many keys as rows of a stream, join within 5 minutes, 8 partitions. More figures on standard output, without
the table: `python -m benchmarks.bench_runtime_join --rows 10000000 --standbys 1`.
"""

from __future__ import annotations

import argparse
import atexit
import itertools
import math
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import attrs

from benchmarks.case import Case, Facts, Goal, Timed, Work
from benchmarks.parts import METER, PARTS, WITHOUT, install, leaving_out, lines

ROWS = 10_000_000
KEYS_PER_ROW = 4
SPAN_MS, WINDOW_MS = 3_600_000, 300_000
PARTITIONS = 8
BATCHES = 60
CLIENTS = 2
RATES = {625_000: 5.5e6, 20_000: 4.2e6, 5_000: 1.4e6}
"""Rows of a source in a task's batch -> rows per second that are wanted."""
STICKY = "task_assignor.builtin_assignors.StickyTaskAssignor"


@attrs.frozen
class Outcome:
    """What a run gave.

    Args:
        rows_out: rows of the result.
        expected: rows that it should have.
        latencies: seconds of each batch.
        takeover: seconds from a kill to the next committed batch; 0: nobody was killed.
        restored: rows that were read from changelogs and snapshots for the takeover.
        pauses: of the tasks that stayed where they were: the longest time between two of their commits within a second
            after the kill, the longest in the second before, and the median, seconds.
    """

    rows_out: int
    expected: int
    latencies: Sequence[float]
    takeover: float = 0.0
    restored: int = 0
    pauses: tuple[float, float, float] = (0.0, 0.0, 0.0)


def cases(is_quick: bool = False) -> list[Case]:
    """Throughput without and with standbys, by batches, clients and tasks; takeover."""
    rows = 20_000 if is_quick else ROWS
    few = rows // 10
    common: dict[str, Any] = {"describe": _describe, "needs": ("polars", "pyarrow"), "is_heavy": True}
    name = "join/10M rows on 2 processes"
    return [
        Case(
            name=name,
            prepare=partial(_throughput, rows, 0),
            goal=Goal(seconds=10),
            amount=(rows, "rows"),
            **common,
        ),
        Case(name=f"{name}, 1 standby", prepare=partial(_throughput, rows, 1), amount=(rows, "rows"), **common),
        Case(name="takeover/10M rows, kill -9, no standby", prepare=partial(_takeover, rows, 0), **common),
        Case(
            name="takeover/10M rows, kill -9, 1 standby",
            prepare=partial(_takeover, rows, 1),
            goal=Goal(seconds=0.5),
            **common,
        ),
        *(
            Case(
                f"join/10M rows, {batch_rows} a batch",
                partial(_throughput, rows, batch_rows=batch_rows),
                goal=Goal(seconds=rows / rate),
                amount=(rows, "rows"),
                **common,
            )
            for batch_rows, rate in RATES.items()
        ),
        *(
            Case(
                f"join/1M rows, {count} clients",
                partial(_throughput, few, clients=count, partitions=16),
                amount=(few, "rows"),
                series="join, clients",
                size=count,
                **common,
            )
            for count in (1, 2, 4, 8, 16)
        ),
        *(
            Case(
                f"join/1M rows, {count} tasks",
                partial(_throughput, few, partitions=count, batch_rows=max(few // 2 // count // 2, 1)),
                amount=(few, "rows"),
                series="join, tasks",
                size=count,
                **common,
            )
            for count in (10, 100, 1_000)
        ),
    ]


def _describe(outcome: Outcome) -> Facts:
    ordered = sorted(outcome.latencies)
    facts: dict[str, int | float | str] = {
        "batches": len(ordered),
        "median ms": round(statistics.median(ordered) * 1e3, 1),
        "p95 ms": round(ordered[int(len(ordered) * 0.95)] * 1e3, 1),
        "result": "exact" if outcome.rows_out == outcome.expected else "WRONG",
    }
    if outcome.takeover:
        facts["rows restored"] = outcome.restored
        for name, pause in zip(("after", "before", "usual"), outcome.pauses, strict=True):
            facts[f"others' pause ms, {name}"] = round(pause * 1e3, 1)
    return facts


def _throughput(
    rows: int,
    standbys: int = 0,
    *,
    clients: int = CLIENTS,
    partitions: int = PARTITIONS,
    batch_rows: int | None = None,
) -> Work:
    root, expected = topics(rows, partitions)

    def work() -> Timed:
        seconds, outcome = run(root, expected, rows, standbys, clients=clients, batch_rows=batch_rows)
        return Timed(seconds, outcome)

    return work


def _takeover(rows: int, standbys: int) -> Work:
    root, expected = topics(rows)

    def work() -> Timed:
        _, outcome = run(root, expected, rows, standbys, kill_at=BATCHES // 2)
        return Timed(outcome.takeover, outcome)

    return work


@cache
def topics(rows: int, partitions: int = PARTITIONS) -> tuple[Path, int]:
    """Both topics on disk, and how many rows their join has, computed at once by polars."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import numpy as np
    import polars as pl
    import pyarrow as pa

    from task_assignor.runtime import write_topic

    root = Path(tempfile.mkdtemp(prefix="task-assignor-bench-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    random = np.random.default_rng(0)
    half = rows // 2
    frames = []
    for name in ("impressions", "clicks"):
        table = pa.table(
            {
                "key": random.integers(0, max(rows // KEYS_PER_ROW, 1), half),
                "at": np.sort(random.integers(0, SPAN_MS, half)),
                "value": random.random(half),
            }
        )
        write_topic(root / "topics", name, table, partitions=partitions, key=["key"], timestamp="at")
        frames.append(pl.LazyFrame({"key": table["key"].to_numpy(), "at": table["at"].to_numpy()}))
    near = (pl.col("at_right") - pl.col("at")).abs() <= WINDOW_MS
    expected = frames[0].join(frames[1], on="key").filter(near).select(pl.len()).collect().item()
    return root, expected


def run(
    root: Path,
    expected: int,
    rows: int,
    standbys: int,
    *,
    clients: int = CLIENTS,
    kill_at: int | None = None,
    batch_rows: int | None = None,
) -> tuple[float, Outcome]:
    """Run the join; with `kill_at`, kill -9 a client when that batch is committed.

    Returns:
        Seconds from the first assignment to the last commit, and the outcome.
    """
    from task_assignor.runtime import (
        BatchesCommitted,
        LocalProcessLauncher,
        Rebalanced,
        RunEvent,
        RuntimeOptions,
        StreamsApplication,
        TaskRestored,
        Topology,
        WindowedJoin,
    )
    from task_assignor.sdk import StreamsConfig, TaskId

    run_dir = root / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    join = WindowedJoin(left="impressions", right="clicks", before_ms=WINDOW_MS, after_ms=WINDOW_MS)
    config = {"application.id": "bench", "num.standby.replicas": standbys, "task.assignor.class": STICKY}
    launcher = LocalProcessLauncher()
    latencies: list[float] = []
    killed: list[float] = []
    takeover: list[float] = []
    restored: list[int] = []
    orphaned: set[TaskId] = set()
    """Tasks of the killed client that somebody else has now."""
    moved: set[TaskId] = set()
    """All that have moved since, also back to the client that took the place of the killed one."""
    commits: dict[TaskId, list[float]] = {}
    """Task -> when its batches were committed."""

    def watch(event: RunEvent) -> None:
        match event:
            case BatchesCommitted():
                latencies.append(event.seconds)
                for task in event.batches:
                    commits.setdefault(task, []).append(time.perf_counter())
                if killed and not takeover and orphaned & event.batches.keys():
                    takeover.append(time.perf_counter() - killed[0])
                if kill_at in event.batches.values() and not killed:
                    os.kill(next(iter(launcher.pids.values())), signal.SIGKILL)
                    killed.append(time.perf_counter())
            case Rebalanced() if killed:
                moved.update(task for task, before, _ in event.moved if before)
                orphaned.update(() if orphaned else moved)
            case TaskRestored(role="active") if killed and not takeover:
                restored.append(event.rows + event.snapshot_rows)

    application = StreamsApplication(
        Topology([join.sub_topology("join", "joined")]),
        StreamsConfig(config),
        topics_root=root / "topics",
        run_dir=run_dir,
        clients=clients,
        launcher=launcher,
        options=RuntimeOptions(max_batch_rows=batch_rows or max(rows // 2 // PARTITIONS // BATCHES, 1)),
    )
    result = application.run(watch)
    if result.stopped:
        raise SystemExit(f"The run was stopped by {result.stopped}: there is nothing to measure.")
    stayed = [times for task, times in commits.items() if task not in moved]
    others = pauses(stayed, killed[0]) if killed else (0.0, 0.0, 0.0)
    outcome = Outcome(result.rows_out, expected, latencies, sum(takeover), sum(restored), others)
    return result.seconds, outcome


def pauses(commits: Sequence[Sequence[float]], kill: float) -> tuple[float, float, float]:
    """Of the tasks: the longest time between two commits that ends in the second after a moment; before it; the median."""
    gaps = [(end, end - start) for times in commits for start, end in itertools.pairwise(times)]
    after = [gap for end, gap in gaps if kill < end <= kill + 1]
    before = [gap for end, gap in gaps if kill - 1 <= end <= kill]
    return max(after, default=0.0), max(before, default=0.0), statistics.median(gap for _, gap in gaps)


def main() -> None:
    """One line per run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of both streams together")
    parser.add_argument(
        "--batch-rows", type=int, default=None, help="rows of a source in a task's batch; else 60 batches a task"
    )
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--kill-at", type=int, default=None, help="kill a client when this batch is committed")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--without",
        default="",
        help="leave out, to see what it costs: checksums, fsync, merging, or several, with commas",
    )
    parser.add_argument(
        "--parts", action="store_true", help="say where the processor time went, which takes some itself"
    )
    parser.add_argument(
        "--cost",
        action="store_true",
        help="run pairs with and without --without, and say what that costs; --repeat 12 or more",
    )
    given = parser.parse_args()
    if given.cost:
        _cost(given)
        return
    os.environ[WITHOUT] = given.without
    with tempfile.TemporaryDirectory(prefix="task-assignor-parts-") as folder:
        if given.parts:
            os.environ[PARTS] = folder
        install()
        root, expected = topics(given.rows)
        METER.reset()
        for _ in range(given.repeat):
            before = _processor_seconds()
            seconds, outcome = run(
                root,
                expected,
                given.rows,
                given.standbys,
                clients=given.clients,
                kill_at=given.kill_at,
                batch_rows=given.batch_rows,
            )
            cpu = _processor_seconds() - before
            facts = ", ".join(f"{name} {value}" for name, value in _describe(outcome).items())
            taken = f", takeover {outcome.takeover:.3f} s" if outcome.takeover else ""
            rate = given.rows / seconds / 1e6
            print(f"{seconds:.2f} s, {rate:.2f} M rows/s, processors {cpu:.2f} s, {facts}{taken}", flush=True)
        if given.parts:
            METER.write(Path(folder), "coordinator")
            print(*lines(Path(folder), given.repeat), sep="\n")


def _cost(given: argparse.Namespace) -> None:
    """With and without, in `given.repeat` pairs: what share of time and processor time is lost, pair by pair.

    The two runs of a pair follow each other, so what else the machine does meets both more or less alike; a first pair
    warms up and does not count.
    """
    without = given.without or "checksums,fsync"
    made: dict[str, tuple[Path, int]] = {}
    for what in ("", without):
        with leaving_out(what):
            # Topics have checksums, too.
            made[what] = topics.__wrapped__(given.rows)
    pairs: list[dict[str, tuple[float, float]]] = []
    for turn in range(given.repeat + 1):
        pair: dict[str, tuple[float, float]] = {}
        # The one that comes first has the warmer or the fuller disk: each is it half of the time.
        for what in sorted(made, reverse=bool(turn % 2)):
            with leaving_out(what):
                root, expected = made[what]
                before = _processor_seconds()
                options = {"clients": given.clients, "batch_rows": given.batch_rows}
                seconds, outcome = run(root, expected, given.rows, given.standbys, **options)
            assert outcome.rows_out == expected, f"{outcome.rows_out} rows without {what or 'nothing'}, not {expected}"
            pair[what] = (seconds, _processor_seconds() - before)
        if turn:
            pairs.append(pair)
            values = ", ".join(f"{what or 'as it is'} {wall:.2f} s, {cpu:.2f} s" for what, (wall, cpu) in pair.items())
            print(f"{turn}: {values}", flush=True)
    for place, name in enumerate(("speed", "processor time")):
        lost = sorted(1 - pair[without][place] / pair[""][place] for pair in pairs)
        median = statistics.median(pair[""][place] for pair in pairs)
        rank, sureness = interval_of_median(len(lost))
        print(
            f"{name}: {median:.2f} s as it is; without {without} {statistics.median(lost):.1%} less, "
            f"median of {len(lost)} pairs ({sureness:.0%} interval of it {lost[rank]:.1%} to {lost[-1 - rank]:.1%})"
        )


def interval_of_median(count: int) -> tuple[int, float]:
    """Between which of `count` values, sorted, the median of what they are drawn from is, whatever their distribution.

    Returns:
        How many values are left out at either end, and how sure that is: at least 95 % where there are enough.
    """
    rank, outside = 0, 2 * 0.5**count
    while outside + (more := 2 * math.comb(count, rank + 1) * 0.5**count) <= 0.05:
        rank, outside = rank + 1, outside + more
    return rank, 1 - outside


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


if os.environ.get(WITHOUT) or os.environ.get(PARTS):
    # In a client, which imports this module because it is the program's.
    install()

if __name__ == "__main__":
    main()
