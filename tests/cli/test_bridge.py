"""`task-assignor bridge`: what is said on standard output is what programs read."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.cli import bridge
from tests.cli.conftest import Runner

NOISY = """
from task_assignor.builtin_assignors import StickyTaskAssignor
print("imported")
class Noisy(StickyTaskAssignor):
    def configure(self, configs):
        print("configured")
"""


def test_what_an_assignor_prints_is_no_finding(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ours_noisy.py").write_text(NOISY)
    (tmp_path / "app.properties").write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.class=ours_noisy.Noisy\n"
        "python.task.assignor.command=/no/such/command\n"
    )
    done = run("bridge", "check", "app.properties", "--json")
    assert done.code == 1
    assert all(set(line) == {"verdict", "message"} for line in done.lines)
    assert "imported" in done.err


@pytest.mark.parametrize("options", [[], ["--path"]])
def test_a_jar_that_is_not_there_is_an_error(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """From a zip file, or a package without it, the path led nowhere, and Java says nothing of that."""
    monkeypatch.setattr(bridge, "jar_path", lambda: tmp_path / "package.zip" / "bridge.jar")
    done = run("bridge", "jar", *options)
    assert (done.code, done.out) == (2, "")
    assert "package.zip/bridge.jar is not there" in done.err
