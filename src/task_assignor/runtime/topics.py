"""The topic log: a folder of Arrow files per partition, with offsets. Who reads which offsets is decided elsewhere.

Layout: `<root>/<topic>/topic.json` describes the topic; `<root>/<topic>/<partition>/<first offset, 20 digits>.arrow`
holds its rows. Files never change once they have their name. Offsets have no gaps.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.disk import disk_errors
from task_assignor.runtime.errors import CorruptLogException, TopicException
from task_assignor.runtime.files import count_rows, open_arrow, write_arrow, write_json
from task_assignor.runtime.frames import as_tables
from task_assignor.runtime.keys import key_type_name, partitions_of, timestamps_in_ms
from task_assignor.sdk.text import counted

FORMAT_VERSION: Final = 1
DEFAULT_SEGMENT_ROWS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SEGMENT: Final = re.compile(r"(\d{20})\.arrow")


def check_name(what: str, name: object) -> None:
    """Kafka's rule for names of topics; ours for stores and outputs too, since they become folders.

    Raises:
        TopicException: the name is not allowed.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise TopicException(
            f"The {what} name ({name!r}) must have 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-'."
        )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _rack_sets(racks: Sequence[Iterable[str] | None] | None) -> tuple[frozenset[str] | None, ...] | None:
    return None if racks is None else tuple(None if rack is None else frozenset(rack) for rack in racks)


@attrs.frozen
class TopicSpec:
    """What a topic is like.

    Args:
        name: its name.
        partitions: number of partitions, at least 1.
        schema: columns of its rows.
        key: key columns; equal keys are in one partition (see `keys`).
        timestamp: column with the time of the event: a timestamp, or an integer of milliseconds; None: it has none.
        racks: racks that hold a replica, per partition (None: unknown); None: unknown for all.

    Raises:
        TopicException: something of it is not allowed.
    """

    name: str
    partitions: int
    schema: pa.Schema
    key: tuple[str, ...] = attrs.field(converter=_names)
    timestamp: str | None = None
    racks: tuple[frozenset[str] | None, ...] | None = attrs.field(default=None, converter=_rack_sets)

    def __attrs_post_init__(self) -> None:
        check_name("topic", self.name)
        if type(self.partitions) is not int or self.partitions < 1:
            raise TopicException(
                f"The partitions ({self.partitions!r}) of topic {self.name} must be an int of at least 1."
            )
        if not isinstance(self.schema, pa.Schema):
            raise TopicException(f"The schema ({self.schema!r}) of topic {self.name} must be a pyarrow.Schema.")
        if len(set(self.schema.names)) != len(self.schema.names):
            raise TopicException(f"Topic {self.name} has a column name twice: {self.schema.names}.")
        if not self.key:
            raise TopicException(
                f"Topic {self.name} needs at least one key column. Its columns are {self.schema.names}."
            )
        for column in (*self.key, *([] if self.timestamp is None else [self.timestamp])):
            if column not in self.schema.names:
                raise TopicException(
                    f"Topic {self.name} has no column {column!r}. Its columns are {self.schema.names}."
                )
        for column in self.key:
            key_type_name(self.schema.field(column).type)
        if self.timestamp is not None:
            kind = self.schema.field(self.timestamp).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind)):
                raise TopicException(
                    f"The timestamp column {self.timestamp!r} of topic {self.name} has type {kind}; "
                    "it must be a timestamp or an integer of milliseconds since the epoch."
                )
        if self.racks is not None and len(self.racks) != self.partitions:
            raise TopicException(
                f"Topic {self.name} has {counted(self.partitions, 'partition')}, but racks for {len(self.racks)} were given."
            )

    @property
    def key_types(self) -> tuple[str, ...]:
        """How the key columns are serialised; equal in topics whose equal keys share a partition number."""
        return tuple(key_type_name(self.schema.field(column).type) for column in self.key)

    def to_json(self) -> dict[str, Any]:
        """The content of `topic.json`."""
        racks = None if self.racks is None else [None if rack is None else sorted(rack) for rack in self.racks]
        return {
            "formatVersion": FORMAT_VERSION,
            "name": self.name,
            "partitions": self.partitions,
            "key": list(self.key),
            "timestamp": self.timestamp,
            # For people; programs read the exact schema below.
            "columns": [{"name": field.name, "type": str(field.type)} for field in self.schema],
            "arrowSchema": base64.b64encode(self.schema.serialize().to_pybytes()).decode("ascii"),
            "racks": racks,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> TopicSpec:
        """The spec that `to_json` wrote."""
        if document["formatVersion"] != FORMAT_VERSION:
            raise ValueError(f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}")
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["arrowSchema"])))
        return cls(
            document["name"], document["partitions"], schema, document["key"], document["timestamp"], document["racks"]
        )


