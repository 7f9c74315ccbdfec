"""Objects that are written in the background are durable when their writer says so, and errors reach who waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from task_assignor.runtime.storage import BackgroundWriter, Data, LocalStorage
from tests.runtime.storage.faulty import FaultyStorage


class Slow(LocalStorage):
    """Writes when it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = threading.Event()

    def put_all(self, objects: Mapping[str, Data]) -> None:
        assert self.go.wait(60)
        super().put_all(objects)


def test_who_waits_finds_the_objects(tmp_path: Path) -> None:
    storage = Slow(tmp_path)
    writer = BackgroundWriter(storage, 2)
    writer.put_all({"a/1": b"1", "b/1": b"2"})
    writer.put_all({"a/2": b"3"})
    writer.put_all({})
    assert storage.list() == [], "nobody waited for it"
    storage.go.set()
    writer.wait(["b/1", "a/1", "a/2"])
    assert list(storage.list_below()) == ["a/1", "a/2", "b/1"]
    writer.put_all({"a/3": b"4"})
    writer.wait(["a/1", "a/3"])
    writer.close()


def test_an_error_reaches_who_waits(tmp_path: Path) -> None:
    writer = BackgroundWriter(FaultyStorage(LocalStorage(tmp_path), 1, capacity=3), 1)
    writer.put_all({"a": b"12"})
    writer.put_all({"b": b"34"})
    writer.put_all({"c": b"5"})
    writer.wait(["a", "c"])
    with pytest.raises(OSError, match=r"No space left.*b"):
        writer.wait(["b"])
    writer.close()
