"""In which order processors see the records of a task, whatever its sources are made of: held against a plain loop over them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    DerivedStream,
    DerivedTable,
    Forwarded,
    Processor,
    RecordProcessor,
    StreamTableJoin,
    SubTopology,
    TableJoin,
    TaskContext,
    Topology,
    TopologyException,
    WindowedJoin,
)
from tests.budget import examples
from tests.runtime.test_side_by_side import (
    SCHEMA,
    TASK,
    Sources,
    Told,
    ToldToo,
    run_task,
    specs,
    times,
    told,
    told_in_order,
)

cuts = st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=4)
topics = st.fixed_dictionaries(dict.fromkeys("xyz", times))
SKIP: Any = {"late_records": "skip", "bad_records": "skip", "late_limit_ms": None}


class Few(RecordProcessor):
    """As many rows of a record as its number says, modulo 3; its batches are cut."""

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(5, "stream_time", lambda _: None)

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The same numbers."""
        return [{"n": record["n"]}] * (record["n"] % 3)


class Many(Processor):
    """Two rows of each record of the last of its sources, at once and the wrong way round; its batches are cut elsewhere."""

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(3, "stream_time", lambda _: None)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Without keys."""
        rows = [*batch.values()][-1]
        made_of = np.repeat(np.arange(rows.num_rows)[::-1], 2)
        context.forward(rows.take(pa.array(made_of)).select(["n"]), made_of=made_of)


def odd(rows: pa.Table) -> pa.ChunkedArray:
    """Those with an odd number."""
    return pc.equal(pc.bit_wise_and(rows.column("n"), 1), 1)


NUMBER = pa.schema([("n", pa.int64())])
DERIVED = {
    "odd": DerivedStream("odd", "x", filter=odd),
    "small": DerivedStream("small", "x", filter=pc.field("n") < 6),
    "odd-few": DerivedStream("odd-few", "few", filter=odd),
    "odd-y": DerivedStream("odd-y", "y", filter=odd),
    "odd-table": DerivedTable("odd-table", "z", filter=odd),
}
MAKERS = {
    "few": SubTopology("few", "x", Few, outputs=Forwarded("few", NUMBER)),
    "many": SubTopology("many", "odd", Many, outputs=Forwarded("many", NUMBER)),
    "more": SubTopology("more", ["y", "odd-few"], Many, outputs=Forwarded("more", NUMBER, source="odd-few")),
    "many-y": SubTopology("many-y", ["z", "y"], Many, outputs=Forwarded("many-y", NUMBER, source="y")),
}
ROOTS = {
    "odd-table": "z",
    "odd": "x",
    "small": "x",
    "few": "x",
    "odd-few": "few",
    "many": "odd",
    "more": "odd-few",
    "odd-y": "y",
    "many-y": "y",
}


def count_of(source: str, number: int) -> int:
    """How often a record of a topic is there in a source."""
    if source not in ROOTS:
        return 1
    kept = {"few": number % 3, "odd-table": 1, "small": int(number < 6)}
    own = kept[source] if source in kept else number % 2 if source.startswith("odd") else 2
    return count_of(ROOTS[source], number) * own


def root_of(source: str) -> str:
    """The topic."""
    return root_of(ROOTS[source]) if source in ROOTS else source


def topology_of(*parts: SubTopology) -> Topology:
    """With what makes their sources, if they go together."""
    wanted = [source for part in parts for source in part.sources]
    makers, derived = [], []
    while wanted:
        name = wanted.pop()
        if name in MAKERS and MAKERS[name] not in makers:
            makers.append(MAKERS[name])
            wanted += MAKERS[name].sources
        elif name in DERIVED and DERIVED[name] not in derived:
            derived.append(DERIVED[name])
            wanted.append(ROOTS[name])
    try:
        return Topology([*parts, *makers], derived=derived)
    except TopologyException as error:
        assert "in different orders" in str(error) or "is a table for some" in str(error)  # noqa: PT017
        reject()


def in_order(topology: Topology, sources: Sources) -> Iterator[tuple[str, int, int | None]]:
    """(topic, number, time) of all records of the task, as `merging` says, one by one."""
    what = topology.of_task(TASK)
    tables = [name for name in what.sources if name in what.tables]
    for names in (tables, [name for name in what.sources if name not in tables]):
        records = []
        for place, name in enumerate(names):
            newest = -1
            for offset, time in enumerate(sources[name]):
                newest = max(newest, -1 if time is None else time)
                records.append((newest, place, offset, time))
        yield from ((names[place], offset, time) for _, place, offset, time in sorted(records, key=lambda one: one[:3]))


def wanted_of(node: SubTopology, topology: Topology, sources: Sources, interval: int) -> list[str]:
    """What `Told` is told."""
    found: list[str] = []
    now: int | None = None
    tables = topology.of_task(TASK).tables
    for topic, number, time in in_order(topology, sources):
        for source in node.sources:
            if root_of(source) == topic:
                found += [f"{source}{number}"] * count_of(source, number)
        if topic not in tables and time is not None:
            before, now = now, time if now is None else max(now, time)
            if before is None or now // interval > before // interval:
                found.append(f"time {now}")
    return found


names = st.lists(
    st.sampled_from([*"xyz", *(name for name in ROOTS if name != "odd-table")]), min_size=1, max_size=5, unique=True
)


@given(topics, cuts, names, names, st.permutations("xyz"), st.sampled_from(["", "y", "z"]), st.booleans())
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.thorough
def test_records_come_in_one_order_whatever_the_sources_are_made_of(
    sources: Sources, most: list[int], one: list[str], other: list[str], order: list[str], table: str, first: bool
) -> None:
    if table:
        # A table for all; what is forwarded is none.
        one, other = ([name for name in named if name not in ("many-y", "more")] or ["x"] for named in (one, other))
    parts = []
    for kind, named in ((Told, one), (ToldToo, other)):
        # The topics in one order for all, what is made of one in any.
        named = sorted(named, key=lambda name: order.index(root_of(name)))
        parts.append(told(kind, *named, tables=[name for name in named if root_of(name) == table]))
    topology = topology_of(*(parts if first else parts[::-1]))
    with tempfile.TemporaryDirectory() as folder:
        found = told_in_order(run_task(Path(folder), topology, sources, most))
    for part, interval in zip(parts, (Told.interval_ms, ToldToo.interval_ms), strict=True):
        if part in topology.of_task(TASK).nodes:
            assert found[f"out-{part.name}"] == wanted_of(part, topology, sources, interval)


class Cut(Processor):
    """Another processor whose batches are cut."""

    def __init__(self, make: Any, interval_ms: int) -> None:
        self._inner, self._interval_ms = make(), interval_ms

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(self._interval_ms, "stream_time", lambda _: None)
        self._inner.init(context)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """As it does."""
        return self._inner.process_batch(batch, context)


def cut(part: SubTopology, interval: int) -> SubTopology:
    """The sub-topology with batches that are cut; 0: as it is."""
    return attrs.evolve(part, processor=functools.partial(Cut, part.processor, interval)) if interval else part


def rows_of(topology: Topology, sources: Sources, *names: str) -> Iterator[tuple[str, int, int | None]]:
    """(source, number, time) of all rows of some sources, in the order of the records that they are made of."""
    for topic, number, time in in_order(topology, sources):
        for name in names:
            if root_of(name) == topic:
                yield from [(name, number, time)] * count_of(name, number)


streams = st.sampled_from(["x", "odd", "few", "many", "more", "odd-few", "y", "odd-y", "many-y"])
tables = st.sampled_from(["z", "y", "x", "odd-table"])
intervals = st.sampled_from([0, 2, 7])


def spec_of(name: str) -> Any:
    """What a source is like."""
    return attrs.evolve(specs()[0], name=name, schema=SCHEMA)


@given(topics, cuts, streams, tables, intervals, st.booleans(), st.sampled_from(["inner", "left"]))
@settings(max_examples=examples(40), deadline=None)
@pytest.mark.thorough
def test_a_lookup_finds_what_came_before_whatever_the_sources_are_made_of(
    sources: Sources, most: list[int], stream: str, table: str, interval: int, table_first: bool, how: str
) -> None:
    assume(stream != table)
    join = StreamTableJoin(stream=stream, table=table, how=how, table_first=table_first, table_columns="n")
    part = join.sub_topology("j", "o", topics=[spec_of(stream), spec_of(table)])
    topology = topology_of(cut(part, interval))
    known: int | None = None
    wanted = []
    for source, number, _ in rows_of(topology, sources, table, stream):
        if source == table:
            known = number if table != "odd-table" or number % 2 else None
        elif known is not None or how == "left":
            wanted.append((number, known))
    with tempfile.TemporaryDirectory() as folder:
        found = run_task(Path(folder), topology, sources, most)["o"]
    assert [(row["n"], row["n_right"]) for row in found] == wanted


@given(
    topics, cuts, st.permutations(["x", "y", "z", "odd-table"]), intervals, st.sampled_from(["inner", "left", "outer"])
)
@settings(max_examples=examples(25), deadline=None)
@pytest.mark.thorough
def test_pairs_of_tables_have_a_row_for_each_update_whatever_their_sources_are_made_of(
    sources: Sources, most: list[int], named: list[str], interval: int, how: str
) -> None:
    left, right = named[:2]
    join = TableJoin(left=left, right=right, how=how, left_columns="n", right_columns="n")
    topology = topology_of(cut(join.sub_topology("j", "o", topics=[spec_of(left), spec_of(right)]), interval))
    now: dict[str, int | None] = {left: None, right: None}

    def counts() -> bool:
        there = [now[name] is not None for name in (left, right)]
        return all(there) if how == "inner" else there[0] if how == "left" else any(there)

    wanted = []
    for source, number, _ in rows_of(topology, sources, left, right):
        before = counts()
        now[source] = number if source != "odd-table" or number % 2 else None
        if before or counts():
            wanted.append((now[left], now[right]) if counts() else (None, None))
    with tempfile.TemporaryDirectory() as folder:
        found = run_task(Path(folder), topology, sources, most)["o"]
    assert [(row["n"], row["n_right"]) for row in found] == wanted


@given(topics, cuts, streams, streams, intervals, st.sampled_from(["inner", "left", "outer"]), st.integers(0, 9))
@settings(max_examples=examples(40), deadline=None)
def test_windowed_pairs_are_those_of_a_plain_loop_whatever_the_sources_are_made_of(
    sources: Sources, most: list[int], left: str, right: str, interval: int, how: str, grace: int
) -> None:
    assume(left != right)
    graces: Any = {"left_grace_ms": grace, "right_grace_ms": grace // 2}
    join = WindowedJoin(left=left, right=right, before_ms=5, after_ms=3, how=how, **graces, **SKIP)
    topology = topology_of(cut(join.sub_topology("j", "o"), interval))
    newest = {root_of(left): -1, root_of(right): -1}
    rows: dict[str, list[tuple[int, int]]] = {left: [], right: []}
    for topic, number, time in in_order(topology, sources):
        if topic in newest and time is not None:
            newest[topic] = max(newest[topic], time)
            for name, allowed in ((left, grace), (right, grace // 2)):
                if root_of(name) == topic and newest[topic] - time <= allowed:
                    rows[name] += [(number, time)] * count_of(name, number)
    wanted: list[tuple[int | None, int | None]] = []
    end = max(newest.values())
    for one, its_time in rows[left]:
        found = [other for other, time in rows[right] if -5 <= time - its_time <= 3]
        wanted += [(one, other) for other in found]
        if how != "inner" and not found and its_time + 3 < end - grace // 2:
            wanted.append((one, None))
    for other, time in rows[right]:
        is_alone = not any(-5 <= time - its_time <= 3 for _, its_time in rows[left])
        if how == "outer" and is_alone and time + 5 < end - grace:
            wanted.append((None, other))
    with tempfile.TemporaryDirectory() as folder:
        pairs = run_task(Path(folder), topology, sources, most)["o"]
    assert sorted(repr((row["n"], row["n_right"])) for row in pairs) == sorted(map(repr, wanted))
