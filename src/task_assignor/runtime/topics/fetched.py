"""What a `Log` gives when rows are read: they and their offsets, which need not follow each other."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

RowOffsets = range | npt.NDArray[np.int64]
"""(N,) the offset of each of N rows, ascending; of those without gaps a range."""


@attrs.frozen
class Unreadable:
    """A record of which no row can be made: its place is a gap between rows.

    Args:
        offset: where it is.
        error: why, as the end of a sentence ("cannot be read: ...").
        record: what it has, as a text, for people and programs.
    """

    offset: int
    error: str
    record: str


@attrs.frozen(eq=False)
class Fetched:
    """Rows of a partition with their offsets.

    Args:
        rows: the rows, in the order of their offsets.
        offsets: (N,) the offset of each row, ascending; there may be gaps.
        end: where to read on after all of them, if that is not where what was asked for ends: the rest cannot be read yet, or more
            was at hand. None: it is.
        unreadable: records between them of which there are no rows, in the order of their offsets.
        lost: so many offsets at the beginning have been deleted before they were read.
    """

    rows: pa.Table
    offsets: RowOffsets
    end: int | None = None
    unreadable: Sequence[Unreadable] = ()
    lost: int = 0

    def offset_after(self, count: int, end: int) -> int:
        """Where to read on after the first rows.

        Args:
            count: so many rows.
            end: offset after the last that was asked for.
        """
        if count < len(self.offsets):
            return int(self.offsets[count])
        return end if self.end is None else self.end
