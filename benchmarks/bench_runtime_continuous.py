"""A join that goes on while a process appends to both of its topics: when results become visible, and what that costs.

The writer appends rows to two topics in small pieces, at a fixed rate; each row has the wall-clock time at which the writer
began to append it. A pair is visible when the commit is made that names its file. Its latency is the time from there back
to the younger of its two rows. More figures: `python -m benchmarks.bench_runtime_continuous --seconds 60 --rate 50000`; with
`--kill` a client is killed in the middle, and it says how long the tasks that stay where they are make no commit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs

from benchmarks.bench_runtime_join import pauses
from benchmarks.case import Case, Facts, Goal, Timed, Work
from benchmarks.machine import used_by_tree

RATE, SECONDS = 50_000, 20
PIECE_S = 0.05
"""The writer appends to each topic so often."""
WINDOW_MS, GRACE_MS = 5_000, 5_000
PARTITIONS, CLIENTS = 4, 2
BEGIN = 0.25
"""Results of so much of the time at the beginning are not counted: everything starts then."""
TOPICS = ("impressions", "clicks")
STICKY = "task_assignor.builtin_assignors.StickyTaskAssignor"


@attrs.frozen
class Outcome:
    """What a run gave.

    Args:
        latencies_ms: (N,) sorted; of each pair.
        rows: rows that were appended and read.
        seconds: so long rows were appended.
        cpu: cores that coordinator and clients used meanwhile, on average.
        commits: how many.
        pauses_ms: of tasks that stay where they are when a client is killed the longest time between two commits: in the second
            after it, in the second before; and the median of all.
    """

    latencies_ms: Any
    rows: int
    seconds: float
    cpu: float
    commits: int
    pauses_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def within(self, limit_ms: float) -> float:
        """Share of the pairs that were visible in this time, in percent."""
        return 100 * float((self.latencies_ms <= limit_ms).mean())

    def quantile(self, share: float) -> float:
        """So many of the pairs were visible within these ms."""
        return float(self.latencies_ms[int((len(self.latencies_ms) - 1) * share)])


def cases(is_quick: bool = False) -> list[Case]:
    """Visibility of results under load; and what a run costs that has nothing to do."""
    common: dict[str, Any] = {"describe": _describe, "needs": ("pyarrow",), "is_heavy": True}
    rate, seconds = (2_000, 2) if is_quick else (RATE, SECONDS)
    return [
        Case(
            name="continuous/99 % of results at 50 000 rows/s",
            prepare=partial(_prepare, rate, seconds),
            goal=Goal(seconds=0.2),
            **common,
        ),
        Case(
            name="continuous/CPU of a second without rows",
            prepare=partial(_prepare_idle, 2 if is_quick else 10),
            goal=Goal(seconds=0.02),
            needs=("pyarrow",),
            is_heavy=True,
        ),
    ]


def _describe(outcome: Outcome) -> Facts:
    return {
        "p50 ms": round(outcome.quantile(0.5), 1),
        "p99 ms": round(outcome.quantile(0.99), 1),
        "within 200 ms %": round(outcome.within(200), 2),
        "cores": round(outcome.cpu, 2),
        "commits": outcome.commits,
    }


def _prepare(rate: int, seconds: float) -> Work:
    def work() -> Timed:
        outcome = run(rate, seconds)
        return Timed(outcome.quantile(0.99) / 1000, outcome)

    return work


def _prepare_idle(seconds: float) -> Work:
    def work() -> Timed:
        return Timed(idle(seconds))

    return work


def _rows(random: Any, count: int, keys: int) -> Any:
    import numpy as np
    import pyarrow as pa

    now = time.time()
    return pa.table(
        {
            "key": random.integers(0, keys, count),
            "at": np.full(count, round(now * 1000)),
            "sent": np.full(count, now),
        }
    )


def _write(root: Path, rate: int, seconds: float, piece_s: float, told: Connection) -> None:
    """The writer: its own process."""
    import numpy as np

    from task_assignor.runtime import append_topic

    random = np.random.default_rng(0)
    begin = time.monotonic()
    written = 0
    # The rate holds however long an append takes; one that takes too long makes the next one larger.
    while (passed := time.monotonic() - begin) < seconds:
        due = int(rate * passed / len(TOPICS)) - written // len(TOPICS)
        if due:
            for topic in TOPICS:
                append_topic(root, topic, _rows(random, due, 2 * rate))
            written += due * len(TOPICS)
        time.sleep(max(piece_s - (time.monotonic() - begin - passed), 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    told.send((written, used.ru_utime + used.ru_stime))


def _application(folder: Path, standbys: int = 0, launcher: Any = None) -> Any:
    import numpy as np

    from task_assignor.runtime import RuntimeOptions, StreamsApplication, Topology, WindowedJoin, write_topic
    from task_assignor.sdk import StreamsConfig

    for topic in TOPICS:
        write_topic(
            folder / "topics",
            topic,
            _rows(np.random.default_rng(1), PARTITIONS, PARTITIONS),
            partitions=PARTITIONS,
            key="key",
            timestamp="at",
        )
    join = WindowedJoin(
        left=TOPICS[0],
        right=TOPICS[1],
        before_ms=WINDOW_MS,
        after_ms=WINDOW_MS,
        left_grace_ms=GRACE_MS,
        right_grace_ms=GRACE_MS,
    )
    return StreamsApplication(
        Topology([join.sub_topology("join", output="pairs")]),
        StreamsConfig({"application.id": "bench", "num.standby.replicas": standbys, "task.assignor.class": STICKY}),
        topics_root=folder / "topics",
        run_dir=folder / "run",
        clients=CLIENTS,
        launcher=launcher,
        options=RuntimeOptions(),
    )


def _used() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _in_folder(function: Callable[[Path], Any]) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="task-assignor-bench-"))
    try:
        return function(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    rate: int, seconds: float, *, kills: bool = False, piece_s: float = PIECE_S, start_method: str = "spawn"
) -> Outcome:
    """Run the join while a writer appends so many rows a second, both topics together, for so many seconds.

    Args:
        rate: rows a second.
        seconds: so long.
        kills: kill -9 a client in the middle; each task has a standby then.
        piece_s: the writer appends so often.
        start_method: how clients are started.
    """
    return _in_folder(partial(_run, rate, seconds, kills, piece_s, start_method))  # type: ignore[no-any-return]


def _run(rate: int, seconds: float, kills: bool, piece_s: float, start_method: Any, folder: Path) -> Outcome:
    import numpy as np

    from task_assignor.runtime import BatchesCommitted, LocalProcessLauncher, Rebalanced, RunEvent
    from task_assignor.runtime.run_folder.commits import CommitLog
    from task_assignor.runtime.run_folder.layout import RunLayout, open_committed
    from task_assignor.runtime.run_folder.outputs import committed_outputs
    from task_assignor.sdk import TaskId

    launcher = LocalProcessLauncher(start_method=start_method)
    app = _application(folder, int(kills), launcher)
    spawn = multiprocessing.get_context("spawn")
    told, tells = spawn.Pipe(duplex=False)
    writer = spawn.Process(target=_write, args=(folder / "topics", rate, seconds, piece_s, tells))
    visible: dict[int, float] = {}
    times: dict[TaskId, list[float]] = {}
    killed: list[float] = []
    moved: set[TaskId] = set()
    total, read = [-1], [0]
    writer_cpu = [0.0]
    begun = [0.0]
    before = _used()

    def on_event(event: RunEvent) -> None:
        if isinstance(event, Rebalanced) and killed:
            moved.update(task for task, before, _ in event.moved if before)
        if isinstance(event, BatchesCommitted):
            visible[event.commit] = time.time()
            for task in event.batches:
                times.setdefault(task, []).append(visible[event.commit])
            if kills and not killed and begun[0] and visible[event.commit] > begun[0] + seconds / 2:
                os.kill(next(iter(launcher.pids.values())), signal.SIGKILL)
                killed.append(visible[event.commit])
            read[0] += event.rows_in
            if not begun[0]:
                begun[0] = time.time()
                writer.start()
            if read[0] == total[0]:
                app.request_stop("all is read")

    def wait_for_writer() -> None:
        written, writer_cpu[0] = told.recv()
        total[0] = written + len(TOPICS) * PARTITIONS
        writer.join()
        if read[0] == total[0]:
            app.request_stop("all is read")

    threading.Thread(target=wait_for_writer, daemon=True).start()
    try:
        app.run(on_event, until="stopped")
    finally:
        if writer.pid is not None:
            writer.kill()
            writer.join()
    layout = RunLayout(folder / "run")
    latencies = []
    # The rows of a task come in the order of its commits, whichever files have been merged.
    records = list(CommitLog(folder / "run").records())
    commits: dict[TaskId, list[int]] = {task: [] for record in records for task in record.tasks}
    for record in records:
        for task, commit in record.tasks.items():
            commits[task] += [record.number] * (commit.outputs["pairs"].rows if "pairs" in commit.outputs else 0)
    seen = dict.fromkeys(commits, 0)
    for one in committed_outputs(folder / "run", "pairs"):
        rows = open_committed(layout, one.file, "output", "pairs", one.task.partition, one.first)
        sent = np.maximum(rows.column("sent").to_numpy(), rows.column("sent_right").to_numpy())
        of_rows = commits[one.task][seen[one.task] : seen[one.task] + rows.num_rows]
        seen[one.task] += rows.num_rows
        took = np.array([visible[number] for number in of_rows]) - sent
        latencies.append(took[sent > begun[0] + seconds * BEGIN])
    found = np.sort(np.concatenate(latencies)) * 1000
    cpu = (_used() - before - writer_cpu[0]) / seconds
    stayed = [of_task for task, of_task in times.items() if task not in moved]
    longest, before_it, usual = (pause * 1000 for pause in (pauses(stayed, killed[0]) if killed else (0.0, 0.0, 0.0)))
    return Outcome(found, total[0], seconds, cpu, len(visible), (longest, before_it, usual))


def idle(seconds: float) -> float:
    """CPU seconds per second that a continuous run takes when no rows come, clients included."""
    return float(_in_folder(partial(_idle, seconds)))


def _idle(seconds: float, folder: Path) -> float:
    from task_assignor.runtime import BatchesCommitted, RunEvent

    app = _application(folder)
    used: list[float] = []

    def measure() -> None:
        time.sleep(2)
        start = used_by_tree(os.getpid())
        time.sleep(seconds)
        used.append(used_by_tree(os.getpid()) - start)
        app.request_stop("measured")

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted) and not started.is_set():
            started.set()
            threading.Thread(target=measure, daemon=True).start()

    started = threading.Event()
    app.run(on_event, until="stopped")
    return used[0] / seconds


def main() -> None:
    """More figures than the table has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--kill", action="store_true", help="kill a client in the middle")
    parser.add_argument("--piece-ms", type=float, default=PIECE_S * 1000, help="append so often")
    parser.add_argument("--start-method", choices=["spawn", "forkserver"], default="spawn")
    given = parser.parse_args()
    outcome = run(
        given.rate,
        given.seconds,
        kills=given.kill,
        piece_s=given.piece_ms / 1000,
        start_method=given.start_method,
    )
    print(_describe(outcome), f"p90 {outcome.quantile(0.9):.1f} ms, p99.9 {outcome.quantile(0.999):.1f} ms")
    if given.kill:
        after, before, usual = outcome.pauses_ms
        print(
            f"longest time between commits of the other tasks: {after:.0f} ms after the kill, {before:.0f} before it, usually {usual:.0f}"
        )
    print(f"idle: {100 * idle(5):.2f} % of a core")


if __name__ == "__main__":
    main()
