"""The leader of a Kafka Streams group: from the members' subscriptions to their partitions and `AssignmentInfo`s. Sans-IO.

`GroupLeader` decides which consumer has which task. What Kafka's protocol adds is here: versions, error codes, cooperative
revocation, temporary standbys, host maps, follow-up rebalances. The host opens sockets, creates topics, keeps the time.

Source: `StreamsPartitionAssignor` of Kafka 4.3; KIP-924, whose text wins where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from task_assignor.group.errors import GroupException, check_configs, check_makes_assignors, list_of
from task_assignor.group.leader import ClientAssignment, GroupLeader, GroupRebalance
from task_assignor.group.members import GroupClient, GroupConsumer
from task_assignor.group.topics import MissingSourceTopicException, TopicPlan, plan_topics
from task_assignor.group.topology import SubTopologyShape, make_tasks
from task_assignor.group.wire import (
    LATEST_STREAMS_VERSION,
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_subscription_info,
    encode_assignment_info,
)
from task_assignor.group.wire.layout import value_of
from task_assignor.group.wire.streams import encode_assignment_infos
from task_assignor.sdk import (
    LATEST_OFFSET,
    Assignment,
    AssignmentConfigs,
    HostInfo,
    ProcessId,
    Subscription,
    TaskAssignor,
    TaskId,
    TopicPartition,
)
from task_assignor.sdk.checks import check_fields, check_kind
from task_assignor.sdk.config_keys import parse_host_info
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

_log = logger_of(__name__)
MISSING_SOURCE_TOPIC: Final = 1
ASSIGNMENT_FAILED: Final = 3
SHUTDOWN_REQUESTED: Final = 4
AT_ONCE: Final = 0
EARLIEST_PROBEABLE_VERSION: Final = 3


@attrs.frozen
class StreamsMember:
    """A consumer of the group.

    Args:
        member_id: its id.
        subscription: what it sent.
        info: its user data, read.
    """

    member_id: str
    subscription: Subscription
    info: SubscriptionInfo

    def __attrs_post_init__(self) -> None:
        check_fields(self, GroupException, member_id=str, subscription=Subscription, info=SubscriptionInfo)

    @classmethod
    def of(cls, member_id: str, subscription: Subscription) -> StreamsMember:
        """The member that sent a subscription.

        Raises:
            WireFormatException: its user data is no SubscriptionInfo, or that is no Subscription.
        """
        value_of("subscription", Subscription, subscription)
        return cls(member_id, subscription, decode_subscription_info(subscription.user_data or b""))

    @property
    def is_newer(self) -> bool:
        """Its version is newer than ours: nothing but its versions could be read."""
        return self.info.version > LATEST_STREAMS_VERSION


@attrs.frozen
class StreamsAssignment:
    """What one consumer is sent.

    Args:
        partitions: partitions to consume, sorted.
        info: its user data.
    """

    partitions: tuple[TopicPartition, ...]
    info: AssignmentInfo

    def to_assignment(self) -> Assignment:
        """As it goes on the wire."""
        return Assignment(self.partitions, encode_assignment_info(self.info))


@attrs.frozen
class StreamsRebalance:
    """What came of a rebalance.

    Args:
        members: member id -> what it is sent.
        error: why the members got an error code in place of an assignment; "" normally.
        kept_because: why the members keep what they have, and one of them shall rebalance again; "" normally.
        withheld: tasks that no consumer gets this time, because another one has to give them up first.
        outcome: what the leader decided; None if there is an error.
    """

    members: Mapping[str, StreamsAssignment]
    error: str = ""
    kept_because: str = ""
    withheld: frozenset[TaskId] = frozenset()
    outcome: GroupRebalance | None = None

    @property
    def inexact(self) -> frozenset[str]:
        """Codes of goals that the assignor perhaps did not reach exactly."""
        return frozenset() if self.outcome is None else self.outcome.inexact

    def to_assignments(self) -> dict[str, Assignment]:
        """As they go on the wire, by member id: what all members are told is encoded once."""
        data = encode_assignment_infos(given.info for given in self.members.values())
        return {
            member: Assignment(given.partitions, encoded)
            for (member, given), encoded in zip(self.members.items(), data, strict=True)
        }


class StreamsLeader:
    """Leads a group of Kafka Streams consumers. It keeps nothing between rebalances.

    Args:
        assignor_factory: makes a fresh, configured assignor.
        configs: settings that matter for assignment.
        shapes: the sub-topologies.
        fallback_factory: makes the assignor that is asked where end offsets could not be looked up, as Kafka does for
            its own assignors; None: the same.

    Raises:
        GroupException: the sub-topologies are not a list of `SubTopologyShape`, or the factory cannot be called.
    """

    def __init__(
        self,
        assignor_factory: Callable[[], TaskAssignor],
        configs: AssignmentConfigs,
        shapes: Sequence[SubTopologyShape],
        fallback_factory: Callable[[], TaskAssignor] | None = None,
    ) -> None:
        self._assignor_factory = assignor_factory
        self._fallback_factory = assignor_factory if fallback_factory is None else fallback_factory
        check_makes_assignors(self._assignor_factory)
        check_makes_assignors(self._fallback_factory, "fallback_factory")
        check_configs(configs)
        self._configs = configs
        self._shapes = list_of("sub-topologies", SubTopologyShape, shapes)

    def topics(self, partitions: Mapping[str, int]) -> TopicPlan:
        """Which topics there must be; the host creates those of `TopicPlan.create`, and looks up their end offsets.

        Raises:
            MissingSourceTopicException: a source topic does not exist: answer with `tell_error`.
            GroupException: numbers of partitions do not fit.
        """
        return plan_topics(self._shapes, partitions)

    def rebalance(
        self,
        members: Iterable[StreamsMember],
        partitions: Mapping[str, int],
        end_offsets: Mapping[TopicPartition, int] | None,
        now_ms: int,
        racks: Mapping[str, Sequence[frozenset[str] | None]] | None = None,
        probing_client: ProcessId | None = None,
        retry_ms: int = 0,
        others: Mapping[str, Subscription] | None = None,
    ) -> StreamsRebalance:
        """What every member is sent.

        Args:
            members: the consumers, at least one.
            partitions: topic -> number of partitions, of all topics that exist.
            end_offsets: end offset of changelog partitions, 0 where missing; None: they could not be looked up.
            now_ms: time, milliseconds since the epoch.
            racks: topic -> racks of the replicas, partition by partition, where known.
            probing_client: the client that shall trigger the follow-up rebalance, if the assignor asks for one; Kafka takes
                the leader's for its own assignors. None: the clients that the assignor names.
            retry_ms: so long after `now_ms` one of the members shall rebalance again if the assignor wants to be asked again,
                milliseconds; 0: at once.
            others: member id -> what it sent, of the members that get nothing: of them nothing is handed over either while
                they give it up.

        Raises:
            AssignmentRejectedException: the assignor failed, or its answer is wrong; the group keeps what it has.
            GroupException: members or topics do not fit together.
        """
        found = sorted(members, key=lambda member: member.member_id)
        if any(member.info.error_code == SHUTDOWN_REQUESTED for member in found):
            return tell_error(found, SHUTDOWN_REQUESTED, "A client asked to shut the application down.")
        versions = _Versions.of(found)
        if versions.used < EARLIEST_PROBEABLE_VERSION and any(member.is_newer for member in found):
            return tell_error(
                found, ASSIGNMENT_FAILED, f"Version {versions.used} and versions above 11 cannot be in one group."
            )
        try:
            plan = self.topics(partitions)
        except MissingSourceTopicException as error:
            _log.error("%s", error)
            return tell_error(found, MISSING_SOURCE_TOPIC, str(error))
        tasks = make_tasks(self._shapes, plan.partitions, racks)
        sources = {
            task: tuple(sorted(each.topic_partition for each in info.topic_partitions if each.is_source))
            for task, info in tasks.items()
        }
        stateful = frozenset(task for task, info in tasks.items() if info.has_changelog)
        group = _Group.of(found, sources, stateful, others or {})
        factory = self._fallback_factory if end_offsets is None else self._assignor_factory
        sums = None
        if end_offsets is not None:
            sums = {
                task: sum(
                    end_offsets.get(each.topic_partition, 0) for each in info.topic_partitions if each.is_changelog
                )
                for task, info in tasks.items()
            }
        outcome = GroupLeader(factory, self._configs, tasks).rebalance(group.clients, sums, now_ms)
        deadlines = {
            process: given.followup_deadline_ms
            for process, given in outcome.assignments.items()
            if given.followup_deadline_ms is not None
        }
        if probing_client is not None and deadlines:
            deadlines = {probing_client: min(deadlines.values())}
        if outcome.kept_because:
            again = now_ms + retry_ms if retry_ms else AT_ONCE
            deadlines = dict.fromkeys(list(outcome.assignments)[:1], again)
        return _Answer(group, sources, stateful, versions, outcome, deadlines).whole()


def tell_error(members: Iterable[StreamsMember], code: int, why: str) -> StreamsRebalance:
    """All members are told of an error and get nothing.

    Args:
        members: the consumers.
        code: `MISSING_SOURCE_TOPIC`, `ASSIGNMENT_FAILED` or `SHUTDOWN_REQUESTED`.
        why: for the log.

    Raises:
        GroupException: the members are not a list of `StreamsMember`, or the code is no int.
    """
    members = list_of("members", StreamsMember, members)
    check_kind("code", code, int, GroupException)
    info = AssignmentInfo(err_code=code)
    return StreamsRebalance({member.member_id: StreamsAssignment((), info) for member in members}, why)


def followup_ms(given: AssignmentInfo, sent: SubscriptionInfo) -> int:
    """When a member shall trigger a rebalance after an assignment, ms since the epoch; 0: at once; `NO_REBALANCE`: not.

    At once also if the leader reads another version than it was sent (version probing), and if the leader does not know
    the client's end point. When another rebalance begins first, this one is dropped: its assignment brings the next.

    Args:
        given: what the leader sent.
        sent: what the member had sent.

    Raises:
        GroupException: one of them is something else.
    """
    check_kind("AssignmentInfo that was given", given, AssignmentInfo, GroupException)
    check_kind("SubscriptionInfo that was sent", sent, SubscriptionInfo, GroupException)
    if given.version != sent.version:
        return AT_ONCE
    host = _host(sent.user_end_point)
    if host is not None and given.version >= 2 and host not in given.partitions_by_host:
        return AT_ONCE
    return given.next_rebalance_ms


@attrs.frozen
class _Versions:
    """The version that all members read, and the latest that all of them could."""

    used: int
    common: int

    @classmethod
    def of(cls, members: Sequence[StreamsMember]) -> _Versions:
        used = [member.info.version for member in members if not member.is_newer]
        latest = [member.info.latest_supported_version for member in members]
        return cls(min(used, default=LATEST_STREAMS_VERSION), min([*latest, LATEST_STREAMS_VERSION]))


@attrs.frozen
class _Group:
    """The members as clients, and who owns what."""

    clients: tuple[GroupClient, ...]
    hosts: Mapping[ProcessId, HostInfo]
    owner: Mapping[TopicPartition, str]
    owned: frozenset[TopicPartition]

    @classmethod
    def of(
        cls,
        members: Sequence[StreamsMember],
        sources: Mapping[TaskId, Sequence[TopicPartition]],
        stateful: frozenset[TaskId],
        others: Mapping[str, Subscription],
    ) -> _Group:
        """Nothing depends on the order of the members.

        Where consumers of a client differ, the first by id counts; of offset sums a running task before the greatest.
        """
        task_of = {partition: task for task, partitions in sources.items() for partition in partitions}
        by_process: dict[ProcessId, list[StreamsMember]] = {}
        for member in members:
            by_process.setdefault(member.info.process_id, []).append(member)
        owner, owned = _owners({member.member_id: member.subscription for member in members} | dict(others))
        clients, hosts = [], {}
        for process in sorted(by_process):
            mine = by_process[process]
            sums: dict[TaskId, int] = {}
            active: set[TaskId] = set()
            consumers = []
            for member in mine:
                # What a newer claim says is another's is not its own any more.
                claimed = [
                    p
                    for p in member.subscription.owned_partitions
                    if owner.get(p, member.member_id) == member.member_id
                ]
                had = {task_of[p] for p in claimed if p in task_of}
                for task, offset in member.info.task_offset_sums.items():
                    sums[task] = offset if task not in sums else better_offset_sum(sums[task], offset)
                active |= had
                active |= {task for task in member.info.prev_tasks if task in sources}
                consumers.append(GroupConsumer(member.member_id, frozenset(member.info.task_offset_sums) | had))
            host = next((found for member in mine if (found := _host(member.info.user_end_point))), None)
            if host is not None:
                hosts[process] = host
            rack = next((member.subscription.rack_id for member in mine if member.subscription.rack_id), None)
            # A running task whose state nobody speaks of is behind by all of it.
            sums |= {task: 0 for task in active & stateful if task not in sums}
            clients.append(
                GroupClient(
                    process,
                    tuple(consumers),
                    frozenset(active),
                    {task: offset for task, offset in sums.items() if task in stateful},
                    rack,
                    mine[0].info.client_tags,
                    host,
                )
            )
        return cls(tuple(clients), hosts, owner, owned)


@attrs.frozen
class _Answer:
    """The way from the clients' tasks to what each consumer is sent."""

    group: _Group
    sources: Mapping[TaskId, Sequence[TopicPartition]]
    stateful: frozenset[TaskId]
    versions: _Versions
    outcome: GroupRebalance
    deadlines: Mapping[ProcessId, int]

    def whole(self) -> StreamsRebalance:
        """All members."""
        members: dict[str, StreamsAssignment] = {}
        withheld: set[TaskId] = set()
        active_hosts, standby_hosts = self._hosts(active=True), self._hosts(active=False)
        clients = {client.process_id: client for client in self.group.clients}
        for process, given in self.outcome.assignments.items():
            deadline = self.deadlines.get(process)
            held = clients[process].previous_standby & self.stateful
            for member, tasks in given.consumers.items():
                waiting = {task for task in tasks.active if self._is_to_be_given_up(task, member)}
                withheld |= waiting
                # State that this client has as a standby stays open until the task may run.
                standby = [*tasks.standby, *(waiting & held)]
                pairs = sorted((p, task) for task in tasks.active if task not in waiting for p in self.sources[task])
                # One consumer of a client triggers the follow-up; one that has to wait does so at once.
                next_ms = AT_ONCE if waiting else NO_REBALANCE if deadline is None else deadline
                deadline = None
                info = AssignmentInfo(
                    tuple(task for _, task in pairs),
                    {task: tuple(self.sources[task]) for task in sorted(standby)},
                    active_hosts,
                    standby_hosts,
                    0,
                    next_ms,
                    self.versions.used,
                    self.versions.common,
                )
                members[member] = StreamsAssignment(tuple(partition for partition, _ in pairs), info)
        ordered = {member: members[member] for member in sorted(members)}
        return StreamsRebalance(ordered, "", self.outcome.kept_because, frozenset(withheld), self.outcome)

    def _is_to_be_given_up(self, task: TaskId, member: str) -> bool:
        """Some partition of the task is still another consumer's: nothing is handed over while it is being revoked."""
        return any(p in self.group.owned and self.group.owner.get(p) != member for p in self.sources[task])

    def _hosts(self, *, active: bool) -> dict[HostInfo, tuple[TopicPartition, ...]]:
        found = {}
        for process, host in self.group.hosts.items():
            given: ClientAssignment = self.outcome.assignments[process]
            tasks = given.active if active else given.standby
            found[host] = tuple(sorted(p for task in tasks for p in self.sources[task]))
        return dict(sorted(found.items()))


def _owners(
    subscriptions: Mapping[str, Subscription],
) -> tuple[dict[TopicPartition, str], frozenset[TopicPartition]]:
    """Whose each partition is by the newest claim (nobody's if two are equally new), and all that somebody claims."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, subscription in subscriptions.items():
        for partition in set(subscription.owned_partitions):
            claims.setdefault(partition, []).append((subscription.generation_id, member))
    owner = {}
    for partition, said in claims.items():
        newest = max(generation for generation, _ in said)
        claimants = [member for generation, member in said if generation == newest]
        if len(claimants) == 1:
            owner[partition] = claimants[0]
    return owner, frozenset(claims)


def better_offset_sum(first: int, second: int) -> int:
    """Of two offset sums of one task on one client: a running task before offsets, and of these the greater."""
    return LATEST_OFFSET if LATEST_OFFSET in (first, second) else max(first, second)


def _host(end_point: str | None) -> HostInfo | None:
    if not end_point:
        return None
    # As its client reads it: one that does not find itself among the hosts asks for a rebalance at once, and again after it.
    host = parse_host_info(end_point)
    if host is None:
        _log.warning(
            "The end point %s of a client is not host:port; nobody can ask it for its state.", shown(end_point)
        )
    return host
