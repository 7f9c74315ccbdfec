"""The rack-aware optimisers on objects: the JVM's vectors, its own ready-made cases without its bugs, odd input."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentConfigs,
    ConfigException,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
    UnknownTaskError,
)
from task_assignor.sdk.snapshot_assignment import assignment_from_json
from task_assignor.utils import (
    AssignmentResult,
    RackAwareOptimizationParams,
    SkipReason,
    identity_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from tests.rack_comparison import (
    ACTIVE,
    STANDBY,
    assert_actives_keep,
    assert_standbys_keep,
    by_client,
    keeps_tags_and_selection,
    objective,
    params_of,
    rows,
)
from tests.vectors import Vector, vectors

P1, P2, P3 = (ProcessId(uuid.UUID(int=number)) for number in (1, 2, 3))
T0, T1, T2 = (TaskId(0, number) for number in range(3))


def answered(name: str) -> list[Vector]:
    return [vector for vector in vectors(name) if not vector.throws]


def _assert_recorded_is_unchanged(vector: Vector, result: AssignmentResult) -> None:
    """What ours may leave as it is: what Kafka leaves too."""
    theirs = by_client(assignment_from_json(vector.expected["assignment"]))
    for role in (ACTIVE, STANDBY):
        assert rows(theirs, role) == rows(by_client(vector.assignment), role) == rows(result, role)


@pytest.mark.parametrize(
    ("name", "optimise", "optimised"),
    [
        ("optimize_active", optimize_rack_aware_active_tasks, 120),
        ("optimize_standby", optimize_rack_aware_standby_tasks, 115),
    ],
)
def test_most_vectors_are_optimised(name: str, optimise: Callable[..., AssignmentResult], optimised: int) -> None:
    """So the comparisons below compare something; and each reason not to optimise is met."""
    seen: Counter[SkipReason | None] = Counter()
    for vector in answered(name):
        skipped = optimise(params_of(vector.state, vector.json["params"]), by_client(vector.assignment)).skipped
        seen[None if skipped is None else skipped.reason] += 1

    assert seen[None] >= optimised
    assert set(seen) - {None} == set(SkipReason)


@pytest.mark.parametrize("vector", answered("optimize_active"), ids=lambda vector: vector.id)
def test_active_tasks_cost_what_they_cost_the_jvm(vector: Vector) -> None:
    """Where the JVM optimised at all, the objective is equal, at equal counts."""
    params, given = params_of(vector.state, vector.json["params"]), by_client(vector.assignment)

    result = optimize_rack_aware_active_tasks(params, given)

    assert by_client(vector.assignment) == given
    assert_actives_keep(params, given, result)
    configs = params.application_state.assignment_configs
    costs = (configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost)
    if result.skipped is not None:
        _assert_recorded_is_unchanged(vector, result)
    elif None not in costs:
        # Otherwise the JVM changes nothing, overrides or not.
        measured = vector.json["metrics"]["objectiveAfter"]
        assert measured["min"] == measured["max"] == result.cost_after
    again = optimize_rack_aware_active_tasks(params, result)
    assert dict(result) == dict(again)


@pytest.mark.parametrize("vector", [v for v in vectors("optimize_active") if v.throws], ids=lambda vector: vector.id)
def test_a_task_that_is_active_twice_is_an_error_as_in_the_jvm(vector: Vector) -> None:
    with pytest.raises(StateException, match="is active on two clients"):
        optimize_rack_aware_active_tasks(params_of(vector.state, vector.json["params"]), by_client(vector.assignment))


@pytest.mark.parametrize("vector", answered("optimize_standby"), ids=lambda vector: vector.id)
def test_standbys_never_cost_more_than_the_jvms(vector: Vector) -> None:
    """Compared where the JVM's answer keeps tags and selection; ours always keeps both, and the counts."""
    params, given = params_of(vector.state, vector.json["params"]), by_client(vector.assignment)

    result = optimize_rack_aware_standby_tasks(params, given)

    assert_standbys_keep(params, given, result)
    if result.skipped is not None:
        _assert_recorded_is_unchanged(vector, result)
    else:
        if vector.json["expected"] is None:
            tags = params.application_state.assignment_configs.rack_aware_assignment_tags
            comparable = not tags and params.kind == "all"
        else:
            answer = by_client(assignment_from_json(vector.expected["assignment"]))
            comparable = keeps_tags_and_selection(params, given, answer)
        if comparable:
            assert objective(params, given, result, STANDBY) <= vector.json["metrics"]["objectiveAfter"]["min"]
    again = optimize_rack_aware_standby_tasks(params, result)
    assert dict(result) == dict(again)


