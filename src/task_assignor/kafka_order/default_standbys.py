"""Default standbys on columns: by load, and by client tags (KIP-708). Moving standbys afterwards is not done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from task_assignor.kafka_order.java_order import hash_map_order
from task_assignor.kafka_order.least_loaded import LoadHeap
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns
from task_assignor.sdk.configs import AssignmentConfigs

FloatArray = npt.NDArray[np.float64]
_MOST_CACHED: Final = 20_000_000


def default_standbys(
    columns: StateColumns,
    configs: AssignmentConfigs,
    active_owner: Int32Array,
    placed_task: Int32Array,
    placed_client: Int32Array,
    *,
    in_java_order: bool = False,
) -> tuple[Int32Array, Int32Array]:
    """Give every task that has a changelog its standbys: by client tags if tags are configured, else by load.

    Loads count the active tasks and the standbys that are there, whatever the task.

    Args:
        columns: the state.
        configs: number of standbys and tags.
        active_owner: (T,) client number of the active owner; -1: nobody.
        placed_task: (S,) task numbers of standbys that are there already; they count and stay.
        placed_client: (S,) their client numbers.
        in_java_order: serve the tasks in the order of a `java.util.HashSet` of their ids (equal buckets: task-id order),
            as Kafka's public utility does; else in task-id order, as its high availability assignor does.

    Returns:
        (task, client) numbers of all standbys, first those that were there.
    """
    clients, threads = len(columns.clients), columns.clients.num_processing_threads
    stateful = np.flatnonzero(columns.tasks.has_changelog)
    if in_java_order:
        stateful = stateful[hash_map_order(columns.tasks, stateful)]
    held: dict[int, list[int]] = {}
    order = order_by(placed_task, placed_client)
    for task, client in zip(placed_task[order].tolist(), placed_client[order].tolist(), strict=True):
        held.setdefault(task, []).append(client)
    counts = np.bincount(active_owner[active_owner >= 0], minlength=clients)
    counts += np.bincount(placed_client, minlength=clients)
    there = np.bincount(placed_task, minlength=len(columns.tasks))[stateful]
    owner, lacking = active_owner[stateful], np.maximum(configs.num_standby_replicas - there, 0)
    rows, parts = np.arange(len(stateful)), [(placed_task, placed_client)]
    if configs.rack_aware_assignment_tags:
        entries = TagEntries(columns.clients.client_tags, configs.rack_aware_assignment_tags)
        parts.append(_by_tags(entries, stateful, owner, lacking, held, counts, threads))
        # What is left over: Kafka's map starts with all stateful tasks; those placed are removed from it.
        rows = hash_map_order(columns.tasks, stateful)
    parts.append(_by_load(stateful[rows], owner[rows], lacking[rows], held, counts, threads))
    tasks, holders = zip(*parts, strict=True)
    return np.concatenate(tasks), np.concatenate(holders)


def _by_load(
    stateful: Int64Array,
    owners: Int32Array,
    lacking: Int64Array,
    held: dict[int, list[int]],
    counts: Int64Array,
    threads: Int64Array,
) -> tuple[Int32Array, Int32Array]:
    """Each standby goes to the least loaded client that does not have the task."""
    take = LoadHeap(counts, threads).take
    found: list[int] = []
    got: list[int] = []
    for task, owner, lack in zip(stateful.tolist(), owners.tolist(), lacking.tolist(), strict=True):
        chosen = take(lack, (owner, *held[task]) if task in held else (owner,)) if lack else ()
        found += chosen
        got.append(len(chosen))
    return np.repeat(stateful, np.array(got, dtype=np.int64)).astype(np.int32), np.array(found, dtype=np.int32)


def _by_tags(
    entries: TagEntries,
    stateful: Int64Array,
    owners: Int32Array,
    lacking: Int64Array,
    held: dict[int, list[int]],
    counts: Int64Array,
    threads: Int64Array,
) -> tuple[Int32Array, Int32Array]:
    """Each standby goes to the least loaded client that shares no tag value with the task's earlier copies (KIP-708).

    A key of which the task's copies may already have seen every value no longer counts for this task. What finds no
    client this way is left over. Who lacks and holds what, and how much clients have, is kept up to date.
    """
    loads = counts / threads
    found_task: list[int] = []
    found_client: list[int] = []
    rows = np.flatnonzero((owners >= 0) & (lacking > 0))
    for row, task, owner in zip(rows.tolist(), stateful[rows].tolist(), owners[rows].tolist(), strict=True):
        holders = held.setdefault(task, [])
        used: frozenset[int] = frozenset()
        for seen, client in enumerate((owner, *holders), start=1):
            used = entries.after(used, client, seen)
        while lacking[row]:
            best = _lightest(loads, entries.allowed(used), [owner, *holders])
            if best < 0:
                break
            holders.append(best)
            found_task.append(task)
            found_client.append(best)
            counts[best] += 1
            loads[best] = counts[best] / threads[best]
            lacking[row] -= 1
            used = entries.after(used, best, 1 + len(holders))
    return np.array(found_task, dtype=np.int32), np.array(found_client, dtype=np.int32)


def _lightest(loads: FloatArray, allowed: Int64Array | None, copies: Sequence[int]) -> int:
    """The client of least (load, number) among the allowed ones (None: all) that has no copy yet; -1: nobody."""
    kept = loads[copies]
    loads[copies] = np.inf
    if allowed is None:
        best = int(loads.argmin())
    elif len(allowed):
        best = int(allowed[loads[allowed].argmin()])
    else:
        best = -1
    if best >= 0 and loads[best] == np.inf:
        best = -1
    loads[copies] = kept
    return best


class TagEntries:
    """Which clients carry which (key, value) of the configured tags.

    Args:
        client_tags: C mappings, key -> value.
        keys: the configured keys; tags with other keys are ignored.
    """

    def __init__(self, client_tags: Sequence[Mapping[str, str]], keys: Sequence[str]) -> None:
        numbers: dict[tuple[str, str], int] = {}
        self._count = len(client_tags)
        self._of_client: list[tuple[int, ...]] = []
        for tags in client_tags:
            own = [(key, tags[key]) for key in keys if key in tags]
            self._of_client.append(tuple(numbers.setdefault(entry, len(numbers)) for entry in own))
        values: dict[str, list[int]] = {}
        for (key, _value), number in numbers.items():
            values.setdefault(key, []).append(number)
        of_key = {key: frozenset(siblings) for key, siblings in values.items()}
        self._siblings = [of_key[key] for key, _value in numbers]
        self._clients: list[list[int]] = [[] for _ in numbers]
        for client, own_numbers in enumerate(self._of_client):
            for number in own_numbers:
                self._clients[number].append(client)
        self._allowed: dict[frozenset[int], Int64Array | None] = {}
        self._cached = 0

    def after(self, used: frozenset[int], client: int, copies: int) -> frozenset[int]:
        """The entries in use after `client` got a copy, with which there are `copies` of the task."""
        for entry in self._of_client[client]:
            siblings = self._siblings[entry]
            if len(siblings) <= copies:
                used -= siblings
            elif len(self._clients[entry]) > 1:
                # What one client alone carries bars nobody else, and that client has its copy already.
                used |= {entry}
        return used

    def allowed(self, used: frozenset[int]) -> Int64Array | None:
        """Clients that carry none of the used entries, ascending; None: all."""
        if not used:
            return None
        if used not in self._allowed:
            if self._cached > _MOST_CACHED:
                self._allowed.clear()
                self._cached = 0
            free = np.ones(self._count, dtype=np.bool_)
            for entry in used:
                free[self._clients[entry]] = False
            self._allowed[used] = np.flatnonzero(free)
            self._cached += self._count
        return self._allowed[used]
