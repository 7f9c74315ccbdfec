"""Who may make what counts, where it counts before the coordinator has recorded it; what is done about it, the coordinator decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from task_assignor.runtime.machines.coordinator.members import Members
from task_assignor.runtime.machines.coordinator.orders import Orders
from task_assignor.runtime.machines.coordinator.values import RenewPermit, SendToClient
from task_assignor.runtime.machines.protocol import Permit
from task_assignor.sdk import TaskId


class Permits:
    """The newest permit, and what waits for the next one.

    A permit is what clients need so that what they make counts. When one was given up that may still be at work, another one is wanted,
    and the tasks that it was at get no order before that is there. The first one has the number 1.

    Args:
        orders: what is ordered; tasks that wait get no orders.
        members: the members of the group.
        tasks: all tasks, which wait for the first permit; none: results need no permits.
    """

    def __init__(self, orders: Orders, members: Members, tasks: Collection[TaskId] = ()) -> None:
        self._orders = orders
        self._members = members
        self._wanted = 1 if tasks else 0
        self.newest = b""
        orders.hold(tasks, self._wanted)

    def renew(self, given_up: Mapping[str, Collection[TaskId]]) -> Iterator[RenewPermit]:
        """Clients were given up that may still be at work on these tasks: what they do must not count when others are."""
        for client, tasks in given_up.items():
            if self._wanted and tasks:
                self._wanted += 1
                self._orders.hold(tasks, self._wanted)
                yield RenewPermit(client, self._wanted)

    def take(self, permit: bytes, number: int) -> tuple[list[SendToClient], list[TaskId]]:
        """There is another one, of which all hear, but for those who were told to stop: nobody waits for them.

        Returns:
            Whom to tell; and the tasks that have waited for the permit of that number.
        """
        self.newest = permit
        told = [
            SendToClient(member.connection, Permit(permit)) for member in self._members if member.stops_since_ms is None
        ]
        return told, self._orders.release(number)
