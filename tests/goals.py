"""The numbers by which assignments are compared: the vectors' `metrics`, and the goals of `StickyTaskAssignor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Any

import attrs
import numpy as np

from task_assignor.sdk import (
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    Role,
    TaskId,
)
from task_assignor.sdk.columns import LATEST_OFFSET, Int64Array


@attrs.frozen(eq=False)
class Judged:
    """Who has what, as numbers: owner per task (-1: nobody) and pairs of standbys."""

    state: ApplicationState = attrs.field(repr=False)
    owner: Int64Array
    standby_task: Int64Array
    standby_client: Int64Array

    @classmethod
    def of(cls, state: ApplicationState, assignments: Iterable[KafkaStreamsAssignment]) -> Judged:
        """From what an assignor returned."""
        pairs = [
            (assignment.process_id, task.id, task.type is AssignedTask.Type.ACTIVE)
            for assignment in assignments
            for task in assignment.tasks.values()
        ]
        return cls._of_pairs(state, pairs)

    @classmethod
    def of_json(cls, state: ApplicationState, placements: Iterable[Mapping[str, Any]]) -> Judged:
        """From placements of a vector."""
        pairs = [
            (ProcessId.parse(placement["processId"]), TaskId.parse(text), key == "activeTasks")
            for placement in placements
            for key in ("activeTasks", "standbyTasks")
            for text in placement[key]
        ]
        return cls._of_pairs(state, pairs)

    @classmethod
    def _of_pairs(cls, state: ApplicationState, pairs: list[tuple[ProcessId, TaskId, bool]]) -> Judged:
        tasks, clients = state.columns.tasks, state.columns.clients
        owner = np.full(len(tasks), -1, dtype=np.int64)
        standbys = []
        for process_id, task_id, is_active in pairs:
            task, client = tasks.find(task_id), clients.find(process_id)
            if is_active:
                owner[task] = client
            else:
                standbys.append((task, client))
        table = np.array(sorted(standbys), dtype=np.int64).reshape(-1, 2)
        return cls(state, owner, table[:, 0], table[:, 1])

    @property
    def actives(self) -> Int64Array:
        """(C,) active tasks per client."""
        return np.bincount(self.owner[self.owner >= 0], minlength=len(self.state.columns.clients))

    @property
    def totals(self) -> Int64Array:
        """(C,) active and standby tasks per client."""
        return self.actives + np.bincount(self.standby_client, minlength=len(self.actives))

    def _share_violation(self, counts: Int64Array) -> int:
        """By how many tasks the clients are outside floor..ceil of their thread-weighted share of these, added up."""
        threads = self.state.columns.clients.num_processing_threads
        return outside_shares(counts.tolist(), threads.tolist())

    @property
    def share_violation(self) -> int:
        """By how many active tasks the clients are outside floor..ceil of their thread-weighted share, added up."""
        return self._share_violation(self.actives)

    @property
    def total_share_violation(self) -> int:
        """The same of all tasks."""
        return self._share_violation(self.totals)

    @property
    def moved(self) -> int:
        """Tasks that had a previous active owner and are active elsewhere now."""
        owners: dict[int, set[int]] = {}
        for client, task in zip(*self.state.columns.previous.pairs(Role.ACTIVE), strict=True):
            owners.setdefault(int(task), set()).add(int(client))
        return sum(self.owner[task] >= 0 and int(self.owner[task]) not in had for task, had in owners.items())

    def _spread(self, counts: Int64Array) -> float:
        if not len(counts):
            return 0.0
        per_thread = counts / self.state.columns.clients.num_processing_threads
        return round(float(per_thread.max() - per_thread.min()), 9)

    @property
    def stateful_spread(self) -> float:
        """Max - min over the clients of stateful active tasks per thread."""
        chosen = (self.owner >= 0) & self.state.columns.tasks.is_stateful
        return self._spread(np.bincount(self.owner[chosen], minlength=len(self.state.columns.clients)))

    @property
    def active_spread(self) -> float:
        """Max - min over the clients of active tasks per thread."""
        return self._spread(self.actives)

    @property
    def total_spread(self) -> float:
        """Max - min over the clients of all tasks per thread."""
        return self._spread(self.totals)

    def _unevenness(self, counts: Int64Array) -> Fraction:
        """The sum of load² / threads."""
        threads = self.state.columns.clients.num_processing_threads.tolist()
        return sum((Fraction(count**2, one) for count, one in zip(counts.tolist(), threads, strict=True)), Fraction())

    @property
    def stateful_unevenness(self) -> Fraction:
        """Sum over the clients of (stateful active tasks)² / threads."""
        chosen = (self.owner >= 0) & self.state.columns.tasks.is_stateful
        return self._unevenness(np.bincount(self.owner[chosen], minlength=len(self.state.columns.clients)))

    @property
    def active_unevenness(self) -> Fraction:
        """Sum over the clients of (active tasks)² / threads."""
        return self._unevenness(self.actives)

    @property
    def total_unevenness(self) -> Fraction:
        """Sum over the clients of (all tasks)² / threads."""
        return self._unevenness(self.totals)

    @property
    def away_from_state(self) -> int:
        """Tasks of which some client has state, but not the one that they are active on."""
        previous = self.state.columns.previous
        had = set(zip(previous.task.tolist(), previous.client.tolist(), strict=True))
        return sum(
            (task, int(self.owner[task])) not in had and bool(self.state.columns.tasks.has_changelog[task])
            for task in {task for task, _ in had}
        )

    @property
    def behind(self) -> int:
        """Of tasks that move to a client with state: how many clients have state that is less behind, added up."""
        columns = self.state.columns
        ranks: dict[int, dict[int, float]] = {}
        pairs = zip(
            columns.previous.client.tolist(),
            columns.previous.role.tolist(),
            columns.previous.task.tolist(),
            strict=True,
        )
        active = set()
        for client, role, task in pairs:
            if role == Role.ACTIVE:
                active.add((task, client))
            if columns.tasks.has_changelog[task]:
                (lag,) = columns.lags_of(np.array([client]), np.array([task])).tolist()
                if lag == MISSING:
                    # What the client has not told: an active task runs, a standby has caught up.
                    lag = LATEST_OFFSET if (task, client) in active else 0
                lags = {LATEST_OFFSET: -1.0, UNKNOWN_OFFSET_SUM: inf}
                ranks.setdefault(task, {})[client] = lags.get(lag, max(lag, 0))
        return sum(
            rank < ranks[task][owner]
            for task, owner in enumerate(self.owner.tolist())
            if owner in ranks.get(task, ()) and (task, owner) not in active
            for rank in ranks[task].values()
        )

    @property
    def cross_rack(self) -> int:
        """Topic partitions of active tasks that have no replica in the rack of the task's owner."""
        tasks, clients = self.state.columns.tasks, self.state.columns.clients
        crossings = 0
        for task, owner in enumerate(self.owner.tolist()):
            sets = tasks.partition_rack_set[tasks.partitions_of(task)].tolist() if owner >= 0 else []
            rack = int(clients.rack[owner])
            crossings += sum(
                number >= 0 and rack >= 0 and clients.racks[rack] not in tasks.rack_sets[number] for number in sets
            )
        return crossings

    @property
    def total_loads(self) -> tuple[int, Fraction]:
        """How uneven all tasks are: outside shares, then by squares."""
        return self.total_share_violation, self.total_unevenness

    def sticky_goals(self, must_preserve: bool, costs: tuple[int, int] | None = None) -> tuple[Any, ...]:
        """The goals of `StickyTaskAssignor`, in order; less is better. `costs`: of traffic and of moves, with racks."""
        moves = self.moved if costs is None else costs[0] * self.cross_rack + costs[1] * self.moved
        first = (moves, self.share_violation) if must_preserve else (self.share_violation, moves)
        return (
            *first,
            self.stateful_unevenness,
            self.active_unevenness,
            self.away_from_state,
            self.behind,
            -len(self.standby_task),
            self.total_loads,
        )

    def spreads(self) -> tuple[float, float, float]:
        """Max - min over the clients of tasks per thread: of stateful active tasks, of active ones, of all."""
        return self.stateful_spread, self.active_spread, self.total_spread


def outside_shares(counts: Sequence[int], threads: Sequence[int]) -> int:
    """By how many tasks clients are outside floor..ceil of their thread-weighted share of all of these, added up."""
    total, weights = sum(counts), sum(threads)
    return sum(
        max(total * weight // weights - count, 0) + max(count + (-total * weight) // weights, 0)
        for count, weight in zip(counts, threads, strict=True)
    )
