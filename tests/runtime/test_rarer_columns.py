"""Columns of which Arrow or polars alone make errors, or other values: structs with fields that are never null, tensors, far times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    DeadLetters,
    KeyValueStoreSpec,
    StreamTableJoin,
    SubTopology,
    TableChanges,
    TableJoin,
    TaskContext,
    TimeWindows,
    Topic,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
    append_topic,
    read_output,
    write_topic,
)
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import TaskId
from tests.runtime.memory_task import MemoryTask
from tests.runtime.support import application
from tests.runtime.thread_clients import ThreadLauncher

STRUCT = pa.struct([pa.field("a", pa.int64(), nullable=False)])
SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("x", STRUCT), ("n", pa.int64())])
ROWS = pa.table([["a", "b"], [1, 2], [{"a": 7}, None], [0, 0]], schema=SCHEMA)


def _spec(name: str, kind: pa.DataType = STRUCT) -> TopicSpec:
    return TopicSpec(name, 1, SCHEMA.set(2, pa.field("x", kind)), ("k",), "at")


def _with_stores(sub: SubTopology, *, on_disk: bool) -> SubTopology:
    stores = [attrs.evolve(one, on_disk=on_disk) if isinstance(one, KeyValueStoreSpec) else one for one in sub.stores]
    return attrs.evolve(sub, stores=stores)


def _last(_: Any, record: Any) -> Any:
    return record["x"]


def _fold(windows: TimeWindows | None) -> SubTopology:
    aggregates = {"x": Aggregate.fold(_last, None, STRUCT)}
    if windows is None:
        return Aggregation(source="l", aggregates=aggregates).sub_topology("s", "out", _spec("l"))
    return WindowedAggregation(source="l", windows=windows, aggregates=aggregates).sub_topology("s", "out", _spec("l"))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda topics: StreamTableJoin(stream="l", table="r", how="left").sub_topology("s", "out", topics),
        lambda topics: TableJoin(left="l", right="r", how="outer").sub_topology("s", "out", topics),
        lambda topics: TableChanges(table="l").sub_topology("s", "out", topics),
        lambda _: _fold(None),
        lambda _: _fold(TimeWindows(1)),
    ],
    ids=["stream and table", "tables", "changes", "fold", "windows"],
)
def test_fields_of_a_struct_may_be_never_null(make: Any, on_disk: bool) -> None:
    """Where the struct itself was null Arrow refused to cast it even to its own type: no store could have such a column."""
    topics = {name: _spec(name) for name in "lr"}
    sub = make(list(topics.values()))
    task = MemoryTask(_with_stores(sub, on_disk=on_disk), topics)
    later = ROWS.slice(0, 1).set_column(1, "at", pa.array([100]))
    for rows in (ROWS.slice(0, 1), ROWS.slice(1), later):
        task.process(dict.fromkeys(sub.sources, rows))
        task.start()
    found = task.outputs["out"]
    assert {row["x"] and row["x"]["a"] for row in found} == {7, None}


def test_rows_without_a_partner_can_be_read_if_fields_of_a_struct_are_never_null(tmp_path: Path) -> None:
    """They were written and committed, and then `read_output` failed; so did who read a topic that had gained such a column."""
    write_topic(tmp_path / "topics", "l", ROWS, partitions=1, key=["k"], timestamp="at")
    write_topic(tmp_path / "topics", "r", ROWS.slice(0, 0).drop(["x"]), partitions=1, key=["k"], timestamp="at")
    append_topic(tmp_path / "topics", "r", ROWS.drop(["x"]), add_columns=True)
    append_topic(tmp_path / "topics", "r", ROWS.set_column(1, "at", pa.array([2, 100])), add_columns=True)
    read = Topic.open(tmp_path / "topics", "r").read(0, 0, 4)
    assert read.column("x").to_pylist() == [None, None, {"a": 7}, None]
    join = WindowedJoin(left="l", right="r", before_ms=0, after_ms=0, how="outer")
    application(tmp_path, Topology([join.sub_topology("join", "out")]), launcher=ThreadLauncher(), clients=1).run()
    found = read_output(tmp_path / "run", "out")
    assert found.schema.field("x_right").type == STRUCT
    assert sorted(map(str, found.column("x_right").to_pylist())) == ["None", "None", "{'a': 7}"]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.duration("s")], ids=str)
@pytest.mark.parametrize("is_group", [False, True])
def test_seconds_that_are_no_milliseconds_are_told(kind: pa.DataType, is_group: bool) -> None:
    """polars made other times of them: the largest was a small one, and groups became one."""
    spec = _spec("l", kind)
    aggregates = {"most": Aggregate.count()} if is_group else {"most": Aggregate.max("x")}
    counted = Aggregation(source="l", by=["k", "x"] if is_group else None, aggregates=aggregates)
    task = MemoryTask(counted.sub_topology("s", "out", spec), {"l": spec})
    task.process({"l": ROWS.set_column(2, "x", pa.array([-5, 5]).cast(kind))})
    assert len(task.outputs["out"]) == 2
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        task.process({"l": ROWS.set_column(2, "x", pa.array([1, 2**62]).cast(kind))})


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("s", "UTC"), pa.date64(), pa.duration("s")], ids=str)
def test_a_fold_says_which_column_python_has_no_values_for(kind: pa.DataType) -> None:
    """It ended with "date value out of range", whatever it looked at: a far time in any column of the topic was enough."""
    spec = _spec("l", kind)
    fold = Aggregate.fold(lambda most, record: max(most, record["n"]), 0, pa.int64())
    task = MemoryTask(Aggregation(source="l", aggregates={"most": fold}).sub_topology("s", "out", spec), {"l": spec})
    far = pa.array([0, 864 * 10**15]).cast(kind)
    with pytest.raises(
        ValueError, match=r"^'x' has a value that Python has no .* of: OverflowError.* cast the column to int64"
    ):
        task.process({"l": ROWS.set_column(2, "x", far)})


def test_tensors_can_be_counted_and_looked_up() -> None:
    """Arrow makes no table of them without rows its own way, and that error came, whatever was computed."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8).reshape(2, 2, 2))
    topics = {name: _spec(name, tensors.type) for name in "lr"}
    rows = ROWS.set_column(2, "x", tensors)
    counted = Aggregation(source="l", aggregates={"n": Aggregate.count("x")}).sub_topology("s", "out", topics["l"])
    task = MemoryTask(counted, topics)
    task.process({"l": rows})
    assert [row["n"] for row in task.outputs["out"]] == [1, 1]
    join = StreamTableJoin(stream="l", table="r", how="left", stream_columns=["n"])
    task = MemoryTask(_with_stores(join.sub_topology("s", "out", topics.values()), on_disk=True), topics)
    for stream, table in ((rows.slice(0, 0), rows.slice(0, 1)), (rows, rows.slice(0, 0))):
        task.process({"l": stream, "r": table})
    assert [row["x"] for row in task.outputs["out"]] == [[0, 1, 2, 3], None]


