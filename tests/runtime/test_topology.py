"""Topologies: what is wrong is said when they are built, or when they meet their topics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    DerivedStream,
    KeyValueStoreSpec,
    Output,
    Processor,
    SubTopology,
    TaskContext,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedJoin,
)
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.sdk import StreamsException, TaskId, TopicPartition


class Pass(Processor):
    """Gives what it gets."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        return next(iter(batch.values()))


class NeedsArguments(Pass):
    def __init__(self, factor: int) -> None:
        super().__init__(factor)


class Unfinished(Processor):
    """Has no process_batch."""


COLUMNS = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("x", pa.string())])
STORE = KeyValueStoreSpec("store", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))


def _topic(name: str, partitions: int = 3, kind: pa.DataType | None = None, timestamp: str | None = "at") -> TopicSpec:
    schema = COLUMNS if kind is None else COLUMNS.set(0, pa.field("key", kind))
    racks = [{"r1", "r2"}, None, set()] if name == "a" and partitions == 3 else None
    return TopicSpec(name, partitions, schema, ("key",), timestamp, racks)


def test_what_derived_streams_are_like_is_found_once() -> None:
    """Of each that was read all were asked that it is made of: of a chain of 300, each of which is read, for 11 s."""
    calls: list[pa.Table] = []

    def same(rows: pa.Table) -> pa.Table:
        calls.append(rows)
        return rows

    chain = [DerivedStream("d0", _topic("a"), map_values=same)]
    for number in range(1, 5):
        chain.append(DerivedStream(f"d{number}", chain[-1], map_values=same))
    topology = Topology([SubTopology(f"s{one.name}", one.name, Pass) for one in chain], derived=chain)
    topics = {"a": _topic("a")}
    assert topology.specs(topics)["d4"].schema == COLUMNS
    assert len(calls) == 5
    TaskProcessors("app", TaskId(0, 0), topology.processor_topologies[0], topics, {})
    assert len(calls) == 10


def test_named_topologies_count_their_sub_topologies_each_from_0() -> None:
    topology = Topology(
        [
            SubTopology("one", "a", Pass, topology="billing"),
            SubTopology("two", "b", Pass, [STORE], topology="audit"),
            SubTopology("three", "c", Pass, topology="billing"),
        ]
    )
    tasks = topology.bind("app", {name: _topic(name, partitions=1) for name in "abc"})
    assert list(map(str, tasks)) == ["audit__0_0", "billing__0_0", "billing__1_0"]
    assert [topology.of_task(task).name for task in tasks] == ["two", "one", "three"]
    changelogs = [found.topic_partition.topic for found in tasks[TaskId(0, 0, "audit")].topic_partitions]
    assert changelogs == ["b", "app-audit-store-changelog"]


@pytest.mark.parametrize(("name", "told"), [("a/b", "The topology name"), ("a__b", "must not contain '__'")])
def test_names_of_topologies_are_parts_of_task_ids_and_folders(name: str, told: str) -> None:
    with pytest.raises(TopologyException, match=told):
        SubTopology("one", "a", Pass, topology=name)


def test_tasks_have_their_partitions_stores_and_racks() -> None:
    unlogged = KeyValueStoreSpec("cache", STORE.key, STORE.value, logged=False)
    topology = Topology(
        [SubTopology("one", ["a", "b"], Pass, [STORE, unlogged], ["out"]), SubTopology("two", "c", partial(Pass, 2))]
    )
    tasks = topology.bind("app", {name: _topic(name) for name in "abc"})
    assert list(map(str, tasks)) == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    info = tasks[TaskId(0, 1)]
    assert info.is_stateful
    assert info.state_store_names == frozenset({"store", "cache"})
    assert [
        (TopicPartition("a", 1), True, False),
        (TopicPartition("b", 1), True, False),
        (TopicPartition("app-store-changelog", 1), False, True),
    ] == [(found.topic_partition, found.is_source, found.is_changelog) for found in info.topic_partitions]
    racks = [tasks[TaskId(0, partition)].topic_partitions[0].rack_ids for partition in range(3)]
    assert racks == [{"r1", "r2"}, None, frozenset()]
    assert not tasks[TaskId(1, 0)].is_stateful


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sources": None}, "was given None. Its sources and tables must be names"),
        ({"sources": ["a", 3]}, "was given 3. Its sources and tables must be names"),
        ({"outputs": [None]}, "was given None. .*, its outputs names or Output objects"),
        ({"outputs": 3}, "was given 3. .*, its outputs names or Output objects"),
        ({"stores": None}, "has a store that is no store declaration: None"),
        ({"version": 0}, r"the version \(0\) must be a text"),
        ({"name": "one\ntwo"}, r"The name of a sub-topology \('one.ntwo'\) must be a text on one line"),
    ],
)
def test_what_is_no_part_of_a_sub_topology_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        SubTopology(**{"name": "one", "sources": "a", "processor": Pass, **given})


def test_one_part_of_a_topology_needs_no_list() -> None:
    sub = SubTopology("one", "a", Pass, STORE, Output("out"))
    assert sub == SubTopology("one", ["a"], Pass, [STORE], [Output("out")])
    assert Topology(sub) == Topology([sub])
    with pytest.raises(TopologyException, match="made of SubTopology objects, but was given None"):
        Topology(None)  # type: ignore[arg-type]


