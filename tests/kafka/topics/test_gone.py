"""Records that are gone before they were read: that is told, and what can be done about it, whoever has removed them from what topic."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.committed import RecordsLostException
from task_assignor.runtime import StreamsApplication, SubTopology, Topology, committed_offsets
from task_assignor.runtime.errors import CorruptLogException, RowsGoneException, TopicException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, missing
from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.topics.records import PARTITIONS, ends_of, stream_topic, write_records
from tests.kafka.topics.test_repartition import Groups
from tests.kafka.topics.test_sinks import Counting
from tests.runtime.support import QUICK, CountByKey, count_topology, settings, stream

pytestmark = pytest.mark.kafka


def remove(servers: str, topic: str, *ends: int) -> None:
    """Remove what is before these offsets of the partitions, as retention does."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = [TopicPartition(topic, partition, end) for partition, end in enumerate(ends)]
    for done in admin.delete_records(asked).values():
        done.result(60)


def remove_all(servers: str, topic: str) -> list[int]:
    """The same of all that is there; gives where it ended."""
    ends = ends_of(servers, topic, IsolationLevel.READ_UNCOMMITTED)
    remove(servers, topic, *ends)
    return ends


def test_what_retention_took_is_told(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name, servers = unique("retention"), kafka_cluster.bootstrap_servers
    make_topics(servers, name, partitions=1)
    write_records(servers, name, stream(100, 5, seed=4), partitions=1)
    remove(servers, name, 40)
    log = KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]).open(name)
    assert log.start_offsets() == [40]
    assert log.fetch(0, 40, 100).rows.num_rows == 60
    gone = rf"{name}, partition 0, has no offset 10 any more\. Its retention .* auto.offset.reset=earliest; .* a new run_dir"
    with pytest.raises(RowsGoneException, match=gone):
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


def set_policy(counting: Counting, policy: str) -> None:
    """Set what may become of the records of the changelog."""
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": counting.servers})
    asked = [ConfigResource(ResourceType.TOPIC, counting.changelog, incremental_configs=[entry])]
    for done in admin.incremental_alter_configs(asked).values():
        done.result(60)


def test_what_somebody_removed_from_a_changelog_is_not_told_as_if_it_were_a_source(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """A new run_dir alone is no help there, and no retention may take anything."""
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    # As long as nothing but compaction may take them, brokers refuse it.
    set_policy(counting, "compact,delete")
    remove_all(counting.servers, counting.changelog)
    counting.add(100)
    with pytest.raises(
        TopicException, match=r"has cleanup.policy=compact,delete, but must have cleanup.policy=compact"
    ):
        counting.run(tmp_path / "run")
    set_policy(counting, "compact")
    gone = rf"{counting.changelog}, partition \d, has no offset 0 any more\. Nobody but .* another application.id with a new run_dir"
    with pytest.raises(CorruptLogException, match=gone):
        counting.run(tmp_path / "run")
    counting.application_id = unique("anew")
    assert counting.run(tmp_path / "anew").rows_in == 500


def test_what_somebody_removed_from_a_repartition_topic_is_not_told_as_if_it_were_a_source(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    application = groups.groups(tmp_path / "run")
    application.run()
    name = groups.internal("by-key")
    ends = remove_all(groups.servers, name)
    log = application._topics_at.open_repartition(groups.application_id, application._topology, "by-key")
    assert log is not None
    assert len(ends) == PARTITIONS
    with pytest.raises(RowsGoneException, match=rf"{name}, partition 0, has no offset 0 any more\. Nobody but"):
        log.fetch(0, 0, ends[0])


def test_who_reads_on_where_a_leader_has_other_records_than_those_that_came_is_told(unique: Unique) -> None:
    """It was told of retention. The partition is as long as before by the time it has a leader again, so that its end tells nothing."""
    name = unique("cut")
    try:
        with KafkaCluster() as cluster:
            servers = cluster.bootstrap_servers
            make_topics(servers, name, partitions=1)
            write_records(servers, name, stream(100, 5, seed=4), partitions=1)
            log = KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]).open(name)
            assert log.fetch(0, 0, 100).rows.num_rows == 100
            cluster.restart_without(0, f"{name}-0")
            write_records(servers, name, stream(200, 5, seed=5), partitions=1)
            lost = rf"{name}, partition 0, has lost records that were read, up to offset 100\. Maybe a replica without them was elected"
            with pytest.raises(RecordsLostException, match=lost):
                log.fetch(0, 100, 200)
    except KafkaUnavailableError as error:
        missing(str(error))


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_run_begins_only_with_the_records_that_the_one_before_has_read(
    unique: Unique, tmp_path: Path, is_lost: bool
) -> None:
    """It went on after a partition that was as long again by then, and passed over what had come in the place of what was gone."""
    name = unique("elected")

    def run(servers: str) -> int:
        return (
            StreamsApplication(
                count_topology(name),
                settings(application_id=name),
                topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]),
                run_dir=tmp_path / "run",
                clients=1,
                options=QUICK,
            )
            .run()
            .rows_in
        )

    try:
        with KafkaCluster() as cluster:
            servers = cluster.bootstrap_servers
            make_topics(servers, name, partitions=1)
            write_records(servers, name, stream(100, 5, seed=4), partitions=1)
            assert run(servers) == 100
            # A leader has another epoch after each start of its broker, whether it has the records or not.
            cluster.restart_without(0, *[f"{name}-0"] * is_lost)
            write_records(servers, name, stream(150, 5, seed=5), partitions=1)
            if is_lost:
                with pytest.raises(
                    RecordsLostException,
                    match=rf"{name}, partition 0, has lost records that were read, up to offset 100\. ",
                ):
                    run(servers)
            else:
                assert run(servers) == 150
            assert set(committed_offsets(tmp_path / "run", name)) == {0}
    except KafkaUnavailableError as error:
        missing(str(error))
