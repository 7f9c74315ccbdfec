"""The states on which two checkouts are compared: random small ones, and large ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from benchmarks.states import END_OFFSET, clients_in_racks, replicated_state, source_and_changelog
from task_assignor.sdk import (
    ApplicationState,
    AssignmentConfigs,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    TaskColumns,
)
from task_assignor.sdk.columns import LATEST_OFFSET, Int64Array
from task_assignor.testing.random_states import random_states

TASKS_PER_CLIENT = 100
TAGS = {"zone": 3, "kind": 4, "row": 10}


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of large state: everybody had one active and one standby of a random client per task; 1 % are new.

    Args:
        mixed_threads: clients have 1 to 8 threads, else one.
        claims: previous active owners of every task.
        states: previous standbys of every task.
        racks: racks of clients and of the partitions' replicas; 0: not known.
        has_tags: clients have three tags, which the settings name.
        standbys: `num.standby.replicas`.
        has_random_lags: standbys are behind by any amount, else they have caught up.
    """

    mixed_threads: bool = False
    claims: int = 1
    states: int = 1
    racks: int = 0
    has_tags: bool = False
    standbys: int = 1
    has_random_lags: bool = True


KINDS = {
    "equal threads": Kind(),
    "mixed threads": Kind(mixed_threads=True),
    "two claims a task": Kind(claims=2),
    "mixed threads, two claims": Kind(mixed_threads=True, claims=2),
    "5 racks": Kind(racks=5),
    "mixed threads, 5 racks": Kind(mixed_threads=True, racks=5),
    "three tag keys": Kind(has_tags=True),
    "three tag keys, 2 standbys": Kind(has_tags=True, standbys=2),
    "mixed threads, 5 racks, three tag keys, 2 standbys": Kind(mixed_threads=True, racks=5, has_tags=True, standbys=2),
}


def small_states(count: int) -> Iterator[ApplicationState]:
    """Random states, half of them with a proper history; a third has all racks."""
    shapes = (
        {"max_tasks": 12},
        {"max_tasks": 40, "max_clients": 8, "consistent": True},
        {"max_tasks": 40, "max_clients": 8, "racks_known": True, "consistent": True},
        {"max_tasks": 30, "max_clients": 5, "racks_known": True, "lags_known": False},
    )
    for number, shape in enumerate(shapes):
        yield from random_states(7 + number, -(-(count - number) // len(shapes)), **shape)  # type: ignore[arg-type]


def large_state(tasks: int, kind: Kind) -> ApplicationState:
    """The state of this kind and size."""
    clients, draws = max(tasks // TASKS_PER_CLIENT, 3), np.random.default_rng(5)
    old = clients - max(clients // 100, 1)
    table = _tasks(tasks, kind)
    owners = _clients(clients, kind, draws)
    claims = min(kind.claims, max(old - kind.states, 1))
    number = min(claims + kind.states, old)
    held = [draws.permutation(np.arange(tasks) % old)]
    for _ in range(number - 1):
        # Nobody twice: each is so many further than the one before, never once around.
        held.append((held[-1] + draws.integers(1, max(old // number, 2), tasks)) % old)
    previous, lags = _history(held, claims, kind.has_random_lags, clients, draws)
    configs = AssignmentConfigs(
        num_standby_replicas=kind.standbys,
        rack_aware_assignment_tags=tuple(TAGS) if kind.has_tags else (),
        rack_aware_assignment_strategy="min_traffic" if kind.racks else "none",
        rack_aware_traffic_cost=10 if kind.racks else None,
        rack_aware_non_overlap_cost=1 if kind.racks else None,
    )
    return ApplicationState(StateColumns(table, owners, previous, lags), configs)


def _tasks(tasks: int, kind: Kind) -> TaskColumns:
    if kind.racks:
        return replicated_state(tasks, 3, kind.racks).columns.tasks
    subtopology = np.arange(tasks) * 4 // tasks
    table = source_and_changelog(subtopology, np.arange(tasks) - np.searchsorted(subtopology, subtopology))
    return attrs.evolve(table, end_offset_sum=np.full(tasks, END_OFFSET))


def _clients(clients: int, kind: Kind, draws: np.random.Generator) -> ClientColumns:
    made = clients_in_racks(clients, 1, kind.racks or 3)
    if kind.mixed_threads:
        made = attrs.evolve(made, num_processing_threads=draws.integers(1, 9, clients))
    if kind.has_tags:
        values = draws.integers(0, list(TAGS.values()), (clients, len(TAGS)))
        made = attrs.evolve(made, client_tags=[dict(zip(TAGS, map(str, row), strict=True)) for row in values.tolist()])
    return made


def _history(
    held: Sequence[Int64Array], claims: int, has_random_lags: bool, clients: int, draws: np.random.Generator
) -> tuple[PreviousColumns, LagColumns]:
    """Who had what: the first ones were active, the others were standbys."""
    tasks, roles = len(held[0]), [Role.ACTIVE] * claims + [Role.STANDBY] * (len(held) - claims)
    client, task = np.concatenate(held), np.tile(np.arange(tasks), len(held))
    role = np.repeat(np.array(roles, dtype=np.int64), tasks)
    lag = draws.integers(0, END_OFFSET if has_random_lags else 1, len(client))
    lag[role == Role.ACTIVE] = LATEST_OFFSET
    rows = np.lexsort((task, role, client))
    by_consumer = np.lexsort((task, client))
    return (
        PreviousColumns(
            client=client[rows],
            role=role[rows],
            task=task[rows],
            consumer=client[by_consumer],
            consumer_task=task[by_consumer],
        ),
        LagColumns(
            client=client[by_consumer],
            task=task[by_consumer],
            lag=lag[by_consumer],
            is_computed=np.ones(clients, dtype=np.bool_),
        ),
    )
