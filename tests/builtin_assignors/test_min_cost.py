"""The minimum cost assignor: brute force, capacities, exceptions, pinning, weights, settings, and errors that say which."""

from __future__ import annotations

import itertools
import subprocess
import sys
import uuid
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.builtin_assignors import (
    CostModel,
    MinCostResult,
    MinCostTaskAssignor,
    RackTrafficCostModel,
)
from task_assignor.engine import flow
from task_assignor.engine.places import min_cost as places
from task_assignor.engine.places import weighted as weights_module
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    ConfigException,
    ProcessId,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
    assignment_to_json,
)
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.settings import StreamsConfig
from task_assignor.utils import ClientCost, CostModelException, PlacementCosts, placement_costs
from task_assignor.validation import validate_task_assignment

CLIENTS = [ProcessId(uuid.UUID(int=number + 1)) for number in range(4)]


@attrs.frozen
class Given(CostModel):
    """The costs that a test wants."""

    make: Callable[[ApplicationState], PlacementCosts]

    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        return self.make(application_state)


def solve(state: ApplicationState, **costs: Any) -> MinCostResult:
    class Assignor(MinCostTaskAssignor):
        def cost_model(self, application_state: ApplicationState) -> CostModel:
            return Given(lambda state: PlacementCosts(**costs))

    return Assignor().solve(state)


def plain_state(tasks: int, clients: int, racks: int = 2, threads: tuple[int, ...] = ()) -> ApplicationState:
    builder = ApplicationStateBuilder()
    for number in range(tasks):
        builder.add_task(TaskId(0, number))
    for number in range(clients):
        builder.add_client(
            CLIENTS[number],
            rack_id=f"rack-{number % racks}",
            num_processing_threads=threads[number] if threads else 1,
        )
    return builder.build()


def owners_of(result: MinCostResult) -> list[int]:
    """Client number of each task's owner."""
    found = {
        task.partition: CLIENTS.index(each.process_id)
        for each in result.assignment
        for task, assigned in each.tasks.items()
        if assigned.type is AssignedTask.Type.ACTIVE
    }
    return [found[task] for task in sorted(found)]


@attrs.frozen
class Case:
    """A small problem in plain lists."""

    state: ApplicationState
    costs: dict[str, Any]

    def cost(self, choice: tuple[int, ...]) -> tuple[int, int] | None:
        """(cost, moves) of a placement; None: not allowed."""
        given, load, total, moves = self.costs, [0] * len(self.state.columns.clients), 0, 0
        special = {(each.task_class, CLIENTS.index(each.process_id)): each.cost for each in given["exceptions"]}
        for task, client in enumerate(choice):
            kind = given["task_class"][task]
            load[client] += given["weight"][task] if given["weight"] else 1
            if given["pinned"].get(TaskId(0, task), CLIENTS[client]) != CLIENTS[client]:
                return None
            rack = int(self.state.columns.clients.rack[client])
            at = special.get((kind, client), given["rack"][kind][rack] + given["client"][client])
            if at is None:
                return None
            owner = given["owner"][task]
            total += at + (0 if owner < 0 else given["stay" if owner == client else "move"][kind])
            moves += 0 <= owner != client
        fits = all(low <= x <= high for low, x, high in zip(given["lower"], load, given["upper"], strict=True))
        return (total, moves) if fits else None

    def best(self) -> tuple[int, int] | None:
        clients = range(len(self.state.columns.clients))
        found = map(self.cost, itertools.product(clients, repeat=len(self.state.columns.tasks)))
        return min((each for each in found if each is not None), default=None)


