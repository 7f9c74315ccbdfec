"""A grace that is another one in a later run of the same folder: what was closed stays closed, nothing comes twice or is lost."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    CommitLogException,
    DeadLetters,
    SessionWindows,
    SubTopology,
    TimeWindows,
    TopicSpec,
    Topology,
    WindowedAggregation,
    WindowedJoin,
    append_topic,
    read_output,
    write_topic,
)
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of
from tests.runtime.support import application

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
TOPICS = {name: TopicSpec(name, 4, SCHEMA, ("k",), "at") for name in "lr"}
Row = tuple[int, int, int]
GRACES = st.lists(st.sampled_from([0, 3, 12, 40]), min_size=2, max_size=4)


_table = partial(table_of, SCHEMA)


@st.composite
def logs(draw: st.DrawFn, phases: int) -> list[list[Row]]:
    """For each phase its rows, in a disorder."""
    found, newest, number = [], 0, 0
    for _ in range(phases):
        rows: list[Row] = []
        for _ in range(draw(st.integers(0, 12))):
            newest += draw(st.sampled_from([0, 1, 2, 9]))
            number += 1
            rows.append((draw(st.sampled_from([1, 2])), newest - draw(st.integers(0, 30)), number))
        found.append(rows)
    return found


def _windows(size: int, advance: int | None, grace: int) -> SubTopology:
    plan = WindowedAggregation(
        source="l",
        windows=TimeWindows(size, advance),
        aggregates={"rows": Aggregate.count(), "sum": Aggregate.sum("v")},
        grace_ms=grace,
        late_records="skip",
    )
    return plan.sub_topology("w", "out", TOPICS["l"])


@given(st.data(), GRACES, st.sampled_from([(10, None), (10, 4), (7, 7), (20, 5)]))
@settings(max_examples=examples(60))
@pytest.mark.thorough
def test_time_windows_that_were_closed_stay_closed(
    data: st.DataObject, graces: list[int], window: tuple[int, int | None]
) -> None:
    size, advance = window[0], window[1] or window[0]
    phases = data.draw(logs(len(graces)))
    task = MemoryTask(_windows(size, advance, graces[0]), TOPICS)
    open_ones: dict[tuple[int, int], list[int]] = defaultdict(list)
    expected: list[dict[str, Any]] = []
    rows, newest, closed_before, late = list[Row](), -(10**9), -(10**9), 0
    for grace, more in zip(graces, phases, strict=True):
        task.become(_windows(size, advance, grace))
        rows += more
        task.run(data, {"l": _table(rows)})
        for key, at, value in more:
            newest = max(newest, at)
            starts = [start for start in range(at - size + 1, at + 1) if start % advance == 0]
            taken = [start for start in starts if start + size + grace > newest and start >= closed_before]
            late += len(taken) < len(starts)
            for start in taken:
                open_ones[key, start].append(value)
        if more:
            closed_before = max(closed_before, newest - size - grace + 1)
        for key, start in sorted(open_ones):
            if start < closed_before:
                values = open_ones.pop((key, start))
                found = {"rows": len(values), "sum": sum(values)}
                expected.append({"k": key, "window_start": start, "window_end": start + size, **found})
    found_rows = task.outputs.get("out", [])
    assert sorted(found_rows, key=str) == sorted(expected, key=str)
    assert task.counters.get("late", 0) == late


def _join(left_grace: int, right_grace: int) -> SubTopology:
    plan = WindowedJoin(
        left="l",
        right="r",
        before_ms=6,
        after_ms=9,
        left_grace_ms=left_grace,
        right_grace_ms=right_grace,
        late_records=DeadLetters("late"),
        late_limit_ms=None,
    )
    return plan.sub_topology("j", "out")


@given(st.data(), GRACES)
@settings(max_examples=examples(60))
@pytest.mark.thorough
def test_all_pairs_of_rows_that_are_not_late_come_once(data: st.DataObject, graces: list[int]) -> None:
    """What was forgotten under a shorter grace was missing without a word."""
    other = data.draw(st.permutations(graces))
    phases = [data.draw(logs(len(graces))) for _ in "lr"]
    task = MemoryTask(_join(graces[0], other[0]), TOPICS)
    rows: dict[str, list[Row]] = {"l": [], "r": []}
    allowed = {"l": list[tuple[int, int]](), "r": list[tuple[int, int]]()}
    newest = -(10**9)
    for number, now in enumerate(zip(graces, other, strict=True)):
        task.become(_join(*now))
        newest = max([newest, *(row[1] for phase in phases for row in phase[number])])
        for side, phase, grace_so_far in zip("lr", phases, (graces, other), strict=True):
            rows[side] += phase[number]
            allowed[side] += [(min(grace_so_far[: number + 1]), newest)] * len(phase[number])
        task.run(data, {side: _table(found) for side, found in rows.items()})
    late = {(row["topic"], row["offset"]) for row in task.outputs.get("late", [])}
    for side, offset in late:
        least, latest = allowed[side][offset]
        assert rows[side][offset][1] < latest - least
    left, right = ([row for offset, row in enumerate(rows[side]) if (side, offset) not in late] for side in ("l", "r"))
    expected = [(x[2], y[2]) for x in left for y in right if x[0] == y[0] and -6 <= y[1] - x[1] <= 9]
    found = [(row["v"], row["v_right"]) for row in task.outputs.get("out", [])]
    assert sorted(found) == sorted(expected)


def _late_of(row: dict[str, Any]) -> str:
    return str(row["error"])


def test_a_run_goes_on_with_a_longer_grace(tmp_path: Path) -> None:
    def counting(grace: int) -> Topology:
        plan = WindowedAggregation(
            source="l",
            windows=TimeWindows(10),
            aggregates={"rows": Aggregate.count()},
            grace_ms=grace,
            late_records=DeadLetters("late"),
        )
        return Topology([plan.sub_topology("w", "out", TOPICS["l"])])

    write_topic(tmp_path / "topics", "l", _table([(1, 3, 1), (1, 25, 2)]), partitions=1, key=["k"], timestamp="at")
    application(tmp_path, counting(0), clients=1).run()
    append_topic(tmp_path / "topics", "l", _table([(1, 19, 3), (1, 21, 4)]))
    application(tmp_path, counting(100), clients=1).run()
    append_topic(tmp_path / "topics", "l", _table([(1, 5, 5), (1, 22, 6), (1, 200, 7)]))
    application(tmp_path, counting(20), clients=1).run()
    found = [(row["window_start"], row["rows"]) for row in read_output(tmp_path / "run", "out").to_pylist()]
    # The first one came out before, the second was closed, though nothing was in it.
    assert found == [(0, 1), (20, 3)]
    assert [_late_of(row) for row in read_output(tmp_path / "run", "late").to_pylist()] == [
        "is 6 ms older than a record before it; 100 ms are allowed, but were fewer when its window was closed",
        "is 20 ms older than a record before it; 20 ms are allowed, but were fewer when its window was closed",
    ]


@pytest.mark.parametrize("kind", ["sessions", "left join"])
def test_where_it_is_not_known_what_has_come_out_it_is_refused(tmp_path: Path, kind: str) -> None:
    def topology(grace: int) -> Topology:
        if kind == "sessions":
            plan = WindowedAggregation(
                source="l", windows=SessionWindows(5), aggregates={"n": Aggregate.count()}, grace_ms=grace
            )
            return Topology([plan.sub_topology("w", "out", TOPICS["l"])])
        join = WindowedJoin(left="l", right="r", before_ms=0, after_ms=5, how="left", right_grace_ms=grace)
        return Topology([join.sub_topology("j", "out")])

    for name in "lr":
        write_topic(tmp_path / "topics", name, _table([(1, 3, 1)]), partitions=1, key=["k"], timestamp="at")
    application(tmp_path, topology(0), clients=1).run()
    with pytest.raises(
        CommitLogException, match=r"grace_ms: was 0, is 5.*A grace of sessions, or of a join with rows wi"
    ):
        application(tmp_path, topology(5), clients=1).run()
