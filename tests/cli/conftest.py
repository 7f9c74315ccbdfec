"""Runs the command line in this process, with files and standard input as a shell would give them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from task_assignor.cli import main


@attrs.frozen
class Run:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output, read as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Runner = Callable[..., Run]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Runner]:
    """`run("plan", path, "--json", stdin=b"...")`, in a folder of its own; modules from there are forgotten.

    A traceback is shown where `shows_traceback` says so, and nowhere else.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def runner(*arguments: object, stdin: bytes = b"", shows_traceback: bool = False) -> Run:
        monkeypatch.setattr(sys, "argv", ["task-assignor", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        code = caught.value.code
        assert ("Traceback" in captured.err + captured.out) == shows_traceback
        return Run(code if isinstance(code, int) else 0 if code is None else 1, captured.out, captured.err)

    yield runner
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """`written("x.jsonl", document, document)`: a file with these values as JSON Lines, or with these bytes."""

    def write(name: str, *values: Any) -> Path:
        path = tmp_path / name
        texts = [value if isinstance(value, (str, bytes)) else json.dumps(value) for value in values]
        path.write_bytes(b"".join(text if isinstance(text, bytes) else f"{text}\n".encode() for text in texts))
        return path

    return write
