"""`task-assignor snapshot`: the state of a live group as a document that the other commands take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from task_assignor.cli.inspect import connect, read_config
from task_assignor.cli.options import BootstrapServer, ClientConfig, TimeoutMs, file_option
from task_assignor.cli.output import FINE, write_json, write_to_stderr
from task_assignor.sdk import ConfigException, state_to_json
from task_assignor.sdk.snapshot_files import write_document
from task_assignor.sdk.text import printable

if TYPE_CHECKING:
    from task_assignor.kafka import Cluster


def snapshot(
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="NAME", help="The group; of Kafka Streams: the application.id.")
    ],
    bootstrap_server: BootstrapServer = None,
    config: ClientConfig = None,
    topology: Annotated[
        Path | None,
        file_option("--topology", what="What Topology#describe prints; without it, it is inferred."),
    ] = None,
    output: Annotated[Path | None, file_option("--output", "-o", what="Where to write; else standard output.")] = None,
    timeout_ms: TimeoutMs = 30_000,
) -> None:
    """Write the state of a live group: what its assignor would be given if a rebalance began now. Read-only.

    Of a Kafka Streams group it is an application state, of plain consumers the topics and members; `plan` takes both.

    What is not exact is told on standard error. Exit code 2: there is no state.
    """
    description = None if topology is None else _read(topology)
    settings = read_config(config)
    with connect(bootstrap_server, config, timeout_ms) as cluster:
        document, notes = _document(cluster, group, description, settings)
    for note in notes:
        write_to_stderr(f"Note: {printable(note)}\n")
    if output is None:
        write_json(document)
    else:
        write_document(document, output)
    raise typer.Exit(FINE)


def _document(
    cluster: Cluster, name: str, topology: str | None, settings: Mapping[str, object]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The document, and what is not exact in it."""
    from task_assignor.kafka import GroupStateException, consumers_of_group, state_of_group

    if cluster.describe_group(name).has_tasks:
        state = state_of_group(cluster, name, topology, settings)
        return state_to_json(state.state, name), state.notes
    found = consumers_of_group(cluster, name)
    if topology is not None:
        raise GroupStateException(
            f"The group {name!r} has plain consumers and no topology. Maybe leave out --topology, or name another group."
        )
    return found.to_json(), found.notes


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigException(f"The topology file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigException(f"The topology file {path} must be UTF-8.") from None
