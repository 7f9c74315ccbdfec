"""Tasks read topics of Kafka: the same rows as from a folder, whatever gaps their offsets have; and what is said when they cannot."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import JsonSerde, KafkaTopic, KafkaTopics, SerializationException
from task_assignor.kafka.topics.keys import read_keys
from task_assignor.kafka.topics.output_records import records_of
from task_assignor.kafka.topics.serdes import RowSerde, to_times
from task_assignor.runtime import (
    BatchesCommitted,
    Output,
    RunEvent,
    StreamsApplication,
    SubTopology,
    Topology,
    WindowedJoin,
)
from task_assignor.runtime.errors import BadRecordException, TopicException
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import PARTITIONS, killer, stream_topic, write_records, write_streams_to_kafka
from tests.runtime.support import (
    AFTER_MS,
    BEFORE_MS,
    QUICK,
    CountByKey,
    count_topology,
    in_order,
    plain_join,
    settings,
    stream,
)

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


def topics_at(cluster: KafkaCluster, *topics: KafkaTopic, timeout_ms: int = 60_000) -> KafkaTopics:
    return KafkaTopics({"bootstrap.servers": cluster.bootstrap_servers}, topics, timeout_ms)


def join_of(left: str, right: str) -> Topology:
    join = WindowedJoin(left=left, right=right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
    return Topology([join.sub_topology("join", output="joined")])


@pytest.mark.parametrize("transactions", [0, 5])
def test_a_join_of_kafka_topics_with_a_killed_client_is_the_plain_join(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, transactions: int
) -> None:
    left, right = unique("left"), unique("right")
    one, other = write_streams_to_kafka(kafka_cluster.bootstrap_servers, left, right, 4_000, 200, transactions)
    application = StreamsApplication(
        join_of(left, right),
        settings(num_standby_replicas=1),
        topics_root=topics_at(kafka_cluster, stream_topic(left), stream_topic(right)),
        run_dir=tmp_path / "run",
        clients=3,
        options=QUICK,
    )
    result = application.run(killer(after_commits=2))
    assert in_order(result.table("joined")).equals(in_order(plain_join(one, other)))
    assert result.lost_clients
    # It goes on where it stopped.
    more = stream(400, 200, seed=1)
    write_records(kafka_cluster.bootstrap_servers, left, more.set_column(1, "at", pa.array(np.full(400, 700_000))))
    again = StreamsApplication(
        join_of(left, right),
        settings(num_standby_replicas=1),
        topics_root=topics_at(kafka_cluster, stream_topic(left), stream_topic(right)),
        run_dir=tmp_path / "run",
        clients=1,
        options=QUICK,
    ).run()
    assert again.rows_in >= 400
    assert in_order(again.table("joined")).equals(in_order(plain_join(one, other)))


def test_ranges_with_gaps_are_read_exactly(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name = unique("gaps")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=PARTITIONS)
    rows = stream(500, 50, seed=3)
    write_records(kafka_cluster.bootstrap_servers, name, rows, transactions=7)
    log = topics_at(kafka_cluster, stream_topic(name)).open(name)
    assert list(log.start_offsets()) == [0] * PARTITIONS
    values = []
    for partition, end in enumerate(log.end_offsets()):
        whole = log.fetch(partition, 0, end)
        offsets = np.asarray(whole.offsets)
        assert (np.diff(offsets) > 0).all()
        assert len(offsets) < end, "markers and aborted records have offsets too"
        values += whole.rows.column("value").to_pylist()
        for start in (0, end // 3, end // 3, end - 1, end):  # also backwards, and the same once more
            for stop in (start, (start + end) // 2, end):
                found = log.fetch(partition, start, stop)
                inside = (offsets >= start) & (offsets < stop)
                assert np.asarray(found.offsets).tolist() == offsets[inside].tolist()
                assert found.rows.equals(whole.rows.filter(pa.array(inside)))
    assert sorted(values) == sorted(rows.column("value").to_pylist())


def test_records_of_an_open_transaction_are_not_read(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name = unique("open")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    value = b'{"key": 1, "at": 5, "value": "v"}'
    producer.produce(name, value)
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(name, value)
    assert producer.flush(60) == 0
    log = topics_at(kafka_cluster, stream_topic(name)).open(name)
    assert log.end_offsets() == [2], "the record and the marker"
    assert log.fetch(0, 0, 2).rows.num_rows == 1
    producer.commit_transaction(60)
    assert log.end_offsets() == [2]

    def has_grown() -> bool:
        # Kafka writes the marker after it has said that the transaction is committed.
        log.refresh()
        return log.end_offsets() == [4]

    wait_until(has_grown, "the second transaction is over")
    assert np.asarray(log.fetch(0, 2, 4).offsets).tolist() == [2]


def test_a_value_that_cannot_be_read_is_named(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    name = unique("bad")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    good = b'{"key": 1, "at": 5, "value": "v"}'
    for value in (good, good, b'{"key": "one"}', good):
        producer.produce(name, value)
    assert producer.flush(60) == 0
    application = StreamsApplication(
        count_topology(name),
        settings(),
        topics_root=topics_at(kafka_cluster, stream_topic(name)),
        run_dir=tmp_path / "run",
        clients=1,
        options=QUICK,
    )
    complaint = rf'{name}, partition 0, offset 2 cannot be read.*"key": "one".*\. Sub-topology .* stops at such'
    with pytest.raises(BadRecordException, match=complaint):
        application.run()


def test_key_and_time_may_come_from_the_record(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name = unique("keyed")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    producer.produce(name, b'{"n": 1}', "ä".encode(), timestamp=1_000)
    producer.produce(name, None, b"b", timestamp=2_000)
    producer.produce(name, b'{"n": 3}', None, timestamp=3_000)
    assert producer.flush(60) == 0
    schema = pa.schema([("at", pa.timestamp("ms", "UTC")), ("k", pa.string()), ("n", pa.int32())])
    topic = KafkaTopic(name, schema, "k", "at", key_in="key", timestamp_in="record")
    rows = topics_at(kafka_cluster, topic).open(name).fetch(0, 0, 3).rows
    assert rows.schema.equals(schema)
    assert rows.column("k").to_pylist() == ["ä", "b", None]
    assert rows.column("n").to_pylist() == [1, None, 3]
    assert rows.column("at").cast(pa.int64()).to_pylist() == [1_000, 2_000, 3_000]
    in_seconds = pa.schema([("at", pa.timestamp("s")), ("k", pa.string()), pa.field("n", pa.int32(), nullable=False)])
    topic = KafkaTopic(name, in_seconds, "k", "at", key_in="key", timestamp_in="record")
    (absent,) = topics_at(kafka_cluster, topic).open(name).fetch(0, 0, 3).unreadable
    assert (absent.offset, absent.error) == (
        1,
        "cannot be read: it has no 'n', which the topic's schema says is never null",
    )
    in_value = KafkaTopic(name, schema, "k", "at", timestamp_in="record")
    found = topics_at(kafka_cluster, in_value).open(name).fetch(0, 0, 3)
    assert [record.offset for record in found.unreadable] == [1]
    assert "tombstone" in found.unreadable[0].error
    assert np.asarray(found.offsets).tolist() == [0, 2]


def test_what_is_read_ahead_has_a_limit_in_bytes(
    kafka_cluster: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was one in records alone: 20 000 large ones of each partition that others were read beside."""
    name = unique("large")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=2)
    large, small = stream(300, 1, seed=1), stream(20, 1, seed=2)
    large = large.set_column(2, "value", pa.array(["x" * 100_000] * 300))
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "enable.idempotence": True})
    for partition, rows in enumerate((large, small)):
        for value in JsonSerde().serialize(rows):
            producer.produce(name, value, partition=partition)
    assert producer.flush(60) == 0
    monkeypatch.setattr("task_assignor.kafka.topics.reader._AHEAD_BYTES", 1_000_000)
    log = topics_at(kafka_cluster, stream_topic(name)).open(name)
    log.fetch(0, 0, 1)
    (ahead,) = log._reader._streams.values()
    log.fetch(1, 0, 20)

    def is_paused() -> bool:
        with log._reader._lock:
            log._reader._poll()
        return ahead.is_paused

    wait_until(is_paused, "it is not read on")
    assert 1_000_000 < ahead.size == sum(len(record.value()) for record in ahead.records)
    assert log.fetch(0, 1, 300).rows.num_rows == 299
    # On a busy machine it may have been paused again meanwhile; who asks for more lets it go on.
    assert ahead.size == 0


