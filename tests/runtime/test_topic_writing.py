"""Topics that appear and grow: whole or not at all, whoever writes at the same time, on a disk and in an object store."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
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
    read_output,
    write_topic,
)
from task_assignor.runtime.storage import LocalStorage, Storage
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.topics import changes as topic_changes
from task_assignor.runtime.topics import writing
from task_assignor.runtime.topics.changes import put_version
from task_assignor.runtime.topics.versions import TopicVersion, versions_of
from tests.budget import examples
from tests.runtime.storage.faulty import FaultyStorage, PowerFailure
from tests.runtime.support import (
    QUICK,
    application,
    join_topology,
    plain_join,
    stream,
    write_streams,
)

ROWS = pa.table({"key": [f"k{number % 7}" for number in range(40)], "n": list(range(40))})
SPEC = TopicSpec("t", 2, ROWS.schema, ("key",))


def _rows(topic: Log) -> list[int]:
    """The numbers in all rows, sorted."""
    return sorted(
        number
        for partition, end in enumerate(topic.end_offsets())
        for number in topic.fetch(partition, 0, end).rows.column("n").to_pylist()
    )


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where topics are: in a folder, in a bucket."""
    if request.param == "disk":
        return str(tmp_path / "topics")
    make: Callable[[], str] = request.getfixturevalue("s3_folder")
    return make()


def test_what_is_appended_follows_what_was_there(root: str) -> None:
    first = write_topic(root, "t", ROWS.slice(0, 10), partitions=2, key=["key"])
    before = Topic.open(root, "t")
    grown = append_topic(root, "t", [ROWS.slice(10, 20), ROWS.slice(30)], segment_rows=4)
    assert (grown.topic_id, grown.version) == (first.topic_id, 1)
    owner = partitions_of(ROWS, ["key"], 2)
    for partition in range(2):
        expected = ROWS.filter(pa.array(owner == partition))
        for topic in (grown, Topic.open(root, "t"), before):
            assert expected.equals(topic.read(partition, 0, expected.num_rows)), "also who has it open reads on"
    assert list_topics(root) == ["t"]


@given(st.lists(st.integers(0, 15), min_size=1, max_size=30), st.integers(1, 3))
@hypothesis_settings(max_examples=examples(15))
def test_a_topic_is_the_same_in_however_many_pieces_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], partitions: int
) -> None:
    root = tmp_path_factory.mktemp("topics")
    rows = stream(sum(sizes), 9, seed=1)
    whole = write_topic(root, "whole", rows, partitions=partitions, key=["key"])
    topic, start = write_topic(root, "t", rows.slice(0, sizes[0]), partitions=partitions, key=["key"]), sizes[0]
    for size in sizes[1:]:
        topic, start = append_topic(root, "t", rows.slice(start, size)), start + size
    assert whole.end_offsets() == topic.end_offsets()
    for partition, end in enumerate(topic.end_offsets()):
        assert whole.read(partition, 0, end).equals(topic.read(partition, 0, end))
    # However often it grows, the folder does not.
    assert len(versions_of(LocalStorage(root), "t")) <= 21


def test_those_who_append_at_the_same_time_come_after_each_other(root: str) -> None:
    write_topic(root, "t", ROWS.slice(0, 0), partitions=2, key=["key"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_topic(root, "t", ROWS.slice(number * 5, 5)), range(8)))
    topic = Topic.open(root, "t")
    assert (_rows(topic), topic.version) == (list(range(40)), 8)


def _append(root: str, numbers: list[int]) -> None:
    for number in numbers:
        append_topic(root, "t", ROWS.slice(number, 1))


def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """More often than versions are kept: their numbers become free while others still think of them."""
    write_topic(tmp_path, "t", ROWS.slice(0, 0), partitions=2, key=["key"])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(str(tmp_path), list(range(first, 24, 2)))) for first in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    topic = Topic.open(tmp_path, "t")
    assert (_rows(topic), topic.version) == (list(range(24)), 24)


