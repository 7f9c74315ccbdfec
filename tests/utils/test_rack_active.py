"""Active tasks and racks on columns: brute force, a dense flow, Kafka's capacities, nothing moves twice."""

from __future__ import annotations

import itertools
import math
import uuid

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.places import transport
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    ConfigException,
    ProcessId,
    StateException,
    TaskId,
)
from task_assignor.utils import (
    AssignmentResult,
    Placement,
    Skipped,
    SkipReason,
    optimize_actives,
    rack_problem,
    rack_rows,
    subtopologies,
)
from task_assignor.utils.rack_costs import small_costs
from tests.budget import examples
from tests.utils.rack_states import COSTS, Shape, cross, owners, seeded_owners, seeded_state, states

Owners = npt.NDArray[np.int32]
STRATEGIES = ("min_traffic", "balance_subtopology")
SMALL = Shape(tasks=5, clients=3)
MEDIUM = Shape(tasks=60, clients=12, racks=5, groups=4)
SEEDS = st.integers(0, 2**32)


def cost_of(state: ApplicationState, before: Owners, after: Owners, costs: tuple[int, int]) -> tuple[int, int]:
    """(cost, moves) from the object face."""
    placed = np.flatnonzero(before >= 0).tolist()
    moves = sum(int(before[task] != after[task]) for task in placed)
    traffic = sum(cross(state, task, int(after[task]), "all") for task in placed)
    return costs[0] * traffic + costs[1] * moves, moves


def shares(state: ApplicationState, owner: Owners) -> dict[tuple[int, int], int]:
    """Kafka's most tasks of each (client, sub-topology)."""
    placed = np.flatnonzero(owner >= 0)
    group = state.columns.tasks.group
    return {
        (client, number): math.ceil(
            int((owner == client).sum()) * 1.0 / len(placed) * int((group[placed] == number).sum())
        )
        for client in range(len(state.columns.clients))
        for number in set(group.tolist())
    }


def keeps(state: ApplicationState, before: Owners, after: Owners, strategy: str) -> bool:
    """Counts per client, and with `balance_subtopology` the shares."""
    clients = len(state.columns.clients)
    placed = before >= 0
    same = bool((np.bincount(before[placed], minlength=clients) == np.bincount(after[placed], minlength=clients)).all())
    if not same or strategy == "min_traffic" or not placed.any():
        return same
    group, most = state.columns.tasks.group, shares(state, before)
    return all(
        int(((after == client) & (group == number) & placed).sum()) <= limit for (client, number), limit in most.items()
    )


@attrs.frozen(eq=False)
class Outcome:
    """What an optimisation says, with the owners and how many they changed."""

    result: AssignmentResult
    owner: Owners
    moves: int
    cost_before: int | None
    cost_after: int | None
    lower_bound: int | None
    skipped: Skipped | None


def optimize(state: ApplicationState, owner: Owners, costs: tuple[int, int], strategy: str, **more: object) -> Outcome:
    configs = attrs.evolve(state.assignment_configs, rack_aware_assignment_strategy=strategy)
    state = ApplicationState(state.columns, configs)
    result = optimize_actives(
        state,
        Placement.of(state.columns, owner),
        traffic_cost=costs[0],
        non_overlap_cost=costs[1],
        **more,  # type: ignore[arg-type]
    )
    assert result.placement is not None
    after = result.placement.active_owner
    moves = int((after != owner).sum())
    return Outcome(result, after, moves, result.cost_before, result.cost_after, result.lower_bound, result.skipped)


