"""Rows that are deleted from the beginning of a topic: files go, offsets stay, and nobody passes over rows in silence."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    CommitLogException,
    Topic,
    TopicBuilder,
    TopicException,
    append_topic,
    committed_offsets,
    delete_records,
    read_output,
    write_topic,
)
from task_assignor.runtime.arrow.keys import partitions_of
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.topics import changes, versions
from task_assignor.runtime.topics.names import lists_folder
from task_assignor.runtime.topics.versions import FORMER_FORMAT_VERSION, KEPT_VERSIONS
from tests.runtime.support import (
    application,
    change_description,
    count_topology,
    description,
    in_order,
    join_topology,
    make_former,
    stream,
    write_streams,
)


def _numbers(start: int, end: int) -> pa.Table:
    return pa.table({"key": list(range(start, end))})


def _write(root: Path, rows: int, partitions: int = 2, segment_rows: int = 10) -> Topic:
    return write_topic(root, "t", _numbers(0, rows), partitions=partitions, key=["key"], segment_rows=segment_rows)


def _rows(topic: Topic, partition: int) -> list[int]:
    start, end = topic.start_offsets()[partition], topic.end_offsets()[partition]
    found: list[int] = topic.read(partition, start, end).column("key").to_pylist()
    return found


def _files(root: Path, partition: int) -> set[str]:
    return {path.name for path in (root / "t" / str(partition)).glob("*.arrow")}


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions become long soon."""
    monkeypatch.setattr(versions, "LISTED_APPENDS", 3)
    monkeypatch.setattr(versions, "LISTED_FILES", 9)


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("seed", range(4))
def test_appends_and_deletions_in_any_order_leave_the_rows_that_they_should(tmp_path: Path, seed: int) -> None:
    """Readers that were opened at any time see the same, and name no files that have gone."""
    chance = random.Random(seed)
    readers = [_write(tmp_path, rows := 30)]
    known = [_rows(readers[0], partition) for partition in range(2)]
    starts = [0, 0]
    for _ in range(30):
        match chance.randrange(4):
            case 0:
                before = {
                    part: chance.randint(0, len(known[part])) for part in chance.sample(range(2), chance.randint(1, 2))
                }
                delete_records(tmp_path, "t", before)
                starts = [max(start, before.get(part, 0)) for part, start in enumerate(starts)]
            case 1 if len(readers) < 4:
                readers.append(Topic.open(tmp_path, "t"))
            case _:
                more = chance.randint(1, 25)
                topic = append_topic(tmp_path, "t", _numbers(rows, rows + more), segment_rows=chance.choice([3, 50]))
                rows += more
                for part in range(2):
                    known[part] += (
                        topic.read(part, len(known[part]), topic.end_offsets()[part]).column("key").to_pylist()
                    )
        for reader in [*chance.sample(readers, 1), Topic.open(tmp_path, "t")]:
            reader.refresh()
            reader.check()
            assert reader.start_offsets() == starts
            assert reader.end_offsets() == [len(part) for part in known]
            assert [_rows(reader, part) for part in range(2)] == [
                part[start:] for part, start in zip(known, starts, strict=True)
            ]
            for part, start in enumerate(starts):
                files = reader.segments(part)
                assert all(one.end > start for one in files)
                assert {one.file for one in files} == _files(tmp_path, part)
                chosen = chance.randint(start, len(known[part]))
                assert reader.read(part, chosen, len(known[part])).column("key").to_pylist() == known[part][chosen:]
                late = Topic.open(tmp_path, "t")
                late.check([chosen if one == part else begin for one, begin in enumerate(starts)])
                assert late.read(part, chosen, len(known[part])).column("key").to_pylist() == known[part][chosen:]
    assert sorted(number for part in known for number in part) == list(range(rows))


@pytest.mark.usefixtures("_short")
def test_a_topic_that_sheds_what_was_read_stays_small(tmp_path: Path) -> None:
    """Files, lists and versions do not become more, and a reader forgets the names of files that have gone."""
    _write(tmp_path, 10)
    storage, reader, counts, sizes = LocalStorage(tmp_path), Topic.open(tmp_path, "t"), [], []
    for number in range(1, 90):
        topic = append_topic(tmp_path, "t", _numbers(number * 10, number * 10 + 10))
        reader.refresh()
        _rows(reader, 0)
        topic = delete_records(tmp_path, "t", dict(enumerate(topic.end_offsets())))
        assert topic.start_offsets() == topic.end_offsets()
        reader.refresh()
        counts.append(len(list(storage.list_below("t"))) + len(reader.segments(0)))
        sizes.append(
            sum(storage.size(name) for name in storage.list("t/versions"))
            + sum(found.count for found in topic.now.lists)
        )
    assert not _files(tmp_path, 0)
    assert max(counts[60:]) <= max(counts[30:60]) < 100
    assert max(sizes[60:]) <= 1.1 * max(sizes[30:60])
    assert len(storage.list(lists_folder("t", topic.topic_id))) < KEPT_VERSIONS + 10


