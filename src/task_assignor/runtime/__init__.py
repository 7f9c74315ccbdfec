"""Executes tasks as state machines: coordinator, clients, stores, changelogs; knows neither Spark nor Kafka."""

# ruff: noqa: E402 - what is missing is told by its name, before something fails for want of it.

from task_assignor.runtime.packages import check_packages

check_packages()

from task_assignor.runtime.application import StreamsApplication
from task_assignor.runtime.arrow.keys import murmur2, partitions_of
from task_assignor.runtime.errors import (
    BadRecordException,
    ClientException,
    CommitLogException,
    CorruptLogException,
    InvalidTransitionException,
    LateRecordException,
    ProcessorException,
    RowsGoneException,
    StoreException,
    TopicException,
    TopologyException,
)
from task_assignor.runtime.machines.events import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    ClientLost,
    ClientProgress,
    MarkerReached,
    MarkerRefused,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RunFailed,
    RunFinished,
    RunStopping,
    SnapshotCommitted,
    SnapshotRefused,
    SnapshotsLeftOut,
    SourcesGrown,
    TaskRestored,
    TaskStalled,
)
from task_assignor.runtime.machines.records import (
    ClientTasks,
    CommitRecord,
    FileRef,
    Marker,
    RebalanceRecord,
    TaskCommit,
)
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.runtime.processors.aggregates import Aggregate
from task_assignor.runtime.processors.aggregation import Aggregation, TableAggregation
from task_assignor.runtime.processors.table_changes import TableChanges
from task_assignor.runtime.processors.table_joins import StreamTableJoin, TableJoin
from task_assignor.runtime.processors.windowed_aggregation import WindowedAggregation
from task_assignor.runtime.processors.windowed_join import WindowedJoin
from task_assignor.runtime.processors.windows import SessionWindows, SlidingWindows, TimeWindows
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.outputs import (
    committed_files,
    committed_offsets,
    list_markers,
    output_schema,
    read_output,
)
from task_assignor.runtime.shells.client_shell import run_client
from task_assignor.runtime.shells.launcher import (
    ClientBootstrap,
    ClientExit,
    ClientSpec,
    Departure,
    Launcher,
    LaunchPlan,
    pickle_bootstrap,
)
from task_assignor.runtime.shells.local import LocalProcessLauncher
from task_assignor.runtime.storage import Seal
from task_assignor.runtime.stores.key_value import KeyValueStore, KeyValueStoreSpec
from task_assignor.runtime.stores.store import Store
from task_assignor.runtime.stores.window import WindowStore, WindowStoreSpec
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.topics.changes import delete_records
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topics.topic import Topic, list_topics
from task_assignor.runtime.topics.versions import Segment
from task_assignor.runtime.topics.writing import TopicBuilder, append_topic, write_topic
from task_assignor.runtime.topology.bad_records import DeadLetters
from task_assignor.runtime.topology.context import TaskContext
from task_assignor.runtime.topology.derived import DerivedStream, DerivedTable
from task_assignor.runtime.topology.processor import Processor, RecordProcessor
from task_assignor.runtime.topology.sub_topology import Forwarded, Output, Repartitioned, SubTopology
from task_assignor.runtime.topology.topology import Topology
from task_assignor.runtime.watching.metrics import METRICS, Metric, Metrics, Sample
from task_assignor.runtime.watching.metrics_export import metrics_in_file, metrics_on_port, metrics_to_opentelemetry
from task_assignor.runtime.watching.recorder import RunResult

__all__ = [
    "METRICS",
    "Aggregate",
    "Aggregation",
    "BadRecordException",
    "BatchesCommitted",
    "ClientBootstrap",
    "ClientException",
    "ClientExit",
    "ClientJoined",
    "ClientLeft",
    "ClientLost",
    "ClientProgress",
    "ClientSpec",
    "ClientTasks",
    "CommitLog",
    "CommitLogException",
    "CommitRecord",
    "CorruptLogException",
    "DeadLetters",
    "Departure",
    "DerivedStream",
    "DerivedTable",
    "FileRef",
    "Forwarded",
    "InvalidTransitionException",
    "KeyValueStore",
    "KeyValueStoreSpec",
    "LateRecordException",
    "LaunchPlan",
    "Launcher",
    "LocalProcessLauncher",
    "Log",
    "Marker",
    "MarkerReached",
    "MarkerRefused",
    "Metric",
    "Metrics",
    "Output",
    "Processor",
    "ProcessorException",
    "RebalanceRecord",
    "Rebalanced",
    "RecordProcessor",
    "Repartitioned",
    "ResultRefused",
    "RowsGoneException",
    "RunEvent",
    "RunFailed",
    "RunFinished",
    "RunResult",
    "RunStopping",
    "RuntimeOptions",
    "Sample",
    "Seal",
    "Segment",
    "SessionWindows",
    "SlidingWindows",
    "SnapshotCommitted",
    "SnapshotRefused",
    "SnapshotsLeftOut",
    "SourcesGrown",
    "Store",
    "StoreException",
    "StreamTableJoin",
    "StreamsApplication",
    "SubTopology",
    "TableAggregation",
    "TableChanges",
    "TableJoin",
    "TaskCommit",
    "TaskContext",
    "TaskRestored",
    "TaskStalled",
    "TimeWindows",
    "Topic",
    "TopicBuilder",
    "TopicException",
    "TopicSpec",
    "Topology",
    "TopologyException",
    "WindowStore",
    "WindowStoreSpec",
    "WindowedAggregation",
    "WindowedJoin",
    "append_topic",
    "committed_files",
    "committed_offsets",
    "delete_records",
    "list_markers",
    "list_topics",
    "metrics_in_file",
    "metrics_on_port",
    "metrics_to_opentelemetry",
    "murmur2",
    "output_schema",
    "partitions_of",
    "pickle_bootstrap",
    "read_output",
    "run_client",
    "write_topic",
]