@given(st.data(), st.sampled_from(STRATEGIES), st.sampled_from(COSTS))
def test_is_as_cheap_as_brute_force_with_as_few_moves(
    data: st.DataObject, strategy: str, costs: tuple[int, int]
) -> None:
    state = data.draw(states(SMALL))
    owner = owners(data.draw, state)  # type: ignore[arg-type]
    placed = np.flatnonzero(owner >= 0)

    outcome = optimize(state, owner, costs, strategy)

    if not len(placed):
        assert outcome.skipped is not None
        return
    found = []
    for choice in itertools.product(range(len(state.columns.clients)), repeat=len(placed)):
        after = owner.copy()
        after[placed] = choice
        if keeps(state, owner, after, strategy):
            found.append(cost_of(state, owner, after, costs))
    assert min(found) == (outcome.cost_after, outcome.moves) == cost_of(state, owner, outcome.owner, costs)
    assert cost_of(state, owner, owner, costs)[0] == outcome.cost_before
    assert keeps(state, owner, outcome.owner, strategy)
    assert (outcome.owner[owner < 0] == -1).all()
    assert outcome.cost_after == outcome.lower_bound


@settings(max_examples=examples(24))
@given(st.data(), st.sampled_from(STRATEGIES), st.sampled_from(COSTS))
def test_where_nothing_runs_yet_traffic_decides_a_tie(
    data: st.DataObject, strategy: str, costs: tuple[int, int]
) -> None:
    """Least cost, then least traffic, if traffic and moves cost anything; a second run still changes nothing."""
    state = data.draw(states(SMALL))
    owner = owners(data.draw, state)  # type: ignore[arg-type]
    placed = np.flatnonzero(owner >= 0)
    outcome = optimize(state, owner, costs, strategy, ties_stay=False)
    if not len(placed):
        assert outcome.skipped is not None
        return
    found = []
    for choice in itertools.product(range(len(state.columns.clients)), repeat=len(placed)):
        after = owner.copy()
        after[placed] = choice
        if keeps(state, owner, after, strategy):
            cost, moves = cost_of(state, owner, after, costs)
            found.append((cost, -moves if all(costs) else moves))
    assert min(found) == (outcome.cost_after, -outcome.moves if all(costs) else outcome.moves)
    again = optimize(state, outcome.owner, costs, strategy, ties_stay=False)
    assert again.owner.tolist() == outcome.owner.tolist()


