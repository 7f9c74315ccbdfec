"""The command `task-assignor`: its sub-commands and what it does with errors. Each sub-command lives in a module of its own."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from inspect import getdoc
from typing import Annotated, Final

import typer

from task_assignor import __version__
from task_assignor.cli import bridge
from task_assignor.cli.assignors import assignors
from task_assignor.cli.compare import compare
from task_assignor.cli.demo import demo
from task_assignor.cli.inspect import inspect
from task_assignor.cli.inspect_run import inspect_run
from task_assignor.cli.lead import lead
from task_assignor.cli.output import (
    BAD_INPUT,
    NOBODY_READS,
    check_stdout_is_open,
    give_up_stdout,
    write_error,
    write_line,
    write_to_stderr,
)
from task_assignor.cli.plan import plan
from task_assignor.cli.read_store import read_store
from task_assignor.cli.reset import reset
from task_assignor.cli.run import run
from task_assignor.cli.snapshot import snapshot
from task_assignor.cli.validate import validate
from task_assignor.cli.wire import wire
from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import with_notes

_ENDED: Final = 128 + signal.SIGTERM

app = typer.Typer(
    name="task-assignor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        write_line(f"task-assignor {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Write a Kafka Streams TaskAssignor in Python; check it, compare it, run what it decides."""


for _command in (
    plan,
    validate,
    compare,
    assignors,
    wire,
    lead,
    inspect,
    snapshot,
    run,
    inspect_run,
    read_store,
    reset,
    demo,
):
    # A paragraph is broken where the terminal ends, not where the source does.
    _text = re.sub(r"(?<!\n)\n(?!\n)", " ", getdoc(_command) or "")
    app.command(_command.__name__.replace("_", "-"), help=_text)(_command)
app.add_typer(bridge.app, name="bridge")


def main() -> None:
    """Run the command line; an error that the package raises on purpose becomes one message and exit code 2.

    So does any other, with its traceback: Python's own exit code 1 would be a finding.
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # The first process of a container gets the signals alone that it handles; this one ends any other process.
        end = os._exit  # while others' code runs it is another one
        signal.signal(signal.SIGTERM, lambda *_: end(_ENDED))
    try:
        _run()
    except Exception:  # noqa: BLE001  (no memory, another machine's error, a fault of ours)
        write_to_stderr(traceback.format_exc())
        sys.exit(BAD_INPUT)


def _run() -> None:
    try:
        if {"-h", "--help"} & set(sys.argv):
            # The parser writes it, or nothing and says 0.
            check_stdout_is_open()
        app()
    except StreamsException as error:
        write_error(with_notes(error))
        sys.exit(BAD_INPUT)
    except SystemExit as end:
        # Nobody reads the help any more, of which the parser says 1: a finding.
        sys.exit(NOBODY_READS if isinstance(end.__context__, BrokenPipeError) else end.code)
    except OSError as error:
        # Help is written by the parser itself; what has a name is another file.
        if error.errno != errno.ENOSPC:
            raise
        give_up_stdout()
        write_error(f"{error.filename or 'The output'} cannot be written: {error.strerror}.")
        sys.exit(BAD_INPUT)
