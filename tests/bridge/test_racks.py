"""Racks of replicas and of clients reach both assignors over the bridge, and decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from task_assignor.bridge.keys import PREFIX, RECORDING_CLASS
from tests.bridge.streams import StreamsGroup, python_decides
from tests.bridge.test_streams import differing
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, wait_until

pytestmark = pytest.mark.kafka
BROKERS: Final = [3, 1, 2, 2, 3, 1]
"""The broker that alone has a partition; they are in the racks a, b and c."""
ZONE: Final = "zürich-北"


def racks_of_partitions() -> dict[str, str]:
    """Task -> the rack in which its two source partitions are."""
    return {f"0_{partition}": "abc"[broker - 1] for partition, broker in enumerate(BROKERS)}


def test_tasks_are_where_their_partitions_are(
    rack_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    by_racks = {
        "rack.aware.assignment.strategy": "min_traffic",
        "rack.aware.assignment.traffic_cost": 10,
        "rack.aware.assignment.non_overlap_cost": 1,
        "rack.aware.assignment.tags": "zone",
        "client.tag.zone": ZONE,
    }
    stages: dict[str, tuple[dict[str, object], str]] = {
        "java": ({"task.assignor.class": RECORDING_CLASS}, "abc"),
        # What was right for Java is wrong everywhere: only who sees the new racks finds the way.
        "python": (python_decides(), "bca"),
    }
    replicas = [[broker] for broker in BROKERS]
    with StreamsGroup(
        rack_cluster, unique("racks"), tmp_path, java, settings=by_racks, replica_brokers=replicas
    ) as group:
        for stage, (settings, racks) in stages.items():
            for name, rack in zip(("i1", "i2", "i3"), racks, strict=True):
                if name in group.instances:
                    group.instances[name].stop()
                records = {f"{PREFIX}record.dir": tmp_path / stage}
                group.start(name, {**settings, **records, "client.rack": rack})
            group.wait_until_settled()
            of_partitions = racks_of_partitions()

            def is_local(racks: str = racks, of_partitions: dict[str, str] = of_partitions) -> bool:
                owned = zip(racks, group.instances.values(), strict=True)
                return all(of_partitions[task] == rack for rack, one in owned for task in one.active)

            wait_until(is_local, f"{stage}: every task is in the rack of its partitions")
            group.wait_until_settled()
            group.feed(60)
            group.expect_all_rows_once()
        group.expect_no_thread_lost()
    state = json.loads((tmp_path / "python" / "states.jsonl").read_text().splitlines()[-1])
    assert sorted(client["rackId"] for client in state["clients"]) == ["a", "b", "c"]
    assert {client["clientTags"]["zone"] for client in state["clients"]} == {ZONE}
    for task in state["tasks"]:
        seen = {tuple(one["rackIds"]) for one in task["topicPartitions"] if not one["isChangelog"]}
        assert seen == {(racks_of_partitions()[task["id"]],)}
        assert {tuple(one["rackIds"]) for one in task["topicPartitions"] if one["isChangelog"]} == {("a", "b", "c")}
    assert differing(tmp_path / "java", "high-availability") == []
