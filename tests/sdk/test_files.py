"""Files are written whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from task_assignor.sdk.files import replace_file


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Files do not grow beyond some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    replace_file(file, b"old")
    file.chmod(0o640)
    with full_disk(1_000), pytest.raises(OSError, match="File too large"):
        replace_file(file, bytes(5_000))
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    replace_file(str(file), b"new")
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("letter", ["a", "日", "\U0001f600"])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path, letter: str) -> None:
    file = tmp_path / (letter * (255 // len(letter.encode())))
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"


def test_pipes_and_links_are_written_to(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"through")
    reader.join()
    assert found == [b"through"]
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    replace_file(link, b"behind")
    assert link.is_symlink()
    assert file.read_bytes() == b"behind"
    replace_file("/dev/null", b"away")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "no" / "file", b"x")
