"""Sessions that are asked for while another thread stops the one before."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from task_assignor.spark import SparkSessionError, session


class _Context:
    """Of Java the session is stopped, and Python is not done with it."""

    _active_spark_context: Any = None

    def __init__(self) -> None:
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True))
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1
        self.begun.set()
        assert self.may_end.wait(60)
        _Context._active_spark_context = None


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> _Context:
    found = _Context()
    monkeypatch.setattr(_Context, "_active_spark_context", found)
    monkeypatch.setattr(session, "SparkContext", _Context)
    return found


def test_who_wants_a_session_waits_until_another_thread_has_stopped_the_one_before(
    context: _Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark stopped it twice at once, or gave one whose parts became None: an AttributeError, or a FileNotFoundError."""
    other = threading.Thread(target=context.stop, daemon=True)
    other.start()
    assert context.begun.wait(60)
    monkeypatch.setattr(session, "_LOOK_S", 0.0)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: context.may_end.set())
    monkeypatch.setattr(session, "time", clock)
    assert session._active_session() is None
    other.join(60)
    assert context.stops == 1


def test_a_stop_that_does_not_come_back_is_not_waited_for_without_end(
    context: _Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = threading.Thread(target=context.stop, daemon=True)
    other.start()
    assert context.begun.wait(60)
    monkeypatch.setattr(session, "_STOPS_S", 0.0)
    with pytest.raises(SparkSessionError, match="Another thread has been stopping the Spark session for 0 s"):
        session._active_session()
    context.may_end.set()
    other.join(60)


def test_a_session_that_java_has_stopped_by_itself_is_forgotten(context: _Context) -> None:
    context.may_end.set()
    assert session._active_session() is None
    assert context.stops == 1


def test_a_master_that_turns_the_driver_away_may_be_one_that_authenticates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself only says that its context is stopped."""

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("Cannot call methods on a stopped SparkContext.")

    monkeypatch.setattr(SparkContext, "__init__", refused)
    monkeypatch.setattr(session, "_forget_stopped", lambda: True)
    with pytest.raises(
        SparkSessionError,
        match=r"no master of a Spark cluster, .* or with another spark\.authenticate or spark\.ssl\.rpc\.",
    ):
        session._start(SparkConf(loadDefaults=False).setMaster("spark://there:7077"), verbose=True)
