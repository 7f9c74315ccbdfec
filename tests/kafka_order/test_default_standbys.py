"""Default standbys: Kafka's recorded answers, properties over random states, and what differs on purpose."""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import ApplicationState, AssignedTask, StateException, TaskAssignment, TaskId
from task_assignor.testing import (
    a_client,
    a_process_id,
    a_state,
    a_stateless_task,
    an_assignment,
    application_states,
    stateful_tasks,
)
from task_assignor.utils import AssignmentResult, default_standby_task_assignment
from tests.deviations import explanations
from tests.differences import differences_of
from tests.goals import Judged
from tests.vectors import placements_of, vectors


def _standbys(result: AssignmentResult, number: int) -> list[str]:
    tasks = result[a_process_id(number)].tasks.values()
    return [str(task.id) for task in tasks if task.type is AssignedTask.Type.STANDBY]


@pytest.mark.parametrize("name", ["default_standby_load", "default_standby_tags"])
def test_recorded_answers(name: str) -> None:
    """Equal; where the JVM's runs differ, as many standbys and as even as in one of them. Else a deviation explains it."""
    equal = within = 0
    for vector in vectors(name):
        differences = differences_of(vector)
        assert all(explanations(vector, one) for one in differences), vector.id
        equal += not differences and vector.json["expected"] is not None
        within += not differences and vector.json["expected"] is None
    assert equal >= 100
    assert within >= 20


def _round_robin(state: ApplicationState) -> TaskAssignment:
    ids = state.columns.tasks.task_ids()
    clients = state.columns.clients.process_ids
    active = {int(client.id.int): ids[number :: len(clients)] for number, client in enumerate(clients)}
    return an_assignment(state, active=active)


@given(application_states())
def test_every_task_gets_the_standbys_that_there_can_be(state: ApplicationState) -> None:
    """One per client that is left, never beside another copy of the task; the rest is a shortage. Twice changes nothing."""
    wanted = state.assignment_configs.num_standby_replicas
    target = _round_robin(state)
    result = default_standby_task_assignment(state, target)
    placed = Judged.of(state, result.values())
    possible = min(wanted, len(state.columns.clients) - 1)
    stateful = {task_id for task_id, info in state.all_tasks.items() if info.has_changelog}

    pairs = set(zip(placed.standby_task.tolist(), placed.standby_client.tolist(), strict=True))
    assert len(pairs) == len(placed.standby_task) == possible * len(stateful)
    assert all(placed.owner[task] != client for task, client in pairs)
    assert placed.owner.tolist() == Judged.of(state, target).owner.tolist()
    assert dict(result.shortages) == (dict.fromkeys(stateful, wanted - possible) if wanted > possible else {})
    assert placements_of(default_standby_task_assignment(state, result)) == placements_of(result)


@given(application_states(max_clients=8), st.randoms(use_true_random=False))
def test_the_order_of_the_assignments_does_not_matter(state: ApplicationState, rng: random.Random) -> None:
    """Nor what kind of object they are in."""
    target = list(_round_robin(state))
    shuffled = list(target)
    rng.shuffle(shuffled)
    by_client = {one.process_id: one for one in shuffled}

    expected = placements_of(default_standby_task_assignment(state, TaskAssignment(target)))
    assert placements_of(default_standby_task_assignment(state, shuffled)) == expected
    assert placements_of(default_standby_task_assignment(state, by_client)) == expected
    columns = (
        TaskAssignment(target).columns or default_standby_task_assignment(_without_standbys(state), target).columns
    )
    assert columns is not None
    assert placements_of(default_standby_task_assignment(state, columns)) == expected


def _without_standbys(state: ApplicationState) -> ApplicationState:
    configs = attrs.evolve(state.assignment_configs, num_standby_replicas=0)
    return ApplicationState(state.columns, configs, state.now_ms)


def test_load_counts_all_tasks_per_thread() -> None:
    """A stateless task weighs as much as any; two threads carry twice as much; ties go to the smaller process id."""
    state = a_state(
        [*stateful_tasks(0, 2), a_stateless_task("1_0")],
        [a_client(1), a_client(2, threads=4), 3],
        num_standby_replicas=1,
    )
    target = an_assignment(state, active={1: ["0_0"], 2: ["0_1"], 3: ["1_0"]})

    result = default_standby_task_assignment(state, target)

    assert [_standbys(result, number) for number in (1, 2, 3)] == [["0_1"], ["0_0"], []]


def test_tags_spread_the_copies() -> None:
    """Two standbys: first both other zones, wherever the load is; a key whose values are used up no longer counts."""
    zones = {1: "a", 2: "a", 3: "b", 4: "b"}
    state = a_state(
        stateful_tasks(0, 1),
        [a_client(number, tags={"zone": zone, "rack": "any"}) for number, zone in zones.items()],
        num_standby_replicas=2,
        rack_aware_assignment_tags=["zone"],
    )
    result = default_standby_task_assignment(state, an_assignment(state, active={1: ["0_0"]}))

    assert [_standbys(result, number) for number in zones] == [[], ["0_0"], ["0_0"], []]


