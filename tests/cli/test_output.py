"""What comes from outside is never taken for commands by a terminal, whatever outlet it takes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from task_assignor.cli.output import survive_any_text, write_json_text, write_readable_json
from tests.cli.conftest import Runner
from tests.sdk.documents import FIRST, SECOND, document

Written = Callable[..., Path]
EVIL = "\x1b[31m\x9b2J\u202e"
SHOWN = r"\x1b[31m\x9b2J\u202e"


def _named(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace("orders", name))


@pytest.mark.parametrize("command", [["validate"], ["plan", "-a", "sticky"]])
def test_names_of_topologies_are_shown_as_escapes(run: Runner, written: Written, command: list[str]) -> None:
    state = written("s.json", _named(document(), json.dumps(EVIL)[1:-1]))
    wrong = written(
        "a.json", [{"processId": one, "activeTasks": [], "standbyTasks": [f"{EVIL}__1_0"]} for one in (FIRST, SECOND)]
    )
    done = run(*command, state, *([wrong] if command == ["validate"] else []))
    assert not set(EVIL) - set("[31m2J") & set(done.out + done.err)
    assert SHOWN in "".join(line.strip(" │") for line in done.out.splitlines())


def test_errors_keep_their_lines_and_show_the_rest_as_escapes(run: Runner) -> None:
    done = run("plan", f"no{EVIL}")
    assert done.err.startswith(f"Error: no{SHOWN} cannot be read")
    assert done.err.endswith("\n")


def test_json_for_people_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"größe": EVIL}
    write_readable_json(value)
    text = capsys.readouterr().out
    assert json.loads(text) == value
    assert "größe" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_json_stays_json_where_standard_output_is_not_utf_8(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    r"""Its escapes were those of Python, as `\xfc`, which no reader of JSON takes, or its bytes no UTF-8."""
    value = {"größe": "\U0001f600"}
    for write in (write_readable_json, lambda found: write_json_text(json.dumps(found, ensure_ascii=False))):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
        survive_any_text()
        write(value)
        assert json.loads(written.getvalue()) == value


def test_the_help_of_a_command_is_broken_where_the_terminal_ends(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was broken where the source is, too, in the middle of a sentence."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    lines = [line.strip() for line in run("run", "--help").out.splitlines()]
    assert any(line.startswith("Ctrl-C and SIGTERM") and line.endswith("goes on from there.") for line in lines)


def test_a_failure_that_nobody_foresaw_is_no_finding(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory `validate` ended with Python's own exit code 1, as for an assignment that is wrong."""

    def fails(path: object) -> None:
        raise MemoryError(path)

    monkeypatch.setattr("task_assignor.cli.validate.iter_states", fails)
    done = run("validate", "a", "b", shows_traceback=True)
    assert (done.code, done.out, done.err.splitlines()[-1]) == (2, "", "MemoryError: a")