def test_the_columns_of_an_output_are_a_schema() -> None:
    with pytest.raises(
        TopologyException, match=r"The schema \({'x': .*}\) of the output 'out' must be a pyarrow.Schema, or None"
    ):
        Output("out", {"x": pa.int64()})


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ({"a": _topic("a")}, "reads the topic 'b', which does not exist. The topics: a"),
        (
            {"a": _topic("a", 4), "b": _topic("b", 3)},
            "The sources of the sub-topology 'one' are not co-partitioned: 'a' has 4, 'b' has 3 partitions",
        ),
        (
            {"a": _topic("a"), "b": _topic("b", kind=pa.int32())},
            r"not co-partitioned: equal keys of 'a' \(key: int64\) and 'b' \(key: int32\) have different bytes",
        ),
    ],
)
def test_topics_that_do_not_fit_are_named(topics: dict[str, TopicSpec], message: str) -> None:
    topology = Topology([SubTopology("one", ["a", "b"], Pass)])
    with pytest.raises(TopologyException, match=message):
        topology.bind("app", topics)


def test_string_keys_of_different_arrow_types_are_co_partitioned() -> None:
    topology = Topology([SubTopology("one", ["a", "b"], Pass)])
    topics = {"a": _topic("a", kind=pa.string()), "b": _topic("b", kind=pa.large_string())}
    assert len(topology.bind("app", topics)) == 3


def _sub(name: str, source: str, **more: object) -> SubTopology:
    return SubTopology(name, source, Pass, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology([]), "no sub-topologies"),
        (lambda: Topology([_sub("a", "x"), _sub("a", "y")]), r"sub-topology 'a' is there twice\. Maybe"),
        (
            lambda: Topology([_sub("a", "x", stores=[STORE]), _sub("b", "y", stores=[STORE])]),
            "store 'store' is there twice",
        ),
        (
            lambda: Topology([_sub("a", "x", outputs=["o"]), _sub("b", "y", outputs=["o"])]),
            "output 'o' is there twice, in the sub-topologies 'a' and 'b'",
        ),
        (
            lambda: Topology([_sub("a", "x", outputs=["o", "o"])]),
            r"output 'o' is there twice, in the sub-topology 'a'\.",
        ),
        (
            lambda: Topology([_sub("a", "x", outputs=["y"]), _sub("b", "y")]),
            "reads 'y', which is an output of this topology",
        ),
        (lambda: Topology(["a"]), "made of SubTopology objects, but was given 'a'"),  # type: ignore[list-item]
        (lambda: SubTopology("a", [], Pass), "at least one source"),
        (lambda: SubTopology("a", ["x", "x"], Pass), "names a source twice"),
        (lambda: SubTopology("a", "x", Pass()), "processor=Pass"),  # type: ignore[arg-type]
        (lambda: SubTopology("a", "x", 7), "cannot be called: 7"),  # type: ignore[arg-type]
        (lambda: SubTopology("a", "x", NeedsArguments), "NeedsArguments cannot be made without arguments"),  # type: ignore[arg-type]
        (lambda: SubTopology("a", "x", Unfinished), "Unfinished does not define process_batch"),
        (lambda: SubTopology("a", "x", dict), "dict is not a subclass of Processor"),  # type: ignore[arg-type]
        (lambda: SubTopology("a", "x", Pass, ["store"]), "is no store declaration: 'store'"),  # type: ignore[list-item]
        (lambda: _sub("a", "x", tables=["y"]), r"has tables \['y'\] that are not among its sources \['x'\]"),
        (lambda: Output("a/b"), "The output name"),
        (lambda: KeyValueStoreSpec("s", pa.schema([]), STORE.value), "at least one key column"),
        (lambda: KeyValueStoreSpec("s", STORE.key, STORE.key), "column name twice"),
        (lambda: KeyValueStoreSpec("a/b", STORE.key, STORE.value), "The store name"),
    ],
)
def test_a_wrong_topology_is_refused_when_it_is_built(make: object, message: str) -> None:
    with pytest.raises(StreamsException, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": "r"}, "cannot be joined with itself"),
        ({"before_ms": 1.5}, "before_ms .1.5. must be an int"),
        ({"before_ms": -6}, "is negative, so nothing can match"),
        ({"left_grace_ms": -1}, "left_grace_ms .-1. must be an int of at least 0, or None"),
        ({"late_records": "ignore"}, "late_records .'ignore'. must be 'stop', 'skip' or DeadLetters"),
        ({"how": "full"}, "how .'full'. must be 'inner', 'left' or 'outer'"),
        ({"how": "left", "right_grace_ms": None}, "with how='left' the right_grace_ms must not be None"),
        ({"how": "outer", "left_grace_ms": None}, "with how='outer' the left_grace_ms must not be None"),
    ],
)
def test_a_wrong_join_is_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"left": "l", "right": "r", "before_ms": 5, "after_ms": 5, **change}
    with pytest.raises(TopologyException, match=message):
        WindowedJoin(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("right", "more", "message"),
    [
        (_topic("r", timestamp=None), {}, "the topic 'r' has no timestamp column"),
        (_topic("r"), {"right_columns": ["y"]}, r"the topic 'r' has no columns \['y'\]"),
        (_topic("r"), {"suffix": ""}, r"result columns twice: \['at', 'x'\]"),
    ],
)
def test_a_join_that_does_not_fit_its_topics_is_refused(
    right: TopicSpec, more: dict[str, object], message: str
) -> None:
    join = WindowedJoin(left="l", right="r", before_ms=5, after_ms=5, **more)  # type: ignore[arg-type]
    with pytest.raises(TopologyException, match=message):
        Topology([join.sub_topology("j", "out")]).bind("app", {"l": _topic("l"), "r": right})
