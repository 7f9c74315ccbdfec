"""Strict JSON: from text to plain values, with one clear error and its place. What the values mean is not known here."""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from task_assignor.sdk.errors import SnapshotException
from task_assignor.sdk.text import shown

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONGEST_KEY: Final = 80
_ALWAYS_READ: Final = sys.int_info.str_digits_check_threshold
"""Digits of an integer that Python reads whatever its limit (PYTHONINTMAXSTRDIGITS) is."""


class _Repeated(dict[str, Any]):
    """An object in which a member is there twice; `json` alone would keep the last one and say nothing."""

    key: str = ""


class _NoNumber:
    """`NaN`, `Infinity`, `-Infinity` (which `json` takes, but JSON does not have), or an absurdly long number."""

    def __init__(self, text: str) -> None:
        self.text = text


def bad_value(path: str, message: str) -> SnapshotException:
    """The error for the value at `path`."""
    return SnapshotException(f"{path}: {message}", path)


def member_path(path: str, key: str) -> str:
    """The path of member `key` of the object at `path`: `$.clients`, or `$.taskLags['0_1']`."""
    if len(key) <= _LONGEST_KEY and _NAME.fullmatch(key):
        return f"{path}.{key}"
    short = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
    return f"{path}[{short!a}]"


@contextmanager
def without_collection() -> Iterator[None]:
    """Let no garbage be looked for: of millions of values that are made and stay it is looked for again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text holds. Stricter than `json.loads`.

    Args:
        text: JSON; bytes must be UTF-8.

    Raises:
        SnapshotException: not JSON (with line and column), not UTF-8, nested too deeply, a member twice, NaN.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise bad_value(
                "$", f"The text must be UTF-8, but byte {error.start} ({text[error.start]:#04x}) is not."
            ) from error
    text = text.removeprefix("\ufeff")
    strange: list[object] = []
    try:
        with without_collection():
            value = _decoded(text, strange)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.rstrip() else ""
        several = error.msg == "Extra data" and text[error.pos] in "{["
        maybe = " Maybe these are several documents: write each on one line (JSON Lines)." if several else ""
        raise bad_value("$", f"The text is not JSON: {line}column {error.colno}: {error.msg}.{maybe}") from error
    except RecursionError as error:
        raise bad_value("$", "The JSON is nested too deeply.") from error
    if strange:
        raise _first_strange(value)
    return value


def _decoded(text: str, strange: list[object]) -> Any:
    """The value of a text; what JSON alone does not refuse is put into `strange`."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        repeated = _Repeated(found)
        seen: set[str] = set()
        repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        strange.append(repeated)
        return repeated

    def no_number(text: str) -> object:
        strange.append(_NoNumber(text))
        return strange[-1]

    def integer(text: str) -> object:
        return int(text) if len(text) < _ALWAYS_READ else no_number(text)

    try:
        return json.JSONDecoder(object_pairs_hook=members, parse_constant=no_number).decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of more digits than Python reads; read again, slowly, to say where it is.
        strange.clear()
        return json.JSONDecoder(object_pairs_hook=members, parse_constant=no_number, parse_int=integer).decode(text)


def _first_strange(value: object) -> SnapshotException:
    for path, found in _walk(value):
        if isinstance(found, _Repeated):
            return bad_value(member_path(path, found.key), "The member must be there once, but is there twice.")
        if isinstance(found, _NoNumber):
            return bad_value(path, f"The value ({shown(found.text)}) must be a JSON number that fits into 64 bits.")
    # Inside a member that was given twice, of which only the last is kept.
    return bad_value("$", "The text holds a number that JSON does not have.")


def _walk(value: object) -> Iterator[tuple[str, object]]:
    """(path, value) of all values, in the order of the text; without recursion."""
    todo: list[tuple[str, object]] = [("$", value)]
    while todo:
        path, found = todo.pop()
        yield path, found
        if isinstance(found, dict):
            todo += [(member_path(path, key), inner) for key, inner in reversed(found.items())]
        elif isinstance(found, list):
            todo += [(f"{path}[{number}]", inner) for number, inner in reversed(list(enumerate(found)))]
