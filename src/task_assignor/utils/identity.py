"""The assignment that leaves every task where it was. What should change is decided elsewhere."""

from __future__ import annotations

from collections import Counter

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
)
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
    assignments = [list(each.tasks.values()) for each in kept.assignments()]
    for client, role, task_id in previous.vanished:
        # Tasks that no longer exist have no number: they need objects.
        assignments[client].append(AssignedTask(task_id, AssignedTask.Type[Role(role).name]))
    return AssignmentResult(map(KafkaStreamsAssignment.of, columns.clients.process_ids, assignments))


def _check_one_role(columns: StateColumns) -> None:
    previous = columns.previous
    keys = np.sort(previous.client.astype(np.int64) * max(len(columns.tasks), 1) + previous.task)
    both = keys[1:][keys[1:] == keys[:-1]]
    found = [(int(key) // len(columns.tasks), columns.tasks.task_id(int(key) % len(columns.tasks))) for key in both[:1]]
    gone = Counter((client, task_id) for client, _, task_id in previous.vanished)
    found += [pair for pair, roles in gone.items() if roles > 1]
    if found:
        client, task_id = min(found)
        raise StateException(
            f"Client {columns.clients.process_ids[client]} had task {task_id} as active and as standby; an assignment "
            "can give it one role only. Maybe the previous standby tasks of the client still list its active tasks."
        )
