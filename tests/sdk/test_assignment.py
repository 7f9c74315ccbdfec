"""What an assignor returns: the builder of one client's tasks, its copy-on-write over columns, the whole."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
    assignment_to_json,
)
from task_assignor.testing import application_states

FIRST, SECOND = (ProcessId.parse(f"00000000-0000-0000-0000-00000000000{digit}") for digit in (1, 2))
T0, T1 = TaskId(0, 0), TaskId(0, 1)
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


@pytest.fixture
def columns() -> AssignmentColumns:
    """0_0 is active on the first and standby on the second client, 0_1 active on the second; a deadline for the first."""
    builder = ApplicationStateBuilder().add_task(T0, is_stateful=True).add_task(T1, is_stateful=True)
    state = builder.add_client(FIRST).add_client(SECOND).build()
    return AssignmentColumns.of(
        state.columns, np.array([0, 1]), np.array([0]), np.array([1]), deadline_ms=np.array([70, MISSING])
    )


def test_tasks_are_sorted_and_read_only() -> None:
    assignment = KafkaStreamsAssignment.of(FIRST, [AssignedTask(T1, STANDBY), AssignedTask(T0, ACTIVE)])
    assert list(assignment.tasks.items()) == [(T0, AssignedTask(T0, ACTIVE)), (T1, AssignedTask(T1, STANDBY))]
    with pytest.raises(TypeError):
        assignment.tasks[T0] = AssignedTask(T0, STANDBY)  # type: ignore[index]


def test_assigning_again_replaces_the_role_and_removing_does_not_ask_for_it() -> None:
    assignment = KafkaStreamsAssignment.of(FIRST, [AssignedTask(T0, ACTIVE)])
    assignment.assign_task(AssignedTask(T0, STANDBY))
    assert assignment.tasks == {T0: AssignedTask(T0, STANDBY)}
    assignment.remove_task(AssignedTask(T0, ACTIVE))
    assignment.remove_task(AssignedTask(T1, ACTIVE))
    assert assignment.tasks == {}


def test_a_task_cannot_have_two_roles_on_one_client() -> None:
    tasks = [AssignedTask(T0, ACTIVE), AssignedTask(T0, STANDBY)]
    with pytest.raises(StateException, match=f"0_0 cannot be active and standby on one client .{FIRST}"):
        KafkaStreamsAssignment.of(FIRST, tasks)
    assert len(KafkaStreamsAssignment.of(FIRST, [tasks[0], tasks[0]]).tasks) == 1


def test_what_was_read_does_not_change_with_the_assignment() -> None:
    assignment = KafkaStreamsAssignment.of(FIRST)
    before = assignment.tasks
    assignment.assign_task(AssignedTask(T0, ACTIVE))
    assert before == {}
    before = assignment.tasks
    assignment.remove_task(AssignedTask(T0, ACTIVE))
    assert (list(before), list(assignment.tasks)) == ([T0], [])


def test_what_is_gone_through_does_not_change_on_the_way() -> None:
    assignment = KafkaStreamsAssignment.of(FIRST, [AssignedTask(T1, STANDBY), AssignedTask(T0, ACTIVE)])
    met = []
    for task in assignment.tasks.values():
        met.append(task.id)
        assignment.remove_task(task)
    assert (met, dict(assignment.tasks)) == ([T0, T1], {})


def test_who_asks_for_the_number_of_tasks_after_each_change_copies_and_sorts_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least loaded client for each task, as it is written down first: 100 000 tasks took minutes."""
    monkeypatch.setattr(TaskId, "sort_key", property(lambda task: pytest.fail(f"{task} is put in order")))
    tasks = [AssignedTask(TaskId(0, number), ACTIVE) for number in range(10_000)]
    assignment = KafkaStreamsAssignment.of(FIRST, tasks)
    tracemalloc.start()
    try:
        for number, task in enumerate(tasks[:100]):
            assert (len(assignment.tasks), task.id in assignment.tasks) == (10_000 - number, True)
            assignment.remove_task(task)
        assert assignment.tasks.get(tasks[0].id) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_task_assignments_with_equal_content_are_equal(columns: AssignmentColumns) -> None:
    views = TaskAssignment.of_columns(columns)
    objects = [KafkaStreamsAssignment.of(one.process_id, one.tasks.values()) for one in views]
    objects[0] = objects[0].with_followup_rebalance(70)
    assert views == TaskAssignment(objects)
    objects[0].remove_task(AssignedTask(T0, ACTIVE))
    assert views != TaskAssignment(objects)
    assert views != list(views)


