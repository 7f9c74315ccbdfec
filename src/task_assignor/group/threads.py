"""Spreads a client's tasks over its consumers: sticky and even. Which client has a task was decided before.

Source: `StreamsPartitionAssignor.assignTasksToThreads`: stateful active tasks, then standbys, then stateless active
tasks, all on one running load. The result is as even as Kafka's; ties go to the least loaded consumer, then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from task_assignor.group.members import GroupConsumer
from task_assignor.sdk import TaskId


@attrs.frozen
class ConsumerTasks:
    """The tasks of one consumer.

    Args:
        active: tasks it processes, sorted.
        standby: tasks of which it keeps a copy of the state, sorted.
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()

    @property
    def all(self) -> frozenset[TaskId]:
        """Both kinds."""
        return frozenset(self.active) | frozenset(self.standby)


def spread_over_consumers(
    consumers: Iterable[GroupConsumer],
    active: Iterable[TaskId],
    standby: Iterable[TaskId],
    stateful: frozenset[TaskId],
) -> dict[str, ConsumerTasks]:
    """The tasks of each consumer of one client.

    Args:
        consumers: the consumers, with their previous tasks.
        active: active tasks of the client.
        standby: standby tasks of the client.
        stateful: all tasks that have state.

    Returns:
        Member id -> its tasks, sorted by member id; the numbers differ by at most one.
    """
    previous = {
        consumer.member_id: consumer.previous_tasks for consumer in sorted(consumers, key=lambda c: c.member_id)
    }
    actives: dict[str, list[TaskId]] = {member: [] for member in previous}
    standbys: dict[str, list[TaskId]] = {member: [] for member in previous}
    load = dict.fromkeys(previous, 0)
    tasks = sorted(active)
    _spread([task for task in tasks if task in stateful], previous, load, actives)
    _spread(sorted(standby), previous, load, standbys)
    _spread([task for task in tasks if task not in stateful], previous, load, actives)
    return {
        member: ConsumerTasks(tuple(sorted(actives[member])), tuple(sorted(standbys[member]))) for member in previous
    }


def _spread(
    tasks: list[TaskId],
    previous: Mapping[str, frozenset[TaskId]],
    load: dict[str, int],
    into: dict[str, list[TaskId]],
) -> None:
    least = (sum(load.values()) + len(tasks)) // len(load)
    rest = []
    for task in tasks:
        owner = next((member for member in load if task in previous[member] and load[member] < least), None)
        if owner is None:
            rest.append(task)
        else:
            into[owner].append(task)
            load[owner] += 1
    for task in rest:
        # Of the consumers with the least load, the one that had the task.
        owner = min(load, key=lambda member: (load[member], task not in previous[member], member))
        into[owner].append(task)
        load[owner] += 1
