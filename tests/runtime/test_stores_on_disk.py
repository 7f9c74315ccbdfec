"""Stores on disk hold what those in memory do, across crashes, snapshots and damage; keys as bytes are in the keys' order."""

from __future__ import annotations

import datetime as dt
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    CorruptLogException,
    KeyValueStore,
    KeyValueStoreSpec,
    RecordProcessor,
    TaskContext,
    TopicSpec,
)
from task_assignor.runtime.errors import ProcessorStateException, StoreException, TaskCorruptedException
from task_assignor.runtime.stores.encoding import KeyEncoding, ValueEncoding
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.store import PARTS
from task_assignor.sdk import TaskId
from tests.budget import examples
from tests.processes import quick_context

disk = pytest.importorskip(
    "task_assignor.runtime.stores.disk", reason="needs the extra `rocksdb`", exc_type=ImportError
)

VALUE = pa.schema([("n", pa.int64()), ("t", pa.string())])
IN_MEMORY = KeyValueStoreSpec("s", pa.schema([("k", pa.string()), ("f", pa.float64())]), VALUE)
ON_DISK = KeyValueStoreSpec("s", IN_MEMORY.key, VALUE, on_disk=True)

# Keys and values as bytes.

_UTC = st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)).map(lambda time: time.replace(tzinfo=dt.UTC))
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=4),
    pa.large_string(): st.sampled_from(["", "\0", "\0\0", "a", "a\0", "a\0b", "ab", "b"]),
    pa.binary(): st.binary(max_size=4),
    pa.large_binary(): st.sampled_from([b"", b"\0", b"\0\0", b"\0\xff", b"\xff", b"a\0\xffb"]),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)),
    pa.timestamp("ms", "Europe/Berlin"): _UTC.map(lambda time: time.replace(microsecond=0)),
    pa.duration("us"): st.timedeltas(dt.timedelta(-9), dt.timedelta(9)),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number) / 100),
    pa.dictionary(pa.int32(), pa.string()): st.text(max_size=3),
}


def _order(value: Any) -> tuple[Any, ...]:
    """Where a key column's value is in the order of its values."""
    if value is None:
        return (2,)
    if isinstance(value, float):
        return (1,) if value != value else (0, value + 0.0)
    return (0, value.encode() if isinstance(value, str) else value)


@given(st.data(), st.lists(st.sampled_from(sorted(KINDS, key=str)), min_size=1, max_size=3))
@settings(max_examples=examples(150), deadline=None)
def test_the_bytes_of_keys_have_the_order_of_the_keys(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    parts = [KINDS[kind] if len(kinds) == 1 else st.none() | KINDS[kind] for kind in kinds]
    keys = data.draw(st.lists(st.tuples(*parts), max_size=6))
    columns = [pa.array([key[number] for key in keys], kind) for number, kind in enumerate(kinds)]
    encoding = KeyEncoding(schema)
    encoded = encoding.encode(columns).to_pylist()
    places = [tuple(map(_order, key)) for key in keys]
    for one, place in zip(encoded, places, strict=True):
        for other, its_place in zip(encoded, places, strict=True):
            assert ((one > other) - (one < other)) == (place > its_place) - (place < its_place)
    decoded = pa.table(encoding.decode(encoded), schema=schema)
    assert [tuple(map(_order, row.values())) for row in decoded.to_pylist()] == [
        tuple(map(_order, row.values())) for row in pa.table(columns, schema=schema).to_pylist()
    ]
    assert [encoding.encode_one(key) for key in keys] == encoded


VALUES = KINDS | {
    pa.list_(pa.int16()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    pa.struct([("x", pa.string()), ("y", pa.list_(pa.int8()))]): st.fixed_dictionaries(
        {"x": st.none() | st.text(max_size=2), "y": st.lists(st.integers(-9, 9), max_size=2)}
    ),
    pa.null(): st.none(),
}


@given(st.data(), st.lists(st.sampled_from(sorted(VALUES, key=str)), max_size=9))
@settings(max_examples=examples(150), deadline=None)
def test_values_come_back_as_they_were(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)), max_size=5))
    columns = [pa.array([row[number] for row in rows], kind) for number, kind in enumerate(kinds)]
    encoding = ValueEncoding(schema)
    encoded = encoding.encode(columns, len(rows)).to_pylist()
    for column, decoded in zip(columns, encoding.decode(encoded), strict=True):
        assert decoded.type == column.type
        assert list(map(repr, decoded.to_pylist())) == list(map(repr, column.to_pylist()))
    assert [encoding.encode_one(row) for row in rows] == encoded
    for number, row in enumerate(encoded):
        assert repr(encoding.decode_one(row)) == repr([column[number].as_py() for column in columns])
    assert encoding.decode_one(encoding.nothing) == [None] * len(kinds)


