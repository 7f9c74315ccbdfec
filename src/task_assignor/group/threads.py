"""Spreads a client's tasks over its consumers: sticky, interleaved and even. Which client has a task was decided before.

Source: KIP-924, Consumer Assignments; `StreamsPartitionAssignor.assignTasksToThreads`, decision for decision: stateful
active tasks, then standbys, then stateless active tasks, all on one running load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from task_assignor.group.errors import GroupException, check_mapping, list_of
from task_assignor.group.members import GroupConsumer
from task_assignor.kafka_order.java_order import PriorityQueue
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
    stateful: Iterable[TaskId],
    lags: Mapping[TaskId, int] | None = None,
) -> dict[str, ConsumerTasks]:
    """The tasks of each consumer of one client.

    Args:
        consumers: the consumers, with their previous tasks.
        active: active tasks of the client.
        standby: standby tasks of the client.
        stateful: all tasks that have state to be restored.
        lags: task -> how far the client is behind; where a consumer had too many tasks, it keeps those with the least.

    Returns:
        Member id -> its tasks, sorted by member id; the numbers differ by at most one.

    Raises:
        GroupException: there are no consumers, or consumers or tasks are no lists of these.
    """
    consumers = list_of("consumers", GroupConsumer, consumers)
    if not consumers:
        raise GroupException("A client without consumers cannot be given tasks. Maybe it has left the group.")
    active, standby = list_of("active tasks", TaskId, active), list_of("standby tasks", TaskId, standby)
    if not isinstance(stateful, frozenset):  # that of a million tasks is given for each client
        stateful = frozenset(list_of("stateful tasks", TaskId, stateful))
    behind = {} if lags is None else lags
    check_mapping("lags", behind, "task ids to ints")
    previous = {
        consumer.member_id: sorted(consumer.previous_tasks & stateful, key=lambda task: (behind.get(task, 0), task))
        for consumer in sorted(consumers, key=lambda consumer: consumer.member_id)
    }
    nothing: dict[str, list[TaskId]] = {member: [] for member in previous}
    load = dict.fromkeys(previous, 0)
    tasks = sorted(active)
    first = _spread([task for task in tasks if task in stateful], previous, load)
    standbys = _spread(sorted(standby), previous, load)
    last = _spread([task for task in tasks if task not in stateful], nothing, load)
    return {
        member: ConsumerTasks(tuple(sorted(first[member] + last[member])), tuple(sorted(standbys[member])))
        for member in previous
    }


def _spread(tasks: list[TaskId], previous: Mapping[str, list[TaskId]], load: dict[str, int]) -> dict[str, list[TaskId]]:
    """The consumers' shares of these tasks, which are sorted; adds them to the load."""
    least = (sum(load.values()) + len(tasks)) // len(load)
    # By their places, which are in the same order and compared much faster.
    place = {task: number for number, task in enumerate(tasks)}
    given: dict[str, list[int]] = {member: [] for member in load}
    left = PriorityQueue(range(len(tasks)))
    skipped: dict[int, str] = {}
    for member, had in previous.items():
        for task in (place[each] for each in had if each in place):
            if task not in left:
                continue
            if len(given[member]) + load[member] < least:
                given[member].append(task)
                left.remove(task)
            else:
                skipped[task] = member
    # What is left goes round the consumers that have too little, so that neighbours are apart.
    below = [member for member in load if len(given[member]) + load[member] < least]
    while below:
        for member in below:
            given[member].append(left.poll())
        below = [member for member in below if len(given[member]) + load[member] < least]
    exact = {member: None for member in load if len(given[member]) + load[member] == least}
    for task in sorted(skipped):
        if task in left and skipped[task] in exact:
            given[skipped[task]].append(task)
            left.remove(task)
            del exact[skipped[task]]
    for member, task in zip(exact, left, strict=False):
        given[member].append(task)
    for member in load:
        load[member] += len(given[member])
    return {member: [tasks[number] for number in numbers] for member, numbers in given.items()}
