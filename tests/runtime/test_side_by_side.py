"""Sub-topologies that read a topic together: one task computes them, and each gives what it gives alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    DeadLetters,
    KeyValueStoreSpec,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    Repartitioned,
    StreamTableJoin,
    SubTopology,
    TableJoin,
    TaskContext,
    TimeWindows,
    Topic,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
    write_topic,
)
from task_assignor.runtime.machines.client.task import Restore
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.protocol import START, Change, Recovery, TaskOrder
from task_assignor.runtime.machines.records import TaskCommit
from task_assignor.runtime.tasks import task_processors
from task_assignor.runtime.tasks.task import StreamTask, TaskEnvironment
from task_assignor.runtime.tasks.task_processors import may_schedule
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import StreamsException, TaskId
from tests.budget import examples
from tests.runtime.support import application

TASK = TaskId(0, 0)
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
OUT = pa.schema([("number", pa.int64()), ("what", pa.string())])
Sources = Mapping[str, list[int | None]]


class Told(RecordProcessor):
    """Numbers what it is told, across batches: records, and the hours of its clock."""

    name, interval_ms = "a", 10

    def init(self, context: TaskContext) -> None:
        """Be called by stream time."""
        self.context = context
        context.schedule(self.interval_ms, "stream_time", self.tell)

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """The record with its number."""
        return [self.numbered(f"{topic}{record['n']}")]

    def tell(self, time: int) -> list[Mapping[str, Any]]:
        """The time with its number."""
        return [self.numbered(f"time {time}")]

    def numbered(self, what: str) -> Mapping[str, Any]:
        """The next row."""
        store = self.context.key_value_store(f"last-{self.name}")
        number = (store.get(0) or {"number": 0})["number"] + 1
        store.put(0, {"number": number})
        return {"number": number, "what": what}


class ToldToo(Told):
    """The same at other times."""

    name, interval_ms = "b", 7


def told(kind: type[Told], *sources: str, **more: Any) -> SubTopology:
    """Such a sub-topology."""
    store = KeyValueStoreSpec(f"last-{kind.name}", pa.schema([("k", pa.int64())]), pa.schema([("number", pa.int64())]))
    return SubTopology(kind.name, sources, kind, [store], [Output(f"out-{kind.name}", OUT)], **more)


def specs() -> list[TopicSpec]:
    """What the sources are like."""
    return [TopicSpec(name, 1, SCHEMA, ("k",), "at") for name in "xyz"]


def run_task(root: Path, topology: Topology, sources: Sources, cuts: Iterable[int]) -> dict[str, list[dict[str, Any]]]:
    """What each output of the only task has, whose batches have so many rows at most; before negative ones it is restored."""
    logs = {}
    for name, times in sources.items():
        rows = pa.table([[0] * len(times), pa.array(times, pa.int64()), list(range(len(times)))], schema=SCHEMA)
        write_topic(root / "topics", name, rows, partitions=1, key=["k"], timestamp="at")
        logs[name] = Topic.open(root / "topics", name)
    what = topology.of_task(TASK)
    progress = Progress({TASK: what.sources}, {name: [len(sources[name])] for name in what.sources}, what.tables)
    task = StreamTask(TASK, what, TaskEnvironment("app", "run", root / "run", root / "state", logs))
    found: dict[str, list[dict[str, Any]]] = {output.name: [] for output in what.outputs}
    most = [*cuts]
    while True:
        ranges, more = progress.next_ranges(TASK, abs(most[0]))
        if most[0] < 0:
            # Another client takes it over.
            task = StreamTask(TASK, what, TaskEnvironment("app", "run", root / "run", root / f"{len(most)}", logs))
            task.restore(Restore(START, progress.recovery(TASK), progress.position(TASK)))
        most.append(most.pop(0))
        if not ranges:
            break
        base = progress.position(TASK)
        result = task.process(TaskOrder(TASK, base.batch + 1, 1, ranges, base, more))
        for name, file in result.outputs.items():
            found[name] += pa.ipc.open_file(str(root / "run" / file.path)).read_all().to_pylist()
        commit = TaskCommit(
            *(TASK, result.batch, "c", "p", "m", "a", 1, result.offsets, {}, result.changelogs),
            stream_time=result.position.stream_time,
        )
        progress.advance(commit)
    task.close()
    return found


def told_in_order(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """What each was told."""
    return {name: [row["what"] for row in sorted(rows, key=lambda row: row["number"])] for name, rows in found.items()}


times = st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=1, max_size=12)


@given(st.fixed_dictionaries(dict.fromkeys("xyz", times)), st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(max_examples=examples(15), deadline=None)
@pytest.mark.thorough
def test_each_is_told_what_it_is_told_whatever_the_batches_are(sources: Sources, cuts: list[int]) -> None:
    """Their records and the times of the task; batches are cut for each of them."""
    topology = Topology([told(Told, "x", "y"), told(ToldToo, "y", "z")])
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        whole = told_in_order(run_task(Path(one), topology, sources, [1_000]))
        assert told_in_order(run_task(Path(two), topology, sources, cuts)) == whole
    for name, own in (("out-a", "xy"), ("out-b", "yz")):
        records = [what for what in whole[name] if not what.startswith("time")]
        assert sorted(records) == sorted(f"{topic}{row}" for topic in own for row in range(len(sources[topic])))
    newest = max((time for found in sources.values() for time in found if time is not None), default=None)
    if newest is not None:
        last = [[what for what in whole[name] if what.startswith("time")][-1] for name in whole]
        assert all(newest // step == int(what[5:]) // step for what, step in zip(last, (10, 7), strict=True))


@given(times, st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(max_examples=examples(10), deadline=None)
def test_beside_one_with_the_same_sources_each_gives_what_it_gives_alone(
    found: list[int | None], cuts: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both, one, other = (Path(folder) / name for name in ("both", "one", "other"))
        together = run_task(both, Topology([told(Told, "x"), told(ToldToo, "x")]), {"x": found}, cuts)
        alone = run_task(one, Topology([told(Told, "x")]), {"x": found}, [1_000])
        alone |= run_task(other, Topology([told(ToldToo, "x")]), {"x": found}, [1_000])
    assert told_in_order(together) == told_in_order(alone)


def ready_made(how: str) -> dict[str, SubTopology]:
    """Ready-made ones that share their sources in all ways."""
    skip: Any = {"late_records": "skip", "bad_records": "skip", "late_limit_ms": None}
    grace: Any = {"left_grace_ms": 3, "right_grace_ms": 3}
    count = {"rows": Aggregate.count(), "sum": Aggregate.sum("n")}
    windows = WindowedAggregation(source="x", windows=TimeWindows(10), aggregates=count, grace_ms=3, **skip)
    return {
        "count": Aggregation(source="x", aggregates=count).sub_topology("count", "count", topics=specs()),
        "windows": windows.sub_topology("windows", "windows", topics=specs()),
        "xy": WindowedJoin(left="x", right="y", before_ms=5, after_ms=5, how=how, **grace, **skip).sub_topology(
            "xy", "xy"
        ),
        "yx": WindowedJoin(left="x", right="y", before_ms=0, after_ms=9, **grace, **skip).sub_topology("yx", "yx"),
        "back": WindowedJoin(left="y", right="x", before_ms=5, after_ms=0, how=how, **grace, **skip).sub_topology(
            "back", "back"
        ),
        "lookup": StreamTableJoin(stream="x", table="z", how="left").sub_topology("lookup", "lookup", topics=specs()),
        "tables": TableJoin(left="z", right="y", how="outer").sub_topology("tables", "tables", topics=specs()),
    }


def _told_by(name: str, rows: list[dict[str, Any]]) -> list[Any]:
    """What does not hang on batches."""
    return rows[-1:] if name == "count" else sorted(rows, key=repr)


@given(
    st.fixed_dictionaries(dict.fromkeys("xyz", times)),
    st.permutations(["count", "windows", "xy", "yx", "back", "lookup", "tables"]),
    st.integers(2, 7),
    st.sampled_from(["inner", "left", "outer"]),
    st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=4),
)
@settings(max_examples=examples(12), deadline=None)
@pytest.mark.thorough
def test_ready_made_ones_side_by_side_give_what_they_give_alone(
    sources: Sources, names: list[str], number: int, how: str, cuts: list[int]
) -> None:
    """In any choice and order, whatever batches and restores are."""
    made = ready_made(how)
    topology = Topology([made[name] for name in names[:number]])
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[dict[str, Any]]] = {}
        for place, part in enumerate(topology.processor_topologies):
            of_part = Topology(part.nodes)
            assert len(of_part.processor_topologies) == 1
            found |= run_task(Path(folder) / f"{place}", of_part, sources, cuts)
        for name in names[:number]:
            alone = run_task(Path(folder) / name, Topology([made[name]]), sources, [1_000])
            assert _told_by(name, found[name]) == _told_by(name, alone[name]), name


def test_the_schedules_of_one_do_not_cut_the_rows_of_the_others(tmp_path: Path) -> None:
    """A count gives a row for each batch, as it does alone."""
    sources: Sources = {"x": [*range(0, 40, 2)]}
    count = ready_made("inner")["count"]
    alone = run_task(tmp_path / "alone", Topology(count), sources, [5])
    for place, parts in enumerate(([told(ToldToo, "x"), count], [count, told(ToldToo, "x")])):
        assert run_task(tmp_path / f"{place}", Topology(parts), sources, [5])["count"] == alone["count"]
    assert len(alone["count"]) == 4


class Pass(Processor):
    """Does nothing."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Nothing."""


