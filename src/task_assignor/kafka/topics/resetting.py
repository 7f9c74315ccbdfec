"""What an application leaves in Kafka besides its outputs, and how that goes: then it begins anew, as by kafka-streams-application-reset."""

from __future__ import annotations

import time
from typing import Any, Final

import attrs
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import UNLIMITED_S, Connection
from task_assignor.sdk.text import listed

_SESSIONS: Final = 2
"""The driver of a run that was killed stays in the group for one."""
_LOOK_S: Final = 0.2


@attrs.frozen
class LeftInKafka:
    """What is left.

    Args:
        topics: the internal topics that there are.
        group: the group, if there is one; else empty.
    """

    topics: tuple[str, ...]
    group: str

    @property
    def told(self) -> tuple[str, ...]:
        """It, thing by thing."""
        return (
            *(f"the topic {name}" for name in self.topics),
            *([f"the offsets of the group {self.group}"] if self.group else []),
        )


def has_group(connection: Connection, name: str) -> bool:
    """Whether brokers know a group of that name.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    return connection.ask(
        f"describe the group {name}", lambda timeout: _described(connection, name, timeout) is not None
    )


def delete_left(connection: Connection, left: LeftInKafka) -> None:
    """Delete topics, then offsets: as long as the topics alone are gone, nobody takes the application for one that may go on.

    Raises:
        KafkaClusterException: the group has members, the cluster does not answer, or refuses.
    """
    if left.group:
        _await_nobody(connection, left.group)

    def delete_topics(timeout: float) -> None:
        _delete(connection.admin.delete_topics([*left.topics], request_timeout=timeout), timeout)

    def delete_group(timeout: float) -> None:
        _delete(connection.admin.delete_consumer_groups([left.group], request_timeout=timeout), timeout)

    if left.topics:
        connection.ask(f"delete the topics {listed(left.topics)}", delete_topics)
    if left.group:
        connection.ask(f"delete the group {left.group}", delete_group)


def _await_nobody(connection: Connection, group: str) -> None:
    def members(timeout: float) -> list[Any]:
        found = _described(connection, group, timeout)
        return [] if found is None else list(found.members)

    until = time.monotonic() + _SESSIONS * connection.session_ms / 1_000
    while found := connection.ask(f"describe the group {group}", members):
        if time.monotonic() > until:
            who = listed(f"{each.client_id} at {each.host.lstrip('/')}" for each in found)
            raise KafkaClusterException(
                f"The group {group} has members ({who}): the application is running. Nothing was deleted. Maybe stop it first."
            )
        time.sleep(_LOOK_S)


def _described(connection: Connection, group: str, timeout: float) -> Any:
    try:
        found = connection.admin.describe_consumer_groups([group], request_timeout=UNLIMITED_S)[group].result(timeout)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    # Brokers before 4.0 know any group, as one that is dead.
    return None if found.state == ConsumerGroupState.DEAD else found


def _delete(futures: Any, timeout: float) -> None:
    for future in futures.values():
        try:
            future.result(timeout)
        except KafkaException as error:
            # Asked again after an answer that did not come.
            if error.args[0].code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND):
                raise