def test_a_file_goes_when_all_of_its_rows_are_deleted(tmp_path: Path) -> None:
    topic = _write(tmp_path, 40, partitions=1)
    before = _files(tmp_path, 0)
    assert len(before) == 4
    topic = delete_records(tmp_path, "t", {0: 19})
    assert (topic.start_offsets(), topic.end_offsets(), len(_files(tmp_path, 0))) == ([19], [40], 3)
    assert len(_files(tmp_path, 0) & before) == 3
    assert topic.read(0, 19, 23).column("key").to_pylist() == [19, 20, 21, 22]
    delete_records(tmp_path, "t", {0: 5})
    assert Topic.open(tmp_path, "t").start_offsets() == [19]
    # It was said that these are no whole numbers.
    delete_records(tmp_path, "t", dict(enumerate(np.array([20]))))
    assert Topic.open(tmp_path, "t").start_offsets() == [20]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({2: 1}, "has partitions 0 to 1"),
        ({-1: 1}, "has partitions 0 to 1"),
        ({0: 1.5}, "whole numbers, not {0: 1.5}"),
        ({0: True}, "whole numbers"),
        ({"0": 1}, "whole numbers"),
        ({0: 1_000}, "before offset 1000 cannot be deleted: it goes to"),
        ({0: -1}, "before offset -1 cannot be deleted"),
    ],
)
def test_what_cannot_be_deleted_is_named(tmp_path: Path, before: dict[int, int], said: str) -> None:
    _write(tmp_path, 40)
    with pytest.raises(TopicException, match=said):
        delete_records(tmp_path, "t", before)
    assert Topic.open(tmp_path, "t").version == 0


@pytest.mark.parametrize("before", [[5], None, "5"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, before: Any) -> None:
    with pytest.raises(TopicException, match="must be a mapping from partitions to offsets, not"):
        delete_records(tmp_path, "t", before)


@pytest.mark.parametrize(("starts", "said"), [((41,), "begin at offset 41, but end at 40"), ((1, 2), "starts for 2")])
def test_a_version_that_begins_where_it_cannot_is_refused(tmp_path: Path, starts: tuple[int, ...], said: str) -> None:
    _write(tmp_path, 40, partitions=1)
    change_description(description(tmp_path, "t"), starts=starts)
    with pytest.raises(TopicException, match=said):
        Topic.open(tmp_path, "t")


def test_who_wants_deleted_rows_is_told(tmp_path: Path) -> None:
    """Also who had opened the topic before: the files have gone that it knows."""
    before = _write(tmp_path, 40, partitions=1)
    delete_records(tmp_path, "t", {0: 20})
    for topic in (before, Topic.open(tmp_path, "t")):
        with pytest.raises(
            TopicException, match=r"from offset 5 to 19 are wanted, but they were deleted \(delete_records\)"
        ):
            topic.read(0, 5, 30)
    with pytest.raises(TopicException, match="from offset 19 to 19 are wanted"):
        before.check([19])
    before.check([20])


def test_who_looks_at_files_while_rows_are_deleted_looks_again(tmp_path: Path) -> None:
    """Nothing is damaged: what is still wanted is there, or it is said what was deleted."""
    wide, late = (
        _write(tmp_path, 40, partitions=1) if number == 0 else Topic.open(tmp_path, "t") for number in range(2)
    )
    delete_records(tmp_path, "t", {0: 20})
    wide.check()
    assert wide.start_offsets() == [20]
    with pytest.raises(TopicException, match="from offset 5 to 19 are wanted"):
        late.check([5])


def test_who_reads_while_another_thread_learns_of_a_deletion_is_told(tmp_path: Path) -> None:
    """A slow look of one thread may end after that of another one, which has forgotten the files that are gone."""
    topic = _write(tmp_path, 40, partitions=1)
    slow = topic.now
    delete_records(tmp_path, "t", {0: 20})
    topic.refresh()
    topic.segments(0)
    topic._version = slow
    with pytest.raises(TopicException, match="from offset 5 to 19 are wanted"):
        topic.read(0, 5, 30)


@pytest.mark.parametrize("before", [20, 40])
def test_deleted_rows_have_no_seal(tmp_path: Path, before: int) -> None:
    """A task asks for that of rows that it has read, which may be deleted since; that of other rows is not theirs."""
    topic = _write(tmp_path, 40, partitions=1)
    seals = [topic.seal_before(0, offset) for offset in (20, 40)]
    delete_records(tmp_path, "t", {0: before})
    topic.refresh()
    assert [topic.seal_before(0, offset) for offset in (20, 40)] == ["", seals[1] if before < 40 else ""]


class _Interrupted(LocalStorage):
    """Ends the process, as it were, before the first file is deleted."""

    def delete(self, names: Iterable[str]) -> None:
        if names := [name for name in names if name.endswith(".arrow")]:
            raise KeyboardInterrupt
        super().delete(names)


def test_what_an_interrupted_call_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, 40, partitions=1)
    with monkeypatch.context() as patch:
        patch.setattr("task_assignor.runtime.topics.changes.topics_storage", _Interrupted)
        with pytest.raises(KeyboardInterrupt):
            delete_records(tmp_path, "t", {0: 20})
    assert (len(_files(tmp_path, 0)), Topic.open(tmp_path, "t").start_offsets()) == (4, [20])
    delete_records(tmp_path, "t", {0: 20})
    assert len(_files(tmp_path, 0)) == 2