def _sub(name: str, *sources: str, **more: Any) -> SubTopology:
    return SubTopology(name, sources, Pass, **more)


class Hourly(Pass):
    """Is called by the clock."""

    name, interval_ms = "a", 10

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(self.interval_ms, "wall_clock_time", lambda time: {"who": self.name})


class HourlyToo(Hourly):
    """At other times."""

    name, interval_ms = "b", 25


def test_each_is_called_by_the_clock_when_it_is_due_also_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topic(tmp_path / "topics", "x", pa.table([[0] * 2, [1, 2], [0] * 2], schema=SCHEMA), partitions=1, key="k")
    logs = {"x": Topic.open(tmp_path / "topics", "x")}
    parts = [SubTopology(kind.name, "x", kind, outputs=kind.name) for kind in (Hourly, HourlyToo)]
    topology = Topology([_sub("none", "x"), *parts])
    task = StreamTask(TASK, topology.of_task(TASK), TaskEnvironment("app", "run", tmp_path, tmp_path / "state", logs))
    assert task.is_due(), "what they ask for is not known yet"
    assert not may_schedule(Topology(_sub("none", "x")).of_task(TASK))
    found = []
    for batch, elapsed_ms in enumerate((0, 9, 10, 24, 25)):
        monkeypatch.setattr(task_processors, "_elapsed_ms", lambda now=elapsed_ms: now)
        is_due = task.is_due()
        rows = {"x": (0, 2) if batch == 0 else (2, 2)}
        result = task.process(TaskOrder(TASK, batch, 1, rows, task.position if batch else START))
        found.append((is_due, sorted(result.outputs)))
    assert found == [(True, []), (False, []), (True, ["a"]), (True, ["a"]), (True, ["b"])]


