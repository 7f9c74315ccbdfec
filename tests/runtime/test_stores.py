"""Stores: the live store, one rebuilt from changes and one loaded from a snapshot hold the same."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    KeyValueStoreSpec,
    StoreException,
    TopicException,
    TopicSpec,
    WindowStoreSpec,
)
from task_assignor.runtime.stores import encoding
from task_assignor.runtime.stores.memory_rows import MemoryRows
from tests.budget import examples

ONE = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), pa.schema([("n", pa.int64()), ("t", pa.string())]))
TWO = KeyValueStoreSpec("s", pa.schema([("a", pa.string()), ("b", pa.int32())]), pa.schema([("n", pa.int64())]))

keys = st.sampled_from(["a", "b", "c", "d", ""])
values = st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(-9, 9), "t": st.none() | st.text(max_size=3)})
operations = st.lists(
    st.tuples(st.just("put"), keys, values) | st.tuples(st.just("delete"), keys, st.just({})), max_size=12
)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@given(st.lists(operations, max_size=6))
@settings(max_examples=examples(75), deadline=None)
def test_key_value_store_is_what_a_dict_is_and_can_be_rebuilt(
    batches: list[list[tuple[str, str, dict[str, Any]]]],
) -> None:
    with _folder() as folder:
        _check_key_value(batches, folder)


def _check_key_value(batches: list[list[tuple[str, str, dict[str, Any]]]], folder: Path) -> None:
    live, replayed, loaded = ONE.create(folder), ONE.create(), ONE.create(folder)
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
        live.keep(str(len(batch)))
        # What another try has left.
        loaded.put("spoilt", {"n": 1})
        loaded.drain_changes()
        loaded.keep("spoilt")
        loaded.put("e", {"n": 2})
        loaded.load(live.save(), str(len(batch)))
        assert loaded.drain_changes() is None
        for store in (live, replayed, loaded):
            # The order too: what a processor makes of it must not depend on whether its client was lost.
            assert sorted(model.items()) == list(store.items())
            assert len(model) == len(store)
            assert sorted(model.items()) == [(row.pop("k"), row) for row in store.all().to_pylist()]
        assert live.drain_changes() is None


@pytest.mark.parametrize("spread", [1, 7])
def test_the_parts_of_a_snapshot_grow_as_the_logarithm_of_the_snapshots(tmp_path: Path, spread: int) -> None:
    """A large store of which little changes between two snapshots had a part for each of them, hundreds and thousands."""
    store, snapshots, changed = ONE.create(tmp_path), 300, 5
    for number in range(3_000):
        store.put(f"key {number}", {"n": number})
    store.drain_changes()
    store.keep("0")
    written = {part.name: part.seal.rows for part in store.save().parts}
    most = 0
    for number in range(1, snapshots + 1):
        for key in range(number * changed, (number + 1) * changed):
            if key % 10:
                store.put(f"key {key * spread % 3_000}", {"n": -key})
            else:
                store.delete(f"key {key * spread % 3_000}")
        store.drain_changes()
        store.keep(str(number))
        saved = store.save()
        most = max(most, len(saved.parts))
        written.update((part.name, part.seal.rows) for part in saved.parts)
    assert most <= 1 + 3 * math.ceil(math.log(snapshots, 4))
    assert sum(written.values()) <= 3_000 + snapshots * changed * (1 + math.log(snapshots, 4))
    other = ONE.create(tmp_path)
    other.load(saved, str(snapshots))
    assert list(other.items()) == list(store.items())
    # It goes on from a snapshot as if it had been written here.
    other.put("key 1", {"n": 1})
    other.drain_changes()
    other.keep("more")
    assert len(other.save().parts) <= most + 1


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
    with pytest.raises(StoreException, match="two columns 't'"):
        store.put_table(pa.table([["a"], [1], ["x"], ["y"]], ["k", "n", "t", "t"]))
    with pytest.raises(StoreException, match="column 'n' for the store s has type string"):
        store.put_table(pa.table({"k": ["a"], "n": ["x"], "t": ["y"]}))
    with pytest.raises(StoreException, match="The value 'not a number' for 'n' of store s is not of type int64"):
        store.put("k", {"n": "not a number"})
    with pytest.raises(
        StoreException, match=r"The value 1.5 for 'n' of store s is not of type int64: 1.5 would become 1"
    ):
        store.put("k", {"n": 1.5})
    with pytest.raises(StoreException, match=r"The key 1 of store s is not of its type \(k: string\)"):
        store.put(1, {})
    no_text = pa.StringArray.from_buffers(1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(StoreException, match=r"Of the rows for the store s the column 't' holds what is no string"):
        store.put_table(pa.table({"k": ["a"], "n": [1], "t": no_text}))
    assert not len(store)


def test_what_changes_a_store_between_batches_is_told() -> None:
    """A thread of the processor's, or its close(): no changelog would have it, and then a KeyError was all that was said."""
    store = ONE.create()
    store.put("k", {"n": 1})
    with pytest.raises(StoreException, match="The store s was changed while nothing was processed"):
        store.keep("one")
    store.drain_changes()
    store.keep("one")
    store._changed[b"l"] = None  # as a thread does that is in the middle of a change
    with pytest.raises(StoreException, match="The store s was changed while nothing was processed"):
        store.drain_changes()
    window = WindowStoreSpec("w", "time").create()
    window.append(pa.table({"time": [1]}))
    with pytest.raises(StoreException, match="The store w was changed while nothing was processed"):
        window.keep("one")


