"""The orders in which Java's collections give things back, where Kafka's decisions hang on them; nothing else.

`java.util.PriorityQueue` and Python's `heapq` agree on the order of unequal keys only: among equal ones each gives back
first what its own way of sifting left on top. `java.util.HashMap` iterates by bucket.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int32Array, Int64Array, TaskColumns
from task_assignor.sdk.ids import ProcessId
from task_assignor.sdk.java_hash import bucket_count, string_hash


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=_Ordered)


def poll_order(keys: Int64Array) -> Int64Array:
    """Row numbers in the order in which a `java.util.PriorityQueue` gives them up after they were added one by one.

    Args:
        keys: (N,) sort keys, in the order of adding.

    Returns:
        (N,) row numbers.
    """
    order = order_by(keys)
    ascending = keys[order]
    if not len(keys) or (ascending[1:] != ascending[:-1]).all():
        return order
    heap: list[_Row] = []
    for row, key in enumerate(keys.tolist()):
        entry = _Row(key)
        entry.row = row
        # On the way up both sift alike.
        heapq.heappush(heap, entry)
    return np.array([pop(heap).row for _ in range(len(heap))], dtype=np.int64)


class _Row(int):
    """A row, compared by its key alone."""

    row: int


def pop(heap: list[T]) -> T:
    """Take the first entry out."""
    first = heap[0]
    remove(heap, 0)
    return first


def remove(heap: list[T], place: int) -> None:
    """Take out the entry at the place: the last one takes its place, and sinks, or else rises."""
    last = heap.pop()
    if place < len(heap):
        sift_down(heap, place, last)
        if heap[place] is last:
            sift_up(heap, place, last)


def sift_up(heap: list[T], place: int, entry: T) -> None:
    """Put the entry in at the place, or further up: it stops below a parent that is not greater."""
    while place:
        parent = heap[(place - 1) >> 1]
        if not entry < parent:
            break
        heap[place] = parent
        place = (place - 1) >> 1
    heap[place] = entry


def sift_down(heap: list[T], place: int, entry: T) -> None:
    """Put the entry in at the place, or further down: it stops above the smaller child (of two equal ones the left) if that is not smaller."""
    size = len(heap)
    while place < size >> 1:
        at = 2 * place + 1
        child = heap[at]
        if at + 1 < size and heap[at + 1] < child:
            at += 1
            child = heap[at]
        if not child < entry:
            break
        heap[place] = child
        place = at
    heap[place] = entry


class PriorityQueue(list[T]):
    """`java.util.PriorityQueue` of distinct items, which knows where they are: the list is its array, in the order of iterating.

    Args:
        items: the items, ascending.
    """

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(items)
        self._places = {item: place for place, item in enumerate(self)}

    def __setitem__(self, place: Any, item: Any) -> None:
        super().__setitem__(place, item)
        self._places[item] = place

    def __contains__(self, item: object) -> bool:
        return item in self._places

    def poll(self) -> T:
        """Take out the least item."""
        first = self[0]
        self.remove(first)
        return first

    def remove(self, item: T) -> None:
        """Take out an item; the last of the array takes its place, and sinks, or else rises."""
        remove(self, self._places.pop(item))


def hash_map_order(tasks: TaskColumns, keys: Int32Array | Int64Array) -> Int64Array:
    """Rows of `keys` in the order in which a `java.util.HashMap` iterates over these task ids.

    The map was filled in the order of `keys`; removing entries later does not change the order of the rest. Buckets of
    nine and more entries, which Java turns into trees, keep the order of filling here (see docs/deviations.md).

    Args:
        tasks: the tasks of the state.
        keys: (N,) task numbers, distinct.

    Returns:
        (N,) row numbers of `keys`.
    """
    names = np.array([0, *map(string_hash, tasks.topology_names)], dtype=np.uint64)
    keys = np.asarray(keys, dtype=np.int64)
    hashed = np.uint64(31) + tasks.subtopology[keys].astype(np.uint64)
    hashed = np.uint64(31) * hashed + tasks.partition[keys].astype(np.uint64)
    hashed = (np.uint64(31) * hashed + names[tasks.topology[keys] + 1]) & np.uint64(0xFFFFFFFF)
    bucket = (hashed ^ (hashed >> np.uint64(16))) & np.uint64(bucket_count(len(keys)) - 1)
    return order_by(bucket)


def process_hash(process_id: ProcessId) -> int:
    """What a `java.util.HashMap` makes of the hash code of a process id (a UUID); its last bits are the bucket."""
    halves = (process_id.id.int >> 64) ^ (process_id.id.int & 0xFFFFFFFFFFFFFFFF)
    hashed = (halves >> 32) ^ (halves & 0xFFFFFFFF)
    return hashed ^ (hashed >> 16)
