"""Windows over a repartition topic in Kafka: exact without a grace, as over one in the folder of the run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    Aggregate,
    LocalProcessLauncher,
    Repartitioned,
    StreamsApplication,
    SubTopology,
    TimeWindows,
    Topology,
    WindowedAggregation,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import killer, rows_of, stream_topic, write_records
from tests.kafka.topics.test_regrouped import GROUPS, ToGroups
from tests.kafka.topics.test_sinks import Unique
from tests.runtime.support import QUICK, settings, stream

pytestmark = pytest.mark.kafka
SIZE_MS = 20_000


def test_windows_are_exact_with_killed_clients_and_in_a_later_run(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    servers = kafka_cluster.bootstrap_servers
    application_id, source, windows = unique("windows"), unique("source"), unique("out")
    make_topics(servers, source, windows, partitions=4)
    by_group = Repartitioned("by-group", GROUPS, key="group", partitions=3, timestamp="at")
    counts = WindowedAggregation(
        source="by-group", windows=TimeWindows(SIZE_MS), aggregates={"rows": Aggregate.count()}
    )
    topology = Topology(
        [
            SubTopology("group", source, ToGroups, outputs=by_group),
            counts.sub_topology("count", windows, topics=[by_group.spec]),
        ]
    )

    def application() -> StreamsApplication:
        return StreamsApplication(
            topology,
            settings(application_id=application_id),
            topics_root=KafkaTopics(
                {"bootstrap.servers": servers}, [stream_topic(source), KafkaTopic(windows, key="group")]
            ),
            run_dir=tmp_path / "run",
            clients=2,
            options=QUICK,
            launcher=LocalProcessLauncher(start_method="forkserver"),
        )

    rows = stream(3_000, 40, seed=7)
    for part, on_event in ((rows.slice(0, 2_000), killer(after_commits=3)), (rows.slice(2_000), None)):
        write_records(servers, source, part, 4)
        application().run(on_event)
    assert _counts(rows_of(servers, windows)) == _plain(rows)


def _counts(rows: list[dict[str, object]]) -> dict[tuple[object, object], object]:
    found = {(row["group"], row["window_start"]): row["rows"] for row in rows}
    assert len(found) == len(rows), "a window came out twice"
    return found


def _plain(rows: pa.Table) -> dict[tuple[object, object], object]:
    now = max(rows.column("at").to_pylist())
    groups = Counter((str(row["key"] & 7), row["at"] // SIZE_MS * SIZE_MS) for row in rows.to_pylist())
    return {group: count for group, count in groups.items() if group[1] + SIZE_MS <= now}