def test_left_overs_go_where_load_allows() -> None:
    """Nobody has another value of the tag: the standby is placed all the same."""
    clients = [a_client(1, tags={"zone": "a"}), a_client(2, tags={"zone": "a"}), a_client(3, tags={"zone": "b"})]
    state = a_state(stateful_tasks(0, 2), clients[:2], num_standby_replicas=1, rack_aware_assignment_tags=["zone"])
    result = default_standby_task_assignment(state, an_assignment(state, active={1: ["0_0"], 2: ["0_1"]}))

    assert [_standbys(result, number) for number in (1, 2)] == [["0_1"], ["0_0"]]
    assert not result.shortages


def test_a_task_that_nobody_runs_gets_standbys_too() -> None:
    """With tags it has no first copy to differ from."""
    for tags in ([], ["zone"]):
        state = a_state(stateful_tasks(0, 1), 2, num_standby_replicas=1, rack_aware_assignment_tags=tags)
        result = default_standby_task_assignment(state, an_assignment(state))

        assert [_standbys(result, number) for number in (1, 2)] == [["0_0"], []]


@pytest.mark.parametrize("tags", [[], ["zone"]])
def test_zero_standbys_with_tags_means_none(tags: list[str]) -> None:
    """Deviation: Kafka gives every task one when tags are configured."""
    clients = [a_client(1, tags={"zone": "a"}), a_client(2, tags={"zone": "b"})]
    state = a_state(stateful_tasks(0, 1), clients, num_standby_replicas=0, rack_aware_assignment_tags=tags)

    result = default_standby_task_assignment(state, an_assignment(state, active={1: ["0_0"]}))

    assert _standbys(result, 2) == []


@pytest.mark.parametrize("tags", [[], ["zone"]])
def test_standbys_that_are_there_count(tags: list[str]) -> None:
    """Deviation: Kafka adds the full number. What is there stays, also more than wanted; tags see it."""
    clients = [a_client(number, tags={"zone": zone}) for number, zone in enumerate("abbc", start=1)]
    state = a_state(stateful_tasks(0, 2), clients, num_standby_replicas=2, rack_aware_assignment_tags=tags)
    target = an_assignment(state, active={1: ["0_0", "0_1"]}, standby={2: ["0_0", "0_1"], 3: ["0_0"], 4: ["0_0"]})

    result = default_standby_task_assignment(state, target)

    assert [_standbys(result, number) for number in (2, 3, 4)] == (
        [["0_0", "0_1"], ["0_0"], ["0_0", "0_1"]] if tags else [["0_0", "0_1"], ["0_0", "0_1"], ["0_0"]]
    )
    assert dict(default_standby_task_assignment(state, result)) == dict(result)


def test_a_follow_up_that_was_asked_for_stays() -> None:
    """What an assignment says besides tasks is not lost, and the input is not changed."""
    state = a_state(stateful_tasks(0, 1), 2, num_standby_replicas=1)
    target = [one.with_followup_rebalance(7) for one in an_assignment(state, active={1: ["0_0"]})]

    result = default_standby_task_assignment(state, target)

    assert [one.followup_rebalance_deadline_ms for one in result.values()] == [7, 7]
    assert [len(one.tasks) for one in target] == [1, 0]


@pytest.mark.parametrize(
    ("active", "message"),
    [
        ({1: ["9_9"]}, "task 9_9, which the application does not have"),
        ({7: []}, "client 00000000-0000-0000-0000-000000000007, which the application does not have"),
        ({1: ["0_0"], 2: ["0_0"]}, "Task 0_0 is active on two clients, .*01 and .*02"),
    ],
)
def test_assignments_that_no_validation_would_pass_are_refused(
    active: dict[int, Iterable[str | TaskId]], message: str
) -> None:
    """Deviation: Kafka goes on with them, and fails later."""
    state = a_state(stateful_tasks(0, 1), 2, num_standby_replicas=1)
    with pytest.raises(StateException, match=message):
        default_standby_task_assignment(state, an_assignment(state, active=active))


def test_a_client_listed_twice_is_refused() -> None:
    """Kafka's maps cannot hold that; ours take lists."""
    state = a_state(stateful_tasks(0, 1), 2)
    with pytest.raises(StateException, match="twice in the assignment"):
        default_standby_task_assignment(state, [*an_assignment(state), *an_assignment(state)])


@pytest.mark.parametrize("assignments", [None, 7, ["0_0"], {"a": "b"}])
def test_what_is_no_assignment_is_refused(assignments: object) -> None:
    """With an error of the package, not of Python."""
    with pytest.raises(StateException, match="KafkaStreamsAssignment"):
        default_standby_task_assignment(a_state([], 1), assignments)  # type: ignore[arg-type]