@pytest.mark.parametrize("vector", [v for v in vectors("optimize_standby") if v.throws], ids=lambda vector: vector.id)
def test_where_the_jvm_throws_standbys_are_optimised(vector: Vector) -> None:
    """A selected task without a standby, and a selection with `balance_subtopology`, are no errors."""
    params, given = params_of(vector.state, vector.json["params"]), by_client(vector.assignment)
    result = optimize_rack_aware_standby_tasks(params, given)

    assert Counter(client for _, client in rows(given, STANDBY)) == Counter(
        client for _, client in rows(result, STANDBY)
    )


def partition(task: TaskId, racks: set[str] | None, changelog: bool = True) -> TaskTopicPartition:
    return TaskTopicPartition(TopicPartition("topic", task.partition), not changelog, changelog, racks)


def state_of(
    racks: Mapping[TaskId, set[str] | None],
    clients: Mapping[ProcessId, str | None],
    changelog: bool = True,
    tags: Mapping[ProcessId, str] | None = None,
    **configs: Any,
) -> ApplicationState:
    settings = {
        "rack_aware_assignment_strategy": "min_traffic",
        "rack_aware_traffic_cost": 100,
        "rack_aware_non_overlap_cost": 1,
        **configs,
    }
    builder = ApplicationStateBuilder(AssignmentConfigs(**settings))
    for task, names in racks.items():
        builder.add_task(
            task, is_stateful=changelog, topic_partitions=[partition(task, names, changelog)], end_offset_sum=0
        )
    for client, rack in clients.items():
        builder.add_client(client, rack_id=rack, client_tags={"zone": tags[client]} if tags else {})
    return builder.build()


def assigned(
    client: ProcessId, active: tuple[TaskId, ...] = (), standby: tuple[TaskId, ...] = ()
) -> KafkaStreamsAssignment:
    return KafkaStreamsAssignment.of(
        client, [*(AssignedTask(task, ACTIVE) for task in active), *(AssignedTask(task, STANDBY) for task in standby)]
    )


def assignments(*given: KafkaStreamsAssignment) -> dict[ProcessId, KafkaStreamsAssignment]:
    return {each.process_id: each for each in given}


SWAP = state_of({T0: {"r2"}, T1: {"r1"}}, {P1: "r1", P2: "r2"})


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_active_tasks_are_swapped_and_the_input_stays(strategy: str) -> None:
    state = state_of({T0: {"r2"}, T1: {"r1"}}, {P1: "r1", P2: "r2"}, rack_aware_assignment_strategy=strategy)
    given = assignments(assigned(P1, (T0,)), assigned(P2, (T1,)))

    result = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(state), given)

    assert assignments(assigned(P1, (T1,)), assigned(P2, (T0,))) == dict(result)
    assert assignments(assigned(P1, (T0,)), assigned(P2, (T1,))) == given
    assert (result.cost_before, result.cost_after, result.lower_bound) == (200, 2, 2)
    assert result.columns is not None
    assert dict(result) == dict(optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(state), result))


def test_standbys_are_swapped() -> None:
    state = state_of({T0: {"r2"}, T1: {"r3"}}, {P1: "r1", P2: "r2", P3: "r3"})
    given = assignments(assigned(P1, (T0, T1)), assigned(P2, (), (T1,)), assigned(P3, (), (T0,)))

    result = optimize_rack_aware_standby_tasks(RackAwareOptimizationParams.of(state), given)

    assert {(T0, P2), (T1, P3)} == rows(result, STANDBY)
    assert (result.cost_before, result.cost_after, result.gap) == (200, 2, 0)


