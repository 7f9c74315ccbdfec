"""Topics that are appended to thousands of times."""

from __future__ import annotations

import errno
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    CorruptLogException,
    Topic,
    TopicException,
    append_topic,
    read_output,
    write_topic,
)
from task_assignor.runtime.storage import LocalStorage, Storage, open_document
from task_assignor.runtime.topics import changes as topic_changes
from task_assignor.runtime.topics import topic as topics
from task_assignor.runtime.topics import versions
from task_assignor.runtime.topics.changes import put_version
from task_assignor.runtime.topics.names import lists_folder
from task_assignor.runtime.topics.versions import versions_of
from tests.runtime.support import application, join_topology, stream

ROWS = pa.table({"key": [f"k{number % 7}" for number in range(40)], "n": list(range(40))})
WIDE = ROWS.append_column("more", pa.array([f"m{number}" for number in range(40)]))


def numbers_of(topic: Topic) -> list[int]:
    """Those of all rows."""
    return sorted(
        number
        for part, end in enumerate(topic.end_offsets())
        for number in topic.read(part, 0, end).column("n").to_pylist()
    )


# Seen later on other hosts.


def test_rows_that_somebody_has_seen_are_looked_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a host keeps lists of names for some time, its clients said that rows were missing, and the run ended."""
    reader = write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    list_now, before = LocalStorage.list, LocalStorage(tmp_path).list("t/versions")
    lists = [before] * 3
    append_topic(tmp_path, "t", ROWS.slice(1, 1))
    monkeypatch.setattr(
        LocalStorage, "list", lambda storage, folder="": lists.pop() if lists else list_now(storage, folder)
    )
    assert reader.fetch(0, 0, 2).rows.column("n").to_pylist() == [0, 1]
    assert not lists


def test_what_cannot_be_fetched_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an IndexError, and a wait for rows of which none were asked for."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: pytest.fail(f"it waits for {seconds} s"))
    monkeypatch.setattr(topics, "time", clock)
    topic = write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    nowhere: Any = "1"
    for partition, end, why in ((1, 1, "has partitions 0 to 0"), (0, nowhere, "must be an int")):
        with pytest.raises(TopicException, match=why):
            topic.fetch(partition, 0, end)
    assert not topic.fetch(0, 5, 5).rows.num_rows


def test_rows_that_never_come_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_SEEN_LATER_S", 0.2)
    reader = write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    with pytest.raises(CorruptLogException, match=r"offsets 0 to 1 were asked for, but .* hold only 1 of these 2 rows"):
        reader.fetch(0, 0, 2)


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
        sizes.append(storage.size(topic.now.name))
        lists.append(len(storage.list(lists_folder("t", topic.topic_id))))
        if number % 17 == 0:
            reader.refresh()
            assert sum(reader.end_offsets()) == number + 1
    assert max(sizes) < 2.5 * sizes[0]
    assert max(lists) < 2 * 8 + 20 / 3
    for found in (reader, Topic.open(tmp_path, "t")):
        found.refresh()
        assert numbers_of(found) == sorted(number % 40 for number in range(200))
    assert len(versions_of(storage, "t")) <= 21


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
        assert numbers_of(topic) == list(range(30))
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
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("appends", [1, 2, 9])
def test_who_has_a_topic_open_that_is_put_back_from_an_older_copy_reads_no_mixture(
    tmp_path: Path, appends: int, rows: int
) -> None:
    """Rows of before and of after would stand one behind the other, and some would be passed over."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    for number in range(3):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    topic = Topic.open(tmp_path, "t")
    assert topic.read(0, 0, 4).num_rows == 4
    # The files of before are still there.
    shutil.rmtree(tmp_path / "t" / "versions")
    shutil.copytree(tmp_path / "copy" / "versions", tmp_path / "t" / "versions")
    for number in range(3 + appends):
        append_topic(tmp_path, "t", ROWS.slice(20 + number, rows))
    topic.refresh()
    for _ in range(2):
        with pytest.raises(TopicException, match=r"other rows are before offset 4 .* put back from an older copy"):
            topic.read(0, 3, topic.end_offset(0))


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
    assert numbers_of(Topic.open(tmp_path, "t")) == sorted(number % 40 for number in range(120))


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
    assert numbers_of(Topic.open(tmp_path, "t")) == sorted([*range(40), *range(versions.KEPT_VERSIONS + 1)])


def test_who_appends_while_the_topic_is_deleted_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_topic(tmp_path, "t", ROWS, partitions=1, key="key")

    def put_then_gone(storage: Storage, version: versions.TopicVersion) -> versions.TopicVersion:
        put = put_version(storage, version)
        shutil.rmtree(tmp_path / "t")
        return put

    monkeypatch.setattr(topic_changes, "put_version", put_then_gone)
    with pytest.raises(TopicException, match=r"There is no topic 't' .* Maybe it was deleted"):
        append_topic(tmp_path, "t", ROWS)


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
    assert numbers_of(Topic.open(tmp_path, "t")) == sorted([0, 0, *(number % 40 for number in range(1, count + 1))])


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
    found = numbers_of(Topic.open(tmp_path, "t"))
    assert found == list(range(len(found)))
    assert grown <= len(found) < 31
    for number in range(len(found), 40):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    assert numbers_of(Topic.open(tmp_path, "t")) == list(range(40))


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
        numbers_of(Topic.open(tmp_path, "t"))
    path.write_bytes(whole)
    assert numbers_of(Topic.open(tmp_path, "t")) == list(range(12))


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


# What counts has been written, whatever becomes of older versions.


def test_older_versions_that_cannot_be_read_or_deleted_do_not_fail_what_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows counted, but who appended them was told otherwise, and so wrote them once more."""
    write_topic(tmp_path, "t", ROWS.slice(0, 1), partitions=1, key=["key"])
    for number in range(1, 30):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    damaged = sorted((tmp_path / "t/versions").iterdir())[-2] / "~object"
    data = bytearray(damaged.read_bytes())
    data[-20] ^= 1
    damaged.write_bytes(data)
    for number in range(30, 35):
        append_topic(tmp_path, "t", ROWS.slice(number, 1))
    assert (tmp_path / "t/lists").exists()
    assert not caplog.records

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "no permission to delete")

    monkeypatch.setattr(LocalStorage, "delete", refuse)
    topic = append_topic(tmp_path, "t", ROWS.slice(35, 1))
    assert numbers_of(topic) == list(range(36))
    write_topic(tmp_path, "u", ROWS, partitions=1, key=["key"])
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"Older versions of topic 't' in {tmp_path} could not be deleted",
        f"What others have left of topic 'u' in {tmp_path} could not be deleted",
    ]
