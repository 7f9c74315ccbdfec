"""Repartition topics where results go to Kafka: they are topics of Kafka, written and read in the tasks' transactions."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.serdes import RowSerde, SerializationException
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BatchesCommitted,
    ClientJoined,
    LocalProcessLauncher,
    MarkerReached,
    Processor,
    Rebalanced,
    Repartitioned,
    RunEvent,
    StreamsApplication,
    SubTopology,
    TaskContext,
    TopicException,
    Topology,
    WindowedJoin,
)
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import delete_group, killer, rows_of, starts_of
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

    def groups(
        self, run_dir: Path, partitions: int = 5, *, transaction_ms: int = 60_000, timeout_ms: int = 60_000, **more: Any
    ) -> StreamsApplication:
        """The application."""
        # In a run that goes on rows of one topic may come long after later ones of the other.
        times: Any = {"before_ms": BEFORE_MS, "after_ms": AFTER_MS, "left_grace_ms": None, "right_grace_ms": None}
        join = WindowedJoin(left=self.left, right=self.right, **times)
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
            {"bootstrap.servers": self.servers, "transaction.timeout.ms": str(transaction_ms)},
            [*self.topics().topics, KafkaTopic(self.counts, key="group")],
            timeout_ms,
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

    def stranger(self) -> Producer:
        """Somebody who writes to a topic in which he has no business."""
        stranger = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{self.application_id}-stranger"})
        stranger.init_transactions(60)
        return stranger

    def hide(self, stranger: Producer) -> None:
        """Open a transaction there, behind which nobody sees anything."""
        stranger.begin_transaction()
        for partition in range(4):
            stranger.produce(self.internal("by-key"), b"nothing that anybody reads", partition=partition)
        assert not stranger.flush(60)

    def internal(self, name: str) -> str:
        """The topic of Kafka for a repartition topic."""
        return f"{self.application_id}-{name}-repartition"

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


def test_a_chain_over_two_repartition_topics_is_exact_with_killed_clients(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique)
    result = groups.groups(tmp_path / "run").run(killer(after_commits=3))
    assert result.lost_clients
    groups.check_counts()
    assert not (tmp_path / "run/repartition").exists()
    # It goes on where it was, also without the folder of the run.
    groups.add(600)
    groups.groups(tmp_path / "run").run()
    groups.check_counts()
    shutil.rmtree(tmp_path / "run")
    groups.add(600)
    groups.groups(tmp_path / "run").run(killer(after_commits=2))
    groups.check_counts()
    # What was read is removed, but for some.
    assert sum(starts_of(groups.servers, groups.internal("by-group"))) > 0


def test_in_a_run_that_goes_on_rows_pass_through(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    application = groups.groups(tmp_path / "run")
    seen = 0

    def watch(event: RunEvent) -> None:
        nonlocal seen
        if isinstance(event, BatchesCommitted):
            was, seen = seen, seen + event.rows_out
            if was == 0 < seen:
                groups.add(100)
                application.request_marker("later")
        elif isinstance(event, MarkerReached):
            application.request_stop("all is there")

    application.run(watch, until="stopped")
    groups.groups(tmp_path / "run").run()
    groups.check_counts()


def test_rows_behind_an_open_transaction_are_waited_for_and_others_go_on(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Also by a run that begins meanwhile: what is hidden then was committed in the one before, and nobody tells of it again.

    Who waits commits nothing: there was an empty commit each second.
    """
    groups = Groups(kafka_cluster, unique, rows=300)
    stranger = groups.stranger()
    application = groups.groups(tmp_path / "run")
    wrote: set[int] = set()
    hides, ended = threading.Event(), threading.Event()

    def stop(event: RunEvent) -> None:
        if isinstance(event, ClientJoined) and not hides.is_set():
            hides.set()
            groups.hide(stranger)
        if isinstance(event, BatchesCommitted):
            wrote.update(task.partition for task in event.batches if task.subtopology == 0)
            if len(wrote) == 4:
                application.request_stop("the pairs are hidden")

    application.run(stop)
    assert not rows_of(groups.servers, groups.counts)

    def end() -> None:
        stranger.abort_transaction(60)
        ended.set()

    timer, empty = threading.Timer(4, end), []

    def watch(event: RunEvent) -> None:
        if isinstance(event, Rebalanced) and timer.ident is None:
            timer.start()
        if isinstance(event, BatchesCommitted) and not event.rows_in:
            empty.append(event)

    groups.groups(tmp_path / "run").run(watch)
    assert ended.is_set()
    assert not empty
    groups.check_counts()


def test_a_transaction_that_stays_open_is_named(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    stranger, hides = groups.stranger(), threading.Event()

    def hide(event: RunEvent) -> None:
        if isinstance(event, ClientJoined) and not hides.is_set():
            hides.set()
            groups.hide(stranger)

    with pytest.raises(
        StreamsException, match=r"by-key-repartition.* a transaction that began at offset 0 is open there and"
    ):
        groups.groups(tmp_path / "run", transaction_ms=3_000, timeout_ms=8_000).run(hide)
    stranger.abort_transaction(60)
    groups.groups(tmp_path / "run").run()
    groups.check_counts()


def test_rows_of_a_former_life_are_not_counted_again(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    groups.groups(tmp_path / "run").run()
    delete_group(groups.servers, groups.application_id)
    # The folder knows how far it is.
    groups.add(100)
    groups.groups(tmp_path / "run").run()
    groups.check_counts()
    delete_group(groups.servers, groups.application_id)
    with pytest.raises(
        TopicException, match=r"-repartition' has records of a former life.*Maybe reset the application"
    ):
        groups.groups(tmp_path / "other").run()


def test_a_topic_that_is_not_as_it_was_declared_is_refused(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    make_topics(groups.servers, groups.internal("by-group"), partitions=3)
    with pytest.raises(TopicException, match="-by-group-repartition' has 3 partitions, but 5 are declared"):
        groups.groups(tmp_path / "run").run()
    compacted = NewTopic(groups.internal("by-key"), 4, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": groups.servers})
    for future in admin.create_topics([compacted]).values():
        future.result(60)
    with pytest.raises(TopicException, match=r"internal topic .*-by-key-repartition' has cleanup.policy=compact"):
        groups.groups(tmp_path / "run", partitions=3).run()


COLUMNS = {
    "n": pa.array([1, None, 3]),
    "text": pa.array(["a", None, ""]),
    "price": pa.array([1, None, 2], pa.decimal128(9, 2)),
    "days": pa.array([[1], [], None], pa.list_(pa.date32())),
    "kind": pa.array(["x", "y", None]).dictionary_encode(),
}


def test_rows_are_exact_whatever_their_columns() -> None:
    rows = pa.table(COLUMNS)
    serde = RowSerde()
    serde.check(rows.schema)
    values = serde.serialize(rows)
    assert serde.deserialize(values, rows.schema).equals(rows.combine_chunks())
    assert serde.deserialize([], rows.schema).equals(rows.slice(0, 0))
    for wrong in (b"", b"no row", values[0] + b"\0" * 3, values[0][:-1]):
        with pytest.raises(SerializationException, match="checksum is wrong: this application has not") as caught:
            serde.deserialize([values[0], wrong], rows.schema)
        assert caught.value.index == 1
    with pytest.raises(SerializationException, match="or had other columns when it did"):
        serde.deserialize(values, rows.schema.append(pa.field("more", pa.string())))
