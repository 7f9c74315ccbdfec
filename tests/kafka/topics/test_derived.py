"""Derived streams of topics of Kafka: rows are filtered within the task, so outputs may be topics, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    DerivedStream,
    LocalProcessLauncher,
    StreamsApplication,
    Topology,
    WindowedJoin,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.topics.records import in_any_order, killer, rows_of
from tests.kafka.topics.test_sinks import Join, Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, plain_join, settings

pytestmark = pytest.mark.kafka


def test_a_join_of_filtered_topics_is_exact_with_a_killed_client(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(kafka_cluster, unique)
    topics = join.topics()
    some = DerivedStream("some", join.left, filter=pc.field("key") < 70)
    pairs = WindowedJoin(left="some", right=join.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
    application = StreamsApplication(
        Topology(pairs.sub_topology("join", output=join.joined), derived=some),
        settings(application_id=join.application_id, num_standby_replicas=1),
        topics_root=topics,
        run_dir=tmp_path / "run",
        clients=3,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    )
    result = application.run(killer(after_commits=3))
    assert result.lost_clients
    left, right = join.tables
    wanted = plain_join(left.filter(pc.field("key") < 70), right).to_pylist()
    assert 0 < len(wanted) < len(join.expected)
    assert in_any_order(rows_of(join.servers, join.joined)) == in_any_order(wanted)
