"""Changes of stores as records of a topic: what comes back is what was drained, over upgrades that gain columns, too."""

from __future__ import annotations

import pyarrow as pa
import pytest

from task_assignor.kafka.topics.changelogs import BEGINS_ANEW, changelog_codec, of_this_life
from task_assignor.runtime import KeyValueStoreSpec, WindowStoreSpec

KEY = pa.schema([("k", pa.string())])
VALUE = pa.schema([("n", pa.int64())])
WIDE = VALUE.append(pa.field("more", pa.string()))


def test_changes_of_a_key_value_store_that_gained_a_column_are_read_together() -> None:
    """A restore reads the records of many batches at once: the later versions of the application wrote wider ones."""
    older, newer = (KeyValueStoreSpec("s", KEY, value) for value in (VALUE, WIDE))
    store = older.create()
    store.put("a", {"n": 1})
    store.put("b", {"n": 2})
    before = store.drain_changes()
    assert before is not None
    records = changelog_codec(older).encode(before, 0)
    store = newer.create()
    store.put("b", {"n": 3, "more": "x"})
    after = store.drain_changes()
    assert after is not None
    records += changelog_codec(newer).encode(after, 10)
    restored = newer.create()
    restored.apply(changelog_codec(newer).decode(records))
    assert restored.all().to_pylist() == [{"k": "a", "n": 1, "more": None}, {"k": "b", "n": 3, "more": "x"}]


def test_what_is_of_a_life_before_does_not_count() -> None:
    """Where offsets and folder of the run were lost; the record that says so is the key of no row."""
    records = [(b"a", b"1"), BEGINS_ANEW, (b"b", None), BEGINS_ANEW, (b"c", b"2")]
    assert [*of_this_life(records)] == [(b"c", b"2")]
    assert [*of_this_life(records[:4])] == []
    assert [*of_this_life(records[:1])] == records[:1]


def test_changes_of_a_window_store_that_gained_a_column_are_read_together() -> None:
    spec = WindowStoreSpec("s", "at")
    codec, store = changelog_codec(spec), spec.create()
    records = []
    for number, rows in enumerate(
        [
            pa.table({"at": [1, 2], "x": ["a", "b"]}),
            pa.table({"at": [3], "y": [3.0], "x": ["c"]}),
            pa.table(
                {"at": [4], "y": [None], "x": ["d"]},
                schema=pa.schema([("at", pa.int64()), ("y", pa.float64()), ("x", pa.string())]),
            ),
        ]
    ):
        store.append(rows)
        store.expire(number)
        changes = store.drain_changes()
        assert changes is not None
        records += codec.encode(changes, 10 * number)
    restored = spec.create()
    restored.apply(codec.decode(records))
    assert restored.rows is not None
    assert store.rows is not None
    assert restored.rows.equals(store.rows)
    assert restored.rows.column("y").to_pylist() == [None, 3.0, None]
    assert (restored.stream_time, restored.expired_before) == (store.stream_time, store.expired_before)


@pytest.mark.parametrize(("taken", "large"), [(1_048_588, 150_000), (100_000, 15_000)])
def test_no_piece_of_a_window_store_is_larger_than_brokers_take_where_some_rows_are_much_larger(
    taken: int, large: int
) -> None:
    """They were cut by the mean size of a row, and a few large ones beside each other ended the run; a topic that took less did, too."""
    spec = WindowStoreSpec("s", "at")
    codec, store = changelog_codec(spec, lambda: taken), spec.create()
    sizes = [large if 1_000 <= number < 1_010 else 1 for number in range(3_000)]
    store.append(pa.table({"at": range(3_000), "x": ["x" * size for size in sizes]}))
    changes = store.drain_changes()
    assert changes is not None
    records = codec.encode(changes, 7)
    assert max(len(value or b"") for _, value in records) < 0.95 * taken
    assert len({key for key, _ in records}) == len(records)
    restored = spec.create()
    restored.apply(codec.decode(records))
    assert restored.rows is not None
    assert restored.rows.equals(store.rows)
