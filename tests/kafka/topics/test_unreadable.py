"""Records of Kafka that cannot be read are bad records: left out, counted and kept aside, and nothing else of a task changes."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics import JsonSerde, KafkaTopic, KafkaTopics, SerializationException
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.log import KafkaLog
from task_assignor.kafka.topics.output_records import records_of
from task_assignor.kafka.topics.reader import RecordReader
from task_assignor.kafka.topics.unreadable import rows_of_readable, text_of_record
from task_assignor.runtime import (
    DeadLetters,
    DerivedStream,
    Forwarded,
    LocalProcessLauncher,
    Output,
    RecordProcessor,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
)
from task_assignor.runtime.arrow.keys import partitions_of, serialise_keys
from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.bad_records import DEAD_LETTER_SCHEMA
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, in_any_order, killer, rows_of, stream_topic
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, plain_join, settings, stream

Unique = Callable[[str], str]
BROKEN = [b"", b"null", b"{", b'{"key": "one"}', b'{"at": 1.5}', b"\xff\x00", b'{"value": "\xc3"}', b"[1]"]
BROKEN += [
    b'{"key": 1}, "at": 5',
    b'{"key": 1} , "other": {"at": 5}',
    b'{"key": 1}, {"key": 2}',
    b'{"key": 1}], "at": [5',
]
GOOD = [b'{"key": 1, "at": 5}', b"{}", b'{"other": {"at": 5}, "key": 1}', b'{"value": "},\\"at"}']
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("value", pa.string())])


class Values(RecordProcessor):
    """The values of what comes, and nothing else."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """A row."""
        return [{"key": record["key"], "value": record["value"]}]


def write_with_broken(servers: str, topic: str, rows: pa.Table, seed: int) -> list[tuple[int, int, bytes]]:
    """Rows by key, and among them some that are none; gives partition, offset and value of these."""
    random = np.random.default_rng(seed)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    flat, offsets = serialise_keys(rows, ["key"])
    keys = [bytes(flat[start:end]) for start, end in itertools.pairwise(offsets)]
    places = partitions_of(rows, ["key"], PARTITIONS).tolist()
    ends, broken = [0] * PARTITIONS, []
    for value, key, place in zip(JsonSerde().serialize(rows), keys, places, strict=True):
        while random.random() < 0.2:
            one = BROKEN[random.integers(len(BROKEN))]
            producer.produce(topic, one, key, partition=place)
            broken.append((place, ends[place], one))
            ends[place] += 1
        producer.produce(topic, value, key, partition=place)
        ends[place] += 1
        producer.poll(0)
    assert producer.flush(60) == 0
    return broken


def raw_value(text: str) -> bytes:
    """The value of a record that was kept aside."""
    found = json.loads(text)
    return base64.b64decode(found["value_base64"]) if "value_base64" in found else found["value"].encode()


@pytest.mark.kafka
def test_what_reads_a_topic_with_broken_records_is_as_if_they_were_not_there(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """A join, a derived stream and a forwarded output of one topic, with a killed client: the run had ended at the first."""
    servers = kafka_cluster.bootstrap_servers
    left, right, joined, some, told, letters = map(unique, ("left", "right", "joined", "some", "told", "letters"))
    make_topics(servers, left, right, joined, some, told, letters, partitions=PARTITIONS)
    tables = stream(1_500, 100, seed=1), stream(800, 100, seed=2)
    broken = {
        name: write_with_broken(servers, name, table, seed)
        for seed, (name, table) in enumerate(zip((left, right), tables, strict=True))
    }
    pairs = WindowedJoin(
        left=left, right=right, before_ms=BEFORE_MS, after_ms=AFTER_MS, bad_records=DeadLetters(letters)
    )
    forwards = SubTopology("forwards", left, Values, outputs=Forwarded("values", SCHEMA), bad_records="skip")
    application = StreamsApplication(
        Topology(
            [
                pairs.sub_topology("join", output=joined),
                SubTopology("some", "few", Values, outputs=some, bad_records="skip"),
                forwards,
                # It is given none of those that are bad.
                SubTopology("tells", "values", Values, outputs=told, bad_records="stop"),
            ],
            derived=DerivedStream("few", left, filter=pc.field("key") < 20),
        ),
        settings(application_id=unique("app"), num_standby_replicas=1),
        topics_root=KafkaTopics(
            {"bootstrap.servers": servers},
            [stream_topic(left), stream_topic(right), *map(KafkaTopic, (joined, some, told, letters))],
        ),
        run_dir=tmp_path / "run",
        clients=2,
        options=attrs.evolve(QUICK, max_batch_rows=50),
        launcher=LocalProcessLauncher(start_method="forkserver"),
    )
    result = application.run(killer(after_commits=3))
    assert result.lost_clients
    one, other = tables
    assert in_any_order(rows_of(servers, joined)) == in_any_order(plain_join(one, other).to_pylist())
    values = [{"key": row["key"], "value": row["value"]} for row in one.to_pylist()]
    assert in_any_order([row for row in values if row["key"] < 20]) == in_any_order(rows_of(servers, some))
    assert in_any_order(rows_of(servers, told)) == in_any_order(values)
    found = rows_of(servers, letters)
    assert sorted((row["topic"], row["partition"], row["offset"], raw_value(row["record"])) for row in found) == sorted(
        (name, *each) for name, those in broken.items() for each in those
    )
    assert {row["reason"] for row in found} == {"bad"}
    assert all(row["error"].startswith("cannot be read: it is no JSON object") for row in found)
    counted = sum(
        task.counters.get("bad_records", 0) for each in result.commits.records() for task in each.tasks.values()
    )
    # Each that reads the topic itself leaves them out.
    assert counted == 3 * len(broken[left]) + len(broken[right])


@pytest.mark.kafka
def test_a_run_that_stopped_at_a_record_goes_on_under_another_setting(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    servers, source = kafka_cluster.bootstrap_servers, unique("stops")
    make_topics(servers, source, partitions=1)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(6):
        good = json.dumps({"key": number, "at": number, "value": "v"}).encode()
        producer.produce(source, b"\xfe" if number in (2, 5) else good, b"\xffk", timestamp=7, headers={"h": b"1"})
    assert producer.flush(60) == 0

    def run(**more: Any) -> Any:
        return StreamsApplication(
            Topology(SubTopology("values", source, Values, outputs=[Output("values", SCHEMA)], **more)),
            settings(),
            topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(source)]),
            run_dir=tmp_path / "run",
            clients=1,
            options=attrs.evolve(QUICK, max_batch_rows=2),
            launcher=LocalProcessLauncher(start_method="forkserver"),
        ).run()

    with pytest.raises(StreamsException, match=rf'{source}, partition 0, offset 2 cannot.*Maybe bad_records="skip"'):
        run()
    result = run(bad_records=DeadLetters("letters"))
    assert result.table("values").column("key").to_pylist() == [0, 1, 3, 4]
    assert (result.rows_in, result.bad_records) == (4, 2), "the first two were read before"
    found = result.table("letters")
    assert found.schema.equals(DEAD_LETTER_SCHEMA)
    assert found.column("offset").to_pylist() == [2, 5]
    assert json.loads(found.column("record")[0].as_py()) == {
        "key_base64": base64.b64encode(b"\xffk").decode(),
        "value_base64": base64.b64encode(b"\xfe").decode(),
        "timestamp": 7,
        "headers": [{"name": "h", "value": "1"}],
    }


def _numbers(values: Sequence[int]) -> pa.Table:
    """A row for each number that is not negative; which one is said of those that are is not always the first."""
    wrong = [place for place, value in enumerate(values) if value < 0]
    if wrong:
        raise SerializationException(f"it is {values[wrong[-1]]}", wrong[-1])
    return pa.table({"n": pa.array(values, pa.int64())})


@given(st.lists(st.integers(-3, 3), max_size=40))
def test_all_that_can_be_read_is(values: list[int]) -> None:
    rows, failed = rows_of_readable(values, _numbers)
    assert rows.column("n").to_pylist() == [value for value in values if value >= 0]
    assert list(failed.items()) == [(place, f"it is {value}") for place, value in enumerate(values) if value < 0]


@given(st.lists(st.sampled_from([*BROKEN, *GOOD]), max_size=12))
def test_json_that_cannot_be_read_is_told_from_what_can(values: list[bytes]) -> None:
    rows, failed = rows_of_readable(values, lambda some: JsonSerde().deserialize(some, SCHEMA))
    assert [*failed] == [place for place, value in enumerate(values) if value in BROKEN]
    assert rows.num_rows == len(values) - len(failed)


@pytest.mark.parametrize("count", [1, 1_000])
def test_what_is_not_about_one_record_is_an_error(count: int) -> None:
    def refuse(values: Sequence[int]) -> pa.Table:
        raise SerializationException("the registry has no such schema")

    with pytest.raises(SerializationException, match="no such schema"):
        rows_of_readable(range(count), refuse)


class Makes(JsonSerde):
    """A serde that makes something else of any values, and two values of any rows."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def deserialize(self, values: Sequence[bytes], schema: pa.Schema) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def serialize(self, rows: pa.Table) -> Any:
        if isinstance(self.made, KeyError | MemoryError):
            raise self.made
        return [b"1", b"2"] if self.made is not None else None


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, r"Makes\(\) made None, which is no Table of PyArrow"),
        ([{"key": 1}], r"Makes\(\) made \[\{'key': 1\}\], which is no Table of PyArrow"),
        (pa.table({"key": ["one"]}), r"Makes\(\) made columns of other types than the topic's: .*'one'"),
        (pa.table({"other": [1]}), r"Makes\(\) made 1 rows of the columns \['other'\] .* of the columns \['key'\]"),
        (SerializationException("its index is none of theirs", 5), "its index is none of theirs"),
        (
            KeyError("colour"),
            r"Makes\(\) failed with KeyError: 'colour' \(File .*, in Makes.deserialize: raise self.made\)",
        ),
    ],
)
def test_what_a_serde_of_ones_own_makes_is_named(made: Any, told: str) -> None:
    """They were errors of Python and Arrow, which named neither topic nor serde."""
    topic, log = that_makes(made)
    with pytest.raises(SerializationException, match=told):
        log._rows([Given(b"k", b"v")])
    written = "failed with KeyError: 'colour'" if isinstance(made, KeyError) else "made (2|None) values of 1 rows"
    with pytest.raises(TopicException, match=rf"output 'in' cannot be written: Makes\(\) {written}"):
        records_of(pa.table({"key": [1]}), topic, 1, [])