@st.composite
def cases(draw: st.DrawFn, weights: bool) -> Case:
    tasks, clients, racks, kinds = (draw(st.integers(1, most)) for most in (5, 3, 2, 3))
    state = plain_state(tasks, clients, racks)

    def numbers(count: int, low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    used = len(state.columns.clients.racks)
    stay = numbers(kinds, 0, 2)
    special = draw(
        st.dictionaries(
            st.tuples(st.integers(0, kinds - 1), st.integers(0, clients - 1)), st.sampled_from([None, 0, 3, 50])
        )
    )
    lower = numbers(clients, 0, 3 if weights else 1)
    room = numbers(clients, 0, 12) if weights else numbers(clients, 0, 3)
    pinned = draw(st.dictionaries(st.integers(0, tasks - 1), st.integers(0, clients - 1), max_size=1))
    return Case(
        state,
        {
            "task_class": numbers(tasks, 0, kinds - 1),
            "rack": [numbers(used + 1, 0, 9) for _ in range(kinds)],
            "client": numbers(clients, 0, 5),
            "stay": stay,
            "move": [low + more for low, more in zip(stay, numbers(kinds, 0, 3), strict=True)],
            "exceptions": [ClientCost(kind, CLIENTS[client], cost) for (kind, client), cost in special.items()],
            "owner": numbers(tasks, -1, clients - 1),
            "lower": lower,
            "upper": [low + more for low, more in zip(lower, room, strict=True)],
            "weight": numbers(tasks, 1, 5) if weights else None,
            "pinned": {TaskId(0, task): CLIENTS[client] for task, client in pinned.items()},
        },
    )


@given(cases(weights=False))
def test_finds_the_optimum_with_the_fewest_moves_or_says_that_nothing_fits(case: Case) -> None:
    best = case.best()
    if best is None:
        with pytest.raises(CostModelException):
            solve(case.state, **case.costs)
        return

    result = solve(case.state, **case.costs)

    quality = result.quality
    assert best == (quality.cost, quality.moves) == case.cost(tuple(owners_of(result)))
    assert quality.is_proven_optimal
    assert quality.gap == 0
    assert AssignmentError.NONE is validate_task_assignment(case.state, result.assignment)


@given(cases(weights=True))
def test_with_weights_there_is_a_result_a_bound_and_a_gap_but_no_claim_of_optimality(case: Case) -> None:
    best = case.best()
    if best is None:
        with pytest.raises(CostModelException):
            solve(case.state, **case.costs)
        return

    result = solve(case.state, **case.costs)
    quality = result.quality

    assert case.cost(tuple(owners_of(result))) == (quality.cost, quality.moves)
    assert quality.lower_bound <= best[0] <= quality.cost
    assert not quality.is_proven_optimal


def test_capacities_without_any_slack_are_met() -> None:
    """Four clients, filled to the brim: what no repair by moves and swaps finds."""
    weight = [27, 16, 20, 92, 2, 64, 15, 4, 65, 6, 69, 20]
    result = solve(plain_state(12, 4), task_class=[0] * 12, weight=weight, lower=[100] * 4, upper=[100] * 4)
    load = np.bincount(owners_of(result), weights=weight, minlength=4)

    assert load.tolist() == [100.0] * 4


@given(st.integers(0, 2**32))
def test_weights_are_spread_within_the_capacities(seed: int) -> None:
    """By default there is always a placement: the share and one more task of the largest weight."""
    rng = np.random.default_rng(seed)
    state = plain_state(30, 4, threads=(1, 2, 3, 1))
    weight = rng.integers(1, 40, 30)
    result = solve(state, task_class=np.arange(30) % 3, rack=rng.integers(0, 9, (3, 3)), weight=weight, move=[4, 4, 4])

    load = np.bincount(owners_of(result), weights=weight, minlength=4)
    share = np.ceil(weight.sum() * np.array([1, 2, 3, 1]) / 7) + weight.max()
    assert (load <= share).all()
    assert result.quality.gap >= 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("tasks", "slack"), [(40, 30), (20, 2)])
def test_with_weights_no_move_and_no_swap_within_the_capacities_pays(seed: int, tasks: int, slack: int) -> None:
    """Tasks with costs of their own on four clients; rounded and repaired alone they would cost more."""
    rng = np.random.default_rng(seed)
    weight, cost = rng.integers(5, 40, tasks), rng.integers(0, 30, (tasks, 5))
    share = int(weight.sum()) // 4
    lower, upper = share - slack, share + slack
    state = plain_state(tasks, 4, racks=4)
    result = solve(state, task_class=np.arange(tasks), rack=cost, weight=weight, lower=[lower] * 4, upper=[upper] * 4)
    place = np.array(owners_of(result))
    load = np.bincount(place, weights=weight, minlength=4).astype(np.int64)
    assert load.min() >= lower
    assert load.max() <= upper

    for task, ours in enumerate(place.tolist()):
        for client in set(range(4)) - {ours}:
            fits = load[ours] - weight[task] >= lower and load[client] + weight[task] <= upper
            assert not fits or cost[task, client] >= cost[task, ours]
        for other, theirs in enumerate(place.tolist()):
            more = weight[other] - weight[task]
            fits = lower <= load[ours] + more <= upper and lower <= load[theirs] - more <= upper
            now = cost[task, ours] + cost[other, theirs]
            assert not fits or cost[task, theirs] + cost[other, ours] >= now


