"""Something else than what is wanted is named as that, not as an attribute that `NoneType` does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor, StreamJoinTaskAssignor
from task_assignor.sdk import (
    Assignment,
    AssignmentColumns,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    StreamsConfig,
    StreamsException,
    Subscription,
    TaskAssignment,
    TaskId,
    iter_states,
    read_assignment,
    read_state,
    write_state,
)
from task_assignor.testing import (
    ClientSpec,
    TaskSpec,
    a_process_id,
    a_state,
    an_assignment,
    random_assignment,
    random_state,
    random_states,
    run_random_story,
    shuffled,
    specs_of,
    state_of,
)
from task_assignor.utils import (
    AssignmentResult,
    Placement,
    RackAwareOptimizationParams,
    optimize_actives,
    place_actives,
    place_joined_actives,
    place_standbys,
    rack_problem,
    rack_rows,
)
from task_assignor.validation import measure


@pytest.mark.parametrize("given", [None, 1, []], ids=["None", "int", "list"])
@pytest.mark.parametrize(
    ("call", "named"),
    [
        (read_state, "path"),
        (read_assignment, "path"),
        (lambda path: next(iter_states(path)), "path"),
        (lambda path: write_state(a_state(["0_0"], 1), path), "path"),
        (StreamsConfig.from_properties, "settings file"),
        (StreamsConfig.of_state, "state"),
        (lambda state: measure(state, TaskAssignment([])), "application_state"),
        (an_assignment, "application_state"),
        (specs_of, "application_state"),
        (lambda state: shuffled(state, 1), "application_state"),
        (lambda state: random_assignment(state, 1), "application_state"),
        (RackAwareOptimizationParams, "application_state"),
        (lambda state: Placement.of(state, []), "state"),
        (lambda state: AssignmentColumns.of(state, np.zeros(0, dtype=np.int64)), "state"),
        (lambda state: rack_rows(state, np.arange(1)), "state"),
        (rack_problem, "state"),
        (TaskAssignment.of_columns, "columns"),
        (lambda columns: KafkaStreamsAssignment.of_columns(columns, 0), "columns"),
    ],
)
def test_what_is_wanted_is_said(call: Callable[[Any], object], named: str, given: object) -> None:
    with pytest.raises(StreamsException, match=rf"^The {named} \("):
        call(given)


@pytest.mark.parametrize("given", [None, 1])
def test_tasks_that_are_no_list_are_named(given: Any) -> None:
    with pytest.raises(StreamsException, match=r"^The assigned_tasks \(.*\) must be a list of AssignedTask"):
        KafkaStreamsAssignment.of(a_process_id(1), given)


NOTHING: list[Any] = [None]


@pytest.mark.parametrize("tasks", [(TaskId(0, int(number)) for number in NOTHING), map(int, NOTHING)])
def test_what_fails_in_a_generator_is_not_said_of_it(tasks: Any) -> None:
    """It was called no list, and the line that failed was not named."""
    with pytest.raises(TypeError, match=r"^int\(\) argument must be"):
        ClientSpec(process_id=a_process_id(1), previous_active_tasks=tasks)


STATE = a_state(["0_0", "0_1", "1_0"], 2, num_standby_replicas=1, rack_aware_assignment_strategy="min_traffic")
COLUMNS = AssignmentColumns.of(STATE.columns, np.zeros(3, dtype=np.int64))


def test_who_gives_the_state_for_its_columns_is_told_so() -> None:
    with pytest.raises(StreamsException, match=r"ApplicationState\(3 tasks, 2 clients\)\) .* Maybe use its columns"):
        Placement.of(STATE, [0, 0, 0])  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [-1, 2, "0", None])
def test_a_number_of_no_client_has_no_assignment(number: Any) -> None:
    """Of -1 numpy would give the deadline of the last client, and no task."""
    with pytest.raises(StreamsException, match=r"^The number of the client \(.*\) must be an int from 0 to 1"):
        KafkaStreamsAssignment.of_columns(COLUMNS, number)


@pytest.mark.parametrize("tasks", [[3], [-1], [True, False, True], [0.5], ["0_0"], [[0], [1, 2]]], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda tasks: rack_rows(STATE.columns, tasks),
        lambda tasks: rack_problem(STATE.columns, tasks),
        lambda tasks: optimize_actives(STATE, place_actives(STATE), tasks, traffic_cost=1, non_overlap_cost=1),
    ],
    ids=["rack_rows", "rack_problem", "optimize_actives"],
)
def test_numbers_of_no_tasks_are_refused(call: Callable[[Any], object], tasks: Any) -> None:
    with pytest.raises(StreamsException, match=r"selected tasks .* must be task numbers from 0 to 2"):
        call(tasks)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: place_joined_actives(STATE, [[1], [1, 2], 3]), "must be 3 whole numbers"),  # type: ignore[arg-type]
        (lambda: place_standbys(STATE, COLUMNS, together=[[1], [1, 2], 3]), "must be 3 whole numbers"),  # type: ignore[arg-type]
        (lambda: RackAwareOptimizationParams(STATE, "statefull"), r"kind \('statefull'\) must be 'all', 'stateful'"),  # type: ignore[arg-type]
        (lambda: AssignmentResult([], inexact="MY_GOAL"), r"inexact goals \('MY_GOAL'\) must be a list of codes"),
        (lambda: TaskAssignment([], inexact=[[]]), "code of an inexact goal"),  # type: ignore[list-item]
        (lambda: state_of(None, []), r"tasks \(None\) must be a list of TaskSpec"),  # type: ignore[arg-type]
        (lambda: state_of(["0_0"], []), r"A task of state_of \('0_0'\) must be a TaskSpec. Maybe use a_state"),  # type: ignore[list-item]
        (lambda: state_of([], [a_process_id(1)]), "A client of state_of .* must be a ClientSpec"),  # type: ignore[list-item]
        (lambda: TaskSpec(task_id=TaskId(0, 0), state_store_names="store"), "state_store_names .* not one text"),
        (lambda: TaskSpec(task_id=TaskId(0, 0), topic_partitions=None), "topic_partitions .* must be a list"),  # type: ignore[arg-type]
        (lambda: ClientSpec(process_id=a_process_id(1), previous_active_tasks="0_0"), "previous tasks .* not one text"),  # type: ignore[arg-type]
        (lambda: run_random_story(StickyTaskAssignor, None), r"seed \(None\) must be an int"),  # type: ignore[arg-type]
        # They gave some state, of which nobody knew why it was not the one that was meant.
        (lambda: random_state("7"), r"seed \('7'\) must be an int"),  # type: ignore[arg-type]
        (lambda: random_state(7, -1), r"number \(-1\) must be an int from 0"),
        (lambda: random_states(None, 1), r"seed \(None\) must be an int"),  # type: ignore[arg-type]
        (lambda: StreamsConfig.of_state(STATE, ["a=b"]), r"settings \(builtins.list\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: StickyTaskAssignor().configure(None), r"configs \(None\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: StreamJoinTaskAssignor().configure(None), r"configs \(None\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: Assignment(None), r"partitions of a member \(None\) must be a list of TopicPartition"),  # type: ignore[arg-type]
        (lambda: Assignment([("t", 0)]), "partitions of a member must be a list of TopicPartition, but one is"),  # type: ignore[list-item]
        (lambda: Subscription(None), r"topics of a Subscription \(None\) must be a list of str"),  # type: ignore[arg-type]
        (lambda: Subscription("clicks"), r"topics of a Subscription \('clicks'\) must be a list of str, not one text"),
        (
            lambda: GroupAssignment(["m"]),  # type: ignore[arg-type]
            r"group_assignment \(\['m'\]\) must be a mapping from member ids to Assignment",
        ),
        (lambda: GroupAssignment({"m": ()}), r"values of the group_assignment must be a list of Assignment"),  # type: ignore[dict-item]
        (lambda: GroupSubscription(None), r"group_subscription \(None\) must be a mapping from member ids"),  # type: ignore[arg-type]
        (lambda: shuffled(STATE, [1]), r"seed \(\[1\]\) must be an int"),  # type: ignore[arg-type]
    ],
)
def test_what_python_or_numpy_would_take_for_something_else_is_refused(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(StreamsException, match=message):
        call()