@attrs.frozen
class Segment:
    """One file of a partition.

    Args:
        base: offset of its first row.
        path: where it is.
    """

    base: int
    path: Path


class Topic:
    """A topic that exists: reads rows by partition and offsets.

    Args:
        root: folder of the topics.
        spec: what the topic is like.
    """

    def __init__(self, root: str | Path, spec: TopicSpec) -> None:
        self.spec = spec
        self.path = Path(root) / spec.name
        self._segments: dict[int, list[Segment]] = {}
        self._tables: dict[Path, pa.Table] = {}

    @classmethod
    def open(cls, root: str | Path, name: str) -> Topic:
        """The topic of that name.

        Raises:
            TopicException: there is none, or its description cannot be read.
        """
        check_name("topic", name)
        path = Path(root) / name / "topic.json"
        try:
            spec = TopicSpec.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            known = ", ".join(list_topics(root)) or "none"
            raise TopicException(f"There is no topic {name!r} in {root}; the topics there: {known}.") from None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise TopicException(f"The description of topic {name!r} cannot be read: {path} ({error}).") from error
        return cls(root, spec)

    def end_offset(self, partition: int) -> int:
        """The offset that the next row of the partition will get; looks at the disk each time.

        Raises:
            CorruptLogException: the newest file cannot be read, or files do not follow each other.
        """
        segments = self._list(partition)
        previous_end = 0
        for segment in segments:
            self._check_follows(partition, segment, previous_end)
            previous_end = segment.base + self._rows(partition, segment)
        return previous_end

    def end_offsets(self) -> list[int]:
        """`end_offset` of every partition."""
        return [self.end_offset(partition) for partition in range(self.spec.partitions)]

    def segments(self, partition: int) -> list[Segment]:
        """The files of a partition in the order of their offsets, as the disk has them now."""
        return list(self._list(partition))

    def read(self, partition: int, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows `start` (inclusive) to `end` (exclusive) of a partition, without copying them.

        Args:
            partition: number of the partition.
            start: first offset.
            end: offset after the last.
            columns: which columns; None: all.

        Raises:
            CorruptLogException: a file cannot be read, or rows of the range are missing.
        """
        schema = self.spec.schema if columns is None else pa.schema([self.spec.schema.field(name) for name in columns])
        if start >= end:
            return schema.empty_table()
        segments = self._segments.get(partition, [])
        slices = self._slices(partition, segments, start, end)
        if sum(piece.num_rows for piece in slices) < end - start:
            # Perhaps the topic has grown since the folder was listed.
            slices = self._slices(partition, self._list(partition), start, end)
        rows = sum(piece.num_rows for piece in slices)
        if rows < end - start:
            raise CorruptLogException(
                f"Topic {self.spec.name}, partition {partition}: rows are missing; offsets {start} to {end - 1} were "
                f"asked for, but the files in {self.path / str(partition)} hold only {rows} of these {end - start} rows.",
                self.spec.name,
                partition,
                start,
                str(self.path / str(partition)),
            )
        return pa.concat_tables([piece.select(schema.names) for piece in slices])

    def _slices(self, partition: int, segments: Sequence[Segment], start: int, end: int) -> list[pa.Table]:
        slices = []
        for number, segment in enumerate(segments):
            if segment.base >= end:
                break
            if number + 1 < len(segments) and segments[number + 1].base <= start:
                continue
            table = self._table(partition, segment)
            low, high = max(start - segment.base, 0), min(end - segment.base, table.num_rows)
            if high > low:
                slices.append(table.slice(low, high - low))
        return slices

    def _list(self, partition: int) -> list[Segment]:
        if not 0 <= partition < self.spec.partitions:
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {partition}."
            )
        folder = self.path / str(partition)
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        matches = (_SEGMENT.fullmatch(name) for name in names)
        segments = [Segment(int(match[1]), folder / match[0]) for match in matches if match]
        self._segments[partition] = segments
        return segments

    def _rows(self, partition: int, segment: Segment) -> int:
        table = self._tables.get(segment.path)
        if table is not None:
            return int(table.num_rows)
        return count_rows(segment.path, "topic", self.spec.name, partition, segment.base)

    def _table(self, partition: int, segment: Segment) -> pa.Table:
        table = self._tables.get(segment.path)
        if table is None:
            table = open_arrow(segment.path, "topic", self.spec.name, partition, segment.base)
            if not table.schema.equals(self.spec.schema):
                raise CorruptLogException(
                    f"The file of topic {self.spec.name}, partition {partition}, offset {segment.base} has other "
                    f"columns than the topic: {segment.path} has {_columns(table.schema)}, the topic has "
                    f"{_columns(self.spec.schema)}.",
                    self.spec.name,
                    partition,
                    segment.base,
                    str(segment.path),
                )
            self._tables[segment.path] = table
        return table

    def _check_follows(self, partition: int, segment: Segment, expected: int) -> None:
        if segment.base != expected:
            what = "offsets are missing" if segment.base > expected else "offsets are there twice"
            raise CorruptLogException(
                f"Topic {self.spec.name}, partition {partition}: {what} before the file {segment.path}; "
                f"it starts at offset {segment.base}, but should start at {expected}.",
                self.spec.name,
                partition,
                segment.base,
                str(segment.path),
            )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def list_topics(root: str | Path) -> list[str]:
    """Names of the topics in a folder, sorted."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    return sorted(
        entry.name for entry in folder.iterdir() if _NAME.fullmatch(entry.name) and (entry / "topic.json").is_file()
    )