def test_owners_must_be_given_for_all_tasks_and_standbys_in_pairs(columns: AssignmentColumns) -> None:
    state = columns.state
    for owners, tasks, clients in (
        ([0], None, None),
        ([0, 2], None, None),
        ([0, -2], None, None),
        ([0.0, 1.0], None, None),
        ([0, 2**40], None, None),
        ([0, 1], [0], None),
        ([0, 1], [0], [1, 1]),
        ([0, 1], [2], [1]),
    ):
        with pytest.raises(StateException):
            AssignmentColumns.of(state, np.array(owners), tasks, clients)  # type: ignore[arg-type]


def test_a_copy_with_a_deadline_is_independent_in_both_directions() -> None:
    """Kafka's copy is a view that cannot be changed, and shows later changes of the old one."""
    first = KafkaStreamsAssignment.of(FIRST, [AssignedTask(T0, ACTIVE)])
    second = first.with_followup_rebalance(5)
    first.assign_task(AssignedTask(T1, ACTIVE))
    second.remove_task(AssignedTask(T0, ACTIVE))
    assert [list(first.tasks), list(second.tasks)] == [[T0, T1], []]
    assert [first.followup_rebalance_deadline_ms, second.followup_rebalance_deadline_ms] == [None, 5]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_are_independent(make: Callable[[KafkaStreamsAssignment], KafkaStreamsAssignment]) -> None:
    first = KafkaStreamsAssignment.of(FIRST, [AssignedTask(T0, ACTIVE)])
    second = make(first)
    assert first == second
    second.assign_task(AssignedTask(T1, ACTIVE))
    assert list(first.tasks) == [T0]


@pytest.mark.parametrize("deadline", [1.5, True, "5", None, 2**63, -(2**63)])
def test_a_deadline_is_a_whole_number_of_milliseconds(deadline: object) -> None:
    with pytest.raises(StateException, match="followup rebalance deadline"):
        KafkaStreamsAssignment.of(FIRST).with_followup_rebalance(deadline)  # type: ignore[arg-type]


def test_a_deadline_of_numpy_is_one() -> None:
    """An assignor that works on columns gets one when it adds a column's number to the time."""
    deadline = KafkaStreamsAssignment.of(FIRST).with_followup_rebalance(70 + np.int64(5)).followup_rebalance_deadline_ms  # type: ignore[arg-type]
    assert (deadline, type(deadline)) == (75, int)


@pytest.mark.parametrize("arguments", [(), (FIRST,), (FIRST, [AssignedTask(T0, ACTIVE)]), (FIRST, {T0: ACTIVE}, None)])
def test_who_calls_the_class_is_told_how_it_is_made(arguments: tuple[object, ...]) -> None:
    """It took what it was given, and the leader of the group failed when it looked at the answer."""
    with pytest.raises(StateException, match=r"KafkaStreamsAssignment\.of\(process_id, assigned_tasks\)"):
        KafkaStreamsAssignment(*arguments)


def test_wrong_kinds_of_things_are_named() -> None:
    for build in (
        lambda: KafkaStreamsAssignment.of(str(FIRST)),  # type: ignore[arg-type]
        lambda: KafkaStreamsAssignment.of(FIRST, [T0]),  # type: ignore[list-item]
        lambda: KafkaStreamsAssignment.of(FIRST).assign_task(T0),  # type: ignore[arg-type]
        lambda: KafkaStreamsAssignment.of(FIRST).remove_task(T0),  # type: ignore[arg-type]
        lambda: TaskAssignment([T0]),  # type: ignore[list-item]
        lambda: TaskAssignment(None),  # type: ignore[arg-type]
        lambda: TaskAssignment(KafkaStreamsAssignment.of(FIRST)),  # type: ignore[arg-type]
    ):
        with pytest.raises(StateException):
            build()
    for wrong in ("0_0", None):
        with pytest.raises(StateException, match="AssignedTask"):
            AssignedTask(wrong, ACTIVE)  # type: ignore[arg-type]
        with pytest.raises(StateException, match="AssignedTask"):
            AssignedTask(T0, wrong)  # type: ignore[arg-type]


def test_assigned_tasks_are_values() -> None:
    assert AssignedTask(T0, ACTIVE) == AssignedTask(TaskId(0, 0), ACTIVE) != AssignedTask(T0, STANDBY)
    assert len({AssignedTask(T0, ACTIVE), AssignedTask(T0, ACTIVE)}) == 1
    assert str(AssignedTask(T0, STANDBY)) == "STANDBY 0_0"


