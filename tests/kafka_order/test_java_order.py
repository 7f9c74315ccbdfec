"""The orders of Java's collections, as recorded from OpenJDK 17; `tests/jvm` asks a living one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka_order.java_order import PriorityQueue, hash_map_order, poll_order, process_hash
from task_assignor.sdk import ApplicationStateBuilder, AssignmentConfigs, ProcessId, TaskId
from task_assignor.sdk.java_hash import bucket_count


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], []),
        ([0, 0, 0], [0, 2, 1]),
        ([1, 1, 1, 1, 1, 1, 1], [0, 6, 5, 4, 3, 2, 1]),
        ([2, 1, 2, 1, 2, 1, 2, 1, 1], [1, 8, 3, 7, 5, 4, 0, 2, 6]),
    ],
)
def test_equal_keys_come_as_the_sifting_leaves_them(keys: list[int], expected: list[int]) -> None:
    """Neither first in, first out nor its opposite."""
    assert poll_order(np.array(keys, dtype=np.int64)).tolist() == expected


@given(st.lists(st.integers(0, 9)))
def test_a_queue_gives_up_its_keys_in_order(keys: list[int]) -> None:
    """Every row once, keys ascending."""
    order = poll_order(np.array(keys, dtype=np.int64)).tolist()

    assert sorted(order) == list(range(len(keys)))
    assert [keys[row] for row in order] == sorted(keys)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ("0_0 0_1 0_31 0_62 1_0 1_1 2_5", "0_31 1_0 0_62 2_5 0_1 0_0 1_1"),
        ("a__0_0 a__0_1 b__0_0 b__1_7", "a__0_0 b__0_0 b__1_7 a__0_1"),
    ],
)
def test_task_ids_iterate_by_bucket(ids: str, expected: str) -> None:
    """Tasks with equal hash codes (`0_31` and `1_0`) keep the order of filling."""
    builder = ApplicationStateBuilder(AssignmentConfigs())
    for text in ids.split():
        builder.add_task(TaskId.parse(text), is_stateful=False)
    tasks = builder.build().columns.tasks

    order = hash_map_order(tasks, np.arange(len(tasks)))

    assert [str(tasks.task_id(row)) for row in order.tolist()] == expected.split()


def test_a_map_grows_when_it_is_three_quarters_full() -> None:
    """12 entries fit into 16 buckets, 13 do not."""
    assert [bucket_count(entries) for entries in (0, 12, 13, 24, 25)] == [16, 16, 32, 32, 64]


def test_a_process_hashes_as_its_uuid() -> None:
    """`UUID.hashCode` folds the halves; the map folds once more. Worked out by hand."""
    assert process_hash(ProcessId.parse("00000001-0000-0000-0000-000000000000")) == 1
    assert process_hash(ProcessId.parse("00010000-0000-0000-0000-000000000002")) == 0x10002 ^ 1


@given(st.sets(st.integers(0, 60)), st.data())
def test_a_priority_queue_stays_a_heap_whatever_is_taken_out(items: set[int], data: st.DataObject) -> None:
    queue = PriorityQueue(sorted(items))
    left = set(items)
    for _ in range(data.draw(st.integers(0, len(items)))):
        if data.draw(st.booleans()):
            assert queue.poll() == min(left)
            left.discard(min(left))
        else:
            item = data.draw(st.sampled_from(sorted(left)))
            queue.remove(item)
            left.discard(item)
        array = list(queue)
        assert set(array) == left
        assert all(array[(place - 1) // 2] < item for place, item in enumerate(array) if place)
        assert all(item in queue for item in left)


def test_a_priority_queue_is_iterated_as_its_array_lies() -> None:
    """1 2 3 4 5 6 7 without 2: 7 takes its place, and sinks below 4."""
    queue = PriorityQueue(range(1, 8))
    queue.remove(2)
    assert list(queue) == [1, 4, 3, 7, 5, 6]
