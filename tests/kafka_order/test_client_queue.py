"""Kafka's queue of clients: writing down and replaying gives what sifting all the time gives."""

from __future__ import annotations

import random

from task_assignor.kafka_order.client_queue import AllBut, ClientQueue
from task_assignor.kafka_order.java_order import process_hash
from task_assignor.sdk import ProcessId
from task_assignor.sdk.java_hash import bucket_count
from tests.budget import examples


class _AlwaysSifted:
    """The queue as Kafka has it, nothing left out, each step as in `java.util.PriorityQueue`."""

    def __init__(self, process_ids: list[ProcessId], counts: list[int], threads: list[int]) -> None:
        self.counts = list(counts)
        self._threads = threads
        self._hashes = [process_hash(process_id) for process_id in process_ids]
        self._heap: list[int] = []
        for client in range(len(counts)):
            self._offer(client)

    def _key(self, client: int) -> tuple[float, int]:
        return self.counts[client] / self._threads[client], client

    def _up(self, place: int) -> None:
        heap = self._heap
        while place and self._key(heap[place]) < self._key(heap[(place - 1) // 2]):
            heap[place], heap[(place - 1) // 2] = heap[(place - 1) // 2], heap[place]
            place = (place - 1) // 2

    def _down(self, place: int) -> None:
        heap = self._heap
        while 2 * place + 1 < len(heap):
            child = min(range(2 * place + 1, min(2 * place + 3, len(heap))), key=lambda at: self._key(heap[at]))
            if self._key(heap[place]) <= self._key(heap[child]):
                return
            heap[place], heap[child] = heap[child], heap[place]
            place = child

    def _pop(self, place: int) -> int:
        heap = self._heap
        client, last = heap[place], heap.pop()
        if place < len(heap):
            heap[place] = last
            self._down(place)
            if heap[place] == last:
                self._up(place)
        return client

    def _offer(self, client: int) -> None:
        if client in self._heap:
            self._pop(self._heap.index(client))
        self._heap.append(client)
        self._up(len(self._heap) - 1)

    def poll(self, candidates: list[int]) -> int:
        rejected: list[int] = []
        chosen = -1
        while self._heap and chosen < 0:
            client = self._pop(0)
            if client in candidates:
                chosen = client
            else:
                rejected.append(client)
        mask = bucket_count(len(rejected)) - 1
        for client in sorted(rejected, key=lambda client: self._hashes[client] & mask):
            self._offer(client)
        return chosen

    def change(self, client: int, difference: int) -> None:
        self.counts[client] += difference

    def offer(self, *clients: int) -> None:
        for client in clients:
            self._offer(client)


def _movement(
    rng: random.Random,
    queue: ClientQueue | _AlwaysSifted,
    candidates: list[int],
    wanted: int,
    warm_up: bool,
    as_all_but: bool = False,
) -> int:
    clients = len(queue.counts)
    if as_all_but and isinstance(queue, ClientQueue):
        placed = queue.poll(AllBut(clients, set(range(clients)).difference(candidates)))
    else:
        placed = queue.poll(candidates)
    if placed < 0:
        placed = rng.randrange(len(queue.counts))
    queue.change(placed, 1)
    if not warm_up and placed != wanted and queue.counts[wanted]:
        queue.change(wanted, -1)
    queue.offer(placed, wanted)
    return placed


def _clients(rng: random.Random) -> tuple[int, list[int], list[int], list[ProcessId]]:
    """How many, and the tasks, threads and ids of each."""
    clients = rng.randint(2, 14)
    process_ids = sorted(
        ProcessId.parse(f"{rng.getrandbits(32):08x}-0000-0000-0000-{number:012x}") for number in range(clients)
    )
    counts = [rng.randint(0, 6) for _ in range(clients)]
    return clients, counts, [rng.choice([1, 1, 2]) for _ in range(clients)], process_ids


def test_replaying_gives_what_sifting_all_the_time_gives() -> None:
    """Random movements: also when the queue no longer gives the exact minimum, which happens."""
    surprises = 0
    for seed in range(examples(1_000)):
        rng = random.Random(seed)
        clients, counts, threads, process_ids = _clients(rng)
        quick = ClientQueue(process_ids, counts, threads)
        exact = ClientQueue(process_ids, counts, threads, most_sifted=0)
        slow = _AlwaysSifted(process_ids, counts, threads)
        for number in range(30):
            candidates = [client for client in range(clients) if rng.random() < 0.5] if rng.random() < 0.8 else []
            wanted, warm_up, move = rng.randrange(clients), rng.random() < 0.3, rng.random()
            how = wanted, warm_up, rng.random() < 0.5
            placed = [_movement(random.Random(move), queue, candidates, *how) for queue in (quick, slow)]
            if quick.counts == exact.counts:
                surprises += _movement(random.Random(move), exact, candidates, *how) != placed[0]

            assert placed[0] == placed[1], (seed, number)
            assert quick.counts == slow.counts
    assert surprises > 0


def test_beyond_its_budget_the_queue_gives_the_exact_minimum() -> None:
    """Sifting stops after so many clients; then the lightest candidate is taken, also where Kafka's queue gives another one."""
    surprises = 0
    for seed in range(examples(1_000)):
        rng = random.Random(seed)
        clients, counts, threads, process_ids = _clients(rng)
        queue = ClientQueue(process_ids, counts, threads, most_sifted=rng.randrange(10))
        kafkas = _AlwaysSifted(process_ids, counts, threads)
        for _ in range(30):
            candidates = [client for client in range(clients) if rng.random() < 0.5] or [0]
            lightest = min(candidates, key=lambda client: (queue.counts[client] / threads[client], client))
            how, move = (rng.randrange(clients), rng.random() < 0.3), rng.random()
            is_plain, is_same = queue.is_plain, queue.counts == kafkas.counts
            placed, sifted = [_movement(random.Random(move), one, candidates, *how) for one in (queue, kafkas)]
            assert placed == lightest or not is_plain, seed
            surprises += is_plain and is_same and placed != sifted
        assert queue.is_plain or clients < 4
    assert surprises > 0
