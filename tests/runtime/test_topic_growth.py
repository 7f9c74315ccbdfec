"""Topics that are appended to thousands of times, and topics that gain columns."""

from __future__ import annotations

import random
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
    CorruptLogException,
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
    topic_changes,
    topics,
    write_topic,
)
from task_assignor.runtime import topic_versions as versions
from task_assignor.runtime.storage import LocalStorage, Storage, open_document
from task_assignor.runtime.topic_changes import put_version
from task_assignor.runtime.topic_versions import lists_folder, versions_of
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, application, in_order, join_topology, stream

ROWS = pa.table({"key": [f"k{number % 7}" for number in range(40)], "n": list(range(40))})
WIDE = ROWS.append_column("more", pa.array([f"m{number}" for number in range(40)]))


def _rows(topic: Topic) -> list[int]:
    return sorted(
        number
        for part, end in enumerate(topic.end_offsets())
        for number in topic.read(part, 0, end).column("n").to_pylist()
    )


# Appended to very often.


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions become long soon."""
    monkeypatch.setattr(versions, "LISTED_APPENDS", 3)
    monkeypatch.setattr(versions, "LISTED_FILES", 9)


@pytest.mark.usefixtures("_short")
def test_versions_stay_short_and_lists_few(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=2, key=["key"])
    reader, sizes, lists = Topic.open(tmp_path, "t"), [], []
    storage = LocalStorage(tmp_path)
    for number in range(1, 200):
        topic = append_topic(tmp_path, "t", ROWS.slice(number % 40, 1))
        sizes.append(storage.size(f"t/versions/{topic.version:012d}.json"))
        lists.append(len(storage.list(lists_folder("t"))))
        if number % 17 == 0:
            reader.refresh()
            assert sum(reader.end_offsets()) == number + 1
    assert max(sizes) < 2.5 * sizes[0]
    assert max(lists) < 2 * 8 + 20 / 3
    for found in (reader, Topic.open(tmp_path, "t")):
        found.refresh()
        assert _rows(found) == sorted(number % 40 for number in range(200))
    assert len(versions_of(storage, "t")) <= 20


def test_a_run_that_goes_on_looks_only_at_files_that_it_has_not_read(tmp_path: Path) -> None:
    """Else the time to resume grows with all that a topic ever had."""
    table = stream(60, 5, seed=1)
    for name in ("left", "right"):
        write_topic(tmp_path / "topics", name, table.slice(0, 40), partitions=1, key=["key"], timestamp="at")
    application(tmp_path, join_topology(), clients=1).run()
    expected = read_output(tmp_path / "run", "joined").num_rows
    for name in ("left", "right"):
        (read,) = (tmp_path / "topics" / name / "0").iterdir()
        read.unlink()
        append_topic(tmp_path / "topics", name, table.slice(40, 20))
    result = application(tmp_path, join_topology(), clients=1).run()
    assert result.rows_in == 40
    assert read_output(tmp_path / "run", "joined").num_rows > expected
    newest = max((tmp_path / "topics" / "left" / "0").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CorruptLogException, match=r"topic file of left, partition 0, offset 0 .* \(it is missing"):
        application(tmp_path, join_topology(), clients=1).run()


@pytest.mark.usefixtures("_short")
def test_who_reads_the_end_of_a_topic_needs_no_older_lists(tmp_path: Path) -> None:
    """Else the time to resume grows with all appends that there ever were."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=2, key=["key"])
    ends = [Topic.open(tmp_path, "t").end_offsets()]
    ends += [append_topic(tmp_path, "t", ROWS.slice(number, 1)).end_offsets() for number in range(1, 30)]
    whole, chance = Topic.open(tmp_path, "t"), random.Random(0)
    expected = [whole.read(part, 0, end) for part, end in enumerate(ends[-1])]
    for _ in range(40):
        topic = Topic.open(tmp_path, "t")
        if chance.random() < 0.5:
            topic.check(chance.choice(ends))
        for _ in range(4):
            part = chance.randrange(2)
            start, end = sorted(chance.choices(range(ends[-1][part] + 1), k=2))
            assert topic.read(part, start, end).equals(expected[part].slice(start, end - start))
        topic.check()
        assert _rows(topic) == list(range(30))
    for found in whole.now.lists:
        (tmp_path / found.name).unlink()
    last = whole.now.lists[-1].ends
    topic = Topic.open(tmp_path, "t")
    topic.check(last)
    for part, (start, end) in enumerate(zip(last, ends[-1], strict=True)):
        assert topic.read(part, start, end).equals(expected[part].slice(start))
    with pytest.raises(TopicException, match="The description of topic 't' cannot be read"):
        topic.read(0, 0, 1)


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("first", [0, 9])
def test_who_opened_a_topic_long_ago_reads_it_by_the_lists_of_now(tmp_path: Path, first: int) -> None:
    """As a client that takes a task over which is far behind: those that its version names are gone."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    for number in range(1, 10):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    topic = Topic.open(tmp_path, "t")
    assert topic.read(0, first, 10).column("n").to_pylist()[-1] == 9
    fresh = Topic(tmp_path, topic.now)
    for number in range(10, 40):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    assert not any((tmp_path / found.name).exists() for found in topic.now.lists)
    for reader in (topic, fresh):
        assert reader.read(0, 0, 10).column("n").to_pylist() == list(range(10))
        assert reader.read(0, 0, 40).column("n").to_pylist() == list(range(40))


@pytest.mark.usefixtures("_short")
def test_who_sleeps_while_others_append_comes_after_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking and writing; the lists that it has seen are gone then."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    for number in range(1, 15):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    put, others = put_version, list(range(15, 40))

    def sleeps(storage: Storage, version: versions.TopicVersion) -> versions.TopicVersion:
        quicker, others[:] = others[:], []
        for number in quicker:
            append_topic(tmp_path, "t", ROWS.slice(number, 1))
        return put(storage, version)

    monkeypatch.setattr(topic_changes, "put_version", sleeps)
    append_topic(tmp_path, "t", ROWS.slice(0, 1))
    assert Topic.open(tmp_path, "t").read(0, 0, 41).column("n").to_pylist() == [*range(40), 0]


@pytest.mark.usefixtures("_short")
def test_many_who_append_at_the_same_time_lose_nothing_when_lists_are_made(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 0), partitions=2, key=["key"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_topic(tmp_path, "t", ROWS.slice(number % 40, 1)), range(120)))
    assert _rows(Topic.open(tmp_path, "t")) == sorted(number % 40 for number in range(120))


@pytest.mark.usefixtures("_short")
def test_whoever_is_slow_to_see_which_lists_are_needed_deletes_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many others were quicker that all versions it had seen were gone: no version named the lists, and rows were lost."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    for number in range(1, 30):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    read, others = open_document, list(range(versions.KEPT_VERSIONS + 1))

    def sleeps(storage: Storage, name: str, kind: Any) -> Any:
        quicker, others[:] = others[:], []
        for number in quicker:
            append_topic(tmp_path, "t", ROWS.slice(number, 1))
        return read(storage, name, kind)

    monkeypatch.setattr(topic_changes, "open_document", sleeps)
    for number in range(30, 40):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    assert not others
    assert _rows(Topic.open(tmp_path, "t")) == sorted([*range(40), *range(versions.KEPT_VERSIONS + 1)])


def test_who_looks_for_growth_is_not_misled_by_a_writer_that_finds_an_old_number_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there for a moment, or stays if the writer dies: rows that were there were said to be missing."""
    monkeypatch.setattr(topics, "_LOOK_INSIDE_S", 1_000)
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    topic = append_topic(tmp_path, "t", ROWS.slice(1, 1))
    for number in range(2, versions.KEPT_VERSIONS + 10):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    put_version(LocalStorage(tmp_path), topic.now)
    topic.refresh()
    assert topic.end_offsets() == [versions.KEPT_VERSIONS + 10]


