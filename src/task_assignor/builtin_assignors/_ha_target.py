"""Where high availability wants tasks to end: Kafka's round robin, or sticky. Lags are not looked at in the former."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.builtin_assignors._ha_racks import Racks
from task_assignor.kafka_order.default_standbys import default_standbys
from task_assignor.kafka_order.threads import balance_active, balance_standby
from task_assignor.sdk.columns import Int32Array, StateColumns, int32_column
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.utils.actives import active_owners
from task_assignor.utils.standbys import standby_pairs


@attrs.frozen(eq=False)
class Target:
    """Where tasks should end.

    Args:
        active_owner: (T,) client number; -1: the target does not say.
        standby_task: (S,) task numbers of the standbys, pairs sorted by task, then client.
        standby_client: (S,) their client numbers.
    """

    active_owner: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_client: Int32Array = attrs.field(converter=int32_column, repr=False)


def round_robin_target(columns: StateColumns, configs: AssignmentConfigs, racks: Racks) -> Target:
    """Kafka's target: the stateful tasks in turn, evened out over threads and racks; then their standbys."""
    stateful = np.flatnonzero(columns.tasks.has_changelog)
    owner = np.full(len(columns.tasks), -1, dtype=np.int32)
    if len(stateful):
        dealt = (np.arange(len(stateful)) % len(columns.clients)).astype(np.int32)
        owner[stateful] = balance_active(dealt, columns.clients.num_processing_threads)
        # Nothing runs there yet, so leaving it is no loss in itself.
        owner = racks.optimize_stateful(owner, stateful, ties_stay=False)
    return _with_standbys(columns, configs, racks, owner)


def sticky_target(columns: StateColumns, configs: AssignmentConfigs, racks: Racks) -> Target:
    """The target of `StickyTaskAssignor`; with client tags the standbys are Kafka's: tags first, even loads next."""
    owner = active_owners(columns, configs, use_racks=False).owner
    owner = racks.optimize_stateful(owner, np.flatnonzero(columns.tasks.has_changelog), ties_stay=True)
    if configs.rack_aware_assignment_tags:
        return _with_standbys(columns, configs, racks, owner)
    found = standby_pairs(columns, configs, owner, use_racks=False)
    return Target(owner, *racks.optimize_standbys(owner, found.task.astype(np.int32), found.client.astype(np.int32)))


def _with_standbys(columns: StateColumns, configs: AssignmentConfigs, racks: Racks, owner: Int32Array) -> Target:
    """The default standbys, evened out over threads (with tags only between clients of equal tags) and racks."""
    if not configs.num_standby_replicas or not len(columns.clients):
        none = np.zeros(0, dtype=np.int32)
        return Target(owner, none, none)
    standbys = default_standbys(columns, configs, owner)
    tags = columns.clients.client_tags if configs.rack_aware_assignment_tags else None
    client = balance_standby(owner, standbys.task, standbys.client, columns.clients.num_processing_threads, tags)
    order = np.lexsort((client, standbys.task))
    return Target(owner, *racks.optimize_standbys(owner, standbys.task[order], client[order]))
