"""A topic is deleted and written anew while somebody slow uses the one before: the new one keeps its rows, and has no others."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import Topic, TopicException, append_topic, delete_records, list_topics, write_topic
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.topics import changes, versions, writing
from task_assignor.runtime.topics.names import herald_name, look_at_names, version_name
from tests.runtime.support import description, make_former


def _rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers)})


def _write(root: Path, *numbers: int) -> Topic:
    return write_topic(root, "t", _rows(*numbers), partitions=1, key=["n"])


def _numbers(root: Path) -> list[int]:
    topic = Topic.open(root, "t")
    topic.check(topic.start_offsets())
    found: list[int] = topic.read(0, topic.start_offsets()[0], topic.end_offset(0)).column("n").to_pylist()
    return found


def _written_anew(root: Path, *numbers: int) -> None:
    shutil.rmtree(root / "t")
    _write(root, numbers[0])
    for number in numbers[1:]:
        append_topic(root, "t", _rows(number))


def _once(patch: pytest.MonkeyPatch, where: Any, name: str, sleeps: Callable[[], None], *, after: bool = False) -> None:
    """Others do something before, or after, the next call of a function."""
    really = getattr(where, name)

    def slowly(*args: Any) -> Any:
        patch.setattr(where, name, really)
        if not after:
            sleeps()
        found = really(*args)
        if after:
            sleeps()
        return found

    patch.setattr(where, name, slowly)


def _die() -> None:
    raise KeyboardInterrupt


@pytest.fixture(params=["ids in names", "former"])
def write(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Writes the topic that is deleted later; maybe as former versions did."""

    def written(root: Path, *numbers: int) -> None:
        _write(root, numbers[0])
        if request.param == "former":
            make_former(LocalStorage(root), "t")
        for number in numbers[1:]:
            append_topic(root, "t", _rows(number))

    return written


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a storage was asked for lists and objects."""
    counts: Counter[str] = Counter()
    listed, opened = LocalStorage.list, LocalStorage.open

    def list_(self: LocalStorage, folder: str = "") -> list[str]:
        counts["list"] += 1
        return listed(self, folder)

    def open_(self: LocalStorage, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        counts["open"] += 1
        return opened(self, name, start, end)

    monkeypatch.setattr(LocalStorage, "list", list_)
    monkeypatch.setattr(LocalStorage, "open", open_)
    return counts


@pytest.mark.parametrize("before", [1, 2, 31])
@pytest.mark.parametrize("grows", [0, 1, 3])
def test_who_appends_late_to_a_topic_that_was_written_anew_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], before: int, grows: int
) -> None:
    """Its version came behind those of the new topic, counted, and made the others old, which were deleted."""
    write(tmp_path, *range(before))
    expected = list(range(100, 101 + grows))
    left: list[str] = []

    def written_anew() -> None:
        _written_anew(tmp_path, *expected)
        left.extend(LocalStorage(tmp_path).list_below("t"))

    _once(monkeypatch, changes, "put_version", written_anew)
    with pytest.raises(TopicException, match="it was written anew"):
        append_topic(tmp_path, "t", _rows(7))
    assert _numbers(tmp_path) == expected
    more = set(LocalStorage(tmp_path).list_below("t")) - set(left)
    assert all("/versions/" in name and "-" not in name for name in more), (
        "only what has no id is left, where it does no harm"
    )
    for number in range(200, 230):
        append_topic(tmp_path, "t", _rows(number))
    assert _numbers(tmp_path) == [*expected, *range(200, 230)]


def test_who_appends_late_to_a_topic_that_was_deleted_brings_it_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> None:
    write(tmp_path, 0, 1)
    _once(monkeypatch, changes, "put_version", lambda: shutil.rmtree(tmp_path / "t"))
    with pytest.raises(TopicException, match="There is no topic 't'"):
        append_topic(tmp_path, "t", _rows(7))
    assert list_topics(tmp_path) == []
    _write(tmp_path, 100)
    assert _numbers(tmp_path) == [100]


def test_who_deletes_rows_late_of_a_topic_that_was_written_anew_deletes_none_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> None:
    write(tmp_path, 0, 1, 2)
    _once(monkeypatch, changes, "put_version", lambda: _written_anew(tmp_path, 100, 101, 102))
    with pytest.raises(TopicException, match="it was written anew"):
        delete_records(tmp_path, "t", {0: 2})
    assert (_numbers(tmp_path), Topic.open(tmp_path, "t").start_offsets()) == ([100, 101, 102], [0])


def test_who_deletes_old_versions_late_deletes_none_of_a_topic_that_was_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> None:
    """It has seen that the topic is there, and sleeps until another one is."""
    write(tmp_path, *range(40))
    expected = list(range(100, 110))
    _once(monkeypatch, changes, "_goes_on", lambda: _written_anew(tmp_path, *expected), after=True)
    with pytest.raises(TopicException, match="it was written anew"):
        append_topic(tmp_path, "t", _rows(7))
    assert _numbers(tmp_path) == expected
    assert versions.versions_of(LocalStorage(tmp_path), "t") == list(range(10))


def test_who_created_a_topic_that_was_written_anew_meanwhile_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the first version of the new topic for its own, and deleted it."""
    _once(monkeypatch, writing, "put_version", lambda: _written_anew(tmp_path, 100), after=True)
    with pytest.raises(TopicException, match="There already is a topic 't'"):
        _write(tmp_path, 0)
    assert _numbers(tmp_path) == [100]


