"""What the disk says to a store is said on: which file it is, and what the trouble is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from task_assignor.runtime.errors import ProcessorStateException
from task_assignor.runtime.stores.store import PARTS
from tests.runtime.test_stores_on_disk import NUMBERS, disk, filled


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
