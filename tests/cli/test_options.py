"""What several commands take."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Runner


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "x.json", "--config", ""),
        ("inspect", "--config", ""),
        ("snapshot", "--group", "x", "--topology", ""),
        ("snapshot", "--group", "x", "--output", ""),
        ("run", "app.py", "--config", ""),
        ("run", "app.py", "--metrics-file", ""),
        ("run", ""),
    ],
    ids=" ".join,
)
def test_a_name_that_is_empty_is_no_folder(run: Runner, arguments: tuple[str, ...]) -> None:
    """As that of a variable of the shell that is not set. It was told that `.` is a directory, or no file of Python."""
    done = run(*arguments)
    assert done.code == 2
    assert re.search("The name of the .*file must not be empty", done.err)
