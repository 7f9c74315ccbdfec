"""Objects that are written in the background are durable when their writer says so, and errors reach who wants to know."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path

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


def wait(writer: BackgroundWriter, names: list[str]) -> BaseException | None:
    told: Future[BaseException | None] = Future()
    writer.when_written(names, told.set_result)
    return told.result(60)


def test_who_waits_finds_the_objects(tmp_path: Path) -> None:
    storage = Slow(tmp_path)
    writer = BackgroundWriter(storage, 2)
    writer.put_all({"a/1": b"1", "b/1": b"2"})
    writer.put_all({"a/2": b"3"})
    writer.put_all({})
    assert storage.list() == [], "nobody waited for it"
    told: Future[BaseException | None] = Future()
    writer.when_written(["b/1", "a/1", "a/2"], told.set_result)
    assert not told.done(), "nothing is written"
    storage.go.set()
    assert told.result(60) is None
    assert list(storage.list_below()) == ["a/1", "a/2", "b/1"]
    writer.put_all({"a/3": b"4"})
    assert wait(writer, ["a/1", "a/3"]) is None
    assert wait(writer, ["a/3"]) is None, "it is told, too, if all is written"
    assert wait(writer, []) is None
    writer.close()


def test_an_error_reaches_who_waits(tmp_path: Path) -> None:
    writer = BackgroundWriter(FaultyStorage(LocalStorage(tmp_path), 1, capacity=3), 1)
    writer.put_all({"a": b"12"})
    writer.put_all({"b": b"34"})
    writer.put_all({"c": b"5"})
    assert wait(writer, ["a", "c"]) is None
    for names in (["b"], ["a", "b", "c"]):
        error = wait(writer, names)
        assert isinstance(error, OSError)
        assert error.strerror == "No space left on device"
        assert error.filename.endswith("/b")
    writer.close()


def test_who_waits_hears_if_the_writer_is_closed(tmp_path: Path) -> None:
    storage = Slow(tmp_path)
    writer = BackgroundWriter(storage, 1)
    writer.put_all({"a": b"1"})
    writer.put_all({"b": b"2"})
    told: Future[BaseException | None] = Future()
    writer.when_written(["b"], told.set_result)
    writer.close()
    assert isinstance(told.result(60), CancelledError)
    storage.go.set()
