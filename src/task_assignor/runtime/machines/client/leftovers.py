"""What is left on a client of tasks that are not its own, and how long it stays. Plain values; time is counted in heartbeats."""

from __future__ import annotations

from collections.abc import Iterable

from task_assignor.sdk import TaskId


class Leftovers:
    """Tasks of which something may be left in the state directory, while the client does not have them.

    Args:
        kept_heartbeats: for more than so many it stays for when they come back; None: for ever.
    """

    def __init__(self, kept_heartbeats: int | None = None) -> None:
        self._kept_heartbeats = kept_heartbeats
        self._heartbeats = 0
        self._since: dict[TaskId, int] = {}

    def __contains__(self, task: TaskId) -> bool:
        return task in self._since

    def beat(self) -> None:
        """Some time has gone by."""
        self._heartbeats += 1

    def see(self, tasks: Iterable[TaskId]) -> None:
        """The client does not have these tasks."""
        for task in tasks:
            self._since.setdefault(task, self._heartbeats)

    def forget(self, task: TaskId) -> None:
        """The client has the task, or nothing is left of it."""
        self._since.pop(task, None)

    def take_due(self) -> list[TaskId]:
        """Forget the tasks of which what is left has stayed long enough; gives them in their order."""
        if self._kept_heartbeats is None:
            return []
        due = sorted(task for task, since in self._since.items() if self._heartbeats - since > self._kept_heartbeats)
        for task in due:
            del self._since[task]
        return due
