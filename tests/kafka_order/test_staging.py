"""Staging: what is moved at once is what Kafka moves, one copy after the other."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np
import pytest

from task_assignor.kafka_order import client_queue, staging
from task_assignor.kafka_order.client_queue import MOST_SIFTED, ClientQueue
from task_assignor.kafka_order.java_order import poll_order
from task_assignor.kafka_order.lags import Lags
from task_assignor.kafka_order.staging import MoveKind
from task_assignor.sdk import ApplicationState
from task_assignor.testing import a_client, a_state, a_stateful_task
from task_assignor.testing.random_states import random_states
from tests.budget import examples

Moves = list[tuple[int, int, int, MoveKind]]


def _target(state: ApplicationState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A round robin with two standbys: owners; tasks and clients of the standbys."""
    columns, clients = state.columns, len(state.columns.clients)
    every = np.arange(len(columns.tasks), dtype=np.int32)
    logged = every[columns.tasks.has_changelog]
    number = min(2, clients - 1)
    task = np.repeat(logged, number)
    client = (task + 1 + np.tile(np.arange(number, dtype=np.int32), len(logged))) % clients
    order = np.lexsort((client, task))
    return every % clients, task[order], client[order].astype(np.int32)


def _staged(state: ApplicationState) -> tuple[list[int], list[set[int]], Moves, Moves]:
    """Owners, standbys of each task, movements of actives and of standbys."""
    found = staging.refine_columns(state.columns, state.assignment_configs, *_target(state))
    standbys: list[set[int]] = [set() for _ in found.active_owner]
    for task, client in zip(found.standby_task.tolist(), found.standby_client.tolist(), strict=True):
        standbys[task].add(client)
    moves = [
        list(zip(*(column.tolist() for column in (one.task, one.wanted, one.placed, one.kind)), strict=True))
        for one in (found.active_moves, found.standby_moves)
    ]
    return found.active_owner.tolist(), standbys, moves[0], moves[1]


def _one_by_one(state: ApplicationState, most_sifted: int) -> tuple[list[int], list[set[int]], Moves, Moves]:
    """The same by sets and one queue, as Kafka's source has it."""
    columns, configs, (owner, task, client) = state.columns, state.assignment_configs, _target(state)
    lags, tasks = Lags(columns, configs.acceptable_recovery_lag), len(columns.tasks)
    rows, owners = lags.rows_of(np.arange(tasks)), owner.tolist()
    standbys: list[set[int]] = [set(client[task == one].tolist()) for one in range(tasks)]
    counts = np.bincount(np.append(owner, client), minlength=len(columns.clients)).tolist()
    threads = columns.clients.num_processing_threads.tolist()
    left, warm_ups = configs.max_warmup_replicas, set()

    def is_behind(task: int, client: int) -> bool:
        return bool(columns.tasks.has_changelog[task] and lags.are_behind(np.array([task]), np.array([client]))[0])

    def copy(queue: ClientQueue, placed: int, wanted: int) -> MoveKind:
        nonlocal left
        queue.change(placed, 1)
        left -= 1
        if left < 0:
            queue.change(wanted, -1)
        return MoveKind.WARM_UP if left >= 0 else MoveKind.NO_WARM_UP_LEFT

    queue = ClientQueue(columns.clients.process_ids, counts, threads, most_sifted)
    actives: Moves = []
    behind = [one for one in range(tasks) if is_behind(one, owners[one])]
    for one in sorted(behind, key=lambda one: (lags.caught_up_count[one], one)):
        wanted, caught_up = owners[one], list(rows.caught_up(one))
        placed = queue.poll([client for client in caught_up if client in standbys[one]])
        if placed < 0:
            placed = queue.poll(caught_up)
        if placed < 0:
            placed = next(rows.by_lag(one))
        if placed in standbys[one]:
            kind = MoveKind.SWAP
            standbys[one] = standbys[one] - {placed} | {wanted}
        else:
            kind = copy(queue, placed, wanted)
            if kind is MoveKind.WARM_UP:
                standbys[one].add(wanted)
                warm_ups.add((wanted, one))
        queue.offer(placed, wanted)
        owners[one] = placed
        actives.append((one, wanted, placed, kind))

    queue = ClientQueue(columns.clients.process_ids, queue.counts, threads, most_sifted)
    moved: Moves = []
    late = sorted((client, one) for one in range(tasks) for client in standbys[one] if is_behind(one, client))
    late = [pair for pair in late if pair not in warm_ups]
    order = poll_order(np.array([lags.caught_up_count[one] * tasks + one for _, one in late], dtype=np.int64))
    for wanted, one in (late[row] for row in order.tolist()):
        holders = standbys[one] | {owners[one]}
        placed = queue.poll([client for client in rows.caught_up(one) if client not in holders])
        if placed < 0:
            by_lag = list(rows.by_lag(one))
            further = [client for client in by_lag[: by_lag.index(wanted)] if client not in holders]
            placed = further[0] if further else -1
        if placed >= 0:
            standbys[one].add(placed)
            kind = copy(queue, placed, wanted)
            if kind is MoveKind.NO_WARM_UP_LEFT:
                standbys[one].remove(wanted)
            queue.offer(placed, wanted)
            moved.append((one, wanted, placed, kind))
    return owners, standbys, actives, moved


@pytest.mark.parametrize("most_sifted", [0, 40, MOST_SIFTED])
def test_all_at_once_is_one_by_one(monkeypatch: pytest.MonkeyPatch, most_sifted: int) -> None:
    """Owners, standbys and all movements, however far the queue is sifted, in parts of any size."""
    monkeypatch.setattr(client_queue, "HOPELESS", np.inf)
    monkeypatch.setattr(staging, "ClientQueue", partial(ClientQueue, most_sifted=most_sifted))
    monkeypatch.setattr(staging, "_AT_ONCE", 3)
    moved = 0
    for number, state in enumerate(random_states(11, examples(150), max_tasks=40, max_clients=9, max_threads=3)):
        # With 0 most are behind; unlisted clients are caught up only where nothing is behind.
        configs = attrs.evolve(
            state.assignment_configs, max_warmup_replicas=1 + number % 2, acceptable_recovery_lag=number % 3 * 50
        )
        small = ApplicationState(state.columns, configs)
        found = _staged(small)
        assert found == _one_by_one(small, most_sifted)
        moved += len(found[2]) + len(found[3])
    assert moved


def test_a_standby_stays_where_all_clients_hold_its_task_that_is_active_nowhere() -> None:
    """Nobody was taken for one more holder: of three clients four were none that could have it."""
    held = [a_client(1, lags={"0_0": 50}), a_client(2), a_client(3)]
    state = a_state(
        [a_stateful_task("0_0", end_offset_sum=5)], held, num_standby_replicas=2, acceptable_recovery_lag=10
    )
    nobody, tasks, clients = np.array([-1], np.int32), np.zeros(3, np.int32), np.arange(3, dtype=np.int32)
    found = staging.refine_columns(state.columns, state.assignment_configs, nobody, tasks, clients)
    assert found.is_final
    assert found.standby_client.tolist() == [0, 1, 2]


def test_a_queue_far_beyond_its_budget_is_not_begun() -> None:
    """What would be Kafka's for a small part only is decided by loads from the first movement on."""
    process_ids = next(state.columns.clients.process_ids for state in random_states(1, 1))
    queue = ClientQueue(process_ids, [0] * len(process_ids), [1] * len(process_ids), most_sifted=100)
    queue.expect(1_000)
    assert not queue.is_plain
    queue.expect(1_001)
    assert queue.is_plain
