"""`python -m benchmarks`: which cases to measure, and where the figures go."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.case import Case
from benchmarks.catalogue import all_cases
from benchmarks.jvm import class_path, why_not
from benchmarks.machine import describe_machine
from benchmarks.measure import Measurement, measure
from benchmarks.table import WIDTH, as_json, print_cases, print_table

JVM_LIMIT_S = 60.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Print a table of figures, ours beside the peers', with the yardsticks. It never decides a test.",
    )
    made.add_argument("--only", metavar="PATTERN", help="only cases in whose name this regular expression is found")
    made.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, not how fast")
    made.add_argument("--no-jvm", action="store_true", help="do not run the JVM; recorded figures stand for it")
    made.add_argument(
        "--jvm-limit",
        metavar="SECONDS",
        type=_positive,
        default=JVM_LIMIT_S,
        help="stop a JVM after so long and show '>SECONDS' (default %(default)g; 600 lets every case finish)",
    )
    made.add_argument("--json", metavar="FILE", type=_new_file, help="write all figures to this file too")
    made.add_argument("--list", action="store_true", help="print the names and yardsticks, and measure nothing")
    return made


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def _new_file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} must be a file in a folder that exists")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0, also where a yardstick is missed; 1 where a case could not be measured; 2 for bad input."""
    options_of = parser()
    options = options_of.parse_args(arguments)
    narrow = None if sys.stdout.isatty() else WIDTH
    console = Console(width=narrow)
    try:
        cases = _chosen(options.only, options.quick)
    except ValueError as error:
        options_of.error(str(error))
    if options.list:
        print_cases(console, cases)
        return 0
    machine = describe_machine()
    jvm_limit_s, machine["jvm"] = _jvm(options, cases)
    measured = _measure(cases, options.quick, jvm_limit_s)
    print_table(console, measured, machine)
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(measured, machine), indent=1) + "\n", encoding="utf-8")
    return int(any(one.problem is not None and not one.problem.startswith((">", "needs")) for one in measured))


def _chosen(pattern: str | None, is_quick: bool) -> list[Case]:
    cases = list(all_cases(is_quick))
    if pattern is None:
        return cases
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"--only {pattern!r} must be a regular expression: {error}.") from None
    found = [case for case in cases if wanted.search(case.name)]
    if not found:
        raise ValueError(f"No benchmark has {pattern!r} in its name. Maybe see --list.")
    return found


def _jvm(options: argparse.Namespace, cases: Sequence[Case]) -> tuple[float | None, str]:
    """The limit, None for no JVM, and a sentence about it."""
    if options.no_jvm:
        return None, "not run (--no-jvm)"
    if not any(case.jvm is not None for case in cases):
        return None, "no case needs it"
    missing = why_not()
    if missing is None:
        try:
            class_path()
        except Exception as error:  # noqa: BLE001 - whatever it is, our own figures can still be had
            missing = str(error).splitlines()[0]
    if missing is not None:
        return None, f"not run: {missing}"
    return options.jvm_limit, f"Kafka 4.3.1, each case in a JVM of its own, stopped after {options.jvm_limit:g} s"


def _measure(cases: Sequence[Case], is_quick: bool, jvm_limit_s: float | None) -> list[Measurement]:
    # Progress on the other stream, so that the table can be redirected.
    progress = Console(stderr=True)
    measured = []
    for number, case in enumerate(cases, 1):
        with progress.status(f"{number}/{len(cases)} {case.name}"):
            measured.append(measure(case, is_quick, jvm_limit_s))
    return measured
