"""A topic whose folder somebody deletes and that is written anew, while others use it: the new topic has its own rows, and keeps them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import Final

import attrs
import pyarrow as pa

from task_assignor.runtime import CorruptLogException, Topic, TopicException, append_topic, delete_records, write_topic
from task_assignor.runtime.storage import open_document
from task_assignor.runtime.topics import versions
from tests.runtime.interleaved_topics import DISK, PARTITIONS, ROOT, TOPIC, TopicsWorld, number_of

_FOREVER: Final = 1 << 60


@attrs.define(eq=False)
class Life:
    """A topic under one id.

    Args:
        topic_id: its identity.
        log: per partition the rows that its versions have named.
        told: rows of appends, and of the creation, that were told to be in it.
        began: when its creation began; never: its creator was told that there is another topic.
        there: since when it is there.
        newest: its newest version that there ever was.
    """

    topic_id: str
    log: list[list[int]] = attrs.field(factory=lambda: [[] for _ in range(PARTITIONS)])
    told: list[int] = attrs.field(factory=list)
    began: int = _FOREVER
    there: int = _FOREVER
    newest: int = -1


class RemadeWorld(TopicsWorld):
    """A name under which there is one topic after the other, and all who use it.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        sleeps = self.chance.choice((0.0, 0.03, 0.15))
        # Whoever is about to write a version, to look which lists are needed, or to delete: meanwhile the topic is written anew.
        self.storage.sleepy = lambda what, name: (
            sleeps if what in ("put_if_absent", "delete") or (what == "list" and "/lists" in name) else 0
        )
        self.lives: dict[str, Life] = {}
        self.removals: list[list[int]] = []
        """When somebody has begun to delete the folder, and when that had ended."""
        self._creating: dict[int, int] = {}
        """Thread -> when it began to create the topic."""
        self._refused: set[int] = set()
        """Rows of which it was said that they are not there."""

    def _add_actors(self) -> None:
        self._begin()
        _, dies = self._add_users(most_deleters=1, least_readers=1)
        self._add(self.chance.choice((1, 1, 2)), "remaker", self._remakes, dies / 4)

    # What holds.

    def _life(self, topic: Topic) -> Life:
        return self.lives[topic.topic_id]

    def _is_safe(self, life: Life) -> bool:
        """Nobody has deleted anything since its creation began."""
        return life.began < _FOREVER and all(ended <= life.began for _, ended in self.removals)

    def _created(self, name: str) -> None:
        number = number_of(name)
        if number is None:
            return
        document = open_document(self.storage, name, versions.TopicDocument)
        version = versions.TopicVersion.of(document, TOPIC, number)
        life = self.lives.setdefault(version.topic_id, Life(version.topic_id))
        if not number:
            life.began, life.there = self._creating[threading.get_ident()], self.actors.now
        if number <= life.newest:
            # Somebody slept until the number was free again: whatever is there is newer.
            return
        life.newest = number
        try:
            lists = [version.read(self.storage, found) for found in version.lists]
            for part, log in enumerate(life.log):
                for file in itertools.chain(*(files[part] for files in (*lists, version.recent))):
                    if file.base == len(log):
                        with pa.ipc.open_file(self.storage.open(file.name(TOPIC))) as reader:
                            log += reader.read_all().column("n").to_pylist()
        except FileNotFoundError:
            assert not self._is_safe(life), "a new version names files that are not there"

    def _saw(self, life: Life, part: int, start: int, rows: list[int]) -> None:
        others = {row for other in self.lives.values() if other is not life for log in other.log for row in log}
        assert not others.intersection(rows), "rows of another topic"
        assert rows == life.log[part][start : start + len(rows)] or not self._is_safe(life), "rows of something else"

    def _may_fail(self, life: Life | None, began: int) -> bool:
        """Whoever began then to use what it took for this topic (None: for whatever is there) may be told of an error."""
        if life is None:
            safe = [found for found in self.lives.values() if self._is_safe(found)]
            return not safe or any(ended > began for _, ended in self.removals) or safe[0].there > began
        return not self._is_safe(life)

    # What the actors do.

    def _create(self) -> None:
        rows = self._rows()
        numbers = rows.column("n").to_pylist()
        self._creating[threading.get_ident()] = self.actors.now
        try:
            topic = write_topic(ROOT, TOPIC, rows, partitions=PARTITIONS, key=["key"])
        except (TopicException, CorruptLogException) as error:
            if DISK in str(error):
                raise  # Nobody knows whether it is there.
            self._refused.update(numbers)
            for life in self.lives.values():
                if any(numbers[0] in log for log in life.log):
                    life.began = _FOREVER
            raise
        self._life(topic).told += numbers

    def _remakes(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            self.actors.point()
            self._remove()
            try:
                self._create()
            except (TopicException, CorruptLogException):
                # Somebody else was quicker, or has deleted what this one wrote.
                continue

    def _remove(self) -> None:
        """As `rm -r` and the consoles of object stores do: what is there, in some order, until nothing is left."""
        removal = [self.actors.now, _FOREVER]
        self.removals.append(removal)
        while names := list(self.storage.list_below(TOPIC)):
            order = self.chance.randrange(3)
            if order:
                names.sort(key=lambda name: ("/versions/" in name) == (order == 1))
            self.storage.delete(names)
        removal[1] = self.actors.now

    def _appends(self, often: int) -> None:
        for _ in range(self.chance.randint(1, often)):
            self.actors.point()
            rows, began = self._rows(), self.actors.now
            numbers = rows.column("n").to_pylist()
            try:
                topic = append_topic(ROOT, TOPIC, rows)
            except (TopicException, CorruptLogException) as error:
                if DISK in str(error):
                    continue
                self._refused.update(numbers)
                if not self._may_fail(None, began):
                    raise AssertionError(f"nothing explains: {error}") from error
                continue
            self._life(topic).told += numbers

    def _deletes(self, often: int) -> None:
        for _ in range(self.chance.randint(1, often)):
            self.actors.point()
            began = self.actors.now
            try:
                topic = Topic.open(ROOT, TOPIC)
                ends = topic.end_offsets()
                before = {part: self.chance.randint(0, end) for part, end in enumerate(ends)}
                self.deleted = [max(end, before[part]) for part, end in enumerate(self.deleted)]
                delete_records(ROOT, TOPIC, before)
            except (TopicException, CorruptLogException) as error:
                if DISK not in str(error) and not self._may_fail(None, began):
                    raise AssertionError(f"nothing explains: {error}") from error

    def _reads(self, often: int) -> None:
        """A run that begins, goes on with the topic that it has begun with, or begins again with the one that is there."""
        topic: Topic | None = None
        expected: str | None = None
        offsets, seals = [0] * PARTITIONS, [""] * PARTITIONS
        for _ in range(2 * self.chance.randint(1, often)):
            self.actors.point()
            began = self.actors.now
            if self.chance.random() < 0.1:
                topic = expected = None
            try:
                if topic is None or self.chance.random() < 0.2:
                    topic = Topic.open(ROOT, TOPIC, expected)
                    if expected is None:
                        expected, offsets, seals = topic.topic_id, topic.start_offsets(), [""] * PARTITIONS
                    assert topic.topic_id == expected
                    topic.check([*map(max, offsets, topic.start_offsets())], seals)
                else:
                    topic.refresh()
                part = self.chance.randrange(PARTITIONS)
                end = topic.end_offset(part)
                rows = topic.read(part, offsets[part], end).column("n").to_pylist()
                self._saw(self._life(topic), part, offsets[part], rows)
                offsets[part], seals[part] = end, topic.seal_before(part, end)
            except (TopicException, CorruptLogException) as error:
                life = self.lives.get(expected or "")
                was_deleted = any(start < end for start, end in zip(offsets, self.deleted, strict=True))
                if not was_deleted and not self._may_fail(life, began):
                    raise AssertionError(f"nothing explains: {error}") from error
                topic = expected = None

    def _check(self) -> None:
        safe = [life for life in self.lives.values() if self._is_safe(life)]
        assert len(safe) <= 1, "several were told that the topic is theirs"
        for life in safe:
            for rows in (None, self._rows(), self._rows()):
                if rows is not None:
                    assert append_topic(ROOT, TOPIC, rows).topic_id == life.topic_id
                    life.told += rows.column("n").to_pylist()
                topic = Topic.open(ROOT, TOPIC)
                assert topic.topic_id == life.topic_id, "it is another topic"
                topic.check()
                found = Counter(itertools.chain(*life.log))
                assert all(found[number] == 1 for number in life.told), "rows are lost"
                assert not self._refused & found.keys(), "rows are there that were refused"
                for part, (start, end) in enumerate(zip(topic.start_offsets(), topic.end_offsets(), strict=True)):
                    assert end == len(life.log[part])
                    assert start <= self.deleted[part]
                    assert topic.read(part, start, end).column("n").to_pylist() == life.log[part][start:]
