"""The numbers of an assignment are those of its members and topics, whatever their order; what is of another group is refused."""

from __future__ import annotations

from typing import Any

import pytest

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerMember,
    GroupTopics,
    StickyAssignor,
    measure,
)

TOPICS = GroupTopics({"a": 2, "b": 1, "nobody-reads": 3})
STICKY = StickyAssignor()
MEMBERS = [ConsumerMember("x", ["a", "b"]), ConsumerMember("y", ["a", "b"])]


def again(answer: ConsumerAssignment) -> list[ConsumerMember]:
    """The members, which say what they were given."""
    return [
        ConsumerMember(one.member_id, one.topics, STICKY.user_data(answer.to_assignment(one.member_id), 1))
        for one in MEMBERS
    ]


def test_the_order_of_members_and_topics_is_the_assignments_own() -> None:
    """Owners were compared by their places: of an assignor of one's own all partitions were told as moved, or there was an error."""
    answer = STICKY.assign(TOPICS, MEMBERS)
    members = again(answer)
    owner = [1 - place for place in answer.owner.tolist()]
    turned = ConsumerAssignment(["y", "x"], answer.topics, answer.partitions, answer.topic_of, owner)
    with_more = ConsumerAssignment(
        ["y", "x"], ["a", "b", "nobody-reads"], [0, 1, 0, 0, 1, 2], [0, 0, 1, 2, 2, 2], [*owner, -1, -1, -1]
    )
    assert turned == answer == with_more
    found = [measure(STICKY, TOPICS, members, one) for one in (answer, turned, with_more)]
    assert found[0] == found[1] == found[2]
    assert (found[0].assigned, found[0].kept, found[0].moved) == (3, 3, 0)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ({"x": {"a": [0]}}, "must be a ConsumerAssignment, as assign"),
        (ConsumerAssignment(["x", "z"], ["a"], [0], [0], [0]), "exactly the members of the group; different: y, z"),
        (ConsumerAssignment(["x", "y"], ["a"], [2], [0], [0]), "gives a-2, which does not exist"),
        (
            ConsumerAssignment(["x", "y"], ["nobody-reads"], [0], [0], [0]),
            "gives nobody-reads-0, which does not exist, or",
        ),
    ],
)
def test_what_is_no_assignment_of_the_group_is_not_measured(assignment: Any, said: str) -> None:
    with pytest.raises(GroupException, match=said):
        measure(STICKY, TOPICS, MEMBERS, assignment)
