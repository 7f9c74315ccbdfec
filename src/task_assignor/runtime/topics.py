"""The topic log: a folder of Arrow files per partition, with offsets. Writing is in `topic_writing`.

Layout: `<root>/<topic>/topic.json` describes the topic and lists its files with sizes and checksums;
`<root>/<topic>/<partition>/<first offset, 20 digits>.arrow` holds its rows. Files never change once they have their name.
Offsets have no gaps. While it is being written a topic is `<root>/<topic>~staging`, guarded by `<root>/<topic>~lock`.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import CorruptLogException, TopicException
from task_assignor.runtime.files import Seal, check_size, local_path, open_arrow, read_json
from task_assignor.runtime.keys import key_type_name
from task_assignor.sdk.text import NAME_RULE, counted, is_name, shown

FORMAT_VERSION: Final = 2


def check_name(what: str, name: object) -> None:
    """Kafka's rule for names of topics; ours for stores and outputs too, since they become folders.

    Raises:
        TopicException: the name is not allowed.
    """
    if not is_name(name):
        raise TopicException(f"The {what} name ({shown(name)}) must have {NAME_RULE}.")


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Names that were given as a sequence, or as one text."""
    return (given,) if isinstance(given, str) else tuple(given)


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
            try:
                key_type_name(self.schema.field(column).type)
            except TopicException as error:
                raise TopicException(f"The key column {column!r} of topic {self.name}: {error}") from None
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
            raise ValueError(
                f"formatVersion {document['formatVersion']!r} is not {FORMAT_VERSION}; write the topic again"
            )
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["arrowSchema"])))
        return cls(
            document["name"], document["partitions"], schema, document["key"], document["timestamp"], document["racks"]
        )


def topics_folder(root: str | Path) -> Path:
    """The folder of the topics, as a path.

    Raises:
        TopicException: it is a URL.
    """
    try:
        return local_path("folder of the topics", root)
    except ValueError as error:
        raise TopicException(str(error)) from None


@attrs.frozen
class Segment:
    """One file of a partition.

    Args:
        partition: number of the partition.
        base: offset of its first row.
        seal: its rows, bytes and checksum.
    """

    partition: int
    base: int
    seal: Seal

    @property
    def end(self) -> int:
        """Offset after its last row."""
        return self.base + self.seal.rows

    def path(self, topic: Path) -> Path:
        """Where it is.

        Args:
            topic: folder of the topic.
        """
        return topic / str(self.partition) / f"{self.base:020d}.arrow"


class Topic:
    """A topic that exists: reads rows by partition and offsets. Made by `open`.

    Args:
        root: folder of the topics.
        spec: what the topic is like.
        topic_id: its identity; a topic that is written anew has another one.
        segments: its files, per partition in the order of their offsets.
    """

    def __init__(self, root: str | Path, spec: TopicSpec, topic_id: str, segments: Sequence[Sequence[Segment]]) -> None:
        self.spec = spec
        self.topic_id = topic_id
        self.path = topics_folder(root) / spec.name
        self._segments = tuple(map(tuple, segments))
        self._tables: dict[Segment, pa.Table] = {}

    @classmethod
    def open(cls, root: str | Path, name: str, expected_id: str | None = None) -> Topic:
        """The topic of that name.

        Args:
            root: folder of the topics.
            name: name of the topic.
            expected_id: the identity it must have; None: any.

        Raises:
            TopicException: there is none, its description cannot be read, or it is another one than expected.
        """
        check_name("topic", name)
        path = topics_folder(root) / name / "topic.json"
        try:
            document = read_json(path)
            spec = TopicSpec.from_json(document)
            topic_id = str(uuid.UUID(document["id"]))
            segments = [
                [Segment(partition, base, Seal(*seal)) for base, *seal in files]
                for partition, files in enumerate(document["files"])
            ]
            if spec.name != name:
                raise ValueError(f"it describes the topic {spec.name!r}")
            if len(segments) != spec.partitions:
                raise ValueError(f"it has files for {len(segments)} partitions, not {spec.partitions}")
        except FileNotFoundError:
            known = ", ".join(list_topics(root)) or "none"
            raise TopicException(f"There is no topic {name!r} in {root}; the topics there: {known}.") from None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise TopicException(
                f"The description of topic {name!r} cannot be read: {path} ({error}). "
                "Maybe restore the file from a copy, or write the topic again."
            ) from error
        if expected_id not in (None, topic_id):
            raise TopicException(
                f"The topic {name!r} in {root} has the id {topic_id}, not {expected_id}: it was written anew while it was "
                "being read. Maybe run the application again with a new run_dir."
            )
        return cls(root, spec, topic_id, segments)

    def end_offset(self, partition: int) -> int:
        """The offset after the last row of the partition. Makes sure that its files are there.

        Raises:
            CorruptLogException: a file is missing or has another size, or files do not follow each other.
        """
        end = 0
        for segment in self.segments(partition):
            self._check_follows(segment, end)
            check_size(segment.path(self.path), segment.seal, "topic", self.spec.name, partition, segment.base)
            end = segment.end
        return end

    def end_offsets(self) -> list[int]:
        """`end_offset` of every partition."""
        return [self.end_offset(partition) for partition in range(self.spec.partitions)]

    def segments(self, partition: int) -> Sequence[Segment]:
        """The files of a partition in the order of their offsets."""
        if not 0 <= partition < self.spec.partitions:
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {partition}."
            )
        return self._segments[partition]

    def read(self, partition: int, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows `start` (inclusive) to `end` (exclusive) of a partition, without copying them.

        Args:
            partition: number of the partition.
            start: first offset.
            end: offset after the last.
            columns: which columns; None: all.

        Raises:
            CorruptLogException: a file cannot be read, or the topic has no such rows.
        """
        schema = self.spec.schema if columns is None else pa.schema([self.spec.schema.field(name) for name in columns])
        if start >= end:
            return schema.empty_table()
        slices = list(self._slices(partition, start, end))
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

    def _slices(self, partition: int, start: int, end: int) -> Iterator[pa.Table]:
        for segment in self.segments(partition):
            low, high = max(start, segment.base), min(end, segment.end)
            if low < high:
                yield self._table(segment).slice(low - segment.base, high - low)

    def _table(self, segment: Segment) -> pa.Table:
        table = self._tables.get(segment)
        if table is None:
            path = segment.path(self.path)
            table = open_arrow(path, segment.seal, "topic", self.spec.name, segment.partition, segment.base)
            if not table.schema.equals(self.spec.schema):
                raise CorruptLogException(
                    f"The file of topic {self.spec.name}, partition {segment.partition}, offset {segment.base} has other "
                    f"columns than the topic: {path} has {_columns(table.schema)}, the topic has "
                    f"{_columns(self.spec.schema)}.",
                    self.spec.name,
                    segment.partition,
                    segment.base,
                    str(path),
                )
            self._tables[segment] = table
        return table

    def _check_follows(self, segment: Segment, expected: int) -> None:
        if segment.base != expected:
            what = "offsets are missing" if segment.base > expected else "offsets are there twice"
            path = segment.path(self.path)
            raise CorruptLogException(
                f"Topic {self.spec.name}, partition {segment.partition}: {what} before the file {path}; "
                f"it starts at offset {segment.base}, but should start at {expected}.",
                self.spec.name,
                segment.partition,
                segment.base,
                str(path),
            )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def list_topics(root: str | Path) -> list[str]:
    """Names of the topics in a folder, sorted."""
    folder = topics_folder(root)
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if is_name(entry.name) and (entry / "topic.json").is_file())
