"""Joins with tables: against a loop over the records in the order of time, whatever batches and restarts are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BadRecordException,
    DeadLetters,
    DerivedTable,
    KeyValueStoreSpec,
    StoreException,
    StreamTableJoin,
    TableJoin,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedJoin,
)
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of
from tests.runtime.test_merging import by_heads

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.int64())])
TOPICS = {name: TopicSpec(name, 4, SCHEMA, ("k",), "at") for name in ("s", "t", "l", "r")}
Row = tuple[str | None, int | None, int | None]


def _rows(keys: str, nulls: bool) -> st.SearchStrategy[list[Row]]:
    """Rows out of order; some without a time; a null value is a deletion."""
    times = st.one_of(st.none(), st.integers(0, 20)) if nulls else st.integers(0, 20)
    key = st.sampled_from([*keys, None]) if nulls else st.sampled_from(keys)
    return st.lists(st.tuples(key, times, st.sampled_from([1, 2, 3, None])), max_size=20)


_table = partial(table_of, SCHEMA)


@given(
    st.data(), _rows("abc", nulls=True), _rows("abc", nulls=False), st.sampled_from(["inner", "left"]), st.booleans()
)
@settings(max_examples=examples(110))
def test_a_stream_sees_what_the_table_has_at_that_moment(
    data: st.DataObject, stream: list[Row], table: list[Row], how: str, table_first: bool
) -> None:
    join = StreamTableJoin(stream="s", table="t", how=how, table_first=table_first, table_columns="v")
    task = MemoryTask(join.sub_topology("j", "out", TOPICS.values()), TOPICS)
    task.run(data, {"s": _table(stream), "t": _table(table)})
    order = by_heads([[row[1] for row in table], [row[1] for row in stream]])
    if table_first:
        order = sorted(order)
    known: dict[str | None, int | None] = {}
    expected = []
    for source, number in order:
        key, at, value = (table, stream)[source][number]
        if source == 0:
            known[key] = value
        elif how == "left" or (key is not None and known.get(key) is not None):
            found = None if key is None else known.get(key)
            expected.append({"k": key, "at": at, "v": value, "v_right": found})
    assert task.outputs.get("out", []) == expected
    assert task.counters.get("null_key", 0) == sum(row[0] is None for row in stream)


@given(st.data(), _rows("abc", nulls=False), _rows("abc", nulls=False), st.sampled_from(["inner", "left", "outer"]))
@settings(max_examples=examples(110))
def test_two_tables_give_the_table_of_their_pairs(
    data: st.DataObject, left: list[Row], right: list[Row], how: str
) -> None:
    """Every update is a row; of the result the last row of each key counts, and no value means that it is gone."""
    join = TableJoin(left="l", right="r", how=how, left_columns="v", right_columns="v")
    task = MemoryTask(join.sub_topology("j", "out", TOPICS.values()), TOPICS)
    task.run(data, {"l": _table(left), "r": _table(right)})
    tables: list[dict[str | None, int | None]] = [{}, {}]

    def counts(key: str | None) -> bool:
        there = [table.get(key) is not None for table in tables]
        return {"inner": all(there), "left": there[0], "outer": any(there)}[how]

    expected: list[dict[str, Any]] = []
    for source, number in by_heads([[row[1] for row in left], [row[1] for row in right]]):
        key, _, value = (left, right)[source][number]
        before = counts(key)
        tables[source][key] = value
        if counts(key):
            expected.append({"k": key, "v": tables[0].get(key), "v_right": tables[1].get(key)})
        elif before:
            expected.append({"k": key, "v": None, "v_right": None})
    assert task.outputs.get("out", []) == expected


@pytest.mark.parametrize("at_once", [True, False])
def test_a_deletion_has_a_time_and_deletes_all_the_same(at_once: bool) -> None:
    """The time of a record is one of the columns that a join takes, if nothing else is said."""
    prices = _table([("a", 1, 5), ("b", 1, 6), ("a", 3, None)])
    join = StreamTableJoin(stream="s", table="t", stream_columns="v")
    task = MemoryTask(join.sub_topology("j", "out", TOPICS.values()), TOPICS)
    task.process({"t": prices if at_once else prices.slice(0, 2), "s": _table([("a", 2, 0)])})
    task.process({"t": prices.slice(0 if at_once else 2, 0 if at_once else 1), "s": _table([("a", 4, 0), ("b", 4, 0)])})
    assert task.outputs["out"] == [{"k": "a", "v": 0, "at": 1, "v_right": 5}, {"k": "b", "v": 0, "at": 1, "v_right": 6}]
    assert task.held() == 1
    pairs = MemoryTask(TableJoin(left="l", right="t").sub_topology("j", "out", TOPICS.values()), TOPICS)
    pairs.process({"l": _table([("a", 0, 1), ("b", 0, 2)]), "t": prices})
    assert [(row["k"], row["at"], row["v_right"]) for row in pairs.outputs["out"]] == [
        ("a", 0, 5),
        ("b", 0, 6),
        ("a", None, None),
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_table_that_has_times_alone_keeps_its_keys(at_once: bool) -> None:
    join = StreamTableJoin(stream="s", table="t")
    topics = {**TOPICS, "t": TopicSpec("t", 4, SCHEMA.remove(2), ("k",), "at")}
    task = MemoryTask(join.sub_topology("j", "out", topics.values()), topics)
    seen, stream = _table([("a", 1, None)]).drop_columns(["v"]), _table([("a", 2, 0)])
    for batch in [(seen, stream)] if at_once else [(seen, stream.slice(1)), (seen.slice(1), stream)]:
        task.process(dict(zip("ts", batch, strict=True)))
    assert [row["at_right"] for row in task.outputs["out"]] == [1]


def test_a_derived_table_of_times_alone_needs_a_column_that_says_what_is_gone() -> None:
    """Its rows were there though the filter left them out; with a column of their own all were gone."""
    seen = TopicSpec("t", 4, SCHEMA.remove(2), ("k",), "at")
    bare = DerivedTable("new", seen, filter=pc.field("at") > 5)
    with pytest.raises(
        TopologyException, match="no columns besides key and timestamp, so nothing could say that a key is gone"
    ):
        bare.spec  # noqa: B018
    marked = DerivedTable(
        "new",
        seen,
        filter=pc.field("at") > 5,
        map_values=lambda rows: pa.table({"new": pa.array([True] * rows.num_rows, pa.bool_())}),
    )
    rows = _table([("a", 1, None), ("b", 9, None), ("c", None, None)]).drop_columns(["v"])
    _, found = marked.rows_of(rows, marked.specs_of(seen))
    assert found.column("new").to_pylist() == [None, True, None]


@pytest.mark.parametrize("at_once", [True, False])
def test_which_columns_a_join_takes_does_not_decide_which_rows_there_are(at_once: bool) -> None:
    """A product without a price was as if deleted for who took the price alone; and one deleted there for who took its time."""
    schema = SCHEMA.append(pa.field("name", pa.string()))
    topics = {**TOPICS, "t": TopicSpec("t", 4, schema, ("k",), "at")}
    rows = [("a", 1, None, "A"), ("b", 1, 6, None), ("c", 1, 7, "C"), ("c", 2, None, None)]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    other = _table([(key, 5, number) for number, key in enumerate("abc")])

    def run(join: StreamTableJoin | TableJoin, source: str) -> list[tuple[Any, ...]]:
        task = MemoryTask(join.sub_topology("j", "out", topics.values()), topics)
        for batch in [(table, other)] if at_once else [(table, other.slice(3)), (table.slice(4), other)]:
            task.process(dict(zip(("t", source), batch, strict=True)))
            task.start()
        return [tuple(row.values()) for row in task.outputs.get("out", [])]

    for column, values in (("v", (None, 6)), ("at", (1, 1)), ("name", ("A", None))):
        found = [("a", 0, values[0]), ("b", 1, values[1])]
        looked_up = StreamTableJoin(stream="s", table="t", stream_columns="v", table_columns=column)
        assert run(looked_up, "s") == found
        assert run(TableJoin(left="l", right="t", left_columns="v", right_columns=column), "l") == found


def test_null_in_a_dictionary_is_null() -> None:
    """Arrow says that it is a value: a row deleted nothing, keys of null met each other, and were groups."""
    schema = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in "kv"])
    topics = {name: TopicSpec(name, 4, schema, ("k",), None) for name in "lrt"}
    texts = pa.chunked_array([pa.array(["a", "b", None])])
    rows = pa.table([texts.dictionary_encode(null_encoding="encode")] * 2, schema=schema)
    gone = pa.table([rows.column("k").take([0]), rows.column("v").take([2])], schema=schema)
    pairs = TableJoin(left="l", right="r", bad_records="skip").sub_topology("j", "out", topics.values())
    lookup = StreamTableJoin(stream="l", table="t", how="left", bad_records="skip")
    for sub, table, told in (
        (pairs, "r", [("a", "a", "a"), ("b", "b", "b"), ("a", None, None)]),
        (
            lookup.sub_topology("j", "out", topics.values()),
            "t",
            [("a", "a", None), ("b", "b", "b"), (None, None, None)],
        ),
    ):
        task = MemoryTask(sub, topics)
        task.process({"l": rows, table: pa.concat_tables([rows, gone])})
        assert [tuple(row.values()) for row in task.outputs["out"]] == told
    groups = Aggregation(source="t", by=["k", "v"], aggregates={"n": Aggregate.count()}, bad_records="skip")
    task = MemoryTask(groups.sub_topology("a", "out", topics["t"]), topics)
    task.process({"t": rows})
    assert [row["v"] for row in task.outputs["out"]] == ["a", "b"]
    store = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), pa.schema([("v", pa.string())])).create()
    with pytest.raises(StoreException, match="cannot have null as a key"):
        store.put_table(rows)


def test_a_row_of_a_table_without_a_key_is_bad() -> None:
    rows = {"s": _table([("a", 9, 1)]), "t": _table([("a", 1, 5), (None, 2, 6)])}
    topics = TOPICS.values()
    task = MemoryTask(StreamTableJoin(stream="s", table="t").sub_topology("j", "out", topics), TOPICS)
    with pytest.raises(BadRecordException, match=r"The record t, partition 3, offset 1 has a null in its key \(k\)"):
        task.process(rows)
    letters = DeadLetters("bad")
    aside = StreamTableJoin(stream="s", table="t", bad_records=letters, table_columns=["v"])
    task = MemoryTask(aside.sub_topology("j", "out", topics), TOPICS)
    task.process(rows)
    assert task.outputs["out"] == [{"k": "a", "at": 9, "v": 1, "v_right": 5}]
    assert [(row["topic"], row["offset"]) for row in task.outputs["bad"]] == [("t", 1)]


def test_keys_of_several_columns_and_types_of_the_columns_are_kept() -> None:
    left = pa.schema([("a", pa.int64()), ("b", pa.string()), ("at", pa.timestamp("us")), ("v", pa.float32())])
    right = pa.schema(
        [
            ("x", pa.int64()),
            ("y", pa.string()),
            ("when", pa.timestamp("ms")),
            ("v", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    topics = {
        "s": TopicSpec("s", 1, left, ("a", "b"), "at"),
        "t": TopicSpec("t", 1, right, ("x", "y"), "when"),
    }
    join = StreamTableJoin(stream="s", table="t", table_columns="v")
    task = MemoryTask(join.sub_topology("j", "out", topics.values()), topics)
    stream = pa.table(
        [[1, 1], ["x", "y"], pa.array([5_000, 6_000], pa.timestamp("us")), pa.array([1, 2], pa.float32())], schema=left
    )
    table = pa.table(
        [
            [1],
            ["y"],
            pa.array([5], pa.timestamp("ms")),
            pa.array(["hot"]).dictionary_encode().cast(right.field("v").type),
        ],
        schema=right,
    )
    result = task.process({"s": stream, "t": table})
    assert result is not None
    assert result.schema.equals(pa.schema([*left, ("v_right", pa.string())]))
    assert result.drop_columns(["at"]).to_pylist() == [{"a": 1, "b": "y", "v": 2.0, "v_right": "hot"}]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([3_000_000, -800_000], pa.int32()).cast(pa.date32()),
        pa.array([10**15, -(10**15)], pa.int64()).cast(pa.timestamp("ms")),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_that_python_has_no_value_for_are_deleted_too(keys: pa.Array) -> None:
    schema = pa.schema([("k", keys.type), ("at", pa.int64()), ("v", pa.int64())])
    topics = {name: TopicSpec(name, 4, schema, ("k",), "at") for name in "lr"}
    task = MemoryTask(TableJoin(left="l", right="r").sub_topology("j", "out", topics.values()), topics)
    nothing = schema.empty_table()
    task.process({"l": pa.table([keys, [1, 1], [1, 2]], schema=schema), "r": nothing})
    task.process({"l": pa.table([keys.slice(1), [2], [None]], schema=schema), "r": nothing})
    task.start()
    assert task.held() == 1


@pytest.mark.parametrize(("left", "right"), [("ms", "us"), ("us", "ms"), ("s", "ns")])
def test_keys_may_be_times_of_several_units(left: str, right: str) -> None:
    """They are in the same partition; one between two of the coarser unit ended the run at its batch."""
    ticks = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
    finer = max(left, right, key=ticks.__getitem__)
    rows, topics = {}, {}
    for name, unit in (("l", left), ("r", right)):
        schema = pa.schema([("k", pa.timestamp(unit)), ("at", pa.int64()), ("v", pa.int64())])
        keys = pa.array([ticks[unit], 2 * ticks[unit] + (unit == finer)], pa.timestamp(unit))
        rows[name] = pa.table([keys, pa.array([1, 1]), pa.array([1, 2])], schema=schema)
        topics[name] = TopicSpec(name, 4, schema, ("k",), "at")
    for sub in (
        WindowedJoin(left="l", right="r", before_ms=1, after_ms=1).sub_topology("j", "out"),
        StreamTableJoin(stream="l", table="r").sub_topology("j", "out", topics.values()),
        TableJoin(left="l", right="r").sub_topology("j", "out", topics.values()),
    ):
        result = MemoryTask(sub, topics).process(rows)
        assert result is not None
        assert result.column("k").type == pa.timestamp(finer)
        assert result.column("k").cast(pa.int64()).to_pylist() == [ticks[finer]]


@pytest.mark.parametrize("name", ["__row", "__place", "__asked", "__row0", "__row0b", "__time_left"])
def test_a_key_may_have_any_name(name: str) -> None:
    """Some were those of columns that stood beside it for a while: rows were missing, or had other keys."""
    schema = SCHEMA.set(0, pa.field(name, pa.string()))
    topics = {topic: TopicSpec(topic, 4, schema, (name,), "at") for topic in "lr"}
    rows = _table([("a", 1, 5), ("b", 2, 6)]).rename_columns(schema.names)
    for join, expected in (
        (StreamTableJoin(stream="l", table="r", stream_columns="at", table_columns="v"), ["a", "b"]),
        (TableJoin(left="l", right="r"), ["a", "b"]),
    ):
        task = MemoryTask(join.sub_topology("j", "out", topics.values()), topics)
        task.process({"l": rows, "r": rows})
        assert [row[name] for row in task.outputs["out"]] == expected


@pytest.mark.parametrize("name", ["", "*", "^k.*$", "k\0", "\x1frow"])
def test_keys_that_polars_takes_for_something_else_are_refused(name: str) -> None:
    """A name like a pattern stood for all that match: rows were missing."""
    topics = {topic: TopicSpec(topic, 4, SCHEMA.set(0, pa.field(name, pa.string())), (name,), "at") for topic in "lr"}
    for join in (
        StreamTableJoin(stream="l", table="r"),
        TableJoin(left="l", right="r"),
        Aggregation(source="l", aggregates={"n": Aggregate.count()}),
    ):
        with pytest.raises(TopologyException, match=r"cannot have a column .*: polars.* Maybe rename it"):
            join.sub_topology("j", "out", topics.values())


def test_what_cannot_be_joined_is_refused() -> None:
    times = TopicSpec("s", 4, SCHEMA.append(pa.field("__time_left", pa.int64())), ("k",), "at")
    windowed = Topology(WindowedJoin(left="s", right="t", before_ms=1, after_ms=1).sub_topology("j", "out"))
    with pytest.raises(TopologyException, match="needs the name '__time_left' for its state, and the topic 's' has it"):
        windowed.bind("app", {**TOPICS, "s": times})
    with pytest.raises(TopologyException, match="cannot be joined with itself"):
        StreamTableJoin(stream="s", table="s")
    with pytest.raises(TopologyException, match=r"how \('outer'\) must be 'inner' or 'left'"):
        StreamTableJoin(stream="s", table="t", how="outer")
    with pytest.raises(TopologyException, match=r"needs to know the columns of \['t'\]"):
        StreamTableJoin(stream="s", table="t").sub_topology("j", "out", [TOPICS["s"]])
    with pytest.raises(
        TopologyException, match=r"topics must be TopicSpec objects, but one is of the type str. Maybe topics="
    ):
        StreamTableJoin(stream="s", table="t").sub_topology("j", "out", ["s", "t"])  # type: ignore[list-item]
    with pytest.raises(TopologyException, match="the table 't' gives no columns besides its key"):
        StreamTableJoin(stream="s", table="t", table_columns=["k"]).sub_topology("j", "out", TOPICS.values())
    with pytest.raises(TopologyException, match=r"no columns \['w'\]"):
        TableJoin(left="l", right="r", left_columns="w").sub_topology("j", "out", TOPICS.values())
    other = {**TOPICS, "t": TopicSpec("t", 4, SCHEMA.remove(2).append(pa.field("v", pa.float64())), ("k",), "at")}
    sub = StreamTableJoin(stream="s", table="t").sub_topology("j", "out", TOPICS.values())
    with pytest.raises(TopologyException, match=r"was made for a topic 't' with the columns k: string, .* but it has"):
        Topology(sub).bind("app", other)
