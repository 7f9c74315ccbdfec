"""Rows of one sub-topology for another one: how they are put into a file by partition, and how they are read from it.

What is in which partition at which offset, the coordinator knows (`machines.coordinator.repartitions`), and says it with each order.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import fitted, no_rows, taken
from task_assignor.runtime.arrow.keys import partitions_of
from task_assignor.runtime.arrow.times import NO_TIME, times_of
from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.records import FileRef, Piece
from task_assignor.runtime.run_folder.layout import RunLayout, open_committed
from task_assignor.runtime.topics.fetched import Fetched
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topics.writing import fit_to_schema

_OPEN_FILES: Final = 8
"""Files of a repartition topic that are kept open: each is read by the tasks of all partitions, mostly soon."""


def span_of(rows: pa.Table, timestamp: str | None) -> tuple[int, int] | None:
    """The oldest and the newest time of rows, ms; None: none has one."""
    times = times_of(rows, timestamp)
    known = times[times != NO_TIME]
    return (int(known.min()), int(known.max())) if len(known) else None


def routed(rows: pa.Table, spec: TopicSpec) -> tuple[pa.Table, tuple[int, ...]]:
    """Rows in the order of their partitions, within a partition as they were.

    Args:
        rows: what a processor gave.
        spec: the repartition topic.

    Returns:
        The rows with the columns of the topic, and how many each partition has.

    Raises:
        TopicException: the rows do not fit the topic.
    """
    rows = fit_to_schema(rows, spec.schema, f"the repartition topic {spec.name!r}")
    partition = partitions_of(rows, spec.key, spec.partitions)
    order = np.argsort(partition, kind="stable")
    counts = np.bincount(partition, minlength=spec.partitions)
    return taken(rows, pa.array(order)), tuple(map(int, counts))


class RepartitionLog:
    """A repartition topic as a task reads it: a `Log` of the rows that an order names.

    Args:
        spec: what it is like.
        layout: where the files of the run are.
        run_id: identity of the run, which is that of its repartition topics.
    """

    def __init__(self, spec: TopicSpec, layout: RunLayout, run_id: str) -> None:
        self.spec = spec
        self.topic_id = run_id
        self._layout = layout
        self._pieces: Sequence[Piece] = ()
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def holding(self, pieces: Sequence[Piece]) -> RepartitionLog:
        """The log with these rows of one partition."""
        log = RepartitionLog(self.spec, self._layout, self.topic_id)
        log._pieces, log._tables, log._lock = pieces, self._tables, self._lock
        return log

    def refresh(self) -> None:
        """Nothing to do: orders say what there is."""

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Self]) -> None:
        """Nothing to do."""

    def start_offsets(self) -> list[int]:
        """The first offset that can be read."""
        return [min((piece.base for piece in self._pieces), default=0)] * self.spec.partitions

    def end_offsets(self) -> list[int]:
        """The offset after the last row that can be read."""
        return [max((piece.end for piece in self._pieces), default=0)] * self.spec.partitions

    def check(self, starts: Sequence[int], seals: Sequence[str] = ()) -> None:
        """Nothing: its files were looked at when they were committed."""

    def seal_before(self, partition: int, offset: int) -> str:  # noqa: ARG002 (part of the protocol)
        """Nothing: its rows are in the run folder, and go back with it."""
        return ""

    def tell_of_hidden(self) -> None:
        """Nothing: what orders say can be read."""

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:  # noqa: ARG002 (part of the protocol)
        """The rows `start` (inclusive) to `end` (exclusive).

        Raises:
            CorruptLogException: a file cannot be read, or the rows are not among those that can be read.
        """
        found, at = [no_rows(self.spec.schema)], start
        for piece in self._pieces:
            low, high = max(start, piece.base), min(end, piece.end)
            if low < high and low == at:
                first = piece.first + low - piece.base
                found.append(self._table(piece.file, partition, low).slice(first, high - low))
                at = high
        if at < end:
            raise CorruptLogException(
                f"The repartition topic {self.spec.name}, partition {partition}: rows are missing; offsets {start} to "
                f"{end - 1} were asked for, but those from {at} on are not there.",
                self.spec.name,
                partition,
                at,
                self._layout.run_dir,
            )
        return Fetched(pa.concat_tables(found), range(start, max(start, end)))

    def _table(self, file: FileRef, partition: int, offset: int) -> pa.Table:
        with self._lock:
            table = self._tables.get(file.path)
        if table is None:
            table = open_committed(self._layout, file, "repartition", self.spec.name, partition, offset)
            # It may have gained columns since.
            table = fitted(table, self.spec.schema)
        with self._lock:
            self._tables[file.path] = table
            self._tables.move_to_end(file.path)
            while len(self._tables) > _OPEN_FILES:
                self._tables.popitem(last=False)
        return table
