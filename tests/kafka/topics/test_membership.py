"""The one member of an application's group: brokers take nothing that was made with an older membership."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.membership import INSTANCE, Membership
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.tasks.results import Renewed
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until

Unique = Callable[[str], str]
PATIENCE_S = 60
SHORT_MS = 4_000
"""Session of a driver that is to notice that another one stays."""
pytestmark = pytest.mark.kafka


class Driver:
    """What the driver of a run does in the group of its application.

    Args:
        servers: where the cluster is.
        group: the group.
        sources: topics whose offsets are committed.
        timeout_ms: so long it waits for brokers.
        session_ms: so long they wait for it.
    """

    def __init__(
        self, servers: str, group: str, sources: list[str], timeout_ms: int = 60_000, session_ms: int = 10_000
    ) -> None:
        self.told: queue.SimpleQueue[Renewed | StreamsException] = queue.SimpleQueue()
        settings = ClientSettings.of({"bootstrap.servers": servers, "session.timeout.ms": session_ms})
        connection = Connection(settings, timeout_ms)
        self.membership = Membership(connection, group, sources)
        self.membership.begin(self.told.put)

    def permit(self) -> bytes:
        """The next one."""
        found = self.told.get(timeout=PATIENCE_S)
        assert isinstance(found, Renewed), found
        return found.permit

    def renewed(self, number: int, client: str = "") -> bytes:
        """Another one, which it wants."""
        self.membership.renew(number, client)
        return self.permit()


class Place:
    """A group, and a topic of one partition."""

    def __init__(self, cluster: KafkaCluster, unique: Unique) -> None:
        self.servers = cluster.bootstrap_servers
        self.topic, self.group = unique("topic"), unique("group")
        make_topics(self.servers, self.topic, partitions=1)
        self.drivers: list[Driver] = []

    def driver(self, session_ms: int = 10_000) -> Driver:
        """Another one."""
        self.drivers.append(Driver(self.servers, self.group, [self.topic], session_ms=session_ms))
        return self.drivers[-1]

    def begun(self, client: str, permit: Any) -> Producer:
        """A transaction of a client that names a permit, and is open."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{self.group}-{client}"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(self.topic, b"1", partition=0)
        producer.send_offsets_to_transaction([TopicPartition(self.topic, 0, 1)], permit, PATIENCE_S)
        return producer


@pytest.fixture
def place(kafka_cluster: KafkaCluster, unique: Unique) -> Iterator[Place]:
    """Its drivers end with the test."""
    made = Place(kafka_cluster, unique)
    yield made
    for driver in made.drivers:
        driver.membership.close()


def test_brokers_take_what_names_the_newest_alone(place: Place) -> None:
    driver = place.driver()
    first = driver.renewed(1)
    place.begun("a", first).commit_transaction(PATIENCE_S)
    second = driver.renewed(2, "a")
    assert second != first
    with pytest.raises(KafkaException, match="FENCED_INSTANCE_ID"):
        place.begun("b", first)
    place.begun("b", second).commit_transaction(PATIENCE_S)


def test_what_a_client_has_left_open_is_ended(place: Place) -> None:
    driver = place.driver()
    lost = place.begun("a", driver.renewed(1))
    driver.renewed(2, "a")
    with pytest.raises(KafkaException, match="_FENCED"):
        lost.commit_transaction(PATIENCE_S)


def test_for_all_clients_of_a_machine_that_is_lost_one_permit_is_enough(place: Place) -> None:
    """There was one for each, one after the other: with thirty of them their tasks stood still for eight seconds."""
    driver = place.driver()
    permit = driver.renewed(1)
    lost = place.begun("client-7", permit)
    for number in range(30):
        driver.membership.renew(number + 2, f"client-{number}")
    numbers: list[int] = []
    while not numbers or numbers[-1] < 31:
        found = driver.told.get(timeout=PATIENCE_S)
        assert isinstance(found, Renewed), found
        numbers.append(found.number)
    # It may have looked when not all of them were wanted.
    assert len(numbers) <= 3, numbers
    with pytest.raises(KafkaException, match="_FENCED"):
        lost.commit_transaction(PATIENCE_S)


