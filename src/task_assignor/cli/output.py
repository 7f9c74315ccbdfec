"""How the commands speak: lines on standard output that end quietly when nobody reads them, errors on standard error."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import NoReturn, TextIO

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement

from task_assignor.sdk import SnapshotException, StreamsException
from task_assignor.sdk.text import printable_lines

FINE = 0
FINDING = 1
BAD_INPUT = 2
NOBODY_READS = 128 + signal.SIGPIPE

_STDOUT, _STDERR = 1, 2
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

_ROOM = 72
"""Columns that a table gets in the narrowest of terminals, if it needs them; only beyond them its cells are folded."""


class OutputException(StreamsException):
    """Standard output takes no answers: it is closed, or its disk is full."""


def write_line(text: str) -> None:
    """One line for people, or several, on standard output. What a terminal could take for commands is shown as escapes.

    Raises:
        OutputException: it cannot be written.
        typer.Exit: nobody reads it any more.
    """
    write_as_it_is(printable_lines(text))


def write_as_it_is(text: str, stdout: TextIO | None = None) -> None:
    """One line on standard output, at once: who reads an answer need not wait for the next. Raises what `write_line` does.

    Args:
        text: the line.
        stdout: what was standard output before `others_code` put something else in its place.
    """
    with _to_stdout(stdout) as answers:
        answers.write(f"{text}\n")
        answers.flush()


def check_stdout_is_open() -> None:
    """See to it that there is a standard output.

    Raises:
        OutputException: it is closed.
    """
    if sys.stdout is None:
        raise OutputException("Standard output cannot be written: it is closed.")


def check_stdin_is_open() -> None:
    """See to it that there is a standard input.

    Raises:
        SnapshotException: it is closed.
    """
    if sys.stdin is None:
        raise SnapshotException("standard input cannot be read: it is closed.")


@contextmanager
def _to_stdout(stdout: TextIO | None = None) -> Iterator[TextIO]:
    if stdout is None:
        check_stdout_is_open()
        stdout = sys.stdout
    try:
        yield stdout
    except OSError as error:
        _give_up(stdout)
        if isinstance(error, BrokenPipeError):
            # `... | head` has what it wants.
            raise typer.Exit(NOBODY_READS) from None
        raise OutputException(f"Standard output cannot be written: {error.strerror}.") from None


def give_up_stdout() -> None:
    """Standard output takes nothing more: Python shall not try, and complain, again when it flushes at the end."""
    _give_up(sys.stdout)


def _give_up(stdout: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def write_json(value: object) -> None:
    """A value as one line of JSON."""
    write_as_it_is(json.dumps(value, separators=(",", ":")))


def write_json_text(text: str, stdout: TextIO | None = None) -> None:
    """What is JSON already, as `write_as_it_is` does. Where standard output is not UTF-8, which JSON is, it is all ASCII."""
    encoding = (stdout or sys.stdout or io.StringIO()).encoding or "utf-8"
    if codecs.lookup(encoding).name != "utf-8":
        text = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    write_as_it_is(text, stdout)


def write_readable_json(value: object) -> None:
    """A value as JSON for people: in lines, names as they are."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    write_json_text("".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text))


def write_pretty(*parts: RenderableType) -> None:
    """Tables and text, in colour where the terminal has it. A terminal too narrow for a table wraps its lines."""
    console = Console(highlight=False, soft_wrap=False)
    room = console.options.update(width=_ROOM)
    console.width = max(console.width, *(Measurement.get(console, room, part).minimum for part in parts))
    # Even a capture ends with an attempt to write.
    with _to_stdout(), console.capture() as capture:
        for part in parts:
            console.print(part)
    write_as_it_is(capture.get().rstrip("\n"))


def write_error(message: str) -> None:
    """One error for people."""
    write_to_stderr(f"Error: {message}\n")


def write_to_stderr(text: str) -> None:
    """Text for people. Where standard error is closed or full, only the exit code is left to tell of it."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(printable_lines(text))
            sys.stderr.flush()
        except OSError:
            # As for standard output; some Pythons would end with exit code 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def keep_stdout_for_answers() -> None:
    """From now on what libraries in other languages write to standard output, and programs that are started, goes to standard error.

    For good: such a library may write what it has buffered when the process ends.
    """
    try:
        is_own = sys.stdout is not None and sys.stderr is not None and sys.stdout.fileno() == _STDOUT
    except (OSError, ValueError):  # somebody caught it
        is_own = False
    if is_own:
        sys.stdout.flush()
        answers = os.fdopen(os.dup(_STDOUT), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
        os.dup2(_STDERR, _STDOUT)
        sys.stdout = answers


@contextmanager
def others_code(*, may_print: bool = False) -> Iterator[None]:
    """Somebody else's code runs inside: it can neither end the command unseen nor write among the answers.

    Its `os._exit(0)` would end the command as if all were well; it raises `SystemExit` here. A process that it forks ends as it likes.

    Args:
        may_print: what it prints with Python goes where it would; else to standard error, as standard output is for answers.
    """
    at_once = os._exit
    setattr(os, "_exit", sys.exit)  # noqa: B010  (the type checker knows it as a function that is not to be replaced)
    try:
        with nullcontext() if may_print else redirect_stdout(sys.stderr):
            yield
    finally:
        _ends_at_once(at_once)
        if sys.stderr is not None and sys.stderr.closed:
            # Who closes what it takes for standard output has closed this one; its file is still open.
            sys.stderr = os.fdopen(_STDERR, "w", errors="backslashreplace", closefd=False)


def _ends_at_once(at_once: Callable[[int], NoReturn] = os._exit) -> None:
    setattr(os, "_exit", at_once)  # noqa: B010


os.register_at_fork(after_in_child=_ends_at_once)


def place_of(file: str, line: int) -> str:
    """Where a document is, for messages; line 0: it is the whole file."""
    return f"{file}, line {line}" if line else file


def survive_any_text() -> None:
    """Names in snapshots may hold characters that the terminal's encoding lacks: show them as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
