"""Kafka's own classes in a living JVM: builds the harness in `java/`, starts it once, asks it questions line by line."""

from __future__ import annotations

import hashlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import attrs

from task_assignor.bridge import jar_path
from task_assignor.sdk import ApplicationState, TaskAssignment
from task_assignor.sdk.snapshot import state_to_json
from task_assignor.sdk.snapshot_assignment import assignment_to_json

FOLDER = Path(__file__).parent
TARGET = FOLDER / "target"
BUILD_SECONDS = 600
ANSWER_SECONDS = 120


class JvmBuildError(Exception):
    """The harness could not be built: no network for Maven, an unsuitable JDK, ..."""


@attrs.frozen
class Answer:
    """What Kafka answered.

    Args:
        value: the answer; empty if it threw.
        exception: simple name of the class that was thrown; None: none.
        message: its message.
    """

    value: Mapping[str, Any] = attrs.field(factory=dict)
    exception: str | None = None
    message: str = ""


def build() -> str:
    """Compile the harness, unless that was done with these very sources.

    Returns:
        The class path.

    Raises:
        JvmBuildError: Maven or javac failed.
    """
    sources = sorted((FOLDER / "java").rglob("*.java"))
    digest = hashlib.sha256()
    for path in (FOLDER / "pom.xml", jar_path(), *sources):
        digest.update(path.read_bytes())
    classes = TARGET / digest.hexdigest()[:16]
    class_path = classes / "class-path.txt"
    if not class_path.exists() or not all(Path(jar).exists() for jar in class_path.read_text().split(":")):
        classes.mkdir(parents=True, exist_ok=True)
        unfinished = classes / "unfinished.txt"
        _run(
            *("mvn", "-q", "-B", "-f", str(FOLDER / "pom.xml"), "dependency:build-classpath"),
            *("-DincludeScope=runtime", f"-Dmdep.outputFile={unfinished}"),
        )
        libraries = f"{unfinished.read_text().strip()}:{jar_path()}"
        _run(
            "javac",
            "-J-XX:TieredStopAtLevel=1",
            "-nowarn",
            "-Xlint:-options",
            "--release",
            "17",
            "-cp",
            libraries,
            "-d",
            str(classes),
            *map(str, sources),
        )
        unfinished.write_text(f"{classes}:{libraries}")
        unfinished.rename(class_path)
    return class_path.read_text()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JvmBuildError(f"{command[0]} failed: {error}") from error
    if done.returncode:
        text = (done.stdout + done.stderr).strip()
        raise JvmBuildError(f"{command[0]} failed with exit code {done.returncode}: {text[-2000:]}")


class Jvm:
    """One JVM for all questions."""

    def __init__(self) -> None:
        # Short-lived: neither the second compiler nor a large heap would pay.
        self._process = subprocess.Popen(
            ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx1g", "-cp", build(), "taskassignor.Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.put(line)
        self._lines.put("")

    def ask(
        self,
        operation: str,
        state: ApplicationState,
        assignment: TaskAssignment | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Answer:
        """What Kafka makes of a state.

        Args:
            operation: `ha`, `sticky`, `legacy_sticky`, `fallback_prior`, `identity`, `validate`, `default_standby`,
                `optimize_active`, `optimize_standby`.
            state: a state with lags, whose topologies are all named or all unnamed (Kafka cannot sort them otherwise).
            assignment: input of the operations that take one.
            params: `tasks`, `trafficCost`, `nonOverlapCost`, `mustPreserveActiveTaskAssignment`.
        """
        question: dict[str, Any] = {
            "operation": operation,
            "state": question_state(state),
            "params": dict(params or {}),
        }
        if assignment is not None:
            question["assignment"] = assignment_to_json(assignment)
        return self.ask_json(question)

    def ask_json(self, question: Mapping[str, Any]) -> Answer:
        """The answer to a question as it goes over the line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise AssertionError(f"The JVM did not answer within {ANSWER_SECONDS} s.") from None
        assert line, f"The JVM ended with exit code {self._process.wait()}."
        reply = json.loads(line)
        return Answer(reply.get("answer") or {}, reply.get("exception"), reply.get("message", ""))

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def question_state(state: ApplicationState) -> dict[str, Any]:
    """The snapshot of a state with the lag of every client for every task that has a changelog, as Kafka wants it."""
    document = dict(state_to_json(state))
    clients = state.kafka_streams_states(compute_task_lags=True)
    document["clients"] = [
        {**client, "taskLags": {str(task): lag for task, lag in one.stateful_tasks_to_lag_sums.items()}}
        for client, one in zip(document["clients"], clients.values(), strict=True)
    ]
    return document
