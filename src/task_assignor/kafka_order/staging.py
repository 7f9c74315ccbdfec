"""Staging a target on columns: tasks run where their state is until the wanted client has caught up (KIP-441).

Whether a target is a good one is not asked here. The order of the movements and every choice in them are Kafka's; the
public face is in `refiner.py`.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import attrs
import numpy as np

from task_assignor.kafka_order.client_queue import AllBut, ClientQueue
from task_assignor.kafka_order.java_order import poll_order
from task_assignor.sdk.arrays import order_by, values_of
from task_assignor.sdk.columns import (
    LATEST_OFFSET,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    StateColumns,
    int8_column,
    int32_column,
    offsets_of,
)
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.sdk.errors import TaskAssignmentException
from task_assignor.sdk.integers import INT64_MAX


class MoveKind(enum.IntEnum):
    """What became of a copy whose client is not caught up, while another one is further.

    Attributes:
        SWAP: active and standby change places; costs no warm-up.
        WARM_UP: the wanted client keeps a copy that catches up; another client serves meanwhile.
        NO_WARM_UP_LEFT: all `max.warmup.replicas` are given away: the wanted client gets nothing this time.
    """

    SWAP = 0
    WARM_UP = 1
    NO_WARM_UP_LEFT = 2


@attrs.frozen(eq=False)
class Moves:
    """Movements in the order in which they were made.

    Args:
        task: (M,) task numbers.
        wanted: (M,) client of the target.
        placed: (M,) client that has the copy for now.
        kind: (M,) `MoveKind` numbers.
    """

    task: Int32Array = attrs.field(converter=int32_column, repr=False)
    wanted: Int32Array = attrs.field(converter=int32_column, repr=False)
    placed: Int32Array = attrs.field(converter=int32_column, repr=False)
    kind: Int8Array = attrs.field(converter=int8_column, repr=False)

    def __len__(self) -> int:
        return len(self.task)


@attrs.frozen(eq=False)
class Refined:
    """A staged target.

    Args:
        active_owner: (T,) who runs each task now; -1: nobody.
        standby_task: (S,) task numbers of standbys and warm-ups, sorted by task, then client.
        standby_client: (S,) their client numbers.
        active_moves: what happened to active tasks.
        standby_moves: what happened to standbys.
    """

    active_owner: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_client: Int32Array = attrs.field(converter=int32_column, repr=False)
    active_moves: Moves
    standby_moves: Moves

    @property
    def is_final(self) -> bool:
        """Nothing is left to move: no probing rebalance is needed."""
        return not len(self.active_moves) and not len(self.standby_moves)


def refine_columns(
    columns: StateColumns,
    configs: AssignmentConfigs,
    active_owner: Int32Array,
    standby_task: Int32Array,
    standby_client: Int32Array,
) -> Refined:
    """Stage a target: what is not caught up where it should be runs where it is caught up most.

    Args:
        columns: the state, with lags.
        configs: acceptable recovery lag and number of warm-ups.
        active_owner: (T,) target of the active tasks; -1: not placed. Tasks without changelog stay where they are.
        standby_task: (S,) target of the standbys: task numbers, pairs sorted by task, then client.
        standby_client: (S,) their client numbers.

    Raises:
        TaskAssignmentException: lags are not known.
    """
    lags = Lags(columns, configs.acceptable_recovery_lag)
    clients = len(columns.clients)
    counts = np.bincount(active_owner[active_owner >= 0], minlength=clients)
    counts += np.bincount(standby_client, minlength=clients)
    threads = columns.clients.num_processing_threads.tolist()
    queue = ClientQueue(columns.clients.process_ids, counts.tolist(), threads)
    plan = _Plan(queue, configs.max_warmup_replicas)
    standbys = _StandbySets(standby_task, standby_client, len(columns.tasks))
    owner = active_owner.copy()

    placed = np.flatnonzero((active_owner >= 0) & columns.tasks.has_changelog)
    behind = placed[lags.are_behind(placed, active_owner[placed])]
    behind = behind[order_by(lags.caught_up_count[behind], behind)]
    rows = lags.rows_of(behind)
    pairs = zip(behind.tolist(), owner[behind].tolist(), strict=True)
    owner[behind] = [plan.move_active(task, wanted, standbys.of(task), rows) for task, wanted in pairs]
    active_moves = plan.take_moves()

    pair_task, pair_client = standbys.pairs()
    # Kafka looks at the standbys client by client; ties in its queue depend on that order.
    order = order_by(pair_client, pair_task)
    pair_task, pair_client = pair_task[order], pair_client[order]
    warm_ups = np.array(plan.warm_ups, dtype=np.int64).reshape(-1, 2)
    is_warm_up = np.isin(pair_task.astype(np.int64) * clients + pair_client, warm_ups[:, 0] * clients + warm_ups[:, 1])
    movable = columns.tasks.has_changelog[pair_task] & ~is_warm_up
    pair_task, pair_client = pair_task[movable], pair_client[movable]
    late = lags.are_behind(pair_task, pair_client)
    pair_task, pair_client = pair_task[late], pair_client[late]
    # Kafka fills a new queue of clients for the standbys.
    plan.queue = ClientQueue(columns.clients.process_ids, plan.queue.counts, threads)
    order = poll_order(lags.caught_up_count[pair_task] * max(len(columns.tasks), 1) + pair_task)
    tasks, rows = pair_task[order], lags.rows_of(pair_task)
    for task, wanted, runs_on in zip(tasks.tolist(), pair_client[order].tolist(), owner[tasks].tolist(), strict=True):
        plan.move_standby(task, wanted, runs_on, standbys.of(task), rows)
    pair_task, pair_client = standbys.pairs()
    return Refined(owner, pair_task, pair_client, active_moves, plan.take_moves())


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
        self._key = pairs.client.astype(np.int64) * max(tasks, 1) + pairs.task
        self._is_caught_up = self._caught_up(pairs.lag)
        listed = np.bincount(pairs.task, minlength=tasks)
        self._default = columns.tasks.end_offset_sum
        # What is not listed has the end offset sum for its lag, which can be acceptable too.
        self._has_others = listed < clients
        self._others_caught_up = self._has_others & self._caught_up(self._default)
        self.caught_up_count: Int64Array = np.bincount(pairs.task[self._is_caught_up], minlength=tasks)
        """(T,) number of clients that are caught up."""
        self.caught_up_count[self._others_caught_up] += (clients - listed)[self._others_caught_up]
        least = np.where(self._has_others, self._default, INT64_MAX)
        np.minimum.at(least, pairs.task, pairs.lag)
        self._least = least

    def _caught_up(self, lag: Int64Array) -> BoolArray:
        if self._acceptable == INT64_MAX:
            return np.ones(len(lag), dtype=np.bool_)
        caught_up: BoolArray = (lag == LATEST_OFFSET) | ((lag >= 0) & (lag <= self._acceptable))
        return caught_up

    def of(self, task: Int32Array | Int64Array, client: Int32Array | Int64Array) -> Int64Array:
        """(N,) the lags of pairs."""
        key = client.astype(np.int64) * max(len(self._columns.tasks), 1) + task
        return values_of(self._key, self._columns.lags.lag, key, self._default[task])

    def are_behind(self, task: Int32Array | Int64Array, client: Int32Array | Int64Array) -> BoolArray:
        """(N,) whether the client is not caught up while another one is further."""
        lag = self.of(task, client)
        behind: BoolArray = ~self._caught_up(lag) & (self._least[task] < lag)
        return behind

    def rows_of(self, tasks: Int32Array | Int64Array) -> LagRows:
        """The lags of the given tasks, to be read task by task."""
        all_tasks = len(self._columns.tasks)
        wanted = np.zeros(all_tasks, dtype=np.bool_)
        wanted[tasks] = True
        pairs = self._columns.lags
        rows = np.flatnonzero(wanted[pairs.task])
        rows = rows[order_by(pairs.task[rows], pairs.lag[rows])]
        caught_up = rows[self._is_caught_up[rows]]
        return LagRows(
            clients=len(self._columns.clients),
            offsets=offsets_of(pairs.task[rows], all_tasks).tolist(),
            client=pairs.client[rows].tolist(),
            lag=pairs.lag[rows].tolist(),
            caught_up_offsets=offsets_of(pairs.task[caught_up], all_tasks).tolist(),
            caught_up_client=pairs.client[caught_up].tolist(),
            default=self._default,
            has_others=self._has_others,
            others_caught_up=self._others_caught_up,
        )


@attrs.frozen(eq=False)
class LagRows:
    """Lags of some tasks: rows sorted by task, lag, client; what is not listed has the default.

    In lists, of which single entries are read faster than of arrays.
    """

    clients: int
    offsets: list[int]
    client: list[int]
    lag: list[int]
    caught_up_offsets: list[int]
    caught_up_client: list[int]
    default: Int64Array
    has_others: BoolArray
    others_caught_up: BoolArray

    def _others(self, listed: Iterable[int]) -> Iterator[int]:
        known = set(listed)
        return (client for client in range(self.clients) if client not in known)

    def caught_up(self, task: int) -> list[int] | AllBut:
        """The clients that are caught up, in no particular order."""
        found = self.caught_up_client[self.caught_up_offsets[task] : self.caught_up_offsets[task + 1]]
        if not self.others_caught_up[task]:
            return found
        return AllBut(self.clients, set(self.client[self.offsets[task] : self.offsets[task + 1]]).difference(found))

    def by_lag(self, task: int) -> Iterator[int]:
        """All clients by lag, then client number."""
        start, stop = self.offsets[task], self.offsets[task + 1]
        if not self.has_others[task]:
            return iter(self.client[start:stop])
        default = int(self.default[task])
        first, last = (bisect(self.lag, default, start, stop) for bisect in (bisect_left, bisect_right))
        tied = heapq.merge(self.client[first:last], self._others(self.client[start:stop]))
        return itertools.chain(self.client[start:first], tied, self.client[last:stop])


class _Plan:
    """Loads, warm-ups that are left, and the movements made so far."""

    def __init__(self, queue: ClientQueue, warm_ups_left: int) -> None:
        self.queue = queue
        self._left = warm_ups_left
        self._moves: list[int] = []
        self.warm_ups: list[tuple[int, int]] = []
        """(task, client) of the warm-ups for active tasks."""

    def take_moves(self) -> Moves:
        """The movements since the last call."""
        table = np.array(self._moves, dtype=np.int64).reshape(-1, 4)
        self._moves = []
        return Moves(table[:, 0], table[:, 1], table[:, 2], table[:, 3])

    def _copy_to(self, placed: int, wanted: int) -> MoveKind:
        """One more copy on `placed`; the one on `wanted` stays if there is a warm-up left."""
        self.queue.change(placed, 1)
        self._left -= 1
        if self._left >= 0:
            return MoveKind.WARM_UP
        self.queue.change(wanted, -1)
        return MoveKind.NO_WARM_UP_LEFT

    def move_active(self, task: int, wanted: int, standbys: set[int], lags: LagRows) -> int:
        """Run the task elsewhere: on a caught-up standby, a caught-up client, or the one that is caught up most.

        Returns:
            The client that runs the task for now.
        """
        caught_up = lags.caught_up(task)
        swaps = [client for client in standbys if client in caught_up]
        placed = self.queue.poll(swaps)
        if placed < 0:
            placed = self.queue.poll(caught_up)
        if placed < 0:
            # Somebody is further than the wanted client, else this would not be called.
            placed = next(lags.by_lag(task))
        if placed in standbys:
            kind = MoveKind.SWAP
            standbys.remove(placed)
            standbys.add(wanted)
        else:
            kind = self._copy_to(placed, wanted)
            if kind is MoveKind.WARM_UP:
                standbys.add(wanted)
                self.warm_ups.append((task, wanted))
        self.queue.offer(placed, wanted)
        self._moves += (task, wanted, placed, kind)
        return placed

    def move_standby(self, task: int, wanted: int, owner: int, standbys: set[int], lags: LagRows) -> None:
        """Keep the standby on a client that is further, if there is one that has the task in no role."""
        caught_up, holders = lags.caught_up(task), {owner, *standbys}
        if isinstance(caught_up, AllBut):
            placed = self.queue.poll(caught_up.without(holders))
        else:
            placed = self.queue.poll([client for client in caught_up if client not in holders])
        if placed < 0:
            further = itertools.takewhile(lambda client: client != wanted, lags.by_lag(task))
            placed = next((client for client in further if client not in holders), -1)
        if placed < 0:
            return
        standbys.add(placed)
        kind = self._copy_to(placed, wanted)
        if kind is MoveKind.NO_WARM_UP_LEFT:
            standbys.remove(wanted)
        self.queue.offer(placed, wanted)
        self._moves += (task, wanted, placed, kind)


class _StandbySets:
    """Standbys per task: sets where they may change, columns for the rest."""

    def __init__(self, task: Int32Array, client: Int32Array, tasks: int) -> None:
        self._tasks, self._task, self._client = tasks, task, client
        self._offsets, self._clients = offsets_of(task, tasks).tolist(), client.tolist()
        self._sets: dict[int, set[int]] = {}

    def of(self, task: int) -> set[int]:
        """The clients that have a standby of the task; the caller may change the set."""
        if task not in self._sets:
            self._sets[task] = set(self._clients[self._offsets[task] : self._offsets[task + 1]])
        return self._sets[task]

    def pairs(self) -> tuple[Int32Array, Int32Array]:
        """(task, client) as they are now, sorted by task, then client."""
        if not self._sets:
            return self._task, self._client
        untouched = np.ones(self._tasks, dtype=np.bool_)
        untouched[list(self._sets)] = False
        kept = untouched[self._task]
        changed = np.repeat(list(self._sets), [len(clients) for clients in self._sets.values()])
        holders = np.fromiter(itertools.chain.from_iterable(self._sets.values()), dtype=np.int32, count=len(changed))
        task = np.concatenate([self._task[kept], changed.astype(np.int32)])
        client = np.concatenate([self._client[kept], holders])
        order = order_by(task, client)
        return task[order], client[order]
