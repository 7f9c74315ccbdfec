"""What the disk says to a store is said on: which file it is, and what the trouble is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from task_assignor.runtime.errors import ProcessorStateException
from task_assignor.runtime.stores.store import PARTS
from task_assignor.runtime.tasks.task import failure_of
from tests.runtime.test_stores_on_disk import NUMBERS, disk, filled
from tests.runtime.test_task import TASK, Bench


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_what_the_disk_says_to_a_database_is_said_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """All but a full disk was an Input/output error, so that nobody was told what to do."""

    def refuse(*_: Any) -> None:
        raise Exception(f"IO error: While mkdir if missing: {tmp_path}: {os.strerror(number)}")

    monkeypatch.setattr(disk.rocksdict, "Rdict", refuse)
    with pytest.raises(ProcessorStateException, match="The store s on disk") as caught:
        NUMBERS.create(tmp_path)
    assert caught.value.errno == number


def test_a_part_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Stale file handle` was all that was said."""
    store = filled(tmp_path)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(disk.zlib, "crc32", refuse)
    with pytest.raises(OSError, match=f"Stale file handle: '{tmp_path / PARTS}/"):
        store.save()
    monkeypatch.undo()
    store.close()


def test_a_disk_that_says_no_to_a_processor_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a failure of the processor at its line, and nobody was told what to do."""
    bench = Bench(tmp_path, on_disk=True)
    task = bench.task()
    bench.run(task, 1)

    def refuse(rows: disk.DiskRows, *_: Any) -> None:
        with rows._errors():
            raise Exception(f"IO error: While pread: {os.strerror(errno.EIO)}")

    monkeypatch.setattr(disk.DiskRows, "get_many", refuse)
    with pytest.raises(ProcessorStateException) as caught:
        task.process(bench.order())
    failure = failure_of(TASK, caught.value)
    assert failure.kind == "client"
    assert "The store " in failure.message
    assert "run the application again when the disk can be written" in failure.message
    monkeypatch.undo()
    bench.run(task, 1)
    task.close()
