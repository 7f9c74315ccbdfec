"""Rows of several tasks become the records of topics at once: the same as if each were alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.topics import JsonSerde, KafkaTopic
from task_assignor.kafka.topics.batches import Batch, OutputRows, Record, make_records
from task_assignor.runtime.errors import TopicException
from task_assignor.sdk import TaskId

pytestmark = pytest.mark.kafka
PARTITIONS = 5


class Counting(JsonSerde):
    """JSON, and how many rows each call was given."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def serialize(self, rows: pa.Table) -> Sequence[bytes]:
        self.calls.append(rows.num_rows)
        return super().serialize(rows)


def a_batch(number: int, *outputs: tuple[KafkaTopic, pa.Table]) -> Batch:
    rows = [OutputRows(topic, PARTITIONS, number % PARTITIONS, found) for topic, found in outputs]
    return Batch(TaskId(0, number), rows, [("log", b"v", b"k", number, -1, None)], 1, lambda _: [], 1)


def made_of(group: Sequence[Batch]) -> list[list[Record]]:
    make_records(group)
    return [batch.records for batch in group]


ROWS: Any = st.sampled_from(
    [
        pa.table({"key": pa.array([1, None, 3]), "at": [5, 0, 7], "n": pa.array([0.5, None, float("nan")])}),
        pa.table({"key": pa.array([7], pa.int32()), "at": [9], "n": ["x"]}),
        pa.table({"key": [2, 2], "at": [1, 2], "n": pa.array([None, None])}),
        pa.table({"key": [2, 4], "at": [3, 4], "n": pa.array([1.0, 2.0])}).slice(1),
        pa.table({"key": pa.array([], pa.int64()), "at": pa.array([], pa.int64()), "n": pa.array([], pa.float64())}),
    ]
)
TOPICS = (
    KafkaTopic("keyed", key="key", timestamp="at"),
    KafkaTopic("by-key", key="key", key_in="key"),
    KafkaTopic("without", timestamp="at"),
)


@given(st.lists(st.lists(st.tuples(st.sampled_from(TOPICS), ROWS), max_size=3), min_size=1, max_size=6))
def test_what_a_task_writes_does_not_depend_on_the_others(written: list[list[tuple[KafkaTopic, pa.Table]]]) -> None:
    def group() -> list[Batch]:
        return [a_batch(number, *outputs) for number, outputs in enumerate(written)]

    assert made_of(group()) == [made_of([batch])[0] for batch in group()]


def test_rows_that_are_alike_are_written_at_once() -> None:
    """A call for each task took longer than its dozen rows."""
    serde = Counting()
    topic = KafkaTopic("out", key="key", serde=serde)
    rows = pa.table({"key": [1, 2]})
    found = made_of([a_batch(number, (topic, rows)) for number in range(10)])
    assert serde.calls == [20]
    assert [[value for _, value, *_ in records[:-1]] for records in found] == [[b'{"key":1}', b'{"key":2}']] * 10


def test_rows_that_cannot_be_written_are_those_of_one_task() -> None:
    """Its error names nothing of the others, whose records are made."""
    topic = KafkaTopic("out", key="key", timestamp="at", timestamp_in="record")
    group = [a_batch(number, (topic, pa.table({"key": [number], "at": [at]}))) for number, at in enumerate((7, 0, 9))]
    found = made_of(group)
    assert [type(batch.error) for batch in group] == [type(None), TopicException, type(None)]
    assert "has 0 as 'at'" in str(group[1].error)
    assert [len(records) for records in found] == [2, 1, 2]
