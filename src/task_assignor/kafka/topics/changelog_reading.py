"""The changelog topics of a task as they are read again: ranges of records as changes of stores, whatever Kafka has compacted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import pyarrow as pa

from task_assignor.kafka.topics.changelogs import ChangelogCodec, Record, of_this_life
from task_assignor.kafka.topics.committed import Committed
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.offsets import first_offset
from task_assignor.kafka.topics.reader import RecordReader, records_gone
from task_assignor.runtime.errors import CorruptLogException, RowsGoneException
from task_assignor.runtime.machines.records import FileRef
from task_assignor.runtime.stores.task_state import FROM_THE_BEGINNING
from task_assignor.runtime.tasks.results import TaskResults


class ChangelogReader:
    """Reads the changelogs of one task.

    Args:
        connection: the process's connection.
        reader: the process's reader.
        partition: that of the task.
        codecs: store -> how its changes are kept.
        windows: the window stores among them, whose records are removed when they have expired.
        files: the folder of the run, which may have older changelogs.
        last: gives what the last transaction of the task did; None: nothing is committed.
    """

    def __init__(
        self,
        connection: Connection,
        reader: RecordReader,
        partition: int,
        codecs: Mapping[str, ChangelogCodec],
        windows: Collection[str],
        files: TaskResults,
        last: Callable[[], Committed | None],
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._partition = partition
        self._codecs = codecs
        self._windows = windows
        self._files = files
        self._last = last
        self._first = dict.fromkeys(codecs, 0)
        """Store -> the first offset of its changelog that is there, as far as it is known."""

    def changes(self, file: FileRef, store: str, batch: int, *, is_fresh: bool = False) -> Iterator[pa.Table]:
        """What the records of a range changed, in pieces that memory has room for; see `TaskResults.changes`."""
        if not file.topic:
            yield from self._files.changes(file, store, batch)
            return
        start, end = file.offsets
        count = 0
        for records, piece in self._pieces(file.topic, store, start, end):
            count += records
            yield piece
        if start and not is_fresh and store not in self._windows and count < file.rows:
            # A deletion may be among those that are gone, and with it all that was said of its key before.
            yield from (piece for _, piece in self._pieces(file.topic, store, 0, end))

    def _pieces(self, topic: str, store: str, start: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """The changes between two offsets, each piece with the number of its records; one at least."""
        is_whole = not start
        for place, records in self._records(topic, store, start, end):
            counted = of_this_life(records)
            is_whole = is_whole or counted is not records
            try:
                table = self._codecs[store].decode(counted)
            except (ValueError, TypeError, pa.ArrowException) as error:
                raise CorruptLogException(
                    f"The changelog topic {topic}, partition {self._partition}, has records from offset {place} on that this application "
                    f"has not written: {error}. Maybe another one writes there, or the store's columns were changed.",
                    topic,
                    self._partition,
                    place,
                ) from error
            if is_whole:
                table = table.replace_schema_metadata({**(table.schema.metadata or {}), FROM_THE_BEGINNING: b"1"})
                is_whole = False
            yield len(records), table

    def _records(self, topic: str, store: str, start: int, end: int) -> Iterator[tuple[int, list[Record]]]:
        """Those between two offsets that have not been removed because they had expired, some at a time, and where those begin.

        Raises:
            RowsGoneException: others have been removed, too.
        """
        begin = min(max(start, self._first[store]), end)
        while True:
            try:
                found, reached = self._reader.read_some(topic, self._partition, begin, end, is_part_enough=True)
            except RowsGoneException:
                first, last = first_offset(self._connection, topic, self._partition), self._last()
                needed = first if last is None else last.windows.get(store, (0, None))[0]
                if first <= begin or first > needed or store not in self._windows:
                    raise records_gone(topic, self._partition, begin, is_own=True) from None
                self._first[store] = first
                begin = min(first, end)
                continue
            yield begin, [(record.key(), record.value()) for record in found]
            begin = reached
            if begin >= end:
                return
