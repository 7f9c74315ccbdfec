"""No utility gives a client a task in both roles: an assignment of objects would lose one of the two, maybe the active task."""

from __future__ import annotations

import pytest

from task_assignor.sdk import AssignedTask, TaskId
from task_assignor.testing import a_process_id, a_state, an_assignment, stateful_tasks
from task_assignor.utils import AssignmentResult, balance_active_tasks, place_least_loaded, place_standbys
from task_assignor.utils.given import placement_of

ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


def roles(result: AssignmentResult) -> dict[int, dict[str, AssignedTask.Type]]:
    """Number of the client -> task -> role, as objects say it."""
    return {
        number: {str(task_id): task.type for task_id, task in result[process_id].tasks.items()}
        for number, process_id in enumerate(result, 1)
    }


def test_an_active_task_that_goes_to_its_standby_changes_places_with_it() -> None:
    state = a_state(stateful_tasks(0, 2), 2, num_standby_replicas=1)
    given = an_assignment(state, active={1: ["0_0", "0_1"]}, standby={2: ["0_0", "0_1"]})

    balanced = balance_active_tasks(state, given)

    assert roles(balanced) == {1: {"0_0": STANDBY, "0_1": ACTIVE}, 2: {"0_0": ACTIVE, "0_1": STANDBY}}
    assert placement_of(state, balanced).counts().tolist() == [2, 2]


def test_a_task_without_owner_that_goes_to_its_standby_is_active_there() -> None:
    state = a_state(stateful_tasks(0, 1), 2, num_standby_replicas=1)

    placed = place_least_loaded(state, an_assignment(state, standby={1: ["0_0"], 2: ["0_0"]}))

    assert roles(placed) == {1: {"0_0": ACTIVE}, 2: {"0_0": STANDBY}}


@pytest.mark.parametrize("split", [{1: ["0_0"], 2: ["0_1"]}, {2: ["0_0"], 1: ["0_1"]}])
def test_the_standbys_of_a_group_leave_out_who_has_the_task_active(split: dict[int, list[str]]) -> None:
    state = a_state(stateful_tasks(0, 2), 2, num_standby_replicas=1)

    placed = place_standbys(state, an_assignment(state, split), together=[0, 0])

    for client, tasks in split.items():
        assert all(placed[a_process_id(client)].tasks[TaskId.parse(task)].type is ACTIVE for task in tasks)
    assert sum(placed.shortages.values()) == 1


@pytest.mark.parametrize(("owner", "other"), [(1, 2), (2, 1)])
def test_a_task_of_a_group_without_owner_does_not_hide_where_the_others_are_active(owner: int, other: int) -> None:
    state = a_state(stateful_tasks(0, 2), 2, num_standby_replicas=1)

    placed = place_standbys(state, an_assignment(state, {owner: ["0_0"]}), together=[0, 0])

    assert roles(placed) == {owner: {"0_0": ACTIVE}, other: {"0_0": STANDBY, "0_1": STANDBY}}
    assert not placed.shortages
