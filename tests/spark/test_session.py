"""What a session must have, what is said about one that has not, and that Spark keeps quiet."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

from task_assignor.runtime import ClientException
from task_assignor.spark import (
    PinnedLauncher,
    SparkLauncher,
    SparkSessionError,
    check_session,
    find_java,
    register_source,
    spark_session,
)
from task_assignor.spark.session import _forward, _master_problems, _require_master
from task_assignor.spark.shipping import _archive, sent_function
from task_assignor.spark.where import read_bootstrap
from tests.processes import PYTHON

SOURCES = Path(__file__).parents[2] / "src"
OWN_SPARK = pytest.mark.xdist_group("with_demo")  # as in test_demo: beside the Spark of all others

# Starts a session, has each of three workers killed once by -9, and prints what came back.
PROGRAM = """
import os, signal
from pyspark import TaskContext
from task_assignor.spark import spark_session

def once_killed(rows):
    attempt = TaskContext.get().attemptNumber()
    if attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    yield attempt

spark = spark_session(clients=2)
print(spark.sparkContext.master, spark.sparkContext.parallelize(range(3), 3).mapPartitions(once_killed).collect())
spark.stop()
"""

# Stops its session, or kills Spark's JVM, as soon as a run in it has committed something, or a topic is written by it, and prints
# what is said of that, and of all that is done with the session afterwards.
STOPPING = """
import os, sys, threading, time
import pyarrow as pa
from pyspark.sql import functions as F
from task_assignor.runtime import BatchesCommitted, Processor, StreamsApplication, SubTopology, Topology, write_topic
from task_assignor.sdk import StreamsConfig, StreamsException
from task_assignor.spark import SparkLauncher, read_topic, register_source, spark_session
from task_assignor.spark import write_topic as write_frame

class Same(Processor):
    def process_batch(self, batch, context):
        return batch["s"]

def end():
    if how == "stopped":
        threading.Thread(target=spark.stop).start()
    else:
        os.kill(spark.sparkContext._gateway.proc.pid, 9)

def watch(event):
    if isinstance(event, BatchesCommitted):
        end()

def wait_and_end():
    while not os.path.exists(root + "/begun"):
        time.sleep(0.05)
    end()

def begin(number):
    open(root + "/begun", "w").close()
    time.sleep(600)

def write(name):
    write_frame(frame, root, name, key=["id"], partitions=1)

def tell(call):
    try:
        call()
    except StreamsException as error:
        print(error)

root, how, what = sys.argv[1:]
write_topic(root, "s", pa.table({"k": list(range(100))}), key="k", partitions=1)
spark = spark_session(clients=1)
config = StreamsConfig({"application.id": "a"})
topology = Topology([SubTopology("same", "s", Same, outputs=["out"])])
app = StreamsApplication(topology, config, topics_root=root, run_dir=root + "/run", clients=1, launcher=SparkLauncher(spark))
frame = spark.range(1).select(F.udf(begin, "long")("id").alias("id"))
if what == "run":
    tell(lambda: app.run(watch, until="stopped"))
else:
    threading.Thread(target=wait_and_end).start()
    tell(lambda: write("t"))
for call in (app.run, lambda: SparkLauncher(spark), lambda: read_topic(spark, root, "s"), lambda: register_source(spark), lambda: write("u")):
    tell(call)
"""


# Three sessions, one after the other: what was started has ended in Java, once by itself, once with all of Java. The second is
# configured in ways that PySpark overlooks.
ENDED = """
import os, sys
from task_assignor.sdk import StreamsException
from task_assignor.spark import spark_session

spark_session(clients=1).sparkContext._jsc.sc().stop()
config = {"spark.pyspark.python": sys.argv[1], "spark.master": "local[6,9]", "spark.driver.memory": "3g"}
spark = spark_session(clients=1, config=config)
ours = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("OURS")).collect()
print(ours, spark.conf.get("spark.sql.shuffle.partitions"))
os.kill(spark.sparkContext._gateway.proc.pid, 9)
try:
    spark_session(clients=1)
