"""KIP-315's assignor: equal partition numbers of all topics share a member, and stay with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from task_assignor.group.consumers.assignors import ConsumerAssignor
from task_assignor.group.consumers.even import deal_evenly
from task_assignor.group.consumers.table import NOBODY, Claim, Claims, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics, Owned, check_owned
from task_assignor.group.errors import GroupException, check_assignment, check_mapping
from task_assignor.group.wire import (
    StreamJoinUserData,
    WireFormatException,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
    encode_stream_join_epoch,
    encode_stream_join_user_data,
)
from task_assignor.sdk import Assignment
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.columns import Int64Array

_LAST_EPOCH = 2**31 - 1


class StickyStreamJoinAssignor(ConsumerAssignor):
    """A partition number goes to one member, in every topic that this member subscribes to.

    As many numbers are given out as the smallest topic has partitions; what a topic has beyond them is nobody's, and so
    is a number in a topic that its member does not subscribe to (KIP-315, Assignment Strategy 1 and 5). Sizes differ by
    one number at most, and as few numbers move as that allows. Of two claims the one with the newer epoch counts; of two
    equally new ones neither. A topic that does not exist is as if it were not subscribed to.

    Source: KIP-315. Its class was called `StickyStreamJoinAssignor`; Kafka ships none.
    """

    name = "stream-join"
    is_join = True

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`."""
        table = GroupTable.of(topics, members)
        said = [_said(member) for member in table.members]
        count = int(np.diff(table.starts).min()) if table.topics else 0
        owner = self._numbers(table, said, count)[np.minimum(table.partitions, count)]
        answer = table.answer(np.where(table.subscribed(owner), owner, NOBODY))
        told = dict.fromkeys(answer, _next_epoch(said))
        return ConsumerAssignment(answer.members, answer.topics, answer.partitions, answer.topic_of, answer.owner, told)

    def user_data(self, assignment: Assignment, generation: int) -> bytes | None:
        """The numbers it was given, and the epoch that came with them."""
        del generation
        check_assignment(assignment)
        try:
            epoch = decode_stream_join_epoch(assignment.user_data)
        except WireFormatException:
            epoch = 0
        numbers = sorted({found.partition for found in assignment.partitions})
        if not numbers and not epoch:
            return None
        return encode_stream_join_user_data(StreamJoinUserData(tuple(numbers), epoch))

    def claim(self, member: ConsumerMember) -> Claim:
        """Its numbers, in the topics that it subscribes to."""
        said = _said(member)
        return Claim(dict.fromkeys(member.topics, said.partitions), said.epoch)

    def left_out(
        self, topics: GroupTopics, members: Sequence[ConsumerMember], given: Mapping[str, Owned]
    ) -> Mapping[str, Collection[int]]:
        """What there is nothing to join with."""
        counts = {name: topics.counts[name] for each in members for name in each.topics if topics.counts.get(name)}
        wanted = numbers_to_join(counts, ((each.topics, given[each.member_id]) for each in members))
        return {name: set(range(count)).difference(wanted[name]) for name, count in counts.items()}

    def kept_user_data(
        self, topics: GroupTopics, members: Sequence[ConsumerMember], given: Mapping[str, Owned]
    ) -> Mapping[str, bytes]:
        """The next epoch: who was not there says less than who was."""
        del topics
        return dict.fromkeys(given, _next_epoch(map(_said, members)))

    @staticmethod
    def _numbers(table: GroupTable, said: list[StreamJoinUserData], count: int) -> Int64Array:
        """(count + 1,) the member of each number; nobody has the last."""
        if not count:
            return np.full(1, NOBODY, dtype=np.int64)
        # A member that reads none of the topics could only keep numbers from being read.
        readers = np.unique(np.concatenate(table.crowds))
        pairs = [
            (number, place)
            for place, member in enumerate(readers.tolist())
            for number in said[member].partitions
            if 0 <= number < count
        ]
        places, members = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        epochs = np.array([said[member].epoch for member in readers.tolist()], dtype=np.int64)
        holder = Claims.of(count, places, members, epochs).holder
        found = readers[deal_evenly(holder, np.arange(count), len(readers))]
        return np.append(found, NOBODY)


def numbers_to_join(
    counts: Mapping[str, int], members: Iterable[tuple[Collection[str], Owned]]
) -> dict[str, Sequence[int]]:
    """What a stream join gives out: no number that some topic does not have, and none in a topic that its member does not read.

    Args:
        counts: topic -> number of partitions, of the topics that members subscribe to.
        members: the topics of each member, and what it was given.

    Returns:
        Topic -> the numbers that somebody must have.
    """
    count = min(counts.values(), default=0)
    others: dict[str, set[int]] = {topic: set() for topic in counts}
    for topics, given in members:
        for topic in counts.keys() - set(topics):
            others[topic].update(*given.values())
    return {topic: [number for number in range(count) if number not in others[topic]] for topic in counts}


def split_numbers(assignment: Mapping[str, Owned]) -> dict[int, tuple[str, ...]]:
    """Partition numbers that several members have, in whatever topics: what a join of these topics does not survive.

    Args:
        assignment: member id -> topic -> partition numbers.

    Returns:
        Number -> its members, both in ascending order; empty if the assignment is co-partitioned.

    Raises:
        GroupException: it is no such mapping.
    """
    check_mapping("assignment", assignment, "member ids to what they own")
    members: dict[int, set[str]] = {}
    for member, owned in assignment.items():
        check_owned(member, owned)
        for numbers in owned.values():
            for number in numbers:
                members.setdefault(number, set()).add(member)
    return {number: tuple(sorted(members[number])) for number in sorted(members) if len(members[number]) > 1}


def _next_epoch(said: Iterable[StreamJoinUserData]) -> bytes:
    epoch = max((each.epoch for each in said), default=0)
    return encode_stream_join_epoch(min(epoch, _LAST_EPOCH - 1) + 1)


def _said(member: ConsumerMember) -> StreamJoinUserData:
    check_kind("member", member, ConsumerMember, GroupException)
    try:
        return decode_stream_join_user_data(member.user_data)
    except WireFormatException:
        return StreamJoinUserData()
