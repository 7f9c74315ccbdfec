"""Faust's assignor: equal partition numbers of topics with equal counts share a member; copies of them wait on others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from task_assignor.group.consumers.assignors import ConsumerAssignor
from task_assignor.group.consumers.copies import ItemClass, spread
from task_assignor.group.consumers.table import NOBODY, Claim, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics, Owned
from task_assignor.group.errors import GroupException, check_assignment
from task_assignor.group.wire import (
    CopartitionedUserData,
    WireFormatException,
    decode_copartitioned_user_data,
    encode_copartitioned_user_data,
)
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.sdk import Assignment
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.text import shown


class CopartitionedAssignor(ConsumerAssignor):
    """Topics with equal partition counts are a group; a partition number of a group is active on one member.

    A group's numbers go to members that subscribe to all its topics. Topics that no member shares are groups of their
    own; where no member subscribes to all topics of a group, topics with the same subscribers are.

    In this order: within each group the members' sizes differ by one at most, so newcomers get their share; over all
    groups they are even too; as few numbers as possible leave a member that has them; what is free goes to a member that
    has a standby of it. Then the standbys: even in the same way, on members that have copies already, and those of one
    member's numbers spread over the others, so that they take over evenly if it leaves.

    Args:
        standbys: copies of each number beside the active one, as far as there are members.

    Raises:
        GroupException: `standbys` is no whole number, or negative.

    Source: Faust's partition assignor (PartitionGrouper, StickyAssignor), without its defects: newer claims count, and
    a newcomer gets its share with standbys too.
    """

    name = "copartitioned"
    is_join = True

    def __init__(self, standbys: int = 1) -> None:
        if type(standbys) is not int or standbys < 0:
            raise GroupException(f"The number of standbys ({shown(standbys)}) must be an int, at least 0.")
        self.standbys = standbys

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`; the standbys are in the `user_data` (`decode_copartitioned_user_data`)."""
        table = GroupTable.of(topics, members)
        said = {member.member_id: _said(member) for member in table.members}
        claims = table.claims(self.claim)
        groups = _groups(table)
        items = [
            item
            for number, group in enumerate(groups)
            for item in _items(number, group, table, claims.holder, list(said.values()))
        ]
        active = _place_active(items, groups, len(table.members))
        standby = _place_standbys(items, active, groups, len(table.members), self.standbys)
        owner = np.full(len(table), NOBODY, dtype=np.int64)
        copies: list[dict[str, list[int]]] = [{} for _ in table.members]
        for item, holder, others in zip(items, active, standby, strict=True):
            for topic in groups[item.group].topics:
                owner[table.starts[topic] + item.number] = holder
                for other in others:
                    copies[other].setdefault(table.topics[topic], []).append(item.number)
        answer = table.answer(owner)
        told = {
            member: encode_copartitioned_user_data(CopartitionedUserData(answer[member], copies[position]))
            for position, member in enumerate(answer)
        }
        return ConsumerAssignment(answer.members, answer.topics, answer.partitions, answer.topic_of, answer.owner, told)

    def user_data(self, assignment: Assignment, generation: int) -> bytes | None:
        """What it was given, standbys too, and the generation."""
        check_assignment(assignment)
        if assignment.user_data is None and not assignment.partitions:
            return None
        try:
            standby = decode_copartitioned_user_data(assignment.user_data).standby
        except WireFormatException:
            standby = {}
        return encode_copartitioned_user_data(
            CopartitionedUserData(dict(by_topic(assignment.partitions)), standby, generation)
        )

    def claim(self, member: ConsumerMember) -> Claim:
        """What it says that it processed."""
        said = _said(member)
        return Claim(said.active, said.generation)

    def kept_user_data(
        self, topics: GroupTopics, members: Sequence[ConsumerMember], given: Mapping[str, Owned]
    ) -> Mapping[str, bytes]:
        """What they get, and the standbys that they have: copies are not thrown away because an answer failed."""
        found = {}
        for member in members:
            mine = given[member.member_id]
            standby = {
                topic: [each for each in numbers if each < topics.counts[topic] and each not in mine.get(topic, ())]
                for topic, numbers in _said(member).standby.items()
                if topic in topics.counts
            }
            found[member.member_id] = encode_copartitioned_user_data(CopartitionedUserData(mine, standby))
        return found


@attrs.frozen(eq=False)
class _Group:
    """Topics whose equal partitions stay together, and the members that may have them."""

    topics: tuple[int, ...]
    members: Int64Array
    count: int