@given(st.data(), st.lists(st.sampled_from(sorted(VALUES, key=str)), max_size=10), st.randoms())
@settings(max_examples=examples(80), deadline=None)
def test_values_of_before_a_store_gained_columns_are_read_with_nulls(
    data: st.DataObject, kinds: list[pa.DataType], chance: random.Random
) -> None:
    """Rows of all ages side by side, whole columns and one by one."""
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    expected, encoded = [], []
    for values in data.draw(st.lists(row, max_size=6)):
        width = chance.randint(0, len(kinds))
        older = [pa.array([value], kind) for value, kind in zip(values[:width], kinds, strict=False)]
        encoded += ValueEncoding(pa.schema(list(schema)[:width])).encode(older, 1).to_pylist()
        expected.append([*(column[0].as_py() for column in older), *[None] * (len(kinds) - width)])
    encoding = ValueEncoding(schema)
    columns = encoding.decode(encoded)
    assert [column.type for column in columns] == kinds
    assert all(len(column) == len(encoded) for column in columns)
    for number, wanted in enumerate(expected):
        assert repr([column[number].as_py() for column in columns]) == repr(wanted)
        assert repr(encoding.decode_one(encoded[number])) == repr(wanted)
        known = max((place + 1 for place, value in enumerate(wanted) if value is not None), default=0)
        if known:
            fewer = ValueEncoding(pa.schema(list(schema)[: known - 1]))
            with pytest.raises(StoreException, match="value columns, but the store knows only"):
                fewer.decode_one(encoded[number])
            with pytest.raises(StoreException, match="value columns, but the store knows only"):
                fewer.decode([encoded[number]])


WIDE = VALUE.append(pa.field("more", pa.list_(pa.int8()))).append(pa.field("flag", pa.bool_()))


@pytest.mark.parametrize(
    ("on_disk", "way"),
    [(True, "kept"), (True, "loaded"), (True, "replayed"), (False, "loaded"), (False, "replayed")],
)
def test_a_store_takes_gained_columns(tmp_path: Path, on_disk: bool, way: str) -> None:
    """In whatever way its older rows come to it; rows of both ages live together in it, its changes and its snapshots."""
    older = attrs.evolve(IN_MEMORY, on_disk=on_disk).create(tmp_path / "one")
    older.put(("a", 1.0), {"n": 1, "t": "x"})
    older.put(("b", 1.0), {"n": 2})
    batches = [older.drain_changes()]
    older.keep("first")
    saved = older.save()
    older.put(("c", 1.0), {"t": "y"})
    older.delete(("b", 1.0))
    batches.append(older.drain_changes())
    older.keep("second")
    older.close()

    spec = attrs.evolve(IN_MEMORY, value=WIDE, on_disk=on_disk)
    store = spec.create(tmp_path / ("other" if way == "replayed" else "one"))
    if way == "loaded":
        store.load(saved, "first")
        batches.pop(0)
    for changes in batches if way != "kept" else []:
        assert changes is not None
        store.apply(changes)
    store.keep("second")
    nothing = {"more": None, "flag": None}
    assert store.all().schema == pa.schema([*IN_MEMORY.key, *WIDE])
    assert store.all().to_pylist() == [
        {"k": "a", "f": 1.0, "n": 1, "t": "x", **nothing},
        {"k": "c", "f": 1.0, "n": None, "t": "y", **nothing},
    ]
    assert store.get(("a", 1.0)) == {"n": 1, "t": "x", **nothing}

    store.put(("d", 1.0), {"n": 3, "more": [1, 2], "flag": True})
    found = store.lookup(pa.table({"k": ["a", "d", "z"], "f": [1.0] * 3}))
    assert found.column("t").to_pylist() == ["x", None, None]
    assert found.column("more").to_pylist() == [None, [1, 2], None]
    new = store.drain_changes()
    assert new is not None
    assert new.column("more").to_pylist() == [[1, 2]]
    store.keep("third")
    whole, saved = store.all(), store.save()
    store.load(saved, "third")
    assert store.all().equals(whole)
    assert len(store) == 3
    store.close()


# Operations.

