"""The task placement of a recorded Streams rebalance, put in the place of an assignor's decision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations, product
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

    What was withheld is not in the answer, but its partitions are among those of the client's host, where it has one; else
    any consumer that waits may be meant to get it. A temporary standby of one that waits may be the task that it waits for.
    """
    members = vector["request"]["members"]
    process_of = {member["id"]: process(member) for member in members}
    end_points = {
        member["subscription"]["user_end_point"]: process(member) for member in members if "subscription" in member
    }
    tasks = all_tasks(vector)
    fixed: dict[str, dict[TaskId, bool]] = {each: {} for each in process_of.values()}
    waiting: set[str] = set()
    shown: set[str] = set()
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
        for host in info["partitions_by_host"]:
            owner = end_points[f"{host['host']}:{host['port']}"]
            shown.add(owner)
            fixed[owner].update(dict.fromkeys((tasks[topic, number] for topic, number in host["partitions"]), True))
    waiting -= shown
    placed = {task for mine in fixed.values() for task, active in mine.items() if active}
    missing = sorted(set(tasks.values()) - placed)
    for chosen in product(sorted(waiting), repeat=len(missing)):
        found = {each: dict(mine) for each, mine in fixed.items()}
        for task, owner in zip(missing, chosen, strict=True):
            found[owner][task] = True
        yield found, min(deadlines, default=None)


def told_in_orders(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request as the JVM understands it, for each order in which it may see the consumers of a client.

    Of the offset sums that several consumers of a client tell of one task, the last ones count there (its defect 6).
    """
    clients: dict[str, list[str]] = {}
    for member in request["members"]:
        clients.setdefault(process(member), []).append(member["id"])
    for orders in product(*map(permutations, clients.values())):
        told = copy.deepcopy(request)
        sums = {member["id"]: member["subscription"]["task_offset_sums"] for member in told["members"]}
        for order in orders:
            last = {tuple(each["task"]): each["offset_sum"] for member in order for each in sums[member]}
            for member in order:
                for each in sums[member]:
                    each["offset_sum"] = last[tuple(each["task"])]
        yield told


def process(member: Mapping[str, Any]) -> str:
    """The client of a recorded member; of one whose version is too new only the versions are known."""
    return (
        str(ProcessId.parse(member["subscription"]["process_id"]))
        if "subscription" in member
        else str(ProcessId.parse("0" * 8 + "-0000-0000-0000-" + "0" * 12))
    )


def all_tasks(vector: Mapping[str, Any]) -> dict[tuple[str, int], TaskId]:
    """Source partition -> its task, of a recorded application."""
    counts = {**vector["request"]["topics"], **vector["response"]["internal_topics"]}
    return {
        (topic, number): TaskId(each["id"], number)
        for each in vector["response"]["subtopologies"]
        for topic in each["source_topics"]
        for number in range(counts[topic])
    }


def deciding(placement: Placement, deadline_ms: int | None) -> Callable[[Any], Callable[[], TaskAssignor]]:
    """Puts the placement in the place of any assignor."""
    return lambda _factory: lambda: Recorded(placement, deadline_ms)
