"""What users write: `Processor` and `RecordProcessor`. What they are given is in `context`; nothing here runs tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import no_rows, to_records
from task_assignor.runtime.blame import text_with_line
from task_assignor.runtime.errors import ProcessorStateException, TaskCorruptedException, TopologyException
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.given import Mark
from task_assignor.runtime.topology.rows import check_times, declared_table, exact_table, inferred, kept, likely
from task_assignor.sdk.text import shown

NOT_OF_A_RECORD: Final = (ImportError, MemoryError, ProcessorStateException, TaskCorruptedException)
"""What `process` may raise for no fault of its record: another try, or one where a module is, may have more luck, and nothing is left out."""


class _Made(NamedTuple):
    """What came of a record."""

    topic: str
    row: int
    record: int
    """Its number, `Given.record`."""
    rows: list[Mapping[str, Any]]
    done: tuple[Mark, Mark] | None
    """Between which marks it forwarded or counted something, if it did."""


class Processor(ABC):
    """The work of a sub-topology in one task. Each task has its own instance; what must outlast it belongs in stores."""

    def init(self, context: TaskContext) -> None:
        """Called once, when the task's stores are ready and before its first batch. Does nothing by default."""

    @abstractmethod
    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Process the new rows of all sources.

        The same batch may be given again to another instance if a client is lost before the commit: the result must
        depend on rows and stores alone.

        Args:
            batch: source topic -> its new rows in offset order, possibly none.
            context: stores, task, offsets; `context.forward` for several outputs.

        Returns:
            Rows for the only output; None: no rows (or all were forwarded).
        """

    def close(self) -> None:
        """Called when the task leaves this client. Does nothing by default."""


class RecordProcessor(Processor):
    """For logic that is clearer row by row, and a hundred times slower: `process` sees one record at a time.

    The records of a task come in the order of their times, whatever source they are from, and wherever micro-batches are
    cut (`merging` says how). Of equal times those of the source that the sub-topology names first come first. Within a
    source they stay in offset order, as in Kafka Streams: a record that is older than the one before it, or has no time,
    comes as soon as that one has been. So a topic without a timestamp column comes first.

    A record at which `process` raises is treated as the setting `bad_records` of the sub-topology says. What it had
    returned, forwarded and counted is forgotten then; what it had changed in stores stays. A store that cannot be read or a
    lack of memory is no fault of the record: the batch is given up.
    """

    @abstractmethod
    def process(
        self, topic: str, record: Mapping[str, Any], context: TaskContext
    ) -> Iterable[Mapping[str, Any]] | None:
        """Process one record.

        Args:
            topic: where it comes from.
            record: column -> value.
            context: stores, task, offsets.

        Returns:
            Rows for the only output, or None.
        """

    def output_schema(self) -> pa.Schema | None:
        """Schema of the rows that `process` returns; None: what the only output declares, else taken from the rows of each batch.

        A column that a row lacks is null in it; one that the schema lacks, and a value that its type cannot hold as it is (1.5 as
        an integer), is an error of the record.
        """
        return None

    def _declared_columns(self) -> pa.Schema | None:
        if not callable(self.output_schema):
            raise TopologyException(
                f"The output_schema of {type(self).__qualname__} must be a method. Maybe def output_schema(self): return "
                "pyarrow.schema(...)."
            )
        return self.output_schema()

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Calls `process` for each record."""
        schema = self._declared_columns()
        context.check_forwards(batch)
        records = {topic: _Records(rows) for topic, rows in batch.items() if rows.num_rows}
        source = context.forwards()
        made: list[_Made] = []
        for topic, row in _in_order_of_time(batch, context):
            context.stand_at(topic, row)
            mark = context.given.marked()
            try:
                given = self.process(topic, records[topic].at(row), context)
                rows = (
                    [] if given is None else [kept(one) for one in (given if hasattr(given, "__iter__") else [given])]
                )
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises: its record is named
                _leave_out(topic, row, error, context, mark)
            else:
                strange = [one for one in rows if not isinstance(one, Mapping)]
                if strange:
                    raise TopologyException(
                        f"What process() of {type(self).__qualname__} gives must be rows, each a mapping of columns to values, not "
                        f"{shown(strange[0])}. Maybe a list around a row: return [row]."
                    )
                if rows and source not in (None, topic):
                    raise TopologyException(
                        f"process() of {type(self).__qualname__} gives rows for a record of {topic!r}, but what it forwards is made of "
                        f"records of {source!r}."
                    )
                if rows:
                    made.append(_Made(topic, row, context.given.record, rows, context.given.done_since(mark)))
        context.stand_at()
        return _to_table(made, schema, context)


