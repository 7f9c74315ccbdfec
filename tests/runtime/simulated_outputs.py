"""Files of outputs in a simulated run folder: the tries that gave them stand for rows. How they are merged, and what readers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from task_assignor.runtime.machines.coordinator.progress import KEPT_MARKERS
from task_assignor.runtime.machines.output_files import OutputFiles
from task_assignor.runtime.machines.records import Seal
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.compaction import Compaction, Upkeep
from task_assignor.sdk import TaskId
from tests.runtime.simulated_storage import MemoryStorage

Rows = tuple[tuple[int, int], ...]
"""(batch, generation) of every try whose rows are in a file."""


def rows_of(batch: int, generation: int) -> bytes:
    """What a try writes into the file of an output."""
    return b"%d-%d;" % (batch, generation)


def _rows_in(data: bytes) -> Rows:
    tries = [one.split("-") for one in data.decode().split(";")[:-1]]
    return tuple((int(batch), int(generation)) for batch, generation in tries)


class Merging(Compaction):
    """Merges files that are no tables.

    Args:
        storage: folder of the run.
        upkeep: how.
    """

    def __init__(self, storage: MemoryStorage, upkeep: Upkeep) -> None:
        super().__init__(storage, upkeep)
        self._counts = storage.counts

    def merge(self, files: OutputFiles, number: int, epoch: int, cuts: Sequence[int]) -> list[str]:
        """As the real one, but for tables."""
        replaced: list[str] = []
        for merge in files.merges(number, epoch, cuts=cuts):
            data = b"".join(self._storage.open(one.file.path).to_pybytes() for one in merge.files)
            self._storage.put_all({merge.path: data})
            rows = sum(one.file.seal.rows for one in merge.files)
            files.replace(merge, Seal(rows, len(data), ""), ())
            self._counts["merged"] += 1
            replaced += (one.file.path for one in merge.files)
        return replaced


def check_outputs(
    storage: MemoryStorage, committed: Mapping[TaskId, Rows], held: Mapping[str, Mapping[TaskId, Rows]]
) -> None:
    """Readers see what was committed, in its order, each row once; and at each marker what was committed then."""
    files, markers = CommitLog("run", storage=storage).outputs_and_markers()
    assert [marker.name for marker in markers] == list(held)[-KEPT_MARKERS:]
    cuts: list[tuple[int | None, Mapping[TaskId, Rows]]] = [(marker.commit, held[marker.name]) for marker in markers]
    for commit, known in [*cuts, (None, committed)]:
        seen: dict[TaskId, Rows] = {}
        for output in ("out-0", "out-1", "out-2"):
            for one in files.of(output, commit):
                seen[one.task] = seen.get(one.task, ()) + _rows_in(storage.objects[one.file.path])
        assert seen == {task: rows for task, rows in known.items() if rows}
