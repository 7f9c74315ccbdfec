"""Metrics: what events make of them, and that Prometheus' own parser, a browser and OpenTelemetry read the same."""

from __future__ import annotations

import errno
import json
import math
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client.parser import text_string_to_metric_families

from task_assignor.runtime import (
    METRICS,
    BatchesCommitted,
    ClientJoined,
    ClientLost,
    ClientProgress,
    ClientTasks,
    Metrics,
    Rebalanced,
    RunFailed,
    SourcesGrown,
    TaskRestored,
    TaskStalled,
    TopicException,
    metrics_in_file,
    metrics_on_port,
    metrics_to_opentelemetry,
)
from task_assignor.runtime.watching import metrics as metrics_module
from task_assignor.runtime.watching import metrics_export
from task_assignor.sdk import ConfigException, TaskId
from tests.runtime.support import application, join_topology, write_streams

T = tuple(TaskId(0, partition) for partition in range(3))


def joined(client: str, pid: int = 1) -> ClientJoined:
    return ClientJoined(client, "p", f"{client}-1", f"pid {pid}", "host", pid)


def committed(commit: int, rows: dict[str, int], remaining: int = 0, **counters: int) -> BatchesCommitted:
    total = sum(rows.values())
    lags = {T[0]: {"orders": remaining}}
    return BatchesCommitted(
        commit, 1, {T[0]: commit}, total, 2 * total, rows, 0.25, remaining, {T[0]: total}, counters, lags
    )


def a_run() -> Metrics:
    """Two clients, one of which is lost while the other restores."""
    metrics = Metrics('shop "1"')
    metrics.take(joined("a"))
    metrics.take(joined("b"))
    metrics.take(Rebalanced(1, "2 clients are there", {"a": ClientTasks(T[:2], T[2:]), "b": ClientTasks(T[2:])}))
    metrics.take(SourcesGrown({T[0]: {"orders": 100}, T[1]: {"orders": 9, "prices": 0}}))
    metrics.take(committed(1, {"a": 30, "b": 10}, 60, late=2, bad_records=1, mine=5))
    metrics.commit_took(0.004)
    metrics.take(ClientProgress("a", (T[0], T[1]), (T[2],), 30, 7, 3))
    metrics.take(ClientLost("b", "b-1", "connection closed"))
    moved = ((T[2], "b", "a"),)
    metrics.take(Rebalanced(2, "b lost", {"a": ClientTasks(T)}, moved, restoring={T[2]: 500}))
    metrics.take(TaskStalled("a", T[2], "the restore of task 0_2 has not got on for 10000 ms", 10_000))
    metrics.take(committed(2, {"a": 20}, 40))
    return metrics


