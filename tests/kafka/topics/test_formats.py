"""Topics as other programs have them: keys in the format of a serde, tombstones in and out, and formats with a schema registry."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from task_assignor.kafka.topics import JsonSerde, KafkaTopic, KafkaTopics, SerializationException
from task_assignor.runtime import (
    DeadLetters,
    Output,
    Processor,
    SubTopology,
    TableJoin,
    TaskContext,
    Topology,
)
from task_assignor.runtime.errors import TopicException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, records_of, run_to_end

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
START_MS = 1_700_000_000_000
IDS = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
NAMES = pa.map_(pa.string(), pa.string())


class Same(Processor):
    """What it reads."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows of the one source."""
        (rows,) = batch.values()
        return rows


def table_topic(name: str, *columns: str, **more: Any) -> KafkaTopic:
    """A topic like those of Debezium: keys are JSON, and a deletion has no value."""
    schema = pa.schema([*IDS, *((column, pa.string()) for column in columns)])
    return KafkaTopic(
        name, schema, ["id", "shop"], "at", key_in="key", timestamp_in="record", key_serde=JsonSerde(), **more
    )


def test_tables_whose_keys_are_json_are_joined_into_one_with_tombstones(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Where the keys of both are in one format they meet, and what is written is where others that write such keys have it."""
    servers = kafka_cluster.bootstrap_servers
    people, places, both, same, letters = map(unique, ("people", "places", "both", "same", "letters"))
    make_topics(servers, people, places, both, same, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    make_topics(servers, letters, partitions=1)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})

    def write(topic: str, number: int, value: bytes | None, at: int) -> None:
        key = b'{"shop":"s%d","id":%d}' % (number % 2, number)
        producer.produce(topic, value, key, timestamp=START_MS + at)

    for number in range(60):
        write(people, number, b'{"name":"n%d"}' % number, number)
        if number % 2 == 0:
            write(places, number, b'{"city":"c%d"}' % number, number)
    for number in range(0, 60, 3):
        write(people, number, None, 1_000)
    producer.produce(people, b"{}", b"no JSON", timestamp=START_MS)
    assert producer.flush(60) == 0
    known = [table_topic(people, "name"), table_topic(places, "city")]
    columns = pa.schema([*IDS, ("name", pa.string()), IDS.field("at").with_name("at_right"), ("city", pa.string())])
    keyed: dict[str, Any] = {"key": ["id", "shop"], "key_in": "key", "key_serde": JsonSerde()}
    joined = KafkaTopic(both, columns, **keyed)
    opened = KafkaTopics({"bootstrap.servers": servers}, known)
    join = TableJoin(left=people, right=places, how="left", bad_records=DeadLetters(letters))
    sub = join.sub_topology("both", both, topics=[opened.open(people).spec, opened.open(places).spec])
    run_to_end(servers, unique("join"), tmp_path / "join", Topology(sub), *known, joined, KafkaTopic(letters))
    found = records_of(servers, both)
    last = {json.loads(key or b"")["id"]: value and json.loads(value) for key, value in found}
    assert {number: row and (row["name"], row["city"]) for number, row in last.items()} == {
        number: None if number % 3 == 0 else (f"n{number}", None if number % 2 else f"c{number}")
        for number in range(60)
    }
    ((_, letter),) = records_of(servers, letters)
    assert json.loads(letter or b"")["error"].startswith("cannot be read: its key: it is no JSON object")
    # What was written is read as it was.
    copy = Topology(SubTopology("same", both, Same, outputs=same))
    run_to_end(servers, unique("copy"), tmp_path / "copy", copy, joined, KafkaTopic(same, **keyed))
    assert records_of(servers, same) == found


def test_an_output_that_its_serde_cannot_write_is_refused_before_anything_begins(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Its declared columns were not held against the serde before there were rows: for dead letters that may be after weeks."""
    servers, source, target = kafka_cluster.bootstrap_servers, unique("source"), unique("target")
    make_topics(servers, source, target, partitions=1)
    columns = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])
    topology = Topology(SubTopology("same", source, Same, outputs=Output(target, columns)))
    topics = [KafkaTopic(source, IDS, "id"), KafkaTopic(target, key="id")]
    with pytest.raises(TopicException, match=f"The topic {target}: The column 'price' has type decimal"):
        run_to_end(servers, unique("refused"), tmp_path / "run", topology, *topics)


