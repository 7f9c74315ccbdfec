"""Our decisions beside those of Kafka 4.3.1 in a living JVM, on fresh random states.

`make test` asks a few hundred questions, `make test-jvm-long` many thousands with other seeds.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor, StickyTaskAssignor
from task_assignor.builtin_assignors.high_availability import high_availability_plan
from task_assignor.builtin_assignors.sticky import MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT
from task_assignor.kafka_order.java_order import hash_map_order, poll_order
from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentColumns,
    AssignmentError,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
    assignment_from_json,
)
from task_assignor.sdk.snapshot import state_to_json
from task_assignor.testing import (
    a_client,
    a_process_id,
    a_state,
    a_stateless_task,
    an_assignment,
    assert_valid,
    random_assignment,
    random_states,
    stateful_tasks,
)
from task_assignor.utils import (
    default_standby_task_assignment,
    identity_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from task_assignor.validation import validate_task_assignment
from tests.budget import examples, requested_examples
from tests.deviations import DEVIATIONS, Deviation, Difference, explanations
from tests.goals import Judged
from tests.jvm.jvm import Jvm
from tests.rack_comparison import (
    ACTIVE,
    STANDBY,
    Assignments,
    Rows,
    assert_actives_keep,
    assert_standbys_keep,
    by_client,
    counts,
    keeps_tags_and_selection,
    objective,
    params_of,
    rows,
    selects_unplaced,
)
from tests.recorded_runs import UNDECIDED, StickyQuestion
from tests.vectors import Vector, placements_of, vectors

pytestmark = pytest.mark.jvm
# The usual run is the same everywhere; a long run has a seed of its own, which every failure names.
SEED = random.SystemRandom().randrange(2**32) if requested_examples() else 1


def _states(count: int, **shape: Any) -> Iterator[tuple[str, ApplicationState]]:
    """Random states, with what it takes to have them again."""
    for number, state in enumerate(random_states(SEED, examples(count), **shape)):
        if _can_be_sorted(state):
            yield f"random_state({SEED}, {number}, **{shape})", state


def _can_be_sorted(state: ApplicationState) -> bool:
    """Kafka can sort tasks only if all have a topology, or none."""
    ids = [*state.columns.tasks.task_ids(), *(task for _client, _role, task in state.columns.previous.vanished)]
    return len({task.topology_name is None for task in ids}) <= 1


def _with(state: ApplicationState, **settings: Any) -> ApplicationState:
    """The same state with other settings."""
    return ApplicationState(state.columns, attrs.evolve(state.assignment_configs, **settings), state.now_ms)


def _placed_anyhow(
    state: ApplicationState, rng: random.Random, most_standbys: Sequence[int] = (0, 1, 1, 2, 3)
) -> Assignments:
    """Tasks anywhere, some maybe nowhere; as many standbys of tasks with stores as come up; a client may be left out."""
    columns = state.columns
    clients = range(len(columns.clients))
    nobody = rng.choice(((), (-1,)))
    owner = [rng.choice((*clients, *clients, *clients, *nobody)) for _ in range(len(columns.tasks))]
    most = rng.choice(most_standbys)
    standbys = [
        (task, client)
        for task in np.flatnonzero(columns.tasks.is_stateful).tolist()
        for client in rng.sample(clients, min(rng.randint(0, most), len(clients)))
        if client != owner[task]
    ]
    task, client = np.array(standbys, dtype=np.int32).reshape(-1, 2).T
    placed = TaskAssignment.of_columns(AssignmentColumns.of(columns, np.array(owner, dtype=np.int32), task, client))
    return by_client(one for one in placed if one.tasks or rng.random() < 0.7)


@pytest.mark.parametrize(
    ("count", "shape"),
    [(150, {}), (60, {"max_tasks": 120, "max_clients": 20}), (60, {"max_tasks": 25, "racks_known": True})],
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
    for number in range(examples(60)):
        name = f"{SEED}/{number}"
        state = _on_the_move(name)
        placements = placements_of(HighAvailabilityTaskAssignor().assign(state))
        for placement in placements:
            placement.pop("followupRebalanceDeadlineMs", None)

        assert placements == jvm.ask("ha", state).value["assignment"], name


@pytest.mark.parametrize(
    ("count", "shape"), [(150, {}), (50, {"max_tasks": 100, "max_clients": 12})], ids=["small", "larger"]
)
def test_default_standbys(jvm: Jvm, count: int, shape: dict[str, Any]) -> None:
    """Equal; where task ids share a bucket of Kafka's set, whose order we cannot know, equal in number."""
    equal = 0
    for name, state in _states(count, **shape):
        rng = random.Random(name)
        target = _placed_anyhow(state, rng, most_standbys=(0,))
        theirs = jvm.ask("default_standby", state, TaskAssignment(target)).value["assignment"]
        ours = default_standby_task_assignment(state, target)
        if placements_of(ours) == theirs:
            equal += 1
            continue
        explained = {one.name for one in explanations(_question("default_standby", state, target), Difference.OTHER)}
        assert explained, name
        if "No standbys wanted means no standbys" not in explained:
            there = Judged.of_json(state, theirs)
            assert len(Judged.of(state, ours.values()).standby_task) == len(there.standby_task), name
    assert equal >= 0.3 * examples(count)


