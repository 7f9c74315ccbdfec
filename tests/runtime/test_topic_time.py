"""The time of a repartition topic: windows over what many tasks wrote, each as far as it has come, are exact without a grace."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BatchesCommitted,
    ClientJoined,
    CommitLog,
    Processor,
    Repartitioned,
    RunEvent,
    SubTopology,
    TaskContext,
    TimeWindows,
    Topology,
    WindowedAggregation,
    WindowedJoin,
    append_topic,
    partitions_of,
    read_output,
    write_topic,
)
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.records import CommitRecord, FileRef, RoutedFile, Seal, TaskCommit
from task_assignor.runtime.machines.topic_time import NO_TIME, TopicTime, Writers
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import TaskId
from tests.runtime.support import QUICK, application

HOUR = 3_600_000
DAY = 24 * HOUR
SALES = pa.schema([("shop", pa.int64()), ("item", pa.string()), ("at", pa.int64()), ("amount", pa.int64())])
BY_ITEM = Repartitioned("by-item", SALES, key="item", partitions=3, timestamp="at")


def sales(rows: int, shops: int = 12, seed: int = 0) -> pa.Table:
    """A day of sales, in the order of time; few items, so that each partition of `by-item` has rows of all shops."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "shop": random.integers(0, shops, rows),
            "item": [f"item-{number}" for number in random.integers(0, 9, rows)],
            "at": np.sort(random.integers(0, DAY, rows)),
            "amount": random.integers(1, 10, rows),
        },
        schema=SALES,
    )


class Pass(Processor):
    """Gives the rows as they are."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows of the only source."""
        (rows,) = batch.values()
        return rows


def hourly(source: str = "by-item") -> WindowedAggregation:
    return WindowedAggregation(
        source=source, windows=TimeWindows(HOUR), aggregates={"sold": Aggregate.sum("amount"), "n": Aggregate.count()}
    )


def windows_topology() -> Topology:
    return Topology(
        [
            SubTopology("to-item", "sales", Pass, outputs=[BY_ITEM]),
            hourly().sub_topology("per-hour", "hours", topics=[BY_ITEM.spec]),
        ]
    )


def plain_hours(rows: pa.Table, until: int) -> dict[tuple[str, int], tuple[int, int]]:
    """(item, start of an hour that is over by then) -> sum and number."""
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows.to_pylist():
        start = row["at"] // HOUR * HOUR
        if start + HOUR <= until:
            found[row["item"], start][0] += row["amount"]
            found[row["item"], start][1] += 1
    return {key: (sold, number) for key, (sold, number) in found.items()}


