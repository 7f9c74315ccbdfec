"""Processors of a user's in random topologies, and beside each what it must give, computed plainly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime import Processor, RecordProcessor, TaskContext
from tests.runtime.plain_operators import Inputs, is_deletion, kept_of
from tests.runtime.plain_rows import Row, canonical
from tests.runtime.plain_streams import Given, in_time_order

IDS = pa.schema([("id", pa.int64())])
PLACES = pa.schema([("source", pa.string()), ("id", pa.int64()), ("number", pa.int64())])
TOLD = pa.schema([*PLACES, ("of_key", pa.int64()), ("before", pa.int64()), ("recent", pa.string())])


# What is derived.


def odd(rows: pa.Table) -> pa.ChunkedArray:
    """Rows with odd ids."""
    return pc.equal(pc.bit_wise_and(rows.column("id"), 1), 1)


def negated(rows: pa.Table) -> pa.Table:
    """The id alone, and its negative."""
    return pa.table({"id": rows.column("id"), "negated": pc.negate(rows.column("id"))})


def derive(keeps: Callable[[int], bool] | None, is_mapped: bool, is_table: bool, inputs: Inputs) -> Given:
    """What is left out of a table deletes its key."""
    given = Given()
    (source,) = inputs.values()
    for read in source.rows:
        kept = {column: read.row[column] for column in kept_of(source)}
        number = read.row["id"]
        is_left_out = keeps is not None and (number is None or not keeps(number))
        if is_left_out and not is_table:
            continue
        row = read.row
        if is_mapped:
            row = {"id": number, "negated": None if number is None else -number, **kept}
        if is_table and (is_left_out or is_deletion(source, read.row)):
            row = {**dict.fromkeys(row), **kept}
        given.rows.append(row)
        given.made_of.append(read)
    return given


# What is forwarded.


class Several(RecordProcessor):
    """Forwards records not at all, once or several times."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Row] | None:
        """As often as the id says; one of three negated, by `forward`."""
        number = record["id"]
        if number is None:
            return None
        if number % 3 == 0:
            context.forward({"id": -number})
        return [{"id": number}] * (number % 3)


class Some(Processor):
    """Forwards some records of a batch, in the order of their places."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Say of which they are made."""
        (rows,) = batch.values()
        made_of = [place for place, number in enumerate(rows.column("id").to_pylist()) if _is_forwarded(number)]
        # The last first: their order is that of what they are made of in any case.
        made_of.reverse()
        context.forward(pa.table({"id": rows.column("id").take(pa.array(made_of, pa.int64()))}), made_of=made_of)


def _is_forwarded(number: int | None) -> bool:
    return number is not None and number % 4 != 1


def forward(is_several: bool, inputs: Inputs) -> Given:
    """Rows have key and time of the record that they are made of."""
    given = Given()
    (source,) = inputs.values()
    for read in source.rows:
        number = read.row["id"]
        if is_several:
            numbers = [] if number is None else [-number] * (number % 3 == 0) + [number] * (number % 3)
        else:
            numbers = [number] * _is_forwarded(number)
        for made in numbers:
            given.rows.append({"id": made, **{column: read.row[column] for column in kept_of(source)}})
            given.made_of.append(read)
    return given


# What goes to other tasks.


def _new_key(number: int | None) -> str | None:
    return None if number is None or number % 11 == 10 else f"g{number % 5}"


class Rekeyed(Processor):
    """Gives all rows another key, and the ids to a second output, if there is one."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Add a column."""
        (rows,) = batch.values()
        keys = pa.array(map(_new_key, rows.column("id").to_pylist()), pa.string())
        first, *others = context.outputs
        context.forward(rows.add_column(0, "k2", keys), first)
        for other in others:
            context.forward(rows.select(["id"]), other)


def rekey(inputs: Inputs) -> Given:
    """The same rows."""
    (source,) = inputs.values()
    rows = [read.row for read in source.rows]
    return Given([{"k2": _new_key(row["id"]), **row} for row in rows], more=[{"id": row["id"]} for row in rows])


