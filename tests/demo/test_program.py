"""What the demo does before Spark starts, and how Ctrl-C ends it."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from task_assignor.demo.flights import unpack_data, write_topics
from task_assignor.demo.program import (
    Killer,
    aside_from_interrupts,
    check_assignor,
    prepared_folder,
    reading_lines,
)
from task_assignor.runtime import BatchesCommitted, ClientJoined, Topic
from task_assignor.screen import RunScreen
from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    KafkaStreamsAssignment,
    StreamsConfig,
    StreamsException,
    TaskAssignment,
    TaskAssignor,
)
from tests.cli.conftest import Runner, run

__all__ = ["run"]


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> list[Topic]:
    folder = tmp_path_factory.mktemp("demo")
    unpack_data(folder / "data")
    return list(write_topics(folder / "data", folder / "topics", 8))


def test_without_its_packages_the_demo_names_its_own_extra_and_does_nothing(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rooms that it uses name theirs, which are not enough for it."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = run("demo")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "pip install 'task-assignor[demo]'" in done.err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_a_broker_is_refused_before_anything_is_done(run: Runner, tmp_path: Path) -> None:
    done = run("demo", "--bootstrap-server", "foo")
    assert (done.code, done.out) == (2, "")
    assert "The setting bootstrap.servers ('foo') must be" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_letters_that_standard_output_lacks_does_not_end_the_demo() -> None:
    """It is named when all is done."""
    script = (
        "import task_assignor.demo\n"
        "from task_assignor.cli.app import main\n"
        "from task_assignor.screen import make_console\n"
        "task_assignor.demo.run_demo = lambda config, folder, **more: make_console().print(folder)\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "demo", "--output", "d\u00e9mo"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "d\\xe9mo\n", "")


@pytest.mark.parametrize("name", ["a", 'a "b"', "it's", "a\\b", "a\nb", "\udcff"])
def test_a_result_is_read_by_what_the_demo_says(name: str) -> None:
    read = ast.parse("\n".join(reading_lines(Path(name)))).body[-1]
    assert [each.value for each in ast.walk(read) if isinstance(each, ast.Constant)] == [name, "flight-weather"]


def test_the_topics_hold_all_rows_in_order_of_time(topics: list[Topic]) -> None:
    """Written without Spark: it took 40 s to write what takes a second or two."""
    assert {topic.spec.name: sum(topic.end_offsets()) for topic in topics} == {
        "flights-by-hour": 336_776,
        "weather": 26_115,
        "flights-by-plane": 334_264,
        "planes": 3_322,
    }
    for topic in topics[:3]:
        assert topic.spec.timestamp is not None
        times = topic.read(0, 0, topic.end_offset(0)).column(topic.spec.timestamp).to_pylist()
        assert times == sorted(times)


def test_standbys_are_said_once(run: Runner, tmp_path: Path) -> None:
    """One of the two would count, without a word."""
    done = run("demo", "--standbys", "0", "--set", "num.standby.replicas=2")
    assert done.code == 2
    assert "num.standby.replicas ('2') must be given once. It is 0 already with --standbys." in done.err
    assert not any(tmp_path.iterdir())


def test_settings_that_do_nothing_are_named_beside_the_screen() -> None:
    script = (
        "import logging\n"
        "from task_assignor.demo.program import warn_of_settings_only\n"
        "from task_assignor.runtime.kafka_settings import warn_of_idle_settings\n"
        "from task_assignor.sdk import StreamsConfig\n"
        "warn_of_settings_only()\n"
        "logging.getLogger('task_assignor.runtime').warning('the screen says this')\n"
        "warn_of_idle_settings(StreamsConfig({'commit.interval.ms': 100}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "These settings of Kafka do nothing in this runtime: commit.interval.ms.\n"


class Silent(TaskAssignor):
    """One that leaves all tasks unassigned."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(
            map(KafkaStreamsAssignment.of, application_state.kafka_streams_states(compute_task_lags=False))
        )


