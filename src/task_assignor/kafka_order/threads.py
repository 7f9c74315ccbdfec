"""Balancing tasks over threads as high availability does it: pair by pair, in passes, until nothing moves.

The result is that of visiting every ordered pair of clients in every pass. Pairs between which nothing can move are
ruled out by arrays instead of being visited.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, offsets_of

FloatArray = npt.NDArray[np.float64]


class _Loads:
    """How many tasks each client has, and between whom a move evens out.

    A move does so if the source stays at least as loaded as the destination, and closer to it than before. Loads are
    doubles computed in the order in which Kafka computes them.
    """

    def __init__(self, counts: Int64Array, threads: Int64Array) -> None:
        self.counts: list[int] = counts.tolist()
        self._own: list[int] = threads.tolist()
        self.with_one_more: FloatArray = (counts + 1.0) / threads
        """(C,) what a source must at least keep to give a task to each client. Only then the move can even out."""
        self._lightest: float | None = None

    def evens_out(self, source: int, destination: int, moved: int) -> bool:
        """Whether one more move evens out after `moved` moves between the two that were not reported yet."""
        source_count, source_threads = self.counts[source] - moved, self._own[source]
        count, threads = self.counts[destination] + moved, self._own[destination]
        skew = source_count / source_threads - count / threads
        skew_after = (source_count - 1.0) / source_threads - (count + 1.0) / threads
        return skew > 0 and 0 <= skew_after < skew

    def after_giving(self, source: int) -> float:
        """The load of a client with one task less."""
        return (self.counts[source] - 1.0) / self._own[source]

    def may_give(self, source: int) -> bool:
        """Whether there can be a destination at all."""
        if self._lightest is None:
            self._lightest = float(self.with_one_more.min())
        return self.after_giving(source) >= self._lightest

    def report(self, source: int, destination: int, moved: int) -> None:
        """`moved` tasks went from the source to the destination."""
        self.counts[source] -= moved
        self.counts[destination] += moved
        for client in (source, destination):
            self.with_one_more[client] = (self.counts[client] + 1.0) / self._own[client]
        self._lightest = None


class _Holdings:
    """Which rows and which tasks each client has; made into lists only for the clients that are asked for."""

    def __init__(self, task: Int32Array, client: Int32Array, clients: int) -> None:
        self._task = task
        self._order = order_by(client)
        self._offsets = offsets_of(client[self._order], clients)
        self._of: dict[int, tuple[list[int], set[int]]] = {}

    def of(self, client: int) -> tuple[list[int], set[int]]:
        """The client's rows, a heap, and their tasks; the caller may change both."""
        if client not in self._of:
            # Sorted lists are heaps.
            rows = self._order[self._offsets[client] : self._offsets[client + 1]]
            self._of[client] = rows.tolist(), set(self._task[rows].tolist())
        return self._of[client]


def _first_within(limits: FloatArray, value: float, start: int) -> int:
    """The first place from `start` on with a limit of at most `value`; -1: none."""
    # It is near as a rule.
    for end in (start + 64, len(limits)):
        window = limits[start:end] <= value
        if len(window):
            place = int(window.argmax())
            if window[place]:
                return start + place
        start = end
    return -1


def balance_active(owner: Int32Array, threads: Int64Array) -> Int32Array:
    """Active tasks spread evenly over the threads.

    Args:
        owner: (N,) owners of the tasks to balance, in task-id order. Nothing else is on the clients.
        threads: (C,) threads of the clients.

    Returns:
        (N,) new owners.
    """
    nobody, untagged = np.full(len(owner), -1, dtype=np.int32), np.zeros((len(threads), 0), dtype=np.int64)
    return balance_standby(nobody, np.arange(len(owner), dtype=np.int32), owner, threads, untagged)


def balance_standby(
    active_owner: Int32Array,
    standby_task: Int32Array,
    standby_client: Int32Array,
    threads: Int64Array,
    tags: Int64Array,
) -> Int32Array:
    """Standbys spread so that all tasks together are even over the threads.

    Every ordered pair of clients is visited, again and again, until a pass moves nothing. From one client to the other go
    the lowest tasks that the other does not have, as long as it evens out.

    Args:
        active_owner: (T,) owner of every task that counts; -1: nobody.
        standby_task: (S,) task numbers, pairs sorted by task.
        standby_client: (S,) client numbers.
        threads: (C,) threads of the clients.
        tags: (C, G) number of each client's value of each tag key; -1: it has none. A standby moves only to clients that
            have all tags of its client.

    Returns:
        (S,) new client numbers.
    """
    clients = len(threads)
    counts = np.bincount(active_owner[active_owner >= 0], minlength=clients)
    loads = _Loads(counts + np.bincount(standby_client, minlength=clients), threads)
    holdings = _Holdings(standby_task, standby_client, clients)
    task_of, active_on, new_client = standby_task.tolist(), active_owner.tolist(), standby_client.tolist()

    def move(source: int, destination: int) -> bool:
        (mine, here), (theirs, there) = holdings.of(source), holdings.of(destination)
        moved, staying = 0, []
        # Rows are in task order, a client has a task once: the lowest row is the lowest task.
        while mine and loads.evens_out(source, destination, moved):
            row = heapq.heappop(mine)
            task = task_of[row]
            if task in there or active_on[task] == destination:
                staying.append(row)
                continue
            heapq.heappush(theirs, row)
            here.remove(task)
            there.add(task)
            new_client[row] = destination
            moved += 1
        for row in staying:
            heapq.heappush(mine, row)
        if moved:
            loads.report(source, destination, moved)
        return moved > 0

    def limits_of(source: int) -> FloatArray:
        """What the source must at least keep to give a task to each client; kept up to date unless only some may get them."""
        own = np.flatnonzero(tags[source] >= 0)
        if not len(own):
            return loads.with_one_more
        return np.where((tags[:, own] == tags[source, own]).all(axis=1), loads.with_one_more, np.inf)

    is_moving = True
    while is_moving:
        is_moving = False
        for source in range(clients):
            if not (loads.may_give(source) and (mine := holdings.of(source)[0])):
                continue
            limits = limits_of(source)
            destination = _first_within(limits, loads.after_giving(source), 0)
            while mine and destination >= 0:
                is_moving |= move(source, destination)
                destination = _first_within(limits, loads.after_giving(source), destination + 1)
    return np.array(new_client, np.int32)
