"""The report: every violation, worst first, one sentence each, also of what Kafka lets pass."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    AssignedTask,
    AssignmentColumns,
    AssignmentError,
    KafkaStreamsAssignment,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.testing import (
    a_client,
    a_process_id,
    a_state,
    a_stateful_task,
    a_stateless_task,
    an_assignment,
    application_states,
    stateful_tasks,
    task_assignments,
)
from task_assignor.testing.specs import TaskSpec
from task_assignor.validation import (
    Severity,
    ValidationReport,
    Violation,
    ViolationKind,
    report_violations,
    validate_task_assignment,
)

T0, T1, T2 = (TaskId(0, partition) for partition in range(3))
A, B, C = (a_process_id(number) for number in (1, 2, 3))
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY
STATE = a_state(["0_0", a_stateless_task("1_0")], 2)
GOOD = an_assignment(STATE, active={1: ["0_0"], 2: ["1_0"]})


def found(report: ValidationReport) -> list[tuple[str, str, str | None, int | None]]:
    """(severity, kind, task, number of the client) of every violation."""
    return [
        (
            violation.severity.value,
            violation.kind.value,
            None if violation.task is None else str(violation.task),
            None if violation.process_id is None else violation.process_id.id.int,
        )
        for violation in report.violations
    ]


def placement(*clients: tuple[int, dict[str, AssignedTask]]) -> TaskAssignment:
    return TaskAssignment(KafkaStreamsAssignment.of(a_process_id(n), tasks.values()) for n, tasks in clients)


def test_a_right_answer_has_no_findings() -> None:
    report = report_violations(STATE, GOOD)
    assert report == ValidationReport((), AssignmentError.NONE)
    assert report.is_valid
    assert str(report) == "The assignment is valid: no findings. Kafka says NONE."


class Unprintable:
    """An object of somebody else's."""

    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("answer", [None, {}, [], GOOD.assignment, "0_0", 5, Unprintable()])
def test_what_is_no_assignment_is_one_error(answer: TaskAssignment) -> None:
    report = report_violations(STATE, answer)
    assert found(report) == [("error", "NOT_A_TASK_ASSIGNMENT", None, None)]
    assert report.kafka_error is None
    assert str(report).startswith("The assignment is not valid: 1 error. Kafka cannot read it.\n  error: The answer (")


def test_something_else_as_state_is_raised() -> None:
    with pytest.raises(StateException, match="must be an ApplicationState"):
        report_violations(GOOD, GOOD)  # type: ignore[arg-type]


def test_a_task_that_nobody_owns_is_an_error_that_kafka_lets_pass() -> None:
    report = report_violations(STATE, an_assignment(STATE, active={1: ["0_0"]}))
    assert found(report) == [("error", "TASK_WITHOUT_ACTIVE", "1_0", None)]
    assert report.kafka_error is AssignmentError.NONE


def test_a_task_that_only_an_unknown_client_owns_is_owned_by_nobody() -> None:
    report = report_violations(STATE, an_assignment(STATE, active={1: ["0_0"], 9: ["1_0"]}))
    assert found(report) == [
        ("error", "UNKNOWN_PROCESS_ID", None, 9),
        ("error", "TASK_WITHOUT_ACTIVE", "1_0", None),
    ]


def test_each_owner_too_many_is_named_with_the_first_one() -> None:
    state = a_state(["0_0"], 3)
    report = report_violations(state, an_assignment(state, active={3: ["0_0"], 2: ["0_0"], 1: ["0_0"]}))
    kind = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    assert found(report) == [("error", kind, "0_0", 2), ("error", kind, "0_0", 3)]
    assert report.violations[0].message == f"Task 0_0 is active on client {B}, but also on client {A}."


def test_unknown_and_missing_clients_and_unknown_tasks_are_all_listed() -> None:
    answer = placement((9, {"": AssignedTask(TaskId(7, 7), STANDBY)}), (1, {"": AssignedTask(TaskId(0, 9), ACTIVE)}))
    report = report_violations(a_state([], 2), answer)
    assert found(report) == [
        ("error", "UNKNOWN_TASK_ID", "0_9", 1),
        ("error", "UNKNOWN_TASK_ID", "7_7", 9),
        ("error", "MISSING_PROCESS_ID", None, 2),
        ("error", "UNKNOWN_PROCESS_ID", None, 9),
    ]
    assert report.kafka_error is AssignmentError.UNKNOWN_TASK_ID


def test_unknown_tasks_come_in_task_order_then_client_order() -> None:
    unknown = [TaskId(8, number) for number in (5, 3, 4, 1, 2)]
    state = a_state([], 2)
    report = report_violations(state, an_assignment(state, standby={2: unknown, 1: unknown[::2]}))
    assert [(task, client) for _, _, task, client in found(report)] == [
        ("8_1", 2),
        ("8_2", 1),
        ("8_2", 2),
        ("8_3", 2),
        ("8_4", 1),
        ("8_4", 2),
        ("8_5", 1),
        ("8_5", 2),
    ]


