"""Runs one case in this process: `python -m benchmarks.worker NAME`. A process of its own per case gives its peak memory."""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import attrs

from benchmarks.case import Case, Facts, Timed
from benchmarks.catalogue import find_case

MOST_RUNS = 9
BUDGET_S = 3.0
"""Runs after the first: as many as fit, to get a median."""


@attrs.frozen
class Run:
    """What one process measured.

    Args:
        seconds: wall time of every call, in order.
        cpu_seconds: processor time of the same.
        prepare_s: wall time for the inputs.
        input_bytes: peak memory when the inputs were there.
        peak_bytes: peak memory in the end.
        facts: what the case says of the first answer.
    """

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    prepare_s: float
    input_bytes: int
    peak_bytes: int
    facts: Facts


def peak_bytes() -> int:
    """Most memory that this process ever had."""
    try:
        # Unlike ru_maxrss it does not begin with what the parent had when it started this process.
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run_case(case: Case, budget_s: float = BUDGET_S) -> Run:
    """Measure a case here and now.

    Args:
        case: the case.
        budget_s: go on calling it for so long.
    """
    start = time.perf_counter()
    work = case.prepare()
    prepare_s = time.perf_counter() - start
    gc.collect()
    input_bytes = peak_bytes()
    result, wall, cpu = _timed(work)
    walls, cpus = [wall], [cpu]
    facts = dict(case.describe(result))
    # The kernel counts roughly: what it calls the peak may shrink by some pages.
    peak = max(input_bytes, peak_bytes())
    del result
    # The last call is counted as if it were to come again.
    while len(walls) < MOST_RUNS and sum(walls) + walls[-1] < budget_s:
        _, wall, cpu = _timed(work)
        walls.append(wall)
        cpus.append(cpu)
    return Run(tuple(walls), tuple(cpus), prepare_s, input_bytes, peak, facts)


def _timed(work: Any) -> tuple[Any, float, float]:
    start, cpu_start = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    if isinstance(result, Timed):
        return result.result, result.seconds, cpu
    return result, wall, cpu


def main() -> None:
    """Measure one case and print what came out as JSON; or write the input for its peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first-call-only", action="store_true", help="call it once")
    parser.add_argument("--scenario", type=Path, help="write the input of the Java harness to this file instead")
    arguments = parser.parse_args()
    case = find_case(arguments.name, arguments.quick)
    if arguments.scenario is not None:
        if case.jvm is None:
            raise SystemExit(f"{case.name} has no peer in a JVM.")
        arguments.scenario.write_text(case.jvm.scenario() + "\n", encoding="utf-8")
        return
    run = run_case(case, 0.0) if arguments.first_call_only else run_case(case)
    print(json.dumps(attrs.asdict(run)), flush=True)


if __name__ == "__main__":
    main()
