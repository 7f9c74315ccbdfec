"""Task assignors inside kafka-python's consumers: a Python stream application whose consumers are given tasks.

The name of the assignor is not Kafka Streams': a Java application of the same group id does not mix with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from task_assignor.group import GroupException, SubTopologyShape
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.followups import FollowUps
from task_assignor.group.streams import StreamsMember, followup_ms
from task_assignor.group.topics import MissingSourceTopicException
from task_assignor.group.wire import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    WireFormatException,
    decode_assignment_info,
)
from task_assignor.kafka.group_description import TASK_ASSIGNOR
from task_assignor.kafka.plugin import RETRY_S
from task_assignor.kafka.streams_plugin import StreamsPlugin, streams_member
from task_assignor.sdk import LATEST_OFFSET, Assignment, ConfigException, ProcessId, StreamsConfig, TaskId
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, listed, shown

_log = logger_of(__name__)
_SHORTEST_PAUSE_MS = 200
"""As `assignment_retry_ms` of a run."""


class TaskAssignorPlugin(StreamsPlugin):
    """Hosts a `TaskAssignor` in a consumer group; every consumer needs an instance of its own.

    The consumers of a group get the source partitions of their active tasks; `active_tasks` and `standby_tasks` say which
    tasks these are and of which it shall keep copies. Rebalances are cooperative, follow-ups come in time, and
    `on_assignment_computed` is called in the leader. Topics for repartitioning and changelogs are created by the leader
    where they are missing. Members that do not subscribe to all topics of the leader's topology, as of another version of
    the application, get nothing; `failures` of the leader names them.

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
        ConfigException: the settings of the cluster are wrong, where topologies have changelogs or repartition topics; or
            something else is not allowed.
        GroupException: the sub-topologies are no list of `SubTopologyShape`, or read no topics.
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
        super().__init__(config, shapes, process_id, limit_ms)
        for name, given in {"offset_sums": offset_sums, "on_tasks": on_tasks}.items():
            if not (given is None or callable(given)):
                raise ConfigException(f"The {name} ({shown(given)}) must be a function, or None.")
        self._offset_sums = self._last_given if offset_sums is None else offset_sums
        self._on_tasks = on_tasks
        self._followups = FollowUps(_SHORTEST_PAUSE_MS)
        self.active_tasks: tuple[TaskId, ...] = ()
        self.standby_tasks: tuple[TaskId, ...] = ()

    @property
    def name(self) -> str:
        """`task-assignor`."""
        return TASK_ASSIGNOR

    def on_assignment(self, assignment: object, generation: int) -> None:
        """Take the tasks, and plan the follow-up rebalance."""
        super().on_assignment(assignment, generation)
        info = self._read(self._given.user_data)
        if not (self._given.user_data or self._given.partitions):
            _log.warning(
                "The leader of the group %r gives nothing to this member: it waits for topics, or this member is of another version "
                "and does not read what the leader's topology does. The log of the leader says which.",
                self._group,
            )
        if info is None and (self._given.partitions or not self.active_tasks):
            # The leader could do no better than to leave everything as it is.
            return
        # Who has lost its partitions without another word runs nothing; of what else it has, its copies stay.
        self.active_tasks = () if info is None else tuple(sorted(set(info.active_tasks)))
        self.standby_tasks = self.standby_tasks if info is None else tuple(sorted(info.standby_tasks))
        due_ms = NO_REBALANCE if info is None else followup_ms(info, self._sent)
        if info is not None and info.err_code:
            # KIP-924 has members try again; nothing is given to anybody until then.
            self._warn(f"The leader of the group answered with the error code {info.err_code}.")
            due_ms = int((time.time() + RETRY_S) * 1000)
        asked_ms = None if due_ms == NO_REBALANCE else due_ms
        when_ms = self._followups.due_ms(asked_ms, int(time.time() * 1000))
        if when_ms is not None:
            self.rebalance_at(when_ms / 1000)
        if self._on_tasks is not None:
            try:
                self._on_tasks(self.active_tasks, self.standby_tasks)
            except Exception as error:  # noqa: BLE001  (it runs inside kafka-python's join)
                self._keep_failure(f"on_tasks failed with {failure(error)}.")
                _log.exception("on_tasks failed")

    def _read(self, data: bytes | None) -> AssignmentInfo | None:
        if data is None:
            return None
        try:
            return decode_assignment_info(data)
        except WireFormatException as error:
            self._warn(f"What the leader sent cannot be read: {error}")
            return None

    def _last_given(self) -> dict[TaskId, int]:
        # Who was thrown out of the group has lost its partitions: others run its tasks, and are further.
        is_out = self._consumer is not None and not self._consumer.assignment()
        return {
            **dict.fromkeys(self.standby_tasks, 0),
            **dict.fromkeys(self.active_tasks, 0 if is_out else LATEST_OFFSET),
        }

    def _subscription_info(self, number: int) -> SubscriptionInfo:
        end_point = self._config.values.get("application.server")
        sums = self._offset_sums()
        if not (isinstance(sums, Mapping) and all(isinstance(task, TaskId) for task in sums)):
            raise GroupException(f"What offset_sums() returns ({shown(sums)}) must be a mapping, TaskId -> int.")
        return SubscriptionInfo(
            self._process_id,
            dict(sums),
            str(end_point) if end_point else None,
            number,
            client_tags=self._config.client_tags,
        )

    def _decide(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        try:
            return super()._decide(topics, members)
        except MissingSourceTopicException as error:
            # A consumer that has just begun does not know the topics yet, and joins again when it does.
            _log.warning("%s The group waits for them.", error)
            self.rebalance_at(time.time() + RETRY_S)
            return {member.member_id: Assignment() for member in members}

    def _clients(self, members: Sequence[ConsumerMember]) -> list[StreamsMember]:
        found = []
        for member in members:
            # It would refuse what it does not read, and ask for another rebalance at once, for ever.
            unread = self._all_sources - set(member.topics)
            try:
                client = streams_member(member)
            except WireFormatException as error:
                self._warn(f"What the member {member.member_id} says cannot be read, so it gets nothing: {error}")
            else:
                if unread:
                    self._warn(
                        f"The member {member.member_id} does not subscribe to {listed(unread)}, which the topology of the "
                        "leader reads, so it gets nothing. Maybe it is of another version."
                    )
                else:
                    found.append(client)
        return found