@attrs.frozen
class _Item:
    """A partition number of a group: who has it, who has state of it."""

    group: int
    number: int
    holder: int
    state: frozenset[int]


def _said(member: ConsumerMember) -> CopartitionedUserData:
    check_kind("member", member, ConsumerMember, GroupException)
    try:
        return decode_copartitioned_user_data(member.user_data)
    except WireFormatException:
        return CopartitionedUserData()


def _groups(table: GroupTable) -> list[_Group]:
    counts = np.diff(table.starts)
    # Topics of one count that share a member, also by way of others, are one group.
    parts: list[tuple[int, set[int], list[int]]] = []
    for topic, count in enumerate(counts.tolist()):
        members = set(table.crowds[table.crowd_of_topic[topic]].tolist())
        mine = [part for part in parts if part[0] == count and part[1] & members]
        parts = [part for part in parts if part not in mine]
        parts.append(
            (count, members.union(*(part[1] for part in mine)), sorted([topic, *(t for p in mine for t in p[2])]))
        )
    found = []
    for count, _, topics in parts:
        everybody = [set(table.crowds[table.crowd_of_topic[topic]].tolist()) for topic in topics]
        shared = sorted(set.intersection(*everybody))
        if shared:
            found.append(_Group(tuple(topics), np.array(shared, dtype=np.int64), count))
            continue
        for crowd in sorted({int(table.crowd_of_topic[topic]) for topic in topics}):
            alike = tuple(topic for topic in topics if table.crowd_of_topic[topic] == crowd)
            found.append(_Group(alike, table.crowds[crowd], count))
    return sorted(found, key=lambda group: group.topics)


def _items(
    number: int, group: _Group, table: GroupTable, holder: Int64Array, said: Sequence[CopartitionedUserData]
) -> list[_Item]:
    allowed = set(group.members.tolist())
    state: list[set[int]] = [set() for _ in range(group.count)]
    for member in allowed:
        for topic in group.topics:
            for owned in (said[member].active, said[member].standby):
                for partition in owned.get(table.topics[topic], ()):
                    if 0 <= partition < group.count:
                        state[partition].add(member)
    found = []
    for partition in range(group.count):
        votes: dict[int, int] = {}
        for topic in group.topics:
            member = int(holder[table.starts[topic] + partition])
            if member in allowed:
                votes[member] = votes.get(member, 0) + 1
        # Who has it in most topics; the first by id among equals.
        best = min(votes, key=lambda member: (-votes[member], member), default=NOBODY)
        found.append(_Item(number, partition, best, frozenset(state[partition])))
    return found


def _place_active(items: Sequence[_Item], groups: Sequence[_Group], members: int) -> list[int]:
    """The member of each item."""
    kinds: dict[tuple[int, int, frozenset[int]], list[int]] = {}
    for position, item in enumerate(items):
        kinds.setdefault((item.group, item.holder, item.state), []).append(position)
    classes = []
    for (group, holder, state), positions in kinds.items():
        # First cost: it leaves a member that has it. Second: it comes to one without state.
        held = int(holder != NOBODY)
        costs = dict.fromkeys(sorted(state), (held, 0))
        if held:
            costs[holder] = (0, 0)
        classes.append(ItemClass(group, tuple(positions), costs, (held, 1)))
    placed = _spread(classes, groups, members, [1] * len(groups), len(items))
    return [member for (member,) in placed]


def _place_standbys(
    items: Sequence[_Item], active: Sequence[int], groups: Sequence[_Group], members: int, standbys: int
) -> list[list[int]]:
    """The members of each item's copies."""
    copies = [min(standbys, len(group.members) - 1) for group in groups]
    kinds: dict[tuple[int, int, frozenset[int]], list[int]] = {}
    for position, item in enumerate(items):
        if copies[item.group]:
            kinds.setdefault((item.group, active[position], item.state), []).append(position)
    classes = []
    for (group, owner, state), positions in kinds.items():
        # First cost: there is no copy yet.
        costs = dict.fromkeys(sorted(state - {owner}), (0, 0))
        classes.append(ItemClass(group, tuple(positions), costs, (1, 0), origin=owner))
    return _spread(classes, groups, members, copies, len(items))


def _spread(
    classes: Sequence[ItemClass], groups: Sequence[_Group], members: int, copies: Sequence[int], items: int
) -> list[list[int]]:
    """The members of each item."""
    found: list[list[int]] = [[] for _ in range(items)]
    for one, placed in zip(classes, spread(classes, [group.members for group in groups], members, copies), strict=True):
        for item, chosen in zip(one.items, placed, strict=True):
            found[item] = chosen
    return found
