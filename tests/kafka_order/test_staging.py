"""Staging, where loads alone count: all movements at once are what they are one by one."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np
import pytest

from task_assignor.kafka_order import staging
from task_assignor.kafka_order.client_queue import MOST_SIFTED, ClientQueue
from task_assignor.sdk import ApplicationState
from task_assignor.testing.random_states import random_states
from tests.budget import examples

_rows_of = staging.Lags.rows_of


def _staged(state: ApplicationState) -> list[list[int]]:
    """A round robin with two standbys, staged: owners, standbys and all movements."""
    columns, clients = state.columns, len(state.columns.clients)
    every = np.arange(len(columns.tasks), dtype=np.int32)
    logged = every[columns.tasks.has_changelog]
    number = min(2, clients - 1)
    task = np.repeat(logged, number)
    client = (task + 1 + np.tile(np.arange(number, dtype=np.int32), len(logged))) % clients
    found = staging.refine_columns(columns, state.assignment_configs, every % clients, task, client.astype(np.int32))
    moves = (found.active_moves, found.standby_moves)
    columns_of_moves = [column for one in moves for column in (one.task, one.wanted, one.placed, one.kind)]
    return [
        column.tolist() for column in (found.active_owner, found.standby_task, found.standby_client, *columns_of_moves)
    ]


def _one_by_one(lags: staging.Lags, tasks: np.ndarray) -> staging.LagRows:
    """As if some clients were caught up without being listed, which nothing but the slow way can tell."""
    return attrs.evolve(_rows_of(lags, tasks), are_listed=False)


@pytest.mark.parametrize("most_sifted", [0, 40, MOST_SIFTED])
def test_all_at_once_is_one_by_one(monkeypatch: pytest.MonkeyPatch, most_sifted: int) -> None:
    """What is placed at once is what it is movement by movement, however far the queue is sifted."""
    monkeypatch.setattr(staging, "ClientQueue", partial(ClientQueue, most_sifted=most_sifted))
    moved = 0
    for number, state in enumerate(random_states(11, examples(300), max_tasks=40, max_clients=9, max_threads=3)):
        # With 0 most are behind; unlisted clients are caught up only where nothing is behind.
        configs = attrs.evolve(
            state.assignment_configs, max_warmup_replicas=1 + number % 2, acceptable_recovery_lag=number % 3 * 50
        )
        small = ApplicationState(state.columns, configs)
        at_once = _staged(small)
        with monkeypatch.context() as patch:
            patch.setattr(staging.Lags, "rows_of", _one_by_one)
            assert _staged(small) == at_once
        moved += len(at_once[3]) + len(at_once[7])
    assert moved
