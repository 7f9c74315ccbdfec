"""The transactions of a process: whatever its tasks have made meanwhile is committed together, as Kafka Streams does it (KIP-447).

One transaction costs brokers and client the same for one task as for fifty. So who has something to commit while another one is
being committed waits for its end, and then all who have waited are committed in one.

A process that was given up, and lives on, must not commit any more, whatever it still has in hand. Brokers see to that: a transaction
names the membership of the run's driver in the group `application.id`, its permit, and they refuse all but the newest (`membership`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer, TopicPartition

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.batches import Batch, Place, make_records
from task_assignor.kafka.topics.connection import Connection, is_passing, text_of, within
from task_assignor.kafka.topics.failures import BEGIN_ANEW, REFUSED, refusal_of, why_ended
from task_assignor.kafka.topics.offsets import committed_offsets
from task_assignor.runtime.errors import TaskMigratedException, TopicException
from task_assignor.runtime.steps import others_compute
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_MOST_S: Final = 10.0
"""So long may one call wait for brokers."""
_STEP_S: Final = 1.0
_SPARE_S: Final = 5.0
"""So much longer than it says may a call of confluent-kafka take before it counts as stuck."""
_MOST_BYTES: Final = 1_000_000_000
"""librdkafka's greatest: how large a record may be, brokers say."""
_PIECE_BYTES: Final = 1_000_000
"""librdkafka's own: so much goes to a partition in one piece, which brokers refuse if it is more than they take for one record."""
_LEAST_PIECE_BYTES: Final = 2_000
_SMALLER: Final = 8
"""So many times smaller are the pieces when one was refused. Kafka's own producer cuts such a piece in two, and librdkafka does not."""
_TOGETHER: Final = 16 << 20
"""So many bytes are committed together, or those of one task. Rows become values that are a few times larger."""
_OFFSETS_AT_ONCE: Final = 512 << 10
"""So many bytes of offsets are sent at a time. Brokers make one record batch of them, and with more than a megabyte (the offsets topic's
max.message.bytes) they only say that there is an unknown error."""
_BESIDE: Final = 128
"""So many bytes has one beside its names and its metadata, at most."""
_GAP_S: Final = 0.005
"""So long after one task another one begins at most."""
_PATIENCE_S: Final = 0.1
"""So long is waited for others that may be committed together: Kafka Streams commits every 100 ms."""
NOTHING: Final = (-1, "")
"""What is committed where nothing is."""
_NO_PERMIT: Final = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
"""What brokers say of a permit that is not the newest any more."""


