"""Random states with racks and tags for the tests of the flow model, and costs worked out the slow way."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable

import attrs
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentConfigs,
    ProcessId,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)

Pairs = list[tuple[int, int]]
COSTS = [(10, 1), (10, 1), (1, 0), (0, 1), (0, 0), (1, 10), (3, 2), (2**31 - 1, 2**31 - 2), (2**31 - 1, 2**30 - 7)]


def racks_of(number: int) -> list[str]:
    """Names of racks."""
    return [f"rack-{rack}" for rack in range(number)]


@attrs.frozen
class Shape:
    """How large random states are."""

    tasks: int = 6
    clients: int = 4
    racks: int = 3
    keys: int = 0
    groups: int = 2


@st.composite
def states(draw: st.DrawFn, shape: Shape, strategy: str = "min_traffic") -> ApplicationState:
    """States in which every client has a rack and the racks of every partition are known."""
    names = racks_of(draw(st.integers(1, shape.racks)))
    replicas = st.sets(st.sampled_from([*names, "rack-without-clients"]), max_size=len(names))
    tags = tuple(f"key-{number}" for number in range(shape.keys))
    builder = ApplicationStateBuilder(
        AssignmentConfigs(rack_aware_assignment_strategy=strategy, rack_aware_assignment_tags=tags)
    )
    for number in range(draw(st.integers(1, shape.tasks))):
        partitions = [
            TaskTopicPartition(TopicPartition(f"topic-{topic}", number), is_source, is_changelog, racks)
            for topic, (is_source, is_changelog, racks) in enumerate(
                draw(st.lists(st.tuples(st.booleans(), st.booleans(), replicas), max_size=3))
            )
        ]
        stateful = any(partition.is_changelog for partition in partitions)
        builder.add_task(
            TaskId(draw(st.integers(0, shape.groups - 1)), number),
            is_stateful=stateful,
            topic_partitions=partitions,
            end_offset_sum=0,
        )
    for number in range(draw(st.integers(2, shape.clients))):
        client_tags = {key: value for key in tags if (value := draw(st.sampled_from(["", "a", "b", "c"])))}
        builder.add_client(
            ProcessId(uuid.UUID(int=number + 1)), rack_id=draw(st.sampled_from(names)), client_tags=client_tags
        )
    return builder.build()


def seeded_state(seed: int, shape: Shape) -> ApplicationState:
    """A state of the full size, made quickly from a seed."""
    rng = random.Random(seed)
    names = racks_of(shape.racks)
    tags = tuple(f"key-{number}" for number in range(shape.keys))
    builder = ApplicationStateBuilder(AssignmentConfigs(rack_aware_assignment_tags=tags))
    for number in range(shape.tasks):
        partitions = [
            TaskTopicPartition(
                TopicPartition(f"topic-{topic}", number),
                topic == 0,
                topic > 0 or rng.random() < 0.2,
                rng.sample(names, rng.randint(1, max(1, shape.racks - 1))),
            )
            for topic in range(rng.randint(1, 3))
        ]
        builder.add_task(
            TaskId(rng.randrange(shape.groups), number),
            is_stateful=any(partition.is_changelog for partition in partitions),
            topic_partitions=partitions,
            end_offset_sum=0,
        )
    for number in range(shape.clients):
        client_tags = {key: rng.choice("abc") for key in tags if rng.random() < 0.9}
        builder.add_client(ProcessId(uuid.UUID(int=number + 1)), rack_id=rng.choice(names), client_tags=client_tags)
    return builder.build()


def seeded_owners(seed: int, state: ApplicationState, nobody: bool = False) -> npt.NDArray[np.int32]:
    """A random owner for every task; -1: nobody."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(-1 if nobody else 0, len(state.columns.clients), len(state.columns.tasks))
    return owner.astype(np.int32)


def owners(draw: st.DrawFn, state: ApplicationState, nobody: bool = True) -> npt.NDArray[np.int32]:
    """A random owner for every task; -1: nobody."""
    clients = len(state.columns.clients)
    number = len(state.columns.tasks)
    low = -1 if nobody else 0
    return np.array(draw(st.lists(st.integers(low, clients - 1), min_size=number, max_size=number)), dtype=np.int32)


def standbys(draw: st.DrawFn, state: ApplicationState, owner: npt.NDArray[np.int32], most: int) -> Pairs:
    """Random standbys as (task, client), none where the task is active."""
    clients = range(len(state.columns.clients))
    pairs = []
    for task in range(len(state.columns.tasks)):
        chosen = draw(st.sets(st.sampled_from(list(clients)), max_size=most))
        pairs += [(task, client) for client in sorted(chosen - {int(owner[task])})]
    return pairs


def cross(state: ApplicationState, task: int, client: int, partitions: str) -> int:
    """Cross-rack partitions of a task on a client, from the object face."""
    info = state.all_tasks[state.columns.tasks.task_id(task)]
    process_id = state.columns.clients.process_ids[client]
    rack = state.kafka_streams_states(False)[process_id].rack_id
    return sum(
        each.rack_ids is not None and rack not in each.rack_ids
        for each in info.topic_partitions
        if partitions == "all" or (each.is_source if partitions == "source" else each.is_changelog)
    )


def diversity(state: ApplicationState, tags: Iterable[str], holders: Iterable[int]) -> int:
    """Distinct (key, value) pairs over the clients."""
    every = state.columns.clients.client_tags
    return len({(key, every[client][key]) for client in holders for key in tags if key in every[client]})