@pytest.mark.parametrize("is_given_up", [False, True])
def test_what_was_read_ahead_too_far_is_read_again_from_elsewhere(
    kafka_cluster: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    """A task goes on before the end of what it had read where its sources differ in time. The partition stayed paused then, and nothing came.

    It needs more than 20 000 records ahead, or a partition that was paused and that nobody asked for in a minute.
    """
    name = unique("ahead")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "enable.idempotence": True})
    for number, value in enumerate(JsonSerde().serialize(stream(400, 1, seed=1))):
        producer.produce(name, value, partition=number % 2)
    assert producer.flush(60) == 0
    monkeypatch.setattr("task_assignor.kafka.topics.reader._AHEAD", 50)
    log = topics_at(kafka_cluster, stream_topic(name)).open(name)
    log.fetch(0, 0, 10)
    ahead = log._reader._streams[name, 0]

    def poll() -> None:
        with log._reader._lock:
            log._reader._tidy(log._reader._streams)

    def is_paused() -> bool:
        log.fetch(1, 0, 10)
        poll()
        return ahead.is_paused

    wait_until(is_paused, "it is not read on")
    if is_given_up:
        monkeypatch.setattr("task_assignor.kafka.topics.reader._IDLE_S", 0.0)
        monkeypatch.setattr("task_assignor.kafka.topics.reader._LOOK_S", 0.0)
        poll()
        assert not log._reader._streams
        monkeypatch.undo()
    assert log.fetch(0, 5, 200).rows.num_rows == 195