def test_events_become_counts_and_gauges() -> None:
    found = a_run().to_json()

    expected = {
        "alive-clients": 1,
        "process-total": {"a": 50, "b": 10},
        "task-process-total": {"0_0": 60},
        "commit-total": 2,
        "commit-latency-avg": 4.0,
        "commit-latency-max": 4.0,
        "batch-total": 2,
        "batch-latency-max": 250.0,
        "records-out-total": 120,
        "records-lag": {"0_0 orders 0": 40, "0_1 orders 1": 9, "0_1 prices 1": 0},
        "records-lag-max": 40,
        "records-lag-sum": 49,
        "dropped-records-total": 3,
        "late-records-total": 2,
        "processor-counter-total": {"bad_records": 1, "late": 2, "mine": 5},
        "active-tasks": {"a": 3},
        "standby-tasks": {"a": 0},
        "task-created-total": {"a": 3, "b": 1},
        "task-closed-total": {"a": 0, "b": 1},
        "active-restoring-tasks": {"a": 1},
        "restore-total": {"a": 7},
        "restore-remaining-records-total": 500,
        "stalled-tasks-total": 1,
        "standby-lag": {"a": 3},
        "rebalance-total": 2,
        "tasks-moved-total": 1,
        "generation": 2,
        "lost-clients-total": 1,
        "failed-rebalance-total": 0,
        "failed-runs-total": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert list(found) == [metric.name for metric in METRICS]
    assert found["process-rate"].keys() == {"a"}
    assert found["process-rate"]["a"] > 0
    assert found["last-rebalance-seconds-ago"] >= 0


def test_a_restored_task_a_failure_and_the_end_are_counted() -> None:
    metrics = a_run()
    metrics.take(TaskRestored("a", T[2], "active", 500, 0, "changelog", 1, 0.5))
    metrics.take(RunFailed("why"))
    metrics.end()
    found = metrics.to_json()
    assert found["restore-remaining-records-total"] == 0
    assert found["failed-runs-total"] == 1
    assert (found["alive-clients"], found["active-tasks"], found["process-rate"]) == (0, {}, {})
    assert found["task-closed-total"] == {"a": 3, "b": 1}


def test_what_was_restored_counts_once_whoever_tells_it() -> None:
    """What a client had not said before it ended was missing, and what one had that lost its connection counted twice."""
    metrics = Metrics("shop")
    metrics.take(joined("a"))
    metrics.take(TaskRestored("a", T[0], "active", 500, 0, "changelog", 1, 0.5))
    assert metrics.to_json()["restore-total"] == {"a": 500}
    for joins, rows in ((0, 500), (0, 520), (1, 520), (1, 600)):
        for _ in range(joins):
            metrics.take(ClientLost("a", "a-1", "no heartbeat"))
            metrics.take(joined("a"))
        metrics.take(ClientProgress("a", (), (), 0, rows, 0))
    assert metrics.to_json()["restore-total"] == {"a": 600}
    # Another life of a client of pinned Spark tasks is in the same process.
    metrics.take(joined("a"))
    metrics.take(TaskRestored("a", T[0], "active", 40, 0, "changelog", 1, 0.5))
    for rows in (40, 50):
        metrics.take(ClientProgress("a", (), (), 0, rows, 0))
    assert metrics.to_json()["restore-total"] == {"a": 650}


def test_rates_are_those_since_the_clients_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of ten seconds was told as that of one; and the first ones of another run as those of half a minute."""
    clock = [1_000.0]
    monkeypatch.setattr(metrics_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    metrics = Metrics("shop")
    for _ in range(2):
        metrics.take(joined("a"))
        clock[0] += 10
        metrics.take(committed(1, {"a": 1_000}))
        found = metrics.to_json()
        assert (found["process-rate"], found["commit-rate"]) == ({"a": 100}, 0.1)
        metrics.end()
        clock[0] += 10


def test_a_run_that_fails_before_it_has_a_log_is_counted(tmp_path: Path) -> None:
    """Who watched that number saw no run, and no failure."""
    write_streams(tmp_path / "topics", rows=10, keys=2)
    app = application(tmp_path, join_topology())
    (tmp_path / "topics" / "left").rename(tmp_path / "elsewhere")
    with pytest.raises(TopicException):
        app.run()
    assert app.metrics.to_json()["failed-runs-total"] == 1


def test_counts_go_on_when_a_client_comes_again_and_its_own_count_begins_anew() -> None:
    metrics = Metrics("shop")
    for pid, rows in ((1, 100), (2, 40)):
        metrics.take(joined("a", pid))
        metrics.take(ClientProgress("a", (), (), 0, rows, 0))
    assert metrics.to_json()["restore-total"] == {"a": 140}


def test_prometheus_reads_what_is_in_the_json() -> None:
    metrics = a_run()
    read: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics.to_prometheus()):
        for sample in family.samples:
            assert sample.labels["application_id"] == 'shop "1"'
            label = " ".join(value for key, value in sample.labels.items() if key != "application_id")
            read.setdefault(sample.name, {})[label] = sample.value
    for metric in METRICS:
        values = metrics.to_json()[metric.name]
        values = values if isinstance(values, dict) else {"": values}
        if metric.name.endswith(("-rate", "-ago")):
            continue  # time goes on
        found = read.get("streams_" + metric.name.replace("-", "_"), {})
        assert found == values, metric.name


@given(st.text(min_size=1, max_size=20))
def test_any_name_of_a_counter_survives(name: str) -> None:
    metrics = Metrics("shop")
    metrics.take(committed(1, {"a": 1}, **{name: 3}))
    text = metrics.to_prometheus()
    values = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("counter") == name
    ]
    assert values == [3]


def test_they_are_served_on_a_port_of_this_machine() -> None:
    metrics = a_run()
    with metrics_on_port(metrics) as port:
        base = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            line = 'streams_records_lag{application_id="shop \\"1\\"",task="0_1",topic="orders",partition="1"} 9'
            assert line in answer.read().decode().splitlines()
        with urllib.request.urlopen(f"{base}/metrics.json", timeout=60) as answer:
            assert json.load(answer)["records-lag-sum"] == 49
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/else", timeout=60)
        with (
            pytest.raises(ConfigException, match=f"cannot be served on 127.0.0.1:{port}: "),
            metrics_on_port(metrics, port),
        ):
            pass


def _then(call: Callable[..., None], event: threading.Event) -> Callable[..., None]:
    def both(*arguments: Any) -> None:
        call(*arguments)
        event.set()

    return both


def test_who_knocks_and_goes_away_or_says_nothing_leaves_no_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look whether the port is open was a traceback in the middle of the screen, and a silent one kept its thread for ever."""
    monkeypatch.setattr(metrics_export, "_LONGEST_REQUEST_S", 0.05)
    failed = threading.Event()
    monkeypatch.setattr(metrics_export._Server, "handle_error", _then(metrics_export._Server.handle_error, failed))
    with metrics_on_port(Metrics("shop")) as port, socket.create_connection(("127.0.0.1", port)) as silent:
        with socket.create_connection(("127.0.0.1", port)) as gone:
            # Its end is a reset.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        silent.settimeout(60)
        assert silent.recv(1) == b""
        assert failed.wait(60)
    assert capsys.readouterr().err == ""


def test_they_are_served_on_an_address_of_ipv6() -> None:
    with (
        metrics_on_port(a_run(), host="::1") as port,
        urllib.request.urlopen(f"http://[::1]:{port}/metrics.json", timeout=60) as answer,
    ):
        assert json.load(answer)["records-lag-sum"] == 49


@pytest.mark.parametrize("export", [metrics_on_port, metrics_in_file, metrics_to_opentelemetry])
def test_an_application_in_place_of_its_metrics_is_told(export: Any, tmp_path: Path) -> None:
    """It was taken; who asked for them later got nothing."""
    application = SimpleNamespace(metrics=Metrics("shop"))
    more = [tmp_path / "metrics"] if export is metrics_in_file else []
    expected = r"must be Metrics, not of the type SimpleNamespace. Maybe application.metrics\."
    with pytest.raises(ConfigException, match=expected), ExitStack() as held:
        held.enter_context(export(application, *more))


@pytest.mark.parametrize(
    ("export", "arguments", "said"),
    [
        (metrics_on_port, ("9464",), r"The port \('9464'\) for metrics must be an int from 0 to 65535"),
        (metrics_on_port, (True,), r"The port \(True\) for metrics must be an int"),
        (metrics_on_port, (70_000,), r"The port \(70000\) for metrics must be an int"),
        (metrics_on_port, (0, None), r"The host \(None\) for metrics must be a str"),
        (metrics_on_port, (0, "a\0b"), "Metrics cannot be served on a"),
        (metrics_on_port, (0, "ä" * 80), "Metrics cannot be served on ä"),
        (metrics_in_file, (None,), r"The file for metrics \(None\) must be a path"),
        (metrics_in_file, ("a\0b",), r"The file for metrics \('a.*b'\) must be a path"),
    ],
)
def test_what_is_no_address_and_no_path_is_named(export: Any, arguments: tuple[Any, ...], said: str) -> None:
    """They were errors of Python."""
    with pytest.raises(ConfigException, match=said), export(Metrics("shop"), *arguments):
        pass


def test_a_file_has_them_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    metrics = Metrics("shop")
    file = tmp_path / "streams.prom"
    with metrics_in_file(metrics, file, every_s=3_600):
        assert 'streams_alive_clients{application_id="shop"} 0' in file.read_text()
        metrics.take(joined("a"))
    assert 'streams_alive_clients{application_id="shop"} 1' in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["streams.prom"]
    with (
        pytest.raises(ConfigException, match="no/file cannot be written: No such file or directory"),
        metrics_in_file(metrics, tmp_path / "no" / "file"),
    ):
        pass


@pytest.mark.parametrize("every_s", [0, -1, "5", None, True, float("nan"), float("inf")])
def test_a_file_is_not_written_without_a_pause(tmp_path: Path, every_s: Any) -> None:
    """With 0 it was written all the time, with a text never again: the thread had ended."""
    expected = r"every_s \(.*\) of a file for metrics must be a number of seconds above 0"
    with pytest.raises(ConfigException, match=expected), metrics_in_file(Metrics("shop"), tmp_path / "m", every_s):
        pass


def _seen(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], float]]:
    """What OpenTelemetry reads: metric -> labels, sorted by their names -> value."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: {
            tuple(str(value) for _, value in sorted((point.attributes or {}).items())): point.value
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        }
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_sees_the_same_of_every_application() -> None:
    """Of a second one in a process, and of one that was made anew, it saw nothing, and said so nowhere."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    for metrics in (Metrics('shop "1"'), Metrics("other"), a_run()):
        metrics_to_opentelemetry(metrics, provider.get_meter("test"))
    found = _seen(reader)
    provider.shutdown()
    assert found["process-total"] == {('shop "1"', "a"): 50, ('shop "1"', "b"): 10}
    assert found["records-lag-sum"] == {("other",): 0, ('shop "1"',): 49}
    assert found["records-lag"]['shop "1"', "1", "0_1", "orders"] == 9
    assert all(math.isfinite(value) for values in found.values() for value in values.values())