def test_a_writer_that_slept_while_all_versions_it_knew_were_removed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=2, key=["key"])
    slow = TopicBuilder.extend(tmp_path, "t")
    segments = slow.write_all([(0, 0, ROWS.slice(39, 1))])
    really = put_version

    def sleep_first(storage: Storage, version: TopicVersion) -> TopicVersion:
        monkeypatch.setattr(topic_changes, "put_version", really)
        for number in range(1, 39):
            append_topic(tmp_path, "t", ROWS.slice(number, 1))
        assert version.number not in versions_of(LocalStorage(tmp_path), "t")
        return really(storage, version)

    monkeypatch.setattr(topic_changes, "put_version", sleep_first)
    assert _rows(slow.commit(segments)) == list(range(40))
    assert _rows(Topic.open(tmp_path, "t")) == list(range(40))
    assert slow.commit(segments).version == 39, "committing again changes nothing"


def test_of_those_who_create_a_topic_one_wins(root: str) -> None:
    builders = [TopicBuilder.create(root, SPEC) for _ in range(4)]
    written = [[builder.write(0, 0, ROWS.slice(10 * n, 10))] for n, builder in enumerate(builders)]

    def commit(number: int) -> Topic | None:
        # A copy, as in another process.
        builder: TopicBuilder = pickle.loads(pickle.dumps(builders[number]))
        try:
            return builder.commit(written[number])
        except TopicException as error:
            assert "There already is a topic 't'" in str(error)  # noqa: PT017 - one of them is not told
            builder.abort()
            return None

    with ThreadPoolExecutor(4) as pool:
        (won,) = [topic for topic in pool.map(commit, range(4)) if topic is not None]
    assert _rows(Topic.open(root, "t", won.topic_id)) == _rows(won)
    assert won.end_offsets() == [10, 0]
    assert len(list(builders[0].storage.list_below("t"))) == 3, "nothing is left of the others"
    with pytest.raises(TopicException, match=r"There already is a topic 't'.*Maybe append to it"):
        TopicBuilder.create(root, SPEC)


def test_who_is_late_by_the_time_of_a_look_at_the_files_is_told_of_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose files have gone meanwhile, since another one has created the topic: not that they are missing."""
    late, quick = (TopicBuilder.create(str(tmp_path), SPEC) for _ in range(2))
    mine, theirs = ([builder.write(0, 0, ROWS.slice(0, 10))] for builder in (late, quick))
    check = Topic.check

    def check_late(topic: Topic, starts: Sequence[int] | None = None) -> None:
        monkeypatch.setattr(Topic, "check", check)
        quick.commit(theirs)
        check(topic, starts)

    monkeypatch.setattr(Topic, "check", check_late)
    with pytest.raises(TopicException, match="There already is a topic 't'"):
        late.commit(mine)


def test_who_creates_a_topic_that_has_grown_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much: its first version stays."""
    write_topic(tmp_path / "other", "t", ROWS.slice(0, 0), partitions=2, key=["key"])
    for number in range(30):
        append_topic(tmp_path / "other", "t", ROWS.slice(number, 1))
    grown = Topic.open(tmp_path / "other", "t")
    before = sorted(LocalStorage(tmp_path / "other").list_below("t"))
    # It looked before.
    builder = TopicBuilder(str(tmp_path / "other"), SPEC)
    looked = iter([True])
    really = TopicBuilder._check_is_new
    monkeypatch.setattr(TopicBuilder, "_check_is_new", lambda self: next(looked, None) or really(self))
    with pytest.raises(TopicException, match="There already is a topic"):
        builder.commit([])
    assert _rows(Topic.open(tmp_path / "other", "t", grown.topic_id)) == list(range(30))
    assert sorted(LocalStorage(tmp_path / "other").list_below("t")) == before


