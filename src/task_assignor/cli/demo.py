"""`task-assignor demo`: real data, joined on Spark where a TaskAssignor put the tasks. What it does is in the room `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from task_assignor.cli.options import set_option
from task_assignor.cli.output import check_stdout_is_open, survive_any_text
from task_assignor.cli.planning import STANDBYS_KEY, make_current_folder_importable, parse_settings
from task_assignor.sdk import StreamsConfig


def demo(
    clients: Annotated[int, typer.Option(min=1, max=64, help="Streams clients to run, each a Spark task.")] = 4,
    standbys: Annotated[int | None, typer.Option(min=0, help="Standby replicas of each task; else 1.")] = None,
    assignor: Annotated[
        str | None, typer.Option(help="Task assignor: short name, dotted path or Kafka's class name.")
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Do not kill a client in the middle.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for data, topics and results; replaced each time.")] = Path(
        "task-assignor-demo"
    ),
    settings: Annotated[list[str] | None, set_option("A Kafka Streams setting")] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A Kafka broker: topics and results are there, not in files. See make demo-kafka."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's own messages too.")] = False,
) -> None:
    """Join New York's flights of 2013 with the weather on a local Spark, and kill a client on the way."""
    from task_assignor.demo import run_demo

    check_stdout_is_open()
    survive_any_text()
    make_current_folder_importable()
    given = {
        "application.id": "flights",
        STANDBYS_KEY: 1,
        # When the client is killed a task has some 6,000 changelog rows. By the default (10,000) every client counts as caught up
        # then, and tasks go where no state is; a standby is a few batches behind, of some 700 rows each.
        "acceptable.recovery.lag": 3_000,
    }
    config = StreamsConfig(given | parse_settings(settings or [], assignor, standbys))
    run_demo(config, output, clients=clients, kill=not no_kill, verbose=verbose, bootstrap_server=bootstrap_server)