def _question(
    operation: str, state: ApplicationState, given: Assignments, params: Mapping[str, Any] | None = None
) -> Vector:
    """A question to the JVM in the form of a vector, as the list of deviations wants it."""
    return Vector(
        {
            "operation": operation,
            "state": state_to_json(state),
            "assignment": placements_of(given),
            "params": params or {},
        }
    )


RACKS: dict[str, Any] = {"racks_known": True, "max_tasks": 20}
BIGGER: dict[str, Any] = {"racks_known": True, "max_tasks": 50, "max_clients": 10}


def _optimisation(rng: random.Random, placed: Rows) -> dict[str, Any]:
    """Which of the tasks to optimise, and at which costs."""
    ids = sorted({str(task) for task, _client in placed})
    some = rng.sample(ids, rng.randint(0, len(ids)))
    params = {
        "tasks": rng.choice((None, None, None, "stateful", "stateless", some)),
        "trafficCost": rng.choice((None, None, 1, 10)),
        "nonOverlapCost": rng.choice((None, None, 0, 1, 7)),
    }
    return {name: value for name, value in params.items() if value is not None}


def _with_costs(state: ApplicationState, rng: random.Random) -> ApplicationState:
    """The same state with settings that nearly always have racks optimised."""
    return _with(
        state,
        rack_aware_assignment_strategy=rng.choice(("min_traffic", "balance_subtopology")),
        rack_aware_traffic_cost=rng.choice((0, 1, 1, 1, 10, 10, 10, 10, None)),
        rack_aware_non_overlap_cost=rng.choice((0, 0, 0, 1, 1, 1, 7, 7, None)),
    )


def _kafka_optimises(state: ApplicationState) -> bool:
    """Whether Kafka changes anything at all: the costs are configured, and every partition has a replica in a rack."""
    configs = state.assignment_configs
    costs = (configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost)
    tasks = state.columns.tasks
    sets = tasks.partition_rack_set.tolist()
    return None not in costs and all(number >= 0 and tasks.rack_sets[number] for number in sets)


