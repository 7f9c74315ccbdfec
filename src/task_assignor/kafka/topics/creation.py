"""What must be there before a run: changelog and repartition topics, created where they are missing, with the right settings, and a group of no others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import UNLIMITED_S, Connection, answers
from task_assignor.kafka.topics.membership import INSTANCE
from task_assignor.kafka.topics.rights import GROUP, check_rights
from task_assignor.runtime.errors import TopicException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import NAME_RULE, is_name, listed

_log = logger_of(__name__)
COMPACTED: Final = {"cleanup.policy": "compact"}
"""Of key-value stores: Kafka keeps the last record of each key."""
PURGED: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Of window stores, from which the application removes what has expired, and repartition topics, from which it removes what was read."""
_SEGMENTS: Final = {"segment.bytes": str(50 << 20)}
"""What is removed gives its disk back by whole segments, which have a gigabyte else."""


def check_names(names: Collection[str]) -> None:
    """See to it that internal topics can have the names that are made for them: they may be too long.

    Raises:
        TopicException: one cannot.
    """
    for name in names:
        if not is_name(name):
            raise TopicException(
                f"The internal topic would be {name!r} in Kafka, of {len(name)} characters, but a name must have {NAME_RULE}. It is "
                "made of application.id and the name of a store or a repartition topic: maybe shorten one of them."
            )


def create_internal_topics(connection: Connection, partitions: Mapping[str, int], purged: Collection[str]) -> None:
    """Create topics, with the brokers' default number of replicas.

    Args:
        connection: the process's connection.
        partitions: topic -> number of partitions.
        purged: those from which the application removes what it does not need any more: of window stores, and repartition topics.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """

    def create(timeout: float) -> None:
        new = [
            NewTopic(name, count, -1, config={**PURGED, **_SEGMENTS} if name in purged else COMPACTED)
            for name, count in sorted(partitions.items())
        ]
        for future in connection.admin.create_topics(new, request_timeout=timeout).values():
            try:
                future.result(timeout)
            except KafkaException as error:
                # Asked again after an answer that did not come.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    if partitions:
        connection.ask(f"create the internal topics {', '.join(sorted(partitions))}", create)
        _log.info("Created the internal topics %s", ", ".join(sorted(partitions)))


def check_settings(connection: Connection, names: Collection[str], purged: Collection[str]) -> None:
    """See to it that Kafka does not throw away changes that still matter, and lets those be removed that do not.

    Raises:
        TopicException: a topic has other settings.
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    for name, config in (_settings_of(connection, names) if names else {}).items():
        needed = PURGED if name in purged else COMPACTED
        wrong = {key: config[key].value for key, value in needed.items() if config[key].value != value}
        if wrong:
            has = ", ".join(f"{key}={value}" for key, value in wrong.items())
            must = ",".join(f"{key}={needed[key]}" for key in wrong)
            raise TopicException(
                f"The internal topic {name!r} has {has}, but must have {must}: Kafka would delete records that still "
                "matter, or keep those for ever that do not. Maybe kafka-configs --alter --entity-type topics --entity-name "
                f"{name} --add-config {must}."
            )


def largest_batch(connection: Connection, name: str) -> int:
    """How many bytes an internal topic takes for a record, and those that come with it (`max.message.bytes`).

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    return int(_settings_of(connection, [name])[name]["max.message.bytes"].value)


def _settings_of(connection: Connection, names: Collection[str]) -> dict[str, Any]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = connection.ask(
        "read the settings of the internal topics",
        lambda timeout: answers(connection.admin.describe_configs(resources, request_timeout=timeout), timeout),
    )
    return {resource.name: config for resource, config in found.items()}


def check_group(connection: Connection, name: str) -> None:
    """See to it that nobody is in the group, and that offsets may be committed in it.

    Brokers take offsets from a transaction even where it has members, and what both do comes twice.

    Raises:
        KafkaClusterException: somebody is, or the cluster does not answer, or refuses.
    """

    def members(timeout: float) -> list[Any]:
        asked = {"include_authorized_operations": True, "request_timeout": UNLIMITED_S}
        admin = connection.admin
        try:
            found = admin.describe_consumer_groups([name], **asked)[name].result(timeout)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        check_rights("group", name, found.authorized_operations, GROUP)
        return [member for member in found.members if member.group_instance_id != INSTANCE]

    found = connection.ask(f"describe the group {name}", members)
    if found:
        who = listed(f"{each.client_id} at {each.host.lstrip('/')}" for each in found)
        raise KafkaClusterException(
            f"The group {name} has members ({who}): another application with this application.id is running, or was until now, and "
            "its session has not ended. Maybe choose another application.id, or stop that one."
        )
