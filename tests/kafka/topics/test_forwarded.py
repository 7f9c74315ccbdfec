"""Forwarded outputs between topics of Kafka: nothing of them is a topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.kafka.topics import KafkaTopics
from task_assignor.runtime import (
    Forwarded,
    LocalProcessLauncher,
    RecordProcessor,
    StreamsApplication,
    SubTopology,
    TaskContext,
    TopicException,
    Topology,
    WindowedJoin,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.topics.records import in_any_order, killer, rows_of, stream_topic
from tests.kafka.topics.test_sinks import Join, Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, plain_join, settings


class Some(RecordProcessor):
    """Records with a small key."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record, or nothing."""
        return [record] if record["key"] < 70 else []


@pytest.mark.kafka
def test_a_join_of_what_is_forwarded_is_exact_with_a_killed_client(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(kafka_cluster, unique)
    left, right = join.tables
    some = SubTopology("some", join.left, Some, outputs=Forwarded("some", left.schema))
    pairs = WindowedJoin(left="some", right=join.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
    application = StreamsApplication(
        Topology([pairs.sub_topology("join", output=join.joined), some]),
        settings(application_id=join.application_id, num_standby_replicas=1),
        topics_root=join.topics(),
        run_dir=tmp_path / "run",
        clients=3,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    )
    result = application.run(killer(after_commits=3))
    assert result.lost_clients
    wanted = plain_join(left.filter(pc.field("key") < 70), right).to_pylist()
    assert 0 < len(wanted) < len(join.expected)
    assert in_any_order(rows_of(join.servers, join.joined)) == in_any_order(wanted)


def test_a_topic_of_the_name_of_a_forwarded_output_is_refused() -> None:
    """Nothing would be written to it, and nobody told."""
    some = SubTopology("some", "left", Some, outputs=Forwarded("some", pa.schema([("key", pa.int64())])))
    topology = Topology([some, SubTopology("reads", "some", Some, outputs="out")])
    topics = KafkaTopics({"bootstrap.servers": "127.0.0.1:1"}, map(stream_topic, ("left", "some")), timeout_ms=300)
    with pytest.raises(
        TopicException, match=r"'some' is Forwarded, so nothing is written .* Maybe leave out KafkaTopic"
    ):
        topics.results("app", topology, "a")
    assert KafkaTopics(topics.settings, [stream_topic("left")]).results("app", topology, "a") is None
