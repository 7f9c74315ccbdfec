"""Tests of tasks on topics of Kafka are passed over where the extra [runtime] is not installed, as with the lower bounds."""

from importlib.util import find_spec

collect_ignore_glob = [] if all(find_spec(name) for name in ("confluent_kafka", "polars", "pyarrow")) else ["test_*.py"]