BERLIN = KeyValueStoreSpec(
    "b", pa.schema([("at", pa.timestamp("ms", "Europe/Berlin")), ("k", pa.string())]), pa.schema([("n", pa.int64())])
)


def test_a_column_that_is_never_null_takes_no_null() -> None:
    """It did without a word, and who reads it later had nulls where its schema says that there are none."""
    value = pa.schema([pa.field("n", pa.int64(), nullable=False), ("t", pa.string())])
    store = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), value).create()
    told = "The column 'n' of store s is declared as never null, but is to be null"
    for row in ({}, {"n": None, "t": "x"}):
        with pytest.raises(StoreException, match=told):
            store.put("a", row)
    with pytest.raises(StoreException, match=told):
        store.put_table(pa.table({"k": ["a", "b"], "n": [1, None], "t": ["x", "y"]}))
    store.put("a", {"n": 1})
    store.put_table(pa.table({"k": ["b"], "n": [2], "t": ["y"]}))
    assert (store.get("a"), store.get("b")) == ({"n": 1, "t": None}, {"n": 2, "t": "y"})


def test_rows_and_values_of_another_shape_are_told() -> None:
    import polars as pl

    store, frame = ONE.create(), pl.DataFrame({"k": ["a"], "n": [1], "t": ["x"]})
    for use in (store.put_table, store.delete_table):
        with pytest.raises(
            StoreException,
            match=r"Rows for the store s must be a pyarrow.Table, not DataFrame. Maybe frame.to_arrow\(\)",
        ):
            use(frame)
    with pytest.raises(
        StoreException, match=r"The value 1 for store s must be a mapping of its value columns: \['n', 't'\]"
    ):
        store.put("k", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [1, 2])
def test_a_key_that_would_be_cut_to_another_is_refused(columns: int) -> None:
    """1.2 and 1.7 were both the key 1."""
    store = KeyValueStoreSpec("c", pa.schema([("a", pa.int64()), ("b", pa.int64())][:columns]), ONE.value).create()
    one, other = (1, 1.7) if columns == 1 else ((1, 1), (1, 1.7))
    store.put(one, {"n": 1})
    for use in (store.get, lambda key: store.put(key, {"n": 2})):
        with pytest.raises(StoreException, match=r"of store c is not of its type .*: 1.7 would become 1"):
            use(other)
    assert store.get(one) == {"n": 1, "t": None}


