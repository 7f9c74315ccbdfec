"""Mistakes that a type checker must find in a user's assignor: each line ends with the code that is expected there."""

from __future__ import annotations

from task_assignor import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)


class ForgetsAssign(TaskAssignor):
    pass


class ReturnsSomethingElse(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> dict[ProcessId, TaskId]:  # E: override
        return {}


class TakesSomethingElse(TaskAssignor):
    def assign(self, application_state: dict[str, str]) -> TaskAssignment:  # E: override
        return TaskAssignment([])


class UsesItWrongly(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        application_state.now_ms = 0  # E: misc
        states = application_state.kafka_streams_states("yes")  # E: arg-type
        for process_id, state in states.items():
            KafkaStreamsAssignment.of(str(process_id), [])  # E: arg-type
            KafkaStreamsAssignment.of(process_id, list(application_state.all_tasks))  # E: arg-type
            state.number_of_threads  # E: attr-defined
        AssignedTask(TaskId(0, 0), "ACTIVE")  # E: arg-type
        TaskId("0", 1)  # E: arg-type
        return [KafkaStreamsAssignment.of(process_id, []) for process_id in states]  # E: return-value


ForgetsAssign()  # E: abstract
