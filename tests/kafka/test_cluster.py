"""Look-ups in a real cluster: partitions, racks, offsets, groups; and clear errors within the time that is allowed."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from task_assignor import ConfigException, TopicPartition
from task_assignor.group.consumers import CooperativeStickyAssignor
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until
from tests.kafka.secured import SCRAM_PASSWORD, Secured

kafka = pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")
joins = pytest.importorskip("task_assignor.kafka.joins")


def write(servers: str, topic: str, partition: int, records: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    for number in range(records):
        producer.send(topic, value=str(number).encode(), partition=partition)
    producer.flush()
    producer.close()


@pytest.fixture
def consumer_of(kafka_cluster: KafkaCluster) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(group: str, *topics: str, **settings: Any) -> Any:
        opened.append(
            kafka.KafkaConsumer(
                *topics,
                bootstrap_servers=kafka_cluster.bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                # A topic that the broker does not know yet is looked for again soon, not in five minutes.
                metadata_max_age_ms=1_000,
                **settings,
            )
        )
        joins.KeptJoins.keep(opened[-1]._coordinator)  # else joins that outlast a poll() begin again and again
        return opened[-1]

    yield open_one
    for consumer in opened:
        consumer.close()


@pytest.mark.kafka
@pytest.mark.parametrize("start", ["clicks", "__heartbeats"])
def test_partitions_offsets_and_what_a_group_has_committed(
    kafka_cluster: KafkaCluster, unique: Unique, consumer_of: Callable[..., Any], start: str
) -> None:
    topic, group = unique(start), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=3)
    write(kafka_cluster.bootstrap_servers, topic, 1, 5)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    consumer = consumer_of(group, topic)
    wait_until(lambda: consumer.poll(100), "the consumer reads")
    consumer.commit({kafka.TopicPartition(topic, 1): kafka.OffsetAndMetadata(2, "", -1)})
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        assert cluster.partition_counts([topic]) == {topic: 3}
        assert cluster.partition_racks([topic]) == {topic: (None, None, None)}
        assert cluster.end_offsets(partitions) == dict(zip(partitions, (0, 5, 0), strict=True))
        assert cluster.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert cluster.committed_offsets(group) == {partitions[1]: 2}
        assert topic in cluster.topics()
        assert "__consumer_offsets" not in cluster.topics()
        assert cluster.existing([topic, "__consumer_offsets", "nothing"]) == {topic, "__consumer_offsets"}
        found = room.inspect_group(cluster, group)
    assert dict(found.lags) == {partitions[0]: None, partitions[1]: 3, partitions[2]: None}
    assert found.total_lag == 3
    assert found.violations == ()
    (member,) = found.group.members
    assert member.partitions == tuple(partitions)
    assert found.to_json()["members"][0]["given"] == {topic: [0, 1, 2]}


@pytest.mark.kafka
def test_what_is_asked_for_is_checked_and_a_closed_cluster_says_so(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """Letters were taken for topics, generators for none, and what came out of the client was shown."""
    topic = unique("clicks")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    anything: Any = None
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        assert cluster.partition_counts(name for name in [topic]) == {topic: 2}
        for look_up in (cluster.existing, cluster.partition_counts, cluster.partition_racks):
            with pytest.raises(ConfigException, match=r"The topics \('clicks'\) must be a list of str, not one text"):
                look_up("clicks")
            with pytest.raises(ConfigException, match=r"The topics \(None\) must be a list of str"):
                look_up(anything)
        for ends in (cluster.end_offsets, cluster.beginning_offsets):
            with pytest.raises(ConfigException, match="The partitions must be a list of TopicPartition, but one is"):
                ends([topic])
        for name in (None, ["g"], 5):
            anything = name
            for ask in (cluster.describe_group, cluster.committed_offsets):
                with pytest.raises(ConfigException, match=r"The name of a group \(.*\) must be a string"):
                    ask(anything)
    with pytest.raises(room.KafkaClusterException, match="Cannot list the topics: this Cluster was closed"):
        cluster.topics()


@pytest.mark.parametrize("look", [room.inspect_group, room.state_of_group, room.consumers_of_group])
def test_settings_are_no_cluster(look: Callable[..., object]) -> None:
    with pytest.raises(ConfigException, match=r"The cluster \(.*\) must be a Cluster. Maybe Cluster\(settings\)"):
        look({"bootstrap.servers": "localhost:9092"}, "g")


@pytest.mark.kafka
def test_an_empty_group_still_has_its_lags(
    kafka_cluster: KafkaCluster, unique: Unique, consumer_of: Callable[..., Any]
) -> None:
    topic, group = unique("clicks"), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    write(kafka_cluster.bootstrap_servers, topic, 0, 4)
    consumer = consumer_of(group, topic)
    wait_until(lambda: consumer.poll(100), "the consumer reads")
    consumer.commit({kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(1, "", -1)})
    consumer.close()
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        wait_until(lambda: cluster.describe_group(group).state == "Empty", "the group is empty")
        found = room.inspect_group(cluster, group)
    assert (found.group.members, dict(found.lags), found.violations) == ((), {TopicPartition(topic, 0): 3}, ())


@pytest.mark.kafka
def test_racks_are_those_of_the_replicas(rack_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("clicks")
    make_topics(rack_cluster.bootstrap_servers, topic, partitions=6, replicas=2)
    with room.Cluster({"bootstrap.servers": rack_cluster.bootstrap_servers}) as cluster:
        racks = cluster.partition_racks([topic])[topic]
    assert [len(found) for found in racks] == [2] * 6
    assert frozenset().union(*racks) == {"a", "b", "c"}


@pytest.mark.kafka
def test_look_ups_outlive_a_broker_and_name_a_partition_without_leader(unique: Unique) -> None:
    topic = unique("clicks")
    with KafkaCluster((None, None)) as brokers:
        make_topics(brokers.bootstrap_servers, topic, partitions=2, brokers=[[1], [2]])
        with room.Cluster({"bootstrap.servers": brokers.bootstrap_servers}, timeout_ms=60_000) as cluster:
            cluster.groups()
            brokers.kill(1)
            # Every broker is asked; the one that is gone is, too, until the others know.
            cluster.groups()
            assert cluster.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
            with pytest.raises(room.KafkaClusterException, match=r"Maybe a partition has no leader"):
                cluster.end_offsets([TopicPartition(topic, 1)])


@pytest.mark.kafka
def test_what_is_not_there_is_named(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    group = unique("payments")
    consumer = kafka.KafkaConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=group)
    topic = unique("clicks")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    consumer.subscribe([topic])
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        wait_until(
            lambda: consumer.poll(100) or group in {each.name for each in cluster.groups()}, "the group is known"
        )
        with pytest.raises(room.UnknownGroupException, match=f"Maybe '{group}'"):
            cluster.describe_group(group[:-1] + "x" + group[-1])
        with pytest.raises(room.KafkaClusterException, match="no topic no-such-topic"):
            cluster.partition_counts(["no-such-topic", topic])
    consumer.close()


@pytest.mark.parametrize(
    ("kind", "protocol_type", "said"),
    [
        ("classic", "connect", "of protocol type 'connect': its members share no partitions"),
        ("", "sr", "of protocol type 'sr': its members share no partitions"),
        ("consumer", "consumer", "of kind 'consumer': its brokers decide"),
        ("streams", "streams", "of kind 'streams': its brokers decide"),
    ],
)
def test_a_group_that_cannot_be_looked_into_is_told_as_such(kind: str, protocol_type: str, said: str) -> None:
    """That of Kafka Connect was taken for consumers whose bytes cannot be read."""
    cluster = object.__new__(room.Cluster)
    cluster.groups = lambda: [room.GroupListing("workers", "Stable", kind, protocol_type)]
    with pytest.raises(room.KafkaClusterException, match=said):
        cluster.describe_group("workers")


@pytest.mark.parametrize("is_silent", [False, True], ids=["nobody listens", "somebody never answers"])
def test_a_cluster_that_cannot_be_reached_is_told_in_time(is_silent: bool) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if is_silent:
            server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(room.KafkaClusterException, match=f"Cannot connect at {address}: .*Maybe no broker listens"):
            room.Cluster({"bootstrap.servers": address}, timeout_ms=300)
        assert time.monotonic() - start < 20


def test_a_look_up_that_ends_late_tells_its_own_reason() -> None:
    """Where the machine had stood still for a second, that of who waited for it came first, without any advice."""
    cluster = object.__new__(room.Cluster)
    cluster._settings, cluster._timeout_ms = room.ClientSettings.of({"bootstrap.servers": "a:1"}), 0

    def end_late() -> None:
        threading.Event().wait(1.2)
        raise kafka.errors.KafkaTimeoutError("late")

    with pytest.raises(room.KafkaClusterException, match=r"Cannot connect at a:1: .*late.*Maybe no broker listens"):
        cluster._ask("connect", end_late)


def test_brokers_that_have_gone_are_told_as_such() -> None:
    """It was: NodeNotReadyError: No node_id provided."""
    cluster = object.__new__(room.Cluster)
    cluster._settings = room.ClientSettings.of({"bootstrap.servers": "broker:9092"})
    cluster._timeout_ms = 50

    def ask() -> None:
        raise kafka.errors.NodeNotReadyError("No node_id provided")

    with pytest.raises(room.KafkaClusterException, match=r"It was tried for 50 ms\. Maybe its brokers are down"):
        cluster._ask("list the topics", ask)


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    """The first to ask a new cluster for the offsets of a group was told that there is none."""
    cluster = object.__new__(room.Cluster)
    cluster._settings, cluster._timeout_ms = room.ClientSettings.of({"bootstrap.servers": "broker:9092"}), 60_000
    errors = [kafka.errors.CoordinatorNotAvailableError(), kafka.errors.CoordinatorLoadInProgressError()]

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "found"

    assert cluster._ask("read the offsets", ask) == "found"


@pytest.mark.kafka
def test_tls_and_sasl_with_the_settings_of_java_clients(secure_cluster: Secured) -> None:
    broker, settings = secure_cluster
    make_topics(broker.bootstrap_servers, "secret", partitions=2)
    with room.Cluster(settings) as cluster:
        assert cluster.partition_counts(["secret"]) == {"secret": 2}
    confluent = pytest.importorskip("confluent_kafka.admin")
    client = confluent.AdminClient(room.ClientSettings.of(settings).for_confluent_kafka())
    assert len(client.list_topics("secret", timeout=60).topics["secret"].partitions) == 2


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_with_the_settings_of_java_clients(secure_cluster: Secured, unique: Unique, mechanism: str) -> None:
    broker, settings = secure_cluster
    topic = unique("scram")
    make_topics(broker.bootstrap_servers, topic, partitions=2)
    module = (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{SCRAM_PASSWORD}";'
    )
    told = {**settings, "sasl.mechanism": mechanism, "sasl.jaas.config": module}
    with room.Cluster(told) as cluster:
        assert cluster.partition_counts([topic]) == {topic: 2}
    with pytest.raises(room.KafkaClusterException, match="Cannot connect"):
        room.Cluster({**told, "sasl.jaas.config": module.replace(SCRAM_PASSWORD, "wrong")}, timeout_ms=3_000)
    confluent = pytest.importorskip("confluent_kafka.admin")
    client = confluent.AdminClient(room.ClientSettings.of(told).for_confluent_kafka())
    assert len(client.list_topics(topic, timeout=60).topics[topic].partitions) == 2
    # Consumers with an assignor of ours take the same settings.
    plugin = room.ConsumerAssignorPlugin(CooperativeStickyAssignor())
    consumer = kafka.KafkaConsumer(
        group_id=unique("scram"),
        partition_assignment_strategy=[plugin],
        **room.ClientSettings.of(told).for_kafka_python(),
    )
    plugin.attach(consumer)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(100) or len(consumer.assignment()) == 2, "the consumer has its partitions")
    consumer.close()


@pytest.mark.kafka
def test_a_client_with_a_certificate_of_its_own(secure_cluster: Secured, unique: Unique, tmp_path: Path) -> None:
    broker, settings = secure_cluster
    topic = unique("mutual")
    make_topics(broker.bootstrap_servers, topic, partitions=2)
    told = {key: value for key, value in settings.items() if key.startswith("ssl.truststore")}
    told |= {"bootstrap.servers": f"127.0.0.1:{broker.ports['MUTUAL']}", "security.protocol": "SSL"}
    with pytest.raises(room.KafkaClusterException, match="Cannot connect"):
        room.Cluster(told, timeout_ms=3_000)
    store = Path(str(settings["ssl.truststore.location"])).with_name("store.pem")
    told |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    # With a password on the key, as where stores are kept in files.
    closed = tmp_path / "closed.pem"
    command = ["openssl", "rsa", "-aes256", "-passout", "pass:open", "-in", str(store)]
    key = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    closed.write_text(key + Path(str(settings["ssl.truststore.location"])).read_text())
    for own in (told, {**told, "ssl.keystore.location": str(closed), "ssl.key.password": "open"}):
        with room.Cluster(own) as cluster:
            assert cluster.partition_counts([topic]) == {topic: 2}
        confluent = pytest.importorskip("confluent_kafka.admin")
        client = confluent.AdminClient(room.ClientSettings.of(own).for_confluent_kafka())
        assert len(client.list_topics(topic, timeout=60).topics[topic].partitions) == 2


@pytest.mark.kafka
def test_a_wrong_password_is_told_as_such_and_not_shown(secure_cluster: Secured) -> None:
    _, settings = secure_cluster
    wrong = str(settings["sasl.jaas.config"]).replace("password=", "password=no")
    with pytest.raises(room.KafkaClusterException) as caught:
        room.Cluster({**settings, "sasl.jaas.config": wrong}, timeout_ms=20_000)
    assert "nostrange" not in str(caught.value).replace(" ", "")
    assert "the user or password in sasl.jaas.config is wrong" in str(caught.value)


@pytest.mark.kafka
def test_a_certificate_that_is_not_trusted_is_refused(secure_cluster: Secured, tmp_path: Path) -> None:
    _, settings = secure_cluster
    system = {key: value for key, value in settings.items() if not key.startswith("ssl.truststore")}
    with pytest.raises(room.KafkaClusterException, match="Cannot connect"):
        room.Cluster(system, timeout_ms=3_000)