except StreamsException as error:
    print(error)
"""
LIVES = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
STOPPED = "The session was stopped. Start one with `spark_session()`."
GONE = "Spark's JVM has ended, and PySpark starts no other one in this process. Maybe start Python"
ENDS = {
    ("stopped", "run"): "The Spark session was stopped in the middle of the run, and its clients with it.",
    ("killed", "run"): "Spark's JVM, the driver, has ended in the middle of the run, and its clients with",
    ("stopped", "write"): "Writing topic t failed: the Spark session was stopped meanwhile.",
    ("killed", "write"): "Writing topic t failed: Spark's JVM, the driver, has ended meanwhile. Maybe",
}


def run_program(environ: dict[str, str], program: str = PROGRAM, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environ | {"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("master", "problem"),
    [
        ("local", "has 1 slot, and 4 clients need a slot each"),
        ("local[3,1000]", "has 3 slots, and 4 clients need a slot each"),
        ("local[*]", "gives up at the first lost worker"),
        ("local[8]", "gives up at the first lost worker"),
    ],
)
def test_a_local_master_that_cannot_do_it_is_explained_with_the_one_to_use(master: str, problem: str) -> None:
    text = " ".join(_master_problems(master, 4))

    assert problem in text
    assert "Use local[5,1000]." in text


def test_spark_tasks_of_more_cores_leave_fewer_slots() -> None:
    """All but two of the clients waited for a slot, without a word of why."""
    (problem, advice) = _master_problems("local[5,1000]", 4, cpus=2)
    assert "has 2 slots of 2 cores each (spark.task.cpus), and 4 clients need a slot each" in problem
    assert advice == "Use local[10,1000]."
    assert _master_problems("local[10,1000]", 4, cpus=2) == []


@pytest.mark.parametrize("master", ["local[4,1000]", "local[5, 1000]", "spark://host:7077", "yarn"])
def test_a_master_that_can_do_it_has_no_problems(master: str) -> None:
    assert _master_problems(master, 4) == []


@pytest.mark.parametrize(
    ("master", "said"),
    [
        (
            "spark://127.0.0.1:1",
            r"No master of a Spark cluster answers at 127\.0\.0\.1:1 \(.*refused.*its page says its URL",
        ),
        ("spark://127.0.0.1:1,127.0.0.1:2", r"answers at 127\.0\.0\.1:1 \(.*\) or 127\.0\.0\.1:2 \("),
        ("spark://", "The master spark:// must be of the form spark://HOST:PORT"),
        ("spark://host", "The master spark://host must be of the form spark://HOST:PORT"),
    ],
)
def test_a_master_that_does_not_answer_is_said_so_before_spark_is_asked(master: str, said: str) -> None:
    with pytest.raises(SparkSessionError, match=said):
        _require_master(master)


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server on loopback that answers whatever it is asked first: its port, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(1_000))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Illegal character CNTL=0x0\r\nContent-Type: x\r\n\r\n", b"SSH-2.0-x\r\n"]
)
def test_the_port_of_something_else_is_not_taken_for_that_of_a_master(answer: bytes) -> None:
    """Spark tried that of the master's page for 74 seconds, and said that the SparkContext was stopped."""
    with (
        answering(answer) as (port, _),
        pytest.raises(SparkSessionError, match=rf"127\.0\.0\.1:{port} \(something else does: '{answer[:7].decode()}"),
    ):
        _require_master(f"spark://127.0.0.1:{port}")


# What a master says; what one says that wants TLS; one that wants a password says nothing.
@pytest.mark.parametrize("answer", [b"\0\0\0\0\0\0\0A\x08No.", b"\x15\x03\x03\0\x02\x02\x46", b""])
def test_what_may_be_a_master_is_left_to_spark(answer: bytes) -> None:
    with answering(answer) as (port, asked):
        _require_master(f"spark://127.0.0.1:{port}")
    assert asked == [b"\0\0\0\0\0\0\0\x18\x06\0\0\0\x0b/files/\r\n\r\n"]


