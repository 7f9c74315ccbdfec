"""Messages: what they say, and that no bytes are too strange."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.bridge import wire
from task_assignor.bridge.worker import Worker
from task_assignor.sdk import (
    ApplicationState,
    HostInfo,
    KafkaStreamsAssignment,
    Role,
    StreamsException,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)
from tests.bridge.conftest import hello, int32, question, texts
from tests.budget import examples


def read(message: bytes) -> wire.Request:
    request = wire.read_message(message)
    assert isinstance(request, wire.Request)
    return request


def test_a_rack_for_each_client_costs_no_more_than_one_for_all() -> None:
    """Each rack was looked for in the list of all: 5,000 clients on as many hosts took seconds of Kafka's rebalance."""

    def seconds(racks: int) -> float:
        parts = [int32(10_000)]
        for number in range(10_000):
            parts += [wire.text_bytes(f"00000000-0000-0000-0000-{number:012d}"), int32(1)]
            parts += [wire.text_bytes(f"rack-{number % racks}"), texts(), texts(), int32(-1, 0), texts("c")]
        message, began = b"".join(parts), time.process_time()
        assert len(wire._clients(wire._Reader(message)).racks) == racks
        return time.process_time() - began

    # Of a busy machine the best of a few: with the list it is six times as long.
    assert min(seconds(10_000) for _ in range(4)) < 3 * min(seconds(1) for _ in range(4))


def test_a_question_says_all_that_java_knows() -> None:
    request = read(question(timeout_ms=123, java=True, settings={"a": "b"}))
    assert (request.timeout_ms, request.settings) == (123, {"a": "b"})
    state = request.state
    assert state.now_ms == 1_000
    assert state.assignment_configs.rack_aware_traffic_cost is None
    assert state.assignment_configs.rack_aware_non_overlap_cost == 7
    first, second = state.kafka_streams_states(compute_task_lags=True).values()
    assert (first.rack_id, first.client_tags, first.host_info) == ("a", {"zone": "z0"}, None)
    assert second.host_info == HostInfo("host", 80)
    assert dict(first.stateful_tasks_to_lag_sums) == {TaskId(0, number): -2 for number in range(3)}
    assert dict(second.stateful_tasks_to_lag_sums) == {TaskId(0, 0): 100, TaskId(0, 1): 5, TaskId(0, 2): 300}
    assert list(second.previous_standby_tasks) == [TaskId(9, 9)]
    partitions = {each.topic_partition.topic: each.rack_ids for each in state.all_tasks[TaskId(0, 2)].topic_partitions}
    assert partitions == {"in": frozenset("a"), "log": None}
    assert request.java is not None
    of_first, of_second = request.java
    assert [len(of_first.tasks), len(of_second.tasks), of_second.followup_rebalance_deadline_ms] == [3, 1, 5_000]


def test_a_port_that_cannot_be_is_no_reason_to_decide_nothing() -> None:
    """One instance with such an `application.server`, which Kafka takes, and no rebalance of its group had an answer."""
    there, strange = (wire.text_bytes("host") + int32(port) for port in (80, 99_999))
    message = question()
    assert there in message
    clients = read(message.replace(there, strange)).state.kafka_streams_states(compute_task_lags=False)
    assert [client.host_info for client in clients.values()] == [None, HostInfo("host", 99_999)]


def test_the_answer_has_the_tasks_by_role_and_the_measures() -> None:
    request = read(question(java=True))
    assert request.java is not None
    message = wire.answer(request.state, request.java, {"moved": (1, 2.5)})
    numbers = struct.unpack(">Bi4i2q4ii", message[: 1 + 4 + 16 + 16 + 16 + 4])
    assert numbers[:2] == (wire.ANSWER, 2)
    assert numbers[2:6] == (3, 0, 0, 1)  # active tasks of the clients, then standbys
    assert numbers[6:8] == (-(2**63), 5_000)
    assert numbers[8:12] == (0, 1, 2, 1)
    assert numbers[12] == 1
    assert message.endswith(wire.text_bytes("moved") + struct.pack(">dd", 1, 2.5))


def test_an_answer_that_is_not_valid_is_not_sent() -> None:
    state = read(question()).state
    clients = state.kafka_streams_states(compute_task_lags=False)
    with pytest.raises(wire.WireException, match="active on no client"):
        wire.answer(state, TaskAssignment(KafkaStreamsAssignment.of(client) for client in clients))


def test_a_message_that_is_cut_short_or_too_long_is_refused(any_question: bytes) -> None:
    for length in range(len(any_question)):
        with pytest.raises(StreamsException):
            wire.read_message(any_question[:length])
    with pytest.raises(wire.WireException, match="too many"):
        wire.read_message(any_question + b"\x00")


@pytest.mark.parametrize(
    ("there", "strange", "said"),
    [
        (int32(1, 1, 3) + b"9_9", int32(1, 2**31 - 1, 3) + b"9_9", "2147483647 is not a valid Role"),
        (texts("a") + texts("b"), texts("a") + texts("b", "c"), "argument 2 is longer"),
    ],
)
def test_a_question_that_cannot_be_read_is_not_blamed_on_the_assignor(there: bytes, strange: bytes, said: str) -> None:
    message = question(settings={"a": "b"})
    assert there in message
    with pytest.raises(wire.WireException, match=f"The question cannot be read: .*{said}"):
        wire.read_message(message.replace(there, strange))


@settings(max_examples=examples(150))
@given(st.data())
def test_no_bytes_are_too_strange(data: st.DataObject) -> None:
    """Whatever comes, there is an answer, and never an exception."""
    message = bytearray(question(java=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    worker = Worker()
    worker.answer(hello())
    assert worker.answer(bytes(message))[0] in (wire.ANSWER, wire.ERROR, wire.WELCOME)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(message: bytes) -> None:
    assert Worker().answer(message)[0] in (wire.ERROR, wire.WELCOME)


def test_a_reason_that_is_no_text_of_unicode_arrives_all_the_same() -> None:
    """Of a file whose name is no text, for example: the process died of it, and nobody learned the reason."""
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert wire.error_text(wire.error(f"no file {name}")) == "no file caf\\udce9"


def test_roles_are_numbered_as_on_the_wire() -> None:
    assert [role.value for role in Role] == [0, 1]


class AsksForLags(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        for client in application_state.kafka_streams_states(compute_task_lags=False).values():
            client.lag_for(min(application_state.all_tasks))
        return TaskAssignment([])


def test_what_an_assignor_gets_wrong_is_said_with_its_name_and_line() -> None:
    """What the package says of it was all that there was in Java's log."""
    worker = Worker()
    worker.answer(hello(f"{__name__}.AsksForLags"))
    told = wire.error_text(worker.answer(question()))
    assert told.startswith("The assignor AsksForLags failed with LagsNotComputedError: Lags were not asked for.")
    assert f" ({__name__}.AsksForLags.assign, line " in told