def hours_of(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    rows = read_output(root / "run", "hours").to_pylist()
    found = {(row["item"], row["window_start"]): (row["sold"], row["n"]) for row in rows}
    assert len(found) == len(rows), "a window came out twice"
    return found


@pytest.mark.parametrize("max_batch_rows", [pytest.param(50, marks=pytest.mark.thorough), 100_000])
def test_windows_over_a_day_that_is_there_already_need_no_grace(tmp_path: Path, max_batch_rows: int) -> None:
    """One task may have written the whole day before another begins: nothing is late, and at the end all hours but the last are out."""
    rows = sales(3_000)
    write_topic(tmp_path / "topics", "sales", rows, key="shop", partitions=4, timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=max_batch_rows)
    application(tmp_path, windows_topology(), clients=2, options=options).run()
    until = max(rows.column("at").to_pylist())
    assert hours_of(tmp_path) == plain_hours(rows, until)
    commits = [commit for record in CommitLog(tmp_path / "run").records() for commit in record.tasks.values()]
    assert not sum(commit.counters.get("late", 0) for commit in commits)


class Morning(Processor):
    """Gives the rows before noon."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """Those of the only source."""
        (rows,) = batch.values()
        return rows.filter(pa.array(rows.column("at").to_numpy() < DAY // 2))


@pytest.mark.parametrize("max_batch_rows", [50, 100_000])
def test_which_windows_are_over_hangs_on_what_was_written_alone(tmp_path: Path, max_batch_rows: int) -> None:
    """However the batches were cut in which tasks have read on since then."""
    rows = sales(2_000)
    write_topic(tmp_path / "topics", "sales", rows, partitions=4, key="shop", timestamp="at")
    topology = Topology(
        [
            SubTopology("to-item", "sales", Morning, outputs=[BY_ITEM]),
            hourly().sub_topology("per-hour", "hours", topics=[BY_ITEM.spec]),
        ]
    )
    options = attrs.evolve(QUICK, max_batch_rows=max_batch_rows)
    application(tmp_path, topology, clients=2, options=options).run()
    written = rows.slice(0, int((rows.column("at").to_numpy() < DAY // 2).sum()))
    assert hours_of(tmp_path) == plain_hours(written, max(written.column("at").to_pylist()))


@pytest.mark.parametrize("checkpoint_every", [pytest.param(3, marks=pytest.mark.thorough), 1_000])
def test_windows_are_exact_over_runs_that_are_broken_off(tmp_path: Path, checkpoint_every: int) -> None:
    """Each time another coordinator sees how far all are, and a client is killed."""
    rows = sales(3_000)
    write_topic(tmp_path / "topics", "sales", rows, key="shop", partitions=4, timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=60, checkpoint_every_commits=checkpoint_every)
    for _ in range(4):
        app = application(tmp_path, windows_topology(), clients=2, options=options)
        commits: list[BatchesCommitted] = []
        pids: dict[str, int] = {}

        def break_off(event: RunEvent, commits: list[BatchesCommitted] = commits, pids: dict[str, int] = pids) -> bool:
            if isinstance(event, ClientJoined):
                pids[event.client] = event.pid
            if isinstance(event, BatchesCommitted):
                commits.append(event)
                if len(commits) == 6:
                    os.kill(max(pids.items())[1], signal.SIGKILL)
            # On a slow machine a commit has the batches of many tasks, and all may be read before.
            return len(commits) >= 15 or bool(commits and not commits[-1].remaining)

        app.run(until=break_off)
        if not commits[-1].remaining:
            break
    application(tmp_path, windows_topology(), clients=2, options=options).run()
    assert hours_of(tmp_path) == plain_hours(rows, max(rows.column("at").to_pylist()))


@pytest.mark.thorough
def test_windows_are_exact_in_a_run_that_goes_on(tmp_path: Path) -> None:
    """Rows come hour by hour; whoever has read its own may be an hour behind the next ones of others, as the grace allows."""
    rows = sales(2_400)
    hour = rows.column("at").to_numpy() // HOUR
    parts = [rows.filter(pa.array(hour == number)) for number in range(24)]
    write_topic(tmp_path / "topics", "sales", parts[0], key="shop", partitions=4, timestamp="at")
    left = parts[1:]
    topology = Topology(
        [
            SubTopology("to-item", "sales", Pass, outputs=[BY_ITEM]),
            attrs.evolve(hourly(), grace_ms=HOUR).sub_topology("per-hour", "hours", topics=[BY_ITEM.spec]),
        ]
    )
    read = 0

    def grows(event: RunEvent) -> bool:
        nonlocal read
        if isinstance(event, BatchesCommitted):
            read += sum(count for task, count in event.rows_by_task.items() if task.subtopology == 0)
            if left and read >= len(rows) - sum(map(len, left)):
                append_topic(tmp_path / "topics", "sales", left.pop(0))
        return read == len(rows)

    application(tmp_path, topology, clients=2).run(until=grows)
    application(tmp_path, topology, clients=2).run()
    assert hours_of(tmp_path) == plain_hours(rows, max(rows.column("at").to_pylist()) - HOUR)


def test_hours_that_are_over_come_out_in_partitions_that_are_quiet(tmp_path: Path) -> None:
    """One item is sold in the first hour only; nothing else comes into its partition, but time goes on there too."""
    rows = sales(600)
    quiet = pa.table({"shop": [1, 2], "item": ["rare"] * 2, "at": [5, 10], "amount": [3, 4]}, schema=SALES)
    rows = pa.concat_tables(
        [quiet, rows.filter(pa.array(np.isin(rows.column("item").to_pylist(), ["item-2", "item-5"])))]
    )
    topology = windows_topology()
    write_topic(tmp_path / "topics", "sales", rows, key="shop", partitions=4, timestamp="at")
    application(tmp_path, topology, clients=2).run()
    assert hours_of(tmp_path)["rare", 0] == (7, 2)
    assert hours_of(tmp_path) == plain_hours(rows, max(rows.column("at").to_pylist()))


def test_in_a_run_that_goes_on_hours_come_out_in_partitions_that_are_quiet(tmp_path: Path) -> None:
    """Only who got rows was told what time it was: windows stayed open for as long as none came into their partition."""
    rows = sales(600)
    quiet = pa.table({"shop": [1, 2], "item": ["rare"] * 2, "at": [5, 10], "amount": [3, 4]}, schema=SALES)
    often = rows.filter(pa.array(np.isin(rows.column("item").to_pylist(), ["item-2", "item-5"])))
    write_topic(tmp_path / "topics", "sales", quiet, key="shop", partitions=4, timestamp="at")
    limit = time.monotonic() + 60
    is_out = has_more = False

    def come_out(event: RunEvent) -> bool:
        nonlocal is_out, has_more
        if isinstance(event, BatchesCommitted):
            windows = sum(task.subtopology == 1 for task in event.batches)
            if windows and not has_more:
                has_more = True
                append_topic(tmp_path / "topics", "sales", often)
            elif windows and event.rows_out:
                is_out = ("rare", 0) in hours_of(tmp_path)
        return is_out or time.monotonic() > limit

    application(tmp_path, windows_topology(), clients=2).run(until=come_out)
    assert is_out
    assert hours_of(tmp_path)["rare", 0] == (7, 2)


@pytest.mark.thorough
def test_in_a_run_that_goes_on_others_are_waited_for_as_sources_are(tmp_path: Path) -> None:
    """Partitions get their rows one after the other, six hours at a time: `max.task.idle.ms` is what it takes, in place of a grace."""
    rows = sales(1_200)
    quarter, part = rows.column("at").to_numpy() // (6 * HOUR), partitions_of(rows, ["shop"], 4)
    parts = [rows.filter(pa.array((quarter == number) & (part == one))) for number in range(4) for one in range(4)]
    write_topic(tmp_path / "topics", "sales", rows.slice(0, 0), key="shop", partitions=4, timestamp="at")
    left, read, given = parts, 0, 0

    def grows(event: RunEvent) -> bool:
        nonlocal read, given
        if isinstance(event, BatchesCommitted):
            read += sum(count for task, count in event.rows_by_task.items() if task.subtopology == 0)
        if left and read >= given:
            append_topic(tmp_path / "topics", "sales", left[0])
            given += len(left.pop(0))
        return read == len(rows)

    options = attrs.evolve(QUICK, max_task_idle_ms=60_000)
    result = application(tmp_path, windows_topology(), clients=2, options=options).run(until=grows)
    assert not result.late_records
    application(tmp_path, windows_topology(), clients=2).run()
    assert hours_of(tmp_path) == plain_hours(rows, max(rows.column("at").to_pylist()))


@pytest.mark.thorough
def test_a_later_run_goes_on_where_the_time_was(tmp_path: Path) -> None:
    rows = sales(2_000)
    first, second = rows.slice(0, 1_200), rows.slice(1_200)
    write_topic(tmp_path / "topics", "sales", first, key="shop", partitions=4, timestamp="at")
    application(tmp_path, windows_topology()).run()
    assert hours_of(tmp_path) == plain_hours(first, max(first.column("at").to_pylist()))
    append_topic(tmp_path / "topics", "sales", second)
    application(tmp_path, windows_topology()).run()
    assert hours_of(tmp_path) == plain_hours(rows, max(rows.column("at").to_pylist()))
    commits = len(list(CommitLog(tmp_path / "run").records()))
    assert application(tmp_path, windows_topology()).run().rows_in == 0
    tasks = [record.tasks for record in list(CommitLog(tmp_path / "run").records())[commits:]]
    assert not any(tasks), "who knows the time is not told again"


@pytest.mark.parametrize("max_batch_rows", [pytest.param(60, marks=pytest.mark.thorough), 100_000])
@pytest.mark.parametrize("prices_by", ["topic", "repartition"])
def test_an_outer_join_with_what_many_have_written_is_exact(
    tmp_path: Path, prices_by: str, max_batch_rows: int
) -> None:
    """The other side is a topic with the same partitions, or a repartition topic as well."""
    sold = sales(800)
    random = np.random.default_rng(7)
    schema = pa.schema([("item", pa.string()), ("day", pa.int64()), ("since", pa.int64()), ("price", pa.int64())])
    prices = pa.table(
        {
            "item": [f"item-{number}" for number in random.integers(0, 9, 400)],
            "day": random.integers(0, 5, 400),
            "since": np.sort(random.integers(0, DAY, 400)),
            "price": np.arange(400),
        },
        schema=schema,
    )
    write_topic(tmp_path / "topics", "sales", sold, key="shop", partitions=4, timestamp="at")
    by_item = attrs.evolve(BY_ITEM, partitions=3)
    subs = [SubTopology("to-item", "sales", Pass, outputs=[by_item])]
    if prices_by == "topic":
        write_topic(tmp_path / "topics", "prices", prices, key="item", partitions=3, timestamp="since")
    else:
        write_topic(tmp_path / "topics", "prices-by-day", prices, key="day", partitions=2, timestamp="since")
        repartitioned = Repartitioned("prices", schema, key="item", partitions=3, timestamp="since")
        subs.append(SubTopology("to-price", "prices-by-day", Pass, outputs=[repartitioned]))
    join = WindowedJoin(
        left="by-item",
        right="prices",
        before_ms=HOUR // 6,
        after_ms=HOUR // 6,
        how="outer",
        left_grace_ms=0,
        right_grace_ms=0,
    )
    subs.append(join.sub_topology("join", "priced"))
    options = attrs.evolve(QUICK, max_batch_rows=max_batch_rows)
    application(tmp_path, Topology(subs), clients=2, options=options).run()
    # A row comes out when those of the other side are over; beside a topic the newest time of both counts.
    newest, newest_price = max(sold.column("at").to_pylist()), max(prices.column("since").to_pylist())
    assert newest > newest_price
    now = newest if prices_by == "topic" else newest_price
    expected = []
    for left in sold.to_pylist():
        near = [
            right
            for right in prices.to_pylist()
            if right["item"] == left["item"] and abs(right["since"] - left["at"]) <= HOUR // 6
        ]
        expected += [(left["at"], right["price"]) for right in near]
        expected += [(left["at"], None)] * (not near and left["at"] + HOUR // 6 < now)
    for right in prices.to_pylist():
        near = [
            one
            for one in sold.to_pylist()
            if one["item"] == right["item"] and abs(one["at"] - right["since"]) <= HOUR // 6
        ]
        expected += [(None, right["price"])] * (not near and right["since"] + HOUR // 6 < newest)
    rows = read_output(tmp_path / "run", "priced").to_pylist()
    assert sorted(((row["at"], row["price"]) for row in rows), key=str) == sorted(expected, key=str)


def test_windows_of_windows_are_exact(tmp_path: Path) -> None:
    """Rows of closed hours are an hour and more behind what their task has read; that is learnt from them."""
    rows = sales(3_000)
    topic = write_topic(tmp_path / "topics", "sales", rows, key="shop", partitions=4, timestamp="at")
    hours = WindowedAggregation(
        source="sales", windows=TimeWindows(HOUR), by=["shop"], aggregates={"amount": Aggregate.sum("amount")}
    )
    schema = pa.schema(
        [("shop", pa.int64()), ("window_start", pa.int64()), ("window_end", pa.int64()), ("amount", pa.int64())]
    )
    between = Repartitioned("hours", schema, key="window_start", partitions=2, timestamp="window_start")
    sizes = pa.schema([*schema, ("all", pa.int64())])
    together = Repartitioned("together", sizes, key="all", partitions=1, timestamp="window_start")
    topology = Topology(
        [
            hours.sub_topology("hours-of-shops", between, topics=[topic.spec]),
            SubTopology("to-one", "hours", AllTogether, outputs=[together]),
            WindowedAggregation(
                source="together", windows=TimeWindows(6 * HOUR), aggregates={"amount": Aggregate.sum("amount")}
            ).sub_topology("quarters", "quarter-days", topics=[together.spec]),
        ]
    )
    application(tmp_path, topology, clients=2).run()
    found = {row["window_start"]: row["amount"] for row in read_output(tmp_path / "run", "quarter-days").to_pylist()}
    expected: dict[int, int] = defaultdict(int)
    for row in rows.to_pylist():
        expected[row["at"] // (6 * HOUR) * 6 * HOUR] += row["amount"]
    assert found == {start: expected[start] for start in (0, 6 * HOUR, 12 * HOUR)}


class AllTogether(Processor):
    """Gives rows one key."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows of the only source, with a column that is the same in all."""
        (rows,) = batch.values()
        return rows.append_column("all", pa.array([0] * rows.num_rows))


# What is known of those who write.


def move(time: TopicTime, *busy: bool) -> int:
    time.move(np.array(busy))
    return time.now


def test_who_has_something_to_read_and_has_written_nothing_holds_all_back() -> None:
    time = TopicTime(Writers(2))
    time.see(0, (100, None), (10, 100))
    assert move(time, True, True) == NO_TIME
    assert move(time, True, False) == 100, "who has read everything holds nobody back"
    time.see(1, (30, None), (5, 30))
    assert move(time, True, True) == 100, "it never goes back"


def test_of_who_writes_seldom_it_counts_how_far_it_has_read() -> None:
    time = TopicTime(Writers(2))
    time.see(0, (100, None), (10, 100))
    time.see(1, (20, None), (20, 20))
    assert move(time, True, True) == 20
    time.see(1, (70, None), None)
    assert move(time, True, True) == 20, "nobody has shown yet by how much rows are behind"
    time.see(0, (120, None), (95, 120))
    assert move(time, True, True) == 65, "a row was 5 ms older than what its task had read before"
    time.see(0, (300, None), (120, 300))
    time.see(1, (200, None), None)
    assert move(time, True, True) == 195


def test_no_time_is_later_than_that_of_the_newest_row() -> None:
    """Else it would hang on where batches end, and with it which windows come out at the end of a run."""
    time = TopicTime(Writers(1))
    time.see(0, (2, None), None)
    time.see(0, (5, None), (3, 3))
    assert move(time, True) == 3
    time.see(0, (8, None), None)
    assert move(time, True) == 3
    assert move(time, False) == 3


def test_of_who_tells_how_old_its_rows_may_still_be_that_alone_counts() -> None:
    time = TopicTime(Writers(2, they_tell=True))
    time.see(0, (100, None), (60, 90), 50)
    assert move(time, True, True) == NO_TIME
    time.see(1, (300, None), None, 250)
    assert move(time, True, True) == 50, "rows of windows are held back, and not in the order of time"
    time.see(0, (120, None), (60, 90), 40)
    assert move(time, True, False) == 50, "what was told under another grace holds as well"
    again = TopicTime(Writers(2, they_tell=True))
    again.load(time.saved())
    assert move(again, True, True) == 50
    assert move(again, False, False) == 250, "who has read everything holds nobody back"
    former = TopicTime(Writers(2, they_tell=True))
    former.load((50, 90, 280))
    assert move(former, True, True) == NO_TIME, "what former versions have saved is what was written"


def test_of_who_is_given_rows_as_they_come_not_what_it_has_written_counts() -> None:
    time = TopicTime(Writers(1, are_in_order=False))
    time.see(0, (500, 10), (10, 500))
    assert move(time, True) == NO_TIME
    time.see(0, (600, 20), (10, 500))
    assert move(time, True) == 20
    assert move(time, False) == 500, "when all is read, it is in order by then"


def test_what_is_saved_is_what_is_known() -> None:
    time, again = TopicTime(Writers(2)), TopicTime(Writers(2))
    time.see(0, (100, None), (10, 100))
    time.see(0, (120, None), (95, 120))
    again.load(time.saved())
    for found in (time, again):
        found.see(0, (120, None), None)
        found.see(1, (40, None), None)
        assert move(found, True, True) == 35
    other = TopicTime(Writers(3))
    other.load(time.saved())
    assert other.saved() == (None,) * 4, "of other tasks it says nothing"


BATCHES = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=4)), max_size=40)


