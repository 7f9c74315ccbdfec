"""Partitioning of keys: murmur2 as Kafka has it, on scalars and on columns."""

from __future__ import annotations

import datetime as dt
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.runtime import TopicException, murmur2, partitions_of, write_topic
from task_assignor.runtime.arrow.keys import key_type_name, murmur2_many, serialise_keys, timestamps_in_ms
from tests.budget import examples

# org.apache.kafka.common.utils.UtilsTest#testMurmur2
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def _plain_murmur2(data: bytes) -> int:
    """murmur2 byte by byte, from its definition (Austin Appleby, public domain), with Kafka's seed."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize("data", KAFKAS)
def test_murmur2_equals_kafkas_own_vectors(data: bytes) -> None:
    assert KAFKAS[data] == murmur2(data)


@given(st.lists(st.binary(max_size=40), max_size=30))
@settings(max_examples=examples(150))
def test_hashes_of_many_keys_are_those_of_each(keys: list[bytes]) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(key) for key in keys])]).astype(np.int64)
    hashes = murmur2_many(np.frombuffer(b"".join(keys), dtype=np.uint8), offsets)
    assert [_plain_murmur2(key) for key in keys] == hashes.astype(np.int32).tolist()


def _serialised(table: pa.Table, key: list[str]) -> list[bytes]:
    flat, offsets = serialise_keys(table, key)
    return [flat[start:end].tobytes() for start, end in pairwise(offsets)]


DAY = dt.date(2013, 1, 1)
MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["JFK", "", "Zürich"], pa.string(), [b"JFK", b"", "Zürich".encode()]),
        (["JFK"], pa.large_string(), [b"JFK"]),
        ([b"\x00\x01"], pa.binary(), [b"\x00\x01"]),
        ([1, -2], pa.int64(), [struct.pack(">q", 1), struct.pack(">q", -2)]),
        ([1, -2], pa.int32(), [struct.pack(">i", 1), struct.pack(">i", -2)]),
        ([1, -2], pa.int16(), [struct.pack(">h", 1), struct.pack(">h", -2)]),
        ([1, -2], pa.int8(), [b"\x01", b"\xfe"]),
        ([True, False], pa.bool_(), [b"\x01", b"\x00"]),
        ([DAY], pa.date32(), [struct.pack(">i", (DAY - dt.date(1970, 1, 1)).days)]),
        ([MOMENT], pa.timestamp("us", "UTC"), [struct.pack(">q", 1_357_016_400_000)]),
        ([MOMENT], pa.timestamp("s", "UTC"), [struct.pack(">q", 1_357_016_400_000)]),
        ([None, "a"], pa.string(), [b"", b"a"]),
        ([None, 1, None, 2], pa.int64(), [b"", struct.pack(">q", 1), b"", struct.pack(">q", 2)]),
    ],
)
def test_keys_have_the_bytes_of_kafkas_serializers(values: list[Any], kind: pa.DataType, expected: list[bytes]) -> None:
    assert expected == _serialised(pa.table({"k": pa.array(values, kind)}), ["k"])


def test_a_key_of_several_columns_is_written_with_lengths() -> None:
    table = pa.table({"a": ["JFK", None, ""], "b": pa.array([7, 8, None], pa.int32())})
    expected = [
        b"\x00\x00\x00\x03JFK\x00\x00\x00\x04\x00\x00\x00\x07",
        b"\xff\xff\xff\xff\x00\x00\x00\x04\x00\x00\x00\x08",
        b"\x00\x00\x00\x00\xff\xff\xff\xff",
    ]
    assert expected == _serialised(table, ["a", "b"])


def test_dictionaries_and_slices_have_the_bytes_of_their_values() -> None:
    plain = pa.array(["x", "yy", "zzz", "yy"])
    table = pa.table({"plain": plain, "coded": plain.dictionary_encode()})
    assert _serialised(table, ["plain"]) == _serialised(table, ["coded"])
    assert _serialised(table.slice(2), ["plain"]) == [b"zzz", b"yy"]
    chunked = pa.concat_tables([table.slice(1, 2), table.slice(0, 1)])
    assert _serialised(chunked, ["plain"]) == [b"yy", b"zzz", b"x"]


def test_null_may_be_among_the_values_of_several_dictionaries(tmp_path: Path) -> None:
    """As Arrow reads them from several files: "Cannot yet unify dictionaries with nulls"."""
    coded = [pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([value, None])) for value in "ab"]
    table = pa.table({"k": pa.chunked_array(coded), "v": [1, 2, 3, 4]})
    assert _serialised(table, ["k"]) == [b"a", b"", b"b", b""]
    topic = write_topic(tmp_path, "t", table, partitions=1, key=["k"])
    assert topic.read(0, 0, 4).column("k").cast(pa.string()).to_pylist() == ["a", None, "b", None]


def test_partition_is_kafkas() -> None:
    keys = [key.decode() for key in KAFKAS]
    expected = [(value & 0x7FFFFFFF) % 12 for value in KAFKAS.values()]
    assert expected == partitions_of(pa.table({"k": keys}), ["k"], 12).tolist()


def test_large_columns_are_hashed_in_blocks() -> None:
    """More rows than a block has, of one length and of several."""
    numbers = np.arange(300_000)
    table = pa.table({"n": numbers, "s": pa.array(numbers).cast(pa.string())})
    for column in ("n", "s"):
        whole = partitions_of(table, [column], 7)
        assert np.array_equal(whole[299_000:], partitions_of(table.slice(299_000), [column], 7))
    assert np.bincount(partitions_of(table, ["n"], 7)).min() > 42_000


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int8()), pa.uint8(), pa.decimal128(5, 2)])
def test_types_that_do_not_decide_equality_are_no_keys(kind: pa.DataType) -> None:
    with pytest.raises(TopicException, match="cannot be a key"):
        key_type_name(kind)


@pytest.mark.parametrize("kind", [pa.binary(16), pa.uuid() if hasattr(pa, "uuid") else pa.binary(16)])
def test_bytes_of_a_fixed_length_are_keys_once_they_are_binary(kind: pa.DataType) -> None:
    column = pa.array([bytes(16), bytes(range(16))], kind)
    with pytest.raises(TopicException, match=r"cannot be a key as it is\. Maybe cast it to binary\."):
        partitions_of(pa.table({"id": column}), ["id"], 2)
    assert len(partitions_of(pa.table({"id": column.cast(pa.binary())}), ["id"], 2)) == 2


def test_missing_key_columns_are_named() -> None:
    with pytest.raises(TopicException, match=r"key columns \['c'\] are not in the table; it has \['a'\]"):
        partitions_of(pa.table({"a": [1]}), ["c"], 2)
    with pytest.raises(TopicException, match="at least one key column"):
        partitions_of(pa.table({"a": [1]}), [], 2)


def test_milliseconds_are_rounded_down_also_before_1970() -> None:
    nanoseconds = pa.array([-1, 0, 999_999, 1_000_000, -1_000_000, -1_000_001], pa.timestamp("ns"))
    assert timestamps_in_ms(nanoseconds).to_pylist() == [-1, 0, 0, 1, -1, -2]
    assert timestamps_in_ms(pa.array([5, None], pa.int32())).to_pylist() == [5, None]