def _leave_out(topic: str, row: int, error: Exception, context: TaskContext, mark: Mark) -> None:
    """A record made trouble; called where its exception is handled."""
    _raise_if_it_stops(error, context)
    context.given.back_to(mark)
    context.leave_out(topic, [row], _why(error))


def _raise_if_it_stops(error: Exception, context: TaskContext) -> None:
    if context.stops_at_bad_records() or isinstance(error, NOT_OF_A_RECORD):
        raise error


def _why(error: Exception) -> str:
    return f"cannot be processed: {text_with_line(error)}"


def _to_table(made: list[_Made], schema: pa.Schema | None, context: TaskContext) -> pa.Table | None:
    """The rows that came of the records; those of which they do not fit are left out."""
    found = [row for one in made for row in one.rows]
    if not found:
        return None
    table = None
    declared = context.declared() if schema is None else None
    try:
        if schema is not None:
            return _known(exact_table(found, schema), made, context)
        if declared is not None:
            return _known(declared_table(found, *declared), made, context)
        table = inferred(found)
        check_times(found, table.schema)
        return _known(table, made, context)
    except Exception:  # noqa: BLE001 - whatever does not fit: its record is looked for
        if schema is None and declared is None:
            schema = likely(found) if table is None else table.schema
        tables = [] if schema is None else [no_rows(schema)]
    fitting: list[_Made] = []
    bad: list[tuple[_Made, str]] = []
    for one in made:
        context.stand_at(one.topic, one.row)
        try:
            # What is declared decides about each record alone, whatever others of the batch have.
            tables.append(
                declared_table(one.rows, *declared) if declared is not None else exact_table(one.rows, schema)
            )
            fitting.append(one)
        except Exception as error:  # noqa: BLE001 - whatever does not fit: its record is named
            _raise_if_it_stops(error, context)
            bad.append((one, _why(error)))
    context.stand_at()
    for one, _ in reversed(bad):
        if one.done is not None:
            context.given.forget(*one.done)
    for one, why in bad:
        context.leave_out(one.topic, [one.row], why)
    if not tables:
        return None
    return _known(pa.concat_tables(tables, promote_options="default"), fitting, context)


def _known(table: pa.Table, made: list[_Made], context: TaskContext) -> pa.Table:
    """The rows that came of records; the context knows of which."""
    context.given.remember(table, np.array([one.record for one in made for _ in one.rows], np.int64))
    if context.is_forwarding():
        sources = {one.topic for one in made}
        if len(sources) <= 1:
            made_of = np.array([one.row for one in made for _ in one.rows], np.int64)
            given = [row for one in made for row in one.rows]
            context.made(table, next(iter(sources), None), made_of, given)
    return table


class _Records:
    """The rows of a table as dictionaries; one that cannot be made into one raises when it is asked for."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._records: list[dict[str, Any]] | None
        try:
            self._records = to_records(rows)
        except Exception:  # noqa: BLE001 - a time that Python does not know, a text that is none: found at its row
            self._records = None

    def at(self, row: int) -> dict[str, Any]:
        if self._records is not None:
            return self._records[row]
        return to_records(self._rows.slice(row, 1))[0]


def _in_order_of_time(batch: Mapping[str, pa.Table], context: TaskContext) -> Iterator[tuple[str, int]]:
    """(topic, row) of all records, ordered as `RecordProcessor` says."""
    sources = [(topic, rows) for topic, rows in batch.items() if rows.num_rows]
    if len(sources) == 1:
        ((topic, rows),) = sources
        yield from ((topic, row) for row in range(rows.num_rows))
    elif sources:
        places = np.concatenate([*context.in_time_order(dict(sources)).values()])
        starts = np.cumsum([0, *(rows.num_rows for _, rows in sources)])
        order = np.empty_like(places)
        order[places] = np.arange(len(places))
        numbers = np.searchsorted(starts, order, side="right") - 1
        for number, row in zip(numbers.tolist(), (order - starts[numbers]).tolist(), strict=True):
            yield sources[number][0], row