LIMITS = {
    "dealt by a flow": {"MOST_SHARES": 0},
    "dealt in turn": {"MOST_SHARES": 0, "MOST_DEALT": 0},
    "dealt anew": {"MOST_SHARES": 0, "MOST_DEALT": 0, "MOST_ROUNDS": 0},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@settings(max_examples=examples(20))
@given(SEEDS, st.sampled_from([(10, 1), (1, 1), (1, 0), (0, 1)]))
def test_what_is_too_large_to_be_exact_says_how_far_it_may_be_off(
    limits: dict[str, int], seed: int, costs: tuple[int, int]
) -> None:
    """The bound is one, the shares are kept, and a second run changes nothing."""
    state = seeded_state(seed, MEDIUM)
    owner = seeded_owners(seed, state)
    exact = optimize(state, owner, costs, "balance_subtopology")
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(subtopologies, name, limit)
        outcome = optimize(state, owner, costs, "balance_subtopology")
        again = optimize(state, outcome.owner, costs, "balance_subtopology")
    assert outcome.lower_bound is not None
    assert outcome.cost_after is not None
    assert exact.cost_after is not None
    assert outcome.lower_bound <= exact.cost_after <= outcome.cost_after
    assert outcome.cost_after - outcome.lower_bound <= costs[1] * outcome.moves
    assert keeps(state, owner, outcome.owner, "balance_subtopology")
    assert (outcome.cost_after, outcome.moves) == cost_of(state, owner, outcome.owner, costs)
    assert again.owner.tolist() == outcome.owner.tolist()


def dense_optimum(state: ApplicationState, owner: Owners, costs: tuple[int, int], strategy: str) -> int:
    """The least cost by a flow with one arc per task and client: nothing is compressed."""
    tasks, clients, group = len(owner), len(state.columns.clients), state.columns.tasks.group
    groups = int(group.max()) + 1
    arcs = Arcs()
    price = np.array([[cross(state, task, client, "all") for client in range(clients)] for task in range(tasks)])
    price = price * costs[0] + costs[1] * (np.arange(clients)[None, :] != owner[:, None])
    place = tasks + np.arange(clients)[None, :] * groups + group[:, None]
    where = arcs.add(np.repeat(np.arange(tasks), clients), place.reshape(-1), 1, price.reshape(-1))
    most = shares(state, owner) if strategy == "balance_subtopology" else {}
    first_client = tasks + clients * groups
    for client in range(clients):
        for number in range(groups):
            arcs.add(tasks + client * groups + number, first_client + client, most.get((client, number), tasks), 0)
    counts = np.bincount(owner, minlength=clients)
    supplies = np.concatenate([np.ones(tasks, np.int64), np.zeros(clients * groups, np.int64), -counts])
    return int((solve(Network(supplies, arcs))[where] * price.reshape(-1)).sum())


@given(SEEDS, st.sampled_from(STRATEGIES), st.sampled_from([(10, 1), (1, 0), (3, 2)]))
def test_is_as_cheap_as_a_dense_flow(seed: int, strategy: str, costs: tuple[int, int]) -> None:
    state = seeded_state(seed, MEDIUM)
    owner = seeded_owners(seed, state)

    outcome = optimize(state, owner, costs, strategy)

    assert dense_optimum(state, owner, costs, strategy) == outcome.cost_after
    assert keeps(state, owner, outcome.owner, strategy)


@given(SEEDS, st.sampled_from(STRATEGIES), st.sampled_from(COSTS))
def test_a_second_run_changes_nothing(seed: int, strategy: str, costs: tuple[int, int]) -> None:
    state = seeded_state(seed, MEDIUM)
    first = optimize(state, seeded_owners(seed, state, nobody=True), costs, strategy)

    second = optimize(state, first.owner, costs, strategy)

    assert first.owner.tolist() == second.owner.tolist()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ties_stay", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("why", ["many racks", "many steps"])
def test_many_racks_are_placed_as_few(
    seed: int, ties_stay: bool, strategy: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a flow of tasks instead of one between the racks: at the same cost, with as many moves."""
    state = seeded_state(seed, MEDIUM)
    owner = seeded_owners(seed, state, nobody=True)
    costs = COSTS[seed % len(COSTS)]
    few = optimize(state, owner, costs, strategy, ties_stay=ties_stay)
    if why == "many racks":
        monkeypatch.setattr(subtopologies, "are_few_places", lambda _problem: False)
    else:
        monkeypatch.setattr(transport, "MOST_STEPS", 0)
    many = optimize(state, owner, costs, strategy, ties_stay=ties_stay)

    assert cost_of(state, owner, few.owner, costs) == cost_of(state, owner, many.owner, costs)
    assert few.moves == many.moves
    assert keeps(state, owner, many.owner, strategy)


@given(SEEDS)
def test_without_traffic_cost_min_traffic_changes_nothing(seed: int) -> None:
    state = seeded_state(seed, MEDIUM)
    owner = seeded_owners(seed, state, nobody=True)

    assert owner.tolist() == optimize(state, owner, (0, 5), "min_traffic").owner.tolist()
    assert owner.tolist() == optimize(state, owner, (0, 0), "min_traffic").owner.tolist()


@given(SEEDS, st.sampled_from(STRATEGIES))
def test_only_selected_tasks_move_and_count(seed: int, strategy: str) -> None:
    state = seeded_state(seed, MEDIUM)
    owner = seeded_owners(seed, state, nobody=True)
    selected = np.flatnonzero(np.random.default_rng(seed).random(len(owner)) < 0.6)

    outcome = optimize(state, owner, (10, 1), strategy, tasks=selected)

    others = np.setdiff1d(np.arange(len(owner)), selected)
    assert owner[others].tolist() == outcome.owner[others].tolist()
    counts = [np.bincount(each[selected] + 1, minlength=20).tolist() for each in (owner, outcome.owner)]
    assert counts[0] == counts[1]


def test_kafka_rounds_shares_in_doubles() -> None:
    """14 of 50 tasks, 25 of them in the sub-topology: 14 * 1.0 / 50 * 25 is a little over 7 in doubles, so 8."""
    assert math.ceil(14 * 1.0 / 50 * 25) == 8
    assert int(np.ceil((np.array([14]) * 1.0 / 50)[:, None] * np.array([25])[None, :])[0, 0]) == 8


whole = st.integers(0, 2**31 - 1) | st.integers(0, 12) | st.sampled_from([2**31 - 1, 2**31 - 2, 2**30 + 7])


@given(whole, whole, st.integers(1, 12), st.integers(1, 12))
def test_small_costs_order_changes_as_large_ones_do(traffic: int, move: int, crossings: int, moves: int) -> None:
    small = small_costs(traffic, move, crossings, moves)

    for x in range(-crossings, crossings + 1):
        for m in range(-moves, moves + 1):
            assert np.sign(traffic * x + move * m) == np.sign(small[0] * x + small[1] * m)
    assert small[0] <= 2 * moves
    assert small[1] <= 2 * crossings


@pytest.mark.parametrize("bad", [-1, 1.0, 0.5, True, "1", 2**31, 2**63])
def test_bad_costs_give_one_clear_error(bad: object) -> None:
    state = _plain_state()
    with pytest.raises(ConfigException, match="must be an int from 0 to 2147483647"):
        optimize(state, np.zeros(2, np.int32), (bad, 1), "min_traffic")  # type: ignore[arg-type]
    with pytest.raises(ConfigException, match="must be an int from 0 to 2147483647"):
        optimize(state, np.zeros(2, np.int32), (1, bad), "min_traffic")  # type: ignore[arg-type]


def _plain_state() -> ApplicationState:
    builder = ApplicationStateBuilder().add_task(TaskId(0, 0)).add_task(TaskId(0, 1))
    for number in range(2):
        builder.add_client(ProcessId(uuid.UUID(int=number)), rack_id=f"rack-{number}")
    return builder.build()


def test_bad_numbers_give_one_clear_error() -> None:
    state = _plain_state()
    for owner in (np.array([0, 2]), np.array([0, -2]), np.array([0])):
        with pytest.raises(StateException, match="active_owner"):
            optimize(state, owner.astype(np.int32), (1, 1), "min_traffic")
    for selected in (np.array([2]), np.array([-1]), np.array([0.5]), np.array([0, None])):
        with pytest.raises(StateException, match="must be task numbers from 0 to 1"):
            optimize(state, np.zeros(2, np.int32), (1, 1), "min_traffic", tasks=selected)


def test_a_misspelt_word_for_partitions_is_not_taken_for_all() -> None:
    columns = _plain_state().columns
    for ask in (
        lambda: rack_problem(columns, partitions="sources"),  # type: ignore[arg-type]
        lambda: rack_rows(columns, np.arange(2), "sources"),  # type: ignore[arg-type]
    ):
        with pytest.raises(StateException, match=r"partitions \('sources'\) must be 'source', 'changelog' or 'all'"):
            ask()


def test_says_why_nothing_was_done() -> None:
    state, owner = _plain_state(), np.zeros(2, np.int32)

    for costs, strategy, reason in (
        ((1, 1), "none", SkipReason.STRATEGY_NONE),
        ((None, 1), "min_traffic", SkipReason.COST_MISSING),
        ((1, None), "min_traffic", SkipReason.COST_MISSING),
    ):
        outcome = optimize(state, owner, costs, strategy)  # type: ignore[arg-type]
        assert outcome.skipped is not None
        assert reason is outcome.skipped.reason
        assert owner.tolist() == outcome.owner.tolist()
    nobody = optimize(state, np.full(2, -1, np.int32), (1, 1), "min_traffic")
    assert nobody.skipped is not None
    assert SkipReason.NO_TASKS is nobody.skipped.reason
