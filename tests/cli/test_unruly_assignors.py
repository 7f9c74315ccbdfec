"""What somebody else's assignor does neither ends a command unseen nor gets among its answers; of `run` this is in `test_run.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sdk.documents import document
from tests.vectors import lines_of

Written = Callable[..., Path]

ENDS = """
import os
from task_assignor.builtin_assignors import StickyTaskAssignor

if os.environ["WHERE"] == "import":
    os._exit(0)

class Ends(StickyTaskAssignor):
    def configure(self, configs):
        if os.environ["WHERE"] == "configure":
            os._exit(0)
        super().configure(configs)

    def assign(self, state):
        if os.fork() == 0:
            # A process of its own may end as it likes, also with some code after it.
            try:
                os._exit(7)
            finally:
                os.write(2, b"went on")
        os.wait()
        if os.environ["WHERE"] == "assign":
            os._exit(0)
        return super().assign(state)
"""


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("import", "Importing ends failed with SystemExit: 0"),
        ("configure", "Making and configuring it failed with SystemExit: 0"),
        ("assign", "The assignor ends.Ends failed with SystemExit: 0 (ends.Ends.assign, line 23)"),
        ("nowhere", ""),
    ],
)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_an_assignor_cannot_end_the_command_as_if_all_were_well(
    tmp_path: Path, written: Written, command: str, where: str, told: str
) -> None:
    """With `os._exit(0)` it ended with exit code 0, and with no word."""
    written("x.json", document())
    (tmp_path / "ends.py").write_text(ENDS, encoding="utf-8")
    arguments = ["x.json", "-a", "ends.Ends"] if command == "plan" else ["x.json", "ends.Ends"]
    done = subprocess.run(
        [sys.executable, "-m", "task_assignor", command, *arguments],
        cwd=tmp_path,
        env={**os.environ, "WHERE": where},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, told in done.stderr, "went on" in done.stderr) == (2 if told else 0, True, False)


HALF = """
from task_assignor import TaskAssignment, TaskAssignor

class Answer(TaskAssignment):
    def __init__(self, why):
        self.why = why

class Half(TaskAssignor):
    def assign(self, state):
        return Answer("something else first")
"""


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_an_answer_that_cannot_be_read_is_the_assignors_failure(tmp_path: Path, written: Written, command: str) -> None:
    """It ended the command with a traceback and exit code 1, that of a finding; other states had no answer."""
    written("x.jsonl", document(), document())
    (tmp_path / "half.py").write_text(HALF, encoding="utf-8")
    arguments = ["-a", "half.Half"] if command == "plan" else ["half.Half"]
    done = subprocess.run(
        [sys.executable, "-m", "task_assignor", command, "x.jsonl", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = "The answer of the assignor half.Half cannot be read: AttributeError"
    assert (done.returncode, done.stderr.count(told), "Traceback" in done.stderr) == (2, 2, False)


LOUD_OR_AT_AN_END = """
import os
from task_assignor.builtin_assignors import StickyTaskAssignor

class Loud(StickyTaskAssignor):
    def assign(self, state):
        print("printed")
        os.system("echo echoed")
        return super().assign(state)

class Ends(StickyTaskAssignor):
    def assign(self, state):
        os._exit(0)
"""


@pytest.mark.parametrize(("name", "code"), [("Loud", 0), ("Ends", 1)])
def test_an_assignor_neither_writes_among_the_answers_nor_ends_the_command(
    tmp_path: Path, name: str, code: int
) -> None:
    """It is found in the current folder, also by the script, which is not on Python's path there."""
    (tmp_path / "unruly.py").write_text(LOUD_OR_AT_AN_END, encoding="utf-8")
    good = next(v for v in lines_of("consumer_level/streams_assignor") if "members" in v["response"])
    request = {**good["request"], "config": {"task.assignor.class": f"unruly.{name}"}}
    script = "from task_assignor.cli import main; import sys; sys.path.remove(''); main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "lead", "-"],
        cwd=tmp_path,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, "members" in answer["response"]) == (code, code == 0)
    if code:
        assert "failed with SystemExit: 0 (unruly.Ends.assign, line 13)" in answer["response"]["error"]["message"]
    else:
        assert done.stderr.split() == ["printed", "echoed"]


CLOSES = """
import sys
from task_assignor import TaskAssignor

class Closes(TaskAssignor):
    def assign(self, state):
        sys.stdout.close()
"""


def test_an_assignor_that_closes_its_output_does_not_hide_what_is_wrong_with_it(
    tmp_path: Path, written: Written
) -> None:
    """The error could not be written, and the exit code was that of a finding."""
    written("x.json", document())
    (tmp_path / "closes.py").write_text(CLOSES, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "task_assignor", "plan", "x.json", "-a", "closes.Closes"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "The answer (None) must be a TaskAssignment." in done.stderr) == (2, True)
