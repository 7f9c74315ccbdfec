"""Values of the sdk cross processes: pickled and copied they stay equal, and what is read-only stays so."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given

from task_assignor.sdk import (
    REQUIRED,
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    Assignment,
    AssignmentColumns,
    AssignmentConfigs,
    AssignmentError,
    ConfigKey,
    GroupAssignment,
    GroupSubscription,
    HostInfo,
    KafkaStreamsAssignment,
    ProcessId,
    StreamsConfig,
    Subscription,
    TaskAssignment,
    TaskId,
    TaskInfo,
    TaskTopicPartition,
    TopicPartition,
    assignment_to_json,
    state_to_json,
)
from task_assignor.testing import application_states


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


WAYS = [pickled, copy.copy, copy.deepcopy]
CLIENT = ProcessId.parse("80000000-0000-0000-0000-000000000001")
TASK = TaskId(0, 3, "orders")
PARTITION = TaskTopicPartition(TopicPartition("in", 0), True, True, frozenset({"a"}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "value",
    [
        CLIENT,
        TASK,
        TopicPartition("in", 1),
        HostInfo("h", 2),
        PARTITION,
        TaskInfo(TASK, True, {"s"}, [PARTITION]),
        AssignedTask(TASK, AssignedTask.Type.STANDBY),
        KafkaStreamsAssignment.of(CLIENT, [AssignedTask(TASK, AssignedTask.Type.ACTIVE)]).with_followup_rebalance(3),
        AssignmentConfigs(rack_aware_assignment_tags=["zone"]),
        AssignmentError.MISSING_PROCESS_ID,
        Assignment([TopicPartition("in", 0)], b"x"),
        GroupAssignment({"m": Assignment()}),
        Subscription(["in"], b"", [TopicPartition("in", 0)], 4, "a", "i"),
        GroupSubscription({"m": Subscription(["in"])}),
        ConfigKey(name="a", type="int"),
        StreamsConfig({"client.tag.zone": "a", "rack.aware.assignment.tags": "zone", "my.own": 3}),
    ],
    ids=lambda value: type(value).__name__ if not callable(value) else value.__name__,
)
def test_a_copy_is_equal(value: object, way: Callable[[object], object]) -> None:
    assert value == way(value)


def test_required_stays_the_same_thing() -> None:
    assert pickled(ConfigKey(name="a", type="int")).default is REQUIRED


@pytest.mark.parametrize("way", WAYS)
@given(state=application_states(lags_known=False))
def test_a_copied_state_is_equal_and_read_only(state: ApplicationState, way: Callable[[Any], Any]) -> None:
    other = way(state)
    assert state_to_json(state) == state_to_json(other)
    for part in attrs.astuple(other.columns, recurse=False):
        for value in attrs.astuple(part, recurse=False) if attrs.has(type(part)) else [part]:
            assert not isinstance(value, np.ndarray) or not value.flags.writeable
    with pytest.raises(TypeError):
        other.columns.clients.client_tags[0]["zone"] = "x"


@pytest.mark.parametrize("way", WAYS)
def test_views_can_be_copied_too(way: Callable[[Any], Any]) -> None:
    partition = TaskTopicPartition(TopicPartition("in", 0), True, True)
    builder = ApplicationStateBuilder().add_task(TASK, is_stateful=True, topic_partitions=[partition], end_offset_sum=4)
    state = builder.add_client(CLIENT, task_lags={}, consumers={"m": [TASK]}).build()
    client = way(state.kafka_streams_states(compute_task_lags=True)[CLIENT])
    assert client.lag_for(TASK) == 4
    assert dict(way(state.all_tasks)) == dict(state.all_tasks)
    assert dict(way(client.stateful_tasks_to_lag_sums)) == {TASK: 4}
    assignment = TaskAssignment.of_columns(AssignmentColumns.of(state.columns, np.array([0])))
    assert assignment_to_json(way(assignment)) == assignment_to_json(assignment)


def test_values_cannot_be_changed() -> None:
    for value, name in ((CLIENT, "id"), (TASK, "partition"), (PARTITION, "is_source"), (Assignment(), "partitions")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, name, None)
    with pytest.raises(TypeError):
        GroupAssignment({}).group_assignment["m"] = Assignment()  # type: ignore[index]


def test_what_a_group_value_was_made_of_may_change_afterwards() -> None:
    members = {"m": Assignment()}
    group = GroupAssignment(members)
    members.clear()
    assert list(group.group_assignment) == ["m"]
