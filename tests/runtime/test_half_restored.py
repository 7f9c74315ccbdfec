"""A restore that fails in the middle: what is there of it is never taken for a state of the task."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.runtime.machines.protocol import START, Position
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.stores import task_state
from task_assignor.runtime.stores.key_value import DELETED, KeyValueStoreSpec
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.task_state import FROM_THE_BEGINNING, StateOwner, TaskState
from task_assignor.runtime.stores.window import WindowStoreSpec

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
WINDOW = WindowStoreSpec("a-window", time="at")
OWNER = StateOwner("app", "run", "0_0")


def _state(folder: Path, *, on_disk: bool) -> TaskState:
    rows = KeyValueStoreSpec("rows", ROWS.remove(1), ROWS.remove(0), on_disk=on_disk)
    unlogged = KeyValueStoreSpec("unlogged", ROWS.remove(1), ROWS.remove(0), logged=False)
    return TaskState(folder, OWNER, (WINDOW, rows, unlogged), StoreMemory(), LocalStorage(folder / "run"))


def _position(batch: int) -> Position:
    return Position(batch, 1, batch, None, 0)


def _keys(*pairs: tuple[int, int | None], is_whole: bool = False) -> pa.Table:
    keys, values = zip(*pairs, strict=True)
    schema = ROWS.append(pa.field(DELETED, pa.bool_()))
    gone = [value is None for value in values]
    return pa.table([keys, values, gone], schema=schema.with_metadata({FROM_THE_BEGINNING: b"1"} if is_whole else None))


def _times(*times: int) -> pa.Table:
    return pa.table({"at": pa.array(times, pa.int64())})


def _contents(state: TaskState) -> tuple[list[int], dict[object, object]]:
    window, rows = state.stores["a-window"], state.stores["rows"]
    times = window.rows.column("at").to_pylist()  # type: ignore[attr-defined]
    return times, {key: row["v"] for key, row in rows.items()}  # type: ignore[attr-defined]


def _full(monkeypatch: pytest.MonkeyPatch, doing: str) -> None:
    """The disk is full when it comes to that."""

    def step(now: str = "") -> None:
        if now == doing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(task_state, "step", step)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("what", ["makes", "keeps"])
def test_a_restore_that_fails_at_the_second_store_is_made_again_from_where_each_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, *, on_disk: bool
) -> None:
    """The first one had the batch already, and was taken for what it was before: the rows of its window were there twice."""
    state = _state(tmp_path, on_disk=on_disk)
    state.apply(_position(0), {"a-window": [_times(1)], "rows": [_keys((1, 10))]})
    state.stores["unlogged"].put(1, {"v": 1})  # type: ignore[attr-defined]
    state.keep()
    changes = {"a-window": [_times(2)], "rows": [_keys((1, 11), (2, 20))]}
    with monkeypatch.context() as patch:
        _full(patch, f"the store 'rows' {what} the changes of batch 1")
        with pytest.raises(OSError, match="No space left"):
            state.apply(_position(1), changes)
    assert not state.is_at(_position(0))
    state.rewind(lambda position: position.batch <= 1)
    assert state.position == _position(0)
    assert state.apply(_position(1), changes) == (2 if what == "keeps" else 3)
    assert _contents(state) == ([1, 2], {1: 11, 2: 20})
    assert not len(state.stores["unlogged"])
    state.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_whole_history_that_was_read_in_part_is_read_anew(tmp_path: Path, *, on_disk: bool) -> None:
    state = _state(tmp_path, on_disk=on_disk)
    state.apply(_position(0), {"a-window": [_times(1)], "rows": [_keys((1, 10), (3, 30))]})
    history = [_keys((1, 11), is_whole=True), _keys((2, 20)), _keys((2, None), (4, 40))]

    def torn() -> Iterator[pa.Table]:
        yield from history[:2]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        state.apply(_position(1), {"rows": torn()})
    assert state.position == START
    if on_disk:
        # The process is killed there.
        state.close()
        state = _state(tmp_path, on_disk=on_disk)
    state.rewind(lambda position: position.batch <= 1)
    assert state.position == START
    assert not len(state.stores["rows"])
    state.apply(_position(1), {"a-window": [_times(1)] if on_disk else [], "rows": history})
    assert _contents(state) == ([1], {1: 11, 4: 40})
    state.close()