class Committer:
    """Makes the transactions of a process. Called by any thread.

    Args:
        connection: the process's connection.
        application_id: the group whose offsets are committed.
        transactional_id: under which; no two processes that live have the same one.
    """

    def __init__(self, connection: Connection, application_id: str, transactional_id: str) -> None:
        self._connection = connection
        self._application_id = application_id
        self._transactional_id = transactional_id
        self._making = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[Batch] = deque()
        self._is_led = False
        """Somebody commits."""
        self._permit = b""
        self._permits = 0
        """How many have come."""
        self._first = 0
        """Orders of earlier generations count no more."""
        self._producer: Producer | None = None
        self._piece_bytes = _PIECE_BYTES
        self._number = 0
        """How many producers have been made."""
        self._begun = 0.0
        """When the last transaction began, in seconds of the monotonic clock."""
        self._stuck_at = 0.0
        """When a producer was given up that did not get on, in seconds of the monotonic clock."""
        self._committed_at = 0.0
        """When a transaction was committed last."""

    def take_permit(self, permit: bytes, first: int = 0) -> None:
        """From now on brokers take this one; empty: the process is no client of the run any more.

        Args:
            permit: the permit.
            first: orders of earlier generations were given to what the process was before it joined again: others have the tasks,
                however late the process comes to what it still has in hand.
        """
        with self._changed:
            self._permit, self._first = permit, first
            self._permits += 1
            self._changed.notify_all()
        if permit and self._producer is None:
            # The first orders are on their way, and this takes a few answers of brokers.
            threading.Thread(target=self._begin_early, name="begin transactions", daemon=True).start()

    @property
    def permits(self) -> int:
        """How many have come. A task that was elsewhere meanwhile, and was lost there, comes back with a newer one."""
        return self._permits

    def _begin_early(self) -> None:
        # Whoever has the first order tries again, and says what is wrong.
        with suppress(StreamsException):
            self.begin()

    # A producer.

    def begin(self) -> int:
        """See to it that there is a producer: all transactions of earlier ones of its id are over.

        Returns:
            Its number. When that is another one, what is committed may be other than was thought.

        Raises:
            KafkaClusterException: brokers do not answer for too long, or refuse.
            TaskMigratedException: they let nobody begin now.
        """
        with self._making:
            if self._producer is None:
                producer = self._connection.producer(
                    {
                        "transactional.id": self._transactional_id,
                        "compression.type": "lz4",
                        "linger.ms": 5,
                        "batch.size": self._piece_bytes,
                        "message.max.bytes": _MOST_BYTES,
                    }
                )
                self._begun = 0.0
                try:
                    what = f"begin the transactions {self._transactional_id}"
                    self._repeat(producer, what, producer.init_transactions)
                except KafkaException as error:
                    failure = self._failure(error, self._application_id)
                    raise (failure.error if isinstance(failure, _RefusedError) else failure) from error
                self._producer = producer
                self._number += 1
            return self._number

    def _end(self) -> None:
        """Let go of the producer; a transaction that is open is ended by the next one of its id."""
        self._producer = None

    # Committing.

    def commit(self, batch: Batch) -> None:
        """Commit it; it is when this returns, and its `ends` are known.

        Raises:
            KafkaClusterException: brokers do not answer for too long, or refuse.
            TaskMigratedException: it is not, or perhaps not: the task has to see what is committed.
        """
        with self._changed:
            self._waiting.append(batch)
            while self._is_led and not batch.is_done:
                self._changed.wait()
            leads = not batch.is_done
            self._is_led = self._is_led or leads
        while leads:
            with self._changed:
                self._await_others()
                group = self._next_group()
            try:
                make_records(group)
                self._commit_all([each for each in group if each.error is None])
            except BaseException as error:  # noqa: BLE001 (it is raised where each of them is waited for)
                for each in group:
                    each.error = each.error or error
            with self._changed:
                for each in group:
                    each.is_done = True
                leads = self._is_led = not batch.is_done
                self._changed.notify_all()
        if batch.error is not None:
            raise batch.error

    def _await_others(self) -> None:
        """Others of this process that compute something now will have to be committed soon."""
        until = time.monotonic() + _PATIENCE_S
        others = -1
        while others != len(self._waiting) or (others_compute() and time.monotonic() < until):
            others = len(self._waiting)
            self._changed.wait(_GAP_S)

    def _next_group(self) -> list[Batch]:
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and size + self._waiting[0].size <= _TOGETHER:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _commit_all(self, group: Sequence[Batch]) -> None:
        """Commit in one transaction; where something is refused each in one of its own, so that the others are not."""
        for each in group:
            if each.producer != self._number or self._producer is None:
                each.error = TaskMigratedException(
                    f"The transactions {self._transactional_id} have begun anew since task {each.task} saw what is committed."
                )
        left = [each for each in group if each.error is None]
        while left:
            permits = self._permits
            try:
                self._commit_together(left)
            except _NoPermitError as error:
                self._await_permit(permits, error)
            except _RefusedError as error:
                if len(left) == 1:
                    left[0].error = error.error
                    return
                for each in left:
                    self._commit_all([each])
                return
            except TaskMigratedException as error:
                for each in left:
                    each.error = TaskMigratedException(str(error))
                    each.error.__cause__ = error.__cause__
                return
            else:
                self._committed_at = time.monotonic()
                return

    def _commit_together(self, group: Sequence[Batch]) -> None:
        producer = self._producer
        assert producer is not None, "begin() comes first"
        with self._changed:
            permit, permits, first = self._permit, self._permits, self._first
        if not permit:
            raise TaskMigratedException("Brokers take nothing of this client any more: it is no member.")
        self._see_who_may(group, permits, first)
        self._begun = time.monotonic()
        what = f"commit a batch of {_tasks(group)}"
        try:
            try:
                producer.begin_transaction()
                for each in group:
                    with self._alone(KafkaException, SystemError, KafkaClusterException):
                        self._produce(producer, each)
                self._flush(producer, group, permit)
                for each in group:
                    if each.refusal is not None:
                        # Else it would only be known that a record is not there, as after an outage.
                        raise KafkaException(each.refusal)
            except KafkaException as error:
                raise self._reason(producer, group, permit, what, error) from error
            with self._alone():
                offsets = [offset for each in group for offset in each.offsets(each.ends)]
            is_sure = True
            for part in _in_parts(offsets, self._application_id):
                is_sure &= self._repeat(producer, what, partial(producer.send_offsets_to_transaction, part, permit))
            is_sure &= self._repeat(producer, what, producer.commit_transaction)
        except (KafkaException, SystemError) as error:
            found = refusal_of(error)
            self._see_pieces(found, group)
            raise self._failure(found, _tasks(group)) from error
        except KafkaClusterException:
            self._end()
            raise
        if not is_sure:
            self._make_sure(offsets, what)

    def _reason(
        self, producer: Producer, group: Sequence[Batch], permit: bytes, what: str, error: KafkaException
    ) -> KafkaException:
        """What a transaction has failed with, where an error may only say that it has: that of a record after one that was refused."""
        found = error.args[0]
        if found.code() in REFUSED or found.fatal():
            return error
        # Who sends offsets is told; these are never committed.
        some = [TopicPartition(*place, 0) for each in group for place in each.before]
        try:
            self._repeat(producer, what, partial(producer.send_offsets_to_transaction, some, permit))
        except KafkaException as reason:
            return error if reason.args[0].code() == KafkaError._STATE else reason  # noqa: SLF001
        return error

    @contextmanager
    def _alone(self, *others: type[Exception]) -> Iterator[None]:
        """What is raised inside has to do with one task, and what others have made may be as it should be; but for these errors.

        Raises:
            _RefusedError: it was; the transaction is over.
        """
        try:
            yield
        except others:
            raise
        except BaseException as error:
            self._abort()
            raise _RefusedError(error) from error

    def _see_pieces(self, error: KafkaException, group: Sequence[Batch]) -> None:
        """A piece of many records may be too large where none of them is.

        Raises:
            TaskMigratedException: it may have been; with another producer, which cuts smaller ones, the tasks begin anew.
        """
        found = error.args[0]
        if found.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return
        records = [record for batch in group for record in batch.records]
        least = max(_LEAST_PIECE_BYTES, *(len(value or b"") for _, value, *_ in records))
        most = max(Counter((topic, partition) for topic, _, _, partition, *_ in records).values(), default=0)
        if most > 1 and self._piece_bytes > least:
            self._piece_bytes = max(self._piece_bytes // _SMALLER, least)
            # Who begins anew ends the transaction.
            self._end()
            raise TaskMigratedException(
                f"The results of {_tasks(group)} were refused: {text_of(found)}. They are written in pieces of {self._piece_bytes} bytes now."
            ) from error

    def _see_who_may(self, group: Sequence[Batch], permits: int, first: int) -> None:
        """See to it that a batch is still the next one of its task.

        Between two permits the driver may have been no member, and another run of the application may have come and gone.

        Raises:
            _RefusedError: the batch of one of them is not.
        """
        for each in group:
            if each.generation < first:
                raise _RefusedError(
                    TaskMigratedException(
                        f"Task {each.task} was ordered before this client, {self._transactional_id}, was given up."
                    )
                )
        late = [each for each in group if each.permits != permits]
        if not late:
            return
        places = [place for each in late for place in each.before]
        found = committed_offsets(self._connection, self._application_id, places) if places else {}
        for each in late:
            if any(found.get(place, NOTHING) != before for place, before in each.before.items()):
                raise _RefusedError(
                    TaskMigratedException(
                        f"Of task {each.task} another client has committed something since this one, {self._transactional_id}, began."
                    )
                )
            each.permits = permits

    def _make_sure(self, offsets: Sequence[TopicPartition], what: str) -> None:
        wanted = {(each.topic, each.partition): (each.offset, each.metadata) for each in offsets}
        found = committed_offsets(self._connection, self._application_id, wanted)
        if not wanted.items() <= found.items():
            # Seen once, after a broker had been killed twice in a row.
            self._end()
            raise TaskMigratedException(
                f"Cannot {what}: confluent-kafka, asked more than once, calls it committed, and Kafka has not; it begins anew."
            )

    def _await_permit(self, known: int, error: _NoPermitError) -> None:
        """Wait for a newer permit: the driver has another one, or will have, or tells the process that it is no client any more.

        Raises:
            TaskMigratedException: it is none.
        """
        _log.info("A newer permit is waited for: %s", error)
        with self._changed:
            self._changed.wait_for(lambda: self._permits != known)
            if not self._permit:
                raise TaskMigratedException(f"Brokers take nothing of this client any more: {error}.")

    def _produce(self, producer: Producer, batch: Batch) -> None:
        """Have its records written; where the last one of each partition is, is noted."""
        batch.ends.clear()
        batch.restamped.clear()
        batch.refusal = None
        records = batch.records
        last = {(topic, partition): number for number, (topic, _, _, partition, _, _) in enumerate(records)}
        for number, (topic, value, key, partition, timestamp, headers) in enumerate(records):
            is_last = last[topic, partition] == number
            more: dict[str, Any] = {} if timestamp < 0 else {"timestamp": timestamp}
            if headers:
                more["headers"] = headers
            if is_last:
                batch.ends[topic, partition] = 0
                more["on_delivery"] = _telling(batch, _noting(batch.ends, (topic, partition)))
            patience = None
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition, **more)
                except BufferError:
                    patience = patience or self._connection.patience(f"write to the topic {topic}")
                    patience.check()
                    producer.poll(0.1)
                except TypeError as error:
                    raise TopicException(
                        f"A value for the topic {topic!r} has the type {type(value).__name__}. Its serde must make bytes, or None."
                    ) from error
                else:
                    break

    def _flush(self, producer: Producer, group: Sequence[Batch], permit: bytes) -> None:
        """Wait until all records of the transaction are written, or refused.

        Raises:
            KafkaClusterException: brokers are away for too long.
            TaskMigratedException: the producer is stuck; with another one the tasks begin anew.
            confluent_kafka.KafkaException: the transaction has failed.
        """
        what = f"write the records of {_tasks(group)}"
        patience = self._connection.patience(what)
        longest, since = self._longest_s, time.monotonic()
        left = len(producer)
        while left:
            remaining = producer.flush(_STEP_S)
            # What could not be sent for too long is no progress; what is refused is.
            codes = {each.refusal.code() for each in group if each.refusal is not None}
            if remaining < left and KafkaError._MSG_TIMED_OUT not in codes:  # noqa: SLF001
                patience.progress()
                since = time.monotonic()
            else:
                patience.check()
                if remaining and time.monotonic() - since > longest:
                    if self._connection.is_well:
                        # What comes after a record that was refused is held back. But one that has lost its coordinator may write nothing
                        # any more, either, though all brokers are there.
                        late = KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001
                        if (reason := self._reason(producer, group, permit, what, late)) is not late:
                            raise reason
                        raise self._stuck(what, f"none has been written for {longest:.0f} s, and brokers are there")
                    since = time.monotonic()
            left = remaining

    @property
    def _step_s(self) -> float:
        """So long may one call wait for brokers."""
        return min(_MOST_S, self._connection.request_s)

    @property
    def _longest_s(self) -> float:
        """So long without getting on makes a producer count as stuck.

        But for that which sends offsets, calls keep to their timeout: it waits for each answer up to request.timeout.ms, or for ever.
        Another producer is soon there, so these are told apart only where none has committed since: brokers may be slow.
        """
        is_slow = self._stuck_at > self._committed_at or self._connection.is_throttled
        return self._step_s + _SPARE_S + (self._connection.request_s if is_slow else 0)

    def _repeat(self, producer: Producer, what: str, step: Callable[[float], object]) -> bool:
        """A step of a transaction; again, while brokers are away. True: it was done at once.

        Raises:
            KafkaClusterException: they are for too long.
            TaskMigratedException: the producer is stuck; with another one the tasks begin anew.
            confluent_kafka.KafkaException: the step has failed.
        """
        patience = self._connection.patience(what)
        timeout, longest = self._step_s, self._longest_s
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
        """Let go of a producer that does not get on."""
        self._end()
        self._stuck_at = time.monotonic()
        seen = f" The cluster answers, but {problem}." if (problem := self._connection.problem) else ""
        return TaskMigratedException(
            f"Cannot {what}: {why}.{seen} It begins anew with another producer of the transactional id {self._transactional_id}."
        )

    def _abort(self) -> None:
        """End the transaction; else readers wait until it is over by itself. If that cannot be, another producer does."""
        producer = self._producer
        if producer is None:
            return
        try:
            within(_STEP_S * 2 + _SPARE_S, lambda: producer.abort_transaction(_STEP_S * 2))
        except (KafkaException, TimeoutError):
            self._end()

    def _failure(self, error: KafkaException, of: str) -> Exception:
        """What a transaction has failed with, which is over; what of it counts, whoever looks what is committed will see."""
        found = error.args[0]
        if found.fatal():
            self._end()
        else:
            self._abort()
        if found.code() in _NO_PERMIT and self._producer is not None:
            return _NoPermitError(text_of(found))
        advice = REFUSED.get(found.code())
        if advice is None and (found.code() in BEGIN_ANEW or is_passing(found) or found.txn_requires_abort()):
            seconds = time.monotonic() - self._begun if self._begun else 0.0
            limit_ms = self._connection.transaction_ms
            why = why_ended(found, seconds, limit_ms, self._connection.problem if seconds * 1000 >= limit_ms else "")
            return TaskMigratedException(
                f"The transaction {self._transactional_id} was ended by Kafka: {text_of(found)}. {why}"
            )
        problem = KafkaClusterException(
            f"The results of {of} cannot be written: {text_of(found)}. {advice or ''}".rstrip()
        )
        problem.__cause__ = error
        return _RefusedError(problem)


