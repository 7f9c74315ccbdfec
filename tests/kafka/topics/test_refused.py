"""What brokers refuse of a batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import admin

from task_assignor.kafka.topics import KafkaTopic
from task_assignor.kafka.topics.creation import PURGED
from task_assignor.runtime import RuntimeOptions
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, records_of
from tests.kafka.topics.test_sinks import Counting, Join, Unique, pass_on

pytestmark = pytest.mark.kafka
SMALL: dict[str, Any] = {"max.message.bytes": "6000"}


def test_a_change_of_a_store_that_is_too_large_is_not_tried_again_and_the_reason_is_said(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """It was tried again and again, and then only said that Kafka has not told where it is."""
    counting = Counting(kafka_cluster, unique, rows=200)
    counting.run(tmp_path / "run")
    kafka: Any = admin
    small = kafka.ConfigEntry("max.message.bytes", "90", incremental_operation=kafka.AlterConfigOpType.SET)
    topic = kafka.ConfigResource(kafka.ResourceType.TOPIC, counting.changelog, incremental_configs=[small])
    client = kafka.AdminClient({"bootstrap.servers": counting.servers})
    client.incremental_alter_configs([topic])[topic].result(60)
    counting.add(200)
    said = r"The results of task 0_. cannot be written: .*\(MSG_SIZE_TOO_LARGE\)\. Maybe a row is larger than"
    with pytest.raises(StreamsException, match=said):
        counting.run(tmp_path / "run")


def test_many_rows_that_are_small_are_written_where_brokers_take_little_at_once(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """The run ended, and a row was said to be too large: librdkafka writes up to a megabyte at once, whatever brokers take."""
    schema = pa.schema([("k", pa.string())])
    source, output = KafkaTopic(unique("source"), schema, "k"), KafkaTopic(unique("small"), schema, "k")
    values = [b'{"k":"%b"}' % os.urandom(50).hex().encode() for _ in range(4_000)]
    pass_on(kafka_cluster, source, output, values, tmp_path / "run", **SMALL)
    found = records_of(kafka_cluster.bootstrap_servers, output.name)
    assert sorted(value or b"" for _, value in found) == sorted(values)


def test_changes_of_a_window_store_are_cut_to_what_their_topic_takes(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """The run ended unless somebody gave that topic 900 kB."""
    join = Join(kafka_cluster, unique)
    stores = [f"{join.application_id}-join-{side}-changelog" for side in ("left", "right")]
    for name in stores:
        make_topics(join.servers, name, partitions=PARTITIONS, config={**PURGED, "max.message.bytes": "4000"})
    join.application(tmp_path / "run", clients=1, options=RuntimeOptions()).run()
    join.check()
    assert all(len(value or b"") < 4_000 for name in stores for _, value in records_of(join.servers, name))


def test_a_topic_that_puts_the_time_of_now_in_the_place_of_the_rows_is_refused(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Nothing else said the rows' time, and it was gone without a word."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
    source, values = KafkaTopic(unique("source"), schema, "k", "at"), [b'{"k":"a","at":"2001-01-01T00:00:00Z"}']
    timed = KafkaTopic(unique("timed"), key="k", timestamp="at", timestamp_in="record")
    config: dict[str, Any] = {"message.timestamp.type": "LogAppendTime"}
    with pytest.raises(StreamsException, match=rf"The topic '{timed.name}' has message\.timestamp\.type=LogAppendTime"):
        pass_on(kafka_cluster, source, timed, values, tmp_path / "run", **config)
    assert records_of(kafka_cluster.bootstrap_servers, timed.name) == []