class All(Processor):
    """Gives what it reads: so a source that nobody else reads is seen."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """As it is."""
        (rows,) = batch.values()
        return rows


def read_all(inputs: Inputs) -> Given:
    """The same rows."""
    (source,) = inputs.values()
    return Given([read.row for read in source.rows])


# What depends on the order.


class Told(RecordProcessor):
    """Numbers its records, by key too, and says what it remembers.

    Args:
        name: of its sub-topology.
        keys: source -> its key columns.
    """

    def __init__(self, name: str, keys: Mapping[str, Sequence[str]]) -> None:
        self._name = name
        self._keys = keys

    def init(self, context: TaskContext) -> None:
        """Take the stores."""
        self._counts = context.key_value_store(f"{self._name}-counts")
        self._recent = context.key_value_store(f"{self._name}-recent")

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterator[Row]:
        """Count, remember, and forget at times; a bad record leaves no trace, whatever was forwarded for it."""
        number, key = _number_of(record), repr([record[column] for column in self._keys[topic]])
        if number % 13 == 7:
            context.forward({"source": "nothing"})
            raise ValueError("thirteen")
        count, of_key = self._add(""), self._add(key)
        before = self._counts.get("last")
        self._counts.put("last", {"count": number})
        self._recent.put((key, number), {"count": count})
        found = list(self._recent.prefix_scan((key,), reverse=True))
        if count % 5 == 0:
            self._recent.delete(found[-1][0])
        where = {"source": topic, "id": record["id"], "number": count}
        recent = ",".join(str(value["count"]) for _, value in found)
        yield {**where, "of_key": of_key, "before": None if before is None else before["count"], "recent": recent}

    def _add(self, what: str) -> int:
        count: int = (self._counts.get(what) or {"count": 0})["count"] + 1
        self._counts.put(what, {"count": count})
        return count


def _number_of(record: Mapping[str, Any]) -> int:
    return -1 if record["id"] is None else int(record["id"])


def tell(tables: Sequence[str], inputs: Inputs) -> Given:
    """The same with dictionaries."""
    given = Given()
    of_key = defaultdict[object, int](int)
    recent = defaultdict[object, dict[int, int]](dict)
    count, before = 0, None
    for name, read in in_time_order(inputs, tables):
        source = inputs[name]
        number, key = _number_of(read.row), tuple(canonical(read.row[column]) for column in source.spec.key)
        if number % 13 == 7:
            given.leave_out(source, read, "bad")
            continue
        count += 1
        of_key[key] += 1
        recent[key][number] = count
        known = ",".join(str(at) for _, at in sorted(recent[key].items(), reverse=True))
        if count % 5 == 0:
            del recent[key][min(recent[key])]
        where = {"source": name, "id": read.row["id"], "number": count}
        given.rows.append({**where, "of_key": of_key[key], "before": before, "recent": known})
        before = number
    return given


class Places(Processor):
    """Numbers the rows of its batches in the order of time; odd numbers go to its first output, even ones to the second.

    Args:
        name: of its sub-topology.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def init(self, context: TaskContext) -> None:
        """Take the store."""
        self._numbers = context.key_value_store(f"{self._name}-numbers")

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Leave some out, number the others."""
        ids = {name: rows.column("id").to_pylist() for name, rows in batch.items()}
        for name, numbers in ids.items():
            context.leave_out(name, [place for place, number in enumerate(numbers) if _is_bad(number)], "is not liked")
        places = context.in_time_order(batch)
        ordered = sorted(
            (at, name, number) for name in ids for at, number in zip(places[name].tolist(), ids[name], strict=True)
        )
        last = (self._numbers.get("") or {"count": 0})["count"]
        rows: list[Row] = []
        for _, name, number in ordered:
            if not _is_bad(number):
                rows.append({"source": name, "id": number, "number": last + len(rows) + 1})
        for output, rest in zip(context.outputs, (1, 0), strict=True):
            mine = [row for row in rows if row["number"] % 2 == rest]
            context.forward(pa.Table.from_pylist(mine, PLACES), output)
        self._numbers.put("", {"count": last + len(rows)})


def _is_bad(number: int | None) -> bool:
    return number is not None and number % 17 == 3


def place(inputs: Inputs) -> Given:
    """The same over all rows at once."""
    given = Given()
    count = 0
    for name, read in in_time_order(inputs):
        if _is_bad(read.row["id"]):
            given.leave_out(inputs[name], read, "bad")
            continue
        count += 1
        rows = given.rows if count % 2 else given.more
        rows.append({"source": name, "id": read.row["id"], "number": count})
    return given
