"""What each operator makes of the rows of one task, by loops over rows: the definition that the runtime is held against."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    SessionWindows,
    SlidingWindows,
    StreamTableJoin,
    TableAggregation,
    TableChanges,
    TableJoin,
    TimeWindows,
    WindowedAggregation,
    WindowedJoin,
)
from tests.runtime.plain_rows import Row, canonical, from_ms, ms_of
from tests.runtime.plain_streams import Given, Input, Read, in_time_order, key_of

Inputs = Mapping[str, Input]
Key = tuple[object, ...]


def kept_of(source: Input) -> list[str]:
    """Columns that say which record it is, and when."""
    return [*source.spec.key, *([] if source.spec.timestamp is None else [source.spec.timestamp])]


def is_deletion(source: Input, row: Row) -> bool:
    """As an update of a table: it has no value."""
    kept = kept_of(source)
    return all(value is None for column, value in row.items() if column not in kept)


# Joins.


def _pair(
    join: Any, sides: tuple[Input, Input], some: tuple[Any, Any], rows: tuple[Row | None, Row | None], key: Row
) -> Row:
    """A row of a join: the key, then the columns of both sides, of which those of the second get another name if it is taken."""
    result = dict(key)
    for side, columns, row, suffix in zip(sides, some, rows, ("", join.suffix), strict=True):
        taken = set(result)
        for column in side.spec.schema.names if columns is None else columns:
            if column not in side.spec.key:
                result[column + suffix if column in taken else column] = None if row is None else row[column]
    return result


def _key_columns(source: Input, row: Row, named_by: Input) -> Row:
    """Values of the key, under the names that another source has for them."""
    return {name: row[own] for name, own in zip(named_by.spec.key, source.spec.key, strict=True)}


def windowed_join(join: WindowedJoin, inputs: Inputs) -> Given:
    """Pairs whose times are near, and rows without a partner when none can come any more; possible are all without a partner."""
    given = Given(possible=[])
    sides = left, right = inputs[join.left], inputs[join.right]
    graces = (join.left_grace_ms, join.right_grace_ms)
    rows: list[list[tuple[int, Key | None, Row]]] = [[], []]
    for side, grace, good in zip(sides, graces, rows, strict=True):
        for read in side.rows:
            if (time := ms_of(read.row, side.spec)) is None:
                given.leave_out(side, read, "bad")
            elif grace is not None and read.newest - time > grace:
                given.leave_out(side, read, "late")
            else:
                good.append((time, key_of(side.spec.key, read.row), read.row))
    columns = (join.left_columns, join.right_columns)
    found: tuple[set[int], set[int]] = (set(), set())
    for one, (time, key, row) in enumerate(rows[0]):
        for other, (other_time, other_key, other_row) in enumerate(rows[1]):
            if key is not None and key == other_key and -join.before_ms <= other_time - time <= join.after_ms:
                given.rows.append(_pair(join, sides, columns, (row, other_row), _key_columns(left, row, left)))
                found[0].add(one)
                found[1].add(other)
    given.possible = list(given.rows)
    # All that a join has read counts, from both sides; but a repartition topic says itself how far it is.
    both = max(left.end, right.end)
    ends = [side.end if side.is_repartitioned else both for side in sides]
    reach = (join.after_ms, join.before_ms)
    for number in {"inner": (), "left": (0,), "outer": (0, 1)}[join.how]:
        grace = graces[1 - number]
        assert grace is not None
        for place, (time, key, row) in enumerate(rows[number]):
            if place not in found[number]:
                one_side = (None, row) if number else (row, None)
                alone = _pair(join, sides, columns, one_side, _key_columns(sides[number], row, left))
                given.possible.append(alone)
                # No row of the future can meet it; with a null in its key it meets none in any case.
                if key is None or time + reach[number] < ends[1 - number] - grace:
                    given.rows.append(alone)
    return given


def stream_table_join(join: StreamTableJoin, inputs: Inputs) -> Given:
    """Each row of the stream with what the table has for its key at that moment; of equal times the table's row comes first."""
    given = Given()
    stream, table = inputs[join.stream], inputs[join.table]
    known: dict[Key | None, Row] = {}
    first = [join.table] if join.table_first else []
    for name, read in in_time_order({join.table: table, join.stream: stream}, first):
        key = key_of(inputs[name].spec.key, read.row)
        if name == join.stream:
            found = known.get(key)
            if found is not None or join.how == "left":
                sides, columns = (stream, table), (join.stream_columns, join.table_columns)
                pair = _pair(join, sides, columns, (read.row, found), _key_columns(stream, read.row, stream))
                given.rows.append(pair)
                given.made_of.append(read)
        elif key is None:
            given.leave_out(table, read, "bad")
        else:
            _update(known, key, table, read.row)
    return given


