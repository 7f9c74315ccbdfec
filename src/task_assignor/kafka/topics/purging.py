"""What of a window store's changelog topic is needed no more, and its removal; that of repartition topics, too.

The records of such a topic are pieces of rows. They hold nothing that counts when all of these rows have expired, and that is
by the time of the stream, never by the clock: rows of the past, and those of an application that stood still, stay.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any, Final

import attrs
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.topics.connection import Connection, is_passing, text_of
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_BLOCKS: Final = 256
"""What is needed is told in parts of about that many: all of it is copied with each batch, and a day's windows may have a million batches."""


@attrs.define
class Needed:
    """Which records of a changelog partition are needed.

    Args:
        first: those before this offset hold nothing that counts.
        blocks: (offset after the last record of a block, newest time of a row up to there, ms), oldest block first.
    """

    first: int = 0
    blocks: deque[tuple[int, int]] = attrs.field(factory=deque)

    @classmethod
    def of(cls, first: int, newest: int | None, end: int) -> Needed:
        """What is needed of records whose times are not known one by one."""
        needed = cls(first)
        needed.add(end, newest)
        return needed

    @property
    def newest(self) -> int | None:
        """Newest time of all rows, ms; None: there are none."""
        return self.blocks[-1][1] if self.blocks else None

    def add(self, end: int, newest: int | None) -> None:
        """More records were written.

        Args:
            end: offset after the last of them.
            newest: newest time of their rows, ms; None: they have none.
        """
        times = [time for time in (self.newest, newest) if time is not None]
        if not times:
            return
        begin = self.blocks[-2][0] if len(self.blocks) > 1 else self.first
        if self.blocks and self.blocks[-1][0] - begin < (end - self.first) / _BLOCKS:
            self.blocks.pop()
        self.blocks.append((end, max(times)))

    def expire(self, before: int | None) -> None:
        """Rows older than this are forgotten, ms. The last records are always needed: they say so."""
        while before is not None and len(self.blocks) > 1 and self.blocks[0][1] < before:
            self.first = self.blocks.popleft()[0]


class Purging:
    """Removes records from the partition of an internal topic, one request at a time, and nobody waits for it.

    Args:
        connection: the process's connection.
        topic: the changelog of a window store, or a repartition topic.
        partition: its partition.
    """

    def __init__(self, connection: Connection, topic: str, partition: int) -> None:
        self._connection = connection
        self._where = (topic, partition)
        self._asked = 0
        self._answer: Future[Any] | None = None
        self._admin: AdminClient | None = None
        """Who was asked; if it were let go of, as after an outage, there would never be an answer."""
        self._has_failed = False

    def remove(self, needed: int, end: int) -> None:
        """Remove the records before an offset, once they are as many as those that stay: so each request is worth it.

        Args:
            needed: the first offset that is needed.
            end: offset after the last.
        """
        if self._answer is not None and not self._answer.done():
            return
        self._note_failure()
        if needed - self._asked >= end - needed and needed > self._asked:
            self._asked = needed
            asked = [TopicPartition(*self._where, needed)]
            self._admin = self._connection.admin
            (self._answer,) = self._admin.delete_records(asked).values()

    def _note_failure(self) -> None:
        if self._answer is None:
            return
        error, self._answer, self._admin = self._answer.exception(), None, None
        if error is None:
            return
        self._asked = 0
        found = error.args[0] if isinstance(error, KafkaException) else error
        if not is_passing(found) and not self._has_failed:
            self._has_failed = True
            _log.warning(
                "Records of %s, partition %s, that nobody needs any more cannot be removed: %s",
                *self._where,
                text_of(found),
            )
