"""What the tasks of a process have made is committed together, and none of them has to suffer for another. Without a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicPartition

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.batches import Batch
from task_assignor.kafka.topics.committing import Committer
from task_assignor.kafka.topics.connection import Connection
from task_assignor.runtime.errors import TaskMigratedException, TopicException
from task_assignor.sdk import TaskId

PATIENCE_S = 60
_NOT_NEWEST = KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID, txn_requires_abort=True))


class _Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0


class FakeProducer:
    """Notes what is committed, as the topic of each record.

    Args:
        on_commit: called before a transaction is committed.
        on_offsets: called with those of a transaction and the permit.
    """

    def __init__(
        self,
        on_commit: Callable[[], object] = bool,
        on_offsets: Callable[[Sequence[TopicPartition], bytes], object] = lambda offsets, permit: None,
    ) -> None:
        self._on_commit, self._on_offsets = on_commit, on_offsets
        self.committed: list[list[str]] = []
        self.aborted = 0
        self._topics: list[str] = []
        self._written = 0

    def __len__(self) -> int:
        return 0

    def init_transactions(self, seconds: float) -> None:
        """Nothing to do."""

    def begin_transaction(self) -> None:
        self._topics = []

    def produce(self, topic: str, value: bytes, key: bytes, *, partition: int, on_delivery: Any = None) -> None:
        if not isinstance(value, bytes):
            raise TypeError("argument 2 must be read-only bytes-like object")
        self._topics.append(topic)
        self._written += 1
        if on_delivery is not None:
            on_delivery(None, _Message(self._written))

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], permit: bytes, seconds: float) -> None:
        self._on_offsets(offsets, permit)

    def commit_transaction(self, seconds: float) -> None:
        self._on_commit()
        self.committed.append(self._topics)

    def abort_transaction(self, seconds: float) -> None:
        self.aborted += 1


def a_committer(producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> Committer:
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    monkeypatch.setattr(connection, "producer", lambda config: producer)
    committer = Committer(connection, "app", "app-a")
    committer.take_permit(b"1")
    return committer


def a_batch(committer: Committer, topic: str, number: int = 0) -> Batch:
    def offsets(ends: dict[tuple[str, int], int]) -> list[TopicPartition]:
        assert ends[topic, 0] > 0
        return [TopicPartition(f"source of {topic}", number, 1, "")]

    return Batch(TaskId(0, number), [], [(topic, b"v", b"k", 0, -1, None)] * 2, 4, offsets, committer.begin())


def commit_all(committer: Committer, batches: Sequence[Batch]) -> list[BaseException | None]:
    """In threads of their own; what each has raised."""
    with ThreadPoolExecutor(len(batches)) as pool:
        return [found.exception() for found in [pool.submit(committer.commit, batch) for batch in batches]]


def test_those_that_come_while_others_are_committed_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was a transaction: fifty of them cost brokers fifty times as much."""
    others_wait, committer = threading.Event(), None

    def on_commit() -> None:
        assert others_wait.wait(PATIENCE_S)

    producer = FakeProducer(on_commit)
    committer = a_committer(producer, monkeypatch)
    batches = [a_batch(committer, str(number), number) for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        first = pool.submit(committer.commit, batches[0])
        while committer._waiting or not committer._is_led:
            threading.Event().wait(0.001)
        rest = [pool.submit(committer.commit, batch) for batch in batches[1:]]
        while len(committer._waiting) < 9:
            threading.Event().wait(0.001)
        others_wait.set()
        assert [found.result(PATIENCE_S) for found in (first, *rest)] == [None] * 10
    assert [sorted(set(topics)) for topics in producer.committed] == [["0"], sorted(map(str, range(1, 10)))]
    assert all(batch.ends[batch.records[0][0], 0] > 0 for batch in batches)


def test_one_that_is_refused_is_told_and_the_others_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_offsets(offsets: Sequence[TopicPartition], permit: bytes) -> None:
        if any(each.topic == "source of bad" for each in offsets):
            raise KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE, txn_requires_abort=True))

    producer = FakeProducer(on_offsets=on_offsets)
    committer = a_committer(producer, monkeypatch)
    found = commit_all(committer, [a_batch(committer, name, n) for n, name in enumerate(("good", "bad", "fine"))])
    assert (found[0], found[2]) == (None, None)
    assert isinstance(found[1], KafkaClusterException)
    assert "The results of task 0_1 cannot be written" in str(found[1])
    assert sorted({topic for topics in producer.committed for topic in topics}) == ["fine", "good"]
    assert producer.aborted