def test_want_of_memory_is_of_no_record_and_said_where_tasks_fail() -> None:
    """Records were said to be damaged, and nothing of memory (`ulimit -v`, ...)."""
    topic, log = that_makes(MemoryError())
    with pytest.raises(MemoryError):
        log._rows([Given(b"k", b"v")])
    with pytest.raises(MemoryError):
        records_of(pa.table({"key": [1]}), topic, 1, [])


def that_makes(made: Any) -> tuple[KafkaTopic, KafkaLog]:
    """A topic, and its log, whose serde makes that of what is read."""
    schema = pa.schema([("key", pa.int64())])
    topic, spec = KafkaTopic("in", schema, "key", serde=Makes(made)), TopicSpec("in", 1, schema, ("key",), None)
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 1_000)
    return topic, KafkaLog(topic, spec, "id", connection, RecordReader(connection, "tests"), bool)


def test_much_that_cannot_be_read_is_not_read_again_and_again() -> None:
    """Each once, and little of what is beside it."""
    asked: list[int] = []

    def read(values: Sequence[int]) -> pa.Table:
        asked.append(len(values))
        return _numbers([-1 if value % 3 == 0 else value for value in values])

    rows, failed = rows_of_readable(range(10_000), read)
    assert (rows.num_rows, len(failed)) == (6_666, 3_334)
    assert sum(asked) < 100_000


class Given:
    """What is asked of a record of confluent-kafka."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self.key = lambda: key
        self.value = lambda: value
        self.timestamp = lambda: (0, -1)
        self.headers = lambda: None


@given(st.none() | st.binary(), st.none() | st.binary() | st.text().map(str.encode))
def test_the_text_of_a_record_has_every_byte(key: bytes | None, value: bytes | None) -> None:
    found = json.loads(text_of_record(Given(key, value)))
    for name, wanted in (("key", key), ("value", value)):
        if f"{name}_base64" in found:
            assert base64.b64decode(found[f"{name}_base64"]) == wanted
        else:
            assert (None if found[name] is None else found[name].encode()) == wanted
    assert found["timestamp"] is None
