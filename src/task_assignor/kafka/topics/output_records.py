"""Rows of an output as the records of its topic: value, key, partition, time and headers of each. Nothing connects here."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence, Sized

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.headers import Headers, check_headers, headers_of_rows
from task_assignor.kafka.topics.serdes import Serde, SerializationException
from task_assignor.runtime.arrow.frames import valid
from task_assignor.runtime.arrow.keys import (
    Int64Array,
    UInt8Array,
    is_there,
    key_type_name,
    partitions_of_keys,
    serialise_keys,
    timestamps_in_ms,
)
from task_assignor.runtime.blame import text_with_line
from task_assignor.runtime.errors import TopicException
from task_assignor.sdk.text import shown


def records_of(
    rows: pa.Table, topic: KafkaTopic, partitions: int, own: Sequence[int]
) -> list[tuple[bytes | None, bytes | None, int, int, Headers | None]]:
    """(value, key, partition, time; -1: none, headers) of each row.

    Args:
        rows: the rows.
        topic: the topic, which has the name of the output.
        partitions: how many it has.
        own: where each of the rows goes if there are no key columns.

    Raises:
        TopicException: they cannot be written.
    """
    check_columns(topic, rows.schema)
    in_value = rows.select(topic.in_value(rows.schema).names)
    # A record without a value is read as such a row; without columns nobody looks at it.
    is_deletion = topic.key_in == "key" and bool(in_value.column_names)
    values = _serialized(topic, topic.serde, in_value, is_there(in_value) if is_deletion else None)
    keys: Sequence[bytes | None] = [None] * rows.num_rows
    places = own
    if topic.key:
        keys, flat, bounds = _keys_of(rows, topic)
        places = partitions_of_keys(flat, bounds, partitions).tolist()
    headers: Sequence[Headers | None] = [None] * rows.num_rows
    if topic.headers is not None:
        headers = headers_of_rows(topic.name, topic.headers, rows.column(topic.headers))
    return list(zip(values, keys, places, _times_of(rows, topic), headers, strict=True))


def _serialized(
    topic: KafkaTopic, serde: Serde, rows: pa.Table, wanted: npt.NDArray[np.bool_] | None = None
) -> Sequence[bytes | None]:
    """What a serde makes of each row; None: it has made that, or the row is not wanted.

    Raises:
        TopicException: it cannot, or what it makes cannot be written.
    """
    if wanted is not None and not wanted.all():
        made = iter(_serialized(topic, serde, rows.filter(pa.array(wanted))))
        return [next(made) if is_wanted else None for is_wanted in wanted.tolist()]
    problem = f"The rows for the output {topic.name!r} cannot be written"
    try:
        found = serde.serialize(rows)
    except MemoryError:
        # As where they are read.
        raise
    except Exception as error:
        told = error if isinstance(error, SerializationException) else f"{serde!r} failed with {text_with_line(error)}"
        raise TopicException(f"{problem}: {told}") from error
    made_of = len(found) if isinstance(found, Sized) else shown(found)
    if made_of != rows.num_rows:
        raise TopicException(
            f"{problem}: {serde!r} made {made_of} values of {rows.num_rows} rows, and must make one of each."
        )
    strange = next((each for each in found if each is not None and not isinstance(each, bytes)), None)
    if strange is not None:
        raise TopicException(f"{problem}: {serde!r} made {shown(strange)}, and must make bytes, or None.")
    return found


def _keys_of(rows: pa.Table, topic: KafkaTopic) -> tuple[Sequence[bytes | None], UInt8Array, Int64Array]:
    """The key of each row's record; and all of them as bytes, with offsets into them, in which no key is an empty one."""
    if topic.key_serde is not None:
        in_key = rows.select(list(topic.key))
        keys = _serialized(topic, topic.key_serde, in_key, is_there(in_key))
        bounds = np.cumsum([0, *(len(key or b"") for key in keys)], dtype=np.int64)
        return keys, np.frombuffer(b"".join(key or b"" for key in keys), np.uint8), bounds
    flat, bounds = serialise_keys(rows, topic.key)
    data, cuts = flat.tobytes(), bounds.tolist()
    keys = [data[start:end] for start, end in itertools.pairwise(cuts)]
    if topic.key_in == "key":
        _check_keys(rows, topic)
        if len(topic.key) == 1:
            # Nothing else says that there was none.
            there = valid(rows.column(topic.key[0]))
            if there is not None:
                keys = [key if is_known else None for key, is_known in zip(keys, there.tolist(), strict=True)]
    return keys, flat, bounds


