"""What windows and joins write to a repartition topic is older than what they have read: those who read it lose none of it, without a grace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    Processor,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    SubTopology,
    TaskContext,
    TimeWindows,
    TopicSpec,
    Topology,
    WindowedAggregation,
    WindowedJoin,
    append_topic,
    read_output,
    write_topic,
)
from task_assignor.runtime.processors.windows import Windows
from tests.runtime.memory_task import table_of
from tests.runtime.support import QUICK, application

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
TOPICS = {name: TopicSpec(name, 2, SCHEMA, ("k",), "at") for name in "lr"}
WINDOWS = pa.schema([(name, pa.int64()) for name in ("k", "window_start", "window_end", "rows", "one")])
AGGREGATES = {"rows": Aggregate.count(), "one": Aggregate.min("v")}
PAIRS = pa.schema([*SCHEMA, ("at_right", pa.int64()), ("v_right", pa.int64())])
LONG = 20
SMALL = attrs.evolve(QUICK, max_batch_rows=3)
Row = tuple[int, int, int]


class Nothing(Processor):
    """Reads, and gives nothing."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Nothing."""


class Pass(Processor):
    """Gives the rows as they are."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows of the only source."""
        (rows,) = batch.values()
        return rows


def _rows(seed: int, steps: list[int], count: int = 40, start: int = 0) -> list[Row]:
    """In the order of time, of several keys."""
    random = np.random.default_rng(seed)
    times = start + np.cumsum(random.choice(steps, count))
    return [(int(key), int(time), 1) for key, time in zip(random.integers(0, 6, count), times, strict=True)]


def _write(root: Path, **rows: list[Row]) -> None:
    for name, found in rows.items():
        table = table_of(SCHEMA, found)
        write_topic(root / "topics", name, table, partitions=2, key=["k"], timestamp="at")


def _windows(grace: int = 0) -> WindowedAggregation:
    return WindowedAggregation(source="l", windows=TimeWindows(10), aggregates=AGGREGATES, grace_ms=grace)


def _chain(first: SubTopology, between: Repartitioned, *beside: SubTopology) -> Topology:
    """Its rows counted by windows of their times; a late one would stop the run."""
    count = WindowedAggregation(source=between.name, windows=TimeWindows(LONG), aggregates={"n": Aggregate.count()})
    return Topology([first, *beside, count.sub_topology("count", "counts", topics=[between.spec])])


def _counts(root: Path) -> dict[int, int]:
    found = read_output(root / "run", "counts").to_pylist()
    starts = Counter(row["window_start"] for row in found)
    assert set(starts.values()) <= {1}, "there is one key"
    return {row["window_start"]: row["n"] for row in found}


