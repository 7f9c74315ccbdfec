"""The segments of a window store: rows that came together, in memory or in a mapped file, and how they look without what has expired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.arrow.frames import fitted, taken
from task_assignor.runtime.machines.records import Part

DEAD_SHARE: Final = 0.5
"""A segment in memory is copied once this share of its rows has expired; until then their memory is not freed."""


class View(Protocol):
    """Rows as somebody wants to see them."""

    def __getitem__(self, part: slice, /) -> Any:
        """Some of the rows."""


V = TypeVar("V", bound=View)


class Segment:
    """Rows that were appended together, with their range of times. It does not change, but for what is cached."""

    __slots__ = (
        "_before",
        "_nbytes",
        "_source",
        "_view",
        "dead",
        "first",
        "is_gathered",
        "is_mapped",
        "is_sorted",
        "last",
        "part",
        "rows",
    )

    def __init__(
        self,
        source: pa.Table,
        time: str,
        *,
        before: int | None = None,
        view: View | None = None,
        part: Part | None = None,
        is_mapped: bool = False,
        dead: int = 0,
        is_gathered: bool = False,
    ) -> None:
        self._source = source
        self._before = before
        """Older rows of the source have expired; None: none has."""
        times: npt.NDArray[np.int64] = source.column(time).to_numpy()
        self.is_sorted = bool((times[1:] >= times[:-1]).all())
        if before is not None:
            times = times[times >= before]
        self.rows = len(times)
        self.first, self.last = int(times.min()), int(times.max())
        self.dead = dead
        """Rows that have expired and are still in memory."""
        self._view = view
        self._nbytes: int | None = None
        self.part = part
        """The file that has its rows, and maybe expired ones."""
        self.is_mapped = is_mapped
        self.is_gathered = is_gathered
        """Nothing of it can be put together."""

    def table(self, time: str) -> pa.Table:
        """Its rows; `time` is the column that has their times."""
        if self._before is None:
            return self._source
        times = self._source.column(time).to_numpy()
        return self._source.filter(pa.array(times >= self._before))

    @property
    def resident_bytes(self) -> int:
        """Bytes in memory; expired rows count as long as they are there."""
        if self.is_mapped and self._view is None:
            return 0
        return int(self.nbytes * (1 + self.dead / max(self.rows, 1)))

    @property
    def nbytes(self) -> int:
        """Bytes of its rows."""
        if self._nbytes is None:
            self._nbytes = int(self._source.nbytes)
        return self._nbytes

    def since(self, before_ms: int, time: str) -> Segment:
        """The rows that are not older; there are some, and some that are."""
        part, is_gathered = self.part, self.is_gathered
        if not self.is_sorted and self.is_mapped:
            return Segment(self._source, time, before=before_ms, part=part, is_mapped=True, is_gathered=is_gathered)
        if not self.is_sorted:
            rows = self._source.filter(pa.array(self._source.column(time).to_numpy() >= before_ms))
            return Segment(rows, time, is_gathered=is_gathered)
        # A slice costs nothing, but keeps all in memory.
        start = int(np.searchsorted(self._source.column(time).to_numpy(), before_ms))
        dead = 0 if self.is_mapped else self.dead + start
        if dead >= DEAD_SHARE * (dead + self.rows - start):
            rows = taken(self._source, pa.array(np.arange(start, self.rows)))
            return Segment(rows, time, part=part, is_gathered=is_gathered)
        rows, view = self._source.slice(start), None if self._view is None else self._view[start:]
        return Segment(rows, time, view=view, part=part, is_mapped=self.is_mapped, dead=dead, is_gathered=is_gathered)

    def padded(self, schema: pa.Schema, time: str) -> Segment:
        """The same rows with columns that are new, and null."""
        return Segment(
            fitted(self._source, schema),
            time,
            before=self._before,
            part=self.part,
            is_mapped=self.is_mapped,
            dead=self.dead,
            is_gathered=self.is_gathered,
        )

    def view(self, make: Callable[[pa.Table], V], time: str, *, keep: bool = True) -> V:
        """The rows as somebody wants to see them, which may take as much memory again."""
        if self._view is not None:
            return cast(V, self._view)
        view = make(self.table(time))
        if keep:
            self._view = view
        return view

    def forget_view(self) -> None:
        """Give its memory back."""
        self._view = None
