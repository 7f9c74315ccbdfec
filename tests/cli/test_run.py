"""`task-assignor run`: the application of a file, with other settings over its own; what is wrong with a file is said."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from task_assignor.runtime import read_output
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.watching.run_log import read_log
from tests.cli.conftest import Runner

COMMAND = [sys.executable, "-m", "task_assignor", "run"]
HELPER = """
import pyarrow.compute as pc


def doubled(column):
    return pc.multiply(column, 2)
"""
APP = """
import pyarrow as pa
from {helper} import doubled
from task_assignor import StreamsConfig
from task_assignor.runtime import (
    Output, Processor, RuntimeOptions, StreamsApplication, SubTopology, Topology, list_topics, write_topic
)


class Doubled(Processor):
    def process_batch(self, batch, context):
        (rows,) = batch.values()
        {prints}
        return pa.table({{"value": doubled(rows.column("key"))}})


def application():
    if not list_topics("topics"):
        write_topic("topics", "numbers", pa.table({{"key": range({rows})}}), partitions=2, key=["key"])
    return StreamsApplication(
        Topology([SubTopology("double", "numbers", Doubled, outputs=[Output("doubled")])]),
        StreamsConfig({{"application.id": "first", "task.assignor.class": "sticky"}}),
        topics_root="topics",
        run_dir="run",
        clients=1,
        options=RuntimeOptions(max_batch_rows={batch}, startup_timeout_ms=600_000),
    )
"""


def write_app(folder: Path, name: str, rows: int = 1_000, batch: int = 100, prints: str = "") -> Path:
    """An application, and a module beside it that its processor needs."""
    (folder / f"{name}_helper.py").write_text(HELPER)
    path = folder / f"{name}.py"
    path.write_text(APP.format(helper=f"{name}_helper", rows=rows, batch=batch, prints=prints))
    return path


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_an_application_is_run_from_its_file_with_other_settings_over_its_own(tmp_path: Path) -> None:
    elsewhere = tmp_path / "code"
    elsewhere.mkdir()
    app = write_app(elsewhere, "doubling", prints="print('working')")
    (tmp_path / "app.properties").write_text("num.standby.replicas=1\napplication.id=second\n")
    metrics = tmp_path / "metrics.prom"
    options = (
        "--metrics-file",
        str(metrics),
        "--clients",
        "2",
        "--run-dir",
        "other",
        "--config",
        "app.properties",
        "--set",
        "application.id=third",
    )

    out, err = start(tmp_path, str(app), "--json", *options).communicate(timeout=600)

    # What processors print is no line of it.
    lines = [json.loads(line) for line in out.splitlines()]
    assert "working" in err
    assert not err.replace("working", "").strip()
    assert [line["rowsIn"] for line in lines if line["event"] == "RunFinished"] == [1_000]
    assert lines[-1]["metrics"]["records-lag-sum"] == 0
    assert {line["client"] for line in lines if line["event"] == "ClientJoined"} == {"client-1", "client-2"}
    commits = [line for line in lines if line["event"] == "Commits"]
    assert sum(line["rowsIn"] for line in commits) == 1_000
    assert commits[-1]["remaining"] == 0
    (rebalanced,) = (line for line in lines if line["event"] == "Rebalanced")
    assert rebalanced["reason"] == "2 clients are there"
    assert sorted(task for tasks in rebalanced["assignment"].values() for task in tasks["active"]) == ["0_0", "0_1"]
    assert 'streams_records_out_total{application_id="third"} 1000' in metrics.read_text().splitlines()
    values = sorted(read_output(tmp_path / "other", "doubled").column("value").to_pylist())
    assert values == [2 * number for number in range(1_000)]
    assert json.loads((tmp_path / "other/application.json/~object").read_text())["applicationId"] == "third"
    assert not (tmp_path / "run").exists()


UNRULY = """
import os
from task_assignor.builtin_assignors import StickyTaskAssignor

class Loud(StickyTaskAssignor):
    def assign(self, state):
        print("printed")
        return super().assign(state)

class Ends(StickyTaskAssignor):
    def assign(self, state):
        os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("Loud", 0, "printed\n"),
        ("Ends", 2, "The assignor Ends failed with SystemExit: 0 (unruly.Ends.assign, line 12)"),
    ],
)
def test_an_assignor_neither_writes_among_the_lines_nor_ends_the_run_as_if_all_were_well(
    tmp_path: Path, name: str, code: int, told: str
) -> None:
    app = write_app(tmp_path, "doubling")
    (tmp_path / "unruly.py").write_text(UNRULY)
    run = start(tmp_path, str(app), "--json", "--set", f"task.assignor.class=unruly.{name}")
    out, err = run.communicate(timeout=600)
    assert (run.returncode, told in err) == (code, True)
    assert all("event" in json.loads(line) for line in out.splitlines())


