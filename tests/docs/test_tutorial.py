"""What the tutorial says is what happens: its state, its commands and its program are run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    """The tutorial's first code block in this language."""
    found = re.search(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL)
    assert found is not None
    return found[1]


def _run(*arguments: str, folder: Path) -> tuple[str, str]:
    """What a program prints to its standard output and standard error."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def _plan(folder: Path, assignor: str) -> tuple[dict[str, dict[str, object]], str]:
    """The last digit of a process id -> its placement, and what was said on the way."""
    (folder / "state.json").write_text(_block("json"), encoding="utf-8")
    answer, said = _run("-m", "task_assignor", "plan", "state.json", "--assignor", assignor, "--json", folder=folder)
    return {placement["processId"][-1]: placement for placement in json.loads(answer)["assignment"]}, said


def test_the_two_assignors_decide_as_the_tutorial_says(tmp_path: Path) -> None:
    """Sticky moves a task at once; high availability warms the newcomer up and asks for another rebalance."""
    (sticky, _), (available, _) = _plan(tmp_path, "sticky"), _plan(tmp_path, "high-availability")

    assert [len(sticky[client]["activeTasks"]) for client in "12"] == [1, 1]  # type: ignore[arg-type]
    assert (available["1"]["activeTasks"], available["2"]["activeTasks"]) == (["0_0", "0_1"], [])
    assert available["2"]["standbyTasks"] == ["0_0", "0_1"]
    assert [client for client in "12" if "followupRebalanceDeadlineMs" in available[client]] == ["1"]


def test_the_assignor_says_what_the_tutorial_shows(tmp_path: Path) -> None:
    """It decides as sticky does; what it prints does not get into the answer."""
    (tmp_path / "careful.py").write_text(_block("python"), encoding="utf-8")
    careful, said = _plan(tmp_path, "careful.CarefulTaskAssignor")

    assert careful == _plan(tmp_path, "sticky")[0]
    assert f"```text\n{said}```" in TUTORIAL


def test_the_program_runs(tmp_path: Path) -> None:
    """It prints what the tutorial shows, and has the tutorial's assignor in it."""
    program = DOCS / "examples" / "first_join.py"
    printed, _ = _run(str(program), "run", folder=tmp_path)
    lines = printed.splitlines()
    processes = [line for line in lines if " is process " in line]
    others = [line for line in lines if line not in processes]

    assert _block("python").partition("class ")[2] in program.read_text(encoding="utf-8")
    assert "\n".join([*others, "```"]) in TUTORIAL
    assert sorted(line.rpartition(" ")[0] for line in processes) == ["client-1 is process", "client-2 is process"]