class Held(Processor):
    """Keeps a number besides stores, and does not like some rows; says when it is made and closed."""

    closed: ClassVar[list[str]] = []
    bad: ClassVar[set[tuple[str, int]]] = set()
    name = "a"

    def __init__(self) -> None:
        self.seen = 0

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """How many rows there were so far."""
        self.seen += batch["x"].num_rows
        if (self.name, context.offsets["x"][0]) in self.bad:
            raise ValueError("not yet")
        return pa.table({"seen": [self.seen]})

    def close(self) -> None:
        """As it should be, or not."""
        self.closed.append(self.name)
        if ("close", 0) in self.bad:
            raise OSError("a connection is gone")


class HeldToo(Held):
    """Another one."""

    name = "b"


@pytest.mark.parametrize("fails", ["a", "b"])
def test_all_begin_anew_if_one_fails_also_if_one_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """What they keep besides their stores belongs to where these were."""
    monkeypatch.setattr(Held, "closed", [])
    write_topic(
        tmp_path / "topics", "x", pa.table([[0] * 4, [*range(4)], [0] * 4], schema=SCHEMA), partitions=1, key="k"
    )
    topology = Topology([SubTopology(kind.name, "x", kind, outputs=kind.name) for kind in (Held, HeldToo)])
    logs = {"x": Topic.open(tmp_path / "topics", "x")}
    task = StreamTask(TASK, topology.of_task(TASK), TaskEnvironment("app", "run", tmp_path, tmp_path / "state", logs))
    at = task.process(TaskOrder(TASK, 0, 1, {"x": (0, 2)}, START)).position
    monkeypatch.setattr(Held, "bad", {(fails, 2)})
    order = TaskOrder(TASK, 1, 1, {"x": (2, 4)}, at)
    with pytest.raises(ProcessorException, match=f"Held.* of sub-topology '{fails}' failed"):
        task.process(order)
    monkeypatch.setattr(Held, "bad", {("close", 0)})
    wanted = Restore(START, Recovery(changes=[Change(at, {})]), at)
    task.restore(wanted)
    assert Held.closed == ["a", "b"]
    found = task.process(order)
    for file in found.outputs.values():
        assert pa.ipc.open_file(str(tmp_path / file.path)).read_all().to_pylist() == [{"seen": 2}]