def test_what_a_processor_raises_is_told_with_its_line_and_the_traceback_of_its_client(tmp_path: Path) -> None:
    app = write_app(tmp_path, "failing", prints="rows.column('not_there')")
    process = start(tmp_path, str(app))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 2
    message, _, traceback = err.partition("\nThe traceback on client-1:\n")
    assert "not_there" in message
    assert "failing.py" in message
    assert traceback.startswith("Traceback (most recent call last):")
    assert "in process_batch" in traceback
    # Once on a terminal, which shows both, and whole where it is looked for later.
    assert "not_there" not in out
    assert out.splitlines()[-1].endswith(" failed; the error says why")
    (failed,) = (line for line in read_log(LocalStorage(tmp_path / "run")) if line["event"] == "RunFailed")
    assert err == f"Error: {failed['message']}\n"


def test_as_the_first_process_of_a_container_it_can_be_ended_before_the_run_begins(tmp_path: Path) -> None:
    """The kernel keeps signals from such a process that it does not handle: `docker stop` was not heard until the run had begun."""
    (tmp_path / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    first = "import os, sys; os.getpid = lambda: 1; from task_assignor.cli import main; sys.argv[1:] = ['run', 'slow.py']; main()"
    process = subprocess.Popen([sys.executable, "-c", first], cwd=tmp_path)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.thorough), (signal.SIGTERM, 0)]
)
def test_a_signal_ends_it_after_the_batches_in_progress_and_the_next_run_goes_on(
    run: Runner, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    app = write_app(tmp_path, "long", rows=40_000, batch=5)
    process = start(tmp_path, str(app), "--json")
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "Commits":
            process.send_signal(number)
            break
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (code, "")
    stopping = [line for line in map(json.loads, out.splitlines()) if line["event"] == "RunStopping"]
    assert [line["reason"] for line in stopping] == ["Ctrl-C" if number is signal.SIGINT else "SIGTERM"]
    first = read_output(tmp_path / "run", "doubled").num_rows
    assert 0 < first < 40_000

    seen_elsewhere = ("--metrics-port", "0", "--metrics-host", "0.0.0.0")
    done = run("run", write_app(tmp_path, "long", rows=40_000, batch=5_000), "--json", *seen_elsewhere)

    assert re.fullmatch(r"Metrics are on http://0\.0\.0\.0:\d+/metrics\.\n", done.err)
    (finished,) = (line for line in done.lines if line["event"] == "RunFinished")
    assert finished["rowsIn"] == 40_000 - first
    values = read_output(tmp_path / "run", "doubled").column("value").to_pylist()
    assert sorted(values) == [2 * value for value in range(40_000)]


@pytest.mark.parametrize(
    ("text", "said", "shown"),
    [
        ("x = 1", "defines no 'application'. Expected is a StreamsApplication, or a function without arguments", ""),
        ("application = 7", "The 'application' of app.py is of the type int. Expected is a StreamsApplication", ""),
        ("def application():\n    return None", "is of the type NoneType. Expected is", ""),
        ("def application():\n    return 1 / 0", "application() of app.py failed with ZeroDivisionError", "line 2"),
        ("import not_there_at_all", "The file app.py failed with ModuleNotFoundError", "line 1"),
        ("raise BaseException('a panic')", "The file app.py failed with BaseException: a panic", "line 1"),
        ("application = (", "The file app.py failed with SyntaxError: '(' was never closed", "line 1"),
    ],
)
def test_a_file_that_defines_no_application_is_told_what_is_expected(
    run: Runner, tmp_path: Path, text: str, said: str, shown: str
) -> None:
    (tmp_path / "app.py").write_text(text)
    done = run("run", "app.py", shows_traceback=bool(shown) and "SyntaxError" not in said)
    assert done.code == 2
    assert said in done.err.splitlines()[-1]
    assert shown in done.err
    # Only the frames that are the user's.
    assert set(re.findall(r'File "(.*)"', done.err)) <= {str(tmp_path / "app.py")}


def write_package(folder: Path) -> None:
    """`jobs.app`, with an application whose processor needs a neighbour by a relative import."""
    package = folder / "jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    app = write_app(package, "app")
    app.write_text(app.read_text().replace("from app_helper", "from .app_helper"))
    (package / "broken.py").write_text("import not_there_at_all")


def test_an_application_is_run_from_a_module(tmp_path: Path) -> None:
    """What is packaged has no file of its own that can be run."""
    write_package(tmp_path)
    out, err = start(tmp_path, "jobs.app:application", "--json").communicate(timeout=600)
    assert not err
    assert [line["rowsIn"] for line in map(json.loads, out.splitlines()) if line["event"] == "RunFinished"] == [1_000]
    values = sorted(read_output(tmp_path / "run", "doubled").column("value").to_pylist())
    assert values == [2 * number for number in range(1_000)]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("gone", "There is no module gone, here or where Python looks, and no such file. Expected is a file"),
        ("jobs.gone", "There is no module jobs.gone, here or where Python looks"),
        ("gone.app", "There is no module gone.app, here or where Python looks"),
        ("jobs", "The module jobs defines no 'application'. Expected is a StreamsApplication"),
        ("jobs.app:other", "The module jobs.app defines no 'other'. Expected is a StreamsApplication"),
        ("jobs.broken", "The module jobs.broken failed with ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("jobs/app.py", "no known parent package. It is in a package: maybe `task-assignor run jobs.app`, in "),
    ],
)
def test_what_is_wrong_with_a_module_is_said(run: Runner, tmp_path: Path, place: str, said: str) -> None:
    write_package(tmp_path)
    done = run("run", place, shows_traceback="broken" in place or "/" in place)
    assert (done.code, done.out) == (2, "")
    assert said in done.err.splitlines()[-1]
    # Only the frames that are the user's.
    assert set(re.findall(r'File "(.*)"', done.err)) <= {
        str(tmp_path / f"jobs/{name}.py") for name in ("app", "broken")
    }


