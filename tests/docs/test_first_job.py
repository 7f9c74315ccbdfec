"""What "your first job", "operations" and "guarantees" say is what happens: their programs and commands are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from task_assignor.runtime import METRICS, Metrics

PATIENT = "__import__('task_assignor.runtime').runtime.RuntimeOptions(startup_timeout_ms=600_000)"
DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.xdist_group("first job")  # it runs once for all of them


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def code(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the first job after its commands."""
    folder = tmp_path_factory.mktemp("job")
    for text in code("your-first-job"):
        name = re.match(r"# (\w+\.py)\n", text)
        assert name is not None
        # A machine that is busy with other tests may take its time.
        text = text.replace("        clients=2,\n", f"        clients=2,\n        options={PATIENT},\n")
        (folder / name[1]).write_text(text, encoding="utf-8")
    assert PATIENT in (folder / "app.py").read_text(encoding="utf-8")
    (commands,) = re.findall(r"```console\n(.*?)```", page("your-first-job"), re.DOTALL)
    printed = {command: shell(command.removeprefix("$ "), folder) for command in commands.splitlines()}
    assert re.match(r" +0\.\d s  shop starts 2 clients\n", printed["$ task-assignor run app.py"])
    return folder


def shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_the_first_job_gives_what_the_page_says(job: Path) -> None:
    told = re.search(r"It prints (\d+):", page("your-first-job"))
    assert told is not None
    assert shell("python read.py", job) == f"{told[1]}\n"
    files = (job / "run/manifest/by-hour/files.txt").read_text().splitlines()
    assert pl.read_parquet(files)["orders"].sum() == int(told[1])
    printed = shell("python own.py", job)
    assert printed.splitlines()[-1].startswith("shop: 50,000 rows read")


def test_the_check_of_placements_holds(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    (check,) = code("guarantees")
    exec(compile(check, "guarantees.md", "exec"), {})


def test_the_states_can_be_compared(job: Path) -> None:
    (command,) = re.findall(r"`(task-assignor compare [^`]*)`", page("operations"))
    assert "sticky" in shell(command, job)


def test_operations_name_metrics_that_there_are() -> None:
    names = {metric.name for metric in METRICS}
    table = page("operations").split("| watch |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])]
    assert len(named) > 10
    assert set(named) <= names


def test_the_metrics_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Ran:
        metrics = Metrics("shop")
        runs = 0

        def run(self) -> None:
            self.runs += 1

    ran = Ran()
    (program,) = code("operations")
    # A port that is fixed may be in use here.
    program = program.replace("9464", "0")
    exec(compile(program, "operations.md", "exec"), {"application": ran})
    assert ran.runs == 2
    assert (tmp_path / "streams.prom").is_file()
