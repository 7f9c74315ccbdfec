"""What those who read a repartition topic have heard of its time (`topic_time`), and when they are to hear more. No files here.

They hear it with their rows. Where no more come, windows would stay open: so it is told by a batch without rows - in a bounded run
when all is read, in one that goes on every now and then. Who has not heard it may still give rows that are over by then:
those who read what it writes have to wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from task_assignor.runtime.machines.topic_time import NO_TIME

_EVERY_MS: Final = 1_000
_A_TASK_MS: Final = 10


def news_every_ms(tasks: int) -> int:
    """So often a run that goes on tells so many tasks what time it is: a second, or so that it takes a tenth of a core or so."""
    return max(_EVERY_MS, _A_TASK_MS * tasks)


class TopicNews:
    """Who has heard what.

    Args:
        readers: topic that has a time -> how many tasks read it.
        every_ms: so often it is told to those for whom there are no rows; None: as soon as they may hear it.
    """

    def __init__(self, readers: Mapping[str, int], every_ms: int | None) -> None:
        self._told = {topic: np.full(count, NO_TIME) for topic, count in readers.items()}
        """(tasks,) up to which time each knows that all have come."""
        self._have_begun = {topic: np.zeros(count, np.bool_) for topic, count in readers.items()}
        """(tasks,) which have had a batch: the others have no windows that could be over."""
        self._every_ms = every_ms
        self._announced = dict.fromkeys(readers, NO_TIME)
        """The time that all are told of, rows or none."""
        self._announced_ms = 0

    def __contains__(self, topic: str) -> bool:
        return topic in self._told

    def hear(self, topic: str, reader: int, time: int | None) -> None:
        """A batch of a task counts.

        Args:
            topic: the topic.
            reader: number of the task.
            time: what it was told with it, ms; None: nothing.
        """
        self._have_begun[topic][reader] = True
        if time is not None:
            self._told[topic][reader] = time

    def are_behind(self, topic: str, time: int) -> npt.NDArray[np.bool_]:
        """(tasks,) which have not heard that all have come up to this time, and may have something to give when they do."""
        behind: npt.NDArray[np.bool_] = self._have_begun[topic] & (self._told[topic] < time)
        return behind

    def is_due(self, topic: str, reader: int, time: int) -> bool:
        """Task number `reader` is to be told, rows or none, up to which time (ms) all have come."""
        known = time if self._every_ms is None else min(self._announced[topic], time)
        return bool(self._have_begun[topic][reader] and self._told[topic][reader] < known)

    def next_ms(self, times: Mapping[str, int], *, may_move: bool) -> int | None:
        """When something is to be announced, ms since the epoch; None: there is nothing, or it need not be.

        Args:
            times: up to which time all have come, by topic.
            may_move: these may be later by then, even if nothing happens.
        """
        is_news = may_move or any(times[topic] > known for topic, known in self._announced.items())
        return self._announced_ms + self._every_ms if is_news and self._every_ms is not None else None

    def announce(self, times: Mapping[str, int], now_ms: int) -> None:
        """From now on (ms since the epoch) all are told of these times, by topic."""
        self._announced.update((topic, times[topic]) for topic in self._announced)
        self._announced_ms = now_ms
