"""From the members' subscriptions to the members' assignments: the leader of a group. It executes no task."""

from task_assignor.group.errors import AssignmentRejectedException, GroupException
from task_assignor.group.leader import ClientAssignment, GroupLeader, GroupRebalance
from task_assignor.group.members import GroupClient, GroupConsumer
from task_assignor.group.streams import (
    ASSIGNMENT_FAILED,
    MISSING_SOURCE_TOPIC,
    SHUTDOWN_REQUESTED,
    StreamsAssignment,
    StreamsLeader,
    StreamsMember,
    StreamsRebalance,
    followup_ms,
    tell_error,
)
from task_assignor.group.threads import ConsumerTasks, spread_over_consumers
from task_assignor.group.topics import MissingSourceTopicException, TopicPlan, plan_topics
from task_assignor.group.topology import SubTopologyShape, make_tasks

__all__ = [
    "ASSIGNMENT_FAILED",
    "MISSING_SOURCE_TOPIC",
    "SHUTDOWN_REQUESTED",
    "AssignmentRejectedException",
    "ClientAssignment",
    "ConsumerTasks",
    "GroupClient",
    "GroupConsumer",
    "GroupException",
    "GroupLeader",
    "GroupRebalance",
    "MissingSourceTopicException",
    "StreamsAssignment",
    "StreamsLeader",
    "StreamsMember",
    "StreamsRebalance",
    "SubTopologyShape",
    "TopicPlan",
    "followup_ms",
    "make_tasks",
    "plan_topics",
    "spread_over_consumers",
    "tell_error",
]