@pytest.mark.parametrize("seed", range(25))
def test_a_power_failure_leaves_the_topic_as_it_was_or_grown(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it comes; and whoever appends next finds nothing strange."""
    write_topic(tmp_path, "t", ROWS.slice(0, 10), partitions=2, key=["key"])
    faulty = FaultyStorage(LocalStorage(tmp_path), seed)
    faulty.dark_after = seed % 3
    monkeypatch.setattr(writing, "topics_storage", lambda root: faulty)
    went_dark = False
    try:
        append_topic(tmp_path, "t", [ROWS.slice(10, 5), ROWS.slice(15, 5)])
    except PowerFailure:
        went_dark = True
    monkeypatch.undo()
    faulty.power_failure()
    found = _rows(Topic.open(tmp_path, "t"))
    assert found in (list(range(10)), list(range(20)))
    assert went_dark or found == list(range(20))
    append_topic(tmp_path, "t", ROWS.slice(20))
    assert _rows(Topic.open(tmp_path, "t")) == [*found, *range(20, 40)]


def test_files_stay_where_nobody_knows_whether_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is there, but the disk said no when its name was to be made durable."""
    write_topic(tmp_path, "t", ROWS.slice(0, 10), partitions=2, key=["key"])
    really = LocalStorage.put_if_absent

    def fail(storage: LocalStorage, name: str, data: bytes) -> None:
        really(storage, name, data)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalStorage, "put_if_absent", fail)
    with pytest.raises(TopicException, match="Input/output error"):
        append_topic(tmp_path, "t", ROWS.slice(10))
    monkeypatch.undo()
    assert _rows(Topic.open(tmp_path, "t")) == list(range(40))


def test_what_is_not_of_topics_in_the_folder_of_a_new_one_stays(tmp_path: Path) -> None:
    """The files that its rows come from, say, or a run; all of it went, without a word."""
    (tmp_path / "t" / "my notes").mkdir(parents=True)
    mine = [tmp_path / "t" / name for name in ("part-0.parquet", "my notes/1 (a).txt", "0-1.arrow", "application.json")]
    for path in mine:
        path.write_text("mine")
    left = TopicBuilder.create(tmp_path, SPEC)
    left.write(0, 0, ROWS)
    left.storage.put(f"{left.scratch}/x", b"1")
    write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    assert _rows(Topic.open(tmp_path, "t")) == list(range(40))
    assert [path.read_text() for path in mine] == ["mine"] * 4
    assert not [name for name in left.storage.list_below("t") if left.writer in name]


def test_a_full_disk_leaves_the_topic_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_topic(tmp_path, "t", ROWS.slice(0, 10), partitions=2, key=["key"])
    before = sorted(LocalStorage(tmp_path).list_below())
    faulty = FaultyStorage(LocalStorage(tmp_path), 1, capacity=1500)
    monkeypatch.setattr(writing, "topics_storage", lambda root: faulty)
    with pytest.raises(TopicException, match=r"'t' cannot be written .*No space left"):
        append_topic(tmp_path, "t", [ROWS.slice(10, 5), ROWS.slice(15, 25)])
    monkeypatch.undo()
    assert sorted(LocalStorage(tmp_path).list_below()) == before


def test_a_topic_whose_description_is_lost_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    shutil.rmtree(tmp_path / "t" / "versions")
    with pytest.raises(
        TopicException, match=r"no topic 't' in .*none. Files of it are there, but no description: .*t/versions"
    ):
        Topic.open(tmp_path, "t")
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TopicException, match=r"no topic 't' in .*: none\.$"):
        Topic.open(tmp_path, "t")


def test_bytes_that_are_no_text_come_into_no_topic(tmp_path: Path) -> None:
    """Whoever read the topic failed, for as long as it was there."""
    no_text = ROWS.slice(0, 2).append_column("text", pa.array([b"a", b"\xff"]).view(pa.string()))
    with pytest.raises(
        TopicException, match=r"Of the rows for topic 't' the column 'text' holds what is no string: .*UTF8"
    ):
        write_topic(tmp_path, "t", no_text, partitions=2, key=["key"])
    assert not list(LocalStorage(tmp_path).list_below())


