"""What the utilities take: an assignment, whatever it is made of, as one owner per task and pairs of standbys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    Role,
    StateException,
    TaskAssignment,
)
from task_assignor.sdk.columns import Int32Array, Int64Array, int32_column, int64_column
from task_assignor.validation.rows import AssignmentRows, rows_of

Assignments = (
    Mapping[ProcessId, KafkaStreamsAssignment] | TaskAssignment | AssignmentColumns | Iterable[KafkaStreamsAssignment]
)
"""An assignment as users have it: the mapping of a utility, a `TaskAssignment`, its parts, or columns."""


@attrs.frozen(eq=False)
class Placement:
    """An assignment in which every task has at most one active owner.

    Args:
        active_owner: (T,) client number; -1: nobody.
        standby_task: (S,) task numbers of the standbys, pairs sorted by task, then client.
        standby_client: (S,) their client numbers.
        deadline_ms: (C,) follow-up rebalance deadlines; `MISSING`: none.
    """

    active_owner: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_client: Int32Array = attrs.field(converter=int32_column, repr=False)
    deadline_ms: Int64Array = attrs.field(converter=int64_column, repr=False)

    def columns(self, state: ApplicationState) -> AssignmentColumns:
        """The placement as columns of an assignment."""
        return AssignmentColumns.of(
            state.columns, self.active_owner, self.standby_task, self.standby_client, self.deadline_ms
        )


def placement_of(state: ApplicationState, assignments: Assignments) -> Placement:
    """The placement that an assignment describes. Clients that are not listed have nothing.

    Raises:
        StateException: an unknown client or task, a client listed twice, a task with two active owners, or something
            that is no assignment.
    """
    rows, deadline_ms = known_rows(state, assignments)
    tasks, clients = state.columns.tasks, state.columns.clients
    client = rows.entry_client[rows.entry]
    is_active = rows.role == Role.ACTIVE
    owner = np.full(len(tasks), -1, dtype=np.int64)
    owner[rows.task[is_active]] = client[is_active]
    other = np.flatnonzero(is_active)[owner[rows.task[is_active]] != client[is_active]]
    if len(other):
        row = int(other[0])
        task = int(rows.task[row])
        first, second = sorted((int(client[row]), int(owner[task])))
        raise StateException(
            f"Task {tasks.task_id(task)} is active on two clients, {clients.process_ids[first]} and "
            f"{clients.process_ids[second]}."
        )
    standby_task, standby_client = rows.task[~is_active], client[~is_active]
    order = np.lexsort((standby_client, standby_task))
    return Placement(owner, standby_task[order], standby_client[order], deadline_ms)


def known_rows(state: ApplicationState, assignments: Assignments) -> tuple[AssignmentRows, Int64Array]:
    """The rows of an assignment of known tasks to known clients, and the (C,) follow-up deadlines.

    Raises:
        StateException: an unknown client or task, a client listed twice, or something that is no assignment.
    """
    assignments = _task_assignment(assignments)
    rows = rows_of(state, assignments)
    _check_clients(rows)
    if rows.unknown_tasks:
        raise StateException(
            f"The assignment names task {rows.unknown_tasks[0]}, which the application does not have "
            f"({len(rows.unknown_tasks)} tasks are like that). Maybe it existed before: remove it from the assignment."
        )
    deadline_ms = np.full(len(state.columns.clients), MISSING)
    for entry, number in zip(assignments.assignment, rows.entry_client.tolist(), strict=True):
        if entry.followup_rebalance_deadline_ms is not None:
            deadline_ms[number] = entry.followup_rebalance_deadline_ms
    return rows, deadline_ms


def _task_assignment(assignments: Assignments) -> TaskAssignment:
    if isinstance(assignments, TaskAssignment):
        return assignments
    if isinstance(assignments, AssignmentColumns):
        return TaskAssignment.of_columns(assignments)
    if not isinstance(assignments, Iterable):
        raise StateException(
            f"The assignments ({assignments!r}) must be a mapping of process ids to KafkaStreamsAssignment, or a "
            "TaskAssignment."
        )
    return TaskAssignment(assignments)


def _check_clients(rows: AssignmentRows) -> None:
    unknown = np.flatnonzero(rows.entry_client < 0)
    if len(unknown):
        raise StateException(
            f"The assignment has client {rows.process_ids[int(unknown[0])]}, which the application does not have."
        )
    numbers, counts = np.unique(rows.entry_client, return_counts=True)
    if len(numbers) and int(counts.max()) > 1:
        twice = int(np.flatnonzero(rows.entry_client == numbers[int(np.argmax(counts > 1))])[0])
        raise StateException(f"Client {rows.process_ids[twice]} is twice in the assignment. Maybe merge its tasks.")
