"""The random trouble of the runtime's chaos on a standalone cluster; `make chaos-cluster` runs more of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import SOURCES

SEEDS = 3


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the executors' processes in /proc")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_on_a_cluster_a_run_ends_exactly(seed: int) -> None:
    """In a process of its own: this one may have another Spark session."""
    program = [sys.executable, "-m", "tests.spark.chaos_on_cluster", "--seeds", "1", "--first", str(seed)]
    done = subprocess.run(program, cwd=SOURCES.parent, capture_output=True, text=True, timeout=1_800, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seed"] == seed
