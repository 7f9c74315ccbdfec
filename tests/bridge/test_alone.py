"""The Java side without a broker: what disks, and the Python that it asks, may do to it."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from task_assignor.bridge.keys import KEYS, PREFIX, PYTHON_CLASS, RECORDING_CLASS, SHADOW_CLASS
from tests.kafka.fixtures import wait_until
from tests.kafka.jars import JVM_OPTIONS, java_command
from tests.processes import alive

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("streams")]
SERVE = shlex.join([sys.executable, "-m", "task_assignor", "bridge", "serve"])
SERVE_IN_QUOTES = f'"{sys.executable}" -m task_assignor bridge serve'
NOBODY = "there-is-no-such-program"
ROUNDS = 8
FLOODS = """
import os
from task_assignor.builtin_assignors import StickyTaskAssignor

rest = [b"x" * 50_000_000]

class Floods(StickyTaskAssignor):
    def assign(self, state):
        while rest:
            os.write(2, rest.pop())
        for number in range(5_000):
            print("line", number)
        return super().assign(state)
"""
DIES = """
import os, pathlib, signal, subprocess
from task_assignor.builtin_assignors import StickyTaskAssignor

class Dies(StickyTaskAssignor):
    def assign(self, state):
        started = pathlib.Path("started")
        if not started.exists():
            started.write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().assign(state)
"""
DIES_WHEN_ASKED = """
import struct, sys, time

def read():
    return sys.stdin.buffer.read(struct.unpack(">i", sys.stdin.buffer.read(4))[0])

read()
time.sleep(2.2)
welcome = struct.pack(">biicxxxx", 2, 1, 1, b"1")
sys.stdout.buffer.write(struct.pack(">i", len(welcome)) + welcome)
sys.stdout.buffer.flush()
read()
sys.exit(3)
"""
BREAKS = """
import fcntl, pathlib, time
from task_assignor.builtin_assignors import StickyTaskAssignor

folder, questions = pathlib.Path("records"), []

class Breaks(StickyTaskAssignor):
    def assign(self, state):
        questions.append(state)
        if len(questions) == 2:
            while not (folder / "decisions.jsonl").exists():
                time.sleep(0.01)
            with (folder / ".lock").open("r+") as lock, (folder / "states.jsonl").open("a") as file:
                fcntl.lockf(lock, fcntl.LOCK_EX)
                file.write('{"id": "no decision"}\\n{"half')
                file.flush()
        return super().assign(state)
