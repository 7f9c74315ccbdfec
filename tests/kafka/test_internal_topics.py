"""The topics that a leader in Python creates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import pytest

from task_assignor import ProcessId, StreamsConfig, TopicPartition
from task_assignor.group import SubTopologyShape
from task_assignor.group.consumers import ConsumerMember, GroupTopics

room = pytest.importorskip("task_assignor.kafka")
streams_plugin = pytest.importorskip("task_assignor.kafka.streams_plugin")


class Empty:
    """A cluster with the topic `clicks` alone."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def existing(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset({"clicks"} & set(topics))

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 2)

    def partition_racks(self, topics: Iterable[str]) -> dict[str, tuple[None, None]]:
        return dict.fromkeys(topics, (None, None))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


def test_a_changelog_is_compacted_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not called as those of Kafka Streams was made as a topic that keeps every record for ever."""
    made: dict[str, tuple[str, int]] = {}

    class Admin:
        def __init__(self, **_: object) -> None: ...

        def create_topics(self, topics: Sequence[Any], raise_errors: bool) -> dict[str, Any]:
            assert not raise_errors
            made.update(
                {topic.name: (topic.topic_configs["cleanup.policy"], topic.replication_factor) for topic in topics}
            )
            return {"topics": [{"error_code": 0, "error_message": None}]}

        def close(self) -> None: ...

    monkeypatch.setattr(streams_plugin, "KafkaAdminClient", Admin)
    monkeypatch.setattr(streams_plugin, "Cluster", Empty)
    settings = {"application.id": "app", "bootstrap.servers": "localhost:1", "replication.factor": "3"}
    shapes = [
        SubTopologyShape("first", ("clicks",), repartition_sinks=("again",)),
        SubTopologyShape("join", ("clicks",), {"store": "joined"}, repartition_sources=("again",)),
    ]
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    room.TaskAssignorPlugin(StreamsConfig(settings), shapes, process).look_up()
    assert made == {"again": ("delete", 3), "joined": ("compact", 3)}


def test_what_has_no_partition_of_its_changelog_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that was given more partitions: who got the new ones waited for their changelog for ever, and all it had stood still."""

    class Grown(Empty):
        def existing(self, topics: Iterable[str]) -> frozenset[str]:
            return frozenset(topics)

        def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
            return {topic: 3 if topic == "clicks" else 2 for topic in topics}

    monkeypatch.setattr(streams_plugin, "Cluster", Grown)
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    shapes = [SubTopologyShape("one", ("clicks",), {"store": "log"})]
    plugin = room.TaskAssignorPlugin(config, shapes, ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    members = [ConsumerMember("a", ("clicks",), plugin.tell(), {"clicks": [0, 1]}, 1)]
    given = plugin.answer(GroupTopics({"clicks": 3}), members)
    assert given["a"].partitions == (TopicPartition("clicks", 0), TopicPartition("clicks", 1))
    assert "'log' has 2 partitions, but needs 3" in plugin.failures[0]