def test_who_tidies_up_late_leaves_the_lists_of_a_topic_that_was_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> None:
    """A list is there before the version that names it."""
    monkeypatch.setattr(versions, "LISTED_APPENDS", 1)
    write(tmp_path, *range(4))
    asleep = Topic.open(tmp_path, "t").now
    _written_anew(tmp_path, 100)
    storage = LocalStorage(tmp_path)
    tidies = lambda: changes._delete_lists(storage, asleep)  # noqa: E731
    for number in range(101, 104):
        _once(monkeypatch, LocalStorage, "put_if_absent", tidies)
        append_topic(tmp_path, "t", _rows(number))
    assert _numbers(tmp_path) == [100, 101, 102, 103]


@pytest.mark.parametrize("grows", [0, 3])
def test_what_a_late_writer_leaves_that_dies_counts_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], grows: int
) -> None:
    """Neither now, nor when the topic has grown as much as the one before."""
    write(tmp_path, *range(6))
    old = Topic.open(tmp_path, "t")
    expected = list(range(100, 101 + grows))
    with monkeypatch.context() as patch:
        _once(patch, changes, "put_version", lambda: _written_anew(tmp_path, *expected))
        patch.setattr(changes, "_withdraw", lambda *_: _die())
        with pytest.raises(KeyboardInterrupt):
            append_topic(tmp_path, "t", _rows(7))
    new = Topic.open(tmp_path, "t")
    with pytest.raises(TopicException, match="it was written anew"):
        old.refresh()
    assert _numbers(tmp_path) == expected
    assert list_topics(tmp_path) == ["t"]
    for number in range(200, 230):
        append_topic(tmp_path, "t", _rows(number))
        new.refresh()
        assert new.end_offsets() == [len(expected) + number - 199]
    assert _numbers(tmp_path) == [*expected, *range(200, 230)]
    assert look_at_names(LocalStorage(tmp_path), "t").sure_id is None, "it is still there"


def test_who_dies_before_the_first_version_leaves_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _once(
            patch,
            LocalStorage,
            "put_if_absent",
            lambda: patch.setattr(LocalStorage, "put_if_absent", lambda *_: _die()),
        )
        with pytest.raises(KeyboardInterrupt):
            _write(tmp_path, 0)
    storage = LocalStorage(tmp_path)
    assert len(storage.list("t/versions")) == 1
    with pytest.raises(TopicException, match="There is no topic 't'"):
        Topic.open(tmp_path, "t")
    topic = _write(tmp_path, 100)
    assert _numbers(tmp_path) == [100]
    assert storage.list("t/versions") == [herald_name("t", topic.topic_id), version_name("t", 0, None)]


