"""Who waits for others says so when that takes long: a disk that stands still was silence, for as long as it did."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from task_assignor.runtime import BatchesCommitted, RunEvent, RunResult
from task_assignor.runtime import application as module
from task_assignor.runtime.shells.standstill import Standstill
from task_assignor.runtime.storage.local import LocalStorage
from tests.runtime.support import QUICK, application, join_topology, write_streams

LOGGER = "task_assignor.runtime.shells.standstill"


class Said(logging.Handler):
    """What was said, and a wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._more:
            self.lines.append(record.getMessage())
            self._more.notify_all()

    def wait_for(self, part: str, count: int = 1) -> None:
        with self._more:
            assert self._more.wait_for(lambda: sum(part in line for line in self.lines) >= count, 60), self.lines


@pytest.fixture
def said() -> Any:
    handler = Said()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler
    logging.getLogger(LOGGER).removeHandler(handler)


def _run(root: Path, on_event: Callable[[RunEvent], None] | None = None) -> RunResult:
    write_streams(root / "topics", 2_000, 100)
    return application(root, join_topology(), options=QUICK).run(on_event)


def test_a_long_wait_is_told_again_and_again_and_its_end_too(said: Said) -> None:
    with Standstill("The run", long_s=0.01) as waits:
        with waits.during("its folder"), waits.during("commit 3, in /there"):
            said.wait_for("The run has waited for 0 s for commit 3, in /there.", 3)
            assert not any("goes on" in line for line in said.lines)
        said.wait_for("The run goes on, after 0 s.")
        with waits.during("another"):
            said.wait_for("for another.")
    assert not any("its folder" in line for line in said.lines), "what is inside is waited for"


def test_a_disk_that_stands_still_while_a_commit_is_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(module, "Standstill", partial(Standstill, long_s=0.2))
    put = LocalStorage.put_if_absent

    def slow(self: LocalStorage, name: str, data: Any) -> None:
        if name.startswith("commits/") and name.endswith("3.json"):
            said.wait_for("for commit 3, in ")
        put(self, name, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", slow)
    result = _run(tmp_path)
    assert result.batches > 3
    assert f"for commit 3, in {tmp_path / 'run'}" in " ".join(said.lines)


def test_a_listener_that_does_not_come_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(module, "Standstill", partial(Standstill, long_s=0.2))

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted) and event.commit == 2:
            said.wait_for("for those who are told of events: on_event, ")

    _run(tmp_path, on_event)


def test_it_knows_how_long_nothing_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("task_assignor.runtime.shells.standstill.time.monotonic", lambda: now)
    waits = Standstill("The run")
    now += 30
    assert waits.take_still_ms() == 0, "nobody has looked"
    # No other thread looks before this one does: it would have stood still as well.
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    with waits:
        now += 0.9
        assert waits.take_still_ms() == 0
        now += 30
        waits._run()
        now += 20
        assert [waits.take_still_ms(), waits.take_still_ms()] == [50_000, 0]
