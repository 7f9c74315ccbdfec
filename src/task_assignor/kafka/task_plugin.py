"""Task assignors inside kafka-python's consumers: a Python stream application whose consumers are given tasks.

What its members tell each other are Kafka Streams' own formats, and the leader is the one that Spark has, too. The name is
not Kafka Streams': a Java application of the same group id does not mix with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from task_assignor.builtin_assignors import FallbackPriorTaskAssignor
from task_assignor.group import SubTopologyShape
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.streams import StreamsLeader, StreamsMember, followup_ms
from task_assignor.group.topics import MissingSourceTopicException
from task_assignor.group.wire import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    WireFormatException,
    decode_assignment_info,
    encode_subscription_info,
)
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.cluster import Cluster
from task_assignor.kafka.group_description import TASK_ASSIGNOR
from task_assignor.kafka.plugin import RETRY_S, GroupPlugin
from task_assignor.sdk import (
    LATEST_OFFSET,
    Assignment,
    ProcessId,
    StreamsConfig,
    Subscription,
    TaskAssignor,
    TaskId,
    TopicPartition,
)
from task_assignor.sdk.text import failure

_log = logging.getLogger(__name__)


class TaskAssignorPlugin(GroupPlugin):
    """Hosts a `TaskAssignor` in a consumer group; every consumer needs an instance of its own.

    The consumers of a group get the source partitions of their active tasks; `active_tasks` and `standby_tasks` say which
    tasks these are and of which it shall keep copies. Rebalances are cooperative, follow-ups come in time, and
    `on_assignment_computed` is called in the leader. Topics for repartitioning and changelogs are created by the leader
    where they are missing.

    When the assignor raises anything but `TaskAssignmentException`, answers nonsense or is too slow, active tasks stay
    where they are, those that nobody has go where there is room, and it is asked again a minute later.

    Args:
        config: the settings; `task.assignor.class`, the cluster, `client.rack`, `client.tag.*`, `application.server`.
        shapes: the sub-topologies, in the order of their numbers.
        process_id: of the client; its consumers share it.
        offset_sums: tells of which tasks there is state, task -> changelog offsets summed; None: of those that were given
            last, active or standby.
        on_tasks: called with the active and the standby tasks after each rebalance, in the consumer's thread for the
            network: be quick. What it raises is logged and kept in `failures`.
        limit_ms: how long the leader may think, look-ups included; a third of `session.timeout.ms` is right.

    Attributes:
        active_tasks: the tasks whose source partitions the consumer has, sorted.
        standby_tasks: the tasks of which it shall keep a copy, sorted.

    Raises:
        ConfigException: the settings of the cluster are wrong, where topologies have changelogs or repartition topics.
    """

    def __init__(
        self,
        config: StreamsConfig,
        shapes: Sequence[SubTopologyShape],
        process_id: ProcessId,
        *,
        offset_sums: Callable[[], Mapping[TaskId, int]] | None = None,
        on_tasks: Callable[[Sequence[TaskId], Sequence[TaskId]], None] | None = None,
        limit_ms: int = 15_000,
    ) -> None:
        super().__init__(config.client_rack, limit_ms)
        self._config = config
        self._process_id = process_id
        self._offset_sums = offset_sums or self._last_given
        self._on_tasks = on_tasks
        self._leader = self._leader_of(config.task_assignor, shapes)
        self._emergency = self._leader_of(FallbackPriorTaskAssignor, shapes)
        has_internal = any(
            shape.repartition_sources or any(topic is not None for topic in shape.changelogs.values())
            for shape in shapes
        )
        self._settings = ClientSettings.of(config.originals) if has_internal else None
        self._subscriptions = 0
        self._sent = SubscriptionInfo(process_id)
        self.active_tasks: tuple[TaskId, ...] = ()
        self.standby_tasks: tuple[TaskId, ...] = ()

    def _leader_of(self, assignor: Callable[[], TaskAssignor], shapes: Sequence[SubTopologyShape]) -> StreamsLeader:
        return StreamsLeader(assignor, self._config.assignment_configs, shapes)

    @property
    def name(self) -> str:
        """`task-assignor`."""
        return TASK_ASSIGNOR

    @property
    def is_cooperative(self) -> bool:
        """It is."""
        return True

    def on_assignment(self, assignment: object, generation: int) -> None:
        """Take the tasks, and plan the follow-up rebalance."""
        super().on_assignment(assignment, generation)
        info = self._read(self._given.user_data)
        if info is None:
            # The leader could do no better than to leave everything as it is.
            return
        self.active_tasks = tuple(sorted(set(info.active_tasks)))
        self.standby_tasks = tuple(sorted(info.standby_tasks))
        due_ms = followup_ms(info, self._sent)
        if info.err_code:
            # KIP-924 has members try again; nothing is given to anybody until then.
            self.failures.append(f"The leader of the group answered with the error code {info.err_code}.")
            due_ms = int((time.time() + RETRY_S) * 1000)
        if due_ms != NO_REBALANCE:
            self.rebalance_at(due_ms / 1000)
        if self._on_tasks is not None:
            try:
                self._on_tasks(self.active_tasks, self.standby_tasks)
            except Exception as error:  # noqa: BLE001  (it runs inside kafka-python's join)
                self.failures.append(f"on_tasks failed with {failure(error)}.")
                _log.exception("on_tasks failed")

    def _read(self, data: bytes | None) -> AssignmentInfo | None:
        if data is None:
            return None
        try:
            return decode_assignment_info(data)
        except WireFormatException as error:
            self.failures.append(f"What the leader sent cannot be read: {error}")
            return None

    def _last_given(self) -> dict[TaskId, int]:
        return {**dict.fromkeys(self.standby_tasks, 0), **dict.fromkeys(self.active_tasks, LATEST_OFFSET)}

    def _user_data(self) -> bytes:
        # Changes with every subscription, or the broker would not see a reason for a rebalance.
        self._subscriptions = (self._subscriptions + 1) % 128
        end_point = self._config.values.get("application.server")
        self._sent = SubscriptionInfo(
            self._process_id,
            dict(self._offset_sums()),
            str(end_point) if end_point else None,
            self._subscriptions,
            client_tags=self._config.client_tags,
        )
        return encode_subscription_info(self._sent)

    def _decide(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        try:
            counts, end_offsets = self._internal_topics(dict(topics.counts))
        except MissingSourceTopicException as error:
            # A consumer that has just begun does not know the topics yet, and joins again when it does.
            _log.warning("%s The group waits for them.", error)
            self.rebalance_at(time.time() + RETRY_S)
            return {member.member_id: Assignment() for member in members}
        return self._answer(self._leader, topics, members, counts, end_offsets)

    def _fall_back(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        # Internal topics have the counts that they need, whether or not the cluster could be asked.
        counts = self._emergency.topics(topics.counts).partitions
        return self._answer(self._emergency, topics, members, counts, {})

    def _answer(
        self,
        leader: StreamsLeader,
        topics: GroupTopics,
        members: list[ConsumerMember],
        counts: Mapping[str, int],
        end_offsets: Mapping[TopicPartition, int],
    ) -> dict[str, Assignment]:
        found = [one for one in map(self._streams_member, members) if one is not None]
        racks = {
            topic: [None if each is None else frozenset(each) for each in known]
            for topic, known in topics.racks.items()
        }
        rebalance = leader.rebalance(found, counts, end_offsets, int(time.time() * 1000), racks)
        if rebalance.error:
            self.failures.append(rebalance.error)
        nothing = {member.member_id: Assignment() for member in members}
        return nothing | {name: given.to_assignment() for name, given in rebalance.members.items()}

    def _streams_member(self, member: ConsumerMember) -> StreamsMember | None:
        owned = tuple(TopicPartition(topic, each) for topic, found in member.owned.items() for each in found)
        subscription = Subscription(
            member.topics, member.user_data, owned, member.generation, member.rack_id, member.group_instance_id
        )
        try:
            return StreamsMember.of(member.member_id, subscription)
        except WireFormatException as error:
            self.failures.append(f"What the member {member.member_id} says cannot be read, so it gets nothing: {error}")
            return None

    def _internal_topics(self, counts: dict[str, int]) -> tuple[Mapping[str, int], dict[TopicPartition, int]]:
        """Counts of all topics, and end offsets of changelogs; what is missing is created."""
        plan = self._leader.topics(counts)
        if self._settings is None:
            return plan.partitions, {}
        with Cluster(self._settings, max(int(self._limit_s * 1000), 1)) as cluster:
            existing = set(cluster.topics())
            counts |= cluster.partition_counts(plan.internal.keys() & existing)
            plan = self._leader.topics(counts)
            if plan.create:
                self._create(plan.create, self._settings)
            old = [
                TopicPartition(topic, partition)
                for topic in sorted(plan.internal.keys() & existing)
                for partition in range(plan.internal[topic])
            ]
            return plan.partitions, cluster.end_offsets(old)

    @staticmethod
    def _create(topics: Mapping[str, int], settings: ClientSettings) -> None:
        admin = KafkaAdminClient(**settings.for_kafka_python())
        try:
            for topic, partitions in sorted(topics.items()):
                policy = {"cleanup.policy": "compact"} if topic.endswith("-changelog") else {}
                # Another leader may have been quicker.
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics([NewTopic(topic, partitions, -1, topic_configs=policy)])
        finally:
            admin.close()
