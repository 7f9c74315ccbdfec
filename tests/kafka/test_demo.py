"""The demo on Spark with topics of Kafka as input and output, one client killed: its own comparison with the plain computation; and
what a broker does not take of it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_on_kafka_topics_is_equal_to_the_plain_computation(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "task_assignor", "demo", "--clients", "2"]
    options = ["--bootstrap-server", kafka_cluster.bootstrap_servers, "--output", str(tmp_path / "demo")]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = " ".join(done.stdout.split())
    assert "equal to a plain computation of the same data" in told
    assert "lost" in told, "a client was killed"


@pytest.mark.kafka
@pytest.mark.parametrize("value", ["x", "x" * 2_000_000], ids=["elsewhere", "large"])
def test_a_record_that_is_not_taken_is_told(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """For a partition that there is not, and one that is too large: the demo went on without the one, the other was raised raw."""
    pa = pytest.importorskip("pyarrow")
    records = pytest.importorskip("task_assignor.demo.records")
    runtime = pytest.importorskip("task_assignor.runtime")
    monkeypatch.setattr(records, "OUTPUT_KEYS", {})
    rows = pa.table({"key": [1, 2, 3, 4], "value": [value, "", "", ""]})
    topic = runtime.write_topic(tmp_path, unique("refused"), rows, partitions=2, key="key")
    with pytest.raises(StreamsException, match=r"^The broker at .* has refused \d records?: "):
        records.fill_topics(kafka_cluster.bootstrap_servers, [topic], 1)


def test_a_broker_that_is_not_there_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was a TimeoutError after a minute, beneath a thousand lines of librdkafka's; of an address without a port, too."""
    pytest.importorskip("confluent_kafka")
    records = pytest.importorskip("task_assignor.demo.records")
    monkeypatch.setattr(records, "PATIENCE_MS", 100)
    with socket.socket() as taken:
        # Nobody else gets the port, and nobody listens there.
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        expected = rf"^Cannot create the topics .*: the cluster at {servers} has not answered for 100 ms.* Maybe no broker listens"
        with pytest.raises(StreamsException, match=expected):
            records.fill_topics(servers, [], 1)
    with pytest.raises(StreamsException, match=r"bootstrap\.servers \('nowhere'\)"):
        records.fill_topics("nowhere", [], 1)
    assert capfd.readouterr().err == ""
