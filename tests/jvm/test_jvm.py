"""Our decisions beside those of Kafka 4.3.1 in a living JVM, on fresh random states.

`make test` asks a few hundred questions, `make test-jvm-long` many thousands with other seeds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest

from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor, StickyTaskAssignor
from task_assignor.builtin_assignors.high_availability import high_availability_plan
from task_assignor.builtin_assignors.sticky import MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT
from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentColumns,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.testing import (
    a_client,
    a_process_id,
    a_state,
    assert_valid,
    random_assignment,
    random_states,
    stateful_tasks,
)
from task_assignor.utils import default_standby_task_assignment, identity_assignment
from task_assignor.utils._classes import crossings_of
from task_assignor.utils._java_queue import hash_map_order, poll_order
from task_assignor.utils._rack import optimize_active_columns
from task_assignor.validation import validate_task_assignment
from tests.budget import examples, requested_examples
from tests.goals import Placement
from tests.jvm.jvm import Jvm
from tests.vectors import placements_of

pytestmark = pytest.mark.jvm
# The usual run is the same everywhere; a long run has a seed of its own, which every failure names.
SEED = random.SystemRandom().randrange(2**32) if requested_examples() else 1
BOTH_MAY_COME_FIRST = {"UNKNOWN_TASK_ID", "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"}


def _states(count: int, **shape: Any) -> Iterator[tuple[str, ApplicationState]]:
    """Random states, with what it takes to have them again. Kafka can sort tasks only if all have a topology, or none."""
    for number, state in enumerate(random_states(SEED, examples(count), **shape)):
        ids = [*state.columns.tasks.task_ids(), *(task for _client, _role, task in state.columns.previous.vanished)]
        if len({task.topology_name is None for task in ids}) <= 1:
            yield f"random_state({SEED}, {number}, **{shape})", state


def _with(state: ApplicationState, **settings: Any) -> ApplicationState:
    """The same state with other settings."""
    return ApplicationState(state.columns, attrs.evolve(state.assignment_configs, **settings), state.now_ms)


def _random_owners(state: ApplicationState, rng: random.Random) -> TaskAssignment:
    """Every task somewhere, no standbys."""
    owners = [rng.randrange(len(state.columns.clients)) for _ in range(len(state.columns.tasks))]
    return TaskAssignment.of_columns(AssignmentColumns.of(state.columns, np.array(owners, dtype=np.int32)))


@pytest.mark.parametrize(
    ("count", "shape"),
    [(250, {}), (60, {"max_tasks": 120, "max_clients": 20}), (60, {"max_tasks": 25, "racks_known": True})],
    ids=["small", "larger", "racks"],
)
def test_high_availability(jvm: Jvm, count: int, shape: dict[str, Any]) -> None:
    """Equal without racks. With racks: used if and only if Kafka uses them, at the same cost in the first round."""
    seen: Counter[bool] = Counter()
    for name, state in _states(count, **shape):
        answer, plan = jvm.ask("ha", state), high_availability_plan(state)
        assert answer.exception is None, (name, answer)
        seen[answer.value["racks"]] += 1
        assert plan.are_racks_usable == answer.value["racks"], name
        if answer.value["racks"]:
            costs = [one.cost_after for one in plan.rack_rounds if one.kind == "active"]
            if state.columns.tasks.has_changelog.any():
                assert costs[0] == answer.value["activeCosts"][0], name
            assert_valid(state, HighAvailabilityTaskAssignor().assign(state))
        else:
            placements = placements_of(HighAvailabilityTaskAssignor().assign(state))
            deadlines = [placement.pop("followupRebalanceDeadlineMs", None) for placement in placements]
            assert placements == answer.value["assignment"], name
            assert any(deadline is not None for deadline in deadlines) == answer.value["probing"], name
    assert seen[True] + seen[False] > 0.6 * examples(count)


def _on_the_move(seed: str) -> ApplicationState:
    """Most tasks are caught up on clients that are not their target: many movements, few warm-ups."""
    rng = random.Random(seed)
    tasks = stateful_tasks(0, rng.randint(5, 60), end_offset_sum=20_000)
    near = rng.choice([0.02, 0.1, 0.3, 0.5])
    clients = [
        a_client(
            number + 1,
            threads=rng.choice([1, 1, 1, 2, 4]),
            lags={
                task.task_id: rng.choice([LATEST_OFFSET, 0, 9_999])
                if rng.random() < near
                else rng.choice([10_001, 100_000])
                for task in tasks
                if rng.random() < 0.9
            },
        )
        for number in range(rng.randint(3, 16))
    ]
    return a_state(
        tasks, clients, num_standby_replicas=rng.choice([0, 1, 1, 2, 3]), max_warmup_replicas=rng.choice([1, 2, 4])
    )


def test_movements_in_the_order_of_kafkas_queues(jvm: Jvm) -> None:
    """Also where Kafka's queue of clients does not give up the lightest first."""
    for number in range(examples(100)):
        name = f"{SEED}/{number}"
        state = _on_the_move(name)
        placements = placements_of(HighAvailabilityTaskAssignor().assign(state))
        for placement in placements:
            placement.pop("followupRebalanceDeadlineMs", None)

        assert placements == jvm.ask("ha", state).value["assignment"], name


@pytest.mark.parametrize("shape", [{}, {"max_tasks": 100, "max_clients": 12}], ids=["small", "larger"])
def test_default_standbys(jvm: Jvm, shape: dict[str, Any]) -> None:
    """Equal; where task ids share a bucket of Kafka's set, whose order we cannot know, equal in number."""
    equal = 0
    for name, state in _states(100, **shape):
        if not state.assignment_configs.num_standby_replicas:
            continue
        target = _random_owners(state, random.Random(name))
        theirs = jvm.ask("default_standby", state, target).value["assignment"]
        ours = default_standby_task_assignment(state, target)
        if placements_of(ours) == theirs:
            equal += 1
            continue
        assert _some_share_a_bucket(state), name
        there = Placement.of_json(state, theirs)
        assert len(Placement.of(state, ours.values()).standby_task) == len(there.standby_task), name
    assert equal >= 0.3 * examples(100)


