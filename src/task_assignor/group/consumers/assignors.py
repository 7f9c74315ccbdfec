"""Consumer-level assignors: what each is called, what its members say of themselves, and how it decides. Values, no sockets.

An assignor of this kind decides about partitions, for plain Kafka consumers; a `TaskAssignor` decides about tasks.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from task_assignor.group.consumers.even import deal_evenly
from task_assignor.group.consumers.general import Problem, Racks, place
from task_assignor.group.consumers.table import NOBODY, Claim, Claims, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics, Owned
from task_assignor.group.errors import GroupException, check_assignment
from task_assignor.group.wire import (
    StickyUserData,
    WireFormatException,
    decode_sticky_user_data,
    encode_sticky_user_data,
)
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.group.wire.sticky import decode_generation, encode_generation
from task_assignor.sdk import Assignment
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.columns import Int64Array


class RebalanceProtocol(enum.Enum):
    """What members do with their partitions when a rebalance begins (KIP-429).

    Attributes:
        EAGER: they give all of them up.
        COOPERATIVE: they keep them, and give up what they are not assigned any more.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class ConsumerAssignor(ABC):
    """Decides which member of a consumer group reads which partition. It keeps nothing between rebalances.

    Source: `ConsumerPartitionAssignor`; KIP-54, KIP-341, KIP-429.

    Attributes:
        name: what the members of a group agree on; the name of Kafka's own where there is one.
        protocols: what it works with, the preferred one first.
        is_join: whether equal partition numbers of topics belong together. When it failed, partitions that nobody has go to
            who has the same number of another topic.
    """

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    is_join: ClassVar[bool] = False

    @abstractmethod
    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """Give every partition of the subscribed topics to a member, whatever the order of topics and members.

        Raises:
            GroupException: a member id is there twice.
        """

    def user_data(self, assignment: Assignment, generation: int) -> bytes | None:
        """What a member adds to its next subscription.

        Args:
            assignment: what it was given last; an empty one before the first time.
            generation: generation of the group in which it was given; -1: none.
        """
        del assignment, generation
        return None

    def claim(self, member: ConsumerMember) -> Claim:
        """What a member's subscription says that it had; nothing where the assignor does not ask.

        Raises:
            GroupException: that is no member.
        """
        check_kind("member", member, ConsumerMember, GroupException)
        return Claim()

    def left_out(
        self, topics: GroupTopics, members: Sequence[ConsumerMember], given: Mapping[str, Owned]
    ) -> Mapping[str, Collection[int]]:
        """What shall be nobody's though members subscribe to it; all else that nobody has, or has to give up, is a fault.

        Args:
            topics: the topics.
            members: the group.
            given: member id -> topic -> the partitions that it gets, by `assign` or, if that failed, since it has them.

        Returns:
            Topic -> partition numbers.
        """
        del topics, members, given
        return {}

    def kept_user_data(
        self, topics: GroupTopics, members: Sequence[ConsumerMember], given: Mapping[str, Owned]
    ) -> Mapping[str, bytes]:
        """What members are told when `assign` failed and they keep what they have; arguments as those of `left_out`.

        Returns:
            Member id -> user data.
        """
        del topics, members, given
        return {}


