"""The `least_loaded` primitive: the exact minimum by (load, client number); who may be chosen is the caller's business.

A load is the double `count / threads`, as in Kafka, so that equal loads of unequal clients tie exactly where they tie
there. Clients are numbered in `ProcessId` order: the smaller process id wins a tie.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

import numpy as np

from task_assignor.sdk.columns import Int32Array, Int64Array


class LoadHeap:
    """All clients by load. Choosing one adds one to its count.

    Args:
        counts: (C,) what each client has at the beginning.
        threads: (C,) threads of each client.
    """

    __slots__ = ("_heap", "counts", "threads")

    def __init__(self, counts: Int64Array, threads: Int64Array) -> None:
        self.counts: list[int] = counts.tolist()
        self.threads: list[int] = threads.tolist()
        self._heap = [
            (count / own, client) for client, (count, own) in enumerate(zip(self.counts, self.threads, strict=True))
        ]
        heapq.heapify(self._heap)

    def take(self, count: int, barred: Collection[int]) -> list[int]:
        """Choose up to `count` different clients that are not barred, lightest first; each gets one more.

        Costs O((count + barred) log C).

        Args:
            count: how many clients.
            barred: clients that must not be chosen.

        Returns:
            Client numbers in the order chosen; fewer than `count` if there are no more.
        """
        heap, counts = self._heap, self.counts
        chosen: list[int] = []
        passed: list[tuple[float, int]] = []
        while heap and len(chosen) < count:
            client = heap[0][1]
            if client in barred:
                passed.append(heapq.heappop(heap))
                continue
            counts[client] += 1
            heapq.heapreplace(heap, (counts[client] / self.threads[client], client))
            chosen.append(client)
            if len(chosen) < count:
                # Chosen once, it may not be chosen again in this call.
                barred = (*barred, client)
        for entry in passed:
            heapq.heappush(heap, entry)
        return chosen


def deal_by_load(counts: Int64Array, threads: Int64Array, count: int) -> Int32Array:
    """The clients chosen if `count` times the least loaded one gets one more.

    Equal to `LoadHeap.take(1, ())` in a loop, without the loop: a client is chosen for the k-th time at load
    (count + k) / threads, so the answer is the sorted merge of these series.

    Args:
        counts: (C,) what each client has at the beginning.
        threads: (C,) threads of each client.
        count: how often to choose.

    Returns:
        (count,) client numbers in the order chosen.
    """
    if not count:
        return np.zeros(0, dtype=np.int32)
    # The load that all who are chosen would have in the end if tasks could be split: of the lightest clients so many are
    # chosen that it is least. One more of each, so that rounding cannot leave out an entry that should be in.
    lightest = np.argsort(counts / threads)
    level = ((count + np.cumsum(counts[lightest])) / np.cumsum(threads[lightest])).min()
    entries = np.clip(np.floor(level * threads).astype(np.int64) - counts + 2, 0, count)
    client = np.repeat(np.arange(len(counts)), entries)
    turn = np.arange(len(client)) - np.repeat(np.cumsum(entries) - entries, entries)
    order = np.lexsort((client, (counts[client] + turn) / threads[client]))
    return client[order[:count]].astype(np.int32)
