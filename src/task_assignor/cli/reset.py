"""`task-assignor reset`: what an application has in Kafka besides its outputs, and an end of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from task_assignor.cli.load import load_application
from task_assignor.cli.options import file_option, set_option
from task_assignor.cli.output import FINE, survive_any_text, write_line
from task_assignor.cli.run import changed


def reset(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP[:NAME]", help="The Python file or module with the StreamsApplication, as for `run`."
        ),
    ],
    config: Annotated[
        Path | None,
        file_option("--config", "-c", what="A .properties file, over the application's settings."),
    ] = None,
    settings: Annotated[list[str] | None, set_option("A Kafka Streams setting, over those of --config")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this it is only shown.")] = False,
) -> None:
    """Have an application begin anew that writes topics of Kafka: its changelog and repartition topics are deleted, and the offsets of its group.

    Outputs stay as they are. The next run needs another --run-dir, or none of the old one; where outputs are files that is all
    that it takes. The application must not run.

    Exit code 0: it is shown, or deleted. 2: it runs, or the brokers do not answer, or refuse.
    """
    survive_any_text()
    application = changed(load_application(app), None, config, settings or [], None)
    name = application.config.application_id
    found = application.reset(is_dry=not yes)
    if not found:
        write_line(
            f"The application {name} has nothing in Kafka but maybe outputs. To begin anew, give it another run_dir."
        )
    else:
        write_line(
            "\n".join(
                [f"{'Deleted' if yes else 'To be deleted'} of the application {name}:", *(f"  {one}" for one in found)]
            )
        )
        write_line(
            "Its next run begins anew with another run_dir, or when the folder of the old one is deleted: there it would go on where it was."
            if yes
            else "Nothing was deleted. With --yes it is."
        )
    raise typer.Exit(FINE)
