"""A user's assignor and everything it is likely to touch; `mypy --strict` has nothing to say."""

from __future__ import annotations

from collections.abc import Mapping

from task_assignor import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskId,
    TaskInfo,
)


class EveryTaskToTheFirstClient(TaskAssignor):
    """Uses the object face and every method that may be overridden."""

    def __init__(self) -> None:
        self.standbys = 0

    def configure(self, configs: Mapping[str, object]) -> None:
        self.standbys = int(str(configs.get("num.standby.replicas", 0)))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        states: Mapping[ProcessId, KafkaStreamsState] = application_state.kafka_streams_states(compute_task_lags=False)
        tasks: Mapping[TaskId, TaskInfo] = application_state.all_tasks
        deadline: int = application_state.now_ms + application_state.assignment_configs.probing_rebalance_interval_ms
        first = min(states)
        threads: int = states[first].num_processing_threads
        answers = [
            KafkaStreamsAssignment.of(
                process_id,
                [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in sorted(tasks) if process_id == first],
            )
            for process_id in sorted(states)
        ]
        if threads > 1:
            answers[0] = answers[0].with_followup_rebalance(deadline)
        stateful: list[TaskId] = [task for task, info in tasks.items() if info.is_stateful]
        placed: Mapping[TaskId, AssignedTask] = answers[0].tasks
        assert len(stateful) <= len(placed)
        return TaskAssignment(answers)

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        assert error is not AssignmentError.NONE or sorted(assignment.group_assignment) == sorted(
            subscription.group_subscription
        )


class WithParametersOfItsOwnNames(TaskAssignor):
    """Whoever ports from Java may return early, and need not override the callbacks."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(
            KafkaStreamsAssignment.of(process, []) for process in application_state.kafka_streams_states(True)
        )


assignor: TaskAssignor = EveryTaskToTheFirstClient()
other: TaskAssignor = WithParametersOfItsOwnNames()
