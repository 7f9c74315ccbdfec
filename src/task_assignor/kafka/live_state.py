"""The state of a live Kafka Streams group, as the leader's assignor would see it if a rebalance began now. Read-only.

What the wire does not tell comes from elsewhere or is said in the notes: the topology from its description or from the
assignment that is in force, lags of standbys from what they told when they joined.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping

import attrs

from task_assignor.group import SubTopologyShape
from task_assignor.group.streams import better_offset_sum
from task_assignor.group.topology import number_sub_topologies
from task_assignor.kafka.cluster import Cluster, check_cluster
from task_assignor.kafka.errors import GroupStateException
from task_assignor.kafka.group_description import (
    STREAMS_ASSIGNOR,
    TASK_ASSIGNOR,
    GroupDescription,
    GroupMember,
)
from task_assignor.kafka.live_group import check_stable
from task_assignor.kafka.topology_text import DescribedSubTopology, parse_topology
from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentConfigs,
    ConfigException,
    HostInfo,
    ProcessId,
    StreamsConfig,
    TaskId,
    TaskInfo,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.sdk.config_keys import STATE_KEYS, parse_host_info
from task_assignor.sdk.text import listed, shown

_CHANGELOG = "-changelog"
_STANDBYS_OF_STATE = 7
"""In older versions of the user data leaders (Kafka Streams 2.4) give standbys of tasks without stores, too: nobody keeps any."""


@attrs.frozen
class LiveState:
    """A state, and what is not exact in it.

    Args:
        state: the state.
        notes: a sentence for each part that had to be inferred or is older than now.
    """

    state: ApplicationState
    notes: tuple[str, ...] = ()


def state_of_group(
    cluster: Cluster,
    name: str,
    topology: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> LiveState:
    """The state of a group of Kafka Streams.

    Args:
        cluster: where it lives.
        name: the group: the `application.id`.
        topology: what `Topology#describe` prints; None: sub-topologies are inferred from the assignment in force, which
            tells source topics exactly, and changelogs where only one sub-topology fits.
        settings: settings of the application in Kafka's keys, such as `num.standby.replicas`; those that have no part
            in assignment are not looked at; None: the defaults.

    Raises:
        UnknownGroupException: there is no such group.
        KafkaClusterException: the cluster does not answer.
        GroupStateException: it is no group of Kafka Streams, is rebalancing, or its topology cannot be inferred.
        ConfigException: a setting is wrong, or an argument is of another kind.
    """
    check_cluster(cluster)
    if not (settings is None or isinstance(settings, Mapping)):
        raise ConfigException(
            f"The settings ({shown(settings)}) must be a mapping of Kafka's keys to values, or None. Maybe config.originals."
        )
    group = cluster.describe_group(name)
    _check(group)
    notes: list[str] = []
    existing = frozenset(cluster.topics())
    if topology is None:
        shapes = _inferred(group, existing, cluster, notes)
    else:
        shapes = _described(parse_topology(topology), name, existing, notes)
    application = (settings or {}).get("application.id", name)
    if application != name:
        notes.append(f"The settings are of another application: their application.id is {shown(application)}.")
    infos = _tasks(shapes, cluster)
    _check_fit(group, infos)
    changelogs = [
        each.topic_partition for info in infos.values() for each in info.topic_partitions if each.is_changelog
    ]
    ends = cluster.end_offsets(changelogs)
    clients = _clients(group)
    if not clients:
        raise GroupStateException(f"Nobody in the group {name!r} processes anything, so there is no state.")
    builder = ApplicationStateBuilder(_configs(clients, settings), int(time.time() * 1000))
    end_sums = {}
    for task, info in infos.items():
        if info.has_changelog:
            end_sums[task] = sum(ends[each.topic_partition] for each in info.topic_partitions if each.is_changelog)
        builder.add_task_info(info, end_sums.get(task))
    for process_id, members in clients.items():
        _add_client(builder, process_id, members, infos, end_sums)
    if any(member.standby_tasks for member in group.members):
        notes.append(
            "The lags of standbys are those of the offsets that the members told when they joined; they may be less now."
        )
    return LiveState(builder.build(), tuple(notes))


def _check(group: GroupDescription) -> None:
    if not group.has_tasks:
        said = f"its members agreed on {group.assignor!r}" if group.assignor else f"it is {group.state}"
        raise GroupStateException(
            f"The group {group.name!r} is no running group of Kafka Streams: {said}. A state is made of groups whose "
            f"assignor is {STREAMS_ASSIGNOR!r} or {TASK_ASSIGNOR!r}."
        )
    check_stable(group)


def _check_fit(group: GroupDescription, infos: Mapping[TaskId, TaskInfo]) -> None:
    """Raise if the members run something that the topology lacks: it is another version's, or cut off."""
    for member in group.members:
        active = () if member.assignment_info is None else member.assignment_info.active_tasks
        for task, partition in zip(active, member.partitions, strict=False):
            sources = [each.topic_partition for each in infos[task].topic_partitions] if task in infos else []
            if partition not in sources:
                raise GroupStateException(
                    f"The topology does not fit the group: {member.member_id} reads {partition.topic}-"
                    f"{partition.partition} for the task {task}, which has {listed(map(str, sources)) if sources else 'none'}."
                    " Maybe it is the topology of another version, or cut off."
                )
        is_old = member.assignment_info is not None and member.assignment_info.version < _STANDBYS_OF_STATE
        for task in member.standby_tasks:
            if task not in infos or not (infos[task].is_stateful or is_old):
                raise GroupStateException(
                    f"The topology does not fit the group: {member.member_id} has a standby of the task {task}, which has no "
                    "stores. Maybe it is the topology of another version, or cut off."
                )


