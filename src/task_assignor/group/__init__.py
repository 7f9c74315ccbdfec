"""From the members' subscriptions to the members' assignments: the leader of a group. It executes no task."""

from task_assignor.group.errors import AssignmentRejectedException, GroupException
from task_assignor.group.topology import SubTopologyShape, make_tasks

__all__ = [
    "AssignmentRejectedException",
    "GroupException",
    "SubTopologyShape",
    "make_tasks",
]
