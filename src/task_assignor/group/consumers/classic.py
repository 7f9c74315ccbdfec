"""The assignors without memory: range and round robin, decision for decision as in Kafka.

Source: `RangeAssignor` (with racks: KIP-881) and `RoundRobinAssignor` of Kafka 4.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from task_assignor.group.consumers.assignors import ConsumerAssignor
from task_assignor.group.consumers.table import NOBODY, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.ids import java_string_key


class RangeAssignor(ConsumerAssignor):
    """Topic by topic, each member a range of neighbours; topics with equal counts and subscribers are cut alike.

    Where racks are known, members get partitions with a replica in their rack first, as far as the sizes of the ranges
    allow; topics with equal counts and subscribers stay together.

    Source: `RangeAssignor`; KIP-881.
    """

    name = "range"

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`."""
        table = GroupTable.of(topics, members)
        # Thousands of topics may have a thousand members each: these are sorted once for all topics of a crowd.
        seats = [crowd[seat_order([table.members[member] for member in crowd.tolist()])] for crowd in table.crowds]
        racks = [[table.members[member].rack_id or None for member in crowd.tolist()] for crowd in seats]
        ranges = [
            _Ranges.of(table, topics, topic, seats[crowd], racks[crowd])
            for topic, crowd in enumerate(table.crowd_of_topic.tolist())
        ]
        if any(each.needs_racks for each in ranges):
            groups: dict[tuple[int, int], list[_Ranges]] = {}
            for each in ranges:
                groups.setdefault((each.crowd, len(each.owner)), []).append(each)
            for together in groups.values():
                if len(together) > 1:
                    _match_together(together)
                elif together[0].needs_racks:
                    together[0].match_racks()
        for each in ranges:
            each.fill()
        return table.answer(np.concatenate([np.zeros(0, dtype=np.int64), *(each.owner for each in ranges)]))


class RoundRobinAssignor(ConsumerAssignor):
    """All partitions in turn to all members, past those who do not subscribe to the topic.

    Source: `RoundRobinAssignor`.
    """

    name = "roundrobin"

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        """See `ConsumerAssignor`."""
        table = GroupTable.of(topics, members)
        order = seat_order(table.members)
        seat = np.empty(len(order), dtype=np.int64)
        seat[order] = np.arange(len(order))
        seats = [np.sort(seat[crowd]) for crowd in table.crowds]
        owner = np.empty(len(table), dtype=np.int64)
        at = 0
        # Within a topic the turn goes round its subscribers; where it begins, the topic before decides.
        for crowd, start, end in zip(
            table.crowd_of_topic.tolist(), table.starts[:-1].tolist(), table.starts[1:].tolist(), strict=True
        ):
            mine = seats[crowd]
            turns = (int(np.searchsorted(mine, at)) + np.arange(end - start)) % len(mine)
            owner[start:end] = order[mine[turns]]
            at = (int(mine[turns[-1]]) + 1) % len(order)
        return table.answer(owner)


def seat_order(members: Sequence[ConsumerMember]) -> Int64Array:
    """(M,) the members as Kafka sorts them: static ones first, by their instance ids, then the others by member id."""

    def key(position: int) -> tuple[bool, bytes]:
        member = members[position]
        name = member.group_instance_id
        return name is None, java_string_key(member.member_id if name is None else name)

    return np.array(sorted(range(len(members)), key=key), dtype=np.int64)


@attrs.define(eq=False)
class _Ranges:
    """One topic on its way to its members."""

    crowd: int
    members: Int64Array
    racks: list[str | None]
    replicas: list[frozenset[str]]
    owner: Int64Array
    each: int
    more: int
    given: Int64Array

    @classmethod
    def of(
        cls, table: GroupTable, topics: GroupTopics, topic: int, members: Int64Array, racks: list[str | None]
    ) -> _Ranges:
        """Nothing is given out yet; members, and their racks, are in the order of Kafka."""
        count = int(table.starts[topic + 1] - table.starts[topic])
        known = topics.racks.get(table.topics[topic]) or [None] * count
        each, more = divmod(count, len(members))
        return cls(
            int(table.crowd_of_topic[topic]),
            members,
            racks,
            [frozenset(replicas or ()) for replicas in known],
            np.full(count, NOBODY, dtype=np.int64),
            each,
            more,
            np.zeros(len(members), dtype=np.int64),
        )

    @property
    def needs_racks(self) -> bool:
        """The racks of partitions differ, and some member is in one of them."""
        everywhere = frozenset().union(*self.replicas)
        mine = frozenset(rack for rack in self.racks if rack is not None)
        return bool(mine & everywhere) and any(racks != everywhere for racks in self.replicas)

    def room(self, member: int) -> int:
        """How many more the member may have now."""
        return max(self.each + (self.more > 0) - int(self.given[member]), 0)

    def give(self, member: int, partitions: Sequence[int]) -> None:
        """The member has these partitions."""
        self.owner[partitions] = self.members[member]
        self.given[member] += len(partitions)
        if self.given[member] > self.each:
            self.more -= 1

    def match_racks(self) -> None:
        """Each member takes what has a replica in its rack, as far as it has room; without a rack anything."""
        held: dict[str, list[int]] = {}
        for partition, racks in enumerate(self.replicas):
            for replica in racks:
                held.setdefault(replica, []).append(partition)
        matching: dict[str | None, Int64Array] = {rack: np.array(places) for rack, places in held.items()}
        matching[None] = np.arange(len(self.owner))
        for member, rack in enumerate(self.racks):
            mine = matching.get(rack, matching[None][:0])
            found = mine[self.owner[mine] == NOBODY][: self.room(member)]
            if len(found):
                self.give(member, found.tolist())

    def fill(self) -> None:
        """Each member takes the first partitions that are left."""
        # Who has no more than the others must have may have one more, as long as there are such.
        may_have_more = self.given <= self.each
        counts = np.maximum(self.each - self.given, 0) + (may_have_more & (np.cumsum(may_have_more) <= self.more))
        self.owner[self.owner == NOBODY] = np.repeat(self.members, counts)


def _match_together(topics: list[_Ranges]) -> None:
    """Equal partitions of all topics to the first member that matches them all."""
    # All are given together, so a member has as much room in each of them; and who has none gets none again.
    first = topics[0]
    seats: dict[str | None, deque[int]] = {}
    for member, rack in enumerate(first.racks):
        seats.setdefault(rack, deque()).append(member)
    for partition in range(len(first.owner)):
        racks = frozenset.intersection(*(each.replicas[partition] for each in topics))
        foremost = []
        for mine in (seats[rack] for rack in (None, *racks) if rack in seats):
            while mine and not first.room(mine[0]):
                mine.popleft()
            foremost += [mine[0]] if mine else []
        if foremost:
            for each in topics:
                each.give(min(foremost), [partition])
