"""The storage on a local disk: what is durable when, which file systems it gets along with, what a kill leaves behind."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from task_assignor.runtime.storage import LocalStorage, local
from task_assignor.runtime.storage.base import PARALLEL
from task_assignor.runtime.tasks.task import failure_of
from task_assignor.sdk import TaskId
from tests.processes import quick_context

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="asks the kernel for the names of open files"
)


class Disk:
    """Remembers what became durable below a folder: which files and folders were synced, and what got its name when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        # Threads of tests before this one may still be at work elsewhere.
        self._root = root
        self.done: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        for name in ("fsync", "rename", "replace"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any, **options: Any) -> None:
            call(*arguments, **options)
            place = str(Path(f"/proc/self/fd/{arguments[0]}").readlink()) if name == "fsync" else str(arguments[1])
            if Path(place).is_relative_to(self._root):
                with self._lock:
                    self.done.append((name, place))

        return watched

    def when(self, what: str, *places: Path) -> list[int]:
        """The moments at which something happened to each of the places for the first time."""
        return [self.done.index((what, str(place))) for place in places]


@needs_proc
def test_an_object_is_on_disk_before_and_after_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path / "root")
    disk = Disk(monkeypatch, tmp_path)
    storage.put("a/b", b"1")
    (synced, temporary), (replaced, name), *folders = disk.done
    assert (synced, replaced, name) == ("fsync", "replace", str(tmp_path / "root" / "a" / "b"))
    assert Path(temporary).name.startswith("~")
    # All folders were new.
    assert set(folders) == {("fsync", str(path)) for path in (tmp_path, tmp_path / "root", tmp_path / "root" / "a")}
    disk.done.clear()
    storage.put("a/b", b"2")
    assert [what for what, _ in disk.done] == ["fsync", "replace", "fsync"]


@needs_proc
def test_an_exclusive_object_is_on_disk_before_and_after_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a/x", b"1")
    disk = Disk(monkeypatch, tmp_path)
    storage.put_if_absent("a/b", b"1")
    (file, content), (folder, outer), (renamed, name), (last, above) = disk.done
    assert [file, folder, renamed, last] == ["fsync", "fsync", "rename", "fsync"]
    assert (Path(content).parent, Path(name), Path(above)) == (Path(outer), tmp_path / "a" / "b", tmp_path / "a")


@needs_proc
def test_many_objects_are_synced_with_all_folders_that_were_made_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path / "run")
    disk = Disk(monkeypatch, tmp_path)
    storage.put_all({"output/a/0/x": b"1", "output/b/0/x": b"2"})
    files = {tmp_path / "run" / "output" / name / "0" / "x" for name in ("a", "b")}
    folders = {parent for file in files for parent in list(file.parents)[:5]}
    assert {str(path) for path in files | folders} == {place for what, place in disk.done if what == "fsync"}
    disk.done.clear()
    storage.put_all({"output/a/0/y": b"1"})
    assert {tmp_path / "run" / "output" / "a" / "0", tmp_path / "run" / "output" / "a" / "0" / "y"} == {
        Path(place) for what, place in disk.done if what == "fsync"
    }


@needs_proc
def test_what_can_be_made_again_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path, is_durable=False)
    disk = Disk(monkeypatch, tmp_path)
    storage.put("a", b"1")
    storage.put_all({"b": b"1", "c": b"1"})
    storage.put_if_absent("d", b"1")
    assert "fsync" not in {what for what, _ in disk.done}
    assert storage.list() == ["a", "b", "c", "d"]


def test_file_systems_without_hard_links_and_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr("fcntl.flock", refuse)
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("a", b"1")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("a", b"2")
    for number in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, "no locks here")))
        with storage.hold("lock"):
            pass
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"), storage.hold("lock"):
        pass


def test_file_systems_without_sync_of_folders_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.fsync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    storage = LocalStorage(tmp_path)
    storage.put("a/b", b"1")
    storage.put_if_absent("a/c", b"1")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        storage.put("a/d", b"1")
    assert storage.list("a") == ["a/b", "a/c"]


def test_links_that_lead_back_up_are_not_followed(tmp_path: Path) -> None:
    """With two of them all ways of up to forty links were gone: more than can be."""
    storage = LocalStorage(tmp_path)
    storage.put("a/b/c", b"1")
    for link in ("x", "y"):
        (tmp_path / "a" / link).symlink_to("..")
    assert list(storage.list_below("a")) == ["a/b/c"]
    # The folder itself may be anywhere.
    (tmp_path / "other").symlink_to(tmp_path / "a")
    assert list(storage.list_below("other")) == ["other/b/c"]
    # So may those below, on another disk.
    (tmp_path / "a" / "elsewhere").symlink_to(tmp_path / "z")
    storage.put("z/d", b"1")
    (tmp_path / "z" / "back").symlink_to(tmp_path / "a")
    assert list(storage.list_below("a")) == ["a/b/c", "a/elsewhere/d"]


