"""The assignment that leaves every task where it was. What should change is decided elsewhere."""

from __future__ import annotations

import numpy as np

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignedTask,
    AssignmentColumns,
    KafkaStreamsAssignment,
    Role,
    StateColumns,
    StateException,
    TaskId,
)
from task_assignor.sdk.arrays import are_in, distinct
from task_assignor.utils.result import AssignmentResult
from task_assignor.validation.rows import check_state


def identity_assignment(application_state: ApplicationState) -> AssignmentResult:
    """Give every client back what it had before.

    As in Kafka, nothing is added and nothing left out: new tasks stay without an owner, tasks that no longer exist
    stay where they were (validation then says UNKNOWN_TASK_ID), and a task that two clients had stays with both.

    Args:
        application_state: tasks and clients; only the previous tasks matter.

    Returns:
        One assignment per client of the state.

    Raises:
        StateException: a client had a task as active and as standby, which no assignment can say. (Kafka throws too.)

    Source: KIP-924, Read-only APIs, `TaskAssignmentUtils.identityAssignment`.
    """
    check_state(application_state)
    columns = application_state.columns
    _check_one_role(columns)
    previous = columns.previous
    kept = AssignmentColumns(
        columns, previous.client, previous.task, previous.role, np.full(len(columns.clients), MISSING, dtype=np.int64)
    )
    if not previous.vanished:
        return AssignmentResult(kept)
    assignments = list(kept.assignments())
    for client, tasks in _vanished(columns).items():
        # Tasks that no longer exist have no number: these clients need objects.
        assignments[client] = KafkaStreamsAssignment.of(
            columns.clients.process_ids[client], [*assignments[client].tasks.values(), *tasks]
        )
    return AssignmentResult(assignments)


def _vanished(columns: StateColumns) -> dict[int, list[AssignedTask]]:
    types = {Role.ACTIVE: AssignedTask.Type.ACTIVE, Role.STANDBY: AssignedTask.Type.STANDBY}
    of_client: dict[int, list[AssignedTask]] = {}
    for client, role, task_id in columns.previous.vanished:
        of_client.setdefault(client, []).append(AssignedTask(task_id, types[role]))
    return of_client


def _check_one_role(columns: StateColumns) -> None:
    previous = columns.previous
    keys = previous.client.astype(np.int64) * max(len(columns.tasks), 1) + previous.task
    standbys = keys[previous.role == Role.STANDBY]
    both = distinct(standbys[are_in(standbys, keys[previous.role == Role.ACTIVE])])
    found = [(int(key) // len(columns.tasks), columns.tasks.task_id(int(key) % len(columns.tasks))) for key in both[:1]]
    gone: dict[tuple[int, TaskId], Role] = {}
    for client, role, task_id in previous.vanished:
        if gone.setdefault((client, task_id), role) != role:
            found.append((client, task_id))
    if found:
        client, task_id = min(found)
        raise StateException(
            f"Client {columns.clients.process_ids[client]} had task {task_id} as active and as standby; an assignment "
            "can give it one role only. Maybe the previous standby tasks of the client still list its active tasks."
        )
