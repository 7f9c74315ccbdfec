"""Headers of records as a column: read, passed on and written as they are, and no values of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.headers import HeadedTopicSpec, read_headers
from task_assignor.kafka.topics.output_records import records_of
from task_assignor.runtime import (
    Aggregate,
    DeadLetters,
    DerivedTable,
    Forwarded,
    Output,
    RecordProcessor,
    Repartitioned,
    StreamTableJoin,
    SubTopology,
    TableAggregation,
    TableChanges,
    TaskContext,
    Topology,
    WindowedJoin,
)
from task_assignor.runtime.errors import TopicException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import run_to_end
from tests.kafka.topics.test_sinks import Unique

Headers = list[tuple[str, bytes | None]]
KIND = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE = pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())]))
ORDERS = pa.schema([("item", pa.string()), ("at", pa.int64()), ("amount", pa.int64()), ("headers", KIND)])
PRICES = pa.schema([("item", pa.string()), ("at", pa.int64()), ("price", pa.int64()), ("headers", KIND)])
HOW: dict[str, Any] = {
    "key": "item",
    "timestamp": "at",
    "key_in": "key",
    "timestamp_in": "record",
    "headers": "headers",
}
START_MS = 1_700_000_000_000


class Same(RecordProcessor):
    """What it reads."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record."""
        return [record]


class Traced(RecordProcessor):
    """What it reads, and the trace in a column of its own."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record with one more header."""
        traces = [each["value"].decode() for each in record["headers"] or () if each["key"] == "trace"]
        more = {"key": "seen", "value": None}
        return [{**record, "trace": traces[-1] if traces else None, "headers": [*(record["headers"] or ()), more]}]


