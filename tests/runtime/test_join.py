"""The windowed join: exact whatever the batches, the order of arrival, and the moment of a restore are."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    BadRecordException,
    DeadLetters,
    LateRecordException,
    TopicSpec,
    TopologyException,
    WindowedJoin,
)
from task_assignor.runtime.processors.matching import TimedRows
from task_assignor.runtime.topology.bad_records import LeftOut
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of

Row = tuple[int | None, int, str]


def _spec(name: str, schema: pa.Schema) -> TopicSpec:
    return TopicSpec(name, 4, schema, ("k",), "at")


SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


_table = partial(table_of, SCHEMA)


@st.composite
def logs(draw: st.DrawFn, side: str) -> tuple[list[Row], int]:
    """A log whose records are out of order by at most the given grace."""
    grace = draw(st.sampled_from([0, 0, 3, 20]))
    rows: list[Row] = []
    newest = 0
    for number in range(draw(st.integers(0, 25))):
        newest += draw(st.sampled_from([0, 0, 1, 2, 7]))
        time = newest - draw(st.integers(0, grace))
        rows.append((draw(st.sampled_from([1, 2, 3, None])), time, f"{side}{number}"))
        newest = max(newest, time)
    return rows, grace


def Task(join: WindowedJoin, topics: Mapping[str, TopicSpec]) -> MemoryTask:  # noqa: N802
    """A task of a join."""
    return MemoryTask(join.sub_topology("j", "out"), topics)


@given(st.data(), logs("l"), logs("r"), st.integers(-3, 8), st.integers(0, 8), st.integers(1, 8), st.booleans())
@settings(max_examples=examples(40))
def test_result_is_that_of_a_plain_loop_whatever_the_batches(
    data: st.DataObject,
    left: tuple[list[Row], int],
    right: tuple[list[Row], int],
    before: int,
    width: int,
    most: int,
    keep_everything: bool,
) -> None:
    """In between the task may move."""
    after = width - before
    (left_rows, left_grace), (right_rows, right_grace) = left, right
    join = WindowedJoin(
        left="l",
        right="r",
        before_ms=before,
        after_ms=after,
        left_grace_ms=None if keep_everything else left_grace,
        right_grace_ms=None if keep_everything else right_grace,
    )
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    task.run(data, {"l": _table(left_rows), "r": _table(right_rows)}, most)
    found = task.outputs.get("out", [])
    expected = [
        {"k": k, "at": lt, "v": lv, "at_right": rt, "v_right": rv}
        for k, lt, lv in left_rows
        for rk, rt, rv in right_rows
        if k is not None and k == rk and -before <= rt - lt <= after
    ]
    assert sorted(expected, key=str) == sorted(found, key=str)
    nulls = sum(row[0] is None for row in [*left_rows, *right_rows])
    assert task.counters.get("null_key", 0) == nulls


@given(
    st.data(),
    logs("l"),
    logs("r"),
    st.integers(-3, 8),
    st.integers(0, 8),
    st.integers(1, 8),
    st.sampled_from(["left", "outer"]),
)
@settings(max_examples=examples(40))
def test_rows_without_a_partner_come_once_when_their_window_is_closed(
    data: st.DataObject,
    left: tuple[list[Row], int],
    right: tuple[list[Row], int],
    before: int,
    width: int,
    most: int,
    how: str,
) -> None:
    """And not before: after the last batch just those are missing whose window is open then."""
    after = width - before
    (left_rows, left_grace), (right_rows, right_grace) = left, right
    join = WindowedJoin(
        left="l",
        right="r",
        before_ms=before,
        after_ms=after,
        how=how,
        left_grace_ms=left_grace,
        right_grace_ms=right_grace,
    )
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    task.run(data, {"l": _table(left_rows), "r": _table(right_rows)}, most)
    found = task.outputs.get("out", [])
    pairs = [
        (one, other)
        for one in left_rows
        for other in right_rows
        if one[0] is not None and one[0] == other[0] and -before <= other[1] - one[1] <= after
    ]
    expected = [
        {"k": one[0], "at": one[1], "v": one[2], "at_right": other[1], "v_right": other[2]} for one, other in pairs
    ]
    now = max((row[1] for row in [*left_rows, *right_rows]), default=0)
    left_closed, right_closed = now - right_grace - after, now - left_grace - before
    met_left, met_right = {one[2] for one, _ in pairs}, {other[2] for _, other in pairs}
    expected += [
        {"k": k, "at": at, "v": v, "at_right": None, "v_right": None}
        for k, at, v in left_rows
        if v not in met_left and (k is None or at < left_closed)
    ]
    if how == "outer":
        expected += [
            {"k": k, "at": None, "v": None, "at_right": at, "v_right": v}
            for k, at, v in right_rows
            if v not in met_right and (k is None or at < right_closed)
        ]
    assert sorted(expected, key=str) == sorted(found, key=str)


KEYS = [
    pa.array([1, 2, 3]),
    pa.array([1, -(1 << 63), (1 << 63) - 1]),
    pa.array(["a", "b"]),
    pa.array([b"", b"x"]),
    *(pa.array([math.nan, -math.nan, 0.0, -0.0, 1.5], kind) for kind in (pa.float32(), pa.float64())),
]


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("values", KEYS, ids=[f"{keys.type}-{keys[1]}" for keys in KEYS])
def test_rows_find_their_partners_whatever_the_buckets_are(values: pa.Array, second: bool) -> None:
    """As each row with each other one says; keys that share a bucket, many rows of a key, rows that are gone, negative times."""
    keys = ["k", "n"] if second else ["k"]

    def rows(chance: random.Random, are_sorted: bool) -> pa.Table:
        number = chance.randrange(40)
        times = [chance.randint(-30, 30) for _ in range(number)]
        return pa.table(
            {
                "k": values.take(pa.array([chance.randrange(len(values)) for _ in range(number)], pa.int64())),
                "t": pa.array(sorted(times) if are_sorted else times, pa.int64()),
                "n": pa.array([chance.randrange(2) for _ in range(number)], pa.int64()),
            }
        )

    def plain(table: pa.Table) -> list[tuple[tuple[Any, ...], int]]:
        columns = [["NaN" if key != key else key for key in table[name].to_pylist()] for name in keys]
        return list(zip(zip(*columns, strict=True), table["t"].to_pylist(), strict=True))

    pairs = 0
    for seed in range(examples(40)):
        chance = random.Random(seed)
        before, start = chance.randint(-5, 9), chance.choice([0, 0, chance.randint(1, 12)])
        after = chance.randint(0, 9) - before
        few, many = (rows(chance, are_sorted=start > 0) for _ in range(2))  # only rows in order lose their first ones
        others = TimedRows(many, keys, "t")[start:]
        mine, theirs = TimedRows(few, keys, "t").pairs(others, before, after)
        left = many.slice(start)
        assert str(others.rows.to_pydict()) == str(left.to_pydict())
        expected = [
            (one, other)
            for one, (key, time) in enumerate(plain(few))
            for other, (k, t) in enumerate(plain(left))
            if key == k and -before <= t - time <= after
        ]
        assert sorted(zip(mine.tolist(), theirs.tolist(), strict=True)) == expected, seed
        pairs += len(expected)
    assert pairs > 100, "few of them find any"


def test_a_hot_key_does_not_build_all_its_pairs() -> None:
    """Two times 60 000 rows with one key are 3.6 billion pairs; with a window of 1 ms a few are near."""
    join = WindowedJoin(left="l", right="r", before_ms=1, after_ms=0)
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    rows = _table([(7, 2 * number, "x") for number in range(60_000)])
    result = task.process({"l": rows, "r": rows})
    assert result is not None
    assert result.num_rows == 60_000


def test_buffers_stay_as_small_as_the_window_allows() -> None:
    """Of 20 000 rows with a window of 20 ms a few hundred are kept."""
    join = WindowedJoin(left="l", right="r", before_ms=10, after_ms=10)
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    most = 0
    for start in range(0, 10_000, 100):
        rows = _table([(number % 7, number, "x") for number in range(start, start + 100)])
        task.process({"l": rows, "r": rows})
        most = max(most, task.held())
    assert most <= 500


def letters(task: MemoryTask) -> list[dict[str, Any]]:
    return task.outputs.get("letters", [])


def _late(policy: LeftOut) -> MemoryTask:
    join = WindowedJoin(left="l", right="r", before_ms=10, after_ms=10, left_grace_ms=5, late_records=policy)
    return Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})


LATE: list[Row] = [(1, 100, "a"), (1, 95, "b"), (1, 94, "late"), (1, 101, "c"), (1, 90, "later")]


@pytest.mark.parametrize("cut", range(6))
def test_a_late_record_is_an_error_with_its_place_wherever_the_batch_begins(cut: int) -> None:
    task = _late("stop")
    batches = [{"l": _table(rows), "r": _table([])} for rows in (LATE[:cut], LATE[cut:])]
    with pytest.raises(LateRecordException) as caught:
        deque(map(task.process, batches))
    assert "The record l, partition 3, offset 2 is 6 ms older than a record before it; 5 ms are allowed" in str(
        caught.value
    )


@pytest.mark.parametrize("cut", range(6))
def test_late_records_can_be_left_out_and_are_counted(cut: int) -> None:
    task = _late("skip")
    found: list[str] = []
    for rows, others in ((LATE[:cut], [(1, 98, "r")]), (LATE[cut:], [])):
        result = task.process({"l": _table(rows), "r": _table(others)})
        found += [] if result is None else result.column("v").to_pylist()
    assert (sorted(found), task.counters) == (["a", "b", "c"], {"late": 2})


def test_late_records_can_be_kept_aside() -> None:
    task = _late(DeadLetters("letters"))
    task.process({"l": _table(LATE), "r": _table([])})
    assert task.counters == {"late": 2}
    common = {"topic": "l", "partition": 3, "reason": "late"}
    assert letters(task) == [
        {
            **common,
            "offset": 2,
            "error": "is 6 ms older than a record before it; 5 ms are allowed",
            "record": '{"k": 1, "at": 94, "v": "late"}',
        },
        {
            **common,
            "offset": 4,
            "error": "is 11 ms older than a record before it; 5 ms are allowed",
            "record": '{"k": 1, "at": 90, "v": "later"}',
        },
    ]


def test_records_without_a_time_can_be_left_out() -> None:
    join = WindowedJoin(left="l", right="r", before_ms=1, after_ms=1, bad_records=DeadLetters("letters"))
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    times = pa.array([None, 5, 2**62, None], pa.int64())
    rows = _table([(1, 0, "a"), (1, 5, "b"), (1, 0, "c"), (1, 0, "d")]).set_column(1, "at", times)
    result = task.process({"l": rows, "r": _table([(1, 5, "r")])})
    assert result is not None
    assert (result.column("v").to_pylist(), task.counters) == (["b"], {"bad_records": 3})
    assert [(letter["offset"], letter["error"], letter["reason"]) for letter in letters(task)] == [
        (0, "has no at", "bad"),
        (2, f"has a at of {2**62} (int64), which is no time", "bad"),
        (3, "has no at", "bad"),
    ]


@pytest.mark.parametrize("cut", range(5))
def test_one_time_in_the_far_future_does_not_make_the_rest_disappear(cut: int) -> None:
    """Everything after it would be late, and was dropped without a word."""
    far = 4_000_000_000_000
    rows: list[Row] = [(1, 100, "a"), (1, far, "typo"), (1, 101, "b"), (1, 102, "c")]
    task = _late("skip")
    with pytest.raises(LateRecordException) as caught:
        deque(task.process({"l": _table(part), "r": _table([])}) for part in (rows[:cut], rows[cut:]))
    culprit = "a record of another source or an earlier batch" if cut == 2 else "offset 1"
    assert f"l, partition 3, offset 2 is {far - 101} ms older than a record before it" in str(caught.value)
    assert f"The newest before it is {culprit}. " in str(caught.value)
    assert "set late_limit_ms" in str(caught.value)


def test_the_limit_of_dropping_can_be_set() -> None:
    rows: list[Row] = [(1, 1_000, "a"), (1, 900, "late"), (1, 899, "later")]
    for limit, error in ((95, "offset 2 is 101 ms older"), (96, None), (None, None)):
        join = WindowedJoin(
            left="l", right="r", before_ms=1, after_ms=1, left_grace_ms=5, late_records="skip", late_limit_ms=limit
        )
        task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
        if error is None:
            task.process({"l": _table(rows), "r": _table([])})
            assert task.counters == {"late": 2}
        else:
            with pytest.raises(LateRecordException, match=error):
                task.process({"l": _table(rows), "r": _table([])})


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**61])
def test_what_is_no_time_is_an_error(time: int) -> None:
    """Sums of such times do not fit into 64 bits, and wrapped around."""
    with pytest.raises(
        BadRecordException, match=rf"The record l, partition 3, offset 1 has a at of {time} \(int64\), which is no time"
    ):
        _late("stop").process({"l": _table([(1, 5, "a"), (1, time, "b")]), "r": _table([])})
    seconds = SCHEMA.set(1, pa.field("at", pa.timestamp("s")))
    join = WindowedJoin(left="l", right="r", before_ms=1, after_ms=1)
    task = Task(join, {"l": _spec("l", seconds), "r": _spec("r", SCHEMA)})
    rows = pa.table([pa.array([1]), pa.array([time]).cast(pa.timestamp("s")), pa.array(["x"])], schema=seconds)
    with pytest.raises(BadRecordException, match=rf"offset 0 has a at of {time} \(timestamp\[s\]\), which is no time"):
        task.process({"l": rows, "r": _table([])})


def test_a_record_without_time_is_an_error() -> None:
    task = _late("skip")
    rows = _table([(1, 5, "a"), (1, 6, "b")]).set_column(1, "at", pa.array([5, None], pa.int64()))
    with pytest.raises(BadRecordException, match="The record l, partition 3, offset 1 has no at"):
        task.process({"l": rows, "r": _table([])})


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("bound", [10, 2**63 - 1, 10**20])
@pytest.mark.parametrize("grace", [10**9, 2**63 - 1, 10**20])
def test_without_a_limit_may_be_said_by_the_largest_number(how: str, bound: int, grace: int) -> None:
    """Rows of before 1970 were all late, by a grace that is larger than any disorder; or numbers did not fit, and the run ended."""
    left, right = [(1, -5_000, "a"), (1, -9_000, "b"), (2, -9_000, "c")], [(1, -5_000, "x"), (1, 7_000, "y")]
    join = WindowedJoin(
        left="l", right="r", before_ms=bound, after_ms=bound, how=how, left_grace_ms=grace, right_grace_ms=grace
    )
    task = Task(join, {"l": _spec("l", SCHEMA), "r": _spec("r", SCHEMA)})
    task.process({"l": _table(left), "r": _table(right[:1])})
    task.process({"l": _table([]), "r": _table(right[1:])})
    expected = {(lv, rv) for k, lt, lv in left for rk, rt, rv in right if k == rk and abs(rt - lt) <= bound}
    assert {(row["v"], row["v_right"]) for row in task.outputs["out"]} == expected


def test_topics_may_be_given_as_for_other_joins_and_are_looked_at() -> None:
    left, right = _spec("l", SCHEMA), _spec("r", SCHEMA)
    join = WindowedJoin(left="l", right="r", before_ms=1, after_ms=1)
    assert join.sub_topology("j", "out", topics=[left, right]).sources == ("l", "r")
    with pytest.raises(TopologyException, match=r"The join of 'l' and 'r' needs to know the columns of \['r'\]"):
        join.sub_topology("j", "out", topics=left)
    with pytest.raises(TopologyException, match="timestamp"):
        join.sub_topology("j", "out", topics=[left, TopicSpec("r", 4, SCHEMA, ("k",), None)])


def test_columns_keep_their_types_and_can_be_chosen() -> None:
    """Timestamps, dictionaries, large strings, lists; a key of two columns, one of which is the time of the right side."""
    moment = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    left_schema = pa.schema(
        [
            ("origin", pa.string()),
            ("hour", pa.timestamp("us", "UTC")),
            ("at", pa.timestamp("ns", "UTC")),
            ("carrier", pa.dictionary(pa.int8(), pa.string())),
            ("stops", pa.list_(pa.int16())),
            ("delay", pa.float32()),
        ]
    )
    right_schema = pa.schema([("origin", pa.large_string()), ("hour", pa.timestamp("s", "UTC")), ("delay", pa.int8())])
    left = TopicSpec("flights", 4, left_schema, ("origin", "hour"), "at")
    right = TopicSpec("weather", 4, right_schema, ("origin", "hour"), "hour")
    join = WindowedJoin(
        left="flights",
        right="weather",
        before_ms=3_600_000,
        after_ms=0,
        left_columns=["delay", "carrier", "stops", "at"],
    )
    task = Task(join, {"flights": left, "weather": right})
    at = moment + dt.timedelta(minutes=7)
    flights = pa.Table.from_pylist(
        [{"origin": "JFK", "hour": moment, "at": at, "carrier": "UA", "stops": [1, 2], "delay": 4.5}],
        schema=left_schema,
    )
    weather = pa.Table.from_pylist([{"origin": "JFK", "hour": moment, "delay": -3}], schema=right_schema)
    result = task.process({"flights": flights, "weather": weather})
    assert result is not None
    expected = pa.schema(
        [
            ("origin", pa.string()),
            ("hour", pa.timestamp("us", "UTC")),
            ("delay", pa.float32()),
            ("carrier", pa.string()),
            ("stops", pa.list_(pa.int16())),
            ("at", pa.timestamp("ns", "UTC")),
            ("delay_right", pa.int8()),
        ]
    )
    assert expected == result.schema
    assert result.drop_columns(["at"]).to_pylist() == [
        {"origin": "JFK", "hour": moment, "delay": 4.5, "carrier": "UA", "stops": [1, 2], "delay_right": -3}
    ]
