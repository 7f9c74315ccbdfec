"""The Python end: answers everything, speaks over pipes and sockets, and ends when nobody asks any more."""

from __future__ import annotations

import io
import logging
import queue
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from task_assignor.bridge import wire
from task_assignor.bridge.worker import Worker, _Reader
from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.sdk import ApplicationState, TaskAssignment
from tests.bridge.conftest import hello, question
from tests.bridge.streams import resident_bytes
from tests.kafka.fixtures import wait_until
from tests.processes import PYTHON

BAD = """
import logging, os, sys, threading
from task_assignor.sdk import ConfigKey, TaskAssignmentException, TaskAssignor

class Prints(TaskAssignor):
    config_keys = (ConfigKey(name="prints.what", type="string", default="nothing"),)
    def configure(self, configs):
        self.what = configs["prints.what"]
    def assign(self, state):
        print("to standard output", self.what)
        os.write(1, b"and behind Python's back")
        from task_assignor.builtin_assignors import StickyTaskAssignor
        return StickyTaskAssignor().assign(state)

class Raises(TaskAssignor):
    def assign(self, state):
        raise ValueError("no idea")

class Tells(TaskAssignor):
    config_keys = (ConfigKey(name="tells.password", type="string", default=""),)
    def configure(self, configs):
        self.password = configs["tells.password"]
    def assign(self, state):
        raise ValueError(f"no answer to {self.password}")

class Refuses(TaskAssignor):
    def configure(self, configs):
        raise ValueError("not these")
    def assign(self, state):
        pass

class Exits(TaskAssignor):
    def assign(self, state):
        sys.exit(0)

class Panics(TaskAssignor):
    def assign(self, state):
        raise BaseException("out of bounds")

class Nothing(TaskAssignor):
    def assign(self, state):
        return None

class Hangs(TaskAssignor):
    def assign(self, state):
        threading.Event().wait()

class Reads(TaskAssignor):
    def assign(self, state):
        import subprocess
        print("read", subprocess.run(["cat"], stdout=subprocess.PIPE).stdout, sys.stdin.buffer.read(), flush=True)
        from task_assignor.builtin_assignors import StickyTaskAssignor
        return StickyTaskAssignor().assign(state)

class Closes(TaskAssignor):
    config_keys = (ConfigKey(name="closes.what", type="string", default="sys.stderr.close()"),)
    def configure(self, configs):
        self.what = configs["closes.what"]
    def assign(self, state):
        exec(self.what)
        logging.getLogger("task_assignor").warning("It has done it.")
        from task_assignor.builtin_assignors import StickyTaskAssignor
        return StickyTaskAssignor().assign(state)

class Unsayable(Exception):
    def __str__(self):
        raise ValueError("no words")

class UnsayableGiveUp(Unsayable, TaskAssignmentException):
    pass

class RaisesUnsayable(TaskAssignor):
    def assign(self, state):
        raise Unsayable

class GivesUpUnsayable(TaskAssignor):
    def assign(self, state):
        raise UnsayableGiveUp

class LeavesThread(TaskAssignor):
    def assign(self, state):
        threading.Thread(target=threading.Event().wait).start()
        from task_assignor.builtin_assignors import StickyTaskAssignor
        return StickyTaskAssignor().assign(state)

class Forks(TaskAssignor):
    config_keys = (ConfigKey(name="forks.hangs", type="boolean", default=False),)
    def configure(self, configs):
        self.hangs = configs["forks.hangs"]
    def assign(self, state):
        import multiprocessing, subprocess
        started = subprocess.Popen(["sleep", "1000"])
        forked = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
        forked.start()
        print("started", started.pid, forked.pid, ".", flush=True)
        if self.hangs:
            threading.Event().wait()
        from task_assignor.builtin_assignors import StickyTaskAssignor
        return StickyTaskAssignor().assign(state)

class Dies(TaskAssignor):
    config_keys = (ConfigKey(name="dies.file", type="string"),)
    def configure(self, configs):
        self.file = configs["dies.file"]
    def assign(self, state):
        import subprocess
        with open(self.file, "w") as file:
            file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
        os._exit(3)
"""


