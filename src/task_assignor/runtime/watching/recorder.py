"""What a run leaves to those who watch it: its result, its log, its metrics, its lists of files."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.events import (
    BatchesCommitted,
    ClientLost,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RunFailed,
    RunStopping,
    TaskRestored,
)
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.manifests import Manifests
from task_assignor.runtime.run_folder.outputs import read_output
from task_assignor.runtime.shells.server import Clock
from task_assignor.runtime.steps import parent_only
from task_assignor.runtime.watching.event_lines import EventLines
from task_assignor.runtime.watching.metrics import Metrics
from task_assignor.runtime.watching.run_log import RunLog
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted, duration, failure_at, with_notes

_log = logger_of(__name__)
_MEASURED_EVERY_S: Final = 60.0
"""So often the metrics are written to the log of the run; and at its end."""
_KEPT_EVENTS: Final = 1_000
"""So many of a kind a result has: a run may go on for months, and each rebalance says where every task is."""


@attrs.frozen(repr=False)
class RunResult:
    """What came of a run; printed, or at the end of a notebook's cell, it is a summary.

    Args:
        application_id: `application.id`.
        run_dir: folder of the run, a path or a URL: commit log, output, changelogs.
        batches: committed batches of all tasks, earlier runs in the same folder included.
        rows_in: rows that this run read.
        rows_out: rows that this run gave to outputs.
        seconds: from the first assignment to the last event; 0 without an assignment. `RunFinished.seconds` count from
            before the assignor decided.
        rebalances: the rebalances, with their reasons; of these and the next three the newest 1 000.
        restores: every time a task's state was brought up to date after an assignment.
        lost_clients: clients that ended without having been told to, or were not heard of.
        refused_results: late answers that were thrown away.
        counts: how many there were of these four, by the name of the event.
        stopped: why the run ended before all rows were processed: what `request_stop` was told, or the signal; "": it did
            not.
        batches_here: committed batches of this run alone.
        bad_records: records that were left out since they could not be processed.
        late_records: records that were left out since they came too late.
        batches_found: batches among them whose results were in Kafka already, as where the folder of the run was lost.
        rows_found: rows of `rows_in` that these are made of; what was written for them is not in `rows_out`.
        outputs_in: where the outputs are; "": in `run_dir`.
        lost_records: offsets of `rows_in` that had been deleted before they were read (`auto.offset.reset`).
    """

    application_id: str
    run_dir: str
    batches: int
    rows_in: int
    rows_out: int
    seconds: float
    rebalances: tuple[Rebalanced, ...]
    restores: tuple[TaskRestored, ...]
    lost_clients: tuple[ClientLost, ...]
    refused_results: tuple[ResultRefused, ...]
    counts: Mapping[str, int]
    stopped: str = ""
    batches_here: int = 0
    bad_records: int = 0
    late_records: int = 0
    batches_found: int = 0
    rows_found: int = 0
    outputs_in: str = ""
    lost_records: int = 0

    def __str__(self) -> str:
        rebalances, lost_clients, answers = (
            self.counts.get(x, 0) for x in ("Rebalanced", "ClientLost", "ResultRefused")
        )
        lost = f", {counted(lost_clients, 'client')} lost" if lost_clients else ""
        refused = f", {counted(answers, 'late answer')} refused" if answers else ""
        stopped = f"Stopped: {self.stopped}. " if self.stopped else ""
        if self.batches and not self.rows_in and not self.stopped:
            anew = "under another application.id" if self.outputs_in else "in another run_dir"
            stopped = f"No rows were new (a processor that was changed sees those of before {anew} only). "
        kinds = ((self.bad_records, "bad record"), (self.late_records, "late record"))
        left_out = "".join(f", {counted(number, kind)} left out" for number, kind in kinds if number)
        if self.lost_records:
            left_out += f", {counted(self.lost_records, 'offset')} gone before they were read"
        found = ""
        if self.batches_found:
            found = (
                f"What was made of {counted(self.rows_found, 'row')} of these was in Kafka already "
                f"({counted(self.batches_found, 'batch', 'batches')}): it is not written again, nor counted. "
            )
        return (
            f"{self.application_id}: {counted(self.rows_in, 'row')} read, {counted(self.rows_out, 'row')} written in "
            f"{duration(round(self.seconds * 1000))}{left_out}; {counted(self.batches_here, 'batch', 'batches')} committed, "
            f"{counted(rebalances, 'rebalance')}{lost}{refused}. {found}{stopped}Outputs are in "
            f"{self.outputs_in or self.run_dir}."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self}>"

    @property
    def commits(self) -> CommitLog:
        """The committed batches."""
        return CommitLog(self.run_dir)

    def table(self, output: str) -> pa.Table:
        """All committed rows of an output."""
        return read_output(self.run_dir, output)


class Recorder:
    """Keeps what the result needs, and passes every event on."""

    def __init__(
        self,
        on_event: Callable[[RunEvent], None] | None,
        on_line: Callable[[str], None] | None,
        metrics: Metrics,
        log: RunLog,
        manifests: Manifests,
    ) -> None:
        self._on_event = on_event
        self._manifests = manifests
        self._metrics = metrics
        self._sinks = [log.line] if on_line is None else [log.line, on_line]
        self._lines = EventLines(self._line)
        self._clock = Clock()
        self._measured = time.monotonic()
        self._events: dict[type[RunEvent], deque[Any]] = defaultdict(partial(deque, maxlen=_KEPT_EVENTS))
        self._counts: Counter[str] = Counter()
        self._has_failed = False
        self.rows_in = 0
        self.rows_out = 0
        self.batches = 0
        self.bad_records = 0
        self.late_records = 0
        self.lost_records = 0
        self.batches_found = 0
        self.rows_found = 0
        self.stopped = ""
        self.first: float | None = None
        self.last = 0.0

    def __call__(self, event: RunEvent) -> None:
        """Something happened in the run."""
        match event:
            case Rebalanced():
                self.first = self.first or time.monotonic()
            case BatchesCommitted():
                self.rows_in += event.rows_in
                self.rows_out += event.rows_out
                self.batches += len(event.batches)
                self.bad_records += event.counters.get("bad_records", 0)
                self.late_records += event.counters.get("late", 0)
                self.lost_records += event.counters.get("lost_records", 0)
                self.batches_found += len(event.found)
                self.rows_found += sum(event.found.values())
            case RunStopping():
                self.stopped = event.reason
            case RunFailed():
                self._has_failed = True
        if isinstance(event, (Rebalanced, TaskRestored, ClientLost, ResultRefused)):
            self._events[type(event)].append(event)
            self._counts[type(event).__name__] += 1
        self.last = time.monotonic()
        _log.info("%s", event)
        self._metrics.take(event)
        self._lines.take(event, self._clock.now_ms())
        if self._on_event is not None:
            with parent_only():
                self._on_event(event)

    @contextmanager
    def telling_failures(self) -> Iterator[None]:
        """What ends the run is told, if it was not: to everyone, or, where a listener may have raised it, to the log and the metrics."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StreamsException):
                # It may do so again.
                self._on_event = None
                del self._sinks[1:]
            if not self._has_failed:
                self(RunFailed(with_notes(error) if isinstance(error, StreamsException) else failure_at(error)))
            raise

    def committed(self, record: CommitRecord, seconds: float) -> None:
        """A record was written, in this time."""
        self._metrics.commit_took(seconds)
        self._manifests.take(record)

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was written. Called in another thread."""
        self._manifests.take_checkpoint(checkpoint)

    def poll(self) -> None:
        """Time has passed."""
        self._lines.poll(self._clock.now_ms())
        if time.monotonic() - self._measured >= _MEASURED_EVERY_S:
            self._measure()

    def close(self) -> None:
        """The run is over."""
        try:
            self._measure()
        finally:
            self._metrics.end()

    def _measure(self) -> None:
        self._measured = time.monotonic()
        self._lines.tell("Metrics", self._clock.now_ms(), {"metrics": self._metrics.to_json()})

    def _line(self, text: str) -> None:
        with parent_only():
            for sink in self._sinks:
                sink(text)

    def result(self, application_id: str, run_dir: str, batches: int, outputs_in: str = "") -> RunResult:
        """What came of it."""
        return RunResult(
            application_id,
            run_dir,
            batches,
            self.rows_in,
            self.rows_out,
            0.0 if self.first is None else self.last - self.first,
            tuple(self._events[Rebalanced]),
            tuple(self._events[TaskRestored]),
            tuple(self._events[ClientLost]),
            tuple(self._events[ResultRefused]),
            dict(self._counts),
            self.stopped,
            self.batches,
            self.bad_records,
            self.late_records,
            self.batches_found,
            self.rows_found,
            outputs_in,
            self.lost_records,
        )