def real_state(**configs: Any) -> ApplicationState:
    """Four tasks with replicas in one rack each, previous owners all in the wrong one."""
    settings = {"rack_aware_traffic_cost": 5, "rack_aware_non_overlap_cost": 1, "num_standby_replicas": 1, **configs}
    builder = ApplicationStateBuilder(AssignmentConfigs(**settings))
    for number in range(4):
        changelog = TaskTopicPartition(TopicPartition("changelog", number), False, True, {f"rack-{number % 2}"})
        builder.add_task(TaskId(0, number), is_stateful=True, topic_partitions=[changelog], end_offset_sum=0)
    for number in range(2):
        previous = [TaskId(0, task) for task in range(4) if task % 2 != number]
        builder.add_client(CLIENTS[number], rack_id=f"rack-{number}", previous_active_tasks=previous)
    return builder.build()


def test_the_default_model_weighs_traffic_against_moves() -> None:
    near = MinCostTaskAssignor().solve(real_state())
    sticky = MinCostTaskAssignor().solve(real_state(rack_aware_non_overlap_cost=6))

    assert owners_of(near) == [0, 1, 0, 1]
    assert (near.quality.cost, near.quality.moves) == (4, 4)
    assert owners_of(sticky) == [1, 0, 1, 0]
    assert (sticky.quality.cost, sticky.quality.moves) == (20, 0)


def test_standbys_are_placed_by_the_default_rule() -> None:
    result = MinCostTaskAssignor().solve(real_state())
    lonely = MinCostTaskAssignor().solve(real_state(num_standby_replicas=2))

    assert AssignmentError.NONE is validate_task_assignment(real_state(), result.assignment)
    assert {2} == {
        sum(each.type is AssignedTask.Type.STANDBY for each in one.tasks.values()) for one in result.assignment
    }
    assert {TaskId(0, number): 1 for number in range(4)} == dict(lonely.shortages)


def test_without_racks_the_default_model_is_sticky() -> None:
    builder = ApplicationStateBuilder()
    for number in range(4):
        builder.add_task(TaskId(0, number))
    builder.add_client(CLIENTS[0], previous_active_tasks=[TaskId(0, number) for number in range(4)])
    builder.add_client(CLIENTS[1])
    result = MinCostTaskAssignor().solve(builder.build())

    assert owners_of(result) == [0, 0, 1, 1]
    assert result.quality.moves == 2


def test_the_newest_generation_owns() -> None:
    builder = ApplicationStateBuilder().add_task(TaskId(0, 0))
    for number, generation in enumerate((3, 7, 5)):
        builder.add_client(CLIENTS[number], previous_active_tasks=[TaskId(0, 0)], generation=generation)

    assert owners_of(MinCostTaskAssignor().solve(builder.build())) == [1]


def test_is_deterministic_whatever_the_order_of_the_input() -> None:
    state = real_state()
    builder = ApplicationStateBuilder(state.assignment_configs)
    for info in reversed(list(state.all_tasks.values())):
        builder.add_task_info(info, end_offset_sum=0)
    for each in reversed(list(state.kafka_streams_states(False).values())):
        builder.add_client(
            each.process_id, rack_id=each.rack_id, previous_active_tasks=reversed(each.previous_active_tasks)
        )

    assert list(MinCostTaskAssignor().assign(state)) == list(MinCostTaskAssignor().assign(builder.build()))


def test_no_tasks_and_no_clients() -> None:
    assert owners_of(MinCostTaskAssignor().solve(plain_state(0, 2))) == []
    assert owners_of(MinCostTaskAssignor().solve(plain_state(0, 0))) == []


class Cheap(CostModel):
    """A model that takes a setting."""

    def __init__(self) -> None:
        self.client = 0

    def configure(self, configs: Any) -> None:
        self.client = int(configs["cheap.client"])

    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        clients = len(application_state.columns.clients)
        return PlacementCosts(
            task_class=np.zeros(len(application_state.columns.tasks), int),
            client=[int(number != self.client) for number in range(clients)],
            upper=[10] * clients,
            lower=[0] * clients,
        )


