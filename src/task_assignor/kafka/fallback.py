"""What a leader does when its assignor fails: every partition stays where it is, and orphans go to the least loaded."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.consumers.table import Claim
from task_assignor.group.consumers.values import Owned
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.sdk import TopicPartition
from task_assignor.sdk.ids import java_string_key


def keep_and_place_orphans(
    topics: GroupTopics,
    members: Iterable[tuple[ConsumerMember, Claim]],
    *,
    is_join: bool = False,
    left_out: Callable[[Mapping[str, Owned]], Mapping[str, Collection[int]]] = lambda _: {},
) -> dict[str, list[TopicPartition]]:
    """An assignment that needs no assignor and hands nothing over.

    Args:
        topics: the topics that exist.
        members: the members, each with what it says that it has.
        is_join: what is joined must stay together: a partition that nobody has goes to who has, or just got, the same number
            of another topic, if it subscribes to this one.
        left_out: what shall be nobody's, where members get this.

    Returns:
        Member id -> its partitions, sorted. Of several claims of a partition the newest counts, of equally new ones the
        first by member id. A partition that nobody has goes to the subscriber with the fewest partitions.
    """
    known = sorted(members, key=lambda found: java_string_key(found[0].member_id))
    there = [(member.member_id, Claim(_that_exist(topics, member, claim), claim.generation)) for member, claim in known]
    owner = newest_claims(there)
    result: dict[str, list[TopicPartition]] = {member.member_id: [] for member, _ in known}
    for found, name in owner.items():
        result[name].append(found)
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member, _ in known:
        for topic in set(member.topics):
            subscribers[topic].append(member.member_id)
    homes: dict[int, str] = {}
    if is_join:
        for found, name in owner.items():
            homes.setdefault(found.partition, name)
    nobodys = left_out(_by_topics(result))
    for topic in sorted(subscribers):
        readers = set(subscribers[topic])
        waiting = [(len(result[name]), number, name) for number, name in enumerate(subscribers[topic])]
        heapq.heapify(waiting)
        for partition in range(topics.counts.get(topic, 0)):
            orphan = TopicPartition(topic, partition)
            if orphan in owner or partition in nobodys.get(topic, ()):
                continue
            home = homes.get(partition)
            if home is None or home not in readers:
                load, number, home = waiting[0]
                while load < len(result[home]):
                    heapq.heapreplace(waiting, (len(result[home]), number, home))
                    load, number, home = waiting[0]
                if is_join:
                    homes.setdefault(partition, home)
            result[home].append(orphan)
    nobodys = left_out(_by_topics(result))
    return {
        name: sorted(each for each in partitions if each.partition not in nobodys.get(each.topic, ()))
        for name, partitions in result.items()
    }


def _by_topics(given: Mapping[str, list[TopicPartition]]) -> dict[str, Owned]:
    return {name: dict(by_topic(sorted(partitions))) for name, partitions in given.items()}


def _that_exist(topics: GroupTopics, member: ConsumerMember, claim: Claim) -> dict[str, list[int]]:
    return {
        topic: [partition for partition in partitions if 0 <= partition < topics.counts.get(topic, 0)]
        for topic, partitions in claim.owned.items()
        if topic in member.topics
    }


def newest_claims(claims: Iterable[tuple[str, Claim]]) -> dict[TopicPartition, str]:
    """Partition -> the member that has it: of several claims the newest counts, of equally new ones the first by member id.

    Args:
        claims: member ids, each with what the member says that it has.
    """
    owner: dict[TopicPartition, tuple[int, str]] = {}
    for name, claim in sorted(claims, key=lambda found: java_string_key(found[0])):
        for topic, partitions in claim.owned.items():
            for partition in (each for each in partitions if each >= 0):
                found = TopicPartition(topic, partition)
                if found not in owner or owner[found][0] < claim.generation:
                    owner[found] = (claim.generation, name)
    return {found: name for found, (_, name) in owner.items()}
