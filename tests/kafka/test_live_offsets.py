"""The state of a live group, of what its members said; here without a group."""

from __future__ import annotations

from itertools import permutations

import pytest

from task_assignor.group.wire import AssignmentInfo, SubscriptionInfo
from task_assignor.sdk import (
    ApplicationStateBuilder,
    Subscription,
    TaskId,
    TaskInfo,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.testing import a_process_id

pytest.importorskip("kafka")
pytest.importorskip("confluent_kafka")

TASK = TaskId(0, 0)


@pytest.mark.parametrize("offsets", [*permutations((7, 40, -3)), (40, -2)])
def test_of_several_consumers_of_a_client_the_best_offsets_count(offsets: tuple[int, ...]) -> None:
    """Those of the last one did, while the leader takes the best: the lag depended on the order of member ids."""
    from task_assignor.kafka.group_description import GroupMember
    from task_assignor.kafka.live_state import _add_client

    info = TaskInfo(
        TASK, True, frozenset({"s"}), [TaskTopicPartition(TopicPartition("log", 0), False, True, frozenset())]
    )
    process = a_process_id(1)
    members = [
        GroupMember(
            f"m-{number}",
            None,
            "c",
            "h",
            Subscription(()),
            None,
            SubscriptionInfo(process, {TASK: offset}),
            AssignmentInfo(standby_tasks={TASK: ()}) if number == 0 else None,
        )
        for number, offset in enumerate(offsets)
    ]
    builder = ApplicationStateBuilder().add_task_info(info, 100)
    _add_client(builder, process, members, {TASK: info}, {TASK: 100})
    (client,) = builder.build().kafka_streams_states(compute_task_lags=True).values()
    assert client.lag_for(TASK) == (0 if -2 in offsets else 60)
