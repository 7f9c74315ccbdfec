"""Writing a file whole or not at all: what a full disk or a kill leaves is what was there before."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Give a file another content. What is no ordinary file (a pipe, a terminal, a link to whatever) is written to in place.

    Args:
        path: the file, in a folder that is there.
        data: all that is in it afterwards.

    Raises:
        OSError: it cannot be written; an ordinary file is as it was.
    """
    target = Path(path)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        target.write_bytes(data)
        return
    # A letter may be four bytes, of which a name has 255.
    half = target.with_name(f".{target.name[:50]}-{os.getpid()}-{threading.get_ident()}")
    try:
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except PermissionError:
        # In a folder of somebody else there may be a file of ours.
        target.write_bytes(data)
        return
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 (it is open)
            file.write(data)
        if target.exists():
            half.chmod(target.stat().st_mode)
        half.replace(target)
    except BaseException:
        with suppress(OSError):
            half.unlink()
        raise
