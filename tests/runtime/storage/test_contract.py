"""What every storage promises: on a local disk, in obstore's memory, on a real S3-compatible server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from task_assignor.runtime.storage import LocalStorage, Storage, storage_at
from task_assignor.runtime.storage.objects import ObjectStorage
from tests.budget import examples

NAMES = st.sampled_from(["a", "b.json", "folder/a", "folder/b", "folder/deep/c", "folder2/a", ".hidden", "x-y_z"])
DATA = st.binary(max_size=20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, DATA),
        st.tuples(st.just("put_if_absent"), NAMES, DATA),
        st.tuples(st.just("put_all"), st.dictionaries(NAMES, DATA, max_size=4)),
        st.tuples(st.just("delete"), st.lists(NAMES, max_size=3)),
    ),
    max_size=12,
)
WRITERS = 50


class Contract:
    """The promises; each kind of storage is a subclass that has the fixture `make`."""

    examples = 40

    def test_it_does_what_a_dictionary_would(self, make: Callable[[], Storage]) -> None:
        """Whatever is put and deleted in whatever order, all of it is found, and nothing else."""

        @given(STEPS)
        @settings(max_examples=examples(self.examples))
        def holds(steps: list[tuple[Any, ...]]) -> None:
            storage, model = make(), dict[str, bytes]()
            for kind, *arguments in steps:
                if kind == "put_if_absent" and arguments[0] in model:
                    with pytest.raises(FileExistsError, match=arguments[0]):
                        storage.put_if_absent(*arguments)
                    continue
                getattr(storage, kind)(*arguments)
                if kind == "delete":
                    for name in arguments[0]:
                        model.pop(name, None)
                else:
                    model.update(arguments[0] if kind == "put_all" else {arguments[0]: arguments[1]})
            assert sorted(model) == sorted(storage.list_below())
            for folder in ("folder", "folder/deep"):
                assert sorted(name for name in model if name.startswith(f"{folder}/")) == sorted(
                    storage.list_below(folder)
                )
            for name, data in model.items():
                assert (data, len(data)) == (storage.open(name).to_pybytes(), storage.size(name))

        holds()

    def test_a_folder_is_listed_with_what_is_directly_in_it(self, make: Callable[[], Storage]) -> None:
        storage = make()
        storage.put_all({"top": b"1", "f/b": b"", "f/g/c": b"1"})
        storage.put_if_absent("f/a", b"1")
        assert storage.list() == ["f/", "top"]
        assert storage.list("f") == ["f/a", "f/b", "f/g/"]
        assert storage.list("none") == []

    def test_an_object_that_is_not_there_is_named(self, make: Callable[[], Storage]) -> None:
        storage = make()
        for look in (storage.open, storage.size):
            with pytest.raises(FileNotFoundError, match=r"No such file.*some/thing"):
                look("some/thing")
        storage.delete(["some/thing"])
        assert not storage.is_there("some/thing")

    @pytest.mark.parametrize(
        "name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0", "ü", "a~", "a/~object", "s3://b/x"]
    )
    def test_no_name_leaves_the_root(self, make: Callable[[], Storage], name: str) -> None:
        storage = make()
        calls: list[Callable[[], object]] = [
            lambda: storage.put(name, b"1"),
            lambda: storage.put_all({"a": b"1", name: b"1"}),
            lambda: storage.put_if_absent(name, b"1"),
            lambda: storage.open(name),
            lambda: storage.size(name),
            lambda: storage.delete([name]),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="The object name"):
                call()

    def test_of_many_writers_one_wins(self, make: Callable[[], Storage]) -> None:
        """And what is there is what the winner wrote."""
        storage = make()
        together = threading.Barrier(WRITERS)

        def write(number: int) -> str:
            together.wait()
            try:
                storage.put_if_absent("claims/one", f"writer {number}".encode())
            except FileExistsError:
                return "lost"
            return f"writer {number}"

        with ThreadPoolExecutor(WRITERS) as pool:
            found = Counter(pool.map(write, range(WRITERS)))
        assert found.pop("lost") == WRITERS - 1
        assert list(found) == [storage.open("claims/one").to_pybytes().decode()]
        storage.put("claims/one", b"replaced")
        assert storage.open("claims/one").to_pybytes() == b"replaced"

    def test_readers_see_the_old_or_the_new_object(self, make: Callable[[], Storage]) -> None:
        storage = make()
        contents = [bytes([letter]) * size for letter, size in ((1, 1), (2, 300_000), (3, 70_000))]
        storage.put("x/y", contents[0])
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as pool:

            def write() -> None:
                for number in range(60):
                    storage.put("x/y", contents[number % 3])
                is_over.set()

            writing = pool.submit(write)
            while not is_over.is_set() and not writing.done():
                assert storage.open("x/y").to_pybytes() in contents
            writing.result()

    def test_arrow_buffers_go_in_and_come_out(self, make: Callable[[], Storage]) -> None:
        storage = make()
        data = pa.py_buffer(bytes(range(256)) * 40_000)
        storage.put("big", data)
        storage.put_all({"again": data.slice(5, 6_000_000)})
        assert storage.open("big").equals(data)
        assert storage.open("again").equals(data.slice(5, 6_000_000))
        assert storage.open("big", 300, 400).equals(data.slice(300, 100))
        assert storage.open("big", 300).equals(data.slice(300))


class TestLocalDisk(Contract):
    """Files below a folder."""

    @pytest.fixture
    def make(self, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Storage]:
        return lambda: LocalStorage(tmp_path_factory.mktemp("storage") / "root")


class TestMemory(Contract):
    """An object store without a network."""

    @pytest.fixture
    def make(self) -> Callable[[], Storage]:
        return lambda: ObjectStorage("memory://", MemoryStore())


@pytest.mark.s3
class TestS3(Contract):
    """A real server, reached as users reach theirs."""

    examples = 8

    @pytest.fixture
    def make(self, s3_folder: Callable[[], str]) -> Callable[[], Storage]:
        return lambda: storage_at("storage of the test", s3_folder())


def test_relative_paths_and_urls_with_a_slash_mean_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage_at("x", "run") is storage_at("x", tmp_path / "run")
