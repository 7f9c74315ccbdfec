"""Markers in a simulated application: somebody asks for cuts over all tasks, and each is held against what was committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from task_assignor.runtime.machines.coordinator.values import EndsMoved, MarkerWanted
from task_assignor.runtime.machines.events import MarkerRefused
from task_assignor.runtime.machines.records import CommitRecord
from tests.runtime.simulated_outputs import Rows

if TYPE_CHECKING:
    from task_assignor.sdk import TaskId
    from tests.runtime.simulation import World


@attrs.define
class _Asked:
    """What must be done when a marker is reached.

    Args:
        ends: topic -> how far it reached when it was asked for.
        fed: how far the repartition topic reached when its writers had come so far; None: they have not.
    """

    ends: dict[str, list[int]]
    fed: list[int] | None = None


class SimulatedMarkers:
    """The markers of a world.

    Args:
        world: the world.
        count: how many are asked for.
    """

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._left = count
        self.looks: list[str] = []
        """Markers for which the sources are to be looked at."""
        self.asked: dict[str, _Asked] = {}
        """Those that nobody has heard of since."""
        self._forgotten: dict[str, _Asked] = {}
        """Those that a coordinator was asked for that sleeps, or has died."""
        self.held: dict[str, dict[TaskId, Rows]] = {}
        """Marker -> what was committed then."""
        self.refused = 0
        self._read: dict[tuple[str, int], int] = {}

    def may_happen(self) -> list[Callable[[], None]]:
        """What chance allows now."""
        world = self._world
        actions: list[Callable[[], None]] = [self._look] if self.looks else []
        if self._left > 0 and world.random.random() < 0.02:
            actions.append(self._ask)
        return actions

    def _ask(self) -> None:
        world, name = self._world, f"marker {self._left}"
        if self.held and world.random.random() < 0.2:
            world.tell(MarkerWanted(next(iter(self.held)), world.now_ms))
        self._left -= 1
        self.asked[name] = _Asked({topic: list(ends) for topic, ends in world.ends.items()})
        self._see()
        world.tell(MarkerWanted(name, world.now_ms))

    def _look(self) -> None:
        world = self._world
        looks, self.looks = tuple(self.looks), []
        world.tell(EndsMoved({topic: list(ends) for topic, ends in world.ends.items()}, world.now_ms, looks))

    def forget(self) -> None:
        """The coordinator has died, and with it what was asked of it; unless it only sleeps."""
        self._forgotten.update(self.asked)
        self.asked, self.looks = {}, []

    def refuse(self, event: MarkerRefused) -> None:
        """One was refused."""
        is_over = event.reason.startswith(("the run ended before", "the run is over"))
        assert is_over or (event.name in self.held and event.reason == "there is one of that name"), event.reason
        assert "all rows are processed" not in event.reason, "it was overlooked"
        self.asked.pop(event.name, None)
        self.refused += 1

    def take(self, record: CommitRecord) -> None:
        """A record counts."""
        for task, commit in record.tasks.items():
            self._read.update(((topic, task.partition), end) for topic, (_, end) in commit.offsets.items())
        self._see()
        for marker in record.markers:
            asked = self.asked.pop(marker.name, None) or self._forgotten.pop(marker.name)
            assert marker.commit == record.number
            assert asked.fed is not None, "the writers of the repartition topic are not so far"
            assert self._is_read({**asked.ends, "fed": asked.fed}), f"{marker.name} has not come so far"
            assert marker.name not in self.held
            self.held[marker.name] = dict(self._world.committed)

    def _see(self) -> None:
        for asked in (*self.asked.values(), *self._forgotten.values()):
            if asked.fed is None and self._is_read({topic: asked.ends[topic] for topic in ("left", "right")}):
                asked.fed = [len(rows) for rows in self._world.work.fed.rows]

    def _is_read(self, ends: dict[str, list[int]]) -> bool:
        return all(
            self._read.get((topic, partition), 0) >= end
            for topic, found in ends.items()
            for partition, end in enumerate(found)
        )
