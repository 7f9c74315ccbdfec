"""What Kafka Streams clients and their leader tell each other in the user data: `SubscriptionInfo`, `AssignmentInfo`, versions 1 to 11.

Source: `SubscriptionInfoData.json`, `SubscriptionInfo`, `AssignmentInfo` of Kafka Streams 4.3. Where Java writes hash
order, these write the order that they are given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from task_assignor.group.wire.layout import (
    INT8,
    INT32,
    INT64,
    JAVA_TEXT,
    LONG_TEXT,
    NULLABLE_TEXT,
    UTF16_TEXT,
    UUID,
    Field,
    Layout,
    Many,
    Source,
    WireFormatException,
    Written,
    items_of,
    value_of,
    values_of,
)
from task_assignor.sdk import LATEST_OFFSET, HostInfo, ProcessId, StreamsException, TaskId, TopicPartition
from task_assignor.sdk.ids import java_string_key
from task_assignor.sdk.integers import is_whole
from task_assignor.sdk.text import shown

LATEST_STREAMS_VERSION: Final = 11
UNKNOWN_VERSION: Final = -1
UNKNOWN_OFFSET_SUM: Final = -3
NO_REBALANCE: Final = 2**63 - 1
"""`next_rebalance_ms` of a client that shall not trigger one."""

_TASK: Final = Layout("task", [Field("subtopology", INT32), Field("partition", INT32)])
_NAMED_TASK: Final = Layout(
    "A task",
    [*_TASK.fields, Field("topology name", UTF16_TEXT, first=10, default="", ignorable=False)],
)
_OFFSET: Final = Layout("offset", [Field("partition", INT32), Field("offset_sum", INT64)])
_TAG: Final = Layout("tag", [Field("key", LONG_TEXT), Field("value", LONG_TEXT)])
SUBSCRIPTION_INFO: Final = Layout(
    "SubscriptionInfo",
    [
        Field("latest_supported_version", INT32, first=3, default=UNKNOWN_VERSION),
        Field("process_id", UUID),
        Field("prev_tasks", Many(_TASK), last=6, default=()),
        Field("standby_tasks", Many(_TASK), last=6, default=()),
        Field("user_end_point", LONG_TEXT, first=2, default=""),
        Field(
            "grouped_offset_sums",
            Many(Layout("group", [Field("subtopology", INT32), Field("offsets", Many(_OFFSET))])),
            first=7,
            last=9,
            default=(),
        ),
        Field(
            "offset_sums",
            Many(Layout("sum", [*_TASK.fields, Field("offset_sum", INT64), Field("topology name", NULLABLE_TEXT)])),
            first=10,
            default=(),
        ),
        Field("unique_field", INT8, first=8, default=0),
        Field("error_code", INT32, first=9, default=0),
        Field("client_tags", Many(_TAG), first=11, default=()),
    ],
)
_NAMED_PARTITION: Final = Layout("partition", [Field("topic", JAVA_TEXT), Field("partition", INT32)])
_NUMBERED_PARTITION: Final = Layout("partition", [Field("topic number", INT32), Field("partition", INT32)])


def _hosts(partition: Layout) -> Many:
    return Many(Layout("host", [Field("host", JAVA_TEXT), Field("port", INT32), Field("partitions", Many(partition))]))


ASSIGNMENT_INFO: Final = Layout(
    "AssignmentInfo",
    [
        Field("commonly_supported_version", INT32, first=3, default=UNKNOWN_VERSION),
        Field("active_tasks", Many(_NAMED_TASK)),
        Field(
            "standby_tasks",
            Many(Layout("standby", [Field("task", _NAMED_TASK), Field("partitions", Many(_NAMED_PARTITION))])),
        ),
        Field("named_hosts", _hosts(_NAMED_PARTITION), first=2, last=4, default=()),
        Field(
            "topics", Many(Layout("entry", [Field("number", INT32), Field("topic", JAVA_TEXT)])), first=5, default=()
        ),
        Field("hosts", _hosts(_NUMBERED_PARTITION), first=5, default=()),
        Field("standby_hosts", _hosts(_NUMBERED_PARTITION), first=6, default=()),
        Field("err_code", INT32, first=4, default=0),
        Field("next_rebalance_ms", INT64, first=7, default=NO_REBALANCE),
    ],
)


@attrs.frozen
class SubscriptionInfo:
    """What a consumer of a Streams client tells the leader.

    Args:
        process_id: its client.
        task_offset_sums: task -> changelog offsets, summed: -2 for a running active task, -3 if unknown.
        user_end_point: "host:port" where the client answers queries, or None.
        unique_field: changes with every subscription, so that the broker sees a new one; -128 to 127.
        error_code: 0, or 4 to shut the whole application down.
        client_tags: its tags.
        version: version of the bytes, 1 to 11; above 11 nothing but the versions is known.
        latest_supported_version: the latest that the member understands; -1 in versions 1 and 2.
    """

    process_id: ProcessId
    task_offset_sums: Mapping[TaskId, int] = attrs.field(factory=dict)
    user_end_point: str | None = None
    unique_field: int = 0
    error_code: int = 0
    client_tags: Mapping[str, str] = attrs.field(factory=dict)
    version: int = LATEST_STREAMS_VERSION
    latest_supported_version: int = LATEST_STREAMS_VERSION

    @property
    def prev_tasks(self) -> frozenset[TaskId]:
        """The active tasks that run there."""
        return frozenset(task for task, offsets in self.task_offset_sums.items() if offsets == LATEST_OFFSET)

    @property
    def standby_tasks(self) -> frozenset[TaskId]:
        """The other tasks of which it has state."""
        return frozenset(self.task_offset_sums) - self.prev_tasks


@attrs.frozen
class AssignmentInfo:
    """What the leader tells a consumer of a Streams client, beside its partitions.

    Args:
        active_tasks: the task of each assigned partition, in the order of these.
        standby_tasks: task -> its changelog partitions.
        partitions_by_host: where the active partitions of the clients are that answer queries.
        standby_partitions_by_host: where their standby partitions are.
        err_code: 0, or an `AssignorError` of Kafka Streams.
        next_rebalance_ms: when the member shall trigger a rebalance, ms since the epoch; 0: at once; 2^63-1: not.
        version: version of the bytes, 1 to 11.
        commonly_supported_version: the latest that every member understands; -1 in versions 1 and 2.
    """

    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, tuple[TopicPartition, ...]] = attrs.field(factory=dict)
    partitions_by_host: Mapping[HostInfo, tuple[TopicPartition, ...]] = attrs.field(factory=dict)
    standby_partitions_by_host: Mapping[HostInfo, tuple[TopicPartition, ...]] = attrs.field(factory=dict)
    err_code: int = 0
    next_rebalance_ms: int = NO_REBALANCE
    version: int = LATEST_STREAMS_VERSION
    commonly_supported_version: int = LATEST_STREAMS_VERSION


def encode_subscription_info(info: SubscriptionInfo) -> bytes:
    """The bytes of `info.version`; what this version does not know is left out.

    Raises:
        WireFormatException: there is no such version, or a value does not fit into it (a named topology before 10).
    """
    version = value_of("info", SubscriptionInfo, info).version
    _check_versions(version, info.latest_supported_version)
    if version > LATEST_STREAMS_VERSION:
        raise WireFormatException(f"The version of a SubscriptionInfo ({version}) must be at most 11.")
    values: dict[str, Any] = {
        "latest_supported_version": info.latest_supported_version,
        "process_id": value_of("process_id of a SubscriptionInfo", ProcessId, info.process_id).id,
        "user_end_point": "" if info.user_end_point is None else info.user_end_point,
        "unique_field": info.unique_field,
        "error_code": info.error_code,
        "client_tags": items_of("client_tags of a SubscriptionInfo", str, info.client_tags),
    }
    sums = items_of("task_offset_sums of a SubscriptionInfo", TaskId, info.task_offset_sums)
    named = [task for task, _ in sums if task.topology_name is not None]
    if named and version < 10:
        raise WireFormatException(f"A SubscriptionInfo of version {version} cannot carry the topology of {named[0]}.")
    if version < 7:
        active = info.prev_tasks
        values["prev_tasks"] = [_pair(task) for task, _ in sums if task in active]
        values["standby_tasks"] = [_pair(task) for task, _ in sums if task not in active]
    elif version < 10:
        groups: dict[int, list[tuple[int, int]]] = {}
        for task, offsets in sums:
            groups.setdefault(task.subtopology, []).append((task.partition, offsets))
        values["grouped_offset_sums"] = groups.items()
    else:
        values["offset_sums"] = [(*_pair(task), offsets, task.topology_name) for task, offsets in sums]
    return INT32.write(version, version) + SUBSCRIPTION_INFO.write(SUBSCRIPTION_INFO.record(values), version)


def decode_subscription_info(data: bytes) -> SubscriptionInfo:
    """What a consumer told. Of a version above 11 only the versions are read, which is what version probing needs.

    Raises:
        WireFormatException: the bytes are no SubscriptionInfo.
    """
    source = Source(data)
    version = INT32.read(source, 0)
    if version > LATEST_STREAMS_VERSION:
        latest = INT32.read(source, version)
        _check_versions(version, latest)
        return SubscriptionInfo(_NOBODY, version=version, latest_supported_version=latest)
    if version < 1:
        raise WireFormatException(f"The version of a SubscriptionInfo ({version}) must be at least 1.")
    found = SUBSCRIPTION_INFO.named(SUBSCRIPTION_INFO.read(source, version))
    _check_versions(version, found["latest_supported_version"])
    try:
        sums = {TaskId(*pair): LATEST_OFFSET for pair in found["prev_tasks"]}
        sums |= {TaskId(*pair): UNKNOWN_OFFSET_SUM for pair in found["standby_tasks"]}
        for subtopology, offsets in found["grouped_offset_sums"]:
            sums |= {TaskId(subtopology, partition): offset for partition, offset in offsets}
        sums |= {TaskId(number, partition, name): offset for number, partition, offset, name in found["offset_sums"]}
    except StreamsException as error:
        raise WireFormatException(str(error)) from None
    return SubscriptionInfo(
        ProcessId(found["process_id"]),
        sums,
        found["user_end_point"] or None,
        found["unique_field"],
        found["error_code"],
        dict(found["client_tags"]),
        version,
        found["latest_supported_version"],
    )


def encode_assignment_info(info: AssignmentInfo) -> bytes:
    """The bytes of `info.version`; what this version does not know is left out.

    Raises:
        WireFormatException: there is no such version, or a value does not fit into it (a named topology before 10).
    """
    return encode_assignment_infos([info])[0]


def encode_assignment_infos(infos: Iterable[AssignmentInfo]) -> list[bytes]:
    """The same of all members of a group. Which host has what, all of them are told: that is written once.

    Raises:
        WireFormatException: as `encode_assignment_info`.
    """
    written: dict[tuple[int, int, int], dict[str, Written]] = {}
    data = []
    for info in [value_of("info", AssignmentInfo, info) for info in infos]:
        version = info.version
        _check_assignment_version(version)
        whose = (id(info.partitions_by_host), id(info.standby_partitions_by_host), version)
        if whose not in written:
            written[whose] = _written_hosts(info)
        active = values_of("active_tasks of an AssignmentInfo", TaskId, info.active_tasks)
        standby = items_of("standby_tasks of an AssignmentInfo", TaskId, info.standby_tasks)
        values = {
            "commonly_supported_version": info.commonly_supported_version,
            "active_tasks": [_triple(task) for task in active],
            "standby_tasks": [
                (
                    _triple(task),
                    [(found.topic, found.partition) for found in _partitions_given("standby_tasks", partitions)],
                )
                for task, partitions in standby
            ],
            **written[whose],
            "err_code": info.err_code,
            "next_rebalance_ms": info.next_rebalance_ms,
        }
        data.append(INT32.write(version, version) + ASSIGNMENT_INFO.write(ASSIGNMENT_INFO.record(values), version))
    return data


def _written_hosts(info: AssignmentInfo) -> dict[str, Written]:
    version = info.version
    hosts = _by_host("partitions_by_host", info.partitions_by_host)
    standby_hosts = _by_host("standby_partitions_by_host", info.standby_partitions_by_host if version >= 6 else {})
    topics = {
        found.topic for shown_hosts in (hosts, standby_hosts) for _, partitions in shown_hosts for found in partitions
    }
    numbers = {topic: number for number, topic in enumerate(sorted(topics, key=java_string_key))}
    values = {
        "named_hosts": _host_records(hosts, {topic: topic for topic in topics}),
        "topics": [(number, topic) for topic, number in numbers.items()],
        "hosts": _host_records(hosts, numbers),
        "standby_hosts": _host_records(standby_hosts, numbers),
    }
    return {
        field.name: Written(field.kind.write(values[field.name], version))
        for field in ASSIGNMENT_INFO.fields
        if field.name in values and field.first <= version <= field.last
    }


def decode_assignment_info(data: bytes) -> AssignmentInfo:
    """What the leader told.

    Raises:
        WireFormatException: the bytes are no AssignmentInfo.
    """
    source = Source(data)
    version = INT32.read(source, 0)
    _check_assignment_version(version)
    found = ASSIGNMENT_INFO.named(ASSIGNMENT_INFO.read(source, version))
    topics = dict(found["topics"])
    return AssignmentInfo(
        tuple(map(_task, found["active_tasks"])),
        {_task(task): _partitions(partitions) for task, partitions in found["standby_tasks"]},
        _host_values(found["named_hosts"]) | _host_values(found["hosts"], topics),
        _host_values(found["standby_hosts"], topics),
        found["err_code"],
        found["next_rebalance_ms"],
        version,
        found["commonly_supported_version"],
    )


_NOBODY: Final = ProcessId.parse("00000000-0000-0000-0000-000000000000")


def _check_versions(version: int, latest: int) -> None:
    are_whole = is_whole(version) and is_whole(latest)
    if not are_whole or not (1 <= version <= latest or (latest == UNKNOWN_VERSION and version in (1, 2))):
        raise WireFormatException(
            f"The version of a SubscriptionInfo ({shown(version)}) must be from 1 to the latest that its sender supports "
            f"({shown(latest)})."
        )


def _check_assignment_version(version: int) -> None:
    if not is_whole(version) or not 1 <= version <= LATEST_STREAMS_VERSION:
        raise WireFormatException(f"The version of an AssignmentInfo ({shown(version)}) must be from 1 to 11.")


def _pair(task: TaskId) -> tuple[int, int]:
    return task.subtopology, task.partition


def _triple(task: TaskId) -> tuple[int, int, str]:
    return task.subtopology, task.partition, task.topology_name or ""


def _task(record: Iterable[Any]) -> TaskId:
    try:
        return TaskId(*record)
    except StreamsException as error:
        raise WireFormatException(str(error)) from None


def _partitions(
    records: Iterable[tuple[Any, int]], topics: Mapping[int, str] | None = None
) -> tuple[TopicPartition, ...]:
    try:
        if topics is None:
            return tuple([TopicPartition(topic, partition) for topic, partition in records])
        return tuple([TopicPartition(topics[number], partition) for number, partition in records])
    except KeyError as error:
        raise WireFormatException(f"The topic {error} is not in the list of topics.") from None
    except StreamsException as error:
        raise WireFormatException(str(error)) from None


def _partitions_given(what: str, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    return values_of(f"partitions in the {what} of an AssignmentInfo", TopicPartition, partitions)


_ByHost = list[tuple[HostInfo, Collection[TopicPartition]]]


def _by_host(what: str, hosts: Mapping[HostInfo, Collection[TopicPartition]]) -> _ByHost:
    items = items_of(f"{what} of an AssignmentInfo", HostInfo, hosts)
    return [(host, _partitions_given(what, partitions)) for host, partitions in items]


def _host_records(hosts: _ByHost, names: Mapping[str, Any]) -> list[Any]:
    return [
        (host.host, host.port, [(names[found.topic], found.partition) for found in partitions])
        for host, partitions in hosts
    ]


def _host_values(
    records: Iterable[tuple[str, int, Any]], topics: Mapping[int, str] | None = None
) -> dict[HostInfo, tuple[TopicPartition, ...]]:
    try:
        return {HostInfo(host, port): _partitions(found, topics) for host, port, found in records}
    except StreamsException as error:
        raise WireFormatException(str(error)) from None
