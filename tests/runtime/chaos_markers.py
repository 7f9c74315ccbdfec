"""What a run in chaos is asked besides: its topic grows, and sheds what was read, and markers are asked for; each must be one cut over all tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pyarrow as pa

from task_assignor.runtime import (
    MarkerReached,
    MarkerRefused,
    RunEvent,
    StreamsApplication,
    append_topic,
    committed_offsets,
    delete_records,
    list_markers,
    read_output,
)


@attrs.define
class GrowingTopic:
    """A topic whose last rows come, and whose first ones go, while it is read.

    Args:
        folder: of the topics.
        name: of the topic.
        rows: all that it will have.
        written: so many it has.
    """

    folder: str | Path
    name: str
    rows: pa.Table
    written: int

    @property
    def is_whole(self) -> bool:
        """All its rows are there."""
        return bool(self.written == self.rows.num_rows)

    def grow(self, count: int) -> None:
        """So many rows more, or all that are left."""
        new = self.rows.slice(self.written, count)
        if new.num_rows:
            append_topic(self.folder, self.name, new)
            self.written += new.num_rows

    def shed(self, run_dir: str | Path) -> None:
        """It loses the rows that the run has read."""
        delete_records(self.folder, self.name, committed_offsets(run_dir, self.name))


@attrs.define
class AskedMarkers:
    """The markers of a run, through all its lives.

    Args:
        topic: what the run reads.
        output: what it writes: a row for each that it has read.
    """

    topic: GrowingTopic
    output: str
    goals: dict[str, int] = attrs.field(factory=dict)
    """Marker -> how many rows must be in it at least."""
    reached: dict[str, MarkerReached] = attrs.field(factory=dict)
    _open: set[str] = attrs.field(factory=set)
    """Those that this life was asked for, and has not answered."""
    _present: int = 0
    """So many rows the topic had when this life began, if it goes up to these; else 0."""

    def begin_life(self, *, is_continuous: bool) -> None:
        """Nobody knows any more what was asked for before."""
        self._open.clear()
        self._present = 0 if is_continuous else self.topic.written

    def ask(self, app: StreamsApplication) -> str:
        """Ask for another one; gives its name."""
        name = f"marker {len(self.goals)}"
        self.goals[name] = self._present or self.topic.written
        self._open.add(name)
        assert app.request_marker(name), "there is a run"
        return name

    def hear(self, event: RunEvent) -> None:
        """The run answers."""
        match event:
            case MarkerReached():
                self._open.discard(event.name)
                self.reached[event.name] = event
            case MarkerRefused():
                self._open.remove(event.name)

    def end_life(self) -> None:
        """A run that ends in order, or by an error of its own, has answered whoever has asked."""
        assert not self._open, f"nobody has said what came of {sorted(self._open)}"

    def check(self, run_dir: str | Path, expected: Mapping[int, tuple[int, ...]]) -> None:
        """Each cut has all that was there, nothing but the first rows of each partition, and what the cut before it has.

        Args:
            run_dir: folder of the run.
            expected: value -> the row that the output has for it.
        """
        kept = list_markers(run_dir)
        assert {marker.name for marker in kept} >= {*list(self.reached)[-32:]}, "reached, and not kept"
        before: set[tuple[int, ...]] = set()
        for marker in kept:
            columns = read_output(run_dir, self.output, marker.name).select(["key", "value", "count", "sum"])
            rows = [tuple(row.values()) for row in columns.to_pylist()]
            found = set(rows)
            assert len(found) == len(rows), f"{marker.name} has a row twice"
            # The counts of a key go on by one: a row that is missing before another one would be seen in it.
            assert all(expected[row[1]] == row for row in rows), (
                f"{marker.name} has other rows than a plain computation"
            )
            missing = {value for value in range(self.goals[marker.name]) if expected[value] not in found}
            assert not missing, f"{marker.name} has not {sorted(missing)}"
            assert before <= found, f"{marker.name} has less than the one before it"
            if marker.name in self.reached:
                event = self.reached[marker.name]
                assert event.commit == marker.commit
                assert sum(event.offsets[self.topic.name]) == len(rows), f"{marker.name} is not where it says"
            before = found
