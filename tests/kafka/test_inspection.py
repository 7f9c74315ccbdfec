"""What members said and were given is read from their bytes; what is wrong with it is said in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor import Assignment, ProcessId, Subscription, TaskId, TopicPartition
from task_assignor.group.wire import (
    AssignmentInfo,
    StickyUserData,
    SubscriptionInfo,
    encode_assignment,
    encode_assignment_info,
    encode_sticky_user_data,
    encode_subscription,
    encode_subscription_info,
)

room = pytest.importorskip("task_assignor.kafka")
describe_member = pytest.importorskip("task_assignor.kafka.group_description").describe_member
violations_of = pytest.importorskip("task_assignor.kafka.inspection").violations_of

CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
PROCESS = ProcessId.parse("00000000-0000-0000-0000-000000000001")


def member(
    name: str,
    *partitions: TopicPartition,
    assignor: str = "range",
    told: bytes | None = None,
    info: bytes | None = None,
) -> object:
    subscription = encode_subscription(Subscription(("clicks",), told))
    return describe_member(
        name, None, "client", "host", assignor, subscription, encode_assignment(Assignment(partitions, info))
    )


def stable(*members: object, assignor: str = "range") -> object:
    return room.GroupDescription("group", "Stable", assignor, tuple(members))


def test_a_complete_assignment_breaks_no_rule() -> None:
    assert violations_of(stable(member("a", CLICKS_0), member("b", CLICKS_1)), {"clicks": 2}) == []


def test_what_the_group_does_not_read_any_more_needs_no_owner() -> None:
    """A topic of which it only has offsets is among the counts, too."""
    assert violations_of(stable(member("a", CLICKS_0, CLICKS_1)), {"clicks": 2, "read-before": 3}) == []


@pytest.mark.parametrize(
    ("partitions_of_a", "partitions_of_b", "said"),
    [
        ([CLICKS_0], [], ["Nobody has clicks-1."]),
        ([CLICKS_0, CLICKS_1], [CLICKS_1], ["clicks-1 belongs to a, b at once."]),
        (
            [CLICKS_0, CLICKS_1],
            [TopicPartition("clicks", 2)],
            ["b has clicks-2, but the topic has 2 partitions."],
        ),
        (
            [CLICKS_0, CLICKS_1],
            [TopicPartition("views", 0)],
            ["b has views-0, a topic that it does not subscribe to."],
        ),
    ],
)
def test_each_broken_rule_is_a_sentence(
    partitions_of_a: list[TopicPartition], partitions_of_b: list[TopicPartition], said: list[str]
) -> None:
    group = stable(member("a", *partitions_of_a), member("b", *partitions_of_b))
    assert violations_of(group, {"clicks": 2}) == said


def test_what_a_stream_join_leaves_out_is_no_violation() -> None:
    """Numbers that a topic does not have, and those in a topic that their member does not read; another one that nobody has is one."""

    def reader(name: str, topics: tuple[str, ...], *numbers: int) -> object:
        given = Assignment(tuple(TopicPartition(topic, number) for topic in topics for number in numbers))
        told = encode_subscription(Subscription(topics))
        return describe_member(name, None, "client", "host", "stream-join", told, encode_assignment(given))

    members = [reader("a", ("clicks", "views"), 0), reader("b", ("clicks",), 1)]
    group = stable(*members, assignor="stream-join")
    assert violations_of(group, {"clicks": 4, "views": 2}) == []
    assert violations_of(group, {"clicks": 4, "views": 3}) == ["Nobody has clicks-2, views-2."]
    assert violations_of(stable(*members), {"clicks": 2, "views": 2}) == ["Nobody has views-1."]


def test_a_streams_member_shows_its_tasks_and_broken_promises() -> None:
    told = encode_subscription_info(SubscriptionInfo(PROCESS, {TaskId(0, 0): -2, TaskId(0, 1): 7}))
    info = AssignmentInfo((TaskId(0, 0),), {TaskId(0, 0): (), TaskId(0, 1): ()}, err_code=3)
    found = member("a", CLICKS_0, CLICKS_1, assignor="stream", told=told, info=encode_assignment_info(info))
    group = stable(found, assignor="stream")
    assert group.is_streams  # type: ignore[attr-defined]
    assert found.active_tasks == (TaskId(0, 0),)  # type: ignore[attr-defined]
    assert found.standby_tasks == (TaskId(0, 0), TaskId(0, 1))  # type: ignore[attr-defined]
    assert violations_of(group, {"clicks": 2}) == [
        "The leader told a the error code 3 instead of an assignment.",
        "a was given 2 partitions but 1 tasks for them.",
        "a has 0_0 as active and as standby.",
    ]


def test_partitions_that_sticky_members_had_come_from_their_user_data() -> None:
    told = encode_sticky_user_data(StickyUserData({"clicks": [1, 0]}, 4))
    found = member("a", assignor="sticky", told=told)
    assert (found.owned, found.generation) == ((CLICKS_0, CLICKS_1), 4)  # type: ignore[attr-defined]


@given(
    metadata=st.binary(max_size=60), assignment=st.binary(max_size=60), assignor=st.sampled_from(["stream", "sticky"])
)
def test_a_strange_member_is_described_and_never_an_error(metadata: bytes, assignment: bytes, assignor: str) -> None:
    found = describe_member("a", None, "c", "h", assignor, metadata, assignment)
    for what, data, value in (
        ("subscription", metadata, found.subscription),
        ("assignment", assignment, found.assignment),
    ):
        is_told = any(f"The {what} of a ({len(data)} bytes) cannot be read" in problem for problem in found.problems)
        assert is_told == (bool(data) and value is None)
    assert violations_of(room.GroupDescription("g", "Stable", assignor, (found,)), {})[: len(found.problems)] == list(
        found.problems
    )
