"""Aggregates of a table's rows by other columns than its key: against a loop over the table as it is, whatever batches and restarts are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, isnan, nan
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
    DerivedStream,
    Repartitioned,
    TableAggregation,
    TableChanges,
    TopicSpec,
    Topology,
    TopologyException,
)
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of

SCHEMA = pa.schema(
    [("k", pa.string()), ("shop", pa.string()), ("at", pa.int64()), ("v", pa.int32()), ("f", pa.float64())]
)
SPEC = TopicSpec("t", 4, SCHEMA, ("k",), "at")


def _keys(before: str, row: Mapping[str, Any]) -> str:
    """The keys in a group, and one mark more with each that goes: what is left of it, the next group of that name does not have."""
    if row["change"] > 0:
        return f"{before}{row['k']}"
    return "+" + before.replace(row["k"], "")


MOVED = Repartitioned("moved", key="shop", partitions=4)
AGGREGATES = {
    "rows": Aggregate.count(),
    "values": Aggregate.count("v"),
    "sum": Aggregate.sum("v"),
    "mean": Aggregate.mean("v"),
    "halves": Aggregate.sum("f"),
    "half": Aggregate.mean("f"),
    "keys": Aggregate.fold(_keys, "+", pa.string()),
}
Row = tuple[str, str | None, int, int | None, float | None]

_table = partial(table_of, SCHEMA)


def _tasks(**more: Any) -> tuple[MemoryTask, MemoryTask, TopicSpec]:
    """Who has the table, who has the groups, and what goes from the one to the other."""
    changes = TableChanges(table="t").sub_topology("c", MOVED, [SPEC])
    moved = changes.spec_of("moved", SPEC)
    totals = TableAggregation(source="moved", aggregates=AGGREGATES, **more).sub_topology("a", "out", [moved])
    return MemoryTask(changes, {"t": SPEC}), MemoryTask(totals, {"moved": moved}), moved


def _is_there(row: Row) -> bool:
    return any(value is not None for value in (row[1], *row[3:]))


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    """Updates and deletions, out of order in time; floats whose sums are exact, or no numbers."""
    values = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
    halves = st.one_of(st.none(), st.integers(-4, 4).map(lambda number: number / 2), st.sampled_from([inf, -inf, nan]))
    row = st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 20), values, halves)
    gone = st.sampled_from("abcd").map(lambda key: (key, None, 0, None, None))
    return draw(st.lists(st.one_of(row, row, gone), max_size=25))


def _plain(rows: list[Row]) -> dict[str, Any]:
    values = [row[3] for row in rows if row[3] is not None]
    halves = [row[4] for row in rows if row[4] is not None]
    return {
        "rows": len(rows),
        "values": len(values),
        "sum": sum(values) if values else None,
        "mean": sum(values) / len(values) if values else None,
        "halves": sum(halves) if halves else None,
        "half": sum(halves) / len(halves) if halves else None,
    }


def _keys_of(log: list[Row]) -> dict[str, str]:
    """What the function makes of each group, one update after the other; a group that was gone begins anew."""
    table: dict[str, str] = {}
    found: dict[str, str] = {}
    for key, shop, *_ in log:
        for group, change in ((table.pop(key, None), -1), (shop, 1)):
            if group is None:
                continue
            found[group] = _keys(found.get(group, "+"), {"k": key, "change": change})
            if change > 0:
                table[key] = group
            elif group not in table.values():
                del found[group]
    return found


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    """NaN is not what NaN is."""
    return {name: "NaN" if isinstance(value, float) and isnan(value) else value for name, value in row.items()}


@given(st.data(), logs())
@settings(max_examples=examples(60))
@pytest.mark.thorough
def test_the_last_row_of_a_group_is_the_aggregate_of_what_the_table_has(data: st.DataObject, log: list[Row]) -> None:
    of_table, of_groups, moved = _tasks()
    of_table.run(data, {"t": _table(log)})
    rows = pa.Table.from_pylist(of_table.outputs.get("moved", []), moved.schema)
    of_groups.run(data, {"moved": rows})
    now = {row[0]: row for row in log}
    last = {row["shop"]: _comparable(row) for row in of_groups.outputs.get("out", [])}
    expected = {}
    for shop in sorted({row[1] for row in now.values() if row[1] is not None}):
        own = [row for row in now.values() if row[1] == shop]
        expected[shop] = _comparable({"shop": shop, **_plain(own), "keys": _keys_of(log)[shop]})
    assert {shop: row for shop, row in last.items() if row["rows"] is not None} == expected
    gone = [row for shop, row in last.items() if shop not in expected]
    assert all(value is None for row in gone for name, value in row.items() if name != "shop")
    assert of_groups.held() == len(expected)
    assert of_table.held() == sum(map(_is_there, now.values()))


@pytest.mark.parametrize("at_once", [True, False])
def test_each_update_takes_away_what_was_there_and_adds_what_is(at_once: bool) -> None:
    of_table, _, moved = _tasks()
    assert moved.schema.names == ["k", "shop", "v", "f", "at", "change"]
    log = _table([
        ("a", "x", 1, 5, 0.5), ("a", "y", 3, 6, None), ("b", None, 4, None, None), ("a", None, 7, None, None)
    ])  # fmt: skip
    for batch in [log] if at_once else [log.slice(0, 1), log.slice(1, 1), log.slice(2)]:
        of_table.process({"t": batch})
        of_table.start()
    assert [tuple(row.values()) for row in of_table.outputs["moved"]] == [
        ("a", "x", 5, 0.5, 1, 1),
        ("a", "x", 5, 0.5, 3, -1),
        ("a", "y", 6, None, 3, 1),
        ("a", "y", 6, None, 7, -1),
    ]


def test_a_group_without_rows_is_gone_and_one_that_nobody_has_seen_is_not_told() -> None:
    _, of_groups, moved = _tasks()

    def process(*rows: tuple[str, str, int]) -> list[tuple[Any, ...]]:
        found = [{"k": key, "shop": shop, "v": 1, "at": 0, "change": change} for key, shop, change in rows]
        table = of_groups.process({"moved": pa.Table.from_pylist(found, moved.schema)})
        assert table is not None
        return [(row["shop"], row["rows"], row["sum"]) for row in table.to_pylist()]

    assert process(("a", "x", 1), ("b", "y", 1), ("b", "y", -1)) == [("x", 1, 1)]
    assert process(("a", "x", -1), ("a", "z", 1)) == [("z", 1, 1), ("x", None, None)]
    assert of_groups.held() == 1


def test_floats_leave_no_rest_where_no_value_is_left() -> None:
    """0.1 and 0.2 added and taken away again are not 0."""
    of_table, of_groups, moved = _tasks()
    of_table.process({"t": _table([("a", "x", 0, 1, 0.1), ("b", "x", 0, 1, 0.2), ("c", "x", 0, 1, None)])})
    of_table.process({"t": _table([("a", None, 0, None, None), ("b", None, 0, None, None)])})
    of_groups.process({"moved": pa.Table.from_pylist(of_table.outputs["moved"], moved.schema)})
    (row,) = of_groups.outputs["out"]
    assert (row["rows"], row["sum"], row["halves"]) == (1, 1, None)


def test_what_is_no_number_goes_with_its_row() -> None:
    """Once it was added, a sum was NaN until its group had no value left."""
    of_table, of_groups, _ = _tasks()
    logs = [[("a", "x", 0, 1, nan), ("b", "x", 0, 1, 0.5)], [("a", "x", 1, 1, inf)], [("b", "x", 1, 1, -inf)]]
    for log in [*logs, [("a", "x", 2, 1, 2.0)], [("b", "x", 2, 1, 1.0)]]:
        given = of_table.process({"t": _table(log)})
        of_groups.process({"moved": given})
        of_groups.start()
    told = [(row["halves"], row["half"]) for row in map(_comparable, of_groups.outputs["out"])]
    assert told == [("NaN", "NaN"), (inf, inf), ("NaN", "NaN"), (-inf, -inf), (3.0, 1.5)]


def test_a_store_from_before_there_was_a_count_of_what_is_no_number_goes_on() -> None:
    of_table, of_groups, _ = _tasks()
    of_groups.process({"moved": of_table.process({"t": _table([("a", "x", 0, 1, 0.5)])})})
    former = [f"{name}__{kind}" for name in ("halves", "half") for kind in ("inf", "minus_inf")]
    (segment,) = of_groups.changelog[0]
    assert segment is not None
    of_groups.changelog[0] = [segment.drop_columns(former)]
    of_groups.start()
    for value in (inf, 2.0):
        of_groups.process({"moved": of_table.process({"t": _table([("b", "x", 1, 1, value)])})})
    assert [row["halves"] for row in of_groups.outputs["out"]] == [0.5, inf, 2.5]


def test_more_rows_cannot_go_than_have_come() -> None:
    _, of_groups, moved = _tasks()
    rows = pa.Table.from_pylist([{"k": "a", "shop": "x", "v": 1, "at": 0, "change": -1}], moved.schema)
    with pytest.raises(ValueError, match=r"more rows of the group \{'shop': 'x'\} are taken away than have come"):
        of_groups.process({"moved": rows})


@pytest.mark.parametrize("change", [None, 0, 2, -(2**63)])
def test_a_row_that_does_not_say_whether_it_comes_or_goes_is_a_bad_record(change: int | None) -> None:
    """Another number counted as often in sums of whole numbers and of floats, and once in those of decimals."""
    _, of_groups, moved = _tasks()
    row = {"k": "a", "shop": "x", "v": 1, "at": 0, "change": change}
    rows = pa.Table.from_pylist([{**row, "change": 1}, row], moved.schema)
    told = "null in its key .change." if change is None else f"change of {change}, which must be 1 or -1"
    with pytest.raises(BadRecordException, match=f"offset 1 has a {told}"):
        of_groups.process({"moved": rows})
    _, of_groups, _ = _tasks(bad_records="skip")
    of_groups.process({"moved": rows})
    assert (of_groups.outputs["out"][0]["rows"], of_groups.counters) == (1, {"bad_records": 1})


def test_a_sum_that_does_not_fit_is_an_error_also_when_it_is_taken_away() -> None:
    schema = SCHEMA.set(3, pa.field("v", pa.int64()))
    spec = TopicSpec("t", 4, schema, ("k",), "at")
    moved = TableChanges(table="t").sub_topology("c", MOVED, [spec]).spec_of("moved", spec)
    totals = TableAggregation(source="moved", aggregates=AGGREGATES).sub_topology("a", "out", [moved])
    task = MemoryTask(totals, {"moved": moved})
    row = {"k": "a", "shop": "x", "v": -(2**63), "at": 0, "change": 1}
    task.process({"moved": pa.Table.from_pylist([row], moved.schema)})
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        task.process({"moved": pa.Table.from_pylist([row], moved.schema)})


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("end", [1, 2, 3])
def test_a_sum_that_fits_is_none_where_a_batch_adds_more_than_fits(is_table: bool, end: int) -> None:
    """A row of the least number there is could come, but not go again."""
    schema = pa.schema([("shop", pa.string()), ("v", pa.int64()), ("change", pa.int64())])
    spec = TopicSpec("s", 4, schema, ("shop",), None)
    kind = TableAggregation if is_table else Aggregation
    aggregates = {"sum": Aggregate.sum("v"), "mean": Aggregate.mean("v")}
    task = MemoryTask(kind(source="s", aggregates=aggregates).sub_topology("a", "out", [spec]), {"s": spec})
    values, changes = ([-(2**63), -(2**63), 7], [1, -1, 1]) if is_table else ([-(2**62), 2**62, 2**62], [1, 1, 1])
    rows = pa.table([["x"] * 3, values, changes], schema=schema)
    for batch in (rows.slice(0, end), rows.slice(end)):
        task.process({"s": batch})
        task.start()
    last = task.outputs["out"][-1]
    assert (last["sum"], last["mean"]) == ((7, 7.0) if is_table else (2**62, 2**62 / 3))


def test_what_cannot_be_followed_is_refused() -> None:
    moved = _tasks()[2]
    smallest = TableAggregation(source="moved", aggregates={"least": Aggregate.min("v"), "rows": Aggregate.count()})
    with pytest.raises(TopologyException, match=r"only count, sum, mean, fold can follow.*Not these: 'least' \(min\)"):
        smallest.sub_topology("a", "out", [moved])
    without = TableAggregation(source="t", aggregates={"rows": Aggregate.count()}, by=["k"])
    with pytest.raises(TopologyException, match="has no column 'change'"):
        without.sub_topology("a", "out", [SPEC])
    other = TableAggregation(source="moved", aggregates={"rows": Aggregate.count()}, change="k")
    with pytest.raises(TopologyException, match="'k' of 1 and -1 must be of whole numbers, not string"):
        other.sub_topology("a", "out", [moved])


@pytest.mark.parametrize("more", [{"by": ["shop", "change"]}, {"aggregates": {"sum": Aggregate.sum("change")}}])
def test_whether_a_row_comes_or_goes_is_nothing_of_the_row(more: dict[str, Any]) -> None:
    with pytest.raises(TopologyException, match=r"'change'.* says whether a row comes or goes"):
        TableAggregation(**{"source": "moved", "aggregates": AGGREGATES, **more}).sub_topology(
            "a", "out", [_tasks()[2]]
        )


@pytest.mark.parametrize("more", [{"by": ["shop", "at"]}, {"aggregates": {"mean": Aggregate.mean("at")}}])
@pytest.mark.parametrize("is_derived", [False, True])
def test_the_time_of_an_update_is_nothing_of_the_row_that_goes(more: dict[str, Any], is_derived: bool) -> None:
    """Of two rows at 10 of which one was written again at 30 the mean was 10 as before."""
    changes = TableChanges(table="t").sub_topology("c", MOVED, [SPEC])
    moved = changes.spec_of("moved", SPEC)
    derived = DerivedStream("some", moved, filter=pc.field("v") > 1)
    plan = {"source": "some" if is_derived else "moved", "aggregates": AGGREGATES, **more}
    totals = TableAggregation(**plan).sub_topology("a", "out", [derived.spec if is_derived else moved])
    with pytest.raises(TopologyException, match=r"'a' groups by 'at' of '(moved|some)' or computes with it"):
        Topology([changes, totals], derived=[derived] if is_derived else [])


def test_a_column_of_a_user_may_be_called_as_the_time_is() -> None:
    changes = TableChanges(table="t").sub_topology("c", MOVED, [SPEC])
    derived = DerivedStream(
        "some",
        changes.spec_of("moved", SPEC),
        map_values=lambda rows: rows.select(["v", "change"]).rename_columns(["at", "change"]),
    )
    totals = TableAggregation(source="some", aggregates={"sum": Aggregate.sum("at")})
    Topology([changes, totals.sub_topology("a", "out", [derived.spec])], derived=[derived])


def test_a_time_that_is_part_of_the_key_is_the_same_when_the_row_goes() -> None:
    spec = TopicSpec("t", 4, SCHEMA, ("k", "at"), "at")
    changes = TableChanges(table="t").sub_topology("c", MOVED, [spec])
    totals = TableAggregation(source="moved", by=["shop", "at"], aggregates={"mean": Aggregate.mean("v")})
    Topology([changes, totals.sub_topology("a", "out", [changes.spec_of("moved", spec)])])


def test_names_of_aggregates_are_texts() -> None:
    """It was an error of Arrow."""
    with pytest.raises(TopologyException, match=r"name \(1\) of an aggregate"):
        Aggregation(source="t", aggregates={1: Aggregate.count()})  # type: ignore[dict-item]


def test_a_table_with_a_column_of_that_name_gives_it_another_one() -> None:
    spec = TopicSpec("t", 4, SCHEMA.append(pa.field("change", pa.int64())), ("k",), "at")
    with pytest.raises(TopologyException, match="the topic has a column 'change', too"):
        TableChanges(table="t").sub_topology("c", MOVED, [spec])
    changes = TableChanges(table="t", change="sign").sub_topology("c", MOVED, [spec])
    assert changes.spec_of("moved", spec).schema.names[-2:] == ["at", "sign"]


@pytest.mark.parametrize("change", [None, 3, ["change"], "", "*"])
def test_what_cannot_be_the_name_of_a_column_is_refused_at_once(change: Any) -> None:
    with pytest.raises(TopologyException, match=r"change \(|cannot have a column"):
        TableChanges(table="t", change=change)
    with pytest.raises(TopologyException, match=r"change \(|cannot have a column"):
        TableAggregation(source="moved", aggregates=AGGREGATES, change=change)


@pytest.mark.parametrize("columns", [5, [1], [None], [["v"]]])
def test_columns_are_given_by_their_names(columns: Any) -> None:
    with pytest.raises(TopologyException, match="must be a list of names"):
        TableChanges(table="t", columns=columns)
