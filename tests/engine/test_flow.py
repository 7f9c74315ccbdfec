"""The flow solver: garbage is refused before OR-Tools sees it, goals count in order, the order of arcs does not matter."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine import flow
from task_assignor.engine.flow import (
    Arcs,
    CostRangeError,
    FlowError,
    InfeasibleFlowError,
    Network,
    exact_dot,
    solve,
    solve_face,
)
from task_assignor.sdk import StreamsException
from tests.budget import examples


def network(supplies: object, *arcs: tuple[object, ...], goals: int = 1, changes: tuple[int, ...] = ()) -> Network:
    collected = Arcs(goals)
    for arc in arcs:
        collected.add(*arc)  # type: ignore[arg-type]
    return Network(supplies, collected, changes=changes)  # type: ignore[arg-type]


def test_takes_the_cheapest_way() -> None:
    """Two units, one fits through the cheap arc."""
    problem = network([2, 0, -2], (0, 2, 1, 3), (0, 1, 5, 2), (1, 2, 5, 2))

    assert solve(problem).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "bad",
    [0.5, 1.9, "1", None, True, -1, 2**63, 2**64, float("nan"), [[1]], np.float64(1.0), np.array([1.5])],
    ids=repr,
)
@pytest.mark.parametrize("position", range(4))
def test_refuses_what_is_not_a_whole_number(position: int, bad: object) -> None:
    """Floats would be truncated, large numbers wrapped, negative nodes end the interpreter."""
    arc: list[object] = [0, 1, 5, 7]
    arc[position] = bad

    with pytest.raises(FlowError, match=r"must be"):
        solve(network([1, -1], tuple(arc)))


@pytest.mark.parametrize("bad", [[0.5, -0.5], [1.0, -1.0], ["1", "-1"], [None], [2**63, -(2**63)], [[1, -1]], [True]])
def test_refuses_bad_supplies(bad: object) -> None:
    with pytest.raises(FlowError):
        solve(network(bad, (0, 1, 5, 7)))


def test_refuses_arcs_to_nodes_that_do_not_exist() -> None:
    """A node number of 2^32 + 1 would wrap to 1, and one of ten millions make ten million nodes."""
    for node in (2, 10_000_000, 2**32 + 1):
        with pytest.raises(FlowError, match="must be the number of a node, 0 to 1"):
            solve(network([1, -1], (0, node, 5, 7)))


def test_refuses_columns_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="shape mismatch"):
        Arcs().add([0, 1], [1, 2, 3], 1, 1)


def test_says_when_nothing_fits() -> None:
    """Flows of an unsolved problem would end the interpreter when read."""
    with pytest.raises(InfeasibleFlowError):
        solve(network([2, -2], (0, 1, 1, 0)))
    with pytest.raises(InfeasibleFlowError):
        solve(network([1, -1]))
    with pytest.raises(InfeasibleFlowError, match="add up to 1"):
        solve(network([2, -1], (0, 1, 5, 0)))


def test_without_supplies_nothing_flows() -> None:
    assert solve(network([0, 0], (0, 1, 5, 7))).tolist() == [0]
    assert solve(network([])).tolist() == []


def test_refuses_costs_that_would_leave_64_bits() -> None:
    with pytest.raises(CostRangeError, match=r"must be at most \d+"):
        solve(network([1, 0, -1], (0, 1, 1, 2**62), (1, 2, 1, 1)))
    with pytest.raises(FlowError, match="too large for 1 arcs"):
        solve(network([2**63 - 1, 2**62, -(2**63 - 1), -(2**62)], (0, 1, 1, 1)))


def test_common_factors_of_costs_do_not_matter() -> None:
    """2^61 and 2^60 are 2 and 1."""
    problem = network([1, -1], (0, 1, 1, 2**61), (0, 1, 1, 2**60))

    assert solve(problem).tolist() == [0, 1]


GARBAGE = """
from task_assignor.engine.flow import Arcs, FlowError, Network, solve
cases = [
    ([1, -1], [(0, -1, 1, 1)]), ([1, -1], [(-5, 1, 1, 1)]), ([5, -5], [(0, 1, 1, 1)]), ([1, 1], [(0, 1, 1, 1)]),
    ([1, -1], [(0, 2**31, 1, 1)]), ([1, -1], [(0, 1, -1, 1)]), ([1, -1], [(0, 1, 1, -(2**60))]), ([1, -1], []),
    ([2**62, -(2**62)], [(0, 1, 2**62, 2**62)]), ([0, 0], [(0, 1, 2**63 - 1, 2**63 - 1)]),
]
for supplies, arcs in cases:
    collected = Arcs()
    try:
        for arc in arcs:
            collected.add(*arc)
        solve(Network(supplies, collected))
        print("solved")
    except FlowError as error:
        print("refused")
