"""The topics that a leader in Python creates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import pytest

from task_assignor import ProcessId, StreamsConfig, TopicPartition
from task_assignor.group import SubTopologyShape

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