def test_times_with_a_zone_are_keys_by_their_instant() -> None:
    """At the end of summer time the clock shows an hour twice: Python takes both for the same time."""
    instants = [1_729_988_100_000, 1_729_991_700_000]  # 02:15 twice
    rows = pa.table(
        [pa.array(instants).cast(BERLIN.key.field("at").type), pa.array(["x", "x"]), pa.array([1, 2])],
        schema=pa.schema([*BERLIN.key, *BERLIN.value]),
    )
    store, replayed = BERLIN.create(), BERLIN.create()
    store.put_table(rows)
    assert len(store) == 2
    assert store.lookup(rows.slice(0, 1)).to_pylist() == [{"n": 1}]
    summer, winter = rows.column("at").to_pylist()
    assert (store.get((summer, "x")), store.get((winter, "x"))) == ({"n": 1}, {"n": 2})
    store.put((dt.datetime.fromtimestamp(instants[0] / 1_000, dt.UTC), "x"), {"n": 3})
    changes = store.drain_changes()
    assert changes is not None
    replayed.apply(changes)
    for found in (store, replayed):
        assert len(found) == 2
        assert found.all().column("at").cast(pa.int64()).to_pylist() == instants
        assert found.all().schema.field("at").type == BERLIN.key.field("at").type
    store.delete((summer, "x"))
    assert ((summer, "x") in store, (winter, "x") in store) == (False, True)
    with pytest.raises(StoreException, match="for 'at' of store b has no time zone, those of the store have one"):
        store.get((dt.datetime(2024, 10, 27, 2, 15), "x"))
    naive = KeyValueStoreSpec("n", pa.schema([("at", pa.timestamp("ms"))]), BERLIN.value).create()
    with pytest.raises(StoreException, match="has a time zone, those of the store have none"):
        naive.put(summer, {"n": 1})
    clock = dt.datetime(2024, 10, 27, 2, 15)
    naive.put(clock, {"n": 1})
    assert list(naive.items()) == [(clock, {"n": 1})]


@pytest.mark.parametrize("columns", [1, 2])
def test_all_nan_are_one_key(columns: int) -> None:
    key = pa.schema([("x", pa.float64()), ("y", pa.float32())][:columns])
    spec = KeyValueStoreSpec("f", key, pa.schema([("n", pa.int64())]))
    store, replayed = spec.create(), spec.create()
    nan = float("nan")
    for number in range(3):
        values = [pa.array([nan, 1.0, float("inf") - float("inf")], field.type) for field in key]
        store.put_table(
            pa.table([*values, pa.array([number, number, number + 10])], schema=pa.schema([*key, *spec.value]))
        )
        changes = store.drain_changes()
        assert changes is not None
        replayed.apply(changes)
    single = nan if columns == 1 else (nan, nan)
    for found in (store, replayed):
        assert len(found) == 2
        assert found.get(single) == {"n": 12}
    store.delete(single)
    assert len(store) == 1


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.list_(pa.int64()), "one key column of each part"),
        (pa.struct([("a", pa.int64())]), "one key column of each part"),
        (pa.map_(pa.string(), pa.int64()), "one key column of each part"),
        (pa.null(), "Maybe give its real type"),
    ],
)
def test_what_cannot_be_a_key_is_refused_early_with_its_column(kind: pa.DataType, advice: str) -> None:
    value = pa.schema([("n", pa.int64())])
    with pytest.raises(
        StoreException, match=rf"The key column 'bad' of store s has type .* cannot be a key: .*{advice}"
    ):
        KeyValueStoreSpec("s", pa.schema([("good", pa.int64()), ("bad", kind)]), value)
    with pytest.raises(TopicException, match=r"The key column 'bad' of topic t: A column of type .* cannot be a key"):
        TopicSpec("t", 1, pa.schema([("bad", kind)]), ("bad",))


def test_without_key_columns_there_are_no_keys() -> None:
    with pytest.raises(StoreException, match="The store s needs at least one key column"):
        KeyValueStoreSpec("s", pa.schema([]), ONE.value)


def test_null_is_no_key() -> None:
    store = ONE.create()
    with pytest.raises(
        StoreException, match=r"store s cannot have null as a key \('k'\). Maybe leave such records out"
    ):
        store.put(None, {"n": 1})
    with pytest.raises(StoreException, match="cannot have null as a key"):
        store.put_table(pa.table({"k": ["a", None], "n": [1, 2], "t": ["x", "y"]}))
    assert (len(store), store.get(None)) == (0, None)
    assert store.lookup(pa.array([None], pa.string())).to_pylist() == [{"n": None, "t": None}]


