"""What an assignment says of goals that were perhaps not reached: nothing in ordinary cases, their codes in hard ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from task_assignor.builtin_assignors import (
    CostModel,
    FallbackPriorTaskAssignor,
    HighAvailabilityTaskAssignor,
    MinCostTaskAssignor,
    StickyTaskAssignor,
    StreamJoinTaskAssignor,
)
from task_assignor.builtin_assignors.stream_join import STREAM_JOIN_GROUPS
from task_assignor.engine.actives import allocation as actives
from task_assignor.engine.actives import group_shares
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentConfigs,
    KafkaStreamsAssignment,
    SnapshotException,
    StateException,
    TaskAssignment,
    TaskAssignor,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
    assignment_from_json,
    assignment_to_json,
    read_assignment,
    write_assignment,
)
from task_assignor.testing import a_client, a_process_id, a_state, application_states, stateful_tasks
from task_assignor.utils import (
    Goal,
    PlacementCosts,
    RackAwareOptimizationParams,
    joined,
    optimize_rack_aware_active_tasks,
    place_actives,
    place_standbys,
    refine_with_warmups,
    subtopologies,
)
from tests.budget import examples

KEYS = ("rack", "zone", "host")


def tagged(tasks: int = 12) -> ApplicationState:
    """Three tag keys and two standbys: what holders have in common no single flow can say."""
    clients = [
        a_client(number + 1, tags={key: str(number % (2 + place)) for place, key in enumerate(KEYS)})
        for number in range(6)
    ]
    return a_state(stateful_tasks(0, tasks), clients, num_standby_replicas=2, rack_aware_assignment_tags=KEYS)


def claimed_by_all(tasks: int = 12) -> ApplicationState:
    """Every task has been active on two clients, and one client is new."""
    names = [f"0_{number}" for number in range(tasks)]
    return a_state(stateful_tasks(0, tasks), [a_client(1, active=names), a_client(2, active=names), 3])


def _has_sizes(state: ApplicationState) -> bool:
    """Whether partitions of sub-topologies with equally many partitions have different numbers of tasks."""
    tasks = state.columns.tasks
    number = Counter(tasks.subtopology.tolist())
    sizes = Counter(
        (number[sub], part) for sub, part in zip(tasks.subtopology.tolist(), tasks.partition.tolist(), strict=True)
    )
    return len(set(sizes.values())) > 1


@given(application_states())
@settings(max_examples=examples(40))
def test_without_tags_everything_is_exact(state: ApplicationState) -> None:
    configs = state.assignment_configs
    if not configs.rack_aware_assignment_tags and len(state.columns.clients):
        for assignor in (StickyTaskAssignor, FallbackPriorTaskAssignor, StreamJoinTaskAssignor, MinCostTaskAssignor):
            said = assignor().assign(state).inexact
            if assignor in (StickyTaskAssignor, FallbackPriorTaskAssignor):
                # The one goal that a local search looks for.
                said -= {Goal.STANDBY_LOADS}
            # Whether partitions of different sizes leave something to be gained: see the tests of `stream-join`.
            if assignor is not StreamJoinTaskAssignor or not _has_sizes(state):
                assert said == set(), assignor


@pytest.mark.parametrize("assignor", [StickyTaskAssignor, FallbackPriorTaskAssignor, StreamJoinTaskAssignor])
def test_several_tag_keys_and_standbys_are_said(assignor: type[TaskAssignor]) -> None:
    assert assignor().assign(tagged()).inexact == {Goal.STANDBY_TAGS, Goal.STANDBY_STATE}


def test_very_many_claims_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert StickyTaskAssignor().assign(claimed_by_all()).inexact == frozenset()
    monkeypatch.setattr(actives, "MOST_CHOICES", 1)
    later = {goal for goal in Goal if goal.startswith("ACTIVE_")} - {Goal.ACTIVE_SHARES, Goal.ACTIVE_COST}

    assert StickyTaskAssignor().assign(claimed_by_all()).inexact == later
    sticky_target = HighAvailabilityTaskAssignor()
    sticky_target.configure({"high.availability.target": "sticky"})
    assert sticky_target.assign(claimed_by_all()).inexact == later
    assert HighAvailabilityTaskAssignor().assign(claimed_by_all()).inexact == frozenset()


def test_very_many_states_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has had a task, so no claims are too many; but all clients have the state of all."""
    names = [f"0_{number}" for number in range(12)]
    state = a_state(stateful_tasks(0, 12), [a_client(number, standby=names) for number in (1, 2, 3)])
    assert StickyTaskAssignor().assign(state).inexact == frozenset()
    monkeypatch.setattr(actives, "MOST_CHOICES", 1)

    assert StickyTaskAssignor().assign(state).inexact == {Goal.ACTIVE_STATE, Goal.ACTIVE_LEAST_BEHIND}