def _described(
    described: Collection[DescribedSubTopology], name: str, existing: frozenset[str], notes: list[str]
) -> list[SubTopologyShape]:
    shapes = []
    for found in described:
        sources = []
        for topic in found.sources:
            # Topics that Streams makes are described without the application's id.
            full = topic if topic in existing else f"{name}-{topic}"
            if full not in existing:
                raise GroupStateException(
                    f"Sub-topology {found.number} reads {topic!r}, but the cluster has neither {topic!r} nor {full!r}."
                )
            sources.append(full)
        changelogs: dict[str, str | None] = {}
        for store in found.stores:
            topic = f"{name}-{store}{_CHANGELOG}"
            changelogs[store] = topic if topic in existing else None
        unlogged = [store for store, topic in changelogs.items() if topic is None]
        if unlogged:
            notes.append(
                f"The cluster has no changelogs of {listed(unlogged)}, or the user may not see them; they count as stores that are "
                "not logged."
            )
        shapes.append(SubTopologyShape(str(found.number), tuple(sources), changelogs, number=found.number))
    return shapes


def _inferred(
    group: GroupDescription, existing: frozenset[str], cluster: Cluster, notes: list[str]
) -> list[SubTopologyShape]:
    sources: dict[tuple[str, int], set[str]] = defaultdict(set)
    with_standbys: set[tuple[str, int]] = set()
    for member in group.members:
        if member.assignment_info is not None:
            for task, partition in zip(member.assignment_info.active_tasks, member.partitions, strict=False):
                sources[_whose(task)].add(partition.topic)
            with_standbys.update(map(_whose, member.standby_tasks))
    if not sources:
        raise GroupStateException(
            f"Nobody in the group {group.name!r} has a task, so its topology cannot be inferred. Maybe give the topology."
        )
    logs = _changelogs(group.name, existing, cluster, notes)
    counts = cluster.partition_counts({*logs, *(topic for found in sources.values() for topic in found)})
    changelogs: dict[tuple[str, int], list[str]] = defaultdict(list)
    # What a named topology makes has its name, too.
    prefixes = {whose: f"{group.name}-{whose[0]}-" if whose[0] else f"{group.name}-" for whose in sources}
    for topic in logs:
        # Where there are standbys at all, every sub-topology with a changelog has some.
        possible = [
            whose
            for whose, found in sorted(sources.items())
            if topic.startswith(prefixes[whose])
            and max(counts[each] for each in found) == counts[topic]
            and (whose in with_standbys or not with_standbys)
        ]
        if len(possible) != 1:
            raise GroupStateException(
                f"Which sub-topology the changelog {topic!r} belongs to cannot be inferred: its number of partitions "
                f"({counts[topic]}) fits {listed(map(_told, possible)) if possible else 'none'}. Maybe give the topology, as "
                "Topology#describe prints it."
            )
        changelogs[possible[0]].append(topic)
    notes.append("The sub-topologies were inferred from the assignment in force; stores without changelog are unknown.")
    return [
        SubTopologyShape(
            _told(whose),
            tuple(sorted(found)),
            {topic.removeprefix(prefixes[whose]).removesuffix(_CHANGELOG): topic for topic in changelogs[whose]},
            whose[0] or None,
            number=whose[1],
        )
        for whose, found in sorted(sources.items())
    ]


def _whose(task: TaskId) -> tuple[str, int]:
    """The named topology of a task, "" if it has none, and the number of its sub-topology there."""
    return task.topology_name or "", task.subtopology


def _told(whose: tuple[str, int]) -> str:
    return f"{whose[0]}__{whose[1]}" if whose[0] else str(whose[1])