class _NoPermitError(Exception):
    """Brokers know of a newer permit."""


class _RefusedError(Exception):
    """A transaction was refused, or what one task would commit in it; with others it may be no better."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _in_parts(offsets: Sequence[TopicPartition], group: str) -> Iterator[list[TopicPartition]]:
    """As many at a time as brokers take."""
    part: list[TopicPartition] = []
    size = 0
    for each in offsets:
        takes = len(group) + len(each.topic) + len((each.metadata or "").encode()) + _BESIDE
        if part and size + takes > _OFFSETS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(each)
        size += takes
    if part:
        yield part


def _tasks(group: Sequence[Batch]) -> str:
    if len(group) == 1:
        return f"task {group[0].task}"
    return f"{len(group)} tasks, the first of them {group[0].task}"


def _telling(batch: Batch, note: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Notes whether what is written to a place is there, too, and has the time that it was given."""

    def tell(error: Any, message: Any) -> None:
        if error is not None and batch.refusal is None:
            told = f"{error.str()}, in the topic {message.topic()}"
            batch.refusal = KafkaError(error.code(), told, txn_requires_abort=True)
        if error is None and message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            batch.restamped.add(message.topic())
        note(error, message)

    return tell


def _noting(ends: dict[Place, int], place: Place) -> Callable[[Any, Any], None]:
    """Notes where what is written to a place ends."""

    def note(error: Any, message: Any) -> None:
        if error is None:
            ends[place] = message.offset() + 1

    return note