def forwarded_join(join: StreamTableJoin, inputs: Inputs) -> Given:
    """The same for those who read it in the same tasks: rows have the time of the stream's record, also if it is not among the columns."""
    given = stream_table_join(join, inputs)
    kept = kept_of(inputs[join.stream])
    for row, read in zip(given.rows, given.made_of, strict=True):
        row.update({column: read.row[column] for column in kept})
    return given


def _update(known: dict[Any, Row], key: Key, table: Input, row: Row) -> None:
    if is_deletion(table, row):
        known.pop(key, None)
    else:
        known[key] = row


def table_join(join: TableJoin, inputs: Inputs) -> Given:
    """A row for each update of either side: what both have now, or that there is nothing any more."""
    given = Given()
    sides = left, right = inputs[join.left], inputs[join.right]
    known: tuple[dict[Key, Row], dict[Key, Row]] = ({}, {})

    def present(key: Key) -> tuple[Row | None, Row | None] | None:
        one, other = known[0].get(key), known[1].get(key)
        counts = {"inner": one is not None and other is not None, "left": one is not None, "outer": bool(one or other)}
        return (one, other) if counts[join.how] else None

    for name, read in in_time_order({join.left: left, join.right: right}):
        source = inputs[name]
        if (key := key_of(source.spec.key, read.row)) is None:
            given.leave_out(source, read, "bad")
            continue
        before = present(key)
        _update(known[name == join.right], key, source, read.row)
        after = present(key)
        if after or before:
            columns = (join.left_columns, join.right_columns)
            given.rows.append(_pair(join, sides, columns, after or (None, None), _key_columns(source, read.row, left)))
    return given


def table_changes(changes: TableChanges, inputs: Inputs) -> Given:
    """The row that was there with -1, the one that is there now with 1; both have the time of the update."""
    given = Given()
    (table,) = inputs.values()
    known: dict[Key, Row] = {}
    for read in table.rows:
        if (key := key_of(table.spec.key, read.row)) is None:
            given.leave_out(table, read, "bad")
        else:
            time = {column: read.row[column] for column in kept_of(table) if column not in table.spec.key}
            before = known.get(key)
            _update(known, key, table, read.row)
            for row, change in ((before, -1), (known.get(key), 1)):
                if row is not None:
                    given.rows.append({**row, **time, changes.change: change})
    return given


# Aggregates.


