"""The results of tasks in Kafka: output, changelogs and source offsets of a batch become visible together, in a transaction.

What counts is what Kafka has committed, and the coordinator's record follows: a new owner of a task reads the offsets that the group
`application.id` has committed for its sources, when all transactions that were open are over. Where they are ahead of its order, a
try that nobody heard of any more was committed; its result, in the metadata of these offsets, is the answer to the order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TopicPartition

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.batches import Batch, OutputRows, Place, Record
from task_assignor.kafka.topics.changelog_reading import ChangelogReader
from task_assignor.kafka.topics.changelogs import BEGINS_ANEW, ChangelogCodec, changelog_codec
from task_assignor.kafka.topics.committed import (
    Committed,
    check_complete,
    check_end,
    check_stores,
    check_unread,
    committed_of,
)
from task_assignor.kafka.topics.committing import NOTHING
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.offsets import committed_offsets, first_offset, high_watermarks, last_stable_offset
from task_assignor.kafka.topics.output_records import check_times
from task_assignor.kafka.topics.purging import Needed, Purging
from task_assignor.kafka.topics.reader import records_gone
from task_assignor.kafka.topics.shared import Shared
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.runtime.identity import columns_of
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.machines.records import FileRef
from task_assignor.runtime.steps import only_waits
from task_assignor.runtime.stores.task_state import is_from_the_beginning
from task_assignor.runtime.stores.window import WindowStoreSpec, expiry_of
from task_assignor.runtime.tasks.repartition import span_of
from task_assignor.runtime.tasks.results import Found, Made, Offsets, TaskResults
from task_assignor.runtime.topics.writing import fit_to_schema
from task_assignor.runtime.topology.sub_topology import Repartitioned
from task_assignor.runtime.topology.topology import ProcessorTopology, changelog_topic
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_PURGED_AT_ONCE: Final = 1_000
"""So many records of a repartition topic that were read are removed together, or more."""


class KafkaResults(Shared):
    """Where the results of an application's tasks go: topics of Kafka. One for each process."""

    def of_task(self, task: TaskId, topology: ProcessorTopology, files: TaskResults) -> TaskTransactions:
        """The transactions of a task."""
        return TaskTransactions(task, topology, files, self)

    def take_permit(self, permit: bytes, first: int = 0) -> None:
        """Brokers take transactions with this one alone from now on, and none of orders of generations before the first."""
        self.committer.take_permit(permit, first)


