"""What items cost in cells (racks), by classes of items that cost the same everywhere. Who goes where is decided elsewhere."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import are_in, csr_pairs, distinct_and_numbers, offsets_of, values_of
from task_assignor.sdk.columns import Int64Array

IntArray = npt.NDArray[np.integer[Any]]


@attrs.frozen(eq=False)
class RowCosts:
    """Costs of items in cells: items of one row cost the same, most cells cost a row the same.

    Args:
        row: (N,) row of each item.
        default: (K,) cost of the row's items in cells without an entry; at least the cost of its entries.
        entry_row: (E,) row, with `entry_cell` strictly ascending.
        entry_cell: (E,) cell.
        entry_cost: (E,) cost of the row's items there.
        cells: number of cells.
    """

    row: Int64Array
    default: Int64Array
    entry_row: Int64Array
    entry_cell: Int64Array
    entry_cost: Int64Array
    cells: int

    @classmethod
    def nothing(cls, row: Int64Array, rows: int = 1, cells: int = 1) -> RowCosts:
        """So many rows and cells, where nothing costs anything."""
        none = np.zeros(0, dtype=np.int64)
        return cls(row, np.zeros(rows, dtype=np.int64), none, none, none, cells)

    @classmethod
    def of_table(cls, row: Int64Array, table: Int64Array) -> RowCosts:
        """From the cost of every row (K) in every cell, which is there at least once."""
        default = table.max(axis=1, initial=0)
        entry_row, entry_cell = np.nonzero(table < default[:, None])
        return cls(row, default, entry_row, entry_cell, table[entry_row, entry_cell], table.shape[1])

    def __len__(self) -> int:
        return len(self.default)

    @property
    def saved(self) -> Int64Array:
        """(E,) how much less than by default the row's items cost there."""
        return self.default[self.entry_row] - self.entry_cost

    def at(self, row: IntArray, cell: IntArray) -> Int64Array:
        """(M,) cost of items of the rows in the cells beside them."""
        return values_of(self._entries, self.entry_cost, row * np.int64(self.cells) + cell, self.default[row])

    def table(self, row: Int64Array | None = None) -> Int64Array:
        """(M, cells) cost of items of the rows in every cell; None: of all rows."""
        rows = np.arange(len(self)) if row is None else row
        table: Int64Array = np.repeat(self.default[rows][:, None], self.cells, axis=1)
        position, entry = self.entries_of(rows)
        table[position, self.entry_cell[entry]] = self.entry_cost[entry]
        return table

    def entries_of(self, row: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(position in `row`, number of the entry) of all entries of the rows, row by row."""
        return csr_pairs(offsets_of(self.entry_row, len(self)), row)

    def times(self, factor: int) -> RowCosts:
        """So many times as much."""
        default, entry_cost = self.default * factor, self.entry_cost * factor
        return RowCosts(self.row, default, self.entry_row, self.entry_cell, entry_cost, self.cells)

    def of_rows(self, base: Int64Array, row: Int64Array) -> RowCosts:
        """Costs of other items: a row costs what the row `base` here does.

        Args:
            base: (M,) rows of these costs.
            row: (N,) row of each item, below M.
        """
        entry_row, entry = self.entries_of(base)
        return RowCosts(row, self.default[base], entry_row, self.entry_cell[entry], self.entry_cost[entry], self.cells)

    def in_places(self, cell: Int64Array) -> RowCosts:
        """The same by places in place of cells: (P,) cell of each place, ascending."""
        entry, place = csr_pairs(offsets_of(cell, self.cells), self.entry_cell)
        return RowCosts(self.row, self.default, self.entry_row[entry], place, self.entry_cost[entry], len(cell))

    def but_for(self, row: Int64Array, cell: Int64Array) -> RowCosts:
        """The same, where these pairs of row and cell cost as by default."""
        kept = np.flatnonzero(~are_in(self._entries, row * self.cells + cell))
        columns = self.entry_row[kept], self.entry_cell[kept], self.entry_cost[kept]
        return RowCosts(self.row, self.default, *columns, self.cells)

    def split(self, group: Int64Array, groups: int) -> tuple[RowCosts, Int64Array]:
        """Rows split by the group of their items, of which each has cells of its own, `cell * groups + group`.

        Args:
            group: (N,) group of each item.
            groups: number of groups.

        Returns:
            The split rows, and (K,) the group of each.
        """
        pair, row = distinct_and_numbers(self.row * groups + group)
        costs, of_group = self.of_rows(pair // groups, row), pair % groups
        cell = costs.entry_cell * groups + of_group[costs.entry_row]
        return attrs.evolve(costs, entry_cell=cell, cells=self.cells * groups), of_group

    @cached_property
    def _entries(self) -> Int64Array:
        """(E,) a number for each pair of row and cell."""
        return self.entry_row * self.cells + self.entry_cell
