"""What a batch costs beside its rows: small batches of 8 tasks on two local processes, with a processor that only copies and a join.

Time and processor time are those from the first commit to the last one, of coordinator and clients together, so without their
start. A round is one batch of each of the tasks. More figures: `python -m benchmarks.bench_runtime_batches --rows 1 5 50 5000`,
and by number of tasks `--rows 5 --tasks 8 1000 --rounds 20`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.bench_runtime_join import PARTITIONS, STICKY, WINDOW_MS, topics
from benchmarks.case import Case, Facts, Goal, Timed, Work
from benchmarks.machine import used_by_tree

if TYPE_CHECKING:
    from task_assignor.runtime import SubTopology

ROWS, ROUNDS = (1, 5, 50, 5_000), 300
CLIENTS = 2
GOAL_S = 0.002
"""Of a round of batches whose rows are only copied."""


@attrs.frozen
class Outcome:
    """What a run gave.

    Args:
        batches: batches of all tasks that were measured.
        commits: the commits that made them visible.
        seconds: how long that took.
        cpu: processor seconds of coordinator and clients meanwhile.
        is_exact: the result has as many rows as it should.
        tasks: how many there were.
    """

    batches: int
    commits: int
    seconds: float
    cpu: float
    is_exact: bool
    tasks: int = PARTITIONS

    @property
    def round_s(self) -> float:
        """Seconds of a batch of each task."""
        return self.seconds * self.tasks / self.batches

    @property
    def cpu_of_batch(self) -> float:
        """Processor seconds of one task's batch."""
        return self.cpu / self.batches


def cases(is_quick: bool = False) -> list[Case]:
    """A round of small batches, by rows."""
    rounds = 20 if is_quick else ROUNDS
    common: dict[str, Any] = {"describe": _describe, "needs": ("polars", "pyarrow"), "is_heavy": True}
    return [
        Case(
            f"batches/{kind}, {rows} rows of a source, a round of {PARTITIONS} tasks",
            partial(_prepare, kind, rows, rounds),
            goal=Goal(seconds=GOAL_S) if kind == "copy" and rows <= min(ROWS[:2]) else None,
            **common,
        )
        for kind in ("copy", "join")
        for rows in ROWS
    ]


def _describe(outcome: Outcome) -> Facts:
    return {
        "CPU ms of a task's batch": round(outcome.cpu_of_batch * 1e3, 2),
        "batches": outcome.batches,
        "commits": outcome.commits,
        "result": "exact" if outcome.is_exact else "WRONG",
    }


def _prepare(kind: str, rows: int, rounds: int) -> Work:
    topics(2 * PARTITIONS * rows * rounds)

    def work() -> Timed:
        outcome = run(kind, rows, rounds)
        return Timed(outcome.round_s, outcome)

    return work


def _sub_topology(kind: str) -> SubTopology:
    import pyarrow as pa

    from task_assignor.runtime import Processor, SubTopology, TaskContext, WindowedJoin

    class Copying(Processor):
        def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:  # noqa: ARG002
            return pa.concat_tables(batch.values())

    if kind == "copy":
        return SubTopology("copy", ("impressions", "clicks"), Copying, outputs=("rows",))
    join = WindowedJoin(left="impressions", right="clicks", before_ms=WINDOW_MS, after_ms=WINDOW_MS)
    return join.sub_topology("join", "rows")


def run(kind: str, rows: int, rounds: int, clients: int = CLIENTS, tasks: int = PARTITIONS) -> Outcome:
    """Run so many rounds, or a few more: partitions differ in their rows.

    Args:
        kind: "copy" or "join".
        rows: of each source in a task's batch.
        rounds: batches of each task.
        clients: processes.
        tasks: how many.
    """
    from task_assignor.runtime import (
        BatchesCommitted,
        RunEvent,
        RunFinished,
        RuntimeOptions,
        StreamsApplication,
        Topology,
    )
    from task_assignor.sdk import StreamsConfig

    count = 2 * tasks * rows * rounds
    root, joined = topics(count, tasks)
    shutil.rmtree(root / "run", ignore_errors=True)
    marks: list[tuple[float, float]] = []
    batches: list[int] = []

    def watch(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            batches.append(len(event.batches))
        if isinstance(event, RunFinished) or len(batches) == 1:
            marks.append((time.perf_counter(), used_by_tree(os.getpid())))

    application = StreamsApplication(
        Topology([_sub_topology(kind)]),
        StreamsConfig({"application.id": "bench", "task.assignor.class": STICKY}),
        topics_root=root / "topics",
        run_dir=root / "run",
        clients=clients,
        options=RuntimeOptions(max_batch_rows=rows),
    )
    result = application.run(watch)
    seconds, cpu = (after - before for before, after in zip(marks[0], marks[-1], strict=True))
    expected = count if kind == "copy" else joined
    return Outcome(sum(batches[1:]), len(batches) - 1, seconds, cpu, result.rows_out == expected, tasks)


def main() -> None:
    """A table by rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="of each source in a task's batch")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="batches of each task")
    parser.add_argument("--kinds", nargs="+", default=["copy", "join"], choices=("copy", "join"))
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--tasks", type=int, nargs="+", default=[PARTITIONS])
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    print(
        "| processor | tasks | rows of a source | ms of a round | CPU ms of a task's batch | batches a commit | result |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind, tasks, rows, _ in itertools.product(given.kinds, given.tasks, given.rows, range(given.repeat)):
        found = run(kind, rows, given.rounds, given.clients, tasks)
        figures = f"{found.round_s * 1e3:.2f} | {found.cpu_of_batch * 1e3:.2f} | {found.batches / found.commits:.1f}"
        print(f"| {kind} | {tasks} | {rows} | {figures} | {'exact' if found.is_exact else 'WRONG'} |", flush=True)


if __name__ == "__main__":
    main()