@given(BATCHES, st.booleans(), st.data())
def test_nothing_is_late_whoever_comes_first_and_in_the_end_the_time_is_the_newest(
    batches: list[tuple[int, list[int]]], are_files: bool, data: st.DataObject
) -> None:
    """Four tasks read records at 0, 1, 2 and so on, and give some of them to one of three partitions, each in its own time."""
    left = {task: [found for number, found in batches if number == task] for task in range(4)}
    tasks = [TaskId(0, task) for task in left]
    readers = [TaskId(1, number) for number in range(3)]
    sources: dict[TaskId, tuple[str, ...]] = {**dict.fromkeys(tasks, ("x",)), **dict.fromkeys(readers, ("r",))}
    ends = [3 * len(found) for found in left.values()]
    where: Any = {"partitions": {"r": 3}} if are_files else {"elsewhere": {"r": [0, 0, 0]}}
    known = Repartitions(writers={"r": (None, 0)}, timed={"r": Writers(4)}, **where)
    progress = Progress(sources, {"x": ends}, (), {"x": [0] * 4, "r": [0] * 3}, known)
    rows: list[list[int]] = [[], [], []]
    newest = done = 0
    while any(left.values()):
        together = data.draw(st.sets(st.sampled_from([task for task in left if left[task]]), min_size=1))
        commits = {}
        for task in sorted(together):
            count = data.draw(st.integers(1, len(left[task])))
            batch = [found for part in left[task][:count] for found in part]
            del left[task][:count]
            position = progress.position(TaskId(0, task))
            first = progress.offsets("x")[task]
            times = [first + number for number in range(min(3 * count, len(batch)))]
            routed = [
                [time for time, place in zip(times, batch, strict=False) if place == number] for number in range(3)
            ]
            for there, more in zip(rows, routed, strict=True):
                there += more
            written = {}
            if times:
                newest = max(newest, *times)
                counts = tuple(map(len, routed))
                file = FileRef(f"{done}/{task}", Seal(len(times), 1, "")) if are_files else FileRef.of_topic("r", 1, 1)
                span = (min(times), max(times))
                written = {"r": RoutedFile(file, counts if are_files else (), tuple(map(len, rows)), span)}
            commit = TaskCommit(
                TaskId(0, task),
                position.batch + 1,
                "c",
                "p",
                "m",
                "a",
                1,
                {"x": (first, first + 3 * count)},
                stream_time=first + 3 * count - 1,
                repartitions=written,
            )
            progress.advance(commit)
            commits[commit.task] = commit
        progress.begin_commit(done)
        progress.publish(CommitRecord(done, "app", 1, 1, 0, commits))
        done += 1
        for number, reader in enumerate(readers):
            ranges, _ = progress.next_ranges(reader, data.draw(st.integers(1, 9)))
            reads = data.draw(st.booleans())
            if ranges and reads:
                steps = progress.times(reader, ranges)["r"]
                assert [*steps] == sorted(steps, key=lambda step: step[1])
                start, end = ranges["r"]
                for offset in range(start, end):
                    then = max((found for first, found in steps if first <= offset), default=-1)
                    assert rows[number][offset] >= then, "a row is late"
                here = max((found for _, found in steps), default=None)
                before = progress.position(reader)
                told = {} if here is None else {"r": here}
                progress.advance(
                    TaskCommit(reader, before.batch + 1, "c", "p", "m", "a", 1, {"r": (start, end)}, times=told)
                )
    for number, reader in enumerate(readers):
        before = progress.position(reader)
        ranges, _ = progress.next_ranges(reader, 1_000)
        if ranges:
            here = max((found for _, found in progress.times(reader, ranges)["r"]), default=None)
            assert here == newest
            commit = TaskCommit(reader, before.batch + 1, "c", "p", "m", "a", 1, ranges, times={"r": newest})
            progress.advance(commit)
            assert not progress.has_news(reader)
        else:
            assert before.batch < 0 or progress.saved().tasks[reader].times == {"r": newest}
        assert len(rows[number]) == progress.offsets("r")[number]


