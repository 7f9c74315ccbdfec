"""Somebody else's code runs for a limited time."""

from __future__ import annotations

import threading
import time

import pytest

from task_assignor.group.limits import GivenUpError, Limited


def test_an_answer_in_time_is_the_answer() -> None:
    assert Limited(lambda: 7, "quick").answer(60) == 7


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_what_the_code_raises_is_raised(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        Limited(fail, "failing").answer(60)
    assert caught.value is error


def test_what_does_not_come_back_is_given_up_and_ended() -> None:
    ended = threading.Event()

    def hang() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            ended.set()

    with pytest.raises(GivenUpError, match=r"no answer within 0\.05 s"):
        Limited(hang, "hanging").answer(0.05)
    assert ended.wait(60)
