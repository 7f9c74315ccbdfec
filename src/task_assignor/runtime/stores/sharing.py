"""Snapshots of tasks in the folder of the run: how their parts get there, and back to a client. Who wants them is elsewhere.

A part has its own name wherever it is, so one that a client has is not fetched, and one that the folder has is not written
again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from task_assignor.runtime.machines.protocol import Position
from task_assignor.runtime.machines.records import Part, SavedStore, TaskSnapshot, part_path
from task_assignor.runtime.steps import step
from task_assignor.runtime.storage import Data, Storage, check_sealed, corrupt, open_sealed
from task_assignor.runtime.stores.store import PARTS, parts_of
from task_assignor.sdk import TaskId

_AT_ONCE_BYTES: Final = 64 << 20
"""So much is written at the same time."""


def share(
    storage: Storage,
    folders: Mapping[str, Path],
    task: TaskId,
    position: Position,
    stores: Mapping[str, SavedStore],
    newest: TaskSnapshot | None,
) -> TaskSnapshot:
    """Write the parts of a snapshot that the folder of the run lacks.

    Args:
        storage: folder of the run.
        folders: store -> its folder.
        task: the task.
        position: what the snapshot holds.
        stores: what it is made of.
        newest: the newest snapshot that counts: its files are not written again.

    Returns:
        The snapshot as it can be committed: all of its files are durable.

    Raises:
        OSError: a part cannot be read or written, or is damaged here.
    """
    paths, new = {}, []
    known = {} if newest is None else newest.paths
    for name, saved in stores.items():
        for part in saved.parts:
            path = known.get(part.name)
            if path is None:
                path = part_path(name, task, position.batch, part.name)
                new.append((path, folders[name], part))
            paths[part.name] = path
    for objects in _groups(new):
        step(f"{len(objects)} parts of it are written into {storage.address}")
        storage.put_all(objects)
    at = (position.batch, position.generation, position.changelog_offset, position.stream_time)
    return TaskSnapshot(task, *at, dict(stores), paths, position.epoch_ms)


def _groups(parts: Iterable[tuple[str, Path, Part]]) -> Iterator[dict[str, Data]]:
    group: dict[str, Data] = {}
    size = 0
    for path, folder, part in parts:
        step(f"the part {part.name} is read")
        try:
            group[path] = open_sealed(parts_of(folder), part.name, part.seal)
        except ValueError as error:
            raise OSError(errno.EIO, f"The part is damaged: {error}", str(folder / PARTS / part.name)) from error
        size += part.seal.size
        if size >= _AT_ONCE_BYTES:
            yield group
            group, size = {}, 0
    if group:
        yield group


def fetch(storage: Storage, folders: Mapping[str, Path], snapshot: TaskSnapshot, names: Iterable[str]) -> int:
    """Bring the parts of some stores of a snapshot to this client; those that are here and whole stay.

    Args:
        storage: folder of the run.
        folders: store -> its folder.
        snapshot: the snapshot.
        names: the stores.

    Returns:
        Bytes that were fetched.

    Raises:
        CorruptLogException: a file is missing or damaged, there and here.
        OSError: a part cannot be written here.
        KeyError: the snapshot does not have the store.
    """
    fetched = 0
    for name in names:
        for part in snapshot.stores[name].parts:
            here = parts_of(folders[name])
            step(f"the part {part.name} of store {name!r} is fetched")
            if not _is_whole(here, part):
                here.put(part.name, _read(storage, snapshot, name, part))
                fetched += part.seal.size
    return fetched


def _is_whole(here: Storage, part: Part) -> bool:
    try:
        check_sealed(here.open(part.name), part.seal)
    except (OSError, ValueError):
        return False
    return True


def _read(storage: Storage, snapshot: TaskSnapshot, store: str, part: Part) -> pa.Buffer:
    path = snapshot.paths[part.name]
    try:
        return open_sealed(storage, path, part.seal)
    except (OSError, ValueError) as error:
        place = storage.locate(path)
        raise corrupt(place, "snapshot", store, snapshot.task.partition, snapshot.batch, error) from error
