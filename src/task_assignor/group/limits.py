"""Runs somebody else's code in a thread of its own: the caller goes on meanwhile, and can give it up."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from task_assignor.sdk.text import place_of_thread

_Answer = TypeVar("_Answer")


class _GivenUp(BaseException):
    """Raised inside code that nobody waits for any more."""


class GivenUpError(Exception):
    """The code did not come back in time; the message says where it was, and is the end of a sentence about it."""


class Limited(Generic[_Answer]):
    """A call in a thread of its own.

    Args:
        call: what is run.
        name: name of the thread.
        done: called in that thread with what the call returned and None, or None and what it raised; never after
            `give_up`.
    """

    def __init__(
        self,
        call: Callable[[], _Answer],
        name: str,
        done: Callable[[_Answer | None, BaseException | None], None] | None = None,
    ) -> None:
        self._call = call
        self._done = done
        self._returned: list[_Answer] = []
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._has_begun = self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._lock:
                self._has_begun = not self._is_over
            if not self._has_begun:
                return
            try:
                self._returned.append(self._call())
            except BaseException as error:  # noqa: BLE001  (handed on to who asks for the answer)
                self._failure = error
            with self._lock:
                if self._is_over:
                    return
                self._is_over = True
                if self._done is not None:
                    self._done(self._returned[0] if self._returned else None, self._failure)
        except _GivenUp:
            # It came after the call had ended.
            return

    def answer(self, limit_s: float) -> _Answer:
        """What the call returns.

        Args:
            limit_s: longest wait, seconds.

        Raises:
            GivenUpError: it did not return in time; it is ended as soon as it runs Python code again.
            BaseException: what the call raised.
        """
        self._thread.join(min(limit_s, threading.TIMEOUT_MAX))
        where = self.where()
        if self.give_up():
            raise GivenUpError(f"did not answer within {limit_s:.3g} s" + (f" ({where})" if where else ""))
        if self._failure is not None:
            raise self._failure
        return self._returned[0]

    def where(self) -> str:
        """The function and the line that runs now; "": none."""
        return place_of_thread(self._thread.ident)

    def give_up(self) -> bool:
        """Nobody wants the answer any more: end the thread, if what runs in it lets itself be ended.

        Returns:
            Whether there was something to give up: False if the call had ended before.
        """
        with self._lock:
            if self._is_over:
                return False
            self._is_over = True
            # Before it begins nobody would catch it.
            if self._has_begun and self._thread.ident is not None:
                # What is in a call of another language sees it when that returns; as a daemon it is in nobody's way.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(_GivenUp)
                )
            return True