def written(servers: str, topic: str) -> list[tuple[bytes | None, Any, Headers | None]]:
    """Key, value as JSON and headers of the records of the only partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, Any, Headers | None]] = []
    while True:
        message: Any = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        value = message.value()
        found.append((message.key(), None if value is None else json.loads(value), message.headers()))


@pytest.mark.kafka
def test_headers_go_through_an_application_and_keep_no_key_of_a_table(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """A stream is passed on and joined, with dead letters; the deletions of the table have headers, too."""
    servers = kafka_cluster.bootstrap_servers
    names = ("orders", "prices", "same", "traced", "priced", "cheap", "pairs", "counts", "letters")
    orders, prices, same, traced, priced, cheap, pairs, counts, letters = map(unique, names)
    make_topics(servers, orders, prices, same, traced, priced, cheap, pairs, counts, letters, partitions=1)
    producer = Producer({"bootstrap.servers": servers})
    many: Headers = [("trace", b"1"), ("", b""), ("trace", b"2"), ("n\u00e4me", None), ("bytes", b"\xff\x00")]
    given = [
        (b"tea", b'{"amount":1}', many),
        (b"ink", b'{"amount":2}', None),
        (b"tea", None, [("trace", b"3")]),
        (b"ink", b"broken", [("trace", b"4")]),
        (b"tea", b'{"amount":5}', [("trace", b"5")]),
        (b"ink", b'{"amount":6}', [("trace", b"6")]),
    ]
    for number, (key, value, headers) in enumerate(given):
        # (the package's own types do not know that there may be none)
        producer.produce(orders, value, key, timestamp=START_MS + 10 * number, headers=headers)  # type: ignore[arg-type]
    for at, key, value in ((-2, b"tea", b'{"price":3}'), (-1, b"ink", b'{"price":4}'), (25, b"tea", None)):
        producer.produce(prices, value, key, timestamp=START_MS + at, headers=[("trace", b"of a price")])
    assert producer.flush(60) == 0
    known = [KafkaTopic(orders, ORDERS, **HOW), KafkaTopic(prices, PRICES, **HOW)]
    opened = KafkaTopics({"bootstrap.servers": servers}, known)
    specs = [opened.open(orders).spec, opened.open(prices).spec]
    join = StreamTableJoin(stream=orders, table=prices, table_columns=("price",), bad_records="skip")
    below = DerivedTable("below", prices, filter=lambda rows: [True] * rows.num_rows)
    looked_up = StreamTableJoin(
        stream=orders, table="below", how="left", stream_columns=("amount",), bad_records="skip"
    )
    window = WindowedJoin(
        left="forwarded", right=prices, before_ms=100, after_ms=100, right_columns=("price",), bad_records="skip"
    )
    changes = Repartitioned(
        "changes",
        pa.schema([*(PRICES.field(name) for name in ("item", "price", "headers", "at")), ("change", pa.int64())]),
        key="item",
        partitions=1,
        timestamp="at",
    )
    groups = TableAggregation(source="changes", aggregates={"rows": Aggregate.count()})
    forwarded = Forwarded("forwarded", ORDERS)
    topology = Topology(
        [
            SubTopology("same", orders, Same, outputs=Output(same, ORDERS), bad_records=DeadLetters(letters)),
            SubTopology("traced", orders, Traced, outputs=traced, bad_records="skip"),
            join.sub_topology("join", priced, topics=specs),
            looked_up.sub_topology("look", cheap, topics=[specs[0], *below.specs_of(specs[1])[-1:]]),
            SubTopology("forwards", orders, Same, outputs=forwarded, bad_records="skip"),
            window.sub_topology("pairs", pairs, topics=[specs[0].with_columns("forwarded", ORDERS), specs[1]]),
            TableChanges(table=prices).sub_topology("changes", changes, topics=specs[1]),
            groups.sub_topology("count", counts, topics=[changes.spec]),
        ],
        derived=below,
    )
    outputs = [KafkaTopic(name, **HOW) for name in (same, traced)]
    joined = [KafkaTopic(name, key="item", headers="headers") for name in (priced, cheap, pairs)]
    plain = [KafkaTopic(counts, key="item"), KafkaTopic(letters)]
    with pytest.raises(TopicException, match=r"'headers' has type list<.*JSON cannot say\. Maybe .* headers='headers'"):
        records_of(pa.table({"item": ["a"], "headers": pa.array([[]], KIND)}), KafkaTopic("t"), 1, [0])
    run_to_end(servers, unique("app"), tmp_path / "run", topology, *known, *outputs, *joined, *plain)
    readable = [(key, value and json.loads(value), headers) for key, value, headers in given if value != b"broken"]
    assert written(servers, same) == readable
    found = written(servers, traced)
    assert [headers for *_, headers in found] == [[*(headers or ()), ("seen", None)] for *_, headers in readable]
    assert [value["trace"] for _, value, _ in found] == ["2", None, "3", "5", "6"]
    # The price of tea was gone, though the record that says so has headers.
    assert [(value["price"], headers) for _, value, headers in written(servers, priced)] == [
        (price, headers) for price, (*_, headers) in zip([3, 4, 3, 4], readable[:3] + readable[4:], strict=True)
    ]
    with_price = [(headers, None if headers is None else 1) for *_, headers in written(servers, cheap)]
    assert with_price == [([("trace", b"of a price")], 1)] * 3 + [(None, None)] + [([("trace", b"of a price")], 1)]
    assert sorted(str(headers) for *_, headers in written(servers, pairs)) == sorted(
        str(headers) for key, _, headers in readable for _ in range(2 if key == b"tea" else 1)
    )
    assert [value["rows"] for _, value, _ in written(servers, counts) if value["item"] == "tea"] in ([], [1, None])
    ((_, letter, _),) = written(servers, letters)
    assert json.loads(letter["record"])["headers"] == [{"name": "trace", "value": "4"}]


@pytest.mark.kafka
def test_a_header_whose_name_is_no_text_makes_a_bad_record(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """confluent-kafka raises when it is asked first, and then gives what no code of Python can look at: dead letters died of it."""

    class Name(str):
        def encode(self, *_: Any) -> bytes:
            return b"\xff"

    servers = kafka_cluster.bootstrap_servers
    source, target, letters = map(unique, ("source", "target", "letters"))
    make_topics(servers, source, target, letters, partitions=1)
    writer = kafka.KafkaProducer(bootstrap_servers=servers)
    for value in (b'{"amount":1}', b"broken"):
        writer.send(source, value, b"tea", headers=[(Name("n"), b"1")]).get(60)
    writer.send(source, b'{"amount":2}', b"tea").get(60)
    writer.close()
    topology = Topology(SubTopology("same", source, Same, outputs=target, bad_records=DeadLetters(letters)))
    topics = [KafkaTopic(source, ORDERS, **HOW), KafkaTopic(target, **HOW), KafkaTopic(letters)]
    run_to_end(servers, unique("app"), tmp_path / "run", topology, *topics)
    assert written(servers, target) == [(b"tea", {"amount": 2}, None)]
    for _, letter, _ in written(servers, letters):
        assert "is no UTF-8" in json.loads(letter["record"])["headers"]


class Given:
    """What is asked of a record of confluent-kafka."""

    def __init__(self, headers: Headers | None) -> None:
        self.headers = lambda: headers


CELLS: Any = st.none() | st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary()), max_size=4
)


@given(st.lists(CELLS, min_size=1, max_size=5), st.sampled_from([KIND, LARGE]))
def test_headers_are_written_as_they_are_read(cells: list[Headers | None], kind: pa.DataType) -> None:
    column = read_headers([Given(cell) for cell in cells], kind)
    assert column.type == kind
    # A record has none, or some: who reads a table knows nothing of the others.
    assert column.is_null().to_pylist() == [not cell for cell in cells]
    rows = pa.table({"k": ["a"] * len(cells), "headers": column})
    found = records_of(rows, KafkaTopic("out", key="k", headers="headers"), 1, [])
    assert [headers for *_, headers in found] == [cell or None for cell in cells]
    assert {value for value, *_ in found} <= {b'{"k":"a"}'}


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([None, None], [None, None]),
        ([[], None], [None, None]),
        ([[{"key": "a", "value": None}], None], [[("a", None)], None]),
        ([[{"value": b"1", "key": "a"}], []], [[("a", b"1")], None]),
    ],
)
def test_rows_need_not_say_of_which_type_headers_are(cells: list[Any], found: list[Headers | None]) -> None:
    """Arrow finds nulls where nothing else is."""
    rows = pa.table({"k": ["a", "b"], "n": [None, None], "h": pa.array(cells)})
    records = records_of(rows, KafkaTopic("out", key="k", key_in="key", headers="h"), 1, [])
    assert [(value, headers) for value, *_, headers in records] == [(None, each) for each in found]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.null(),
        pa.list_(pa.string()),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.null())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.string())])),
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary(), nullable=False)])),
    ],
)
def test_another_type_is_refused(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.string()), ("h", kind)])
    with pytest.raises(
        TopicException, match=r"The headers column 'h' of topic t has type .* it must be list<struct<key"
    ):
        KafkaTopic("t", schema, "k", headers="h")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"headers": "k"}, "column 'k' of topic t cannot be its headers and key or timestamp, too"),
        ({"headers": "at", "timestamp": "at"}, "column 'at' of topic t cannot be its headers and key"),
        ({"headers": "other"}, r"Topic t has no column 'other' for headers. Its columns are \['k', 'at'\]"),
        ({"headers": 5}, r"The headers \(5\) of topic t must be the name of a column"),
    ],
)
def test_a_column_that_cannot_be_headers_is_refused(more: dict[str, Any], told: str) -> None:
    with pytest.raises(TopicException, match=told):
        KafkaTopic("t", pa.schema([("k", pa.string()), ("at", pa.int64())]), "k", **more)


def test_rows_whose_headers_cannot_be_written_are_refused() -> None:
    topic = KafkaTopic("out", key="k", headers="h")
    for column, told in (
        (pa.array([[{"key": "a", "value": "text"}]]), r"'h' of the output 'out' has type .*values are bytes"),
        (
            pa.array([[{"key": None, "value": b"1"}]], KIND),
            "A row for the output 'out' has a header without a key in 'h'",
        ),
        (pa.array([[None]], KIND), "A row for the output 'out' has a header without a key in 'h'"),
    ):
        with pytest.raises(TopicException, match=told):
            records_of(pa.table({"k": ["a"], "h": column}), topic, 1, [])
    with pytest.raises(TopicException, match=r"have no columns \['h'\], which .* names as key, timestamp or headers"):
        records_of(pa.table({"k": ["a"]}), topic, 1, [])


@pytest.mark.kafka
def test_declared_columns_of_an_output_are_refused_before_anything_begins(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    servers, source, target = kafka_cluster.bootstrap_servers, unique("source"), unique("target")
    make_topics(servers, source, target, partitions=1)
    columns = pa.schema([("item", pa.string()), ("headers", pa.string())])
    topology = Topology(SubTopology("same", source, Same, outputs=Output(target, columns)))
    topics = [KafkaTopic(source, ORDERS, **HOW), KafkaTopic(target, key="item", headers="headers")]
    with pytest.raises(TopicException, match=f"The headers column 'headers' of the output '{target}' has type string"):
        run_to_end(servers, unique("refused"), tmp_path / "run", topology, *topics)


def test_a_topic_without_headers_is_what_it_was() -> None:
    """What a run remembers of its topics, for one."""
    schema = pa.schema([("k", pa.string())])
    assert not isinstance(KafkaTopic("t", schema, "k").spec(schema), HeadedTopicSpec)
    assert KafkaTopic("t", schema, "k", timestamp=None).spec(schema).beside_values == ()