# Whole runs.


def orders(root: Path, rows: int = 400) -> pa.Table:
    """A topic with times that rise."""
    table = pa.table(
        {
            "item": [row * 7 % 11 for row in range(rows)],
            "shop": [row % 3 for row in range(rows)],
            "at": pa.array([row * 10 for row in range(rows)], pa.int64()),
            "amount": [row % 5 for row in range(rows)],
        }
    )
    write_topic(root / "topics", "orders", table, partitions=3, key="item", timestamp="at")
    write_topic(root / "topics", "views", table, partitions=3, key="item", timestamp="at")
    return table


def several(root: Path) -> list[SubTopology]:
    """A join and two aggregates of one stream."""
    specs = [Topic.open(root / "topics", name).spec for name in ("orders", "views")]
    join = WindowedJoin(left="orders", right="views", before_ms=150, after_ms=150)
    items = Aggregation(source="orders", aggregates={"sum": Aggregate.sum("amount")})
    shops = Aggregation(source="orders", by=["item", "shop"], aggregates={"rows": Aggregate.count()})
    return [
        join.sub_topology("join", "pairs"),
        items.sub_topology("items", "per-item", topics=specs),
        shops.sub_topology("shops", "per-shop", topics=specs),
    ]


def newest(table: pa.Table, keys: list[str]) -> list[dict[str, Any]]:
    """The last row of each key; each task's are in order."""
    found = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    return [found[key] for key in sorted(found)]


def test_a_join_and_two_aggregates_of_one_stream_give_what_each_gives_alone(tmp_path: Path) -> None:
    orders(tmp_path)
    parts = several(tmp_path)
    result = application(tmp_path, Topology(parts), run_dir=tmp_path / "together").run()
    assert {str(task) for record in result.commits.records() for task in record.tasks} == {"0_0", "0_1", "0_2"}
    alone = {
        name: application(tmp_path, Topology(part), run_dir=tmp_path / name).run().table(name)
        for name, part in zip(("pairs", "per-item", "per-shop"), parts, strict=True)
    }
    order = [(name, "ascending") for name in alone["pairs"].column_names]
    assert result.table("pairs").num_rows > 400
    assert result.table("pairs").sort_by(order).equals(alone["pairs"].sort_by(order))
    assert newest(result.table("per-item"), ["item"]) == newest(alone["per-item"], ["item"])
    assert newest(result.table("per-shop"), ["item", "shop"]) == newest(alone["per-shop"], ["item", "shop"])


