"""How much is kept of partitions that are read ahead, however many of them a process reads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any, cast

import attrs
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.reader import RecordReader

TOPIC = "topic"
SIZE = 10


@attrs.frozen
class Message:
    """A record.

    Args:
        where: its partition.
        at: its offset.
    """

    where: int
    at: int

    def __len__(self) -> int:
        return SIZE

    def topic(self) -> str:
        """Its topic."""
        return TOPIC

    def partition(self) -> int:
        """Its partition."""
        return self.where

    def offset(self) -> int:
        """Its offset."""
        return self.at

    def error(self) -> None:
        """It is one."""


@attrs.define
class Endless:
    """A consumer whose partitions always have more."""

    positions: dict[int, int] = attrs.field(factory=dict)
    paused: set[int] = attrs.field(factory=set)
    asked: list[tuple[str, int]] = attrs.field(factory=list)
    """Topics whose leaders were asked for, and how many partitions were read then."""

    def list_topics(self, topic: str, timeout: float) -> None:
        """Nobody answers."""
        self.asked.append((topic, len(self.positions)))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def incremental_assign(self, places: Iterable[Any]) -> None:
        """Read these, too."""
        self.positions.update((place.partition, place.offset) for place in places)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Nothing more of these."""
        self.paused.update(place.partition for place in places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        self.paused.difference_update(place.partition for place in places)

    def poll(self, timeout: float) -> Message | None:
        """The next one."""
        return next(iter(self.consume(1)), None)

    def consume(self, number: int, timeout: float = 0) -> list[Message]:
        """The next ones, of all partitions in turn."""
        reading = [partition for partition in self.positions if partition not in self.paused]
        found: list[Message] = []
        for partition in islice(cycle(reading), number):
            found.append(Message(partition, self.positions[partition]))
            self.positions[partition] += 1
        return found


def test_what_is_read_ahead_does_not_grow_with_the_partitions() -> None:
    """Up to 30 000 records were kept of each, and those that had enough were fetched on as soon as somebody asked for what was there."""
    consumer = Endless()
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    setattr(connection, "consumer", lambda config: consumer)  # noqa: B010
    reader = RecordReader(connection, "group")
    partitions, batch = 200, 50
    for begin in range(0, 4 * batch, batch):
        for partition in range(partitions):
            found = cast("list[Message]", reader.read(TOPIC, partition, begin, begin + batch))
            assert [(each.where, each.at) for each in found] == [(partition, begin + n) for n in range(batch)]
    kept = sum(len(stream.records) for stream in reader._streams.values())
    assert kept < 600_000


def test_what_has_come_after_what_was_asked_for_is_given_and_may_be_asked_for_again() -> None:
    """Without another request: who has read on may not have got as far with it."""
    consumer = Endless()
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    setattr(connection, "consumer", lambda config: consumer)  # noqa: B010
    reader = RecordReader(connection, "group")
    found, reached = reader.read_some(TOPIC, 0, 0, 10, limit=50)
    assert ([each.offset() for each in found], reached) == (list(range(50)), 50)
    assigned = dict(consumer.positions)
    found, reached = reader.read_some(TOPIC, 0, 30, 40, limit=35)
    assert ([each.offset() for each in found], reached) == (list(range(30, 40)), 40)
    assert consumer.positions[0] >= assigned[0], "nothing is fetched a second time"
    assert [each.offset() for each in reader.read(TOPIC, 0, 40, 45)] == list(range(40, 45))


def test_leaders_of_a_topic_are_asked_for_before_it_is_first_read() -> None:
    """librdkafka looked for them once a second: the first batches of a hundred small topics took a minute and a half."""
    consumer = Endless()
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    setattr(connection, "consumer", lambda config: consumer)  # noqa: B010
    reader = RecordReader(connection, "group")
    for partition in range(3):
        assert len(reader.read(TOPIC, partition, 0, 10)) == 10
        assert consumer.asked == [(TOPIC, 0)]


@attrs.define
class EndsHere:
    """What a broker says who does not show more."""

    at: int

    def topic(self) -> str:
        """Its topic."""
        return TOPIC

    def partition(self) -> int:
        """Its partition."""
        return 0

    def offset(self) -> int:
        """Where that is."""
        return self.at

    def error(self) -> KafkaError:
        """That is no record."""
        return KafkaError(KafkaError._PARTITION_EOF)


class Hiding(Endless):
    """A transaction hides the records from the fifth on, until it has been looked for a few times."""

    looks = 3

    def poll(self, timeout: float) -> Any:
        """The next one, or that there is none."""
        if self.positions.get(0, 0) < 5 or not self.looks:
            return super().poll(timeout)
        self.looks -= 1
        return EndsHere(5)

    def consume(self, number: int, timeout: float = 0) -> list[Message]:
        """One at a time."""
        return super().consume(1) if number == 1 else []


def test_a_transaction_that_is_open_is_waited_for_until_brokers_must_have_ended_it() -> None:
    """They do so after 60 to 70 s, and it was waited for 60 s."""
    consumer = Hiding()
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 0)
    setattr(connection, "consumer", lambda config: consumer)  # noqa: B010
    found = RecordReader(connection, "group").read(TOPIC, 0, 0, 7)
    assert [each.offset() for each in found] == list(range(7))
    assert not consumer.looks
