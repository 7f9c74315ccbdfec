"""Changelogs that are longer than what memory should hold of them: they are read and made in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, Producer

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics import reader as reading
from task_assignor.kafka.topics.changelog_reading import ChangelogReader
from task_assignor.kafka.topics.changelogs import BEGINS_ANEW, Record, changelog_codec
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.reader import RecordReader
from task_assignor.runtime import KeyValueStoreSpec, WindowStoreSpec
from task_assignor.runtime.machines.protocol import Position
from task_assignor.runtime.machines.records import FileRef
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.task_state import StateOwner, TaskState, is_from_the_beginning
from task_assignor.runtime.topology.sub_topology import StoreSpec
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics
from tests.kafka.topics.records import ends_of

pytestmark = pytest.mark.kafka
ROWS = KeyValueStoreSpec("rows", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))
ON_DISK = KeyValueStoreSpec("rows", ROWS.key, ROWS.value, on_disk=True)
WINDOW = WindowStoreSpec("window", "at")
NUMBER = 9_000
AHEAD = 500


def _key_value_batches(spec: KeyValueStoreSpec) -> Iterator[list[Record]]:
    """Batches that put and delete keys again and again; in the middle the application begins anew."""
    draw, codec, store = np.random.default_rng(1), changelog_codec(spec), ROWS.create()
    for batch in range(10):
        if batch == 4:
            store = ROWS.create()
            yield [BEGINS_ANEW]
        keys = draw.integers(0, 3_000, NUMBER // 10)
        values = np.arange(batch * NUMBER, batch * NUMBER + len(keys))
        store.put_table(pa.table({"k": keys, "v": values}))
        store.delete_table(pa.table({"k": draw.integers(0, 3_000, 300)}))
        changes = store.drain_changes()
        assert changes is not None
        yield codec.encode(changes, batch * NUMBER)


def _window_batches(spec: WindowStoreSpec) -> Iterator[list[Record]]:
    """Batches of rows, the last of which say that those of the first are too old."""
    codec, store = changelog_codec(spec), spec.create()
    for batch in range(12 * AHEAD):
        store.append(pa.table({"at": [batch, batch + 1]}))
        store.observe(batch + 1)
        store.expire(batch - 700)
        changes = store.drain_changes()
        assert changes is not None
        yield codec.encode(changes, batch)


@pytest.mark.parametrize("spec", [ROWS, ON_DISK, WINDOW], ids=["in memory", "on disk", "window"])
def test_a_whole_changelog_is_read_and_made_in_pieces(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: StoreSpec
) -> None:
    """All of it was in memory at once, and many millions of keys took gigabytes there."""
    monkeypatch.setattr(reading, "_AHEAD", AHEAD)
    topic, servers = unique("changelog"), kafka_cluster.bootstrap_servers
    make_topics(servers, topic, partitions=1)
    batches = list(_window_batches(spec) if isinstance(spec, WindowStoreSpec) else _key_value_batches(spec))
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(60)
    for place in range(0, len(batches), 50):
        # What is between them brokers keep for themselves.
        producer.begin_transaction()
        for key, value in (record for batch in batches[place : place + 50] for record in batch):
            producer.produce(topic, value, key, 0)
            producer.poll(0)
        producer.commit_transaction(60)
    (end,) = ends_of(servers, topic, IsolationLevel.READ_UNCOMMITTED)
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers}), 60_000)
    reader = RecordReader(connection, topic)
    no_files: Any = None
    changelog = ChangelogReader(
        connection, reader, 0, {spec.name: changelog_codec(spec)}, {WINDOW.name}, no_files, lambda: None
    )
    written = [record for batch in batches for record in batch]
    whole = FileRef.of_topic(topic, len(written), 0, 0, 0, end)
    pieces: list[pa.Table] = []

    def seen() -> Iterator[pa.Table]:
        for piece in changelog.changes(whole, spec.name, 0):
            pieces.append(piece)
            yield piece

    owner = StateOwner("app", "run", "0_0")
    state = TaskState(tmp_path, owner, (spec,), StoreMemory(), LocalStorage(tmp_path / "run"))
    state.apply(Position(0, 1, 0, None, 0), {spec.name: seen()})
    reader.close()
    # One look may bring a little more than what is wanted.
    assert len(pieces) >= len(written) / (AHEAD + 2_001)
    assert len(pieces) > 2
    assert is_from_the_beginning(pieces[0])
    restored: Any = state.stores[spec.name]
    expected: Any = spec.create()
    expected.apply(
        changelog_codec(spec).decode(written[written.index(BEGINS_ANEW) + 1 :] if BEGINS_ANEW in written else written)
    )
    if isinstance(spec, WindowStoreSpec):
        assert restored.rows.equals(expected.rows)
        assert (restored.stream_time, restored.expired_before) == (expected.stream_time, expected.expired_before)
    else:
        assert restored.all().equals(expected.all())
    state.close()
