"""Sub-topologies that read a topic of Kafka together: one transaction of a task has the rows of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.kafka.topics import KafkaTopic
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    LocalProcessLauncher,
    StreamsApplication,
    Topology,
    WindowedJoin,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import killer, rows_of
from tests.kafka.topics.test_sinks import Join, Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, settings

pytestmark = pytest.mark.kafka


def test_a_join_and_a_count_of_one_topic_are_both_exact_with_a_killed_client(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join, counts = Join(kafka_cluster, unique), unique("counts")
    make_topics(join.servers, counts, partitions=3)
    pairs = WindowedJoin(left=join.left, right=join.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
    rows = Aggregation(source=join.left, aggregates={"rows": Aggregate.count()})
    topics = join.topics(KafkaTopic(counts, key="key"))
    topology = Topology(
        [
            pairs.sub_topology("join", output=join.joined),
            rows.sub_topology("count", output=counts, topics=[topics.open(join.left).spec]),
        ]
    )
    result = StreamsApplication(
        topology,
        settings(application_id=join.application_id, num_standby_replicas=1),
        topics_root=topics,
        run_dir=tmp_path / "run",
        clients=3,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    ).run(killer(after_commits=3))
    assert result.lost_clients
    assert {task.subtopology for record in result.commits.records() for task in record.tasks} == {0}
    join.check()
    left = join.tables[0].column("key").to_pylist()
    # A key is in one partition, and its newest row is its last there.
    assert {row["key"]: row["rows"] for row in rows_of(join.servers, counts)} == {key: left.count(key) for key in left}
