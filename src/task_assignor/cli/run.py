"""`task-assignor run`: runs the application that a Python file defines, on this machine or on Spark, and shows how it goes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from task_assignor.cli.load import load_application
from task_assignor.cli.options import file_option, set_option
from task_assignor.cli.output import (
    check_stdout_is_open,
    keep_stdout_for_answers,
    others_code,
    survive_any_text,
    write_json_text,
    write_line,
    write_to_stderr,
)
from task_assignor.cli.planning import key_and_value, parse_settings, read_settings
from task_assignor.sdk import ConfigException, StreamsConfig
from task_assignor.sdk.logs import show_messages
from task_assignor.sdk.text import counted, printable, shown

if TYPE_CHECKING:
    from task_assignor.runtime import Metrics, StreamsApplication

PROCESSES: Final = "processes"
_INTERRUPTED: Final = 128 + signal.SIGINT


def run(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP[:NAME]",
            help="A Python file (jobs/app.py) or module (jobs.app) with a StreamsApplication, or a function that returns one, named "
            "`application` (or NAME).",
        ),
    ],
    master: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Where the clients run: `processes` of this machine, or a Spark master: local[3,1000], spark://HOST:PORT. "
            "Without it: as the application says, which is processes if it says nothing.",
        ),
    ] = None,
    pinned: Annotated[
        bool,
        typer.Option(
            "--pinned",
            help="On Spark: each stream task is a Spark task of its own, seen on Spark's page, on the executor that the assignor "
            "chose. For backfills and other bounded runs.",
        ),
    ] = False,
    clients: Annotated[int | None, typer.Option(min=1, help="How many clients; else as the application says.")] = None,
    config: Annotated[
        Path | None,
        file_option("--config", "-c", what="A .properties file, over the application's settings."),
    ] = None,
    settings: Annotated[list[str] | None, set_option("A Kafka Streams setting, over those of --config")] = None,
    run_dir: Annotated[
        str | None, typer.Option("--run-dir", metavar="DIR", help="Folder of the run, a path or a URL.")
    ] = None,
    until: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="When it ends: `available-now`, when all rows are processed that are there when it begins; or `stopped`: it "
            "goes on with rows as they come, until a signal.",
        ),
    ] = "available-now",
    spark_conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Serve metrics on this port of this machine, for Prometheus; 0: any."),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Address for --metrics-port: 0.0.0.0 or :: for all; without it 127.0.0.1, for this machine.",
        ),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        file_option("--metrics-file", what="Keep a file with metrics as Prometheus' text."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="What happens as lines of JSON, in place of the screen.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show log messages, Spark's too.")] = False,
) -> None:
    """Run an application, and show rows, rates, lags, tasks, restores and rebalances while it runs.

    Ctrl-C and SIGTERM end it after the batches in progress, which are committed; a second one ends it at once. The next
    run in the same folder goes on from there.

    Exit code 0: all rows are processed, or SIGTERM ended it. 2: it failed. 130: Ctrl-C, or a second signal, ended it.
    """
    # What comes of it is told at the end, when it is too late to find nobody there.
    check_stdout_is_open()
    if as_json:
        keep_stdout_for_answers()
    survive_any_text()
    if verbose:
        show_messages()
    goes_until = _until(until)
    conf = _spark_conf(spark_conf or [], master)
    if pinned:
        _check_pinned(master, goes_until)
    if metrics_host is not None and metrics_port is None:
        raise ConfigException("--metrics-host is for --metrics-port, which is not given.")
    application = changed(load_application(app), clients, config, settings or [], run_dir)
    with ExitStack() as held:
        if master is not None:
            application = held.enter_context(_on(application, master, conf, pinned=pinned, verbose=verbose))
        _show_metrics(held, application.metrics, metrics_port, metrics_host or "127.0.0.1", metrics_file)
        code = _run(application, goes_until, as_json=as_json)
    raise typer.Exit(code)


def changed(
    application: StreamsApplication, clients: int | None, config: Path | None, settings: list[str], run_dir: str | None
) -> StreamsApplication:
    """The application as the command line has it; None: as it is."""
    changes: dict[str, Any] = {}
    if clients is not None:
        changes["clients"] = clients
    if run_dir is not None:
        changes["run_dir"] = run_dir
    in_file, where = ({}, {}) if config is None else read_settings(config)
    given = parse_settings(settings, None)
    if in_file or given:
        over = {**application.config.originals, **in_file, **given}
        changes["config"] = StreamsConfig(over, {key: place for key, place in where.items() if key not in given})
    return application.evolve(**changes) if changes else application


def _until(text: str) -> Literal["available_now", "stopped"]:
    match text.replace("-", "_"):
        case "available_now":
            return "available_now"
        case "stopped":
            return "stopped"
    raise ConfigException(f"The --until ({shown(text)}) must be 'available-now' or 'stopped'.")


def _check_pinned(master: str | None, until: str) -> None:
    if master is None or master == PROCESSES:
        raise ConfigException("--pinned is for Spark, which this run does not start. Maybe add --master local[3,1000].")
    if until == "stopped":
        raise ConfigException(
            "--pinned is for bounded runs: with --until stopped each task would hold a slot of Spark for ever. Maybe leave one of "
            "the two out."
        )


def _spark_conf(texts: list[str], master: str | None) -> dict[str, str]:
    conf = dict(key_and_value("--conf", text, "spark.ui.enabled=true") for text in texts)
    if conf and (master is None or master == PROCESSES):
        raise ConfigException("--conf is for Spark, which this run does not start. Maybe add --master local[3,1000].")
    return conf


@contextmanager
def _on(
    application: StreamsApplication, master: str, conf: dict[str, str], *, pinned: bool, verbose: bool
) -> Iterator[StreamsApplication]:
    """The application with a launcher for the master."""
    from task_assignor.runtime import LocalProcessLauncher

    if master == PROCESSES:
        yield application.evolve(launcher=LocalProcessLauncher())
        return
    if master.startswith("sc://"):
        raise ConfigException(
            f"The --master ({shown(master)}) is a server of Spark Connect, where the coordinator could not be in the driver. Expected "
            "is the cluster's own master, such as spark://host:7077."
        )
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise ConfigException(
            f"The --master ({shown(master)}) must be {PROCESSES!r} or a master of Spark, such as local[3,1000] or "
            "spark://host:7077."
        )
    from task_assignor.spark import PinnedLauncher, SparkLauncher, spark_session
    from task_assignor.spark.session import stop_session

    name = application.config.application_id
    slots = sum(spec.capacity for spec in application.clients) if pinned else len(application.clients)
    if pinned:
        conf = {"spark.ui.enabled": "true", **conf}
    # It takes seconds, and on a busy machine a minute.
    write_to_stderr(f"Spark starts with the master {printable(master)}.\n")
    spark = spark_session(master, clients=slots, app_name=name, config=conf, verbose=verbose)
    page = spark.sparkContext.uiWebUrl
    if pinned and page:
        write_to_stderr(f"Spark's page shows the tasks: {page}\n")
    try:
        yield application.evolve(launcher=PinnedLauncher(spark) if pinned else SparkLauncher(spark))
    finally:
        stop_session(spark)


def _show_metrics(held: ExitStack, metrics: Metrics, port: int | None, host: str, file: Path | None) -> None:
    from task_assignor.runtime import metrics_in_file, metrics_on_port

    if port is not None:
        number = held.enter_context(metrics_on_port(metrics, port, host))
        shown_host = f"[{host}]" if ":" in host else host
        write_to_stderr(f"Metrics are on http://{shown_host}:{number}/metrics.\n")
    if file is not None:
        held.enter_context(metrics_in_file(metrics, file))


def _run(application: StreamsApplication, until: Literal["available_now", "stopped"], *, as_json: bool) -> int:
    """Run it; returns the exit code."""
    from task_assignor.runtime.shells.signals import SIGNALS
    from task_assignor.screen import RunScreen

    if as_json:
        answers = sys.stdout
        with others_code():
            result = application.run(until=until, on_line=lambda line: write_json_text(line, answers))
    else:
        with others_code(may_print=True), RunScreen() as screen:
            # Until they have joined there is nothing else to tell, which takes some seconds.
            screen.say(f"{application.config.application_id} starts {counted(len(application.clients), 'client')}")
            result = application.run(screen.show, until=until)
        write_line(str(result))
    return _INTERRUPTED if result.stopped == SIGNALS[signal.SIGINT] else 0
