"""The object face: what KIP-924 names, as lazy views on the columns."""

from __future__ import annotations

import tracemalloc
import uuid
from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentConfigs,
    HostInfo,
    LagsNotComputedError,
    ProcessId,
    StateException,
    Subscription,
    TaskColumns,
    TaskId,
    TaskInfo,
    TaskTopicPartition,
    TopicPartition,
    UnknownClientError,
    UnknownTaskError,
    state_from_json,
    state_to_json,
)
from task_assignor.testing import application_states, shuffled

FIRST, SECOND = (ProcessId.parse(f"00000000-0000-0000-0000-00000000000{digit}") for digit in (1, 2))
T00, T01, T10, GONE = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(7, 0)


def changelog(partition: int) -> TaskTopicPartition:
    return TaskTopicPartition(TopicPartition("changelog", partition), is_source=False, is_changelog=True)


@pytest.fixture
def state() -> ApplicationState:
    source = TaskTopicPartition(TopicPartition("in", 0), rack_ids={"b", "a"})
    return (
        ApplicationStateBuilder(now_ms=5)
        .add_task(T10, topic_partitions=[source])
        .add_task(T01, is_stateful=True, state_store_names=["s"], topic_partitions=[changelog(1)], end_offset_sum=900)
        .add_task(T00, is_stateful=True, state_store_names=["s"], topic_partitions=[changelog(0)])
        .add_client(
            SECOND,
            consumers={"m3": [], "m2": [T01, T00, GONE]},
            previous_standby_tasks=[T01, T00, GONE],
            task_lags={T00: UNKNOWN_OFFSET_SUM},
        )
        .add_client(
            FIRST,
            num_processing_threads=2,
            consumers={"m1": [T00]},
            host_info=HostInfo("h", 1),
            rack_id="a",
            client_tags={"zone": "z"},
            previous_active_tasks=[GONE, T10, T00],
            task_lags={T00: LATEST_OFFSET, T01: 0},
        )
        .build()
    )


def test_tasks_and_clients_come_in_order_whatever_the_order_they_were_given(state: ApplicationState) -> None:
    assert list(state.all_tasks) == [T00, T01, T10]
    assert list(state.kafka_streams_states(compute_task_lags=False)) == [FIRST, SECOND]
    assert repr(state) == "ApplicationState(3 tasks, 2 clients)"
    assert state.now_ms == 5


def test_a_task_is_what_was_given(state: ApplicationState) -> None:
    stateless, stateful = state.all_tasks[T10], state.all_tasks[T01]
    assert (False, frozenset(), False) == (stateless.is_stateful, stateless.state_store_names, stateless.has_changelog)
    assert stateless.topic_partitions == (TaskTopicPartition(TopicPartition("in", 0), rack_ids=frozenset("ab")),)
    assert (True, frozenset({"s"}), True) == (stateful.is_stateful, stateful.state_store_names, stateful.has_changelog)
    assert stateful.topic_partitions[0].rack_ids is None


def test_unknown_racks_are_not_the_same_as_none() -> None:
    partitions = [
        TaskTopicPartition(TopicPartition("a", 0), rack_ids=()),
        TaskTopicPartition(TopicPartition("b", 0), rack_ids=None),
    ]
    state = ApplicationStateBuilder().add_task(T00, topic_partitions=partitions).add_client(FIRST).build()
    assert [frozenset(), None] == [partition.rack_ids for partition in state.all_tasks[T00].topic_partitions]


def test_a_client_is_what_was_given(state: ApplicationState) -> None:
    client = state.kafka_streams_states(compute_task_lags=False)[FIRST]
    assert client.process_id == FIRST
    assert client.num_processing_threads == 2
    assert client.consumer_client_ids == ("m1",)
    assert client.host_info == HostInfo("h", 1)
    assert client.rack_id == "a"
    assert client.client_tags == {"zone": "z"}
    other = state.kafka_streams_states(compute_task_lags=False)[SECOND]
    assert (
        other.host_info,
        other.rack_id,
        dict(other.client_tags),
        other.consumer_client_ids,
    ) == (None, None, {}, ("m2", "m3"))


def test_previous_tasks_are_sorted_and_keep_those_that_no_longer_exist(state: ApplicationState) -> None:
    states = state.kafka_streams_states(compute_task_lags=False)
    assert states[FIRST].previous_active_tasks == (T00, T10, GONE)
    assert states[FIRST].previous_standby_tasks == ()
    assert states[SECOND].previous_standby_tasks == (T00, T01, GONE)


def test_a_lag_is_the_given_one_or_the_end_offset_sum(state: ApplicationState) -> None:
    states = state.kafka_streams_states(compute_task_lags=True)
    assert [states[FIRST].lag_for(task) for task in (T00, T01)] == [LATEST_OFFSET, 0]
    assert [states[SECOND].lag_for(task) for task in (T00, T01)] == [UNKNOWN_OFFSET_SUM, 900]
    assert dict(states[SECOND].stateful_tasks_to_lag_sums) == {T00: UNKNOWN_OFFSET_SUM, T01: 900}


