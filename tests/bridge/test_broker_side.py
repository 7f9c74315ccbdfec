"""What docs/bridge.md says of groups whose tasks the brokers assign; where Kafka changes, this fails and the page has to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.bridge import Verdict, check_properties
from tests.bridge.streams import StreamsGroup, python_decides
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("bridge")]


def test_kafka_ignores_the_assignor_without_a_word_and_the_check_says_so(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    settings = {**python_decides(), "group.protocol": "streams"}
    with StreamsGroup(
        kafka_cluster, unique("by-brokers"), tmp_path, java, standbys=0, settings=settings, times={}
    ) as group:
        only = group.start("i1")
        group.wait_until_settled()
        group.feed(12)
        group.expect_all_rows_once()
        assert only.all("taskassignor|task.assignor") == []
        assert only.children() == []
    file = tmp_path / "app.properties"
    file.write_text("".join(f"{key}={value}\r\n" for key, value in settings.items()))
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert error.message.startswith("group.protocol=streams: the brokers decide")


def test_brokers_have_a_setting_for_assignors_of_consumer_groups_but_none_for_streams_groups(
    kafka_cluster: KafkaCluster,
) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    assert {name for name in described.result(60) if name.endswith(".assignors")} == {
        "group.consumer.assignors",
        "group.share.assignors",
    }
