"""Writing topics: out of sight, by one writer at a time, visible whole or not at all. Reading them is in `topics`."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.disk import disk_errors
from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.files import Seal, lock_file, sync, write_arrow, write_json
from task_assignor.runtime.frames import as_tables
from task_assignor.runtime.keys import partitions_of, timestamps_in_ms
from task_assignor.runtime.topics import Segment, Topic, TopicSpec, topics_folder

DEFAULT_SEGMENT_ROWS: Final = 1_000_000


def _disk_errors(spec: TopicSpec, root: str | Path) -> AbstractContextManager[None]:
    return disk_errors(TopicException, f"Topic {spec.name!r} cannot be written to {root}", "Maybe choose another root.")


class _Claim:
    """The right to write a topic. Picklable: copies in other processes hold nothing."""

    def __init__(self, path: Path, handle: IO[str]) -> None:
        self._path = path
        self._handle: IO[str] | None = handle

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_handle": None}

    def release(self) -> None:
        """Give it back."""
        if self._handle is not None:
            self._path.unlink(missing_ok=True)
            self._handle.close()
            self._handle = None


@attrs.frozen
class TopicBuilder:
    """Writes a new topic out of sight and makes it visible at the end. Picklable: several processes may write.

    Made by `create`, which is the only one to write this topic until `commit` or `abort`.

    Args:
        root: folder of the topics.
        spec: what the topic is like.
    """

    root: str
    spec: TopicSpec
    _claim: _Claim | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def create(cls, root: str | Path, spec: TopicSpec) -> TopicBuilder:
        """Begin a topic; what an earlier attempt left behind is removed.

        Raises:
            TopicException: a topic of this name exists or is being written by somebody else, or the folder cannot be
                written.
        """
        folder = topics_folder(root)
        lock = folder / f"{spec.name}~lock"
        with _disk_errors(spec, root):
            folder.mkdir(parents=True, exist_ok=True)
            handle = lock_file(lock)
            if handle is None:
                raise TopicException(
                    f"The topic {spec.name!r} in {root} is being written by somebody else. Maybe wait for it, or use "
                    "another name."
                )
            builder = cls(str(root), spec, _Claim(lock, handle))
            try:
                builder._check_is_new()
                for left in folder.glob(f"{spec.name}~staging*"):
                    shutil.rmtree(left)
                builder.staging.mkdir()
            except BaseException:
                builder._release()
                raise
        return builder

    @property
    def staging(self) -> Path:
        """Where the files are until `commit`."""
        return topics_folder(self.root) / f"{self.spec.name}~staging"

    def write(self, partition: int, base_offset: int, table: pa.Table) -> Segment:
        """Write the rows `base_offset` and following of a partition as one file; writing it again replaces it.

        Args:
            partition: number of the partition.
            base_offset: offset of the first row; 0 for the first file, then the `end` of the last segment.
            table: the rows, with the columns of the topic (cast to its types where that loses nothing).

        Returns:
            The file, for `commit`; without rows there is none, and `commit` passes over it.

        Raises:
            TopicException: the columns do not fit, there is no such partition, or the disk says no.
        """
        if not 0 <= partition < self.spec.partitions:
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {partition}."
            )
        nothing = Segment(partition, base_offset, Seal(0, 0, ""))
        if not table.num_rows:
            return nothing
        table = fit_to_schema(table, self.spec.schema, f"topic {self.spec.name}").combine_chunks()
        path = nothing.path(self.staging)
        with _disk_errors(self.spec, self.root):
            seal = write_arrow(path, table)
            sync(path)
            sync(path.parent)
        return attrs.evolve(nothing, seal=seal)

    def commit(self, segments: Iterable[Segment]) -> Topic:
        """Check that the files are there and follow each other, and make the topic visible.

        Args:
            segments: what the calls of `write` gave, in any order.

        Raises:
            TopicException: a topic of this name has appeared, or the disk says no.
            CorruptLogException: files do not follow each other, or cannot be seen from here.
        """
        files: list[list[Segment]] = [[] for _ in range(self.spec.partitions)]
        for segment in sorted(segments, key=lambda segment: (segment.partition, segment.base)):
            if segment.seal.rows:
                files[segment.partition].append(segment)
        topic = Topic(self.root, self.spec, str(uuid.uuid4()), files)
        topic.path = self.staging
        topic.end_offsets()
        self._check_is_new()
        final = topics_folder(self.root) / self.spec.name
        listed = [[[segment.base, *segment.seal.to_json()] for segment in partition] for partition in files]
        document = {**self.spec.to_json(), "id": topic.topic_id, "files": listed}
        with _disk_errors(self.spec, self.root):
            write_json(self.staging / "topic.json", document)
            # Fails if the name is taken: a topic is a folder that is not empty.
            self.staging.rename(final)
            sync(final.parent)
        self._release()
        return Topic(self.root, self.spec, topic.topic_id, files)

    def abort(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.staging, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        if self._claim is not None:
            self._claim.release()

    def _check_is_new(self) -> None:
        final = topics_folder(self.root) / self.spec.name
        if final.exists():
            raise TopicException(
                f"There already is a topic {self.spec.name!r} in {self.root}. Maybe delete {final} first."
            )


def fit_to_schema(table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """The table with exactly the columns and types of the schema, in its order.

    Raises:
        TopicException: a column is missing or a value does not fit; names it.
    """
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise TopicException(f"The rows for {what} have no columns {missing}; they have {table.schema.names}.")
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise TopicException(
                    f"The column {field.name!r} for {what} has type {column.type} and cannot be cast to {field.type}: {error}"
                ) from error
        columns.append(column)
    return pa.table(columns, schema=schema)


def write_topic(
    root: str | Path,
    name: str,
    rows: Any,
    *,
    partitions: int,
    key: Sequence[str],
    timestamp: str | None = None,
    racks: Sequence[Iterable[str] | None] | None = None,
    sort_by_timestamp: bool = False,
    segment_rows: int = DEFAULT_SEGMENT_ROWS,
) -> Topic:
    """Write a new topic from tables, partitioned by Kafka's murmur2 of the key.

    Args:
        root: folder of the topics.
        name: name of the topic.
        rows: an Arrow table, a pandas or polars DataFrame, or an iterable of these with equal columns; within a
            partition their order is kept.
        partitions: number of partitions.
        key: key columns.
        timestamp: column with the time of the event, or None.
        racks: racks per partition, or None.
        sort_by_timestamp: sort each table by the timestamp first: a table that was not recorded in order of time
            then reads like a stream without late records.
        segment_rows: at most so many rows per file.

    Returns:
        The topic.

    Raises:
        TopicException: a topic of this name exists or is being written, the description or the rows are not allowed, or
            the folder cannot be written.
    """
    if segment_rows < 1:
        raise TopicException(f"The segment_rows ({segment_rows}) must be at least 1.")
    tables = as_tables(rows, f"topic {name!r}")
    first = next(tables, None)
    if first is None:
        raise TopicException(f"There are no tables to write to topic {name!r}. Maybe write one without rows.")
    spec = TopicSpec(name, partitions, first.schema.remove_metadata(), key, timestamp, racks)
    if sort_by_timestamp and timestamp is None:
        raise TopicException(f"Topic {name!r} cannot be sorted by timestamp: it has no timestamp column.")
    builder = TopicBuilder.create(root, spec)
    try:
        segments: list[Segment] = []
        ends = [0] * partitions
        while first is not None:
            segments += _append(builder, ends, first, sort_by_timestamp, segment_rows)
            first = next(tables, None)
        return builder.commit(segments)
    except BaseException:
        builder.abort()
        raise


def _append(builder: TopicBuilder, ends: list[int], rows: pa.Table, sort: bool, segment_rows: int) -> Iterator[Segment]:
    spec = builder.spec
    rows = fit_to_schema(rows, spec.schema, f"topic {spec.name}")
    partition = partitions_of(rows, spec.key, spec.partitions)
    if sort and spec.timestamp is not None:
        time = timestamps_in_ms(rows.column(spec.timestamp)).to_numpy()
        order = np.lexsort((time, partition))
    else:
        order = np.argsort(partition, kind="stable")
    bounds = np.searchsorted(partition[order], np.arange(spec.partitions + 1))
    for number in range(spec.partitions):
        for begin in range(int(bounds[number]), int(bounds[number + 1]), segment_rows):
            chosen = order[begin : min(begin + segment_rows, int(bounds[number + 1]))]
            segment = builder.write(number, ends[number], rows.take(pa.array(chosen)))
            ends[number] = segment.end
            yield segment
