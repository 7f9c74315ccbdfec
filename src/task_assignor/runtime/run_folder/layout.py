"""The folder of a run: where things are in it, and what says which application it belongs to. What counts is in `commits`."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import pyarrow as pa

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.encoding import VERSION, Value
from task_assignor.runtime.machines.records import FORMAT_VERSION, OUTPUT, REPARTITION, FileRef, changelog_path
from task_assignor.runtime.run_folder.checkpoints import CHECKPOINTS, COMMITS, NEW_RUN, numbers_in
from task_assignor.runtime.storage import Storage, address_of, open_arrow, open_document, storage_at
from task_assignor.runtime.storage.disk import advice_to_read, run_dir_errors
from task_assignor.sdk import TaskId
from task_assignor.sdk.text import is_url

APPLICATION: Final = "application.json"
"""What application the folder belongs to."""
LOCK: Final = "coordinator.lock"
"""Held by the living coordinator."""


def _address(run_dir: str | Path) -> str:
    try:
        return address_of("run_dir", run_dir)
    except ValueError as error:
        raise CommitLogException(str(error)) from None


class RunDescription(Value, frozen=True, tag_field=VERSION, tag=FORMAT_VERSION):
    """What application a folder belongs to.

    Args:
        application_id: `application.id`.
        run_id: identity of the folder.
        identity: what makes the run the same run.
        topics_root: where its topics are.
        outputs: output -> its columns as a serialised Arrow schema in base64; None: those of the rows that come.
        starts: source topic -> per partition the offset at which it began; absent: of what it has not read it takes what is there.
        reset: the `auto.offset.reset` by which they were found; "": it was not set.
    """

    application_id: str
    run_id: str
    identity: dict[str, Any]
    topics_root: str
    outputs: Mapping[str, str | None]
    starts: Mapping[str, tuple[int, ...]] = {}
    reset: str = ""

    @property
    def are_topics_files(self) -> bool:
        """Its topics are in a folder or an object store: `topics_root` is a whole path or a URL."""
        return is_url(self.topics_root) or Path(self.topics_root).is_absolute()

    def declared(self, output: str) -> pa.Schema | None:
        """The columns of an output; None: those of the rows that come."""
        found = self.outputs.get(output)
        return None if found is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found)))

    def with_outputs(self, outputs: Mapping[str, pa.Schema | None]) -> RunDescription:
        """The same with these outputs, too; a column that was nullable before still is: older rows may be null there."""
        packed = {
            name: None if schema is None else _as_text(_as_nullable_as(self.declared(name), schema))
            for name, schema in outputs.items()
        }
        return msgspec.structs.replace(self, outputs={**self.outputs, **packed})

    def with_beginning(self, starts: Mapping[str, tuple[int, ...]], reset: str) -> RunDescription:
        """The same that began there."""
        kind = RunDescription if reset in {"", "earliest"} else LateRunDescription
        return kind(**{**msgspec.structs.asdict(self), "starts": starts, "reset": reset})


class LateRunDescription(RunDescription, frozen=True, tag_field=VERSION, tag=FORMAT_VERSION + 1):
    """The same of a run that did not begin with the first rows: former versions of this package, which would read them, refuse it."""


def _as_nullable_as(before: pa.Schema | None, schema: pa.Schema) -> pa.Schema:
    nullable = set() if before is None else {field.name for field in before if field.nullable}
    fields = [field.with_nullable(field.nullable or field.name in nullable) for field in schema]
    return pa.schema(fields, schema.metadata)


def _as_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


@attrs.frozen
class RunLayout:
    """Where things are in the folder of a run.

    Args:
        run_dir: the folder, a path or a URL.

    Raises:
        CommitLogException: the folder is neither a path nor a URL that is supported.
    """

    run_dir: str = attrs.field(converter=_address)

    @property
    def storage(self) -> Storage:
        """Where the files are.

        Raises:
            CommitLogException: the environment is not enough to reach it.
        """
        try:
            return storage_at("run_dir", self.run_dir)
        except ValueError as error:
            raise CommitLogException(str(error)) from None

    def has_commits(self) -> bool:
        """Something was committed there.

        Raises:
            CommitLogException: the folder cannot be used.
        """
        with run_dir_errors(f"The run folder {self.run_dir} cannot be used"):
            return any(numbers_in(self.storage, folder) for folder in (COMMITS, CHECKPOINTS))

    def output(self, name: str, task: TaskId, batch: int, generation: int, ending: str = ".arrow") -> str:
        """Name of the file with the rows that a task gave for an output in a batch."""
        return f"{OUTPUT}/{name}/{task.partition}/{_file(batch, generation, ending)}"

    def changelog(self, store: str, task: TaskId, batch: int, generation: int) -> str:
        """Name of the file with the changes of a task's store in a batch."""
        return changelog_path(store, task, batch, generation)

    def repartition(self, topic: str, task: TaskId, batch: int, generation: int) -> str:
        """Name of the file with the rows that a task gave for a repartition topic in a batch."""
        return f"{REPARTITION}/{topic}/{task.partition}/{_file(batch, generation)}"

    def client(self, name: str, run_id: str) -> Path:
        """State directory of a client, unless it has one of its own: it is on a disk, whatever holds the run."""
        if is_url(self.run_dir):
            return Path(tempfile.gettempdir(), "task-assignor", run_id, name)
        return Path(self.run_dir, "clients", name)


def _file(batch: int, generation: int, ending: str = ".arrow") -> str:
    return f"{batch:012d}-{generation:08d}{ending}"


def open_committed(layout: RunLayout, file: FileRef, what: str, name: str, partition: int, batch: int) -> pa.Table:
    """A file of a commit.

    Raises:
        CorruptLogException: it is missing or is not what was committed.
    """
    return open_arrow(layout.storage, file.path, file.seal, what, name, partition, batch)


def check_is_new(layout: RunLayout) -> None:
    """A folder without a description of its run, which comes first, has no commits: they could be of any application.

    Raises:
        CommitLogException: it has some.
    """
    if layout.has_commits() and not layout.storage.is_there(APPLICATION):
        raise CommitLogException(
            f"There are commits in {layout.run_dir}, but nothing says what run they are of: "
            f"{layout.storage.locate(APPLICATION)} is missing. {NEW_RUN}"
        )


def read_application(layout: RunLayout) -> RunDescription:
    """The description of the run.

    Raises:
        CommitLogException: it cannot be read.
    """
    place = layout.storage.locate(APPLICATION)
    try:
        return open_document(layout.storage, APPLICATION, RunDescription)
    except (FileNotFoundError, NotADirectoryError):
        raise CommitLogException(f"There is no run in {layout.run_dir}: {place} is missing.") from None
    except (OSError, ValueError) as error:
        raise CommitLogException(
            f"The description of the run cannot be read: {place} ({error}). {advice_to_read(error, NEW_RUN)}"
        ) from error
