"""Topics as folders of Arrow files per partition, with offsets: the `Log` that lives in a storage. Writing is in `writing`.

Layout: `<root>/<topic>/versions/<number, 12 digits>-<id>.json` describes the topic and says which files it has, with sizes and
checksums (`versions`); of the topic that is there (`names`) the newest version counts. `<root>/<topic>/<partition>/*.arrow`
holds the rows; files never change, and one that no version lists does not count. Offsets have no gaps. A version is put if absent, so a
topic appears and grows whole or not at all, and of two that write it at the same time one comes after the other.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import reencoded
from task_assignor.runtime.arrow.frames import fitted, no_rows
from task_assignor.runtime.arrow.times import times_of
from task_assignor.runtime.errors import CorruptLogException, RowsGoneException, TopicException
from task_assignor.runtime.storage import Storage, check_size, open_arrow, storage_at
from task_assignor.runtime.storage.disk import disk_errors
from task_assignor.runtime.topics.fetched import Fetched
from task_assignor.runtime.topics.names import look_at_names
from task_assignor.runtime.topics.spec import check_name
from task_assignor.runtime.topics.versions import FileList, Segment, TopicVersion, newest_version, unreadable
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.text import is_name, is_url, shown

_LOOK_INSIDE_S: Final = 1.0
"""So long a version is taken for the one that it was, by its number alone, where names do not tell which topic is there."""
_SEEN_LATER_S: Final = 5.0
"""So long rows that somebody else has seen are looked for: other hosts keep lists of names for a second or some (SMB, FUSE)."""
_LOOK_AGAIN_S: Final = 0.05
_OPEN_FILES: Final = 2
"""Files of a partition that are kept open. In an object store that is memory: two readers are served, and no more held."""


def topics_storage(root: str | Path) -> Storage:
    """The storage of the topics.

    Raises:
        TopicException: the root is neither a path nor a URL that is supported.
    """
    try:
        return storage_at("folder of the topics", root)
    except ValueError as error:
        raise TopicException(str(error)) from None


class Topic:
    """A topic that exists: reads rows by partition and offsets. Made by `open`. A `Log`.

    Args:
        root: folder of the topics, a path or a URL.
        version: the topic as it is now.
        columns: the columns that are seen of it, at any time; None: those that it has now.

    Attributes:
        spec: what the topic is like, with these columns.
    """

    def __init__(self, root: str | Path, version: TopicVersion, columns: Collection[str] | None = None) -> None:
        self._version = version
        whole = version.spec
        seen = [field for field in whole.schema if columns is None or field.name in columns]
        self.spec = attrs.evolve(whole, schema=pa.schema(seen, whole.schema.metadata))
        self._storage = topics_storage(root)
        self._segments: list[list[Segment]] = [[] for _ in range(whole.partitions)]
        """Those of the version `_loaded`, from `_begins` on."""
        self._loaded: TopicVersion | None = None
        self._begins = [0] * whole.partitions
        """Per partition the offset before the first file that is known: who reads the end of a long topic needs no others."""
        self._tables: list[OrderedDict[Segment, pa.Table]] = [OrderedDict() for _ in range(whole.partitions)]
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._opened_s = time.monotonic()
        self._checked = [0] * whole.partitions
        """Per partition how many files are known to be there, or are not asked for."""

    @classmethod
    def open(
        cls, root: str | Path, name: str, expected_id: str | None = None, columns: Collection[str] | None = None
    ) -> Topic:
        """The topic of that name, as it is now.

        Args:
            root: folder of the topics, a path or a URL.
            name: name of the topic.
            expected_id: the identity it must have; None: any.
            columns: those that are wanted, its key and its timestamp among them; None: all that it has now.

        Raises:
            TopicException: there is none, its description cannot be read, it is another one than expected, or it has no such
                columns.
        """
        check_kind("expected_id", expected_id, (str, None), TopicException, f" of topic {shown(name)}")
        version = _read_version(root, name, expected_id)
        if columns is not None:
            columns = version.spec.columns_named(columns)
            if lacking := [kept for kept in version.spec.kept_columns if kept not in columns]:
                raise TopicException(
                    f"The columns ({shown(list(columns))}) of topic {name} must have its key and its timestamp among them: {lacking} are not. "
                    "Maybe open it whole, and read(partition, start, end, columns)."
                )
        return cls(root, version, columns)

    @property
    def topic_id(self) -> str:
        """Its identity; a topic that is written anew has another one."""
        return self._version.topic_id

    @property
    def now(self) -> TopicVersion:
        """The version that it was when it was looked at last."""
        return self._version

    @property
    def version(self) -> int:
        """How often it has grown."""
        return self._version.number

    @property
    def address(self) -> str:
        """Path or URL of its folder."""
        return self._storage.locate(self.spec.name)

    def refresh(self) -> None:
        """Look whether it has grown. Columns that it has gained are seen by who opens it anew.

        Raises:
            TopicException: it is gone, cannot be read, or was written anew.
        """
        now, names = self._version, look_at_names(self._storage, self.spec.name)
        # A topic that was written anew may have the same number: that is looked at now and then only.
        is_sure = names.sure_id == now.topic_id or time.monotonic() < self._opened_s + _LOOK_INSIDE_S
        if is_sure and names.is_there and names.numbers(now.id_in_names)[-1] == now.number:
            return
        self._opened_s = time.monotonic()
        self._version = _read_version(self._storage.address, self.spec.name, self.topic_id)

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Self]) -> None:
        """`refresh` of several, one after the other: each is a folder of its own."""
        for log in logs:
            log.refresh()

    def start_offsets(self) -> list[int]:
        """The first offset of every partition that can be read: the rows before are deleted (`delete_records`)."""
        return list(self._version.starts)

    def offsets_for_time(self, time_ms: int) -> list[int]:
        """Per partition the offset of the first row that is not older than a time (ms since 1970), or the end.

        Raises:
            TopicException: it has no timestamp column.
        """
        if self.spec.timestamp is None:
            raise TopicException(
                f"Topic {self.spec.name} has no timestamp column, so nobody knows where a time begins in it."
            )
        return [self._offset_for_time(partition, time_ms) for partition in range(self.spec.partitions)]

    def _offset_for_time(self, partition: int, time_ms: int) -> int:
        base = self._version.starts[partition]
        for table in self._slices(partition, base, self._version.ends[partition]):
            reached = np.flatnonzero(times_of(table, self.spec.timestamp) >= time_ms)
            if len(reached):
                return base + int(reached[0])
            base += table.num_rows
        return base

    def end_offset(self, partition: int) -> int:
        """The offset after the last row of the partition."""
        self._check_partition(partition)
        return self.end_offsets()[partition]

    def end_offsets(self) -> list[int]:
        """`end_offset` of every partition."""
        return self._version.ends

    def check(self, starts: Sequence[int] | None = None, seals: Sequence[str] = ()) -> None:
        """Make sure that the files are there, each of them once, and follow each other.

        Args:
            starts: per partition the offset from which on rows are wanted; None: all.
            seals: per partition what `seal_before` said of that offset when the rows before it were read; (): not known.

        Raises:
            CorruptLogException: a file is missing or has another size, or files do not follow each other.
            TopicException: other rows are where those were that were read, or rows are deleted that are wanted.
        """
        for partition, start in enumerate(starts or ()):
            self.check_not_deleted(partition, start)
        for partition, (start, seal) in enumerate(zip(starts or (), seals, strict=True) if seals else ()):
            if seal and start > self._version.starts[partition] and seal != self.seal_before(partition, start):
                raise TopicException(
                    f"Topic {self.spec.name}, partition {partition}: other rows are before offset {start} than those that were read. "
                    f"Maybe {self.address} was put back from an older copy, and rows were appended in the place of those that "
                    "were lost: they would be passed over. Put the run folder back from a copy of then, too, or use a new one."
                )
        files: dict[str, Segment] = {}
        for partition, start in enumerate(starts or self.start_offsets()):
            segments = self.segments(partition, start)
            first = bisect_right(segments, max(start, self._checked[partition]), key=lambda one: one.end)
            # The first file of all may have rows that are deleted, and those before it have gone.
            end = segments[first - 1].end if first else max(self._begins[partition], self._first_base(partition))
            for segment in segments[first:]:
                self._check_follows(segment, end)
                files[segment.name(self.spec.name)] = segment
                end = segment.end

        def check(name: str) -> None:
            found = files[name]
            check_size(self._storage, name, found.seal, "topic", self.spec.name, found.partition, found.base)

        try:
            self._storage.for_all(check, files)
        except CorruptLogException:
            version = self.version
            with suppress(TopicException):
                self.refresh()
            if self.version == version:
                raise
            # What is missing may have been deleted since the topic was looked at.
            self.check(starts, seals)
            return
        self._checked = [segments[-1].end if segments else 0 for segments in self._segments]

    def _first_base(self, partition: int) -> int:
        start, segments = self._version.starts[partition], self._segments[partition]
        return min(start, segments[0].base) if segments else start

    def check_not_deleted(self, partition: int, start: int) -> None:
        """Make sure that no rows of a partition from `start` on are deleted.

        Raises:
            RowsGoneException: some are.
        """
        first = self._version.starts[partition]
        if start < first:
            raise RowsGoneException(
                f"Topic {self.spec.name}, partition {partition}: the rows from offset {start} to {first - 1} are wanted, but they "
                "were deleted (delete_records). Maybe restore the topic from a copy; what is new may begin at a later offset. A run goes "
                "on without them, and counts them, with auto.offset.reset=earliest.",
                self.spec.name,
                partition,
                start,
                self.address,
            )

    def tell_of_hidden(self) -> None:
        """Nothing: what is there can be read."""

    def seal_before(self, partition: int, offset: int) -> str:
        """The checksum of the file that has the row before an offset; "": there is none, or it is deleted."""
        if offset <= 0:
            return ""
        segments = self.segments(partition, offset - 1)
        found = segments[bisect_right(segments, offset - 1, key=lambda one: one.end) :][:1]
        return next((one.seal.checksum for one in found if one.base < offset), "")

    def segments(self, partition: int, start: int = 0) -> Sequence[Segment]:
        """The files of a partition in the order of their offsets: those with rows from `start` on, and maybe some before.

        Raises:
            TopicException: there is no such partition, `start` is no number, or the lists of files cannot be read.
        """
        self._check_partition(partition)
        check_kind("start", start, int, TopicException, f" in topic {self.spec.name}")
        if self._loaded is not self._version or start < self._begins[partition]:
            self._load(partition, start)
        return self._segments[partition]

    def _check_partition(self, partition: object) -> None:
        if not is_whole(partition) or not 0 <= partition < self.spec.partitions:  # type: ignore[operator]
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {shown(partition)}."
            )

    def _check_range(self, partition: object, start: object, end: object) -> None:
        self._check_partition(partition)
        for what, offset in (("start", start), ("end", end)):
            if not is_whole(offset):
                raise TopicException(f"The {what} ({shown(offset)}) of rows of topic {self.spec.name} must be an int.")
        if start < 0:  # type: ignore[operator]
            raise TopicException(f"The start ({start}) of rows of topic {self.spec.name} must be at least 0.")

    def _load(self, partition: int, start: int) -> None:
        with self._loading:
            while True:
                version = self._version
                try:
                    self._take(version, partition, start)
                except TopicException:
                    # Lists go when no version names them that is kept: then a newer one has all that they had.
                    self._version = _read_version(self._storage.address, self.spec.name, self.topic_id)
                    if self._version.number == version.number:
                        raise
                else:
                    return

    def _take(self, version: TopicVersion, partition: int, start: int) -> None:
        """Take what the version has beyond what is known: nothing that was there changes."""
        if self._loaded is None:
            self._begins = version.begins(partition, start)
        if start < self._begins[partition]:
            zeros = [0] * self.spec.partitions
            # Others may be reading: all that they see is whole.
            self._segments, self._checked = self._files_after(version, zeros, version.lists), zeros
            self._begins = zeros
        else:
            ends = [files[-1].end if files else at for files, at in zip(self._segments, self._begins, strict=True)]
            found = self._files_after(version, ends, (self._loaded or version).lists)
            new = [
                self._beyond(part, files[-1] if files else None, at)
                for part, files, at in zip(found, self._segments, ends, strict=True)
            ]
            if self._loaded is None or version.starts == self._loaded.starts:
                for known, files in zip(self._segments, new, strict=True):
                    known += files
            else:
                # A run that goes on for months need not know the files that have gone.
                self._segments = [
                    [*known[bisect_right(known, start, key=lambda one: one.end) :], *files]
                    for known, start, files in zip(self._segments, version.starts, new, strict=True)
                ]
        self._loaded = version

    def _beyond(self, files: list[Segment], last: Segment | None, end: int) -> list[Segment]:
        """Of files of a partition those beyond the last one that is known, which is the first of them if they go back so far.

        Raises:
            TopicException: they have other rows there.
        """
        beyond = [one for one in files if one.base >= end]
        if last is not None and len(beyond) < len(files) and files[0] != last:
            raise TopicException(
                f"Topic {self.spec.name}, partition {last.partition}: other rows are before offset {end} than when it was looked at "
                f"before. Maybe {self.address} was put back from an older copy while it was read, and rows were appended in the place of "
                "those that were lost. Put the run folder back from a copy of then, too, or use a new one."
            )
        return beyond

    def _files_after(
        self, version: TopicVersion, ends: Sequence[int], known: Sequence[FileList]
    ) -> list[list[Segment]]:
        try:
            found = list(version.files_after(self._storage, ends, known))
        except (OSError, ValueError) as error:
            raise unreadable(self._storage.locate(self.spec.name), self.spec.name, error) from error
        return [[one for files in pieces for one in files] for pieces in zip(*found, strict=True)]

    def read(self, partition: int, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows `start` (inclusive) to `end` (exclusive) of a partition, without copying them.

        Args:
            partition: number of the partition.
            start: first offset.
            end: offset after the last.
            columns: which columns; None: all.

        Raises:
            CorruptLogException: a file cannot be read, or the topic has no such rows.
            TopicException: they are deleted, or there is no such partition or column.
        """
        self._check_range(partition, start, end)
        if end > start and end > self._version.ends[partition]:
            # Whoever asks for it knows that it has grown.
            self.refresh()
        schema = self.spec.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in self.spec.columns_named(columns)])
        if start >= end:
            return no_rows(schema)
        try:
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
        except CorruptLogException:
            # Maybe they were deleted meanwhile, or another thread knows that they are.
            self.refresh()
            self.check_not_deleted(partition, start)
            raise
        # Of tables without columns Arrow makes one without rows.
        found = pa.concat_tables(slices).select(schema.names)
        return found if len(slices) == 1 else reencoded(found)

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:  # noqa: ARG002 (part of the protocol)
        """`read` with the offsets, which have no gaps here.

        Who asks for rows knows that they are there. A file system that is shared may show them here a moment later.
        """
        self._check_range(partition, start, end)
        until = time.monotonic() + _SEEN_LATER_S
        while end > start and end > self._version.ends[partition] and time.monotonic() < until:
            self.refresh()
            if end > self._version.ends[partition]:
                time.sleep(_LOOK_AGAIN_S)
        return Fetched(self.read(partition, start, end), range(start, max(start, end)))

    def _slices(self, partition: int, start: int, end: int) -> Iterator[pa.Table]:
        segments = self.segments(partition, start)
        self.check_not_deleted(partition, start)
        for number in range(bisect_right(segments, start, key=lambda one: one.end), len(segments)):
            segment = segments[number]
            if segment.base >= end:
                return
            low, high = max(start, segment.base), min(end, segment.end)
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
        table = self._with_its_columns(reencoded(table), segment)
        with self._lock:
            tables[segment] = table
            while len(tables) > _OPEN_FILES:
                tables.popitem(last=False)
        return table

    def _with_its_columns(self, table: pa.Table, segment: Segment) -> pa.Table:
        """The rows of a file with the columns that are seen; those that the topic has gained later are null."""
        schema = self.spec.schema
        if table.schema.equals(schema):
            return table
        whole, seen = self._version.spec.schema, {*schema.names}
        first = whole.names[: self._version.first_columns]
        if not set(first) <= set(table.schema.names) or any(
            field.name in seen and not field.equals(schema.field(field.name)) for field in table.schema
        ):
            place = self._storage.locate(segment.name(self.spec.name))
            raise CorruptLogException(
                f"The file of topic {self.spec.name}, partition {segment.partition}, offset {segment.base} has other "
                f"columns than the topic: {place} has {_columns(table.schema)}, the topic has {_columns(schema)}.",
                self.spec.name,
                segment.partition,
                segment.base,
                place,
            )
        return fitted(table.select([name for name in table.schema.names if name in seen]), schema)

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

    @property
    def poll_interval_ms(self) -> int:
        """20; 200 in an object store, where each look is a request that is paid for."""
        return 200 if is_url(self.address) else 20

    def open(self, name: str, expected_id: str | None = None, columns: Collection[str] | None = None) -> Topic:
        """The topic of that name: `Topic.open`."""
        return Topic.open(self.address, name, expected_id, columns)

    def committed_offsets(self, *_: object) -> dict[tuple[str, int], int]:
        """None: what is committed is in the folder of the run."""
        return {}

    def open_repartition(
        self,
        application_id: str,  # noqa: ARG002 (part of the protocol)
        topology: object,  # noqa: ARG002
        name: str,  # noqa: ARG002
        expected_id: str | None = None,  # noqa: ARG002
    ) -> None:
        """None: what sub-topologies write for others is in the folder of the run."""
        return

    def prepare(
        self, application_id: str, topology: object, tasks: object, clients: object = None, *, is_new: bool = False
    ) -> None:
        """Nothing: the folder of the run makes itself."""

    def permits(self, application_id: str, topology: object) -> None:  # noqa: ARG002 (part of the protocol)
        """None: whoever has the folder of the run is alone."""
        return

    def check_results(self, application_id: str, topology: object, tasks: object) -> None:
        """Nothing: results are in the folder of the run, and checked by whoever reads them."""

    def reset(self, application_id: str, topology: object, *, is_dry: bool = False) -> tuple[str, ...]:  # noqa: ARG002 (part of the protocol)
        """Nothing: all that it has is in the folder of the run."""
        return ()

    def has_results(self, topology: object) -> bool:  # noqa: ARG002 (part of the protocol)
        """No: results go into the folder of the run."""
        return False

    def results(self, application_id: str, topology: object, who: str) -> None:  # noqa: ARG002 (part of the protocol)
        """None: results go into the folder of the run."""
        return


