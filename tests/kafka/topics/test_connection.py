"""How clients of librdkafka are made, and what is said where brokers do not bring what is waited for. Nothing connects here."""

from __future__ import annotations

from typing import Any

import pytest

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics.connection import Connection


def test_who_writes_lets_brokers_make_no_topics_and_keeps_those_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog that somebody had deleted was made anew, with one partition; and a commit took ten seconds after idle connections were closed."""
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    monkeypatch.setattr(connection, "_made", lambda kind, config: config)
    config: Any = connection.producer({})
    assert config["allow.auto.create.topics"] is False
    assert config["metadata.recovery.strategy"] == "none"
