"""A Spark session that suits long-running clients, and what to check in one that the user brings. Clients live in `launcher`."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from task_assignor.runtime.shells.signals import unbroken
from task_assignor.sdk import StreamsException
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted, shown
from task_assignor.spark.java import advice_to_start, prepare_java
from task_assignor.spark.jobs import end_failing_jobs, how_ended, short_reason

# A killed worker counts as a failure of its Spark task; a client that lives for weeks may be killed often.
MAX_FAILURES: Final = 1000
_FEW_FAILURES: Final = 100
_EXCLUDES: Final = "starts a client on no executor where it was lost once, and ends the run where there is no other one"
_REFUSED: Final = {
    "spark.speculation": "may start a second copy of a client",
    "spark.excludeOnFailure.enabled": _EXCLUDES,
    "spark.excludeOnFailure.taskAndStage.enabled": _EXCLUDES,
}
_TASK_CPUS: Final = "spark.task.cpus"
_LOCAL: Final = re.compile(r"local(?:\[\s*(?P<slots>\d+|\*)\s*(?:,\s*(?P<failures>\d+)\s*)?\])?")
_LAST_LINES: Final = 20
_MASTER_TIMEOUT_S: Final = 5.0
_STOPS_S: Final = 60.0
_LOOK_S: Final = 0.02
_ENDED: Final[Mapping[str | None, str]] = {
    "stopped": "The session was stopped. Start one with `spark_session()`.",
    "lost": "Spark's JVM has ended, and PySpark starts no other one in this process. Maybe start Python, or the notebook's kernel, anew.",
}
_ENDED_MEANWHILE: Final[Mapping[str | None, str]] = {
    "stopped": "The Spark session was stopped in the middle of the run, and its clients with it. Maybe the cluster's master has ended the "
    "application, as from its page, which Spark's own message says; else end the run before, with request_stop(), and stop the session when "
    "run() has come back.",
    "lost": "Spark's JVM, the driver, has ended in the middle of the run, and its clients with it. Maybe it was killed, as where memory runs "
    "out, or its own messages say why. What was committed stays: run the program again.",
}
_OF_JAVA: Final = {
    "spark.driver.memory",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.jars.packages",
    "spark.jars.repositories",
}
"""Settings that count when Spark's JVM is started."""
_NO_FILE: Final = b"/files/\r\n\r\n"
_QUESTION: Final = struct.pack(">QBI", 13 + len(_NO_FILE), 6, len(_NO_FILE)) + _NO_FILE
"""In Spark's protocol the request for a file that is not there (`StreamRequest`): a master says no, and a web server `HTTP/1.1 400`."""
_ANSWER_TIMEOUT_S: Final = 1.0
_ANSWER_BYTES: Final = 40
_CLOSED: Final = (
    b"BrokenPipeError",
    b"ConnectionResetError",
    b"EOFError",
    b"pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]",
)
_NOT_FLUSHED: Final = b"PySpark daemon failed to flush the output to the worker process:"
_OF_CLOSED: Final = re.compile(
    rb'.*/pyspark/(daemon|serializers|util|worker|worker_util|sql/worker/\w+|sql/streaming/python_streaming_\w+)\.py"|  File "(<frozen runpy>|.*/contextlib\.py)"'
    rb"|FileNotFoundError: \[Errno 2\] No such file or directory$|During handling of the above exception|\s*$"
)
"""What is in their tracebacks: of one that forks, and of one that was started for a stream which was stopped at once."""

logger = logger_of(__name__)
T = TypeVar("T")


class _Launcher(Protocol):
    spark: SparkSession


L = TypeVar("L", bound=_Launcher)


class SparkSessionError(StreamsException):
    """A Spark session cannot run Streams clients, or could not be started; the message says what to change."""