@pytest.mark.usefixtures("_short")
def test_what_another_call_left_goes_before_the_lists_that_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was interrupted after a second one had looked at the topic."""
    _write(tmp_path, 40, partitions=1)
    for number in range(4, 10):
        append_topic(tmp_path, "t", _numbers(number * 10, number * 10 + 10))
    look = changes.change_topic

    def change(root: str | Path, *rest: Any) -> Topic:
        monkeypatch.setattr(changes, "change_topic", look)
        with monkeypatch.context() as patch:
            patch.setattr(changes, "topics_storage", _Interrupted)
            with pytest.raises(KeyboardInterrupt):
                delete_records(tmp_path, "t", {0: 90})
        return look(root, *rest)

    monkeypatch.setattr(changes, "change_topic", change)
    topic = delete_records(tmp_path, "t", {0: 95})
    assert _files(tmp_path, 0) == {one.file for one in topic.segments(0)}


@pytest.mark.usefixtures("_short")
def test_rows_that_were_deleted_at_once_are_not_appended_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store may say that a version was there already which it has written; meanwhile its rows may be deleted."""
    _write(tmp_path, 10, partitions=1)
    put = LocalStorage.put_if_absent

    def put_twice(self: LocalStorage, name: str, data: bytes) -> None:
        put(self, name, data)
        monkeypatch.undo()
        monkeypatch.setattr(versions, "LISTED_APPENDS", 1)
        delete_records(tmp_path, "t", {0: 20})
        delete_records(tmp_path, "t", {0: 20})
        raise FileExistsError(name)

    builder = TopicBuilder.extend(tmp_path, "t")
    segment = builder.write(0, 0, _numbers(10, 20))
    monkeypatch.setattr(LocalStorage, "put_if_absent", put_twice)
    assert builder.commit([segment]).end_offsets() == [20]
    assert Topic.open(tmp_path, "t").start_offsets() == [20]