def test_topics_that_are_not_there_are_named(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    left, right = unique("left"), unique("right")
    make_topics(kafka_cluster.bootstrap_servers, left, partitions=2)
    for known, complaint in (
        ((stream_topic(left), stream_topic(right)), f"topic '{right}' does not exist in bootstrap.servers="),
        ((stream_topic(left),), rf"Maybe add KafkaTopic\('{right}', schema="),
    ):
        with pytest.raises(TopicException, match=complaint):
            StreamsApplication(
                join_of(left, right), settings(), topics_root=topics_at(kafka_cluster, *known), run_dir=tmp_path / "run"
            )


def test_a_topic_created_anew_is_another_one(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    name = unique("anew")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=1)
    topics = topics_at(kafka_cluster, stream_topic(name))
    first = topics.open(name)
    assert topics.open(name, first.topic_id).topic_id == first.topic_id
    with pytest.raises(TopicException, match="deleted and created anew"):
        topics.open(name, "00000000-0000-0000-0000-000000000000")


def test_a_topic_that_is_deleted_while_it_is_read_is_named(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """It was said that the cluster answers, "but not to this", and at last that the topic may have to be created first."""
    name = unique("deleted")
    make_topics(kafka_cluster.bootstrap_servers, name, partitions=1)
    topics = topics_at(kafka_cluster, stream_topic(name))
    log = topics.open(name)
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    admin.delete_topics([name])[name].result(60)
    said = f"{name} is not there any more: somebody has deleted it"
    wait_until(lambda: topics._clients().connection._state_of_brokers(60) == said, "it is said")
    with pytest.raises(
        TopicException, match="any more: somebody has deleted it, and with it all that was not read yet"
    ):
        log._check(None)


@pytest.mark.parametrize("check_s", [0, 60])
def test_rows_of_a_topic_that_takes_the_place_of_another_one_are_not_taken_for_its_own(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_s: int
) -> None:
    """By who reads them, or at the latest when all have been read."""
    monkeypatch.setattr("task_assignor.kafka.topics.log.CHECK_S", check_s)
    source, servers = unique("replaced"), kafka_cluster.bootstrap_servers
    make_topics(servers, source, partitions=1)
    write_records(servers, source, stream(400, 20, seed=5), partitions=1)
    admin = AdminClient({"bootstrap.servers": servers})
    is_replaced = False

    def on_event(event: RunEvent) -> None:
        nonlocal is_replaced
        if isinstance(event, BatchesCommitted) and not is_replaced:
            is_replaced = True
            admin.delete_topics([source])[source].result(60)
            wait_until(lambda: source not in admin.list_topics(timeout=60).topics, "the topic is gone")
            make_topics(servers, source, partitions=1)
            write_records(servers, source, stream(600, 20, seed=6), partitions=1)

    application = StreamsApplication(
        count_topology(source),
        settings(),
        topics_root=topics_at(kafka_cluster, stream_topic(source)),
        run_dir=tmp_path / "run",
        clients=1,
        options=attrs.evolve(QUICK, max_batch_rows=20),
    )
    with pytest.raises(
        StreamsException, match=f"The topic '{source}' .* was deleted and created anew while it was being"
    ):
        application.run(on_event)


def test_a_cluster_that_does_not_answer_ends_the_wait() -> None:
    topics = KafkaTopics({"bootstrap.servers": "127.0.0.1:1"}, [stream_topic("t")], timeout_ms=300)
    with pytest.raises(KafkaClusterException, match=r"Cannot describe the topic t: the cluster at 127.0.0.1:1 has not"):
        topics.open("t")


VALUES = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.booleans(),
        st.none() | st.integers(-(2**40), 2**40),
        st.none() | st.integers(-10_000, 10_000),
        st.none() | st.lists(st.integers(-5, 5), max_size=3),
    ),
    max_size=5,
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("x", pa.float64()),
        ("yes", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("many", pa.list_(pa.int32())),
    ]
)


