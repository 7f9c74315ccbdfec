"""How good a placement is by the goals of the assignor that made it, in their order; for any size. Less is better."""

from __future__ import annotations

from fractions import Fraction

import attrs
import numpy as np

from task_assignor.engine.items import Pairs
from task_assignor.sdk import MISSING, ApplicationState, Role, StateColumns
from task_assignor.sdk.columns import BoolArray, Int64Array, csr_rows
from task_assignor.utils.history import previous_actives, previous_state
from task_assignor.utils.rack_costs import costs_in_use

Goals = dict[str, Fraction | int]


@attrs.frozen(eq=False)
class Judged:
    """Who has what: (T,) owners of the active tasks, and (S,) pairs of standbys."""

    state: ApplicationState
    owner: Int64Array
    standby_task: Int64Array
    standby_client: Int64Array

    @property
    def columns(self) -> StateColumns:
        return self.state.columns

    def counts(self, owner: Int64Array) -> Int64Array:
        """(C,) how often each client is there; -1 is nobody."""
        return np.bincount(owner[owner >= 0], minlength=len(self.columns.clients))


def goals_of(assignor: str, placement: Judged) -> Goals:
    """The goals of `StickyTaskAssignor`, `FallbackPriorTaskAssignor` or `StreamJoinTaskAssignor`."""
    if assignor == "StreamJoinTaskAssignor":
        return _of_stream_join(placement)
    return _of_sticky(placement, must_preserve=assignor == "FallbackPriorTaskAssignor")


def _of_sticky(placement: Judged, must_preserve: bool) -> Goals:
    columns, configs, owner = placement.columns, placement.state.assignment_configs, placement.owner
    tasks, every = columns.tasks, np.arange(len(columns.tasks))
    costs = None if must_preserve else costs_in_use(columns, configs)
    claims, state = previous_actives(columns).newest(), previous_state(columns)
    kept = claims.have(every, owner)
    lost = int((np.bincount(claims.item, minlength=len(tasks)).astype(bool) & ~kept).sum())
    outside = _outside(columns, placement.counts(owner), len(tasks))
    first: Goals = {"outside shares": outside, "claims lost": lost}
    if costs is not None:
        first = {"outside shares": outside, "rack cost": crossings(columns, every, owner) * costs[0] + lost * costs[1]}
    if must_preserve:
        first = dict(reversed(first.items()))
    wanted = np.where(tasks.has_changelog, configs.num_standby_replicas, 0)
    all_loads = placement.counts(owner) + placement.counts(placement.standby_client)
    return {
        **first,
        "stateful load²": unevenness(columns, placement.counts(owner[tasks.is_stateful])),
        "load²": unevenness(columns, placement.counts(owner)),
        **_away(state, owner, kept),
        "standbys missing": int(wanted.sum()) - len(placement.standby_task),
        "outside total shares": _outside(columns, all_loads, int(all_loads.sum())),
        "total load²": unevenness(columns, all_loads),
        "tag values": -tag_values(placement),
        **_of_standbys(placement, state, use_racks=not must_preserve),
    }


def _of_stream_join(placement: Judged) -> Goals:
    columns, tasks = placement.columns, placement.columns.tasks
    size = np.diff(tasks.group_offsets)[tasks.group]
    group = _numbered(np.stack([tasks.topology.astype(np.int64), size], axis=1))
    unit = _numbered(np.stack([group, tasks.partition.astype(np.int64)], axis=1))
    units, clients = int(unit.max(initial=-1)) + 1, max(len(columns.clients), 1)
    owner, group_of = np.full(units, -1, dtype=np.int64), np.zeros(units, dtype=np.int64)
    owner[unit], group_of[unit] = placement.owner, group
    outside = 0
    for one in range(int(group.max(initial=-1)) + 1):
        chosen = owner[group_of == one]
        outside += _outside(columns, placement.counts(chosen), len(chosen))
    claims, state = _unit_claims(columns, unit), _unit_state(columns, unit)
    kept = claims.have(np.arange(units), owner)
    is_stateful = np.zeros(units, dtype=np.bool_)
    is_stateful[unit[tasks.is_stateful]] = True
    places = (group_of * clients + owner)[is_stateful & (owner >= 0)]
    standby = np.unique(unit[placement.standby_task] * clients + placement.standby_client)
    wanted = np.where(tasks.has_changelog, placement.state.assignment_configs.num_standby_replicas, 0)
    by_group = np.bincount(places % clients, np.bincount(places)[places] if len(places) else None, clients)
    return {
        "torn apart": int((owner[unit] != placement.owner).sum()),
        "outside shares": outside,
        "load²": unevenness(columns, placement.counts(placement.owner)),
        "claims lost": int((np.bincount(claims.item, minlength=units).astype(bool) & ~kept).sum()),
        "stateful load²": _weighted(columns, by_group.astype(np.int64)),
        **_away(state, owner, kept),
        "standbys missing": int(wanted.sum()) - len(placement.standby_task),
        "total load²": unevenness(columns, placement.counts(owner) + placement.counts(standby % clients)),
        "tag values": -tag_values(placement),
        **_of_standbys(placement, previous_state(columns), use_racks=False),
    }