def _read_version(root: str | Path, name: str, expected_id: str | None) -> TopicVersion:
    """The newest version of a topic; what it raises is said by `Topic.open`."""
    check_name("topic", name)
    storage = topics_storage(root)
    try:
        version = newest_version(storage, name)
    except FileNotFoundError:
        is_there = is_url(str(root)) or Path(root).is_dir()
        known = ", ".join(list_topics(root)) or ("none" if is_there else "none, and no such folder")
        place = storage.locate(f"{name}/versions")
        why = ""
        if _has_files(storage, name):
            why = f" Files of it are there, but no description: maybe {place} was lost, or it is still being written."
        elif expected_id is not None:
            why = " It was there before. Maybe it was deleted; or this is another folder of that name: all clients must share topics_root."
        # Of a path from the current folder nobody sees which one that is.
        raise TopicException(
            f"There is no topic {name!r} in {storage.address}; the topics there: {known}.{why}"
        ) from None
    except OSError as error:
        raise unreadable(storage.locate(f"{name}/versions"), name, error) from error
    if expected_id not in (None, version.topic_id):
        raise TopicException(
            f"The topic {name!r} in {root} has the id {version.topic_id}, not {expected_id}: it was written anew while it was "
            "being read. Maybe run the application again with a new run_dir."
        )
    return version


def _has_files(storage: Storage, topic: str) -> bool:
    with suppress(OSError):
        return any(storage.list_below(topic))
    return False


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def list_topics(root: str | Path) -> list[str]:
    """Names of the topics in a folder, sorted.

    Raises:
        TopicException: the root is not supported, or cannot be read.
    """
    storage = topics_storage(root)
    with disk_errors(TopicException, f"The topics in {root} cannot be listed", "Maybe choose another root."):
        names = [entry.removesuffix("/") for entry in storage.list() if entry.endswith("/")]
        return sorted(name for name in names if is_name(name) and look_at_names(storage, name).is_there)
