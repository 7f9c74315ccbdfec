"""`refine_with_warmups`: from where tasks should end to what can run now. Any assignor can stage its target with it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import attrs

from task_assignor.kafka_order.staging import MoveKind, Refined, refine_columns
from task_assignor.sdk import MISSING, ApplicationState, ProcessId, Role, StateColumns, TaskId
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.utils.given import Assignments, inexact_of, placement_of
from task_assignor.utils.placement import Placement
from task_assignor.utils.result import AssignmentResult

_PROBING_CLIENT: Final = 0  # The smallest process id.


@attrs.frozen
class Movement:
    """A copy that cannot be where the target wants it yet, and where it is meanwhile.

    Args:
        task: the task.
        role: role of the copy in the target.
        wanted: its client in the target, which is not caught up.
        placed_on: the client that has it for now, which is further.
        kind: what the wanted client gets meanwhile.
    """

    task: TaskId
    role: Role
    wanted: ProcessId
    placed_on: ProcessId
    kind: MoveKind

    def __str__(self) -> str:
        what = "Task" if self.role is Role.ACTIVE else "The standby of task"
        reason = {
            MoveKind.SWAP: "which keeps a standby",
            MoveKind.WARM_UP: "which gets a warm-up copy",
            MoveKind.NO_WARM_UP_LEFT: "which gets nothing: all warm-ups are in use",
        }[self.kind]
        return f"{what} {self.task} is on {self.placed_on} until {self.wanted} has caught up, {reason}."


@attrs.define(eq=False, repr=False)
class RefinedAssignment(AssignmentResult):
    """A staged target: what can run now, and what is still to move."""

    _refined: Refined = attrs.field(kw_only=True)
    _state: StateColumns = attrs.field(kw_only=True)

    @cached_property
    def movements(self) -> tuple[Movement, ...]:
        """What is not where the target wants it, in the order decided: active tasks first."""
        tasks, ids = self._state.tasks, self._state.clients.process_ids
        return tuple(
            Movement(tasks.task_id(task), role, ids[wanted], ids[placed], MoveKind(kind))
            for role, moves in (
                (Role.ACTIVE, self._refined.active_moves),
                (Role.STANDBY, self._refined.standby_moves),
            )
            for task, wanted, placed, kind in zip(
                moves.task.tolist(), moves.wanted.tolist(), moves.placed.tolist(), moves.kind.tolist(), strict=True
            )
        )

    @property
    def warm_ups(self) -> tuple[tuple[TaskId, ProcessId], ...]:
        """(task, client) of the copies that are there to catch up, beyond what the target has; sorted."""
        pairs = (move for move in self.movements if move.kind is MoveKind.WARM_UP)
        return tuple(sorted((move.task, move.wanted) for move in pairs))

    @property
    def needs_probing_rebalance(self) -> bool:
        """The target is not reached: one client asks for another rebalance after the probing interval."""
        return not self._refined.is_final

    def _facts(self) -> list[str]:
        return [*super()._facts(), f"{len(self.movements)} movements", f"{len(self.warm_ups)} warm-ups"]


def refine_with_warmups(application_state: ApplicationState, target: Assignments) -> RefinedAssignment:
    """Stage a target so that every stateful task runs where its state is, while others catch up (KIP-441).

    A copy whose client is not caught up (its lag is above `acceptable.recovery.lag`), while another client is further,
    is placed elsewhere for now: an active task changes places with a caught-up standby if there is one; else it goes to
    the least loaded caught-up client, else to the one that is furthest. The client of the target then keeps a
    copy that catches up, a *warm-up*, as long as there are any of the `max.warmup.replicas`. A standby goes to a
    caught-up, else further, client that does not have the task, if there is one. Tasks that fewest clients are caught up
    on are served first.

    While anything is left to move, the client with the smallest process id gets the follow-up rebalance deadline
    `now + probing.rebalance.interval.ms`, unless it has an earlier one. (Kafka gives it to the client of the group's
    leader, which an assignor cannot know.)

    Args:
        application_state: tasks, clients with lags, settings and time.
        target: where tasks should end; it is not changed. Tasks without a changelog stay as they are in it.

    Returns:
        A new assignment, with what is still to move.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.
        TaskAssignmentException: the lags of a client are not known.
    """
    placed = placement_of(application_state, target)
    refined = refine_columns(
        placed.state,
        application_state.assignment_configs,
        placed.active_owner,
        placed.standby_task,
        placed.standby_client,
    )
    staged = Placement(
        placed.state, refined.active_owner, refined.standby_task, refined.standby_client, placed.deadline_ms
    )
    if not refined.is_final:
        staged = _probing(application_state, staged)
    return RefinedAssignment(staged, refined=refined, state=placed.state, inexact=inexact_of(target))


def with_probing_rebalance(application_state: ApplicationState, assignments: Assignments) -> AssignmentResult:
    """Let the client with the smallest process id ask for another rebalance after `probing.rebalance.interval.ms`.

    If it does not already ask for an earlier one.

    Args:
        application_state: clients, settings and time.
        assignments: an assignment; it is not changed. Clients may be left out.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: unknown clients or tasks, or a task that is active on two clients.

    Source: KIP-441, Probing Rebalances.
    """
    placed = placement_of(application_state, assignments)
    return AssignmentResult(_probing(application_state, placed), inexact=inexact_of(assignments))


def _probing(application_state: ApplicationState, placed: Placement) -> Placement:
    if not len(placed.deadline_ms):
        return placed
    interval = application_state.assignment_configs.probing_rebalance_interval_ms
    deadline = min(application_state.now_ms + interval, INT64_MAX)
    deadlines = placed.deadline_ms.copy()
    if deadlines[_PROBING_CLIENT] == MISSING or deadlines[_PROBING_CLIENT] > deadline:
        deadlines[_PROBING_CLIENT] = deadline
    return attrs.evolve(placed, deadline_ms=deadlines)