@pytest.mark.parametrize(
    ("count", "shape"), [(200, RACKS), (50, BIGGER), (60, {})], ids=["racks", "bigger", "maybe racks"]
)
def test_rack_aware_actives(jvm: Jvm, count: int, shape: dict[str, Any]) -> None:
    """As cheap as Kafka's, with as many tasks on each client; what ours leaves as it is, Kafka leaves too.

    What differs is in the list of deviations: Kafka throws where a selected task is active nowhere, for example.
    """
    seen: Counter[str] = Counter()
    for name, drawn in _states(count, **shape):
        rng = random.Random(name)
        state = _with_costs(drawn, rng) if shape else drawn
        try:
            given = _placed_anyhow(state, rng)
            asked = _optimisation(rng, rows(given, ACTIVE))
            question, difference = _difference_of_actives(jvm, state, given, asked)
            assert difference is None or explanations(question, difference)
        except Exception as error:
            error.add_note(name)
            raise
        strategy = state.assignment_configs.rack_aware_assignment_strategy
        seen[strategy if difference is None else "different"] += 1
    assert min(seen[kind] for kind in ("none" if not shape else "different", "min_traffic", "balance_subtopology")) >= (
        0.02 * examples(count)
    )


def _difference_of_actives(
    jvm: Jvm, state: ApplicationState, given: Assignments, asked: Mapping[str, Any]
) -> tuple[Vector, Difference | None]:
    """Optimise, and have Kafka do so; None: unchanged by both, or as cheap at equal counts."""
    question, params = _question("optimize_active", state, given, asked), params_of(state, asked)
    result = optimize_rack_aware_active_tasks(params, given)
    assert_actives_keep(params, given, result)
    answer = jvm.ask("optimize_active", state, TaskAssignment(given), asked)
    if answer.exception is not None:
        assert selects_unplaced(params, given, ACTIVE), answer
        return question, Difference.THROWN
    theirs = by_client(assignment_from_json(answer.value["assignment"]))
    if result.skipped is not None or not _kafka_optimises(state):
        assert rows(theirs, ACTIVE) == rows(given, ACTIVE)
        if result.skipped is not None:
            return question, None
    cost = objective(params, given, theirs, ACTIVE)
    assert result.cost_after is not None
    if result.cost_after != cost:
        return question, Difference.CHEAPER if result.cost_after < cost else Difference.DEARER
    assert counts(rows(theirs, ACTIVE)) == counts(rows(given, ACTIVE))
    return question, None


@pytest.mark.parametrize("deviation", [one for one in DEVIATIONS if one.only_in_jvm], ids=lambda one: one.name)
def test_each_deviation_that_no_vector_needs_is_needed_here(jvm: Jvm, deviation: Deviation) -> None:
    """It alone explains a difference; else it is out of date."""
    costs = {"rack_aware_traffic_cost": 100, "rack_aware_non_overlap_cost": 1}
    strategy = "min_traffic"
    tasks = [a_stateless_task("0_0", racks={"r2"}), a_stateless_task("0_1", racks={"r1"})]
    active, asked = {1: ["0_0"], 2: ["0_1"]}, {"tasks": ["0_0", "0_1"]}
    match deviation.name:
        case "Only partitions that count need known racks":
            tasks.append(a_stateless_task("0_2"))
        case "No rack at all is known too":
            tasks.append(a_stateless_task("0_2", racks=set()))
        case "A selected task that nobody has is no error":
            active.pop(2)
        case "Sub-topologies of named topologies are groups of their own":
            ids = [[f"{topology}__0_{number}" for number in range(4)] for topology in ("one", "two")]
            tasks = [a_stateless_task(task, racks={"r1", "r2"}) for task in itertools.chain(*ids)]
            active, asked, strategy = {1: ids[0], 2: ids[1]}, {}, "balance_subtopology"
    clients = [a_client(number, rack=f"r{number}") for number in (1, 2)]
    state = a_state(tasks, clients, rack_aware_assignment_strategy=strategy, **costs)

    question, difference = _difference_of_actives(jvm, state, by_client(an_assignment(state, active)), asked)

    assert difference is not None
    assert explanations(question, difference) == [deviation]


