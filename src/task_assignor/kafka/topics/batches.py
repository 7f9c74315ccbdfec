"""What tasks have made, to be committed; rows become the records of topics here, those of several tasks at once. Nothing connects here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import attrs
import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.headers import Headers
from task_assignor.kafka.topics.output_records import records_of
from task_assignor.sdk import TaskId

Record = tuple[str, bytes | None, bytes | None, int, int, Headers | None]
"""Topic, value, key, partition, time in ms (-1: when it is written), and headers."""
Place = tuple[str, int]
"""A topic, and the number of one of its partitions."""


@attrs.define(eq=False)
class OutputRows:
    """What a task has made for an output.

    Args:
        topic: the topic, which has the name of the output.
        partitions: how many it has.
        own: where rows without key columns go.
        rows: the rows.
    """

    topic: KafkaTopic
    partitions: int
    own: int
    rows: pa.Table
    records: Sequence[Record] = attrs.field(default=(), init=False)
    """What is written, when it is made."""
    error: BaseException | None = attrs.field(default=None, init=False)
    """Why it cannot be."""

    def is_like(self, other: OutputRows) -> bool:
        """The records of both can be made at once."""
        return self.topic is other.topic and self.rows.schema.equals(other.rows.schema, check_metadata=True)


@attrs.define(eq=False)
class Batch:
    """What a task has made, to be committed with the offsets of what it was made of.

    Args:
        task: the task.
        outputs: rows that are written.
        logged: what is written after them, in this order.
        size: the bytes of both.
        offsets: gives the offsets that are committed, when it is known where the records are; may be called more than once.
        producer: number of the producer since which the task knows what is committed.
        before: where its offsets are committed -> what the task knows of that: the offset and its metadata.
        permits: how many permits had come when it knew; when it is committed, how many have come then.
        generation: that of the order.
    """

    task: TaskId
    outputs: Sequence[OutputRows]
    logged: Sequence[Record]
    size: int
    offsets: Callable[[dict[Place, int]], list[TopicPartition]]
    producer: int
    before: Mapping[Place, tuple[int, str]] = attrs.field(factory=dict)
    permits: int = 1
    generation: int = 0
    ends: dict[Place, int] = attrs.field(factory=dict, init=False)
    """Where it has written -> the offset after its last record there; not above 0: Kafka has not said it."""
    refusal: KafkaError | None = attrs.field(default=None, init=False)
    """Why its last record of a partition is not there, with the topic."""
    restamped: set[str] = attrs.field(factory=set, init=False)
    """Topics that give records the time at which they are written, whatever they were given."""
    is_done: bool = attrs.field(default=False, init=False)
    error: BaseException | None = attrs.field(default=None, init=False)

    @property
    def records(self) -> list[Record]:
        """What is written, in this order."""
        return [*itertools.chain.from_iterable(each.records for each in self.outputs), *self.logged]


def make_records(group: Sequence[Batch]) -> None:
    """Make the records of what several tasks have made, at once where rows are alike: a call takes longer than a dozen rows do.

    Why those of a task cannot be made is noted as its error.
    """
    alike: list[list[OutputRows]] = []
    for each in itertools.chain.from_iterable(batch.outputs for batch in group):
        others = next((found for found in alike if found[0].is_like(each)), None)
        if others is None:
            alike.append([each])
        else:
            others.append(each)
    for together in alike:
        _make(together)
    for batch in group:
        batch.error = next((each.error for each in batch.outputs if each.error is not None), None)


def _make(together: Sequence[OutputRows]) -> None:
    first = together[0]
    counts = [each.rows.num_rows for each in together]
    own = [each.own for each, count in zip(together, counts, strict=True) for _ in range(count)]
    try:
        rows = first.rows if len(together) == 1 else pa.concat_tables([each.rows for each in together]).combine_chunks()
        records = records_of(rows, first.topic, first.partitions, own)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the rows come from
        if len(together) == 1:
            first.error = error
        else:
            for each in together:
                _make([each])
        return
    left = iter(records)
    for each, count in zip(together, counts, strict=True):
        each.records = [(first.topic.name, *record) for record in itertools.islice(left, count)]
