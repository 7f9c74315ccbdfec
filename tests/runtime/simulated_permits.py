"""Permits in a simulated application: no task is given to anybody while a client that was given up may still commit for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from task_assignor.runtime.machines.coordinator.orders import OpenOrder
from task_assignor.runtime.machines.coordinator.values import CoordinatorEvent, FromClient, PermitRenewed
from task_assignor.runtime.machines.protocol import GivenBack, TaskDone
from task_assignor.sdk import TaskId

if TYPE_CHECKING:
    from tests.runtime.simulation import World


class SimulatedPermits:
    """The permits of a world.

    Args:
        world: the world.
        are_needed: what clients make counts before it is recorded.
    """

    def __init__(self, world: World, *, are_needed: bool) -> None:
        self._world = world
        self.are_needed = are_needed
        self.wanted: list[int] = []
        """Numbers of those that are on their way."""
        self._given = 0
        self._void: dict[TaskId, int] = {}
        """Task whose order nobody has answered -> how many permits there had been when it was void."""

    def begin(self) -> None:
        """There is another coordinator."""
        self.wanted = [1] if self.are_needed else []
        self._void = {}

    def may_happen(self) -> list[Callable[[], None]]:
        """The next one comes; now and then brokers give one by themselves."""
        if self.wanted:
            return [partial(self._give, self.wanted[0])]
        is_given = self.are_needed and self._world.random.random() < 0.02
        return [partial(self._give, 0)] if is_given else []

    def _give(self, number: int) -> None:
        if number:
            self.wanted.remove(number)
        self._given += 1
        self._world.tell(PermitRenewed(b"%d" % self._given, number, self._world.now_ms))

    def check(self, event: CoordinatorEvent, before: Mapping[TaskId, OpenOrder]) -> None:
        """Hold the orders that are open now against those of before an event."""
        if not self.are_needed:
            return
        ended: set[TaskId] = set()
        if isinstance(event, FromClient) and isinstance(event.message, TaskDone):
            ended = {event.message.result.task}
        elif isinstance(event, FromClient) and isinstance(event.message, GivenBack):
            ended = {order.task for order in event.message.orders}
        now = self._world.coordinator._orders._open
        for task in before.keys() - ended:
            if now.get(task) is not before[task]:
                self._void[task] = self._given
        for task, found in now.items():
            if found is not before.get(task) and task in self._void:
                assert self._given > self._void.pop(task), f"who had {task} may still be at work on it"
