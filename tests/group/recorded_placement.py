"""The task placement of a recorded Streams rebalance, put in the place of an assignor's decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)

Placement = Mapping[str, Mapping[TaskId, bool]]
"""Process -> task -> whether it is active there."""
NEVER = 2**63 - 1


class Recorded(TaskAssignor):
    """Answers with a placement."""

    def __init__(self, placement: Placement, deadline_ms: int | None) -> None:
        self._placement, self._deadline_ms = placement, deadline_ms

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        answers = []
        for process in application_state.kafka_streams_states(compute_task_lags=False):
            tasks = self._placement.get(str(process), {})
            answer = KafkaStreamsAssignment.of(
                process,
                [
                    AssignedTask(task, AssignedTask.Type.ACTIVE if active else AssignedTask.Type.STANDBY)
                    for task, active in tasks.items()
                ],
            )
            answers.append(answer)
        if self._deadline_ms is not None:
            answers[0] = answers[0].with_followup_rebalance(self._deadline_ms)
        return TaskAssignment(answers)


def placements(vector: Mapping[str, Any]) -> Iterator[tuple[Placement, int | None]]:
    """Every placement that may have led to the recorded answer, and when a follow-up was asked for.

    What was withheld is not in the answer: any consumer that waits may be meant to get it. A temporary standby of one
    that waits may be the task that it waits for.
    """
    process_of = {member["id"]: process(member) for member in vector["request"]["members"]}
    fixed: dict[str, dict[TaskId, bool]] = {each: {} for each in process_of.values()}
    waiting: set[str] = set()
    deadlines = set()
    for member, given in vector["response"]["members"].items():
        info = given["info"]
        mine = fixed[process_of[member]]
        mine.update({TaskId(*task): True for task in info["active_tasks"]})
        mine.update({TaskId(*each["task"]): False for each in info["standby_tasks"]})
        # Before version 7 nobody is told to wait.
        if info["next_rebalance_ms"] == 0 or info["version"] < 7:
            waiting.add(process_of[member])
        elif info["next_rebalance_ms"] != NEVER:
            deadlines.add(info["next_rebalance_ms"])
    placed = {task for tasks in fixed.values() for task, active in tasks.items() if active}
    missing = sorted(all_tasks(vector) - placed)
    for chosen in product(sorted(waiting), repeat=len(missing)):
        found = {each: dict(tasks) for each, tasks in fixed.items()}
        for task, owner in zip(missing, chosen, strict=True):
            found[owner][task] = True
        yield found, min(deadlines, default=None)


def process(member: Mapping[str, Any]) -> str:
    """The client of a recorded member; of one whose version is too new only the versions are known."""
    return (
        str(ProcessId.parse(member["subscription"]["process_id"]))
        if "subscription" in member
        else str(ProcessId.parse("0" * 8 + "-0000-0000-0000-" + "0" * 12))
    )


def all_tasks(vector: Mapping[str, Any]) -> set[TaskId]:
    """The tasks of a recorded application."""
    counts = {**vector["request"]["topics"], **vector["response"]["internal_topics"]}
    return {
        TaskId(each["id"], number)
        for each in vector["response"]["subtopologies"]
        for number in range(max(counts[topic] for topic in each["source_topics"]))
    }


def deciding(placement: Placement, deadline_ms: int | None) -> Callable[[Any], Callable[[], TaskAssignor]]:
    """Puts the placement in the place of any assignor."""
    return lambda _factory: lambda: Recorded(placement, deadline_ms)
