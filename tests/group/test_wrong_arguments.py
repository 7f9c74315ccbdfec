"""Arguments of another kind: groups are led by hosts of others, and an error names what it was given."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.group import (
    GroupClient,
    GroupConsumer,
    GroupException,
    GroupLeader,
    StreamsLeader,
    StreamsMember,
    SubTopologyShape,
    followup_ms,
    make_tasks,
    plan_topics,
    spread_over_consumers,
    tell_error,
)
from task_assignor.group.consumers import (
    ConsumerMember,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    GroupTopics,
    RangeAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
    measure,
    split_numbers,
)
from task_assignor.group.wire import AssignmentInfo, SubscriptionInfo, WireFormatException
from task_assignor.sdk import AssignmentConfigs, ProcessId, TaskId

SHAPE = SubTopologyShape("join", ("t",), {"s": "c"})
TASK = TaskId(0, 0)
CONFIGS = AssignmentConfigs()
ANY: Any = None
SENT = SubscriptionInfo(ProcessId(uuid.UUID(int=1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_tasks(ANY, {"t": 1}), r"The sub-topologies \(None\) must be a list of SubTopologyShape"),
        (lambda: make_tasks([SHAPE], ANY), r"The partitions \(None\) must be a mapping from topics to their numbers"),
        (lambda: make_tasks([SHAPE], {"t": 1}, ["a"]), r"The racks \(\['a'\]\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: make_tasks([SHAPE], {"t": 1}, {"t": 1}), r"The racks of the topic 't' \(1\) must be a list"),  # type: ignore[dict-item]
        (lambda: make_tasks([SHAPE], {"t": 1}, {"t": ["a"]}), r"The racks of the topic 't' \(\['a'\]\) must be"),  # type: ignore[list-item]
        (lambda: plan_topics(ANY, {"t": 1}), "must be a list of SubTopologyShape"),
        (lambda: plan_topics([SHAPE], ANY), r"The partitions \(None\) must be a mapping"),
        (lambda: GroupTopics({"t": 1}, ["a"]), r"The racks \(\['a'\]\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: GroupTopics({"t": 1}, {"t": 1}), r"The racks of the topic 't' \(1\) must be a list"),  # type: ignore[dict-item]
        (
            lambda: spread_over_consumers([], [TASK], [], frozenset()),
            "A client without consumers cannot be given tasks",
        ),
        (
            lambda: spread_over_consumers(ANY, [], [], frozenset()),
            r"The consumers \(None\) must be a list of GroupConsumer",
        ),
        (lambda: spread_over_consumers([GroupConsumer("m")], ["0_0"], [], []), r"The active tasks \(\['0_0'\]\)"),  # type: ignore[list-item]
        (lambda: spread_over_consumers([GroupConsumer("m")], [], [], ["0_0"]), r"The stateful tasks \(\['0_0'\]\)"),  # type: ignore[list-item]
        (lambda: tell_error(["m"], 1, "why"), r"The members \(\['m'\]\) must be a list of StreamsMember"),  # type: ignore[list-item]
        (
            lambda: GroupLeader(StickyTaskAssignor(), CONFIGS, {}),  # type: ignore[arg-type]
            "The assignor_factory .* must make an assignor when it is",
        ),
        (lambda: GroupLeader(StickyTaskAssignor, ANY, {}), r"The configs \(None\) must be AssignmentConfigs"),
        (lambda: GroupLeader(StickyTaskAssignor, CONFIGS, ANY), r"The tasks \(None\) must be a mapping from task ids"),
        (
            lambda: StreamsLeader(StickyTaskAssignor(), CONFIGS, [SHAPE]),  # type: ignore[arg-type]
            "The assignor_factory .* must make an assignor",
        ),
        (
            lambda: measure(StickyAssignor, GroupTopics({"t": 1}), [ConsumerMember("m", ("t",))], ANY),  # type: ignore[arg-type]
            "The assignor .* must be a ConsumerAssignor. Maybe make one",
        ),
        # They were taken for the partitions 0 and 1, for 1, and for none.
        (
            lambda: ConsumerMember("m", ("t",), owned={"t": "01"}),  # type: ignore[dict-item]
            r"member 'm' owns of the topic 't' \('01'\) must be a list of ints",
        ),
        (
            lambda: ConsumerMember("m", ("t",), owned={"t": [1.5]}),  # type: ignore[list-item]
            r"of the topic 't' \(\[1.5\]\) must be a list of ints",
        ),
        # Python had no room for them, and did not say of what.
        (
            lambda: ConsumerMember("m", ("t",), owned={"t": [0, 2**63]}),
            r"of the topic 't' \(\[0, 9223372036854775808\]\) must be a list of ints of 32 bits",
        ),
        (
            lambda: ConsumerMember("m", ("t",), generation=2**63),
            r"The generation of the member 'm' \(9223372036854775808\) must be an int of 32 bits; -1",
        ),
        (
            lambda: ConsumerMember("m", ("t",), owned={b"t": [1]}),  # type: ignore[dict-item]
            r"A topic of the partitions that the member 'm' owns \(b't'\)",
        ),
        (
            lambda: ConsumerMember("m", ("t",), owned=ANY),
            r"partitions that the member 'm' owns \(None\) must be a mapping",
        ),
        (
            lambda: ConsumerMember("m", ("t",), generation=ANY),
            r"The generation of the member 'm' \(None\) must be an int",
        ),
        (lambda: ConsumerMember("m", ("t",), rack_id=5), r"The rack_id of the member 'm' \(5\) must be a string"),  # type: ignore[arg-type]
        (lambda: ConsumerMember("m", ("t",), group_instance_id=5), r"The group_instance_id of the member 'm' \(5\)"),  # type: ignore[arg-type]
        (
            lambda: StickyAssignor().assign(GroupTopics({"t": 1}), [ConsumerMember("m", ("t",))]).to_assignment("n"),
            r"The member 'n' is not in the group; there are m\.",
        ),
        (lambda: GroupClient("x", [GroupConsumer("m")]), r"The process_id of a client \('x'\) must be a ProcessId"),  # type: ignore[arg-type]
        (
            lambda: GroupLeader(StickyTaskAssignor, CONFIGS, {}).rebalance(ANY, {}, 0),
            r"The clients \(None\) must be a list",
        ),
        (
            lambda: GroupLeader(StickyTaskAssignor, CONFIGS, {}).rebalance([], ["o"], 0),  # type: ignore[arg-type]
            r"The end_offset_sums .* a mapping from",
        ),
        *(
            (lambda assignor=assignor: assignor().claim(ANY), r"^The member \(None\) must be a ConsumerMember\.$")
            for assignor in (
                RangeAssignor,
                StickyAssignor,
                CooperativeStickyAssignor,
                StickyStreamJoinAssignor,
                CopartitionedAssignor,
            )
        ),
        (lambda: followup_ms(ANY, SENT), r"^The AssignmentInfo that was given \(None\) must be an AssignmentInfo"),
        (lambda: followup_ms(AssignmentInfo(), ANY), r"^The SubscriptionInfo that was sent \(None\) must be"),
        (lambda: split_numbers(ANY), r"The assignment \(None\) must be a mapping from member ids"),
        (lambda: split_numbers({"m": ["t"]}), r"partitions that the member 'm' owns \(\['t'\]\) must be a mapping"),  # type: ignore[dict-item]
    ],
)
def test_an_argument_of_another_kind_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(GroupException, match=message):
        call()


def test_sub_topologies_and_tasks_may_be_given_once() -> None:
    """They were gone after a first look, and the answer was empty."""
    assert list(make_tasks((shape for shape in [SHAPE]), {"t": 2})) == [TASK, TaskId(0, 1)]  # type: ignore[arg-type]
    assert plan_topics((shape for shape in [SHAPE]), {"t": 2}).create == {"c": 2}  # type: ignore[arg-type]
    spread = spread_over_consumers([GroupConsumer("m")], iter([TASK]), iter([]), iter([TASK]))
    assert spread["m"].active == (TASK,)


def test_a_sub_topology_that_writes_a_repartition_topic_and_reads_nothing_is_named() -> None:
    """It was a maximum of nothing."""
    writes = SubTopologyShape("first", (), repartition_sinks=("through",))
    reads = SubTopologyShape("second", (), repartition_sources=("through",))
    with pytest.raises(GroupException, match="The sub-topology 'first' reads no topic"):
        plan_topics([writes, reads], {})


def test_what_a_member_owns_may_be_numbers_of_numpy() -> None:
    assert ConsumerMember("m", ("t",), owned={"t": np.array([0, 1])}).member_id == "m"  # type: ignore[dict-item]


def test_a_streams_member_is_made_of_a_subscription() -> None:
    with pytest.raises(WireFormatException, match=r"The subscription \(None\) must be a Subscription"):
        StreamsMember.of("m", ANY)


@pytest.mark.parametrize(
    "make",
    [
        lambda given: GroupConsumer("m", given),
        lambda given: GroupClient(SENT.process_id, [GroupConsumer("m")], given),
        lambda given: AssignmentConfigs(rack_aware_assignment_tags=given),
    ],
    ids=["consumer", "client", "tags"],
)
def test_what_fails_in_a_generator_is_not_said_of_it(make: Callable[[Any], object]) -> None:
    """It was called no list, and the line that failed was not named."""
    with pytest.raises(TypeError, match=r"^int\(\) argument must be"):
        make(int(number) for number in [ANY])