def test_standbys_stay_where_a_swap_would_cost_diversity() -> None:
    """The JVM's tag predicate compares a client with itself, so it would move the standby into the active's zone."""
    tags = {P1: "a", P2: "a", P3: "b"}
    racks: dict[TaskId, set[str] | None] = {T0: {"r2"}, T1: {"r3"}}
    given = assignments(assigned(P1, (T0,)), assigned(P2, (), (T1,)), assigned(P3, (), (T0,)))
    clients: dict[ProcessId, str | None] = {P1: "r1", P2: "r2", P3: "r3"}
    tagged = state_of(racks, clients, tags=tags, rack_aware_assignment_tags=("zone",))

    kept = optimize_rack_aware_standby_tasks(RackAwareOptimizationParams.of(tagged), given)
    moved = optimize_rack_aware_standby_tasks(RackAwareOptimizationParams.of(state_of(racks, clients)), given)

    assert {(T0, P3), (T1, P2)} == rows(kept, STANDBY)
    assert {(T0, P2), (T1, P3)} == rows(moved, STANDBY)


def test_an_active_task_that_meets_its_standby_changes_roles_with_it() -> None:
    """The JVM overwrites the standby, which is then gone."""
    given = assignments(assigned(P1, (T0,), (T1,)), assigned(P2, (T1,), (T0,)))

    result = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(SWAP), given)

    assert assignments(assigned(P1, (T1,), (T0,)), assigned(P2, (T0,), (T1,))) == dict(result)


def test_a_selected_task_that_nobody_has_stays_without_owner() -> None:
    """The JVM throws as soon as tasks are selected by name or by kind."""
    state = state_of({T0: {"r2"}, T1: {"r1"}, T2: {"r1"}}, {P1: "r1", P2: "r2"})
    given = assignments(assigned(P1, (T0,)), assigned(P2, (T1,)))
    params = RackAwareOptimizationParams.of(state)

    for selection in (params, params.for_stateful_tasks(), params.for_tasks([T0, T1, T2])):
        result = optimize_rack_aware_active_tasks(selection, given)

        assert {(T1, P1), (T0, P2)} == rows(result, ACTIVE)


def test_selection_applies_to_standbys_too() -> None:
    """The JVM moves all standbys whatever `for_tasks` says."""
    state = state_of({T0: {"r2"}, T1: {"r3"}}, {P1: "r1", P2: "r2", P3: "r3"})
    given = assignments(assigned(P1, (T0, T1)), assigned(P2, (), (T1,)), assigned(P3, (), (T0,)))

    result = optimize_rack_aware_standby_tasks(RackAwareOptimizationParams.of(state).for_tasks([T0]), given)

    assert given == dict(result)


def test_overrides_count_as_configured() -> None:
    """The JVM looks at the configured costs only, and does nothing without them."""
    state = state_of(
        {T0: {"r2"}, T1: {"r1"}}, {P1: "r1", P2: "r2"}, rack_aware_traffic_cost=None, rack_aware_non_overlap_cost=None
    )
    given = assignments(assigned(P1, (T0,)), assigned(P2, (T1,)))
    params = RackAwareOptimizationParams.of(state)

    without = optimize_rack_aware_active_tasks(params, given)
    one = optimize_rack_aware_active_tasks(params.with_traffic_cost_override(100), given)
    both = params.with_traffic_cost_override(100).with_non_overlap_cost_override(1)

    assert without.skipped is not None
    assert one.skipped is not None
    assert "traffic_cost is not configured" in str(without.skipped)
    assert "non_overlap_cost is not configured" in str(one.skipped)
    assert {(T1, P1), (T0, P2)} == rows(optimize_rack_aware_active_tasks(both, given), ACTIVE)


def skipped(result: AssignmentResult) -> tuple[SkipReason, str]:
    assert result.skipped is not None
    return result.skipped.reason, result.skipped.message


