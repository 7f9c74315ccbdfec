"""Where Spark comes in: launchers that run Streams clients as Spark tasks; the machines they run live in `runtime`."""

from task_assignor.sdk import MissingExtraException

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise MissingExtraException("spark", "task_assignor.spark", "pyspark") from error

from task_assignor.spark.java import Java, JavaNotFoundError, find_java, prepare_java
from task_assignor.spark.jobs import SparkJobError
from task_assignor.spark.launcher import SparkLauncher
from task_assignor.spark.pinned_launcher import PinnedLauncher
from task_assignor.spark.results import read_results
from task_assignor.spark.session import SparkSessionError, check_session, spark_session
from task_assignor.spark.source import register_source
from task_assignor.spark.topics import read_topic, write_topic

__all__ = [
    "Java",
    "JavaNotFoundError",
    "PinnedLauncher",
    "SparkJobError",
    "SparkLauncher",
    "SparkSessionError",
    "check_session",
    "find_java",
    "prepare_java",
    "read_results",
    "read_topic",
    "register_source",
    "spark_session",
    "write_topic",
]
