"""What stores hold whose changelogs are topics of Kafka."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from task_assignor.kafka.topics.reader import RecordReader
from task_assignor.runtime import BatchesCommitted, RunEvent
from tests.kafka.broker import KafkaCluster
from tests.kafka.topics.test_sinks import Counting, Join
from tests.runtime.support import QUICK

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("snapshot_bytes", [0, 500])
def test_a_store_is_read_while_a_run_goes_on_and_later(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, snapshot_bytes: int
) -> None:
    counting = Counting(kafka_cluster, unique, rows=1_000)
    options = attrs.evolve(QUICK, max_batch_rows=50, snapshot_changelog_bytes=snapshot_bytes)
    committed, seen = [0], list[tuple[int, int]]()
    reader = counting.application(tmp_path / "run", options=options)

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            committed[0] += event.rows_in
            found = sum(reader.read_store("totals").column("count").to_pylist())
            seen.append((committed[0], found))

    counting.run(tmp_path / "run", options=options, on_event=on_event)
    # Kafka has committed batches of which the coordinator does not know yet: those are not in it.
    assert seen
    assert all(found == rows for rows, found in seen)
    keys = counting.rows.column("key").to_pylist()
    expected = {key: keys.count(key) for key in keys}
    assert {row["key"]: row["count"] for row in reader.read_store("totals").to_pylist()} == expected
    counting.check()


def test_a_window_store_is_read(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    join = Join(kafka_cluster, unique, rows=400)
    app = join.application(tmp_path / "run")
    app.run()
    (sub,) = app._topology.sub_topologies
    for store, table in zip(sub.stores, join.tables, strict=True):
        values, kept = table.column("value").to_pylist(), app.read_store(store.name)
        found = {value for column in kept.columns for value in column.to_pylist()}
        # In the order of time: the last row may meet one that comes, the first one is forgotten.
        assert values[-1] in found
        assert values[0] not in found


def test_who_reads_a_store_is_connected_anew_and_not_longer_than_that(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads had one reader, where each took the other's place in the changelog: they took minutes, or ended after one."""
    counting = Counting(kafka_cluster, unique, rows=100)
    app = counting.application(tmp_path / "run", clients=1)
    app.run()
    read, readers = RecordReader.read_some, list[weakref.ref[RecordReader]]()

    def noted(reader: RecordReader, *given: Any, **more: Any) -> Any:
        readers.append(weakref.ref(reader))
        return read(reader, *given, **more)

    monkeypatch.setattr(RecordReader, "read_some", noted)
    gc.collect()
    gc.disable()
    try:
        app.read_store("totals")
        assert readers
        assert [found() for found in readers] == [None] * len(readers)
    finally:
        gc.enable()
