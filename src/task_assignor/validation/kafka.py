"""Kafka's answer to "is this assignment right?": the first error it finds. The full list is in `report.py`."""

from __future__ import annotations

import numpy as np

from task_assignor.sdk import ApplicationState, AssignmentError, Role, StateColumns, TaskAssignment
from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.java_hash import bucket_count, task_id_hash
from task_assignor.validation.rows import AssignmentRows, Rows, rows_of


def validate_task_assignment(application_state: ApplicationState, task_assignment: TaskAssignment) -> AssignmentError:
    """What Kafka's validation says of an assignment.

    As in Kafka, in this order: in one pass over the list, an unknown task or a second active owner, whichever comes
    first (the tasks of one client are looked at in the order of Java's `HashMap`; those in one bucket by task id); a
    standby of a task that is not stateful; a process that is missing; a process that is unknown. Kafka lets much else
    pass, for instance a task that nobody owns: see `report_violations`.

    Args:
        application_state: what the assignor was given.
        task_assignment: what it answered.

    Returns:
        `AssignmentError.NONE`, or the first error.

    Raises:
        StateException: one of the arguments is something else.

    Source: KIP-924, Assignment Validation; `TaskAssignmentUtils.validateTaskAssignment`, with the order of the checks of
    Kafka 4.3.
    """
    rows = rows_of(application_state, task_assignment)
    return first_error(application_state.columns, rows)


def first_error(columns: StateColumns, rows: AssignmentRows) -> AssignmentError:
    """The same, from rows."""
    error = _unknown_task_or_second_owner(columns, rows)
    if error is not AssignmentError.NONE:
        return error
    standbys = rows.task[rows.role == Role.STANDBY]
    if not columns.tasks.is_stateful[standbys].all():
        return AssignmentError.INVALID_STANDBY_TASK
    known = rows.entry_client[rows.entry_client >= 0]
    if len(distinct(known)) < len(columns.clients):
        return AssignmentError.MISSING_PROCESS_ID
    if len(known) < len(rows.entry_client):
        return AssignmentError.UNKNOWN_PROCESS_ID
    return AssignmentError.NONE


def _unknown_task_or_second_owner(columns: StateColumns, rows: AssignmentRows) -> AssignmentError:
    second = second_owner_rows(rows, len(columns.tasks))
    unknown = np.flatnonzero(rows.task < 0)
    entry_of_second = int(rows.entry[second[0]]) if len(second) else len(rows.process_ids)
    entry_of_unknown = int(rows.entry[unknown[0]]) if len(unknown) else len(rows.process_ids)
    if entry_of_second < entry_of_unknown:
        return AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
    if entry_of_unknown < entry_of_second:
        return AssignmentError.UNKNOWN_TASK_ID
    if not len(unknown):
        return AssignmentError.NONE
    # Both in one client: what Kafka's pass over its map of tasks meets first.
    of_client = rows.unknown_tasks[: int((rows.entry[unknown] == entry_of_unknown).sum())]
    twice = columns.tasks.task_ids(rows.task[second[rows.entry[second] == entry_of_second]].tolist())
    buckets = bucket_count(int((rows.entry == entry_of_unknown).sum()))
    first = min({*of_client, *twice}, key=lambda task_id: (task_id_hash(task_id) & (buckets - 1), task_id.sort_key))
    return (
        AssignmentError.UNKNOWN_TASK_ID if first in of_client else AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
    )


def second_owner_rows(rows: AssignmentRows, tasks: int) -> Rows:
    """Numbers of the rows that make a known task active although an earlier row already does, ascending."""
    active = np.flatnonzero((rows.role == Role.ACTIVE) & (rows.task >= 0))
    first = np.full(tasks, -1, dtype=np.int64)
    # Backwards: where a task is there twice, the earliest row is written last and stays.
    first[rows.task[active[::-1]]] = active[::-1]
    second: Rows = active[first[rows.task[active]] != active]
    return second
