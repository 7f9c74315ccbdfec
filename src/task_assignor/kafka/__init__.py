"""Where real Kafka comes in: look-ups in live clusters, a look into groups, and assignors inside consumer groups."""

from task_assignor.sdk import MissingExtraException

try:
    import kafka as _kafka  # noqa: F401
except ImportError as error:
    raise MissingExtraException("kafka", "task_assignor.kafka", "kafka-python") from error

from task_assignor.kafka.aiokafka_plugin import AiokafkaPlugin
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.cluster import Cluster, GroupListing
from task_assignor.kafka.consumer_plugin import ConsumerAssignorPlugin
from task_assignor.kafka.errors import GroupStateException, KafkaClusterException, UnknownGroupException
from task_assignor.kafka.group_description import GroupDescription, GroupMember
from task_assignor.kafka.inspection import Inspection, inspect_group
from task_assignor.kafka.live_group import LiveGroup, consumers_of_group
from task_assignor.kafka.live_state import LiveState, state_of_group
from task_assignor.kafka.streams_group import StreamsGroupLeader
from task_assignor.kafka.task_plugin import TaskAssignorPlugin
from task_assignor.kafka.topology_text import DescribedSubTopology, parse_topology, shapes_of_topology

__all__ = [
    "AiokafkaPlugin",
    "ClientSettings",
    "Cluster",
    "ConsumerAssignorPlugin",
    "DescribedSubTopology",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupStateException",
    "Inspection",
    "KafkaClusterException",
    "LiveGroup",
    "LiveState",
    "StreamsGroupLeader",
    "TaskAssignorPlugin",
    "UnknownGroupException",
    "consumers_of_group",
    "inspect_group",
    "parse_topology",
    "shapes_of_topology",
    "state_of_group",
]
