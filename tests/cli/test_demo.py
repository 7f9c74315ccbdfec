"""`task-assignor demo`, as far as it goes without Spark."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path

import pytest

from task_assignor.cli.demo import leave_interrupts_to_python
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


def test_an_interrupt_is_pythons_and_nothing_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        leave_interrupts_to_python()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        for error in (KeyboardInterrupt(), ValueError()):
            logging.getLogger().error("while sending", exc_info=error)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ValueError]
