"""Kafka's queue of clients: writing down and replaying gives what sifting all the time gives."""

from __future__ import annotations

import random

from task_assignor.sdk import ProcessId
from task_assignor.utils import _client_queue
from task_assignor.utils._client_queue import ClientQueue
from task_assignor.utils._java_queue import process_hash
from tests.budget import examples


class _AlwaysSifted:
    """The queue as Kafka has it, nothing left out."""

    def __init__(self, process_ids: list[ProcessId], counts: list[int], threads: list[int]) -> None:
        self.counts = list(counts)
        self._threads = threads
        loads = [count / own for count, own in zip(counts, threads, strict=True)]
        self._heap = _client_queue._Heap(loads, [process_hash(process_id) for process_id in process_ids])
        for client in range(len(counts)):
            self._heap.offer(client)

    def poll(self, candidates: list[int]) -> int:
        if candidates:
            return self._heap.poll(frozenset(candidates))
        rejected = []
        while self._heap._heap:
            first = self._heap._heap[0]
            rejected.append(self._heap.poll(frozenset((first,))))
        for client in self._heap.hash_order(rejected):
            self._heap.offer(client)
        return -1

    def change(self, client: int, difference: int) -> None:
        self.counts[client] += difference
        self._heap.loads[client] = self.counts[client] / self._threads[client]

    def offer(self, *clients: int) -> None:
        for client in clients:
            self._heap.offer(client)


def _movement(
    rng: random.Random, queue: ClientQueue | _AlwaysSifted, candidates: list[int], wanted: int, warm_up: bool
) -> int:
    placed = queue.poll(candidates)
    if placed < 0:
        placed = rng.randrange(len(queue.counts))
    queue.change(placed, 1)
    if not warm_up and placed != wanted and queue.counts[wanted]:
        queue.change(wanted, -1)
    queue.offer(placed, wanted)
    return placed


def test_replaying_gives_what_sifting_all_the_time_gives() -> None:
    """Random movements: also when the queue no longer gives the exact minimum, which happens."""
    surprises = 0
    for seed in range(examples(1_000)):
        rng = random.Random(seed)
        clients = rng.randint(2, 14)
        process_ids = sorted(
            ProcessId.parse(f"{rng.getrandbits(32):08x}-0000-0000-0000-{number:012x}") for number in range(clients)
        )
        counts = [rng.randint(0, 6) for _ in range(clients)]
        threads = [rng.choice([1, 1, 2]) for _ in range(clients)]
        quick = ClientQueue(process_ids, counts, threads)
        exact = ClientQueue(process_ids, counts, threads, most_sifted=0)
        slow = _AlwaysSifted(process_ids, counts, threads)
        for number in range(30):
            candidates = [client for client in range(clients) if rng.random() < 0.5] if rng.random() < 0.8 else []
            wanted, warm_up, move = rng.randrange(clients), rng.random() < 0.3, rng.random()
            placed = [_movement(random.Random(move), queue, candidates, wanted, warm_up) for queue in (quick, slow)]
            if quick.counts == exact.counts:
                surprises += _movement(random.Random(move), exact, candidates, wanted, warm_up) != placed[0]

            assert placed[0] == placed[1], (seed, number)
            assert quick.counts == slow.counts
    assert surprises > 0


def test_beyond_its_budget_the_queue_gives_the_exact_minimum() -> None:
    """Sifting stops after so many clients; then the lightest candidate is taken."""
    process_ids = [ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}") for number in range(6)]
    queue = ClientQueue(process_ids, [3, 1, 4, 1, 5, 9], [1] * 6, most_sifted=3)
    for _ in range(20):
        assert queue.poll(range(6)) == min(range(6), key=lambda client: (queue.counts[client], client))
        lightest = min(range(6), key=lambda client: (queue.counts[client], client))
        queue.change(lightest, 1)
        queue.change(5, -1 if queue.counts[5] else 0)
        queue.offer(lightest, 5)
