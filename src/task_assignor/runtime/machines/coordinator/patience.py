"""For which sources a task waits that have nothing for it at the moment, and how long. No clock: it is told the time.

Source: `max.task.idle.ms` as KIP-353 and KIP-695 have it, `PartitionGroup#readyToProcess`. A source that has brought
nothing for that long is not waited for until it brings something again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from task_assignor.sdk import TaskId

NEVER = -1
"""The `max.task.idle.ms` of those who do not even wait for what is known to be there."""


class Patience:
    """How long tasks have waited already.

    Args:
        max_task_idle_ms: so long each source is waited for.
    """

    def __init__(self, max_task_idle_ms: int) -> None:
        self._limit_ms = max_task_idle_ms
        self._empty_since_ms: dict[tuple[TaskId, str], int] = {}
        self._deadlines_ms: dict[TaskId, int] = {}

    def awaited(self, task: TaskId, unread: Mapping[str, int], now_ms: int) -> frozenset[str]:
        """The sources that a task waits for.

        Args:
            task: the task.
            unread: source that may bring more rows -> how many are there that the task has not read.
            now_ms: time.
        """
        self._deadlines_ms.pop(task, None)
        if self._limit_ms <= 0:
            return frozenset()
        awaited, deadlines = set(), []
        for source, rows in unread.items():
            if rows:
                self._empty_since_ms.pop((task, source), None)
            else:
                deadline = self._empty_since_ms.setdefault((task, source), now_ms) + self._limit_ms
                if now_ms >= deadline:
                    continue
                deadlines.append(deadline)
            awaited.add(source)
        # As long as none has any rows, nothing becomes possible by waiting.
        if deadlines and any(unread.values()):
            self._deadlines_ms[task] = min(deadlines)
        return frozenset(awaited)

    def waits(self, task: TaskId) -> bool:
        """The task has rows, and waits for others."""
        return task in self._deadlines_ms

    def of(self, more: frozenset[str]) -> frozenset[str]:
        """Of the sources that have more rows: those that matter to the order of records."""
        return frozenset() if self._limit_ms == NEVER else more

    def excuse(self, still_ms: int, now_ms: int) -> None:
        """Nobody has looked for so long whether something has come."""
        if still_ms:
            for source, since_ms in self._empty_since_ms.items():
                self._empty_since_ms[source] = min(since_ms + still_ms, now_ms)
            for task, deadline_ms in self._deadlines_ms.items():
                self._deadlines_ms[task] = min(deadline_ms + still_ms, now_ms + self._limit_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next task has waited long enough for a source; None: none waits."""
        return min(self._deadlines_ms.values(), default=None)

    def take_due(self, now_ms: int) -> Collection[TaskId]:
        """The tasks that have waited long enough for a source. Who is not asked for again, waits no more."""
        due = [task for task, deadline in self._deadlines_ms.items() if deadline <= now_ms]
        for task in due:
            del self._deadlines_ms[task]
        return due