@pytest.mark.usefixtures("_short")
def test_whoever_sleeps_until_its_rows_are_deleted_and_forgotten_does_not_append_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wondered whether they had counted, since its number could be free again: the topic named files that had gone."""
    _write(tmp_path, 10, partitions=1)
    put = changes.put_version

    def sleep_after(*given: Any) -> versions.TopicVersion:
        monkeypatch.setattr(changes, "put_version", put)
        version = put(*given)
        for number in range(2, 3 * KEPT_VERSIONS):
            append_topic(tmp_path, "t", _numbers(number * 10, number * 10 + 10))
        for end in (last - 20, last - 10):
            delete_records(tmp_path, "t", {0: end})
        return version

    last = 30 * KEPT_VERSIONS

    monkeypatch.setattr(changes, "put_version", sleep_after)
    append_topic(tmp_path, "t", _numbers(10, 20))
    topic = Topic.open(tmp_path, "t")
    topic.check()
    assert _rows(topic, 0) == list(range(last - 10, last))


def test_a_topic_of_an_older_version_is_read_and_written_as_before(tmp_path: Path) -> None:
    """What has no deleted rows says nothing of them."""
    topic = _write(tmp_path, 40)
    assert topic.now.document().starts == ()
    assert delete_records(tmp_path, "t", {}).version == 0
    assert delete_records(tmp_path, "t", {1: 3}).now.document().starts == (0, 3)


def test_what_does_not_know_of_deleted_rows_refuses_a_topic_that_has_shed(tmp_path: Path) -> None:
    """It appended, and what was deleted was there again, without its files. What has ids in names is too new for it anyway."""
    _write(tmp_path, 40)
    make_former(LocalStorage(tmp_path), "t")

    def formats() -> list[int]:
        numbers = versions.versions_of(LocalStorage(tmp_path), "t")
        return [json.loads(description(tmp_path, "t", one).read_bytes())["formatVersion"] for one in numbers]

    assert formats() == [FORMER_FORMAT_VERSION]
    delete_records(tmp_path, "t", {1: 3})
    append_topic(tmp_path, "t", _numbers(40, 50))
    assert formats() == [FORMER_FORMAT_VERSION, FORMER_FORMAT_VERSION + 1, FORMER_FORMAT_VERSION + 1]
    # So it was written by the first versions that know of it.
    change_description(description(tmp_path, "t", 2), formatVersion=FORMER_FORMAT_VERSION)
    assert Topic.open(tmp_path, "t").start_offsets() == [0, 3]


@pytest.mark.usefixtures("_short")
def test_who_deletes_while_many_others_append_is_told_nothing_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that names files to delete goes when no version that is kept names it."""
    _write(tmp_path, 40, partitions=1)
    for number in range(4, 10):
        append_topic(tmp_path, "t", _numbers(number * 10, number * 10 + 10))
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(changes, "KEPT_VERSIONS", 2)
    look = changes.change_topic

    def change(*given: Any) -> Topic:
        topic = look(*given)
        monkeypatch.setattr(changes, "change_topic", look)
        for number in range(10, 22):
            append_topic(tmp_path, "t", _numbers(number * 10, number * 10 + 10))
        return topic

    monkeypatch.setattr(changes, "change_topic", change)
    delete_records(tmp_path, "t", {0: 20})
    assert _files(tmp_path, 0) == {one.file for one in Topic.open(tmp_path, "t").segments(0)}


# Runs.


def test_a_run_goes_on_when_what_it_has_read_is_deleted(tmp_path: Path) -> None:
    """The result is that of a run that had all rows, and the checksum of a file that has gone is not asked for."""
    for name in ("run", "whole"):
        write_streams(tmp_path / name / "topics", rows=1_000, keys=50, partitions=2)
        application(tmp_path / name, join_topology()).run()
    run_dir = tmp_path / "run" / "run"
    before = committed_offsets(run_dir, "left")
    application(tmp_path / "run", join_topology()).run()
    for name in ("left", "right"):
        found = committed_offsets(run_dir, name)
        assert found == dict(enumerate(Topic.open(tmp_path / "run" / "topics", name).end_offsets()))
        delete_records(tmp_path / "run" / "topics", name, found)
    # Of one that has just ended the newest commit is left out: it may be torn by a power failure.
    assert sum(before.values()) < sum(committed_offsets(run_dir, "left").values())
    for name in ("run", "whole"):
        for topic, seed in (("left", 3), ("right", 4)):
            more = stream(300, 50, seed)
            more = more.set_column(1, "at", pc.add(more.column("at"), 600_000))
            append_topic(tmp_path / name / "topics", topic, more)
        application(tmp_path / name, join_topology()).run()
    expected = in_order(read_output(tmp_path / "whole" / "run", "joined"))
    assert in_order(read_output(run_dir, "joined")).equals(expected)


def test_a_run_that_has_not_read_deleted_rows_is_told(tmp_path: Path) -> None:
    """A new one begins where the topic does."""
    write_streams(tmp_path / "topics", rows=1_000, keys=50, partitions=2)
    application(tmp_path, count_topology()).run()
    read = Topic.open(tmp_path / "topics", "left").end_offsets()
    ends = append_topic(tmp_path / "topics", "left", stream(300, 50, 3)).end_offsets()
    delete_records(tmp_path / "topics", "left", {0: ends[0] - 1, 1: ends[1] - 1})
    with pytest.raises(
        TopicException, match=rf"rows from offset {read[0]} to {ends[0] - 2} are wanted, but they were deleted"
    ):
        application(tmp_path, count_topology()).run()
    application(tmp_path, count_topology(), run_dir=tmp_path / "new").run()
    assert sum(read_output(tmp_path / "new", "totals-out").column("count").to_pylist()) == 2


