"""Topics that many change and read at the same time, in an order that a seed decides; and what must hold of them then."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Topic,
    TopicException,
    append_topic,
    delete_records,
    write_topic,
)
from task_assignor.runtime.storage import open_document
from task_assignor.runtime.topics import changes as topic_changes
from task_assignor.runtime.topics import topic as topics
from task_assignor.runtime.topics import versions
from task_assignor.runtime.topics import writing as topic_writing
from task_assignor.runtime.topics.names import lists_folder, version_name
from task_assignor.runtime.topics.topic import list_topics
from tests.runtime.interleaving import World
from tests.runtime.support import make_former

ROOT: Final = "/interleaved"
TOPIC: Final = "t"
PARTITIONS: Final = 2
DISK: Final = "Input/output error"


def _check_told(error: TopicException, *expected: str) -> None:
    if not any(text in str(error) for text in expected):
        raise AssertionError(f"nothing explains: {error}") from error


def number_of(name: str) -> int | None:
    """The number of a version by its name; None: it is a herald."""
    number, _, topic_id = name.rpartition("/")[2].removesuffix(".json").partition("-")
    return None if topic_id and not int(number) else int(number)


@attrs.define(eq=False)
class Append:
    """Rows that somebody appends, or creates the topic with.

    Args:
        numbers: the rows.
        columns: the columns that they have beyond the first ones.
        began: at this step.
        ended: at this step; None: it died, or was told of an error.
    """

    numbers: tuple[int, ...]
    columns: tuple[str, ...]
    began: int
    ended: int | None = None


class TopicsWorld(World):
    """A name for topics and all who use it.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ROOT)
        self.kept = self.chance.choice((2, 3, 5, 20))
        self.listed = self.chance.choice((1, 2, 3, 8))
        self.deleted = [0] * PARTITIONS
        """Per partition up to where somebody has begun to delete rows, of whichever topic is there then."""
        self._numbers = itertools.count()

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        super()._patch(patch)
        actors = self.actors
        patch.setattr(versions, "KEPT_VERSIONS", self.kept)
        patch.setattr(topic_changes, "KEPT_VERSIONS", self.kept)
        patch.setattr(versions, "LISTED_APPENDS", self.listed)
        patch.setattr(versions, "LISTED_FILES", 3 * self.listed)
        patch.setattr(topics, "time", SimpleNamespace(monotonic=lambda: actors.now / 200))
        patch.setattr(topic_writing, "time", SimpleNamespace(sleep=lambda seconds: actors.point(int(200 * seconds))))

    def _begin(self) -> None:
        """The topic is there, maybe in its former format, in which the version before another one is needed."""
        self._create()
        if self.chance.random() < 0.3 and self.kept > 2:
            make_former(self.storage, TOPIC)

    def _add_users(self, *, most_deleters: int, least_readers: int) -> tuple[int, float]:
        """Those who append, delete and read; gives how often each does so, and how likely they die at a step."""
        chance = self.chance
        often, dies = chance.choice((3, 8, 25)), chance.choice((0, 0, 0.002, 0.01))
        self._add(chance.randint(1, 4), "appender", lambda: self._appends(often), dies)
        self._add(chance.choice((0, 0, *range(1, most_deleters + 1))), "deleter", lambda: self._deletes(often), dies)
        self._add(chance.randint(least_readers, 3), "reader", lambda: self._reads(often))
        self.storage.fails = chance.choice((0, 0, 0, 0.01))
        return often, dies

    def _rows(self, columns: Iterable[str] = ()) -> pa.Table:
        numbers = [next(self._numbers) for _ in range(self.chance.randint(1, 3))]
        more = {name: [f"{name}{number}" for number in numbers] for name in columns}
        return pa.table({"key": [f"k{number}" for number in numbers], "n": numbers, **more})

    @abstractmethod
    def _create(self) -> None:
        """Create the topic."""

    @abstractmethod
    def _appends(self, often: int) -> None:
        """Append so often."""

    @abstractmethod
    def _deletes(self, often: int) -> None:
        """Delete rows so often."""

    @abstractmethod
    def _reads(self, often: int) -> None:
        """Read so often."""