class WithoutPrice(RackTrafficCostModel):
    """It has what a model must have, but not what its author wants of those that inherit from it."""

    @abstractmethod
    def price(self) -> int: ...


class WithArguments(RackTrafficCostModel):
    """Cannot be made without arguments."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


def test_the_model_comes_from_the_settings() -> None:
    settings = {
        "application.id": "app",
        "task.assignor.class": "min-cost",
        "min.cost.model": Cheap,
        "cheap.client": "1",
    }

    assignment = StreamsConfig(settings).task_assignor().assign(plain_state(3, 2))

    assert [len(each.tasks) for each in assignment] == [0, 3]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (WithArguments, "made without arguments, but it needs weight"),
        (CostModel, r"a class that defines costs\(\)"),
        (WithoutPrice, r"a class that defines price\(\)"),
        (int, "a subclass of task_assignor.builtin_assignors.CostModel"),
        ("no.such.Model", "There is no module"),
    ],
)
def test_a_bad_model_is_found_when_the_settings_are_built(model: object, message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        StreamsConfig({"application.id": "app", "task.assignor.class": "min-cost", "min.cost.model": model})


def test_what_a_model_does_not_take_is_found_when_the_settings_are_built() -> None:
    """It was found in the first rebalance, and in each one after it."""
    settings = {"task.assignor.class": "min-cost", "min.cost.model": Cheap, "cheap.client": "first"}
    with pytest.raises(ConfigException, match=r"failed with ValueError: .*'first'"):
        StreamsConfig(settings)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"upper": [1, 1], "lower": [0, 0]}, "leave room for 2, but the number of tasks to place is 4"),
        ({"upper": [9, 9], "lower": [3, 3]}, "must get at least 6, but the number of tasks to place is 4"),
        ({"lower": [2, 0], "upper": [1, 9]}, "lower capacity .2. of client .* must not be above its upper one .1."),
        ({"exceptions": [ClientCost(0, CLIENTS[0], None), ClientCost(0, CLIENTS[1], None)]}, "4 tasks do not fit, 4 of them of class 0 .such as 0_0.: the 0 clients"),
        ({"exceptions": [ClientCost(0, CLIENTS[0], None)]}, "2 tasks do not fit, 2 of them of class 0 .*have room for 2 in all"),
        ({"exceptions": [ClientCost(0, CLIENTS[0], None)], "upper": [9, 9], "lower": [1, 0]}, "lower .* met: client .*-000000000001 must get 1, but there are tasks for 0"),
        ({"exceptions": [ClientCost(0, CLIENTS[1], None)], "upper": [4, 4], "lower": [3, 1]}, "met: client .*-000000000002 must get 1"),
        ({"exceptions": [ClientCost(0, CLIENTS[1], None)], "upper": [4, 4], "lower": [3, 1], "weight": [1] * 4}, "met: client .*-000000000002 must get 1, but there is weight for 0"),
        ({"exceptions": 5}, r"exceptions \(5\) must be a list of ClientCost"),
        ({"exceptions": [ClientCost(1, CLIENTS[0], 1)], "stay": [0]}, "exception for class 1, but the classes are 0 to 0"),
        ({"exceptions": [ClientCost(-1, CLIENTS[0], 1)]}, "exception for class -1, but the classes are 0 to 0"),
        ({"exceptions": [ClientCost(0, CLIENTS[3], 1)]}, f"exception for client {CLIENTS[3]}, but no such client"),
        ({"exceptions": [ClientCost(0, CLIENTS[0], 1), ClientCost(0, CLIENTS[0], 2)]}, "two exceptions for class 0"),
        ({"exceptions": [ClientCost(0, CLIENTS[0], -1)]}, "must be an int from 0"),
        ({"exceptions": [ClientCost(0, CLIENTS[0], 0.5)]}, "must be an int from 0"),
        ({"exceptions": [1]}, "must be a ClientCost"),
        ({"pinned": [-1, 2, -1, -1]}, r"pinned tasks \(\[-1, 2, -1, -1\]\) must be a mapping of TaskId to ProcessId"),
        ({"pinned": {0: CLIENTS[0]}}, "a mapping of TaskId to ProcessId, but one is 0: ProcessId"),
        ({"pinned": {TaskId(0, 0): 1}}, r"a mapping of TaskId to ProcessId, but one is TaskId\(0_0\): 1"),
        ({"pinned": {TaskId(0, 9): CLIENTS[0]}}, "Task 0_9 is pinned .* no such task"),
        ({"pinned": {TaskId(0, 0): CLIENTS[3]}}, "Task 0_0 is pinned .* no such client"),
        ({"pinned": {TaskId(0, number): CLIENTS[0] for number in range(4)}}, "pinned to client .* need 4, but its capacity is 2"),
        ({"pinned": {TaskId(0, 0): CLIENTS[0]}, "exceptions": [ClientCost(0, CLIENTS[0], None)]}, "0_0 is pinned to client .* must not run"),
        ({"stay": [2], "move": [1]}, "Staying .2. must not cost more than moving .1., but for class 0"),
        ({"rack": [[1, 2]]}, r"rack costs must have the shape \(1, 3\)"),
        ({"rack": [1, 2, 3]}, "must be a table"),
        ({"rack": [[1, 2, 3], [1]]}, "must be a table of classes and racks, all rows of one length"),
        ({"client": [1, 2, 3]}, r"client costs must have the shape \(2,\)"),
        ({"client": [0.5, 1]}, "client costs must be whole numbers, but one is 0.5"),
        ({"client": [-1, 1]}, "client costs must be whole numbers from 0"),
        ({"client": [2**63, 1]}, "client costs must be whole numbers from 0"),
        ({"move": [2**41]}, "costs of moving must be whole numbers from 0"),
        ({"owner": [0, 0, 0, 2]}, "owner .2. must be a client number below 2"),
        ({"owner": [0]}, r"owner must have the shape \(4,\)"),
        ({"weight": [1, 1, 1, 0]}, "weights must be whole numbers from 1"),
        ({"weight": [1, 1, 1]}, r"weight must have the shape \(4,\)"),
        ({"weight": [3, 3, 3, 3], "upper": [5, 8]}, "No placement of the weights .* exists: client"),
        ({"task_class": [0, 0, 0]}, r"task_class must have the shape \(4,\)"),
        ({"task_class": [0, 0, 0, "a"]}, "task classes must be whole numbers, but one is 'a'"),
        ({"task_class": [0, np.int64(0), 0, "a" * 500]}, r"but one is 'a+\.\.\.a+'\.$"),
        ({"task_class": [0, np.int64(0), 0, 2**63]}, "task classes must be whole numbers from 0"),
    ],
)  # fmt: skip
def test_bad_costs_and_too_little_room_give_one_error_that_says_which(costs: dict[str, Any], message: str) -> None:
    with pytest.raises(CostModelException, match=message):
        solve(plain_state(4, 2), **{"task_class": [0] * 4, **costs})


def test_an_exception_for_a_class_without_tasks_changes_nothing() -> None:
    """A cost model may name a sub-topology that has no tasks now; its number may be any."""
    exceptions = [ClientCost(kind, CLIENTS[0], None) for kind in (1, 2**40)]
    plain, excepted = (solve(plain_state(4, 2), task_class=[0] * 4, exceptions=given) for given in ([], exceptions))
    assert assignment_to_json(plain.assignment) == assignment_to_json(excepted.assignment)


def test_classes_may_have_any_numbers_and_take_no_memory() -> None:
    exceptions = [ClientCost(np.int64(2**31), CLIENTS[0], None), ClientCost(7, CLIENTS[1], np.int64(3))]
    kinds = [5, 2**31, 7, 2**31]
    found = solve(plain_state(4, 2), task_class=kinds, exceptions=exceptions)
    dense = [ClientCost(2, CLIENTS[0], None), ClientCost(1, CLIENTS[1], 3)]
    same = solve(plain_state(4, 2), task_class=[0, 2, 1, 2], exceptions=dense)
    assert found.assignment == same.assignment
    assert found.quality == same.quality
    with pytest.raises(CostModelException, match=f"0_1 is pinned .* its class {2**31} must not run"):
        solve(plain_state(4, 2), task_class=kinds, exceptions=exceptions, pinned={TaskId(0, 1): CLIENTS[0]})
    with pytest.raises(CostModelException, match=f"tasks do not fit, 1 of them of class {2**31}"):
        solve(plain_state(4, 2), task_class=kinds, exceptions=exceptions, upper=[4, 1], lower=[0, 0])


def test_too_many_exceptions_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions = [ClientCost(0, client, None) for client in CLIENTS[:2]]
    monkeypatch.setattr(placement_costs, "MOST_EXCEPTIONS", 1)
    with pytest.raises(CostModelException, match="2 exceptions for pairs of class and client, more than 1"):
        solve(plain_state(4, 3), task_class=[0] * 4, exceptions=exceptions)
    monkeypatch.undo()

    monkeypatch.setattr(places, "MOST_ARCS", 3)
    with pytest.raises(CostModelException, match=r"1 classes of tasks have dearer or forbidden clients"):
        solve(plain_state(4, 3), task_class=[0] * 4, exceptions=exceptions)


@pytest.mark.parametrize("weight", [None, [1, 2, 3, 4]])
def test_costs_too_large_to_be_exact_are_an_error(monkeypatch: pytest.MonkeyPatch, weight: list[int] | None) -> None:
    """Only millions of classes with costs of billions come that far; here the limit is brought down instead."""
    monkeypatch.setattr(flow, "_largest_cost", lambda nodes, longest_path: 10)

    with pytest.raises(CostModelException, match=r"largest cost .\d+. is too large to be solved exactly"):
        solve(plain_state(4, 2), task_class=[0] * 4, client=[131, 77], weight=weight, upper=[9, 9], lower=[0, 0])


def test_a_model_that_gives_something_else_is_an_error() -> None:
    class Wrong(MinCostTaskAssignor):
        def cost_model(self, application_state: ApplicationState) -> CostModel:
            return Given(lambda state: {"task_class": []})  # type: ignore[arg-type, return-value]

    with pytest.raises(CostModelException, match="must give PlacementCosts"):
        Wrong().assign(plain_state(1, 1))


def test_importing_it_does_not_load_the_solver() -> None:
    program = "import sys, task_assignor.builtin_assignors.min_cost; print('ortools' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout.strip() == "False"


def test_a_cost_model_is_an_object_of_one() -> None:
    class Nothing(MinCostTaskAssignor):
        def cost_model(self, application_state: ApplicationState) -> CostModel:
            return None  # type: ignore[return-value]

    with pytest.raises(
        CostModelException, match=r"cost_model\(\) must return an object of a CostModel, but returned None"
    ):
        Nothing().assign(plain_state(1, 1))


def test_improving_ends_when_the_time_for_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is repaired is within the capacities, and has the same bound; it only costs more."""
    found = []
    for steps in (weights_module.MOST_STEPS, 0):
        monkeypatch.setattr(weights_module, "MOST_STEPS", steps)
        for seed in range(5):
            rng = np.random.default_rng(seed)
            weight, cost = rng.integers(5, 40, 20), rng.integers(0, 30, (20, 5))
            share = int(weight.sum()) // 4 + 2
            result = solve(
                plain_state(20, 4, racks=4), task_class=np.arange(20), rack=cost, weight=weight, upper=[share] * 4
            )
            assert np.bincount(owners_of(result), weights=weight, minlength=4).max() <= share
            found.append(result.quality)
    improved, repaired = found[:5], found[5:]
    assert [each.lower_bound for each in improved] == [each.lower_bound for each in repaired]
    assert sum(each.cost for each in improved) < sum(each.cost for each in repaired)


def test_many_small_tasks_fill_a_lower_capacity_in_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound splits a heavy task among all clients, so that most of the others are missing where they must be."""
    passes, cost_of = [], PlacesProblem.costs_of

    def counted(problem: PlacesProblem, items: Int64Array, places: Int64Array) -> Int64Array:
        passes.append(len(items))
        return cost_of(problem, items, places)

    monkeypatch.setattr(PlacesProblem, "costs_of", counted)
    weight = np.array([2**20, *[1] * 399])
    result = solve(
        plain_state(400, 4), task_class=[0] * 400, weight=weight, lower=[399, 0, 0, 0], upper=[400, *[2**30] * 3]
    )

    assert np.bincount(owners_of(result), weights=weight, minlength=4).max() == 2**20
    assert owners_of(result)[1:] == [0] * 399
    assert len(passes) < 20
