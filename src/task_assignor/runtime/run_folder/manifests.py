"""Lists of committed Parquet files, for engines that know nothing of our commits: `manifest/<output>/files.txt` in a run folder.

Each line is the path or URL of a file, by task, then batch, as Hive's symlink tables have it. A list has the rows of all
commits up to one of them; it follows a commit within about a second, and is complete when the run has ended. Files that are
not in it any more, since they were merged, stay for `output_retention_ms`.

A coordinator that was replaced while it slept may put an old list over a newer one. So who has put one looks whether it was
replaced; then it puts what counts by now, unless somebody else has put something since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.output_files import OutputFiles, files_after
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.layout import RunLayout


def manifest_name(output: str) -> str:
    """Name of the list of an output in the folder of the run."""
    return f"manifest/{output}/files.txt"


class Manifests:
    """Keeps the lists of a run. Its methods may be called from any thread.

    Args:
        run_dir: the folder, whose commits so far are read.
        epoch: the coordinator's epoch.
        outputs: the outputs whose files are Parquet's.
        later: called with the name of a list that has changed, and what writes it.

    Raises:
        CommitLogException: the commits cannot be read.
    """

    def __init__(
        self, run_dir: str, epoch: int, outputs: Iterable[str], later: Callable[[str, Callable[[], None]], None]
    ) -> None:
        self._storage = RunLayout(run_dir).storage
        self._log = CommitLog(run_dir)
        self._epoch = epoch
        self._later = later
        self._lock = threading.Lock()
        self._outputs = tuple(outputs)
        self._files = self._log.output_files() if self._outputs else OutputFiles()
        self._recent: list[CommitRecord] = []
        """The records since the last checkpoint."""
        self._changed(self._outputs)

    def take(self, record: CommitRecord) -> None:
        """A record was committed."""
        if self._outputs:
            with self._lock:
                self._recent.append(record)
                self._files.take(record)
            self._changed(
                output for output in self._outputs if any(output in commit.outputs for commit in record.tasks.values())
            )

    def take_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was written: some files were merged."""
        if self._outputs:
            with self._lock:
                self._recent = [record for record in self._recent if record.number > checkpoint.number]
                self._files = files_after(checkpoint, self._recent)[0]
            self._changed(self._outputs)

    def _changed(self, outputs: Iterable[str]) -> None:
        for output in outputs:
            self._later(manifest_name(output), partial(self._write, output))

    def _write(self, output: str) -> None:
        name = manifest_name(output)
        with self._lock:
            content = self._content(self._files, output)
        # Of runs that were killed; nobody but this thread writes one in this run.
        self._storage.delete_unfinished([name])
        self._storage.put(name, content)
        while self._log.is_replaced(self._epoch) and self._storage.open(name) == content:
            counts = self._content(self._log.output_files(), output)
            if counts == content:
                return
            content = counts
            self._storage.put(name, content)

    def _content(self, files: OutputFiles, output: str) -> bytes:
        return "".join(f"{self._storage.locate(found.file.path)}\n" for found in files.of(output)).encode()
