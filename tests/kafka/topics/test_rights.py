"""What is said where the brokers' ACLs deny what an application needs: before it begins, and by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from task_assignor import StreamsConfig
from task_assignor.group import SubTopologyShape
from task_assignor.kafka import GroupStateException, StreamsGroupLeader
from task_assignor.kafka.cluster import Cluster
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.runtime import ClientException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import wait_until
from tests.kafka.secured import Secured
from tests.kafka.topics.test_sinks import Counting

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
NEEDED = {
    "topic source": ["Read"],
    "topic output": ["Write"],
    "topic changelog": ["Create", "DescribeConfigs", "Read", "Write"],
    "group application": ["Read"],
    "transactional-id application-": ["Write"],
}
"""As in `docs/kafka-topics.md`."""
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


@contextmanager
def allowed(cluster: KafkaCluster, counting: Counting, rights: Mapping[str, list[str]]) -> Iterator[None]:
    """The user may do that much with what the application needs, and nothing more."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    names = {
        "source": (counting.source, LITERAL),
        "output": (counting.output, LITERAL),
        "changelog": (counting.changelog, LITERAL),
        "application": (counting.application_id, LITERAL),
        "application-": (f"{counting.application_id}-", PREFIXED),
        "": ("kafka-cluster", LITERAL),
        "of readers": ("task-assignor", LITERAL),
    }
    bindings = []
    for what, operations in {**rights, "cluster ": [], "group of readers": []}.items():
        kind, _, name = what.partition(" ")
        # Where nothing is said of a resource, this broker allows everything.
        for user, operation in [("User:nobody", AclOperation.ALL), *(("User:me", _of(each)) for each in operations)]:
            bindings.append(AclBinding(KINDS[kind], *names[name], user, "*", operation, AclPermissionType.ALLOW))
    every: tuple[Any, ...] = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    filters = [AclBindingFilter(each.restype, each.name, each.resource_pattern_type, *every) for each in bindings]

    def known() -> set[AclBinding]:
        """What the broker goes by: the controller has answered before the broker knows."""
        found = [admin.describe_acls(each).result(30) for each in dict.fromkeys(filters)]
        return {binding for each in found for binding in each}

    try:
        for future in admin.create_acls(bindings).values():
            future.result(30)
        wait_until(lambda: known() == set(bindings), "the broker knows the rights")
        yield
    finally:
        for future in admin.delete_acls(list(dict.fromkeys(filters))).values():
            future.result(30)
        wait_until(lambda: not known(), "the broker has forgotten the rights")


def _of(name: str) -> AclOperation:
    return AclOperation[{"DescribeConfigs": "DESCRIBE_CONFIGS"}.get(name, name.upper())]


def test_the_rights_that_are_documented_are_enough(secure_cluster: Secured, unique: Unique, tmp_path: Path) -> None:
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=200)
    with allowed(cluster, counting, NEEDED):
        counting.run(tmp_path / "run", topics_settings=settings)
        counting.add(200)
        counting.run(tmp_path / "run", topics_settings=settings)
        counting.check()


@pytest.mark.parametrize(
    ("what", "right", "told"),
    [
        ("topic source", "Read", "describe the topic source-.*ACLs lack a right"),
        ("topic output", "Write", "describe the topic counts-.*ACLs lack a right"),
        ("topic changelog", "Create", "create the internal topics .*ACLs lack a right"),
        ("topic changelog", "Read", "do Read with the topic .*-totals-changelog.*--operation Read --topic count-"),
        ("topic changelog", "Write", "do Write with the topic .*-totals-changelog"),
        ("topic changelog", "DescribeConfigs", "do DescribeConfigs with the topic .*-totals-changelog"),
        ("group application", "Read", "describe the group count-.*ACLs lack a right"),
    ],
)
def test_a_right_that_is_missing_is_named_before_anything_begins(
    secure_cluster: Secured, unique: Unique, tmp_path: Path, what: str, right: str, told: str
) -> None:
    """Also one that would be needed at a takeover alone."""
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=10)
    rights = {name: [each for each in given if (name, each) != (what, right)] for name, given in NEEDED.items()}
    with allowed(cluster, counting, rights), pytest.raises(KafkaClusterException, match=told):
        # That is none of a client: no task has begun.
        counting.run(tmp_path / "run", topics_settings=settings)