@pytest.mark.parametrize("key", ["a", ("a",), ["a", 1], ("a", 1, 2), None])
def test_a_key_of_several_columns_is_a_tuple_of_them(key: Any) -> None:
    store = TWO.create()
    for use in (
        lambda: store.put(key, {"n": 1}),
        lambda: store.get(key),
        lambda: store.delete(key),
        lambda: key in store,
    ):
        with pytest.raises(StoreException, match=r"of store s must be a tuple of 2 values: \['a', 'b'\]"):
            use()


def test_a_time_of_day_that_python_cannot_hold_is_given_in_tables_alone() -> None:
    of_day = pa.schema([("t", pa.time64("ns"))])
    store = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), of_day).create()
    rows = pa.table({"k": ["a", "b"], "t": pa.array([1_000, 1_001], pa.time64("ns"))})
    store.put_table(rows)
    assert store.all().equals(rows)
    assert store.get("a") == {"t": dt.time(microsecond=1)}
    with pytest.raises(ValueError, match="has a time of day with nanoseconds"):
        store.get("b")
    with pytest.raises(ValueError, match="'t' has a time of day with nanoseconds"):
        list(store.items())


def test_of_very_many_bytes_rows_are_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's texts of one piece end at 2 GiB: a store with more in 65 536 rows could not be read."""
    store = ONE.create()
    rows = pa.table({"k": list("abcde"), "n": range(5), "t": ["x" * 50, None, "y" * 70, "", "z"]})
    store.put_table(rows)
    monkeypatch.setattr(encoding, "_PIECE_BYTES", 60)
    found = store.all()
    assert found.equals(rows.cast(found.schema))
    assert found.column("t").num_chunks == 4
    assert [value for _, value in store.items()] == rows.drop_columns(["k"]).to_pylist()


@pytest.mark.parametrize("on_disk", [False, True])
def test_who_looks_at_all_rows_sees_those_of_before_whatever_is_kept_meanwhile(tmp_path: Path, on_disk: bool) -> None:
    """It was told that the database is damaged, since its rows of before were counted and held against those of now."""
    spec = KeyValueStoreSpec("s", pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]), on_disk=on_disk)
    store = spec.create(tmp_path)
    store.put_table(pa.table({"k": range(70_000), "n": range(70_000)}))
    store.drain_changes()
    store.keep("before")
    found = store.items()
    first = next(found)
    store.put(70_000, {"n": 0})
    store.drain_changes()
    store.keep("after")
    assert len([first, *found]) == 70_000
    store.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_dictionaries_in_lists_structs_and_maps_are_kept(tmp_path: Path, on_disk: bool) -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    kinds = [pa.list_(text), pa.struct([("a", text)]), pa.map_(pa.string(), text), pa.list_(text, 1)]
    values = [[["x", None], None], [{"a": "x"}, None], [[("k", "x")], None], [["x"], None]]
    rows = pa.table(
        {"k": ["a", "b"], **{str(n): pa.array(v, kind) for n, (v, kind) in enumerate(zip(values, kinds, strict=True))}}
    )
    columns = pa.schema([*rows.schema][1:])
    store = KeyValueStoreSpec("s", pa.schema([("k", pa.string())]), columns, on_disk=on_disk).create(tmp_path)
    store.put_table(rows)
    assert store.all().equals(rows)
    assert store.get("a") == rows.drop_columns(["k"]).to_pylist()[0]
    store.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_dictionary_that_is_declared_small_has_room_for_all_rows(tmp_path: Path, on_disk: bool) -> None:
    """With 128 values each could be put, but not be read with the others, and a batch that had changed so many could not end."""
    text = pa.dictionary(pa.int8(), pa.string())
    spec = KeyValueStoreSpec(
        "s", pa.schema([("k", text)]), pa.schema([("v", text), ("more", pa.list_(text))]), on_disk=on_disk
    )
    assert "indices=int8" in spec.fingerprint, "stores that are there stay what they are"
    store, again = spec.create(tmp_path / "one"), spec.create(tmp_path / "other")
    rows = [{"k": f"k{number:03}", "v": f"v{number}", "more": [f"m{number}"]} for number in range(300)]
    for row in rows:
        store.put(row["k"], {name: row[name] for name in ("v", "more")})
    assert store.all().to_pylist() == rows
    changes = store.drain_changes()
    assert changes is not None
    again.apply(changes)
    assert again.all().equals(store.all())
    former = changes.slice(0, 100)
    small = [
        field.with_type(text) if field.type == store.all().schema.field("v").type else field for field in former.schema
    ]
    again.clear()
    again.apply(former.cast(pa.schema(small)))
    assert again.all().to_pylist() == rows[:100], "a changelog of before"
    for one in (store, again):
        one.close()


