"""Whether the coordinator answers over a connection that seems to be there. Plain values; time is counted in heartbeats."""

from __future__ import annotations

from collections.abc import Iterator

from task_assignor.runtime.machines.client.values import LookForCoordinator


class Silence:
    """Heartbeats in a row that the coordinator has not answered: what is said over the connection may be brought to nobody.

    Args:
        looks_every: after so many, and then again and again, it is tried whether it answers over another connection: then this one
            is given up. A coordinator that stands still answers nowhere, and is waited for.
        ends_after: after so many the connection is given up even so.
    """

    def __init__(self, looks_every: int, ends_after: int) -> None:
        self._looks_every = looks_every
        self._ends_after = ends_after
        self.beats = 0

    def end(self) -> None:
        """The coordinator has answered, or there is another connection."""
        self.beats = 0

    def beat(self) -> Iterator[LookForCoordinator]:
        """Some time has gone by without an answer."""
        self.beats += 1
        if self.beats % self._looks_every == 0 and not self.is_over:
            yield LookForCoordinator()

    @property
    def is_long(self) -> bool:
        """Who can be reached in another way should have been heard."""
        return self.beats >= self._looks_every

    @property
    def is_over(self) -> bool:
        """The connection is given up, whatever else can be reached."""
        return self.beats >= self._ends_after