def test_a_topic_whose_herald_is_lost_is_read_and_written_as_before(tmp_path: Path) -> None:
    topic = _write(tmp_path, 0)
    LocalStorage(tmp_path).delete([herald_name("t", topic.topic_id)])
    for number in range(1, 30):
        assert _numbers(tmp_path) == list(range(number))
        append_topic(tmp_path, "t", _rows(number))
        topic.refresh()
        assert topic.end_offsets() == [number + 1]


def test_in_the_place_of_a_topic_that_has_lost_its_first_version_none_is_written(tmp_path: Path) -> None:
    """The files of the lost one would have been deleted as somebody's who had never finished."""
    _write(tmp_path, 0)
    append_topic(tmp_path, "t", _rows(1))
    first, away = (tmp_path / place for place in (version_name("t", 0, None), "away"))
    first.rename(away)
    with pytest.raises(TopicException, match="Files of it are there, but no description"):
        Topic.open(tmp_path, "t")
    with pytest.raises(TopicException, match="but not the first one, which says that it is there"):
        _write(tmp_path, 100)
    away.rename(first)
    assert _numbers(tmp_path) == [0, 1]


def test_who_creates_a_topic_waits_for_whoever_is_late_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is there for a moment: the creator was told that a topic was lost."""
    _write(tmp_path, 0)
    append_topic(tmp_path, "t", _rows(1))
    shutil.rmtree(tmp_path / version_name("t", 0, None))
    late = tmp_path / "t" / "versions"
    monkeypatch.setattr(writing, "time", SimpleNamespace(sleep=lambda _: shutil.rmtree(late)))
    _write(tmp_path, 100)
    assert _numbers(tmp_path) == [100]


def test_to_know_which_topic_is_there_costs_nothing(tmp_path: Path, calls: Counter[str]) -> None:
    """One look at the names, and one at the newest version; and none at that while nothing has changed."""
    _write(tmp_path, 0)
    for number in range(30):
        append_topic(tmp_path, "t", _rows(number))
        calls.clear()
        topic = Topic.open(tmp_path, "t")
        assert calls == {"list": 1, "open": 1}
        topic._opened_s -= 1_000
        topic.refresh()
        assert calls == {"list": 2, "open": 1}


def test_a_topic_of_a_former_format_goes_on_in_it(tmp_path: Path) -> None:
    """Those who know no other one still read it."""
    _write(tmp_path, 0)
    make_former(LocalStorage(tmp_path), "t")
    before = Topic.open(tmp_path, "t")
    for number in range(1, 60):
        append_topic(tmp_path, "t", _rows(number))
        before.refresh()
        assert before.end_offsets() == [number + 1]
    delete_records(tmp_path, "t", {0: 5})
    assert _numbers(tmp_path) == list(range(5, 60))
    names = look_at_names(LocalStorage(tmp_path), "t")
    assert not names.named
    # Former versions of this package did not keep the first one.
    LocalStorage(tmp_path).delete([version_name("t", 0, None)])
    append_topic(tmp_path, "t", _rows(60))
    assert _numbers(tmp_path) == list(range(5, 61))
    with pytest.raises(TopicException, match="There already is a topic 't'"):
        _write(tmp_path, 100)


def test_former_versions_of_the_package_refuse_a_topic_with_ids_in_names(tmp_path: Path) -> None:
    """They find the first version only, took it for the newest, and would have appended to that."""
    _write(tmp_path, 0)
    append_topic(tmp_path, "t", _rows(1))
    names = look_at_names(LocalStorage(tmp_path), "t")
    assert (names.plain, names.numbers(Topic.open(tmp_path, "t").topic_id)) == ((0,), (0, 1))
    assert json.loads(description(tmp_path, "t").read_bytes())["formatVersion"] not in (4, 5)
