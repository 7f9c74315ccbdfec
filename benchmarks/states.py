"""The states that are measured: Kafka's own scale shapes, and shapes with racks of any size. Nothing is measured here."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from task_assignor.sdk import (
    ApplicationState,
    AssignmentColumns,
    AssignmentConfigs,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    ProcessId,
    Role,
    StateColumns,
    TaskAssignment,
    TaskColumns,
    assignment_to_json,
)
from task_assignor.sdk.columns import LATEST_OFFSET, NO_RACK, Int32Array, Int64Array

END_OFFSET = 100_000
"""End offset of every changelog in Kafka's StreamsAssignmentScaleTest."""
CLIENT_RACKS = 31
"""So many racks the clients of that test are in; its partitions are in none."""


def process_ids(clients: int) -> list[ProcessId]:
    """The first process ids, in order."""
    return [ProcessId(uuid.UUID(int=number)) for number in range(clients)]


def source_and_changelog(
    subtopology: Int64Array,
    partition: Int64Array,
    rack_set: Int64Array | None = None,
    rack_sets: Sequence[frozenset[str]] = (),
    endings: Sequence[str] = ("-0", "-1", "-2", "-3"),
) -> TaskColumns:
    """Stateful tasks that have one source and one changelog partition each.

    Args:
        subtopology: (T,) sub-topologies, in task order.
        partition: (T,) partitions.
        rack_set: (2 T,) number of each partition's set of racks; None: racks not known.
        rack_sets: the sets of racks.
        endings: how the names of topic and store of each sub-topology end.
    """
    tasks, groups = len(partition), int(subtopology.max()) + 1
    is_changelog = np.arange(2 * tasks) % 2 == 1
    topics = [name for end in endings[:groups] for name in (f"topic{end}", f"scale-store{end}-changelog")]
    return TaskColumns(
        topology=np.full(tasks, -1),
        subtopology=subtopology,
        partition=partition,
        is_stateful=np.ones(tasks, dtype=np.bool_),
        store_set=subtopology,
        end_offset_sum=np.full(tasks, END_OFFSET),
        partition_offsets=np.arange(0, 2 * tasks + 1, 2),
        partition_topic=np.repeat(subtopology * 2, 2) + is_changelog,
        partition_number=np.repeat(partition, 2),
        partition_is_source=~is_changelog,
        partition_is_changelog=is_changelog,
        partition_rack_set=np.full(2 * tasks, NO_RACK) if rack_set is None else rack_set,
        store_sets=[frozenset({f"store{end}"}) for end in endings[:groups]],
        topics=topics,
        rack_sets=rack_sets,
    )


def clients_in_racks(clients: int, threads: int, racks: int) -> ClientColumns:
    """Clients in racks by turns, each with `threads` threads and as many consumers."""
    names = sorted(f"rack-{rack}" for rack in range(min(racks, clients)))
    number = {name: position for position, name in enumerate(names)}
    return ClientColumns(
        process_ids=process_ids(clients),
        num_processing_threads=np.full(clients, threads),
        rack=[number[f"rack-{client % racks}"] for client in range(clients)],
        racks=names,
        consumers=[
            tuple(sorted(f"consumer-{client}-{thread}" for thread in range(threads))) for client in range(clients)
        ],
    )


def kafka_scale_state(
    tasks: int, clients: int, threads: int, standbys: int, previous: AssignmentColumns | None = None
) -> ApplicationState:
    """A shape of Kafka's StreamsAssignmentScaleTest: one topic, one store, strategy `none`.

    Args:
        tasks: partitions of the topic.
        clients: clients.
        threads: threads (and consumers) of each.
        standbys: `num.standby.replicas`.
        previous: who had the tasks before. Active ones are caught up, standbys are at offset 0.
    """
    table = source_and_changelog(np.zeros(tasks, dtype=np.int64), np.arange(tasks), endings=[""])
    owners = clients_in_racks(clients, threads, CLIENT_RACKS)
    columns = StateColumns(table, owners, _previous(threads, previous), _lags(clients, previous))
    return ApplicationState(columns, AssignmentConfigs(num_standby_replicas=standbys))


