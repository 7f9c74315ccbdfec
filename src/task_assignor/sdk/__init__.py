"""What an assignor sees and returns: the types of KIP-924, settings and snapshots. No assignor lives here."""

from task_assignor.sdk.assignment import AssignedTask, AssignmentColumns, KafkaStreamsAssignment, TaskAssignment
from task_assignor.sdk.assignor import (
    Assignment,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    Subscription,
    TaskAssignor,
)
from task_assignor.sdk.assignor_classes import find_assignor_class, registered_assignors
from task_assignor.sdk.builder import ApplicationStateBuilder
from task_assignor.sdk.columns import (
    LATEST_OFFSET,
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    TaskColumns,
)
from task_assignor.sdk.config_def import REQUIRED, ConfigKey
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.sdk.errors import (
    ConfigException,
    ConfigProblem,
    LagsNotComputedError,
    MissingExtraException,
    SnapshotException,
    StateException,
    StreamsException,
    TaskAssignmentException,
    TaskIdFormatException,
    UnknownClientError,
    UnknownTaskError,
)
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId, TopicPartition
from task_assignor.sdk.settings import StreamsConfig
from task_assignor.sdk.snapshot import state_from_json, state_to_json
from task_assignor.sdk.snapshot_assignment import assignment_from_json, assignment_to_json
from task_assignor.sdk.snapshot_files import (
    StateRecord,
    iter_states,
    read_assignment,
    read_state,
    write_assignment,
    write_state,
)
from task_assignor.sdk.state import ApplicationState, KafkaStreamsState, TaskInfo, TaskTopicPartition

__all__ = [
    "LATEST_OFFSET",
    "MISSING",
    "REQUIRED",
    "UNKNOWN_OFFSET_SUM",
    "ApplicationState",
    "ApplicationStateBuilder",
    "AssignedTask",
    "Assignment",
    "AssignmentColumns",
    "AssignmentConfigs",
    "AssignmentError",
    "ClientColumns",
    "ConfigException",
    "ConfigKey",
    "ConfigProblem",
    "GroupAssignment",
    "GroupSubscription",
    "HostInfo",
    "KafkaStreamsAssignment",
    "KafkaStreamsState",
    "LagColumns",
    "LagsNotComputedError",
    "MissingExtraException",
    "PreviousColumns",
    "ProcessId",
    "Role",
    "SnapshotException",
    "StateColumns",
    "StateException",
    "StateRecord",
    "StreamsConfig",
    "StreamsException",
    "Subscription",
    "TaskAssignment",
    "TaskAssignmentException",
    "TaskAssignor",
    "TaskColumns",
    "TaskId",
    "TaskIdFormatException",
    "TaskInfo",
    "TaskTopicPartition",
    "TopicPartition",
    "UnknownClientError",
    "UnknownTaskError",
    "assignment_from_json",
    "assignment_to_json",
    "find_assignor_class",
    "iter_states",
    "read_assignment",
    "read_state",
    "registered_assignors",
    "state_from_json",
    "state_to_json",
    "write_assignment",
    "write_state",
]
