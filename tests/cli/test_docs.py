"""The commands in docs/cli.md are run, and print what is written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Runner

CLI = Path(__file__).parents[2] / "docs" / "cli.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", CLI.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """(command, output) of the console blocks."""
    found = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def in_a_shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.stderr == ""
    return done.stdout


def in_this_process(stages: list[list[str]], run: Runner) -> str:
    """What a pipe of `echo` and `task-assignor` prints: each `task-assignor` would import all of it anew."""
    text = ""
    for program, *arguments in stages:
        if program == "echo":
            text = " ".join(arguments) + "\n"
        else:
            done = run(*arguments, stdin=text.encode())
            assert done.err == ""
            text = done.out
    return text


@pytest.mark.parametrize(("command", "output"), examples(), ids=lambda text: text.splitlines()[0][:60] if text else "")
def test_an_example_prints_what_it_says(command: str, output: str, run: Runner, tmp_path: Path) -> None:
    for name, block in zip(("state.json", "group.json"), blocks("json"), strict=False):
        (tmp_path / name).write_text(block, encoding="utf-8")
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    words = " ".join("\n" if word == "|" else shlex.quote(word) for word in lexer)
    stages = [shlex.split(stage) for stage in words.split("\n")]
    is_ours = {stage[0] for stage in stages} <= {"echo", "task-assignor"}
    printed = in_this_process(stages, run) if is_ours else in_a_shell(command, tmp_path)
    shown = "\n".join(line.rstrip() for line in printed.splitlines())
    assert output.rstrip("\n") == shown
