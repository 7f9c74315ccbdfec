"""Files: what a path may be, what is durable when, who may write."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    ClientSpec,
    CommitLogException,
    Seal,
    StreamsApplication,
    Topic,
    TopicException,
    list_topics,
    read_output,
    write_topic,
)
from task_assignor.runtime.files import (
    Syncer,
    read_json,
    sync,
    write_arrow,
    write_json,
)
from task_assignor.runtime.storage import DamagedDocumentError
from task_assignor.sdk import ConfigException, StreamsException
from tests.runtime.support import join_topology, settings, write_streams

ROWS = pa.table({"key": list(range(40)), "n": list(range(40))})


@pytest.mark.parametrize(
    "url", ["ftp://bucket/topics", "file:///tmp/topics", "hdfs://host:9000/x", "abfss:/x", "S3A://b"]
)
def test_urls_are_no_folders(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They became local folders of that name."""
    monkeypatch.chdir(tmp_path)
    write_streams(tmp_path / "topics", rows=100, keys=3)

    def application(**places: Any) -> StreamsApplication:
        given = {"topics_root": tmp_path / "topics", "run_dir": tmp_path / "run", **places}
        return StreamsApplication(join_topology(), settings(), **given)

    asked: list[tuple[type[StreamsException], Callable[[], object]]] = [
        (TopicException, lambda: write_topic(url, "t", ROWS, partitions=1, key=["key"])),
        (TopicException, lambda: Topic.open(url, "t")),
        (TopicException, lambda: Topic.open(Path(url), "t")),
        (TopicException, lambda: list_topics(url)),
        (TopicException, lambda: application(topics_root=url)),
        (CommitLogException, lambda: application(run_dir=url)),
        (CommitLogException, lambda: read_output(url, "out")),
        (ConfigException, lambda: ClientSpec("c", state_dir=url)),
        (ConfigException, lambda: settings(state_dir=url)),
    ]
    for kind, ask in asked:
        with pytest.raises(kind, match="URL"):
            ask()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topics"]
    with pytest.raises(TopicException, match=r"Maybe '/tmp/topics'"):
        list_topics("file:///tmp/topics")


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", ""])
def test_names_do_not_lead_out_of_their_folder(name: str, tmp_path: Path) -> None:
    """With `../../up` as application.id a foreign file was deleted."""
    foreign = tmp_path / "up" / "0_0" / "000"
    foreign.mkdir(parents=True)
    with pytest.raises(ConfigException, match=r"application\.id"):
        settings(application_id=name)
    with pytest.raises(TopicException, match="The topic name"):
        Topic.open(tmp_path, name)
    with pytest.raises(TopicException, match="The client name"):
        ClientSpec(name)
    assert foreign.exists()


class Disk:
    """Remembers what is durable below a folder: which files and folders were synced, and what got its name when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        # Threads of tests before this one may still be at work elsewhere.
        self._root = root
        self.done: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        for name in ("fsync", "link"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any) -> None:
            call(*arguments)
            place = str(Path(f"/proc/self/fd/{arguments[0]}").readlink()) if name == "fsync" else str(arguments[1])
            if Path(place).is_relative_to(self._root):
                with self._lock:
                    self.done.append((name, place))

        return watched


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks the kernel for the names of open files")
def test_files_are_synced_with_all_folders_that_were_made_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "run" / "output" / name / "0" / "x.arrow" for name in ("a", "b")]
    for file in files:
        write_arrow(file, ROWS)
    disk = Disk(monkeypatch, tmp_path)
    syncer = Syncer(tmp_path / "run")
    syncer.sync(files)
    folders = {parent for file in files for parent in list(file.parents)[:4]}
    assert {("fsync", str(path)) for path in {*files, *folders}} == set(disk.done)
    assert tmp_path not in folders
    disk.done.clear()
    syncer.sync(files[:1])
    assert sorted(disk.done) == sorted([("fsync", str(files[0])), ("fsync", str(files[0].parent))])
    with pytest.raises(FileNotFoundError):
        syncer.sync([tmp_path / "run" / "gone"])
    syncer.close()


def test_documents_know_whether_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    document = {"a": [1, "ü", None], "b": {"c": 1.5}}
    write_json(path, document)
    assert document == read_json(path)
    whole = path.read_bytes()
    for kept in range(len(whole)):
        path.write_bytes(whole[:kept])
        with pytest.raises(DamagedDocumentError) as caught:
            read_json(path)
        assert caught.value.is_torn
    path.write_text('{"a":1}\n')
    with pytest.raises(DamagedDocumentError, match="its checksum is missing") as caught:
        read_json(path)
    assert not caught.value.is_torn


def test_a_seal_has_what_a_file_is_known_by(tmp_path: Path) -> None:
    seal = write_arrow(tmp_path / "x.arrow", ROWS)
    assert seal == Seal(40, (tmp_path / "x.arrow").stat().st_size, seal.checksum)
    assert seal == write_arrow(tmp_path / "y.arrow", ROWS), "equal rows give equal files"
    assert seal != write_arrow(tmp_path / "z.arrow", ROWS.set_column(1, "n", pa.array(range(1, 41))))


def test_file_systems_without_sync_of_folders_are_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    sync(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Invalid argument"):
        sync(tmp_path / "file")
