"""Twenty runs of real processes under kills, stops, scale-out and scale-in, driver restarts, full disks and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.budget import requested_examples
from tests.runtime.chaos import Chaos

SEEDS = 20
LONG = min(requested_examples() or 500, 500)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_a_run_ends_exactly(tmp_path: Path, seed: int) -> None:
    Chaos(tmp_path / "run", seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, LONG))
def test_whatever_happens_a_run_ends_exactly_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    Chaos(tmp_path / "run", seed).run()
