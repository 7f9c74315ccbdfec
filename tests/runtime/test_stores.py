"""Stores: the live store, one rebuilt from changes and one loaded from a snapshot hold the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import KeyValueStoreSpec, StoreException, WindowStore, WindowStoreSpec
from task_assignor.runtime.stores import MAX_CHUNKS
from tests.budget import examples

ONE = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), pa.schema([("n", pa.int64()), ("t", pa.string())]))
TWO = KeyValueStoreSpec("s", pa.schema([("a", pa.string()), ("b", pa.int32())]), pa.schema([("n", pa.int64())]))
WINDOW = WindowStoreSpec("w", "time")

keys = st.sampled_from(["a", "b", "c", "d", ""])
values = st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(-9, 9), "t": st.none() | st.text(max_size=3)})
operations = st.lists(
    st.tuples(st.just("put"), keys, values) | st.tuples(st.just("delete"), keys, st.just({})), max_size=12
)


@given(st.lists(operations, max_size=6))
@settings(max_examples=examples(150))
def test_key_value_store_is_what_a_dict_is_and_can_be_rebuilt(
    batches: list[list[tuple[str, str, dict[str, Any]]]],
) -> None:
    live, replayed, loaded = ONE.create(), ONE.create(), ONE.create()
    model: dict[str, dict[str, Any]] = {}
    for batch in batches:
        for operation, key, row in batch:
            if operation == "put":
                live.put(key, row)
                model[key] = {"n": None, "t": None, **row}
            else:
                live.delete(key)
                model.pop(key, None)
        changes = live.drain_changes()
        if changes is not None:
            replayed.apply(changes)
        loaded.load(live.snapshot())
        for store in (live, replayed, loaded):
            assert model == dict(store.items())
            assert len(model) == len(store)
            assert model == {row.pop("k"): row for row in store.all().to_pylist()}
        assert live.drain_changes() is None


def test_tables_are_put_and_looked_up_at_once() -> None:
    store = TWO.create()
    store.put_table(pa.table({"b": pa.array([1, 2, 1], pa.int64()), "n": [10, 20, 30], "a": ["x", "x", "x"]}))
    assert store.get(("x", 1)) == {"n": 30}, "of equal keys the last row wins"
    asked = pa.table({"a": ["y", "x", "x"], "b": pa.array([1, 2, 1], pa.int32())})
    assert store.lookup(asked).to_pydict() == {"n": [None, 20, 30]}
    single = ONE.create()
    single.put("k", {"n": 1})
    assert single.lookup(pa.array(["k", "l"])).to_pylist() == [{"n": 1, "t": None}, {"n": None, "t": None}]
    assert "k" in single
    assert single.lookup(pa.array([], pa.string())).schema == ONE.value


def test_what_does_not_fit_a_key_value_store_is_named() -> None:
    store = ONE.create()
    with pytest.raises(StoreException, match=r"no value columns \['m'\]; it has \['n', 't'\]"):
        store.put("k", {"m": 1})
    with pytest.raises(StoreException, match="no column 't'"):
        store.put_table(pa.table({"k": ["a"], "n": [1]}))
    with pytest.raises(StoreException, match="column 'n' for the store s has type string"):
        store.put_table(pa.table({"k": ["a"], "n": ["x"], "t": ["y"]}))
    store.put("k", {"n": "not a number"})
    with pytest.raises(StoreException, match="holds a value in 'n' that is not of type int64"):
        store.drain_changes()


def _rows(times: list[int]) -> pa.Table:
    return pa.table({"time": pa.array(times, pa.int64()), "x": pa.array([f"x{time}" for time in times], pa.string())})


def _times(store: WindowStore) -> list[int]:
    rows = store.rows
    return [] if rows is None else rows.column("time").to_pylist()


@given(st.lists(st.tuples(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 90), st.booleans()), max_size=60))
@settings(max_examples=examples(100))
def test_window_store_forgets_when_live_replayed_and_loaded_alike(batches: list[tuple[list[int], int, bool]]) -> None:
    """Rows from the newest limit on are there, once, in order, and no others; nobody tells the copies what expired."""
    live, replayed, loaded = WINDOW.create(), WINDOW.create(), WINDOW.create()
    model: list[int] = []
    limit = 0
    for times, expire, is_first in batches:
        if is_first:
            live.expire(expire)
        live.append(_rows(times))
        for time in times:
            live.observe(time)
        if not is_first:
            live.expire(expire)
        model, limit = model + times, max(limit, expire)
        changes = live.drain_changes()
        if changes is not None:
            replayed.apply(changes)
        loaded.load(live.snapshot())
        for store in (live, replayed, loaded):
            assert [time for time in model if time >= limit] == _times(store)
            assert store.stream_time == max(model, default=None)
            assert store.expired_before == limit
            frame = store.frame
            assert len(store) == (0 if frame is None else frame.height) == len(_times(store))
            assert frame is None or frame["time"].to_list() == _times(store)
    assert len(live._chunks) <= MAX_CHUNKS


def test_a_replayed_window_store_stays_small() -> None:
    """200 batches of 1 000 rows, a window of 6 000: a standby that replays them had all 200 000."""
    live, standby = WINDOW.create(), WINDOW.create()
    for batch in range(200):
        live.append(_rows(list(range(batch * 1_000, (batch + 1) * 1_000))))
        live.expire((batch - 5) * 1_000)
        changes = live.drain_changes()
        assert changes is not None
        standby.apply(changes)
    assert len(live) == len(standby) == 6_000


def test_memory_of_expired_rows_is_given_back() -> None:
    store = WINDOW.create()
    store.append(_rows(list(range(100_000))))
    whole = store._chunks[0].table.get_total_buffer_size()
    for before in range(0, 99_000, 500):
        store.expire(before)
        assert len(store) == 100_000 - before
        held = sum(chunk.table.get_total_buffer_size() for chunk in store._chunks)
        assert held <= whole * len(store) / 100_000 * 2.1 + 1_000


def test_stream_time_is_state_even_without_rows() -> None:
    live, other = WINDOW.create(), WINDOW.create()
    live.observe(7)
    changes = live.drain_changes()
    assert changes is not None
    other.apply(changes)
    assert (other.stream_time, len(other)) == (7, 0)
    live.observe(5)
    assert live.drain_changes() is None


def test_what_does_not_fit_a_window_store_is_named() -> None:
    store = WINDOW.create()
    with pytest.raises(StoreException, match="needs a column 'time' of int64"):
        store.append(pa.table({"time": ["x"]}))
    store.append(_rows([1]))
    with pytest.raises(StoreException, match=r"holds rows of time: int64, x: string; rows of time: int64 cannot"):
        store.append(_rows([1]).select(["time"]))
    with pytest.raises(StoreException, match="cannot hold rows without time"):
        store.append(pa.table({"time": pa.array([None], pa.int64()), "x": ["x"]}))