"""


def rebalance(
    java: str, folder: Path, *others: str, shell: str = "", chosen: str = PYTHON_CLASS, **settings: object
) -> str:
    """Let a JVM with little memory decide some times; what it says. `settings` with underscores for dots."""
    command = [java_command(), *JVM_OPTIONS, "-Xmx48m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-Dorg.slf4j.simpleLogger.log.taskassignor=info", "-cp", java, "BridgeBench", "100", "4", str(ROUNDS)]
    named = {"timeout_ms": 60_000, **settings}
    command += [f"{PREFIX}{key.replace('_', '.')}={value}" for key, value in named.items()]
    command += ["session.timeout.ms=180000", *others, chosen]
    words = ["sh", "-c", f'{shell} exec "$@"', "sh", *command] if shell else command
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    # Every round had an assignment, of whomever, and no exception.
    if chosen == PYTHON_CLASS:
        assert done.stderr.count("placed 100 tasks") + done.stderr.count("No assignment") == ROUNDS
    return done.stderr


def recorded(folder: Path) -> list[str]:
    """Ids of what is recorded, after states and decisions were seen to be whole and side by side."""
    ids = []
    for name in ("states", "decisions"):
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        ids.append([json.loads(line)["id"] for line in lines])
    assert ids[0] == ids[1]
    return ids[0]


@pytest.mark.thorough
def test_a_python_that_floods_its_output_fills_neither_memory_nor_log(java: str, tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(FLOODS)
    said = rebalance(java, tmp_path, command=SERVE, **{"class": "plug.Floods"})
    assert said.count("placed 100 tasks") == ROUNDS
    assert said.count("python: ") < 2_200
    assert "more than 1000 lines within a minute: the others are left out" in said


def test_how_python_ended_is_said(java: str, tmp_path: Path) -> None:
    advice = f"Maybe the setting {PREFIX}command (%s) is wrong"
    ended = f"Python ended without an answer, with exit code 3. {advice % 'sh'}"
    assert ended in rebalance(java, tmp_path, command="sh -c 'exit 3'")
    said = rebalance(java, tmp_path, command=NOBODY)
    assert f'Cannot run program "{NOBODY}"' in said
    assert advice % NOBODY in said
    assert "nobody listens at 127.0.0.1:9: " in rebalance(java, tmp_path, address="127.0.0.1:9")
    assert "address unix:b.sock must be host:port or unix:/path" in rebalance(java, tmp_path, address="unix:b.sock")


def test_what_is_printed_before_python_starts_is_no_length_of_an_answer(java: str, tmp_path: Path) -> None:
    """It begins with a digit: Python was still starting, for ever."""
    said = rebalance(java, tmp_path, command=f"sh -c 'echo 2026-01-01 starts; exec {SERVE_IN_QUOTES}'")
    assert said.count("what came is not a message of the bridge. Maybe what starts Python prints something") == ROUNDS


def test_what_an_assignor_has_started_ends_with_a_python_that_is_killed(java: str, tmp_path: Path) -> None:
    """It was nobody's descendant then, and lived on for longer than the application."""
    (tmp_path / "plug.py").write_text(DIES)
    said = rebalance(java, tmp_path, command=SERVE, **{"class": "plug.Dies"})
    assert said.count("placed 100 tasks") == ROUNDS - 1
    assert "exit code 137" in said
    wait_until(lambda: not alive(int((tmp_path / "started").read_text())), "what it started ends, too")


@pytest.mark.thorough
def test_a_python_that_is_slow_to_start_is_let_live_and_asked_with_all_the_time_there_is(
    java: str, tmp_path: Path
) -> None:
    slow = f"sh -c 'sleep 3.5; exec {SERVE_IN_QUOTES}'"
    said = rebalance(java, tmp_path, command=slow, timeout_ms=6_000)
    assert "(Python has only just started)" in said or "(Python is still starting after 6000 ms)" in said
    assert "placed 100 tasks" in said
    assert "no answer within" not in said


@pytest.mark.thorough
def test_a_python_that_dies_whenever_it_is_asked_is_not_said_to_be_starting(java: str, tmp_path: Path) -> None:
    """The group asked again every five seconds, for ever: each time the next one was not ready yet, and nothing else was said."""
    (tmp_path / "dies.py").write_text(DIES_WHEN_ASKED)
    said = rebalance(java, tmp_path, command=shlex.join([sys.executable, "dies.py"]), timeout_ms=4_000)
    assert said.count("(Python has only just started)") == 1
    assert said.count("Python ended without an answer, with exit code 3") == ROUNDS - 1
    # The start was no failure that makes the group wait longer.
    assert re.findall(r"again in (\d+) s", said)[:4] == ["5", "60", "120", "240"]


def test_a_start_that_was_given_up_ends_what_it_opens_and_has_no_part_in_the_next(java: str, tmp_path: Path) -> None:
    """Both wrote the same fields: one process was left, or its answers were taken for those of the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        for setting, end in (
            (f"command={shlex.join([sys.executable, '-c', 'import time; time.sleep(300)'])}", "\nended"),
            (f"address=127.0.0.1:{server.getsockname()[1]}", ""),
        ):
            command = [java_command(), *JVM_OPTIONS, "-cp", java, "taskassignor.GivenUpStart", f"{PREFIX}{setting}"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
            assert done.stdout.strip() == f"it was given up while it started{end}"
        with server.accept()[0] as accepted:
            assert accepted.recv(1) == b""


def test_settings_that_cannot_be_are_said_and_replaced(java: str, tmp_path: Path) -> None:
    said = rebalance(java, tmp_path, command=NOBODY, retry_ms=2**40, timeout_ms="soon")
    assert "retry.ms (1099511627776) must be an integer between 1000 and 2147483647; 60000 is used" in said
    assert "timeout.ms (soon) must be an integer" in said


def test_settings_that_are_none_are_said(java: str, tmp_path: Path) -> None:
    """Kafka's own line names those that are, too; `bridge check` was the only one to know."""
    known = dict.fromkeys((key.removeprefix(PREFIX) for key in KEYS), "1000")
    said = rebalance(java, tmp_path, **(known | {"command": NOBODY, "timeout_s": "5"}))
    assert said.count("is not a setting of the bridge; it changes nothing") == ROUNDS
    assert f"{PREFIX}timeout.s is not a setting of the bridge" in said


