"""A topic of Kafka as a `Log`: what the runtime's tasks read. Rows are what its serde makes of committed records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.epochs import EpochsRead, RecordSeal
from task_assignor.kafka.topics.headers import read_headers
from task_assignor.kafka.topics.keys import read_keys
from task_assignor.kafka.topics.offsets import (
    ends_of,
    first_offsets,
    high_watermarks,
    offsets_for_time,
    stable_offsets,
)
from task_assignor.kafka.topics.reader import RecordReader, records_gone, records_lost
from task_assignor.kafka.topics.serdes import Serde, SerializationException, to_times
from task_assignor.kafka.topics.unreadable import rows_of_readable, text_of_record
from task_assignor.runtime.blame import text_with_line
from task_assignor.runtime.errors import CorruptLogException, RowsGoneException
from task_assignor.runtime.topics.fetched import Fetched, Unreadable
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import listed, shown

CHECK_S: Final = 5.0
"""While a topic is watched or read, it is looked at so often whether it still is what it was."""
LONG_S: Final = 60.0
"""So long are transactions open, if nobody has said anything else (`transaction.timeout.ms`)."""
_log = logger_of(__name__)


class KafkaLog:
    """The committed records of a topic of Kafka.

    Args:
        topic: how its records are to be read.
        spec: what the topic is like.
        topic_id: the id that Kafka gave it.
        connection: the process's connection.
        reader: the process's reader.
        check: raises `TopicException` when the topic is another one by now, or has not so many partitions; None: any.
        wait_s: so long it is waited for records that an open transaction hides, before `fetch` gives those that can be read - but
            not longer than brokers let a transaction be open -, and they count for where it ends; None: until they can be, and they
            do not count.
    """

    def __init__(
        self,
        topic: KafkaTopic,
        spec: TopicSpec,
        topic_id: str,
        connection: Connection,
        reader: RecordReader,
        check: Callable[[int | None], object],
        wait_s: float | None = None,
        *,
        is_own: bool = False,
    ) -> None:
        self.spec = spec
        self.topic_id = topic_id
        self._topic = topic
        self._connection = connection
        self._reader = reader
        self._check = check
        self._wait_s = wait_s
        self._is_own = is_own
        self._hidden: dict[int, tuple[int, float]] = {}
        """Partition -> offset from which on records are hidden, and since when that is known, in seconds of the monotonic clock."""
        self._told_of = set[int]()
        """Partitions of which it was said that records are hidden for long."""
        self._checked_s = time.monotonic()
        self._ends: Sequence[int] | None = None
        self._epochs = EpochsRead()
        self._in_value = topic.in_value(spec.schema)

    def refresh(self) -> None:
        """Look where it ends now, and now and then whether it still is the same topic.

        Raises:
            TopicException: it has more partitions than before, is gone, or was created anew.
            KafkaClusterException: the cluster does not answer, or refuses.
        """
        self.refresh_at_once([self])

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Self]) -> None:
        """`refresh` of several topics of one application, at one moment."""
        first = logs[0]
        is_looked_at = [log._check_now_and_then(log.spec.partitions) for log in logs]  # noqa: SLF001 (its own kind)
        partitions = {log._topic.name: range(log.spec.partitions) for log in logs}  # noqa: SLF001
        ends = ends_of(first._connection, partitions, are_stable=first._wait_s is None)  # noqa: SLF001
        for log, looked_at in zip(logs, is_looked_at, strict=True):
            log._take_ends(ends[log._topic.name], is_looked_at=looked_at)  # noqa: SLF001

    def _take_ends(self, ends: Sequence[int], *, is_looked_at: bool) -> None:
        self._ends = ends
        if is_looked_at and self._wait_s is None:
            self._tell_of_hidden_for_long(ends)

    def _tell_of_hidden_for_long(self, ends: Sequence[int]) -> None:
        """Say once of records that are hidden for long: they do not count for where it ends, so nobody else would miss them."""
        now = time.monotonic()
        highest = high_watermarks(self._connection, self._topic.name, range(self.spec.partitions))
        self._hidden = {
            place: known if (known := self._hidden.get(place, (-1, now)))[0] == end else (end, now)
            for place, (end, high) in enumerate(zip(ends, highest, strict=True))
            if high > end
        }
        long = {place for place, (_, since) in self._hidden.items() if now - since >= LONG_S}
        if new := long - self._told_of:
            _log.warning(
                "Transactions of others hide what comes after offset %s of the topic %s for %.0f s now, or longer: it is not processed until "
                "they are over. Brokers end those that take longer than their transaction.timeout.ms; if one stays, "
                "kafka-transactions.sh find-hanging names it.",
                listed(f"{ends[place]} (partition {place})" for place in new),
                self._topic.name,
                LONG_S,
            )
        self._told_of = long

    def tell_of_hidden(self) -> None:
        """Say which records a transaction hides that has been open since it was looked at; where no broker answers, nothing."""
        partitions, ends = range(self.spec.partitions), self.end_offsets()
        try:
            stable = stable_offsets(self._connection, self._topic.name, partitions)
            highest = high_watermarks(self._connection, self._topic.name, partitions)
        except KafkaClusterException as error:
            _log.info(
                "It cannot be seen whether transactions hide records of the topic %s: %s", self._topic.name, error
            )
            return
        hidden = [
            f"{high - end} after offset {end} (partition {place})"
            for place, (end, now, high) in enumerate(zip(ends, stable, highest, strict=True))
            if now == end < high
        ]
        if hidden:
            _log.warning(
                "Transactions of others that are still open hide records of the topic %s: %s. This run has not processed them; "
                "one that begins when they are over does.",
                self._topic.name,
                listed(hidden),
            )

    def start_offsets(self) -> Sequence[int]:
        """The first offset of every partition that is still there."""
        return first_offsets(self._connection, self._topic.name, range(self.spec.partitions))

    def offsets_for_time(self, time_ms: int) -> Sequence[int]:
        """Per partition the offset of the first record that is not older by its own time, or the end."""
        # No record is older than 1970, and what is less is no time to brokers: -1 asks for the end.
        since_ms = max(time_ms, 0)
        known = offsets_for_time(self._connection, self._topic.name, range(self.spec.partitions), since_ms)
        return [end if found is None else min(found, end) for found, end in zip(known, self.end_offsets(), strict=True)]

    def end_offsets(self) -> Sequence[int]:
        """Per partition the offset up to which all transactions are over (the last stable offset), as of the last `refresh`.

        Where it is not waited for hidden records for ever: up to which there are records.
        """
        if self._ends is None:
            self.refresh()
        assert self._ends is not None
        return self._ends

    def seal_before(self, partition: int, offset: int) -> str:
        """The last record before that offset that was read here, with its leader epoch; "": none, or it has no epoch."""
        return str(self._epochs.before(partition, offset) or "")

    def check(self, starts: Sequence[int], seals: Sequence[str] = ()) -> None:
        """That it is still the same topic, with the records that were read, as far as these have not been removed since.

        Without `seals`, as it grows: only where it has become shorter, since each `refresh` looks at that now and then, too.

        Raises:
            TopicException: it is gone, or was created anew.
            RecordsLostException: other records are in the place of those that were read.
            KafkaClusterException: brokers do not answer for too long.
        """
        if seals or any(end < start for end, start in zip(self.end_offsets(), starts, strict=True)):
            self._check(None)
        if known := {partition: found for partition, seal in enumerate(seals) if (found := RecordSeal.parse(seal))}:
            self._check_records(known)

    def _check_records(self, known: Mapping[int, RecordSeal]) -> None:
        firsts, ends = self.start_offsets(), self.end_offsets()
        there = {place: seal.offset for place, seal in known.items() if firsts[place] <= seal.offset < ends[place]}
        for partition, epoch in self._reader.epochs_of(self._topic.name, there).items():
            if epoch not in {None, known[partition].epoch}:
                raise records_lost(self._topic.name, partition, known[partition].offset + 1)

    def _check_now_and_then(self, partitions: int | None) -> bool:
        is_time = time.monotonic() - self._checked_s > CHECK_S
        if is_time:
            self._check(partitions)
            self._checked_s = time.monotonic()
        return is_time

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:
        """The rows of the committed records with these offsets, and those of which there are none.

        Raises:
            RowsGoneException: they are not there any more.
            CorruptLogException: the topic's serde does not say which of them it cannot read, or it is
                one that the application itself has written.
            TopicException: the topic is gone, or was created anew: that is looked at now and then.
            KafkaClusterException: brokers do not answer for too long.
        """
        _, since = self._hidden.get(partition, (-1, 0.0))
        is_too_long = since and time.monotonic() - since > self._connection.transaction_ms / 1000
        wait_s = None if is_too_long else self._wait_s
        try:
            records, reached = self._reader.read_some(self._topic.name, partition, start, end, wait_s, limit=limit)
        except RowsGoneException as error:
            raise records_gone(self._topic.name, partition, error.offset, is_own=self._is_own) from None
        if reached >= end:
            self._hidden.pop(partition, None)
        elif self._hidden.get(partition, (-1, 0.0))[0] != reached:
            self._hidden[partition] = reached, time.monotonic()
        self._check_now_and_then(None)
        offsets = np.fromiter((record.offset() for record in records), np.int64, len(records))
        self._epochs.add(partition, records)
        try:
            rows, failed = (self._rows(records), {}) if self._is_own else rows_of_readable(records, self._rows)
        except SerializationException as error:
            is_known = 0 <= error.index < len(offsets)
            offset = int(offsets[error.index]) if is_known else start
            which = "record" if is_known else "records from"
            raise CorruptLogException(
                f"The {which} {self._topic.name}, partition {partition}, offset {offset} cannot be read: {error}.",
                self._topic.name,
                partition,
                offset,
            ) from error
        unreadable = [
            Unreadable(int(offsets[place]), f"cannot be read: {error}", text_of_record(records[place]))
            for place, error in failed.items()
        ]
        return Fetched(rows, np.delete(offsets, list(failed)), None if reached == end else reached, unreadable)

    def _rows(self, records: Sequence[Any]) -> pa.Table:
        # A table without columns would have no rows.
        columns = self._in_values([record.value() for record in records]) if self._in_value.names else {}
        if self._topic.key_in == "key":
            columns.update(self._in_keys([record.key() for record in records]))
        if self._topic.is_timed_by_record:
            assert self._topic.timestamp is not None
            times = np.fromiter((record.timestamp()[1] for record in records), np.int64, len(records))
            kind = self.spec.schema.field(self._topic.timestamp).type
            columns[self._topic.timestamp] = to_times(pa.array(times, mask=times < 0), kind)
        if self._topic.headers is not None:
            kind = self.spec.schema.field(self._topic.headers).type
            columns[self._topic.headers] = read_headers(records, kind)
        for field in self.spec.schema:
            column = columns[field.name]
            if column.null_count and not field.nullable:
                absent = column.is_null().to_pylist().index(True)
                raise SerializationException(
                    f"it has no {field.name!r}, which the topic's schema says is never null", absent
                )
        return pa.table([columns[name] for name in self.spec.schema.names], schema=self.spec.schema)

    def _in_values(self, values: Sequence[bytes | None]) -> dict[str, pa.ChunkedArray | pa.Array]:
        """The columns that are in the values."""
        absent = next((place for place, value in enumerate(values) if value is None), None)
        if absent is not None and self._topic.key_in == "value":
            raise SerializationException(
                "it has no value (a tombstone), and the topic's key columns are in the value. Maybe key_in='key'",
                absent,
            )
        return self._deserialized(self._topic.serde, values, self._in_value)

    def _in_keys(self, keys: Sequence[bytes | None]) -> dict[str, pa.ChunkedArray | pa.Array]:
        """The columns that are in the keys."""
        schema = self._topic.in_key(self.spec.schema)
        if self._topic.key_serde is not None:
            return self._deserialized(self._topic.key_serde, keys, schema, "its key: ")
        return dict(zip(schema.names, read_keys(keys, list(schema)), strict=True))

    @staticmethod
    def _deserialized(
        serde: Serde, given: Sequence[bytes | None], schema: pa.Schema, where: str = ""
    ) -> dict[str, pa.ChunkedArray | pa.Array]:
        """What a serde makes of values or keys; where there is none the columns have nulls."""
        there = [place for place, each in enumerate(given) if each is not None]
        try:
            rows = serde.deserialize([each for each in given if each is not None], schema)
        except SerializationException as error:
            place = there[error.index] if 0 <= error.index < len(there) else -1
            raise SerializationException(f"{where}{error}", place) from error
        except MemoryError:
            # No record is the reason, and what to do is said where tasks fail.
            raise
        except Exception as error:
            raise SerializationException(f"{serde!r} failed with {text_with_line(error)}") from error
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise SerializationException(f"{serde!r} made {shown(rows)}, which is no Table of PyArrow")
        if rows.num_rows != len(there) or rows.schema.names != schema.names:
            raise SerializationException(
                f"{serde!r} made {rows.num_rows} rows of the columns {rows.schema.names} of {len(there)} values, and must make one of each, "
                f"of the columns {schema.names}"
            )
        if len(there) < len(given):
            places = np.full(len(given), -1)
            places[there] = np.arange(len(there))
            rows = rows.take(pa.array(places, mask=places < 0))
        try:
            typed = pa.table(rows.columns, schema=schema)
        except pa.ArrowException as error:
            raise SerializationException(f"{serde!r} made columns of other types than the topic's: {error}") from None
        return dict(zip(typed.schema.names, typed.columns, strict=True))