class Broken(Processor):
    """Does not like rows."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Raise at the rows of the only source that it knows."""
        assert [*batch] == ["orders"]
        assert (context.outputs, [*context.topics]) == (("broken",), ["orders"])
        raise ZeroDivisionError("no")


def test_an_error_names_the_one_that_raised_and_its_rows(tmp_path: Path) -> None:
    orders(tmp_path)
    parts = [several(tmp_path)[0], SubTopology("wrong", "orders", Broken, outputs=["broken"])]
    with pytest.raises(
        StreamsException, match=r"Broken of sub-topology 'wrong' failed .*\(topic orders, partition \d, off[^;]*\)"
    ):
        application(tmp_path, Topology(parts)).run()


class Odd(RecordProcessor):
    """Cannot bear odd amounts."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[dict[str, Any]]:
        """Half of it."""
        if record["amount"] % 2:
            raise ValueError("odd")
        return [{"half": record["amount"] // 2}]


class Even(Odd):
    """Tells what it sees."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[dict[str, Any]]:
        """The amount."""
        return [{"amount": record["amount"]}]


def test_what_is_bad_for_one_is_left_out_there_only(tmp_path: Path) -> None:
    rows = orders(tmp_path)
    odd = sum(amount % 2 for amount in rows.column("amount").to_pylist())
    parts = [
        SubTopology("halves", "orders", Odd, outputs=["halves"], bad_records=DeadLetters("odd")),
        SubTopology("all", "orders", Even, outputs=["all"]),
    ]
    result = application(tmp_path, Topology(parts)).run()
    assert result.table("odd").num_rows == odd
    assert result.table("halves").num_rows == rows.num_rows - odd
    assert result.table("all").num_rows == rows.num_rows


def test_a_sub_topology_that_comes_to_a_topic_later_is_another_run(tmp_path: Path) -> None:
    """Its stores would lack what was read before."""
    orders(tmp_path)
    parts = several(tmp_path)
    application(tmp_path, Topology(parts[:2])).run()
    with pytest.raises(StreamsException, match=r"sub-topologies, shops: was not there"):
        application(tmp_path, Topology(parts)).run()


def test_a_repartition_topic_may_have_several_uses_too(tmp_path: Path) -> None:
    """One of several sub-topologies writes it, others read it together."""
    rows = orders(tmp_path)
    columns = pa.schema([("shop", pa.int64()), ("amount", pa.int64())])
    shops = Repartitioned("by-shop", columns, key="shop", partitions=2)
    total = Aggregation(source="by-shop", aggregates={"rows": Aggregate.count()})
    most = Aggregation(source="by-shop", aggregates={"most": Aggregate.max("amount")})
    parts = several(tmp_path)
    parts[1] = SubTopology("shop", "orders", Shop, outputs=[shops])
    parts.append(total.sub_topology("total", "totals", topics=[shops.spec]))
    parts.append(most.sub_topology("most", "most", topics=[shops.spec]))
    topology = Topology(parts)
    assert [found.name for found in topology.processor_topologies] == ["join, shop, shops", "total, most"]
    result = application(tmp_path, topology).run()
    of_shop, amounts = rows.column("shop").to_pylist(), rows.column("amount").to_pylist()
    numbers = [{"shop": shop, "rows": of_shop.count(shop)} for shop in range(3)]
    assert newest(result.table("totals"), ["shop"]) == numbers
    largest = [max(amount for one, amount in zip(of_shop, amounts, strict=True) if one == shop) for shop in range(3)]
    assert [row["most"] for row in newest(result.table("most"), ["shop"])] == largest


