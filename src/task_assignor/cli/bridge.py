"""`task-assignor bridge`: the jar for a Java application, what its settings would do, and the Python end of it."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from typing import Annotated

import typer

from task_assignor.bridge import BridgeServer, Verdict, check_properties, jar_path
from task_assignor.bridge.keys import KEYS, PREFIX, PYTHON_CLASS
from task_assignor.bridge.worker import serve_standard_streams
from task_assignor.cli.options import json_option
from task_assignor.cli.output import (
    BAD_INPUT,
    FINDING,
    FINE,
    check_stdin_is_open,
    check_stdout_is_open,
    keep_stdout_for_answers,
    others_code,
    survive_any_text,
    write_json,
    write_line,
)
from task_assignor.cli.planning import make_current_folder_importable
from task_assignor.sdk import ConfigException
from task_assignor.sdk.assignor_classes import load_assignor_class
from task_assignor.sdk.config_def import ValueProblem
from task_assignor.sdk.text import printable, shown

app = typer.Typer(no_args_is_help=True, help="Let a Python assignor decide for a Kafka Streams application in Java.")


@app.command("jar")
def jar(
    path_only: Annotated[bool, typer.Option("--path", help="Only the path, for scripts.")] = False,
) -> None:
    """Print the path of the jar and the settings to add to the Java application."""
    path = jar_path()
    if not path.is_file():
        # Java would pass it over without a word.
        raise ConfigException(
            f"The jar {path} is not there. Maybe the package is in a zip file, or was installed without it; the wheel has it."
        )
    if path_only:
        write_line(str(path))
        return
    command = shlex.join([sys.executable, "-m", "task_assignor", "bridge", "serve"])
    write_line(f"# On the class path of the application: {path}")
    write_line("# In its settings:")
    write_line(f"task.assignor.class={PYTHON_CLASS}")
    write_line(f"{PREFIX}class=sticky")
    write_line(f"{PREFIX}command={command}")
    write_line("# More of them, with their defaults (task-assignor bridge check FILE says what they would do):")
    for name, key in KEYS.items():
        if name not in (f"{PREFIX}class", f"{PREFIX}command"):
            write_line(f"# {name}={'' if key.default is None else key.default}")


@app.command("check")
def check(
    properties: Annotated[str, typer.Argument(metavar="FILE", help="The .properties file of the Java application.")],
    as_json: Annotated[bool, json_option("finding")] = False,
) -> None:
    """Say what would happen with the settings of a Java application. Python is started as it would start it.

    Exit code 0: nothing is wrong. 1: something is. 2: the file cannot be read.
    """
    keep_stdout_for_answers()
    survive_any_text()
    make_current_folder_importable()
    with others_code():
        findings = check_properties(properties)
    for finding in findings:
        if as_json:
            write_json({"verdict": finding.verdict.value, "message": finding.message})
        else:
            mark = "" if finding.verdict is Verdict.FINE else f"{finding.verdict.value.capitalize()}: "
            write_line(printable(f"{mark}{finding.message}"))
    raise typer.Exit(FINDING if any(finding.verdict is Verdict.ERROR for finding in findings) else FINE)


@app.command("serve")
def serve(
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="host:port of this host (port 0: a free one), or unix:/path."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="With --listen: an assignor that may be asked though it is not registered."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Answer a Java application: on standard input and output, or where --listen says.

    The application starts this by itself, see python.task.assignor.command. With --listen it serves many.

    Exit code 2: the address cannot be listened on, an assignor to allow cannot be found, or who speaks on standard input is not the bridge's Java side.
    """
    make_current_folder_importable()
    if listen is None:
        check_stdin_is_open()
        check_stdout_is_open()
    # An assignor may close the one that all have. Where there is none, nobody is told.
    log = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else os.dup(2)
    errors = os.fdopen(log, "w", buffering=1, errors="backslashreplace")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=errors)
    if listen is None:
        if allow:
            raise ConfigException(
                "--allow is for --listen: on standard input the application names any assignor. Leave it out."
            )
        if not serve_standard_streams(frozenset(only) if only else None):
            raise typer.Exit(BAD_INPUT)
        return
    _check_allowed(allow or [])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with BridgeServer(listen, allow or []) as server:
        try:
            write_line(f"{PREFIX}address={server.address}")
            server.run()
        except KeyboardInterrupt:
            raise typer.Exit(FINE) from None


def _check_allowed(names: list[str]) -> None:
    """Raise ConfigException if one is no assignor: whoever asks for it would be told so in each rebalance."""
    for name in names:
        try:
            with others_code():
                load_assignor_class(name)
        except ValueProblem as problem:
            raise ConfigException(
                f"--allow ({shown(name)}) must be {problem.expected}. {problem.advice}".rstrip()
            ) from problem
