"""Kafka's queue of clients by load, as the movements of high availability use it; the movements are in `kafka_order/staging.py`.

Kafka keeps the clients in a `java.util.PriorityQueue` and changes their loads while they sit in it. Afterwards the
queue need not give up the lightest client first, rarely, but Kafka's decisions hang on it: so the queue is sifted here
as there, wherever its inside can make a difference.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import lt
from typing import Any, Final

import attrs
import numpy as np

from task_assignor.kafka_order import java_order
from task_assignor.sdk.ids import ProcessId
from task_assignor.sdk.java_hash import bucket_count

MOST_SIFTED: Final = 3_000_000
"""Clients taken out of the queue one by one (about 1 s per million) before the exact minimum is taken instead.

What goes through the whole queue counts for as many as take that long: filling it half of its clients, looking for a client
in it an eighth.
"""
HOPELESS: Final = 10
"""So many times the budget are not even begun."""
_CLIENT: Final = 2**32 - 1
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")


@attrs.frozen(eq=False)
class AllBut(Collection[int]):
    """Candidates that are nearly everybody.

    Args:
        clients: number of clients.
        but: those that are none.
    """

    _clients: int
    _but: AbstractSet[int]

    def __contains__(self, client: object) -> bool:
        return client not in self._but

    def __iter__(self) -> Iterator[int]:
        return (client for client in range(self._clients) if client not in self._but)

    def __len__(self) -> int:
        return self._clients - len(self._but)


class ClientQueue:
    """All clients by (load, number). Whom `poll` gave must be offered again, with whoever's count was changed.

    As long as no count of a client in the queue changes, a poll gives the exact minimum, and one candidate is found in any
    case: then it is enough to write down what was done. Else the queue is built and sifted for real. A poll that finds nobody empties Kafka's queue and
    fills it again, after which its past no longer matters.

    Args:
        process_ids: C process ids; their hash codes are the order of filling.
        counts: (C,) tasks of each client.
        threads: (C,) threads of each client.
        most_sifted: how much sifting is worth its time.
    """

    def __init__(
        self,
        process_ids: Sequence[ProcessId],
        counts: Sequence[int],
        threads: Sequence[int],
        most_sifted: int = MOST_SIFTED,
    ) -> None:
        self.counts = list(counts)
        self._threads = list(threads)
        self._loads = [count / own for count, own in zip(counts, threads, strict=True)]
        self._hashes = _Hashes(process_ids)
        self._left = most_sifted
        self._is_first_filling = True
        self._log: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._counts_before: dict[int, int] = {}
        self._polled = -1
        self._is_doubtful = False
        self._heap: _Heap | None = None
        self._by_load: _ByLoad | None = None

    @property
    def is_plain(self) -> bool:
        """The budget is spent: loads alone count."""
        return self._left <= 0

    def expect(self, sifted: float) -> None:
        """So many clients will be taken out: if that is far beyond the budget, none of it is spent."""
        if sifted > HOPELESS * self._left:
            self._left = 0

    def poll(self, candidates: Collection[int]) -> int:
        """Take the client of least load among the candidates out of the queue; -1 if there are none."""
        if self._left <= 0:
            return self.lightest(candidates)
        if not candidates:
            self._forget()
            self._is_first_filling = False
            self._is_doubtful = False
            return -1
        if self._heap is None and (len(candidates) == 1 or not self._is_doubtful):
            chosen = self.lightest(candidates)
            self._log.append((_Heap.poll, ((chosen,),)))
            # If the queue is built after all, this is sifted then.
            self._left -= self._is_doubtful * len(self.counts) >> 1
        else:
            if self._heap is None:
                self._heap = self._built()
                self._left -= len(self.counts) >> 1
            chosen, sifted = self._heap.poll(candidates if isinstance(candidates, AllBut) else frozenset(candidates))
            self._left -= sifted
        if self._left <= 0:
            self._forget()
        self._polled = chosen
        return chosen

    def choose(
        self, candidates: Sequence[int], offsets: Sequence[int], grows: Sequence[bool], giver: Sequence[int]
    ) -> list[int]:
        """The lightest of each list of candidates; one by one, where counts make no difference to the order in the queue.

        Args:
            candidates: the lists one after the other, each ascending.
            offsets: where each list begins, and where the last one ends.
            grows: whether the client that is chosen has one more from then on.
            giver: client that has one less from then on; -1: nobody.
        """
        counts, loads, threads, chosen = self.counts, self._loads, self._threads, []
        for start, stop, has_more, gives in zip(offsets, offsets[1:], grows, giver, strict=False):
            client = candidates[start]
            for place in range(start + 1, stop):
                if loads[candidates[place]] < loads[client]:
                    client = candidates[place]
            chosen.append(client)
            if has_more:
                counts[client] += 1
                loads[client] = counts[client] / threads[client]
            if gives >= 0:
                counts[gives] -= 1
                loads[gives] = counts[gives] / threads[gives]
        if self._by_load is not None:
            for client in {*chosen, *giver} - {-1}:
                self._by_load.put(client, loads[client])
        return chosen

    def change(self, client: int, difference: int) -> None:
        """Change a client's count, whether it is in the queue or not."""
        before = self.counts[client]
        self.counts[client] = before + difference
        load = self._loads[client] = self.counts[client] / self._threads[client]
        if self._by_load is not None:
            self._by_load.put(client, load)
        if self._left <= 0:
            return
        if self._heap is not None:
            self._heap.change(client, load)
            self._left -= len(self.counts) >> 3
            return
        self._counts_before.setdefault(client, before)
        self._log.append((_Heap.change, (client, load)))
        if client != self._polled:
            self._is_doubtful = True

    def offer(self, *clients: int) -> None:
        """Put clients into the queue, one by one; those that are in it are taken out first."""
        if self._left <= 0:
            return
        if self._heap is not None:
            self._heap.offer(*clients)
        else:
            self._log.append((_Heap.offer, clients))
        self._polled = -1

    def lightest(self, candidates: Collection[int]) -> int:
        """The candidate of least (load, number), in no queue; -1 if there are none. Candidates are ascending."""
        if not isinstance(candidates, AllBut) or not candidates:
            return min(candidates, key=self._loads.__getitem__, default=-1)
        self._by_load = self._by_load or _ByLoad(self._loads)
        return self._by_load.first_of(candidates)

    def _forget(self) -> None:
        self._heap = None
        self._log.clear()
        self._counts_before.clear()

    def _built(self) -> _Heap:
        """The queue as it is now: filled as it was, then everything done since."""
        loads = self._loads.copy()
        for client, count in self._counts_before.items():
            loads[client] = count / self._threads[client]
        heap = _Heap(loads, self._hashes)
        order: Sequence[int] = range(len(loads))
        if not self._is_first_filling:
            order = self._hashes.order(sorted(order, key=loads.__getitem__))
        heap.fill(order)
        for action, arguments in self._log:
            action(heap, *arguments)
        self._log.clear()
        self._counts_before.clear()
        return heap


