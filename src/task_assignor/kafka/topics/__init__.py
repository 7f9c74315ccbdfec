"""Topics of Kafka as what the runtime's tasks read and write: `KafkaTopics` in place of the folder of the topics."""

from task_assignor.sdk import MissingExtraException

try:
    import confluent_kafka as _confluent_kafka  # noqa: F401
except ImportError as error:
    raise MissingExtraException("kafka", "task_assignor.kafka.topics", "confluent-kafka") from error
try:
    import polars as _polars  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise MissingExtraException("runtime", "task_assignor.kafka.topics", str(error.name)) from error

from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.serdes import JsonSerde, Serde, SerializationException
from task_assignor.kafka.topics.topics import KafkaTopics

__all__ = ["JsonSerde", "KafkaTopic", "KafkaTopics", "Serde", "SerializationException"]
