"""`task-assignor demo`, as far as it goes without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Runner


def test_without_its_packages_the_demo_names_its_own_extra_and_does_nothing(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rooms that it uses name theirs, which are not enough for it."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = run("demo")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "pip install 'task-assignor[demo]'" in done.err
    assert list(tmp_path.iterdir()) == []
