"""Staging a target on columns: tasks run where their state is until the wanted client has caught up (KIP-441).

Whether a target is a good one is not asked here. The order of the movements and every choice in them are Kafka's; the
public face is in `refiner.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from typing import Final

import attrs
import numpy as np

from task_assignor.kafka_order.client_queue import ClientQueue
from task_assignor.kafka_order.java_order import poll_order
from task_assignor.kafka_order.lags import Lags
from task_assignor.sdk.arrays import are_in, distinct, order_by
from task_assignor.sdk.columns import (
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

_BITS: Final = 32
_CLIENT: Final = 2**_BITS - 1
_NOBODY: Final = -1
_AT_ONCE: Final = 100_000


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
    clients, has_changelog = columns.clients, columns.tasks.has_changelog
    threads = clients.num_processing_threads.tolist()
    counts = np.bincount(active_owner[active_owner >= 0], minlength=len(clients))
    counts += np.bincount(standby_client, minlength=len(clients))
    plan = _Plan(lags, ClientQueue(clients.process_ids, counts.tolist(), threads), configs.max_warmup_replicas)
    standbys = _Holders(_keys(standby_task, standby_client), len(columns.tasks))

    placed = np.flatnonzero((active_owner >= 0) & has_changelog)
    behind = placed[lags.are_behind(placed, active_owner[placed])]
    behind = behind[order_by(lags.caught_up_count[behind], behind)]
    actives = plan.move_actives(behind, active_owner[behind].astype(np.int64), standbys)
    owner = active_owner.copy()
    owner[behind] = actives.placed
    gone, warm = actives.kind == MoveKind.SWAP, _keys(actives.task, actives.wanted)
    here = standbys.changed(_keys(actives.task, actives.placed)[gone], warm[actives.kind != MoveKind.NO_WARM_UP_LEFT])

    # Kafka looks at the standbys client by client; ties in its queue depend on that order.
    late = here.keys[~are_in(here.keys, warm[actives.kind == MoveKind.WARM_UP])]
    task, client = late >> _BITS, late & _CLIENT
    late = late[has_changelog[task] & lags.are_behind(task, client)]
    task, client = late >> _BITS, late & _CLIENT
    by_client = order_by(client, task)
    task, client = task[by_client], client[by_client]
    order = poll_order(lags.caught_up_count[task] * max(len(columns.tasks), 1) + task)
    # Kafka fills a new queue of clients for the standbys.
    plan.queue = ClientQueue(clients.process_ids, plan.queue.counts, threads)
    moves = plan.move_standbys(task[order], client[order], owner, here)
    gone = moves.kind == MoveKind.NO_WARM_UP_LEFT
    staged = here.changed(_keys(moves.task, moves.wanted)[gone], _keys(moves.task, moves.placed)).keys
    return Refined(owner, staged >> _BITS, staged & _CLIENT, actives, moves)


def _keys(task: Int32Array | Int64Array, client: Int32Array | Int64Array) -> Int64Array:
    """(N,) a number for each pair, that orders as they do."""
    keys: Int64Array = (task.astype(np.int64) << _BITS) | client
    return keys


@attrs.frozen(eq=False)
class _Holders:
    """Which clients have standbys of which tasks.

    Args:
        keys: (S,) a number for each pair, ascending.
        tasks: number of tasks.
    """

    keys: Int64Array
    _tasks: int
    _offsets: Int64Array = attrs.field(init=False)

    @_offsets.default
    def _offsets_of_tasks(self) -> Int64Array:
        return offsets_of(self.keys >> _BITS, self._tasks)

    def of(self, task: int) -> list[int]:
        """The clients that have a standby of the task."""
        clients: list[int] = (self.keys[self._offsets[task] : self._offsets[task + 1]] & _CLIENT).tolist()
        return clients

    def changed(self, removed: Int64Array, added: Int64Array) -> _Holders:
        """Without some pairs, then with others."""
        return _Holders(distinct(np.concatenate([self.keys[~are_in(self.keys, removed)], added])), self._tasks)


@attrs.frozen(eq=False)
class _Movers:
    """Copies that cannot be where the target has them yet, in the order in which they move.

    Args:
        task: (N,) task numbers.
        wanted: (N,) client of the target.
        is_swap: (N,) whether it changes places with a standby.
        offsets: (N + 1,) where the candidates of each begin.
        candidate: clients that can have each, ascending.
    """

    task: Int64Array
    wanted: Int64Array
    is_swap: BoolArray
    offsets: Int64Array
    candidate: Int64Array


class _Plan:
    """The queue of clients, the warm-ups that are left, and the movements made so far."""

    def __init__(self, lags: Lags, queue: ClientQueue, warm_ups_left: int) -> None:
        self._lags = lags
        self.queue = queue
        self._left = warm_ups_left
        self._rows: list[int] = []
        self._placed: list[int] = []
        self._kinds: list[int] = []

    def move_actives(self, task: Int64Array, wanted: Int64Array, standbys: _Holders) -> Moves:
        """Run each task on a caught-up standby, a caught-up client, or the client that is caught up most."""
        lags = self._lags.rows_of(task)
        row, client = lags.listed_caught_up(task)
        is_standby = are_in(_keys(task[row], client), standbys.keys)
        is_swap = np.zeros(len(task), dtype=np.bool_)
        is_swap[row[is_standby]] = True
        offered = is_standby | ~is_swap[row]
        offsets = offsets_of(row[offered], len(task))
        is_asked = (np.diff(offsets) == 0) | lags.others_caught_up[task]
        # Without a caught-up standby Kafka asks its queue in vain first, which empties it and fills it anew: what was done
        # before makes no difference then.
        is_first = ~is_swap & ~is_asked
        is_seen = ~is_first | np.append(~is_first[1:], False)
        movers = _Movers(task, wanted, is_swap, offsets, client[offered])
        for one in self._each(movers, is_asked, is_seen):
            own, caught_up = standbys.of(task[one]), lags.caught_up(int(task[one]))
            swaps = [client for client in own if client in caught_up]
            # Somebody is further than the wanted client, else the task would not move.
            alone = _NOBODY if swaps or caught_up else next(lags.by_lag(int(task[one])))
            found = swaps or caught_up or alone
            self._move(one, int(wanted[one]), found, is_swap=bool(swaps) or alone in own, is_first=not swaps)
        return self._take_moves(movers)

    def move_standbys(self, task: Int64Array, wanted: Int64Array, owner: Int32Array, standbys: _Holders) -> Moves:
        """Keep each standby on a client that is further, if there is one that has the task in no role."""
        lags = self._lags.rows_of(task)
        row, client = lags.listed_caught_up(task)
        offered = (client != owner[task[row]]) & ~are_in(_keys(task[row], client), standbys.keys)
        offsets = offsets_of(row[offered], len(task))
        # Of a task with several standbys that move, those before count.
        several = np.bincount(task, minlength=len(owner))[task] > 1
        is_asked = (np.diff(offsets) == 0) | lags.others_caught_up[task] | several
        movers = _Movers(task, wanted, np.zeros(len(task), dtype=np.bool_), offsets, client[offered])
        held: dict[int, set[int]] = {}
        for one in self._each(movers, is_asked, np.ones(len(task), dtype=np.bool_)):
            number, target = int(task[one]), int(wanted[one])
            holders = held.pop(number, None) or {int(owner[number]), *standbys.of(number)} - {_NOBODY}
            found: Collection[int] | int = lags.caught_up(number, holders)
            if not found:
                found = next((one for one in lags.further(number, target) if one not in holders), _NOBODY)
            if found == _NOBODY:
                self.queue.poll(())
            else:
                placed, kind = self._move(one, target, found, is_swap=False, is_first=isinstance(found, int))
                holders.add(placed)
                if kind == MoveKind.NO_WARM_UP_LEFT:
                    holders.remove(target)
            if several[one]:
                held[number] = holders
        return self._take_moves(movers)

    def _each(self, movers: _Movers, is_asked: BoolArray, is_seen: BoolArray) -> Iterator[int]:
        """The copies that are moved one by one, with the queue; those between them are moved here.

        Args:
            movers: the copies.
            is_asked: (N,) whose candidates are not listed.
            is_seen: (N,) which may make a difference to the order in the queue.
        """
        counts = np.diff(movers.offsets)
        # So many clients are as a rule taken out of the queue before a candidate.
        self.queue.expect(len(self.queue.counts) * float((1 / (counts + 1))[is_seen & (counts > 0)].sum()))
        done = 0
        for one in (*np.flatnonzero(is_asked | is_seen).tolist(), len(movers.task)):
            if one < len(movers.task) and self.queue.is_plain and not is_asked[one]:
                continue
            for start in range(done, one, _AT_ONCE):
                self._move_all(movers, slice(start, min(start + _AT_ONCE, one)))
            if one < len(movers.task):
                yield one
            done = one + 1

    def _move_all(self, movers: _Movers, part: slice) -> None:
        """Move the copies of a part, whose order in the queue does not matter, to the lightest candidates."""
        is_swap, offsets = movers.is_swap[part], movers.offsets[part.start : part.stop + 1]
        nth = np.cumsum(~is_swap)
        copies = np.where(nth <= self._left, MoveKind.WARM_UP, MoveKind.NO_WARM_UP_LEFT)
        kinds = np.where(is_swap, MoveKind.SWAP, copies)
        self._left -= int(nth[-1])
        candidates, starts = movers.candidate[offsets[0] : offsets[-1]].tolist(), (offsets - offsets[0]).tolist()
        giver = np.where(kinds == MoveKind.NO_WARM_UP_LEFT, movers.wanted[part], _NOBODY).tolist()
        self._placed += self.queue.choose(candidates, starts, (~is_swap).tolist(), giver)
        self._rows += range(part.start, part.stop)
        self._kinds += kinds.tolist()

    def _move(
        self, row: int, wanted: int, candidates: Collection[int] | int, *, is_swap: bool, is_first: bool
    ) -> tuple[int, MoveKind]:
        """Move one copy.

        Args:
            row: of the copy.
            wanted: the client of the target.
            candidates: the lightest of them gets it; or who gets it, whatever the loads are.
            is_swap: the two change places; else `wanted` keeps a copy too if there is a warm-up left.
            is_first: Kafka asks its queue in vain first.
        """
        queue = self.queue
        kind = MoveKind.SWAP if is_swap else MoveKind.WARM_UP if self._left > 0 else MoveKind.NO_WARM_UP_LEFT
        self._left -= not is_swap
        if is_first:
            queue.poll(())
        placed = candidates if isinstance(candidates, int) else queue.poll(candidates)
        if kind != MoveKind.SWAP:
            queue.change(placed, 1)
        if kind == MoveKind.NO_WARM_UP_LEFT:
            queue.change(wanted, -1)
        queue.offer(placed, wanted)
        self._rows.append(row)
        self._placed.append(placed)
        self._kinds.append(kind)
        return placed, kind

    def _take_moves(self, movers: _Movers) -> Moves:
        """The movements since the last call."""
        rows = np.array(self._rows, dtype=np.int64)
        moves = Moves(movers.task[rows], movers.wanted[rows], self._placed, self._kinds)
        self._rows, self._placed, self._kinds = [], [], []
        return moves
