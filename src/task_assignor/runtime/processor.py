"""What users write: `Processor` and `RecordProcessor`. What they are given is in `context`; nothing here runs tasks."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from task_assignor.runtime.blame import line_to_blame, text_of
from task_assignor.runtime.context import TaskContext
from task_assignor.runtime.errors import ProcessorStateException, TaskCorruptedException, TopologyException
from task_assignor.runtime.frames import exact_array, retyped, to_records, without_numpy
from task_assignor.runtime.merging import merged, times_so_far
from task_assignor.runtime.times import times_of
from task_assignor.sdk.text import failure, shown

_NOT_OF_A_RECORD: Final = (MemoryError, ProcessorStateException, TaskCorruptedException)
"""What `process` may raise for no fault of its record: another try may have more luck, and nothing is left out."""
_NEVER_CHANGED: Final = frozenset({int, bool, float, str, bytes, type(None), dt.date, dt.datetime, Decimal})


class Processor(ABC):
    """The work of one task. Each task has its own instance; what must outlast it belongs in stores."""

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
        """Schema of the rows that `process` returns; None: taken from the rows of each batch.

        A column that a row lacks is null in it; one that the schema lacks, and a value that its type cannot hold as it is (1.5 as
        an integer), is an error of the record.
        """
        return None

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Calls `process` for each record."""
        schema = self.output_schema()
        records = {topic: _Records(rows) for topic, rows in batch.items() if rows.num_rows}
        made: list[tuple[str, int, list[Mapping[str, Any]]]] = []
        for topic, row in _in_order_of_time(batch, context):
            context.stand_at(topic, row)
            mark = context.marked()
            try:
                rows = [_kept(given) for given in self.process(topic, records[topic].at(row), context) or ()]
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises: its record is named
                _leave_out(topic, row, error, context, mark)
            else:
                strange = [given for given in rows if not isinstance(given, Mapping)]
                if strange:
                    raise TopologyException(
                        f"What process() of {type(self).__qualname__} gives must be rows, each a mapping of columns to values, not "
                        f"{shown(strange[0])}. Maybe a list around a row: return [row]."
                    )
                made.append((topic, row, rows))
        context.stand_at()
        return _to_table(made, schema, context)


def _kept(value: Any) -> Any:
    """What a user's code gives, as it is now: it may go on with the same dictionaries and lists, and change them."""
    if type(value) is dict or isinstance(value, Mapping):
        return {name: found if type(found) in _NEVER_CHANGED else _kept(found) for name, found in value.items()}
    if isinstance(value, list):
        return [found if type(found) in _NEVER_CHANGED else _kept(found) for found in value]
    if isinstance(value, tuple):
        # A map is a list of pairs, an interval a tuple of its own kind: Arrow takes no lists for them.
        found = tuple(one if type(one) in _NEVER_CHANGED else _kept(one) for one in value)
        return value if all(map(operator.is_, value, found)) else found
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return [_kept(found) for found in value] if value.ndim else _kept(value[()])
    return value.copy() if isinstance(value, (np.ndarray, bytearray, set)) else without_numpy(value)


def _leave_out(topic: str, row: int, error: Exception, context: TaskContext, mark: tuple[int, dict[str, int]]) -> None:
    """A record made trouble; called where its exception is handled."""
    if context.stops_at_bad_records() or isinstance(error, _NOT_OF_A_RECORD):
        raise error
    context.back_to(mark)
    line = line_to_blame(error.__traceback__)
    told = f"cannot be processed: {text_of(error)}" + ("" if line is None else f" ({line})")
    context.leave_out(topic, [row], told)


