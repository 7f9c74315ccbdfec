"""Kafka's target of the stateful tasks: round robin, balanced over threads, with standbys. Lags are not looked at here."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.builtin_assignors._thread_balance import balance_active, balance_standby
from task_assignor.sdk.columns import Int32Array, StateColumns, int32_column
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.utils._standby import default_standbys


@attrs.frozen(eq=False)
class Target:
    """Where the stateful tasks should end.

    Args:
        active_owner: (T,) client number; -1: not stateful.
        standby_task: (S,) task numbers of the standbys, pairs sorted by task, then client.
        standby_client: (S,) their client numbers.
    """

    active_owner: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_client: Int32Array = attrs.field(converter=int32_column, repr=False)


def round_robin(columns: StateColumns) -> Int32Array:
    """(T,) the stateful tasks dealt out in turn, then evened out over threads; -1 for the others."""
    stateful = np.flatnonzero(columns.tasks.has_changelog)
    owner = np.full(len(columns.tasks), -1, dtype=np.int32)
    dealt = (np.arange(len(stateful)) % max(len(columns.clients), 1)).astype(np.int32)
    owner[stateful] = balance_active(dealt, columns.clients.num_processing_threads)
    return owner


def balanced_standbys(
    columns: StateColumns, configs: AssignmentConfigs, active_owner: Int32Array
) -> tuple[Int32Array, Int32Array]:
    """(task, client) of the default standbys, evened out over threads; with tags only between clients of equal tags."""
    standbys = default_standbys(columns, configs, active_owner)
    tags = columns.clients.client_tags if configs.rack_aware_assignment_tags else None
    client = balance_standby(active_owner, standbys.task, standbys.client, columns.clients.num_processing_threads, tags)
    order = np.lexsort((client, standbys.task))
    return standbys.task[order], client[order]