def test_one_whose_offsets_cannot_be_told_is_told_and_the_others_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeProducer()
    committer = a_committer(producer, monkeypatch)
    bad, good = a_batch(committer, "bad", 1), a_batch(committer, "good", 2)
    bad.offsets = lambda ends: [][len(ends)]
    found = commit_all(committer, [bad, good])
    assert isinstance(found[0], IndexError)
    assert found[1] is None
    assert producer.committed == [["good", "good"]]


def test_one_whose_serde_gives_no_bytes_is_told_and_the_others_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks of the client were told, those of other outputs, too, and whoever was heard first was blamed; the transaction stayed open."""
    producer = FakeProducer()
    committer = a_committer(producer, monkeypatch)
    good, bad = a_batch(committer, "good", 1), a_batch(committer, "bad", 2)
    value: Any = bytearray(b"v")
    bad.logged = [("bad", value, b"k", 0, -1, None)]
    committer._commit_all([good, bad])
    assert isinstance(bad.error, TopicException)
    assert "'bad' has the type bytearray. Its serde must make bytes" in str(bad.error)
    assert good.error is None
    assert producer.committed == [["good", "good"]]
    assert producer.aborted == 2


def test_with_a_newer_permit_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[bytes] = []

    def on_offsets(offsets: Sequence[TopicPartition], permit: bytes) -> None:
        used.append(permit)
        if permit == b"1":
            threading.Thread(target=committer.take_permit, args=(b"2",)).start()
            raise _NOT_NEWEST

    producer = FakeProducer(on_offsets=on_offsets)
    committer = a_committer(producer, monkeypatch)
    committer.commit(a_batch(committer, "a"))
    assert (used, producer.aborted, len(producer.committed)) == ([b"1", b"2"], 1, 1)


def test_who_is_no_client_any_more_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_offsets(offsets: Sequence[TopicPartition], permit: bytes) -> None:
        threading.Thread(target=committer.take_permit, args=(b"",)).start()
        raise _NOT_NEWEST

    producer = FakeProducer(on_offsets=on_offsets)
    committer = a_committer(producer, monkeypatch)
    with pytest.raises(
        TaskMigratedException, match=r"Brokers take nothing of this client any more: .*FENCED_INSTANCE_ID"
    ):
        committer.commit(a_batch(committer, "a"))
    assert not producer.committed


def test_what_was_made_before_another_producer_began_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two others may have committed it: the task has to look."""
    producer = FakeProducer()
    committer = a_committer(producer, monkeypatch)
    batch = a_batch(committer, "a")
    committer._end()
    for _ in range(2):
        with pytest.raises(TaskMigratedException, match="have begun anew since task 0_0 saw what is committed"):
            committer.commit(batch)
        committer.begin()
    assert not producer.committed


def test_what_is_refused_while_records_are_still_being_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes on is only told that the state is wrong: it was tried again and again, and said to be another client's doing."""

    def on_offsets(offsets: Sequence[TopicPartition], permit: bytes) -> None:
        raise KafkaException(KafkaError(KafkaError.INVALID_RECORD, txn_requires_abort=True))

    def produce(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    producer = FakeProducer(on_offsets=on_offsets)
    monkeypatch.setattr(producer, "produce", produce)
    committer = a_committer(producer, monkeypatch)
    with pytest.raises(KafkaClusterException, match=r"The results of task 0_0 cannot be written: .*\(INVALID_RECORD\)"):
        committer.commit(a_batch(committer, "a"))
    assert not producer.committed
