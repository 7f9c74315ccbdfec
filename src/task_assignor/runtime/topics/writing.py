"""Writing topics: files first, then the version that lists them, so that all rows become visible together or none does.

Anybody may write at the same time: of two that create a topic the second is told, of two that append to it one comes after
the other. Reading is in `topic`.
"""

from __future__ import annotations

import itertools
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.arrow.dictionaries import in_one_piece, reencoded
from task_assignor.runtime.arrow.frames import as_tables, cast_exactly, padded, taken, valid
from task_assignor.runtime.arrow.keys import partitions_of
from task_assignor.runtime.arrow.times import order_of_times
from task_assignor.runtime.errors import CorruptLogException, TopicException
from task_assignor.runtime.storage import Data, Seal, Storage, as_arrow
from task_assignor.runtime.storage.disk import disk_errors, warn
from task_assignor.runtime.topics.changes import change_topic, put_version
from task_assignor.runtime.topics.names import herald_name, look_at_names
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topics.topic import Topic, topics_storage
from task_assignor.runtime.topics.versions import Segment, TopicVersion, life_of
from task_assignor.sdk.checks import check_flag, check_kind
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

_log = logger_of(__name__)
DEFAULT_SEGMENT_ROWS: Final = 1_000_000
_LOOKS: Final = 20
_LOOK_AGAIN_S: Final = 0.05
_HELD_BYTES: Final = 64 << 20
"""Files are made durable together up to this size; they are held in memory until then."""
_OURS: Final = re.compile(
    r"\d+/[0-9a-f]{12}-\d{12,}-[0-9a-f]{12}\.arrow|lists/([0-9a-f-]{36}/)?\d{12,}-[0-9a-f]{12}\.json"
    r"|versions/\d{12,}-[0-9a-f-]{36}\.json|scratch-[0-9a-f]{12}/.+"
)
"""What writers leave in the folder of a topic, also those of a topic before. Whatever else is there, somebody has put there, and
nobody here deletes it."""


_OTHER_UNITS: Final = {"s": (10**9, 10**10 - 1), "us": (10**15, 10**16 - 1), "ns": (10**18, 10**19 - 1)}
"""Between which numbers all times are from about 2001 to 2286 in another unit than milliseconds, in which they are far from today."""


def _disk_errors(spec: TopicSpec, root: str | Path) -> AbstractContextManager[None]:
    return disk_errors(TopicException, f"Topic {spec.name!r} cannot be written to {root}", "Maybe choose another root.")


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


