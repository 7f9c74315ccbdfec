"""Executes tasks as state machines: coordinator, clients, stores, changelogs; knows neither Spark nor Kafka."""

from task_assignor.sdk import MissingExtraException

try:
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise MissingExtraException("runtime", "task_assignor.runtime", "pyarrow") from error

from task_assignor.runtime.errors import (
    ClientException,
    CommitLogException,
    CorruptLogException,
    InvalidTransitionException,
    ProcessorException,
    StoreException,
    TopicException,
    TopologyException,
)
from task_assignor.runtime.keys import murmur2, partitions_of
from task_assignor.runtime.topics import Topic, TopicBuilder, TopicSpec, list_topics, write_topic

__all__ = [
    "ClientException",
    "CommitLogException",
    "CorruptLogException",
    "InvalidTransitionException",
    "ProcessorException",
    "StoreException",
    "Topic",
    "TopicBuilder",
    "TopicException",
    "TopicSpec",
    "TopologyException",
    "list_topics",
    "murmur2",
    "partitions_of",
    "write_topic",
]
