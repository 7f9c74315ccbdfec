"""`task-assignor snapshot`: the state of a live Kafka Streams group as a document that the other commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from task_assignor.cli.inspect import BootstrapServer, ConfigFile, TimeoutMs, connect, read_config
from task_assignor.cli.output import FINE, printable, write_json, write_to_stderr
from task_assignor.sdk import ConfigException, state_to_json, write_state


def snapshot(
    group: Annotated[str, typer.Option("--group", "-g", metavar="NAME", help="The group: the application.id.")],
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="What Topology#describe prints; without it, it is inferred."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; else standard output.")
    ] = None,
    timeout_ms: TimeoutMs = 30_000,
) -> None:
    """Write the state of a live Kafka Streams group: what its assignor would be given if a rebalance began now. Read-only.

    What is not exact is told on standard error. Exit code 2: there is no state.
    """
    from task_assignor.kafka import state_of_group

    description = None if topology is None else _read(topology)
    settings = read_config(config)
    with connect(bootstrap_server, config, timeout_ms) as cluster:
        found = state_of_group(cluster, group, description, settings)
    for note in found.notes:
        write_to_stderr(f"Note: {printable(note)}\n")
    if output is None:
        write_json(state_to_json(found.state, group))
    else:
        write_state(found.state, output, group)
    raise typer.Exit(FINE)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"The topology file {path} cannot be read: {error}.") from error
