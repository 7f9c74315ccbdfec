"""Merging the small files of outputs into larger ones, when a checkpoint is written. Which ones is decided in `machines.output_files`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import attrs
import pyarrow as pa

from task_assignor.runtime.arrow.frames import fitted
from task_assignor.runtime.errors import CorruptLogException
from task_assignor.runtime.machines.output_files import MERGED_BYTES, Merge, OutputFile, OutputFiles
from task_assignor.runtime.storage import PARQUET, Storage, as_one_file, open_arrow
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)


@attrs.frozen
class Upkeep:
    """How a run folder is kept small.

    Args:
        compression: of merged files: None, "lz4" or "zstd".
        merged_bytes: files are merged up to about this size.
        retention_ms: files whose rows are in merged ones stay so long.
        history_bytes: about so many bytes of what commits said are kept, the newest.
        now_ms: tells the time, milliseconds since the epoch.
    """

    compression: str | None = None
    merged_bytes: int = MERGED_BYTES
    retention_ms: int = 600_000
    history_bytes: int = 16 << 20
    now_ms: Callable[[], int] = lambda: round(time.time() * 1000)


class Compaction:
    """Merges files. Used by one thread at a time.

    Args:
        storage: folder of the run.
        upkeep: how.
    """

    def __init__(self, storage: Storage, upkeep: Upkeep) -> None:
        self._storage = storage
        self._upkeep = upkeep
        self._left: set[str] = set()
        """Files that cannot be merged; that was told."""

    def merge(self, files: OutputFiles, number: int, epoch: int, cuts: Sequence[int]) -> list[str]:
        """Merge what is due. New files count when the checkpoint is written that names them.

        Args:
            files: the files that count; those that were merged are replaced in it.
            number: number of the checkpoint.
            epoch: that of the coordinator.
            cuts: commits, ascending, as of which outputs can be read.

        Returns:
            The files that were replaced.

        Raises:
            OSError: the disk says no.
        """
        replaced: list[str] = []
        while True:
            left = len(self._left)
            for merge in files.merges(number, epoch, self._upkeep.merged_bytes, self._left, cuts):
                if self._merge(files, merge):
                    replaced += (one.file.path for one in merge.files)
            if len(self._left) == left:
                return replaced

    def _merge(self, files: OutputFiles, merge: Merge) -> bool:
        known = len(self._left)
        try:
            schema = self._schema(merge)
            is_parquet = merge.path.endswith(PARQUET)
            data, seal = as_one_file(
                self._tables(merge, schema), schema, self._upkeep.compression, is_parquet=is_parquet
            )
        except (CorruptLogException, pa.ArrowException) as error:
            if len(self._left) == known:
                self._left.update(one.file.path for one in merge.files)
            _log.warning(
                "Files of the output %r of task %s stay as they are, and are not merged: %s",
                merge.output,
                merge.files[0].task,
                error,
            )
            return False
        self._storage.put_all({merge.path: data})
        files.replace(merge, seal, tuple((field.name, str(field.type)) for field in schema))
        return True

    def _schema(self, merge: Merge) -> pa.Schema:
        # They differ at most in columns that have only nulls in some batches, that were gained, or are nullable by now.
        examples = {one.file.columns: one for one in reversed(merge.files)}
        schema = pa.unify_schemas([self._open(merge, one).schema for one in reversed(examples.values())])
        return pa.schema([field.with_nullable(nullable=True) for field in schema], schema.metadata)

    def _tables(self, merge: Merge, schema: pa.Schema) -> Iterator[pa.Table]:
        for one in merge.files:
            table = self._open(merge, one)
            try:
                yield table if table.schema == schema else fitted(table, schema)
            except pa.ArrowException:
                self._left.add(one.file.path)
                raise

    def _open(self, merge: Merge, one: OutputFile) -> pa.Table:
        file, partition = one.file, one.task.partition
        try:
            return open_arrow(self._storage, file.path, file.seal, "output", merge.output, partition, one.first)
        except CorruptLogException:
            self._left.add(file.path)
            raise