def _changelogs(name: str, existing: frozenset[str], cluster: Cluster, notes: list[str]) -> list[str]:
    """The topics that are named like changelogs of an application, and not like those of one whose name begins with its name."""
    logs = sorted(topic for topic in existing if topic.startswith(f"{name}-") and topic.endswith(_CHANGELOG))
    longer = tuple(f"{each.name}-" for each in cluster.groups() if each.name.startswith(f"{name}-"))
    others = [topic for topic in logs if topic.startswith(longer)]
    if others:
        notes.append(
            f"Left out, since their names begin with those of other groups, too: {listed(others)}. If they are changelogs of "
            "this one, give the topology."
        )
    return [topic for topic in logs if topic not in others]


def _tasks(shapes: Collection[SubTopologyShape], cluster: Cluster) -> dict[TaskId, TaskInfo]:
    """As Kafka makes them: task p has partition p of every source topic that has one, and of every changelog."""
    logs = {topic for shape in shapes for topic in shape.changelog_topics}
    topics = logs | {topic for shape in shapes for topic in shape.sources}
    counts, racks = cluster.partition_counts(topics), cluster.partition_racks(topics)
    infos = {}
    numbers = number_sub_topologies((shape.topology, shape.number) for shape in shapes)
    for shape, (topology, number) in zip(shapes, numbers, strict=True):
        changelogs = sorted(shape.changelog_topics)
        for partition in range(max(counts[topic] for topic in shape.sources)):
            task = TaskId(number, partition, topology)
            partitions = [
                TaskTopicPartition(
                    TopicPartition(topic, partition),
                    topic in shape.sources,
                    topic in changelogs,
                    racks[topic][partition],
                )
                for topic in sorted({*shape.sources, *changelogs})
                if partition < counts[topic]
            ]
            infos[task] = TaskInfo(task, bool(shape.changelogs), frozenset(shape.changelogs), partitions)
    return infos


def _clients(group: GroupDescription) -> dict[ProcessId, list[GroupMember]]:
    clients: dict[ProcessId, list[GroupMember]] = defaultdict(list)
    for member in group.members:
        if member.subscription_info is not None and not member.only_leads:
            clients[member.subscription_info.process_id].append(member)
    return dict(sorted(clients.items()))


def _configs(
    clients: Mapping[ProcessId, list[GroupMember]], settings: Mapping[str, object] | None
) -> AssignmentConfigs:
    tags: dict[str, str] = {}
    for members in clients.values():
        for member in members:
            if member.subscription_info is not None:
                tags |= member.subscription_info.client_tags
    # Rack tags of the settings must be tags of some client.
    with_tags = ApplicationStateBuilder().add_client(next(iter(clients)), client_tags=tags).build()
    # A Java application names Java classes in others of its settings.
    known = {key: value for key, value in (settings or {}).items() if key in STATE_KEYS}
    return StreamsConfig.of_state(with_tags, known).assignment_configs


def _add_client(
    builder: ApplicationStateBuilder,
    process_id: ProcessId,
    members: list[GroupMember],
    infos: Mapping[TaskId, TaskInfo],
    end_sums: Mapping[TaskId, int],
) -> None:
    told: dict[TaskId, int] = {}
    for member in members:
        if member.subscription_info is not None:
            for task, offset in member.subscription_info.task_offset_sums.items():
                told[task] = better_offset_sum(told.get(task, offset), offset)
    active = {task for member in members for task in member.active_tasks if task in infos}
    standby = {
        task for member in members for task in member.standby_tasks if task in infos and infos[task].is_stateful
    } - active
    lags = dict.fromkeys((task for task in active if task in end_sums), LATEST_OFFSET)
    for task in sorted(standby & end_sums.keys()):
        offset = told.get(task, 0)
        # It was the running active task until this rebalance: nobody is further.
        lags[task] = 0 if offset == LATEST_OFFSET else max(end_sums[task] - max(offset, 0), 0)
    first = members[0]
    info = first.subscription_info
    builder.add_client(
        process_id,
        num_processing_threads=len(members),
        consumers={
            member.member_id: [
                task
                for task in (*member.active_tasks, *member.standby_tasks)
                if task in infos and infos[task].is_stateful
            ]
            for member in members
        },
        host_info=_host_info(None if info is None else info.user_end_point),
        rack_id=None if first.subscription is None else first.subscription.rack_id,
        client_tags={} if info is None else dict(info.client_tags),
        previous_active_tasks=active,
        previous_standby_tasks=standby,
        task_lags=lags,
    )


def _host_info(end_point: str | None) -> HostInfo | None:
    return None if end_point is None else parse_host_info(end_point)