def test_a_wrong_setting_is_told_with_its_line_of_the_file(run: Runner, tmp_path: Path) -> None:
    """As `plan` does it; what is given at the prompt is in no file."""
    (tmp_path / "app.properties").write_text("# ours\nmax.warmup.replicas=0\nnum.standby.replicas=x\n")
    app = write_app(tmp_path, "configured")
    done = run("run", app, "--config", "app.properties", "--set", "num.standby.replicas=y")
    assert done.code == 2
    assert "app.properties:2: The setting max.warmup.replicas ('0')" in done.err
    assert "app.properties:3" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone.py"], "The application's file gone.py is not there. Expected is a file that defines it"),
        (["x" * 300 + ".py"], ".py cannot be read: File name too long. Expected is a file that defines it"),
        (["folder"], "The application's file folder is no file of Python (.py)"),
        (["json.py"], "The name of the file json.py is that of a module that is in use. Maybe rename it."),
        (["two-words.py"], "The name of the file two-words.py cannot be that of a module. Maybe rename it."),
        (["gone.py", "--conf", "a=b"], "--conf is for Spark, which this run does not start."),
        (["gone.py", "--pinned"], "--pinned is for Spark, which this run does not start."),
        (["gone.py", "--pinned", "--master", "processes"], "--pinned is for Spark, which this run does not start."),
        (["gone.py", "--pinned", "--master", "local", "--until", "stopped"], "--pinned is for bounded runs"),
        (["gone.py", "--metrics-host", "::"], "--metrics-host is for --metrics-port, which is not given."),
        (["gone.py", "--until", "tomorrow"], "The --until ('tomorrow') must be 'available-now' or 'stopped'."),
        (["gone.py", "--conf", "spark.ssl.keyPassword:tiger"], "What follows --conf ([hidden]) must be KEY=VALUE"),
        (["gone.py", "--master", "processes", "--conf", "a"], "What follows --conf ('a') must be KEY=VALUE"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said(run: Runner, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("json.py", "two-words.py"):
        (tmp_path / name).touch()
    done = run("run", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("mars", "The --master ('mars') must be 'processes' or a master of Spark"),
        ("sc://localhost:15002", "is a server of Spark Connect, where the coordinator could not be in the driver"),
    ],
)
def test_a_master_that_cannot_be_is_refused(run: Runner, tmp_path: Path, master: str, said: str) -> None:
    assert said in run("run", write_app(tmp_path, "doubling"), "--master", master).err


def test_that_spark_starts_is_said_before_it_does(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take a minute, in which there was no word."""
    room = pytest.importorskip("task_assignor.spark")

    def fail(*given: object, **more: object) -> None:
        raise room.SparkSessionError("none here")

    monkeypatch.setattr(room, "spark_session", fail)
    done = run("run", write_app(tmp_path, "doubling"), "--master", "local[3,1000]")
    assert (done.code, done.err) == (2, "Spark starts with the master local[3,1000].\nError: none here\n")


@pytest.mark.parametrize("command", [["run", "unheard.py"], ["run", "unheard.py", "--json"], ["demo"]])
def test_where_nobody_can_be_told_nothing_is_done(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """A run was done and failed at its last line, and the demo ended as if somebody had seen it."""
    write_app(tmp_path, "unheard")
    before = set(tmp_path.iterdir())
    monkeypatch.setattr(sys, "stdout", None)
    done = run(*command)
    assert (done.code, done.err) == (2, "Error: Standard output cannot be written: it is closed.\n")
    assert set(tmp_path.iterdir()) == before
