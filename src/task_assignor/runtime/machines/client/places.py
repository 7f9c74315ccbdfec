"""Where a client does its tasks, if each is done in a place of its own. Plain values; time is counted in heartbeats."""

from __future__ import annotations

from collections.abc import Collection

from task_assignor.runtime.machines.client.task import ClientTask
from task_assignor.sdk import TaskId


class Places:
    """The tasks that hold a place.

    Args:
        number: how many places there are.
        idle_heartbeats: who holds one gives it to one that waits when it has had nothing to do for so many; 0: there are no
            places, and tasks need none.
    """

    def __init__(self, number: int, idle_heartbeats: int) -> None:
        self._number = number
        self._idle_heartbeats = idle_heartbeats
        self._taken: dict[TaskId, ClientTask] = {}

    @property
    def exist(self) -> bool:
        """Tasks need one."""
        return self._idle_heartbeats > 0

    def take(self, task: ClientTask) -> None:
        """A task has something to do in its place."""
        if self.exist:
            self._taken[task.task] = task

    def leave(self, task: TaskId) -> None:
        """Nothing of it is there any more."""
        self._taken.pop(task, None)

    def may_work(self, task: ClientTask) -> bool:
        """It has its place, has use for one that is free, or needs none."""
        if not self.exist or task.task in self._taken:
            return True
        return task.order is not None and len(self._taken) < self._number

    def see_idle(self, tasks: Collection[ClientTask]) -> None:
        """A task that has had nothing to do for a while gives its place to one that waits: it may wait for what that one writes."""
        waiting = bool(self._taken) and any(
            found.order is not None and found.task not in self._taken for found in tasks
        )
        for task in self._taken.values():
            task.idle_heartbeats = 0 if task.order is not None or task.job is not None else task.idle_heartbeats + 1
            if waiting and task.idle_heartbeats >= self._idle_heartbeats:
                task.may_end = True

    def validate(self, tasks: Collection[ClientTask]) -> None:
        """Raise AssertionError if something holds that never may."""
        assert len(self._taken) <= self._number
        assert all(any(found is task for found in tasks) for task in self._taken.values())
