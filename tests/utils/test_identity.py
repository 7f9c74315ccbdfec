"""Everything stays where it was, as in Kafka: also what no longer exists, and what two clients had."""

from __future__ import annotations

import pytest

from task_assignor.sdk import (
    ApplicationStateBuilder,
    AssignmentError,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.utils import identity_assignment
from task_assignor.validation import validate_task_assignment
from tests.vectors import Vector, placements_of, vectors

A, B = (ProcessId.parse(f"00000000-0000-0000-0000-00000000000{digit}") for digit in "12")
T0, T1, GONE = TaskId(0, 0), TaskId(0, 1), TaskId(7, 7)


@pytest.mark.parametrize("vector", vectors("identity"), ids=lambda vector: vector.id)
def test_equals_the_jvm(vector: Vector) -> None:
    if vector.throws:
        with pytest.raises(StateException, match="as active and as standby"):
            identity_assignment(vector.state)
    else:
        assert vector.expected["assignment"] == placements_of(identity_assignment(vector.state))


def test_without_vanished_tasks_nothing_is_copied() -> None:
    builder = ApplicationStateBuilder().add_task(T0).add_task(T1)
    state = builder.add_client(A, previous_active_tasks=[T0, T1]).add_client(B, previous_standby_tasks=[T1]).build()

    columns = identity_assignment(state).columns

    assert columns is not None
    assert columns.task is state.columns.previous.task


def test_a_new_task_stays_without_owner() -> None:
    state = ApplicationStateBuilder().add_task(T0).add_task(T1).add_client(A, previous_active_tasks=[T0]).build()
    assert list(identity_assignment(state)[A].tasks) == [T0]


def test_a_vanished_task_stays_and_validation_says_so() -> None:
    builder = ApplicationStateBuilder().add_task(T0).add_client(A, previous_active_tasks=[GONE, T0]).add_client(B)
    state = builder.build()

    result = identity_assignment(state)

    assert list(result[A].tasks) == [T0, GONE]
    assert result.columns is None
    assert AssignmentError.UNKNOWN_TASK_ID is validate_task_assignment(state, TaskAssignment(result))


@pytest.mark.parametrize("task", [T1, GONE])
def test_a_task_in_both_roles_is_named_with_its_client(task: TaskId) -> None:
    builder = ApplicationStateBuilder().add_task(T0).add_task(T1).add_client(A)
    builder.add_client(B, previous_active_tasks=[task], previous_standby_tasks=[T0, task])
    with pytest.raises(StateException, match=f"{B} had task {task} as active and as standby"):
        identity_assignment(builder.build())


def test_of_several_tasks_in_both_roles_the_smallest_is_named() -> None:
    both = [GONE, T1, TaskId(0, 5)]
    builder = ApplicationStateBuilder().add_task(T1)
    builder.add_client(A, previous_active_tasks=both, previous_standby_tasks=both)
    with pytest.raises(StateException, match=f"task {T1} as active"):
        identity_assignment(builder.build())
