"""The results of tasks as transactions of Kafka: output, changelogs and source offsets of a batch become visible together.

Each task has a transactional id (`<application.id>-<task>`), so that a new owner's `init_transactions` ends what an older one
was doing and fences it. What counts is what Kafka has committed, and the coordinator's record follows: a new owner reads the
offsets that the group `application.id` has committed for the task's sources. Where they are ahead of its order, a try that
nobody heard of any more was committed; its result, in the metadata of these offsets, is the answer to the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer, TopicPartition

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.changelog_reading import ChangelogReader
from task_assignor.kafka.topics.changelogs import (
    BEGINS_ANEW,
    ChangelogCodec,
    Record,
    changelog_codec,
)
from task_assignor.kafka.topics.committed import (
    Committed,
    RecordsLostException,
    check_complete,
    check_end,
    check_stores,
    check_unread,
    committed_of,
    transactional_id,
)
from task_assignor.kafka.topics.connection import is_passing, text_of, within
from task_assignor.kafka.topics.failures import BEGIN_ANEW, REFUSED, refusal_of, why_ended
from task_assignor.kafka.topics.offsets import committed_offsets, first_offset, high_watermarks, last_stable_offset
from task_assignor.kafka.topics.output_records import records_of, size_of
from task_assignor.kafka.topics.producers import MOST_S, Begun
from task_assignor.kafka.topics.purging import Needed, Purging
from task_assignor.kafka.topics.reader import records_gone
from task_assignor.kafka.topics.shared import Shared
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.runtime.identity import columns_of
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.machines.records import FileRef
from task_assignor.runtime.repartition import span_of
from task_assignor.runtime.results import Found, Made, Offsets, TaskResults
from task_assignor.runtime.steps import only_waits
from task_assignor.runtime.stores.window import WindowStoreSpec, expiry_of
from task_assignor.runtime.sub_topology import Repartitioned
from task_assignor.runtime.topic_writing import fit_to_schema
from task_assignor.runtime.topology import ProcessorTopology, changelog_topic
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_Place = TypeVar("_Place")
_STEP_S: Final = 1.0
_SPARE_S: Final = 5.0
"""So much longer than it says may a call of confluent-kafka take before it counts as stuck."""
_PURGED_AT_ONCE: Final = 1_000
"""So many records of a repartition topic that were read are removed together, or more."""


class KafkaResults(Shared):
    """Where the results of an application's tasks go: topics of Kafka. One for each process."""

    def of_task(self, task: TaskId, topology: ProcessorTopology, files: TaskResults) -> TaskTransactions:
        """The transactions of a task."""
        return TaskTransactions(task, topology, files, self)

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Begin the transactions of these tasks side by side."""
        self.producers.expect(tasks)

    def forget(self, task: TaskId) -> None:
        """Let go of what was begun for it."""
        self.producers.forget(task)


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
        self._transactional_id = transactional_id(results.application_id, task)
        self._changelogs = {
            store.name: changelog_topic(results.application_id, store.name, topology.topology)
            for store in topology.stores
            if store.logged
        }
        self._codecs: dict[str, ChangelogCodec] = {
            store.name: changelog_codec(store) for store in topology.stores if store.logged
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
        self._reading = ChangelogReader(
            self._connection, results.reader, task.partition, self._codecs, self._times, files, self._last
        )
        self._producer: Producer | None = None
        self._generation = -1
        """Under which the producer was made."""
        self._made_at = 0.0
        """When, in seconds of the monotonic clock."""
        self._batch = -1
        """Number of the batch that this producer has committed last, or found committed; -1: none."""
        self._ends: dict[str, int] = {}
        """Store -> where its changelog ends."""
        self._written: dict[tuple[str, int], int] = {}
        """(output, partition) -> the offset after the last record that was written there."""
        self._begun = 0.0
        """When the last transaction began, in seconds of the monotonic clock."""

    # Taking over.

    def begin(self, order: TaskOrder) -> Found | None:
        """Fence older owners, and see what they have committed.

        Not where a task goes on in a new generation right after its own last transaction: had it been elsewhere meanwhile, this
        producer would be fenced, as the next transaction would tell.
        """
        producers = self._results.producers
        is_sound = self._producer is not None and self._made_at >= self._results.stuck_at
        is_sound = is_sound and not producers.expects(self._task)
        if is_sound and (self._generation == order.generation or self._batch == order.base.batch >= 0):
            self._generation = order.generation
            return None
        self.close()
        self._begun = 0.0
        expected = producers.take(self._task, self._results.stuck_at)
        made = expected or Begun(producers.make(self._task), time.monotonic())
        self._producer, self._made_at, self._generation = made.producer, made.made_at, order.generation
        if expected is None:
            try:
                what = f"begin the transactions of task {self._task}"
                self._repeat(made.producer, what, made.producer.init_transactions)
            except KafkaException as error:
                self._give_up(error)
        found = self._look(order)
        # What was found is the answer to the order, so the next one goes on from there.
        self._batch = -1 if found is None else order.batch
        return found

    def _look(self, order: TaskOrder) -> Found | None:
        """Hold what Kafka has committed against what the coordinator knows."""
        group, partition = self._results.application_id, self._task.partition
        committed = self._committed()
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
                self._check_kept(self._changelogs[store], partition, end, self._ends.get(store, 0))
            self._ends = ends
            if order.base.batch < 0:
                for name in self._read:
                    check_unread(self._connection, self._sources[name], partition)
                self._begin_anew()
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
                raise records_gone(self._sources[topic], partition, end)
            if end < start:
                raise KafkaClusterException(
                    f"The group {group} has committed offset {end} of the topic {self._sources[topic]}, partition {partition}, but the run has "
                    f"recorded that task {self._task} has processed up to {start}. Maybe somebody has set the group's offsets "
                    "back; to process records again, run the application under another application.id with a new run_dir."
                )
        # A batch without rows leaves offsets as they are.
        is_ahead = last.batch >= order.batch or last.changelog_offset > order.base.changelog_offset
        if not (is_new or is_ahead) and all(start == end for start, end in offsets.values()):
            return None
        _log.info("Task %s had been committed up to %s, but that was not recorded; it is now", self._task, offsets)
        return self._found(order, offsets, last)

    def _begin_anew(self) -> None:
        """Say in the changelogs that what they have of before does not count: nobody knows any more what it was made of."""
        former = {store: [BEGINS_ANEW] for store, end in self._ends.items() if end}
        if former:
            with self._transaction() as producer:
                self._ends.update(self._produce_changes(producer, former))
                what = f"begin anew with the changelogs of task {self._task}"
                if not self._repeat(producer, what, producer.commit_transaction):
                    # As in `_commit`, but nothing says whether it is; once more does no harm.
                    self.close()
                    raise TaskMigratedException(
                        f"Kafka has perhaps not let task {self._task} begin anew; it is tried again."
                    )

    def _committed(self) -> dict[str, tuple[int, str]]:
        """Source topic -> the offset that the group has committed, and its metadata; none: nothing is committed."""
        group, partition = self._results.application_id, self._task.partition
        found = committed_offsets(self._connection, group, [(topic, partition) for topic in self._sources.values()])
        return {name: found[topic, partition] for name, topic in self._sources.items() if (topic, partition) in found}

    def _last(self) -> Committed | None:
        """What the last transaction did; None: nothing is committed."""
        committed = self._committed()
        return committed_of(self._results.application_id, self._task.partition, committed) if committed else None

    def _needed_of_all(self, store: str) -> Needed:
        """What is needed of a changelog of which nothing is said: all that is there."""
        first = first_offset(self._connection, self._changelogs[store], self._task.partition)
        whole = FileRef.of_topic(self._changelogs[store], 0, 0, self._task.partition, first, self._ends[store])
        return Needed.of(first, self._newest(store, self.changes(whole, store, -1)), self._ends[store])

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
        return Found(Made(outputs, changelogs, repartitions), offsets, changelog_offset, last.stream_time)

    # Writing.

    def write(
        self,
        order: TaskOrder,
        offsets: Offsets,
        outputs: Mapping[str, pa.Table],
        changes: Mapping[str, pa.Table],
        stream_time: int | None,
    ) -> Made:
        """Commit what came of an order, in one transaction."""
        topics, partitions = self._results.topics, self._results.partitions
        outputs = {name: self._fit(name, rows) for name, rows in outputs.items()}
        written = {
            name: records_of(rows, topics[name], partitions[name], self._task.partition % partitions[name])
            for name, rows in outputs.items()
        }
        logged = {store: self._codecs[store].encode(found, self._ends[store]) for store, found in changes.items()}
        with self._transaction() as producer:
            reached: dict[tuple[str, int], int] = {}
            for name, records in written.items():
                latest = {record[2]: number for number, record in enumerate(records)}
                for number, record in enumerate(records):
                    note = _noting(reached, (name, record[2])) if number == latest[record[2]] else None
                    self._produce(producer, topics[name].name, *record, note)
            only_waits("its transaction is committed")
            ends = self._produce_changes(producer, logged)
            reached = self._known(reached)
            for (name, number), end in reached.items():
                self._check_kept(self._results.topic_of(name), number, end, self._written.get((name, number), 0))
            stores = {store: (end, ends.get(store, end)) for store, end in self._ends.items()}
            for store in self._times.keys() & ends.keys():
                self._needed[store].add(ends[store], self._newest(store, changes[store]))
                self._needed[store].expire(expiry_of(changes[store]))
            rows = sum(found.num_rows for found in changes.values())
            last = Committed(
                {topic: start for topic, (start, _) in offsets.items()},
                order.base.changelog_offset + rows,
                stream_time,
                stores,
                {name: found.num_rows for name, found in outputs.items()},
                {store: (needed.first, needed.newest) for store, needed in self._needed.items()},
                self._ends_with(reached),
                batch=order.batch,
            )
            self._commit(producer, offsets, last.metadata)
        self._written.update(reached)
        made = Made(
            {
                name: FileRef.of_topic(
                    name,
                    outputs[name].num_rows,
                    size_of(written[name]),
                    columns=tuple(columns_of(outputs[name].schema).items()),
                )
                for name in written
                if name not in self._results.repartitions
            },
            {
                store: FileRef.of_topic(
                    self._changelogs[store],
                    changes[store].num_rows,
                    size_of(records),
                    self._task.partition,
                    self._ends[store],
                    ends[store],
                )
                for store, records in logged.items()
                if records
            },
            {
                name: self._results.routed(
                    name,
                    outputs[name].num_rows,
                    size_of(records),
                    self._ends_with({})[name],
                    span_of(outputs[name], self._timestamps[name]),
                )
                for name, records in written.items()
                if name in self._results.repartitions
            },
        )
        self._results.committed_at = time.monotonic()
        self._batch = order.batch
        self._ends.update(ends)
        for name, purging in self._read.items():
            _, read = offsets[name]
            purging.remove(read, max(order.ranges[name][1], read + _PURGED_AT_ONCE))
        for store in self._times.keys() & ends.keys():
            self._purging[store].remove(self._needed[store].first, ends[store])
        return made

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

    @contextmanager
    def _transaction(self) -> Iterator[Producer]:
        """Begins one, which is committed inside."""
        producer = self._producer
        assert producer is not None, "begin() comes first"
        self._begun = time.monotonic()
        try:
            producer.begin_transaction()
            yield producer
        except (KafkaException, SystemError) as error:
            self._give_up(refusal_of(error))

    def _ends_with(self, reached: Mapping[tuple[str, int], int]) -> dict[str, tuple[int, ...]]:
        """Output -> where each of its partitions ends, as far as the task has written there."""
        written = {**self._written, **reached}
        return {
            name: tuple(written.get((name, partition), 0) for partition in range(self._results.partitions[name]))
            for name in self._outputs
        }

    def _produce_changes(self, producer: Producer, logged: Mapping[str, list[Record]]) -> dict[str, int]:
        """Store -> where its changelog ends then; waits until all records of the transaction are written."""
        ends: dict[str, int] = {}
        for store, records in logged.items():
            for number, (key, value) in enumerate(records):
                # The last one of a partition is written last.
                note = _noting(ends, store) if number == len(records) - 1 else None
                self._produce(producer, self._changelogs[store], value, key, self._task.partition, -1, note)
        patience = self._connection.patience(f"write the records of task {self._task}")
        left = len(producer)
        while left:
            remaining = producer.flush(_STEP_S)
            if remaining < left:
                patience.progress()
            else:
                patience.check()
            left = remaining
        unknown = [self._changelogs[store] for store, end in ends.items() if end <= 0]
        if unknown:
            # Of what was sent a second time, after a broker had gone, Kafka may only say that it is there already.
            self._abort()
            raise TaskMigratedException(
                f"Kafka has not said at which offsets the records of {', '.join(unknown)} are; the batch is tried again."
            )
        for store, end in ends.items():
            self._check_kept(self._changelogs[store], self._task.partition, end, self._ends[store])
        return ends

    def _check_kept(self, topic: str, partition: int, end: int, before: int) -> None:
        """`check_end`, in a transaction that is ended if need be."""
        try:
            check_end(topic, partition, end, self._task, before)
        except RecordsLostException:
            self._abort()
            raise

    def _produce(
        self,
        producer: Producer,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp: int,
        note: Callable[[Any, Any], None] | None = None,
    ) -> None:
        more: dict[str, Any] = {} if timestamp < 0 else {"timestamp": timestamp}
        patience = None
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, on_delivery=note, **more)
            except BufferError:
                patience = patience or self._connection.patience(f"write to the topic {topic}")
                patience.check()
                producer.poll(0.1)
            else:
                return

    def _commit(self, producer: Producer, offsets: Offsets, metadata: str) -> None:
        sources = [
            TopicPartition(self._sources[name], self._task.partition, end, metadata)
            for name, (_, end) in sorted(offsets.items())
        ]
        group = self._connection.group(self._results.application_id).consumer_group_metadata()
        what = f"commit a batch of task {self._task}"
        is_sure = self._repeat(
            producer, what, lambda timeout: producer.send_offsets_to_transaction(sources, group, timeout)
        )
        is_sure &= self._repeat(producer, what, producer.commit_transaction)
        wanted = {name: (end, metadata) for name, (_, end) in offsets.items()}
        if not is_sure and not wanted.items() <= self._committed().items():
            # Seen once, after a broker had been killed twice in a row.
            self.close()
            raise TaskMigratedException(
                f"Kafka has not committed a batch of task {self._task} that confluent-kafka, asked more than once, calls committed; "
                "the task begins anew."
            )

    def _repeat(self, producer: Producer, what: str, step: Callable[[float], object]) -> bool:
        """A step of a transaction; again, while brokers are away. True: it was done at once.

        Raises:
            KafkaClusterException: they are for too long.
            TaskMigratedException: the producer is stuck; with another one the task begins anew.
            confluent_kafka.KafkaException: the step has failed.
        """
        patience = self._connection.patience(what)
        timeout = min(MOST_S, self._connection.request_s)
        # But for that which sends offsets, calls keep to their timeout: it waits for each answer up to request.timeout.ms, or for ever.
        # Another producer is soon there, so these are told apart only where none has committed since: brokers may be slow.
        is_slow = self._results.stuck_at > self._results.committed_at
        longest = timeout + _SPARE_S + (self._connection.request_s if is_slow else 0)
        since = time.monotonic()
        is_first = True
        while True:
            limit = min(longest, patience.left_s)
            try:
                within(limit, lambda: step(timeout), patience.check)
            except TimeoutError as error:
                # Neither can this producer abort; whoever begins anew ends its transaction.
                raise self._stuck(what, f"confluent-kafka has not come back for {limit:.0f} s") from error
            except KafkaException as error:
                found = error.args[0]
                if found.fatal() or found.txn_requires_abort() or not is_passing(found):
                    raise
                producer.poll(0)  # tells of refusals
                patience.check(text_of(found))
                # One that has lost its coordinator may look for it no more, though the broker is back and answers others.
                if self._begun and time.monotonic() - since > longest:
                    raise self._stuck(what, f"it has failed for {longest:.0f} s: {text_of(found)}") from error
                is_first = False
                time.sleep(0.1)
            else:
                return is_first

    def _stuck(self, what: str, why: str) -> TaskMigratedException:
        """Let go of a producer that does not get on, and have the process's other tasks begin anew before they wait as long."""
        self.close()
        self._results.stuck_at = time.monotonic()
        return TaskMigratedException(
            f"Cannot {what}: {why}. The task begins anew with another producer of the transactional id {self._transactional_id}."
        )

    def _abort(self) -> None:
        """End the transaction; else readers wait until it is over by itself."""
        producer = self._producer
        self.close()
        if producer is not None:
            with suppress(KafkaException, TimeoutError):
                within(_STEP_S * 2 + _SPARE_S, lambda: producer.abort_transaction(_STEP_S * 2))

    def _give_up(self, error: KafkaException) -> NoReturn:
        """The transaction has failed: what of it counts, the next owner's `begin` will see."""
        found = error.args[0]
        if found.fatal():
            self.close()
        else:
            self._abort()
        advice = REFUSED.get(found.code())
        if advice is None and (found.code() in BEGIN_ANEW or is_passing(found) or found.txn_requires_abort()):
            seconds = time.monotonic() - self._begun if self._begun else 0.0
            why = why_ended(found, seconds, self._connection.transaction_ms)
            raise TaskMigratedException(
                f"The transaction {self._transactional_id} was ended by Kafka: {text_of(found)}. {why}"
            ) from error
        raise KafkaClusterException(
            f"The results of task {self._task} cannot be written: {text_of(found)}. {advice or ''}".rstrip()
        ) from error

    # Reading.

    def changes(self, file: FileRef, store: str, batch: int, *, is_fresh: bool = False) -> pa.Table:
        """What the records of a range of the changelog topic changed; of one that was compacted since, all up to its end."""
        return self._reading.changes(file, store, batch, is_fresh=is_fresh)

    def close(self) -> None:
        """Let go of the producer; a transaction that is open is ended by the next owner."""
        self._producer, self._generation, self._batch = None, -1, -1


def _noting(ends: dict[_Place, int], place: _Place) -> Callable[[Any, Any], None]:
    """Notes where what is written to a place ends."""

    def note(error: Any, message: Any) -> None:
        if error is None:
            ends[place] = message.offset() + 1

    return note
