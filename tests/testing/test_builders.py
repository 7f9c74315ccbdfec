"""States written by hand: short, and complete where something is left out."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    StateException,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
    assignment_to_json,
    state_to_json,
)
from task_assignor.testing import (
    ClientSpec,
    Cluster,
    StateShape,
    TaskSpec,
    a_client,
    a_process_id,
    a_state,
    a_stateful_task,
    a_stateless_task,
    an_assignment,
    application_states,
    random_state,
    shuffled,
    specs_of,
    state_of,
    stateful_tasks,
    stateless_tasks,
)
from task_assignor.testing.builders import ConfigArguments
from task_assignor.testing.drawing import ShapeArguments

T0, T1 = TaskId(0, 0), TaskId(0, 1)


def test_ids_stand_for_stateful_tasks_and_numbers_for_clients_that_had_nothing() -> None:
    state = a_state(["0_0"], 2, now_ms=5, num_standby_replicas=1)

    info = state.all_tasks[T0]
    assert info.is_stateful
    assert info.has_changelog
    assert list(state.kafka_streams_states(compute_task_lags=False)) == [a_process_id(1), a_process_id(2)]
    assert state.now_ms == 5
    assert state.assignment_configs.num_standby_replicas == 1


def test_previous_tasks_bring_their_lags() -> None:
    state = a_state(["0_0", "0_1", "0_2"], [a_client(1, active=["0_0"], standby=["0_1"], lags={"0_2": 7}), 2])

    first, second = state.kafka_streams_states(compute_task_lags=True).values()
    assert dict(first.stateful_tasks_to_lag_sums) == {T0: -2, T1: 0, TaskId(0, 2): 7}
    assert set(second.stateful_tasks_to_lag_sums.values()) == {150_000}


def test_lags_that_are_given_win_over_those_that_follow() -> None:
    state = a_state(["0_0"], [a_client(1, active=["0_0"], lags={"0_0": 3})])
    (client,) = state.kafka_streams_states(compute_task_lags=True).values()
    assert client.lag_for(T0) == 3


def test_lags_can_be_unknown() -> None:
    state = a_state(["0_0"], [a_client(1, active=["0_0"], lags=None)])
    assert not state.columns.lags.is_computed[0]


def test_previous_stateful_tasks_are_dealt_to_the_consumers() -> None:
    tasks = [*stateful_tasks(0, 3), *stateless_tasks(1, 1)]
    state = a_state(tasks, [a_client(1, threads=2, active=["0_0", "0_2", "1_0"], standby=["0_1"])])
    (client,) = state.kafka_streams_states(compute_task_lags=True).values()
    had = [client.prev_tasks_by_lag(consumer) for consumer in client.consumer_client_ids]
    assert had == [(T0, TaskId(0, 2)), (T1,)]


def test_stateless_tasks_and_vanished_tasks_get_no_lags() -> None:
    state = a_state([a_stateless_task("0_0")], [a_client(1, active=["0_0", "5_5"], standby=["6_6"])])
    (client,) = state.kafka_streams_states(compute_task_lags=True).values()
    assert dict(client.stateful_tasks_to_lag_sums) == {}
    assert client.previous_active_tasks == (T0, TaskId(5, 5))


def test_racks_tags_and_threads_arrive() -> None:
    task = a_stateful_task("0_0", racks=["r1"], changelog_racks=["r2"])
    state = a_state([task, "0_1"], [a_client(3, threads=4, rack="r9", tags={"zone": "a"}, generation=2)])

    source, changelog = state.all_tasks[T0].topic_partitions
    assert (source.rack_ids, source.is_source, source.is_changelog) == (frozenset({"r1"}), True, False)
    assert (changelog.rack_ids, changelog.is_source, changelog.is_changelog) == (frozenset({"r2"}), False, True)
    assert {partition.rack_ids for partition in state.all_tasks[T1].topic_partitions} == {None}
    (client,) = state.kafka_streams_states(compute_task_lags=False).values()
    assert (client.num_processing_threads, client.rack_id, dict(client.client_tags)) == (4, "r9", {"zone": "a"})
    assert state.columns.clients.generation.tolist() == [2]


def test_clients_may_have_any_number_of_threads() -> None:
    """A consumer for each of 2^31 - 1 would take all memory that there is."""
    state = a_state(["0_0"], [a_client(1, threads=2**31 - 1, active=["0_0"])])
    (client,) = state.kafka_streams_states(compute_task_lags=False).values()
    assert (client.num_processing_threads, len(client.consumer_client_ids)) == (2**31 - 1, 1_000)
    assert len(random_state(1, max_clients=2, max_threads=2**31 - 1).columns.clients) <= 2


def test_a_task_can_be_written_with_a_set_of_partitions() -> None:
    """Its order is another one in every process."""
    ordered = [TaskTopicPartition(TopicPartition(f"topic-{letter}", 0)) for letter in "abcdefgh"]
    assert TaskSpec(task_id=T0, topic_partitions=set(ordered)).topic_partitions == tuple(ordered)


def test_named_topologies_have_topics_of_their_own() -> None:
    state = a_state(["a__0_0", "b__0_0"], 1)
    topics = {partition.topic_partition for info in state.all_tasks.values() for partition in info.topic_partitions}
    assert len(topics) == 4


def test_an_assignment_names_every_client_and_those_given_besides() -> None:
    assignment = an_assignment(a_state(["0_0"], 2), active={1: ["0_0"]}, standby={9: [T0]})
    assert {each.process_id.id.int: [str(task) for task in each.tasks.values()] for each in assignment} == {
        1: ["ACTIVE 0_0"],
        2: [],
        9: ["STANDBY 0_0"],
    }
    assert AssignedTask(T0, AssignedTask.Type.ACTIVE) in assignment.assignment[0].tasks.values()


def test_what_makes_no_state_is_refused_as_by_the_builder() -> None:
    with pytest.raises(StateException, match="The task 0_0 is there twice"):
        a_state(["0_0", "0_0"], 1)


R1: Any = "r1"  # one text where a list belongs
T: Any = "0_0"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: a_stateless_task("0_0", racks=R1), r"racks of task 0_0 \('r1'\)"),
        (lambda: a_stateful_task("0_0", racks=R1), r"racks of task 0_0 \('r1'\)"),
        (lambda: a_stateful_task("0_0", changelog_racks=R1), r"changelog_racks of task 0_0 \('r1'\)"),
        (lambda: stateless_tasks(0, 2, racks=R1), r"racks \('r1'\)"),
        (lambda: stateful_tasks(0, 2, changelog_racks=R1), r"changelog_racks \('r1'\)"),
        (lambda: a_client(1, active=T), r"active tasks of client 0.*1 \('0_0'\)"),
        (lambda: a_client(1, standby=T), r"standby tasks of client 0.*1 \('0_0'\)"),
        (lambda: a_state(T, 1), r"tasks \('0_0'\)"),
        (lambda: a_state(["0_0"], T), r"clients \('0_0'\)"),
        (lambda: an_assignment(a_state(["0_0"], 1), active={1: "0_0"}), r"active tasks of client 0.*1 \('0_0'\)"),
        (lambda: Cluster(T, 1), r"tasks \('0_0'\)"),
    ],
)
def test_one_text_is_not_taken_letter_by_letter(make: Callable[[], object], named: str) -> None:
    with pytest.raises(StateException, match=rf"^The {named} must be a list of .*, not one text\."):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: a_client(-1), r"number of the client \(-1\) must be an int from 0 to"),
        (lambda: a_client(cast("Any", 1.5)), r"number of the client \(1\.5\) must be an int"),
        (lambda: a_process_id(2**128), r"number of the client \(34.*\) must be an int"),
        (lambda: a_client(1, threads=cast("Any", 1.5)), r"threads of client .*1 \(1\.5\) must be an int from 1"),
        (lambda: a_client(1, threads=0), r"threads of client .*1 \(0\) must be an int from 1"),
        (lambda: a_client(1, lags=cast("Any", ["0_0"])), r"lags of client .*1 .* must be a mapping"),
        (lambda: a_state(["0_0"], -1), r"number of clients \(-1\) must be an int from 0"),
        (lambda: a_state(["0_0"], ["x"]), r"number of the client \('x'\) must be an int"),  # type: ignore[list-item]
        (lambda: a_state(cast("Any", 5), 1), r"tasks \(5\) must be a list of tasks and task ids\."),
        (lambda: stateful_tasks(0, -4), r"partitions \(-4\) must be an int from 0"),
        (lambda: stateless_tasks(0, -4), r"partitions \(-4\) must be an int from 0"),
        (lambda: an_assignment(a_state([], 1), active=cast("Any", ["0_0"])), r"active tasks .*must be a mapping"),
    ],
)
def test_what_can_be_no_state_is_refused_where_it_is_written(make: Callable[[], object], message: str) -> None:
    with pytest.raises(StateException, match=f"^The {message}"):
        make()


def test_integers_of_numpy_are_integers() -> None:
    one: Any = np.int64(1)
    state = a_state(stateful_tasks(0, one), [a_client(one, threads=one)])
    assert state_to_json(state) == state_to_json(a_state(stateful_tasks(0, 1), [a_client(1)]))
    assert len(a_state([], one).columns.clients) == 1


def test_none_of_something_is_allowed() -> None:
    assert repr(a_state(stateful_tasks(0, 0), 0)) == "ApplicationState(0 tasks, 0 clients)"


def test_racks_can_be_given_as_any_iterable() -> None:
    tasks = stateful_tasks(0, 2, racks=iter(["r1"]), changelog_racks=iter(["r2"]))
    assert [[p.rack_ids for p in task.topic_partitions] for task in tasks] == [
        [frozenset({"r1"}), frozenset({"r2"})]
    ] * 2
    (source, changelog) = a_stateful_task("0_0", racks=iter(["r1"])).topic_partitions
    assert source.rack_ids == changelog.rack_ids == frozenset({"r1"})


def test_process_ids_stand_for_clients_too() -> None:
    state = a_state(["0_0"], [a_process_id(2)])
    assert state_to_json(state) == state_to_json(a_state(["0_0"], [2]))
    by_id = an_assignment(state, active={a_process_id(2): ["0_0"]})
    by_number = an_assignment(state, active={2: ["0_0"]})
    assert assignment_to_json(by_id) == assignment_to_json(by_number)


def test_the_arguments_that_type_checkers_know_are_those_that_there_are() -> None:
    assert set(ConfigArguments.__annotations__) == {field.name for field in attrs.fields(AssignmentConfigs)}
    assert set(ShapeArguments.__annotations__) == {field.name for field in attrs.fields(StateShape)}


@given(application_states(lags_known=False))
def test_a_state_taken_apart_and_put_together_is_the_same(state: ApplicationState) -> None:
    again = state_of(*specs_of(state), state.assignment_configs, state.now_ms)
    assert state_to_json(again) == state_to_json(state)


@given(application_states(lags_known=False), st.integers(0, 5))
def test_a_shuffled_state_is_the_same(state: ApplicationState, seed: int) -> None:
    assert state_to_json(shuffled(state, seed)) == state_to_json(state)


def test_all_but_the_strategies_works_without_hypothesis() -> None:
    code = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hypothesis":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hide())
from task_assignor.testing import a_state, random_state
print(a_state(["0_0"], 1), len(random_state(1).columns.clients) > 0)
from task_assignor.sdk import MissingExtraException
try:
    from task_assignor.testing import application_states
except MissingExtraException as error:
    print(error.extra, error.missing)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["ApplicationState(1 task, 1 client) True", "testing hypothesis"], done.stderr


def test_a_client_keeps_what_it_was_made_of() -> None:
    tags, lags = {"zone": "a"}, {"0_0": 5}
    client = a_client(1, tags=tags, lags=lags)
    spec = ClientSpec(process_id=a_process_id(2), client_tags=tags)
    tags["zone"] = "b"
    lags.clear()
    assert (client.client_tags, client.task_lags) == ({"zone": "a"}, {TaskId(0, 0): 5})
    assert spec.client_tags == {"zone": "a"}


def test_what_a_state_is_made_of_can_be_copied_and_sent() -> None:
    specs = specs_of(a_state(["0_0"], [a_client(1, tags={"zone": "a"})]))
    assert pickle.loads(pickle.dumps(specs)) == copy.deepcopy(specs) == specs
