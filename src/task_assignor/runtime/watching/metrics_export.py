"""How metrics leave the process: a file, a port of this machine, OpenTelemetry. What they are is in `metrics`."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from task_assignor.runtime.watching.metrics import METRICS, Metric, Metrics, labels_of
from task_assignor.sdk import ConfigException, MissingExtraException
from task_assignor.sdk.files import replace_file
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_FILE_EVERY_S: Final = 5.0
_LAST_PORT: Final = 65_535
_LONGEST_END_S: Final = 30.0
"""At the end the last file is waited for so long."""
_LONGEST_REQUEST_S: Final = 10.0
"""Who says nothing for so long is not listened to any more."""
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SHOWN: Final[WeakKeyDictionary[Any, dict[str, Metrics]]] = WeakKeyDictionary()
"""Meter -> `application.id` -> what it shows. A meter takes the instruments of a name once, and says nothing of those that it leaves out."""

_log = logger_of(__name__)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        # Who looks whether a port is open goes away without a word.
        _log.debug("metrics: a request has failed", exc_info=True)


@contextmanager
def metrics_on_port(metrics: Metrics, port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve metrics by HTTP while it is held: `/metrics` as Prometheus' text, `/metrics.json` as JSON.

    Args:
        metrics: the metrics.
        port: the port; 0: any that is free.
        host: address to listen on, of IPv4 or IPv6; the default is seen from this machine only.

    Yields:
        The port.

    Raises:
        ConfigException: the address cannot be had, or is none, or these are no metrics.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _LONGEST_REQUEST_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in ("/", "/metrics"):
                self._answer(_TEXT, metrics.to_prometheus())
            elif path == "/metrics.json":
                self._answer("application/json", json.dumps(metrics.to_json()))
            else:
                self.send_error(404, "There are /metrics and /metrics.json")

        def _answer(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            _log.debug("metrics: %s", format % values)

    _check(metrics)
    if not is_whole(port) or not 0 <= port <= _LAST_PORT:
        raise ConfigException(f"The port ({shown(port)}) for metrics must be an int from 0 to {_LAST_PORT}.")
    if not isinstance(host, str):
        raise ConfigException(
            f"The host ({shown(host)}) for metrics must be a str. Maybe '0.0.0.0', for all addresses."
        )

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, port), Handler)
    except (OSError, TypeError, UnicodeError) as error:
        raise ConfigException(f"Metrics cannot be served on {host}:{port}: {error}. Maybe another port.") from error
    threading.Thread(target=server.serve_forever, name="metrics-port", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        # Its thread looks twice a second whether it shall end; requests have threads of their own, which nobody waits for.
        server.shutdown()
        with suppress(OSError):
            # Who was forked meanwhile has it, too, and would keep the port.
            server.socket.shutdown(socket.SHUT_RDWR)
        server.server_close()


@contextmanager
def metrics_in_file(metrics: Metrics, path: str | os.PathLike[str], every_s: float = _FILE_EVERY_S) -> Iterator[None]:
    """Keep a file with metrics as Prometheus' text while it is held, as node_exporter's textfile collector reads it.

    The file is replaced as a whole, now and then and at the end.

    Args:
        metrics: the metrics.
        path: the file.
        every_s: how often, seconds.

    Raises:
        ConfigException: these are no metrics, this is no time, or the file cannot be written at the beginning. If that fails later, it is logged once, and tried again.
    """
    _check(metrics)
    if isinstance(every_s, bool) or not isinstance(every_s, (int, float)) or not 0 < every_s <= threading.TIMEOUT_MAX:
        raise ConfigException(
            f"The every_s ({shown(every_s)}) of a file for metrics must be a number of seconds above 0."
        )
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise ConfigException(f"The file for metrics ({shown(path)}) must be a path. Maybe 'streams.prom'.")
    file = Path(path)
    try:
        replace_file(file, metrics.to_prometheus().encode())
    except OSError as error:
        raise ConfigException(
            f"The file for metrics {file} cannot be written: {error.strerror}. Maybe another one."
        ) from error
    over = threading.Event()

    def write() -> None:
        level = logging.WARNING
        while True:
            is_over = over.wait(every_s)
            try:
                replace_file(file, metrics.to_prometheus().encode())
                level = logging.WARNING
            except OSError as error:
                _log.log(level, "The file for metrics %s cannot be written; it is tried again: %s", file, error)
                # Once: a disk may be full for days.
                level = logging.DEBUG
            if is_over:
                return

    writer = threading.Thread(target=write, name="metrics-file", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join(_LONGEST_END_S)
        if writer.is_alive():
            _log.warning(
                "The file for metrics %s is perhaps not the last: its disk has not taken it for %g s.",
                file,
                _LONGEST_END_S,
            )


def metrics_to_opentelemetry(metrics: Metrics, meter: Meter | None = None) -> None:
    """Show metrics to OpenTelemetry: an observable counter or gauge for each, under its name, with its labels as attributes.

    What reads them, and where they go, says the `MeterProvider` that the application sets up with OpenTelemetry's SDK. A meter
    shows any number of applications; of two of one `application.id` the one that is given last.

    Args:
        metrics: the metrics.
        meter: where the instruments are made; None: the meter `task_assignor` of the global provider.

    Raises:
        ConfigException: these are no metrics.
        MissingExtraException: `opentelemetry-api` is not installed (extra `otel`).
    """
    _check(metrics)
    try:
        from opentelemetry.metrics import Observation
    except ImportError as error:
        raise MissingExtraException("otel", "metrics_to_opentelemetry", "opentelemetry") from error
    meter = _own_meter() if meter is None else meter
    if not hasattr(meter, "create_observable_gauge"):
        raise ConfigException(
            f"The meter ({shown(meter)}) must be one of OpenTelemetry, or None: the one of this package."
        )
    if meter in _SHOWN:
        _SHOWN[meter][metrics.application_id] = metrics
        return
    applications = _SHOWN[meter] = {metrics.application_id: metrics}

    def observe(metric: Metric) -> Any:
        def callback(_: CallbackOptions) -> Iterable[Observation]:
            for application_id, found in list(applications.items()):
                for sample in found.samples(metric):
                    yield Observation(sample.value, dict(labels_of(sample, application_id)))

        return callback

    for metric in METRICS:
        make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
        make(metric.name, [observe(metric)], description=metric.help)


@cache
def _own_meter() -> Meter:
    """One for all: before there is a provider, each that is asked for is another object, and becomes the same later."""
    from opentelemetry.metrics import get_meter

    return get_meter("task_assignor")


def _check(metrics: object) -> None:
    # They are asked later, by threads whose errors nobody sees.
    if not isinstance(metrics, Metrics):
        advice = " Maybe application.metrics." if hasattr(metrics, "metrics") else ""
        raise ConfigException(f"What is exported must be Metrics, not of the type {type(metrics).__name__}.{advice}")
