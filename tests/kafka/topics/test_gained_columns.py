"""Applications whose topic and store gain a column between two runs: their state is what Kafka's changelogs say, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    CommitLogException,
    KeyValueStoreSpec,
    LocalProcessLauncher,
    Output,
    Processor,
    RecordProcessor,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
    read_output,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, in_any_order, rows_of, stream_topic, write_records
from tests.kafka.topics.test_sinks import Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, plain_join, settings, stream

pytestmark = pytest.mark.kafka
MORE = pa.field("more", pa.string())
RUNS, ROWS, KEYS, SPAN_MS = 3, 300, 20, 200_000
RESTART = 4
"""So often a key is counted before it is forgotten."""
WAYS = ["the folder of the run is lost", "it has no states"]


def pieces(seed: int, gains_from: int) -> list[pa.Table]:
    """What comes before each run: from one of them on the rows have a column more, in which some have nothing."""
    more = pa.array([None if number % 3 == 0 else f"m{number}" for number in range(ROWS)])
    found = []
    for number in range(RUNS):
        rows = stream(ROWS, KEYS, 10 * seed + number, SPAN_MS)
        rows = rows.set_column(1, "at", pa.array(rows.column("at").to_numpy() + number * SPAN_MS))
        found.append(rows if number < gains_from else rows.append_column(MORE, more))
    return found


def topic_of(name: str, rows: pa.Table) -> KafkaTopic:
    return attrs.evolve(stream_topic(name), schema=rows.schema)


def forget_states(run: Path, way: str, number: int) -> Path:
    """Remove all states of a run; gives the folder of the next."""
    if way == WAYS[0]:
        shutil.rmtree(run)
        return run.with_name(f"run-{number}")
    shutil.rmtree(run / "clients")
    shutil.rmtree(run / "snapshots", ignore_errors=True)
    return run


def run(servers: str, application_id: str, topology: Topology, topics: list[KafkaTopic], folder: Path) -> Any:
    goes_on = (folder / "commits").exists()
    result = StreamsApplication(
        topology,
        settings(application_id=application_id),
        topics_root=KafkaTopics({"bootstrap.servers": servers}, topics),
        run_dir=folder,
        clients=2,
        options=attrs.evolve(QUICK, max_batch_rows=30),
        launcher=LocalProcessLauncher(start_method="forkserver"),
    ).run()
    if goes_on:
        assert {found.origin for found in result.restores if found.role == "active"} == {"changelog"}
    return result


def known(way: str, number: int) -> int:
    """How many of the pieces are new to a run: to a new folder all, most of which are found in Kafka."""
    return number + 1 if way == WAYS[0] else 1


class Latest(RecordProcessor):
    """Counts the rows of a key, and says what the one before had in the column that is gained; both versions of it."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]] | None:
        """The count so far."""
        store = context.key_value_store("latest")
        known = store.get(record["key"]) or {"count": 0, "more": None}
        told = {"key": record["key"], "at": record["at"], "count": known["count"] + 1}
        has_gained = "more" in record
        if told["count"] == RESTART:
            store.delete(record["key"])
        else:
            store.put(record["key"], {"count": told["count"], **({"more": record["more"]} if has_gained else {})})
        return [{**told, "before": known["more"]} if has_gained else told]


