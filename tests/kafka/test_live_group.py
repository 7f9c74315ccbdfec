"""A live group of plain consumers becomes a document that `plan` takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from task_assignor.cli.app import app
from task_assignor.group.consumers import (
    ConsumerAssignor,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until

kafka = pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")
check_stable = pytest.importorskip("task_assignor.kafka.live_group").check_stable
consumers = pytest.importorskip("tests.kafka.consumers")

pytestmark = pytest.mark.kafka
PARTITIONS = 5


@pytest.fixture
def members(kafka_cluster: KafkaCluster, unique: Unique) -> Iterator[Callable[..., list[Any]]]:
    """Starts two members of a new group with two topics, and waits until they share all."""
    started: list[Any] = []

    def start(kind: type[ConsumerAssignor]) -> list[Any]:
        group = unique("plain")
        topics = [f"{group}-clicks", f"{group}-views"]
        make_topics(kafka_cluster.bootstrap_servers, *topics, partitions=PARTITIONS)
        for number in (1, 2):
            one = consumers.Member(kafka_cluster.bootstrap_servers, group, topics, [kind()], f"i{number}", rack="a")
            one.group = group
            started.append(one)
        everything = consumers.partitions_of(topics, PARTITIONS)
        wait_until(
            lambda: consumers.is_settled(started, everything) and all(one.owned for one in started), "they share"
        )
        return started

    yield start
    for member in started:
        member.leave()


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    "kind",
    [
        CooperativeStickyAssignor,
        CopartitionedAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        StickyStreamJoinAssignor,
    ],
)
def test_a_group_that_nothing_happens_to_is_planned_as_it_is(
    kafka_cluster: KafkaCluster, members: Callable[..., list[Any]], kind: type[ConsumerAssignor], tmp_path: Path
) -> None:
    found = members(kind)
    name, document = found[0].group, tmp_path / "group.json.gz"
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        wait_until(lambda: cluster.describe_group(name).state == "Stable", "the group is stable")
    where = ("--bootstrap-server", kafka_cluster.bootstrap_servers, "--group", name)
    done = run("snapshot", *where, "--output", str(document))
    assert done.exit_code == 0, done.output
    assert "Brokers do not tell the generation" in done.stderr
    planned = run("plan", str(document), "--json")
    assert planned.exit_code == 0, planned.output
    plan = json.loads(planned.stdout)
    assert plan["assignor"] == kind.name
    assert sorted(
        sorted((topic, number) for topic, numbers in each.items() for number in numbers)
        for each in plan["assignment"].values()
    ) == sorted(sorted(one.owned) for one in found)
    assert (plan["metrics"]["moved"], plan["metrics"]["withheld"]) == (0, 0)
    # What another assignor would make of it.
    other = run("plan", str(document), "--json", "--assignor", "sticky")
    assert json.loads(other.stdout)["metrics"]["previously_owned"] == 2 * PARTITIONS
    topology = tmp_path / "topology.txt"
    topology.write_text("Sub-topology: 0\n")
    refused = run("snapshot", *where, "--topology", str(topology))
    assert "has plain consumers and no topology" in str(refused.exception)


def test_static_ids_and_racks_are_told_and_a_group_without_members_has_no_state(
    kafka_cluster: KafkaCluster, members: Callable[..., list[Any]]
) -> None:
    name = members(RangeAssignor)[0].group
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        wait_until(lambda: cluster.describe_group(name).state == "Stable", "the group is stable")
        found = room.consumers_of_group(cluster, name)
    assert sorted(one.group_instance_id for one in found.members) == ["i1", "i2"]
    assert {one.rack_id for one in found.members} == {"a"}


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (("g", "Empty", ""), "The group 'g' has no members"),
        (("g", "PreparingRebalance", "", ("m",)), "in the middle of a rebalance"),
    ],
)
def test_a_group_that_is_not_stable_has_no_state(group: tuple[Any, ...], said: str) -> None:
    with pytest.raises(room.GroupStateException, match=said):
        check_stable(room.GroupDescription(*group))