def test_what_does_not_fit_is_not_appended(root: str) -> None:
    with pytest.raises(TopicException, match="There is no topic 't'"):
        append_topic(root, "t", ROWS)
    write_topic(root, "t", ROWS, partitions=2, key=["key"])
    with pytest.raises(TopicException, match=r"have no columns \['n'\]"):
        append_topic(root, "t", [ROWS, ROWS.drop_columns(["n"])])
    with pytest.raises(TopicException, match=r"have columns \['more'\], which it does not have.*add_columns=True"):
        append_topic(root, "t", ROWS.append_column("more", ROWS.column("n")))
    with pytest.raises(TopicException, match="cannot be sorted by timestamp"):
        append_topic(root, "t", ROWS, sort_by_timestamp=True)
    assert _rows(Topic.open(root, "t")) == list(range(40))
    assert append_topic(root, "t", ROWS.slice(0, 0)).version == 0, "nothing to append"


def test_a_column_that_is_never_null_gets_no_nulls(root: str) -> None:
    """Engines that read it go by that: it could not be read, or nulls were taken for values."""
    strict = pa.schema([("key", pa.int64()), pa.field("value", pa.int64(), nullable=False)])
    write_topic(root, "t", pa.table({"key": [1], "value": [1]}, schema=strict), partitions=1, key=["key"])
    told = "The column 'value' for topic t is declared as never null, but has nulls"
    with pytest.raises(TopicException, match=told):
        append_topic(root, "t", pa.table({"key": [2], "value": pa.nulls(1, pa.int64())}))
    assert append_topic(root, "t", pa.table({"key": [2], "value": [2]})).end_offsets() == [2]


def test_a_topic_that_was_written_anew_does_not_take_rows_meant_for_the_old_one(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    builder = TopicBuilder.extend(tmp_path, "t")
    segment = builder.write(0, 0, ROWS)
    storage = LocalStorage(tmp_path)
    storage.delete(list(storage.list_below("t/versions")))
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=2, key=["key"])
    with pytest.raises((TopicException, CorruptLogException)):
        builder.commit([segment])
    assert _rows(Topic.open(tmp_path, "t")) == [0]


def test_a_file_that_the_committing_process_does_not_see_is_told(tmp_path: Path) -> None:
    """An executor wrote it into another folder of that name."""
    builder = TopicBuilder.create(tmp_path, SPEC)
    segment = builder.write(0, 0, ROWS)
    builder.storage.delete([segment.name("t")])
    with pytest.raises(TopicException, match=r"topic file of t, partition 0, offset 0 cannot be read: .*it is missing"):
        builder.commit([segment])
    assert list_topics(tmp_path) == []


def test_a_run_goes_on_with_rows_that_were_appended(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=400, keys=10)
    started = application(tmp_path, join_topology(), clients=1, options=QUICK)
    started.run()
    more = stream(200, 10, seed=3, span_ms=600_000)
    later = more.set_column(1, "at", pa.array([at + 600_000 for at in more.column("at").to_pylist()]))
    first, second = later.slice(0, 120), later.slice(120)
    # The same object sees it, and a new one. What one source gets alone moves the time of both.
    for rows in (first, second):
        append_topic(tmp_path / "topics", "left", rows)
        append_topic(tmp_path / "topics", "right", rows)
        result = started.run()
        assert result.rows_in == 2 * rows.num_rows
        started = application(tmp_path, join_topology(), clients=1, options=QUICK)
    assert read_output(tmp_path / "run", "joined").num_rows == (
        plain_join(pa.concat_tables([left, later]), pa.concat_tables([right, later])).num_rows
    )


def test_a_topic_is_a_log(tmp_path: Path) -> None:
    log: Log = write_topic(tmp_path, "t", ROWS, partitions=2, key=["key"])
    grown: Any = append_topic(tmp_path, "t", ROWS.slice(0, 5))
    assert log.start_offsets() == [0, 0]
    assert sum(log.end_offsets()) == 40
    log.refresh()
    assert log.end_offsets() == grown.end_offsets()


