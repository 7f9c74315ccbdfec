"""Records that are not written: what is said where quotas hold a client back, what is no progress, and when a producer is given up."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import committing
from task_assignor.kafka.topics.batches import Batch
from task_assignor.kafka.topics.committing import Committer
from task_assignor.kafka.topics.connection import Connection
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.sdk import TaskId
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.jars import class_path, java_command

Unique = Callable[[str], str]


@pytest.mark.kafka
def test_a_quota_that_holds_a_client_back_is_named(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """It was said that the cluster answers, "but not to this"; with a quota of requests that it does not answer at all."""
    servers, topic, name = kafka_cluster.bootstrap_servers, unique("topic"), unique("held-back")
    make_topics(servers, topic, partitions=1)
    command = [
        java_command(),
        "-cp",
        class_path(),
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        servers,
        "--alter",
    ]
    command += ["--add-config", "producer_byte_rate=1000", "--entity-type", "clients", "--entity-name", name]
    subprocess.run(command, check=True, capture_output=True)
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers, "client.id": name}), 2_000)
    producer = connection.producer({})

    def write() -> None:
        patience = connection.patience(f"write to the topic {topic}")
        producer.produce(topic, os.urandom(100_000))
        while producer.flush(0.5):
            patience.check()

    write()
    assert connection.is_throttled
    said = r"answers, but its quotas .*producer_byte_rate.* are used up: the last time it made it wait for \d+\.\d s"
    with pytest.raises(KafkaClusterException, match=said):
        write()


def _committer() -> Committer:
    return Committer(Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000), "app", "app-client-0")


def test_a_call_that_a_quota_holds_back_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer was given up after 15 s where brokers had said that they make it wait."""
    one, waited = _committer(), list[float]()

    def never(seconds: float, step: object, look: object = None) -> None:
        waited.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(committing, "within", never)
    one._committed_at = time.monotonic()
    one._connection._trouble.note_throttle(SimpleNamespace(throttle_time=0.0))
    assert not one._connection.is_throttled
    one._connection._trouble.note_throttle(SimpleNamespace(throttle_time=9.0))
    producer: Any = None
    with pytest.raises(TaskMigratedException, match="confluent-kafka has not come back for"):
        one._repeat(producer, "commit", lambda seconds: None)
    assert waited == [45]


class _TimesOut:
    """A producer whose broker is gone: its records are given up one after the other."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._left = 2

    def __len__(self) -> int:
        return self._left

    def flush(self, seconds: float) -> int:
        assert seconds
        self._batch.refusal = KafkaError(KafkaError._MSG_TIMED_OUT)
        self._left -= 1
        return self._left


def test_records_that_could_not_be_sent_are_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log said that a cluster which was away "answers again", after a minute, and the wait for it began anew."""
    one = _committer()
    batch = Batch(TaskId(0, 0), [], [], 0, lambda ends: [], 1, {}, 0, 0)
    patience = one._connection.patience("write")
    monkeypatch.setattr(patience, "progress", lambda: pytest.fail("nothing came"))
    monkeypatch.setattr(one._connection, "patience", lambda what: patience)
    producer: Any = _TimesOut(batch)
    one._flush(producer, [batch], b"")
    assert len(producer) == 0


@pytest.mark.parametrize("is_well", [True, False])
def test_a_producer_that_writes_nothing_is_given_up_where_brokers_are_there(
    monkeypatch: pytest.MonkeyPatch, is_well: bool
) -> None:
    """One had lost its coordinator while brokers were started anew one after the other; the run ended after a minute, though all were there."""
    monkeypatch.setattr(committing, "_SPARE_S", -10.0)
    monkeypatch.setattr(Connection, "is_well", property(lambda _: is_well))
    one = _committer()
    one._connection._timeout_ms = 100

    class Stuck:
        def __len__(self) -> int:
            return 1

        def flush(self, seconds: float) -> int:
            time.sleep(0.02)
            return 1

        def send_offsets_to_transaction(self, *_: object) -> None:
            """It has not failed."""

    monkeypatch.setattr(one._connection, "_state_of_brokers", lambda longest: "something is wrong")
    producer: Any = Stuck()
    batch = Batch(TaskId(0, 0), [], [], 0, lambda ends: [], 1, {}, 0, 0)
    failure: Any = TaskMigratedException if is_well else KafkaClusterException
    said = "none has been written for 0 s, and brokers are there" if is_well else "something is wrong"
    with pytest.raises(failure, match=said):
        one._flush(producer, [batch], b"")
    assert bool(one._stuck_at) == is_well


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("no broker leads out-0 now", r"of more than 1 min\. The cluster answers, but no broker leads out-0 now\.$"),
        ("not to this", "the brokers are too slow for such batches"),
        ("", "the brokers are too slow for such batches"),
    ],
)
def test_what_keeps_records_from_being_written_until_brokers_end_the_transaction_is_named(
    monkeypatch: pytest.MonkeyPatch, state: str, said: str
) -> None:
    """Where too few replicas were in sync smaller batches were advised, once a minute."""
    one = _committer()
    one._begun = time.monotonic() - 62
    monkeypatch.setattr(one._connection, "_state_of_brokers", lambda longest: state)
    error = KafkaError(KafkaError._TIMED_OUT, "100 message(s) timed out on out [0]")
    assert re.search(said, str(one._failure(KafkaException(error), "task 0_0")))


def test_what_keeps_a_call_from_coming_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended since "confluent-kafka has not come back", while a marker of the transaction could not be written."""
    one = _committer()
    monkeypatch.setattr(committing, "_SPARE_S", -10.0)
    monkeypatch.setattr(one._connection, "_state_of_brokers", lambda longest: "not all replicas are in sync of out")
    step = threading.Event()
    producer: Any = None
    with pytest.raises(
        TaskMigratedException, match=r"come back for 0 s\. The cluster answers, but not all replicas are in sync"
    ):
        one._repeat(producer, "begin", step.wait)
    step.set()
