"""Kafka's answer: the first error in Kafka's order, equal to the JVM on recorded scenarios, fast on columns."""

from __future__ import annotations

import time
import uuid

import numpy as np
import pytest

from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentColumns,
    AssignmentError,
    ClientColumns,
    KafkaStreamsAssignment,
    LagColumns,
    PreviousColumns,
    ProcessId,
    SnapshotException,
    StateColumns,
    StateException,
    TaskAssignment,
    TaskColumns,
    TaskId,
)
from task_assignor.sdk.assignment import TaskType
from task_assignor.validation import validate_task_assignment
from tests.vectors import Vector, placements_of, vectors

A, B, UNKNOWN = (ProcessId(uuid.UUID(int=number)) for number in (1, 2, 99))
T0, T1, STATELESS, GONE = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(0, 2)
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


@pytest.fixture(scope="module")
def state() -> ApplicationState:
    builder = ApplicationStateBuilder().add_task(STATELESS)
    for task in (T0, T1):
        builder.add_task(task, is_stateful=True)
    return builder.add_client(A).add_client(B).build()


def answer(*clients: tuple[ProcessId, dict[TaskId, TaskType]]) -> TaskAssignment:
    return TaskAssignment(
        KafkaStreamsAssignment.of(process_id, [AssignedTask(task, role) for task, role in tasks.items()])
        for process_id, tasks in clients
    )


@pytest.mark.parametrize("vector", vectors("validate"), ids=lambda vector: vector.id)
def test_equals_the_jvm(vector: Vector) -> None:
    if vector.throws:
        with pytest.raises(SnapshotException, match="cannot be active and standby on one client"):
            placements_of(vector.assignment)
        return
    allowed = vector.json.get("errorsSeen") or [vector.expected["error"]]
    error = validate_task_assignment(vector.state, vector.assignment)
    assert error.value in allowed


def test_a_second_owner_before_an_unknown_task_wins(state: ApplicationState) -> None:
    assignment = answer((A, {T0: ACTIVE}), (B, {T0: ACTIVE}), (A, {GONE: ACTIVE}))
    assert AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES is validate_task_assignment(state, assignment)


def test_an_unknown_task_before_a_second_owner_wins(state: ApplicationState) -> None:
    assignment = answer((A, {T0: ACTIVE, GONE: STANDBY}), (B, {T0: ACTIVE}))
    assert AssignmentError.UNKNOWN_TASK_ID is validate_task_assignment(state, assignment)


