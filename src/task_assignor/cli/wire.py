"""`task-assignor wire`: bytes of a group to what they say, and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from task_assignor.cli.answers import answer_requests
from task_assignor.cli.json_values import from_hex
from task_assignor.cli.output import (
    FINDING,
    FINE,
    check_stdin_is_open,
    survive_any_text,
    write_error,
    write_readable_json,
)
from task_assignor.cli.wire_json import answer_wire, explain_bytes
from task_assignor.sdk.snapshot_files import STANDARD_INPUT

DECODE = "decode"


def wire(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE | decode",
            help="Requests as JSON Lines (may be gzipped; - is standard input), or the word decode and bytes.",
        ),
    ],
    digits: Annotated[
        str | None, typer.Argument(metavar="HEX", help="After decode: bytes in hexadecimal; - is standard input.")
    ] = None,
) -> None:
    """Encode and decode what the members of a Kafka group tell each other.

    With a FILE: one line of JSON per request. With `decode HEX`: what is in these bytes?

    Exit code 0: all is fine. 1: a request is wrong, or the bytes are of no known format. 2: the file cannot be read, or HEX
    is none.
    """
    survive_any_text()
    if digits is None:
        if source == DECODE and not Path(source).exists():
            raise typer.BadParameter(
                f"After {DECODE} there must be bytes in hexadecimal digits, or - for standard input."
            )
        raise typer.Exit(answer_requests(source, answer_wire))
    if source != DECODE:
        raise typer.BadParameter(f"After FILE nothing can follow. Maybe: task-assignor wire {DECODE} {digits}")
    text = _standard_input() if digits == STANDARD_INPUT else digits
    found = explain_bytes(from_hex(text.strip().removeprefix("0x"), "HEX"))
    for each in found:
        write_readable_json(each)
    if not found:
        write_error("The bytes are of no format that is known here. Maybe they are cut off.")
    raise typer.Exit(FINE if found else FINDING)


def _standard_input() -> str:
    check_stdin_is_open()
    # Bytes that are no digits are to be told as such, whatever the encoding.
    return sys.stdin.buffer.read().decode("ascii", "replace")
