"""What the rack-aware optimisers promise, on random states of all kinds: some hundreds by default, 100 000 in the long run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.sdk import ApplicationState, AssignmentColumns, Role, TaskAssignment, TaskAssignor
from task_assignor.testing import assert_deterministic, assert_same_in_every_process, assert_valid, random_states
from task_assignor.utils import (
    AssignmentResult,
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from tests.budget import examples
from tests.utils.rack_states import diversity


class Optimised(TaskAssignor):
    """The sticky assignor's placement without regard to racks, then both optimisers."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(optimised(application_state)[-1])


def without_racks(state: ApplicationState) -> ApplicationState:
    configs = attrs.evolve(state.assignment_configs, rack_aware_assignment_strategy="none")
    return ApplicationState(state.columns, configs, state.now_ms)


def optimised(state: ApplicationState) -> tuple[TaskAssignment, AssignmentResult, AssignmentResult]:
    """(before, with actives optimised, with standbys optimised too)."""
    before = StickyTaskAssignor().assign(without_racks(state))
    params = RackAwareOptimizationParams.of(state).with_traffic_cost_override(10).with_non_overlap_cost_override(1)
    actives = optimize_rack_aware_active_tasks(params, before)
    return before, actives, optimize_rack_aware_standby_tasks(params, actives)


def columns_of(assignment: TaskAssignment | AssignmentResult) -> AssignmentColumns:
    found = assignment.columns
    assert found is not None
    return found


def counts(assignment: TaskAssignment | AssignmentResult, role: Role) -> Counter[int]:
    return Counter(columns_of(assignment).pairs(role)[0].tolist())


def holders(assignment: TaskAssignment | AssignmentResult) -> list[tuple[int, int]]:
    found = columns_of(assignment)
    return sorted(zip(found.task.tolist(), found.client.tolist(), strict=True))


def diversities(state: ApplicationState, assignment: AssignmentResult) -> list[int]:
    of_task: dict[int, list[int]] = {}
    for task, client in holders(assignment):
        of_task.setdefault(task, []).append(client)
    tags = state.assignment_configs.rack_aware_assignment_tags
    return [diversity(state, tags, of_task.get(task, [])) for task in range(len(state.columns.tasks))]


def check(state: ApplicationState) -> None:
    before, actives, both = optimised(state)

    assert_valid(state, TaskAssignment(both))
    assert counts(before, Role.ACTIVE) == counts(actives, Role.ACTIVE) == counts(both, Role.ACTIVE)
    assert counts(actives, Role.STANDBY) == counts(both, Role.STANDBY)
    was, now = diversities(state, actives), diversities(state, both)
    assert all(first <= second for first, second in zip(was, now, strict=True))
    copies = Counter(task for task, _ in holders(before))
    assert copies == Counter(task for task, _ in holders(actives)) == Counter(task for task, _ in holders(both))
    assert len(set(holders(both))) == len(holders(both))
    for result in (actives, both):
        if result.skipped is None:
            assert result.lower_bound is not None
            assert result.cost_after is not None
            assert result.lower_bound <= result.cost_after
    if actives.skipped is None:
        assert actives.gap == 0
    params = RackAwareOptimizationParams.of(state).with_traffic_cost_override(10).with_non_overlap_cost_override(1)
    assert dict(actives) == dict(optimize_rack_aware_active_tasks(params, actives))
    assert dict(both) == dict(optimize_rack_aware_standby_tasks(params, both))


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        (100, {"racks_known": True}),
        (30, {}),
        (8, {"racks_known": True, "max_tasks": 150, "max_clients": 20, "max_standbys": 3}),
        pytest.param(None, {"racks_known": True}, marks=pytest.mark.slow),
    ],
    ids=["racks", "maybe racks", "bigger", "very many"],
)
def test_counts_copies_and_diversity_are_kept_and_a_second_run_changes_nothing(
    count: int | None, shape: dict[str, Any]
) -> None:
    for number, state in enumerate(random_states(11, examples(100_000) if count is None else count, **shape)):
        try:
            check(state)
        except Exception as error:
            error.add_note(f"random_state(11, {number}, **{shape})")
            raise


def test_nothing_depends_on_the_order_in_which_a_state_was_put_together() -> None:
    for state in random_states(12, 20, racks_known=True, max_tasks=30):
        assert_deterministic(Optimised, state)


def test_nothing_depends_on_the_hash_seed() -> None:
    assert_same_in_every_process(Optimised, random_states(13, 25, racks_known=True), hash_seeds=(1,))
