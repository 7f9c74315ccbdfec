"""How answers of the rack-aware optimisers are judged: what they promise, and what the vectors call the objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from task_assignor.sdk import ApplicationState, AssignedTask, KafkaStreamsAssignment, ProcessId, TaskId
from task_assignor.utils import AssignmentResult, RackAwareOptimizationParams
from tests.utils.rack_states import cross, diversity

Assignments = Mapping[ProcessId, KafkaStreamsAssignment]
Rows = set[tuple[TaskId, ProcessId]]
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


def by_client(assignment: Iterable[KafkaStreamsAssignment]) -> Assignments:
    """The form that the optimisers take and return."""
    return {each.process_id: each for each in assignment}


def params_of(state: ApplicationState, given: Mapping[str, Any]) -> RackAwareOptimizationParams:
    """What the `params` of a vector, or of a question to the JVM, say."""
    params = RackAwareOptimizationParams.of(state)
    tasks = given.get("tasks")
    if tasks == "stateful":
        params = params.for_stateful_tasks()
    elif tasks == "stateless":
        params = params.for_stateless_tasks()
    elif tasks is not None:
        params = params.for_tasks(map(TaskId.parse, tasks))
    if given.get("trafficCost") is not None:
        params = params.with_traffic_cost_override(given["trafficCost"])
    if given.get("nonOverlapCost") is not None:
        params = params.with_non_overlap_cost_override(given["nonOverlapCost"])
    return params


def rows(assignments: Assignments, role: AssignedTask.Type) -> Rows:
    """Who has what in this role."""
    return {
        (assigned.id, each.process_id)
        for each in assignments.values()
        for assigned in each.tasks.values()
        if assigned.type is role
    }


def counts(placed: Rows) -> Counter[ProcessId]:
    """How many each client has."""
    return Counter(client for _task, client in placed)


def objective(
    params: RackAwareOptimizationParams, before: Assignments, after: Assignments, role: AssignedTask.Type
) -> int:
    """The figure that the vectors call objective, from the object face; of standbys those of all tasks count."""
    state = params.application_state
    columns = state.columns
    assert params.traffic_cost is not None
    assert params.non_overlap_cost is not None
    was, now = rows(before, role), rows(after, role)
    if role is ACTIVE:
        tasks = _selected(params)
        was, now = (_of_tasks(each, tasks) for each in (was, now))
    which = "all" if role is ACTIVE else "changelog"
    traffic = sum(cross(state, columns.tasks.find(task), columns.clients.find(client), which) for task, client in now)
    return params.traffic_cost * traffic + params.non_overlap_cost * len(now - was)


def assert_actives_keep(params: RackAwareOptimizationParams, given: Assignments, result: AssignmentResult) -> None:
    """Counts of the selected tasks per client, everything about the others, copies; and the costs are what they say."""
    tasks = _selected(params)
    before, after = rows(given, ACTIVE), rows(result, ACTIVE)
    assert counts(_of_tasks(before, tasks)) == counts(_of_tasks(after, tasks))
    assert before - _of_tasks(before, tasks) == after - _of_tasks(after, tasks)
    assert Counter(task for task, _ in before) == Counter(task for task, _ in after)
    assert Counter(task for task, _ in rows(given, STANDBY)) == Counter(task for task, _ in rows(result, STANDBY))
    if result.skipped is not None:
        assert before == after
        return
    assert result.cost_after == objective(params, given, result, ACTIVE) == result.lower_bound
    assert result.cost_before == objective(params, given, given, ACTIVE)


def assert_standbys_keep(params: RackAwareOptimizationParams, given: Assignments, result: AssignmentResult) -> None:
    """Counts per client, copies per task (a client that had one twice would hide it), actives, selection, tags."""
    assert keeps_tags_and_selection(params, given, result)
    assert counts(rows(given, STANDBY)) == counts(rows(result, STANDBY))
    assert Counter(task for task, _ in rows(given, STANDBY)) == Counter(task for task, _ in rows(result, STANDBY))
    assert rows(given, ACTIVE) == rows(result, ACTIVE)
    if result.skipped is not None:
        assert rows(given, STANDBY) == rows(result, STANDBY)
        return
    assert result.gap is not None
    assert result.gap >= 0


def keeps_tags_and_selection(params: RackAwareOptimizationParams, given: Assignments, answer: Assignments) -> bool:
    """Whether no task's copies have fewer distinct tag values than before, and only selected standbys have moved."""
    tasks = _selected(params)
    before, after = rows(given, STANDBY), rows(answer, STANDBY)
    was, now = (_diversities(params.application_state, each) for each in (given, answer))
    return (
        all(was[task] <= now[task] for task in was)
        and before - _of_tasks(before, tasks) == after - _of_tasks(after, tasks)
        and counts(_of_tasks(before, tasks)) == counts(_of_tasks(after, tasks))
    )


def selects_unplaced(params: RackAwareOptimizationParams, given: Assignments, role: AssignedTask.Type) -> bool:
    """Whether tasks are selected of which one is on no client in this role: Kafka's optimisers may throw then."""
    return params.kind != "all" and not _selected(params) <= {task for task, _client in rows(given, role)}


def _selected(params: RackAwareOptimizationParams) -> set[TaskId]:
    tasks = params.application_state.columns.tasks
    return {tasks.task_id(task) for task in params.task_numbers().tolist()}


def _of_tasks(placed: Rows, tasks: set[TaskId]) -> Rows:
    return {pair for pair in placed if pair[0] in tasks}


def _diversities(state: ApplicationState, assignments: Assignments) -> Counter[TaskId]:
    tags = state.assignment_configs.rack_aware_assignment_tags
    holders: dict[TaskId, list[int]] = {}
    for task, client in rows(assignments, ACTIVE) | rows(assignments, STANDBY):
        holders.setdefault(task, []).append(state.columns.clients.find(client))
    return Counter({task: diversity(state, tags, clients) for task, clients in holders.items()})
