"""`default_standby_task_assignment`: standbys for tasks whose active owners are decided."""

from __future__ import annotations

from task_assignor.kafka_order.default_standbys import default_standbys
from task_assignor.sdk import ApplicationState, AssignmentColumns
from task_assignor.utils.placement import Assignments, placement_of
from task_assignor.utils.result import AssignmentResult


def default_standby_task_assignment(application_state: ApplicationState, assignments: Assignments) -> AssignmentResult:
    """Give every task that has a changelog its `num.standby.replicas` standbys.

    With `rack.aware.assignment.tags` a standby goes to the least loaded client that shares no tag value with the task's
    other copies, as far as the tags' values reach (KIP-708); what finds no client that way goes where load allows.
    Without tags each goes to the least loaded client that does not have the task. A load is the number of tasks per
    thread, a tie goes to the smaller process id. Tasks are served in the order in which Kafka does, that of a
    `java.util.HashSet` of their ids (tasks that share a bucket: by id).

    Standbys that are there already count, and stay. What could not be placed is in the result's `shortages`.

    Args:
        application_state: tasks, clients and settings; lags play no part.
        assignments: an assignment with its active tasks; it is not changed. Clients may be left out.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.

    Source: KIP-924, Read-only APIs, `TaskAssignmentUtils.defaultStandbyTaskAssignment`; KIP-708.
    """
    columns = application_state.columns
    before = placement_of(application_state, assignments)
    standbys = default_standbys(
        columns,
        application_state.assignment_configs,
        before.active_owner,
        (before.standby_task, before.standby_client),
        in_java_order=True,
    )
    after = AssignmentColumns.of(columns, before.active_owner, standbys.task, standbys.client, before.deadline_ms)
    shortages = zip(columns.tasks.task_ids(standbys.short_task.tolist()), standbys.missing.tolist(), strict=True)
    return AssignmentResult.of_columns(after, shortages=shortages)