def test_may_be_seen_but_not_used(secure_cluster: Secured, unique: Unique, tmp_path: Path) -> None:
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=10)
    for what, told in (
        ("topic source", "do Read with the topic source-.*--operation Read --topic source-"),
        ("topic output", "do Write with the topic counts-"),
        ("group application", "do Read with the group count-.*--operation Read --group count-"),
    ):
        rights = {**NEEDED, what: ["Describe"]}
        with allowed(cluster, counting, rights), pytest.raises(KafkaClusterException, match=told):
            counting.run(tmp_path / "run", topics_settings=settings)


def test_a_topic_that_may_not_be_seen_is_not_called_missing(secure_cluster: Secured, unique: Unique) -> None:
    """What leads a group would create its changelogs anew, and take their lags for nothing."""
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=1)
    with Cluster(settings) as seen:
        assert seen.existing([counting.source, "nowhere"]) == {counting.source}
        with allowed(cluster, counting, {**NEEDED, "topic source": []}):
            for ask in (seen.existing, seen.partition_counts):
                with pytest.raises(
                    KafkaClusterException, match=r"'source-.*AuthorizationFailed.*lacks the right to DESCRIBE"
                ):
                    ask([counting.source])


LEADING = {"topic source": ["Describe"], "topic changelog": ["Create", "Describe"], "group application": ["Read"]}
"""As in `docs/lead-a-streams-group.md`."""


def leader_of(counting: Counting, settings: Mapping[str, object]) -> StreamsGroupLeader:
    config = StreamsConfig({"application.id": counting.application_id, "heartbeat.interval.ms": 200, **settings})
    return StreamsGroupLeader(config, [SubTopologyShape("s", (counting.source,), {"totals": counting.changelog})])


def test_the_rights_of_what_leads_a_group(secure_cluster: Secured, unique: Unique) -> None:
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=1)
    nothing: dict[str, list[str]] = {name: [] for name in NEEDED}
    for what, told in (
        ("topic source", "does not describe the topic 'source-.*lacks the right to DESCRIBE it"),
        ("group application", "GroupAuthorizationFailed.*Maybe this user lacks the right to READ the group"),
    ):
        refused = pytest.raises((GroupStateException, KafkaClusterException), match=told)
        with allowed(cluster, counting, {**nothing, **LEADING, what: []}), refused, leader_of(counting, settings):
            pass
    # Whether the members can keep what they have depends on what the consumer knows of the topics by then.
    some = {**nothing, **LEADING, "topic changelog": ["Describe"]}
    leader = leader_of(counting, settings)
    with allowed(cluster, counting, some), suppress(GroupStateException), leader:
        wait_until(lambda: leader.failures, "it cannot create the changelog")
    assert re.search("does not create the topic '.*-totals-changelog.*lacks the right to CREATE it", leader.failures[0])
    with (
        allowed(cluster, counting, {**nothing, **LEADING}),
        leader_of(counting, settings) as leader,
        Cluster({"bootstrap.servers": cluster.bootstrap_servers}) as seen,
    ):
        wait_until(lambda: seen.existing([counting.changelog]), "it has made the changelog")
        assert leader.is_leading


def test_transactions_that_are_denied_end_the_run(secure_cluster: Secured, unique: Unique, tmp_path: Path) -> None:
    """Brokers do not say before what a user may do with a transactional id."""
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=10)
    rights = {**NEEDED, "transactional-id application-": []}
    with allowed(cluster, counting, rights), pytest.raises(ClientException, match="ACLs lack a right"):
        counting.run(tmp_path / "run", topics_settings=settings)
