"""Times of Kafka's own classes: one JVM per case, through the project's harness in `tests/jvm`; and the figures recorded before."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import attrs

RECORDED = Path(__file__).with_name("recorded.json")
JAVA_OPTIONS = ("-Xmx2g",)
MOST_RUNS = 7
BUDGET_S = 10.0
"""Runs after the first: as many as fit, to get a median of a warm JVM."""


@attrs.frozen
class JvmRun:
    """What a JVM took.

    Args:
        seconds: wall time of every call of Kafka's code, in order, the first one in a fresh JVM; empty: stopped.
        cpu_seconds: processor time of the calling thread (without compiler and garbage collector).
        longer_than: stopped after so many seconds.
        answer: what Kafka answered.
        problem: why there are no figures.
        is_recorded: measured before, elsewhere.
    """

    seconds: tuple[float, ...] = ()
    cpu_seconds: tuple[float, ...] = ()
    longer_than: float | None = None
    answer: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    problem: str | None = None
    is_recorded: bool = False


def why_not() -> str | None:
    """What is missing for a JVM; None: nothing."""
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    return f"not on the path: {', '.join(missing)}" if missing else None


@cache
def class_path() -> str:
    """The harness, compiled; needs Maven and its network the first time."""
    from tests.jvm.jvm import build

    return build()


def time_in_jvm(scenario: Path, limit_s: float) -> JvmRun:
    """Ask a fresh JVM the same question again and again.

    Args:
        scenario: a file with the question, one line.
        limit_s: stop it when a call has taken so long.
    """
    process = subprocess.Popen(
        ["java", *JAVA_OPTIONS, "-cp", class_path(), "taskassignor.Main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    question = scenario.read_bytes()
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    answer: Mapping[str, Any] | None = None
    try:
        while not seconds or (len(seconds) <= MOST_RUNS and sum(seconds) + seconds[-1] < BUDGET_S):
            text = _ask(process, process.stdin, process.stdout, question, limit_s)
            if text is None:
                return JvmRun(longer_than=limit_s)
            reply = json.loads(text)
            if "answer" not in reply:
                return JvmRun(problem=f"{reply.get('exception')}: {reply.get('message')}")
            answer = reply["answer"]
            seconds.append(reply["millis"] / 1000)
            cpu_seconds.append(reply["cpuMillis"] / 1000)
    except (OSError, ValueError, KeyError) as error:
        return JvmRun(problem=f"the harness did not answer ({error!r})")
    finally:
        process.kill()
        process.wait()
    return JvmRun(tuple(seconds), tuple(cpu_seconds), answer=answer)


def _ask(
    process: subprocess.Popen[bytes], questions: IO[bytes], answers: IO[bytes], question: bytes, limit_s: float
) -> bytes | None:
    """One answer; None if it does not come in time (then the JVM is dead)."""
    watch = threading.Timer(limit_s, process.kill)
    watch.start()
    try:
        questions.write(question)
        questions.flush()
        answer = answers.readline()
    except BrokenPipeError:
        answer = b""
    finally:
        in_time = watch.is_alive()
        watch.cancel()
    if not answer and in_time:
        raise OSError(f"the JVM ended with exit code {process.wait()}")
    return answer or None


@cache
def _recorded_figures() -> Mapping[str, Any]:
    figures: Mapping[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return figures


def recorded_source() -> str:
    """Where the recorded figures come from."""
    return str(_recorded_figures()["source"])


def recorded(key: str | None) -> JvmRun | None:
    """The recorded figure of that name, if there is one."""
    figures = _recorded_figures()
    if key in figures["longer_than"]:
        return JvmRun(longer_than=figures["longer_than"][key], is_recorded=True)
    found = figures["idle"].get(key) or figures["shared"].get(key)
    if found is None:
        return None
    return JvmRun(tuple(value for value in found if value is not None), is_recorded=True)
