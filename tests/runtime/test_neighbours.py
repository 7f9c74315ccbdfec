"""Keys between two others, and keys that begin alike, beside a plain dictionary."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import KeyValueStore, KeyValueStoreSpec, StoreException
from task_assignor.runtime.errors import TaskCorruptedException
from task_assignor.runtime.stores import recent, rows
from task_assignor.runtime.stores.rows import Change

T = TypeVar("T")
VALUE = pa.schema([("n", pa.int64())])
TEXT = pa.schema([("k", pa.string())])
TWO = pa.schema([("name", pa.string()), ("number", pa.int16())])
NUMBER = pa.schema([("k", pa.int64())])
WHERE = pytest.mark.parametrize("on_disk", [False, True])

_LETTERS = st.text("\0\x01ab\U0010ffff", max_size=3)
_NUMBERS = st.integers(-3, 3)
_ACTS = st.sampled_from(["put", "put", "delete", "keep", "rollback", "range", "range", "prefix", "prefix"])


def store_of(key: pa.Schema, on_disk: bool = False, folder: Path | None = None) -> KeyValueStore:
    return KeyValueStoreSpec("seen", key, VALUE, on_disk=on_disk).create(folder)


def keys(found: Iterator[tuple[Hashable, dict[str, Any]]]) -> list[Hashable]:
    return [key for key, _ in found]


@WHERE
@pytest.mark.parametrize(
    ("schema", "one"),
    [(TEXT, _LETTERS), (NUMBER, _NUMBERS), (TWO, st.tuples(_LETTERS, _NUMBERS))],
    ids=["text", "number", "two"],
)
@given(data=st.data(), few=st.sampled_from([0, rows._FEW]))
def test_neighbours_are_those_of_a_dictionary(
    schema: pa.Schema, one: Any, on_disk: bool, data: st.DataObject, few: int
) -> None:
    """Keys are brought into their order one by one, or all at once."""
    with mock.patch.object(rows, "_FEW", few):
        _check_neighbours(schema, one, on_disk, data)


def _check_neighbours(schema: pa.Schema, one: Any, on_disk: bool, data: st.DataObject) -> None:
    store = store_of(schema, on_disk)
    model: dict[Any, int] = {}
    kept: dict[Any, int] = {}
    looks: list[tuple[Iterator[Any], list[Any]]] = []
    for count, act in enumerate(data.draw(st.lists(_ACTS, max_size=30))):
        if act == "put":
            key = data.draw(one)
            store.put(key, {"n": count})
            model[key] = count
        elif act == "delete":
            key = data.draw(one)
            store.delete(key)
            model.pop(key, None)
        elif act == "keep":
            store.drain_changes()
            store.keep(str(count))
            kept = dict(model)
        elif act == "rollback":
            store.rollback()
            model = dict(kept)
        else:
            reverse = data.draw(st.booleans())
            expected = sorted(model.items(), reverse=reverse)
            if act == "range":
                first, last = data.draw(st.none() | one), data.draw(st.none() | one)
                found = store.range(first, last, reverse=reverse)
                expected = [
                    (key, n) for key, n in expected if (first is None or key >= first) and (last is None or key <= last)
                ]
            elif schema is NUMBER:
                continue
            else:
                text = data.draw(_LETTERS)
                found = store.prefix_scan(text if schema is TEXT else (text,), reverse=reverse)
                expected = [(k, n) for k, n in expected if (k.startswith(text) if schema is TEXT else k[0] == text)]
            wanted = [(key, {"n": n}) for key, n in expected]
            if data.draw(st.booleans()):
                assert next(found, None) == next(iter(wanted), None)
                looks.append((found, wanted[1:]))
            else:
                assert list(found) == wanted
        assert len(store) == len(model)
    for found, wanted in looks:
        assert list(found) == wanted, "it is what was there when somebody began to look"
    store.close()


@WHERE
def test_many_neighbours_come_in_pieces(on_disk: bool) -> None:
    store = store_of(NUMBER, on_disk)
    store.put_table(pa.table({"k": pa.array(range(0, 2_000, 2)), "n": pa.array(range(1_000))}))
    store.drain_changes()
    store.keep("1")
    store.put_table(pa.table({"k": pa.array(range(1, 2_000, 2)), "n": pa.array(range(1_000))}))
    assert keys(store.range()) == list(range(2_000))
    assert keys(store.range(10, 1_500, reverse=True)) == list(range(1_500, 9, -1))
    assert next(store.range(700))[0] == 700
    store.close()


@WHERE
@pytest.mark.parametrize("few", [0, rows._FEW])
def test_keys_that_come_and_go_later_are_in_order(on_disk: bool, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, or all at once."""
    monkeypatch.setattr(rows, "_FEW", few)
    store = store_of(NUMBER, on_disk)
    expected = set(range(0, 100, 3))
    store.put_table(pa.table({"k": sorted(expected), "n": [0] * len(expected)}))
    for batch in range(4):
        store.drain_changes()
        store.keep(str(batch))
        assert keys(store.range(5, 95)) == sorted(key for key in expected if 5 <= key <= 95)
        new, gone = set(range(batch, 100, 7)), set(range(0, 100, 5 + batch))
        store.put_table(pa.table({"k": sorted(new), "n": [batch] * len(new)}))
        store.delete_table(pa.table({"k": sorted(gone)}))
        expected = (expected | new) - gone
        assert keys(store.range(5, 95)) == sorted(key for key in expected if 5 <= key <= 95)
    store.close()


