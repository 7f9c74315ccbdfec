"""The loggers of this package: what records, paths and names bring into a message can forge no line of a log and commands no terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from task_assignor.sdk.text import printable_lines


def logger_of(module: str) -> logging.Logger:
    """The logger of a module of ours.

    Args:
        module: its `__name__`.
    """
    found = logging.getLogger(module)
    found.addFilter(_make_safe)
    return found


class _ToStandardError(logging.StreamHandler[Any]):
    """Writes to what standard error is then: a screen with a table at its end takes its place, or would be torn."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def show_messages() -> None:
    """Have log messages, of libraries too, on standard error."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", handlers=[_ToStandardError()])


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg = _safe(record.msg)
    if isinstance(record.args, Mapping):
        record.args = {name: _safe(value) for name, value in record.args.items()}
    elif record.args:
        record.args = tuple(map(_safe, record.args))
    if record.exc_info:
        record.exc_text = str(_safe(logging.Formatter().formatException(record.exc_info)))
    return True


def _safe(value: object) -> object:
    """What is shown of a value on lines that begin with a space, but for the first; the value, if there is nothing to change."""
    try:
        text = str(value)
    except BaseException:  # noqa: BLE001 - the text of a user's error may raise what it likes
        return f"<{type(value).__name__}>"
    return value if text.isprintable() else printable_lines(text).replace("\n", "\n    ")
