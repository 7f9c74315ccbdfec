"""How the commands speak: lines on standard output that end quietly when nobody reads them, errors on standard error."""

from __future__ import annotations

import io
import json
import os
import signal
import sys

import typer
from rich.console import Console, RenderableType

FINE = 0
FINDING = 1
BAD_INPUT = 2


def write_line(text: str) -> None:
    """One line on standard output, at once: who reads an answer need not wait for the next."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # `... | head` has what it wants. Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None


def write_json(value: object) -> None:
    """A value as one line of JSON."""
    write_line(json.dumps(value, separators=(",", ":")))


def write_pretty(*parts: RenderableType) -> None:
    """Tables and text, in colour where the terminal has it."""
    console = Console(highlight=False, soft_wrap=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    write_line(capture.get().rstrip("\n"))


def write_error(message: str) -> None:
    """One error for people."""
    sys.stderr.write(f"Error: {message}\n")


def printable(text: str) -> str:
    """A name from a file as it may be shown: a terminal must not take it for commands."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def survive_any_text() -> None:
    """Names in snapshots may hold characters that the terminal's encoding lacks: show them as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
