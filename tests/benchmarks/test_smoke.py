"""The benchmarks still run: every case on tiny sizes. Which figures come out decides nothing."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from benchmarks.bench_runtime_join import interval_of_median
from benchmarks.case import Case, Goal
from benchmarks.catalogue import all_cases, check_names
from benchmarks.command import main
from benchmarks.jvm import JvmRun, class_path, recorded, time_in_jvm
from benchmarks.measure import PROCESSES, Measurement, fitted_exponent, growths, measure, peer_of, verdict
from benchmarks.table import duration, memory
from benchmarks.worker import Run, run_case
from tests.jvm.jvm import JvmBuildError

ROOT = Path(__file__).parents[2]
CASES = {case.name: case for case in all_cases(is_quick=True)}
# These start machines of their own, which takes longer than all others together.
LIGHT = [name for name, case in CASES.items() if not case.is_heavy]


@pytest.mark.parametrize("name", LIGHT)
def test_every_case_runs_on_a_tiny_size(name: str) -> None:
    case = CASES[name]
    for package in case.needs:
        pytest.importorskip(package)
    run = run_case(case, budget_s=0.0)
    assert len(run.seconds) == 1
    assert run.seconds[0] >= 0
    assert 0 < run.input_bytes <= run.peak_bytes


def test_the_interval_of_a_median_is_as_sure_as_it_says() -> None:
    """The sign test's: of 12 values the 3rd and the 10th, in 96 % of cases; of few ones all that there are."""
    rank, sureness = interval_of_median(12)
    assert (rank, round(sureness, 3)) == (2, 0.961)
    assert interval_of_median(3) == (0, 0.75)
    chance = random.Random(7)
    draws = [sorted(chance.gauss(1.0, 3.0) for _ in range(12)) for _ in range(4_000)]
    inside = sum(draw[rank] <= 1.0 <= draw[-1 - rank] for draw in draws) / len(draws)
    assert abs(inside - sureness) < 0.015


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.jvm is not None])
def test_what_the_jvm_is_asked_is_one_line_of_json(name: str) -> None:
    peer = CASES[name].jvm
    assert peer is not None
    text = peer.scenario()
    assert "\n" not in text
    asked = set(json.loads(text))
    assert {"operation", "state"} <= asked or {"assignor", "members", "topics"} <= asked


@pytest.fixture
def java_harness() -> None:
    """Compiled; skipped where that fails, unless TASK_ASSIGNOR_REQUIRE_JVM says that it must not."""
    try:
        class_path()
    except JvmBuildError as error:
        if os.environ.get("TASK_ASSIGNOR_REQUIRE_JVM", "") not in ("", "0"):
            raise
        pytest.skip(f"the harness could not be built: {error}")


@pytest.mark.jvm
@pytest.mark.usefixtures("java_harness")
@pytest.mark.thorough
def test_a_jvm_that_throws_or_takes_too_long_is_reported(tmp_path: Path) -> None:
    question = tmp_path / "question.jsonl"
    question.write_text('{"operation": "dance"}\n', encoding="utf-8")
    assert time_in_jvm(question, 60).problem is not None
    peer = CASES["ha/6000x2 R1 first"].jvm
    assert peer is not None
    question.write_text(peer.scenario() + "\n", encoding="utf-8")
    stopped = time_in_jvm(question, 0.001)
    assert (stopped.longer_than, stopped.seconds, stopped.problem) == (0.001, (), None)


@pytest.mark.jvm
@pytest.mark.usefixtures("java_harness")
def test_the_jvm_is_timed_and_its_answers_compared() -> None:
    ha = measure(CASES["ha/6000x2 R1 second"], is_quick=True, jvm_limit_s=60)
    assert ha.jvm is not None
    assert ha.jvm.problem is None
    assert len(ha.jvm.seconds) == len(ha.jvm.cpu_seconds) > 1
    assert min(ha.jvm.seconds) > 0
    assert ha.remark == "same decisions"
    racks = measure(CASES["racks/min_traffic 200x10 public"], is_quick=True, jvm_limit_s=60)
    ours, theirs = re.findall(r"\d+", racks.remark)
    assert int(ours) <= int(theirs)


def test_every_case_has_one_name_whatever_the_size() -> None:
    full = [case for case in all_cases() if case.series is None]
    assert [case.name for case in full] == [case.name for case in CASES.values() if case.series is None]


def test_every_recorded_figure_is_found() -> None:
    missing = [case.name for case in all_cases() if case.recorded is not None and recorded(case.recorded) is None]
    assert missing == []


def test_two_cases_of_one_name_are_refused() -> None:
    case = Case("a/b", lambda: lambda: None)
    with pytest.raises(ValueError, match="a/b is there twice"):
        check_names([case, case])
    with pytest.raises(ValueError, match="a/c, is no benchmark"):
        check_names([attrs.evolve(case, against="a/c")])


