"""Aggregates over sliding windows: against a loop over the records, whatever disorder, batches and restarts are."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    DeadLetters,
    SlidingWindows,
    TopologyException,
    WindowedAggregation,
)
from task_assignor.runtime.processors import windowed_aggregation
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask
from tests.runtime.test_aggregation import AGGREGATES, SPEC, TOPICS, Row, logs, plain, table


@given(st.data(), logs(), st.integers(0, 9), st.sampled_from([1, 9, 1 << 20]))
@settings(max_examples=examples(25))
def test_sliding_windows_come_once_when_they_are_closed(
    data: st.DataObject, log: tuple[list[Row], int], difference: int, at_once: int
) -> None:
    """Of every record one that ends with it, and one that begins right after it, if it is not empty; in whatever slices."""
    rows, grace = log
    plan = WindowedAggregation(
        source="s",
        windows=SlidingWindows(difference),
        aggregates=AGGREGATES,
        grace_ms=grace,
        late_records=DeadLetters("late"),
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    with patch.object(windowed_aggregation, "_AT_ONCE", at_once):
        task.run(data, {"s": table(rows)})
    windows: dict[tuple[int, str], list[Row]] = {}
    exists: set[tuple[int, str]] = set()
    late, now = [], -(10**9)
    for offset, row in enumerate(rows):
        now = max(now, row[1])
        is_open = [start for start in range(row[1] - difference, row[1] + 1) if start + difference + grace >= now]
        if len(is_open) <= difference:
            late.append(offset)
        for start in is_open:
            windows.setdefault((start, row[0]), []).append(row)
        if is_open:
            exists |= {
                (start, row[0]) for start in (row[1] - difference, row[1] + 1) if start in (*is_open, row[1] + 1)
            }
    expected = [
        {"k": key, "window_start": start, "window_end": start + difference, **plain(found)}
        for (start, key), found in sorted(windows.items())
        if (start, key) in exists and start + difference + grace < now
    ]
    assert task.outputs.get("out", []) == expected
    assert [one["offset"] for one in task.outputs.get("late", [])] == late


def test_a_window_is_closed_when_the_time_is_more_than_the_grace_past_its_end() -> None:
    plan = WindowedAggregation(
        source="s", windows=SlidingWindows(10), aggregates={"n": Aggregate.count()}, grace_ms=5, late_records="skip"
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": table([("a", 100, 1, 0.0), ("a", 104, 1, 0.0), ("b", 105, 1, 0.0)])})
    assert "out" not in task.outputs
    task.process({"s": table([("b", 106, 1, 0.0)])})
    ends = [(row["k"], row["window_start"], row["window_end"], row["n"]) for row in task.outputs["out"]]
    assert ends == [("a", 90, 100, 1)]
    # Late for the windows up to 100 alone.
    task.process({"s": table([("a", 99, 1, 0.0), ("b", 200, 1, 0.0)])})
    ends = [(row["k"], row["window_start"], row["window_end"], row["n"]) for row in task.outputs["out"][1:]]
    assert [found for found in ends if found[0] == "a"] == [("a", 94, 104, 3), ("a", 100, 110, 2), ("a", 101, 111, 1)]
    assert task.counters == {"late": 1}


@pytest.mark.parametrize("difference", [-1, 1.5, True, None, 2**61])
def test_wrong_differences_are_refused(difference: Any) -> None:
    with pytest.raises(
        TopologyException, match=rf"The time_difference_ms \({difference}\) of SlidingWindows must be an int"
    ):
        SlidingWindows(difference)
