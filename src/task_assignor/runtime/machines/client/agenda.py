"""Which tasks of a client may have something to do, and in which order. Plain values, no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from task_assignor.runtime.machines.client.task import ClientTask, TaskState
from task_assignor.sdk import TaskId


class Agenda:
    """The tasks that may have something to do, those first that got it first. All others have nothing to do until they are noted again.

    So nobody has to look at all tasks of a client whenever something happens to one.
    """

    def __init__(self) -> None:
        self._noted: OrderedDict[TaskId, ClientTask] = OrderedDict()
        self._to_restore: set[TaskId] = set()

    def __iter__(self) -> Iterator[ClientTask]:
        return iter(self._noted.values())

    def __contains__(self, task: TaskId) -> bool:
        return task in self._noted

    @property
    def has_active_to_restore(self) -> bool:
        """An active task waits for its state: nobody processes it at all meanwhile."""
        return bool(self._to_restore)

    def note(self, task: ClientTask) -> None:
        """Something has happened to a task; what is not wanted any more comes first."""
        if task.job is not None:
            return  # It is noted when that ends.
        self._noted.setdefault(task.task, task)
        if task.state is TaskState.CLOSING or task.may_end:
            self._noted.move_to_end(task.task, last=False)
        if task.state is TaskState.ACTIVE and task.wants_restore:
            self._to_restore.add(task.task)
        else:
            self._to_restore.discard(task.task)

    def strike(self, tasks: Iterable[TaskId]) -> None:
        """These have nothing to do, or it is being done."""
        for task in tasks:
            self._noted.pop(task, None)
            self._to_restore.discard(task)

    def validate(self, tasks: Iterable[ClientTask]) -> None:
        """Raise AssertionError if something of a client's tasks is overlooked."""
        waiting = {
            task.task for task in tasks if task.state is TaskState.ACTIVE and task.job is None and task.wants_restore
        }
        assert self._to_restore == waiting, "which active tasks wait for their state is not known"
