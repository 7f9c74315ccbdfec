"""From what users give - a path or a URL - to the storage that it means. Nothing is read or written here."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Final

from task_assignor.runtime.storage.base import Storage
from task_assignor.runtime.storage.local import LocalStorage
from task_assignor.sdk.text import is_url, shown

_OF_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]")
_WITH_PASSWORD: Final = re.compile(r"[^:/]+://[^/]*:[^/]*@")
SCHEMES: Final = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure", "abfss": "Azure"}
"""Schemes of the URLs that are supported, and what they mean."""
_WHOLE: Final = re.compile(r"[a-z0-9]+://[^/?#]+(/(?!\.\.?(/|$))[^/?#%\\\x00-\x1f\x7f]+)*/?(?<!\s)")
"""Of all else the store would take something other than what is written: of '?' and '#' nothing, of '..' and '%20' what they mean, and some take '\\' for '/', but not in lists."""


def local_path(what: str, path: str | Path) -> Path:
    """The path, if it is one of a file system.

    Args:
        what: what it is for, for the message.
        path: what the user gave.

    Raises:
        ValueError: it is a URL, or no UTF-8.
    """
    text = _text(what, path)
    if is_url(text):
        raise ValueError(f"The {what} ({text!r}) must be the path of a folder of this machine, not a URL.")
    _absolute(what, text)
    return Path(text)


def address_of(what: str, place: str | Path) -> str:
    """An absolute path, or a URL of a store that is supported, without a slash at its end.

    Args:
        what: what it is for, for the message.
        place: what the user gave.

    Raises:
        ValueError: it is neither.
    """
    text = _text(what, place)
    if not is_url(text):
        return _absolute(what, text)
    if _WITH_PASSWORD.match(text):
        # It is named in messages, and in the folder of the run; a store would not have looked at it.
        raise ValueError(
            f"The {what} must be a URL without user and password. Maybe give them in the environment; see docs/files.md."
        )
    scheme = text.partition(":")[0]
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(
            f"The {what} ({text!r}) must be the path of a folder or a URL that is supported ({known}); {scheme}: is not "
            f"read. {_advice(text)}"
        )
    if not _WHOLE.fullmatch(text):
        raise ValueError(
            f"The {what} ({text!r}) must be a URL as in '{scheme}://bucket/folder', without '?', '#', '%', '\\', '.' and '..'. Maybe it was "
            "made a pathlib.Path, which loses a slash: give it as a str."
        )
    if importlib.util.find_spec("obstore") is None:
        raise ValueError(
            f"The {what} ({text!r}) needs a library for object stores, which is not installed. "
            "Maybe: pip install 'task-assignor[object-store]'."
        )
    return text.rstrip("/")


def storage_at(what: str, place: str | Path, *, is_durable: bool = True) -> Storage:
    """The storage with this root; one for all who ask for it in this process.

    Args:
        what: what it is for, for the message.
        place: a path or a URL.
        is_durable: False: for what can be made again, and whose damage is noticed; nothing waits for a disk then.

    Raises:
        ValueError: the place is not supported, or the environment is not enough to reach it.
    """
    address = address_of(what, place)
    try:
        return _storage(address, is_durable)
    except ValueError as error:
        raise ValueError(
            f"The {what} ({address!r}) cannot be used: {error}. Maybe the environment lacks credentials or an account; "
            "see docs/files.md."
        ) from None


@functools.cache
def _storage(address: str, is_durable: bool) -> Storage:
    if not is_url(address):
        return LocalStorage(address, is_durable=is_durable)
    from task_assignor.runtime.storage.objects import ObjectStorage

    return ObjectStorage.at(address)


def _text(what: str, place: str | Path) -> str:
    text = os.fspath(place) if isinstance(place, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"The {what} ({shown(place)}) must be the path of a folder.")
    return text


def _absolute(what: str, text: str) -> str:
    try:
        path = str(Path(text).absolute())
    except FileNotFoundError:
        raise ValueError(
            f"The {what} ({text!r}) must be an absolute path, since the current folder is not there any more."
        ) from None
    if text.startswith("~"):
        raise ValueError(
            f"The {what} ({text!r}) would be a folder of that name in {Path.cwd()}, since only shells know what ~ is. Maybe "
            f"Path({text!r}).expanduser(), or './{text}' for that folder."
        )
    if _OF_WINDOWS.match(text):
        raise ValueError(
            f"The {what} ({text!r}) would be a folder of that name in {Path.cwd()}, since that is a path of Windows. Maybe the "
            f"path that it has here, or './{text}' for that folder."
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        names = sys.getfilesystemencoding()
        advice = (
            "rename it" if names == "utf-8" else f"PYTHONUTF8=1, since Python takes names of files for {names} here"
        )
        raise ValueError(
            f"The {what} ({path!r}) has a name that is no UTF-8, which not all that reads files can open. Maybe {advice}."
        ) from None
    return path


def _advice(text: str) -> str:
    scheme, _, rest = text.partition(":")
    if scheme.lower() == "file":
        return f"Maybe {'/' + rest.lstrip('/')!r}."
    supported = "s3" if scheme.lower() == "s3a" else scheme.lower()
    if supported in SCHEMES:
        return f"Maybe {f'{supported}:{rest}'!r}."
    return "Maybe mount the storage and give the path of the mount."
