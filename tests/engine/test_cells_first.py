"""Cells first, then places or owners: the path for items that nearly all cost differently in many cells, against the exact one."""

from __future__ import annotations

import numpy as np
import pytest

from task_assignor.engine.actives.allocation import allocate
from task_assignor.engine.actives.problem import Allocation, ItemGoal, Problem, RackCosts
from task_assignor.engine.items import Pairs
from task_assignor.engine.places import cells_first, transport
from task_assignor.engine.places.min_cost import min_cost_places
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.engine.row_costs import RowCosts


def _allocation(seed: int, items: int, owners: int, racks: int) -> Problem:
    """Every item has two racks where it costs less, and up to two claimants; one rack in three has no owner."""
    draws = np.random.default_rng(seed)
    near = np.argsort(draws.random((items, racks)), axis=1)[:, :2]
    near.sort(axis=1)
    claims = np.unique(draws.integers(0, [items, owners], (items, 2)), axis=0)
    costs = RowCosts(
        np.arange(items),
        np.full(items, 20),
        np.repeat(np.arange(items), 2),
        near.reshape(-1),
        draws.integers(0, 20, 2 * items),
        racks,
    )
    rack_costs = RackCosts(
        costs,
        3,
        draws.integers(0, max(racks * 2 // 3, 1), owners),
    )
    return Problem(
        draws.random(items) < 0.7,
        draws.integers(1, 4, owners),
        Pairs.of(claims[:, 0], claims[:, 1]),
        Pairs.of([], []),
        racks=rack_costs,
    )


def _cost(problem: Problem, found: Allocation) -> int:
    racks, claims, owner = problem.racks, problem.claims.newest(), found.owner.astype(np.int64)
    assert racks is not None
    kept = claims.have(np.arange(len(owner)), owner)
    lost = int(((np.bincount(claims.item, minlength=len(owner)) > 0) & ~kept).sum())
    return racks.move * lost + int(racks.costs.at(racks.costs.row, racks.rack[owner]).sum())


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_kept_and_little_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every owner has floor or ceil of its share; the cost is at most a tenth above the least, and it says so."""
    problem = _allocation(seed, *((400, 20, 6), (300, 7, 9), (50, 60, 4))[seed % 3])
    exact = allocate(problem)
    monkeypatch.setattr(cells_first, "MOST_ENTRIES", 0)
    found = allocate(problem)
    low, high = problem.share
    counts = np.bincount(found.owner, minlength=len(low))

    assert (low <= counts).all()
    assert (counts <= high).all()
    assert exact.exact == frozenset(ItemGoal)
    assert found.exact == {ItemGoal.SHARES}
    assert _cost(problem, exact) <= _cost(problem, found) <= 1.1 * _cost(problem, exact)


def _problem(seed: int, *, tight: bool) -> PlacesProblem:
    """Every item has up to three cells where it costs less, most have an owner; some cells have no place."""
    draws = np.random.default_rng(seed)
    items, places, cells = (int(draws.integers(1, most)) for most in (60, 12, 6))
    rows = int(draws.integers(1, items + 1))
    default = draws.integers(3, 20, rows)
    entries = np.unique(draws.integers(0, [rows, cells], (3 * rows, 2)), axis=0)
    move = draws.integers(0, 4, rows)
    least, most = items // places, -(-items // places)
    slack = 0 if tight else draws.integers(0, 5, places)
    item_row, owner = draws.integers(0, rows, items), draws.integers(-1, places, items)
    cost = draws.integers(0, default[entries[:, 0]] + 1)
    return PlacesProblem(
        costs=RowCosts(item_row, default, entries[:, 0], entries[:, 1], cost, cells),
        item_place=owner,
        move_cost=move,
        stay_cost=draws.integers(0, move + 1),
        place_cell=draws.integers(0, cells, places),
        lower=np.maximum(np.full(places, least) - slack, 0),
        upper=np.full(places, most, dtype=np.int64) + slack,
    )


@pytest.mark.parametrize("tight", [True, False])
def test_says_truly_whether_nothing_is_cheaper(tight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within all bounds; the bound is one; what is called best is as cheap as the flow, with as many moves."""
    best = 0
    for seed in range(150):
        problem = _problem(seed, tight=tight)
        exact = min_cost_places(problem)
        with monkeypatch.context() as patch:
            patch.setattr(cells_first, "MOST_ENTRIES", 0)
            found = min_cost_places(problem)
        counts = np.bincount(found.place, minlength=len(problem.lower))
        cost = int(problem.item_costs(found.place).sum())
        moves, fewest = (
            int(((place != problem.item_place) & (problem.item_place >= 0)).sum())
            for place in (found.place, exact.place)
        )

        assert (problem.lower <= counts).all()
        assert (counts <= problem.upper).all()
        assert found.cost <= exact.cost <= cost
        assert exact.is_best
        assert not found.is_best or (cost, moves) == (exact.cost, fewest) == (found.cost, fewest)
        best += found.is_best
    assert best >= (5 if tight else 20)


def test_the_bound_may_be_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the costs of millions of items are."""
    monkeypatch.setattr(cells_first, "MOST_ENTRIES", 0)
    costs = RowCosts.of_table(np.arange(8), 2**61 - np.eye(8, 2, dtype=np.int64))
    nothing, one = np.zeros(8, dtype=np.int64), np.full(8, -1)
    problem = PlacesProblem(
        costs=costs,
        item_place=one,
        move_cost=nothing,
        place_cell=np.arange(2),
        lower=nothing[:2],
        upper=nothing[:2] + 4,
    )

    assert min_cost_places(problem).cost == 8 * 2**61 - 2


def test_all_is_looked_at_together_where_cells_alone_take_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is as exact as for few items."""
    problem, allocation = _problem(0, tight=True), _allocation(0, 400, 20, 6)
    exact, exactly = min_cost_places(problem), allocate(allocation)
    monkeypatch.setattr(cells_first, "MOST_ENTRIES", 0)
    monkeypatch.setattr(transport, "MOST_STEPS", 0)
    found, allocated = min_cost_places(problem), allocate(allocation)

    assert (found.place.tolist(), found.cost, found.is_best) == (exact.place.tolist(), exact.cost, True)
    assert allocated.owner.tolist() == exactly.owner.tolist()
    assert allocated.exact == frozenset(ItemGoal)
