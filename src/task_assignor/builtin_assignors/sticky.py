"""`StickyTaskAssignor`: tasks stay where they are as far as an even load allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from task_assignor.sdk import (
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentColumns,
    ConfigKey,
    Role,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.columns import Int32Array, Int64Array
from task_assignor.utils._copies import Copies, place_copies
from task_assignor.utils._engine import Allocation, Pairs, Problem, allocate

MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT = "must.preserve.active.task.assignment"
_UNKNOWN_LAG = 2**62
_NO_GENERATION = -1


class StickyTaskAssignor(TaskAssignor):
    """Keeps tasks where they are, within even shares.

    Its goals, in this order:

    1. every client has floor or ceil of its thread-weighted share of the active tasks;
    2. fewest tasks move away from their previous active owner (of several claims the newest generation counts);
    3. smallest spread of active tasks per thread: of the stateful tasks, then of all;
    4. tasks that move go where their state is, least lag first;
    5. all standbys are placed;
    6. the total load (active and standby) per thread is even; then standbys stay where their state is.

    With `must.preserve.active.task.assignment` goal 2 comes before goal 1.

    The counterpart of Kafka's public `StickyTaskAssignor` (KIP-924), which follows the same idea with greedy rules.
    """

    config_keys = (
        ConfigKey(
            name=MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT,
            type="boolean",
            default=False,
            doc="Sticky assignor: never move an active task from a client that still runs, even if loads get uneven.",
        ),
    )

    def __init__(self) -> None:
        self._must_preserve = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `must.preserve.active.task.assignment`."""
        self._must_preserve = bool(configs.get(MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT, False))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the goals."""
        columns = application_state.columns
        active = sticky_actives(columns, self._must_preserve)
        copies = sticky_standbys(columns, active.owner, application_state.assignment_configs.num_standby_replicas)
        return TaskAssignment.of_columns(AssignmentColumns.of(columns, active.owner, copies.item, copies.owner))


def sticky_actives(columns: StateColumns, must_preserve: bool = False) -> Allocation:
    """Owners of the active tasks by goals 1 to 4 of `StickyTaskAssignor`.

    Args:
        columns: the state.
        must_preserve: goal 2 before goal 1.
    """
    client, task = columns.previous.pairs(Role.ACTIVE)
    generation = columns.clients.generation
    generation = np.where(generation == MISSING, _NO_GENERATION, generation)
    return allocate(
        Problem(
            is_first_kind=columns.tasks.is_stateful,
            weight=columns.clients.num_processing_threads,
            claims=Pairs.of(task, client, generation[client]),
            state=previous_state(columns),
            keep_all_claims=must_preserve,
        )
    )


def sticky_standbys(columns: StateColumns, active_owner: Int32Array, num_standby_replicas: int) -> Copies:
    """Standbys by goals 5 and 6 of `StickyTaskAssignor`, for all tasks that have a changelog."""
    wanted = np.where(columns.tasks.has_changelog, num_standby_replicas, 0)
    return place_copies(
        active_owner.astype(np.int64), wanted, columns.clients.num_processing_threads, previous_state(columns)
    )


def previous_state(columns: StateColumns) -> Pairs:
    """Who has state of which stateful task, and its lag as rank: 0 if it was active there, unknown lags last."""
    previous = columns.previous
    chosen = columns.tasks.has_changelog[previous.task]
    client, task, role = (column[chosen].astype(np.int64) for column in (previous.client, previous.task, previous.role))
    pairs = np.unique(client * max(len(columns.tasks), 1) + task, return_index=True)[1]
    client, task, role = client[pairs], task[pairs], role[pairs]
    lag = _lags(columns, client, task)
    rank = np.where(lag == MISSING, np.where(role == Role.ACTIVE, 0, 1), np.maximum(lag, 0))
    return Pairs.of(task, client, np.where(lag == UNKNOWN_OFFSET_SUM, _UNKNOWN_LAG, rank))


def _lags(columns: StateColumns, client: Int64Array, task: Int64Array) -> Int64Array:
    """Lags of pairs; `MISSING` where they were not computed."""
    lags, tasks = columns.lags, max(len(columns.tasks), 1)
    found = np.where(lags.is_computed[client], columns.tasks.end_offset_sum[task], MISSING)
    known = lags.client.astype(np.int64) * tasks + lags.task
    if len(known):
        keys = client * tasks + task
        rows = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = np.where(known[rows] == keys, lags.lag[rows], found)
    return found