@pytest.mark.parametrize(
    ("twice", "unknown", "expected"),
    [
        # Buckets 15 and 0 of 16: the hash code of a task id is not its order.
        (T0, TaskId(9, 8), AssignmentError.UNKNOWN_TASK_ID),
        # Buckets 14 and 13.
        (T1, TaskId(0, 2), AssignmentError.UNKNOWN_TASK_ID),
        # Buckets 15 and 14.
        (T0, TaskId(0, 17), AssignmentError.UNKNOWN_TASK_ID),
        # Buckets 0 and 13.
        (STATELESS, TaskId(0, 2), AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        # Both in bucket 15: by task id.
        (T0, TaskId(0, 16), AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        # A name counts too: bucket 0, as that of STATELESS, and later in order.
        (STATELESS, TaskId(0, 0, "a"), AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        (T0, TaskId(0, 0, "a"), AssignmentError.UNKNOWN_TASK_ID),
    ],
)
def test_within_a_client_the_order_is_that_of_kafkas_hash_map(
    state: ApplicationState, twice: TaskId, unknown: TaskId, expected: AssignmentError
) -> None:
    answered = answer((A, {twice: ACTIVE}), (B, {twice: ACTIVE, unknown: ACTIVE}))
    assert expected is validate_task_assignment(state, answered)


def test_the_number_of_buckets_counts(state: ApplicationState) -> None:
    """12 tasks have 16 buckets, 0_16 and 0_0 share one; 13 have 32, in which 0_16 comes first (15 before 31)."""
    second = {T0: ACTIVE, TaskId(0, 16): ACTIVE}
    others = [TaskId(1, partition) for partition in range(11)]
    builder = ApplicationStateBuilder().add_task(T0).add_client(A).add_client(B)
    for task in others:
        builder.add_task(task)
    found = []
    for count in (10, 11):
        clients = [(A, {T0: ACTIVE}), (B, {**second, **dict.fromkeys(others[:count], ACTIVE)})]
        found.append(validate_task_assignment(builder.build(), answer(*clients)))
    assert found == [AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES, AssignmentError.UNKNOWN_TASK_ID]


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ([(A, {STATELESS: STANDBY})], AssignmentError.INVALID_STANDBY_TASK),
        ([(A, {}), (UNKNOWN, {})], AssignmentError.MISSING_PROCESS_ID),
        ([(A, {}), (A, {})], AssignmentError.MISSING_PROCESS_ID),
        ([(A, {}), (B, {}), (UNKNOWN, {})], AssignmentError.UNKNOWN_PROCESS_ID),
        ([], AssignmentError.MISSING_PROCESS_ID),
    ],
)
def test_the_order_of_the_other_checks(
    state: ApplicationState,
    clients: list[tuple[ProcessId, dict[TaskId, TaskType]]],
    expected: AssignmentError,
) -> None:
    assert expected is validate_task_assignment(state, answer(*clients))


@pytest.mark.parametrize(
    "clients",
    [
        [(A, {}), (B, {})],
        [(A, {T0: ACTIVE}), (B, {}), (B, {})],
        [(A, {T0: ACTIVE}), (B, {}), (A, {T0: STANDBY})],
        [(A, {T0: STANDBY}), (B, {T0: STANDBY})],
    ],
    ids=["nobody owns a task", "a client twice", "both roles on a client", "standbys without active"],
)
def test_what_kafka_lets_pass(state: ApplicationState, clients: list[tuple[ProcessId, dict[TaskId, TaskType]]]) -> None:
    assert AssignmentError.NONE is validate_task_assignment(state, answer(*clients))


def test_columns_views_and_objects_are_judged_alike(state: ApplicationState) -> None:
    """T0 has two owners in the columns; views that were given a deadline or another order are still views."""
    columns = AssignmentColumns(state.columns, [0, 1, 1], [0, 0, 1], [0, 0, 1], np.full(2, -(2**63)))
    first, second = columns.assignments()
    as_objects = [KafkaStreamsAssignment.of(each.process_id, each.tasks.values()) for each in (first, second)]
    expected = AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
    for assignment in (
        TaskAssignment.of_columns(columns),
        TaskAssignment([second, first.with_followup_rebalance(1)]),
        TaskAssignment([first, as_objects[1]]),
        TaskAssignment(as_objects),
    ):
        assert expected is validate_task_assignment(state, assignment)


def test_columns_of_another_state_are_read_by_their_ids(state: ApplicationState) -> None:
    other = ApplicationStateBuilder().add_task(T1).add_task(STATELESS).add_client(A).add_client(B).build()
    assignment = TaskAssignment.of_columns(AssignmentColumns.of(other.columns, np.array([0, 1])))

    assert AssignmentError.NONE is validate_task_assignment(state, assignment)
    assert AssignmentError.UNKNOWN_TASK_ID is validate_task_assignment(
        other, TaskAssignment.of_columns(AssignmentColumns.of(state.columns, np.array([0, 1, 1])))
    )


@pytest.mark.parametrize(
    ("answered", "advice"),
    [
        (None, "return statement"),
        ({}, "wrap it"),
        ([KafkaStreamsAssignment.of(A)], "wrap it"),
        ("x" * 10**7, "wrap it"),
    ],
)
def test_what_is_no_assignment_is_refused_with_advice(
    state: ApplicationState, answered: TaskAssignment, advice: str
) -> None:
    with pytest.raises(StateException, match=f"must be a TaskAssignment.*{advice}") as caught:
        validate_task_assignment(state, answered)
    assert len(str(caught.value)) < 200


def test_swapped_arguments_are_noticed(state: ApplicationState) -> None:
    with pytest.raises(StateException, match="must be an ApplicationState"):
        validate_task_assignment(answer(), state)  # type: ignore[arg-type]


def big_state(tasks: int, clients: int) -> ApplicationState:
    numbers = np.arange(tasks)
    none = np.zeros(tasks, dtype=np.int32)
    return ApplicationState(
        StateColumns(
            TaskColumns(
                topology=none - 1,
                subtopology=none,
                partition=numbers,
                is_stateful=np.ones(tasks, dtype=np.bool_),
                store_set=none,
                end_offset_sum=none,
                partition_offsets=np.zeros(tasks + 1, dtype=np.int64),
                partition_topic=none[:0],
                partition_number=none[:0],
                partition_is_source=none[:0].astype(np.bool_),
                partition_is_changelog=none[:0].astype(np.bool_),
                partition_rack_set=none[:0],
            ),
            ClientColumns(
                process_ids=[ProcessId(uuid.UUID(int=number)) for number in range(clients)],
                num_processing_threads=np.ones(clients, dtype=np.int64),
                rack=np.full(clients, -1),
            ),
            PreviousColumns.empty(),
            LagColumns.empty(clients),
        )
    )


def test_a_million_tasks_on_columns_take_less_than_a_second() -> None:
    """Processor time, so that a busy machine does not decide; usually some hundredths of a second."""
    state = big_state(1_000_000, 1_000)
    assignment = TaskAssignment.of_columns(
        AssignmentColumns.of(state.columns, np.arange(1_000_000) % 1_000, np.arange(1_000_000), np.full(1_000_000, 5))
    )
    begin = time.process_time()
    assert AssignmentError.NONE is validate_task_assignment(state, assignment)
    assert time.process_time() - begin < 1


def test_time_grows_with_the_size_of_a_wrong_answer_not_with_its_square() -> None:
    state = big_state(10, 2)

    def seconds(size: int) -> float:
        tasks = [AssignedTask(TaskId(5, number), ACTIVE) for number in range(size)]
        entries = [KafkaStreamsAssignment.of(A, tasks)] + [KafkaStreamsAssignment.of(UNKNOWN)] * size
        assignment = TaskAssignment(entries)
        begin = time.process_time()
        assert AssignmentError.UNKNOWN_TASK_ID is validate_task_assignment(state, assignment)
        return time.process_time() - begin

    # A square would be 64 times; the margin is for noise.
    assert min(seconds(32_000) for _ in range(3)) < 32 * max(min(seconds(4_000) for _ in range(3)), 1e-3)