class _ByLoad:
    """All clients by (load, number), for the lightest of nearly all. Whose load has changed has an entry more."""

    def __init__(self, loads: Iterable[float]) -> None:
        self._loads = list(loads)
        self._heap = [(load, client) for client, load in enumerate(self._loads)]
        heapq.heapify(self._heap)

    def put(self, client: int, load: float) -> None:
        """The load of a client from now on."""
        self._loads[client] = load
        heapq.heappush(self._heap, (load, client))

    def first_of(self, candidates: Collection[int]) -> int:
        """The lightest candidate; there is one."""
        heap, passed = self._heap, []
        while self._loads[heap[0][1]] != heap[0][0] or heap[0][1] not in candidates:
            load, client = heapq.heappop(heap)
            if self._loads[client] == load:
                passed.append((load, client))
        chosen = heap[0][1]
        for entry in passed:
            heapq.heappush(heap, entry)
        return chosen


class _Hashes:
    """The hash codes of the clients, computed when first asked for."""

    def __init__(self, process_ids: Sequence[ProcessId]) -> None:
        self._process_ids = process_ids
        self._hashes: list[int] = []
        self._buckets: dict[int, list[int]] = {}

    def order(self, clients: Sequence[int]) -> list[int]:
        """The clients in the order in which a `java.util.HashSet` filled with them iterates."""
        mask = bucket_count(len(clients)) - 1
        if mask not in self._buckets:
            self._hashes = self._hashes or [java_order.process_hash(process_id) for process_id in self._process_ids]
            self._buckets[mask] = [one & mask for one in self._hashes]
        return sorted(clients, key=self._buckets[mask].__getitem__)


class _Heap:
    """`java.util.PriorityQueue` of clients, compared by what their loads are at that moment.

    As long as no entry is out of order, Python's `heapq` sifts to the same places as Java does: all entries differ, and
    the way down is the same. Entries are whole numbers that order as (load, number) do, since these are compared most
    quickly.
    """

    def __init__(self, loads: Sequence[float], hashes: _Hashes) -> None:
        self._hashes = hashes
        bits: list[int] = np.array(loads, dtype=np.float64).view(np.int64).tolist()
        self._entries = [own << 32 | client for client, own in enumerate(bits)]
        self._heap: list[int] = []
        self._is_in = [True] * len(loads)
        self._is_in_order = True

    def change(self, client: int, load: float) -> None:
        """The load of a client is another from now on; if it is in, it stays where it is."""
        entry = _entry(load, client)
        if self._is_in[client]:
            self._heap[self._heap.index(self._entries[client])] = entry
            self._is_in_order = False
        self._entries[client] = entry

    def fill(self, clients: Iterable[int]) -> None:
        """Put clients in, one by one, that have just been taken out, or were never in."""
        heap = self._heap
        for entry in map(self._entries.__getitem__, clients):
            heapq.heappush(heap, entry)

    def offer(self, *clients: int) -> None:
        """Put clients in, one by one; those that are in are taken out first."""
        for client in clients:
            if self._is_in[client]:
                java_order.remove(self._heap, self._heap.index(self._entries[client]))
            self._is_in[client] = True
            heapq.heappush(self._heap, self._entries[client])

    def poll(self, candidates: Collection[int]) -> tuple[int, int]:
        """Take clients out until one is a candidate, and put the others in again: that one, and how many were taken out."""
        heap = self._heap
        # The children of the places 0, 1, 2, … are the odd places and the even ones after the first.
        self._is_in_order = self._is_in_order or (all(map(lt, heap, heap[1::2])) and all(map(lt, heap, heap[2::2])))
        rejected, pop = [], heapq.heappop if self._is_in_order else java_order.pop
        while (client := pop(heap) & _CLIENT) not in candidates:
            rejected.append(client)
        self.fill(self._hashes.order(rejected))
        self._is_in[client] = False
        return client, len(rejected) + 1


def _entry(load: float, client: int) -> int:
    """Orders as (load, client) does: the bits of doubles that are not negative order as the doubles do."""
    bits: int = _BITS.unpack(_DOUBLE.pack(load))[0]
    return bits << 32 | client