@WHERE
def test_who_looks_at_some_rows_sees_those_of_before_whatever_happens_meanwhile(on_disk: bool) -> None:
    store = store_of(NUMBER, on_disk)
    store.put_table(pa.table({"k": pa.array(range(500)), "n": pa.array(range(500))}))
    store.drain_changes()
    store.keep("1")
    found = store.range(100, 400)
    begin = list(itertools.islice(found, 3))
    for key in range(100, 400, 2):
        store.delete(key)
    store.put(105, {"n": -1})
    store.drain_changes()
    store.keep("2")
    assert begin + list(found) == [(key, {"n": key}) for key in range(100, 401)]
    assert keys(store.range(100, 110)) == [101, 103, 105, 107, 109]
    store.close()


@WHERE
@pytest.mark.parametrize("reverse", [False, True])
def test_who_looks_at_changes_sees_those_of_before_whatever_happens_meanwhile(on_disk: bool, reverse: bool) -> None:
    """Rows of the same batch, which nobody has kept yet, among others."""
    store = store_of(NUMBER, on_disk)
    store.put_table(pa.table({"k": pa.array(range(0, 3_000, 3)), "n": pa.array(range(0, 3_000, 3))}))
    store.drain_changes()
    store.keep("1")
    store.put_table(pa.table({"k": pa.array(range(1, 3_000, 3)), "n": pa.array(range(1, 3_000, 3))}))
    found = store.range(100, 2_900, reverse=reverse)
    seen = list(itertools.islice(found, 3))
    store.put_table(pa.table({"k": pa.array(range(2, 3_000, 3)), "n": pa.array(range(2, 3_000, 3))}))
    assert len(keys(store.range())) == 3_000
    for key in range(100, 2_900, 7):
        store.delete(key)
    store.put_table(pa.table({"k": pa.array(range(101, 2_900, 5)), "n": pa.array([-1] * 560)}))
    seen += itertools.islice(found, 1_000)
    store.rollback()
    store.put(1_500, {"n": -1})
    assert next(store.range(1_500))[1] == {"n": -1}
    expected = [(key, {"n": key}) for key in range(100, 2_901) if key % 3 < 2]
    assert seen + list(found) == (expected[::-1] if reverse else expected)
    store.close()


@WHERE
def test_a_neighbour_of_each_new_key_costs_the_same_however_many_there_are(on_disk: bool) -> None:
    """All changes of the batch beyond it were copied, also if only the first neighbour was looked at: four times as many took fifteen times as long."""
    store, read = store_of(NUMBER, on_disk), 0

    class Counting(dict[bytes, Change]):
        """It counts who looks into it, or goes through it."""

        def __getitem__(self, key: bytes) -> Change:
            nonlocal read
            read += 1
            return super().__getitem__(key)

        def get(self, key: bytes, default: Any = None) -> Any:
            nonlocal read
            read += 1
            return super().get(key, default)

    store._recent.rows = Counting()
    for key in range(2_000):
        store.put(key * 7_919 % 2_000, {"n": key})
        assert next(store.range(None, key * 7_919 % 2_000, reverse=True))[1] == {"n": key}
    assert read < 2_000 * 70
    store.close()


