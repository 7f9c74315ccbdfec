"""What every utility's result can tell: a mapping in process-id order, costs, gap, reason."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from task_assignor.builtin_assignors import MinCostTaskAssignor
from task_assignor.sdk import (
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.testing import a_client, a_state, stateful_tasks
from task_assignor.utils import (
    AssignmentResult,
    Goal,
    Placement,
    PlacementCosts,
    Skipped,
    SkipReason,
    balance_active_tasks,
    balance_standby_tasks,
    default_standby_task_assignment,
    identity_assignment,
    optimize_actives,
    optimize_standbys,
    place_actives,
    place_at_least_cost,
    place_joined_actives,
    place_least_loaded,
    place_standbys,
    placement_of,
    refine_with_warmups,
    with_probing_rebalance,
)

P1, P2, HIGH = (
    ProcessId.parse(f"{first}-0000-0000-0000-000000000000") for first in ("00000001", "00000002", "f0000000")
)
T0 = TaskId(0, 0)


def columns() -> AssignmentColumns:
    builder = ApplicationStateBuilder().add_task(T0)
    for client in (P2, HIGH, P1):
        builder.add_client(client)
    return AssignmentColumns.of(builder.build().columns, np.array([2]))


def test_is_a_mapping_in_process_id_order_that_a_task_assignment_takes() -> None:
    result = AssignmentResult(KafkaStreamsAssignment.of(client) for client in (P2, P1, HIGH))

    assert list(result) == [HIGH, P1, P2]
    assert [each.process_id for each in TaskAssignment(result)] == [HIGH, P1, P2]
    assert KafkaStreamsAssignment.of(P1) == result[P1]
    assert result.columns is None


def test_keeps_the_columns_until_somebody_changes_an_assignment() -> None:
    given = columns()
    result = AssignmentResult(given)
    assert given is result.columns

    result[P1].assign_task(AssignedTask(T0, AssignedTask.Type.STANDBY))

    assert result.columns is None


def test_gap_is_known_only_with_cost_and_bound() -> None:
    assert AssignmentResult(columns(), cost_after=10, lower_bound=7).gap == 3
    assert AssignmentResult(columns(), cost_after=10).gap is None


def test_repr_tells_what_happened() -> None:
    skipped = Skipped(SkipReason.CLIENT_WITHOUT_RACK, "Client x has no rack.")
    result = AssignmentResult(columns(), cost_before=5, cost_after=5, lower_bound=5, skipped=skipped, shortages={T0: 2})

    assert (
        repr(result)
        == "AssignmentResult(3 clients, cost 5 -> 5, lower bound 5, skipped: Client x has no rack., 2 copies missing)"
    )


def test_a_client_cannot_be_there_twice() -> None:
    with pytest.raises(StateException, match="twice"):
        AssignmentResult([KafkaStreamsAssignment.of(P1), KafkaStreamsAssignment.of(P1)])


def test_what_was_not_exact_is_handed_on_up_to_the_assignment() -> None:
    given = AssignmentResult(columns(), inexact={Goal.ACTIVE_STATE})
    state = ApplicationStateBuilder().add_task(T0).add_client(P1).build()
    later = place_least_loaded(state, AssignmentResult(Placement.of(state.columns, [-1]), inexact={"A_GOAL_OF_MY_OWN"}))

    assert "not exact: ACTIVE_STATE" in repr(given)
    assert TaskAssignment(given).inexact == {"ACTIVE_STATE"}
    assert TaskAssignment(given.values()).inexact == frozenset()
    assert TaskAssignment(with_probing_rebalance(state, later)).inexact == {"A_GOAL_OF_MY_OWN"}


def test_a_placement_is_taken_as_it_is_until_somebody_changes_an_assignment() -> None:
    state = ApplicationStateBuilder().add_task(T0).add_client(P1).add_client(P2).build()
    placement = Placement.of(state.columns, [1])
    result = AssignmentResult(placement)
    assert placement_of(state, result) is placement
    assert list(result[P2].tasks) == [T0]
    assert placement_of(state, result) is placement

    result[P2].remove_task(AssignedTask(T0, AssignedTask.Type.ACTIVE))
    result[P1].assign_task(AssignedTask(T0, AssignedTask.Type.ACTIVE))

    assert result.placement is None
    assert placement_of(state, result).active_owner.tolist() == [0]
    assert placement_of(
        ApplicationStateBuilder().add_task(T0).add_client(P1).build(), result_of(P1)
    ).counts().tolist() == [1]


@pytest.mark.parametrize("way", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy])
def test_a_result_can_be_sent_to_another_process(way: Callable[[Any], Any]) -> None:
    state = a_state(stateful_tasks(0, 2), [a_client(1, active=["0_0"]), a_client(2)], num_standby_replicas=2)
    placed = place_standbys(state, place_actives(state))
    for result in (
        placed,
        refine_with_warmups(state, placed),
        place_at_least_cost(state, PlacementCosts(task_class=[0, 0])),
    ):
        sent = way(result)
        assert sent == result
        assert repr(sent) == repr(result)
        assert sent.shortages == result.shortages
    assert placed.shortages
    assert way(MinCostTaskAssignor().solve(state)).assignment == MinCostTaskAssignor().assign(state)


STATE: Any = a_state(stateful_tasks(0, 1), 1)
GIVEN = TaskAssignment(identity_assignment(STATE))


@pytest.mark.parametrize(
    "ask",
    [
        identity_assignment,
        place_actives,
        lambda state: place_joined_actives(state, [0]),
        lambda state: place_at_least_cost(state, PlacementCosts(task_class=[0])),
        lambda state: place_least_loaded(state, STATE),
        lambda state: place_standbys(state, STATE),
        lambda state: default_standby_task_assignment(state, STATE),
        lambda state: balance_active_tasks(state, STATE),
        lambda state: balance_standby_tasks(state, STATE),
        lambda state: optimize_actives(state, STATE, traffic_cost=1, non_overlap_cost=1),
        lambda state: optimize_standbys(state, STATE, traffic_cost=1, non_overlap_cost=1),
        lambda state: refine_with_warmups(state, STATE),
        lambda state: with_probing_rebalance(state, STATE),
    ],
)
def test_swapped_arguments_are_said(ask: Callable[[Any], object]) -> None:
    with pytest.raises(StateException, match="must be an ApplicationState"):
        ask(GIVEN)


def result_of(client: ProcessId) -> AssignmentResult:
    """The task on a client, as another state has it."""
    state = ApplicationStateBuilder().add_task(T0).add_client(client).build()
    return AssignmentResult(Placement.of(state.columns, [0]))


@pytest.mark.parametrize(
    ("owner", "task", "client", "message"),
    [
        ([0, 0], [], [], "active_owner"),
        ([2], [], [], "active_owner"),
        ([0], [1], [0], "standby_task"),
        ([0], [0], [2], "standby_client"),
        ([0], [0], [], "standby_task and standby_client"),
        # Taken as they come, these would be other numbers.
        ([0], [0], [2**32 + 1], "cannot hold numbers"),
        ([0], [0.7], [1], "cannot be made from values of kind float64"),
        ([0], ["0"], [1], "cannot be made from values of kind <U1"),
        ([0], [False], [1], "cannot be made from values of kind bool"),
    ],
)
def test_a_placement_of_wrong_numbers_is_an_error(
    owner: list[int], task: list[object], client: list[object], message: str
) -> None:
    state = ApplicationStateBuilder().add_task(T0).add_client(P1).add_client(P2).build()
    with pytest.raises(StateException, match=message):
        Placement.of(state.columns, owner, np.array(task), np.array(client))
