"""Metrics of an application, fed by the events of its runs: one registry, shown as JSON and as Prometheus' text.

Names are those of Kafka Streams (and of its consumers) where it has the same thing, with its hyphens; what it has not is
named in its manner. How they get to a file, a port or OpenTelemetry is in `metrics_export`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import attrs

from task_assignor.runtime.machines.events import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    ClientLost,
    ClientProgress,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RunFailed,
    SnapshotCommitted,
    SnapshotRefused,
    SourcesGrown,
    TaskRestored,
    TaskStalled,
)
from task_assignor.runtime.machines.records import ClientTasks
from task_assignor.sdk import TaskId
from task_assignor.sdk.text import failure

_WINDOW_S: Final = 30
"""Rates, averages and maxima are over so long (`metrics.sample.window.ms`)."""


@attrs.frozen
class Metric:
    """What a metric means.

    Args:
        name: its name, as in Kafka.
        kind: "counter": it only grows, from 0 when the application object was made; "gauge": it is what it is now.
        help: one sentence.
        label: what the values are told apart by, one word or several; "": there is one value.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    label: Literal["", "client", "task", "counter", "task topic partition"] = ""


METRICS: Final = (
    Metric("alive-clients", "gauge", "Clients that are members of the group."),
    Metric("process-total", "counter", "Source rows that were processed and committed.", "client"),
    Metric("process-rate", "gauge", "The same per second, lately.", "client"),
    Metric("task-process-total", "counter", "Source rows that were processed and committed.", "task"),
    Metric("commit-total", "counter", "Commits."),
    Metric("commit-rate", "gauge", "Commits per second, lately."),
    Metric("commit-latency-avg", "gauge", "Mean time that writing a commit took lately, ms."),
    Metric("commit-latency-max", "gauge", "Longest time that writing a commit took lately, ms."),
    Metric("batch-total", "counter", "Committed batches of all tasks."),
    Metric("batch-latency-avg", "gauge", "Mean time lately from the order of the oldest batch to its commit, ms."),
    Metric("batch-latency-max", "gauge", "Longest time lately from the order of the oldest batch to its commit, ms."),
    Metric("records-out-total", "counter", "Rows given to outputs and committed."),
    Metric(
        "records-lag", "gauge", "Rows of a source partition that are there and not committed.", "task topic partition"
    ),
    Metric("records-lag-max", "gauge", "The largest of these."),
    Metric("records-lag-sum", "gauge", "All of these together."),
    Metric("dropped-records-total", "counter", "Records that were left out: bad or late ones."),
    Metric("lost-records-total", "counter", "Offsets that had been deleted before they were read (auto.offset.reset)."),
    Metric("late-records-total", "counter", "Records that were left out because they came too late."),
    Metric("processor-counter-total", "counter", "What processors counted with TaskContext.count.", "counter"),
    Metric("active-tasks", "gauge", "Active tasks.", "client"),
    Metric("standby-tasks", "gauge", "Standby tasks, warm-ups included.", "client"),
    Metric("task-created-total", "counter", "Tasks that a client was given, active or standby.", "client"),
    Metric("task-closed-total", "counter", "Tasks that were taken from a client, or lost with it.", "client"),
    Metric("active-restoring-tasks", "gauge", "Active tasks whose state is being restored.", "client"),
    Metric("restore-total", "counter", "Changelog rows read to restore tasks or to keep standbys.", "client"),
    Metric(
        "restore-remaining-records-total",
        "gauge",
        "Changelog rows of restoring active tasks; of each all, until it is done.",
    ),
    Metric(
        "stalled-tasks-total",
        "counter",
        "How often a client did not get on with a task for ten seconds, or for twice as long.",
    ),
    Metric("snapshot-total", "counter", "Snapshots of tasks that count, in the run folder."),
    Metric("failed-snapshots-total", "counter", "Snapshots that could not be written there, or came too late."),
    Metric("standby-lag", "gauge", "Changelog rows that the standbys of a client have yet to read.", "client"),
    Metric("rebalance-total", "counter", "Rebalances that gave a new assignment."),
    Metric("failed-rebalance-total", "counter", "Rebalances after which the assignor asked to try again."),
    Metric("tasks-moved-total", "counter", "Active tasks that went from one client to another."),
    Metric("last-rebalance-seconds-ago", "gauge", "Time since the last rebalance; -1: there was none."),
    Metric("generation", "gauge", "Number of the newest assignment."),
    Metric("lost-clients-total", "counter", "Clients that ended without having been told to, or were not heard of."),
    Metric("refused-results-total", "counter", "Late answers of former owners that were thrown away."),
    Metric("failed-runs-total", "counter", "Runs that ended with an error."),
)
"""All metrics, in the order in which they are shown."""


@attrs.frozen
class Sample:
    """A value of a metric.

    Args:
        metric: which.
        label: client, task or counter, or several words, as the metric says; "": it has none.
        value: its value.
    """

    metric: Metric
    label: str
    value: float


