"""Who is how far behind on which task, and who is caught up (KIP-441): looked up for many tasks at once, or task by task."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from task_assignor.kafka_order.client_queue import AllBut
from task_assignor.sdk.arrays import csr_pairs, order_by
from task_assignor.sdk.columns import LATEST_OFFSET, BoolArray, Int32Array, Int64Array, StateColumns, offsets_of
from task_assignor.sdk.errors import TaskAssignmentException
from task_assignor.sdk.integers import INT64_MAX


class Lags:
    """Who is how far behind, for all tasks that have a changelog.

    A client is caught up on a task that was an active running task there, or of which the lag is acceptable. A lag that
    is not known (-3) sorts before all others without being acceptable, as in Kafka.

    Raises:
        TaskAssignmentException: the lags of a client are not known at all.
    """

    def __init__(self, columns: StateColumns, acceptable: int) -> None:
        if not columns.lags.is_computed.all() and columns.tasks.has_changelog.any():
            client = columns.clients.process_ids[int(np.argmin(columns.lags.is_computed))]
            raise TaskAssignmentException(
                f"The lags of client {client} are not known (taskLags is null), so nobody can say where a task is caught "
                "up. Maybe give the lags, or take an assignor that does not look at them, like sticky."
            )
        self._columns = columns
        self._acceptable = acceptable
        tasks, clients = len(columns.tasks), len(columns.clients)
        pairs = columns.lags
        self._is_caught_up = self._caught_up(pairs.lag)
        listed = np.bincount(pairs.task, minlength=tasks)
        # What is not listed has the end offset sum for its lag, which can be acceptable too.
        default, has_others = columns.tasks.end_offset_sum, listed < clients
        self._others_caught_up = has_others & self._caught_up(default)
        self.caught_up_count: Int64Array = np.bincount(pairs.task[self._is_caught_up], minlength=tasks)
        """(T,) number of clients that are caught up."""
        self.caught_up_count[self._others_caught_up] += (clients - listed)[self._others_caught_up]
        least = np.where(has_others, default, INT64_MAX)
        np.minimum.at(least, pairs.task, pairs.lag)
        self._least = least

    def _caught_up(self, lag: Int64Array) -> BoolArray:
        if self._acceptable == INT64_MAX:
            return np.ones(len(lag), dtype=np.bool_)
        caught_up: BoolArray = (lag == LATEST_OFFSET) | ((lag >= 0) & (lag <= self._acceptable))
        return caught_up

    def are_behind(self, task: Int32Array | Int64Array, client: Int32Array | Int64Array) -> BoolArray:
        """(N,) whether the client is not caught up while another one is further."""
        lag = self._columns.lags_of(client, task)
        behind: BoolArray = ~self._caught_up(lag) & (self._least[task] < lag)
        return behind

    def rows_of(self, tasks: Int32Array | Int64Array) -> LagRows:
        """The lags of the given tasks, to be read task by task."""
        wanted = np.zeros(len(self._columns.tasks), dtype=np.bool_)
        wanted[tasks] = True
        rows = np.flatnonzero(wanted[self._columns.lags.task])
        return LagRows(self._columns, rows, rows[self._is_caught_up[rows]], self._others_caught_up)


class LagRows:
    """Lags of some tasks, by lag and by who is caught up. What is not listed has the end offset sum for its lag.

    Args:
        columns: the state.
        rows: rows of its lags, all of each task.
        caught_up: those of clients that are caught up.
        others_caught_up: (T,) whether all that are not listed are caught up.
    """

    def __init__(
        self, columns: StateColumns, rows: Int64Array, caught_up: Int64Array, others_caught_up: BoolArray
    ) -> None:
        pairs, tasks = columns.lags, len(columns.tasks)
        rows = rows[order_by(pairs.task[rows], pairs.lag[rows])]
        caught_up = caught_up[order_by(pairs.task[caught_up], pairs.client[caught_up])]
        self._clients, self._default = len(columns.clients), columns.tasks.end_offset_sum
        self._offsets, self._client, self._lag = (
            offsets_of(pairs.task[rows], tasks),
            pairs.client[rows],
            pairs.lag[rows],
        )
        self._caught_up_offsets = offsets_of(pairs.task[caught_up], tasks)
        self._caught_up_client = pairs.client[caught_up]
        self.others_caught_up = others_caught_up

    def listed_caught_up(self, tasks: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(row of `tasks`, client) of all that are caught up and have a row, ascending."""
        row, entry = csr_pairs(self._caught_up_offsets, tasks)
        return row, self._caught_up_client[entry].astype(np.int64)

    def _listed(self, task: int) -> tuple[list[int], list[int]]:
        rows = slice(self._offsets[task], self._offsets[task + 1])
        return self._client[rows].tolist(), self._lag[rows].tolist()

    def caught_up(self, task: int, but: AbstractSet[int] = frozenset()) -> Collection[int]:
        """The clients that are caught up, ascending, but for some."""
        rows = slice(self._caught_up_offsets[task], self._caught_up_offsets[task + 1])
        found = [client for client in self._caught_up_client[rows].tolist() if client not in but]
        if not self.others_caught_up[task]:
            return found
        return AllBut(self._clients, {*but, *self._listed(task)[0]}.difference(found))

    def by_lag(self, task: int) -> Iterator[int]:
        """All clients by lag, then client number."""
        listed, lag = self._listed(task)
        if len(listed) == self._clients:
            return iter(listed)
        first, last = (side(lag, self._default[task]) for side in (bisect_left, bisect_right))
        others = AllBut(self._clients, set(listed))
        return itertools.chain(listed[:first], heapq.merge(listed[first:last], others), listed[last:])

    def further(self, task: int, client: int) -> Iterator[int]:
        """The clients before one of them by lag, then client number."""
        return itertools.takewhile(lambda other: other != client, self.by_lag(task))
