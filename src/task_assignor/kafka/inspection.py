"""What is the matter with a group: who has what, how far behind it is, and which rules its assignment breaks. Read-only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from task_assignor.group.consumers import StickyStreamJoinAssignor
from task_assignor.group.consumers.joins import numbers_to_join
from task_assignor.group.wire import NO_REBALANCE
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.kafka.cluster import Cluster, check_cluster
from task_assignor.kafka.group_description import GroupDescription, GroupMember
from task_assignor.sdk import TopicPartition
from task_assignor.sdk.text import listed

_STABLE = "Stable"
_EMPTY = "Empty"


@attrs.frozen
class Inspection:
    """A group as it is now.

    Args:
        group: the group and its members.
        partition_counts: topic -> number of partitions, of all topics that exist and that the group subscribes to
            or has committed offsets of.
        lags: partition -> records that the group has not committed yet; None: it has committed nothing there.
        violations: a sentence for each rule that the assignment breaks, and for all that could not be read.
    """

    group: GroupDescription
    partition_counts: Mapping[str, int]
    lags: Mapping[TopicPartition, int | None]
    violations: tuple[str, ...]

    @property
    def total_lag(self) -> int:
        """The known lags, summed."""
        return sum(lag for lag in self.lags.values() if lag is not None)

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {
            "group": self.group.name,
            "state": self.group.state,
            "assignor": self.group.assignor,
            "topics": dict(self.partition_counts),
            "members": [_member_to_json(member) for member in self.group.members],
            "lags": [
                {"topic": each.topic, "partition": each.partition, "lag": lag}
                for each, lag in sorted(self.lags.items())
            ],
            "totalLag": self.total_lag,
            "violations": list(self.violations),
        }


def inspect_group(cluster: Cluster, name: str) -> Inspection:
    """Look into a group.

    Raises:
        ConfigException: the cluster is no `Cluster`, or the name no string.
        UnknownGroupException: there is no such group.
        KafkaClusterException: the cluster does not answer, or its brokers assign this group themselves.
    """
    check_cluster(cluster)
    group = cluster.describe_group(name)
    committed = cluster.committed_offsets(name)
    topics = {*group.topics, *(each.topic for each in committed)}
    counts = cluster.partition_counts(cluster.existing(topics))
    partitions = [TopicPartition(topic, each) for topic, count in counts.items() for each in range(count)]
    ends = cluster.end_offsets(partitions)
    lags = {each: max(ends[each] - committed[each], 0) if each in committed else None for each in sorted(partitions)}
    return Inspection(group, counts, lags, tuple(violations_of(group, counts)))


def violations_of(group: GroupDescription, partition_counts: Mapping[str, int]) -> list[str]:
    """A sentence for each rule that the group's assignment breaks.

    Args:
        group: the group.
        partition_counts: topic -> number of partitions, of the topics that exist.
    """
    found = [problem for member in group.members for problem in member.problems]
    if group.state == _EMPTY:
        return found
    if group.state != _STABLE:
        found.append(f"The group is not stable ({group.state}): its members may have no assignments now.")
        return found
    owners: dict[TopicPartition, list[str]] = defaultdict(list)
    for member in group.members:
        for partition in member.partitions:
            owners[partition].append(member.member_id)
        found += _member_violations(member, partition_counts)
    found += [
        f"{topic}-{partition} belongs to {listed(names)} at once."
        for (topic, partition), names in sorted(((each.topic, each.partition), names) for each, names in owners.items())
        if len(names) > 1
    ]
    # Of a topic that it does not read any more a group has offsets, and needs no owner.
    wanted: Mapping[str, Sequence[int]] = {
        topic: range(partition_counts[topic]) for topic in group.topics if topic in partition_counts
    }
    if group.assignor == StickyStreamJoinAssignor.name:
        told = [
            (() if member.subscription is None else member.subscription.topics, dict(by_topic(member.partitions)))
            for member in group.members
        ]
        wanted = numbers_to_join({topic: len(numbers) for topic, numbers in wanted.items()}, told)
    missing = [
        f"{topic}-{partition}"
        for topic, numbers in wanted.items()
        for partition in numbers
        if TopicPartition(topic, partition) not in owners
    ]
    if missing and group.members:
        found.append(f"Nobody has {listed(missing)}.")
    return found + _streams_violations(group)


def _member_violations(member: GroupMember, partition_counts: Mapping[str, int]) -> list[str]:
    found = []
    subscribed = set() if member.subscription is None else set(member.subscription.topics)
    for partition in member.partitions:
        where = f"{member.member_id} has {partition.topic}-{partition.partition}"
        if member.subscription is not None and partition.topic not in subscribed:
            found.append(f"{where}, a topic that it does not subscribe to.")
        elif partition.topic not in partition_counts:
            found.append(f"{where}, a topic that does not exist.")
        elif partition.partition >= partition_counts[partition.topic]:
            found.append(f"{where}, but the topic has {partition_counts[partition.topic]} partitions.")
    return found


def _streams_violations(group: GroupDescription) -> list[str]:
    found = []
    runs: dict[Any, list[str]] = defaultdict(list)
    for member in group.members:
        info = member.assignment_info
        if info is None:
            continue
        if info.err_code:
            found.append(f"The leader told {member.member_id} the error code {info.err_code} instead of an assignment.")
        if len(info.active_tasks) != len(member.partitions):
            found.append(
                f"{member.member_id} was given {len(member.partitions)} partitions but {len(info.active_tasks)} tasks for them."
            )
        for task in member.active_tasks:
            runs[task].append(member.member_id)
        both = [str(task) for task in member.active_tasks if task in info.standby_tasks]
        if both:
            found.append(f"{member.member_id} has {listed(both)} as active and as standby.")
    found += [
        f"The task {task} is active at {listed(names)} at once."
        for task, names in sorted(runs.items())
        if len(names) > 1
    ]
    return found


def _member_to_json(member: GroupMember) -> dict[str, Any]:
    result: dict[str, Any] = {
        "memberId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "rackId": None if member.subscription is None else member.subscription.rack_id,
        "generation": member.generation,
        "had": _partitions_to_json(member.owned),
        "given": _partitions_to_json(member.partitions),
    }
    told, given = member.subscription_info, member.assignment_info
    if told is not None:
        result["processId"] = str(told.process_id)
        result["userEndPoint"] = told.user_end_point
        result["clientTags"] = dict(told.client_tags)
        result["taskOffsetSums"] = {str(task): offset for task, offset in sorted(told.task_offset_sums.items())}
    if given is not None:
        result["activeTasks"] = [str(task) for task in member.active_tasks]
        result["standbyTasks"] = [str(task) for task in member.standby_tasks]
        result["followupRebalanceMs"] = None if given.next_rebalance_ms == NO_REBALANCE else given.next_rebalance_ms
        result["errorCode"] = given.err_code
    return result


def _partitions_to_json(partitions: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for each in sorted(partitions):
        result.setdefault(each.topic, []).append(each.partition)
    return result
