"""Topics as folders of Arrow files per partition, with offsets: the `Log` that lives in a storage. Writing is in `topic_writing`.

Layout: `<root>/<topic>/versions/<number, 12 digits>.json` describes the topic and lists its files with sizes and checksums; the
newest version counts. `<root>/<topic>/<partition>/*.arrow` holds the rows; files never change, and one that no version lists
does not count. Offsets have no gaps. A version is put if absent, so a topic appears and grows whole or not at all, and of
two that write it at the same time one comes after the other.
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.disk import disk_errors
from task_assignor.runtime.errors import CorruptLogException, TopicException
from task_assignor.runtime.fetched import Fetched
from task_assignor.runtime.keys import key_type_name
from task_assignor.runtime.storage import Seal, Storage, check_size, open_arrow, open_document, storage_at
from task_assignor.sdk.text import NAME_RULE, counted, is_name, shown

FORMAT_VERSION: Final = 3
_LOOK_INSIDE_S: Final = 1.0
"""So long a version is taken for the one that it was, by its number alone."""
_OPEN_FILES: Final = 2
"""Files of a partition that are kept open. In an object store that is memory: two readers are served, and no more held."""


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
        """What a version says of the topic itself."""
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


def topics_storage(root: str | Path) -> Storage:
    """The storage of the topics.

    Raises:
        TopicException: the root is neither a path nor a URL that is supported.
    """
    try:
        return storage_at("folder of the topics", root)
    except ValueError as error:
        raise TopicException(str(error)) from None


@attrs.frozen
class Segment:
    """One file of a partition.

    Args:
        partition: number of the partition.
        base: offset of its first row.
        seal: its rows, bytes and checksum.
        file: its name in the folder of the partition.
    """

    partition: int
    base: int
    seal: Seal
    file: str

    @property
    def end(self) -> int:
        """Offset after its last row."""
        return self.base + self.seal.rows

    def name(self, topic: str) -> str:
        """Its name in the storage of the topics.

        Args:
            topic: name of the topic.
        """
        return f"{topic}/{self.partition}/{self.file}"


def version_name(topic: str, version: int) -> str:
    """The name of a version of a topic in the storage of the topics."""
    return f"{topic}/versions/{version:012d}.json"


class Topic:
    """A topic that exists: reads rows by partition and offsets. Made by `open`. A `Log`.

    Args:
        root: folder of the topics, a path or a URL.
        spec: what the topic is like.
        topic_id: its identity; a topic that is written anew has another one.
        segments: its files, per partition in the order of their offsets.
        version: how often it has grown.
    """

    def __init__(
        self, root: str | Path, spec: TopicSpec, topic_id: str, segments: Sequence[Sequence[Segment]], version: int = 0
    ) -> None:
        self.spec = spec
        self.topic_id = topic_id
        self.version = version
        self._storage = topics_storage(root)
        self._segments = tuple(map(tuple, segments))
        self._tables: list[OrderedDict[Segment, pa.Table]] = [OrderedDict() for _ in range(spec.partitions)]
        self._lock = threading.Lock()
        self._opened_s = time.monotonic()
        self._checked = [0] * spec.partitions
        """Per partition how many files are known to be there."""

    @classmethod
    def open(cls, root: str | Path, name: str, expected_id: str | None = None) -> Topic:
        """The topic of that name, as it is now.

        Args:
            root: folder of the topics, a path or a URL.
            name: name of the topic.
            expected_id: the identity it must have; None: any.

        Raises:
            TopicException: there is none, its description cannot be read, or it is another one than expected.
        """
        check_name("topic", name)
        storage = topics_storage(root)
        try:
            version, document = _newest_version(storage, name)
        except FileNotFoundError:
            known = ", ".join(list_topics(root)) or "none"
            raise TopicException(f"There is no topic {name!r} in {root}; the topics there: {known}.") from None
        except (OSError, ValueError) as error:
            raise _unreadable(storage.locate(f"{name}/versions"), name, error) from error
        try:
            spec = TopicSpec.from_json(document)
            topic_id = str(uuid.UUID(document["id"]))
            segments = [
                [Segment(partition, base, Seal(*seal), file) for file, base, *seal in files]
                for partition, files in enumerate(document["files"])
            ]
            if (spec.name, document["version"]) != (name, version):
                raise ValueError(f"it describes the topic {spec.name!r}, version {document['version']}")
            if len(segments) != spec.partitions:
                raise ValueError(f"it has files for {len(segments)} partitions, not {spec.partitions}")
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise _unreadable(storage.locate(version_name(name, version)), name, error) from error
        if expected_id not in (None, topic_id):
            raise TopicException(
                f"The topic {name!r} in {root} has the id {topic_id}, not {expected_id}: it was written anew while it was "
                "being read. Maybe run the application again with a new run_dir."
            )
        return cls(root, spec, topic_id, segments, version)

    @property
    def address(self) -> str:
        """Path or URL of its folder."""
        return self._storage.locate(self.spec.name)

    def to_json(self) -> dict[str, Any]:
        """The content of the version."""
        files = [[[one.file, one.base, *one.seal.to_json()] for one in partition] for partition in self._segments]
        return {**self.spec.to_json(), "id": self.topic_id, "version": self.version, "files": files}

    def refresh(self) -> None:
        """Look whether it has grown.

        Raises:
            TopicException: it is gone, cannot be read, or was written anew.
        """
        # A topic that was written anew may have the same number: that is looked at now and then only.
        if time.monotonic() < self._opened_s + _LOOK_INSIDE_S and self._is_newest():
            return
        self._opened_s = time.monotonic()
        found = Topic.open(self._storage.address, self.spec.name, self.topic_id)
        self._segments = tuple(tuple(found.segments(partition)) for partition in range(self.spec.partitions))
        self.version = found.version

    def _is_newest(self) -> bool:
        # Older versions are removed first, so where this one still is, no newer one can be there without the next.
        def is_there(version: int) -> bool:
            return self._storage.is_there(version_name(self.spec.name, version))

        return not is_there(self.version + 1) and is_there(self.version)

    def start_offsets(self) -> list[int]:
        """The first offset of every partition that can be read: 0, nothing is ever taken away."""
        return [0] * self.spec.partitions

    def end_offset(self, partition: int) -> int:
        """The offset after the last row of the partition. Makes sure that its files are there, each of them once.

        Raises:
            CorruptLogException: a file is missing or has another size, or files do not follow each other.
        """
        return self._checked_ends([partition])[0]

    def end_offsets(self) -> list[int]:
        """`end_offset` of every partition."""
        return self._checked_ends(range(self.spec.partitions))

    def _checked_ends(self, partitions: Sequence[int]) -> list[int]:
        ends, files = [], dict[str, Segment]()
        for partition in partitions:
            segments = self.segments(partition)
            checked = self._checked[partition]
            end = segments[checked - 1].end if checked else 0
            for segment in segments[checked:]:
                self._check_follows(segment, end)
                files[segment.name(self.spec.name)] = segment
                end = segment.end
            ends.append(end)

        def check(name: str) -> None:
            found = files[name]
            check_size(self._storage, name, found.seal, "topic", self.spec.name, found.partition, found.base)

        if files:
            self._storage.for_all(check, files)
            for partition in partitions:
                self._checked[partition] = len(self.segments(partition))
        return ends

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
        if end > start and end > (self.segments(partition)[-1].end if self.segments(partition) else 0):
            # Whoever asks for it knows that it has grown.
            self.refresh()
        schema = self.spec.schema if columns is None else pa.schema([self.spec.schema.field(name) for name in columns])
        if start >= end:
            return schema.empty_table()
        slices = list(self._slices(partition, start, end))
        rows = sum(piece.num_rows for piece in slices)
        if rows < end - start:
            place = f"{self.address}/{partition}"
            raise CorruptLogException(
                f"Topic {self.spec.name}, partition {partition}: rows are missing; offsets {start} to {end - 1} were "
                f"asked for, but the files in {place} hold only {rows} of these {end - start} rows.",
                self.spec.name,
                partition,
                start,
                place,
            )
        return pa.concat_tables([piece.select(schema.names) for piece in slices])

    def fetch(self, partition: int, start: int, end: int) -> Fetched:
        """`read` with the offsets, which have no gaps here."""
        return Fetched(self.read(partition, start, end), range(start, max(start, end)))

    def _slices(self, partition: int, start: int, end: int) -> Iterator[pa.Table]:
        for segment in self.segments(partition):
            low, high = max(start, segment.base), min(end, segment.end)
            if low < high:
                yield self._table(segment).slice(low - segment.base, high - low)

    def _table(self, segment: Segment) -> pa.Table:
        tables = self._tables[segment.partition]
        with self._lock:
            table = tables.get(segment)
            if table is not None:
                tables.move_to_end(segment)
                return table
        name = segment.name(self.spec.name)
        table = open_arrow(self._storage, name, segment.seal, "topic", self.spec.name, segment.partition, segment.base)
        if not table.schema.equals(self.spec.schema):
            raise CorruptLogException(
                f"The file of topic {self.spec.name}, partition {segment.partition}, offset {segment.base} has other "
                f"columns than the topic: {self._storage.locate(name)} has {_columns(table.schema)}, the topic has "
                f"{_columns(self.spec.schema)}.",
                self.spec.name,
                segment.partition,
                segment.base,
                self._storage.locate(name),
            )
        with self._lock:
            tables[segment] = table
            while len(tables) > _OPEN_FILES:
                tables.popitem(last=False)
        return table

    def _check_follows(self, segment: Segment, expected: int) -> None:
        if segment.base != expected:
            what = "offsets are missing" if segment.base > expected else "offsets are there twice"
            path = self._storage.locate(segment.name(self.spec.name))
            raise CorruptLogException(
                f"Topic {self.spec.name}, partition {segment.partition}: {what} before the file {path}; "
                f"it starts at offset {segment.base}, but should start at {expected}.",
                self.spec.name,
                segment.partition,
                segment.base,
                path,
            )


@attrs.frozen
class FolderTopics:
    """The topics in a folder: `Topics` that are kept in a storage.

    Args:
        address: path or URL of the folder.
    """

    address: str

    def open(self, name: str, expected_id: str | None = None) -> Topic:
        """The topic of that name: `Topic.open`."""
        return Topic.open(self.address, name, expected_id)

    def prepare(self, application_id: str, topology: object, tasks: object) -> None:
        """Nothing: the folder of the run makes itself."""

    def results(self, application_id: str, topology: object) -> None:  # noqa: ARG002 (part of the protocol)
        """None: results go into the folder of the run."""
        return


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _unreadable(place: str, name: str, error: Exception) -> TopicException:
    return TopicException(
        f"The description of topic {name!r} cannot be read: {place} ({error}). "
        "Maybe restore the file from a copy, or write the topic again."
    )


def _newest_version(storage: Storage, topic: str) -> tuple[int, dict[str, Any]]:
    """Number and content of the version that counts.

    Raises:
        FileNotFoundError: there is none.
    """
    while True:
        found = versions_of(storage, topic)
        if not found:
            raise FileNotFoundError(topic)
        try:
            return found[-1], open_document(storage, version_name(topic, found[-1]))
        except FileNotFoundError:
            # Who writes newer versions removes older ones.
            if versions_of(storage, topic)[-1:] == found[-1:]:
                raise


def versions_of(storage: Storage, topic: str) -> list[int]:
    """The numbers of the versions that are there, in order."""
    stems = [name.rpartition("/")[2].removesuffix(".json") for name in storage.list(f"{topic}/versions")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def list_topics(root: str | Path) -> list[str]:
    """Names of the topics in a folder, sorted.

    Raises:
        TopicException: the root is not supported, or cannot be read.
    """
    storage = topics_storage(root)
    with disk_errors(TopicException, f"The topics in {root} cannot be listed", "Maybe choose another root."):
        names = [entry.removesuffix("/") for entry in storage.list() if entry.endswith("/")]
        return sorted(name for name in names if is_name(name) and versions_of(storage, name))
