"""Who waits for others in one thread says so when that takes long: a disk, a service or a user's function may never come back.

It knows, too, for how long nothing at all has run in this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from task_assignor.sdk.logs import logger_of

LONG_S: Final = 5.0
"""It is told of what takes so long; then again after twice, four times ... the time."""
_LOOK_EVERY_S: Final = 0.5
_STILL_S: Final = 2 * _LOOK_EVERY_S
_log = logger_of(__name__)


class Standstill:
    """Watches one thread from another one.

    Args:
        who: whose thread it is, to begin a sentence with.
        long_s: after so long it is told.
    """

    def __init__(self, who: str, long_s: float = LONG_S) -> None:
        self._who = who
        self._long_s = long_s
        self._over = threading.Event()
        self._waits: tuple[str, float] | None = None
        self._tells_after_s = long_s
        self._lock = threading.Lock()
        self._is_watching = False
        self._ran_s, self._still_s = 0.0, 0.0

    def __enter__(self) -> Self:
        self._ran_s, self._is_watching = time.monotonic(), True
        threading.Thread(target=self._watch, name="standstill", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """While this is waited for; `what` ends the sentence "... has waited for 5 s for"."""
        before, self._waits = self._waits, (what, time.monotonic())
        try:
            yield
        finally:
            self._waits = before

    def take_still_ms(self) -> int:
        """So long nothing has run in this process since it was asked last: it was stopped, or somebody's code held Python's lock."""
        with self._lock:
            self._run()
            still_s, self._still_s = self._still_s, 0.0
        return round(1000 * still_s)

    def _run(self) -> None:
        now = time.monotonic()
        if self._is_watching and now - self._ran_s > _STILL_S:
            self._still_s += now - self._ran_s
        self._ran_s = now

    def _watch(self) -> None:
        told: tuple[str, float] | None = None
        while not self._over.wait(min(_LOOK_EVERY_S, self._long_s)):
            with self._lock:
                self._run()
            waits, now = self._waits, time.monotonic()
            if told is not None and waits is not told:
                _log.warning("%s goes on, after %.0f s.", self._who, now - told[1])
                told, self._tells_after_s = None, self._long_s
            if waits is not None and now - waits[1] >= self._tells_after_s:
                _log.warning("%s has waited for %.0f s for %s.", self._who, now - waits[1], waits[0])
                told, self._tells_after_s = waits, 2 * (now - waits[1])
