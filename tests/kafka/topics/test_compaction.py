"""Changelog topics of key-value stores that Kafka has compacted: deletions that are gone from them are not forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    KeyValueStoreSpec,
    LocalProcessLauncher,
    RecordProcessor,
    RunResult,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import delete_group, in_any_order, records_of, rows_of, write_records
from tests.runtime.support import QUICK, settings

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64())])
COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
KEYS = 8


class Toggle(RecordProcessor):
    """Says whether a key is there, and puts it in or takes it out."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """What was there."""
        store = context.key_value_store("there")
        found = store.get(record["key"])
        if found is None:
            store.put(record["key"], {"at": record["at"]})
        else:
            store.delete(record["key"])
        return [{"key": record["key"], "was": -1 if found is None else found["at"]}]


@pytest.mark.parametrize("are_offsets_lost", [False, True])
@pytest.mark.parametrize("is_second_life", [False, True])
def test_a_state_that_is_older_than_deletions_that_were_compacted_away_does_not_bring_them_back(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, is_second_life: bool, are_offsets_lost: bool
) -> None:
    """As that of a client which comes back after days: keys were there again that had been deleted, without a word.

    Nor does what the changelog has of a life before, of which the offsets and the folder are lost; nor if the group's offsets
    have expired once more.
    """
    servers, application_id, source, output = (
        kafka_cluster.bootstrap_servers,
        unique("toggle"),
        unique("keys"),
        unique("toggled"),
    )
    changelog = f"{application_id}-there-changelog"
    make_topics(servers, source, output, partitions=1)
    make_topics(servers, changelog, partitions=1, config=COMPACTED_SOON)
    run_dir = tmp_path / "run"
    store = KeyValueStoreSpec("there", pa.schema([("key", pa.int64())]), pa.schema([("at", pa.int64())]))
    topics = [KafkaTopic(source, SCHEMA, "key", "at"), KafkaTopic(output)]
    expected: dict[int, int | None] = {}
    told: list[dict[str, Any]] = []
    time = 0

    def run(*keys: int) -> RunResult:
        nonlocal time
        times = list(range(time, time + len(keys)))
        time += len(keys)
        for key, at in zip(keys, times, strict=True):
            was = expected.get(key)
            told.append({"key": key, "was": -1 if was is None else was})
            expected[key] = at if was is None else None
        write_records(servers, source, pa.table([list(keys), times], schema=SCHEMA), partitions=1)
        return StreamsApplication(
            Topology([SubTopology("toggle", source, Toggle, stores=[store], outputs=output)]),
            settings(application_id=application_id),
            topics_root=KafkaTopics({"bootstrap.servers": servers}, topics),
            run_dir=run_dir,
            clients=1,
            options=attrs.evolve(QUICK, max_batch_rows=3),
            launcher=LocalProcessLauncher(start_method="forkserver"),
        ).run()

    admin = AdminClient({"bootstrap.servers": servers})

    def lose_offsets() -> None:
        delete_group(servers, application_id)

    if is_second_life:
        run(200, 200, 200)
        shutil.rmtree(run_dir)
        lose_offsets()
        for done in admin.delete_records([TopicPartition(source, 0, 3)]).values():
            done.result(60)
        expected.clear()
    run(*range(KEYS), 100)
    shutil.copytree(run_dir / "clients", tmp_path / "older")
    run(*range(KEYS), 100, 100)
    producer = Producer({"bootstrap.servers": servers})
    key, value = records_of(servers, changelog)[-1]
    assert value is not None

    def are_gone() -> bool:
        # What was written last is never compacted: the same once more changes nothing.
        producer.produce(changelog, value, key)
        assert producer.flush(60) == 0
        return all(found is not None for _, found in records_of(servers, changelog))

    wait_until(are_gone, "the deletions are compacted away")
    shutil.rmtree(run_dir / "clients")
    (tmp_path / "older").rename(run_dir / "clients")
    if are_offsets_lost:
        lose_offsets()
    again = run(*range(KEYS), 200)
    assert {found.origin for found in again.restores if found.role == "active"} == {"snapshot"}
    assert in_any_order(rows_of(servers, output)) == in_any_order(told)
