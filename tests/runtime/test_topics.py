"""The topic log: what is written is read, by partition and offset; damage is named."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    CorruptLogException,
    Topic,
    TopicBuilder,
    TopicException,
    TopicSpec,
    append_topic,
    list_topics,
    partitions_of,
    write_topic,
)
from task_assignor.runtime.storage import as_arrow
from tests.budget import examples
from tests.runtime.support import change_description, description

ROWS = pa.table({"key": [f"k{number % 7}" for number in range(40)], "at": list(range(40, 0, -1)), "n": list(range(40))})


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 9),
    st.data(),
)
@settings(max_examples=examples(40))
def test_any_range_of_offsets_gives_its_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], partitions: int, segment_rows: int, data: st.DataObject
) -> None:
    """Whatever the tables and the files were: rows of a partition keep their order, offsets have no gaps."""
    tables = [ROWS.slice(number, size) for number, size in enumerate(sizes)]
    root = tmp_path_factory.mktemp("topics")
    topic = write_topic(root, "t", tables, partitions=partitions, key=["key"], segment_rows=segment_rows)
    whole = pa.concat_tables(tables)
    owner = partitions_of(whole, ["key"], partitions)
    for partition in range(partitions):
        expected = whole.filter(pa.array(owner == partition))
        assert expected.num_rows == topic.end_offset(partition)
        start = data.draw(st.integers(0, expected.num_rows))
        end = data.draw(st.integers(start, expected.num_rows))
        assert expected.slice(start, end - start).equals(Topic.open(root, "t").read(partition, start, end))


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "t", ROWS, partitions=1, key=["key"])
    assert topic.read(0, 3, 5, ["n", "key"]).to_pydict() == {"n": [3, 4], "key": ["k3", "k4"]}
    assert topic.read(0, 3, 3, ["n"]).schema == pa.schema([("n", pa.int64())])
    append_topic(tmp_path, "t", ROWS)
    assert topic.read(0, 3, 5, []).shape == (2, 0), "of one file"
    assert topic.read(0, 3, ROWS.num_rows + 5, []).shape == (ROWS.num_rows + 2, 0), "of two"


def test_columns_and_offsets_that_cannot_be_chosen_are_told(tmp_path: Path) -> None:
    """It was said that the topic has no key, and of an offset below 0 that its rows were deleted."""
    topic = write_topic(tmp_path, "t", ROWS, partitions=1, key=["key"], timestamp="at")
    for columns, lacking in (("n", "['key', 'at']"), (["at"], "['key']"), ([], "['key', 'at']")):
        with pytest.raises(
            TopicException, match=f"must have its key and its timestamp among them: {re.escape(lacking)} are not"
        ):
            Topic.open(tmp_path, "t", columns=columns)
    assert Topic.open(tmp_path, "t", columns=["at", "key"]).spec.schema.names == ["key", "at"]
    with pytest.raises(TopicException, match=r"The start \(-1\) of rows of topic t must be at least 0"):
        topic.read(0, -1, 1)


def test_a_table_can_be_sorted_by_time_before_it_is_written(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"], timestamp="at", sort_by_timestamp=True)
    for partition in range(2):
        times = topic.read(partition, 0, topic.end_offset(partition)).column("at").to_pylist()
        assert sorted(times) == times


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ns")], ids=str)
def test_times_within_a_millisecond_are_sorted_too(tmp_path: Path, kind: pa.DataType) -> None:
    """They stayed as they came, so an older price of a key was its last one; and beside null large numbers were floats."""
    given = [None, 2**60 + 3, 5, 2**60 + 1, 2**60 + 2, None]
    rows = pa.table({"key": ["k"] * 6, "at": pa.array(given, pa.int64()).cast(kind), "n": list(range(6))})
    topic = write_topic(tmp_path, "t", rows, partitions=1, key=["key"], timestamp="at", sort_by_timestamp=True)
    assert topic.read(0, 0, 6).column("n").to_pylist() == [2, 3, 4, 1, 0, 5]


def test_the_description_comes_back_as_it_was(tmp_path: Path) -> None:
    kinds = pa.schema([("k", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("x", pa.list_(pa.float32()))])
    spec = TopicSpec("t", 2, kinds, ("k",), "at", (frozenset({"r1", "r2"}), None))
    TopicBuilder.create(tmp_path, spec).commit([])
    assert spec == Topic.open(tmp_path, "t").spec
    assert list_topics(tmp_path) == ["t"]


def test_a_topic_is_visible_only_when_it_is_whole(tmp_path: Path) -> None:
    builder = TopicBuilder.create(tmp_path, TopicSpec("t", 1, ROWS.schema, ("key",)))
    first = builder.write(0, 0, ROWS.slice(0, 10))
    assert list_topics(tmp_path) == []
    second = builder.write(0, first.end, ROWS.slice(10))
    topic = builder.commit([second, first])
    assert ROWS.equals(topic.read(0, 0, 40))
    with pytest.raises(TopicException, match="already is a topic 't'"):
        TopicBuilder.create(tmp_path, topic.spec)


def test_of_files_with_the_same_rows_the_committed_one_counts(tmp_path: Path) -> None:
    """A Spark task that is tried again writes its rows again; the first try may even come last."""
    builder = TopicBuilder.create(tmp_path, TopicSpec("t", 1, ROWS.schema, ("key",)))
    builder.write(0, 0, ROWS.slice(0, 10))
    topic = builder.commit([builder.write(0, 0, ROWS)])
    builder.write(0, 0, ROWS.slice(0, 5))
    assert ROWS.equals(topic.read(0, 0, 40))
    assert Topic.open(tmp_path, "t").end_offset(0) == 40
    assert len(list((tmp_path / "t" / "0").iterdir())) == 2, "the first one was removed"


def test_files_that_do_not_follow_each_other_are_not_committed(tmp_path: Path) -> None:
    builder = TopicBuilder.create(tmp_path, TopicSpec("t", 1, ROWS.schema, ("key",)))
    segments = [builder.write(0, 0, ROWS.slice(0, 10)), builder.write(0, 11, ROWS.slice(11))]
    with pytest.raises(
        CorruptLogException, match=r"offsets are missing .* starts at offset 11, but should start at 10"
    ):
        builder.commit(segments)
    assert list_topics(tmp_path) == []


def _damaged(tmp_path: Path) -> tuple[Topic, Path]:
    write_topic(tmp_path, "t", ROWS, partitions=1, key=["key"], segment_rows=10)
    topic = Topic.open(tmp_path, "t")
    return topic, tmp_path / topic.segments(0)[2].name("t")


@pytest.mark.parametrize("damage", ["cut", "noise", "text", "empty"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    topic, path = _damaged(tmp_path)
    whole = path.read_bytes()
    at = whole.index(b"k6k0")
    path.write_bytes(
        {
            "cut": whole[:-30],
            "noise": whole[:at] + b"\xff\xfe\xff\xfe" + whole[at + 4 :],
            "text": b"not arrow at all",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(CorruptLogException) as caught:
        topic.read(0, 15, 25)
    error = caught.value
    assert ("t", 0, 20, str(path)) == (error.topic, error.partition, error.offset, error.path)
    for part in ("t, partition 0, offset 20", str(path)):
        assert part in str(error)
    assert topic.read(0, 10, 20).num_rows == 10, "the other files can be read"


def test_missing_rows_are_named(tmp_path: Path) -> None:
    topic, path = _damaged(tmp_path)
    with pytest.raises(CorruptLogException, match=r"offsets 35 to 44 were asked for, but .* hold only 5 of these 10"):
        topic.read(0, 35, 45)
    path.unlink()
    for look in (lambda: topic.read(0, 15, 25), topic.check, lambda: topic.check([29])):
        with pytest.raises(
            CorruptLogException, match=r"t, partition 0, offset 20 cannot be read: .*it is missing.*write"
        ):
            look()
    topic.check([30])  # nobody asks for it any more
    assert topic.end_offset(0) == 40


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    topic, path = _damaged(tmp_path)
    data, seal = as_arrow(ROWS.drop_columns(["n"]).slice(0, 10))
    path.write_bytes(data)
    segment = attrs.evolve(topic.segments(0)[2], seal=seal)
    topic = Topic(tmp_path, attrs.evolve(topic.now, recent=[[segment]]))
    with pytest.raises(CorruptLogException, match="offset 20 has other columns"):
        topic.read(0, 20, 30)


def test_a_missing_topic_is_told_with_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_topic(tmp_path, "flights", ROWS, partitions=1, key=["key"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        TopicException,
        match=f"no topic 'flight' in {re.escape(str(tmp_path))}/topics; the topics there: none, and no such folder",
    ):
        Topic.open("topics", "flight")
    with pytest.raises(TopicException, match=r"no topic 'flight' in .*; the topics there: flights"):
        Topic.open(tmp_path, "flight")


def test_a_topic_that_others_have_seen_is_said_to_be_in_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    """As on an executor whose folder of that name is another one."""
    with pytest.raises(
        TopicException, match=r"There is no topic 'flights' .* It was there before.* all clients must share"
    ):
        Topic.open(tmp_path, "flights", "0b2fd9d2-5b8e-4d6b-9a3c-0c7a8f1f7c11")


def test_a_broken_description_is_named(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=1, key=["key"])
    path = description(tmp_path, "t")
    whole = path.read_bytes()
    for change in ({"formatVersion": 1}, {"partitions": 0}, {"id": "x"}, {"files": 7}, {"version": 1}):
        change_description(path, **change)
        with pytest.raises(TopicException, match=r"topic 't'|topic t"):
            Topic.open(tmp_path, "t")
        path.write_bytes(whole)
    path.write_bytes(whole.replace(b'"partitions":1', b'"partitions":2'))
    with pytest.raises(TopicException, match=r"its checksum is wrong"):
        Topic.open(tmp_path, "t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a/b"}, "The topic name"),
        ({"partitions": 0}, r"partitions \(0\) of topic t must be an int of at least 1"),
        ({"partitions": 2**31}, "must be an int of at least 1, and at most 10000000"),
        ({"key": ()}, "needs at least one key column"),
        ({"key": ("key", "n", "key")}, r"The key of topic t names a column twice: \['key', 'n', 'key'\]"),
        ({"key": ("x",)}, r"no column 'x'. Its columns are \['key', 'at', 'n'\]"),
        ({"timestamp": "key"}, r"must be a timestamp or a signed integer \(int64, as a rule\) of milliseconds"),
        ({"racks": [{"a"}]}, "2 partitions, but racks for 1"),
        ({"racks": "eu-1"}, "2 partitions, but racks for 1"),
        ({"racks": [{"a"}, {7}]}, "A rack of topic t must be a text, not 7"),
        ({"racks": [7, None]}, "A rack of topic t must be a text, not 7"),
    ],
)
def test_a_wrong_description_is_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"name": "t", "partitions": 2, "schema": ROWS.schema, "key": ("key",), **change}
    with pytest.raises(TopicException, match=message):
        TopicSpec(**given)  # type: ignore[arg-type]


def test_one_rack_may_be_given_as_a_text() -> None:
    """Each of its letters was a rack, and nobody was told."""
    spec = TopicSpec("t", 3, ROWS.schema, ("key",), racks=["eu-1", None, ("eu-1", "eu-2")])
    assert spec.racks == (frozenset({"eu-1"}), None, frozenset({"eu-1", "eu-2"}))


def test_rows_that_do_not_fit_are_refused_and_nothing_stays(tmp_path: Path) -> None:
    text = ROWS.set_column(2, "n", pa.array(["x"] * 40))
    with pytest.raises(TopicException, match="column 'n' for topic t has type string and cannot be cast to int64"):
        write_topic(tmp_path, "t", [ROWS, text], partitions=1, key=["key"])
    with pytest.raises(TopicException, match=r"have no columns \['n'\]"):
        write_topic(tmp_path, "t", [ROWS, ROWS.drop_columns(["n"])], partitions=1, key=["key"])
    assert list(tmp_path.iterdir()) == []
