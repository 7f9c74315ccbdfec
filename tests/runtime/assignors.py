"""Task assignors as users write them, for tests: one that scatters, ones that fail in their ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor
from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
)


class ScatteringAssignor(TaskAssignor):
    """Moves every task at every rebalance, as chance (the time) will have it. The worst that a runtime can be given."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Round robin from a place that depends on the time; one standby next door."""
        clients = list(application_state.kafka_streams_states(compute_task_lags=False))
        assigned: dict[int, list[AssignedTask]] = {number: [] for number in range(len(clients))}
        for number, (task, info) in enumerate(application_state.all_tasks.items()):
            owner = (number * 7 + application_state.now_ms) % len(clients)
            assigned[owner].append(AssignedTask(task, AssignedTask.Type.ACTIVE))
            if info.is_stateful and len(clients) > 1:
                assigned[(owner + 1) % len(clients)].append(AssignedTask(task, AssignedTask.Type.STANDBY))
        return TaskAssignment([KafkaStreamsAssignment.of(clients[n], tasks) for n, tasks in assigned.items()])


class InexactAssignor(ScatteringAssignor):
    """Says of two goals that they were perhaps not reached exactly."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(super().assign(application_state).assignment, inexact={"B_GOAL", "A_GOAL"})


class HesitatingAssignor(ScatteringAssignor):
    """Asks to be asked again, until the time suits it."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """As above, two hundred milliseconds out of six hundred."""
        if application_state.now_ms // 200 % 3:
            raise TaskAssignmentException("not now")
        return super().assign(application_state)


class StubbornAssignor(TaskAssignor):
    """Never gives an assignment."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Ask to be asked again."""
        raise TaskAssignmentException("never")


class GenerousAssignor(TaskAssignor):
    """Gives each task to everybody."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """All to all."""
        clients = application_state.kafka_streams_states(compute_task_lags=False)
        tasks = [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in application_state.all_tasks]
        return TaskAssignment([KafkaStreamsAssignment.of(client, tasks) for client in clients])


class BrokenAssignor(TaskAssignor):
    """Has a bug."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Fail."""
        raise KeyError("rack-7")


class ForgetfulAssignor(TaskAssignor):
    """Gives all tasks but the first; Kafka lets that pass."""

    told: ClassVar[list[AssignmentError]] = []

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """All but the first to the first client."""
        first, *others = application_state.kafka_streams_states(compute_task_lags=False)
        tasks = list(application_state.all_tasks)[1:]
        return TaskAssignment(
            [
                KafkaStreamsAssignment.of(first, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in tasks]),
                *(KafkaStreamsAssignment.of(other) for other in others),
            ]
        )

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Note what the callback was told."""
        type(self).told.append(error)


class FollowingUpAssignor(ScatteringAssignor):
    """Wants to be asked again after 300 ms, until the time is 3 s."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """As above; the deadline is with the first client."""
        first, *others = super().assign(application_state).assignment
        if application_state.now_ms < 3_000:
            first = first.with_followup_rebalance(application_state.now_ms + 300)
        return TaskAssignment([first, *others])


class HastyAssignor(ScatteringAssignor):
    """Always wants to be asked again at once."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """As above; the deadline has passed long ago."""
        first, *others = super().assign(application_state).assignment
        return TaskAssignment([first.with_followup_rebalance(0), *others])


class ProbingAssignor(HighAvailabilityTaskAssignor):
    """Wants to be asked again soon, not after a minute at the least."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """As the built-in one."""
        found = super().assign(application_state).assignment
        return TaskAssignment(
            [
                entry
                if entry.followup_rebalance_deadline_ms is None
                else entry.with_followup_rebalance(application_state.now_ms + 200)
                for entry in found
            ]
        )


class PlaceNotingAssignor(ScatteringAssignor):
    """Notes the racks and tags of the clients."""

    seen: ClassVar[list[tuple[str | None, Mapping[str, str]]]] = []

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """As above."""
        for client in application_state.kafka_streams_states(compute_task_lags=False).values():
            type(self).seen.append((client.rack_id, dict(client.client_tags)))
        return super().assign(application_state)


class CrosswiseAssignor(TaskAssignor):
    """Gives every task to the client where no built-in assignor would begin: tasks in order, clients from the last on."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """In turn."""
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False), reverse=True)
        assigned: list[list[AssignedTask]] = [[] for _ in clients]
        for number, task in enumerate(sorted(application_state.all_tasks)):
            assigned[number % len(clients)].append(AssignedTask(task, AssignedTask.Type.ACTIVE))
        return TaskAssignment(map(KafkaStreamsAssignment.of, clients, assigned))
