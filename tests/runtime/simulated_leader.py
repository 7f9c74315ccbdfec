"""A group's leader that answers by chance, in microseconds: what the machines make of answers is simulated, not the assignors."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from task_assignor.group import (
    AssignmentRejectedException,
    ClientAssignment,
    ConsumerTasks,
    GroupClient,
    GroupLeader,
    GroupRebalance,
)
from task_assignor.runtime.machines.coordinator.values import AskAssignor
from task_assignor.sdk import ApplicationStateBuilder, AssignmentConfigs, ProcessId, StreamsException, TaskId, TaskInfo

ACCEPTABLE_LAG = 5
_NO_STATE = ApplicationStateBuilder(AssignmentConfigs(), 0).build()


class WhimsicalLeader(GroupLeader):
    """Keeps tasks where they are, moves them by warm-ups, or scatters them; puts off, fails, wants to be asked again.

    Args:
        chance: decides.
        tasks: all tasks.
        standbys: copies of each task that has state, where there are enough clients.
        moves: how likely it is that a task shall be elsewhere.
        warms_up: tasks that move go when a copy is there that is nearly up to date.
    """

    def __init__(
        self, chance: random.Random, tasks: Mapping[TaskId, TaskInfo], standbys: int, *, moves: float, warms_up: bool
    ) -> None:
        super().__init__(lambda: None, AssignmentConfigs(), tasks, "by chance")  # type: ignore[arg-type, return-value]
        self._chance = chance
        self._standbys = standbys
        self._moves = moves
        self._warms_up = warms_up
        self._stateful_tasks = frozenset(task for task, info in tasks.items() if info.is_stateful)
        self.will_fail = False

    def rebalance(
        self, clients: Iterable[GroupClient], end_offset_sums: Mapping[TaskId, int] | None, now_ms: int
    ) -> GroupRebalance:
        """Decide."""
        chance = self._chance
        if self.will_fail:
            self.will_fail = False
            raise AssignmentRejectedException("the assignor failed")
        members = sorted(clients, key=lambda client: client.process_id)
        if chance.random() < 0.05:
            return GroupRebalance({}, "not now", _NO_STATE)
        active: dict[ProcessId, list[TaskId]] = {client.process_id: [] for client in members}
        standby: dict[ProcessId, list[TaskId]] = {client.process_id: [] for client in members}
        wants_more = chance.random() < 0.1
        for task in self.tasks:
            end = (end_offset_sums or {}).get(task, 0)
            lags = {client.process_id: _lag(client, task, end) for client in members}
            owner = next((client.process_id for client in members if task in client.previous_active), None)
            target = owner
            if owner is None:
                target = min(lags, key=lambda client: (lags[client], chance.random()))
            elif chance.random() < self._moves:
                target = chance.choice(members).process_id
            assert target is not None
            is_stateful = task in self._stateful_tasks
            copies = self._standbys if is_stateful else 0
            warming = None
            if is_stateful and self._warms_up and owner not in (None, target) and lags[target] > ACCEPTABLE_LAG:
                assert owner is not None
                target, warming, wants_more = owner, target, True
            active[target].append(task)
            places = [client for client in lags if client not in (target, warming)]
            places.sort(key=lambda client: (lags[client], chance.random()))
            for client in [*places[:copies], *([warming] if warming else [])]:
                standby[client].append(task)
        deadline = now_ms + chance.randint(100, 900) if wants_more else None
        return GroupRebalance(
            {
                client.process_id: ClientAssignment(
                    tuple(active[client.process_id]),
                    tuple(standby[client.process_id]),
                    _spread(client, active[client.process_id], standby[client.process_id]),
                    deadline if number == 0 else None,
                )
                for number, client in enumerate(members)
            },
            "",
            _NO_STATE,
        )


def _lag(client: GroupClient, task: TaskId, end: int) -> int:
    if task in client.previous_active:
        return 0
    return end - min(client.offset_sums.get(task, 0), end)


def _spread(client: GroupClient, active: Sequence[TaskId], standby: Sequence[TaskId]) -> dict[str, ConsumerTasks]:
    count = len(client.consumers)
    return {
        consumer.member_id: ConsumerTasks(tuple(active[number::count]), tuple(standby[number::count]))
        for number, consumer in enumerate(client.consumers)
    }


def answer_of(leader: GroupLeader, question: AskAssignor) -> GroupRebalance | StreamsException:
    """What the group's leader says."""
    try:
        return leader.rebalance(question.clients, question.end_offset_sums, question.now_ms)
    except StreamsException as error:
        return error
