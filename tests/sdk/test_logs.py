"""What is logged: nothing from outside looks like a line of its own, or is a command for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import task_assignor
from task_assignor.sdk.logs import logger_of


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("message", "values", "expected"),
    [
        ("%s has %d of %.1f", (Path("a\x1b[31m\n\tERROR b"), 3, 1.5), "a\\x1b[31m\n    \tERROR b has 3 of 1.5"),
        ("%(path)s of %(count)d", ({"path": "a\r\nb", "count": 2},), "a\\r\n    b of 2"),
        ("\x9b2J\n100% done", (), "\\x9b2J\n    100% done"),
        ("%s and %r", (_Mute(), "käse"), "<_Mute> and 'käse'"),
    ],
    ids=["values", "names", "message", "mute"],
)
def test_what_is_not_printable_is_written_as_text(
    message: str, values: tuple[object, ...], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger_of("task_assignor.test").warning(message, *values)
    (record,) = caplog.records
    assert record.getMessage() == expected
    for value in values:
        assert not isinstance(value, Mapping) or value["path"] == "a\r\nb"


def test_tracebacks_are_written_so_too(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no\x1b[31m\nINFO root: all is well")
    except ValueError:
        logger_of("task_assignor.test").exception("failed")
    assert "ValueError: no\\x1b[31m\n    INFO root: all is well" in caplog.text
    assert "\x1b" not in caplog.text


def test_every_module_logs_so() -> None:
    package = Path(task_assignor.__file__).parent
    direct = [path for path in package.rglob("*.py") if "getLogger(__name__)" in path.read_text("utf-8")]
    assert direct == []
