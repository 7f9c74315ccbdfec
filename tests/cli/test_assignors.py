"""`task-assignor assignors`: what is registered, and what of it works."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from task_assignor.sdk import TaskId, registered_assignors
from task_assignor.sdk.ids import ranges
from tests.cli.conftest import Runner
from tests.sdk.documents import document


def register(site: Path, entry_point: str, package: str = "registered") -> None:
    """Install a package that registers an assignor."""
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[task_assignor.assignors]\n{entry_point}\n", encoding="utf-8")


def test_programs_get_a_line_for_every_assignor(run: Runner) -> None:
    lines = {line["name"]: line for line in run("assignors", "--json").lines}
    assert list(lines) == list(registered_assignors())
    sticky = lines["sticky"]
    assert sticky["class"] == "task_assignor.builtin_assignors:StickyTaskAssignor"
    assert sticky["doc"].endswith(".")
    assert sticky["package"].startswith("task-assignor ")
    assert isinstance(sticky["settings"], list)


def test_the_version_is_that_of_the_package(run: Runner) -> None:
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, f"task-assignor {version('task-assignor')}\n", "")


def test_people_get_a_table(run: Runner) -> None:
    out = run("assignors").out
    for name in registered_assignors():
        assert name in out


def test_one_that_cannot_be_loaded_is_a_finding_that_says_why(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(tmp_path, "broken = no_such_module:X")
    monkeypatch.syspath_prepend(tmp_path)
    done = run("assignors", "--json")
    (broken,) = (line for line in done.lines if line["name"] == "broken")
    assert (done.code, "No module named 'no_such_module'" in broken["error"]) == (1, True)
    assert "CANNOT BE USED. It must be a class that can be imported." in run("assignors").out


def test_a_name_that_two_packages_register_is_listed_as_ambiguous(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(tmp_path, "mine = mine_one:A", "one")
    register(tmp_path, "mine = mine_two:B", "two")
    monkeypatch.syspath_prepend(tmp_path)
    done = run("assignors", "--json")
    (mine,) = (line for line in done.lines if line["name"] == "mine")
    assert (done.code, mine["class"], mine["package"]) == (1, "mine_one:A, mine_two:B", "one 1.0, two 1.0")
    assert "Several packages register this name (mine_one:A, mine_two:B). Give the dotted path." in mine["error"]
    assert "CANNOT BE USED" in run("assignors").out


def test_an_ambiguous_name_that_consumer_groups_know_too_is_said_to_be_ambiguous(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that `sticky` decides about no tasks; for a group it still is what it was."""
    register(tmp_path, "sticky = mine_one:A", "one")
    monkeypatch.syspath_prepend(tmp_path)
    done = run("plan", "-", "-a", "sticky", "--json", stdin=json.dumps(document()).encode())
    assert done.code == 2
    (answer,) = done.lines
    assert "Several packages register the task assignor sticky (mine_one:A, task_assignor." in answer["error"]
    group = {"topics": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]}
    assert run("plan", "-", "-a", "sticky", "--json", stdin=json.dumps(group).encode()).code == 0


def test_an_assignor_is_listed_with_its_own_words(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the docstring of its base class nor what its module prints."""
    register(tmp_path, "silent = silent_module:Silent")
    text = (
        "print('imported')\nfrom task_assignor import *\nclass Silent(TaskAssignor):\n    def assign(self, state): ..."
    )
    (tmp_path / "silent_module.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    done = run("assignors", "--json")
    (silent,) = (line for line in done.lines if line["name"] == "silent")
    assert (done.code, done.err, silent["doc"]) == (0, "imported\n", "")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], ""),
        (["0_0"], "0_0"),
        (["0_1", "0_0"], "0_0..1"),
        (["0_0", "0_2", "0_3", "1_4"], "0_0 0_2..3 1_4"),
        (["a__0_1", "a__0_2", "0_3", "b__0_3"], "0_3 a__0_1..2 b__0_3"),
    ],
)
def test_runs_of_partitions_are_ranges(ids: list[str], expected: str) -> None:
    assert expected == ranges(map(TaskId.parse, ids))