def test_says_who_lacks_a_rack() -> None:
    given = assignments(assigned(P1, (T0,)), assigned(P2))
    without = state_of({T0: {"r1"}}, {P1: "r1", P2: None})
    unknown = state_of({T0: None}, {P1: "r1", P2: "r2"})
    none = state_of({T0: {"r1"}}, {P1: "r1", P2: "r2"}, rack_aware_assignment_strategy="none")

    reason, message = skipped(optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(without), given))
    assert SkipReason.CLIENT_WITHOUT_RACK is reason
    assert str(P2) in message
    reason, message = skipped(optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(unknown), given))
    assert SkipReason.PARTITION_WITHOUT_RACKS is reason
    assert "topic-0 of task 0_0" in message
    reason, message = skipped(optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(none), given))
    assert SkipReason.STRATEGY_NONE is reason
    assert given == dict(optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(none), given))


def test_only_partitions_that_count_need_known_racks() -> None:
    """Racks of tasks that are not selected may be unknown; the JVM asks for those of all tasks."""
    state = state_of({T0: {"r2"}, T1: {"r1"}, T2: None}, {P1: "r1", P2: "r2"})
    given = assignments(assigned(P1, (T0, T2)), assigned(P2, (T1,)))

    result = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(state).for_tasks([T0, T1]), given)

    assert {(T1, P1), (T0, P2), (T2, P1)} == rows(result, ACTIVE)


def test_a_partition_in_no_rack_crosses_from_everywhere() -> None:
    """The JVM takes no racks for unknown racks, and changes nothing."""
    state = state_of({T0: {"r2"}, T1: {"r3"}, T2: set()}, {P1: "r1", P2: "r2", P3: "r3"})
    params = RackAwareOptimizationParams.of(state)

    actives = optimize_rack_aware_active_tasks(
        params, assignments(assigned(P1, (T2,)), assigned(P2, (T1,)), assigned(P3, (T0,)))
    )
    standbys = optimize_rack_aware_standby_tasks(
        params, assignments(assigned(P1, (T0, T1)), assigned(P2, (T2,), (T1,)), assigned(P3, (), (T0, T2)))
    )

    assert {(T2, P1), (T0, P2), (T1, P3)} == rows(actives, ACTIVE)
    assert (actives.cost_before, actives.cost_after) == (300, 102)
    assert {(T0, P2), (T1, P3), (T2, P3)} == rows(standbys, STANDBY)


def test_deadlines_stay_and_clients_may_be_left_out() -> None:
    given = assignments(assigned(P1, (T0,)).with_followup_rebalance(77), assigned(P2, (T1,)))

    result = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(SWAP), given)
    alone = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(SWAP), assignments(assigned(P1, (T0, T1))))

    assert assigned(P1, (T1,)).with_followup_rebalance(77) == result[P1]
    assert assigned(P2, (T0,)) == result[P2]
    assert assigned(P2) == alone[P2]


def test_takes_any_face_of_an_assignment() -> None:
    given = assignments(assigned(P1, (T0,)), assigned(P2, (T1,)))
    params = RackAwareOptimizationParams.of(SWAP)
    expected = dict(optimize_rack_aware_active_tasks(params, given))

    assert expected == dict(optimize_rack_aware_active_tasks(params, TaskAssignment(given)))
    assert expected == dict(optimize_rack_aware_active_tasks(params, tuple(given.values())))


def test_works_on_results_of_other_utilities() -> None:
    builder = ApplicationStateBuilder(SWAP.assignment_configs)
    for task, rack in ((T0, "r2"), (T1, "r1")):
        builder.add_task(task, is_stateful=True, topic_partitions=[partition(task, {rack})], end_offset_sum=0)
    builder.add_client(P1, rack_id="r1", previous_active_tasks=[T0]).add_client(
        P2, rack_id="r2", previous_active_tasks=[T1]
    )
    state = builder.build()

    result = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(state), identity_assignment(state))

    assert {(T1, P1), (T0, P2)} == rows(result, ACTIVE)


def test_params_are_values() -> None:
    params = RackAwareOptimizationParams.of(SWAP)

    assert params.for_stateful_tasks().for_tasks([T1, T0]) == params.for_tasks([T0, T1, T0])
    assert repr(params) == "RackAwareOptimizationParams(all tasks)"
    assert (params.traffic_cost, params.non_overlap_cost) == (100, 1)
    assert params.with_traffic_cost_override(7).traffic_cost == 7