def test_only_tasks_with_a_changelog_have_lags(state: ApplicationState) -> None:
    client = state.kafka_streams_states(compute_task_lags=True)[FIRST]
    for task in (T10, GONE):
        with pytest.raises(UnknownTaskError, match=f"no lag for task {task}"):
            client.lag_for(task)
        assert task not in client.stateful_tasks_to_lag_sums


def test_previous_tasks_of_a_consumer_come_by_lag_then_task_and_only_if_they_exist(state: ApplicationState) -> None:
    client = state.kafka_streams_states(compute_task_lags=True)[SECOND]
    assert client.prev_tasks_by_lag("m2") == (T00, T01)
    assert client.prev_tasks_by_lag("m3") == ()
    assert client.prev_tasks_by_lag("nobody") == ()


def test_lags_that_were_not_asked_for_are_an_error_that_says_so(state: ApplicationState) -> None:
    client = state.kafka_streams_states(compute_task_lags=False)[FIRST]
    for ask in (
        lambda: client.lag_for(T00),
        lambda: client.prev_tasks_by_lag("m1"),
        lambda: client.stateful_tasks_to_lag_sums,
    ):
        with pytest.raises(LagsNotComputedError, match="compute_task_lags=True"):
            ask()


def test_lags_that_nobody_knows_are_an_error_that_names_the_client() -> None:
    builder = ApplicationStateBuilder()
    builder.add_task(T00, is_stateful=True, topic_partitions=[changelog(0)]).add_client(FIRST)
    client = builder.build().kafka_streams_states(compute_task_lags=True)[FIRST]
    with pytest.raises(LagsNotComputedError, match=str(FIRST)):
        client.lag_for(T00)


def test_an_unknown_task_or_client_is_a_key_error(state: ApplicationState) -> None:
    with pytest.raises(KeyError, match="no task 7_0"):
        state.all_tasks[GONE]
    with pytest.raises(KeyError, match=r"no task '0_0' \(not a TaskId"):
        state.all_tasks["0_0"]  # type: ignore[index]
    assert state.all_tasks.get(GONE) is None
    with pytest.raises(UnknownClientError, match="no client"):
        state.kafka_streams_states(compute_task_lags=False)[ProcessId.parse("00000000-0000-0000-0000-000000000009")]
    assert GONE not in state.all_tasks
    assert "0_0" not in state.all_tasks


