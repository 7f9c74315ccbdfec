"""Runs somebody else's code for a limited time: what does not come back is given up, and the caller goes on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")


class _GivenUp(BaseException):
    """Raised inside code that nobody waits for any more."""


class GivenUpError(Exception):
    """The code did not come back in time."""


class Limited(Generic[_Answer]):
    """A call in a thread of its own.

    Args:
        call: what is run.
        name: name of the thread.
    """

    def __init__(self, call: Callable[[], _Answer], name: str) -> None:
        self._call = call
        self._answer: list[_Answer] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except BaseException as error:  # noqa: BLE001  (handed on to who asks for the answer)
            self._failure = error

    def answer(self, limit_s: float) -> _Answer:
        """What the call returns.

        Args:
            limit_s: longest wait, seconds.

        Raises:
            GivenUpError: it did not return in time; it is ended as soon as it runs Python code again.
            BaseException: what the call raised.
        """
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self._give_up()
            raise GivenUpError(f"no answer within {limit_s:g} s")
        if self._failure is not None:
            raise self._failure
        return self._answer[0]

    def _give_up(self) -> None:
        if self._thread.ident is not None:
            # What is in a call of another language sees it when that returns; as a daemon it is in nobody's way.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(_GivenUp))
