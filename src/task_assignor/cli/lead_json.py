"""Requests to lead a Streams group as JSON: the form of `tests/vectors/consumer_level/streams_assignor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from task_assignor.builtin_assignors import FallbackPriorTaskAssignor
from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.output import others_code
from task_assignor.cli.wire_json import assignment_info_json, subscription_info_of
from task_assignor.group.streams import StreamsLeader, StreamsMember, StreamsRebalance
from task_assignor.group.topology import SubTopologyShape
from task_assignor.group.wire import decode_assignment_info, decode_subscription_info, encode_assignment_info
from task_assignor.sdk import (
    SnapshotException,
    StreamsConfig,
    StreamsException,
    Subscription,
    TaskAssignor,
    TopicPartition,
)

# Each makes a task.
_MOST_PARTITIONS: Final = 10_000_000
_PUBLIC, _INTERNAL = "task.assignor.class", "internal.task.assignor.class"
_LEGACY: Final = "org.apache.kafka.streams.processor.internals.assignment."
# Kafka's own names of what is built in here.
_KAFKA: Final = {
    "org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor": "sticky",
    f"{_LEGACY}HighAvailabilityTaskAssignor": "high-availability",
    f"{_LEGACY}LegacyStickyTaskAssignor": "sticky",
    f"{_LEGACY}FallbackPriorTaskAssignor": "fallback-prior",
}
_REQUEST: Final = frozenset(
    {
        "application_id",
        "config",
        "default_end_offset",
        "end_offsets_fail",
        "leader_process_id",
        "members",
        "newly_created",
        "now_ms",
        "racks",
        "subtopologies",
        "topics",
    }
)
_SUBTOPOLOGY: Final = frozenset({"repartition_sources", "sinks", "sources", "stores", "unlogged_stores"})
_MEMBER: Final = frozenset({"generation", "id", "owned", "rack", "subscription", "user_data"})
_SUBSCRIPTION: Final = frozenset(
    {
        "client_tags",
        "error_code",
        "latest_supported_version",
        "process_id",
        "task_offset_sums",
        "unique_field",
        "user_end_point",
        "version",
    }
)
Decide = Callable[[Callable[[], TaskAssignor]], Callable[[], TaskAssignor]]


def answer_lead(request: JsonValue, decide: Decide = lambda factory: factory) -> dict[str, Any]:
    """The response to a request: what every member is sent, and the internal topics.

    Args:
        request: topics, sub-topologies, settings, offsets and members.
        decide: puts another assignor in the place of the configured one.

    Raises:
        SnapshotException: it is no such request.
    """
    request.check_slips(_REQUEST)
    shapes = _shapes(request)
    with others_code():
        config = _config(request["config"])
    # Kafka's own assignors leave the follow-up to the leader's client, and where end offsets are missing to fallback prior.
    public = not request["config"][_PUBLIC].is_null
    fallback = (
        None if public or "LegacySticky" in str(request["config"][_INTERNAL].value) else FallbackPriorTaskAssignor
    )
    leader = StreamsLeader(
        decide(config.task_assignor),
        config.assignment_configs,
        shapes,
        None if fallback is None else decide(fallback),
    )
    members = sorted((_member(member) for member in request["members"]), key=lambda member: member.member_id)
    topics = {topic: count.whole(low=0, high=_MOST_PARTITIONS) for topic, count in request["topics"].members()}
    told = [
        {
            "id": number,
            "source_topics": sorted(shape.all_sources),
            "changelog_topics": sorted(shape.changelog_topics),
        }
        for number, shape in enumerate(shapes)
    ]
    try:
        internal: Mapping[str, int] = {}
        with others_code():
            found = leader.rebalance(
                members,
                topics,
                _end_offsets(request, shapes, topics, leader),
                request["now_ms"].whole(),
                _racks(request["racks"]),
                None if public else request["leader_process_id"].process_id(),
            )
        if not found.error:
            internal = leader.topics(topics).internal
    except SnapshotException:
        raise
    except StreamsException as error:
        return {"error": {"class": type(error).__name__, "message": str(error)}}
    return {**_members(found), "internal_topics": dict(sorted(internal.items())), "subtopologies": told}


def _members(found: StreamsRebalance) -> dict[str, Any]:
    members = {
        member: {
            "partitions": [[p.topic, p.partition] for p in given.partitions],
            # What the member will read: an older version carries less.
            "info": assignment_info_json(decode_assignment_info(encode_assignment_info(given.info))),
        }
        for member, given in found.members.items()
    }
    more: dict[str, Any] = {"kept_because": found.kept_because} if found.kept_because else {}
    if found.inexact:
        more["inexact"] = sorted(found.inexact)
    return {"members": members, **more}


def _shapes(request: JsonValue) -> list[SubTopologyShape]:
    application = request["application_id"].text()

    def names(value: JsonValue) -> tuple[str, ...]:
        return () if value.is_null else value.texts()

    shapes = []
    for number, value in enumerate(request["subtopologies"]):
        value.check_names(_SUBTOPOLOGY)
        changelogs: dict[str, str | None] = {
            store: f"{application}-{store}-changelog" for store in names(value["stores"])
        }
        changelogs |= dict.fromkeys(names(value["unlogged_stores"]))
        read, written = (
            tuple(f"{application}-{topic}" for topic in names(value[part])) for part in ("repartition_sources", "sinks")
        )
        shapes.append(SubTopologyShape(str(number), names(value["sources"]), changelogs, None, read, written))
    return shapes


def _config(value: JsonValue) -> StreamsConfig:
    settings: dict[str, object] = {}
    for name, setting in value.members():
        if name in (_PUBLIC, _INTERNAL):
            settings[_PUBLIC] = _KAFKA.get(setting.text(), setting.text())
        else:
            settings[name] = setting.value if isinstance(setting.value, (bool, int, float)) else setting.text()
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:9092", **settings})


def _member(value: JsonValue) -> StreamsMember:
    value.check_names(_MEMBER)
    if not value["subscription"].is_null:
        value["subscription"].check_slips(_SUBSCRIPTION)
    subscription = Subscription(
        owned_partitions=() if value["owned"].is_null else value["owned"].partitions(),
        generation_id=value["generation"].int32(-1),
        rack_id=value["rack"].text_or_none(),
    )
    data = value["user_data"].bytes_or_none()
    info = (
        subscription_info_of(value["subscription"])
        if data is None
        else value.checked(lambda: decode_subscription_info(data))
    )
    return StreamsMember(value["id"].text(), subscription, info)


def _racks(value: JsonValue) -> dict[str, list[frozenset[str] | None]]:
    if value.is_null:
        return {}
    return {
        topic: [None if racks.is_null else frozenset(racks.texts()) for racks in partitions]
        for topic, partitions in value.members()
    }


def _end_offsets(
    request: JsonValue, shapes: list[SubTopologyShape], topics: Mapping[str, int], leader: StreamsLeader
) -> dict[TopicPartition, int] | None:
    if request["end_offsets_fail"].flag():
        return None
    new = () if request["newly_created"].is_null else request["newly_created"].texts()
    offset = request["default_end_offset"].whole(0)
    try:
        internal = leader.topics(topics).internal
    except StreamsException:
        return {}
    changelogs = {topic for shape in shapes for topic in shape.changelog_topics}
    return {
        TopicPartition(topic, number): offset
        for topic in sorted(changelogs)
        if "*" not in new and topic not in new
        for number in range(internal.get(topic, topics.get(topic, 0)))
    }