def test_brokers_keep_the_offsets_of_all_sources(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """Of a group with members they forget, after a week, those of topics that no member wants (KIP-211)."""
    servers, group = kafka_cluster.bootstrap_servers, unique("group")
    topics = [unique("left"), unique("right")]
    make_topics(servers, *topics, partitions=2)
    driver = Driver(servers, group, topics)
    driver.renewed(1)
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    places = found.members[0].assignment.topic_partitions
    assert {(each.topic, each.partition) for each in places} == {(topic, n) for topic in topics for n in range(2)}
    driver.membership.close()


def test_a_second_run_takes_the_place_and_the_first_is_told(place: Place) -> None:
    first = place.driver(SHORT_MS)
    permit = first.renewed(1)
    assert place.driver(SHORT_MS).renewed(1) != permit
    error = first.told.get(timeout=PATIENCE_S)
    assert isinstance(error, CommitLogException)
    assert f"Another run of the application '{place.group}' has begun" in str(error)


def test_a_driver_that_was_fenced_does_not_take_the_place_back(place: Place) -> None:
    """It noticed with the next heartbeat at the earliest; if it had lost a client before, the other run ended."""
    first, second = place.driver(SHORT_MS), place.driver(SHORT_MS)
    first.renewed(1)
    second.renewed(1)
    first.membership.renew(2, "client-0")
    found = first.told.get(timeout=PATIENCE_S)
    assert isinstance(found, CommitLogException), found
    second.renewed(2)


@pytest.mark.parametrize("is_given_up", [False, True], ids=["nothing is wanted", "a client was given up"])
def test_a_place_whose_member_is_not_heard_of_is_taken_again(place: Place, is_given_up: bool) -> None:
    """It may be its own: a broker was killed whose answer said what the member is called now, and the run ended, by "another run"."""
    driver = place.driver(SHORT_MS)
    first = driver.renewed(1)
    nobody = Consumer(
        {
            "bootstrap.servers": place.servers,
            "group.id": place.group,
            "group.instance.id": INSTANCE,
            "session.timeout.ms": SHORT_MS,
        }
    )
    nobody.subscribe([place.topic])
    wait_until(lambda: nobody.poll(0.1) or nobody.assignment(), "it has the place")
    # As a static member it does not say so.
    nobody.close()
    if is_given_up:
        driver.membership.renew(2, "client-0")
    second = driver.permit()
    assert second != first
    place.begun("a", second).commit_transaction(PATIENCE_S)


def test_a_driver_that_only_seems_to_be_fenced_takes_its_place_again(place: Place) -> None:
    """Brokers came back after a session, and said so to a heartbeat of librdkafka without a member id: the run ended, by "another run"."""
    driver = place.driver()
    first = driver.renewed(1)
    member = driver.membership._member
    assert member is not None
    fenced = SimpleNamespace(error=lambda: KafkaError(KafkaError._FATAL, "Static consumer fenced"))
    driver.membership._member = SimpleNamespace(poll=lambda seconds: fenced, memberid=str, close=member.close)  # type: ignore[assignment]
    second = driver.permit()
    assert second != first
    place.begun("a", second).commit_transaction(PATIENCE_S)


def test_of_two_runs_that_begin_at_the_same_time_one_ends(unique: Unique) -> None:
    """Before brokers have let it in; it waited for them for all of its ten minutes, and said that they do not answer."""
    with KafkaCluster(settings={"group.initial.rebalance.delay.ms": "3000"}) as cluster:
        topic, group = unique("topic"), unique("group")
        make_topics(cluster.bootstrap_servers, topic, partitions=1)
        drivers = [Driver(cluster.bootstrap_servers, group, [topic], 600_000, SHORT_MS) for _ in range(2)]
        for driver in drivers:
            driver.membership.renew(1)
        told = [driver.told.get(timeout=PATIENCE_S) for driver in drivers]
        for driver in drivers:
            driver.membership.close()
    told += [driver.told.get() for driver in drivers if not driver.told.empty()]
    assert [isinstance(found, CommitLogException) for found in told].count(True) == 1, told


def test_a_driver_that_ends_while_brokers_are_away_does_not_take_the_place_later() -> None:
    """They may come back when the next run has it, also in the same process: that one ended."""
    driver = Driver("127.0.0.1:1", "application", ["source"], timeout_ms=600_000)
    driver.membership.renew(1)
    wait_until(lambda: not driver.membership._wanted.qsize(), "it tries to join")
    driver.membership.close()
    assert driver.membership._thread is not None
    driver.membership._thread.join(PATIENCE_S)
    assert not driver.membership._thread.is_alive()


@pytest.mark.parametrize(("metadata", "member_id"), [(b"", None), (b"", "a-2"), (b"a-1", ""), (b"a-1", "a-2")])
def test_a_place_that_is_lost_while_it_is_looked_at_gives_no_permit(metadata: bytes, member_id: str | None) -> None:
    """Clients were given one that names nobody, which brokers take as long as the group is empty."""
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    membership = Membership(connection, "group", ["topic"])
    member = SimpleNamespace(consumer_group_metadata=lambda: b"group:" + metadata, memberid=lambda: member_id)
    assert not membership._take(member)
    assert not membership._permit
    found = SimpleNamespace(consumer_group_metadata=lambda: b"group:a-1", memberid=lambda: "a-1")
    assert membership._take(found)


def test_a_driver_that_no_broker_answers_any_more_says_so(unique: Unique) -> None:
    """Its clients, whom they may answer, waited for another permit for ever: brokers take no commits of a group that has lost its member."""
    with KafkaCluster() as cluster:
        topic, group = unique("topic"), unique("group")
        make_topics(cluster.bootstrap_servers, topic, partitions=1)
        driver = Driver(cluster.bootstrap_servers, group, [topic], timeout_ms=8_000)
        driver.renewed(1)
        cluster.kill(0)
        found = driver.told.get(timeout=PATIENCE_S)
        driver.membership.close()
    assert isinstance(found, KafkaClusterException), found
    assert f"Cannot stay the member of the group {group}: the cluster at" in str(found)


def test_its_session_is_that_of_the_settings(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """It was 10 s whatever was said. Brokers take none above half an hour."""
    topic, group = unique("topic"), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    driver = Driver(kafka_cluster.bootstrap_servers, group, [topic], session_ms=1_800_001)
    driver.membership.renew(1)
    found = driver.told.get(timeout=PATIENCE_S)
    assert isinstance(found, KafkaClusterException), found
    assert "Maybe session.timeout.ms (1800001) is less than group.min.session.timeout.ms" in str(found)
    driver.membership.close()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.INVALID_SESSION_TIMEOUT, r"session.timeout.ms \(3000\) is less than group.min.session.timeout.ms"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "another application has this application.id"),
    ],
)
def test_what_brokers_refuse_is_not_waited_for(code: int, advice: str) -> None:
    """After a minute it was advised to wait longer."""
    settings = ClientSettings.of({"bootstrap.servers": "127.0.0.1:1", "session.timeout.ms": 3_000})
    connection = Connection(settings, 60_000)
    member = SimpleNamespace(poll=lambda seconds: SimpleNamespace(error=lambda: KafkaError(code)))
    with pytest.raises(KafkaClusterException, match=rf"Cannot become the member of the group g: .*Maybe {advice}"):
        Membership(connection, "g", ["t"])._heard(member, 0)
