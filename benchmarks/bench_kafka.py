"""Kafka's own scale shapes for its assignors, and the rack-aware shapes that were recorded, beside the JVM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.case import Case, Facts, Goal, JvmPeer, Work
from benchmarks.states import kafka_scale_state, rack_scale_state, scenario_document
from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor, StickyTaskAssignor
from task_assignor.sdk import (
    ApplicationState,
    AssignmentColumns,
    KafkaStreamsAssignment,
    Role,
    TaskAssignment,
    TaskAssignor,
    assignment_to_json,
)
from task_assignor.utils import (
    AssignmentResult,
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    rack_rows,
)

Shape = tuple[int, int, int, int]
"""Tasks, clients, threads per client, standbys."""

HIGH_AVAILABILITY: tuple[Shape, ...] = ((6000, 2, 1, 1), (1000, 1000, 1, 1), (1000, 100, 1, 50), (1000, 10, 1000, 1))
STICKY: tuple[Shape, ...] = ((2000, 2, 1, 1), (1000, 1000, 1, 1), (1000, 100, 1, 20), (1000, 10, 1000, 1))
STICKY_LARGE: Shape = (6000, 2, 1, 1)
ASSIGNORS: Mapping[str, type[TaskAssignor]] = {"ha": HighAvailabilityTaskAssignor, "sticky": StickyTaskAssignor}

RACKS = ((200, 10), (600, 30), (1000, 10))
TIMES_FASTER = {("min_traffic", 600, 30): 1000.0, ("min_traffic", 1000, 10): 2000.0}


def cases(is_quick: bool = False) -> list[Case]:
    """High availability and sticky, first and second rebalance; the public rack-aware optimiser."""
    found = []
    for shape in HIGH_AVAILABILITY:
        found += [_scale_case("ha", shape, second, is_quick, Goal(times_faster=2)) for second in (False, True)]
    for shape in STICKY:
        found += [_scale_case("sticky", shape, second, is_quick, None) for second in (False, True)]
    found.append(_scale_case("sticky", STICKY_LARGE, False, is_quick, Goal(seconds=0.25)))
    for strategy in ("min_traffic", "balance_subtopology"):
        found += [_rack_case(strategy, tasks, clients, is_quick) for tasks, clients in RACKS]
    return found


def _scale_case(operation: str, shape: Shape, is_second: bool, is_quick: bool, goal: Goal | None) -> Case:
    tasks, clients, threads, standbys = shape
    which = "second" if is_second else "first"
    threads_text = f"x{threads}" if threads > 1 else ""
    measured = _smaller(shape) if is_quick else shape
    assignor = ASSIGNORS[operation]

    def state() -> ApplicationState:
        return kafka_scale_state(*measured, _answer_elsewhere(operation, measured, is_quick) if is_second else None)

    def prepare() -> Work:
        given = state()
        return lambda: assignor().assign(given)

    return Case(
        name=f"{operation}/{tasks}x{clients}{threads_text} R{standbys} {which}",
        prepare=prepare,
        describe=_digest if operation == "ha" else _placed,
        goal=goal,
        jvm=JvmPeer(lambda: scenario_document(operation, state()), _same_decisions if operation == "ha" else None),
        recorded=f"{operation}-{tasks}x{clients}x{threads}r{standbys}-{which}",
    )


def _smaller(shape: Shape) -> Shape:
    tasks, clients, threads, standbys = shape
    return tasks // 50, max(clients // 50, 2), max(threads // 50, 1), min(standbys, 1)


def answer(operation: str, shape: Shape) -> AssignmentColumns:
    """What the assignor says to the first rebalance."""
    columns = ASSIGNORS[operation]().assign(kafka_scale_state(*shape)).columns
    assert columns is not None
    return columns


def _answer_elsewhere(operation: str, shape: Shape, is_quick: bool) -> AssignmentColumns:
    """The same from a process that ends: the call that is timed is to be the first one here, as it is in the JVM."""
    if is_quick:
        return answer(operation, shape)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(answer, operation, shape).result()


def _placed(result: TaskAssignment) -> Facts:
    columns = result.columns
    assert columns is not None
    return {"actives": int((columns.role == Role.ACTIVE).sum()), "standbys": int((columns.role == Role.STANDBY).sum())}


def decisions(placements: Sequence[Mapping[str, Any]]) -> str:
    """A short text that is equal for equal assignments."""
    kept = sorted((one["processId"], sorted(one["activeTasks"]), sorted(one["standbyTasks"])) for one in placements)
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


def _digest(result: TaskAssignment) -> Facts:
    return {**_placed(result), "decisions": decisions(assignment_to_json(result))}


def _same_decisions(facts: Facts, answer_of_jvm: Mapping[str, Any]) -> str:
    return "same decisions" if decisions(answer_of_jvm["assignment"]) == facts["decisions"] else "OTHER DECISIONS"


def _rack_case(strategy: str, tasks: int, clients: int, is_quick: bool) -> Case:
    size = (tasks // 10, max(clients // 10, 5)) if is_quick else (tasks, clients)

    def inputs() -> tuple[ApplicationState, AssignmentColumns]:
        state = rack_scale_state(*size, strategy)
        return state, AssignmentColumns.of(state.columns, np.arange(size[0]) % size[1])

    def prepare() -> Work:
        state, columns = inputs()
        params = RackAwareOptimizationParams.of(state)
        # As a user has them: objects, not columns.
        given = {
            one.process_id: KafkaStreamsAssignment.of(one.process_id, one.tasks.values())
            for one in columns.assignments()
        }
        return end_to_end(lambda: optimize_rack_aware_active_tasks(params, given))

    faster = TIMES_FASTER.get((strategy, tasks, clients))
    return Case(
        name=f"racks/{strategy} {tasks}x{clients} public",
        prepare=prepare,
        describe=lambda result: {"cost": result.cost_after, "cost before": result.cost_before},
        goal=Goal(seconds=0.1 if tasks == 1000 else None, times_faster=faster) if faster else None,
        jvm=JvmPeer(
            lambda: scenario_document("optimize_active", *inputs()),
            lambda facts, answer: _costs_beside(*inputs(), facts, answer),
        ),
        recorded=f"optimize_active-{strategy}-{tasks}x{clients}",
    )


def end_to_end(optimize: Callable[[], AssignmentResult]) -> Work:
    """The utility with all the objects that Kafka's returns: every task of every client is read."""

    def work() -> AssignmentResult:
        result = optimize()
        for assignment in result.values():
            assert assignment.tasks is not None
        return result

    return work


def _costs_beside(
    state: ApplicationState, before: AssignmentColumns, facts: Facts, answer_of_jvm: Mapping[str, Any]
) -> str:
    """Our cost beside what the JVM's answer costs."""
    number = {str(task): position for position, task in enumerate(state.columns.tasks.task_ids())}
    owner = np.zeros(len(number), dtype=np.int64)
    for client, placement in enumerate(sorted(answer_of_jvm["assignment"], key=lambda one: str(one["processId"]))):
        owner[[number[task] for task in placement["activeTasks"]]] = client
    configs = state.assignment_configs
    rows = rack_rows(state.columns, np.arange(len(owner)), "all")
    crossings = int(rows.at(rows.row, state.columns.clients.rack[owner]).sum())
    moves = int((owner != before.active_owner()).sum())
    cost = (configs.rack_aware_traffic_cost or 0) * crossings + (configs.rack_aware_non_overlap_cost or 0) * moves
    return f"cost {facts['cost']}, JVM {cost}"
