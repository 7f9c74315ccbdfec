"""Long chains of claims and state end quickly; the greatest flow refuses what is out of range."""

from __future__ import annotations

import numpy as np
import pytest

from task_assignor.engine.actives.allocation import allocate
from task_assignor.engine.actives.problem import Problem
from task_assignor.engine.flow import FlowError, most_flow
from task_assignor.engine.items import Pairs


def _three_neighbours(items: int, owners: int) -> tuple[np.ndarray, np.ndarray]:
    """Three neighbouring owners for each item, so that a perfect placement exists."""
    first = np.arange(items) * owners // items - np.random.default_rng(1).integers(0, 3, items)
    return np.repeat(np.arange(items), 3), ((first[:, None] + np.arange(3)) % owners).reshape(-1)


def test_long_chains_of_claims_and_of_state_are_resolved_quickly() -> None:
    """Three neighbouring owners for each of 100 000 items: one augmenting path after the other would take minutes."""
    items, owners = 100_000, 1_000
    weight, kinds, none = np.ones(owners, dtype=np.int64), np.ones(items, dtype=np.bool_), Pairs.of([], [])
    pairs = Pairs.of(*_three_neighbours(items, owners))
    had = np.zeros((items, owners), dtype=np.bool_)
    had[pairs.item, pairs.owner] = True

    for problem in (Problem(kinds, weight, pairs, none), Problem(kinds, weight, none, pairs)):
        owner = allocate(problem).owner
        assert np.bincount(owner).tolist() == [items // owners] * owners
        assert had[np.arange(items), owner].all()


@pytest.mark.parametrize("state", [1, 2])
def test_state_of_everything_on_few_owners_is_placed_quickly(state: int) -> None:
    """Only as many items as these owners take can be with their state; the others are not tried in vain, one by one."""
    items, owners = 200_000, 1_000
    pairs = Pairs.of(np.tile(np.arange(items), state), np.repeat(np.arange(state), items))
    problem = Problem(np.ones(items, dtype=np.bool_), np.ones(owners, dtype=np.int64), Pairs.of([], []), pairs)
    owner = allocate(problem).owner

    assert int((owner < state).sum()) == state * items // owners


def test_a_flow_out_of_range_is_refused() -> None:
    one = np.array([1])
    with pytest.raises(FlowError, match="spare capacities"):
        most_flow(np.array([0]), np.array([1]), one, one + 1, 0, 1)
    with pytest.raises(FlowError, match="more than the solver takes"):
        most_flow(np.array([0]), np.array([1]), np.array([2**62]), one, 0, 1)


def test_without_a_way_the_flow_stays() -> None:
    flow = most_flow(np.array([0, 1]), np.array([1, 3]), np.array([1, 1]), np.array([0, 0]), 0, 2)

    assert flow.tolist() == [0, 0]