def test_very_many_join_groups_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    state = a_state([*stateful_tasks(0, 5), *stateful_tasks(1, 4)], 3)
    assert StreamJoinTaskAssignor().assign(state).inexact == frozenset()
    later = {Goal.ACTIVE_EVEN_STATEFUL, Goal.ACTIVE_STATE, Goal.ACTIVE_LEAST_BEHIND}
    monkeypatch.setattr(joined, "MOST_TOGETHER", 1)
    assert StreamJoinTaskAssignor().assign(state).inexact == later
    monkeypatch.setattr(group_shares, "MOST_CANDIDATES", 1)
    assert StreamJoinTaskAssignor().assign(state).inexact == later | {Goal.ACTIVE_EVEN, Goal.ACTIVE_COST}


def test_strange_numbers_of_threads_are_said() -> None:
    """No fraction is a unit of all prices: stateful partitions may be less even than they could be."""
    threads = [a_client(number, threads=number_of) for number, number_of in enumerate((9973, 9967, 9949), 1)]
    state = a_state([*stateful_tasks(0, 5), *stateful_tasks(1, 4)], threads)
    later = {Goal.ACTIVE_EVEN_STATEFUL, Goal.ACTIVE_STATE, Goal.ACTIVE_LEAST_BEHIND}

    assert StreamJoinTaskAssignor().assign(state).inexact == later
    assert StickyTaskAssignor().assign(state).inexact == frozenset()


@pytest.mark.parametrize("is_large", [False, True])
def test_a_claim_lost_of_several_on_a_joined_partition_is_said(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """All can be kept, and are; in a large group clients are thought to keep what they have too many of there."""
    if is_large:
        monkeypatch.setattr(joined, "MOST_TOGETHER", 0)
    had = {2: ["0_0", "0_1", "2_0"], 3: ["0_1", "1_2", "2_0"]}
    clients = [a_client(number, active=had.get(number, ())) for number in (1, 2, 3)]
    tasks = [task for group, size in enumerate((2, 3, 2)) for task in stateful_tasks(group, size)]
    assignor = StreamJoinTaskAssignor()
    assignor.configure({STREAM_JOIN_GROUPS: "0;1;2"})
    answer = assignor.assign(a_state(tasks, clients))
    now = {one.process_id.id.int & 0xF: set(map(str, one.tasks)) for one in answer.assignment}
    kept = {name for number, names in had.items() for name in names if name in now[number]}

    assert len({name for names in had.values() for name in names} - kept) == is_large
    assert (Goal.ACTIVE_COST in answer.inexact) == is_large


EVERYTHING = ["0_0", "0_1", "1_0", "1_1", "2_0", "2_1"]
STATE_LEFT = {Goal.ACTIVE_STATE, Goal.ACTIVE_LEAST_BEHIND}


@pytest.mark.parametrize(
    ("active", "standby", "left_open"),
    [
        ([(), ()], [(), ()], {Goal.ACTIVE_EVEN_STATEFUL}),
        ([(), ()], [["2_0"], ()], {Goal.ACTIVE_EVEN_STATEFUL, *STATE_LEFT}),
        ([EVERYTHING[::2], EVERYTHING[1::2]], [(), ()], set()),
        ([EVERYTHING[::2], [*EVERYTHING[1::2], "2_0"]], [(), ()], {Goal.ACTIVE_EVEN_STATEFUL, *STATE_LEFT}),
        ([["0_0", "1_0", "2_0"], ["0_1", "1_1", "2_0"]], [(), ()], {Goal.ACTIVE_EVEN_STATEFUL, *STATE_LEFT}),
        ([EVERYTHING, ()], [(), ()], {Goal.ACTIVE_COST, Goal.ACTIVE_EVEN_STATEFUL, *STATE_LEFT}),
    ],
    ids=[
        "nobody had anything",
        "state",
        "all stays",
        "all stays, and one could be elsewhere",
        "one is new",
        "claims are lost",
    ],
)
def test_what_partitions_of_different_sizes_leave_open_is_said(
    active: Sequence[Sequence[str]], standby: Sequence[Sequence[str]], left_open: set[Goal]
) -> None:
    """Partitions of two tasks are placed before those of one: loads are even, the goals after that may have a better way."""
    tasks = [task for group in range(3) for task in stateful_tasks(group, 2)]
    clients = [a_client(number + 1, active=active[number], standby=standby[number]) for number in range(2)]
    assignor = StreamJoinTaskAssignor()
    assignor.configure({STREAM_JOIN_GROUPS: "0,1;2"})

    assert assignor.assign(a_state(tasks, clients)).inexact == left_open


def test_weights_are_said() -> None:
    class Weighted(MinCostTaskAssignor):
        def cost_model(self, application_state: ApplicationState) -> CostModel:
            return Weights()

    class Weights(CostModel):
        def costs(self, application_state: ApplicationState) -> PlacementCosts:
            tasks = len(application_state.columns.tasks)
            return PlacementCosts(task_class=np.zeros(tasks, dtype=np.int64), weight=np.arange(tasks) + 1)

    state = a_state(stateful_tasks(0, 5), 2)
    assert Weighted().assign(state).inexact == {Goal.ACTIVE_COST}
    assert not Weighted().solve(state).quality.is_proven_optimal
    assert MinCostTaskAssignor().assign(state).inexact == frozenset()


def test_what_is_built_on_an_inexact_answer_says_so_too() -> None:
    state = tagged()
    given_actives = place_actives(state)
    standbys = place_standbys(state, given_actives)
    assert given_actives.inexact == frozenset()
    assert TaskAssignment(refine_with_warmups(state, standbys)).inexact == standbys.inexact != frozenset()
    assert TaskAssignment(refine_with_warmups(state, TaskAssignment(standbys))).inexact == standbys.inexact


def test_it_is_no_part_of_equality_nor_of_what_members_get() -> None:
    state = tagged()
    answer = StickyTaskAssignor().assign(state)
    same = TaskAssignment(answer.assignment)
    assert answer.inexact != same.inexact
    assert answer == same
    assert assignment_to_json(answer) == assignment_to_json(same)
    assert repr(answer) == repr(same)[:-1] + ", inexact=['STANDBY_STATE', 'STANDBY_TAGS'])"


def test_files_keep_it(tmp_path: Path) -> None:
    answer = StickyTaskAssignor().assign(tagged())
    write_assignment(answer, tmp_path / "answer.json")
    found = read_assignment(tmp_path / "answer.json")
    assert (found, found.inexact) == (answer, answer.inexact)
    assert Goal.STANDBY_TAGS in found.inexact

    exact = TaskAssignment(answer.assignment)
    write_assignment(exact, tmp_path / "exact.json")
    assert (tmp_path / "exact.json").read_text().startswith("[")
    assert read_assignment(tmp_path / "exact.json").inexact == frozenset()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("ACTIVE_EVEN", r"\$.inexact: The value must be a list, but is 'ACTIVE_EVEN'."),
        ([1], r"\$.inexact\[0\]: The value must be a string, but is 1."),
        (["A", "A"], r"\$.inexact\[1\]: The value \('A'\) must be there once, but is there twice."),
    ],
)
def test_a_wrong_list_of_codes_is_named(value: object, message: str) -> None:
    with pytest.raises(SnapshotException, match=message):
        assignment_from_json({"assignment": [], "inexact": value})