def test_columns_are_seen_as_objects(columns: AssignmentColumns) -> None:
    first, second = columns.assignments()
    assert first == KafkaStreamsAssignment.of(FIRST, [AssignedTask(T0, ACTIVE)]).with_followup_rebalance(70)
    assert second == KafkaStreamsAssignment.of(SECOND, [AssignedTask(T0, STANDBY), AssignedTask(T1, ACTIVE)])


def test_rows_in_any_order_are_seen_sorted(columns: AssignmentColumns) -> None:
    """Of a task that is twice on a client, which is wrong, the last row counts."""
    rows = AssignmentColumns(columns.state, [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 1, 1], [MISSING, MISSING])
    first, second = TaskAssignment.of_columns(rows).assignment
    assert list(first.tasks.values()) == [AssignedTask(T0, STANDBY), AssignedTask(T1, ACTIVE)]
    first.assign_task(AssignedTask(T0, ACTIVE))
    assert list(first.tasks.items()) == [(T0, AssignedTask(T0, ACTIVE)), (T1, AssignedTask(T1, ACTIVE))]
    assert list(second.tasks.values()) == [AssignedTask(T1, STANDBY)]


def test_the_columns_stay_at_hand_until_something_changes(columns: AssignmentColumns) -> None:
    assignment = TaskAssignment.of_columns(columns)
    at_hand = [assignment.columns]
    assert len(assignment.assignment[0].tasks) == 1
    at_hand.append(assignment.columns)
    assignment.assignment[0].assign_task(AssignedTask(T1, STANDBY))
    assert [columns, columns, None] == [*at_hand, assignment.columns]
    assert columns.task[columns.rows_of(0)].tolist() == [0]
    assert list(assignment.assignment[0].tasks) == [T0, T1]


def test_other_lists_of_the_same_views_are_not_taken_for_the_columns(columns: AssignmentColumns) -> None:
    first, second = columns.assignments()
    assert TaskAssignment([first, second]).columns is columns
    for other in ([], [first], [second, first], [first, second, second], [first, second.with_followup_rebalance(1)]):
        assert TaskAssignment(other).columns is None


def test_a_change_of_one_view_does_not_show_in_another(columns: AssignmentColumns) -> None:
    one, other = columns.assignments()[1], columns.assignments()[1]
    one.remove_task(AssignedTask(T0, STANDBY))
    later = other.with_followup_rebalance(1)
    other.assign_task(AssignedTask(T0, ACTIVE))
    assert [list(view.tasks) for view in (one, other, later)] == [[T1], [T0, T1], [T0, T1]]
    assert later.tasks[T0].type is STANDBY


def test_an_assignment_keeps_the_order_and_takes_mappings() -> None:
    first, second = KafkaStreamsAssignment.of(FIRST), KafkaStreamsAssignment.of(SECOND)
    assert TaskAssignment([second, first]).assignment == (second, first)
    assert TaskAssignment({SECOND: second, FIRST: first}).assignment == (second, first)
    assert list(TaskAssignment(iter([first]))) == [first]


@given(application_states(), st.data())
def test_both_faces_say_the_same(state: ApplicationState, data: st.DataObject) -> None:
    clients, tasks = len(state.columns.clients), len(state.columns.tasks)
    owners = [data.draw(st.integers(-1, clients - 1)) for _ in range(tasks)]
    copies = [(task, client) for task in range(tasks) for client in range(clients) if client != owners[task]]
    chosen = data.draw(st.lists(st.sampled_from(copies), unique=True) if copies else st.just([]))
    columns = AssignmentColumns.of(
        state.columns, np.array(owners, dtype=np.int32), *np.array(chosen, dtype=np.int32).reshape(-1, 2).T
    )
    views = TaskAssignment.of_columns(columns)
    objects = TaskAssignment(KafkaStreamsAssignment.of(view.process_id, view.tasks.values()) for view in views)
    assert views.columns is columns
    assert objects.columns is None
    assert assignment_to_json(views) == assignment_to_json(objects)
    assert tuple(views) == tuple(objects)
    process_ids = state.columns.clients.process_ids
    assert {task: process_ids[owner] for task, owner in zip(state.all_tasks, owners, strict=True) if owner >= 0} == {
        task.id: view.process_id for view in views for task in view.tasks.values() if task.type is ACTIVE
    }


def test_a_mapping_has_each_assignment_under_its_client() -> None:
    one, two = (KafkaStreamsAssignment.of(client) for client in (FIRST, SECOND))
    with pytest.raises(StateException, match=f"of client {SECOND} must be this ProcessId, but is .*{FIRST}"):
        TaskAssignment({FIRST: two, SECOND: one})
