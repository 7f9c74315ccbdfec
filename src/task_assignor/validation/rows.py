"""Any answer of an assignor as columns of rows (entry, task, role); right or wrong is decided elsewhere."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import ApplicationState, AssignedTask, ProcessId, Role, StateException, TaskAssignment, TaskId
from task_assignor.sdk.text import shown

Rows = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class AssignmentRows:
    """N rows in list order: first the tasks of the first `KafkaStreamsAssignment`, then those of the second, ...

    Unlike `AssignmentColumns` this also holds unknown tasks, unknown processes and a process that is there twice.

    Args:
        process_ids: E process ids, one per `KafkaStreamsAssignment`, in list order.
        entry_client: (E,) client numbers; -1: no such client.
        entry: (N,) position in `process_ids`, ascending.
        task: (N,) task numbers; -1: no such task.
        role: (N,) `Role` numbers.
        unknown_tasks: ids of the rows whose task is -1, in row order.
    """

    process_ids: tuple[ProcessId, ...]
    entry_client: Rows
    entry: Rows
    task: Rows
    role: Rows
    unknown_tasks: tuple[TaskId, ...]


def rows_of(state: ApplicationState, assignment: TaskAssignment) -> AssignmentRows:
    """The rows of an assignment. What is an unchanged view of columns is taken from them, without making objects.

    Raises:
        StateException: one of the arguments is something else.
    """
    check_state(state)
    problem = what_is_wrong_with_answer(assignment)
    if problem is not None:
        raise StateException(problem)
    tasks, clients = state.columns.tasks, state.columns.clients
    entries = assignment.assignment
    process_ids = tuple(entry.process_id for entry in entries)
    entry_client = np.fromiter(map(clients.find, process_ids), dtype=np.int64, count=len(process_ids))
    whole = assignment.columns
    if whole is not None and whole.state is state.columns:
        return AssignmentRows(
            process_ids,
            entry_client,
            whole.client.astype(np.int64),
            whole.task.astype(np.int64),
            whole.role.astype(np.int64),
            (),
        )
    counts = np.zeros(len(entries), dtype=np.int64)
    task_parts: list[npt.NDArray[np.integer]] = []
    role_parts: list[npt.NDArray[np.integer]] = []
    unknown: list[TaskId] = []
    for number, entry in enumerate(entries):
        view = entry.columns
        if view is not None and view[0].state is state.columns:
            columns, client = view
            task_parts.append(columns.task[columns.rows_of(client)])
            role_parts.append(columns.role[columns.rows_of(client)])
        else:
            assigned = list(entry.tasks.values())
            found = [tasks.find(task.id) for task in assigned]
            unknown += [task.id for task, row in zip(assigned, found, strict=True) if row < 0]
            task_parts.append(np.array(found, dtype=np.int64))
            role_parts.append(np.array([_role_number(task) for task in assigned], dtype=np.int64))
        counts[number] = len(task_parts[-1])
    none = np.zeros(0, dtype=np.int64)
    return AssignmentRows(
        process_ids,
        entry_client,
        np.repeat(np.arange(len(entries)), counts),
        np.concatenate([none, *task_parts]).astype(np.int64),
        np.concatenate([none, *role_parts]).astype(np.int64),
        tuple(unknown),
    )


def _role_number(task: AssignedTask) -> int:
    return int(Role.ACTIVE if task.type is AssignedTask.Type.ACTIVE else Role.STANDBY)


def check_state(state: object) -> None:
    """Raise unless this is an `ApplicationState`.

    Raises:
        StateException: it is not.
    """
    if not isinstance(state, ApplicationState):
        raise StateException(
            f"The application_state ({shown(state)}) must be an ApplicationState. Maybe the arguments are swapped."
        )


def what_is_wrong_with_answer(answer: object) -> str | None:
    """A sentence that says why `answer` is not a `TaskAssignment` at all; None if it is one."""
    if isinstance(answer, TaskAssignment):
        return None
    advice = "Maybe wrap it: TaskAssignment(...)."
    if answer is None:
        advice = "Maybe assign() lacks a return statement."
    return f"The answer ({shown(answer)}) must be a TaskAssignment. {advice}"
