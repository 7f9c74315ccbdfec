"""The warm-up refiner as any assignor can use it. That its decisions are Kafka's is shown by the `ha` vectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.sdk import (
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    Role,
    StateException,
    TaskAssignmentException,
    TaskId,
)
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.testing import a_client, a_process_id, a_state, a_stateless_task, an_assignment, application_states
from task_assignor.utils import MoveKind, Movement, RefinedAssignment, refine_with_warmups
from tests.goals import Judged
from tests.vectors import placements_of

NOW = 1_000


def _placed(result: RefinedAssignment) -> dict[int, tuple[list[str], list[str]]]:
    return {
        int(a_process_id(0).id.int) + int(placement["processId"][-4:]): (
            placement["activeTasks"],
            placement["standbyTasks"],
        )
        for placement in placements_of(result)
    }


def _one_mover(**configs: Any) -> ApplicationState:
    """0_0 runs on client 1, and should run on client 2."""
    return a_state(["0_0"], [a_client(1, active=["0_0"]), 2], now_ms=NOW, **configs)


def test_what_is_caught_up_goes_where_it_should() -> None:
    """Nothing to stage: the answer is the target, and no follow-up is asked for."""
    state = a_state(["0_0", "0_1"], [a_client(1, active=["0_0"], standby=["0_1"]), a_client(2, active=["0_1"])])
    target = an_assignment(state, active={1: ["0_1", "0_0"]}, standby={2: ["0_1"]})

    result = refine_with_warmups(state, target)

    assert placements_of(result) == placements_of(target)
    assert not result.needs_probing_rebalance
    assert result.movements == ()
    assert result.warm_ups == ()


def test_a_task_runs_where_its_state_is_while_the_wanted_client_warms_up() -> None:
    """One client, the one with the smallest process id, is to ask for a rebalance after the probing interval."""
    state = _one_mover(probing_rebalance_interval_ms=60_000)

    result = refine_with_warmups(state, an_assignment(state, active={2: ["0_0"]}))

    assert _placed(result) == {1: (["0_0"], []), 2: ([], ["0_0"])}
    assert result.movements == (
        Movement(TaskId(0, 0), Role.ACTIVE, a_process_id(2), a_process_id(1), MoveKind.WARM_UP),
    )
    assert result.warm_ups == ((TaskId(0, 0), a_process_id(2)),)
    assert [one.followup_rebalance_deadline_ms for one in result.values()] == [NOW + 60_000, None]
    assert str(result.movements[0]) == (
        f"Task 0_0 is on {a_process_id(1)} until {a_process_id(2)} has caught up, which gets a warm-up copy."
    )


def test_warm_ups_are_limited() -> None:
    """The third task waits without a copy: the tasks with fewest caught-up clients come first, then the smaller id."""
    tasks = ["0_0", "0_1", "0_2"]
    state = a_state(tasks, [a_client(1, active=tasks), a_client(3, standby=["0_0"]), 2], max_warmup_replicas=1)

    result = refine_with_warmups(state, an_assignment(state, active={2: tasks}))

    assert [(str(move.task), move.kind) for move in result.movements] == [
        ("0_1", MoveKind.WARM_UP),
        ("0_2", MoveKind.NO_WARM_UP_LEFT),
        ("0_0", MoveKind.NO_WARM_UP_LEFT),
    ]
    assert _placed(result) == {1: (["0_1", "0_2"], []), 2: ([], ["0_1"]), 3: (["0_0"], [])}


def test_a_caught_up_standby_changes_places_and_costs_no_warm_up() -> None:
    """The wanted client has the standby meanwhile. That standby is behind, too, so client 1 keeps what it has for now."""
    state = a_state(["0_0"], [a_client(1, active=["0_0"]), 2, a_client(3, standby=["0_0"])])

    result = refine_with_warmups(state, an_assignment(state, active={2: ["0_0"]}, standby={3: ["0_0"]}))

    assert _placed(result) == {1: ([], ["0_0"]), 2: ([], ["0_0"]), 3: (["0_0"], [])}
    assert [move.kind for move in result.movements] == [MoveKind.SWAP, MoveKind.WARM_UP]
    assert result.warm_ups == ((TaskId(0, 0), a_process_id(2)),)


def test_standbys_are_staged_too() -> None:
    """A standby stays on the client that has the state while the wanted one catches up: one copy more than wanted."""
    state = a_state(["0_0"], [a_client(1, active=["0_0"]), 2, a_client(3, standby=["0_0"])])

    result = refine_with_warmups(state, an_assignment(state, active={1: ["0_0"]}, standby={2: ["0_0"]}))

    assert _placed(result) == {1: (["0_0"], []), 2: ([], ["0_0"]), 3: ([], ["0_0"])}
    assert result.movements == (
        Movement(TaskId(0, 0), Role.STANDBY, a_process_id(2), a_process_id(3), MoveKind.WARM_UP),
    )


def test_if_nobody_is_further_nothing_is_staged() -> None:
    """A new task starts anywhere; so does one that everybody is equally behind on."""
    state = a_state(["0_0"], [a_client(1, lags={"0_0": 90_000}), a_client(2, lags={"0_0": 90_000})])
    target = an_assignment(state, active={2: ["0_0"]})

    assert placements_of(refine_with_warmups(state, target)) == placements_of(target)


def test_the_client_that_is_furthest_runs_it_if_nobody_is_caught_up() -> None:
    """Less to restore, earlier at work. An unknown lag counts as the furthest, as in Kafka."""
    lags = {1: 90_000, 2: 120_000, 3: 50_000}
    for unknown, expected in ((None, 3), (1, 1)):
        if unknown:
            lags[unknown] = UNKNOWN_OFFSET_SUM
        state = a_state(["0_0"], [a_client(number, lags={"0_0": lag}) for number, lag in lags.items()])

        result = refine_with_warmups(state, an_assignment(state, active={2: ["0_0"]}))

        assert [move.placed_on for move in result.movements] == [a_process_id(expected)]


def test_an_unbounded_acceptable_lag_means_that_everybody_is_caught_up() -> None:
    """2^63 - 1 switches staging off."""
    state = _one_mover(acceptable_recovery_lag=INT64_MAX)
    target = an_assignment(state, active={2: ["0_0"]})

    assert placements_of(refine_with_warmups(state, target)) == placements_of(target)


def test_tasks_without_changelog_stay_as_the_target_has_them() -> None:
    """They have no lags. A task that the target leaves out stays out."""
    state = a_state([a_stateless_task("1_0"), a_stateless_task("1_1"), "0_0"], [a_client(1, active=["1_0"]), 2])

    result = refine_with_warmups(state, an_assignment(state, active={2: ["1_0"]}))

    assert _placed(result) == {1: ([], []), 2: (["1_0"], [])}


def test_an_earlier_deadline_stays() -> None:
    """What the target asks for is not put off."""
    state = _one_mover()
    for asked, expected in ((NOW + 5, NOW + 5), (None, NOW + 600_000), (NOW + 900_000, NOW + 600_000)):
        target = {one.process_id: one for one in an_assignment(state, active={2: ["0_0"]})}
        if asked is not None:
            target[a_process_id(1)] = target[a_process_id(1)].with_followup_rebalance(asked)

        result = refine_with_warmups(state, target)

        assert result[a_process_id(1)].followup_rebalance_deadline_ms == expected


def test_a_deadline_does_not_overflow() -> None:
    """Late in the age of the universe."""
    state = a_state(["0_0"], [a_client(1, active=["0_0"]), 2], now_ms=INT64_MAX - 1)

    result = refine_with_warmups(state, an_assignment(state, active={2: ["0_0"]}))

    assert result[a_process_id(1)].followup_rebalance_deadline_ms == INT64_MAX


def test_without_lags_nothing_can_be_staged() -> None:
    """The error names the client and says what to do."""
    state = a_state(["0_0"], [a_client(1), a_client(2, lags=None)])
    with pytest.raises(TaskAssignmentException, match=r"lags of client .*02 are not known .* sticky"):
        refine_with_warmups(state, an_assignment(state, active={2: ["0_0"]}))


def test_two_active_owners_are_refused() -> None:
    """There is no one wanted client then."""
    state = a_state(["0_0"], 2)
    with pytest.raises(StateException, match="active on two clients"):
        refine_with_warmups(state, an_assignment(state, active={1: ["0_0"], 2: ["0_0"]}))


def test_any_assignors_target_can_be_staged() -> None:
    """What users write: decide, then stage."""
    tasks = [f"0_{number}" for number in range(6)]
    state = a_state(tasks, [a_client(1, active=tasks), 2])

    result = refine_with_warmups(state, StickyTaskAssignor().assign(state))

    assert {client: len(active) for client, (active, _standby) in _placed(result).items()} == {1: 6, 2: 0}
    assert len(result.warm_ups) == 2


@given(application_states())
def test_staging_moves_only_what_is_behind(state: ApplicationState) -> None:
    """Each task stays placed once, on a client that is not further behind; warm-ups within the limit; twice is once."""
    target = StickyTaskAssignor().assign(state)
    wanted, result = Judged.of(state, target), refine_with_warmups(state, target)
    got = Judged.of(state, result.values())
    columns = state.columns
    lags = {client: columns.lag_row(client) for client in range(len(columns.clients))}

    assert (got.owner >= 0).tolist() == (wanted.owner >= 0).tolist()
    for task, (before, after) in enumerate(zip(wanted.owner.tolist(), got.owner.tolist(), strict=True)):
        if before != after:
            assert MISSING not in (lags[before][task], lags[after][task])
            assert lags[after][task] < lags[before][task] or lags[before][task] == UNKNOWN_OFFSET_SUM
    extra = len(got.standby_task) - len(wanted.standby_task)
    assert extra <= len(result.warm_ups) <= state.assignment_configs.max_warmup_replicas
    assert result.needs_probing_rebalance == bool(result.movements)
    moved = [move for move in result.movements if move.role is Role.ACTIVE]
    assert {move.task for move in moved} == {
        columns.tasks.task_id(task) for task in range(len(wanted.owner)) if wanted.owner[task] != got.owner[task]
    }