@given(VALUES)
def test_json_gives_back_what_was_written(values: list[tuple[object, ...]]) -> None:
    columns: list[tuple[object, ...]] = list(zip(*values, strict=True)) if values else [() for _ in SCHEMA]
    arrays = [
        pa.array(column, pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(column, pa.int32()).cast(field.type)
        if pa.types.is_date32(field.type)
        else pa.array(column, field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    rows = pa.table(arrays, schema=SCHEMA)
    written = JsonSerde().serialize(rows)
    assert [sorted(json.loads(value)) for value in written] == [sorted(SCHEMA.names)] * len(values)
    assert JsonSerde().deserialize(written, SCHEMA).equals(rows)


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[1]", b"1", b"{}{}", b"{", b'{"n": "1"}', b'{"n": 1.5}', b'{"text": 5}', b'{"n": 9223372036854775808}',
     b'{"day": "31.1.2013"}', b'{"n": 1}}, {"v": {"n": 2}', b"\xff", b'{"text": "\xff"}'],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 3])
def test_json_that_is_not_what_it_should_be_is_refused(value: bytes, place: int) -> None:
    values = [b'{"n": 1}'] * 5
    values[place] = value
    with pytest.raises(SerializationException) as refused:
        JsonSerde().deserialize(values, SCHEMA)
    assert refused.value.index == place


def test_json_of_any_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Piece by piece: a batch of long documents has more than the 2 GiB that Arrow reads."""
    monkeypatch.setattr("task_assignor.kafka.topics.serdes._BLOCK_BYTES", 1)
    monkeypatch.setattr("task_assignor.kafka.topics.serdes._AT_ONCE_BYTES", 20)
    values = [b'{"n": %d}' % number for number in range(9)]
    assert JsonSerde().deserialize(values, SCHEMA).column("n").to_pylist() == [*range(9)]
    values[7] = b"{"
    with pytest.raises(SerializationException) as refused:
        JsonSerde().deserialize(values, SCHEMA)
    assert refused.value.index == 7


def test_json_passes_over_what_is_no_column_and_takes_what_is_not_there_as_null() -> None:
    rows = JsonSerde().deserialize([b'{"other": {"n": 5},\n "n": 1}', b"{}"], SCHEMA)
    assert rows.column("n").to_pylist() == [1, None]


def test_a_column_whose_name_has_no_letters_is_a_member_of_that_name() -> None:
    """It was written as `column_1`, and could not be read again."""
    rows = pa.table({"n": [1], "": [2]})
    assert JsonSerde().serialize(rows) == [b'{"n":1,"":2}']
    assert JsonSerde().deserialize([b'{"n":1,"":2}'], rows.schema).equals(rows)


def test_a_struct_that_is_null_is_written_as_null_though_its_fields_never_are() -> None:
    """Beside a time with a zone Arrow's own error came, of a struct that cannot be viewed as what it is."""
    fields = [pa.field("x", pa.int64(), nullable=False)]
    structs = pa.StructArray.from_arrays([pa.array([1, None])], fields=fields, mask=pa.array([False, True]))
    rows = pa.table({"s": structs, "at": pa.array([0, 0], pa.timestamp("s", "Europe/Berlin")), "n": pa.nulls(2)})
    found = [json.loads(value) for value in JsonSerde().serialize(rows)]
    assert [value["s"] for value in found] == [{"x": 1}, None]


INNER = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("day", pa.timestamp("s", "UTC"))])
OUTER = pa.struct([pa.field("in", INNER, nullable=False), pa.field("many", pa.large_list(INNER))])
DAYS = st.integers(-(10**9), 10**9).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC))
INNERS = st.fixed_dictionaries({"x": st.integers(-5, 5), "day": st.none() | DAYS})
OUTERS = st.fixed_dictionaries({"in": INNERS, "many": st.none() | st.lists(st.none() | INNERS, max_size=3)})


