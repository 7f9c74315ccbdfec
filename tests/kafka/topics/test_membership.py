"""The one member of an application's group: brokers take nothing that was made with an older membership."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.membership import Membership
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.results import Renewed
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics

Unique = Callable[[str], str]
PATIENCE_S = 60
pytestmark = pytest.mark.kafka


class Run:
    """What the driver of a run has of its membership."""

    def __init__(self, cluster: KafkaCluster, group: str, sources: list[str]) -> None:
        connection = Connection(ClientSettings.of({"bootstrap.servers": cluster.bootstrap_servers}), 60_000)
        self._told: queue.SimpleQueue[Renewed | StreamsException] = queue.SimpleQueue()
        self.membership = Membership(connection, group, sources)
        self.membership.begin(self._told.put)

    def next(self) -> Renewed | StreamsException:
        """What it is told next."""
        return self._told.get(timeout=PATIENCE_S)

    def permit(self, number: int, client: str = "") -> bytes:
        """A permit that is asked for."""
        self.membership.renew(number, client)
        found = self.next()
        assert isinstance(found, Renewed)
        assert found.number == number
        return found.permit


@pytest.fixture
def begin(kafka_cluster: KafkaCluster) -> Iterator[Callable[[str, list[str]], Run]]:
    runs: list[Run] = []

    def one(group: str, sources: list[str]) -> Run:
        runs.append(Run(kafka_cluster, group, sources))
        return runs[-1]

    yield one
    for run in runs:
        run.membership.close()


def commit(servers: str, name: str, topic: str, permit: bytes) -> None:
    """Commit an offset in a transaction that names a permit."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], permit_of(permit), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)


def permit_of(permit: bytes) -> Any:
    """As confluent-kafka's types have it: an object of its own; it is bytes."""
    return permit


def test_brokers_take_what_names_the_newest_alone(
    kafka_cluster: KafkaCluster, unique: Unique, begin: Callable[[str, list[str]], Run]
) -> None:
    servers, topic, group = kafka_cluster.bootstrap_servers, unique("topic"), unique("group")
    make_topics(servers, topic, partitions=1)
    run = begin(group, [topic])
    first = run.permit(1)
    commit(servers, f"{group}-a", topic, first)
    second = run.permit(2, "a")
    assert second != first
    with pytest.raises(KafkaException, match="FENCED_INSTANCE_ID"):
        commit(servers, f"{group}-b", topic, first)
    commit(servers, f"{group}-b", topic, second)


def test_what_a_client_has_left_open_is_ended(
    kafka_cluster: KafkaCluster, unique: Unique, begin: Callable[[str, list[str]], Run]
) -> None:
    servers, topic, group = kafka_cluster.bootstrap_servers, unique("topic"), unique("group")
    make_topics(servers, topic, partitions=1)
    run = begin(group, [topic])
    permit = run.permit(1)
    lost = Producer({"bootstrap.servers": servers, "transactional.id": f"{group}-a"})
    lost.init_transactions(PATIENCE_S)
    lost.begin_transaction()
    lost.produce(topic, b"1", partition=0)
    lost.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], permit_of(permit), PATIENCE_S)
    run.permit(2, "a")
    with pytest.raises(KafkaException, match="_FENCED"):
        lost.commit_transaction(PATIENCE_S)


def test_brokers_keep_the_offsets_of_all_sources(
    kafka_cluster: KafkaCluster, unique: Unique, begin: Callable[[str, list[str]], Run]
) -> None:
    """Of a group with members they forget, after a week, those of topics that no member wants (KIP-211)."""
    servers, group = kafka_cluster.bootstrap_servers, unique("group")
    topics = [unique("left"), unique("right")]
    make_topics(servers, *topics, partitions=2)
    begin(group, topics).permit(1)
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    places = found.members[0].assignment.topic_partitions
    assert {(each.topic, each.partition) for each in places} == {(topic, n) for topic in topics for n in range(2)}


def test_a_second_run_takes_the_place_and_the_first_is_told(
    kafka_cluster: KafkaCluster, unique: Unique, begin: Callable[[str, list[str]], Run]
) -> None:
    topic, group = unique("topic"), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    first = begin(group, [topic])
    permit = first.permit(1)
    second = begin(group, [topic])
    assert second.permit(1) != permit
    error = first.next()
    assert isinstance(error, CommitLogException)
    assert f"Another run of the application '{group}' has begun" in str(error)
