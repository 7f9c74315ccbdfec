"""Default standbys on columns: by load, and by client tags (KIP-708). Moving standbys afterwards is not done here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from task_assignor.kafka_order.java_order import hash_map_order
from task_assignor.kafka_order.least_loaded import LoadHeap
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns

FloatArray = npt.NDArray[np.float64]
_MOST_CACHED: Final = 20_000_000


def default_standbys(
    columns: StateColumns,
    num_standby_replicas: int,
    tags: Int64Array,
    active_owner: Int32Array,
    placed_task: Int32Array,
    placed_client: Int32Array,
    *,
    in_task_order: bool,
) -> tuple[Int32Array, Int32Array]:
    """Give every task that has a changelog its standbys: by client tags if tags are configured, else by load.

    Loads count the active tasks and the standbys that are there, whatever the task.

    Args:
        columns: the state.
        num_standby_replicas: number of standbys.
        tags: (C, G) number of each client's value of each configured tag key; -1: it has none.
        active_owner: (T,) client number of the active owner; -1: nobody.
        placed_task: (S,) task numbers of standbys that are there already; they count and stay.
        placed_client: (S,) their client numbers.
        in_task_order: serve the tasks in the order of their ids, as Kafka's high availability assignor does; else in that of
            a `java.util.HashSet` of them (equal buckets: task-id order), as its public utility does.

    Returns:
        (task, client) numbers of all standbys, first those that were there.
    """
    stateful = np.flatnonzero(columns.tasks.has_changelog)
    if not in_task_order:
        stateful = stateful[hash_map_order(columns.tasks, stateful)]
    standbys = _Standbys(columns, num_standby_replicas, active_owner, placed_task, placed_client)
    parts = [(placed_task, placed_client)]
    if tags.shape[1]:
        parts.append(standbys.by_tags(stateful, TagEntries(tags)))
        # What is left over: Kafka's map starts with all stateful tasks; those placed are removed from it.
        stateful = stateful[hash_map_order(columns.tasks, stateful)]
    parts.append(standbys.by_load(stateful))
    tasks, holders = zip(*parts, strict=True)
    return np.concatenate(tasks), np.concatenate(holders)


class _Standbys:
    """Who holds what, how much clients have, and how many standbys tasks lack: all that changes as standbys are placed."""

    def __init__(
        self,
        columns: StateColumns,
        replicas: int,
        owner: Int32Array,
        placed_task: Int32Array,
        placed_client: Int32Array,
    ) -> None:
        clients, self.threads, self.owner = len(columns.clients), columns.clients.num_processing_threads, owner
        self.held: dict[int, list[int]] = {}
        order = order_by(placed_task, placed_client)
        for task, client in zip(placed_task[order].tolist(), placed_client[order].tolist(), strict=True):
            self.held.setdefault(task, []).append(client)
        self.counts = np.bincount(owner[owner >= 0], minlength=clients) + np.bincount(placed_client, minlength=clients)
        self.lacking = np.maximum(replicas - np.bincount(placed_task, minlength=len(columns.tasks)), 0)

    def by_load(self, tasks: Int64Array) -> tuple[Int32Array, Int32Array]:
        """Each standby goes to the least loaded client that does not have the task: (task, client) numbers."""
        take, held = LoadHeap(self.counts, self.threads).take, self.held
        found: list[int] = []
        got: list[int] = []
        for task, owner, lack in zip(
            tasks.tolist(), self.owner[tasks].tolist(), self.lacking[tasks].tolist(), strict=True
        ):
            chosen = take(lack, (owner, *held.get(task, ()))) if lack else ()
            found += chosen
            got.append(len(chosen))
        return np.repeat(tasks, np.array(got, dtype=np.int64)).astype(np.int32), np.array(found, dtype=np.int32)

    def by_tags(self, tasks: Int64Array, entries: TagEntries) -> tuple[Int32Array, Int32Array]:
        """Each standby goes to the least loaded client that shares no tag value with the task's earlier copies (KIP-708).

        A key of which the task's copies may already have seen every value no longer counts for this task. What finds no
        client this way is left over.
        """
        loads = self.counts / self.threads
        found: list[tuple[int, int]] = []
        tasks = tasks[(self.owner[tasks] >= 0) & (self.lacking[tasks] > 0)]
        for task, owner in zip(tasks.tolist(), self.owner[tasks].tolist(), strict=True):
            holders = self.held.setdefault(task, [])
            used: frozenset[int] = frozenset()
            for seen, client in enumerate((owner, *holders), start=1):
                used = entries.after(used, client, seen)
            while self.lacking[task]:
                best = _lightest(loads, entries.allowed(used), [owner, *holders])
                if best < 0:
                    break
                holders.append(best)
                found.append((task, best))
                self.counts[best] += 1
                loads[best] = self.counts[best] / self.threads[best]
                self.lacking[task] -= 1
                used = entries.after(used, best, 1 + len(holders))
        placed = np.array(found, dtype=np.int32).reshape(-1, 2)
        return placed[:, 0], placed[:, 1]


def _lightest(loads: FloatArray, allowed: Int64Array, copies: Sequence[int]) -> int:
    """The client of least (load, number) among the allowed ones that has no copy yet; -1: nobody."""
    kept = loads[copies]
    loads[copies] = np.inf
    best = int(allowed[loads[allowed].argmin()]) if len(allowed) else -1
    if loads[best] == np.inf:
        best = -1
    loads[copies] = kept
    return best


class TagEntries:
    """Which clients carry which (key, value).

    Args:
        values: (C, G) number of each client's value of each key; -1: it has none.
    """

    def __init__(self, values: Int64Array) -> None:
        end = np.cumsum(values.max(axis=0, initial=-1) + 1)
        first = np.append(0, end)[:-1]
        self._of_client = [(own[own >= 0] + first[own >= 0]).tolist() for own in values]
        self._siblings = [frozenset(range(*key)) for key in zip(first, end, strict=True) for _ in range(*key)]
        self._clients: list[list[int]] = [[] for _ in self._siblings]
        for client, entries in enumerate(self._of_client):
            for entry in entries:
                self._clients[entry].append(client)
        self.allowed = lru_cache(_MOST_CACHED // max(len(values), 1))(self._allowed)

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

    def _allowed(self, used: frozenset[int]) -> Int64Array:
        """Clients that carry none of the used entries, ascending."""
        free = np.ones(len(self._of_client), dtype=np.bool_)
        for entry in used:
            free[self._clients[entry]] = False
        return np.flatnonzero(free)
