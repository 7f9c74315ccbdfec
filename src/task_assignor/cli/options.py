"""Arguments and options that several commands take, each worded once; those of one command are where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from task_assignor.sdk.integers import INT32_MAX


def input_argument(metavar: str, what: str) -> Any:
    """The file that a command reads: `what` it holds, in words for people."""
    return typer.Argument(metavar=metavar, help=f"{what}; may be gzipped; - is standard input.")


def file_option(*names: str, what: str) -> Any:
    """An option that names a file, which may not be there: `what` it is, in words for people."""
    return typer.Option(*names, metavar="FILE", parser=_named, help=what)


def _named(file: str) -> Path:
    if not file:
        # As a path it is the current folder.
        raise typer.BadParameter("The name of the file must not be empty. Maybe a variable of the shell is not set.")
    return Path(file)


def json_option(what: str, more: str = "") -> Any:
    """`--json`: a line for each of `what`."""
    return typer.Option("--json", help=f"One line of JSON per {what}{more}.")


def set_option(what: str) -> Any:
    """`--set KEY=VALUE`: settings in Kafka's own keys."""
    return typer.Option("--set", metavar="KEY=VALUE", help=f"{what}; may be repeated.")


State = Annotated[str, input_argument("STATE", "A snapshot, or many as JSON Lines")]
Settings = Annotated[list[str] | None, set_option("A setting in Kafka's own key, over the snapshot's")]

BootstrapServer = Annotated[
    str | None, typer.Option("--bootstrap-server", metavar="HOST:PORT,...", help="Brokers to ask first.")
]
ClientConfig = Annotated[
    Path | None,
    file_option("--config", what="A .properties file of a Java client: TLS, SASL, bootstrap.servers."),
]
TimeoutMs = Annotated[
    int,
    typer.Option("--timeout-ms", min=1, max=INT32_MAX, metavar="MS", help="Longest wait for any one answer."),
]
