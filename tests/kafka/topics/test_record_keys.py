"""Keys of records: what is written of key columns is what is read of them, or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.topics import JsonSerde, KafkaTopic, SerializationException
from task_assignor.kafka.topics.keys import read_keys
from task_assignor.kafka.topics.output_records import records_of
from task_assignor.runtime.arrow.keys import murmur2, serialise_keys
from task_assignor.runtime.errors import TopicException


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"])),
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.integers(-(2**40), 2**40),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_keys_are_read_as_they_are_written(cells: list[tuple[str, int | None, int | None]]) -> None:
    schema = pa.schema([("s", pa.string()), ("n", pa.int32()), ("at", pa.timestamp("ms"))])
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*cells, strict=True), schema, strict=True)]
    rows = pa.table(arrays, schema=schema)
    for names in (["s"], ["s", "n"], ["n", "at", "s"]):
        flat, offsets = serialise_keys(rows, names)
        keys = [bytes(flat[start:end]) for start, end in itertools.pairwise(offsets)]
        found = read_keys(keys, [schema.field(name) for name in names])
        assert [column.to_pylist() for column in found] == [rows.column(name).to_pylist() for name in names]


@pytest.mark.parametrize("key", [b"", b"123", b"12345"])
def test_a_key_of_other_bytes_is_refused(key: bytes) -> None:
    with pytest.raises(SerializationException, match="is not of the columns n: int32"):
        read_keys([b"1234", key], [pa.field("n", pa.int32())])


def test_a_key_that_is_nowhere_else_keeps_all_of_its_time_or_is_refused() -> None:
    rows = pa.table({"at": pa.array([1_000_000, 1_234_567], pa.timestamp("us"))})
    topic = KafkaTopic("keyed", key="at", key_in="key")
    assert [key for _, key, *_ in records_of(rows[:1], topic, 1, [])] == [(1_000).to_bytes(8, "big")]
    with pytest.raises(TopicException, match=r"The key column 'at' of the output 'keyed' .*would lose data: 1234567"):
        records_of(rows, topic, 1, [])
    assert len(records_of(rows, KafkaTopic("valued", key="at"), 1, [])) == 2


def test_null_among_the_values_of_a_dictionary_is_no_key() -> None:
    """Arrow says that it is there, so it was the key of an empty text."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array(["a", None]))
    rows = pa.table({"k": names, "n": [1, 2, 3]})
    found = records_of(rows, KafkaTopic("keyed", key="k", key_in="key"), 1, [])
    assert [key for _, key, *_ in found] == [b"a", None, None]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.binary(), [b"\xff", None, b""]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"]),
        (pa.dictionary(pa.int8(), pa.int64()), [5, None, 5]),
    ],
)
def test_what_is_in_the_key_of_records_need_not_be_what_json_can_say(
    kind: pa.DataType, keys: list[bytes | str | int | None]
) -> None:
    """A topic whose keys are bytes could not be read as JSON, though they are not in it."""
    column = pa.array(keys).dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else pa.array(keys, kind)
    rows = pa.table({"k": column, "n": [1, 2, 3]})
    found = records_of(rows, KafkaTopic("keyed", rows.schema, "k", key_in="key"), 1, [])
    assert [value for value, *_ in found] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert read_keys([key for _, key, *_ in found], [rows.schema.field("k")]) == [column]
    with pytest.raises(TopicException, match=r"The column 'k' has type .*, which JSON cannot say"):
        KafkaTopic("valued", rows.schema, "k")


def test_more_keys_than_a_dictionary_has_numbers_for_are_told() -> None:
    """Arrow said that an integer is not in range, and named neither topic nor column."""
    small = pa.field("k", pa.dictionary(pa.int8(), pa.string()))
    keys = [b"%d" % number for number in range(129)]
    assert read_keys(keys[1:], [small])[0].to_pylist()[-1] == "128"
    with pytest.raises(SerializationException, match=r"the key column 'k' of type .*int8.* Maybe indices of int32"):
        read_keys(keys, [small])


class Deletes(JsonSerde):
    """Values of rows that are there."""

    def serialize(self, rows: pa.Table) -> Sequence[bytes]:
        """What JSON is of them."""
        assert all(row["n"] is not None for row in rows.to_pylist())
        return super().serialize(rows)


