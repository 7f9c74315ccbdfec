"""The same small test on every release of Kafka Streams that the jar is for; the latest is in `test_streams.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.bridge.keys import PREFIX, RECORDING_CLASS
from tests.bridge.streams import StreamsGroup, compiled, python_decides
from tests.bridge.test_streams import differing
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, missing, wait_until
from tests.kafka.jars import KafkaUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("version", ["3.8.1", "3.9.1", "4.0.0", "4.1.0", "4.2.0", "4.3.1"])
def test_java_records_and_python_decides(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, version: str
) -> None:
    try:
        java = compiled(tmp_path, version)
    except KafkaUnavailableError as error:
        missing(str(error))
        raise
    recording = {"task.assignor.class": RECORDING_CLASS, f"{PREFIX}record.dir": tmp_path / "records"}
    with StreamsGroup(kafka_cluster, unique("release"), tmp_path, java) as group:
        group.start("i1", recording)
        group.start("i2", recording)
        group.wait_until_settled()
        group.feed(60)
        group.expect_all_rows_once()
        for name in ("i1", "i2"):
            group.instances[name].stop()
            group.start(name, python_decides())
            group.wait_until_settled()
        group.instances["i1"].tell("add")
        wait_until(lambda: [1 for one in group.running() if one.all("sticky placed 6 tasks")], "Python decides")
        group.wait_until_settled()
        group.feed(60)
        group.expect_all_rows_once()
        group.expect_no_thread_lost()
    assert differing(tmp_path / "records", "high-availability") == []
