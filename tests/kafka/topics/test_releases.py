"""The same small test with brokers of older releases: a group is looked into, and a join whose client is killed is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.kafka import ClientSettings, Cluster
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, missing
from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.topics.records import killer
from tests.kafka.topics.test_sinks import Join

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("version", ["3.5.2", "3.7.2", "3.9.1"])
def test_older_brokers_are_looked_into_and_written_to_once(unique: Unique, tmp_path: Path, version: str) -> None:
    """What lists the brokers ended with a KeyError of kafka-python before 3.7, and so did all that looks into groups."""
    try:
        with KafkaCluster(["a"], version=version) as brokers:
            join = Join(brokers, unique)
            result = join.application(tmp_path / "run").run(killer(after_commits=3))
            assert result.lost_clients
            join.check()
            with Cluster(ClientSettings.of({"bootstrap.servers": join.servers})) as cluster:
                assert set(cluster.partition_racks([join.joined])[join.joined]) == {frozenset("a")}
                assert cluster.committed_offsets(join.application_id)
    except KafkaUnavailableError as error:
        missing(str(error))
