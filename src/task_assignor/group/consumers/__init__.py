"""Consumer-level assignors: which member of a group reads which partition. Pure functions of topics and members."""

from task_assignor.group.consumers.assignors import (
    ConsumerAssignor,
    CooperativeStickyAssignor,
    RebalanceProtocol,
    StickyAssignor,
)
from task_assignor.group.consumers.classic import RangeAssignor, RoundRobinAssignor
from task_assignor.group.consumers.copartitioned import CopartitionedAssignor
from task_assignor.group.consumers.joins import StickyStreamJoinAssignor, split_numbers
from task_assignor.group.consumers.metrics import AssignmentMetrics, measure
from task_assignor.group.consumers.table import Claim
from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics

__all__ = [
    "AssignmentMetrics",
    "Claim",
    "ConsumerAssignment",
    "ConsumerAssignor",
    "ConsumerMember",
    "CooperativeStickyAssignor",
    "CopartitionedAssignor",
    "GroupTopics",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "StickyStreamJoinAssignor",
    "measure",
    "split_numbers",
]
