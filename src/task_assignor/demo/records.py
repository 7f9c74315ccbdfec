"""The demo's topics as topics of Kafka: declared, filled, and its results read back. As a user would write it; prints nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from task_assignor.demo import flights
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics import JsonSerde, KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.connection import Connection
from task_assignor.runtime import Topic
from task_assignor.runtime.arrow.keys import serialise_keys
from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import counted

if TYPE_CHECKING:
    from confluent_kafka import Message

OUTPUT_KEYS: Final = {"flight-weather": ("origin", "time_hour"), "plane-history": ("tailnum",)}
PATIENCE_MS: Final = 10_000
"""So long may a broker not answer that the topics are to be created at."""


def check_servers(servers: str) -> None:
    """See to it that these can be addresses of brokers, before anything is done.

    Raises:
        ConfigException: they cannot.
    """
    ClientSettings.of({"bootstrap.servers": servers})


def declared_topics(servers: str, topics: Iterable[Topic]) -> KafkaTopics:
    """What the application reads and writes: topics like those in files, and one for each output.

    Args:
        servers: `host:port` of brokers, separated by commas.
        topics: the topics in files.
    """
    sources = [KafkaTopic(topic.spec.name, topic.spec.schema, topic.spec.key, topic.spec.timestamp) for topic in topics]
    outputs = [
        KafkaTopic(name, flights.output_schema(name), key, "departure", JsonSerde())
        for name, key in OUTPUT_KEYS.items()
    ]
    return KafkaTopics({"bootstrap.servers": servers}, [*sources, *outputs])


def fill_topics(servers: str, topics: Iterable[Topic], partitions: int) -> None:
    """Create all topics, and write the rows of those in files, each to the partition that it has there.

    Raises:
        StreamsException: no broker answers there, a topic exists already, or the broker does not take a record.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    topics = list(topics)
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers}), PATIENCE_MS)
    names = [*(topic.spec.name for topic in topics), *OUTPUT_KEYS]

    def create(timeout: float) -> None:
        new = [NewTopic(name, partitions, -1) for name in names]
        for name, created in connection.admin.create_topics(new, request_timeout=timeout).items():
            try:
                created.result(timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                raise StreamsException(
                    f"The topic {name} cannot be created at {servers}: {error.args[0].str()}. Maybe it is from an earlier demo: "
                    "delete it, and the group and the changelog topics of flights, too; or use another broker."
                ) from None

    connection.ask(f"create the topics {', '.join(names)}", create)
    producer = connection.producer({"compression.type": "lz4", "linger.ms": 20})
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for topic in topics:
        for partition, end in enumerate(topic.end_offsets()):
            rows = topic.read(partition, 0, end)
            data, bounds = serialise_keys(rows, topic.spec.key)
            keys = [bytes(data[start:stop]) for start, stop in itertools.pairwise(bounds.tolist())]
            for key, value in zip(keys, JsonSerde().serialize(rows), strict=True):
                while True:
                    try:
                        producer.produce(topic.spec.name, value, key, partition=partition, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.1)
                    except KafkaException as error:
                        refused.append(error.args[0].str())
                        break
    if producer.flush(120):
        raise StreamsException(f"The broker at {servers} has not taken all records within 2 min.")
    if refused:
        raise StreamsException(f"The broker at {servers} has refused {counted(len(refused), 'record')}: {refused[0]}.")


def committed_rows(topics: KafkaTopics, output: str) -> pa.Table:
    """The rows that readers with `isolation.level=read_committed` see."""
    log = topics.open(output)
    return pa.concat_tables([log.fetch(partition, 0, end).rows for partition, end in enumerate(log.end_offsets())])