def _some_share_a_bucket(state: ApplicationState) -> bool:
    """Whether the order in which the tasks are put into the set can be seen in its order."""
    tasks = state.columns.tasks
    stateful = np.flatnonzero(tasks.has_changelog)
    forwards = stateful[hash_map_order(tasks, stateful)]
    backwards = stateful[::-1][hash_map_order(tasks, stateful[::-1])]
    return not np.array_equal(forwards, backwards)


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_rack_aware_actives(jvm: Jvm, strategy: str) -> None:
    """As cheap as Kafka's, with as many tasks on each client. (Kafka takes sub-topologies of two topologies for one.)"""
    compared = 0
    for name, state in _states(60, racks_known=True, max_tasks=20):
        columns = state.columns
        if len(columns.tasks.topology_names) > 1 or not len(columns.tasks):
            continue
        rng = random.Random(name)
        costs = {"traffic": rng.choice([0, 1, 10]), "overlap": rng.choice([0, 1, 7])}
        given = _with(
            state,
            rack_aware_assignment_strategy=strategy,
            rack_aware_traffic_cost=costs["traffic"],
            rack_aware_non_overlap_cost=costs["overlap"],
        )
        target = _random_owners(state, rng)
        answer = jvm.ask("optimize_active", given, target)
        assert answer.exception is None, (name, answer)
        before, after = Placement.of(state, target), Placement.of_json(state, answer.value["assignment"])

        ours = optimize_active_columns(
            columns,
            before.owner.astype(np.int32),
            traffic_cost=costs["traffic"],
            non_overlap_cost=costs["overlap"],
            strategy=strategy,
        )

        crossings = int(crossings_of(columns, np.arange(len(columns.tasks)), after.owner, "all").sum())
        theirs = costs["traffic"] * crossings + costs["overlap"] * int((after.owner != before.owner).sum())
        assert ours.cost_after == theirs, (name, strategy)
        assert np.bincount(ours.owner, minlength=len(columns.clients)).tolist() == after.actives.tolist(), name
        compared += 1
    assert compared >= 0.3 * examples(60)


def test_sticky(jvm: Jvm) -> None:
    """Goal by goal in the documented order, Kafka is not better."""
    for name, state in _states(100, consistent=True):
        given = _with(state, rack_aware_assignment_strategy="none")
        must_preserve = random.Random(name).random() < 0.3
        answer = jvm.ask("sticky", given, params={"mustPreserveActiveTaskAssignment": must_preserve})
        assert answer.exception is None, (name, answer)
        assignor = StickyTaskAssignor()
        assignor.configure({MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT: must_preserve})

        ours = Placement.of(given, assignor.assign(given))

        theirs = Placement.of_json(given, answer.value["assignment"])
        assert ours.sticky_goals(must_preserve) <= theirs.sticky_goals(must_preserve), name


def test_validation(jvm: Jvm) -> None:
    """The same error. Of two that are in one client's tasks Kafka names the one that its hash map has first."""
    seen: Counter[str] = Counter()
    for name, state in _states(150, max_tasks=6):
        for seed in range(2):
            given = random_assignment(state, seed)
            ids = [task for one in given for task in one.tasks]
            if len({task.topology_name is None for task in ids}) > 1:
                continue
            answer = jvm.ask("validate", state, given)
            assert answer.exception is None, (name, answer)
            ours, theirs = validate_task_assignment(state, given).value, answer.value["error"]
            assert ours == theirs or {ours, theirs} == BOTH_MAY_COME_FIRST, (name, seed)
            seen[ours] += 1
    assert len(seen) >= 4


def test_identity(jvm: Jvm) -> None:
    """Equal; a client that had a task in both roles is refused by both."""
    for name, state in _states(100):
        answer = jvm.ask("identity", state)
        try:
            ours = placements_of(identity_assignment(state))
        except StateException:
            assert answer.exception == "IllegalStateException", name
        else:
            assert ours == answer.value["assignment"], name


def test_the_order_of_a_queue(jvm: Jvm) -> None:
    """`poll_order` is that of `java.util.PriorityQueue`."""
    for number in range(examples(100)):
        rng = random.Random(f"{SEED}/{number}")
        keys = [rng.randint(0, rng.choice([1, 3, 10, 1000])) for _ in range(rng.randint(0, 80))]

        assert poll_order(np.array(keys, dtype=np.int64)).tolist() == jvm.ask_json({"keys": keys}).value["order"], keys


def test_the_order_of_a_map(jvm: Jvm) -> None:
    """`hash_map_order` is that of `java.util.HashMap`, for names of topologies in any script."""
    for number in range(examples(60)):
        rng = random.Random(f"{SEED}/{number}")
        names = ["a", "Zä€😀", "topology"] if rng.random() < 0.4 else [None]
        most = rng.choice([20, 100, 400])
        ids = {TaskId(rng.randrange(6), rng.randrange(most), rng.choice(names)) for _ in range(rng.randint(0, 300))}
        builder = ApplicationStateBuilder().add_client(a_process_id(1))
        for task_id in ids:
            builder.add_task(task_id, is_stateful=False)
        tasks = builder.build().columns.tasks

        order = hash_map_order(tasks, np.arange(len(tasks)))

        ours = [str(task_id) for task_id in tasks.task_ids(order.tolist())]
        assert ours == jvm.ask_json({"taskIds": list(map(str, tasks.task_ids()))}).value["order"], number
