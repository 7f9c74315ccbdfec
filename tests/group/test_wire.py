"""The wire formats: the JVM's bytes, round trips, and what untrusted bytes may not do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.wire_json import answer_wire
from task_assignor.group.wire import (
    AssignmentInfo,
    CopartitionedUserData,
    StickyUserData,
    StreamJoinUserData,
    SubscriptionInfo,
    WireFormatException,
    decode_assignment,
    decode_assignment_info,
    decode_copartitioned_user_data,
    decode_sticky_user_data,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_copartitioned_user_data,
    encode_sticky_user_data,
    encode_stream_join_epoch,
    encode_stream_join_user_data,
    encode_subscription,
    encode_subscription_info,
)
from task_assignor.sdk import Assignment, HostInfo, ProcessId, Subscription, TaskId, TopicPartition
from tests.budget import examples
from tests.group.fuzz_wire import DECODERS, check_input, check_memory, corpus, run_batch
from tests.vectors import lines_of

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.integers(0, 2**31 - 1)
# Whatever Java's strings and UTF-8 have in common.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARTITIONS = st.builds(TopicPartition, TEXTS, NUMBERS)
SOMEBODY = ProcessId(uuid.UUID(int=1))
DATA = st.none() | st.binary(max_size=20)
FILES = ("sticky_userdata", "consumer_protocol", "subscription_info", "assignment_info")


@pytest.mark.parametrize("vector", [v for name in FILES for v in lines_of(f"wire/{name}")], ids=lambda v: v["id"])
def test_what_the_jvm_writes_and_reads(vector: dict[str, Any]) -> None:
    request, expected = vector["request"], vector["response"]
    found = answer_wire(JsonValue(request))
    if "error" in expected:
        assert "error" in found
    elif vector.get("exact_bytes", True):
        assert found == expected
    elif "decoded" in expected:
        assert found["decoded"] == expected["decoded"]
        assert answer_wire(JsonValue({**request, "action": "decode", "hex": expected["hex"]})) == {
            "decoded": expected["decoded"]
        }
    else:
        assert len(found["hex"]) == len(expected["hex"])
        assert decoded_sorted(request, found["hex"]) == decoded_sorted(request, expected["hex"])


def decoded_sorted(request: dict[str, Any], digits: str) -> dict[str, Any]:
    told = answer_wire(JsonValue({**request, "action": "decode", "hex": digits}))
    return {name: sorted(map(json.dumps, value)) if isinstance(value, list) else value for name, value in told.items()}


@pytest.mark.parametrize("entry", lines_of("kip315/cases.jsonl")[-5]["bytes"], ids=str)
def test_kip_315_bytes(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    if entry["what"] == "assignment":
        assert decode_stream_join_epoch(data) == entry["epoch"]
        assert not data or encode_stream_join_epoch(entry["epoch"]) == data
    else:
        value = StreamJoinUserData(tuple(entry["partitions"] or ()), entry["epoch"] or 0)
        assert decode_stream_join_user_data(data) == value
        assert not data or encode_stream_join_user_data(value) == data


@given(st.builds(Subscription, st.lists(TEXTS), DATA, st.lists(PARTITIONS), INT32, st.none() | TEXTS))
def test_a_subscription_comes_back_sorted(value: Subscription) -> None:
    back = decode_subscription(encode_subscription(value))
    assert sorted(back.topics) == sorted(value.topics)
    assert sorted(back.owned_partitions) == sorted(value.owned_partitions)
    assert back == decode_subscription(encode_subscription(back))
    assert (back.user_data, back.generation_id, back.rack_id) == (
        value.user_data,
        value.generation_id,
        value.rack_id or None,
    )


@given(st.builds(Assignment, st.lists(PARTITIONS), DATA), st.integers(0, 5))
def test_an_assignment_comes_back_grouped_by_topic(value: Assignment, version: int) -> None:
    back = decode_assignment(encode_assignment(value, version))
    assert sorted(back.partitions) == sorted(value.partitions)
    assert back.user_data == value.user_data
    topics = list(dict.fromkeys(found.topic for found in value.partitions))
    assert [found.topic for found in back.partitions] == sorted(
        (found.topic for found in back.partitions), key=topics.index
    )


@st.composite
def task_ids(draw: st.DrawFn, version: int) -> TaskId:
    name = draw(st.none() | TEXTS.filter(lambda text: bool(text) and "__" not in text)) if version >= 10 else None
    return TaskId(draw(NUMBERS), draw(NUMBERS), name)


@st.composite
def subscription_infos(draw: st.DrawFn) -> SubscriptionInfo:
    version = draw(st.integers(1, 11))
    sums = st.sampled_from([-2, -3]) if version < 7 else INT64
    return SubscriptionInfo(
        ProcessId(draw(st.uuids(allow_nil=True))),
        draw(st.dictionaries(task_ids(version), sums, max_size=6)),
        draw(st.none() | TEXTS.filter(bool)) if version >= 2 else None,
        draw(st.integers(-128, 127)) if version >= 8 else 0,
        draw(INT32) if version >= 9 else 0,
        draw(st.dictionaries(TEXTS, TEXTS, max_size=3)) if version >= 11 else {},
        version,
        draw(st.integers(version, 2**31 - 1)) if version >= 3 else -1,
    )


@given(subscription_infos())
def test_a_subscription_info_comes_back(value: SubscriptionInfo) -> None:
    assert decode_subscription_info(encode_subscription_info(value)) == value


@st.composite
def assignment_infos(draw: st.DrawFn) -> AssignmentInfo:
    version = draw(st.integers(1, 11))
    partitions = st.lists(PARTITIONS, max_size=4).map(tuple)
    hosts = st.dictionaries(st.builds(HostInfo, TEXTS, st.integers(0, 65535)), partitions, max_size=3)
    return AssignmentInfo(
        tuple(draw(st.lists(task_ids(version), max_size=5))),
        draw(st.dictionaries(task_ids(version), partitions, max_size=4)),
        draw(hosts) if version >= 2 else {},
        draw(hosts) if version >= 6 else {},
        draw(INT32) if version >= 4 else 0,
        draw(INT64) if version >= 7 else 2**63 - 1,
        version,
        draw(INT32) if version >= 3 else -1,
    )


@given(assignment_infos())
def test_an_assignment_info_comes_back(value: AssignmentInfo) -> None:
    assert decode_assignment_info(encode_assignment_info(value)) == value


OWNED = st.dictionaries(TEXTS, st.lists(INT32, max_size=4).map(tuple), max_size=4)


@given(OWNED, INT32)
def test_sticky_user_data_comes_back(owned: dict[str, tuple[int, ...]], generation: int) -> None:
    value = StickyUserData(owned, generation)
    assert decode_sticky_user_data(encode_sticky_user_data(value)) == value
    old = StickyUserData(owned)
    assert decode_sticky_user_data(encode_sticky_user_data(old)) == old


@given(OWNED, OWNED, INT32)
def test_copartitioned_user_data_comes_back(
    active: dict[str, tuple[int, ...]], standby: dict[str, tuple[int, ...]], generation: int
) -> None:
    value = CopartitionedUserData(active, standby, generation)
    assert decode_copartitioned_user_data(encode_copartitioned_user_data(value)) == value


@pytest.mark.parametrize("text", ["a\0b", "é", "主題", "𝄞", "x" * 65535])
def test_java_texts_are_in_modified_utf_8(text: str) -> None:
    info = AssignmentInfo(standby_tasks={TaskId(0, 0): (TopicPartition(text, 0),)})
    data = encode_assignment_info(info)
    assert decode_assignment_info(data) == info
    assert b"\0b" not in data
    if text == "𝄞":
        # Two units of UTF-16 with three bytes each.
        assert b"\x00\x06\xed\xa0\xb4\xed\xb4\x9e" in data


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: encode_subscription(Subscription(("x" * 2**15,))),
            r"'xxx.*' is too long for UTF-8, .*: 32768 .* int16",
        ),
        (lambda: encode_subscription(Subscription(generation_id=2**31)), "int32"),
        (lambda: encode_subscription(Subscription(), -1), "-1"),
        *(
            (make, r"The version of an? \w+ \(.*\) must be")
            for wrong in (None, "3", True)
            for make in (
                lambda wrong=wrong: encode_subscription(Subscription(), wrong),
                lambda wrong=wrong: encode_assignment(Assignment(()), wrong),
                lambda wrong=wrong: encode_assignment_info(AssignmentInfo(version=wrong)),
                lambda wrong=wrong: encode_subscription_info(SubscriptionInfo(SOMEBODY, version=wrong)),
                lambda wrong=wrong: encode_subscription_info(
                    SubscriptionInfo(SOMEBODY, latest_supported_version=wrong)
                ),
            )
        ),
        (lambda: encode_sticky_user_data(StickyUserData({"t": [2**31]})), "int32"),
        (lambda: encode_stream_join_user_data(StreamJoinUserData((1,), 2**31)), "int32"),
        (lambda: encode_assignment_info(AssignmentInfo(version=12)), "12"),
        (lambda: encode_assignment_info(AssignmentInfo((TaskId(0, 0, "named"),), version=9)), "named"),
        (
            lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, {TaskId(0, 0, "named"): 1}, version=9)),
            "named",
        ),
        (lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, version=12)), "12"),
        (lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, unique_field=200)), "200"),
        (lambda: encode_subscription(Subscription(("\ud800",))), "cannot be encoded"),
    ],
)
def test_what_does_not_fit_is_named(make: Any, told: str) -> None:
    with pytest.raises(WireFormatException, match=told):
        make()


@pytest.mark.parametrize("decode", [decode for decode, _ in DECODERS.values()])
@pytest.mark.parametrize("wrong", ["00000000", 7])
def test_what_is_no_bytes_is_refused_by_decoders(decode: Any, wrong: Any) -> None:
    """They were errors of Python: of a slice, or of the module struct."""
    with pytest.raises(WireFormatException, match=r"The value \(.*\) must be bytes"):
        decode(wrong)


def test_version_probing_reads_the_versions_alone() -> None:
    found = decode_subscription_info(bytes.fromhex("0000000c0000000e") + b"whatever comes later")
    assert (found.version, found.latest_supported_version) == (12, 14)


CORPUS = [message for _, message in corpus()]


@settings(max_examples=examples(80))
@given(st.binary(max_size=200))
def test_untrusted_bytes_give_a_value_or_the_one_error(data: bytes) -> None:
    check_input(data)


@settings(max_examples=examples(80))
@given(st.data())
def test_damaged_messages_give_a_value_or_the_one_error(data: st.DataObject) -> None:
    message = bytearray(data.draw(st.sampled_from(CORPUS)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(message)))
        size = data.draw(st.integers(0, 6))
        message[place : place + size] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\1"])
        )
    check_input(bytes(message))


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00", b"\x00\x00\x7f\xff"])
def test_no_count_makes_a_decoder_allocate_more_than_its_input_justifies(count: bytes) -> None:
    # Each place of a message holds a huge count once.
    for message in CORPUS[:: len(CORPUS) // 25]:
        for place in range(min(len(message), 120)):
            check_memory(message[:place] + count + message[place + 4 :])


def test_damaged_messages_do_no_harm_and_cost_no_more_than_their_size() -> None:
    # `make fuzz` gives the decoders ten million of them.
    found = run_batch(seed=1_000_000, inputs=5_000)
    assert found.keys() == {"inputs", *DECODERS}
    assert min(found.values()) > 10, "damaged, but not beyond what a decoder reads"


def test_the_fuzzer_notices_what_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def believes(data: bytes) -> bytes:
        return data + bytes(min(int.from_bytes(data[:4], "big"), 1 << 24))[:0]

    def lingers(data: bytes) -> bytes:
        return data + bytes(sum(range(1_000_000)) % 1)

    def crashes(data: bytes) -> bytes:
        return data + bytes(data[0] % 1)

    for decoder, complaint in ((believes, r"took \d{5,} bytes for \d+"), (lingers, " s for "), (crashes, "IndexError")):
        # Where time is not the trouble, a machine that pauses must not be.
        monkeypatch.setattr("tests.group.fuzz_wire.SECONDS_AT_LEAST", 0.002 if decoder is lingers else 600)
        monkeypatch.setattr("tests.group.fuzz_wire.DECODERS", {"broken": (decoder, bytes)})
        with pytest.raises(AssertionError, match=rf"({complaint}).*, for the bytes [0-9a-f]*$"):
            run_batch(seed=0, inputs=2_000)


def test_a_topic_that_comes_a_hundred_thousand_times_takes_no_longer_than_so_many_topics() -> None:
    # Quadratic copying would take minutes.
    groups = b"\0\1t\0\0\0\1\0\0\0\7" * 100_000
    found = decode_sticky_user_data(len(groups[::11]).to_bytes(4, "big") + groups + b"\0\0\0\5")
    assert found == StickyUserData({"t": (7,) * 100_000}, 5)


def test_values_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SubscriptionInfo(SOMEBODY).version = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: encode_sticky_user_data({"t": [0]}), r"must be a StickyUserData\.$"),  # type: ignore[arg-type]
        (
            lambda: encode_sticky_user_data(StickyUserData(["t"])),  # type: ignore[arg-type]
            r"owned of a StickyUserData \(\['t'\]\) must be a mapping",
        ),
        (lambda: encode_sticky_user_data(StickyUserData({b"t": [0]})), "a mapping whose keys are str"),  # type: ignore[dict-item]
        (lambda: encode_sticky_user_data(StickyUserData({"t": "01"})), r"'01' must be a list of int32\.$"),  # type: ignore[dict-item]
        (lambda: encode_sticky_user_data(StickyUserData({"t": (n for n in [1])})), "must be a list of int32"),  # type: ignore[dict-item]
        # Bytes were taken for their numbers.
        (lambda: encode_stream_join_user_data(StreamJoinUserData(b"x")), r"b'x' must be a list of int32"),  # type: ignore[arg-type]
        (lambda: encode_stream_join_user_data(StreamJoinUserData((1,), [1])), r"\[1\] does not fit into an int32"),  # type: ignore[arg-type]
        (lambda: encode_copartitioned_user_data(CopartitionedUserData(["t"])), "active of a CopartitionedUserData"),  # type: ignore[arg-type]
        (lambda: encode_subscription(["t"]), r"The subscription \(\['t'\]\) must be a Subscription"),  # type: ignore[arg-type]
        (lambda: encode_assignment(Subscription()), "must be an? Assignment"),  # type: ignore[arg-type]
        (lambda: encode_subscription_info(SubscriptionInfo("x")), r"process_id .* must be a ProcessId"),  # type: ignore[arg-type]
        (
            lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, ["0_0"])),  # type: ignore[arg-type]
            "must be a mapping whose keys are TaskId",
        ),
        (
            lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, {"0_0": 1})),  # type: ignore[dict-item]
            "must be a mapping whose keys are TaskId",
        ),
        (
            lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, client_tags="a=b")),  # type: ignore[arg-type]
            "client_tags of a SubscriptionInfo",
        ),
        (
            lambda: encode_subscription_info(SubscriptionInfo(SOMEBODY, version=None)),  # type: ignore[arg-type]
            r"version of a SubscriptionInfo \(None\)",
        ),
        (
            lambda: encode_assignment_info(AssignmentInfo(["0_0"])),  # type: ignore[arg-type]
            "active_tasks of an AssignmentInfo .* a list of TaskId",
        ),
        (
            lambda: encode_assignment_info(AssignmentInfo((), {TaskId(0, 0): ["t"]})),  # type: ignore[dict-item]
            "standby_tasks .* a list of TopicPartition",
        ),
        (lambda: encode_assignment_info(AssignmentInfo(partitions_by_host=["h:1"])), "mapping whose keys are HostInfo"),  # type: ignore[arg-type]
        (lambda: decode_stream_join_epoch([]), r"The value \(\[\]\) must be bytes"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_written_is_named(write: Callable[[], object], said: str) -> None:
    with pytest.raises(WireFormatException, match=said):
        write()
