"""Which files of a run nobody needs any more, by the two newest checkpoints. What is in a storage others know.

Files of outputs that were merged into larger ones are also needed by who has listed them before: that is a matter of time,
and `checkpoints` sees to it.

A run goes on from the newest checkpoint or, if that one is damaged, from the one before it; so what either of them needs
stays. Tasks that were processed twice and snapshots that were never committed leave files that no document names: such a
file has the number of its batch in its name, and goes when what is committed has come past it.

A coordinator that was replaced may wake up here. It takes nothing from its successor: what that one needs is named by these
checkpoints, or is of later batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs

from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.output_files import OutputFiles, merged_at
from task_assignor.runtime.machines.protocol import KEPT_SNAPSHOTS
from task_assignor.runtime.machines.records import (
    CHANGELOG,
    OUTPUT,
    REPARTITION,
    SNAPSHOTS,
    TaskSnapshot,
)

FOLDERS: Final = (CHANGELOG, SNAPSHOTS)
"""Where such files may be."""
WRITTEN: Final = (OUTPUT, REPARTITION)
"""Where tasks and checkpoints write files that must be named by something."""


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
        needed.update(path for snapshot in snapshots for path in snapshot.paths.values())
        if len(snapshots) == KEPT_SNAPSHOTS:
            # The changes up to the older one.
            floors.update(((CHANGELOG, store, partition), snapshots[-1].batch) for store in snapshots[-1].stores)
    for partition, snapshots in _snapshots(now):
        needed.update(path for snapshot in snapshots for path in snapshot.paths.values())
        # One that will count is newer, or made of files that are needed.
        for snapshot in snapshots[:1]:
            floors.update(((SNAPSHOTS, store, partition), snapshot.batch) for store in snapshot.stores)
    return [
        name for name in names if name not in needed and _batch(name) <= floors.get(tuple(name.split("/")[:-1]), -1)
    ]


def _snapshots(checkpoint: Checkpoint) -> Iterator[tuple[str, Sequence[TaskSnapshot]]]:
    """Of each task its partition and its snapshots, newest first."""
    for task, found in checkpoint.state.tasks.items():
        yield str(task.partition), found.recovery.snapshots


@attrs.frozen
class Orphans:
    """Files that nothing names.

    Args:
        gone: those that will never count.
        is_unsure: there are others, of which this cannot be said yet.
    """

    gone: list[str]
    is_unsure: bool


def orphans(
    names: Iterable[str],
    before: Checkpoint,
    now: Checkpoint,
    replaced: Collection[str],
) -> Orphans:
    """Files of outputs and repartition topics that nothing names: of tries that were lost, of merges that came to nothing.

    A batch counts once. So what it left under another generation will never count, whoever wrote it and is still to write
    it; what is of batches that do not count yet is left alone, since it may be somebody's work of this moment.

    Args:
        names: all files in the folders.
        before: the checkpoint before the newest one.
        now: the newest checkpoint.
        replaced: files that were replaced by others, and stay for a while.
    """
    named, needed = {*replaced, *_named(before)}, {*replaced, *_named(now)}
    gone: list[str] = []
    is_unsure = False
    for name in names:
        if name in needed:
            continue
        if name in named:
            # It was read since, and who should have deleted it may have died before.
            is_unsure = True
            continue
        merged = merged_at(name)
        counts_up_to = now.written.get(name.rpartition("/")[0], -1)
        if merged is not None and counts_up_to < 0:
            # What is merged counts. In another folder it is somebody's copy, or what a link leads to.
            continue
        # Of a coordinator that has taken over, or of one that was replaced; or of a batch that counts.
        is_gone = _batch(name) <= counts_up_to if merged is None else merged <= before.number
        if is_gone:
            gone.append(name)
        elif merged is not None or _generation(name) < now.generation:
            is_unsure = True
    return Orphans(gone, is_unsure)


def _named(checkpoint: Checkpoint) -> Iterator[str]:
    """The files of outputs and repartition topics that a checkpoint names."""
    yield from checkpoint.replaced
    yield from OutputFiles.load(checkpoint.outputs).paths()
    for topic in checkpoint.state.repartitions.values():
        yield from (found.file.path for found in topic.files if found.file is not None)


def _generation(name: str) -> int:
    """The generation under which a task wrote a file; of what is none of ours, beyond all."""
    number = name.rpartition("/")[2].partition(".")[0].partition("-")[2]
    return int(number) if number.isdecimal() else 1 << 62


def _batch(name: str) -> int:
    """The batch that a file is of; of what is none of ours, beyond all."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62
