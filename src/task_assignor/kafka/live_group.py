"""A live group of plain consumers as a consumer-level assignor would see it if a rebalance began now. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.wire import (
    WireFormatException,
    decode_copartitioned_user_data,
    decode_stream_join_epoch,
)
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.kafka.cluster import Cluster, check_cluster
from task_assignor.kafka.errors import GroupStateException
from task_assignor.kafka.group_description import GroupDescription, GroupMember

_COPARTITIONED: Final = "copartitioned"
_STREAM_JOIN: Final = "stream-join"


@attrs.frozen
class LiveGroup:
    """A group of plain consumers.

    Args:
        name: its id.
        assignor: the name of the assignor that its members agreed on.
        topics: the topics that somebody subscribes to and that exist.
        members: the members by id; `owned` is what each has now.
        standbys: member id -> topic -> partitions of which it keeps copies, where the assignor is `copartitioned`.
        notes: a sentence for each part that is not exact.
    """

    name: str
    assignor: str
    topics: GroupTopics
    members: tuple[ConsumerMember, ...]
    standbys: Mapping[str, Mapping[str, Sequence[int]]] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The group as a document that `task-assignor plan` takes: whatever the assignor, members claim what they have."""
        document: dict[str, Any] = {
            "id": self.name,
            "kind": self.assignor,
            "topics": dict(self.topics.counts),
            "members": [self._member_to_json(member) for member in self.members],
        }
        if self.topics.racks:
            document["racks"] = {
                topic: [None if racks is None else sorted(racks) for racks in found]
                for topic, found in self.topics.racks.items()
            }
        return document

    def _member_to_json(self, member: ConsumerMember) -> dict[str, Any]:
        owned = {topic: list(partitions) for topic, partitions in member.owned.items()}
        claims: dict[str, Any] = {"owned": owned, "generation": member.generation}
        if member.member_id in self.standbys:
            claims["standby"] = {topic: list(found) for topic, found in self.standbys[member.member_id].items()}
        found: dict[str, Any] = {"id": member.member_id, "topics": list(member.topics), **claims, "claims": claims}
        found.pop("standby", None)
        if member.rack_id is not None:
            found["rack"] = member.rack_id
        if member.group_instance_id is not None:
            found["instance"] = member.group_instance_id
        return found


def consumers_of_group(cluster: Cluster, name: str) -> LiveGroup:
    """A group of plain consumers.

    Args:
        cluster: where it lives.
        name: the group.

    Raises:
        ConfigException: the cluster is no `Cluster`, or the name no string.
        UnknownGroupException: there is no such group.
        KafkaClusterException: the cluster does not answer.
        GroupStateException: its members have tasks (see `state_of_group`), or it is not stable.
    """
    check_cluster(cluster)
    group = cluster.describe_group(name)
    if group.has_tasks:
        raise GroupStateException(f"The members of the group {name!r} have tasks. Maybe use state_of_group.")
    check_stable(group)
    topics = cluster.existing(group.topics)
    racks = {
        topic: found
        for topic, found in cluster.partition_racks(topics).items()
        if any(each is not None for each in found)
    }
    generation = _generation(group)
    members = tuple(
        ConsumerMember(
            member.member_id,
            () if member.subscription is None else member.subscription.topics,
            None,
            dict(by_topic(sorted(member.partitions))),
            generation,
            None if member.subscription is None else member.subscription.rack_id,
            member.group_instance_id,
        )
        for member in group.members
    )
    return LiveGroup(
        name,
        group.assignor,
        GroupTopics(cluster.partition_counts(topics), racks),
        members,
        {member.member_id: _standby(member) for member in group.members} if group.assignor == _COPARTITIONED else {},
        ("Brokers do not tell the generation of a group: it is one more than the latest that a member told.",),
    )


def check_stable(group: GroupDescription) -> None:
    """Raise GroupStateException unless all members have their assignments, and all could be read."""
    if not group.members:
        raise GroupStateException(f"The group {group.name!r} has no members ({group.state}).")
    if group.state != "Stable":
        raise GroupStateException(
            f"The group {group.name!r} is in the middle of a rebalance ({group.state}). Maybe try again in a moment."
        )
    problems = [problem for member in group.members for problem in member.problems]
    if problems:
        raise GroupStateException(" ".join(problems))


def _generation(group: GroupDescription) -> int:
    """Of what members have now; they told that of what they had before. `stream-join` counts by itself."""
    if group.assignor == _STREAM_JOIN:
        return max(_epoch(member) for member in group.members)
    return max(member.generation for member in group.members) + 1


def _epoch(member: GroupMember) -> int:
    try:
        return decode_stream_join_epoch(None if member.assignment is None else member.assignment.user_data)
    except WireFormatException:
        return 0


def _standby(member: GroupMember) -> Mapping[str, Sequence[int]]:
    data = None if member.assignment is None else member.assignment.user_data
    try:
        return {} if data is None else decode_copartitioned_user_data(data).standby
    except WireFormatException:
        return {}
