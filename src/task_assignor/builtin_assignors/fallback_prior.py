"""`FallbackPriorTaskAssignor`: everything stays where it was, and the group tries again soon."""

from __future__ import annotations

import numpy as np

from task_assignor.builtin_assignors._clients import check_clients
from task_assignor.sdk import MISSING, ApplicationState, AssignmentColumns, TaskAssignment, TaskAssignor
from task_assignor.utils.actives import active_owners
from task_assignor.utils.standbys import standby_pairs


class FallbackPriorTaskAssignor(TaskAssignor):
    """Leaves active tasks with their previous owners, places the others, and asks for a probing rebalance.

    For rebalances in which something that the usual assignor needs could not be had (in Kafka: the end offsets of the
    changelogs). It is `StickyTaskAssignor` with `must.preserve.active.task.assignment`, without racks, and with a
    follow-up rebalance after `probing.rebalance.interval.ms`, asked of the client with the smallest process id.

    The counterpart of Kafka's internal `FallbackPriorTaskAssignor` (KIP-441).
    """

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class.

        Raises:
            TaskAssignmentException: there are tasks but no clients.
        """
        columns, configs = application_state.columns, application_state.assignment_configs
        check_clients(columns)
        active = active_owners(columns, configs, must_preserve=True)
        standbys = standby_pairs(columns, configs, active.owner, use_racks=False)
        deadline = np.full(len(columns.clients), MISSING)
        deadline[:1] = min(application_state.now_ms + configs.probing_rebalance_interval_ms, np.iinfo(np.int64).max)
        return TaskAssignment.of_columns(
            AssignmentColumns.of(columns, active.owner, standbys.task, standbys.client, deadline)
        )