class TaskTransactions:
    """The transactions of one task. What they commit is visible at once, before the coordinator's record says so.

    Args:
        task: the task.
        topology: what it computes.
        files: the folder of the run, which may have older changelogs.
        results: what the tasks of the process share.
    """

    def __init__(self, task: TaskId, topology: ProcessorTopology, files: TaskResults, results: Shared) -> None:
        self._task = task
        self._results = results
        self._connection = results.connection
        self._changelogs = {
            store.name: changelog_topic(results.application_id, store.name, topology.topology)
            for store in topology.stores
            if store.logged
        }
        self._codecs: dict[str, ChangelogCodec] = {
            store.name: changelog_codec(store, partial(results.taken_by, self._changelogs[store.name]))
            for store in topology.stores
            if store.logged
        }
        self._sources = {name: results.topic_of(name) for name in topology.sources}
        """Source -> its topic."""
        self._outputs = [output.name for output in topology.outputs]
        self._timestamps = {
            output.name: output.timestamp for output in topology.outputs if isinstance(output, Repartitioned)
        }
        self._connection.topics.update(
            map(results.topic_of, self._outputs), self._sources.values(), self._changelogs.values()
        )
        self._times = {
            store.name: store.time for store in topology.stores if store.logged and isinstance(store, WindowStoreSpec)
        }
        """Window store -> its time column."""
        self._needed: dict[str, Needed] = {}
        self._purging = {
            store: Purging(self._connection, self._changelogs[store], task.partition) for store in self._times
        }
        self._read = {
            name: Purging(self._connection, topic, task.partition)
            for name, topic in self._sources.items()
            if name in results.repartitions
        }
        """Repartition topic that it reads -> the removal of what was read."""
        # By no method: whatever is connected would go only when somebody collects garbage.
        last = partial(_last, self._connection, results.application_id, task.partition, self._sources)
        self._reading = ChangelogReader(
            self._connection, results.reader, task.partition, self._codecs, self._times, files, last
        )
        self._producer = 0
        """Number of the producer since which it is known what is committed; 0: it is not."""
        self._permits = 0
        """How many permits had come then."""
        self._before: dict[Place, tuple[int, str]] = {}
        """Where offsets of its sources are committed -> what is."""
        self._generation = -1
        """Of the last order."""
        self._batch = -1
        """Number of the batch that was committed here last, or found committed; -1: none."""
        self._ends: dict[str, int] = {}
        """Store -> where its changelog ends."""
        self._written: dict[tuple[str, int], int] = {}
        """(output, partition) -> the offset after the last record that was written there."""
        self._former: frozenset[str] = frozenset()
        """Stores whose changelogs have records of before which do not count."""

    # Taking over.

    def begin(self, order: TaskOrder) -> Found | None:
        """See what is committed, when nobody else can commit anything of the task any more.

        Not where a task goes on right after its own last transaction, and has not been elsewhere meanwhile: it may have been lost
        there, or given back, before anybody heard what came of it.
        """
        committer = self._results.committer
        producer, permits = committer.begin(), committer.permits
        is_known = self._producer == producer
        is_next = self._batch == order.base.batch >= 0 and self._permits == permits and order.since <= self._generation
        if is_known and (self._generation == order.generation or is_next):
            self._generation = order.generation
            return None
        self.close()
        found = self._look(order)
        self._producer, self._permits, self._generation = producer, permits, order.generation
        # What was found is the answer to the order, so the next one goes on from there.
        self._batch = -1 if found is None else order.batch
        return found

    def _look(self, order: TaskOrder) -> Found | None:
        """Hold what Kafka has committed against what the coordinator knows."""
        group, partition = self._results.application_id, self._task.partition
        committed = self._committed()
        self._before = {(topic, partition): committed.get(name, NOTHING) for name, topic in self._sources.items()}
        if not committed:
            if order.base.batch >= 0:
                _log.warning(
                    "The group %s has no committed offsets for task %s any more (Kafka forgets those of groups without "
                    "members, offsets.retention.minutes); it goes on from what the run has recorded.",
                    group,
                    self._task,
                )
            ends = {
                store: last_stable_offset(self._connection, topic, partition)
                for store, topic in self._changelogs.items()
            }
            for store, end in ends.items():
                check_end(self._changelogs[store], partition, end, self._task, self._ends.get(store, 0))
            self._ends = ends
            if order.base.batch < 0:
                for name in self._read:
                    check_unread(self._connection, self._sources[name], partition)
                # Nobody knows any more what they were made of; the first batch says so there.
                self._former = frozenset(store for store, end in ends.items() if end)
            self._needed = {store: self._needed_of_all(store) for store in self._times}
            return None
        last = committed_of(group, partition, committed)
        self._written.update(last.written)
        self._ends = {store: last.stores.get(store, (0, 0))[1] for store in self._changelogs}
        self._needed = {
            store: Needed.of(*last.windows[store], self._ends[store])
            if store in last.windows
            else self._needed_of_all(store)
            for store in self._times
        }
        offsets = {topic: (start, committed.get(topic, (start, ""))[0]) for topic, (start, _) in order.ranges.items()}
        # Of a task of which nothing is recorded, the state is what Kafka has, however little of its sources is still there.
        is_new = order.base.batch < 0
        if is_new:
            check_complete(group, partition, committed, self._sources)
            check_stores(group, partition, last, self._changelogs)
        for topic, (start, end) in offsets.items():
            if end < start and is_new:
                raise records_gone(self._sources[topic], partition, end, is_own=topic in self._read)
            if end < start:
                raise KafkaClusterException(
                    f"The group {group} has committed offset {end} of the topic {self._sources[topic]}, partition {partition}, but the run has "
                    f"recorded that task {self._task} has processed up to {start}. Maybe somebody has set the group's offsets "
                    "back; to process records again, run the application under another application.id with a new run_dir. Where a "
                    "transaction that brokers never ended was aborted by hand, a new run_dir with this application.id goes on from what "
                    "Kafka has."
                )
        # A batch without rows leaves offsets as they are.
        is_ahead = last.batch >= order.batch or last.changelog_offset > order.base.changelog_offset
        if not (is_new or is_ahead) and all(start == end for start, end in offsets.values()):
            return None
        _log.info("Task %s had been committed up to %s, but that was not recorded; it is now", self._task, offsets)
        return self._found(order, offsets, last)

    def _committed(self) -> dict[str, tuple[int, str]]:
        return _committed(self._connection, self._results.application_id, self._task.partition, self._sources)

    def _needed_of_all(self, store: str) -> Needed:
        """What is needed of a changelog of which nothing is said: all that is there."""
        first = first_offset(self._connection, self._changelogs[store], self._task.partition)
        whole = FileRef.of_topic(self._changelogs[store], 0, 0, self._task.partition, first, self._ends[store])
        newest: int | None = None
        for piece in self.changes(whole, store, -1):
            of_piece = self._newest(store, piece)
            newest = of_piece if newest is None or is_from_the_beginning(piece) else max(newest, of_piece or newest)
        return Needed.of(first, newest, self._ends[store])

    def _newest(self, store: str, changes: pa.Table) -> int | None:
        newest: int | None = pc.max(changes.column(self._times[store])).as_py()
        return newest

    def _found(self, order: TaskOrder, offsets: Offsets, last: Committed) -> Found:
        # Of one batch that was not recorded the changes are known; of several, all that there ever were will do.
        is_known = order.base.batch >= 0 or not any(before for before, _ in last.stores.values())
        is_last = last.batch in (order.batch, -1)
        is_one = is_known and is_last and last.begin == {topic: start for topic, (start, _) in offsets.items()}
        changelogs = {
            store: FileRef.of_topic(
                self._changelogs[store],
                max(end - before - bool(before), 0),
                0,
                self._task.partition,
                before if is_one else 0,
                end,
            )
            for store, (before, end) in last.stores.items()
            if store in self._changelogs and (before < end or not is_one)
        }
        outputs = {
            name: FileRef.of_topic(name, rows, 0)
            for name, rows in (last.outputs.items() if is_one else ())
            if rows and name not in self._results.repartitions
        }
        # What the metadata says of their ends may be rounded down, and readers would not be told of the rest.
        repartitions = {
            name: self._results.routed(name, last.outputs.get(name, 0) if is_one else 0, 0)
            for name in self._outputs
            if name in self._results.repartitions
        }
        changelog_offset = max(last.changelog_offset, order.base.changelog_offset)
        made, counters = Made(outputs, changelogs, repartitions), last.counters if is_one else {}
        return Found(made, offsets, changelog_offset, last.stream_time, counters)

    # Writing.

    def write(
        self,
        order: TaskOrder,
        offsets: Offsets,
        outputs: Mapping[str, pa.Table],
        changes: Mapping[str, pa.Table],
        stream_time: int | None,
        counters: Mapping[str, int],
    ) -> Made:
        """Commit what came of an order, in a transaction."""
        written = {name: self._rows_of(name, rows) for name, rows in outputs.items()}
        logged = {store: self._logged(store, changes.get(store)) for store in sorted({*changes, *self._former})}
        rows = {store: found.num_rows for store, found in changes.items()}
        reached: list[_Reached] = []
        sent: list[TopicPartition] = []

        def positions(noted: Mapping[Place, int]) -> list[TopicPartition]:
            check_times((found.topic for found in written.values()), batch.restamped)
            found = self._reached(logged, changes, noted)
            last = Committed(
                {topic: start for topic, (start, _) in offsets.items()},
                order.base.changelog_offset + sum(rows.values()),
                stream_time,
                {store: (end, found.stores.get(store, end)) for store, end in self._ends.items()},
                {name: output.rows.num_rows for name, output in written.items()},
                {store: (needed.first, needed.newest) for store, needed in found.needed.items()},
                self._ends_with(found.outputs),
                batch=order.batch,
                counters=counters,
            )
            reached[:] = [found]
            sent[:] = [
                TopicPartition(self._sources[name], self._task.partition, end, last.metadata)
                for name, (_, end) in sorted(offsets.items())
            ]
            return sent

        records = list(itertools.chain(*logged.values()))
        size = _size_of(records) + sum(output.rows.nbytes for output in written.values())
        only_waits("its results are written and committed, with those of others")
        batch = Batch(
            *(self._task, list(written.values()), records, size, positions, self._producer),
            *(self._before, self._permits, order.generation),
        )
        self._results.committer.commit(batch)
        (found,) = reached
        self._permits = batch.permits
        self._before = self._before | {(at.topic, at.partition): (at.offset, at.metadata or "") for at in sent}
        self._written.update(found.outputs)
        made = Made(
            {
                name: FileRef.of_topic(
                    name,
                    output.rows.num_rows,
                    _size_of(output.records),
                    columns=tuple(columns_of(output.rows.schema).items()),
                )
                for name, output in written.items()
                if name not in self._results.repartitions
            },
            {
                store: FileRef.of_topic(
                    self._changelogs[store],
                    rows.get(store, 0),
                    _size_of(logged[store]),
                    self._task.partition,
                    self._ends[store],
                    end,
                )
                for store, end in found.stores.items()
            },
            {
                name: self._results.routed(
                    name,
                    output.rows.num_rows,
                    _size_of(output.records),
                    self._ends_with({})[name],
                    span_of(output.rows, self._timestamps[name]),
                )
                for name, output in written.items()
                if name in self._results.repartitions
            },
        )
        self._batch, self._former, self._needed = order.batch, frozenset(), found.needed
        self._ends.update(found.stores)
        for name, purging in self._read.items():
            _, read = offsets[name]
            purging.remove(read, max(order.ranges[name][1], read + _PURGED_AT_ONCE))
        for store in self._times.keys() & found.stores.keys():
            self._purging[store].remove(self._needed[store].first, found.stores[store])
        return made

    def _rows_of(self, name: str, rows: pa.Table) -> OutputRows:
        """Those for an output."""
        topic, count = self._results.topics[name], self._results.partitions[name]
        return OutputRows(topic, count, self._task.partition % count, self._fit(name, rows))

    def _logged(self, store: str, changes: pa.Table | None) -> list[Record]:
        """Those of a changelog."""
        found = [BEGINS_ANEW] if store in self._former else []
        if changes is not None:
            found += self._codecs[store].encode(changes, self._ends[store])
        return [(self._changelogs[store], value, key, self._task.partition, -1, None) for key, value in found]

    def _reached(
        self, logged: Mapping[str, Sequence[Record]], changes: Mapping[str, pa.Table], noted: Mapping[Place, int]
    ) -> _Reached:
        """How far topics reach with what was written.

        Raises:
            RecordsLostException: not as far as before.
            TaskMigratedException: it is not known.
        """
        stores = {store: noted[self._changelogs[store], self._task.partition] for store in logged if logged[store]}
        unknown = [self._changelogs[store] for store, end in stores.items() if end <= 0]
        if unknown:
            # Of what was sent a second time, after a broker had gone, Kafka may only say that it is there already.
            raise TaskMigratedException(
                f"Kafka has not said at which offsets the records of {', '.join(unknown)} are; the batch is tried again."
            )
        for store, end in stores.items():
            check_end(self._changelogs[store], self._task.partition, end, self._task, self._ends[store])
        outputs = self._known(
            {(name, number): end for name in self._outputs for number, end in self._noted(name, noted)}
        )
        for (name, number), end in outputs.items():
            check_end(self._results.topic_of(name), number, end, self._task, self._written.get((name, number), 0))
        needed = {store: attrs.evolve(found, blocks=found.blocks.copy()) for store, found in self._needed.items()}
        for store in self._times.keys() & stores.keys() & changes.keys():
            needed[store].add(stores[store], self._newest(store, changes[store]))
            needed[store].expire(expiry_of(changes[store]))
        return _Reached(stores, outputs, needed)

    def _noted(self, name: str, noted: Mapping[Place, int]) -> list[tuple[int, int]]:
        """Partition and end, of an output."""
        topic = self._results.topic_of(name)
        return [(number, end) for (written, number), end in noted.items() if written == topic]

    def _known(self, reached: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Where outputs end; of what was sent a second time Kafka may not say it, and repartition topics are asked then."""
        known = {place: end for place, end in reached.items() if end > 0}
        for name, number in sorted(reached.keys() - known.keys()):
            if name in self._results.repartitions:
                (known[name, number],) = high_watermarks(self._connection, self._results.topic_of(name), [number])
        return known

    def _fit(self, name: str, rows: pa.Table) -> pa.Table:
        """Rows of a repartition topic with its columns, which its readers know."""
        topic = self._results.repartitions.get(name)
        if topic is None or topic.schema is None:
            return rows
        return fit_to_schema(rows, topic.schema, f"the repartition topic {name!r}")

    def _ends_with(self, reached: Mapping[tuple[str, int], int]) -> dict[str, tuple[int, ...]]:
        """Output -> where each of its partitions ends, as far as the task has written there."""
        written = {**self._written, **reached}
        return {
            name: tuple(written.get((name, partition), 0) for partition in range(self._results.partitions[name]))
            for name in self._outputs
        }

    # Reading.

    def changes(self, file: FileRef, store: str, batch: int, *, is_fresh: bool = False) -> Iterator[pa.Table]:
        """What the records of a range of the changelog topic changed; of one that was compacted since, all up to its end."""
        return self._reading.changes(file, store, batch, is_fresh=is_fresh)

    def close(self) -> None:
        """What is committed has to be seen again before anything else is."""
        self._producer, self._permits, self._generation, self._batch = 0, 0, -1, -1


@attrs.frozen
class _Reached:
    """How far topics reach with a batch.

    Args:
        stores: store that has changed -> the offset after the last record of its changelog.
        outputs: (output, partition) -> the offset after the last record that the task has written there.
        needed: window store -> what is needed of its changelog.
    """

    stores: Mapping[str, int]
    outputs: Mapping[tuple[str, int], int]
    needed: dict[str, Needed]


def _committed(
    connection: Connection, group: str, partition: int, sources: Mapping[str, str]
) -> dict[str, tuple[int, str]]:
    """Source topic of a task -> the offset that the group has committed, and its metadata; none: nothing is committed."""
    found = committed_offsets(connection, group, [(topic, partition) for topic in sources.values()])
    return {name: found[topic, partition] for name, topic in sources.items() if (topic, partition) in found}


def _last(connection: Connection, group: str, partition: int, sources: Mapping[str, str]) -> Committed | None:
    """What the last transaction of a task did; None: nothing is committed."""
    committed = _committed(connection, group, partition, sources)
    return committed_of(group, partition, committed) if committed else None


def _size_of(records: Iterable[Record]) -> int:
    return sum(len(value or b"") + len(key or b"") for _, value, key, *_ in records)