@pytest.mark.parametrize("serde", [JsonSerde(), RowSerde()], ids=repr)
@given(values=st.lists(st.tuples(st.none() | OUTERS, st.none() | st.lists(OUTERS, max_size=3)), max_size=5))
def test_a_struct_whose_fields_are_never_null_may_be_null_itself(
    serde: JsonSerde | RowSerde, values: list[tuple[object, ...]]
) -> None:
    """What the serde had written itself was a bad record."""
    schema = pa.schema([("s", OUTER), ("l", pa.list_(pa.field("item", OUTER, nullable=False)))])
    rows = pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in values], schema)
    found = serde.deserialize(serde.serialize(rows), schema)
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("value", "told"),
    [(b'{"s": {}}', "'s.in', which is never null, is null or is not there"),
     (b'{"s": {"in": {"day": null}}}', "'s.in.x', which is never null, is null or is not there"),
     (b'{"s": {"in": {"x": 1}, "many": [null, {"x": null}]}}', "'s.many[].x', which is never null"),
     (b'{"l": [{"x": 1}, null]}', "a list 'l', whose items are never null, has one that is")],
)  # fmt: skip
def test_a_struct_that_is_there_without_a_field_that_is_never_null_is_refused(value: bytes, told: str) -> None:
    schema = pa.schema([("s", OUTER), ("l", pa.list_(pa.field("item", INNER, nullable=False)))])
    with pytest.raises(SerializationException, match=re.escape(told)) as refused:
        JsonSerde().deserialize([b"{}", b'{"s": null}', value], schema)
    assert refused.value.index == 2


def test_columns_that_json_cannot_say_are_refused() -> None:
    with pytest.raises(TopicException, match="The topic t: The column 'b' has type binary, which JSON cannot say"):
        KafkaTopic("t", pa.schema([("b", pa.binary())]), "b")


