"""Starts a process per case and collects what it measured; judges goals. How it looks on the screen is in `table.py`."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import attrs
import numpy as np

from benchmarks.case import Case
from benchmarks.jvm import JvmRun, recorded, time_in_jvm
from benchmarks.worker import Run

ROOT = Path(__file__).parents[1]
SHORT_S = 1.0
PROCESSES = 5
"""A first call shorter than that is measured in so many processes: loading libraries takes 30 ms in one and 60 in the next."""


@attrs.frozen
class Measurement:
    """A case and its figures.

    Args:
        case: the case.
        run: ours; None: see `problem`.
        first_calls: seconds of the first call in every process that was started for it, `run`'s first.
        problem: why there is no run.
        jvm: the JVM's, measured now; None: not asked for, or there is no such peer.
        recorded: the JVM's, measured before.
        remark: how the two answers compare.
    """

    case: Case
    run: Run | None = None
    first_calls: tuple[float, ...] = ()
    problem: str | None = None
    jvm: JvmRun | None = None
    recorded: JvmRun | None = None
    remark: str = ""

    @property
    def first_s(self) -> float | None:
        """The first call in a fresh process; the median where it was measured in several."""
        return statistics.median(self.first_calls) if self.first_calls else None

    @property
    def again_s(self) -> float | None:
        """Median of the later calls."""
        return None if self.run is None or len(self.run.seconds) < 2 else statistics.median(self.run.seconds[1:])


def measure(case: Case, is_quick: bool = False, jvm_limit_s: float | None = None) -> Measurement:
    """Measure a case in a process of its own (a short first call in several), then its peer in a JVM of its own.

    Args:
        case: the case.
        is_quick: tiny sizes.
        jvm_limit_s: stop the JVM after so long; None: no JVM.
    """
    missing = [package for package in case.needs if find_spec(package) is None]
    if missing:
        return Measurement(case, problem=f"needs {', '.join(missing)}")
    arguments = [case.name, *(["--quick"] if is_quick else [])]
    output, problem = _worker(arguments, case.limit_s)
    run = None if problem else Run(**json.loads(output))
    first_calls = [] if run is None else [run.seconds[0]]
    if first_calls and first_calls[0] < SHORT_S and not (is_quick or case.is_heavy or case.series):
        for _ in range(PROCESSES - 1):
            output, problem = _worker([*arguments, "--first-call-only"], case.limit_s)
            if problem:
                return Measurement(case, problem=problem)
            first_calls.append(Run(**json.loads(output)).seconds[0])
    measured = Measurement(
        case, run, tuple(first_calls), problem, recorded=None if is_quick else recorded(case.recorded)
    )
    if case.jvm is None or jvm_limit_s is None or run is None:
        return measured
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.jsonl"
        _, problem = _worker([*arguments, "--scenario", str(scenario)], case.limit_s)
        jvm = JvmRun(problem=problem) if problem else time_in_jvm(scenario, jvm_limit_s)
    compare = case.jvm.compare
    remark = compare(run.facts, jvm.answer) if compare is not None and jvm.answer is not None else ""
    return attrs.evolve(measured, jvm=attrs.evolve(jvm, answer=None), remark=remark)


def _worker(arguments: Sequence[str], limit_s: float) -> tuple[str, str | None]:
    """Output of a worker process, or what went wrong."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "", f">{limit_s:g} s"
    except BaseException:
        # It is in a session of its own, so that it can be ended with its children: an interrupt does not reach it.
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return "", f"failed: {last}"
    return output, None


def peer_of(measured: Measurement, others: Mapping[str, Measurement]) -> tuple[float, bool] | None:
    """The peer's time of its first call, and whether that is only a lower limit: measured now, else recorded.

    A JVM that was stopped tells less than a recorded figure that is longer.
    """
    if measured.case.against is not None:
        other = others.get(measured.case.against)
        return None if other is None or other.first_s is None else (other.first_s, False)
    found: list[tuple[float, bool]] = []
    for peer in (measured.jvm, measured.recorded):
        if peer is not None and peer.seconds:
            found.append((peer.seconds[0], False))
        elif peer is not None and peer.longer_than is not None:
            found.append((peer.longer_than, True))
    if not found:
        return None
    if found[0][1] and len(found) > 1 and found[1][0] > found[0][0]:
        return found[1]
    return found[0]


def verdict(measured: Measurement, others: Mapping[str, Measurement]) -> bool | None:
    """Whether the goal is met; None: there is none, or it cannot be said."""
    goal, run, first_s = measured.case.goal, measured.run, measured.first_s
    if goal is None:
        return None
    if run is None or first_s is None:
        return False
    verdicts: list[bool | None] = []
    if goal.seconds is not None:
        verdicts.append(first_s <= goal.seconds)
    if goal.gigabytes is not None:
        verdicts.append(run.peak_bytes <= goal.gigabytes * 1e9)
    if goal.times_faster is not None:
        peer = peer_of(measured, others)
        if peer is None:
            verdicts.append(None)
        else:
            is_met = peer[0] >= first_s * goal.times_faster
            verdicts.append(is_met if is_met or not peer[1] else None)
    if not verdicts:
        return None
    return False if False in verdicts else None if None in verdicts else True


@attrs.frozen
class Growth:
    """How a series grows.

    Args:
        name: the series.
        measured: its measurements, by size.
        exponent: time ~ size^exponent, fitted over all sizes; None: fewer than two figures.
        last_exponent: the same between the two greatest sizes.
    """

    name: str
    measured: tuple[Measurement, ...]
    exponent: float | None
    last_exponent: float | None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal of the exponent is met."""
        goal = self.measured[0].case.goal
        if goal is None or goal.exponent is None:
            return None
        if any(one.run is None for one in self.measured):
            return False
        return None if self.exponent is None else self.exponent <= goal.exponent


def growths(measured: Sequence[Measurement]) -> list[Growth]:
    """The series among the measurements, in order."""
    names = dict.fromkeys(one.case.series for one in measured if one.case.series is not None)
    return [_growth(name, [one for one in measured if one.case.series == name]) for name in names]


def _growth(name: str, measured: Sequence[Measurement]) -> Growth:
    ordered = tuple(sorted(measured, key=lambda one: one.case.size))
    points = [(one.case.size, least_cpu_s(one.run)) for one in ordered if one.run is not None]
    if len(points) < 2:
        return Growth(name, ordered, None, None)
    return Growth(name, ordered, fitted_exponent(points), fitted_exponent(points[-2:]))


def least_cpu_s(run: Run) -> float:
    """Processor time of the fastest call: long and short runs alike, whatever else the machine does."""
    return min(run.cpu_seconds)


def fitted_exponent(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the straight line through (log size, log time) with least squares."""
    size, seconds = np.log(np.array(points)).T
    return float(np.polyfit(size, seconds, 1)[0])
