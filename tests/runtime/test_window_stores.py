"""Window stores: the live store, one rebuilt from changes and one loaded from a snapshot hold the same, and forget the same."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    StoreException,
    WindowStore,
    WindowStoreSpec,
)
from task_assignor.runtime.stores import window
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.window import MAX_SEGMENTS
from tests.budget import examples

WINDOW = WindowStoreSpec("w", "time")


def _rows(times: list[int]) -> pa.Table:
    return pa.table({"time": pa.array(times, pa.int64()), "x": pa.array([f"x{time}" for time in times], pa.string())})


def _times(store: WindowStore) -> list[int]:
    rows = store.rows
    return [] if rows is None else rows.column("time").to_pylist()


@given(st.lists(st.tuples(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 90), st.booleans()), max_size=60))
@settings(max_examples=examples(60), deadline=None)
def test_window_store_forgets_when_live_replayed_and_loaded_alike(batches: list[tuple[list[int], int, bool]]) -> None:
    """Rows from the newest limit on are there, once, in order, and no others; nobody tells the copies what expired."""
    with tempfile.TemporaryDirectory() as folder:
        _check_window(batches, Path(folder))


def _check_window(batches: list[tuple[list[int], int, bool]], folder: Path) -> None:
    live, replayed, loaded = WINDOW.create(folder), WINDOW.create(), WINDOW.create(folder)
    # Everything of this one is on disk.
    spilled = WINDOW.create(folder, StoreMemory(0))
    model: list[int] = []
    limit = 0
    for times, expire, is_first in batches:
        if is_first:
            live.expire(expire)
        live.append(_rows(times))
        # At once: until when the batch was cut, and not before, they were seen.
        assert min(_times(live), default=100) >= (live.expired_before or 0)
        for time in times:
            live.observe(time)
        if not is_first:
            live.expire(expire)
        model, limit = model + times, max(limit, expire)
        changes = live.drain_changes()
        live.keep("")
        if changes is not None:
            replayed.apply(changes)
            spilled.apply(changes)
            spilled.keep("")
        # What another try has left.
        loaded.append(_rows([200, 300]))
        loaded.observe(300)
        loaded.expire(250)
        loaded.drain_changes()
        loaded.keep("spoilt")
        loaded.append(_rows([400]))
        loaded.load(live.save(), "")
        assert loaded.drain_changes() is None
        for store in (live, replayed, loaded, spilled):
            assert [time for time in model if time >= limit] == _times(store)
            assert store.stream_time == max(model, default=None)
            assert store.expired_before == limit
            frame = store.frame
            assert len(store) == (0 if frame is None else frame.height) == len(_times(store))
            assert frame is None or frame["time"].to_list() == _times(store)
        assert all(segment.is_mapped for segment in spilled._state.segments)
    assert len(live._state.segments) <= MAX_SEGMENTS


def test_a_window_store_has_the_rows_as_they_were() -> None:
    """Whoever filled the same array of numpy again had changed the rows that were there, in the store and not in its changelog."""
    live, times = WINDOW.create(), np.arange(3)
    live.append(pa.table({"time": times}))
    times += 10
    live.append(pa.table({"time": times}))
    assert live.rows is not None
    assert live.rows.column("time").to_pylist() == [0, 1, 2, 10, 11, 12]
    with pytest.raises(StoreException, match=r"Rows for the store w must be a pyarrow.Table, not dict"):
        live.append({"time": [1]})


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


def test_an_empty_window_store_knows_its_columns_after_a_restore() -> None:
    """Else other rows would be logged, and the changelog could not be replayed any more."""
    live, loaded, replayed = WINDOW.create(), WINDOW.create(), WINDOW.create()
    live.append(_rows([1, 2]))
    live.expire(10)
    changes = live.drain_changes()
    live.keep("")
    loaded.load(live.save(), "")
    assert changes is not None
    replayed.apply(changes)
    for store in (live, loaded, replayed):
        assert len(store) == 0
        with pytest.raises(StoreException, match="holds rows of time: int64, x: string"):
            store.append(pa.table({"time": [11], "y": ["y"]}))
    fresh = WINDOW.create()
    fresh.load(WINDOW.create().save(), "")
    fresh.append(_rows([1]))


def test_memory_of_expired_rows_is_given_back() -> None:
    store = WINDOW.create()
    store.append(_rows(list(range(100_000))))
    whole = store._state.segments[0]._source.get_total_buffer_size()
    for before in range(0, 99_000, 500):
        store.expire(before)
        assert len(store) == 100_000 - before
        held = sum(segment._source.get_total_buffer_size() for segment in store._state.segments)
        assert held <= whole * len(store) / 100_000 * 2.1 + 1_000


@pytest.mark.parametrize("logged", [False, True])
def test_files_of_expired_rows_are_deleted_where_no_snapshot_is_made(tmp_path: Path, logged: bool) -> None:
    """Nobody looked for what can go: the folder grew for ever."""
    spec = WindowStoreSpec("w", "time", logged=logged)
    store = spec.create(tmp_path, StoreMemory(1))
    for batch in range(20):
        store.append(_rows([batch]))
        store.expire(batch - 2)
        store.drain_changes()
        store.keep(str(batch))
        assert len([*(tmp_path / "parts").iterdir()]) == len(store) == min(batch + 1, 3)
    store.close() if logged else spec.create(tmp_path).close()  # as after a kill
    assert not [*(tmp_path / "parts").iterdir()]


def test_rows_on_disk_are_put_together_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the store was read into memory, whatever its limit, and written once more."""
    monkeypatch.setattr(window, "SMALL_ROWS", 0)
    store, gathered = WINDOW.create(tmp_path, StoreMemory(0)), list[int]()

    def look(rows: pa.Table) -> pa.Table:
        gathered.append(rows.num_rows)
        return rows

    store.gather(look)
    for batch in range(400):
        store.append(_rows([batch] * 10))
        store.drain_changes()
        store.keep(str(batch))
    assert sum(gathered) <= 3 * len(store)
    other = WINDOW.create(tmp_path, StoreMemory(0))
    other.load(store.save(), "400")
    other.gather(lambda rows: rows.slice(0, rows.num_rows // 2))
    for batch in range(MAX_SEGMENTS):
        other.append(_rows([batch]))
    assert len(other) < 0.6 * len(store), "of what was there before it put together"


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
    with pytest.raises(StoreException, match="needs a column 'time' of int64"):
        WINDOW.create().append(pa.table([[1], [1]], ["time", "time"]))


@pytest.mark.parametrize("time", [None, "5", 1.5, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)])
def test_a_time_that_is_no_number_leaves_a_window_store_as_it_was(time: Any) -> None:
    """It stayed in the store, and what came after it failed."""
    store = WINDOW.create()
    store.append(pa.table({"time": [1, 2]}))
    for change in (store.expire, store.observe):
        with pytest.raises(StoreException, match="for the store w must be an int of milliseconds since the epoch"):
            change(time)
    store.expire(np.int64(2))  # type: ignore[arg-type]
    assert store.rows is not None
    assert store.rows.column("time").to_pylist() == [2]