@unbroken()
def driver_host(spark: SparkSession) -> str:
    """The address at which Spark's executors reach the driver.

    Raises:
        SparkSessionError: the session has ended.
    """
    require_classic(spark)
    # Spark writes an address of IPv6 in brackets.
    return str(spark.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1").strip("[]")


def stop_session(spark: SparkSession) -> None:
    """Stop a session, also after a Ctrl-C that came while Python and Java talked: then Java may not hear it, and PySpark warns.

    Java ends with this process in any case.
    """
    with unbroken(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        spark.stop()


def spark_session(
    master: str | None = None,
    *,
    clients: int = 4,
    app_name: str = "task-assignor",
    config: Mapping[str, object] | None = None,
    verbose: bool = False,
) -> SparkSession:
    """Start a Spark session made for Streams clients, or take the one that is active.

    Java is looked for first (see `find_java`). In local mode everything stays on the loopback interface, and the
    workers find the modules that this process finds. In a program that `spark-submit` has started, what that was told wins over
    what would be set here.

    Args:
        master: Spark's master URL; None: that of `spark-submit`, else `local[clients + 1,1000]`. The slot beyond the clients is for ordinary
            Spark jobs; the second number lets Spark start a killed client again.
        clients: how many Streams clients will run, at least 1.
        app_name: name of the Spark application.
        config: more Spark settings; they win over the ones set here.
        verbose: leave Spark's own messages as they are. Otherwise only errors that nobody else reports are shown.

    Returns:
        the session. One that was active before is returned as it is, after `check_session`; settings that it does not have are
        named in a warning.

    Raises:
        JavaNotFoundError: there is no usable Java.
        SparkSessionError: an argument is wrong, Spark did not start, the session cannot run the clients, or one with another master
            is active.
    """
    if not is_whole(clients) or clients < 1:
        raise SparkSessionError(f"The clients ({shown(clients)}) of a session must be an int of at least 1.")
    if not (master is None or isinstance(master, str)):
        raise SparkSessionError(
            f"The master ({shown(master)}) of a session must be a URL of Spark's, such as 'local[5,1000]', or None."
        )
    if not isinstance(config or {}, Mapping):
        raise SparkSessionError(
            f"The config ({shown(config)}) of a session must be a mapping. Maybe {{'spark.executor.memory': '2g'}}."
        )
    given = {key: str(value) for key, value in (config or {}).items()}
    master = given.get("spark.master", master)
    active = _active_session()
    if active is not None and master is not None and str(active.sparkContext.master) != master:
        raise SparkSessionError(
            f"A Spark session is active already, with the master {active.sparkContext.master}, so none can be started with {master}. "
            "Maybe leave the master out, or stop that session before."
        )
    ignored = [key for key, value in given.items() if active is not None and active.conf.get(key, None) != value]
    if ignored:
        logger.warning(
            "A Spark session is active already and is taken as it is, without what `config` says about %s. Maybe stop that session "
            "before, or set with spark.conf.set() what may change while a session runs.",
            ", ".join(ignored),
        )
    if active is None:
        submitted = _submitted()
        master = master or submitted.get("spark.master")
        cpus = _cpus((submitted | given).get(_TASK_CPUS))
        _raise_if_any(_master_problems(master, clients, cpus) if master else [])
        master = master or f"local[{(clients + 1) * cpus},{MAX_FAILURES}]"
        conf = SparkConf(loadDefaults=False)
        own = {"spark.app.name": app_name, "spark.master": master}
        settings = _settings(master, verbose) | submitted | own | given
        for key, value in settings.items():
            conf.set(key, value)
        java: Any = SparkContext._jvm  # noqa: SLF001
        too_late = [key for key in given if java and key in _OF_JAVA and java.System.getProperty(key) != given[key]]
        if too_late:
            logger.warning(
                "Spark's JVM runs already, from a session that was stopped, so it is as it was started, whatever `config` says about %s. "
                "Maybe start Python, or the notebook's kernel, anew.",
                ", ".join(too_late),
            )
        prepare_java()
        _require_master(master)
        named = settings.get("spark.pyspark.python")
        # Without this Spark starts whatever `python3` is first on the PATH, which knows nothing of this environment.
        if not named:
            python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            if _LOCAL.fullmatch(master) and python == sys.executable:  # another one may not have this package
                conf.setIfMissing("spark.python.daemon.module", "task_assignor._spark_workers")
        active = _start(conf, verbose=verbose)
        if named:
            # PySpark itself looks at the variable alone, which spark-submit sets by this.
            active.sparkContext.pythonExec = named
        if "spark.task.maxFailures" not in {**submitted, **given}:
            end_failing_jobs(active)
    check_session(active, clients)
    return active


def check_session(spark: SparkSession, clients: int) -> None:
    """Make sure that a session can run this many clients.

    Args:
        spark: any session, also one that the user made.
        clients: how many Streams clients will run.

    Raises:
        SparkSessionError: it cannot; the message lists every problem and what to do.
    """
    check_slots(spark, clients)


def check_slots(spark: SparkSession, count: int, what: str = "clients") -> None:
    """`check_session`, for whatever needs a slot each.

    Args:
        spark: any session.
        count: so many slots are needed.
        what: by whom, for the error.

    Raises:
        SparkSessionError: as there.
    """
    require_classic(spark)
    context = spark.sparkContext
    conf = context.getConf()
    master = str(context.master)
    problems = _master_problems(master, count, _cpus(conf.get(_TASK_CPUS)), what)
    failures = int(conf.get("spark.task.maxFailures") or 4)
    if failures < _FEW_FAILURES and not is_local_master(master):
        logger.warning(
            "spark.task.maxFailures is %d: the run ends when a client's slot was lost that often. Maybe set it to %d when the session is built.",
            failures,
            MAX_FAILURES,
        )
    refused = [key for key in _REFUSED if (conf.get(key) or "false").lower() == "true"]
    problems += [f"{key} is on, so Spark {_REFUSED[key]}. Build the session without it." for key in refused]
    patience = conf.get("spark.python.worker.idleTimeoutSeconds") or "0"
    if (conf.get("spark.python.worker.killOnIdleTimeout") or "false").lower() == "true" and patience.strip("s0"):
        problems.append(
            "spark.python.worker.killOnIdleTimeout is on, so Spark ends clients, which give it nothing while they run, after "
            f"{patience.rstrip('s')} s (spark.python.worker.idleTimeoutSeconds). Build the session without it."
        )
    _raise_if_any(problems)


def _cpus(text: str | None) -> int:
    """How many cores a slot is.

    Raises:
        SparkSessionError: the setting says no such number.
    """
    if not text:
        return 1
    if not (text.isdecimal() and int(text)):
        raise SparkSessionError(f"The setting {_TASK_CPUS} ({shown(text)}) must be an integer of at least 1.")
    return int(text)


def require_classic(spark: object) -> None:
    """Refuse a session of Spark Connect: it has no driver of ours, where the coordinator could be.

    Raises:
        SparkSessionError: it is one, or has ended, or no session at all.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SparkSessionError(
            "The session is a Spark Connect session; Streams clients, topics and results need a classic one. Maybe run the "
            "program on the driver's side, with `spark_session(master)` or spark-submit. Results can be read over Spark "
            "Connect as plain Parquet: Output(..., format='parquet')."
        )
    if not hasattr(spark, "sparkContext"):
        raise SparkSessionError(
            f"The session ({shown(spark)}) must be a pyspark.sql.SparkSession. Maybe spark_session(), which starts one."
        )
    ended = how_ended(spark.sparkContext)
    if ended:
        raise SparkSessionError(_ENDED[ended])


def needs_session(method: Callable[[L], T]) -> Callable[[L], T]:
    """The method of a launcher with another error where the session is stopped, or has ended: Spark's own is about what is not there then."""

    @functools.wraps(method)
    def wrapped(launcher: L) -> T:
        try:
            with unbroken():
                return method(launcher)
        except Exception as error:
            why = _ENDED_MEANWHILE.get(how_ended(launcher.spark.sparkContext))
            if why is None:
                raise
            raise SparkSessionError(why) from error

    return wrapped


def is_local(spark: SparkSession) -> bool:
    """Whether the session runs everything in this machine's one JVM (`local[...]`)."""
    return is_local_master(str(spark.sparkContext.master))


def is_local_master(master: str) -> bool:
    """Whether it is `local`, `local[...]`."""
    return _LOCAL.fullmatch(master) is not None


def _master_problems(master: str, clients: int, cpus: int = 1, what: str = "clients") -> list[str]:
    match = _LOCAL.fullmatch(master)
    if match is None:
        return []
    slots = match["slots"] or "1"
    problems = []
    count = (os.cpu_count() or 1 if slots == "*" else int(slots)) // cpus
    if count < clients:
        share = f" of {cpus} cores each ({_TASK_CPUS})" if cpus > 1 else ""
        problems.append(
            f"The master {master} has {counted(count, 'slot')}{share}, and {clients} {what} need a slot each at the same "
            "time (one more leaves room for other Spark jobs)."
        )
    if int(match["failures"] or 1) == 1:
        problems.append(
            f"The master {master} gives up at the first lost worker: local mode allows one failure unless a second "
            "number says more, and spark.task.maxFailures is not read there."
        )
    return [*problems, f"Use local[{(clients + 1) * cpus},{MAX_FAILURES}]."] if problems else []


def _require_master(master: str) -> None:
    """Spark itself would try for a minute, and say nothing of use in the end.

    Raises:
        SparkSessionError: the URL of a standalone cluster is none, or nobody answers there.
    """
    if not master.startswith("spark://"):
        return
    addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
    if not all(host and port.isdecimal() for host, _, port in addresses):
        raise SparkSessionError(f"The master {master} must be of the form spark://HOST:PORT.")
    said = []
    for host, _, port in addresses:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_TIMEOUT_S) as connection:
                strange = _strange_answer(connection)
            if not strange:
                return
            said.append(f"{host}:{port} (something else does: {shown(strange)})")
        except (OSError, OverflowError) as error:
            said.append(f"{host}:{port} ({error})")
    raise SparkSessionError(
        f"No master of a Spark cluster answers at {' or '.join(said)}. Maybe it is not started, or has another port: its page "
        "says its URL."
    )


def _strange_answer(connection: socket.socket) -> str:
    """What somebody answers who is no master of Spark, such as the master's own page; "": it may be one."""
    connection.settimeout(_ANSWER_TIMEOUT_S)
    try:
        connection.sendall(_QUESTION)
        answer = b"".join(connection.recv(_ANSWER_BYTES).splitlines()[:1])
    except OSError:
        return ""
    # Frames of Spark begin with a length in eight bytes, those of TLS with a small number.
    text = answer.decode("ascii", "ignore")
    return text if len(text) == len(answer) and text.isprintable() else ""


def _raise_if_any(problems: Iterable[str]) -> None:
    text = " ".join(problems)
    if text:
        raise SparkSessionError(text)


def _submitted() -> dict[str, str]:
    """What `spark-submit`, which has started this program, was told; nothing, if something else has started it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # noqa: SLF001 (only the JVM knows it)
    told = dict(SparkConf(_jvm=SparkContext._jvm).getAll())  # noqa: SLF001
    if told.get("spark.master") == "local[*]":
        # That is what it says when it was told nothing.
        del told["spark.master"]
    return told


def _settings(master: str, verbose: bool) -> dict[str, str]:
    settings = {
        "spark.speculation": "false",
        "spark.task.maxFailures": str(MAX_FAILURES),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(verbose).lower(),
        # Over TCP each Python task waits about 40 ms for a delayed acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
        # On a busy machine a Python worker may take longer than 15 s to import what it needs: "failed to connect back".
        "spark.python.authenticate.socketTimeout": "120s",
        # A client is one thread of work; a pool of threads per client would only make them fight for the cores.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
    }
    match = _LOCAL.fullmatch(master)
    if match is not None:
        slots = match["slots"] or "1"
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(_own_module_path()),
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1) if slots == "*" else slots,
        }
    if not verbose:
        quiet = files("task_assignor.spark").joinpath("log4j2-quiet.properties")
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={Path(str(quiet)).as_uri()}"
    return settings


def _own_module_path() -> list[str]:
    """Where this process finds modules, besides the places that belong to the interpreter."""
    interpreter = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found = [str(Path(entry).absolute()) for entry in sys.path]
    return [
        entry
        for entry in dict.fromkeys(found)
        if entry not in interpreter and Path(entry).exists() and Path(entry).name != "lib-dynload"
    ]


def _start(conf: SparkConf, *, verbose: bool) -> SparkSession:
    with _ending_unfinished_java():
        gateway = None
        # A gateway stays in use after its session was stopped; only the first session of a process starts a JVM.
        if SparkContext._gateway is None and not verbose:  # noqa: SLF001
            gateway = _start_quietly(conf)
        try:
            SparkContext(conf=conf, gateway=gateway)
            return SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:  # noqa: BLE001 (Py4J raises whatever the JVM raised)
            said, master = short_reason(str(error)), conf.get("spark.master") or ""
            if _forget_stopped() and not is_local_master(master):
                said = f"{said} Maybe Spark's own message says why, or what listens at {master} is no master of a Spark cluster, or one of another version of Spark, or with another spark.authenticate or spark.ssl.rpc."
            _raise_not_started(said, error)


def _forget_stopped() -> bool:
    """Have PySpark forget a context that has ended in Java: it would be taken for the active one by all who come. Whether it was one.

    Raises:
        SparkSessionError: Java itself has ended.
    """
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 (Spark has no public way to ask)
    ended = None if getattr(context, "_jsc", None) is None else how_ended(context)
    if ended == "lost":
        raise SparkSessionError(_ENDED[ended])
    if ended:
        _await_stop()
        is_left = SparkContext._active_spark_context is context  # noqa: SLF001
        if is_left:
            context.stop()
    return ended == "stopped"


def _active_session() -> SparkSession | None:
    """The session that there is. A session is active in the thread that made it; its context is there for all."""
    while True:
        _await_stop()
        _forget_stopped()
        context = SparkContext._active_spark_context  # noqa: SLF001
        if context is None:
            return None
        try:
            return SparkSession.builder.getOrCreate()
        except AttributeError:
            # What has just been there is None where another thread stops it.
            if not _is_being_stopped() and SparkContext._active_spark_context is context:  # noqa: SLF001
                raise


def _is_being_stopped() -> bool:
    """Another thread is in the midst of stopping a session: PySpark does not guard it against those who come meanwhile."""
    codes = {SparkSession.stop.__code__, SparkContext.stop.__code__}
    others = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]  # noqa: SLF001
    return any(frame.f_code in codes for other in others for frame, _ in traceback.walk_stack(other))


def _await_stop() -> None:
    deadline = time.monotonic() + _STOPS_S
    while _is_being_stopped():
        if time.monotonic() > deadline:
            raise SparkSessionError(
                f"Another thread has been stopping the Spark session for {_STOPS_S:.0f} s. Maybe start one when its stop() has come back."
            )
        time.sleep(_LOOK_S)


@contextlib.contextmanager
def _ending_unfinished_java() -> Iterator[None]:
    """End a JVM whose start was broken off, as by Ctrl-C: it fails to tell its port, since PySpark has deleted the folder for that, and
    then lives on for ever, whoever has started it.
    """  # noqa: D205
    try:
        yield
    except BaseException as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        codes = [frame.f_code for frame in frames]
        # Whatever starts a process there: the JVM itself, or Popen that has just done so.
        begun = frames[codes.index(launch_gateway.__code__) :] if launch_gateway.__code__ in codes else []
        for process in {one for frame in begun for one in frame.f_locals.values() if isinstance(one, subprocess.Popen)}:
            with contextlib.suppress(AttributeError, OSError):
                process.kill()
        raise


def _start_quietly(conf: SparkConf) -> Any:
    """A JVM whose standard error we look through. Until it is there, what it says is for the error alone."""
    reader, writer = os.pipe()
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    started = threading.Event()
    forward = threading.Thread(target=_forward, args=(reader, last_lines, started), name="spark-stderr", daemon=True)
    forward.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writer})  # type: ignore[no-untyped-call]
        started.set()
        return gateway
    except PySparkException as error:
        os.close(writer)
        writer = -1
        forward.join(1)
        said = [line for line in last_lines if not line.startswith(("WARNING: ", "\tat "))]
        _raise_not_started("\n".join(said) or str(error), error)
    finally:
        if writer >= 0:
            os.close(writer)


def _raise_not_started(said: str, error: Exception) -> NoReturn:
    raise SparkSessionError(
        f"Spark did not start. It said: {said.strip().removesuffix('.')}.{advice_to_start(said)}"
    ) from error


def _forward(reader: int, last_lines: deque[str], started: threading.Event) -> None:
    """Pass the JVM's standard error on, without what no setting of Spark turns off.

    That is the JVM's own warnings, and the traceback of a Python worker that Spark closed while it was waiting, or before it
    had begun (a stream that is stopped at once).
    """
    with os.fdopen(reader, "rb") as lines:
        block: list[bytes] = []
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            last_lines.append(text)
            if not started.is_set():
                continue
            if _is_of_closed_worker(line, bool(block)):
                # Several workers may be closed at the same time, and their lines are mixed.
                block.append(line)
                continue
            _write_unless_closed(block)
            block = []
            if not text.startswith("WARNING: "):
                _write_all([line])
        _write_unless_closed(block)


def _is_of_closed_worker(line: bytes, inside: bool) -> bool:
    return line.startswith((b"Traceback (most recent call last):", _NOT_FLUSHED)) or (
        # Python 3.13 finds the source lines too, and puts them, indented, below.
        inside and (line.startswith((*_CLOSED, b"    ")) or _OF_CLOSED.match(line) is not None)
    )


def _write_unless_closed(block: list[bytes]) -> None:
    last = next((line for line in reversed(block) if line.strip()), b"")
    if not last.startswith(_CLOSED):
        _write_all(block)


def _write_all(lines: list[bytes]) -> None:
    for line in lines:
        with contextlib.suppress(OSError):
            os.write(2, line)
