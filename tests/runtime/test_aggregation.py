"""Aggregates, running and over windows: against a loop over the records, whatever disorder, batches and restarts are."""

from __future__ import annotations

import datetime as dt
import itertools
from functools import partial
from typing import Any
from unittest.mock import patch

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BadRecordException,
    DeadLetters,
    LateRecordException,
    SessionWindows,
    SlidingWindows,
    StreamTableJoin,
    TableJoin,
    TimeWindows,
    TopicSpec,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
)
from task_assignor.runtime.processors import windowed_aggregation
from task_assignor.runtime.processors.aggregates import Group
from task_assignor.runtime.processors.windows import Windows
from task_assignor.runtime.topology.sub_topology import factory_name, processor_name
from tests.budget import examples
from tests.runtime.memory_task import MemoryTask, table_of

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.int32()), ("f", pa.float64())])
SPEC = TopicSpec("s", 4, SCHEMA, ("k",), "at")
TOPICS = {"s": SPEC}
Row = tuple[str, int, int | None, float]


def _longer(text: str, record: Any) -> str:
    return f"{text}{record['v']};"


AGGREGATES = {
    "rows": Aggregate.count(),
    "values": Aggregate.count("v"),
    "sum": Aggregate.sum("v"),
    "mean": Aggregate.mean("v"),
    "least": Aggregate.min("v"),
    "most": Aggregate.max("f"),
    "halves": Aggregate.sum("f"),
}
FOLD = {"text": Aggregate.fold(_longer, "", pa.string())}


def plain(rows: list[Row]) -> dict[str, Any]:
    """What the aggregates of some rows are; `f` has values whose sums are exact."""
    values = [row[2] for row in rows if row[2] is not None]
    return {
        "rows": len(rows),
        "values": len(values),
        "sum": sum(values) if values else None,
        "mean": sum(values) / len(values) if values else None,
        "least": min(values, default=None),
        "most": max(row[3] for row in rows),
        "halves": sum(row[3] for row in rows),
    }


table = partial(table_of, SCHEMA)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], int]:
    """Rows in a disorder, some of them beyond the grace that comes with them."""
    grace = draw(st.sampled_from([0, 3, 10]))
    rows: list[Row] = []
    now = draw(st.integers(-20, 20))
    for _ in range(draw(st.integers(0, 25))):
        now += draw(st.sampled_from([0, 0, 1, 2, 6]))
        time = now - draw(st.one_of(st.just(0), st.integers(0, grace), st.integers(0, 20)))
        value = draw(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)))
        rows.append((draw(st.sampled_from("ab")), time, value, draw(st.integers(-4, 4)) / 2))
    return rows, grace


@given(st.data(), logs())
@settings(max_examples=examples(25))
def test_the_last_row_of_a_group_is_the_aggregate_of_all_its_rows(
    data: st.DataObject, log: tuple[list[Row], int]
) -> None:
    rows, _ = log
    sub = Aggregation(source="s", aggregates=AGGREGATES | FOLD).sub_topology("a", "out", [SPEC])
    task = MemoryTask(sub, TOPICS)
    task.run(data, {"s": table(rows)})
    last = {row["k"]: row for row in task.outputs.get("out", [])}
    expected = {}
    for key in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == key]
        expected[key] = {"k": key, **plain(own), "text": "".join(f"{row[2]};" for row in own)}
    assert last == expected


@given(st.data(), logs(), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 9, 1 << 20]))
@settings(max_examples=examples(25))
@pytest.mark.thorough
def test_time_windows_come_once_when_they_are_closed(
    data: st.DataObject, log: tuple[list[Row], int], size: int, advance: int, at_once: int
) -> None:
    """In whatever slices they are computed."""
    with patch.object(windowed_aggregation, "_AT_ONCE", at_once):
        _check_time_windows(data, log, size, advance)


