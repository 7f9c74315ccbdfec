"""Lists of committed Parquet files, for engines that know nothing of our commits: `manifest/<output>/files.txt` in a run folder.

Each line is the path or URL of a file, in the order of the commits, as Hive's symlink tables have it. A list has the rows of
all commits up to one of them; it follows a commit within about a second, and is complete when the run has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from task_assignor.runtime.commits import RunLayout
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.outputs import committed_files


def manifest_name(output: str) -> str:
    """Name of the list of an output in the folder of the run."""
    return f"manifest/{output}/files.txt"


class Manifests:
    """Keeps the lists of a run.

    Args:
        run_dir: the folder, whose commits so far are read.
        outputs: the outputs whose files are Parquet's.
        write: called with the name of a list that has changed, and what gives its content.

    Raises:
        CommitLogException: the commits cannot be read.
    """

    def __init__(self, run_dir: str, outputs: Iterable[str], write: Callable[[str, Callable[[], bytes]], None]) -> None:
        self._storage = RunLayout(run_dir).storage
        self._write = write
        self._lock = threading.Lock()
        self._files = {output: committed_files(run_dir, output) for output in outputs}
        for output in self._files:
            self._changed(output)

    def take(self, record: CommitRecord) -> None:
        """A record was committed."""
        for output, files in self._files.items():
            found = [
                self._storage.locate(file.path)
                for task in sorted(record.tasks)
                if (file := record.tasks[task].outputs.get(output)) is not None and not file.topic
            ]
            if found:
                with self._lock:
                    files += found
                self._changed(output)

    def _changed(self, output: str) -> None:
        def content() -> bytes:
            with self._lock:
                return "".join(f"{file}\n" for file in self._files[output]).encode()

        self._write(manifest_name(output), content)