def test_a_time_that_the_column_cannot_hold_is_refused() -> None:
    times = pa.array([1_000, None, 1_234])
    assert to_times(times, pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == [1_000_000, None, 1_234_000]
    with pytest.raises(
        SerializationException, match=r"its time, 1234 ms from 1970, is none that timestamp\[s\] can hold"
    ) as one:
        to_times(times, pa.timestamp("s"))
    assert one.value.index == 2
    keys = [number.to_bytes(8, "big") for number in (0, 253_402_300_799_999)]
    with pytest.raises(SerializationException, match="253402300799999 ms from 1970, is none") as other:
        read_keys(keys, [pa.field("at", pa.timestamp("ns"))])
    assert other.value.index == 1


def test_a_number_that_does_not_fit_into_its_float_is_refused() -> None:
    schema = pa.schema([("many", pa.list_(pa.float32()))])
    with pytest.raises(SerializationException, match="does not fit into a float of 32 bits") as refused:
        JsonSerde().deserialize([b'{"many": [0.5]}', b'{"many": [1, 1e39]}'], schema)
    assert refused.value.index == 1


@pytest.mark.parametrize(
    ("days", "kind"),
    [([-719_528, 0, 2_932_896], pa.date32()), ([-719_528, -100_000, 2_932_896], pa.timestamp("s", "Europe/Berlin")),
     ([-50_000, None, 50_000], pa.timestamp("ns", "+05:30"))],
)  # fmt: skip
def test_json_gives_back_dates_and_times_of_the_years_0_to_9999_whatever_their_zone(
    days: list[int | None], kind: pa.DataType
) -> None:
    column = pa.array(days, pa.int32()).cast(pa.date32()).cast(pa.timestamp("s")).cast(kind)
    rows = pa.table({"c": column, "many": pa.array([[1], None, []], pa.large_list(pa.int64()))})
    assert JsonSerde().deserialize(JsonSerde().serialize(rows), rows.schema).equals(rows)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(2_932_897, pa.date32()), (-719_529, pa.date32()), (2**62, pa.timestamp("s")), (2**62, pa.timestamp("us", "UTC")),
     (2**62, pa.list_(pa.timestamp("ms")))],
)  # fmt: skip
def test_dates_and_times_that_json_cannot_say_are_refused(number: int, kind: pa.DataType) -> None:
    nested = pa.types.is_list(kind)
    plain = pa.int32() if pa.types.is_date32(kind) else pa.list_(pa.int64()) if nested else pa.int64()
    rows = pa.table({"when": pa.array([[number]] if nested else [number], plain).cast(kind)})
    with pytest.raises(SerializationException, match=f"A row has {number} as 'when'"):
        JsonSerde().serialize(rows)


def test_a_column_that_has_no_type_yet_is_written_as_it_is() -> None:
    """Where all rows of a batch had null there, the run ended: whether it went on depended on where batches are cut."""
    rows = pa.Table.from_pylist([{"n": 1, "gift": None, "tags": [], "of": {"x": None}}])
    assert JsonSerde().serialize(rows) == [b'{"n":1,"gift":null,"tags":[],"of":{"x":null}}']
    with pytest.raises(SerializationException, match="'gift' has type null, which JSON cannot say"):
        JsonSerde().check(rows.schema)


def test_outputs_that_go_into_files_are_told_where_a_topic_is_used_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """One letter was missing, and the results of an application were not where they were looked for."""
    topics = [KafkaTopic(name, SCHEMA, key="n") for name in ("left", "right", "joind")]
    for used, told in ((topics, 1), (topics[:2], 0)):
        caplog.clear()
        KafkaTopics({"bootstrap.servers": "127.0.0.1:1"}, used).prepare("app", join_of("left", "right"), [])
        assert caplog.text.count("The outputs (joined) go into files") == told
        assert caplog.text.count("nothing reads or writes: joind.") == told


@pytest.mark.parametrize("more", [{"key_in": "key"}, {"timestamp_in": "record"}])
def test_what_would_be_taken_from_a_record_for_no_column_is_refused(more: dict[str, str]) -> None:
    """Nothing would be, and nobody would notice."""
    (option,) = more
    with pytest.raises(
        TopicException, match=rf"With {option}='.*' the topic out needs .* Maybe add {option.removesuffix('_in')}=…\."
    ):
        KafkaTopic("out", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        (
            KafkaTopic("out", key="share"),
            "The key column 'share' of the output 'out': A column of type double cannot be a key",
        ),
        (
            KafkaTopic("out", timestamp="share"),
            "The timestamp column 'share' of the output 'out' has type double; it must be",
        ),
        (
            KafkaTopic("out", key="kk"),
            r"have no columns \['kk'\], which KafkaTopic\('out'\) names as key, timestamp or headers",
        ),
    ],
)
def test_columns_of_an_output_that_can_be_no_key_or_time_are_named(topic: KafkaTopic, complaint: str) -> None:
    """Where the output declares them before the run begins; else with the first row, also if that has whole numbers."""
    rows = pa.table({"share": [1.0]})
    with pytest.raises(TopicException, match=complaint):
        records_of(rows, topic, 1, [])
    declared = Topology([SubTopology("s", "source", CountByKey, outputs=[Output("out", rows.schema)])])
    with pytest.raises(TopicException, match=complaint):
        KafkaTopics({"bootstrap.servers": "localhost:1"}, [topic], timeout_ms=1).prepare("app", declared, [])