@pytest.mark.parametrize(
    ("count", "shape"), [(200, RACKS), (50, BIGGER), (60, {})], ids=["racks", "bigger", "maybe racks"]
)
def test_rack_aware_standbys(jvm: Jvm, count: int, shape: dict[str, Any]) -> None:
    """Never dearer than Kafka's where that keeps tags and selection; what ours leaves as it is, Kafka leaves too.

    Kafka throws where a selected task has no standby, and with a selection and `balance_subtopology`.
    """
    seen: Counter[str] = Counter()
    for name, drawn in _states(count, **shape):
        rng = random.Random(name)
        state = _with_costs(drawn, rng) if shape else drawn
        given = _placed_anyhow(state, rng)
        asked = _optimisation(rng, rows(given, STANDBY))
        question, params = _question("optimize_standby", state, given, asked), params_of(state, asked)
        try:
            result = optimize_rack_aware_standby_tasks(params, given)
            assert_standbys_keep(params, given, result)
            answer = jvm.ask("optimize_standby", state, TaskAssignment(given), asked)
            if answer.exception is not None:
                balances = state.assignment_configs.rack_aware_assignment_strategy == "balance_subtopology"
                assert params.kind != "all", answer
                assert balances or selects_unplaced(params, given, STANDBY), answer
                assert explanations(question, Difference.THROWN)
                seen["thrown"] += 1
                continue
            theirs = by_client(assignment_from_json(answer.value["assignment"]))
            if result.skipped is not None or not _kafka_optimises(state):
                assert rows(theirs, STANDBY) == rows(given, STANDBY)
                seen["unchanged"] += 1
            elif keeps_tags_and_selection(params, given, theirs):
                assert result.cost_after is not None
                ours = objective(params, given, result, STANDBY)
                assert ours <= objective(params, given, theirs, STANDBY)
                assert ours == objective(params, given, theirs, STANDBY) or explanations(question, Difference.CHEAPER)
                seen["cheaper" if ours < objective(params, given, theirs, STANDBY) else "equal"] += 1
            else:
                assert explanations(question, Difference.DEARER)
                seen["not kept"] += 1
        except Exception as error:
            error.add_note(name)
            raise
    assert min(seen["unchanged"], seen["equal"] + seen["cheaper"]) >= 0.02 * examples(count)


def test_sticky(jvm: Jvm) -> None:
    """Goal by goal in the documented order, Kafka is not better."""
    for name, state in _states(60, consistent=True):
        given = _with(state, rack_aware_assignment_strategy="none")
        must_preserve = random.Random(name).random() < 0.3
        answer = jvm.ask("sticky", given, params={"mustPreserveActiveTaskAssignment": must_preserve})
        assert answer.exception is None, (name, answer)
        assignor = StickyTaskAssignor()
        assignor.configure({MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT: must_preserve})

        ours = Judged.of(given, assignor.assign(given))

        theirs = Judged.of_json(given, answer.value["assignment"])
        assert ours.sticky_goals(must_preserve) <= theirs.sticky_goals(must_preserve), name


@pytest.mark.parametrize("operation", ["sticky", "legacy_sticky", "fallback_prior"])
@pytest.mark.thorough
def test_recorded_states_in_many_orders(jvm: Jvm, operation: str) -> None:
    """Goal by goal no run is better than ours, whatever the order of Kafka's maps.

    Of many runs the recorded answers have only the least and the greatest metrics. Here they are asked for again:
    often where those leave open who is better.
    """
    answers: Counter[str] = Counter()
    for vector in vectors(operation):
        question = StickyQuestion.of(vector)
        ours = question.goals(Judged.of(question.state, question.answer()))
        rng = random.Random(f"{SEED}/{vector.id}")
        state = dict(vector.json["state"])
        asked = {"operation": operation, "state": state, "params": vector.json.get("params") or {}}
        found = set()
        for number in range(min(examples(4), 100) if vector.id in UNDECIDED else 1):
            if number:
                for key in ("clients", "tasks"):
                    state[key] = rng.sample(state[key], len(state[key]))
            # The maps of Kafka itself are hash maps, as in the first run and in every fourth after it.
            answer = jvm.ask_json({**asked, "inOrder": number % 4 != 0})
            assert answer.exception is None, (vector.id, answer)
            theirs = question.goals(Judged.of_json(question.state, answer.value["assignment"]))
            assert ours <= theirs, (SEED, vector.id, number)
            found.add(theirs)
        answers["several" if len(found) > 1 else "one"] += 1
    assert answers["one"] + answers["several"] >= 50
    assert operation == "legacy_sticky" or answers["several"] >= 5


