"""What the members of a group said and were given, read from their bytes. No cluster is asked here.

Bytes that cannot be read are a problem of that member, told in its description, and no error: one strange member must
not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

from task_assignor.group.wire import (
    AssignmentInfo,
    SubscriptionInfo,
    WireFormatException,
    decode_assignment,
    decode_assignment_info,
    decode_sticky_user_data,
    decode_subscription,
    decode_subscription_info,
)
from task_assignor.sdk import Assignment, Subscription, TaskId, TopicPartition

STREAMS_ASSIGNOR: Final = "stream"
"""The name of the assignor in groups of Kafka Streams."""
TASK_ASSIGNOR: Final = "task-assignor"
"""The name of the assignor in groups of Python consumers that are given tasks; the user data is Kafka Streams' own."""
LEADER_TAG: Final = "task-assignor"
"""The tag of members of a group of Kafka Streams that only lead it, and process nothing."""
WITH_TASKS: Final = frozenset({STREAMS_ASSIGNOR, TASK_ASSIGNOR})
STICKY_ASSIGNOR: Final = "sticky"
_Read = TypeVar("_Read")


@attrs.frozen
class GroupMember:
    """One member: what it said when it joined, and what the leader gave it.

    Args:
        member_id: its id in the group.
        group_instance_id: its static id; None: it has none.
        client_id: the `client.id` of its consumer.
        host: where it connects from.
        subscription: what it said; None if the bytes are no subscription.
        assignment: what it was given; None if nothing, or the bytes are no assignment.
        subscription_info: its user data, if it belongs to Kafka Streams.
        assignment_info: the leader's, if it belongs to Kafka Streams.
        owned: partitions that it had when it joined: from the subscription, or from the user data of `sticky`.
        generation: of which these are; -1: unknown.
        problems: a sentence for each part that could not be read.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    subscription: Subscription | None
    assignment: Assignment | None
    subscription_info: SubscriptionInfo | None = None
    assignment_info: AssignmentInfo | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    problems: tuple[str, ...] = ()

    @property
    def only_leads(self) -> bool:
        """It is no client of the application, but in the group to lead it."""
        return self.subscription_info is not None and LEADER_TAG in self.subscription_info.client_tags

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that it was given, in the leader's order."""
        return () if self.assignment is None else self.assignment.partitions

    @property
    def active_tasks(self) -> tuple[TaskId, ...]:
        """The Streams tasks that it was given, sorted."""
        return () if self.assignment_info is None else tuple(sorted(set(self.assignment_info.active_tasks)))

    @property
    def standby_tasks(self) -> tuple[TaskId, ...]:
        """The Streams tasks of which it keeps a copy, sorted."""
        return () if self.assignment_info is None else tuple(sorted(self.assignment_info.standby_tasks))


@attrs.frozen
class GroupDescription:
    """A group with its members.

    Args:
        name: its id.
        state: Kafka's word for its state; members have assignments in `Stable`.
        assignor: the name of the assignor that the members agreed on; "" while they have not.
        members: the members by id.
    """

    name: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...] = ()

    @property
    def is_streams(self) -> bool:
        """Whether its members' user data is that of Kafka Streams."""
        return any(member.subscription_info is not None for member in self.members)

    @property
    def has_tasks(self) -> bool:
        """Whether its members are given tasks, not just partitions."""
        return self.assignor in WITH_TASKS

    @property
    def topics(self) -> list[str]:
        """All topics that a member subscribes to or has a partition of, sorted."""
        subscribed = {
            topic for member in self.members if member.subscription is not None for topic in member.subscription.topics
        }
        return sorted(subscribed | {each.topic for member in self.members for each in member.partitions})


def describe_member(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    host: str,
    assignor: str,
    metadata: bytes,
    assignment: bytes,
) -> GroupMember:
    """Read what a broker tells of a member.

    Args:
        member_id: its id in the group.
        group_instance_id: its static id, or None.
        client_id: the `client.id` of its consumer.
        host: where it connects from.
        assignor: the name of the group's assignor; says what the user data is.
        metadata: bytes of its subscription; empty while the group rebalances.
        assignment: bytes of its assignment; likewise.
    """
    problems: list[str] = []

    def read(what: str, data: bytes | None, decode: Callable[[bytes], _Read]) -> _Read | None:
        if not data:
            return None
        try:
            return decode(data)
        except WireFormatException as error:
            problems.append(f"The {what} of {member_id} ({len(data)} bytes) cannot be read: {error}")
            return None

    subscription = read("subscription", metadata, decode_subscription)
    given = read("assignment", assignment, decode_assignment)
    told = None if subscription is None else subscription.user_data
    answered = None if given is None else given.user_data
    subscription_info = assignment_info = None
    owned = () if subscription is None else subscription.owned_partitions
    generation = -1 if subscription is None else subscription.generation_id
    if assignor in WITH_TASKS:
        subscription_info = read("subscription's user data", told, decode_subscription_info)
        assignment_info = read("assignment's user data", answered, decode_assignment_info)
    elif assignor == STICKY_ASSIGNOR and not owned:
        sticky = read("subscription's user data", told, decode_sticky_user_data)
        if sticky is not None:
            owned = tuple(TopicPartition(topic, each) for topic, found in sticky.owned.items() for each in found)
            generation = -1 if sticky.generation is None else sticky.generation
    return GroupMember(
        member_id,
        group_instance_id,
        client_id,
        host,
        subscription,
        given,
        subscription_info,
        assignment_info,
        tuple(sorted(owned)),
        generation,
        tuple(problems),
    )
