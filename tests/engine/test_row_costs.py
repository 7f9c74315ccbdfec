"""Costs of rows in cells: whatever is made of them costs what the table says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.engine.row_costs import RowCosts


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5), st.integers(0, 9), st.integers(1, 3))
def test_all_that_is_made_of_costs_agrees_with_their_table(
    seed: int, rows: int, cells: int, items: int, groups: int
) -> None:
    draw = np.random.default_rng(seed)
    table = draw.integers(0, 4, (rows, cells))
    costs = RowCosts.of_table(draw.integers(0, rows, items), table)
    row, cell = np.divmod(np.arange(table.size), cells)
    base, group = draw.integers(0, rows, 4), draw.integers(0, groups, items)
    split, of_row = costs.split(group, groups)

    assert (costs.table() == table).all()
    assert costs.at(row, cell).tolist() == table.reshape(-1).tolist()
    assert (costs.times(3).table(base) == 3 * table[base]).all()
    assert (costs.of_rows(base, np.arange(4)).table() == table[base]).all()
    barred_row, barred_cell = draw.integers(0, [rows, cells], (3, 2)).T
    usual = table.copy()
    usual[barred_row, barred_cell] = costs.default[barred_row]
    assert (costs.but_for(barred_row, barred_cell).table() == usual).all()
    of_place = np.sort(draw.integers(0, cells, 5))
    assert (costs.in_places(of_place).table() == table[:, of_place]).all()
    assert (of_row[split.row] == group).all()
    for item in range(items):
        own = split.at(np.full(cells, split.row[item]), np.arange(cells) * groups + group[item])
        assert own.tolist() == table[costs.row[item]].tolist()