keys = st.tuples(st.sampled_from(["a", "b", "", "a\0"]), st.sampled_from([0.0, -0.0, float("nan"), 1.5]))
rows = st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(-9, 9), "t": st.none() | st.text(max_size=3)})
operations = st.one_of(
    st.tuples(st.just("put"), keys, rows),
    st.tuples(st.just("delete"), keys, st.none()),
    st.tuples(st.just("put_table"), st.lists(st.tuples(keys, rows), max_size=5), st.none()),
    st.tuples(
        st.sampled_from(["keep", "keep", "rollback", "reopen", "save", "load", "clear", "replay"]), st.none(), st.none()
    ),
)


def _table(pairs: list[tuple[tuple[str, float], dict[str, Any]]]) -> pa.Table:
    columns = [[key[0] for key, _ in pairs], [key[1] for key, _ in pairs]]
    columns += [[row.get(name) for _, row in pairs] for name in VALUE.names]
    return pa.table(columns, schema=pa.schema([*IN_MEMORY.key, *VALUE]))


class Pair:
    """A store in memory, its twin on disk, and one that replays their changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory = IN_MEMORY.create(root / "memory")
        self.disk = ON_DISK.create(root / "disk")
        self.kept: Any = None
        self.saved: Any = None
        self.number = 0
        self._keep()

    @property
    def stores(self) -> tuple[KeyValueStore, KeyValueStore]:
        return self.memory, self.disk

    def _keep(self) -> None:
        self.number += 1
        changes = [store.drain_changes() for store in self.stores]
        if changes[0] is None:
            assert changes[1] is None
        else:
            assert changes[1] is not None
            assert repr(changes[0].to_pydict()) == repr(changes[1].to_pydict())
        for store in self.stores:
            store.keep(f"state {self.number}")
        self.kept = self.memory.all()

    def do(self, what: str, key: Any, row: Any) -> None:
        match what:
            case "reopen":
                # What was not kept is gone.
                self.memory.rollback()
                self.disk.close()
                self.disk = ON_DISK.create(self.root / "disk")
            case "keep":
                self._keep()
            case "rollback":
                for store in self.stores:
                    store.rollback()
                assert repr(self.memory.all().to_pydict()) == repr(self.kept.to_pydict())
            case "save":
                self._keep()
                self.saved = [store.save() for store in self.stores], f"state {self.number}", self.kept
            case "load" if self.saved is not None:
                saved, name, self.kept = self.saved
                for store, found in zip(self.stores, saved, strict=True):
                    store.load(found, name)
            case "clear":
                for store in self.stores:
                    store.clear()
                self._keep()
            case "replay":
                changes = self.memory.drain_changes(), self.disk.drain_changes()
                for store, found in zip(self.stores, changes, strict=True):
                    if found is not None:
                        store.apply(found)
            case "put":
                for store in self.stores:
                    store.put(key, row)
            case "delete":
                for store in self.stores:
                    store.delete(key)
            case "put_table":
                for store in self.stores:
                    store.put_table(_table(key))

    def check(self) -> None:
        assert self.disk.kept == self.memory.kept
        assert len(self.disk) == len(self.memory)
        assert repr(self.disk.all().to_pydict()) == repr(self.memory.all().to_pydict())
        assert repr(list(self.disk.items())) == repr(list(self.memory.items()))
        asked = _table([((name, number), {}) for name in ("a", "", "z") for number in (0.0, float("nan"))])
        assert self.disk.lookup(asked).equals(self.memory.lookup(asked))
        assert self.disk.get(("a", -0.0)) == self.memory.get(("a", 0.0))


@given(st.lists(operations, max_size=25))
@settings(max_examples=examples(40), deadline=None)
@pytest.mark.thorough
def test_a_store_on_disk_is_what_one_in_memory_is(steps: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        pair = Pair(Path(root))
        for what, key, row in steps:
            pair.do(what, key, row)
            pair.check()
        for store in pair.stores:
            store.close()


# Crashes.

NUMBERS = KeyValueStoreSpec("s", pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]), on_disk=True)


def model_changes(batch: int) -> tuple[pa.Table, list[int]]:
    """What a batch puts and deletes."""
    keys = [(batch * 7_919 + number * 104_729) % 5_000 for number in range(300)]
    return pa.table({"k": keys, "n": [batch * 1_000 + number for number in range(300)]}), keys[::11]


def _write_for_ever(folder: Path, said: Connection) -> None:
    store = NUMBERS.create(folder)
    batch = int(store.kept or 0)
    said.send(batch)
    while True:
        batch += 1
        put, gone = model_changes(batch)
        store.put_table(put)
        for key in gone:
            store.delete(key)
        store.drain_changes()
        store.keep(str(batch))
        said.send(batch)
        if batch % 7 == 0:
            store.save()


def test_after_kill_9_the_state_is_exactly_that_of_its_name(tmp_path: Path) -> None:
    """A real process is killed in the middle, again and again; the next one goes on where the last was kept."""
    context = quick_context()
    model: dict[int, int] = {}
    at = 0
    for round_ in range(4):
        heard, said = context.Pipe(duplex=False)
        process = context.Process(target=_write_for_ever, args=(tmp_path, said))
        process.start()
        said.close()
        assert heard.recv() == at
        told = at
        for _ in range(9 + 5 * round_):
            told = heard.recv()
        process.kill()
        # What it was about to say when it was killed may be cut off.
        with suppress(EOFError):
            while True:
                told = heard.recv()
        process.join()
        heard.close()
        store = NUMBERS.create(tmp_path)
        kept = int(store.kept)
        assert kept >= told, "what it was told to be kept is there"
        for batch in range(at + 1, kept + 1):
            put, gone = model_changes(batch)
            model.update(zip(put.column("k").to_pylist(), put.column("n").to_pylist(), strict=True))
            for key in gone:
                model.pop(key, None)
        at = kept
        assert store.all().to_pydict() == {"k": sorted(model), "n": [model[key] for key in sorted(model)]}
        assert len(store) == len(model)
        store.close()


def test_a_zombie_keeps_its_database_and_its_successor_has_another(tmp_path: Path) -> None:
    zombie = NUMBERS.create(tmp_path)
    zombie.put(1, {"n": 1})
    zombie.drain_changes()
    zombie.keep("one")
    successor = NUMBERS.create(tmp_path)
    assert (len(successor), successor.kept) == (0, "")
    successor.put(2, {"n": 2})
    successor.drain_changes()
    successor.keep("two")
    zombie.put(3, {"n": 3})
    zombie.drain_changes()
    zombie.keep("three")
    assert [key for key, _ in successor.items()] == [2]
    zombie.close()
    successor.close()


# Snapshots.


def filled(folder: Path, rows_: int = 3_000) -> KeyValueStore:
    store = NUMBERS.create(folder)
    store.put_table(pa.table({"k": list(range(rows_)), "n": list(range(rows_))}))
    store.drain_changes()
    store.keep("one")
    return store


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_snapshot_writes_only_what_the_last_one_has_not(tmp_path: Path, on_disk: bool) -> None:
    store = (NUMBERS if on_disk else KeyValueStoreSpec("s", NUMBERS.key, NUMBERS.value)).create(tmp_path)
    store.put_table(pa.table({"k": list(range(20_000)), "n": list(range(20_000))}))
    store.drain_changes()
    store.keep("one")
    first = store.save()
    store.put(5, {"n": -1})
    store.drain_changes()
    store.keep("two")
    second = store.save()
    new = set(second.parts) - set(first.parts)
    large = [part for part in first.parts if part.seal.size > 20_000]
    assert large
    assert set(large) <= set(second.parts)
    assert sum(part.seal.size for part in new) < 20_000
    assert store.save().parts[: len(large)] == second.parts[: len(large)]
    store.load(first, "one")
    assert (store.get(5), len(store)) == ({"n": 5}, 20_000)
    store.load(second, "two")
    assert (store.get(5), len(store)) == ({"n": -1}, 20_000)
    store.close()


def test_a_new_database_that_another_process_has_taken_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended with an error of its lock, where runs on copies of a folder have one state directory."""
    others: list[Any] = []

    def named() -> uuid.UUID:
        name = uuid.UUID(int=len(others))
        if len(others) < 2:
            others.append(disk.rocksdict.Rdict(str(tmp_path / "live" / name.hex)))
        return name

    monkeypatch.setattr(disk.uuid, "uuid4", named)
    (tmp_path / "live").mkdir()
    store = NUMBERS.create(tmp_path)
    assert len([path for path in (tmp_path / "live").iterdir() if path.is_dir()]) == 3
    for one in (store, *others):
        one.close()


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_part_is_noticed(tmp_path: Path, damage: str) -> None:
    store = filled(tmp_path)
    saved = store.save()
    for part in saved.parts:
        path = tmp_path / PARTS / part.name
        whole = path.read_bytes()
        if not whole and damage != "missing":
            continue
        middle = len(whole) // 2
        path.unlink()  # the database has links to it
        if damage != "missing":
            flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
            path.write_bytes(flipped if damage == "flipped" else whole[:middle])
        with pytest.raises(CorruptLogException, match="snapshot file of s"):
            store.load(saved, "one")
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
    store.load(saved, "one")
    assert len(store) == 3_000
    store.close()


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_damaged_database_is_noticed(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    """The first bytes of a table are rows, and are missed when these are read; the last are needed to open it."""
    store = filled(tmp_path)
    store.save()
    store.close()
    path = max((tmp_path / "live").rglob("*.sst"), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    spot = 100 if place == "first" else len(whole) - 20
    path.write_bytes(whole[:spot] + bytes(byte ^ 255 for byte in whole[spot : spot + 8]) + whole[spot + 8 :])
    store = NUMBERS.create(tmp_path)
    if place == "first":
        assert store.kept == "one"
        with pytest.raises(TaskCorruptedException, match=r"store s on disk .*Corruption"):
            store.all()
        store.clear()
    else:
        assert "is damaged and not used" in caplog.text
    assert (store.kept, len(store)) == ("", 0)
    store.close()


class Asks(RecordProcessor):
    """Looks each record up."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """What the store has."""
        found = context.key_value_store("s").get(record["k"])
        assert found is not None
        return [found]


@pytest.mark.parametrize("trouble", ["damaged", "closed"])
def test_a_store_that_cannot_be_read_makes_no_record_a_bad_one(tmp_path: Path, trouble: str) -> None:
    """Not even where bad records are skipped."""
    store = filled(tmp_path)
    store.save()
    store.close()
    if trouble == "damaged":
        path = max((tmp_path / "live").rglob("*.sst"), key=lambda path: path.stat().st_size)
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + bytes(byte ^ 255 for byte in whole[100:108]) + whole[108:])
        store = NUMBERS.create(tmp_path)
    topics = {"t": TopicSpec("t", 1, NUMBERS.key, ("k",))}
    context = TaskContext("app", TaskId(0, 0), topics, ("out",), {"s": store}, bad_records="skip")
    rows = {"t": pa.table({"k": [5, 6]})}
    context.begin(0, {"t": (0, 2)}, rows)
    with pytest.raises(
        TaskCorruptedException if trouble == "damaged" else ProcessorStateException, match="The store s"
    ):
        Asks().process_batch(rows, context)
    assert context.finish() == ({}, {})
    store.close()


def test_a_database_that_cannot_be_used_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="live"):
        NUMBERS.create(tmp_path)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.delitem(sys.modules, "task_assignor.runtime.stores.disk", raising=False)
    with pytest.raises(ImportError, match=r"A store on disk needs the package 'rocksdict'.*task-assignor\[rocksdb\]"):
        NUMBERS.create()


# Bounds.

BYTES = KeyValueStoreSpec("s", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.binary())]), on_disk=True)


def _fill(store: KeyValueStore, rows_: int, value_bytes: int, batch_rows: int) -> None:
    """Rows that cannot be compressed."""
    for first in range(0, rows_, batch_rows):
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(value_bytes), batch_rows, [None, pa.py_buffer(os.urandom(batch_rows * value_bytes))]
        )
        store.put_table(pa.table({"k": list(range(first, first + batch_rows)), "v": values.cast(pa.binary())}))
        store.drain_changes()
        store.keep(f"{first}")


def _resident_bytes(what: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
def test_looking_up_many_rows_takes_no_more_memory_than_looking_up_few(tmp_path: Path) -> None:
    """Each value that was found holds its block while they are looked up together: here 60 MB, if all are."""
    store = BYTES.create(tmp_path, StoreMemory(32 << 20))
    _fill(store, 240_000, 250, 10_000)
    store.save()
    keys = pa.array(range(0, 240_000, 30))
    store.lookup(keys.slice(0, 1_000))
    before = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    assert store.lookup(keys).column("v").null_count == 0
    assert _resident_bytes("VmHWM") - before < 30 << 20
    store.close()


def test_the_log_of_a_database_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the state is written with every batch, and alone would hold the log since the last snapshot."""
    monkeypatch.setattr(disk, "_LOG_BYTES", 4 << 20)
    monkeypatch.setattr(disk, "_options", partial(_small_buffers, disk._options))
    store = BYTES.create(tmp_path)
    _fill(store, 20_000, 1_500, 500)
    assert sum(path.stat().st_size for path in (tmp_path / "live").rglob("*.log")) < 10 << 20
    store.close()


def _small_buffers(options: Callable[..., Any], memory: StoreMemory, write_buffer: int = 1 << 20) -> Any:
    return options(memory, write_buffer)
