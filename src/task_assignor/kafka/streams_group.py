"""A Python process that leads a real Kafka Streams application in Java: it joins the group first, and decides. Experimental.

It processes nothing itself. Where it cannot lead without harm it leaves, and an instance in Java takes over.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, Self

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)

from task_assignor.group import GroupException, SubTopologyShape
from task_assignor.group.consumers import ConsumerMember
from task_assignor.group.streams import StreamsMember, StreamsRebalance
from task_assignor.group.wire import AssignmentInfo, SubscriptionInfo, encode_assignment_info
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import GroupStateException
from task_assignor.kafka.group_description import LEADER_TAG, STREAMS_ASSIGNOR
from task_assignor.kafka.joins import raise_if_fenced
from task_assignor.kafka.plugin import LONGEST_S
from task_assignor.kafka.streams_plugin import StreamsPlugin, checked_config, streams_member
from task_assignor.sdk import Assignment, ConfigException, ConfigProblem, ProcessId, StreamsConfig
from task_assignor.sdk.config_keys import values_given
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import NAME_RULE, failure, is_name, listed, shown

_log = logger_of(__name__)
_PROTOCOL: Final = "group.protocol"
_SESSION: Final = "session.timeout.ms"
_HEARTBEAT: Final = "heartbeat.interval.ms"
# Kafka's default.
_SESSION_MS: Final = 45_000
_LEAST_SESSION_MS: Final = 1_000
"""In a third of less nothing can be looked up."""
_POLL_MS: Final = 100
# Members may take as long as Kafka's default of max.poll.interval.ms to join again.
_JOIN_S: Final = 330
_LEAVE_S: Final = 120.0
"""Its consumer takes no longer than `request.timeout.ms` to close; the rest is for a question that is under way."""
_ADVICE: Final[dict[type[Exception], str]] = {
    GroupAuthorizationFailedError: "Maybe this user lacks the right to READ the group.",
    InconsistentGroupProtocolError: (
        "The group has members that are none of Kafka Streams with group.protocol=classic. Maybe application.id is wrong."
    ),
    InvalidSessionTimeoutError: (
        "Maybe session.timeout.ms ({session_ms}) is below group.min.session.timeout.ms of the brokers (6000 if they do not say), "
        "or above group.max.session.timeout.ms (1800000)."
    ),
}
"""What the errors of brokers do not say."""


class StreamsGroupLeader:
    """Leads the group of a Kafka Streams application, while it is open; a context manager.

    It must be the first to join: whoever joins a group first leads it. As long as it lives, its assignor decides which
    instance has which task; changelogs and repartition topics that are missing are created. It gets no tasks itself.

    When the assignor raises, answers nonsense or is too slow, active tasks stay where they are, those that nobody has go
    where there is room, and it is asked again a minute later. Where not even that is possible (the cluster does not answer,
    the members read topics that `shapes` does not have, another member leads), it leaves the group, and an instance in
    Java leads. If another process comes with its `group_instance_id`, that one leads.

    Args:
        config: the settings of the application in Java: `application.id`, the cluster, `task.assignor.class`,
            `num.standby.replicas` and so on; `session.timeout.ms` and `heartbeat.interval.ms` of this member, also with the
            prefix `main.consumer.` or `consumer.`;
            `replication.factor` and `topic.*` of topics that it creates. Other settings have no part in it.
        shapes: the sub-topologies; see `shapes_of_topology`.
        group_instance_id: makes it a static member: it may be closed and opened anew within the session timeout, and leads
            as before. None: closing it makes an instance in Java lead at once.

    Attributes:
        failures: a sentence for each time that the assignor failed; the last 100.

    Raises:
        ConfigException: a setting is wrong or missing, brokers assign the tasks (`group.protocol=streams`), or
            the group_instance_id is none.
        GroupException: the sub-topologies are no list of `SubTopologyShape`, or there are none.

    Examples:
        >>> with StreamsGroupLeader(config, shapes) as leader:  # doctest: +SKIP
        ...     leader.wait()
    """

    def __init__(
        self, config: StreamsConfig, shapes: Sequence[SubTopologyShape], *, group_instance_id: str | None = None
    ) -> None:
        self._config = _of_classic_group(checked_config(config))
        self._group = config.application_id
        self._settings = ClientSettings.of(config.originals)
        self._instance = _checked_instance(group_instance_id)
        self._session_ms, self._heartbeat_ms = _session_and_heartbeat(config)
        self._plugin = _LeaderPlugin(config, shapes, self._session_ms // 3)
        self._stopping = threading.Event()
        self._joined = threading.Event()
        self._reason = ""
        self._thread: threading.Thread | None = None
        self.failures = self._plugin.failures

    @property
    def last(self) -> StreamsRebalance | None:
        """What it decided last: tasks of each instance, what each member was sent, the state; None: nothing yet."""
        return self._plugin.last

    @property
    def is_leading(self) -> bool:
        """Whether it is in the group and leads it."""
        return self._joined.is_set() and not self._reason and self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        """Join, and wait until it leads.

        Raises:
            KafkaClusterException: the cluster does not answer.
            MissingSourceTopicException: a source topic does not exist.
            GroupException: numbers of partitions do not fit.
            GroupStateException: another member leads the group, or it does not let it join; or this one was closed.
        """
        if self._stopping.is_set():
            raise GroupStateException(f"This leader of the group {self._group!r} has left it. Maybe make another one.")
        # What is wrong with the topics is said before any instance depends on it.
        self._plugin.look_up(creates=False)
        self._thread = threading.Thread(target=self._run, name="task-assignor-leader", daemon=True)
        self._thread.start()
        try:
            has_ended = self._joined.wait(_JOIN_S)
        except BaseException:
            # Ctrl-C: nobody would end it, and it would go on to lead.
            self.close()
            raise
        if not has_ended:
            self.close()
            self._reason = f"The group {self._group!r} did not let it join within {_JOIN_S} s."
        if self._reason:
            raise GroupStateException(self._reason)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it ends, or for so many seconds; None: without a limit.

        Raises:
            GroupStateException: it does not lead any more; the message says why.
            ConfigException: that is no number of seconds.
        """
        if not (timeout_s is None or (isinstance(timeout_s, int | float) and timeout_s >= 0)):
            raise ConfigException(f"The timeout_s ({shown(timeout_s)}) must be a number of seconds, or None.")
        if self._thread is not None:
            self._thread.join(None if timeout_s is None else min(timeout_s, LONGEST_S))
        if self._reason:
            raise GroupStateException(self._reason)

    def close(self) -> None:
        """Leave the group; a static member stays in it until its session ends. A second call does nothing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_S)
            if self._thread.is_alive():
                _log.warning("It has not left the group %r within %g s, and is not waited for.", self._group, _LEAVE_S)

    def _run(self) -> None:
        try:
            self._lead()
        except FencedInstanceIdError:
            self._reason = (
                f"Another member came to the group {self._group!r} with the same group_instance_id ({self._instance!r}), and "
                "leads in its place. Maybe give each process one of its own."
            )
            # The static member is the other one now: it stays.
            self._instance = None
        except Exception as error:  # noqa: BLE001  (whatever it is: it leaves, and Java leads)
            said = str(error) if isinstance(error, GroupException) else f"{failure(error)}."
            advice = _ADVICE.get(type(error), "").format(session_ms=self._session_ms)
            self._reason = f"{said} {advice}".rstrip()
        finally:
            if self._reason:
                _log.error("It does not lead the group %r any more: %s", self._group, self._reason)
                self._remove_static()
            self._joined.set()

    def _lead(self) -> None:
        consumer = KafkaConsumer(
            group_id=self._group,
            group_instance_id=self._instance,
            partition_assignment_strategy=[self._plugin],
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=self._heartbeat_ms,
            enable_auto_commit=False,
            **self._settings.for_kafka_python(),
        )
        try:
            self._plugin.attach(consumer)
            consumer.subscribe(self._plugin.topics)
            while not self._stopping.is_set() and not self._reason:
                consumer.poll(_POLL_MS)
                raise_if_fenced(consumer)
                self._reason = self._plugin.led_by_another
                if self._plugin.generation >= 0:
                    self._joined.set()
        finally:
            consumer.close()

    def _remove_static(self) -> None:
        """A static member does not leave by closing, and the group would wait for it."""
        if self._instance is None:
            return
        try:
            admin = KafkaAdminClient(**self._settings.for_kafka_python())
            try:
                admin.remove_group_members(self._group, [MemberToRemove(group_instance_id=self._instance)])
            finally:
                admin.close()
        except Exception as error:  # noqa: BLE001  (it has ended, whatever this says)
            _log.warning("The group learns that %r is gone when its session ends: %s", self._instance, failure(error))


class _LeaderPlugin(StreamsPlugin):
    """Takes part in the protocol of Kafka Streams, and decides for all members but itself."""

    def __init__(self, config: StreamsConfig, shapes: Sequence[SubTopologyShape], limit_ms: int) -> None:
        super().__init__(config, shapes, ProcessId(uuid.uuid4()), limit_ms)

    @property
    def name(self) -> str:
        """`stream`."""
        return STREAMS_ASSIGNOR

    @property
    def topics(self) -> list[str]:
        """What it subscribes to, as the instances do."""
        return sorted(self._all_sources)

    @property
    def led_by_another(self) -> str:
        """Why it must not stay: a leader in Java takes it for an instance that processes tasks; "" if it may."""
        # A leader gives itself nothing, not even user data; to others it sends some.
        if self.generation < 0 or self._given.user_data is None:
            return ""
        given = len(self._given.partitions)
        return (
            f"Another member leads the group {self._config.application_id!r}, and gave this one {given} partitions, which "
            "it cannot process. Maybe start it before the first instance, or with a group_instance_id that it had before."
        )

    @property
    def _needs_cluster(self) -> bool:
        return True

    def _subscription_info(self, number: int) -> SubscriptionInfo:
        return SubscriptionInfo(self._process_id, {}, None, number, client_tags={LEADER_TAG: "leader"})

    def _clients(self, members: Sequence[ConsumerMember]) -> list[StreamsMember]:
        instances = [found for found in map(streams_member, members) if LEADER_TAG not in found.info.client_tags]
        for member in instances:
            strange = self._all_sources ^ set(member.subscription.topics)
            if strange:
                raise GroupException(
                    f"The member {member.member_id} reads {listed(member.subscription.topics)}, but the topology that was "
                    f"given reads {listed(self._all_sources)}; different: {listed(strange)}. Maybe it is of another version."
                )
        return instances

    def _nothing(self, members: Sequence[ConsumerMember]) -> dict[str, Assignment]:
        # User data tells other leaders from Python that they do not lead.
        told = Assignment((), encode_assignment_info(AssignmentInfo()))
        found = map(streams_member, members)
        return {each.member_id: Assignment() if self._is_self(each) else told for each in found}

    def _is_self(self, member: StreamsMember) -> bool:
        return member.info.process_id == self._process_id

    def _last_resort(self, members: list[ConsumerMember]) -> NoReturn:  # noqa: ARG002  (what every plug-in gets)
        # Members in Java cannot read an assignment without tasks: better none at all.
        raise GroupException(
            f"{self.failures[-1]} But what they have cannot be kept either, so this leader gives no answer, and an instance leads."
        )


def _of_classic_group(config: StreamsConfig) -> StreamsConfig:
    """The settings, if a client may lead the application's group.

    Raises:
        ConfigException: none may, since brokers assign its tasks.
    """
    given = config.originals.get(_PROTOCOL)
    if str(given).strip().lower() == "streams":
        expected = "classic: in other groups brokers assign the tasks, and no client leads"
        raise ConfigException.of([ConfigProblem(_PROTOCOL, given, expected)])
    return config


def _checked_instance(given: object) -> str | None:
    # Brokers take what Kafka's own clients refuse.
    if given is None or is_name(given):
        return given  # type: ignore[return-value]
    raise ConfigException(f"The group_instance_id ({shown(given)}) must be {NAME_RULE}; or None.")


def _session_and_heartbeat(config: StreamsConfig) -> tuple[int, int]:
    """How long the group waits for a sign of life, and how often there is one, milliseconds.

    Raises:
        ConfigException: nobody can lead so.
    """
    session, session_ms = next(values_given(_SESSION, config.originals), (_SESSION, _SESSION_MS))
    heartbeat, heartbeat_ms = next(values_given(_HEARTBEAT, config.originals), (_HEARTBEAT, session_ms // 15))
    if session_ms < _LEAST_SESSION_MS:
        expected = f"at least {_LEAST_SESSION_MS} milliseconds, of which the leader may think for a third"
        raise ConfigException.of(
            [ConfigProblem(session, session_ms, expected, f"Maybe {_SESSION_MS}, Kafka's default.")]
        )
    if heartbeat_ms >= session_ms:
        expected = f"less than {session} ({session_ms})"
        raise ConfigException.of([ConfigProblem(heartbeat, heartbeat_ms, expected, "Maybe a third of it.")])
    return session_ms, heartbeat_ms
