"""Topics that gain columns, and runs and stores that see them."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    CommitLogException,
    KeyValueStoreSpec,
    Output,
    Processor,
    RecordProcessor,
    RunEvent,
    StoreException,
    StreamTableJoin,
    SubTopology,
    TaskContext,
    Topic,
    TopicException,
    Topology,
    WindowedJoin,
    WindowStoreSpec,
    append_topic,
    output_schema,
    read_output,
    write_topic,
)
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, application, in_order, join_topology, stream
from tests.runtime.test_topic_growth import ROWS, WIDE, numbers_of

# Columns that come later.


def test_a_topic_gains_a_column(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 10), partitions=2, key=["key"])
    before = Topic.open(tmp_path, "t")
    grown = append_topic(tmp_path, "t", WIDE.slice(10, 10), add_columns=True)
    assert grown.spec.schema == WIDE.schema
    append_topic(tmp_path, "t", ROWS.slice(20, 10))
    append_topic(tmp_path, "t", WIDE.slice(30).select(["more", "n", "key"]))
    topic = Topic.open(tmp_path, "t")
    rows = pa.concat_tables([topic.read(part, 0, end) for part, end in enumerate(topic.end_offsets())])
    rows = rows.sort_by("n")
    assert rows.drop_columns(["more"]).equals(ROWS)
    expected = [*[None] * 10, *(f"m{n}" for n in range(10, 20)), *[None] * 10, *(f"m{n}" for n in range(30, 40))]
    assert rows.column("more").to_pylist() == expected
    assert topic.read(0, 0, 3, ["more"]).schema.names == ["more"]
    before.refresh()
    assert numbers_of(before) == list(range(40))
    assert before.spec.schema == ROWS.schema, "who reads it does not see it"
    assert before.read(0, 0, before.end_offset(0)).schema == ROWS.schema
    assert append_topic(tmp_path, "t", WIDE.slice(0, 1), add_columns=True).spec.schema == WIDE.schema


def test_a_topic_gains_a_column_before_there_are_rows_with_it(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    assert append_topic(tmp_path, "t", WIDE.slice(0, 0), add_columns=True).spec.schema == WIDE.schema
    assert append_topic(tmp_path, "t", WIDE.slice(0, 0), add_columns=True).version == 1, "nothing is new"
    append_topic(tmp_path, "t", WIDE)
    topic = Topic.open(tmp_path, "t")
    assert numbers_of(topic) == sorted([*range(40)] * 2)


def test_columns_that_come_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 0), partitions=2, key=["key"])

    def append(number: int) -> None:
        more = pa.array([f"{number}"] * 5)
        append_topic(tmp_path, "t", ROWS.slice(number * 5, 5).append_column(f"c{number}", more), add_columns=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))
    topic = Topic.open(tmp_path, "t")
    assert sorted(topic.spec.schema.names) == ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "key", "n"]
    for part, end in enumerate(topic.end_offsets()):
        for row in topic.read(part, 0, end).to_pylist():
            owner = row["n"] // 5
            assert {name: value for name, value in row.items() if name[0] == "c" and value} == {f"c{owner}": f"{owner}"}


def test_what_a_topic_cannot_become_is_refused(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    with pytest.raises(TopicException, match=r"have columns \['more'\], which it does not have.*add_columns=True"):
        append_topic(tmp_path, "t", WIDE)
    with pytest.raises(TopicException, match=r"cannot gain the column 'more': it has no type, only nulls"):
        append_topic(tmp_path, "t", ROWS.append_column("more", pa.nulls(40)), add_columns=True)
    strict = WIDE.cast(WIDE.schema.set(2, pa.field("more", pa.string(), nullable=False)))
    with pytest.raises(TopicException, match=r"cannot gain the column 'more': it must not be null"):
        append_topic(tmp_path, "t", strict, add_columns=True)
    with pytest.raises(TopicException, match=r"have no columns \['n'\]"):
        append_topic(tmp_path, "t", WIDE.drop_columns(["n"]), add_columns=True)
    with pytest.raises(TopicException, match=r"'n' for topic t has type string and cannot be cast to int64"):
        append_topic(tmp_path, "t", WIDE.set_column(1, "n", WIDE.column("more")), add_columns=True)
    append_topic(tmp_path, "t", WIDE, add_columns=True)
    with pytest.raises(TopicException, match=r"'more' for topic t has type list.* and cannot be cast to string"):
        append_topic(tmp_path, "t", ROWS.append_column("more", pa.array([[1]] * 40)), add_columns=True)
    topic = Topic.open(tmp_path, "t")
    assert topic.version == 1
    assert topic.spec.schema == WIDE.schema


# Runs.


class Same(Processor):
    """Gives what it gets."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """The rows."""
        (rows,) = batch.values()
        return rows


def _same(schema: pa.Schema | None = None, file_format: str = "arrow") -> Topology:
    output = Output("out", schema, format=file_format)  # type: ignore[arg-type]
    return Topology([SubTopology("same", "t", Same, outputs=[output])])


def _by_n(table: pa.Table) -> pa.Table:
    return table.sort_by("n")


@pytest.mark.parametrize("declared", [False, True])
def test_a_run_that_goes_on_sees_a_column_that_its_topic_has_gained(tmp_path: Path, declared: bool) -> None:
    """From its first batch on; what was committed before has null there, and stays as it is."""
    topics, options = tmp_path / "topics", attrs.evolve(QUICK, max_batch_rows=5, checkpoint_every_commits=3)
    write_topic(topics, "t", ROWS.slice(0, 20), partitions=2, key=["key"])
    app = application(tmp_path, _same(ROWS.schema if declared else None), options=options)
    app.run()
    append_topic(topics, "t", WIDE.slice(20, 10), add_columns=True)
    # The same object sees what it saw.
    assert app.run().table("out").schema.names == ["key", "n"]
    append_topic(topics, "t", WIDE.slice(30))
    result = application(tmp_path, _same(WIDE.schema if declared else None), options=options).run()
    found = _by_n(result.table("out"))
    assert found.select(["key", "n"]).equals(ROWS)
    assert found.column("more").to_pylist() == [*[None] * 30, *(f"m{n}" for n in range(30, 40))]
    assert output_schema(tmp_path / "run", "out") == WIDE.schema
    if declared:
        again = application(tmp_path, _same(ROWS.schema), options=options)
        with pytest.raises(CommitLogException, match='outputs, out, more: was "string", is gone'):
            again.run()
        other = WIDE.schema.set(1, pa.field("n", pa.string()))
        with pytest.raises(CommitLogException, match='outputs, out, n: was "int64", is "string"'):
            application(tmp_path, _same(other), options=options).run()
        strict = WIDE.schema.append(pa.field("strict", pa.int64(), nullable=False))
        with pytest.raises(CommitLogException, match='strict: is "int64", was not there'):
            application(tmp_path, _same(strict), options=options).run()


def test_a_run_in_progress_does_not_see_what_its_topic_gains(tmp_path: Path) -> None:
    """Not even a client that is started later; so no batch depends on who has looked when."""
    write_topic(tmp_path / "topics", "t", ROWS.slice(0, 20), partitions=2, key=["key"])
    app = application(tmp_path, _same(), clients=1, options=QUICK)
    seen, grown = [0], [False]

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            seen[0] += event.rows_in
            if not grown[0] and seen[0] == 20:
                grown[0] = True
                append_topic(tmp_path / "topics", "t", WIDE.slice(20), add_columns=True)
                app.scale(2)
            if seen[0] == 40:
                app.request_stop()

    app.run(on_event, until="stopped")
    assert _by_n(read_output(tmp_path / "run", "out")).equals(ROWS)


def test_the_state_of_a_join_takes_a_gained_column(tmp_path: Path) -> None:
    """Rows that wait in a store for their match have null there; snapshots and changelogs of before are restored."""
    topics = tmp_path / "topics"
    rows = stream(600, 20, seed=1, span_ms=200_000)
    other = stream(600, 20, seed=2, span_ms=200_000).rename_columns(["key", "at", "other"])
    more = rows.append_column("more", pa.array([f"m{number}" for number in range(rows.num_rows)]))
    late = pc.greater_equal(rows.column("at"), 100_000)
    write_topic(topics, "left", rows.filter(pc.invert(late)), partitions=2, key=["key"], timestamp="at")
    is_later = pc.greater_equal(other.column("at"), 100_000)
    write_topic(topics, "right", other.filter(pc.invert(is_later)), partitions=2, key=["key"], timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=40, snapshot_changelog_bytes=1)
    application(tmp_path, join_topology(), clients=1, options=options).run()
    append_topic(topics, "left", more.filter(late), add_columns=True)
    append_topic(topics, "right", other.filter(is_later))
    result = application(tmp_path, join_topology(), clients=2, options=options).run()
    found = result.table("joined")
    given = pc.if_else(late, more.column("more"), pa.scalar(None, pa.string()))
    expected = _plain(more.set_column(more.num_columns - 1, "more", given), other)
    assert found.schema == expected.schema
    assert in_order(found).equals(in_order(expected))
    of_both = [row for row in found.to_pylist() if row["more"] is None and row["at_right"] >= 100_000]
    assert of_both, "rows that waited in the state were joined"


def _plain(left: pa.Table, right: pa.Table) -> pa.Table:
    """The join in one piece, by the same processor, in a folder of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_topic(root / "topics", "left", left, partitions=2, key=["key"], timestamp="at")
        write_topic(root / "topics", "right", right, partitions=2, key=["key"], timestamp="at")
        return application(root, join_topology(), clients=1, options=QUICK).run().table("joined")


