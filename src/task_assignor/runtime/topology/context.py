"""What a processor may know and use of its task: `TaskContext`. Nothing here runs tasks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.arrow.merging import places, times_so_far
from task_assignor.runtime.arrow.times import FARTHEST_MS, NO_TIME, times_of
from task_assignor.runtime.errors import (
    BadRecordException,
    InvalidTransitionException,
    LateRecordException,
    StoreException,
    TopologyException,
)
from task_assignor.runtime.machines.encoding import as_unicode
from task_assignor.runtime.stores.key_value import KeyValueStore
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.topics.fetched import RowOffsets, Unreadable
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.bad_records import DeadLetters, LeftOut, LeftOutLog, as_json, letters_of
from task_assignor.runtime.topology.forwarding import Forwarding
from task_assignor.runtime.topology.given import Given
from task_assignor.runtime.topology.rows import Rows, to_table
from task_assignor.sdk import TaskId
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.text import counted, shown

S = TypeVar("S", bound=Store)

Punctuator = Callable[[int], Rows | None]
"""Called with a time, ms since the epoch; gives rows for the only output, or None (Kafka's `Punctuator`)."""
PunctuationType = Literal["stream_time", "wall_clock_time"]


@attrs.frozen
class Schedule:
    """A punctuator that is called again and again.

    Args:
        interval_ms: how often.
        kind: by which time.
        punctuator: what is called.
    """

    interval_ms: int
    kind: PunctuationType
    punctuator: Punctuator


class TaskContext:
    """What a processor may know and use of its task: of its own sub-topology, whatever the task computes besides.

    Args:
        application_id: `application.id`.
        task_id: the task.
        topics: source topics of its sub-topology, by name.
        outputs: names of the outputs of its sub-topology, in the order in which they were declared, without those of
            dead letters.
        stores: those of its sub-topology, by name.
        bad_records: what becomes of records that cannot be processed.
        late_records: what becomes of records that come too late.
        schemas: output -> the columns that it declares; None, or an output that is not named: those of its rows.
        roots: derived stream or forwarded output that it reads -> the topic that it is made of.
        forwarded: forwarded output of its sub-topology -> the source of whose records its rows are made.

    Attributes:
        batch: number of the micro-batch.
        offsets: source -> (first offset, offset after the last) of the rows that are processed now; of a derived stream those of
            its topic.
        record: (topic, offset) of the record that is processed now; None: not one alone.
        stream_time: newest time of all records that the task has been given, ms: up to `record`, or before these rows where there
            is a table of them. Also of sources that only others in the task read, but not of `tables`; None: there were none.
        schedules: what `schedule` was asked for.
        given: what was forwarded and counted in the batch; for the runtime.
    """

    def __init__(
        self,
        application_id: str,
        task_id: TaskId,
        topics: Mapping[str, TopicSpec],
        outputs: tuple[str, ...],
        stores: Mapping[str, Store],
        bad_records: LeftOut = "stop",
        late_records: LeftOut = "stop",
        schemas: Mapping[str, pa.Schema | None] = MappingProxyType({}),
        roots: Mapping[str, str] = MappingProxyType({}),
        forwarded: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.application_id = application_id
        self.task_id = task_id
        self.topics = topics
        self.outputs = outputs
        self.batch = -1
        self.offsets: Mapping[str, tuple[int, int]] = {}
        self.record: tuple[str, int] | None = None
        self.stream_time: int | None = None
        self.schedules: list[Schedule] = []
        self._may_schedule = self._has_batch = True
        self._began_ms = 0
        self._called_ms: dict[int, int] = {}
        """Number of a schedule by the clock -> when it was called last."""
        self._schemas = schemas
        self._roots = roots
        self._forwarding = Forwarding(topics, forwarded, schemas)
        self._standing: tuple[str, int] | None = None
        """Source and row of the record that is processed now."""
        self._policies: dict[str, LeftOut] = {"bad": bad_records, "late": late_records}
        self._left_out = LeftOutLog(task_id)
        self._stores = stores
        self._rows: Mapping[str, pa.Table] = {}
        self._row_offsets: Mapping[str, RowOffsets] = {}
        self._newest: Mapping[str, npt.NDArray[np.int64]] = {}
        self._times: Mapping[str, npt.NDArray[np.int64]] = {}
        self._span = [NO_TIME, NO_TIME]
        self.given = Given()

    @property
    def partition(self) -> int:
        """Partition of all source topics that the task reads."""
        return self.task_id.partition

    def store(self, name: str) -> Store:
        """The store of that name.

        Raises:
            StoreException: the sub-topology declares no such store.
        """
        try:
            return self._stores[name]
        except (KeyError, TypeError):  # what has no hash is no name
            known = ", ".join(sorted(self._stores)) or "none"
            raise StoreException(
                f"The sub-topology of the processor has no store {name!r}; it declares: {known}."
            ) from None

    def key_value_store(self, name: str) -> KeyValueStore:
        """The key-value store of that name; like `store`, with the type that checkers want."""
        return self._typed(name, KeyValueStore)

    def window_store(self, name: str) -> WindowStore:
        """The window store of that name; like `store`, with the type that checkers want."""
        return self._typed(name, WindowStore)

    def _typed(self, name: str, kind: type[S]) -> S:
        store = self.store(name)
        if not isinstance(store, kind):
            raise StoreException(f"The store {name!r} is a {type(store).__name__}, not a {kind.__name__}.")
        return store

    def forward(self, rows: Rows, output: str | None = None, *, made_of: npt.ArrayLike | None = None) -> None:
        """Add rows to an output, as they are now; several calls in a batch add up.

        Args:
            rows: a table; or, slower, a mapping of columns to values, or a list of them. Of these a column that a row lacks is
                null, if the output declares it.
            output: name of the output; None: the only one.
            made_of: for a `Forwarded` output (N,) of which row of its source in the batch's table each of these rows is made;
                None: of the record that is processed now.

        Raises:
            TopologyException: the sub-topology has no such output, or several and none was named; these are no rows; or it is not
                known of what rows of a `Forwarded` output are made.
            ValueError: a row has a column that the output does not declare, or a value that its column cannot hold as it is.
            InvalidTransitionException: there is no batch that would have them, as in `init`, in `close`, and for another thread when the
                batch is over.
        """
        self._check_has_batch()
        name = self._output(output)
        if name in self._forwarding.sources:
            self.given.add(name, *self._forwarding.made(name, rows, made_of, self._standing))
        elif made_of is not None:
            raise TopologyException(
                f"The output {name!r} is not Forwarded, so made_of says nothing. Maybe leave it out."
            )
        else:
            self.given.take(name, to_table(rows, self._schemas.get(name)), rows)

    def _output(self, output: str | None) -> str:
        if output is None:
            if not self.outputs:
                raise TopologyException(
                    "The processor has rows, but its sub-topology no output. Maybe SubTopology(..., outputs=[NAME])."
                )
            if len(self.outputs) > 1:
                raise TopologyException(
                    f"The sub-topology of the processor has {len(self.outputs)} outputs ({', '.join(self.outputs)}); rows for an unnamed output "
                    "need exactly one. Maybe context.forward(rows, output=NAME)."
                )
            return self.outputs[0]
        if not isinstance(output, str) or output not in self.outputs:
            raise TopologyException(
                f"The sub-topology of the processor has no output {shown(output)}; its outputs: {', '.join(self.outputs) or 'none'}."
            )
        return output

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter; the counters of a batch are part of its commit record.

        `late` and `bad_records` are those of records that are left out, `lost_records` that of offsets that have gone: whoever adds to them
        adds to the metrics of these.

        Raises:
            TopologyException: the name is no text, or the number is not whole, or less than 0.
            InvalidTransitionException: there is no batch that would have it, as for `forward`.
        """
        self._check_has_batch()
        try:
            if operator.index(number) < 0:
                # What a metric of its kind goes back by counts as a new beginning.
                raise TypeError
            self.given.counters[str.__str__(name)] = self.given.counters.get(name, 0) + operator.index(number)
        except TypeError:
            raise TopologyException(
                f"A counter has a text as name and counts on, in whole numbers; given were {shown(name)} and {shown(number)}."
            ) from None

    def _check_has_batch(self) -> None:
        if not self._has_batch:
            what = "rows or counts, which no batch would have: only what is called to process records, or punctuates, may give them"
            raise InvalidTransitionException(f"Task {self.task_id}", "between two batches", what)

    def in_time_order(self, batch: Mapping[str, pa.Table]) -> dict[str, npt.NDArray[np.int64]]:
        """The place of each row in the order of time over all sources, from 0: the order that `RecordProcessor` sees.

        Args:
            batch: what `process_batch` was given.

        Returns:
            Source topic -> (N,) a place for each of its rows; no two are equal.
        """
        # Those of all sources, also of one that has no rows now: of equal times the topic that is named first comes first.
        roots = [*dict.fromkeys(map(self.root_of, self.topics))]
        if len(roots) == len(self.topics):
            return dict(
                zip(batch, places([self._newest_at(topic, rows) for topic, rows in batch.items()]), strict=True)
            )
        # Streams that are made of one topic meet at the times of its rows within the whole batch, also where the schedules of a
        # processor cut it; then offsets decide.
        newest = [self._known_newest(topic, rows) for topic, rows in batch.items()]
        offsets = [np.asarray(self._row_offsets[topic], np.int64) for topic in batch]
        numbers = [roots.index(self.root_of(topic)) for topic in batch]
        return dict(zip(batch, places(newest, numbers, offsets), strict=True))

    def _newest_at(self, topic: str, rows: pa.Table) -> npt.NDArray[np.int64]:
        """(N,) of each row of a source the newest time up to it; of a topic itself its own rows say it, whichever they are."""
        if topic in self._roots and topic in self._newest:
            return self._known_newest(topic, rows)
        return times_so_far(times_of(rows, self.topics[topic].timestamp))

    def _known_newest(self, topic: str, rows: pa.Table) -> npt.NDArray[np.int64]:
        newest = self._newest[topic][:-1]
        if len(newest) != rows.num_rows:
            raise TopologyException(
                f"What comes first is known of the batch as it is, but of {topic!r} {counted(rows.num_rows, 'row')} were given, and there "
                f"are {len(newest)}. Maybe leave rows out by a DerivedStream, or where each is processed."
            )
        return newest

    def time_of_topic(self, topic: str) -> npt.NDArray[np.int64] | None:
        """(N + 1,) the time of a topic at each row of a source within the batch, then at its end, ms; None: the rows say it.

        Of a derived stream it is the newest time of its topic up to there: rows that it leaves out count. Of a repartition topic,
        and of what is derived from it, it is that up to which all have come who write it: rows may be newer.

        Args:
            topic: name of the source.
        """
        if topic in self._times:
            return self._times[topic]
        return self._newest.get(topic) if topic in self._roots else None

    def is_written_by_many(self, topic: str) -> bool:
        """It is, or is derived from, a repartition topic of which it is known how far all have come who write it."""
        return topic in self._times

    def root_of(self, topic: str) -> str:
        """The topic that a source is, or is derived from."""
        return self._roots.get(topic, topic)

    def offset_of(self, topic: str, row: int) -> int:
        """Offset of a record.

        Args:
            topic: where it comes from.
            row: its place in the batch's table of that topic.

        Raises:
            TopologyException: there is no such topic or row.
        """
        return self._offset_of(topic, *self._places(topic, [row]))

    def _offset_of(self, topic: str, row: int) -> int:
        known = self._row_offsets.get(topic)
        return self.offsets.get(topic, (0, 0))[0] + row if known is None else int(known[row])

    # Records that are left out.

    def leave_out(
        self,
        topic: str,
        rows: Sequence[int] | npt.NDArray[np.int64],
        errors: str | Sequence[str],
        *,
        is_late: bool = False,
    ) -> None:
        """Say that records cannot be processed; the setting `bad_records` (or `late_records`) decides what becomes of them.

        Args:
            topic: where they come from.
            rows: their places in the batch's table of that topic, ascending.
            errors: why, as the end of a sentence ("has no price"); one for all, or one for each.
            is_late: they are right, but come too late.

        Raises:
            BadRecordException: the setting is to stop. Names the first of them.
            LateRecordException: the same for late ones.
            TopologyException: there is no such topic or row, or not one text for each.
        """
        places = self._places(topic, rows)
        is_one = isinstance(errors, str) or not isinstance(errors, Iterable)
        texts: list[Any] = [errors] * len(places) if is_one else list(errors)
        strange = [text for text in texts if not isinstance(text, str)]
        if strange:
            raise TopologyException(
                f"Why rows of {topic!r} are left out must be texts, but one is {shown(strange[0])}."
            )
        # They are rows of an output; an error may tell of a record with half a surrogate pair.
        texts = [as_unicode(text) for text in texts]
        if len(texts) != len(places):
            raise TopologyException(
                f"To leave out {counted(len(places), 'row')} of {topic!r} {len(texts)} errors were given."
            )
        if not places:
            return
        if self._policies["late" if is_late else "bad"] == "stop":
            root, offset = self.root_of(topic), self._offset_of(topic, places[0])
            kind = LateRecordException if is_late else BadRecordException
            told = f"{root}, partition {self.partition}, offset {offset}"
            raise kind(f"The record {told} {texts[0]}.", root, self.partition, offset)
        offsets = [self._offset_of(topic, place) for place in places]
        self._leave_out(topic, offsets, texts, lambda: [self._written(topic, place) for place in places], is_late)

    def _leave_out(
        self,
        topic: str,
        offsets: list[int],
        errors: list[str],
        records: Callable[[], Sequence[str | None]],
        is_late: bool = False,
    ) -> None:
        """Count records, and keep them aside if the setting says so; `records` writes them."""
        self.count("late" if is_late else "bad_records", len(offsets))
        root, policy = self.root_of(topic), self._policies["late" if is_late else "bad"]
        first = f"{root}, partition {self.partition}, offset {offsets[0]}, which {errors[0]}"
        self._left_out.note("late record" if is_late else "record", len(offsets), first)
        if isinstance(policy, DeadLetters):
            reason = "late" if is_late else "bad"
            letters = letters_of(root, self.partition, offsets, reason, errors, records())
            self.given.add(policy.output, letters)

    def _places(self, topic: str, rows: Iterable[Any]) -> list[int]:
        if not isinstance(topic, str) or topic not in self.topics:
            raise TopologyException(
                f"The sub-topology of the processor reads no topic {shown(topic)}; it reads {', '.join(self.topics)}."
            )
        there = self._rows.get(topic)
        expected = f"The rows of {topic!r} must be places in the batch, as numpy.flatnonzero(mask) gives"
        if not isinstance(rows, Iterable):
            raise TopologyException(f"{expected}, not {shown(rows)}.")
        found = [row.as_py() if isinstance(row, pa.Scalar) else row for row in rows]
        for row in found:
            if not is_whole(row):
                raise TopologyException(f"{expected}, but one is of type {type(row).__name__}.")
            if row < 0 or (there is not None and row >= there.num_rows):
                count = "" if there is None else f", which has {counted(there.num_rows, 'row')}"
                raise TopologyException(f"There is no row {row} in the batch of {topic!r}{count}.")
        return [int(row) for row in found]

    def stops_at_bad_records(self) -> bool:
        """The setting `bad_records` is to stop."""
        return self._policies["bad"] == "stop"

    def stops_at_late_records(self) -> bool:
        """The setting `late_records` is to stop."""
        return self._policies["late"] == "stop"

    def _written(self, topic: str, row: int) -> str | None:
        rows = self._rows.get(topic)
        if rows is None:
            return None
        try:
            return as_json(rows.slice(row, 1))[0]
        except Exception:  # noqa: BLE001 - maybe that is what is bad about it
            return None

    # Punctuation.

    def schedule(self, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> None:
        """Have something called again and again. Only `Processor.init` may ask for it.

        "stream_time": called when the newest time of all records of the task reaches a new multiple of the interval, with that time,
        after the record that did it and before the next; the first record does it too. Several multiples at once are one
        call. It depends on the records alone: whatever the batches were and however often one is tried.

        "wall_clock_time": called before a batch, with the time on the client's clock, when the interval has passed since the last
        call, or since the task came to the client, also if somebody has set the clock meanwhile. Where no rows come, a run that goes on (`until`) makes batches without rows for
        it, looked for with every heartbeat; a run that ends when all is read does not. Another try of a batch may call at
        another time, or not at all. Only what the try that is committed did counts.

        Args:
            interval_ms: how often, ms, from 1 to 2**60.
            kind: "stream_time" or "wall_clock_time" (Kafka's `PunctuationType`).
            punctuator: what is called; its rows go to the only output.

        Raises:
            TopologyException: an argument is not allowed.
            InvalidTransitionException: the task has begun: another instance of the processor would not know of it.
        """
        if type(interval_ms) is not int or not 1 <= interval_ms <= FARTHEST_MS:
            raise TopologyException(
                f"The interval_ms ({shown(interval_ms)}) of a schedule must be an int from 1 to {FARTHEST_MS}."
            )
        check_choice("The kind", kind, get_args(PunctuationType), TopologyException, "of a schedule")
        if not callable(punctuator):
            raise TopologyException(f"The punctuator ({shown(punctuator)}) of a schedule must be callable.")
        if not self._may_schedule:
            raise InvalidTransitionException(
                f"Task {self.task_id}", "processing", "a new schedule: only init() may ask"
            )
        self.schedules.append(Schedule(interval_ms, kind, punctuator))

    # Called by the runtime.

    def is_forwarding(self) -> bool:
        """Called by processors of ours: an output is forwarded."""
        return bool(self._forwarding.sources)

    def forwards(self) -> str | None:
        """Called by the runtime: the source of whose records the rows of the only output are made, if that is forwarded."""
        return self._forwarding.sources.get(self.outputs[0]) if len(self.outputs) == 1 else None

    def declared(self) -> tuple[str, pa.Schema, tuple[str, ...]] | None:
        """Called by processors of ours: the only output, what it declares, and which of its columns rows may lack since they are forwarded."""
        schema = self._schemas.get(self.outputs[0]) if len(self.outputs) == 1 else None
        if schema is None:
            return None
        source = self.forwards()
        return self.outputs[0], schema, () if source is None else tuple(self.topics[source].kept_columns)

    def check_forwards(self, batch: Mapping[str, pa.Table]) -> None:
        """Called by processors of ours, which another one may call: what they forward is made of the rows as they came.

        Args:
            batch: what they are given.

        Raises:
            TopologyException: others than those of the batch.
        """
        self._forwarding.check(batch)

    def made(
        self, rows: pa.Table, source: str | None, made_of: npt.ArrayLike, given: Sequence[Mapping[str, Any]] = ()
    ) -> pa.Table:
        """Called by processors of ours with what they return: `forward` knows then of what it is made, unless somebody changes it.

        Args:
            rows: the rows; nobody else knows their memory.
            source: the source of whose records they are made; None: there are none.
            made_of: (N,) of which of its rows.
            given: as what they were given, if they were no table.
        """
        self._forwarding.remember(rows, source, np.asarray(made_of, np.int64), given)
        return rows

    def take(self, rows: pa.Table) -> None:
        """Called by the runtime: add the rows of a ready-made processor to its output; nobody else knows their memory."""
        name = self._output(None)
        if name in self._forwarding.sources:
            self.forward(rows)
        else:
            self.given.add(name, rows)

    def leave_out_unreadable(self, topic: str, unreadable: Sequence[Unreadable]) -> None:
        """Called by the runtime: records of a topic that it reads are no rows, and the setting `bad_records` is not to stop."""
        if unreadable:
            errors = [as_unicode(record.error) for record in unreadable]
            offsets = [record.offset for record in unreadable]
            self._leave_out(topic, offsets, errors, lambda: [as_unicode(record.record) for record in unreadable])

    def renew(self, elapsed_ms: int) -> None:
        """Called by the runtime before `Processor.init`, with the time of a clock that nobody sets."""
        self.schedules, self._may_schedule, self._began_ms, self._has_batch = [], True, elapsed_ms, False
        self._called_ms = {}

    def due_by_clock(self, elapsed_ms: int) -> list[tuple[int, Schedule]]:
        """Called by the runtime: the schedules by the clock that are due, with their numbers."""
        return [
            (number, schedule)
            for number, schedule in enumerate(self.schedules)
            if schedule.kind == "wall_clock_time"
            and elapsed_ms - self._called_ms.get(number, self._began_ms) >= schedule.interval_ms
        ]

    def punctuate_by_clock(self, elapsed_ms: int, now_ms: int) -> None:
        """Called by the runtime before the rows of a batch; the schedules are told what the clock on the wall says."""
        for number, schedule in self.due_by_clock(elapsed_ms):
            self._called_ms[number] = elapsed_ms
            self.punctuate([schedule], now_ms)

    def punctuate(self, due: Sequence[Schedule], time_ms: int | None) -> None:
        """Called by the runtime when schedules are due."""
        # They have no records of which rows could be made.
        self._forwarding.turn_to(self._rows, {})
        for schedule in due:
            assert time_ms is not None
            rows = schedule.punctuator(time_ms)
            if rows is not None:
                self.forward(rows)

    def begin(
        self,
        batch: int,
        offsets: Mapping[str, tuple[int, int]],
        rows: Mapping[str, pa.Table] | None = None,
        row_offsets: Mapping[str, RowOffsets] | None = None,
    ) -> None:
        """Called by the runtime before each batch."""
        self._left_out.tell()
        self.batch, self._may_schedule, self._has_batch = batch, False, True
        self.given = Given()
        self.turn_to(offsets, rows or {}, row_offsets or {})

    def turn_to(
        self,
        offsets: Mapping[str, tuple[int, int]],
        rows: Mapping[str, pa.Table],
        row_offsets: Mapping[str, RowOffsets],
        newest: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({}),
        starts: Mapping[str, int] = MappingProxyType({}),
        times: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({}),
        time_after: int | None = None,
    ) -> None:
        """Called by the runtime before each part of a batch; topics without `row_offsets` have no gaps."""
        self.offsets, self._rows, self._row_offsets = offsets, rows, row_offsets
        self._newest, self._times = newest, times
        self._span = [NO_TIME if time is None else time for time in (self.stream_time, time_after)]
        self._forwarding.turn_to(rows, starts)
        self.stand_at()

    def stand_at(self, topic: str = "", row: int = 0) -> None:
        """Called before a record is processed alone, with its place in the batch's table; without arguments after the last."""
        self._standing = (topic, row) if topic else None
        self.record = (self.root_of(topic), self._offset_of(topic, row)) if topic else None
        self.given.record += bool(topic)
        if topic in self._newest:
            # None of those before it is newer, whatever they are of; those of tables may be newer than what a part comes to.
            newest = max(self._span[0], min(int(self._newest[topic][row]), self._span[1]))
            self.stream_time = None if newest == NO_TIME else newest

    def end(self) -> None:
        """Called by the runtime when the processor is given up."""
        self._has_batch = False
        self._left_out.tell(is_over=True)

    def rest(self) -> None:
        """Called by the runtime before `finish`: what comes now would be lost."""
        self._has_batch = False

    def finish(self) -> tuple[dict[str, list[pa.Table]], dict[str, int]]:
        """Called by the runtime after each batch: output -> tables, and the counters."""
        return self.given.tables(), self.given.counters
