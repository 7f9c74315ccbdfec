"""SIGTERM and Ctrl-C as a wish to end well: what runs in the main thread is asked to stop, and at the second signal it stops, but not
in the middle of what is `unbroken`.
"""  # noqa: D205

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


@contextmanager
def stopping_on_signals(request_stop: Callable[[str], None]) -> Iterator[None]:
    """While it lasts, the first SIGTERM or SIGINT asks to stop; the second raises KeyboardInterrupt in the main thread.

    Outside of the main thread it does nothing: Python allows handlers only there. A signal that is ignored stays so.

    Args:
        request_stop: told why; must be safe to call at any moment.

    Raises:
        KeyboardInterrupt: a second signal came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[str] = []

    def handle(number: int, _: FrameType | None) -> None:
        came.append(SIGNALS[signal.Signals(number)])
        if len(came) > 1:
            raise KeyboardInterrupt(f"{came[-1]} after {came[0]}")
        request_stop(came[0])

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    try:
        for number in ours:
            signal.signal(number, handle)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def unbroken() -> Iterator[None]:
    """While it lasts, a first SIGTERM or SIGINT is kept, and comes at its end: for what would be half done, and say so, such as a call of Java.

    Of several only the last one is kept. Outside of the main thread it does nothing; nor for a signal that Python does not handle.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    came: list[signal.Signals] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number))
        if len(came) > 1:
            first = came.pop(0)
            before[first](first, frame)

    try:
        for number in before:
            signal.signal(number, keep)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)