class StickyAssignor(ConsumerAssignor):
    """Balanced, and as few partitions move as balance allows.

    Balanced is the least sum of squares of the members' sizes, which implies KIP-54's rule; both this and the fewest
    moves are exact, for any subscriptions. A newer claim wins, in any order of the members; of two that are equally new
    neither counts. Racks (KIP-881) decide among what is equal otherwise.

    Source: KIP-54; KIP-341; `StickyAssignor`, whose answers these are where all members subscribe to the same topics and
    no racks are known.
    """

    name = "sticky"

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`."""
        table = GroupTable.of(topics, members)
        return table.answer(assign_stickily(table, topics, table.claims(self.claim)))

    def user_data(self, assignment: Assignment, generation: int) -> bytes | None:
        """Version 1: what it was given, and the generation."""
        check_assignment(assignment)
        if not assignment.partitions:
            return None
        return encode_sticky_user_data(StickyUserData(dict(by_topic(assignment.partitions)), generation))

    def claim(self, member: ConsumerMember) -> Claim:
        """What the user data says; nothing if it cannot be read."""
        check_kind("member", member, ConsumerMember, GroupException)
        if not member.user_data:
            return Claim()
        try:
            said = decode_sticky_user_data(member.user_data)
        except WireFormatException:
            return Claim()
        return Claim(said.owned, -1 if said.generation is None else said.generation)


class CooperativeStickyAssignor(StickyAssignor):
    """The same, without stopping the group: nothing is handed over in the rebalance in which its owner gives it up.

    Such partitions are nobody's until the next rebalance, which the member that gives up triggers at once; after it all
    is as `StickyAssignor` has it. What members own is in their subscriptions: use version 2 or 3, the generation is there.

    Source: KIP-429; `CooperativeStickyAssignor`.
    """

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`."""
        table = GroupTable.of(topics, members)
        claims = table.claims(self.claim)
        owner = assign_stickily(table, topics, claims)
        return table.answer(np.where(claims.touched & (owner != claims.holder), NOBODY, owner))

    def user_data(self, assignment: Assignment, generation: int) -> bytes | None:
        """The generation, for leaders that do not read it from the subscription."""
        del assignment
        return encode_generation(generation)

    def claim(self, member: ConsumerMember) -> Claim:
        """What the subscription says."""
        check_kind("member", member, ConsumerMember, GroupException)
        generation = member.generation
        if generation < 0 and member.user_data:
            try:
                generation = decode_generation(member.user_data)
            except WireFormatException:
                generation = -1
        return Claim(member.owned, generation)


def assign_stickily(table: GroupTable, topics: GroupTopics, claims: Claims) -> Int64Array:
    """(P,) the member that gets each partition."""
    holder = np.where(table.subscribed(claims.holder), claims.holder, NOBODY)
    keep_order = table.partitions * max(len(table.topics), 1) + table.topic_of
    racks = _racks(table, topics)
    if len(table.crowds) == 1 and racks is None:
        crowd = table.crowds[0]
        position = np.full(len(table.members) + 1, NOBODY)
        position[crowd] = np.arange(len(crowd))
        found: Int64Array = crowd[deal_evenly(position[holder], keep_order, len(crowd))]
        return found
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    crowd_of = np.repeat(table.crowd_of_topic, np.diff(table.starts))
    racks = Racks.unknown(len(table), len(table.members)) if racks is None else racks
    return place(Problem(crowd_of, list(table.crowds), holder, keep_order, len(table.members), racks))


def _racks(table: GroupTable, topics: GroupTopics) -> Racks | None:
    """The racks, if they can make a difference."""
    names = sorted({member.rack_id for member in table.members if member.rack_id})
    if not names or not any(topic in topics.racks for topic in table.topics):
        return None
    number = {name: position for position, name in enumerate(names)}
    kinds: dict[frozenset[str], int] = {}
    kind_of = np.empty(len(table), dtype=np.int64)
    for topic, start, end in zip(table.topics, table.starts[:-1].tolist(), table.starts[1:].tolist(), strict=True):
        known = topics.racks.get(topic) or [None] * (end - start)
        # Where replicas are not known, no rack is better than another.
        seen = [frozenset(number.keys() & (names if racks is None else racks)) for racks in known]
        kind_of[start:end] = [kinds.setdefault(racks, len(kinds)) for racks in seen]
    misses = np.ones((len(kinds), len(names) + 1), dtype=np.int64)
    misses[:, len(names)] = 0
    for racks, kind in kinds.items():
        misses[kind, [number[rack] for rack in racks]] = 0
    member = np.array([number[one.rack_id] if one.rack_id else len(names) for one in table.members], dtype=np.int64)
    return Racks(kind_of, member, misses)
