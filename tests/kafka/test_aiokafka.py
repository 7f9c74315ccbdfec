"""Eager assignors decide in real groups of aiokafka's consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerAssignor,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
)
from task_assignor.sdk import ConfigException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import WAIT_SECONDS, make_topics, wait_until

aiokafka = pytest.importorskip("aiokafka")
room = pytest.importorskip("task_assignor.kafka")
consumers = pytest.importorskip("tests.kafka.consumers")

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
PARTITIONS = 6


class Failing(StickyAssignor):
    """Fails when it is told to."""

    fails = False

    def assign(self, topics: Any, members: Any) -> ConsumerAssignment:
        if self.fails:
            raise RuntimeError("a bug")
        return super().assign(topics, members)


class Group:
    """Consumers of one group with aiokafka."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self.topic, self.name, self._servers = f"{name}-clicks", name, cluster.bootstrap_servers
        self.plugins: dict[Any, Any] = {}
        make_topics(self._servers, self.topic, partitions=PARTITIONS)

    async def join(self, assignor: ConsumerAssignor) -> Any:
        plugin = room.AiokafkaPlugin(room.ConsumerAssignorPlugin(assignor, limit_ms=10_000))
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self._servers,
            group_id=self.name,
            partition_assignment_strategy=[plugin],
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
        )
        plugin.attach(consumer)
        await consumer.start()
        self.plugins[consumer] = plugin
        return consumer

    async def leave(self, consumer: Any) -> None:
        del self.plugins[consumer]
        await consumer.stop()

    def owned(self) -> Mapping[Any, frozenset[int]]:
        return {one: frozenset(each.partition for each in one.assignment()) for one in self.plugins}

    async def settle(self, holds: Callable[[], bool] = lambda: True) -> Mapping[Any, frozenset[int]]:
        """Wait until all partitions have one owner, evenly."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            owned = sorted(each for found in self.owned().values() for each in found)
            if owned == list(range(PARTITIONS)) and holds():
                return self.owned()
            assert time.monotonic() < end, self.owned()
            for consumer in self.plugins:
                await consumer.getmany(timeout_ms=10)

    async def stop(self) -> None:
        for consumer in list(self.plugins):
            await self.leave(consumer)


@pytest.mark.parametrize(
    "kind", [RangeAssignor, RoundRobinAssignor, StickyAssignor, StickyStreamJoinAssignor, CopartitionedAssignor]
)
def test_members_join_and_leave(kafka_cluster: KafkaCluster, unique: Unique, kind: type[ConsumerAssignor]) -> None:
    async def run() -> None:
        group = Group(kafka_cluster, unique("aio"))
        try:
            first = await group.join(kind())
            await group.settle()
            second = await group.join(kind())
            await group.settle(lambda: len(group.owned()[second]) == 3)
            third = await group.join(kind())
            before = await group.settle(lambda: len(group.owned()[third]) == 2)
            await group.leave(second)
            after = await group.settle(lambda: len(group.owned()[first]) == 3)
            if kind is StickyAssignor:
                assert before[first] <= after[first]
                assert before[third] <= after[third]
            assert all(plugin.plugin.failures == [] for plugin in group.plugins.values())
            assert all(plugin.plugin.generation >= 0 for plugin in group.plugins.values())
        finally:
            await group.stop()

    asyncio.run(run())


def test_a_fault_of_the_assignor_does_not_stop_the_group(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    async def run() -> None:
        group = Group(kafka_cluster, unique("aio"))
        assignor = Failing()
        try:
            first = await group.join(assignor)
            await group.settle()
            assignor.fails = True
            second = await group.join(Failing())
            plugin = group.plugins[first].plugin
            await group.settle(lambda: bool(plugin.failures) and group.plugins[second].plugin.generation >= 0)
            assert len(group.owned()[first]) == PARTITIONS
            assignor.fails = False
            # What the timer does a minute later, in a thread of its own.
            await asyncio.to_thread(plugin._rejoin)
            await group.settle(lambda: len(group.owned()[second]) == 3)
        finally:
            await group.stop()

    asyncio.run(run())


@pytest.mark.parametrize("leads", ["aiokafka", "kafka-python"])
def test_members_with_both_clients_share_a_group(kafka_cluster: KafkaCluster, unique: Unique, leads: str) -> None:
    async def run() -> None:
        group = Group(kafka_cluster, unique("mixed"))
        other = None

        def join_other() -> Any:
            return consumers.Member(kafka_cluster.bootstrap_servers, group.name, [group.topic], [StickyAssignor()])

        try:
            if leads == "kafka-python":
                first = other = join_other()
                await asyncio.to_thread(wait_until, lambda: len(first.owned) == PARTITIONS, "the first has all")
            mine = await group.join(StickyAssignor())
            if other is None:
                await group.settle()
                other = join_other()
            end = time.monotonic() + WAIT_SECONDS
            while True:
                await mine.getmany(timeout_ms=10)
                here, there = group.owned()[mine], {number for _, number in other.owned}
                if len(here) == len(there) == 3 and here | there == set(range(PARTITIONS)):
                    break
                assert time.monotonic() < end, (here, there, other.errors)
            assert other.errors == []
        finally:
            if other is not None:
                await asyncio.to_thread(other.leave)
            await group.stop()

    asyncio.run(run())


def test_what_aiokafka_cannot_do_is_refused() -> None:
    with pytest.raises(GroupException, match="is cooperative, and members with aiokafka do not say"):
        room.AiokafkaPlugin(room.ConsumerAssignorPlugin(CooperativeStickyAssignor()))
    with pytest.raises(GroupException, match=r"plugin.attach\(consumer\) before"):
        room.AiokafkaPlugin(room.ConsumerAssignorPlugin(StickyAssignor())).metadata(["clicks"])


def test_a_plugin_is_of_one_consumer() -> None:
    async def attach_two() -> None:
        plugin = room.AiokafkaPlugin(room.ConsumerAssignorPlugin(StickyAssignor()))
        plugin.attach(aiokafka.AIOKafkaConsumer(group_id="g", partition_assignment_strategy=[plugin]))
        with pytest.raises(GroupException, match="of 'sticky' is another consumer's"):
            plugin.attach(aiokafka.AIOKafkaConsumer(group_id="g", partition_assignment_strategy=[plugin]))

    asyncio.run(attach_two())


def test_a_rebalance_that_was_asked_for_is_dropped_with_its_loop() -> None:
    """A minute after an application had ended its loop, the thread of a timer died with a traceback."""

    async def attach() -> Any:
        plugin = room.AiokafkaPlugin(room.ConsumerAssignorPlugin(StickyAssignor()))
        consumer = aiokafka.AIOKafkaConsumer(group_id="g", partition_assignment_strategy=[plugin])
        plugin.attach(consumer)
        consumer._coordinator = SimpleNamespace(request_rejoin=list)
        return plugin.plugin

    asyncio.run(attach())._rejoin()


def test_what_is_not_wrapped_and_who_does_not_fit_is_said() -> None:
    with pytest.raises(ConfigException, match=r"Maybe AiokafkaPlugin\(ConsumerAssignorPlugin\(assignor\)\)"):
        room.AiokafkaPlugin(StickyAssignor())

    async def attach() -> None:
        plugin = room.AiokafkaPlugin(room.ConsumerAssignorPlugin(StickyAssignor()))
        with pytest.raises(GroupException, match=r"The consumer \('c'\) must be an AIOKafkaConsumer"):
            plugin.attach("c")
        with pytest.raises(GroupException, match="made without this plug-in of 'sticky'"):
            plugin.attach(aiokafka.AIOKafkaConsumer(group_id="g"))

    asyncio.run(attach())


def test_a_rack_that_nobody_is_told_is_said(caplog: pytest.LogCaptureFixture) -> None:
    room.AiokafkaPlugin(room.ConsumerAssignorPlugin(StickyAssignor(), rack_id="a"))
    assert "The rack_id (a) of the plug-in of 'sticky' has no effect" in caplog.text
