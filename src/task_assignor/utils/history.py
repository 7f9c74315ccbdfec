"""Who had which task before, and how far behind they are, as pairs for the engine. Nothing is decided here.

Tasks that stay together are a *unit*: one item of the engine.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.items import Pairs, sums
from task_assignor.sdk import MISSING, UNKNOWN_OFFSET_SUM, Role, StateColumns
from task_assignor.sdk.arrays import distinct_and_numbers, order_by
from task_assignor.sdk.columns import LATEST_OFFSET, Int32Array, Int64Array

_UNKNOWN_LAG: Final = 2**62
_NO_GENERATION: Final = -1
_LAG_BITS: Final = 40
IntArray = Int32Array | Int64Array


def previous_actives(columns: StateColumns) -> Pairs:
    """Who had which task active, ranked by generation: a greater one is newer (KIP-341), -1 is none."""
    client, task = columns.previous.pairs(Role.ACTIVE)
    generation = np.where(columns.clients.generation == MISSING, _NO_GENERATION, columns.clients.generation)
    return Pairs.of(task, client, generation[client])


def previous_state(columns: StateColumns) -> Pairs:
    """Who has state of which task, ranked by lag: active running tasks first, as in Kafka, unknown lags last."""
    previous = columns.previous
    chosen = columns.tasks.has_changelog[previous.task]
    client, task, role = (column[chosen] for column in (previous.client, previous.task, previous.role))
    keys = client * np.int64(max(len(columns.tasks), 1)) + task
    order = order_by(keys)
    # A client that had a task in both roles counts once, as its active owner: rows are sorted by client, then role.
    order = order[np.append(True, np.diff(keys[order]) > 0)] if len(order) else order
    client, task, role = client[order], task[order], role[order]
    lag = columns.lags_of(client, task)
    # What is an active running task there (-2) is less behind than a standby that has caught up (0).
    is_running = np.where(lag == MISSING, role == Role.ACTIVE, lag == LATEST_OFFSET)
    rank = np.where(is_running, 0, 1 + np.clip(lag, 0, _UNKNOWN_LAG - 2))
    return Pairs.of(task, client, np.where(lag == UNKNOWN_OFFSET_SUM, _UNKNOWN_LAG, rank))


def previous_state_of_units(columns: StateColumns, unit: Int64Array) -> Pairs:
    """Who has state of which unit, ranked: state of most of its tasks first, then least lag, added up.

    Args:
        columns: the state.
        unit: (T,) unit of each task.
    """
    state = previous_state(columns)
    if int(unit.max(initial=-1)) + 1 == len(unit):
        # Every task is alone.
        return Pairs.of(unit[state.item], state.owner, state.rank)
    # Lags in units so large that their sums cannot overflow.
    lag = np.minimum(state.rank, (1 << _LAG_BITS) - 1)
    item, owner, (count, lags) = sums_of_units(columns, unit, state.owner, state.item, np.ones_like(lag), lag)
    missing = int(count.max(initial=0)) - count
    return Pairs.of(item, owner, (missing << _LAG_BITS) + np.minimum(lags, (1 << _LAG_BITS) - 1))


def sums_of_units(
    columns: StateColumns, unit: Int64Array, client: IntArray, task: IntArray, *values: Int64Array
) -> tuple[Int64Array, Int64Array, tuple[Int64Array, ...]]:
    """Values of pairs of client and task, added up by unit and client: (units, clients, sums), sorted by unit."""
    clients = max(len(columns.clients), 1)
    keys, inverse = distinct_and_numbers(unit[task] * clients + client)
    return keys // clients, keys % clients, tuple(sums(inverse, value, len(keys)) for value in values)