class Shop(Processor):
    """By shop."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """Its columns."""
        return batch["orders"].select(["shop", "amount"])


# Which read together.


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([_sub("a", "x"), _sub("b", "y"), _sub("c", "x")], ["a, c", "b"]),
        ([_sub("a", "x"), _sub("b", "y"), _sub("c", "y", "x")], ["a, b, c"]),
        ([_sub("a", "x"), _sub("b", "y"), _sub("c", "z"), _sub("d", "y", "z"), _sub("e", "w")], ["a", "b, c, d", "e"]),
    ],
)
def test_those_that_read_a_topic_directly_or_by_way_of_others_are_one(
    parts: list[SubTopology], names: list[str]
) -> None:
    assert [found.name for found in Topology(parts).processor_topologies] == names


def test_who_has_not_returned_is_one_of_them() -> None:
    (found,) = Topology([*ready_made("inner").values()][:3]).processor_topologies
    assert found.processors_name == "Aggregation or WindowedAggregation or WindowedJoin"


def test_sources_are_in_the_order_of_each() -> None:
    """A table comes before its stream at equal times, wherever the join is declared."""
    found = ready_made("inner")
    for names in (["count", "lookup"], ["lookup", "count"]):
        (together,) = Topology([found[name] for name in names]).processor_topologies
        assert together.sources == ("z", "x")
    # A windowed join does not mind.
    (together,) = Topology([found["back"], _sub("a", "x", "y")]).processor_topologies
    assert together.sources == ("x", "y")
    (together,) = Topology([_sub("a", "x", "y"), _sub("b", "w", "x"), _sub("c", "v", "y")]).processor_topologies
    assert together.sources == ("w", "x", "v", "y")


_RING = Repartitioned("ring", SCHEMA, key="k", partitions=2)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([_sub("a", "x"), _sub("b", "x", topology="t")], "one belongs to the topology None and the other to 't'"),
        ([_sub("a", "x", "y"), _sub("b", "y", "x")], r"a, b name the topics \['x', 'y'\] .* in different orders"),
        (
            [_sub("a", "x", "y", tables=["y"]), _sub("b", "y")],
            "'y' is a table for some of the sub-topologies a, b, and none for 'b'",
        ),
        ([_sub("a", "x"), _sub("b", "y", "x", tables=["x"])], "'x' is a table for some .* none for 'a'"),
        (
            [_sub("a", "x", outputs=[_RING]), _sub("b", "x", "ring")],
            r"'a', 'b' read what they write themselves, .* Those that read a topic together \(a, b\) are one. Maybe write",
        ),
    ],
)
def test_what_one_task_cannot_compute_is_refused(parts: list[SubTopology], message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        Topology(parts)


def test_all_that_one_task_reads_must_be_co_partitioned(tmp_path: Path) -> None:
    orders(tmp_path)
    rows = pa.table({"item": ["a"], "at": pa.array([1], pa.int64())})
    write_topic(tmp_path / "topics", "texts", rows, partitions=3, key="item", timestamp="at")
    parts = [_sub("a", "orders"), _sub("b", "orders", "texts")]
    with pytest.raises(TopologyException, match=r"'a, b' are not co-partitioned"):
        application(tmp_path, Topology(parts))


class Unwilling(Processor):
    """Cannot be closed, and says so."""

    name, sub = "first", "a"
    closed: ClassVar[list[str]] = []

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Nothing."""

    def close(self) -> None:
        """Leave word, and fail."""
        self.closed.append(self.name)
        raise SystemExit(self.name)


class UnwillingToo(Unwilling):
    """Another one."""

    name, sub = "second", "b"


def test_each_processor_is_closed_also_if_another_one_raises_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"k": [1], "at": [1], "n": [1]}, schema=SCHEMA)
    logs = {"t": write_topic(tmp_path / "topics", "t", rows, partitions=1, key="k", timestamp="at")}
    what = Topology([SubTopology("a", "t", Unwilling), SubTopology("b", "t", UnwillingToo)]).of_task(TASK)
    task = StreamTask(TASK, what, TaskEnvironment("app", "run", tmp_path / "run", tmp_path / "state", logs))
    task.process(TaskOrder(TASK, 0, 1, {"t": (0, 1)}, START))
    Unwilling.closed.clear()
    task.close()
    assert Unwilling.closed == ["first", "second"]
    assert [record.getMessage() for record in caplog.records] == [
        f"The processor {one.__name__} of sub-topology {one.sub!r} failed to close in task 0_0"
        for one in (Unwilling, UnwillingToo)
    ]
