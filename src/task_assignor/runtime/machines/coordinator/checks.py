"""What must be under way in a coordinator that has just taken an event: else something would wait for ever, or for chance."""

from __future__ import annotations

from task_assignor.runtime.machines.coordinator.members import Members
from task_assignor.runtime.machines.coordinator.orders import Orders
from task_assignor.runtime.machines.coordinator.patience import Patience
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.rebalances import Rebalances


def check_nothing_is_overlooked(
    members: Members,
    orders: Orders,
    rebalances: Rebalances,
    progress: Progress,
    patience: Patience,
    *,
    is_stopping: bool,
) -> None:
    """Of a run in progress in which nothing waits for a commit: whatever can go on, goes on.

    Args:
        members: the members of the group.
        orders: what is ordered from them.
        rebalances: what the assignor is asked, or is to be.
        progress: what is to be read.
        patience: what is waited for.
        is_stopping: somebody wants the run to end: nothing new is begun.

    Raises:
        AssertionError: something is overlooked.
    """
    for member in members:
        if member.stops_since_ms is not None:
            assert not member.has_tasks, f"{member.name} was told to stop and has tasks"
            assert not orders.are_with(member), f"{member.name} was told to stop and has orders"
        elif member.leaves_because:
            assert member.has_tasks or orders.are_with(member), f"{member.name} could be told to stop"
    if is_stopping or not members.staying:
        return
    assert not rebalances.is_overlooked, "there is a reason for a rebalance, and the assignor is not asked"
    for task in progress.tasks:
        owner = members.owner_of(task)
        if owner is None or owner.leaves_because:
            assert rebalances.is_under_way, f"{task} has no owner that stays, and no rebalance follows"
        elif orders.may_be_given(task) and not patience.waits(task):
            assert not progress.next_ranges(task, 1)[0], f"{task} could go on, and has no order"