@pytest.mark.parametrize("kind", [pa.binary(0), pa.list_(pa.int64(), 0)], ids=str)
def test_values_of_no_size_are_refused_beforehand(kind: pa.DataType) -> None:
    """Of some of them polars panicked in the first batch."""
    counted = Aggregation(source="l", aggregates={"n": Aggregate.count("x")})
    with pytest.raises(TopologyException, match=r"cannot have 'x' as .*\[0\]: polars has no"):
        counted.sub_topology("s", "out", _spec("l", kind))


def test_a_dead_letter_with_a_time_that_python_does_not_know_has_its_record() -> None:
    """For the sake of that column there was nothing of it."""
    far = pa.array([5, 10**18]).cast(pa.timestamp("us", "UTC"))
    rows, bad = ROWS.set_column(2, "x", far), DeadLetters("bad")
    context = TaskContext("app", TaskId(0, 0), {"l": _spec("l", far.type)}, ("out",), {}, bad, bad)
    context.begin(0, {"l": (0, 2)}, {"l": rows})
    context.leave_out("l", [0, 1], "is bad")
    (letters,) = context.finish()[0]["bad"]
    near, letter = map(json.loads, letters["record"].to_pylist())
    assert letter == {"k": "b", "at": 2, "x": 10**18, "n": 0}
    assert near["x"] == "1970-01-01 00:00:00.000005+00:00"