@pytest.mark.parametrize("bad", [-1, 0.5, "1", True, 2**31, 2**63])
def test_bad_costs_give_one_clear_error(bad: Any) -> None:
    params = RackAwareOptimizationParams.of(SWAP)
    with pytest.raises(ConfigException, match=r"traffic cost override .* must be an int from 0 to 2147483647"):
        params.with_traffic_cost_override(bad)
    with pytest.raises(ConfigException, match=r"non-overlap cost override .* must be an int from 0 to 2147483647"):
        params.with_non_overlap_cost_override(bad)


def test_bad_arguments_give_one_clear_error() -> None:
    params = RackAwareOptimizationParams.of(SWAP)
    given: Any = assignments(assigned(P1, (T0,)), assigned(P2, (T0,)))

    with pytest.raises(UnknownTaskError, match="no task 5_5"):
        params.for_tasks([TaskId(5, 5)])
    for wrong in ("0_0", ["0_0"], None):
        with pytest.raises(StateException, match=r"tasks .*must be a list of TaskId"):
            params.for_tasks(wrong)  # type: ignore[arg-type]
    with pytest.raises(StateException, match="must be an ApplicationState"):
        RackAwareOptimizationParams.of(given)
    with pytest.raises(StateException, match="must be RackAwareOptimizationParams"):
        optimize_rack_aware_active_tasks(given, given)
    with pytest.raises(StateException, match="must be a mapping"):
        optimize_rack_aware_active_tasks(params, 5)  # type: ignore[arg-type]
    with pytest.raises(StateException, match="which the application does not have"):
        optimize_rack_aware_standby_tasks(params, assignments(assigned(P1, (TaskId(9, 9),))))
    with pytest.raises(StateException, match=rf"0_0 is active on two clients, {P1} and {P2}"):
        optimize_rack_aware_active_tasks(params, given)


@pytest.mark.parametrize("vector", answered("optimize_standby"), ids=lambda vector: vector.id)
def test_both_strategies_treat_standbys_alike(vector: Vector) -> None:
    """Kafka evens out sub-topologies between two clients at a time, which evens out nothing as a whole."""
    params, given = params_of(vector.state, vector.json["params"]), by_client(vector.assignment)
    state = params.application_state
    found = []
    for strategy in ("min_traffic", "balance_subtopology"):
        configs = attrs.evolve(state.assignment_configs, rack_aware_assignment_strategy=strategy)
        same = attrs.evolve(params, application_state=ApplicationState(state.columns, configs))
        found.append(dict(optimize_rack_aware_standby_tasks(same, given)))

    assert found[0] == found[1]


def test_sub_topologies_of_named_topologies_are_groups_of_their_own() -> None:
    """Kafka takes sub-topology 0 of two topologies for one, and then finds all tasks evenly spread."""
    configs = AssignmentConfigs(
        rack_aware_assignment_strategy="balance_subtopology", rack_aware_traffic_cost=0, rack_aware_non_overlap_cost=0
    )
    builder = ApplicationStateBuilder(configs).add_client(P1, rack_id="r1").add_client(P2, rack_id="r1")
    tasks = [TaskId(0, number, topology) for topology in ("one", "two") for number in range(4)]
    for task in tasks:
        builder.add_task(task)
    params = RackAwareOptimizationParams.of(builder.build())

    result = optimize_rack_aware_active_tasks(
        params, assignments(assigned(P1, tuple(tasks[:4])), assigned(P2, tuple(tasks[4:])))
    )

    spread = Counter((task.topology_name, client) for task, client in rows(result, ACTIVE))
    assert sorted(spread.values()) == [2, 2, 2, 2]


def test_a_task_that_is_active_twice_matters_only_where_it_may_move() -> None:
    given = assignments(assigned(P1, (T0, T1)), assigned(P2, (T1,)))
    off = state_of({T0: {"r2"}, T1: {"r1"}}, {P1: "r1", P2: "r2"}, rack_aware_assignment_strategy="none")

    others = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(SWAP).for_tasks([T0]), given)
    skipped_ = optimize_rack_aware_active_tasks(RackAwareOptimizationParams.of(off), given)

    assert given == dict(others) == dict(skipped_)