class LastMore(RecordProcessor):
    """Counts by key, and keeps the last `more` where its store knows such a column: two versions of an application."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]] | None:
        """The count so far, and what `more` was before."""
        store = context.key_value_store("counts")
        known = store.get(record["key"])
        count = 1 + (0 if known is None else known["count"])
        knows_more = "more" in store.all().schema.names
        store.put(record["key"], {"count": count, **({"more": record["more"]} if knows_more else {})})
        before = {"before": None if known is None else known["more"]} if knows_more else {}
        return [{"key": record["key"], "count": count, **before}]


def _counting(*, with_more: bool, on_disk: bool, **changes: pa.DataType) -> Topology:
    value = pa.schema([("count", pa.int64())])
    columns = pa.schema([("key", pa.string()), ("count", pa.int64())])
    if with_more:
        value, columns = value.append(pa.field("more", pa.string())), columns.append(pa.field("before", pa.string()))
    for name, kind in changes.items():
        value = value.set(value.get_field_index(name), pa.field(name, kind))
    store = KeyValueStoreSpec("counts", pa.schema([("key", pa.string())]), value, on_disk=on_disk)
    return Topology([SubTopology("count", "t", LastMore, [store], [Output("out", columns)])])


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_new_version_of_an_application_may_have_more_columns_in_its_stores(tmp_path: Path, on_disk: bool) -> None:
    """What the old one left is there, with nulls: on disk where it was, else from snapshot and changelog in the run's folder."""
    topics, options = tmp_path / "topics", attrs.evolve(QUICK, max_batch_rows=4, snapshot_changelog_bytes=600)
    write_topic(topics, "t", ROWS.slice(0, 25), partitions=2, key=["key"])
    application(tmp_path, _counting(with_more=False, on_disk=on_disk), clients=1, options=options).run()
    if not on_disk:
        shutil.rmtree(tmp_path / "run" / "clients")
    append_topic(topics, "t", WIDE.slice(25), add_columns=True)
    now = application(tmp_path, _counting(with_more=True, on_disk=on_disk), clients=1, options=options).run()
    counts: Counter[str] = Counter()
    last: dict[str, str] = {}
    expected = []
    for number, row in enumerate(WIDE.to_pylist()):
        counts[row["key"]] += 1
        expected.append((row["key"], counts[row["key"]], last.get(row["key"])))
        if number >= 25:
            last[row["key"]] = row["more"]
    found = [tuple(row.values()) for row in now.table("out").to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    with pytest.raises(CommitLogException, match=r"stores, counts: was .*more: string\)\", is .*count: int64\)\""):
        application(tmp_path, _counting(with_more=False, on_disk=on_disk), options=options).run()
    with pytest.raises(
        CommitLogException,
        match=r"is .*more: int64\)\".*A key-value store may gain columns that can be null, after those that it has",
    ):
        application(tmp_path, _counting(with_more=True, on_disk=on_disk, more=pa.int64()), options=options).run()


@pytest.mark.parametrize("grows", ["s", "t"])
def test_joins_with_tables_take_the_columns_that_their_topics_gain(tmp_path: Path, grows: str) -> None:
    """A lookup finds null in what the table had before, whichever of the two has gained a column."""
    topics = tmp_path / "topics"
    orders = pa.table({"key": ["a", "b", "a", "b"], "at": [10, 20, 110, 120], "order": [1, 2, 3, 4]})
    prices = pa.table({"key": ["a", "b", "b"], "at": [5, 5, 115], "price": [10, 20, 21]})
    write_topic(topics, "s", orders.slice(0, 2), partitions=1, key=["key"], timestamp="at")
    write_topic(topics, "t", prices.slice(0, 2), partitions=1, key=["key"], timestamp="at")

    def run() -> pa.Table:
        join = StreamTableJoin(stream="s", table="t")
        specs = [Topic.open(topics, name).spec for name in "st"]
        topology = Topology([join.sub_topology("join", "joined", specs)])
        return application(tmp_path, topology, clients=1).run().table("joined")

    assert run().num_rows == 2
    for name, rows in (("s", orders.slice(2)), ("t", prices.slice(2))):
        if name == grows:
            rows = rows.append_column("more", pa.array([f"m{time}" for time in rows.column("at").to_pylist()]))
        append_topic(topics, name, rows, add_columns=name == grows)
    found = run().sort_by("order")
    assert found.column("price").to_pylist() == [10, 20, 10, 21]
    assert found.column("more").to_pylist() == (
        [None, None, "m110", "m120"] if grows == "s" else [None, None, None, "m115"]
    )


def test_a_window_store_takes_new_columns_and_loses_none(tmp_path: Path) -> None:
    store = WindowStoreSpec("s", "at").create(tmp_path)
    old = pa.table({"at": [1, 2], "x": ["a", "b"]})
    store.append(old)
    store.drain_changes()
    store.keep("one")
    saved = store.save()
    store.append(pa.table({"at": [3], "x": ["c"], "y": [3.0]}))
    changes = store.drain_changes()
    expected = pa.table({"at": [1, 2, 3], "x": ["a", "b", "c"], "y": [None, None, 3.0]})
    assert store.rows is not None
    assert store.rows.equals(expected)
    frame = store.frame
    assert frame is not None
    assert frame.to_arrow().column("y").to_pylist() == [None, None, 3.0]
    for rows in (old, pa.table({"at": [3], "x": [1], "y": [3.0]})):
        with pytest.raises(StoreException, match=r"cannot be added\. Only columns that it does not have may be new"):
            store.append(rows)
    store.keep("two")
    second = store.save()
    for snapshot, follows in ((saved, True), (second, False)):
        store.load(snapshot, "again")
        if follows and changes is not None:
            store.apply(changes)
        assert store.rows.equals(expected)
    store.load(second, "again")
    store.rollback()
    assert store.rows.equals(expected)
    store.clear()
    store.append(old)
    store.append(pa.table({"y": [3.0], "at": [3], "x": ["c"]}))
    changes = store.drain_changes()
    assert changes is not None, "both in one batch"
    store.clear()
    store.apply(changes)
    assert store.rows.equals(expected.select(["y", "at", "x"]))
    store.close()


def test_join_of_all_columns_names_what_does_not_fit(tmp_path: Path) -> None:
    """What the topic gains is called as a column of the other side: the result would mean something else."""
    topics = tmp_path / "topics"
    for name, column in (("left", "a"), ("right", "b")):
        rows = stream(100, 5, seed=1).rename_columns(["key", "at", column])
        write_topic(topics, name, rows, partitions=1, key=["key"], timestamp="at")
    join = WindowedJoin(left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS)
    topology = Topology([join.sub_topology("join", "joined")])
    application(tmp_path, topology, clients=1).run()
    clash = stream(100, 5, seed=2).rename_columns(["key", "at", "a"])
    clash = clash.append_column("b", pa.array(range(100)))
    append_topic(topics, "left", clash, add_columns=True)
    begin = time.monotonic()
    with pytest.raises(CommitLogException, match="outputs, joined, b: was "):
        application(tmp_path, topology, clients=1).run()
    assert time.monotonic() - begin < 60
