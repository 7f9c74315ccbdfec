"""Who may commit for a task: with real brokers, and clients, runs and memberships that are there twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.batches import Batch
from task_assignor.kafka.topics.committing import NOTHING, Committer
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.offsets import committed_offsets
from task_assignor.kafka.topics.transactions import KafkaResults, TaskTransactions
from task_assignor.runtime import SubTopology, Topology
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.runtime.machines.protocol import Position, TaskOrder
from task_assignor.runtime.tasks.results import FolderResults
from task_assignor.sdk import TaskId
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, records_of, stream_topic
from tests.kafka.topics.test_membership import Driver
from tests.runtime.support import CountByKey

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
PATIENCE_S = 60
TASK = TaskId(0, 0)
ROWS = pa.table({"key": pa.array([1], pa.int64())})


class Run:
    """One task that copies rows from a topic of Kafka into another.

    Args:
        cluster: the cluster.
        unique: makes names.
    """

    def __init__(self, cluster: KafkaCluster, unique: Unique) -> None:
        self.servers = cluster.bootstrap_servers
        self.application_id = unique("permits")
        self.source, self.output = unique("source"), unique("output")
        make_topics(self.servers, self.source, self.output, partitions=PARTITIONS)
        self.topology = Topology([SubTopology("copy", self.source, CountByKey, outputs=self.output)])
        self.drivers: list[Driver] = []

    def driver(self) -> Driver:
        """Another one, which has wanted its first permit."""
        self.drivers.append(Driver(self.servers, self.application_id, [self.source]))
        self.drivers[-1].membership.renew(1)
        return self.drivers[-1]

    def client(self, name: str) -> tuple[KafkaResults, TaskTransactions]:
        """A client, and the task there."""
        topics = KafkaTopics(
            {"bootstrap.servers": self.servers}, [stream_topic(self.source), KafkaTopic(self.output, key="key")]
        )
        found = topics.results(self.application_id, self.topology, name)
        assert found is not None
        files = cast("FolderResults", None)
        return found, found.of_task(TASK, self.topology.of_task(TASK), files)

    def order(self, batch: int, generation: int, since: int = 1) -> TaskOrder:
        """That of a batch: a row each."""
        base = Position(batch - 1, generation if batch else 0)
        return TaskOrder(TASK, batch, generation, {self.source: (batch, batch + 1)}, base, since=since)

    def write(self, task: TaskTransactions, order: TaskOrder) -> None:
        """Commit what came of it."""
        task.write(order, order.ranges, {self.output: ROWS}, {}, None, {"bad_records": 2})

    @property
    def rows(self) -> int:
        """How many readers see."""
        return len(records_of(self.servers, self.output))


@pytest.fixture
def run(kafka_cluster: KafkaCluster, unique: Unique) -> Iterator[Run]:
    """A run, whose drivers end with the test."""
    made = Run(kafka_cluster, unique)
    yield made
    for driver in made.drivers:
        driver.membership.close()


def test_a_batch_is_not_committed_again_that_another_run_has_committed_meanwhile(run: Run) -> None:
    """A driver stood still, was no member any more, and its clients went on with its next permit when another run had come and gone."""
    first, (results, task) = run.driver(), run.client("client-1")
    results.take_permit(first.permit())
    order = run.order(0, generation=1)
    assert task.begin(order) is None
    others, same_task = run.client("client-0")
    others.take_permit(run.driver().permit())
    assert same_task.begin(order) is None
    run.write(same_task, order)
    results.take_permit(run.driver().permit())
    with pytest.raises(TaskMigratedException, match="client-1"):
        run.write(task, order)
    assert run.rows == 1
    task.close()
    found = task.begin(order)
    assert found is not None, "it finds what was committed"
    assert found.counters == {"bad_records": 2}


def test_with_a_newer_permit_a_task_goes_on_if_nobody_else_has_committed(run: Run) -> None:
    results, task = run.client("client-1")
    results.take_permit(run.driver().permit())
    for batch in range(3):
        order = run.order(batch, generation=1)
        assert task.begin(order) is None
        results.take_permit(run.driver().permit())
        run.write(task, order)
    assert run.rows == 3


def test_a_task_that_was_elsewhere_looks_what_was_committed_there(run: Run) -> None:
    """It was given back there when a batch had been committed, but nobody knew: here it was a standby meanwhile, and is told of no batch."""
    permit = run.driver().permit()
    (here, task), (there, same_task) = run.client("client-0"), run.client("client-1")
    for results in (here, there):
        results.take_permit(permit)
    order = run.order(0, generation=1)
    assert task.begin(order) is None
    run.write(task, order)
    order = run.order(1, generation=2)
    assert same_task.begin(order) is None
    run.write(same_task, order)
    assert task.begin(run.order(1, generation=3, since=3)) is not None


def test_a_task_that_stays_need_not_look(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    results, task = run.client("client-0")
    results.take_permit(run.driver().permit())
    order = run.order(0, generation=1)
    assert task.begin(order) is None
    run.write(task, order)
    monkeypatch.setattr(task, "_committed", None)
    assert task.begin(run.order(1, generation=2, since=1)) is None


def test_what_was_ordered_before_a_client_was_given_up_is_not_committed_when_it_has_joined_again(run: Run) -> None:
    """However late it comes to it, with a producer of its own that is newer: somebody else has the task."""
    results, task = run.client("client-0")
    results.take_permit(run.driver().permit())
    results.take_permit(b"", first=2)
    results.take_permit(run.driver().permit(), first=2)
    order = run.order(0, generation=1)
    assert task.begin(order) is None
    with pytest.raises(TaskMigratedException, match=r"was ordered before this client, .*client-0, was given up"):
        run.write(task, order)
    assert run.rows == 0
    order = run.order(0, generation=2, since=2)
    assert task.begin(order) is None
    run.write(task, order)
    assert run.rows == 1


def test_more_offsets_than_brokers_take_at_a_time_are_committed_together(run: Run) -> None:
    """A megabyte of metadata, as of three hundred tasks that write to a thousand partitions each, was an unknown error, again and again."""
    wide, partitions = f"{run.source}-wide", 300
    make_topics(run.servers, wide, partitions=partitions)
    connection = Connection(ClientSettings.of({"bootstrap.servers": run.servers}), 60_000)
    committer = Committer(connection, run.application_id, f"{run.application_id}-client-1")
    committer.take_permit(run.driver().permit())
    offsets = [TopicPartition(wide, number, number, "m" * 4_000) for number in range(partitions)]
    batch = Batch(TASK, [], [(run.output, b"{}", b"k", 0, -1, None)], 3, lambda _: offsets, committer.begin())
    committer.commit(batch)
    found = committed_offsets(connection, run.application_id, [(wide, number) for number in range(partitions)])
    assert found == {(wide, number): (number, "m" * 4_000) for number in range(partitions)}
    assert run.rows == 1


def test_pieces_that_are_too_large_are_written_smaller_though_another_error_comes_last(run: Run) -> None:
    """The last record is only out of order then: it was tried again and again, as large as before."""
    small, values = f"{run.source}-small", [os.urandom(50_000) for _ in range(40)]
    make_topics(run.servers, small, partitions=1, config={"max.message.bytes": "100000"})
    connection = Connection(ClientSettings.of({"bootstrap.servers": run.servers}), 60_000)
    committer = Committer(connection, run.application_id, f"{run.application_id}-client-1")
    committer.take_permit(run.driver().permit())

    def commit(value: bytes, known: tuple[int, str] = NOTHING) -> int:
        def offsets(ends: Mapping[tuple[str, int], int]) -> list[TopicPartition]:
            if ends[small, 0] <= 0:
                raise TaskMigratedException("It is not said where the records are.")
            return [TopicPartition(run.source, 0, 1, "")]

        records = [(small, each, b"k", 0, -1, None) for each in (value, *values)]
        batch = Batch(TASK, [], records, 3, offsets, committer.begin(), {(run.source, 0): known}, committer.permits)
        committer.commit(batch)
        return len(records_of(run.servers, small))

    # An eighth of librdkafka's megabyte first.
    for told in ("125000 bytes now", "50000 bytes now"):
        with pytest.raises(TaskMigratedException, match=told):
            commit(b"v")
    assert commit(b"v") == 1 + len(values)
    with pytest.raises(KafkaClusterException, match=r"\(MSG_SIZE_TOO_LARGE\)\. Maybe a row is larger than the topic's"):
        commit(os.urandom(200_000), (1, ""))