def test_reading_one_task_makes_no_other(state: ApplicationState, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    task_id = TaskColumns.task_id

    def counted(self: TaskColumns, task: int) -> TaskId:
        made.append(task)
        return task_id(self, task)

    monkeypatch.setattr(TaskColumns, "task_id", counted)
    assert state.all_tasks[T01].id == T01
    assert len(state.all_tasks) == 3
    assert T10 in state.all_tasks
    client = state.kafka_streams_states(compute_task_lags=True)[FIRST]
    assert client.lag_for(T01) == 0
    assert client.stateful_tasks_to_lag_sums[T00] == LATEST_OFFSET
    assert len(client.stateful_tasks_to_lag_sums) == 2
    assert made == []
    ids: Iterator[TaskId] = iter(state.all_tasks)
    assert next(ids) == T00
    assert made == [0]


@given(application_states(lags_known=False), application_states(lags_known=False))
def test_states_are_equal_if_and_only_if_they_say_the_same(one: ApplicationState, two: ApplicationState) -> None:
    assert (one == two) == (state_to_json(one) == state_to_json(two))
    assert one == state_from_json(state_to_json(one))
    assert one != "a state"


def test_a_state_differs_if_one_thing_does(state: ApplicationState) -> None:
    columns = state.columns
    tasks, clients = columns.tasks, columns.clients
    for other in (
        ApplicationState(columns, now_ms=state.now_ms + 1),
        ApplicationState(columns, AssignmentConfigs(num_standby_replicas=3), state.now_ms),
        ApplicationState(
            attrs.evolve(columns, tasks=attrs.evolve(tasks, store_sets=[{"x"}, *tasks.store_sets[1:]])), now_ms=5
        ),
        ApplicationState(attrs.evolve(columns, tasks=attrs.evolve(tasks, rack_sets=[frozenset("z")])), now_ms=5),
        ApplicationState(attrs.evolve(columns, clients=attrs.evolve(clients, racks=["z"])), now_ms=5),
        ApplicationState(attrs.evolve(columns, clients=attrs.evolve(clients, rack=[-1, -1])), now_ms=5),
        ApplicationState(attrs.evolve(columns, lags=attrs.evolve(columns.lags, lag=[-2, 1, -3])), now_ms=5),
    ):
        assert state != other
    assert state == ApplicationState(
        attrs.evolve(columns, clients=attrs.evolve(clients, rack=[1, -1], racks=["z", "a"])), now_ms=5
    )


def test_views_of_one_client_are_equal_and_can_be_keys(state: ApplicationState) -> None:
    first, again = (state.kafka_streams_states(compute_task_lags=True)[FIRST] for _ in range(2))
    assert (first, hash(first)) == (again, hash(again))
    assert first != state.kafka_streams_states(compute_task_lags=True)[SECOND]
    assert first != state.kafka_streams_states(compute_task_lags=False)[FIRST]


@pytest.mark.parametrize(
    "build",
    [
        lambda: TaskTopicPartition("in-0"),  # type: ignore[arg-type]
        lambda: TaskTopicPartition(TopicPartition("", 0)),
        lambda: TaskTopicPartition(TopicPartition("in", 0), is_source=1),  # type: ignore[arg-type]
        lambda: TaskTopicPartition(TopicPartition("in", 0), is_changelog="no"),  # type: ignore[arg-type]
        lambda: TaskTopicPartition(TopicPartition("in", 0), rack_ids="rack"),
        lambda: TaskTopicPartition(TopicPartition("in", 0), rack_ids=[1]),  # type: ignore[list-item]
        lambda: TaskTopicPartition(TopicPartition("in", 0), rack_ids=[""]),
        lambda: TaskInfo("0_0", True),  # type: ignore[arg-type]
        lambda: TaskInfo(T00, 1),  # type: ignore[arg-type]
        lambda: TaskInfo(T00, True, "store"),
        lambda: TaskInfo(T00, True, [], [TopicPartition("in", 0)]),  # type: ignore[list-item]
        lambda: Subscription("in"),
    ],
)
def test_facts_about_tasks_are_of_the_right_kind(build: Callable[[], object]) -> None:
    with pytest.raises(StateException):
        build()


def test_partitions_of_a_set_are_in_an_order_of_their_own() -> None:
    partitions = [TaskTopicPartition(TopicPartition(topic, 0)) for topic in "edcba"]
    state = ApplicationStateBuilder().add_task(T00, topic_partitions=set(partitions)).build()
    assert (
        TaskInfo(T00, False, (), set(partitions)) == TaskInfo(T00, False, (), partitions[::-1]) == state.all_tasks[T00]
    )
    assert TaskInfo(T00, False, (), partitions).topic_partitions == tuple(partitions)


def test_many_tasks_that_no_longer_exist_are_read_client_by_client() -> None:
    """The work for one client must not grow with what the others had: 300 clients with 300 lost tasks each."""
    builder = ApplicationStateBuilder()
    lost = [TaskId(9, partition) for partition in range(300)]
    for number in range(300):
        builder.add_client(
            ProcessId(uuid.UUID(int=number)), previous_active_tasks=lost[number:], previous_standby_tasks=lost[:number]
        )
    states = builder.build().kafka_streams_states(compute_task_lags=False)
    for number, client in enumerate(states.values()):
        assert client.previous_active_tasks == tuple(lost[number:])
        assert client.previous_standby_tasks == tuple(lost[:number])


def test_what_is_asked_of_one_task_is_no_look_at_all_of_them() -> None:
    """Neither a lag among many, nor a task whose number is not its place, nor what one consumer had."""
    tasks, names = (
        [TaskId(0, partition) for partition in range(1, 20_001)],
        [f"consumer-{number}" for number in range(9)],
    )
    builder = ApplicationStateBuilder()
    for task in tasks:
        builder.add_task(task, is_stateful=True, topic_partitions=[changelog(task.partition)])
    consumers = {name: tasks[number :: len(names)] for number, name in enumerate(names)}
    builder.add_client(FIRST, consumers=consumers, task_lags={task: 20_001 - task.partition for task in tasks})
    client = builder.build().kafka_streams_states(compute_task_lags=True)[FIRST]
    tracemalloc.start()
    try:
        assert [client.lag_for(task) for task in tasks[::4_000]] == [20_000, 16_000, 12_000, 8_000, 4_000]
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    assert client.prev_tasks_by_lag(names[3]) == tuple(consumers[names[3]][::-1])


@pytest.mark.parametrize("now_ms", [-1, 2**63, 1.0, True, None])
def test_the_time_is_a_whole_number_of_milliseconds(state: ApplicationState, now_ms: object) -> None:
    with pytest.raises(StateException, match="now_ms"):
        ApplicationState(state.columns, now_ms=now_ms)  # type: ignore[arg-type]


@given(application_states(lags_known=False), st.integers(0, 5))
def test_the_order_of_what_a_state_is_built_from_plays_no_part(state: ApplicationState, seed: int) -> None:
    other = shuffled(state, seed)
    assert (state, hash(state)) == (other, hash(other))
    assert state_to_json(state) == state_to_json(other)
    for name in ("tasks", "clients", "previous", "lags"):
        for attribute in type(getattr(state.columns, name)).__attrs_attrs__:
            one, two = (getattr(getattr(columns, name), attribute.name) for columns in (state.columns, other.columns))
            assert str(one) == str(two), attribute.name
