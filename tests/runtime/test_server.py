"""The coordinator's shell: in which order it hears what comes, when it looks at the clock, and what it writes beside that."""

from __future__ import annotations

import threading

import pytest

from task_assignor.runtime.machines.checkpoint import SavedProgress
from task_assignor.runtime.machines.coordinator.values import (
    CoordinatorEvent,
    CoordinatorInstruction,
    CoordinatorPhase,
    StoreCheckpoint,
    Tick,
)
from task_assignor.runtime.shells import server as server_module
from task_assignor.runtime.shells.server import CoordinatorServer
from tests.runtime.simulation import World


def _nothing(*_: object) -> None:
    """Nobody wants to know."""


def test_deadlines_pass_also_where_there_always_is_something_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small batches, say: who had fallen silent was waited for as long as the others had something to tell."""
    world, server = World(0, clients=2), CoordinatorServer("127.0.0.1", b"secret")
    coordinator, handle = world.coordinator, world.coordinator.handle
    heard: list[CoordinatorEvent] = []

    def handle_busily(event: CoordinatorEvent) -> list[CoordinatorInstruction]:
        heard.append(event)
        assert len(heard) < 100, "nobody looks at the clock"
        instructions = handle(event)
        if coordinator.phase is not CoordinatorPhase.ENDED:
            server.expect_clients(2)
        return instructions

    monkeypatch.setattr(coordinator, "handle", handle_busily)
    # So often it looks at the clock: at each event.
    monkeypatch.setattr(server_module, "_POLL_S", 0.0)
    for _ in range(5):
        server.expect_clients(2)
    error = server.run(coordinator, world.leader, world.log, _nothing, _nothing, _nothing, _nothing)
    server.close()
    assert "Only 0 of 2 clients came" in str(error)
    assert not any(isinstance(event, Tick) for event in heard[:5]), "what had come before tells who lives"


def test_a_checkpoint_that_has_not_begun_gives_way_to_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was written where one was due with every commit: a run waited at its end for hundreds of them."""
    world, server = World(0, clients=2), CoordinatorServer("127.0.0.1", b"secret")
    handle, state = world.coordinator.handle, SavedProgress()
    has_begun, may_end = threading.Event(), threading.Event()
    due: list[int] = []
    written: list[int] = []

    def handle_with_checkpoints(event: CoordinatorEvent) -> list[CoordinatorInstruction]:
        if due:
            assert has_begun.wait(60)
        due.append(len(due))
        return [StoreCheckpoint(due[-1], state), *handle(event)]

    def write(number: int, state: SavedProgress) -> None:
        written.append(number)
        has_begun.set()
        assert may_end.wait(60)

    def end_when_the_run_does(*_: object) -> None:
        if world.coordinator.phase is CoordinatorPhase.ENDED:
            may_end.set()

    monkeypatch.setattr(world.coordinator, "handle", handle_with_checkpoints)
    monkeypatch.setattr(world.log, "write_checkpoint", write)
    for _ in range(5):
        server.expect_clients(2)
    server.run(world.coordinator, world.leader, world.log, end_when_the_run_does, _nothing, _nothing, _nothing)
    server.close()
    assert len(due) > 5
    assert written == [due[0], due[-1]]
