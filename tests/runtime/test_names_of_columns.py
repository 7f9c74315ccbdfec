"""Columns may have any name: those of ours, which stand beside them for a while, are others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    TopicSpec,
    WindowedAggregation,
)
from task_assignor.runtime.processors.windows import Windows
from tests.runtime.memory_task import MemoryTask, table_of

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.int32()), ("f", pa.float64())])
table = partial(table_of, SCHEMA)


def _longer(text: str, record: Any) -> str:
    return f"{text}{record['v']};"


FOLD = {"text": Aggregate.fold(_longer, "", pa.string())}


def results(
    spec: TopicSpec,
    windows: Windows | None,
    rows: Sequence[tuple[Any, ...]],
    aggregates: Mapping[str, Aggregate],
    folds: Mapping[str, Aggregate],
) -> list[dict[str, Any]]:
    """What comes out of an aggregation of single rows; some windows have no folds."""
    every = aggregates if isinstance(windows, (SlidingWindows, SessionWindows)) else {**aggregates, **folds}
    plan = (
        Aggregation(source="s", aggregates=every)
        if windows is None
        else WindowedAggregation(source="s", windows=windows, aggregates=every)
    )
    task = MemoryTask(plan.sub_topology("a", "out", [spec]), {"s": spec})
    for row in rows:
        task.process({"s": table([row]).rename_columns(spec.schema.names)})
    return task.outputs["out"]


@pytest.mark.parametrize("name", ["__n", "__group", "__session", "__first_end", "m__about", "window"])
@pytest.mark.parametrize(
    "windows",
    [None, TimeWindows(5), SlidingWindows(5), SessionWindows(5)],
    ids=["running", "windows", "sliding", "sessions"],
)
def test_a_key_may_have_any_name(name: str, windows: Windows | None) -> None:
    """Some were those of columns that stood beside it for a while."""
    spec = TopicSpec("s", 4, SCHEMA.set(0, pa.field(name, pa.string())), (name,), "at")
    aggregates = {"m": Aggregate.mean("v"), "n": Aggregate.count()}
    rows = [("a", 1, 1, 0.0), ("b", 2, 3, 0.0), ("a", 90, 5, 0.0)]
    found = [(row[name], row["m"]) for row in results(spec, windows, rows, aggregates, FOLD)]
    assert found == [("a", 1.0), ("b", 3.0)] + [("a", 3.0)] * (windows is None)


@pytest.mark.parametrize("name", ["row", "group", "session", "place", "asked"])
@pytest.mark.parametrize(
    "windows",
    [None, TimeWindows(5), SlidingWindows(5), SessionWindows(5)],
    ids=["running", "windows", "sliding", "sessions"],
)
def test_what_is_computed_with_may_have_any_name(name: str, windows: Windows | None) -> None:
    """Of a column "session" the sessions had their numbers, without a word; beside a function "row" and "group" were an error."""
    spec = TopicSpec("s", 4, SCHEMA.set(2, pa.field(name, pa.int32())), ("k",), "at")
    aggregates = {"most": Aggregate.max(name), name: Aggregate.sum(name)}
    fold = {"last": Aggregate.fold(lambda _, record: record[name], 0, pa.int64())}
    rows = [("a", 1, 70, 0.0), ("b", 2, 80, 0.0), ("a", 90, 0, 0.0)]
    found = [(row["k"], row["most"], row[name]) for row in results(spec, windows, rows, aggregates, fold)]
    assert found == [("a", 70, 70), ("b", 80, 80)] + [("a", 70, 70)] * (windows is None)
