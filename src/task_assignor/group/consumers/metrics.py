"""What an assignment is worth: how even it is, what moved, what waits for the next rebalance."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np

from task_assignor.group.consumers.assignors import ConsumerAssignor
from task_assignor.group.consumers.table import NOBODY, GroupTable
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics


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
        GroupException: a member id is there twice.
    """
    table = GroupTable.of(topics, members)
    claims = table.claims(assignor.claim)
    held = table.subscribed(claims.holder) & (claims.holder != NOBODY)
    given = assignment.owner != NOBODY
    sizes = np.bincount(assignment.owner[given], minlength=len(table.members))
    return AssignmentMetrics(
        len(table),
        int(given.sum()),
        int(sizes.min()) if len(sizes) else 0,
        int(sizes.max()) if len(sizes) else 0,
        int((sizes**2).sum()),
        int(held.sum()),
        int((held & (assignment.owner == claims.holder)).sum()),
        int((held & given & (assignment.owner != claims.holder)).sum()),
        int((claims.touched & ~given).sum()),
    )
