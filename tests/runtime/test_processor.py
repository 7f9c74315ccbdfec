"""Processors for single records: in which order they see the records of several sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import (
    Output,
    RecordProcessor,
    SubTopology,
    TaskContext,
    TopicSpec,
    Topology,
    TopologyException,
)
from task_assignor.sdk import TaskId


class Watcher(RecordProcessor):
    """Remembers what it sees, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def process(
        self, topic: str, record: Mapping[str, Any], context: TaskContext
    ) -> Iterable[Mapping[str, Any]] | None:
        """Remember topic and number."""
        self.seen.append((topic, record["n"]))
        return None


def _seen(
    sources: Mapping[str, list[int | None]], kind: pa.DataType, without_time: tuple[str, ...] = ()
) -> list[tuple[str, int]]:
    schema = pa.schema([("k", pa.int64()), ("at", kind), ("n", pa.int64())])
    topics = {name: TopicSpec(name, 1, schema, ("k",), None if name in without_time else "at") for name in sources}
    batch = {
        name: pa.table([pa.nulls(len(times), pa.int64()), pa.array(times, kind), range(len(times))], schema=schema)
        for name, times in sources.items()
    }
    processor = Watcher()
    context = TaskContext("app", TaskId(0, 0), topics, (), {})
    context.begin(0, {name: (0, len(times)) for name, times in sources.items()})
    assert processor.process_batch(batch, context) is None
    return processor.seen


def test_records_come_in_order_of_time_whatever_source_they_are_from() -> None:
    assert _seen({"a": [1, 4, 4], "b": [2, 4, 5]}, pa.int64()) == [
        ("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1), ("b", 2)
    ]  # fmt: skip


def test_units_of_time_do_not_matter() -> None:
    """Seconds of one source beside milliseconds of another."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s")), ("n", pa.int64())])
    moment = dt.datetime(2024, 1, 1)
    other = schema.set(1, pa.field("at", pa.timestamp("us")))
    processor = Watcher()
    topics = {"a": TopicSpec("a", 1, schema, ("k",), "at"), "b": TopicSpec("b", 1, other, ("k",), "at")}
    context = TaskContext("app", TaskId(0, 0), topics, (), {})
    times = [moment, moment + dt.timedelta(seconds=10)]
    between = [moment + dt.timedelta(seconds=5)]
    batch = {
        "a": pa.table([[1, 1], times, [0, 1]], schema=schema),
        "b": pa.table([[1], between, [0]], schema=other),
    }
    context.begin(0, {"a": (0, 2), "b": (0, 1)})
    processor.process_batch(batch, context)
    assert processor.seen == [("a", 0), ("b", 0), ("a", 1)]


def test_records_without_time_follow_the_one_before_them() -> None:
    assert _seen({"a": [None, 7, None], "b": [3, 8]}, pa.int64()) == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]
    assert _seen({"a": [1, 2], "t": [9, 9]}, pa.int64(), without_time=("t",))[:2] == [("t", 0), ("t", 1)]
    assert _seen({"a": [], "b": []}, pa.int64()) == []


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=9), min_size=1)
)
def test_offsets_keep_their_order_and_heads_are_taken_by_time(sources: dict[str, list[int | None]]) -> None:
    """As in Kafka Streams: of the next record of each source the oldest is taken, the first source if they are equal."""
    heads = dict.fromkeys(sources, 0)
    newest = dict.fromkeys(sources, -(10**9))
    expected = []
    while any(heads[name] < len(times) for name, times in sources.items()):

        def time(name: str) -> tuple[int, int]:
            found = sources[name][heads[name]]
            return max(newest[name], newest[name] if found is None else found), list(sources).index(name)

        name = min((name for name, times in sources.items() if heads[name] < len(times)), key=time)
        newest[name] = time(name)[0]
        expected.append((name, heads[name]))
        heads[name] += 1
    assert _seen(sources, pa.int64()) == expected


def test_times_with_and_without_zone_are_not_mixed() -> None:
    """They are up to 14 hours apart, and nobody would notice."""
    naive, zoned = pa.timestamp("ms"), pa.timestamp("ms", "Europe/Berlin")

    def bind(times: tuple[pa.DataType, pa.DataType], keys: tuple[pa.DataType, pa.DataType]) -> None:
        topics = {
            name: TopicSpec(name, 1, pa.schema([("k", key), ("at", time)]), ("k",), "at")
            for name, time, key in zip("ab", times, keys, strict=True)
        }
        Topology(SubTopology("both", ("a", "b"), Watcher, (), (Output("out"),))).bind("app", topics)

    with pytest.raises(
        TopologyException, match=r"'both'.*'at' of 'a' has no time zone.*'at' of 'b' has.*Europe/Berlin"
    ):
        bind((naive, zoned), (pa.int64(), pa.int64()))
    with pytest.raises(TopologyException, match=r"'both'.*'k' of 'b' has no time zone.*'k' of 'a' has.*Europe/Berlin"):
        bind((zoned, zoned), (zoned, naive))
    bind((zoned, pa.timestamp("us", "UTC")), (naive, naive))
    bind((zoned, pa.int64()), (zoned, pa.timestamp("s", "UTC")))
