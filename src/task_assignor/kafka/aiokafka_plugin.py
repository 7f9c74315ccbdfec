"""Consumer-level assignors inside aiokafka's consumers, as far as aiokafka goes: eager ones.

Its members say no more than topics and user data (version 0 of the subscription), so there are no cooperative assignors and
no racks. Nothing of aiokafka is imported before it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from task_assignor.group import GroupException
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.kafka.consumer_plugin import ConsumerAssignorPlugin
from task_assignor.sdk import Assignment, ConfigException, TopicPartition
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

_log = logger_of(__name__)


class AiokafkaPlugin:
    """A `ConsumerAssignorPlugin` as aiokafka takes it; every consumer needs one of its own.

    While the assignor of the leader thinks, the leader's event loop stands still: its limit is what it may take. Faults are
    answered as with kafka-python.

    Args:
        plugin: the assignor with its limits; its `failures` and `generation` tell what happens.

    Raises:
        ConfigException: it is none.
        GroupException: its assignor is cooperative.

    Examples:
        >>> async def open_consumer():
        ...     plugin = AiokafkaPlugin(ConsumerAssignorPlugin(StickyAssignor()))
        ...     consumer = AIOKafkaConsumer("clicks", group_id="g", partition_assignment_strategy=[plugin])
        ...     plugin.attach(consumer)
        ...     await consumer.start()
        ...     return consumer
    """

    def __init__(self, plugin: ConsumerAssignorPlugin) -> None:
        if not isinstance(plugin, ConsumerAssignorPlugin):
            raise ConfigException(
                f"The plugin ({shown(plugin)}) must be a ConsumerAssignorPlugin. Maybe "
                "AiokafkaPlugin(ConsumerAssignorPlugin(assignor))."
            )
        if plugin.is_cooperative:
            raise GroupException(
                f"The assignor {plugin.name!r} is cooperative, and members with aiokafka do not say what they own. Maybe use "
                "StickyAssignor, or kafka-python."
            )
        if plugin.rack_id is not None:
            _log.warning(
                "The rack_id (%s) of the plug-in of %r has no effect: members with aiokafka do not say their racks.",
                plugin.rack_id,
                plugin.name,
            )
        self.plugin = plugin
        self._consumer: Any = None

    @property
    def name(self) -> str:
        """The assignor's."""
        return self.plugin.name

    def attach(self, consumer: Any) -> None:
        """Tell which `AIOKafkaConsumer` this is for, before it starts, in its event loop.

        Raises:
            GroupException: it is that of another consumer, which is open; the consumer is none of aiokafka's, or was not made with
                it.
        """
        from aiokafka import AIOKafkaConsumer

        if not isinstance(consumer, AIOKafkaConsumer):
            raise GroupException(f"The consumer ({shown(consumer)}) must be an AIOKafkaConsumer.")
        self.plugin.check_alone(self._consumer, consumer)
        if self not in consumer._partition_assignment_strategy:  # noqa: SLF001
            raise GroupException(
                f"The consumer was made without this plug-in of {self.name!r}, which would take what it has for its own. Maybe "
                "make it with partition_assignment_strategy=[plugin]."
            )
        loop = asyncio.get_running_loop()
        self._consumer = consumer
        self.plugin.answer_within(consumer._session_timeout_ms)  # noqa: SLF001

        def rejoin() -> None:
            # A loop may be closed before the time has come; then nobody is left to join.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._coordinator.request_rejoin)

        self.plugin.rejoin_by(rejoin)

    @property
    def _coordinator(self) -> Any:
        # aiokafka has no public way to ask for a rebalance, and none to learn the generation; it is there after start().
        return self._consumer._coordinator  # noqa: SLF001

    def metadata(self, topics: Iterable[str]) -> Any:
        """What this consumer says of itself when it joins.

        Raises:
            GroupException: `attach` was not called: claims without generation would be taken for stale ones.
        """
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

        if self._consumer is None:
            raise GroupException(
                f"The plug-in of {self.name!r} must know its consumer. Maybe call plugin.attach(consumer) before "
                "consumer.start()."
            )
        return ConsumerProtocolMemberMetadata(0, sorted(topics), self.plugin.tell() or b"")

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the assignor, as leader of the group. Never raises."""
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

        found = [
            ConsumerMember(name, tuple(told.subscription), told.user_data or None) for name, told in members.items()
        ]
        counts = {
            topic: max(partitions) + 1
            for topic in sorted({topic for member in found for topic in member.topics})
            if (partitions := cluster.partitions_for_topic(topic))
        }
        answer = self.plugin.answer(GroupTopics(counts), found)
        return {
            name: ConsumerProtocolMemberAssignment(0, by_topic(given.partitions), given.user_data or b"")
            for name, given in answer.items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """Remember what was given, for the next time."""
        partitions = tuple(TopicPartition(each.topic, each.partition) for each in assignment.partitions())
        self.plugin.take(Assignment(partitions, assignment.user_data or None), self._coordinator.generation)
