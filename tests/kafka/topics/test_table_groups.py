"""Groups of a table over Kafka: what each update takes away and adds goes through a repartition topic, exactly once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    Aggregate,
    LocalProcessLauncher,
    Repartitioned,
    StreamsApplication,
    TableAggregation,
    TableChanges,
    Topology,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, killer, rows_of, write_records
from tests.kafka.topics.test_sinks import Unique
from tests.runtime.support import QUICK, settings

pytestmark = pytest.mark.kafka
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("shelf", pa.string()), ("amount", pa.int64())])


def _updates(rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    shelves = [f"shelf {number}" for number in random.integers(0, 9, rows)]
    columns = [random.integers(0, 200, rows), np.arange(rows), shelves, random.integers(-50, 50, rows)]
    return pa.table(columns, schema=SCHEMA)


def test_groups_are_what_the_table_has_also_when_clients_die(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    servers, stock, shelves = kafka_cluster.bootstrap_servers, unique("stock"), unique("shelves")
    make_topics(servers, stock, partitions=PARTITIONS)
    make_topics(servers, shelves, partitions=3)
    updates = _updates(4_000)
    application_id = unique("application")

    def application() -> StreamsApplication:
        topics = KafkaTopics(
            {"bootstrap.servers": servers},
            [KafkaTopic(stock, SCHEMA, "key", "at"), KafkaTopic(shelves, key="shelf")],
        )
        spec = topics.open(stock).spec
        moved = Repartitioned("moved", key="shelf", partitions=5)
        changes = TableChanges(table=stock).sub_topology("changes", moved, spec)
        totals = TableAggregation(
            source="moved", aggregates={"items": Aggregate.count(), "amount": Aggregate.sum("amount")}
        )
        return StreamsApplication(
            Topology([changes, totals.sub_topology("totals", shelves, changes.spec_of("moved", spec))]),
            settings(application_id=application_id, num_standby_replicas=1),
            topics_root=topics,
            run_dir=tmp_path / "run",
            clients=3,
            options=QUICK,
            launcher=LocalProcessLauncher(start_method="forkserver"),
        )

    for begin in (0, 2_500):
        write_records(servers, stock, updates.slice(begin, 2_500))
        result = application().run(killer(after_commits=3))
        assert result.lost_clients
        now = {row["key"]: row for row in updates.slice(0, begin + 2_500).to_pylist()}
        wanted: dict[str, tuple[int, int]] = {}
        for row in now.values():
            items, amount = wanted.get(row["shelf"], (0, 0))
            wanted[row["shelf"]] = (items + 1, amount + row["amount"])
        last = {row["shelf"]: (row["items"], row["amount"]) for row in rows_of(servers, shelves)}
        assert last == wanted
