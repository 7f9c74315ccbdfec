"""What the tutorial says is what happens: its state, its commands and its program are run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _plan(state: Path, assignor: str) -> dict[str, dict[str, object]]:
    answer = json.loads(_run("-m", "task_assignor", "plan", str(state), "--assignor", assignor, "--json"))
    return {placement["processId"][-1]: placement for placement in answer["assignment"]}


def test_the_two_assignors_decide_as_the_tutorial_says(tmp_path: Path) -> None:
    """Sticky moves a task at once; high availability warms the newcomer up and asks for another rebalance."""
    document = re.search(r"```json\n(.*?)```", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.DOTALL)
    assert document is not None
    state = tmp_path / "state.json"
    state.write_text(document[1], encoding="utf-8")
    sticky, available = _plan(state, "sticky"), _plan(state, "high-availability")

    assert [len(sticky[client]["activeTasks"]) for client in "12"] == [1, 1]  # type: ignore[arg-type]
    assert (available["1"]["activeTasks"], available["2"]["activeTasks"]) == (["0_0", "0_1"], [])
    assert available["2"]["standbyTasks"] == ["0_0", "0_1"]
    assert [client for client in "12" if "followupRebalanceDeadlineMs" in available[client]] == ["1"]


def test_the_program_runs(tmp_path: Path) -> None:
    """It prints what the tutorial shows."""
    printed = _run(str(DOCS / "examples" / "first_join.py"), str(tmp_path)).splitlines()
    shown = (DOCS / "tutorial.md").read_text(encoding="utf-8")

    assert printed[-1] in shown
    assert "0 errors" in printed[0]