def _previous(threads: int, previous: AssignmentColumns | None) -> PreviousColumns:
    if previous is None:
        return PreviousColumns.empty()
    order = np.lexsort((previous.task, previous.role, previous.client))
    client, role, task = previous.client[order], previous.role[order], previous.task[order]
    # A client's tasks go to its consumers in turn, active ones first.
    position = np.arange(len(client)) - previous.offsets[client]
    consumer = client.astype(np.int64) * threads + position % threads
    by_consumer = np.lexsort((task, consumer))
    return PreviousColumns(
        client=client, role=role, task=task, consumer=consumer[by_consumer], consumer_task=task[by_consumer]
    )


def _lags(clients: int, previous: AssignmentColumns | None) -> LagColumns:
    """What is not listed is the end offset: also the standbys, of which that test says offset 0."""
    if previous is None:
        return LagColumns.empty(clients, is_computed=True)
    client, task = previous.pairs(Role.ACTIVE)
    order = np.lexsort((task, client))
    return LagColumns(
        client=client[order],
        task=task[order],
        lag=np.full(len(task), LATEST_OFFSET),
        is_computed=np.ones(clients, dtype=np.bool_),
    )


def rack_scale_state(tasks: int, clients: int, strategy: str) -> ApplicationState:
    """The rack-aware shape of the recorded figures: 5 racks, 2 replicas per partition, 4 sub-topologies, costs 10 and 1.

    Args:
        tasks: a multiple of 4.
        clients: clients, one thread each.
        strategy: `rack.aware.assignment.strategy`.
    """
    # The same draws as those of the recorded runs, so that costs can be compared too.
    draws = random.Random(f"{tasks}x{clients}")
    names = [f"rack-{rack}" for rack in range(5)]
    drawn = [frozenset(draws.sample(names, 2)) for _ in range(2 * tasks)]
    rack_sets = sorted(set(drawn), key=sorted)
    number = {racks: position for position, racks in enumerate(rack_sets)}
    subtopology, partition = np.divmod(np.arange(tasks), tasks // 4)
    table = source_and_changelog(subtopology, partition, np.array([number[racks] for racks in drawn]), rack_sets)
    return _with_racks(table, clients, 5, strategy)


def replicated_state(
    tasks: int, clients: int, racks: int, replicas: int = 3, strategy: str = "min_traffic", groups: int = 4
) -> ApplicationState:
    """Tasks with 2 partitions each, whose replicas lie in random racks; some sub-topologies, costs 10 and 1; for any size."""
    # In parts, which gives the same draws in less memory.
    draws, sizes = np.random.default_rng(0), [100_000] * (2 * tasks // 100_000) + [2 * tasks % 100_000]
    chosen = np.concatenate([np.argsort(draws.random((size, racks)), axis=1)[:, :replicas] for size in sizes])
    chosen.sort(axis=1)
    combinations, number = np.unique(chosen, axis=0, return_inverse=True)
    subtopology = np.arange(tasks) * groups // tasks
    partition = np.arange(tasks) - np.searchsorted(subtopology, subtopology)
    rack_sets = [frozenset(f"rack-{rack}" for rack in row) for row in combinations.tolist()]
    endings = [f"-{group}" for group in range(groups)]
    table = source_and_changelog(subtopology, partition, number.reshape(-1), rack_sets, endings)
    return _with_racks(table, clients, racks, strategy)


def _with_racks(table: TaskColumns, clients: int, racks: int, strategy: str) -> ApplicationState:
    columns = StateColumns(
        table,
        clients_in_racks(clients, 1, racks),
        PreviousColumns.empty(),
        LagColumns.empty(clients, is_computed=True),
    )
    configs = AssignmentConfigs(
        rack_aware_assignment_strategy=strategy, rack_aware_traffic_cost=10, rack_aware_non_overlap_cost=1
    )
    return ApplicationState(columns, configs)


def shuffled_owners(tasks: int, clients: int) -> Int32Array:
    """(T,) owners: as many tasks for everybody, in random order."""
    dealt: Int32Array = (np.arange(tasks) % clients).astype(np.int32)
    return np.random.default_rng(1).permutation(dealt)


def scenario_document(
    operation: str,
    state: ApplicationState,
    assignment: AssignmentColumns | None = None,
    params: Mapping[str, object] | None = None,
) -> str:
    """A question to the Java harness in `tests/jvm`, one line of JSON."""
    from tests.jvm.jvm import question_state

    scenario: dict[str, Any] = {"operation": operation, "state": question_state(state)}
    if assignment is not None:
        scenario["assignment"] = assignment_to_json(TaskAssignment.of_columns(assignment))
    if params is not None:
        scenario["params"] = params
    return json.dumps(scenario, separators=(",", ":"))
