"""Somebody else's code runs for a limited time."""

from __future__ import annotations

import threading
import time

import pytest

from task_assignor.group.limits import GivenUpError, Limited


def test_an_answer_in_time_is_the_answer() -> None:
    assert Limited(lambda: 7, "quick").answer(60) == 7
    # Of a limit that is longer than any the thread's lock said that it is too large.
    assert Limited(lambda: 7, "quick").answer(2**63 / 1000) == 7


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_what_the_code_raises_is_raised(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        Limited(fail, "failing").answer(60)
    assert caught.value is error


def test_what_does_not_come_back_is_given_up_and_ended() -> None:
    begun, ended = threading.Event(), threading.Event()

    def hang() -> None:
        try:
            begun.set()
            while True:
                time.sleep(0.001)
        finally:
            ended.set()

    limited = Limited(hang, "hanging")
    assert begun.wait(60)
    with pytest.raises(GivenUpError, match=r"^did not answer within 0\.05 s \(tests\..*hang, line \d+\)$"):
        limited.answer(0.05)
    assert ended.wait(60)


def test_what_has_not_begun_when_it_is_given_up_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with a traceback of its thread, where that was slow to start."""
    called: list[int] = []
    may_begin, run = threading.Event(), threading.Thread.run

    def begin_late(thread: threading.Thread) -> None:
        may_begin.wait(60)
        run(thread)

    monkeypatch.setattr(threading.Thread, "run", begin_late)
    limited = Limited(lambda: called.append(1), "late")
    assert limited.give_up()
    may_begin.set()
    limited._thread.join(60)
    assert not limited._thread.is_alive()
    assert called == []


def test_who_gives_a_call_up_is_never_told_of_its_end() -> None:
    told: list[object] = []
    begun, may_end = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        may_end.wait(60)
        return 7

    limited = Limited(call, "slow", lambda found, error: told.append((found, error)))
    assert begun.wait(60)
    assert limited.give_up()
    assert not limited.give_up()
    may_end.set()
    limited._thread.join(60)
    assert not limited._thread.is_alive()
    assert told == []


def test_an_end_is_told_once_with_what_came_of_it() -> None:
    told: list[object] = []
    limited = Limited(lambda: 7, "quick", lambda found, error: told.append((found, error)))
    assert limited.answer(60) == 7
    assert told == [(7, None)]
    assert not limited.give_up()