def test_time_is_told_where_windows_are_and_is_that_of_rows_with_times() -> None:
    """Others are told nothing, so they make no batch for it; nor is there anything to tell of rows without times."""
    sales_of = TopicSpec("sales", 4, SALES, "shop", "at")
    tasks = [TaskId(0, number) for number in range(4)]
    copied = Aggregation(source="by-item", aggregates={"n": Aggregate.count()}).sub_topology(
        "count", "counts", topics=[BY_ITEM.spec]
    )
    to_item = SubTopology("to-item", "sales", Pass, outputs=[BY_ITEM])
    again = attrs.evolve(BY_ITEM, name="again", partitions=2)
    chain = [to_item, SubTopology("on", "by-item", Pass, outputs=[again])]
    windows = hourly("again").sub_topology("per-hour", "hours", topics=[again.spec])
    assert Topology([to_item, copied]).timed({"sales": sales_of}, tasks) == {}
    assert windows_topology().timed({"sales": sales_of}, tasks) == {"by-item": Writers(4)}
    tasks += [TaskId(1, number) for number in range(3)]
    expected = {"by-item": Writers(4), "again": Writers(3, are_in_order=False)}
    assert Topology([*chain, windows]).timed({"sales": sales_of}, tasks) == expected
    assert Topology([*chain, windows]).timed({"sales": attrs.evolve(sales_of, timestamp=None)}, tasks) == {}
    hours = attrs.evolve(BY_ITEM, name="hours-of", schema=None, timestamp="window_start")
    of_windows = [
        attrs.evolve(hourly("sales"), by=["shop", "item"], grace_ms=5).sub_topology("hours", hours, topics=[sales_of]),
        WindowedJoin(
            left="hours-of", right="prices", before_ms=1, after_ms=2, left_grace_ms=0, right_grace_ms=0
        ).sub_topology("join", "joined"),
    ]
    prices = TopicSpec("prices", 3, SALES, "item", None)
    assert Topology(of_windows).timed({"sales": sales_of, "prices": prices}, tasks) == {
        "hours-of": Writers(4, they_tell=True)
    }