def _check_time_windows(data: st.DataObject, log: tuple[list[Row], int], size: int, advance: int) -> None:
    rows, grace = log
    advance = min(size, advance)
    plan = WindowedAggregation(
        source="s",
        windows=TimeWindows(size, advance),
        aggregates=AGGREGATES | FOLD,
        grace_ms=grace,
        late_records=DeadLetters("late"),
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.run(data, {"s": table(rows)})
    windows: dict[tuple[int, str], list[Row]] = {}
    late, now = [], -(10**9)
    for offset, row in enumerate(rows):
        now = max(now, row[1])
        starts = [start for start in range(row[1] - size + 1, row[1] + 1) if start % advance == 0]
        is_open = [start for start in starts if start + size + grace > now]
        if is_open != starts:
            late.append(offset)
        for start in is_open:
            windows.setdefault((start, row[0]), []).append(row)
    expected = [
        {
            "k": k,
            "window_start": start,
            "window_end": start + size,
            **plain(own),
            "text": "".join(f"{r[2]};" for r in own),
        }
        for (start, k), own in sorted(windows.items())
        if start + size + grace <= now
    ]
    found = task.outputs.get("out", [])
    assert sorted(found, key=lambda row: (row["window_start"], row["k"])) == expected
    assert [row["offset"] for row in task.outputs.get("late", [])] == late
    assert task.counters.get("late", 0) == len(late)


def test_a_zone_may_be_an_offset() -> None:
    """Polars knows none."""
    zone = pa.timestamp("us", "+05:30")
    schema = pa.schema([("k", zone), ("at", zone), ("v", zone)])
    topics = {name: TopicSpec(name, 4, schema, ("k",), "at") for name in "st"}
    rows = pa.table([pa.array(one).cast(zone) for one in ([1, 1, 2], [1, 1, 5_000], [5, 7, 6])], schema=schema)
    wanted = {"last": Aggregate.max("v"), "first": Aggregate.fold(lambda old, row: old or row["v"], None, zone)}
    windows = WindowedAggregation(source="s", windows=TimeWindows(1), aggregates=wanted)
    subs = [
        Aggregation(source="s", aggregates=wanted).sub_topology("a", "out", topics.values()),
        windows.sub_topology("a", "out", topics.values()),
        WindowedJoin(left="s", right="t", before_ms=1, after_ms=1).sub_topology("a", "out"),
        StreamTableJoin(stream="s", table="t").sub_topology("a", "out", topics.values()),
    ]
    for sub in subs:
        task = MemoryTask(sub, topics)
        for start in range(3):
            result = task.process(dict.fromkeys(task.read, rows.slice(start, 1)))
            task.start()
        assert result is not None
        assert result.num_rows == 1
        assert {field.type for field in result.schema} == {zone}


def _counted(found: Any, record: Any) -> Any:
    return [*found, (str(record["v"]), len(found))]


def _listed(found: Any, record: Any) -> Any:
    return (*found, f"{type(found).__name__} {record['v']}")


@pytest.mark.parametrize("rows_at_once", [3, 1])
@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (
            Aggregate.fold(_counted, (), pa.map_(pa.string(), pa.int64())),
            [("1", 0), ("2", 1), ("3", 2)],
        ),
        (Aggregate.fold(_listed, (), pa.list_(pa.string())), ["tuple 1", "list 2", "list 3"]),
    ],
    ids=["map", "list"],
)
@pytest.mark.parametrize("windows", [None, TimeWindows(10)], ids=["running", "windows"])
def test_a_function_is_given_the_same_values_whatever_the_batches(
    windows: TimeWindows | None, fold: Aggregate, expected: list[Any], rows_at_once: int
) -> None:
    rows = table([("a", 1, 1, 0.0), ("a", 2, 2, 0.0), ("a", 3, 3, 0.0), ("a", 20, 4, 0.0)])
    plan = (
        Aggregation(source="s", aggregates={"f": fold})
        if windows is None
        else WindowedAggregation(source="s", windows=windows, aggregates={"f": fold})
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    for start in range(0, 3, rows_at_once):
        task.process({"s": rows.slice(start, rows_at_once)})
    if windows is not None:
        task.process({"s": rows.slice(3)})
    assert task.outputs["out"][-1]["f"] == expected


@pytest.mark.parametrize("windows", [None, TimeWindows(10, 5)], ids=["running", "windows"])
def test_what_a_function_changes_is_its_own(windows: TimeWindows | None) -> None:
    """All groups that began with the same list had the records of all, and another function saw what was left of a record."""

    def collect(found: Any, record: Any) -> Any:
        found.append(record.pop("v"))
        return found

    folds = {name: Aggregate.fold(collect, [], pa.list_(pa.int32())) for name in ("one", "other")}
    plan = (
        Aggregation(source="s", aggregates=folds)
        if windows is None
        else WindowedAggregation(source="s", windows=windows, aggregates=folds)
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    rows = table([("a", 6, 1, 0.0), ("b", 7, 2, 0.0), ("c", 8, 3, 0.0), ("c", 40, 4, 0.0)])
    for part in (rows.slice(0, 2), rows.slice(2)):
        task.process({"s": part})
    found = {row["k"]: (row["one"], row["other"]) for row in task.outputs["out"]}
    expected = [3, 4] if windows is None else [3]
    assert found == {"a": ([1], [1]), "b": ([2], [2]), "c": (expected, expected)}


@pytest.mark.parametrize("windows", [None, TimeWindows(10)], ids=["running", "windows"])
def test_what_is_added_for_the_next_aggregation_changes_none(windows: TimeWindows | None) -> None:
    """It had the columns of both."""
    wanted: Any = {"rows": Aggregate.count()}

    def planned() -> Aggregation | WindowedAggregation:
        if windows is None:
            return Aggregation(source="s", aggregates=wanted)
        return WindowedAggregation(source="s", windows=windows, aggregates=wanted)

    plan = planned()
    wanted["sum"] = Aggregate.sum("v")
    factory: Any = plan.sub_topology("a", "out", [SPEC]).processor
    assert factory.output_schema(TOPICS).names[-1] == "rows"
    wanted["least"] = "v"
    with pytest.raises(TopologyException, match=r"The aggregate 'least' \(.*\) must be made by Aggregate.count\(\)"):
        planned().sub_topology("a", "out", [SPEC])
    wanted = [Aggregate.count()]
    with pytest.raises(TopologyException, match=r"The aggregates \(.*\) must be a mapping from names"):
        planned()


def test_messages_call_a_ready_made_processor_what_its_user_wrote() -> None:
    """They said "The processor _Factory"; run folders remember that, and go on to."""
    counts = {"n": Aggregate.count()}
    topics = [SPEC, attrs.evolve(SPEC, name="t")]
    made = [
        Aggregation(source="s", aggregates=counts).sub_topology("a", "out", topics),
        WindowedAggregation(source="s", windows=TimeWindows(1), aggregates=counts).sub_topology("a", "out", topics),
        StreamTableJoin(stream="s", table="t").sub_topology("a", "out", topics),
        TableJoin(left="s", right="t").sub_topology("a", "out", topics),
        WindowedJoin(left="s", right="t", before_ms=0, after_ms=1).sub_topology("a", "out"),
    ]
    assert [processor_name(sub.processor) for sub in made] == [
        "Aggregation",
        "WindowedAggregation",
        "StreamTableJoin",
        "TableJoin",
        "WindowedJoin",
    ]
    assert [factory_name(sub.processor) for sub in made] == [*["_Factory"] * 4, "JoinFactory"]


def test_a_functions_value_that_its_type_cannot_hold_is_an_error() -> None:
    """Half an order more with each of two records was none."""
    fold = Aggregate.fold(lambda found, _: found + 0.5, 0, pa.int64())
    task = MemoryTask(Aggregation(source="s", aggregates={"f": fold}).sub_topology("a", "out", [SPEC]), TOPICS)
    with pytest.raises(
        ValueError, match=r"The aggregation of 's': 0.5 for 'f' is not of type int64: .*0.5 would become 0"
    ):
        task.process({"s": table([("a", 1, 1, 0.0), ("a", 2, 2, 0.0)])})


@given(st.data(), logs(), st.integers(0, 8))
@settings(max_examples=examples(30))
@pytest.mark.thorough
def test_sessions_come_once_when_they_are_closed(data: st.DataObject, log: tuple[list[Row], int], gap: int) -> None:
    rows, grace = log
    plan = WindowedAggregation(
        source="s", windows=SessionWindows(gap), aggregates=AGGREGATES, grace_ms=grace, late_records="skip"
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.run(data, {"s": table(rows)})
    in_time, late, now = [], 0, -(10**9)
    for row in rows:
        now = max(now, row[1])
        if row[1] >= now - grace:
            in_time.append(row)
        else:
            late += 1
    expected = []
    for key in "ab":
        sessions: list[list[Row]] = []
        for row in sorted((row for row in in_time if row[0] == key), key=lambda row: row[1]):
            if sessions and row[1] - sessions[-1][-1][1] <= gap:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        expected += [
            {"k": key, "window_start": session[0][1], "window_end": session[-1][1], **plain(session)}
            for session in sessions
            if session[-1][1] < now - grace - gap
        ]
    found = task.outputs.get("out", [])
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert task.counters.get("late", 0) == late


@pytest.mark.thorough
def test_closed_windows_are_forgotten() -> None:
    for windows in (TimeWindows(20, 5), SlidingWindows(20), SessionWindows(0)):
        plan = WindowedAggregation(source="s", windows=windows, aggregates=AGGREGATES)
        task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
        most = 0
        for start in range(0, 2_000, 50):
            task.process({"s": table([("ab"[number % 2], number, 1, 0.5) for number in range(start, start + 50)])})
            most = max(most, task.held())
        assert most <= 30


def test_a_session_that_never_ends_keeps_nothing_else() -> None:
    """All that was newer than its first record stayed, of every key, and was looked through with each batch."""
    plan = WindowedAggregation(source="s", windows=SessionWindows(10), aggregates=AGGREGATES, grace_ms=5)
    task, most = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS), 0
    for start in range(0, 4_000, 40):
        visitors: list[Row] = [(f"v{at}" if at % 4 else "always", at, 1, 0.5) for at in range(start, start + 40, 2)]
        task.process({"s": table(visitors)})
        most = max(most, task.held())
        if start % 400 == 0:
            task.start()
    assert most <= 40
    assert len(task.outputs["out"]) == len({row["k"] for row in task.outputs["out"]}) == 996
    task.process({"s": table([("end", 5_000, 1, 0.5)])})
    (always,) = [row for row in task.outputs["out"] if row["k"] == "always"]
    assert (always["window_start"], always["window_end"], always["rows"], always["halves"]) == (0, 3_996, 1_000, 500.0)


@pytest.mark.thorough
def test_sessions_that_go_on_are_not_written_anew_with_each_batch() -> None:
    """All that were older than the gap were: with 50 000 of them 1 667 rows brought 52 000 changes."""
    plan = WindowedAggregation(source="s", windows=SessionWindows(60), aggregates=AGGREGATES)
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    for at in range(300):
        task.process({"s": table([(f"v{number}", at, 1, 0.5) for number in range(at % 30, 900, 30)])})
        assert sum(changes.num_rows for changes in task.changelog[-1] if changes is not None) <= 2 * 30
    task.process({"s": table([("end", 5_000, 1, 0.5)])})
    assert [row["rows"] for row in task.outputs["out"]] == [10] * 900


def test_rows_in_many_windows_are_put_into_them_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each row and window was in memory at once: 8,000 rows in 9,000 windows took 8 GB."""
    monkeypatch.setattr(windowed_aggregation, "_AT_ONCE", 1_000, raising=False)
    heights = []

    def parts(self: Group, rows: Any, *given: Any) -> Any:
        heights.append(rows.height)
        return real(self, rows, *given)

    real = Group.parts
    monkeypatch.setattr(Group, "parts", parts)
    plan = WindowedAggregation(source="s", windows=TimeWindows(100, 1), aggregates=AGGREGATES)
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": table([("ab"[at % 2], at, 1, 0.5) for at in range(100)])})
    assert (sum(heights), max(heights)) == (10_000, 1_000)
    # Of each group and window there is one state, whatever the slices: those from 0 on are open.
    assert task.held() == 99 + 100


def test_bounds_of_windows_have_the_type_of_the_timestamp() -> None:
    moment = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
    for unit, expected in (("us", "us"), ("s", "ms")):
        schema = pa.schema([("k", pa.string()), ("at", pa.timestamp(unit, "Europe/Berlin"))])
        spec = TopicSpec("s", 1, schema, ("k",), "at")
        plan = WindowedAggregation(source="s", windows=TimeWindows(60_000, 7_500), aggregates={"n": Aggregate.count()})
        task = MemoryTask(plan.sub_topology("a", "out", [spec]), {"s": spec})
        times = [moment, moment + dt.timedelta(minutes=10)]
        result = task.process({"s": pa.table([["a", "a"], pa.array(times, schema.field("at").type)], schema=schema)})
        assert result is not None
        assert result.schema.field("window_start").type == pa.timestamp(expected, "Europe/Berlin")
        starts = result.column("window_start").to_pylist()
        assert starts == [moment - dt.timedelta(milliseconds=7_500 * hop) for hop in reversed(range(8))]


@pytest.mark.parametrize(
    "windows", [TimeWindows(60_000), TimeWindows(60_000, 7_500), SlidingWindows(60_000), SessionWindows(1)], ids=str
)
def test_a_time_whose_window_its_type_cannot_hold_is_bad(windows: Windows) -> None:
    """The run ended when the window was closed, and each run after it, whatever `bad_records` said."""
    spec = TopicSpec("s", 1, pa.schema([("k", pa.string()), ("at", pa.timestamp("ns"))]), ("k",), "at")
    rows = pa.table([["a"] * 3, pa.array([-(2**63), 0, 10**15], pa.timestamp("ns"))], schema=spec.schema)
    counts = {"n": Aggregate.count()}
    plan = WindowedAggregation(source="s", windows=windows, aggregates=counts, bad_records="skip")
    task = MemoryTask(plan.sub_topology("a", "out", [spec]), {"s": spec})
    task.process({"s": rows})
    hops = 8 if windows == TimeWindows(60_000, 7_500) else 1
    assert ([row["n"] for row in task.outputs["out"]], task.counters) == ([1] * hops, {"bad_records": 1})
    plan = WindowedAggregation(source="s", windows=windows, aggregates=counts)
    task = MemoryTask(plan.sub_topology("a", "out", [spec]), {"s": spec})
    with pytest.raises(
        BadRecordException, match=r"offset 0 is in a window with bounds that timestamp\[ns\] does not have"
    ):
        task.process({"s": rows})


@pytest.mark.parametrize(("kind", "added"), [(pa.int64(), 2**62), (pa.uint64(), 2**63), (pa.uint64(), 2**64 - 1)])
def test_a_sum_that_does_not_fit_is_an_error(kind: pa.DataType, added: int) -> None:
    """It would go round and be negative; of numbers without a sign polars said that it cannot convert a column of ours."""
    schema = SCHEMA.set(2, pa.field("v", kind))
    spec = TopicSpec("s", 4, schema, ("k",), "at")
    rows = table([("a", 1, 1, 0.0), ("b", 2, 1, 0.0)]).cast(schema).set_column(2, "v", pa.array([2**62, 2**62], kind))
    more = table([("a", 2, 1, 0.0)]).cast(schema).set_column(2, "v", pa.array([added], kind))
    end = table([("b", 1_000, 1, 0.0)]).cast(schema)
    kinds: tuple[Windows | None, ...] = (None, TimeWindows(5), SessionWindows(5))
    for of, windows in itertools.product((Aggregate.sum, Aggregate.mean), kinds):
        plan: dict[str, Any] = {"source": "s", "aggregates": {"sum": of("v"), "rows": Aggregate.count()}}
        kind_of = Aggregation(**plan) if windows is None else WindowedAggregation(**plan, windows=windows)
        task = MemoryTask(kind_of.sub_topology("a", "out", [spec]), {"s": spec})
        task.process({"s": rows})
        group = r"('window_start': \d, )?'k': 'a'(, 'window_start': \d)?(, 'window_end': \d)?"
        told = rf"aggregation of 's': the sum for 'sum' does not fit into 64 bits: \{{{group}\}}$"
        with pytest.raises(OverflowError, match=told):
            list(map(task.process, ({"s": more}, {"s": end})))


def test_bad_and_late_records_are_named() -> None:
    plan = WindowedAggregation(source="s", windows=TimeWindows(5), aggregates={"n": Aggregate.count()}, grace_ms=2)
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    told = r"s, partition 3, offset 1 is 3 ms older than .* 2 ms are allowed.*'skip', with which this run can go on; or, with another run_dir"
    with pytest.raises(LateRecordException, match=told):
        task.process({"s": table([("a", 7, 1, 0.0), ("a", 4, 1, 0.0)])})
    rows = table([("a", 7, 1, 0.0), ("a", 8, 1, 0.0), ("a", 8, 1, 0.0)])
    rows = rows.set_column(0, "k", pa.array(["a", None, None])).set_column(1, "at", pa.array([7, 8, None]))
    with pytest.raises(BadRecordException, match="s, partition 3, offset 2 has no at"):
        task.process({"s": rows})
    skips = WindowedAggregation(
        source="s", windows=TimeWindows(5), aggregates={"n": Aggregate.count()}, bad_records=DeadLetters("bad")
    )
    task = MemoryTask(skips.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": rows})
    assert [(row["offset"], row["error"]) for row in task.outputs["bad"]] == [
        (2, "has no at"),
        (1, "has a null in its key (k)"),
    ]
    running = Aggregation(source="s", aggregates={"n": Aggregate.count()}, bad_records="skip")
    task = MemoryTask(running.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": rows})
    assert (task.outputs["out"], task.counters) == ([{"k": "a", "n": 1}], {"bad_records": 2})


def test_groups_may_be_finer_than_the_key_and_not_coarser() -> None:
    plan = Aggregation(source="s", by=["v", "k"], aggregates={"n": Aggregate.count()})
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": table([("a", 1, 1, 0.0), ("a", 1, 2, 0.0), ("b", 1, 1, 0.0), ("a", 1, 1, 0.0)])})
    assert task.outputs["out"] == [{"v": 1, "k": "a", "n": 2}, {"v": 2, "k": "a", "n": 1}, {"v": 1, "k": "b", "n": 1}]
    # Of no columns it was grouped by the key, without a word.
    too_coarse: list[Any] = ["v", []]
    for by in too_coarse:
        for made in (
            Aggregation(source="s", by=by, aggregates={"n": Aggregate.count()}),
            WindowedAggregation(source="s", by=by, aggregates={"n": Aggregate.count()}, windows=TimeWindows(5)),
        ):
            with pytest.raises(TopologyException, match=r"groups by \[.*\], but rows of such a group are in several"):
                made.sub_topology("a", "out", [SPEC])


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(5)])
def test_windows_of_windows_see_those_of_their_source(windows: Windows) -> None:
    """The bounds of the window that a row is in were taken for those that the row has."""
    schema = pa.schema(
        [("k", pa.string()), ("at", pa.int64()), ("window_start", pa.int64()), ("window_end", pa.int64())]
    )
    spec = TopicSpec("s", 1, schema, ("k",), "at")
    aggregates = {"first": Aggregate.min("window_start"), "last": Aggregate.max("window_end")}
    plan = WindowedAggregation(source="s", windows=windows, aggregates=aggregates)
    task = MemoryTask(plan.sub_topology("a", "out", [spec]), {"s": spec})
    rows = pa.table([["a", "a", "a"], [11, 12, 90], [3, 7, 80], [8, 12, 85]], schema=schema)
    task.process({"s": rows})
    found = [(row["first"], row["last"]) for row in task.outputs["out"]]
    assert found == ([(3, 8), (3, 12), (7, 12)] if isinstance(windows, SlidingWindows) else [(3, 12)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aggregates": {}}, "computes nothing"),
        ({"aggregates": {"k": Aggregate.count()}}, r"\['k'\] have names of columns that are grouped by"),
        ({"aggregates": {"window_end": Aggregate.count()}}, r"\['window_end'\] are those of the window. Maybe"),
        ({"aggregates": {"n": Aggregate.sum("w")}}, "has no column 'w'"),
        ({"aggregates": {"n": Aggregate.sum("k")}}, "'n' needs a column of numbers, but 'k' is string"),
        ({"windows": SessionWindows(3), "aggregates": FOLD}, "sessions know no Aggregate.fold"),
        ({"windows": SlidingWindows(3), "aggregates": FOLD}, "sliding windows know no Aggregate.fold"),
        ({"windows": 5}, "must be TimeWindows, SlidingWindows or SessionWindows"),
        (
            {"grace_ms": 2**63 - 1},
            "must be at most 1152921504606846976, which are 36 million years: with more no window",
        ),
        ({"grace_ms": -1}, "grace_ms .-1. must be an int of at least 0"),
        ({"aggregates": {"m": Aggregate.mean("v"), "m__sum": Aggregate.sum("v")}}, r"for its state .*: \['m__sum'\]"),
        ({"by": ("k", "v", "v")}, r"has names twice, .*: \['v'\]. Maybe rename them"),
        ({"aggregates": {"__rows": Aggregate.count()}}, r"needs for its state .*: \['__rows'\]. Maybe rename them"),
        ({"late_records": "drop"}, "late_records .'drop'. must be 'stop', 'skip' or DeadLetters"),
    ],
)
def test_what_cannot_be_computed_is_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"source": "s", "windows": TimeWindows(5), "aggregates": {"n": Aggregate.count()}, **change}
    with pytest.raises(TopologyException, match=message):
        WindowedAggregation(**given).sub_topology("a", "out", [SPEC])


JSON = [pa.json_()] if hasattr(pa, "json_") else []


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.bool8(), pa.uuid(), *JSON])
def test_values_without_an_order_have_no_least_one(kind: pa.DataType) -> None:
    """Of JSON the run ended with the first batch; of other extension types the least was null, without a word."""
    spec = TopicSpec("s", 4, SCHEMA.append(pa.field("x", kind)), ("k",), "at")
    with pytest.raises(TopologyException, match="'m' needs values with an order, not"):
        Aggregation(source="s", aggregates={"m": Aggregate.min("x")}).sub_topology("a", "out", [spec])


@pytest.mark.parametrize("kind", [pa.decimal256(50, 1), pa.month_day_nano_interval(), pa.list_(pa.decimal128(9, -1))])
def test_types_that_polars_does_not_have_are_refused_beforehand(kind: pa.DataType) -> None:
    spec = TopicSpec(
        "s",
        4,
        SCHEMA.append(pa.field("x", kind)).append(pa.field("y", pa.struct([("interval", pa.int8())]))),
        "k",
        "at",
    )
    count = {"n": Aggregate.count()}
    for by, aggregates in [
        (None, {"n": Aggregate.count("x")}),
        (None, {"x": Aggregate.fold(_longer, None, kind)}),
        (("k", "x"), count),
    ]:
        for plan in (
            Aggregation(source="s", by=by, aggregates=aggregates),
            WindowedAggregation(source="s", windows=TimeWindows(5), by=by, aggregates=aggregates),
        ):
            with pytest.raises(TopologyException, match=r"cannot have 'x' as .*: polars has no "):
                plan.sub_topology("a", "out", [spec])
    Aggregation(source="s", aggregates={"n": Aggregate.count("y")}).sub_topology("a", "out", [spec])


@pytest.mark.parametrize(("size", "advance"), [(0, None), (5, 6), (5, 0), (1.5, None)])
def test_wrong_windows_are_refused(size: Any, advance: Any) -> None:
    with pytest.raises(TopologyException, match=r"must be an int"):
        TimeWindows(size, advance)
    with pytest.raises(TopologyException, match=r"must be an int of at least 0"):
        SessionWindows(-1)
    with pytest.raises(
        TopologyException, match=r"size_ms \(9223372036854775807\) of TimeWindows must be at most 1152921504606"
    ):
        TimeWindows(2**63 - 1)


def test_the_largest_windows_and_grace_are_no_reason_to_be_late() -> None:
    """Their sums with times went round: with more of both every record was late, and left out."""
    far = 2**60
    plan = WindowedAggregation(
        source="s", windows=TimeWindows(far), grace_ms=far, aggregates={"n": Aggregate.count()}, late_limit_ms=None
    )
    task = MemoryTask(plan.sub_topology("a", "out", [SPEC]), TOPICS)
    task.process({"s": table([("a", far, 1, 0.0), ("a", far - 5, 1, 0.0)])})
    assert (task.held(), task.counters) == (2, {})


def test_windows_that_would_be_too_many_are_refused() -> None:
    with pytest.raises(TopologyException, match=r"each record is in 86,400,000 windows; at most 10,000 are possible"):
        TimeWindows(24 * 3_600_000, 1)
    TimeWindows(10_000, 1)
