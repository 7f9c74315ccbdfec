"""An assignor at work, in a thread of its own: the coordinator goes on meanwhile, and can give it up."""

from __future__ import annotations

from collections.abc import Callable

from task_assignor.group import AssignmentRejectedException, GroupLeader, GroupRebalance
from task_assignor.group.limits import Limited
from task_assignor.runtime.machines.coordinator.values import AskAssignor
from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import failure


def decide(
    leader: GroupLeader, question: AskAssignor, answer: Callable[[GroupRebalance | StreamsException], None]
) -> Limited[GroupRebalance]:
    """Ask the group's leader one question.

    Args:
        leader: asks the assignor.
        question: what it is asked.
        answer: called with what comes of it, from another thread; never after it was given up.

    Returns:
        The question under way: `give_up()` ends it.
    """

    def done(found: GroupRebalance | None, error: BaseException | None) -> None:
        if found is not None:
            answer(found)
        elif isinstance(error, StreamsException):
            answer(error)
        elif error is not None:
            rejection = AssignmentRejectedException(f"The assignor {leader.assignor_name} failed with {failure(error)}")
            rejection.__cause__ = error
            answer(rejection)

    return Limited(
        lambda: leader.rebalance(question.clients, question.end_offset_sums, question.now_ms), "assignor", done
    )
