"""Wire formats as JSON: answers requests to encode and to decode, and says what some bytes may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from task_assignor.cli.json_values import JsonValue
from task_assignor.group.wire import (
    LATEST_STREAMS_VERSION,
    NO_REBALANCE,
    AssignmentInfo,
    StickyUserData,
    SubscriptionInfo,
    WireFormatException,
    decode_assignment,
    decode_assignment_info,
    decode_copartitioned_user_data,
    decode_sticky_user_data,
    decode_stream_join_user_data,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_copartitioned_user_data,
    encode_sticky_user_data,
    encode_stream_join_user_data,
    encode_subscription,
    encode_subscription_info,
)
from task_assignor.group.wire.consumer_protocol import version_of
from task_assignor.sdk import (
    Assignment,
    HostInfo,
    SnapshotException,
    StreamsException,
    Subscription,
    TaskId,
    TopicPartition,
)

Json = dict[str, Any]
_Format = tuple[Callable[[bytes], Any], Callable[[Any], bytes], Callable[[bytes], Json]]
_MEMBERS: Final = frozenset(
    [
        "action",
        "active_tasks",
        "client_tags",
        "commonly_supported_version",
        "err_code",
        "error_code",
        "generation",
        "hex",
        "latest_supported_version",
        "next_rebalance_ms",
        "op",
        "owned",
        "partitions",
        "partitions_by_host",
        "process_id",
        "rack",
        "standby_partitions_by_host",
        "standby_tasks",
        "task_offset_sums",
        "topics",
        "type",
        "unique_field",
        "user_data",
        "user_end_point",
        "version",
    ]
)
"""Of all requests together."""


def answer_wire(request: JsonValue) -> Json:
    """The response to a request of the form of `tests/vectors/wire`; bytes and values that do not fit are an `error` in it.

    Raises:
        SnapshotException: it is no such request.
    """
    request.check_slips(_MEMBERS)
    name = request["op"].text()
    if name == "consumer_protocol":
        name = f"consumer_protocol {request['type'].text()}"
    action = request["action"].text()
    answer = _ANSWERS.get((name, action))
    if answer is None:
        known = ", ".join(f"{known} {what}" for known, what in _ANSWERS)
        raise SnapshotException(f"$.op: There is no {name} {action}. Known are: {known}.")
    try:
        return answer(request)
    except WireFormatException as error:
        return {"error": {"class": type(error).__name__, "message": str(error)}}


def explain_bytes(data: bytes) -> list[Json]:
    """What the bytes may be: each format that would write exactly them, with what they say; user data is explained too."""
    return _explained(data, _PROTOCOL | _USER_DATA)


def _explained(data: bytes, formats: Mapping[str, _Format]) -> list[Json]:
    found = []
    for name, (decode, encode, to_json) in formats.items():
        try:
            value = decode(data)
            # A format that leaves bytes over, or changes some, is not the one that they were written in.
            if len(encode(value)) != len(data):
                continue
        except WireFormatException:
            continue
        told = to_json(data)
        if told.get("user_data"):
            # Of an assignor. What looks like a subscription may look like an assignment too, whose user data may: no end to it.
            told["user_data_may_be"] = _explained(bytes.fromhex(told["user_data"]), _USER_DATA)
        found.append({"format": name, **told})
    return found


def _hex(request: JsonValue) -> bytes | None:
    """The bytes to be read; null where members send none."""
    if "hex" not in request.value:
        raise SnapshotException(
            f"{request.path}.hex: The value must be pairs of hexadecimal digits, or null; it is missing."
        )
    return request["hex"].bytes_or_none()


def _subscription_encode(request: JsonValue) -> Json:
    subscription = Subscription(
        request["topics"].texts(),
        request["user_data"].bytes_or_none(),
        request["owned"].partitions(),
        request["generation"].whole(-1),
        request["rack"].text_or_none(),
    )
    return {"hex": encode_subscription(subscription, request["version"].whole()).hex()}


def subscription_json(data: bytes) -> Json:
    """A decoded subscription."""
    found = decode_subscription(data)
    return {
        "topics": list(found.topics),
        "user_data": None if found.user_data is None else found.user_data.hex(),
        "owned": _pairs(found.owned_partitions),
        "generation": None if found.generation_id < 0 else found.generation_id,
        "rack": found.rack_id,
    }


def _assignment_encode(request: JsonValue) -> Json:
    assignment = Assignment(request["partitions"].partitions(), request["user_data"].bytes_or_none())
    return {"hex": encode_assignment(assignment, request["version"].whole()).hex()}


def assignment_json(data: bytes) -> Json:
    """A decoded assignment."""
    found = decode_assignment(data)
    return {
        "partitions": _pairs(found.partitions),
        "user_data": None if found.user_data is None else found.user_data.hex(),
    }


def _sticky_encode(request: JsonValue) -> Json:
    generation = request["generation"].whole(-1) if request["version"].whole(low=0, high=1) else None
    return {"hex": encode_sticky_user_data(StickyUserData(request["owned"].numbers_by_topic(), generation)).hex()}


def _sticky_decode(request: JsonValue) -> Json:
    data = _hex(request)
    if not data:
        return {"owned": [], "generation": None}
    try:
        return sticky_json(data)
    except WireFormatException:
        # As every reader of it has to: a member whose user data is broken claims nothing.
        return {"owned": [], "generation": -1}


def sticky_json(data: bytes) -> Json:
    """Decoded user data of a sticky member."""
    found = decode_sticky_user_data(data)
    owned = [[topic, partition] for topic, partitions in found.owned.items() for partition in partitions]
    return {"owned": owned, "generation": found.generation}


def subscription_info_of(request: JsonValue) -> SubscriptionInfo:
    """The `SubscriptionInfo` that JSON writes."""
    sums = {item["task"].task(): item["offset_sum"].whole() for item in request["task_offset_sums"]}
    tags = {}
    for item in [] if request["client_tags"].is_null else request["client_tags"]:
        pair = item.texts()
        if len(pair) != 2:
            raise SnapshotException(f"{item.path}: The value must be a list of a key and a value.")
        tags[pair[0]] = pair[1]
    return SubscriptionInfo(
        request["process_id"].process_id(),
        sums,
        request["user_end_point"].text_or_none(),
        request["unique_field"].whole(0),
        request["error_code"].whole(0),
        tags,
        request["version"].whole(LATEST_STREAMS_VERSION),
        request["latest_supported_version"].whole(LATEST_STREAMS_VERSION),
    )


def _subscription_info_encode(request: JsonValue) -> Json:
    data = encode_subscription_info(subscription_info_of(request))
    return {"hex": data.hex(), "decoded": subscription_info_json(data)}


def subscription_info_json(data: bytes) -> Json:
    """A decoded `SubscriptionInfo`."""
    found = decode_subscription_info(data)
    return {
        "version": found.version,
        "latest_supported_version": found.latest_supported_version,
        "process_id": str(found.process_id),
        "user_end_point": found.user_end_point,
        "task_offset_sums": [
            {"task": _task(task), "offset_sum": found.task_offset_sums[task]} for task in sorted(found.task_offset_sums)
        ],
        "prev_tasks": [_task(task) for task in sorted(found.prev_tasks)],
        "standby_tasks": [_task(task) for task in sorted(found.standby_tasks)],
        "unique_field": found.unique_field,
        "error_code": found.error_code,
        "client_tags": [[key, found.client_tags[key]] for key in sorted(found.client_tags)],
    }


def _assignment_info_encode(request: JsonValue) -> Json:
    data = encode_assignment_info(
        AssignmentInfo(
            tuple([item.task() for item in request["active_tasks"]]),
            {item["task"].task(): item["partitions"].partitions() for item in request["standby_tasks"]},
            _hosts_of(request["partitions_by_host"]),
            _hosts_of(request["standby_partitions_by_host"]),
            request["err_code"].whole(0),
            request["next_rebalance_ms"].whole(NO_REBALANCE),
            request["version"].whole(),
            request["commonly_supported_version"].whole(LATEST_STREAMS_VERSION),
        )
    )
    return {"hex": data.hex(), "decoded": assignment_info_json(decode_assignment_info(data))}


def assignment_info_json(found: AssignmentInfo) -> Json:
    """An `AssignmentInfo` as JSON."""
    return {
        "version": found.version,
        "commonly_supported_version": found.commonly_supported_version,
        "active_tasks": [_task(task) for task in found.active_tasks],
        "standby_tasks": [
            {"task": _task(task), "partitions": _pairs(sorted(set(found.standby_tasks[task])))}
            for task in sorted(found.standby_tasks)
        ],
        "partitions_by_host": _hosts(found.partitions_by_host),
        "standby_partitions_by_host": _hosts(found.standby_partitions_by_host),
        "err_code": found.err_code,
        "next_rebalance_ms": found.next_rebalance_ms,
    }


def _hosts_of(value: JsonValue) -> dict[HostInfo, tuple[TopicPartition, ...]]:
    try:
        return {HostInfo(item["host"].text(), item["port"].whole()): item["partitions"].partitions() for item in value}
    except StreamsException as error:
        raise SnapshotException(str(error)) from None


def _hosts(hosts: Mapping[HostInfo, Iterable[TopicPartition]]) -> list[Json]:
    return [
        {"host": host.host, "port": host.port, "partitions": _pairs(sorted(set(hosts[host])))} for host in sorted(hosts)
    ]


def _task(task: TaskId) -> list[Any]:
    return [task.subtopology, task.partition, task.topology_name]


def _pairs(partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    return [[found.topic, found.partition] for found in partitions]


def _decoding(decode: Callable[[bytes], Json]) -> Callable[[JsonValue], Json]:
    return lambda request: decode(_hex(request) or b"")


def _streams_decoding(decode: Callable[[bytes], Json]) -> Callable[[JsonValue], Json]:
    return lambda request: {"decoded": decode(_hex(request) or b"")}


_ANSWERS: Final[dict[tuple[str, str], Callable[[JsonValue], Json]]] = {
    ("consumer_protocol subscription", "encode"): _subscription_encode,
    ("consumer_protocol subscription", "decode"): _decoding(subscription_json),
    ("consumer_protocol assignment", "encode"): _assignment_encode,
    ("consumer_protocol assignment", "decode"): _decoding(assignment_json),
    ("sticky_userdata", "encode"): _sticky_encode,
    ("sticky_userdata", "decode"): _sticky_decode,
    ("subscription_info", "encode"): _subscription_info_encode,
    ("subscription_info", "decode"): _streams_decoding(subscription_info_json),
    ("assignment_info", "encode"): _assignment_info_encode,
    ("assignment_info", "decode"): _streams_decoding(lambda data: assignment_info_json(decode_assignment_info(data))),
}


def _stream_join_json(data: bytes) -> Json:
    found = decode_stream_join_user_data(data)
    return {"partitions": list(found.partitions), "epoch": found.epoch}


def _copartitioned_json(data: bytes) -> Json:
    found = decode_copartitioned_user_data(data)
    held = {"active": found.active, "standby": found.standby}
    return {name: {topic: list(numbers) for topic, numbers in owned.items()} for name, owned in held.items()} | {
        "generation": found.generation
    }


_PROTOCOL: Final[dict[str, _Format]] = {
    "consumer protocol subscription": (
        lambda data: (decode_subscription(data), version_of(data)),
        lambda found: encode_subscription(*found),
        lambda data: {"version": version_of(data), **subscription_json(data)},
    ),
    "consumer protocol assignment": (
        lambda data: (decode_assignment(data), version_of(data)),
        lambda found: encode_assignment(*found),
        lambda data: {"version": version_of(data), **assignment_json(data)},
    ),
}
_USER_DATA: Final[dict[str, _Format]] = {
    "Streams SubscriptionInfo": (decode_subscription_info, encode_subscription_info, subscription_info_json),
    "Streams AssignmentInfo": (
        decode_assignment_info,
        encode_assignment_info,
        lambda data: assignment_info_json(decode_assignment_info(data)),
    ),
    "sticky user data": (decode_sticky_user_data, encode_sticky_user_data, sticky_json),
    "stream join user data (KIP-315)": (
        decode_stream_join_user_data,
        encode_stream_join_user_data,
        _stream_join_json,
    ),
    "copartitioned user data": (
        decode_copartitioned_user_data,
        encode_copartitioned_user_data,
        _copartitioned_json,
    ),
}