@WHERE
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_that_were_taken_out_are_passed_once(
    on_disk: bool, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who puts records in order, and takes out what is due, asks for the first one again and again, and maybe for the number."""
    store, count, passed = store_of(NUMBER, on_disk), 1_000, 0
    store.put_table(pa.table({"k": pa.array(range(count)), "n": pa.array(range(count))}))
    store.drain_changes()
    store.keep("1")

    def counted(found: Iterator[T]) -> Iterator[T]:
        nonlocal passed
        for one in found:
            passed += 1
            yield one

    def looked_up(keys: Sequence[bytes], get_many: Any = store._rows.get_many) -> Any:
        return get_many(list(counted(iter(keys))))

    def between(*bounds: Any, find: Any = store._rows.between, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        return counted(find(*bounds, **options))

    monkeypatch.setattr(recent, "some_of", lambda *bounds, **options: counted(rows.some_of(*bounds, **options)))
    monkeypatch.setattr(store._rows, "between", between)
    monkeypatch.setattr(store._rows, "get_many", looked_up)
    for number in range(1, count):
        store.put(-number if reverse else count + number, {"n": 0})
        for _ in range(2):
            key, _ = next(store.range(reverse=reverse))
            store.delete(key)
        assert len(store) == count - number
    assert passed < 100 * count
    store.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_that_come_where_it_is_known_that_none_were_are_found(reverse: bool) -> None:
    store, one = store_of(NUMBER), [None, 0, 1, 2]
    bounds = [*itertools.product(one, one)]
    for (first, last), key, (begin, end) in itertools.product(bounds, range(3), bounds):
        assert keys(store.range(first, last, reverse=reverse)) == []
        store.put_table(pa.table({"k": [1, key], "n": [0, 0]}))
        expected = [one for one in {1, key} if (begin is None or begin <= one) and (end is None or one <= end)]
        assert keys(store.range(begin, end, reverse=reverse)) == sorted(expected, reverse=reverse)
        store.rollback()


def test_nulls_and_times_are_neighbours_like_other_values() -> None:
    store = store_of(pa.schema([("name", pa.string()), ("at", pa.timestamp("ms", "UTC"))]))
    noon = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
    hours = [noon + dt.timedelta(hours=hour) for hour in range(3)]
    for key in [("a", None), (None, noon), ("b", noon), *(("a", hour) for hour in hours)]:
        store.put(key, {"n": 1})
    assert keys(store.prefix_scan(("a",))) == [*(("a", hour) for hour in hours), ("a", None)]
    assert keys(store.prefix_scan((None,))) == [(None, noon)]
    assert keys(store.range(("a", hours[1]), ("b", hours[0]))) == [
        ("a", hours[1]),
        ("a", hours[2]),
        ("a", None),
        ("b", noon),
    ]
    with pytest.raises(StoreException, match="has no time zone, those of the store have one"):
        store.range(("a", noon.replace(tzinfo=None)))


def test_bytes_may_begin_with_the_greatest_ones() -> None:
    store = store_of(pa.schema([("k", pa.binary())]))
    for key in [b"", b"\xfe\xff", b"\xff", b"\xff\xff", b"\xff\xff\x00"]:
        store.put(key, {"n": 1})
    assert keys(store.prefix_scan(b"\xff\xff")) == [b"\xff\xff", b"\xff\xff\x00"]
    assert keys(store.prefix_scan(b"\xfe\xff")) == [b"\xfe\xff"]
    assert len(keys(store.prefix_scan(b""))) == 5


@pytest.mark.parametrize(
    ("schema", "prefix", "told"),
    [
        (NUMBER, 7, r"can begin with 7: 'k' has type int64. Maybe range\(first, last\)"),
        (TEXT, ("a",), r"can begin with \('a',\): 'k' has type string"),
        (TWO, "a", r"'a' of keys of store seen must be a tuple of the first of \['name', 'number'\]"),
        (TWO, ("a", 1), r"must be a tuple of the first of .* Maybe get\(key\)"),
        (TWO, (), "must be a tuple of the first of"),
        (TWO, (1,), r"The key \(1,\) of store seen is not of its type"),
    ],
)
def test_with_what_no_key_can_begin_is_told_at_once(schema: pa.Schema, prefix: Any, told: str) -> None:
    with pytest.raises(StoreException, match=told):
        store_of(schema).prefix_scan(prefix)


def test_what_is_no_key_is_told_at_once() -> None:
    with pytest.raises(StoreException, match="The key 'a' of store seen is not of its type"):
        store_of(NUMBER).range("a")
    backwards: Any = None
    for look in (partial(store_of(NUMBER).range, 1), partial(store_of(TEXT).prefix_scan, "a")):
        # It was a KeyError of ours, when the first key was asked for.
        with pytest.raises(StoreException, match=r"The reverse of the store seen \(None\) must be True or False"):
            look(reverse=backwards)


def test_a_damaged_database_does_not_end_early(tmp_path: Path) -> None:
    store = store_of(NUMBER, True, tmp_path)
    store.put_table(pa.table({"k": pa.array(range(20_000)), "n": pa.array(range(20_000))}))
    store.drain_changes()
    store.keep("1")
    store.save()
    store.close()
    path = max((tmp_path / "live").rglob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    store = store_of(NUMBER, True, tmp_path)
    with pytest.raises(TaskCorruptedException):
        keys(store.range(5))
    store.close()
