"""What all plug-ins of kafka-python's consumers share: what members say, a limit for whoever decides, rebalances asked for.

A leader must never hurt its group: whatever decides in it, every member gets an assignment in time.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.abstract import RebalanceProtocol as ClientProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from task_assignor.group import GroupException
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.consumers.table import Claim
from task_assignor.group.limits import GivenUpError, Limited
from task_assignor.group.wire.consumer_protocol import by_topic, merged
from task_assignor.kafka.connections import Connections
from task_assignor.kafka.fallback import newest_claims
from task_assignor.kafka.joins import KeptJoins
from task_assignor.sdk import Assignment, ConfigException, StreamsException, TopicPartition
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, shown

_log = logger_of(__name__)
_SUBSCRIPTION_VERSION: Final = 3
RETRY_S: Final = 60.0
_KEPT_FAILURES: Final = 100
"""A consumer that leads its group for months may fail once a minute."""
LONGEST_S: Final = threading.TIMEOUT_MAX / 2
"""Clocks take no longer time."""
_MOST_OF_SESSION: Final = 2 / 3
"""Brokers expel a leader that answers later than its session lasts, and the next one would take as long."""


class GroupPlugin(AbstractPartitionAssignor):  # type: ignore[misc]
    """An assignor as kafka-python takes it; every consumer needs an instance of its own.

    Args:
        rack_id: the rack of this consumer; None: not known.
        limit_ms: how long the assignor may think; a third of `session.timeout.ms` is right, two thirds are the most that
            counts once the consumer is attached. It runs in a thread, which is given up then: code that holds Python's lock
            that long cannot be.

    Attributes:
        failures: a sentence for each time the assignor failed while this consumer led the group; the last 100.
        rack_id: the rack of this consumer, as it was given.
        generation: the generation in which the consumer got its assignment; -1: it has none.
    """

    def __init__(self, rack_id: str | None, limit_ms: int) -> None:
        if not (rack_id is None or isinstance(rack_id, str)):
            raise ConfigException(f"The rack_id ({shown(rack_id)}) must be a str or None.")
        self.rack_id = rack_id
        self._limit_s = whole_number("limit_ms", limit_ms, 1) / 1000
        self._consumer: KafkaConsumer | None = None
        self._ask_to_rejoin: Callable[[], object] | None = None
        self._timer: threading.Timer | None = None
        self._has_asked = False
        """For a rebalance, since this consumer began to join."""
        self._given = Assignment()
        self._rests_until_s = 0.0
        """The assignor, after it did not answer: seconds of the monotonic clock."""
        self.generation = -1
        self.failures: list[str] = []

    @property
    @abstractmethod
    def name(self) -> str:
        """What the members of the group agree on."""

    @property
    def _decider(self) -> str:
        """Who decides, as part of a sentence."""
        return f"assignor {self.name!r}"

    @property
    @abstractmethod
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""

    @abstractmethod
    def _user_data(self) -> bytes | None:
        """What this consumer says of itself."""

    @abstractmethod
    def _decide(self, topics: GroupTopics, members: list[ConsumerMember]) -> Mapping[str, Assignment]:
        """Ask the assignor; may raise anything, or never return."""

    @abstractmethod
    def _fall_back(self, topics: GroupTopics, members: list[ConsumerMember]) -> Mapping[str, Assignment]:
        """What the group gets when the assignor failed: what it has."""

    def attach(self, consumer: KafkaConsumer) -> None:
        """Tell which consumer this is for, before it subscribes: only the consumer knows what it owns after a time-out.

        Cooperative assignors need it. Others should have it too: to try again by themselves after their assignor failed,
        and to be safe from joins that kafka-python forgets when they outlast a `poll()`.

        Raises:
            GroupException: it is that of another consumer, which is open; or the consumer is none of kafka-python's, or was
                not made with it.
        """
        if not isinstance(consumer, KafkaConsumer):
            advice = " Maybe use AiokafkaPlugin(plugin)." if type(consumer).__name__ == "AIOKafkaConsumer" else ""
            raise GroupException(f"The consumer ({shown(consumer)}) must be a KafkaConsumer of kafka-python.{advice}")
        self.check_alone(self._consumer, consumer)
        coordinator = consumer._coordinator  # noqa: SLF001
        if self not in getattr(coordinator, "_assignors", {self.name: self}).values():
            raise GroupException(
                f"The consumer was made without this plug-in of {self.name!r}, which would take what it has for its own. Maybe "
                "make it with partition_assignment_strategy=[plugin]."
            )
        self._consumer = consumer
        self.answer_within(consumer.config["session_timeout_ms"])
        # kafka-python has no public way to ask for a rebalance (Java's enforceRebalance).
        self.rejoin_by(coordinator.request_rejoin)
        KeptJoins.keep(coordinator)

    def check_alone(self, before: Any, consumer: object) -> None:
        """Raise GroupException if it has a consumer that is open: what one was given the other would take for its own."""
        if before is not None and before is not consumer and not before._closed:  # noqa: SLF001
            raise GroupException(
                f"The plug-in of {self.name!r} is another consumer's, which says by it what it has. Maybe make one for each."
            )

    def answer_within(self, session_ms: int) -> None:
        """Tell how long the session of the consumer lasts."""
        longest = session_ms * _MOST_OF_SESSION / 1000
        if self._limit_s > longest:
            _log.warning(
                "The %s may think for %.1f s, two thirds of session_timeout_ms (%d), not for limit_ms (%.0f): brokers "
                "expel a leader that answers later than its session lasts.",
                self._decider,
                longest,
                session_ms,
                self._limit_s * 1000,
            )
            self._limit_s = longest

    def rejoin_by(self, ask: Callable[[], object]) -> None:
        """Tell how the consumer is made to join anew at its next poll; it is asked from any thread."""
        self._ask_to_rejoin = ask

    def supported_protocols(self) -> list[ClientProtocol]:
        """The preferred protocol: kafka-python wants all assignors of a consumer to have the same."""
        return [ClientProtocol.COOPERATIVE if self.is_cooperative else ClientProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """What this consumer says of itself when it joins, in version 3: with owned partitions, generation and rack.

        Raises:
            GroupException: the assignor is cooperative, and `attach` was not called.
        """
        user_data = self.tell()
        owned: Sequence[TopicPartition] = ()
        if self.is_cooperative:
            if self._consumer is None:
                raise GroupException(
                    f"The assignor {self.name!r} is cooperative, so it must know what its consumer owns. Maybe call "
                    "plugin.attach(consumer) before consumer.subscribe(...)."
                )
            owned = sorted(TopicPartition(each.topic, each.partition) for each in self._consumer.assignment())
        listed = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=[listed(topic=topic, partitions=found) for topic, found in by_topic(owned)],
            generation_id=self.generation if owned else -1,
            rack_id=self.rack_id,
            version=_SUBSCRIPTION_VERSION,
        )

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Remember what was given, for the next time."""
        partitions = tuple(TopicPartition(each.topic, each.partition) for each in assignment.partitions())
        self.take(Assignment(partitions, _bytes(assignment.user_data)), generation)

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Ask the assignor, as leader of the group; see `answer`."""
        found = [_member(member) for member in members]
        answer = self.answer(topics_of(cluster, found), found)
        return {name: _to_client(assignment) for name, assignment in answer.items()}

    def tell(self) -> bytes | None:
        """What this consumer says of itself to its assignor, as it joins; a rebalance that was planned is dropped."""
        self._cancel_rebalance()
        self._has_asked = False
        return self._user_data()

    def take(self, assignment: Assignment, generation: int) -> None:
        """Remember what was given, for the next time."""
        self._given, self.generation = assignment, generation
        if self._has_asked:
            # kafka-python forgets it at the end of a join, which is the next poll, however much later that is.
            self._rejoin()

    def answer(self, topics: GroupTopics, members: list[ConsumerMember]) -> Mapping[str, Assignment]:
        """What the members get, in time. Raises nothing but what `_last_resort` does.

        Raises:
            GroupException: the assignor closed what its consumer is connected by; from now on every poll raises it.
        """
        connections = Connections.of(self._consumer)
        answer = self._answered(topics, members)
        if connections is not None and not connections.are_whole:
            lost = GroupException(
                f"The {self._decider} closed files of the process that are not its own, and with them the connections "
                "of its consumer, which has left its group so. Maybe it, or a library, calls os.closerange. Start the "
                "process anew: other files may be closed, too."
            )
            self._keep_failure(str(lost))
            connections.give_up(lost)
            raise lost
        return answer

    def _answered(self, topics: GroupTopics, members: list[ConsumerMember]) -> Mapping[str, Assignment]:
        rests_s = self._rests_until_s - time.monotonic()
        if rests_s > 0:
            # Members whose sessions are shorter than it took to give up have joined anew, and would for as long as it hangs.
            self.rebalance_at(time.time() + rests_s)
            kept = self._kept(topics, members)
            return self._last_resort(members) if kept is None else kept
        try:
            return Limited(lambda: self._decide(topics, members), f"assignor-{self.name}").answer(self._limit_s)
        except BaseException as error:  # noqa: BLE001  (an assignor is somebody else's code, and a group depends on it)
            kept = self._kept(topics, members)
            self._note_failure(error, "stays so" if kept is None else "went to the least loaded members")
            return self._last_resort(members) if kept is None else kept

    def _kept(self, topics: GroupTopics, members: list[ConsumerMember]) -> Mapping[str, Assignment] | None:
        try:
            return self._fall_back(topics, members)
        except Exception as error:  # noqa: BLE001  (the group depends on an answer)
            _log.error(
                "There is no way to place what nobody has: %s", failure(error), exc_info=_worth_a_traceback(error)
            )
            return None

    def _last_resort(self, members: list[ConsumerMember]) -> Mapping[str, Assignment]:
        """What the group gets where not even that can be worked out: every member keeps what it says that it owns.

        Of a partition that several say is theirs the newest claim counts: two would process it.
        """
        owner = newest_claims((member.member_id, Claim(member.owned, member.generation)) for member in members)
        kept: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for partition, name in owner.items():
            kept[name].append(partition)
        return {name: Assignment(tuple(partitions)) for name, partitions in kept.items()}

    def rebalance_at(self, when_s: float) -> None:
        """Let the consumer join anew at its first poll after a time, seconds since the epoch; another rebalance before drops it."""
        self._cancel_rebalance()
        # Who reckons in other units may mean a time that no clock has.
        timer = threading.Timer(min(max(when_s - time.time(), 0), LONGEST_S), self._rejoin)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:
            # The group still gets an answer, and whatever rebalance comes next asks the assignor.
            _log.warning("No rebalance is planned for later: %s", failure(error))
        else:
            self._timer = timer

    def _note_failure(self, error: BaseException, orphans: str) -> None:
        what = f"The {self._decider} {error}" if isinstance(error, GivenUpError) else self._what_failed(error)
        again = (
            "at the next rebalance (after attach(consumer) it would be sooner)"
            if self._ask_to_rejoin is None
            else f"in {RETRY_S:g} s"
        )
        sentence = (
            f"{what}; the group keeps what it has, what nobody has {orphans}, and the assignor is asked again {again}."
        )
        self._keep_failure(sentence)
        _log.error("%s", sentence, exc_info=_worth_a_traceback(error))
        self.rebalance_at(time.time() + RETRY_S)
        if isinstance(error, GivenUpError) and self._ask_to_rejoin is not None:
            self._rests_until_s = time.monotonic() + RETRY_S

    def _what_failed(self, error: BaseException) -> str:
        return f"The {self._decider} failed with {failure(error)}"

    def _warn(self, sentence: str) -> None:
        self._keep_failure(sentence)
        _log.warning("%s", sentence)

    def _keep_failure(self, sentence: str) -> None:
        self.failures.append(sentence)
        del self.failures[:-_KEPT_FAILURES]

    def _cancel_rebalance(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rejoin(self) -> None:
        self._rests_until_s, self._has_asked = 0.0, True
        if self._ask_to_rejoin is not None:
            self._ask_to_rejoin()


def _worth_a_traceback(error: BaseException) -> BaseException | None:
    """The error, if somebody else's code is on the way to it; of our own calls alone its message says all."""
    trace = error.__traceback__
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith("task_assignor."):
            return error
        trace = trace.tb_next
    return None if error.__cause__ is None and isinstance(error, GivenUpError | StreamsException) else error


