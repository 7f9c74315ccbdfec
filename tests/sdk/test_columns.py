"""The column face: read-only, checked once, and of the size that the design asks for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import pytest

from task_assignor.sdk import (
    LATEST_OFFSET,
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentColumns,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    ProcessId,
    Role,
    StateColumns,
    StateException,
    TaskColumns,
    TaskId,
)


def task_columns(**changes: Any) -> TaskColumns:
    """Three tasks: 0_0 without state, 0_1 with a changelog, orders__0_0 with a changelog."""
    arguments: dict[str, Any] = {
        "topology": [-1, -1, 0],
        "subtopology": [0, 0, 0],
        "partition": [0, 1, 0],
        "is_stateful": [False, True, True],
        "store_set": [0, 1, 1],
        "end_offset_sum": np.array([MISSING, MISSING, 70]),
        "partition_offsets": [0, 1, 3, 5],
        "partition_topic": [0, 0, 1, 0, 1],
        "partition_number": [0, 1, 1, 0, 0],
        "partition_is_source": [True, True, False, True, False],
        "partition_is_changelog": [False, False, True, False, True],
        "partition_rack_set": [-1, 0, 0, 0, 0],
        "topology_names": ["orders"],
        "store_sets": [frozenset(), frozenset({"store"})],
        "topics": ["in", "changelog"],
        "rack_sets": [frozenset({"a", "b"})],
    }
    return TaskColumns(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("is_stateful", "what"),
    [([False, False, True], "0_1 has state stores"), ([False, True, False], "orders__0_0 has state")],
)
def test_a_task_with_stores_or_changelogs_is_stateful(is_stateful: list[bool], what: str) -> None:
    with pytest.raises(StateException, match=f"The task {what}"):
        task_columns(is_stateful=is_stateful)
    with pytest.raises(StateException, match="The task 0_1 has a changelog partition, so it must be stateful"):
        task_columns(is_stateful=[False, False, False], store_set=[0, 0, 0])


def client_columns(**changes: Any) -> ClientColumns:
    arguments: dict[str, Any] = {
        "process_ids": [ProcessId(uuid.UUID(int=number)) for number in (2**127, 1, 2)],
        "num_processing_threads": [1, 2, 3],
        "rack": [0, -1, 1],
        "racks": ["a", "b"],
        "consumers": [("m0",), ("m1", "m2"), ()],
    }
    return ClientColumns(**{**arguments, **changes})


def previous_columns(**changes: Any) -> PreviousColumns:
    arguments: dict[str, Any] = {
        "client": [0, 0, 1],
        "role": [0, 1, 0],
        "task": [1, 2, 1],
        "consumer": [0, 2],
        "consumer_task": [1, 1],
    }
    return PreviousColumns(**{**arguments, **changes})


def lag_columns(**changes: Any) -> LagColumns:
    arguments: dict[str, Any] = {
        "client": [0, 0, 1, 2],
        "task": [1, 2, 1, 1],
        "lag": [LATEST_OFFSET, 5, UNKNOWN_OFFSET_SUM, 2**63 - 1],
        "is_computed": [True, True, True],
    }
    return LagColumns(**{**arguments, **changes})


def state_columns(**changes: Any) -> StateColumns:
    parts = {
        "tasks": task_columns(),
        "clients": client_columns(),
        "previous": previous_columns(),
        "lags": lag_columns(),
    }
    return StateColumns(**{**parts, **changes})


def test_a_million_tasks_on_ten_thousand_clients_are_a_few_arrays() -> None:
    """Time and memory of building it are measured in benchmarks/bench_state.py; here: nothing is made per task."""
    tasks, clients = 1_000_000, 10_000
    task = np.arange(tasks)
    owner = np.repeat(np.arange(clients), tasks // clients)
    table = TaskColumns(
        topology=np.full(tasks, -1),
        subtopology=task // 100_000,
        partition=task % 100_000,
        is_stateful=np.ones(tasks, dtype=np.bool_),
        store_set=np.zeros(tasks, dtype=np.int32),
        end_offset_sum=np.full(tasks, 1_000),
        partition_offsets=np.arange(tasks + 1),
        partition_topic=np.zeros(tasks, dtype=np.int32),
        partition_number=task % 100_000,
        partition_is_source=np.ones(tasks, dtype=np.bool_),
        partition_is_changelog=np.ones(tasks, dtype=np.bool_),
        partition_rack_set=np.full(tasks, -1),
        topics=["in"],
    )
    everybody = ClientColumns(
        process_ids=[ProcessId(uuid.UUID(int=number)) for number in range(clients)],
        num_processing_threads=np.ones(clients, dtype=np.int64),
        rack=np.full(clients, -1),
    )
    nothing: list[int] = []
    previous = PreviousColumns(
        client=owner, role=np.zeros(tasks, dtype=np.int8), task=task, consumer=nothing, consumer_task=nothing
    )
    lags = LagColumns(
        client=owner, task=task, lag=np.zeros(tasks, dtype=np.int64), is_computed=np.ones(clients, dtype=np.bool_)
    )
    state = ApplicationState(StateColumns(table, everybody, previous, lags))

    arrays = [
        value
        for part in attrs.astuple(state.columns, recurse=False)
        for value in (attrs.astuple(part, recurse=False) if attrs.has(type(part)) else [part])
        if isinstance(value, np.ndarray)
    ]
    assert sum(array.nbytes for array in arrays) < 200_000_000
    assert state.all_tasks[TaskId(5, 77)].topic_partitions[0].topic_partition.partition == 77
    client = state.kafka_streams_states(compute_task_lags=True)[everybody.process_ids[7]]
    assert [client.lag_for(client.previous_active_tasks[0]), client.lag_for(TaskId(9, 0))] == [0, 1_000]


def test_columns_cannot_be_written_not_even_through_the_array_they_were_made_of() -> None:
    given = np.array([0, 0, 0], dtype=np.int32)
    columns = task_columns(subtopology=given)
    given[0] = 9
    assert columns.subtopology.tolist() == [0, 0, 0]
    given[:] = 0
    view = given[:]
    view.flags.writeable = False
    columns = task_columns(subtopology=view)
    given[0] = 9
    assert columns.subtopology.tolist() == [0, 0, 0]
    for part in (columns, client_columns(), previous_columns(), lag_columns(), state_columns()):
        for value in attrs.astuple(part, recurse=False):
            if isinstance(value, np.ndarray):
                with pytest.raises(ValueError, match="read-only"):
                    value[:1] = 1


def test_an_array_that_something_else_gives_stays_that_of_who_has_it() -> None:
    """A Series of pandas gives its own: it could not be written any more, and shared its memory with the columns."""

    class Series:
        def __init__(self) -> None:
            self.values = np.zeros(3, dtype=np.int32)

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            return self.values

    given = Series()
    columns = task_columns(subtopology=given)
    given.values[0] = 9
    assert columns.subtopology.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", [dict, MappingProxyType])
def test_tags_of_columns_do_not_change_with_what_was_given(kind: Callable[..., Mapping[str, str]]) -> None:
    tags = {"zone": "a"}
    columns = client_columns(client_tags=[kind(tags), {}, {}])
    tags["zone"] = "b"
    assert columns.client_tags[0] == {"zone": "a"}


def test_columns_that_are_derived() -> None:
    columns = state_columns()
    assert columns.tasks.has_changelog.tolist() == [False, True, True]
    assert columns.tasks.group.tolist() == [0, 0, 1]
    assert columns.tasks.group_offsets.tolist() == [0, 2, 3]
    assert columns.tasks.task_of_partition().tolist() == [0, 1, 1, 2, 2]
    assert columns.consumer_client.tolist() == [0, 1, 1]
    assert columns.previous_offsets.tolist() == [0, 2, 3, 3]
    assert columns.lag_offsets.tolist() == [0, 2, 3, 4]
    assert columns.previous.pairs(Role.STANDBY)[1].tolist() == [2]
    assert columns.lag_row(1).tolist() == [MISSING, UNKNOWN_OFFSET_SUM, 70]


def test_tasks_and_clients_are_found_by_their_ids() -> None:
    columns = state_columns()
    ids = [TaskId(0, 0), TaskId(0, 1), TaskId(0, 0, "orders")]
    assert ids == columns.tasks.task_ids()
    assert [columns.tasks.find(task_id) for task_id in ids] == [0, 1, 2]
    assert [
        columns.tasks.find(task_id)
        for task_id in (TaskId(0, 2), TaskId(1, 0), TaskId(0, 1, "orders"), TaskId(0, 0, "x"))
    ] == [-1] * 4
    assert [columns.clients.find(process_id) for process_id in columns.clients.process_ids] == [0, 1, 2]
    assert columns.clients.find(ProcessId(uuid.UUID(int=77))) == -1


def test_partitions_of_a_subtopology_may_have_gaps() -> None:
    columns = task_columns(partition=[3, 8, 0], partition_number=[3, 8, 8, 0, 0])
    assert [columns.find(TaskId(0, partition)) for partition in (3, 8, 0, 4, 9)] == [0, 1, -1, -1, -1]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: task_columns(partition=[0, 0, 0]), "task 0_0 is there twice"),
        (lambda: task_columns(partition=[1, 0, 0]), "task 0_1 comes before task 0_0"),
        (lambda: task_columns(topology=[0, -1, -1], partition=[0, 0, 1]), "comes before"),
        (lambda: task_columns(partition=[-1, 0, 0]), "must not hold negative numbers"),
        (lambda: task_columns(is_stateful=[True, True]), "is_stateful of TaskColumns must have 3 rows, but has 2"),
        (lambda: task_columns(is_stateful=[0, 1, 1]), "booleans"),
        (lambda: task_columns(subtopology=[0.0, 0.0, 0.0]), "kind"),
        (lambda: task_columns(subtopology=[0, 0, 2**40]), "cannot hold numbers"),
        (lambda: task_columns(partition_offsets=[0, 3, 1, 5]), "never decrease"),
        (lambda: task_columns(partition_offsets=[1, 1, 3, 5]), "must start at 0"),
        (lambda: task_columns(partition_topic=[0, 0, 2, 0, 1]), "from 0 to 1, but holds 2"),
        (lambda: task_columns(partition_rack_set=[-2, 0, 0, 0, 0]), "holds -2"),
        (lambda: task_columns(store_set=[0, 1, 2]), "store_set"),
        (lambda: task_columns(topology=[-1, -1, 1]), "topology"),
        (lambda: task_columns(topology_names=["orders", "a"]), "topology_names"),
        (lambda: client_columns(num_processing_threads=[1, 0, 1]), "at least 1"),
        (lambda: client_columns(rack=[0, 2, 0]), "rack"),
        (lambda: client_columns(consumers=[(), ()]), "consumers of ClientColumns must have 3 rows"),
        (
            lambda: client_columns(process_ids=[ProcessId(uuid.UUID(int=number)) for number in (1, 2, 2**127)]),
            "in order of their process ids",
        ),
        (
            lambda: client_columns(process_ids=[ProcessId(uuid.UUID(int=number)) for number in (1, 1, 2)]),
            "is there twice",
        ),
        (lambda: client_columns(num_processing_threads=[1, 2**31, 1]), "num_processing_threads"),
        (lambda: client_columns(racks=["a", "a"]), "racks of ClientColumns must be distinct"),
        (lambda: client_columns(racks=["a", ""]), "racks of ClientColumns .* not empty"),
        (lambda: client_columns(racks="ab"), "must be a list of values, but is 'ab'"),
        (lambda: client_columns(process_ids=["a", "b", "c"]), "process_ids of ClientColumns must not hold 'a'"),
        (lambda: client_columns(host_infos=["a:1", None, None]), "host_infos of ClientColumns must not hold 'a:1'"),
        (lambda: client_columns(consumers=["m0", "m1", "m2"]), "consumers of ClientColumns must not hold 'm0'"),
        (lambda: client_columns(client_tags=["zone", {}, {}]), "client_tags .* must be a mapping"),
        (lambda: client_columns(client_tags=[{"zone": 1}, {}, {}]), "client_tags must be a mapping of strings"),
        (
            lambda: client_columns(generation=[1, -1, 1]),
            r"generation \(-1\) of client 00000000-0000-0000-0000-000000000001",
        ),
        (lambda: task_columns(topics=["in", "in"]), "topics of TaskColumns must be distinct"),
        (lambda: task_columns(topics=None), "must be a list of values, but is None"),
        (lambda: task_columns(topology_names=[""]), "topology_names of TaskColumns .* not empty"),
        (lambda: task_columns(store_sets=["", "store"]), "must be a list of str, not one text"),
        (lambda: task_columns(rack_sets=["a"]), "must be a list of str, not one text"),
        (lambda: task_columns(rack_sets=[{""}]), "not empty"),
        (lambda: client_columns(consumers=[("m1",), ("m3", "m2"), ()]), "consumers of client .* distinct and sorted"),
        (lambda: task_columns(partition_number=[0, -1, 0, 0, 0]), "partition_number"),
        (lambda: task_columns(subtopology=[[0], [0], [0]]), r"shape \(3, 1\)"),
        (lambda: task_columns(subtopology=[[0], [0, 0], [0]]), "must be a list of values"),
        (lambda: task_columns(partition=[False, True, False]), "cannot be made from values of kind bool"),
        (
            lambda: state_columns(
                previous=previous_columns(vanished=[(1, Role.ACTIVE, TaskId(9, 9)), (0, Role.ACTIVE, TaskId(9, 9))])
            ),
            "previous.vanished must be distinct and sorted",
        ),
        (lambda: state_columns(previous=previous_columns(vanished=[(3, Role.ACTIVE, TaskId(9, 9))])), "from 0 to 2"),
        (lambda: state_columns(previous=previous_columns(vanished_of_consumer=[(3, TaskId(9, 9))])), "from 0 to 2"),
        (lambda: state_columns(previous=previous_columns(client=[0, 0, 3])), "previous.client"),
        (lambda: state_columns(previous=previous_columns(role=[0, 2, 0])), "previous.role"),
        (lambda: state_columns(previous=previous_columns(task=[1, 2, 3])), "previous.task"),
        (lambda: state_columns(previous=previous_columns(client=[1, 0, 0])), "distinct and sorted"),
        (lambda: state_columns(previous=previous_columns(role=[0, 0, 0], task=[1, 1, 1])), "distinct and sorted"),
        (lambda: state_columns(previous=previous_columns(consumer=[0, 3])), "previous.consumer"),
        (lambda: state_columns(lags=lag_columns(client=[0, 0, 2, 1])), "distinct and sorted"),
        (lambda: state_columns(lags=lag_columns(lag=[0, 0, 0, -1])), r"The lag \(-1\) of task 0_1 on client"),
        (lambda: state_columns(lags=lag_columns(lag=[0, 0, -4, 0])), r"The lag \(-4\) of task 0_1"),
        (lambda: state_columns(lags=lag_columns(is_computed=[True, False, True])), "marked as having none"),
        (lambda: state_columns(lags=lag_columns(is_computed=[True])), "is_computed of LagColumns must have 3 rows"),
        (
            lambda: state_columns(lags=lag_columns(task=[1, 2, 0, 1])),
            "lag of task 0_1 on client 00000000-0000-0000-0000-000000000001 is missing",
        ),
        (
            lambda: state_columns(tasks=task_columns(end_offset_sum=np.array([MISSING, MISSING, -2]))),
            r"end offset sum \(-2\) of task orders__0_0",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(StateException, match=message):
        build()


def test_lags_may_be_left_out_where_an_end_offset_sum_stands_for_them() -> None:
    columns = state_columns(lags=lag_columns(client=[0, 1, 2], task=[1, 1, 1], lag=[1, 2, 3]))
    assert [int(columns.lag_row(client)[2]) for client in range(3)] == [70, 70, 70]


def test_lags_are_not_needed_for_clients_without_any() -> None:
    columns = state_columns(lags=LagColumns.empty(3))
    assert columns.lags.is_computed.tolist() == [False, False, False]


def test_a_column_assignment_is_sorted_and_in_range() -> None:
    columns = state_columns()
    assignment = AssignmentColumns.of(columns, np.array([2, -1, 0]), np.array([1]), np.array([0]))
    assert assignment.client.tolist() == [0, 0, 2]
    assert assignment.task.tolist() == [2, 1, 0]
    assert assignment.role.tolist() == [Role.ACTIVE, Role.STANDBY, Role.ACTIVE]
    assert assignment.active_owner().tolist() == [2, -1, 0]
    assert assignment.deadline_ms.tolist() == [MISSING] * 3
    none = np.full(3, MISSING)
    for client, task, role in (
        ([1, 0], [0, 1], [0, 0]),
        ([3], [0], [0]),
        ([0], [3], [0]),
        ([0], [0], [2]),
        ([0], [], []),
    ):
        with pytest.raises(StateException):
            AssignmentColumns(columns, client, task, role, none)
