"""A rebalance of a Java application: a Python assignor asked through the bridge, and Java's own default beside it.

Both in one run of a JVM each, on the same made-up state; the time is the median of warm calls inside the JVM, from Kafka's
objects to Kafka's objects. Without a JDK or Kafka's jars the cases say so.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.case import Case, Facts, Goal, Timed, Work

ROUNDS: Final = 15
PYTHON: Final = "taskassignor.PythonTaskAssignor"
JAVA: Final = "taskassignor.RecordingTaskAssignor"


def cases(is_quick: bool) -> list[Case]:
    """Tasks x clients; one client is new, every task has a standby."""
    found = []
    for tasks, clients, seconds in ((1_000, 10, 0.025), (10_000, 50, 0.3)):
        name, goal = f"bridge/{tasks}x{clients}", Goal(seconds=seconds)
        if is_quick:
            tasks, clients = tasks // 50, clients // 5
        found += [
            Case(f"{name} Java's default", _work(tasks, clients, JAVA), describe=_facts, is_heavy=True),
            Case(
                f"{name} sticky in Python",
                _work(tasks, clients, PYTHON),
                describe=_facts,
                goal=goal,
                against=f"{name} Java's default",
                is_heavy=True,
            ),
        ]
    return found


def _work(tasks: int, clients: int, assignor: str) -> Callable[[], Work]:
    def prepare() -> Work:
        from tests.bridge.streams import compiled
        from tests.kafka.jars import java_command

        folder = tempfile.TemporaryDirectory()
        java = compiled(Path(folder.name))
        serve = shlex.join([sys.executable, "-m", "task_assignor", "bridge", "serve"])
        settings = [f"python.task.assignor.command={serve}", f"state.dir={folder.name}"]
        settings += ["python.task.assignor.timeout.ms=60000", "session.timeout.ms=180000"]
        # Java's default says all that it decides, which is longer than it takes.
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        command = [java_command(), "-Xmx2g", quiet, "-cp", java, "BridgeBench", str(tasks), str(clients), str(ROUNDS)]

        def work() -> Timed:
            assert Path(folder.name).exists()  # It goes with the last reference: this process asks again and again.
            done = subprocess.run([*command, *settings, assignor], capture_output=True, text=True, check=True)
            if "No assignment" in done.stderr:
                raise RuntimeError(done.stderr[-500:])
            first, median = map(float, done.stdout.split()[1:3])
            return Timed(median / 1000, {"first call ms": first})

        return work

    return prepare


def _facts(result: Facts) -> Facts:
    return result