def topics_of(cluster: Any, members: Iterable[ConsumerMember]) -> GroupTopics:
    """What kafka-python knows of the subscribed topics: partitions, and racks if all replicas' brokers have one."""
    counts, racks = {}, {}
    rack_of = {broker.node_id: broker.rack for broker in cluster.brokers()}
    know_racks = bool(rack_of) and all(rack_of.values())
    for topic in sorted({topic for member in members for topic in member.topics}):
        partitions = cluster.partitions_for_topic(topic)
        if not partitions:
            continue
        counts[topic] = max(partitions) + 1
        if know_racks:
            placed = cluster._partitions[topic]  # noqa: SLF001  (the public way asks for each partition and broker)
            racks[topic] = [
                frozenset(rack_of[node] for node in placed[each].replica_nodes if node in rack_of)
                if each in placed
                else frozenset()
                for each in range(counts[topic])
            ]
    return GroupTopics(counts, racks)


def _member(member: Any) -> ConsumerMember:
    told = member.metadata
    owned = merged([(found.topic, tuple(found.partitions)) for found in getattr(told, "owned_partitions", None) or ()])
    return ConsumerMember(
        member.member_id,
        tuple(told.topics),
        _bytes(told.user_data),
        owned,
        getattr(told, "generation_id", -1),
        getattr(told, "rack_id", None) or None,
        getattr(member, "group_instance_id", None),
    )


def _bytes(data: Any) -> bytes | None:
    return bytes(data) if data else None


def _to_client(assignment: Assignment) -> ConsumerProtocolAssignment:
    # In the given order: of Streams members each partition belongs to the task at its place in the user data.
    listed = ConsumerProtocolAssignment.TopicPartition
    return ConsumerProtocolAssignment(
        assigned_partitions=[listed(topic=topic, partitions=found) for topic, found in by_topic(assignment.partitions)],
        user_data=assignment.user_data,
        version=_SUBSCRIPTION_VERSION,
    )
