"""Repartition topics where results go to Kafka: they are topics of Kafka, written and read in the tasks' transactions."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    LocalProcessLauncher,
    Processor,
    Repartitioned,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import killer, rows_of, starts_of
from tests.kafka.topics.test_sinks import Join, Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, plain_join, settings

pytestmark = pytest.mark.kafka
GROUPS = pa.schema([("group", pa.string()), ("at", pa.int64()), ("key", pa.int64()), ("at_right", pa.int64())])


class ToGroups(Processor):
    """Pairs by another key."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The group is made of the key."""
        (rows,) = batch.values()
        group = pc.cast(pc.bit_wise_and(rows.column("key"), 7), pa.string())
        return pa.table([group, *(rows.column(name) for name in GROUPS.names[1:])], schema=GROUPS)


class Groups(Join):
    """The pairs of a join, by another key counted and written down."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, rows: int = 3_000) -> None:
        super().__init__(cluster, unique, rows)
        self.counts, self.pairs = unique("counts"), unique("pairs")
        make_topics(self.servers, self.counts, self.pairs, partitions=3)

    def groups(self, run_dir: Path, partitions: int = 5, **more: Any) -> StreamsApplication:
        """The application."""
        join = WindowedJoin(left=self.left, right=self.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
        by_key = Repartitioned("by-key", None, key="key", partitions=4, timestamp="at")
        by_group = Repartitioned("by-group", GROUPS, key="group", partitions=partitions, timestamp="at")
        counts = Aggregation(
            source="by-group", aggregates={"rows": Aggregate.count(), "last": Aggregate.max("at_right")}
        )
        topology = Topology(
            [
                join.sub_topology("join", by_key),
                SubTopology("group", "by-key", ToGroups, outputs=by_group),
                counts.sub_topology("count", self.counts, topics=[by_group.spec]),
            ]
        )
        topics = KafkaTopics(
            {"bootstrap.servers": self.servers}, [*self.topics().topics, KafkaTopic(self.counts, key="group")]
        )
        given = {"options": QUICK, "launcher": LocalProcessLauncher(start_method="forkserver"), **more}
        return StreamsApplication(
            topology,
            settings(application_id=self.application_id, num_standby_replicas=1),
            topics_root=topics,
            run_dir=run_dir,
            clients=3,
            **given,
        )

    def check_counts(self) -> None:
        """The newest row of each group in the topic says what a plain computation says."""
        pairs = plain_join(*self.tables).to_pylist()
        groups = [str(row["key"] & 7) for row in pairs]
        last: dict[str, tuple[int, int]] = {}
        for row in rows_of(self.servers, self.counts):
            last[row["group"]] = (row["rows"], row["last"])
        wanted = {
            group: (
                groups.count(group),
                max(row["at_right"] for row, found in zip(pairs, groups, strict=True) if found == group),
            )
            for group in groups
        }
        assert last == wanted


def test_a_chain_over_two_repartition_topics_is_exact_with_a_killed_client(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique)
    result = groups.groups(tmp_path / "run").run(killer(after_commits=3))
    assert result.lost_clients
    groups.check_counts()
    # It goes on where it was, also without the folder of the run.
    groups.add(600)
    groups.groups(tmp_path / "run").run()
    groups.check_counts()
    shutil.rmtree(tmp_path / "run")
    groups.add(600)
    groups.groups(tmp_path / "run").run(killer(after_commits=2))
    groups.check_counts()
    # What was read is removed, but for some.
    assert sum(starts_of(groups.servers, f"{groups.application_id}-by-group-repartition")) > 0
