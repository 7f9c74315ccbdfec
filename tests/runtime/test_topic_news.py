"""Who reads what others write by another key hears of the time in it, also where no rows come; nobody goes ahead of who has not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.coordinator.topic_news import TopicNews, news_every_ms
from task_assignor.runtime.machines.records import CommitRecord, FileRef, RoutedFile, Seal, TaskCommit
from task_assignor.runtime.machines.topic_time import NO_TIME, TopicTime, Writers
from task_assignor.sdk import TaskId
from tests.budget import examples

FIRST, MIDDLE, LAST = 2, 3, 2
"""Tasks that read the source and write `r`, that read `r` and write `s` as windows do, and that read `s`."""
EVER = 1_000_000_000
GAP = 4
"""Of the sessions of the first task in the middle."""


class Chain:
    """Rows at times that go by another key twice. The tasks in the middle keep each until all have come so far.

    Args:
        records: per partition of the source the times of its records, ascending; and the partition of `r` for each.
        is_continuous: sources have nothing at first, and grow.
        idle_ms: so long is waited for those that have read everything.
    """

    def __init__(self, records: list[list[tuple[int, int]]], *, is_continuous: bool, idle_ms: int = 0) -> None:
        self.records = records
        sources: dict[TaskId, tuple[str, ...]] = {}
        for number, (count, topic) in enumerate(((FIRST, "x"), (MIDDLE, "r"), (LAST, "s"))):
            sources.update((TaskId(number, partition), (topic,)) for partition in range(count))
        known = Repartitions(
            {"r": MIDDLE, "s": LAST},
            {"r": (None, 0), "s": (None, 1)},
            timed={"r": Writers(FIRST), "s": Writers(MIDDLE, they_tell=True, are_in_order=False)},
            are_awaited=not is_continuous,
            idle_ms=idle_ms,
            news_every_ms=1_000 if is_continuous else None,
        )
        self.there = [0 if is_continuous else len(found) for found in records]
        starts = {"x": [0] * FIRST, "r": [0] * MIDDLE, "s": [0] * LAST}
        self.progress = Progress(sources, {"x": [*self.there]}, (), starts, known)
        self.rows: dict[str, list[list[int]]] = {"r": [[] for _ in range(MIDDLE)], "s": [[] for _ in range(LAST)]}
        self.kept: list[list[int]] = [[] for _ in range(MIDDLE)]
        self.told = [NO_TIME] * MIDDLE
        self.number = 0
        self.publish({}, opened_by="a test")

    def publish(self, commits: dict[TaskId, TaskCommit], opened_by: str = "") -> None:
        self.progress.begin_commit(self.number)
        self.progress.publish(CommitRecord(self.number, "app", 1, 1, 1_000, commits, opened_by=opened_by))
        self.number += 1

    def do(self, task: TaskId, most: int) -> TaskCommit | None:
        """A batch of a task; None: there is nothing for it."""
        ranges, _ = self.progress.next_ranges(task, most)
        if not ranges:
            return None
        ((topic, (start, end)),) = ranges.items()
        steps = self.progress.times(task, ranges).get(topic, ())
        told = max((time for _, time in steps), default=None)
        written: dict[str, RoutedFile] = {}
        read = None
        if topic == "x":
            found = self.records[task.partition][start:end]
            read = found[-1][0]
            written = self._route("r", [(time, place) for time, place in found])
        else:
            rows = self.rows[topic][task.partition][start:end]
            for offset, time in enumerate(rows, start=start):
                now = max((known for first, known in steps if first <= offset), default=NO_TIME)
                assert time >= now, f"a row of {time} of {topic} is late: {now}"
            if topic == "r":
                self.kept[task.partition] += rows
                self.told[task.partition] = max(self.told[task.partition], NO_TIME if told is None else told)
                written = self._route("s", [(time, time % LAST) for time in self._ready(task.partition)])
        times = {} if told is None else {topic: told}
        to_come = self._to_come(task.partition) if topic == "r" else {}
        batch = self.progress.position(task).batch + 1
        commit = TaskCommit(
            task,
            batch,
            "c",
            "p",
            "m",
            "a",
            1,
            ranges,
            stream_time=read,
            repartitions=written,
            times=times,
            to_come=to_come,
        )
        self.progress.advance(commit)
        return commit

    def _ready(self, number: int) -> list[int]:
        """The times of rows that a task in the middle gives: those that are over, or, by its first, a session that is."""
        kept, told = sorted(self.kept[number]), self.told[number]
        if number == 0:
            is_over = bool(kept) and kept[-1] + GAP < told
            self.kept[number] = [] if is_over else kept
            return kept[:1] * is_over
        self.kept[number] = [time for time in kept if time >= told]
        return [time for time in kept if time < told]

    def _to_come(self, number: int) -> dict[str, int]:
        times = [self.told[number], *self.kept[number]]
        return {} if self.told[number] == NO_TIME else {"s": min(times)}

    def _route(self, topic: str, rows: list[tuple[int, int]]) -> dict[str, RoutedFile]:
        if not rows:
            return {}
        counts = [0] * len(self.rows[topic])
        for time, place in rows:
            self.rows[topic][place].append(time)
            counts[place] += 1
        file = FileRef(f"{topic}/{self.number}/{len(self.rows[topic][0])}", Seal(len(rows), 1, ""))
        span = (min(time for time, _ in rows), max(time for time, _ in rows))
        return {topic: RoutedFile(file, tuple(counts), (), span)}


def a_record(times: list[int], places: list[int]) -> list[tuple[int, int]]:
    return [*zip(sorted(times), places, strict=False)]


RECORDS = st.lists(
    st.builds(
        a_record,
        st.lists(st.integers(0, 30), max_size=12),
        st.lists(st.integers(0, MIDDLE - 1), min_size=12, max_size=12),
    ),
    min_size=FIRST,
    max_size=FIRST,
)
TASKS = (
    [TaskId(0, x) for x in range(FIRST)] + [TaskId(1, x) for x in range(MIDDLE)] + [TaskId(2, x) for x in range(LAST)]
)


def some_batches(chain: Chain, data: st.DataObject) -> None:
    """Some tasks do a batch each, which are committed together."""
    commits: dict[TaskId, TaskCommit] = {}
    wanted: list[Any] = data.draw(st.lists(st.sampled_from(TASKS), min_size=1, max_size=4, unique=True))
    for task in sorted(wanted):
        if (commit := chain.do(task, data.draw(st.integers(1, 4)))) is not None:
            commits[task] = commit
    if commits:
        chain.publish(commits)


def _did(chain: Chain, task: TaskId) -> bool:
    """A task has done a batch, which is committed."""
    commit = chain.do(task, 100)
    if commit is not None:
        chain.publish({task: commit})
    return commit is not None


@given(RECORDS, st.data())
@settings(max_examples=examples(60))
def test_by_another_key_twice_nothing_is_late_and_all_comes_out(
    records: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """Who was first to hear that all is read went ahead of the others, whose windows of before were late then."""
    chain = Chain(records, is_continuous=False)
    for _ in range(data.draw(st.integers(0, 40))):
        some_batches(chain, data)
    orders = data.draw(st.lists(st.permutations(TASKS), min_size=1, max_size=8))
    turn = 0
    while any(_did(chain, task) for task in orders[turn % len(orders)]):
        turn += 1
    assert not chain.progress.remaining_rows()
    newest = max((time for found in records for time, _ in found), default=NO_TIME)
    session, *windows = chain.kept
    assert not session or session[-1] + GAP >= newest
    assert all(time == newest for kept in windows for time in kept)
    over = Counter(time for found in records for time, place in found if place and time < newest)
    assert over <= Counter(time for found in chain.rows["s"] for time in found)


@given(RECORDS, st.booleans(), st.data())
@settings(max_examples=examples(120))
@pytest.mark.thorough
def test_in_a_run_that_goes_on_nothing_is_late_as_long_as_more_is_waited_for(
    records: list[list[tuple[int, int]]], is_alone: bool, data: st.DataObject
) -> None:
    """Nor where one task alone writes what windows read, by which others write: these are told what time it is."""
    if is_alone:
        records = [records[0], []]
    chain = Chain(records, is_continuous=True, idle_ms=0 if is_alone else EVER)
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.sampled_from(["grow", "batches", "batches", "news"])):
            case "grow":
                number = data.draw(st.integers(0, FIRST - 1))
                chain.there[number] = min(chain.there[number] + data.draw(st.integers(1, 4)), len(records[number]))
                chain.progress.move_ends({"x": chain.there})
            case "batches":
                some_batches(chain, data)
            case "news":
                chain.progress.tell_news(2_000)


@pytest.mark.parametrize("ahead_ms", [0, 10 * EVER])
def test_in_a_run_that_goes_on_windows_close_where_no_rows_come(ahead_ms: int) -> None:
    """Also after one whose clock was ahead: until that time came, nobody had been waited for long enough."""
    chain = Chain([[(3, 2), (9, 1)], []], is_continuous=True, idle_ms=EVER)
    if ahead_ms:
        chain.progress.publish(CommitRecord(1, "app", 1, 1, ahead_ms, {}))
        chain.publish({}, opened_by="the next one")
    chain.there = [2, 0]
    chain.progress.move_ends({"x": chain.there})
    first, second, _, other, quiet, *_ = TASKS
    commit = chain.do(first, 1)
    assert commit is not None
    chain.publish({first: commit})
    for task in (quiet, first, other):
        commit = chain.do(task, 1)
        assert commit is not None
        chain.publish({task: commit})
    assert chain.do(second, 1) is None, "its partition is empty"
    assert chain.kept == [[], [9], [3]]
    assert chain.progress.take_fed() == [other, quiet], "rows have come for them, which they have read"
    chain.progress.tell_news(10_000)
    assert not chain.progress.take_fed(), "more is waited for"
    assert [chain.progress.next_news_ms] == [11_000]
    chain.progress.tell_news(2_000 + EVER)
    assert chain.progress.take_fed() == [other, quiet], "nobody is waited for any more"
    assert [chain.progress.next_news_ms] == [None]
    for task in (quiet, other):
        commit = chain.do(task, 1)
        assert commit is not None
        assert commit.rows_in == 0
        chain.publish({task: commit})
    assert chain.kept == [[], [9], []], "it is over when all have come further"
    assert chain.do(quiet, 1) is None, "it has heard it"


def test_what_is_written_between_is_whole_when_all_have_heard_that_all_is_read() -> None:
    """Whoever reads it beside other sources waits until then."""
    chain = Chain([[(3, 1), (5, 2), (9, 2)], []], is_continuous=False)
    first, *_ = TASKS
    early, late, last = TaskId(1, 1), TaskId(1, 2), TaskId(2, 1)
    for task, most in ((first, 1), (early, 9), (first, 2), (late, 9)):
        commit = chain.do(task, most)
        assert commit is not None
        chain.publish({task: commit})
    assert chain.progress.next_ranges(last, 9) == ({"s": (0, 1)}, frozenset({"s"})), "3 is still to come, after 5"
    assert _did(chain, early)
    assert chain.progress.next_ranges(last, 9) == ({"s": (0, 2)}, frozenset())


def test_who_says_what_still_comes_counts_also_if_it_has_read_everything() -> None:
    """A session that goes on has begun long ago, and comes out by that time; but who is never told says it once and for all."""
    nobody = np.zeros(3, np.bool_)
    for is_told, expected in ((True, 5), (False, 100)):
        time = TopicTime(Writers(3, they_tell=True, are_in_order=False), are_told=is_told)
        time.see(0, (None, 100), None, 5)
        time.see(1, (None, 100), None, 100)
        time.move(nobody)
        assert time.now == expected


def test_who_has_read_everything_holds_back_for_as_long_as_sources_are_waited_for() -> None:
    time = TopicTime(Writers(2), idle_ms=100)
    assert not time.are_held(1_000).any(), "no run has begun"
    time.begin(1_000)
    assert time.are_held(1_099).tolist() == [True, True]
    time.read_rows(1, 1_050)
    assert time.are_held(1_100).tolist() == [False, True]
    assert not time.are_held(1_150).any()
    assert not TopicTime(Writers(2)).are_held(0).any()


def test_it_is_told_every_so_often_and_to_those_who_may_have_windows() -> None:
    news = TopicNews({"r": 2}, 1_000)
    assert news.next_ms({"r": NO_TIME}, may_move=False) is None
    assert news.next_ms({"r": NO_TIME}, may_move=True) == 1_000
    news.hear("r", 1, None)
    news.announce({"r": 7}, 5_000)
    assert [news.is_due("r", reader, 7) for reader in range(2)] == [False, True], "the other has had no rows"
    assert news.are_behind("r", 7).tolist() == [False, True]
    news.hear("r", 1, 7)
    assert not news.is_due("r", 1, 8), "that is told later"
    assert news.are_behind("r", 8).tolist() == [False, True]
    assert news.next_ms({"r": 8}, may_move=False) == 6_000
    at_once = TopicNews({"r": 1}, None)
    at_once.hear("r", 0, 7)
    assert at_once.is_due("r", 0, 8)
    assert at_once.next_ms({"r": 8}, may_move=True) is None
    assert [news_every_ms(tasks) for tasks in (1, 100, 1_000)] == [1_000, 1_000, 10_000]
