"""Tasks placed one after the other by load, decision for decision as Kafka does: standbys, stateless tasks, evening out."""

from __future__ import annotations

import numpy as np

from task_assignor.kafka_order.default_standbys import default_standbys
from task_assignor.kafka_order.least_loaded import deal_by_load
from task_assignor.kafka_order.threads import balance_active, balance_standby
from task_assignor.sdk import ApplicationState
from task_assignor.sdk.checks import check_flag
from task_assignor.utils.given import Assignments, check_has_clients, inexact_of, placement_of, tag_values
from task_assignor.utils.placement import Placement
from task_assignor.utils.result import AssignmentResult


def default_standby_task_assignment(
    application_state: ApplicationState, assignments: Assignments, *, in_task_order: bool = False
) -> AssignmentResult:
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
        in_task_order: serve the tasks in the order of their ids, as Kafka's high availability assignor does.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.

    Source: KIP-924, Read-only APIs, `TaskAssignmentUtils.defaultStandbyTaskAssignment`; KIP-708.
    """
    check_flag("in_task_order", in_task_order)
    before = placement_of(application_state, assignments)
    columns, configs = before.state, application_state.assignment_configs
    standbys = default_standbys(
        columns,
        configs.num_standby_replicas,
        tag_values(columns.clients.client_tags, configs.rack_aware_assignment_tags),
        before.active_owner,
        before.standby_task,
        before.standby_client,
        in_task_order=in_task_order,
    )
    after = Placement.of(columns, before.active_owner, *standbys, before.deadline_ms)
    shortages = after.shortages(configs.num_standby_replicas)
    return AssignmentResult(after, shortages=shortages, inexact=inexact_of(assignments))


def balance_active_tasks(application_state: ApplicationState, assignments: Assignments) -> AssignmentResult:
    """Move active tasks between clients until the number per thread is even.

    Pair by pair of clients, in passes, until nothing moves. Standbys do not count, and stay; but where the new client of a
    task holds a standby of it, the two clients change roles.

    Args:
        application_state: tasks and clients.
        assignments: an assignment; it is not changed. Clients may be left out.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.

    Source: KIP-441; Kafka's high availability assignor.
    """
    before = placement_of(application_state, assignments)
    owner = before.active_owner.copy()
    owned = np.flatnonzero(owner >= 0)
    owner[owned] = balance_active(owner[owned], before.state.clients.num_processing_threads)
    return AssignmentResult(before.with_owners(owner), inexact=inexact_of(assignments))


def balance_standby_tasks(application_state: ApplicationState, assignments: Assignments) -> AssignmentResult:
    """Move standbys between clients until the number of active and standby tasks per thread is even.

    With `rack.aware.assignment.tags` a standby moves only to clients that have all tags of its client.

    Args:
        application_state: tasks, clients and settings.
        assignments: an assignment; it is not changed. Clients may be left out.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.

    Source: KIP-441; Kafka's high availability assignor.
    """
    before = placement_of(application_state, assignments)
    clients = before.state.clients
    are_tags_kept = bool(application_state.assignment_configs.rack_aware_assignment_tags)
    keys = {key for tags in clients.client_tags for key in tags} if are_tags_kept else ()
    client = balance_standby(
        before.active_owner,
        before.standby_task,
        before.standby_client,
        clients.num_processing_threads,
        tag_values(clients.client_tags, sorted(keys)),
    )
    after = Placement.of(before.state, before.active_owner, before.standby_task, client, before.deadline_ms)
    return AssignmentResult(after, inexact=inexact_of(assignments))


def place_least_loaded(application_state: ApplicationState, assignments: Assignments) -> AssignmentResult:
    """Give every task without an active owner to the client that has fewest active tasks per thread then.

    In the order of task ids; of clients with equal loads that of the smallest process id. Standbys do not count; one that is
    on the client that its task goes to becomes the active task.

    Args:
        application_state: tasks and clients; at least one.
        assignments: an assignment; it is not changed. Clients may be left out.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.
        TaskAssignmentException: there are tasks but no clients.

    Source: KIP-441, which places stateless tasks so.
    """
    check_has_clients(application_state)
    before = placement_of(application_state, assignments)
    owner, clients = before.active_owner.copy(), before.state.clients
    nowhere = np.flatnonzero(owner < 0)
    counts = np.bincount(owner[owner >= 0], minlength=len(clients))
    owner[nowhere] = deal_by_load(counts, clients.num_processing_threads, len(nowhere))
    return AssignmentResult(before.with_owners(owner), inexact=inexact_of(assignments))