@pytest.mark.parametrize("key", ["at", "k"])
def test_times_that_are_no_milliseconds_in_64_bits_are_refused(tmp_path: Path, key: str) -> None:
    rows = pa.table({"at": pa.array([2**60], pa.timestamp("s")), "k": [1]})
    with pytest.raises(
        TopicException, match="A time is 1152921504606846976 s from 1970, which are more milliseconds than"
    ):
        write_topic(tmp_path, "t", rows, partitions=1, key=[key], timestamp="at", sort_by_timestamp=True)
    assert list_topics(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1.0, 1e39]), pa.float32()),
        (pa.array([[1e39]]), pa.list_(pa.float32())),
        (pa.array([2]), pa.bool_()),
        (pa.array([1.25]), pa.decimal128(10, 1)),
        (pa.array([1], pa.timestamp("us")), pa.date32()),
        (pa.array([86_400_000_001], pa.timestamp("us")), pa.time64("us")),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("us", "Europe/Berlin")),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([{"n": 1, "more": 2}]), pa.struct([("n", pa.int64())])),
    ],
)
def test_rows_that_would_lose_something_are_refused(tmp_path: Path, column: pa.Array, kind: pa.DataType) -> None:
    """Arrow's own cast takes them."""
    topic = write_topic(tmp_path, "t", pa.table({"k": [1], "v": pa.nulls(1, kind)}), partitions=1, key=["k"])
    with pytest.raises(TopicException, match=r"The column 'v' for topic t has type .* and cannot be cast to"):
        append_topic(tmp_path, "t", pa.table({"k": [1] * len(column), "v": column}))
    assert Topic.open(tmp_path, "t").end_offsets() == topic.end_offsets()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.1, float("nan"), float("inf")]), pa.float32()),
        (pa.array([0, 1]), pa.bool_()),
        (pa.array([1.5]), pa.decimal128(10, 1)),
        (pa.array([0], pa.timestamp("us")), pa.date32()),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("ns", "Europe/Berlin")),
        pytest.param(
            pa.array([{"n": 1.0}]),
            pa.struct([("n", pa.int8()), ("more", pa.int64())]),
            marks=pytest.mark.skipif(
                int(pa.__version__.split(".")[0]) < 20, reason="Arrow 18 casts no struct to one with more fields"
            ),
        ),
        (pa.array(["1", None]).dictionary_encode(), pa.int8()),
        (pa.nulls(2), pa.timestamp("us", "UTC")),
    ],
)
def test_rows_that_lose_nothing_but_digits_are_cast(tmp_path: Path, column: pa.Array, kind: pa.DataType) -> None:
    write_topic(tmp_path, "t", pa.table({"k": [1], "v": pa.nulls(1, kind)}), partitions=1, key=["k"])
    topic = append_topic(tmp_path, "t", pa.table({"k": [1] * len(column), "v": column}))
    assert str(topic.read(0, 1, 1 + len(column)).column("v").combine_chunks()) == str(column.cast(kind))


@pytest.mark.parametrize(
    ("unit", "times", "warned"),
    [
        ("s", [1_700_000_000, None, 1_700_003_600], True),
        ("us", [1_700_000_000_000_000], True),
        ("ns", [1_700_000_000_000_000_000], True),
        ("ms", [1_700_000_000_000], False),
        ("s", [0, 1_700_000_000], False),
        ("s", [None], False),
        ("s", [], False),
    ],
)
def test_times_that_look_like_another_unit_are_told(
    unit: str, times: list[int | None], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seconds were taken for milliseconds of January 1970 without a word."""
    rows = pa.table({"key": pa.array(["a"] * len(times), pa.string()), "at": pa.array(times, pa.int64())})
    write_topic(tmp_path, "flights", rows, partitions=1, key=["key"], timestamp="at")
    write_topic(
        tmp_path, "known", rows.set_column(1, "at", rows["at"].cast(pa.timestamp(unit))), partitions=1, key=["key"]
    )
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == warned
    assert all("topic 'flights'" in text and f"pa.timestamp('{unit}')" in text for text in told)