def test_a_task_without_owner_is_not_also_one_with_too_few_standbys() -> None:
    state = a_state(["0_0"], 3, num_standby_replicas=2)
    assert found(report_violations(state, an_assignment(state))) == [("error", "TASK_WITHOUT_ACTIVE", "0_0", None)]


def test_a_client_that_is_listed_twice_is_an_error_that_kafka_lets_pass() -> None:
    """Kafka would take the last one, and so lose 0_0; here it also makes the task active and standby on one client."""
    state = a_state(["0_0"], 1)
    task = AssignedTask(T0, ACTIVE)
    report = report_violations(state, placement((1, {"": task}), (1, {"": AssignedTask(T0, STANDBY)})))
    assert found(report) == [
        ("error", "DUPLICATE_PROCESS_ID", None, 1),
        ("error", "ACTIVE_AND_STANDBY_ON_ONE_CLIENT", "0_0", 1),
    ]
    assert report.kafka_error is AssignmentError.NONE


def test_a_client_that_is_listed_twice_with_the_same_tasks() -> None:
    state = a_state(["0_0", "0_1"], [1, 2], num_standby_replicas=1)
    one = {"0": AssignedTask(T0, ACTIVE), "1": AssignedTask(T1, STANDBY)}
    other = {"0": AssignedTask(T1, ACTIVE), "1": AssignedTask(T0, STANDBY)}
    report = report_violations(state, placement((1, one), (2, other), (1, one)))
    assert found(report) == [
        ("error", "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES", "0_0", 1),
        ("error", "DUPLICATE_PROCESS_ID", None, 1),
        ("error", "STANDBY_ASSIGNED_MULTIPLE_TIMES", "0_1", 1),
    ]


def test_columns_with_a_task_in_both_roles_on_a_client_are_an_error() -> None:
    state = a_state(["0_0"], 1)
    columns = AssignmentColumns(state.columns, [0, 0], [0, 0], [0, 1], np.full(1, -(2**63)))
    report = report_violations(state, TaskAssignment.of_columns(columns))
    assert found(report) == [("error", "ACTIVE_AND_STANDBY_ON_ONE_CLIENT", "0_0", 1)]


def test_standbys_where_none_can_be() -> None:
    unlogged = TaskSpec(task_id=T1, is_stateful=True, state_store_names=frozenset({"store"}))
    state = a_state([unlogged, a_stateless_task("1_0"), "2_0"], 2)
    answer = an_assignment(state, active={1: ["0_1", "1_0"]}, standby={2: ["0_1", "1_0", "2_0"]})
    assert found(report_violations(state, answer)) == [
        ("error", "INVALID_STANDBY_TASK", "1_0", 2),
        ("error", "TASK_WITHOUT_ACTIVE", "2_0", None),
        ("warning", "STANDBY_WITHOUT_ACTIVE", "2_0", None),
        ("warning", "STANDBY_WITHOUT_CHANGELOG", "0_1", 2),
        ("info", "TOO_MANY_STANDBYS", "2_0", None),
    ]


def test_too_few_standbys_are_a_warning_where_more_clients_could_take_one() -> None:
    state = a_state(["0_0"], 3, num_standby_replicas=2)
    one = an_assignment(state, active={1: ["0_0"]}, standby={2: ["0_0"]})
    both = an_assignment(state, active={1: ["0_0"]}, standby={2: ["0_0"], 3: ["0_0"]})
    report = report_violations(state, one)
    assert found(report) == [("warning", "TOO_FEW_STANDBYS", "0_0", None)]
    assert report.is_valid
    assert report.warnings == report.violations
    assert "has 1 standby; 2 are configured, and the clients allow for 2." in report.violations[0].message
    assert report_violations(state, both).violations == ()


def test_fewer_standbys_than_configured_are_fine_where_there_are_no_more_clients() -> None:
    state = a_state(["0_0"], 2, num_standby_replicas=5)
    assert report_violations(state, an_assignment(state, active={1: ["0_0"]}, standby={2: ["0_0"]})).violations == ()


def test_tasks_without_changelog_need_no_standbys() -> None:
    unlogged = TaskSpec(task_id=T1, is_stateful=True, state_store_names=frozenset({"store"}))
    state = a_state([unlogged, a_stateless_task("1_0")], 2, num_standby_replicas=1)
    assert report_violations(state, an_assignment(state, active={1: ["0_1", "1_0"]})).violations == ()


def test_warm_ups_within_their_number_are_only_worth_knowing() -> None:
    state = a_state(["0_0", "0_1"], 2, max_warmup_replicas=2)
    answer = an_assignment(state, active={1: ["0_0", "0_1"]}, standby={2: ["0_0", "0_1"]})
    report = report_violations(state, answer)
    assert found(report) == [("info", "TOO_MANY_STANDBYS", f"0_{n}", None) for n in (0, 1)]
    assert "the rest can be warm-ups" in report.violations[0].message


