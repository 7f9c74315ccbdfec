"""What plug-ins that lead groups with tasks share: from what the members say, through the leader, to what each is sent.

The formats are Kafka Streams' own, and the leader is the one that Spark has, too. What the members do not tell is looked up
in the cluster, and internal topics that are missing are created there.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic
from kafka.errors import AuthorizationError, NoError, TopicAlreadyExistsError, for_code

from task_assignor.builtin_assignors import FallbackPriorTaskAssignor
from task_assignor.group import GroupException, SubTopologyShape
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.errors import list_of
from task_assignor.group.streams import StreamsLeader, StreamsMember, StreamsRebalance
from task_assignor.group.wire import SubscriptionInfo, encode_subscription_info
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.cluster import Cluster
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.plugin import GroupPlugin
from task_assignor.sdk import (
    Assignment,
    ConfigException,
    ConfigKey,
    ProcessId,
    StreamsConfig,
    StreamsException,
    Subscription,
    TaskAssignor,
    TopicPartition,
)
from task_assignor.sdk.config_def import given_value
from task_assignor.sdk.text import shown

_TOPIC_PREFIX: Final = "topic."
_REPLICATION: Final = ConfigKey(name="replication.factor", type="int", default=-1, minimum=-1, maximum=2**15 - 1)
"""-1: what the brokers have by default."""
# As Kafka Streams makes them: nothing of a repartition topic goes before it was read.
_CHANGELOG_SETTINGS: Final = {"cleanup.policy": "compact"}
_REPARTITION_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}

_RETRY_MS: Final = 10_000
"""After an assignor has asked twice in a row to be asked again."""
_LOOK_UP_SHARE: Final = 0.5
"""Of the limit: a cluster that does not answer is named in time, before the assignor is given up, which was not asked yet."""


@attrs.frozen
class TopicFacts:
    """What a rebalance needs to know of the topics.

    Args:
        counts: topic -> number of partitions.
        racks: topic -> racks of the replicas, partition by partition, where known.
        end_offsets: end offset of each changelog partition, 0 where missing; of one that is a source what the group committed.
    """

    counts: Mapping[str, int]
    racks: Mapping[str, Sequence[frozenset[str] | None]] = attrs.field(factory=dict)
    end_offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, topics: GroupTopics) -> TopicFacts:
        """As far as a consumer knows them."""
        racks = {
            topic: [None if each is None else frozenset(each) for each in known]
            for topic, known in topics.racks.items()
        }
        return cls(topics.counts, racks)


def checked_config(given: object) -> StreamsConfig:
    """What was given as settings.

    Raises:
        ConfigException: it is no `StreamsConfig`.
    """
    if not isinstance(given, StreamsConfig):
        raise ConfigException(
            f"The config ({shown(given)}) must be a StreamsConfig, as StreamsConfig({{...}}) makes it."
        )
    return given


class StreamsPlugin(GroupPlugin):
    """A `GroupPlugin` that gives tasks to the members.

    Args:
        config: the settings of the application.
        shapes: the sub-topologies, in the order of their numbers.
        process_id: of this client.
        limit_ms: how long the leader may think, look-ups included; a third of `session.timeout.ms` is right.

    Attributes:
        last: what was decided when this consumer led the group last; None: it has not yet.

    Raises:
        ConfigException: there are no settings, or those of the cluster are wrong, where topologies have changelogs or
            repartition topics; or something else is not allowed.
        GroupException: the sub-topologies are no list of `SubTopologyShape`, or read no topics.
    """

    def __init__(
        self, config: StreamsConfig, shapes: Sequence[SubTopologyShape], process_id: ProcessId, limit_ms: int
    ) -> None:
        super().__init__(checked_config(config).client_rack, limit_ms)
        self._config = config
        self._shapes = list_of("sub-topologies", SubTopologyShape, shapes)
        self._all_sources = frozenset(topic for shape in self._shapes for topic in shape.all_sources)
        if not self._all_sources:
            raise GroupException(
                f"The sub-topologies ({shown(shapes)}) read no topics: there is nothing to assign. Maybe make them by "
                "shapes_of_topology(...)."
            )
        if not isinstance(process_id, ProcessId):
            raise ConfigException(
                f"The process_id ({shown(process_id)}) must be a ProcessId. Maybe use ProcessId.parse(text)."
            )
        self._process_id = process_id
        self._leader = self._leader_of(config.task_assignor)
        self._emergency = self._leader_of(FallbackPriorTaskAssignor)
        self._settings = ClientSettings.of(config.originals) if self._needs_cluster else None
        # What is wrong is said now, and not when a topic is to be created.
        self._replicas = given_value(_REPLICATION, config.originals)
        self._facts: TopicFacts | None = None
        self._subscriptions = 0
        self._sent = SubscriptionInfo(process_id)
        self.last: StreamsRebalance | None = None

    def _leader_of(self, assignor: Callable[[], TaskAssignor]) -> StreamsLeader:
        return StreamsLeader(assignor, self._config.assignment_configs, self._shapes)

    def attach(self, consumer: KafkaConsumer) -> None:
        """As of any plug-in; the consumer no longer has brokers create topics that are missing, as in Kafka Streams.

        Raises:
            GroupException: as of any plug-in.
        """
        super().attach(consumer)
        # They would give repartition topics a number of partitions of their own before a leader creates them, and make a source
        # that was deleted anew. kafka-python's own setting for it (3.0.12) does not get where it counts.
        consumer._cluster.config["allow_auto_create_topics"] = False  # noqa: SLF001

    @property
    def _decider(self) -> str:
        return f"assignor {self._config.task_assignor_class.__qualname__}"

    def _what_failed(self, error: BaseException) -> str:
        # What the leader says of an assignor, or a look-up of the cluster, needs no other words.
        return (
            " ".join(str(error).split()).rstrip(".")
            if isinstance(error, StreamsException)
            else super()._what_failed(error)
        )

    @property
    def is_cooperative(self) -> bool:
        """It is."""
        return True

    @property
    def _group(self) -> str:
        """Where offsets are committed."""
        return self._config.application_id if self._consumer is None else str(self._consumer.config["group_id"])

    @property
    def _needs_cluster(self) -> bool:
        """Whether something is to be known that consumers do not know."""
        return any(shape.repartition_sources or shape.changelog_topics for shape in self._shapes)

    @abstractmethod
    def _subscription_info(self, number: int) -> SubscriptionInfo:
        """What this client tells of itself, and a number that changes: else the broker saw no reason for a rebalance."""

    def _user_data(self) -> bytes:
        self._subscriptions = (self._subscriptions + 1) % 128
        self._sent = self._subscription_info(self._subscriptions)
        return encode_subscription_info(self._sent)

    @abstractmethod
    def _clients(self, members: Sequence[ConsumerMember]) -> list[StreamsMember]:
        """The members that get tasks; the others get nothing."""

    def _decide(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        self._facts = None
        found = self._clients(members)
        self._facts = self.look_up(topics)
        return self._answer(self._leader, found, members, self._facts)

    def _fall_back(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        facts = self._facts or TopicFacts.of(topics)
        # Internal topics have the counts that they need, whether or not the cluster could be asked.
        known = attrs.evolve(facts, counts=self._emergency.topics(facts.counts).partitions)
        return self._answer(self._emergency, self._clients(members), members, known)

    def _answer(
        self, leader: StreamsLeader, found: list[StreamsMember], members: list[ConsumerMember], facts: TopicFacts
    ) -> dict[str, Assignment]:
        nothing = self._nothing(members)
        if not found:
            return nothing
        now_ms = int(time.time() * 1000)
        # An assignor that never has an answer would keep the group in rebalances for ever, several a second.
        retry_ms = _RETRY_MS if self.last is not None and self.last.kept_because else 0
        led = {member.member_id for member in found}
        others = {each.member_id: _subscription(each) for each in members if each.member_id not in led}
        rebalance = leader.rebalance(
            found, facts.counts, facts.end_offsets, now_ms, facts.racks, retry_ms=retry_ms, others=others
        )
        if rebalance.error:
            self._warn(f"{rebalance.error} All members are told so, and get nothing.")
        self.last = rebalance
        return nothing | rebalance.to_assignments()

    def _nothing(self, members: Sequence[ConsumerMember]) -> dict[str, Assignment]:
        """What members are sent that get no tasks."""
        return {member.member_id: Assignment() for member in members}

    def look_up(self, known: GroupTopics | None = None, *, creates: bool = True) -> TopicFacts:
        """What the cluster says of the topics.

        Args:
            known: what the consumer knows, enough for topologies without internal topics.
            creates: create the internal topics that are missing.

        Raises:
            MissingSourceTopicException: a source topic does not exist.
            GroupException: numbers of partitions do not fit.
            KafkaClusterException: the cluster does not answer.
        """
        if self._settings is None:
            facts = TopicFacts.of(known or GroupTopics({}))
            return attrs.evolve(facts, counts=self._leader.topics(facts.counts).partitions)
        logs = {topic for shape in self._shapes for topic in shape.changelog_topics}
        with Cluster(self._settings, max(int(self._limit_s * _LOOK_UP_SHARE * 1000), 1)) as cluster:
            named = logs | {topic for shape in self._shapes for topic in shape.all_sources}
            existing = cluster.existing(named)
            counts = cluster.partition_counts(existing)
            # Where they do not fit, nothing can be placed by them without the leader either.
            self._facts = TopicFacts(counts)
            plan = self._leader.topics(counts)
            if plan.create and creates:
                self._create(plan.create, self._settings)
            old = [TopicPartition(topic, each) for topic in sorted(logs & existing) for each in range(counts[topic])]
            ends = cluster.end_offsets([each for each in old if each.topic not in self._all_sources])
            # A source that serves as changelog is restored up to where it was processed, as in Kafka.
            if logs & existing & self._all_sources:
                processed = cluster.committed_offsets(self._group)
                ends |= {each: processed.get(each, 0) for each in old if each.topic in self._all_sources}
            return TopicFacts(plan.partitions, cluster.partition_racks(existing), ends)

    def _create(self, topics: Mapping[str, int], settings: ClientSettings) -> None:
        given = self._config.originals
        own = {key.removeprefix(_TOPIC_PREFIX): str(given[key]) for key in given if key.startswith(_TOPIC_PREFIX)}
        admin = KafkaAdminClient(**settings.for_kafka_python())
        try:
            for topic, partitions in sorted(topics.items()):
                usual = _REPARTITION_SETTINGS if topic in self._all_sources else _CHANGELOG_SETTINGS
                made = NewTopic(topic, partitions, self._replicas, topic_configs=usual | own)
                (answer,) = admin.create_topics([made], raise_errors=False)["topics"]
                error = for_code(answer["error_code"])
                # Another leader may have been quicker.
                if error not in (NoError, TopicAlreadyExistsError):
                    advice = (
                        " Maybe this user lacks the right to CREATE it."
                        if issubclass(error, AuthorizationError)
                        else ""
                    )
                    said = (answer["error_message"] or error.__name__).rstrip(".")
                    raise KafkaClusterException(f"The cluster does not create the topic {topic!r}: {said}.{advice}")
        finally:
            admin.close()


def streams_member(member: ConsumerMember) -> StreamsMember:
    """A member of a group with tasks.

    Raises:
        WireFormatException: its user data cannot be read.
    """
    return StreamsMember.of(member.member_id, _subscription(member))


def _subscription(member: ConsumerMember) -> Subscription:
    # It may say anything: what is no partition is not its own.
    owned = tuple(TopicPartition(topic, each) for topic, found in member.owned.items() for each in found if each >= 0)
    return Subscription(
        member.topics, member.user_data, owned, member.generation, member.rack_id, member.group_instance_id
    )
