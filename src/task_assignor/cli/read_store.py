"""`task-assignor read-store`: what a store of an application holds, as lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from task_assignor.cli.load import load_application
from task_assignor.cli.output import FINE, keep_stdout_for_answers, survive_any_text, write_json_text

if TYPE_CHECKING:
    import pyarrow as pa

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
    from task_assignor.runtime.topology.bad_records import as_json

    for batch in application.read_store(store, partitions or None).to_batches(max_chunksize=_AT_ONCE):
        for row in _records(batch):
            write_json_text(as_json(row))
    raise typer.Exit(FINE)


def _records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows; in a column with a time that Python has no value for, the numbers that times are."""
    import pyarrow as pa

    from task_assignor.runtime.arrow.dictionaries import retyped
    from task_assignor.runtime.arrow.frames import to_records

    def number(kind: pa.DataType) -> pa.DataType:
        return {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width, kind) if pa.types.is_temporal(kind) else kind

    table = pa.Table.from_batches([batch])
    try:
        return to_records(table)
    except ValueError:
        for place, name in enumerate(table.schema.names):
            column = table.column(place)
            try:
                to_records(table.select([place]))
            except ValueError:
                table = table.set_column(place, name, column.cast(retyped(column.type, number)))
        return to_records(table)
