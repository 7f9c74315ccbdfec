"""Twenty runs of real processes under kills, stops, scale-out and scale-in, driver restarts, full disks and damaged files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.budget import requested_examples
from tests.runtime.chaos import Chaos
from tests.runtime.support import PATIENCE_S, commit_file

SEEDS = 20
LONG = min(requested_examples() or 500, 500)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_a_run_ends_exactly(tmp_path: Path, seed: int) -> None:
    Chaos(tmp_path / "run", seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, LONG))
def test_whatever_happens_a_run_ends_exactly_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    Chaos(tmp_path / "run", seed).run()


def test_chaos_itself_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    """A run that a signal had stopped was taken for one that had come to its end, and the next one began."""
    program = [sys.executable, "-m", "tests.runtime.chaos", "0", "5", str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not commit_file(tmp_path / "0" / "run", 2).exists():
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            running.send_signal(signal.SIGTERM)
            said, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode not in (0, 1)
    assert "KeyboardInterrupt" in errors
    assert "failed" not in said