@attrs.frozen
class TopicBuilder:
    """Writes a new topic out of sight and makes it visible at the end. Picklable: several processes may write.

    Args:
        root: folder of the topics.
        spec: what the topic is like.
    """

    root: str
    spec: TopicSpec

    @classmethod
    def create(cls, root: str | Path, spec: TopicSpec) -> TopicBuilder:
        """Begin a topic; what an earlier attempt left behind is removed.

        Raises:
            TopicException: a topic of this name exists.
        """
        builder = cls(str(root), spec)
        builder._check_is_new()
        builder.abort()
        builder.staging.mkdir(parents=True)
        return builder

    @property
    def staging(self) -> Path:
        """Where the files are until `commit`."""
        return Path(self.root) / f"{self.spec.name}~staging"

    def write(self, partition: int, base_offset: int, table: pa.Table) -> int:
        """Write the rows `base_offset` and following of a partition as one file; writing it again replaces it.

        Args:
            partition: number of the partition.
            base_offset: offset of the first row; 0 for the first file, then what the last call returned.
            table: the rows, with the columns of the topic (cast to its types where that loses nothing).

        Returns:
            The offset after the last row.

        Raises:
            TopicException: the columns do not fit, or there is no such partition.
        """
        if not 0 <= partition < self.spec.partitions:
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {partition}."
            )
        if table.num_rows:
            path = self.staging / str(partition) / f"{base_offset:020d}.arrow"
            write_arrow(path, fit_to_schema(table, self.spec.schema, f"topic {self.spec.name}").combine_chunks())
        return base_offset + int(table.num_rows)

    def commit(self) -> Topic:
        """Check that the files of every partition follow each other, and make the topic visible.

        Raises:
            TopicException: a topic of this name has appeared.
            CorruptLogException: files do not follow each other or cannot be read.
        """
        written = Topic(self.root, self.spec)
        written.path = self.staging
        written.end_offsets()
        self._check_is_new()
        write_json(self.staging / "topic.json", self.spec.to_json())
        final = Path(self.root) / self.spec.name
        self.staging.rename(final)
        return Topic(self.root, self.spec)

    def abort(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def _check_is_new(self) -> None:
        final = Path(self.root) / self.spec.name
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
        TopicException: a topic of this name exists, the description or the rows are not allowed, or the folder cannot
            be written.
    """
    if segment_rows < 1:
        raise TopicException(f"The segment_rows ({segment_rows}) must be at least 1.")
    tables = as_tables(rows, f"topic {name!r}")
    first = next(tables, None)
    if first is None:
        raise TopicException(f"There are no tables to write to topic {name!r}. Maybe write one without rows.")
    spec = TopicSpec(name, partitions, first.schema.remove_metadata(), _names(key), timestamp, racks)
    if sort_by_timestamp and timestamp is None:
        raise TopicException(f"Topic {name!r} cannot be sorted by timestamp: it has no timestamp column.")
    with disk_errors(TopicException, f"Topic {name!r} cannot be written to {root}", "Maybe choose another root."):
        builder = TopicBuilder.create(root, spec)
        try:
            ends = [0] * partitions
            while first is not None:
                _append(builder, ends, first, sort_by_timestamp, segment_rows)
                first = next(tables, None)
            return builder.commit()
        except BaseException:
            builder.abort()
            raise


def _append(builder: TopicBuilder, ends: list[int], rows: pa.Table, sort: bool, segment_rows: int) -> None:
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
            ends[number] = builder.write(number, ends[number], rows.take(pa.array(chosen)))
