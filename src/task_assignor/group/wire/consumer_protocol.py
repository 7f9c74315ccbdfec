"""What a consumer and its group's leader tell each other: subscriptions and assignments of versions 0 to 3.

Source: `ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json` and `ConsumerProtocol` of Kafka 4.3:
topics are sorted, newer versions than 3 are written and read as 3, a rack of no letters is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from task_assignor.group.wire.layout import (
    INT16,
    INT32,
    NULLABLE_BYTES,
    NULLABLE_TEXT,
    TEXT,
    Field,
    Layout,
    Many,
    Source,
    WireFormatException,
    value_of,
)
from task_assignor.sdk import Assignment, StateException, Subscription, TopicPartition
from task_assignor.sdk.ids import java_string_key
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.text import shown

LATEST_CONSUMER_VERSION: Final = 3

TOPIC_PARTITIONS: Final = Layout("TopicPartition", [Field("topic", TEXT), Field("partitions", Many(INT32))])
SUBSCRIPTION: Final = Layout(
    "ConsumerProtocolSubscription",
    [
        Field("topics", Many(TEXT)),
        Field("user_data", NULLABLE_BYTES),
        Field("owned_partitions", Many(TOPIC_PARTITIONS), first=1, default=()),
        Field("generation_id", INT32, first=2, default=-1),
        Field("rack_id", NULLABLE_TEXT, first=3),
    ],
)
ASSIGNMENT: Final = Layout(
    "ConsumerProtocolAssignment",
    [Field("assigned_partitions", Many(TOPIC_PARTITIONS)), Field("user_data", NULLABLE_BYTES)],
)


def encode_subscription(subscription: Subscription, version: int = LATEST_CONSUMER_VERSION) -> bytes:
    """The bytes of a member's subscription, as in JoinGroup.

    Args:
        subscription: what the member asks for; what a version does not know is left out.
        version: version to write, from 0; above 3 it is 3.

    Raises:
        WireFormatException: the version is negative, or a value does not fit.
    """
    value_of("subscription", Subscription, subscription)
    values = {
        "topics": sorted(subscription.topics, key=java_string_key),
        "user_data": subscription.user_data,
        "owned_partitions": by_topic(
            sorted(subscription.owned_partitions, key=lambda found: (java_string_key(found.topic), found.partition))
        ),
        "generation_id": subscription.generation_id,
        "rack_id": subscription.rack_id,
    }
    return _encode(SUBSCRIPTION, values, version)


def decode_subscription(data: bytes) -> Subscription:
    """What a member asked for.

    Raises:
        WireFormatException: the bytes are no subscription.
    """
    found = _decode(SUBSCRIPTION, data)
    return Subscription(
        tuple(found["topics"]),
        found["user_data"],
        partitions_of(found["owned_partitions"]),
        found["generation_id"],
        found["rack_id"] or None,
    )


def encode_assignment(assignment: Assignment, version: int = LATEST_CONSUMER_VERSION) -> bytes:
    """The bytes of a member's assignment, as in SyncGroup; topics and their partitions in the given order.

    Raises:
        WireFormatException: the version is negative, or a value does not fit.
    """
    value_of("assignment", Assignment, assignment)
    values = {"assigned_partitions": by_topic(assignment.partitions), "user_data": assignment.user_data}
    return _encode(ASSIGNMENT, values, version)


def decode_assignment(data: bytes) -> Assignment:
    """What a member was given.

    Raises:
        WireFormatException: the bytes are no assignment.
    """
    found = _decode(ASSIGNMENT, data)
    return Assignment(partitions_of(found["assigned_partitions"]), found["user_data"])


def version_of(data: bytes) -> int:
    """The version in front of a subscription or an assignment.

    Raises:
        WireFormatException: there are no two bytes, or it is negative.
    """
    version = INT16.read(Source(data), 0)
    if version < 0:
        raise WireFormatException(f"The version of a consumer protocol ({version}) must be at least 0.")
    return version


def _encode(layout: Layout, values: dict[str, Any], version: int) -> bytes:
    if not is_whole(version) or version < 0:
        raise WireFormatException(f"The version of a {layout.name} ({shown(version)}) must be an int of at least 0.")
    version = min(version, LATEST_CONSUMER_VERSION)
    return INT16.write(version, version) + layout.write(layout.record(values), version)


def _decode(layout: Layout, data: bytes) -> dict[str, Any]:
    version = min(version_of(data), LATEST_CONSUMER_VERSION)
    return layout.named(layout.read(Source(data, INT16.packing.size), version))


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Topics in the order in which they come first, each with its partitions."""
    groups: dict[str, list[int]] = {}
    for found in partitions:
        groups.setdefault(found.topic, []).append(found.partition)
    return list(groups.items())


def partitions_of(groups: Iterable[tuple[str, Iterable[int]]]) -> tuple[TopicPartition, ...]:
    """The partitions of topics, in the order of the bytes.

    Raises:
        WireFormatException: a partition is negative.
    """
    try:
        return tuple([TopicPartition(topic, partition) for topic, partitions in groups for partition in partitions])
    except StateException as error:
        raise WireFormatException(str(error)) from None


def merged(groups: Sequence[tuple[str, tuple[int, ...]]]) -> Mapping[str, tuple[int, ...]]:
    """Topic -> its partitions; a topic may come more than once."""
    once = dict(groups)
    if len(once) == len(groups):
        return once
    found: dict[str, list[int]] = {}
    for topic, partitions in groups:
        found.setdefault(topic, []).extend(partitions)
    return {topic: tuple(partitions) for topic, partitions in found.items()}
