"""A Python assignor decides for real Kafka Streams applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bridge.streams import StreamsGroup, Unique, alive, compiled, python_decides
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import missing, wait_until
from tests.kafka.jars import KafkaUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("streams")]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return compiled(tmp_path_factory.mktemp("classes"))
    except KafkaUnavailableError as error:
        missing(str(error))
        raise


def test_python_leads_three_instances_and_the_next_leader_starts_its_own_when_the_leader_is_killed(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    with StreamsGroup(kafka_cluster, unique("three"), tmp_path, java, settings=python_decides()) as group:
        leader = group.start("i1")
        wait_until(lambda: leader.state == "RUNNING", "the first instance runs")
        group.start("i2")
        group.start("i3")
        group.wait_until_settled()
        group.feed(300)
        group.expect_all_rows_once()
        assert leader.all("sticky placed 6 tasks and 6 standbys on 3 clients")
        assert [len(one.active) for one in group.running()] == [2, 2, 2]
        python = leader.children()
        assert python
        leader.kill()
        group.wait_until_settled()
        group.feed(300)
        group.expect_all_rows_once()
        assert [one for one in group.running() if one.all("sticky placed 6 tasks and 6 standbys on 2 clients")]
        wait_until(lambda: not any(alive(pid) for pid in python), "the Python of the killed JVM ends")
        group.expect_no_thread_lost()
