"""Servers of the tests end with the tests, also with those that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import Server, alive

_KILLED = """
import os, sys
from pathlib import Path
from tests.processes import Server
Server(["sh", "-c", "sleep 600; true"], folder=Path(sys.argv[1]))
os.kill(os.getpid(), 9)
"""


def test_a_server_and_its_folder_go_with_who_started_it(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    (folder / "data").mkdir(parents=True)
    program = [sys.executable, "-c", _KILLED, str(folder)]
    # The outputs end with the last process that has them: the server, its child, and what looks after them.
    subprocess.run(program, cwd=Path(__file__).parents[1], capture_output=True, timeout=60, check=False)
    assert list(tmp_path.iterdir()) == []


def test_nobody_looks_after_a_server_that_has_ended(tmp_path: Path) -> None:
    with Server(["sh", "-c", "exit 3"], folder=tmp_path) as server:
        assert server.wait(60) == 3
    assert not alive(server.guard.pid)
    assert tmp_path.exists()
