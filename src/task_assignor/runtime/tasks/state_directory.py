"""What a client has in its state directory: what it says of it when it joins, and how that goes when its time has come."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

from task_assignor.runtime.machines.protocol import Position
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage.disk import warn
from task_assignor.runtime.stores.task_state import list_snapshots, noted_position
from task_assignor.runtime.tasks.task import TaskEnvironment
from task_assignor.sdk import StreamsException, TaskId
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_DELETED: Final = ".deleted"
"""Behind the name of a folder that is being deleted: nobody takes what is left of it for a state."""


def local_positions(environment: TaskEnvironment) -> dict[TaskId, tuple[Position, ...]]:
    """Task -> its states in the state directory, newest first: what a client says when it joins. Of some tasks only other things are there."""
    folder = environment.state_dir / environment.application_id
    positions = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with suppress(StreamsException):
            task = TaskId.parse(path.name.removesuffix(_DELETED))
            positions[task] = positions_on_disk(environment, task)
    return positions


def positions_on_disk(environment: TaskEnvironment, task: TaskId) -> tuple[Position, ...]:
    """The states of a task in the state directory, newest first, those of stores on disk as far as they are noted."""
    folder, owner = environment.state(task), environment.owner(task)
    found = {snapshot.position for snapshot in list_snapshots(folder, owner)}
    noted = noted_position(folder, owner)
    if noted is not None:
        found.add(noted)
    return tuple(sorted(found, key=attrgetter("batch", "generation"), reverse=True))


def delete_state(environment: TaskEnvironment, task: TaskId, unchanged_ms: int) -> None:
    """Delete all that the state directory has of a task that is not open here. What cannot be deleted stays, with a warning.

    Args:
        environment: where it is.
        task: whose it is.
        unchanged_ms: only if nothing of it has changed for so long: another run may use it.
    """
    folder = environment.state(task)
    deleted = folder.with_name(folder.name + _DELETED)
    step(f"what is left of it in {folder} is deleted")
    try:
        # Of a process that has ended meanwhile.
        _delete_tree(deleted)
        if folder.exists() and time.time() - _changed_s(folder) >= unchanged_ms / 1000:
            # At once: of a database of which some files are missing nobody knows what it holds.
            folder.rename(deleted)
            _delete_tree(deleted)
            _log.info("What was left of task %s in %s is deleted.", task, folder)
    except OSError as error:
        warn(_log, error, "What is left of task %s in %s could not be deleted", task, folder)


def _delete_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _changed_s(folder: Path) -> float:
    """When something in a folder has changed, in seconds since 1970."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            newest = max(newest, path.lstat().st_mtime)
    return newest
