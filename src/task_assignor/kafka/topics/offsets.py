"""Offsets that brokers know of partitions - first ones, ends, those that a group has committed - and why one is not reached."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from task_assignor.kafka.topics.connection import UNLIMITED_S, Connection, answers
from task_assignor.sdk.text import listed

_LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_COMMITTED, _ALL = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def last_stable_offset(connection: Connection, topic: str, partition: int) -> int:
    """The offset up to which all transactions in a partition are over.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    return stable_offsets(connection, topic, [partition])[0]


def stable_offsets(connection: Connection, topic: str, partitions: Sequence[int]) -> list[int]:
    """`last_stable_offset` of several partitions.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    return ends_of(connection, {topic: partitions})[topic]


def first_offset(connection: Connection, topic: str, partition: int) -> int:
    """The first offset of a partition that is still there.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    return first_offsets(connection, topic, [partition])[0]


def first_offsets(connection: Connection, topic: str, partitions: Sequence[int]) -> list[int]:
    """`first_offset` of several partitions.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    return _offsets(
        connection,
        f"the topic {topic}",
        [(topic, partition) for partition in partitions],
        _EARLIEST,
        "first",
        _COMMITTED,
    )


def offsets_for_time(connection: Connection, topic: str, partitions: Sequence[int], time_ms: int) -> list[int | None]:
    """The first offset of partitions whose record is not older than a time, ms since 1970; None: all are.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    asked = {TopicPartition(topic, partition): OffsetSpec.for_timestamp(time_ms) for partition in partitions}

    def look(timeout: float) -> list[int | None]:
        futures = connection.admin.list_offsets(asked, isolation_level=_COMMITTED, request_timeout=timeout)
        found = {each.partition: result.offset for each, result in answers(futures, timeout).items()}
        return [None if found[partition] < 0 else found[partition] for partition in partitions]

    return connection.ask(f"read the offsets of the topic {topic} at a time", look)


def high_watermarks(connection: Connection, topic: str, partitions: Sequence[int]) -> list[int]:
    """The offset up to which partitions have records, whether their transactions are over or not.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    return ends_of(connection, {topic: partitions}, are_stable=False)[topic]


def ends_of(
    connection: Connection, topics: Mapping[str, Sequence[int]], *, are_stable: bool = True
) -> dict[str, list[int]]:
    """`stable_offsets`, or `high_watermarks`, of partitions of several topics at one moment, as far as their brokers are asked at one.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    places = [(topic, partition) for topic, partitions in topics.items() for partition in partitions]
    what = f"the topic{'s' if len(topics) > 1 else ''} {', '.join(topics)}"
    found = iter(_offsets(connection, what, places, _LATEST, "end", _COMMITTED if are_stable else _ALL))
    return {topic: list(islice(found, len(partitions))) for topic, partitions in topics.items()}


def begun_in(connection: Connection, topics: Mapping[str, int]) -> list[tuple[str, int]]:
    """Partitions in which a transaction has written something and is not over.

    Args:
        connection: the process's connection.
        topics: topic -> the number of its partitions.

    Raises:
        KafkaClusterException: there is no answer, or a refusal.
    """
    if not topics:
        return []
    places = {topic: range(count) for topic, count in topics.items()}
    stable, highest = (ends_of(connection, places, are_stable=are_stable) for are_stable in (True, False))
    return [
        (topic, number)
        for topic, numbers in places.items()
        for number in numbers
        if stable[topic][number] < highest[topic][number]
    ]


def _offsets(
    connection: Connection,
    what: str,
    places: Sequence[tuple[str, int]],
    which: Any,
    word: str,
    isolation: IsolationLevel,
) -> list[int]:
    return connection.ask(
        f"read the {word} offsets of {what}",
        lambda timeout: _look(connection, places, which, isolation, timeout),
    )


def _look(
    connection: Connection, places: Sequence[tuple[str, int]], which: Any, isolation: IsolationLevel, timeout: float
) -> list[int]:
    asked = {TopicPartition(*place): which for place in places}
    futures = connection.admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout)
    found = {(each.topic, each.partition): result.offset for each, result in answers(futures, timeout).items()}
    if min(found.values()) < 0:
        # While a partition changes its leader there may be an answer without an offset.
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
    return [found[place] for place in places]


def why_not_reached(connection: Connection, topic: str, partition: int, end: int, timeout: float) -> str:
    """Why who reads what is committed does not come to an offset; "": brokers do not answer in time, or nothing is in its way."""
    try:
        (stable,) = _look(connection, [(topic, partition)], _LATEST, _COMMITTED, timeout)
        (high,) = _look(connection, [(topic, partition)], _LATEST, _ALL, timeout)
    except (KafkaException, TimeoutError):
        return ""
    if stable >= end:
        return ""
    if high < end:
        return (
            f"the partition ends at offset {high} and has lost what was there. Maybe its broker was killed and came back without "
            "it, which only replicas help against"
        )
    return (
        f"a transaction that began at offset {stable} is open there and hides what comes after it: brokers end those that take "
        "longer than their transaction.timeout.ms, and if it stays, they have lost its state. Then kafka-transactions.sh "
        "find-hanging names it, and abort ends it"
    )


def held_back(connection: Connection, group: str, partitions: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Partitions whose offset brokers tell nobody: a transaction is open that commits another one.

    Raises:
        KafkaClusterException: no answer, or a refusal.
    """
    return connection.ask(
        f"see whether transactions of the group {group} are open",
        lambda timeout: _held_back(connection, group, partitions, timeout),
    )


def _held_back(
    connection: Connection, group: str, partitions: Collection[tuple[str, int]], timeout: float
) -> list[tuple[str, int]]:
    if not partitions:
        return []
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in partitions])
    admin = connection.admin
    futures = admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=UNLIMITED_S)
    found = futures[group].result(timeout).topic_partitions
    for each in found:
        if each.error is not None and each.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
            raise KafkaException(each.error)
    return sorted((each.topic, each.partition) for each in found if each.error is not None)


def committed_offsets(
    connection: Connection, group: str, partitions: Iterable[tuple[str, int]], least_ms: int = 0
) -> dict[tuple[str, int], tuple[int, str]]:
    """(topic, partition) -> the offset that the group has committed, and its metadata; absent: it has none.

    Args:
        connection: the process's connection.
        group: the group.
        partitions: of which partitions.
        least_ms: transactions that are open are waited for so long, or longer.

    Raises:
        KafkaClusterException: no answer, or a refusal.
    """
    asked = [TopicPartition(topic, partition) for topic, partition in partitions]

    def ask(timeout: float) -> dict[tuple[str, int], tuple[int, str]]:
        found = {}
        for each in connection.group(group).committed(asked, timeout):
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset not in (OFFSET_INVALID, -1):
                found[each.topic, each.partition] = (each.offset, each.metadata or "")
        return found

    def state(timeout: float) -> str:
        try:
            held = _held_back(connection, group, [(each.topic, each.partition) for each in asked], timeout)
        except (KafkaException, TimeoutError):
            return ""
        if not held:
            return ""
        return (
            f"a transaction is open that commits offsets of {listed(f'{topic}-{partition}' for topic, partition in held)}, and they "
            "tell nobody any until it is over. They end those that take longer than their transaction.timeout.ms; if it stays, they have "
            "lost its end, as one may that was killed just then, and kafka-transactions.sh find-hanging names it"
        )

    return connection.ask(f"read the offsets that the group {group} has committed", ask, state, least_ms)
