"""The records of topic partitions between two offsets, for all tasks of a process, by one consumer; no rows here.

Offsets have gaps: markers of transactions, records of aborted ones, compaction. That a range is read to its end is known
when a record at or behind that end comes, or the consumer says that it is at the end of what is committed.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.committed import RecordsLostException
from task_assignor.kafka.topics.connection import Connection, is_passing, text_of
from task_assignor.kafka.topics.epochs import epoch_of
from task_assignor.kafka.topics.offsets import why_not_reached
from task_assignor.runtime.errors import RowsGoneException

_AT_ONCE: Final = 2_000
_POLL_S: Final = 0.1
_ASK_S: Final = 0.5
_AHEAD: Final = 20_000
"""So many records of a partition are kept that nobody has asked for yet."""
_AHEAD_BYTES: Final = 64 << 20
"""Nor more than so many bytes of values, and what one look brings."""
_FULL: Final = 10
"""So many partitions may have that much; where there are more, they share it."""
_IDLE_S: Final = 60.0
"""A partition that nobody has asked for in this time is given up."""
_LOOK_S: Final = 1.0
"""So often that is looked for."""
_END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 (Kafka's names for local errors begin so)
_OF_GROUP: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED,)
"""Nothing is wanted of the group that it names, and brokers may tell it nothing of that."""
_MOST_BYTES: Final = 2**31 - 1
"""librdkafka's greatest: how large an answer may be, with a record that may be as large as brokers take. Its own is 100 MB."""
_NO_SUCH_OFFSET: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_IS_CUT: Final = "Partition log truncat"
"""So librdkafka begins to tell that a leader has other records than those that came (KIP-320); it has no code for that."""


@attrs.define(eq=False)
class _Stream:
    """What has come of a partition."""

    start: int
    """The offset from which on nothing has been taken."""
    reached: int
    """All records before this offset have come."""
    records: deque[Any] = attrs.field(factory=deque)
    size: int = 0
    """Bytes of the values of these records."""
    asked_at: float = 0.0
    wanted: int = 0
    """Somebody has asked for what is before this offset."""
    is_paused: bool = False
    ends_here: bool = False
    """The broker has said that readers of what is committed get nothing more."""
    error: Exception | None = None


