"""Batches without rows, made because a schedule by the clock is due: their transactions are there once, too, whoever is killed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    BatchesCommitted,
    LocalProcessLauncher,
    RunEvent,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import rows_of, stream_topic, write_records
from tests.kafka.topics.test_sinks import DiesBeforeItTells
from tests.runtime.support import QUICK, count_topology, settings, stream

pytestmark = pytest.mark.kafka
TICKS = 5


class Ticks(DiesBeforeItTells):
    """Counts how often it is called by the clock, in its store, and tells each number."""

    def init(self, context: TaskContext) -> None:
        super().init(context)
        store = context.key_value_store("totals")

        def tick(_: int) -> dict[str, int]:
            totals = {"count": (store.get(-1) or {"count": 0})["count"] + 1, "sum": 0}
            store.put(-1, totals)
            return {"key": -1, **totals}

        context.schedule(50, "wall_clock_time", tick)


@pytest.mark.parametrize("after", [True, False], ids=["after the transaction", "before it is committed"])
def test_a_client_killed_between_transaction_and_record_of_a_batch_without_rows(
    kafka_cluster: KafkaCluster, unique: Callable[[str], str], tmp_path: Path, after: bool
) -> None:
    """Offsets do not move with it, so these do not tell that it is committed: its numbers came twice, and the store forgot."""
    servers, source, output = kafka_cluster.bootstrap_servers, unique("source"), unique("ticks")
    make_topics(servers, source, output, partitions=1)
    write_records(servers, source, stream(20, 5, seed=7), partitions=1)
    (sub,) = count_topology(source).sub_topologies
    processor = functools.partial(Ticks, str(tmp_path / "died"), after)
    application = StreamsApplication(
        Topology([SubTopology("count", source, processor, stores=sub.stores, outputs=output)]),
        settings(application_id=unique("ticking")),
        topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(source), KafkaTopic(output, key="key")]),
        run_dir=tmp_path / "run",
        clients=2,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    )
    batches = 0

    def on_event(event: RunEvent) -> None:
        nonlocal batches
        if isinstance(event, BatchesCommitted):
            batches += 1
            if batches > 3 * TICKS:
                application.request_stop("enough")

    result = application.run(until="stopped", on_event=on_event)
    assert result.lost_clients
    told = [row["count"] for row in rows_of(servers, output) if row["key"] == -1]
    assert len(told) >= TICKS
    assert told == list(range(1, len(told) + 1)), "each once, in order, none forgotten"
