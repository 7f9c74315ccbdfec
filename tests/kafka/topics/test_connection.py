"""How clients of librdkafka are made, and what is said where brokers do not bring what is waited for. Nothing connects here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import Connection, Patience, Trouble


def told_at_the_end(state: str) -> str:
    """By who has waited, with a broker that could not be found."""
    trouble = Trouble("inside:9092/1: Failed to resolve 'inside:9092'", failed_at=math.inf)
    with pytest.raises(KafkaClusterException) as caught:
        Patience("describe the topic t", "outside:9092", 0, trouble, lambda _: state).check()
    return str(caught.value)


def test_an_address_that_brokers_name_and_that_cannot_be_reached_is_said() -> None:
    """It was only said that the cluster answers, "but not to this"; as of every broker in a container that says what it is called there."""
    told = told_at_the_end("not to this")
    assert "Failed to resolve 'inside:9092'. The cluster at outside:9092 answers, but not to this." in told
    assert "Maybe brokers name addresses that cannot be reached from here (advertised.listeners), or it takes" in told


def test_where_more_is_known_a_broker_that_cannot_be_reached_is_not_the_reason() -> None:
    told = told_at_the_end("t is not there any more: somebody has deleted it")
    assert "answers, but t is not there any more: somebody has deleted it. Maybe it takes longer" in told
    assert "inside" not in told


def test_who_writes_lets_brokers_make_no_topics_and_keeps_those_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog that somebody had deleted was made anew, with one partition; and a commit took ten seconds after idle connections were closed."""
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    monkeypatch.setattr(connection, "_made", lambda kind, config: config)
    config: Any = connection.producer({})
    assert config["allow.auto.create.topics"] is False
    assert config["metadata.recovery.strategy"] == "none"


@pytest.mark.parametrize(
    ("said", "is_refusal"),
    [
        ("Local: Broker transport failure: broker's supported mechanisms: (n/a) (after 0ms in state DOWN)", False),
        ("Local: Timed out: broker's supported mechanisms: (n/a) (after 10001ms in state AUTH_HANDSHAKE)", False),
        ("Broker: Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-512", True),
    ],
)
def test_a_broker_that_goes_in_the_midst_of_a_handshake_has_refused_nobody(said: str, is_refusal: bool) -> None:
    """A run ended, and was told of another mechanism, where a broker was killed just when a client told it its own."""
    trouble = Trouble()
    trouble.note(
        KafkaError(KafkaError._AUTHENTICATION, f"sasl_ssl://b:1/1: SASL PLAIN mechanism handshake failed: {said}")
    )
    assert bool(trouble.refusal) == is_refusal
    assert bool(trouble.failure) != is_refusal


def test_a_topic_of_which_brokers_say_no_partitions_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of what was waited for came a traceback: the least of no numbers was looked for."""
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    said = SimpleNamespace(topics={"__consumer_offsets": SimpleNamespace(partitions={})})
    monkeypatch.setattr(connection, "_made", lambda *_: SimpleNamespace(list_topics=lambda timeout: said, poll=bool))
    assert connection._state_of_brokers(1) == "not to this"