@pytest.mark.parametrize(
    "kind",
    [pa.dictionary(pa.int8(), pa.int64()), pa.list_(pa.string_view()), pa.run_end_encoded(pa.int32(), pa.string())],
)
def test_what_a_store_could_not_give_back_is_refused(kind: pa.DataType) -> None:
    columns = pa.schema([("k", pa.string())]), pa.schema([("v", kind)])
    with pytest.raises(StoreException, match=r"The column 'v' of store s has type .*, of which Arrow cannot pick rows"):
        KeyValueStoreSpec("s", *columns)
    if pa.types.is_dictionary(kind):
        with pytest.raises(
            StoreException, match=r"The column 'v' of store s has type .*, of which Arrow cannot pick rows"
        ):
            KeyValueStoreSpec("s", *columns[::-1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: KeyValueStoreSpec("s", ONE.key, ONE.value, logged="false"),  # type: ignore[arg-type]
            r"logged of the store s \('false'\) must be True or",
        ),
        (
            lambda: KeyValueStoreSpec("s", ONE.key, ONE.value, on_disk=None),  # type: ignore[arg-type]
            r"on_disk of the store s \(None\) must be True or",
        ),
        (lambda: WindowStoreSpec("w", "time", logged="no"), r"logged of the store w \('no'\) must be True or False"),  # type: ignore[arg-type]
        (lambda: WindowStoreSpec("w", None), r"The time \(None\) of store w must be the name of a column"),  # type: ignore[arg-type]
        (lambda: WindowStoreSpec("w", ""), r"The time \(''\) of store w must be the name of a column"),
    ],
)
def test_what_declares_a_store_is_checked(make: Callable[[], object], message: str) -> None:
    """The text "false" counted as true."""
    with pytest.raises(StoreException, match=message):
        make()


@pytest.mark.parametrize("keys", ["abc", b"abc", None, 5])
def test_keys_to_look_up_are_a_table_or_a_column(keys: Any) -> None:
    """A text was taken for its letters, each of which was found to be missing."""
    with pytest.raises(StoreException, match=r"The keys \(.*\) to look up in the store s must be .* Maybe get\(key\)"):
        ONE.create().lookup(keys)
    assert ONE.create().lookup(["abc"]).num_rows == 1


@pytest.mark.parametrize("is_saved", [False, True])
def test_keys_that_have_gone_take_no_memory_where_no_snapshot_is_made(is_saved: bool, tmp_path: Path) -> None:
    """All keys that there ever were stayed in memory, of a store without a changelog for as long as its client lived."""
    rows = MemoryRows(tmp_path, "seen")
    rows.write({b"stays": b""}, "0")
    if is_saved:
        rows.save()
    tracemalloc.start()
    for batch in range(100):
        keys = [b"%100d" % (1_000 * batch + number) for number in range(1_000)]
        rows.write(dict.fromkeys(keys, b""), f"{batch} come")
        rows.write(dict.fromkeys(keys), f"{batch} go")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 1 << 20
    other = MemoryRows(tmp_path, "seen")
    other.load(rows.save(), "other")
    assert list(other.items()) == [(b"stays", b"")]
