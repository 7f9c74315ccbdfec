"""Looks again and again how far sources reach, in a thread of its own. What follows from it, others decide."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

import attrs

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import CommitLogException, TopicException
from task_assignor.runtime.tasks.log import Log, refresh_all
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)

_QUIET_S: Final = 1.0
_QUIET: Final = 2.5
"""When nothing has moved for so long, pauses become so many times longer: looking costs, also where there is nothing."""
_SHARE: Final = 0.05
"""Looking takes no more than this of a processor in its thread, and clients of brokers about as much again in theirs: to ask for a thousand
partitions of a topic of Kafka takes 14 ms."""
_LOOKS: Final = 5
"""What a look takes is the median of so many."""


@attrs.frozen
class Moved:
    """What a look has seen.

    Args:
        ends: log -> end offset of each partition, of those that have moved.
        markers: what was to be told when all logs have been looked at.
    """

    ends: Mapping[str, Sequence[int]]
    markers: tuple[str, ...] = ()


Tell = Callable[[Moved | StreamsException], None]
"""Told of ends that have moved; or, once and at the end, why they cannot be seen any more."""


class Watcher:
    """Watches logs.

    Args:
        logs: the logs, by name.
        interval_s: pause between two looks; after a second in which nothing has moved, 2.5 times that. Longer, where looking would take
            more than a tenth of a processor otherwise.
        patience_s: a log that cannot be read is looked at again for so long: networks and brokers come back.
    """

    def __init__(self, logs: Mapping[str, Log], interval_s: float, patience_s: float) -> None:
        self._logs = dict(logs)
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._is_over = threading.Event()
        self._markers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, tell: Tell) -> None:
        """Begin; what is told first are the ends of all logs."""
        self._thread = threading.Thread(target=self._run, args=(tell,), name="watcher", daemon=True)
        self._thread.start()

    def look(self, marker: str) -> None:
        """Tell it when all logs have been looked at, from now on. May be called from any thread."""
        self._markers.put(marker)

    def stop(self) -> None:
        """End, without waiting for a look that takes its time."""
        self._is_over.set()

    def _run(self, tell: Tell) -> None:
        try:
            self._watch(tell)
        except BaseException as error:  # noqa: BLE001 - a run that is told of nothing would wait for ever
            tell(TopicException(f"It cannot be seen any more how far the sources reach: {text_of(error)}"))

    def _watch(self, tell: Tell) -> None:
        known: dict[str, list[int]] = {}
        failing_since: float | None = None
        moved_s = time.monotonic()
        markers: list[str] = []
        used_s = deque([0.0] * _LOOKS, _LOOKS)
        while not self._is_over.is_set():
            markers += [self._markers.get() for _ in range(self._markers.qsize())]
            before_s = time.thread_time()
            try:
                moved = Moved(self._look(known), tuple(markers))
                failing_since = None
            except CommitLogException as error:
                # That is not over soon: another run goes on where this one was.
                tell(error)
                return
            except BaseException as error:  # noqa: BLE001 - a run that is told of nothing would wait for ever
                told = error if isinstance(error, StreamsException) else TopicException(text_of(error))
                if failing_since is None:
                    failing_since = time.monotonic()
                    _log.warning("It cannot be seen how far the sources reach; it is tried again: %s", told)
                if time.monotonic() - failing_since > self._patience_s:
                    tell(told)
                    return
                moved = Moved({})
            if moved.ends or moved.markers:
                tell(moved)
                markers.clear()
            if moved.ends:
                moved_s = time.monotonic()
            is_quiet = time.monotonic() > moved_s + _QUIET_S
            used_s.append(time.thread_time() - before_s)
            # One that takes longer than others has met something else, as a collection of garbage, or imports at the beginning.
            self._is_over.wait(max(self._interval_s * (_QUIET if is_quiet else 1), median(used_s) * (1 / _SHARE - 1)))

    def _look(self, known: dict[str, list[int]]) -> dict[str, list[int]]:
        """The ends that differ from those that are known, which they become when all logs have been looked at."""
        moved = {}
        refresh_all(self._logs.values())
        for name, log in self._logs.items():
            ends = list(log.end_offsets())
            if known.get(name) != ends:
                log.check(known[name] if name in known else log.start_offsets())
                moved[name] = ends
        known.update(moved)
        return moved
