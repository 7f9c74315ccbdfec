"""What `bridge check` says of settings is what Java makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.bridge import Verdict, check_properties
from task_assignor.bridge.check import words


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ("task-assignor bridge serve", ["task-assignor", "bridge", "serve"]),
        ("  '/opt/my env/python' -m \"task_assignor\" ", ["/opt/my env/python", "-m", "task_assignor"]),
        ("a'b c'd '' #e", ["ab cd", "", "#e"]),
        (r"/opt/my\ env/python C:\x", [r"/opt/my" + "\\", "env/python", r"C:\x"]),
        (r'"a\"', ["a\\"]),
    ],
)
def test_a_command_has_the_words_that_java_takes(command: str, taken: list[str]) -> None:
    """`Settings.words` of the jar: a backslash is nothing special."""
    assert words(command) == taken


def test_a_quote_that_does_not_end_is_said(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.command=it's task-assignor\n"
    )
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert error.message == (
        "python.task.assignor.command (it's task-assignor) must be words, but a quote in it does not end."
    )
