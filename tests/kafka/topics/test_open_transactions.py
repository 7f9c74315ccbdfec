"""Transactions that are open when a run begins: brokers hold the offsets of the group back until they are over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import KafkaTopics, log
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.offsets import begun_in, committed_offsets, held_back, stable_offsets
from task_assignor.runtime import CommitLogException
from task_assignor.runtime.storage import LocalStorage
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import commits_of_a_stranger, stream_topic
from tests.kafka.topics.test_sinks import Join

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


def leave_open(join: Join, transactional_id: str, partition: int) -> Producer:
    """Offsets are sent, and the transaction is neither committed nor aborted, as where a client is killed."""
    producer = Producer(
        {"bootstrap.servers": join.servers, "transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(join.joined, b"a row that does not count", partition=0)
    group = Consumer({"bootstrap.servers": join.servers, "group.id": join.application_id})
    places = [TopicPartition(join.left, partition, 7), TopicPartition(join.right, partition, 7)]
    producer.send_offsets_to_transaction(places, group.consumer_group_metadata(), 60)
    assert not producer.flush(60)
    return producer


def test_those_of_killed_clients_are_ended_when_the_next_run_begins(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Brokers would end them after transaction.timeout.ms; before, no run began, and after a minute it gave up."""
    join = Join(kafka_cluster, unique, rows=1_000)
    join.application(tmp_path / "run").run()
    open_ones = [leave_open(join, f"{join.application_id}-0_{partition}", partition) for partition in (1, 3)]
    join.add(400)
    join.application(tmp_path / "run").run()
    join.check()
    del open_ones


def test_those_of_killed_clients_that_have_sent_no_offsets_are_ended_too(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """They hid what came after them in the changelog: where there are fewer clients now, a standby waited for a minute, and ended the run."""
    join = Join(kafka_cluster, unique, rows=100)
    join.application(tmp_path / "run", clients=2).run()
    gone = Producer({"bootstrap.servers": join.servers, "transactional.id": f"{join.application_id}-client-2"})
    gone.init_transactions(60)
    gone.begin_transaction()
    changelog = f"{join.application_id}-join-left-changelog"
    gone.produce(changelog, b"a row that does not count", b"key", partition=1)
    assert not gone.flush(60)
    connection = Connection(ClientSettings.of({"bootstrap.servers": join.servers}), 60_000)
    assert begun_in(connection, {changelog: 4}) == [(changelog, 1)]
    join.application(tmp_path / "run", clients=1).run()
    assert begun_in(connection, {changelog: 4}) == []
    join.check()


def test_a_second_driver_on_a_folder_that_is_in_use_ends_none(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """It was refused only after that, and batches of the first one were done again."""
    join = Join(kafka_cluster, unique, rows=100)
    join.application(tmp_path / "run").run()
    open_one = leave_open(join, f"{join.application_id}-0_1", 1)
    with (
        LocalStorage(tmp_path / "run").hold("coordinator.lock"),
        pytest.raises(CommitLogException, match="Another coordinator"),
    ):
        join.application(tmp_path / "run").run()
    connection = Connection(ClientSettings.of({"bootstrap.servers": join.servers}), 5_000)
    assert held_back(connection, join.application_id, [(join.left, 1)]) == [(join.left, 1)], "it goes on"
    open_one.abort_transaction(60)


def test_one_of_somebody_else_is_named(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    join = Join(kafka_cluster, unique, rows=100)
    stranger = leave_open(join, f"{join.application_id}-stranger", 2)
    places = [(topic, partition) for topic in (join.left, join.right) for partition in range(4)]
    connection = Connection(ClientSettings.of({"bootstrap.servers": join.servers}), 5_000)
    assert held_back(connection, join.application_id, places) == [(join.left, 2), (join.right, 2)]
    said = (
        f"a transaction is open that commits offsets of {join.left}-2, {join.right}-2, and they tell nobody any until"
    )
    with pytest.raises(KafkaClusterException, match=said):
        committed_offsets(connection, join.application_id, places)
    stranger.abort_transaction(60)
    assert committed_offsets(connection, join.application_id, places) == {}
    assert held_back(connection, join.application_id, places) == []


def test_what_the_run_has_recorded_and_the_group_has_not_is_told(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """As where a transaction of which brokers had lost the end was aborted by hand."""
    join = Join(kafka_cluster, unique, rows=100)
    join.application(tmp_path / "run", clients=1).run()
    group = Consumer({"bootstrap.servers": join.servers, "group.id": join.application_id})
    places = [TopicPartition(join.left, 0), TopicPartition(join.right, 0)]
    before = group.committed(places, 60)
    join.add(100)
    join.application(tmp_path / "run", clients=1).run()
    after = group.committed(places, 60)
    commit = commits_of_a_stranger(join.servers, join.application_id)
    commit(before)
    join.add(100)
    said = rf"has committed offset {before[0].offset} .* recorded that task 0_0 has processed up to {after[0].offset}.*a new run_dir with"
    with pytest.raises(StreamsException, match=said):
        join.application(tmp_path / "run", clients=1).run()
    commit(after)
    group.close()
    join.application(tmp_path / "run", clients=1).run()
    join.check()


def test_a_run_that_ends_names_the_records_that_one_has_hidden_all_the_time(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended as if all had been processed that was there."""
    join = Join(kafka_cluster, unique, rows=100)
    producer = Producer({"bootstrap.servers": join.servers, "transactional.id": unique("stranger")})
    producer.init_transactions(60)
    producer.begin_transaction()
    (end,) = stable_offsets(Connection(ClientSettings.of({"bootstrap.servers": join.servers}), 60_000), join.left, [2])
    for _ in range(3):
        producer.produce(join.left, b'{"key": 1, "at": 1}', partition=2)
    assert not producer.flush(60)
    join.application(tmp_path / "run", clients=1).run()
    said = f"still open hide records of the topic {join.left}: 3 after offset {end} (partition 2). This run has not"
    assert said in caplog.text
    assert caplog.text.count("still open hide records") == 1
    producer.abort_transaction(60)
    caplog.clear()
    join.application(tmp_path / "run", clients=1).run()
    assert "hide records" not in caplog.text
    join.check()


def test_of_a_source_that_one_hides_for_long_it_is_said_once(
    kafka_cluster: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that goes on stood still, and even its lag was 0."""
    topic = unique("hidden")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"{}", partition=1)
    assert not producer.flush(60)
    source = KafkaTopics({"bootstrap.servers": kafka_cluster.bootstrap_servers}, [stream_topic(topic)]).open(topic)
    monkeypatch.setattr(log, "CHECK_S", -1.0)
    source.refresh()
    assert "Transactions of others" not in caplog.text
    monkeypatch.setattr(log, "LONG_S", 0.0)
    for _ in range(3):
        source.refresh()
    assert caplog.text.count(f"hide what comes after offset 0 (partition 1) of the topic {topic} for") == 1
    producer.commit_transaction(60)

    def is_there() -> bool:
        source.refresh()
        return source.end_offsets()[1] > 0

    wait_until(is_there, "the record is there")
    assert not source._hidden