def _faults_of_the_first_client(state: ApplicationState, given: TaskAssignment) -> int:
    """How many tasks of the first client that has a fault are one: unknown, or active elsewhere too."""
    active: set[TaskId] = set()
    for one in given:
        now = {task.id for task in one.tasks.values() if task.type is AssignedTask.Type.ACTIVE}
        faults = {task for task in one.tasks if task not in state.all_tasks} | now & active
        if faults:
            return len(faults)
        active |= now
    return 0


def _nearly_right(state: ApplicationState, rng: random.Random) -> TaskAssignment:
    """Every task in one place, standbys also of stateless tasks, a client that is missing, unknown or there twice."""
    clients = state.columns.clients.process_ids
    placed: dict[ProcessId, list[AssignedTask]] = {client: [] for client in clients}
    for task in state.all_tasks:
        active, *others = rng.sample(clients, len(clients))
        placed[active].append(AssignedTask(task, AssignedTask.Type.ACTIVE))
        if state.all_tasks[task].is_stateful or rng.random() < 0.05:
            for other in others[: rng.randint(0, 2)]:
                placed[other].append(AssignedTask(task, AssignedTask.Type.STANDBY))
    entries = [KafkaStreamsAssignment.of(client, tasks) for client, tasks in placed.items()]
    if rng.random() < 0.2:
        entries.pop(rng.randrange(len(entries)))
    if rng.random() < 0.2:
        entries.append(KafkaStreamsAssignment.of(rng.choice((a_process_id(2**63 + 5), *clients))))
    rng.shuffle(entries)
    return TaskAssignment(entries)


def test_validation(jvm: Jvm) -> None:
    """The same error; of several in one client's tasks the one that Kafka's hash map has first."""
    seen: Counter[str] = Counter()
    several = 0
    shapes: Sequence[dict[str, Any]] = ({"max_tasks": 6}, {"max_tasks": 40})
    for name, state in itertools.chain.from_iterable(_states(100, **shape) for shape in shapes):
        for given in (
            random_assignment(state, 0),
            random_assignment(state, 1),
            _nearly_right(state, random.Random(name)),
        ):
            ids = [task for one in given for task in one.tasks]
            if len({task.topology_name is None for task in ids}) > 1:
                continue
            answer = jvm.ask("validate", state, given)
            assert answer.exception is None, (name, answer)
            ours, theirs = validate_task_assignment(state, given).value, answer.value["error"]
            assert ours == theirs, (name, placements_of(given))
            seen[ours] += 1
            several += _faults_of_the_first_client(state, given) > 1
    assert set(seen) == {error.value for error in AssignmentError}
    assert several > 0.1 * examples(200)


def test_identity(jvm: Jvm) -> None:
    """Equal; a client that had a task in both roles is refused by both."""
    seen: Counter[str | None] = Counter()
    for name, state in _states(150):
        answer = jvm.ask("identity", state)
        seen[answer.exception] += 1
        try:
            ours = placements_of(identity_assignment(state))
        except StateException:
            assert answer.exception == "IllegalStateException", name
        else:
            assert answer.exception is None, (name, answer)
            assert ours == answer.value["assignment"], name
    assert seen["IllegalStateException"] > 0
    assert seen[None] > 0.5 * examples(150)


def test_the_order_of_a_queue(jvm: Jvm) -> None:
    """`poll_order` is that of `java.util.PriorityQueue`."""
    for number in range(examples(60)):
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