def test_more_standbys_than_warm_ups_could_explain_are_a_warning() -> None:
    state = a_state(["0_0", "0_1"], 2, max_warmup_replicas=1)
    answer = an_assignment(state, active={1: ["0_0", "0_1"]}, standby={2: ["0_0", "0_1"]})
    report = report_violations(state, answer)
    assert found(report) == [("warning", "TOO_MANY_STANDBYS", f"0_{n}", None) for n in (0, 1)]
    assert "in all there are 2 too many, while max.warmup.replicas is 1" in report.violations[0].message


def test_the_text_shows_some_of_each_kind_and_counts_the_rest() -> None:
    state = a_state(stateful_tasks(0, 5), 1)
    text = report_violations(state, an_assignment(state)).to_text(limit=2)
    nowhere = "is active on no client of the application; nobody would read its partitions. [TASK_WITHOUT_ACTIVE]"
    assert text.splitlines() == [
        "The assignment is not valid: 5 errors. Kafka says NONE.",
        f"  error: Task 0_0 {nowhere}",
        f"  error: Task 0_1 {nowhere}",
        "  error: 3 more of these [TASK_WITHOUT_ACTIVE]",
    ]


def test_violations_are_counted_by_kind() -> None:
    state = a_state(["0_0", "0_1", "0_2"], 2)
    report = report_violations(state, an_assignment(state, active={9: ["0_0"]}))
    assert dict(report.counts) == {ViolationKind.UNKNOWN_PROCESS_ID: 1, ViolationKind.TASK_WITHOUT_ACTIVE: 3}


@given(st.data())
def test_kafkas_error_is_among_the_violations_and_equals_a_plain_reading_of_kafkas_rules(data: st.DataObject) -> None:
    state = data.draw(application_states(max_tasks=6, max_clients=4))
    assignment = data.draw(task_assignments(state))

    report = report_violations(state, assignment)

    assert report.kafka_error is validate_task_assignment(state, assignment)
    kinds = {violation.kind.value for violation in report.errors}
    if report.kafka_error is not AssignmentError.NONE:
        assert report.kafka_error is not None
        assert report.kafka_error.value in kinds
    assert report.kafka_error is plain_kafka(state.all_tasks, state.columns.clients.process_ids, assignment)


def plain_kafka(tasks, clients, assignment: TaskAssignment) -> AssignmentError:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Kafka's rules, word by word."""
    active = set()
    for each in assignment:
        for task in each.tasks.values():
            if task.id not in tasks:
                return AssignmentError.UNKNOWN_TASK_ID
            if task.type is ACTIVE:
                if task.id in active:
                    return AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
                active.add(task.id)
    standbys = [task.id for each in assignment for task in each.tasks.values() if task.type is STANDBY]
    if any(not tasks[task_id].is_stateful for task_id in standbys):
        return AssignmentError.INVALID_STANDBY_TASK
    listed = {each.process_id for each in assignment}
    if set(clients) - listed:
        return AssignmentError.MISSING_PROCESS_ID
    return AssignmentError.UNKNOWN_PROCESS_ID if listed - set(clients) else AssignmentError.NONE


@given(st.data())
def test_the_order_of_the_list_plays_no_part(data: st.DataObject) -> None:
    state = data.draw(application_states(max_tasks=6, max_clients=4))
    assignment = data.draw(task_assignments(state))
    other = TaskAssignment(data.draw(st.permutations(assignment.assignment)))
    assert report_violations(state, assignment).violations == report_violations(state, other).violations


@given(st.data())
def test_the_order_is_severity_kind_task_client(data: st.DataObject) -> None:
    state = data.draw(application_states(max_tasks=6, max_clients=4))
    violations = report_violations(state, data.draw(task_assignments(state))).violations

    def key(violation: Violation) -> tuple[object, ...]:
        task, client = violation.task, violation.process_id
        return (
            list(Severity).index(violation.severity),
            list(ViolationKind).index(violation.kind),
            () if task is None else task.sort_key,
            () if client is None else client.signed_halves,
        )

    assert list(violations) == sorted(violations, key=key)


@given(st.data())
def test_every_sentence_names_what_it_is_about_and_ends_with_a_full_stop(data: st.DataObject) -> None:
    state = data.draw(application_states(max_tasks=6, max_clients=4))
    for violation in report_violations(state, data.draw(task_assignments(state))).violations:
        assert re.fullmatch(r"(Task|Client) \S+ .+\.", violation.message)
        assert violation.task is None or str(violation.task) in violation.message
        assert violation.process_id is None or str(violation.process_id) in violation.message


@pytest.mark.thorough
def test_two_hundred_thousand_violations_take_seconds_not_minutes() -> None:
    """Processor time, so that a busy machine does not decide; usually about one second."""
    state = a_state([a_stateful_task(T0)], [a_client(1)])
    size = 200_000
    tasks = [AssignedTask(TaskId(5, number), ACTIVE) for number in range(size)]
    assignment = TaskAssignment([KafkaStreamsAssignment.of(A, tasks)])
    begin = time.process_time()
    assert len(report_violations(state, assignment).violations) == size + 1
    assert time.process_time() - begin < 10
