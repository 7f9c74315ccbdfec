"""Records that are gone before they were read: that is told, and what can be done about it, whoever has removed them from what topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.reader import RecordsGoneException
from task_assignor.runtime import StreamsApplication, SubTopology, Topology
from task_assignor.runtime.errors import CorruptLogException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics
from tests.kafka.topics.records import stream_topic, write_records
from tests.runtime.support import QUICK, CountByKey, count_topology, settings, stream

pytestmark = pytest.mark.kafka


def remove(servers: str, topic: str, *ends: int) -> None:
    """Remove what is before these offsets of the partitions, as retention does."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = [TopicPartition(topic, partition, end) for partition, end in enumerate(ends)]
    for done in admin.delete_records(asked).values():
        done.result(60)


def test_what_retention_took_is_told(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name, servers = unique("retention"), kafka_cluster.bootstrap_servers
    make_topics(servers, name, partitions=1)
    write_records(servers, name, stream(100, 5, seed=4), partitions=1)
    remove(servers, name, 40)
    log = KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]).open(name)
    assert log.start_offsets() == [40]
    assert log.fetch(0, 40, 100).rows.num_rows == 60
    with pytest.raises(RecordsGoneException, match=rf"{name}, partition 0, has no offset 10 any more"):
        log.fetch(0, 10, 100)
    assert log.fetch(0, 50, 60).rows.num_rows == 10, "others can be read"


@pytest.mark.parametrize(("before", "are_outputs_topics"), [(0, True), (30, True), (30, False)])
def test_what_came_and_went_between_runs_is_missed_though_none_of_them_had_read_anything_yet(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, before: int, are_outputs_topics: bool
) -> None:
    """No batch says where the task was; the first run found the topic empty, or emptied."""
    name, output, servers = unique("emptied"), unique("counts"), kafka_cluster.bootstrap_servers
    make_topics(servers, name, output, partitions=1)
    rows = stream(before + 50, 5, seed=4)
    write_records(servers, name, rows.slice(0, before), partitions=1)
    remove(servers, name, before)
    (sub,) = count_topology(name).sub_topologies
    counts = Topology([SubTopology("count", name, CountByKey, stores=sub.stores, outputs=output)])
    outputs = [KafkaTopic(output, key="key")] if are_outputs_topics else []

    def run() -> int:
        application = StreamsApplication(
            counts,
            settings(application_id=name),
            topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name), *outputs]),
            run_dir=tmp_path / "run",
            clients=1,
            options=QUICK,
        )
        return application.run().rows_in

    assert run() == 0
    assert run() == 0, "nor is anything missed where nothing came"
    write_records(servers, name, rows.slice(before), partitions=1)
    remove(servers, name, before + 20)
    with pytest.raises(CorruptLogException, match=rf"{name}, partition 0, has no offset {before} any more"):
        run()
