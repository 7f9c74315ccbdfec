"""Balancing over threads: the quick way moves what visiting every pair of clients moves."""

from __future__ import annotations

import random

import numpy as np

from task_assignor.kafka_order.threads import balance_active, balance_standby
from task_assignor.utils.given import tag_values
from tests.budget import examples


def _visit_every_pair(
    movable: list[list[int]], fixed: list[set[int]], threads: list[int], tags: list[dict[str, str]] | None
) -> list[list[int]]:
    """The rule as it is told: passes over all ordered pairs, the lowest tasks that the destination lacks move."""

    def load(client: int, more: int = 0) -> float:
        return (len(movable[client]) + len(fixed[client]) + more) / threads[client]

    def evens_out(source: int, destination: int) -> bool:
        skew, after = load(source) - load(destination), load(source, -1) - load(destination, 1)
        return skew > 0 and 0 <= after < skew

    moving = True
    while moving:
        moving = False
        for source in range(len(threads)):
            for destination in range(len(threads)):
                if source == destination:
                    continue
                for task in sorted(movable[source]):
                    if not evens_out(source, destination):
                        break
                    allowed = tags is None or tags[source].items() <= tags[destination].items()
                    if allowed and task not in movable[destination] and task not in fixed[destination]:
                        movable[source].remove(task)
                        movable[destination].append(task)
                        moving = True
    return [sorted(tasks) for tasks in movable]


def test_active_tasks() -> None:
    """Random owners and threads."""
    for seed in range(examples(600)):
        rng = random.Random(seed)
        clients, tasks = rng.randint(1, 8), rng.randint(0, 40)
        threads = [rng.choice([1, 1, 2, 3, 5, 8]) for _ in range(clients)]
        owner = [rng.randrange(clients) if seed % 2 else number % clients for number in range(tasks)]
        movable = [[task for task in range(tasks) if owner[task] == client] for client in range(clients)]

        balanced = balance_active(np.array(owner, dtype=np.int32), np.array(threads))

        expected = _visit_every_pair(movable, [set() for _ in threads], threads, None)
        assert [np.flatnonzero(balanced == client).tolist() for client in range(clients)] == expected, seed


def test_standbys() -> None:
    """Random copies; active tasks weigh, standbys move, with tags only between clients of equal tags."""
    for seed in range(examples(600)):
        rng = random.Random(seed)
        clients, tasks = rng.randint(1, 7), rng.randint(0, 20)
        threads = [rng.choice([1, 1, 2, 3, 5]) for _ in range(clients)]
        owner = [rng.randrange(-1, clients) for _ in range(tasks)]
        pairs = [
            (task, client)
            for task in range(tasks)
            for client in range(clients)
            if client != owner[task] and rng.random() < 0.3
        ]
        tags = [{"zone": rng.choice("ab")} | ({"rack": "r"} if rng.random() < 0.3 else {}) for _ in threads]
        given = tags if seed % 2 else None
        values = tag_values(tags, ["zone", "rack"] if given else [])
        table = np.array(pairs, dtype=np.int32).reshape(-1, 2)

        client = balance_standby(np.array(owner, dtype=np.int32), table[:, 0], table[:, 1], np.array(threads), values)

        movable = [[task for task, holder in pairs if holder == number] for number in range(clients)]
        fixed = [{task for task in range(tasks) if owner[task] == number} for number in range(clients)]
        expected = _visit_every_pair(movable, fixed, threads, given)
        assert [sorted(table[client == number, 0].tolist()) for number in range(clients)] == expected, seed
