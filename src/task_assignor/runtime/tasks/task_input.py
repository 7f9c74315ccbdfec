"""What a task reads for a batch: the rows of its sources up to the boundary, cut where a schedule is due. No processor runs here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.merging import (
    Int64Array,
    crossings,
    next_time,
    rows_up_to_boundary,
    times_at,
    times_so_far,
)
from task_assignor.runtime.arrow.times import NO_TIME, times_of
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.topics.fetched import RowOffsets, Unreadable
from task_assignor.runtime.topology.context import Schedule

Offsets = Mapping[str, tuple[int, int]]


@attrs.frozen
class Part:
    """Rows that are processed together, and what is due after them.

    Args:
        rows: source topic -> its rows.
        offsets: source topic -> (first offset, offset after the last).
        row_offsets: source topic -> the offset of each of its rows.
        starts: source topic -> how many of its rows in the batch come before these.
        newest: source topic -> (N + 1,) the newest time of the topic that it is, or is made of, up to each of its rows, and up to
            here, ms; those before this batch are left out.
        stream_time: newest time of all records up to here, ms; None: there were none.
        due: schedules by stream time that are due now.
        times: as `newest`, of source topics that many tasks write: up to which time all of these have come.
        is_last: of the batch; these times may have moved without rows.
    """

    rows: Mapping[str, pa.Table]
    offsets: Offsets
    row_offsets: Mapping[str, RowOffsets]
    starts: Mapping[str, int]
    newest: Mapping[str, Int64Array]
    stream_time: int | None
    due: Sequence[Schedule] = ()
    times: Mapping[str, Int64Array] = MappingProxyType({})
    is_last: bool = False


@attrs.frozen
class TaskInput:
    """The rows of a batch.

    Args:
        rows: source topic -> its rows, in the order of the task's sources.
        newest: source topic -> the newest time up to each row.
        tables: those that say nothing of where the task is in time.
        offsets: source topic -> (first offset, offset after the last).
        row_offsets: source topic -> the offset of each of its rows.
        derived: what is made of a topic within the task (a derived stream, a forwarded output) -> the topic, the places there of
            what its rows are made of, ascending, and the rows.
        is_short: of a source there are rows that cannot be read yet.
        times: source topic that many tasks write -> (N + 1,) up to which time all of these have come at each row, and after the batch.
        unreadable: source topic -> its records in the batch of which there are no rows.
        lost: so many offsets had been deleted before they were read.
    """

    rows: Mapping[str, pa.Table]
    newest: Mapping[str, Int64Array]
    tables: Collection[str]
    offsets: Offsets
    row_offsets: Mapping[str, RowOffsets]
    derived: Mapping[str, tuple[str, Int64Array, pa.Table]] = MappingProxyType({})
    is_short: bool = False
    times: Mapping[str, Int64Array] = MappingProxyType({})
    unreadable: Mapping[str, Sequence[Unreadable]] = MappingProxyType({})
    lost: int = 0

    @classmethod
    def read(
        cls, order: TaskOrder, sources: Sequence[str], tables: Collection[str], topics: Mapping[str, Log]
    ) -> TaskInput:
        """The rows of an order, or those that have come since, too, that nothing comes before which is not loaded yet.

        Args:
            order: which rows there are.
            sources: the task's source topics.
            tables: those that are read to their end first: their times say nothing of where the others are.
            topics: they, by name.

        Raises:
            CorruptLogException: a file cannot be read.
        """
        partition = order.task.partition
        fetched = {}
        for topic in sources:
            start, end = order.ranges[topic]
            fetched[topic] = topics[topic].fetch(partition, start, end, start + order.at_most)
        newest = [times_so_far(times_of(found.rows, topics[topic].spec.timestamp)) for topic, found in fetched.items()]
        short = [found.end is not None and found.end < order.ranges[topic][1] for topic, found in fetched.items()]
        more = [topic in order.more or is_short for topic, is_short in zip(sources, short, strict=True)]
        ordered = [bisect_left(found.offsets, order.ranges[topic][1]) for topic, found in fetched.items()]
        counts = rows_up_to_boundary([found[:count] for found, count in zip(newest, ordered, strict=True)], more)
        if any(len(found) > count for found, count in zip(newest, ordered, strict=True)):
            # What has come since goes as far as it is certain that nothing comes before it.
            counts = list(map(max, counts, rows_up_to_boundary(newest, [True] * len(newest))))
        offsets = dict(order.ranges)
        for topic, count in zip(sources, counts, strict=True):
            start, end = offsets[topic]
            offsets[topic] = (start, fetched[topic].offset_after(count, end))
        known = {
            topic: next_time(found, count, has_more=has_more)
            for topic, found, count, has_more in zip(sources, newest, counts, more, strict=True)
            if topic not in tables
        }
        times = {}
        for topic, found, count in zip(sources, newest, counts, strict=True):
            if topic in order.times:
                places = np.append(np.asarray(fetched[topic].offsets[:count], np.int64), offsets[topic][1])
                times[topic] = times_at(order.times[topic], places)
                others = [time for other, time in known.items() if other != topic]
                if others:
                    # They are read as far as the rows of this one go, and what they have yet to bring may be older.
                    times[topic] = np.minimum(times[topic], np.append(found[:count], min(others)))
        return cls(
            {topic: found.rows.slice(0, count) for (topic, found), count in zip(fetched.items(), counts, strict=True)},
            {topic: found[:count] for topic, found, count in zip(sources, newest, counts, strict=True)},
            tables,
            offsets,
            {topic: found.offsets[:count] for (topic, found), count in zip(fetched.items(), counts, strict=True)},
            is_short=any(short),
            times=times,
            unreadable={
                topic: [record for record in found.unreadable if record.offset < offsets[topic][1]]
                for topic, found in fetched.items()
                if found.unreadable
            },
            lost=sum(found.lost for found in fetched.values()),
        )

    @property
    def moves(self) -> bool:
        """Something was read, be it without rows."""
        return any(start < end for start, end in self.offsets.values())

    def of(self, source: str) -> tuple[str, Int64Array, pa.Table]:
        """As in `derived`, of a source that is made of a topic, or is one."""
        if source in self.derived:
            return self.derived[source]
        rows = self.rows[source]
        return source, np.arange(rows.num_rows), rows

    def offsets_of(self, source: str) -> RowOffsets:
        """The offset of each row of a source, in its topic."""
        if source not in self.derived:
            return self.row_offsets[source]
        topic, places, _ = self.derived[source]
        return np.asarray(self.row_offsets[topic])[places]

    def parts(self, before: int | None, schedules: Sequence[Schedule]) -> Iterator[Part]:
        """The batch, cut after each record at which a schedule by stream time is due; without any in one piece, or none.

        Args:
            before: newest time of all earlier records, ms; None: there were none.
            schedules: what is scheduled.
        """
        times = [
            np.full(len(found), NO_TIME) if topic in self.tables else found for topic, found in self.newest.items()
        ]
        due: dict[tuple[int, ...], list[Schedule]] = {}
        for schedule in schedules:
            if schedule.kind == "stream_time":
                for counts in crossings(times, before, schedule.interval_ms):
                    due.setdefault(tuple(counts), []).append(schedule)
        end = tuple(map(len, times))
        start = (0,) * len(end)
        time = before
        # Once: there may be many parts, and of what is made of a topic it takes a look at each of the topic's rows.
        row_offsets = {name: self.offsets_of(name) for name in (*self.rows, *self.derived)}
        # Cuts follow each other in the order of time, so none has fewer rows of any source than the one before it.
        for cut in sorted(cut for cut in {*due, end} if any(cut) or self.times):
            ends = [int(found[stop - 1]) for found, stop in zip(times, cut, strict=True) if stop]
            found = max(ends, default=NO_TIME)
            time = time if found == NO_TIME else found if time is None else max(time, found)
            yield self._part(start, cut, time, due.get(cut, ()), row_offsets, is_last=cut == end)
            start = cut

    def _part(
        self,
        start: Sequence[int],
        end: Sequence[int],
        time: int | None,
        due: Sequence[Schedule],
        offsets_of: Mapping[str, RowOffsets],
        *,
        is_last: bool,
    ) -> Part:
        rows, offsets, row_offsets, starts, newest, times = {}, {}, {}, {}, {}, {}
        for (topic, table), low, high in zip(self.rows.items(), start, end, strict=True):
            rows[topic] = table.slice(low, high - low)
            found = offsets_of[topic]
            row_offsets[topic] = found[low:high]
            starts[topic] = low
            newest[topic] = _up_to(self.newest[topic], slice(low, high), high)
            if topic in self.times:
                times[topic] = _up_to(self.times[topic], slice(low, high), high + is_last)
            first, limit = self.offsets[topic]
            offsets[topic] = (
                first if low == 0 else int(found[low]) if low < len(found) else limit,
                int(found[high]) if high < len(found) else limit,
            )
        cuts = dict(zip(self.rows, zip(start, end, strict=True), strict=True))
        for name, (topic, places, table) in self.derived.items():
            first, last = (int(np.searchsorted(places, cut)) for cut in cuts[topic])
            here = places[first:last]
            rows[name] = table.slice(first, last - first)
            offsets[name] = offsets[topic]
            row_offsets[name] = offsets_of[name][first:last]
            starts[name] = first
            newest[name] = _up_to(self.newest[topic], here, cuts[topic][1])
            if topic in self.times:
                times[name] = _up_to(self.times[topic], here, cuts[topic][1] + is_last)
        return Part(rows, offsets, row_offsets, starts, newest, time, due, times, is_last)


def _up_to(times: Int64Array, places: Int64Array | slice, end: int) -> Int64Array:
    """Times at some places, then that before an end."""
    return np.append(times[places], times[end - 1] if end else NO_TIME)