@pytest.mark.parametrize("value", ["ACTIVE_EVEN", 5, [5]])
def test_codes_are_strings(value: object) -> None:
    with pytest.raises(StateException, match="inexact goal"):
        TaskAssignment([], inexact=value)  # type: ignore[arg-type]


def test_moves_that_cost_nothing_and_may_be_too_many_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients of one rack are dealt what they get together: cost and bound are equal, but one move is too many."""
    replicas = [*[{"r0", "r2"}] * 3, {"r1"}, {"r2"}, {"r2"}]
    builder = ApplicationStateBuilder(AssignmentConfigs(rack_aware_assignment_strategy="balance_subtopology"))
    tasks = [TaskId(number // 4, number % 4) for number in range(6)]
    for task, racks in zip(tasks, replicas, strict=True):
        topic = TopicPartition(f"in-{task.subtopology}", task.partition)
        builder.add_task(task, topic_partitions=[TaskTopicPartition(topic, rack_ids=racks)])
    had = [(0, 1), (2, 5), (3, 4)]
    clients = [a_process_id(number) for number in (1, 2, 3)]
    for client, rack in zip(clients, ("r2", "r0", "r2"), strict=True):
        builder.add_client(client, rack_id=rack)
    state = builder.build()
    before = {
        client: KafkaStreamsAssignment.of(client, [AssignedTask(tasks[one], AssignedTask.Type.ACTIVE) for one in mine])
        for client, mine in zip(clients, had, strict=True)
    }
    params = RackAwareOptimizationParams.of(state).with_traffic_cost_override(1).with_non_overlap_cost_override(0)
    exact = optimize_rack_aware_active_tasks(params, before)
    monkeypatch.setattr(subtopologies, "MOST_TASKS", 0)
    found = optimize_rack_aware_active_tasks(params, before)

    moves = [sum(len(set(one[c].tasks) - set(before[c].tasks)) for c in clients) for one in (exact, found)]
    assert (moves, exact.gap, found.gap) == ([2, 3], 0, 0)
    assert exact.inexact == frozenset()
    assert found.inexact == {Goal.ACTIVE_COST}