def _aggregate(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    """Of some rows; nulls are left out."""
    values: list[Any] = [row if aggregate.column is None else row[aggregate.column] for row in rows]
    values = [value for value in values if value is not None]
    match aggregate.kind:
        case "count":
            return len(values)
        case "fold":
            assert aggregate.function is not None
            return functools.reduce(aggregate.function, rows, aggregate.initial)
        case "mean":
            return float(sum(values)) / len(values) if values else None
    smallest_and_so_on: dict[str, Callable[[Any], Any]] = {"sum": sum, "min": min, "max": max}
    return smallest_and_so_on[aggregate.kind](values) if values else None


def _group(by: Sequence[str], aggregates: Mapping[str, Aggregate], rows: Sequence[Row]) -> Row:
    """The row of a group."""
    return {**{name: rows[0][name] for name in by}, **{name: _aggregate(one, rows) for name, one in aggregates.items()}}


def _groups(by: Sequence[str], source: Input, given: Given) -> list[list[Row]]:
    """Rows with equal values; with a null among these they are bad."""
    groups = defaultdict[Key, list[Row]](list)
    for read in source.rows:
        if (key := key_of(by, read.row)) is None:
            given.leave_out(source, read, "bad")
        else:
            groups[key].append(read.row)
    return list(groups.values())


def aggregation(what: Aggregation, inputs: Inputs) -> Given:
    """The last row of each group."""
    given = Given()
    (source,) = inputs.values()
    by = what.by or source.spec.key
    given.rows = [_group(by, what.aggregates, rows) for rows in _groups(by, source, given)]
    return given


def table_aggregation(what: TableAggregation, inputs: Inputs) -> Given:
    """The last row of each group: what has gone is as if it had never come. Groups without rows are none."""
    given = Given()
    (source,) = inputs.values()
    by = what.by or source.spec.key
    columns = sorted({*by, *(one.column for one in what.aggregates.values() if one.column)})
    for changes in _groups(by, source, given):
        left, count = dict[object, Row](), defaultdict[object, int](int)
        for row in changes:
            same = tuple(canonical(row[column]) for column in columns)
            left[same] = row
            count[same] += row[what.change]
        rows = [row for same, row in left.items() for _ in range(count[same])]
        given.rows += [_group(by, what.aggregates, rows)] if rows else []
    return given


def windowed_aggregation(what: WindowedAggregation, inputs: Inputs) -> Given:
    """The windows that are closed at the end; possible are all that there are."""
    given = Given(possible=[])
    assert given.possible is not None
    (source,) = inputs.values()
    by, windows, grace = what.by or source.spec.key, what.windows, what.grace_ms
    groups = defaultdict[Key, list[tuple[int, Read]]](list)
    for read in source.rows:
        time, key = ms_of(read.row, source.spec), key_of(by, read.row)
        if time is None or key is None:
            given.leave_out(source, read, "bad")
            continue
        if isinstance(windows, TimeWindows):
            # It still counts in those of its windows that are open.
            is_late = any(read.newest >= start + windows.size_ms + grace for start in _starts(windows, time))
            groups[key].append((time, read))
        elif not (is_late := read.newest - time > grace):
            groups[key].append((time, read))
        if is_late:
            given.leave_out(source, read, "late")
    for rows in groups.values():
        for start, end, inside, closed_at in _windows(what, rows):
            window = {"window_start": from_ms(start, source.spec), "window_end": from_ms(end, source.spec)}
            row = {**_group(by, what.aggregates, inside), **window}
            given.possible.append(row)
            given.rows += [row] if source.end >= closed_at else []
    return given


def _starts(windows: TimeWindows, time: int) -> list[int]:
    """Of the windows that a time is in."""
    advance = windows.advance_ms or windows.size_ms
    newest = time // advance * advance
    return list(range(newest, time - windows.size_ms, -advance))


def _windows(what: WindowedAggregation, rows: Sequence[tuple[int, Read]]) -> Iterator[tuple[int, int, list[Row], int]]:
    """A group's windows: begin, end, what is inside, and the time at which they are closed."""
    grace = what.grace_ms
    match what.windows:
        case TimeWindows(size_ms=size) as windows:
            inside = defaultdict[int, list[Row]](list)
            for time, read in rows:
                for start in _starts(windows, time):
                    if read.newest < start + size + grace:
                        inside[start].append(read.row)
            for start, found in inside.items():
                yield start, start + size, found, start + size + grace
        case SlidingWindows(time_difference_ms=difference):
            times = {time for time, _ in rows}
            # One ends with each record, one begins right after it.
            for last in sorted(times | {time + 1 + difference for time in times}):
                found = [read.row for time, read in rows if last - difference <= time <= last]
                if found:
                    yield last - difference, last, found, last + grace + 1
        case SessionWindows(gap_ms=gap):
            ordered = sorted(rows, key=lambda one: one[0])
            begins = [
                place for place, (time, _) in enumerate(ordered) if not place or time - ordered[place - 1][0] > gap
            ]
            for begin, end in itertools.pairwise([*begins, len(ordered)]):
                first, last = ordered[begin][0], ordered[end - 1][0]
                yield first, last, [read.row for _, read in ordered[begin:end]], last + gap + grace + 1
