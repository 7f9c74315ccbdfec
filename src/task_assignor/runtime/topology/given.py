"""What a processor gives in a batch: rows for its outputs, in the order of the records that they come of, and counts."""

from __future__ import annotations

from operator import itemgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array: TypeAlias = npt.NDArray[np.int64]
Mark: TypeAlias = tuple[int, dict[str, int]]
"""What was given up to some moment: how many tables, and the counts."""


class Given:
    """What a processor has given so far.

    Attributes:
        counters: what was counted.
        record: number of the record that was processed last, of those that are processed one by one.
    """

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.record = 0
        self._tables: list[tuple[str, pa.Table, Int64Array | None, int]] = []
        """Output, rows, of which rows of a source they are made if that matters, and `record`."""
        self._returned: tuple[pa.Table, Int64Array] | None = None

    def add(self, output: str, rows: pa.Table, made_of: Int64Array | None = None) -> None:
        """Add rows to an output, after all that it has."""
        self._tables.append((output, rows, made_of, self.record))

    def remember(self, rows: pa.Table, records: Int64Array) -> None:
        """These rows are returned for records that were processed one by one: (N,) for which of them, ascending."""
        self._returned = rows, records

    def take(self, output: str, rows: pa.Table, returned: object) -> None:
        """Add rows to an output; those that are remembered, each before what was added when a later record was processed.

        Args:
            output: the output.
            rows: the rows.
            returned: what they were given as.
        """
        known, self._returned = self._returned, None
        if known is None or known[0] is not returned:
            self.add(output, rows)
            return
        records = known[1]
        cuts = np.searchsorted(records, [record for name, _, _, record in self._tables if name == output]).tolist()
        for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
            if start < end:
                self._tables.append((output, rows.slice(start, end - start), None, int(records[start])))
        self._tables.sort(key=itemgetter(3))

    def marked(self) -> Mark:
        """How much there is, for `back_to`."""
        return len(self._tables), dict(self.counters)

    def done_since(self, mark: Mark) -> tuple[Mark, Mark] | None:
        """`mark` and where it is now, for `forget`; None: nothing was given."""
        return None if (len(self._tables), self.counters) == mark else (mark, self.marked())

    def back_to(self, mark: Mark) -> None:
        """Forget what was given since."""
        del self._tables[mark[0] :]
        self.counters = mark[1]

    def forget(self, before: Mark, after: Mark) -> None:
        """Forget what was given between two marks; what came later than that has another place then."""
        del self._tables[before[0] : after[0]]
        for name, number in after[1].items():
            if number != (known := before[1].get(name, 0)):
                self.counters[name] -= number - known

    def tables(self) -> dict[str, list[pa.Table]]:
        """Output -> its rows."""
        tables: dict[str, list[pa.Table]] = {}
        for output, rows, _, _ in self._tables:
            tables.setdefault(output, []).append(rows)
        return tables

    def made_of(self, output: str) -> Int64Array:
        """Of which rows of its source in the batch the rows of a forwarded output are made."""
        found = [made_of for name, _, made_of, _ in self._tables if name == output and made_of is not None]
        return np.concatenate([np.zeros(0, np.int64), *found])