def _to_table(
    made: list[tuple[str, int, list[Mapping[str, Any]]]], schema: pa.Schema | None, context: TaskContext
) -> pa.Table | None:
    """The rows that came of the records."""
    found = [row for _, _, rows in made for row in rows]
    if not found:
        return None
    inferred = None
    try:
        if schema is not None:
            return _exact_table(found, schema)
        inferred = _inferred(found)
        # Of times that differ in kind Arrow takes the first for all: it cuts the others, or takes them for UTC.
        _exact_columns(found, [field for field in inferred.schema if _is_of_time(field.type)])
        return inferred
    except Exception:  # noqa: BLE001 - whatever does not fit: its record is looked for
        if schema is None:
            schema = _likely(found) if inferred is None else inferred.schema
        tables = [schema.empty_table()]
    for topic, row, rows in made:
        context.stand_at(topic, row)
        try:
            tables.append(_exact_table(rows, schema))
        except Exception as error:  # noqa: BLE001 - whatever does not fit: its record is named
            _leave_out(topic, row, error, context, context.marked())
    context.stand_at()
    return pa.concat_tables(tables)


def _inferred(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows with the columns that Arrow finds."""
    names = dict.fromkeys(name for row in rows for name in row)
    _check_has_columns(names)
    return pa.table({name: _array_of([row.get(name) for row in rows]) for name in names})


def _array_of(values: list[Any]) -> pa.Array:
    """The values as Arrow has them, but what pandas has for nanoseconds as such: Arrow takes it for microseconds and cuts the rest off."""
    found = pa.array(values)
    kind = retyped(found.type, _in_nanoseconds)
    return pa.array(values, kind) if kind != found.type and any(map(_has_nanoseconds, values)) else found


def _likely(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """What the columns are up to the first value that does not go with those before it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(name, _type_of_first([row.get(name) for row in rows])) for name in names])


def _type_of_first(values: list[Any]) -> pa.DataType:
    """The type of as many of the values as have one together, from the first on that has one."""
    known = list(
        itertools.dropwhile(lambda value: _type_of([value]) is None, (one for one in values if one is not None))
    )
    longest = bisect.bisect_left(range(1, len(known)), True, key=lambda count: _type_of(known[: count + 1]) is None)
    return _type_of(known[: longest + 1]) or pa.null()


def _type_of(values: list[Any]) -> pa.DataType | None:
    try:
        return _array_of(values).type
    except Exception:  # noqa: BLE001 - whatever Arrow says of values that it does not take
        return None


def _check_has_columns(names: Collection[str]) -> None:
    """Where no row has one there would be no rows, since nothing but columns says how many there are."""
    if not names:
        raise ValueError("a row has no columns. Maybe return [] where there is none, or declare output_schema()")


def _exact_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as columns of a schema; what they lack is null, and what would be lost is an error."""
    if rows:
        _check_has_columns(schema.names)
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise ValueError(f"a row has columns {sorted(unknown)} that output_schema does not have; it has {schema.names}")
    return pa.table(_exact_columns(rows, schema), schema=schema)


def _exact_columns(rows: Sequence[Mapping[str, Any]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    columns = []
    for field in fields:
        values = [row.get(field.name) for row in rows]
        is_known = not pa.types.is_null(field.type)
        try:
            columns.append(exact_array(values, field.type) if is_known else pa.array(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"is not of type {field.type}" if is_known else "has a type only if output_schema() declares it"
            raise ValueError(f"the column {field.name!r} of a row {what}: {failure(error)}") from error
    return columns


def _is_of_time(kind: pa.DataType) -> bool:
    return any(name in str(kind) for name in ("date", "time"))


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else kind


def _has_nanoseconds(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nanoseconds, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_nanoseconds, value))
    return hasattr(value, "nanosecond") or hasattr(value, "nanoseconds")


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
        newest = [times_so_far(times_of(rows, context.topics[topic].timestamp)) for topic, rows in sources]
        starts = np.cumsum([0, *(rows.num_rows for _, rows in sources)])
        order = merged(newest)
        numbers = np.searchsorted(starts, order, side="right") - 1
        for number, row in zip(numbers.tolist(), (order - starts[numbers]).tolist(), strict=True):
            yield sources[number][0], row