@pytest.mark.usefixtures("_short")
def test_whoever_wonders_slowly_whether_its_rows_count_is_told_nothing_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists that it wanted to look into were gone: it was told that they are missing, though its rows counted."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    others, opened = iter(range(1, 200)), Topic.open.__func__  # type: ignore[attr-defined]

    def others_append(count: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Topic, "open", classmethod(opened))
            patch.setattr(topic_changes, "put_version", put_version)
            for _ in range(count):
                append_topic(tmp_path, "t", ROWS.slice(next(others) % 40, 1))

    def sleep_after(storage: Storage, version: versions.TopicVersion) -> versions.TopicVersion:
        monkeypatch.setattr(topic_changes, "put_version", put_version)
        version = put_version(storage, version)
        others_append(2 * versions.KEPT_VERSIONS)
        monkeypatch.setattr(Topic, "open", classmethod(open_and_sleep))
        return version

    def open_and_sleep(cls: type[Topic], *given: Any) -> Topic:
        topic: Topic = opened(cls, *given)
        monkeypatch.setattr(Topic, "open", classmethod(opened))
        others_append(2 * versions.KEPT_VERSIONS)
        return topic

    monkeypatch.setattr(topic_changes, "put_version", sleep_after)
    append_topic(tmp_path, "t", ROWS.slice(0, 1))
    count = 4 * versions.KEPT_VERSIONS
    assert _rows(Topic.open(tmp_path, "t")) == sorted([0, 0, *(number % 40 for number in range(1, count + 1))])


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("point", range(4))
def test_a_writer_that_dies_at_any_write_leaves_the_topic_as_it_was_or_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    """When a list is due: before the list, before the version, before and while old lists and versions are deleted."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    for number in range(1, 27):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    begun = iter(range(100))
    with monkeypatch.context() as patch:
        for name in ("put", "put_if_absent", "delete"):
            really = getattr(LocalStorage, name)

            def die(self: LocalStorage, first: object, *rest: object, really: object = really) -> None:
                if next(begun) >= point:
                    raise KeyboardInterrupt
                really(self, first, *rest)  # type: ignore[operator]

            patch.setattr(LocalStorage, name, die)
        grown = 27
        for number in range(27, 31):
            try:
                append_topic(tmp_path, "t", ROWS.slice(number, 1))
            except KeyboardInterrupt:
                break
    found = _rows(Topic.open(tmp_path, "t"))
    assert found == list(range(len(found)))
    assert grown <= len(found) < 31
    for number in range(len(found), 40):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    assert _rows(Topic.open(tmp_path, "t")) == list(range(40))


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("damage", ["flipped", "missing", "exchanged"])
def test_a_damaged_list_is_named(tmp_path: Path, damage: str) -> None:
    for name in ("t", "other"):
        write_topic(tmp_path, name, ROWS.slice(0, 1), partitions=2, key=["key"])
        for number in range(1, 12):
            append_topic(tmp_path, name, ROWS.slice(number, 1))
    path, other = (tmp_path / Topic.open(tmp_path, name).now.lists[0].name for name in ("t", "other"))
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(other.read_bytes() if damage == "exchanged" else whole[:90] + b"X" + whole[91:])
    with pytest.raises(TopicException, match="The description of topic 't' cannot be read"):
        _rows(Topic.open(tmp_path, "t"))
    path.write_bytes(whole)
    assert _rows(Topic.open(tmp_path, "t")) == list(range(12))


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
    assert _rows(before) == list(range(40))
    assert before.spec.schema == ROWS.schema, "who reads it does not see it"
    assert before.read(0, 0, before.end_offset(0)).schema == ROWS.schema
    assert append_topic(tmp_path, "t", WIDE.slice(0, 1), add_columns=True).spec.schema == WIDE.schema


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


def test_who_looks_slowly_while_others_append_finds_the_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All versions that a slow look at the folder has seen are gone by then."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=2, key=["key"])
    really, looks = LocalStorage.list, iter(range(100))

    def list_slowly(self: LocalStorage, folder: str = "") -> list[str]:
        found = really(self, folder)
        if folder == "t/versions" and next(looks) < 2:
            return [] if next(looks) else [f"{name}/" for name in found]
        return found

    monkeypatch.setattr(LocalStorage, "list", list_slowly)
    assert Topic.open(tmp_path, "t").version == 0