def test_a_cluster_that_starts_no_executor_is_told_once_with_the_sizes_that_are_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a cluster whose workers were too small it was only said that no client had come."""
    conf = {"spark.executor.cores": "4"}
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, _jsc=LIVES))
    slots = [1, 0]
    monkeypatch.setattr(SparkLauncher, "capacity", lambda _: slots[0])
    for expected in ([], ["spark.executor.memory (1g, Spark's own choice), and the cores spark.executor.cores (4)"]):
        launcher = SparkLauncher(session)
        launcher._waiting_due = 0.0
        for _ in range(2):
            launcher._next_look.clear()
            launcher._next_look.update(exits=0.0)
            assert launcher.exits() == []
        assert [said for said in expected if said in caplog.text] == expected
        assert len(caplog.records) == len(expected)
        del slots[0]


def test_a_module_that_an_executor_lacks_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Far: ...

    Far.__module__, Far.__qualname__ = "far_away", "Far"
    monkeypatch.setitem(sys.modules, "far_away", cast("Any", SimpleNamespace(Far=Far)))
    payload = pickle.dumps(Far())
    monkeypatch.delitem(sys.modules, "far_away")
    with pytest.raises(ClientException, match=r"on .* does not have: No module named 'far_away'\. .*addPyFile"):
        read_bootstrap(payload)


def test_a_python_of_an_executor_that_lacks_what_is_needed_is_named() -> None:
    """Only the missing module was told, as where a session of the user runs the first `python3` of the path."""
    said = r"No module named 'task_assignor\.far', in .+ on .* Maybe install what task-assignor\[runtime\] .* PYSPARK_PYTHON"
    with pytest.raises(ImportError, match=said):
        sent_function("task_assignor.far", "run")([b""])


@pytest.mark.spark
@pytest.mark.parametrize("make", [SparkLauncher, PinnedLauncher, register_source, lambda one: check_session(one, 1)])
@pytest.mark.parametrize("wrong", [None, "local[5,1000]"])
def test_what_is_no_session_is_refused_at_once(make: Any, wrong: Any) -> None:
    """A launcher took it, and the run ended with an error of Python."""
    with pytest.raises(SparkSessionError, match=r"The session \(.*\) must be a pyspark.sql.SparkSession"):
        make(wrong)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"clients": 0}, r"The clients \(0\) of a session must be an int of at least 1"),
        ({"clients": "4"}, r"The clients \('4'\) of a session"),
        ({"master": 5}, r"The master \(5\) of a session must be a URL of Spark's"),
        ({"config": ["a"]}, r"The config \(\['a'\]\) of a session must be a mapping"),
    ],
)
def test_wrong_arguments_of_a_session_are_named(arguments: dict[str, Any], said: str) -> None:
    """No clients were started with one slot, and others were errors of Python."""
    with pytest.raises(SparkSessionError, match=said):
        spark_session(**arguments)


@pytest.mark.parametrize("cpus", ["x", "0", "-1", "1.5"])
def test_a_wrong_number_of_cores_of_a_spark_task_is_named(cpus: str) -> None:
    conf = pyspark.SparkConf(loadDefaults=False, _jvm=None).set("spark.task.cpus", cpus)
    context = SimpleNamespace(master="local[5,1000]", getConf=lambda: conf, _jsc=LIVES)
    session: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(SparkSessionError, match=rf"spark.task.cpus \('{cpus}'\) must be an integer of at least 1"):
        check_session(session, 4)


def test_another_master_than_that_of_the_active_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        SparkSessionError, match=r"active already, with the master local\[5,1000\], so none .* local\[7,1000\]"
    ):
        spark_session("local[7,1000]")


@pytest.mark.spark
def test_settings_that_the_active_session_does_not_have_are_named(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """They did nothing, without a word."""
    assert spark_session(config={"spark.speculation": "false", "spark.sql.ansi.enabled": "maybe"}) is not None
    (record,) = caplog.records
    assert "without what `config` says about spark.sql.ansi.enabled. Maybe stop that session" in record.getMessage()


KILLS, AFTER = "spark.python.worker.killOnIdleTimeout", "spark.python.worker.idleTimeoutSeconds"


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({KILLS: "true", AFTER: "5s"}, "killOnIdleTimeout is on, .* after 5 s"),
        ({KILLS: "TRUE", AFTER: "10"}, "killOnIdleTimeout is on, .* after 10 s"),
        ({KILLS: "true", AFTER: "0"}, ""),
        ({KILLS: "true"}, ""),
        ({KILLS: "false", AFTER: "5"}, ""),
        ({"spark.speculation": "true"}, "speculation is on, so Spark may start a second copy"),
        ({"spark.excludeOnFailure.enabled": "true"}, "excludeOnFailure.enabled is on, so Spark starts a client on no"),
        ({"spark.excludeOnFailure.taskAndStage.enabled": "true"}, "taskAndStage.enabled is on, so Spark starts a"),
    ],
)
def test_a_session_in_which_clients_do_not_live_long_is_refused(conf: dict[str, str], told: str) -> None:
    """They were ended again and again, and the run with them."""
    context = SimpleNamespace(master="local[5,1000]", getConf=lambda: conf, _jsc=LIVES)
    session: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(SparkSessionError, match=told) if told else nullcontext():
        check_session(session, 4)


@pytest.mark.spark
@OWN_SPARK
@pytest.mark.thorough
def test_what_spark_submit_was_told_counts(tmp_path: Path) -> None:
    """The program ran on this machine, whatever master it was submitted to."""
    program = tmp_path / "program.py"
    program.write_text(
        "from task_assignor.spark import spark_session\n"
        "spark = spark_session(clients=2, app_name='mine')\n"
        "conf = spark.sparkContext.getConf()\n"
        "print(spark.sparkContext.master, conf.get('spark.app.name'), conf.get('spark.task.maxFailures'), conf.get('spark.speculation'))\n"
        "spark.stop()\n"
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = ["--master", "local[7,1000]", "--conf", "spark.task.maxFailures=500"]
    done = subprocess.run(
        [submit, *told, program],
        env=dict(os.environ, JAVA_HOME=str(find_java().home), PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(SOURCES)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "local[7,1000] mine 500 false\n", done.stderr


@pytest.mark.spark
def test_a_job_of_the_user_ends_at_the_failures_that_spark_allows(spark: SparkSession) -> None:
    """It was tried a thousand times, for the sake of clients; a file with a wrong bit was told after hours."""

    def fail(number: int) -> int:
        raise ValueError("not liked")

    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "mine")
    try:
        with pytest.raises(
            Exception, match=r"cancelled since a Spark task of it has failed 4 times: ValueError: not liked"
        ):
            spark.sparkContext.parallelize([1], 1).map(fail).count()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it


@pytest.mark.spark
def test_the_default_session_has_a_slot_more_than_clients_and_forgives_failures(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()

    assert spark.sparkContext.master == "local[5,1000]"
    assert conf.get("spark.task.maxFailures") == "1000"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert conf.get("spark.ui.enabled") == "false"
    check_session(spark, 4)


@pytest.mark.spark
def test_workers_begin_with_what_clients_need_and_with_compiled_code(spark: SparkSession) -> None:
    def look(_: int) -> tuple[bool, str]:
        import sys

        return "task_assignor.runtime.shells.client_shell" in sys.modules, sys.modules["pyspark"].__file__ or ""

    assert spark.sparkContext.parallelize([0], 1).map(look).collect() == [(True, pyspark.__file__)]


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_what_forks_workers_has_one_thread(spark: SparkSession) -> None:
    """It had another one, of pyarrow's allocator: what a thread holds at a fork nobody lets go of in the worker."""

    def look(_: int) -> tuple[bool, list[str]]:
        import sys
        from pathlib import Path

        threads = Path(f"/proc/{os.getppid()}/task").iterdir()
        return "pyarrow" in sys.modules, [(thread / "comm").read_text().strip() for thread in threads]

    (found,) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found[0]
    assert len(found[1]) == 1, found