def test_keys_may_be_in_the_format_of_a_serde() -> None:
    """There was no way to read such topics with their tombstones, nor to write to the partitions where others have these keys."""
    kind: dict[str, Any] = {"key": ["k", "l"], "key_in": "key", "key_serde": JsonSerde()}
    rows = pa.table({"n": [1, 2, 3], "k": ["a", None, None], "l": pa.array([5, 6, None])})
    topic = KafkaTopic("keyed", rows.schema, **kind)
    found = records_of(rows, topic, 7, [])
    keys = [b'{"k":"a","l":5}', b'{"k":null,"l":6}', None]
    assert [(value, key) for value, key, *_ in found] == [
        (b'{"n":%d}' % number, key) for number, key in enumerate(keys, 1)
    ]
    assert [place for _, _, place, *_ in found] == [(murmur2(key or b"") & 0x7FFFFFFF) % 7 for key in keys]
    # The key is written so wherever it is read from.
    found = records_of(rows, KafkaTopic("keyed", key=["k", "l"], key_serde=JsonSerde()), 7, [])
    assert [key for _, key, *_ in found] == keys
    with pytest.raises(TopicException, match="cannot be written: The column 'k' has type binary"):
        records_of(pa.table({"k": [b"a"]}), KafkaTopic("keyed", key="k", key_serde=JsonSerde()), 7, [])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"key_serde": JsonSerde()}, r"With a key_serde the topic t needs key columns"),
        (
            {"key": "k", "key_serde": JsonSerde},
            r"The key_serde \(.*\) of topic t must be a Serde, such as JsonSerde\(\)",
        ),
        ({"key": "k", "key_serde": JsonSerde(), "key_in": "key"}, r"The topic t: The column 'k' has type binary"),
    ],
)
def test_a_key_serde_that_cannot_be_is_refused(more: dict[str, Any], told: str) -> None:
    schema = pa.schema([("k", pa.binary()), ("n", pa.int64())]) if "key_in" in more else None
    with pytest.raises(TopicException, match=told):
        KafkaTopic("t", schema, **more)


def test_a_row_that_has_only_its_key_is_a_record_without_a_value() -> None:
    """It was a value of nulls: Kafka kept the key in a compacted topic for ever, and who reads a table from it found it there."""
    rows = pa.table({"k": ["a", "b", "c"], "n": [None, 1, None]})
    timed = rows.append_column("at", pa.array([5, 6, 7]))
    deletions = [(None, b"a"), (b'{"n":1}', b"b"), (None, b"c")]

    def written(rows: pa.Table, **more: Any) -> list[tuple[bytes | None, bytes | None]]:
        topic = KafkaTopic("table", key="k", key_in="key", **more)
        return [(value, key) for value, key, *_ in records_of(rows, topic, 1, [])]

    assert written(rows, serde=Deletes()) == deletions
    assert written(timed, serde=Deletes(), timestamp="at", timestamp_in="record") == deletions
    # A time in the value is nowhere else.
    assert [value for value, _ in written(timed, timestamp="at")][:2] == [b'{"n":null,"at":5}', b'{"n":1,"at":6}']
    assert [value for value, _ in written(rows.select(["k"]))] == [b"{}"] * 3
    in_value = records_of(rows, KafkaTopic("table", key="k"), 1, [])
    assert in_value[0][0] == b'{"k":"a","n":null}'


@pytest.mark.parametrize("name", ["serde", "key_serde"])
def test_what_is_no_bytes_is_refused_before_it_is_written(name: str) -> None:
    """Scalars of Arrow came to the brokers, were committed, and then the client failed: "object has no len()"."""

    class Scalars(JsonSerde):
        def serialize(self, rows: pa.Table) -> Any:
            return pa.array(super().serialize(rows), pa.binary())

    more: dict[str, Any] = {name: Scalars()}
    with pytest.raises(
        TopicException, match=r"'t' cannot be written: Scalars\(\) made <.*>, and must make bytes, or None"
    ):
        records_of(pa.table({"k": ["a"], "n": [1]}), KafkaTopic("t", key="k", **more), 1, [])
