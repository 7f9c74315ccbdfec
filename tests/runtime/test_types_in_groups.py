"""Aggregates by columns of rarer types, and folds to them: what polars makes of them comes back as it was."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import Aggregate, Aggregation, TimeWindows, TopicSpec, WindowedAggregation
from tests.runtime.memory_task import MemoryTask

JSON: list[tuple[pa.DataType, list[Any]]] = (
    [(pa.json_(), ["1", '{"a":2}']), (pa.json_(pa.large_string()), ["1", "[]"])] if hasattr(pa, "json_") else []
)


def _last(_: Any, record: Any) -> Any:
    return record["x"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.uuid(), [bytes(16), bytes(range(16))]), (pa.bool8(), [0, 1]), (pa.list_(pa.int8()), [[1], []]), *JSON],
    ids=str,
)
def test_windows_by_rarer_types(kind: pa.DataType, values: list[Any]) -> None:
    """By JSON the run ended with the first batch: Arrow said that it cannot cast JSON to JSON."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", kind)])
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    stored = pa.array([values[0], values[1], values[0]], getattr(kind, "storage_type", kind))
    x = pa.ExtensionArray.from_storage(kind, stored) if isinstance(kind, pa.BaseExtensionType) else stored
    windowed = WindowedAggregation(
        source="s", windows=TimeWindows(10), by=("k", "x"), aggregates={"n": Aggregate.count()}
    )
    task = MemoryTask(windowed.sub_topology("a", "out", [spec]), {"s": spec})
    task.process({"s": pa.table([[1, 1, 1], [0, 1, 2], x], schema=schema)})
    task.start()
    found = task.process({"s": pa.table([[2], [50], x.slice(0, 1)], schema=schema)})
    assert found is not None
    assert found.schema.field("x").type == kind
    expected = dict(zip([str(one) for one in x.to_pylist()], [2, 1, 2], strict=True))
    assert {str(row["x"]): row["n"] for row in found.to_pylist()} == expected


@pytest.mark.parametrize("cuts", [[0, 1, 2, 3, 4], [0, 3, 4]], ids=["one by one", "of two files"])
def test_parts_of_a_table_with_lists_of_one_size_can_be_counted(cuts: list[int]) -> None:
    """Where some are null, polars did not take a part of the rows that were read, nor those of two files: the run ended with its error."""
    kind = pa.list_(pa.float32(), 2)
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", kind)])
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    counted = WindowedAggregation(source="s", windows=TimeWindows(10), aggregates={"n": Aggregate.count("x")})
    task = MemoryTask(counted.sub_topology("a", "out", [spec]), {"s": spec})
    rows = pa.table([[1, 1, 1, 1], [0, 1, 2, 50], pa.array([None, [1, 2], [3, 4], None], kind)], schema=schema)
    rows = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    found = [task.process({"s": rows.slice(start, end - start)}) for start, end in pairwise(cuts)]
    assert found[-1] is not None
    assert found[-1].column("n").to_pylist() == [2]


@pytest.mark.parametrize("kind", [found for found, _ in JSON], ids=str)
def test_a_fold_may_give_json(kind: pa.DataType) -> None:
    """So did what a function makes, if its type is JSON."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", pa.string())])
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    folded = WindowedAggregation(
        source="s", windows=TimeWindows(10), aggregates={"x": Aggregate.fold(_last, "0", kind)}
    )
    task = MemoryTask(folded.sub_topology("a", "out", [spec]), {"s": spec})
    task.process({"s": pa.table([[1, 1], [0, 1], ["1", "2"]], schema=schema)})
    found = task.process({"s": pa.table([[1], [50], ["3"]], schema=schema)})
    assert found is not None
    assert found.schema.field("x").type == kind
    assert found.column("x").to_pylist() == ["2"]


@pytest.mark.parametrize("size_ms", [None, 10])
def test_a_fold_may_give_texts_of_a_dictionary(size_ms: int | None) -> None:
    """Who gave the type of a column of the topic got an AttributeError of pyarrow."""
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", kind)])
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    aggregates = {"x": Aggregate.fold(_last, None, kind)}
    if size_ms is None:
        folded = Aggregation(source="s", aggregates=aggregates).sub_topology("a", "out", spec)
    else:
        windows = TimeWindows(size_ms)
        folded = WindowedAggregation(source="s", windows=windows, aggregates=aggregates).sub_topology("a", "out", spec)
    task = MemoryTask(folded, {"s": spec})
    rows = pa.table([[1, 1, 2], [0, 1, 50], pa.array(["b", "a", "c"]).dictionary_encode()], schema=schema)
    for start in range(3):
        found = task.process({"s": rows.slice(start, 1)})
        task.start()
    assert found is not None
    assert found.schema.field("x").type == kind
    assert found.column("x").to_pylist() == ["c" if size_ms is None else "a"]
    assert task.outputs["out"][0]["x"] == ("b" if size_ms is None else "a")


@pytest.mark.parametrize("size_ms", [None, 10])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.struct([("d", pa.dictionary(pa.int32(), pa.string()))]), None), (pa.bool8(), True)],
    ids=["null beside a dictionary", "bool8"],
)
def test_a_fold_may_give_values_of_which_arrow_makes_no_column_itself(
    kind: pa.DataType, value: object, size_ms: int | None
) -> None:
    """Of a struct with a dictionary polars panicked where all were null; of truth values as bytes Arrow wanted integers."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    aggregates = {"x": Aggregate.fold(lambda _, __: value, None, kind)}
    folded = (
        Aggregation(source="s", aggregates=aggregates)
        if size_ms is None
        else WindowedAggregation(source="s", windows=TimeWindows(size_ms), aggregates=aggregates)
    )
    task = MemoryTask(folded.sub_topology("a", "out", spec), {"s": spec})
    for at in (0, 1, 50):
        task.process({"s": pa.table([[1], [at]], schema=schema)})
        task.start()
    assert task.outputs["out"][0] == {"k": 1, "x": value} | ({"window_start": 0, "window_end": 10} if size_ms else {})