def _is_right(found: dict[int, int], times: list[int], until: int) -> None:
    """The windows that came out, which are at least those that were over then."""
    expected = Counter(time // LONG * LONG for time in times)
    assert found == {start: count for start, count in expected.items() if start <= max(found)}
    assert max(found) >= max(start for start in expected if start + LONG <= until)


@pytest.mark.parametrize("time", ["at", "at_right"])
def test_pairs_by_the_time_of_either_side(tmp_path: Path, time: str) -> None:
    """A pair comes with the newer of its rows, so of the other one the times go back and forth."""
    left, right = _rows(1, [0, 1, 5]), _rows(2, [0, 2, 3])
    _write(tmp_path, l=left, r=right)
    between = Repartitioned("between", PAIRS, key="v", partitions=1, timestamp=time)
    join = WindowedJoin(left="l", right="r", before_ms=15, after_ms=30)
    application(tmp_path, _chain(join.sub_topology("pairs", between), between), clients=1, options=SMALL).run()
    pairs = [(x[1], y[1]) for x in left for y in right if x[0] == y[0] and -15 <= y[1] - x[1] <= 30]
    _is_right(_counts(tmp_path), [pair[time == "at_right"] for pair in pairs], left[-1][1] - 30)


@pytest.mark.parametrize("windows", [SessionWindows(6), SlidingWindows(6)], ids=["sessions", "sliding"])
@pytest.mark.parametrize("time", ["window_start", "window_end"])
def test_windows_by_when_they_began_or_ended(tmp_path: Path, time: str, windows: Windows) -> None:
    """Of one that goes on nobody knows when it will end, but when it began."""
    rows = [*_rows(3, [0, 1, 3], 60), *((8, at, 1) for at in range(0, 60, 4))]
    _write(tmp_path, l=sorted(rows, key=lambda row: row[1]))
    between = Repartitioned("between", WINDOWS, key="one", partitions=1, timestamp=time)
    plan = WindowedAggregation(source="l", windows=windows, aggregates=AGGREGATES)
    same = plan.sub_topology("same", "same-out", TOPICS["l"])
    topology = _chain(plan.sub_topology("first", between, TOPICS["l"]), between, same)
    application(tmp_path, topology, clients=1, options=SMALL).run()
    found = read_output(tmp_path / "run", "same-out").column(time).to_pylist()
    _is_right(_counts(tmp_path), found, 50)


@pytest.mark.parametrize("kind", ["windows", "left join"])
def test_in_a_task_that_reads_other_topics_on(tmp_path: Path, kind: str) -> None:
    """What the task has read of these closes no windows, and these are held back however far it is with them."""
    quiet = [*_rows(4, [0, 1, 5], 20), *_rows(5, [1, 2], 20, start=700)]
    _write(tmp_path, l=quiet, r=_rows(6, [5, 10, 12], 120))
    if kind == "windows":
        between = Repartitioned("between", WINDOWS, key="one", partitions=1, timestamp="window_start")
        first = _windows().sub_topology("first", between, TOPICS["l"])
        times = [start for _, start in {(row[0], row[1] // 10 * 10) for row in quiet}]
    else:
        write_topic(tmp_path / "topics", "q", table_of(SCHEMA, [(99, 0, 1)]), partitions=2, key=["k"], timestamp="at")
        between = Repartitioned("between", PAIRS, key="v", partitions=1, timestamp="at")
        first = WindowedJoin(left="l", right="q", before_ms=0, after_ms=3, how="left").sub_topology("first", between)
        times = [row[1] for row in quiet]
    beside = SubTopology("beside", ["l", "r"], Nothing)
    topology = _chain(first, between, beside)
    assert len(topology.processor_topologies) == 2
    application(tmp_path, topology, clients=1, options=SMALL).run()
    _is_right(_counts(tmp_path), times, quiet[-1][1] - 10)


@pytest.mark.parametrize(
    "graces",
    [(60, 0), pytest.param((0, 60), marks=pytest.mark.thorough), pytest.param((60, 0, 30), marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("checkpoint_every", [2, pytest.param(1_000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("is_beside", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_with_a_grace_that_is_another_one_from_run_to_run(
    tmp_path: Path, graces: tuple[int, ...], checkpoint_every: int, is_beside: bool
) -> None:
    """What a longer one has held back comes under the shorter one, of each task with the first batch that it has."""
    between = Repartitioned("between", WINDOWS, key="one", partitions=1, timestamp="window_start")
    options = attrs.evolve(SMALL, checkpoint_every_commits=checkpoint_every)
    rows: list[Row] = []
    for number, grace in enumerate(graces):
        # All keys at all times, so that no partition is ahead at the end of a run.
        more = [(key, 101 * number + at, 1) for at in range(0, 101, 4) for key in range(6)]
        # Before the first of them there are batches without any.
        others = [(key, 101 * number - 1, 1) for key in range(30)]
        if rows:
            append_topic(tmp_path / "topics", "l", table_of(SCHEMA, more))
            append_topic(tmp_path / "topics", "r", table_of(SCHEMA, others))
        else:
            _write(tmp_path, l=more, r=others)
        rows += more
        first = _windows(grace).sub_topology("first", between, TOPICS["l"])
        beside = [SubTopology("beside", ["l", "r"], Nothing)] if is_beside else []
        application(tmp_path, _chain(first, between, *beside), clients=1, options=options).run()
    times = [start for _, start in {(row[0], row[1] // 10 * 10) for row in rows}]
    _is_right(_counts(tmp_path), times, rows[-1][1] - 70)


@pytest.mark.parametrize("max_batch_rows", [3, 1_000])
def test_over_what_others_wrote_before(tmp_path: Path, max_batch_rows: int) -> None:
    """Its tasks are told at the end, one after the other, that all have come, and then give their last windows."""
    rows = [(key, at, 1) for at in range(0, 200, 7) for key in range(6)]
    _write(tmp_path, l=rows)
    before = Repartitioned("before", SCHEMA, key="k", partitions=3, timestamp="at")
    between = Repartitioned("between", WINDOWS, key="one", partitions=1, timestamp="window_start")
    first = attrs.evolve(_windows(), source="before").sub_topology("first", between, before.spec)
    topology = _chain(first, between, SubTopology("pass", "l", Pass, outputs=[before]))
    options = attrs.evolve(SMALL, max_batch_rows=max_batch_rows)
    application(tmp_path, topology, clients=1, options=options).run()
    times = [start for _, start in {(row[0], row[1] // 10 * 10) for row in rows}]
    found = _counts(tmp_path)
    _is_right(found, times, 180)


def test_beside_a_topic_that_goes_on_where_all_have_come(tmp_path: Path) -> None:
    """Nobody is further than what was read, though windows that end later are all that still comes."""
    rows = [(key, at, 1) for at in range(0, 101, 5) for key in range(6)]
    _write(tmp_path, l=rows, r=rows)
    between = Repartitioned("between", WINDOWS, key="k", partitions=2, timestamp="window_end")
    first = _windows().sub_topology("first", between, TOPICS["l"])
    join = WindowedJoin(left="between", right="r", before_ms=0, after_ms=0)
    topology = Topology([first, join.sub_topology("pairs", "pairs")])
    application(tmp_path, topology, clients=1, options=SMALL).run()
    append_topic(tmp_path / "topics", "r", table_of(SCHEMA, [(key, 100, 2) for key in range(6)]))
    application(tmp_path, topology, clients=1, options=SMALL).run()
    found = Counter(row["window_end"] for row in read_output(tmp_path / "run", "pairs").to_pylist())
    assert found == {**dict.fromkeys(range(10, 91, 10), 6), 100: 12}