class Registry(BaseHTTPRequestHandler):
    """As much of a schema registry as the serde of the page asks for."""

    schemas: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """A schema of a subject."""
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        self._answer(200, {"id": self.schemas.index(schema) + 1})

    def do_GET(self) -> None:
        """The schema with an id."""
        number = int(self.path.removeprefix("/schemas/ids/"))
        known = number <= len(self.schemas)
        self._answer(200 if known else 404, {"schema": self.schemas[number - 1]} if known else {"error_code": 40403})

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _answer(self, code: int, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def registry() -> Iterator[str]:
    """The URL of one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_avro_of_the_page_is_read_and_written(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, registry: str
) -> None:
    """Values of an older and of a newer schema, of none, and tombstones."""
    pytest.importorskip("fastavro")
    text = (Path(__file__).parents[3] / "docs" / "kafka-topics.md").read_text(encoding="utf-8")
    page: dict[str, Any] = {"__name__": "avro_page"}
    exec(compile(text.partition("### Avro")[2].split("```python\n", 1)[1].partition("```")[0], "page", "exec"), page)
    servers = kafka_cluster.bootstrap_servers
    prices, same, letters = map(unique, ("prices", "same", "letters"))
    make_topics(servers, prices, same, letters, partitions=2, config={"cleanup.policy": "compact,delete"})
    source, target = (page["make_topic"](name, registry) for name in (prices, same))
    fields = page["PRICES"]["fields"]
    older = {**page["PRICES"], "fields": fields[:2]}
    newer = {**page["PRICES"], "fields": [*fields, {"name": "more", "type": "double", "default": 0}]}
    writers = [page["AvroSerde"](registry, f"{prices}-value", schema) for schema in (older, page["PRICES"], newer)]
    rows: list[tuple[str, pa.Table]] = []
    wanted: dict[str, Any] = {}
    for number in range(30):
        row = {
            "price": Decimal(number) / 100,
            "unit": ["PIECE", "KILO"][number % 2],
            "names": {"en": f"n{number}"},
            "note": None if number % 4 else "new",
        }
        old: dict[str, Any] = {"names": {}, "note": None} if number % 3 == 0 else {}
        rows.append(
            (f"item {number}", pa.Table.from_pylist([row]).set_column(2, "names", pa.array([row["names"]], NAMES)))
        )
        wanted[f"item {number}"] = row | old if number % 5 else None
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for number, (item, row_of) in enumerate(rows):
        (key,) = source.key_serde.serialize(pa.table({"item": [item]}))
        writer = writers[number % 3]
        fields_of = {field["name"] for field in writer.schema["fields"]}
        (value,) = writer.serialize(row_of.select([name for name in row_of.column_names if name in fields_of]))
        producer.produce(prices, value, key, timestamp=START_MS + number)
        if number % 5 == 0:
            producer.produce(prices, None, key, timestamp=START_MS + 100 + number)
    for broken in (b"", b"{}", b"\0\0\0\x01\0", value[:8], b"\0\0\0\0\x01"):
        producer.produce(prices, broken, key, timestamp=START_MS)
    assert producer.flush(60) == 0
    copy = SubTopology("same", prices, Same, outputs=same, bad_records=DeadLetters(letters))
    plain = KafkaTopic(letters, key="offset")
    run_to_end(servers, unique("avro"), tmp_path / "run", Topology(copy), source, target, plain)
    found: dict[str, Any] = {}
    for key, value in records_of(servers, same):
        item = target.key_serde.deserialize([key], pa.schema([page["COLUMNS"].field("item")]))["item"][0].as_py()
        there = target.serde.deserialize([value] if value else [], target.in_value(page["COLUMNS"]))
        found[item] = next(iter(there.to_pylist(maps_as_pydicts="strict")), None)
    assert found == wanted
    errors = [json.loads(value or b"")["error"] for _, value in records_of(servers, letters)]
    with pytest.raises(SerializationException, match=r"has no fields \['colour'\]"):
        target.serde.serialize(rows[0][1].append_column("colour", pa.array(["red"])))
    assert len(errors) == 5
    assert all(error.startswith(f"cannot be read: it is no Avro of {prices}-value: ") for error in errors)
