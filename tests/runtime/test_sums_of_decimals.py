"""Sums and means of decimals: as exact as Python's, wherever batches are cut, or an error."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    TableAggregation,
    TimeWindows,
    TopicSpec,
    TopologyException,
    WindowedAggregation,
)
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of

AGGREGATES = {"sum": Aggregate.sum("d"), "mean": Aggregate.mean("d"), "least": Aggregate.min("d")}
EXACT = Context(prec=80)
Row = tuple[str, int, Decimal | None, int]


def _schema(digits: int, scale: int) -> pa.Schema:
    kind = pa.decimal128(digits, scale)
    return pa.schema([("k", pa.string()), ("at", pa.int64()), ("d", kind), ("change", pa.int64())])


@st.composite
def logs(draw: st.DrawFn) -> tuple[pa.Schema, list[Row]]:
    """Amounts with a scale, and times that ascend; each may be taken away again right after it has come."""
    digits, scale = draw(st.sampled_from([(5, 2), (18, 0), (20, 20), (30, 7)]))
    largest = 10**digits - 1
    amounts = st.one_of(st.none(), st.integers(-largest, largest), st.sampled_from([largest, -largest, 0]))
    rows: list[Row] = []
    for at, (key, amount, goes) in enumerate(draw(st.lists(st.tuples(st.sampled_from("abc"), amounts, st.booleans())))):
        value = None if amount is None else Decimal(amount).scaleb(-scale, EXACT)
        rows.append((key, at, value, 1))
        if goes:
            rows.append((key, at, value, -1))
    return _schema(digits, scale), rows


def _plain(rows: list[Row]) -> dict[str, Any]:
    total, number = Decimal(0), 0
    for *_, value, change in rows:
        if value is not None:
            total, number = EXACT.add(total, EXACT.multiply(value, change)), number + change
    return {"sum": total if number else None, "mean": float(total) / number if number else None}


def _run(kind: Any, log: tuple[pa.Schema, list[Row]], data: st.DataObject) -> tuple[list[dict[str, Any]], pa.Schema]:
    columns, rows = log
    spec = TopicSpec("s", 4, columns, ("k",), "at")
    sub = kind.sub_topology("a", "out", [spec])
    task = MemoryTask(sub, {"s": spec})
    task.run(data, {"s": table_of(columns, rows)})
    schema = sub.schema_of(sub.outputs[0], {"s": spec})
    assert schema is not None
    return task.outputs.get("out", []), schema


def _check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["sum"] == expected["sum"]
    assert found["mean"] == (expected["mean"] if expected["mean"] is None else pytest.approx(expected["mean"]))


@given(st.data(), logs())
@settings(max_examples=examples(40))
def test_sums_of_groups_are_those_of_python(data: st.DataObject, log: tuple[pa.Schema, list[Row]]) -> None:
    schema, rows = log[0], [row for row in log[1] if row[3] > 0]
    found, result = _run(Aggregation(source="s", aggregates=AGGREGATES), (schema, rows), data)
    scale = schema.field("d").type.scale
    assert [result.field(name).type for name in AGGREGATES] == [
        pa.decimal128(38, scale),
        pa.float64(),
        schema.field("d").type,
    ]
    last = {row["k"]: row for row in found}
    for key in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == key]
        _check(last[key], _plain(own))
        assert last[key]["least"] == min((row[2] for row in own if row[2] is not None), default=None)


@given(st.data(), logs())
@settings(max_examples=examples(40))
@pytest.mark.thorough
def test_sums_of_windows_are_those_of_python(data: st.DataObject, log: tuple[pa.Schema, list[Row]]) -> None:
    rows = [row for row in log[1] if row[3] > 0]
    plan = WindowedAggregation(
        source="s", windows=TimeWindows(5), aggregates={"sum": Aggregate.sum("d"), "mean": Aggregate.mean("d")}
    )
    found, _ = _run(plan, (log[0], [*rows, ("z", 1_000, None, 1)]), data)
    assert {(row["k"], row["window_start"]) for row in found} == {(row[0], row[1] // 5 * 5) for row in rows}
    for row in found:
        _check(row, _plain([one for one in rows if (one[0], one[1] // 5 * 5) == (row["k"], row["window_start"])]))


@given(st.data(), logs())
@settings(max_examples=examples(40))
def test_what_goes_is_taken_away_exactly(data: st.DataObject, log: tuple[pa.Schema, list[Row]]) -> None:
    kinds = {"sum": Aggregate.sum("d"), "mean": Aggregate.mean("d"), "rows": Aggregate.count()}
    found, _ = _run(TableAggregation(source="s", aggregates=kinds), log, data)
    last = {row["k"]: row for row in found}
    for key, row in last.items():
        own = [one for one in log[1] if one[0] == key]
        if sum(one[3] for one in own):
            _check(row, _plain(own))
        else:
            assert row["rows"] is None


@pytest.mark.parametrize("batches", [1, 30])
def test_a_sum_of_more_digits_than_there_are_is_an_error(batches: int) -> None:
    """It went round, and was negative: 128 bits have no more."""
    schema = _schema(38, 2)
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    task = MemoryTask(Aggregation(source="s", aggregates=AGGREGATES).sub_topology("a", "out", [spec]), {"s": spec})
    rows = table_of(schema, [("x", 0, Decimal("9" * 35 + ".99"), 1)] * 30)
    size = 30 // batches
    for start in range(0, 9 // size * size, size):
        task.process({"s": rows.slice(start, size)})
    with pytest.raises(OverflowError, match=r"the sum for 'sum' does not fit into 38 digits: .*'k': 'x'"):
        task.process({"s": rows.slice(9 // size * size, 2 * size)})


@pytest.mark.parametrize("scale", [0, 10, 38])
def test_the_largest_sums_that_fit_do(scale: int) -> None:
    """All nines were said not to fit, as a float has another digit there; whoever writes them for "no limit" had no run."""
    schema = _schema(38, scale)
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    largest, one = (Decimal(number).scaleb(-scale, EXACT) for number in (10**38 - 1, 1))
    least = EXACT.minus(largest)
    for values, total in (
        ([least], least),
        ([largest, least, largest], largest),
        ([EXACT.subtract(largest, one), one], largest),
    ):
        task = MemoryTask(Aggregation(source="s", aggregates=AGGREGATES).sub_topology("a", "out", [spec]), {"s": spec})
        for value in values:
            task.process({"s": table_of(schema, [("x", 0, value, 1)])})
        assert task.outputs["out"][-1]["sum"] == total
    with pytest.raises(OverflowError, match=r"the sum for 'sum' does not fit into 38 digits"):
        task.process({"s": table_of(schema, [("x", 0, one, 1)])})


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.decimal128(5, -2)], ids=str)
def test_decimals_that_cannot_be_added_are_refused(kind: pa.DataType) -> None:
    spec = TopicSpec("s", 4, pa.schema([("k", pa.string()), ("d", kind)]), ("k",), None)
    with pytest.raises(TopologyException, match=rf"'d' as decimal.*{kind.scale}\): polars has no"):
        Aggregation(source="s", aggregates=AGGREGATES).sub_topology("a", "out", [spec])