def error_of(message: bytes) -> str:
    assert message[0] == wire.ERROR, message
    return wire.error_text(message)


def test_a_worker_says_hello_and_answers() -> None:
    worker = Worker()
    assert "hello" in error_of(worker.answer(question()))
    assert worker.answer(hello("min-cost"))[0] == wire.WELCOME
    assert worker.answer(question())[0] == wire.ANSWER


def test_the_measures_of_java_and_of_python_come_with_a_shadow_answer() -> None:
    worker = Worker()
    worker.answer(hello())
    assert wire.text_bytes("lag_to_restore") in worker.answer(question(java=True))


def test_goals_that_were_perhaps_not_reached_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="task_assignor.bridge")
    worker = Worker()
    worker.answer(hello())
    assert worker.answer(question())[0] == wire.ANSWER
    assert caplog.messages == []

    def inexact(self: StickyTaskAssignor, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment([], inexact={"STANDBY_TAGS"})

    monkeypatch.setattr(StickyTaskAssignor, "assign", inexact)
    worker.answer(question())
    assert caplog.messages == ["The assignor StickyTaskAssignor: Perhaps not reached exactly: STANDBY_TAGS."]


def test_what_is_wrong_is_said() -> None:
    assert "version 99" in error_of(Worker().answer(hello(protocol=99)))
    assert "The setting python.task.assignor.class ('stiky')" in error_of(Worker().answer(hello("stiky")))
    assert "--allow" in error_of(Worker(frozenset(["sticky"])).answer(hello("high-availability")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


class Child:
    """`task-assignor bridge serve` as a Java application starts it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "task_assignor", "bridge", "serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
        )

    def send(self, message: bytes) -> None:
        assert self.process.stdin is not None
        write(self.process.stdin, message)

    def receive(self) -> bytes:
        assert self.process.stdout is not None
        return read(self.process.stdout)

    def ask(self, message: bytes) -> bytes:
        self.send(message)
        return self.receive()


def write(stream: Any, message: bytes) -> None:
    stream.write(struct.pack(">i", len(message)) + message)
    stream.flush()


def read(stream: Any) -> bytes:
    message: bytes = stream.read(struct.unpack(">i", stream.read(4))[0])
    return message


@pytest.fixture
def child(folder: Path) -> Iterator[Child]:
    running = Child(folder)
    yield running
    running.process.kill()
    running.process.communicate()


def test_a_child_answers_and_ends_with_its_input(child: Child) -> None:
    assert child.ask(hello())[0] == wire.WELCOME
    assert child.ask(question())[0] == wire.ANSWER
    assert child.ask(question(java=True))[0] == wire.ANSWER
    assert child.process.communicate(timeout=60)[0] == b""
    assert child.process.returncode == 0


def test_a_question_with_the_longest_timeout_does_not_end_the_child(child: Child) -> None:
    """No clock goes so far: it ended with a traceback, and whoever asked had no answer."""
    child.ask(hello())
    assert child.ask(question(timeout_ms=2**63 - 1))[0] == wire.ANSWER
    assert child.ask(question())[0] == wire.ANSWER


@pytest.mark.parametrize("name", [str(2**70), f"0_{2**70}", f"{-(2**70)}_0", f"9_{'9' * 41}"])
def test_an_id_that_java_cannot_have_is_refused_and_the_next_question_is_answered(child: Child, name: str) -> None:
    """Messages have no ids of their own, and numbers are of 32 or 64 bits; those of tasks are text."""
    child.ask(hello())
    strange = question().replace(wire.text_bytes("9_9"), wire.text_bytes(name))
    assert max(name.split("_"), key=len).strip("-") in error_of(child.ask(strange))
    assert child.ask(question())[0] == wire.ANSWER


def test_a_message_that_does_not_fit_into_memory_is_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    """The thread that reads died of it, and its process waited for ever."""

    class Full(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size == wire.LONGEST_MESSAGE:
                raise MemoryError
            return super().read(size)

    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    _Reader(Full(struct.pack(">i", wire.LONGEST_MESSAGE)), messages).run()
    assert messages.get_nowait() is None
    assert "too long for this process's memory" in caplog.text


def test_what_an_assignor_prints_does_not_get_between_the_answers(child: Child) -> None:
    welcome = child.ask(hello("bad.Prints"))
    assert b"prints.what" in welcome
    assert child.ask(question(settings={"prints.what": "so there"}))[0] == wire.ANSWER
    assert child.ask(question())[0] == wire.ANSWER
    assert b"to standard output so there" in child.process.communicate(timeout=60)[1]


def test_what_an_assignor_reads_is_none_of_the_questions(child: Child) -> None:
    """Nor what it starts: both had waited for the next question, and had taken it."""
    child.ask(hello("bad.Reads"))
    assert child.ask(question(timeout_ms=20_000))[0] == wire.ANSWER
    assert child.ask(question(timeout_ms=20_000))[0] == wire.ANSWER
    assert child.process.communicate(timeout=60)[1].count(b"read b'' b''") == 2


def test_a_thread_that_an_assignor_has_left_does_not_keep_the_child(child: Child) -> None:
    child.ask(hello("bad.LeavesThread"))
    assert child.ask(question())[0] == wire.ANSWER
    assert child.process.communicate(timeout=20)[0] == b""
    assert child.process.returncode == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "ValueError: no idea"),
        ("Exits", "SystemExit"),
        ("Panics", "BaseException: out of bounds"),
        ("Nothing", "The answer of the assignor is not valid: The answer (None) must be a TaskAssignment"),
        ("RaisesUnsayable", "The assignor RaisesUnsayable failed with Unsayable (bad.RaisesUnsayable.assign, line "),
        (
            "Refuses",
            "The setting python.task.assignor.class (bad.Refuses) must be an assignor that accepts the settings",
        ),
    ],
)
def test_a_child_whose_assignor_fails_says_so_and_ends(child: Child, name: str, said: str) -> None:
    """It lived on: what was mended or installed meanwhile had no effect until the application was restarted."""
    child.ask(hello(f"bad.{name}"))
    assert said in error_of(child.ask(question()))
    assert child.process.wait(60) == 0


def test_a_child_whose_assignor_asks_for_another_try_is_asked_again(child: Child) -> None:
    """It may be getting ready for it, which a new process would begin anew."""
    child.ask(hello("bad.GivesUpUnsayable"))
    said = "The assignor GivesUpUnsayable asks to keep the assignment and to try again: Unsayable"
    assert said in error_of(child.ask(question()))
    assert said in error_of(child.ask(question()))


def test_no_secret_of_a_setting_is_in_an_error_or_in_the_log(child: Child) -> None:
    """An assignor may say any of its settings when it fails; both were in the application's log."""
    child.ask(hello("bad.Tells"))
    said = error_of(child.ask(question(settings={"tells.password": "hunter2"})))
    assert said.startswith("The assignor Tells failed with ValueError: no answer to [hidden] (bad.Tells.assign, line ")
    told = child.process.communicate(timeout=60)[1]
    assert b"ValueError: no answer to [hidden]" in told
    assert b"hunter2" not in told


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("sys.stderr.close()", marks=pytest.mark.thorough),
        "sys.stdout.close(), sys.stderr.close()",
        pytest.param("os.close(2)", marks=pytest.mark.thorough),
        "os.close(0), os.close(1), os.close(2)",
        "os.closerange(0, 3), sys.stderr.close()",
        pytest.param("setattr(sys, 'stderr', None)", marks=pytest.mark.thorough),
        pytest.param("logging.shutdown(), sys.stderr.close()", marks=pytest.mark.thorough),
    ],
)
def test_an_assignor_that_closes_what_is_shared_does_not_end_the_child(child: Child, what: str) -> None:
    """With sys.stderr closed Python aborted the process (exit code -6) at the next question."""
    child.ask(hello("bad.Closes"))
    for _ in range(3):
        assert child.ask(question(settings={"closes.what": what}, timeout_ms=20_000))[0] == wire.ANSWER
    told = child.process.communicate(timeout=60)[1]
    assert child.process.returncode == 0, told
    assert told.count(b"It has done it.") == 3


def test_a_child_that_hangs_ends_when_nobody_waits_any_more(child: Child) -> None:
    child.ask(hello("bad.Hangs"))
    child.send(question(timeout_ms=100))
    assert child.process.wait(60) != 0
    assert b"Timeout" in child.process.communicate()[1]


def test_a_child_that_hangs_says_where_while_somebody_waits(child: Child) -> None:
    """Java kills it at the end of its wait, and nobody knew where it had been."""
    child.ask(hello("bad.Hangs"))
    child.send(question(timeout_ms=2_000))
    assert child.process.stderr is not None
    while b"has not decided" not in (line := child.process.stderr.readline()):
        assert line
    assert b"for 1000 ms" in line
    assert b"It is in bad.Hangs.assign, line " in line


def test_a_child_that_is_busy_ends_with_its_input(child: Child) -> None:
    child.ask(hello("bad.Hangs"))
    child.send(question(timeout_ms=10_000_000))
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.process.wait(60) in (0, -signal.SIGTERM)
    child.process.stdin = None


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_what_an_assignor_has_started_ends_with_the_child(child: Child, is_busy: bool) -> None:
    child.ask(hello("bad.Forks"))
    child.send(question(settings={"forks.hangs": str(is_busy).lower()}))
    assert child.process.stdin is not None
    assert child.process.stderr is not None
    while b"started" not in (line := child.process.stderr.readline()):
        assert line
    started = [int(word) for word in line.split() if word.isdigit()]
    assert len(started) == 2
    if not is_busy:
        assert child.receive()[0] == wire.ANSWER
    child.process.stdin.close()
    child.process.wait(60)
    child.process.stdin = None
    wait_until(lambda: not any(map(runs, started)), "what it started ends, too")


def runs(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return listed.strip()[:1] not in ("", "Z")


@pytest.mark.thorough
def test_the_memory_of_a_child_is_flat(child: Child) -> None:
    """Hundreds of questions; it may have a little more in the end than when it was warm."""
    child.ask(hello())
    warm = 0
    for number in range(400):
        assert child.ask(question(java=number % 2 == 0))[0] == wire.ANSWER
        if number == 150:
            warm = resident_bytes(child.process.pid)
    assert resident_bytes(child.process.pid) < warm + (2 << 20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "this is not the bridge's Java side"),
        (["--allow", "sticky"], "Error: --allow is for --listen"),
        # Whoever asked for it was told so in every rebalance, and nobody else.
        (
            ["--listen", "127.0.0.1:0", "--allow", "sticky", "--allow", "no.such.Thing"],
            "Error: --allow ('no.such.Thing') must be a TaskAssignor class, the dotted path of one, or a registered name. ",
        ),
        (["--listen", "127.0.0.1:0", "--allow", "os.system"], "('os.system') must be a TaskAssignor class, the"),
    ],
)
def test_what_the_command_cannot_do_is_told_with_exit_code_2(options: list[str], said: str) -> None:
    """It was 0, of the option without a word."""
    command = [sys.executable, "-m", "task_assignor", "bridge", "serve", *options]
    done = subprocess.run(command, input="{ text }", check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("closed", "said"), [("<&-", "input cannot be read"), (">&-", "output cannot be written")])
def test_streams_that_are_closed_are_one_error(closed: str, said: str) -> None:
    """It ended with 0 as if the application had, or with the traceback of a message that could not be logged."""
    command = f"{PYTHON} -m task_assignor bridge serve {closed}"
    done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=60, input="")
    assert done.returncode == 2
    assert re.fullmatch(rf"Error: [Ss]tandard {said}: it is closed\.\n", done.stderr)


def test_a_server_without_standard_error_serves(tmp_path: Path) -> None:
    """As one that an init script starts: it ended at once, with nobody to tell."""
    command = f"exec {PYTHON} -m task_assignor bridge serve --listen unix:{tmp_path}/here 2>&-"
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"python.task.assignor.address=unix:{tmp_path}/here\n"
        process.terminate()
    assert process.returncode == 0
