"""What to say of an error in a user's code: which line raised it, in words that stay short and never fail themselves."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs

LONGEST: Final = 10_000
"""Characters of a message or traceback that travel; of longer ones the middle is left out."""
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES: Final = tuple(
    {folder + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib") if (folder := sysconfig.get_path(name))}
)
_CYTHON: Final = (".pyx", ".pxi", ".pxd")


@attrs.frozen
class CodeLine:
    """A line of code.

    Args:
        file: its file.
        line: its number.
        function: the function that it belongs to.
        code: the line; "" if the file is not to be had where it ran.
    """

    file: str
    line: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        # A notebook's cells are known to the driver only.
        code = self.code or linecache.getline(self.file, self.line).strip()
        return f'File "{self.file}", line {self.line}, in {self.function}' + (f": {code}" if code else "")


def line_to_blame(trace: TracebackType | None) -> CodeLine | None:
    """The line of the user's code that was running: the innermost that is not of a library; None: there is none."""
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_OURS)]
    users = [frame for frame in frames if not _is_library(frame.filename)]
    if not users:
        return None
    frame = users[-1]
    function = frame.name
    for found, number in traceback.walk_tb(trace):
        if (found.f_code.co_filename, number) == (frame.filename, frame.lineno):
            function = found.f_code.co_qualname
    return CodeLine(frame.filename, frame.lineno or 0, function, frame.line or "")


def _is_library(file: str) -> bool:
    if file.endswith(_CYTHON):
        return True  # Compiled libraries tell the names of their sources, without a folder that there is here.
    return file.startswith((*_LIBRARIES, "<frozen ")) or "site-packages" in Path(file).parts


def text_of(error: BaseException) -> str:
    """Type and text of an error, whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException as problem:  # noqa: BLE001 - it may raise what it likes
        text = f"(its text cannot be had: __str__ raised {type(problem).__name__})"
    return shortened(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def text_with_line(error: BaseException) -> str:
    """The same with the line of the user's code that raised it, if there is one."""
    line = line_to_blame(error.__traceback__)
    return text_of(error) + ("" if line is None else f" ({line})")


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it, shortened."""
    try:
        lines = traceback.format_exception(error)
    except BaseException:  # noqa: BLE001 - it looks at objects of the user's
        lines = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), text_of(error)]
    return shortened("".join(lines))


def shortened(text: str) -> str:
    """The text without its middle, if it is too long to be read."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out) ...\n{text[-half:]}"


def remote_note(place: str, trace: str) -> str:
    """The note that carries a client's traceback."""
    return f"The traceback on {place}:\n{trace.rstrip()}"
