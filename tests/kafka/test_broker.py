"""The broker of the tests is a real one: records go in and come out with both clients, racks and features are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaCluster, cluster_id, main
from tests.kafka.fixtures import Unique, make_topics
from tests.kafka.jars import KafkaUnavailableError, class_path


@pytest.mark.kafka
def test_kafka_python_writes_a_record_and_reads_it(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    kafka = pytest.importorskip("kafka")
    topic = unique("records")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    sent = producer.send(topic, key=b"key", value=b"value", partition=1).get(timeout=60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        group_id=unique("group"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    record = next(consumer)
    consumer.close()
    assert (record.partition, record.offset, record.key, record.value) == (1, sent.offset, b"key", b"value")


@pytest.mark.kafka
def test_confluent_kafka_writes_a_record_and_reads_it(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    topic, address = unique("records"), {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    producer = confluent.Producer(address)
    producer.produce(topic, key=b"key", value=b"value", partition=1)
    assert producer.flush(60) == 0
    consumer = confluent.Consumer({**address, "group.id": unique("group"), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(60)
    consumer.close()
    assert record is not None
    assert (record.error(), record.partition(), record.key(), record.value()) == (None, 1, b"key", b"value")


@pytest.mark.kafka
def test_three_brokers_are_in_three_racks_and_hold_replicas_in_each(rack_cluster: KafkaCluster, unique: Unique) -> None:
    admin_client = pytest.importorskip("confluent_kafka.admin")
    confluent = pytest.importorskip("confluent_kafka")
    admin = admin_client.AdminClient({"bootstrap.servers": rack_cluster.bootstrap_servers})
    topic = unique("replicated")
    make_topics(rack_cluster.bootstrap_servers, topic, partitions=3, replicas=3)
    described = admin.describe_topics(confluent.TopicCollection([topic]))[topic].result(60)
    racks = [sorted(node.rack for node in partition.replicas) for partition in described.partitions]
    assert racks == [["a", "b", "c"]] * 3


def test_the_id_of_a_cluster_is_never_taken_for_an_option() -> None:
    """One broker in 64 did not start."""
    ids = [cluster_id(bytes([first]) + bytes(15)) for first in range(256)]
    assert {len(one) for one in ids} == {22}
    assert [one for one in ids if one.startswith("-")] == []


def test_a_folder_that_is_no_kafka_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    class_path.cache_clear()
    with pytest.raises(KafkaUnavailableError, match=r"KAFKA_HOME=.*unset it or correct it"):
        class_path()
    class_path.cache_clear()


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_without_jars_a_test_is_skipped_or_fails_with_one_line(tmp_path: Path, required: str, outcome: str) -> None:
    test = f"{__file__}::{test_kafka_python_writes_a_record_and_reads_it.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-rsE", "-p", "no:cacheprovider", "-m", "kafka", test]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KAFKA_HOME": str(tmp_path), "REQUIRE_KAFKA": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    assert "unset it or correct it" in done.stdout


def test_make_broker_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    class_path.cache_clear()
    assert main(["--port", "0"]) == 1
    class_path.cache_clear()
    assert "unset it or correct it" in capsys.readouterr().err
