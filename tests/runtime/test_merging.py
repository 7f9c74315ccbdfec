"""The order of records over all sources, and how far a task may go: against Kafka's loop over the heads."""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import KeyValueStoreSpec, SubTopology, Topology, write_topic
from task_assignor.runtime.arrow.merging import crossings, merged, places, rows_up_to_boundary, times_so_far
from task_assignor.runtime.arrow.times import FARTHEST_MS, NO_TIME, times_of
from tests.budget import examples
from tests.runtime.support import QUICK, PriceAtOrder, application, stream

Sources = list[list[int | None]]
sources_of_times = st.lists(st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=12), min_size=1, max_size=3)


def _newest(sources: Sources) -> list[np.ndarray]:
    arrays = [np.array([NO_TIME if found is None else found for found in times], np.int64) for times in sources]
    return [times_so_far(times) for times in arrays]


def by_heads(sources: Sources) -> list[tuple[int, int]]:
    """As Kafka Streams does it: of the heads the oldest by its own time, the first source if they are equal."""
    heads, found = [0] * len(sources), []
    while any(heads[number] < len(times) for number, times in enumerate(sources)):

        def time_of(number: int) -> tuple[float, int]:
            head = sources[number][heads[number]]
            return (-np.inf if head is None else head), number

        number = min((number for number, times in enumerate(sources) if heads[number] < len(times)), key=time_of)
        found.append((number, heads[number]))
        heads[number] += 1
    return found


def _numbered(sources: Sources) -> list[tuple[int, int]]:
    return [(number, row) for number, times in enumerate(sources) for row in range(len(times))]


@given(sources_of_times)
@settings(max_examples=examples(200))
def test_the_order_is_that_of_kafkas_heads(sources: Sources) -> None:
    newest = _newest(sources)
    names = _numbered(sources)
    order = [names[place] for place in merged(newest).tolist()]
    assert order == by_heads(sources)
    by_place = {place: (number, row) for number, found in enumerate(places(newest)) for row, place in enumerate(found)}
    assert [by_place[place] for place in range(len(names))] == order


@given(sources_of_times, st.data())
@settings(max_examples=examples(250))
def test_cut_into_batches_of_any_sizes_the_order_is_the_same(sources: Sources, data: st.DataObject) -> None:
    """Each batch computes its order from its own rows alone; all that are waited for have loaded rows."""
    done = [0] * len(sources)
    found: list[tuple[int, int]] = []
    while any(done[number] < len(times) for number, times in enumerate(sources)):
        limits = [min(len(times), done[number] + data.draw(st.integers(1, 4))) for number, times in enumerate(sources)]
        loaded: Sources = [times[done[number] : limits[number]] for number, times in enumerate(sources)]
        more = [limit < len(times) for limit, times in zip(limits, sources, strict=True)]
        newest = _newest(loaded)
        counts = rows_up_to_boundary(newest, more)
        assert all(count <= len(rows) for count, rows in zip(counts, loaded, strict=True))
        full = [number for number, rows in enumerate(loaded) if rows and counts[number] == len(rows)]
        assert full, "some source is always consumed as far as it was loaded"
        batch = [rows[:count] for rows, count in zip(newest, counts, strict=True)]
        names = [(number, done[number] + row) for number, rows in enumerate(batch) for row in range(len(rows))]
        found += [names[place] for place in merged(batch).tolist()]
        done = [start + count for start, count in zip(done, counts, strict=True)]
    assert found == by_heads(sources)


def test_a_source_that_is_waited_for_and_has_no_rows_holds_all_back() -> None:
    newest = _newest([[1, 2], []])
    assert rows_up_to_boundary(newest, [False, True]) == [0, 0]
    assert rows_up_to_boundary(newest, [True, False]) == [2, 0]


@given(sources_of_times, st.one_of(st.none(), st.integers(-12, 12)), st.integers(1, 7))
@settings(max_examples=examples(200))
def test_crossings_are_where_a_loop_sees_them(sources: Sources, before: int | None, interval: int) -> None:
    expected, counts, now = [], [0] * len(sources), before
    for number, row in by_heads(sources):
        counts[number] += 1
        found = sources[number][row]
        new = now if found is None else found if now is None else max(now, found)
        if new is not None and (now is None or new // interval > now // interval):
            expected.append(list(counts))
        now = new
    assert crossings(_newest(sources), before, interval) == expected


def test_a_million_rows_cost_milliseconds() -> None:
    """CPU time, the best of a few: three sources of a million rows together."""
    random = np.random.default_rng(0)
    times = [np.sort(random.integers(0, 3_600_000, 333_333)) + random.integers(0, 500, 333_333) for _ in range(3)]

    def once() -> float:
        begin = time.process_time()
        newest = [times_so_far(found) for found in times]
        rows_up_to_boundary(newest, [True] * 3)
        merged(newest)
        return time.process_time() - begin

    assert min(once() for _ in range(5)) < 0.1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_milliseconds_rounded_down_and_nulls_have_none(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([0, None, -1, 5 * per_second], pa.int64()).cast(pa.timestamp(unit))
    rows = pa.table({"at": column})
    before = {"s": -1_000, "ms": -1, "us": -1, "ns": -1}[unit]
    assert times_of(rows, "at").tolist() == [0, NO_TIME, before, 5_000]
    assert times_of(rows, None).tolist() == [NO_TIME] * 4


@pytest.mark.parametrize("far", [2**63 - 1, -(2**63), 2**61, -(2**61)])
def test_what_is_too_far_away_is_no_time(far: int) -> None:
    assert times_of(pa.table({"at": pa.array([7, far], pa.int64())}), "at").tolist() == [7, NO_TIME]
    seconds = pa.table({"at": pa.array([7, far], pa.int64()).cast(pa.timestamp("s"))})
    assert times_of(seconds, "at").tolist() == [7_000, NO_TIME]
    assert FARTHEST_MS // 1_000 * 1_000 <= FARTHEST_MS


@pytest.mark.parametrize("batch_rows", [70, 10_000])
def test_a_lookup_among_records_of_two_topics_is_right_whatever_the_batches(tmp_path: Path, batch_rows: int) -> None:
    """Prices and orders by their times: 1 451 to 2 952 of 3 000 orders had a wrong price when topics came one by one."""
    orders, prices = stream(3_000, keys=20, seed=1), stream(3_000, keys=20, seed=2)
    for name, table in (("orders", orders), ("prices", prices)):
        write_topic(tmp_path / "topics", name, table, partitions=2, key=["key"], timestamp="at")
    store = KeyValueStoreSpec("prices", pa.schema([("key", pa.int64())]), pa.schema([("value", pa.string())]))
    topology = Topology([SubTopology("lookup", ("orders", "prices"), PriceAtOrder, [store], ["priced"])])
    options = attrs.evolve(QUICK, max_batch_rows=batch_rows)
    found = application(tmp_path, topology, clients=1, options=options).run().table("priced").to_pylist()
    newest: dict[int, str] = {}
    expected = {}
    # Of equal times the source that is named first comes first.
    for _, source, record in sorted(
        ((row["at"], source, row) for source, table in enumerate((orders, prices)) for row in table.to_pylist()),
        key=lambda item: item[:2],
    ):
        if source == 1:
            newest[record["key"]] = record["value"]
        else:
            expected[record["value"]] = newest.get(record["key"])
    assert expected == {row["value"]: row["price"] for row in found}