def test_a_run_is_told_of_deleted_rows_of_a_partition_of_which_it_has_read_nothing(tmp_path: Path) -> None:
    """Its task had no batch yet, so no commit says where it began."""
    rows = stream(100, 50, 1)
    partition = pa.array(partitions_of(rows, ["key"], 2))
    first, other = (rows.filter(pc.equal(partition, number)) for number in range(2))
    write_topic(tmp_path / "topics", "left", first, partitions=2, key=["key"], timestamp="at")
    application(tmp_path, count_topology()).run()
    append_topic(tmp_path / "topics", "left", other)
    delete_records(tmp_path / "topics", "left", {1: 5})
    with pytest.raises(
        TopicException, match="partition 1: the rows from offset 0 to 4 are wanted, but they were deleted"
    ):
        application(tmp_path, count_topology()).run()


def test_a_new_run_begins_where_the_topic_does_when_it_is_run(tmp_path: Path) -> None:
    """Not where it began when the application was described."""
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    described = application(tmp_path, count_topology())
    ends = delete_records(tmp_path / "topics", "left", {0: 7}).end_offsets()
    described.run()
    totals = read_output(tmp_path / "run", "totals-out")
    last = totals.group_by("key").aggregate([("count", "max")])
    assert sum(last.column("count_max").to_pylist()) == sum(ends) - 7


def test_offsets_of_rows_that_others_have_taken_the_place_of_are_refused(tmp_path: Path) -> None:
    """They would delete rows that the run has not read, and then it could not see it any more."""
    write_streams(tmp_path / "topics", rows=1_000, keys=50, partitions=2)
    shutil.copytree(tmp_path / "topics", tmp_path / "copy")
    application(tmp_path, count_topology()).run()
    append_topic(tmp_path / "topics", "left", stream(500, 50, 3))
    application(tmp_path, count_topology()).run()
    application(tmp_path, count_topology()).run()  # What was read does not hang on the newest record.
    shutil.rmtree(tmp_path / "topics")
    shutil.move(tmp_path / "copy", tmp_path / "topics")
    for _ in ("lost", "others"):
        with pytest.raises(TopicException, match=r"other rows are before offset .* than those that were read"):
            committed_offsets(tmp_path / "run", "left")
        append_topic(tmp_path / "topics", "left", stream(500, 50, 4))


def test_offsets_of_a_topic_that_was_written_anew_are_refused(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=1_000, keys=50, partitions=2)
    application(tmp_path, count_topology()).run()
    application(tmp_path, count_topology()).run()
    shutil.rmtree(tmp_path / "topics")
    write_streams(tmp_path / "topics", rows=1_000, keys=50, partitions=2)
    with pytest.raises(TopicException, match="written anew"):
        committed_offsets(tmp_path / "run", "left")


def test_offsets_of_a_run_whose_rows_were_deleted_before_it_read_them_are_given(tmp_path: Path) -> None:
    """They delete nothing more; that rows are missing is told by the run."""
    write_streams(tmp_path / "topics", rows=1_000, keys=50, partitions=2)
    application(tmp_path, count_topology()).run()
    application(tmp_path, count_topology()).run()
    before = committed_offsets(tmp_path / "run", "left")
    ends = append_topic(tmp_path / "topics", "left", stream(300, 50, 3)).end_offsets()
    starts = delete_records(tmp_path / "topics", "left", dict(enumerate(ends))).start_offsets()
    assert committed_offsets(tmp_path / "run", "left") == before
    assert delete_records(tmp_path / "topics", "left", before).start_offsets() == starts


def test_offsets_of_what_is_no_run_or_topic_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommitLogException, match="There is no run in"):
        committed_offsets(tmp_path / "run", "left")
    write_streams(tmp_path / "topics", rows=100, keys=5, partitions=2)
    application(tmp_path, count_topology()).run()
    with pytest.raises(CommitLogException, match=r"reads no topic 'right'; its topics: left\."):
        committed_offsets(tmp_path / "run", "right")