def test_who_interrupts_the_thread_of_an_application_is_not_unheard(java: str, tmp_path: Path) -> None:
    assert rebalance(java, tmp_path, "interrupt=yes", command=SERVE).count("\ninterrupted\n") == ROUNDS


def test_an_assignor_in_java_is_told_what_became_of_its_assignment(java: str, tmp_path: Path) -> None:
    """As without the bridge; it was asked, and heard no more. What it raises then does not end the thread."""
    for chosen in (SHADOW_CLASS, RECORDING_CLASS):
        said = rebalance(java, tmp_path, chosen=chosen, command=NOBODY, java_class="Listening", record_dir=tmp_path)
        assert said.count("bench was told NONE") == ROUNDS
        assert said.count("Listening failed when it was told of its assignment: ") == ROUNDS


def test_what_a_killed_instance_left_half_written_is_deleted(java: str, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    rebalance(java, tmp_path, command=NOBODY, record_dir=folder)
    before = recorded(folder)
    assert len(before) == ROUNDS
    with (folder / "states.jsonl").open("a") as file:
        file.write('{"id": "no decision"}\n{"half')
    rebalance(java, tmp_path, command=NOBODY, record_dir=folder)
    assert len(recorded(folder)) == 2 * ROUNDS
    assert recorded(folder)[:ROUNDS] == before


def test_what_another_instance_left_half_written_is_deleted_when_this_one_leads_again(
    java: str, tmp_path: Path
) -> None:
    """Only what was there at the first state was looked at: from then on states stood beside others' decisions."""
    folder = tmp_path / "records"
    (tmp_path / "plug.py").write_text(BREAKS)
    said = rebalance(java, tmp_path, command=SERVE, record_dir=folder, **{"class": "plug.Breaks"})
    assert said.count("placed 100 tasks") == ROUNDS
    assert len(recorded(folder)) == ROUNDS


def test_a_full_disk_leaves_what_was_recorded_as_it_was(java: str, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    said = rebalance(java, tmp_path, shell="ulimit -f 200;", command=NOBODY, record_dir=folder)
    assert "A state could not be recorded" in said
    assert 0 < len(recorded(folder)) < ROUNDS


def test_a_folder_that_cannot_be_is_said(java: str, tmp_path: Path) -> None:
    said = rebalance(java, tmp_path, command=NOBODY, record_dir=os.devnull + "/records")
    assert said.count("A state could not be recorded in /dev/null/records") == ROUNDS


def test_what_is_recorded_is_bounded(java: str, tmp_path: Path) -> None:
    folder, most = tmp_path / "records", 150_000
    rebalance(java, tmp_path, command=NOBODY, record_dir=folder, record_max_bytes=most)
    files = {file.name: file.stat().st_size for file in folder.glob("*.jsonl")}
    assert most / 2 < sum(files.values()) <= most
    assert len(files) == 2 * len([name for name in files if name.startswith("states")]) > 2
    assert len(recorded(folder)) >= 1
    said = rebalance(java, tmp_path, command=NOBODY, record_dir=tmp_path / "none", record_max_bytes=10_000)
    assert "bytes does not fit: python.task.assignor.record.max.bytes is 10000" in said
