"""Process ids, task ids and the other names: order, text, equality."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import HostInfo, ProcessId, StateException, TaskId, TaskIdFormatException, TopicPartition
from task_assignor.sdk.ids import java_string_key

uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
numbers = st.one_of(st.integers(0, 20), st.integers(0, 2**31 - 1))
names = st.none() | st.text(min_size=1, max_size=5)
task_ids = st.builds(TaskId, numbers, numbers, names)


@given(uuids, uuids)
def test_process_ids_are_ordered_by_their_signed_halves_as_java_does(first: uuid.UUID, second: uuid.UUID) -> None:
    expected = struct.unpack(">qq", first.bytes) < struct.unpack(">qq", second.bytes)
    assert expected == (ProcessId(first) < ProcessId(second))
    assert (first == second) == (ProcessId(first) == ProcessId(second))


def test_a_uuid_with_its_first_bit_set_comes_first() -> None:
    texts = [
        "00000000-0000-0000-0000-000000000001",
        "80000000-0000-0000-0000-000000000000",
        "00000000-0000-0000-8000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "7fffffff-ffff-ffff-7fff-ffffffffffff",
    ]
    assert [str(process_id) for process_id in sorted(map(ProcessId.parse, texts))] == [
        "80000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "00000000-0000-0000-8000-000000000000",
        "00000000-0000-0000-0000-000000000001",
        "7fffffff-ffff-ffff-7fff-ffffffffffff",
    ]


@given(uuids)
def test_a_process_id_reads_what_it_prints(value: uuid.UUID) -> None:
    process_id = ProcessId(value)
    assert process_id == ProcessId.parse(str(process_id)) == ProcessId.parse(str(process_id).upper())
    assert hash(process_id) == hash(ProcessId(uuid.UUID(int=value.int)))
    assert process_id != value


@pytest.mark.parametrize(
    "text", ["", "x", "1", "{00000000-0000-0000-0000-000000000001}", "0" * 32, "0" * 36, "0" * 8 + "-", None, 3]
)
def test_a_text_that_is_no_uuid_with_dashes_is_no_process_id(text: object) -> None:
    with pytest.raises(StateException, match="must be a UUID such as"):
        ProcessId.parse(text)  # type: ignore[arg-type]


def test_a_process_id_is_made_of_a_uuid_only() -> None:
    with pytest.raises(StateException, match=r"Maybe use ProcessId.parse"):
        ProcessId("00000000-0000-0000-0000-000000000001")  # type: ignore[arg-type]


def test_process_ids_cannot_be_compared_with_other_things() -> None:
    with pytest.raises(TypeError):
        assert ProcessId(uuid.UUID(int=1)) < uuid.UUID(int=2)  # type: ignore[operator]


@given(task_ids)
def test_a_task_id_reads_what_it_prints(task_id: TaskId) -> None:
    assert task_id == TaskId.parse(str(task_id))
    assert hash(task_id) == hash(TaskId.parse(str(task_id)))


@given(task_ids, task_ids)
def test_task_ids_are_ordered_by_topology_subtopology_partition(first: TaskId, second: TaskId) -> None:
    """Unnamed topologies come first, names in the order of Java's strings: by UTF-16 code units."""

    def units(task_id: TaskId) -> list[int]:
        data = (task_id.topology_name or "").encode("utf-16-be", "surrogatepass")
        return list(struct.unpack(f">{len(data) // 2}H", data))

    one = (first.topology_name is not None, units(first), first.subtopology, first.partition)
    two = (second.topology_name is not None, units(second), second.subtopology, second.partition)
    assert (one < two) == (first < second)
    assert (one > two) == (first > second)


def test_names_beyond_the_basic_plane_sort_as_java_sorts_them() -> None:
    """U+FF5E is one unit that is greater than the first unit of U+1F600."""
    assert java_string_key("\U0001f600") < java_string_key("\uff5e")
    assert TaskId(0, 0, "\U0001f600") < TaskId(0, 0, "\uff5e")


def test_named_and_unnamed_topologies_sort_together() -> None:
    texts = ["b__0_0", "1_0", "a__5_1", "0_10", "a__5_0", "0_9", "a_b__0_0"]
    assert [str(task_id) for task_id in sorted(map(TaskId.parse, texts))] == [
        "0_9",
        "0_10",
        "1_0",
        "a__5_0",
        "a__5_1",
        "a_b__0_0",
        "b__0_0",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0_0", TaskId(0, 0)),
        ("12_345", TaskId(12, 345)),
        ("orders__1_2", TaskId(1, 2, "orders")),
        ("a__b__1_2", TaskId(1, 2, "a__b")),
        ("a___1_2", TaskId(1, 2, "a_")),
        ("2147483647_2147483647", TaskId(2**31 - 1, 2**31 - 1)),
    ],
)
def test_texts_of_task_ids(text: str, expected: TaskId) -> None:
    assert expected == TaskId.parse(text)
    assert text == str(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "_",
        "0_",
        "_0",
        "a_0",
        "0_-1",
        "0_0_0",
        "__0_0",
        "0_0 ",
        "0_0\n",
        "٠_٠",
        "0_2147483648",
        None,
        5,
        b"0_0",
    ],
)
def test_texts_that_are_no_task_ids(text: object) -> None:
    with pytest.raises(TaskIdFormatException):
        TaskId.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments", [(-1, 0), (0, -1), (2**31, 0), (0, 2**31), (True, 0), (0, 1.0), ("0", 0), (0, 0, 7)]
)
def test_task_ids_are_made_of_numbers_in_range_and_a_name(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TaskIdFormatException):
        TaskId(*arguments)  # type: ignore[arg-type]


def test_an_empty_topology_name_is_none() -> None:
    assert TaskId(0, 1) == TaskId(0, 1, "")
    assert TaskId(0, 1, "").topology_name is None


def test_the_other_names_print_as_in_kafka() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert str(HostInfo("example", 80)) == "example:80"
    assert TopicPartition("a", 2) < TopicPartition("a", 10) < TopicPartition("b", 0)


@pytest.mark.parametrize("arguments", [(3, 0), ("in", "0"), ("in", -1), ("in", 2**31), ("in", True), ("in", 1.0)])
def test_topic_partitions_are_made_of_a_name_and_a_number_in_range(arguments: tuple[object, ...]) -> None:
    with pytest.raises(StateException, match="of a TopicPartition"):
        TopicPartition(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [(None, 0), ("h", "80"), ("h", -1), ("h", 2**31), ("h", False)])
def test_hosts_are_made_of_a_name_and_a_port(arguments: tuple[object, ...]) -> None:
    with pytest.raises(StateException, match="of a HostInfo"):
        HostInfo(*arguments)  # type: ignore[arg-type]


def test_absurd_numbers_and_texts_are_short_errors() -> None:
    for wrong in ("9" * 5_000 + "_0", "0_" + "1" * 5_000, "x" * 10**6):
        with pytest.raises(TaskIdFormatException) as caught:
            TaskId.parse(wrong)
        assert len(str(caught.value)) < 400
    with pytest.raises(TaskIdFormatException, match="an integer of 16610 bits"):
        TaskId(10**5_000, 0)
