"""Who had which task before, and how far behind they are, as pairs for the engine. Nothing is decided here."""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.items import Pairs
from task_assignor.sdk import MISSING, UNKNOWN_OFFSET_SUM, Role, StateColumns
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import LATEST_OFFSET

_UNKNOWN_LAG: Final = 2**62
_NO_GENERATION: Final = -1


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
