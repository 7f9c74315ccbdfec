"""Balancing tasks over threads as high availability does it: pair by pair, in passes, until nothing moves.

The result is that of visiting every ordered pair of clients in every pass. Pairs between which nothing can move are
ruled out by arrays instead of being visited.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array, offsets_of

FloatArray = npt.NDArray[np.float64]


class _Loads:
    """How many tasks each client has, and between whom a move evens out.

    A move does so if the source stays at least as loaded as the destination, and closer to it than before. Loads are
    doubles computed in the order in which Kafka computes them.
    """

    def __init__(self, counts: Int64Array, threads: Int64Array) -> None:
        self.counts: list[int] = counts.tolist()
        self._own: list[int] = threads.tolist()
        self._with_one_more: FloatArray = (counts + 1.0) / threads
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
            self._lightest = float(self._with_one_more.min())
        return self.after_giving(source) >= self._lightest

    def limits(self, may_receive: BoolArray | None) -> FloatArray:
        """(C,) what a source must at least keep to give a task to each client: the client's load with one task more.

        Only then the move can even out; whether it does is up to `evens_out`. Kept up to date by `report`, unless only
        some clients may receive: then it must not be used any more after the source.
        """
        return self._with_one_more if may_receive is None else np.where(may_receive, self._with_one_more, np.inf)

    def report(self, source: int, destination: int, moved: int) -> None:
        """`moved` tasks went from the source to the destination."""
        self.counts[source] -= moved
        self.counts[destination] += moved
        for client in (source, destination):
            self._with_one_more[client] = (self.counts[client] + 1.0) / self._own[client]
        self._lightest = None


class _Holdings:
    """Which rows each client has; made into lists only for the clients that are asked for."""

    def __init__(self, client: Int32Array, clients: int) -> None:
        self._order = order_by(client)
        self._offsets = offsets_of(client[self._order], clients)
        self._lists: dict[int, list[int]] = {}

    def of(self, client: int) -> list[int]:
        """The client's rows, ascending at first; the caller may change the list."""
        if client not in self._lists:
            self._lists[client] = self._order[self._offsets[client] : self._offsets[client + 1]].tolist()
        return self._lists[client]


def _balance(
    loads: _Loads,
    holdings: _Holdings,
    move: Callable[[int, int], int],
    may_receive: Callable[[int], BoolArray | None] | None = None,
) -> None:
    """Visit the ordered pairs of clients, again and again, until a pass moves nothing.

    Args:
        loads: the counts; kept up to date here.
        holdings: what can move; kept up to date by `move`.
        move: moves what it can from one client to another as long as it evens out; returns how many tasks these were.
        may_receive: the clients that may get tasks of the given one; None: all.
    """
    moving = True
    while moving:
        moving = False
        for source in range(len(loads.counts)):
            mine = holdings.of(source)
            if not (mine and loads.may_give(source)):
                continue
            limits = loads.limits(may_receive(source) if may_receive else None)
            after = loads.after_giving(source)
            destination = _first_within(limits, after, 0)
            while mine and destination >= 0:
                moved = move(source, destination)
                if moved:
                    loads.report(source, destination, moved)
                    after = loads.after_giving(source)
                    moving = True
                destination = _first_within(limits, after, destination + 1)


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
    loads = _Loads(np.bincount(owner, minlength=len(threads)), threads)
    holdings = _Holdings(owner, len(threads))
    owner = owner.copy()

    def move(source: int, destination: int) -> int:
        # Sorted lists are heaps; they stay heaps.
        mine, theirs = holdings.of(source), holdings.of(destination)
        moved = 0
        while mine and loads.evens_out(source, destination, moved):
            row = heapq.heappop(mine)
            heapq.heappush(theirs, row)
            owner[row] = destination
            moved += 1
        return moved

    _balance(loads, holdings, move)
    return owner


def balance_standby(
    active_owner: Int32Array,
    standby_task: Int32Array,
    standby_client: Int32Array,
    threads: Int64Array,
    tags: Int64Array,
) -> Int32Array:
    """Standbys spread so that all tasks together are even over the threads.

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
    holdings = _Holdings(standby_client, clients)
    task_of: list[int] = standby_task.tolist()
    active_on: list[int] = active_owner.tolist()
    tasks_of: dict[int, set[int]] = {}
    new_client: list[int] = standby_client.tolist()

    def standbys_of(client: int) -> set[int]:
        if client not in tasks_of:
            tasks_of[client] = {task_of[row] for row in holdings.of(client)}
        return tasks_of[client]

    def move(source: int, destination: int) -> int:
        mine, theirs = holdings.of(source), holdings.of(destination)
        here, there = standbys_of(source), standbys_of(destination)
        moving: list[int] = []
        staying: list[int] = []
        # Rows are in task order, a client has a task once: the lowest row is the lowest task.
        for row in mine:
            if not loads.evens_out(source, destination, len(moving)):
                break
            task = task_of[row]
            is_there = task in there or active_on[task] == destination
            (staying if is_there else moving).append(row)
        if moving:
            mine[: len(moving) + len(staying)] = staying
            theirs += moving
            theirs.sort()
            for row in moving:
                new_client[row] = destination
                here.remove(task_of[row])
                there.add(task_of[row])
        return len(moving)

    def may_receive(source: int) -> BoolArray | None:
        own = np.flatnonzero(tags[source] >= 0)
        return (tags[:, own] == tags[source, own]).all(axis=1) if len(own) else None

    _balance(loads, holdings, move, may_receive if tags.shape[1] else None)
    return np.array(new_client, np.int32)
