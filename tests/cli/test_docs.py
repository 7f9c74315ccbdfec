"""The commands in docs/cli.md are run, and print what is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("command", "output"), examples(), ids=lambda text: text.splitlines()[0][:60] if text else "")
def test_an_example_prints_what_it_says(command: str, output: str, tmp_path: Path) -> None:
    for name, block in zip(("state.json", "group.json"), blocks("json"), strict=False):
        (tmp_path / name).write_text(block, encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.stderr == ""
    shown = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert output.rstrip("\n") == shown