"""


def test_garbage_never_ends_the_interpreter() -> None:
    """The calls that end it in OR-Tools itself, in a process of their own."""
    run = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, timeout=120, check=False)

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["refused"] * 8 + ["solved"] * 2


@st.composite
def bipartite(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int, int, int]]]:
    """A small feasible transport problem with two costs per arc."""
    left, right = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    flow = [[draw(st.integers(0, 2)) for _ in range(right)] for _ in range(left)]
    supplies = [sum(row) for row in flow] + [-sum(row[column] for row in flow) for column in range(right)]
    cost = st.integers(0, 3)
    arcs = [
        (row, left + column, flow[row][column] + draw(st.integers(0, 2)), draw(cost), draw(st.integers(0, 1)))
        for row in range(left)
        for column in range(right)
    ]
    return supplies, arcs


def best_by_hand(supplies: list[int], arcs: list[tuple[int, int, int, int, int]]) -> tuple[int, int]:
    found = []
    for flows in itertools.product(*(range(arc[2] + 1) for arc in arcs)):
        left = list(supplies)
        for amount, (tail, head, *_) in zip(flows, arcs, strict=True):
            left[tail] -= amount
            left[head] += amount
        if not any(left):
            found.append(
                (
                    sum(f * arc[3] for f, arc in zip(flows, arcs, strict=True)),
                    sum(f * arc[4] for f, arc in zip(flows, arcs, strict=True)),
                )
            )
    return min(found)


@given(bipartite(), st.randoms(use_true_random=False), st.booleans())
def test_goals_in_order_equal_brute_force_in_any_order_of_arcs(
    problem: tuple[list[int], list[tuple[int, int, int, int, int]]], random: object, staged: bool
) -> None:
    """Both ways to count goals in order: folded into one cost, and one after the other."""
    supplies, arcs = problem
    arcs = [arc for arc in arcs if np.prod([each[2] + 1 for each in arcs]) <= 3_000 or arc is arcs[0]]
    if len(arcs) < len(problem[1]):
        return
    shuffled = list(arcs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    monkey = pytest.MonkeyPatch()
    if staged:
        monkey.setattr(flow, "_combined", lambda *_: None)
    with monkey.context():
        first = solve(network(supplies, *arcs, goals=2, changes=(2 * len(supplies),)))
        second = solve(network(supplies, *shuffled, goals=2, changes=(2 * len(supplies),)))
    monkey.undo()

    costs = tuple(sum(int(f) * arc[goal] for f, arc in zip(first, arcs, strict=True)) for goal in (3, 4))
    assert best_by_hand(supplies, arcs) == costs
    assert dict(zip(arcs, first.tolist(), strict=True)) == dict(zip(shuffled, second.tolist(), strict=True))


def test_goals_are_taken_in_stages_when_one_cost_would_be_too_large() -> None:
    """A large first cost leaves no room for a second one in the same number."""
    large = 2**50
    problem = network(
        [1, 0, 0, -1],
        (0, 1, 1, large, 1),
        (0, 2, 1, large, 0),
        (1, 3, 1, 1, 1),
        (2, 3, 1, 1, 0),
        goals=2,
        changes=(2**12,),
    )

    assert solve(problem).tolist() == [0, 1, 0, 1]


def test_exact_dot_does_not_wrap() -> None:
    numbers = np.array([2**40, 2**40, 1])

    assert exact_dot(numbers, numbers) == 2 * 2**80 + 1
    assert exact_dot(numbers[:0], numbers[:0]) == 0


def test_errors_belong_to_the_family() -> None:
    assert issubclass(FlowError, StreamsException)


@settings(max_examples=examples(80))
@given(st.data())
def test_other_best_flows_differ_only_where_that_is_said(data: st.DataObject) -> None:
    """All flows through two middle nodes, by brute force: arcs that are not free are the same in all of the best."""
    capacity = data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    costs = [data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6)) for _ in range(2)]
    tails, heads = [0, 0, 1, 1, 2, 2], [1, 2, 2, 3, 1, 3]
    arcs = Arcs(goals=2)
    arcs.add(tails, heads, capacity, *costs)
    total = data.draw(st.integers(1, 4))
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for amounts in itertools.product(*(range(one + 1) for one in capacity)):
        net = [total, 0, 0, -total]
        for tail, head, amount in zip(tails, heads, amounts, strict=True):
            net[tail] -= amount
            net[head] += amount
        if not any(net):
            found.append((tuple(int(np.dot(cost, amounts)) for cost in costs), amounts))
    question = Network([total, 0, 0, -total], arcs, changes=(data.draw(st.sampled_from([12, 2**60])),))
    if not found:
        with pytest.raises(InfeasibleFlowError):
            solve_face(question)
        return
    best_flow, is_free = solve_face(question)
    best = min(cost for cost, _ in found)

    assert tuple(int(np.dot(cost, best_flow)) for cost in costs) == best
    for cost, other in found:
        if cost == best:
            assert (is_free | (best_flow == np.array(other))).all()