def check_columns(topic: KafkaTopic, schema: pa.Schema) -> None:
    """Hold what a topic names as key, timestamp and headers against the columns of the rows that go there.

    Raises:
        TopicException: there is no such column, or one is of another type than it must be.
    """
    missing = [
        name for name in (*topic.key, topic.timestamp, topic.headers) if name is not None and name not in schema.names
    ]
    if missing:
        raise TopicException(
            f"The rows for the output {topic.name!r} have no columns {missing}, which KafkaTopic({topic.name!r}) names as key, "
            f"timestamp or headers; they have {schema.names}."
        )
    for name in topic.key:
        try:
            key_type_name(schema.field(name).type)
        except TopicException as error:
            raise TopicException(f"The key column {name!r} of the output {topic.name!r}: {error}") from None
    if topic.timestamp is not None:
        kind = schema.field(topic.timestamp).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind) or pa.types.is_null(kind)):
            raise TopicException(
                f"The timestamp column {topic.timestamp!r} of the output {topic.name!r} has type {kind}; it must be a timestamp "
                "or a signed integer (int64, as a rule) of milliseconds since the epoch."
            )
    if topic.headers is not None:
        kind = schema.field(topic.headers).type
        check_headers(f"the output {topic.name!r}", topic.headers, kind, is_written=True)


def _check_keys(rows: pa.Table, topic: KafkaTopic) -> None:
    """See to it that keys have all that the key columns say, which nothing else says.

    Raises:
        TopicException: a time has more than milliseconds.
    """
    for name in topic.key:
        kind = rows.schema.field(name).type
        if pa.types.is_timestamp(kind):
            try:
                rows.column(name).cast(pa.timestamp("ms", kind.tz))
            except pa.ArrowInvalid as error:
                raise TopicException(
                    f"The key column {name!r} of the output {topic.name!r} has times that are no milliseconds, and the key of a "
                    f"record holds no more ({error}). Maybe KafkaTopic({topic.name!r}, key_in='value')."
                ) from None


def _times_of(rows: pa.Table, topic: KafkaTopic) -> list[int]:
    """The time of each row's record, ms; -1: that at which it is written.

    Raises:
        TopicException: a row has none that a record can have, and the record is where it is kept.
    """
    if topic.timestamp is None:
        return [-1] * rows.num_rows
    found = timestamps_in_ms(rows.column(topic.timestamp)).to_pylist()
    # librdkafka takes 0 for none, too.
    wrong = next((row for row, time in enumerate(found) if time is None or time <= 0), None)
    if wrong is not None and topic.is_timed_by_record:
        raise TopicException(
            f"A row for the output {topic.name!r} has {rows.column(topic.timestamp)[wrong]} as {topic.timestamp!r}, which cannot "
            f"be the time of a record that is written here: that has one, after 1970-01-01T00:00:00Z. Maybe KafkaTopic({topic.name!r}, timestamp_in='value')."
        )
    return [-1 if time is None or time <= 0 else time for time in found]


def check_times(topics: Iterable[KafkaTopic], restamped: Collection[str]) -> None:
    """See to it that rows keep their time where the record's is all that says it.

    Args:
        topics: those that were written.
        restamped: those whose records have the time at which they were written.

    Raises:
        TopicException: they have lost it.
    """
    for topic in topics:
        if topic.is_timed_by_record and topic.name in restamped:
            raise TopicException(
                f"The topic {topic.name!r} has message.timestamp.type=LogAppendTime: its records have the time at which they are written, so "
                f"that of the rows, {topic.timestamp!r}, would be lost. Maybe set it to CreateTime, or KafkaTopic({topic.name!r}, "
                "timestamp_in='value')."
            )
