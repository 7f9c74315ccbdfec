"""A look into a real Kafka Streams application in Java, and its state as the other commands take it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from task_assignor import ProcessId, TaskId, read_state
from task_assignor.group.wire import (
    AssignmentInfo,
    SubscriptionInfo,
    encode_assignment,
    encode_assignment_info,
    encode_subscription,
    encode_subscription_info,
)
from task_assignor.sdk import Assignment, Subscription, TopicPartition
from tests.bridge.streams import StreamsGroup
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until

kafka = pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")
group_description = pytest.importorskip("task_assignor.kafka.group_description")

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("leaders")]
TOPOLOGY = """Topologies:
   Sub-topology: 0
    Source: LEFT (topics: [{name}-left])
    Source: RIGHT (topics: [{name}-right])
    Processor: JOIN (stores: [{stores}])
"""


def with_longer_name(servers: str, group: str, topic: str) -> None:
    """A group whose name begins with that of another one, and its changelog."""
    make_topics(servers, topic, partitions=4)
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    try:
        place = kafka.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(0, "", -1)})
    finally:
        consumer.close()


def test_the_state_of_a_java_application_is_what_its_instances_run(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    name, settings = unique("live"), {"client.tag.zone": "a", "num.stream.threads": 2}
    with StreamsGroup(kafka_cluster, name, tmp_path, java, tasks=4, settings=settings) as group:
        group.start("i1")
        group.start("i2")
        group.wait_until_settled()
        group.feed(40)
        group.expect_all_rows_once()
        other = f"{name}-eu-totals-changelog"
        with_longer_name(kafka_cluster.bootstrap_servers, f"{name}-eu", other)
        with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
            wait_until(lambda: cluster.describe_group(name).state == "Stable", "the group is stable")
            theirs_too = {"num.standby.replicas": "1", "application.id": "payments"}
            inferred = room.state_of_group(cluster, name, settings=theirs_too)
            inspection = room.inspect_group(cluster, name)
            changelogs = [
                each
                for each in cluster.topics()
                if each.startswith(f"{name}-") and each.endswith("-changelog") and each != other
            ]
            stores = [each.removeprefix(f"{name}-").removesuffix("-changelog") for each in changelogs]
            described = TOPOLOGY.format(name=name, stores=", ".join(stores))
            exact = room.state_of_group(cluster, name, described, {"num.standby.replicas": 1, "application.id": name})
            with pytest.raises(room.GroupStateException, match="has a standby of the task"):
                room.state_of_group(cluster, name, TOPOLOGY.format(name=name, stores=""))
            with pytest.raises(room.GroupStateException, match="The topology does not fit the group"):
                room.state_of_group(cluster, name, described.replace(f"{name}-right", f"{name}-joined"))
        ours = {
            (
                frozenset(str(task) for task in client.previous_active_tasks),
                frozenset(str(task) for task in client.previous_standby_tasks),
            )
            for client in exact.state.kafka_streams_states(compute_task_lags=False).values()
        }
        theirs = {(frozenset(one.active), frozenset(one.standby)) for one in group.instances.values()}
    assert ours == theirs
    assert inspection.violations == ()
    assert len(stores) == 2
    assert exact.state.assignment_configs.num_standby_replicas == 1
    for found in (inferred.state, exact.state):
        assert list(found.all_tasks) == [TaskId(0, partition) for partition in range(4)]
        clients = found.kafka_streams_states(compute_task_lags=True).values()
        assert [client.num_processing_threads for client in clients] == [2, 2]
        assert [dict(client.client_tags) for client in clients] == [{"zone": "a"}] * 2
        for info in found.all_tasks.values():
            assert info.is_stateful
            assert (
                sorted(each.topic_partition.topic for each in info.topic_partitions if each.is_changelog) == changelogs
            )
        # Both sides of 40 pairs went through the changelogs; markers of transactions count as offsets.
        assert sum(found.columns.tasks.end_offset_sum.tolist()) >= 80
    assert exact.notes
    assert any(other in note for note in inferred.notes)
    foreign = "The settings are of another application: their application.id is 'payments'."
    assert foreign in inferred.notes
    assert "another application" not in " ".join(exact.notes)


def test_the_command_writes_what_plan_takes(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    from typer.testing import CliRunner

    from task_assignor.cli.app import app

    name, state = unique("written"), tmp_path / "state.json"
    (tmp_path / "app.properties").write_text(
        f"bootstrap.servers={kafka_cluster.bootstrap_servers}\nnum.standby.replicas=1\ndefault.key.serde=x.y.Z\n"
    )
    with StreamsGroup(kafka_cluster, name, tmp_path, java, tasks=2) as group:
        group.start("i1")
        group.start("i2")
        group.wait_until_settled()
        with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
            wait_until(lambda: cluster.describe_group(name).state == "Stable", "the group is stable")
        command = ["snapshot", "--group", name, "--config", str(tmp_path / "app.properties"), "--output", str(state)]
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert read_state(state).assignment_configs.num_standby_replicas == 1
    planned = CliRunner().invoke(app, ["plan", str(state), "--assignor", "sticky"])
    assert planned.exit_code == 0, planned.output
    assert "2 tasks on 2 clients: 2 active (0 started, 0 moved), 2 standbys." in planned.output


class NamedTopologies(room.Cluster):  # type: ignore[misc, name-defined]
    """A group `g` whose one client runs `left__0` and `right__0`, each with a store."""

    def __init__(self) -> None:
        """It is connected to nothing."""

    def topics(self) -> list[str]:
        return ["a", "b", "g-left-s-changelog", "g-right-s-changelog"]

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 2)

    def partition_racks(self, topics: Collection[str]) -> dict[str, tuple[frozenset[str] | None, ...]]:
        return dict.fromkeys(topics, (None, None))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 5)

    def groups(self) -> list[Any]:
        return []

    def describe_group(self, group: str) -> Any:
        running = {
            TopicPartition(topic, number): TaskId(0, number, name)
            for topic, name in (("a", "left"), ("b", "right"))
            for number in range(2)
        }
        told = encode_subscription_info(SubscriptionInfo(ProcessId(UUID(int=1)), dict.fromkeys(running.values(), -2)))
        given = encode_assignment_info(AssignmentInfo(tuple(running.values())))
        member = group_description.describe_member(
            *("m", None, "c", "h", "stream"),
            encode_subscription(Subscription(("a", "b"), told)),
            encode_assignment(Assignment(tuple(running), given)),
        )
        return room.GroupDescription(group, "Stable", "stream", (member,))


def test_a_group_with_named_topologies_has_a_state() -> None:
    """It was refused: a topology, which nobody had given, did not fit the group."""
    tasks = room.state_of_group(NamedTopologies(), "g").state.all_tasks
    assert {
        str(task): [str(each.topic_partition) for each in info.topic_partitions] for task, info in tasks.items()
    } == {
        f"{name}__0_{number}": [f"{topic}-{number}", f"g-{name}-s-changelog-{number}"]
        for name, topic in (("left", "a"), ("right", "b"))
        for number in range(2)
    }
    assert [info.state_store_names for info in tasks.values()] == [{"s"}] * 4


class OldLeader(NamedTopologies):
    """A group `g` led by Kafka Streams 2.4: `a` is read without stores, `b` with one; the second member has standbys of all."""

    def topics(self) -> list[str]:
        return ["a", "b", "g-s-changelog"]

    def describe_group(self, group: str) -> Any:
        running = {
            TopicPartition(topic, number): TaskId(subtopology, number)
            for subtopology, topic in enumerate("ab")
            for number in range(2)
        }
        copies = {task: (partition,) for partition, task in running.items()}
        members = []
        for number, (active, standby) in enumerate([(running, {}), ({}, copies)]):
            told = SubscriptionInfo(ProcessId(UUID(int=number)), version=5, latest_supported_version=5)
            given = AssignmentInfo(tuple(active.values()), standby, version=5, commonly_supported_version=5)
            members.append(
                group_description.describe_member(
                    *(f"m{number}", None, "c", "h", "stream"),
                    encode_subscription(Subscription(("a", "b"), encode_subscription_info(told))),
                    encode_assignment(Assignment(tuple(active), encode_assignment_info(given))),
                )
            )
        return room.GroupDescription(group, "Stable", "stream", tuple(members))


def test_old_leaders_give_standbys_of_tasks_without_stores() -> None:
    """A topology that fits was said not to fit the group."""
    topology = "Topologies:\n Sub-topology: 0\n Source: A (topics: [a])\n Sub-topology: 1\n Source: B (topics: [b])\n Processor: P (stores: [s])\n"
    state = room.state_of_group(OldLeader(), "g", topology).state
    clients = state.kafka_streams_states(compute_task_lags=True)
    assert [sorted(map(str, clients[ProcessId(UUID(int=number))].previous_standby_tasks)) for number in range(2)] == [
        [],
        ["1_0", "1_1"],
    ]
