"""The time of a repartition topic: up to which all tasks have come that write it. No files here.

Several tasks write to one partition, each as far as it has come, and one may be a day behind another. So the newest time in
a partition says nothing of what comes next. What does is how far each of them is: a task that reads in the order of time
will write no row that is older than its newest one. The lowest of these times, over the tasks that have more to read, is
that of the topic (Flink and Beam call it the watermark). It never goes back.

* A task that has read everything holds nobody back, as with sources; what it reads later comes later. In a run that goes on it
  does for as long as sources are waited for (`max.task.idle.ms`). If none holds back, the newest time that any has written counts.
* Windows and joins hold rows back, or give such that are older than others that they have given. They say with each batch
  from which time on their rows still come, and that alone counts.
* Another task may write seldom. Where it has read on since, it would write rows of then: as far behind what is read as rows
  of the topic have been at most. But no time is later than that of the newest row.
* A task that reads a repartition topic itself is given its rows as they come, not in the order of time. So what it has
  written says nothing; but none of its rows will be older than the time of that topic, which is how far it has read. As long as it
  has not heard of that, it has not read everything: windows may be over that it has still to give. If these say what still comes
  (a session that goes on may have begun long ago), that counts, whatever it has read.
* As long as nothing is known of a task that has something to read, nothing is known of the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

NO_TIME: Final = int(np.iinfo(np.int64).min)
"""Older than all times."""


@attrs.frozen
class Writers:
    """Those who write a topic.

    Args:
        tasks: how many they are.
        they_tell: they say with each batch than what no row will be older that they still write.
        are_in_order: they are given records in the order of time.
    """

    tasks: int
    they_tell: bool = False
    are_in_order: bool = True


class TopicTime:
    """How far those who write a topic are.

    Args:
        writers: who they are.
        idle_ms: so long after its last rows a task holds the others back that has read everything.
        are_told: who reads repartition topics is told their times also where it gets no rows.

    Attributes:
        now: up to which time all have come, ms; `NO_TIME`: it is not known.
    """

    def __init__(self, writers: Writers, idle_ms: int = 0, *, are_told: bool = True) -> None:
        self.now = NO_TIME
        self._all_count = writers.they_tell and are_told and not writers.are_in_order
        """What was told counts for good: who is told what time it is, and has rows still to give, says so."""
        self._idle_ms = idle_ms
        self._last_ms: npt.NDArray[np.int64] = np.full(writers.tasks, NO_TIME)
        """(tasks,) when each read rows for the last time, ms since the epoch."""
        self._writers = writers
        self._behind_ms: int | None = None
        """By how much a row has been behind what its task had read before, at most; None: not known."""
        self._written: npt.NDArray[np.int64] = np.full(writers.tasks, NO_TIME)
        """(tasks,) newest time of the rows that each has written; where they tell, what each has told."""
        self._read: npt.NDArray[np.int64] = np.full(writers.tasks, NO_TIME)
        """(tasks,) the time up to which each has read."""

    def begin(self, now_ms: int) -> None:
        """A run begins: of nobody it is known what comes."""
        self._last_ms[:] = now_ms

    def read_rows(self, writer: int, now_ms: int) -> None:
        """A task has read rows."""
        self._last_ms[writer] = now_ms

    def are_held(self, now_ms: int) -> npt.NDArray[np.bool_]:
        """(tasks,) for which more rows are waited."""
        held: npt.NDArray[np.bool_] = self._last_ms > now_ms - self._idle_ms
        return held

    def see(
        self,
        writer: int,
        read: tuple[int | None, int | None],
        times: tuple[int, int] | None,
        to_come: int | None = None,
    ) -> None:
        """A batch of a task is committed.

        Args:
            writer: number of the task.
            read: newest time of what it has read; up to which time all have come who write repartition topics that it reads, ms.
            times: oldest and newest time of the rows that it has written to the topic in this batch; None: there are none.
            to_come: no row that it still writes is older than this, ms; None: it does not say.
        """
        if self._writers.they_tell:
            # What was told under another grace holds as well.
            self._written[writer] = max(int(self._written[writer]), NO_TIME if to_come is None else to_come)
            return
        before, time = int(self._read[writer]), read[0 if self._writers.are_in_order else 1]
        if times is not None:
            self._written[writer] = max(int(self._written[writer]), times[1])
            if before != NO_TIME:
                self._behind_ms = max(self._behind_ms or 0, before - times[0])
        if time is not None:
            self._read[writer] = max(before, time)

    def move(self, are_busy: npt.NDArray[np.bool_]) -> None:
        """See how far all are.

        Args:
            are_busy: (tasks,) which may give rows of before.
        """
        found = newest = int(self._written.max(initial=NO_TIME))
        if self._writers.they_tell:
            counts = are_busy | (self._written != NO_TIME) if self._all_count else are_busy
            found = int(self._written[counts].min()) if counts.any() else newest
        elif are_busy.any():
            come = np.full(len(self._read), NO_TIME)
            if self._behind_ms is not None:
                come = np.where(self._read == NO_TIME, NO_TIME, self._read - self._behind_ms)
            if self._writers.are_in_order:
                come = np.maximum(come, self._written)
            # How far they have read since the newest row hangs on where batches end.
            found = min(int(come[are_busy].min()), newest)
        self.now = max(self.now, found)

    # For checkpoints.

    def saved(self) -> tuple[int | None, ...]:
        """By how much rows have been behind, then the newest time that each task has written, or what it has told."""
        return (self._behind_ms, *(None if time == NO_TIME else time for time in self._written.tolist()))

    def load(self, saved: Sequence[int | None]) -> None:
        """Take what was saved; of other tasks it says nothing."""
        # Former versions did not ask those who tell, and saved what these had written.
        is_of_former = self._writers.they_tell and saved[:1] != (None,)
        if len(saved) == len(self._written) + 1 and not is_of_former:
            self._behind_ms = saved[0]
            self._written[:] = [NO_TIME if time is None else time for time in saved[1:]]