def test_opentelemetry_sees_those_that_are_there_before_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is one each meter is another object; later they are one, which takes instruments of a name once."""
    meters: list[str] = []

    def get_meter(name: str) -> NoOpMeter:
        meters.append(name)
        return NoOpMeter(name)

    monkeypatch.setattr("opentelemetry.metrics.get_meter", get_meter)
    metrics_export._own_meter.cache_clear()
    for application_id in ("a", "b"):
        metrics_to_opentelemetry(Metrics(application_id))
    metrics_export._own_meter.cache_clear()
    assert meters == ["task_assignor"]


def test_a_disk_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a run waited for it for ever."""
    answers = threading.Event()
    monkeypatch.setattr(metrics_export, "_LONGEST_END_S", 0.05)
    with metrics_in_file(Metrics("shop"), tmp_path / "m.prom", every_s=3_600):
        monkeypatch.setattr(metrics_export, "replace_file", lambda *_: answers.wait())
    answers.set()
    assert "is perhaps not the last" in caplog.text


def test_a_disk_that_is_full_for_days_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a line every five seconds."""
    tries = iter(range(5))
    enough = threading.Event()

    def full(*_: object) -> None:
        if next(tries, None) is None:
            enough.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    with metrics_in_file(Metrics("shop"), tmp_path / "m.prom", every_s=0.001):
        monkeypatch.setattr(metrics_export, "replace_file", full)
        assert enough.wait(60)
    assert [record.levelname for record in caplog.records if "m.prom cannot be written" in record.message] == [
        "WARNING"
    ]
