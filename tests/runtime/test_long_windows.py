"""Windows that many batches add to: what a store has of them follows from the windows and groups, not from the batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    SlidingWindows,
    SubTopology,
    TimeWindows,
    TopicSpec,
    Topology,
    WindowedAggregation,
)
from task_assignor.runtime.processors.windows import Windows
from task_assignor.runtime.stores import window
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.sdk import TaskId
from tests.runtime.memory_task import MemoryTask, table_of

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.int64())])
SPEC = TopicSpec("s", 4, SCHEMA, ("k",), "at")
AGGREGATES = {
    "rows": Aggregate.count(),
    "sum": Aggregate.sum("v"),
    "least": Aggregate.min("v"),
    "mean": Aggregate.mean("v"),
}
FOLD = {"last": Aggregate.fold(lambda _, record: record["v"], 0, pa.int64())}


def _task(windows: Windows, aggregates: Mapping[str, Aggregate]) -> MemoryTask:
    return MemoryTask(_plan(windows, aggregates), {"s": SPEC})


def _plan(windows: Windows, aggregates: Mapping[str, Aggregate]) -> SubTopology:
    plan = WindowedAggregation(source="s", windows=windows, aggregates=aggregates)
    return plan.sub_topology("a", "out", [SPEC])


def _held_by_a_standby(windows: Windows, aggregates: Mapping[str, Aggregate], active: MemoryTask) -> int:
    """Rows that a client has which gets the changes alone."""
    (topology,) = Topology([_plan(windows, aggregates)]).processor_topologies
    stores = {spec.name: spec.create() for spec in topology.stores}
    TaskProcessors("app", TaskId(0, 3), topology, {"s": SPEC}, stores)
    (store,) = stores.values()
    for (changes,) in active.changelog:
        if changes is not None:
            store.apply(changes)
    return len(store)


@pytest.mark.parametrize(
    ("windows", "most"),
    [
        pytest.param(TimeWindows(1_000, 10), 33 * 300, marks=pytest.mark.thorough),
        (TimeWindows(10_000), 33 * 3),
        pytest.param(SlidingWindows(50), 33 * 50, marks=pytest.mark.thorough),
    ],
)
def test_a_window_has_no_row_for_each_batch(monkeypatch: pytest.MonkeyPatch, windows: Windows, most: int) -> None:
    """It had: one hour every minute for 1 000 keys, with a batch each second, 60 000 rows more with every batch."""
    monkeypatch.setattr(window, "SMALL_ROWS", 0)
    aggregates = AGGREGATES | (FOLD if isinstance(windows, TimeWindows) else {})
    task, held = _task(windows, aggregates), 0
    for number in range(400):
        at = 10 * (number // 20)
        task.process({"s": table_of(SCHEMA, [(key, at, number) for key in "abc"])})
        held = max(held, task.held())
        if number == 250:
            assert held <= most
            assert _held_by_a_standby(windows, aggregates, task) <= most
            task.start()
    assert held <= most
    task.process({"s": table_of(SCHEMA, [("end", 100_000, 0)])})
    if isinstance(windows, SlidingWindows):
        assert max(Counter(row["window_end"] for row in task.outputs["out"]).values()) == 3
        return
    for row in task.outputs["out"]:
        start, end = row["window_start"], row["window_end"]
        numbers = [number for number in range(400) if start <= 10 * (number // 20) < end]
        found = (row["rows"], row["sum"], row["least"], row["mean"], row["last"])
        assert found == (len(numbers), sum(numbers), numbers[0], sum(numbers) / len(numbers), numbers[-1])
    assert len(task.outputs["out"]) == 3 * len({row["window_start"] for row in task.outputs["out"]})


def test_parts_of_a_sum_need_not_fit_together_before_the_window_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "SMALL_ROWS", 0)
    task = _task(TimeWindows(10), AGGREGATES)
    for number in range(100):
        task.process({"s": table_of(SCHEMA, [("a", 0, 2**62 if number < 50 else -(2**62))])})
    task.process({"s": table_of(SCHEMA, [("a", 10, 1)])})
    assert [(row["rows"], row["sum"]) for row in task.outputs["out"]] == [(100, 0)]
