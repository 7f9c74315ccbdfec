"""A task reads its sources in the order of time: what comes of it does not depend on where batches are cut."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    InvalidTransitionException,
    KeyValueStoreSpec,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    SubTopology,
    TaskContext,
    Topic,
    Topology,
    TopologyException,
    write_topic,
)
from task_assignor.runtime.machines.client.task import Restore
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.protocol import START, TaskOrder
from task_assignor.runtime.machines.records import TaskCommit
from task_assignor.runtime.tasks.task import StreamTask, TaskEnvironment
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.topics.fetched import Fetched
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.context import Schedule
from task_assignor.runtime.topology.topology import ProcessorTopology
from task_assignor.sdk import TaskId
from tests.budget import examples
from tests.runtime.test_merging import by_heads

TASK = TaskId(0, 0)
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
Sources = dict[str, list[int | None]]
sources_of_times = st.fixed_dictionaries(
    {name: st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=1, max_size=15) for name in ("a", "b", "c")}
)


class Sequence(RecordProcessor):
    """Numbers the records in the order in which they come, across batches, and remembers the hours of its clock."""

    def init(self, context: TaskContext) -> None:
        """Be called every 10 ms of stream time."""
        context.schedule(10, "stream_time", lambda time: self._punctuate(time, context))

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """The record with its number and the time of the task."""
        return [{"number": self._next(context), "what": f"{topic}{record['n']} at {context.stream_time}"}]

    def _punctuate(self, time: int, context: TaskContext) -> pa.Table:
        return pa.table({"number": [self._next(context)], "what": [f"time {time}"]})

    @staticmethod
    def _next(context: TaskContext) -> int:
        store = context.key_value_store("last")
        number: int = (store.get(0) or {"number": 0})["number"] + 1
        store.put(0, {"number": number})
        return number


class Bench:
    """A task on real files whose batches are cut as the coordinator does it."""

    def __init__(self, root: Path, sources: Sources, tables: tuple[str, ...] = ()) -> None:
        self.root = root
        for name, times in sources.items():
            rows = pa.table([[0] * len(times), pa.array(times, pa.int64()), list(range(len(times)))], schema=SCHEMA)
            write_topic(root / "topics", name, rows, partitions=1, key=["k"], timestamp="at")
        store = KeyValueStoreSpec("last", pa.schema([("k", pa.int64())]), pa.schema([("number", pa.int64())]))
        schema = pa.schema([("number", pa.int64()), ("what", pa.string())])
        self.sub = SubTopology("s", tuple(sources), Sequence, [store], [Output("out", schema)], tables)
        Topology(self.sub)
        self.topics = {name: Topic.open(root / "topics", name) for name in sources}
        ends = {name: [len(times)] for name, times in sources.items()}
        self.progress = Progress({TASK: self.sub.sources}, ends, tables)
        self.task = self.new_task()
        self.seen: list[str] = []
        self.batches = 0

    def new_task(self) -> StreamTask:
        """As on another client: without state."""
        environment = TaskEnvironment("app", "run", self.root / "run", self.root / "state", self.topics)
        return StreamTask(TASK, ProcessorTopology((self.sub,), {}), environment)

    def step(self, max_rows: int) -> bool:
        """One batch; False: all is read."""
        ranges, more = self.progress.next_ranges(TASK, max_rows)
        if not ranges:
            return False
        base = self.progress.position(TASK)
        result = self.task.process(TaskOrder(TASK, base.batch + 1, 1, ranges, base, more))
        assert any(result.offsets[topic][1] == ranges[topic][1] > ranges[topic][0] for topic in ranges)
        for file in result.outputs.values():
            table = pa.ipc.open_file(str(self.root / "run" / file.path)).read_all()
            rows = sorted(table.to_pylist(), key=lambda row: row["number"])
            assert [row["number"] for row in rows] == list(range(len(self.seen) + 1, len(self.seen) + len(rows) + 1))
            self.seen += [row["what"] for row in rows]
        commit = TaskCommit(
            *(TASK, result.batch, "c", "p", "m", "a", 1, result.offsets, {}, result.changelogs),
            stream_time=result.position.stream_time,
        )
        self.progress.advance(commit)
        self.batches += 1
        return True

    def move(self) -> None:
        """The task is restored elsewhere."""
        self.task = self.new_task()
        self.task.restore(Restore(START, self.progress.recovery(TASK), self.progress.position(TASK)))


def _expected(sources: Sources, interval: int) -> list[str]:
    names, found, now = list(sources), [], None
    for source, row in by_heads(list(sources.values())):
        time = sources[names[source]][row]
        new = now if time is None else time if now is None else max(now, time)
        found.append(f"{names[source]}{row} at {new}")
        if new is not None and (now is None or new // interval > now // interval):
            found.append(f"time {new}")
        now = new
    return found


@given(sources_of_times, st.data())
@settings(max_examples=examples(40))
def test_records_and_punctuations_come_in_one_order_whatever_batches_and_restores_are(
    sources: Sources, data: st.DataObject
) -> None:
    """Any processor that looks at records in order gives the same: this one numbers them, and looks at the time of the task, which was
    that before its batch.
    """
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), sources)
        while bench.step(data.draw(st.integers(1, 9))):
            if data.draw(st.booleans()):
                bench.move()
        assert bench.seen == _expected(sources, 10)


def test_tables_are_read_to_their_end_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [1, 2, 3], "t": [50, 40, 60, 70]}, ("t",))
    while bench.step(2):
        pass
    records = [f"t{row} at None" for row in range(4)] + ["a0 at 1", "time 1", "a1 at 2", "a2 at 3"]
    assert bench.seen == records, "and do not move the time"


def test_a_source_far_behind_is_read_alone_until_it_has_caught_up(tmp_path: Path) -> None:
    """The rows that are loaded and not consumed are loaded again: of each source at most the given number is."""
    bench = Bench(tmp_path, {"a": list(range(100)), "b": [200 + number for number in range(100)]})
    while bench.step(10):
        pass
    assert bench.batches == 19, "the last rows of a come together with the first of b"
    assert [what.split()[0] for what in bench.seen if not what.startswith("time")] == [
        f"{name}{row}" for name in "ab" for row in range(100)
    ]


class Ticks(Processor):
    """Counts the calls by the clock."""

    def init(self, context: TaskContext) -> None:
        """Twice a minute."""
        context.schedule(30_000, "wall_clock_time", lambda time: pa.table({"number": [time], "what": ["tick"]}))

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Nothing else."""


