"""How far topics of Kafka reach, while they are written: what comes later is not seen without what came before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.topics import KafkaTopics
from task_assignor.runtime.shells.watcher import Watcher
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import stream_topic

pytestmark = pytest.mark.kafka


def test_no_source_is_seen_to_run_ahead_of_another(
    kafka_cluster: KafkaCluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources were looked at one after the other: rows of the last came to a task without older ones of the first, which were late then."""
    servers, names = kafka_cluster.bootstrap_servers, (unique("left"), unique("right"))
    make_topics(servers, *names, partitions=1)
    topics = KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name) for name in names])
    logs = {name: topics.open(name) for name in names}
    producer, ask = Producer({"bootstrap.servers": servers}), AdminClient.list_offsets

    def ask_slowly(admin: AdminClient, *given: Any, **more: Any) -> Any:
        """A row of the left topic, then one of the right one, comes after each answer."""
        answers = ask(admin, *given, **more)
        for answer in answers.values():
            answer.result(60)
        for name in names:
            producer.produce(name, b'{"key": 1, "at": 5, "value": "v"}')
            assert producer.flush(60) == 0
        return answers

    monkeypatch.setattr(AdminClient, "list_offsets", ask_slowly)
    watcher, known = Watcher(logs, 1, 60), dict[str, list[int]]()
    seen = []
    for _ in range(3):
        watcher._look(known)
        seen.append([known[name][0] for name in names])
    assert all(left == right for left, right in seen), seen
    assert seen[0] < seen[1] < seen[2]
