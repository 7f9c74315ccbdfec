"""From the members' subscriptions to the members' assignments: the leader of a group. It executes no task."""

from task_assignor.group.errors import AssignmentRejectedException, GroupException
from task_assignor.group.leader import ClientAssignment, GroupLeader, GroupRebalance
from task_assignor.group.members import GroupClient, GroupConsumer
from task_assignor.group.threads import ConsumerTasks, spread_over_consumers
from task_assignor.group.topology import SubTopologyShape, make_tasks

__all__ = [
    "AssignmentRejectedException",
    "ClientAssignment",
    "ConsumerTasks",
    "GroupClient",
    "GroupConsumer",
    "GroupException",
    "GroupLeader",
    "GroupRebalance",
    "SubTopologyShape",
    "make_tasks",
    "spread_over_consumers",
]
