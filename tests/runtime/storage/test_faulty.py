"""The storage that fails on purpose fails as it says, and never beyond what a real one may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.runtime.storage import LocalStorage, as_document, open_document
from tests.runtime.storage.faulty import FaultyStorage, PowerFailure


def _inner(path: Path) -> LocalStorage:
    return LocalStorage(path, is_durable=False)


def test_a_disk_gets_full(tmp_path: Path) -> None:
    storage = FaultyStorage(_inner(tmp_path), 1, capacity=5)
    storage.put("a", b"123")
    with pytest.raises(OSError, match=r"No space left.*b"):
        storage.put_if_absent("b", b"123")
    storage.put("c", b"12")
    assert storage.list() == ["a", "c"]


def test_what_was_acknowledged_before_the_power_went_is_there(tmp_path: Path) -> None:
    fates = set()
    for seed in range(60):
        inner = _inner(tmp_path / str(seed))
        storage = FaultyStorage(inner, seed)
        storage.put("kept", b"old")
        storage.put_all({"one": b"1" * 50, "two": b"2" * 50})
        storage.dark_after = 0
        with pytest.raises(PowerFailure):
            storage.put_all({"new-1": b"3" * 50, "new-2": b"4" * 50})
        storage.power_failure()
        assert [inner.open(name).to_pybytes() for name in ("kept", "one", "two")] == [b"old", b"1" * 50, b"2" * 50]
        fates.add(tuple(len(inner.open(name)) if inner.is_there(name) else None for name in ("new-1", "new-2")))
        storage.dark_after = 0
        with pytest.raises(PowerFailure):
            storage.put("kept", b"new")
        assert inner.open("kept").to_pybytes() in (b"old", b"new")
    assert {(50, 50), (None, None)} <= fates
    assert any(size not in (None, 50) for sizes in fates for size in sizes), "some are torn"


def test_a_forgetful_disk_loses_what_it_acknowledged(tmp_path: Path) -> None:
    found = set()
    for seed in range(40):
        inner = _inner(tmp_path / str(seed))
        storage = FaultyStorage(inner, seed, forgets=True)
        storage.put("a", b"old")
        storage.power_failure()
        before = inner.is_there("a") and inner.open("a").to_pybytes() == b"old"
        if before:
            storage.put("a", b"new")
            storage.power_failure()
            found.add(inner.open("a").to_pybytes() if inner.is_there("a") else None)
        else:
            found.add("lost")
    assert {b"old", b"new", "lost"} <= found


def test_damage_is_noticed_by_the_checksum(tmp_path: Path) -> None:
    for seed in range(30):
        storage = FaultyStorage(_inner(tmp_path / str(seed)), seed)
        for name, damage in (("torn", storage.tear), ("flipped", storage.flip)):
            storage.put(name, as_document({"some": "document", "number": seed}))
            damage(name)
            with pytest.raises(ValueError, match=r"its (end|checksum) is"):
                open_document(storage, name, dict)