@attrs.frozen
class TopicBuilder:
    """Writes files of a topic that nobody sees until `commit`. Picklable: several processes may write.

    Made by `create` for a new topic, and by `extend` for one that is there.

    Args:
        root: folder of the topics, a path or a URL.
        spec: what the topic is like.
        topic_id: identity of the topic that grows; None: it is a new one.
        since: version of the topic when this began: its files can only be in later ones.
        optional: columns that rows may lack: those that the topic has gained.
        writer: begins the names of the files.
    """

    root: str
    spec: TopicSpec
    topic_id: str | None = None
    since: int = -1
    optional: tuple[str, ...] = ()
    writer: str = attrs.field(factory=_new_id)

    @classmethod
    def create(cls, root: str | Path, spec: TopicSpec) -> TopicBuilder:
        """Begin a topic.

        Raises:
            TopicException: a topic of this name exists, the folder cannot be read, or that is no `TopicSpec`.
        """
        check_kind("spec", spec, TopicSpec, TopicException, " of a new topic")
        builder = cls(topics_storage(root).address, spec)
        with _disk_errors(spec, root):
            builder._check_is_new()
        return builder

    @classmethod
    def extend(cls, root: str | Path, name: str, new_columns: Iterable[pa.Field] = ()) -> TopicBuilder:
        """Begin to append rows to a topic.

        Args:
            root: folder of the topics, a path or a URL.
            name: its name.
            new_columns: columns that it gains, unless it has them; they are null in the rows that are there.

        Raises:
            TopicException: there is no such topic, it cannot be read, or it cannot have these columns.
        """
        topic = Topic.open(root, name)
        spec = _with_columns(topic.spec, new_columns)
        gained = tuple(spec.schema.names[topic.now.first_columns :])
        return cls(topics_storage(root).address, spec, topic.topic_id, topic.version, gained)

    @property
    def storage(self) -> Storage:
        """Where the files go."""
        return topics_storage(self.root)

    @property
    def scratch(self) -> str:
        """A folder in the storage for what is needed until `commit`; who does not get there leaves it to the next."""
        return f"{self.spec.name}/scratch-{self.writer}"

    def write(self, partition: int, row: int, table: pa.Table) -> Segment:
        """Write rows of a partition as one file; of files with the same place the one that is committed counts.

        Args:
            partition: number of the partition.
            row: which row the first one is among those that this builder writes to the partition; from 0.
            table: the rows, with the columns of the topic (cast to its types where that loses nothing).

        Returns:
            The file, for `commit`; without rows there is none, and `commit` passes over it.

        Raises:
            TopicException: the columns do not fit, there is no such partition, or the disk says no.
        """
        (segment,) = self.write_all([(partition, row, table)])
        return segment

    def write_all(self, pieces: Iterable[tuple[int, int, pa.Table]]) -> list[Segment]:
        """`write` for many: they are made durable together, which is much quicker.

        Args:
            pieces: partition, row, table of each.

        Raises:
            TopicException: as `write`.
        """
        segments: list[Segment] = []
        pending: dict[str, Data] = {}
        held = 0
        with _disk_errors(self.spec, self.root):
            for partition, row, table in pieces:
                segment, data = self._seal(partition, row, table)
                segments.append(segment)
                if data is not None:
                    pending[segment.name(self.spec.name)] = data
                    held += data.size
                if held > _HELD_BYTES:
                    self.storage.put_all(pending)
                    pending, held = {}, 0
            self.storage.put_all(pending)
        return segments

    def _seal(self, partition: int, row: int, table: pa.Table) -> tuple[Segment, pa.Buffer | None]:
        if not 0 <= partition < self.spec.partitions:
            raise TopicException(
                f"Topic {self.spec.name} has partitions 0 to {self.spec.partitions - 1}, not {partition}."
            )
        if not table.num_rows:
            return Segment(partition, row, Seal(0, 0, ""), ""), None
        rows = fit_to_schema(table, self.spec.schema, f"topic {self.spec.name}", self.optional)
        data, seal = as_arrow(in_one_piece(rows))
        # A try of its own, so that a late one of an executor that was given up cannot touch what counts.
        return Segment(partition, row, seal, f"{self.writer}-{row:012d}-{_new_id()}.arrow"), data

    def commit(self, segments: Iterable[Segment]) -> Topic:
        """Check that the files are there and follow each other, and make all rows visible.

        Args:
            segments: what the calls of `write` gave, in any order.

        Returns:
            The topic, as it is then.

        Raises:
            TopicException: a topic of this name has appeared, the topic has gone, or the disk says no.
            CorruptLogException: files do not follow each other, or cannot be seen from here.
        """
        files: list[list[Segment]] = [[] for _ in range(self.spec.partitions)]
        for segment in sorted(segments, key=lambda segment: (segment.partition, segment.base)):
            if segment.seal.rows:
                files[segment.partition].append(segment)
        with _disk_errors(self.spec, self.root):
            try:
                if self.topic_id is None:
                    self._check_is_new()
                Topic(self.root, self._first_version("", files)).check()
            except BaseException as error:
                self.abort()
                if self.topic_id is None and isinstance(error, CorruptLogException):
                    self._check_is_new()  # who has made the topic meanwhile deletes what others left
                raise
            return self._create(files) if self.topic_id is None else self._append(files, self.topic_id)

    def _create(self, files: Sequence[Sequence[Segment]]) -> Topic:
        # What others left who tried and failed; nobody who may append to the topic can have begun yet.
        counted = {segment.name(self.spec.name) for partition in files for segment in partition}
        start = len(f"{self.spec.name}/")
        left = [
            name
            for name in self.storage.list_below(self.spec.name)
            if name not in counted and _OURS.fullmatch(name, start)
        ]
        version = self._first_version(str(uuid.uuid4()), files)
        try:
            put_version(self.storage, version)
        except FileExistsError:
            self._give_up(version)
            self._check_is_new()
            raise
        topic = Topic.open(self.root, self.spec.name)
        if topic.topic_id != version.topic_id:
            # Somebody has deleted this one meanwhile, and somebody else has written it anew.
            self._give_up(version)
            raise self._is_taken()
        try:
            self.storage.delete(left)
        except OSError as error:
            warn(_log, error, "What others have left of topic %r in %s could not be deleted", self.spec.name, self.root)
        return topic

    def _give_up(self, version: TopicVersion) -> None:
        self.storage.delete([herald_name(self.spec.name, version.topic_id)])
        self.abort()

    def _append(self, files: Sequence[Sequence[Segment]], topic_id: str) -> Topic:
        mine = {segment.file: segment.name(self.spec.name) for partition in files for segment in partition}

        def following(topic: Topic) -> TopicVersion | None:
            # Somebody else may have added columns meanwhile.
            grown = _with_columns(topic.spec, self.spec.schema)
            if grown == topic.spec and mine.keys() <= topic.now.names_since(self.storage, self.since):
                return None
            if topic.version > self.since and not all(map(self.storage.is_there, mine.values())):
                # They have counted, and are deleted since (`delete_records`): nobody names them any more.
                return None
            return topic.now.with_files(files, grown)

        try:
            return change_topic(self.root, self.spec.name, topic_id, following)
        except TopicException:
            with suppress(TopicException, OSError):
                life = life_of(self.storage, self.spec.name)
                # Where another topic is there, they would stay as long as that.
                if life is not None and life.topic_id not in (None, topic_id):
                    self.abort()
            raise

    def _first_version(self, topic_id: str, files: Sequence[Sequence[Segment]]) -> TopicVersion:
        return TopicVersion(self.spec, topic_id, 0, (), files, len(self.spec.schema), (0,) * self.spec.partitions)

    def abort(self) -> None:
        """Remove what was written, before `commit`, which does so itself where nothing became visible.

        Where it cannot know (the disk said no while the version was written), files stay: they may count. What cannot be
        removed takes up space.
        """
        try:
            mine = [
                name
                for partition in range(self.spec.partitions)
                for name in self.storage.list(f"{self.spec.name}/{partition}")
                if name.rpartition("/")[2].startswith(f"{self.writer}-")
            ]
            self.storage.delete(mine)
        except OSError as error:
            _log.warning("What was written to topic %r in %s is not removed: %s", self.spec.name, self.root, error)

    def _check_is_new(self) -> None:
        for _ in range(_LOOKS):
            names = look_at_names(self.storage, self.spec.name)
            if names.is_there:
                raise self._is_taken()
            if not names.has_lost_first:
                return
            # Who appends to a topic that was deleted just now takes its version back.
            time.sleep(_LOOK_AGAIN_S)
        place = self.storage.locate(self.spec.name)
        raise TopicException(
            f"Versions of a topic {self.spec.name!r} are in {self.root}, but not the first one, which says that it is there. Maybe "
            f"it was lost: restore it from a copy. Maybe somebody appended while the topic was deleted: delete {place} once more."
        )

    def _is_taken(self) -> TopicException:
        place = self.storage.locate(self.spec.name)
        return TopicException(
            f"There already is a topic {self.spec.name!r} in {self.root}. Maybe append to it, or delete {place} first."
        )


