"""Reads `.properties` files as Java does (`java.util.Properties`). What the keys mean is not known here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from task_assignor.sdk.errors import ConfigException
from task_assignor.sdk.hidden import HIDDEN, is_secret
from task_assignor.sdk.text import shown

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}")


@attrs.frozen
class Property:
    """One entry of a file.

    Args:
        key: its key.
        value: its value, trailing blanks included; it may be a password, so `repr` leaves it out.
        line: the line on which it starts, from 1.
    """

    key: str
    value: str = attrs.field(repr=False)
    line: int


def read_properties(path: str | os.PathLike[str]) -> list[Property]:
    r"""The entries of a file, in order. The file is read as UTF-8 (Java's `\uXXXX` works too).

    Raises:
        ConfigException: the file cannot be read, is not UTF-8, has a broken escape or a key twice; with file and line.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigException(
            f"The settings file ({shown(path)}) must be the path of one. Settings themselves are for StreamsConfig(...)."
        )
    if not os.fspath(path):
        raise ConfigException("The name of the settings file must not be empty.")
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a name with a zero byte is no OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigException(f"The settings file {path} cannot be read: {reason}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(data[: error.start].decode("latin-1"))) + 1
        raise ConfigException(
            f"{path}:{line}: The file must be UTF-8, but byte {data[error.start]:#04x} is not. "
            "Maybe save it as UTF-8, or write \\uXXXX."
        ) from error
    return parse_properties(text, str(path))


def parse_properties(text: str, name: str = "settings") -> list[Property]:
    r"""The entries of a text in the format of `.properties` files.

    Args:
        text: the text.
        name: what the errors call it.

    Raises:
        ConfigException: an escape is broken or a key is there twice; with name and line.

    Examples:
        >>> for entry in parse_properties("# a comment\nclient.rack = a\nzones: b,\\\n  c"):
        ...     print(entry.line, entry.key, entry.value)
        2 client.rack a
        3 zones b,c
    """
    entries: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        key = _unescaped(key, name, number)
        entry = Property(key, _unescaped(value, name, number, is_secret(key, value)), number)
        first = entries.setdefault(entry.key, entry)
        if first is not entry:
            raise ConfigException(
                f"{name}:{number}: The setting {entry.key} must be there once, but is in line {first.line} too."
            )
    return list(entries.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, line) without comments and blank lines; lines that end with a backslash are joined."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        # A backslash alone continues nothing: what follows is a line of its own, maybe a comment.
        if not any(parts):
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts.clear()
    if any(parts):
        yield first, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first `=`, `:` or blank that has no backslash before it."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescaped(text: str, name: str, line: int, hide: bool = False) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter != "\\":
            parts.append(letter)
            continue
        letter = text[position : position + 1]
        position += 1
        if letter == "u":
            digits = text[position : position + 4]
            if not _HEX.fullmatch(digits):
                raise ConfigException(
                    f"{name}:{line}: After \\u must come four hexadecimal digits, "
                    f"but {HIDDEN if hide else repr(digits)} comes. "
                    "Maybe write \\\\u for a backslash and the letter u."
                )
            letter = chr(int(digits, 16))
            position += 4
        else:
            letter = _ESCAPES.get(letter, letter)
        parts.append(letter)
    # Characters beyond U+FFFF come as two escapes.
    try:
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigException(f"{name}:{line}: The escapes \\uXXXX must make whole characters.") from None
