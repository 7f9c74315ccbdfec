"""The demo on Spark with topics of Kafka as input and output, one client killed: its own comparison with the plain computation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaCluster


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
