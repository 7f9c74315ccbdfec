"""Cells first, then places: the path for items that nearly all cost differently in many cells, against the flow of all."""

from __future__ import annotations

import numpy as np
import pytest

from task_assignor.engine import places_by_cells
from task_assignor.engine.owners_problem import OwnersProblem
from task_assignor.engine.places import min_cost_places


def _problem(seed: int, *, tight: bool) -> OwnersProblem:
    """Every item has up to three cells where it costs less, most have an owner; some cells have no place."""
    draws = np.random.default_rng(seed)
    items, places, cells = (int(draws.integers(1, most)) for most in (60, 12, 6))
    rows = int(draws.integers(1, items + 1))
    default = draws.integers(3, 20, rows)
    entries = np.unique(draws.integers(0, [rows, cells], (3 * rows, 2)), axis=0)
    move = draws.integers(0, 4, rows)
    least, most = items // places, -(-items // places)
    slack = 0 if tight else draws.integers(0, 5, places)
    return OwnersProblem(
        item_row=draws.integers(0, rows, items),
        item_owner=draws.integers(-1, places, items),
        default_cost=default,
        row_hub=np.zeros(rows),
        entry_row=entries[:, 0],
        entry_cell=entries[:, 1],
        entry_cost=draws.integers(0, default[entries[:, 0]] + 1),
        move_cost=move,
        stay_cost=draws.integers(0, move + 1),
        cell_hub=np.zeros(cells),
        place_cell=draws.integers(0, cells, places),
        lower=np.maximum(np.full(places, least) - slack, 0),
        upper=np.full(places, most) + slack,
    )


@pytest.mark.parametrize("tight", [True, False])
def test_says_truly_whether_nothing_is_cheaper(tight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within all bounds; the bound is one; what is called best is as cheap as the flow, with as many moves."""
    best = 0
    for seed in range(150):
        problem = _problem(seed, tight=tight)
        exact = min_cost_places(problem)
        with monkeypatch.context() as patch:
            patch.setattr(places_by_cells, "MOST_ENTRIES", -1)
            found = min_cost_places(problem)
        counts = np.bincount(found.place, minlength=len(problem.lower))
        cost = int(problem.item_costs(found.place).sum())
        moves, fewest = (
            int(((place != problem.item_owner) & (problem.item_owner >= 0)).sum())
            for place in (found.place, exact.place)
        )

        assert (problem.lower <= counts).all()
        assert (counts <= problem.upper).all()
        assert found.cost <= exact.cost <= cost
        assert exact.is_best
        assert not found.is_best or (cost, moves) == (exact.cost, fewest) == (found.cost, fewest)
        best += found.is_best
    assert best >= (5 if tight else 20)
