"""`task-assignor read-store`: what a store of an application holds, as lines of JSON."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from task_assignor.cli.load import load_application
from task_assignor.cli.output import FINE, keep_stdout_for_answers, survive_any_text, write_json_text

_AT_ONCE: Final = 10_000


def read_store(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP[:NAME]", help="The Python file or module with the StreamsApplication, as for `run`."
        ),
    ],
    store: Annotated[str, typer.Argument(metavar="STORE", help="Name of the store.")],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", help="Of this task alone; may be repeated. Without it: of all."),
    ] = None,
    run_dir: Annotated[
        str | None, typer.Option("--run-dir", metavar="DIR", help="Folder of the run; else as the application says.")
    ] = None,
) -> None:
    """Show what a store holds, as of the last commits, while the application runs or later: a line of JSON for each row.

    It only reads, and restores the tasks for that in the folder for temporary files. Exit code 2: there is no such run or
    store, or what was committed cannot be read.
    """
    keep_stdout_for_answers()
    survive_any_text()
    application = load_application(app)
    if run_dir is not None:
        application = application.evolve(run_dir=run_dir)
    import pyarrow as pa

    from task_assignor.runtime.topology.bad_records import as_json

    for batch in application.read_store(store, partitions or None).to_batches(max_chunksize=_AT_ONCE):
        for row in as_json(pa.Table.from_batches([batch])):
            write_json_text(row)
    raise typer.Exit(FINE)
