"""The assertions find what they are for, and say it so that the author of an assignor can act on it."""

from __future__ import annotations

import itertools

import pytest

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)
from task_assignor.testing import (
    a_client,
    a_state,
    a_stateless_task,
    an_assignment,
    assert_balanced,
    assert_deterministic,
    assert_fair_shares,
    assert_same_in_every_process,
    assert_valid,
    random_states,
    stateful_tasks,
)
from task_assignor.utils import identity_assignment

STATE = a_state(["0_0", "0_1", a_stateless_task("1_0")], [a_client(1, threads=2), 2])


def test_valid_passes_warnings_unless_it_is_strict() -> None:
    state = a_state(["0_0"], 2, num_standby_replicas=1)
    assignment = an_assignment(state, active={1: ["0_0"]})
    assert_valid(state, assignment)
    with pytest.raises(AssertionError, match=r"1 warning.*\n.*TOO_FEW_STANDBYS"):
        assert_valid(state, assignment, strict=True)


def test_valid_prints_the_report() -> None:
    with pytest.raises(AssertionError, match=r"not valid: 3 errors.*\n  error: Task 0_0 is active on no client"):
        assert_valid(STATE, an_assignment(STATE))


def test_valid_takes_the_results_of_utilities() -> None:
    state = a_state(["0_0"], [a_client(1, active=["0_0"])])
    assert_valid(state, identity_assignment(state))


@pytest.mark.parametrize("shares", [{1: ["0_0", "0_1"], 2: ["1_0"]}, {1: ["0_0", "1_0"], 2: ["0_1"]}])
def test_balanced_counts_tasks_per_thread(shares: dict[int, list[str]]) -> None:
    assert_balanced(STATE, an_assignment(STATE, active=shares), spread=0)
    assert_fair_shares(STATE, an_assignment(STATE, active=shares))


def test_balanced_names_both_clients() -> None:
    lopsided = an_assignment(STATE, active={2: ["0_0", "0_1", "1_0"]})
    with pytest.raises(AssertionError, match=r"client .*2 has 3 \(3 per thread\), client .*1 has 0 \(0 per thread\)"):
        assert_balanced(STATE, lopsided)
    with pytest.raises(
        AssertionError, match=r"Client .*1 has 0 of 3 all active tasks; its share, with 2 of 3 threads, is 2"
    ):
        assert_fair_shares(STATE, lopsided)


def test_balanced_can_look_at_some_tasks_only() -> None:
    assignment = an_assignment(STATE, active={1: ["0_0", "0_1"], 2: ["1_0"]})
    assert_balanced(STATE, assignment, tasks="stateful")
    with pytest.raises(AssertionError, match="The stateful active tasks are not balanced"):
        assert_balanced(STATE, assignment, tasks="stateful", spread=0.5)
    assert_fair_shares(STATE, assignment, tasks="stateless")


def test_fair_shares_are_rounded_down_or_up() -> None:
    state = a_state(stateful_tasks(0, 5), 2)
    assert_fair_shares(state, an_assignment(state, active={1: ["0_0", "0_1", "0_2"], 2: ["0_3", "0_4"]}))
    with pytest.raises(AssertionError, match="is 2 or 3"):
        assert_fair_shares(state, an_assignment(state, active={1: ["0_0"], 2: ["0_1", "0_2", "0_3", "0_4"]}))


def test_a_fair_share_that_is_whole_is_exact() -> None:
    state = a_state(stateful_tasks(0, 4), [a_client(1), a_client(2), a_client(3, threads=2)])
    assert_fair_shares(state, an_assignment(state, active={1: ["0_0"], 2: ["0_1"], 3: ["0_2", "0_3"]}))
    with pytest.raises(AssertionError, match=r"Client .*1 has 2 of 4 .*with 1 of 4 threads, is 1\."):
        assert_fair_shares(state, an_assignment(state, active={1: ["0_0", "0_1"], 2: ["0_2"], 3: ["0_3"]}))


class Modulo(TaskAssignor):
    """As it should be."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
        return deal(list(application_state.all_tasks), clients)


def deal(tasks: list[TaskId], clients: list[ProcessId]) -> TaskAssignment:
    return TaskAssignment(
        KafkaStreamsAssignment.of(
            client, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in tasks[number :: len(clients)]]
        )
        for number, client in enumerate(clients)
    )


class Remembers(TaskAssignor):
    """Wrong if one instance is used twice, and forbidden even so: every rebalance has a fresh one."""

    def __init__(self) -> None:
        self._calls = itertools.count()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
        turn = next(self._calls) % len(clients)
        return deal(list(application_state.all_tasks), clients[turn:] + clients[:turn])


class OrderOfStrings(TaskAssignor):
    """Depends on the order of a set of strings, and so on PYTHONHASHSEED."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = {str(client): client for client in application_state.kafka_streams_states(compute_task_lags=False)}
        return deal(list(application_state.all_tasks), [clients[text] for text in set(clients)])


class Fails(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        raise ArithmeticError("no luck")


class ReturnsNothing(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return None  # type: ignore[return-value]


def test_deterministic_returns_the_answer() -> None:
    assert_valid(STATE, assert_deterministic(Modulo, STATE))


def test_deterministic_notices_what_an_instance_remembers() -> None:
    assert_deterministic(Remembers, STATE)
    with pytest.raises(AssertionError, match=r"same state a second time gave another answer\. The first difference"):
        assert_deterministic(Remembers(), STATE)


def test_deterministic_notices_an_order_that_is_not_of_the_state() -> None:
    class OrderOfConstruction(TaskAssignor):
        calls = itertools.count()

        def assign(self, application_state: ApplicationState) -> TaskAssignment:
            clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
            return deal(list(application_state.all_tasks), clients if next(self.calls) < 2 else clients[::-1])

    with pytest.raises(AssertionError, match=r"put together in another order \(shuffled\(state, 0\)\)"):
        assert_deterministic(OrderOfConstruction, STATE)


def test_deterministic_notices_an_answer_that_is_none() -> None:
    with pytest.raises(AssertionError, match="answered None, which is not a TaskAssignment"):
        assert_deterministic(ReturnsNothing, STATE)


def test_processes_with_other_hashes_agree_on_a_proper_assignor() -> None:
    assert_same_in_every_process(Modulo, random_states(1, 20))


def test_processes_with_other_hashes_disagree_on_the_order_of_a_set() -> None:
    states = [a_state(stateful_tasks(0, 10), 10)]
    with pytest.raises(AssertionError, match=r"PYTHONHASHSEED=[12], for state number 0, gave another answer"):
        assert_same_in_every_process(OrderOfStrings, states, hash_seeds=[1, 2])


def test_a_process_that_fails_is_shown() -> None:
    class Sick(Modulo):
        """Cannot be found by its name in another process."""

    with pytest.raises(AssertionError, match=r"process with PYTHONHASHSEED=0 failed:(?s:.*)AttributeError"):
        assert_same_in_every_process(Sick, [STATE])
