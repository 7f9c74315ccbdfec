"""`FallbackPriorTaskAssignor`: everything stays where it was, and the group tries again soon."""

from __future__ import annotations

from task_assignor.sdk import ApplicationState, TaskAssignment, TaskAssignor
from task_assignor.utils import place_actives, place_standbys, with_probing_rebalance


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
        actives = place_actives(application_state, must_preserve=True)
        placed = place_standbys(application_state, actives, use_racks=False)
        return TaskAssignment(with_probing_rebalance(application_state, placed))
