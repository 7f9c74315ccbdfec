"""Files of outputs and repartition topics in a simulated run folder: written, merged, deleted; lineages stand for rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from task_assignor.runtime.machines.output_files import OutputFiles, files_after
from task_assignor.runtime.machines.records import Checkpoint, CommitRecord, Seal
from task_assignor.runtime.retention import orphans
from task_assignor.sdk import TaskId

Rows = tuple[tuple[int, int], ...]
"""(batch, generation) of every try whose rows are in a file."""


class SimulatedOutputs:
    """What is in the folder, and what readers see of it.

    Args:
        chance: decides what a crash leaves undone.

    Attributes:
        merged: files that were made of others.
        orphans: files that were deleted since nothing names them.
    """

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._files: dict[str, Rows] = {}
        self._lists: dict[int, tuple[str, ...]] = {}
        self._listed: list[tuple[int, set[str]]] = []
        """What readers have listed: number of the checkpoint, files."""
        self._looks = True
        self.merged = 0
        self.orphans = 0

    def write(self, path: str, batch: int, generation: int) -> None:
        """A task has written a file."""
        self._files[path] = ((batch, generation),)

    def delete(self, names: Iterable[str]) -> None:
        """Files are not needed any more."""
        for name in names:
            self._files.pop(name, None)

    def checkpoint(
        self, before: Checkpoint, now: Checkpoint, records: Sequence[CommitRecord], state: Mapping[str, Any]
    ) -> Checkpoint | None:
        """What `Checkpoints.write` does until it has written a checkpoint; None: it was killed before."""
        self._lists[before.number] = before.replaced
        files, written = files_after(before, records)
        replaced: list[str] = []
        for merge in files.merges(now.number, now.epoch):
            if self._random.random() < 0.05:
                return None
            self._files[merge.path] = sum((self._files[one.file.path] for one in merge.files), ())
            seals = [one.file.seal for one in merge.files]
            seal = Seal(sum(seal.rows for seal in seals), sum(seal.size for seal in seals), "")
            files.replace(merge, seal, [])
            replaced += (one.file.path for one in merge.files)
            self.merged += 1
        done = attrs.evolve(now, outputs=files.to_json(), replaced=tuple(replaced), written=written, state=state)
        self._listed.append((now.number, set(files.paths())))
        return None if self._random.random() < 0.05 else done

    def clean(self, before: Checkpoint, now: Checkpoint, records: Sequence[CommitRecord]) -> None:
        """What it does after that."""
        due = [number for number in self._lists if number <= before.number]
        needed = {path for found in (before, now) for path in OutputFiles.from_json(found.outputs).paths()}
        self.delete(path for number in due for path in self._lists[number] if path not in needed)
        for number in due:
            del self._lists[number]
        if before.epoch != now.epoch or before.generation != now.generation:
            self._looks = True
        if self._looks:
            found = orphans(sorted(self._files), before, now, records, {p for of in self._lists.values() for p in of})
            self.delete(found.gone)
            self.orphans += len(found.gone)
            self._looks = found.is_unsure
        # Who lists the newest checkpoint or the one before it can read what is there.
        counting = (before.number, now.number)
        for number, listed in self._listed:
            assert number not in counting or listed <= self._files.keys(), "a file is gone that somebody has listed"

    def check(self, checkpoint: Checkpoint, records: Iterable[CommitRecord], committed: Mapping[TaskId, Rows]) -> None:
        """Readers see what was committed, in its order, each row once."""
        files, _ = files_after(checkpoint, records)
        seen: dict[TaskId, Rows] = {}
        for output in ("out-0", "out-1", "out-2"):
            for one in files.of(output):
                seen[one.task] = seen.get(one.task, ()) + self._files[one.file.path]
        assert seen == {task: rows for task, rows in committed.items() if rows}