class _Window:
    """Numbers of the last half minute, second by second."""

    def __init__(self, began: float = 0.0) -> None:
        self._seconds: deque[tuple[int, float, int, float]] = deque()
        """(second, sum, how many, largest)"""
        self._began = began
        """Before, there could be none."""

    def add(self, value: float, now: float) -> None:
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            _, total, count, largest = self._seconds.pop()
            self._seconds.append((second, total + value, count + 1, max(largest, value)))
        else:
            self._seconds.append((second, value, 1, value))

    def _recent(self, now: float) -> deque[tuple[int, float, int, float]]:
        while self._seconds and self._seconds[0][0] <= now - _WINDOW_S:
            self._seconds.popleft()
        return self._seconds

    def rate(self, now: float) -> float:
        total = sum(entry[1] for entry in self._recent(now))
        return total / min(max(now - self._began, 1.0), _WINDOW_S)

    def mean(self, now: float) -> float:
        recent = self._recent(now)
        return sum(entry[1] for entry in recent) / max(sum(entry[2] for entry in recent), 1)

    def largest(self, now: float) -> float:
        return max((entry[3] for entry in self._recent(now)), default=0.0)


class Metrics:
    """The metrics of an application. Its methods may be called from any thread.

    Args:
        application_id: `application.id`, a label of every value.
    """

    def __init__(self, application_id: str) -> None:
        self.application_id = application_id
        self._lock = threading.Lock()
        self._values: dict[str, Counter[str]] = defaultdict(Counter)
        """Metric -> label -> value, of those that are simply kept."""
        self._windows: dict[tuple[str, str], _Window] = defaultdict(_Window)
        self._tasks: dict[str, ClientTasks] = {}
        self._restoring: dict[TaskId, tuple[str, int]] = {}
        self._restored: dict[str, int] = {}
        """Client -> changelog rows read since it started, as far as it has said."""
        self._lives: dict[str, tuple[str, str, int]] = {}
        """Client -> what executed it, on which host, in which process, the last time."""
        self._present: set[str] = set()
        self._rebalanced: float | None = None

    # What is told.

    def take(self, event: RunEvent) -> None:
        """An event of a run happened."""
        with self._lock:
            self._take(event, time.monotonic())

    def commit_took(self, seconds: float) -> None:
        """A commit was written in this time."""
        with self._lock:
            self._windows["commit-latency", ""].add(seconds * 1000, time.monotonic())

    @contextmanager
    def counting_failure(self) -> Iterator[None]:
        """What ends a run inside is counted: it has no log yet, nor anybody to tell of it."""
        try:
            yield
        except BaseException as error:
            self.take(RunFailed(failure(error)))
            raise

    def end(self) -> None:
        """The run has ended, and its clients have gone."""
        with self._lock:
            for client in sorted(self._present):
                self._leave(client)

    def _take(self, event: RunEvent, now: float) -> None:
        values = self._values
        match event:
            case ClientJoined():
                if not self._present:
                    self._windows["commit", ""] = _Window(now)
                self._windows["process", event.client] = _Window(now)
                self._present.add(event.client)
                life = (event.attempt, event.host, event.pid)
                if self._lives.get(event.client) != life:
                    # Its own count begins anew; not where it has only lost its connection.
                    self._restored[event.client] = 0
                self._lives[event.client] = life
                values["process-total"][event.client] += 0
            case ClientLost():
                values["lost-clients-total"][""] += 1
                self._leave(event.client)
            case ClientLeft():
                self._leave(event.client)
            case Rebalanced():
                self._rebalance(event, now)
            case TaskRestored():
                if event.role == "active":
                    self._restoring.pop(event.task, None)
                # Now: it is in what its client says next, which may end before.
                values["restore-total"][event.client] += event.rows
                self._restored[event.client] = self._restored.get(event.client, 0) + event.rows
            case ClientProgress():
                before = self._restored.get(event.client, 0)
                # Of pinned Spark tasks one life may look like the other, and what it has restored is known already.
                values["restore-total"][event.client] += max(event.restored_rows - before, 0)
                self._restored[event.client] = event.restored_rows
                values["standby-lag"][event.client] = event.standby_lag
            case BatchesCommitted():
                self._commit(event, now)
                self._see_lags(event.lags)
            case SourcesGrown():
                self._see_lags(event.lags)
            case ResultRefused():
                values["refused-results-total"][""] += 1
            case TaskStalled():
                values["stalled-tasks-total"][""] += 1
            case SnapshotCommitted():
                values["snapshot-total"][""] += 1
            case SnapshotRefused():
                values["failed-snapshots-total"][""] += 1
            case RunFailed():
                values["failed-runs-total"][""] += 1

    def _see_lags(self, lags: Mapping[TaskId, Mapping[str, int]]) -> None:
        for task, topics in lags.items():
            for topic, rows in topics.items():
                self._values["records-lag"][f"{task} {topic} {task.partition}"] = rows

    def _leave(self, client: str) -> None:
        self._present.discard(client)
        self._tasks_of(client, ClientTasks())
        self._restoring = {task: found for task, found in self._restoring.items() if found[0] != client}
        del self._values["standby-lag"][client]

    def _tasks_of(self, client: str, tasks: ClientTasks) -> None:
        before = self._tasks.pop(client, ClientTasks())
        had, has = ({*found.active, *found.standby} for found in (before, tasks))
        self._values["task-created-total"][client] += len(has - had)
        self._values["task-closed-total"][client] += len(had - has)
        if client in self._present:
            self._tasks[client] = tasks

    def _rebalance(self, event: Rebalanced, now: float) -> None:
        self._rebalanced = now
        if event.kept:
            self._values["failed-rebalance-total"][""] += 1
            return
        self._values["rebalance-total"][""] += 1
        self._values["generation"][""] = event.generation
        self._values["tasks-moved-total"][""] += sum(bool(source) for _, source, _ in event.moved)
        for client, tasks in event.assignment.items():
            self._tasks_of(client, tasks)
        owners = {task: client for client, tasks in event.assignment.items() for task in tasks.active}
        self._restoring = {task: (owners[task], rows) for task, rows in event.restoring.items()}

    def _commit(self, event: BatchesCommitted, now: float) -> None:
        values = self._values
        for client, rows in event.rows_by_client.items():
            values["process-total"][client] += rows
            self._windows["process", client].add(rows, now)
        for task, rows in event.rows_by_task.items():
            values["task-process-total"][str(task)] += rows
        values["commit-total"][""] += 1
        self._windows["commit", ""].add(1, now)
        self._windows["batch-latency", ""].add(event.seconds * 1000, now)
        values["batch-total"][""] += len(event.batches)
        values["records-out-total"][""] += event.rows_out
        late = event.counters.get("late", 0)
        values["late-records-total"][""] += late
        values["lost-records-total"][""] += event.counters.get("lost_records", 0)
        values["dropped-records-total"][""] += late + event.counters.get("bad_records", 0)
        for name, number in event.counters.items():
            values["processor-counter-total"][name] += number

    # What is asked.

    def samples(self, *wanted: Metric) -> list[Sample]:
        """The values now, metric by metric, labels sorted. A metric with a label has no value before its first.

        Args:
            wanted: of these metrics; none: of all.
        """
        with self._lock:
            now = time.monotonic()
            found = {metric.name: dict(self._found(metric.name, now)) for metric in wanted or METRICS}
        return [
            Sample(metric, label, value)
            for metric in wanted or METRICS
            for label, value in sorted((found[metric.name] if metric.label else {"": 0, **found[metric.name]}).items())
        ]

    def _found(self, name: str, now: float) -> Iterator[tuple[str, float]]:
        base, _, end = name.rpartition("-")
        match name:
            case "alive-clients":
                yield "", len(self._present)
            case "records-lag-max" | "records-lag-sum":
                lags = self._values["records-lag"].values()
                yield "", max(lags, default=0) if end == "max" else sum(lags)
            case "last-rebalance-seconds-ago":
                yield "", -1 if self._rebalanced is None else now - self._rebalanced
            case "active-tasks" | "standby-tasks":
                for client, tasks in self._tasks.items():
                    yield client, len(tasks.active if base == "active" else tasks.standby)
            case "active-restoring-tasks":
                counts = Counter(client for client, _ in self._restoring.values())
                yield from ((client, counts[client]) for client in self._present)
            case "restore-remaining-records-total":
                yield "", sum(rows for _, rows in self._restoring.values())
            case _ if end in ("rate", "avg", "max"):
                of = {"rate": _Window.rate, "avg": _Window.mean, "max": _Window.largest}[end]
                for (window, label), found in self._windows.items():
                    # A client that has gone has no rate.
                    if window == base and (not label or label in self._present):
                        yield label, of(found, now)
            case _:
                yield from self._values[name].items()

    def to_json(self) -> dict[str, Any]:
        """The values now: name -> value, or name -> label -> value."""
        document: dict[str, Any] = {metric.name: {} for metric in METRICS if metric.label}
        for sample in self.samples():
            value = round(sample.value, 3)
            if sample.metric.label:
                document[sample.metric.name][sample.label] = value
            else:
                document[sample.metric.name] = value
        return {metric.name: document[metric.name] for metric in METRICS}

    def to_prometheus(self) -> str:
        """The values now in Prometheus' text format, version 0.0.4: names begin with `streams_` and have underscores."""
        lines: list[str] = []
        told = ""
        for sample in self.samples():
            metric, name = sample.metric, prometheus_name(sample.metric)
            if name != told:
                lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
                told = name
            labels = labels_of(sample, self.application_id)
            text = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
            lines.append(f"{name}{{{text}}} {round(sample.value, 6)}")
        return "\n".join(lines) + "\n"


def prometheus_name(metric: Metric) -> str:
    """What Prometheus calls a metric.

    Examples:
        >>> prometheus_name(METRICS[1])
        'streams_process_total'
    """
    return "streams_" + metric.name.replace("-", "_")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_of(sample: Sample, application_id: str) -> Mapping[str, str]:
    """The labels of a value, in Prometheus and OpenTelemetry."""
    names = sample.metric.label.split()
    own = dict(zip(names, sample.label.split(" ", len(names) - 1), strict=True)) if names else {}
    return {"application_id": application_id, **own}