def test_a_file_that_its_owner_may_not_read_is_no_object(tmp_path: Path) -> None:
    """After `os.umask` in a processor what was committed could not be read, and the run ended well."""
    storage = LocalStorage(tmp_path)
    storage.put("a/b", b"1")
    before = os.umask(0o477)
    try:
        for put in (storage.put, storage.put_if_absent):
            with pytest.raises(PermissionError, match=r"the mode 0o200, .* has set its umask: '/"):
                put("a/c", b"1")
    finally:
        os.umask(before)
        for left in tmp_path.glob("a/~*"):
            left.chmod(0o700)
    assert storage.list("a") == ["a/b"]


def test_a_folder_of_objects_is_no_object(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a/b", b"1")
    with pytest.raises(IsADirectoryError, match=str(tmp_path / "a")):
        storage.put("a", b"1")
    with pytest.raises(IsADirectoryError, match=str(tmp_path / "a")):
        storage.put_if_absent("a", b"1")
    storage.delete(["a"])
    assert list(storage.list_below()) == ["a/b"]


def test_however_many_objects_are_written_together_few_files_are_open(tmp_path: Path) -> None:
    """A topic of 2 000 partitions could not be written where a process may have 1 024 files open, as mostly on Linux."""
    storage, limits = LocalStorage(tmp_path), resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "any").open("w") as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 120, limits[1]))
    try:
        storage.put_all({f"{number}/x": b"%d" % number for number in range(200)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [bytes(storage.open(f"{number}/x")) for number in range(200)] == [b"%d" % number for number in range(200)]


def test_a_full_disk_leaves_the_old_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a", b"old")
    really = os.write

    def write(descriptor: int, data: bytes) -> int:
        if len(data) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(descriptor, data[:2])

    monkeypatch.setattr(os, "write", write)
    for put in (storage.put, storage.put_if_absent):
        name = "b" if put == storage.put_if_absent else "a"
        with pytest.raises(OSError, match=f"No space left on device: '{storage.locate(name)}'"):
            put(name, b"much longer")
    with pytest.raises(OSError, match=f"No space left on device: '{storage.locate('c')}'"):
        storage.put_all({"c": b"much longer"})
    monkeypatch.undo()
    assert storage.open("a").to_pybytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_the_disk_does_not_take_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`No space left on device` was all that was said, of one disk among those of all clients."""
    storage = LocalStorage(tmp_path)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    for put in (storage.put, storage.put_if_absent, lambda name, data: storage.put_all({name: data})):
        with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/a'"):
            put("a", b"new")


def test_a_folder_that_does_not_reach_the_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Commit 27 cannot be made: [Errno 5] Input/output error.` was all that was said."""
    storage = LocalStorage(tmp_path)
    storage.put("f/there", b"1")
    really = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and any(Path(tmp_path, "f").glob("[abc]")):
            raise OSError(errno.EIO, "Input/output error")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    puts: list[Callable[[], None]] = [
        lambda: storage.put("f/a", b"new"),
        lambda: storage.put_if_absent("f/b", b"new"),
        lambda: storage.put_all({"f/c": b"new"}),
    ]
    for put in puts:
        with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/f'"):
            put()
        (found,) = tmp_path.glob("f/[abc]")
        storage.delete([f"f/{found.name}"])


def test_an_object_that_cannot_be_looked_at_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that was put if it was absent Arrow said that it `is a directory`, not what the disk says."""
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("a", b"1")

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", path)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(OSError, match=f"Stale file handle: '{tmp_path}/a'"):
        storage.open("a")


def test_a_full_disk_is_told_with_what_to_do() -> None:
    said = failure_of(TaskId(0, 1), OSError(errno.ENOSPC, "No space left on device", "/state/a")).message
    assert said == (
        "Task 0_1 failed with OSError: [Errno 28] No space left on device: '/state/a'. What was committed before stays; run the "
        "application again when the disk can be written."
    )
    for number in (errno.EIO, errno.ESTALE, errno.EDQUOT):
        assert "when the disk can be written" in failure_of(TaskId(0, 1), OSError(number, "no", "/state/a")).message
    # Polars says it without a number.
    for error in (
        OSError(errno.EMFILE, "Too many open files", "/a"),
        OSError("Too many open files (os error 24): '/a'"),
    ):
        short = failure_of(TaskId(0, 1), error).message
        assert re.search(r"'/a'\. Maybe allow for .* or more open files \(ulimit -n\)\.$", short)
    assert failure_of(TaskId(0, 1), OSError("a broken pipe")).message == "Task 0_1 failed with OSError: a broken pipe"


def _write_for_ever(root: str, number: int, started: Any) -> None:
    storage = LocalStorage(root)
    for turn in range(1_000_000):
        data = bytes([turn % 251]) * (1000 + turn % 50_000)
        storage.put_all({f"{number}/all-{turn}": data, f"{number}/too-{turn}": data})
        storage.put(f"{number}/one", data)
        storage.put_if_absent(f"{number}/new-{turn}", data)
        if turn == 2:
            started.set()


def test_a_kill_leaves_whole_objects(tmp_path: Path) -> None:
    context = quick_context()
    started = [context.Event() for _ in range(3)]
    writers = [
        context.Process(target=_write_for_ever, args=(str(tmp_path), number, event))
        for number, event in enumerate(started)
    ]
    for writer in writers:
        writer.start()
    for writer, event in zip(writers, started, strict=True):
        assert event.wait(120)
        writer.kill()
    for writer in writers:
        writer.join()
    storage = LocalStorage(tmp_path)
    names = list(storage.list_below())
    assert len(names) >= 9
    for name in names:
        data = storage.open(name).to_pybytes()
        assert len(data) >= 1000
        assert data == data[:1] * len(data), name


def _claim(root: str, together: Any, number: int, won: Any) -> None:
    storage = LocalStorage(root)
    for turn in range(30):
        together.wait()
        try:
            storage.put_if_absent(f"claims/{turn}", str(number).encode())
        except FileExistsError:
            continue
        won.put((turn, number))


def test_of_many_processes_one_wins(tmp_path: Path) -> None:
    context = quick_context()
    together, won = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_claim, args=(str(tmp_path), together, n, won)) for n in range(4)]
    for process in processes:
        process.start()
    winners = dict(won.get(timeout=120) for _ in range(30))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert won.empty()
    storage = LocalStorage(tmp_path)
    assert {turn: int(storage.open(f"claims/{turn}").to_pybytes()) for turn in range(30)} == winners


def test_the_first_error_comes_when_all_have_ended(tmp_path: Path) -> None:
    storage, ended = LocalStorage(tmp_path), list[int]()

    def work(number: int) -> None:
        ended.append(number)
        if number in (1, 3):
            raise OSError(f"number {number}")

    with pytest.raises(OSError, match="number 1"):
        storage.for_all(work, range(4))
    assert sorted(ended) == [0, 1, 2, 3]
    with pytest.raises(OSError, match="number 3"):
        storage.for_all(work, [0, 3])
    storage.for_all(work, [])
    storage.for_all(work, [2])


def test_however_many_folders_a_process_uses_it_has_as_many_threads(tmp_path: Path) -> None:
    """An application that has a new folder for each of its runs had some more for each, for ever."""
    objects = {f"{number}/it": b"1" for number in range(8)}
    storages = [LocalStorage(tmp_path / str(number)) for number in range(2 * PARALLEL)]
    for storage in storages:
        storage.put_all(objects)
    assert sum(thread.name.startswith("storage") for thread in threading.enumerate()) <= PARALLEL


def test_what_is_written_while_python_ends_is_written_without_a_word(tmp_path: Path) -> None:
    """Threads that go on, and whoever tidies up at the exit, write when Python gives no more work to threads."""
    program = """
import atexit, sys
from task_assignor.runtime.storage import LocalStorage

storage = LocalStorage(sys.argv[1])
atexit.register(storage.put_all, {"a/one": b"1", "b/two": b"2", "c/three": b"3"})
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stderr == ""
    assert {name: bytes(LocalStorage(tmp_path).open(name)) for name in LocalStorage(tmp_path).list_below()} == {
        "a/one": b"1",
        "b/two": b"2",
        "c/three": b"3",
    }


def test_a_process_that_is_forked_waits_for_no_threads_of_its_parent(tmp_path: Path) -> None:
    """An application that had run could not be run again in a child: it waited for its folder for ever."""
    storage = LocalStorage(tmp_path)
    storage.for_all(time.sleep, [0, 0])
    child = os.fork()
    if not child:
        try:
            storage.for_all(time.sleep, [0, 0])
        finally:
            os._exit(0)
    deadline = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert time.monotonic() < deadline


def test_what_is_listed_while_objects_come_and_go_was_there_at_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the versions of a topic an old one, whose number somebody slow had found free, was left alone, and taken for the newest."""
    storage = LocalStorage(tmp_path)
    for name in "1789":
        storage.put_if_absent(f"a/{name}", b"1")
    looked: list[str] = []
    really = local._is_folder

    def look_slowly(entry: os.DirEntry[str]) -> bool:
        if len(looked) < 4 and entry.name != "1":
            storage.delete([f"a/{entry.name}"])
            storage.put_if_absent(f"a/{len(looked)}0", b"1")
        looked.append(entry.name)
        return really(entry)

    monkeypatch.setattr(local, "_is_folder", look_slowly)
    found = storage.list("a")
    assert found == sorted(f"a/{path.name}" for path in (tmp_path / "a").iterdir())
    assert len(found) > 2