def unevenness(columns: StateColumns, loads: Int64Array) -> Fraction:
    """The sum over the clients of load² / threads, exactly."""
    return _weighted(columns, loads**2)


def _weighted(columns: StateColumns, squares: Int64Array) -> Fraction:
    threads = columns.clients.num_processing_threads
    return sum((Fraction(int(squares[threads == one].sum()), int(one)) for one in np.unique(threads)), Fraction())


def _outside(columns: StateColumns, counts: Int64Array, items: int) -> int:
    threads = columns.clients.num_processing_threads.astype(np.int64)
    low, high = items * threads // threads.sum(), -(-items * threads // threads.sum())
    return int((np.maximum(low - counts, 0) + np.maximum(counts - high, 0)).sum())


def _away(state: Pairs, owner: Int64Array, kept: BoolArray) -> Goals:
    """Items that moved away from all state; of the others how many clients have less lag than theirs, added up."""
    has_state = np.zeros(len(owner), dtype=np.bool_)
    has_state[state.item] = True
    there = np.flatnonzero(state.owner == owner[state.item])
    found = np.zeros(len(owner), dtype=np.bool_)
    found[state.item[there]] = True
    moved = there[~kept[state.item[there]]]
    return {"away from state": int((has_state & ~found & ~kept).sum()), "behind": int(state.behind()[moved].sum())}


def _of_standbys(placement: Judged, state: Pairs, use_racks: bool) -> Goals:
    columns, configs = placement.columns, placement.state.assignment_configs
    task, client = placement.standby_task, placement.standby_client
    moved = int((~state.have(task, client)).sum())
    logged = np.flatnonzero(columns.tasks.has_changelog)
    costs = costs_in_use(columns, configs, logged, "changelog") if use_racks else None
    if costs is None:
        return {"standbys moved": moved}
    return {"standby cost": crossings(columns, task, client, changelogs_only=True) * costs[0] + moved * costs[1]}


def tag_values(placement: Judged) -> int:
    """Different values of the tags that the settings name, of all who have a task, added up over the tasks with standbys."""
    columns, tags = placement.columns, placement.state.assignment_configs.rack_aware_assignment_tags
    logged = columns.tasks.has_changelog & (placement.owner >= 0)
    task = np.concatenate([np.flatnonzero(logged), placement.standby_task])
    client = np.concatenate([placement.owner[logged], placement.standby_client])
    number = 0
    for key in tags:
        given = [tags_of.get(key) for tags_of in columns.clients.client_tags]
        names = {name: place for place, name in enumerate(sorted({name for name in given if name is not None}))}
        value = np.array([-1 if name is None else names[name] for name in given], dtype=np.int64)[client]
        number += len(np.unique((task * (len(names) + 1) + value)[value >= 0]))
    return number


def crossings(columns: StateColumns, task: Int64Array, client: Int64Array, changelogs_only: bool = False) -> int:
    """Partitions of the tasks without a replica in the client's rack."""
    tasks, clients = columns.tasks, columns.clients
    number = {name: place for place, name in enumerate(clients.racks)}
    local = np.zeros((len(tasks.rack_sets), max(len(number), 1)), dtype=np.bool_)
    for row, names in enumerate(tasks.rack_sets):
        local[row, [number[name] for name in names if name in number]] = True
    partition = csr_rows(tasks.partition_offsets, task)
    rack = np.repeat(clients.rack[client], np.diff(tasks.partition_offsets)[task])
    if changelogs_only:
        chosen = tasks.partition_is_changelog[partition]
        partition, rack = partition[chosen], rack[chosen]
    return int((~local[tasks.partition_rack_set[partition], rack]).sum())


def _unit_claims(columns: StateColumns, unit: Int64Array) -> Pairs:
    """The claims on units that count: newest generation, then most stateful tasks, then most tasks."""
    client, task = columns.previous.pairs(Role.ACTIVE)
    generation = np.where(columns.clients.generation == MISSING, -1, columns.clients.generation)
    pairs, where = np.unique(np.stack([unit[task], client], axis=1), axis=0, return_inverse=True)
    stateful = np.bincount(where.reshape(-1), columns.tasks.is_stateful[task], len(pairs))
    number = np.bincount(where.reshape(-1), minlength=len(pairs))
    rank = _numbered(np.stack([generation[pairs[:, 1]], stateful.astype(np.int64), number], axis=1))
    return Pairs.of(pairs[:, 0], pairs[:, 1], rank).newest()


def _unit_state(columns: StateColumns, unit: Int64Array) -> Pairs:
    """Who has state of which unit: of most tasks first, then with least lag."""
    state = previous_state(columns)
    pairs, where = np.unique(np.stack([unit[state.item], state.owner], axis=1), axis=0, return_inverse=True)
    lag = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(lag, where.reshape(-1), np.minimum(state.rank, (1 << 40) - 1))
    number = np.bincount(where.reshape(-1), minlength=len(pairs))
    return Pairs.of(pairs[:, 0], pairs[:, 1], _numbered(np.stack([-number, lag], axis=1)))


def _numbered(rows: Int64Array) -> Int64Array:
    """(N,) the place of each row among the distinct ones, in order."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
