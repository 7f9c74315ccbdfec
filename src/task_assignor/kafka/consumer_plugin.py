"""Consumer-level assignors inside kafka-python's consumers: `KafkaConsumer(partition_assignment_strategy=[...])`.

A leader must never hurt its group: whatever its assignor does, every member gets an assignment in time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.abstract import RebalanceProtocol as ClientProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignor,
    ConsumerMember,
    GroupTopics,
    RebalanceProtocol,
)
from task_assignor.group.consumers.table import Claim
from task_assignor.group.limits import GivenUpError, Limited
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.kafka.fallback import keep_and_place_orphans
from task_assignor.sdk import Assignment, TopicPartition
from task_assignor.sdk.text import failure

_log = logging.getLogger(__name__)
_SUBSCRIPTION_VERSION: Final = 3
_RETRY_S: Final = 60.0


class ConsumerAssignorPlugin(AbstractPartitionAssignor):  # type: ignore[misc]
    """A consumer-level assignor as kafka-python takes it; every consumer needs an instance of its own.

    When the assignor of the leader raises, answers nonsense or is too slow, the group keeps what it has, partitions that
    nobody has go to the least loaded subscribers, and the leader asks for another rebalance a minute later.

    Args:
        assignor: a `ConsumerAssignor`, built-in or of your own.
        rack_id: the rack of this consumer, if partitions near to it are to be preferred (KIP-881).
        limit_ms: how long the assignor may think; a third of `session.timeout.ms` is right. It runs in a thread, which
            is given up then: code that holds Python's lock that long cannot be.

    Examples:
        >>> from task_assignor.group.consumers import CooperativeStickyAssignor
        >>> plugin = ConsumerAssignorPlugin(CooperativeStickyAssignor())
        >>> consumer = KafkaConsumer(partition_assignment_strategy=[plugin], group_id="g")  # doctest: +SKIP
        >>> plugin.attach(consumer)  # doctest: +SKIP
        >>> consumer.subscribe(["clicks"])  # doctest: +SKIP
    """

    def __init__(self, assignor: ConsumerAssignor, *, rack_id: str | None = None, limit_ms: int = 15_000) -> None:
        self.assignor = assignor
        self._rack_id = rack_id
        self._limit_s = limit_ms / 1000
        self._consumer: KafkaConsumer | None = None
        self._retry: threading.Timer | None = None
        self._given = Assignment()
        self._generation = -1
        self.failures: list[str] = []
        """A sentence for each time the assignor failed while this consumer led the group."""

    @property
    def name(self) -> str:
        """What the members of the group agree on."""
        return self.assignor.name

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""
        return self.assignor.protocols[0] is RebalanceProtocol.COOPERATIVE

    def attach(self, consumer: KafkaConsumer) -> None:
        """Tell which consumer this is for, before it subscribes: only the consumer knows what it owns after a time-out.

        Cooperative assignors need it. Others should have it too: to try again by themselves after their assignor failed,
        and to be safe from joins that kafka-python forgets when they outlast a `poll()`.
        """
        self._consumer = consumer

    def supported_protocols(self) -> list[ClientProtocol]:
        """The preferred protocol: kafka-python wants all assignors of a consumer to have the same."""
        return [ClientProtocol.COOPERATIVE if self.is_cooperative else ClientProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """What this consumer says of itself when it joins, in version 3: with owned partitions, generation and rack.

        Raises:
            GroupException: the assignor is cooperative, and `attach` was not called.
        """
        self._cancel_retry()
        # kafka-python 3.0.12 forgets a join that outlasts its poll() if the reason for it, new metadata, is gone
        # meanwhile: nobody looks at the answer, and heartbeats stay off until the member is expelled.
        self._rejoin()
        owned: Sequence[TopicPartition] = ()
        if self.is_cooperative:
            if self._consumer is None:
                raise GroupException(
                    f"The assignor {self.name!r} is cooperative, so it must know what its consumer owns. Maybe call "
                    "plugin.attach(consumer) before consumer.subscribe(...)."
                )
            owned = sorted(TopicPartition(each.topic, each.partition) for each in self._consumer.assignment())
        listed = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=self.assignor.user_data(self._given, self._generation),
            owned_partitions=[listed(topic=topic, partitions=found) for topic, found in by_topic(owned)],
            generation_id=self._generation if owned else -1,
            rack_id=self._rack_id,
            version=_SUBSCRIPTION_VERSION,
        )

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Remember what was given, for the next time."""
        partitions = tuple(TopicPartition(each.topic, each.partition) for each in assignment.partitions())
        self._given, self._generation = Assignment(partitions, _bytes(assignment.user_data)), generation

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Ask the assignor, as leader of the group. Never raises."""
        found = [_member(member) for member in members]
        topics = topics_of(cluster, found)
        try:
            answer = Limited(lambda: self._ask(topics, found), f"assignor-{self.name}").answer(self._limit_s)
        except BaseException as error:  # noqa: BLE001  (an assignor is somebody else's code, and a group depends on it)
            self._note_failure(error)
            kept = keep_and_place_orphans(topics, [(member, self._claim(member)) for member in found])
            answer = {name: Assignment(tuple(partitions)) for name, partitions in kept.items()}
        return {name: _to_client(assignment) for name, assignment in answer.items()}

    def _ask(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        answer = self.assignor.assign(topics, members)
        check_answer(topics, members, answer)
        return {member.member_id: answer.to_assignment(member.member_id) for member in members}

    def _claim(self, member: ConsumerMember) -> Claim:
        return Claim(member.owned, member.generation) if self.is_cooperative else self.assignor.claim(member)

    def _note_failure(self, error: BaseException) -> None:
        said = (
            f"did not answer within {self._limit_s:g} s"
            if isinstance(error, GivenUpError)
            else f"failed with {failure(error)}"
        )
        sentence = (
            f"The assignor {self.name!r} {said}; the group keeps what it has, partitions that nobody has went to the least "
            f"loaded members, and it is asked again in {_RETRY_S:g} s."
        )
        self.failures.append(sentence)
        _log.error("%s", sentence, exc_info=None if isinstance(error, GivenUpError) else error)
        self._retry = threading.Timer(_RETRY_S, self._rejoin)
        self._retry.daemon = True
        self._retry.start()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _rejoin(self) -> None:
        """Let the consumer join anew at its next poll."""
        if self._consumer is not None:
            # kafka-python has no public way to ask for a rebalance (Java's enforceRebalance).
            self._consumer._coordinator.request_rejoin()  # noqa: SLF001


def check_answer(topics: GroupTopics, members: Iterable[ConsumerMember], answer: Any) -> None:
    """Refuse an answer that would hurt the group.

    Raises:
        GroupException: a member is missing or unknown, a partition is given twice, does not exist, or goes to a member
            that does not subscribe to its topic.
    """
    subscribed = {member.member_id: set(member.topics) for member in members}
    if answer.keys() != subscribed.keys():
        strange = sorted(answer.keys() ^ subscribed.keys())
        raise GroupException(f"The answer must have exactly the members of the group; different: {strange}.")
    seen: dict[TopicPartition, str] = {}
    for name, parts in answer.items():
        for topic, partitions in parts.items():
            if topic not in subscribed[name]:
                raise GroupException(f"The answer gives {name} the topic {topic!r}, to which it does not subscribe.")
            for partition in partitions:
                found = TopicPartition(topic, partition)
                if partition >= topics.counts.get(topic, 0):
                    raise GroupException(f"The answer gives {name} {topic}-{partition}, which does not exist.")
                if seen.setdefault(found, name) != name:
                    raise GroupException(f"The answer gives {topic}-{partition} to {seen[found]} and to {name}.")


def topics_of(cluster: Any, members: Iterable[ConsumerMember]) -> GroupTopics:
    """What kafka-python knows of the subscribed topics: partitions, and racks if all replicas' brokers have one."""
    counts, racks = {}, {}
    brokers = sorted(cluster.brokers(), key=lambda broker: broker.node_id)
    know_racks = bool(brokers) and all(broker.rack for broker in brokers)
    for topic in sorted({topic for member in members for topic in member.topics}):
        partitions = cluster.partitions_for_topic(topic)
        if not partitions:
            continue
        counts[topic] = max(partitions) + 1
        if know_racks:
            racks[topic] = [
                frozenset(
                    broker.rack
                    for broker in brokers
                    if cluster.is_replica_node(ClientPartition(topic, partition), broker.node_id)
                )
                for partition in range(counts[topic])
            ]
    return GroupTopics(counts, racks)


def _member(member: Any) -> ConsumerMember:
    told = member.metadata
    owned = {found.topic: list(found.partitions) for found in getattr(told, "owned_partitions", None) or ()}
    return ConsumerMember(
        member.member_id,
        tuple(told.topics),
        _bytes(told.user_data),
        owned,
        getattr(told, "generation_id", -1),
        getattr(told, "rack_id", None) or None,
        getattr(member, "group_instance_id", None),
    )


def _bytes(data: Any) -> bytes | None:
    return bytes(data) if data else None


def _to_client(assignment: Assignment) -> ConsumerProtocolAssignment:
    listed = ConsumerProtocolAssignment.TopicPartition
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            listed(topic=topic, partitions=found) for topic, found in by_topic(sorted(assignment.partitions))
        ],
        user_data=assignment.user_data,
        version=_SUBSCRIPTION_VERSION,
    )