@pytest.mark.parametrize("hours", [0, -1, 1])
def test_schedules_by_the_clock_are_looked_at_before_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Also when somebody sets the clock on the wall: set back by an hour, it was silent for an hour."""
    bench = Bench(tmp_path, {"a": [1, 2, 3, 4, 5]})
    bench.sub = attrs.evolve(bench.sub, processor=Ticks)
    bench.task = bench.new_task()
    times = {0: 1_000, 1: 30_999, 2: 31_000, 3: 200_000, 4: 229_999}
    outputs = []
    for batch, elapsed in times.items():
        set_by, seconds = 3_600 * hours * (batch > 0), elapsed / 1_000
        clocks = {"monotonic": lambda now=seconds: now, "time": lambda now=10_000 + seconds + set_by: now}
        monkeypatch.setattr(
            "task_assignor.runtime.tasks.task_processors.time", SimpleNamespace(**{**vars(time), **clocks})
        )
        base = bench.progress.position(TASK)
        order = TaskOrder(
            TASK,
            batch,
            1,
            {"a": (batch, batch + 1)},
            msgspec.structs.replace(base, batch=batch - 1, generation=int(batch > 0)),
        )
        result = bench.task.process(order)
        for file in result.outputs.values():
            outputs += pa.ipc.open_file(str(tmp_path / "run" / file.path)).read_all().column("number").to_pylist()
    assert outputs == [10_031_000 + 3_600_000 * hours, 10_200_000 + 3_600_000 * hours]


class NeverReady(Ticks):
    """Cannot begin."""

    def init(self, context: TaskContext) -> None:
        """A mistake."""
        raise ValueError("no licence")


def test_a_processor_that_cannot_begin_has_failed_before_its_rows(tmp_path: Path) -> None:
    """There stood an empty pair of brackets."""
    bench = Bench(tmp_path, {"a": [1]})
    bench.sub = attrs.evolve(bench.sub, processor=NeverReady)
    bench.task = bench.new_task()
    with pytest.raises(ProcessorException, match=r"task 0_0, batch 0 \(before its rows\): ValueError: no licence"):
        bench.step(1)


def test_what_cannot_be_scheduled_is_refused() -> None:
    context = TaskContext("app", TASK, {}, (), {})
    for interval, kind, message in (
        (0, "stream_time", "interval_ms"),
        (2**64, "stream_time", "interval_ms"),
        (5, "moon", "'stream_time' or"),
        (5, "stream_time", "callable"),
    ):
        with pytest.raises(TopologyException, match=message):
            context.schedule(interval, kind, None)  # type: ignore[arg-type]
    context.begin(0, {})
    with pytest.raises(InvalidTransitionException, match=r"only init\(\) may ask\.$"):
        context.schedule(5, "stream_time", lambda time: None)


class Hidden:
    """A log of which nothing from an offset on can be read yet."""

    def __init__(self, times: list[int], hidden_from: int) -> None:
        self.spec = TopicSpec("log", 1, SCHEMA, "k", "at")
        self.times, self.hidden_from = times, hidden_from

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:
        """Rows up to there."""
        upto = min(end, max(start, self.hidden_from))
        times = self.times[start:upto]
        rows = pa.table([[0] * len(times), pa.array(times, pa.int64()), list(range(start, upto))], schema=SCHEMA)
        return Fetched(rows, range(start, upto), None if upto == end else upto)


class Growing:
    """A log that has more than was ordered."""

    def __init__(self, times: list[int]) -> None:
        self.spec = TopicSpec("log", 1, SCHEMA, "k", "at")
        self.times = times

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:
        """Rows up to the limit."""
        upto = max(end, min(limit, len(self.times)))
        times = self.times[start:upto]
        rows = pa.table([[0] * len(times), pa.array(times, pa.int64()), list(range(start, upto))], schema=SCHEMA)
        return Fetched(rows, range(start, upto), None if upto == end else upto)


@pytest.mark.parametrize(
    ("at_most", "others", "read"),
    [
        (0, [2, 4, 6], {"a": 2, "b": 1}),
        (4, [2, 4, 6], {"a": 3, "b": 3}),
        (3, [2, 4, 6], {"a": 3, "b": 2}),
        (4, [2], {"a": 2, "b": 1}),
        (4, [9, 9, 9], {"a": 4, "b": 1}),
    ],
)
def test_what_has_come_since_the_order_is_read_as_far_as_nothing_comes_before_it(
    at_most: int, others: list[int], read: dict[str, int]
) -> None:
    """With fifty tasks on a thread each row waited for two turns of its task, or nearly."""
    logs: dict[str, Any] = {"a": Growing([1, 3, 5, 7]), "b": Growing(others)}
    order = TaskOrder(TASK, 0, 1, {"a": (0, 2), "b": (0, 1)}, START, at_most=at_most)
    found = TaskInput.read(order, ["a", "b"], (), logs)
    assert {topic: rows.num_rows for topic, rows in found.rows.items()} == read
    assert {topic: end for topic, (_, end) in found.offsets.items()} == read
    assert not found.is_short


@pytest.mark.parametrize(
    ("hidden_from", "read"),
    [(0, {"a": 0, "b": 0}), (1, {"a": 1, "b": 0}), (2, {"a": 2, "b": 2}), (4, {"a": 4, "b": 4})],
)
def test_what_comes_after_rows_that_cannot_be_read_yet_waits_for_them(hidden_from: int, read: dict[str, int]) -> None:
    """As if more of them would come: a source beside them is read as far as their times reach, and none if there are none."""
    logs: dict[str, Any] = {"a": Hidden([1, 3, 5, 7], hidden_from), "b": Hidden([1, 2, 4, 6], 4)}
    order = TaskOrder(TASK, 0, 1, {"a": (0, 4), "b": (0, 4)}, START)
    found = TaskInput.read(order, ["a", "b"], (), logs)
    assert {topic: end for topic, (_, end) in found.offsets.items()} == read
    assert {topic: rows.num_rows for topic, rows in found.rows.items()} == read
    assert found.is_short == (hidden_from < 4)


def test_offsets_of_what_is_derived_are_found_once_however_often_a_batch_is_cut() -> None:
    """They were for each part: 131 072 rows cut at 2 000 punctuations took 23 s."""
    found = 0

    class Counting:
        def __getitem__(self, part: slice) -> range:
            return range(100)[part]

        def __len__(self) -> int:
            return 100

        def __array__(self, *_: Any, **__: Any) -> Any:
            nonlocal found
            found += 1
            return np.arange(100)

    rows = pa.table({"n": np.arange(100)})
    places = np.arange(0, 100, 3)
    derived = {"d": ("s", places, rows.take(pa.array(places)))}
    offsets: Any = {"s": Counting()}
    batch = TaskInput({"s": rows}, {"s": np.arange(100)}, (), {"s": (0, 100)}, offsets, derived)
    parts = list(batch.parts(None, [Schedule(10, "stream_time", lambda _: None)]))
    assert [list(part.row_offsets["d"]) for part in parts] == [part.rows["d"].column("n").to_pylist() for part in parts]
    assert (len(parts), found) == (11, 1)