@pytest.mark.spark
def test_a_session_with_too_few_slots_is_refused_when_it_is_the_active_one(spark: SparkSession) -> None:
    with pytest.raises(
        SparkSessionError, match=r"local\[5,1000\] has 5 slots, and 6 clients need .* Use local\[7,1000\]"
    ):
        spark_session(clients=6)


@pytest.mark.spark
@OWN_SPARK
@pytest.mark.thorough
def test_killed_workers_are_started_again_and_spark_says_nothing(tmp_path: Path) -> None:
    environ = dict(os.environ, HOME=str(tmp_path))

    assert run_program(environ) == ("local[3,1000] [1, 1, 1]\n", "")


@pytest.mark.spark
@OWN_SPARK
@pytest.mark.thorough
@pytest.mark.parametrize("what", ["run", "write"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_session_that_ends_under_a_run_is_said_to_have(tmp_path: Path, how: str, what: str) -> None:
    """It was told as "'NoneType' object has no attribute" of whatever was asked for first, or as a call of Py4J that failed."""
    expected, afterwards = ENDS[how, what], STOPPED if how == "stopped" else GONE
    said, error = run_program(dict(os.environ), STOPPING, str(tmp_path), how, what)
    first, *others = said.splitlines()
    assert first.startswith(expected), error
    assert [other.startswith(afterwards) for other in others] == [True] * 5, said + error
    # What Py4J logs by itself stays; there was a traceback of ours, too, of the thread that looks how jobs fail.
    assert "task-assignor-" not in error


@pytest.mark.spark
@OWN_SPARK
@pytest.mark.thorough
def test_a_session_that_has_ended_in_java_is_not_taken_for_the_active_one(tmp_path: Path) -> None:
    """As one that lost its master: until Python ended every session was one of Py4J's errors, with pages of Java's."""
    (tmp_path / "python").write_text(f'#!/bin/sh\nOURS=yes exec {PYTHON} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    said, error = run_program(dict(os.environ), ENDED, str(tmp_path / "python"))

    # Workers were the first `python3` of the path, settings those for another master, and nobody said that the memory stays.
    assert said.splitlines()[0] == "['yes'] 6", error
    assert "as it was started, whatever `config` says about spark.driver.memory. Maybe" in error
    assert said.splitlines()[1].startswith(GONE), error


@pytest.mark.spark
@pytest.mark.slow
def test_all_of_it_works_without_java_on_the_path(tmp_path: Path, path_without_java: str) -> None:
    environ = {"PATH": path_without_java, "HOME": str(tmp_path)}
    assert run_program(environ) == ("local[3,1000] [1, 1, 1]\n", "")
    assert list(tmp_path.glob(".cache/task-assignor/java-*/bin/java"))


def forwarded(text: str, capfd: pytest.CaptureFixture[str]) -> str:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    started = threading.Event()
    started.set()
    _forward(reader, deque(), started)
    return capfd.readouterr().err


def test_of_the_jvms_messages_only_its_warnings_and_closed_workers_are_left_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    begin = "Traceback (most recent call last):\n"
    daemon = '  File "/lib/pyspark/daemon.py", line 264, in manager\n'
    closed = begin + begin + daemon + daemon + "BrokenPipeError: [Errno 32] Broken pipe\n" * 2
    with_source = begin + daemon + "    outfile.flush()\n    ~~~~^^\n" + "BrokenPipeError: [Errno 32] Broken pipe\n"
    other = begin + daemon + '  File "/opt/program.py", line 1, in f\nValueError: mine\n'

    of_stream = (
        f'{begin}  File "/lib/pyspark.zip/pyspark/util.py", line 822, in local_connect_and_auth\n'
        "FileNotFoundError: [Errno 2] No such file or directory\n\n"
        f"During handling of the above exception, another exception occurred:\n\n{begin}"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "/lib/pyspark.zip/pyspark/sql/streaming/python_streaming_source_runner.py", line 313, in <module>\n'
        '  File "/lib/python3.11/contextlib.py", line 137, in __enter__\n    return next(self.gen)\n'
        '  File "/lib/pyspark.zip/pyspark/worker_util.py", line 246, in get_sock_file_to_executor\n'
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: tried /tmp/.x.sock\n"
    )
    waited = begin + '  File "/lib/pyspark/serializers.py", line 604, in read_int\n    raise EOFError\nEOFError\n'
    waited += "\nDuring handling of the above exception, another exception occurred:\n\n" + of_stream
    not_flushed = "PySpark daemon failed to flush the output to the worker process:\n" + begin + daemon
    not_flushed += "BrokenPipeError: [Errno 32] Broken pipe\n\n"
    of_stream += waited + not_flushed
    said = f"WARNING: Using incubator modules\n{closed}one\n{other}{with_source}two\n{closed}{of_stream}\nthree\n{of_stream}{other}"

    assert forwarded(said, capfd) == f"one\n{other}two\nthree\n{of_stream}{other}"
    assert forwarded(begin + daemon, capfd) == begin + daemon


NO_HOSTS = {"JAVA_TOOL_OPTIONS": "-Djdk.net.hosts.file=/dev/null"}


@pytest.mark.parametrize(
    ("config", "java", "said"),
    [({"spark.driver.memory": "3x"}, {}, "heap size: -Xmx3x"), ({}, NO_HOSTS, "set SPARK_LOCAL_IP=127.0.0.1.")],
)
def test_a_jvm_that_does_not_start_is_one_error_with_its_own_words(
    tmp_path: Path, config: dict[str, str], java: dict[str, str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from task_assignor.spark import spark_session; spark_session(config={config})"],
        env=dict(os.environ, HOME=str(tmp_path), PYTHONPATH=str(SOURCES), **java),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.stderr.count(said) == 1
    assert "SparkSessionError: Spark did not start. It said: " in done.stderr


@pytest.mark.parametrize("verbose", [False, True])
def test_no_jvm_is_left_by_who_breaks_off_its_start(tmp_path: Path, verbose: bool) -> None:
    """The JVM lived on for ever, since it found no folder in which it could have said where it listens."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    begins = '*launcher.Main*) exec "$REAL" "$@";; *deploy.SparkSubmit*) echo begins; exec sleep 600;; *) exec "$REAL" "$@";;'
    java.write_text(f'#!/bin/sh\ncase "$*" in {begins} esac\n')
    java.chmod(0o755)
    real = {"REAL": str(find_java().home / "bin/java"), "JAVA_HOME": str(java.parents[1]), "PYTHONPATH": str(SOURCES)}
    child = subprocess.Popen(
        [sys.executable, "-c", f"from task_assignor.spark import spark_session; spark_session(verbose={verbose})"],
        env=dict(os.environ, HOME=str(tmp_path), **real),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        said = ""
        while "begins" not in said:
            said = child.stdout.readline()
            assert said
        child.send_signal(signal.SIGINT)
        # What the JVM has of it is open as long as it lives.
        child.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGINT


def test_the_package_can_be_sent_from_an_image_whose_files_are_of_1970(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As reproducible builds make them."""
    module = tmp_path / "__init__.py"
    module.write_text("here = True\n")
    os.utime(module, (0, 0))
    monkeypatch.setattr("task_assignor.__path__", [str(tmp_path)])
    with zipfile.ZipFile(_archive(tmp_path)) as file:
        assert file.read("task_assignor/__init__.py") == b"here = True\n"