def _with_columns(spec: TopicSpec, fields: Iterable[pa.Field]) -> TopicSpec:
    """The spec with columns that it may lack.

    Raises:
        TopicException: a column is there with another type, or cannot be null in older rows.
    """
    schema, names = spec.schema, {*spec.schema.names}
    fields = list(fields) if isinstance(fields, Iterable) else [fields]
    for field in fields:
        check_kind("new column", field, pa.Field, TopicException, f" of topic {spec.name}")
        if field.name in names:
            known = schema.field(field.name)
            if known.type != field.type:
                raise TopicException(
                    f"The column {field.name!r} of topic {spec.name!r} has type {known.type} and cannot become "
                    f"{field.type}. Maybe give it another name, or write a new topic."
                )
        elif not field.nullable or pa.types.is_null(field.type):
            problem = "has no type, only nulls" if pa.types.is_null(field.type) else "must not be null"
            raise TopicException(
                f"The topic {spec.name!r} cannot gain the column {field.name!r}: it {problem}. Older rows have null "
                "there, so it must be nullable and have a type."
            )
        else:
            schema = schema.append(field.remove_metadata())
            names.add(field.name)
    return attrs.evolve(spec, schema=schema)


def fit_to_schema(table: pa.Table, schema: pa.Schema, what: str, optional: Collection[str] = ()) -> pa.Table:
    """The table with exactly the columns and types of the schema, in its order.

    Args:
        table: the rows.
        schema: the columns.
        what: what the rows are for, for the message.
        optional: columns that may be missing, and are null then.

    Raises:
        TopicException: a column is missing or a value does not fit; names it.
    """
    table = padded(
        table, pa.schema([*table.schema, *(schema.field(x) for x in optional if x not in table.schema.names)])
    )
    there = {*table.schema.names}
    missing = [name for name in schema.names if name not in there]
    if missing:
        raise TopicException(f"The rows for {what} have no columns {missing}; they have {table.schema.names}.")
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = cast_exactly(column, field.type)
            except pa.ArrowException as error:
                raise TopicException(
                    f"The column {field.name!r} for {what} has type {column.type} and cannot be cast to {field.type}: {error}"
                ) from error
        if not field.nullable and valid(column) is not None:
            raise TopicException(f"The column {field.name!r} for {what} is declared as never null, but has nulls.")
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
        root: folder of the topics, a path or a URL.
        name: name of the topic.
        rows: an Arrow table, a pandas or polars DataFrame, or an iterable of these with equal columns; within a
            partition their order is kept.
        partitions: number of partitions.
        key: key columns.
        timestamp: column with the time of the event: a timestamp, or an integer of milliseconds (of numbers that look like
            another unit a warning tells); None: it has none.
        racks: racks per partition, or None.
        sort_by_timestamp: sort each table by the timestamp first: a table that was not recorded in order of time
            then reads like a stream without late records.
        segment_rows: at most so many rows per file.

    Returns:
        The topic.

    Raises:
        TopicException: a topic of this name exists, the description or the rows are not allowed, or
            the folder cannot be written.
    """
    check_flag("sort_by_timestamp", sort_by_timestamp, error=TopicException)
    first, tables = _first_of(rows, name, segment_rows)
    spec = TopicSpec(name, partitions, first.schema.remove_metadata(), key, timestamp, racks)
    return _write(TopicBuilder.create(root, spec), first, tables, sort_by_timestamp, segment_rows)


def append_topic(
    root: str | Path,
    name: str,
    rows: Any,
    *,
    sort_by_timestamp: bool = False,
    segment_rows: int = DEFAULT_SEGMENT_ROWS,
    add_columns: bool = False,
) -> Topic:
    """Append rows to a topic: all of them become visible at once, after those that are there, or none does.

    Several may append at the same time, also from several machines: their rows come after each other, never mixed. A
    run that has read the topic goes on with the new rows when it is run again.

    Args:
        root: folder of the topics, a path or a URL.
        name: name of the topic.
        rows: as for `write_topic`, with the columns of the topic (cast to its types where that loses nothing). Columns
            that it has gained later may be missing: they are null then.
        sort_by_timestamp: sort each table by the timestamp first.
        segment_rows: at most so many rows per file.
        add_columns: the topic gains the columns of the rows that it does not have; they are null in the rows before.
            Who reads it at the moment does not see them; a run sees them when it is begun or goes on.

    Returns:
        The topic with the new rows.

    Raises:
        TopicException: there is no such topic, the rows do not fit, or the folder cannot be written. The topic is then
            as it was.
    """
    check_flag("sort_by_timestamp", sort_by_timestamp, error=TopicException)
    check_flag("add_columns", add_columns, error=TopicException)
    first, tables = _first_of(rows, name, segment_rows)
    new = first.schema.remove_metadata() if add_columns else ()
    known = Topic.open(root, name).spec.schema.names if add_columns else ()
    builder = TopicBuilder.extend(root, name, [field for field in new if field.name not in known])
    return _write(builder, first, tables, sort_by_timestamp, segment_rows)


def _first_of(rows: Any, name: str, segment_rows: int) -> tuple[pa.Table, Iterator[pa.Table]]:
    if type(segment_rows) is not int or segment_rows < 1:
        raise TopicException(f"The segment_rows ({shown(segment_rows)}) must be an int of at least 1.")
    tables = as_tables(rows, f"topic {shown(name)}")
    first = next(tables, None)
    if first is None:
        raise TopicException(f"There are no tables to write to topic {name!r}. Maybe write one without rows.")
    return first, tables


def _write(builder: TopicBuilder, first: pa.Table, tables: Iterator[pa.Table], sort: bool, segment_rows: int) -> Topic:
    spec = builder.spec
    if sort and spec.timestamp is None:
        raise TopicException(f"Topic {spec.name!r} cannot be sorted by timestamp: it has no timestamp column.")
    try:
        segments: list[Segment] = []
        ends = [0] * spec.partitions
        _warn_of_other_units(spec, first)
        for table in itertools.chain([first], tables):
            segments += builder.write_all(_pieces(spec, builder.optional, ends, table, sort, segment_rows))
    except pa.ArrowNotImplementedError as error:
        builder.abort()
        raise TopicException(
            f"The rows for topic {spec.name!r} have a type that Arrow cannot write or sort: {error}. Maybe cast the column to "
            "another one."
        ) from error
    except BaseException:
        builder.abort()
        raise
    return builder.commit(segments)


def _warn_of_other_units(spec: TopicSpec, rows: pa.Table) -> None:
    """Numbers as times are milliseconds; others would not be noticed, but windows would be too wide or too narrow by them."""
    if spec.timestamp not in rows.schema.names or not pa.types.is_integer(rows.schema.field(spec.timestamp).type):
        return
    found = pc.min_max(rows.column(spec.timestamp)).as_py()
    for unit, (low, high) in _OTHER_UNITS.items():
        if found["min"] is not None and low <= found["min"] and found["max"] <= high:
            _log.warning(
                "The times of topic %r, numbers from %d to %d in its column %r, are taken for milliseconds since 1970, but look "
                "like another unit. Maybe cast the column to pa.timestamp(%r).",
                *(spec.name, found["min"], found["max"], spec.timestamp, unit),
            )


def _pieces(
    spec: TopicSpec, optional: Collection[str], ends: list[int], rows: pa.Table, sort: bool, segment_rows: int
) -> Iterator[tuple[int, int, pa.Table]]:
    """Cut a table into files: partition, row, table of each; moves the ends of the partitions on."""
    known = {*spec.schema.names}
    strange = [name for name in rows.schema.names if name not in known]
    if strange:
        raise TopicException(
            f"The rows for topic {spec.name!r} have columns {strange}, which it does not have; its columns are "
            f"{spec.schema.names}. Maybe leave them out, or have the topic gain them: append_topic(..., add_columns=True)."
        )
    rows = reencoded(fit_to_schema(rows, spec.schema, f"topic {spec.name}", optional))
    partition = partitions_of(rows, spec.key, spec.partitions)
    if sort and spec.timestamp is not None:
        order = np.lexsort((order_of_times(rows.column(spec.timestamp)), partition))
    else:
        order = np.argsort(partition, kind="stable")
    bounds = np.searchsorted(partition[order], np.arange(spec.partitions + 1))
    for number in range(spec.partitions):
        for begin in range(int(bounds[number]), int(bounds[number + 1]), segment_rows):
            chosen = order[begin : min(begin + segment_rows, int(bounds[number + 1]))]
            yield number, ends[number], taken(rows, pa.array(chosen))
            ends[number] += len(chosen)
