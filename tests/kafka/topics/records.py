"""Tables as records of Kafka topics, and back; for tests of tasks that read and write such topics."""

from __future__ import annotations

import itertools
import json
import operator
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import kafka
import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from task_assignor.kafka.topics import JsonSerde, KafkaTopic, KafkaTopics
from task_assignor.runtime import LocalProcessLauncher, RunEvent, StreamsApplication, Topology
from task_assignor.runtime.arrow.keys import partitions_of, serialise_keys
from task_assignor.runtime.machines.events import BatchesCommitted, ClientJoined
from tests.kafka.fixtures import make_topics, wait_until
from tests.runtime.support import QUICK, settings, stream

PARTITIONS = 4
_END = -191


def write_records(
    servers: str, topic: str, rows: pa.Table, partitions: int = PARTITIONS, transactions: int = 0, key: str = "key"
) -> None:
    """Write rows, each to the partition of its key; in so many transactions, with an aborted one after each."""
    # Otherwise rows that a broker asks to send again, as that of a new topic may, come after those that follow them.
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            **({"transactional.id": f"writer-of-{topic}"} if transactions else {}),
        }
    )
    flat, offsets = serialise_keys(rows, [key])
    keys = [bytes(flat[start:end]) for start, end in itertools.pairwise(offsets)]
    places = partitions_of(rows, [key], partitions).tolist()
    values = JsonSerde().serialize(rows)
    if not transactions:
        for value, name, place in zip(values, keys, places, strict=True):
            producer.produce(topic, value, name, partition=place)
            producer.poll(0)
        assert producer.flush(60) == 0
        return
    producer.init_transactions(60)
    size = -(-len(values) // transactions)
    for begin in range(0, len(values), size):
        producer.begin_transaction()
        for value, name, place in list(zip(values, keys, places, strict=True))[begin : begin + size]:
            producer.produce(topic, value, name, partition=place)
        producer.commit_transaction(60)
        producer.begin_transaction()
        for place in range(partitions):
            producer.produce(topic, b'{"aborted": true}', b"nobody", partition=place)
        producer.flush(60)
        producer.abort_transaction(60)


def write_streams_to_kafka(
    servers: str, left: str, right: str, rows: int, keys: int, transactions: int = 0, replicas: int = 1
) -> tuple[pa.Table, pa.Table]:
    """Two topics like those of `tests.runtime.support.write_streams`; gives what was written."""
    tables = stream(rows, keys, seed=1), stream(rows // 2, keys, seed=2)
    make_topics(servers, left, right, partitions=PARTITIONS, replicas=replicas)
    for name, table in zip((left, right), tables, strict=True):
        write_records(servers, name, table, transactions=transactions)
    return tables


def stream_topic(name: str) -> KafkaTopic:
    """How the topics of `write_streams_to_kafka` are read."""
    return KafkaTopic(name, stream(1, 1, seed=0).schema, "key", "at")


def run_to_end(servers: str, application_id: str, run_dir: Path, topology: Topology, *topics: KafkaTopic) -> None:
    """Run an application to the end of its topics."""
    StreamsApplication(
        topology,
        settings(application_id=application_id),
        topics_root=KafkaTopics({"bootstrap.servers": servers}, topics),
        run_dir=run_dir,
        clients=2,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    ).run()


def records_of(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of all records that are there now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    partitions = sorted(consumer.list_topics(topic, 60).topics[topic].partitions)
    ends = ends_of(servers, topic, IsolationLevel.READ_UNCOMMITTED)
    if isolation == "read_committed":
        # Kafka writes the marker after it has said that the transaction is committed, and one more where it is aborted.
        wait_until(
            lambda: all(map(operator.ge, ends_of(servers, topic, IsolationLevel.READ_COMMITTED), ends)),
            "all transactions are over",
        )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {partition: [] for partition in partitions}
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message: Any = consumer.poll(60)
        assert message is not None, f"{topic} does not come to its end"
        if message.error() is None:
            found[message.partition()].append((message.key(), message.value()))
        else:
            assert message.error().code() == _END, message.error()
            ended.add(message.partition())
    consumer.close()
    return [record for partition in partitions for record in found[partition]]


def ends_of(servers: str, topic: str, isolation: IsolationLevel) -> list[int]:
    """Where each partition of a topic ends."""
    return _offsets_of(servers, topic, isolation, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def starts_of(servers: str, topic: str) -> list[int]:
    """The first offset that each partition of a topic has."""
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return _offsets_of(servers, topic, IsolationLevel.READ_UNCOMMITTED, earliest)


def _offsets_of(servers: str, topic: str, isolation: IsolationLevel, which: Any) -> list[int]:
    admin = AdminClient({"bootstrap.servers": servers})
    partitions = sorted(admin.list_topics(topic, 60).topics[topic].partitions)
    asked = {TopicPartition(topic, partition): which for partition in partitions}
    found = admin.list_offsets(asked, isolation_level=isolation)
    return [offset for _, offset in sorted((each.partition, done.result(60).offset) for each, done in found.items())]


def rows_of(servers: str, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, as their JSON values."""
    return [json.loads(value) for _, value in records_of(servers, topic) if value is not None]


def in_any_order(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows to be compared without their order; twice the same row stays twice."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def killer(after_commits: int, how: Callable[[int], None] | None = None) -> Callable[[RunEvent], None]:
    """Kills the first client that joined (or does something else to its process) when so many commits have been made."""
    processes: list[int] = []
    commits = 0

    def watch(event: RunEvent) -> None:
        nonlocal commits
        if isinstance(event, ClientJoined):
            processes.append(event.pid)
        elif isinstance(event, BatchesCommitted):
            commits += 1
            if commits == after_commits:
                (how or (lambda process: os.kill(process, signal.SIGKILL)))(processes[0])

    return watch


def changelogs(run: Path) -> list[Path]:
    """The changelog files of a run folder."""
    return sorted((run / "changelogs").rglob("*.arrow"))


def delete_group(servers: str, group: str) -> None:
    """Have its offsets forgotten."""
    await_empty(servers, group)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_consumer_groups([group])[group].result(60)


def forget_offsets(servers: str, group: str, topic: str, partitions: Iterable[int]) -> None:
    """As brokers do by themselves after a week."""
    await_empty(servers, group)
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    told = admin.delete_group_offsets(group, [kafka.TopicPartition(topic, partition) for partition in partitions])
    admin.close()
    assert {error for _, error in told.items()} == {kafka.errors.NoError}, told


def await_empty(servers: str, group: str) -> None:
    """Wait until brokers do not call the driver of the last run a member any more."""
    admin = AdminClient({"bootstrap.servers": servers})

    def is_empty() -> bool:
        return not admin.describe_consumer_groups([group])[group].result(60).members

    wait_until(is_empty, "the group is empty")


def commits_of_a_stranger(servers: str, group: str) -> Callable[[Sequence[TopicPartition]], None]:
    """Commits offsets for a group as somebody else: in transactions, since its member is not forgotten yet."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{group}-stranger"})
    producer.init_transactions(60)
    metadata = Consumer({"bootstrap.servers": servers, "group.id": group}).consumer_group_metadata()

    def commit(offsets: Sequence[TopicPartition]) -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction(list(offsets), metadata, 60)
        producer.commit_transaction(60)

    return commit