def plain_latest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, computed at once."""
    seen: dict[int, list[dict[str, Any]]] = {}
    told = []
    for row in rows:
        before = seen.setdefault(row["key"], [])
        number = len(before) % RESTART
        found = {"key": row["key"], "at": row["at"], "count": number + 1}
        told.append({**found, "before": before[-1].get("more") if number else None} if "more" in row else found)
        before.append(row)
    return told


@pytest.mark.parametrize(("way", "on_disk"), [(WAYS[0], False), (WAYS[1], True)], ids=["in memory", "on disk"])
def test_a_key_value_store_and_its_topic_gain_a_column(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, on_disk: bool, way: str
) -> None:
    """The second run reads rows of before, the third of both ages."""
    servers, application_id = kafka_cluster.bootstrap_servers, unique("latest")
    source, output = unique("source"), unique("latest-out")
    make_topics(servers, source, output, partitions=PARTITIONS)
    folder = tmp_path / "run"
    came: list[dict[str, Any]] = []
    for number, rows in enumerate(pieces(seed=1, gains_from=1)):
        if number:
            folder = forget_states(folder, way, number)
        write_records(servers, source, rows)
        came += rows.to_pylist()
        gained = [MORE] if number else []
        value = pa.schema([("count", pa.int64()), *gained])
        store = KeyValueStoreSpec("latest", pa.schema([("key", pa.int64())]), value, on_disk=on_disk)
        topology = Topology([SubTopology("latest", source, Latest, stores=[store], outputs=output)])
        result = run(servers, application_id, topology, [topic_of(source, rows), KafkaTopic(output, key="key")], folder)
        assert result.rows_in == known(way, number) * ROWS, "it goes on where it was"
        assert in_any_order(rows_of(servers, output)) == in_any_order(plain_latest(came))
    assert {row["before"] is None for row in rows_of(servers, output) if "before" in row} == {True, False}


@pytest.mark.parametrize("way", WAYS)
def test_a_window_store_and_its_topic_gain_a_column(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, way: str
) -> None:
    """Rows that wait for a match are read from the changelog, those of before with nothing in the column."""
    servers, application_id = kafka_cluster.bootstrap_servers, unique("join")
    left, right, joined = unique("left"), unique("right"), unique("joined")
    make_topics(servers, left, right, joined, partitions=PARTITIONS)
    topology = Topology(
        [
            WindowedJoin(left=left, right=right, before_ms=BEFORE_MS, after_ms=AFTER_MS).sub_topology(
                "join", output=joined
            )
        ]
    )
    folder = tmp_path / "run"
    came: list[tuple[pa.Table, pa.Table]] = []
    for number, (rows, others) in enumerate(zip(pieces(1, gains_from=1), pieces(2, gains_from=RUNS), strict=True)):
        if number:
            folder = forget_states(folder, way, number)
        write_records(servers, left, rows)
        write_records(servers, right, others)
        came.append((rows, others))
        topics = [topic_of(left, rows), topic_of(right, others), KafkaTopic(joined, key="key", timestamp="at")]
        result = run(servers, application_id, topology, topics, folder)
        assert result.rows_in == 2 * known(way, number) * ROWS, "it goes on where it was"
        lefts, rights = (pa.concat_tables(side, promote_options="default") for side in zip(*came, strict=True))
        expected = [without_nothing(row) for row in plain_join(lefts, rights).to_pylist()]
        found = [without_nothing(row) for row in rows_of(servers, joined)]
        assert in_any_order(found) == in_any_order(expected)
    waited = [row for row in rows_of(servers, joined) if row.get("more", "") is None and row["at_right"] > row["at"]]
    assert waited, "rows of before were joined after the column had come"


class Turns(Processor):
    """Gives texts as another type from the fifth row on, and nothing else than nulls before."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows."""
        (rows,) = batch.values()
        (offsets,) = context.offsets.values()
        is_late = offsets[0] >= 4
        name = pa.array(["x"] * rows.num_rows, pa.string() if is_late else pa.large_string())
        return pa.table({"name": name, "more": pa.array([1 if is_late else None] * len(name), pa.int64())})


@pytest.mark.parametrize("is_topic", [True, False], ids=["in Kafka", "in the folder of the run"])
def test_an_output_may_be_declared_as_it_has_become(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, is_topic: bool
) -> None:
    """As where sources are folders; it was refused with `was null`."""
    servers, application_id, source, output = (
        kafka_cluster.bootstrap_servers,
        unique("turns"),
        unique("source"),
        unique("turned"),
    )
    make_topics(servers, source, output, partitions=1)
    rows = stream(12, 2, seed=1)
    topics = [topic_of(source, rows), *([KafkaTopic(output)] if is_topic else [])]

    def run_with(*columns: pa.Field) -> Any:
        given = Output(output, pa.schema(columns)) if columns else output
        topology = Topology([SubTopology("turns", source, Turns, outputs=[given])])
        return StreamsApplication(
            topology,
            settings(application_id=application_id),
            topics_root=KafkaTopics({"bootstrap.servers": servers}, topics),
            run_dir=tmp_path / "run",
            clients=1,
            options=attrs.evolve(QUICK, max_batch_rows=2, checkpoint_every_commits=2),
            launcher=LocalProcessLauncher(start_method="forkserver"),
        ).run()

    more = pa.field("more", pa.int64())
    write_records(servers, source, rows[:4], partitions=1)
    run_with()
    write_records(servers, source, rows[4:], partitions=1)
    with pytest.raises(CommitLogException, match=f'outputs, {output}, name: was "large_string", is "string"'):
        run_with(pa.field("name", pa.string()), more)
    assert run_with(pa.field("name", pa.large_string()), more).rows_in == 8
    found = rows_of(servers, output) if is_topic else read_output(tmp_path / "run", output).to_pylist()
    assert found == [{"name": "x", "more": None}] * 4 + [{"name": "x", "more": 1}] * 8


def without_nothing(row: dict[str, Any]) -> dict[str, Any]:
    """Rows of the first run have no member where later ones have null."""
    return {name: value for name, value in row.items() if value is not None}