class TopicWorld(TopicsWorld):
    """A topic that stays, and all who use it.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.appends: list[Append] = []
        self.newest = -1
        """The newest version that there ever was."""
        self.log: list[list[int]] = [[] for _ in range(PARTITIONS)]
        """Per partition the rows that newest versions have named, also if they are deleted by now."""
        self.places: list[dict[int, versions.Segment]] = [{} for _ in range(PARTITIONS)]
        """Per partition the files of these rows by their offsets."""
        self.ends = [0] * PARTITIONS
        """Those of the topics that calls have returned, which are durable: who looks then must see so much."""
        self.is_there = False

    def _add_actors(self) -> None:
        creators = self.chance.choice((0, 0, 2, 3))
        if not creators:
            self._begin()
        often, dies = self._add_users(most_deleters=2, least_readers=0)
        self._add(creators, "creator", lambda: self._creates(often), dies)

    # What the actors do.

    @contextmanager
    def _written(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = self._rows(columns)
        append = Append(tuple(rows.column("n").to_pylist()), tuple(columns), self.actors.now)
        self.appends.append(append)
        yield rows
        append.ended = self.actors.now

    def _returned(self, topic: Topic) -> None:
        self.ends = [max(pair) for pair in zip(self.ends, topic.end_offsets(), strict=True)]

    def _create(self) -> None:
        with self._written(()) as rows:
            topic = write_topic(ROOT, TOPIC, rows, partitions=PARTITIONS, key=["key"])
            self.is_there = True
        self._returned(topic)

    def _creates(self, often: int) -> None:
        try:
            self._create()
        except TopicException as error:
            _check_told(error, "There already is a topic", DISK)
        self._appends(often)

    def _appends(self, often: int) -> None:
        for _ in range(self.chance.randint(1, often)):
            self.actors.point()
            known = self.is_there
            try:
                self._append()
            except TopicException as error:
                _check_told(error, DISK, *(() if known else ("There is no topic",)))

    def _append(self) -> None:
        columns = [name for name in ("a", "b") if self.chance.random() < 0.1]
        with self._written(columns) as rows:
            topic = append_topic(ROOT, TOPIC, rows, add_columns=bool(columns))
        self._returned(topic)

    def _deletes(self, often: int) -> None:
        for _ in range(self.chance.randint(1, often)):
            self.actors.point()
            if not self.is_there:
                continue
            try:
                topic = Topic.open(ROOT, TOPIC)
                before = {
                    part: self.chance.randint(topic.start_offsets()[part], end)
                    for part, end in enumerate(topic.end_offsets())
                    if self.chance.random() < 0.7
                }
                self.deleted = [max(end, before.get(part, 0)) for part, end in enumerate(self.deleted)]
                topic = delete_records(ROOT, TOPIC, before)
            except TopicException as error:
                _check_told(error, DISK)
                continue
            for part, offset in before.items():
                assert topic.start_offsets()[part] >= offset

    def _reads(self, often: int) -> None:
        topic: Topic | None = None
        for _ in range(2 * self.chance.randint(1, often)):
            self.actors.point()
            if not self.is_there:
                continue
            if self.chance.random() < 0.2:
                assert list_topics(ROOT) == [TOPIC]
            least = list(self.ends)
            if topic is None or self.chance.random() < 0.2:
                topic = Topic.open(ROOT, TOPIC)
            else:
                before = topic.end_offsets()
                topic.refresh()
                least = [max(pair) for pair in zip(least, before, strict=True)]
            ends = topic.end_offsets()
            assert all(end >= known for end, known in zip(ends, least, strict=True)), (ends, least)
            part = self.chance.randrange(PARTITIONS)
            # Somebody else may know of more than this one has seen.
            start, end = sorted(self.chance.choices(range(self.ends[part] + 1), k=2))
            try:
                if self.chance.random() < 0.2:
                    topic.check(topic.start_offsets())
                rows = topic.read(part, start, end)
            except TopicException as error:
                _check_told(error, *(("were deleted (delete_records)",) if any(self.deleted) else ()))
                continue
            self._saw(part, start, rows)

    def _saw(self, part: int, start: int, rows: pa.Table) -> None:
        found = rows.column("n").to_pylist()
        assert found == self.log[part][start : start + len(found)], f"partition {part} from {start} on"

    def _created(self, name: str) -> None:
        """A version was written: what it adds is what the topic has from then on, if it is the newest."""
        number = number_of(name)
        if number is None or number <= self.newest:
            # Somebody slept until the number was free again: whatever is there is newer.
            return
        assert number == self.newest + 1
        self.newest = number
        version = versions.TopicVersion.of(open_document(self.storage, name, versions.TopicDocument), TOPIC, number)
        newest = [version.read(self.storage, version.lists[-1])] if version.lists else []
        for part, (log, places) in enumerate(zip(self.log, self.places, strict=True)):
            for file in itertools.chain(*(files[part] for files in (*newest, version.recent))):
                if file.base == len(log):
                    with pa.ipc.open_file(self.storage.open(file.name(TOPIC))) as reader:
                        log += reader.read_all().column("n").to_pylist()
                    places[file.base] = file
                assert places[file.base] == file
            assert version.ends[part] == len(log), "rows are missing in a new version"

    # What must hold.

    def _check(self) -> None:
        if not self.is_there and not versions.versions_of(self.storage, TOPIC):
            assert not any(append.ended for append in self.appends)
            return
        self._check_rows(Topic.open(ROOT, TOPIC))
        unnamed = self._unnamed_lists()
        for _ in range(self.listed + 2):
            self._append()
        self._check_rows(Topic.open(ROOT, TOPIC))
        # Lists go when others are made; those that were needed until then go the next time.
        assert not unnamed & self._unnamed_lists(), "lists that nothing names are left"
        assert len(versions.versions_of(self.storage, TOPIC)) <= self.kept + 1

    def _check_rows(self, topic: Topic) -> None:
        topic.check()
        assert topic.version == self.newest
        starts, ends = topic.start_offsets(), topic.end_offsets()
        assert all(start <= limit for start, limit in zip(starts, self.deleted, strict=True))
        assert ends == [len(log) for log in self.log]
        appends = {number: append for append in self.appends for number in append.numbers}
        for part, log in enumerate(self.log):
            rows = topic.read(part, starts[part], ends[part])
            self._saw(part, starts[part], rows)
            for row in rows.to_pylist():
                for name in ("a", "b"):
                    is_given = name in appends[row["n"]].columns
                    assert row.get(name) == (f"{name}{row['n']}" if is_given else None)
            ended: list[int] = []
            for append, group in itertools.groupby(reversed(log), key=appends.__getitem__):
                numbers = list(group)[::-1]
                assert numbers == [number for number in append.numbers if number in numbers], (
                    "rows are in another order"
                )
                assert not ended or min(ended) > append.began, f"{append} comes after what began when it had ended"
                ended += [] if append.ended is None else [append.ended]
        count = Counter(itertools.chain(*self.log))
        for append in self.appends:
            found = {count[number] for number in append.numbers}
            assert found == {1} or (found == {0} and append.ended is None), f"{append} is there {found} times"

    def _unnamed_lists(self) -> set[str]:
        """Lists that no version names which is kept; those that are named must be there."""
        named: set[str] = set()
        topic_id = Topic.open(ROOT, TOPIC).now.id_in_names
        for number in versions.versions_of(self.storage, TOPIC):
            name = version_name(TOPIC, number, topic_id)
            version = versions.TopicVersion.of(open_document(self.storage, name, versions.TopicDocument), TOPIC, number)
            named.update(found.name for found in version.lists)
            # One that somebody slow has put under an old number counts for nobody.
            for found in version.lists if number > self.newest - self.kept else ():
                version.read(self.storage, found)
        return set(self.storage.list(lists_folder(TOPIC, topic_id))) - named
