"""Which files of a run nobody needs any more, by the two newest checkpoints. What is in a storage others know.

A run goes on from the newest checkpoint or, if that one is damaged, from the one before it; so what either of them needs
stays. Tasks that were processed twice and snapshots that were never committed leave files that no document names: such a
file has the number of its batch in its name, and goes when what is committed has come past it.

A coordinator that was replaced may wake up here. It takes nothing from its successor: what that one needs is named by these
checkpoints, or is of later batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from task_assignor.runtime.machines.protocol import KEPT_SNAPSHOTS
from task_assignor.runtime.machines.records import CHANGELOG, SNAPSHOTS, Checkpoint
from task_assignor.sdk import TaskId

FOLDERS: Final = (CHANGELOG, SNAPSHOTS)
"""Where such files may be."""


def obsolete(names: Iterable[str], before: Checkpoint, now: Checkpoint) -> list[str]:
    """The files that can be deleted.

    Args:
        names: all files in the folders.
        before: the checkpoint before the newest one.
        now: the newest checkpoint.
    """
    needed: set[str] = set()
    floors: dict[tuple[str, ...], int] = {}
    for partition, snapshots in _snapshots(before):
        needed.update(path for snapshot in snapshots for path in snapshot["paths"].values())
        if len(snapshots) == KEPT_SNAPSHOTS:
            # The changes up to the older one.
            floors.update(((CHANGELOG, store, partition), snapshots[-1]["batch"]) for store in snapshots[-1]["stores"])
    for partition, snapshots in _snapshots(now):
        needed.update(path for snapshot in snapshots for path in snapshot["paths"].values())
        # One that will count is newer, or made of files that are needed.
        for snapshot in snapshots[:1]:
            floors.update(((SNAPSHOTS, store, partition), snapshot["batch"]) for store in snapshot["stores"])
    return [
        name for name in names if name not in needed and _batch(name) <= floors.get(tuple(name.split("/")[:-1]), -1)
    ]


def _snapshots(checkpoint: Checkpoint) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Of each task its partition and its snapshots, newest first."""
    for task, found in checkpoint.state.get("tasks", {}).items():
        yield str(TaskId.parse(task).partition), found["snapshots"]


def _batch(name: str) -> int:
    """The batch that a file is of; of what is none of ours, beyond all."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62
