"""What a version of a topic says: what the topic is like, and which files it has. Where they are read is in `topic`.

A version lists the files of the last appends itself. Those before are in lists, `<topic>/lists/<topic id>/<version>-<id>.json`, which never
change; a version names them with the offsets up to which they go. When a version would become long, what it lists
becomes a list, and lists of like length become one, as in `run_folder.checkpoints`: so an append writes little however many files there are, and
who has read a topic once reads of the lists only what is new.

How versions and lists are named, and which topic is there, is in `names`.

Rows before the `starts` of a version are deleted. Their files are named on until they are deleted, too: so who has appended them,
and was not told, finds either that they are named or that they have gone, and knows that they have counted.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.machines.encoding import VERSION, Count, Value
from task_assignor.runtime.storage import Seal, Storage, as_document, open_document
from task_assignor.runtime.storage.disk import advice_to_read
from task_assignor.runtime.topics.names import lists_folder, look_at_names, version_name
from task_assignor.runtime.topics.spec import TopicSpec

FORMAT_VERSION: Final = 6
FORMER_FORMAT_VERSION: Final = 4
"""That of topics without an id in the names of their versions; they keep it."""
LISTED_APPENDS: Final = 32
"""So many appends a version lists itself,"""
LISTED_FILES: Final = 512
"""and at most so many files."""
KEPT_VERSIONS: Final = 20
"""Versions of a topic that are kept, beside the first: who reads one finds it, however quickly others follow."""


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


Files = Sequence[Sequence[Segment]]
"""Per partition the files in the order of their offsets."""


class FileList(Value, frozen=True, array_like=True):
    """A list of files that a version names.

    Args:
        name: its name in the storage of the topics.
        last: the newest version of which it lists files.
        count: how many it lists.
        ends: per partition the offset after the last row up to there.
    """

    name: str
    last: Count
    count: Count
    ends: tuple[Count, ...]


class _Listed(Value, frozen=True, array_like=True):
    """A `Segment` without its partition."""

    file: str
    base: Count
    rows: Count
    size: Count
    checksum: str


_ListedFiles = tuple[tuple[_Listed, ...], ...]


class _List(Value, frozen=True):
    """The content of a list."""

    id: uuid.UUID
    files: _ListedFiles


class _Column(Value, frozen=True):
    name: str
    type: str


class TopicDocument(Value, frozen=True, tag_field=VERSION, tag=FORMAT_VERSION):
    """The content of a version; `columns` are for people, programs read the exact `arrow_schema` (serialised, in base64)."""

    name: str
    partitions: Count
    key: tuple[str, ...]
    timestamp: str | None
    columns: tuple[_Column, ...]
    arrow_schema: str
    racks: tuple[tuple[str, ...] | None, ...] | None
    id: uuid.UUID
    version: Count
    first_columns: Count
    lists: tuple[FileList, ...]
    files: _ListedFiles
    starts: tuple[Count, ...] = ()


class FormerTopicDocument(TopicDocument, frozen=True, tag_field=VERSION, tag=FORMER_FORMAT_VERSION):
    """The content of a version without an id in its name: who knows nothing of such names finds the others, and must not read them."""


class FormerShedTopicDocument(TopicDocument, frozen=True, tag_field=VERSION, tag=FORMER_FORMAT_VERSION + 1):
    """The same with `starts`: who does not know of deleted rows must not read it, nor append without them."""


@attrs.frozen
class TopicVersion:
    """A topic as it is at some time.

    Args:
        spec: what it is like.
        topic_id: its identity; a topic that is written anew has another one.
        number: how often it has grown.
        lists: the files of the older appends, in order.
        recent: those of the others.
        first_columns: how many columns it had at first; rows may lack the others, which are null there.
        starts: per partition the offset before which rows are deleted.
        is_former: it is of a topic of a former format, without an id in the names of its versions.
    """

    spec: TopicSpec
    topic_id: str
    number: int
    lists: tuple[FileList, ...]
    recent: Files
    first_columns: int
    starts: tuple[int, ...]
    is_former: bool = False

    @property
    def id_in_names(self) -> str | None:
        """What the names of its topic have of its identity; None: nothing."""
        return None if self.is_former else self.topic_id

    @property
    def name(self) -> str:
        """Its name in the storage of the topics."""
        return version_name(self.spec.name, self.number, self.id_in_names)

    @property
    def ends(self) -> list[int]:
        """Per partition the offset after the last row."""
        before = self.lists[-1].ends if self.lists else self.starts
        return [files[-1].end if files else end for files, end in zip(self.recent, before, strict=True)]

    @property
    def is_long(self) -> bool:
        """What it lists itself should become a list."""
        appends = self.number - (self.lists[-1].last if self.lists else -1)
        return appends > LISTED_APPENDS or sum(map(len, self.recent)) > LISTED_FILES

    def with_files(self, files: Files, spec: TopicSpec) -> TopicVersion:
        """The next version, with files that were written as if the partitions had been empty."""
        recent = [
            [*before, *(attrs.evolve(one, base=one.base + end) for one in new)]
            for before, new, end in zip(self.recent, files, self.ends, strict=True)
        ]
        return attrs.evolve(self, spec=spec, number=self.number + 1, recent=recent)

    def without(self, before: Mapping[int, int]) -> TopicVersion:
        """The next version, without the rows before these offsets of partitions; `dead_files` of it can be deleted."""
        starts = tuple(max(start, before.get(number, 0)) for number, start in enumerate(self.starts))
        # Their files have gone: that tells who has appended them, and still wonders, that they have counted.
        dead = [found for found in self.lists if self._is_dead(found.ends)]
        return attrs.evolve(self, number=self.number + 1, starts=starts, lists=self.lists[len(dead) :])

    def _is_dead(self, ends: Sequence[int]) -> bool:
        return all(end <= start for end, start in zip(ends, self.starts, strict=True))

    def dead_files(self, storage: Storage) -> set[str]:
        """The files that it names and that have only rows which are deleted, by their names in the storage."""
        files = (*(self.read(storage, found) for found in self.lists), self.recent)
        every = (one for partitions in files for found in partitions for one in found)
        return {one.name(self.spec.name) for one in every if one.end <= self.starts[one.partition]}

    def shortened(self, storage: Storage) -> TopicVersion:
        """The same, with what it lists itself in a list, which is written; nobody knows it before the version is."""
        files: list[list[Segment]] = [list(found) for found in self.recent]
        lists = list(self.lists)
        while lists and lists[-1].count <= sum(map(len, files)):
            files = [[*before, *found] for before, found in zip(self.read(storage, lists.pop()), files, strict=True)]
        name = f"{lists_folder(self.spec.name, self.id_in_names)}/{self.number:012d}-{uuid.uuid4().hex[:12]}.json"
        storage.put(name, as_document(_List(uuid.UUID(self.topic_id), _listed(files))))
        new = FileList(name, self.number, sum(map(len, files)), tuple(self.ends))
        return attrs.evolve(self, lists=(*lists, new), recent=[[] for _ in files])

    def read(self, storage: Storage, found: FileList) -> list[list[Segment]]:
        """The files of a list.

        Raises:
            OSError: it cannot be read.
            ValueError: it is not what was written.
        """
        document = open_document(storage, found.name, _List)
        files = _segments(document.files)
        is_it = all(part[-1].end == end for part, end in zip(files, found.ends, strict=True) if part)
        if str(document.id) != self.topic_id or not is_it:
            raise ValueError(f"{storage.locate(found.name)} is the list of something else")
        return files

    def begins(self, partition: int, start: int) -> list[int]:
        """Per partition the offset from which on files are to be known, if one wants the rows of one from `start` on."""
        before = [found.ends for found in self.lists if found.ends[partition] <= start]
        return list(before[-1]) if before else [0] * self.spec.partitions

    def files_after(
        self, storage: Storage, ends: Sequence[int], known: Sequence[FileList]
    ) -> Iterator[list[list[Segment]]]:
        """The files with rows from these offsets on, per partition; those of each list, then the others.

        Those that end there are among them if they are in what is read.

        Args:
            storage: that of the topics.
            ends: per partition the offset.
            known: lists that need not be read for what is before.
        """

        def new(files: Files) -> list[list[Segment]]:
            return [
                [one for one in part if one.end >= end and one.end > start]
                for part, end, start in zip(files, ends, self.starts, strict=True)
            ]

        for found in self.lists:
            is_old = all(
                last <= max(end, start) for last, end, start in zip(found.ends, ends, self.starts, strict=True)
            )
            if not is_old or found not in known:
                yield new(self.read(storage, found))
        yield new(self.recent)

    def names_since(self, storage: Storage, version: int) -> set[str]:
        """Names of the files of all versions after one, and maybe of others."""
        newer = [self.read(storage, found) for found in self.lists if found.last > version]
        return {one.file for files in (*newer, self.recent) for partition in files for one in partition}

    def document(self) -> TopicDocument:
        """The content of the version."""
        spec = self.spec
        former = FormerShedTopicDocument if any(self.starts) else FormerTopicDocument
        kind = former if self.is_former else TopicDocument
        return kind(
            spec.name,
            spec.partitions,
            spec.key,
            spec.timestamp,
            tuple(_Column(field.name, str(field.type)) for field in spec.schema),
            base64.b64encode(spec.schema.serialize().to_pybytes()).decode("ascii"),
            None if spec.racks is None else tuple(None if rack is None else tuple(sorted(rack)) for rack in spec.racks),
            uuid.UUID(self.topic_id),
            self.number,
            self.first_columns,
            self.lists,
            _listed(self.recent),
            self.starts if any(self.starts) else (),
        )

    @classmethod
    def of(cls, document: TopicDocument, name: str, number: int) -> TopicVersion:
        """What has this content.

        Raises:
            ValueError, TopicException, pyarrow.ArrowException: it is not that of this topic and number.
        """
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document.arrow_schema)))
        spec = TopicSpec(document.name, document.partitions, schema, document.key, document.timestamp, document.racks)
        if (document.name, document.version) != (name, number):
            raise ValueError(f"it describes the topic {spec.name!r}, version {document.version}")
        if len(document.files) != spec.partitions:
            raise ValueError(f"it has files for {len(document.files)} partitions, not {spec.partitions}")
        starts = document.starts or (0,) * spec.partitions
        if len(starts) != spec.partitions:
            raise ValueError(f"it has starts for {len(starts)} partitions, not {spec.partitions}")
        recent = _segments(document.files)
        version = cls(
            spec, str(document.id), number, document.lists, recent, document.first_columns, starts, _is_former(document)
        )
        for partition, (start, end) in enumerate(zip(starts, version.ends, strict=True)):
            if start > end:
                raise ValueError(f"the rows of partition {partition} begin at offset {start}, but end at {end}")
        return version


def _listed(files: Files) -> _ListedFiles:
    return tuple(
        tuple(_Listed(one.file, one.base, one.seal.rows, one.seal.size, one.seal.checksum) for one in partition)
        for partition in files
    )


def _segments(files: _ListedFiles) -> list[list[Segment]]:
    return [
        [Segment(partition, one.base, Seal(one.rows, one.size, one.checksum), one.file) for one in found]
        for partition, found in enumerate(files)
    ]


@attrs.frozen
class Life:
    """The topic that is there.

    Args:
        topic_id: its identity; None: it is one of a former format, or the only version says it.
        numbers: those of its versions that are there, in order.
    """

    topic_id: str | None
    numbers: tuple[int, ...]


def life_of(storage: Storage, topic: str) -> Life | None:
    """Which topic is there; None: there is none.

    Raises:
        TopicException: its first version cannot be read, and the names of the others do not tell.
        OSError: it cannot be looked for.
    """
    names = look_at_names(storage, topic)
    if not names.is_there:
        return None
    topic_id = names.sure_id
    if topic_id is None and names.named and names.plain[0] == 0:
        # Somebody who was late has left something, or the herald was lost.
        name = version_name(topic, 0, None)
        try:
            first = open_document(storage, name, TopicDocument)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise unreadable(storage.locate(name), topic, error) from error
        topic_id = None if _is_former(first) else str(first.id)
    return Life(topic_id, names.numbers(topic_id))


def _is_former(document: TopicDocument) -> bool:
    return isinstance(document, FormerTopicDocument | FormerShedTopicDocument)


def versions_of(storage: Storage, topic: str) -> list[int]:
    """The numbers of the versions that are there of the topic that is there, in order."""
    life = life_of(storage, topic)
    return [] if life is None else list(life.numbers)


def newest_version(storage: Storage, topic: str) -> TopicVersion:
    """The version that counts.

    Raises:
        FileNotFoundError: there is none.
        TopicException: it cannot be read.
        OSError: it cannot be looked for.
    """
    while True:
        life = life_of(storage, topic)
        if life is None:
            raise FileNotFoundError(topic)
        number = life.numbers[-1]
        name = version_name(topic, number, life.topic_id)
        try:
            return TopicVersion.of(open_document(storage, name, TopicDocument), topic, number)
        except FileNotFoundError:
            # Who writes newer versions removes older ones.
            if life_of(storage, topic) == life:
                raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(storage.locate(name), topic, error) from error


def unreadable(place: str, topic: str, error: Exception) -> TopicException:
    """The error for a description of a topic that cannot be read."""
    return TopicException(
        f"The description of topic {topic!r} cannot be read: {place} ({error}). "
        f"{advice_to_read(error, 'Maybe restore the file from a copy, or write the topic again.')}"
    )
