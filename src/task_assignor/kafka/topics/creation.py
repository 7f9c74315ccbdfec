"""Changelog topics: created compacted where they are missing, and checked where they are there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from task_assignor.kafka.topics.connection import Connection, answers
from task_assignor.runtime.errors import TopicException

_log = logging.getLogger(__name__)
_CLEANUP = "cleanup.policy"


def create_changelogs(connection: Connection, partitions: Mapping[str, int]) -> None:
    """Create compacted topics, with the brokers' default number of replicas.

    Args:
        connection: the process's connection.
        partitions: topic -> number of partitions.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """

    def create(timeout: float) -> None:
        new = [NewTopic(name, count, -1, config={_CLEANUP: "compact"}) for name, count in sorted(partitions.items())]
        for future in connection.admin.create_topics(new, request_timeout=timeout).values():
            try:
                future.result(timeout)
            except KafkaException as error:
                # Asked again after an answer that did not come.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    if partitions:
        connection.ask(f"create the changelog topics {', '.join(sorted(partitions))}", create)
        _log.info("Created the changelog topics %s", ", ".join(sorted(partitions)))


def check_compacted(connection: Connection, names: Sequence[str]) -> None:
    """See to it that Kafka does not throw away changes that still matter.

    Raises:
        TopicException: a topic is not compacted.
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    if not names:
        return
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = connection.ask(
        "read the settings of the changelog topics",
        lambda timeout: answers(connection.admin.describe_configs(resources, request_timeout=timeout), timeout),
    )
    policies = {resource.name: config[_CLEANUP].value for resource, config in found.items()}
    for name in names:
        if policies[name] != "compact":
            raise TopicException(
                f"The changelog topic {name!r} has {_CLEANUP}={policies[name]}, but must have {_CLEANUP}=compact: Kafka would "
                "delete changes that still matter. Maybe kafka-configs --alter --entity-type topics --entity-name "
                f"{name} --add-config {_CLEANUP}=compact."
            )
