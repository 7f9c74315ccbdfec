"""What the utilities are given: an assignment, whatever it is made of, as a `Placement`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    Role,
    StateColumns,
    StateException,
    TaskAssignment,
    TaskAssignmentException,
)
from task_assignor.sdk.arrays import numbered
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.sdk.text import counted, shown
from task_assignor.utils.placement import Placement
from task_assignor.utils.result import AssignmentResult
from task_assignor.validation.rows import check_state, rows_of

Assignments = (
    Mapping[ProcessId, KafkaStreamsAssignment]
    | TaskAssignment
    | AssignmentColumns
    | Placement
    | Iterable[KafkaStreamsAssignment]
)
"""An assignment as users have it: the mapping of a utility, a `TaskAssignment`, its parts, or columns."""


def check_has_clients(application_state: ApplicationState) -> None:
    """Is there anybody to take the tasks? An empty answer would lose them without a word.

    Raises:
        StateException: not an `ApplicationState`.
        TaskAssignmentException: there are tasks but no clients.
    """
    check_state(application_state)
    columns = application_state.columns
    if len(columns.tasks) and not len(columns.clients):
        raise TaskAssignmentException(
            f"The state has {counted(len(columns.tasks), 'task')}, but no clients to assign them to. A rebalance has at "
            "least one; maybe the state was written before a client joined."
        )


def placement_of(application_state: ApplicationState, assignments: Assignments) -> Placement:
    """The placement that an assignment describes. Clients that are not listed have nothing.

    Args:
        application_state: tasks and clients.
        assignments: an assignment, whatever it is made of; it is not changed.

    Raises:
        StateException: an unknown client or task, a client listed twice, a task with two active owners, or something
            that is no assignment.
    """
    placed, others = placement_and_others(application_state, assignments)
    for task, client in others:
        raise active_twice(placed, task, client)
    return placed


def placement_and_others(
    application_state: ApplicationState, assignments: Assignments
) -> tuple[Placement, list[tuple[int, int]]]:
    """`placement_of`, with one owner of each task, and (task, client) numbers of the others that an assignment has."""
    check_state(application_state)
    known = assignments if isinstance(assignments, Placement) else getattr(assignments, "placement", None)
    if isinstance(known, Placement) and known.state is application_state.columns:
        return known, []
    if not isinstance(assignments, Iterable | AssignmentColumns | Placement):
        raise StateException(
            f"The assignments ({shown(assignments)}) must be a mapping of process ids to KafkaStreamsAssignment, or a "
            "TaskAssignment."
        )
    given = TaskAssignment(AssignmentResult(assignments))
    rows = rows_of(application_state, given)
    unknown = np.flatnonzero(rows.entry_client < 0)
    if len(unknown):
        raise StateException(
            f"The assignment has client {rows.process_ids[int(unknown[0])]}, which the application does not have."
        )
    if rows.unknown_tasks:
        raise StateException(
            f"The assignment names task {rows.unknown_tasks[0]}, which the application does not have "
            f"({len(rows.unknown_tasks)} tasks are like that). Maybe it existed before: remove it from the assignment."
        )
    deadlines = (each.followup_rebalance_deadline_ms for each in given)
    deadline_ms = np.full(len(application_state.columns.clients), MISSING)
    deadline_ms[rows.entry_client] = [MISSING if each is None else each for each in deadlines]
    client = rows.entry_client[rows.entry]
    is_active = rows.role == Role.ACTIVE
    owner = np.full(len(application_state.columns.tasks), -1, dtype=np.int64)
    owner[rows.task[is_active]] = client[is_active]
    other = np.flatnonzero(is_active)[owner[rows.task[is_active]] != client[is_active]]
    placed = Placement.of(application_state.columns, owner, rows.task[~is_active], client[~is_active], deadline_ms)
    return placed, list(zip(rows.task[other].tolist(), client[other].tolist(), strict=True))


def active_twice(placed: Placement, task: int, client: int) -> StateException:
    """The error that says that the client is active owner of a task that already has another one."""
    tasks, clients = placed.state.tasks, placed.state.clients
    first, second = sorted((client, int(placed.active_owner[task])))
    return StateException(
        f"Task {tasks.task_id(task)} is active on two clients, {clients.process_ids[first]} and "
        f"{clients.process_ids[second]}."
    )


def inexact_of(assignments: Assignments) -> frozenset[str]:
    """The goals that an assignment says were perhaps not reached exactly: what is built on it inherits them."""
    inexact: frozenset[str] = getattr(assignments, "inexact", frozenset())
    return inexact


def numbers_of_tasks(columns: StateColumns, tasks: npt.ArrayLike) -> Int64Array:
    """(N,) the same task numbers, in their order.

    Raises:
        StateException: one is no task's.
    """
    try:
        given = np.asarray(tasks).reshape(-1)
    except ValueError:  # lists of several lengths
        given = np.zeros(1)
    is_right = not len(given) or (
        given.dtype.kind in "iu" and int(given.min()) >= 0 and int(given.max()) < len(columns.tasks)
    )
    if not is_right:
        raise StateException(
            f"The selected tasks ({shown(tasks)}) must be task numbers from 0 to {len(columns.tasks) - 1}, in the order of task ids."
        )
    return given.astype(np.int64)


def are_selected(columns: StateColumns, tasks: npt.ArrayLike | None) -> BoolArray:
    """(T,) which tasks these are; None: all.

    Raises:
        StateException: a number is no task's.
    """
    selected = np.zeros(len(columns.tasks), dtype=np.bool_)
    selected[slice(None) if tasks is None else numbers_of_tasks(columns, tasks)] = True
    return selected


def numbers_of_groups(together: npt.ArrayLike, tasks: int) -> Int64Array:
    """(T,) the same groups of tasks, numbered from 0.

    Raises:
        StateException: not one group per task.
    """
    wanted = f"must be {tasks} whole numbers, one per task in the order of their ids, but are"
    try:
        groups = np.asarray(together)
    except ValueError:
        raise StateException(f"The groups of tasks that stay together {wanted} {shown(together)}.") from None
    if groups.shape != (tasks,) or (tasks and groups.dtype.kind not in "iu"):
        raise StateException(
            f"The groups of tasks that stay together {wanted} an array of shape {groups.shape} and kind {groups.dtype}."
        )
    return numbered(groups.astype(np.int64))


def tag_values(client_tags: Sequence[Mapping[str, str]], keys: Iterable[str]) -> Int64Array:
    """(C, G) number of each client's value of each tag key, in the order of the values; -1: the client has no such tag."""
    columns = [[tags.get(key) for tags in client_tags] for key in keys]
    values = np.full((len(client_tags), len(columns)), -1, dtype=np.int64)
    for column, given in enumerate(columns):
        order = {value: place for place, value in enumerate(sorted({value for value in given if value is not None}))}
        values[:, column] = [-1 if value is None else order[value] for value in given]
    return values
