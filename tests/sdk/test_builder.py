"""The builder: what it refuses, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import attrs
import numpy as np
import pytest

from task_assignor.sdk import (
    ApplicationStateBuilder,
    HostInfo,
    ProcessId,
    StateException,
    TaskId,
    TaskInfo,
    TaskTopicPartition,
    TopicPartition,
    state_from_json,
    state_to_json,
)

CLIENT = ProcessId.parse("00000000-0000-0000-0000-000000000001")
OTHER = ProcessId.parse("00000000-0000-0000-0000-000000000002")
TASK = TaskId(0, 0)
CHANGELOG = TaskTopicPartition(TopicPartition("changelog", 0), is_source=False, is_changelog=True)


def with_task(builder: ApplicationStateBuilder) -> ApplicationStateBuilder:
    return builder.add_task(TASK, is_stateful=True, topic_partitions=[CHANGELOG])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda builder: builder.add_task(TASK).add_task(TASK), "task 0_0 is there twice"),
        (lambda builder: builder.add_task("0_0"), r"Maybe use TaskId\.parse"),
        (lambda builder: builder.add_task(TASK, end_offset_sum=-4), "end offset sum of task 0_0"),
        (lambda builder: builder.add_task(TASK, end_offset_sum=-1).build(), "end offset sum"),
        (lambda builder: builder.add_task(TASK, end_offset_sum=2**63), "end offset sum of task 0_0"),
        (lambda builder: builder.add_task(TASK, end_offset_sum=True), "end offset sum of task 0_0"),
        (lambda builder: builder.add_client(CLIENT).add_client(CLIENT), f"client {CLIENT} is there twice"),
        (lambda builder: builder.add_client(str(CLIENT)), r"Maybe use ProcessId\.parse"),
        (lambda builder: builder.add_client(CLIENT, num_processing_threads=0), "num_processing_threads of client"),
        (lambda builder: builder.add_client(CLIENT, num_processing_threads=1.0), "num_processing_threads"),
        (lambda builder: builder.add_client(CLIENT, num_processing_threads=True), "num_processing_threads"),
        (lambda builder: builder.add_client(CLIENT, generation=-1), "generation of client"),
        (lambda builder: builder.add_client(CLIENT, task_lags={TASK: 0}).build(), "no such task"),
        (
            lambda builder: with_task(builder).add_client(CLIENT, task_lags={}).build(),
            f"lag of task 0_0 on client {CLIENT} is missing, and the task has no end offset sum",
        ),
        (lambda builder: with_task(builder).add_client(CLIENT, task_lags={TASK: -4}).build(), "lag of task 0_0"),
        (lambda builder: with_task(builder).add_client(CLIENT, task_lags={TASK: -1}).build(), "of task 0_0"),
        (
            lambda builder: builder.add_client(CLIENT, task_lags={"0_0": 1}),
            "must be a mapping from TaskId, but one key is '0_0'. Maybe use TaskId.parse",
        ),
        (lambda builder: with_task(builder).add_client(CLIENT, task_lags={TASK: 2**63}).build(), "lag of task 0_0"),
        (lambda builder: with_task(builder).add_client(CLIENT, task_lags={TASK: True}).build(), "lag of task 0_0"),
        # A text where a list is expected would silently be taken for its characters.
        (
            lambda builder: builder.add_task(TASK, state_store_names="store"),
            r"state_store_names of task 0_0 \('store'\)",
        ),
        (lambda builder: builder.add_task(TASK, topic_partitions=[TopicPartition("a", 0)]), "topic_partitions of task"),
        (lambda builder: builder.add_task(TASK, is_stateful="no"), "is_stateful of task 0_0"),
        # What no document of a state may hold.
        (
            lambda builder: builder.add_task(TASK, is_stateful=True, state_store_names=[""]),
            "state_store_names of task 0_0 must be a list of str that are not empty",
        ),
        (
            lambda builder: builder.add_task(
                TASK, is_stateful=True, topic_partitions=[CHANGELOG, attrs.evolve(CHANGELOG, is_source=True)]
            ),
            "task 0_0 has the partition changelog-0 twice",
        ),
        (lambda builder: builder.add_client(CLIENT, previous_active_tasks="0_0"), "previous_active_tasks of client"),
        (lambda builder: builder.add_client(CLIENT, previous_active_tasks=["0_0"]), r"Maybe use TaskId\.parse"),
        (lambda builder: builder.add_client(CLIENT, previous_standby_tasks=[("0", 0)]), "previous_standby_tasks"),
        (lambda builder: builder.add_client(CLIENT, previous_standby_tasks=None), "previous_standby_tasks"),
        (lambda builder: builder.add_client(CLIENT, consumers={"m": ["0_0"]}), "tasks of consumer m of client"),
        (lambda builder: builder.add_client(CLIENT, consumers={3: []}), "consumers of client"),
        (lambda builder: builder.add_client(CLIENT, consumers=["m"]), "consumers of client"),
        (lambda builder: builder.add_client(CLIENT, client_tags={"zone": 3}), "client_tags of client"),
        (lambda builder: builder.add_client(CLIENT, client_tags=["zone"]), "client_tags of client"),
        (lambda builder: builder.add_client(CLIENT, client_tags=""), "client_tags of client"),  # was taken for none
        (lambda builder: builder.add_client(CLIENT, rack_id=3), "rack_id of client"),
        (lambda builder: builder.add_client(CLIENT, host_info="h:1"), "host_info of client"),
        (lambda builder: builder.add_client(CLIENT, host_info=HostInfo("", 1)), "whose host is not empty, or None"),
        (lambda builder: builder.add_client(CLIENT, task_lags={"0_0": 1}), "task_lags of client"),
    ],
)
def test_what_cannot_be_a_state(build: Callable[[ApplicationStateBuilder], object], message: str) -> None:
    with pytest.raises(StateException, match=message):
        build(ApplicationStateBuilder())


def test_a_rack_of_no_letters_is_none() -> None:
    state = ApplicationStateBuilder().add_client(CLIENT, rack_id="").add_client(OTHER, rack_id="a").build()

    assert [client.rack_id for client in state.kafka_streams_states(False).values()] == [None, "a"]
    assert state_from_json(state_to_json(state)) == state


def test_a_state_may_be_empty() -> None:
    state = ApplicationStateBuilder().build()
    assert (len(state.all_tasks), len(state.kafka_streams_states(compute_task_lags=True))) == (0, 0)


def test_a_task_can_be_taken_from_another_state() -> None:
    info = with_task(ApplicationStateBuilder()).build().all_tasks[TASK]
    state = ApplicationStateBuilder().add_task_info(info, end_offset_sum=3).add_client(CLIENT, task_lags={}).build()
    assert info == state.all_tasks[TASK]
    assert state.kafka_streams_states(compute_task_lags=True)[CLIENT].lag_for(TASK) == 3


def test_what_was_given_may_change_afterwards() -> None:
    tags, previous, lags = {"zone": "a"}, [TASK], {TASK: 1}
    builder = with_task(ApplicationStateBuilder())
    builder.add_client(CLIENT, client_tags=tags, previous_active_tasks=previous, task_lags=lags)
    state = builder.build()
    tags["zone"] = "b"
    previous.clear()
    lags[TASK] = 9
    client = state.kafka_streams_states(compute_task_lags=True)[CLIENT]
    assert (dict(client.client_tags), client.previous_active_tasks, client.lag_for(TASK)) == ({"zone": "a"}, (TASK,), 1)


def test_the_order_of_adding_does_not_show() -> None:
    """Not even in how the columns number names, since an assignor sees those too."""
    racks = frozenset({"a"}), frozenset({"b"})
    partitions = [TaskTopicPartition(TopicPartition(topic, 0), rack_ids=rack) for topic in "yx" for rack in racks]
    tasks = [
        (TaskId(0, 5), {"s"}, [partitions[3], partitions[0]]),
        (TaskId(0, 0, "b"), {"t"}, [partitions[1]]),
        (TaskId(1, 2, "a"), {"s"}, [partitions[2], partitions[1], TaskTopicPartition(TopicPartition("z", 1))]),
    ]
    gone = TaskId(0, 0, "gone")
    ids = [task_id for task_id, _, _ in tasks]
    clients = [
        (CLIENT, {"n": [ids[2], gone, ids[0]], "m": [ids[1]]}, [ids[1], gone, ids[1]], {ids[2]: 4, ids[0]: -2}),
        (OTHER, {"l": [ids[0], ids[0]]}, [], None),
        (ProcessId.parse("f0000000-0000-0000-0000-000000000000"), {}, [ids[2], ids[0]], {ids[1]: 3}),
    ]

    def columns(task_order: tuple[int, ...], client_order: tuple[int, ...]) -> list[object]:
        builder = ApplicationStateBuilder()
        for process_id, consumers, previous, lags in (clients[number] for number in client_order):
            builder.add_client(process_id, consumers=consumers, previous_standby_tasks=previous, task_lags=lags)
        for task_id, stores, own in (tasks[number] for number in task_order):
            builder.add_task(
                task_id,
                is_stateful=True,
                state_store_names=stores,
                topic_partitions=own,
                end_offset_sum=task_id.partition,
            )
        tables = attrs.astuple(builder.build().columns, recurse=False)
        found = [value for table in tables[:4] for value in attrs.astuple(table, recurse=False)]
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in found]

    expected = columns((0, 2, 1), (2, 0, 1))
    assert ("a", "b") in expected, "a topology without tasks is not named"
    for order in permutations(range(3)):
        assert columns(order, order) == expected


def test_tasks_are_in_the_order_of_their_ids_whatever_the_lengths_of_names() -> None:
    """Tasks without topology first, then names as Java compares strings: not by length, not by code point."""
    ids = [
        TaskId(1, 0),
        TaskId(2, 0),
        *(TaskId(0, 0, name) for name in ("a", "aaa", "b", "bb", "\U0001f600", "\ufb01")),
    ]
    builder = ApplicationStateBuilder()
    for task_id in reversed(ids):
        builder.add_task(task_id)
    columns = builder.build().columns.tasks

    assert columns.task_ids() == ids == sorted(ids)
    assert columns.topology_names == tuple(task_id.topology_name for task_id in ids[2:])


def test_of_several_lags_for_unknown_tasks_the_first_client_and_task_are_named() -> None:
    """Whatever the order of the mapping and of the clients."""
    first, second = sorted((CLIENT, OTHER))
    for tasks in permutations([TaskId(0, 1), TaskId(0, 2), TaskId(0, 0, "a")]):
        for clients in ((first, second), (second, first)):
            builder = with_task(ApplicationStateBuilder())
            for client in clients:
                lags = dict.fromkeys([TASK, *tasks] if client == first else [TaskId(0, 9), TaskId(0, 1)], 5)
                builder.add_client(client, task_lags=lags)
            with pytest.raises(StateException, match=rf"a lag on client {first} for task 0_1, but no such task"):
                builder.build()


def test_partitions_with_gaps_are_found() -> None:
    tasks = [TaskId(0, 7), TaskId(0, 2**31 - 1), TaskId(2**31 - 1, 3)]
    others = [TaskId(0, 0), TaskId(0, 8), TaskId(1, 3), TaskId(2**31 - 1, 4)]
    builder = ApplicationStateBuilder().add_client(CLIENT, previous_active_tasks=[*others, *tasks])
    for task_id in tasks:
        builder.add_task(task_id)
    columns = builder.build().columns
    assert columns.previous.task.tolist() == [0, 1, 2]
    assert [task_id for _, _, task_id in columns.previous.vanished] == others


def test_a_client_that_is_refused_leaves_nothing() -> None:
    builder = ApplicationStateBuilder().add_client(CLIENT, consumers={"m": []})
    with pytest.raises(StateException, match="lag of task"):
        builder.add_client(OTHER, consumers={"l": [TASK]}, task_lags={TASK: -4})
    state = builder.add_client(OTHER, consumers={"n": []}).build()
    assert state.columns.clients.consumers == (("m",), ("n",))


def test_a_consumer_may_have_the_same_name_at_two_clients() -> None:
    """As in Kafka, where each client has consumers of its own; a group that runs has distinct member ids."""
    state = (
        ApplicationStateBuilder()
        .add_task(TASK, is_stateful=True)
        .add_client(CLIENT, consumers={"m": [TASK]}, task_lags={})
        .add_client(OTHER, consumers={"m": []}, task_lags={})
        .build()
    )
    clients = state.kafka_streams_states(compute_task_lags=True)
    assert [client.prev_tasks_by_lag("m") for client in (clients[CLIENT], clients[OTHER])] == [(TASK,), ()]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"state_store_names": ["counts"]}, "state stores"),
        ({"topic_partitions": [CHANGELOG]}, "a changelog partition"),
    ],
)
def test_a_task_without_state_has_neither_stores_nor_changelogs(arguments: dict[str, Any], what: str) -> None:
    """Every assignor would give it standbys, and be blamed for the `INVALID_STANDBY_TASK`."""
    with pytest.raises(StateException, match=f"The task 0_0 has {what}, so it must be stateful"):
        ApplicationStateBuilder().add_task(TASK, **arguments)
    info = TaskInfo(TASK, False, **arguments)
    with pytest.raises(StateException, match=f"The task 0_0 has {what}"):
        ApplicationStateBuilder().add_task_info(info)