class RecordReader:
    """Reads ranges of partitions; those that follow each other without a new request.

    Args:
        connection: the process's connection.
        group: group id that the consumer names; it never joins the group.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._streams: dict[tuple[str, int], _Stream] = {}
        self._tidied_at = 0.0

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Any]:
        """The committed records `start` (inclusive) to `end` (exclusive), in the order of their offsets.

        Raises:
            RowsGoneException: the partition has no such records any more.
            RecordsLostException: nor those that were read before them, though others in their place.
            KafkaClusterException: brokers do not answer for too long.
        """
        return self.read_some(topic, partition, start, end)[0]

    def read_some(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        wait_s: float | None = None,
        *,
        is_part_enough: bool = False,
        limit: int = 0,
    ) -> tuple[list[Any], int]:
        """The same, or fewer, or those that have come after them, too.

        Args:
            topic: name of the topic.
            partition: the partition.
            start: the first offset.
            end: the offset after the last.
            wait_s: if a transaction that is open hides the rest for so long, that comes which is before; None: it is waited for.
            is_part_enough: as many will do as are read ahead.
            limit: records up to there are given, too, if they have come. Those may be asked for again.

        Returns:
            The records, and the offset where to read on.

        Raises:
            RowsGoneException: the partition has no such records any more.
            RecordsLostException: nor those that were read before them, though others in their place.
            KafkaClusterException: brokers do not answer for too long.
        """
        if start >= max(end, limit):
            return [], end
        hidden_until = None if wait_s is None else time.monotonic() + wait_s
        patience = self._connection.patience(f"read the topic {topic}, partition {partition}, from offset {start}")
        reached = -1
        while True:
            with self._lock:
                stream = self._at(topic, partition, start, end)
                if stream.error is None and (stream.reached < end or (reached < 0 and stream.reached < limit)):
                    self._poll(_POLL_S if stream.reached < end else 0.0)
                if stream.error is not None:
                    self._let_go(topic, partition)
                    raise stream.error
                is_hidden = hidden_until is not None and stream.ends_here and time.monotonic() > hidden_until
                is_part = is_part_enough and self._part_of_most(stream) >= 1
                if stream.reached >= end or is_hidden or is_part:
                    taken = self._take(stream, min(end, stream.reached))
                    end = max(stream.start, min(limit, stream.reached))
                    taken += itertools.takewhile(lambda record: record.offset() < end, stream.records)  # noqa: B023 (it is used here)
                    return taken, end
            if stream.reached > reached:
                reached = stream.reached
                patience.progress()
            else:
                # What it waits for may be hidden, and who else asks the brokers gets answers.
                why = partial(why_not_reached, self._connection, topic, partition, end) if stream.ends_here else None
                patience.at_least(self._connection.open_ms if stream.ends_here else 0)
                patience.check(f"it has come to offset {reached} of {end}", why)

    def epochs_of(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int | None]:
        """The leader epochs of committed records. What follows them is not read ahead.

        Args:
            topic: name of the topic.
            offsets: partition -> offset of the record.

        Returns:
            Partition -> epoch; None: the record is not there any more, or has none.

        Raises:
            KafkaClusterException: brokers do not answer for too long.
        """
        with self._lock:
            # Each by itself would wait until a request for the one before is over.
            for partition, offset in offsets.items():
                self._at(topic, partition, offset, offset + 1)
        return {partition: self._epoch_of(topic, partition, offset) for partition, offset in offsets.items()}

    def _epoch_of(self, topic: str, partition: int, offset: int) -> int | None:
        try:
            found = self.read(topic, partition, offset, offset + 1)
        except RowsGoneException:
            return None
        with self._lock:
            self._let_go(topic, partition)
        return epoch_of(found[0]) if found else None

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
                self._streams.clear()

    def _at(self, topic: str, partition: int, start: int, end: int) -> _Stream:
        if self._consumer is None:
            self._consumer = self._connection.consumer(
                {
                    "group.id": self._group,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 100,
                    "receive.message.max.bytes": _MOST_BYTES,
                }
            )
        stream = self._streams.get((topic, partition))
        if stream is not None and stream.start < start <= stream.reached:
            self._take(stream, start)
        if stream is None or stream.start != start:
            if stream is not None:
                self._unassign(topic, partition)
            elif all(known != topic for known, _ in self._streams):
                self._find_leaders(topic)
            stream = self._streams[topic, partition] = _Stream(start, start)
            self._consumer.incremental_assign([TopicPartition(topic, partition, start)])
        stream.asked_at, stream.wanted = time.monotonic(), end
        if stream.is_paused and (stream.reached < end or self._part_of_most(stream) < 0.5):
            stream.is_paused = False
            self._consumer.resume([TopicPartition(topic, partition)])
        return stream

    def _find_leaders(self, topic: str) -> None:
        """Ask for them: librdkafka looks only once a second for those of topics that it is new to."""
        assert self._consumer is not None
        # Where nobody answers it does so all the same, and what is wrong is said where records are waited for.
        with suppress(KafkaException):
            self._consumer.list_topics(topic, _ASK_S)

    def _let_go(self, topic: str, partition: int) -> None:
        if self._streams.pop((topic, partition), None) is not None:
            self._unassign(topic, partition)

    def _unassign(self, topic: str, partition: int) -> None:
        assert self._consumer is not None
        place = [TopicPartition(topic, partition)]
        # Who assigns it again would find it paused as it was, and get nothing.
        self._consumer.resume(place)
        self._consumer.incremental_unassign(place)

    @staticmethod
    def _take(stream: _Stream, end: int) -> list[Any]:
        taken = []
        while stream.records and stream.records[0].offset() < end:
            taken.append(stream.records.popleft())
            stream.size -= len(taken[-1])
        stream.start = stream.wanted = end
        return taken

    def _poll(self, wait_s: float = _POLL_S) -> None:
        """Take what has come, of whatever partition; nothing comes: that is waited for so long."""
        assert self._consumer is not None
        first: Any = self._consumer.poll(wait_s)
        if first is None:
            return
        messages: list[Any] = [first, *self._consumer.consume(_AT_ONCE, 0)]
        grown: dict[tuple[str, int], _Stream] = {}
        for message in messages:
            place = message.topic(), message.partition()
            stream = self._streams.get(place)
            error = message.error()
            if stream is None:
                is_about_all = error is not None and message.topic() is None and error.code() not in _OF_GROUP
                if is_about_all and not is_passing(error):
                    raise KafkaClusterException(f"Cannot read records: {text_of(error)}.")
            elif error is None:
                stream.ends_here = False
                grown[place] = stream
                if message.offset() >= stream.reached:
                    stream.records.append(message)
                    stream.size += len(message)
                    stream.reached = message.offset() + 1
            elif error.code() == _END_OF_PARTITION:
                stream.reached = max(stream.reached, message.offset())
                stream.ends_here = True
            elif error.code() in _NO_SUCH_OFFSET:
                gone = records_lost if _IS_CUT in error.str() else records_gone
                stream.error = gone(message.topic(), message.partition(), stream.reached)
            elif not is_passing(error):
                stream.error = KafkaClusterException(
                    f"Cannot read the topic {message.topic()}, partition {message.partition()}: {text_of(error)}."
                )
        self._tidy(grown)

    def _tidy(self, grown: Mapping[tuple[str, int], _Stream]) -> None:
        """Do not read ahead too far, and not for nobody."""
        assert self._consumer is not None
        now = time.monotonic()
        if now - self._tidied_at > _LOOK_S:
            self._tidied_at = now
            for place in [place for place, stream in self._streams.items() if now - stream.asked_at > _IDLE_S]:
                self._let_go(*place)
        for (topic, partition), stream in grown.items():
            # What is fetched already and was not polled is fetched again when it is resumed: not of those that somebody waits for.
            is_waited_for = stream.reached < stream.wanted
            is_there = (topic, partition) in self._streams
            if is_there and not stream.is_paused and not is_waited_for and self._part_of_most(stream) > 1:
                stream.is_paused = True
                self._consumer.pause([TopicPartition(topic, partition)])

    def _part_of_most(self, stream: _Stream) -> float:
        """How much is kept of it, of what may be."""
        found = max(len(stream.records) / _AHEAD, stream.size / _AHEAD_BYTES)
        return found * max(1.0, len(self._streams) / _FULL)


def records_gone(topic: str, partition: int, offset: int, *, is_own: bool = False) -> RowsGoneException:
    """The error for an offset that a partition does not have any more, of a source or of a topic of the application's own."""
    advice = (
        "Nobody but the application removes records there, and it only those that it does not need. Maybe somebody else has "
        "(kafka-delete-records), or gave the topic another cleanup.policy or retention, which the next run names as it begins. What the "
        "application knows is not whole any more; to compute it anew, run it under another application.id with a new run_dir."
        if is_own
        else "Its retention took the records away before they were processed, or somebody has (kafka-delete-records). A run goes on without "
        "them, and counts them, with auto.offset.reset=earliest; to compute everything anew of what is there, give it a new run_dir, and "
        "where outputs are topics of Kafka another application.id."
    )
    return RowsGoneException(
        f"The topic {topic}, partition {partition}, has no offset {offset} any more. {advice}", topic, partition, offset
    )


def records_lost(topic: str, partition: int, offset: int) -> RecordsLostException:
    """The error for a partition that has other records than those that were read before an offset."""
    return RecordsLostException(
        f"The topic {topic}, partition {partition}, has lost records that were read, up to offset {offset}. Maybe a replica without them was "
        "elected (unclean.leader.election.enable), or its broker was killed and came back without them. What has come since has their "
        "offsets; to process it, run the application with a new run_dir, and where outputs are topics of Kafka under another "
        "application.id."
    )
