"""Least loaded clients: the quick ways against the obvious one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka_order.least_loaded import LoadHeap, deal_by_load

loads = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 7)), min_size=1, max_size=9)


def _columns(clients: list[tuple[int, int]]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    table = np.array(clients, dtype=np.int64)
    return table[:, 0], table[:, 1]


def _least(counts: list[int], threads: list[int], barred: set[int]) -> int:
    free = [client for client in range(len(counts)) if client not in barred]
    return min(free, key=lambda client: (counts[client] / threads[client], client), default=-1)


@given(loads, st.integers(0, 60))
def test_dealing_is_choosing_the_least_loaded_again_and_again(clients: list[tuple[int, int]], number: int) -> None:
    """`deal_by_load` sorts what a loop would choose one by one."""
    counts, threads = _columns(clients)
    now = counts.tolist()
    expected = []
    for _ in range(number):
        expected.append(_least(now, threads.tolist(), set()))
        now[expected[-1]] += 1

    assert deal_by_load(counts, threads, number).tolist() == expected


@given(loads, st.lists(st.tuples(st.integers(0, 4), st.sets(st.integers(0, 8), max_size=4)), max_size=12))
def test_the_heap_takes_different_clients_lightest_first(
    clients: list[tuple[int, int]], takes: list[tuple[int, set[int]]]
) -> None:
    """In one call no client is taken twice, and nobody who is barred; counts grow by what was taken."""
    counts, threads = _columns(clients)
    heap = LoadHeap(counts, threads)
    now = counts.tolist()
    for number, barred in takes:
        expected: list[int] = []
        for _ in range(number):
            best = _least(now, threads.tolist(), barred | set(expected))
            if best >= 0:
                expected.append(best)
                now[best] += 1

        assert heap.take(number, barred) == expected
    assert heap.counts == now