class Broken(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        raise ZeroDivisionError("by nothing")


def test_a_bad_assignor_is_found_by_asking_it_once(topics: list[Topic]) -> None:
    for assignor, message in ((Broken, "ZeroDivisionError: by nothing"), (Silent, "cannot be used")):
        with pytest.raises(StreamsException, match=message):
            check_assignor(StreamsConfig({"application.id": "flights", "task.assignor.class": assignor}), topics, 4)
    check_assignor(StreamsConfig({"application.id": "flights", "num.standby.replicas": 1}), topics, 4)


@pytest.mark.parametrize(
    ("read", "remaining"),
    [({"client-3": 130}, 870), ({"client-1": 300, "client-2": 200}, 500), ({"client-3": 250}, 100)],
)
def test_the_killed_client_has_something_left_to_do(read: dict[str, int], remaining: int) -> None:
    """When it is ahead of the others it is killed before half of all rows are processed."""
    with subprocess.Popen(["sleep", "600"]) as victim:
        killer = Killer(RunScreen(Console(file=io.StringIO())), enabled=True)
        for number in range(1, 5):
            pid = victim.pid if number == 3 else 1 << 30  # there is none
            killer.watch(ClientJoined(f"client-{number}", "", "", "", "", pid, ()))
        killer.watch(BatchesCommitted(0, 1, {}, 10, 0, {"client-4": 10}, 0.0, 990))
        assert victim.poll() is None
        killer.watch(BatchesCommitted(1, 1, {}, sum(read.values()), 0, read, 0.0, remaining))
        assert victim.wait(60) == -signal.SIGKILL


HOLD = """
import sys
from pathlib import Path
from task_assignor.demo.program import prepared_folder
with prepared_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_another_demo_uses_is_in_use(tmp_path: Path) -> None:
    """Held by another process, and left alone; let go when that ends, whatever ends it."""
    folder = tmp_path / "demo"
    other = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        (folder / "precious").touch()
        with pytest.raises(ConfigException, match="is in use by another demo"), prepared_folder(folder):
            pass
        assert (folder / "precious").exists()
        other.kill()
    with prepared_folder(folder):
        assert [entry.name for entry in folder.iterdir()] == [".task-assignor-demo"]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ConfigException, match="not empty and not from an earlier demo"), prepared_folder(tmp_path):
        pass
    with pytest.raises(ConfigException, match="cannot be used"), prepared_folder(tmp_path / "precious" / "below"):
        pass


INTERRUPTED = """
import io, os, signal, threading, time
from rich.console import Console
from task_assignor.demo.program import aside_from_interrupts

file = io.StringIO()
console = Console(file=file)
begun, ended = threading.Event(), threading.Event()

def program():
    begun.set()
    while not console.quiet:
        time.sleep(0.001)
    console.print("this failed because of it")
    ended.set()
    raise OSError("and so did this")

def interrupt():
    begun.wait(60)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    aside_from_interrupts(program, console)
except KeyboardInterrupt:
    ended.wait(60)
    print(repr(file.getvalue()))
"""


def test_an_interrupt_reaches_only_who_waits_and_silences_the_rest() -> None:
    """The program itself is never interrupted inside a call to Java; what it says after that is not heard.

    In a process of its own: an interrupt belongs to all of a process, and would end what runs the tests.
    """
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, repr("\nStopped by Ctrl-C.\n") + "\n", "")


AT_WORK = """
import atexit, os, signal, threading
from rich.console import Console
from task_assignor.demo import program

program._ENDS_S = 0.0
atexit.register(print, "Python's own end has begun")
begun = threading.Event()

def at_work():
    begun.set()
    threading.Event().wait()

def interrupt():
    begun.wait(60)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
program.aside_from_interrupts(at_work, Console())
"""


def test_a_program_that_an_interrupt_does_not_end_is_ended_before_python_does() -> None:
    """Python's end takes the interpreter from the threads of a library that is at work: two of five times Arrow, reading
    CSV files, crashed or hung instead of the exit code."""
    done = subprocess.run([sys.executable, "-c", AT_WORK], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "\nStopped by Ctrl-C.\n", "")


def test_what_the_program_raises_is_raised_by_who_waits() -> None:
    def program() -> None:
        raise ConfigException("this")

    with pytest.raises(ConfigException, match="this"):
        aside_from_interrupts(program, Console(file=io.StringIO()))
