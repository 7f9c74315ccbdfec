"""What an assignment is worth: how even it is, what moved, what waits for the next rebalance."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np

from task_assignor.group.consumers.assignors import ConsumerAssignor
from task_assignor.group.consumers.table import NOBODY, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics
from task_assignor.group.errors import GroupException
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.text import listed, shown


@attrs.frozen
class AssignmentMetrics:
    """Numbers of an assignment.

    Args:
        partitions: partitions of all subscribed topics.
        assigned: those that a member gets.
        min: fewest partitions of a member.
        max: most partitions of a member.
        sum_of_squares: of the members' sizes; the less, the more even.
        previously_owned: partitions that a member that still subscribes to them had, by the newest claim.
        kept: those that it keeps.
        moved: those that another member gets.
        withheld: partitions that nobody gets this time, because somebody has them.
    """

    partitions: int
    assigned: int
    min: int
    max: int
    sum_of_squares: int
    previously_owned: int
    kept: int
    moved: int
    withheld: int


def measure(
    assignor: ConsumerAssignor,
    topics: GroupTopics,
    members: Iterable[ConsumerMember],
    assignment: ConsumerAssignment,
) -> AssignmentMetrics:
    """The numbers of an assignment, made by any assignor, for members whose claims `assignor` reads.

    Raises:
        GroupException: the assignor is none; a member id is there twice; or the assignment is none, is of other members, or gives a partition that no
            member subscribes to or that does not exist.
    """
    if not isinstance(assignor, ConsumerAssignor):
        raise GroupException(
            f"The assignor ({shown(assignor)}) must be a ConsumerAssignor. Maybe make one: StickyAssignor()."
        )
    table = GroupTable.of(topics, members)
    owner = _owners(table, assignment)
    claims = table.claims(assignor.claim)
    held = table.subscribed(claims.holder) & (claims.holder != NOBODY)
    given = owner != NOBODY
    sizes = np.bincount(owner[given], minlength=len(table.members))
    return AssignmentMetrics(
        len(table),
        int(given.sum()),
        int(sizes.min()) if len(sizes) else 0,
        int(sizes.max()) if len(sizes) else 0,
        int((sizes**2).sum()),
        int(held.sum()),
        int((held & (owner == claims.holder)).sum()),
        int((held & given & (owner != claims.holder)).sum()),
        int((claims.touched & ~given).sum()),
    )


def _owners(table: GroupTable, assignment: object) -> Int64Array:
    """(P,) the member of each partition of the table, whatever the orders of an assignment are.

    Raises:
        GroupException: it is no assignment of this group.
    """
    if not isinstance(assignment, ConsumerAssignment):
        raise GroupException(
            f"The assignment ({shown(assignment)}) must be a ConsumerAssignment, as assign() returns it."
        )
    places = {member.member_id: place for place, member in enumerate(table.members)}
    if strange := sorted(places.keys() ^ assignment.keys()):
        raise GroupException(
            f"The assignment must have exactly the members of the group; different: {listed(strange)}."
        )
    numbers = {topic: number for number, topic in enumerate(table.topics)}
    sizes = np.append(np.diff(table.starts), 0)
    # Whatever is not in the table is a topic without partitions.
    topic = np.array([numbers.get(name, len(numbers)) for name in assignment.topics], dtype=np.int64)[
        assignment.topic_of
    ]
    member = np.array([*(places[name] for name in assignment.members), NOBODY], dtype=np.int64)[assignment.owner]
    is_there = (assignment.partitions >= 0) & (assignment.partitions < sizes[topic])
    if len(wrong := np.flatnonzero(~is_there & (member != NOBODY))):
        row = int(wrong[0])
        name = f"{assignment.topics[assignment.topic_of[row]]}-{assignment.partitions[row]}"
        raise GroupException(
            f"The assignment gives {name}, which does not exist, or to whose topic no member subscribes."
        )
    owner = np.full(len(table), NOBODY, dtype=np.int64)
    owner[(table.starts[topic] + assignment.partitions)[is_there]] = member[is_there]
    return owner
