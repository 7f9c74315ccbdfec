"""States and assignments as JSON: what is read, what is written, and that the two agree."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentColumns,
    AssignmentConfigs,
    HostInfo,
    ProcessId,
    TaskAssignment,
    TaskId,
    TopicPartition,
    assignment_from_json,
    assignment_to_json,
    state_from_json,
    state_to_json,
)
from task_assignor.testing import application_states, shuffled, task_assignments
from tests.sdk.documents import FIRST, SECOND, document, normal, without
from tests.vectors import FOLDER, Vector, vectors

GROUPS = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


@pytest.mark.parametrize("group", GROUPS)
def test_the_states_of_the_vectors_are_snapshots_as_they_stand(group: str) -> None:
    """Read and written they say the same, but for the order and the members that are always written."""
    for vector in vectors(group):
        assert normal(vector.json["state"]) == normal(state_to_json(vector.state)), vector.id


@pytest.mark.parametrize("group", GROUPS)
def test_the_assignments_of_the_vectors_are_read_and_written(group: str) -> None:
    for vector in vectors(group):
        for placements in placements_of(vector):
            assert placements == assignment_to_json(assignment_from_json(placements)), vector.id


def placements_of(vector: Vector) -> list[list[dict[str, Any]]]:
    """Answers, which are sorted as we sort."""
    return [expected["assignment"] for expected in [vector.json["expected"] or {}] if "assignment" in expected]


def test_everything_in_a_document_arrives() -> None:
    state = state_from_json(json.dumps(document()))
    assert state.now_ms == 1_700_000_000_000
    assert state.assignment_configs == AssignmentConfigs(
        acceptable_recovery_lag=2**63 - 1,
        max_warmup_replicas=3,
        num_standby_replicas=1,
        probing_rebalance_interval_ms=60_000,
        rack_aware_assignment_tags=["zone"],
        rack_aware_traffic_cost=10,
        rack_aware_assignment_strategy="min_traffic",
    )
    assert [str(task) for task in state.all_tasks] == ["0_0", "0_1", "orders__1_0"]
    task = state.all_tasks[TaskId(0, 0)]
    assert (task.is_stateful, task.state_store_names) == (True, frozenset({"a", "b"}))
    assert [
        (TopicPartition("in", 0), True, False, frozenset({"r1", "r2"})),
        (TopicPartition("changelog", 0), False, True, None),
    ] == [(one.topic_partition, one.is_source, one.is_changelog, one.rack_ids) for one in task.topic_partitions]
    assert state.all_tasks[TaskId(0, 1)].topic_partitions[0].rack_ids == frozenset()
    first, second = state.kafka_streams_states(compute_task_lags=True).values()
    assert (first.process_id, first.num_processing_threads) == (ProcessId.parse(FIRST), 2)
    assert (first.host_info, first.rack_id, dict(first.client_tags)) == (
        HostInfo("example", 8080),
        "r1",
        {"zone": "z1"},
    )
    assert first.previous_active_tasks == (TaskId(0, 0), TaskId(7, 7))
    assert first.previous_standby_tasks == (TaskId(0, 1),)
    assert first.consumer_client_ids == ("m1", "m2")
    assert dict(first.stateful_tasks_to_lag_sums) == {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 3}
    assert dict(second.stateful_tasks_to_lag_sums) == {TaskId(0, 0): UNKNOWN_OFFSET_SUM, TaskId(0, 1): 500}
    assert second.prev_tasks_by_lag("m3") == (TaskId(0, 1),)
    assert (second.host_info, second.rack_id) == (None, None)
    assert state.columns.clients.generation.tolist() == [4, -(2**63)]


def test_a_sorted_document_is_written_as_it_was_read() -> None:
    assert document() == state_to_json(state_from_json(document()), id="small")


@pytest.mark.parametrize("form", [json.dumps, lambda value: json.dumps(value).encode(), lambda value: value])
def test_text_bytes_and_parsed_documents_are_the_same(form: Any) -> None:
    assert state_to_json(state_from_json(form(document()))) == state_to_json(state_from_json(document()))
    placements = [{"processId": FIRST, "activeTasks": ["0_0"], "standbyTasks": []}]
    assert placements == assignment_to_json(assignment_from_json(form(placements)))


def test_a_mark_before_the_text_does_no_harm() -> None:
    for text in ("\ufeff" + json.dumps(document()), b"\xef\xbb\xbf" + json.dumps(document()).encode()):
        assert len(state_from_json(text).all_tasks) == 3


def test_what_may_be_left_out() -> None:
    state = state_from_json(
        {
            "tasks": [{"id": "0_0", "isStateful": False, "topicPartitions": []}],
            "clients": [{"processId": FIRST, "numProcessingThreads": 1}],
        }
    )
    assert (state.now_ms, state.assignment_configs) == (0, AssignmentConfigs())
    client = state.kafka_streams_states(compute_task_lags=False)[ProcessId.parse(FIRST)]
    assert (client.previous_active_tasks, client.previous_standby_tasks, client.consumer_client_ids) == ((), (), ())
    assert not state.columns.lags.is_computed.any()


@pytest.mark.parametrize(
    "place",
    [
        ("formatVersion",),
        ("id",),
        ("nowMs",),
        ("configs",),
        *((("configs", name)) for name in document()["configs"]),
        ("tasks", 0, "stateStoreNames"),
        ("tasks", 0, "topicPartitions", 0, "rackIds"),
        ("tasks", 2, "topicPartitions", 0, "rackIds"),
        *(
            ("clients", 0, name)
            for name in document()["clients"][0]
            if name not in ("processId", "numProcessingThreads")
        ),
    ],
)
def test_every_member_that_may_be_left_out_is_left_out(place: tuple[str | int, ...]) -> None:
    assert isinstance(state_from_json(without(place)), ApplicationState)


def test_null_is_the_same_as_left_out_where_a_value_may_be_unknown() -> None:
    for place in (("tasks", 0, "endOffsetSum"), ("clients", 1, "generation"), ("id",)):
        whole = document()
        inner: Any = whole
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = None
        assert state_to_json(state_from_json(whole)) == state_to_json(state_from_json(document()))


def test_task_ids_are_read_as_numbers() -> None:
    """As Java reads them: 00_1 is 0_1."""
    whole = document()
    whole["clients"][0]["previousStandbyTasks"] = ["00_01"]
    whole["clients"][0]["taskLags"] = {"0_00": -2, "0_1": 3}
    assert state_to_json(state_from_json(whole)) == state_to_json(state_from_json(document()))


@given(application_states(lags_known=False), st.integers(0, 3))
def test_a_state_is_written_and_read_back(state: ApplicationState, seed: int) -> None:
    written = state_to_json(shuffled(state, seed))
    text = json.dumps(written)
    again = state_from_json(text)
    assert written == state_to_json(again)
    assert json.loads(text) == written
    # The numbering of dictionaries of names (topics, rack sets, ...) is nobody's business; everything else is the same.
    for part, names in (
        ("tasks", ("topology", "subtopology", "partition", "is_stateful", "end_offset_sum", "partition_offsets")),
        ("clients", ("num_processing_threads", "rack", "generation")),
        ("previous", ("client", "role", "task", "consumer", "consumer_task")),
        ("lags", ("client", "task", "lag", "is_computed")),
    ):
        one, two = getattr(state.columns, part), getattr(again.columns, part)
        for name in names:
            assert np.array_equal(getattr(one, name), getattr(two, name)), name


@given(st.data())
def test_an_assignment_is_written_and_read_back(data: st.DataObject) -> None:
    state = data.draw(application_states())
    assignment = data.draw(task_assignments(state))
    written = assignment_to_json(assignment)
    assert written == json.loads(json.dumps(written))
    assert written == assignment_to_json(assignment_from_json(written))
    assert written == assignment_to_json(assignment_from_json({"formatVersion": 1, "id": 3, "assignment": written}))
    assert sorted(assignment.assignment, key=lambda one: one.process_id) == list(assignment_from_json(written))


def test_an_assignment_need_not_be_right() -> None:
    """Whether it is, validation says: unknown clients and tasks, a client twice, a task with two owners."""
    placements = [
        {"processId": FIRST, "activeTasks": ["9_9"], "standbyTasks": [], "followupRebalanceDeadlineMs": -1},
        {"processId": FIRST, "activeTasks": [], "standbyTasks": ["9_9"]},
        {"processId": SECOND, "activeTasks": ["9_9"], "standbyTasks": []},
    ]
    assert placements == assignment_to_json(assignment_from_json(placements))


def test_a_deadline_of_columns_is_written() -> None:
    state = state_from_json(document())
    columns = AssignmentColumns.of(state.columns, np.array([0, 1, 1]), deadline_ms=np.array([5, -(2**63)]))
    assert assignment_to_json(TaskAssignment.of_columns(columns)) == [
        {
            "processId": FIRST,
            "activeTasks": ["0_0"],
            "standbyTasks": [],
            "followupRebalanceDeadlineMs": 5,
        },
        {"processId": SECOND, "activeTasks": ["0_1", "orders__1_0"], "standbyTasks": []},
    ]