def test_the_command_prints_a_table_and_writes_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    pattern = "sticky/6000|growth/validation"
    assert main(["--quick", "--no-jvm", "--only", pattern, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "6000x2 R1 first" in printed
    assert "time ~ size^" in printed
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert {"machine", "versions"} <= set(figures["machine"])
    assert [row["problem"] for row in figures["cases"]] == [None] * len(figures["cases"])
    # A process per case, so the memory of one is not that of another.
    assert all(row["run"]["peak_bytes"] > 0 for row in figures["cases"])
    assert [series["name"] for series in figures["growth"]] == ["validation"]


def test_the_list_names_cases_and_yardsticks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "ha/6000x2 R1 second" in done.stdout
    assert "0.1 s, 2 000 x faster" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing of that name"], "No benchmark has"),
        (["--only", "("], "must be a regular expression"),
        (["--json", "no such folder/figures.json"], "must be a file in a folder that exists"),
        (["--jvm-limit", "0"], "must be a number of seconds above 0"),
    ],
)
def test_bad_arguments_give_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def measurement(seconds: float, **fields: object) -> Measurement:
    case = Case("made/up", lambda: lambda: None)
    given = {name: fields.pop(name) for name in ("goal", "series", "size") if name in fields}
    run = Run((seconds,), (seconds,), 0.0, 1, 2_000_000_000, {})
    return Measurement(attrs.evolve(case, **given), run, (seconds,), **fields)  # type: ignore[arg-type]


def test_a_short_first_call_is_the_median_of_several_processes() -> None:
    several = measure(CASES["ha/1000x10x1000 R1 first"])
    assert len(several.first_calls) == PROCESSES
    assert several.run is not None
    assert several.run.seconds[0] == several.first_calls[0]
    assert several.first_s == sorted(several.first_calls)[PROCESSES // 2]
    noisy = attrs.evolve(several, case=attrs.evolve(several.case, goal=Goal(seconds=0.2)))
    assert verdict(attrs.evolve(noisy, first_calls=(0.9, 0.1, 0.1, 0.1, 0.9)), {}) is True
    assert verdict(attrs.evolve(noisy, first_calls=(0.1, 0.9, 0.1, 0.9, 0.9)), {}) is False


def test_a_case_that_cannot_run_is_reported_not_raised() -> None:
    assert measure(Case("made/up", lambda: lambda: None, needs=("no_such_package",))).problem == "needs no_such_package"
    problem = measure(Case("no such case", lambda: lambda: None)).problem
    assert problem is not None
    assert "There is no benchmark 'no such case'" in problem


def test_a_jvm_that_was_stopped_gives_a_limit_unless_a_longer_time_was_recorded() -> None:
    stopped, before = JvmRun(longer_than=60.0), JvmRun((199.0,), is_recorded=True)
    assert peer_of(measurement(0.1, jvm=stopped), {}) == (60.0, True)
    assert peer_of(measurement(0.1, jvm=stopped, recorded=before), {}) == (199.0, False)
    assert peer_of(measurement(0.1, jvm=JvmRun((150.0,)), recorded=before), {}) == (150.0, False)


def test_a_yardstick_is_met_missed_or_open() -> None:
    assert verdict(measurement(0.1), {}) is None
    assert verdict(measurement(0.1, goal=Goal(seconds=0.2)), {}) is True
    assert verdict(measurement(0.3, goal=Goal(seconds=0.2)), {}) is False
    assert verdict(measurement(0.1, goal=Goal(seconds=0.2, gigabytes=1)), {}) is False
    faster = Goal(times_faster=100)
    assert verdict(measurement(0.1, goal=faster), {}) is None
    assert verdict(measurement(0.1, goal=faster, jvm=JvmRun((11.0,))), {}) is True
    assert verdict(measurement(0.1, goal=faster, jvm=JvmRun((9.0,))), {}) is False
    assert verdict(measurement(0.1, goal=faster, jvm=JvmRun(longer_than=9.0)), {}) is None


def test_the_exponent_of_a_power_is_found() -> None:
    points = [(size, 3e-6 * size**1.25) for size in (10.0**3, 10.0**4, 10.0**5)]
    assert math.isclose(fitted_exponent(points), 1.25)
    made = [measurement(seconds, series="made up", size=int(size), goal=Goal(exponent=1.1)) for size, seconds in points]
    (growth,) = growths(made)
    assert growth.is_met is False
    assert math.isclose(growth.last_exponent or 0, 1.25)


def test_figures_have_three_digits() -> None:
    assert [duration(seconds) for seconds in (0.000_265, 0.0421, 1.234, 199.08)] == [
        "0.265 ms",
        "42.1 ms",
        "1.23 s",
        "199 s",
    ]
    assert [memory(size) for size in (43_000_000, 1_590_000_000)] == ["43 MB", "1.59 GB"]
